/* test_dedupe.c - the window of done keys, by time and by entries. */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include "core/dedupe.h"

static struct rdv_dedupe d;

static int setup(void **state)
{
	(void)state;
	rdv_dedupe_init(&d);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rdv_dedupe_done(&d);
	return 0;
}

static uint32_t find(uint64_t key)
{
	return rdv_dedupe_find(&d, (struct rdv_hash128){key, ~key});
}

static uint32_t claim(uint64_t key, uint64_t owner)
{
	return rdv_dedupe_claim(&d, (struct rdv_hash128){key, ~key}, (struct rdv_dedupe_owner){owner, 1});
}

static void a_claimed_key_has_its_owner_until_it_is_finished_or_freed(void **state)
{
	(void)state;
	uint32_t a = claim(1, 100), b = claim(2, 200);
	assert_int_equal(find(1), a);
	assert_int_equal(rdv_dedupe_owned(&d, (struct rdv_dedupe_owner){100, 1}), a);
	assert_int_equal(rdv_dedupe_owned(&d, (struct rdv_dedupe_owner){300, 1}), 0);
	rdv_dedupe_finish(&d, a, (struct rdv_wall){1000}, 10);
	assert_int_equal(rdv_dedupe_owned(&d, (struct rdv_dedupe_owner){100, 1}), 0);
	assert_int_equal(rdv_dedupe_at(&d, find(1))->state, RDV_DEDUPE_DONE);
	rdv_dedupe_free(&d, b);
	assert_int_equal(find(2), 0);
	assert_true(rdv_dedupe_check(&d));
}

static void a_key_with_the_same_low_half_is_another_key(void **state)
{
	(void)state;
	uint32_t a = rdv_dedupe_claim(&d, (struct rdv_hash128){7, 1}, (struct rdv_dedupe_owner){1, 1}),
		 b = rdv_dedupe_claim(&d, (struct rdv_hash128){7, 2}, (struct rdv_dedupe_owner){2, 1});
	assert_int_equal(rdv_dedupe_find(&d, (struct rdv_hash128){7, 1}), a);
	assert_int_equal(rdv_dedupe_find(&d, (struct rdv_hash128){7, 2}), b);
	assert_int_equal(rdv_dedupe_find(&d, (struct rdv_hash128){7, 3}), 0);
}

static void done_keys_go_when_their_time_is_over(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 10; i++)
		rdv_dedupe_finish(&d, claim(i, i), (struct rdv_wall){(int64_t)i * 100}, 100);
	rdv_dedupe_expire(&d, (struct rdv_wall){499}, UINT32_MAX);
	assert_int_equal(d.done, 5);
	assert_int_equal(find(4), 0);
	assert_int_not_equal(find(5), 0);
	rdv_dedupe_expire(&d, (struct rdv_wall){500}, UINT32_MAX);
	assert_int_equal(find(5), 0);
	assert_int_equal(d.evicted, 0);
}

static void beyond_the_limit_the_oldest_done_go_early_and_are_counted(void **state)
{
	(void)state;
	uint32_t busy = claim(1000, 1000);
	for (uint64_t i = 0; i < 100; i++) {
		rdv_dedupe_finish(&d, claim(i, i), (struct rdv_wall){INT64_MAX}, 10);
		assert_true(rdv_dedupe_check(&d));
	}
	assert_int_equal(d.done, 10);
	assert_int_equal(d.evicted, 90);
	assert_int_equal(find(89), 0);
	assert_int_not_equal(find(90), 0);
	assert_int_equal(find(1000), busy); /* what is at work is never evicted */
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_claimed_key_has_its_owner_until_it_is_finished_or_freed),
		T(a_key_with_the_same_low_half_is_another_key),
		T(done_keys_go_when_their_time_is_over),
		T(beyond_the_limit_the_oldest_done_go_early_and_are_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
