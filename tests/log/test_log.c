/* The append side: batches, buffers, waiting, limits, FAILED. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include "base/clock.h"
#include "log/faulty_files.h"
#include "log/log.h"

struct seen {
	uint64_t frames, bytes, last_seq, mores;
	uint32_t segments, last_segment;
};

struct fixture {
	struct rdv_faulty *files;
	struct rdv_log *log;
	struct rdv_log_opened opened;
	struct rdv_error error;
	struct seen folded, durable;
	struct rdv_log_buffer *kept;
	uint64_t seq;
};

static void see(struct seen *s, const struct rdv_frame *frame)
{
	uint32_t i;

	assert_int_equal(frame->seq, s->last_seq + 1);
	for (i = 0; i < frame->payload.size; i++)
		assert_int_equal(frame->payload.data[i], (uint8_t)frame->seq);
	s->last_seq = frame->seq;
	s->frames++;
	s->bytes += frame->length;
	s->mores += frame->flags & RDV_FRAME_MORE;
	s->segments += frame->position.segment != s->last_segment;
	s->last_segment = frame->position.segment;
}

static enum redrive_status fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct fixture *x = ctx;

	see(&x->folded, frame);
	return REDRIVE_OK;
}

static void on_durable(void *ctx, struct rdv_log_buffer *buffer, uint64_t ticket)
{
	struct fixture *x = ctx;
	struct rdv_frame frame;
	size_t cursor = 0;

	while (rdv_log_buffer_next(buffer, &cursor, &frame)) {
		see(&x->durable, &frame);
		assert_ptr_equal(rdv_log_buffer_find(buffer, frame.position, frame.length).data, frame.payload.data);
	}
	assert_int_equal(ticket, frame.number);
	rdv_log_buffer_unref(x->kept);
	x->kept = rdv_log_buffer_ref(buffer);
}

static void reopen(struct fixture *x)
{
	struct rdv_log_options options = {.dir = "/d",
					  .files = &rdv_faulty_ops,
					  .files_ctx = x->files,
					  .segment_size = 64 << 10,
					  .buffer_size = 32 << 10,
					  .capacity = 16 << 20};

	rdv_log_close(x->log);
	x->folded = (struct seen){0};
	assert_int_equal(rdv_log_open(&options, fold, x, &x->log, &x->opened, &x->error), REDRIVE_OK);
	rdv_log_on_durable(x->log, on_durable, x);
}

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);

	x->files = rdv_faulty_new(1);
	reopen(x);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	rdv_log_close(x->log);
	rdv_log_buffer_unref(x->kept); /* also after the log is gone */
	rdv_faulty_free(x->files);
	free(x);
	return 0;
}

static enum redrive_status put(struct fixture *x, enum rdv_log_use use, uint32_t frames, uint32_t length, int wait_ms)
{
	enum redrive_status status = rdv_log_begin(x->log, use, (size_t)frames * length, frames, wait_ms);
	uint64_t ticket;

	if (status != REDRIVE_OK)
		return status;
	while (frames-- > 0) {
		struct rdv_frame frame = {.type = 3, .stream = 1, .seq = ++x->seq, .length = length};

		memset(rdv_log_put(x->log, &frame), (int)(uint8_t)x->seq, length);
	}
	rdv_log_end(x->log, true, &ticket);
	return REDRIVE_OK;
}

static void commit(struct fixture *x)
{
	bool did;

	assert_int_equal(rdv_log_commit(x->log, 0, &did, &x->error), REDRIVE_OK);
}

static void frames_come_back_in_order_with_their_bytes(void **state)
{
	struct fixture *x = *state;

	assert_true(x->opened.created);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 5, 100, 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 0, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(x->durable.frames, 6);
	assert_int_equal(x->durable.mores, 4); /* MORE on all but the last of a batch */
	reopen(x);
	assert_int_equal(x->folded.frames, 6);
	assert_int_equal(x->opened.frames, 6);
	assert_false(x->opened.created);
	assert_false(x->opened.tail_cut);
}

