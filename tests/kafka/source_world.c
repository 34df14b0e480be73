/* source_world.c - see source_world.h. */
#include "source_world.h"
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "brokers/kafka/entry.h"
#include "brokers/kafka/topics.h"

#define CHECK(x)                                                                                                       \
	do {                                                                                                           \
		if (!(x)) {                                                                                            \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #x);                              \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

static bool is_verbose(void)
{
	return getenv("WORLD_VERBOSE") != NULL;
}

/* ---- the broker, as anybody else uses it ---- */

static rd_kafka_t *client(const struct world *w, rd_kafka_type_t type, const char *group)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[256];
	rd_kafka_t *rk;

	CHECK(rd_kafka_conf_set(conf, "bootstrap.servers", w->brokers, why, sizeof why) == RD_KAFKA_CONF_OK);
	if (group)
		CHECK(rd_kafka_conf_set(conf, "group.id", group, why, sizeof why) == RD_KAFKA_CONF_OK);
	rk = rd_kafka_new(type, conf, why, sizeof why);
	CHECK(rk);
	return rk;
}

void world_create(struct world *w, const char *topic, int partitions)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);
	rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
	char why[256];
	rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(topic, partitions, 1, why, sizeof why);
	rd_kafka_event_t *e;

	rd_kafka_CreateTopics(rk, &t, 1, NULL, q);
	e = rd_kafka_queue_poll(q, 30000);
	CHECK(e && !rd_kafka_event_error(e));
	rd_kafka_event_destroy(e);
	rd_kafka_NewTopic_destroy(t);
	rd_kafka_queue_destroy(q);
	rd_kafka_destroy(rk);
}

static void flush(rd_kafka_t *rk)
{
	for (int i = 0; i < 300 && rd_kafka_outq_len(rk); i++)
		rd_kafka_flush(rk, 100);
	CHECK(!rd_kafka_outq_len(rk));
	rd_kafka_destroy(rk);
}

void world_produce(struct world *w, int partition, int count)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);
	char value[32];

	for (int i = 0; i < count; i++) {
		snprintf(value, sizeof value, "value %d", i);
		CHECK(!rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(w->topic), RD_KAFKA_V_PARTITION(partition),
					 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK),
					 RD_KAFKA_V_VALUE(value, strlen(value)), RD_KAFKA_V_END));
	}
	flush(rk);
}

void world_produce_one(struct world *w, const char *topic, int partition, const char *key, const char *value)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);

	CHECK(!rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
				 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key ? strlen(key) : 0),
				 RD_KAFKA_V_VALUE((void *)value, value ? strlen(value) : 0),
				 RD_KAFKA_V_HEADER("a", "1", 1), RD_KAFKA_V_HEADER("a", "2", 1),
				 RD_KAFKA_V_HEADER("b", "", 0), RD_KAFKA_V_TIMESTAMP(1700000000123), RD_KAFKA_V_END));
	flush(rk);
}

void world_commit_offset(struct world *w, int partition, int64_t offset)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_CONSUMER, w->group);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

	rd_kafka_topic_partition_list_add(list, w->topic, partition)->offset = offset;
	CHECK(!rd_kafka_commit(rk, list, 0));
	rd_kafka_topic_partition_list_destroy(list);
	rd_kafka_destroy(rk);
}

void world_cut(struct world *w, int partition, int64_t offset)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);
	struct rdv_error error = {{0}};

	CHECK(!rdv_kafka_delete_before(rk, w->topic, partition, offset, 10000, &error));
	rd_kafka_destroy(rk);
}

void world_grow(struct world *w, int partitions)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);
	rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
	char why[256];
	rd_kafka_NewPartitions_t *more = rd_kafka_NewPartitions_new(w->topic, (size_t)partitions, why, sizeof why);
	rd_kafka_event_t *e;

	rd_kafka_CreatePartitions(rk, &more, 1, NULL, q);
	e = rd_kafka_queue_poll(q, 30000);
	CHECK(e && !rd_kafka_event_error(e));
	rd_kafka_event_destroy(e);
	rd_kafka_NewPartitions_destroy(more);
	rd_kafka_queue_destroy(q);
	rd_kafka_destroy(rk);
}

