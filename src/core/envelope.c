/* envelope.c - a dead letter's canonical form: one format for the desk, for export and for brokers.
 *
 * First a fixed part of 128 bytes, which an index can read without looking at the rest: reason, flags, position, times,
 * counts, fingerprint, size and digest of the body. Then prefixed texts in a fixed order, the failure, the headers, the
 * index terms and the history, the latter two encoded as in records. The body is not inside: it lies beside,
 * byte-exact.
 *
 * The letter id depends on where the message was and how often it died, never on when or why: taking the same letter in
 * twice is seen. A corrected copy adds its number; the original's id does not change by that.
 *
 * Decoding refuses damage and newer versions; slices borrow. Only the output buffer allocates. Any thread. */
#include "envelope.h"
#include "record_bytes.h"
#define XXH_STATIC_LINKING_ONLY
#include <stddef.h>
#include <xxhash.h>

enum { NULL_KEY = 1, TOMBSTONE = 2, BODY_TRUNCATED = 4, KNOWN_FLAGS = 7 };
#define FIXED_SIZE 128
#define TEXT_BYTES 65536 /* of one text that comes from headers or configuration */

static void encode_fixed(const struct rdv_envelope *e, struct rdv_buffer *out)
{
	uint8_t flags = 0;

	if (e->null_key)
		flags |= NULL_KEY;
	if (e->tombstone)
		flags |= TOMBSTONE;
	if (e->body_truncated)
		flags |= BODY_TRUNCATED;
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, flags);
	rdv_buffer_u8(out, (uint8_t)e->reason);
	rdv_buffer_u8(out, 0);
	rdv_buffer_u32(out, e->partition);
	rdv_buffer_u64(out, e->offset);
	rdv_buffer_u32(out, e->generation);
	rdv_buffer_u32(out, e->copy);
	rdv_buffer_u64(out, e->fingerprint);
	rdv_buffer_u64(out, (uint64_t)e->produced_at.ms);
	rdv_buffer_u64(out, (uint64_t)e->first_failed_at.ms);
	rdv_buffer_u64(out, (uint64_t)e->last_failed_at.ms);
	rdv_buffer_u64(out, (uint64_t)e->dead_at.ms);
	rdv_buffer_u32(out, e->deliveries);
	rdv_buffer_u32(out, e->causes.failures);
	rdv_buffer_u32(out, e->causes.timeouts);
	rdv_buffer_u32(out, e->causes.crashes);
	rdv_buffer_u32(out, e->causes.shutdowns);
	rdv_buffer_u32(out, e->causes.deferrals);
	rdv_buffer_u32(out, e->causes.outage);
	rdv_buffer_u32(out, 0);
	rdv_buffer_u64(out, e->body_size);
	rdv_buffer_append(out, e->body_sha256, sizeof e->body_sha256);
}

/* The texts of an envelope in the order of their bytes: append only. */
static const struct {
	size_t at;
	size_t max;
} texts[] = {
#define TEXT(field, max)                                                                                               \
	{                                                                                                              \
		offsetof(struct rdv_envelope, field), max                                                              \
	}
	TEXT(cluster, RDV_NAME_BYTES),    TEXT(topic, RDV_NAME_BYTES),        TEXT(route, RDV_NAME_BYTES),
	TEXT(key, RDV_KEY_MAX),           TEXT(publish_id, TEXT_BYTES),       TEXT(content_type, TEXT_BYTES),
	TEXT(traceparent, TEXT_BYTES),    TEXT(idempotency_key, TEXT_BYTES),  TEXT(tenant, TEXT_BYTES),
	TEXT(schema_version, TEXT_BYTES), TEXT(consumer_version, TEXT_BYTES), TEXT(trace_id, TEXT_BYTES),
	TEXT(replay, RDV_NAME_BYTES),     TEXT(cause, RDV_NAME_BYTES),
#undef TEXT
};
#define TEXTS (sizeof texts / sizeof texts[0])

static struct rdv_slice *text_of(const struct rdv_envelope *e, size_t i)
{
	return (struct rdv_slice *)((char *)(uintptr_t)e + texts[i].at);
}

void rdv_envelope_encode(const struct rdv_envelope *e, struct rdv_buffer *out)
{
	encode_fixed(e, out);
	for (size_t i = 0; i < TEXTS; i++)
		record_put_text(out, *text_of(e, i), texts[i].max);
	rdv_failure_encode(&e->failure, out);
	rdv_buffer_prefixed(out, e->headers);
	rdv_buffer_prefixed(out, e->index_terms);
	rdv_history_encode(e->history_omitted, e->history, e->history_count, out);
}

static enum redrive_status decode_fixed(struct rdv_reader *r, struct rdv_envelope *out)
{
	uint8_t flags = rdv_read_u8(r);
	uint8_t reason = rdv_read_u8(r);
	struct rdv_slice digest;

