/* copy_formats.c - the headers of each format: names, types and order of the frameworks that foreign readers know.
 *
 * Looked up in the frameworks' sources and compared with letters that they wrote. Every format ends with the letter's
 * id and reason, so that a copy can be found in the desk, and with what is missing of a body that was cut. */
#include "../../base/text.h"
#include "../../core/fingerprint.h"
#include "copy.h"

static void letter_id(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	rdv_buffer_text(out, s->id);
}

static void group(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	rdv_buffer_text(out, s->group);
}

static void reason(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	rdv_buffer_text(out, rdv_reason_name(s->e->reason));
}

/* For formats whose readers count on a class: where the handler told none, the reason stands in. */
static void class_or_reason(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	rdv_buffer_slice(out, s->e->failure.class);
	if (!s->e->failure.class.size) {
		rdv_buffer_text(out, "redrive.");
		reason(s, out);
	}
}

static void fingerprint(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	char text[RDV_FINGERPRINT_TEXT];

	if (!s->e->fingerprint)
		return;
	rdv_fingerprint_format(s->e->fingerprint, text);
	rdv_buffer_text(out, text);
}

static void body_truncated(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	if (rdv_copy_is_cut(s))
		rdv_buffer_text(out, "true");
}

static void whole_size(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	if (rdv_copy_is_cut(s))
		rdv_buffer_decimal(out, s->e->body_size);
}

static void whole_digest(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	if (rdv_copy_is_cut(s))
		rdv_hex_encode(out, rdv_slice(s->e->body_sha256, sizeof s->e->body_sha256));
}

/* A Java short. */
static void delivery_count(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	rdv_buffer_decimal(out, s->e->deliveries < INT16_MAX ? s->e->deliveries : INT16_MAX);
}

/* Share groups know two reasons, in the words of their broker, which readers compare; ours for the others. */
static void share_group_message(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	if (s->e->reason == RDV_REASON_REJECTED)
		rdv_buffer_text(out, "Offset rejected by client.");
	else if (s->e->reason == RDV_REASON_EXHAUSTED)
		rdv_buffer_text(out, "Offset delivery count exceeded the threshold.");
	else
		reason(s, out);
}

#define FIELD(name, policy, form, field)                                                                               \
	{                                                                                                              \
		name, RDV_COPY_##policy, RDV_COPY_##form, offsetof(struct rdv_envelope, field), NULL, NULL             \
	}
#define MAKE(name, policy, make)                                                                                       \
	{                                                                                                              \
		name, RDV_COPY_##policy, RDV_COPY_MADE, 0, make, NULL                                                  \
	}
#define FIXED(name, policy, text)                                                                                      \
	{                                                                                                              \
		name, RDV_COPY_##policy, RDV_COPY_CONSTANT, 0, NULL, text                                              \
	}
#define COMMON_ROWS                                                                                                    \
	MAKE("redrive-letter-id", APPEND, letter_id), MAKE("redrive-reason", APPEND, reason),                          \
		MAKE("redrive-body-truncated", APPEND, body_truncated), MAKE("redrive-body-size", APPEND, whole_size), \
		MAKE("redrive-body-sha256", APPEND, whole_digest)
#define ERROR_ROWS                                                                                                     \
	FIELD("redrive-error-class", APPEND, TEXT, failure.class),                                                     \
		FIELD("redrive-error-root-class", APPEND, TEXT, failure.root_class),                                   \
		FIELD("redrive-error-code", APPEND, TEXT, failure.code),                                               \
		FIELD("redrive-error-text", APPEND, TEXT, failure.text)

static const struct rdv_copy_row own_rows[] = {
	COMMON_ROWS,
	FIELD("redrive-route", APPEND, TEXT, route),
	MAKE("redrive-group", APPEND, group),
	FIELD("redrive-cluster", APPEND, TEXT, cluster),
	FIELD("redrive-topic", APPEND, TEXT, topic),
	FIELD("redrive-partition", APPEND, DECIMAL32, partition),
	FIELD("redrive-offset", APPEND, DECIMAL64, offset),
	FIELD("redrive-produced-at", APPEND, TIME, produced_at),
	FIELD("redrive-generation", APPEND, DECIMAL32, generation),
	ERROR_ROWS,
	FIELD("redrive-error-stack", APPEND, TEXT, failure.stack),
	MAKE("redrive-fingerprint", APPEND, fingerprint),
	FIELD("redrive-deliveries", APPEND, DECIMAL32, deliveries),
	FIELD("redrive-failures", APPEND, DECIMAL32, causes.failures),
	FIELD("redrive-first-failed-at", APPEND, TIME, first_failed_at),
	FIELD("redrive-last-failed-at", APPEND, TIME, last_failed_at),
	FIELD("redrive-dead-at", APPEND, TIME, dead_at),
	MAKE("redrive-history", APPEND, rdv_copy_history),
	FIELD("redrive-replay", APPEND, TEXT, replay),
	FIELD("redrive-cause", APPEND, TEXT, cause),
	FIELD("redrive-publish-id", APPEND, TEXT, publish_id),
	FIELD("redrive-idempotency-key", APPEND, TEXT, idempotency_key),
	FIELD("redrive-content-type", APPEND, TEXT, content_type),
	FIELD("redrive-traceparent", APPEND, TEXT, traceparent),
	FIELD("redrive-tenant", APPEND, TEXT, tenant),
	FIELD("redrive-schema-version", APPEND, TEXT, schema_version),
	FIELD("redrive-consumer-version", APPEND, TEXT, consumer_version),
	FIELD("redrive-trace-id", APPEND, TEXT, trace_id),
};

