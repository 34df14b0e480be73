/* lane_dedupe.c - the idempotency window applied: asked when the body is there, before the call.
 *
 * The first message with a key owns it until it is acked (then the key is DONE for the ttl) or has died (then it is
 * free); a retry or replay of the same message keeps it. Others wait as HELD until the owner ends, and are then asked
 * again: acked without a call if it was acked. PROCESSING is recorded when its owner has to wait, DONE together with
 * the owner's DONE. A lane that changes its window (its route was removed, or it is adopted) takes its keys along; what
 * is done in either of the two is done, else who is at work in the new one keeps the key. Internal to the lane; single
 * thread. */
#include "lane_parts.h"
#include <assert.h>

#define ASK_AGAIN_MS 100 /* who waits for an owner of another lane; doubled by each time it was asked, to 1.6 s */
#define ASK_AGAIN_DOUBLES 4

static struct rdv_dedupe_owner owner_of(const struct rdv_lane *l, uint64_t seq)
{
	return (struct rdv_dedupe_owner){seq, l->stream};
}

static bool is_mine(const struct rdv_lane *l, const struct rdv_dedupe_item *i)
{
	return i->owner_stream == l->stream;
}

static void write_item(struct rdv_lane *l, uint32_t ref, enum rdv_dedupe_state state, struct rdv_slice answer,
		       struct rdv_effects *out)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(l->dedupe, ref);
	const struct rdv_dedupe_record record = {
		.key = i->key, .state = state, .owner_seq = i->owner_seq, .until = i->until, .answer = answer};
	size_t at = rdv_lane_begin_record(out);

	rdv_dedupe_encode(&record, &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_DEDUPE, i->key.lo, at, out);
	i->segment = l->head_segment ? l->head_segment : 1;
}

static void hold_double(struct rdv_lane *l, uint32_t item, uint32_t ref)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(l->dedupe, item);
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	rdv_lane_set_state(l, e, RDV_STATE_HELD);
	e->doubles = 1;
	e->queued = 1;
	e->next = 0;
	if (i->last_waiter)
		rdv_lane_entry(l, i->last_waiter)->next = ref;
	else
		i->waiters = ref;
	i->last_waiter = ref;
	if (e->key && (l->policy.order == RDV_ORDER_KEY || e->replay) && !(e->replay && rdv_lane_plan_paused(l, e)))
		rdv_lane_join(l, ref); /* it keeps its place in its own key's order */
}

/* The owner is at the handler, or goes there by itself. One that is held may be held behind the very message that asks;
 * one that is found dying when the lane opens is nobody's owner any more. */
static bool owner_goes_on(const struct rdv_lane *l, const struct rdv_dedupe_item *i)
{
	uint32_t owner = is_mine(l, i) ? rdv_lane_find(l, i->owner_seq) : 0;
	const struct rdv_entry *e = owner ? rdv_lane_entry(l, owner) : NULL;

	if (!is_mine(l, i))
		return !i->held || i->waiters; /* those who wait for it there go first */
	return e && e->state != RDV_STATE_HELD && e->state != RDV_STATE_DYING;
}

/* The key goes over to another message, with those who wait for it. 0 without memory. */
static uint32_t take_over(struct rdv_lane *l, uint32_t item, uint64_t seq, struct rdv_effects *out)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(l->dedupe, item);
	const struct rdv_dedupe_item old = *i;

	i->waiters = i->last_waiter = 0;
	rdv_dedupe_free(l->dedupe, item);
	item = rdv_dedupe_claim(l->dedupe, old.key, owner_of(l, seq));
	if (!item) {
		out->failed = true;
		return 0;
	}
	i = rdv_dedupe_at(l->dedupe, item);
	i->waiters = old.waiters;
	i->last_waiter = old.last_waiter;
	i->until = old.until;
	return item;
}

