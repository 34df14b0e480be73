/* tool_admin.c - verbs of kafka_tool about topics and groups. Every answer is looked at on both levels: the event's
 * error, and that of each topic or partition in it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

struct request {
	rd_kafka_t *rk;
	rd_kafka_queue_t *queue;
	rd_kafka_AdminOptions_t *options;
};

static struct request begin(const struct tool *t)
{
	struct request r = {.rk = tool_consumer(t, "kafka-tool")};
	char why[200];

	r.queue = rd_kafka_queue_new(r.rk);
	r.options = rd_kafka_AdminOptions_new(r.rk, RD_KAFKA_ADMIN_OP_ANY);
	tool_check(rd_kafka_AdminOptions_set_request_timeout(r.options, TOOL_TIMEOUT_MS, why, sizeof why), why);
	return r;
}

static rd_kafka_event_t *answer(const struct request *r)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(r->queue, 2 * TOOL_TIMEOUT_MS);

	if (!event)
		tool_fail("no answer");
	if (rd_kafka_event_error(event))
		tool_fail("%s", rd_kafka_event_error_string(event));
	return event;
}

static void check_topics(const rd_kafka_topic_result_t **results, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (rd_kafka_topic_result_error(results[i]))
			tool_fail("%s: %s", rd_kafka_topic_result_name(results[i]),
				  rd_kafka_topic_result_error_string(results[i]));
}

static bool has_leaders(rd_kafka_t *rk, const char *topic, int count)
{
	rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
	const struct rd_kafka_metadata *found;

	tool_check(rd_kafka_metadata(rk, 0, handle, &found, TOOL_TIMEOUT_MS), "metadata");
	bool all = !found->topics[0].err && found->topics[0].partition_cnt == count;
	for (int i = 0; all && i < count; i++)
		all = found->topics[0].partitions[i].leader >= 0;
	rd_kafka_metadata_destroy(found);
	rd_kafka_topic_destroy(handle);
	return all;
}

static bool is_served(rd_kafka_t *rk, const char *topic, int count)
{
	int64_t low, high;
	bool all = has_leaders(rk, topic, count);

	for (int i = 0; all && i < count; i++)
		all = !rd_kafka_query_watermark_offsets(rk, topic, i, &low, &high, TOOL_TIMEOUT_MS);
	return all;
}

/* The controller answers before the brokers know of it, and a broker tells of a leader before it leads. */
static void await_partitions(rd_kafka_t *rk, const char *topic, int count)
{
	for (int tries = 0; !is_served(rk, topic, count); tries++) {
		if (tries == 600)
			tool_fail("%s: %d partitions are not served", topic, count);
		usleep(50000);
	}
}

/* NAME=VALUE in two; *name is to be freed. */
static void split(const char *text, char **name, char **value)
{
	*name = strdup(text);
	*value = strchr(*name, '=');
	if (!*value)
		tool_fail("%s: NAME=VALUE is wanted", text);
	*(*value)++ = 0;
}

void tool_create(const struct tool *t)
{
	struct request r = begin(t);
	char why[200], *name, *value;
	size_t count;
	rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(t->arguments[0], (int)tool_number(t->arguments[1]),
							   (int)tool_number(t->arguments[2]), why, sizeof why);

	if (!topic)
		tool_fail("%s", why);
	for (int i = 3; i < t->argument_count; i++) {
		split(t->arguments[i], &name, &value);
		tool_check(rd_kafka_NewTopic_set_config(topic, name, value), name);
		free(name);
	}
	rd_kafka_CreateTopics(r.rk, &topic, 1, r.options, r.queue);
	const rd_kafka_CreateTopics_result_t *result = rd_kafka_event_CreateTopics_result(answer(&r));
	const rd_kafka_topic_result_t **topics = rd_kafka_CreateTopics_result_topics(result, &count);
	check_topics(topics, count);
	await_partitions(r.rk, t->arguments[0], (int)tool_number(t->arguments[1]));
}

void tool_delete(const struct tool *t)
{
	struct request r = begin(t);
	rd_kafka_DeleteTopic_t **topics = calloc((size_t)t->argument_count, sizeof *topics);
	size_t count;

	for (int i = 0; i < t->argument_count; i++)
		topics[i] = rd_kafka_DeleteTopic_new(t->arguments[i]);
	rd_kafka_DeleteTopics(r.rk, topics, (size_t)t->argument_count, r.options, r.queue);
	const rd_kafka_DeleteTopics_result_t *result = rd_kafka_event_DeleteTopics_result(answer(&r));
	const rd_kafka_topic_result_t **results = rd_kafka_DeleteTopics_result_topics(result, &count);
	check_topics(results, count);
	rd_kafka_DeleteTopic_destroy_array(topics, (size_t)t->argument_count);
	free(topics);
}