void world_fence(struct world *w, const char *transactional_id)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[256];
	rd_kafka_t *rk;

	CHECK(rd_kafka_conf_set(conf, "bootstrap.servers", w->brokers, why, sizeof why) == RD_KAFKA_CONF_OK);
	CHECK(rd_kafka_conf_set(conf, "transactional.id", transactional_id, why, sizeof why) == RD_KAFKA_CONF_OK);
	rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
	CHECK(rk && !rd_kafka_init_transactions(rk, 30000));
	rd_kafka_destroy(rk);
}

void world_journal_name(struct world *w, char out[250])
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);
	struct rdv_kafka_source_topic about;
	struct rdv_kafka_names names;
	struct rdv_error error = {{0}};

	CHECK(!rdv_kafka_describe(rk, w->topic, 10000, &about, &error));
	rdv_kafka_names(about.cluster, "route", w->topic, w->group, &names);
	memcpy(out, names.topic[RDV_KAFKA_JOURNAL], 250);
	rd_kafka_destroy(rk);
}

int64_t world_journal_start(struct world *w, int partition)
{
	rd_kafka_t *rk = client(w, RD_KAFKA_PRODUCER, NULL);
	int64_t low, high;
	char name[250];

	world_journal_name(w, name);
	CHECK(!rd_kafka_query_watermark_offsets(rk, name, partition, &low, &high, 10000));
	rd_kafka_destroy(rk);
	return low;
}

/* ---- the world ---- */

void world_init(struct world *w, int partitions)
{
	static int number;

	*w = (struct world){.brokers = getenv("REDRIVE_KAFKA")};
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->changed, NULL);
	snprintf(w->topic, sizeof w->topic, "t%d-%d", (int)getpid(), ++number);
	snprintf(w->group, sizeof w->group, "g%d-%d", (int)getpid(), number);
	world_create(w, w->topic, partitions);
}

void world_done(struct world *w)
{
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->mutex);
}

void world_wait(struct world *w, bool (*is)(struct world *w, const void *arg), const void *arg, const char *what)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&w->mutex);
	while (!is(w, arg)) {
		if (pthread_cond_timedwait(&w->changed, &w->mutex, &until)) {
			fprintf(stderr, "not within a minute: %s; last said: %s\n", what, w->last_said);
			abort();
		}
	}
	pthread_mutex_unlock(&w->mutex);
}

struct durable {
	int partition;
	uint64_t offset;
};
static bool is_durable(struct world *w, const void *arg)
{
	const struct durable *d = arg;

	return w->durable[d->partition] >= d->offset;
}
void world_wait_durable(struct world *w, int partition, uint64_t offset)
{
	world_wait(w, is_durable, &(struct durable){partition, offset}, "durable");
}

/* ---- the sink ---- */

static enum redrive_status sink_open(void *ctx, const struct rdv_source_partition *p, void **lane)
{
	struct member *m = ctx;
	struct world *w = m->world;
	struct seat *s = calloc(1, sizeof *s);

	CHECK(s && p->partition < WORLD_PARTITIONS && !strcmp(p->topic, w->topic));
	pthread_mutex_lock(&w->mutex);
	CHECK(m->seat_count < WORLD_LANES);
	for (size_t i = 0; i < m->seat_count; i++)
		CHECK(m->seats[i]->partition != p->partition || m->seats[i]->is_gone);
	CHECK(p->epoch > w->epoch[p->partition]);
	w->epoch[p->partition] = p->epoch;
	*s = (struct seat){.member = m,
			   .lane = p->source,
			   .partition = p->partition,
			   .epoch = p->epoch,
			   .folded = w->first,
			   .journal_first = -1,
			   .last_at = -1};
	m->seats[m->seat_count++] = s;
	w->opens++;
	pthread_mutex_unlock(&w->mutex);
	*lane = s;
	return REDRIVE_OK;
}

