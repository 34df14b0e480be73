/* lane_state.c - STATE records: what the log knows of a message that did not end with its first call.
 *
 * The history lies in the log, not in memory: a verdict brings it along. What the lane decides without a verdict (a
 * refund, a revoke, a lowered limit, a crash found at open) asks for the history first (RESTATE) and is written when it
 * is there; until then the entry's `todo` says what is missing, and a crash in between only repeats the decision. The
 * new STATE replaces the old one: that is released in the same batch. A message that dies is DYING until its letter is
 * stored; its letter is asked for when the STATE that says so is durable. Internal to the lane; single thread. */
#include "lane_parts.h"
#include <assert.h>

/* Charges given back, newest first: those attempts stand as outage. */
static void apply_refunds(struct rdv_message_state *s, unsigned refunds)
{
	for (uint32_t i = s->history_count; i-- > 0 && refunds;) {
		struct rdv_attempt *a = &s->history[i];
		bool timeout = a->cause == RDV_CAUSE_TIMEOUT;

		if (!timeout && a->cause != RDV_CAUSE_FAILURE)
			continue;
		a->cause = RDV_CAUSE_OUTAGE;
		refunds--;
		s->causes.failures -= s->causes.failures > 0;
		s->causes.timeouts -= timeout && s->causes.timeouts > 0;
		s->causes.outage++;
	}
}

struct rdv_message_state *rdv_lane_load_state(struct rdv_lane *l, const struct rdv_entry *e, struct rdv_slice history)
{
	struct rdv_message_state *s = &l->state;

	if (!history.size || rdv_state_decode(history, s) != REDRIVE_OK) {
		/* The first failure; or the history cannot be read: what memory knows goes on. */
		memset(s, 0, offsetof(struct rdv_message_state, history));
		s->cause_seq = RDV_NOBODY;
		s->causes.failures = e->charged + e->refund;
	}
	if (e->refund)
		apply_refunds(s, e->refund);
	s->causes.failures = e->charged;
	return s;
}

struct rdv_message_state *rdv_lane_recall_state(struct rdv_lane *l, const struct rdv_entry *e, struct rdv_now now)
{
	struct rdv_message_state *s = rdv_lane_load_state(l, e, rdv_slice(NULL, 0));
	int64_t left = e->state == RDV_STATE_WAITING ? rdv_lane_due(e) - now.mono.ms : 0;

	s->deliveries = s->causes.failures;
	if (!s->deliveries && e->delivered && e->state != RDV_STATE_IN_FLIGHT)
		s->deliveries = 1;
	s->history_omitted = s->deliveries;
	s->due.ms = rdv_ms_add(now.wall.ms, left);
	s->delay_ms = left > 0 ? left : 0;
	return s;
}

void rdv_lane_save_state(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_message_state *s = &l->state;
	size_t at = rdv_lane_begin_record(out);
	struct rdv_effect *effect;

	s->kind = (enum rdv_state)e->state;
	if (e->state == RDV_STATE_HELD || e->state == RDV_STATE_IN_FLIGHT)
		s->kind = RDV_STATE_READY;
	s->suspicion = e->suspicion;
	s->last_bad_charged = e->bad_charged;
	rdv_state_encode(s, &out->arena);
	effect = rdv_lane_end_record(l, RDV_RECORD_STATE, e->seq, at, out);
	effect->entry = ref;
	effect->record.owns_state = true;
	effect->record.waits = s->kind == RDV_STATE_WAITING;
	effect->record.delay_ms = s->delay_ms;
	effect->record.hint_size = RDV_STATE_HINT;
	rdv_lane_release_state(l, e);
	assert(e->unplaced < 3);
	e->unplaced++;
	e->refund = 0;
	e->todo = RDV_TODO_NONE;
	e->started = 0;
	rdv_lane_note_outcome(l, now, effect->record.size);
}

void rdv_lane_ask_history(struct rdv_lane *l, uint32_t ref, enum rdv_todo todo, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_effect *effect;

	e->todo = todo;
	if (e->unplaced) { /* written in this turn: when it has a place */
		rdv_lane_follow_up(l, RDV_ONCE_RESTATE, ref, 0, out);
		return;
	}
	effect = rdv_effects_add(out, RDV_EFFECT_RESTATE, l);
	effect->seq = e->seq;
	effect->entry = ref;
	effect->restate = (struct rdv_place){e->state_segment, e->state_offset, e->state_length};
}

static bool has_history(const struct rdv_entry *e)
{
	return e->state_segment || e->unplaced;
}

static void set_revoke_reason(struct rdv_lane *l, const struct rdv_entry *e)
{
	struct rdv_slice reason = rdv_lane_revoke_reason(l, e->seq);

	if (e->member == RDV_REASON_REVOKED && reason.size)
		l->state.failure = (struct rdv_failure){.class = rdv_slice_text("revoked"), .text = reason};
}

