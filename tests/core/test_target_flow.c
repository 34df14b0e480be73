/* test_target_flow.c - the rule's other rows: suspects, storm, family, Retry-After, budget, shares, ramp; and a long
 * random run in which every invariant is asked after every step. */
#include "base/random.h"
#include "target_world.h"

/* ---- suspect ---- */

static void suspect_needs_ten_others_that_were_ninety_percent_ok(void **state)
{
	static const struct {
		int ok, bad;
		int64_t ago;
		bool suspicious;
	} rows[] = {
		{10, 0, 0, true},  {9, 0, 0, false},       {9, 1, 0, true},      {18, 2, 0, true},
		{17, 3, 0, false}, {100, 0, 11000, false}, {100, 0, 8500, true}, {0, 12, 0, false},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct world w = world();
		struct rdv_booking b;
		many(&w, rows[i].ok, RDV_KIND_OK);
		many(&w, rows[i].bad, RDV_KIND_APP);
		pass(&w, rows[i].ago);
		b = first(&w, RDV_KIND_APP);
		assert_int_equal(b.suspicious, rows[i].suspicious);
		world_done(&w);
	}
}

static void suspect_is_not_judged_by_its_own_failures(void **state)
{
	struct world w = world();

	many(&w, 9, RDV_KIND_OK);
	for (int i = 0; i < 5; i++) { /* nine others are too few, however often it fails itself */
		assert_false(call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_APP, 77).suspicious);
		pass(&w, 10);
	}
	(void)first(&w, RDV_KIND_OK);
	assert_true(call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_APP, 77).suspicious);
	world_done(&w);
}

static void suspect_only_by_charged_failures(void **state)
{
	struct world w = world();
	struct rdv_booking b;

	healthy(&w, 5000, 500);
	b = break_down(&w, RDV_KIND_INFRA, NULL);
	assert_false(b.suspicious);
	assert_false(probe(&w, RDV_KIND_INFRA).suspicious);
	world_done(&w);
}

static void suspect_one_in_flight_beside_other_work(void **state)
{
	struct world w = world();
	struct open_call c, other = {.message = 0};
	int suspects = 0;

	for (int i = 0; i < 40; i++) {
		assert_true(take(&w, FIRST | RETRY | SUSPECT, &c));
		if (c.grant.class == RDV_CLASS_SUSPECT) {
			suspects++;
			other = c;
		}
	}
	assert_int_equal(suspects, 1);
	(void)end(&w, &other, RDV_KIND_APP);
	for (int i = 0; i < 20; i++) {
		assert_true(take(&w, FIRST | SUSPECT, &c));
		suspects += c.grant.class == RDV_CLASS_SUSPECT;
	}
	assert_int_equal(suspects, 2);
	rdv_target_free(w.t);
}

static void suspect_goes_before_it_is_ten_seconds_past_due(void **state)
{
	struct world w = world();
	struct rdv_work work = work_of(FIRST | SUSPECT);
	struct rdv_mono wake;
	struct open_call c;

	work.suspect_overdue_ms = 0;
	for (int i = 0; i < 3; i++)
		assert_true(take_work(&w, work, &c, &wake));
	work.classes = SUSPECT;
	work.suspect_overdue_ms = 2000;
	assert_false(take_work(&w, work, &c, &wake)); /* one hangs already */
	assert_true(wake.ms <= w.now.mono.ms + 8000);
	work.suspect_overdue_ms = 9500;
	work.classes = FIRST | SUSPECT;
	assert_true(take_work(&w, work, &c, &wake));
	assert_int_equal(c.grant.class, RDV_CLASS_SUSPECT); /* at once, before the others' turn */
	rdv_target_free(w.t);
}

static void suspect_overdue_goes_without_a_budget_token(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;
	struct rdv_work work = work_of(SUSPECT);
	struct rdv_mono wake;
	struct open_call c;

	p.budget.per_second = 0;
	w = world_with(p);
	for (int i = 0; i < 10; i++)
		(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_APP, 5);
	work.suspect_overdue_ms = 100;
	assert_false(take_work(&w, work, &c, &wake));
	work.suspect_overdue_ms = 9000;
	assert_true(take_work(&w, work, &c, &wake));
	(void)end(&w, &c, RDV_KIND_APP);
	world_done(&w);
}

