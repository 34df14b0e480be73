/* tool_follow.c - the verb of kafka_tool that watches groups at work: how far each one is, and which messages are dead.
 *
 * Every period one line: {"at": wall ms, "groups": [{"end", "lag"}...], "dead": records}. A group's lag is the ends of
 * its topic less its committed offsets (the start where there is none), pending transactions not waited for. The
 * dead-letter topic is read as it grows, by a reader of committed messages, since the ends of a topic also count a
 * transaction's marks. At SIGTERM the last line: {"dead": [SEQ, ...], "last_dead_ms": wall ms}, with repetitions. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tool.h"

struct followed {
	rd_kafka_t *rk; /* carries the group's name; never joins */
	const char *topic;
	int partitions;
};
struct dead {
	rd_kafka_t *rk;
	json_t *seqs;
	int64_t last_ms;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

static int64_t wall_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static struct followed follow(const struct tool *t, const char *group, const char *topic)
{
	const struct tool_setting defaults[] = {
		{"group.id", group}, {"enable.auto.commit", "false"}, {"isolation.level", "read_uncommitted"}};
	struct followed f = {.rk = tool_client(t, RD_KAFKA_CONSUMER, defaults, 3), .topic = topic};

	f.partitions = tool_partitions(f.rk, topic);
	return f;
}

/* NULL while the broker does not answer. */
static json_t *look(const struct followed *f)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(f->partitions);
	int64_t end = 0, lag = 0, low, high;
	bool all = true;

	for (int i = 0; i < f->partitions; i++)
		rd_kafka_topic_partition_list_add(list, f->topic, i);
	all = !rd_kafka_committed(f->rk, list, 3000);
	for (int i = 0; i < f->partitions && all; i++) {
		all = !rd_kafka_query_watermark_offsets(f->rk, f->topic, i, &low, &high, 3000);
		end += high - low;
		lag += high - (list->elems[i].offset >= 0 ? list->elems[i].offset : low);
	}
	rd_kafka_topic_partition_list_destroy(list);
	return all ? json_pack("{s: I, s: I}", "end", (json_int_t)end, "lag", (json_int_t)lag) : NULL;
}

static struct dead read_dead(const struct tool *t, const char *topic)
{
	const struct tool_setting defaults[] = {
		{"group.id", "kafka-tool"}, {"enable.auto.commit", "false"}, {"isolation.level", "read_committed"}};
	struct dead d = {.rk = tool_client(t, RD_KAFKA_CONSUMER, defaults, 3), .seqs = json_array()};

	tool_check(rd_kafka_assign(d.rk, tool_all(d.rk, topic, RD_KAFKA_OFFSET_BEGINNING)), "assign");
	return d;
}

static void take_dead(struct dead *d, int64_t until_ms)
{
	for (int64_t left; (left = until_ms - wall_ms()) > 0 && !ended;) {
		rd_kafka_message_t *m = rd_kafka_consumer_poll(d->rk, left < 100 ? (int)left : 100);
		rd_kafka_timestamp_type_t type;
		char head[64];
		long long seq;
		if (!m)
			continue;
		size_t n = m->len < sizeof head - 1 ? m->len : sizeof head - 1;
		memcpy(head, m->payload ? m->payload : "", m->payload ? n : 0);
		head[m->payload ? n : 0] = 0;
		if (!m->err && sscanf(head, "k%*d %lld", &seq) == 1) {
			json_array_append_new(d->seqs, json_integer(seq));
			d->last_ms = rd_kafka_message_timestamp(m, &type);
		}
		rd_kafka_message_destroy(m);
	}
}

void tool_follow(const struct tool *t)
{
	int64_t period = tool_number(t->arguments[0]);
	int count = (t->argument_count - 2) / 2;
	struct followed *groups = calloc((size_t)count, sizeof *groups);
	struct dead dead = read_dead(t, t->arguments[1]);

	for (int i = 0; i < count; i++)
		groups[i] = follow(t, t->arguments[2 + 2 * i], t->arguments[3 + 2 * i]);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	while (!ended) {
		int64_t at = wall_ms();
		json_t *found = json_array();
		for (int i = 0; i < count; i++) {
			json_t *one = look(&groups[i]);
			json_array_append_new(found, one ? one : json_null());
		}
		tool_print(json_pack("{s: I, s: o, s: I}", "at", (json_int_t)at, "groups", found, "dead",
				     (json_int_t)json_array_size(dead.seqs)));
		fflush(stdout);
		take_dead(&dead, at + period);
	}
	tool_print(json_pack("{s: o, s: I}", "dead", dead.seqs, "last_dead_ms", (json_int_t)dead.last_ms));
	free(groups);
}
