/* letters.c - the values of the letters topic; see letters.h. What is made for foreign readers: copy.c. */
#include "letters.h"
#include "magic.h"

#define HAS_BODY 1u

static void begin(struct rdv_buffer *out, enum rdv_letter_kind kind)
{
	rdv_buffer_text(out, RDV_LETTER_MAGIC);
	rdv_buffer_u8(out, (uint8_t)kind);
}

void rdv_kafka_letter_encode(struct rdv_slice envelope, struct rdv_slice body, bool has_body, struct rdv_buffer *out)
{
	begin(out, RDV_LETTER_DEAD);
	rdv_buffer_u8(out, has_body ? HAS_BODY : 0);
	rdv_buffer_prefixed(out, envelope);
	if (has_body)
		rdv_buffer_slice(out, body);
}

void rdv_kafka_outcome_encode(const struct rdv_kafka_outcome *o, struct rdv_buffer *out)
{
	begin(out, RDV_LETTER_OUTCOME);
	rdv_buffer_u8(out, o->outcome);
	rdv_buffer_append(out, o->letter, sizeof o->letter);
	rdv_buffer_varint(out, o->plan);
	rdv_buffer_varint(out, o->request);
	rdv_buffer_varint(out, o->attempts);
	rdv_buffer_varint(out, o->partition);
}

static enum redrive_status decode_dead(struct rdv_reader *r, struct rdv_kafka_letter *out)
{
	uint8_t flags = rdv_read_u8(r);

	out->has_body = flags & HAS_BODY;
	out->envelope = rdv_read_prefixed(r);
	out->body = rdv_read_bytes(r, rdv_reader_left(r));
	if (r->failed || (flags & ~HAS_BODY) || (!out->has_body && out->body.size))
		return REDRIVE_CORRUPT;
	return REDRIVE_OK;
}

static enum redrive_status decode_outcome(struct rdv_reader *r, struct rdv_kafka_outcome *out)
{
	struct rdv_slice letter;
	uint64_t attempts, partition;

	out->outcome = rdv_read_u8(r);
	letter = rdv_read_bytes(r, sizeof out->letter);
	out->plan = rdv_read_varint(r);
	out->request = rdv_read_varint(r);
	attempts = rdv_read_varint(r);
	partition = rdv_read_varint(r);
	if (r->failed || rdv_reader_left(r) || out->outcome >= RDV_STATE_COUNT || attempts > UINT32_MAX ||
	    partition > UINT32_MAX)
		return REDRIVE_CORRUPT;
	memcpy(out->letter, letter.data, sizeof out->letter);
	out->attempts = (uint32_t)attempts;
	out->partition = (uint32_t)partition;
	return REDRIVE_OK;
}

enum redrive_status rdv_kafka_letter_decode(struct rdv_slice value, struct rdv_kafka_letter *out)
{
	struct rdv_slice rest;
	struct rdv_reader r;
	enum redrive_status status = rdv_magic_open(value, RDV_LETTER_MAGIC, &rest);

	*out = (struct rdv_kafka_letter){0};
	if (status != REDRIVE_OK)
		return status;
	r = rdv_reader(rest);
	switch (rdv_read_u8(&r)) {
	case RDV_LETTER_DEAD:
		out->kind = RDV_LETTER_DEAD;
		return decode_dead(&r, out);
	case RDV_LETTER_OUTCOME:
		out->kind = RDV_LETTER_OUTCOME;
		return decode_outcome(&r, &out->outcome);
	default:
		return REDRIVE_CORRUPT;
	}
}