void tool_grow(const struct tool *t)
{
	struct request r = begin(t);
	char why[200];
	size_t count;
	rd_kafka_NewPartitions_t *more =
		rd_kafka_NewPartitions_new(t->arguments[0], (size_t)tool_number(t->arguments[1]), why, sizeof why);

	if (!more)
		tool_fail("%s", why);
	rd_kafka_CreatePartitions(r.rk, &more, 1, r.options, r.queue);
	const rd_kafka_CreatePartitions_result_t *result = rd_kafka_event_CreatePartitions_result(answer(&r));
	const rd_kafka_topic_result_t **results = rd_kafka_CreatePartitions_result_topics(result, &count);
	check_topics(results, count);
	await_partitions(r.rk, t->arguments[0], (int)tool_number(t->arguments[1]));
}

static void check_resources(const rd_kafka_ConfigResource_t **resources, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (rd_kafka_ConfigResource_error(resources[i]))
			tool_fail("%s: %s", rd_kafka_ConfigResource_name(resources[i]),
				  rd_kafka_ConfigResource_error_string(resources[i]));
}

void tool_alter(const struct tool *t)
{
	struct request r = begin(t);
	rd_kafka_ConfigResource_t *wanted = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, t->arguments[0]);
	char *name, *value;
	size_t count;

	for (int i = 1; i < t->argument_count; i++) {
		split(t->arguments[i], &name, &value);
		tool_check(rd_kafka_ConfigResource_set_config(wanted, name, value), name);
		free(name);
	}
	rd_kafka_AlterConfigs(r.rk, &wanted, 1, r.options, r.queue);
	const rd_kafka_AlterConfigs_result_t *result = rd_kafka_event_AlterConfigs_result(answer(&r));
	const rd_kafka_ConfigResource_t **resources = rd_kafka_AlterConfigs_result_resources(result, &count);
	check_resources(resources, count);
}

void tool_describe(const struct tool *t)
{
	struct request r = begin(t);
	rd_kafka_ConfigResource_t *wanted = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, t->arguments[0]);
	json_t *out = json_object();
	size_t count, entries;

	rd_kafka_DescribeConfigs(r.rk, &wanted, 1, r.options, r.queue);
	const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(answer(&r));
	const rd_kafka_ConfigResource_t **resources = rd_kafka_DescribeConfigs_result_resources(result, &count);
	check_resources(resources, count);
	const rd_kafka_ConfigEntry_t **entry = rd_kafka_ConfigResource_configs(resources[0], &entries);
	for (size_t i = 0; i < entries; i++) {
		const char *value = rd_kafka_ConfigEntry_value(entry[i]);
		json_object_set_new(out, rd_kafka_ConfigEntry_name(entry[i]), value ? json_string(value) : json_null());
	}
	tool_print(out);
}

static void check_partitions(const rd_kafka_topic_partition_list_t *list)
{
	for (int i = 0; i < list->cnt; i++)
		if (list->elems[i].err)
			tool_fail("%s %d: %s", list->elems[i].topic, list->elems[i].partition,
				  rd_kafka_err2str(list->elems[i].err));
}

void tool_cut(const struct tool *t)
{
	struct request r = begin(t);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

	rd_kafka_topic_partition_list_add(list, t->arguments[0], (int32_t)tool_number(t->arguments[1]))->offset =
		tool_number(t->arguments[2]);
	rd_kafka_DeleteRecords_t *request = rd_kafka_DeleteRecords_new(list);
	rd_kafka_DeleteRecords(r.rk, &request, 1, r.options, r.queue);
	check_partitions(rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(answer(&r))));
}

void tool_topics(const struct tool *t)
{
	rd_kafka_t *rk = tool_consumer(t, "kafka-tool");
	const struct rd_kafka_metadata *found;
	json_t *out = json_object();

	tool_check(rd_kafka_metadata(rk, 1, NULL, &found, TOOL_TIMEOUT_MS), "metadata");
	for (int i = 0; i < found->topic_cnt; i++)
		json_object_set_new(out, found->topics[i].topic, json_integer(found->topics[i].partition_cnt));
	tool_print(out);
}