static void suspect_flood_leaves_permits_to_others(void **state)
{
	struct world w = world();
	struct rdv_work work = work_of(FIRST | SUSPECT);
	struct rdv_mono wake;
	struct open_call c;
	int suspects = 0;

	work.suspect_overdue_ms = 60000;
	for (int i = 0; i < 64; i++) {
		assert_true(take_work(&w, work, &c, &wake));
		suspects += c.grant.class == RDV_CLASS_SUSPECT;
	}
	assert_int_equal(suspects, 16);
	rdv_target_free(w.t);
}

/* One poison message, retried to its end among healthy traffic: the breaker stays up, every failure is charged. */
static void suspect_poison_among_healthy_traffic_never_trips(void **state)
{
	struct world w = world();
	int suspicion = 0;

	for (int i = 0; i < 16; i++) {
		struct rdv_booking b;
		struct open_call c;
		healthy(&w, 1000, 50);
		assert_true(take(&w, suspicion >= 2 ? SUSPECT : i ? RETRY : FIRST, &c));
		c.message = 1u << 30;
		b = end(&w, &c, RDV_KIND_INFRA);
		assert_true(b.charged && b.suspicious);
		suspicion++;
		assert_int_equal(breaker_of(&w), RDV_UP);
	}
	world_done(&w);
}

/* ---- storm ---- */

/* An hour's normal life of the route: 200 messages, some rejected. */
static void normal_hour(struct world *w, int rejects)
{
	for (int i = 0; i < 200; i++) {
		(void)first(w, i < rejects ? RDV_KIND_MSG : RDV_KIND_OK);
		pass(w, 5000);
	}
	pass(w, 70000);
}

static struct rdv_booking rejects_until_storm(struct world *w, int *count)
{
	struct rdv_booking b = {.storm_began = false};

	for (*count = 0; *count < 200 && !b.storm_began; ++*count)
		b = first(w, RDV_KIND_MSG);
	return b;
}

static void storm_begins_when_half_of_fifty_are_rejected_after_a_healthy_hour(void **state)
{
	static const struct {
		int rejects_before; /* of 200 in the hour before */
		bool healthy_before, begins;
	} rows[] = {{0, true, true}, {9, true, true}, {10, true, false}, {0, false, false}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct world w = world();
		int count;
		struct rdv_booking b;
		if (rows[i].healthy_before)
			normal_hour(&w, rows[i].rejects_before);
		b = rejects_until_storm(&w, &count);
		assert_int_equal(b.storm_began, rows[i].begins);
		assert_int_equal(rdv_target_storm_held(w.t, w.route), rows[i].begins);
		if (rows[i].begins) {
			assert_int_equal(count, 50);
			assert_true(b.take_as_outage_msg && b.outage && !b.charged);
		}
		assert_int_equal(breaker_of(&w), RDV_UP);
		world_done(&w);
	}
}

static void storm_needs_half_and_sixty_seconds(void **state)
{
	struct world w = world();

	normal_hour(&w, 0);
	for (int i = 0; i < 300; i++) /* 49 % */
		assert_false(first(&w, i % 100 < 51 ? RDV_KIND_OK : RDV_KIND_MSG).storm_began);
	world_done(&w);
	w = world();
	normal_hour(&w, 0);
	for (int i = 0; i < 49; i++) /* one in two seconds: 30 in any minute */
	{
		assert_false(first(&w, RDV_KIND_MSG).storm_began);
		pass(&w, 2000);
	}
	world_done(&w);
}

static bool take_storm(struct world *w, struct open_call *c, struct rdv_mono *wake)
{
	struct rdv_work work = work_of(0);

	work.storm_route = w->route;
	work.storm_classes = RETRY;
	return take_work(w, work, c, wake);
}

