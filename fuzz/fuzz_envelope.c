/* fuzz_envelope.c - envelopes and error texts from any bytes.
 *
 * An envelope that decodes is written again as bytes that decode to the same bytes, and its id stays. Normalising any
 * text gives at most 1,000 characters; a frame lies inside its stack; a fingerprint is never 0 and its text form parses
 * back. */
#include <stdlib.h>
#include "core/envelope.h"
#include "core/fingerprint.h"
#include "core/normalise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void envelope(struct rdv_slice in)
{
	struct rdv_envelope e, f;
	struct rdv_buffer first, second;
	uint8_t id[16], again[16];

	if (rdv_envelope_decode(in, &e) != REDRIVE_OK)
		return;
	rdv_buffer_init(&first, 0);
	rdv_buffer_init(&second, 0);
	rdv_envelope_encode(&e, &first);
	check(rdv_envelope_decode(rdv_buffer_as_slice(&first), &f) == REDRIVE_OK);
	rdv_envelope_encode(&f, &second);
	check(rdv_slice_equal(rdv_buffer_as_slice(&first), rdv_buffer_as_slice(&second)));
	rdv_envelope_id(&e, id);
	rdv_envelope_id(&f, again);
	check(memcmp(id, again, 16) == 0);
	rdv_buffer_done(&first);
	rdv_buffer_done(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_slice in = rdv_slice(data, size), frame = rdv_stack_frame(in);
	struct rdv_failure f = {.class = rdv_stack_root_class(in), .text = in, .stack = in};
	char text[RDV_FINGERPRINT_TEXT];
	struct rdv_buffer out;
	uint64_t hash, parsed;

	envelope(in);
	rdv_buffer_init(&out, 0);
	rdv_normalise(in, &out);
	check(!out.failed && rdv_utf8_count(rdv_buffer_as_slice(&out)) <= RDV_ERROR_TEXT_CHARS);
	rdv_buffer_done(&out);
	check(frame.size == 0 || (frame.data >= data && frame.data + frame.size <= data + size));
	hash = rdv_fingerprint("route", &f);
	check(hash != 0);
	rdv_fingerprint_format(hash, text);
	check(rdv_fingerprint_parse(rdv_slice_text(text), &parsed) && parsed == hash);
	return 0;
}
