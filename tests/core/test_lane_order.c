/* test_lane_order.c - order by key: G1 to G6, gates, followers, replays of a key, dedupe. */
#include "core/lane_world.h"

static struct world w;

static int setup(void **state)
{
	(void)state;
	world_policies(&w);
	w.options.policy.order = RDV_ORDER_KEY;
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

static void is_held_behind(uint64_t seq, uint64_t behind)
{
	assert_int_equal(world_state(&w, seq), RDV_STATE_HELD);
	assert_int_equal(world_where(&w, seq).behind, behind);
}

static bool called(uint64_t seq)
{
	world_settle(&w);
	return world_call_of(&w, seq) != NULL;
}

/* pitfall: nack of message 0 of a key */
static void later_messages_of_a_key_wait_for_the_failing_one_and_other_keys_flow(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t a1 = world_publish(&w, 1), a2 = world_publish(&w, 1), b1 = world_publish(&w, 2),
		 a3 = world_publish(&w, 1);
	world_settle(&w);
	assert_non_null(world_call_of(&w, a1));
	assert_non_null(world_call_of(&w, b1));
	is_held_behind(a2, a1);
	is_held_behind(a3, a1);
	world_answer(&w, a1, &world_fail);
	world_answer(&w, b1, &world_ack);
	assert_false(called(a2));
	is_held_behind(a2, a1);
	deliver(a1, &world_ack);
	assert_true(called(a2));
	assert_false(called(a3));
	world_answer(&w, a2, &world_ack);
	deliver(a3, &world_ack);
}

static void a_null_key_has_no_order_and_a_key_is_a_key(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t n1 = world_publish(&w, 0), n2 = world_publish(&w, 0), e1 = world_publish(&w, 99),
		 e2 = world_publish(&w, 99);
	assert_true(called(n1) && called(n2) && called(e1));
	assert_false(called(e2));
}

static void a_follower_goes_out_when_the_heads_done_is_durable(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t head = world_publish(&w, 1), next = world_publish(&w, 1);
	world_until_called(&w, head);
	w.no_sync = true;
	world_answer(&w, head, &world_ack);
	assert_false(called(next));
	uint64_t later = world_publish(&w, 1);
	assert_false(called(later));
	world_sync(&w);
	assert_true(called(next));
}

static void a_delayed_message_blocks_nobody_and_joins_when_it_is_due(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t delayed = world_publish_at(&w, 1, w.now.wall.ms + 5000), a = world_publish(&w, 1),
		 b = world_publish(&w, 1);
	assert_true(called(a));
	world_pass(&w, 5000);
	assert_false(called(delayed));
	is_held_behind(delayed, a);
	world_answer(&w, a, &world_ack);
	assert_true(called(delayed)); /* the smaller position goes first */
	assert_false(called(b));
	world_answer(&w, delayed, &world_ack);
	assert_true(called(b));
}

static void a_smaller_position_that_joins_overtakes_a_waiting_retry(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t small = world_publish_at(&w, 1, w.now.wall.ms + 300), big = world_publish(&w, 1);
	deliver(big, &world_fail); /* again in 1 s */
	world_pass(&w, 300);
	assert_true(called(small));
	world_pass(&w, 2000);
	assert_false(called(big));
	world_answer(&w, small, &world_ack);
	assert_true(called(big));
	assert_int_equal(world_call_of(&w, big)->effect.dispatch.attempt, 2);
}

static void after_dead_continue_goes_on_with_the_next(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t head = world_publish(&w, 1), next = world_publish(&w, 1);
	w.no_desk = true;
	deliver(head, &world_reject);
	assert_false(called(next)); /* its DONE comes after its letter */
	w.no_desk = false;
	assert_true(called(next));
}

/* pitfall: an ordered key is dead-lettered */
static void after_dead_hold_holds_the_key_over_restarts_until_it_is_released(void **state)
{
	(void)state;
	w.options.policy.after_dead = RDV_AFTER_HOLD;
	world_start(&w);
	uint64_t head = world_publish(&w, 1), next = world_publish(&w, 1);
	deliver(head, &world_reject);
	world_settle(&w);
	assert_false(called(next));
	world_reopen(&w, true);
	uint64_t later = world_publish(&w, 1), other = world_publish(&w, 2);
	assert_false(called(next) || called(later));
	assert_true(called(other));
	is_held_behind(next, head);
	assert_int_equal(rdv_lane_release(w.lane, w.now, 1, &w.out), REDRIVE_OK);
	assert_true(called(next));
	world_answer(&w, next, &world_ack);
	assert_true(called(later));
	assert_int_equal(rdv_lane_release(w.lane, w.now, 1, &w.out), REDRIVE_NOT_FOUND);
}

static void after_dead_follow_kills_the_followers_of_that_moment_in_order(void **state)
{
	(void)state;
	w.options.policy.after_dead = RDV_AFTER_FOLLOW;
	world_start(&w);
	uint64_t head = world_publish(&w, 1), f1 = world_publish(&w, 1), f2 = world_publish(&w, 1);
	deliver(head, &world_reject);
	uint64_t later = world_publish(&w, 1);
	world_settle(&w);
	assert_int_equal(w.letter_count, 3);
	assert_int_equal(w.letters[0].seq, head);
	assert_int_equal(w.letters[1].seq, f1);
	assert_int_equal(w.letters[2].seq, f2);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(w.letters[i].letter.reason, RDV_REASON_FOLLOWER);
		assert_int_equal(w.letters[i].letter.cause_seq, head);
	}
	assert_int_equal(w.letters[0].letter.cause_seq, UINT64_MAX);
	assert_true(called(later));
}

