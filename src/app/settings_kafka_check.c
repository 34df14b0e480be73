/* settings_kafka_check.c - what single values of `source: { kafka: ... }` cannot tell: what is missing, and what two
 * routes must not share. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include "settings_table.h"

/* Redrive's private topics (brokers/kafka/topics.h). */
static const char private_topics[] = "^redrive\\..+\\.[0-9a-f]{16}\\.(journal|inbox|letters)$";

static bool matches(const char *pattern, const char *topic)
{
	regex_t re;
	if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return false;
	bool found = regexec(&re, topic, 0, NULL, 0) == 0;
	regfree(&re);
	return found;
}

/* Reading what the route itself writes would never end. */
static bool reads_private(const char *route, const char *topic)
{
	static const char *const kinds[] = {"journal", "inbox", "letters"};
	bool found = topic[0] != '^' && matches(private_topics, topic);
	for (size_t i = 0; topic[0] == '^' && i < sizeof kinds / sizeof kinds[0] && !found; i++) {
		char name[300];
		snprintf(name, sizeof name, "redrive.%s.0123456789abcdef.%s", route, kinds[i]);
		found = matches(topic, name);
	}
	return found;
}

/* A copy that the route reads would die again, and be copied again. */
static void check_copies(const struct rdv_route_settings *r, struct rdv_findings *f)
{
	const struct rdv_kafka_source_settings *k = &r->source.kafka;
	for (size_t i = 0; i < k->topic_count && r->dead.topic; i++)
		if (k->topics[i][0] == '^' ? matches(k->topics[i], r->dead.topic)
					   : strcmp(k->topics[i], r->dead.topic) == 0)
			rdv_findings_add(f, k->mark, false,
					 "route '%s': it reads '%s', its own dead.topic: each letter would come back",
					 r->name, r->dead.topic);
}

void rdv_kafka_check_route(const struct rdv_settings *s, const struct rdv_route_settings *r, struct rdv_findings *f)
{
	const struct rdv_kafka_source_settings *k = &r->source.kafka;
	const struct {
		const char *key, *example;
		bool there;
	} needed[] = {
		{"brokers", "brokers: \"kafka-1:9092,kafka-2:9092\"", k->brokers || k->has_brokers},
		{"topics", "topics: [orders]", k->topic_count || k->has_topics},
		{"group", "group: order-service", k->group || k->has_group},
	};
#ifndef REDRIVE_KAFKA
	rdv_findings_add(f, k->mark, false, "route '%s': this build reads no Kafka: it was made without librdkafka",
			 r->name);
#endif
	for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
		if (!needed[i].there)
			rdv_findings_add(f, k->mark, false, "route '%s': source.kafka needs '%s', like %s", r->name,
					 needed[i].key, needed[i].example);
	check_copies(r, f);
	for (size_t i = 0; i < k->topic_count; i++)
		if (reads_private(r->name, k->topics[i]))
			rdv_findings_add(f, k->mark, false,
					 "route '%s': '%s' takes in private topics of Redrive "
					 "(redrive.ROUTE.HASH.journal, inbox, letters): name the topics more narrowly",
					 r->name, k->topics[i]);
}

/* ---- between routes ---- */

struct use { /* of a topic, or of an instance */
	const char *key;
	const char *name; /* what both have */
	size_t route;
};
struct uses {
	struct use *items;
	size_t count, room;
	bool failed;
};

/* `key` NULL: there was no memory for it. */
static void add_use(struct uses *u, const char *key, const char *name, size_t route)
{
	if (key && u->count == u->room) {
		size_t room = u->room ? 2 * u->room : 64;
		struct use *items = reallocarray(u->items, room, sizeof *items);
		u->room = items ? room : u->room;
		u->items = items ? items : u->items;
	}
	if (key && u->count < u->room)
		u->items[u->count++] = (struct use){key, name, route};
	else
		u->failed = true;
}

static int by_key(const void *a, const void *b)
{
	const struct use *x = a, *y = b;
	int order = strcmp(x->key, y->key);
	return order ? order : (x->route > y->route) - (x->route < y->route);
}

