/* log.c - the append side: begin, put, end, wait.
 *
 * begin takes the mutex and makes sure that everything announced fits into one buffer, so that put cannot fail for want
 * of memory and a batch lies in one buffer, however many segments it crosses. put gives the place of the next frame;
 * end knows whether the frames are one batch, sets MORE, takes the checksums and lets the writer know.
 *
 * What always holds: numbers have no gaps, a frame lies in one segment, a cycle takes whole begin..end groups only.
 * After the first failure begin answers FAILED. Waiters sleep on a counter of finished cycles (futex), one counter for
 * odd and one for even cycles, so that a finished cycle wakes those it made durable and not those of the next one. */
#include "internal.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec deadline_after(int ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* Publishers are bounded by the pending buffers, outcomes are not. */
static bool may_take_buffer(const struct rdv_log *log, enum rdv_log_use use, size_t size)
{
	if (use == RDV_LOG_OUTCOME)
		return true;
	return log->pending < RDV_LOG_BUFFERS && (size <= log->buffer_size || log->large_pending == 0);
}

static void close_open_buffer(struct rdv_log *log)
{
	if (!log->open)
		return;
	if (log->last)
		log->last->next = log->open;
	else
		log->first = log->open;
	log->last = log->open;
	log->open = NULL;
}

static enum redrive_status take_buffer(struct rdv_log *log, size_t size)
{
	struct rdv_log_buffer *b = rdv_log_buffer_new(log->pool, size);

	if (!b)
		return REDRIVE_NO_MEMORY;
	close_open_buffer(log);
	log->open = b;
	log->pending++;
	log->large_pending += size > log->buffer_size;
	return REDRIVE_OK;
}

static bool fits_open(const struct rdv_log *log, size_t size)
{
	return log->open && log->open->capacity - log->open->used >= size;
}

static enum redrive_status make_room(struct rdv_log *log, enum rdv_log_use use, size_t size, int wait_ms)
{
	struct timespec until = deadline_after(wait_ms > 0 ? wait_ms : 0);
	int err = 0;

	for (;;) {
		if (atomic_load(&log->failed))
			return REDRIVE_FAILED;
		if (use == RDV_LOG_PUBLISH && rdv_log_refuses(log, size))
			return REDRIVE_FULL;
		if (fits_open(log, size))
			return REDRIVE_OK;
		if (may_take_buffer(log, use, size))
			return take_buffer(log, size);
		if (wait_ms == 0 || err == ETIMEDOUT)
			return REDRIVE_FULL;
		log->room_waiters++;
		err = wait_ms < 0 ? pthread_cond_wait(&log->room, &log->mutex)
				  : pthread_cond_timedwait(&log->room, &log->mutex, &until);
		log->room_waiters--;
	}
}

/* What put changes, so that end and cancel know. */
static void remember(struct rdv_log *log, size_t size)
{
	struct rdv_log_buffer *b = log->open;

	log->put.used = b->used;
	log->put.limit = b->used + size;
	log->put.synced = atomic_load(&log->durable);
	log->put.next = log->next;
	log->put.span_count = b->span_count;
	log->put.span_size = b->span_count ? b->spans[b->span_count - 1].size : 0;
	log->put.at = log->at;
	log->put.segment_count = log->segment_count;
}

size_t rdv_log_max_payload(const struct rdv_log *log)
{
	return log->store.segment_size - RDV_SEGMENT_START - RDV_FRAME_HEADER;
}

enum redrive_status rdv_log_begin(struct rdv_log *log, enum rdv_log_use use, size_t payload_bytes, uint32_t frames,
				  int wait_ms)
{
	size_t size;
	enum redrive_status status;

	if (payload_bytes > RDV_LOG_BATCH_MAX || frames > RDV_LOG_BATCH_MAX / RDV_FRAME_HEADER)
		return REDRIVE_TOO_LARGE;
	size = payload_bytes + (size_t)frames * RDV_FRAME_HEADER;
	if (size > RDV_LOG_BATCH_MAX || (frames == 1 && payload_bytes > rdv_log_max_payload(log)))
		return REDRIVE_TOO_LARGE;
	pthread_mutex_lock(&log->mutex);
	status = make_room(log, use, size, wait_ms);
	if (status == REDRIVE_OK && !rdv_log_segments_reserve(log, rdv_log_pool_spans(log->pool, size)))
		status = REDRIVE_NO_MEMORY;
	if (status != REDRIVE_OK) {
		pthread_mutex_unlock(&log->mutex);
		return status;
	}
	remember(log, size);
	return REDRIVE_OK;
}

/* The span that the next frame of `size` bytes belongs to. */
static struct rdv_log_span *span_for(struct rdv_log *log, size_t size)
{
	struct rdv_log_buffer *b = log->open;

