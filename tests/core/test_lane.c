/* test_lane.c - a message's way through the lane: states, attempts, limits, deaths, time. */
#include "core/lane_world.h"
#include "core/target_state.h"

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

static const struct rdv_account *account(void)
{
	return rdv_lane_account(w.lane);
}

/* Delivered and answered, as soon as it may be. */
static void deliver(uint64_t seq, const struct rdv_verdict *v)
{
	world_until_called(&w, seq);
	world_answer(&w, seq, v);
}

static int64_t due_in(uint64_t seq)
{
	assert_int_equal(world_state(&w, seq), RDV_STATE_WAITING);
	return world_where(&w, seq).due.ms - w.now.wall.ms;
}

static uint32_t attempt_of(uint64_t seq)
{
	world_until_called(&w, seq);
	return world_call_of(&w, seq)->effect.dispatch.attempt;
}

static struct rdv_message_state *last_state(uint64_t seq, struct rdv_message_state *s)
{
	for (size_t i = w.record_count; i-- > 0;)
		if (w.records[i].type == RDV_RECORD_STATE && w.records[i].seq == seq) {
			assert_int_equal(rdv_state_decode(rdv_block_slice(w.records[i].payload), s), REDRIVE_OK);
			return s;
		}
	fail_msg("no STATE of %llu", (unsigned long long)seq);
	return s;
}

static enum rdv_reason letter_reason(uint64_t seq)
{
	world_settle(&w);
	for (size_t i = 0; i < w.letter_count; i++)
		if (w.letters[i].seq == seq)
			return w.letters[i].letter.reason;
	return RDV_REASON_NONE;
}

/* ---- the plain way ---- */

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
	assert_int_equal(account()->acked, 1);
	assert_int_equal(account()->first, 1);
	assert_int_equal(account()->succeeded, 1);
}

static void a_position_seen_before_counts_once(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	struct rdv_published again = {.seq = m, .body = {1, 64, 10}};
	assert_int_equal(rdv_lane_published(w.lane, w.now, &again, &w.out), REDRIVE_OK);
	assert_int_equal(account()->received, 1);
	deliver(m, &world_ack);
	assert_int_equal(rdv_lane_published(w.lane, w.now, &again, &w.out), REDRIVE_OK);
	world_settle(&w);
	assert_int_equal(account()->received, 1);
	assert_int_equal(world_open_calls(&w), 0);
}

static void a_verdict_of_a_call_that_is_not_open_is_refused(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	world_until_called(&w, m);
	struct rdv_effect call = world_call_of(&w, m)->effect;
	world_answer(&w, m, &world_fail);
	assert_int_equal(
		rdv_lane_verdict(w.lane, w.now, call.entry, call.dispatch.call, &world_ack, rdv_slice(NULL, 0), &w.out),
		REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_lane_verdict(w.lane, w.now, 999, 7, &world_ack, rdv_slice(NULL, 0), &w.out),
			 REDRIVE_NOT_FOUND);
	world_until_called(&w, m);
	assert_int_equal(
		rdv_lane_verdict(w.lane, w.now, call.entry, call.dispatch.call, &world_ack, rdv_slice(NULL, 0), &w.out),
		REDRIVE_NOT_FOUND);
	assert_int_equal(world_state(&w, m), RDV_STATE_IN_FLIGHT);
}

static void a_failing_message_waits_its_back_off_and_dies_after_its_attempts(void **state)
{
	(void)state;
	w.options.policy.retry.attempts = 3;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(attempt_of(m), i + 1);
		world_answer(&w, m, &world_fail);
		if (i < 2)
			assert_int_equal(due_in(m), 1000 << i);
	}
	assert_int_equal(world_state(&w, m), RDV_STATE_DYING);
	assert_int_equal(account()->dead, 1); /* dying counts as dead */
	assert_int_equal(letter_reason(m), RDV_REASON_EXHAUSTED);
	assert_int_equal(world_state(&w, m), RDV_STATE_DONE);
	assert_int_equal(account()->dead, 1);
	assert_int_equal(account()->failed, 3);
	assert_int_equal(account()->first, 1);
	assert_int_equal(account()->retries, 2);
}

