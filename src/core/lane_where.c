/* lane_where.c - questions: where is a message, how is the lane, and do its invariants hold. Changes nothing. Single
 * thread. */
#include "lane_parts.h"
#include "target_state.h"

/* The first unfinished message of the key, in this lane or a sibling; for that one itself, what is at the handler, or
 * the letter that closed the gate. */
static uint64_t behind_what(const struct rdv_lane *l, uint64_t hash, uint64_t seq)
{
	uint64_t first = RDV_NOBODY, turn = RDV_NOBODY;
	const struct rdv_lane *s = l;

	do {
		uint32_t key = rdv_order_find(&s->order, hash);
		const struct rdv_key *k = key ? rdv_order_key(&s->order, key) : NULL;

		if (k && k->closed)
			return k->letter_seq;
		if (k && k->first && rdv_lane_entry(s, k->first)->seq < first)
			first = rdv_lane_entry(s, k->first)->seq;
		if (k && k->turn && rdv_lane_entry(s, k->turn)->seq < turn)
			turn = rdv_lane_entry(s, k->turn)->seq;
		s = s->sibling;
	} while (s && s != l);
	return turn < first || first == seq ? turn : first;
}

static enum rdv_held_by held_by(const struct rdv_lane *l, const struct rdv_entry *e, uint32_t key)
{
	if (e->doubles)
		return RDV_HELD_BY_DOUBLE;
	if (e->replay && rdv_lane_plan_paused(l, e))
		return RDV_HELD_BY_PLAN;
	return key && rdv_lane_gate_closed(l, rdv_order_key(&l->order, key)) ? RDV_HELD_BY_GATE : RDV_HELD_BY_KEY;
}

static enum rdv_state shown_as(const struct rdv_entry *e)
{
	if (e->replay && e->state != RDV_STATE_DONE && e->state != RDV_STATE_DYING) /* not decided yet */
		return RDV_STATE_REPLAYING;
	if (e->state == RDV_STATE_DYING && e->member == RDV_REASON_REVOKED)
		return RDV_STATE_REVOKED;
	return (enum rdv_state)e->state;
}

static enum rdv_state how_it_ended(const struct rdv_lane *l, uint64_t seq)
{
	for (size_t i = 0; i < l->done.count; i++) /* not written yet */
		if (seq >= l->done.items[i].first && seq - l->done.items[i].first < l->done.items[i].count)
			return l->done.items[i].outcome;
	return rdv_finished_find(&l->finished, seq);
}

enum redrive_status rdv_lane_where(const struct rdv_lane *l, struct rdv_now now, uint64_t seq, struct rdv_where *out)
{
	uint32_t ref = rdv_lane_find(l, seq), key;
	const struct rdv_entry *e;

	*out = (struct rdv_where){.state = RDV_STATE_DONE, .behind = RDV_NOBODY};
	if ((seq >= l->next || seq < l->start) && !(ref && l->from_broker))
		return REDRIVE_NOT_FOUND;
	if (!ref) {
		out->state = how_it_ended(l, seq);
		return REDRIVE_OK;
	}
	e = rdv_lane_entry(l, ref);
	out->state = shown_as(e);
	out->attempt = e->charged + 1;
	out->delivered = e->delivered;
	out->body = (struct rdv_place){e->body_segment, e->replay ? 0 : e->body_offset, e->body_length};
	out->state_place = (struct rdv_place){e->state_segment, e->state_offset, e->state_length};
	if (e->state == RDV_STATE_WAITING)
		out->due.ms = rdv_ms_add(now.wall.ms, rdv_lane_due(e) - now.mono.ms);
	if (e->state == RDV_STATE_HELD) {
		key = rdv_lane_key_of(l, e);
		out->behind = key ? behind_what(l, rdv_order_key(&l->order, key)->hash, seq) : RDV_NOBODY;
		out->held_by = held_by(l, e, key);
	}
	return REDRIVE_OK;
}

bool rdv_lane_is_settling(const struct rdv_lane *l, uint64_t seq)
{
	uint32_t ref = rdv_lane_find(l, seq);

	return ref && rdv_lane_entry(l, ref)->state == RDV_STATE_DYING && rdv_lane_entry(l, ref)->todo != RDV_TODO_NONE;
}

struct rdv_place rdv_lane_state_place(const struct rdv_lane *l, uint32_t ref)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);

	return (struct rdv_place){e->state_segment, e->state_offset, e->state_length};
}

struct rdv_place rdv_lane_body_place(const struct rdv_lane *l, uint32_t ref)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);

	return e->replay ? (struct rdv_place){0} : (struct rdv_place){e->body_segment, e->body_offset, e->body_length};
}

