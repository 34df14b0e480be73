/* letter.c - letter frames, and the names of a letter's states.
 *
 * A frame is checked before anything in it is used: its three lengths must agree with each other and with the block
 * that holds it. Unknown flags and non-zero spare bytes are damage, too, since this version never writes them.
 * Pure; any thread. */
#include "letter.h"
#include "desk.h"

size_t rdv_letter_frame_size(const struct rdv_letter_frame *f)
{
	if (f->envelope.size > RDV_LETTER_MAX || f->body.size > RDV_LETTER_MAX)
		return 0;
	size_t size = RDV_LETTER_FRAME_HEADER + f->envelope.size + f->body.size;
	return size <= RDV_LETTER_MAX ? size : 0;
}

void rdv_letter_frame_encode(const struct rdv_letter_frame *f, struct rdv_buffer *out)
{
	rdv_buffer_u32(out, (uint32_t)rdv_letter_frame_size(f));
	rdv_buffer_u32(out, (uint32_t)f->envelope.size);
	rdv_buffer_u32(out, (uint32_t)f->body.size);
	rdv_buffer_u32(out, f->has_body ? 0 : RDV_LETTER_NO_BODY);
	rdv_buffer_slice(out, f->envelope);
	rdv_buffer_slice(out, f->body);
}

enum redrive_status rdv_letter_frame_decode(struct rdv_slice block, size_t at, struct rdv_letter_frame *out,
					    size_t *next)
{
	if (at > block.size || block.size - at < RDV_LETTER_FRAME_HEADER)
		return REDRIVE_CORRUPT;
	const uint8_t *p = block.data + at;
	uint64_t length = rdv_get_u32(p), envelope = rdv_get_u32(p + 4), body = rdv_get_u32(p + 8);
	uint32_t flags = rdv_get_u32(p + 12);
	if (length > block.size - at || length != RDV_LETTER_FRAME_HEADER + envelope + body)
		return REDRIVE_CORRUPT;
	if (flags & ~(uint32_t)RDV_LETTER_NO_BODY || (flags && body))
		return REDRIVE_CORRUPT;
	out->envelope = rdv_slice(p + RDV_LETTER_FRAME_HEADER, envelope);
	out->body = rdv_slice(p + RDV_LETTER_FRAME_HEADER + envelope, body);
	out->has_body = !(flags & RDV_LETTER_NO_BODY);
	*next = at + length;
	return REDRIVE_OK;
}

static const char *const state_names[RDV_LETTER_STATE_COUNT] = {
	[RDV_LETTER_NEW] = "new",
	[RDV_LETTER_ACKNOWLEDGED] = "acknowledged",
	[RDV_LETTER_REPAIRING] = "repairing",
	[RDV_LETTER_IN_REPLAY] = "in_replay",
	[RDV_LETTER_REPLAYED] = "replayed",
	[RDV_LETTER_RESOLVED] = "resolved",
	[RDV_LETTER_DISCARDED] = "discarded",
};

const char *rdv_letter_state_name(enum rdv_letter_state s)
{
	return (unsigned)s < RDV_LETTER_STATE_COUNT ? state_names[s] : "unknown";
}

void rdv_letter_done(struct rdv_letter *l)
{
	if (!l)
		return;
	rdv_block_unref(l->bytes);
	l->bytes = NULL;
}
