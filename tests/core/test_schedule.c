/* test_schedule.c - the due-time wheel: never early, in order, whatever the distance. */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include "base/random.h"
#include "core/schedule.h"

static struct rdv_chunks entries;
static struct rdv_schedule s;

static int setup(void **state)
{
	(void)state;
	rdv_chunks_init(&entries, sizeof(struct rdv_entry));
	rdv_schedule_init(&s, &entries);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rdv_schedule_done(&s);
	rdv_chunks_done(&entries);
	return 0;
}

static uint32_t add(int64_t due)
{
	uint32_t ref = rdv_chunks_take(&entries);

	rdv_entry_at(&entries, ref)->due = due;
	rdv_schedule_add(&s, ref);
	return ref;
}

static void nothing_fires_early_and_nothing_late(void **state)
{
	static const int64_t dues[] = {0,          1,          2,          63,          64,       65,
				       4095,       4096,       4097,       262143,      262144,   86400000,
				       4294967295, 4294967296, 4294967297, 31536000000, 1ll << 50};

	(void)state;
	for (size_t i = 0; i < sizeof dues / sizeof dues[0]; i++) {
		uint32_t ref = add(dues[i]);
		assert_true(rdv_schedule_check(&s));
		if (dues[i] > 0)
			assert_int_equal(rdv_schedule_pop(&s, dues[i] - 1), 0);
		assert_true(rdv_schedule_next(&s) <= dues[i]);
		assert_int_equal(rdv_schedule_pop(&s, dues[i]), ref);
		assert_int_equal(rdv_schedule_next(&s), RDV_NEVER);
	}
}

/* pitfall: a delay beyond the timer's range */
static void the_farthest_time_neither_fires_nor_overflows(void **state)
{
	(void)state;
	uint32_t far = add(INT64_MAX - 1);
	assert_int_equal(rdv_schedule_pop(&s, 1ll << 60), 0);
	assert_true(rdv_schedule_check(&s));
	assert_int_equal(rdv_schedule_pop(&s, INT64_MAX - 1), far);
}

static void what_is_past_is_due_at_once(void **state)
{
	(void)state;
	assert_int_equal(rdv_schedule_pop(&s, 5000), 0);
	uint32_t a = add(10), b = add(-7);
	assert_true(rdv_schedule_next(&s) <= 5000);
	assert_int_equal(rdv_schedule_pop(&s, 5000), a);
	assert_int_equal(rdv_schedule_pop(&s, 5000), b);
}

static void random_dues_come_in_order_whatever_the_steps(void **state)
{
	struct rdv_random random;

	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		int64_t now = 0, last = 0;
		uint64_t left = 0;
		rdv_random_seed(&random, seed);
		for (int round = 0; round < 300; round++) {
			for (uint64_t n = rdv_random_below(&random, 8); n > 0; n--, left++)
				add(now + (int64_t)rdv_random_below(&random, 1ull << rdv_random_below(&random, 34)));
			now += (int64_t)rdv_random_below(&random, 1ull << rdv_random_below(&random, 30));
			for (uint32_t ref; (ref = rdv_schedule_pop(&s, now)) != 0; left--) {
				int64_t due = rdv_entry_at(&entries, ref)->due;
				assert_true(due <= now);
				last = due;
				rdv_chunks_free(&entries, ref);
			}
			assert_true(rdv_schedule_next(&s) > now || left == 0);
			assert_true(rdv_schedule_check(&s));
			assert_int_equal(s.count, left);
		}
		while (left) {
			uint32_t ref = rdv_schedule_pop(&s, INT64_MAX - 1);
			assert_true(ref != 0);
			assert_true(rdv_entry_at(&entries, ref)->due >= last ||
				    rdv_entry_at(&entries, ref)->due <= now);
			rdv_chunks_free(&entries, ref);
			left--;
		}
		teardown(NULL);
		setup(NULL);
	}
}

static void next_leads_from_one_due_to_the_other(void **state)
{
	(void)state;
	int64_t dues[] = {7, 100, 5000, 90000, 7000000}, now = 0;

	for (int i = 0; i < 5; i++)
		add(dues[i]);
	for (int i = 0, steps = 0; i < 5; steps++) {
		now = rdv_schedule_next(&s);
		assert_true(now <= dues[i]);
		if (rdv_schedule_pop(&s, now))
			i++;
		assert_true(steps < 60);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_fires_early_and_nothing_late), T(the_farthest_time_neither_fires_nor_overflows),
		T(what_is_past_is_due_at_once),          T(random_dues_come_in_order_whatever_the_steps),
		T(next_leads_from_one_due_to_the_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
