/* client.c - librdkafka handles by their role: settings, log lines, opening and closing.
 *
 * A handle's settings come in this order: what the role prefers, what the user set, what the protocol needs; the last
 * one wins, and what the protocol needs was refused to the user already (settings.c). The handle's opaque is a `struct
 * handle`, by which the library's log lines find the source's `say`, and in which its last complaint is kept. All
 * settings of the user go to handles of all roles: the library's remark that a producer has no use for a consumer's
 * setting is dropped. Any thread; log lines come from the library's own threads. */
#include "client.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include "../../base/clock.h"

#define CLOSE_MS 5000
#define COMPLAINT_MS 60000

struct handle {
	const struct rdv_kafka_config *config; /* borrows */
	void *opaque;
	pthread_mutex_t mutex; /* of what follows */
	char complaint[256];
	int64_t complained_ms; /* 0 = never */
};

enum {
	GROUP = 1u << RDV_KAFKA_GROUP,
	READER = 1u << RDV_KAFKA_READER,
	WRITERS = 1u << RDV_KAFKA_WRITER | 1u << RDV_KAFKA_SINGLE,
	SINGLE = 1u << RDV_KAFKA_SINGLE,
	PLAIN = 1u << RDV_KAFKA_PLAIN,
	CONSUMERS = GROUP | READER,
	ALL = (1u << RDV_KAFKA_ROLE_COUNT) - 1
};

struct preset {
	unsigned roles;
	const char *name, *value;
};

/* The user's settings win. */
static const struct preset preferred[] = {
	{ALL, "client.id", "redrive"},
	{ALL, "reconnect.backoff.max.ms", "1000"}, /* so that it goes on soon after the broker does */
	{GROUP, "partition.assignment.strategy", "range"},
	{GROUP, "fetch.wait.max.ms", "50"},
	{CONSUMERS, "queued.max.messages.kbytes", "4096"},
	{READER, "fetch.wait.max.ms", "20"},
	{WRITERS, "transaction.timeout.ms", "15000"},
	{WRITERS, "linger.ms", "0"},
	{WRITERS, "retry.backoff.ms", "10"},                 /* else a transaction right after another waits 100 ms */
	{WRITERS | PLAIN, "partitioner", "murmur2_random"},  /* as Java's producers: one key, one partition */
	{WRITERS | PLAIN, "message.max.bytes", "100000000"}, /* the broker judges what is too large */
};

/* A member that is gone for good is replaced soon: our consumer thread never waits long, so one that is silent is dead.
 * A static one is expected back, and keeps the library's 45 s. */
static const struct preset quick[] = {
	{GROUP, "session.timeout.ms", "10000"},
	{GROUP, "heartbeat.interval.ms", "3000"},
};

/* These win over the user's. */
static const struct preset needed[] = {
	{CONSUMERS, "isolation.level", "read_committed"}, {CONSUMERS, "enable.auto.commit", "false"},
	{CONSUMERS, "enable.auto.offset.store", "false"}, {CONSUMERS, "auto.offset.reset", "error"},
	{CONSUMERS, "enable.partition.eof", "false"},     {ALL, "allow.auto.create.topics", "false"},
	{WRITERS | PLAIN, "enable.idempotence", "true"},  {SINGLE, "batch.num.messages", "1"},
};

static void complain(struct handle *h, const char *text)
{
	pthread_mutex_lock(&h->mutex);
	rdv_slice_to_text(rdv_slice_text(text), h->complaint, sizeof h->complaint);
	h->complained_ms = rdv_mono_now().ms;
	pthread_mutex_unlock(&h->mutex);
}

/* syslog's levels to ours. A broker that is away is no error of this program: LOG_ERR counts as a warning. */
static int level_of(int syslog_level)
{
	static const int levels[8] = {0, 0, 0, 1, 1, 2, 2, 3};

	return levels[syslog_level < 0 ? 0 : syslog_level > 7 ? 7 : syslog_level];
}

/* What the library remarks on, and is meant so. */
static bool is_expected(const char *fac, const char *text)
{
	return (strcmp(fac, "CONFWARN") == 0 && strstr(text, "will be ignored by this")) ||
	       (strcmp(fac, "TERMINATE") == 0 && strstr(text, "still in queue or transit"));
}

