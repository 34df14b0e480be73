/* test_map.c - the hash and the chunks under it, against a naive model; memory and stalls stay bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/chunks.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/random.h"
#include <stdlib.h>

/* What an owner of a map looks like: items in chunks, each with its key and its link. */
struct item {
	uint32_t link;
	uint32_t key;
};

struct store {
	struct rdv_chunks items;
	struct rdv_map map;
	uint64_t mask; /* of the hash: few bits make long chains */
	unsigned hashed;
};

static struct item *item_at(struct store *s, uint32_t ref)
{
	return rdv_chunks_at(&s->items, ref);
}

static uint64_t hash_key(const struct store *s, uint32_t key)
{
	return rdv_xxh3(rdv_slice(&key, sizeof key)) & s->mask;
}

static uint64_t item_hash(void *owner, uint32_t ref)
{
	struct store *s = owner;

	s->hashed++;
	return hash_key(s, item_at(s, ref)->key);
}

static uint32_t *item_link(void *owner, uint32_t ref)
{
	return &item_at(owner, ref)->link;
}

static const struct rdv_map_ops item_ops = {item_hash, item_link};

static void store_init(struct store *s, uint64_t mask)
{
	rdv_chunks_init(&s->items, sizeof(struct item));
	rdv_map_init(&s->map, &item_ops, s);
	s->mask = mask;
	s->hashed = 0;
}

static void store_done(struct store *s)
{
	rdv_map_done(&s->map);
	rdv_chunks_done(&s->items);
}

static uint32_t store_find(struct store *s, uint32_t key)
{
	uint32_t ref = rdv_map_first(&s->map, hash_key(s, key));

	while (ref && item_at(s, ref)->key != key)
		ref = *item_link(s, ref);
	return ref;
}

static uint32_t store_add(struct store *s, uint32_t key)
{
	uint32_t ref = rdv_chunks_take(&s->items);

	assert_int_not_equal(ref, 0);
	item_at(s, ref)->key = key;
	assert_int_equal(rdv_map_insert(&s->map, ref), REDRIVE_OK);
	return ref;
}

static void store_remove(struct store *s, uint32_t ref)
{
	rdv_map_remove(&s->map, ref);
	rdv_chunks_free(&s->items, ref);
}

static void against_model(uint64_t mask, uint32_t keys, int steps, uint64_t seed)
{
	uint32_t *model = calloc(keys, sizeof *model); /* key -> ref */
	struct rdv_random r;
	struct store s;
	uint32_t count = 0;

	store_init(&s, mask);
	rdv_random_seed(&r, seed);
	for (int i = 0; i < steps; i++) {
		uint32_t key = (uint32_t)rdv_random_below(&r, keys);
		/* Waves: mostly inserts, then mostly removes, so that growth meets holes. */
		bool insert = rdv_random_below(&r, 100) < (i / 20000 % 2 ? 20 : 80);
		assert_int_equal(store_find(&s, key), model[key]);
		if (insert && !model[key]) {
			model[key] = store_add(&s, key);
			count++;
		} else if (!insert && model[key]) {
			store_remove(&s, model[key]);
			model[key] = 0;
			count--;
		}
		assert_int_equal(s.map.count, count);
		assert_int_equal(s.items.count, count);
	}
	for (uint32_t key = 0; key < keys; key++)
		assert_int_equal(store_find(&s, key), model[key]);
	store_done(&s);
	free(model);
}

static void map_agrees_with_a_model_over_200000_steps(void **state)
{
	against_model(UINT64_MAX, 100000, 200000, 31);
}

static void map_agrees_with_a_model_when_hashes_collide(void **state)
{
	against_model(0x3F, 2000, 60000, 32);
	against_model(0, 200, 20000, 33);
	against_model(0xFFFFFFFF00000000u, 200, 20000, 34); /* the low bits say nothing */
}

static void map_is_empty_before_the_first_insert(void **state)
{
	struct store s;

	store_init(&s, UINT64_MAX);
	assert_int_equal(rdv_map_first(&s.map, 12345), 0);
	store_done(&s);
	store_done(&s);
	rdv_map_done(NULL);
	rdv_chunks_done(NULL);
}

