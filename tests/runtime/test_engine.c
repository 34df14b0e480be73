/* test_engine.c - the engine with real threads: retries, letters, order, ids, delays, pause, restart, leases, one
 * process. */
#include "harness.h"
#include "desk/desk.h"

#define T "orders"

static void a_message_that_is_out_of_attempts_becomes_a_letter(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_letter letter;
	struct rdv_block *body;
	char id[27];

	(void)state;
	o.lane.retry.attempts = 3;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, "k", "!poison", NULL), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, NULL, "fine", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", dead, 1);
	WAIT_ACCOUNT(e, "r", acked, 1);
	assert_int_equal(h->calls, 4);
	for (int i = 0; i < 3000 && rdv_desk_find(rdv_engine_desk(e), "r", T, 0, 0, id); i++)
		usleep(10000);
	assert_int_equal(rdv_desk_find(rdv_engine_desk(e), "r", T, 0, 0, id), REDRIVE_OK);
	assert_int_equal(rdv_desk_get(rdv_engine_desk(e), id, &letter), REDRIVE_OK);
	assert_int_equal(letter.envelope.reason, RDV_REASON_EXHAUSTED);
	assert_int_equal(letter.envelope.causes.failures, 3);
	assert_int_equal(letter.envelope.history_count, 3);
	assert_true(rdv_slice_is(letter.envelope.key, "k"));
	rdv_letter_done(&letter);
	assert_int_equal(rdv_desk_body(rdv_engine_desk(e), id, &body), REDRIVE_OK);
	assert_true(rdv_slice_is(rdv_block_slice(body), "!poison"));
	rdv_block_unref(body);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* pitfall: nack of message 0 of a key */
