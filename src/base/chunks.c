/* chunks.c - arrays that never move.
 *
 *   chunks -> [ chunk 0 ] [ chunk 1 ] ...      each RDV_CHUNK_ITEMS items of item_size bytes
 *   ref r lives in chunk (r-1) / RDV_CHUNK_ITEMS, place (r-1) % RDV_CHUNK_ITEMS
 *   free_list -> item -> item -> 0             the link is the first 4 bytes of a freed item
 *
 * Invariant: count + length of the free list = used. Only the small array of chunk pointers is ever
 * reallocated, doubling; chunks are given back by done alone. A chunk's memory is touched when its items are
 * taken, not before. Memory is the only thing that can fail. Single thread. */
#include "chunks.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

void rdv_chunks_init(struct rdv_chunks *c, size_t item_size)
{
	assert(item_size >= sizeof(uint32_t) && item_size <= UINT32_MAX / RDV_CHUNK_ITEMS);
	*c = (struct rdv_chunks){.item_size = (uint32_t)item_size};
}

void rdv_chunks_done(struct rdv_chunks *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->chunk_count; i++)
		free(c->chunks[i]);
	free(c->chunks);
	*c = (struct rdv_chunks){.item_size = c->item_size};
}

static enum redrive_status add_chunk(struct rdv_chunks *c)
{
	uint8_t *chunk;

	if (c->chunk_count == c->chunk_capacity) {
		uint32_t capacity = c->chunk_capacity ? c->chunk_capacity * 2 : 4;
		uint8_t **chunks = realloc(c->chunks, capacity * sizeof *chunks);
		if (!chunks)
			return REDRIVE_NO_MEMORY;
		c->chunks = chunks;
		c->chunk_capacity = capacity;
	}
	chunk = malloc((size_t)RDV_CHUNK_ITEMS * c->item_size);
	if (!chunk)
		return REDRIVE_NO_MEMORY;
	c->chunks[c->chunk_count++] = chunk;
	return REDRIVE_OK;
}

uint32_t rdv_chunks_take(struct rdv_chunks *c)
{
	uint32_t ref = c->free_list;
	void *item;

	if (ref) {
		item = rdv_chunks_at(c, ref);
		memcpy(&c->free_list, item, sizeof c->free_list);
	} else {
		if (c->used == UINT32_MAX)
			return 0;
		if (c->used / RDV_CHUNK_ITEMS == c->chunk_count && add_chunk(c) != REDRIVE_OK)
			return 0;
		ref = ++c->used;
		item = rdv_chunks_at(c, ref);
	}
	memset(item, 0, c->item_size);
	c->count++;
	return ref;
}

void rdv_chunks_free(struct rdv_chunks *c, uint32_t ref)
{
	assert(ref != 0 && ref <= c->used && c->count != 0);
	memcpy(rdv_chunks_at(c, ref), &c->free_list, sizeof c->free_list);
	c->free_list = ref;
	c->count--;
}

size_t rdv_chunks_bytes(const struct rdv_chunks *c)
{
	return (size_t)c->chunk_count * RDV_CHUNK_ITEMS * c->item_size + c->chunk_capacity * sizeof *c->chunks;
}
