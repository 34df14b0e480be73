/* filter.h - "have I seen this letter id?": a Bloom filter that grows, one per segment, so that taking in need not ask
 * every index for every letter.
 *
 * Layers of doubling capacity; within a layer an id touches one 64-byte line only (8 bits of 512), 16 bits per id:
 * about 0.2 % of the new ids are asked for in vain. Ids are hashes already and are used as they are. "No" is certain.
 * Memory: 2 to 4 bytes per letter. One thread. */
#ifndef RDV_DESK_FILTER_H
#define RDV_DESK_FILTER_H
#include <stdbool.h>
#include <stdint.h>
#include "../base/status.h"

#define RDV_DESK_FILTER_LAYERS 24

struct rdv_desk_filter {
	struct {
		uint64_t *lines; /* owns */
		uint32_t line_count, used, capacity;
	} layers[RDV_DESK_FILTER_LAYERS];
	unsigned count;
};

void rdv_desk_filter_init(struct rdv_desk_filter *f);
void rdv_desk_filter_done(struct rdv_desk_filter *f);
enum redrive_status rdv_desk_filter_add(struct rdv_desk_filter *f, const uint8_t id[16]) RDV_MUST_CHECK; /* NO_MEMORY */
bool rdv_desk_filter_maybe(const struct rdv_desk_filter *f, const uint8_t id[16]);
#endif