static void log_line(const rd_kafka_t *rk, int level, const char *fac, const char *text)
{
	struct handle *h = rk ? rd_kafka_opaque(rk) : NULL;
	char line[1024];

	if (!h || is_expected(fac, text))
		return;
	snprintf(line, sizeof line, "kafka: %s: %s", fac, text);
	rdv_kafka_config_scrub(h->config, line);
	if (level <= 3)
		complain(h, line + strlen("kafka: "));
	if (h->config->say)
		h->config->say(h->config->say_ctx, level_of(level), line);
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
	const struct rdv_kafka_reports *reports = ((struct handle *)opaque)->opaque;

	(void)rk;
	if (reports)
		reports->delivered(reports->ctx, m);
}

static enum redrive_status set(rd_kafka_conf_t *conf, const char *name, const char *value, struct rdv_error *error)
{
	char text[512] = "";

	if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
		return REDRIVE_OK;
	return rdv_error_set(error, REDRIVE_REFUSED, "librdkafka's setting '%s': %s", name,
			     rdv_kafka_setting_is_secret(name) ? "this value is not acceptable" : text);
}

static enum redrive_status set_presets(rd_kafka_conf_t *conf, const struct preset *p, size_t count,
				       enum rdv_kafka_role role, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < count && !status; i++)
		if (p[i].roles & 1u << role)
			status = set(conf, p[i].name, p[i].value, error);
	return status;
}

static enum redrive_status set_names(rd_kafka_conf_t *conf, const struct rdv_kafka_config *c, enum rdv_kafka_role role,
				     const char *id, struct rdv_error *error)
{
	unsigned bit = 1u << role;
	const struct preset names[] = {
		{ALL, "bootstrap.servers", c->brokers},
		{CONSUMERS, "group.id", c->group},
		{c->instance ? GROUP : 0, "group.instance.id", c->instance},
		{WRITERS, "transactional.id", id},
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].roles & bit && (!names[i].value || !names[i].value[0]))
			return rdv_error_set(error, REDRIVE_REFUSED, "'%s' is empty", names[i].name);
	return set_presets(conf, names, sizeof names / sizeof names[0], role, error);
}

static enum redrive_status configure(rd_kafka_conf_t *conf, const struct rdv_kafka_config *c, enum rdv_kafka_role role,
				     const char *id, struct rdv_error *error)
{
	enum redrive_status status;

	status = set_presets(conf, preferred, sizeof preferred / sizeof preferred[0], role, error);
	if (!status && !c->instance)
		status = set_presets(conf, quick, sizeof quick / sizeof quick[0], role, error);
	for (size_t i = 0; i < c->setting_count && !status; i++) {
		if (rdv_kafka_check_setting(c->settings[i].name, c->settings[i].value, error))
			status = REDRIVE_REFUSED;
		else
			status = set(conf, c->settings[i].name, c->settings[i].value, error);
	}
	if (!status)
		status = set_presets(conf, needed, sizeof needed / sizeof needed[0], role, error);
	if (!status)
		status = set_names(conf, c, role, id, error);
	return status;
}

static struct handle *new_handle(const struct rdv_kafka_config *c, void *opaque)
{
	struct handle *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->config = c;
	h->opaque = opaque;
	pthread_mutex_init(&h->mutex, NULL);
	return h;
}

