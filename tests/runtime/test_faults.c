/* test_faults.c - the engine when the disk fails: FAILED, a full disk, power loss, a torn end. */
#include <errno.h>
#include "harness.h"
#include "desk/desk.h"
#include "log/faulty_files.h"

#define T "orders"

static _Atomic int ended_with;

static void on_ended(void *ctx, enum redrive_status why)
{
	(void)ctx;
	atomic_store(&ended_with, (int)why);
}

static struct rdv_engine_options faulty_options(const char *dir, struct rdv_faulty *f)
{
	struct rdv_engine_options o = engine_options(dir);

	o.files = &rdv_faulty_ops;
	o.files_ctx = f;
	o.segment_size = 256u << 10;
	o.ended = on_ended;
	return o;
}

static void a_failed_sync_fails_the_engine_and_nothing_acknowledged_is_lost(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(1);
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = faulty_options(dir, f);
	struct rdv_engine *e;
	const char *why;

	(void)state;
	atomic_store(&ended_with, -1);
	h->blocked = true;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "kept", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, 1));
	for (int i = 0; i < 3000 && !rdv_engine_ready(e, &why); i++)
		usleep(10000); /* a segment that is being filled ahead takes its room for a moment */
	if (!rdv_engine_ready(e, &why))
		fail_msg("not ready: %s", why);
	rdv_faulty_fail(f, RDV_CALL_SYNC, 1, EIO, true);
	assert_int_equal(publish_keyed(e, T, NULL, "lost", NULL), REDRIVE_FAILED);
	assert_int_equal(publish_keyed(e, T, NULL, "late", NULL), REDRIVE_FAILED);
	assert_false(rdv_engine_ready(e, &why));
	assert_int_equal(atomic_load(&ended_with), -1); /* the open call is awaited */
	handler_block(h, false);
	for (int i = 0; i < 3000 && atomic_load(&ended_with) == -1; i++)
		usleep(10000);
	assert_int_equal(atomic_load(&ended_with), REDRIVE_FAILED);
	assert_string_equal(status_of(e, "r").state, "failed");
	rdv_engine_free(e);
	rdv_faulty_fail(f, 0, 0, 0, false);
	rdv_faulty_power_loss(f);
	e = start_engine(&eo, &o, 1);
	WAIT_ACCOUNT(e, "r", acked, 1);
	assert_int_equal(h->seen[1].offset, 0); /* its ack was not recorded, so it came again */
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

/* pitfall: unlimited redelivery fills the log */
static void a_full_disk_refuses_new_messages_and_still_records_outcomes(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(2);
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = faulty_options(dir, f);
	struct rdv_engine *e;
	enum redrive_status status = REDRIVE_OK;
	char body[1000];
	unsigned published = 0;

	(void)state;
	memset(body, 'x', sizeof body - 1);
	body[sizeof body - 1] = 0;
	h->blocked = true;
	rdv_faulty_space(f, 4u << 20);
	o.target_policy.concurrency = 4;
	e = start_engine(&eo, &o, 1);
	while (published < 10000 && (status = publish_keyed(e, T, NULL, body, NULL)) == REDRIVE_OK)
		published++;
	assert_int_equal(status, REDRIVE_FULL);
	assert_true(published > 100);
	handler_block(h, false);
	WAIT_ACCOUNT(e, "r", acked, published);
	for (int i = 0; i < 1000 && (status = publish_keyed(e, T, NULL, body, NULL)) != REDRIVE_OK; i++)
		usleep(10000); /* the tail is trimmed in the background */
	assert_int_equal(status, REDRIVE_OK);
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

static void *publish_many(void *arg)
{
	struct rdv_engine *e = arg;
	uint64_t good = 0;

	while (publish_keyed(e, T, "k", "x", NULL) == REDRIVE_OK)
		good++;
	return (void *)(uintptr_t)good;
}

/* pitfall: node dies while messages are delayed */
static void power_loss_under_load_loses_nothing_that_was_acknowledged(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		char *dir = new_dir();
		struct handler *h = handler_new();
		struct rdv_faulty *f = rdv_faulty_new(seed);
		struct rdv_route_options o[2] = {route_options("r", T, h), route_options("q", T, h)};
		struct rdv_engine_options eo = faulty_options(dir, f);
		struct rdv_engine *e;
		pthread_t thread;
		void *good;
		struct rdv_route_status s;

		eo.drain_ms = 0;
		h->bad = 50;
		e = start_engine(&eo, o, 2);
		assert_int_equal(pthread_create(&thread, NULL, publish_many, e), 0);
		usleep(100000 + 20000 * (useconds_t)seed);
		rdv_faulty_fail(f, RDV_CALL_SYNC | RDV_CALL_WRITE, 1, EIO, true);
		pthread_join(thread, &good);
		rdv_engine_free(e);
		rdv_faulty_fail(f, 0, 0, 0, false);
		rdv_faulty_power_loss(f);
		h->bad = 0;
		e = start_engine(&eo, o, 2);
		s = status_of(e, "r");
		assert_true(s.account.received >= (uintptr_t)good);
		WAIT_ACCOUNT(e, "r", acked, s.account.received);
		WAIT_ACCOUNT(e, "q", acked, status_of(e, "q").account.received);
		assert_int_equal(status_of(e, "q").account.received, s.account.received);
		rdv_engine_free(e);
		rdv_faulty_free(f);
		handler_free(h);
		remove_dir(dir);
	}
}

