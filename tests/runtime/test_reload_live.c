/* test_reload_live.c - reloads under traffic: calls that are open, publishers at work, what is freed and when. */
#include "harness.h"
#include <fcntl.h>
#include "runtime/room.h"

#define T "orders"

/* ---- looking inside, on the core thread ---- */

struct inside {
	size_t gone, seats, outlets, units;
};

static void look(struct rdv_engine *e, void *ctx)
{
	struct inside *i = ctx;

	*i = (struct inside){0};
	for (struct rdv_route *r = e->gone; r; r = r->next)
		i->gone++;
	for (struct rdv_seat *s = e->old_seats; s; s = s->next)
		i->seats++;
	for (struct rdv_outlet *o = e->old_outlets; o; o = o->next)
		i->outlets++;
	for (struct rdv_unit *u = e->units; u; u = u->next)
		i->units++;
}

static struct inside inside_of(struct rdv_engine *e)
{
	struct inside i;

	assert_int_equal(rdv_engine_call(e, look, &i), REDRIVE_OK);
	return i;
}

/* Until nothing is kept for open calls any more; at most 30 s. */
static bool all_freed(struct rdv_engine *e)
{
	for (int n = 0; n < 3000; n++) {
		struct inside i = inside_of(e);

		if (!i.gone && !i.seats && !i.outlets)
			return true;
		usleep(10000);
	}
	return false;
}

/* ---- calls that are open ---- */

static void a_route_moves_to_another_target_at_once_and_open_calls_end_where_they_began(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("a", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};

	(void)state;
	o.target = "one";
	o.target_policy.concurrency = 1;
	h->blocked = true;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "first", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, 1));
	o.target = "two";
	assert_int_equal(rdv_engine_reload(e, NULL, &o, 1, &error), REDRIVE_OK);
	assert_string_equal(status_of(e, "a").target, "two");
	assert_int_equal(status_of(e, "a").target_status.in_flight, 0);
	assert_int_equal(inside_of(e).seats, 1);
	/* The one call that the old target allows is still open; the new one grants its own. */
	assert_int_equal(publish_keyed(e, T, NULL, "second", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, 2));
	assert_int_equal(status_of(e, "a").target_status.in_flight, 1);
	assert_int_equal(status_of(e, "a").account.in_flight, 2);
	handler_block(h, false);
	WAIT_ACCOUNT(e, "a", acked, 2);
	assert_true(all_freed(e));
	assert_int_equal(inside_of(e).units, 1);
	assert_int_equal(status_of(e, "a").target_status.in_flight, 0);
	assert_int_equal(publish_keyed(e, T, NULL, "third", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "a", acked, 3);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* Failures of calls that went to the old target say nothing about the new one. */
static void what_the_old_target_answered_does_not_count_for_the_new_one(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("a", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};
	enum { CALLS = 40 };

	(void)state;
	rdv_target_policy_defaults(&o.target_policy);
	o.target = "one";
	o.target_policy.concurrency = CALLS;
	o.callback.threads = CALLS;
	o.lane.retry.base_ms = 3600000;
	h->blocked = true;
	h->bad = CALLS;
	e = start_engine(&eo, &o, 1);
	for (int i = 0; i < CALLS; i++)
		assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, CALLS));
	o.target = "two";
	assert_int_equal(rdv_engine_reload(e, NULL, &o, 1, &error), REDRIVE_OK);
	o.target = "one"; /* and back: to another place at the target that the open calls know */
	assert_int_equal(rdv_engine_reload(e, NULL, &o, 1, &error), REDRIVE_OK);
	assert_int_equal(status_of(e, "a").target_status.in_flight, CALLS);
	o.target = "three";
	assert_int_equal(rdv_engine_reload(e, NULL, &o, 1, &error), REDRIVE_OK);
	handler_block(h, false);
	WAIT_ACCOUNT(e, "a", waiting, CALLS);
	assert_int_equal(status_of(e, "a").target_status.state, RDV_UP);
	assert_true(all_freed(e));
	assert_int_equal(inside_of(e).units, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_removed_route_goes_with_its_last_call(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new(), *other = handler_new();
	struct rdv_route_options o[2] = {route_options("a", T, h), route_options("b", "more", other)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, o, 2);
	struct rdv_error error = {0};

	(void)state;
	handler_block(h, true);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, 1));
	assert_int_equal(rdv_engine_reload(e, NULL, &o[1], 1, &error), REDRIVE_OK);
	assert_int_equal(inside_of(e).gone, 1);
	assert_true(status_of(e, "a").orphan);
	handler_block(h, false);
	assert_true(all_freed(e));
	assert_int_equal(inside_of(e).units, 1);
	assert_int_equal(status_of(e, "a").account.acked, 1);
	rdv_engine_free(e);
	handler_free(h);
	handler_free(other);
	remove_dir(dir);
}

