/* lane_operate.c - what operators do to single messages and keys: revoke, release.
 *
 * Revoking in flight does not cut the call: an ack wins, any other verdict ends as revoked. A revoked message closes no
 * gate and counts only as revoked. Releasing opens the gate of a key that after_dead: hold closed. Single thread. */
#include "lane_parts.h"

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
