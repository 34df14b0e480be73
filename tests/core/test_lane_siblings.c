/* test_lane_siblings.c - lanes of one route and partition, its own and adopted ones: one order of keys, one window. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "core/dedupe.h"
#include "core/dispatcher.h"

#define LANES 3
#define OWN 2 /* the route's own lane; 0 is the oldest that it adopted */

struct call {
	struct rdv_lane *lane;
	uint64_t seq, number;
	uint32_t entry;
	bool open;
};

static struct family {
	struct rdv_target *target;
	struct rdv_dispatcher *dispatcher;
	struct rdv_dedupe window;
	struct rdv_lane *lanes[LANES];
	struct rdv_lane_policy policy;
	struct rdv_effects out;
	struct rdv_now now;
	struct call calls[64];
	size_t call_count;
	uint64_t ticket, durable;
	uint32_t offset;
	bool no_sync, dedupe;
} f;

static const struct rdv_verdict ack = {.kind = RDV_ACK, .evidence = RDV_KIND_OK};
static const struct rdv_verdict fail = {.kind = RDV_RETRY, .cause = RDV_CAUSE_FAILURE, .evidence = RDV_KIND_APP};
static const struct rdv_verdict reject = {.kind = RDV_REJECT, .cause = RDV_CAUSE_FAILURE, .evidence = RDV_KIND_MSG};

static struct rdv_lane *make(unsigned i, uint64_t start)
{
	const struct rdv_lane_options o = {.stream = 10 + i,
					   .route = "r",
					   .topic = "t",
					   .partition_stream = 1,
					   .start = start,
					   .policy = f.policy,
					   .target = f.target,
					   .dedupe = f.dedupe ? &f.window : NULL};

	f.lanes[i] = rdv_lane_new(&o);
	assert_non_null(f.lanes[i]);
	return f.lanes[i];
}

static void open_lane(unsigned i, uint64_t next)
{
	rdv_lane_opened(f.lanes[i], f.now, next, false, &f.out);
	assert_int_equal(rdv_dispatcher_add(f.dispatcher, f.lanes[i]), REDRIVE_OK);
}

static int setup(void **state)
{
	struct rdv_target_policy policy;

	(void)state;
	f = (struct family){.now = {{1000}, {1700000000000}}};
	rdv_target_policy_defaults(&policy);
	policy.breaker.on = false;
	f.target = rdv_target_new(&policy, 1, f.now);
	assert_int_equal(rdv_target_join(f.target, &(struct rdv_route_policy){0}), 0);
	f.dispatcher = rdv_dispatcher_new(f.target);
	rdv_effects_init(&f.out);
	rdv_dedupe_init(&f.window);
	rdv_lane_policy_defaults(&f.policy);
	f.policy.order = RDV_ORDER_KEY;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < LANES; i++)
		rdv_lane_free(f.lanes[i]);
	rdv_dispatcher_free(f.dispatcher);
	rdv_target_free(f.target);
	rdv_effects_done(&f.out);
	rdv_dedupe_done(&f.window);
	return 0;
}

/* ---- turns ---- */

static void execute(void)
{
	for (size_t i = 0; i < f.out.count; i++) {
		const struct rdv_effect e = f.out.items[i];
		if (e.kind == RDV_EFFECT_DISPATCH)
			f.calls[f.call_count++] = (struct call){e.lane, e.seq, e.dispatch.call, e.entry, true};
		else if (e.kind == RDV_EFFECT_RECORD && e.record.owns_state)
			rdv_lane_placed(e.lane, e.entry, (struct rdv_place){1, ++f.offset, 8});
		else if (e.kind == RDV_EFFECT_RESTATE)
			rdv_lane_restate(e.lane, f.now, e.entry, rdv_slice(NULL, 0), &f.out);
		else if (e.kind == RDV_EFFECT_LETTER)
			rdv_lane_lettered(e.lane, f.now, e.seq, 0, &f.out);
	}
	rdv_effects_clear(&f.out);
}

static void check(void)
{
	const char *what = "";

	for (unsigned i = 0; i < LANES; i++)
		if (f.lanes[i] && !rdv_lane_check(f.lanes[i], &what))
			fail_msg("lane %u: %s", i, what);
}