	if (log->store.segment_size - log->at.offset < size)
		rdv_log_segment_seal(log);
	if (b->span_count && b->spans[b->span_count - 1].segment == log->at.segment)
		return &b->spans[b->span_count - 1];
	assert(b->span_count < b->span_max);
	b->spans[b->span_count] = (struct rdv_log_span){log->at.segment, log->at.offset, b->used, 0};
	return &b->spans[b->span_count++];
}

uint8_t *rdv_log_put(struct rdv_log *log, struct rdv_frame *frame)
{
	struct rdv_log_buffer *b = log->open;
	size_t size = RDV_FRAME_HEADER + (size_t)frame->length;
	struct rdv_log_span *span;
	uint8_t *bytes = b->data + b->used;

	if (frame->length > rdv_log_max_payload(log) || size > log->put.limit - b->used)
		return NULL;
	assert(frame->hint_len <= frame->length);
	span = span_for(log, size);
	frame->position = log->at;
	frame->number = log->next++;
	frame->synced = log->put.synced;
	frame->flags &= (uint8_t)~RDV_FRAME_MORE;
	rdv_frame_encode(frame, bytes);
	span->size += size;
	b->used += size;
	log->at.offset += (uint32_t)size;
	return bytes + RDV_FRAME_HEADER;
}

static void seal_frames(struct rdv_log *log, bool batch)
{
	const struct rdv_log_buffer *b = log->open;
	size_t at = log->put.used;
	uint32_t i = log->put.span_count ? log->put.span_count - 1 : 0;

	while (at < b->used) {
		size_t size = RDV_FRAME_HEADER + (size_t)rdv_get_u32(b->data + at);
		const struct rdv_log_span *span;

		while (at >= b->spans[i].at + b->spans[i].size)
			i++;
		span = &b->spans[i];
		rdv_frame_seal(log->store.seed, b->data + at,
			       (struct rdv_position){span->segment, span->offset + (uint32_t)(at - span->at)},
			       batch && at + size < b->used);
		at += size;
	}
}

void rdv_log_end(struct rdv_log *log, bool batch, uint64_t *ticket)
{
	bool wake;

	seal_frames(log, batch);
	log->open->last = log->next - 1;
	if (ticket)
		*ticket = log->next - 1;
	wake = log->writer_waits && log->open->used > 0;
	if (wake)
		log->writer_waits = false;
	pthread_mutex_unlock(&log->mutex);
	if (wake)
		pthread_cond_signal(&log->work);
}

void rdv_log_cancel(struct rdv_log *log)
{
	struct rdv_log_buffer *b = log->open;

	b->used = log->put.used;
	b->span_count = log->put.span_count;
	if (b->span_count)
		b->spans[b->span_count - 1].size = log->put.span_size;
	log->next = log->put.next;
	log->at = log->put.at;
	if (log->segment_count > log->put.segment_count) { /* segments sealed since begin are not */
		log->segment_count = log->put.segment_count;
		log->segments[log->segment_count - 1].end = 0;
		log->segments[log->segment_count - 1].last = 0;
	}
	pthread_mutex_unlock(&log->mutex);
}

void rdv_log_settle(struct rdv_log *log)
{
	pthread_mutex_lock(&log->mutex);
	pthread_mutex_unlock(&log->mutex);
}

uint64_t rdv_log_durable_ticket(const struct rdv_log *log)
{
	return atomic_load(&log->durable);
}

bool rdv_log_failed(const struct rdv_log *log)
{
	return atomic_load(&log->failed);
}

/* Milliseconds until `until`, rounded up; never negative. */
static struct timespec time_left(const struct timespec *until)
{
	struct timespec now, left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left.tv_sec = until->tv_sec - now.tv_sec;
	left.tv_nsec = until->tv_nsec - now.tv_nsec;
	if (left.tv_nsec < 0) {
		left.tv_sec--;
		left.tv_nsec += 1000000000;
	}
	return left.tv_sec < 0 ? (struct timespec){0, 0} : left;
}

enum redrive_status rdv_log_wait(struct rdv_log *log, uint64_t ticket, int timeout_ms)
{
	struct timespec until = deadline_after(timeout_ms > 0 ? timeout_ms : 0), left = {0, 0};
	_Atomic uint32_t *word;

	if (atomic_load(&log->durable) >= ticket)
		return REDRIVE_OK;
	pthread_mutex_lock(&log->mutex);
	word = &log->done[(log->cycle + (ticket > log->taken)) & 1];
	pthread_mutex_unlock(&log->mutex);
	for (;;) {
		uint32_t seen =
			atomic_load(word); /* before the look at `durable`: a cycle that ends in between changes it */

		if (atomic_load(&log->durable) >= ticket)
			return REDRIVE_OK;
		if (atomic_load(&log->failed))
			return REDRIVE_FAILED;
		if (timeout_ms >= 0) {
			left = time_left(&until);
			if (left.tv_sec == 0 && left.tv_nsec == 0)
				return REDRIVE_TIMEOUT;
		}
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ms < 0 ? NULL : &left, NULL, 0);
	}
}