/* pitfall: every failed attempt ends in exactly one of acked, scheduled, dead */
static void verdicts_lead_to_their_states_and_counts(void **state)
{
	static const struct {
		const struct rdv_verdict *verdict;
		enum rdv_state after;
		size_t counter;
	} rows[] = {
		{&world_ack, RDV_STATE_DONE, offsetof(struct rdv_account, succeeded)},
		{&world_drop, RDV_STATE_DONE, offsetof(struct rdv_account, attempts_dropped)},
		{&world_fail, RDV_STATE_WAITING, offsetof(struct rdv_account, failed)},
		{&world_timeout, RDV_STATE_WAITING, offsetof(struct rdv_account, failed)},
		{&world_reject, RDV_STATE_DYING, offsetof(struct rdv_account, rejected)},
		{&world_defer, RDV_STATE_WAITING, offsetof(struct rdv_account, deferrals)},
		{&world_crash, RDV_STATE_WAITING, offsetof(struct rdv_account, crashes)},
		{&world_shutdown, RDV_STATE_READY, offsetof(struct rdv_account, shutdowns)},
	};

	(void)state;
	w.no_desk = true;
	world_start(&w);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uint64_t m = world_publish(&w, 0);
		const uint64_t *counter = (const uint64_t *)((const char *)account() + rows[i].counter);
		uint64_t before = *counter, ends = account()->first + account()->retries;
		deliver(m, rows[i].verdict);
		assert_int_equal(*counter, before + 1);
		assert_true(account()->first + account()->retries > ends);
		assert_int_equal(world_state(&w, m), rows[i].after);
		rdv_lane_pause(w.lane, false, &w.out);
	}
	assert_int_equal(account()->timeouts, 1);
	assert_int_equal(account()->dropped, 1);
}

/* ---- attempts ---- */

/* pitfall: a deferral is no failure */
static void only_charged_failures_advance_the_attempt_number(void **state)
{
	static const struct {
		const struct rdv_verdict *verdict;
		uint32_t advances;
	} rows[] = {{&world_defer, 0}, {&world_crash, 0}, {&world_shutdown, 0}, {&world_fail, 1}, {&world_timeout, 1}};

	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uint32_t before = attempt_of(m);
		world_answer(&w, m, rows[i].verdict);
		assert_int_equal(attempt_of(m), before + rows[i].advances);
		world_answer(&w, m, &world_shutdown);
	}
}

/* pitfall: killed by a deploy */
static void a_call_cut_off_by_the_drain_is_not_counted_against_a_limit_of_one(void **state)
{
	(void)state;
	w.options.policy.retry.attempts = 1;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 5; i++)
		deliver(m, &world_shutdown);
	assert_int_equal(attempt_of(m), 1);
	world_answer(&w, m, &world_ack);
	assert_int_equal(account()->acked, 1);
	assert_int_equal(account()->shutdowns, 5);
}

static void deferrals_have_their_own_limit(void **state)
{
	(void)state;
	w.options.policy.retry.deferrals = 3;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 3; i++) {
		deliver(m, &world_defer);
		assert_int_equal(due_in(m), 1000);
	}
	deliver(m, &world_defer);
	assert_int_equal(letter_reason(m), RDV_REASON_EXHAUSTED);
	assert_int_equal(account()->failed, 0);
	assert_int_equal(account()->deferrals, 4);
}

static void crashes_of_the_handler_have_their_own_limit(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_crash);
	deliver(m, &world_crash);
	assert_int_equal(world_state(&w, m), RDV_STATE_WAITING);
	deliver(m, &world_crash);
	assert_int_equal(letter_reason(m), RDV_REASON_CRASHED);
	struct rdv_message_state s;
	assert_int_equal(last_state(m, &s)->causes.failures, 0);
	assert_int_equal(s.causes.crashes, 3);
}

static void a_reject_is_a_charged_failure_of_the_letter(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_timeout);
	deliver(m, &world_reject);
	assert_int_equal(letter_reason(m), RDV_REASON_REJECTED);
	struct rdv_message_state s;
	assert_int_equal(last_state(m, &s)->causes.failures, 2);
	assert_int_equal(s.causes.timeouts, 1);
}

