/* test_target_outage.c - the rule's rows from kinds to HALF, each test named after its row. */
#include "target_world.h"

static void kinds_infra_app_and_wiring_trip_others_do_not(void **state)
{
	static const struct {
		enum rdv_kind kind;
		bool trips;
	} rows[] = {
		{RDV_KIND_INFRA, true}, {RDV_KIND_APP, true}, {RDV_KIND_WIRING, true},
		{RDV_KIND_MSG, false},  {RDV_KIND_OK, false}, {RDV_KIND_NONE, false},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct world w = world();
		for (int k = 0; k < 25 && breaker_of(&w) == RDV_UP; k++)
			(void)first(&w, rows[i].kind);
		assert_int_equal(breaker_of(&w), rows[i].trips ? RDV_DOWN : RDV_UP);
		world_done(&w);
	}
}

static void evidence_app_failures_of_retries_are_none(void **state)
{
	struct world w = world();

	for (int i = 0; i < 300; i++) {
		(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_APP, 0);
		pass(&w, 200);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void evidence_infra_of_any_attempt_counts(void **state)
{
	struct world w = world();
	struct rdv_booking b = {.went_down = false};

	for (int i = 0; i < 20 && !b.went_down; i++) {
		b = call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_INFRA, 0);
		pass(&w, 100);
	}
	assert_true(b.went_down);
	world_done(&w);
}

static void evidence_a_suspect_is_never(void **state)
{
	struct world w = world();
	struct open_call c;

	for (int i = 0; i < 200; i++) {
		assert_true(take(&w, FIRST, &c));
		assert_true(end_with(&w, &c, verdict_of(RDV_KIND_INFRA), true).charged);
		pass(&w, 300);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

/* pitfall: poison and outage look the same: four messages that fail for ever are poison, and charged each time */
static void evidence_fewer_than_five_messages_are_no_outage(void **state)
{
	struct world w = world();

	for (int i = 0; i < 2000; i++) {
		assert_true(call(&w, RDV_CLASS_FIRST, RDV_KIND_INFRA, 1 + i % 4).charged);
		pass(&w, 50);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	assert_true(call(&w, RDV_CLASS_FIRST, RDV_KIND_INFRA, 99).went_down);
	world_done(&w);
}

static void evidence_a_message_counts_once_in_the_window(void **state)
{
	struct world w = world();

	for (int i = 0; i < 80; i++) { /* four in five outcomes are bad, but 8 messages of 24 */
		if (i % 5 == 0)
			(void)first(&w, RDV_KIND_OK);
		else
			(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_INFRA, 1000 + i % 8);
		pass(&w, 100);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void bad_rejects_are_neither_ok_nor_bad(void **state)
{
	struct world w = world();

	many(&w, 17, RDV_KIND_INFRA);
	many(&w, 100, RDV_KIND_MSG);
	many(&w, 2, RDV_KIND_INFRA);
	assert_int_equal(breaker_of(&w), RDV_UP);
	many(&w, 100, RDV_KIND_MSG);
	assert_true(first(&w, RDV_KIND_INFRA).went_down); /* the twentieth */
	world_done(&w);
}

static void down_when_eighteen_of_the_last_twenty_are_bad(void **state)
{
	struct world w = world();

	many(&w, 5000, RDV_KIND_OK);   /* so that half of the window is far away */
	for (int i = 0; i < 40; i++) { /* never more than 17 of 20 */
		many(&w, 17, RDV_KIND_APP);
		many(&w, 3, RDV_KIND_OK);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	many(&w, 20, RDV_KIND_OK);
	many(&w, 10, RDV_KIND_APP);
	many(&w, 2, RDV_KIND_OK);
	many(&w, 7, RDV_KIND_APP);
	assert_int_equal(breaker_of(&w), RDV_UP);
	assert_true(first(&w, RDV_KIND_APP).went_down);
	world_done(&w);
}

/* pitfall: downstream outage: the stream stops after some twenty calls instead of flowing into the dead letters */
static void down_costs_some_twenty_calls_at_any_rate(void **state)
{
	static const int rates[] = {10, 100, 1000, 20000};

	for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
		struct world w = world();
		int calls;
		healthy(&w, 15000, rates[i]);
		(void)break_down(&w, RDV_KIND_INFRA, &calls);
		assert_in_range(calls, 18, 20);
		world_done(&w);
	}
}

static void down_when_half_of_twenty_in_the_window_are_bad(void **state)
{
	struct world w = world();

	for (int i = 0; i < 9; i++) {
		(void)first(&w, RDV_KIND_APP);
		(void)first(&w, RDV_KIND_OK);
	}
	(void)first(&w, RDV_KIND_OK);
	assert_int_equal(breaker_of(&w), RDV_UP);
	assert_true(first(&w, RDV_KIND_APP).went_down); /* 10 of 20 */
	world_done(&w);
}

static void down_not_when_the_bad_half_left_the_window(void **state)
{
	struct world w = world();

	for (int i = 0; i < 19; i++)
		(void)first(&w, i % 2 ? RDV_KIND_OK : RDV_KIND_APP);
	pass(&w, 10000);
	for (int i = 0; i < 19; i++)
		(void)first(&w, i % 2 ? RDV_KIND_OK : RDV_KIND_APP);
	assert_int_equal(breaker_of(&w), RDV_UP);
	pass(&w, 10000);
	many(&w, 40, RDV_KIND_OK);
	for (int i = 0; i < 2000; i++) /* and not at 49 % */
		(void)first(&w, i % 2 == 0 || i % 100 == 99 ? RDV_KIND_OK : RDV_KIND_APP);
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void down_after_five_messages_in_a_row_and_thirty_seconds_without_ok(void **state)
{
	static const struct {
		bool ok_before;
		int64_t gap;
		int messages;
		bool trips;
	} rows[] = {
		{true, 6100, 5, true},   /* the fifth comes 30.5 s after the last ok */
		{true, 5900, 5, false},  /* 29.5 s */
		{false, 7600, 5, true},  /* without an ok: 30.4 s after the first bad one */
		{false, 7400, 5, false}, /* 29.6 s */
		{true, 6100, 4, false},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct world w = world();
		struct rdv_booking b = {.went_down = false};
		if (rows[i].ok_before) {
			(void)first(&w, RDV_KIND_OK);
			pass(&w, rows[i].gap);
		}
		for (int k = 0; k < 5; k++) {
			b = call(&w, RDV_CLASS_FIRST, RDV_KIND_INFRA, 100 + (uint64_t)(k % rows[i].messages));
			pass(&w, rows[i].gap);
		}
		assert_int_equal(b.went_down, rows[i].trips);
		world_done(&w);
	}
}

static void down_row_is_ended_by_an_ok_of_any_attempt(void **state)
{
	struct world w = world();

	for (int i = 0; i < 16; i++) {
		(void)first(&w, RDV_KIND_INFRA);
		pass(&w, 8000);
		if (i % 4 == 3)
			(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_OK, 0);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	pass(&w, 31000);
	(void)first(&w, RDV_KIND_INFRA); /* the first of a new row, long after the last ok */
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void down_limits_count_as_configured(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;
	int calls;

	p.breaker.min_calls = 5;
	w = world_with(p);
	(void)break_down(&w, RDV_KIND_APP, &calls);
	assert_int_equal(calls, 5);
	world_done(&w);
	p.breaker.min_calls = 300;
	w = world_with(p);
	(void)break_down(&w, RDV_KIND_APP, &calls);
	assert_int_equal(calls, 300);
	world_done(&w);
	p.breaker.min_calls = 20;
	p.breaker.ratio = 0.8;
	w = world_with(p);
	for (int i = 0; i < 500; i++) /* 75 % */
		(void)first(&w, i % 4 ? RDV_KIND_APP : RDV_KIND_OK);
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
	p.breaker.ratio = 0.5;
	p.breaker.window_ms = 100000;
	w = world_with(p);
	for (int i = 0; i < 19; i++) {
		(void)first(&w, i % 2 ? RDV_KIND_OK : RDV_KIND_APP);
		pass(&w, 4000);
	}
	assert_true(first(&w, RDV_KIND_APP).went_down); /* all in its 100 s */
	world_done(&w);
}

static void down_never_with_the_breaker_off(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;

	p.breaker.on = false;
	w = world_with(p);
	for (int i = 0; i < 1000; i++) {
		assert_true(first(&w, RDV_KIND_INFRA).charged);
		pass(&w, 100);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void charged_iff_the_target_was_up_when_it_failed(void **state)
{
	struct world w = world();
	struct open_call flying;
	struct rdv_booking b;

	assert_true(take(&w, FIRST, &flying));
	b = first(&w, RDV_KIND_INFRA);
	assert_true(b.charged && !b.outage);
	b = break_down(&w, RDV_KIND_INFRA, NULL);
	assert_true(!b.charged && b.outage); /* the one that trips is among those given back */
	b = end(&w, &flying, RDV_KIND_INFRA);
	assert_true(!b.charged && b.outage && !b.went_down);
	b = probe(&w, RDV_KIND_APP);
	assert_true(!b.charged && b.outage);
	b = probe(&w, RDV_KIND_OK);
	assert_true(b.went_half && !b.charged && !b.outage);
	pass(&w, 1000);
	b = first(&w, RDV_KIND_APP);
	assert_true(!b.charged && b.outage); /* HALF */
	world_done(&w);
}

static void charged_always_for_a_reject(void **state)
{
	struct world w = world();
	struct rdv_booking b = first(&w, RDV_KIND_MSG);

	assert_true(b.charged && !b.outage);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	b = probe(&w, RDV_KIND_MSG);
	assert_true(b.charged && !b.outage);
	assert_int_equal(breaker_of(&w), RDV_DOWN);
	world_done(&w);
}

/* pitfall: worker killed by a deploy: neither a crash nor a shutdown nor a deferral is charged as a failure */
static void charged_never_for_crash_shutdown_and_ok(void **state)
{
	struct world w = world();
	struct open_call c;
	struct rdv_verdict crash = verdict_of(RDV_KIND_INFRA);
	struct rdv_booking b;

	crash.cause = RDV_CAUSE_CRASH;
	assert_true(take(&w, FIRST, &c));
	b = end_with(&w, &c, crash, false);
	assert_true(!b.charged && !b.outage);
	b = first(&w, RDV_KIND_NONE);
	assert_true(!b.charged && !b.outage);
	b = first(&w, RDV_KIND_OK);
	assert_true(!b.charged && !b.outage);
	world_done(&w);
}

static void charged_refund_begins_after_the_last_fine_slice(void **state)
{
	struct world w = world();
	int64_t began = w.now.mono.ms;
	struct rdv_booking b;

	healthy(&w, 5000, 100); /* slices 0..4 fine */
	for (int i = 0; i < 7; i++) {
		many(&w, 2, RDV_KIND_APP); /* slices 5 and 6: two in three bad */
		(void)first(&w, RDV_KIND_OK);
		pass(&w, 250);
	}
	b = break_down(&w, RDV_KIND_APP, NULL);
	assert_int_equal(b.refund_since.ms, began + 5000);
	world_done(&w);
}

static void charged_refund_takes_the_window_when_no_slice_was_fine(void **state)
{
	struct world w = world();
	struct rdv_booking b = {.went_down = false};
	int64_t began = w.now.mono.ms;

	for (int i = 0; !b.went_down; i++) { /* 40 % bad for a minute, then more */
		b = first(&w, i % 5 < (w.now.mono.ms - began < 60000 ? 2 : 4) ? RDV_KIND_APP : RDV_KIND_OK);
		pass(&w, 100);
	}
	assert_true(w.now.mono.ms - b.refund_since.ms > 9000);
	assert_true(w.now.mono.ms - b.refund_since.ms <= 10100);
	world_done(&w);
}

static void charged_refund_covers_an_outage_that_begins_inside_a_fine_slice(void **state)
{
	struct world w = world();
	int64_t began;
	struct rdv_booking b;

	healthy(&w, 5000, 1000);
	healthy(&w, 900, 1000);
	pass(&w, 90);
	began = w.now.mono.ms;
	many(&w, 10, RDV_KIND_INFRA); /* the slice is 98.9 % ok */
	pass(&w, 20);
	b = break_down(&w, RDV_KIND_INFRA, NULL);
	assert_true(b.refund_since.ms <= began);
	assert_true(b.refund_since.ms >= began - 1000);
	world_done(&w);
}

static void charged_refund_of_a_slow_outage_reaches_its_first_failure(void **state)
{
	struct world w = world();
	struct rdv_booking b = {.went_down = false};
	int64_t began;

	(void)first(&w, RDV_KIND_OK);
	pass(&w, 8000);
	began = w.now.mono.ms;
	for (int i = 0; i < 5; i++) {
		b = first(&w, RDV_KIND_INFRA);
		pass(&w, 8000);
	}
	assert_true(b.went_down);
	assert_int_equal(b.refund_since.ms, began);
	world_done(&w);
}

/* pitfall: breaker opens, fast failures burn attempts: down means no calls but one probe, and nothing is charged */
static void down_state_probes_after_one_second_then_doubles_to_five(void **state)
{
	static const int64_t waits[] = {1000, 2000, 4000, 5000, 5000, 5000};
	struct world w = world();
	struct open_call c, other;

	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
		struct rdv_work work = work_of(FIRST | RETRY | REPLAY);
		struct rdv_mono wake;
		assert_false(take_work(&w, work, &c, &wake));
		assert_int_equal(wake.ms - w.now.mono.ms, waits[i]);
		assert_int_equal(status_of(&w).probe_at.ms, w.now.wall.ms + waits[i]);
		pass(&w, waits[i] - 1);
		assert_false(take_work(&w, work, &c, &wake));
		pass(&w, 1);
		assert_true(take_work(&w, work, &c, &wake));
		assert_true(c.grant.probe);
		assert_false(take_work(&w, work, &other, &wake)); /* one at a time */
		assert_true(wake.ms == RDV_NEVER);
		assert_int_equal(status_of(&w).probe_at.ms, 0);
		pass(&w, 30);
		assert_true(end(&w, &c, RDV_KIND_INFRA).outage);
	}
	world_done(&w);
}

static void down_state_open_and_max_open_count_as_configured(void **state)
{
	static const int64_t waits[] = {200, 400, 800, 900, 900};
	struct rdv_target_policy p = default_policy();
	struct world w;
	struct open_call c;
	struct rdv_mono wake;

	p.breaker.open_ms = 200;
	p.breaker.max_open_ms = 900;
	w = world_with(p);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
		assert_false(take_work(&w, work_of(FIRST), &c, &wake));
		assert_int_equal(wake.ms - w.now.mono.ms, waits[i]);
		(void)probe(&w, RDV_KIND_INFRA);
	}
	world_done(&w);
}

static void down_state_probes_rotate(void **state)
{
	struct world w = world();
	struct open_call c;
	uint64_t message = 0;

	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	for (int i = 0; i < 4; i++) {
		pass(&w, 5000);
		assert_true(take(&w, FIRST, &c));
		assert_int_equal(c.grant.avoid_message, message);
		assert_int_equal(c.grant.avoid_fingerprint, message ? message + 1000000 : 0);
		(void)end(&w, &c, RDV_KIND_INFRA);
		message = c.message;
	}
	world_done(&w);
}

static void down_state_a_cancelled_or_cut_off_probe_is_sent_again(void **state)
{
	struct world w = world();
	struct open_call c;

	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	pass(&w, 1000);
	assert_true(take(&w, RETRY, &c));
	rdv_target_cancel(w.t, w.now, &c.grant);
	assert_int_equal(status_of(&w).in_flight, 0);
	assert_true(take(&w, FIRST, &c));
	(void)end(&w, &c, RDV_KIND_NONE);
	assert_false(take(&w, FIRST, &c));
	pass(&w, 1000);
	assert_true(take(&w, FIRST, &c));
	(void)end(&w, &c, RDV_KIND_MSG); /* says nothing of the target: the same wait again */
	pass(&w, 999);
	assert_false(take(&w, FIRST, &c));
	pass(&w, 1);
	assert_true(take(&w, FIRST, &c));
	(void)end(&w, &c, RDV_KIND_OK);
	assert_int_equal(breaker_of(&w), RDV_HALF);
	world_done(&w);
}

static void down_state_an_ok_of_an_older_call_opens_nothing(void **state)
{
	struct world w = world();
	struct open_call old;

	assert_true(take(&w, FIRST, &old));
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	pass(&w, 5);
	(void)end(&w, &old, RDV_KIND_OK);
	assert_int_equal(breaker_of(&w), RDV_DOWN);
	assert_true(probe(&w, RDV_KIND_OK).went_half);
	world_done(&w);
}

static void down_state_probes_need_no_budget(void **state)
{
	struct world w = world();
	struct open_call c;

	for (int i = 0; i < 10; i++)
		(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_APP, 5); /* the ten tokens */
	assert_false(take(&w, RETRY, &c));
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	w.policy.budget.per_second = 0;
	rdv_target_reload(w.t, &w.policy, w.now);
	for (int i = 0; i < 20; i++) {
		pass(&w, 5000);
		assert_true(take(&w, RETRY, &c));
		(void)end(&w, &c, RDV_KIND_INFRA);
	}
	world_done(&w);
}

static void down_state_probes_are_charged_again_after_patience(void **state)
{
	struct world w = world();
	struct open_call c;
	struct rdv_booking b;

	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	pass(&w, 6 * 3600000 - 1);
	assert_true(take(&w, FIRST, &c));
	b = end(&w, &c, RDV_KIND_INFRA);
	assert_true(b.outage && !b.charged);
	pass(&w, 5000);
	assert_true(take(&w, FIRST, &c));
	b = end(&w, &c, RDV_KIND_INFRA);
	assert_true(b.charged && !b.outage);
	(void)probe(&w, RDV_KIND_OK); /* an ok: patience begins anew */
	pass(&w, 1100);
	many(&w, 1, RDV_KIND_OK);
	for (int i = 0; i < 5; i++) {
		pass(&w, 1000);
		b = first(&w, RDV_KIND_INFRA);
		assert_true(b.outage && !b.charged);
	}
	world_done(&w);
}

/* How many calls HALF lets through in the next second, all ending as told. */
static int second_of(struct world *w, enum rdv_kind kind)
{
	struct open_call c;
	int calls = 0;

	for (int ms = 0; ms < 1000; ms++) {
		while (breaker_of(w) == RDV_HALF && take(w, FIRST, &c)) {
			(void)end(w, &c, kind);
			calls++;
		}
		pass(w, 1);
	}
	return calls;
}

static void half_starts_at_a_fifth_doubles_and_is_up_at_twice(void **state)
{
	struct world w = world();
	int sent[4];
	struct open_call c;

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	assert_in_range((int)status_of(&w).throughput, 495, 505);
	assert_true(probe(&w, RDV_KIND_OK).went_half);
	for (int s = 0; s < 4; s++)
		sent[s] = second_of(&w, RDV_KIND_OK);
	assert_in_range(sent[0], 95, 112);
	assert_in_range(sent[1], 190, 225);
	assert_in_range(sent[2], 380, 445);
	assert_in_range(sent[3], 760, 890);
	(void)take(&w, FIRST, &c);
	assert_int_equal(breaker_of(&w), RDV_UP); /* 1,600/s would be over twice 500 */
	world_done(&w);
}

static void half_halves_when_a_slice_is_less_than_ninety_percent_ok(void **state)
{
	struct world w = world();
	int before, after;

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	before = second_of(&w, RDV_KIND_OK);
	for (int i = 0; i < 10; i++) { /* 20 % bad */
		(void)first(&w, i % 5 ? RDV_KIND_OK : RDV_KIND_APP);
		pass(&w, 90);
	}
	pass(&w, 100);
	after = second_of(&w, RDV_KIND_OK);
	assert_in_range(after, before * 8 / 10, before * 12 / 10); /* doubled, then halved */
	assert_int_equal(breaker_of(&w), RDV_HALF);
	world_done(&w);
}

static void half_goes_down_when_half_of_five_are_bad_and_waits_longer(void **state)
{
	struct world w = world();
	struct open_call c;
	struct rdv_mono wake;

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	pass(&w, 100);
	many(&w, 3, RDV_KIND_OK);
	many(&w, 3, RDV_KIND_APP);
	assert_int_equal(breaker_of(&w), RDV_HALF); /* the slice is not over */
	pass(&w, 900);
	assert_false(take_work(&w, work_of(FIRST), &c, &wake));
	assert_int_equal(breaker_of(&w), RDV_DOWN);
	assert_int_equal(wake.ms - w.now.mono.ms, 2000);
	assert_true(status_of(&w).throughput > 490); /* of before the outage, still */
	world_done(&w);
}

static void half_does_not_wait_for_the_slice_when_all_fails(void **state)
{
	struct world w = world();

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	assert_in_range(second_of(&w, RDV_KIND_INFRA), 4, 6);
	assert_int_equal(breaker_of(&w), RDV_DOWN);
	world_done(&w);
}

static void half_is_up_when_nothing_is_left(void **state)
{
	struct world w = world();

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	for (int i = 0; i < 3; i++) {
		pass(&w, 1000);
		(void)rdv_target_tick(w.t, w.now);
	}
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void half_is_not_up_while_the_work_left_is_only_held_back(void **state)
{
	struct world w = world();
	struct open_call c;
	struct rdv_verdict later = verdict_of(RDV_KIND_INFRA);
	struct rdv_mono wake;

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	pass(&w, 100);
	later.target_hold_ms = 5000;
	assert_true(take(&w, FIRST, &c));
	(void)end_with(&w, &c, later, false);
	assert_false(take_work(&w, work_of(FIRST), &c, &wake)); /* and is not asked again before */
	assert_int_equal(wake.ms - w.now.mono.ms, 5000);
	for (int s = 0; s < 4; s++) {
		pass(&w, 1100);
		(void)rdv_target_tick(w.t, w.now);
		assert_int_equal(breaker_of(&w), RDV_HALF);
	}
	world_done(&w);
}

/* The heads of two keys fail again and again, and everything else waits behind them. */
static void half_is_up_when_only_messages_that_failed_before_are_left(void **state)
{
	struct world w = world();
	struct open_call c;
	bool charged = false;

	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	for (int i = 0; i < 50 && !charged; i++) {
		pass(&w, 200);
		if (!take(&w, RETRY, &c))
			continue;
		c.message = 900000 + (uint64_t)(i % 2);
		charged = end(&w, &c, RDV_KIND_APP).charged;
	}
	assert_true(charged);
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void half_configured_rate_and_concurrency_always_hold(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;
	struct open_call c;
	int out = 0;

	p.concurrency = 3;
	p.rate = 600;
	w = world_with(p);
	healthy(&w, 12000, 500);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	pass(&w, 500);
	while (take(&w, FIRST, &c))
		out++;
	assert_int_equal(out, 3);
	world_done(&w);
}

static void half_starts_at_one_a_second_when_nothing_is_known(void **state)
{
	struct world w = world();
	int sent;

	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	sent = second_of(&w, RDV_KIND_OK);
	assert_in_range(sent, 1, 2);
	assert_int_equal(breaker_of(&w), RDV_HALF);
	for (int s = 1; s < 4; s++)
		sent = second_of(&w, RDV_KIND_OK);
	assert_in_range(sent, 8, 10);
	(void)second_of(&w, RDV_KIND_OK);
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

static void half_starts_with_the_throughput_remembered_over_a_restart(void **state)
{
	struct world w = world();

	rdv_target_backlog_opened(w.t, w.now, 400);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	assert_int_equal((int)rdv_target_throughput(w.t), 400);
	(void)probe(&w, RDV_KIND_OK);
	assert_in_range(second_of(&w, RDV_KIND_OK), 76, 90);
	world_done(&w);
}

static void up_again_forgets_the_outage(void **state)
{
	struct world w = world();
	struct open_call hung[30];

	for (int i = 0; i < 30; i++)
		assert_true(take(&w, FIRST, &hung[i]));
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	(void)probe(&w, RDV_KIND_OK);
	for (int s = 0; s < 6; s++)
		(void)second_of(&w, RDV_KIND_OK);
	assert_int_equal(breaker_of(&w), RDV_UP);
	pass(&w, 1);
	for (int i = 0; i < 30; i++) /* they hung through the outage: their timeouts are no new one */
		assert_false(end(&w, &hung[i], RDV_KIND_INFRA).went_down);
	many(&w, 17, RDV_KIND_INFRA);
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

/* The whole rule in one scene: 500/s, two seconds' worth of retries per message at most, the handler gone for 40 s. */
static void outage_of_forty_seconds_costs_few_calls_and_no_charges(void **state)
{
	struct world w = world();
	struct open_call flying[64];
	int flying_count = 0, calls_in_outage = 0, charged = 0;
	int64_t start = w.now.mono.ms, given_back_from = RDV_NEVER, charges[200];

	for (int64_t ms = 0; ms < 70000; ms++) {
		bool out = ms >= 15000 && ms < 55000;
		struct rdv_booking b;
		while (flying_count > 0 && w.now.mono.ms - flying[0].started.ms >= 20) { /* each call takes 20 ms */
			b = end(&w, &flying[0], out ? RDV_KIND_INFRA : RDV_KIND_OK);
			if (b.charged)
				charges[charged++] = w.now.mono.ms;
			if (b.went_down)
				given_back_from = b.refund_since.ms;
			memmove(flying, flying + 1, (size_t)--flying_count * sizeof flying[0]);
		}
		if (ms % 2 == 0 && take(&w, FIRST, &flying[flying_count])) {
			flying_count++;
			calls_in_outage += out;
		}
		pass(&w, 1);
	}
	assert_in_range(charged, 15, 25);
	for (int i = 0; i < charged; i++)
		assert_true(charges[i] >= given_back_from); /* all of them are given back */
	assert_true(given_back_from >= start + 14000);
	assert_in_range(calls_in_outage, 20, 60);
	assert_int_equal(breaker_of(&w), RDV_UP);
	while (flying_count > 0)
		(void)end(&w, &flying[--flying_count], RDV_KIND_OK);
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds_infra_app_and_wiring_trip_others_do_not),
		cmocka_unit_test(evidence_app_failures_of_retries_are_none),
		cmocka_unit_test(evidence_infra_of_any_attempt_counts),
		cmocka_unit_test(evidence_a_suspect_is_never),
		cmocka_unit_test(evidence_fewer_than_five_messages_are_no_outage),
		cmocka_unit_test(evidence_a_message_counts_once_in_the_window),
		cmocka_unit_test(bad_rejects_are_neither_ok_nor_bad),
		cmocka_unit_test(down_when_eighteen_of_the_last_twenty_are_bad),
		cmocka_unit_test(down_costs_some_twenty_calls_at_any_rate),
		cmocka_unit_test(down_when_half_of_twenty_in_the_window_are_bad),
		cmocka_unit_test(down_not_when_the_bad_half_left_the_window),
		cmocka_unit_test(down_after_five_messages_in_a_row_and_thirty_seconds_without_ok),
		cmocka_unit_test(down_row_is_ended_by_an_ok_of_any_attempt),
		cmocka_unit_test(down_limits_count_as_configured),
		cmocka_unit_test(down_never_with_the_breaker_off),
		cmocka_unit_test(charged_iff_the_target_was_up_when_it_failed),
		cmocka_unit_test(charged_always_for_a_reject),
		cmocka_unit_test(charged_never_for_crash_shutdown_and_ok),
		cmocka_unit_test(charged_refund_begins_after_the_last_fine_slice),
		cmocka_unit_test(charged_refund_takes_the_window_when_no_slice_was_fine),
		cmocka_unit_test(charged_refund_covers_an_outage_that_begins_inside_a_fine_slice),
		cmocka_unit_test(charged_refund_of_a_slow_outage_reaches_its_first_failure),
		cmocka_unit_test(down_state_probes_after_one_second_then_doubles_to_five),
		cmocka_unit_test(down_state_open_and_max_open_count_as_configured),
		cmocka_unit_test(down_state_probes_rotate),
		cmocka_unit_test(down_state_a_cancelled_or_cut_off_probe_is_sent_again),
		cmocka_unit_test(down_state_an_ok_of_an_older_call_opens_nothing),
		cmocka_unit_test(down_state_probes_need_no_budget),
		cmocka_unit_test(down_state_probes_are_charged_again_after_patience),
		cmocka_unit_test(half_starts_at_a_fifth_doubles_and_is_up_at_twice),
		cmocka_unit_test(half_halves_when_a_slice_is_less_than_ninety_percent_ok),
		cmocka_unit_test(half_goes_down_when_half_of_five_are_bad_and_waits_longer),
		cmocka_unit_test(half_does_not_wait_for_the_slice_when_all_fails),
		cmocka_unit_test(half_is_up_when_nothing_is_left),
		cmocka_unit_test(half_is_not_up_while_the_work_left_is_only_held_back),
		cmocka_unit_test(half_is_up_when_only_messages_that_failed_before_are_left),
		cmocka_unit_test(half_configured_rate_and_concurrency_always_hold),
		cmocka_unit_test(half_starts_at_one_a_second_when_nothing_is_known),
		cmocka_unit_test(half_starts_with_the_throughput_remembered_over_a_restart),
		cmocka_unit_test(up_again_forgets_the_outage),
		cmocka_unit_test(outage_of_forty_seconds_costs_few_calls_and_no_charges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
