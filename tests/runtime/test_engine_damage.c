/* test_engine_damage.c - bytes of the journal's oldest segment have changed while the engine runs: trimming goes on,
 * and nothing is lost unsaid or comes back. */
#include <errno.h>
#include <fcntl.h>
#include "harness.h"
#include "desk/desk.h"
#include "log/faulty_files.h"
#include "runtime/room.h"

#define HOUR_MS 3600000

static _Atomic unsigned said;

static void count_words(void *ctx, int level, const char *text)
{
	(void)ctx;
	(void)level;
	if (getenv("SAY"))
		fprintf(stderr, "[%d] %s\n", level, text);
	if (strstr(text, "set aside") || strstr(text, "cannot be read for trimming"))
		atomic_fetch_add(&said, 1);
}

static struct rdv_engine_options small_journal(const char *dir)
{
	struct rdv_engine_options o = engine_options(dir);

	o.segment_size = 64u << 10;
	o.journal = 2u << 20;
	o.unread_wait_ms = 1;
	o.say = count_words;
	atomic_store(&said, 0);
	return o;
}

/* ---- where records lie ---- */

struct asked {
	const char *route;
	uint64_t offset;
	struct rdv_where where;
	uint32_t segment; /* to be looked for: how many records does the lane own there? */
	unsigned owned;
};

static void count_owned(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct asked *a = ctx;

	(void)type;
	(void)seq;
	a->owned += place.segment == a->segment;
}

static void do_ask(struct rdv_engine *e, void *ctx)
{
	struct asked *a = ctx;

	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (!s->lane || strcmp(s->name, a->route) != 0)
			continue;
		assert_int_equal(rdv_lane_where(s->lane, e->now, a->offset, &a->where), REDRIVE_OK);
		rdv_lane_each_live(s->lane, count_owned, a);
	}
}

static struct rdv_where where_is(struct rdv_engine *e, const char *route, uint64_t offset)
{
	struct asked a = {.route = route, .offset = offset};

	assert_int_equal(rdv_engine_call(e, do_ask, &a), REDRIVE_OK);
	return a.where;
}

static unsigned owned_in(struct rdv_engine *e, const char *route, uint32_t segment)
{
	struct asked a = {.route = route, .segment = segment};

	assert_int_equal(rdv_engine_call(e, do_ask, &a), REDRIVE_OK);
	return a.owned;
}

static void flip(const char *dir, struct rdv_place place, uint32_t by)
{
	char path[256];
	uint8_t byte;
	int fd;

	assert_int_equal(place.segment, 1);
	snprintf(path, sizeof path, "%s/%016x.seg", dir, place.segment);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, place.offset + by), 1);
	byte ^= 0x55;
	assert_int_equal(pwrite(fd, &byte, 1, place.offset + by), 1);
	close(fd);
}

/* ---- traffic ---- */

static void publish(struct rdv_engine *e, const char *topic, unsigned count, int64_t not_before)
{
	struct rdv_message m[100] = {0};
	struct rdv_published_at at[100];
	struct rdv_error error = {0};
	enum redrive_status status;
	char bodies[100][200];

	for (unsigned i = 0; i < count; i++) {
		memset(bodies[i], '.', sizeof bodies[i]);
		m[i].body = rdv_slice(bodies[i], sizeof bodies[i]);
		m[i].not_before.ms = not_before;
	}
	while ((status = rdv_engine_publish_wait(e, rdv_slice_text(topic), m, count, at, &error)) == REDRIVE_FULL)
		where_is(e, "noise", 0); /* the core looks at the tail whenever it is asked something */
	assert_int_equal(status, REDRIVE_OK);
}

/* Until the tail has passed segment 1. */
static void turn_over(struct rdv_engine *e)
{
	struct rdv_engine_metrics m = {0};

	for (int i = 0; i < 3000 && m.space.tail < 2; i++) {
		publish(e, "noise", 100, 0);
		usleep(1000);
		rdv_engine_metrics(e, &m);
	}
	assert_true(m.space.tail > 1);
}

static enum rdv_reason letter_of(struct rdv_engine *e, const char *route, const char *topic, uint64_t offset)
{
	struct rdv_letter letter;
	enum rdv_reason reason;
	char id[27];

	for (int i = 0; i < 3000 && rdv_desk_find(rdv_engine_desk(e), route, topic, 0, offset, id); i++)
		usleep(10000);
	assert_int_equal(rdv_desk_get(rdv_engine_desk(e), id, &letter), REDRIVE_OK);
	reason = letter.envelope.reason;
	rdv_letter_done(&letter);
	return reason;
}

static bool is_aside(const char *dir)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%016x.damaged", dir, 1);
	for (int i = 0; i < 3000 && access(path, F_OK); i++)
		usleep(10000);
	return access(path, F_OK) == 0;
}

