/* topics_create.c - private topics are created and grow with their source; records of a journal that are not needed any
 * more go. What exists is never changed but for more partitions. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "../../base/clock.h"
#include "topics_admin.h"

struct wish {
	const char *topic;
	struct rdv_topic_seen seen;
};

/* Per topic: done by another process at the same moment is done. */
static enum redrive_status take_results(const rd_kafka_topic_result_t *const *results, size_t count,
					rd_kafka_resp_err_t harmless, struct rdv_error *error)
{
	for (size_t i = 0; i < count; i++) {
		rd_kafka_resp_err_t code = rd_kafka_topic_result_error(results[i]);

		if (code && code != harmless)
			return rdv_topics_error(error, code, rd_kafka_topic_result_name(results[i]),
						rd_kafka_topic_result_error_string(results[i]));
	}
	return REDRIVE_OK;
}

static rd_kafka_NewTopic_t *new_topic(const char *topic, const struct rdv_kafka_source_topic *source,
				      int32_t replication, struct rdv_error *error)
{
	struct rdv_topic_wanted wanted;
	char text[256] = "";
	rd_kafka_NewTopic_t *made = rd_kafka_NewTopic_new(
		topic, source->partitions, replication ? replication : source->replication, text, sizeof text);

	rdv_topic_wanted(source, &wanted);
	for (size_t i = 0; made && i < RDV_TOPIC_CONFIG_COUNT; i++)
		rd_kafka_NewTopic_set_config(made, rdv_topic_config_names[i], wanted.value[i]);
	if (!made)
		rdv_error_set(error, REDRIVE_REFUSED, "%s: %s", topic, text);
	return made;
}

static enum redrive_status create_missing(rd_kafka_t *h, const struct wish *wishes,
					  const struct rdv_kafka_source_topic *source, int32_t replication,
					  int timeout_ms, struct rdv_error *error)
{
	rd_kafka_NewTopic_t *topics[RDV_KAFKA_TOPIC_COUNT];
	struct rdv_topics_request request;
	rd_kafka_event_t *event = NULL;
	enum redrive_status status = REDRIVE_OK;
	size_t count = 0, results;

	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT && !status; i++) {
		if (wishes[i].seen.exists)
			continue;
		topics[count] = new_topic(wishes[i].topic, source, replication, error);
		if (topics[count])
			count++;
		else
			status = REDRIVE_REFUSED;
	}
	if (count && !status)
		status = rdv_topics_begin(h, RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout_ms, &request, error);
	if (count && !status) {
		rd_kafka_CreateTopics(h, topics, count, request.options, request.queue);
		status = rdv_topics_await(h, &request, &event, error);
		rdv_topics_end(&request);
	}
	rd_kafka_NewTopic_destroy_array(topics, count);
	if (!event)
		return status;
	const rd_kafka_topic_result_t **all =
		rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &results);
	status = take_results(all, results, RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS, error);
	rd_kafka_event_destroy(event);
	return status;
}

/* INVALID_PARTITIONS: another process was faster; the look that follows tells. */
static enum redrive_status add_partitions(rd_kafka_t *h, const struct wish *wishes,
					  const struct rdv_kafka_source_topic *source, int timeout_ms,
					  struct rdv_error *error)
{
	rd_kafka_NewPartitions_t *topics[RDV_KAFKA_TOPIC_COUNT];
	struct rdv_topics_request request;
	rd_kafka_event_t *event = NULL;
	enum redrive_status status = REDRIVE_OK;
	size_t count = 0, results;
	char text[256] = "";

	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++) {
		if (!wishes[i].seen.exists || wishes[i].seen.partitions >= source->partitions)
			continue;
		topics[count] =
			rd_kafka_NewPartitions_new(wishes[i].topic, (size_t)source->partitions, text, sizeof text);
		count += topics[count] != NULL;
	}
	if (text[0])
		status = rdv_error_set(error, REDRIVE_REFUSED, "more partitions: %s", text);
	if (count && !status)
		status = rdv_topics_begin(h, RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, timeout_ms, &request, error);
	if (count && !status) {
		rd_kafka_CreatePartitions(h, topics, count, request.options, request.queue);
		status = rdv_topics_await(h, &request, &event, error);
		rdv_topics_end(&request);
	}
	rd_kafka_NewPartitions_destroy_array(topics, count);
	if (!event)
		return status;
	const rd_kafka_topic_result_t **all =
		rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result(event), &results);
	status = take_results(all, results, RD_KAFKA_RESP_ERR_INVALID_PARTITIONS, error);
	rd_kafka_event_destroy(event);
	return status;
}

