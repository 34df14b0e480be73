/* test_evidence.c - the window against a naive count, bounded memory, and the throughput before an outage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/random.h"
#include "core/evidence.h"

static struct rdv_evidence evidence_of(int64_t window_ms)
{
	struct rdv_target_policy policy;
	struct rdv_evidence e;

	rdv_target_policy_defaults(&policy);
	policy.breaker.window_ms = window_ms;
	rdv_evidence_init(&e, &policy.breaker, (struct rdv_mono){0});
	return e;
}

struct outcome {
	int64_t at;
	uint64_t message; /* 0 = ok */
	bool counts;
};

/* Counted the slow way: each message once, where it failed last. */
static void compare(const struct rdv_evidence *e, const struct outcome *all, size_t count, int64_t now)
{
	int64_t from = (now / e->slice_ms - 9) * e->slice_ms;
	uint64_t ok = 0, bad = 0, failing = 0;

	for (size_t i = 0; i < count; i++) {
		bool last = true, last_counting = all[i].counts;
		if (all[i].at < from)
			continue;
		for (size_t k = i + 1; k < count && all[i].message != 0; k++) {
			last = last && all[k].message != all[i].message;
			last_counting = last_counting && !(all[k].message == all[i].message && all[k].counts);
		}
		ok += all[i].message == 0 && all[i].counts;
		bad += all[i].message != 0 && last_counting;
		failing += all[i].message != 0 && last;
	}
	assert_int_equal(e->ok, ok);
	assert_int_equal(e->bad, bad);
	assert_int_equal(e->failing, failing);
}

static void evidence_window_counts_each_message_once_like_a_naive_count(void **state)
{
	static struct outcome all[1500];
	struct rdv_random r;
	const char *what;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rdv_evidence e = evidence_of(10000);
		int64_t now = 0;
		rdv_random_seed(&r, seed);
		for (size_t i = 0; i < 1500; i++) {
			now += (int64_t)rdv_random_below(&r, rdv_random_below(&r, 200) ? 60 : 25000);
			all[i] = (struct outcome){now, rdv_random_below(&r, 2) ? 0 : 1 + rdv_random_below(&r, 40),
						  rdv_random_below(&r, 3) > 0};
			rdv_evidence_roll(&e, now);
			if (all[i].message == 0)
				rdv_evidence_ok(&e, now, all[i].counts);
			else
				rdv_evidence_bad(&e, now, all[i].message, all[i].counts);
			assert_true(rdv_evidence_check(&e, &what));
			if (i % 50 == 0)
				compare(&e, all, i + 1, now);
		}
	}
}

static void evidence_of_more_messages_than_it_can_tell_apart_still_adds_up(void **state)
{
	struct rdv_evidence e = evidence_of(10000);
	const char *what;

	for (int round = 0; round < 3; round++)
		for (uint64_t m = 1; m <= 5000; m++)
			rdv_evidence_bad(&e, 500, m, true);
	assert_true(rdv_evidence_check(&e, &what));
	assert_in_range(e.bad, 5000, 15000); /* each counted; some more than once */
	rdv_evidence_roll(&e, 60000);
	assert_int_equal(e.bad, 0);
	assert_int_equal(e.failing, 0);
	assert_true(rdv_evidence_check(&e, &what));
}

static void evidence_of_others_is_that_of_ten_seconds_in_a_longer_window(void **state)
{
	struct rdv_evidence e = evidence_of(100000);

	for (int i = 0; i < 100; i++)
		rdv_evidence_ok(&e, 5000, true);
	assert_true(rdv_evidence_others_fine(&e, 1));
	rdv_evidence_roll(&e, 21000);
	assert_false(rdv_evidence_others_fine(&e, 1));
	assert_int_equal(e.ok, 100);
}

/* `per_second` oks in each second of [from, to). */
static void flow(struct rdv_evidence *e, int64_t from, int64_t to, int per_second)
{
	for (int64_t s = from; s < to; s++) {
		rdv_evidence_roll(e, s * 1000);
		for (int i = 0; i < per_second; i++)
			rdv_evidence_ok(e, s * 1000, false);
	}
}

static void evidence_throughput_is_that_of_ten_seconds_before_the_outage(void **state)
{
	struct rdv_evidence e = evidence_of(10000);

	flow(&e, 0, 20, 100);
	flow(&e, 20, 30, 300);
	flow(&e, 30, 33, 5); /* the outage has begun at 30 */
	rdv_evidence_roll(&e, 33500);
	assert_true(rdv_evidence_throughput(&e, 30000) == 300);
	assert_true(rdv_evidence_throughput(&e, 25000) == 200); /* half and half */
	rdv_evidence_reset(&e, (struct rdv_mono){33500});
	assert_true(rdv_evidence_throughput(&e, 30000) == 300); /* a reset forgets no throughput */
	rdv_evidence_roll(&e, 500000);
	assert_true(rdv_evidence_throughput(&e, 500000) == 0);
	assert_true(rdv_evidence_throughput(&e, 30000) == 0); /* too long ago to know */
}

static void evidence_throughput_of_a_young_target_counts_what_there_is(void **state)
{
	struct rdv_evidence e = evidence_of(10000);

	assert_true(rdv_evidence_throughput(&e, 0) == 0);
	flow(&e, 0, 1, 40);
	assert_true(rdv_evidence_throughput(&e, 500) == 40);
	flow(&e, 1, 3, 40);
	rdv_evidence_roll(&e, 3000);
	assert_true(rdv_evidence_throughput(&e, 3000) == 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(evidence_window_counts_each_message_once_like_a_naive_count),
		cmocka_unit_test(evidence_of_more_messages_than_it_can_tell_apart_still_adds_up),
		cmocka_unit_test(evidence_of_others_is_that_of_ten_seconds_in_a_longer_window),
		cmocka_unit_test(evidence_throughput_is_that_of_ten_seconds_before_the_outage),
		cmocka_unit_test(evidence_throughput_of_a_young_target_counts_what_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