static void storm_holds_the_route_with_a_probe_every_five_seconds(void **state)
{
	struct world w = world();
	struct open_call c, other;
	struct rdv_mono wake, at;
	struct rdv_booking b;
	uint64_t last = 0;
	int count;

	normal_hour(&w, 0);
	(void)rejects_until_storm(&w, &count);
	for (int i = 0; i < 5; i++) {
		assert_false(rdv_target_storm_probe(w.t, w.route, w.now, &at));
		assert_int_equal(at.ms - w.now.mono.ms, 5000);
		assert_false(take_storm(&w, &c, &wake));
		assert_int_equal(wake.ms, at.ms);
		pass(&w, 5000);
		assert_true(rdv_target_storm_probe(w.t, w.route, w.now, &at));
		assert_true(take_storm(&w, &c, &wake));
		assert_true(c.grant.probe && c.grant.route == w.route && c.grant.class == RDV_CLASS_RETRY_DUE);
		assert_int_equal(c.grant.avoid_message, last); /* probes rotate */
		assert_false(take_storm(&w, &other, &wake));
		b = end(&w, &c, RDV_KIND_MSG);
		assert_true(b.take_as_outage_msg && !b.charged);
		last = c.message;
	}
	assert_true(take(&w, FIRST, &other)); /* other routes flow */
	(void)end(&w, &other, RDV_KIND_NONE);
	pass(&w, 5000);
	assert_true(take_storm(&w, &c, &wake));
	b = end(&w, &c, RDV_KIND_OK);
	assert_true(b.storm_ended);
	world_done(&w);
}

static void storm_ends_with_one_ok_of_a_new_call(void **state)
{
	struct world w = world();
	struct open_call old, c;
	struct rdv_mono wake;
	int count;

	normal_hour(&w, 0);
	assert_true(take(&w, FIRST, &old));
	(void)rejects_until_storm(&w, &count);
	pass(&w, 10);
	assert_false(end(&w, &old, RDV_KIND_OK).storm_ended); /* it began before */
	assert_true(rdv_target_storm_held(w.t, w.route));
	assert_int_equal(rdv_target_storm_changes(w.t), 1);
	pass(&w, 5000);
	assert_true(take_storm(&w, &c, &wake));
	assert_true(end(&w, &c, RDV_KIND_OK).storm_ended);
	assert_int_equal(rdv_target_storm_changes(w.t), 2);
	assert_false(rdv_target_storm_held(w.t, w.route));
	for (int i = 0; i < 48; i++)
		assert_true(first(&w, RDV_KIND_MSG).charged); /* counted afresh, with that ok */
	assert_true(first(&w, RDV_KIND_MSG).storm_began);     /* and what was normal is still known */
	world_done(&w);
}

static void storm_resume_takes_rejects_as_dead_for_an_hour(void **state)
{
	struct world w = world();
	int count;

	normal_hour(&w, 0);
	(void)rejects_until_storm(&w, &count);
	rdv_target_storm_resume(w.t, w.route, w.now);
	assert_int_equal(rdv_target_storm_changes(w.t), 2);
	assert_false(rdv_target_storm_held(w.t, w.route));
	for (int i = 0; i < 500; i++)
		assert_true(first(&w, RDV_KIND_MSG).charged);
	world_done(&w);
}

static void storm_dead_means_rejects_die(void **state)
{
	struct world w = world();
	struct rdv_route_policy dead = w.route_policy;

	dead.storm_hold = false;
	rdv_target_route_reload(w.t, w.route, &dead);
	normal_hour(&w, 0);
	for (int i = 0; i < 500; i++)
		assert_true(first(&w, RDV_KIND_MSG).charged);
	assert_false(rdv_target_storm_held(w.t, w.route));
	world_done(&w);
}

