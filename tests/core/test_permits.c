/* test_permits.c - buckets, class shares, the backlog's ramp and the adaptive limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "core/permits.h"

/* Takes all that the bucket has in every ms of [from, to); returns how many. */
static int64_t drain(struct rdv_bucket *b, int64_t from, int64_t to)
{
	int64_t taken = 0;

	for (int64_t ms = from; ms < to; ms++) {
		for (; rdv_bucket_ready(b, ms); taken++)
			rdv_bucket_spend(b);
	}
	return taken;
}

static void permits_rate_stays_within_ten_percent_over_any_two_seconds(void **state)
{
	static const double rates[] = {1000, 500, 333.3, 20, 1900};

	for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
		struct rdv_bucket b = {0};
		static int64_t sent[12000];
		rdv_bucket_set(&b, rates[i], 0);
		for (int64_t ms = 0; ms < 12000; ms++) /* a long pause in between fills the bucket to its brim */
			sent[ms] = ms > 3000 && ms < 6000 ? 0 : drain(&b, ms, ms + 1);
		for (int64_t start = 0; start <= 10000; start++) {
			int64_t sum = 0;
			if (start % 50 != 0)
				continue;
			for (int64_t ms = start; ms < start + 2000; ms++)
				sum += sent[ms];
			assert_true((double)sum <= rates[i] * 2 * 1.1 + 1);
			if (start > 6500)
				assert_true((double)sum >= rates[i] * 2 * 0.98 - 1);
		}
	}
}

static void permits_slow_rates_are_exact(void **state)
{
	struct rdv_bucket b = {0};

	rdv_bucket_set(&b, 0.5, 0);
	assert_true(rdv_bucket_ready(&b, 0));
	rdv_bucket_spend(&b);
	assert_false(rdv_bucket_ready(&b, 1999));
	assert_int_equal(rdv_bucket_wake(&b), 2000);
	assert_true(rdv_bucket_ready(&b, 2000));
	rdv_bucket_spend(&b);
	assert_false(rdv_bucket_ready(&b, 3999));
	assert_true(rdv_bucket_ready(&b, 4000));
}

static void permits_wake_is_when_a_token_is_there_and_not_before(void **state)
{
	static const double rates[] = {0.001, 0.3, 1, 7, 999, 1001, 50000, 1e12};

	for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
		struct rdv_bucket b = {0};
		int64_t now = 1000, wake;
		rdv_bucket_set(&b, rates[i], now);
		for (int k = 0; k < 50; k++) {
			while (rdv_bucket_ready(&b, now))
				rdv_bucket_spend(&b);
			wake = rdv_bucket_wake(&b);
			assert_true(wake > now);
			assert_false(rdv_bucket_ready(&b, wake - 1));
			assert_true(rdv_bucket_ready(&b, wake));
			now = wake;
		}
	}
}

static void permits_bucket_without_a_rate_never_refuses(void **state)
{
	struct rdv_bucket b = {0};

	rdv_bucket_set(&b, 0, 0);
	for (int i = 0; i < 1000; i++) {
		assert_true(rdv_bucket_ready(&b, 0));
		rdv_bucket_spend(&b);
	}
}

static void permits_reload_of_the_rate_gives_no_second_burst(void **state)
{
	struct rdv_bucket b = {0};

	rdv_bucket_set(&b, 100, 0);
	assert_int_equal(drain(&b, 0, 1), 10);
	rdv_bucket_set(&b, 200, 0);
	assert_int_equal(drain(&b, 0, 1), 0);
	assert_int_equal(drain(&b, 1, 1001), 200);
}

#define FIRST (1u << RDV_CLASS_FIRST)
#define RETRY (1u << RDV_CLASS_RETRY_DUE)
#define REPLAY (1u << RDV_CLASS_REPLAY)

static void permits_class_shares_are_70_22_8_of_every_hundred_grants(void **state)
{
	struct rdv_shares s = {0};
	int last_replay = -1;

	for (int hundred = 0; hundred < 50; hundred++) {
		int counts[3] = {0};
		for (int i = 0; i < 100; i++) {
			enum rdv_class c = rdv_shares_pick(&s, FIRST | RETRY | REPLAY);
			counts[c]++;
			if (c != RDV_CLASS_REPLAY)
				continue;
			assert_true(last_replay < 0 ||
				    hundred * 100 + i - last_replay <= 14); /* spread, not in one block */
			last_replay = hundred * 100 + i;
		}
		assert_int_equal(counts[RDV_CLASS_FIRST], 70);
		assert_int_equal(counts[RDV_CLASS_RETRY_DUE], 22);
		assert_int_equal(counts[RDV_CLASS_REPLAY], 8);
	}
}

static void permits_what_one_class_leaves_the_others_use(void **state)
{
	static const struct {
		uint8_t classes;
		int least[3];
	} rows[] = {
		{FIRST, {100, 0, 0}},         {RETRY, {0, 100, 0}},          {REPLAY, {0, 0, 100}},
		{FIRST | RETRY, {76, 23, 0}}, {FIRST | REPLAY, {89, 0, 10}}, {RETRY | REPLAY, {0, 73, 26}},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_shares s = {0};
		int counts[3] = {0};
		for (int k = 0; k < 100; k++)
			counts[rdv_shares_pick(&s, rows[i].classes)]++;
		for (int c = 0; c < 3; c++)
			assert_true(counts[c] >= rows[i].least[c]);
	}
}