static void a_follower_with_a_history_keeps_it_in_its_letter(void **state)
{
	struct rdv_message_state s;

	(void)state;
	w.options.policy.after_dead = RDV_AFTER_FOLLOW;
	world_start(&w);
	uint64_t small = world_publish_at(&w, 1, w.now.wall.ms + 300), big = world_publish(&w, 1);
	deliver(big, &world_fail);
	world_pass(&w, 300);
	deliver(small, &world_reject);
	world_settle(&w);
	assert_int_equal(w.letter_count, 2);
	assert_int_equal(w.letters[1].seq, big);
	assert_int_equal(w.letters[1].letter.cause_seq, small);
	assert_int_equal(rdv_state_decode(world_read(&w, w.letters[1].letter.state), &s), REDRIVE_OK);
	assert_int_equal(s.history_count, 1);
	assert_int_equal(s.cause_seq, small);
}

static void a_revoked_head_closes_no_gate_and_kills_nobody(void **state)
{
	static const enum rdv_after_dead all[] = {RDV_AFTER_CONTINUE, RDV_AFTER_HOLD, RDV_AFTER_FOLLOW};
	bool pending;

	(void)state;
	world_start(&w);
	for (int i = 0; i < 3; i++) {
		w.options.policy.after_dead = all[i];
		rdv_lane_reload(w.lane, &w.options.policy, NULL);
		uint64_t head = world_publish(&w, 1), next = world_publish(&w, 1);
		deliver(head, &world_fail);
		assert_int_equal(rdv_lane_revoke(w.lane, w.now, head, rdv_slice(NULL, 0), &pending, &w.out),
				 REDRIVE_OK);
		deliver(next, &world_ack);
		world_settle(&w);
	}
}

static void order_survives_a_crash_at_any_moment(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m[4];
	for (int i = 0; i < 4; i++)
		m[i] = world_publish(&w, 1);
	world_until_called(&w, m[0]);
	world_reopen(&w, true);
	for (int i = 0; i < 4; i++) {
		assert_true(called(m[i]));
		assert_int_equal(world_open_calls(&w), 1);
		world_answer(&w, m[i], &world_fail);
		world_reopen(&w, true);
		for (int k = i + 1; k < 4; k++)
			assert_false(called(m[k]));
		deliver(m[i], &world_ack);
	}
}

static void held_of_a_key_are_counted(void **state)
{
	(void)state;
	world_start(&w);
	for (int i = 0; i < 10; i++)
		world_publish(&w, 7);
	assert_int_equal(rdv_lane_held_of_key(w.lane, 7), 10);
	assert_int_equal(rdv_lane_held_of_key(w.lane, 8), 0);
	assert_int_equal(rdv_lane_held_of_key(w.lane, 0), 0);
}

static void the_messages_of_a_key_are_found_by_position(void **state)
{
	uint64_t seqs[8], found = 0;
	uint32_t at = 0, calls = 0;

	(void)state;
	world_start(&w);
	for (int i = 0; i < 20; i++)
		world_publish(&w, 1 + (uint64_t)i % 2);
	do {
		size_t count = rdv_lane_find_key(w.lane, 2, &at, seqs, 8);

		assert_true(count <= 4); /* of eight entries every other one: it looks at no more */
		for (size_t i = 0; i < count; i++)
			found |= 1u << seqs[i];
		calls++;
	} while (at);
	assert_int_equal(found, 0xaaaaa); /* 1, 3, ... 19 */
	assert_int_equal(calls, 3);
	assert_int_equal(rdv_lane_find_key(w.lane, 3, &at, seqs, 8), 0);
	assert_int_equal(at, 0);
}