static void turn(void)
{
	execute();
	rdv_dispatcher_run(f.dispatcher, f.now, 64, &f.out);
	execute();
	for (unsigned i = 0; i < LANES; i++)
		if (f.lanes[i])
			rdv_lane_flush(f.lanes[i], &f.out);
	execute();
	f.ticket++;
	for (unsigned i = 0; i < LANES; i++)
		if (f.lanes[i])
			rdv_lane_appended(f.lanes[i], f.ticket);
	for (unsigned i = 0; i < LANES && !f.no_sync; i++) {
		if (!f.lanes[i])
			continue;
		rdv_lane_durable(f.lanes[i], f.now, f.ticket, &f.out);
		rdv_dispatcher_touch(f.dispatcher, f.lanes[i]);
	}
	check();
}

static void settle(void)
{
	for (int i = 0; i < 6; i++)
		turn();
}

static void publish(unsigned i, uint64_t seq, uint64_t key)
{
	const struct rdv_published m = {.seq = seq, .key_hash = key, .body = {1, ++f.offset, 8}};

	assert_int_equal(rdv_lane_published(f.lanes[i], f.now, &m, &f.out), REDRIVE_OK);
	rdv_dispatcher_touch(f.dispatcher, f.lanes[i]);
}

static struct call *call_of(unsigned i, uint64_t seq)
{
	for (size_t n = f.call_count; n-- > 0;)
		if (f.calls[n].open && f.calls[n].lane == f.lanes[i] && f.calls[n].seq == seq)
			return &f.calls[n];
	return NULL;
}

static void answer(unsigned i, uint64_t seq, const struct rdv_verdict *v)
{
	struct call *c = call_of(i, seq);

	assert_non_null(c);
	c->open = false;
	assert_int_equal(rdv_dispatcher_verdict(f.dispatcher, f.now, c->lane, c->entry, c->number, v,
						rdv_slice(NULL, 0), &f.out),
			 REDRIVE_OK);
	settle();
}

static struct rdv_where where(unsigned i, uint64_t seq)
{
	struct rdv_where w;

	assert_int_equal(rdv_lane_where(f.lanes[i], f.now, seq, &w), REDRIVE_OK);
	return w;
}

static void later(int64_t ms)
{
	f.now.mono.ms += ms;
	f.now.wall.ms += ms;
	settle();
}

/* An old lane [0, 10) and the route's own from 10 on. */
static void two_lanes(void)
{
	make(0, 0);
	open_lane(0, 0);
	make(OWN, 10);
	open_lane(OWN, 10);
}

static void adopt(unsigned i)
{
	assert_true(rdv_lane_add_sibling(f.lanes[i], f.lanes[OWN], f.now, &f.out));
	rdv_dispatcher_touch(f.dispatcher, f.lanes[i]);
	settle();
}

/* ---- order ---- */

static void the_older_lane_s_messages_of_a_key_go_first_and_other_keys_flow(void **state)
{
	(void)state;
	two_lanes();
	adopt(0);
	publish(0, 0, 7);
	publish(0, 1, 7);
	publish(OWN, 10, 7);
	publish(OWN, 11, 8);
	settle();
	assert_non_null(call_of(0, 0));
	assert_non_null(call_of(OWN, 11));
	assert_null(call_of(OWN, 10));
	assert_int_equal(where(OWN, 10).state, RDV_STATE_HELD);
	assert_int_equal(where(OWN, 10).behind, 0);
	assert_int_equal(rdv_lane_held_of_key(f.lanes[OWN], 7), 3);
	answer(0, 0, &fail); /* waits for its retry: the key waits in both lanes */
	assert_null(call_of(OWN, 10));
	assert_null(call_of(0, 1));
	later(60000);
	answer(0, 0, &ack);
	assert_null(call_of(OWN, 10));
	answer(0, 1, &ack);
	assert_non_null(call_of(OWN, 10));
}

static void an_end_that_is_not_durable_holds_the_key_in_the_other_lane(void **state)
{
	(void)state;
	two_lanes();
	adopt(0);
	publish(0, 0, 7);
	publish(OWN, 10, 7);
	settle();
	f.no_sync = true;
	answer(0, 0, &ack);
	assert_null(call_of(OWN, 10));
	f.no_sync = false;
	settle();
	assert_non_null(call_of(OWN, 10));
}

static void what_is_at_the_handler_ends_before_an_adopted_lane_goes_on(void **state)
{
	(void)state;
	two_lanes();
	rdv_lane_stop(f.lanes[0]);
	publish(0, 0, 7);
	publish(OWN, 10, 7);
	publish(OWN, 11, 7);
	settle();
	assert_non_null(call_of(OWN, 10));
	rdv_lane_move_to(f.lanes[0], f.target, 0);
	adopt(0);
	assert_null(call_of(0, 0));
	answer(OWN, 10, &ack);
	assert_non_null(call_of(0, 0));
	assert_null(call_of(OWN, 11));
	answer(0, 0, &ack);
	assert_non_null(call_of(OWN, 11));
}

