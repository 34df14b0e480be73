/* lane_replay.c - replays of dead letters, and their plans.
 *
 *   REQUEST open ──▶ an entry with `replay`, in its key's order by its old position, class REPLAY ──▶ REQUEST finished
 * ──▶ OUTCOME ──▶ REQUEST gone
 *
 * A replay is delivered like a message, starts at attempt 1, and is in no account. Its body is the desk's. It gates its
 * key in any order mode (lane_keys.c). While its plan is paused it is in nobody's way: it leaves its key's order, and
 * comes back when the plan goes on. Taken back means: finished as READY (never delivered) or WAITING (delivered, no
 * final verdict). The desk hears an outcome when it is durable here, again after each restart, until it has said that
 * it stored it. Internal to the lane; single thread. */
#include "lane_parts.h"

enum redrive_status rdv_lane_replay(struct rdv_lane *l, struct rdv_now now, const struct rdv_request *request,
				    uint64_t *number, struct rdv_effects *out)
{
	uint32_t item, ref;

	if (rdv_lane_find(l, request->seq))
		return REDRIVE_CONFLICT;
	item = rdv_lane_add_item(l, l->next_request, request);
	if (!item)
		return REDRIVE_NO_MEMORY;
	rdv_lane_item(l, item)->request.kind = RDV_REQUEST_REPLAY;
	rdv_lane_item(l, item)->request.state = RDV_REQUEST_OPEN;
	ref = rdv_lane_add_replay_entry(l, item, request);
	if (!ref) {
		rdv_lane_drop_item(l, item);
		return REDRIVE_NO_MEMORY;
	}
	*number = l->next_request++;
	rdv_lane_write_request(l, *number, out);
	if (!rdv_lane_plan_paused(l, rdv_lane_entry(l, ref)))
		rdv_lane_arrive(l, ref, now, out);
	return REDRIVE_OK;
}

void rdv_lane_say_outcome(struct rdv_lane *l, uint64_t number, struct rdv_effects *out)
{
	uint32_t ref = rdv_lane_find_request(l, number);
	const struct rdv_inbox_item *item = ref ? rdv_lane_item(l, ref) : NULL;
	struct rdv_effect *effect;

	if (!item || item->request.state != RDV_REQUEST_FINISHED)
		return;
	effect = rdv_effects_add(out, RDV_EFFECT_OUTCOME, l);
	effect->seq = item->request.seq;
	effect->outcome.request = number;
	effect->outcome.outcome = item->request.outcome;
	effect->outcome.attempts = item->request.deliveries;
}

void rdv_lane_replay_finish(struct rdv_lane *l, uint32_t ref, struct rdv_now now, enum rdv_state outcome,
			    struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_inbox_item *item = rdv_lane_request_of(l, ref);
	uint32_t key = l->policy.order == RDV_ORDER_KEY ? e->key : 0;
	bool final = outcome == RDV_STATE_ACKED || outcome == RDV_STATE_DROPPED || outcome == RDV_STATE_DEAD;

	if (outcome == RDV_STATE_DROPPED)
		outcome = RDV_STATE_ACKED; /* the handler wants no more of it */
	item->request.state = RDV_REQUEST_FINISHED;
	item->request.outcome = outcome;
	item->request.charged = e->charged;
	l->account.replays_acked += outcome == RDV_STATE_ACKED;
	l->account.replays_dead += outcome == RDV_STATE_DEAD;
	rdv_lane_write_request(l, item->number, out);
	rdv_lane_follow_up(l, RDV_ONCE_OUTCOME, 0, item->number, out);
	rdv_lane_note_outcome(l, now, 100);
	if (key && final) {
		if (!e->blocks)
			rdv_order_key(&l->order, key)->blocked++;
		rdv_lane_follow_up(l, RDV_ONCE_KEY, key, 0, out);
		if (outcome == RDV_STATE_ACKED && rdv_order_key(&l->order, key)->closed &&
		    rdv_order_key(&l->order, key)->letter_seq == e->seq)
			rdv_lane_set_gate(l, key, false, 0, out);
	}
	/* The entry stays until the desk has the outcome: no second replay of the message may come in between. */
	e->state = RDV_STATE_DONE;
	e->todo = RDV_TODO_NONE;
	e->doubles = 0;
	rdv_lane_release_state(l, e);
	rdv_lane_forget_key(l, e);
	if (key && !final)
		rdv_lane_promote(l, key, now, out);
}

