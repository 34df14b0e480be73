/* frame.h - frames as bytes: header, checksum, and finding them in a segment's image.
 *
 *    0        4        8              16             24   25    26       28       32             40
 *    +--------+--------+--------------+--------------+----+-----+--------+--------+--------------+---------
 *    | length | crc    | number       | synced       |type|flags|hint_len| stream | seq          | payload
 *    +--------+--------+--------------+--------------+----+-----+--------+--------+--------------+---------
 * The CRC32C runs over everything but itself and starts from a seed made of the log's id and salt, the segment and the
 * offset: a frame is valid only where it was written, so what a recycled segment still holds never passes.
 * A header of zeros ends a segment's frames. An *image* is a segment's bytes from offset 0. Pure; any thread. */
#ifndef RDV_LOG_FRAME_H
#define RDV_LOG_FRAME_H
#include "log.h"

/* The part of the seed that all frames of a log share. */
uint32_t rdv_frame_seed(struct rdv_hash128 log_id, uint64_t salt);
/* Writes the header without its checksum; the payload follows it. */
void rdv_frame_encode(const struct rdv_frame *frame, uint8_t *bytes);
/* Sets MORE if `more`, and takes the checksum of a frame whose header and payload are complete. */
void rdv_frame_seal(uint32_t seed, uint8_t *bytes, struct rdv_position at, bool more);
/* Reads a header that is trusted or will be checked. The payload slice is set, wherever it ends. */
void rdv_frame_decode(const uint8_t *bytes, struct rdv_position at, struct rdv_frame *out);
/* True if `bytes`, which lie at `at`, begin with a frame that fits into them, makes sense and has the right checksum.
 */
bool rdv_frame_valid(uint32_t seed, struct rdv_slice bytes, struct rdv_position at, struct rdv_frame *out);
/* The next valid frame at or behind `at` whose number is greater than `after`; looks at every byte. */
bool rdv_frame_find(uint32_t seed, struct rdv_slice image, struct rdv_position at, uint64_t after,
		    struct rdv_frame *out);
#endif
