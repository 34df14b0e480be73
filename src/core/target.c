/* target.c - a target's life: policy, routes, time, and what it shows. See target_take.c and target_verdict.c for the
 * two calls of every message.
 *
 * What always holds: with the breaker off the state is UP; HALF that reached its end, or a wait that is over, is seen
 * at the next call of any kind. What can fail: rdv_target_new and _join (memory). Single thread.
 */
#include "target_state.h"
#include <stdlib.h>

struct rdv_target *rdv_target_new(const struct rdv_target_policy *policy, uint64_t seed, struct rdv_now now)
{
	struct rdv_target *t = calloc(1, sizeof *t);

	if (t == NULL)
		return NULL;
	t->policy = *policy;
	rdv_permits_init(&t->permits, policy, now.mono);
	rdv_budget_init(&t->budget, &policy->budget, now.mono);
	rdv_evidence_init(&t->evidence, &policy->breaker, now.mono);
	rdv_breaker_init(&t->breaker, now);
	t->second_end = now.mono.ms + 1000;
	return t;
}

void rdv_target_free(struct rdv_target *t)
{
	if (t == NULL)
		return;
	for (uint32_t i = 0; i < t->route_count; i++) {
		rdv_families_free(t->routes[i]->families);
		free(t->routes[i]);
	}
	free(t->routes);
	free(t);
}

void rdv_target_reload(struct rdv_target *t, const struct rdv_target_policy *policy, struct rdv_now now)
{
	rdv_target_roll(t, now);
	t->policy = *policy;
	rdv_permits_reload(&t->permits, policy, now.mono);
	rdv_budget_reload(&t->budget, &policy->budget, now.mono);
	rdv_evidence_reload(&t->evidence, &policy->breaker, now.mono);
	if (!policy->breaker.on && t->breaker.state != RDV_UP)
		rdv_breaker_up(&t->breaker, now);
}

static bool grow_routes(struct rdv_target *t)
{
	uint32_t capacity = t->route_capacity ? t->route_capacity * 2 : 4;
	struct rdv_target_route **routes = realloc(t->routes, capacity * sizeof *routes);

	if (routes == NULL)
		return false;
	t->routes = routes;
	t->route_capacity = capacity;
	return true;
}

uint32_t rdv_target_join(struct rdv_target *t, const struct rdv_route_policy *policy)
{
	uint32_t route = t->free_routes ? 0 : t->route_count;
	struct rdv_target_route *r;

	while (route < t->route_count && t->routes[route]->used)
		route++;
	t->free_routes -= route < t->route_count;
	if (route == t->route_count) {
		if (route == t->route_capacity && !grow_routes(t))
			return UINT32_MAX;
		r = calloc(1, sizeof *r);
		if (r == NULL)
			return UINT32_MAX;
		t->routes[t->route_count++] = r;
	}
	r = t->routes[route];
	r->used = true;
	r->policy = *policy;
	rdv_storm_init(&r->storm, (struct rdv_mono){t->second_end - 1000});
	return route;
}

void rdv_target_route_reload(struct rdv_target *t, uint32_t route, const struct rdv_route_policy *policy)
{
	struct rdv_target_route *r = rdv_target_route_at(t, route);

	if (r == NULL)
		return;
	if (policy->family.count != r->policy.family.count) {
		rdv_families_free(r->families);
		r->families = NULL;
	}
	r->policy = *policy;
	if (!policy->storm_hold && r->storm.held) {
		rdv_storm_release(&r->storm, (struct rdv_mono){t->second_end});
		t->storm_changes++;
	}
}

void rdv_target_leave(struct rdv_target *t, uint32_t route)
{
	struct rdv_target_route *r = rdv_target_route_at(t, route);

	if (r == NULL)
		return;
	rdv_families_free(r->families);
	r->families = NULL;
	r->used = false;
	t->free_routes++;
}

