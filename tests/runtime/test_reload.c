/* test_reload.c - routes that come, change and go while the engine runs; lanes that they leave behind. */
#include "harness.h"
#include "runtime/room.h"

#define T "orders"

static void what_cannot_change_is_refused_and_nothing_is_half_done(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o[2] = {route_options("a", T, h), route_options("b", "new", h)}, bad[2];
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, o, 1);
	struct rdv_error error = {0};
	struct rdv_route_status *all;
	size_t count;

	(void)state;
	memcpy(bad, o, sizeof bad);
	bad[0].lane.order = RDV_ORDER_KEY;
	assert_int_equal(rdv_engine_reload(e, NULL, bad, 2, &error), REDRIVE_REFUSED);
	assert_non_null(strstr(error.text, "order"));
	memcpy(bad, o, sizeof bad);
	bad[0].topic = "elsewhere";
	assert_int_equal(rdv_engine_reload(e, NULL, bad, 2, &error), REDRIVE_REFUSED);
	memcpy(bad, o, sizeof bad);
	bad[0].handler = RDV_HANDLER_LEASE;
	assert_int_equal(rdv_engine_reload(e, NULL, bad, 2, &error), REDRIVE_REFUSED);
	memcpy(bad, o, sizeof bad);
	bad[1].name = "a";
	assert_int_equal(rdv_engine_reload(e, NULL, bad, 2, &error), REDRIVE_REFUSED);
	assert_int_equal(rdv_engine_routes(e, NULL, &all, &count), REDRIVE_OK);
	assert_int_equal(count, 1);
	free(all);
	assert_int_equal(publish_keyed(e, "new", NULL, "x", NULL), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_engine_reload(e, NULL, o, 2, &error), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, "new", NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "b", acked, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void every_route_that_is_refused_is_named(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o[2] = {route_options("a", T, h), route_options("b", "other", h)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, o, 2);
	struct rdv_error error = {"of a call before"};

	(void)state;
	o[0].lane.order = RDV_ORDER_KEY;
	o[1].topic = "elsewhere";
	assert_int_equal(rdv_engine_reload(e, NULL, o, 2, &error), REDRIVE_REFUSED);
	assert_string_equal(error.text, "route 'a': its order cannot change while it runs; "
					"route 'b': its source cannot change while it runs");
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

/* Whatever the last route is refused for, what was made for those before it goes, and nothing has changed. */
static void a_refused_set_leaves_nothing_behind(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_engine_options eo = engine_options(dir), limits = eo;
	struct rdv_route_options a = route_options("a", T, h), set[4];
	struct rdv_engine *e;
	struct rdv_error error = {0};
	struct rdv_route_status *all;
	size_t count;

	(void)state;
	a.target = "one";
	e = start_engine(&eo, &a, 1);
	limits.body_max = 10;
	for (int wrong = 0; wrong < 6; wrong++) {
		set[0] = a;
		set[0].target = "two";
		set[0].lane.retry.attempts = 1;
		set[1] = route_options("b", "new", h);
		set[1].partitions = 3;
		set[1].target = "two";
		set[2] = route_options("c", T, h);
		set[3] = route_options("d", T, h);
		switch (wrong) {
		case 0: /* made last, and refused */
			set[3].handler = RDV_HANDLER_HTTP;
			set[3].http = (struct rdv_http_options){.url = "ftp://x/", .timeout_ms = 1, .connections = 1};
			break;
		case 1:
			set[3].handler = RDV_HANDLER_EXEC; /* not allowed here */
			break;
		case 2:
			set[3].partitions = 2;
			break;
		case 3:
			set[3].target = "two";
			set[3].target_policy.rate = 7;
			break;
		case 4:
			set[3].name = "No Name";
			break;
		case 5:
			set[3].name = "b";
			break;
		}
		error.text[0] = '\0';
		assert_int_not_equal(rdv_engine_reload(e, &limits, set, 4, &error), REDRIVE_OK);
		assert_int_not_equal(error.text[0], '\0');
		assert_int_equal(rdv_engine_routes(e, NULL, &all, &count), REDRIVE_OK);
		assert_int_equal(count, 1);
		assert_string_equal(all[0].target, "one");
		free(all);
		assert_int_equal(publish_keyed(e, "new", NULL, "x", NULL), REDRIVE_NOT_FOUND);
		assert_int_equal(publish_keyed(e, T, NULL, "more than ten bytes", NULL), REDRIVE_OK);
	}
	WAIT_ACCOUNT(e, "a", acked, 6);
	set[1].partitions = 5; /* the refused ones did not fix the number */
	assert_int_equal(rdv_engine_reload(e, &limits, set, 3, &error), REDRIVE_OK);
	assert_string_equal(status_of(e, "a").target, "two");
	assert_int_equal(status_of(e, "b").partitions, 5);
	assert_int_equal(publish_keyed(e, T, NULL, "more than ten bytes", NULL), REDRIVE_TOO_LARGE);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_new_route_starts_at_the_next_offset(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o[2] = {route_options("a", T, h), route_options("b", T, h)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e = start_engine(&eo, o, 1);
	struct rdv_error error = {0};

	(void)state;
	assert_int_equal(publish_keyed(e, T, NULL, "before", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "a", acked, 1);
	assert_int_equal(rdv_engine_reload(e, NULL, o, 2, &error), REDRIVE_OK);
	assert_int_equal(publish_keyed(e, T, NULL, "after", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "a", acked, 2);
	WAIT_ACCOUNT(e, "b", acked, 1);
	rdv_engine_free(e);
	e = start_engine(&eo, o, 2);
	assert_int_equal(status_of(e, "b").account.received, 1);
	assert_int_equal(status_of(e, "a").account.received, 2);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_changed_policy_counts_for_messages_that_wait(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options o = route_options("a", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};

	(void)state;
	o.lane.retry.base_ms = 300;
	h->bad = 1000;
	e = start_engine(&eo, &o, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_true(handler_wait(h, &h->calls, 2));
	o.lane.retry.attempts = 1;
	assert_int_equal(rdv_engine_reload(e, NULL, &o, 1, &error), REDRIVE_OK);
	WAIT_ACCOUNT(e, "a", dead, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void a_removed_route_leaves_lanes_that_another_adopts(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options old = route_options("old", T, h), new = route_options("new", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};

	(void)state;
	old.lane.retry.base_ms = 3600000;
	h->bad = 3;
	e = start_engine(&eo, &old, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "old", waiting, 3);
	assert_int_equal(rdv_engine_reload(e, NULL, &new, 1, &error), REDRIVE_OK);
	assert_true(status_of(e, "old").orphan);
	assert_string_equal(status_of(e, "old").state, "stopped");
	assert_int_equal(publish_keyed(e, T, NULL, "y", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "new", acked, 1);
	assert_int_equal(status_of(e, "old").account.received, 3);
	rdv_engine_free(e);
	e = start_engine(&eo, &new, 1);
	assert_true(status_of(e, "old").orphan);
	assert_string_equal(status_of(e, "old").state, "stopped");
	assert_int_equal(status_of(e, "old").account.waiting, 3);
	assert_int_equal(rdv_engine_adopt(e, "nobody", "new", &error), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_engine_adopt(e, "old", "nobody", &error), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_engine_adopt(e, "old", "new", &error), REDRIVE_OK);
	assert_int_equal(status_of(e, "new").account.waiting, 3);
	assert_int_equal(publish_keyed(e, T, NULL, "z", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "new", acked, 2);
	assert_int_equal(status_of(e, "new").account.received, 5);
	rdv_engine_free(e);
	e = start_engine(&eo, &new, 1);
	assert_int_equal(status_of(e, "new").account.waiting, 3);
	assert_int_equal(status_of(e, "new").account.received, 5);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void see_started(void *ctx, struct rdv_flight *f)
{
	unsigned *started = ctx;

	*started += f->started;
}

static void count_started(struct rdv_engine *e, void *ctx)
{
	rdv_flight_each(e, see_started, ctx);
}

static void a_callback_of_a_lane_that_was_adopted_is_started_in_the_journal(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options old = route_options("old", T, NULL), new = route_options("new", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_error error = {0};
	struct rdv_engine *e;
	unsigned started = 0;

	(void)state;
	old.handler = RDV_HANDLER_LEASE;
	old.lease = (struct rdv_lease_options){.lease_for_ms = 30000, .max = 10};
	e = start_engine(&eo, &old, 1);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	rdv_engine_free(e);
	h->blocked = true;
	e = start_engine(&eo, &new, 1);
	assert_int_equal(rdv_engine_adopt(e, "old", "new", &error), REDRIVE_OK);
	assert_true(handler_wait(h, &h->inside, 1));
	assert_int_equal(rdv_engine_call(e, count_started, &started), REDRIVE_OK);
	assert_int_equal(started, 1);
	handler_block(h, false);
	WAIT_ACCOUNT(e, "new", acked, 1);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void publish_much(struct rdv_engine *e)
{
	static const char body[60000];

	for (int i = 0; i < 3; i++) {
		struct rdv_message m = {.body = rdv_slice(body, sizeof body)};
		struct rdv_published_at at;
		struct rdv_error error = {0};

		while (rdv_engine_publish_wait(e, rdv_slice_text("noise"), &m, 1, &at, &error) == REDRIVE_FULL)
			status_of(e, "noise");
	}
}

/* Its first record is written again behind the one that says who adopted it: that must not say the old name. */
static void an_adopted_lane_stays_adopted_when_its_segment_goes(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new(), *noise = handler_new();
	struct rdv_route_options old[2] = {route_options("old", T, h), route_options("noise", "noise", noise)};
	struct rdv_route_options new[2] = {route_options("new", T, h), route_options("noise", "noise", noise)};
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine_metrics m = {0};
	struct rdv_error error = {0};
	struct rdv_engine *e;

	(void)state;
	eo.segment_size = 128u << 10;
	eo.journal = 4u << 20;
	old[0].lane.retry.base_ms = old[0].lane.retry.cap_ms = 3600000;
	h->bad = 1;
	e = start_engine(&eo, old, 2);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "old", waiting, 1);
	publish_much(e);
	assert_int_equal(rdv_engine_reload(e, NULL, new, 2, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_adopt(e, "old", "new", &error), REDRIVE_OK);
	rdv_engine_metrics(e, &m);
	assert_int_equal(m.space.tail, 1);
	for (int i = 0; i < 1000 && m.space.tail == 1; i++) {
		publish_much(e);
		rdv_engine_metrics(e, &m);
	}
	assert_true(m.space.tail > 1);
	rdv_engine_free(e);
	e = start_engine(&eo, new, 2);
	assert_int_equal(status_of(e, "new").account.waiting, 1);
	rdv_engine_free(e);
	handler_free(h);
	handler_free(noise);
	remove_dir(dir);
}

struct leased { /* two, each of another lane */
	unsigned count;
	uint32_t lanes[2];
	char tokens[2][RDV_LEASE_TOKEN_SIZE];
};

static void on_leased(void *ctx, const struct rdv_leased *l)
{
	struct leased *seen = ctx;

	assert_true(seen->count < 2);
	seen->lanes[seen->count] = l->call->lane;
	memcpy(seen->tokens[seen->count++], l->token, sizeof seen->tokens[0]);
}

struct lane_question {
	uint32_t lane;
	struct rdv_where where;
};

static void ask_lane(struct rdv_engine *e, void *ctx)
{
	struct lane_question *q = ctx;

	assert_int_equal(rdv_lane_where(e->streams[q->lane].strand->lane, e->now, 0, &q->where), REDRIVE_OK);
}

static enum rdv_state state_in(struct rdv_engine *e, uint32_t lane)
{
	struct lane_question q = {.lane = lane};

	assert_int_equal(rdv_engine_call(e, ask_lane, &q), REDRIVE_OK);
	return q.where.state;
}

static void a_late_verdict_is_for_the_lane_that_gave_the_lease(void **state)
{
	char *dir = new_dir();
	struct rdv_route_options o[2] = {route_options("old", T, NULL), route_options("new", T, NULL)};
	struct rdv_engine_options eo = engine_options(dir);
	struct leased seen = {0};
	struct rdv_handler *lease;
	struct rdv_error error = {0};
	struct rdv_engine *e;

	(void)state;
	for (int i = 0; i < 2; i++) {
		o[i].handler = RDV_HANDLER_LEASE;
		o[i].lease = (struct rdv_lease_options){.lease_for_ms = 30000, .max = 10};
		o[i].lane.retry.base_ms = o[i].lane.retry.cap_ms = 3600000;
	}
	e = start_engine(&eo, o, 2);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	assert_int_equal(rdv_engine_reload(e, NULL, &o[1], 1, &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_adopt(e, "old", "new", &error), REDRIVE_OK);
	assert_int_equal(rdv_engine_lease_handler(e, "new", &lease), REDRIVE_OK);
	while (seen.count < 2)
		assert_int_equal(rdv_lease_take(lease, 1, 10000, 50, on_leased, &seen), REDRIVE_OK);
	assert_int_not_equal(seen.lanes[0], seen.lanes[1]);
	WAIT_ACCOUNT(e, "new", timeouts, 2);
	for (int i = 0; i < 2; i++) {
		struct rdv_lease_verdict v = {
			.token = seen.tokens[i],
			.answer = {.explicit_verdict = true, .verdict = RDV_ACK, .exit_code = -1}};

		assert_int_equal(rdv_engine_lease_verdict(e, &v), REDRIVE_OK);
		assert_int_equal(state_in(e, seen.lanes[i]), RDV_STATE_ACKED);
		assert_int_equal(state_in(e, seen.lanes[1]), i ? RDV_STATE_ACKED : RDV_STATE_WAITING);
	}
	rdv_engine_free(e);
	remove_dir(dir);
}

static void count_windows(struct rdv_engine *e, void *ctx)
{
	unsigned *count = ctx;

	for (const struct rdv_window *w = e->windows; w; w = w->next)
		++*count;
}

static void an_idempotency_window_goes_with_the_last_lane_that_has_it(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_route_options o[2] = {route_options("kept", T, h), route_options("other", T, h)};
	struct rdv_error error = {0};
	struct rdv_engine *e = start_engine(&eo, o, 1);
	char name[16];
	unsigned count = 0;

	(void)state;
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof name, "other-%d", i);
		o[1].name = name;
		assert_int_equal(rdv_engine_reload(e, NULL, o, 2, &error), REDRIVE_OK);
	}
	assert_int_equal(rdv_engine_call(e, count_windows, &count), REDRIVE_OK);
	assert_int_equal(count, 2);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

static void discarded_lanes_are_gone_for_good(void **state)
{
	char *dir = new_dir();
	struct handler *h = handler_new();
	struct rdv_route_options old = route_options("old", T, h), new = route_options("new", T, h);
	struct rdv_engine_options eo = engine_options(dir);
	struct rdv_engine *e;
	struct rdv_error error = {0};
	struct rdv_route_status *all;
	struct rdv_engine_metrics m;
	size_t count;

	(void)state;
	old.lane.retry.base_ms = 3600000;
	h->bad = 3;
	e = start_engine(&eo, &old, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "old", waiting, 3);
	rdv_engine_free(e);
	e = start_engine(&eo, &new, 1);
	assert_int_equal(rdv_engine_discard(e, "new", &error), REDRIVE_NOT_FOUND); /* it is no orphan */
	assert_int_equal(rdv_engine_discard(e, "old", &error), REDRIVE_OK);
	rdv_engine_metrics(e, &m);
	assert_int_equal(m.space.live_records, 0);
	assert_int_equal(rdv_engine_discard(e, "old", &error), REDRIVE_NOT_FOUND);
	rdv_engine_free(e);
	e = start_engine(&eo, &new, 1);
	assert_int_equal(rdv_engine_routes(e, NULL, &all, &count), REDRIVE_OK);
	assert_int_equal(count, 1);
	free(all);
	assert_int_equal(publish_keyed(e, T, NULL, "x", NULL), REDRIVE_OK);
	WAIT_ACCOUNT(e, "new", acked, 1);
	assert_int_equal(h->calls, 4);
	rdv_engine_free(e);
	handler_free(h);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_change_is_refused_and_nothing_is_half_done),
		cmocka_unit_test(every_route_that_is_refused_is_named),
		cmocka_unit_test(a_refused_set_leaves_nothing_behind),
		cmocka_unit_test(a_new_route_starts_at_the_next_offset),
		cmocka_unit_test(a_changed_policy_counts_for_messages_that_wait),
		cmocka_unit_test(a_removed_route_leaves_lanes_that_another_adopts),
		cmocka_unit_test(a_callback_of_a_lane_that_was_adopted_is_started_in_the_journal),
		cmocka_unit_test(an_adopted_lane_stays_adopted_when_its_segment_goes),
		cmocka_unit_test(an_idempotency_window_goes_with_the_last_lane_that_has_it),
		cmocka_unit_test(a_late_verdict_is_for_the_lane_that_gave_the_lease),
		cmocka_unit_test(discarded_lanes_are_gone_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
