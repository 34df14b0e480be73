/* lane_replay.c - replay requests, revoking, releasing.
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
#include <assert.h>
#include <stdlib.h>

static uint64_t item_hash(void *owner, uint32_t ref)
{
	return ((struct rdv_inbox_item *)rdv_chunks_at(&((struct rdv_lane *)owner)->requests, ref))->number;
}

static uint32_t *item_link(void *owner, uint32_t ref)
{
	return &((struct rdv_inbox_item *)rdv_chunks_at(&((struct rdv_lane *)owner)->requests, ref))->link;
}

static const struct rdv_map_ops item_ops = {item_hash, item_link};

void rdv_lane_init_requests(struct rdv_lane *l)
{
	rdv_chunks_init(&l->requests, sizeof(struct rdv_inbox_item));
	rdv_map_init(&l->by_number, &item_ops, l);
	l->next_request = 1;
}

void rdv_lane_done_requests(struct rdv_lane *l)
{
	for (uint32_t i = 0; i < l->plan_count; i++)
		free(l->plans[i].name);
	free(l->plans);
	rdv_map_done(&l->by_number);
	rdv_chunks_done(&l->requests);
}

struct rdv_inbox_item *rdv_lane_item(const struct rdv_lane *l, uint32_t ref)
{
	return rdv_chunks_at(&l->requests, ref);
}

uint32_t rdv_lane_find_request(const struct rdv_lane *l, uint64_t number)
{
	uint32_t ref = rdv_map_first(&l->by_number, number);

	while (ref && rdv_lane_item(l, ref)->number != number)
		ref = rdv_lane_item(l, ref)->link;
	return ref;
}

struct rdv_inbox_item *rdv_lane_request_of(const struct rdv_lane *l, uint32_t entry)
{
	return rdv_lane_item(l, rdv_lane_entry(l, entry)->body_offset);
}

/* ---- plans ---- */

static uint32_t find_plan(const struct rdv_lane *l, uint64_t id)
{
	for (uint32_t i = 0; i < l->plan_count; i++)
		if (l->plans[i].id == id && l->plans[i].name)
			return i;
	return UINT32_MAX;
}

static uint32_t use_plan(struct rdv_lane *l, uint64_t id, struct rdv_slice name)
{
	uint32_t i = find_plan(l, id);
	struct rdv_plan *plans;

	if (i == UINT32_MAX) {
		for (i = 0; i < l->plan_count && l->plans[i].name; i++)
			;
		if (i == l->plan_count) {
			plans = realloc(l->plans, (l->plan_count + 1) * sizeof *plans);
			if (!plans)
				return UINT32_MAX;
			l->plans = plans;
			l->plans[l->plan_count++] = (struct rdv_plan){0};
		}
		l->plans[i] = (struct rdv_plan){.id = id, .name = malloc(name.size + 1)};
		if (!l->plans[i].name)
			return UINT32_MAX;
		rdv_slice_to_text(name, l->plans[i].name, name.size + 1);
	}
	l->plans[i].requests++;
	return i;
}

static void leave_plan(struct rdv_lane *l, uint32_t plan)
{
	if (--l->plans[plan].requests)
		return;
	free(l->plans[plan].name);
	l->plans[plan] = (struct rdv_plan){0};
}

bool rdv_lane_plan_paused(const struct rdv_lane *l, const struct rdv_entry *e)
{
	return l->plans[rdv_lane_item(l, e->body_offset)->plan].paused;
}

/* ---- requests ---- */

bool rdv_lane_request(const struct rdv_lane *l, uint64_t number, struct rdv_request *out)
{
	uint32_t ref = rdv_lane_find_request(l, number);
	const struct rdv_inbox_item *item;

	if (!ref)
		return false;
	item = rdv_lane_item(l, ref);
	*out = item->request;
	out->plan_name = rdv_slice_text(l->plans[item->plan].name);
	if (item->entry)
		out->charged = rdv_lane_entry(l, item->entry)->charged;
	return true;
}

static void write_request(struct rdv_lane *l, uint64_t number, struct rdv_effects *out)
{
	size_t at = rdv_lane_begin_record(out);
	struct rdv_request request;

	if (!rdv_lane_request(l, number, &request))
		return;
	rdv_request_encode(&request, &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_REQUEST, number, at, out);
	rdv_lane_item(l, rdv_lane_find_request(l, number))->segment = l->head_segment;
}

