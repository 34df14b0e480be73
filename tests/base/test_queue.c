/* test_queue.c - order, bounds, closing, waking; several producers and consumers at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/block.h"
#include "base/clock.h"
#include "base/queue.h"
#include "base/random.h"
#include <stdatomic.h>
#include <stdlib.h>

static void *number(uintptr_t n)
{
	return (void *)n;
}

static void queue_keeps_order_and_takes_what_fits(void **state)
{
	void *in[10], *out[10];
	struct rdv_queue q;

	for (uintptr_t i = 0; i < 10; i++)
		in[i] = number(i + 1);
	assert_int_equal(rdv_queue_init(&q, 7), REDRIVE_OK);
	assert_int_equal(rdv_queue_push(&q, in, 5), 5);
	assert_int_equal(rdv_queue_pop(&q, out, 3, 0), 3);
	assert_ptr_equal(out[2], number(3));
	assert_int_equal(rdv_queue_push(&q, in + 5, 5), 5); /* wraps around */
	assert_int_equal(rdv_queue_size(&q), 7);
	assert_int_equal(rdv_queue_push(&q, in, 1), 0); /* full: refused, not blocked */
	assert_int_equal(rdv_queue_pop(&q, out, 2, 0), 2);
	assert_int_equal(rdv_queue_push(&q, in, 5), 2); /* a prefix */
	assert_int_equal(rdv_queue_pop(&q, out, 10, -1), 7);
	for (uintptr_t i = 0; i < 5; i++)
		assert_ptr_equal(out[i], number(i + 6));
	assert_ptr_equal(out[5], number(1));
	assert_ptr_equal(out[6], number(2));
	assert_int_equal(rdv_queue_pop(&q, out, 10, 0), 0);
	assert_int_equal(rdv_queue_push(&q, NULL, 0), 0);
	rdv_queue_done(&q);
}

static void queue_without_capacity_is_refused(void **state)
{
	struct rdv_queue q;

	assert_int_equal(rdv_queue_init(&q, 0), REDRIVE_INVALID);
	rdv_queue_done(&q);
	assert_int_equal(rdv_queue_init(&q, SIZE_MAX), REDRIVE_INVALID);
	rdv_queue_done(&q);
	rdv_queue_done(NULL);
}

static void queue_close_refuses_pushes_and_drains_pops(void **state)
{
	void *item = number(1), *out[2];
	struct rdv_queue q;

	assert_int_equal(rdv_queue_init(&q, 2), REDRIVE_OK);
	assert_int_equal(rdv_queue_push(&q, &item, 1), 1);
	rdv_queue_close(&q);
	assert_int_equal(rdv_queue_push(&q, &item, 1), 0);
	assert_int_equal(rdv_queue_pop(&q, out, 2, -1), 1);
	assert_int_equal(rdv_queue_pop(&q, out, 2, -1), 0); /* at once, although it would wait for ever */
	rdv_queue_done(&q);
}

static void queue_pop_gives_up_after_its_time(void **state)
{
	void *out;
	struct rdv_queue q;
	int64_t before = rdv_mono_now_us(), took;

	assert_int_equal(rdv_queue_init(&q, 1), REDRIVE_OK);
	assert_int_equal(rdv_queue_pop(&q, &out, 1, 20), 0);
	took = rdv_mono_now_us() - before;
	assert_in_range(took, 20000, 10000000);
	assert_int_equal(q.waiters, 0);
	rdv_queue_done(&q);
}

static void count_call(void *ctx)
{
	(*(int *)ctx)++;
}

static void queue_notifies_only_when_it_was_empty(void **state)
{
	void *items[3] = {number(1), number(2), number(3)}, *out[3];
	struct rdv_queue q;
	int calls = 0;

	assert_int_equal(rdv_queue_init(&q, 5), REDRIVE_OK);
	q.notify = count_call;
	q.notify_ctx = &calls;
	(void)rdv_queue_push(&q, items, 0);
	assert_int_equal(calls, 0);
	(void)rdv_queue_push(&q, items, 3);
	assert_int_equal(calls, 1);
	(void)rdv_queue_push(&q, items, 1);
	assert_int_equal(calls, 1);
	(void)rdv_queue_pop(&q, out, 3, 0);
	(void)rdv_queue_push(&q, items, 1);
	assert_int_equal(calls, 1); /* one was left */
	(void)rdv_queue_pop(&q, out, 3, 0);
	(void)rdv_queue_push(&q, items, 1);
	assert_int_equal(calls, 2);
	rdv_queue_close(&q);
	(void)rdv_queue_push(&q, items, 1);
	assert_int_equal(calls, 2);
	rdv_queue_done(&q);
}

enum { PRODUCERS = 4, CONSUMERS = 3, PER_PRODUCER = 20000 };

struct crowd {
	struct rdv_queue queue;
	atomic_uint producers;    /* gives each its number */
	uint8_t *seen[PRODUCERS]; /* per item, how often */
	pthread_mutex_t mutex;
	bool in_order;
};

