/* target_take.c - who may call now: the permit.
 *
 * In this order: the whole target's hold (Retry-After), concurrency, the breaker's state, rate, storm probes, then
 * the class: an overdue suspect, else by shares among the classes that may go (a retry needs a budget token and, after
 * a reopening, the ramp's). Whatever says no also says when asking again may help.
 * What always holds: in flight <= limit; while DOWN at most one probe is out; a refusal changes nothing but clocks.
 * Cannot fail. */
#include "target_state.h"
#include <assert.h>

#define BIT(class) (1u << (class))
#define SHARED (BIT(RDV_CLASS_FIRST) | BIT(RDV_CLASS_RETRY_DUE) | BIT(RDV_CLASS_REPLAY))
#define OVERDUE_MS 9000 /* a suspect goes at the latest 10 s past due: asked for a second before */

static bool grant(struct rdv_target *t, enum rdv_class class, struct rdv_grant *out)
{
	t->permits.in_flight++;
	t->permits.suspects += class == RDV_CLASS_SUSPECT;
	if (t->permits.in_flight >= t->permits.limit)
		t->permits.adaptive.saturated = true;
	rdv_bucket_spend(&t->permits.rate);
	out->class = class;
	return true;
}

static void sooner(struct rdv_mono *wake, int64_t at)
{
	if (at < wake->ms)
		wake->ms = at;
}

/* DOWN, or a route under storm: the class of a probe, a suspect only when there is nothing else. */
static enum rdv_class probe_class(struct rdv_target *t, uint8_t classes)
{
	if (classes & SHARED)
		return rdv_shares_pick(&t->permits.shares, classes & SHARED);
	return classes & BIT(RDV_CLASS_SUSPECT) ? RDV_CLASS_SUSPECT : RDV_CLASS_FIRST;
}

static bool take_down_probe(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work,
			    struct rdv_grant *out, struct rdv_mono *wake)
{
	struct rdv_breaker_machine *b = &t->breaker;

	if (b->probe_out || (work->classes == 0 && work->storm_route == UINT32_MAX))
		return false;
	if (now.mono.ms < b->probe_at) {
		sooner(wake, b->probe_at);
		return false;
	}
	b->probe_out = true;
	out->probe = true;
	out->route = work->classes == 0 ? work->storm_route : UINT32_MAX;
	out->avoid_message = b->probe_message;
	out->avoid_fingerprint = b->probe_fingerprint;
	return grant(t, probe_class(t, work->classes ? work->classes : work->storm_classes), out);
}

static bool take_storm_probe(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work,
			     struct rdv_grant *out, struct rdv_mono *wake)
{
	struct rdv_target_route *r = rdv_target_route_at(t, work->storm_route);
	struct rdv_mono at;

	if (r == NULL || !r->storm.held)
		return false;
	if (!rdv_target_storm_probe(t, work->storm_route, now, &at)) {
		sooner(wake, at.ms);
		return false;
	}
	r->storm.probe_out = true;
	out->probe = true;
	out->route = work->storm_route;
	out->avoid_message = r->storm.probe_message;
	out->avoid_fingerprint = r->storm.probe_fingerprint;
	return grant(t, probe_class(t, work->storm_classes), out);
}

static bool is_overdue(const struct rdv_work *work)
{
	return work->suspect_overdue_ms >= OVERDUE_MS;
}

/* One suspect beside other work. More only when overdue, and never so many that a flood of them takes the target over:
 * a quarter of the permits while others wait, three quarters while nobody does. */
static bool suspect_may_go(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work, struct rdv_mono *wake)
{
	const struct rdv_permits *p = &t->permits;
	uint32_t most = work->classes & SHARED ? p->limit / 4 : p->limit - p->limit / 4;

	if (!(work->classes & BIT(RDV_CLASS_SUSPECT)))
		return false;
	if (p->suspects > 0 && !is_overdue(work)) {
		sooner(wake, rdv_ms_add(now.mono.ms,
					OVERDUE_MS - (work->suspect_overdue_ms > 0 ? work->suspect_overdue_ms : 0)));
		return false;
	}
	if (p->suspects > 0 && p->suspects >= most)
		return false;
	if (is_overdue(work) || rdv_budget_ready(&t->budget, now.mono.ms))
		return true;
	sooner(wake, rdv_budget_wake(&t->budget));
	return false;
}

static bool retry_may_go(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work, struct rdv_mono *wake)
{
	if (!(work->classes & BIT(RDV_CLASS_RETRY_DUE)))
		return false;
	if (!rdv_budget_ready(&t->budget, now.mono.ms)) {
		sooner(wake, rdv_budget_wake(&t->budget));
		return false;
	}
	if (t->permits.ramp_rate > 0 && !rdv_bucket_ready(&t->permits.ramp, now.mono.ms)) {
		sooner(wake, rdv_bucket_wake(&t->permits.ramp));
		return false;
	}
	return true;
}

/* Whose turn it is, RDV_CLASS_COUNT when nobody's. Books the class's own tokens. */
static enum rdv_class take_class(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work,
				 struct rdv_mono *wake)
{
	bool suspect = suspect_may_go(t, now, work, wake), retry = retry_may_go(t, now, work, wake);
	uint8_t classes = work->classes & (BIT(RDV_CLASS_FIRST) | BIT(RDV_CLASS_REPLAY));
	enum rdv_class class;

