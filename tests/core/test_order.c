/* test_order.c - members of keys by position, and ages of what is unfinished. */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include "base/random.h"
#include "core/ages.h"
#include "core/order.h"

static struct rdv_chunks entries;
static struct rdv_keys keys;

static int setup(void **state)
{
	(void)state;
	rdv_chunks_init(&entries, sizeof(struct rdv_entry));
	rdv_order_init(&keys, &entries);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rdv_order_done(&keys);
	rdv_chunks_done(&entries);
	return 0;
}

static uint32_t entry(uint64_t seq)
{
	uint32_t ref = rdv_chunks_take(&entries);

	rdv_entry_at(&entries, ref)->seq = seq;
	return ref;
}

static void a_key_is_made_once_and_given_back_when_idle(void **state)
{
	(void)state;
	uint32_t key = rdv_order_get(&keys, 77);
	assert_int_equal(rdv_order_get(&keys, 77), key);
	assert_int_equal(rdv_order_find(&keys, 77), key);
	assert_int_equal(rdv_order_find(&keys, 78), 0);
	rdv_order_key(&keys, key)->refs = 1;
	rdv_order_drop_idle(&keys, key);
	assert_int_equal(rdv_order_find(&keys, 77), key);
	rdv_order_key(&keys, key)->refs = 0;
	rdv_order_key(&keys, key)->closed = 1;
	keys.closed = 1;
	rdv_order_drop_idle(&keys, key);
	assert_int_equal(rdv_order_find(&keys, 77), key);
	rdv_order_key(&keys, key)->closed = 0;
	keys.closed = 0;
	rdv_order_drop_idle(&keys, key);
	assert_int_equal(rdv_order_find(&keys, 77), 0);
	assert_true(rdv_order_check(&keys));
}

static void members_are_sorted_by_position_however_they_join(void **state)
{
	struct rdv_random random;
	uint32_t members[100];
	bool in[100] = {false};

	(void)state;
	rdv_random_seed(&random, 3);
	uint32_t key = rdv_order_get(&keys, 1);
	for (uint64_t i = 0; i < 100; i++)
		members[i] = entry(i);
	for (int step = 0; step < 5000; step++) {
		struct rdv_key *k = rdv_order_key(&keys, key);
		uint64_t i = rdv_random_below(&random, 100), first = 0;
		if (in[i])
			rdv_order_remove(&keys, k, members[i]);
		else
			rdv_order_insert(&keys, k, members[i]);
		in[i] = !in[i];
		while (first < 100 && !in[first])
			first++;
		assert_int_equal(k->first, first < 100 ? members[first] : 0);
		assert_true(rdv_order_check(&keys));
	}
}

static void a_hundred_thousand_keys_are_all_found(void **state)
{
	(void)state;
	for (uint64_t h = 1; h <= 100000; h++)
		assert_true(rdv_order_get(&keys, h * 0x9e3779b97f4a7c15ull) != 0);
	assert_true(rdv_order_check(&keys));
	assert_true(rdv_chunks_bytes(&keys.keys) < 100000 * 60);
}

static void the_oldest_age_is_never_too_young(void **state)
{
	struct rdv_ages a = {0};
	struct rdv_random random;
	static int64_t came[20000];
	static bool live[20000];
	uint64_t first = 0;
	int64_t now = 1000;

	(void)state;
	rdv_random_seed(&random, 9);
	assert_int_equal(rdv_ages_oldest(&a), RDV_NEVER);
	for (uint64_t seq = 0; seq < 20000; seq++) {
		uint64_t gone = rdv_random_below(&random, seq + 1);
		now += (int64_t)rdv_random_below(&random, 3000);
		came[seq] = now;
		live[seq] = true;
		rdv_ages_add(&a, seq, (struct rdv_wall){now});
		if (live[gone] && rdv_random_below(&random, 10)) {
			live[gone] = false;
			rdv_ages_remove(&a, gone);
		}
		while (first < seq && !live[first])
			first++;
		if (live[first])
			assert_true(rdv_ages_oldest(&a) <= came[first]);
		assert_true(a.count <= RDV_AGES_MAX);
	}
	for (uint64_t seq = 0; seq < 20000; seq++)
		if (live[seq])
			rdv_ages_remove(&a, seq);
	assert_int_equal(rdv_ages_oldest(&a), RDV_NEVER);
	assert_int_equal(rdv_ages_live(&a), 0);
	rdv_ages_done(&a);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_key_is_made_once_and_given_back_when_idle),
		T(members_are_sorted_by_position_however_they_join),
		T(a_hundred_thousand_keys_are_all_found),
		T(the_oldest_age_is_never_too_young),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
