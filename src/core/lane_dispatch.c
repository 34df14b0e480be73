/* lane_dispatch.c - what could go now, and from a grant to a DISPATCH.
 *
 * A call is named by a number that no other call of this lane and run has; the entry keeps its low half and the
 * message's position gives the high one. An entry whose STATE has no place yet (it was written in this very turn) does
 * not go before the next turn, so that a DISPATCH always says where the history is. Rule 8: nothing goes while too much
 * of what was done is not durable. In suspect mode one call is open at a time, and each is preceded by STARTED.
 * Internal to the lane; single thread. */
#include "lane_parts.h"
#include <assert.h>
#include <stdlib.h>

#define UNRECORDED_BYTES (16u << 20)
#define UNRECORDED_AGE_MS 2000

uint64_t rdv_lane_message_id(const struct rdv_lane *l, uint64_t seq)
{
	uint64_t id = ((uint64_t)(l->stream + 1) << 40 ^ seq) * 0x9e3779b97f4a7c15ull; /* odd: one to one */

	return id ? id : 1;
}

unsigned rdv_lane_mark(uint64_t fingerprint)
{
	return fingerprint ? (unsigned)(fingerprint % 7) + 1 : 0;
}

static uint64_t call_of(const struct rdv_entry *e)
{
	return e->seq << 32 | e->member;
}

/* The oldest turn that holds outcomes; others may have gone before it. */
static int64_t oldest_outcome(const struct rdv_lane *l)
{
	for (size_t i = 0; i < l->turns.count; i++) {
		const struct rdv_turn *t = rdv_ring_at(&l->turns, i);
		if (t->outcomes)
			return t->since;
	}
	return l->open_turn.since;
}

bool rdv_lane_overloaded(const struct rdv_lane *l, struct rdv_now now)
{
	if (!l->unrecorded)
		return false;
	if (l->unrecorded >= l->unrecorded_max || l->unrecorded_bytes >= UNRECORDED_BYTES)
		return true;
	return now.mono.ms - oldest_outcome(l) > UNRECORDED_AGE_MS;
}

void rdv_lane_work(struct rdv_lane *l, struct rdv_now now, struct rdv_work *out)
{
	const struct rdv_fifo *suspects = &l->ready[RDV_CLASS_SUSPECT];

	*out = (struct rdv_work){.storm_route = UINT32_MAX, .suspect_overdue_ms = -1};
	if (l->paused || l->stopped || l->folding || rdv_lane_overloaded(l, now))
		return;
	if ((l->suspect_mode && l->call_count) || !l->target)
		return;
	for (unsigned class = 0; class < RDV_CLASS_COUNT; class ++)
		if (l->ready[class].live)
			out->classes |= (uint8_t)(1u << class);
	if (!out->classes)
		return;
	if (rdv_target_storm_held(l->target, l->target_route)) {
		out->storm_route = l->target_route;
		out->storm_classes = out->classes;
		out->classes = 0;
		return;
	}
	if (suspects->live && suspects->head) {
		int64_t due = rdv_lane_entry(l, suspects->head)->due;
		out->suspect_overdue_ms = now.mono.ms > due ? now.mono.ms - due : 0;
	}
}

static bool remember_call(struct rdv_lane *l, uint32_t ref)
{
	if (l->call_count == l->call_capacity) {
		uint32_t capacity = l->call_capacity ? l->call_capacity * 2 : 64;
		uint32_t *calls = realloc(l->calls, capacity * sizeof *calls);
		if (!calls)
			return false;
		l->calls = calls;
		l->call_capacity = capacity;
	}
	rdv_lane_entry(l, ref)->next = l->call_count;
	l->calls[l->call_count++] = ref;
	return true;
}

static void forget_call(struct rdv_lane *l, struct rdv_entry *e)
{
	uint32_t last = l->calls[--l->call_count];

	l->calls[e->next] = last;
	rdv_lane_entry(l, last)->next = e->next;
	e->next = 0;
}