static void storm_probe_that_is_cancelled_or_cut_off_is_sent_again(void **state)
{
	struct world w = world();
	struct open_call c;
	struct rdv_mono wake;
	int count;

	normal_hour(&w, 0);
	(void)rejects_until_storm(&w, &count);
	pass(&w, 5000);
	assert_true(take_storm(&w, &c, &wake));
	rdv_target_cancel(w.t, w.now, &c.grant);
	assert_true(take_storm(&w, &c, &wake));
	c.grant.route = UINT32_MAX; /* a late canceller does not know */
	rdv_target_cancel(w.t, w.now, &c.grant);
	assert_true(take_storm(&w, &c, &wake));
	(void)end(&w, &c, RDV_KIND_NONE);
	pass(&w, 5000);
	assert_true(take_storm(&w, &c, &wake));
	(void)end(&w, &c, RDV_KIND_INFRA);
	world_done(&w);
}

static void storm_of_one_route_holds_no_other(void **state)
{
	struct world w = world();
	uint32_t other = rdv_target_join(w.t, &w.route_policy);
	int count;

	assert_int_not_equal(other, w.route);
	normal_hour(&w, 0);
	(void)rejects_until_storm(&w, &count);
	assert_true(rdv_target_storm_held(w.t, w.route));
	assert_false(rdv_target_storm_held(w.t, other));
	world_done(&w);
}

/* ---- family ---- */

static void family_is_one_fingerprint_on_enough_messages_within_the_time(void **state)
{
	static const struct {
		enum rdv_family_then then;
		bool hold, reject;
	} rows[] = {{RDV_FAMILY_ALERT, false, false}, {RDV_FAMILY_HOLD, true, false}, {RDV_FAMILY_REJECT, false, true}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct world w = world();
		struct rdv_booking b;
		w.route_policy.family.then = rows[i].then;
		rdv_target_route_reload(w.t, w.route, &w.route_policy);
		w.fingerprint = 4711;
		for (int k = 1; k < 50; k++) {
			many(&w, 4, RDV_KIND_OK); /* healthy otherwise */
			b = first(&w, RDV_KIND_APP);
			assert_false(b.family_alert || b.family_hold || b.family_reject);
			pass(&w, 1000);
		}
		b = first(&w, RDV_KIND_APP);
		assert_true(b.family_alert);
		assert_int_equal(b.family_hold, rows[i].hold);
		assert_int_equal(b.family_reject, rows[i].reject);
		b = first(&w, RDV_KIND_MSG);
		assert_false(b.family_alert); /* once */
		assert_int_equal(b.family_hold, rows[i].hold);
		w.fingerprint = 4712;
		b = first(&w, RDV_KIND_MSG);
		assert_false(b.family_hold || b.family_reject);
		world_done(&w);
	}
}

static void family_counts_distinct_messages_within_the_time_only(void **state)
{
	struct world w = world();
	struct rdv_booking b;

	w.fingerprint = 4711;
	for (int i = 0; i < 300; i++) { /* three messages, again and again */
		many(&w, 4, RDV_KIND_OK);
		b = call(&w, RDV_CLASS_FIRST, RDV_KIND_APP, 1 + i % 3);
		assert_false(b.family_alert);
		pass(&w, 50);
	}
	for (int i = 0; i < 200; i++) { /* different ones, but never fifty within a minute */
		many(&w, 4, RDV_KIND_OK);
		b = first(&w, RDV_KIND_APP);
		assert_false(b.family_alert);
		pass(&w, 1300);
	}
	world_done(&w);
}

static void family_is_found_among_many_other_failures_and_ends_by_itself(void **state)
{
	struct world w = world();
	struct rdv_booking b = {.family_alert = false};

	for (int i = 0; i < 60 && !b.family_alert; i++) {
		for (int k = 0; k < 10; k++) {
			w.fingerprint = 0;
			(void)first(&w, RDV_KIND_MSG);
			(void)first(&w, RDV_KIND_OK);
			(void)first(&w, RDV_KIND_OK);
		}
		w.fingerprint = 4711;
		b = first(&w, RDV_KIND_MSG);
		pass(&w, 500);
	}
	assert_true(b.family_alert);
	pass(&w, 61000);
	assert_false(first(&w, RDV_KIND_MSG).family_alert);
	for (int i = 0; i < 48; i++)
		assert_false(first(&w, RDV_KIND_MSG).family_alert);
	assert_true(first(&w, RDV_KIND_MSG).family_alert); /* a new burst, a new alert */
	world_done(&w);
}

