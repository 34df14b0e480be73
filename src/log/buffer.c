/* buffer.c - the shared buffers: bytes of frames as they will lie in the segments, with the places they belong to.
 *
 * A buffer is one allocation: header, spans, bytes. Frames lie one behind the other; a span says where in which segment
 * a stretch of them belongs, so a buffer may cross from one segment to the next. Buffers of the usual size go back to a
 * small free list, which lives until the log is closed and the last buffer is back; so a receiver may keep one as long
 * as it likes. A buffer is written by whoever holds the log's mutex, and never changes after a cycle took it. refs are
 * atomic; any thread may ref, unref, iterate and find. */
#include "internal.h"
#include <stdlib.h>

struct rdv_log_pool {
	pthread_mutex_t mutex;
	unsigned refs; /* the log and every buffer */
	struct rdv_log_buffer *free;
	unsigned free_count;
	size_t buffer_size;
	uint32_t segment_room;
};

struct rdv_log_pool *rdv_log_pool_new(size_t buffer_size, uint32_t segment_size)
{
	struct rdv_log_pool *pool = calloc(1, sizeof *pool);

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->mutex, NULL);
	pool->refs = 1;
	pool->buffer_size = buffer_size;
	pool->segment_room = segment_size - RDV_SEGMENT_START;
	return pool;
}

void rdv_log_pool_unref(struct rdv_log_pool *pool)
{
	unsigned left;

	if (!pool)
		return;
	pthread_mutex_lock(&pool->mutex);
	left = --pool->refs;
	pthread_mutex_unlock(&pool->mutex);
	if (left > 0)
		return;
	while (pool->free) {
		struct rdv_log_buffer *b = pool->free;

		pool->free = b->next;
		free(b);
	}
	pthread_mutex_destroy(&pool->mutex);
	free(pool);
}

uint32_t rdv_log_pool_spans(const struct rdv_log_pool *pool, size_t size)
{
	/* Behind the first one, two neighbours together are larger than a segment's room, or they would be one span. */
	return (uint32_t)(2 * (size / pool->segment_room) + 3);
}

static struct rdv_log_buffer *allocate(struct rdv_log_pool *pool, size_t size, uint32_t spans)
{
	struct rdv_log_buffer *b = malloc(sizeof *b + spans * sizeof *b->spans + size);

	if (!b)
		return NULL;
	b->pool = pool;
	b->spans = (struct rdv_log_span *)(b + 1);
	b->data = (uint8_t *)(b->spans + spans);
	b->span_max = spans;
	b->capacity = size;
	return b;
}

static struct rdv_log_buffer *reset(struct rdv_log_buffer *b)
{
	atomic_init(&b->refs, 1);
	b->next = NULL;
	b->used = 0;
	b->span_count = 0;
	b->last = 0;
	return b;
}

struct rdv_log_buffer *rdv_log_buffer_new(struct rdv_log_pool *pool, size_t size)
{
	struct rdv_log_buffer *b = NULL;

	pthread_mutex_lock(&pool->mutex);
	if (size <= pool->buffer_size && pool->free) {
		b = pool->free;
		pool->free = b->next;
		pool->free_count--;
		pool->refs++;
	}
	pthread_mutex_unlock(&pool->mutex);
	if (b)
		return reset(b);
	if (size < pool->buffer_size)
		size = pool->buffer_size;
	b = allocate(pool, size, rdv_log_pool_spans(pool, size));
	if (!b)
		return NULL;
	pthread_mutex_lock(&pool->mutex);
	pool->refs++;
	pthread_mutex_unlock(&pool->mutex);
	return reset(b);
}

struct rdv_log_buffer *rdv_log_buffer_shrink(const struct rdv_log_buffer *b)
{
	struct rdv_log_buffer *small = allocate(b->pool, b->used, b->span_count);

	if (!small)
		return NULL;
	reset(small);
	memcpy(small->data, b->data, b->used);
	memcpy(small->spans, b->spans, b->span_count * sizeof *b->spans);
	small->used = b->used;
	small->span_count = b->span_count;
	small->last = b->last;
	pthread_mutex_lock(&b->pool->mutex);
	b->pool->refs++;
	pthread_mutex_unlock(&b->pool->mutex);
	return small;
}

struct rdv_log_buffer *rdv_log_buffer_ref(struct rdv_log_buffer *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

void rdv_log_buffer_unref(struct rdv_log_buffer *b)
{
	struct rdv_log_pool *pool;

	if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
		return;
	pool = b->pool;
	pthread_mutex_lock(&pool->mutex);
	if (b->capacity == pool->buffer_size && pool->free_count < 2 * RDV_LOG_BUFFERS) {
		b->next = pool->free;
		pool->free = b;
		pool->free_count++;
		b = NULL;
	}
	pthread_mutex_unlock(&pool->mutex);
	free(b);
	rdv_log_pool_unref(pool);
}

bool rdv_log_buffer_next(const struct rdv_log_buffer *b, size_t *cursor, struct rdv_frame *frame)
{
	const struct rdv_log_span *span = b->spans;

	if (*cursor >= b->used)
		return false;
	while (*cursor >= span->at + span->size)
		span++;
	rdv_frame_decode(b->data + *cursor,
			 (struct rdv_position){span->segment, span->offset + (uint32_t)(*cursor - span->at)}, frame);
	*cursor += RDV_FRAME_HEADER + (size_t)frame->length;
	__builtin_prefetch(b->data + *cursor + RDV_FRAME_HEADER + frame->length); /* most frames are alike */
	__builtin_prefetch(b->data + *cursor + RDV_FRAME_HEADER + frame->length + 64);
	return true;
}

struct rdv_slice rdv_log_buffer_find(const struct rdv_log_buffer *b, struct rdv_position position, uint32_t length)
{
	for (uint32_t i = 0; i < b->span_count; i++) {
		const struct rdv_log_span *span = &b->spans[i];
		size_t at = position.offset - span->offset;

		if (span->segment == position.segment && position.offset >= span->offset &&
		    at + RDV_FRAME_HEADER + length <= span->size)
			return rdv_slice(b->data + span->at + at + RDV_FRAME_HEADER, length);
	}
	return rdv_slice(NULL, 0);
}

void rdv_log_buffer_range(const struct rdv_log_buffer *b, struct rdv_position *first, struct rdv_position *end)
{
	const struct rdv_log_span *last = b->spans + b->span_count - 1;

	*first = *end = (struct rdv_position){0, 0};
	if (!b->span_count)
		return;
	*first = (struct rdv_position){b->spans->segment, b->spans->offset};
	*end = (struct rdv_position){last->segment, last->offset + (uint32_t)last->size};
}