/* No insert moves more than one chain, however large the map has become. */
static void map_grows_by_one_bucket_per_insert(void **state)
{
	struct store s;
	unsigned most = 0;

	store_init(&s, UINT64_MAX);
	for (uint32_t key = 0; key < 300000; key++) {
		uint64_t buckets = s.map.chunk_count ? (1ull << s.map.level) + s.map.split : 16, now;
		s.hashed = 0;
		store_add(&s, key);
		now = (1ull << s.map.level) + s.map.split;
		assert_in_range(now - buckets, 0, 1);
		assert_true(3ull * s.map.count <= 4 * now);
		if (s.hashed > most)
			most = s.hashed;
	}
	assert_in_range(most, 2, 30); /* one chain and the new entry */
	for (uint32_t key = 0; key < 300000; key++)
		assert_int_not_equal(store_find(&s, key), 0);
	store_done(&s);
}

static void chunks_never_move_and_reuse_the_last_freed(void **state)
{
	enum { ITEMS = 3 * RDV_CHUNK_ITEMS + 5 };
	struct rdv_chunks c;
	void **where = calloc(ITEMS + 1, sizeof *where);

	rdv_chunks_init(&c, 24);
	for (uint32_t i = 1; i <= ITEMS; i++) {
		assert_int_equal(rdv_chunks_take(&c), i); /* references count from 1 */
		where[i] = rdv_chunks_at(&c, i);
		memset(where[i], 0xEE, 24);
	}
	for (uint32_t i = 1; i <= ITEMS; i++)
		assert_ptr_equal(rdv_chunks_at(&c, i), where[i]);
	assert_int_equal(c.chunk_count, 4);
	assert_true(rdv_chunks_bytes(&c) >= 4u * RDV_CHUNK_ITEMS * 24);
	rdv_chunks_free(&c, 7);
	rdv_chunks_free(&c, 40000);
	rdv_chunks_free(&c, 1);
	assert_int_equal(c.count, ITEMS - 3);
	assert_int_equal(rdv_chunks_take(&c), 1);
	assert_int_equal(rdv_chunks_take(&c), 40000);
	assert_int_equal(rdv_chunks_take(&c), 7);
	assert_int_equal(rdv_chunks_take(&c), ITEMS + 1);
	rdv_chunks_done(&c);
	free(where);
}

static void chunks_items_are_zeroed_also_when_reused(void **state)
{
	static const uint8_t zero[40];
	struct rdv_chunks c;
	uint32_t ref;

	rdv_chunks_init(&c, sizeof zero);
	ref = rdv_chunks_take(&c);
	assert_memory_equal(rdv_chunks_at(&c, ref), zero, sizeof zero);
	memset(rdv_chunks_at(&c, ref), 0xFF, sizeof zero);
	(void)rdv_chunks_take(&c);
	rdv_chunks_free(&c, ref);
	assert_int_equal(rdv_chunks_take(&c), ref);
	assert_memory_equal(rdv_chunks_at(&c, ref), zero, sizeof zero);
	rdv_chunks_done(&c);
}

static void chunks_neighbours_do_not_overlap(void **state)
{
	static const size_t sizes[] = {4, 5, 7, 48, 72};

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct rdv_chunks c;
		uint8_t want[72];
		rdv_chunks_init(&c, sizes[i]);
		for (uint32_t n = 0; n < 20000; n++) {
			uint32_t ref = rdv_chunks_take(&c);
			memset(rdv_chunks_at(&c, ref), (int)(ref % 251), sizes[i]);
		}
		for (uint32_t ref = 1; ref <= 20000; ref++) {
			memset(want, (int)(ref % 251), sizes[i]);
			assert_memory_equal(rdv_chunks_at(&c, ref), want, sizes[i]);
		}
		rdv_chunks_done(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_agrees_with_a_model_over_200000_steps),
		cmocka_unit_test(map_agrees_with_a_model_when_hashes_collide),
		cmocka_unit_test(map_is_empty_before_the_first_insert),
		cmocka_unit_test(map_grows_by_one_bucket_per_insert),
		cmocka_unit_test(chunks_never_move_and_reuse_the_last_freed),
		cmocka_unit_test(chunks_items_are_zeroed_also_when_reused),
		cmocka_unit_test(chunks_neighbours_do_not_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
