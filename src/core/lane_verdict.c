/* lane_verdict.c - from the end of a call to what follows: done, another time, or dead.
 *
 *   verdict ──▶ the target books it (charged, outage, suspicious, ...) ──▶ one of
 *     ack, drop            DONE
 *     reject               dies (rejected); in a storm: waits, uncharged
 *     retry, charged       waits; at the limit: dies (exhausted, expired), or is dropped where the policy says so
 *     retry, not charged   waits as after failure max(1, charged)
 *     killed by a signal   waits, uncharged, up to `crashes`
 *     defer                waits `base` or what was asked, up to `deferrals`
 *     cut off by the drain ready again, same attempt number
 * What is charged or given back is the target's decision; this file applies it. Age is judged here, when a failure is
 * recorded. A rule's own limits apply to all charged failures, judged by the last. Internal to the lane; single thread.
 */
#include "lane_parts.h"

/* Everything about the call that ended, for the helpers below. */
struct ending {
	uint32_t ref;
	struct rdv_entry *e;
	const struct rdv_verdict *verdict;
	const struct rdv_retry *retry; /* the limits that apply */
	struct rdv_booking booking;
	struct rdv_now now;
	struct rdv_wall began;
	enum rdv_cause cause; /* as it stands in the history */
	bool charged;
};

static bool is_bad(enum rdv_kind kind)
{
	return kind == RDV_KIND_INFRA || kind == RDV_KIND_APP || kind == RDV_KIND_WIRING;
}

/* Under which cause the attempt is counted. */
static void judge_cause(struct ending *x)
{
	const struct rdv_verdict *v = x->verdict;
	bool refunded_at_once =
		x->booking.went_down && is_bad(v->evidence) && x->now.mono.ms >= x->booking.refund_since.ms;

	x->cause = v->kind == RDV_DEFER ? RDV_CAUSE_DEFERRAL : v->cause;
	x->charged = false;
	if (x->cause == RDV_CAUSE_SHUTDOWN || x->cause == RDV_CAUSE_DEFERRAL)
		return;
	if (x->booking.take_as_outage_msg || x->booking.outage || refunded_at_once) {
		x->cause = RDV_CAUSE_OUTAGE;
		return;
	}
	if (x->cause == RDV_CAUSE_CRASH)
		return;
	if (x->cause == RDV_CAUSE_NONE)
		x->cause = RDV_CAUSE_FAILURE;
	x->charged = v->kind == RDV_REJECT || x->booking.charged;
	if (!x->charged)
		x->cause = RDV_CAUSE_OUTAGE;
}

static void count_end(struct rdv_account *a, const struct ending *x)
{
	switch (x->cause) {
	case RDV_CAUSE_SHUTDOWN:
		a->shutdowns++;
		return;
	case RDV_CAUSE_DEFERRAL:
		a->deferrals++;
		return;
	case RDV_CAUSE_OUTAGE:
		a->outage++;
		return;
	case RDV_CAUSE_CRASH:
		a->crashes++;
		return;
	case RDV_CAUSE_TIMEOUT:
	case RDV_CAUSE_FAILURE:
	case RDV_CAUSE_NONE:
	case RDV_CAUSE_COUNT:
		break;
	}
	if (x->verdict->kind == RDV_REJECT) {
		a->rejected++;
		return;
	}
	a->failed++;
	a->timeouts += x->cause == RDV_CAUSE_TIMEOUT;
}

static void count_cause(struct rdv_causes *c, const struct ending *x)
{
	c->failures += x->charged;
	c->timeouts += x->charged && x->cause == RDV_CAUSE_TIMEOUT;
	c->crashes += x->cause == RDV_CAUSE_CRASH;
	c->shutdowns += x->cause == RDV_CAUSE_SHUTDOWN;
	c->deferrals += x->cause == RDV_CAUSE_DEFERRAL;
	c->outage += x->cause == RDV_CAUSE_OUTAGE;
}