static void age_counts_from_the_first_delivery_and_is_judged_at_a_failure(void **state)
{
	(void)state;
	w.options.policy.retry.max_age_ms = 10000;
	world_start(&w);
	rdv_lane_pause(w.lane, true, &w.out);
	uint64_t m = world_publish(&w, 0);
	world_settle(&w);
	world_pass(&w, 3600000); /* undelivered it never expires */
	rdv_lane_pause(w.lane, false, &w.out);
	deliver(m, &world_fail); /* due at 1 s */
	deliver(m, &world_fail); /* at 3 s */
	deliver(m, &world_fail); /* at 7 s */
	assert_int_equal(world_state(&w, m), RDV_STATE_WAITING);
	deliver(m, &world_fail); /* the next would be at 15 s */
	assert_int_equal(letter_reason(m), RDV_REASON_EXPIRED);
}

static void on_exhausted_drop_drops_at_every_limit_but_not_what_was_rejected(void **state)
{
	(void)state;
	w.options.policy.retry.on_exhausted = RDV_EXHAUSTED_DROP;
	w.options.policy.retry.attempts = 1;
	w.options.policy.retry.deferrals = 0;
	w.options.policy.retry.crashes = 1;
	world_start(&w);
	static const struct rdv_verdict *const limits[] = {&world_fail, &world_defer, &world_crash};
	for (int i = 0; i < 3; i++)
		deliver(world_publish(&w, 0), limits[i]);
	world_settle(&w);
	assert_int_equal(account()->dropped, 3);
	assert_int_equal(w.letter_count, 0);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_reject);
	assert_int_equal(letter_reason(m), RDV_REASON_REJECTED);
}

static void a_message_over_a_lowered_limit_dies_at_its_next_due_without_a_call(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0), fresh = world_publish(&w, 0);
	for (int i = 0; i < 4; i++)
		deliver(m, &world_fail);
	w.options.policy.retry.attempts = 3;
	rdv_lane_reload(w.lane, &w.options.policy, NULL);
	world_settle(&w);
	assert_int_equal(world_state(&w, m), RDV_STATE_WAITING);
	uint64_t calls = w.call_count;
	world_pass(&w, due_in(m));
	assert_int_equal(letter_reason(m), RDV_REASON_LIMIT_LOWERED);
	assert_int_equal(w.call_count, calls);
	struct rdv_message_state s;
	assert_int_equal(last_state(m, &s)->history_count, 4); /* its history is in the letter */
	world_answer(&w, fresh, &world_ack);
}

static void a_rules_own_limit_judges_all_charged_failures(void **state)
{
	struct rdv_rule_spec spec = {.statuses = {503}, .status_count = 1, .then = RDV_THEN_RETRY, .has_retry = true};
	struct rdv_verdict by_rule = world_fail;
	struct rdv_error error;
	size_t bad;

	(void)state;
	spec.retry = w.options.policy.retry;
	spec.retry.attempts = 3;
	spec.retry.backoff = RDV_BACKOFF_FIXED;
	spec.retry.base_ms = 60000;
	by_rule.rule = 1;
	assert_int_equal(rdv_rules_compile(&spec, 1, &w.options.rules, &bad, &error), REDRIVE_OK);
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_fail);
	deliver(m, &by_rule);
	assert_int_equal(due_in(m), 60000);
	deliver(m, &by_rule);
	assert_int_equal(letter_reason(m), RDV_REASON_EXHAUSTED);
	rdv_rules_unref(w.options.rules);
}

static void a_damaged_body_dies_without_an_attempt(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	world_until_called(&w, m);
	struct world_call *c = world_call_of(&w, m);
	c->open = false;
	rdv_lane_damaged(w.lane, w.now, c->effect.entry, c->effect.dispatch.call, &w.out);
	assert_int_equal(letter_reason(m), RDV_REASON_DAMAGED);
	assert_int_equal(account()->first, 0);
	assert_int_equal(account()->dead, 1);
}

/* ---- delays ---- */

/* pitfall: all attempts burnt in milliseconds */
static void a_named_delay_ignores_min_and_is_bounded_by_the_cap(void **state)
{
	static const struct {
		int64_t named, wanted;
	} rows[] = {{0, 0}, {7, 7}, {5000, 5000}, {7200000, 3600000}};

	(void)state;
	world_start(&w);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_verdict v = world_fail;
		uint64_t m = world_publish(&w, 0);
		v.has_delay = true;
		v.delay_ms = rows[i].named;
		deliver(m, &v);
		assert_int_equal(due_in(m), rows[i].wanted);
		deliver(m, &world_ack);
	}
	/* Without a name, never under min. */
	w.options.policy.retry.base_ms = 1;
	rdv_lane_reload(w.lane, &w.options.policy, NULL);
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_fail);
	assert_int_equal(due_in(m), 100);
}

