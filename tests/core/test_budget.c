/* test_budget.c - retry tokens: deposits, expiry, giving back, and what they make of honest retries and of an outage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/random.h"
#include "core/budget.h"

static struct rdv_budget fresh(double ratio, double per_second)
{
	const struct rdv_budget_policy policy = {true, ratio, per_second};
	struct rdv_budget b;

	rdv_budget_init(&b, &policy, (struct rdv_mono){0});
	return b;
}

static int spend_all(struct rdv_budget *b, int64_t now)
{
	int spent = 0;

	for (; rdv_budget_ready(b, now); spent++)
		rdv_budget_spend(b);
	return spent;
}

static void budget_starts_with_ten_tokens(void **state)
{
	struct rdv_budget b = fresh(0.2, 10);

	assert_int_equal(spend_all(&b, 0), 10);
}

static void budget_deposits_add_up_by_first_attempts_and_by_time(void **state)
{
	struct rdv_budget b = fresh(0.2, 10);

	spend_all(&b, 0);
	for (int i = 0; i < 50; i++)
		rdv_budget_first(&b);
	assert_int_equal(spend_all(&b, 0), 10);
	assert_int_equal(spend_all(&b, 99), 0);
	assert_int_equal(spend_all(&b, 100), 1);
	assert_int_equal(spend_all(&b, 2100), 20);
}

static void budget_deposits_expire_after_ten_seconds_but_ten_tokens_stay(void **state)
{
	struct rdv_budget b = fresh(0.2, 0);

	for (int i = 0; i < 500; i++)
		rdv_budget_first(&b);
	assert_int_equal(b.balance, 110 * (int64_t)RDV_BUDGET_TOKEN);
	rdv_budget_ready(&b, 9000);
	assert_int_equal(b.balance, 110 * (int64_t)RDV_BUDGET_TOKEN);
	rdv_budget_ready(&b, 11000);
	assert_int_equal(b.balance, 10 * (int64_t)RDV_BUDGET_TOKEN);
	rdv_budget_ready(&b, 1000000);
	assert_int_equal(spend_all(&b, 1000000), 10);
	assert_int_equal(spend_all(&b, 2000000), 0); /* spent is spent: only deposits bring new ones */
}

static void budget_idle_target_keeps_ten_seconds_of_deposits(void **state)
{
	struct rdv_budget b = fresh(0.2, 10);

	assert_in_range(spend_all(&b, 86400000), 90, 110);
}

static void budget_wake_is_when_time_brings_a_token(void **state)
{
	struct rdv_budget b = fresh(0.2, 10), never = fresh(0.2, 0);

	spend_all(&b, 50);
	assert_int_equal(rdv_budget_wake(&b), 100);
	assert_false(rdv_budget_ready(&b, 99));
	assert_true(rdv_budget_ready(&b, 100));
	spend_all(&never, 0);
	assert_true(rdv_budget_wake(&never) == RDV_NEVER);
}

/* A retry that succeeds gives its token back: ten tokens carry any number of honest retries. */
static void budget_honest_retries_flow_at_full_rate(void **state)
{
	struct rdv_budget b = fresh(0.2, 0);

	for (int i = 0; i < 100000; i++) {
		assert_true(rdv_budget_ready(&b, i));
		rdv_budget_spend(&b);
		rdv_budget_give(&b);
	}
	assert_true(rdv_budget_spent_ratio(&b) < 0.01);
}

/* 500 first attempts a second and every retry fails: 20 % of them and 10/s. */
static void budget_retries_of_an_outage_fall_to_the_deposits(void **state)
{
	struct rdv_budget b = fresh(0.2, 10);
	int spent = 0;

	for (int64_t ms = 0; ms < 60000; ms++) {
		if (ms % 2 == 0)
			rdv_budget_first(&b);
		if (ms == 30000)
			spent = 0;
		spent += spend_all(&b, ms);
	}
	assert_in_range(spent, 30 * 110 - 5, 30 * 110 + 5);
	assert_true(rdv_budget_spent_ratio(&b) > 0.95);
}

static void budget_off_never_refuses(void **state)
{
	const struct rdv_budget_policy policy = {false, 0.2, 10};
	struct rdv_budget b;

	rdv_budget_init(&b, &policy, (struct rdv_mono){0});
	for (int i = 0; i < 1000; i++) {
		assert_true(rdv_budget_ready(&b, 0));
		rdv_budget_spend(&b);
	}
	assert_true(rdv_budget_spent_ratio(&b) == 0);
}

static void budget_adds_up_whatever_happens(void **state)
{
	struct rdv_budget b = fresh(0.7, 3.3);
	struct rdv_random r;
	int64_t now = 0;
	int out = 0;
	const char *what;

	rdv_random_seed(&r, 3);
	for (int i = 0; i < 300000; i++) {
		uint64_t act = rdv_random_below(&r, 5);
		if (act == 0)
			now += (int64_t)rdv_random_below(&r, rdv_random_below(&r, 100) ? 40 : 30000);
		if (act == 1)
			rdv_budget_first(&b);
		if (act == 2 && rdv_budget_ready(&b, now)) {
			rdv_budget_spend(&b);
			out++;
		}
		if (act == 3 && out > 0) {
			rdv_budget_give(&b);
			out--;
		}
		if (act == 4 && rdv_random_below(&r, 10) == 0)
			rdv_budget_unfirst(&b);
		assert_true(rdv_budget_check(&b, &what));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(budget_starts_with_ten_tokens),
		cmocka_unit_test(budget_deposits_add_up_by_first_attempts_and_by_time),
		cmocka_unit_test(budget_deposits_expire_after_ten_seconds_but_ten_tokens_stay),
		cmocka_unit_test(budget_idle_target_keeps_ten_seconds_of_deposits),
		cmocka_unit_test(budget_wake_is_when_time_brings_a_token),
		cmocka_unit_test(budget_honest_retries_flow_at_full_rate),
		cmocka_unit_test(budget_retries_of_an_outage_fall_to_the_deposits),
		cmocka_unit_test(budget_off_never_refuses),
		cmocka_unit_test(budget_adds_up_whatever_happens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
