/* world.c - see world.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "world.h"

const char *world_broker(void)
{
	const char *address = getenv("REDRIVE_KAFKA");

	return address && *address ? address : NULL;
}

static void world_say(void *ctx, int level, const char *text)
{
	struct world *w = ctx;

	(void)level;
	pthread_mutex_lock(&w->mutex);
	rdv_buffer_text(&w->log, text);
	rdv_buffer_text(&w->log, "\n");
	pthread_mutex_unlock(&w->mutex);
}

bool world_was_said(struct world *w, const char *text)
{
	bool found;

	pthread_mutex_lock(&w->mutex);
	found = strstr(rdv_buffer_string(&w->log), text) != NULL;
	pthread_mutex_unlock(&w->mutex);
	return found;
}

void world_open_alone(struct world *w, const char *brokers, const struct rdv_kafka_setting *settings, size_t count)
{
	static unsigned worlds;
	const char *topics[] = {w->source};
	struct rdv_kafka_options o = {
		.route = "r",
		.brokers = brokers,
		.topics = topics,
		.topic_count = 1,
		.group = w->group,
		.settings = settings,
		.setting_count = count,
	};
	int n = (int)getpid();

	worlds++;
	snprintf(w->source, sizeof w->source, "source-%d-%u", n, worlds);
	snprintf(w->journal, sizeof w->journal, "journal-%d-%u", n, worlds);
	snprintf(w->group, sizeof w->group, "group-%d-%u", n, worlds);
	pthread_mutex_init(&w->mutex, NULL);
	rdv_buffer_init(&w->log, 0);
	assert_int_equal(rdv_kafka_config_copy(&w->config, &o), REDRIVE_OK);
	w->config.say = world_say;
	w->config.say_ctx = w;
}

void world_open(struct world *w, const char *brokers, const struct rdv_kafka_setting *settings, size_t count,
		int journal_max)
{
	world_open_alone(w, brokers, settings, count);
	world_create_topic(w, w->source, 0);
	world_create_topic(w, w->journal, journal_max);
}

void world_close(struct world *w)
{
	rdv_kafka_config_done(&w->config);
	rdv_buffer_done(&w->log);
	pthread_mutex_destroy(&w->mutex);
}

static rd_kafka_t *open_handle(struct world *w, enum rdv_kafka_role role)
{
	struct rdv_error error = {0};
	rd_kafka_t *h;

	if (rdv_kafka_open(&w->config, role, NULL, NULL, &h, &error))
		fail_msg("%s", error.text);
	return h;
}

void world_create_topic(struct world *w, const char *topic, int max_bytes)
{
	rd_kafka_t *h = open_handle(w, RDV_KAFKA_ADMIN);
	rd_kafka_queue_t *queue = rd_kafka_queue_new(h);
	rd_kafka_NewTopic_t *new = rd_kafka_NewTopic_new(topic, 1, 1, NULL, 0);
	rd_kafka_event_t *event;
	size_t count;
	char text[16];

	snprintf(text, sizeof text, "%d", max_bytes);
	if (max_bytes)
		rd_kafka_NewTopic_set_config(new, "max.message.bytes", text);
	rd_kafka_CreateTopics(h, &new, 1, NULL, queue);
	event = rd_kafka_queue_poll(queue, WORLD_LIMIT_MS);
	assert_non_null(event);
	assert_int_equal(rd_kafka_event_error(event), RD_KAFKA_RESP_ERR_NO_ERROR);
	const rd_kafka_topic_result_t **results =
		rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
	assert_int_equal(rd_kafka_topic_result_error(results[0]), RD_KAFKA_RESP_ERR_NO_ERROR);
	rd_kafka_event_destroy(event);
	rd_kafka_NewTopic_destroy(new);
	rd_kafka_queue_destroy(queue);
	rdv_kafka_close(h);
}

/* ---- a member ---- */

static void drop_snapshot(struct member *m)
{
	if (m->snapshot)
		rd_kafka_consumer_group_metadata_destroy(m->snapshot);
	m->snapshot = NULL;
	m->assigned = 0;
}

void member_join(struct world *w, struct member *m)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

	*m = (struct member){.handle = open_handle(w, RDV_KAFKA_GROUP)};
	m->queue = rd_kafka_queue_get_consumer(m->handle);
	rd_kafka_topic_partition_list_add(list, w->source, RD_KAFKA_PARTITION_UA);
	assert_int_equal(rd_kafka_subscribe(m->handle, list), RD_KAFKA_RESP_ERR_NO_ERROR);
	rd_kafka_topic_partition_list_destroy(list);
}

