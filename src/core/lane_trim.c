/* lane_trim.c - which records live, where they move, and what is written again when a segment goes.
 *
 * BODY and STATE are known by their place. Of all other records only the newest counts, and the lane knows a segment in
 * which, or behind which, it lies: what may lie in the segment that goes is written again, in slices, since there may
 * be millions of keys to look at. What is written meanwhile lies in newer segments, so nothing that was looked at has
 * to be looked at again. Single thread. */
#include "lane_parts.h"

bool rdv_lane_owns(const struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_place place,
		   uint32_t *entry)
{
	uint32_t ref = rdv_lane_find(l, seq);
	const struct rdv_entry *e;

	*entry = ref;
	if (!ref)
		return false;
	e = rdv_lane_entry(l, ref);
	if (type == RDV_RECORD_BODY)
		return !e->replay && e->body_segment == place.segment && e->body_offset == place.offset;
	return type == RDV_RECORD_STATE && e->state_segment == place.segment && e->state_offset == place.offset;
}

void rdv_lane_moved(struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	uint32_t ref = rdv_lane_find(l, seq);
	struct rdv_entry *e;

	if (!ref)
		return;
	e = rdv_lane_entry(l, ref);
	rdv_lane_saw_segment(l, place.segment);
	if (type == RDV_RECORD_BODY && !e->replay) {
		e->body_segment = place.segment;
		e->body_offset = place.offset;
		e->body_length = place.length;
	} else if (type == RDV_RECORD_STATE) {
		e->state_segment = place.segment;
		e->state_offset = place.offset;
		e->state_length = place.length;
	}
}

void rdv_lane_done_again(struct rdv_lane *l, uint64_t seq, struct rdv_effects *out)
{
	if (seq >= l->start && seq < l->next)
		rdv_lane_add_run(&l->done, seq, RDV_STATE_DONE, out);
}

static void rewrite_own(struct rdv_lane *l, uint32_t segment, struct rdv_effects *out)
{
	if (l->lane_segment <= segment)
		rdv_lane_write_lane(l, out);
	if (l->paused && l->pause_segment <= segment)
		rdv_lane_write_pause(l, out);
	if (l->counters_segment <= segment)
		l->counters_changed = true; /* by the flush of this turn */
}

static void rewrite_gate(struct rdv_lane *l, uint32_t key, uint32_t segment, struct rdv_effects *out)
{
	const struct rdv_key *k = rdv_order_key(&l->order, key);

	if (k->used && k->closed && k->gate_segment <= segment)
		rdv_lane_set_gate(l, key, true, k->letter_seq, out);
}

/* One kind of small records: how many there may be, and writing one again if it lies there. */
struct rewritten {
	uint32_t (*count)(const struct rdv_lane *l);
	void (*one)(struct rdv_lane *l, uint32_t ref, uint32_t segment, struct rdv_effects *out);
};

static uint32_t count_gates(const struct rdv_lane *l)
{
	return l->order.closed ? l->order.keys.used : 0;
}

static uint32_t count_requests(const struct rdv_lane *l)
{
	return l->requests.used;
}

static uint32_t count_dedupe(const struct rdv_lane *l)
{
	return l->dedupe->items.used;
}

static const struct rewritten kinds[] = {
	{count_gates, rewrite_gate},
	{count_requests, rdv_lane_rewrite_request},
	{count_dedupe, rdv_lane_rewrite_dedupe},
};

bool rdv_lane_rewrite(struct rdv_lane *l, uint32_t segment, struct rdv_rewrite *done, uint32_t *budget,
		      struct rdv_effects *out)
{
	const uint32_t stages = sizeof kinds / sizeof kinds[0];

	if (done->stage == 0) {
		rewrite_own(l, segment, out);
		done->stage = 1;
	}
	for (; done->stage <= stages; done->stage++, done->at = 0) {
		const struct rewritten *kind = &kinds[done->stage - 1];
		uint32_t count = kind->count(l);

		for (; done->at < count && *budget; --*budget)
			kind->one(l, ++done->at, segment, out);
		if (done->at < count)
			return false;
	}
	return true;
}

void rdv_lane_each_live_slice(const struct rdv_lane *l, uint32_t *at, uint32_t budget, rdv_lane_live each, void *ctx)
{
	uint32_t end = l->entries.used;

	if (end - *at > budget)
		end = *at + budget;
	for (uint32_t ref = *at + 1; ref <= end; ref++) {
		const struct rdv_entry *e = rdv_lane_entry(l, ref);

		if (e->ghost || (l->folding && !e->replay && !e->body_segment)) /* which opening forgets */
			continue;
		if (!e->replay && e->body_segment)
			each(ctx, RDV_RECORD_BODY, e->seq,
			     (struct rdv_place){e->body_segment, e->body_offset, e->body_length});
		if (e->state_segment)
			each(ctx, RDV_RECORD_STATE, e->seq,
			     (struct rdv_place){e->state_segment, e->state_offset, e->state_length});
	}
	*at = end < l->entries.used ? end : 0;
}

void rdv_lane_each_live(const struct rdv_lane *l, rdv_lane_live each, void *ctx)
{
	uint32_t at = 0;

	rdv_lane_each_live_slice(l, &at, UINT32_MAX, each, ctx);
}
