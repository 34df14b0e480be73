/* fuzz_ndjson.c - batches: never a crash; a mistake names a line that exists; a body is bytes of the input or decoded
 * from it, within limits. */
#include <stdlib.h>
#include "api/ndjson.h"

#define CHECK(c)                                                                                                       \
	do {                                                                                                           \
		if (!(c))                                                                                              \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rdv_batch_limits limits = {1024, 512, {1796000000000}};
	struct rdv_batch batch;
	size_t lines = 1;
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	enum redrive_status status = rdv_batch_parse(rdv_slice(data, size), &limits, &batch);
	if (status != REDRIVE_OK) {
		CHECK(batch.bad_line <= lines && batch.detail[0]);
		rdv_batch_done(&batch);
		return 0;
	}
	CHECK(batch.count >= 1 && batch.count <= lines);
	for (size_t i = 0; i < batch.count; i++) {
		const struct rdv_message *m = &batch.messages[i];
		CHECK(m->body.size <= limits.body_max && !(m->tombstone && m->body.size));
		CHECK(m->not_before.ms == 0 || m->not_before.ms >= limits.now.ms);
		for (size_t h = 0; h < m->header_count; h++)
			CHECK(m->headers[h].name.size > 0);
	}
	rdv_batch_done(&batch);
	return 0;
}