/* The entry's own memory of the failure. */
static void remember(struct rdv_lane *l, const struct ending *x)
{
	struct rdv_entry *e = x->e;

	e->charged += x->charged && e->charged < UINT32_MAX;
	e->bad_charged = x->charged && is_bad(x->verdict->evidence);
	e->by_rule = x->retry != &l->policy.retry;
	if (x->charged && x->booking.suspicious && e->suspicion < 3)
		e->suspicion++;
	if (x->verdict->fingerprint)
		e->mark = rdv_lane_mark(x->verdict->fingerprint);
	if (e->bad_charged)
		rdv_lane_remember_charge(l, x->ref, x->now, x->cause == RDV_CAUSE_TIMEOUT);
}

/* The attempt into the history; the failure into the state. */
static void record_attempt(struct rdv_message_state *s, const struct ending *x, int64_t delay)
{
	const struct rdv_verdict *v = x->verdict;
	struct rdv_attempt a = {
		.n = ++s->deliveries,
		.at = x->began,
		.took_ms = v->took_ms > 0 ? v->took_ms : 0,
		.verdict = (uint8_t)v->kind,
		.cause = (uint8_t)x->cause,
		.duplicate = v->duplicate,
		.code = v->failure.code,
		.class = v->failure.class,
		.text = rdv_slice_cut_utf8(v->failure.text, RDV_HISTORY_TEXT_BYTES),
	};

	if (delay >= 0)
		a.next_at.ms = rdv_ms_add(x->now.wall.ms, delay);
	if (!s->first_at.ms)
		s->first_at = x->began;
	rdv_state_add_attempt(s, &a);
	if (v->handler_version.size)
		s->handler_version = v->handler_version;
	if (x->cause == RDV_CAUSE_SHUTDOWN || x->cause == RDV_CAUSE_DEFERRAL)
		return;
	if (!s->first_failed_at.ms)
		s->first_failed_at = x->now.wall;
	s->last_failed_at = x->now.wall;
	s->failure = v->failure;
	s->fingerprint = v->fingerprint;
}

static int64_t next_delay(struct rdv_lane *l, const struct ending *x)
{
	const struct rdv_verdict *v = x->verdict;

	if (x->cause == RDV_CAUSE_SHUTDOWN)
		return 0;
	if (x->booking.family_hold)
		return rdv_retry_cap(x->retry);
	if (v->rule && v->kind == RDV_DEFER && v->has_delay)
		return v->delay_ms; /* the configuration's own; the cap is for what handlers name */
	if (v->has_delay)
		return rdv_retry_named_delay(x->retry, v->delay_ms);
	if (v->kind == RDV_DEFER)
		return x->retry->base_ms;
	return rdv_retry_delay(x->retry, x->e->charged ? x->e->charged : 1, &l->random);
}

/* Why it may not be tried again; NONE: it may. `s` holds everything up to this attempt. */
static enum rdv_reason limit_reached(const struct ending *x, const struct rdv_message_state *s, int64_t delay)
{
	const struct rdv_retry *r = x->retry;
	struct rdv_wall first = s->first_at.ms ? s->first_at : x->began;

	if (x->verdict->kind == RDV_REJECT && x->cause != RDV_CAUSE_OUTAGE)
		return RDV_REASON_REJECTED;
	if (x->booking.family_reject)
		return RDV_REASON_REJECTED;
	if (x->cause == RDV_CAUSE_SHUTDOWN)
		return RDV_REASON_NONE;
	if (x->charged && x->e->charged >= r->attempts)
		return RDV_REASON_EXHAUSTED;
	if (x->cause == RDV_CAUSE_CRASH && s->causes.crashes >= r->crashes)
		return RDV_REASON_CRASHED;
	if (x->cause == RDV_CAUSE_DEFERRAL && s->causes.deferrals > r->deferrals)
		return RDV_REASON_EXHAUSTED;
	if (r->max_age_ms > 0 && rdv_ms_add(x->now.wall.ms, delay) > rdv_ms_add(first.ms, r->max_age_ms))
		return RDV_REASON_EXPIRED;
	return RDV_REASON_NONE;
}

/* on_exhausted: drop is for the limits, not for what somebody decided. */
static bool may_drop(enum rdv_reason reason)
{
	return reason == RDV_REASON_EXHAUSTED || reason == RDV_REASON_EXPIRED || reason == RDV_REASON_CRASHED;
}

