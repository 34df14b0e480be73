/* lane_entries.c - the lane's bookkeeping: entries, ready queues, waiting, counts of released records, records to be
 * written.
 *
 * An entry is found by its position through a map. Ready queues and the wheel are lists through `next`; nothing is
 * taken out of their middle: an entry that has left its state stays in the list as a ghost (or is READY again before
 * the list gets to it) and is dropped when it comes up. Memory is the only thing that can fail, and then the effects'
 * `failed` stops the runtime. Internal to the lane; single thread. */
#include "lane_parts.h"
#include <assert.h>

/* ---- entries ---- */

uint32_t rdv_lane_add_entry(struct rdv_lane *l, uint64_t seq)
{
	uint32_t ref = rdv_chunks_take(&l->entries);

	if (!ref)
		return 0;
	rdv_lane_entry(l, ref)->seq = seq;
	if (rdv_positions_add(&l->by_seq, ref) != REDRIVE_OK) {
		rdv_lane_entry(l, ref)->ghost = 1;
		rdv_chunks_free(&l->entries, ref);
		return 0;
	}
	return ref;
}

void rdv_lane_expect(const struct rdv_lane *l, uint32_t ref)
{
	if (ref && ref <= l->entries.used)
		__builtin_prefetch(rdv_lane_entry(l, ref));
}

void rdv_lane_free_ghost(struct rdv_lane *l, uint32_t ref)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (e->ghost && !e->queued && !e->scheduled && !e->unplaced)
		rdv_chunks_free(&l->entries, ref);
}

void rdv_lane_drop_entry(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	assert(!e->ghost);
	rdv_positions_remove(&l->by_seq, ref);
	e->ghost = 1;
	e->state = RDV_STATE_DONE;
	e->todo = RDV_TODO_NONE;
	rdv_lane_free_ghost(l, ref);
}

/* ---- ready queues ---- */

static enum rdv_class class_of(const struct rdv_entry *e)
{
	if (e->replay)
		return RDV_CLASS_REPLAY;
	if (e->suspicion >= 2)
		return RDV_CLASS_SUSPECT;
	return e->delivered ? RDV_CLASS_RETRY_DUE : RDV_CLASS_FIRST;
}

static void append(struct rdv_lane *l, struct rdv_fifo *q, uint32_t ref)
{
	rdv_lane_entry(l, ref)->next = 0;
	if (q->tail)
		rdv_lane_entry(l, q->tail)->next = ref;
	else
		q->head = ref;
	q->tail = ref;
}

void rdv_lane_enqueue(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	rdv_lane_set_state(l, e, RDV_STATE_READY);
	if (!e->queued) {
		e->class = class_of(e);
		e->queued = 1;
		append(l, &l->ready[e->class], ref);
	}
	l->ready[e->class].live++;
}

void rdv_lane_unready(struct rdv_lane *l, uint32_t ref, enum rdv_state to)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	assert(e->state == RDV_STATE_READY && e->queued);
	l->ready[e->class].live--;
	rdv_lane_set_state(l, e, to);
}

/* Takes `ref` out of the queue behind `before` (0: it is the head). */
static void unlink_queued(struct rdv_lane *l, struct rdv_fifo *q, uint32_t before, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (before)
		rdv_lane_entry(l, before)->next = e->next;
	else
		q->head = e->next;
	if (q->tail == ref)
		q->tail = before;
	e->queued = 0;
}

static bool is_avoided(const struct rdv_lane *l, const struct rdv_entry *e, const struct rdv_grant *grant)
{
	if (grant->avoid_message && rdv_lane_message_id(l, e->seq) == grant->avoid_message)
		return true;
	return grant->avoid_fingerprint && e->mark == rdv_lane_mark(grant->avoid_fingerprint);
}

/* How many a probe looks at to find one that is not to be avoided. */
#define PROBE_LOOKS 64
#define OTHER_LOOKS 8 /* past those that were written in this very turn */

/* Past ghosts, what may not go before the next turn, and what a probe should not take. */
static uint32_t choose_ready(struct rdv_lane *l, enum rdv_class class, const struct rdv_grant *grant)
{
	struct rdv_fifo *q = &l->ready[class];
	uint32_t before = 0, ref = q->head, choice = 0, choice_before = 0;
	int looks = grant->probe ? PROBE_LOOKS : OTHER_LOOKS;

	while (ref && looks > 0) {
		struct rdv_entry *e = rdv_lane_entry(l, ref);
		uint32_t next = e->next;

		if (e->state != RDV_STATE_READY) {
			unlink_queued(l, q, before, ref);
			rdv_lane_free_ghost(l, ref);
			ref = next;
			continue;
		}
		if (!e->unplaced && (!choice || !is_avoided(l, e, grant))) {
			choice = ref;
			choice_before = before;
			if (!grant->probe || !is_avoided(l, e, grant))
				break;
		}
		looks--;
		before = ref;
		ref = next;
	}
	if (!choice)
		return 0;
	unlink_queued(l, q, choice_before, choice);
	q->live--;
	return choice;
}