/* ---- replays ---- */

static uint64_t replay(uint64_t seq, uint64_t key, uint64_t plan, enum redrive_status wanted)
{
	struct rdv_request q = {.kind = RDV_REQUEST_REPLAY,
				.seq = seq,
				.key_hash = key,
				.plan = plan,
				.plan_name = rdv_slice_text("r-1")};
	uint64_t number = 0;

	assert_int_equal(rdv_lane_replay(w.lane, w.now, &q, &number, &w.out), wanted);
	return number;
}

static uint64_t dead_letter(uint64_t key)
{
	uint64_t m = world_publish(&w, key);
	deliver(m, &world_reject);
	world_settle(&w);
	assert_int_equal(world_state(&w, m), RDV_STATE_DONE);
	return m;
}

static void a_replay_keeps_its_position_starts_at_attempt_one_and_is_in_no_account(void **state)
{
	struct rdv_request q;
	struct rdv_account before;

	(void)state;
	world_start(&w);
	uint64_t m = dead_letter(1), running = world_publish(&w, 1), held = world_publish(&w, 1);
	world_until_called(&w, running);
	before = *rdv_lane_account(w.lane);
	uint64_t number = replay(m, 1, 5, REDRIVE_OK);
	assert_int_equal(world_state(&w, m), RDV_STATE_REPLAYING);
	assert_false(called(m)); /* never beside live traffic of its key */
	assert_true(rdv_lane_request(w.lane, number, &q));
	assert_true(rdv_slice_is(q.plan_name, "r-1"));
	world_answer(&w, running, &world_shutdown);
	assert_true(called(m)); /* the smallest position */
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.attempt, 1);
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.request, number);
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.class, RDV_CLASS_REPLAY);
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.body.segment, 0);
	world_answer(&w, m, &world_ack);
	world_settle(&w);
	assert_int_equal(w.outcome_count, 1);
	assert_int_equal(w.outcomes[0].outcome.outcome, RDV_STATE_ACKED);
	assert_int_equal(rdv_lane_account(w.lane)->acked, before.acked);
	assert_int_equal(rdv_lane_account(w.lane)->dead, before.dead);
	assert_int_equal(rdv_lane_account(w.lane)->succeeded, before.succeeded);
	assert_int_equal(rdv_lane_account(w.lane)->replays_acked, 1);
	deliver(running, &world_ack);
	deliver(held, &world_ack);
}

static void with_order_none_a_replay_waits_for_its_keys_live_calls_and_they_for_it(void **state)
{
	(void)state;
	w.options.policy.order = RDV_ORDER_NONE;
	world_start(&w);
	uint64_t m = dead_letter(1), a = world_publish(&w, 1), b = world_publish(&w, 1);
	assert_true(called(a) && called(b));
	replay(m, 1, 5, REDRIVE_OK);
	assert_false(called(m));
	uint64_t late = world_publish(&w, 1), other = world_publish(&w, 2);
	assert_false(called(late));
	assert_true(called(other));
	world_answer(&w, a, &world_ack);
	assert_false(called(m));
	world_answer(&w, b, &world_ack);
	assert_true(called(m));
	assert_false(called(late));
	world_answer(&w, m, &world_fail); /* while it waits for its retry, live messages flow */
	assert_true(called(late));
	world_answer(&w, late, &world_ack);
	deliver(m, &world_ack);
}

static void a_replay_that_dies_again_is_a_letter_of_the_next_generation(void **state)
{
	(void)state;
	w.options.policy.retry.attempts = 2;
	world_start(&w);
	uint64_t m = dead_letter(1), dead = rdv_lane_account(w.lane)->dead;
	uint64_t number = replay(m, 1, 5, REDRIVE_OK);
	deliver(m, &world_fail);
	deliver(m, &world_fail);
	world_settle(&w);
	assert_int_equal(w.letter_count, 2);
	assert_int_equal(w.letters[1].letter.generation, 1);
	assert_int_equal(w.letters[1].letter.request, number);
	assert_int_equal(w.outcomes[0].outcome.outcome, RDV_STATE_DEAD);
	assert_int_equal(w.outcomes[0].outcome.attempts, 2);
	assert_int_equal(rdv_lane_account(w.lane)->dead, dead);
}

