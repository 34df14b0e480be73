/* test_policy.c - delays, limits and presets: each curve by a table, then properties over all of them at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "core/policy.h"

static struct rdv_retry plain(enum rdv_backoff backoff, int64_t base_ms)
{
	struct rdv_retry r;

	rdv_retry_defaults(&r);
	r.backoff = backoff;
	r.base_ms = base_ms;
	r.jitter = RDV_JITTER_NONE;
	r.min_ms = 0;
	return r;
}

static int64_t delay_of(const struct rdv_retry *r, uint32_t n)
{
	struct rdv_random random;

	rdv_random_seed(&random, n);
	return rdv_retry_delay(r, n, &random);
}

/* pitfall: first retry: the delay of the first, second and third failure on every curve */
static void policy_delay_follows_each_curve_from_the_first_failure(void **state)
{
	static const struct {
		enum rdv_backoff backoff;
		int64_t base;
		double factor, exponent;
		int64_t wanted[6]; /* n = 1, 2, 3, 4, 10, 100 */
	} rows[] = {
		{RDV_BACKOFF_FIXED, 700, 2, 2, {700, 700, 700, 700, 700, 700}},
		{RDV_BACKOFF_LINEAR, 700, 2, 2, {700, 1400, 2100, 2800, 7000, 70000}},
		{RDV_BACKOFF_EXPONENTIAL, 1000, 2, 2, {1000, 2000, 4000, 8000, 512000, 3600000}},
		{RDV_BACKOFF_EXPONENTIAL, 1000, 3, 2, {1000, 3000, 9000, 27000, 3600000, 3600000}},
		{RDV_BACKOFF_EXPONENTIAL, 1000, 1.1, 2, {1000, 1100, 1210, 1331, 2358, 3600000}},
		{RDV_BACKOFF_EXPONENTIAL, 1000, 0.5, 2, {1000, 500, 250, 125, 2, 0}},
		{RDV_BACKOFF_POLYNOMIAL, 1000, 2, 2, {1000, 4000, 9000, 16000, 100000, 3600000}},
		{RDV_BACKOFF_POLYNOMIAL, 1000, 2, 0.5, {1000, 1414, 1732, 2000, 3162, 10000}},
		{RDV_BACKOFF_LIST, 9, 2, 2, {5000, 1000, 90000, 90000, 90000, 90000}},
		{RDV_BACKOFF_ROCKETMQ, 9, 2, 2, {10000, 30000, 60000, 120000, 480000, 7200000}},
	};
	static const uint32_t n[6] = {1, 2, 3, 4, 10, 100};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_retry r = plain(rows[i].backoff, rows[i].base);
		r.factor = rows[i].factor;
		r.exponent = rows[i].exponent;
		r.delays[0] = 5000;
		r.delays[1] = 1000;
		r.delays[2] = 90000;
		r.delay_count = 3;
		for (int j = 0; j < 6; j++) {
			if (delay_of(&r, n[j]) != rows[i].wanted[j])
				print_error("row %zu, n %u\n", i, n[j]);
			assert_int_equal(delay_of(&r, n[j]), rows[i].wanted[j]);
		}
	}
}

static void policy_delay_of_failure_zero_is_that_of_the_first(void **state)
{
	struct rdv_retry r = plain(RDV_BACKOFF_EXPONENTIAL, 1000);

	assert_int_equal(delay_of(&r, 0), 1000);
}

static void policy_cap_is_an_hour_or_the_longest_listed_delay(void **state)
{
	struct rdv_retry r = plain(RDV_BACKOFF_FIXED, 1);

	assert_int_equal(rdv_retry_cap(&r), 3600000);
	r.backoff = RDV_BACKOFF_ROCKETMQ;
	assert_int_equal(rdv_retry_cap(&r), 7200000);
	r.backoff = RDV_BACKOFF_LIST;
	r.delays[0] = 7;
	r.delays[1] = 86400000;
	r.delays[2] = 9;
	r.delay_count = 3;
	assert_int_equal(rdv_retry_cap(&r), 86400000);
	r.cap_ms = 100;
	assert_int_equal(rdv_retry_cap(&r), 100);
	assert_int_equal(delay_of(&r, 2), 100);
}

