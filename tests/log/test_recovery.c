/* Opening: torn tails are cut, damage is refused and changes nothing, hints give what the frames give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "log/faulty_files.h"
#include "log/frame.h"
#include "log/internal.h"
#include "log/segment.h"

#define SEGMENT1 "/d/0000000000000001.seg"
#define SEGMENT2 "/d/0000000000000002.seg"
#define SEGMENT3 "/d/0000000000000003.seg"
#define HINT1 "/d/0000000000000001.hint"

struct fixture {
	struct rdv_faulty *files;
	struct rdv_log *log;
	struct rdv_log_opened opened;
	struct rdv_error error;
	uint64_t frames, digest, last_seq;
	struct rdv_position at[2000]; /* by seq */
	uint64_t seq;
};

/* Only what hints have, too. */
static enum redrive_status fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct fixture *x = ctx;
	uint64_t fields[] = {frame->type,  frame->flags,  frame->hint_len,         frame->stream,
			     frame->seq,   frame->length, frame->position.segment, frame->position.offset,
			     frame->number};

	assert_true(frame->payload.size >= frame->hint_len);
	x->digest = rdv_xxh3(rdv_slice(fields, sizeof fields)) ^ x->digest * 31;
	x->digest = rdv_xxh3(rdv_slice(frame->payload.data, frame->hint_len)) ^ x->digest * 31;
	x->frames++;
	x->last_seq = frame->seq;
	return REDRIVE_OK;
}

static enum redrive_status reopen(struct fixture *x)
{
	struct rdv_log_options options = {.dir = "/d",
					  .files = &rdv_faulty_ops,
					  .files_ctx = x->files,
					  .segment_size = 64 << 10,
					  .capacity = 16 << 20};
	enum redrive_status status;

	rdv_log_close(x->log);
	x->frames = x->digest = x->last_seq = 0;
	x->error.text[0] = '\0';
	status = rdv_log_open(&options, fold, x, &x->log, &x->opened, &x->error);
	if (x->log) {
		x->log->hint_after_ms = 0;
		x->log->fill_rate = 1ull << 40;
	}
	return status;
}

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);

	x->files = rdv_faulty_new(1);
	assert_int_equal(reopen(x), REDRIVE_OK);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	rdv_log_close(x->log);
	rdv_faulty_free(x->files);
	free(x);
	return 0;
}

static void put(struct fixture *x, uint32_t frames, uint32_t length)
{
	assert_int_equal(rdv_log_begin(x->log, RDV_LOG_OUTCOME, (size_t)frames * length, frames, 0), REDRIVE_OK);
	while (frames-- > 0) {
		struct rdv_frame frame = {
			.type = 3, .stream = 1, .seq = ++x->seq, .length = length, .hint_len = (uint16_t)(length / 3)};

		memset(rdv_log_put(x->log, &frame), (int)x->seq, length);
		x->at[x->seq] = frame.position;
	}
	rdv_log_end(x->log, true, NULL);
}

static void commit(struct fixture *x)
{
	bool did;

	assert_int_equal(rdv_log_commit(x->log, 0, &did, &x->error), REDRIVE_OK);
	assert_true(did);
}

static void maintain(struct fixture *x)
{
	bool did = true;

	while (did)
		assert_int_equal(rdv_log_maintain(x->log, &did, &x->error), REDRIVE_OK);
}

/* 120 frames of 3,000 bytes, in batches of two, one cycle each: segments 1 to 6. */
static void make_segments(struct fixture *x)
{
	int i;

	for (i = 0; i < 60; i++) {
		put(x, 2, 3000);
		commit(x);
	}
	assert_int_equal(x->log->at.segment, 6);
}

/* ---- torn tails ---- */

static void log_opens_when_the_last_frame_is_torn(void **state)
{
	struct fixture *x = *state;

	put(x, 3, 500);
	commit(x);
	put(x, 1, 5000);
	commit(x);
	rdv_faulty_flip(x->files, SEGMENT1, x->at[4].offset + 4500, 0x10);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 3);
	assert_true(x->opened.tail_cut);
	assert_int_equal(x->opened.cut_at.offset, x->at[4].offset);
	put(x, 1, 700); /* the place is used again */
	commit(x);
	assert_int_equal(x->at[5].offset, x->at[4].offset);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 4);
	assert_false(x->opened.tail_cut);
}

