/* test_kafka_copy.c - copies of letters for foreign readers: names, types and order of each framework, as in letters
 * that the framework itself wrote (Spring Kafka 4.0, Kafka Connect 4.3, Kafka share groups 4.4). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include "brokers/kafka/letters.h"

#define ID "letter's" /* any 26 characters */
#define COMMON                                                                                                         \
	{"redrive-letter-id", ID, 0},                                                                                  \
	{                                                                                                              \
		"redrive-reason", "exhausted", 9                                                                       \
	}

struct wanted {
	const char *name, *value;
	size_t size;
};

static struct rdv_buffer headers; /* of the message */

static void have(const struct rdv_header *items, size_t count)
{
	rdv_buffer_clear(&headers);
	rdv_headers_encode(&headers, items, count);
}

static struct rdv_envelope sample(void)
{
	static const struct rdv_header own[] = {
		{{(const uint8_t *)"tenant", 6}, {(const uint8_t *)"acme", 4}},
		{{(const uint8_t *)"bin", 3}, {(const uint8_t *)"\xde\xad\0\xff", 4}},
		{{(const uint8_t *)"dup", 3}, {(const uint8_t *)"1", 1}},
		{{(const uint8_t *)"dup", 3}, {(const uint8_t *)"2", 1}},
		{{(const uint8_t *)"empty", 5}, {NULL, 0}},
	};

	have(own, 5);
	return (struct rdv_envelope){
		.cluster = rdv_slice_text("c1"),
		.topic = rdv_slice_text("orders"),
		.route = rdv_slice_text("booking"),
		.partition = 2,
		.offset = 0x0102030405,
		.reason = RDV_REASON_EXHAUSTED,
		.key = rdv_slice("k\0\xff", 3),
		.headers = rdv_buffer_as_slice(&headers),
		.failure = {rdv_slice_text("app.Refused"), rdv_slice_text("java.net.ConnectException"),
			    rdv_slice_text("503"), rdv_slice_text("gr\xc3\xb6\xc3\x9f\x65r\nzwei"),
			    rdv_slice_text("app.Refused: no\n\tat app.Main")},
		.deliveries = 5,
		.produced_at = {1764500001002},
	};
}

static struct rdv_letter_copy make(enum rdv_letter_format f, const struct rdv_envelope *e)
{
	struct rdv_letter_copy c;

	assert_int_equal(rdv_letter_copy_make(f, e, rdv_slice("body\0\xff", 6), "billing", &c), REDRIVE_OK);
	return c;
}

static void assert_headers(const struct rdv_letter_copy *c, const struct wanted *w, size_t count)
{
	uint64_t said;
	struct rdv_reader r = rdv_headers_begin(rdv_buffer_as_slice(&c->headers), &said);
	struct rdv_header h;

	assert_true(rdv_headers_valid(rdv_buffer_as_slice(&c->headers)));
	for (size_t i = 0; i < count; i++) {
		if (!rdv_headers_next(&r, &h) || !rdv_slice_is(h.name, w[i].name))
			fail_msg("%zu: wanted %s", i, w[i].name);
		if (strcmp(w[i].value, ID) == 0)
			assert_int_equal(h.value.size, 26);
		else if (!rdv_slice_equal(h.value, rdv_slice(w[i].value, w[i].size ? w[i].size : strlen(w[i].value))))
			fail_msg("%s: got %.*s", w[i].name, (int)h.value.size, h.value.data);
	}
	assert_false(rdv_headers_next(&r, &h));
	assert_int_equal(said, count);
}
#define ASSERT_HEADERS(c, ...)                                                                                         \
	do {                                                                                                           \
		static const struct wanted w[] = {__VA_ARGS__};                                                        \
		assert_headers(c, w, sizeof w / sizeof w[0]);                                                          \
	} while (0)
#define OWN                                                                                                            \
	{"tenant", "acme", 0}, {"bin", "\xde\xad\0\xff", 4}, {"dup", "1", 0}, {"dup", "2", 0},                         \
	{                                                                                                              \
		"empty", "", 0                                                                                         \
	}

/* pitfall: dead-lettered copy loses the key; copy all properties: key, value and headers are the message's, byte by
 * byte */