/* The STATE that says DYING, and the letter after it. */
static void save_dying(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	l->state.reason = (enum rdv_reason)e->member;
	if (l->revokes.count)
		set_revoke_reason(l, e);
	l->state.due = now.wall;
	l->state.delay_ms = 0;
	rdv_lane_save_state(l, ref, now, out);
	if (l->revokes.count)
		rdv_lane_forget_revoke(l, e->seq);
	rdv_lane_follow_up(l, RDV_ONCE_LETTER, ref, l->state.cause_seq, out);
}

/* Deaths that the log does not know yet are left out of COUNTERS: after a crash the message lives. */
static void count_unwritten(struct rdv_lane *l, const struct rdv_entry *e, int by)
{
	if (!e->replay)
		*(e->member == RDV_REASON_REVOKED ? &l->unwritten_revoked : &l->unwritten_dead) +=
			(uint64_t)(int64_t)by;
}

/* Whom a follower followed, until its history is there; rarely more than a few. */
static void note_cause(struct rdv_lane *l, uint64_t seq, struct rdv_effects *out)
{
	const struct rdv_cause_note note = {seq, l->follower_of};

	if (l->follower_of != RDV_NOBODY && !rdv_ring_push(&l->causes, &note))
		out->failed = true;
}

static uint64_t take_cause(struct rdv_lane *l, uint64_t seq)
{
	for (size_t i = 0; i < l->causes.count; i++) {
		struct rdv_cause_note *note = rdv_ring_at(&l->causes, i);
		uint64_t cause = note->cause;

		if (note->seq != seq)
			continue;
		*note = *(struct rdv_cause_note *)rdv_ring_at(&l->causes, 0);
		rdv_ring_pop(&l->causes);
		return cause;
	}
	return RDV_NOBODY;
}

/* after_dead: follow. The live members of that moment behind the dead one die in order. */
static void kill_followers(struct rdv_lane *l, uint32_t key, uint64_t dead, struct rdv_now now, struct rdv_effects *out)
{
	uint32_t ref = rdv_order_key(&l->order, key)->first, next;

	for (; ref; ref = next) {
		struct rdv_entry *e = rdv_lane_entry(l, ref);
		next = e->member;
		if (e->replay || e->seq <= dead)
			continue;
		l->follower_of = dead;
		rdv_lane_die(l, ref, now, RDV_REASON_FOLLOWER, NULL, out);
	}
	l->follower_of = RDV_NOBODY;
}

static void after_dead(struct rdv_lane *l, uint32_t key, uint64_t dead, struct rdv_now now, struct rdv_effects *out)
{
	const struct rdv_key *k = rdv_order_key(&l->order, key);
	uint64_t hash = k->hash;

	if (l->policy.after_dead == RDV_AFTER_FOLLOW) {
		kill_followers(l, key, dead, now, out);
		for (struct rdv_lane *s = l->sibling; s && s != l; s = s->sibling)
			if ((key = rdv_order_find(&s->order, hash)) != 0)
				kill_followers(s, key, dead, now, out);
	} else if (l->policy.after_dead == RDV_AFTER_HOLD && !k->closed)
		rdv_lane_set_gate(l, key, true, dead, out);
}

void rdv_lane_die(struct rdv_lane *l, uint32_t ref, struct rdv_now now, enum rdv_reason reason,
		  struct rdv_message_state *state, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	bool ordered = l->policy.order == RDV_ORDER_KEY && e->key;
	bool head = e->state == RDV_STATE_IN_FLIGHT || e->todo == RDV_TODO_CRASH || rdv_lane_is_head(l, ref);
	uint32_t unordered = l->policy.order == RDV_ORDER_NONE && e->joined ? rdv_lane_key_of(l, e) : 0;

	if (e->state == RDV_STATE_READY && e->queued)
		rdv_lane_unready(l, ref, RDV_STATE_HELD);
	rdv_lane_dedupe_leave(l, ref);
	if (ordered && (head || reason == RDV_REASON_FOLLOWER)) {
		e->blocks = 1;
		rdv_order_key(&l->order, e->key)->blocked++;
	}
	rdv_lane_leave(l, ref);
	e->member = reason;
	rdv_lane_set_state(l, e, RDV_STATE_DYING);
	if (!state && has_history(e)) {
		note_cause(l, e->seq, out);
		count_unwritten(l, e, 1);
		rdv_lane_ask_history(l, ref, RDV_TODO_DIE, out);
	} else {
		if (!state)
			rdv_lane_load_state(l, e, rdv_slice(NULL, 0));
		l->state.cause_seq = l->follower_of;
		save_dying(l, ref, now, out);
	}
	rdv_lane_dedupe_end(l, e->seq, now, false, rdv_slice(NULL, 0), out);
	if (unordered)
		rdv_lane_promote(l, unordered, now, out);
	if (e->blocks)
		rdv_lane_promote(l, e->key, now, out); /* a replay may have got the turn */
	if (ordered && head && !e->replay && reason != RDV_REASON_REVOKED && reason != RDV_REASON_FOLLOWER)
		after_dead(l, e->key, e->seq, now, out);
}