static uint32_t add_item(struct rdv_lane *l, uint64_t number, const struct rdv_request *request)
{
	uint32_t plan = use_plan(l, request->plan, request->plan_name), ref;
	struct rdv_inbox_item *item;

	if (plan == UINT32_MAX)
		return 0;
	ref = rdv_chunks_take(&l->requests);
	if (!ref)
		goto no_item;
	item = rdv_lane_item(l, ref);
	item->number = number;
	item->request = *request;
	item->request.plan_name = rdv_slice(NULL, 0);
	item->plan = plan;
	if (rdv_map_insert(&l->by_number, ref) == REDRIVE_OK)
		return ref;
	rdv_chunks_free(&l->requests, ref);
no_item:
	leave_plan(l, plan);
	return 0;
}

static void drop_item(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_inbox_item *item = rdv_lane_item(l, ref);

	leave_plan(l, item->plan);
	rdv_map_remove(&l->by_number, ref);
	item->number = 0;
	rdv_chunks_free(&l->requests, ref);
}

static uint32_t add_replay_entry(struct rdv_lane *l, uint32_t item, const struct rdv_request *request)
{
	uint32_t ref = rdv_lane_add_entry(l, request->seq);
	struct rdv_entry *e;

	if (!ref)
		return 0;
	e = rdv_lane_entry(l, ref);
	e->replay = 1;
	e->state = RDV_STATE_HELD;
	e->body_offset = item;
	if (rdv_lane_set_key(l, e, request->key_hash) != REDRIVE_OK) {
		rdv_lane_drop_entry(l, ref);
		return 0;
	}
	rdv_lane_item(l, item)->entry = ref;
	return ref;
}

/* A request whose outcome the desk has not confirmed yet: it will be told again, so the letter must not go out again.
 */
static bool has_unconfirmed(const struct rdv_lane *l, const struct rdv_request *request)
{
	for (uint32_t i = 1; i <= l->requests.used; i++) {
		const struct rdv_inbox_item *item = rdv_lane_item(l, i);
		if (item->number && item->request.seq == request->seq &&
		    item->request.generation == request->generation)
			return true;
	}
	return false;
}

enum redrive_status rdv_lane_replay(struct rdv_lane *l, struct rdv_now now, const struct rdv_request *request,
				    uint64_t *number, struct rdv_effects *out)
{
	uint32_t item, ref;

	if (rdv_lane_find(l, request->seq) || has_unconfirmed(l, request))
		return REDRIVE_CONFLICT;
	item = add_item(l, l->next_request, request);
	if (!item)
		return REDRIVE_NO_MEMORY;
	rdv_lane_item(l, item)->request.kind = RDV_REQUEST_REPLAY;
	rdv_lane_item(l, item)->request.state = RDV_REQUEST_OPEN;
	ref = add_replay_entry(l, item, request);
	if (!ref) {
		drop_item(l, item);
		return REDRIVE_NO_MEMORY;
	}
	*number = l->next_request++;
	write_request(l, *number, out);
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
	write_request(l, item->number, out);
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
	write_request(l, request, out);
	rdv_lane_drop_entry(l, rdv_lane_item(l, ref)->entry);
	drop_item(l, ref);
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
	uint32_t i = find_plan(l, plan);

	if (i == UINT32_MAX || l->plans[i].paused == paused)
		return;
	l->plans[i].paused = paused;
	each_of_plan(l, now, plan, paused ? step_aside : go_on, out);
}

void rdv_lane_replay_cancel(struct rdv_lane *l, struct rdv_now now, uint64_t plan, struct rdv_effects *out)
{
	uint32_t i = find_plan(l, plan);

	if (i == UINT32_MAX)
		return;
	l->plans[i].cancelled = true; /* those at the handler are taken back if their verdict is not final */
	each_of_plan(l, now, plan, take_back, out);
}

bool rdv_lane_plan_cancelled(const struct rdv_lane *l, const struct rdv_entry *e)
{
	return l->plans[rdv_lane_item(l, e->body_offset)->plan].cancelled;
}

/* ---- recovery and trimming ---- */

static enum redrive_status fold_open(struct rdv_lane *l, uint64_t number, const struct rdv_request *request,
				     struct rdv_place place)
{
	uint32_t item = rdv_lane_find_request(l, number), ref = rdv_lane_find(l, request->seq);

	if (!item)
		item = add_item(l, number, request);
	if (!item)
		return REDRIVE_NO_MEMORY;
	rdv_lane_item(l, item)->segment = place.segment;
	if (rdv_lane_item(l, item)->entry)
		return REDRIVE_OK;
	if (!ref)
		return add_replay_entry(l, item, request) ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	/* Its STATE came first: the request was written again by trimming. */
	if (rdv_lane_entry(l, ref)->body_segment)
		rdv_ages_remove(&l->ages, request->seq);
	rdv_lane_entry(l, ref)->replay = 1;
	rdv_lane_entry(l, ref)->body_offset = item;
	rdv_lane_entry(l, ref)->body_segment = rdv_lane_entry(l, ref)->body_length = 0;
	rdv_lane_item(l, item)->entry = ref;
	return rdv_lane_set_key(l, rdv_lane_entry(l, ref), request->key_hash);
}