static void an_acked_replay_opens_the_gate_of_its_letter(void **state)
{
	(void)state;
	w.options.policy.after_dead = RDV_AFTER_HOLD;
	world_start(&w);
	uint64_t m = dead_letter(1), next = world_publish(&w, 1);
	assert_false(called(next));
	replay(m, 1, 5, REDRIVE_OK);
	deliver(m, &world_reject); /* dead again: the gate stays closed */
	world_settle(&w);
	assert_false(called(next));
	replay(m, 1, 6, REDRIVE_OK);
	deliver(m, &world_ack);
	assert_true(called(next));
}

static void a_letter_with_an_open_or_unconfirmed_request_is_a_conflict(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = dead_letter(1), live = world_publish(&w, 2);
	replay(m, 1, 5, REDRIVE_OK);
	replay(m, 1, 6, REDRIVE_CONFLICT);
	replay(live, 2, 6, REDRIVE_CONFLICT);
	world_until_called(&w, m);
	w.no_desk = true;
	world_answer(&w, m, &world_ack);
	replay(m, 1, 6, REDRIVE_CONFLICT);
	w.no_desk = false;
	world_settle(&w);
	replay(m, 1, 6, REDRIVE_OK);
}

static void a_paused_plan_ends_its_calls_and_lets_live_messages_flow(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = dead_letter(1), n = dead_letter(2), live = 0;
	replay(m, 1, 5, REDRIVE_OK);
	world_until_called(&w, m);
	rdv_lane_replay_pause(w.lane, w.now, 5, true, &w.out);
	replay(n, 2, 5, REDRIVE_OK);
	assert_false(called(n));
	live = world_publish(&w, 2);
	assert_true(called(live));
	world_answer(&w, live, &world_ack);
	world_answer(&w, m, &world_fail);
	live = world_publish(&w, 1);
	world_pass(&w, 5000);
	assert_true(called(live));
	assert_false(called(m));
	assert_int_equal(world_state(&w, m), RDV_STATE_REPLAYING);
	world_answer(&w, live, &world_ack);
	rdv_lane_replay_pause(w.lane, w.now, 5, false, &w.out);
	deliver(m, &world_ack);
	deliver(n, &world_ack);
}

