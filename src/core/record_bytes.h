/* record_bytes.h - what all decoders of records share: the version byte, and the check at the end. Private to
 * record*.c.
 *
 * Every payload begins with a version byte. 0 is damage (a zero-filled segment is full of it); a higher one than ours
 * is a newer format, which must be left alone. A payload with bytes behind its last field is damage, too. */
#ifndef RDV_CORE_RECORD_BYTES_H
#define RDV_CORE_RECORD_BYTES_H
#include "record.h"

#define RECORD_VERSION 1

static inline enum redrive_status record_begin(struct rdv_slice payload, struct rdv_reader *r)
{
	uint8_t version;

	*r = rdv_reader(payload);
	version = rdv_read_u8(r);
	if (r->failed || version == 0) {
		r->failed = true;
		return REDRIVE_CORRUPT;
	}
	if (version > RECORD_VERSION) {
		r->failed = true;
		return REDRIVE_VERSION;
	}
	return REDRIVE_OK;
}

static inline enum redrive_status record_end(const struct rdv_reader *r)
{
	return r->failed || rdv_reader_left(r) ? REDRIVE_CORRUPT : REDRIVE_OK;
}

/* A prefixed field of at most `max` bytes; longer is damage. */
static inline struct rdv_slice record_text(struct rdv_reader *r, size_t max)
{
	struct rdv_slice s = rdv_read_prefixed(r);

	if (s.size <= max)
		return s;
	r->failed = true;
	r->at = r->end;
	return rdv_slice(NULL, 0);
}

/* A varint that must fit 32 bits. */
static inline uint32_t record_u32(struct rdv_reader *r)
{
	uint64_t v = rdv_read_varint(r);

	if (v <= UINT32_MAX)
		return (uint32_t)v;
	r->failed = true;
	r->at = r->end;
	return 0;
}

/* Prefixed, cut to `max` bytes without splitting a character. */
static inline void record_put_text(struct rdv_buffer *out, struct rdv_slice s, size_t max)
{
	rdv_buffer_prefixed(out, s.size <= max ? s : rdv_slice_cut_utf8(s, max));
}

/* The failure and the history are the same bytes in a STATE and in an envelope (record_state.c). Encoding cuts to the
 * limits. */
void rdv_failure_encode(const struct rdv_failure *f, struct rdv_buffer *out);
void rdv_failure_decode(struct rdv_reader *r, struct rdv_failure *f);
void rdv_history_encode(uint32_t omitted, const struct rdv_attempt *items, uint32_t count, struct rdv_buffer *out);
/* The count; 0 and r->failed on damage. */
uint32_t rdv_history_decode(struct rdv_reader *r, uint32_t *omitted, struct rdv_attempt items[1 + RDV_HISTORY_LAST]);
#endif
