/* chunks.h - an array of equal items in chunks of 16,384 that never move, with a free list.
 * References are 1-based (0 = none) and stay valid until freed. Freed items are reused, last first.
 * The first 4 bytes of a freed item are the free list's. Single thread. */
#ifndef RDV_BASE_CHUNKS_H
#define RDV_BASE_CHUNKS_H
#include <stddef.h>
#include <stdint.h>
#include "status.h"

#define RDV_CHUNK_ITEMS 16384u

struct rdv_chunks {
	uint8_t **chunks; /* owns */
	uint32_t chunk_count, chunk_capacity;
	uint32_t item_size;
	uint32_t used;      /* highest reference ever given */
	uint32_t free_list; /* 0 = none */
	uint32_t count;     /* items in use */
};

void rdv_chunks_init(struct rdv_chunks *c, size_t item_size); /* item_size >= 4 */
void rdv_chunks_done(struct rdv_chunks *c);
uint32_t rdv_chunks_take(struct rdv_chunks *c); /* zeroed item; 0 without memory */
void rdv_chunks_free(struct rdv_chunks *c, uint32_t ref);
size_t rdv_chunks_bytes(const struct rdv_chunks *c); /* memory held */
static inline void *rdv_chunks_at(const struct rdv_chunks *c, uint32_t ref)
{
	uint32_t i = ref - 1;
	return c->chunks[i / RDV_CHUNK_ITEMS] + (size_t)(i % RDV_CHUNK_ITEMS) * c->item_size;
}
#endif