/* pitfall: different delays in one queue */
static void a_long_delay_blocks_no_short_one(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t far = world_publish_at(&w, 0, w.now.wall.ms + 86400000),
		 near = world_publish_at(&w, 0, w.now.wall.ms + 500);
	world_settle(&w);
	world_pass(&w, 499);
	world_settle(&w);
	assert_null(world_call_of(&w, near)); /* never early */
	world_pass(&w, 1);
	world_turn(&w);
	assert_non_null(world_call_of(&w, near)); /* nor late */
	assert_int_equal(world_state(&w, far), RDV_STATE_WAITING);
}

static void a_delayed_message_is_waiting_and_its_attempt_is_the_first(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish_at(&w, 0, w.now.wall.ms + 10000);
	assert_int_equal(due_in(m), 10000);
	assert_int_equal(world_where(&w, m).attempt, 1);
	assert_int_equal(attempt_of(m), 1);
	assert_int_equal(account()->first, 1);
}

static void a_body_is_asked_for_one_second_before_it_is_due(void **state)
{
	(void)state;
	world_start(&w);
	world_publish_at(&w, 0, w.now.wall.ms + 10000);
	world_pass(&w, 8999);
	world_settle(&w);
	assert_int_equal(w.fetches, 0);
	world_pass(&w, 1);
	world_settle(&w);
	assert_int_equal(w.fetches, 1);
}

/* pitfall: the wall clock jumps while messages wait */
static void within_a_run_only_the_monotonic_clock_counts(void **state)
{
	static const int64_t jumps[] = {-3600000, 3600000};

	(void)state;
	world_start(&w);
	for (int i = 0; i < 2; i++) {
		uint64_t m = world_publish(&w, 0);
		deliver(m, &world_fail);
		w.now.wall.ms += jumps[i];
		world_pass(&w, 999);
		world_settle(&w);
		assert_null(world_call_of(&w, m));
		world_pass(&w, 1);
		world_turn(&w);
		assert_non_null(world_call_of(&w, m));
		world_answer(&w, m, &world_ack);
	}
}

/* ---- refunds ---- */

static void a_refund_gives_the_charge_back_and_leaves_the_due_time(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t early = world_publish(&w, 0), late = world_publish(&w, 0);
	world_settle(&w);
	world_answer(&w, early, &world_timeout);
	world_pass(&w, 500);
	world_answer(&w, late, &world_timeout);
	int64_t due = due_in(late);
	rdv_lane_refund(w.lane, w.now, (struct rdv_mono){w.now.mono.ms - 100}, &w.out);
	world_settle(&w);
	assert_int_equal(due_in(late), due);
	assert_int_equal(world_where(&w, late).attempt, 1);
	assert_int_equal(world_where(&w, early).attempt, 2);
	assert_int_equal(account()->failed, 1);
	assert_int_equal(account()->timeouts, 1);
	assert_int_equal(account()->outage, 1);
	struct rdv_message_state s;
	last_state(late, &s);
	assert_int_equal(s.causes.failures, 0);
	assert_int_equal(s.causes.outage, 1);
	assert_int_equal(s.history[0].cause, RDV_CAUSE_OUTAGE);
	world_reopen(&w, true);
	assert_int_equal(world_where(&w, late).attempt, 1);
}

static void two_charges_of_a_message_are_both_given_back(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	struct rdv_mono since = w.now.mono;
	deliver(m, &world_fail);
	deliver(m, &world_fail);
	rdv_lane_refund(w.lane, w.now, since, &w.out);
	world_settle(&w);
	assert_int_equal(attempt_of(m), 1);
	struct rdv_message_state s;
	assert_int_equal(last_state(m, &s)->causes.outage, 2);
}