/* pitfall: jitter only above the cap, or below zero: on top of the capped delay, on by default, never under min */
static void policy_jitter_keeps_to_its_bounds(void **state)
{
	static const struct {
		enum rdv_jitter jitter;
		double fraction;
		int64_t min, base, cap, earliest, latest;
	} rows[] = {
		{RDV_JITTER_NONE, 0.25, 100, 1000, 0, 1000, 1000},
		{RDV_JITTER_ADD, 0.25, 100, 1000, 0, 1000, 1250},
		{RDV_JITTER_ADD, 0.25, 100, 1000, 400, 400, 500}, /* the cap first, jitter on top of it */
		{RDV_JITTER_BOTH, 0.2, 100, 1000, 0, 800, 1200},
		{RDV_JITTER_BOTH, 1, 100, 1000, 0, 100, 2000},
		{RDV_JITTER_FULL, 0, 100, 1000, 0, 100, 1000},
		{RDV_JITTER_FULL, 0, 5000, 1000, 0, 5000, 5000},
		{RDV_JITTER_NONE, 0, 5000, 1000, 0, 5000, 5000},
		{RDV_JITTER_ADD, 0.25, 1100, 1000, 0, 1100, 1250},
		{RDV_JITTER_ADD, 0.25, 0, 0, 0, 0, 0},
		{RDV_JITTER_ADD, 0.25, 0, 3, 0, 3, 3}, /* a quarter of 3 ms is less than one */
	};
	struct rdv_random random;

	rdv_random_seed(&random, 11);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_retry r = plain(RDV_BACKOFF_FIXED, rows[i].base);
		int64_t low, high, least = INT64_MAX, most = -1;
		r.jitter = rows[i].jitter;
		r.jitter_fraction = rows[i].fraction;
		r.min_ms = rows[i].min;
		r.cap_ms = rows[i].cap;
		rdv_retry_bounds(&r, 1, &low, &high);
		assert_int_equal(low, rows[i].earliest);
		assert_int_equal(high, rows[i].latest);
		for (int k = 0; k < 20000; k++) {
			int64_t d = rdv_retry_delay(&r, 1, &random);
			least = d < least ? d : least;
			most = d > most ? d : most;
		}
		assert_int_equal(least, low); /* with so many draws both ends are met */
		assert_int_equal(most, high);
	}
}

static void policy_jitter_is_on_by_default(void **state)
{
	struct rdv_retry r;
	int64_t low, high;

	rdv_retry_defaults(&r);
	rdv_retry_bounds(&r, 1, &low, &high);
	assert_int_equal(low, 1000);
	assert_int_equal(high, 1250);
}

static double odd_double(struct rdv_random *random)
{
	static const double odd[] = {
		0, 1, 2, 0.25, 1e-300, 1e300, 1e18, -1, -1e300, __builtin_inf(), __builtin_nan("")};

	return odd[rdv_random_below(random, sizeof odd / sizeof odd[0])];
}

static int64_t odd_ms(struct rdv_random *random)
{
	static const int64_t odd[] = {0, 1, 100, 1000, 3600000, 604800000, INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};

	return odd[rdv_random_below(random, sizeof odd / sizeof odd[0])];
}

static uint32_t odd_n(struct rdv_random *random)
{
	static const uint32_t odd[] = {0,  1,    2,    31,   32,         33,         63,        64,
				       65, 1023, 1024, 1025, 0x7fffffff, 0x80000000, UINT32_MAX};

	if (rdv_random_below(random, 2))
		return odd[rdv_random_below(random, sizeof odd / sizeof odd[0])];
	return (uint32_t)(rdv_random_next(random) >> rdv_random_below(random, 32) >> 32);
}

/* pitfall: shift or multiply past the word: for any n, base, cap and jitter never negative, never over the bounds */
static void policy_delay_saturates_for_every_n_curve_cap_and_jitter(void **state)
{
	struct rdv_random random;

	rdv_random_seed(&random, 5);
	for (int k = 0; k < 300000; k++) {
		struct rdv_retry r =
			plain((enum rdv_backoff)rdv_random_below(&random, RDV_BACKOFF_COUNT), odd_ms(&random));
		uint32_t n = odd_n(&random);
		int64_t low, high, d;
		r.factor = odd_double(&random);
		r.exponent = odd_double(&random);
		r.cap_ms = odd_ms(&random);
		r.jitter = (enum rdv_jitter)rdv_random_below(&random, 4);
		r.jitter_fraction = odd_double(&random);
		r.min_ms = odd_ms(&random);
		r.delay_count = (uint32_t)rdv_random_below(&random, 3);
		r.delays[0] = odd_ms(&random);
		r.delays[1] = odd_ms(&random);
		rdv_retry_bounds(&r, n, &low, &high);
		d = rdv_retry_delay(&r, n, &random);
		assert_true(low >= 0 && low <= d && d <= high);
		assert_true(low >= r.min_ms);
		if (r.jitter == RDV_JITTER_NONE || r.jitter == RDV_JITTER_FULL)
			assert_true(high <= rdv_retry_cap(&r) || high == r.min_ms);
	}
}

/* pitfall: the ramp restarts from zero when a shift overflows: once the curve grows, it never falls again */
static void policy_delay_never_falls_while_failures_go_on(void **state)
{
	static const enum rdv_backoff curves[] = {RDV_BACKOFF_FIXED, RDV_BACKOFF_LINEAR, RDV_BACKOFF_EXPONENTIAL,
						  RDV_BACKOFF_POLYNOMIAL, RDV_BACKOFF_ROCKETMQ};

	for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++) {
		struct rdv_retry r = plain(curves[i], 3);
		int64_t before = 0;
		r.cap_ms = INT64_MAX;
		for (uint64_t n = 1; n <= 0x80000000u; n = n < 5000 ? n + 1 : n * 5 / 4) {
			int64_t d = delay_of(&r, (uint32_t)n);
			assert_true(d >= before);
			before = d;
		}
	}
}