	rdv_read_u8(r);
	out->null_key = flags & NULL_KEY;
	out->tombstone = flags & TOMBSTONE;
	out->body_truncated = flags & BODY_TRUNCATED;
	out->reason = (enum rdv_reason)reason;
	out->partition = rdv_read_u32(r);
	out->offset = rdv_read_u64(r);
	out->generation = rdv_read_u32(r);
	out->copy = rdv_read_u32(r);
	out->fingerprint = rdv_read_u64(r);
	out->produced_at.ms = (int64_t)rdv_read_u64(r);
	out->first_failed_at.ms = (int64_t)rdv_read_u64(r);
	out->last_failed_at.ms = (int64_t)rdv_read_u64(r);
	out->dead_at.ms = (int64_t)rdv_read_u64(r);
	out->deliveries = rdv_read_u32(r);
	out->causes.failures = rdv_read_u32(r);
	out->causes.timeouts = rdv_read_u32(r);
	out->causes.crashes = rdv_read_u32(r);
	out->causes.shutdowns = rdv_read_u32(r);
	out->causes.deferrals = rdv_read_u32(r);
	out->causes.outage = rdv_read_u32(r);
	rdv_read_u32(r);
	out->body_size = rdv_read_u64(r);
	digest = rdv_read_bytes(r, sizeof out->body_sha256);
	if (r->failed || reason >= RDV_REASON_COUNT || (flags & ~KNOWN_FLAGS))
		return REDRIVE_CORRUPT;
	memcpy(out->body_sha256, digest.data, sizeof out->body_sha256);
	return REDRIVE_OK;
}

enum redrive_status rdv_envelope_decode(struct rdv_slice bytes, struct rdv_envelope *out)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(bytes, &r);

	memset(out, 0, sizeof *out);
	if (status == REDRIVE_OK)
		status = decode_fixed(&r, out);
	if (status != REDRIVE_OK)
		return status;
	for (size_t i = 0; i < TEXTS; i++)
		*text_of(out, i) = record_text(&r, texts[i].max);
	rdv_failure_decode(&r, &out->failure);
	out->headers = rdv_read_prefixed(&r);
	out->index_terms = rdv_read_prefixed(&r);
	out->history_count = rdv_history_decode(&r, &out->history_omitted, out->history);
	status = record_end(&r);
	if (status == REDRIVE_OK && !(rdv_headers_valid(out->headers) && rdv_headers_valid(out->index_terms)))
		status = REDRIVE_CORRUPT;
	return status;
}

/* One part of an id: its length in 4 bytes, then its bytes, so that no two lists of parts look alike. */
static void hash_part(XXH3_state_t *h, const void *data, size_t size)
{
	uint8_t length[4];

	rdv_put_u32(length, (uint32_t)size);
	XXH3_128bits_update(h, length, sizeof length);
	if (size)
		XXH3_128bits_update(h, data, size);
}

void rdv_envelope_id(const struct rdv_envelope *e, uint8_t out[16])
{
	XXH3_state_t h;
	XXH128_canonical_t canonical;
	uint8_t number[8];

	XXH3_INITSTATE(&h);
	XXH3_128bits_reset(&h);
	hash_part(&h, e->cluster.data, e->cluster.size);
	hash_part(&h, e->topic.data, e->topic.size);
	rdv_put_u32(number, e->partition);
	hash_part(&h, number, 4);
	rdv_put_u64(number, e->offset);
	hash_part(&h, number, 8);
	hash_part(&h, e->route.data, e->route.size);
	rdv_put_u32(number, e->generation);
	hash_part(&h, number, 4);
	if (e->copy) {
		rdv_put_u32(number, e->copy);
		hash_part(&h, number, 4);
	}
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&h));
	memcpy(out, canonical.digest, 16);
}

void rdv_envelope_from(struct rdv_envelope *e, const struct rdv_message_state *state, const struct rdv_body *body)
{
	e->reason = state->reason;
	e->generation = state->generation;
	e->failure = state->failure;
	e->fingerprint = state->fingerprint;
	e->causes = state->causes;
	e->deliveries = state->deliveries;
	e->first_failed_at = state->first_failed_at;
	e->last_failed_at = state->last_failed_at;
	e->consumer_version = state->handler_version;
	e->history_omitted = state->history_omitted;
	e->history_count = state->history_count;
	memcpy(e->history, state->history, state->history_count * sizeof e->history[0]);
	e->null_key = body->flags & RDV_BODY_NULL_KEY;
	e->tombstone = body->flags & RDV_BODY_TOMBSTONE;
	e->key = body->key;
	e->publish_id = body->publish_id;
	e->content_type = body->content_type;
	e->traceparent = body->traceparent;
	e->headers = body->headers;
	e->produced_at = body->produced_at;
	e->body_size = body->body.size;
}