static void an_outage_charges_nobody(void **state)
{
	enum { MESSAGES = 200 };
	struct rdv_account sum;

	(void)state;
	w.options.policy.retry.attempts = 3;
	w.target_policy.breaker.on = true;
	world_start(&w);
	for (int i = 0; i < MESSAGES; i++)
		world_publish(&w, 0);
	/* A minute of nothing but refused connections. */
	for (int64_t end = w.now.mono.ms + 60000; w.now.mono.ms < end; world_pass(&w, 50)) {
		world_turn(&w);
		for (size_t i = 0; i < w.call_count; i++)
			if (w.calls[i].open)
				world_answer(&w, w.calls[i].effect.seq, &world_timeout);
	}
	world_settle(&w);
	sum = *account();
	assert_int_equal(sum.dead, 0);
	assert_int_equal(sum.failed, 0);
	assert_true(sum.outage >= 20);
	for (uint64_t m = 0; m < MESSAGES; m++)
		assert_int_equal(world_where(&w, m).attempt, 1);
}

/* ---- history ---- */

/* pitfall: histories grow for ever */
static void the_history_keeps_the_first_and_the_last_fifteen(void **state)
{
	struct rdv_message_state s;

	(void)state;
	w.options.policy.retry.attempts = 40;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int i = 0; i < 30; i++)
		deliver(m, &world_fail);
	last_state(m, &s);
	assert_int_equal(s.history_count, 16);
	assert_int_equal(s.history_omitted, 14);
	assert_int_equal(s.history[0].n, 1);
	assert_int_equal(s.history[1].n, 16);
	assert_int_equal(s.history[15].n, 30);
	assert_int_equal(s.deliveries, 30);
}

/* ---- rule 8, pause, revoke ---- */

static void no_work_is_offered_while_too_much_is_not_recorded(void **state)
{
	(void)state;
	w.options.unrecorded_max = 4;
	world_start(&w);
	w.no_sync = true;
	uint64_t m[6];
	for (int i = 0; i < 6; i++)
		m[i] = world_publish(&w, 0);
	world_settle(&w);
	for (int i = 0; i < 4; i++)
		world_answer(&w, m[i], &world_ack);
	uint64_t held = world_publish(&w, 0);
	world_settle(&w);
	assert_null(world_call_of(&w, held));
	w.no_sync = false;
	world_sync(&w);
	world_turn(&w);
	assert_non_null(world_call_of(&w, held));
}

static void no_work_is_offered_when_an_outcome_is_not_recorded_for_two_seconds(void **state)
{
	(void)state;
	world_start(&w);
	w.no_sync = true;
	deliver(world_publish(&w, 0), &world_ack);
	uint64_t soon = world_publish(&w, 0);
	world_pass(&w, 2000);
	world_turn(&w);
	assert_non_null(world_call_of(&w, soon));
	uint64_t late = world_publish(&w, 0);
	world_pass(&w, 1);
	world_turn(&w);
	assert_null(world_call_of(&w, late));
}

static void a_paused_lane_stays_paused_over_a_restart(void **state)
{
	(void)state;
	world_start(&w);
	rdv_lane_pause(w.lane, true, &w.out);
	world_settle(&w);
	uint64_t m = world_publish(&w, 0);
	world_reopen(&w, true);
	world_settle(&w);
	assert_true(rdv_lane_paused(w.lane));
	assert_null(world_call_of(&w, m));
	rdv_lane_pause(w.lane, false, &w.out);
	world_settle(&w);
	assert_non_null(world_call_of(&w, m));
}

static void a_waiting_message_can_be_revoked(void **state)
{
	bool pending;

	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0), never = world_publish(&w, 0);
	deliver(m, &world_fail);
	assert_int_equal(rdv_lane_revoke(w.lane, w.now, m, rdv_slice(NULL, 0), &pending, &w.out), REDRIVE_OK);
	assert_int_equal(world_state(&w, m), RDV_STATE_REVOKED);
	assert_int_equal(letter_reason(m), RDV_REASON_REVOKED);
	assert_int_equal(account()->revoked, 1);
	assert_int_equal(account()->dead, 0);
	assert_int_equal(rdv_lane_revoke(w.lane, w.now, m, rdv_slice(NULL, 0), &pending, &w.out), REDRIVE_CONFLICT);
	assert_int_equal(rdv_lane_revoke(w.lane, w.now, 999, rdv_slice(NULL, 0), &pending, &w.out), REDRIVE_NOT_FOUND);
	world_answer(&w, never, &world_ack);
}

