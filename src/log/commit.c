/* commit.c - the group commit: one pwritev and one fdatasync for everything that is pending.
 *
 * A cycle takes all pending buffers under the mutex, writes them outside of it, and only then calls them durable. It
 * writes whole 4 KiB pages: the bytes of the last partial page are kept and written again in front of the next ones,
 * zeros follow behind, so that the kernel never has to read a page of a recycled segment, and a header of zeros ends
 * the frames. A cycle that crosses into another segment writes and syncs both. The first error of any call here makes
 * the log FAILED for good: after a failed sync nobody knows what is on disk. One thread at a time; it alone uses the
 * head's descriptor and the page. */
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../base/clock.h"

static const uint8_t zeros[2 * RDV_PAGE];

struct run { /* bytes of one segment, collected over the buffers of a cycle */
	uint32_t segment, start, end;
	struct iovec *iov; /* owns; [0] is the page's kept part, the last one zeros */
	int count, capacity;
};

static void wake_all(struct rdv_log *log, uint32_t parity)
{
	atomic_fetch_add(&log->done[parity & 1], 1);
	syscall(SYS_futex, &log->done[parity & 1], FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void rdv_log_fail(struct rdv_log *log)
{
	pthread_mutex_lock(&log->mutex);
	atomic_store(&log->failed, true);
	pthread_cond_broadcast(&log->work);
	pthread_cond_broadcast(&log->room);
	pthread_mutex_unlock(&log->mutex);
	wake_all(log, 0);
	wake_all(log, 1);
}

void rdv_log_on_durable(struct rdv_log *log, rdv_log_durable call, void *ctx)
{
	log->on_durable = call;
	log->on_durable_ctx = ctx;
}

void rdv_log_wake(struct rdv_log *log)
{
	pthread_mutex_lock(&log->mutex);
	log->woken = true;
	log->writer_waits = false;
	pthread_mutex_unlock(&log->mutex);
	pthread_cond_signal(&log->work);
}

static bool add(struct run *run, const void *data, size_t size)
{
	if (run->count == run->capacity) {
		int capacity = run->capacity ? 2 * run->capacity : 16;
		struct iovec *iov = realloc(run->iov, (size_t)capacity * sizeof *iov);

		if (!iov)
			return false;
		run->iov = iov;
		run->capacity = capacity;
	}
	run->iov[run->count++] = (struct iovec){(void *)(uintptr_t)data, size};
	return true;
}

static enum redrive_status open_head(struct rdv_log *log, uint32_t segment, struct rdv_error *error)
{
	enum redrive_status status;

	if (log->fd >= 0 && log->fd_segment == segment)
		return REDRIVE_OK;
	status = rdv_log_need_segment(log, segment, error);
	if (status != REDRIVE_OK)
		return status;
	rdv_store_close(&log->store, log->fd);
	log->fd = -1;
	log->fd_segment = segment;
	return rdv_store_open(&log->store, RDV_STORE_SEGMENT, segment, O_RDWR, &log->fd, error);
}

/* Keeps the bytes between the last page boundary and the end of the run. `iov` still describes all of it. */
static void keep_page(struct rdv_log *log, const struct run *run, const struct iovec *iov, int count)
{
	uint32_t from = run->end & ~(RDV_PAGE - 1), at = run->start & ~(RDV_PAGE - 1);
	int i;

	for (i = 0; i < count; i++) {
		uint32_t size = (uint32_t)iov[i].iov_len;
		const uint8_t *data = iov[i].iov_base;

		if (at + size > from) {
			uint32_t skip = at < from ? from - at : 0;

			memmove(log->page + (at + skip - from), data + skip, size - skip);
		}
		at += size;
	}
}

static enum redrive_status write_run(struct rdv_log *log, struct run *run, struct rdv_error *error)
{
	const struct rdv_store *s = &log->store;
	uint32_t start = run->start & ~(RDV_PAGE - 1);
	uint64_t end = ((uint64_t)run->end + RDV_FRAME_HEADER + RDV_PAGE - 1) & ~(uint64_t)(RDV_PAGE - 1);
	struct iovec *copy;
	enum redrive_status status = open_head(log, run->segment, error);
	int count = run->count, err;

	if (status != REDRIVE_OK)
		return status;
	if (end > s->segment_size)
		end = s->segment_size;
	run->iov[0] = (struct iovec){log->page, run->start - start};
	if (!add(run, zeros, (size_t)(end - run->end)))
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory to write segment %u", run->segment);
	copy = malloc((size_t)run->count * sizeof *copy);
	if (!copy)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory to write segment %u", run->segment);
	memcpy(copy, run->iov, (size_t)run->count * sizeof *copy);
	err = rdv_file_write_all(s->ops, s->ctx, log->fd, copy, run->count, start);
	free(copy);
	if (err)
		return rdv_error_errno(error, -err, "write segment %u at %u", run->segment, run->start);
	err = s->ops->fdatasync(s->ctx, log->fd);
	if (err)
		return rdv_error_errno(error, -err, "sync segment %u", run->segment);
	keep_page(log, run, run->iov, count);
	return REDRIVE_OK;
}

static void start_run(struct run *run, uint32_t segment, uint32_t start)
{
	run->segment = segment;
	run->start = run->end = start;
	run->count = 0;
	(void)!add(run, NULL, 0); /* the page's part; capacity was made by the caller */
}

static enum redrive_status write_buffers(struct rdv_log *log, const struct rdv_log_buffer *b, struct run *run,
					 struct rdv_error *error)
{
	for (; b; b = b->next) {
		uint32_t i;

		for (i = 0; i < b->span_count; i++) {
			const struct rdv_log_span *span = &b->spans[i];

			if (span->segment != run->segment) {
				enum redrive_status status = run->segment ? write_run(log, run, error) : REDRIVE_OK;

				if (status != REDRIVE_OK)
					return status;
				start_run(run, span->segment, span->offset);
			}
			if (!add(run, b->data + span->at, span->size))
				return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory to write segment %u",
						     run->segment);
			run->end += (uint32_t)span->size;
		}
	}
	return run->segment ? write_run(log, run, error) : REDRIVE_OK;
}

/* Waits for work; takes all of it. NULL if there is none. */
static struct rdv_log_buffer *take(struct rdv_log *log, int wait_ms)
{
	struct timespec until;
	struct rdv_log_buffer *b;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&log->mutex);
	while (!log->first && !(log->open && log->open->used) && !log->woken && wait_ms > 0 && err == 0 &&
	       !atomic_load(&log->failed)) {
		log->writer_waits = true;
		err = pthread_cond_timedwait(&log->work, &log->mutex, &until);
	}
	log->writer_waits = log->woken = false;
	b = log->first;
	if (log->open && log->open->used) {
		if (log->last)
			log->last->next = log->open;
		else
			b = log->open;
		log->open = NULL;
	}
	log->first = log->last = NULL;
	if (b) {
		log->taken = log->next - 1;
		log->cycle++;
	}
	pthread_mutex_unlock(&log->mutex);
	return b;
}