static enum redrive_status sink_fold(void *ctx, void *lane, const struct rdv_source_record *r, size_t count)
{
	struct seat *s = lane;

	CHECK(!s->is_opened && !s->is_gone && count);
	for (size_t i = 0; i < count; i++) {
		CHECK(r[i].at >= s->last_at);
		s->last_at = r[i].at;
		s->any++;
		if (r[i].type == RDV_RECORD_DONE) {
			if (r[i].seq != s->folded)
				fprintf(stderr, "partition %u: journal has %llu, expected %llu\n", s->partition,
					(unsigned long long)r[i].seq, (unsigned long long)s->folded);
			CHECK(r[i].seq == s->folded);
			s->folded++;
		} else if (r[i].type == RDV_SOURCE_POSITION) {
			CHECK(r[i].seq == s->folded);
		} else {
			CHECK(r[i].type == RDV_RECORD_CLOSE);
		}
	}
	return REDRIVE_OK;
}

static enum redrive_status sink_opened(void *ctx, void *lane, uint64_t position, bool clean)
{
	struct seat *s = lane;
	struct world *w = s->member->world;

	CHECK(!s->is_opened && !s->is_gone);
	pthread_mutex_lock(&w->mutex);
	if (position != s->folded && s->any)
		fprintf(stderr, "partition %u: position %llu, journal to %llu\n", s->partition,
			(unsigned long long)position, (unsigned long long)s->folded);
	CHECK(position == s->folded || !s->any || (w->may_skip && position > s->folded));
	CHECK(position >= w->durable[s->partition]); /* what was told durable is */
	s->position = s->recorded = s->durable = position;
	s->is_opened = true;
	s->clean = clean;
	w->clean_opens += clean;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
	return REDRIVE_OK;
}

static void look_at(struct member *m, const struct rdv_source_message *x)
{
	rdv_buffer_slice(&m->look_value, x->value);
	rdv_buffer_slice(&m->look_key, x->key);
	rdv_buffer_slice(&m->look_headers, x->headers);
	m->look = *x;
	m->looked = true;
}

static enum redrive_status sink_messages(void *ctx, void *lane, const struct rdv_source_message *x, size_t count)
{
	struct member *m = ctx;
	struct seat *s = lane;
	struct world *w = m->world;
	enum redrive_status refusal;
	int stall;

	pthread_mutex_lock(&w->mutex);
	stall = m->stall_ms;
	m->stall_ms = 0;
	CHECK(s->is_opened && !s->is_lost && !s->is_gone && !s->is_revoked && count);
	if (m->full) {
		m->alive_events++;
		refusal = m->refusal ? m->refusal : REDRIVE_FULL;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->mutex);
		return refusal;
	}
	for (size_t i = 0; i < count; i++) {
		if (x[i].offset != s->position)
			fprintf(stderr, "partition %u: message %llu, expected %llu\n", s->partition,
				(unsigned long long)x[i].offset, (unsigned long long)s->position);
		CHECK(x[i].offset == s->position);
		CHECK(rdv_headers_valid(x[i].headers));
		s->position++;
		m->taken++;
		if (!m->looked)
			look_at(m, &x[i]);
	}
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
	if (stall)
		poll(NULL, 0, stall); /* this is what is tested: a consumer thread that hangs */
	return REDRIVE_OK;
}

static void sink_revoke(void *ctx, void *const lanes[], size_t count, int64_t within_ms)
{
	struct member *m = ctx;

	CHECK(within_ms >= 0 && count);
	pthread_mutex_lock(&m->world->mutex);
	for (size_t i = 0; i < count; i++) {
		struct seat *s = lanes[i];

		CHECK(s->is_opened && !s->is_lost && !s->is_gone && !s->is_revoked);
		s->is_revoked = true;
		m->world->revokes++;
	}
	pthread_cond_broadcast(&m->world->changed);
	pthread_mutex_unlock(&m->world->mutex);
}

static void sink_lost(void *ctx, void *lane)
{
	struct seat *s = lane;
	struct world *w = s->member->world;

	pthread_mutex_lock(&w->mutex);
	CHECK(s->is_opened && !s->is_lost && !s->is_gone);
	s->is_lost = true;
	w->losts++;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
}