static void what_was_ready_steps_back_for_an_adopted_lane(void **state)
{
	(void)state;
	two_lanes();
	rdv_lane_stop(f.lanes[0]);
	rdv_lane_stop(f.lanes[OWN]); /* ready, but does not go */
	publish(0, 0, 7);
	publish(OWN, 10, 7);
	settle();
	assert_int_equal(where(OWN, 10).state, RDV_STATE_READY);
	adopt(0);
	assert_int_equal(where(OWN, 10).state, RDV_STATE_HELD);
	assert_int_equal(where(0, 0).state, RDV_STATE_READY);
	rdv_lane_leave_siblings(f.lanes[0], f.now, &f.out);
	assert_int_equal(where(OWN, 10).state, RDV_STATE_READY);
}

static void several_adopted_lanes_go_in_the_order_of_their_positions(void **state)
{
	(void)state;
	two_lanes();
	make(1, 5);
	open_lane(1, 5);
	adopt(1);
	adopt(0);
	publish(OWN, 10, 7);
	publish(1, 5, 7);
	publish(0, 0, 7);
	settle();
	assert_non_null(call_of(0, 0));
	answer(0, 0, &ack);
	assert_non_null(call_of(1, 5));
	assert_null(call_of(OWN, 10));
	answer(1, 5, &ack);
	assert_non_null(call_of(OWN, 10));
}

static void of_the_same_message_the_older_lane_s_goes_first(void **state)
{
	(void)state;
	make(0, 0);
	open_lane(0, 0);
	make(OWN, 0); /* this route was given it, too */
	open_lane(OWN, 0);
	adopt(0);
	publish(OWN, 0, 7);
	publish(0, 0, 7);
	settle();
	assert_non_null(call_of(0, 0));
	assert_null(call_of(OWN, 0));
	answer(0, 0, &ack);
	assert_non_null(call_of(OWN, 0));
}

static void a_closed_gate_holds_the_key_in_all_lanes(void **state)
{
	(void)state;
	f.policy.after_dead = RDV_AFTER_HOLD;
	two_lanes();
	adopt(0);
	publish(0, 0, 7);
	publish(OWN, 10, 7);
	settle();
	answer(0, 0, &reject);
	assert_null(call_of(OWN, 10));
	assert_int_equal(where(OWN, 10).behind, 0);
	assert_int_equal(rdv_lane_release(f.lanes[0], f.now, 7, &f.out), REDRIVE_OK);
	rdv_dispatcher_touch(f.dispatcher, f.lanes[0]);
	settle();
	assert_non_null(call_of(OWN, 10));
}

static void followers_die_in_all_lanes(void **state)
{
	(void)state;
	f.policy.after_dead = RDV_AFTER_FOLLOW;
	two_lanes();
	adopt(0);
	publish(0, 0, 7);
	publish(OWN, 10, 7);
	publish(OWN, 11, 8);
	settle();
	answer(0, 0, &reject);
	assert_null(call_of(OWN, 10));
	assert_int_equal(rdv_lane_account(f.lanes[OWN])->dead, 1);
	assert_non_null(call_of(OWN, 11));
}

static void nothing_of_a_key_goes_while_a_lane_is_not_open_yet(void **state)
{
	(void)state;
	make(0, 0);
	make(OWN, 10);
	assert_true(rdv_lane_add_sibling(f.lanes[OWN], f.lanes[0], f.now, &f.out));
	open_lane(OWN, 10);
	publish(OWN, 10, 7);
	turn();
	assert_null(call_of(OWN, 10));
	open_lane(0, 0);
	settle();
	assert_non_null(call_of(OWN, 10));
}

static void a_lane_without_order_stays_apart(void **state)
{
	(void)state;
	f.policy.order = RDV_ORDER_NONE;
	make(0, 0);
	open_lane(0, 0);
	f.policy.order = RDV_ORDER_KEY;
	make(OWN, 10);
	open_lane(OWN, 10);
	assert_int_equal(rdv_lane_order(f.lanes[0]), RDV_ORDER_NONE);
	assert_false(rdv_lane_add_sibling(f.lanes[0], f.lanes[OWN], f.now, &f.out));
}

/* ---- idempotency ---- */

