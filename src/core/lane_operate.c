/* lane_operate.c - what operators do to single messages and keys: revoke, release.
 *
 * Revoking in flight does not cut the call: an ack wins, any other verdict ends as revoked. A revoked message closes no
 * gate and counts only as revoked. Why is kept in memory until the STATE that says DYING is written, and stands there
 * as the failure: attempts that failed before are in the history. Releasing opens the gate of a key that after_dead:
 * hold closed. Single thread. */
#include "lane_parts.h"
#include <stdlib.h>

static void note_revoke(struct rdv_lane *l, uint64_t seq, struct rdv_slice reason, struct rdv_effects *out)
{
	struct rdv_revoke_note note = {.seq = seq};

	if (!reason.size)
		return;
	rdv_lane_forget_revoke(l, seq); /* it is asked for again */
	note.reason = rdv_slice_cut_utf8(reason, RDV_ERROR_TEXT_BYTES);
	note.bytes = malloc(note.reason.size);
	if (note.bytes)
		note.reason.data = memcpy(note.bytes, note.reason.data, note.reason.size);
	if (!note.bytes || !rdv_ring_push(&l->revokes, &note)) {
		free(note.bytes);
		out->failed = true;
	}
}

struct rdv_slice rdv_lane_revoke_reason(const struct rdv_lane *l, uint64_t seq)
{
	for (size_t i = l->revokes.count; i-- > 0;) {
		const struct rdv_revoke_note *note = rdv_ring_at(&l->revokes, i);

		if (note->seq == seq)
			return note->reason;
	}
	return rdv_slice(NULL, 0);
}

void rdv_lane_forget_revoke(struct rdv_lane *l, uint64_t seq)
{
	for (size_t i = 0; i < l->revokes.count;) {
		struct rdv_revoke_note *note = rdv_ring_at(&l->revokes, i);

		if (note->seq != seq && seq != RDV_NOBODY) {
			i++;
			continue;
		}
		free(note->bytes);
		*note = *(struct rdv_revoke_note *)rdv_ring_at(&l->revokes, 0);
		rdv_ring_pop(&l->revokes);
	}
}

enum redrive_status rdv_lane_revoke(struct rdv_lane *l, struct rdv_now now, uint64_t seq, struct rdv_slice reason,
				    bool *pending, struct rdv_effects *out)
{
	uint32_t ref = rdv_lane_find(l, seq), key;
	struct rdv_entry *e;

	*pending = false;
	if (!ref)
		return seq < l->next && seq >= l->start ? REDRIVE_CONFLICT : REDRIVE_NOT_FOUND;
	e = rdv_lane_entry(l, ref);
	if (e->replay || e->state == RDV_STATE_DYING)
		return REDRIVE_CONFLICT;
	note_revoke(l, seq, reason, out);
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
