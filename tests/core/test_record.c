/* test_record.c - every record comes back as it was written; cut, damaged or newer payloads are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/random.h"
#include "core/account.h"
#include "core/record.h"

static uint8_t pool[8192];

static struct rdv_slice random_bytes(struct rdv_random *r, size_t max)
{
	size_t size = rdv_random_below(r, max + 1);

	return rdv_slice(pool + rdv_random_below(r, sizeof pool - max), size);
}

/* Small, large and border values with equal chance. */
static uint64_t random_u64(struct rdv_random *r)
{
	static const uint64_t borders[] = {0, 1, 127, 128, UINT32_MAX, (uint64_t)INT64_MAX, UINT64_MAX - 1};

	return rdv_random_below(r, 2) ? borders[rdv_random_below(r, 7)] : rdv_random_next(r) >> rdv_random_below(r, 64);
}

static uint32_t random_u32(struct rdv_random *r)
{
	return (uint32_t)random_u64(r);
}

static void assert_slice(struct rdv_slice got, struct rdv_slice wanted)
{
	assert_true(rdv_slice_equal(got, wanted));
}

static int setup(void **state)
{
	struct rdv_random r;

	rdv_random_seed(&r, 7);
	for (size_t i = 0; i < sizeof pool; i++)
		pool[i] = 'a' + (uint8_t)rdv_random_below(&r, 26);
	return 0;
}

/* pitfall: header length in characters: byte lengths, with NUL, 0xFF, UTF-8, empty and repeated headers */
static void header_list_keeps_every_byte_and_order(void **state)
{
	struct rdv_header in[] = {
		{rdv_slice_text("a"), rdv_slice_text("x")},
		{rdv_slice_text("a"), rdv_slice_text("")},
		{rdv_slice("\0\xff", 2), rdv_slice("\xe4\xb8\xad\0", 4)},
	};
	struct rdv_buffer b;
	struct rdv_header out;
	struct rdv_reader r;
	uint64_t count;

	rdv_buffer_init(&b, 0);
	rdv_headers_encode(&b, in, 3);
	assert_true(rdv_headers_valid(rdv_buffer_as_slice(&b)));
	r = rdv_headers_begin(rdv_buffer_as_slice(&b), &count);
	assert_int_equal(count, 3);
	for (int i = 0; i < 3; i++) {
		assert_true(rdv_headers_next(&r, &out));
		assert_slice(out.name, in[i].name);
		assert_slice(out.value, in[i].value);
	}
	assert_false(rdv_headers_next(&r, &out));
	assert_false(r.failed);
	for (size_t cut = 1; cut < b.size; cut++)
		assert_false(rdv_headers_valid(rdv_slice(b.data, cut)));
	assert_true(rdv_headers_valid(rdv_slice(NULL, 0)));
	rdv_buffer_done(&b);
}

static void random_body(struct rdv_random *r, struct rdv_body *m, struct rdv_buffer *headers)
{
	struct rdv_header h[3];
	size_t count = rdv_random_below(r, 4);

	for (size_t i = 0; i < count; i++)
		h[i] = (struct rdv_header){random_bytes(r, 20), random_bytes(r, 200)};
	rdv_buffer_clear(headers);
	if (count)
		rdv_headers_encode(headers, h, count);
	*m = (struct rdv_body){
		.flags = (uint8_t)rdv_random_below(r, 8),
		.key_hash = random_u64(r),
		.not_before.ms = (int64_t)random_u64(r),
		.produced_at.ms = (int64_t)random_u64(r),
		.publish_id = random_bytes(r, RDV_PUBLISH_ID_MAX),
		.key = random_bytes(r, RDV_KEY_MAX),
		.content_type = random_bytes(r, 40),
		.traceparent = random_bytes(r, 55),
		.headers = rdv_buffer_as_slice(headers),
		.body = random_bytes(r, 4000),
	};
}

