/* test_callback.c - the C callback: verdicts now and later, early and late ones, slow functions, many threads. */
#include "kit.h"
#include "handlers/callback_later.h"

struct gate { /* holds callbacks until it is opened */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool open;
	uint64_t entered, holds; /* calls that came in; id of the one that is held */
};

struct callback_world {
	struct rdv_handler *handler;
	struct kit_sink sink;
	struct gate gate;
	_Atomic uint64_t last;
};

static void set_ack(struct rdv_call *call)
{
	call->answer.explicit_verdict = true;
	call->answer.verdict = RDV_ACK;
}

static const struct rdv_answer reject = {
	.explicit_verdict = true,
	.verdict = RDV_REJECT,
	.exit_code = -1,
	.failure = {.class = {(const uint8_t *)"Bad", 3}, .text = {(const uint8_t *)"no\xff", 3}}};

static void gate_wait(struct gate *g, uint64_t id)
{
	pthread_mutex_lock(&g->mutex);
	g->entered++;
	pthread_cond_broadcast(&g->changed);
	while (!g->open && g->holds == id)
		pthread_cond_wait(&g->changed, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

static void gate_open(struct gate *g)
{
	pthread_mutex_lock(&g->mutex);
	g->open = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->mutex);
}

static void gate_wait_entered(struct gate *g, uint64_t count)
{
	pthread_mutex_lock(&g->mutex);
	while (g->entered < count)
		pthread_cond_wait(&g->changed, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

static void open_world(struct callback_world *w, bool (*call)(void *ctx, struct rdv_call *call), uint32_t threads,
		       int64_t timeout_ms)
{
	struct rdv_callback_options options = {.call = call, .ctx = w, .threads = threads, .timeout_ms = timeout_ms};

	*w = (struct callback_world){.gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, 1}};
	assert_int_equal(rdv_callback_new(&options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

static void close_world(struct callback_world *w)
{
	assert_int_equal(kit_count(&w->sink), 0);
	w->handler->ops->free(w->handler);
}

/* ---- functions ---- */

static bool later(void *ctx, struct rdv_call *call)
{
	struct callback_world *w = ctx;

	gate_wait(&w->gate, 0);
	return false;
}

static bool held_then_ack(void *ctx, struct rdv_call *call)
{
	struct callback_world *w = ctx;

	gate_wait(&w->gate, call->id);
	set_ack(call);
	return true;
}

static bool held_then_later(void *ctx, struct rdv_call *call)
{
	struct callback_world *w = ctx;

	gate_wait(&w->gate, call->id);
	return false;
}

static bool answers_itself_then(struct callback_world *w, struct rdv_call *call, bool now)
{
	assert_int_equal(rdv_callback_answer(w->handler, call->id, &reject), REDRIVE_OK);
	assert_int_equal(rdv_callback_answer(w->handler, call->id, &reject), REDRIVE_NOT_FOUND);
	set_ack(call);
	return now;
}
static bool answers_itself_then_later(void *ctx, struct rdv_call *call)
{
	return answers_itself_then(ctx, call, false);
}
static bool answers_itself_then_now(void *ctx, struct rdv_call *call)
{
	return answers_itself_then(ctx, call, true);
}

/* ---- tests ---- */

static void a_later_verdict_is_copied_cleaned_and_counts_once(void **state)
{
	struct callback_world w;
	struct rdv_call *c;

	open_world(&w, later, 2, 60000);
	w.handler->ops->submit(w.handler, kit_call(7, NULL));
	gate_wait_entered(&w.gate, 1);
	assert_int_equal(rdv_callback_answer(w.handler, 8, &reject), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_callback_answer(w.handler, 0, &reject), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_callback_answer(w.handler, 7, &reject),
			 REDRIVE_OK); /* whether or not the function has returned */
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.verdict, RDV_REJECT);
	assert_true(kit_text_is(c->answer.failure.class, "Bad"));
	assert_true(kit_text_is(c->answer.failure.text, "no\xef\xbf\xbd"));
	assert_int_equal(rdv_callback_answer(w.handler, 7, &reject), REDRIVE_NOT_FOUND);
	kit_free(c);
	close_world(&w);
}

static void a_later_verdict_frees_its_thread(void **state)
{
	struct callback_world w;

	open_world(&w, later, 1, 60000);
	for (uint64_t i = 1; i <= 500; i++)
		w.handler->ops->submit(w.handler, kit_call(i, NULL));
	gate_wait_entered(&w.gate, 500); /* by one thread */
	for (uint64_t i = 500; i >= 1; i--)
		assert_int_equal(rdv_callback_answer(w.handler, i, &reject), REDRIVE_OK);
	kit_free(kit_wait(&w.sink, 500));
	close_world(&w);
}

static void a_verdict_after_the_timeout_is_an_error(void **state)
{
	struct callback_world w;
	struct rdv_call *c;

	open_world(&w, later, 1, 50);
	w.handler->ops->submit(w.handler, kit_call(7, NULL));
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_TIMEOUT);
	assert_true(c->answer.took_ms >= 49);
	assert_int_equal(rdv_callback_answer(w.handler, 7, &reject), REDRIVE_TIMEOUT);
	assert_int_equal(kit_count(&w.sink), 0);
	kit_free(c);
	close_world(&w);
}

static void a_verdict_that_comes_before_the_function_returns_counts(void **state)
{
	bool (*const functions[])(void *, struct rdv_call *) = {answers_itself_then_later, answers_itself_then_now};

	for (size_t i = 0; i < 2; i++) {
		struct callback_world w;
		struct rdv_call *c;

		open_world(&w, functions[i], 2, 60000);
		c = kit_send(w.handler, &w.sink, kit_call(7, NULL));
		assert_int_equal(c->answer.verdict, RDV_REJECT);
		kit_free(c);
		close_world(&w);
	}
}

/* pitfall: a handler slower than its lease is run twice although it succeeded */
static void a_function_that_runs_longer_than_the_timeout_still_has_its_say(void **state)
{
	struct callback_world w;
	struct rdv_call *c;
	struct timespec t = {.tv_nsec = 120000000};

	open_world(&w, held_then_ack, 1, 20);
	w.handler->ops->submit(w.handler, kit_call(1, NULL));
	gate_wait_entered(&w.gate, 1);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL); /* well beyond its timeout: that is the case */
	assert_int_equal(kit_count(&w.sink), 0);
	gate_open(&w.gate);
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_ANSWER);
	assert_int_equal(c->answer.verdict, RDV_ACK);
	assert_true(c->answer.took_ms >= 100);
	kit_free(c);
	close_world(&w);
}

/* pitfall: a blocking handler stops what is not its own */
static void nothing_waits_behind_a_slow_function(void **state)
{
	struct callback_world w;
	struct rdv_call *list = NULL, **end = &list;

	open_world(&w, held_then_ack, 2,
		   60000); /* the first call is held; the others must come back through the other thread */
	for (uint64_t i = 1; i <= 200; i++, end = &(*end)->next)
		*end = kit_call(i, NULL);
	w.handler->ops->submit(w.handler, list);
	list = kit_wait(&w.sink, 199);
	for (struct rdv_call *c = list; c; c = c->next)
		assert_int_not_equal(c->id, 1);
	kit_free(list);
	gate_open(&w.gate);
	kit_free(kit_wait(&w.sink, 1));
	close_world(&w);
}

static bool fast_then_held(void *ctx, struct rdv_call *call)
{
	struct callback_world *w = ctx;

	if (call->id == 100)
		gate_wait(&w->gate, call->id);
	set_ack(call);
	return true;
}

static void what_is_finished_is_handed_over_while_the_next_one_is_slow(void **state)
{
	struct callback_world w;
	struct rdv_call *list = NULL, **end = &list;

	open_world(&w, fast_then_held, 1, 60000); /* one thread: only the watcher can hand over what it has finished */
	w.gate.holds = 100;
	for (uint64_t i = 1; i <= 110; i++, end = &(*end)->next)
		*end = kit_call(i, NULL);
	w.handler->ops->submit(w.handler, list);
	kit_free(kit_wait(&w.sink, 99));
	gate_open(&w.gate);
	kit_free(kit_wait(&w.sink, 11));
	close_world(&w);
}

static void cut_waits_for_a_running_function_and_takes_its_verdict(void **state)
{
	struct callback_world w;
	struct rdv_call *c;

	open_world(&w, held_then_ack, 1, 60000);
	for (uint64_t i = 1; i <= 10; i++)
		w.handler->ops->submit(w.handler, kit_call(i, NULL));
	gate_wait_entered(&w.gate, 1);
	w.handler->ops->cut(w.handler);
	c = kit_wait(&w.sink, 9);
	for (struct rdv_call *i = c; i; i = i->next)
		assert_int_equal(i->answer.transport, RDV_TRANSPORT_SHUTDOWN);
	kit_free(c);
	gate_open(&w.gate);
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_ANSWER);
	kit_free(c);
	close_world(&w);
}

