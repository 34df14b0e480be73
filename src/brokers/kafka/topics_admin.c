/* topics_admin.c - requests to the cluster about topics, and what is seen of them. */
#include "topics_admin.h"
#include <stdio.h>
#include <stdlib.h>

#define MARGIN (256 << 10)         /* room in a private topic for what goes with a message */
#define SEGMENT_BYTES "67108864"   /* 64 MiB */
#define MESSAGE_LARGEST 2147483647 /* what the setting can hold */

const char *const rdv_topic_config_names[RDV_TOPIC_CONFIG_COUNT] = {
	[RDV_TOPIC_CLEANUP] = "cleanup.policy",    [RDV_TOPIC_TIME] = "retention.ms",
	[RDV_TOPIC_BYTES] = "retention.bytes",     [RDV_TOPIC_SEGMENT] = "segment.bytes",
	[RDV_TOPIC_MESSAGE] = "max.message.bytes",
};

void rdv_topic_wanted(const struct rdv_kafka_source_topic *source, struct rdv_topic_wanted *out)
{
	int64_t most = source->message_max > MESSAGE_LARGEST - MARGIN ? MESSAGE_LARGEST : source->message_max + MARGIN;

	*out = (struct rdv_topic_wanted){{
		[RDV_TOPIC_CLEANUP] = "delete",
		[RDV_TOPIC_TIME] = "-1",
		[RDV_TOPIC_BYTES] = "-1",
		[RDV_TOPIC_SEGMENT] = SEGMENT_BYTES,
	}};
	snprintf(out->value[RDV_TOPIC_MESSAGE], sizeof out->value[0], "%lld", (long long)most);
}

static enum redrive_status status_of(rd_kafka_resp_err_t code)
{
	switch (code) {
	case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
	case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
	case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		return REDRIVE_NOT_FOUND;
	case RD_KAFKA_RESP_ERR__TIMED_OUT:
	case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
	case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
	case RD_KAFKA_RESP_ERR__TRANSPORT:
	case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
	case RD_KAFKA_RESP_ERR__RESOLVE:
		return REDRIVE_UNREACHABLE;
	case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
		return REDRIVE_REFUSED;
	default:
		break;
	}
	switch (rdv_kafka_deed_of(code, false, false, false)) {
	case RDV_KAFKA_DENIED:
		return REDRIVE_FORBIDDEN;
	case RDV_KAFKA_AGAIN:
		return REDRIVE_TIMEOUT;
	default:
		return REDRIVE_REFUSED;
	}
}

enum redrive_status rdv_topics_error(struct rdv_error *error, rd_kafka_resp_err_t code, const char *what,
				     const char *text)
{
	return rdv_error_set(error, status_of(code), "%s: %s", what, text && text[0] ? text : rd_kafka_err2str(code));
}

enum redrive_status rdv_topics_begin(rd_kafka_t *h, rd_kafka_admin_op_t op, int timeout_ms,
				     struct rdv_topics_request *out, struct rdv_error *error)
{
	char text[256] = "";
	bool waits = op == RD_KAFKA_ADMIN_OP_CREATETOPICS || op == RD_KAFKA_ADMIN_OP_CREATEPARTITIONS ||
		     op == RD_KAFKA_ADMIN_OP_DELETERECORDS;
	rd_kafka_resp_err_t code;

	*out = (struct rdv_topics_request){rd_kafka_queue_new(h), rd_kafka_AdminOptions_new(h, op), timeout_ms};
	code = rd_kafka_AdminOptions_set_request_timeout(out->options, timeout_ms, text, sizeof text);
	if (!code && waits)
		code = rd_kafka_AdminOptions_set_operation_timeout(out->options, timeout_ms, text, sizeof text);
	if (!code)
		return REDRIVE_OK;
	rdv_topics_end(out);
	return rdv_error_set(error, REDRIVE_INVALID, "timeout of %d ms: %s", timeout_ms, text);
}

void rdv_topics_end(struct rdv_topics_request *r)
{
	rd_kafka_AdminOptions_destroy(r->options);
	rd_kafka_queue_destroy(r->queue);
}

/* The cluster's own words say more than a time that is up. */
static enum redrive_status add_complaint(rd_kafka_t *h, enum redrive_status status, struct rdv_error *error)
{
	char complaint[256];

	if (status == REDRIVE_UNREACHABLE && rdv_kafka_complaint(h, complaint))
		return rdv_error_add(error, status, complaint);
	return status;
}

enum redrive_status rdv_topics_await(rd_kafka_t *h, struct rdv_topics_request *r, rd_kafka_event_t **out,
				     struct rdv_error *error)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(r->queue, r->timeout_ms + 1000);
	rd_kafka_resp_err_t code = event ? rd_kafka_event_error(event) : RD_KAFKA_RESP_ERR__TIMED_OUT;

	*out = NULL;
	if (!code) {
		*out = event;
		return REDRIVE_OK;
	}
	rdv_topics_error(error, code, "the cluster", event ? rd_kafka_event_error_string(event) : NULL);
	if (event)
		rd_kafka_event_destroy(event);
	return add_complaint(h, status_of(code), error);
}

