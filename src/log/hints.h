/* hints.h - hint files: what a fold needs of a sealed segment, so that opening need not read the bodies.
 *
 *    0       8         12        16       32      40       48      52    56       64      68
 *    +-------+---------+---------+--------+-------+--------+-------+-----+--------+-------+-----+
 *    | magic | version | segment | log id | first | last   | end   | 0   | bytes  | sum   | crc | entries ...
 *    +-------+---------+---------+--------+-------+--------+-------+-----+--------+-------+-----+
 *    entry:  type 1, flags 1, hint_len 2, stream 4, seq 8, length 4, then hint_len bytes; one for every frame, in order
 * first, last: frame numbers; end: offset behind the last frame; bytes: of all entries; sum: their CRC32C; crc: of the
 * 68 before. A frame's offset is the sum of the sizes before it. Only segments behind which another frame is durable
 * get hints. A hint file is never needed: missing, older, newer or damaged ones are passed over and the segment is read
 * instead. */
#ifndef RDV_LOG_HINTS_H
#define RDV_LOG_HINTS_H
#include "segment.h"

#define RDV_HINTS_VERSION 1u
#define RDV_HINTS_HEADER 72u

struct rdv_hints {
	uint32_t segment, end;
	uint64_t first, last;
	uint8_t *data; /* owns: the whole file */
	size_t size;
	/* iteration */
	size_t at;
	uint32_t offset;
	uint64_t number;
};
/* NULL if there are none, or none that can be trusted. */
struct rdv_hints *rdv_hints_load(const struct rdv_store *s, uint32_t segment);
void rdv_hints_free(struct rdv_hints *h); /* accepts NULL */
/* Next frame; its payload is its hint, borrowed; `synced` is 0. False at the end. */
bool rdv_hints_next(struct rdv_hints *h, struct rdv_frame *frame);
/* Makes <segment>.hint: begin, each of its frames in order and checked, then end or drop. */
struct rdv_hints_writer {
	const struct rdv_store *store; /* borrows */
	uint32_t segment, end;         /* end: behind the last frame so far */
	uint64_t first, last;
	struct rdv_buffer out; /* owns */
};
void rdv_hints_begin(struct rdv_hints_writer *w, const struct rdv_store *s, uint32_t segment);
void rdv_hints_add(struct rdv_hints_writer *w, const struct rdv_frame *frame);
enum redrive_status rdv_hints_end(struct rdv_hints_writer *w, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_hints_drop(struct rdv_hints_writer *w);
#endif