/* The message owns its key now, and may be called. false: *item, which it is not. */
static bool owns_key(struct rdv_lane *l, struct rdv_now now, uint64_t seq, struct rdv_hash128 key, uint32_t *item,
		     struct rdv_effects *out)
{
	struct rdv_dedupe_owner owner = owner_of(l, seq);
	struct rdv_dedupe_item *i;

	*item = rdv_dedupe_find(l->dedupe, key);
	i = *item ? rdv_dedupe_at(l->dedupe, *item) : NULL;
	if (i && i->state == RDV_DEDUPE_DONE && (i->until.ms <= now.wall.ms || rdv_dedupe_is_owner(i, owner))) {
		rdv_dedupe_free(l->dedupe, *item);
		i = NULL;
	}
	if (!i) {
		rdv_dedupe_claim(l->dedupe, key, owner); /* without memory: unprotected */
		return true;
	}
	if (i->state == RDV_DEDUPE_DONE)
		return false;
	if (!rdv_dedupe_is_owner(i, owner)) {
		if (owner_goes_on(l, i))
			return false;
		*item = take_over(l, *item, seq, out);
		if (!*item)
			return true;
		i = rdv_dedupe_at(l->dedupe, *item);
	}
	i->held = 0;
	if (i->until.ms <= now.wall.ms)
		return true;
	rdv_lane_dedupe_end(l, seq, now, false, rdv_slice(NULL, 0), out); /* it is done, by another */
	return false;
}

enum rdv_dedupe_answer rdv_lane_dedupe(struct rdv_lane *l, struct rdv_now now, uint32_t ref, uint64_t call,
				       struct rdv_hash128 key, struct rdv_effects *out)
{
	struct rdv_dedupe_item *i;
	struct rdv_entry *e;
	uint32_t item, its_key;
	bool busy;

	if (!rdv_lane_is_call(l, ref, call))
		return RDV_DEDUPE_WAIT;
	e = rdv_lane_entry(l, ref);
	if (owns_key(l, now, e->seq, key, &item, out))
		return RDV_DEDUPE_PROCEED;
	i = rdv_dedupe_at(l->dedupe, item);
	its_key = rdv_lane_key_of(l, e);
	busy = i->state == RDV_DEDUPE_PROCESSING;
	rdv_lane_undo_call(l, ref, now);
	if (busy && !is_mine(l, i)) {
		int64_t delay = ASK_AGAIN_MS << i->asked;

		i->asked += i->asked < ASK_AGAIN_DOUBLES;
		rdv_lane_set_state(l, e, RDV_STATE_WAITING);
		rdv_lane_resume(l, ref, now, delay, out);
		return RDV_DEDUPE_WAIT;
	}
	if (busy)
		hold_double(l, item, ref);
	else
		rdv_lane_finish(l, ref, now, RDV_STATE_ACKED, out);
	if (its_key)
		rdv_lane_promote(l, its_key, now, out);
	return busy ? RDV_DEDUPE_WAIT : RDV_DEDUPE_DUPLICATE;
}

static void wake_doubles(struct rdv_lane *l, uint32_t first, struct rdv_now now, struct rdv_effects *out)
{
	for (uint32_t ref = first, next; ref; ref = next) {
		struct rdv_entry *e = rdv_lane_entry(l, ref);

		next = e->next;
		e->queued = 0;
		if (e->ghost || !e->doubles) {
			rdv_lane_free_ghost(l, ref);
			continue;
		}
		e->doubles = 0;
		rdv_lane_arrive(l, ref, now, out);
	}
}

void rdv_lane_dedupe_end(struct rdv_lane *l, uint64_t seq, struct rdv_now now, bool acked, struct rdv_slice answer,
			 struct rdv_effects *out)
{
	uint32_t item = l->dedupe->by_owner.count ? rdv_dedupe_owned(l->dedupe, owner_of(l, seq)) : 0, waiters;
	struct rdv_dedupe_item *i;

