/* dedupe.c - the window of done keys: a map by key, a map by owner for those at work, a list by age for those done.
 *
 * All DONE items of a lane get the same time to live from one policy, so the list by end of work is also the list by
 * expiry, but for reloads of the ttl and jumps of the clock; then an item goes when those before it have gone. Single
 * thread. */
#include "dedupe.h"
#include <assert.h>

#define EVICT_AT_ONCE 64 /* when a reload has lowered the limit by millions */

static uint64_t item_hash(void *owner, uint32_t ref)
{
	return rdv_dedupe_at(owner, ref)->key.lo;
}

static uint32_t *item_link(void *owner, uint32_t ref)
{
	return &rdv_dedupe_at(owner, ref)->link;
}

/* Positions are dense, and neighbours should not share buckets' bits alone: multiplied by the golden ratio. */
static uint64_t owner_hash_of(struct rdv_dedupe_owner owner)
{
	return ((owner.seq ^ (uint64_t)owner.stream << 40) * 0x9e3779b97f4a7c15ull) >> 20;
}

static uint64_t owner_hash(void *owner, uint32_t ref)
{
	const struct rdv_dedupe_item *i = rdv_dedupe_at(owner, ref);

	return owner_hash_of((struct rdv_dedupe_owner){i->owner_seq, i->owner_stream});
}

static uint32_t *owner_link(void *owner, uint32_t ref)
{
	return &rdv_dedupe_at(owner, ref)->owner_link;
}

static const struct rdv_map_ops item_ops = {item_hash, item_link};
static const struct rdv_map_ops owner_ops = {owner_hash, owner_link};

void rdv_dedupe_init(struct rdv_dedupe *d)
{
	*d = (struct rdv_dedupe){0};
	rdv_chunks_init(&d->items, sizeof(struct rdv_dedupe_item));
	rdv_map_init(&d->map, &item_ops, d);
	rdv_map_init(&d->by_owner, &owner_ops, d);
}

void rdv_dedupe_done(struct rdv_dedupe *d)
{
	if (!d)
		return;
	rdv_map_done(&d->map);
	rdv_map_done(&d->by_owner);
	rdv_chunks_done(&d->items);
}

uint32_t rdv_dedupe_find(const struct rdv_dedupe *d, struct rdv_hash128 key)
{
	uint32_t ref = rdv_map_first(&d->map, key.lo);

	while (ref && (rdv_dedupe_at(d, ref)->key.lo != key.lo || rdv_dedupe_at(d, ref)->key.hi != key.hi))
		ref = rdv_dedupe_at(d, ref)->link;
	return ref;
}

uint32_t rdv_dedupe_owned(const struct rdv_dedupe *d, struct rdv_dedupe_owner owner)
{
	uint32_t ref = rdv_map_first(&d->by_owner, owner_hash_of(owner));

	while (ref && !rdv_dedupe_is_owner(rdv_dedupe_at(d, ref), owner))
		ref = rdv_dedupe_at(d, ref)->owner_link;
	return ref;
}

uint32_t rdv_dedupe_claim(struct rdv_dedupe *d, struct rdv_hash128 key, struct rdv_dedupe_owner owner)
{
	uint32_t ref = rdv_chunks_take(&d->items);
	struct rdv_dedupe_item *i;

	if (!ref)
		return 0;
	i = rdv_dedupe_at(d, ref);
	i->key = key;
	i->owner_seq = owner.seq;
	i->owner_stream = owner.stream;
	i->state = RDV_DEDUPE_PROCESSING;
	if (rdv_map_insert(&d->map, ref) != REDRIVE_OK)
		goto fail;
	if (rdv_map_insert(&d->by_owner, ref) != REDRIVE_OK) {
		rdv_map_remove(&d->map, ref);
		goto fail;
	}
	return ref;
fail:
	rdv_chunks_free(&d->items, ref);
	return 0;
}

static void unlink_done(struct rdv_dedupe *d, uint32_t ref)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(d, ref);

	if (i->older)
		rdv_dedupe_at(d, i->older)->newer = i->newer;
	else
		d->oldest = i->newer;
	if (i->newer)
		rdv_dedupe_at(d, i->newer)->older = i->older;
	else
		d->newest = i->older;
	i->older = i->newer = 0;
	d->done--;
}

void rdv_dedupe_free(struct rdv_dedupe *d, uint32_t ref)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(d, ref);

	assert(!i->waiters);
	if (i->state == RDV_DEDUPE_DONE)
		unlink_done(d, ref);
	else
		rdv_map_remove(&d->by_owner, ref);
	rdv_map_remove(&d->map, ref);
	i->state = 0;
	rdv_chunks_free(&d->items, ref);
}

void rdv_dedupe_finish(struct rdv_dedupe *d, uint32_t ref, struct rdv_wall until, uint64_t limit)
{
	struct rdv_dedupe_item *i = rdv_dedupe_at(d, ref);

	assert(i->state == RDV_DEDUPE_PROCESSING);
	rdv_map_remove(&d->by_owner, ref);
	i->state = RDV_DEDUPE_DONE;
	i->until = until;
	i->older = d->newest;
	if (d->newest)
		rdv_dedupe_at(d, d->newest)->newer = ref;
	else
		d->oldest = ref;
	d->newest = ref;
	d->done++;
	for (unsigned n = 0; n < EVICT_AT_ONCE && d->done > (limit ? limit : 1); n++) {
		d->evicted++;
		rdv_dedupe_free(d, d->oldest);
	}
}

void rdv_dedupe_expire(struct rdv_dedupe *d, struct rdv_wall now, uint32_t most)
{
	while (most-- && d->oldest && rdv_dedupe_at(d, d->oldest)->until.ms <= now.ms)
		rdv_dedupe_free(d, d->oldest);
}

bool rdv_dedupe_check(const struct rdv_dedupe *d)
{
	uint32_t count = 0, before = 0;

	for (uint32_t ref = d->oldest; ref; before = ref, ref = rdv_dedupe_at(d, ref)->newer) {
		const struct rdv_dedupe_item *i = rdv_dedupe_at(d, ref);
		if (++count > d->done || i->older != before || i->state != RDV_DEDUPE_DONE || i->waiters ||
		    rdv_dedupe_find(d, i->key) != ref)
			return false;
	}
	return before == d->newest && count == d->done && d->map.count == d->items.count &&
	       d->by_owner.count == d->items.count - d->done;
}