static void a_torn_batch_is_cut_to_its_start_valid_frames_included(void **state)
{
	struct fixture *x = *state;

	put(x, 3, 500);
	commit(x);
	put(x, 10, 500);
	commit(x);
	rdv_faulty_flip(x->files, SEGMENT1, x->at[9].offset + 100, 1);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 3);
	assert_int_equal(x->opened.cut_at.offset, x->at[4].offset);
}

/* Frames of equal size: new ones end exactly where the old valid ones began. */
static void what_was_cut_never_comes_back(void **state)
{
	struct fixture *x = *state;
	int i;

	put(x, 1, 984); /* 1,024 with its header: frames meet page boundaries */
	commit(x);
	for (i = 0; i < 12; i++)
		put(x, 1, 984); /* each a batch of its own, one cycle */
	commit(x);
	rdv_faulty_flip(x->files, SEGMENT1, x->at[2].offset + 100, 1);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 1);
	for (i = 0; i < 3; i++) {
		put(x, 1, 984);
		commit(x);
		assert_int_equal(reopen(x), REDRIVE_OK);
		assert_int_equal(x->frames, 2 + i);
		assert_int_equal(x->last_seq, x->seq);
	}
}

/* As above, but the page behind the new frames, with the zeros that end them, did not reach the disk. */
static void what_was_cut_never_comes_back_behind_a_torn_write(void **state)
{
	struct fixture *x = *state;
	const uint32_t page = RDV_SEGMENT_START + 4096;
	uint8_t before[4096];
	uint64_t size;
	int i;

	put(x, 1, 984);
	commit(x);
	for (i = 0; i < 12; i++)
		put(x, 1, 984);
	commit(x);
	rdv_faulty_flip(x->files, SEGMENT1, x->at[2].offset + 100, 1);
	assert_int_equal(reopen(x), REDRIVE_OK);
	memcpy(before, rdv_faulty_bytes(x->files, SEGMENT1, &size) + page, sizeof before);
	for (i = 0; i < 3; i++)
		put(x, 1, 984);
	commit(x);
	assert_int_equal(x->log->at.offset, page);
	memcpy(rdv_faulty_bytes(x->files, SEGMENT1, &size) + page, before, sizeof before);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 4);
	assert_int_equal(x->last_seq, x->seq);
}

static void a_torn_batch_over_three_segments_is_cut_in_all_of_them(void **state)
{
	struct fixture *x = *state;

	put(x, 2, 500);
	commit(x);
	put(x, 40, 4000);
	commit(x);
	assert_int_equal(x->at[42].segment, 3);
	rdv_faulty_flip(x->files, SEGMENT3, x->at[42].offset + 60, 1);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 2);
	assert_false(rdv_faulty_exists(x->files, SEGMENT2));
	assert_false(rdv_faulty_exists(x->files, SEGMENT3));
	put(x, 40, 4000);
	commit(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 42);
}

static void a_tail_stays_while_no_frame_lies_behind_it(void **state)
{
	struct fixture *x = *state;

	put(x, 1, 59000);
	commit(x);
	put(x, 2, 20000); /* does not fit: begins segment 2 */
	commit(x);
	rdv_faulty_flip(x->files, SEGMENT2, x->at[3].offset + 50, 1);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->log->at.segment, 2);
	rdv_log_drop_tail(x->log, 0);
	maintain(x);
	assert_true(rdv_faulty_exists(x->files, SEGMENT1));
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 1);
	put(x, 1, 59000);
	commit(x);
	rdv_log_drop_tail(x->log, 0);
	maintain(x);
	assert_false(rdv_faulty_exists(x->files, SEGMENT1));
	assert_int_equal(reopen(x), REDRIVE_OK);
}