void rdv_lane_finish(struct rdv_lane *l, uint32_t ref, struct rdv_now now, enum rdv_state outcome,
		     struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	uint32_t key = l->policy.order == RDV_ORDER_KEY ? e->key : 0;
	bool at_once = l->from_broker && e->state != RDV_STATE_DYING;

	if (e->replay) {
		rdv_lane_replay_finish(l, ref, now, outcome, out);
		return;
	}
	if (l->revokes.count)
		rdv_lane_forget_revoke(l, e->seq);
	if (key && e->state != RDV_STATE_DYING)
		rdv_order_key(&l->order, key)->blocked++;
	if (key && !at_once && (e->blocks || e->state != RDV_STATE_DYING))
		rdv_lane_follow_up(l, RDV_ONCE_KEY, key, 0, out);
	if (e->state == RDV_STATE_DYING)
		e->state = outcome; /* counted when it began to die */
	else
		rdv_lane_set_state(l, e, outcome);
	rdv_lane_add_run(&l->done, e->seq, outcome, out);
	rdv_lane_note_outcome(l, now, 8);
	rdv_ages_remove(&l->ages, e->seq);
	rdv_lane_release_record(l, e->body_segment, e->body_length);
	rdv_lane_release_state(l, e);
	rdv_lane_forget_key(l, e);
	rdv_lane_drop_entry(l, ref);
	if (key && at_once)
		rdv_lane_unblock_key(l, key, now, out);
}

void rdv_lane_lettered(struct rdv_lane *l, struct rdv_now now, uint64_t seq, uint64_t request, struct rdv_effects *out)
{
	uint32_t ref = rdv_lane_find(l, seq);
	const struct rdv_entry *e = ref ? rdv_lane_entry(l, ref) : NULL;

	if (!e || e->state != RDV_STATE_DYING || e->todo != RDV_TODO_NONE || e->replay != (request != 0))
		return; /* told twice */
	if (request && rdv_lane_request_of(l, ref)->number != request)
		return; /* told twice, and its letter is replayed already */
	rdv_lane_finish(l, ref, now, e->member == RDV_REASON_REVOKED ? RDV_STATE_REVOKED : RDV_STATE_DEAD, out);
}

void rdv_lane_say_letter(struct rdv_lane *l, uint32_t ref, uint64_t cause, struct rdv_effects *out)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_effect *effect = rdv_effects_add(out, RDV_EFFECT_LETTER, l);
	const struct rdv_inbox_item *item = e->replay ? rdv_lane_request_of(l, ref) : NULL;

	effect->seq = e->seq;
	effect->entry = ref;
	if (!item)
		effect->letter.body = (struct rdv_place){e->body_segment, e->body_offset, e->body_length};
	effect->letter.state = (struct rdv_place){e->state_segment, e->state_offset, e->state_length};
	effect->letter.reason = (enum rdv_reason)e->member;
	effect->letter.cause_seq = cause;
	effect->letter.generation = item ? item->request.generation + 1 : 0;
	effect->letter.request = item ? item->number : 0;
}

void rdv_lane_restate(struct rdv_lane *l, struct rdv_now now, uint32_t ref, struct rdv_slice history,
		      struct rdv_effects *out)
{
	struct rdv_entry *e;
	struct rdv_message_state *s;

	if (!ref || ref > l->entries.used)
		return;
	e = rdv_lane_entry(l, ref);
	if (e->ghost || e->todo == RDV_TODO_NONE || e->state == RDV_STATE_IN_FLIGHT)
		return;
	s = history.size ? rdv_lane_load_state(l, e, history) : rdv_lane_recall_state(l, e, now);
	switch ((enum rdv_todo)e->todo) {
	case RDV_TODO_DIE:
		s->cause_seq = take_cause(l, e->seq);
		count_unwritten(l, e, -1);
		save_dying(l, ref, now, out);
		break;
	case RDV_TODO_CRASH:
		e->todo = RDV_TODO_NONE;
		rdv_lane_crashed(l, ref, now, s, out);
		break;
	case RDV_TODO_REFUND:
		rdv_lane_save_state(l, ref, now, out);
		break;
	case RDV_TODO_NONE:
		break;
	}
}

void rdv_lane_damaged(struct rdv_lane *l, struct rdv_now now, uint32_t ref, uint64_t call, struct rdv_effects *out)
{
	uint32_t unordered;

	if (!rdv_lane_is_call(l, ref, call))
		return;
	unordered = l->policy.order == RDV_ORDER_NONE ? rdv_lane_key_of(l, rdv_lane_entry(l, ref)) : 0;
	rdv_lane_undo_call(l, ref, now); /* nobody was called */
	rdv_lane_die(l, ref, now, RDV_REASON_DAMAGED, NULL, out);
	if (unordered)
		rdv_lane_promote(l, unordered, now, out);
}