/* A body that the device does not give: nobody is charged, it waits longer each time, and people can see it. */
static void a_body_that_cannot_be_read_waits_uncharged_and_is_told(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(3);
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = faulty_options(dir, f);
	struct rdv_engine *e = start_engine(&eo, &o, 1);
	struct rdv_engine_metrics m = {0};

	(void)state;
	assert_int_equal(rdv_engine_pause(e, "r", true), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	rdv_engine_free(e); /* so that no memory has its body */
	e = start_engine(&eo, &o, 1);
	rdv_faulty_fail(f, RDV_CALL_READ, 1, EIO, true);
	assert_int_equal(rdv_engine_pause(e, "r", false), REDRIVE_OK);
	for (int i = 0; i < 3000 && !m.unread; i++) {
		usleep(10000);
		rdv_engine_metrics(e, &m);
	}
	assert_int_equal(m.unread, 1);
	WAIT_ACCOUNT(e, "r", waiting, 1);
	assert_in_range(m.unread_total, 1, 3); /* not ten times a second */
	rdv_faulty_fail(f, 0, 0, 0, false);
	WAIT_ACCOUNT(e, "r", acked, 1);
	rdv_engine_metrics(e, &m);
	assert_int_equal(m.unread, 0);
	assert_int_equal(status_of(e, "r").account.shutdowns, 0);
	assert_int_equal(h->seen[0].attempt, 1);
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

/* One message, published while nothing is dispatched; an engine that has its body nowhere but on a device that fails.
 */
static struct rdv_engine *start_with_an_unreadable_message(const struct rdv_engine_options *eo,
							   const struct rdv_route_options *o, struct rdv_faulty *f)
{
	struct rdv_engine *e = start_engine(eo, o, 1);

	assert_int_equal(rdv_engine_pause(e, o->name, true), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, "k", "x", NULL), REDRIVE_OK);
	rdv_engine_free(e);
	e = start_engine(eo, o, 1);
	rdv_faulty_fail(f, RDV_CALL_READ, 1, EIO, true);
	assert_int_equal(rdv_engine_pause(e, o->name, false), REDRIVE_OK);
	return e;
}

static bool wait_unread(struct rdv_engine *e, uint64_t wanted)
{
	struct rdv_engine_metrics m = {0};

	for (int i = 0; i < 3000; i++) {
		rdv_engine_metrics(e, &m);
		if (m.unread == wanted)
			return true;
		usleep(10000);
	}
	return false;
}

/* Twenty times the device has failed: a letter with its coordinates and no body, though it goes on failing. */
static void a_body_that_the_device_never_gives_ends_as_damaged(void **state)
{
	char *dir = new_dir(), id[27];
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(4);
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = faulty_options(dir, f);
	struct rdv_engine_metrics m;
	struct rdv_engine *e;
	struct rdv_letter letter;
	struct rdv_block *body;
	enum redrive_status status = REDRIVE_NOT_FOUND;

	(void)state;
	eo.unread_wait_ms = 1;
	e = start_with_an_unreadable_message(&eo, &o, f);
	for (int i = 0; i < 3000 && status; i++) {
		usleep(10000);
		status = rdv_desk_find(rdv_engine_desk(e), "r", T, 0, 0, id);
	}
	assert_int_equal(status, REDRIVE_OK);
	rdv_engine_metrics(e, &m);
	assert_int_equal(m.unread_total, 20);
	assert_int_equal(m.unread, 0);
	assert_int_equal(rdv_desk_get(rdv_engine_desk(e), id, &letter), REDRIVE_OK);
	assert_int_equal(letter.envelope.reason, RDV_REASON_DAMAGED);
	rdv_letter_done(&letter);
	assert_int_equal(rdv_desk_body(rdv_engine_desk(e), id, &body), REDRIVE_NOT_FOUND);
	assert_int_equal(status_of(e, "r").account.dead, 1);
	assert_int_equal(h->calls, 0);
	rdv_faulty_fail(f, 0, 0, 0, false);
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

static void a_message_that_ends_is_not_counted_as_unreadable_any_more(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(5);
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = faulty_options(dir, f);
	struct rdv_engine *e = start_with_an_unreadable_message(&eo, &o, f);
	struct rdv_revocation r;
	struct rdv_error error = {0};

	(void)state;
	assert_true(wait_unread(e, 1));
	WAIT_ACCOUNT(e, "r", waiting, 1);
	assert_int_equal(rdv_engine_revoke(e, rdv_slice_text(T "-0-0"), NULL, rdv_slice(NULL, 0), &r, &error),
			 REDRIVE_OK);
	rdv_revocation_done(&r);
	assert_true(wait_unread(e, 0));
	assert_int_equal(status_of(e, "r").account.revoked, 1);
	rdv_faulty_fail(f, 0, 0, 0, false);
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

/* A decision that needs the history waits for it: it would be lost otherwise. */
static void a_history_that_cannot_be_read_now_is_waited_for(void **state)
{
	char *dir = new_dir(), id[27];
	struct handler *h = handler_new();
	struct rdv_faulty *f = rdv_faulty_new(6);
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = faulty_options(dir, f);
	struct rdv_engine *e;
	struct rdv_revocation r;
	struct rdv_letter letter;
	struct rdv_error error = {0};
	struct rdv_slice message = rdv_slice_text(T "-0-0");

	(void)state;
	h->bad = 1;
	o.lane.retry.base_ms = o.lane.retry.cap_ms = 3600000;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", waiting, 1);
	rdv_faulty_fail(f, RDV_CALL_READ, 1, EIO, true);
	assert_int_equal(rdv_engine_revoke(e, message, NULL, rdv_slice(NULL, 0), &r, &error), REDRIVE_OK);
	for (int i = 0; i < 3000 && rdv_faulty_fired(f) < 6; i++)
		usleep(10000);
	assert_int_equal(rdv_engine_revoked(e, message, &r), REDRIVE_OK);
	assert_int_equal(r.open, 1);
	rdv_faulty_fail(f, 0, 0, 0, false);
	for (int i = 0; i < 3000 && r.open; i++) {
		usleep(10000);
		assert_int_equal(rdv_engine_revoked(e, message, &r), REDRIVE_OK);
	}
	assert_int_equal(r.revoked, 1);
	rdv_revocation_done(&r);
	for (int i = 0; i < 3000 && rdv_desk_find(rdv_engine_desk(e), "r", T, 0, 0, id); i++)
		usleep(10000);
	assert_int_equal(rdv_desk_get(rdv_engine_desk(e), id, &letter), REDRIVE_OK);
	assert_int_equal(letter.envelope.history_count, 1);
	rdv_letter_done(&letter);
	rdv_engine_free(e);
	rdv_faulty_free(f);
	handler_free(h);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_that_cannot_be_read_waits_uncharged_and_is_told),
		cmocka_unit_test(a_body_that_the_device_never_gives_ends_as_damaged),
		cmocka_unit_test(a_message_that_ends_is_not_counted_as_unreadable_any_more),
		cmocka_unit_test(a_history_that_cannot_be_read_now_is_waited_for),
		cmocka_unit_test(a_failed_sync_fails_the_engine_and_nothing_acknowledged_is_lost),
		cmocka_unit_test(a_full_disk_refuses_new_messages_and_still_records_outcomes),
		cmocka_unit_test(power_loss_under_load_loses_nothing_that_was_acknowledged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
