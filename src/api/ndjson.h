/* ndjson.h - a batch body, one JSON object per line, to messages. Pure, fuzzed; any thread.
 * The bytes of a JSON "body" member are taken as they stand in the line, never re-encoded. */
#ifndef RDV_API_NDJSON_H
#define RDV_API_NDJSON_H
#include "../runtime/engine.h"

struct rdv_batch {
	struct rdv_message *messages; /* owns; slices borrow from the input or from `memory` */
	size_t count, capacity;
	void **memory; /* owns: decoded texts */
	size_t memory_count, memory_capacity;
	size_t bad_line;  /* from 1 */
	char detail[256]; /* what is wrong with it */
};
struct rdv_batch_limits {
	uint64_t body_max, headers_max;
	struct rdv_wall now;
};
/* INVALID: bad_line and detail say what. TOO_LARGE the same for a line over a limit. Empty lines are skipped. */
enum redrive_status rdv_batch_parse(struct rdv_slice text, const struct rdv_batch_limits *limits,
				    struct rdv_batch *out) RDV_MUST_CHECK;
void rdv_batch_done(struct rdv_batch *b);
#endif