static void a_revoke_in_flight_loses_against_an_ack_and_wins_against_the_rest(void **state)
{
	static const struct rdv_verdict *const rest[] = {&world_fail, &world_reject, &world_drop, &world_defer,
							 &world_shutdown};
	bool pending;

	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	world_until_called(&w, m);
	assert_int_equal(rdv_lane_revoke(w.lane, w.now, m, rdv_slice(NULL, 0), &pending, &w.out), REDRIVE_CONFLICT);
	assert_true(pending);
	world_answer(&w, m, &world_ack);
	assert_int_equal(account()->acked, 1);
	for (uint64_t i = 0; i < 5; i++) {
		m = world_publish(&w, 0);
		world_until_called(&w, m);
		assert_int_equal(rdv_lane_revoke(w.lane, w.now, m, rdv_slice(NULL, 0), &pending, &w.out),
				 REDRIVE_CONFLICT);
		world_answer(&w, m, rest[i]);
		assert_int_equal(letter_reason(m), RDV_REASON_REVOKED);
		assert_int_equal(account()->revoked, i + 1);
	}
	assert_int_equal(account()->dropped, 0);
	assert_int_equal(account()->dead, 0);
}

/* ---- leases: nobody took it, or the answer came late ---- */

static void a_call_that_is_taken_back_never_was(void **state)
{
	struct world_call *c;
	uint32_t attempt;

	(void)state;
	w.options.policy.retry.base_ms = 1000;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	for (int round = 0; round < 2; round++) {
		attempt = attempt_of(m);
		c = world_call_of(&w, m);
		c->open = false;
		rdv_lane_take_back(w.lane, w.now, c->effect.entry, c->effect.dispatch.call, 0, &w.out);
		world_end_turn(&w);
		assert_int_equal(world_state(&w, m), RDV_STATE_READY);
		assert_int_equal(account()->first, round);
		assert_int_equal(account()->retries, 0);
		assert_int_equal(account()->shutdowns, 0);
		assert_int_equal(attempt_of(m), attempt);
		world_answer(&w, m, &world_fail);
	}
	world_until_called(&w, m);
	c = world_call_of(&w, m);
	c->open = false;
	rdv_lane_take_back(w.lane, w.now, c->effect.entry, c->effect.dispatch.call, 700, &w.out);
	world_end_turn(&w);
	assert_int_equal(due_in(m), 700);
	assert_int_equal(attempt_of(m), 3);
}

static void a_revoked_call_that_is_taken_back_dies_at_once(void **state)
{
	struct world_call *c;
	bool pending;

	(void)state;
	world_start(&w);
	uint64_t m = world_publish(&w, 0);
	world_until_called(&w, m);
	assert_int_equal(rdv_lane_revoke(w.lane, w.now, m, rdv_slice(NULL, 0), &pending, &w.out), REDRIVE_CONFLICT);
	assert_true(pending);
	c = world_call_of(&w, m);
	c->open = false;
	rdv_lane_take_back(w.lane, w.now, c->effect.entry, c->effect.dispatch.call, 0, &w.out);
	world_end_turn(&w);
	assert_int_equal(letter_reason(m), RDV_REASON_REVOKED);
	assert_int_equal(account()->revoked, 1);
}

static enum redrive_status late(uint64_t seq, const struct rdv_verdict *v)
{
	uint32_t ref = rdv_lane_find(w.lane, seq);
	struct rdv_slice history = ref ? world_read(&w, rdv_lane_state_place(w.lane, ref)) : rdv_slice(NULL, 0);
	enum redrive_status status = rdv_lane_late(w.lane, w.now, seq, v, history, &w.out);

	world_end_turn(&w);
	return status;
}

