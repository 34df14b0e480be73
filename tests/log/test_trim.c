/* Space: what is refused when, which tail is worth trimming, and that trimming keeps what lives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include "log/internal.h"
#include "log/log_world.h"

enum { SEGMENT = WORLD_SEGMENT };

static struct world *make(uint64_t capacity, uint64_t disk_free)
{
	struct world *w = malloc(sizeof *w);

	assert_non_null(w);
	world_init(w, 3);
	assert_int_equal(world_open(w), REDRIVE_OK); /* for its fold */
	w->log->capacity = capacity;
	w->log->disk_free = disk_free;
	return w;
}

static void done(struct world *w)
{
	world_done(w);
	free(w);
}

static enum redrive_status publish(struct world *w, uint32_t size)
{
	struct rdv_frame frame = {.type = 3, .length = size};
	enum redrive_status status = rdv_log_begin(w->log, RDV_LOG_PUBLISH, size, 1, 0);

	if (status != REDRIVE_OK)
		return status;
	memset(rdv_log_put(w->log, &frame), 0, size);
	rdv_log_end(w->log, false, NULL);
	return world_commit(w);
}

static void fill_until_refused(struct world *w, uint32_t size)
{
	int i = 0;

	while (publish(w, size) == REDRIVE_OK)
		assert_true(++i < 100000);
}

static void publishing_is_refused_below_the_reserve_and_outcomes_are_not(void **state)
{
	struct world *w = make(10 * SEGMENT, 0);
	struct rdv_log_space space;

	(void)state;
	fill_until_refused(w, 5000);
	fill_until_refused(w, 1);
	rdv_log_space(w->log, &space);
	assert_true(space.refuses);
	assert_int_equal(space.reserve, 2 * SEGMENT);
	assert_int_equal(space.head, 8); /* of ten, two are kept */
	assert_int_equal(world_append(w, 20, true, 6000), REDRIVE_OK);
	assert_int_equal(world_commit(w), REDRIVE_OK);
	done(w);
}

static void the_reserve_grows_with_the_live_records(void **state)
{
	struct world *w = make(10 * SEGMENT, 0);
	struct rdv_log_space space;

	(void)state;
	rdv_log_live(w->log, 1, 3 * SEGMENT / 32, 1);
	rdv_log_space(w->log, &space);
	assert_int_equal(space.reserve, 5 * SEGMENT);
	assert_int_equal(space.live_records, 3 * SEGMENT / 32);
	fill_until_refused(w, 5000);
	rdv_log_space(w->log, &space);
	assert_int_equal(space.head, 5);
	done(w);
}

static void publishing_is_refused_while_the_disk_is_low(void **state)
{
	struct world *w = make(1000 * SEGMENT, 8 * SEGMENT);

	(void)state;
	assert_int_equal(publish(w, 100), REDRIVE_OK);
	rdv_faulty_space(w->files, 8 * SEGMENT); /* the files of the log are on it */
	w->log->free_checked_ms -= 1000;
	rdv_log_check_disk(w->log, 100);
	assert_int_equal(publish(w, 100), REDRIVE_FULL);
	assert_int_equal(world_append(w, 1, true, 100), REDRIVE_OK);
	rdv_faulty_space(w->files, 1000 * SEGMENT);
	w->log->free_checked_ms -= 1000; /* a refused publisher looks again */
	assert_int_equal(publish(w, 100), REDRIVE_OK);
	done(w);
}

static void publishing_is_refused_when_three_quarters_live_and_the_tail_is_left(void **state)
{
	struct world *w = make(100 * SEGMENT, 0);
	struct rdv_log_space space;

	(void)state;
	fill_until_refused(w, 5000);
	rdv_log_live(w->log, 1, 1, 74 * SEGMENT);
	rdv_log_space(w->log, &space);
	assert_true(space.wants_trim);
	rdv_log_live(w->log, 1, 1, 2 * SEGMENT);
	rdv_log_space(w->log, &space);
	assert_false(space.wants_trim);
	assert_true(space.refuses);
	done(w);
}

static void one_old_message_does_not_pin_a_log_of_dead_ones(void **state)
{
	struct world *w = make(1000 * SEGMENT, 0);
	struct rdv_log_space space;

	(void)state;
	rdv_log_live(w->log, 1, 1, 200);
	do {
		assert_int_equal(publish(w, 6000), REDRIVE_OK);
		rdv_log_space(w->log, &space);
	} while (!space.wants_trim);
	assert_int_equal(space.head, 5); /* used > 2 x live + 4 segments, far below the capacity */
	assert_int_equal(space.tail_live, 1);
	rdv_log_live(w->log, 1, -1, -200);
	rdv_log_space(w->log, &space);
	assert_false(space.wants_trim); /* nothing to re-append: it is simply dropped */
	done(w);
}

