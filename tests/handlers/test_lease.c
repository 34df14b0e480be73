/* test_lease.c - pull: leases, tokens, expiry in a time that the test sets, extensions, waiting takers. */
#include "kit.h"

struct lease_world {
	struct rdv_handler *handler;
	struct kit_sink sink;
};
struct taken {
	struct rdv_leased items[100];
	uint64_t ids[100];
	size_t count;
};

static const struct rdv_answer ack = {.explicit_verdict = true, .verdict = RDV_ACK, .exit_code = -1};

static void open_world(struct lease_world *w)
{
	struct rdv_lease_options options = {.lease_for_ms = 30000, .max = 64, .number = 0xabcd1234};

	assert_int_equal(rdv_lease_new(&options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

static void close_world(struct lease_world *w)
{
	w->handler->ops->cut(w->handler);
	while (kit_count(&w->sink))
		kit_free(kit_wait(&w->sink, 1));
	w->handler->ops->free(w->handler);
}

static void submit(struct lease_world *w, uint64_t first, uint64_t count)
{
	struct rdv_call *list = NULL, **end = &list;

	for (uint64_t i = 0; i < count; i++, end = &(*end)->next)
		*end = kit_call(first + i, NULL);
	w->handler->ops->submit(w->handler, list);
}

static void each(void *ctx, const struct rdv_leased *leased)
{
	struct taken *t = ctx;

	t->items[t->count] = *leased;
	t->ids[t->count++] = leased->call->id;
}

static struct taken take(struct lease_world *w, uint32_t max, int64_t lease_for_ms)
{
	struct taken t = {.count = 0};

	assert_int_equal(rdv_lease_take(w->handler, max, 0, lease_for_ms, each, &t), REDRIVE_OK);
	return t;
}

static struct rdv_now in(int64_t ms)
{
	struct rdv_now now = rdv_now();

	now.mono.ms += ms;
	now.wall.ms += ms;
	return now;
}

struct hasty {
	struct lease_world *w;
	uint64_t ids[3];
	size_t count;
	bool cut;
};

static void answer_at_once(void *ctx, const struct rdv_leased *leased)
{
	struct hasty *h = ctx;

	assert_int_equal(rdv_lease_answer(h->w->handler, leased->token, &ack, NULL), REDRIVE_OK);
	assert_int_equal(rdv_lease_answer(h->w->handler, leased->token, &ack, NULL), REDRIVE_CONFLICT);
	if (h->cut && h->count == 1)
		h->w->handler->ops->cut(h->w->handler);
	assert_int_equal(kit_count(&h->w->sink), h->cut && h->count == 1 ? 2 : h->count); /* not this one */
	h->ids[h->count++] = leased->call->id; /* so its call is still here */
}

/* A taker hands the token to another thread, which may be faster than he. */
static void a_verdict_while_the_message_is_shown_counts_when_it_was_shown(void **state)
{
	for (int cut = 0; cut < 2; cut++) {
		struct lease_world w;
		struct hasty h = {.w = &w, .cut = cut};

		open_world(&w);
		submit(&w, 1, 3);
		assert_int_equal(rdv_lease_take(w.handler, 3, 0, 0, answer_at_once, &h),
				 cut ? REDRIVE_CLOSED : REDRIVE_OK);
		assert_int_equal(h.count, cut ? 2 : 3);
		assert_int_equal(kit_count(&w.sink), 3);
		for (uint64_t i = 0; i < 3; i++) {
			struct rdv_call *call = kit_wait(&w.sink, 1);

			if (cut && call->id == 3)
				assert_int_equal(call->answer.transport, RDV_TRANSPORT_SHUTDOWN);
			else
				assert_int_equal(call->answer.verdict, RDV_ACK);
			kit_free(call);
		}
		close_world(&w);
	}
}

static void messages_are_leased_in_order_and_at_most_as_many_as_asked(void **state)
{
	struct lease_world w;
	struct taken t;

	open_world(&w);
	submit(&w, 1, 5);
	t = take(&w, 2, 0);
	assert_int_equal(t.count, 2);
	assert_int_equal(t.ids[0], 1);
	assert_int_equal(t.ids[1], 2);
	assert_string_not_equal(t.items[0].token, t.items[1].token);
	assert_in_range(t.items[0].expires_at.ms - rdv_wall_now().ms, 20000, 30000);
	t = take(&w, 100, 5000);
	assert_int_equal(t.count, 3);
	assert_int_equal(t.ids[0], 3);
	assert_in_range(t.items[0].expires_at.ms - rdv_wall_now().ms, 1, 5000);
	assert_int_equal(take(&w, 100, 0).count, 0);
	close_world(&w);
}

static void a_verdict_completes_the_call_once(void **state)
{
	struct rdv_answer retry = {
		.explicit_verdict = true,
		.verdict = RDV_RETRY,
		.exit_code = -1,
		.has_delay = true,
		.delay_ms = 5,
		.failure = {.class = {(const uint8_t *)"E", 1}, .text = {(const uint8_t *)"why", 3}}};
	struct lease_world w;
	struct rdv_call *c;
	struct taken t;

	open_world(&w);
	submit(&w, 1, 2);
	t = take(&w, 2, 0);
	assert_int_equal(rdv_lease_answer(w.handler, t.items[1].token, &retry, NULL), REDRIVE_OK);
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->id, 2);
	assert_int_equal(c->answer.verdict, RDV_RETRY);
	assert_int_equal(c->answer.delay_ms, 5);
	assert_true(kit_text_is(c->answer.failure.text, "why"));
	kit_free(c);
	assert_int_equal(rdv_lease_answer(w.handler, t.items[1].token, &ack, NULL), REDRIVE_CONFLICT);
	assert_int_equal(rdv_lease_answer(w.handler, t.items[0].token, &ack, NULL), REDRIVE_OK);
	kit_free(kit_wait(&w.sink, 1));
	close_world(&w);
}

static void tokens_that_were_never_given_out_are_unknown(void **state)
{
	struct lease_world w, other;
	struct taken t, o;
	char forged[RDV_LEASE_TOKEN_SIZE];
	uint32_t number;

	open_world(&w);
	open_world(&other);
	submit(&w, 1, 1);
	submit(&other, 1, 1);
	t = take(&w, 1, 0);
	o = take(&other, 1, 0);
	assert_true(rdv_lease_token_number(t.items[0].token, &number));
	assert_int_equal(number, 0xabcd1234);
	for (size_t i = 0; i < strlen(t.items[0].token); i++) { /* every digit is guarded */
		strcpy(forged, t.items[0].token);
		forged[i] = forged[i] == '0' ? '1' : '0';
		assert_int_equal(rdv_lease_answer(w.handler, forged, &ack, NULL), REDRIVE_NOT_FOUND);
	}
	assert_int_equal(rdv_lease_answer(w.handler, o.items[0].token, &ack, NULL), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_lease_answer(w.handler, "", &ack, NULL), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_lease_answer(w.handler, "zz", &ack, NULL), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_lease_extend(w.handler, "zz", 0, &(struct rdv_wall){0}), REDRIVE_NOT_FOUND);
	assert_false(rdv_lease_token_number("", &number));
	assert_false(rdv_lease_token_number("0123456789012345678901234567890123456789012345x", &number));
	assert_int_equal(kit_count(&w.sink), 0);
	close_world(&w);
	close_world(&other);
}

static void an_expired_lease_is_a_timeout_and_its_token_conflicts(void **state)
{
	struct lease_world w;
	struct rdv_call *c;
	struct taken t;

	open_world(&w);
	submit(&w, 1, 3);
	assert_int_equal(rdv_lease_expire(w.handler, in(100000)), -1); /* what is not leased does not expire */
	t = take(&w, 2, 1000);
	assert_in_range(rdv_lease_expire(w.handler, in(0)), 1, 1000);
	assert_in_range(rdv_lease_expire(w.handler, in(900)), 1, 100);
	assert_int_equal(kit_count(&w.sink), 0);
	assert_int_equal(rdv_lease_expire(w.handler, in(1001)), -1);
	c = kit_wait(&w.sink, 2);
	for (struct rdv_call *i = c; i; i = i->next) {
		assert_int_equal(i->answer.transport, RDV_TRANSPORT_TIMEOUT);
		assert_true(i->answer.took_ms >= 1000);
	}
	kit_free(c);
	assert_int_equal(rdv_lease_answer(w.handler, t.items[0].token, &ack, NULL), REDRIVE_CONFLICT);
	assert_int_equal(rdv_lease_extend(w.handler, t.items[0].token, 0, &(struct rdv_wall){0}), REDRIVE_CONFLICT);
	submit(&w, 10, 2); /* the slots are used again: the old tokens still do not fit */
	assert_int_equal(take(&w, 3, 0).count, 3);
	assert_int_equal(rdv_lease_answer(w.handler, t.items[0].token, &ack, NULL), REDRIVE_CONFLICT);
	assert_int_equal(rdv_lease_answer(w.handler, t.items[1].token, &ack, NULL), REDRIVE_CONFLICT);
	close_world(&w);
}

/* pitfall: a handler slower than its lease is run twice although it succeeded */
static void a_late_verdict_counts_while_nobody_else_has_the_message(void **state)
{
	struct lease_world w;
	struct rdv_call *c;
	struct taken t;
	struct timespec ms = {.tv_nsec = 5000000};

	open_world(&w);
	submit(&w, 1, 1);
	t = take(&w, 1, 1);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL); /* its time is over: that is the case */
	assert_int_equal(rdv_lease_answer(w.handler, t.items[0].token, &ack, NULL), REDRIVE_OK);
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.verdict, RDV_ACK);
	kit_free(c);
	close_world(&w);
}