static void a_late_verdict_decides_while_the_message_waits(void **state)
{
	static const struct rdv_verdict fast = {.kind = RDV_RETRY,
						.cause = RDV_CAUSE_FAILURE,
						.has_delay = true,
						.delay_ms = 250,
						.failure = {.text = {(const uint8_t *)"busy", 4}}};
	struct rdv_message_state *s = calloc(1, sizeof *s);

	(void)state;
	w.options.policy.retry.base_ms = 10000;
	world_start(&w);
	uint64_t acked = world_publish(&w, 0), dropped = world_publish(&w, 0), rejected = world_publish(&w, 0),
		 again = world_publish(&w, 0), deferred = world_publish(&w, 0);
	for (uint64_t m = acked; m <= deferred; m++)
		deliver(m, &world_timeout);
	assert_int_equal(account()->timeouts, 5);
	assert_int_equal(late(acked, &world_ack), REDRIVE_OK);
	assert_int_equal(late(dropped, &world_drop), REDRIVE_OK);
	assert_int_equal(late(rejected, &world_reject), REDRIVE_OK);
	assert_int_equal(late(again, &fast), REDRIVE_OK);
	assert_int_equal(due_in(again), 250);
	assert_int_equal(last_state(again, s)->failure.text.size, 4);
	assert_int_equal(s->causes.failures, 1);
	assert_int_equal(late(again, &world_fail), REDRIVE_OK); /* without a delay its time stays */
	assert_int_equal(due_in(again), 250);
	assert_int_equal(late(deferred, &world_defer), REDRIVE_OK);
	assert_int_equal(due_in(deferred), 10000);
	assert_int_equal(letter_reason(rejected), RDV_REASON_REJECTED);
	assert_int_equal(account()->acked, 1);
	assert_int_equal(account()->dropped, 1);
	assert_int_equal(account()->dead, 1);
	assert_int_equal(account()->failed, 5); /* their time was over: that stays so */
	assert_int_equal(account()->succeeded + account()->rejected + account()->deferrals, 0);
	assert_int_equal(late(acked, &world_ack), REDRIVE_CONFLICT);
	assert_int_equal(late(rejected, &world_ack), REDRIVE_CONFLICT);
	assert_int_equal(attempt_of(again), 2);
	assert_int_equal(late(again, &world_ack), REDRIVE_CONFLICT); /* somebody has it */
	free(s);
}

static void a_late_ack_frees_the_key_and_a_late_reject_in_a_storm_waits(void **state)
{
	(void)state;
	w.options.policy.order = RDV_ORDER_KEY;
	w.options.policy.retry.base_ms = 100000;
	world_start(&w);
	uint64_t head = world_publish(&w, 9), next = world_publish(&w, 9);
	deliver(head, &world_timeout);
	world_settle(&w);
	assert_null(world_call_of(&w, next));
	assert_int_equal(late(head, &world_ack), REDRIVE_OK);
	world_settle(&w);
	assert_non_null(world_call_of(&w, next));
	world_answer(&w, next, &world_timeout);
	rdv_target_route_at(w.target, 0)->storm.held = true;
	assert_int_equal(late(next, &world_reject), REDRIVE_OK);
	assert_int_equal(world_state(&w, next), RDV_STATE_WAITING);
	rdv_target_route_at(w.target, 0)->storm.held = false;
	assert_int_equal(late(next, &world_reject), REDRIVE_OK);
	assert_int_equal(letter_reason(next), RDV_REASON_REJECTED);
}

static void a_letter_is_asked_for_only_when_dying_is_durable_and_done_after_it_is_stored(void **state)
{
	(void)state;
	w.no_desk = true;
	world_start(&w);
	w.no_sync = true;
	uint64_t m = world_publish(&w, 0);
	deliver(m, &world_reject);
	world_settle(&w);
	assert_int_equal(w.letter_count, 0);
	world_sync(&w);
	assert_int_equal(w.letter_count, 1);
	assert_int_equal(world_state(&w, m), RDV_STATE_DYING);
	for (size_t i = 0; i < w.record_count; i++)
		assert_int_not_equal(w.records[i].type, RDV_RECORD_DONE);
	w.no_sync = w.no_desk = false;
	world_settle(&w);
	assert_int_equal(world_state(&w, m), RDV_STATE_DONE);
}

static void each_letter_waits_for_its_own_record(void **state)
{
	(void)state;
	w.no_desk = true;
	world_start(&w);
	uint64_t a = world_publish(&w, 0), b = world_publish(&w, 0);
	world_settle(&w);
	w.no_sync = true;
	world_answer(&w, a, &world_reject);
	uint64_t first = w.ticket;
	world_answer(&w, b, &world_reject);
	rdv_lane_durable(w.lane, w.now, first, &w.out);
	world_execute(&w);
	assert_int_equal(w.letter_count, 1);
	assert_int_equal(w.letters[0].seq, a);
	world_sync(&w);
	assert_int_equal(w.letter_count, 2);
}