typedef void compare_uses(const struct rdv_settings *s, const struct use *first, const struct use *other,
			  struct rdv_findings *f);

/* Each is compared with the first of its key. */
static void compare_all(const struct rdv_settings *s, struct uses *u, compare_uses *compare, struct rdv_findings *f)
{
	size_t first = 0;
	if (u->failed)
		rdv_findings_add(f, (struct rdv_mark){0, 0}, false, "out of memory");
	if (u->count)
		qsort(u->items, u->count, sizeof *u->items, by_key);
	for (size_t i = 1; i < u->count && !u->failed; i++) {
		if (strcmp(u->items[first].key, u->items[i].key) != 0)
			first = i;
		else
			compare(s, &u->items[first], &u->items[i], f);
	}
	free(u->items);
}

static struct rdv_mark mark_of(const struct rdv_settings *s, const struct use *u)
{
	const struct rdv_route_settings *r = &s->routes[u->route];
	return r->source.kafka.given ? r->source.kafka.mark : r->mark;
}

/* Positions are told by the topic's name, so one name is one source. */
static void one_source(const struct rdv_settings *s, const struct use *first, const struct use *other,
		       struct rdv_findings *f)
{
	const struct rdv_route_settings *a = &s->routes[first->route], *b = &s->routes[other->route];
	bool both = a->source.kafka.given && b->source.kafka.given;
	if (both ? strcmp(a->source.kafka.brokers, b->source.kafka.brokers) != 0
		 : a->source.kafka.given != b->source.kafka.given)
		rdv_findings_add(f, mark_of(s, other), false,
				 "the topic '%s' has two sources, in route '%s' and in route '%s': one name is one "
				 "source, written alike",
				 other->name, a->name, b->name);
}

static void one_reader(const struct rdv_settings *s, const struct use *first, const struct use *other,
		       struct rdv_findings *f)
{
	const struct rdv_route_settings *a = &s->routes[first->route], *b = &s->routes[other->route];
	if (a == b)
		rdv_findings_add(f, mark_of(s, other), false, "route '%s': the topic '%s' stands twice", b->name,
				 other->name);
	else
		rdv_findings_add(f, mark_of(s, other), false,
				 "routes '%s' and '%s' read '%s' in the same group '%s', so that each would get a part "
				 "of it: give one of them another group",
				 a->name, b->name, other->name, b->source.kafka.group);
}

static void one_member(const struct rdv_settings *s, const struct use *first, const struct use *other,
		       struct rdv_findings *f)
{
	rdv_findings_add(f, mark_of(s, other), false,
			 "routes '%s' and '%s' are the same instance '%s' of the same group: give each its own",
			 s->routes[first->route].name, s->routes[other->route].name, other->name);
}

static const char *join(struct rdv_settings *s, const struct rdv_kafka_source_settings *k, const char *name)
{
	struct rdv_buffer text;
	rdv_buffer_init(&text, 0);
	rdv_buffer_printf(&text, "%s\n%s\n%s", k->brokers, k->group, name);
	const char *key = rdv_settings_text(s, rdv_buffer_as_slice(&text));
	rdv_buffer_done(&text);
	return key;
}

void rdv_kafka_check_routes(struct rdv_settings *s, struct rdv_findings *f)
{
	struct uses sources = {0}, readers = {0}, members = {0};
	for (size_t i = 0; i < s->route_count; i++) {
		const struct rdv_route_settings *r = &s->routes[i];
		const struct rdv_kafka_source_settings *k = &r->source.kafka;
		if (!k->given && r->source.topic)
			add_use(&sources, r->source.topic, r->source.topic, i);
		if (!k->given || !k->brokers || !k->group)
			continue;
		for (size_t n = 0; n < k->topic_count; n++) {
			if (k->topics[n][0] != '^')
				add_use(&sources, k->topics[n], k->topics[n], i);
			add_use(&readers, join(s, k, k->topics[n]), k->topics[n], i);
		}
		if (k->instance)
			add_use(&members, join(s, k, k->instance), k->instance, i);
	}
	compare_all(s, &sources, one_source, f);
	compare_all(s, &readers, one_reader, f);
	compare_all(s, &members, one_member, f);
}