static void a_batch_may_span_buffers_and_segments(void **state)
{
	struct fixture *x = *state;

	/* 10 x 25,000 bytes in buffers of 32 KiB and segments of 64 KiB */
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 3, 100, 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 10, 25000, 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_OUTCOME, 2, 10, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(x->durable.frames, 15);
	assert_int_equal(x->durable.segments, 5);
	reopen(x);
	assert_int_equal(x->folded.frames, 15);
	assert_int_equal(x->folded.segments, 5);
}

static void a_frame_larger_than_a_segment_is_refused(void **state)
{
	struct fixture *x = *state;
	struct rdv_frame frame = {.length = 100000};
	uint64_t ticket;

	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, (uint32_t)rdv_log_max_payload(x->log), 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, (uint32_t)rdv_log_max_payload(x->log) + 1, 0), REDRIVE_TOO_LARGE);
	assert_int_equal(rdv_log_begin(x->log, RDV_LOG_OUTCOME, SIZE_MAX, 1, 0), REDRIVE_TOO_LARGE);
	assert_int_equal(rdv_log_begin(x->log, RDV_LOG_OUTCOME, 1, UINT32_MAX, 0), REDRIVE_TOO_LARGE);
	assert_int_equal(rdv_log_begin(x->log, RDV_LOG_OUTCOME, 100000, 2, 0), REDRIVE_OK);
	assert_null(rdv_log_put(x->log, &frame)); /* nothing was put */
	rdv_log_end(x->log, true, &ticket);
	assert_int_equal(ticket, 1);
	commit(x);
	reopen(x);
	assert_int_equal(x->folded.frames, 1);
}

static void what_is_cancelled_was_never_there(void **state)
{
	struct fixture *x = *state;
	struct rdv_frame frame = {.type = 3, .seq = 99, .length = 30000};
	uint32_t i;

	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 40000, 0), REDRIVE_OK);
	assert_int_equal(rdv_log_begin(x->log, RDV_LOG_OUTCOME, 5 * 30000, 5, 0), REDRIVE_OK);
	for (i = 0; i < 5; i++)
		assert_non_null(rdv_log_put(x->log, &frame)); /* into other segments */
	rdv_log_cancel(x->log);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 100, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(x->durable.frames, 2);
	assert_int_equal(x->durable.segments, 1);
	reopen(x);
	assert_int_equal(x->folded.frames, 2);
}

