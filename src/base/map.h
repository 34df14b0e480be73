/* map.h - linear hashing over 32-bit references: grows by one bucket per insert, never doubles.
 *
 * The map stores only references (indices into the owner's chunks, 1..2^32-1; 0 = none). The chain
 * link of an entry lies in the entry itself; the owner gives access by two functions. Load 1.33 entries a
 * bucket, 4 bytes a bucket, buckets in chunks of 64 Ki, so that no insert ever stalls.
 * Single thread. */
#ifndef RDV_BASE_MAP_H
#define RDV_BASE_MAP_H
#include <stdbool.h>
#include <stdint.h>
#include "status.h"

struct rdv_map_ops {
	uint64_t (*hash)(void *owner, uint32_t ref);  /* the entry's hash, the one it was inserted with */
	uint32_t *(*link)(void *owner, uint32_t ref); /* where the entry keeps its chain link */
};

struct rdv_map {
	const struct rdv_map_ops *ops; /* borrows */
	void *owner;                   /* borrows; passed to ops */
	uint32_t **chunks;             /* owns */
	uint32_t chunk_count, level, split;
	uint32_t count;
};

void rdv_map_init(struct rdv_map *m, const struct rdv_map_ops *ops, void *owner);
void rdv_map_done(struct rdv_map *m);
enum redrive_status rdv_map_insert(struct rdv_map *m, uint32_t ref) RDV_MUST_CHECK; /* NO_MEMORY: not inserted */
void rdv_map_remove(struct rdv_map *m, uint32_t ref);                               /* it must be in the map */
/* First entry of the hash's chain (0 = none); go on with *ops->link. The caller compares keys itself: the chain
 * holds entries of other hashes, too. */
uint32_t rdv_map_first(const struct rdv_map *m, uint64_t hash);
#endif
