/* order.c - lists of members by position, and the map of keys. See order.h for what is kept; nothing here decides.
 * What can fail is memory for a new key. Single thread. */
#include "order.h"
#include <assert.h>

static uint64_t key_hash(void *owner, uint32_t ref)
{
	return rdv_order_key(owner, ref)->hash;
}

static uint32_t *key_link(void *owner, uint32_t ref)
{
	return &rdv_order_key(owner, ref)->link;
}

static const struct rdv_map_ops key_ops = {key_hash, key_link};

void rdv_order_init(struct rdv_keys *o, struct rdv_chunks *entries)
{
	*o = (struct rdv_keys){.entries = entries};
	rdv_chunks_init(&o->keys, sizeof(struct rdv_key));
	rdv_map_init(&o->map, &key_ops, o);
}

void rdv_order_done(struct rdv_keys *o)
{
	if (!o)
		return;
	rdv_map_done(&o->map);
	rdv_chunks_done(&o->keys);
}

uint32_t rdv_order_find(const struct rdv_keys *o, uint64_t hash)
{
	uint32_t ref = rdv_map_first(&o->map, hash);

	while (ref && rdv_order_key(o, ref)->hash != hash)
		ref = rdv_order_key(o, ref)->link;
	return ref;
}

uint32_t rdv_order_get(struct rdv_keys *o, uint64_t hash)
{
	uint32_t ref = rdv_order_find(o, hash);

	if (ref)
		return ref;
	ref = rdv_chunks_take(&o->keys);
	if (!ref)
		return 0;
	rdv_order_key(o, ref)->hash = hash;
	rdv_order_key(o, ref)->used = 1;
	if (rdv_map_insert(&o->map, ref) != REDRIVE_OK) {
		rdv_chunks_free(&o->keys, ref);
		return 0;
	}
	return ref;
}

void rdv_order_drop_idle(struct rdv_keys *o, uint32_t ref)
{
	struct rdv_key *k = rdv_order_key(o, ref);

	if (k->refs || k->first || k->turn || k->blocked || k->closed || k->replays)
		return;
	rdv_map_remove(&o->map, ref);
	k->used = 0;
	rdv_chunks_free(&o->keys, ref);
}

void rdv_order_insert(struct rdv_keys *o, struct rdv_key *k, uint32_t ref)
{
	struct rdv_entry *e = rdv_entry_at(o->entries, ref);
	uint32_t *at = &k->first;

	if (k->last && rdv_entry_at(o->entries, k->last)->seq < e->seq)
		at = &rdv_entry_at(o->entries, k->last)->member;
	else
		while (*at && rdv_entry_at(o->entries, *at)->seq < e->seq)
			at = &rdv_entry_at(o->entries, *at)->member;
	e->member = *at;
	*at = ref;
	if (!e->member)
		k->last = ref;
}

void rdv_order_remove(struct rdv_keys *o, struct rdv_key *k, uint32_t ref)
{
	struct rdv_entry *e = rdv_entry_at(o->entries, ref);
	uint32_t before = 0, at = k->first;

	while (at != ref) {
		assert(at);
		before = at;
		at = rdv_entry_at(o->entries, at)->member;
	}
	if (before)
		rdv_entry_at(o->entries, before)->member = e->member;
	else
		k->first = e->member;
	if (k->last == ref)
		k->last = before;
	e->member = 0;
}

uint32_t rdv_order_each(const struct rdv_keys *o, uint32_t after)
{
	while (after < o->keys.used)
		if (rdv_order_key(o, ++after)->used)
			return after;
	return 0;
}

static bool check_key(const struct rdv_keys *o, uint32_t ref)
{
	const struct rdv_key *k = rdv_order_key(o, ref);
	uint32_t last = 0;

	for (uint32_t at = k->first; at; at = rdv_entry_at(o->entries, at)->member) {
		if (last && rdv_entry_at(o->entries, last)->seq >= rdv_entry_at(o->entries, at)->seq)
			return false;
		last = at;
	}
	return last == k->last && rdv_order_find(o, k->hash) == ref;
}

bool rdv_order_check(const struct rdv_keys *o)
{
	uint32_t seen = 0, closed = 0;

	for (uint32_t ref = 0; (ref = rdv_order_each(o, ref)) != 0; seen++) {
		if (!check_key(o, ref))
			return false;
		closed += rdv_order_key(o, ref)->closed;
	}
	return seen == o->map.count && seen == o->keys.count && closed == o->closed;
}
