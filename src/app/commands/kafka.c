/* kafka.c - redrive kafka topics: the private topics of routes whose source is Kafka, without a server.
 *
 * Every topic of every route is looked at, even if one before it cannot be; the exit code is the first that is not 0.
 */
#include <stdio.h>
#include "../kafka_maker.h"
#include "../output.h"
#include "commands.h"

#ifdef REDRIVE_KAFKA
#include "../../brokers/kafka/topics.h"

#define LIMIT_MS 15000

struct work {
	const struct rdv_invocation *in;
	int verb; /* RDV_OPT_PRINT, RDV_OPT_CREATE, RDV_OPT_CHECK */
	struct rdv_kafka_config config;
	rd_kafka_t *admin;
	json_t *items; /* one per source topic; -o json */
	int code;
};
struct topic_work { /* one source topic */
	const char *topic;
	struct rdv_kafka_source_topic source;
	struct rdv_kafka_names names;
	struct rdv_kafka_findings findings;
	struct rdv_buffer commands;
};

static void failed(struct work *w, const char *topic, enum redrive_status status, const struct rdv_error *error)
{
	int code = rdv_status_info(status)->exit;
	const char *text = error->text[0] ? error->text : rdv_status_info(status)->text;
	if (topic)
		rdv_command_fail(code, "route '%s', topic '%s': %s", w->config.route, topic, text);
	else
		rdv_command_fail(code, "route '%s': %s", w->config.route, text);
	w->code = w->code ? w->code : code;
}

static json_t *findings_json(const struct rdv_kafka_findings *f)
{
	json_t *all = json_array();
	for (size_t i = 0; i < f->count; i++)
		json_array_append_new(all, json_pack("{s:s, s:s, s:b}", "topic", f->items[i].topic, "what",
						     f->items[i].what, "fixable", (int)f->items[i].fixable));
	return all;
}

static void show_json(struct work *w, struct topic_work *t)
{
	json_t *item = json_pack("{s:s, s:s, s:s, s:i, s:{s:s, s:s, s:s}}", "route", w->config.route, "topic", t->topic,
				 "cluster", t->source.cluster, "partitions", (int)t->source.partitions, "private",
				 "journal", t->names.topic[RDV_KAFKA_JOURNAL], "inbox", t->names.topic[RDV_KAFKA_INBOX],
				 "letters", t->names.topic[RDV_KAFKA_LETTERS]);
	if (w->verb == RDV_OPT_PRINT)
		json_object_set_new(item, "commands", json_string(rdv_buffer_string(&t->commands)));
	else
		json_object_set_new(item, "findings", findings_json(&t->findings));
	json_array_append_new(w->items, item);
}

static void show_text(struct work *w, struct topic_work *t)
{
	if (w->verb == RDV_OPT_PRINT) {
		fputs(rdv_buffer_string(&t->commands), stdout);
		return;
	}
	if (!t->findings.count)
		printf("route %s, topic %s: good, %d partitions\n", w->config.route, t->topic,
		       (int)t->source.partitions);
	for (size_t i = 0; i < t->findings.count; i++)
		printf("route %s, topic %s: %s %s%s\n", w->config.route, t->topic, t->findings.items[i].topic,
		       t->findings.items[i].what, t->findings.items[i].fixable ? " (--create mends it)" : "");
}

static enum redrive_status act(struct work *w, struct topic_work *t, struct rdv_error *error)
{
	enum redrive_status status = rdv_kafka_describe(w->admin, t->topic, LIMIT_MS, &t->source, error);
	if (status != REDRIVE_OK)
		return status;
	rdv_kafka_names(t->source.cluster, w->config.route, t->topic, w->config.group, &t->names);
	if (w->verb == RDV_OPT_PRINT) {
		rdv_kafka_print_topics(&w->config, &t->source, t->topic, &t->names,
				       rdv_option(w->in, RDV_OPT_PRINCIPAL), &t->commands);
		return REDRIVE_OK;
	}
	if (w->verb == RDV_OPT_CREATE)
		status = rdv_kafka_create_topics(w->admin, &t->source, &t->names, w->config.replication, LIMIT_MS,
						 error);
	return status == REDRIVE_OK
		       ? rdv_kafka_check_topics(w->admin, &t->source, &t->names, LIMIT_MS, &t->findings, error)
		       : status;
}