static void a_cancelled_plan_takes_back_what_is_not_at_the_handler(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t tried = dead_letter(1), never = dead_letter(2), flying = dead_letter(3);
	replay(tried, 1, 5, REDRIVE_OK);
	deliver(tried, &world_fail);
	replay(flying, 3, 5, REDRIVE_OK);
	world_until_called(&w, flying);
	rdv_lane_replay_pause(w.lane, w.now, 5, true, &w.out);
	replay(never, 2, 5, REDRIVE_OK);
	rdv_lane_replay_cancel(w.lane, w.now, 5, &w.out);
	world_settle(&w);
	assert_int_equal(w.outcome_count, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(w.outcomes[i].outcome.outcome,
				 w.outcomes[i].seq == tried ? RDV_STATE_WAITING : RDV_STATE_READY);
	world_answer(&w, flying, &world_fail);
	world_settle(&w);
	assert_int_equal(w.outcomes[2].outcome.outcome, RDV_STATE_WAITING);
}

static void requests_and_unconfirmed_outcomes_survive_a_crash(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = dead_letter(1), n = dead_letter(2);
	replay(m, 1, 5, REDRIVE_OK);
	deliver(m, &world_fail);
	replay(n, 2, 5, REDRIVE_OK);
	w.no_desk = true;
	deliver(n, &world_ack);
	world_settle(&w);
	assert_int_equal(w.outcome_count, 1);
	w.no_desk = false;
	world_reopen(&w, true);
	world_settle(&w);
	assert_int_equal(w.outcome_count, 2); /* told again */
	assert_int_equal(w.outcomes[1].seq, n);
	world_until_called(&w, m);
	assert_int_equal(world_call_of(&w, m)->effect.dispatch.attempt, 2);
	world_answer(&w, m, &world_ack);
	world_settle(&w);
	assert_int_equal(w.outcome_count, 3);
	world_reopen(&w, false);
	world_settle(&w);
	assert_int_equal(w.outcome_count, 3); /* confirmed ones are forgotten */
}

/* ---- dedupe ---- */

static enum rdv_dedupe_answer ask(uint64_t seq, uint64_t key)
{
	struct world_call *c = world_call_of(&w, seq);
	enum rdv_dedupe_answer answer;

	assert_non_null(c);
	answer = rdv_lane_dedupe(w.lane, w.now, c->effect.entry, c->effect.dispatch.call,
				 (struct rdv_hash128){key, key}, &w.out);
	if (answer != RDV_DEDUPE_PROCEED)
		c->open = false;
	world_end_turn(&w);
	return answer;
}

static void start_dedupe(void)
{
	w.options.policy.order = RDV_ORDER_NONE;
	w.options.policy.dedupe = (struct rdv_dedupe_policy){.by = RDV_DEDUPE_ID, .ttl_ms = 60000, .entries = 100};
	world_start(&w);
}

static void a_done_key_is_acked_without_a_call_for_its_ttl(void **state)
{
	(void)state;
	start_dedupe();
	uint64_t a = world_publish(&w, 0), b, c;
	world_settle(&w);
	assert_int_equal(ask(a, 9), RDV_DEDUPE_PROCEED);
	world_answer(&w, a, &world_ack);
	b = world_publish(&w, 0);
	world_settle(&w);
	assert_int_equal(ask(b, 9), RDV_DEDUPE_DUPLICATE);
	assert_int_equal(rdv_lane_account(w.lane)->acked, 2);
	assert_int_equal(rdv_lane_account(w.lane)->first, 1);
	world_reopen(&w, true);
	b = world_publish(&w, 0);
	world_settle(&w);
	assert_int_equal(ask(b, 9), RDV_DEDUPE_DUPLICATE);
	world_pass(&w, 60000);
	c = world_publish(&w, 0);
	world_settle(&w);
	assert_int_equal(ask(c, 9), RDV_DEDUPE_PROCEED);
}

static void a_double_waits_until_the_owner_ends(void **state)
{
	(void)state;
	start_dedupe();
	uint64_t a = world_publish(&w, 0), b = world_publish(&w, 0);
	world_settle(&w);
	assert_int_equal(ask(a, 9), RDV_DEDUPE_PROCEED);
	assert_int_equal(ask(b, 9), RDV_DEDUPE_WAIT);
	assert_int_equal(world_state(&w, b), RDV_STATE_HELD);
	world_answer(&w, a, &world_fail);
	assert_false(called(b)); /* a retry owns its key */
	world_until_called(&w, a);
	assert_int_equal(ask(a, 9), RDV_DEDUPE_PROCEED);
	world_answer(&w, a, &world_ack);
	assert_true(called(b));
	assert_int_equal(ask(b, 9), RDV_DEDUPE_DUPLICATE);
}

static void a_dead_owner_frees_its_key(void **state)
{
	(void)state;
	start_dedupe();
	uint64_t a = world_publish(&w, 0), b = world_publish(&w, 0);
	world_settle(&w);
	assert_int_equal(ask(a, 9), RDV_DEDUPE_PROCEED);
	assert_int_equal(ask(b, 9), RDV_DEDUPE_WAIT);
	world_answer(&w, a, &world_reject);
	assert_true(called(b));
	assert_int_equal(ask(b, 9), RDV_DEDUPE_PROCEED);
	world_answer(&w, b, &world_ack);
	assert_int_equal(rdv_lane_account(w.lane)->acked, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(later_messages_of_a_key_wait_for_the_failing_one_and_other_keys_flow),
		T(a_null_key_has_no_order_and_a_key_is_a_key),
		T(a_follower_goes_out_when_the_heads_done_is_durable),
		T(a_delayed_message_blocks_nobody_and_joins_when_it_is_due),
		T(a_smaller_position_that_joins_overtakes_a_waiting_retry),
		T(after_dead_continue_goes_on_with_the_next),
		T(after_dead_hold_holds_the_key_over_restarts_until_it_is_released),
		T(after_dead_follow_kills_the_followers_of_that_moment_in_order),
		T(a_follower_with_a_history_keeps_it_in_its_letter),
		T(a_revoked_head_closes_no_gate_and_kills_nobody),
		T(order_survives_a_crash_at_any_moment),
		T(held_of_a_key_are_counted),
		T(the_messages_of_a_key_are_found_by_position),
		T(a_replay_keeps_its_position_starts_at_attempt_one_and_is_in_no_account),
		T(with_order_none_a_replay_waits_for_its_keys_live_calls_and_they_for_it),
		T(a_replay_that_dies_again_is_a_letter_of_the_next_generation),
		T(an_acked_replay_opens_the_gate_of_its_letter),
		T(a_letter_with_an_open_or_unconfirmed_request_is_a_conflict),
		T(a_paused_plan_ends_its_calls_and_lets_live_messages_flow),
		T(a_cancelled_plan_takes_back_what_is_not_at_the_handler),
		T(requests_and_unconfirmed_outcomes_survive_a_crash),
		T(a_done_key_is_acked_without_a_call_for_its_ttl),
		T(a_double_waits_until_the_owner_ends),
		T(a_dead_owner_frees_its_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
