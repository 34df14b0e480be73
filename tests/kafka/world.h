/* world.h - what tests of the driver share: topics, a member of a group, what is visible in a partition, a broker to
 * hurt.
 *
 * Everything asserts: a failure ends the test. One thread, but for world_say. */
#ifndef RDV_TESTS_KAFKA_WORLD_H
#define RDV_TESTS_KAFKA_WORLD_H
#include <pthread.h>
#include "base/clock.h"
#include "brokers/kafka/txn.h"

#define WORLD_LIMIT_MS 60000

struct world {
	struct rdv_kafka_config config;
	char source[64], journal[64], group[64]; /* names of this world alone */
	pthread_mutex_t mutex;
	struct rdv_buffer log; /* what was said */
};
/* Where the broker is; NULL: the test is to be skipped. */
const char *world_broker(void);
/* Two topics, one partition each; journal_max: max.message.bytes of the journal, 0 = the broker's default. */
void world_open(struct world *w, const char *brokers, const struct rdv_kafka_setting *settings, size_t count,
		int journal_max);
/* The same without a broker: names and configuration only. */
void world_open_alone(struct world *w, const char *brokers, const struct rdv_kafka_setting *settings, size_t count);
void world_close(struct world *w);
bool world_was_said(struct world *w, const char *text);
void world_create_topic(struct world *w, const char *topic, int max_bytes);

/* A member of the group that has the source's partition 0, or waits for it. */
struct member {
	rd_kafka_t *handle;
	rd_kafka_queue_t *queue;
	rd_kafka_consumer_group_metadata_t *snapshot; /* of the last assignment; NULL = none, or lost */
	int assigned;                                 /* partitions */
	unsigned rebalances;
};
void member_join(struct world *w, struct member *m);
void member_serve(struct member *m, int ms);
void member_wait(struct member *m, unsigned rebalances); /* for so many of them, with an assignment at the end */
void member_leave(struct member *m);

/* The values that a reader of committed records sees in a partition, one a line. */
void world_visible(struct world *w, const char *topic, struct rdv_buffer *out);
int64_t world_committed(struct world *w); /* of the source's partition; -1 = none */

/* A broker of this test's own, to be killed and paused: an answer a command. */
struct broker {
	pid_t pid;
	int to, from;
	char address[64];
};
void broker_start(struct broker *b);
void broker_do(struct broker *b, const char *verb); /* "kill", "start", "pause", "resume" */
void broker_end(struct broker *b);
#endif
