/* tool.c - kafka_tool: what the end-to-end tests do at a broker. One verb a call; answers are JSON on standard output.
 *
 * It shares no code with the product: what it reads back is what any other client would see. Keys, values and headers
 * are written in hexadecimal, since they are bytes. Exit 1 with a line on standard error when something failed.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tool.h"

static const struct verb {
	const char *name, *arguments, *help;
	int least;
	void (*run)(const struct tool *t);
} verbs[] = {
	{"create", "TOPIC PARTITIONS FACTOR [NAME=VALUE...]", "make a topic", 3, tool_create},
	{"delete", "TOPIC...", "remove topics", 1, tool_delete},
	{"grow", "TOPIC PARTITIONS", "so many partitions in all", 2, tool_grow},
	{"alter", "TOPIC NAME=VALUE...", "set these settings, and the others back to their defaults", 2, tool_alter},
	{"describe", "TOPIC", "all settings", 1, tool_describe},
	{"cut", "TOPIC PARTITION OFFSET", "delete what is before the offset", 3, tool_cut},
	{"topics", "", "number of partitions by topic", 0, tool_topics},
	{"in_sync", "", "number of replicas in sync of each partition, by topic", 0, tool_in_sync},
	{"ends", "TOPIC", "first and next offset by partition", 1, tool_ends},
	{"offsets", "GROUP TOPIC", "committed offsets by partition; waits for pending transactions", 2, tool_offsets},
	{"commit", "GROUP TOPIC PARTITION OFFSET", "set the offset of a group without members", 4, tool_commit},
	{"group", "GROUP", "state and members", 1, tool_group},
	{"produce", "TOPIC COUNT KEYS [RATE [FIRST [SIZE]]]",
	 "numbered messages: value \"kN SEQ WALL_MS ...\", key \"kN\" with N = SEQ mod KEYS (0: null keys); until "
	 "SIGTERM",
	 3, tool_produce},
	{"follow", "PERIOD_MS DEAD_TOPIC [GROUP TOPIC]...", "lag of groups and what is dead, until SIGTERM", 2,
	 tool_follow},
	{"put", "TOPIC", "messages from standard input, one JSON object a line", 1, tool_put},
	{"read", "TOPIC [read_uncommitted]", "all that is visible now, one JSON object a line", 1, tool_read},
};
#define VERBS (sizeof verbs / sizeof *verbs)

void tool_fail(const char *format, ...)
{
	va_list arguments;

	fputs("kafka_tool: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

void tool_check(rd_kafka_resp_err_t code, const char *what)
{
	if (code)
		tool_fail("%s: %s", what, rd_kafka_err2str(code));
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char why[512];

	if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
		tool_fail("%s=%s: %s", name, value, why);
}

static void count_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
	struct tool_sent *sent = opaque;

	(void)rk;
	*(m->err ? &sent->failed : &sent->acknowledged) += 1;
	if (m->err)
		sent->last = m->err;
}

rd_kafka_t *tool_client(const struct tool *t, rd_kafka_type_t type, const struct tool_setting *defaults, size_t count)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[512];

	set(conf, "bootstrap.servers", t->brokers);
	for (size_t i = 0; i < count; i++)
		set(conf, defaults[i].name, defaults[i].value);
	for (int i = 0; i < t->setting_count; i++) {
		char *name = strdup(t->settings[i]), *value = strchr(name, '=');

		if (!value)
			tool_fail("-X %s: NAME=VALUE is wanted", name);
		*value++ = 0;
		set(conf, name, value);
		free(name);
	}
	if (type == RD_KAFKA_PRODUCER) {
		rd_kafka_conf_set_opaque(conf, t->sent);
		rd_kafka_conf_set_dr_msg_cb(conf, count_delivery);
	}
	rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
	if (!rk)
		tool_fail("%s", why);
	if (type == RD_KAFKA_CONSUMER)
		rd_kafka_poll_set_consumer(rk);
	return rk;
}

rd_kafka_t *tool_consumer(const struct tool *t, const char *group)
{
	const struct tool_setting defaults[] = {{"group.id", group}, {"enable.auto.commit", "false"}};

	return tool_client(t, RD_KAFKA_CONSUMER, defaults, 2);
}

int tool_partitions(rd_kafka_t *rk, const char *topic)
{
	rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
	const struct rd_kafka_metadata *found;

	tool_check(rd_kafka_metadata(rk, 0, handle, &found, TOOL_TIMEOUT_MS), "metadata");
	tool_check(found->topics[0].err, topic);
	int count = found->topics[0].partition_cnt;
	rd_kafka_metadata_destroy(found);
	rd_kafka_topic_destroy(handle);
	return count;
}

rd_kafka_topic_partition_list_t *tool_all(rd_kafka_t *rk, const char *topic, int64_t offset)
{
	int count = tool_partitions(rk, topic);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);

	for (int i = 0; i < count; i++)
		rd_kafka_topic_partition_list_add(list, topic, i)->offset = offset;
	return list;
}

int64_t tool_number(const char *text)
{
	char *end;
	long long value = strtoll(text, &end, 10);

	if (end == text || *end)
		tool_fail("%s: a number is wanted", text);
	return value;
}

void tool_print(json_t *value)
{
	if (!value || json_dumpf(value, stdout, JSON_COMPACT) || putchar('\n') == EOF)
		tool_fail("output");
	json_decref(value);
}

static _Noreturn void usage(void)
{
	fputs("kafka_tool [-X NAME=VALUE]... BROKERS VERB ARGUMENT...\n", stderr);
	for (size_t i = 0; i < VERBS; i++)
		fprintf(stderr, "  %s %s\n        %s\n", verbs[i].name, verbs[i].arguments, verbs[i].help);
	exit(2);
}

int main(int argc, char **argv)
{
	struct tool_sent sent = {0};
	struct tool t = {.settings = calloc((size_t)argc, sizeof *t.settings), .sent = &sent};

	for (int o; (o = getopt(argc, argv, "+X:")) != -1;) {
		if (o != 'X')
			usage();
		t.settings[t.setting_count++] = optarg;
	}
	if (argc - optind < 2)
		usage();
	t.brokers = argv[optind];
	t.arguments = argv + optind + 2;
	t.argument_count = argc - optind - 2;
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(verbs[i].name, argv[optind + 1]) && t.argument_count >= verbs[i].least) {
			verbs[i].run(&t);
			fflush(stdout);
			return 0; /* handles end with the process */
		}
	usage();
}
