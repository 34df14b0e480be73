/* test_lane.c - a message's way through the lane: states, attempts, limits. */
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

static void a_message_is_delivered_and_acked_once(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	assert_int_equal(world_state(&w, m), RDV_STATE_READY);
	world_turn(&w);
	assert_int_equal(world_state(&w, m), RDV_STATE_IN_FLIGHT);
	world_answer(&w, m, &world_ack);
	assert_int_equal(world_state(&w, m), RDV_STATE_DONE);
	assert_int_equal(rdv_lane_account(w.lane)->acked, 1);
	assert_int_equal(rdv_lane_account(w.lane)->first, 1);
	assert_int_equal(rdv_lane_account(w.lane)->succeeded, 1);
}

static void a_failing_message_waits_its_back_off_and_dies_after_its_attempts(void **state)
{
	(void)state;
	w.options.policy.retry.attempts = 3;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 3; i++) {
		world_until_called(&w, m);
		assert_int_equal(world_call_of(&w, m)->effect.dispatch.attempt, i + 1);
		world_answer(&w, m, &world_fail);
		if (i < 2)
			assert_int_equal(world_where(&w, m).due.ms - w.now.wall.ms, 1000 << i);
	}
	assert_int_equal(world_state(&w, m), RDV_STATE_DYING);
	world_settle(&w);
	assert_int_equal(w.letter_count, 1);
	assert_int_equal(w.letters[0].letter.reason, RDV_REASON_EXHAUSTED);
	assert_int_equal(world_state(&w, m), RDV_STATE_DONE);
	assert_int_equal(rdv_lane_account(w.lane)->dead, 1);
	assert_int_equal(rdv_lane_account(w.lane)->failed, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_message_is_delivered_and_acked_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_failing_message_waits_its_back_off_and_dies_after_its_attempts, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
