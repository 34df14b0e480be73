/* tool.h - what the verbs of kafka_tool share: a handle, arguments, an ending. One thread; a failure ends the process.
 */
#ifndef RDV_TESTS_KAFKA_TOOL_H
#define RDV_TESTS_KAFKA_TOOL_H
#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#define TOOL_TIMEOUT_MS 30000

struct tool_sent { /* what became of what was produced */
	int64_t acknowledged, failed;
	rd_kafka_resp_err_t last; /* why one failed */
};
struct tool {
	const char *brokers;
	char **settings; /* -X NAME=VALUE, given on to librdkafka */
	int setting_count;
	char **arguments; /* of the verb */
	int argument_count;
	struct tool_sent *sent; /* of the producer */
};
struct tool_setting {
	const char *name, *value;
};

/* Says it on standard error and ends with 1. */
_Noreturn void tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tool_check(rd_kafka_resp_err_t code, const char *what);
/* A handle; the defaults first, then what was given with -X. A producer's deliveries are counted in t->sent. */
rd_kafka_t *tool_client(const struct tool *t, rd_kafka_type_t type, const struct tool_setting *defaults, size_t count);
/* The same with a group.id, without anything else. */
rd_kafka_t *tool_consumer(const struct tool *t, const char *group);
int tool_partitions(rd_kafka_t *rk, const char *topic);
/* All partitions of a topic, each with that offset. */
rd_kafka_topic_partition_list_t *tool_all(rd_kafka_t *rk, const char *topic, int64_t offset);
int64_t tool_number(const char *text);
void tool_print(json_t *takes_owned);

/* ---- verbs: tool_admin.c ---- */
void tool_create(const struct tool *t);
void tool_delete(const struct tool *t);
void tool_grow(const struct tool *t);
void tool_alter(const struct tool *t);
void tool_describe(const struct tool *t);
void tool_cut(const struct tool *t);
void tool_topics(const struct tool *t);
void tool_in_sync(const struct tool *t);
void tool_ends(const struct tool *t);
void tool_offsets(const struct tool *t);
void tool_commit(const struct tool *t);
void tool_group(const struct tool *t);
/* ---- verbs: tool_records.c ---- */
void tool_produce(const struct tool *t);
void tool_put(const struct tool *t);
void tool_read(const struct tool *t);
/* ---- tool_follow.c ---- */
void tool_follow(const struct tool *t);
#endif