static void a_running_function_that_wants_to_answer_later_is_cut(void **state)
{
	struct callback_world w;
	struct rdv_call *c;

	open_world(&w, held_then_later, 1, 60000);
	w.handler->ops->submit(w.handler, kit_call(1, NULL));
	gate_wait_entered(&w.gate, 1);
	w.handler->ops->cut(w.handler);
	gate_open(&w.gate);
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_SHUTDOWN);
	kit_free(c);
	close_world(&w);
}

static bool sometimes_later(void *ctx, struct rdv_call *call)
{
	struct callback_world *w = ctx;

	if (call->id % 3 == 0) {
		atomic_store(&w->last, call->id);
		return false;
	}
	set_ack(call);
	return true;
}

struct answerer {
	struct callback_world *w;
	_Atomic bool *stop;
	_Atomic uint64_t *answered;
};

/* Answers whatever is the last later call, and ones that were long ago. */
static void *answer_all(void *arg)
{
	struct answerer *a = arg;
	uint64_t old = 3;

	while (!*a->stop) {
		uint64_t id = atomic_load(&a->w->last);

		if (rdv_callback_answer(a->w->handler, id, &reject) == REDRIVE_OK)
			++*a->answered;
		if (rdv_callback_answer(a->w->handler, old, &reject) == REDRIVE_OK)
			++*a->answered;
		old = old > id ? 3 : old + 3;
	}
	return NULL;
}