static void an_extension_moves_the_expiry(void **state)
{
	struct rdv_wall expires_at;
	struct lease_world w;
	struct taken t;

	open_world(&w);
	submit(&w, 1, 2);
	t = take(&w, 2, 1000);
	assert_int_equal(rdv_lease_extend(w.handler, t.items[0].token, 50000, &expires_at), REDRIVE_OK);
	assert_in_range(expires_at.ms - rdv_wall_now().ms, 40000, 50000);
	assert_in_range(rdv_lease_expire(w.handler, in(1001)), 40000, 50000);
	kit_free(kit_wait(&w.sink, 1));
	assert_int_equal(kit_count(&w.sink), 0);
	assert_int_equal(rdv_lease_extend(w.handler, t.items[0].token, 10, &expires_at), REDRIVE_OK); /* and back */
	assert_int_equal(rdv_lease_expire(w.handler, in(11)), -1);
	kit_free(kit_wait(&w.sink, 1));
	close_world(&w);
}

/* pitfall: a timer is not armed because another one was pending */
static void leases_of_many_lengths_expire_in_their_order(void **state)
{
	struct lease_world w;
	uint64_t seed = 1;

	open_world(&w);
	for (int round = 0; round < 20; round++) {
		struct taken t[40];
		int64_t until[40], start = rdv_now().mono.ms;
		size_t gone = 0;

		submit(&w, 1, 40);
		for (int i = 0; i < 40; i++) {
			seed = seed * 6364136223846793005u + 1;
			until[i] = 1000 + (int64_t)(seed >> 33) % 100000;
			t[i] = take(&w, 1, until[i]);
			assert_int_equal(t[i].count, 1);
			if (i % 3 == 0) {
				until[i] = 500000;
				assert_int_equal(rdv_lease_extend(w.handler, t[i].items[0].token, until[i],
								  &(struct rdv_wall){0}),
						 REDRIVE_OK);
			}
		}
		for (int64_t at = 5000; gone < 40; at += 5000) { /* 1 s of slack for the time the test itself takes */
			size_t least = 0, most = 0;

			rdv_lease_expire(w.handler, (struct rdv_now){{start + at}, {0}});
			gone = kit_count(&w.sink);
			for (int i = 0; i < 40; i++) {
				least += until[i] + 1000 <= at;
				most += until[i] <= at;
			}
			assert_in_range(gone, least, most);
		}
		kit_free(kit_wait(&w.sink, 40));
	}
	close_world(&w);
}