static void go_on_waiting(struct rdv_lane *l, struct ending *x, int64_t delay, struct rdv_effects *out)
{
	struct rdv_message_state *s = &l->state;

	s->due.ms = rdv_ms_add(x->now.wall.ms, delay);
	s->delay_ms = delay;
	s->reason = RDV_REASON_NONE;
	rdv_lane_set_state(l, x->e, x->cause == RDV_CAUSE_SHUTDOWN ? RDV_STATE_READY : RDV_STATE_WAITING);
	rdv_lane_save_state(l, x->ref, x->now, out);
	rdv_lane_dedupe_waits(l, x->e->seq, out);
	rdv_lane_resume(l, x->ref, x->now, delay, out);
}

static void not_acked(struct rdv_lane *l, struct ending *x, struct rdv_slice history, struct rdv_effects *out)
{
	struct rdv_message_state *s;
	enum rdv_reason reason;
	int64_t delay;

	judge_cause(x);
	if (!x->e->replay)
		count_end(&l->account, x);
	/* Loaded before the entry changes: without a readable history it starts from what memory knew. */
	s = rdv_lane_load_state(l, x->e, history);
	remember(l, x);
	delay = next_delay(l, x);
	count_cause(&s->causes, x);
	reason = limit_reached(x, s, delay);
	if (x->e->revoke && !x->e->replay)
		reason = RDV_REASON_REVOKED;
	record_attempt(s, x, reason == RDV_REASON_NONE ? delay : -1);
	if (reason == RDV_REASON_NONE && x->e->replay && rdv_lane_plan_cancelled(l, x->e)) {
		rdv_lane_dedupe_end(l, x->e->seq, x->now, false, rdv_slice(NULL, 0), out);
		rdv_lane_finish(l, x->ref, x->now, RDV_STATE_WAITING, out);
		return;
	}
	if (reason == RDV_REASON_NONE) {
		go_on_waiting(l, x, delay, out);
		return;
	}
	if (x->retry->on_exhausted == RDV_EXHAUSTED_DROP && !x->e->replay && may_drop(reason)) {
		rdv_lane_dedupe_end(l, x->e->seq, x->now, false, rdv_slice(NULL, 0), out);
		rdv_lane_finish(l, x->ref, x->now, RDV_STATE_DROPPED, out);
		return;
	}
	rdv_lane_die(l, x->ref, x->now, reason, s, out);
}

static void acked(struct rdv_lane *l, struct ending *x, struct rdv_effects *out)
{
	bool drop = x->verdict->kind == RDV_DROP;
	struct rdv_account *a = &l->account;

	if (!x->e->replay && drop)
		a->attempts_dropped++;
	else if (!x->e->replay)
		a->succeeded++;
	if (drop && x->e->revoke && !x->e->replay) {
		rdv_lane_die(l, x->ref, x->now, RDV_REASON_REVOKED, NULL, out);
		return;
	}
	if (l->dedupe->by_owner.count) /* also when a reload has turned it off: others may wait for this one */
		rdv_lane_dedupe_end(l, x->e->seq, x->now, !drop, x->verdict->answer, out);
	rdv_lane_finish(l, x->ref, x->now, drop ? RDV_STATE_DROPPED : RDV_STATE_ACKED, out);
}

static void say_what_happened(struct rdv_lane *l, const struct rdv_booking *b, struct rdv_effects *out)
{
	if (b->went_down)
		rdv_lane_alarm(l, 0, "the target is down: nothing is dispatched but probes", out);
	if (b->storm_began)
		rdv_lane_alarm(l, 0, "most messages are suddenly rejected: held, one probe every 5 s", out);
	if (b->family_alert || b->family_hold || b->family_reject)
		rdv_lane_alarm(l, 1, "many different messages fail alike", out);
}

static struct rdv_booking book(struct rdv_lane *l, const struct ending *x)
{
	const struct rdv_entry *e = x->e;
	struct rdv_call_report report = {
		.route = l->granted ? l->granted_route : l->target_route,
		.class = (enum rdv_class)e->class,
		.probe = e->probe,
		.attempt = e->charged + 1,
		.was_suspect = e->suspicion >= 2,
		.message = rdv_lane_message_id(l, e->seq),
		.started = {e->due},
		.verdict = x->verdict,
	};

