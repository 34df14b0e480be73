/* cache.c - bodies read ahead; see cache.h. A fixed table of chains; entries are kept for reuse, most recent first.
 * Invariant: bytes = sum of place.length of all entries; an entry that is being read is never evicted. Core thread. */
#include "cache.h"
#include <stdlib.h>

#define STALE_A_TIME 4 /* dropped at each addition, so that they cannot pile up */

enum redrive_status rdv_cache_init(struct rdv_cache *c)
{
	*c = (struct rdv_cache){0};
	c->buckets = calloc(RDV_CACHE_BUCKETS, sizeof(struct rdv_ahead *));
	return c->buckets ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

void rdv_cache_done(struct rdv_cache *c)
{
	while (c->oldest)
		rdv_block_unref(rdv_cache_take(c, c->oldest));
	while (c->free) {
		struct rdv_ahead *a = c->free;

		c->free = a->link;
		free(a);
	}
	free(c->buckets);
	c->buckets = NULL;
}

static struct rdv_ahead **bucket(struct rdv_cache *c, const struct rdv_place *place)
{
	uint64_t mixed = (((uint64_t)place->segment << 32) | place->offset) * 0x9e3779b97f4a7c15ull;

	return &c->buckets[mixed >> 46];
}

struct rdv_ahead *rdv_cache_find(struct rdv_cache *c, const struct rdv_place *place)
{
	struct rdv_ahead *a = *bucket(c, place);

	while (a && (a->place.segment != place->segment || a->place.offset != place->offset))
		a = a->link;
	return a;
}

struct rdv_block *rdv_cache_take(struct rdv_cache *c, struct rdv_ahead *a)
{
	struct rdv_ahead **at = bucket(c, &a->place);
	struct rdv_block *block = a->block;

	while (*at != a)
		at = &(*at)->link;
	*at = a->link;
	*(a->older ? &a->older->newer : &c->oldest) = a->newer;
	*(a->newer ? &a->newer->older : &c->newest) = a->older;
	c->bytes -= a->place.length;
	c->count--;
	a->block = NULL;
	a->link = c->free;
	c->free = a;
	return block;
}

static bool make_room(struct rdv_cache *c, uint32_t bytes, struct rdv_mono now)
{
	for (int i = 0; i < STALE_A_TIME; i++)
		if (c->oldest && !c->oldest->reading && now.ms - c->oldest->since_ms > RDV_CACHE_STALE_MS)
			rdv_block_unref(rdv_cache_take(c, c->oldest));
	return bytes <= RDV_CACHE_BYTES && c->bytes <= RDV_CACHE_BYTES - bytes;
}

struct rdv_ahead *rdv_cache_add(struct rdv_cache *c, const struct rdv_place *place, struct rdv_mono now)
{
	struct rdv_ahead *a, **at;

	if (!make_room(c, place->length, now) || rdv_cache_find(c, place))
		return NULL;
	a = c->free;
	if (a)
		c->free = a->link;
	else
		a = malloc(sizeof *a);
	if (!a)
		return NULL;
	at = bucket(c, place);
	*a = (struct rdv_ahead){.place = *place, .link = *at, .older = c->newest, .reading = true, .since_ms = now.ms};
	*at = a;
	*(c->newest ? &c->newest->newer : &c->oldest) = a;
	c->newest = a;
	c->bytes += place->length;
	c->count++;
	return a;
}
