/* target.h - what a handler's calls share: evidence, breaker, budget, rate, concurrency, class shares, ramp; and per
 * route: storm and family. docs/internals/poison-or-outage.md is the rule in full.
 *
 *        ≥ 90 % bad of the last 20, from ≥ 5 messages, ...          one ok of a probe
 *   UP ───────────────────────────────────────────────▶ DOWN ───────────────────────▶ HALF ──▶ UP
 *                                                        ▲  ≥ 50 % bad of ≥ 5 in a slice  │  (twice the old throughput,
 *                                                        └────────────────────────────────┘   or nothing left)
 *
 * A lane dispatches only with a permit from here: take → grant → the call → verdict. Every grant is answered by exactly
 * one rdv_target_verdict or rdv_target_cancel. Time is in the calls. Pure; single thread. */
#ifndef RDV_CORE_TARGET_H
#define RDV_CORE_TARGET_H
#include "policy.h"

enum rdv_breaker_state { RDV_UP, RDV_DOWN, RDV_HALF };

struct rdv_grant {
	enum rdv_class class;
	bool probe;                                /* DOWN or storm: this call is a probe */
	uint32_t route;                            /* routes the grant is for (a storm's probe), UINT32_MAX = any */
	uint64_t avoid_message, avoid_fingerprint; /* probe: take another than these if there is one; 0 = none */
};

/* What dispatching needs to know of the waiting work: bit (1 << class). Routes under storm hold are asked apart. */
struct rdv_work {
	uint8_t classes;            /* of routes that are not under storm hold */
	uint32_t storm_route;       /* a route under storm hold with work, whose probe is due; UINT32_MAX none (see
				       rdv_target_storm_probe) */
	uint8_t storm_classes;      /* of storm_route: what its probe may be; the grant's class is one of them */
	int64_t suspect_overdue_ms; /* of the oldest due suspect; < 0 none */
};

/* How a verdict is to be booked. */
struct rdv_booking {
	bool charged;    /* the attempt counts against the message: bad evidence while UP, or a reject. Never for crash
			    (its own limit), defer, shutdown, ok */
	bool outage;     /* not charged because the target is down, or the route under storm hold: cause outage (also
			    instead of crash) */
	bool suspicious; /* the charged failure came while others succeeded: suspicion + 1 */
	bool went_down;  /* UP -> DOWN now: refund every charged bad outcome that came at or after refund_since */
	struct rdv_mono refund_since;
	bool went_half, went_up;
	bool take_as_outage_msg; /* storm hold: this reject is retried, uncharged (as in DOWN) */
	bool family_alert, family_hold, family_reject;
	bool storm_began, storm_ended;
};

struct rdv_call_report {
	uint32_t route;
	enum rdv_class class;
	bool probe;
	uint32_t attempt; /* 1 = the message's first */
	bool was_suspect; /* the message is a suspect: never evidence for DOWN */
	uint64_t message; /* identifies the message among this target's (distinct counting); never 0 */
	struct rdv_mono started;
	const struct rdv_verdict *verdict; /* borrows */
};

struct rdv_target_status {
	enum rdv_breaker_state state;
	struct rdv_wall since;
	struct rdv_wall probe_at; /* ms 0 = none */
	double budget_spent_ratio;
	uint32_t in_flight;
	double throughput;  /* acks per second remembered for HALF */
	uint32_t limit_now; /* concurrency in force (adaptive) */
};

struct rdv_target;
/* NULL without memory. */
struct rdv_target *rdv_target_new(const struct rdv_target_policy *policy, uint64_t seed, struct rdv_now now);
void rdv_target_free(struct rdv_target *t);
void rdv_target_reload(struct rdv_target *t, const struct rdv_target_policy *policy, struct rdv_now now);
/* Adds a route; returns its number on this target, UINT32_MAX without memory. */
uint32_t rdv_target_join(struct rdv_target *t, const struct rdv_route_policy *policy);
void rdv_target_route_reload(struct rdv_target *t, uint32_t route, const struct rdv_route_policy *policy);
void rdv_target_leave(struct rdv_target *t, uint32_t route);
/* `routes resume`: ends a storm hold; for an hour rejects are taken as dead. */
void rdv_target_storm_resume(struct rdv_target *t, uint32_t route, struct rdv_now now);
bool rdv_target_storm_held(const struct rdv_target *t, uint32_t route);
/* The held route may send a probe now: none is out and its time has come. Else *at = when to ask again (RDV_NEVER:
 * after that probe's verdict). */
bool rdv_target_storm_probe(const struct rdv_target *t, uint32_t route, struct rdv_now now, struct rdv_mono *at);

/* Rises whenever a storm's hold began or ended on any route: then ask rdv_lane_work of its lanes again. */
uint32_t rdv_target_storm_changes(const struct rdv_target *t);

/* A lane opened with overdue retries: their release starts at the remembered throughput and doubles each second. */
void rdv_target_backlog_opened(struct rdv_target *t, struct rdv_now now, double throughput);
/* One permit for one of the offered classes, or false and *wake = when asking again may help (RDV_NEVER: after a
 * verdict). */
bool rdv_target_take(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work, struct rdv_grant *out,
		     struct rdv_mono *wake) RDV_MUST_CHECK;
/* The grant was not used (no such message after all): everything is given back. */
void rdv_target_cancel(struct rdv_target *t, struct rdv_now now, const struct rdv_grant *grant);
/* Books the end of a call. */
struct rdv_booking rdv_target_verdict(struct rdv_target *t, struct rdv_now now, const struct rdv_call_report *report);
/* To be called at the latest at the returned time (slices, probes, ramps). */
struct rdv_mono rdv_target_tick(struct rdv_target *t, struct rdv_now now);
void rdv_target_status(const struct rdv_target *t, struct rdv_now now, struct rdv_target_status *out);
/* For COUNTERS: acks per second to start HALF or a backlog with after a restart. */
double rdv_target_throughput(const struct rdv_target *t);
/* Invariants, for the simulator. */
bool rdv_target_check(const struct rdv_target *t, const char **what);
#endif
