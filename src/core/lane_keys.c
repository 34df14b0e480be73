/* lane_keys.c - order by key: who joins, who may go next, and gates. docs/internals names the rules G1 to G6.
 *
 * With order: key a message joins its key's members when its own time allows (a delayed one when it is due). The first
 * member goes when nothing of the key is at the handler, no end is waiting to become durable and the gate is open; a
 * first member that waits for its retry keeps all others waiting. A message that joins in front of a ready one takes
 * its place. With order: none keys exist only for replays: while a replay can go or is at the handler, live messages of
 * its key that come up are held as members, and the replay waits until the key's live calls have ended. Internal to the
 * lane; single thread. */
#include "lane_parts.h"
#include <assert.h>

static bool by_key(const struct rdv_lane *l)
{
	return l->policy.order == RDV_ORDER_KEY;
}

uint32_t rdv_lane_fold_key(uint64_t key_hash)
{
	uint32_t fold = (uint32_t)(key_hash ^ key_hash >> 32);

	return key_hash && !fold ? 1 : fold;
}

uint32_t rdv_lane_key_of(const struct rdv_lane *l, const struct rdv_entry *e)
{
	if (by_key(l) || !e->key)
		return e->key;
	return l->order.map.count ? rdv_order_find(&l->order, e->key) : 0;
}

enum redrive_status rdv_lane_set_key(struct rdv_lane *l, struct rdv_entry *e, uint64_t key_hash)
{
	if (!key_hash || (by_key(l) && e->key))
		return REDRIVE_OK;
	if (!by_key(l)) {
		e->key = rdv_lane_fold_key(key_hash);
		return REDRIVE_OK;
	}
	e->key = rdv_order_get(&l->order, key_hash);
	if (!e->key)
		return REDRIVE_NO_MEMORY;
	rdv_order_key(&l->order, e->key)->refs++;
	return REDRIVE_OK;
}

void rdv_lane_forget_key(struct rdv_lane *l, struct rdv_entry *e)
{
	if (!by_key(l) || !e->key)
		return;
	rdv_order_key(&l->order, e->key)->refs--;
	rdv_order_drop_idle(&l->order, e->key);
	e->key = 0;
}

bool rdv_lane_is_head(const struct rdv_lane *l, uint32_t ref)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);
	const struct rdv_key *k;

	if (!by_key(l) || !e->key || !e->joined)
		return false;
	k = rdv_order_key(&l->order, e->key);
	return k->turn ? k->turn == ref : k->first == ref;
}

/* The key that an entry joins. With order: none it is made for a replay, and learns which calls of it are open. */
static struct rdv_key *joined_key(struct rdv_lane *l, const struct rdv_entry *e)
{
	uint32_t key = rdv_lane_key_of(l, e);
	struct rdv_key *k;

	if (key)
		return rdv_order_key(&l->order, key);
	key = rdv_order_get(&l->order, e->key);
	if (!key)
		return NULL;
	k = rdv_order_key(&l->order, key);
	for (uint32_t i = 0; i < l->call_count; i++) {
		const struct rdv_entry *call = rdv_lane_entry(l, l->calls[i]);
		k->blocked += !call->replay && call->key == e->key;
	}
	return k;
}

void rdv_lane_join(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_key *k = joined_key(l, e);

	if (!k) {
		l->short_of_memory = true;
		return;
	}
	assert(!e->joined);
	e->joined = 1;
	k->replays += e->replay;
	rdv_order_insert(&l->order, k, ref);
}

void rdv_lane_leave(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_key *k;

	if (!e->joined)
		return;
	k = rdv_order_key(&l->order, rdv_lane_key_of(l, e));
	if (k->turn == ref)
		k->turn = 0;
	rdv_order_remove(&l->order, k, ref);
	k->replays -= e->replay;
	e->joined = 0;
}

/* The member that is next, or 0: the first, or with a closed gate the first that is a replay. */
static uint32_t candidate(const struct rdv_lane *l, const struct rdv_key *k)
{
	uint32_t ref = k->first;

	if (k->closed || (l->sibling && rdv_lane_gate_closed(l, k)))
		while (ref && !rdv_lane_entry(l, ref)->replay)
			ref = k->replays ? rdv_lane_entry(l, ref)->member : 0;
	return ref;
}