static void trimming_keeps_what_lives_and_frees_the_rest(void **state)
{
	struct world *w = make(64 * SEGMENT, 0);
	int i;

	(void)state;
	for (i = 0; i < 400; i++) {
		struct rdv_log_space space;

		assert_int_equal(world_append(w, 15, true, 700), REDRIVE_OK);
		assert_int_equal(world_commit(w), REDRIVE_OK);
		rdv_log_space(w->log, &space);
		if (space.wants_trim || (space.tail_live == 0 && space.tail < space.head))
			assert_int_equal(world_trim(w), REDRIVE_OK);
		assert_int_equal(world_maintain(w, 3), REDRIVE_OK);
		assert_true(space.bytes <= 2 * space.live_bytes + 7 * SEGMENT);
	}
	assert_true(w->trims > 10);
	assert_null(world_read_back(w));
	assert_null(world_crash(w, true));
	done(w);
}

static void a_tail_goes_only_when_what_replaces_it_is_durable(void **state)
{
	struct world *w = make(64 * SEGMENT, 0);

	(void)state;
	while (w->log->durable_end.segment < 2) {
		assert_int_equal(world_append(w, 15, true, 700), REDRIVE_OK);
		assert_int_equal(world_commit(w), REDRIVE_OK);
	}
	assert_int_equal(world_trim(w), REDRIVE_OK);
	assert_int_equal(world_maintain(w, 20), REDRIVE_OK);
	assert_true(rdv_faulty_exists(w->files, "/d/0000000000000001.seg"));
	assert_int_equal(world_commit(w), REDRIVE_OK);
	assert_int_equal(world_maintain(w, 20), REDRIVE_OK);
	assert_false(rdv_faulty_exists(w->files, "/d/0000000000000001.seg"));
	assert_null(world_read_back(w));
	done(w);
}

static void reads_of_a_recycled_segment_say_not_found(void **state)
{
	struct world *w = make(64 * SEGMENT, 0);
	struct rdv_read read = {.position = {1, RDV_SEGMENT_START}, .length = 100}, *list = &read;
	struct rdv_block *block;
	uint32_t next;

	(void)state;
	assert_int_equal(publish(w, 100), REDRIVE_OK);
	rdv_log_read_many(w->log, &list, 1);
	assert_int_equal(read.status, REDRIVE_OK);
	rdv_block_unref(read.block);
	while (w->log->durable_end.segment < 2)
		assert_int_equal(publish(w, 5000), REDRIVE_OK);
	rdv_log_drop_tail(w->log, 0);
	assert_int_equal(world_maintain(w, 20), REDRIVE_OK);
	rdv_log_read_many(w->log, &list, 1);
	assert_int_equal(read.status, REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_log_scan(w->log, (struct rdv_position){1, 0}, 1000, &block, &next), REDRIVE_NOT_FOUND);
	done(w);
}

static void the_filler_keeps_two_segments_ahead_and_within_the_capacity(void **state)
{
	struct world *w = make(64 * SEGMENT, 0);

	(void)state;
	assert_int_equal(world_maintain(w, 1000), REDRIVE_OK);
	assert_int_equal(w->log->ready, 3);
	assert_true(rdv_faulty_exists(w->files, "/d/0000000000000003.seg"));
	done(w);
	w = make(2 * SEGMENT, 0);
	assert_int_equal(world_maintain(w, 1000), REDRIVE_OK);
	assert_int_equal(w->log->ready, 2);
	done(w);
}

/* A file system may open a file for writes past the page cache and then refuse them. */
static void the_filler_goes_on_where_writes_past_the_page_cache_are_refused(void **state)
{
	struct world *w = make(64 * SEGMENT, 0);

	(void)state;
	rdv_faulty_fail(w->files, RDV_CALL_WRITE, 1, EINVAL, false);
	assert_int_equal(world_maintain(w, 1000), REDRIVE_OK);
	assert_int_equal(rdv_faulty_fired(w->files), 1);
	assert_int_equal(w->log->ready, 3);
	done(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(publishing_is_refused_below_the_reserve_and_outcomes_are_not),
		cmocka_unit_test(the_reserve_grows_with_the_live_records),
		cmocka_unit_test(publishing_is_refused_while_the_disk_is_low),
		cmocka_unit_test(publishing_is_refused_when_three_quarters_live_and_the_tail_is_left),
		cmocka_unit_test(one_old_message_does_not_pin_a_log_of_dead_ones),
		cmocka_unit_test(trimming_keeps_what_lives_and_frees_the_rest),
		cmocka_unit_test(a_tail_goes_only_when_what_replaces_it_is_durable),
		cmocka_unit_test(reads_of_a_recycled_segment_say_not_found),
		cmocka_unit_test(the_filler_keeps_two_segments_ahead_and_within_the_capacity),
		cmocka_unit_test(the_filler_goes_on_where_writes_past_the_page_cache_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
