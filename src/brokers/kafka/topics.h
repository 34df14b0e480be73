/* topics.h - the private topics of a route on Kafka: names, creation, checks; used by sources and `redrive kafka`.
 *
 * Name = "redrive." route "." 16 hex digits of XXH3-64 over the length-prefixed (cluster id, source topic, group) "."
 * kind; a route name that makes it longer than Kafka's 249 characters is cut. Required: as many partitions as the
 * source topic, cleanup.policy=delete, retention.ms=-1, retention.bytes=-1, segment.bytes=64 MiB, max.message.bytes =
 * the source's + 256 KiB. Calls block up to `timeout_ms`; any thread. */
#ifndef RDV_BROKERS_KAFKA_TOPICS_H
#define RDV_BROKERS_KAFKA_TOPICS_H
#include "client.h"

enum rdv_kafka_topic { RDV_KAFKA_JOURNAL, RDV_KAFKA_INBOX, RDV_KAFKA_LETTERS, RDV_KAFKA_TOPIC_COUNT };
#define RDV_KAFKA_NAME_SIZE 250
struct rdv_kafka_names {
	char topic[RDV_KAFKA_TOPIC_COUNT][RDV_KAFKA_NAME_SIZE];
};
void rdv_kafka_names(const char *cluster, const char *route, const char *source_topic, const char *group,
		     struct rdv_kafka_names *out);

/* The topics that a route reads now: its names, and what its patterns match. Sorted. */
struct rdv_kafka_list {
	char **topics; /* owns */
	size_t count;
};
enum redrive_status rdv_kafka_list_topics(rd_kafka_t *h, const struct rdv_kafka_config *c, int timeout_ms,
					  struct rdv_kafka_list *out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_kafka_list_done(struct rdv_kafka_list *list);

struct rdv_kafka_source_topic { /* what the broker says of a source topic */
	char cluster[64];
	int32_t partitions, replication;
	int64_t message_max; /* max.message.bytes */
	char id[40];         /* topic id where the library tells it, else empty: another one later = recreated */
};
/* NOT_FOUND: no such topic. */
enum redrive_status rdv_kafka_describe(rd_kafka_t *h, const char *topic, int timeout_ms,
				       struct rdv_kafka_source_topic *out, struct rdv_error *error) RDV_MUST_CHECK;
/* One finding about one private topic. */
struct rdv_kafka_finding {
	char topic[RDV_KAFKA_NAME_SIZE], what[200]; /* "is missing", "retention.ms is 604800000, must be -1", ... */
	bool fixable;                               /* --create would mend it: missing, too few partitions */
};
struct rdv_kafka_findings {
	struct rdv_kafka_finding *items; /* owns */
	size_t count;
};
void rdv_kafka_findings_done(struct rdv_kafka_findings *f);
/* OK with count 0: all is as required. Looks at both levels of every answer. */
enum redrive_status rdv_kafka_check_topics(rd_kafka_t *h, const struct rdv_kafka_source_topic *source,
					   const struct rdv_kafka_names *names, int timeout_ms,
					   struct rdv_kafka_findings *out, struct rdv_error *error) RDV_MUST_CHECK;
/* Creates what is missing, adds partitions that the source has gained; never changes another setting. */
enum redrive_status rdv_kafka_create_topics(rd_kafka_t *h, const struct rdv_kafka_source_topic *source,
					    const struct rdv_kafka_names *names, int32_t replication, int timeout_ms,
					    struct rdv_error *error) RDV_MUST_CHECK;
/* Everything before `offset` of a journal partition goes. */
enum redrive_status rdv_kafka_delete_before(rd_kafka_t *h, const char *topic, int32_t partition, int64_t offset,
					    int timeout_ms, struct rdv_error *error) RDV_MUST_CHECK;
/* Shell commands (kafka-topics.sh, kafka-acls.sh) that an administrator runs instead; principal NULL = placeholders. */
void rdv_kafka_print_topics(const struct rdv_kafka_config *c, const struct rdv_kafka_source_topic *source,
			    const char *source_name, const struct rdv_kafka_names *names, const char *principal,
			    struct rdv_buffer *out);
#endif
