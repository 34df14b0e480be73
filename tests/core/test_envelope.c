/* test_envelope.c - a letter's envelope comes back whole; its id depends on where the message was, and on nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/envelope.h"

static uint8_t headers[] = "\x01\x01n\x03v\0\xff";

static struct rdv_envelope sample(void)
{
	struct rdv_envelope e = {
		.cluster = rdv_slice_text("c"),
		.topic = rdv_slice_text("order.create"),
		.route = rdv_slice_text("order-create"),
		.partition = 2,
		.offset = 8812,
		.generation = 1,
		.reason = RDV_REASON_EXHAUSTED,
		.tombstone = true,
		.key = rdv_slice("k\0\xff", 3),
		.publish_id = rdv_slice_text("id"),
		.content_type = rdv_slice_text("text/x"),
		.traceparent = rdv_slice_text("00-1"),
		.idempotency_key = rdv_slice_text("ik"),
		.tenant = rdv_slice_text("t"),
		.schema_version = rdv_slice_text("s"),
		.consumer_version = rdv_slice_text("1.4"),
		.trace_id = rdv_slice_text("tr"),
		.headers = rdv_slice(headers, 7),
		.fingerprint = 0x1234,
		.causes = {1, 2, 3, 4, 5, 6},
		.deliveries = 21,
		.produced_at = {1},
		.first_failed_at = {2},
		.last_failed_at = {3},
		.dead_at = {4},
		.body_size = 1ull << 40,
		.replay = rdv_slice_text("rp"),
		.cause = rdv_slice_text("letter"),
		.index_terms = rdv_slice(headers, 7),
		.history_omitted = 9,
		.history_count = 2,
		.failure = {rdv_slice_text("C"), rdv_slice_text("R"), rdv_slice_text("504"), rdv_slice_text("text"),
			    rdv_slice_text("stack")},
	};

	memset(e.body_sha256, 0xab, sizeof e.body_sha256);
	e.history[0] = (struct rdv_attempt){.n = 1,
					    .at = {5},
					    .took_ms = 6,
					    .verdict = RDV_RETRY,
					    .cause = RDV_CAUSE_TIMEOUT,
					    .next_at = {7},
					    .code = rdv_slice_text("503"),
					    .class = rdv_slice_text("X"),
					    .text = rdv_slice_text("y")};
	e.history[1] = (struct rdv_attempt){.n = 12, .verdict = RDV_REJECT, .duplicate = true};
	return e;
}

static void envelope_comes_back_as_written(void **state)
{
	struct rdv_envelope e = sample(), out;
	struct rdv_buffer b, again;

	rdv_buffer_init(&b, 0);
	rdv_buffer_init(&again, 0);
	rdv_envelope_encode(&e, &b);
	assert_int_equal(rdv_envelope_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	assert_true(rdv_slice_equal(out.key, e.key));
	assert_true(rdv_slice_equal(out.headers, e.headers));
	assert_true(rdv_slice_is(out.cause, "letter") && rdv_slice_is(out.failure.stack, "stack"));
	assert_true(out.partition == 2 && out.offset == 8812 && out.generation == 1 && out.copy == 0);
	assert_true(out.reason == RDV_REASON_EXHAUSTED && out.tombstone && !out.null_key && !out.body_truncated);
	assert_true(out.causes.outage == 6 && out.deliveries == 21 && out.dead_at.ms == 4 &&
		    out.body_size == 1ull << 40);
	assert_memory_equal(out.body_sha256, e.body_sha256, 32);
	assert_true(out.history_count == 2 && out.history_omitted == 9 && out.history[1].duplicate);
	/* Whatever a field holds, it is written again as the same bytes. */
	rdv_envelope_encode(&out, &again);
	assert_true(rdv_slice_equal(rdv_buffer_as_slice(&again), rdv_buffer_as_slice(&b)));
	rdv_buffer_done(&b);
	rdv_buffer_done(&again);
}

