/* test_lane_recover.c - recovery: crashes, our own and STARTED, suspect mode, time over restarts, trimming. */
#include "core/lane_world.h"

static struct world w;

static int setup(void **state)
{
	(void)state;
	world_policies(&w);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_done(&w);
	return 0;
}

static void deliver(uint64_t seq, const struct rdv_verdict *v)
{
	world_until_called(&w, seq);
	world_answer(&w, seq, v);
}

static bool called(uint64_t seq)
{
	world_settle(&w);
	return world_call_of(&w, seq) != NULL;
}

/* pitfall: the counter starts again after a restart */
static void attempts_survive_a_crash_and_what_was_in_flight_counts_nothing(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0), fresh = world_publish(&w, 0);
	deliver(m, &world_fail);
	deliver(m, &world_fail);
	world_until_called(&w, m);
	world_reopen(&w, true);
	world_until_called(&w, m);
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.attempt, 3);
	assert_int_equal(world_call_of(&w, fresh)->effect.dispatch.attempt, 1);
	const struct rdv_account *a = rdv_lane_account(w.lane);
	assert_int_equal(a->first, 2);
	assert_int_equal(a->retries, 2);
	assert_int_equal(a->crashes, 0);
	world_answer(&w, m, &world_ack);
	world_answer(&w, fresh, &world_ack);
}

/* pitfall: delays grow by the load time; the wall clock is set back or forward over a restart */
static void what_remains_of_a_delay_is_clamped_by_both_clocks(void **state)
{
	static const struct {
		int64_t passed, remains;
	} rows[] = {{0, 60000}, {20000, 40000}, {60000, 0}, {500000, 0}, {-500000, 60000}};

	(void)state;
	w.options.policy.retry.backoff = RDV_BACKOFF_FIXED;
	w.options.policy.retry.base_ms = 60000;
	w.options.policy.retry.attempts = 100;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		deliver(m, &world_fail);
		w.now.wall.ms += rows[i].passed;
		w.now.mono.ms += 7; /* another boot: no relation */
		world_reopen(&w, true);
		if (rows[i].remains) {
			assert_int_equal(world_where(&w, m).due.ms - w.now.wall.ms, rows[i].remains);
			world_pass(&w, rows[i].remains - 1);
			assert_false(called(m));
			world_pass(&w, 1);
		}
		world_turn(&w);
		assert_non_null(world_call_of(&w, m));
		w.now.wall.ms -= rows[i].passed;
	}
}

static void a_delayed_publish_stays_delayed_over_a_restart(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish_at(&w, 0, w.now.wall.ms + 10000);
	world_pass(&w, 4000);
	world_reopen(&w, false);
	assert_int_equal(world_where(&w, m).due.ms - w.now.wall.ms, 6000);
	assert_false(called(m));
	world_pass(&w, 6000);
	assert_true(called(m));
}

/* pitfall: an update with delay 0 is left out of the log */
static void a_state_without_delay_is_recorded_too(void **state)
{
	struct rdv_verdict now = world_fail;

	(void)state;
	now.has_delay = true;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &now);
	world_reopen(&w, true);
	world_until_called(&w, m);
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.attempt, 2);
}

static void what_is_done_never_comes_back(void **state)
{
	(void)state;
	world_start(&w);
	for (int i = 0; i < 50; i++)
		deliver(world_publish(&w, 0), i % 3 ? &world_ack : &world_reject);
	world_settle(&w);
	struct rdv_account before = *rdv_lane_account(w.lane);
	for (int i = 0; i < 5; i++) {
		world_reopen(&w, i & 1);
		world_settle(&w);
		assert_int_equal(world_open_calls(&w), 0);
		assert_memory_equal(&before, rdv_lane_account(w.lane), sizeof before);
	}
}

static void dying_messages_go_on_dying_after_a_crash(void **state)
{
	(void)state;
	w.no_desk = true;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_reject);
	w.no_desk = false;
	world_reopen(&w, true);
	assert_int_equal(world_state(&w, m), RDV_STATE_DYING);
	world_settle(&w);
	assert_int_equal(w.letters[w.letter_count - 1].seq, m);
	assert_int_equal(w.letters[w.letter_count - 1].letter.reason, RDV_REASON_REJECTED);
	assert_int_equal(world_state(&w, m), RDV_STATE_DONE);
	assert_int_equal(rdv_lane_account(w.lane)->dead, 1);
}

/* ---- our own crash ---- */

