/* map.c - linear hashing (Litwin 1980; Larson 1988 for the in-memory form).
 *
 * With n = 2^level + split buckets, the buckets below `split` have been split in this round:
 *
 *     0 ........ split ........ 2^level ........ 2^level + split
 *     split already | not yet  | the upper halves of the first part
 *
 * A hash belongs to bucket h mod 2^level or, when that one has been split, h mod 2^(level+1). An
 * insert that makes the load more than 4/3 first splits bucket `split`, its entries going by one more
 * bit of their hash; so the work per insert is bounded by one chain. When split reaches 2^level the
 * level rises. Buckets lie in chunks of 64 Ki; only the first chunk begins smaller and is doubled, up to
 * that size (at most 256 KiB are ever copied), so that small maps stay small. The map does not shrink.
 *
 * Invariant: 3 * count <= 4 * buckets, and every entry is in the chain of its hash's bucket. What can fail
 * is memory, before anything has changed. Single thread. */
#include "map.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BITS 16u
#define CHUNK_BUCKETS (1u << CHUNK_BITS)
#define FIRST_LEVEL 4u

void rdv_map_init(struct rdv_map *m, const struct rdv_map_ops *ops, void *owner)
{
	*m = (struct rdv_map){.ops = ops, .owner = owner, .level = FIRST_LEVEL};
}

void rdv_map_done(struct rdv_map *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->chunk_count; i++)
		free(m->chunks[i]);
	free(m->chunks);
	rdv_map_init(m, m->ops, m->owner);
}

static uint32_t *bucket_at(const struct rdv_map *m, uint32_t index)
{
	return &m->chunks[index >> CHUNK_BITS][index & (CHUNK_BUCKETS - 1)];
}

static uint32_t *bucket_of(const struct rdv_map *m, uint64_t hash)
{
	uint32_t index = (uint32_t)(hash & ((1ull << m->level) - 1));

	if (index < m->split)
		index = (uint32_t)(hash & ((2ull << m->level) - 1));
	return bucket_at(m, index);
}

static enum redrive_status add_chunk(struct rdv_map *m, uint32_t buckets)
{
	uint32_t **chunks = realloc(m->chunks, (m->chunk_count + 1) * sizeof *chunks);

	if (!chunks)
		return REDRIVE_NO_MEMORY;
	m->chunks = chunks;
	m->chunks[m->chunk_count] = malloc(buckets * sizeof **chunks); /* a split writes a bucket before it is read */
	if (!m->chunks[m->chunk_count])
		return REDRIVE_NO_MEMORY;
	m->chunk_count++;
	return REDRIVE_OK;
}

/* Memory for the bucket `index`, the one behind the last. */
static enum redrive_status make_room(struct rdv_map *m, uint32_t index)
{
	uint32_t *first;

	if (index >= CHUNK_BUCKETS)
		return index >> CHUNK_BITS < m->chunk_count ? REDRIVE_OK : add_chunk(m, CHUNK_BUCKETS);
	if (m->split)
		return REDRIVE_OK; /* the first chunk was doubled when this round began */
	first = realloc(m->chunks[0], 2 * (size_t)index * sizeof *first);
	if (!first)
		return REDRIVE_NO_MEMORY;
	m->chunks[0] = first;
	return REDRIVE_OK;
}

/* Shares the chain of bucket `split` with a new bucket; both keep the chain's order. */
static enum redrive_status split_one(struct rdv_map *m)
{
	uint32_t upper = (uint32_t)((1ull << m->level) + m->split);
	uint32_t *tails[2], ref;
	enum redrive_status status = make_room(m, upper);

	if (status != REDRIVE_OK)
		return status;
	tails[0] = bucket_at(m, m->split);
	tails[1] = bucket_at(m, upper);
	ref = *tails[0];
	while (ref) {
		unsigned side = m->ops->hash(m->owner, ref) >> m->level & 1;
		uint32_t *link = m->ops->link(m->owner, ref);
		*tails[side] = ref;
		tails[side] = link;
		ref = *link;
	}
	*tails[0] = *tails[1] = 0;
	if (++m->split == 1ull << m->level) {
		m->level++;
		m->split = 0;
	}
	return REDRIVE_OK;
}

/* What one more entry needs: the first buckets, one more bucket, or nothing. */
static enum redrive_status grow(struct rdv_map *m)
{
	uint64_t buckets = (1ull << m->level) + m->split;
	enum redrive_status status;

	if (m->chunk_count)
		return 3 * ((uint64_t)m->count + 1) > 4 * buckets && buckets < UINT32_MAX ? split_one(m) : REDRIVE_OK;
	status = add_chunk(m, 1u << FIRST_LEVEL);
	if (status == REDRIVE_OK)
		memset(m->chunks[0], 0, (1u << FIRST_LEVEL) * sizeof **m->chunks);
	return status;
}

enum redrive_status rdv_map_insert(struct rdv_map *m, uint32_t ref)
{
	enum redrive_status status;
	uint32_t *bucket;

	assert(ref != 0);
	status = grow(m);
	if (status != REDRIVE_OK)
		return status;
	bucket = bucket_of(m, m->ops->hash(m->owner, ref));
	*m->ops->link(m->owner, ref) = *bucket;
	*bucket = ref;
	m->count++;
	return REDRIVE_OK;
}

void rdv_map_remove(struct rdv_map *m, uint32_t ref)
{
	uint32_t *at;

	assert(ref != 0 && m->count != 0);
	at = bucket_of(m, m->ops->hash(m->owner, ref));
	while (*at != ref) {
		assert(*at != 0);
		at = m->ops->link(m->owner, *at);
	}
	*at = *m->ops->link(m->owner, ref);
	m->count--;
}

uint32_t rdv_map_first(const struct rdv_map *m, uint64_t hash)
{
	return m->chunk_count ? *bucket_of(m, hash) : 0;
}
