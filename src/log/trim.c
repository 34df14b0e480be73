/* trim.c - liveness, space, and giving up the tail.
 *
 * Only the owner knows which records live; it counts them per segment here. The log is trimmed at the tail alone: what
 * is still live in the oldest segment is appended again by the owner, then the segment goes. (A hole in the middle
 * would bring messages back whose DONE lay in it.) wants_trim says when that is worth its writes:
 *   - never while live data is over three quarters of the capacity: then only new messages are refused;
 *   - when room becomes short, or the disk is low; and
 *   - when dead bytes dominate (used > 2 x live + 4 segments), so that one old message does not pin the whole log.
 * rdv_log_live and rdv_log_drop_tail belong to the owner's thread; the rest says what it needs. */
#include "internal.h"
#include <assert.h>
#include <stdlib.h>
#include "../base/clock.h"

/* ---- the table of segments: mutex held ---- */

bool rdv_log_segments_reserve(struct rdv_log *log, uint32_t more)
{
	struct rdv_log_segment *segments;
	uint32_t capacity = log->segment_capacity ? log->segment_capacity : 16;

	if (log->segment_capacity - log->segment_count >= more)
		return true;
	while (capacity - log->segment_count < more)
		capacity *= 2;
	segments = realloc(log->segments, capacity * sizeof *segments);
	if (!segments)
		return false;
	log->segments = segments;
	log->segment_capacity = capacity;
	return true;
}

void rdv_log_segment_seal(struct rdv_log *log)
{
	struct rdv_log_segment *head = &log->segments[log->segment_count - 1];

	assert(log->segment_count < log->segment_capacity);
	head->end = log->at.offset;
	head->last = log->next - 1;
	head->sealed_ms = rdv_mono_now().ms;
	log->at = (struct rdv_position){head->number + 1, RDV_SEGMENT_START};
	log->segments[log->segment_count++] = (struct rdv_log_segment){.number = log->at.segment, .first = log->next};
}

struct rdv_log_segment *rdv_log_segment_find(struct rdv_log *log, uint32_t number)
{
	uint32_t tail = log->segments[0].number;

	if (number < tail || number - tail >= log->segment_count)
		return NULL;
	return &log->segments[number - tail];
}

/* ---- space ---- */

uint64_t rdv_log_reserve(struct rdv_log *log)
{
	int64_t records = atomic_load_explicit(&log->live_records, memory_order_relaxed);

	return 2 * (uint64_t)log->store.segment_size + 32 * (uint64_t)(records > 0 ? records : 0);
}

static uint64_t live_bytes(struct rdv_log *log)
{
	int64_t bytes = atomic_load_explicit(&log->live_bytes, memory_order_relaxed);

	return bytes > 0 ? (uint64_t)bytes : 0;
}

bool rdv_log_disk_low(struct rdv_log *log)
{
	uint64_t reserve = rdv_log_reserve(log);
	uint64_t least = log->disk_free > reserve ? log->disk_free : reserve;

	return atomic_load_explicit(&log->free_bytes, memory_order_relaxed) < least;
}

/* Bytes that may still be appended before the capacity is reached; mutex held. */
static uint64_t room(struct rdv_log *log)
{
	uint64_t used = (uint64_t)log->segment_count * log->store.segment_size;

	return (log->capacity > used ? log->capacity - used : 0) + (log->store.segment_size - log->at.offset);
}

static bool refuses(struct rdv_log *log, size_t more)
{
	uint64_t reserve = rdv_log_reserve(log);

	return room(log) < reserve + more || live_bytes(log) > log->capacity / 4 * 3 || rdv_log_disk_low(log);
}

bool rdv_log_refuses(struct rdv_log *log, size_t more)
{
	if (!refuses(log, more))
		return false;
	rdv_log_check_disk(log, 50); /* nothing commits while nothing is taken in: look again here */
	return refuses(log, more);
}

void rdv_log_check_disk(struct rdv_log *log, int64_t older_than_ms)
{
	int64_t now = rdv_mono_now().ms, checked = atomic_load(&log->free_checked_ms);
	uint64_t bytes;

	if (now - checked < older_than_ms || !atomic_compare_exchange_strong(&log->free_checked_ms, &checked, now))
		return;
	if (log->store.ops->free_space(log->store.ctx, log->store.dir, &bytes) == 0)
		atomic_store(&log->free_bytes, bytes);
}

void rdv_log_set_limits(struct rdv_log *log, uint64_t capacity, uint64_t disk_free)
{
	uint64_t files;
	uint32_t tail;

	if (!capacity) {
		rdv_log_check_disk(log, 0);
		pthread_mutex_lock(&log->mutex);
		tail = log->segments[0].number;
		pthread_mutex_unlock(&log->mutex);
		pthread_mutex_lock(&log->files_mutex);
		files = log->ready - tail + 1 + log->spare_count;
		pthread_mutex_unlock(&log->files_mutex);
		capacity = files * log->store.segment_size + atomic_load(&log->free_bytes);
		capacity = capacity > disk_free ? capacity - disk_free : 0;
	}
	atomic_store(&log->capacity, capacity);
	atomic_store(&log->disk_free, disk_free);
}

