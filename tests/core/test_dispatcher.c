/* test_dispatcher.c - several lanes of one target: turns, idle lanes, refunds across lanes, storms. */
#include "core/dedupe.h"
#include "core/lane_world.h"

enum { LANES = 5 };
static struct world w[LANES]; /* share one target and one dispatcher */
static struct rdv_effects out;

static int setup(void **state)
{
	(void)state;
	world_policies(&w[0]);
	return 0;
}

static void start(void)
{
	rdv_effects_init(&out);
	for (int i = 0; i < LANES; i++) {
		w[i].options = w[0].options;
		w[i].now = w[0].now;
		if (i == 0) {
			w[0].target = rdv_target_new(&w[0].target_policy, 5, w[0].now);
			w[0].dispatcher = rdv_dispatcher_new(w[0].target);
		}
		w[i].options.stream = 10 + (uint32_t)i;
		w[i].options.target = w[0].target;
		w[i].options.target_route = i < 3 ? (i == 0 ? rdv_target_join(w[0].target, &w[0].route_policy) : 0) : 1;
		if (i == 3)
			assert_int_equal(rdv_target_join(w[0].target, &w[0].route_policy), 1);
		w[i].lane = rdv_lane_new(&w[i].options);
		rdv_lane_opened(w[i].lane, w[0].now, 0, false, &out);
		assert_int_equal(rdv_dispatcher_add(w[0].dispatcher, w[i].lane), REDRIVE_OK);
	}
	rdv_effects_clear(&out);
}

static int teardown(void **state)
{
	(void)state;
	rdv_dispatcher_free(w[0].dispatcher);
	for (int i = 0; i < LANES; i++)
		rdv_lane_free(w[i].lane);
	rdv_target_free(w[0].target);
	rdv_effects_done(&out);
	rdv_effects_done(&w[0].out);
	return 0;
}

static void publish(int lane, int count)
{
	for (; count > 0; count--) {
		struct rdv_published p = {.seq = w[lane].next_seq++, .body = {1, 64, 10}};
		assert_int_equal(rdv_lane_published(w[lane].lane, w[0].now, &p, &out), REDRIVE_OK);
	}
	rdv_dispatcher_touch(w[0].dispatcher, w[lane].lane);
}

static size_t dispatched(const struct rdv_lane *lane)
{
	size_t n = 0;

	for (size_t i = 0; i < out.count; i++)
		n += out.items[i].kind == RDV_EFFECT_DISPATCH && (!lane || out.items[i].lane == lane);
	return n;
}

static void lanes_take_turns(void **state)
{
	(void)state;
	w[0].target_policy.concurrency = 20;
	start();
	publish(0, 1000);
	for (int i = 1; i < LANES; i++)
		publish(i, 10);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 1000, &out);
	assert_int_equal(dispatched(NULL), 20);
	for (int i = 0; i < LANES; i++)
		assert_int_equal(dispatched(w[i].lane), 4);
}

static void no_more_than_max_are_dispatched_and_then_it_wants_to_run_at_once(void **state)
{
	(void)state;
	start();
	publish(2, 10);
	assert_int_equal(rdv_dispatcher_run(w[0].dispatcher, w[0].now, 4, &out).ms, 0);
	assert_int_equal(dispatched(NULL), 4);
	assert_int_not_equal(rdv_dispatcher_run(w[0].dispatcher, w[0].now, 400, &out).ms, 0);
	assert_int_equal(dispatched(NULL), 10);
}

static void it_wakes_for_the_next_due_message_of_any_lane(void **state)
{
	struct rdv_published p = {.not_before = {0}, .body = {1, 64, 10}};

	(void)state;
	start();
	p.not_before.ms = w[0].now.wall.ms + 700;
	assert_int_equal(rdv_lane_published(w[3].lane, w[0].now, &p, &out), REDRIVE_OK);
	rdv_dispatcher_touch(w[0].dispatcher, w[3].lane);
	struct rdv_mono wake = rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	assert_true(wake.ms <= w[0].now.mono.ms + 700);
	for (int steps = 0; dispatched(NULL) == 0 && steps < 20; steps++) {
		int64_t step = wake.ms - w[0].now.mono.ms;
		assert_true(step > 0);
		world_pass(&w[0], step);
		wake = rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	}
	assert_int_equal(dispatched(w[3].lane), 1);
	assert_int_equal(w[0].now.mono.ms, 1000700);
}

static void a_removed_lane_gets_nothing_and_the_others_go_on(void **state)
{
	(void)state;
	start();
	for (int i = 0; i < LANES; i++)
		publish(i, 2);
	rdv_dispatcher_remove(w[0].dispatcher, w[1].lane);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	assert_int_equal(dispatched(NULL), 8);
	assert_int_equal(dispatched(w[1].lane), 0);
	assert_int_equal(rdv_dispatcher_add(w[0].dispatcher, w[1].lane), REDRIVE_OK);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	assert_int_equal(dispatched(w[1].lane), 2);
}

static void a_target_that_goes_down_gives_back_charges_in_all_its_lanes(void **state)
{
	uint64_t failed = 0, outage = 0;

	(void)state;
	w[0].target_policy.breaker.on = true;
	w[0].options.policy.retry.base_ms = 600000;
	start();
	for (int i = 0; i < LANES; i++)
		publish(i, 10);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	world_pass(&w[0], 10);
	for (size_t i = 0; i < 50; i++) {
		struct rdv_effect e = out.items[i];
		if (e.kind != RDV_EFFECT_DISPATCH)
			continue;
		assert_int_equal(rdv_dispatcher_verdict(w[0].dispatcher, w[0].now, e.lane, e.entry, e.dispatch.call,
							&world_timeout, rdv_slice(NULL, 0), &out),
				 REDRIVE_OK);
	}
	for (int i = 0; i < LANES; i++) {
		failed += rdv_lane_account(w[i].lane)->failed;
		outage += rdv_lane_account(w[i].lane)->outage;
	}
	assert_int_equal(failed, 0);
	assert_int_equal(outage, 50);
}