static void family_large_counts_are_estimated_within_bounded_memory(void **state)
{
	struct world w = world();
	struct rdv_booking b = {.family_alert = false};
	int count = 0;

	w.route_policy.family.count = 10000;
	rdv_target_route_reload(w.t, w.route, &w.route_policy);
	w.fingerprint = 4711;
	for (; count < 40000 && !b.family_alert; count++) {
		(void)first(&w, RDV_KIND_OK);
		(void)first(&w, RDV_KIND_OK);
		b = first(&w, RDV_KIND_APP);
	}
	assert_in_range(count, 8000, 12500);
	world_done(&w);
}

static void family_is_not_judged_while_down(void **state)
{
	struct world w = world();

	w.fingerprint = 4711;
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	for (int i = 0; i < 100; i++)
		assert_false(probe(&w, RDV_KIND_INFRA).family_alert);
	world_done(&w);
}

/* ---- Retry-After ---- */

static void retry_after_holds_the_whole_target_at_most_five_minutes(void **state)
{
	static const struct {
		int64_t hold, wanted;
		bool breaker;
	} rows[] = {{3000, 3000, true},
		    {3000, 3000, false},
		    {300000, 300000, true},
		    {86400000, 300000, true},
		    {INT64_MAX, 300000, false}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_target_policy p = default_policy();
		struct world w;
		struct rdv_verdict v = verdict_of(RDV_KIND_INFRA);
		struct rdv_mono wake;
		struct open_call c, other;
		p.breaker.on = rows[i].breaker;
		w = world_with(p);
		v.target_hold_ms = rows[i].hold;
		assert_true(take(&w, FIRST, &c));
		assert_true(take(&w, FIRST, &other));
		(void)end_with(&w, &c, v, false);
		(void)end(&w, &other, RDV_KIND_OK); /* an ok of another call does not lift it */
		assert_false(take_work(&w, work_of(FIRST | RETRY | REPLAY), &c, &wake));
		assert_int_equal(wake.ms - w.now.mono.ms, rows[i].wanted);
		pass(&w, rows[i].wanted - 1);
		assert_false(take(&w, FIRST, &c));
		pass(&w, 1);
		assert_true(take(&w, FIRST, &c));
		(void)end(&w, &c, RDV_KIND_OK);
		world_done(&w);
	}
}

static void retry_after_shorter_than_the_hold_does_not_cut_it(void **state)
{
	struct world w = world();
	struct rdv_verdict v = verdict_of(RDV_KIND_INFRA);
	struct open_call a, b;

	assert_true(take(&w, FIRST, &a) && take(&w, FIRST, &b));
	v.target_hold_ms = 10000;
	(void)end_with(&w, &a, v, false);
	v.target_hold_ms = 1000;
	(void)end_with(&w, &b, v, false);
	pass(&w, 9999);
	assert_false(take(&w, FIRST, &a));
	world_done(&w);
}

/* ---- budget, shares, concurrency, rate, ramp ---- */

static void budget_without_a_token_the_retry_waits_and_first_attempts_go_on(void **state)
{
	struct world w = world();
	struct open_call c;
	struct rdv_mono wake;

	for (int i = 0; i < 10; i++)
		(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_APP, 5);
	assert_false(take_work(&w, work_of(RETRY), &c, &wake));
	assert_int_equal(wake.ms - w.now.mono.ms, 100);
	assert_true(take(&w, FIRST | RETRY, &c));
	assert_int_equal(c.grant.class, RDV_CLASS_FIRST);
	(void)end(&w, &c, RDV_KIND_OK);
	many(&w, 4, RDV_KIND_OK); /* five first attempts make a token */
	assert_true(take(&w, RETRY, &c));
	(void)end(&w, &c, RDV_KIND_OK); /* and success gives it back */
	assert_true(take(&w, RETRY, &c));
	(void)end(&w, &c, RDV_KIND_NONE); /* and so does being cut off */
	assert_true(take(&w, RETRY, &c));
	rdv_target_cancel(w.t, w.now, &c.grant); /* and not going at all */
	assert_true(take(&w, RETRY, &c));
	(void)end(&w, &c, RDV_KIND_APP);
	assert_false(take(&w, RETRY, &c));
	world_done(&w);
}

