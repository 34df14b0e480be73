/* segment_bytes.h - what segment.c and segment_writer.c share of the file's bytes. Pure; any thread. */
#ifndef RDV_DESK_SEGMENT_BYTES_H
#define RDV_DESK_SEGMENT_BYTES_H
#include <xxhash.h>
#include "segment.h"

#define RDV_DESK_SEGMENT_MAGIC "RDVLETRS"
#define RDV_DESK_SEGMENT_BLOCK_MAGIC "RDVBLOCK"

/* Seeded with where it lies, so that bytes of another place or file never pass. */
static inline uint64_t rdv_desk_segment_sum(uint64_t number, uint64_t at, const void *data, size_t size)
{
	return XXH3_64bits_withSeed(data, size, number * 0x9e3779b97f4a7c15ull ^ at);
}
void rdv_desk_segment_head_encode(const struct rdv_desk_segment_head *h, uint8_t out[RDV_DESK_SEGMENT_HEADER]);
void rdv_desk_segment_block_encode(const struct rdv_desk_segment_block *b, uint64_t number, const uint8_t *stored,
				   uint8_t out[RDV_DESK_SEGMENT_BLOCK_HEADER]);
#endif
