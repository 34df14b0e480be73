/* frame.c - see frame.h for the drawing.
 *
 * The seed of a frame does not depend on the frame before it, so the processor overlaps the checksums of neighbours.
 * rdv_frame_valid is the only judge of bytes from disk: it bounds the length before it reads, and refuses headers that
 * no writer makes (number 0, synced not below the number, unknown flags, a hint longer than the payload).
 * rdv_frame_find is for what lies behind a bad place: it tries every byte, so a cheap look at the number comes first.
 */
#include "frame.h"

enum { AT_LENGTH = 0, AT_CRC = 4, AT_NUMBER = 8, AT_SYNCED = 16, AT_TYPE = 24, AT_FLAGS = 25, AT_HINT = 26 };
enum { AT_STREAM = 28, AT_SEQ = 32 };

uint32_t rdv_frame_seed(struct rdv_hash128 log_id, uint64_t salt)
{
	uint8_t bytes[24];

	rdv_put_u64(bytes, log_id.lo);
	rdv_put_u64(bytes + 8, log_id.hi);
	rdv_put_u64(bytes + 16, salt);
	return rdv_crc32c(0, bytes, sizeof bytes);
}

void rdv_frame_encode(const struct rdv_frame *frame, uint8_t *bytes)
{
	rdv_put_u32(bytes + AT_LENGTH, frame->length);
	rdv_put_u32(bytes + AT_CRC, 0);
	rdv_put_u64(bytes + AT_NUMBER, frame->number);
	rdv_put_u64(bytes + AT_SYNCED, frame->synced);
	bytes[AT_TYPE] = frame->type;
	bytes[AT_FLAGS] = frame->flags;
	memcpy(bytes + AT_HINT, &frame->hint_len, 2);
	rdv_put_u32(bytes + AT_STREAM, frame->stream);
	rdv_put_u64(bytes + AT_SEQ, frame->seq);
}

static uint32_t checksum(uint32_t seed, const uint8_t *bytes, struct rdv_position at)
{
	uint32_t length = rdv_get_u32(bytes + AT_LENGTH);
	uint32_t place[3] = {at.segment, at.offset, length};

	return rdv_crc32c(rdv_crc32c(seed, place, sizeof place), bytes + AT_NUMBER,
			  RDV_FRAME_HEADER - AT_NUMBER + (size_t)length);
}

void rdv_frame_seal(uint32_t seed, uint8_t *bytes, struct rdv_position at, bool more)
{
	if (more)
		bytes[AT_FLAGS] |= RDV_FRAME_MORE;
	rdv_put_u32(bytes + AT_CRC, checksum(seed, bytes, at));
}

void rdv_frame_decode(const uint8_t *bytes, struct rdv_position at, struct rdv_frame *out)
{
	out->length = rdv_get_u32(bytes + AT_LENGTH);
	out->number = rdv_get_u64(bytes + AT_NUMBER);
	out->synced = rdv_get_u64(bytes + AT_SYNCED);
	out->type = bytes[AT_TYPE];
	out->flags = bytes[AT_FLAGS];
	memcpy(&out->hint_len, bytes + AT_HINT, 2);
	out->stream = rdv_get_u32(bytes + AT_STREAM);
	out->seq = rdv_get_u64(bytes + AT_SEQ);
	out->position = at;
	out->payload = rdv_slice(bytes + RDV_FRAME_HEADER, out->length);
}

bool rdv_frame_valid(uint32_t seed, struct rdv_slice bytes, struct rdv_position at, struct rdv_frame *out)
{
	if (bytes.size < RDV_FRAME_HEADER)
		return false;
	rdv_frame_decode(bytes.data, at, out);
	if (out->length > bytes.size - RDV_FRAME_HEADER || out->number == 0 || out->synced >= out->number)
		return false;
	if ((out->flags & ~RDV_FRAME_MORE) || out->hint_len > out->length)
		return false;
	return rdv_get_u32(bytes.data + AT_CRC) == checksum(seed, bytes.data, at);
}

bool rdv_frame_find(uint32_t seed, struct rdv_slice image, struct rdv_position at, uint64_t after,
		    struct rdv_frame *out)
{
	size_t offset = at.offset;

	for (; image.size >= RDV_FRAME_HEADER && offset <= image.size - RDV_FRAME_HEADER; offset++) {
		uint64_t number = rdv_get_u64(image.data + offset + AT_NUMBER);
		struct rdv_position here = {at.segment, (uint32_t)offset};

		if (number == 0 && rdv_get_u64(image.data + offset + AT_SYNCED) == 0) {
			offset += 7; /* 16 zeros: none of the next numbers is anything but zero */
			continue;
		}
		if (number > after && number - after <= UINT32_MAX &&
		    rdv_frame_valid(seed, rdv_slice(image.data + offset, image.size - offset), here, out))
			return true;
	}
	return false;
}