static enum rdv_dedupe_answer ask(unsigned i, uint64_t seq, uint64_t key)
{
	struct call *c = call_of(i, seq);
	enum rdv_dedupe_answer a;

	assert_non_null(c);
	a = rdv_lane_dedupe(c->lane, f.now, c->entry, c->number, (struct rdv_hash128){key, key}, &f.out);
	c->open = a == RDV_DEDUPE_PROCEED;
	rdv_dispatcher_touch(f.dispatcher, c->lane);
	return a;
}

static void dedupe_on(void)
{
	f.dedupe = true;
	f.policy.order = RDV_ORDER_NONE;
	f.policy.dedupe = (struct rdv_dedupe_policy){.by = RDV_DEDUPE_HEADER, .ttl_ms = 60000, .entries = 100};
}

static void the_same_position_in_two_lanes_has_two_owners(void **state)
{
	(void)state;
	dedupe_on();
	make(0, 0);
	open_lane(0, 0);
	make(OWN, 0);
	open_lane(OWN, 0);
	publish(0, 0, 0);
	publish(OWN, 0, 0);
	settle();
	assert_int_equal(ask(0, 0, 5), RDV_DEDUPE_PROCEED);
	assert_int_equal(ask(OWN, 0, 5), RDV_DEDUPE_WAIT);
	answer(0, 0, &ack);
	later(200);
	assert_int_equal(ask(OWN, 0, 5), RDV_DEDUPE_DUPLICATE);
}

static void a_lane_takes_its_keys_to_another_window_and_what_is_done_in_either_is_done(void **state)
{
	(void)state;
	dedupe_on();
	two_lanes();
	for (uint64_t seq = 0; seq < 2; seq++)
		publish(0, seq, 0);
	settle();
	assert_int_equal(ask(0, 0, 5), RDV_DEDUPE_PROCEED);
	answer(0, 0, &ack);
	rdv_lane_stop(f.lanes[0]);
	assert_int_equal(ask(0, 1, 6), RDV_DEDUPE_PROCEED);
	answer(0, 1, &fail);
	rdv_lane_move_dedupe(f.lanes[0], NULL, f.now, &f.out); /* an orphan now */
	assert_int_equal(f.window.items.count, 0);
	publish(OWN, 10, 0);
	publish(OWN, 11, 0);
	publish(OWN, 12, 0);
	settle();
	assert_int_equal(ask(OWN, 10, 5), RDV_DEDUPE_PROCEED); /* nobody there has done it */
	rdv_lane_move_dedupe(f.lanes[0], &f.window, f.now, &f.out);
	assert_int_equal(ask(OWN, 11, 6), RDV_DEDUPE_WAIT); /* the adopted one tries again */
	answer(OWN, 10, &reject);
	assert_int_equal(ask(OWN, 12, 5), RDV_DEDUPE_DUPLICATE);
	assert_true(rdv_dedupe_check(&f.window));
}

static void turning_it_off_frees_who_waits(void **state)
{
	struct rdv_lane_policy off;

	(void)state;
	dedupe_on();
	make(0, 0);
	open_lane(0, 0);
	publish(0, 0, 0);
	publish(0, 1, 0);
	settle();
	assert_int_equal(ask(0, 0, 5), RDV_DEDUPE_PROCEED);
	assert_int_equal(ask(0, 1, 5), RDV_DEDUPE_WAIT);
	off = f.policy;
	off.dedupe.by = RDV_DEDUPE_OFF;
	rdv_lane_reload(f.lanes[0], &off, NULL);
	answer(0, 0, &ack);
	assert_non_null(call_of(0, 1));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_older_lane_s_messages_of_a_key_go_first_and_other_keys_flow),
		T(an_end_that_is_not_durable_holds_the_key_in_the_other_lane),
		T(what_is_at_the_handler_ends_before_an_adopted_lane_goes_on),
		T(what_was_ready_steps_back_for_an_adopted_lane),
		T(several_adopted_lanes_go_in_the_order_of_their_positions),
		T(of_the_same_message_the_older_lane_s_goes_first),
		T(a_closed_gate_holds_the_key_in_all_lanes),
		T(followers_die_in_all_lanes),
		T(nothing_of_a_key_goes_while_a_lane_is_not_open_yet),
		T(a_lane_without_order_stays_apart),
		T(the_same_position_in_two_lanes_has_two_owners),
		T(a_lane_takes_its_keys_to_another_window_and_what_is_done_in_either_is_done),
		T(turning_it_off_frees_who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
