/* lane_lost.c - records that can never be read again: what becomes of their messages.
 *
 *   body damaged      ── ready, waiting, held ──▶ dies as damaged: a letter with its coordinates
 *                     ── at the handler, dying ──▶ stays; its end, or its letter, comes
 *   history damaged   ── a decision waits for it ──▶ made without it
 *                     ── dying ──▶ stays; its letter comes
 *                     ── else ──▶ written again: charges, due time and deliveries are known, the attempts are not
 *
 * So that the lane owns nothing any more in a segment that has to go: neither is a message forgotten, nor does one come
 * back that was dying. Internal to the lane; single thread. */
#include "lane_parts.h"

static bool is_idle(const struct rdv_entry *e)
{
	return e->state == RDV_STATE_READY || e->state == RDV_STATE_WAITING || e->state == RDV_STATE_HELD;
}

static void lose_body(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);
	uint32_t key = e->joined ? rdv_lane_key_of(l, e) : 0;

	rdv_lane_die(l, ref, now, RDV_REASON_DAMAGED, NULL, out);
	if (key)
		rdv_lane_promote(l, key, now, out);
}

static bool lose_history(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	const struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (e->todo != RDV_TODO_NONE && e->state != RDV_STATE_IN_FLIGHT) {
		rdv_lane_restate(l, now, ref, rdv_slice(NULL, 0), out);
		return true;
	}
	if (!is_idle(e) && e->state != RDV_STATE_IN_FLIGHT)
		return false;
	rdv_lane_recall_state(l, e, now);
	rdv_lane_save_state(l, ref, now, out);
	return true;
}

bool rdv_lane_lose(struct rdv_lane *l, struct rdv_now now, uint32_t segment, uint32_t *at, uint32_t *budget,
		   struct rdv_losses *count, struct rdv_effects *out)
{
	for (; *at < l->entries.used && *budget; --*budget) {
		const struct rdv_entry *e = rdv_lane_entry(l, ++*at);

		if (e->ghost)
			continue;
		if (!e->replay && e->body_segment == segment && is_idle(e)) {
			lose_body(l, *at, now, out);
			count->bodies++;
		}
		if (!e->ghost && e->state_segment == segment && !e->unplaced)
			count->histories += lose_history(l, *at, now, out);
	}
	return *at >= l->entries.used;
}
