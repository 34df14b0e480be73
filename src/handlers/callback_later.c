/* callback_later.c - calls whose verdict comes later: found by id, in order of their deadlines.
 *
 * Entries lie in chunks, hang in a linear hash by call id and in one list sorted by deadline. All deadlines of
 * a handler are the call's start plus the same timeout, so a new entry nearly always belongs at the end of the
 * list and the walk from there is short. What always holds: an entry is in both or in neither. Fails only for
 * memory, and then changes nothing. */
#include "callback_later.h"

struct entry {
	uint32_t link; /* the hash's */
	uint32_t next, previous;
	int64_t deadline_us;
	struct rdv_call *call; /* borrows */
};

static struct entry *at(const struct rdv_later *l, uint32_t ref)
{
	return rdv_chunks_at(&l->items, ref);
}

static uint64_t mix(uint64_t id)
{
	id *= 0x9e3779b97f4a7c15u;
	return id ^ id >> 32;
}

static uint64_t entry_hash(void *owner, uint32_t ref)
{
	return mix(at(owner, ref)->call->id);
}

static uint32_t *entry_link(void *owner, uint32_t ref)
{
	return &at(owner, ref)->link;
}

static const struct rdv_map_ops ops = {entry_hash, entry_link};

void rdv_later_init(struct rdv_later *l)
{
	*l = (struct rdv_later){0};
	rdv_chunks_init(&l->items, sizeof(struct entry));
	rdv_map_init(&l->by_id, &ops, l);
}

void rdv_later_done(struct rdv_later *l)
{
	rdv_map_done(&l->by_id);
	rdv_chunks_done(&l->items);
}

enum redrive_status rdv_later_add(struct rdv_later *l, struct rdv_call *call, int64_t deadline_us)
{
	uint32_t ref = rdv_chunks_take(&l->items), before = l->last;
	struct entry *e;

	if (!ref)
		return REDRIVE_NO_MEMORY;
	e = at(l, ref);
	e->call = call;
	e->deadline_us = deadline_us;
	if (rdv_map_insert(&l->by_id, ref)) {
		rdv_chunks_free(&l->items, ref);
		return REDRIVE_NO_MEMORY;
	}
	while (before && at(l, before)->deadline_us > deadline_us)
		before = at(l, before)->previous;
	e->previous = before;
	e->next = before ? at(l, before)->next : l->first;
	*(before ? &at(l, before)->next : &l->first) = ref;
	*(e->next ? &at(l, e->next)->previous : &l->last) = ref;
	return REDRIVE_OK;
}

static struct rdv_call *take(struct rdv_later *l, uint32_t ref)
{
	struct entry *e = at(l, ref);
	struct rdv_call *call = e->call;

	rdv_map_remove(&l->by_id, ref);
	*(e->previous ? &at(l, e->previous)->next : &l->first) = e->next;
	*(e->next ? &at(l, e->next)->previous : &l->last) = e->previous;
	rdv_chunks_free(&l->items, ref);
	return call;
}

struct rdv_call *rdv_later_take(struct rdv_later *l, uint64_t id)
{
	uint32_t ref = rdv_map_first(&l->by_id, mix(id));

	while (ref && at(l, ref)->call->id != id)
		ref = at(l, ref)->link;
	return ref ? take(l, ref) : NULL;
}

bool rdv_later_was_expired(const struct rdv_later *l, uint64_t id)
{
	for (size_t i = 0; i < RDV_LATER_EXPIRED; i++)
		if (l->expired[i] == id)
			return id != 0;
	return false;
}

struct rdv_call *rdv_later_expire(struct rdv_later *l, int64_t now_us)
{
	struct rdv_call *list = NULL, **end = &list;

	while (l->first && at(l, l->first)->deadline_us <= now_us) {
		*end = take(l, l->first);
		l->expired[l->expired_at++ % RDV_LATER_EXPIRED] = (*end)->id;
		end = &(*end)->next;
	}
	*end = NULL;
	return list;
}

struct rdv_call *rdv_later_take_all(struct rdv_later *l)
{
	struct rdv_call *list = NULL, **end = &list;

	while (l->first) {
		*end = take(l, l->first);
		end = &(*end)->next;
	}
	*end = NULL;
	return list;
}

int64_t rdv_later_next_us(const struct rdv_later *l)
{
	return l->first ? at(l, l->first)->deadline_us : RDV_NEVER;
}