static void set_by_partition(json_t *object, int partition, json_t *value)
{
	char name[16];

	snprintf(name, sizeof name, "%d", partition);
	json_object_set_new(object, name, value);
}

/* How many replicas each partition has that are in sync. */
void tool_in_sync(const struct tool *t)
{
	rd_kafka_t *rk = tool_consumer(t, "kafka-tool");
	const struct rd_kafka_metadata *found;
	json_t *out = json_object();

	tool_check(rd_kafka_metadata(rk, 1, NULL, &found, TOOL_TIMEOUT_MS), "metadata");
	for (int i = 0; i < found->topic_cnt; i++) {
		const struct rd_kafka_metadata_topic *topic = &found->topics[i];
		json_t *counts = json_array();
		for (int p = 0; p < topic->partition_cnt; p++)
			json_array_append_new(counts, json_integer(topic->partitions[p].isr_cnt));
		json_object_set_new(out, topic->topic, counts);
	}
	tool_print(out);
}

void tool_ends(const struct tool *t)
{
	rd_kafka_t *rk = tool_consumer(t, "kafka-tool");
	json_t *out = json_object();
	int count = tool_partitions(rk, t->arguments[0]);

	for (int i = 0; i < count; i++) {
		int64_t low, high;
		tool_check(rd_kafka_query_watermark_offsets(rk, t->arguments[0], i, &low, &high, TOOL_TIMEOUT_MS),
			   "ends");
		set_by_partition(out, i, json_pack("[I, I]", (json_int_t)low, (json_int_t)high));
	}
	tool_print(out);
}

void tool_offsets(const struct tool *t)
{
	rd_kafka_t *rk = tool_consumer(t, t->arguments[0]);
	rd_kafka_topic_partition_list_t *list = tool_all(rk, t->arguments[1], RD_KAFKA_OFFSET_INVALID);
	json_t *out = json_object();

	tool_check(rd_kafka_committed(rk, list, TOOL_TIMEOUT_MS), "committed");
	check_partitions(list);
	for (int i = 0; i < list->cnt; i++)
		if (list->elems[i].offset >= 0)
			set_by_partition(out, list->elems[i].partition, json_integer(list->elems[i].offset));
	tool_print(out);
}

void tool_commit(const struct tool *t)
{
	rd_kafka_t *rk = tool_consumer(t, t->arguments[0]);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

	rd_kafka_topic_partition_list_add(list, t->arguments[1], (int32_t)tool_number(t->arguments[2]))->offset =
		tool_number(t->arguments[3]);
	tool_check(rd_kafka_commit(rk, list, 0), "commit");
	check_partitions(list);
}

static json_t *member(const rd_kafka_MemberDescription_t *m)
{
	const rd_kafka_topic_partition_list_t *list =
		rd_kafka_MemberAssignment_partitions(rd_kafka_MemberDescription_assignment(m));
	const char *instance = rd_kafka_MemberDescription_group_instance_id(m);
	json_t *partitions = json_array();

	for (int i = 0; list && i < list->cnt; i++)
		json_array_append_new(partitions,
				      json_pack("[s, i]", list->elems[i].topic, (int)list->elems[i].partition));
	return json_pack("{s: s, s: s?, s: s, s: o}", "client", rd_kafka_MemberDescription_client_id(m), "instance",
			 instance, "id", rd_kafka_MemberDescription_consumer_id(m), "partitions", partitions);
}

void tool_group(const struct tool *t)
{
	struct request r = begin(t);
	const char *name = t->arguments[0];
	json_t *members = json_array();
	size_t count;

	rd_kafka_DescribeConsumerGroups(r.rk, &name, 1, r.options, r.queue);
	const rd_kafka_DescribeConsumerGroups_result_t *result =
		rd_kafka_event_DescribeConsumerGroups_result(answer(&r));
	const rd_kafka_ConsumerGroupDescription_t **groups =
		rd_kafka_DescribeConsumerGroups_result_groups(result, &count);
	const rd_kafka_error_t *error = count ? rd_kafka_ConsumerGroupDescription_error(groups[0]) : NULL;
	if (!count || error)
		tool_fail("%s: %s", name, error ? rd_kafka_error_string(error) : "no group");
	for (size_t i = 0; i < rd_kafka_ConsumerGroupDescription_member_count(groups[0]); i++)
		json_array_append_new(members, member(rd_kafka_ConsumerGroupDescription_member(groups[0], i)));
	const char *state = rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(groups[0]));
	tool_print(json_pack("{s: s, s: o}", "state", state, "members", members));
}