static void key_and_value_are_the_messages(void **state)
{
	struct rdv_envelope e = sample();

	for (int f = 0; f < RDV_FORMAT_JSON; f++) {
		struct rdv_letter_copy c = make((enum rdv_letter_format)f, &e);

		assert_true(c.has_key && c.has_value);
		assert_true(rdv_slice_equal(rdv_buffer_as_slice(&c.key), e.key));
		assert_true(rdv_slice_equal(rdv_buffer_as_slice(&c.value), rdv_slice("body\0\xff", 6)));
		rdv_letter_copy_done(&c);
	}
}

/* pitfall: null value of a dead message: null and empty keys and values stay apart */
static void null_and_empty_stay_apart(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c;

	e.null_key = e.tombstone = true;
	e.key = rdv_slice(NULL, 0);
	assert_int_equal(rdv_letter_copy_make(RDV_FORMAT_SPRING, &e, rdv_slice(NULL, 0), NULL, &c), REDRIVE_OK);
	assert_false(c.has_key || c.has_value);
	rdv_letter_copy_done(&c);
	e.null_key = e.tombstone = false;
	assert_int_equal(rdv_letter_copy_make(RDV_FORMAT_SPRING, &e, rdv_slice(NULL, 0), NULL, &c), REDRIVE_OK);
	assert_true(c.has_key && c.has_value && c.key.size == 0 && c.value.size == 0);
	rdv_letter_copy_done(&c);
}

static void spring_headers_are_those_of_the_recoverer(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c = make(RDV_FORMAT_SPRING, &e);

	ASSERT_HEADERS(&c, OWN, {"kafka_dlt-exception-fqcn", "app.Refused", 0},
		       {"kafka_dlt-exception-cause-fqcn", "java.net.ConnectException", 0},
		       {"kafka_dlt-exception-message", "gr\xc3\xb6\xc3\x9f\x65r\nzwei", 0},
		       {"kafka_dlt-exception-stacktrace", "app.Refused: no\n\tat app.Main", 0},
		       {"kafka_dlt-original-topic", "orders", 0}, {"kafka_dlt-original-partition", "\0\0\0\2", 4},
		       {"kafka_dlt-original-offset", "\0\0\0\1\2\3\4\5", 8},
		       {"kafka_dlt-original-timestamp", "\0\0\1\x9a\xd4\x65\x50\xea", 8},
		       {"kafka_dlt-original-consumer-group", "billing", 0}, COMMON);
	rdv_letter_copy_done(&c);
}

static void connect_headers_are_those_of_a_reported_record(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c = make(RDV_FORMAT_CONNECT, &e);

	ASSERT_HEADERS(&c, OWN, {"__connect.errors.topic", "orders", 0}, {"__connect.errors.partition", "2", 0},
		       {"__connect.errors.offset", "4328719365", 0}, {"__connect.errors.connector.name", "booking", 0},
		       {"__connect.errors.task.id", "0", 0}, {"__connect.errors.stage", "TASK_PUT", 0},
		       {"__connect.errors.class.name", "org.apache.kafka.connect.sink.SinkTask", 0},
		       {"__connect.errors.exception.class.name", "app.Refused", 0},
		       {"__connect.errors.exception.message", "gr\xc3\xb6\xc3\x9f\x65r\nzwei", 0},
		       {"__connect.errors.exception.stacktrace", "app.Refused: no\n\tat app.Main", 0}, COMMON);
	rdv_letter_copy_done(&c);
}

static void share_group_headers_are_the_brokers_with_our_error_beside(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c = make(RDV_FORMAT_KIP1191, &e);

	ASSERT_HEADERS(&c, OWN, {"__dlq.errors.topic", "orders", 0}, {"__dlq.errors.partition", "2", 0},
		       {"__dlq.errors.offset", "4328719365", 0}, {"__dlq.errors.group", "billing", 0},
		       {"__dlq.errors.delivery.count", "5", 0},
		       {"__dlq.errors.message", "Offset delivery count exceeded the threshold.", 0}, COMMON,
		       {"redrive-error-class", "app.Refused", 0},
		       {"redrive-error-root-class", "java.net.ConnectException", 0}, {"redrive-error-code", "503", 0},
		       {"redrive-error-text", "gr\xc3\xb6\xc3\x9f\x65r\nzwei", 0});
	rdv_letter_copy_done(&c);
}

