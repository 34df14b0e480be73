/* queue.c - bounded queue between threads: a ring under one mutex.
 *
 * Items leave in the order in which they came; a batch that is pushed stays together. Sleepers are
 * counted, so that a push without sleepers makes no system call. Waiting is by CLOCK_MONOTONIC: a step of
 * the wall clock neither wakes nor hangs anyone. `notify` runs after the mutex is released, so it may use
 * the queue; set it before the first push. Invariant: size <= capacity; head < capacity.
 * All but init and done: any thread. */
#include "queue.h"
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static int init_condition(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int failed = pthread_condattr_init(&attr);

	if (failed)
		return failed;
	failed = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!failed)
		failed = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return failed;
}

enum redrive_status rdv_queue_init(struct rdv_queue *q, size_t capacity)
{
	*q = (struct rdv_queue){.capacity = capacity};
	if (capacity == 0 || capacity > SIZE_MAX / 2)
		return REDRIVE_INVALID;
	q->items = calloc(capacity, sizeof *q->items);
	if (!q->items)
		return REDRIVE_NO_MEMORY;
	if (pthread_mutex_init(&q->mutex, NULL))
		goto no_mutex;
	if (init_condition(&q->not_empty))
		goto no_condition;
	return REDRIVE_OK;
no_condition:
	pthread_mutex_destroy(&q->mutex);
no_mutex:
	free(q->items);
	q->items = NULL;
	return REDRIVE_NO_MEMORY;
}

void rdv_queue_done(struct rdv_queue *q)
{
	if (!q || !q->items)
		return;
	pthread_cond_destroy(&q->not_empty);
	pthread_mutex_destroy(&q->mutex);
	free(q->items);
	q->items = NULL;
}

static void lock(struct rdv_queue *q)
{
	int failed = pthread_mutex_lock(&q->mutex);

	assert(!failed);
	(void)failed;
}

static void unlock(struct rdv_queue *q)
{
	int failed = pthread_mutex_unlock(&q->mutex);

	assert(!failed);
	(void)failed;
}

size_t rdv_queue_push(struct rdv_queue *q, void *const items[], size_t count)
{
	bool woke;
	size_t room, tail;

	lock(q);
	room = q->closed ? 0 : q->capacity - q->size;
	if (count > room)
		count = room;
	tail = q->head + q->size;
	for (size_t i = 0; i < count; i++)
		q->items[(tail + i) % q->capacity] = items[i];
	woke = count && q->size == 0;
	q->size += count;
	if (count && q->waiters) {
		if (count == 1)
			pthread_cond_signal(&q->not_empty);
		else
			pthread_cond_broadcast(&q->not_empty);
	}
	unlock(q);
	if (woke && q->notify)
		q->notify(q->notify_ctx);
	return count;
}

static struct timespec deadline_in(int timeout_ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout_ms / 1000;
	t.tv_nsec += timeout_ms % 1000 * 1000000l;
	if (t.tv_nsec >= 1000000000l) {
		t.tv_nsec -= 1000000000l;
		t.tv_sec++;
	}
	return t;
}

/* Under the mutex: returns when something is there, or nothing will be, or the time is over. */
static void wait_for_items(struct rdv_queue *q, int timeout_ms)
{
	struct timespec deadline = {0};
	int failed = 0;

	if (timeout_ms > 0)
		deadline = deadline_in(timeout_ms);
	q->waiters++;
	while (q->size == 0 && !q->closed && failed != ETIMEDOUT) {
		if (timeout_ms < 0)
			failed = pthread_cond_wait(&q->not_empty, &q->mutex);
		else
			failed = pthread_cond_timedwait(&q->not_empty, &q->mutex, &deadline);
	}
	q->waiters--;
}

size_t rdv_queue_pop(struct rdv_queue *q, void *items[], size_t max, int timeout_ms)
{
	size_t count;

	lock(q);
	if (q->size == 0 && !q->closed && timeout_ms != 0 && max)
		wait_for_items(q, timeout_ms);
	count = q->size < max ? q->size : max;
	for (size_t i = 0; i < count; i++)
		items[i] = q->items[(q->head + i) % q->capacity];
	q->head = (q->head + count) % q->capacity;
	q->size -= count;
	unlock(q);
	return count;
}

void rdv_queue_close(struct rdv_queue *q)
{
	lock(q);
	q->closed = true;
	pthread_cond_broadcast(&q->not_empty);
	unlock(q);
}

size_t rdv_queue_size(struct rdv_queue *q)
{
	size_t size;

	lock(q);
	size = q->size;
	unlock(q);
	return size;
}
