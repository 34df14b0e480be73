/* test_account.c - the counters add up; the effects' list; the names. */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include "core/account.h"
#include "core/effects.h"

static void a_message_is_in_exactly_one_counter(void **state)
{
	static const enum rdv_state way[] = {RDV_STATE_HELD,    RDV_STATE_READY, RDV_STATE_IN_FLIGHT,
					     RDV_STATE_WAITING, RDV_STATE_READY, RDV_STATE_IN_FLIGHT,
					     RDV_STATE_DYING,   RDV_STATE_DEAD};
	struct rdv_account a = {0};

	(void)state;
	rdv_account_receive(&a, way[0]);
	for (size_t i = 1; i < sizeof way / sizeof way[0]; i++) {
		rdv_account_move(&a, way[i - 1], way[i]);
		assert_int_equal(a.received,
				 a.acked + a.ready + a.waiting + a.held + a.in_flight + a.dead + a.dropped + a.revoked);
	}
	assert_int_equal(a.dead, 1);
	assert_true(rdv_account_check(&a));
}

static void every_sum_that_does_not_hold_is_found(void **state)
{
	static const size_t fields[] = {offsetof(struct rdv_account, received), offsetof(struct rdv_account, acked),
					offsetof(struct rdv_account, held),     offsetof(struct rdv_account, first),
					offsetof(struct rdv_account, failed),   offsetof(struct rdv_account, outage),
					offsetof(struct rdv_account, calls),    offsetof(struct rdv_account, timeouts)};

	(void)state;
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
		struct rdv_account a = {0};
		assert_true(rdv_account_check(&a));
		++*(uint64_t *)((char *)&a + fields[i]);
		assert_false(rdv_account_check(&a));
	}
}

static void a_routes_account_is_the_sum_of_its_lanes(void **state)
{
	struct rdv_account sum = {0}, a = {0}, b = {0};

	(void)state;
	rdv_account_receive(&a, RDV_STATE_READY);
	rdv_account_receive(&b, RDV_STATE_WAITING);
	b.replays_dead = 3;
	rdv_account_add(&sum, &a);
	rdv_account_add(&sum, &b);
	assert_int_equal(sum.received, 2);
	assert_int_equal(sum.ready, 1);
	assert_int_equal(sum.waiting, 1);
	assert_int_equal(sum.replays_dead, 3);
	assert_true(rdv_account_check(&sum));
}

static void effects_keep_their_order_and_their_memory(void **state)
{
	struct rdv_effects e;

	(void)state;
	rdv_effects_init(&e);
	for (uint64_t i = 0; i < 1000; i++)
		rdv_effects_add(&e, RDV_EFFECT_FETCH, NULL)->seq = i;
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(e.items[i].seq, i);
	size_t capacity = e.capacity;
	rdv_effects_clear(&e);
	assert_int_equal(e.count, 0);
	assert_int_equal(e.capacity, capacity);
	assert_int_equal(rdv_effects_add(&e, RDV_EFFECT_ALARM, NULL)->seq, 0);
	rdv_effects_done(&e);
	rdv_effects_done(NULL);
}

static void names_lead_back_to_their_values(void **state)
{
	(void)state;
	for (unsigned r = 1; r < RDV_REASON_COUNT; r++) {
		enum rdv_reason found;
		assert_true(rdv_reason_parse(rdv_slice_text(rdv_reason_name((enum rdv_reason)r)), &found));
		assert_int_equal(found, r);
	}
	for (unsigned v = 0; v < RDV_VERDICT_COUNT; v++) {
		enum rdv_verdict_kind found;
		assert_true(rdv_verdict_parse(rdv_slice_text(rdv_verdict_name((enum rdv_verdict_kind)v)), &found));
		assert_int_equal(found, v);
	}
	enum rdv_reason reason;
	assert_false(rdv_reason_parse(rdv_slice_text("none"), &reason));
	assert_false(rdv_reason_parse(rdv_slice_text(""), &reason));
	assert_string_equal(rdv_state_name(RDV_STATE_DYING), "dead");
	assert_string_equal(rdv_state_name((enum rdv_state)77), "unknown");
	assert_string_equal(rdv_cause_name((enum rdv_cause)77), "unknown");
	assert_string_equal(rdv_kind_name((enum rdv_kind)77), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_in_exactly_one_counter),
		cmocka_unit_test(every_sum_that_does_not_hold_is_found),
		cmocka_unit_test(a_routes_account_is_the_sum_of_its_lanes),
		cmocka_unit_test(effects_keep_their_order_and_their_memory),
		cmocka_unit_test(names_lead_back_to_their_values),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
