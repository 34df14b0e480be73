/* library.c - which librdkafka this is. Any thread. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include "kafka.h"

const char *rdv_kafka_library(void)
{
	static _Thread_local char text[64];

	snprintf(text, sizeof text, "librdkafka %s", rd_kafka_version_str());
	return text;
}