	if (report.attempt == 1 && e->class != RDV_CLASS_FIRST && e->state_segment)
		report.attempt = 2; /* went out before, though nothing was charged */
	return rdv_target_verdict(l->granted ? l->granted : l->target, x->now, &report);
}

enum redrive_status rdv_lane_verdict(struct rdv_lane *l, struct rdv_now now, uint32_t ref, uint64_t call,
				     const struct rdv_verdict *verdict, struct rdv_slice history,
				     struct rdv_effects *out)
{
	struct ending x = {.ref = ref, .verdict = verdict, .now = now};
	const struct rdv_retry *rule;
	uint32_t key;

	if (!rdv_lane_is_call(l, ref, call))
		return REDRIVE_NOT_FOUND;
	x.e = rdv_lane_entry(l, ref);
	x.booking = book(l, &x);
	key = l->policy.order == RDV_ORDER_NONE ? rdv_lane_key_of(l, x.e) : 0;
	rdv_lane_end_call(l, ref);
	l->suspect_mode = false;
	l->counters_changed = true;
	l->outcome_since_open = true;
	if (verdict->kind == RDV_ACK || verdict->kind == RDV_DROP) {
		acked(l, &x, out);
	} else {
		x.began.ms = now.wall.ms - (now.mono.ms - x.e->due);
		if (x.booking.went_down) {
			l->refund_due = true;
			l->refund_since = x.booking.refund_since;
		}
		say_what_happened(l, &x.booking, out);
		rule = verdict->rule ? rdv_rules_retry(l->rules, verdict->rule) : NULL;
		x.retry = rule ? rule : &l->policy.retry;
		not_acked(l, &x, history, out);
	}
	if (key)
		rdv_lane_promote(l, key, now, out);
	return REDRIVE_OK;
}

/* ---- charges that may be given back ---- */

#define CHARGES_AGE_MS 600000
#define CHARGES_MAX (1u << 20)

void rdv_lane_remember_charge(struct rdv_lane *l, uint32_t ref, struct rdv_now now, bool timeout)
{
	const struct rdv_charge c = {
		.at = now.mono.ms, .seq = rdv_lane_entry(l, ref)->seq, .entry = ref, .timeout = timeout};

	while (l->charges.count &&
	       (l->charges.count >= CHARGES_MAX ||
		now.mono.ms - ((struct rdv_charge *)rdv_ring_at(&l->charges, 0))->at > CHARGES_AGE_MS))
		rdv_ring_pop(&l->charges);
	if (!rdv_ring_push(&l->charges, &c))
		l->short_of_memory = true;
}

static void give_back(struct rdv_lane *l, const struct rdv_charge *c, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, c->entry);

	if (e->seq != c->seq || e->ghost || e->state == RDV_STATE_DYING || e->state == RDV_STATE_DONE || !e->charged ||
	    e->refund == 7)
		return;
	e->charged--;
	e->refund++;
	e->bad_charged = 0;
	if (!e->replay) {
		l->account.failed--;
		l->account.timeouts -= c->timeout;
		l->account.outage++;
		l->counters_changed = true;
	}
	if (e->state != RDV_STATE_IN_FLIGHT && e->todo == RDV_TODO_NONE)
		rdv_lane_ask_history(l, c->entry, RDV_TODO_REFUND, out);
}

void rdv_lane_refund(struct rdv_lane *l, struct rdv_now now, struct rdv_mono since, struct rdv_effects *out)
{
	while (l->charges.count) {
		const struct rdv_charge *c = rdv_ring_at(&l->charges, l->charges.count - 1);
		if (c->at < since.ms)
			break;
		give_back(l, c, out);
		l->charges.count--;
	}
}

bool rdv_lane_take_refund(struct rdv_lane *l, struct rdv_mono *since)
{
	bool due = l->refund_due;

	*since = l->refund_since;
	l->refund_due = false;
	return due;
}