static void every_cut_of_the_file_opens_or_is_refused(void **state)
{
	struct fixture *x = *state;
	uint64_t size;
	uint32_t end, i, refused = 0;
	uint8_t *copy = malloc(64 << 10), *bytes;

	put(x, 4, 300);
	commit(x);
	put(x, 4, 300);
	commit(x);
	end = x->log->at.offset;
	bytes = rdv_faulty_bytes(x->files, SEGMENT1, &size);
	memcpy(copy, bytes, size);
	for (i = RDV_SEGMENT_START; i < end; i += 7) {
		bytes = rdv_faulty_bytes(x->files, SEGMENT1, &size);
		memcpy(bytes, copy, size);
		memset(bytes + i, 0, size - i);
		/* Without the second batch nobody knows that the first was synced. */
		assert_int_equal(reopen(x), REDRIVE_OK);
		assert_true(x->frames == 0 || x->frames == 4);
		refused += x->frames == 0;
	}
	assert_true(refused > 10);
	free(copy);
}

/* ---- damage ---- */

static void refused(struct fixture *x, enum redrive_status wanted, const char *place, const char *offset)
{
	uint64_t before;

	rdv_log_close(x->log);
	x->log = NULL;
	before = rdv_faulty_digest(x->files);
	assert_int_equal(reopen(x), wanted);
	assert_null(x->log);
	if (!strstr(x->error.text, place) || !strstr(x->error.text, offset))
		fail_msg("%s", x->error.text);
	assert_int_equal(rdv_faulty_digest(x->files), before); /* nothing on disk was changed */
}

static void a_flipped_byte_before_the_last_synced_frame_is_corruption(void **state)
{
	struct fixture *x = *state;
	char offset[32];

	make_segments(x);
	rdv_faulty_flip(x->files, SEGMENT3, x->at[60].offset + 1234, 0x40);
	assert_int_equal(x->at[60].segment, 3);
	snprintf(offset, sizeof offset, "offset %u", x->at[60].offset);
	refused(x, REDRIVE_CORRUPT, "segment 3", offset);
}

static void every_flipped_byte_of_a_synced_frame_is_noticed(void **state)
{
	struct fixture *x = *state;
	uint32_t i;

	put(x, 1, 100);
	commit(x);
	put(x, 1, 100);
	commit(x);
	for (i = 0; i < RDV_FRAME_HEADER + 100; i++) {
		rdv_faulty_flip(x->files, SEGMENT1, x->at[1].offset + i, 0x81);
		refused(x, REDRIVE_CORRUPT, "segment 1", "offset 4096");
		rdv_faulty_flip(x->files, SEGMENT1, x->at[1].offset + i, 0x81);
	}
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->frames, 2);
}

static void damage_of_the_first_frame_of_a_later_segment_names_its_place(void **state)
{
	struct fixture *x = *state;
	uint32_t seq = 1;

	make_segments(x);
	while (x->at[seq].segment != 3)
		seq++;
	rdv_faulty_flip(x->files, SEGMENT3, x->at[seq].offset + 50, 1);
	refused(x, REDRIVE_CORRUPT, "segment 3", "offset 4096");
}

static void a_damaged_header_is_corruption(void **state)
{
	struct fixture *x = *state;

	make_segments(x);
	rdv_faulty_flip(x->files, SEGMENT2, 20, 1);
	refused(x, REDRIVE_CORRUPT, "segment 2", "offset 0");
	rdv_faulty_flip(x->files, SEGMENT2, 20, 1);
	rdv_faulty_flip(x->files, SEGMENT2, 1, 1);
	refused(x, REDRIVE_CORRUPT, "segment 2", "offset 0");
}

static void a_missing_segment_is_corruption(void **state)
{
	struct fixture *x = *state;

	make_segments(x);
	rdv_faulty_ops.unlink(x->files, SEGMENT3);
	refused(x, REDRIVE_CORRUPT, "segment 3", "missing");
}

static void frames_lost_before_a_prepared_segment_are_noticed(void **state)
{
	struct fixture *x = *state;
	uint64_t size;
	uint8_t *bytes;

	put(x, 1, 100);
	commit(x);
	maintain(x); /* makes the next segments ready; their headers say that frame 1 is synced */
	bytes = rdv_faulty_bytes(x->files, SEGMENT1, &size);
	memset(bytes + RDV_SEGMENT_START, 0, 200);
	refused(x, REDRIVE_CORRUPT, "segment 1", "offset 4096");
}