static struct rdv_log_live *live_of(const struct rdv_log *log, uint32_t segment)
{
	return &log->live[segment & (log->live_capacity - 1)];
}

static bool grow_live(struct rdv_log *log, uint32_t span)
{
	uint32_t capacity = log->live_capacity ? log->live_capacity : 64, i;
	struct rdv_log_live *live;

	while (capacity < span)
		capacity *= 2;
	live = calloc(capacity, sizeof *live);
	if (!live)
		return false;
	for (i = 0; i < log->live_capacity; i++)
		live[(log->owner_tail + i) & (capacity - 1)] = *live_of(log, log->owner_tail + i);
	free(log->live);
	log->live = live;
	log->live_capacity = capacity;
	return true;
}

void rdv_log_live(struct rdv_log *log, uint32_t segment, int32_t delta, int64_t bytes)
{
	uint32_t span = segment - log->owner_tail + 1;
	struct rdv_log_live *live;

	assert(segment >= log->owner_tail);
	atomic_fetch_add_explicit(&log->live_records, delta, memory_order_relaxed);
	atomic_fetch_add_explicit(&log->live_bytes, bytes, memory_order_relaxed);
	if (span > log->live_capacity && !grow_live(log, span))
		log->live_lost = true;
	if (log->live_lost)
		return;
	live = live_of(log, segment);
	live->records += delta;
	live->bytes += bytes;
	assert(live->records >= 0);
	if (segment == log->owner_tail)
		atomic_store_explicit(&log->tail_records, live->records, memory_order_relaxed);
}

static bool worth_trimming(const struct rdv_log_space *space, uint64_t used, uint32_t segment_size, bool low)
{
	if (space->live_bytes > space->capacity / 4 * 3 || space->tail_live == 0)
		return false;
	if (used > 2 * space->live_bytes + 4 * (uint64_t)segment_size)
		return true;
	return low && used > space->live_bytes + space->live_bytes / 4 + 2 * (uint64_t)segment_size;
}

void rdv_log_space(struct rdv_log *log, struct rdv_log_space *out)
{
	uint64_t used, left;
	bool durable_beyond;

	*out = (struct rdv_log_space){
		.capacity = log->capacity, .reserve = rdv_log_reserve(log), .tail = log->owner_tail};
	out->live_bytes = live_bytes(log);
	out->live_records = (out->reserve - 2 * (uint64_t)log->store.segment_size) / 32;
	out->tail_live = log->live_lost ? UINT64_MAX : (uint64_t)log->tail_records;
	pthread_mutex_lock(&log->mutex);
	out->bytes = (uint64_t)log->segment_count * log->store.segment_size;
	out->head = log->at.segment;
	out->refuses = rdv_log_refuses(log, RDV_PAGE); /* a small message would be refused */
	left = room(log);
	durable_beyond = log->durable_end.segment > log->owner_tail;
	pthread_mutex_unlock(&log->mutex);
	out->free_bytes = atomic_load_explicit(&log->free_bytes, memory_order_relaxed);
	used = (uint64_t)(out->head - out->tail + 1) * log->store.segment_size;
	out->wants_trim =
		durable_beyond && !log->live_lost &&
		worth_trimming(out, used, log->store.segment_size,
			       rdv_log_disk_low(log) || left < out->reserve + 2 * (uint64_t)log->store.segment_size);
}

void rdv_log_set_aside(struct rdv_log *log)
{
	pthread_mutex_lock(&log->mutex);
	rdv_log_segment_find(log, log->owner_tail)->damaged = true;
	pthread_mutex_unlock(&log->mutex);
}

void rdv_log_drop_tail(struct rdv_log *log, uint64_t ticket)
{
	struct rdv_log_segment *tail;

	if (log->live_lost)
		return;
	assert(!log->live || live_of(log, log->owner_tail)->records == 0);
	pthread_mutex_lock(&log->mutex);
	assert(log->owner_tail < log->at.segment);
	tail = rdv_log_segment_find(log, log->owner_tail);
	assert(tail);
	tail->dropped = true;
	/* What made its records dead may still be pending, whatever the ticket says: everything appended so far comes
	 * first. */
	tail->drop_ticket = ticket > log->next - 1 ? ticket : log->next - 1;
	pthread_mutex_unlock(&log->mutex);
	if (log->live) {
		struct rdv_log_live *live = live_of(log, log->owner_tail);

		atomic_fetch_sub_explicit(&log->live_bytes, live->bytes, memory_order_relaxed);
		*live = (struct rdv_log_live){0, 0};
	}
	log->owner_tail++;
	log->tail_records = log->live ? live_of(log, log->owner_tail)->records : 0;
}
