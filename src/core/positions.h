/* positions.h - from a position to its live entry: a window over the recent ones, a map for the rest.
 *
 * Most live positions of a busy lane lie close together, so position mod window size finds them in one step. When two
 * live positions fall on the same place, the older one moves to the map (linear hashing), whose link is the entry's
 * own. The window grows with the lane, to 16,384 places at most; a million waiting messages are in the map, 3 bytes
 * each. Memory is the only thing that can fail. Internal to the core; single thread. */
#ifndef RDV_CORE_POSITIONS_H
#define RDV_CORE_POSITIONS_H
#include "../base/map.h"
#include "entry.h"

struct rdv_positions {
	struct rdv_chunks *entries;  /* borrows */
	uint32_t *window;            /* owns; entries, 0 = none */
	uint32_t mask, count, moved; /* moved: to the map since the window grew */
	struct rdv_map map;
};

void rdv_positions_init(struct rdv_positions *p, struct rdv_chunks *entries);
void rdv_positions_done(struct rdv_positions *p);
uint32_t rdv_positions_find_old(const struct rdv_positions *p, uint64_t seq);
static inline uint32_t rdv_positions_find(const struct rdv_positions *p, uint64_t seq) /* 0 = not live */
{
	uint32_t ref = p->window ? p->window[seq & p->mask] : 0;

	return ref && rdv_entry_at(p->entries, ref)->seq == seq ? ref : rdv_positions_find_old(p, seq);
}
/* Its place is taken, or there is no window yet. */
enum redrive_status rdv_positions_add_slow(struct rdv_positions *p, uint32_t ref) RDV_MUST_CHECK;
static inline enum redrive_status rdv_positions_add(struct rdv_positions *p, uint32_t ref)
{
	uint64_t seq = rdv_entry_at(p->entries, ref)->seq;

	if (!p->window || p->window[seq & p->mask])
		return rdv_positions_add_slow(p, ref);
	p->window[seq & p->mask] = ref;
	p->count++;
	return REDRIVE_OK;
}
static inline void rdv_positions_remove(struct rdv_positions *p, uint32_t ref) /* it must be there */
{
	uint64_t seq = rdv_entry_at(p->entries, ref)->seq;

	p->count--;
	if (p->window[seq & p->mask] == ref)
		p->window[seq & p->mask] = 0;
	else
		rdv_map_remove(&p->map, ref);
}
size_t rdv_positions_bytes(const struct rdv_positions *p);
#endif