static void the_oldest_unfinished_is_as_old_as_its_publishing(void **state)
{
	(void)state;
	world_start(&w);
	uint64_t old = world_publish(&w, 0);
	world_pass(&w, 5000);
	uint64_t young = world_publish(&w, 0);
	world_pass(&w, 3000);
	assert_int_equal(rdv_lane_oldest_ms(w.lane, w.now), 8000);
	world_settle(&w);
	world_answer(&w, old, &world_ack);
	assert_int_equal(rdv_lane_oldest_ms(w.lane, w.now), 3000);
	world_answer(&w, young, &world_ack);
	assert_int_equal(rdv_lane_oldest_ms(w.lane, w.now), 0);
}

/* pitfall: a million delayed messages */
static void a_million_delayed_messages_fit_and_come_in_time(void **state)
{
	enum { COUNT = 1000000 };
	struct rdv_effects out;

	(void)state;
	world_start(&w);
	rdv_effects_init(&out);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct rdv_published p = {
			.seq = i, .not_before = {w.now.wall.ms + 60000 + (int64_t)(i % 600000)}, .body = {1, 64, 1}};
		assert_int_equal(rdv_lane_published(w.lane, w.now, &p, &out), REDRIVE_OK);
		rdv_effects_clear(&out);
	}
	assert_true(rdv_lane_bytes(w.lane) / COUNT <= 72);
	uint64_t ready = 0;
	for (int step = 0; step < 66; step++) {
		world_pass(&w, 10000);
		for (int i = 0; i < 40; i++) {
			rdv_lane_tick(w.lane, w.now, &out);
			rdv_effects_clear(&out);
		}
		assert_true(account()->ready >= ready);
		ready = account()->ready;
	}
	assert_int_equal(ready, COUNT);
	rdv_effects_done(&out);
	memset(w.live, 0, sizeof w.live);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_message_is_delivered_and_acked_once),
		T(a_position_seen_before_counts_once),
		T(a_verdict_of_a_call_that_is_not_open_is_refused),
		T(a_failing_message_waits_its_back_off_and_dies_after_its_attempts),
		T(verdicts_lead_to_their_states_and_counts),
		T(only_charged_failures_advance_the_attempt_number),
		T(a_call_cut_off_by_the_drain_is_not_counted_against_a_limit_of_one),
		T(deferrals_have_their_own_limit),
		T(crashes_of_the_handler_have_their_own_limit),
		T(a_reject_is_a_charged_failure_of_the_letter),
		T(age_counts_from_the_first_delivery_and_is_judged_at_a_failure),
		T(on_exhausted_drop_drops_at_every_limit_but_not_what_was_rejected),
		T(a_message_over_a_lowered_limit_dies_at_its_next_due_without_a_call),
		T(a_rules_own_limit_judges_all_charged_failures),
		T(a_damaged_body_dies_without_an_attempt),
		T(a_named_delay_ignores_min_and_is_bounded_by_the_cap),
		T(a_long_delay_blocks_no_short_one),
		T(a_delayed_message_is_waiting_and_its_attempt_is_the_first),
		T(a_body_is_asked_for_one_second_before_it_is_due),
		T(within_a_run_only_the_monotonic_clock_counts),
		T(a_refund_gives_the_charge_back_and_leaves_the_due_time),
		T(two_charges_of_a_message_are_both_given_back),
		T(an_outage_charges_nobody),
		T(the_history_keeps_the_first_and_the_last_fifteen),
		T(no_work_is_offered_while_too_much_is_not_recorded),
		T(no_work_is_offered_when_an_outcome_is_not_recorded_for_two_seconds),
		T(a_paused_lane_stays_paused_over_a_restart),
		T(a_waiting_message_can_be_revoked),
		T(a_revoke_in_flight_loses_against_an_ack_and_wins_against_the_rest),
		T(a_call_that_is_taken_back_never_was),
		T(a_revoked_call_that_is_taken_back_dies_at_once),
		T(a_late_verdict_decides_while_the_message_waits),
		T(a_late_ack_frees_the_key_and_a_late_reject_in_a_storm_waits),
		T(a_letter_is_asked_for_only_when_dying_is_durable_and_done_after_it_is_stored),
		T(each_letter_waits_for_its_own_record),
		T(the_oldest_unfinished_is_as_old_as_its_publishing),
		T(a_million_delayed_messages_fit_and_come_in_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