size_t rdv_lane_find_key(const struct rdv_lane *l, uint64_t key_hash, uint32_t *at, uint64_t seqs[], uint32_t budget)
{
	bool ordered = l->policy.order == RDV_ORDER_KEY;
	uint32_t wanted = ordered ? rdv_order_find(&l->order, key_hash) : rdv_lane_fold_key(key_hash);
	uint32_t end = l->entries.used;
	size_t count = 0;

	if (!wanted || (ordered && !rdv_order_key(&l->order, wanted)->refs)) {
		*at = 0;
		return 0;
	}
	if (end - *at > budget)
		end = *at + budget;
	for (uint32_t ref = *at + 1; ref <= end; ref++) {
		const struct rdv_entry *e = rdv_lane_entry(l, ref);

		if (!e->ghost && e->key == wanted)
			seqs[count++] = e->seq;
	}
	*at = end < l->entries.used ? end : 0;
	return count;
}

uint32_t rdv_lane_held_of_key(const struct rdv_lane *l, uint64_t key_hash)
{
	const struct rdv_lane *s = l;
	uint32_t held = 0;

	if (l->policy.order != RDV_ORDER_KEY || !key_hash)
		return 0;
	do {
		uint32_t key = rdv_order_find(&s->order, key_hash);
		held += key ? rdv_order_key(&s->order, key)->refs : 0;
		s = s->sibling;
	} while (s && s != l);
	return held;
}

const struct rdv_account *rdv_lane_account(const struct rdv_lane *l)
{
	return &l->account;
}

uint64_t rdv_lane_held_back(const struct rdv_lane *l)
{
	const struct rdv_budget *b = l->target ? &l->target->budget : NULL;

	return b && b->on && b->balance < RDV_BUDGET_TOKEN ? l->ready[RDV_CLASS_RETRY_DUE].live : 0;
}

int64_t rdv_lane_overdue_ms(const struct rdv_lane *l, struct rdv_now now)
{
	uint32_t ref = l->ready[RDV_CLASS_RETRY_DUE].live ? l->ready[RDV_CLASS_RETRY_DUE].head : 0;
	int64_t due = ref ? rdv_lane_entry(l, ref)->due : now.mono.ms;

	return now.mono.ms > due ? now.mono.ms - due : 0;
}

int64_t rdv_lane_oldest_ms(const struct rdv_lane *l, struct rdv_now now)
{
	int64_t oldest = rdv_ages_oldest(&l->ages);

	return oldest < now.wall.ms ? now.wall.ms - oldest : 0;
}

size_t rdv_lane_bytes(const struct rdv_lane *l)
{
	size_t map = rdv_positions_bytes(&l->by_seq) + (size_t)l->order.map.count * 3;

	return sizeof *l + rdv_chunks_bytes(&l->entries) + rdv_chunks_bytes(&l->order.keys) +
	       (l->dedupe == &l->own_dedupe ? rdv_chunks_bytes(&l->dedupe->items) : 0) +
	       rdv_chunks_bytes(&l->requests) + map + l->call_capacity * sizeof *l->calls +
	       l->turns.capacity * l->turns.item_size + l->follow_ups.capacity * l->follow_ups.item_size +
	       l->charges.capacity * l->charges.item_size;
}

uint32_t rdv_lane_stream(const struct rdv_lane *l)
{
	return l->stream;
}

enum rdv_order rdv_lane_order(const struct rdv_lane *l)
{
	return l->policy.order;
}

struct rdv_target *rdv_lane_target(const struct rdv_lane *l)
{
	return l->target;
}

uint32_t rdv_lane_target_route(const struct rdv_lane *l)
{
	return l->target_route;
}

/* ---- invariants ---- */

#define HOLDS(condition, words)                                                                                        \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			*what = words;                                                                                 \
			return false;                                                                                  \
		}                                                                                                      \
	} while (0)

struct tally {
	uint64_t by_state[RDV_STATE_COUNT];
	uint64_t scheduled, ready[RDV_CLASS_COUNT], live, bodies;
};