static void own_headers_tell_the_whole_letter(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c;

	e.fingerprint = 0x9f86d081884c7d65;
	e.causes.failures = 4;
	e.dead_at.ms = 1764500002000;
	e.history_count = 1;
	e.history[0] = (struct rdv_attempt){.n = 1, .at = {1764500001500}, .took_ms = 30, .verdict = RDV_RETRY};
	c = make(RDV_FORMAT_HEADERS, &e);
	ASSERT_HEADERS(&c, OWN, COMMON, {"redrive-route", "booking", 0}, {"redrive-group", "billing", 0},
		       {"redrive-cluster", "c1", 0}, {"redrive-topic", "orders", 0}, {"redrive-partition", "2", 0},
		       {"redrive-offset", "4328719365", 0}, {"redrive-produced-at", "2025-11-30T10:53:21.002Z", 0},
		       {"redrive-generation", "0", 0}, {"redrive-error-class", "app.Refused", 0},
		       {"redrive-error-root-class", "java.net.ConnectException", 0}, {"redrive-error-code", "503", 0},
		       {"redrive-error-text", "gr\xc3\xb6\xc3\x9f\x65r\nzwei", 0},
		       {"redrive-error-stack", "app.Refused: no\n\tat app.Main", 0},
		       {"redrive-fingerprint", "v1:9f86d081884c7d65", 0}, {"redrive-deliveries", "5", 0},
		       {"redrive-failures", "4", 0}, {"redrive-dead-at", "2025-11-30T10:53:22.000Z", 0},
		       {"redrive-history",
			"[{\"n\":1,\"at\":\"2025-11-30T10:53:21.500Z\",\"took_ms\":30,\"verdict\":\"retry\","
			"\"cause\":\"none\",\"code\":null,\"class\":null,\"text\":null,\"next_at\":null}]",
			0});
	rdv_letter_copy_done(&c);
}

/* pitfall: error class and reason are always told */
static void readers_that_count_on_a_class_find_one(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c;

	have(NULL, 0);
	e.headers = rdv_buffer_as_slice(&headers);
	e.failure = (struct rdv_failure){0};
	e.produced_at.ms = 0;
	e.reason = RDV_REASON_FOLLOWER;
	assert_int_equal(rdv_letter_copy_make(RDV_FORMAT_SPRING, &e, rdv_slice(NULL, 0), NULL, &c), REDRIVE_OK);
	ASSERT_HEADERS(&c, {"kafka_dlt-exception-fqcn", "redrive.follower", 0},
		       {"kafka_dlt-original-topic", "orders", 0}, {"kafka_dlt-original-partition", "\0\0\0\2", 4},
		       {"kafka_dlt-original-offset", "\0\0\0\1\2\3\4\5", 8}, {"redrive-letter-id", ID, 0},
		       {"redrive-reason", "follower", 0});
	rdv_letter_copy_done(&c);
	e.deliveries = 100000; /* a Java short at the reader's */
	c = make(RDV_FORMAT_KIP1191, &e);
	ASSERT_HEADERS(&c, {"__dlq.errors.topic", "orders", 0}, {"__dlq.errors.partition", "2", 0},
		       {"__dlq.errors.offset", "4328719365", 0}, {"__dlq.errors.group", "billing", 0},
		       {"__dlq.errors.delivery.count", "32767", 0}, {"__dlq.errors.message", "follower", 0},
		       {"redrive-letter-id", ID, 0}, {"redrive-reason", "follower", 0});
	rdv_letter_copy_done(&c);
}