void rdv_target_storm_resume(struct rdv_target *t, uint32_t route, struct rdv_now now)
{
	struct rdv_target_route *r = rdv_target_route_at(t, route);

	if (r == NULL)
		return;
	rdv_storm_resume(&r->storm, now.mono);
	t->storm_changes++;
}

uint32_t rdv_target_storm_changes(const struct rdv_target *t)
{
	return t->storm_changes;
}

bool rdv_target_storm_held(const struct rdv_target *t, uint32_t route)
{
	const struct rdv_target_route *r = rdv_target_route_at(t, route);

	return r != NULL && r->storm.held;
}

bool rdv_target_storm_probe(const struct rdv_target *t, uint32_t route, struct rdv_now now, struct rdv_mono *at)
{
	const struct rdv_target_route *r = rdv_target_route_at(t, route);

	at->ms = RDV_NEVER;
	if (r == NULL || !r->storm.held || r->storm.probe_out)
		return false;
	at->ms = r->storm.probe_at;
	return now.mono.ms >= r->storm.probe_at;
}

void rdv_target_backlog_opened(struct rdv_target *t, struct rdv_now now, double throughput)
{
	rdv_target_roll(t, now);
	if (throughput > t->breaker.throughput)
		t->breaker.throughput = throughput;
	rdv_permits_ramp(&t->permits, throughput, now.mono);
}

void rdv_target_advance(struct rdv_target *t, struct rdv_now now)
{
	if (now.mono.ms >= t->second_end) {
		rdv_permits_second(&t->permits, now.mono);
		t->second_end += ((now.mono.ms - t->second_end) / 1000 + 1) * 1000;
	}
	if (t->breaker.state != RDV_HALF)
		return;
	rdv_breaker_advance(&t->breaker, &t->policy.breaker, now, t->permits.in_flight == 0);
	if (t->breaker.state == RDV_UP)
		rdv_evidence_reset(&t->evidence, now.mono);
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

struct rdv_mono rdv_target_tick(struct rdv_target *t, struct rdv_now now)
{
	int64_t next = RDV_NEVER;

	rdv_target_roll(t, now);
	if (t->breaker.state == RDV_HALF)
		next = t->breaker.half_end;
	if (t->breaker.state == RDV_DOWN && !t->breaker.probe_out)
		next = t->breaker.probe_at > now.mono.ms ? t->breaker.probe_at : RDV_NEVER;
	if (t->permits.ramp_rate > 0)
		next = earlier(next, t->second_end);
	if (t->permits.hold_until > now.mono.ms)
		next = earlier(next, t->permits.hold_until);
	return (struct rdv_mono){next};
}

void rdv_target_status(const struct rdv_target *t, struct rdv_now now, struct rdv_target_status *out)
{
	const struct rdv_breaker_machine *b = &t->breaker;

	*out = (struct rdv_target_status){
		.state = b->state,
		.since = b->since.wall,
		.budget_spent_ratio = rdv_budget_spent_ratio(&t->budget),
		.in_flight = t->permits.in_flight,
		.throughput = rdv_target_throughput(t),
		.limit_now = t->permits.limit,
	};
	if (b->state == RDV_DOWN && !b->probe_out)
		out->probe_at.ms = rdv_ms_add(now.wall.ms, b->probe_at - now.mono.ms);
}

double rdv_target_throughput(const struct rdv_target *t)
{
	double lately = 0;

	if (t->breaker.state == RDV_UP)
		lately = rdv_evidence_throughput(&t->evidence, t->evidence.second_start);
	return lately > 0 ? lately : t->breaker.throughput;
}

bool rdv_target_check(const struct rdv_target *t, const char **what)
{
	if (!rdv_permits_check(&t->permits, what) || !rdv_budget_check(&t->budget, what) ||
	    !rdv_evidence_check(&t->evidence, what) || !rdv_breaker_check(&t->breaker, &t->policy.breaker, what))
		return false;
	for (uint32_t i = 0; i < t->route_count; i++)
		if (!rdv_storm_check(&t->routes[i]->storm, what))
			return false;
	return true;
}