static bool check_entry(const struct rdv_lane *l, uint32_t ref, struct tally *t, const char **what)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);
	bool ordered = l->policy.order == RDV_ORDER_KEY && e->key;

	t->scheduled += e->scheduled;
	if (e->ghost) {
		return true;
	}
	t->live++;
	t->bodies += !e->replay;
	HOLDS(rdv_lane_find(l, e->seq) == ref, "an entry is found by its position");
	HOLDS(e->replay || l->from_broker || (e->seq >= l->start && e->seq < l->next), "live positions were given out");
	if (!e->replay)
		t->by_state[e->state]++;
	if (e->state == RDV_STATE_READY && e->queued)
		t->ready[e->class]++;
	HOLDS(e->state != RDV_STATE_READY || e->queued, "what is ready lies in a queue");
	HOLDS(e->state != RDV_STATE_WAITING || e->scheduled, "what waits lies in the wheel");
	HOLDS(e->state != RDV_STATE_IN_FLIGHT || (e->next < l->call_count && l->calls[e->next] == ref),
	      "a call is known");
	HOLDS(!e->replay || rdv_lane_request_of(l, ref)->entry == ref, "a replay has its request");
	if (ordered && e->state == RDV_STATE_READY)
		HOLDS(e->joined && rdv_order_key(&l->order, e->key)->turn == ref,
		      "G1: nothing of a key is ready beside a call");
	if (ordered && e->state == RDV_STATE_READY)
		HOLDS(!rdv_order_key(&l->order, e->key)->blocked,
		      "G4: nothing of a key goes before its head's end is durable");
	if (ordered && e->state == RDV_STATE_READY && !e->replay)
		HOLDS(rdv_order_key(&l->order, e->key)->first == ref && !rdv_order_key(&l->order, e->key)->closed,
		      "G2, G3: the smallest position goes, through an open gate");
	if (ordered && e->state == RDV_STATE_IN_FLIGHT)
		HOLDS(rdv_order_key(&l->order, e->key)->turn == ref, "G1: one call a key");
	HOLDS(e->state != RDV_STATE_HELD || e->joined || e->doubles || e->todo || e->replay,
	      "what is held is held by something");
	return true;
}

static bool check_key_rules(const struct rdv_lane *l, const char **what)
{
	for (uint32_t key = 0; (key = rdv_order_each(&l->order, key)) != 0;) {
		const struct rdv_key *k = rdv_order_key(&l->order, key);
		uint32_t next = k->turn || k->blocked ? 0 : rdv_lane_next_of_key(l, k);
		const struct rdv_entry *e = next ? rdv_lane_entry(l, next) : NULL;

		if (e && e->state == RDV_STATE_HELD)
			HOLDS(e->doubles || e->todo == RDV_TODO_CRASH ||
				      (l->sibling && !rdv_lane_siblings_let(l, k, next)),
			      "the next of a key is not held for nothing");
		HOLDS(rdv_lane_check_siblings(l, k), "G1: a key's turn is in one lane of a route");
		if (l->sibling && k->turn && rdv_lane_entry(l, k->turn)->state == RDV_STATE_READY)
			HOLDS(rdv_lane_siblings_let(l, k, k->turn), "G2: the smallest position of all lanes goes");
		HOLDS(k->refs || k->first || k->turn || k->blocked || k->closed || k->replays,
		      "an idle key is given back");
	}
	return true;
}

bool rdv_lane_check(const struct rdv_lane *l, const char **what)
{
	struct tally t = {0};
	const struct rdv_account *a = &l->account;
	static const char *unused;

	if (!what)
		what = &unused;
	if (l->folding)
		return true;
	for (uint32_t ref = 1; ref <= l->entries.used; ref++)
		if (!check_entry(l, ref, &t, what))
			return false;
	HOLDS(rdv_account_check(a), "the account adds up");
	HOLDS(t.by_state[RDV_STATE_READY] == a->ready && t.by_state[RDV_STATE_WAITING] == a->waiting &&
		      t.by_state[RDV_STATE_HELD] == a->held && t.by_state[RDV_STATE_IN_FLIGHT] == a->in_flight,
	      "the account is what the entries say");
	HOLDS(l->from_broker || a->received == l->next - l->start, "every message given out is in the account once");
	HOLDS(rdv_ages_live(&l->ages) == t.bodies, "ages count the live messages");
	HOLDS(t.live == l->by_seq.count, "the map holds the live entries");
	HOLDS(t.scheduled == l->wheel.count, "the wheel holds what is scheduled");
	for (unsigned c = 0; c < RDV_CLASS_COUNT; c++)
		HOLDS(t.ready[c] == l->ready[c].live, "ready counts are true");
	HOLDS(rdv_schedule_check(&l->wheel), "the wheel is in order");
	HOLDS(rdv_order_check(&l->order), "the keys are in order");
	HOLDS(rdv_dedupe_check(l->dedupe), "the dedupe window is in order");
	return check_key_rules(l, what);
}