/* The nth DISPATCH effect of a lane. */
static struct rdv_effect call_of(const struct rdv_lane *lane, size_t nth)
{
	for (size_t i = 0; i < out.count; i++)
		if (out.items[i].kind == RDV_EFFECT_DISPATCH && out.items[i].lane == lane && nth-- == 0)
			return out.items[i];
	fail();
	return out.items[0];
}

static void answer(struct rdv_effect e, const struct rdv_verdict *v)
{
	assert_int_equal(rdv_dispatcher_verdict(w[0].dispatcher, w[0].now, e.lane, e.entry, e.dispatch.call, v,
						rdv_slice(NULL, 0), &out),
			 REDRIVE_OK);
}

/* All that was decided is durable. */
static void recorded(void)
{
	static uint64_t ticket;

	ticket++;
	for (int i = 0; i < LANES; i++) {
		rdv_lane_flush(w[i].lane, &out);
		rdv_lane_appended(w[i].lane, ticket);
		rdv_lane_durable(w[i].lane, w[0].now, ticket, &out);
		rdv_dispatcher_touch(w[0].dispatcher, w[i].lane);
	}
	rdv_effects_clear(&out);
}

/* pitfall: one event in two partitions is handled twice within the idempotency window */
static void lanes_of_a_route_share_one_dedupe_window(void **state)
{
	const struct rdv_hash128 key = {7, 8};
	struct rdv_dedupe window;
	struct rdv_effect first, second;

	(void)state;
	rdv_dedupe_init(&window);
	w[0].options.policy.dedupe = (struct rdv_dedupe_policy){.by = RDV_DEDUPE_ID, .ttl_ms = 60000, .entries = 10};
	w[0].options.dedupe = &window;
	start();
	for (int i = 0; i < 2; i++) { /* start() gave all the same partition */
		rdv_dispatcher_remove(w[0].dispatcher, w[i].lane);
		rdv_lane_free(w[i].lane);
		w[i].options.partition = (uint32_t)i;
		w[i].lane = rdv_lane_new(&w[i].options);
		rdv_lane_opened(w[i].lane, w[0].now, 0, false, &out);
		assert_int_equal(rdv_dispatcher_add(w[0].dispatcher, w[i].lane), REDRIVE_OK);
		publish(i, 1);
	}
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	first = call_of(w[0].lane, 0);
	second = call_of(w[1].lane, 0);
	assert_int_equal(rdv_lane_dedupe(w[0].lane, w[0].now, first.entry, first.dispatch.call, key, &out),
			 RDV_DEDUPE_PROCEED);
	assert_int_equal(rdv_lane_dedupe(w[1].lane, w[0].now, second.entry, second.dispatch.call, key, &out),
			 RDV_DEDUPE_WAIT);
	assert_int_equal(rdv_lane_account(w[1].lane)->waiting, 1);
	answer(first, &world_ack);
	rdv_effects_clear(&out);
	world_pass(&w[0], 150);
	rdv_dispatcher_touch(w[0].dispatcher, w[1].lane);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 100, &out);
	second = call_of(w[1].lane, 0);
	assert_int_equal(rdv_lane_dedupe(w[1].lane, w[0].now, second.entry, second.dispatch.call, key, &out),
			 RDV_DEDUPE_DUPLICATE);
	assert_int_equal(rdv_lane_account(w[1].lane)->acked, 1);
	assert_true(rdv_account_check(rdv_lane_account(w[1].lane)));
	rdv_effects_clear(&out);
	for (int i = 0; i < LANES; i++) { /* the window goes before teardown */
		rdv_dispatcher_remove(w[0].dispatcher, w[i].lane);
		rdv_lane_free(w[i].lane);
		w[i].lane = NULL;
	}
	rdv_dedupe_done(&window);
}

static void a_storm_that_ends_by_one_lane_lets_the_others_go(void **state)
{
	(void)state;
	w[0].target_policy.concurrency = 400;
	start();
	publish(0, 120); /* an hour with hardly a reject */
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 1000, &out);
	for (size_t i = 0; i < 120; i++)
		answer(call_of(w[0].lane, i), &world_ack);
	recorded();
	world_pass(&w[0], 61000);
	publish(0, 60);
	publish(1, 1);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 1000, &out);
	for (size_t i = 0; i < 60; i++)
		answer(call_of(w[0].lane, i), &world_reject);
	answer(call_of(w[1].lane, 0), &world_reject);
	assert_true(rdv_target_storm_held(w[0].target, 0));
	recorded();
	publish(1, 5);
	publish(2, 5);
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 1000, &out);
	assert_true(dispatched(NULL) <= 1); /* a probe at most */
	rdv_effects_clear(&out);
	rdv_target_storm_resume(w[0].target, 0, w[0].now); /* nobody touches the lanes */
	rdv_dispatcher_run(w[0].dispatcher, w[0].now, 1000, &out);
	assert_true(dispatched(w[2].lane) >= 4);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(lanes_take_turns),
		T(no_more_than_max_are_dispatched_and_then_it_wants_to_run_at_once),
		T(it_wakes_for_the_next_due_message_of_any_lane),
		T(a_removed_lane_gets_nothing_and_the_others_go_on),
		T(a_target_that_goes_down_gives_back_charges_in_all_its_lanes),
		T(lanes_of_a_route_share_one_dedupe_window),
		T(a_storm_that_ends_by_one_lane_lets_the_others_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
