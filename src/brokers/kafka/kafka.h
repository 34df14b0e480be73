/* kafka.h - a route's source on Kafka: what is configured, and how it is made.
 *
 * Three private topics per route, source topic and group, with as many partitions as the source topic:
 *   redrive.<route>.<hash>.journal | .inbox | .letters      hash of (cluster id, topic, group): topics.h
 * Threads of a source: the consumer thread (group and journal reading), the transaction thread (producer); see
 * docs/internals/kafka.md. */
#ifndef RDV_BROKERS_KAFKA_KAFKA_H
#define RDV_BROKERS_KAFKA_KAFKA_H
#include "../source.h"
#include "letters.h"

struct rdv_kafka_setting {
	const char *name, *value;
};
enum rdv_kafka_from {
	RDV_KAFKA_EARLIEST,
	RDV_KAFKA_LATEST,
	RDV_KAFKA_COMMITTED
};                         /* without a committed offset:
			      COMMITTED refuses the lane */
struct rdv_kafka_options { /* all borrowed until the call returns */
	const char *route;
	const char *brokers;
	const char *const *topics; /* names, or "^pattern" */
	size_t topic_count;
	const char *group;
	enum rdv_kafka_from from;
	const char *instance;                     /* static membership (group.instance.id); NULL = dynamic */
	const struct rdv_kafka_setting *settings; /* of librdkafka, passed on; checked by rdv_kafka_check_setting */
	size_t setting_count;
	struct rdv_slice
		secret;      /* of the keys' hashes and the inbox's MAC; empty = derived from cluster, topic, group */
	bool create_topics;  /* private topics that are missing are created; else the lane refuses */
	int32_t replication; /* of those; 0 = the source topic's */
	const char *dead_topic; /* gets a copy of every letter; NULL = none */
	enum rdv_letter_format dead_format;
	int64_t handler_timeout_ms; /* bounds how long a revoke waits */
};
/* May this setting of librdkafka be passed on? REFUSED: it would break the protocol; *why says what to do instead.
 * INVALID: librdkafka does not know it, or not that value. */
enum redrive_status rdv_kafka_check_setting(const char *name, const char *value, struct rdv_error *why) RDV_MUST_CHECK;
/* Is its value a password or a key, which must never be shown? */
bool rdv_kafka_setting_is_secret(const char *name);
enum redrive_status rdv_kafka_new(const struct rdv_kafka_options *o, const struct rdv_source_sink *sink,
				  struct rdv_source **out, struct rdv_error *error) RDV_MUST_CHECK;
/* Human text of the library, for `redrive --version` and the docs: "librdkafka 2.0.2". */
const char *rdv_kafka_library(void);
#endif