static void publishers_wait_for_a_buffer_and_outcomes_do_not(void **state)
{
	struct fixture *x = *state;
	int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 30000, 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 30000, 0), REDRIVE_FULL);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 30000, 5), REDRIVE_FULL);
	for (i = 0; i < 4; i++)
		assert_int_equal(put(x, RDV_LOG_OUTCOME, 1, 30000, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 30000, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(x->durable.frames, 9);
}

static void only_one_oversized_batch_of_publishers_is_pending(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(put(x, RDV_LOG_PUBLISH, 3, 40000, 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 3, 40000, 0), REDRIVE_FULL);
	assert_int_equal(put(x, RDV_LOG_OUTCOME, 3, 40000, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 3, 40000, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(x->durable.frames, 9);
}

static void waiting_ends_at_its_timeout_and_not_before_the_sync(void **state)
{
	struct fixture *x = *state;
	uint64_t ticket;

	assert_int_equal(rdv_log_wait(x->log, 0, 0), REDRIVE_OK);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 10, 0), REDRIVE_OK);
	ticket = 1;
	assert_int_equal(rdv_log_wait(x->log, ticket, 0), REDRIVE_TIMEOUT);
	assert_int_equal(rdv_log_wait(x->log, ticket, 3), REDRIVE_TIMEOUT);
	commit(x);
	assert_int_equal(rdv_log_wait(x->log, ticket, 0), REDRIVE_OK);
	assert_int_equal(rdv_log_durable_ticket(x->log), ticket);
}

static void commit_without_work_says_so(void **state)
{
	struct fixture *x = *state;
	bool did = true;

	assert_int_equal(rdv_log_commit(x->log, 1, &did, &x->error), REDRIVE_OK);
	assert_false(did);
	rdv_log_wake(x->log); /* the next one does not wait */
	assert_int_equal(rdv_log_commit(x->log, 1000000, &did, &x->error), REDRIVE_OK);
	assert_false(did);
}

static void the_first_failed_write_or_sync_is_final(void **state)
{
	struct fixture *x = *state;
	bool did;

	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 10, 0), REDRIVE_OK);
	commit(x);
	assert_int_equal(put(x, RDV_LOG_PUBLISH, 1, 10, 0), REDRIVE_OK);
	rdv_faulty_fail(x->files, RDV_CALL_SYNC, 1, EIO, false);
	assert_int_equal(rdv_log_commit(x->log, 0, &did, &x->error), REDRIVE_IO);
	assert_non_null(strstr(x->error.text, "segment 1"));
	assert_true(rdv_log_failed(x->log));
	assert_int_equal(rdv_log_commit(x->log, 0, &did, &x->error), REDRIVE_FAILED);
	assert_int_equal(put(x, RDV_LOG_OUTCOME, 1, 10, 0), REDRIVE_FAILED);
	assert_int_equal(rdv_log_maintain(x->log, &did, &x->error), REDRIVE_FAILED);
	assert_int_equal(rdv_log_wait(x->log, 2, -1), REDRIVE_FAILED);
	assert_int_equal(rdv_log_wait(x->log, 1, -1), REDRIVE_OK);
	assert_int_equal(x->durable.frames, 1);
}

static void reads_find_payloads_in_any_order_and_only_where_they_are(void **state)
{
	struct fixture *x = *state;
	struct rdv_read reads[6], *list[6];
	struct rdv_frame frame;
	size_t cursor = 0, i = 0;

	assert_int_equal(put(x, RDV_LOG_PUBLISH, 4, 1000, 0), REDRIVE_OK);
	commit(x);
	while (rdv_log_buffer_next(x->kept, &cursor, &frame)) {
		reads[3 - i] = (struct rdv_read){.position = frame.position, .length = frame.length};
		i++;
	}
	reads[4] = (struct rdv_read){.position = {1, frame.position.offset + 1040}, .length = 10}; /* not durable */
	reads[5] = (struct rdv_read){.position = {7, 4096}, .length = 10};                         /* no such segment */
	for (i = 0; i < 6; i++)
		list[i] = &reads[i];
	rdv_log_read_many(x->log, list, 6);
	for (i = 0; i < 4; i++) {
		assert_int_equal(reads[i].status, REDRIVE_OK);
		assert_int_equal(reads[i].block->size, 1000);
		assert_int_equal(reads[i].block->data[999], 4 - i);
		rdv_block_unref(reads[i].block);
	}
	assert_int_equal(reads[4].status, REDRIVE_NOT_FOUND);
	assert_int_equal(reads[5].status, REDRIVE_NOT_FOUND);
	rdv_faulty_flip(x->files, "/d/0000000000000001.seg", reads[2].position.offset + 500, 1);
	list[0] = &reads[2];
	rdv_log_read_many(x->log, list, 1);
	assert_int_equal(reads[2].status, REDRIVE_CORRUPT);
	assert_null(reads[2].block);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(frames_come_back_in_order_with_their_bytes),
		TEST(a_batch_may_span_buffers_and_segments),
		TEST(a_frame_larger_than_a_segment_is_refused),
		TEST(what_is_cancelled_was_never_there),
		TEST(publishers_wait_for_a_buffer_and_outcomes_do_not),
		TEST(only_one_oversized_batch_of_publishers_is_pending),
		TEST(waiting_ends_at_its_timeout_and_not_before_the_sync),
		TEST(commit_without_work_says_so),
		TEST(the_first_failed_write_or_sync_is_final),
		TEST(reads_find_payloads_in_any_order_and_only_where_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