static void budget_off_lets_every_retry_go(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;

	p.budget.on = false;
	p.breaker.on = false;
	w = world_with(p);
	for (int i = 0; i < 1000; i++)
		(void)call(&w, RDV_CLASS_RETRY_DUE, RDV_KIND_INFRA, 0);
	world_done(&w);
}

static void class_shares_are_counted_over_grants_at_any_concurrency(void **state)
{
	static const uint32_t limits[] = {1, 3, 64};

	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		struct rdv_target_policy p = default_policy();
		struct world w;
		int counts[RDV_CLASS_COUNT] = {0};
		p.concurrency = limits[i];
		w = world_with(p);
		for (int k = 0; k < 1000; k++) {
			struct open_call c;
			assert_true(take(&w, FIRST | RETRY | REPLAY, &c));
			counts[c.grant.class]++;
			(void)end(&w, &c, RDV_KIND_OK);
		}
		assert_int_equal(counts[RDV_CLASS_FIRST], 700);
		assert_int_equal(counts[RDV_CLASS_RETRY_DUE], 220);
		assert_int_equal(counts[RDV_CLASS_REPLAY], 80);
		world_done(&w);
	}
}

static void concurrency_is_never_exceeded(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;
	struct open_call calls[5], c;
	struct rdv_mono wake;

	p.concurrency = 5;
	w = world_with(p);
	for (int i = 0; i < 5; i++)
		assert_true(take(&w, FIRST, &calls[i]));
	assert_false(take_work(&w, work_of(FIRST), &c, &wake));
	assert_true(wake.ms == RDV_NEVER);
	p.concurrency = 2; /* a smaller limit takes effect as calls end */
	rdv_target_reload(w.t, &p, w.now);
	for (int i = 0; i < 4; i++) {
		(void)end(&w, &calls[i], RDV_KIND_OK);
		assert_int_equal(take(&w, FIRST, &c), i == 3);
	}
	(void)end(&w, &calls[4], RDV_KIND_OK);
	(void)end(&w, &c, RDV_KIND_OK);
	world_done(&w);
}

static void rate_says_when_to_ask_again(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;
	struct open_call c;
	struct rdv_mono wake;
	int sent = 0;

	p.rate = 100;
	w = world_with(p);
	for (int64_t until = w.now.mono.ms + 2000; w.now.mono.ms < until;) {
		if (take_work(&w, work_of(FIRST), &c, &wake)) {
			(void)end(&w, &c, RDV_KIND_OK);
			sent++;
		} else {
			assert_true(wake.ms > w.now.mono.ms && wake.ms < w.now.mono.ms + 20);
			pass(&w, wake.ms - w.now.mono.ms);
		}
	}
	assert_in_range(sent, 200, 211);
	world_done(&w);
}

static void backlog_ramp_holds_overdue_retries_but_no_first_attempts(void **state)
{
	struct world w = world();
	struct open_call c;
	int sent[3] = {0};

	rdv_target_backlog_opened(w.t, w.now, 50);
	for (int s = 0; s < 3; s++) {
		for (int ms = 0; ms < 1000; ms++) {
			while (take(&w, RETRY, &c)) {
				(void)end(&w, &c, RDV_KIND_OK);
				sent[s]++;
			}
			(void)first(&w, RDV_KIND_OK);
			pass(&w, 1);
		}
	}
	assert_in_range(sent[0], 49, 56);
	assert_in_range(sent[1], 97, 115);
	assert_in_range(sent[2], 190, 230);
	world_done(&w);
}

/* ---- life ---- */

