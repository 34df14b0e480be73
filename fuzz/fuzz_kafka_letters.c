/* fuzz_kafka_letters.c - values of the letters topic on any bytes: what decodes is written again as the same value, and
 * every letter whose envelope decodes can be copied in every format: its headers are a whole list, its JSON parses.
 */
#include <jansson.h>
#include <stdlib.h>
#include "brokers/kafka/letters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void again(const struct rdv_kafka_letter *l, struct rdv_slice value)
{
	struct rdv_kafka_letter second;
	struct rdv_buffer out;

	rdv_buffer_init(&out, 0);
	if (l->kind == RDV_LETTER_DEAD)
		rdv_kafka_letter_encode(l->envelope, l->body, l->has_body, &out);
	else
		rdv_kafka_outcome_encode(&l->outcome, &out);
	/* Shorter where a varint had useless zero groups. */
	check(!out.failed && out.size <= value.size);
	check(rdv_kafka_letter_decode(rdv_buffer_as_slice(&out), &second) == REDRIVE_OK && second.kind == l->kind);
	check(rdv_slice_equal(second.envelope, l->envelope) && rdv_slice_equal(second.body, l->body));
	check(second.has_body == l->has_body && memcmp(&second.outcome, &l->outcome, sizeof l->outcome) == 0);
	rdv_buffer_done(&out);
}

static void copy(enum rdv_letter_format f, const struct rdv_envelope *e, struct rdv_slice body)
{
	struct rdv_letter_copy c;

	check(rdv_letter_copy_make(f, e, body, "group", &c) == REDRIVE_OK);
	check(rdv_headers_valid(rdv_buffer_as_slice(&c.headers)) && c.has_key == !e->null_key);
	check(!c.has_key || rdv_slice_equal(rdv_buffer_as_slice(&c.key), e->key));
	if (f == RDV_FORMAT_JSON) {
		json_t *o = json_loadb((const char *)c.value.data, c.value.size, JSON_ALLOW_NUL, NULL);

		check(json_is_object(o));
		json_decref(o);
	} else {
		check(c.has_value == !e->tombstone);
		check(!c.has_value || rdv_slice_equal(rdv_buffer_as_slice(&c.value), body));
	}
	rdv_letter_copy_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_kafka_letter l;
	struct rdv_envelope e;

	if (rdv_kafka_letter_decode(rdv_slice(data, size), &l) != REDRIVE_OK)
		return 0;
	again(&l, rdv_slice(data, size));
	if (l.kind != RDV_LETTER_DEAD || rdv_envelope_decode(l.envelope, &e) != REDRIVE_OK)
		return 0;
	for (int f = 0; f < RDV_FORMAT_COUNT; f++)
		copy((enum rdv_letter_format)f, &e, l.body);
	return 0;
}
