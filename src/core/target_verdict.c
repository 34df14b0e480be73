/* target_verdict.c - what the end of a call means: for the target's state, and for its message.
 *
 *   outcome        UP                               DOWN                HALF
 *   ok             evidence (first attempts)        of a new call: HALF counts in the slice
 *   bad            charged; evidence; may trip      outage; wait grows  outage; may relapse
 *   reject         charged, always: it is the message's fault, whatever the target does (but: storm)
 *   crash          as bad, but its own limit instead of a charge
 *   shutdown       nothing
 *
 * A bad outcome of a call that began before the target came up again is charged like any (the target was UP when it
 * failed) but is no evidence: it tells about the outage that is over.
 * What always holds: exactly one of charged, outage or neither; no charge while DOWN or HALF but a probe's after
 * `patience`. Cannot fail. */
#include "target_state.h"
#include <assert.h>

static bool is_bad(enum rdv_kind kind)
{
	return kind == RDV_KIND_INFRA || kind == RDV_KIND_APP || kind == RDV_KIND_WIRING;
}

/* The class's probe flag goes to whom it belongs: while DOWN, a probe that began since is the breaker's. */
static bool is_down_probe(const struct rdv_target *t, const struct rdv_call_report *r)
{
	return r->probe && t->breaker.state == RDV_DOWN && t->breaker.probe_out &&
	       r->started.ms > t->breaker.since.mono.ms;
}

static void release(struct rdv_target *t, struct rdv_now now, const struct rdv_call_report *r, enum rdv_kind kind)
{
	struct rdv_permits *p = &t->permits;

	assert(p->in_flight > 0);
	p->in_flight--;
	if (r->class == RDV_CLASS_SUSPECT && p->suspects > 0)
		p->suspects--;
	rdv_permits_sample(p, now.mono.ms - r->started.ms, is_bad(kind));
	if (!r->probe && (r->class == RDV_CLASS_RETRY_DUE || r->class == RDV_CLASS_SUSPECT) &&
	    (kind == RDV_KIND_OK || kind == RDV_KIND_NONE))
		rdv_budget_give(&t->budget);
	if (r->verdict->target_hold_ms > 0) {
		int64_t most = 5 * 60 * 1000, hold = r->verdict->target_hold_ms;
		int64_t until = rdv_ms_add(now.mono.ms, hold < most ? hold : most);
		p->hold_until = until > p->hold_until ? until : p->hold_until;
	}
}

/* Counts that may begin a storm; true if this reject is to be taken as an outage. */
static bool book_storm(struct rdv_target_route *route, struct rdv_now now, const struct rdv_call_report *r,
		       enum rdv_kind kind, struct rdv_booking *out)
{
	struct rdv_storm *s = &route->storm;
	bool reject = kind == RDV_KIND_MSG;

	if (kind == RDV_KIND_OK && s->held)
		out->storm_ended = rdv_storm_ends(s, now.mono, r->started);
	if (s->held)
		return reject;
	if (r->class == RDV_CLASS_REPLAY || (is_bad(kind) && r->class != RDV_CLASS_FIRST))
		return false; /* letters say nothing about the stream, and a message counts when it ends */
	rdv_storm_count_one(s, now.mono.ms, reject);
	if (reject && route->policy.storm_hold)
		out->storm_began = rdv_storm_begins(s, now.mono);
	return s->held;
}

static void book_family(struct rdv_target *t, struct rdv_target_route *route, struct rdv_now now,
			const struct rdv_call_report *r, struct rdv_booking *out)
{
	const struct rdv_family *policy = &route->policy.family;
	struct rdv_family_answer answer;

	if (t->breaker.state != RDV_UP || out->outage || out->went_down)
		return;
	answer = rdv_family_see(&route->families, policy, now.mono.ms, r->verdict->fingerprint, r->message);
	out->family_alert = answer.began;
	out->family_hold = answer.member && policy->then == RDV_FAMILY_HOLD;
	out->family_reject = answer.member && policy->then == RDV_FAMILY_REJECT;
}

static bool is_charge(const struct rdv_verdict *v)
{
	return v->cause == RDV_CAUSE_FAILURE || v->cause == RDV_CAUSE_TIMEOUT;
}