/* pitfall: a message that fails, is replayed and fails again: exception headers do not pile up */
static void earlier_headers_are_treated_as_the_framework_does(void **state)
{
	static const struct rdv_header before[] = {
		{{(const uint8_t *)"kafka_dlt-exception-fqcn", 24}, {(const uint8_t *)"Old", 3}},
		{{(const uint8_t *)"kafka_dlt-original-topic", 24}, {(const uint8_t *)"first", 5}},
		{{(const uint8_t *)"__connect.errors.topic", 22}, {(const uint8_t *)"first", 5}},
		{{(const uint8_t *)"__dlq.errors.message", 20}, {(const uint8_t *)"old", 3}},
		{{(const uint8_t *)"Redrive-Reason", 14}, {(const uint8_t *)"forged", 6}},
		{{(const uint8_t *)"redrive-", 8}, {(const uint8_t *)"forged", 6}},
		{{(const uint8_t *)"redriver", 8}, {(const uint8_t *)"mine", 4}},
	};
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c;

	have(before, 7);
	e.headers = rdv_buffer_as_slice(&headers);
	e.failure = (struct rdv_failure){.class = rdv_slice_text("New")};
	c = make(RDV_FORMAT_SPRING, &e);
	ASSERT_HEADERS(&c, {"kafka_dlt-original-topic", "first", 0}, {"__connect.errors.topic", "first", 0},
		       {"__dlq.errors.message", "old", 0}, {"redriver", "mine", 0},
		       {"kafka_dlt-exception-fqcn", "New", 0}, {"kafka_dlt-original-topic", "orders", 0},
		       {"kafka_dlt-original-partition", "\0\0\0\2", 4},
		       {"kafka_dlt-original-offset", "\0\0\0\1\2\3\4\5", 8},
		       {"kafka_dlt-original-timestamp", "\0\0\1\x9a\xd4\x65\x50\xea", 8},
		       {"kafka_dlt-original-consumer-group", "billing", 0}, COMMON);
	rdv_letter_copy_done(&c);
	c = make(RDV_FORMAT_CONNECT, &e);
	ASSERT_HEADERS(&c, {"kafka_dlt-exception-fqcn", "Old", 0}, {"kafka_dlt-original-topic", "first", 0},
		       {"__connect.errors.topic", "first", 0}, {"__dlq.errors.message", "old", 0},
		       {"redriver", "mine", 0}, {"__connect.errors.partition", "2", 0},
		       {"__connect.errors.offset", "4328719365", 0}, {"__connect.errors.connector.name", "booking", 0},
		       {"__connect.errors.task.id", "0", 0}, {"__connect.errors.stage", "TASK_PUT", 0},
		       {"__connect.errors.class.name", "org.apache.kafka.connect.sink.SinkTask", 0},
		       {"__connect.errors.exception.class.name", "New", 0}, COMMON);
	rdv_letter_copy_done(&c);
	c = make(RDV_FORMAT_KIP1191, &e);
	ASSERT_HEADERS(&c, {"kafka_dlt-exception-fqcn", "Old", 0}, {"kafka_dlt-original-topic", "first", 0},
		       {"__connect.errors.topic", "first", 0}, {"redriver", "mine", 0},
		       {"__dlq.errors.topic", "orders", 0}, {"__dlq.errors.partition", "2", 0},
		       {"__dlq.errors.offset", "4328719365", 0}, {"__dlq.errors.group", "billing", 0},
		       {"__dlq.errors.delivery.count", "5", 0},
		       {"__dlq.errors.message", "Offset delivery count exceeded the threshold.", 0}, COMMON,
		       {"redrive-error-class", "New", 0});
	rdv_letter_copy_done(&c);
}

/* pitfall: too large for the broker: kept with a mark, the original's size and digest */
static void a_cut_body_is_marked_in_every_format(void **state)
{
	struct rdv_envelope e = sample();

	e.body_size = 5000000000;
	for (int f = 0; f < RDV_FORMAT_JSON; f++) {
		struct rdv_letter_copy c;
		struct rdv_header h;
		struct rdv_reader r;
		uint64_t count, found = 0;

		e.body_truncated = f % 2; /* told so, or seen from its size: a body that was lost */
		c = make((enum rdv_letter_format)f, &e);
		r = rdv_headers_begin(rdv_buffer_as_slice(&c.headers), &count);
		while (rdv_headers_next(&r, &h)) {
			found += rdv_slice_is(h.name, "redrive-body-truncated") && rdv_slice_is(h.value, "true");
			found += rdv_slice_is(h.name, "redrive-body-size") && rdv_slice_is(h.value, "5000000000");
			found += rdv_slice_is(h.name, "redrive-body-sha256") && h.value.size == 64;
		}
		assert_int_equal(found, 3);
		rdv_letter_copy_done(&c);
	}
}

