/* harness.h - an engine in a temporary directory with callback routes that do as they are told. For tests of the
 * runtime. */
#ifndef TESTS_RUNTIME_HARNESS_H
#define TESTS_RUNTIME_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "runtime/engine.h"

#define SEEN_MAX 65536

struct handler { /* what it does and what it saw */
	pthread_mutex_t mutex;
	pthread_cond_t change;
	unsigned calls, done;
	enum rdv_verdict_kind verdict; /* of calls while `bad` > 0 or body begins with '!' */
	unsigned bad;
	bool blocked; /* calls wait until it is false */
	unsigned inside;
	struct {
		uint64_t offset;
		uint32_t partition, attempt;
		char body[24];
	} seen[SEEN_MAX];
};

static inline struct handler *handler_new(void)
{
	struct handler *h = calloc(1, sizeof *h);

	pthread_mutex_init(&h->mutex, NULL);
	pthread_cond_init(&h->change, NULL);
	h->verdict = RDV_RETRY;
	return h;
}

static inline void handler_free(struct handler *h)
{
	pthread_mutex_destroy(&h->mutex);
	pthread_cond_destroy(&h->change);
	free(h);
}

static inline bool handler_call(void *ctx, struct rdv_call *call)
{
	struct handler *h = ctx;
	struct rdv_body body = {0};
	bool bad;

	if (rdv_body_decode(call->payload, &body))
		abort();
	pthread_mutex_lock(&h->mutex);
	h->inside++;
	pthread_cond_broadcast(&h->change);
	while (h->blocked)
		pthread_cond_wait(&h->change, &h->mutex);
	h->inside--;
	bad = h->bad > 0 || (body.body.size && body.body.data[0] == '!');
	if (h->bad)
		h->bad--;
	if (h->calls < SEEN_MAX) {
		h->seen[h->calls].offset = call->offset;
		h->seen[h->calls].partition = call->partition;
		h->seen[h->calls].attempt = call->attempt;
		rdv_slice_to_text(body.body, h->seen[h->calls].body, sizeof h->seen[0].body);
	}
	h->calls++;
	call->answer.transport = RDV_TRANSPORT_ANSWER;
	call->answer.explicit_verdict = true;
	call->answer.verdict = bad ? h->verdict : RDV_ACK;
	if (!bad)
		h->done++;
	pthread_cond_broadcast(&h->change);
	pthread_mutex_unlock(&h->mutex);
	return true;
}

/* At most 30 s. */
static inline bool handler_wait(struct handler *h, unsigned *what, unsigned wanted)
{
	struct timespec until;
	bool good = true;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 30;
	pthread_mutex_lock(&h->mutex);
	while (*what < wanted && good)
		good = pthread_cond_timedwait(&h->change, &h->mutex, &until) == 0;
	pthread_mutex_unlock(&h->mutex);
	return good;
}

static inline void handler_block(struct handler *h, bool blocked)
{
	pthread_mutex_lock(&h->mutex);
	h->blocked = blocked;
	pthread_cond_broadcast(&h->change);
	pthread_mutex_unlock(&h->mutex);
}

static inline char *new_dir(void)
{
	char *dir = strdup("/tmp/redrive-test-XXXXXX");

	if (!mkdtemp(dir))
		abort();
	return dir;
}

static inline void remove_dir(char *dir)
{
	char command[256];

	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command))
		abort();
	free(dir);
}

static inline struct rdv_route_options route_options(const char *name, const char *topic, struct handler *h)
{
	struct rdv_route_options o = {.name = name, .topic = topic, .partitions = 1, .handler = RDV_HANDLER_CALLBACK};

	rdv_lane_policy_defaults(&o.lane);
	rdv_target_policy_defaults(&o.target_policy);
	rdv_route_policy_defaults(&o.route_policy);
	o.lane.retry.base_ms = 10;
	o.lane.retry.min_ms = 0;
	o.lane.retry.jitter = RDV_JITTER_NONE;
	o.lane.retry.backoff = RDV_BACKOFF_FIXED;
	o.target_policy.breaker.on = false;
	o.target_policy.budget.on = false;
	o.callback = (struct rdv_callback_options){handler_call, h, 2, 30000};
	return o;
}

static inline void say(void *ctx, int level, const char *text)
{
	(void)ctx;
	if (getenv("SAY"))
		fprintf(stderr, "[%d] %s\n", level, text);
}

static inline struct rdv_engine_options engine_options(const char *dir)
{
	/* Small segments: a start reads and a new log fills whole ones, which takes long under sanitizers. */
	return (struct rdv_engine_options){.dir = dir, .drain_ms = 5000, .segment_size = 8u << 20, .say = say};
}

static inline struct rdv_engine *start_engine(const struct rdv_engine_options *options,
					      const struct rdv_route_options *routes, size_t count)
{
	struct rdv_error error = {0};
	struct rdv_engine *e = NULL;
	enum redrive_status status = rdv_engine_open(options, &e, &error);

	for (size_t i = 0; i < count && !status; i++)
		status = rdv_engine_add_route(e, &routes[i], &error);
	if (!status)
		status = rdv_engine_start(e, &error);
	if (status) {
		fprintf(stderr, "%s: %s\n", redrive_status_text(status), error.text);
		abort();
	}
	return e;
}

static inline enum redrive_status publish_keyed(struct rdv_engine *e, const char *topic, const char *key,
						const char *body, struct rdv_published_at *at)
{
	struct rdv_message m = {.has_key = key != NULL, .key = rdv_slice_text(key), .body = rdv_slice_text(body)};
	struct rdv_published_at mine;
	struct rdv_error error = {0};

	return rdv_engine_publish_wait(e, rdv_slice_text(topic), &m, 1, at ? at : &mine, &error);
}

static inline struct rdv_route_status status_of(struct rdv_engine *e, const char *route)
{
	struct rdv_route_status *all = NULL, one;
	const struct rdv_account *a = &one.account;
	size_t count = 0;

	if (rdv_engine_routes(e, route, &all, &count) || count < 1)
		abort();
	one = all[0];
	free(all);
	if (a->received !=
	    a->acked + a->ready + a->waiting + a->held + a->in_flight + a->dead + a->dropped + a->revoked) {
		fprintf(stderr, "the account of %s does not add up\n", route);
		abort();
	}
	return one;
}

/* Asks again until the field of the account is as wanted; at most 30 s. */
static inline bool wait_account(struct rdv_engine *e, const char *route, size_t field, uint64_t wanted)
{
	for (int i = 0; i < 3000; i++) {
		struct rdv_route_status s = status_of(e, route);

		if (*(uint64_t *)((char *)&s.account + field) >= wanted)
			return true;
		usleep(10000);
	}
	return false;
}
#define WAIT_ACCOUNT(e, route, field, wanted)                                                                          \
	assert_true(wait_account(e, route, offsetof(struct rdv_account, field), wanted))
#endif