/* pitfall: one message kills the process again and again */
static void a_message_that_is_started_last_in_so_many_opens_is_dead(void **state)
{
	(void)state;
	w.options.start_before_call = true;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 3; i++) {
		world_until_called(&w, m);
		assert_true(world_call_of(&w, m)->effect.dispatch.started);
		assert_int_equal(world_call_of(&w, m)->effect.dispatch.attempt, 1);
		world_reopen(&w, true);
	}
	world_settle(&w);
	assert_int_equal(w.letters[0].letter.reason, RDV_REASON_CRASHED);
	assert_int_equal(rdv_lane_account(w.lane)->crashes, 3);
	assert_int_equal(rdv_lane_account(w.lane)->failed, 0);
}

static void those_beside_a_killer_do_not_die_with_it(void **state)
{
	enum { BESIDE = 8 };
	uint64_t killer, beside[BESIDE];

	(void)state;
	w.options.start_before_call = true;
	world_start(&w);
	killer = world_publish(&w, 0);
	for (int i = 0; i < BESIDE; i++)
		beside[i] = world_publish(&w, 0);
	/* Whoever is called beside the killer is lost with it; others are acked. */
	for (int round = 0; round < 40 && rdv_lane_account(w.lane)->dead == 0; round++) {
		world_settle(&w);
		if (world_call_of(&w, killer)) {
			world_reopen(&w, true);
			continue;
		}
		for (int i = 0; i < BESIDE; i++)
			if (world_call_of(&w, beside[i])) {
				world_answer(&w, beside[i], &world_ack);
				break;
			}
		world_pass(&w, 20);
	}
	world_settle(&w);
	assert_int_equal(w.letter_count, 1);
	assert_int_equal(w.letters[0].seq, killer);
	for (int i = 0; i < BESIDE; i++)
		if (world_state(&w, beside[i]) != RDV_STATE_DONE)
			deliver(beside[i], &world_ack);
	assert_int_equal(rdv_lane_account(w.lane)->acked, BESIDE);
}

static void a_stop_by_signal_counts_no_crash(void **state)
{
	(void)state;
	w.options.start_before_call = true;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 5; i++) {
		world_until_called(&w, m);
		world_answer(&w, m, &world_shutdown);
		rdv_lane_close(w.lane, &w.out);
		world_settle(&w);
		world_reopen(&w, false);
	}
	deliver(m, &world_ack);
	assert_int_equal(rdv_lane_account(w.lane)->crashes, 0);
}

static void a_clean_end_with_a_call_still_open_counts_no_crash(void **state)
{
	(void)state;
	w.options.start_before_call = true;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 5; i++) {
		world_until_called(&w, m); /* a callback that never comes back */
		rdv_lane_close(w.lane, &w.out);
		world_settle(&w);
		world_reopen(&w, false);
	}
	deliver(m, &world_ack);
	assert_int_equal(rdv_lane_account(w.lane)->crashes, 0);
}

static void suspect_mode_begins_after_two_unclean_opens_without_an_outcome_and_ends_with_one(void **state)
{
	(void)state;
	world_start(&w);
	for (int i = 0; i < 5; i++)
		world_publish(&w, 0);
	world_settle(&w);
	assert_int_equal(world_open_calls(&w), 5);
	world_reopen(&w, true);
	world_settle(&w);
	assert_int_equal(world_open_calls(&w), 5); /* the first unclean one */
	world_reopen(&w, true);
	world_settle(&w);
	assert_int_equal(world_open_calls(&w), 1);
	uint64_t one = 0;
	for (uint64_t m = 0; m < 5; m++)
		if (world_call_of(&w, m))
			one = m;
	assert_true(world_call_of(&w, one)->effect.dispatch.started);
	world_answer(&w, one, &world_fail);
	world_settle(&w);
	assert_int_equal(world_open_calls(&w), 4);
}

static void an_outcome_between_two_unclean_opens_prevents_suspect_mode(void **state)
{
	(void)state;
	world_start(&w);
	for (int i = 0; i < 3; i++)
		world_publish(&w, 0);
	for (uint64_t i = 0; i < 3; i++) {
		world_settle(&w);
		assert_int_equal(world_open_calls(&w), 3 - i);
		world_answer(&w, i, &world_ack);
		world_reopen(&w, true);
	}
}

static void the_epoch_rises_with_every_open(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t before = w.lane->epoch;
	world_reopen(&w, false);
	assert_int_equal(w.lane->epoch, before + 1);
	world_reopen(&w, true);
	assert_int_equal(w.lane->epoch, before + 2);
}

/* ---- trimming ---- */

