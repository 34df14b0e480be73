/* tool_records.c - verbs of kafka_tool that write and read messages. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tool.h"

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

/* ---- writing ---- */

/* Idempotent: order holds and nothing comes twice, also while a broker is killed. */
static rd_kafka_t *producer(const struct tool *t)
{
	static const struct tool_setting defaults[] = {
		{"enable.idempotence", "true"},
		{"linger.ms", "5"},
		{"message.timeout.ms", "300000"},
		{"message.max.bytes", "20000000"},
	};
	return tool_client(t, RD_KAFKA_PRODUCER, defaults, sizeof defaults / sizeof *defaults);
}

static void finish(const struct tool *t, rd_kafka_t *rk)
{
	tool_check(rd_kafka_flush(rk, 300000), "flush");
	if (t->sent->failed)
		fprintf(stderr, "kafka_tool: not delivered: %s\n", rd_kafka_err2str(t->sent->last));
	tool_print(json_pack("{s: I, s: I}", "acknowledged", (json_int_t)t->sent->acknowledged, "failed",
			     (json_int_t)t->sent->failed));
}

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* Until it is time for message number `done`, serving the producer meanwhile. */
static void keep_rate(rd_kafka_t *rk, int64_t start_us, int64_t done, int64_t rate)
{
	for (;;) {
		int64_t wait = start_us + done * 1000000 / rate - clock_us(CLOCK_MONOTONIC);
		if (wait <= 0 || ended)
			return;
		rd_kafka_poll(rk, wait < 1000 ? 1 : (int)(wait / 1000 < 50 ? wait / 1000 : 50));
	}
}

static void produce_one(rd_kafka_t *rk, const char *topic, const char *key, const char *value, size_t size)
{
	for (;;) {
		rd_kafka_resp_err_t code =
			rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
					  RD_KAFKA_V_KEY(key, key ? strlen(key) : 0),
					  RD_KAFKA_V_VALUE((void *)value, size), RD_KAFKA_V_END);
		if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
			tool_check(code, "produce");
			return;
		}
		rd_kafka_poll(rk, 20);
	}
}

void tool_produce(const struct tool *t)
{
	int64_t given[] = {0, 0, 0, 0, 64}; /* COUNT KEYS RATE FIRST SIZE */
	rd_kafka_t *rk = producer(t);

	for (int i = 1; i < t->argument_count && i <= 5; i++)
		given[i - 1] = tool_number(t->arguments[i]);
	int64_t count = given[0], keys = given[1], rate = given[2], first = given[3], start = clock_us(CLOCK_MONOTONIC);
	size_t size = (size_t)given[4];
	char *value = calloc(1, size + 64), key[32];
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	for (int64_t i = 0; i < count && !ended; i++) {
		int64_t seq = first + i, number = keys ? seq % keys : 0;
		snprintf(key, sizeof key, "k%lld", (long long)number);
		int used = snprintf(value, 64, "%s %lld %lld ", key, (long long)seq,
				    (long long)(clock_us(CLOCK_REALTIME) / 1000));
		if ((size_t)used < size)
			memset(value + used, '.', size - (size_t)used);
		produce_one(rk, t->arguments[0], keys ? key : NULL, value, size > (size_t)used ? size : (size_t)used);
		if (rate)
			keep_rate(rk, start, i + 1, rate);
		else if (i % 1000 == 0)
			rd_kafka_poll(rk, 0);
	}
	free(value);
	finish(t, rk);
}

static int digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	if (!at)
		tool_fail("hexadecimal digits in lower case are wanted");
	return (int)(at - digits);
}

/* ---- any message ---- */

struct bytes {
	char *data; /* NULL = null; owns */
	size_t size;
};

static struct bytes unhex(const json_t *text)
{
	struct bytes out = {0};

	if (!json_is_string(text))
		return out;
	out.size = json_string_length(text) / 2;
	out.data = malloc(out.size + 1);
	const char *at = json_string_value(text);
	for (size_t i = 0; i < out.size; i++)
		out.data[i] = (char)(digit(at[2 * i]) << 4 | digit(at[2 * i + 1]));
	return out;
}