static void finish(struct rdv_log *log, const struct run *run, const struct rdv_log_buffer *b)
{
	unsigned count = 0, large = 0;

	for (; b; b = b->next) {
		count++;
		large += b->capacity > log->buffer_size;
	}
	pthread_mutex_lock(&log->mutex);
	log->pending -= count;
	log->large_pending -= large;
	log->durable_end = (struct rdv_position){run->segment, run->end};
	atomic_store(&log->durable, log->taken);
	if (log->room_waiters)
		pthread_cond_broadcast(&log->room);
	pthread_mutex_unlock(&log->mutex);
	wake_all(log, log->cycle);
}

/* Hands the buffers to the receiver, and gives them back. */
static void deliver(struct rdv_log *log, struct rdv_log_buffer *b, bool durable)
{
	while (b) {
		struct rdv_log_buffer *next = b->next, *small = NULL;

		b->next = NULL;
		if (durable && log->on_durable) {
			if (b->used <= b->capacity / 8)
				small = rdv_log_buffer_shrink(b);
			log->on_durable(log->on_durable_ctx, small ? small : b, b->last);
		}
		rdv_log_buffer_unref(small);
		rdv_log_buffer_unref(b);
		b = next;
	}
}

enum redrive_status rdv_log_commit(struct rdv_log *log, int wait_ms, bool *did, struct rdv_error *error)
{
	struct run run = {0};
	struct rdv_log_buffer *b;
	enum redrive_status status = REDRIVE_NO_MEMORY;

	*did = false;
	if (atomic_load(&log->failed))
		return rdv_error_set(error, REDRIVE_FAILED, "the log has failed");
	b = take(log, wait_ms);
	if (!b)
		return REDRIVE_OK;
	*did = true;
	if (add(&run, NULL, 0))
		status = write_buffers(log, b, &run, error);
	if (status == REDRIVE_OK)
		finish(log, &run, b);
	else
		rdv_log_fail(log);
	free(run.iov);
	deliver(log, b, status == REDRIVE_OK);
	if (status == REDRIVE_OK)
		rdv_log_check_disk(log, 250);
	return status;
}
