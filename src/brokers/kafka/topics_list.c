/* topics_list.c - which topics of the cluster a route reads: its names, and what its patterns match now. */
#include <regex.h>
#include <stdlib.h>
#include "topics_admin.h"

static enum redrive_status add(struct rdv_kafka_list *list, const char *topic)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->topics[i], topic) == 0)
			return REDRIVE_OK;
	char **topics = reallocarray(list->topics, list->count + 1, sizeof *topics);
	char *copy = topics ? strdup(topic) : NULL;

	list->topics = topics ? topics : list->topics;
	if (!copy)
		return REDRIVE_NO_MEMORY;
	list->topics[list->count++] = copy;
	return REDRIVE_OK;
}

static enum redrive_status add_matching(const struct rd_kafka_metadata *md, const char *pattern,
					struct rdv_kafka_list *list, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	regex_t re;

	if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB))
		return rdv_error_set(error, REDRIVE_INVALID, "'%s' is no regular expression", pattern);
	for (int i = 0; i < md->topic_cnt && !status; i++)
		if (regexec(&re, md->topics[i].topic, 0, NULL, 0) == 0)
			status = add(list, md->topics[i].topic);
	regfree(&re);
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

enum redrive_status rdv_kafka_list_topics(rd_kafka_t *h, const struct rdv_kafka_config *c, int timeout_ms,
					  struct rdv_kafka_list *out, struct rdv_error *error)
{
	const struct rd_kafka_metadata *md = NULL;
	enum redrive_status status = REDRIVE_OK;

	*out = (struct rdv_kafka_list){0};
	for (size_t i = 0; i < c->topic_count && !status; i++) {
		rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;

		if (c->topics[i][0] != '^') {
			status = add(out, c->topics[i]);
			continue;
		}
		if (!md)
			code = rd_kafka_metadata(h, 1, NULL, &md, timeout_ms);
		status = code ? rdv_topics_error(error, code, "the cluster's topics", NULL)
			      : add_matching(md, c->topics[i], out, error);
	}
	if (md)
		rd_kafka_metadata_destroy(md);
	if (status)
		rdv_kafka_list_done(out);
	else if (out->count)
		qsort(out->topics, out->count, sizeof *out->topics, by_name);
	return status;
}

void rdv_kafka_list_done(struct rdv_kafka_list *list)
{
	if (!list)
		return;
	for (size_t i = 0; i < list->count; i++)
		free(list->topics[i]);
	free(list->topics);
	*list = (struct rdv_kafka_list){0};
}