/* pitfall: copy loses key or properties: null, empty and binary ones are kept byte-exact */
static void body_comes_back_as_written(void **state)
{
	struct rdv_random r;
	struct rdv_buffer headers;
	uint8_t *bytes = malloc(1 << 16);

	rdv_random_seed(&r, 1);
	rdv_buffer_init(&headers, 0);
	for (int i = 0; i < 500; i++) {
		struct rdv_body in, out;
		size_t size;

		random_body(&r, &in, &headers);
		size = rdv_body_size(&in);
		assert_in_range(size, 1, 1 << 16);
		rdv_body_encode(&in, bytes);
		assert_int_equal(rdv_body_decode(rdv_slice(bytes, size), &out), REDRIVE_OK);
		assert_int_equal(out.flags, in.flags);
		assert_int_equal(out.key_hash, in.key_hash);
		assert_int_equal(out.not_before.ms, in.not_before.ms);
		assert_int_equal(out.produced_at.ms, in.produced_at.ms);
		assert_slice(out.publish_id, in.publish_id);
		assert_slice(out.key, in.key);
		assert_slice(out.content_type, in.content_type);
		assert_slice(out.traceparent, in.traceparent);
		assert_slice(out.headers, in.headers);
		assert_slice(out.body, in.body);
		assert_int_equal(rdv_body_decode_hint(rdv_slice(bytes, RDV_BODY_HINT), &out), REDRIVE_OK);
		assert_int_equal(out.key_hash, in.key_hash);
		assert_int_equal(out.not_before.ms, in.not_before.ms);
		assert_int_equal(out.body.size, 0);
		/* Everything up to the body must be there. */
		assert_int_equal(rdv_body_decode(rdv_slice(bytes, size - in.body.size - 1), &out), REDRIVE_CORRUPT);
	}
	free(bytes);
	rdv_buffer_done(&headers);
}

static void random_failure(struct rdv_random *r, struct rdv_failure *f)
{
	f->class = random_bytes(r, RDV_ERROR_CLASS_BYTES);
	f->root_class = random_bytes(r, RDV_ERROR_CLASS_BYTES);
	f->code = random_bytes(r, RDV_ERROR_CODE_BYTES);
	f->text = random_bytes(r, RDV_ERROR_TEXT_BYTES);
	f->stack = random_bytes(r, RDV_ERROR_STACK_BYTES);
}

static void random_state(struct rdv_random *r, struct rdv_message_state *s)
{
	*s = (struct rdv_message_state){
		.kind = (enum rdv_state)rdv_random_below(r, RDV_STATE_COUNT),
		.reason = (enum rdv_reason)rdv_random_below(r, RDV_REASON_COUNT),
		.suspicion = (uint8_t)rdv_random_below(r, 4),
		.last_bad_charged = rdv_random_below(r, 2),
		.due.ms = (int64_t)random_u64(r),
		.delay_ms = (int64_t)random_u64(r),
		.deliveries = random_u32(r),
		.causes = {random_u32(r), random_u32(r), random_u32(r), random_u32(r), random_u32(r), random_u32(r)},
		.first_at.ms = (int64_t)random_u64(r),
		.first_failed_at.ms = (int64_t)random_u64(r),
		.last_failed_at.ms = (int64_t)random_u64(r),
		.cause_seq = rdv_random_below(r, 2) ? UINT64_MAX : random_u64(r),
		.fingerprint = random_u64(r),
		.generation = random_u32(r),
		.handler_version = random_bytes(r, RDV_HANDLER_VERSION_BYTES),
		.history_omitted = random_u32(r),
		.history_count = (uint32_t)rdv_random_below(r, 2 + RDV_HISTORY_LAST),
	};
	random_failure(r, &s->failure);
	for (uint32_t i = 0; i < s->history_count; i++)
		s->history[i] = (struct rdv_attempt){
			.n = random_u32(r),
			.at.ms = (int64_t)random_u64(r),
			.took_ms = (int64_t)random_u64(r),
			.verdict = (uint8_t)rdv_random_below(r, RDV_VERDICT_COUNT),
			.cause = (uint8_t)rdv_random_below(r, RDV_CAUSE_COUNT),
			.duplicate = rdv_random_below(r, 2),
			.next_at.ms = (int64_t)random_u64(r),
			.code = random_bytes(r, RDV_HISTORY_CODE_BYTES),
			.class = random_bytes(r, RDV_HISTORY_CLASS_BYTES),
			.text = random_bytes(r, RDV_HISTORY_TEXT_BYTES),
		};
}

