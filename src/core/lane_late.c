/* lane_late.c - a call that nobody answered: taken back before anybody had it, or answered when it was over.
 *
 *   IN_FLIGHT, but nobody was called ── take_back ──▶ READY, or WAITING; or dies, if it was to be revoked
 *   WAITING, READY, HELD after a lease expired ── late ──▶ acked | dropped | dying (rejected) | WAITING
 *
 * A call that is taken back never was: no count, no history, no charge. A late verdict decides what follows, as long as
 * nobody else has the message; the attempt stays what it was counted as when its time was over, so nothing is charged
 * twice, and nothing is given back. Its error takes the place of the timeout's. The entry may lie in a queue or in the
 * wheel, out of whose middle nothing can be taken: the message gets a new entry, and the old one stays there as a
 * ghost. Internal to the lane; single thread. */
#include "lane_parts.h"

void rdv_lane_take_back(struct rdv_lane *l, struct rdv_now now, uint32_t ref, uint64_t call, int64_t delay,
			struct rdv_effects *out)
{
	struct rdv_entry *e;
	uint32_t unordered;

	if (!rdv_lane_is_call(l, ref, call))
		return;
	e = rdv_lane_entry(l, ref);
	unordered = l->policy.order == RDV_ORDER_NONE ? rdv_lane_key_of(l, e) : 0;
	rdv_lane_undo_call(l, ref, now);
	if (e->replay && --rdv_lane_request_of(l, ref)->request.deliveries == 0)
		e->delivered = 0;
	if (e->replay && rdv_lane_plan_cancelled(l, e)) {
		rdv_lane_dedupe_end(l, e->seq, now, false, rdv_slice(NULL, 0), out);
		rdv_lane_finish(l, ref, now, e->delivered ? RDV_STATE_WAITING : RDV_STATE_READY, out);
	} else if (e->revoke && !e->replay) {
		rdv_lane_die(l, ref, now, RDV_REASON_REVOKED, NULL, out);
	} else {
		rdv_lane_set_state(l, e, delay > 0 ? RDV_STATE_WAITING : RDV_STATE_READY);
		rdv_lane_resume(l, ref, now, delay, out);
	}
	if (unordered)
		rdv_lane_promote(l, unordered, now, out);
}

/* Out of its queue and its key's order, as if it had just come back from the handler. 0 without memory. */
static uint32_t seize(struct rdv_lane *l, uint32_t ref, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref), old;
	uint32_t link;

	if (e->state == RDV_STATE_READY && e->queued)
		rdv_lane_unready(l, ref, RDV_STATE_HELD);
	rdv_lane_dedupe_leave(l, ref);
	rdv_lane_leave(l, ref);
	old = *e;
	rdv_lane_drop_entry(l, ref);
	ref = rdv_lane_add_entry(l, old.seq);
	if (!ref) {
		out->failed = true;
		return 0;
	}
	e = rdv_lane_entry(l, ref);
	link = e->link;
	*e = old;
	e->link = link;
	e->next = 0;
	e->queued = e->scheduled = e->fetched = 0;
	if (e->replay)
		rdv_lane_request_of(l, ref)->entry = ref;
	rdv_lane_set_state(l, e, RDV_STATE_IN_FLIGHT);
	return ref;
}

static int64_t late_delay(const struct rdv_lane *l, const struct rdv_verdict *v, int64_t left)
{
	const struct rdv_retry *rule = v->rule ? rdv_rules_retry(l->rules, v->rule) : NULL;
	const struct rdv_retry *r = rule ? rule : &l->policy.retry;

	if (v->rule && v->kind == RDV_DEFER && v->has_delay)
		return v->delay_ms;
	if (v->has_delay)
		return rdv_retry_named_delay(r, v->delay_ms);
	if (v->kind == RDV_DEFER)
		return r->base_ms;
	return left > 0 ? left : 0;
}

static void not_acked(struct rdv_lane *l, uint32_t ref, struct rdv_now now, const struct rdv_verdict *v,
		      struct rdv_slice history, int64_t left, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_message_state *s = rdv_lane_load_state(l, e, history);
	int64_t delay = late_delay(l, v, left);

	if (v->kind != RDV_DEFER) {
		s->failure = v->failure;
		s->fingerprint = v->fingerprint;
		s->last_failed_at = now.wall;
		e->mark = rdv_lane_mark(v->fingerprint);
	}
	if (v->kind == RDV_REJECT && !rdv_target_storm_held(l->target, l->target_route)) {
		rdv_lane_die(l, ref, now, RDV_REASON_REJECTED, s, out);
		return;
	}
	s->due.ms = rdv_ms_add(now.wall.ms, delay);
	s->delay_ms = delay;
	s->reason = RDV_REASON_NONE;
	rdv_lane_set_state(l, e, RDV_STATE_WAITING);
	rdv_lane_save_state(l, ref, now, out);
	rdv_lane_dedupe_waits(l, e->seq, out);
	rdv_lane_resume(l, ref, now, delay, out);
}

static bool may_be_late(const struct rdv_entry *e)
{
	return (e->state == RDV_STATE_WAITING || e->state == RDV_STATE_READY || e->state == RDV_STATE_HELD) &&
	       e->todo != RDV_TODO_DIE && e->todo != RDV_TODO_CRASH && !e->unplaced;
}

enum redrive_status rdv_lane_late(struct rdv_lane *l, struct rdv_now now, uint64_t seq, const struct rdv_verdict *v,
				  struct rdv_slice history, struct rdv_effects *out)
{
	uint32_t ref = rdv_lane_find(l, seq), key;
	int64_t left;
	struct rdv_entry *e;

	if (!ref || !may_be_late(rdv_lane_entry(l, ref)))
		return REDRIVE_CONFLICT;
	e = rdv_lane_entry(l, ref);
	left = e->state == RDV_STATE_WAITING ? rdv_lane_due(e) - now.mono.ms : 0;
	key = rdv_lane_key_of(l, e);
	ref = seize(l, ref, out);
	if (!ref)
		return REDRIVE_NO_MEMORY;
	l->outcome_since_open = true;
	if (v->kind == RDV_ACK || v->kind == RDV_DROP) {
		rdv_lane_dedupe_end(l, seq, now, v->kind == RDV_ACK, v->answer, out);
		rdv_lane_finish(l, ref, now, v->kind == RDV_ACK ? RDV_STATE_ACKED : RDV_STATE_DROPPED, out);
	} else {
		not_acked(l, ref, now, v, history, left, out);
	}
	if (key)
		rdv_lane_promote(l, key, now, out);
	return REDRIVE_OK;
}