void rdv_lane_outcome_stored(struct rdv_lane *l, struct rdv_now now, uint64_t request, struct rdv_effects *out)
{
	uint32_t ref = rdv_lane_find_request(l, request);

	if (!ref || rdv_lane_item(l, ref)->request.state != RDV_REQUEST_FINISHED)
		return;
	rdv_lane_item(l, ref)->request.state = RDV_REQUEST_GONE;
	rdv_lane_write_request(l, request, out);
	rdv_lane_drop_entry(l, rdv_lane_item(l, ref)->entry);
	rdv_lane_drop_item(l, ref);
}

/* ---- plans pause and end ---- */

/* Out of its key's way; its time goes on. */
static void step_aside(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	uint32_t key = rdv_lane_key_of(l, e);

	if (e->state == RDV_STATE_READY && e->queued)
		rdv_lane_unready(l, ref, RDV_STATE_HELD);
	if (!e->joined)
		return;
	rdv_lane_leave(l, ref);
	rdv_lane_promote(l, key, now, out);
}

static void take_back(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	bool delivered = rdv_lane_entry(l, ref)->delivered;

	step_aside(l, ref, now, out);
	rdv_lane_dedupe_end(l, rdv_lane_entry(l, ref)->seq, now, false, rdv_slice(NULL, 0), out);
	rdv_lane_replay_finish(l, ref, now, delivered ? RDV_STATE_WAITING : RDV_STATE_READY, out);
}

static void each_of_plan(struct rdv_lane *l, struct rdv_now now, uint64_t plan,
			 void (*each)(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out),
			 struct rdv_effects *out)
{
	for (uint32_t i = 1; i <= l->requests.used; i++) {
		const struct rdv_inbox_item *item = rdv_lane_item(l, i);
		const struct rdv_entry *e;

		if (!item->number || item->request.plan != plan || !item->entry)
			continue;
		e = rdv_lane_entry(l, item->entry);
		if (e->state == RDV_STATE_READY || e->state == RDV_STATE_WAITING || e->state == RDV_STATE_HELD)
			each(l, item->entry, now, out);
	}
}

static void go_on(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (e->joined || e->todo == RDV_TODO_CRASH)
		return;
	if (e->state == RDV_STATE_HELD && !e->doubles) {
		rdv_lane_arrive(l, ref, now, out);
	} else if (e->key && e->state != RDV_STATE_READY) {
		rdv_lane_join(l, ref); /* waits: for its time, or for another message with its dedupe key */
		rdv_lane_promote(l, rdv_lane_key_of(l, e), now, out);
	}
}

void rdv_lane_replay_pause(struct rdv_lane *l, struct rdv_now now, uint64_t plan, bool paused, struct rdv_effects *out)
{
	uint32_t i = rdv_lane_find_plan(l, plan);

	if (i == UINT32_MAX || l->plans[i].paused == paused)
		return;
	l->plans[i].paused = paused;
	each_of_plan(l, now, plan, paused ? step_aside : go_on, out);
}

void rdv_lane_replay_cancel(struct rdv_lane *l, struct rdv_now now, uint64_t plan, struct rdv_effects *out)
{
	uint32_t i = rdv_lane_find_plan(l, plan);

	if (i == UINT32_MAX)
		return;
	l->plans[i].cancelled = true; /* those at the handler are taken back if their verdict is not final */
	each_of_plan(l, now, plan, take_back, out);
}

bool rdv_lane_plan_cancelled(const struct rdv_lane *l, const struct rdv_entry *e)
{
	return l->plans[rdv_lane_item(l, e->body_offset)->plan].cancelled;
}
