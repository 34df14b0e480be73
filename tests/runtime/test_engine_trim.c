/* test_engine_trim.c - the journal stays small: finished messages go, what lives is kept, over restarts. */
#include "harness.h"
#include "runtime/room.h"

#define T "orders"

static void publish_batch(struct rdv_engine *e, unsigned count, const char *format, unsigned first, int64_t not_before)
{
	struct rdv_message *m = calloc(count, sizeof *m);
	struct rdv_published_at *at = calloc(count, sizeof *at);
	char(*bodies)[200] = calloc(count, sizeof *bodies);
	struct rdv_error error = {0};
	enum redrive_status status;

	for (unsigned i = 0; i < count; i++) {
		memset(bodies[i], '.', sizeof bodies[i]);
		snprintf(bodies[i], sizeof bodies[i], format, first + i);
		bodies[i][strlen(bodies[i])] = ' ';
		m[i].body = rdv_slice(bodies[i], sizeof bodies[i]);
		m[i].not_before.ms = not_before;
	}
	for (int tries = 0;
	     (status = rdv_engine_publish_wait(e, rdv_slice_text(T), m, count, at, &error)) == REDRIVE_FULL &&
	     tries < 2000;
	     tries++)
		usleep(5000);
	assert_int_equal(status, REDRIVE_OK);
	free(m);
	free(at);
	free(bodies);
}

