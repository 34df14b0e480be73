/* record.c - names of the record types, and the records of messages as such: BODY, header lists, runs, SEEN.
 *
 * A BODY is written straight into the log's own buffer, so its size is known before its bytes: the hint part of 32
 * bytes with the place of the body, then the small fields, each with a varint length, then the body to the end. Lists
 * of runs (DONE, STARTED) and of publish ids (SEEN) have no count: they end with the payload, so that a writer may go
 * on adding.
 *
 * Decoders never read outside the payload, whatever it holds; what they give out borrows from it. A list iterator
 * answers false at its end and on damage; the reader's `failed` tells which. No allocation, no state; any thread. */
#include "record_bytes.h"

static const char *const record_names[RDV_RECORD_MAX] = {
	[RDV_RECORD_TOPIC] = "topic", [RDV_RECORD_LANE] = "lane",     [RDV_RECORD_BODY] = "body",
	[RDV_RECORD_SEEN] = "seen",   [RDV_RECORD_STATE] = "state",   [RDV_RECORD_STARTED] = "started",
	[RDV_RECORD_DONE] = "done",   [RDV_RECORD_GATE] = "gate",     [RDV_RECORD_REQUEST] = "request",
	[RDV_RECORD_PAUSE] = "pause", [RDV_RECORD_DEDUPE] = "dedupe", [RDV_RECORD_COUNTERS] = "counters",
	[RDV_RECORD_CLOSE] = "close",
};

const char *rdv_record_name(enum rdv_record type)
{
	unsigned i = (unsigned)type;

	return i < RDV_RECORD_MAX && record_names[i] ? record_names[i] : "unknown";
}

/* ---- BODY ---- */

static size_t varint_size(uint64_t v)
{
	size_t n = 1;

	for (; v >= 0x80; v >>= 7)
		n++;
	return n;
}

static size_t prefixed_size(struct rdv_slice s)
{
	return varint_size(s.size) + s.size;
}

static size_t body_at(const struct rdv_body *m)
{
	return RDV_BODY_HINT + prefixed_size(m->publish_id) + prefixed_size(m->key) + prefixed_size(m->content_type) +
	       prefixed_size(m->traceparent) + prefixed_size(m->headers);
}

size_t rdv_body_size(const struct rdv_body *m)
{
	return body_at(m) + m->body.size;
}

static uint8_t *put_bytes(uint8_t *at, struct rdv_slice s)
{
	if (s.size)
		memcpy(at, s.data, s.size);
	return at + s.size;
}

static uint8_t *put_prefixed(uint8_t *at, struct rdv_slice s)
{
	uint64_t v = s.size;

	for (; v >= 0x80; v >>= 7)
		*at++ = (uint8_t)(v | 0x80);
	*at++ = (uint8_t)v;
	return put_bytes(at, s);
}

void rdv_body_encode(const struct rdv_body *m, uint8_t *out)
{
	uint8_t *at = out + RDV_BODY_HINT;

	out[0] = RECORD_VERSION;
	out[1] = m->flags;
	out[2] = out[3] = 0;
	rdv_put_u32(out + 4, (uint32_t)body_at(m));
	rdv_put_u64(out + 8, m->key_hash);
	rdv_put_u64(out + 16, (uint64_t)m->not_before.ms);
	rdv_put_u64(out + 24, (uint64_t)m->produced_at.ms);
	at = put_prefixed(at, m->publish_id);
	at = put_prefixed(at, m->key);
	at = put_prefixed(at, m->content_type);
	at = put_prefixed(at, m->traceparent);
	at = put_prefixed(at, m->headers);
	put_bytes(at, m->body);
}

/* Reads the hint part; *body_at is where the body's bytes begin. */
static enum redrive_status decode_hint(struct rdv_reader *r, struct rdv_slice payload, struct rdv_body *out,
				       uint32_t *at)
{
	enum redrive_status status = record_begin(payload, r);

	*out = (struct rdv_body){0};
	if (status != REDRIVE_OK)
		return status;
	if (payload.size < RDV_BODY_HINT) {
		r->failed = true;
		return REDRIVE_CORRUPT;
	}
	out->flags = payload.data[1];
	*at = rdv_get_u32(payload.data + 4);
	out->key_hash = rdv_get_u64(payload.data + 8);
	out->not_before.ms = (int64_t)rdv_get_u64(payload.data + 16);
	out->produced_at.ms = (int64_t)rdv_get_u64(payload.data + 24);
	r->at = payload.data + RDV_BODY_HINT;
	return REDRIVE_OK;
}

enum redrive_status rdv_body_decode_hint(struct rdv_slice payload, struct rdv_body *out)
{
	struct rdv_reader r;
	uint32_t at;

	return decode_hint(&r, payload, out, &at);
}

