/* pending.c - stands in for the parts of the driver that are not built yet: weak, and last in the library, so that the
 * real ones win. */
#include "kafka.h"

__attribute__((weak)) enum redrive_status rdv_kafka_new(const struct rdv_kafka_options *o,
							const struct rdv_source_sink *sink, struct rdv_source **out,
							struct rdv_error *error)
{
	(void)o;
	(void)sink;
	(void)out;
	return rdv_error_set(error, REDRIVE_REFUSED, "sources on Kafka are not available in this version");
}