static void any_number_of_routes_joins_leaves_and_is_reused(void **state)
{
	struct world w = world();
	uint32_t last = w.route;

	for (int i = 1; i < 10000; i++)
		last = rdv_target_join(w.t, &w.route_policy);
	assert_int_equal(last, 9999);
	rdv_target_leave(w.t, 7);
	rdv_target_leave(w.t, 9998);
	assert_int_equal(rdv_target_join(w.t, &w.route_policy), 7);
	assert_int_equal(rdv_target_join(w.t, &w.route_policy), 9998);
	assert_int_equal(rdv_target_join(w.t, &w.route_policy), 10000);
	rdv_target_leave(w.t, 7);
	rdv_target_leave(w.t, 7);
	rdv_target_leave(w.t, UINT32_MAX);
	assert_false(rdv_target_storm_held(w.t, 7));
	world_done(&w);
}

static void reload_that_turns_the_breaker_off_brings_the_target_up(void **state)
{
	struct world w = world();

	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	w.policy.breaker.on = false;
	rdv_target_reload(w.t, &w.policy, w.now);
	assert_int_equal(breaker_of(&w), RDV_UP);
	assert_true(first(&w, RDV_KIND_INFRA).charged);
	world_done(&w);
}

/* pitfall: suspend: hours pass between two calls, and nothing overflows, floods or sticks */
static void suspend_of_a_month_leaves_the_target_usable(void **state)
{
	struct rdv_target_policy p = default_policy();
	struct world w;
	int sent = 0;
	struct open_call c;

	p.rate = 100;
	w = world_with(p);
	healthy(&w, 2000, 50);
	pass(&w, 30ll * 86400000);
	while (take(&w, FIRST, &c)) {
		(void)end(&w, &c, RDV_KIND_OK);
		sent++;
	}
	assert_in_range(sent, 9, 11); /* 100 ms of the rate, not a month's */
	pass(&w, 1000);
	(void)break_down(&w, RDV_KIND_INFRA, NULL);
	pass(&w, 30ll * 86400000);
	assert_true(probe(&w, RDV_KIND_OK).went_half);
	pass(&w, 30ll * 86400000);
	(void)rdv_target_tick(w.t, w.now);
	pass(&w, 30ll * 86400000);
	(void)rdv_target_tick(w.t, w.now);
	assert_int_equal(breaker_of(&w), RDV_UP);
	world_done(&w);
}