/* ---- offered, and shown ---- */

static void what_nobody_has_leased_can_be_taken_away(void **state)
{
	struct lease_world w;
	struct rdv_call *list, *c;
	struct rdv_call *calls[3];
	struct taken t;

	open_world(&w);
	for (int i = 0; i < 3; i++) {
		calls[i] = kit_call((uint64_t)i + 1, NULL);
		w.handler->ops->submit(w.handler, calls[i]);
	}
	assert_true(rdv_lease_is_offered(w.handler, calls[1]));
	assert_true(rdv_lease_withdraw(w.handler, calls[1]));
	assert_false(rdv_lease_withdraw(w.handler, calls[1])); /* it is not here any more */
	kit_free(calls[1]);
	t = take(&w, 1, 0);
	assert_int_equal(t.ids[0], 1);
	assert_false(rdv_lease_is_offered(w.handler, calls[0]));
	assert_false(rdv_lease_withdraw(w.handler, calls[0])); /* somebody has it */
	list = rdv_lease_recall(w.handler);
	assert_ptr_equal(list, calls[2]);
	assert_null(list->next);
	kit_free(list);
	assert_int_equal(kit_count(&w.sink), 0); /* none of them was completed */
	assert_int_equal(rdv_lease_answer(w.handler, t.items[0].token, &ack, &w), REDRIVE_OK);
	c = kit_wait(&w.sink, 1);
	assert_ptr_equal(c->asker, &w);
	kit_free(c);
	close_world(&w);
}