/* Spring Kafka's KafkaHeaders.DLT_*, in the order in which DeadLetterPublishingRecoverer adds them. The type of the
 * timestamp is not known here. */
static const struct rdv_copy_row spring_rows[] = {
	MAKE("kafka_dlt-exception-fqcn", REPLACE, class_or_reason),
	FIELD("kafka_dlt-exception-cause-fqcn", REPLACE, TEXT, failure.root_class),
	FIELD("kafka_dlt-exception-message", REPLACE, TEXT, failure.text),
	FIELD("kafka_dlt-exception-stacktrace", REPLACE, TEXT, failure.stack),
	FIELD("kafka_dlt-original-topic", APPEND, TEXT, topic),
	FIELD("kafka_dlt-original-partition", APPEND, BE32, partition),
	FIELD("kafka_dlt-original-offset", APPEND, BE64, offset),
	FIELD("kafka_dlt-original-timestamp", APPEND, BE_TIME, produced_at),
	MAKE("kafka_dlt-original-consumer-group", APPEND, group),
	COMMON_ROWS,
};

/* Kafka Connect's DeadLetterQueueReporter, as for a record that a sink task reports: the route is the connector. */
static const struct rdv_copy_row connect_rows[] = {
	FIELD("__connect.errors.topic", KEEP, TEXT, topic),
	FIELD("__connect.errors.partition", KEEP, DECIMAL32, partition),
	FIELD("__connect.errors.offset", KEEP, DECIMAL64, offset),
	FIELD("__connect.errors.connector.name", KEEP, TEXT, route),
	FIXED("__connect.errors.task.id", KEEP, "0"),
	FIXED("__connect.errors.stage", KEEP, "TASK_PUT"),
	FIXED("__connect.errors.class.name", KEEP, "org.apache.kafka.connect.sink.SinkTask"),
	MAKE("__connect.errors.exception.class.name", KEEP, class_or_reason),
	FIELD("__connect.errors.exception.message", KEEP, TEXT, failure.text),
	FIELD("__connect.errors.exception.stacktrace", KEEP, TEXT, failure.stack),
	COMMON_ROWS,
};

/* Kafka's share groups (KIP-1191). They have no place for the error, so ours stands beside theirs. */
static const struct rdv_copy_row share_group_rows[] = {
	FIELD("__dlq.errors.topic", REPLACE, TEXT, topic),
	FIELD("__dlq.errors.partition", REPLACE, DECIMAL32, partition),
	FIELD("__dlq.errors.offset", REPLACE, DECIMAL64, offset),
	MAKE("__dlq.errors.group", REPLACE, group),
	MAKE("__dlq.errors.delivery.count", REPLACE, delivery_count),
	MAKE("__dlq.errors.message", REPLACE, share_group_message),
	COMMON_ROWS,
	ERROR_ROWS,
};

static const struct rdv_copy_row json_rows[] = {
	FIXED("content-type", APPEND, "application/json"),
	MAKE("redrive-letter-id", APPEND, letter_id),
	MAKE("redrive-reason", APPEND, reason),
};

#define ROWS(rows) rows, sizeof rows / sizeof rows[0]
static const struct rdv_copy_format formats[RDV_FORMAT_COUNT] = {
	[RDV_FORMAT_HEADERS] = {"headers", ROWS(own_rows)},
	[RDV_FORMAT_SPRING] = {"spring", ROWS(spring_rows)},
	[RDV_FORMAT_CONNECT] = {"connect", ROWS(connect_rows)},
	[RDV_FORMAT_KIP1191] = {"kip-1191", ROWS(share_group_rows)},
	[RDV_FORMAT_JSON] = {"json", ROWS(json_rows)},
};
_Static_assert(sizeof own_rows / sizeof own_rows[0] <= RDV_COPY_ROWS_MAX, "one bit a row");

const struct rdv_copy_format *rdv_copy_format(enum rdv_letter_format f)
{
	return &formats[f];
}

const char *rdv_letter_format_name(enum rdv_letter_format f)
{
	return f < RDV_FORMAT_COUNT ? formats[f].name : "";
}

bool rdv_letter_format_parse(struct rdv_slice name, enum rdv_letter_format *out)
{
	for (size_t i = 0; i < RDV_FORMAT_COUNT; i++)
		if (rdv_slice_is(name, formats[i].name)) {
			*out = (enum rdv_letter_format)i;
			return true;
		}
	return false;
}
