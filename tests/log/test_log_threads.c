/* Many threads at once: publishers, the writer, maintenance, readers, an owner that trims. Run under TSan, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "log/internal.h"
#include "log/log.h"
#include "log/scratch.h"

enum { PUBLISHERS = 4, BATCHES = 150, BATCH = 8, RECENT = 256 };

struct fixture {
	char dir[64];
	struct rdv_log *log;
	struct rdv_error error;
	_Atomic bool stop;
	_Atomic uint64_t acked, read;
	pthread_mutex_t mutex;
	struct rdv_read recent[RECENT];
	size_t recent_count;
	uint64_t delivered, folded, last_number;
	uint64_t next_of[PUBLISHERS];
};

struct publisher {
	struct fixture *x;
	uint32_t id;
	pthread_t thread;
};

/* Frames of one publisher come in its order, whole. */
static enum redrive_status fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct fixture *x = ctx;

	assert_true(frame->number == x->last_number + 1 || x->last_number == 0);
	x->last_number = frame->number;
	assert_true(frame->stream < PUBLISHERS);
	assert_true(frame->seq == x->next_of[frame->stream] || x->folded == 0 || x->next_of[frame->stream] == 0);
	x->next_of[frame->stream] = frame->seq + 1;
	x->folded++;
	return REDRIVE_OK;
}

static void *publish(void *arg)
{
	struct publisher *p = arg;
	uint64_t seq = 1, ticket;
	int i, j;

	for (i = 0; i < BATCHES; i++) {
		uint32_t length = 100 + 900u * (i % 17 == 0) + 20000u * (i % 50 == 0);

		if (rdv_log_begin(p->x->log, p->id ? RDV_LOG_PUBLISH : RDV_LOG_OUTCOME, (size_t)BATCH * length, BATCH,
				  10000) != REDRIVE_OK)
			abort();
		for (j = 0; j < BATCH; j++) {
			struct rdv_frame frame = {.type = 3, .stream = p->id, .seq = seq, .length = length};

			memset(rdv_log_put(p->x->log, &frame), (int)(seq++ & 255), length);
		}
		rdv_log_end(p->x->log, true, &ticket);
		if (i % 3 == 0 && rdv_log_wait(p->x->log, ticket, 20000) != REDRIVE_OK)
			abort();
		if (i % 3 == 0 && rdv_log_durable_ticket(p->x->log) < ticket)
			abort();
		p->x->acked += BATCH;
	}
	return NULL;
}

/* The writer's thread is the owner here: nothing lives for longer than three segments. */
static void on_durable(void *ctx, struct rdv_log_buffer *buffer, uint64_t ticket)
{
	struct fixture *x = ctx;
	struct rdv_log_space space;
	struct rdv_frame frame;
	size_t cursor = 0;

	while (rdv_log_buffer_next(buffer, &cursor, &frame)) {
		x->delivered++;
		pthread_mutex_lock(&x->mutex);
		x->recent[x->recent_count++ % RECENT] = (struct rdv_read){
			.position = frame.position, .length = frame.length, .cookie = (void *)(uintptr_t)frame.seq};
		pthread_mutex_unlock(&x->mutex);
	}
	rdv_log_space(x->log, &space);
	if (space.head - space.tail > 3)
		rdv_log_drop_tail(x->log, ticket);
}

static void *run_writer(void *arg)
{
	struct fixture *x = arg;

	while (!x->stop) {
		bool did;

		if (rdv_log_commit(x->log, 20, &did, &x->error) != REDRIVE_OK)
			abort();
	}
	return NULL;
}

static void *run_maintain(void *arg)
{
	struct fixture *x = arg;
	struct rdv_error error = {0};

	while (!x->stop) {
		bool did;

		if (rdv_log_maintain(x->log, &did, &error) != REDRIVE_OK)
			abort();
		if (!did)
			sched_yield();
	}
	return NULL;
}