uint32_t rdv_lane_pop(struct rdv_lane *l, enum rdv_class class, const struct rdv_grant *grant)
{
	uint32_t head = l->ready[class].head;
	const struct rdv_entry *first = head ? rdv_lane_entry(l, head) : NULL;

	if (!first || grant->probe || first->state != RDV_STATE_READY || first->unplaced)
		return choose_ready(l, class, grant);
	rdv_lane_expect(l, first->next); /* most likely asked for next */
	unlink_queued(l, &l->ready[class], 0, head);
	l->ready[class].live--;
	return head;
}

/* ---- waiting ---- */

static void say_fetch(struct rdv_lane *l, uint32_t ref, struct rdv_effects *out)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_effect *effect;

	if (e->replay)
		return; /* its body is the desk's */
	effect = rdv_effects_add(out, RDV_EFFECT_FETCH, l);
	effect->seq = e->seq;
	effect->entry = ref;
	effect->dispatch.body = (struct rdv_place){e->body_segment, e->body_offset, e->body_length};
	effect->dispatch.state = (struct rdv_place){e->state_segment, e->state_offset, e->state_length};
}

void rdv_lane_wait(struct rdv_lane *l, uint32_t ref, struct rdv_now now, int64_t delay, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	assert(!e->scheduled && e->state == RDV_STATE_WAITING);
	e->due = rdv_ms_add(now.mono.ms, delay);
	e->fetched = delay <= RDV_FETCH_AHEAD_MS;
	if (e->fetched)
		say_fetch(l, ref, out);
	else
		e->due -= RDV_FETCH_AHEAD_MS;
	e->scheduled = 1;
	rdv_schedule_add(&l->wheel, ref);
}

int64_t rdv_lane_due(const struct rdv_entry *e)
{
	return e->fetched || e->state != RDV_STATE_WAITING ? e->due : e->due + RDV_FETCH_AHEAD_MS;
}

uint32_t rdv_lane_pop_due(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out)
{
	uint32_t ref;

	while ((ref = rdv_schedule_pop(&l->wheel, now.mono.ms)) != 0) {
		struct rdv_entry *e = rdv_lane_entry(l, ref);

		e->scheduled = 0;
		if (e->state != RDV_STATE_WAITING) {
			rdv_lane_free_ghost(l, ref); /* ended, or dying, meanwhile */
		} else if (e->fetched) {
			return ref;
		} else {
			e->fetched = 1;
			e->due += RDV_FETCH_AHEAD_MS;
			say_fetch(l, ref, out);
			e->scheduled = 1;
			rdv_schedule_add(&l->wheel, ref);
		}
		if (l->tick_budget-- == 0)
			return 0;
	}
	return 0;
}

/* ---- released records ---- */

void rdv_lane_release_record(struct rdv_lane *l, uint32_t segment, uint32_t bytes)
{
	unsigned slot = segment % RDV_RELEASED_SLOTS;

	if (!segment)
		return;
	if (l->released[slot].count && l->released[slot].segment == segment) {
		l->released[slot].count++;
		l->released[slot].bytes += bytes;
		return;
	}
	if (l->released[slot].count && l->released[slot].segment != segment) {
		const struct rdv_released spilled = l->released[slot];
		if (!rdv_ring_push(&l->released_spill, &spilled))
			l->short_of_memory = true;
	}
	l->released[slot] = (struct rdv_released){.segment = segment, .count = 1, .bytes = bytes};
	l->released_used |= 1ull << slot;
}

void rdv_lane_release_state(struct rdv_lane *l, struct rdv_entry *e)
{
	rdv_lane_release_record(l, e->state_segment, e->state_length);
	e->state_segment = e->state_offset = e->state_length = 0;
}

static void say_released(struct rdv_lane *l, const struct rdv_released *r, struct rdv_effects *out)
{
	struct rdv_effect *effect = rdv_effects_add(out, RDV_EFFECT_RELEASED, l);

	effect->released.segment = r->segment;
	effect->released.count = r->count;
	effect->released.bytes = r->bytes;
}

void rdv_lane_flush_released(struct rdv_lane *l, struct rdv_effects *out)
{
	while (l->released_spill.count) {
		say_released(l, rdv_ring_at(&l->released_spill, 0), out);
		rdv_ring_pop(&l->released_spill);
	}
	while (l->released_used) {
		unsigned slot = (unsigned)__builtin_ctzll(l->released_used);
		l->released_used &= l->released_used - 1;
		if (l->released[slot].count)
			say_released(l, &l->released[slot], out);
		l->released[slot] = (struct rdv_released){0};
	}
}

void rdv_lane_placed(struct rdv_lane *l, uint32_t ref, struct rdv_place place)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	rdv_lane_saw_segment(l, place.segment);
	if (e->unplaced)
		e->unplaced--;
	if (e->ghost || e->state == RDV_STATE_DONE || e->unplaced) { /* ended or written again already */
		rdv_lane_release_record(l, place.segment, place.length);
		rdv_lane_free_ghost(l, ref);
		return;
	}
	e->state_segment = place.segment;
	e->state_offset = place.offset;
	e->state_length = place.length;
}