static void sink_gone(void *ctx, void *lane)
{
	struct seat *s = lane;
	struct world *w = s->member->world;

	pthread_mutex_lock(&w->mutex);
	CHECK(!s->is_gone && !s->in_batch);
	s->is_gone = true;
	w->gones++;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
}

static void sink_state(void *ctx, const char *why, bool failed)
{
	struct member *m = ctx;

	pthread_mutex_lock(&m->world->mutex);
	snprintf(m->why, sizeof m->why, "%s", why ? why : "");
	m->failed = failed;
	if (is_verbose())
		fprintf(stderr, "state: %s\n", m->why);
	pthread_cond_broadcast(&m->world->changed);
	pthread_mutex_unlock(&m->world->mutex);
}

static void sink_say(void *ctx, int level, const char *text)
{
	struct member *m = ctx;

	pthread_mutex_lock(&m->world->mutex);
	snprintf(m->world->last_said, sizeof m->world->last_said, "%s", text);
	m->world->said++;
	if (is_verbose())
		fprintf(stderr, "say %d: %s\n", level, text);
	pthread_cond_broadcast(&m->world->changed);
	pthread_mutex_unlock(&m->world->mutex);
}

/* ---- the core thread ---- */

static void batch_done(void *ctx, struct rdv_source_batch *b, enum redrive_status status)
{
	struct member *m = ctx;
	struct world *w = m->world;

	pthread_mutex_lock(&w->mutex);
	CHECK(m->batch_out && b == &m->batch);
	w->batches++;
	w->failed += status == REDRIVE_FAILED;
	CHECK(status == REDRIVE_OK || status == REDRIVE_CONFLICT || status == REDRIVE_FAILED ||
	      status == REDRIVE_CLOSED);
	for (size_t i = 0; i < b->write_count; i++) {
		struct seat *s = NULL;

		for (size_t k = m->seat_count; k-- > 0 && !s;)
			if (m->seats[k]->lane == b->writes[i].lane)
				s = m->seats[k];
		CHECK(s && s->in_batch && !s->is_gone);
		s->in_batch = false;
		CHECK(status != REDRIVE_OK || !b->refused[i]);
		CHECK(status != REDRIVE_FAILED || b->refused[i]);
		if (b->refused[i])
			w->refused++;
		if (b->refused[i] || (status != REDRIVE_OK && status != REDRIVE_CONFLICT))
			continue;
		CHECK(b->writes[i].journal_first >= 0 || !b->writes[i].records.size);
		s->journal_first = b->writes[i].journal_first;
		s->durable = b->writes[i].position;
		if (w->durable[s->partition] < s->durable)
			w->durable[s->partition] = s->durable;
	}
	m->batch_out = false;
	free(b->refused);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
}

static void add_write(struct member *m, struct seat *s)
{
	struct rdv_source_write *write = &m->batch.writes[m->batch.write_count];
	struct rdv_buffer *out = &m->records[m->batch.write_count++];
	uint8_t payload[100];

	rdv_buffer_clear(out);
	memset(payload, (int)s->partition, sizeof payload);
	for (uint64_t o = s->recorded; o < s->position; o++)
		rdv_entry_encode(out, &(struct rdv_source_record){.type = RDV_RECORD_DONE,
								  .seq = o,
								  .payload = rdv_slice(payload, sizeof payload)});
	if (s->is_revoked)
		rdv_entry_encode(out, &(struct rdv_source_record){.type = RDV_RECORD_CLOSE});
	*write = (struct rdv_source_write){.lane = s->lane,
					   .position = s->position,
					   .moved = s->position != s->recorded,
					   .last = s->is_revoked,
					   .records = rdv_buffer_as_slice(out)};
	s->recorded = s->position;
	s->last_sent = s->is_revoked;
	s->in_batch = true;
}