static void assert_attempt(const struct rdv_attempt *a, const struct rdv_attempt *b)
{
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->at.ms, b->at.ms);
	assert_int_equal(a->took_ms, b->took_ms);
	assert_int_equal(a->verdict, b->verdict);
	assert_int_equal(a->cause, b->cause);
	assert_int_equal(a->duplicate, b->duplicate);
	assert_int_equal(a->next_at.ms, b->next_at.ms);
	assert_slice(a->code, b->code);
	assert_slice(a->class, b->class);
	assert_slice(a->text, b->text);
}

static void assert_state(const struct rdv_message_state *a, const struct rdv_message_state *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->reason, b->reason);
	assert_int_equal(a->suspicion, b->suspicion);
	assert_int_equal(a->last_bad_charged, b->last_bad_charged);
	assert_int_equal(a->due.ms, b->due.ms);
	assert_int_equal(a->delay_ms, b->delay_ms);
	assert_int_equal(a->deliveries, b->deliveries);
	assert_memory_equal(&a->causes, &b->causes, sizeof a->causes);
	assert_int_equal(a->first_at.ms, b->first_at.ms);
	assert_int_equal(a->first_failed_at.ms, b->first_failed_at.ms);
	assert_int_equal(a->last_failed_at.ms, b->last_failed_at.ms);
	assert_int_equal(a->cause_seq, b->cause_seq);
	assert_int_equal(a->fingerprint, b->fingerprint);
	assert_int_equal(a->generation, b->generation);
	assert_slice(a->handler_version, b->handler_version);
	assert_slice(a->failure.class, b->failure.class);
	assert_slice(a->failure.root_class, b->failure.root_class);
	assert_slice(a->failure.code, b->failure.code);
	assert_slice(a->failure.text, b->failure.text);
	assert_slice(a->failure.stack, b->failure.stack);
	assert_int_equal(a->history_omitted, b->history_omitted);
	assert_int_equal(a->history_count, b->history_count);
	for (uint32_t i = 0; i < a->history_count; i++)
		assert_attempt(&a->history[i], &b->history[i]);
}