static json_t *load(const struct rdv_letter_copy *c)
{
	json_t *o =
		json_loadb((const char *)c->value.data, c->value.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	assert_non_null(o);
	return o;
}

static void assert_member(json_t *o, const char *name, const char *wanted)
{
	const char *got = json_string_value(json_object_get(o, name));

	if (!got || strcmp(got, wanted) != 0)
		fail_msg("%s: got %s", name, got ? got : "nothing");
}

static void json_wraps_the_whole_letter(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c = make(RDV_FORMAT_JSON, &e);
	json_t *o = load(&c), *list = json_object_get(o, "headers");

	ASSERT_HEADERS(&c, {"content-type", "application/json", 0}, COMMON);
	assert_true(c.has_key && rdv_slice_equal(rdv_buffer_as_slice(&c.key), e.key));
	assert_member(o, "route", "booking");
	assert_member(o, "group", "billing");
	assert_member(o, "topic", "orders");
	assert_member(o, "reason", "exhausted");
	assert_member(o, "produced_at", "2025-11-30T10:53:21.002Z");
	assert_member(json_object_get(o, "error"), "text", "gr\xc3\xb6\xc3\x9f\x65r\nzwei");
	assert_int_equal(json_integer_value(json_object_get(o, "offset")), 0x0102030405);
	assert_true(json_is_null(json_object_get(o, "key")));
	assert_member(o, "key_base64", "awD/"); /* "k", 0, 0xff */
	assert_true(json_is_null(json_object_get(o, "body_text")));
	assert_member(o, "body_base64", "Ym9keQD/");
	assert_int_equal(json_array_size(list), 5);
	assert_int_equal(json_array_size(json_array_get(list, 0)), 2);
	assert_string_equal(json_string_value(json_array_get(json_array_get(list, 1), 1)), "3q0A/w==");
	assert_string_equal(json_string_value(json_array_get(json_array_get(list, 1), 2)), "base64");
	json_decref(o);
	rdv_letter_copy_done(&c);
}

static void json_tells_text_null_and_empty_apart(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c;
	json_t *o;

	e.key = rdv_slice(NULL, 0);
	assert_int_equal(rdv_letter_copy_make(RDV_FORMAT_JSON, &e, rdv_slice("{\"a\":\0}", 7), NULL, &c), REDRIVE_OK);
	o = load(&c);
	assert_member(o, "key", "");
	assert_int_equal(json_string_length(json_object_get(o, "body_text")), 7);
	assert_true(json_is_null(json_object_get(o, "key_base64")) && json_is_null(json_object_get(o, "body_base64")));
	assert_true(json_is_null(json_object_get(o, "group")));
	assert_true(json_is_false(json_object_get(o, "null")));
	json_decref(o);
	rdv_letter_copy_done(&c);
	e.null_key = e.tombstone = true;
	assert_int_equal(rdv_letter_copy_make(RDV_FORMAT_JSON, &e, rdv_slice(NULL, 0), NULL, &c), REDRIVE_OK);
	o = load(&c);
	assert_true(!c.has_key && c.has_value);
	assert_true(json_is_null(json_object_get(o, "key")) && json_is_null(json_object_get(o, "key_base64")));
	assert_true(json_is_null(json_object_get(o, "body_text")) && json_is_null(json_object_get(o, "body_base64")));
	assert_true(json_is_true(json_object_get(o, "null")));
	json_decref(o);
	rdv_letter_copy_done(&c);
}

static void formats_have_names(void **state)
{
	static const char *const names[] = {"headers", "spring", "connect", "kip-1191", "json"};
	enum rdv_letter_format f;

	for (int i = 0; i < RDV_FORMAT_COUNT; i++) {
		assert_string_equal(rdv_letter_format_name((enum rdv_letter_format)i), names[i]);
		assert_true(rdv_letter_format_parse(rdv_slice_text(names[i]), &f) && (int)f == i);
	}
	assert_false(rdv_letter_format_parse(rdv_slice_text("Spring"), &f));
}

static void a_broken_list_of_headers_is_refused(void **state)
{
	struct rdv_envelope e = sample();
	struct rdv_letter_copy c;

	e.headers = rdv_slice("\x05\x01n", 3);
	assert_int_equal(rdv_letter_copy_make(RDV_FORMAT_SPRING, &e, rdv_slice(NULL, 0), NULL, &c), REDRIVE_INVALID);
	rdv_letter_copy_done(&c);
	rdv_letter_copy_done(NULL);
}

static int finish(void **state)
{
	rdv_buffer_done(&headers);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_and_value_are_the_messages),
		cmocka_unit_test(null_and_empty_stay_apart),
		cmocka_unit_test(spring_headers_are_those_of_the_recoverer),
		cmocka_unit_test(connect_headers_are_those_of_a_reported_record),
		cmocka_unit_test(share_group_headers_are_the_brokers_with_our_error_beside),
		cmocka_unit_test(own_headers_tell_the_whole_letter),
		cmocka_unit_test(readers_that_count_on_a_class_find_one),
		cmocka_unit_test(earlier_headers_are_treated_as_the_framework_does),
		cmocka_unit_test(a_cut_body_is_marked_in_every_format),
		cmocka_unit_test(json_wraps_the_whole_letter),
		cmocka_unit_test(json_tells_text_null_and_empty_apart),
		cmocka_unit_test(formats_have_names),
		cmocka_unit_test(a_broken_list_of_headers_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, finish);
}
