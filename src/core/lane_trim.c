/* lane_trim.c - which records live, where they move, and what is written again when a segment goes.
 *
 * BODY and STATE are known by their place. Of all other records only the newest counts, and the lane knows a segment in
 * which, or behind which, it lies: what may lie in the segment that goes is written again. Single thread. */
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

void rdv_lane_rewrite(struct rdv_lane *l, uint32_t segment, struct rdv_effects *out)
{
	if (l->lane_segment <= segment)
		rdv_lane_write_lane(l, out);
	if (l->paused && l->pause_segment <= segment)
		rdv_lane_write_pause(l, out);
	if (l->counters_segment <= segment)
		l->counters_changed = true; /* by the flush of this turn */
	for (uint32_t key = 0; (key = rdv_order_each(&l->order, key)) != 0;) {
		const struct rdv_key *k = rdv_order_key(&l->order, key);
		if (k->closed && k->gate_segment <= segment)
			rdv_lane_set_gate(l, key, true, k->letter_seq, out);
	}
	rdv_lane_rewrite_requests(l, segment, out);
	rdv_lane_rewrite_dedupe(l, segment, out);
}

void rdv_lane_each_live(const struct rdv_lane *l,
			void (*each)(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place), void *ctx)
{
	for (uint32_t ref = 1; ref <= l->entries.used; ref++) {
		const struct rdv_entry *e = rdv_lane_entry(l, ref);

		if (e->ghost)
			continue;
		if (!e->replay && e->body_segment)
			each(ctx, RDV_RECORD_BODY, e->seq,
			     (struct rdv_place){e->body_segment, e->body_offset, e->body_length});
		if (e->state_segment)
			each(ctx, RDV_RECORD_STATE, e->seq,
			     (struct rdv_place){e->state_segment, e->state_offset, e->state_length});
	}
}
