/* test_inlet.c - routes whose messages come from a broker, against a broker in memory: positions, the journal, letters,
 * owners that change, checkpoints. */
#include "fake_broker.h"

struct world {
	char *dir;
	struct handler *h;
	struct fake_broker *b;
	struct rdv_route_options o;
	struct rdv_engine *e;
};

static void begin(struct world *w)
{
	*w = (struct world){.dir = new_dir(), .h = handler_new(), .b = fake_new()};
	w->o = route_options("r", "orders", w->h);
	w->o.source = &w->b->maker;
}

static void start(struct world *w)
{
	struct rdv_engine_options eo = engine_options(w->dir);

	w->e = start_engine(&eo, &w->o, 1);
	fake_assign(w->b);
}

/* As after kill -9 on another machine: nothing of this process is left but what the broker has. */
static void crash(struct world *w)
{
	w->b->now->owner = false;
	w->b->now = NULL;
	rdv_engine_free(w->e);
	remove_dir(w->dir);
	w->dir = new_dir();
}

static void end(struct world *w)
{
	rdv_engine_free(w->e);
	fake_done(w->b);
	handler_free(w->h);
	remove_dir(w->dir);
}

static void messages_that_succeed_are_told_by_the_position_alone(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.target_policy.concurrency = 1; /* they end in order */
	for (int i = 0; i < 100; i++)
		fake_produce(w.b, i % 3 ? "k" : NULL, "fine", i % 10 ? 1 : 7);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 100);
	assert_true(fake_wait_position(w.b, w.b->messages[99].offset + 1));
	assert_int_equal(fake_count(w.b, RDV_RECORD_BODY), 0);
	assert_int_equal(fake_count(w.b, RDV_RECORD_DONE), 0);
	assert_int_equal(w.h->calls, 100);
	end(&w);
}