/* pitfall: growing storage */
static void finished_messages_leave_and_waiting_ones_stay_whole(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new(), *h2 = handler_new();
	struct rdv_route_options o[2] = {route_options("fast", T, h), route_options("slow", T, h2)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_engine_metrics m;
	unsigned found[200] = {0};

	(void)state;
	eo.segment_size = 64u << 10;
	eo.journal = 2u << 20;
	o[0].target_policy.concurrency = o[1].target_policy.concurrency = 256;
	e = start_engine(&eo, o, 2);
	publish_batch(e, 200, "wait-%u", 0, rdv_wall_now().ms + 5000);
	for (unsigned i = 0; i < 200; i++)
		publish_batch(e, 100, "go-%u", 100 * i, 0);
	WAIT_ACCOUNT(e, "fast", acked, 20000);
	WAIT_ACCOUNT(e, "slow", acked, 20000);
	rdv_engine_metrics(e, &m);
	assert_true(m.space.tail > 1);
	assert_true(m.space.bytes <= 2u << 20);
	rdv_engine_free(e);
	e = start_engine(&eo, o, 2);
	WAIT_ACCOUNT(e, "fast", acked, 20200);
	WAIT_ACCOUNT(e, "slow", acked, 20200);
	assert_int_equal(status_of(e, "fast").account.received, 20200);
	assert_int_equal(h->calls, 20200);
	assert_int_equal(h2->calls, 20200);
	for (unsigned i = 0; i < h->calls; i++) {
		unsigned n;

		if (sscanf(h->seen[i].body, "wait-%u", &n) == 1 && n < 200)
			found[n]++;
	}
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(found[i], 1);
	rdv_engine_free(e);
	handler_free(h);
	handler_free(h2);
	remove_dir(dir);
}

/* One route is done with a message that the other still has: trimming carries the body on, and must not bring it back.
 */
static void a_body_that_moves_does_not_come_back_to_who_finished_it(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new(), *h2 = handler_new();
	struct rdv_route_options o[2] = {route_options("done", T, h), route_options("paused", T, h2)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;

	(void)state;
	eo.segment_size = 64u << 10;
	eo.journal = 4u << 20;
	o[0].target_policy.concurrency = o[1].target_policy.concurrency = 64;
	e = start_engine(&eo, o, 2);
	assert_int_equal(rdv_engine_pause(e, "paused", true), REDRIVE_OK);
	publish_batch(e, 300, "m-%u", 0, 0);
	WAIT_ACCOUNT(e, "done", acked, 300);
	for (int round = 0; round < 3; round++) {
		struct rdv_engine_metrics m;
		uint32_t tail;

		rdv_engine_metrics(e, &m);
		tail = m.space.tail;
		for (unsigned i = 0; i < 60; i++) { /* the other topic's traffic turns the log over */
			publish_batch(e, 100, "n-%u", 100 * i, 0);
		}
		WAIT_ACCOUNT(e, "done", acked, 300 + 6000 * (unsigned)(round + 1));
		assert_int_equal(rdv_engine_pause(e, "paused", false), REDRIVE_OK);
		for (int i = 0; i < 3000 && status_of(e, "paused").account.acked < 5700 * (unsigned)(round + 1); i++)
			usleep(10000);
		assert_int_equal(rdv_engine_pause(e, "paused", true), REDRIVE_OK);
		rdv_engine_free(e);
		e = start_engine(&eo, o, 2);
		rdv_engine_metrics(e, &m);
		assert_true(m.space.tail >= tail);
		assert_int_equal(status_of(e, "done").account.received, status_of(e, "done").account.acked);
		assert_int_equal(status_of(e, "done").account.received, status_of(e, "paused").account.received);
	}
	assert_int_equal(h->calls, 300 + 18000);
	assert_int_equal(rdv_engine_pause(e, "paused", false), REDRIVE_OK);
	WAIT_ACCOUNT(e, "paused", acked, 18300);
	assert_int_equal(h2->calls, 18300);
	rdv_engine_free(e);
	handler_free(h);
	handler_free(h2);
	remove_dir(dir);
}

/* ---- discarding while the tail is trimmed ---- */

struct step { /* a command on the core thread, and the thread that waits for it */
	struct rdv_engine *engine;
	pthread_t thread;
	void (*fn)(struct rdv_engine *e, void *ctx);
	_Atomic bool begun, go;
	bool discarded; /* between the discard's first command and its second */
	uint32_t dropped;
};

static void *run_step(void *arg)
{
	struct step *s = arg;

	assert_int_equal(rdv_engine_call(s->engine, s->fn, s), REDRIVE_OK);
	return NULL;
}

static void *discard_old(void *arg)
{
	struct step *s = arg;
	struct rdv_error error = {0};

	assert_int_equal(rdv_engine_discard(s->engine, "old", &error), REDRIVE_OK);
	return NULL;
}

static void hold_core(struct rdv_engine *e, void *ctx)
{
	struct step *s = ctx;

	(void)e;
	atomic_store(&s->begun, true);
	while (!atomic_load(&s->go))
		usleep(1000);
}

/* As many steps of trimming as would give up the tail. */
static void trim_now(struct rdv_engine *e, void *ctx)
{
	struct step *s = ctx;
	struct rdv_log_space space;

	for (const struct rdv_strand *other = e->strands; other; other = other->next)
		s->discarded = s->discarded || (!other->lane && e->uncounting);
	rdv_log_set_limits(e->log, 5 * (64u << 10), 0); /* room is short: the tail is to go */
	for (int i = 0; i < 300; i++) {
		e->now = rdv_now();
		rdv_trim_step(e);
		usleep(1000);
	}
	rdv_log_space(e->log, &space);
	s->dropped = space.tail - 1;
}

static void wait_for_commands(struct rdv_engine *e, unsigned wanted)
{
	unsigned count = 0;

	while (count < wanted) {
		usleep(1000);
		count = 0;
		pthread_mutex_lock(&e->inbox);
		for (const struct rdv_command *c = e->commands; c; c = c->next)
			count++;
		pthread_mutex_unlock(&e->inbox);
	}
}

/* Its records are counted off in slices: the tail they lie in stays until that is done. */
static void a_lane_can_be_discarded_while_its_segment_is_trimmed(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o[2] = {route_options("old", T, h), route_options("busy", T, h)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine_metrics m = {0};
	struct rdv_error error = {0};
	struct rdv_engine *e;
	struct step hold = {.fn = hold_core}, discard = {0}, trim = {.fn = trim_now};

	(void)state;
	eo.segment_size = 64u << 10;
	e = hold.engine = discard.engine = trim.engine = start_engine(&eo, o, 2);
	assert_int_equal(rdv_engine_pause(e, "old", true), REDRIVE_OK);
	publish_batch(e, 150, "m-%u", 0, 0);
	assert_int_equal(rdv_engine_reload(e, NULL, &o[1], 1, &error), REDRIVE_OK);
	publish_batch(e, 300, "n-%u", 0, 0);
	WAIT_ACCOUNT(e, "busy", acked, 450);
	rdv_engine_metrics(e, &m);
	assert_int_equal(m.space.tail, 1);
	assert_int_equal(pthread_create(&hold.thread, NULL, run_step, &hold), 0);
	while (!atomic_load(&hold.begun))
		usleep(1000);
	assert_int_equal(pthread_create(&discard.thread, NULL, discard_old, &discard), 0);
	wait_for_commands(e, 1);
	assert_int_equal(pthread_create(&trim.thread, NULL, run_step, &trim), 0);
	wait_for_commands(e, 2);
	atomic_store(&hold.go, true);
	pthread_join(hold.thread, NULL);
	pthread_join(trim.thread, NULL);
	pthread_join(discard.thread, NULL);
	assert_true(trim.discarded);
	assert_int_equal(trim.dropped, 0);
	for (int i = 0; i < 3000 && m.space.tail < 2; i++) {
		usleep(10000);
		rdv_engine_metrics(e, &m);
	}
	assert_true(m.space.tail >= 2);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finished_messages_leave_and_waiting_ones_stay_whole),
		cmocka_unit_test(a_body_that_moves_does_not_come_back_to_who_finished_it),
		cmocka_unit_test(a_lane_can_be_discarded_while_its_segment_is_trimmed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
