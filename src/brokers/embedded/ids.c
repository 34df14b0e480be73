/* ids.c - the table of publish ids: chunks, a linear hash, and a list from the oldest to the newest.
 *
 * Hashes are keyed (SipHash with the topic's secret), so their low half serves as the map's hash. Ids of different
 * topics never meet: an entry belongs to the streams of its topic. Memory is bounded by `max` entries of 64 bytes. Not
 * thread-safe: topic.c locks. */
#include "ids.h"

#define EVICT_MOST 64

static uint64_t id_hash(void *owner, uint32_t ref)
{
	struct rdv_ids *s = owner;

	return ((struct rdv_id *)rdv_chunks_at(&s->items, ref))->hash.lo;
}

static uint32_t *id_link(void *owner, uint32_t ref)
{
	struct rdv_ids *s = owner;

	return &((struct rdv_id *)rdv_chunks_at(&s->items, ref))->link;
}

static const struct rdv_map_ops id_map_ops = {id_hash, id_link};

static struct rdv_id *at(struct rdv_ids *s, uint32_t ref)
{
	return ref ? rdv_chunks_at(&s->items, ref) : NULL;
}

void rdv_ids_init(struct rdv_ids *s, uint64_t max)
{
	*s = (struct rdv_ids){.max = max};
	rdv_chunks_init(&s->items, sizeof(struct rdv_id));
	rdv_map_init(&s->map, &id_map_ops, s);
}

void rdv_ids_done(struct rdv_ids *s)
{
	rdv_map_done(&s->map);
	rdv_chunks_done(&s->items);
}

struct rdv_id *rdv_ids_find(struct rdv_ids *s, uint32_t first_stream, uint32_t streams, struct rdv_hash128 hash)
{
	for (uint32_t ref = rdv_map_first(&s->map, hash.lo); ref; ref = *id_link(s, ref)) {
		struct rdv_id *id = at(s, ref);

		if (id->hash.lo == hash.lo && id->hash.hi == hash.hi && id->stream - first_stream < streams)
			return id;
	}
	return NULL;
}

/* The reference of an entry is kept by its neighbours; the ends know their own. */
static uint32_t ref_of(struct rdv_ids *s, const struct rdv_id *id)
{
	if (id->older)
		return at(s, id->older)->newer;
	return s->oldest;
}

static void unlink_id(struct rdv_ids *s, struct rdv_id *id)
{
	if (id->older)
		at(s, id->older)->newer = id->newer;
	else
		s->oldest = id->newer;
	if (id->newer)
		at(s, id->newer)->older = id->older;
	else
		s->newest = id->older;
}

static void link_newest(struct rdv_ids *s, uint32_t ref)
{
	struct rdv_id *id = at(s, ref);

	id->older = s->newest;
	id->newer = 0;
	if (s->newest)
		at(s, s->newest)->newer = ref;
	else
		s->oldest = ref;
	s->newest = ref;
}

void rdv_ids_remove(struct rdv_ids *s, struct rdv_id *id)
{
	uint32_t ref = ref_of(s, id);

	unlink_id(s, id);
	rdv_map_remove(&s->map, ref);
	rdv_chunks_free(&s->items, ref);
}

void rdv_ids_renew(struct rdv_ids *s, struct rdv_id *id)
{
	uint32_t ref = ref_of(s, id);

	unlink_id(s, id);
	link_newest(s, ref);
}

struct rdv_id *rdv_ids_oldest(struct rdv_ids *s)
{
	return at(s, s->oldest);
}

struct rdv_id *rdv_ids_newer(struct rdv_ids *s, const struct rdv_id *id)
{
	return at(s, id->newer);
}

unsigned rdv_ids_expire(struct rdv_ids *s, struct rdv_wall now, unsigned most)
{
	unsigned gone = 0;

	for (; gone < most && s->oldest && at(s, s->oldest)->until.ms <= now.ms; gone++)
		rdv_ids_remove(s, at(s, s->oldest));
	return gone;
}

struct rdv_id *rdv_ids_add(struct rdv_ids *s, struct rdv_hash128 hash, uint32_t stream, struct rdv_wall now)
{
	uint32_t ref;
	struct rdv_id *id;

	rdv_ids_expire(s, now, 2);
	/* A lowered limit is reached step by step: publishers wait for this. */
	for (unsigned n = 0; n < EVICT_MOST && s->max && s->items.count >= s->max; n++) {
		if (at(s, s->oldest)->segment >= RDV_ID_NEW - 1)
			break;
		s->evicted += at(s, s->oldest)->until.ms > now.ms;
		rdv_ids_remove(s, at(s, s->oldest));
	}
	ref = rdv_chunks_take(&s->items);
	if (!ref)
		return NULL;
	id = at(s, ref);
	id->hash = hash;
	id->stream = stream;
	if (rdv_map_insert(&s->map, ref) != REDRIVE_OK) {
		rdv_chunks_free(&s->items, ref);
		return NULL;
	}
	link_newest(s, ref);
	return id;
}