static void *run_reader(void *arg)
{
	struct fixture *x = arg;

	while (!x->stop) {
		struct rdv_read reads[16], *list[16];
		size_t count = 0, i;

		pthread_mutex_lock(&x->mutex);
		for (i = 0; i < 16 && i < x->recent_count; i++) {
			reads[count] = x->recent[(i * 13) % (x->recent_count < RECENT ? x->recent_count : RECENT)];
			list[count] = &reads[count];
			count++;
		}
		pthread_mutex_unlock(&x->mutex);
		rdv_log_read_many(x->log, list, count);
		for (i = 0; i < count; i++) {
			if (reads[i].status != REDRIVE_OK && reads[i].status != REDRIVE_NOT_FOUND) /* gone meanwhile */
				abort();
			if (reads[i].block && reads[i].block->data[0] != (uint8_t)(uintptr_t)reads[i].cookie)
				abort();
			x->read += reads[i].block != NULL;
			rdv_block_unref(reads[i].block);
		}
		sched_yield();
	}
	return NULL;
}

static void open_log(struct fixture *x)
{
	struct rdv_log_options options = {
		.dir = x->dir, .segment_size = 256 << 10, .buffer_size = 64 << 10, .capacity = 64 << 20};

	assert_int_equal(rdv_log_open(&options, fold, x, &x->log, NULL, &x->error), REDRIVE_OK);
	x->log->hint_after_ms = 0;
}

static void publishers_writer_readers_and_trimming_work_side_by_side(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);
	struct publisher p[PUBLISHERS];
	pthread_t threads[4];
	uint32_t i;

	(void)state;
	assert_non_null(scratch_make(x->dir));
	pthread_mutex_init(&x->mutex, NULL);
	open_log(x);
	rdv_log_on_durable(x->log, on_durable, x);
	pthread_create(&threads[0], NULL, run_writer, x);
	pthread_create(&threads[1], NULL, run_maintain, x);
	pthread_create(&threads[2], NULL, run_reader, x);
	pthread_create(&threads[3], NULL, run_reader, x);
	for (i = 0; i < PUBLISHERS; i++) {
		p[i] = (struct publisher){.x = x, .id = i};
		pthread_create(&p[i].thread, NULL, publish, &p[i]);
	}
	for (i = 0; i < PUBLISHERS; i++)
		pthread_join(p[i].thread, NULL);
	assert_int_equal(rdv_log_wait(x->log, PUBLISHERS * BATCHES * BATCH, 20000), REDRIVE_OK);
	x->stop = true;
	rdv_log_wake(x->log);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(x->delivered, PUBLISHERS * BATCHES * BATCH);
	assert_true(x->read > 0);
	rdv_log_close(x->log);
	open_log(x);
	assert_int_equal(x->last_number, PUBLISHERS * BATCHES * BATCH);
	assert_true(x->folded < x->delivered); /* it was trimmed */
	rdv_log_close(x->log);
	pthread_mutex_destroy(&x->mutex);
	scratch_remove(x->dir);
	free(x);
}

struct waiter {
	struct rdv_log *log;
	enum redrive_status status;
};

static void *wait_forever(void *arg)
{
	struct waiter *w = arg;

	w->status = rdv_log_wait(w->log, 1, -1);
	return NULL;
}

static void a_failure_wakes_everyone_who_waits(void **state)
{
	struct fixture x = {0};
	struct waiter w[8];
	pthread_t threads[8];
	int i;

	(void)state;
	assert_non_null(scratch_make(x.dir));
	open_log(&x);
	for (i = 0; i < 8; i++) {
		w[i] = (struct waiter){x.log, REDRIVE_OK};
		pthread_create(&threads[i], NULL, wait_forever, &w[i]);
	}
	rdv_log_fail(x.log);
	for (i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(w[i].status, REDRIVE_FAILED);
	}
	rdv_log_close(x.log);
	scratch_remove(x.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(publishers_writer_readers_and_trimming_work_side_by_side),
		cmocka_unit_test(a_failure_wakes_everyone_who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