/* An item is producer << 20 | its sequence + 1. */
static void *produce(void *ctx)
{
	struct crowd *crowd = ctx;
	uintptr_t id = atomic_fetch_add(&crowd->producers, 1), next = 0;
	struct rdv_random r;

	rdv_random_seed(&r, id);
	while (next < PER_PRODUCER) {
		void *batch[50];
		size_t size = 1 + rdv_random_below(&r, 50);
		if (size > PER_PRODUCER - next)
			size = PER_PRODUCER - next;
		for (size_t i = 0; i < size; i++)
			batch[i] = number(id << 20 | (next + i + 1));
		size = rdv_queue_push(&crowd->queue, batch, size);
		next += size;
		if (!size)
			sched_yield();
	}
	return NULL;
}

static void *consume(void *ctx)
{
	struct crowd *crowd = ctx;
	uintptr_t last[PRODUCERS] = {0};
	void *batch[32];
	size_t size;

	while ((size = rdv_queue_pop(&crowd->queue, batch, 32, -1)) > 0) {
		pthread_mutex_lock(&crowd->mutex);
		for (size_t i = 0; i < size; i++) {
			uintptr_t id = (uintptr_t)batch[i] >> 20, n = (uintptr_t)batch[i] & 0xFFFFF;
			crowd->in_order = crowd->in_order && n > last[id];
			last[id] = n;
			crowd->seen[id][n - 1]++;
		}
		pthread_mutex_unlock(&crowd->mutex);
	}
	return NULL;
}

static void queue_many_threads_lose_nothing_double_nothing_and_keep_order(void **state)
{
	pthread_t producers[PRODUCERS], consumers[CONSUMERS];
	struct crowd crowd = {.in_order = true};

	assert_int_equal(rdv_queue_init(&crowd.queue, 100), REDRIVE_OK);
	pthread_mutex_init(&crowd.mutex, NULL);
	for (int i = 0; i < PRODUCERS; i++)
		crowd.seen[i] = calloc(PER_PRODUCER, 1);
	for (int i = 0; i < CONSUMERS; i++)
		assert_int_equal(pthread_create(&consumers[i], NULL, consume, &crowd), 0);
	for (int i = 0; i < PRODUCERS; i++)
		assert_int_equal(pthread_create(&producers[i], NULL, produce, &crowd), 0);
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(producers[i], NULL);
	rdv_queue_close(&crowd.queue);
	for (int i = 0; i < CONSUMERS; i++)
		pthread_join(consumers[i], NULL);
	assert_true(crowd.in_order);
	assert_int_equal(rdv_queue_size(&crowd.queue), 0);
	for (int i = 0; i < PRODUCERS; i++) {
		for (int n = 0; n < PER_PRODUCER; n++)
			assert_int_equal(crowd.seen[i][n], 1);
		free(crowd.seen[i]);
	}
	pthread_mutex_destroy(&crowd.mutex);
	rdv_queue_done(&crowd.queue);
}

static unsigned waiting(struct rdv_queue *q)
{
	unsigned waiters;

	pthread_mutex_lock(&q->mutex);
	waiters = q->waiters;
	pthread_mutex_unlock(&q->mutex);
	return waiters;
}

static void *wait_for_one(void *ctx)
{
	void *item = NULL;

	return number(rdv_queue_pop(ctx, &item, 1, -1));
}

static void queue_wakes_all_who_wait_for_a_batch_and_for_the_end(void **state)
{
	void *items[2] = {number(1), number(2)}, *got;
	pthread_t threads[4];
	struct rdv_queue q;
	size_t sum = 0;

	assert_int_equal(rdv_queue_init(&q, 4), REDRIVE_OK);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for_one, &q), 0);
	while (waiting(&q) < 4)
		sched_yield();
	assert_int_equal(rdv_queue_push(&q, items, 2), 2);
	while (rdv_queue_size(&q))
		sched_yield();
	rdv_queue_close(&q);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &got);
		sum += (uintptr_t)got;
	}
	assert_int_equal(sum, 2);
	rdv_queue_done(&q);
}

static void *share_block(void *ctx)
{
	for (int i = 0; i < 10000; i++) {
		struct rdv_block *b = rdv_block_ref(ctx);
		if (b->data[0] != 'b')
			abort();
		rdv_block_unref(b);
	}
	rdv_block_unref(ctx);
	return NULL;
}

static void block_is_freed_by_whoever_is_last(void **state)
{
	struct rdv_block *b = rdv_block_copy(rdv_slice_text("body"));
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, share_block, rdv_block_ref(b)), 0);
	rdv_block_unref(b);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_keeps_order_and_takes_what_fits),
		cmocka_unit_test(queue_without_capacity_is_refused),
		cmocka_unit_test(queue_close_refuses_pushes_and_drains_pops),
		cmocka_unit_test(queue_pop_gives_up_after_its_time),
		cmocka_unit_test(queue_notifies_only_when_it_was_empty),
		cmocka_unit_test(queue_many_threads_lose_nothing_double_nothing_and_keep_order),
		cmocka_unit_test(queue_wakes_all_who_wait_for_a_batch_and_for_the_end),
		cmocka_unit_test(block_is_freed_by_whoever_is_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