	if (suspect && is_overdue(work))
		class = RDV_CLASS_SUSPECT;
	else if (!suspect && !retry && classes == 0)
		return RDV_CLASS_COUNT;
	else
		class = rdv_shares_pick(&t->permits.shares,
					classes | (suspect || retry ? BIT(RDV_CLASS_RETRY_DUE) : 0));
	if (class == RDV_CLASS_RETRY_DUE && suspect)
		class = RDV_CLASS_SUSPECT;
	if (class == RDV_CLASS_FIRST)
		rdv_budget_first(&t->budget);
	if (class == RDV_CLASS_RETRY_DUE || class == RDV_CLASS_SUSPECT)
		rdv_budget_spend(&t->budget);
	if (class == RDV_CLASS_RETRY_DUE && t->permits.ramp_rate > 0) {
		rdv_bucket_spend(&t->permits.ramp);
		t->permits.ramp_used = true;
	}
	return class;
}

static bool take_ordinary(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work, struct rdv_grant *out,
			  struct rdv_mono *wake)
{
	bool half = t->breaker.state == RDV_HALF;
	enum rdv_class class;

	if (half && !rdv_bucket_ready(&t->breaker.half, now.mono.ms)) {
		sooner(wake, rdv_bucket_wake(&t->breaker.half));
		return false;
	}
	if (work->storm_route == UINT32_MAX || !take_storm_probe(t, now, work, out, wake)) {
		rdv_budget_ready(&t->budget, now.mono.ms); /* brings its clock up to date for the deposit */
		class = take_class(t, now, work, wake);
		if (class == RDV_CLASS_COUNT)
			return false;
		grant(t, class, out);
	}
	if (half)
		rdv_bucket_spend(&t->breaker.half);
	return true;
}

static bool take_now(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work, struct rdv_grant *out,
		     struct rdv_mono *wake)
{
	struct rdv_permits *p = &t->permits;

	if (p->hold_until > now.mono.ms) {
		wake->ms = p->hold_until;
		return false;
	}
	if (p->in_flight >= p->limit)
		return false; /* a verdict frees one */
	if (!rdv_bucket_ready(&p->rate, now.mono.ms)) {
		wake->ms = rdv_bucket_wake(&p->rate);
		return false;
	}
	if (t->breaker.state == RDV_DOWN)
		return take_down_probe(t, now, work, out, wake);
	return take_ordinary(t, now, work, out, wake);
}

bool rdv_target_take(struct rdv_target *t, struct rdv_now now, const struct rdv_work *work, struct rdv_grant *out,
		     struct rdv_mono *wake)
{
	bool granted;

	*out = (struct rdv_grant){.class = RDV_CLASS_FIRST, .route = UINT32_MAX};
	wake->ms = RDV_NEVER;
	rdv_target_roll(t, now);
	granted = take_now(t, now, work, out, wake);
	if (!granted && (work->classes & BIT(RDV_CLASS_RETRY_DUE)))
		t->permits.ramp_denied = true;
	if (t->breaker.state == RDV_HALF && (work->classes != 0 || work->storm_route != UINT32_MAX)) {
		t->breaker.half_wanted = true;
		t->breaker.half_wait = granted || wake->ms == RDV_NEVER ? now.mono.ms : wake->ms;
	}
	return granted;
}

static void cancel_class(struct rdv_target *t, enum rdv_class class)
{
	if (class == RDV_CLASS_FIRST)
		rdv_budget_unfirst(&t->budget);
	if (class == RDV_CLASS_RETRY_DUE || class == RDV_CLASS_SUSPECT)
		rdv_budget_give(&t->budget);
	if (class == RDV_CLASS_RETRY_DUE && t->permits.ramp_rate > 0)
		rdv_bucket_give(&t->permits.ramp);
	rdv_shares_undo(&t->permits.shares, class == RDV_CLASS_SUSPECT ? RDV_CLASS_RETRY_DUE : class);
}

/* Who cancels late may not know any more which route the probe was for: then every held route may send one. */
static void cancel_storm_probe(struct rdv_target *t, uint32_t route)
{
	for (uint32_t i = 0; i < t->route_count; i++)
		if (route == i || route == UINT32_MAX)
			t->routes[i]->storm.probe_out = false;
}

void rdv_target_cancel(struct rdv_target *t, struct rdv_now now, const struct rdv_grant *g)
{
	assert(t->permits.in_flight > 0);
	t->permits.in_flight--;
	if (g->class == RDV_CLASS_SUSPECT && t->permits.suspects > 0)
		t->permits.suspects--;
	rdv_bucket_give(&t->permits.rate);
	if (t->breaker.state == RDV_HALF)
		rdv_bucket_give(&t->breaker.half);
	if (!g->probe)
		cancel_class(t, g->class);
	else if (t->breaker.state == RDV_DOWN && t->breaker.probe_out)
		t->breaker.probe_out = false;
	else
		cancel_storm_probe(t, g->route);
}