/* While a lease is shown to its taker the handler is free, and the lease does not end. */
static void each_without_lock(void *ctx, const struct rdv_leased *leased)
{
	struct lease_world *w = ctx;
	struct rdv_lease_position at;

	assert_false(rdv_lease_is_offered(w->handler, leased->call)); /* takes the handler's lock */
	assert_int_equal(rdv_lease_position(w->handler, leased->token, &at), REDRIVE_OK);
	assert_int_equal(at.offset, leased->call->offset);
	assert_int_equal(at.lane, leased->call->lane);
	assert_int_equal(rdv_lease_expire(w->handler, in(100000)), 0);
	assert_int_equal(kit_count(&w->sink), 0);
}

static void a_lease_is_shown_without_the_lock_and_does_not_end_meanwhile(void **state)
{
	struct lease_world w;

	open_world(&w);
	submit(&w, 1, 1);
	assert_int_equal(rdv_lease_take(w.handler, 1, 0, 50, each_without_lock, &w), REDRIVE_OK);
	assert_int_equal(rdv_lease_expire(w.handler, in(100000)), -1);
	kit_free(kit_wait(&w.sink, 1));
	close_world(&w);
}

/* ---- waiting ---- */

struct taker {
	struct lease_world *w;
	int64_t wait_ms;
	struct taken got;
	enum redrive_status status;
	int64_t took_ms;
};

static void *take_waiting(void *arg)
{
	struct taker *t = arg;
	int64_t before = rdv_mono_now().ms;

	t->status = rdv_lease_take(t->w->handler, 1, t->wait_ms, 0, each, &t->got);
	t->took_ms = rdv_mono_now().ms - before;
	return NULL;
}

static void a_taker_waits_no_longer_than_it_said(void **state)
{
	struct lease_world w;
	struct taker t = {.w = &w, .wait_ms = 60};

	open_world(&w);
	take_waiting(&t);
	assert_int_equal(t.status, REDRIVE_OK);
	assert_int_equal(t.got.count, 0);
	assert_in_range(t.took_ms, 60, 20000);
	close_world(&w);
}

