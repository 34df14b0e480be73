/* positions.c - the window and the map behind it.
 *
 * Invariant: a live entry is in the window at seq & mask, or in the map, never in both. Growing doubles the window and
 * moves each entry to its new place, which is free, since two entries of one new place would have shared an old one.
 * Single thread. */
#include "positions.h"
#include <stdlib.h>
#include <string.h>

#define FIRST_PLACES 64u
#define MOST_PLACES 16384u

static uint64_t entry_hash(void *owner, uint32_t ref)
{
	/* Positions are dense: they spread over the buckets by themselves. */
	return rdv_entry_at(((struct rdv_positions *)owner)->entries, ref)->seq;
}

static uint32_t *entry_link(void *owner, uint32_t ref)
{
	return &rdv_entry_at(((struct rdv_positions *)owner)->entries, ref)->link;
}

static const struct rdv_map_ops entry_ops = {entry_hash, entry_link};

void rdv_positions_init(struct rdv_positions *p, struct rdv_chunks *entries)
{
	*p = (struct rdv_positions){.entries = entries};
	rdv_map_init(&p->map, &entry_ops, p);
}

void rdv_positions_done(struct rdv_positions *p)
{
	rdv_map_done(&p->map);
	free(p->window);
	p->window = NULL;
}

uint32_t rdv_positions_find_old(const struct rdv_positions *p, uint64_t seq)
{
	uint32_t ref = rdv_map_first(&p->map, seq);

	while (ref && rdv_entry_at(p->entries, ref)->seq != seq)
		ref = rdv_entry_at(p->entries, ref)->link;
	return ref;
}

static bool grow(struct rdv_positions *p)
{
	uint32_t places = p->window ? 2 * (p->mask + 1) : FIRST_PLACES;
	uint32_t *window = calloc(places, sizeof *window);

	if (!window)
		return false;
	for (uint32_t i = 0; p->window && i <= p->mask; i++)
		if (p->window[i])
			window[rdv_entry_at(p->entries, p->window[i])->seq & (places - 1)] = p->window[i];
	free(p->window);
	p->window = window;
	p->mask = places - 1;
	p->moved = 0;
	return true;
}

enum redrive_status rdv_positions_add_slow(struct rdv_positions *p, uint32_t ref)
{
	uint64_t seq = rdv_entry_at(p->entries, ref)->seq;
	uint32_t *place;

	if (!p->window && !grow(p))
		return REDRIVE_NO_MEMORY;
	/* Growing is worth it when a quarter of the window has been pushed out; if memory is short, the map does. */
	if (p->moved > p->mask / 4 && p->mask + 1 < MOST_PLACES)
		grow(p);
	place = &p->window[seq & p->mask];
	if (*place) {
		if (rdv_map_insert(&p->map, *place) != REDRIVE_OK)
			return REDRIVE_NO_MEMORY;
		p->moved++;
	}
	*place = ref;
	p->count++;
	return REDRIVE_OK;
}

size_t rdv_positions_bytes(const struct rdv_positions *p)
{
	return (p->window ? (size_t)(p->mask + 1) * sizeof *p->window : 0) + (size_t)p->map.count * 3;
}