static void damaged_bodies_in_the_tail_end_as_letters_and_the_rest_goes_on(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new(), *busy = handler_new();
	struct rdv_route_options o[3] = {route_options("wait", "t", h), route_options("busy", "b", busy),
					 route_options("noise", "noise", h)};
	struct rdv_engine_options eo = small_journal(dir);
	struct rdv_engine_metrics m;
	struct rdv_engine *e;

	(void)state;
	busy->blocked = true;
	e = start_engine(&eo, o, 3);
	publish(e, "t", 50, rdv_wall_now().ms + HOUR_MS);
	publish(e, "b", 1, 0);
	assert_true(handler_wait(busy, &busy->inside, 1));
	publish(e, "noise", 100, 0);                 /* the page that is being written is in memory */
	flip(dir, where_is(e, "wait", 3).body, 100); /* in its bytes */
	flip(dir, where_is(e, "wait", 7).body, 1);   /* in its length */
	flip(dir, where_is(e, "wait", 8).body, 10);  /* in its number */
	flip(dir, where_is(e, "busy", 0).body, 100); /* at the handler: the call has it */
	turn_over(e);
	assert_int_equal(letter_of(e, "wait", "t", 3), RDV_REASON_DAMAGED);
	assert_int_equal(letter_of(e, "wait", "t", 7), RDV_REASON_DAMAGED);
	assert_int_equal(letter_of(e, "wait", "t", 8), RDV_REASON_DAMAGED);
	assert_int_equal(status_of(e, "wait").account.dead, 3);
	assert_int_equal(status_of(e, "wait").account.waiting, 47);
	assert_int_equal(status_of(e, "busy").account.in_flight, 1);
	assert_true(is_aside(dir));
	assert_int_equal(atomic_load(&said), 1);
	rdv_engine_metrics(e, &m);
	assert_int_equal(m.damaged_segments, 1);
	handler_block(busy, false);
	WAIT_ACCOUNT(e, "busy", acked, 1);
	rdv_engine_free(e);
	e = start_engine(&eo, o, 3);
	assert_int_equal(status_of(e, "wait").account.dead, 3);
	assert_int_equal(status_of(e, "wait").account.waiting, 47);
	assert_int_equal(status_of(e, "busy").account.received, 1);
	assert_int_equal(status_of(e, "busy").account.acked, 1);
	rdv_engine_free(e);
	handler_free(h);
	handler_free(busy);
	remove_dir(dir);
}

/* pitfall: damaged storage */
static void a_damaged_history_is_written_again_as_memory_knows_it(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new(), *other = handler_new();
	struct rdv_route_options o[2] = {route_options("r", "t", h), route_options("noise", "noise", other)};
	struct rdv_engine_options eo = small_journal(dir);
	struct rdv_engine *e;
	struct rdv_where where;

	(void)state;
	h->bad = 1;
	o[0].lane.retry.base_ms = o[0].lane.retry.cap_ms = HOUR_MS;
	e = start_engine(&eo, o, 2);
	publish(e, "t", 1, 0);
	WAIT_ACCOUNT(e, "r", waiting, 1);
	where = where_is(e, "r", 0);
	assert_int_equal(where.attempt, 2);
	publish(e, "noise", 100, 0);
	flip(dir, where.state_place, 60);
	turn_over(e);
	assert_true(where_is(e, "r", 0).state_place.segment > 1);
	assert_int_equal(owned_in(e, "r", 1), 0);
	assert_true(is_aside(dir));
	rdv_engine_free(e);
	e = start_engine(&eo, o, 2);
	where = where_is(e, "r", 0);
	assert_int_equal(where.state, RDV_STATE_WAITING);
	assert_int_equal(where.attempt, 2);
	assert_true(where.delivered);
	assert_true(where.due.ms > rdv_wall_now().ms + HOUR_MS / 2);
	assert_int_equal(status_of(e, "r").account.waiting, 1);
	rdv_engine_free(e);
	handler_free(h);
	handler_free(other);
	remove_dir(dir);
}

/* The device fails for as long as it may: then the segment is as good as damaged. */
static void a_tail_that_the_device_never_gives_is_given_up_at_last(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(7);
	struct rdv_route_options o[2] = {route_options("wait", "t", h), route_options("noise", "noise", h)};
	struct rdv_engine_options eo = small_journal(dir);
	struct rdv_engine *e;

	(void)state;
	eo.files = &rdv_faulty_ops;
	eo.files_ctx = f;
	e = start_engine(&eo, o, 2);
	publish(e, "t", 2, rdv_wall_now().ms + HOUR_MS);
	rdv_faulty_fail(f, RDV_CALL_READ, 1, EIO, true);
	turn_over(e);
	rdv_faulty_fail(f, 0, 0, 0, false);
	assert_int_equal(letter_of(e, "wait", "t", 0), RDV_REASON_DAMAGED);
	assert_int_equal(letter_of(e, "wait", "t", 1), RDV_REASON_DAMAGED);
	WAIT_ACCOUNT(e, "wait", dead, 2);
	assert_int_equal(atomic_load(&said), 2); /* that it cannot be read, and what became of it */
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(damaged_bodies_in_the_tail_end_as_letters_and_the_rest_goes_on),
		cmocka_unit_test(a_damaged_history_is_written_again_as_memory_knows_it),
		cmocka_unit_test(a_tail_that_the_device_never_gives_is_given_up_at_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
