/* target_world.h - a target with a clock, for tests: calls go out and end as told, at the time told. */
#ifndef TARGET_WORLD_H
#define TARGET_WORLD_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/target.h"

#define BIT(class) (uint8_t)(1u << (class))
#define FIRST BIT(RDV_CLASS_FIRST)
#define RETRY BIT(RDV_CLASS_RETRY_DUE)
#define REPLAY BIT(RDV_CLASS_REPLAY)
#define SUSPECT BIT(RDV_CLASS_SUSPECT)

struct world {
	struct rdv_target_policy policy;
	struct rdv_route_policy route_policy;
	struct rdv_target *t;
	struct rdv_now now;
	uint32_t route;
	uint64_t next;        /* the next new message */
	uint64_t fingerprint; /* of failures; 0 = one of its own for each message */
};

struct open_call {
	struct rdv_grant grant;
	uint64_t message;
	struct rdv_mono started;
};

static inline struct rdv_target_policy default_policy(void)
{
	struct rdv_target_policy p;

	rdv_target_policy_defaults(&p);
	return p;
}

static inline struct world world_with(struct rdv_target_policy policy)
{
	struct world w = {.policy = policy, .next = 1, .now = {{1000000}, {1700000000000}}};

	rdv_route_policy_defaults(&w.route_policy);
	w.t = rdv_target_new(&w.policy, 1, w.now);
	assert_non_null(w.t);
	w.route = rdv_target_join(w.t, &w.route_policy);
	return w;
}

static inline struct world world(void)
{
	return world_with(default_policy());
}

static inline void world_done(struct world *w)
{
	const char *what = "";

	if (!rdv_target_check(w->t, &what))
		print_error("%s\n", what);
	assert_true(rdv_target_check(w->t, &what));
	rdv_target_free(w->t);
}

static inline void pass(struct world *w, int64_t ms)
{
	w->now.mono.ms += ms;
	w->now.wall.ms += ms;
}

static inline struct rdv_target_status status_of(const struct world *w)
{
	struct rdv_target_status s;

	rdv_target_status(w->t, w->now, &s);
	return s;
}

static inline enum rdv_breaker_state breaker_of(const struct world *w)
{
	return status_of(w).state;
}

static inline struct rdv_work work_of(uint8_t classes)
{
	return (struct rdv_work){.classes = classes, .storm_route = UINT32_MAX, .suspect_overdue_ms = -1};
}

static inline bool take_work(struct world *w, struct rdv_work work, struct open_call *out, struct rdv_mono *wake)
{
	if (!rdv_target_take(w->t, w->now, &work, &out->grant, wake))
		return false;
	out->message = w->next++;
	out->started = w->now.mono;
	return true;
}

static inline bool take(struct world *w, uint8_t classes, struct open_call *out)
{
	struct rdv_mono wake;

	return take_work(w, work_of(classes), out, &wake);
}

static inline struct rdv_verdict verdict_of(enum rdv_kind kind)
{
	struct rdv_verdict v = {.kind = RDV_RETRY, .cause = RDV_CAUSE_FAILURE, .evidence = kind};

	if (kind == RDV_KIND_OK) {
		v.kind = RDV_ACK;
		v.cause = RDV_CAUSE_NONE;
	}
	if (kind == RDV_KIND_MSG)
		v.kind = RDV_REJECT;
	if (kind == RDV_KIND_NONE)
		v.cause = RDV_CAUSE_SHUTDOWN;
	return v;
}

static inline struct rdv_booking end_with(struct world *w, const struct open_call *c, struct rdv_verdict v,
					  bool suspect)
{
	struct rdv_call_report r = {
		.route = w->route,
		.class = c->grant.class,
		.probe = c->grant.probe,
		.attempt = c->grant.class == RDV_CLASS_FIRST ? 1 : 2,
		.was_suspect = suspect || c->grant.class == RDV_CLASS_SUSPECT,
		.message = c->message,
		.started = c->started,
		.verdict = &v,
	};

	if (v.evidence != RDV_KIND_OK && v.evidence != RDV_KIND_NONE)
		v.fingerprint = w->fingerprint ? w->fingerprint : c->message + 1000000;
	return rdv_target_verdict(w->t, w->now, &r);
}

static inline struct rdv_booking end(struct world *w, const struct open_call *c, enum rdv_kind kind)
{
	return end_with(w, c, verdict_of(kind), false);
}

/* One call of a message (0 = a new one) that ends at once. It must get its permit. */
static inline struct rdv_booking call(struct world *w, enum rdv_class class, enum rdv_kind kind, uint64_t message)
{
	struct open_call c;

	assert_true(take(w, BIT(class), &c));
	if (message != 0)
		c.message = message;
	return end(w, &c, kind);
}

static inline struct rdv_booking first(struct world *w, enum rdv_kind kind)
{
	return call(w, RDV_CLASS_FIRST, kind, 0);
}

static inline void many(struct world *w, int count, enum rdv_kind kind)
{
	for (int i = 0; i < count; i++)
		(void)first(w, kind);
}

/* `per_second` new messages a second end ok, for so long. */
static inline void healthy(struct world *w, int64_t ms, int per_second)
{
	for (int64_t t = 0; t < ms; t += 100) {
		many(w, per_second / 10, RDV_KIND_OK);
		pass(w, 100);
	}
}

/* Bad outcomes of new messages until the target is down; returns the last booking and how many it took. */
static inline struct rdv_booking break_down(struct world *w, enum rdv_kind kind, int *count)
{
	struct rdv_booking b = {.went_down = false};
	int n = 0;

	while (!b.went_down) {
		b = first(w, kind);
		assert_true(++n < 100000);
	}
	if (count != NULL)
		*count = n;
	return b;
}

/* Waits for the probe and ends it as told. */
static inline struct rdv_booking probe(struct world *w, enum rdv_kind kind)
{
	struct open_call c;
	int64_t waited = 0;

	while (!take(w, FIRST, &c)) {
		pass(w, 10);
		assert_true((waited += 10) < 60000);
	}
	assert_true(c.grant.probe);
	pass(w, 1);
	return end(w, &c, kind);
}
#endif
