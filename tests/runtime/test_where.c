/* test_where.c - searching for messages: by keys that a lane cannot tell apart. */
#include "harness.h"
#include "runtime/room.h"

#define T "orders"
#define KEYS 400000u

uint32_t rdv_lane_fold_key(uint64_t key_hash); /* core/lane_parts.h */

struct hashed {
	uint32_t fold;
	unsigned key;
};

static int by_fold(const void *a, const void *b)
{
	const struct hashed *x = a, *y = b;

	return (x->fold > y->fold) - (x->fold < y->fold);
}

static void key_text(unsigned key, char text[16])
{
	snprintf(text, 16, "key-%u", key);
}

/* Two keys with one hash of 32 bits; hashes have a secret, so they are looked for. */
static void find_pair(struct rdv_engine *e, char one[16], char other[16])
{
	struct rdv_topic *topic = rdv_topic_find(e->topics, rdv_slice_text(T));
	struct hashed *all = calloc(KEYS, sizeof *all);
	unsigned i = 1;

	for (unsigned key = 0; key < KEYS; key++) {
		key_text(key, one);
		all[key] = (struct hashed){rdv_lane_fold_key(rdv_topic_key_hash(topic, rdv_slice_text(one))), key};
	}
	qsort(all, KEYS, sizeof *all, by_fold);
	while (i < KEYS && all[i].fold != all[i - 1].fold)
		i++;
	assert_true(i < KEYS); /* not found once in 10^8 runs */
	key_text(all[i - 1].key, one);
	key_text(all[i].key, other);
	free(all);
}

static void only_messages_of_the_key_are_found(void **state)
{
	char *dir = new_dir(), one[16], other[16];
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_message_status *list;
	struct rdv_engine *e;
	uint64_t next = 0;
	size_t count, found = 0;

	(void)state;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(rdv_engine_pause(e, "r", true), REDRIVE_OK);
	find_pair(e, one, other);
	for (int i = 0; i < 10; i++)
		assert_int_equal(publish_keyed(e, T, i < 3 || i % 2 ? other : one, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", ready, 10);
	do { /* pages are full although some that were found do not count */
		assert_int_equal(rdv_engine_where_key(e, rdv_slice_text(one), NULL, 2, &next, &list, &count),
				 REDRIVE_OK);
		assert_true(count == 2 || !next);
		for (size_t i = 0; i < count; i++) {
			assert_int_equal(list[i].offset, 4 + 2 * (found + i));
			assert_int_equal(list[i].key_size, strlen(one));
			assert_memory_equal(list[i].key, one, list[i].key_size);
			rdv_message_status_done(&list[i]);
		}
		free(list);
		found += count;
	} while (next);
	assert_int_equal(found, 3);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_messages_of_the_key_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