static void a_newer_format_is_refused_unchanged(void **state)
{
	struct fixture *x = *state;
	uint64_t size;

	put(x, 1, 100);
	commit(x);
	rdv_faulty_bytes(x->files, SEGMENT1, &size)[8] = RDV_SEGMENT_VERSION + 1;
	refused(x, REDRIVE_VERSION, "segment 1", "version 2");
}

static enum redrive_status refuse(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	return rdv_error_set(error, REDRIVE_CORRUPT, "record of frame %llu", (unsigned long long)frame->number);
}

static void a_fold_that_refuses_ends_the_open_and_changes_nothing(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_options options = {.dir = "/d", .files = &rdv_faulty_ops, .files_ctx = x->files};
	uint64_t before;

	make_segments(x);
	rdv_log_close(x->log);
	before = rdv_faulty_digest(x->files);
	assert_int_equal(rdv_log_open(&options, refuse, x, &x->log, NULL, &x->error), REDRIVE_CORRUPT);
	assert_null(x->log);
	assert_non_null(strstr(x->error.text, "record of frame 1"));
	assert_int_equal(rdv_faulty_digest(x->files), before);
}

/* ---- recycled segments ---- */

static void stale_frames_of_recycled_segments_never_pass(void **state)
{
	struct fixture *x = *state;
	uint64_t dropped = 0;
	int round;

	for (round = 0; round < 30; round++) {
		struct rdv_log_space space;

		put(x, 4, 9000); /* equal sizes: every stale frame lies where a frame could begin */
		commit(x);
		rdv_log_space(x->log, &space);
		while (space.tail < space.head) {
			rdv_log_drop_tail(x->log, 0);
			rdv_log_space(x->log, &space);
			dropped++;
		}
		maintain(x);
	}
	assert_true(dropped > 15);
	assert_true(x->log->spare_count <= RDV_LOG_SPARES);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->last_seq, x->seq);
	assert_true(x->frames < 20);
	assert_false(x->opened.tail_cut);
}

/* ---- hints ---- */

static void folding_hints_gives_what_folding_frames_gives(void **state)
{
	struct fixture *x = *state;
	uint64_t digest, frames;

	make_segments(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
	digest = x->digest;
	frames = x->frames;
	assert_int_equal(x->opened.hints_used, 0);
	maintain(x);
	assert_true(rdv_faulty_exists(x->files, HINT1));
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->opened.hints_used, 5);
	assert_int_equal(x->frames, frames);
	assert_int_equal(x->digest, digest);
}