static rd_kafka_headers_t *headers_of(const json_t *list)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(json_array_size(list));
	json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		struct bytes value = unhex(json_array_get(item, 1));
		tool_check(rd_kafka_header_add(headers, json_string_value(json_array_get(item, 0)), -1, value.data,
					       value.data ? (ssize_t)value.size : 0),
			   "header");
		free(value.data);
	}
	return headers;
}

static void put_line(rd_kafka_t *rk, const char *topic, const char *line)
{
	json_error_t error;
	json_t *item = json_loads(line, 0, &error), *partition = json_object_get(item, "partition");

	if (!item)
		tool_fail("input: %s", error.text);
	struct bytes key = unhex(json_object_get(item, "key")), value = unhex(json_object_get(item, "value"));
	rd_kafka_headers_t *headers = headers_of(json_object_get(item, "headers"));
	tool_check(rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
				     RD_KAFKA_V_PARTITION(partition ? (int32_t)json_integer_value(partition)
								    : RD_KAFKA_PARTITION_UA),
				     RD_KAFKA_V_KEY(key.data, key.size), RD_KAFKA_V_VALUE(value.data, value.size),
				     RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END),
		   "produce");
	free(key.data);
	free(value.data);
	json_decref(item);
	rd_kafka_poll(rk, 0);
}

/* {"key": HEX|null, "value": HEX|null, "headers": [[NAME, HEX|null], ...], "partition": N}; each member may be absent.
 */
void tool_put(const struct tool *t)
{
	rd_kafka_t *rk = producer(t);
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, stdin) > 0)
		put_line(rk, t->arguments[0], line);
	free(line);
	finish(t, rk);
}

/* ---- reading ---- */

static json_t *hex(const void *data, size_t size)
{
	if (!data)
		return json_null();
	char *text = malloc(2 * size + 1);
	for (size_t i = 0; i < size; i++)
		sprintf(text + 2 * i, "%02x", ((const unsigned char *)data)[i]);
	json_t *out = json_stringn(text, 2 * size);
	free(text);
	return out;
}

static json_t *read_headers(const rd_kafka_message_t *m)
{
	rd_kafka_headers_t *headers;
	json_t *out = json_array();
	const char *name;
	const void *value;
	size_t size;

	if (rd_kafka_message_headers(m, &headers))
		return out;
	for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++)
		json_array_append_new(out, json_pack("[s, o]", name, hex(value, size)));
	return out;
}

static void print_message(const rd_kafka_message_t *m)
{
	rd_kafka_timestamp_type_t type;

	tool_print(json_pack("{s: i, s: I, s: I, s: o, s: o, s: o}", "partition", (int)m->partition, "offset",
			     (json_int_t)m->offset, "timestamp", (json_int_t)rd_kafka_message_timestamp(m, &type),
			     "key", hex(m->key, m->key_len), "value", hex(m->payload, m->len), "headers",
			     read_headers(m)));
}

/* To the end of each partition: what is behind an open transaction is not seen by a reader of committed messages. */
void tool_read(const struct tool *t)
{
	const struct tool_setting defaults[] = {
		{"group.id", "kafka-tool"},
		{"enable.auto.commit", "false"},
		{"enable.partition.eof", "true"},
		{"isolation.level", t->argument_count > 1 ? t->arguments[1] : "read_committed"},
		{"fetch.wait.max.ms", "20"},
		{"fetch.message.max.bytes", "20000000"},
	};
	rd_kafka_t *rk = tool_client(t, RD_KAFKA_CONSUMER, defaults, sizeof defaults / sizeof *defaults);
	rd_kafka_topic_partition_list_t *list = tool_all(rk, t->arguments[0], RD_KAFKA_OFFSET_BEGINNING);

	bool *ends = calloc((size_t)list->cnt, sizeof *ends);

	tool_check(rd_kafka_assign(rk, list), "assign");
	for (int at_end = 0; at_end < list->cnt;) {
		rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, TOOL_TIMEOUT_MS);
		if (!m)
			tool_fail("%s: neither a message nor the end", t->arguments[0]);
		if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
			at_end += !ends[m->partition];
			ends[m->partition] = true;
		} else if (!m->err) {
			print_message(m);
		} else if (m->err != RD_KAFKA_RESP_ERR__TRANSPORT && m->err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
			tool_fail("%s: %s", t->arguments[0], rd_kafka_message_errstr(m));
		}
		rd_kafka_message_destroy(m);
	}
	free(ends);
}
