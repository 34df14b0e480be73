/* pending.c - stands in for the parts of the driver that are not built yet: weak, and last in the library, so that the
 * real ones win. */
#include "topics.h"

#define PENDING __attribute__((weak))

PENDING void rdv_kafka_names(const char *cluster, const char *route, const char *source_topic, const char *group,
			     struct rdv_kafka_names *out)
{
	*out = (struct rdv_kafka_names){{{0}}};
}

PENDING void rdv_kafka_findings_done(struct rdv_kafka_findings *f)
{
}

PENDING enum redrive_status rdv_kafka_describe(rd_kafka_t *h, const char *topic, int timeout_ms,
					       struct rdv_kafka_source_topic *out, struct rdv_error *error)
{
	return rdv_error_set(error, REDRIVE_REFUSED, "sources on Kafka are not available in this version");
}

PENDING enum redrive_status rdv_kafka_check_topics(rd_kafka_t *h, const struct rdv_kafka_source_topic *source,
						   const struct rdv_kafka_names *names, int timeout_ms,
						   struct rdv_kafka_findings *out, struct rdv_error *error)
{
	return REDRIVE_REFUSED;
}

PENDING enum redrive_status rdv_kafka_create_topics(rd_kafka_t *h, const struct rdv_kafka_source_topic *source,
						    const struct rdv_kafka_names *names, int32_t replication,
						    int timeout_ms, struct rdv_error *error)
{
	return REDRIVE_REFUSED;
}

PENDING enum redrive_status rdv_kafka_delete_before(rd_kafka_t *h, const char *topic, int32_t partition, int64_t offset,
						    int timeout_ms, struct rdv_error *error)
{
	return REDRIVE_REFUSED;
}