static enum redrive_status look(rd_kafka_t *h, struct wish *wishes, int timeout_ms, struct rdv_error *error)
{
	const char *topics[RDV_KAFKA_TOPIC_COUNT];
	struct rdv_topic_seen seen[RDV_KAFKA_TOPIC_COUNT];
	enum redrive_status status;

	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		topics[i] = wishes[i].topic;
	status = rdv_topics_look(h, topics, RDV_KAFKA_TOPIC_COUNT, timeout_ms, seen, error);
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT && !status; i++)
		wishes[i].seen = seen[i];
	return status;
}

static bool all_there(const struct wish *wishes, int32_t partitions)
{
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		if (!wishes[i].seen.exists || wishes[i].seen.partitions < partitions)
			return false;
	return true;
}

static bool all_led(const struct wish *wishes)
{
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		if (!wishes[i].seen.led)
			return false;
	return true;
}

/* What the controller has made, the other brokers learn a little later. */
static enum redrive_status await_all(rd_kafka_t *h, struct wish *wishes, int32_t partitions, int timeout_ms,
				     struct rdv_error *error)
{
	int64_t until = rdv_mono_now().ms + timeout_ms;
	struct timespec pause = {0, 20000000};
	enum redrive_status status = look(h, wishes, timeout_ms, error);

	while (!status && !(all_there(wishes, partitions) && all_led(wishes))) {
		if (rdv_mono_now().ms >= until)
			return rdv_error_set(error, REDRIVE_TIMEOUT,
					     "the private topics were created but are not yet known to the brokers");
		nanosleep(&pause, NULL);
		status = look(h, wishes, timeout_ms, error);
	}
	return status;
}

enum redrive_status rdv_kafka_create_topics(rd_kafka_t *h, const struct rdv_kafka_source_topic *source,
					    const struct rdv_kafka_names *names, int32_t replication, int timeout_ms,
					    struct rdv_error *error)
{
	struct wish wishes[RDV_KAFKA_TOPIC_COUNT];
	enum redrive_status status;

	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		wishes[i].topic = names->topic[i];
	status = look(h, wishes, timeout_ms, error);
	if (status || all_there(wishes, source->partitions))
		return status;
	status = create_missing(h, wishes, source, replication, timeout_ms, error);
	if (!status)
		status = add_partitions(h, wishes, source, timeout_ms, error);
	return status ? status : await_all(h, wishes, source->partitions, timeout_ms, error);
}

static enum redrive_status delete_once(rd_kafka_t *h, const rd_kafka_topic_partition_list_t *what, int timeout_ms,
				       struct rdv_error *error)
{
	struct rdv_topics_request request;
	rd_kafka_event_t *event = NULL;
	enum redrive_status status = rdv_topics_begin(h, RD_KAFKA_ADMIN_OP_DELETERECORDS, timeout_ms, &request, error);

	if (status)
		return status;
	rd_kafka_DeleteRecords_t *records = rd_kafka_DeleteRecords_new(what);
	rd_kafka_DeleteRecords(h, &records, 1, request.options, request.queue);
	status = rdv_topics_await(h, &request, &event, error);
	if (!status) {
		const rd_kafka_topic_partition_list_t *answers =
			rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event));

		for (int i = 0; i < answers->cnt && !status; i++)
			if (answers->elems[i].err)
				status = rdv_topics_error(error, answers->elems[i].err, answers->elems[i].topic, NULL);
		rd_kafka_event_destroy(event);
	}
	rd_kafka_DeleteRecords_destroy(records);
	rdv_topics_end(&request);
	return status;
}

/* A broker that does not know yet that it leads the partition is asked again. */
enum redrive_status rdv_kafka_delete_before(rd_kafka_t *h, const char *topic, int32_t partition, int64_t offset,
					    int timeout_ms, struct rdv_error *error)
{
	int64_t until = rdv_mono_now().ms + timeout_ms, left;
	struct timespec pause = {0, 50000000};
	enum redrive_status status = REDRIVE_TIMEOUT;

	if (offset < 0)
		return rdv_error_set(error, REDRIVE_INVALID, "%s/%d: no offset: %lld", topic, (int)partition,
				     (long long)offset);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_list_add(list, topic, partition)->offset = offset;
	while (status == REDRIVE_TIMEOUT && (left = until - rdv_mono_now().ms) > 0) {
		status = delete_once(h, list, (int)left, error);
		if (status == REDRIVE_TIMEOUT)
			nanosleep(&pause, NULL);
	}
	rd_kafka_topic_partition_list_destroy(list);
	return status;
}
