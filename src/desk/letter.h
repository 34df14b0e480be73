/* letter.h - one letter as bytes inside a block of a segment: a frame of envelope and body.
 *
 *   0  u32 length of the whole frame, this header included
 *   4  u32 bytes of the envelope
 *   8  u32 bytes of the body
 *  12  u8  flags: 1 = there is no body (it was damaged before it came here)
 *  13  3 bytes, zero
 *  16  envelope, then body, byte-exact
 *
 * A frame never spans blocks. Decoding takes hostile bytes. Pure; any thread. */
#ifndef RDV_DESK_LETTER_H
#define RDV_DESK_LETTER_H
#include "../base/bytes.h"

#define RDV_LETTER_FRAME_HEADER 16u
#define RDV_LETTER_MAX (272u << 20) /* bytes of one frame: body, envelope, header */
enum { RDV_LETTER_NO_BODY = 1 };

struct rdv_letter_frame {
	struct rdv_slice envelope, body; /* borrow */
	bool has_body;                   /* false: lost before it came here; an empty body is a body */
};

/* Bytes of the frame; 0 if it is larger than RDV_LETTER_MAX. */
size_t rdv_letter_frame_size(const struct rdv_letter_frame *f);
void rdv_letter_frame_encode(const struct rdv_letter_frame *f, struct rdv_buffer *out);
/* The frame that begins at `at`; *next = where the one behind it begins. CORRUPT: what is there is no whole frame. */
enum redrive_status rdv_letter_frame_decode(struct rdv_slice block, size_t at, struct rdv_letter_frame *out,
					    size_t *next) RDV_MUST_CHECK;
#endif