enum redrive_status rdv_body_decode(struct rdv_slice payload, struct rdv_body *out)
{
	struct rdv_reader r;
	uint32_t at = 0;
	enum redrive_status status = decode_hint(&r, payload, out, &at);

	if (status != REDRIVE_OK)
		return status;
	out->publish_id = rdv_read_prefixed(&r);
	out->key = rdv_read_prefixed(&r);
	out->content_type = rdv_read_prefixed(&r);
	out->traceparent = rdv_read_prefixed(&r);
	out->headers = rdv_read_prefixed(&r);
	if (r.failed || (size_t)(r.at - payload.data) != at || !rdv_headers_valid(out->headers))
		return REDRIVE_CORRUPT;
	out->body = rdv_read_bytes(&r, rdv_reader_left(&r));
	return REDRIVE_OK;
}

/* ---- header lists ---- */

void rdv_headers_encode(struct rdv_buffer *out, const struct rdv_header *items, size_t count)
{
	rdv_buffer_varint(out, count);
	for (size_t i = 0; i < count; i++) {
		rdv_buffer_prefixed(out, items[i].name);
		rdv_buffer_prefixed(out, items[i].value);
	}
}

struct rdv_reader rdv_headers_begin(struct rdv_slice headers, uint64_t *count)
{
	struct rdv_reader r = rdv_reader(headers);

	*count = headers.size ? rdv_read_varint(&r) : 0;
	return r;
}

bool rdv_headers_next(struct rdv_reader *r, struct rdv_header *out)
{
	if (r->failed || !rdv_reader_left(r))
		return false;
	out->name = rdv_read_prefixed(r);
	out->value = rdv_read_prefixed(r);
	return !r->failed;
}

bool rdv_headers_valid(struct rdv_slice headers)
{
	uint64_t count, seen = 0;
	struct rdv_reader r = rdv_headers_begin(headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&r, &h))
		seen++;
	return !r.failed && seen == count;
}

/* ---- runs of DONE and STARTED ---- */

/* The stored code of an outcome is its place here: never reorder. */
static const enum rdv_state run_outcomes[] = {RDV_STATE_ACKED, RDV_STATE_DROPPED, RDV_STATE_DEAD, RDV_STATE_REVOKED,
					      RDV_STATE_DONE};
#define RUN_OUTCOMES (sizeof run_outcomes / sizeof run_outcomes[0])
enum { RUN_OUTCOME_BITS = 3 };

static uint64_t outcome_code(enum rdv_state outcome)
{
	for (uint64_t i = 0; i < RUN_OUTCOMES; i++)
		if (run_outcomes[i] == outcome)
			return i;
	return 0; /* STARTED: means nothing there */
}

void rdv_runs_encode(const struct rdv_run *runs, size_t count, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	for (size_t i = 0; i < count; i++) {
		rdv_buffer_varint(out, runs[i].first);
		rdv_buffer_varint(out, runs[i].count << RUN_OUTCOME_BITS | outcome_code(runs[i].outcome));
	}
}

struct rdv_reader rdv_runs_begin(struct rdv_slice payload)
{
	struct rdv_reader r;

	if (record_begin(payload, &r) != REDRIVE_OK)
		r.at = r.end;
	return r;
}

bool rdv_runs_next(struct rdv_reader *r, struct rdv_run *out)
{
	uint64_t coded;

	if (r->failed || !rdv_reader_left(r))
		return false;
	out->first = rdv_read_varint(r);
	coded = rdv_read_varint(r);
	out->count = coded >> RUN_OUTCOME_BITS;
	coded &= (1u << RUN_OUTCOME_BITS) - 1;
	out->outcome = coded < RUN_OUTCOMES ? run_outcomes[coded] : RDV_STATE_DONE;
	if (coded >= RUN_OUTCOMES || out->count == 0 || out->count - 1 > UINT64_MAX - out->first)
		r->failed = true;
	return !r->failed;
}

/* ---- SEEN ---- */

void rdv_seen_encode(const struct rdv_seen *items, size_t count, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	for (size_t i = 0; i < count; i++) {
		rdv_buffer_u64(out, items[i].id.lo);
		rdv_buffer_u64(out, items[i].id.hi);
		rdv_buffer_u64(out, items[i].offset);
		rdv_buffer_u64(out, (uint64_t)items[i].until.ms);
	}
}

struct rdv_reader rdv_seen_begin(struct rdv_slice payload)
{
	return rdv_runs_begin(payload);
}

bool rdv_seen_next(struct rdv_reader *r, struct rdv_seen *out)
{
	if (r->failed || !rdv_reader_left(r))
		return false;
	out->id.lo = rdv_read_u64(r);
	out->id.hi = rdv_read_u64(r);
	out->offset = rdv_read_u64(r);
	out->until.ms = (int64_t)rdv_read_u64(r);
	return !r->failed;
}