static void many_waiting_takers_get_one_message_each(void **state)
{
	enum { TAKERS = 40 };
	struct lease_world w;
	struct taker takers[TAKERS];
	pthread_t threads[TAKERS];
	bool seen[TAKERS + 1] = {false};

	open_world(&w);
	for (int i = 0; i < TAKERS; i++) {
		takers[i] = (struct taker){.w = &w, .wait_ms = 60000};
		pthread_create(&threads[i], NULL, take_waiting, &takers[i]);
	}
	submit(&w, 1, TAKERS / 2);
	for (uint64_t i = 0; i < TAKERS / 2; i++)
		submit(&w, TAKERS / 2 + 1 + i, 1);
	for (int i = 0; i < TAKERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(takers[i].got.count, 1);
		assert_false(seen[takers[i].got.ids[0]]);
		seen[takers[i].got.ids[0]] = true;
	}
	close_world(&w);
}

static void cut_wakes_waiting_takers(void **state)
{
	struct lease_world w;
	struct taker t = {.w = &w, .wait_ms = 600000};
	pthread_t thread;

	open_world(&w);
	pthread_create(&thread, NULL, take_waiting, &t);
	w.handler->ops->cut(w.handler);
	pthread_join(thread, NULL);
	assert_int_equal(t.status, REDRIVE_CLOSED);
	w.handler->ops->free(w.handler);
}

static void count_ready(void *ctx)
{
	++*(int *)ctx;
}

static void notices_come_once_when_something_is_there(void **state)
{
	int ready[4] = {0};
	struct lease_world w;

	open_world(&w);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rdv_lease_notify(w.handler, count_ready, &ready[i]), REDRIVE_OK);
	assert_true(rdv_lease_forget(w.handler, &ready[2]));
	assert_false(rdv_lease_forget(w.handler, &ready[2]));
	submit(&w, 1, 1); /* one message, one notice */
	assert_int_equal(ready[0], 1);
	assert_int_equal(ready[1], 0);
	assert_false(rdv_lease_forget(w.handler, &ready[0]));
	assert_int_equal(rdv_lease_notify(w.handler, count_ready, &ready[3]), REDRIVE_OK); /* it is still there */
	assert_int_equal(ready[3], 1);
	submit(&w, 2, 5);
	assert_int_equal(ready[1], 1);
	assert_int_equal(ready[2], 0);
	assert_int_equal(take(&w, 100, 0).count, 6);
	assert_int_equal(rdv_lease_notify(w.handler, count_ready, &ready[2]), REDRIVE_OK);
	close_world(&w); /* a cut is something, too */
	assert_int_equal(ready[2], 1);
}

static void bad_options_are_refused(void **state)
{
	struct rdv_lease_options options = {.lease_for_ms = 0};
	struct rdv_handler *h;
	struct kit_sink sink;

	assert_int_equal(rdv_lease_new(&options, kit_sink(&sink), &h, NULL), REDRIVE_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_nobody_has_leased_can_be_taken_away),
		cmocka_unit_test(a_lease_is_shown_without_the_lock_and_does_not_end_meanwhile),
		cmocka_unit_test(a_verdict_while_the_message_is_shown_counts_when_it_was_shown),
		cmocka_unit_test(messages_are_leased_in_order_and_at_most_as_many_as_asked),
		cmocka_unit_test(a_verdict_completes_the_call_once),
		cmocka_unit_test(tokens_that_were_never_given_out_are_unknown),
		cmocka_unit_test(an_expired_lease_is_a_timeout_and_its_token_conflicts),
		cmocka_unit_test(a_late_verdict_counts_while_nobody_else_has_the_message),
		cmocka_unit_test(an_extension_moves_the_expiry),
		cmocka_unit_test(leases_of_many_lengths_expire_in_their_order),
		cmocka_unit_test(a_taker_waits_no_longer_than_it_said),
		cmocka_unit_test(many_waiting_takers_get_one_message_each),
		cmocka_unit_test(cut_wakes_waiting_takers),
		cmocka_unit_test(notices_come_once_when_something_is_there),
		cmocka_unit_test(bad_options_are_refused),
	};

	return cmocka_run_group_tests_name("handlers: lease", tests, NULL, NULL);
}