static void a_live_message_survives_any_number_of_trimmings(void **state)
{
	(void)state;
	w.options.policy.retry.base_ms = 3600000;
	world_start(&w);
	uint64_t kept = world_publish(&w, 0);
	deliver(kept, &world_fail);
	for (int i = 0; i < 400; i++) {
		deliver(world_publish(&w, 0), &world_ack);
		world_trim(&w);
	}
	struct rdv_account before = *rdv_lane_account(w.lane);
	world_reopen(&w, true);
	assert_memory_equal(&before, rdv_lane_account(w.lane), sizeof before);
	assert_int_equal(world_state(&w, kept), RDV_STATE_WAITING);
	assert_int_equal(world_where(&w, kept).attempt, 2);
}

/* A BODY that another lane keeps alive is appended again behind our DONE. */
static void a_body_that_another_lane_keeps_does_not_come_back_to_life(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	struct rdv_slice body = rdv_slice(NULL, 0);
	deliver(m, &world_ack);
	for (size_t i = 0; i < w.record_count; i++)
		if (w.records[i].type == RDV_RECORD_BODY)
			body = rdv_block_slice(w.records[i].payload);
	world_append(&w, RDV_RECORD_BODY, m, body);
	rdv_lane_done_again(w.lane, m, &w.out);
	world_settle(&w);
	world_reopen(&w, true);
	world_settle(&w);
	assert_int_equal(world_open_calls(&w), 0);
	assert_int_equal(rdv_lane_account(w.lane)->acked, 1);
}

static void damaged_and_foreign_records_are_refused(void **state)
{
	static const struct {
		enum rdv_record type;
		const char *bytes;
		size_t size;
	} rows[] = {{RDV_RECORD_STATE, "\1\377", 2}, {RDV_RECORD_DONE, "\1\377", 2}, {RDV_RECORD_TOPIC, "\1", 1},
		    {RDV_RECORD_GATE, "\1\2", 2},    {RDV_RECORD_LANE, "", 0},       {RDV_RECORD_SEEN, "\1", 1},
		    {RDV_RECORD_REQUEST, "\1", 1},   {RDV_RECORD_DEDUPE, "\1", 1},   {RDV_RECORD_COUNTERS, "\1\7", 2}};

	(void)state;
	world_start(&w);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_lane_options options = w.options;
		struct rdv_lane *l;
		options.target = NULL;
		l = rdv_lane_new(&options);
		assert_int_not_equal(rdv_lane_fold(l, rows[i].type, 0, rdv_slice(rows[i].bytes, rows[i].size),
						   (struct rdv_place){1, 64, 2}),
				     REDRIVE_OK);
		rdv_lane_free(l);
	}
}

static void a_run_of_billions_in_a_done_record_costs_nothing(void **state)
{
	struct rdv_run run = {0, UINT64_MAX, RDV_STATE_ACKED};
	struct rdv_buffer payload;

	(void)state;
	world_start(&w);
	rdv_buffer_init(&payload, 0);
	rdv_runs_encode(&run, 1, &payload);
	struct rdv_lane_options options = w.options;
	struct rdv_lane *l = rdv_lane_new(&options);
	/* Refused or taken, but not walked. */
	if (rdv_lane_fold(l, RDV_RECORD_DONE, 0, rdv_buffer_as_slice(&payload), (struct rdv_place){1, 64, 2}) ==
	    REDRIVE_OK)
		assert_int_equal(l->entries.count, 0);
	rdv_lane_free(l);
	rdv_buffer_done(&payload);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(attempts_survive_a_crash_and_what_was_in_flight_counts_nothing),
		T(what_remains_of_a_delay_is_clamped_by_both_clocks),
		T(a_delayed_publish_stays_delayed_over_a_restart),
		T(a_state_without_delay_is_recorded_too),
		T(what_is_done_never_comes_back),
		T(dying_messages_go_on_dying_after_a_crash),
		T(a_message_that_is_started_last_in_so_many_opens_is_dead),
		T(those_beside_a_killer_do_not_die_with_it),
		T(a_stop_by_signal_counts_no_crash),
		T(a_clean_end_with_a_call_still_open_counts_no_crash),
		T(suspect_mode_begins_after_two_unclean_opens_without_an_outcome_and_ends_with_one),
		T(an_outcome_between_two_unclean_opens_prevents_suspect_mode),
		T(the_epoch_rises_with_every_open),
		T(a_live_message_survives_any_number_of_trimmings),
		T(a_body_that_another_lane_keeps_does_not_come_back_to_life),
		T(damaged_and_foreign_records_are_refused),
		T(a_run_of_billions_in_a_done_record_costs_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
