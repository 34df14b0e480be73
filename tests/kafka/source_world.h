/* source_world.h - a runtime that only keeps books: what sources give it and what they wrote, checked at every call.
 *
 * Every message that a member takes becomes one record (DONE, seq = offset) and moves the position, as soon as its
 * core thread has built the next batch. So the journal of a partition must hold every offset from the first to the
 * position, once, in order, whoever wrote them and however often the partition moved: fold and opened check that.
 * Messages must begin at the position that opened told and leave none out. A mistake ends the program. */
#ifndef RDV_TESTS_SOURCE_WORLD_H
#define RDV_TESTS_SOURCE_WORLD_H
#include <pthread.h>
#include "brokers/kafka/kafka.h"

#define WORLD_PARTITIONS 12
#define WORLD_LANES 4096

struct member;
struct seat { /* a lane, as the fake runtime knows it */
	struct member *member;
	struct rdv_source_lane *lane;
	uint32_t partition;
	uint64_t epoch;
	bool is_opened, clean, is_lost, is_gone, is_revoked, last_sent, in_batch;
	uint64_t folded;   /* next offset that the journal should tell of */
	int64_t any;       /* records folded */
	uint64_t position; /* next message */
	uint64_t recorded; /* what is below was handed to a batch */
	uint64_t durable;
	int64_t journal_first, last_at;
};
struct world {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	const char *brokers;
	char topic[64], group[64];
	bool may_skip;  /* messages that the broker has deleted */
	uint64_t first; /* the offset that journals begin with */
	uint64_t durable[WORLD_PARTITIONS], epoch[WORLD_PARTITIONS];
	uint64_t opens, clean_opens, losts, gones, revokes, batches, refused, failed;
	uint64_t said;
	char last_said[600];
};
struct member {
	struct world *world;
	struct rdv_source *source;
	pthread_t core;
	bool stopping, held;         /* held: the core thread makes no batches */
	bool full;                   /* messages are refused, */
	enum redrive_status refusal; /* FULL or so */
	int stall_ms;                /* the next message's call takes so long */
	struct seat *seats[WORLD_LANES];
	size_t seat_count;
	struct rdv_source_batch batch;
	bool batch_out;
	struct rdv_buffer records[WORLD_PARTITIONS];
	char why[900];
	bool failed;
	uint64_t taken, alive_events;
	/* the message at `look`, when it has come */
	struct rdv_buffer look_value, look_key, look_headers;
	struct rdv_source_message look;
	bool looked;
};

void world_init(struct world *w, int partitions); /* a new topic and group */
void world_done(struct world *w);
void world_produce(struct world *w, int partition, int count); /* waits until they are acknowledged */
/* One record with everything: key NULL = null, value NULL = tombstone. */
void world_produce_one(struct world *w, const char *topic, int partition, const char *key, const char *value);
void world_create(struct world *w, const char *topic, int partitions);
/* Waits until it is true; `what` is said when it takes more than a minute. */
void world_wait(struct world *w, bool (*is)(struct world *w, const void *arg), const void *arg, const char *what);
void world_wait_durable(struct world *w, int partition, uint64_t offset);
void world_commit_offset(struct world *w, int partition, int64_t offset); /* as somebody else's tool; empty group */
void world_fence(struct world *w, const char *transactional_id);          /* whoever writes with it */
void world_cut(struct world *w, int partition, int64_t offset);           /* what is before it is deleted */
void world_grow(struct world *w, int partitions);
void world_journal_name(struct world *w, char out[250]);
int64_t world_journal_start(struct world *w, int partition);

struct member_options {
	const char *instance;
	enum rdv_kafka_from from;
	const struct rdv_kafka_setting *settings;
	size_t setting_count;
	bool pattern;     /* a pattern that matches the topic, and all private topics of the route */
	bool keep_topics; /* private topics are not created */
};
struct member *member_start(struct world *w, const struct member_options *o);
void member_stop(struct member *m, int64_t within_ms);
size_t member_open_lanes(struct member *m);
#endif
