/* test_bodies.c - where calls find their bodies when deliveries lie behind: pieces of the log, read for many calls. */
#include "harness.h"
#include "runtime/room.h"

struct backlog {
	unsigned messages, size; /* more bytes than the recent buffers hold */
};
static const struct backlog of_small = {30000, 1024};
static const struct backlog of_large = {600, 60000}; /* a piece holds 17, so a frame lies across most pieces' ends */
#define BATCH_BYTES 500000u
#define BATCH_MAX 500u

static void publish_all(struct rdv_engine *e, struct backlog b)
{
	static char bytes[BATCH_BYTES + 65536];
	static struct rdv_message messages[BATCH_MAX];
	static struct rdv_published_at at[BATCH_MAX];
	unsigned batch = BATCH_BYTES / b.size < BATCH_MAX ? BATCH_BYTES / b.size : BATCH_MAX;
	struct rdv_error error = {0};

	memset(bytes, 'x', sizeof bytes);
	for (unsigned n = 0, count; n < b.messages; n += count) {
		count = b.messages - n < batch ? b.messages - n : batch;
		for (unsigned i = 0; i < count; i++) {
			snprintf(&bytes[i * b.size], 12, "%u ", n + i);
			messages[i] = (struct rdv_message){.body = rdv_slice(&bytes[i * b.size], b.size)};
		}
		assert_int_equal(rdv_engine_publish_wait(e, rdv_slice_text("orders"), messages, count, at, &error),
				 REDRIVE_OK);
	}
}

static bool read_a_piece(const struct rdv_engine *e)
{
	for (int i = RDV_RECENT_MAX; i < RDV_RECENT_MAX + RDV_PIECES_MAX; i++)
		if (e->recent[i].piece)
			return true;
	return false;
}

/* Publishes all while the handler is blocked, then lets it go; the first `bad` calls fail. */
static void deliver_a_backlog(struct backlog b, unsigned bad)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options route = route_options("billing", "orders", h);
	struct rdv_engine_options options = engine_options(dir);
	struct rdv_engine *e;

	h->bad = bad;
	h->blocked = true;
	route.lane.retry.attempts = 1000;
	route.target_policy.concurrency = 256;
	e = start_engine(&options, &route, 1);
	publish_all(e, b);
	handler_block(h, false);
	assert_true(handler_wait(h, &h->done, b.messages));
	rdv_engine_stop(e);
	assert_int_equal(h->calls, b.messages + bad);
	for (unsigned i = 0; i < h->calls; i++)
		assert_int_equal(atol(h->seen[i].body), h->seen[i].offset);
	assert_true(read_a_piece(e));
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_backlog_is_read_by_the_piece_and_every_call_has_its_own_body(void **state)
{
	deliver_a_backlog(of_small, 0);
}

static void so_are_the_retries_behind_a_backlog(void **state)
{
	deliver_a_backlog(of_small, of_small.messages);
}

/* It is read for itself: the piece is not asked for again and again. */
static void a_body_that_reaches_beyond_its_piece_is_delivered(void **state)
{
	deliver_a_backlog(of_large, 0);
	deliver_a_backlog(of_large, of_large.messages);
}

static void a_region_is_counted_from_its_lowest_place_among_others(void **state)
{
	struct rdv_regions r = {0};
	uint64_t lowest;

	for (unsigned i = 1; i <= 100; i++) { /* two at once, asked for in any order */
		struct rdv_place here = {3, (1u << 20) + (i * 37 % 100) * 340, 300}, there = {7, i * 1000, 300};

		assert_int_equal(rdv_regions_ask(&r, &here, &lowest), i);
		assert_int_equal(rdv_regions_ask(&r, &there, &lowest), i);
		assert_int_equal(lowest, 7ull << 32 | 1000);
	}
	assert_int_equal(rdv_regions_ask(&r, &(struct rdv_place){3, 2u << 20, 300}, &lowest), 1);
	assert_int_equal(rdv_regions_ask(&r, &(struct rdv_place){3, (1u << 20) + 9, 300}, &lowest), 101);
	assert_int_equal(lowest, 3ull << 32 | 1u << 20);
	for (uint32_t i = 10; i < 10 + RDV_REGIONS; i++) /* forgotten for new ones */
		assert_int_equal(rdv_regions_ask(&r, &(struct rdv_place){i, 4096, 300}, &lowest), 1);
	assert_int_equal(rdv_regions_ask(&r, &(struct rdv_place){3, (1u << 20) + 9, 300}, &lowest), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_backlog_is_read_by_the_piece_and_every_call_has_its_own_body),
		cmocka_unit_test(so_are_the_retries_behind_a_backlog),
		cmocka_unit_test(a_body_that_reaches_beyond_its_piece_is_delivered),
		cmocka_unit_test(a_region_is_counted_from_its_lowest_place_among_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