/* ---- looking ---- */

static void take_configs(const rd_kafka_ConfigResource_t *resource, struct rdv_topic_seen *seen)
{
	size_t count;
	const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &count);

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < RDV_TOPIC_CONFIG_COUNT; k++)
			if (strcmp(rd_kafka_ConfigEntry_name(entries[i]), rdv_topic_config_names[k]) == 0) {
				const char *value = rd_kafka_ConfigEntry_value(entries[i]);

				snprintf(seen->value[k], sizeof seen->value[k], "%s", value ? value : "");
			}
}

static enum redrive_status take_resource(const rd_kafka_ConfigResource_t *resource, const char *topic,
					 struct rdv_topic_seen *seen, struct rdv_error *error)
{
	rd_kafka_resp_err_t code = rd_kafka_ConfigResource_error(resource);

	if (strcmp(rd_kafka_ConfigResource_name(resource), topic) != 0)
		return REDRIVE_OK;
	seen->exists = !code;
	if (!code)
		take_configs(resource, seen);
	else if (status_of(code) != REDRIVE_NOT_FOUND)
		return rdv_topics_error(error, code, topic, rd_kafka_ConfigResource_error_string(resource));
	return REDRIVE_OK;
}

static enum redrive_status describe_configs(rd_kafka_t *h, const char *const *topics, size_t count, int timeout_ms,
					    struct rdv_topic_seen *out, struct rdv_error *error)
{
	struct rdv_topics_request request;
	rd_kafka_ConfigResource_t **asked = calloc(count + 1, sizeof *asked);
	rd_kafka_event_t *event = NULL;
	enum redrive_status status =
		asked ? rdv_topics_begin(h, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout_ms, &request, error)
		      : rdv_error_set(error, REDRIVE_NO_MEMORY, "a request to Kafka");

	if (status) {
		free(asked);
		return status;
	}
	for (size_t i = 0; i < count; i++)
		asked[i] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topics[i]);
	rd_kafka_DescribeConfigs(h, asked, count, request.options, request.queue);
	status = rdv_topics_await(h, &request, &event, error);
	if (!status) {
		size_t answers;
		const rd_kafka_ConfigResource_t **resources = rd_kafka_DescribeConfigs_result_resources(
			rd_kafka_event_DescribeConfigs_result(event), &answers);

		for (size_t i = 0; i < answers && !status; i++)
			for (size_t k = 0; k < count && !status; k++)
				status = take_resource(resources[i], topics[k], &out[k], error);
		rd_kafka_event_destroy(event);
	}
	rd_kafka_ConfigResource_destroy_array(asked, count);
	free(asked);
	rdv_topics_end(&request);
	return status;
}

/* Only of a topic that is known to be there: asking for its metadata might create it. */
static enum redrive_status count_partitions(rd_kafka_t *h, const char *topic, int timeout_ms,
					    struct rdv_topic_seen *seen, struct rdv_error *error)
{
	rd_kafka_topic_t *handle = rd_kafka_topic_new(h, topic, NULL);
	const struct rd_kafka_metadata *md = NULL;
	rd_kafka_resp_err_t code = handle ? rd_kafka_metadata(h, 0, handle, &md, timeout_ms) : rd_kafka_last_error();
	enum redrive_status status = REDRIVE_OK;

	if (!code && md->topic_cnt == 1)
		code = md->topics[0].err;
	if (status_of(code) == REDRIVE_NOT_FOUND && code) {
		seen->exists = false; /* deleted meanwhile, or not yet known everywhere */
	} else if (code) {
		status = rdv_topics_error(error, code, topic, NULL);
	} else if (md->topic_cnt == 1) {
		seen->partitions = md->topics[0].partition_cnt;
		seen->replication = seen->partitions ? md->topics[0].partitions[0].replica_cnt : 0;
		seen->led = true;
		for (int i = 0; i < md->topics[0].partition_cnt; i++)
			seen->led = seen->led && md->topics[0].partitions[i].leader >= 0;
	}
	if (md)
		rd_kafka_metadata_destroy(md);
	if (handle)
		rd_kafka_topic_destroy(handle);
	return status;
}

enum redrive_status rdv_topics_look(rd_kafka_t *h, const char *const *topics, size_t count, int timeout_ms,
				    struct rdv_topic_seen *out, struct rdv_error *error)
{
	enum redrive_status status;

	memset(out, 0, count * sizeof *out);
	status = describe_configs(h, topics, count, timeout_ms, out, error);
	for (size_t i = 0; i < count && !status; i++)
		if (out[i].exists)
			status = count_partitions(h, topics[i], timeout_ms, &out[i], error);
	return status;
}
