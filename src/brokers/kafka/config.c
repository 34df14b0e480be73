/* config.c - a source's own copy of its options, and secrets cut out of texts.
 *
 * The values of secret settings are overwritten before their memory is given back. A secret shorter than three bytes is
 * not cut out of texts: it would be found in every word. Copy and done: the owner's thread; the rest: any. */
#include <stdlib.h>
#include <string.h>
#include "client.h"

#define SHORTEST_SECRET 3u

/* NULL stays NULL, and is no failure. */
static char *copy_text(const char *text, bool *failed)
{
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		*failed = true;
	return copy;
}

static void copy_lists(struct rdv_kafka_config *c, const struct rdv_kafka_options *o, bool *failed)
{
	c->topics = calloc(o->topic_count + 1, sizeof *c->topics);
	c->settings = calloc(o->setting_count + 1, sizeof *c->settings);
	if (!c->topics || !c->settings) {
		*failed = true;
		return;
	}
	for (; c->topic_count < o->topic_count; c->topic_count++)
		c->topics[c->topic_count] = copy_text(o->topics[c->topic_count], failed);
	for (; c->setting_count < o->setting_count; c->setting_count++) {
		const struct rdv_kafka_setting *from = &o->settings[c->setting_count];

		c->settings[c->setting_count] = (struct rdv_kafka_setting){
			.name = copy_text(from->name, failed),
			.value = copy_text(from->value, failed),
		};
	}
}

enum redrive_status rdv_kafka_config_copy(struct rdv_kafka_config *c, const struct rdv_kafka_options *o)
{
	bool failed = false;

	*c = (struct rdv_kafka_config){
		.from = o->from,
		.dead_format = o->dead_format,
		.create_topics = o->create_topics,
		.replication = o->replication,
		.handler_timeout_ms = o->handler_timeout_ms,
	};
	rdv_buffer_init(&c->secret, 0);
	rdv_buffer_slice(&c->secret, o->secret);
	c->route = copy_text(o->route, &failed);
	c->brokers = copy_text(o->brokers, &failed);
	c->group = copy_text(o->group, &failed);
	c->instance = copy_text(o->instance, &failed);
	c->dead_topic = copy_text(o->dead_topic, &failed);
	copy_lists(c, o, &failed);
	if (!failed && !c->secret.failed)
		return REDRIVE_OK;
	rdv_kafka_config_done(c);
	return REDRIVE_NO_MEMORY;
}

static void free_setting(struct rdv_kafka_setting *s)
{
	char *value = (char *)(uintptr_t)s->value; /* ours: made by copy_lists */

	if (value && rdv_kafka_setting_is_secret(s->name ? s->name : "password"))
		explicit_bzero(value, strlen(value));
	free(value);
	free((char *)(uintptr_t)s->name);
}

void rdv_kafka_config_done(struct rdv_kafka_config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->topic_count; i++)
		free(c->topics[i]);
	for (size_t i = 0; i < c->setting_count; i++)
		free_setting(&c->settings[i]);
	free(c->topics);
	free(c->settings);
	free(c->route);
	free(c->brokers);
	free(c->group);
	free(c->instance);
	free(c->dead_topic);
	if (c->secret.size)
		explicit_bzero(c->secret.data, c->secret.size);
	rdv_buffer_done(&c->secret);
	*c = (struct rdv_kafka_config){0};
}

const char *rdv_kafka_config_setting(const struct rdv_kafka_config *c, const char *name)
{
	for (size_t i = c->setting_count; i > 0; i--)
		if (strcmp(c->settings[i - 1].name, name) == 0)
			return c->settings[i - 1].value;
	return NULL;
}

void rdv_kafka_config_scrub(const struct rdv_kafka_config *c, char *text)
{
	for (size_t i = 0; i < c->setting_count; i++) {
		const char *secret = c->settings[i].value;
		size_t size = strlen(secret);
		char *at = text;

		if (size < SHORTEST_SECRET || !rdv_kafka_setting_is_secret(c->settings[i].name))
			continue;
		while ((at = strstr(at, secret))) {
			memcpy(at, "***", 3);
			memmove(at + 3, at + size, strlen(at + size) + 1);
			at += 3;
		}
	}
}