/* Any mix of grants, cancels, outcomes, reloads and gaps: the invariants hold, and what is refused has a reason. */
static void target_invariants_hold_in_random_runs(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct rdv_random r;
		struct rdv_target_policy p = default_policy();
		struct world w;
		static struct open_call open[64];
		uint32_t count = 0;
		const char *what = "";
		rdv_random_seed(&r, seed);
		p.concurrency = 1 + (uint32_t)rdv_random_below(&r, 60);
		p.rate = rdv_random_below(&r, 2) ? 0 : (double)rdv_random_below(&r, 2000);
		p.adaptive = rdv_random_below(&r, 2);
		p.adaptive_max = 64;
		w = world_with(p);
		for (int i = 0; i < 6000; i++) {
			uint64_t act = rdv_random_below(&r, 100), mood = (uint64_t)i / 600 % 3;
			struct rdv_work work = work_of((uint8_t)rdv_random_below(&r, 16));
			struct rdv_mono wake;
			enum rdv_breaker_state before = breaker_of(&w);
			work.suspect_overdue_ms = (int64_t)rdv_random_below(&r, 12000);
			if (rdv_target_storm_probe(w.t, w.route, w.now, &wake)) {
				work.storm_route = w.route;
				work.storm_classes = FIRST | SUSPECT;
			}
			if (act < 50 && count < 64) {
				if (!take_work(&w, work, &open[count], &wake))
					assert_true(wake.ms > w.now.mono.ms);
				else if (rdv_random_below(&r, 20) == 0)
					rdv_target_cancel(w.t, w.now, &open[count].grant);
				else
					count++;
			} else if (act < 90 && count > 0) {
				uint32_t k = (uint32_t)rdv_random_below(&r, count);
				enum rdv_kind kind = rdv_random_below(&r, 10) < 8
							     ? (mood == 0   ? RDV_KIND_OK
								: mood == 1 ? RDV_KIND_INFRA
									    : RDV_KIND_MSG)
							     : (enum rdv_kind)rdv_random_below(&r, 6);
				struct rdv_booking b = end(&w, &open[k], kind);
				assert_false(b.charged && b.outage);
				if (before != RDV_UP && breaker_of(&w) != RDV_UP && kind != RDV_KIND_MSG)
					assert_false(b.charged); /* no charge while down (patience is hours away) */
				if (b.went_down)
					assert_true(b.refund_since.ms <= w.now.mono.ms);
				open[k] = open[--count];
			} else if (act < 99) {
				pass(&w, (int64_t)rdv_random_below(&r, rdv_random_below(&r, 20) ? 30 : 3000));
			} else {
				(void)rdv_target_tick(w.t, w.now);
				rdv_target_reload(w.t, &p, w.now);
			}
			assert_int_equal(status_of(&w).in_flight, count);
			if (!rdv_target_check(w.t, &what))
				print_error("seed %lu step %d: %s\n", (unsigned long)seed, i, what);
			assert_true(rdv_target_check(w.t, &what));
		}
		while (count > 0)
			(void)end(&w, &open[--count], RDV_KIND_NONE);
		world_done(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suspect_needs_ten_others_that_were_ninety_percent_ok),
		cmocka_unit_test(suspect_is_not_judged_by_its_own_failures),
		cmocka_unit_test(suspect_only_by_charged_failures),
		cmocka_unit_test(suspect_one_in_flight_beside_other_work),
		cmocka_unit_test(suspect_goes_before_it_is_ten_seconds_past_due),
		cmocka_unit_test(suspect_overdue_goes_without_a_budget_token),
		cmocka_unit_test(suspect_flood_leaves_permits_to_others),
		cmocka_unit_test(suspect_poison_among_healthy_traffic_never_trips),
		cmocka_unit_test(storm_begins_when_half_of_fifty_are_rejected_after_a_healthy_hour),
		cmocka_unit_test(storm_needs_half_and_sixty_seconds),
		cmocka_unit_test(storm_holds_the_route_with_a_probe_every_five_seconds),
		cmocka_unit_test(storm_ends_with_one_ok_of_a_new_call),
		cmocka_unit_test(storm_resume_takes_rejects_as_dead_for_an_hour),
		cmocka_unit_test(storm_dead_means_rejects_die),
		cmocka_unit_test(storm_probe_that_is_cancelled_or_cut_off_is_sent_again),
		cmocka_unit_test(storm_of_one_route_holds_no_other),
		cmocka_unit_test(family_is_one_fingerprint_on_enough_messages_within_the_time),
		cmocka_unit_test(family_counts_distinct_messages_within_the_time_only),
		cmocka_unit_test(family_is_found_among_many_other_failures_and_ends_by_itself),
		cmocka_unit_test(family_large_counts_are_estimated_within_bounded_memory),
		cmocka_unit_test(family_is_not_judged_while_down),
		cmocka_unit_test(retry_after_holds_the_whole_target_at_most_five_minutes),
		cmocka_unit_test(retry_after_shorter_than_the_hold_does_not_cut_it),
		cmocka_unit_test(budget_without_a_token_the_retry_waits_and_first_attempts_go_on),
		cmocka_unit_test(budget_off_lets_every_retry_go),
		cmocka_unit_test(class_shares_are_counted_over_grants_at_any_concurrency),
		cmocka_unit_test(concurrency_is_never_exceeded),
		cmocka_unit_test(rate_says_when_to_ask_again),
		cmocka_unit_test(backlog_ramp_holds_overdue_retries_but_no_first_attempts),
		cmocka_unit_test(any_number_of_routes_joins_leaves_and_is_reused),
		cmocka_unit_test(reload_that_turns_the_breaker_off_brings_the_target_up),
		cmocka_unit_test(suspend_of_a_month_leaves_the_target_usable),
		cmocka_unit_test(target_invariants_hold_in_random_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