static void trip(struct rdv_target *t, struct rdv_now now, int64_t since, struct rdv_booking *out)
{
	double throughput = rdv_evidence_throughput(&t->evidence, since);

	rdv_breaker_trip(&t->breaker, &t->policy.breaker, now, throughput);
	rdv_evidence_reset(&t->evidence, now.mono);
	out->went_down = true;
	out->refund_since.ms = since;
	out->charged = out->suspicious = false;
	out->outage = true;
}

static void bad_while_up(struct rdv_target *t, struct rdv_now now, const struct rdv_call_report *r,
			 struct rdv_booking *out)
{
	struct rdv_evidence *e = &t->evidence;
	bool first = r->class == RDV_CLASS_FIRST, infra = r->verdict->evidence == RDV_KIND_INFRA;
	int64_t since;

	out->charged = is_charge(r->verdict);
	out->suspicious = out->charged && rdv_evidence_others_fine(e, r->message);
	if (r->was_suspect || r->started.ms < t->breaker.since.mono.ms)
		return;
	rdv_evidence_bad(e, now.mono.ms, r->message, first || infra);
	if (!t->policy.breaker.on || !(first || infra))
		return;
	if (rdv_evidence_down(e, &t->policy.breaker, now.mono.ms, &since))
		trip(t, now, since, out);
}

static void bad_while_out(struct rdv_target *t, struct rdv_now now, bool down_probe, const struct rdv_call_report *r,
			  struct rdv_booking *out)
{
	const struct rdv_breaker *policy = &t->policy.breaker;
	bool patient = now.mono.ms - t->breaker.patient_since < policy->patience_ms;

	out->charged = down_probe && !patient && is_charge(r->verdict);
	out->outage = !out->charged;
	rdv_breaker_bad(&t->breaker, policy, now, r->message);
}

static void book_ok(struct rdv_target *t, struct rdv_now now, const struct rdv_call_report *r, struct rdv_booking *out)
{
	enum rdv_breaker_state before = t->breaker.state;

	rdv_evidence_ok(&t->evidence, now.mono.ms, before == RDV_UP && r->class == RDV_CLASS_FIRST && !r->was_suspect);
	if (before == RDV_UP)
		return;
	rdv_breaker_ok(&t->breaker, &t->policy.breaker, now, r->started);
	out->went_half = before == RDV_DOWN && t->breaker.state == RDV_HALF;
}

static void book_probe(struct rdv_target *t, struct rdv_now now, bool down_probe, const struct rdv_call_report *r)
{
	struct rdv_target_route *route = rdv_target_route_at(t, r->route);

	if (down_probe) {
		t->breaker.probe_message = r->message;
		t->breaker.probe_fingerprint = r->verdict->fingerprint;
		rdv_breaker_probed(&t->breaker, &t->policy.breaker, now, is_bad(r->verdict->evidence));
	} else if (r->probe && route != NULL && route->storm.probe_out) {
		route->storm.probe_message = r->message;
		route->storm.probe_fingerprint = r->verdict->fingerprint;
		rdv_storm_probed(&route->storm, now.mono);
	}
}

struct rdv_booking rdv_target_verdict(struct rdv_target *t, struct rdv_now now, const struct rdv_call_report *r)
{
	struct rdv_booking out = {.refund_since = {RDV_NEVER}};
	struct rdv_target_route *route = rdv_target_route_at(t, r->route);
	enum rdv_kind kind = r->verdict->evidence;
	enum rdv_breaker_state before = t->breaker.state;
	bool down_probe;

	rdv_target_roll(t, now);
	down_probe = is_down_probe(t, r);
	release(t, now, r, kind);
	if (r->probe)
		book_probe(t, now, down_probe, r);
	if (kind == RDV_KIND_OK)
		book_ok(t, now, r, &out);
	else if (is_bad(kind) && t->breaker.state == RDV_UP)
		bad_while_up(t, now, r, &out);
	else if (is_bad(kind))
		bad_while_out(t, now, down_probe, r, &out);
	if (route != NULL && kind != RDV_KIND_NONE)
		out.take_as_outage_msg = book_storm(route, now, r, kind, &out) && kind == RDV_KIND_MSG;
	t->storm_changes += out.storm_began || out.storm_ended;
	if (kind == RDV_KIND_MSG) {
		out.charged = !out.take_as_outage_msg;
		out.outage = out.take_as_outage_msg;
	}
	if (route != NULL && r->verdict->fingerprint != 0)
		book_family(t, route, now, r, &out);
	out.went_up = before == RDV_HALF && t->breaker.state == RDV_UP;
	return out;
}
