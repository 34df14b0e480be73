/* topics.c - the private topics of a route: their names, what the source's are, what is wrong with them. */
#include "topics.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../base/hash.h"
#include "../../base/quantity.h"
#include "topics_admin.h"

static const char *const kinds[RDV_KAFKA_TOPIC_COUNT] = {
	[RDV_KAFKA_JOURNAL] = "journal", [RDV_KAFKA_INBOX] = "inbox", [RDV_KAFKA_LETTERS] = "letters"};

void rdv_kafka_names(const char *cluster, const char *route, const char *source_topic, const char *group,
		     struct rdv_kafka_names *out)
{
	struct rdv_buffer text;
	uint64_t hash;

	rdv_buffer_init(&text, 0);
	rdv_buffer_prefixed(&text, rdv_slice_text(cluster));
	rdv_buffer_prefixed(&text, rdv_slice_text(source_topic));
	rdv_buffer_prefixed(&text, rdv_slice_text(group));
	hash = rdv_xxh3(rdv_buffer_as_slice(&text));
	rdv_buffer_done(&text);
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++) {
		size_t around = strlen("redrive...") + 16 + strlen(kinds[i]);

		snprintf(out->topic[i], RDV_KAFKA_NAME_SIZE, "redrive.%.*s.%016llx.%s",
			 (int)(RDV_KAFKA_NAME_SIZE - 1 - around), route, (unsigned long long)hash, kinds[i]);
	}
}

enum redrive_status rdv_kafka_describe(rd_kafka_t *h, const char *topic, int timeout_ms,
				       struct rdv_kafka_source_topic *out, struct rdv_error *error)
{
	struct rdv_topic_seen seen;
	enum redrive_status status = rdv_topics_look(h, &topic, 1, timeout_ms, &seen, error);
	char *cluster = NULL;

	memset(out, 0, sizeof *out);
	if (status)
		return status;
	if (!seen.exists)
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "the topic '%s' does not exist", topic);
	cluster = rd_kafka_clusterid(h, timeout_ms);
	if (!cluster)
		return rdv_error_set(error, REDRIVE_UNREACHABLE, "the cluster does not tell its id");
	snprintf(out->cluster, sizeof out->cluster, "%s", cluster);
	rd_kafka_mem_free(h, cluster);
	out->partitions = seen.partitions;
	out->replication = seen.replication;
	if (rdv_integer_parse(rdv_slice_text(seen.value[RDV_TOPIC_MESSAGE]), &out->message_max))
		return rdv_error_set(error, REDRIVE_FORBIDDEN,
				     "the topic '%s' does not tell its max.message.bytes: DescribeConfigs is needed",
				     topic);
	return REDRIVE_OK;
}

/* ---- findings ---- */

static enum redrive_status find(struct rdv_kafka_findings *f, const char *topic, bool fixable, const char *fmt, ...)
	RDV_PRINTF(4, 5);
static enum redrive_status find(struct rdv_kafka_findings *f, const char *topic, bool fixable, const char *fmt, ...)
{
	struct rdv_kafka_finding *items = reallocarray(f->items, f->count + 1, sizeof *items);
	va_list args;

	if (!items)
		return REDRIVE_NO_MEMORY;
	f->items = items;
	items = &f->items[f->count++];
	items->fixable = fixable;
	snprintf(items->topic, sizeof items->topic, "%s", topic);
	va_start(args, fmt);
	vsnprintf(items->what, sizeof items->what, fmt, args);
	va_end(args);
	return REDRIVE_OK;
}

void rdv_kafka_findings_done(struct rdv_kafka_findings *f)
{
	if (!f)
		return;
	free(f->items);
	*f = (struct rdv_kafka_findings){0};
}

/* Room for larger messages than are needed is no harm. */
static bool is_as_wanted(enum rdv_topic_config config, const char *value, const char *wanted)
{
	int64_t has, least;

	if (config == RDV_TOPIC_MESSAGE && !rdv_integer_parse(rdv_slice_text(value), &has) &&
	    !rdv_integer_parse(rdv_slice_text(wanted), &least))
		return has >= least;
	return strcmp(value, wanted) == 0;
}

static enum redrive_status judge_configs(const char *topic, const struct rdv_topic_seen *seen,
					 const struct rdv_topic_wanted *wanted, struct rdv_kafka_findings *out)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < RDV_TOPIC_CONFIG_COUNT && !status; i++) {
		const char *name = rdv_topic_config_names[i], *value = seen->value[i];

		if (!is_as_wanted((enum rdv_topic_config)i, value, wanted->value[i]))
			status = find(out, topic, false, "%s is %s, must be %s%s", name, value[0] ? value : "not told",
				      i == RDV_TOPIC_MESSAGE ? "at least " : "", wanted->value[i]);
	}
	return status;
}

static enum redrive_status judge(const char *topic, const struct rdv_topic_seen *seen,
				 const struct rdv_kafka_source_topic *source, struct rdv_kafka_findings *out)
{
	struct rdv_topic_wanted wanted;
	enum redrive_status status = REDRIVE_OK;

	if (!seen->exists)
		return find(out, topic, true, "is missing");
	if (seen->partitions != source->partitions)
		status = find(out, topic, seen->partitions < source->partitions, "has %d partitions, must have %d",
			      (int)seen->partitions, (int)source->partitions);
	rdv_topic_wanted(source, &wanted);
	return status ? status : judge_configs(topic, seen, &wanted, out);
}

enum redrive_status rdv_kafka_check_topics(rd_kafka_t *h, const struct rdv_kafka_source_topic *source,
					   const struct rdv_kafka_names *names, int timeout_ms,
					   struct rdv_kafka_findings *out, struct rdv_error *error)
{
	const char *topics[RDV_KAFKA_TOPIC_COUNT];
	struct rdv_topic_seen seen[RDV_KAFKA_TOPIC_COUNT];
	enum redrive_status status;

	*out = (struct rdv_kafka_findings){0};
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		topics[i] = names->topic[i];
	status = rdv_topics_look(h, topics, RDV_KAFKA_TOPIC_COUNT, timeout_ms, seen, error);
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT && !status; i++) {
		status = judge(topics[i], &seen[i], source, out);
		if (status)
			rdv_error_set(error, status, "a finding about '%s'", topics[i]);
	}
	if (status)
		rdv_kafka_findings_done(out);
	return status;
}
