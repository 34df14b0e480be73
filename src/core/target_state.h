/* target_state.h - the inside of a target, for target.c, target_take.c and target_verdict.c alone.
 *
 * One struct holds all parts by value; routes are an array that grows when one joins. */
#ifndef RDV_CORE_TARGET_STATE_H
#define RDV_CORE_TARGET_STATE_H
#include "breaker.h"
#include "budget.h"
#include "evidence.h"
#include "family.h"
#include "permits.h"
#include "storm.h"
#include "target.h"

struct rdv_target_route {
	bool used;
	struct rdv_route_policy policy;
	struct rdv_storm storm;
	struct rdv_families *families; /* owns */
};

struct rdv_target {
	struct rdv_target_policy policy;
	struct rdv_permits permits;
	struct rdv_budget budget;
	struct rdv_evidence evidence;
	struct rdv_breaker_machine breaker;
	struct rdv_target_route **routes;                  /* owns; slots are reused */
	uint32_t route_count, route_capacity, free_routes; /* free: slots of routes that have left */
	uint32_t storm_changes;
	int64_t second_end; /* mono ms of the next rdv_permits_second */
};

void rdv_target_advance(struct rdv_target *t, struct rdv_now now); /* slow part of the next */
/* Brings all parts to `now`. */
static inline void rdv_target_roll(struct rdv_target *t, struct rdv_now now)
{
	rdv_evidence_roll(&t->evidence, now.mono.ms);
	if (now.mono.ms >= t->second_end || (t->breaker.state == RDV_HALF && now.mono.ms >= t->breaker.half_end))
		rdv_target_advance(t, now);
}
static inline struct rdv_target_route *rdv_target_route_at(const struct rdv_target *t, uint32_t route)
{
	return route < t->route_count && t->routes[route]->used ? t->routes[route] : NULL;
}
#endif