static void a_message_that_waits_lets_the_position_pass_and_its_attempts_survive(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.lane.retry.base_ms = 60000;
	fake_produce(w.b, NULL, "!later", 1);
	fake_produce(w.b, NULL, "fine", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", waiting, 1);
	assert_true(fake_wait_position(w.b, 2));
	assert_int_equal(fake_count(w.b, RDV_RECORD_BODY), 1);
	crash(&w);
	w.o.lane.retry.base_ms = 10;
	w.o.lane.retry.attempts = 2;
	start(&w);
	WAIT_ACCOUNT(w.e, "r", waiting, 1); /* due as it was decided */
	assert_int_equal(status_of(w.e, "r").account.received, 2);
	assert_int_equal(status_of(w.e, "r").account.acked, 1);
	assert_int_equal(w.h->calls, 2);
	end(&w);
}

static void a_letter_goes_with_its_done_and_once(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.lane.retry.attempts = 2;
	fake_produce(w.b, "k", "!poison", 1);
	fake_produce(w.b, "k", "fine", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", dead, 1);
	for (int i = 0; i < 1000 && !w.b->letters; i++)
		usleep(10000);
	assert_int_equal(w.b->letters, 1);
	assert_int_equal(w.b->letter_offsets[0], 0);
	assert_int_equal(fake_count(w.b, RDV_RECORD_DONE), 1);
	crash(&w);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	usleep(300000);
	assert_int_equal(w.b->letters, 1);
	assert_int_equal(status_of(w.e, "r").account.dead, 1);
	assert_int_equal(status_of(w.e, "r").account.received, 2);
	end(&w);
}

static void a_crash_before_the_letter_makes_it_again(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.lane.retry.attempts = 1;
	fake_produce(w.b, NULL, "!poison", 1);
	start(&w);
	for (int i = 0; i < 1000 && !fake_count(w.b, RDV_RECORD_STATE); i++)
		usleep(1000);
	pthread_mutex_lock(&w.b->mutex);
	w.b->hold = !w.b->letters;
	pthread_mutex_unlock(&w.b->mutex);
	w.b->now->owner = false;
	fake_release(w.b);
	crash(&w);
	start(&w);
	for (int i = 0; i < 1000 && !w.b->letters; i++)
		usleep(10000);
	assert_int_equal(w.b->letters, 1);
	end(&w);
}

/* pitfall: an owner that lost its partition goes on writing */
static void a_lane_that_is_lost_writes_nothing_more(void **state)
{
	struct world w;
	unsigned batches;

	(void)state;
	begin(&w);
	fake_produce(w.b, NULL, "one", 1);
	handler_block(w.h, true);
	start(&w);
	assert_true(handler_wait(w.h, &w.h->inside, 1));
	usleep(200000); /* what was to be written is */
	fake_lose(w.b);
	usleep(100000);
	batches = w.b->batches;
	handler_block(w.h, false);
	assert_true(handler_wait(w.h, &w.h->done, 1));
	usleep(200000);
	assert_int_equal(w.b->batches, batches);
	assert_int_equal(w.b->position, 0);
	assert_int_equal(status_of(w.e, "r").account.received, 0);
	fake_assign(w.b);
	assert_true(handler_wait(w.h, &w.h->done, 2));
	assert_true(fake_wait_position(w.b, 1));
	assert_int_equal(status_of(w.e, "r").account.acked, 1);
	end(&w);
}

/* pitfall: a slow message holds the committed offset back */
static void a_slow_call_does_not_hold_the_position(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.callback.threads = 1;
	w.o.target_policy.concurrency = 2;
	w.h->bad = 1;
	w.o.lane.order = RDV_ORDER_KEY;
	w.o.lane.retry.base_ms = 3000;
	fake_produce(w.b, "a", "head", 1); /* fails once: the next of its key is held */
	fake_produce(w.b, "a", "follower", 1);
	fake_produce(w.b, "b", "other", 1);
	start(&w);
	assert_true(fake_wait_position(w.b, 3));
	assert_int_equal(fake_count(w.b, RDV_RECORD_BODY), 2); /* the head and its follower */
	crash(&w);
	start(&w);
	assert_true(handler_wait(w.h, &w.h->done, 3));
	assert_string_equal(w.h->seen[w.h->calls - 2].body, "head");
	assert_string_equal(w.h->seen[w.h->calls - 1].body, "follower");
	WAIT_ACCOUNT(w.e, "r", acked, 3);
	end(&w);
}

static void what_ended_ahead_of_the_position_is_not_delivered_again(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.callback.threads = 1;
	w.o.lane.order = RDV_ORDER_KEY;
	fake_produce(w.b, "a", "!first", 1);
	w.o.lane.retry.base_ms = 60000;
	for (int i = 0; i < 10; i++)
		fake_produce(w.b, i ? "b" : "a", "x", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 9);
	for (int i = 0; i < 1000 && fake_ended(w.b) < 9; i++)
		usleep(1000);
	assert_int_equal(w.b->position, 1); /* behind the head, which is in the journal; its follower is not yet */
	crash(&w);
	start(&w);
	assert_true(fake_wait_position(w.b, 11));
	assert_int_equal(w.h->calls, 10);
	assert_int_equal(status_of(w.e, "r").account.acked, 9);
	end(&w);
}

static void a_partition_that_is_given_up_in_order_ends_with_close(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	fake_produce(w.b, NULL, "one", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	for (int i = 0; i < 20; i++) {
		fake_revoke(w.b, 5000);
		assert_int_equal(fake_last(w.b), RDV_RECORD_CLOSE);
		fake_produce(w.b, NULL, "more", 1);
		fake_assign(w.b);
	}
	WAIT_ACCOUNT(w.e, "r", acked, 21);
	assert_int_equal(fake_count(w.b, RDV_RECORD_CLOSE), 20);
	assert_int_equal(w.h->calls, 21);
	end(&w);
}

static bool wait_held(struct fake_broker *b)
{
	for (int i = 0; i < 1000; i++) {
		struct rdv_source_batch *held;

		pthread_mutex_lock(&b->mutex);
		held = b->held;
		pthread_mutex_unlock(&b->mutex);
		if (held)
			return true;
		usleep(10000);
	}
	return false;
}

static void hold_batches(struct fake_broker *b)
{
	pthread_mutex_lock(&b->mutex);
	b->hold = true;
	pthread_mutex_unlock(&b->mutex);
}

static void a_letter_of_a_lane_that_is_lost_goes_with_it(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.lane.retry.attempts = 1;
	fake_produce(w.b, NULL, "fine", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	assert_true(fake_wait_position(w.b, 1));
	for (int i = 0; i < 20; i++) {
		fake_produce(w.b, NULL, "!poison", 1);
		fake_feed(w.b);
		for (int k = 0; k < 100000 && !fake_count(w.b, RDV_RECORD_STATE); k++)
			usleep(10);
		hold_batches(w.b); /* its DYING is durable; now its letter waits for the next batch */
		usleep((useconds_t)i * 1000);
		fake_lose(w.b);
		usleep(5000);
		fake_assign(w.b);
	}
	for (int i = 0; i < 1000 && w.b->letters < 20; i++)
		usleep(10000);
	assert_int_equal(w.b->letters, 20);
	end(&w);
}

static void what_follows_a_batch_of_unknown_fate_is_not_written(void **state)
{
	struct world w;
	unsigned batches;

	(void)state;
	begin(&w);
	fake_produce(w.b, NULL, "one", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	assert_true(fake_wait_position(w.b, 1));
	hold_batches(w.b);
	fake_produce(w.b, NULL, "two", 1);
	fake_feed(w.b);
	assert_true(wait_held(w.b));
	fake_produce(w.b, NULL, "three", 1);
	fake_feed(w.b);
	usleep(100000); /* it is recorded that it begins: that would be the next batch */
	batches = w.b->batches;
	fake_unknown(w.b);
	usleep(200000);
	assert_int_equal(w.b->batches, batches);
	fake_lose(w.b);
	fake_assign(w.b);
	assert_true(fake_wait_position(w.b, 3));
	end(&w);
}

/* pitfall: a message that kills its process is called again and again, as nobody noted that it was called */
static void a_callback_is_called_when_the_broker_knows_that_it_begins(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	start(&w);
	hold_batches(w.b);
	fake_produce(w.b, NULL, "one", 1);
	fake_feed(w.b);
	assert_true(wait_held(w.b));
	usleep(100000);
	assert_int_equal(w.h->calls + w.h->inside, 0);
	fake_release(w.b);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	assert_int_equal(fake_count(w.b, RDV_RECORD_STARTED), 1);
	end(&w);
}

struct asking {
	struct rdv_engine *e;
	_Atomic bool answered;
	enum redrive_status status;
};

static void *ask_for_pause(void *arg)
{
	struct asking *a = arg;

	a->status = rdv_engine_pause(a->e, "r", true);
	atomic_store(&a->answered, true);
	return NULL;
}

static void a_pause_is_answered_when_the_broker_has_it(void **state)
{
	for (int lost = 0; lost < 2; lost++) {
		struct world w;
		struct asking a = {0};
		pthread_t thread;

		(void)state;
		begin(&w);
		start(&w);
		usleep(200000);
		hold_batches(w.b);
		a.e = w.e;
		assert_int_equal(pthread_create(&thread, NULL, ask_for_pause, &a), 0);
		assert_true(wait_held(w.b));
		usleep(100000);
		assert_false(atomic_load(&a.answered));
		if (lost)
			fake_lose(w.b);
		else
			fake_release(w.b);
		pthread_join(thread, NULL);
		assert_int_equal(a.status, lost ? REDRIVE_CLOSED : REDRIVE_OK);
		assert_int_equal(fake_count(w.b, RDV_RECORD_PAUSE), lost ? 0 : 1);
		end(&w);
	}
}

static void a_retry_that_was_at_the_handler_in_a_crash_leaves_no_debt(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.lane.retry.crashes = 100;
	fake_produce(w.b, NULL, "one", 1);
	w.h->bad = 1;
	start(&w);
	assert_true(handler_wait(w.h, &w.h->calls, 1));
	handler_block(w.h, true);
	assert_true(handler_wait(w.h, &w.h->inside, 1));
	for (int i = 0; i < 1000 && fake_count(w.b, RDV_RECORD_STARTED) < 2; i++)
		usleep(10000);
	w.b->now->owner = false; /* it is told nothing more */
	w.b->now = NULL;
	handler_block(w.h, false);
	rdv_engine_free(w.e);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	fake_produce(w.b, NULL, "two", 1);
	fake_feed(w.b);
	WAIT_ACCOUNT(w.e, "r", acked, 2);
	assert_false(w.b->paused);
	end(&w);
}

static void a_restart_forgets_what_the_cache_held(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.o.lane.retry.base_ms = 60000;
	for (int i = 0; i < 50; i++)
		fake_produce(w.b, NULL, i % 2 ? "!waits" : "fine", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", waiting, 25);
	assert_true(fake_wait_position(w.b, 50));
	for (int i = 0; i < 3; i++) { /* in the same directory */
		rdv_engine_free(w.e);
		start(&w);
		WAIT_ACCOUNT(w.e, "r", waiting, 25);
		assert_int_equal(status_of(w.e, "r").account.received, 50);
	}
	assert_int_equal(w.h->calls, 50);
	end(&w);
}

static void a_start_after_an_end_amid_the_fold_knows_whose_the_records_are(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	fake_produce(w.b, NULL, "one", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", acked, 1);
	fake_revoke(w.b, 5000);
	for (int i = 0; i < 2; i++) {
		struct rdv_source_partition p = {.topic = "orders", .epoch = ++w.b->epoch, .key_secret = "a secret"};
		struct rdv_source_sink *sink = &w.b->source.sink;
		struct rdv_buffer counters;
		struct rdv_source_record r = {.type = RDV_RECORD_COUNTERS};
		struct rdv_source_lane source = {.owner = true};

		rdv_buffer_init(&counters, 0);
		rdv_counters_encode(&(struct rdv_account){0}, &counters);
		r.payload = rdv_buffer_as_slice(&counters);
		p.source = &source;
		assert_int_equal(sink->open(sink->ctx, &p, &source.lane), REDRIVE_OK);
		if (i)
			assert_int_equal(sink->fold(sink->ctx, source.lane, &r, 1), REDRIVE_OK);
		rdv_engine_free(w.e);
		rdv_buffer_done(&counters);
		start(&w);
		fake_revoke(w.b, 5000);
	}
	end(&w);
}

static void a_journal_that_grew_is_written_anew_and_forgotten(void **state)
{
	struct world w;
	char *big = malloc(64 << 10);
	unsigned calls;

	(void)state;
	memset(big, 'x', 64 << 10);
	big[0] = '!';
	big[(64 << 10) - 1] = 0;
	begin(&w);
	w.o.lane.retry.base_ms = 60000;
	fake_produce(w.b, "k", "!small", 1);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", waiting, 1);
	w.h->verdict = RDV_DROP;
	w.o.lane.retry.base_ms = 10;
	for (int i = 0; i < 400; i++) { /* each fails once, is in the journal, and ends */
		pthread_mutex_lock(&w.h->mutex);
		w.h->verdict = RDV_REJECT;
		pthread_mutex_unlock(&w.h->mutex);
		fake_produce(w.b, NULL, big, 1);
	}
	fake_feed(w.b);
	WAIT_ACCOUNT(w.e, "r", dead, 400);
	for (int i = 0; i < 1000 && !w.b->forgotten; i++)
		usleep(10000);
	assert_true(w.b->forgotten > 0);
	calls = w.h->calls;
	crash(&w);
	start(&w);
	WAIT_ACCOUNT(w.e, "r", waiting, 1);
	assert_int_equal(status_of(w.e, "r").account.received, 401);
	assert_int_equal(status_of(w.e, "r").account.dead, 400);
	assert_int_equal(w.h->calls, calls);
	free(big);
	end(&w);
}

static void a_source_is_paused_when_its_lane_is_full(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	handler_block(w.h, true);
	for (int i = 0; i < FAKE_MESSAGES - 1; i++)
		fake_produce(w.b, NULL, "x", 1);
	start(&w);
	for (int k = 0; k < 4; k++) { /* 4 x 4,095 > 16,384 - 4,096 */
		for (int i = 0; i < FAKE_MESSAGES - 1; i++)
			w.b->messages[i].offset += FAKE_MESSAGES;
		w.b->given = 0;
		fake_feed(w.b);
	}
	for (int i = 0; i < 1000 && !w.b->paused; i++)
		usleep(10000);
	assert_true(w.b->paused);
	handler_block(w.h, false);
	for (int i = 0; i < 1000 && w.b->paused; i++)
		usleep(10000);
	assert_false(w.b->paused);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_that_succeed_are_told_by_the_position_alone),
		cmocka_unit_test(a_message_that_waits_lets_the_position_pass_and_its_attempts_survive),
		cmocka_unit_test(a_letter_goes_with_its_done_and_once),
		cmocka_unit_test(a_crash_before_the_letter_makes_it_again),
		cmocka_unit_test(a_lane_that_is_lost_writes_nothing_more),
		cmocka_unit_test(a_slow_call_does_not_hold_the_position),
		cmocka_unit_test(what_ended_ahead_of_the_position_is_not_delivered_again),
		cmocka_unit_test(a_partition_that_is_given_up_in_order_ends_with_close),
		cmocka_unit_test(a_letter_of_a_lane_that_is_lost_goes_with_it),
		cmocka_unit_test(what_follows_a_batch_of_unknown_fate_is_not_written),
		cmocka_unit_test(a_callback_is_called_when_the_broker_knows_that_it_begins),
		cmocka_unit_test(a_pause_is_answered_when_the_broker_has_it),
		cmocka_unit_test(a_retry_that_was_at_the_handler_in_a_crash_leaves_no_debt),
		cmocka_unit_test(a_restart_forgets_what_the_cache_held),
		cmocka_unit_test(a_start_after_an_end_amid_the_fold_knows_whose_the_records_are),
		cmocka_unit_test(a_journal_that_grew_is_written_anew_and_forgotten),
		cmocka_unit_test(a_source_is_paused_when_its_lane_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
