/* kafka_maker.c - from a route's settings to the driver for Kafka, behind what the engine knows of a source. */
#include <stdlib.h>
#include "kafka_maker.h"

struct rdv_kafka_maker {
	struct rdv_source_maker maker; /* first: the engine's pointer is this one */
	struct rdv_kafka_options options;
	struct rdv_settings memory; /* owns the texts of both; nothing else of it is used */
	struct rdv_kafka_maker *older;
};

static enum redrive_status make(const struct rdv_source_maker *m, const struct rdv_source_sink *sink,
				struct rdv_source **out, struct rdv_error *error)
{
#ifdef REDRIVE_KAFKA
	return rdv_kafka_new(&((const struct rdv_kafka_maker *)m)->options, sink, out, error);
#else
	return rdv_error_set(error, REDRIVE_REFUSED, "this build reads no Kafka");
#endif
}

static int64_t handler_timeout(const struct rdv_handler_settings *h)
{
	return h->has_http ? h->http.timeout_ms : h->has_exec ? h->exec.timeout_ms : h->lease.lease_for_ms;
}

void rdv_kafka_options_of(const struct rdv_route_settings *r, struct rdv_kafka_options *out)
{
	const struct rdv_kafka_source_settings *k = &r->source.kafka;
	*out = (struct rdv_kafka_options){
		.route = r->name,
		.brokers = k->brokers,
		.topics = (const char *const *)k->topics,
		.topic_count = k->topic_count,
		.group = k->group,
		.from = (enum rdv_kafka_from)k->from,
		.instance = k->instance,
		.settings = k->settings,
		.setting_count = k->setting_count,
		.secret = k->secret,
		.create_topics = k->create_topics,
		.replication = (int32_t)k->replication,
		.dead_topic = r->dead.topic,
		.dead_format = (enum rdv_letter_format)r->dead.format,
		.handler_timeout_ms = handler_timeout(&r->handler),
	};
}

/* Copies a text; NULL stays NULL. *good: there was memory for all so far. */
static const char *copy(struct rdv_settings *memory, const char *text, bool *good)
{
	const char *own = text ? rdv_settings_text(memory, rdv_slice_text(text)) : NULL;
	*good = *good && !text == !own;
	return own;
}

static bool copy_options(struct rdv_settings *memory, struct rdv_kafka_options *o)
{
	bool good = true;
	const char **topics = rdv_settings_alloc(memory, (o->topic_count + 1) * sizeof *topics);
	struct rdv_kafka_setting *settings = rdv_settings_alloc(memory, (o->setting_count + 1) * sizeof *settings);
	if (!topics || !settings)
		return false;
	for (size_t i = 0; i < o->topic_count; i++)
		topics[i] = copy(memory, o->topics[i], &good);
	for (size_t i = 0; i < o->setting_count; i++)
		settings[i] = (struct rdv_kafka_setting){copy(memory, o->settings[i].name, &good),
							 copy(memory, o->settings[i].value, &good)};
	o->topics = topics;
	o->settings = settings;
	o->route = copy(memory, o->route, &good);
	o->brokers = copy(memory, o->brokers, &good);
	o->group = copy(memory, o->group, &good);
	o->instance = copy(memory, o->instance, &good);
	o->dead_topic = copy(memory, o->dead_topic, &good);
	if (o->secret.size)
		o->secret.data = (const uint8_t *)rdv_settings_text(memory, o->secret);
	return good && (o->secret.data || !o->secret.size);
}

static void free_maker(struct rdv_kafka_maker *m)
{
	rdv_settings_done(&m->memory);
	free(m);
}

const struct rdv_source_maker *rdv_kafka_makers_add(struct rdv_kafka_makers *all, const struct rdv_route_settings *r)
{
	struct rdv_kafka_maker *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	rdv_kafka_options_of(r, &m->options);
	if (!copy_options(&m->memory, &m->options)) {
		free_maker(m);
		return NULL;
	}
	m->maker = (struct rdv_source_maker){make, m->options.topics, m->options.topic_count};
	m->older = all->newest;
	all->newest = m;
	return &m->maker;
}

const struct rdv_source_maker *rdv_kafka_makers_find(const struct rdv_kafka_makers *all, const char *route)
{
	const struct rdv_kafka_maker *m = all->newest;
	while (m && strcmp(m->options.route, route) != 0)
		m = m->older;
	return m ? &m->maker : NULL;
}

void rdv_kafka_makers_done(struct rdv_kafka_makers *all)
{
	for (struct rdv_kafka_maker *m = all->newest, *older; m; m = older) {
		older = m->older;
		free_maker(m);
	}
	all->newest = NULL;
}
