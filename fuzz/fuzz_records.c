/* fuzz_records.c - every decoder of records on any bytes: never outside them; what decodes is written again as the same
 * values.
 *
 * The first byte chooses the record, the rest is its payload. Encoding what was decoded must give a payload that
 * decodes to the same encoding again (a fixed point), which holds for all fields without naming them. */
#include <stdlib.h>
#include "core/account.h"
#include "core/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool again_state(struct rdv_slice in, struct rdv_buffer *out)
{
	struct rdv_message_state s;

	if (rdv_state_decode(in, &s) != REDRIVE_OK)
		return false;
	rdv_state_encode(&s, out);
	return true;
}

static bool again_body(struct rdv_slice in, struct rdv_buffer *out)
{
	struct rdv_body m, hint;
	size_t size;

	if (rdv_body_decode(in, &m) != REDRIVE_OK)
		return false;
	check(rdv_body_decode_hint(rdv_slice(in.data, RDV_BODY_HINT), &hint) == REDRIVE_OK);
	check(hint.key_hash == m.key_hash && hint.flags == m.flags);
	size = rdv_body_size(&m);
	check(rdv_buffer_reserve(out, size) != NULL);
	rdv_body_encode(&m, out->data + out->size);
	out->size += size;
	return true;
}

static bool again_runs(struct rdv_slice in, struct rdv_buffer *out)
{
	struct rdv_reader r = rdv_runs_begin(in);
	struct rdv_run runs[64];
	size_t count = 0;

	while (count < 64 && rdv_runs_next(&r, &runs[count]))
		count++;
	if (r.failed || count == 64)
		return false;
	rdv_runs_encode(runs, count, out);
	return true;
}

static bool again_seen(struct rdv_slice in, struct rdv_buffer *out)
{
	struct rdv_reader r = rdv_seen_begin(in);
	struct rdv_seen seen[64];
	size_t count = 0;

	while (count < 64 && rdv_seen_next(&r, &seen[count]))
		count++;
	if (r.failed || count == 64)
		return false;
	rdv_seen_encode(seen, count, out);
	return true;
}

/* Records with one struct and one pair of functions. */
#define AGAIN(name, type, decode, encode)                                                                              \
	static bool again_##name(struct rdv_slice in, struct rdv_buffer *out)                                          \
	{                                                                                                              \
		static type v;                                                                                         \
		if (decode(in, &v) != REDRIVE_OK)                                                                      \
			return false;                                                                                  \
		encode(&v, out);                                                                                       \
		return true;                                                                                           \
	}
AGAIN(topic, struct rdv_topic_fields, rdv_topic_decode, rdv_topic_encode)
AGAIN(lane, struct rdv_lane_fields, rdv_lane_decode, rdv_lane_encode)
AGAIN(gate, struct rdv_gate, rdv_gate_decode, rdv_gate_encode)
AGAIN(request, struct rdv_request, rdv_request_decode, rdv_request_encode)
AGAIN(dedupe, struct rdv_dedupe_record, rdv_dedupe_decode, rdv_dedupe_encode)
AGAIN(counters, struct rdv_account, rdv_counters_decode, rdv_counters_encode)

static bool (*const kinds[])(struct rdv_slice in, struct rdv_buffer *out) = {
	again_state, again_body, again_runs,    again_seen,   again_topic,
	again_lane,  again_gate, again_request, again_dedupe, again_counters,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_buffer first, second;
	unsigned kind;

	if (size < 1)
		return 0;
	kind = data[0] % (sizeof kinds / sizeof kinds[0]);
	rdv_buffer_init(&first, 0);
	rdv_buffer_init(&second, 0);
	if (kinds[kind](rdv_slice(data + 1, size - 1), &first)) {
		check(kinds[kind](rdv_buffer_as_slice(&first), &second));
		check(rdv_slice_equal(rdv_buffer_as_slice(&first), rdv_buffer_as_slice(&second)));
	}
	(void)rdv_headers_valid(rdv_slice(data, size));
	(void)rdv_counters_throughput(rdv_slice(data, size));
	rdv_buffer_done(&first);
	rdv_buffer_done(&second);
	return 0;
}