/* pitfall: key lost on the way to the dead letters: null, empty and binary keys stay apart */
static void null_and_empty_keys_stay_apart(void **state)
{
	struct rdv_envelope e = sample(), out;
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	e.key = rdv_slice(NULL, 0);
	rdv_envelope_encode(&e, &b);
	assert_int_equal(rdv_envelope_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	assert_false(out.null_key);
	e.null_key = true;
	rdv_buffer_clear(&b);
	rdv_envelope_encode(&e, &b);
	assert_int_equal(rdv_envelope_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	assert_true(out.null_key);
	rdv_buffer_done(&b);
}

static void cut_damaged_and_newer_envelopes_are_refused(void **state)
{
	struct rdv_envelope e = sample(), out;
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	rdv_envelope_encode(&e, &b);
	for (size_t cut = 0; cut < b.size; cut++)
		assert_int_equal(rdv_envelope_decode(rdv_slice(b.data, cut), &out), REDRIVE_CORRUPT);
	b.data[2] = RDV_REASON_COUNT;
	assert_int_equal(rdv_envelope_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_CORRUPT);
	b.data[0] = 2;
	assert_int_equal(rdv_envelope_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_VERSION);
	rdv_buffer_done(&b);
}

static void id_depends_on_position_route_and_generation_alone(void **state)
{
	struct rdv_envelope e = sample(), f = sample();
	uint8_t id[16], other[16];

	rdv_envelope_id(&e, id);
	f.reason = RDV_REASON_REJECTED;
	f.dead_at.ms = 99;
	f.key = rdv_slice_text("other");
	rdv_envelope_id(&f, other);
	assert_memory_equal(id, other, 16);
	f.generation++;
	rdv_envelope_id(&f, other);
	assert_memory_not_equal(id, other, 16);
	f = e;
	f.offset++;
	rdv_envelope_id(&f, other);
	assert_memory_not_equal(id, other, 16);
	f = e;
	f.copy = 1;
	rdv_envelope_id(&f, other);
	assert_memory_not_equal(id, other, 16);
	/* Moving a byte from one name to its neighbour is another place. */
	f = e;
	f.cluster = rdv_slice_text("co");
	f.topic = rdv_slice_text("rder.create");
	rdv_envelope_id(&f, other);
	assert_memory_not_equal(id, other, 16);
}

/* The formula is a promise: letters already stored must be recognised by later versions. */
static void id_of_the_sample_never_changes(void **state)
{
	static const uint8_t wanted[16] = {0xee, 0xfb, 0x5d, 0x3c, 0xf7, 0x1d, 0x3b, 0x06,
					   0xbf, 0xf0, 0xa7, 0x05, 0x9a, 0x22, 0x79, 0xd3};
	struct rdv_envelope e = sample();
	uint8_t id[16];

	rdv_envelope_id(&e, id);
	assert_memory_equal(id, wanted, 16);
}

static void state_and_body_tell_most_of_a_letter(void **state)
{
	struct rdv_message_state s = {.reason = RDV_REASON_REJECTED,
				      .deliveries = 3,
				      .fingerprint = 5,
				      .history_count = 1,
				      .failure.text = rdv_slice_text("why"),
				      .handler_version = rdv_slice_text("2")};
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY | RDV_BODY_TOMBSTONE,
			     .publish_id = rdv_slice_text("p"),
			     .produced_at = {8},
			     .body = rdv_slice_text("12345")};
	struct rdv_envelope e = {0};

	s.history[0].n = 3;
	rdv_envelope_from(&e, &s, &m);
	assert_true(e.null_key && e.tombstone && e.body_size == 5 && e.produced_at.ms == 8);
	assert_true(e.reason == RDV_REASON_REJECTED && e.fingerprint == 5 && e.history_count == 1 &&
		    e.history[0].n == 3);
	assert_true(rdv_slice_is(e.failure.text, "why") && rdv_slice_is(e.consumer_version, "2"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(envelope_comes_back_as_written),
		cmocka_unit_test(null_and_empty_keys_stay_apart),
		cmocka_unit_test(cut_damaged_and_newer_envelopes_are_refused),
		cmocka_unit_test(id_depends_on_position_route_and_generation_alone),
		cmocka_unit_test(id_of_the_sample_never_changes),
		cmocka_unit_test(state_and_body_tell_most_of_a_letter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