static void rebalance(struct member *m, rd_kafka_event_t *event)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(event);
	int32_t generation;

	drop_snapshot(m);
	if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		rd_kafka_assign(m->handle, NULL);
		return;
	}
	m->rebalances++;
	m->snapshot = rd_kafka_consumer_group_metadata(m->handle);
	m->assigned = list->cnt;
	assert_int_equal(rdv_kafka_generation(m->snapshot, &generation, NULL), REDRIVE_OK);
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = 0;
	rd_kafka_assign(m->handle, list);
}

void member_serve(struct member *m, int ms)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(m->queue, ms);

	if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE)
		rebalance(m, event);
	rd_kafka_event_destroy(event);
}

void member_wait(struct member *m, unsigned rebalances)
{
	int64_t until = rdv_mono_now().ms + WORLD_LIMIT_MS;

	while (m->rebalances < rebalances || !m->snapshot) {
		assert_true(rdv_mono_now().ms < until);
		member_serve(m, 50);
	}
}

void member_leave(struct member *m)
{
	drop_snapshot(m);
	rd_kafka_queue_destroy(m->queue);
	rdv_kafka_close(m->handle);
}

/* ---- what is visible ---- */

void world_visible(struct world *w, const char *topic, struct rdv_buffer *out)
{
	char text[256];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_message_t *m;
	rd_kafka_t *h;

	rd_kafka_conf_set(conf, "bootstrap.servers", w->config.brokers, NULL, 0);
	rd_kafka_conf_set(conf, "group.id", "reader", NULL, 0);
	rd_kafka_conf_set(conf, "enable.partition.eof", "true", NULL, 0);
	rd_kafka_conf_set(conf, "fetch.wait.max.ms", "10", NULL, 0);
	rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
	h = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
	assert_non_null(h);
	rd_kafka_poll_set_consumer(h);
	rd_kafka_topic_partition_list_add(list, topic, 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
	rd_kafka_assign(h, list);
	rd_kafka_topic_partition_list_destroy(list);
	rdv_buffer_clear(out);
	for (bool end = false; !end; rd_kafka_message_destroy(m)) {
		m = rd_kafka_consumer_poll(h, WORLD_LIMIT_MS);
		assert_non_null(m);
		end = m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
		if (m->err)
			continue;
		rdv_buffer_append(out, m->payload, m->len);
		rdv_buffer_text(out, "\n");
	}
	rd_kafka_destroy(h);
}

int64_t world_committed(struct world *w)
{
	rd_kafka_t *h = open_handle(w, RDV_KAFKA_READER);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *p = rd_kafka_topic_partition_list_add(list, w->source, 0);
	int64_t offset;

	assert_int_equal(rd_kafka_committed(h, list, WORLD_LIMIT_MS), RD_KAFKA_RESP_ERR_NO_ERROR);
	assert_int_equal(p->err, RD_KAFKA_RESP_ERR_NO_ERROR);
	offset = p->offset == RD_KAFKA_OFFSET_INVALID ? -1 : p->offset;
	rd_kafka_topic_partition_list_destroy(list);
	rdv_kafka_close(h);
	return offset;
}

/* ---- a broker ---- */

/* One line: the broker's address, once it answers. */
static void await_answer(struct broker *b)
{
	size_t size = 0;

	while (size < sizeof b->address - 1) {
		assert_int_equal(read(b->from, b->address + size, 1), 1);
		if (b->address[size] == '\n')
			break;
		size++;
	}
	b->address[size] = 0;
}

void broker_start(struct broker *b)
{
	int to[2], from[2];

	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	b->pid = fork();
	if (b->pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execlp("python3", "python3", BROKER_PY, "--control", (char *)NULL);
		_exit(127);
	}
	assert_true(b->pid > 0);
	close(to[0]), close(from[1]);
	b->to = to[1];
	b->from = from[0];
	await_answer(b);
}

void broker_do(struct broker *b, const char *verb)
{
	char line[32];
	int size = snprintf(line, sizeof line, "%s\n", verb);

	assert_int_equal(write(b->to, line, (size_t)size), size);
	await_answer(b);
}

void broker_end(struct broker *b)
{
	close(b->to);
	waitpid(b->pid, NULL, 0);
	close(b->from);
}
