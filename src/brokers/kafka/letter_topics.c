/* letter_topics.c - which letters topics a route has, and their partitions: looked for at the start, every 10 s, and
 * twice a second while one is missing. Reader thread.
 *
 * A letters topic's name follows from the source topic's. Those that the configuration names are waited for; which ones
 * a pattern matches, the broker is asked. What was found once stays: a topic that goes is waited for. */
#include <regex.h>
#include <stdlib.h>
#include "../../base/clock.h"
#include "letter_parts.h"

#define CALL_MS 2000
#define LOOK_MS 10000
#define MISSING_MS 500
#define PARTITIONS_MAX 100000

/* ---- topics ---- */

static bool know_cluster(struct rdv_kafka_letter_reader *r)
{
	char *id = r->cluster[0] ? NULL : rd_kafka_clusterid(r->handle, CALL_MS);

	if (id)
		rdv_slice_to_text(rdv_slice_text(id), r->cluster, sizeof r->cluster);
	if (id)
		rd_kafka_mem_free(r->handle, id);
	return r->cluster[0];
}

static bool add_topic(struct rdv_kafka_letter_reader *r, const char *source)
{
	struct rdv_kafka_letter_topic *t = r->topics;
	struct rdv_kafka_names names;

	while (t && strcmp(t->source, source) != 0)
		t = t->next;
	if (t)
		return true;
	t = calloc(1, sizeof *t);
	if (!t || !(t->source = strdup(source))) {
		free(t);
		return false;
	}
	rdv_kafka_names(r->cluster, r->config.route, source, r->config.group, &names);
	memcpy(t->name, names.topic[RDV_KAFKA_LETTERS], sizeof t->name);
	t->handle = rd_kafka_topic_new(r->handle, t->name, NULL);
	t->next = r->topics;
	r->topics = t;
	return true;
}

static bool has_patterns(const struct rdv_kafka_letter_reader *r)
{
	for (size_t i = 0; i < r->config.topic_count; i++)
		if (r->config.topics[i][0] == '^')
			return true;
	return false;
}

/* Redrive's own topics are no sources. */
static bool is_private(const char *topic)
{
	const char *end = strrchr(topic, '.');

	return strncmp(topic, "redrive.", 8) == 0 && end &&
	       (!strcmp(end, ".journal") || !strcmp(end, ".inbox") || !strcmp(end, ".letters"));
}

static bool add_matching(struct rdv_kafka_letter_reader *r, const char *pattern,
			 const struct rd_kafka_metadata *metadata)
{
	bool good = true;
	regex_t re;

	if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return false;
	for (int i = 0; i < metadata->topic_cnt; i++) {
		const char *topic = metadata->topics[i].topic;

		if (!is_private(topic) && regexec(&re, topic, 0, NULL, 0) == 0)
			good = add_topic(r, topic) && good;
	}
	regfree(&re);
	return good;
}

/* False: not all are known. */
static bool find_topics(struct rdv_kafka_letter_reader *r)
{
	const struct rd_kafka_metadata *metadata = NULL;
	bool good = true;

	for (size_t i = 0; i < r->config.topic_count; i++)
		if (r->config.topics[i][0] != '^')
			good = add_topic(r, r->config.topics[i]) && good;
	if (!has_patterns(r))
		return good;
	if (rd_kafka_metadata(r->handle, 1, NULL, &metadata, CALL_MS))
		return false;
	for (size_t i = 0; i < r->config.topic_count; i++)
		if (r->config.topics[i][0] == '^')
			good = add_matching(r, r->config.topics[i], metadata) && good;
	rd_kafka_metadata_destroy(metadata);
	return good;
}

/* ---- partitions ---- */

static struct rdv_kafka_letter_part *new_part(struct rdv_kafka_letter_topic *t, int32_t partition)
{
	struct rdv_kafka_letter_part *part = calloc(1, sizeof *part);

	if (!part)
		return NULL;
	part->topic = t;
	part->partition = partition;
	part->next = part->kept = -1;
	part->last = &part->first;
	return part;
}

static bool grow(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_topic *t, int32_t count)
{
	struct rdv_kafka_letter_part **parts;

	if (count <= t->count)
		return true;
	if (count > PARTITIONS_MAX)
		return false;
	parts = realloc(t->parts, (size_t)count * sizeof(struct rdv_kafka_letter_part *));
	if (!parts)
		return false;
	t->parts = parts;
	while (t->count < count && (parts[t->count] = new_part(t, t->count))) {
		t->count++;
		atomic_fetch_add(&r->partitions, 1);
	}
	return t->count == count;
}

/* How many partitions the broker has of it; 0: none, or not known now. */
static int32_t ask_count(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_topic *t)
{
	const struct rd_kafka_metadata *metadata = NULL;
	rd_kafka_resp_err_t err = rd_kafka_metadata(r->handle, 0, t->handle, &metadata, CALL_MS);
	int32_t count = 0;

	if (err)
		return 0; /* the broker is away: the library says so */
	if (metadata->topic_cnt == 1 && !metadata->topics[0].err)
		count = metadata->topics[0].partition_cnt;
	else if (metadata->topic_cnt == 1 && metadata->topics[0].err != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
		rdv_kafka_letter_tell(r, "%s: %s", t->name, rd_kafka_err2str(metadata->topics[0].err));
	rd_kafka_metadata_destroy(metadata);
	return count;
}

/* True: all partitions that there are have been assigned. */
static bool look_at(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_topic *t)
{
	int32_t count = ask_count(r, t);
	bool good = count && grow(r, t, count);

	for (int32_t i = 0; i < t->count && i < count; i++)
		if (t->parts[i]->state == RDV_KAFKA_PART_WAITING)
			good = rdv_kafka_letter_assign(r, t->parts[i]) && good;
	return good;
}

void rdv_kafka_letter_topics_look(struct rdv_kafka_letter_reader *r)
{
	bool good;

	if (rdv_mono_now().ms < r->look_ms)
		return;
	good = know_cluster(r) && find_topics(r);
	for (struct rdv_kafka_letter_topic *t = r->topics; t && !atomic_load(&r->stopping); t = t->next)
		good = look_at(r, t) && good;
	r->look_ms = rdv_mono_now().ms + (good ? LOOK_MS : MISSING_MS);
}

struct rdv_kafka_letter_part *rdv_kafka_letter_part_of(struct rdv_kafka_letter_reader *r, const rd_kafka_message_t *m)
{
	const char *name = m->rkt ? rd_kafka_topic_name(m->rkt) : "";
	struct rdv_kafka_letter_topic *t = r->topics;

	while (t && strcmp(t->name, name) != 0)
		t = t->next;
	return t && m->partition >= 0 && m->partition < t->count ? t->parts[m->partition] : NULL;
}

static void free_part(struct rdv_kafka_letter_part *part)
{
	while (part->first) {
		struct rdv_kafka_parcel *p = part->first;

		part->first = p->next;
		free(p);
	}
	free(part);
}

void rdv_kafka_letter_topics_done(struct rdv_kafka_letter_reader *r)
{
	while (r->topics) {
		struct rdv_kafka_letter_topic *t = r->topics;

		r->topics = t->next;
		for (int32_t i = 0; i < t->count; i++)
			free_part(t->parts[i]);
		if (t->handle)
			rd_kafka_topic_destroy(t->handle);
		free(t->parts);
		free(t->source);
		free(t);
	}
}