/* The one whose turn it was steps back when a smaller position joins (G2) or the gate closes: *back is its position.
 * false: it is at the handler. */
static bool turn_is_free(struct rdv_lane *l, struct rdv_key *k, uint32_t next, uint64_t *back)
{
	if (!k->turn || k->turn == next)
		return !k->turn;
	if (rdv_lane_entry(l, k->turn)->state == RDV_STATE_IN_FLIGHT)
		return false;
	*back = rdv_lane_entry(l, k->turn)->seq;
	rdv_lane_unready(l, k->turn, RDV_STATE_HELD);
	k->turn = 0;
	return true;
}

/* The one that may go now; 0: none, and whose turn it was steps back. */
static uint32_t next_to_go(const struct rdv_lane *l, const struct rdv_key *k)
{
	uint32_t ref = k->blocked ? 0 : candidate(l, k);

	return ref && l->sibling && !rdv_lane_siblings_let(l, k, ref) ? 0 : ref;
}

static void promote_ordered(struct rdv_lane *l, uint32_t key, struct rdv_now now, uint64_t *back,
			    struct rdv_effects *out)
{
	for (;;) {
		struct rdv_key *k = rdv_order_key(&l->order, key);
		uint32_t ref = next_to_go(l, k);
		struct rdv_entry *e;

		if (!turn_is_free(l, k, ref, back) || !ref)
			return;
		e = rdv_lane_entry(l, ref);
		if (e->state != RDV_STATE_HELD || e->doubles || e->todo == RDV_TODO_CRASH)
			return;
		if (!rdv_lane_over_limit(l, e)) {
			rdv_lane_enqueue(l, ref);
			k->turn = ref;
			return;
		}
		rdv_lane_die(l, ref, now, RDV_REASON_LIMIT_LOWERED, NULL, out);
	}
}

/* order: none: the first replay that could go now; 0 = none. */
static uint32_t first_replay(const struct rdv_lane *l, const struct rdv_key *k)
{
	for (uint32_t ref = k->first; ref; ref = rdv_lane_entry(l, ref)->member) {
		const struct rdv_entry *e = rdv_lane_entry(l, ref);
		if (e->replay && e->todo != RDV_TODO_CRASH && !e->doubles &&
		    (e->state == RDV_STATE_HELD || e->state == RDV_STATE_READY))
			return ref;
	}
	return 0;
}

uint32_t rdv_lane_next_of_key(const struct rdv_lane *l, const struct rdv_key *k)
{
	return by_key(l) ? candidate(l, k) : first_replay(l, k);
}

static void promote_unordered(struct rdv_lane *l, uint32_t key, uint64_t *back)
{
	struct rdv_key *k = rdv_order_key(&l->order, key);
	uint32_t replay = first_replay(l, k);

	if (!turn_is_free(l, k, replay, back))
		return;
	if (replay) {
		if (k->blocked)
			return; /* live calls of the key end first */
		rdv_lane_enqueue(l, replay);
		k->turn = replay;
		return;
	}
	for (uint32_t ref = k->first, next; ref; ref = next) {
		struct rdv_entry *e = rdv_lane_entry(l, ref);
		next = e->member;
		if (e->replay || e->state != RDV_STATE_HELD || e->doubles)
			continue;
		rdv_lane_leave(l, ref);
		rdv_lane_enqueue(l, ref);
	}
	rdv_order_drop_idle(&l->order, key);
}

void rdv_lane_promote_here(struct rdv_lane *l, uint32_t key, struct rdv_now now, struct rdv_effects *out)
{
	uint64_t back = RDV_NOBODY;

	if (by_key(l))
		promote_ordered(l, key, now, &back, out);
	else
		promote_unordered(l, key, &back);
	if (back != RDV_NOBODY)
		rdv_lane_dedupe_held(l, back, now, out);
}

void rdv_lane_promote(struct rdv_lane *l, uint32_t key, struct rdv_now now, struct rdv_effects *out)
{
	const struct rdv_key *k = rdv_order_key(&l->order, key);

	if (!k->used)
		return; /* nothing is left of it */
	if (l->sibling) {
		rdv_lane_promote_siblings(l, k->hash, now, out);
		if (!k->used)
			return;
	}
	rdv_lane_promote_here(l, key, now, out);
}

