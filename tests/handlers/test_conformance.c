/* test_conformance.c - one suite for every kind of handler: what handler.h promises the runtime.
 *
 * A kind brings two handlers' worth of behaviour: one that acks at once, and one that never answers. */
#include "http_server.h"
#include <sys/wait.h>

enum behaviour { ACKS, HANGS };

struct world {
	const struct kind *kind;
	struct rdv_handler *handler;
	struct kit_sink sink;
	struct server *server;
	struct rdv_http_pool *http;
	struct rdv_exec_pool *exec;
	pthread_t puller;
	_Atomic bool stop;
	enum behaviour behaviour;
};

struct kind {
	const char *name;
	size_t many; /* calls that are a lot for it */
	void (*open)(struct world *w, enum behaviour behaviour, int64_t timeout_ms);
	void (*close)(struct world *w);
};

/* ---- kinds ---- */

static void open_http(struct world *w, enum behaviour behaviour, int64_t timeout_ms)
{
	char url[64];
	struct rdv_http_options options = {.url = url, .timeout_ms = timeout_ms, .connections = 8};

	w->server = server_start(behaviour == ACKS ? server_ok : server_silent);
	snprintf(url, sizeof url, "http://127.0.0.1:%d/", w->server->port);
	assert_int_equal(rdv_http_pool_new(&w->http, NULL), REDRIVE_OK);
	assert_int_equal(rdv_http_new(w->http, &options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

static void close_http(struct world *w)
{
	w->handler->ops->free(w->handler);
	rdv_http_pool_free(w->http);
	server_stop(w->server);
}

static void open_exec(struct world *w, enum behaviour behaviour, int64_t timeout_ms)
{
	static const char *const acks[] = {"true"}, *const hangs[] = {"sleep", "1000"};
	struct rdv_exec_options options = {.command = behaviour == ACKS ? acks : hangs,
					   .command_count = behaviour == ACKS ? 1 : 2,
					   .timeout_ms = timeout_ms};

	assert_int_equal(rdv_exec_pool_new(&w->exec, NULL), REDRIVE_OK);
	assert_int_equal(rdv_exec_new(w->exec, &options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

static void close_exec(struct world *w)
{
	w->handler->ops->free(w->handler);
	rdv_exec_pool_free(w->exec);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left, not even a dead one */
}

static bool on_call(void *ctx, struct rdv_call *call)
{
	struct world *w = ctx;

	call->answer.explicit_verdict = true;
	call->answer.verdict = RDV_ACK;
	return w->behaviour == ACKS;
}

static void open_callback(struct world *w, enum behaviour behaviour, int64_t timeout_ms)
{
	struct rdv_callback_options options = {.call = on_call, .ctx = w, .threads = 4, .timeout_ms = timeout_ms};

	assert_int_equal(rdv_callback_new(&options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

static void close_callback(struct world *w)
{
	w->handler->ops->free(w->handler);
}

struct tokens {
	char items[64][RDV_LEASE_TOKEN_SIZE];
	size_t count;
};

static void keep_token(void *ctx, const struct rdv_leased *leased)
{
	struct tokens *t = ctx;

	strcpy(t->items[t->count++], leased->token);
}

static void *pull(void *arg)
{
	struct world *w = arg;
	struct rdv_answer ack = {.explicit_verdict = true, .verdict = RDV_ACK, .exit_code = -1};

	while (!w->stop) {
		struct tokens t = {.count = 0};
		enum redrive_status status = rdv_lease_take(w->handler, 64, 5, 0, keep_token, &t);

		assert_true(status == REDRIVE_OK || status == REDRIVE_CLOSED);
		for (size_t i = 0; w->behaviour == ACKS && i < t.count; i++) {
			status = rdv_lease_answer(w->handler, t.items[i], &ack, NULL);
			assert_true(status == REDRIVE_OK || status == REDRIVE_CONFLICT); /* cut in between */
		}
		rdv_lease_expire(w->handler, rdv_now());
		if (status != REDRIVE_OK)
			break;
	}
	return NULL;
}

static void open_lease(struct world *w, enum behaviour behaviour, int64_t timeout_ms)
{
	struct rdv_lease_options options = {.lease_for_ms = timeout_ms, .max = 64, .number = 9};

	assert_int_equal(rdv_lease_new(&options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
	w->behaviour = behaviour;
	pthread_create(&w->puller, NULL, pull, w);
}

static void close_lease(struct world *w)
{
	w->stop = true;
	pthread_join(w->puller, NULL);
	w->handler->ops->free(w->handler);
}

static const struct kind kinds[] = {
	{"http", 3000, open_http, close_http},
	{"exec", 60, open_exec, close_exec},
	{"callback", 50000, open_callback, close_callback},
	{"lease", 20000, open_lease, close_lease},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static struct world *open_world(size_t kind, enum behaviour behaviour, int64_t timeout_ms)
{
	struct world *w = calloc(1, sizeof *w);

	w->kind = &kinds[kind];
	w->behaviour = behaviour;
	w->kind->open(w, behaviour, timeout_ms);
	assert_string_equal(w->handler->ops->kind, w->kind->name);
	return w;
}

static void close_world(struct world *w)
{
	assert_int_equal(kit_count(&w->sink), 0); /* nothing came that was not waited for */
	w->kind->close(w);
	free(w);
}

static void submit_many(struct world *w, size_t count, size_t batch)
{
	for (size_t i = 0; i < count;) {
		struct rdv_call *list = NULL, **end = &list;

		for (size_t j = 0; j < batch && i < count; j++, end = &(*end)->next)
			*end = kit_call(++i, NULL);
		w->handler->ops->submit(w->handler, list);
	}
}

/* Every id from 1 to count came back, once, with its owner. */
static void check_all_once(struct rdv_call *list, size_t count)
{
	bool *seen = calloc(count + 1, 1);
	size_t n = 0;

	for (struct rdv_call *c = list; c; c = c->next, n++) {
		assert_in_range(c->id, 1, count);
		assert_false(seen[c->id]);
		assert_ptr_equal(c->owner, c);
		seen[c->id] = true;
	}
	assert_int_equal(n, count);
	free(seen);
}

/* ---- the suite ---- */

static void every_call_comes_back_exactly_once(void **state)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, ACKS, 30000);
		struct rdv_call *list;

		submit_many(w, kinds[k].many, 17);
		list = kit_wait(&w->sink, kinds[k].many);
		check_all_once(list, kinds[k].many);
		for (struct rdv_call *c = list; c; c = c->next) {
			struct rdv_verdict verdict;

			rdv_rules_judge(NULL, "r", &c->answer, &verdict);
			assert_int_equal(verdict.kind, RDV_ACK);
		}
		kit_free(list);
		close_world(w);
	}
}

static void a_call_without_an_answer_times_out_and_only_then(void **state)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, HANGS, 150);
		int64_t before = rdv_mono_now().ms;
		struct rdv_call *list;

		submit_many(w, 5, 5);
		list = kit_wait(&w->sink, 5);
		assert_true(rdv_mono_now().ms - before >= 149);
		check_all_once(list, 5);
		for (struct rdv_call *c = list; c; c = c->next) {
			assert_int_equal(c->answer.transport, RDV_TRANSPORT_TIMEOUT);
			assert_true(c->answer.took_ms >= 149);
			assert_true(c->answer.failure.text.size > 0 || w->exec);
		}
		kit_free(list);
		close_world(w);
	}
}

/* pitfall: a worker killed by a deploy */
static void cut_ends_every_call_and_later_ones_as_shutdown(void **state)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, HANGS, 600000);
		struct rdv_call *list;

		submit_many(w, 40, 40); /* more than the http handler has connections */
		w->handler->ops->cut(w->handler);
		list = kit_wait(&w->sink, 40);
		check_all_once(list, 40);
		for (struct rdv_call *c = list; c; c = c->next)
			assert_int_equal(c->answer.transport, RDV_TRANSPORT_SHUTDOWN);
		kit_free(list);
		list = kit_send(w->handler, &w->sink, kit_call(1, NULL));
		assert_int_equal(list->answer.transport, RDV_TRANSPORT_SHUTDOWN);
		kit_free(list);
		close_world(w);
	}
}

static void cut_in_the_middle_of_work_loses_and_repeats_nothing(void **state)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, ACKS, 30000);
		struct rdv_call *list, *rest;

		submit_many(w, kinds[k].many, kinds[k].many);
		list = kit_wait(&w->sink, kinds[k].many / 3);
		w->handler->ops->cut(w->handler);
		rest = kit_wait(&w->sink, kinds[k].many - kinds[k].many / 3);
		for (struct rdv_call *c = list;; c = c->next) {
			if (!c->next) {
				c->next = rest;
				break;
			}
		}
		check_all_once(list, kinds[k].many);
		kit_free(list);
		close_world(w);
	}
}