	if (!item)
		return;
	i = rdv_dedupe_at(l->dedupe, item);
	waiters = i->waiters;
	i->waiters = i->last_waiter = 0;
	if (acked)
		i->until.ms = rdv_ms_add(now.wall.ms, l->policy.dedupe.ttl_ms);
	if (acked || i->until.ms > now.wall.ms) {
		rdv_dedupe_finish(l->dedupe, item, i->until, l->policy.dedupe.entries);
		if (!acked)
			i->owner_seq = RDV_NOBODY; /* another has done it: a replay of this one is a duplicate, too */
		write_item(l, item, RDV_DEDUPE_DONE, answer, out);
	} else {
		if (i->segment)
			write_item(l, item, RDV_DEDUPE_FREE, rdv_slice(NULL, 0), out);
		rdv_dedupe_free(l->dedupe, item);
	}
	wake_doubles(l, waiters, now, out);
}

void rdv_lane_dedupe_held(struct rdv_lane *l, uint64_t seq, struct rdv_now now, struct rdv_effects *out)
{
	uint32_t item = l->dedupe->by_owner.count ? rdv_dedupe_owned(l->dedupe, owner_of(l, seq)) : 0, waiters;
	struct rdv_dedupe_item *i;

	if (!item)
		return;
	i = rdv_dedupe_at(l->dedupe, item);
	i->held = 1;
	waiters = i->waiters;
	i->waiters = i->last_waiter = 0;
	wake_doubles(l, waiters, now, out);
}

void rdv_lane_dedupe_waits(struct rdv_lane *l, uint64_t seq, struct rdv_effects *out)
{
	uint32_t item = l->dedupe->by_owner.count ? rdv_dedupe_owned(l->dedupe, owner_of(l, seq)) : 0;

	if (item && !rdv_dedupe_at(l->dedupe, item)->segment)
		write_item(l, item, RDV_DEDUPE_PROCESSING, rdv_slice(NULL, 0), out);
}

void rdv_lane_dedupe_leave(struct rdv_lane *l, uint32_t ref)
{
	rdv_lane_entry(l, ref)->doubles = 0; /* it leaves the owner's list when that is woken */
}

/* ---- recovery and trimming ---- */

/* Its owner died; what was done before it, in a window that was merged, is done again. */
static void free_or_done(struct rdv_lane *l, uint32_t item)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(l->dedupe, item);

	if (i->state != RDV_DEDUPE_PROCESSING || !i->until.ms) {
		rdv_dedupe_free(l->dedupe, item);
		return;
	}
	rdv_dedupe_finish(l->dedupe, item, i->until, l->policy.dedupe.entries);
	i->owner_seq = RDV_NOBODY;
}

enum redrive_status rdv_lane_fold_dedupe(struct rdv_lane *l, struct rdv_slice payload, struct rdv_place place)
{
	struct rdv_dedupe_record record;
	enum redrive_status status = rdv_dedupe_decode(payload, &record);
	struct rdv_dedupe_item before = {.owner_stream = UINT32_MAX};
	uint32_t item;
	bool mine;

	if (status != REDRIVE_OK)
		return status;
	item = rdv_dedupe_find(l->dedupe, record.key);
	if (item)
		before = *rdv_dedupe_at(l->dedupe, item);
	mine = rdv_dedupe_is_owner(&before, owner_of(l, record.owner_seq));
	if (record.state == RDV_DEDUPE_FREE) {
		if (mine) /* else it was free in another window */
			free_or_done(l, item);
		return REDRIVE_OK;
	}
	if (item)
		rdv_dedupe_free(l->dedupe, item);
	/* A message owns one key: an older one of it is over. */
	item = rdv_dedupe_owned(l->dedupe, owner_of(l, record.owner_seq));
	if (item)
		rdv_dedupe_free(l->dedupe, item);
	item = rdv_dedupe_claim(l->dedupe, record.key, owner_of(l, record.owner_seq));
	if (!item)
		return REDRIVE_NO_MEMORY;
	rdv_dedupe_at(l->dedupe, item)->segment = place.segment ? place.segment : 1;
	if ((!mine || before.state == RDV_DEDUPE_PROCESSING) && before.until.ms > record.until.ms)
		record.until = before.until; /* done in a window that was merged */
	rdv_dedupe_at(l->dedupe, item)->until = record.until;
	if (record.state == RDV_DEDUPE_DONE)
		rdv_dedupe_finish(l->dedupe, item, record.until, l->policy.dedupe.entries);
	return REDRIVE_OK;
}