void rdv_lane_arrive(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (e->replay && rdv_lane_plan_paused(l, e)) {
		rdv_lane_set_state(l, e, RDV_STATE_HELD);
		return;
	}
	if (e->key && (by_key(l) || e->replay)) {
		rdv_lane_set_state(l, e, RDV_STATE_HELD);
		if (!e->joined)
			rdv_lane_join(l, ref);
		rdv_lane_promote(l, rdv_lane_key_of(l, e), now, out);
		if (e->state == RDV_STATE_HELD)
			rdv_lane_dedupe_held(l, e->seq, now, out);
		return;
	}
	if (rdv_lane_over_limit(l, e)) {
		rdv_lane_die(l, ref, now, RDV_REASON_LIMIT_LOWERED, NULL, out);
		return;
	}
	rdv_lane_enqueue(l, ref);
}

bool rdv_lane_passes_replays(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	uint32_t key = rdv_lane_key_of(l, e);
	struct rdv_key *k;

	if (!key)
		return true;
	k = rdv_order_key(&l->order, key);
	if (!k->turn && !first_replay(l, k))
		return true;
	rdv_lane_set_state(l, e, RDV_STATE_HELD);
	rdv_lane_join(l, ref);
	return false;
}

void rdv_lane_call_began(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	uint32_t key = rdv_lane_key_of(l, e);
	struct rdv_key *k;

	if (!key)
		return;
	k = rdv_order_key(&l->order, key);
	if (!by_key(l) && !e->replay) {
		k->blocked++;
		return;
	}
	assert(e->joined && k->turn == ref);
	rdv_order_remove(&l->order, k, ref);
}

void rdv_lane_call_ended(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	uint32_t key = rdv_lane_key_of(l, e);
	struct rdv_key *k;

	if (!key)
		return;
	k = rdv_order_key(&l->order, key);
	if (!by_key(l) && !e->replay) {
		assert(k->blocked);
		k->blocked--;
		return;
	}
	assert(k->turn == ref);
	k->turn = 0;
	k->replays -= e->replay;
	e->joined = 0;
}

void rdv_lane_unblock_key(struct rdv_lane *l, uint32_t key, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_key *k = rdv_order_key(&l->order, key);

	assert(k->blocked);
	k->blocked--;
	rdv_lane_promote(l, key, now, out);
	rdv_order_drop_idle(&l->order, key);
}

void rdv_lane_set_gate(struct rdv_lane *l, uint32_t key, bool closed, uint64_t letter_seq, struct rdv_effects *out)
{
	struct rdv_key *k = rdv_order_key(&l->order, key);
	const struct rdv_gate gate = {.letter_seq = letter_seq, .closed = closed};
	size_t at = rdv_lane_begin_record(out);

	if (k->closed && !closed)
		l->order.closed--;
	if (!k->closed && closed)
		l->order.closed++;
	k->closed = closed;
	k->letter_seq = letter_seq;
	k->gate_segment = closed ? l->head_segment : 0;
	rdv_gate_encode(&gate, &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_GATE, k->hash, at, out);
}

void rdv_lane_hold_for_history(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	rdv_lane_set_state(l, e, RDV_STATE_HELD);
	if (e->key && !e->joined && (by_key(l) || e->replay))
		rdv_lane_join(l, ref);
}

/* After a call that did not end the message: it waits in its key's order, or is ready again. */
void rdv_lane_resume(struct rdv_lane *l, uint32_t ref, struct rdv_now now, int64_t delay, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	bool aside = e->replay && rdv_lane_plan_paused(l, e);
	uint32_t key = by_key(l) || e->replay ? rdv_lane_key_of(l, e) : 0;

	if (e->state == RDV_STATE_READY && !aside) {
		rdv_lane_arrive(l, ref, now, out);
		return;
	}
	if (e->state == RDV_STATE_READY) {
		rdv_lane_set_state(l, e, RDV_STATE_HELD);
	} else {
		if (e->key && !aside && (by_key(l) || e->replay)) {
			rdv_lane_join(l, ref);
			key = rdv_lane_key_of(l, e);
		}
		rdv_lane_wait(l, ref, now, delay, out);
	}
	if (key)
		rdv_lane_promote(l, key, now, out);
}
