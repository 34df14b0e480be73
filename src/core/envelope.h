/* envelope.h - a dead letter's canonical form: origin, reason, error, attempts; the one format that desk, export and
 * brokers share.
 *
 * Binary, versioned, little-endian: a fixed part that the desk's index reads, then varint-prefixed fields, the headers,
 * the history; the body is not inside: it is stored beside it, byte-exact. Letter id = base32 of 128-bit XXH3 over the
 * length-prefixed (cluster, topic, partition, offset, route, generation). Pure; any thread. */
#ifndef RDV_CORE_ENVELOPE_H
#define RDV_CORE_ENVELOPE_H
#include "record.h"

struct rdv_envelope {
	struct rdv_slice cluster, topic, route;
	uint32_t partition;
	uint64_t offset;
	uint32_t generation;
	uint32_t copy; /* number of a corrected copy, 0 = the original */
	enum rdv_reason reason;
	bool null_key, tombstone, body_truncated;
	struct rdv_slice key, publish_id, content_type, traceparent, idempotency_key;
	struct rdv_slice tenant, schema_version, consumer_version, trace_id; /* of `metadata:` */
	struct rdv_slice headers;                                            /* encoded list, record.h */
	struct rdv_failure failure;
	uint64_t fingerprint;
	struct rdv_causes causes;
	uint32_t deliveries;
	struct rdv_wall produced_at, first_failed_at, last_failed_at, dead_at;
	uint64_t body_size;           /* of the original */
	uint8_t body_sha256[32];      /* of the original */
	struct rdv_slice replay;      /* plan whose replay died, empty = none */
	struct rdv_slice cause;       /* follower: the letter id it followed, empty = none */
	struct rdv_slice index_terms; /* encoded list like headers: pointer, value */
	uint32_t history_omitted, history_count;
	struct rdv_attempt history[1 + RDV_HISTORY_LAST];
};
void rdv_envelope_encode(const struct rdv_envelope *e, struct rdv_buffer *out);
enum redrive_status rdv_envelope_decode(struct rdv_slice bytes, struct rdv_envelope *out) RDV_MUST_CHECK;
void rdv_envelope_id(const struct rdv_envelope *e, uint8_t out[16]);
/* Fills everything that STATE and BODY tell (not cluster, metadata, sha256). Slices borrow from both. */
void rdv_envelope_from(struct rdv_envelope *e, const struct rdv_message_state *state, const struct rdv_body *body);
#endif
