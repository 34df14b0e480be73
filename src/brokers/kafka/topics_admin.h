/* topics_admin.h - requests of topics.c to the cluster: sent, awaited, both levels of their answers looked at.
 *
 * An answer has an error of its own and one per topic: OK of the first says nothing about the second. Any thread;
 * calls block up to their timeout and a second. */
#ifndef RDV_BROKERS_KAFKA_TOPICS_ADMIN_H
#define RDV_BROKERS_KAFKA_TOPICS_ADMIN_H
#include "topics.h"

enum rdv_topic_config { RDV_TOPIC_CLEANUP, RDV_TOPIC_TIME, RDV_TOPIC_BYTES, RDV_TOPIC_SEGMENT, RDV_TOPIC_MESSAGE };
#define RDV_TOPIC_CONFIG_COUNT 5
extern const char *const rdv_topic_config_names[RDV_TOPIC_CONFIG_COUNT];
/* What a private topic must have. */
struct rdv_topic_wanted {
	char value[RDV_TOPIC_CONFIG_COUNT][24];
};
void rdv_topic_wanted(const struct rdv_kafka_source_topic *source, struct rdv_topic_wanted *out);

struct rdv_topic_seen {   /* a topic as it is */
	bool exists, led; /* led: every partition has a leader */
	int32_t partitions, replication;
	char value[RDV_TOPIC_CONFIG_COUNT][64]; /* "" = the broker did not tell */
};
/* Looks at `count` topics. A topic that is not there is no error. */
enum redrive_status rdv_topics_look(rd_kafka_t *h, const char *const *topics, size_t count, int timeout_ms,
				    struct rdv_topic_seen *out, struct rdv_error *error) RDV_MUST_CHECK;

struct rdv_topics_request { /* the queue and options of one request */
	rd_kafka_queue_t *queue;
	rd_kafka_AdminOptions_t *options;
	int timeout_ms;
};
enum redrive_status rdv_topics_begin(rd_kafka_t *h, rd_kafka_admin_op_t op, int timeout_ms,
				     struct rdv_topics_request *out, struct rdv_error *error) RDV_MUST_CHECK;
/* The answer, if it has no error of its own; the caller destroys it (NULL otherwise). */
enum redrive_status rdv_topics_await(rd_kafka_t *h, struct rdv_topics_request *r, rd_kafka_event_t **out,
				     struct rdv_error *error) RDV_MUST_CHECK;
void rdv_topics_end(struct rdv_topics_request *r);
/* The status that an error of the library is to the caller, with its text: "orders: Broker: ...". text NULL: the
 * code's own words. */
enum redrive_status rdv_topics_error(struct rdv_error *error, rd_kafka_resp_err_t code, const char *what,
				     const char *text);
#endif