/* What nobody alive is processing any more is free. */
void rdv_lane_open_dedupe(struct rdv_lane *l)
{
	for (uint32_t i = 1; i <= l->dedupe->items.used; i++) {
		const struct rdv_dedupe_item *item = rdv_dedupe_at(l->dedupe, i);
		if (item->state == RDV_DEDUPE_PROCESSING && is_mine(l, item) && !rdv_lane_find(l, item->owner_seq))
			rdv_dedupe_free(l->dedupe, i);
	}
}

/* ---- another window ---- */

/* What the lane knows of a key meets what the window knows. */
static void merge_item(struct rdv_lane *l, struct rdv_dedupe *to, const struct rdv_dedupe_item *mine,
		       struct rdv_effects *out)
{
	uint32_t item = rdv_dedupe_find(to, mine->key);
	struct rdv_dedupe_item *i;

	if (item) {
		i = rdv_dedupe_at(to, item);
		if (mine->until.ms > i->until.ms)
			i->until = mine->until;
		return;
	}
	item = rdv_dedupe_claim(to, mine->key, owner_of(l, mine->owner_seq));
	if (!item) {
		out->failed = true;
		return;
	}
	i = rdv_dedupe_at(to, item);
	i->segment = mine->segment;
	i->until = mine->until;
	i->held = mine->held;
	if (mine->state == RDV_DEDUPE_DONE)
		rdv_dedupe_finish(to, item, mine->until, l->policy.dedupe.entries);
}

static void move_item(struct rdv_lane *l, struct rdv_dedupe *to, uint32_t item, struct rdv_effects *out)
{
	const struct rdv_dedupe_item mine = *rdv_dedupe_at(l->dedupe, item);

	rdv_dedupe_free(l->dedupe, item);
	merge_item(l, to, &mine, out);
}

/* Those who wait for an owner of this lane arrive again, and ask the new window. */
static void wake_all(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out)
{
	for (uint32_t item = 1; item <= l->dedupe->items.used; item++) {
		struct rdv_dedupe_item *i = rdv_dedupe_at(l->dedupe, item);
		uint32_t waiters = i->waiters;

		if (i->state != RDV_DEDUPE_PROCESSING || !is_mine(l, i) || !waiters)
			continue;
		i->waiters = i->last_waiter = 0;
		wake_doubles(l, waiters, now, out);
	}
}

void rdv_lane_move_dedupe(struct rdv_lane *l, struct rdv_dedupe *to, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_dedupe *from = l->dedupe;

	to = to ? to : &l->own_dedupe;
	if (from == to)
		return;
	wake_all(l, now, out);
	for (uint32_t item = from->oldest, next; item; item = next) { /* in the order of their age */
		next = rdv_dedupe_at(from, item)->newer;
		if (is_mine(l, rdv_dedupe_at(from, item)))
			move_item(l, to, item, out);
	}
	for (uint32_t item = 1; item <= from->items.used; item++) {
		const struct rdv_dedupe_item *i = rdv_dedupe_at(from, item);
		if (i->state == RDV_DEDUPE_PROCESSING && is_mine(l, i))
			move_item(l, to, item, out);
	}
	from->lanes--;
	to->lanes++;
	l->dedupe = to;
}

void rdv_lane_rewrite_dedupe(struct rdv_lane *l, uint32_t ref, uint32_t segment, struct rdv_effects *out)
{
	const struct rdv_dedupe_item *item = rdv_dedupe_at(l->dedupe, ref);

	if (item->state && is_mine(l, item) && item->segment && item->segment <= segment)
		write_item(l, ref, (enum rdv_dedupe_state)item->state, rdv_slice(NULL, 0), out);
}