bool rdv_lane_is_call(const struct rdv_lane *l, uint32_t ref, uint64_t call)
{
	const struct rdv_entry *e;

	if (!ref || ref > l->entries.used)
		return false;
	e = rdv_lane_entry(l, ref);
	return !e->ghost && e->state == RDV_STATE_IN_FLIGHT && call_of(e) == call;
}

static void count_call(struct rdv_lane *l, const struct rdv_entry *e, int by)
{
	struct rdv_account *a = &l->account;
	uint64_t n = (uint64_t)(int64_t)by;

	if (e->replay) {
		a->replays_sent += n;
		return;
	}
	a->calls += n;
	if (e->class == RDV_CLASS_FIRST) {
		a->first += n;
		a->first_calls += n;
	} else {
		a->retries += n;
	}
}

static void say_dispatch(struct rdv_lane *l, uint32_t ref, const struct rdv_grant *grant, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_effect *effect = rdv_effects_add(out, RDV_EFFECT_DISPATCH, l);

	effect->seq = e->seq;
	effect->entry = ref;
	effect->dispatch.state = (struct rdv_place){e->state_segment, e->state_offset, e->state_length};
	effect->dispatch.call = call_of(e);
	effect->dispatch.attempt = e->charged + 1;
	effect->dispatch.class = grant->class;
	effect->dispatch.probe = grant->probe;
	effect->dispatch.started = e->started;
	if (e->replay) {
		effect->dispatch.request = rdv_lane_request_of(l, ref)->number;
		rdv_lane_request_of(l, ref)->request.deliveries++;
	} else {
		effect->dispatch.body = (struct rdv_place){e->body_segment, e->body_offset, e->body_length};
	}
}

bool rdv_lane_dispatch(struct rdv_lane *l, struct rdv_now now, const struct rdv_grant *grant, struct rdv_effects *out)
{
	struct rdv_entry *e;
	uint32_t ref;

	if (l->stopped || rdv_lane_overloaded(l, now))
		return false; /* since the dispatcher asked, it was stopped, or time went on: rule 8 */
	do {
		ref = rdv_lane_pop(l, grant->class, grant);
		if (!ref)
			return false;
		e = rdv_lane_entry(l, ref);
	} while (l->order.map.count && !e->replay && l->policy.order == RDV_ORDER_NONE &&
		 !rdv_lane_passes_replays(l, ref));
	if (!remember_call(l, ref)) {
		rdv_lane_enqueue(l, ref);
		out->failed = true;
		return false;
	}
	if (l->order.map.count)
		rdv_lane_call_began(l, ref);
	rdv_lane_set_state(l, e, RDV_STATE_IN_FLIGHT);
	e->member = ++l->call_number;
	e->due = now.mono.ms;
	e->probe = grant->probe;
	count_call(l, e, 1);
	e->delivered = 1;
	e->started = 0;
	if (l->start_before_call || l->suspect_mode) {
		e->started = 1;
		rdv_lane_add_run(&l->started, e->seq, RDV_STATE_IN_FLIGHT, out);
	}
	say_dispatch(l, ref, grant, out);
	return true;
}

void rdv_lane_end_call(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	forget_call(l, e);
	if (l->order.map.count)
		rdv_lane_call_ended(l, ref);
	if (e->replay)
		return;
	l->account.calls--;
	if (e->class == RDV_CLASS_FIRST)
		l->account.first_calls--;
}

void rdv_lane_undo_call(struct rdv_lane *l, uint32_t ref, struct rdv_now now)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	struct rdv_grant grant = {.class = (enum rdv_class)e->class, .probe = e->probe, .route = UINT32_MAX};

	forget_call(l, e);
	if (l->order.map.count)
		rdv_lane_call_ended(l, ref);
	count_call(l, e, -1);
	if (e->class == RDV_CLASS_FIRST)
		e->delivered = 0;
	rdv_target_cancel(l->granted ? l->granted : l->target, now, &grant);
}