static void state_comes_back_as_written(void **state)
{
	struct rdv_random r;
	struct rdv_buffer b;

	rdv_random_seed(&r, 2);
	rdv_buffer_init(&b, 0);
	for (int i = 0; i < 500; i++) {
		struct rdv_message_state in, out;

		random_state(&r, &in);
		rdv_buffer_clear(&b);
		rdv_state_encode(&in, &b);
		assert_int_equal(rdv_state_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
		assert_state(&out, &in);
		assert_int_equal(rdv_state_decode_hint(rdv_slice(b.data, RDV_STATE_HINT), &out), REDRIVE_OK);
		assert_int_equal(out.due.ms, in.due.ms);
		assert_int_equal(out.delay_ms, in.delay_ms);
		assert_int_equal(out.causes.failures, in.causes.failures);
		assert_int_equal(out.causes.crashes, in.causes.crashes);
		assert_int_equal(out.deliveries, in.deliveries);
		assert_int_equal(out.generation, in.generation);
		assert_true(out.cause_seq == UINT64_MAX);
		assert_int_equal(rdv_state_decode(rdv_slice(b.data, b.size - 1), &out), REDRIVE_CORRUPT);
		rdv_buffer_u8(&b, 0);
		assert_int_equal(rdv_state_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_CORRUPT);
	}
	rdv_buffer_done(&b);
}

/* pitfall: headers grow with every round: what a handler says and the history are bounded */
static void state_size_is_bounded_whatever_the_handler_says(void **state)
{
	static char huge[100000];
	struct rdv_message_state s = {.kind = RDV_STATE_WAITING, .cause_seq = UINT64_MAX}, out;
	struct rdv_slice big = rdv_slice(huge, sizeof huge);
	struct rdv_buffer b;

	/* Three-byte characters, so that a cut in the middle would be seen. */
	for (size_t i = 0; i + 3 <= sizeof huge; i += 3)
		memcpy(huge + i, "\xe4\xb8\xad", 3);
	s.handler_version = big;
	s.failure = (struct rdv_failure){big, big, big, big, big};
	for (uint32_t n = 1; n <= 1000; n++) {
		struct rdv_attempt a = {.n = n, .code = big, .class = big, .text = big};

		rdv_state_add_attempt(&s, &a);
	}
	rdv_buffer_init(&b, 0);
	rdv_state_encode(&s, &b);
	assert_in_range(b.size, 1, 14 * 1024);
	assert_int_equal(rdv_state_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	assert_true(rdv_utf8_valid(out.failure.class));
	assert_true(rdv_utf8_valid(out.failure.text));
	assert_int_equal(out.history[3].text.size, RDV_HISTORY_TEXT_BYTES);
	rdv_buffer_done(&b);
}

static void history_keeps_the_first_attempt_and_the_last_fifteen(void **state)
{
	struct rdv_message_state s = {0};

	for (uint32_t n = 1; n <= 16; n++)
		rdv_state_add_attempt(&s, &(struct rdv_attempt){.n = n});
	assert_int_equal(s.history_count, 16);
	assert_int_equal(s.history_omitted, 0);
	for (uint32_t n = 17; n <= 40; n++)
		rdv_state_add_attempt(&s, &(struct rdv_attempt){.n = n});
	assert_int_equal(s.history_count, 16);
	assert_int_equal(s.history_omitted, 24);
	assert_int_equal(s.history[0].n, 1);
	for (uint32_t i = 1; i <= 15; i++)
		assert_int_equal(s.history[i].n, 25 + i);
}

static void runs_come_back_in_order(void **state)
{
	static const struct rdv_run in[] = {
		{0, 1, RDV_STATE_ACKED},
		{5, 1000000, RDV_STATE_DROPPED},
		{3, 2, RDV_STATE_DEAD},
		{UINT64_MAX, 1, RDV_STATE_REVOKED},
		{1ull << 40, 1ull << 60, RDV_STATE_DONE},
	};
	struct rdv_buffer b;
	struct rdv_reader r;
	struct rdv_run out;

	rdv_buffer_init(&b, 0);
	rdv_runs_encode(in, 5, &b);
	r = rdv_runs_begin(rdv_buffer_as_slice(&b));
	for (int i = 0; i < 5; i++) {
		assert_true(rdv_runs_next(&r, &out));
		assert_true(out.first == in[i].first && out.count == in[i].count && out.outcome == in[i].outcome);
	}
	assert_false(rdv_runs_next(&r, &out));
	assert_false(r.failed);
	rdv_buffer_done(&b);
}

static void runs_refuse_nothing_and_overflow(void **state)
{
	static const struct rdv_run empty = {7, 0, RDV_STATE_ACKED}, over = {UINT64_MAX, 2, RDV_STATE_ACKED};
	struct rdv_buffer b;
	struct rdv_reader r;
	struct rdv_run out;

	rdv_buffer_init(&b, 0);
	rdv_runs_encode(&empty, 1, &b);
	r = rdv_runs_begin(rdv_buffer_as_slice(&b));
	assert_false(rdv_runs_next(&r, &out));
	assert_true(r.failed);
	rdv_buffer_clear(&b);
	rdv_runs_encode(&over, 1, &b);
	r = rdv_runs_begin(rdv_buffer_as_slice(&b));
	assert_false(rdv_runs_next(&r, &out));
	assert_true(r.failed);
	r = rdv_runs_begin(rdv_slice("", 0));
	assert_false(rdv_runs_next(&r, &out));
	assert_true(r.failed);
	rdv_buffer_done(&b);
}

static void topic_and_lane_come_back_as_written(void **state)
{
	struct rdv_topic_fields *t = calloc(2, sizeof *t);
	struct rdv_lane_fields l = {.route = rdv_slice_text("order-create"),
				    .topic = rdv_slice_text("order.create"),
				    .partition = 3,
				    .partition_stream = 9,
				    .start = 1ull << 50,
				    .epoch = 77,
				    .orphan = true,
				    .opens_without_outcome = 2},
			       lane;
	struct rdv_buffer b;

	t->name = rdv_slice_text("order.create");
	t->partitions = RDV_PARTITIONS_MAX;
	t->first_stream = 100;
	for (uint32_t i = 0; i < t->partitions; i++)
		t->next_offset[i] = i * 1000003ull;
	memcpy(t->secret, "0123456789abcdef", 16);
	rdv_buffer_init(&b, 0);
	rdv_topic_encode(t, &b);
	assert_in_range(b.size, 1, UINT16_MAX); /* all of it is hint */
	assert_int_equal(rdv_topic_decode(rdv_buffer_as_slice(&b), t + 1), REDRIVE_OK);
	assert_slice(t[1].name, t->name);
	assert_int_equal(t[1].partitions, t->partitions);
	assert_int_equal(t[1].first_stream, 100);
	assert_memory_equal(t[1].secret, t->secret, 16);
	assert_memory_equal(t[1].next_offset, t->next_offset, sizeof t->next_offset);
	rdv_put_u32(b.data + 1, RDV_PARTITIONS_MAX + 1);
	assert_int_equal(rdv_topic_decode(rdv_buffer_as_slice(&b), t + 1), REDRIVE_CORRUPT);
	rdv_buffer_clear(&b);
	rdv_lane_encode(&l, &b);
	assert_int_equal(rdv_lane_decode(rdv_buffer_as_slice(&b), &lane), REDRIVE_OK);
	assert_slice(lane.route, l.route);
	assert_slice(lane.topic, l.topic);
	assert_true(lane.orphan && !lane.clean && !lane.discarded);
	assert_true(lane.partition == 3 && lane.partition_stream == 9 && lane.start == l.start && lane.epoch == 77);
	assert_int_equal(lane.opens_without_outcome, 2);
	rdv_buffer_done(&b);
	free(t);
}

static void request_comes_back_as_written(void **state)
{
	struct rdv_request in = {.kind = RDV_REQUEST_REPLAY,
				 .state = RDV_REQUEST_FINISHED,
				 .seq = 8812,
				 .key_hash = 3,
				 .letter = "letter-id-16-byt",
				 .plan = 12,
				 .generation = 2,
				 .charged = 4,
				 .deliveries = 6,
				 .due.ms = -1,
				 .delay_ms = 1000,
				 .outcome = RDV_STATE_DEAD,
				 .plan_name = rdv_slice_text("rp-1")},
			   out;
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	rdv_request_encode(&in, &b);
	assert_int_equal(rdv_request_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	assert_slice(out.plan_name, in.plan_name);
	out.plan_name = in.plan_name;
	assert_true(out.kind == in.kind && out.state == in.state && out.outcome == in.outcome && out.seq == in.seq);
	assert_true(out.key_hash == 3 && out.plan == 12 && out.generation == 2 && out.charged == 4);
	assert_true(out.deliveries == 6 && out.due.ms == -1 && out.delay_ms == 1000);
	assert_memory_equal(out.letter, in.letter, 16);
	b.data[1] = 0;
	assert_int_equal(rdv_request_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_CORRUPT);
	rdv_buffer_done(&b);
}

static void small_records_come_back_as_written(void **state)
{
	struct rdv_seen seen[2] = {{{1, 2}, 3, {4}}, {{UINT64_MAX, 0}, 1ull << 60, {RDV_NEVER}}}, s;
	struct rdv_gate g = {99, true}, gate;
	struct rdv_dedupe_record d = {{5, 6}, RDV_DEDUPE_DONE, 7, {8}, rdv_slice(pool, 400)}, dedupe;
	struct rdv_buffer b;
	struct rdv_reader r;
	bool paused;

	rdv_buffer_init(&b, 0);
	rdv_seen_encode(seen, 2, &b);
	r = rdv_seen_begin(rdv_buffer_as_slice(&b));
	for (int i = 0; i < 2; i++) {
		assert_true(rdv_seen_next(&r, &s));
		assert_memory_equal(&s, &seen[i], sizeof s);
	}
	assert_false(rdv_seen_next(&r, &s));
	assert_false(r.failed);
	rdv_buffer_clear(&b);
	rdv_gate_encode(&g, &b);
	assert_int_equal(rdv_gate_decode(rdv_buffer_as_slice(&b), &gate), REDRIVE_OK);
	assert_true(gate.closed && gate.letter_seq == 99);
	rdv_buffer_clear(&b);
	rdv_dedupe_encode(&d, &b);
	assert_int_equal(rdv_dedupe_decode(rdv_buffer_as_slice(&b), &dedupe), REDRIVE_OK);
	assert_true(dedupe.key.lo == 5 && dedupe.key.hi == 6 && dedupe.owner_seq == 7 && dedupe.until.ms == 8);
	assert_slice(dedupe.answer, rdv_slice(pool, RDV_DEDUPE_ANSWER_BYTES));
	rdv_buffer_clear(&b);
	rdv_pause_encode(true, &b);
	assert_int_equal(rdv_pause_decode(rdv_buffer_as_slice(&b), &paused), REDRIVE_OK);
	assert_true(paused);
	rdv_buffer_clear(&b);
	rdv_close_encode(&b);
	assert_int_equal(rdv_close_decode(rdv_buffer_as_slice(&b)), REDRIVE_OK);
	rdv_buffer_done(&b);
}

static void counters_come_back_without_what_lives(void **state)
{
	struct rdv_account in, out;
	struct rdv_buffer b;
	uint64_t *field = (uint64_t *)&in;

	for (size_t i = 0; i < sizeof in / 8; i++)
		field[i] = i * 0x123456789ull + 1;
	rdv_buffer_init(&b, 0);
	rdv_counters_encode(&in, &b);
	assert_int_equal(rdv_counters_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	in.ready = in.waiting = in.held = in.in_flight = in.calls = in.first_calls = 0;
	assert_memory_equal(&in, &out, sizeof in);
	assert_true(rdv_counters_throughput(rdv_buffer_as_slice(&b)) == 0);
	rdv_counters_append_throughput(1234.5, &b);
	assert_int_equal(rdv_counters_decode(rdv_buffer_as_slice(&b), &out), REDRIVE_OK);
	assert_memory_equal(&in, &out, sizeof in);
	assert_true(rdv_counters_throughput(rdv_buffer_as_slice(&b)) == 1234.5);
	/* An older record with fewer counters. */
	out.received = 1;
	assert_int_equal(rdv_counters_decode(rdv_slice("\x01\x01\x07", 3), &out), REDRIVE_OK);
	assert_true(out.received == 7 && out.acked == 0);
	/* A newer one with more. */
	assert_int_equal(rdv_counters_decode(rdv_slice("\x01\x7f", 2), &out), REDRIVE_VERSION);
	rdv_buffer_done(&b);
}

typedef enum redrive_status (*decoder)(struct rdv_slice in);
static enum redrive_status d_body(struct rdv_slice in)
{
	struct rdv_body o;
	return rdv_body_decode(in, &o);
}
static enum redrive_status d_hint(struct rdv_slice in)
{
	struct rdv_body o;
	return rdv_body_decode_hint(in, &o);
}
static enum redrive_status d_state(struct rdv_slice in)
{
	struct rdv_message_state o;
	return rdv_state_decode(in, &o);
}
static enum redrive_status d_topic(struct rdv_slice in)
{
	static struct rdv_topic_fields o;
	return rdv_topic_decode(in, &o);
}
static enum redrive_status d_lane(struct rdv_slice in)
{
	struct rdv_lane_fields o;
	return rdv_lane_decode(in, &o);
}
static enum redrive_status d_gate(struct rdv_slice in)
{
	struct rdv_gate o;
	return rdv_gate_decode(in, &o);
}
static enum redrive_status d_request(struct rdv_slice in)
{
	struct rdv_request o;
	return rdv_request_decode(in, &o);
}
static enum redrive_status d_dedupe(struct rdv_slice in)
{
	struct rdv_dedupe_record o;
	return rdv_dedupe_decode(in, &o);
}
static enum redrive_status d_counters(struct rdv_slice in)
{
	struct rdv_account o;
	return rdv_counters_decode(in, &o);
}
static enum redrive_status d_pause(struct rdv_slice in)
{
	bool o;
	return rdv_pause_decode(in, &o);
}

static const decoder decoders[] = {d_body,    d_hint,   d_state,    d_topic, d_lane,          d_gate,
				   d_request, d_dedupe, d_counters, d_pause, rdv_close_decode};
#define DECODERS (sizeof decoders / sizeof decoders[0])

static void zeros_are_damage_and_a_higher_version_is_said(void **state)
{
	static uint8_t zeros[64], newer[64] = {2};

	for (size_t i = 0; i < DECODERS; i++) {
		assert_int_equal(decoders[i](rdv_slice(zeros, sizeof zeros)), REDRIVE_CORRUPT);
		assert_int_equal(decoders[i](rdv_slice(NULL, 0)), REDRIVE_CORRUPT);
		assert_int_equal(decoders[i](rdv_slice(newer, sizeof newer)), REDRIVE_VERSION);
	}
}

/* The bytes lie in a block of their exact size, so that a sanitizer sees one read too many. */
static void any_bytes_are_read_inside_their_bounds(void **state)
{
	struct rdv_random r;

	rdv_random_seed(&r, 3);
	for (int i = 0; i < 20000; i++) {
		size_t size = rdv_random_below(&r, 100) + 1;
		uint8_t *bytes = malloc(size);
		struct rdv_reader it;
		struct rdv_run run;
		struct rdv_seen seen;

		for (size_t k = 0; k < size; k++)
			bytes[k] = rdv_random_below(&r, 3) ? (uint8_t)rdv_random_below(&r, 5)
							   : (uint8_t)rdv_random_next(&r);
		bytes[0] = 1;
		for (size_t d = 0; d < DECODERS; d++)
			(void)decoders[d](rdv_slice(bytes, size));
		it = rdv_runs_begin(rdv_slice(bytes, size));
		while (rdv_runs_next(&it, &run))
			assert_true(run.count > 0);
		it = rdv_seen_begin(rdv_slice(bytes, size));
		while (rdv_seen_next(&it, &seen))
			;
		(void)rdv_headers_valid(rdv_slice(bytes, size));
		free(bytes);
	}
}

static void every_type_has_a_name(void **state)
{
	for (int t = RDV_RECORD_TOPIC; t < RDV_RECORD_MAX; t++)
		assert_string_not_equal(rdv_record_name((enum rdv_record)t), "unknown");
	assert_string_equal(rdv_record_name((enum rdv_record)0), "unknown");
	assert_string_equal(rdv_record_name((enum rdv_record)250), "unknown");
	assert_string_equal(rdv_record_name(RDV_RECORD_STATE), "state");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_list_keeps_every_byte_and_order),
		cmocka_unit_test(body_comes_back_as_written),
		cmocka_unit_test(state_comes_back_as_written),
		cmocka_unit_test(state_size_is_bounded_whatever_the_handler_says),
		cmocka_unit_test(history_keeps_the_first_attempt_and_the_last_fifteen),
		cmocka_unit_test(runs_come_back_in_order),
		cmocka_unit_test(runs_refuse_nothing_and_overflow),
		cmocka_unit_test(topic_and_lane_come_back_as_written),
		cmocka_unit_test(request_comes_back_as_written),
		cmocka_unit_test(small_records_come_back_as_written),
		cmocka_unit_test(counters_come_back_without_what_lives),
		cmocka_unit_test(zeros_are_damage_and_a_higher_version_is_said),
		cmocka_unit_test(any_bytes_are_read_inside_their_bounds),
		cmocka_unit_test(every_type_has_a_name),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
