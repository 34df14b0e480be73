/* queue.h - bounded FIFO of pointers between threads, with batch push and pop.
 *
 * Any number of producers and consumers; one mutex, taken once per batch. push never blocks: what
 * does not fit is refused, the producer decides. `notify`, if set, is called by a push that made
 * the queue non-empty (outside the mutex), so that an event loop is woken once per batch.
 * After close, pushes are refused and pops drain, then answer 0 at once. */
#ifndef RDV_BASE_QUEUE_H
#define RDV_BASE_QUEUE_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include "status.h"

struct rdv_queue {
	pthread_mutex_t mutex;
	pthread_cond_t not_empty;
	void **items; /* owns the array, not what it points to */
	size_t capacity, head, size;
	bool closed;
	unsigned waiters;
	void (*notify)(void *ctx);
	void *notify_ctx;
};

enum redrive_status rdv_queue_init(struct rdv_queue *q, size_t capacity) RDV_MUST_CHECK;
void rdv_queue_done(struct rdv_queue *q);
/* Returns how many were taken: all, or a prefix. */
size_t rdv_queue_push(struct rdv_queue *q, void *const items[], size_t count);
/* Waits at most timeout_ms (-1 = for ever, 0 = not) for something; returns how many of `max` were taken. */
size_t rdv_queue_pop(struct rdv_queue *q, void *items[], size_t max, int timeout_ms);
void rdv_queue_close(struct rdv_queue *q);
size_t rdv_queue_size(struct rdv_queue *q);
#endif