static void later_messages_of_a_failing_key_wait_and_others_flow(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	unsigned a = 0;

	(void)state;
	o.lane.order = RDV_ORDER_KEY;
	o.lane.retry.base_ms = 200;
	h->bad = 1;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, "A", "A1", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->calls, 1));
	assert_int_equal(publish_keyed(e, T, "A", "A2", NULL), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, "B", "B1", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->done, 3));
	assert_string_equal(h->seen[0].body, "A1");
	assert_string_equal(h->seen[1].body, "B1");
	assert_string_equal(h->seen[2].body, "A1");
	assert_string_equal(h->seen[3].body, "A2");
	for (unsigned i = 0; i < h->calls; i++)
		a += h->seen[i].body[0] == 'A';
	assert_int_equal(a, 3);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_repeated_publish_id_answers_the_first_position_also_after_a_restart(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, &o, 1);
	struct rdv_message m[2] = {{.id = rdv_slice_text("id-1"), .body = rdv_slice_text("x")},
				   {.id = rdv_slice_text("id-1"), .body = rdv_slice_text("y")}};
	struct rdv_published_at at[2];
	struct rdv_error error = {0};
	struct rdv_message_status where;

	(void)state;
	assert_int_equal(rdv_engine_publish_wait(e, rdv_slice_text(T), m, 2, at, &error), REDRIVE_OK);
	assert_false(at[0].duplicate);
	assert_true(at[1].duplicate);
	assert_int_equal(at[1].offset, at[0].offset);
	WAIT_ACCOUNT(e, "r", acked, 1);
	rdv_engine_free(e);
	e = start_engine(&eo, &o, 1);
	assert_int_equal(rdv_engine_publish_wait(e, rdv_slice_text(T), m, 1, at, &error), REDRIVE_OK);
	assert_true(at[0].duplicate);
	assert_int_equal(at[0].offset, 0);
	assert_int_equal(rdv_engine_where(e, rdv_slice_text("id-1"), &where), REDRIVE_OK);
	assert_int_equal(where.offset, 0);
	rdv_message_status_done(&where);
	assert_int_equal(rdv_engine_where(e, rdv_slice_text("orders-0-1"), &where), REDRIVE_NOT_FOUND);
	assert_int_equal(status_of(e, "r").account.received, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* pitfall: replaying a big log at start uses "process start" as now */
static void a_delayed_message_waits_over_a_restart_and_is_not_early(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, &o, 1);
	int64_t due = rdv_wall_now().ms + 1500;
	struct rdv_message m = {.body = rdv_slice_text("later"), .not_before = {due}};
	struct rdv_published_at at;
	struct rdv_error error = {0};

	(void)state;
	assert_int_equal(rdv_engine_publish_wait(e, rdv_slice_text(T), &m, 1, &at, &error), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", waiting, 1);
	rdv_engine_free(e);
	assert_int_equal(h->calls, 0);
	e = start_engine(&eo, &o, 1);
	assert_true(handler_wait(h, &h->done, 1));
	assert_true(rdv_wall_now().ms >= due);
	assert_true(rdv_wall_now().ms < due + 20000);
	assert_int_equal(h->seen[0].attempt, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_paused_route_is_paused_after_a_restart(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, &o, 1);

	(void)state;
	assert_int_equal(rdv_engine_pause(e, "nobody", true), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_engine_pause(e, "r", true), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	rdv_engine_free(e);
	e = start_engine(&eo, &o, 1);
	assert_string_equal(status_of(e, "r").state, "paused");
	assert_int_equal(status_of(e, "r").account.ready, 1);
	assert_int_equal(h->calls, 0);
	assert_int_equal(rdv_engine_pause(e, "r", false), REDRIVE_OK);
	assert_true(handler_wait(h, &h->done, 1));
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void nobody_reads_that_topic(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, &o, 1), *second = NULL;
	struct rdv_error error = {0};
	char big[2 << 20];
	struct rdv_message m = {.body = rdv_slice(big, sizeof big)};
	struct rdv_published_at at;

	(void)state;
	memset(big, 'x', sizeof big);
	assert_int_equal(publish_keyed(e, "other", NULL, "x", NULL), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_engine_publish_wait(e, rdv_slice_text(T), &m, 1, &at, &error), REDRIVE_TOO_LARGE);
	assert_int_equal(rdv_engine_open(&eo, &second, &error), REDRIVE_BUSY);
	rdv_engine_free(e);
	o.partitions = 3;
	assert_int_equal(rdv_engine_open(&eo, &second, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_add_route(second, &o, &error), REDRIVE_REFUSED);
	assert_non_null(strstr(error.text, "made with 1 partitions and cannot have 3"));
	rdv_engine_free(second);
	handler_free(h);
	remove_dir(dir);
}

static void the_directory_is_locked_from_the_first_look_to_the_end(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, &o, 1), *second = NULL;
	struct rdv_error error = {0};

	(void)state;
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	rdv_engine_free(e);
	assert_int_equal(rdv_engine_open(&eo, &e, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_open(&eo, &second, &error), REDRIVE_BUSY); /* opened, not started yet */
	assert_int_equal(rdv_engine_add_route(e, &o, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_open(&eo, &second, &error), REDRIVE_BUSY);
	assert_int_equal(rdv_engine_start(e, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_open(&eo, &second, &error), REDRIVE_BUSY);
	assert_int_equal(status_of(e, "r").account.received, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* pitfall: shutdown waits for a whole batch */
static void stopping_waits_for_open_calls_and_gives_back_the_rest(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	pthread_t stopper;

	(void)state;
	o.target_policy.concurrency = 8;
	o.callback.threads = 1;
	eo.drain_ms = 100;
	h->blocked = true;
	e = start_engine(&eo, &o, 1);
	for (int i = 0; i < 20; i++)
		assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, 1));
	assert_int_equal(pthread_create(&stopper, NULL, (void *(*)(void *))(void (*)(void))rdv_engine_stop, e), 0);
	usleep(300000);
	handler_block(h, false);
	pthread_join(stopper, NULL);
	rdv_engine_free(e);
	assert_in_range(h->calls, 1, 19); /* the running one ended by its verdict; the others were given back */
	e = start_engine(&eo, &o, 1);
	WAIT_ACCOUNT(e, "r", acked, 20);
	for (unsigned i = 0; i < h->calls; i++)
		assert_int_equal(h->seen[i].attempt, 1);
	assert_int_equal(h->calls, 20);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* On how many routes it was. */
static size_t revoke_all(struct rdv_engine *e, const char *id, struct rdv_revocation *r)
{
	struct rdv_error error = {0};
	size_t revoked;

	assert_int_equal(rdv_engine_revoke(e, rdv_slice_text(id), NULL, rdv_slice_text("why"), r, &error), REDRIVE_OK);
	while (r->open) {
		usleep(1000);
		assert_int_equal(rdv_engine_revoked(e, rdv_slice_text(id), r), REDRIVE_OK);
	}
	revoked = r->revoked;
	rdv_revocation_done(r);
	return revoked;
}

static void a_message_is_found_by_key_and_revoked(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("r", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_message_status *list;
	size_t count;
	uint64_t next = 0;
	struct rdv_revocation revoked;
	struct rdv_error error = {0};

	(void)state;
	o.lane.retry.base_ms = 3600000;
	o.lane.order = RDV_ORDER_KEY;
	h->bad = 1;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, "k", "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", waiting, 1);
	assert_int_equal(publish_keyed(e, T, "k", "y", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", held, 1);
	assert_int_equal(rdv_engine_where_key(e, rdv_slice_text("k"), NULL, 10, &next, &list, &count), REDRIVE_OK);
	assert_int_equal(count, 2);
	assert_int_equal(list[0].routes[0].where.state, RDV_STATE_WAITING);
	assert_int_equal(list[1].routes[0].where.state, RDV_STATE_HELD);
	assert_int_equal(list[1].routes[0].where.behind, 0);
	assert_true(list[0].key_known && list[0].key_size == 1 && list[0].key[0] == 'k');
	for (size_t i = 0; i < count; i++)
		rdv_message_status_done(&list[i]);
	free(list);
	assert_int_equal(revoke_all(e, "orders-0-0", &revoked), 1);
	assert_true(handler_wait(h, &h->done, 1));
	assert_string_equal(h->seen[1].body, "y");
	WAIT_ACCOUNT(e, "r", revoked, 1);
	assert_int_equal(revoke_all(e, "orders-0-0", &revoked), 0);
	assert_int_equal(rdv_engine_revoke(e, rdv_slice_text("orders-0-9"), NULL, rdv_slice(NULL, 0), &revoked, &error),
			 REDRIVE_NOT_FOUND);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

struct leased {
	unsigned count;
	char token[RDV_LEASE_TOKEN_SIZE];
};

static void on_leased(void *ctx, const struct rdv_leased *l)
{
	struct leased *seen = ctx;

	seen->count++;
	memcpy(seen->token, l->token, sizeof seen->token);
}

/* pitfall: TTR timer not armed because another timer was pending */
static void a_lease_is_taken_answered_and_expires(void **state)
{
	char *dir = new_dir();
	struct rdv_route_options o = route_options("r", T, NULL);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_handler *lease;
	struct leased seen = {0};
	struct rdv_answer ack = {.explicit_verdict = true, .verdict = RDV_ACK, .exit_code = -1};

	(void)state;
	o.handler = RDV_HANDLER_LEASE;
	o.lease = (struct rdv_lease_options){.lease_for_ms = 30000, .max = 10};
	e = start_engine(&eo, &o, 1);
	assert_int_equal(rdv_engine_lease_handler(e, "x", &lease), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_engine_lease_handler(e, "r", &lease), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_int_equal(rdv_lease_take(lease, 1, 10000, 50, on_leased, &seen), REDRIVE_OK);
	assert_int_equal(seen.count, 1);
	WAIT_ACCOUNT(e, "r", timeouts, 1); /* nobody answered within 50 ms */
	assert_int_equal(rdv_lease_take(lease, 1, 10000, 30000, on_leased, &seen), REDRIVE_OK);
	assert_int_equal(seen.count, 2);
	assert_ptr_equal(rdv_engine_lease_of(e, seen.token), lease);
	assert_int_equal(rdv_lease_answer(lease, seen.token, &ack, NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "r", acked, 1);
	rdv_engine_free(e);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_that_is_out_of_attempts_becomes_a_letter),
		cmocka_unit_test(later_messages_of_a_failing_key_wait_and_others_flow),
		cmocka_unit_test(a_repeated_publish_id_answers_the_first_position_also_after_a_restart),
		cmocka_unit_test(a_delayed_message_waits_over_a_restart_and_is_not_early),
		cmocka_unit_test(a_paused_route_is_paused_after_a_restart),
		cmocka_unit_test(nobody_reads_that_topic),
		cmocka_unit_test(the_directory_is_locked_from_the_first_look_to_the_end),
		cmocka_unit_test(stopping_waits_for_open_calls_and_gives_back_the_rest),
		cmocka_unit_test(a_message_is_found_by_key_and_revoked),
		cmocka_unit_test(a_lease_is_taken_answered_and_expires),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