static bool make_batch(struct member *m)
{
	struct rdv_source_write *writes = m->batch.writes;

	m->batch = (struct rdv_source_batch){.writes = writes, .done = batch_done, .ctx = m};
	for (size_t i = 0; i < m->seat_count; i++) {
		struct seat *s = m->seats[i];

		if (!s->is_opened || s->is_lost || s->is_gone || s->last_sent)
			continue;
		if (s->position != s->recorded || s->is_revoked)
			add_write(m, s);
	}
	if (!m->batch.write_count)
		return false;
	m->batch.refused = calloc(m->batch.write_count, sizeof(bool));
	CHECK(m->batch.refused);
	m->batch_out = true;
	return true;
}

static void *core_main(void *arg)
{
	struct member *m = arg;
	struct world *w = m->world;
	bool make;

	pthread_mutex_lock(&w->mutex);
	while (!m->stopping || m->batch_out) {
		make = !m->batch_out && !m->held && make_batch(m);
		if (!make) {
			pthread_cond_wait(&w->changed, &w->mutex);
			continue;
		}
		pthread_mutex_unlock(&w->mutex);
		m->source->ops->commit(m->source, &m->batch);
		pthread_mutex_lock(&w->mutex);
	}
	pthread_mutex_unlock(&w->mutex);
	return NULL;
}

/* ---- members ---- */

struct member *member_start(struct world *w, const struct member_options *o)
{
	struct member *m = calloc(1, sizeof *m);
	char pattern[128];
	const char *topics[] = {o && o->pattern ? pattern : w->topic};
	struct rdv_kafka_options options = {.route = "route",
					    .brokers = w->brokers,
					    .topics = topics,
					    .topic_count = 1,
					    .group = w->group,
					    .from = o ? o->from : RDV_KAFKA_EARLIEST,
					    .instance = o ? o->instance : NULL,
					    .settings = o ? o->settings : NULL,
					    .setting_count = o ? o->setting_count : 0,
					    .create_topics = !o || !o->keep_topics,
					    .replication = 1,
					    .handler_timeout_ms = 10000};
	struct rdv_source_sink sink = {m,           sink_open, sink_fold, sink_opened, sink_messages,
				       sink_revoke, sink_lost, sink_gone, sink_state,  sink_say};
	struct rdv_error error = {{0}};

	CHECK(m);
	snprintf(pattern, sizeof pattern, "^(%s$|redrive\\.route\\.)", w->topic);
	m->world = w;
	m->batch.writes = calloc(WORLD_PARTITIONS, sizeof *m->batch.writes);
	for (int i = 0; i < WORLD_PARTITIONS; i++)
		rdv_buffer_init(&m->records[i], 0);
	rdv_buffer_init(&m->look_value, 0);
	rdv_buffer_init(&m->look_key, 0);
	rdv_buffer_init(&m->look_headers, 0);
	CHECK(!rdv_kafka_new(&options, &sink, &m->source, &error));
	CHECK(!pthread_create(&m->core, NULL, core_main, m));
	if (m->source->ops->start(m->source, &error) != REDRIVE_OK) {
		fprintf(stderr, "start: %s\n", error.text);
		abort();
	}
	return m;
}

void member_stop(struct member *m, int64_t within_ms)
{
	struct world *w = m->world;

	m->source->ops->stop(m->source, within_ms);
	pthread_mutex_lock(&w->mutex);
	m->stopping = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
	pthread_join(m->core, NULL);
	for (size_t i = 0; i < m->seat_count; i++) {
		CHECK(m->seats[i]->is_gone);
		free(m->seats[i]);
	}
	m->source->ops->free(m->source);
	for (int i = 0; i < WORLD_PARTITIONS; i++)
		rdv_buffer_done(&m->records[i]);
	rdv_buffer_done(&m->look_value);
	rdv_buffer_done(&m->look_key);
	rdv_buffer_done(&m->look_headers);
	free(m->batch.writes);
	free(m);
}

size_t member_open_lanes(struct member *m)
{
	size_t open = 0;

	for (size_t i = 0; i < m->seat_count; i++)
		open += m->seats[i]->is_opened && !m->seats[i]->is_lost && !m->seats[i]->is_gone;
	return open;
}