static void policy_named_delay_is_cut_to_the_cap_and_ignores_min(void **state)
{
	struct rdv_retry r = plain(RDV_BACKOFF_FIXED, 1000);

	r.min_ms = 100;
	assert_int_equal(rdv_retry_named_delay(&r, 0), 0);
	assert_int_equal(rdv_retry_named_delay(&r, 50), 50);
	assert_int_equal(rdv_retry_named_delay(&r, 3600000), 3600000);
	assert_int_equal(rdv_retry_named_delay(&r, INT64_MAX), 3600000);
	assert_int_equal(rdv_retry_named_delay(&r, -1), 0);
}

static void policy_presets_are_the_trades(void **state)
{
	static const struct {
		enum rdv_preset preset;
		uint32_t attempts;
		int64_t base, cap;
		enum rdv_on_exhausted on_exhausted;
	} rows[] = {
		{RDV_PRESET_NONE, 16, 1000, 3600000, RDV_EXHAUSTED_DEAD},
		{RDV_PRESET_PAYMENT, 12, 5000, 3600000, RDV_EXHAUSTED_DEAD},
		{RDV_PRESET_ORDER, 5, 1000, 300000, RDV_EXHAUSTED_DEAD},
		{RDV_PRESET_NOTICE, 3, 10000, 300000, RDV_EXHAUSTED_DEAD},
		{RDV_PRESET_LOG, 2, 5000, 60000, RDV_EXHAUSTED_DEAD},
		{RDV_PRESET_REALTIME, 1, 1000, 3600000, RDV_EXHAUSTED_DROP},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_retry r;
		rdv_retry_defaults(&r);
		rdv_retry_preset(&r, rows[i].preset);
		assert_int_equal(r.attempts, rows[i].attempts);
		assert_int_equal(r.base_ms, rows[i].base);
		assert_int_equal(rdv_retry_cap(&r), rows[i].cap);
		assert_int_equal(r.on_exhausted, rows[i].on_exhausted);
		assert_int_equal(r.backoff, RDV_BACKOFF_EXPONENTIAL);
	}
}

static void policy_defaults_are_the_documented_ones(void **state)
{
	struct rdv_lane_policy l;
	struct rdv_target_policy t;
	struct rdv_route_policy r;

	rdv_lane_policy_defaults(&l);
	rdv_target_policy_defaults(&t);
	rdv_route_policy_defaults(&r);
	assert_int_equal(l.retry.window_ms, 0);
	assert_int_equal(l.retry.min_ms, 100);
	assert_int_equal(l.retry.max_age_ms, 7 * 86400000ll);
	assert_int_equal(l.retry.crashes, 3);
	assert_int_equal(l.retry.deferrals, 1000);
	assert_int_equal(l.order, RDV_ORDER_NONE);
	assert_int_equal(l.after_dead, RDV_AFTER_CONTINUE);
	assert_int_equal(l.dedupe.by, RDV_DEDUPE_OFF);
	assert_int_equal(t.concurrency, 64);
	assert_false(t.adaptive);
	assert_true(t.rate == 0);
	assert_true(t.breaker.on && t.breaker.ratio == 0.5 && t.breaker.min_calls == 20);
	assert_int_equal(t.breaker.window_ms, 10000);
	assert_int_equal(t.breaker.open_ms, 1000);
	assert_int_equal(t.breaker.max_open_ms, 5000);
	assert_int_equal(t.breaker.patience_ms, 6 * 3600000);
	assert_true(t.budget.on && t.budget.ratio == 0.2 && t.budget.per_second == 10);
	assert_true(r.storm_hold);
	assert_int_equal(r.family.count, 50);
	assert_int_equal(r.family.within_ms, 60000);
	assert_int_equal(r.family.then, RDV_FAMILY_ALERT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_delay_follows_each_curve_from_the_first_failure),
		cmocka_unit_test(policy_delay_of_failure_zero_is_that_of_the_first),
		cmocka_unit_test(policy_cap_is_an_hour_or_the_longest_listed_delay),
		cmocka_unit_test(policy_jitter_keeps_to_its_bounds),
		cmocka_unit_test(policy_jitter_is_on_by_default),
		cmocka_unit_test(policy_delay_saturates_for_every_n_curve_cap_and_jitter),
		cmocka_unit_test(policy_delay_never_falls_while_failures_go_on),
		cmocka_unit_test(policy_named_delay_is_cut_to_the_cap_and_ignores_min),
		cmocka_unit_test(policy_presets_are_the_trades),
		cmocka_unit_test(policy_defaults_are_the_documented_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