static void permits_share_of_a_cancelled_grant_comes_back(void **state)
{
	struct rdv_shares s = {0};
	int counts[3] = {0};

	for (int i = 0; i < 1000; i++) {
		enum rdv_class c = rdv_shares_pick(&s, FIRST | RETRY | REPLAY);
		if (i % 3 == 0)
			rdv_shares_undo(&s, c);
		else
			counts[c]++;
	}
	assert_in_range(counts[RDV_CLASS_FIRST], 464, 468); /* 70 % of 666 */
	assert_in_range(counts[RDV_CLASS_REPLAY], 52, 55);
}

static void permits_backlog_ramp_doubles_each_second_until_nobody_waits(void **state)
{
	struct rdv_target_policy policy;
	struct rdv_permits p;
	int64_t sent[7];

	rdv_target_policy_defaults(&policy);
	rdv_permits_init(&p, &policy, (struct rdv_mono){0});
	rdv_permits_ramp(&p, 50, (struct rdv_mono){0});
	for (int s = 0; s < 7; s++) {
		sent[s] = drain(&p.ramp, s * 1000, (s + 1) * 1000);
		p.ramp_denied = p.ramp_used = true;
		rdv_permits_second(&p, (struct rdv_mono){(s + 1) * 1000});
	}
	assert_in_range(sent[0], 50, 55);
	for (int s = 1; s < 7; s++)
		assert_in_range(sent[s], sent[s - 1] * 17 / 10, sent[s - 1] * 22 / 10);
	p.ramp_denied = true; /* held for a second: neither doubled nor over */
	rdv_permits_second(&p, (struct rdv_mono){8000});
	assert_in_range(drain(&p.ramp, 8000, 9000), sent[6] * 17 / 10, sent[6] * 22 / 10);
	p.ramp_denied = false;
	rdv_permits_second(&p, (struct rdv_mono){9000});
	assert_true(p.ramp_rate == 0);
}

static struct rdv_permits adaptive_permits(void)
{
	struct rdv_target_policy policy;
	struct rdv_permits p;

	rdv_target_policy_defaults(&policy);
	policy.adaptive = true;
	policy.concurrency = 8;
	policy.adaptive_max = 256;
	rdv_permits_init(&p, &policy, (struct rdv_mono){0});
	return p;
}

static void adaptive_second(struct rdv_permits *p, int64_t took_ms, int bad, bool saturated)
{
	for (int i = 0; i < 100; i++)
		rdv_permits_sample(p, took_ms, i < bad);
	p->adaptive.saturated = saturated;
	rdv_permits_second(p, (struct rdv_mono){0});
}

static void permits_adaptive_limit_grows_while_latency_holds_up_to_its_maximum(void **state)
{
	struct rdv_permits p = adaptive_permits();
	const char *what;

	assert_int_equal(p.limit, 8);
	adaptive_second(&p, 20, 0, false);
	assert_int_equal(p.limit, 8); /* not reached, so nothing to learn */
	for (int i = 0; i < 100; i++)
		adaptive_second(&p, 20, 0, true);
	assert_int_equal(p.limit, 256);
	assert_true(rdv_permits_check(&p, &what));
}

static void permits_adaptive_limit_gives_way_when_calls_queue_or_fail(void **state)
{
	struct rdv_permits p = adaptive_permits();

	for (int i = 0; i < 20; i++)
		adaptive_second(&p, 20, 0, true);
	assert_true(p.limit > 40);
	for (int i = 0; i < 6; i++)
		adaptive_second(&p, 100, 0, true);
	assert_true(p.limit < 60);
	for (int i = 0; i < 40; i++)
		adaptive_second(&p, 20, 50, true);
	assert_int_equal(p.limit, 4);
}

static void permits_fixed_limit_does_not_adapt(void **state)
{
	struct rdv_target_policy policy;
	struct rdv_permits p;

	rdv_target_policy_defaults(&policy);
	rdv_permits_init(&p, &policy, (struct rdv_mono){0});
	adaptive_second(&p, 20, 0, true);
	adaptive_second(&p, 900, 90, true);
	assert_int_equal(p.limit, 64);
	policy.concurrency = 3;
	rdv_permits_reload(&p, &policy, (struct rdv_mono){0});
	assert_int_equal(p.limit, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(permits_rate_stays_within_ten_percent_over_any_two_seconds),
		cmocka_unit_test(permits_slow_rates_are_exact),
		cmocka_unit_test(permits_wake_is_when_a_token_is_there_and_not_before),
		cmocka_unit_test(permits_bucket_without_a_rate_never_refuses),
		cmocka_unit_test(permits_reload_of_the_rate_gives_no_second_burst),
		cmocka_unit_test(permits_class_shares_are_70_22_8_of_every_hundred_grants),
		cmocka_unit_test(permits_what_one_class_leaves_the_others_use),
		cmocka_unit_test(permits_share_of_a_cancelled_grant_comes_back),
		cmocka_unit_test(permits_backlog_ramp_doubles_each_second_until_nobody_waits),
		cmocka_unit_test(permits_adaptive_limit_grows_while_latency_holds_up_to_its_maximum),
		cmocka_unit_test(permits_adaptive_limit_gives_way_when_calls_queue_or_fail),
		cmocka_unit_test(permits_fixed_limit_does_not_adapt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
