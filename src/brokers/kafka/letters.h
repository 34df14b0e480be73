/* letters.h - the letters topic, and copies of letters for foreign readers.
 *
 * letters topic: key = the message's key (null for a null key), value = "RDL1", kind 8 bits (1 letter, 2 outcome), then
 *   letter   flags 8 bits (1 = a body follows), envelope length varint, envelope (core/envelope.h), body to the end
 *   outcome  outcome 8 bits, letter id 16 bytes, plan varint, request varint, attempts varint, partition varint
 * A foreign copy (dead.topic) is the message as it came (key, value, its headers) with headers of one format added.
 * Pure; any thread. */
#ifndef RDV_BROKERS_KAFKA_LETTERS_H
#define RDV_BROKERS_KAFKA_LETTERS_H
#include "../../core/envelope.h"
#include "../source.h"

#define RDV_LETTER_MAGIC "RDL1"

enum rdv_letter_kind { RDV_LETTER_DEAD = 1, RDV_LETTER_OUTCOME = 2 };
struct rdv_kafka_outcome { /* how a replay's request ended, for the desk */
	uint64_t plan, request;
	uint8_t letter[16];
	uint8_t outcome; /* enum rdv_state */
	uint32_t attempts;
	uint32_t partition;
};
/* has_body = false: the body was lost before, and `body` is ignored. That of a tombstone or an empty one has no bytes.
 * out->failed without memory. */
void rdv_kafka_letter_encode(struct rdv_slice envelope, struct rdv_slice body, bool has_body, struct rdv_buffer *out);
void rdv_kafka_outcome_encode(const struct rdv_kafka_outcome *o, struct rdv_buffer *out);
struct rdv_kafka_letter { /* slices borrow */
	enum rdv_letter_kind kind;
	struct rdv_slice envelope, body;
	bool has_body;
	struct rdv_kafka_outcome outcome;
};
/* Hostile bytes; the envelope itself is not looked at. NOT_FOUND: foreign (no magic). CORRUPT. VERSION: of a newer
 * Redrive. */
enum redrive_status rdv_kafka_letter_decode(struct rdv_slice value, struct rdv_kafka_letter *out) RDV_MUST_CHECK;

/* Formats of the foreign copy. */
enum rdv_letter_format {
	RDV_FORMAT_HEADERS, /* "headers": Redrive's own, redrive-* */
	RDV_FORMAT_SPRING,  /* "spring": kafka_dlt-* as Spring Kafka's DeadLetterPublishingRecoverer */
	RDV_FORMAT_CONNECT, /* "connect": __connect.errors.* */
	RDV_FORMAT_KIP1191, /* "kip-1191": __dlq.errors.* as Kafka's share groups */
	RDV_FORMAT_JSON,    /* "json": the value is a JSON document that wraps all of it */
	RDV_FORMAT_COUNT
};
const char *rdv_letter_format_name(enum rdv_letter_format f);
bool rdv_letter_format_parse(struct rdv_slice name, enum rdv_letter_format *out);
struct rdv_letter_copy { /* what is produced; owns its buffers */
	bool has_key, has_value;
	struct rdv_buffer key, value;
	struct rdv_buffer headers; /* encoded list (rdv_headers_encode): the message's own, then the format's */
};
/* The message's own headers that begin with "redrive-" are left out; those of a framework's names stay, or not, as that
 * framework does it (copy_formats.c). With JSON the message's headers are in the document alone. group NULL = not told.
 * A body that was lost is an empty one here, marked as cut. INVALID: e->headers is no list. NO_MEMORY: *out is empty.
 */
enum redrive_status rdv_letter_copy_make(enum rdv_letter_format f, const struct rdv_envelope *e, struct rdv_slice body,
					 const char *group, struct rdv_letter_copy *out) RDV_MUST_CHECK;
void rdv_letter_copy_done(struct rdv_letter_copy *c);
#endif
