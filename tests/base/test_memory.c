/* test_memory.c - what the containers do when memory is short: the Nth allocation fails, for every N.
 *
 * The modules are compiled into this program with an allocator that counts, so that every one of their
 * allocations is reached. A failure must be reported, change nothing, and be over when memory is back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <stdbool.h>

static long countdown; /* allocations until the one that fails; 0 = none fails */
static unsigned failures;

static bool fails(void)
{
	if (countdown == 0 || --countdown)
		return false;
	failures++;
	return true;
}

#define malloc(size) (fails() ? NULL : malloc(size))
#define calloc(count, size) (fails() ? NULL : calloc(count, size))
#define realloc(old, size) (fails() ? NULL : realloc(old, size))
#define add_chunk map_add_chunk
#include "../../src/base/map.c"
#undef add_chunk
#include "../../src/base/chunks.c"
#include "../../src/base/bytes.c"
#include "../../src/base/block.c"
#include "../../src/base/queue.c"
#undef malloc
#undef calloc
#undef realloc

enum { ITEMS = 90000 }; /* more than one chunk of buckets and of items */

struct store {
	struct rdv_chunks items; /* of links */
	struct rdv_map map;
};

static uint64_t spread(void *owner, uint32_t ref)
{
	return ref * 0x9E3779B97F4A7C15u >> 20;
}

static uint32_t *link_of(void *owner, uint32_t ref)
{
	return rdv_chunks_at(&((struct store *)owner)->items, ref);
}

static const struct rdv_map_ops ops = {spread, link_of};

static bool is_in(struct store *s, uint32_t ref)
{
	uint32_t at = rdv_map_first(&s->map, spread(s, ref));

	while (at && at != ref)
		at = *link_of(s, at);
	return at == ref;
}

/* Adds `count` items, each until it succeeds; every failure leaves what was there. */
static void fill(struct store *s, uint32_t count)
{
	while (s->map.count < count) {
		uint32_t before = s->map.count, ref = rdv_chunks_take(&s->items);
		if (!ref) {
			assert_int_equal(s->items.count, before);
			continue;
		}
		if (rdv_map_insert(&s->map, ref) != REDRIVE_OK) {
			assert_int_equal(s->map.count, before);
			assert_false(is_in(s, ref));
			rdv_chunks_free(&s->items, ref);
			continue;
		}
	}
	for (uint32_t ref = 1; ref <= count; ref++)
		if (!is_in(s, ref))
			fail_msg("%u is lost", ref);
}

static void map_and_chunks_survive_any_failed_allocation(void **state)
{
	unsigned reached = 0;

	for (long n = 1;; n++) {
		struct store s;
		rdv_chunks_init(&s.items, 8);
		rdv_map_init(&s.map, &ops, &s);
		countdown = n;
		failures = 0;
		fill(&s, ITEMS);
		countdown = 0;
		reached += failures;
		rdv_map_done(&s.map);
		rdv_chunks_done(&s.items);
		if (!failures)
			break;
	}
	assert_in_range(reached, 10, 1000); /* something did fail */
}

static void buffer_reports_a_failed_allocation_and_can_be_used_again(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	rdv_buffer_text(&b, "kept");
	for (long n = 1; n <= 4; n++) {
		failures = 0;
		countdown = n;
		while (!failures && b.size < 100000)
			rdv_buffer_printf(&b, "%64d", 1);
		assert_int_equal(failures, 1);
		assert_true(b.failed);
		assert_memory_equal(b.data, "kept", 4); /* what was there is still there */
		assert_string_equal(rdv_buffer_string(&b), "");
		b.failed = false;
	}
	countdown = 1;
	rdv_buffer_done(&b);
	assert_string_equal(rdv_buffer_string(&b), "");
	assert_true(b.failed);
	countdown = 0;
	rdv_buffer_done(&b);
}

static void block_and_queue_report_a_failed_allocation(void **state)
{
	struct rdv_queue q;

	countdown = 1;
	assert_null(rdv_block_copy(rdv_slice_text("body")));
	countdown = 1;
	assert_int_equal(rdv_queue_init(&q, 8), REDRIVE_NO_MEMORY);
	rdv_queue_done(&q);
	countdown = 0;
	assert_int_equal(rdv_queue_init(&q, 8), REDRIVE_OK);
	rdv_queue_done(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_and_chunks_survive_any_failed_allocation),
		cmocka_unit_test(buffer_reports_a_failed_allocation_and_can_be_used_again),
		cmocka_unit_test(block_and_queue_report_a_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