static void free_handle(struct handle *h)
{
	if (!h)
		return;
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

/* Tokens are refreshed on the library's own thread: a writer that waits for its next work does not serve its handle. */
static void refresh_tokens(rd_kafka_t *rk)
{
	rd_kafka_error_t *error = rd_kafka_sasl_background_callbacks_enable(rk);

	rd_kafka_error_destroy(error); /* only where there is no such queue */
}

static bool has_tokens(const struct rdv_kafka_config *c)
{
	const char *one = rdv_kafka_config_setting(c, "sasl.mechanism");
	const char *other = rdv_kafka_config_setting(c, "sasl.mechanisms");

	return (one && strcasecmp(one, "OAUTHBEARER") == 0) || (other && strcasecmp(other, "OAUTHBEARER") == 0);
}

/* Takes the configuration in every case. */
static enum redrive_status make(rd_kafka_conf_t *conf, const struct rdv_kafka_config *c, enum rdv_kafka_role role,
				rd_kafka_t **out, struct rdv_error *error)
{
	bool consumes = CONSUMERS & 1u << role;
	char text[512] = "";

	if (role == RDV_KAFKA_GROUP)
		rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_FETCH);
	if ((WRITERS | PLAIN) & 1u << role)
		rd_kafka_conf_set_dr_msg_cb(conf, delivered);
	rd_kafka_conf_enable_sasl_queue(conf, has_tokens(c));
	*out = rd_kafka_new(consumes ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER, conf, text, sizeof text);
	if (!*out) {
		bool machine = rd_kafka_last_error() == RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;

		rd_kafka_conf_destroy(conf);
		return rdv_error_set(error, machine ? REDRIVE_IO : REDRIVE_REFUSED, "a client of Kafka: %s", text);
	}
	if (consumes)
		rd_kafka_poll_set_consumer(*out);
	if (has_tokens(c))
		refresh_tokens(*out);
	return REDRIVE_OK;
}

enum redrive_status rdv_kafka_open(const struct rdv_kafka_config *c, enum rdv_kafka_role role, const char *id,
				   void *opaque, rd_kafka_t **out, struct rdv_error *error)
{
	struct handle *h = new_handle(c, opaque);
	rd_kafka_conf_t *conf = h ? rd_kafka_conf_new() : NULL;
	enum redrive_status status;

	*out = NULL;
	if (!conf) {
		free_handle(h);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "a client of Kafka");
	}
	rd_kafka_conf_set_opaque(conf, h);
	rd_kafka_conf_set_log_cb(conf, log_line);
	status = configure(conf, c, role, id, error);
	if (status)
		rd_kafka_conf_destroy(conf);
	else
		status = make(conf, c, role, out, error);
	if (!status)
		return REDRIVE_OK;
	if (error)
		rdv_kafka_config_scrub(c, error->text);
	free_handle(h);
	return status;
}

void *rdv_kafka_opaque(const rd_kafka_t *h)
{
	return ((struct handle *)rd_kafka_opaque(h))->opaque;
}

bool rdv_kafka_complaint(const rd_kafka_t *rk, char out[256])
{
	struct handle *h = rd_kafka_opaque(rk);
	bool fresh;

	pthread_mutex_lock(&h->mutex);
	fresh = h->complained_ms && rdv_mono_now().ms - h->complained_ms < COMPLAINT_MS;
	snprintf(out, sizeof h->complaint, "%s", fresh ? h->complaint : "");
	pthread_mutex_unlock(&h->mutex);
	return fresh;
}

/* Gives the partitions back, so that leaving can go on. */
static void answer_rebalance(rd_kafka_t *rk, rd_kafka_event_t *event)
{
	rd_kafka_error_t *error = NULL;

	if (rd_kafka_event_type(event) != RD_KAFKA_EVENT_REBALANCE)
		return;
	if (strcmp(rd_kafka_rebalance_protocol(rk), "COOPERATIVE") != 0)
		rd_kafka_assign(rk, NULL);
	else if (rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS)
		error = rd_kafka_incremental_unassign(rk, rd_kafka_event_topic_partition_list(event));
	rd_kafka_error_destroy(error);
}

static void leave_group(rd_kafka_t *rk)
{
	int64_t until = rdv_mono_now().ms + CLOSE_MS;
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_error_t *error = rd_kafka_consumer_close_queue(rk, queue);

	while (!error && !rd_kafka_consumer_closed(rk) && rdv_mono_now().ms < until) {
		rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 50);

		answer_rebalance(rk, event);
		rd_kafka_event_destroy(event);
	}
	rd_kafka_error_destroy(error);
	rd_kafka_queue_destroy(queue);
}

void rdv_kafka_close(rd_kafka_t *rk)
{
	struct handle *h;

	if (!rk)
		return;
	h = rd_kafka_opaque(rk);
	if (rd_kafka_type(rk) == RD_KAFKA_CONSUMER && !rd_kafka_consumer_closed(rk))
		leave_group(rk);
	rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	free_handle(h);
}