/* What is left of a finished replay: an entry that keeps its position until the desk has the outcome. */
static enum redrive_status fold_finished(struct rdv_lane *l, uint64_t number, const struct rdv_request *request,
					 struct rdv_place place)
{
	enum redrive_status status = fold_open(l, number, request, place);
	uint32_t item;
	struct rdv_entry *e;

	if (status != REDRIVE_OK)
		return status;
	item = rdv_lane_find_request(l, number);
	rdv_lane_item(l, item)->request = *request;
	rdv_lane_item(l, item)->request.plan_name = rdv_slice(NULL, 0);
	e = rdv_lane_entry(l, rdv_lane_item(l, item)->entry);
	rdv_lane_forget_key(l, e);
	e->state = RDV_STATE_DONE;
	e->state_segment = e->state_offset = e->state_length = 0;
	return REDRIVE_OK;
}

/* Trimming may have taken the request away, but not yet a STATE of it: that is over, too. */
static void fold_gone(struct rdv_lane *l, uint64_t number, uint64_t seq)
{
	uint32_t item = rdv_lane_find_request(l, number);
	uint32_t ref = item ? rdv_lane_item(l, item)->entry : rdv_lane_find(l, seq);

	if (ref && (item || (!rdv_lane_entry(l, ref)->replay && !rdv_lane_entry(l, ref)->body_segment))) {
		rdv_lane_forget_key(l, rdv_lane_entry(l, ref));
		rdv_lane_drop_entry(l, ref);
	}
	if (item)
		drop_item(l, item);
}

enum redrive_status rdv_lane_fold_request(struct rdv_lane *l, uint64_t number, struct rdv_slice payload,
					  struct rdv_place place)
{
	struct rdv_request request;
	enum redrive_status status = rdv_request_decode(payload, &request);

	if (status != REDRIVE_OK)
		return status;
	if (number >= l->next_request)
		l->next_request = number + 1;
	if (request.kind != RDV_REQUEST_REPLAY)
		return REDRIVE_OK;
	switch (request.state) {
	case RDV_REQUEST_OPEN:
		return fold_open(l, number, &request, place);
	case RDV_REQUEST_FINISHED:
		return fold_finished(l, number, &request, place);
	case RDV_REQUEST_GONE:
		fold_gone(l, number, request.seq);
		break;
	}
	return REDRIVE_OK;
}

void rdv_lane_open_requests(struct rdv_lane *l, struct rdv_effects *out)
{
	for (uint32_t i = 1; i <= l->requests.used; i++)
		if (rdv_lane_item(l, i)->number)
			rdv_lane_say_outcome(l, rdv_lane_item(l, i)->number, out);
}

void rdv_lane_rewrite_requests(struct rdv_lane *l, uint32_t segment, struct rdv_effects *out)
{
	for (uint32_t i = 1; i <= l->requests.used; i++)
		if (rdv_lane_item(l, i)->number && rdv_lane_item(l, i)->segment <= segment)
			write_request(l, rdv_lane_item(l, i)->number, out);
}

/* ---- operators ---- */

enum redrive_status rdv_lane_revoke(struct rdv_lane *l, struct rdv_now now, uint64_t seq, bool *pending,
				    struct rdv_effects *out)
{
	uint32_t ref = rdv_lane_find(l, seq), key;
	struct rdv_entry *e;

	*pending = false;
	if (!ref)
		return seq < l->next && seq >= l->start ? REDRIVE_CONFLICT : REDRIVE_NOT_FOUND;
	e = rdv_lane_entry(l, ref);
	if (e->replay || e->state == RDV_STATE_DYING)
		return REDRIVE_CONFLICT;
	if (e->state == RDV_STATE_IN_FLIGHT) {
		e->revoke = 1;
		*pending = true;
		return REDRIVE_CONFLICT;
	}
	key = e->joined ? rdv_lane_key_of(l, e) : 0;
	rdv_lane_die(l, ref, now, RDV_REASON_REVOKED, NULL, out);
	if (key)
		rdv_lane_promote(l, key, now, out);
	return REDRIVE_OK;
}

enum redrive_status rdv_lane_release(struct rdv_lane *l, struct rdv_now now, uint64_t key_hash, struct rdv_effects *out)
{
	uint32_t key = rdv_order_find(&l->order, key_hash);

	if (!key || !rdv_order_key(&l->order, key)->closed || l->policy.order != RDV_ORDER_KEY)
		return REDRIVE_NOT_FOUND;
	rdv_lane_set_gate(l, key, false, 0, out);
	rdv_lane_promote(l, key, now, out);
	rdv_order_drop_idle(&l->order, key);
	return REDRIVE_OK;
}