static void random_verdicts_from_many_threads_end_each_call_once(void **state)
{
	enum { CALLS = 30000, ANSWERERS = 3 };
	static bool seen[CALLS + 1];
	struct callback_world w;
	_Atomic bool stop = false;
	_Atomic uint64_t answered = 0;
	pthread_t threads[ANSWERERS];
	struct answerer a = {&w, &stop, &answered};
	struct rdv_call *list;
	uint64_t rejected = 0, timed_out = 0;

	open_world(&w, sometimes_later, 4, 30);
	for (int i = 0; i < ANSWERERS; i++)
		pthread_create(&threads[i], NULL, answer_all, &a);
	for (uint64_t i = 1; i <= CALLS; i++)
		w.handler->ops->submit(w.handler, kit_call(i, NULL));
	list = kit_wait(&w.sink, CALLS);
	stop = true;
	for (int i = 0; i < ANSWERERS; i++)
		pthread_join(threads[i], NULL);
	for (struct rdv_call *c = list; c; c = c->next) {
		assert_false(seen[c->id]);
		seen[c->id] = true;
		rejected += c->answer.explicit_verdict && c->answer.verdict == RDV_REJECT;
		timed_out += c->answer.transport == RDV_TRANSPORT_TIMEOUT;
	}
	assert_int_equal(rejected, answered); /* every OK was a verdict, and every verdict an OK */
	assert_int_equal(rejected + timed_out, CALLS / 3);
	kit_free(list);
	close_world(&w);
}

static void later_calls_time_out_in_the_order_of_their_deadlines(void **state)
{
	enum { COUNT = 300 };
	static struct rdv_call calls[COUNT];
	struct rdv_later *l = malloc(sizeof *l);
	uint64_t seed = 1, gone = 0;

	rdv_later_init(l);
	for (uint64_t i = 0; i < COUNT; i++) { /* ids in order, deadlines in none: id * 7919 mod 1000 */
		calls[i].id = i + 1;
		assert_int_equal(rdv_later_add(l, &calls[i], (int64_t)(calls[i].id * 7919 % 1000)), REDRIVE_OK);
	}
	for (int i = 0; i < 50; i++) {
		struct rdv_call *c;

		seed = seed * 6364136223846793005u + 1;
		c = rdv_later_take(l, 1 + (seed >> 33) % COUNT);
		gone += c != NULL;
	}
	for (int64_t now = 0; now < 1000; now++) {
		int64_t next = rdv_later_next_us(l);
		struct rdv_call *list = rdv_later_expire(l, now);

		assert_true(next == now || !list);
		for (struct rdv_call *c = list; c; c = c->next, gone++) {
			assert_int_equal(c->id * 7919 % 1000, now);
			assert_true(rdv_later_was_expired(l, c->id));
		}
	}
	assert_int_equal(gone, COUNT);
	assert_true(rdv_later_next_us(l) == RDV_NEVER);
	assert_false(rdv_later_was_expired(l, 0));
	rdv_later_done(l);
	free(l);
}

static void bad_options_are_refused(void **state)
{
	const struct rdv_callback_options table[] = {
		{.threads = 1}, {.call = later, .threads = 0}, {.call = later, .threads = 65}};
	struct rdv_handler *h;
	struct kit_sink sink;

	for (size_t i = 0; i < 3; i++)
		assert_int_equal(rdv_callback_new(&table[i], kit_sink(&sink), &h, NULL), REDRIVE_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_later_verdict_is_copied_cleaned_and_counts_once),
		cmocka_unit_test(a_later_verdict_frees_its_thread),
		cmocka_unit_test(a_verdict_after_the_timeout_is_an_error),
		cmocka_unit_test(a_verdict_that_comes_before_the_function_returns_counts),
		cmocka_unit_test(a_function_that_runs_longer_than_the_timeout_still_has_its_say),
		cmocka_unit_test(nothing_waits_behind_a_slow_function),
		cmocka_unit_test(what_is_finished_is_handed_over_while_the_next_one_is_slow),
		cmocka_unit_test(cut_waits_for_a_running_function_and_takes_its_verdict),
		cmocka_unit_test(a_running_function_that_wants_to_answer_later_is_cut),
		cmocka_unit_test(random_verdicts_from_many_threads_end_each_call_once),
		cmocka_unit_test(later_calls_time_out_in_the_order_of_their_deadlines),
		cmocka_unit_test(bad_options_are_refused),
	};

	return cmocka_run_group_tests_name("handlers: callback", tests, NULL, NULL);
}