static void a_batch_over_hinted_segments_is_folded_whole(void **state)
{
	struct fixture *x = *state;

	put(x, 60, 4000);
	commit(x);
	maintain(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_true(x->opened.hints_used > 1);
	assert_int_equal(x->frames, 60);
}

static void damaged_or_newer_or_foreign_hints_are_passed_over(void **state)
{
	struct fixture *x = *state;
	uint64_t digest, size, i;

	make_segments(x);
	maintain(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
	digest = x->digest;
	assert_non_null(rdv_faulty_bytes(x->files, HINT1, &size));
	for (i = 0; i < size; i += i < 80 ? 1 : 97) {
		rdv_faulty_flip(x->files, HINT1, i, 0x11);
		assert_int_equal(reopen(x), REDRIVE_OK);
		assert_int_equal(x->opened.hints_used, 4);
		assert_int_equal(x->digest, digest);
		rdv_faulty_flip(x->files, HINT1, i, 0x11);
	}
	assert_int_equal(rdv_faulty_ops.rename(x->files, "/d/0000000000000002.hint", HINT1), 0);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->opened.hints_used, 3);
	assert_int_equal(x->digest, digest);
}

static void a_log_that_ends_in_a_hinted_segment_has_lost_its_end(void **state)
{
	struct fixture *x = *state;
	uint64_t size;
	uint8_t *bytes;

	make_segments(x);
	maintain(x);
	assert_int_equal(rdv_faulty_ops.unlink(x->files, "/d/0000000000000007.seg"), 0);
	assert_int_equal(rdv_faulty_ops.unlink(x->files, "/d/0000000000000008.seg"), 0);
	bytes = rdv_faulty_bytes(x->files, "/d/0000000000000006.seg", &size);
	memset(bytes + RDV_SEGMENT_START, 0, size - RDV_SEGMENT_START);
	refused(x, REDRIVE_CORRUPT, "segment 5", "offset");
}

static void hints_of_segments_that_are_gone_are_removed(void **state)
{
	struct fixture *x = *state;

	make_segments(x);
	maintain(x);
	rdv_log_drop_tail(x->log, 0);
	maintain(x);
	assert_false(rdv_faulty_exists(x->files, HINT1));
	assert_int_equal(rdv_faulty_ops.rename(x->files, "/d/0000000000000002.hint", HINT1), 0);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_false(rdv_faulty_exists(x->files, HINT1));
}

/* ---- once more ---- */

static enum redrive_status fold_again(struct fixture *x)
{
	x->frames = x->digest = x->last_seq = 0;
	x->error.text[0] = '\0';
	return rdv_log_fold_again(x->log, fold, x, &x->error);
}

static void folding_again_gives_what_opening_gave_and_appends_go_on(void **state)
{
	struct fixture *x = *state;
	uint64_t digest;

	assert_int_equal(fold_again(x), REDRIVE_OK);
	assert_int_equal(x->frames, 0);
	make_segments(x);
	maintain(x);
	put(x, 60, 4000); /* a batch that is torn, in segments of its own */
	commit(x);
	rdv_faulty_flip(x->files, "/d/0000000000000007.seg", x->at[x->seq - 10].offset, 0x10);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_true(x->opened.hints_used >= 5);
	assert_true(x->opened.tail_cut);
	assert_int_equal(x->frames, 120);
	digest = x->digest;
	assert_int_equal(fold_again(x), REDRIVE_OK);
	assert_int_equal(x->frames, 120);
	assert_int_equal(x->digest, digest);
	x->seq = 120;
	put(x, 1, 3000);
	commit(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->last_seq, 121);
}

static void a_log_that_changed_before_it_is_folded_again_is_corrupt(void **state)
{
	struct fixture *x = *state;

	make_segments(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
	rdv_faulty_flip(x->files, SEGMENT3, x->at[50].offset + 100, 0x10);
	assert_int_equal(fold_again(x), REDRIVE_CORRUPT);
	assert_non_null(strstr(x->error.text, "read again, the log ends at frame"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(log_opens_when_the_last_frame_is_torn),
		TEST(a_torn_batch_is_cut_to_its_start_valid_frames_included),
		TEST(what_was_cut_never_comes_back),
		TEST(what_was_cut_never_comes_back_behind_a_torn_write),
		TEST(a_torn_batch_over_three_segments_is_cut_in_all_of_them),
		TEST(a_tail_stays_while_no_frame_lies_behind_it),
		TEST(every_cut_of_the_file_opens_or_is_refused),
		TEST(a_flipped_byte_before_the_last_synced_frame_is_corruption),
		TEST(every_flipped_byte_of_a_synced_frame_is_noticed),
		TEST(damage_of_the_first_frame_of_a_later_segment_names_its_place),
		TEST(a_damaged_header_is_corruption),
		TEST(a_missing_segment_is_corruption),
		TEST(frames_lost_before_a_prepared_segment_are_noticed),
		TEST(a_newer_format_is_refused_unchanged),
		TEST(a_fold_that_refuses_ends_the_open_and_changes_nothing),
		TEST(stale_frames_of_recycled_segments_never_pass),
		TEST(folding_hints_gives_what_folding_frames_gives),
		TEST(a_batch_over_hinted_segments_is_folded_whole),
		TEST(damaged_or_newer_or_foreign_hints_are_passed_over),
		TEST(a_log_that_ends_in_a_hinted_segment_has_lost_its_end),
		TEST(hints_of_segments_that_are_gone_are_removed),
		TEST(folding_again_gives_what_opening_gave_and_appends_go_on),
		TEST(a_log_that_changed_before_it_is_folded_again_is_corrupt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