static void a_replaced_handler_goes_with_its_last_call(void **state)
{
	char *dir = new_dir(), command[256], fifo[128];
	const char *slow[] = {"/bin/sh", "-c", command}, *quick[] = {"/bin/true"};
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("a", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};
	int fd;

	(void)state;
	snprintf(fifo, sizeof fifo, "%s/fifo", dir);
	snprintf(command, sizeof command, "read x < %s", fifo);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	eo.exec_allowed = true;
	o.handler = RDV_HANDLER_EXEC;
	o.exec = (struct rdv_exec_options){.command = slow, .command_count = 3, .timeout_ms = 30000};
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	fd = open(fifo, O_WRONLY); /* opens when the process reads */
	assert_true(fd >= 0);
	o.exec = (struct rdv_exec_options){.command = quick, .command_count = 1, .timeout_ms = 30000};
	assert_int_equal(rdv_engine_reload(e, NULL, &o, 1, &error), REDRIVE_OK);
	assert_int_equal(inside_of(e).outlets, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "y", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "a", acked, 1);
	assert_int_equal(inside_of(e).outlets, 1);
	assert_int_equal(write(fd, "\n", 1), 1);
	close(fd);
	WAIT_ACCOUNT(e, "a", acked, 2);
	assert_true(all_freed(e));
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void count_leased(void *ctx, const struct rdv_leased *leased)
{
	(void)leased;
	++*(unsigned *)ctx;
}

/* What nobody has leased comes back at once, what somebody has at its lease's end, even if he never answers. */
static void calls_of_a_removed_lease_route_end(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("a", T, h), other = route_options("b", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_handler *leases;
	struct rdv_error error = {0};
	enum redrive_status status = REDRIVE_NOT_FOUND;
	unsigned leased = 0;

	(void)state;
	o.handler = RDV_HANDLER_LEASE;
	o.lease.lease_for_ms = 100;
	e = start_engine(&eo, &o, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_int_equal(rdv_engine_lease_handler(e, "a", &leases), REDRIVE_OK);
	assert_int_equal(rdv_lease_take(leases, 1, 10000, 0, count_leased, &leased), REDRIVE_OK);
	assert_int_equal(leased, 1);
	WAIT_ACCOUNT(e, "a", in_flight, 1);
	assert_int_equal(rdv_engine_reload(e, NULL, &other, 1, &error), REDRIVE_OK);
	for (int n = 0; n < 3000 && status == REDRIVE_NOT_FOUND; n++) {
		usleep(10000);
		status = rdv_engine_adopt(e, "a", "b", &error);
	}
	assert_int_equal(status, REDRIVE_OK);
	WAIT_ACCOUNT(e, "b", acked, 3);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* ---- publishers ---- */

struct publisher {
	struct rdv_engine *engine;
	pthread_t thread;
	_Atomic bool stop;
	uint64_t taken, refused;
};

static void *publish_on_and_on(void *arg)
{
	struct publisher *p = arg;

	while (!atomic_load(&p->stop)) {
		struct rdv_message m = {.body = rdv_slice_text("x")};
		struct rdv_published_at at;
		struct rdv_error error = {0};
		enum redrive_status status = rdv_engine_publish_wait(p->engine, rdv_slice_text(T), &m, 1, &at, &error);

		p->taken += status == REDRIVE_OK;
		p->refused += status == REDRIVE_NOT_FOUND;
		if (status != REDRIVE_OK && status != REDRIVE_NOT_FOUND)
			abort();
	}
	return NULL;
}

static uint64_t received_by_all(struct rdv_engine *e, uint64_t *routes)
{
	struct rdv_route_status *all;
	size_t count;
	uint64_t sum = 0;

	assert_int_equal(rdv_engine_routes(e, NULL, &all, &count), REDRIVE_OK);
	for (size_t i = 0; i < count; i++)
		sum += all[i].account.received;
	free(all);
	*routes = count;
	return sum;
}

static void every_message_has_one_owner(struct rdv_engine *e, struct publisher *publishers, size_t count)
{
	uint64_t taken = 0, received = 0, routes;

	for (size_t i = 0; i < count; i++) {
		atomic_store(&publishers[i].stop, true);
		pthread_join(publishers[i].thread, NULL);
		taken += publishers[i].taken;
	}
	for (int n = 0; n < 3000 && received < taken; n++, usleep(10000))
		received = received_by_all(e, &routes);
	assert_int_equal(received, taken);
	assert_true(taken > 0);
}

static void start_publishers(struct rdv_engine *e, struct publisher *publishers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		publishers[i] = (struct publisher){.engine = e};
		assert_int_equal(pthread_create(&publishers[i].thread, NULL, publish_on_and_on, &publishers[i]), 0);
	}
}

#define PUBLISHERS 4
#define RELOADS 60

/* Removing a topic's last route: each message that was taken lies in a lane, the others were refused. */
static void a_message_that_was_taken_has_an_owner_when_the_last_route_goes(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o[2] = {route_options("other", "more", h), route_options("a", T, h)};
	struct rdv_engine_options eo = engine_options(dir);
	struct publisher publishers[PUBLISHERS];
	struct rdv_engine *e = start_engine(&eo, o, 2);
	struct rdv_error error = {0};
	uint64_t refused = 0;

	(void)state;
	start_publishers(e, publishers, PUBLISHERS);
	for (int i = 0; i < RELOADS; i++) {
		usleep(1000);
		assert_int_equal(rdv_engine_reload(e, NULL, o, 1 + i % 2, &error), REDRIVE_OK);
	}
	every_message_has_one_owner(e, publishers, PUBLISHERS);
	for (int i = 0; i < PUBLISHERS; i++)
		refused += publishers[i].refused;
	assert_true(refused > 0);
	assert_int_equal(rdv_engine_adopt(e, "a", "a", &error), REDRIVE_OK);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* Renaming it: the topic is read all the time, so nothing is refused, and no message falls between the two. */
static void a_route_that_takes_the_place_of_another_misses_nothing(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o[2] = {route_options("a", T, h), route_options("b", T, h)};
	struct rdv_engine_options eo = engine_options(dir);
	struct publisher publishers[PUBLISHERS];
	struct rdv_engine *e = start_engine(&eo, o, 1);
	struct rdv_error error = {0};

	(void)state;
	start_publishers(e, publishers, PUBLISHERS);
	for (int i = 1; i < RELOADS; i++) {
		usleep(1000);
		assert_int_equal(rdv_engine_reload(e, NULL, &o[i % 2], 1, &error), REDRIVE_OK);
	}
	every_message_has_one_owner(e, publishers, PUBLISHERS);
	for (int i = 0; i < PUBLISHERS; i++)
		assert_int_equal(publishers[i].refused, 0);
	rdv_engine_free(e);
	e = start_engine(&eo, o, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* ---- many routes ---- */

#define MANY 1500

static void a_target_takes_any_number_of_routes(void **state)
{
	static char names[2][MANY][16];
	struct rdv_route_options *o = calloc(2 * MANY, sizeof *o);
	char *dir = new_dir();
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};
	struct handler *h = handler_new();

	(void)state;
	for (int i = 0; i < 2 * MANY; i++) {
		snprintf(names[i / MANY][i % MANY], 16, "r%d", i);
		o[i] = route_options(names[i / MANY][i % MANY], T, h);
		o[i].handler = RDV_HANDLER_LEASE;
		o[i].lease.lease_for_ms = 30000;
		o[i].target = "shared";
	}
	e = start_engine(&eo, o, MANY);
	assert_int_equal(rdv_engine_reload(e, NULL, o, 1, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_reload(e, NULL, o, MANY, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_reload(e, NULL, o + MANY, MANY, &error), REDRIVE_OK); /* all of them renamed */
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r1500", received, 1);
	assert_string_equal(status_of(e, "r2999").target, "shared");
	rdv_engine_free(e);
	handler_free(h);
	free(o);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_route_moves_to_another_target_at_once_and_open_calls_end_where_they_began),
		cmocka_unit_test(what_the_old_target_answered_does_not_count_for_the_new_one),
		cmocka_unit_test(a_removed_route_goes_with_its_last_call),
		cmocka_unit_test(a_replaced_handler_goes_with_its_last_call),
		cmocka_unit_test(calls_of_a_removed_lease_route_end),
		cmocka_unit_test(a_message_that_was_taken_has_an_owner_when_the_last_route_goes),
		cmocka_unit_test(a_route_that_takes_the_place_of_another_misses_nothing),
		cmocka_unit_test(a_target_takes_any_number_of_routes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