static void submit_does_not_wait_for_the_handler(void **state)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, HANGS, 600000);
		size_t count = w->exec ? 20 : 5000;
		int64_t before = rdv_mono_now().ms;

		submit_many(w, count, 1);
		assert_true(rdv_mono_now().ms - before < 20000);
		w->handler->ops->cut(w->handler);
		kit_free(kit_wait(&w->sink, count));
		close_world(w);
	}
}

static void a_handler_that_was_never_used_is_freed(void **state)
{
	for (size_t k = 0; k < KINDS; k++)
		for (int cut = 0; cut < 2; cut++) {
			struct world *w = open_world(k, ACKS, 1000);

			if (cut)
				w->handler->ops->cut(w->handler);
			close_world(w);
		}
}

static void an_empty_list_is_nothing(void **state)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, ACKS, 1000);

		w->handler->ops->submit(w->handler, NULL);
		close_world(w);
	}
}

static void no_descriptor_is_left_open(void **state)
{
	int before = kit_open_fds();

	for (size_t k = 0; k < KINDS; k++) {
		struct world *w = open_world(k, ACKS, 30000);

		submit_many(w, 30, 30);
		kit_free(kit_wait(&w->sink, 30));
		close_world(w);
		assert_int_equal(kit_open_fds(), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_comes_back_exactly_once),
		cmocka_unit_test(a_call_without_an_answer_times_out_and_only_then),
		cmocka_unit_test(cut_ends_every_call_and_later_ones_as_shutdown),
		cmocka_unit_test(cut_in_the_middle_of_work_loses_and_repeats_nothing),
		cmocka_unit_test(submit_does_not_wait_for_the_handler),
		cmocka_unit_test(a_handler_that_was_never_used_is_freed),
		cmocka_unit_test(an_empty_list_is_nothing),
		cmocka_unit_test(no_descriptor_is_left_open),
	};

	return cmocka_run_group_tests_name("handlers: conformance", tests, NULL, NULL);
}