static void do_topic(struct work *w, const char *topic)
{
	struct topic_work t = {.topic = topic};
	struct rdv_error error = {""};
	rdv_buffer_init(&t.commands, 0);
	enum redrive_status status = act(w, &t, &error);
	if (status != REDRIVE_OK)
		failed(w, topic, status, &error);
	else
		(w->in->json ? show_json : show_text)(w, &t);
	if (t.findings.count && !w->code)
		w->code = rdv_status_info(REDRIVE_REFUSED)->exit;
	rdv_kafka_findings_done(&t.findings);
	rdv_buffer_done(&t.commands);
}

static void do_route(struct work *w, const struct rdv_route_settings *r)
{
	struct rdv_kafka_options options;
	struct rdv_kafka_list list = {0};
	struct rdv_error error = {""};
	rdv_kafka_options_of(r, &options);
	enum redrive_status status = rdv_kafka_config_copy(&w->config, &options);
	if (status == REDRIVE_OK)
		status = rdv_kafka_open(&w->config, RDV_KAFKA_ADMIN, NULL, NULL, &w->admin, &error);
	if (status == REDRIVE_OK)
		status = rdv_kafka_list_topics(w->admin, &w->config, LIMIT_MS, &list, &error);
	if (status == REDRIVE_OK && list.count == 0)
		status = rdv_error_set(&error, REDRIVE_NOT_FOUND, "no topic of the cluster matches its patterns");
	if (status != REDRIVE_OK)
		failed(w, NULL, status, &error);
	for (size_t i = 0; i < list.count; i++)
		do_topic(w, list.topics[i]);
	rdv_kafka_list_done(&list);
	rdv_kafka_close(w->admin);
	rdv_kafka_config_done(&w->config);
	w->admin = NULL;
}

static int do_file(const struct rdv_invocation *in, int verb, const char *file, const struct rdv_settings *s)
{
	const char *only = rdv_option(in, RDV_OPT_ROUTE);
	struct work w = {.in = in, .verb = verb, .items = json_array()};
	size_t count = 0;
	for (size_t i = 0; i < s->route_count; i++) {
		const struct rdv_route_settings *r = &s->routes[i];
		if (!r->source.kafka.given || (only && strcmp(only, r->name) != 0))
			continue;
		do_route(&w, r);
		count++;
	}
	if (!count)
		w.code = rdv_command_fail(3, "%s has no route%s%s%s with a source on Kafka", file, only ? " '" : "",
					  only ? only : "", only ? "'" : "");
	if (in->json && count) {
		json_t *all = json_pack("{s:O}", "items", w.items);
		rdv_print_json(all);
		json_decref(all);
	}
	json_decref(w.items);
	return w.code;
}
#else
static int do_file(const struct rdv_invocation *in, int verb, const char *file, const struct rdv_settings *s)
{
	return rdv_command_fail(6, "this build reads no Kafka: it was made without librdkafka");
}
#endif

static int run_topics(struct rdv_invocation *in)
{
	static const int verbs[] = {RDV_OPT_PRINT, RDV_OPT_CREATE, RDV_OPT_CHECK};
	const char *file = in->arg_count ? in->args[0] : "redrive.yaml";
	struct rdv_settings s;
	int verb = 0, given = 0;
	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
		if (rdv_option_given(in, verbs[i])) {
			verb = verbs[i];
			given++;
		}
	if (given != 1)
		return rdv_command_fail(2, "give one of --print, --create and --check");
	if (rdv_option_given(in, RDV_OPT_PRINCIPAL) && verb != RDV_OPT_PRINT)
		return rdv_command_fail(2, "--principal goes with --print");
	int code = rdv_command_load(file, &s);
	if (code == 0)
		code = do_file(in, verb, file, &s);
	rdv_settings_done(&s);
	return code;
}

static const struct argp_option topics_options[] = {
	{"print", RDV_OPT_PRINT, NULL, 0,
	 "Commands (kafka-topics.sh, kafka-acls.sh) that create them and grant the rights", 1},
	{"create", RDV_OPT_CREATE, NULL, 0, "Create what is missing, add partitions that the source has gained", 1},
	{"check", RDV_OPT_CHECK, NULL, 0, "Tell what is not as it must be, exit 6 if anything is", 1},
	{"route", RDV_OPT_ROUTE, "NAME", 0, "Only this route", 1},
	{"principal", RDV_OPT_PRINCIPAL, "NAME", 0, "--print: whom the rights are for, like User:redrive", 1},
	{0},
};
const struct rdv_command rdv_command_kafka_topics = {
	.name = "kafka topics",
	.arguments = "[FILE]",
	.doc = "The private topics of routes on Kafka: print, create or check",
	.options = topics_options,
	.common = RDV_COMMON_OUTPUT,
	.args_min = 0,
	.args_max = 1,
	.run = run_topics,
};
