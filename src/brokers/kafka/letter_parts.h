/* letter_parts.h - what the files of the letter reader share: the reader, its topics and partitions.
 *
 *   partition:  WAITING ──▶ READING ──▶ BROKEN ──▶ READING ...
 *                              └──▶ STOPPED: a newer value
 *
 * All of it is the reader's thread's, but for what stands under the lock: the answers to letters come from anywhere. */
#ifndef RDV_BROKERS_KAFKA_LETTER_PARTS_H
#define RDV_BROKERS_KAFKA_LETTER_PARTS_H
#include <pthread.h>
#include <stdatomic.h>
#include "letter_reader.h"
#include "topics.h"

enum rdv_kafka_part_state {
	RDV_KAFKA_PART_WAITING, /* not assigned */
	RDV_KAFKA_PART_READING,
	RDV_KAFKA_PART_BROKEN, /* assigned anew at `next`, when all answers are there */
	RDV_KAFKA_PART_STOPPED
};
struct rdv_kafka_parcel { /* a letter that was given to the sink, or what was passed over; its address is the ticket */
	struct rdv_kafka_parcel *next;
	struct rdv_kafka_letter_reader *reader;
	int64_t offset;
	size_t size;
	/* Under the lock. */
	bool answered;
	enum redrive_status status;
};
struct rdv_kafka_letter_part {
	struct rdv_kafka_letter_topic *topic;
	int32_t partition;
	enum rdv_kafka_part_state state;
	int64_t next, kept;                     /* all before is stored; as the sink has kept it; -1 = none yet */
	int64_t again_ms;                       /* of BROKEN: not before */
	struct rdv_kafka_parcel *first, **last; /* by offset; owns */
	bool said_foreign, said_damaged;
};
struct rdv_kafka_letter_topic {
	struct rdv_kafka_letter_topic *next;
	char *source;
	char name[RDV_KAFKA_NAME_SIZE]; /* of the letters topic */
	rd_kafka_topic_t *handle;
	struct rdv_kafka_letter_part **parts; /* owns */
	int32_t count;
};

struct rdv_kafka_letter_reader {
	struct rdv_kafka_config config;
	struct rdv_kafka_letter_sink sink;
	rd_kafka_t *handle;
	pthread_t thread;
	bool running;
	_Atomic bool stopping;

	/* Reader thread. */
	char cluster[64];
	struct rdv_kafka_letter_topic *topics;
	int64_t look_ms, keep_ms; /* when next */
	rd_kafka_message_t *held; /* that the sink has not taken yet */
	struct rdv_envelope envelope;
	struct rdv_kafka_letter_position *positions; /* room for all partitions */
	size_t position_room;
	char told[300]; /* the last trouble that was said */
	int64_t told_ms;

	pthread_mutex_t lock;
	pthread_cond_t answers;
	size_t out, out_bytes; /* at the sink, not answered */
	_Atomic uint64_t stored, foreign, damaged, outcomes;
	_Atomic uint32_t partitions, stopped;
};

void rdv_kafka_letter_say(struct rdv_kafka_letter_reader *r, int level, const char *fmt, ...) RDV_PRINTF(3, 4);
/* Trouble that lasts: once a minute. */
void rdv_kafka_letter_tell(struct rdv_kafka_letter_reader *r, const char *fmt, ...) RDV_PRINTF(2, 3);
/* Assigns it where it is to be gone on. False: not now. */
bool rdv_kafka_letter_assign(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part);

/* ---- letter_topics.c ---- */
/* Finds topics and partitions, when it is time. */
void rdv_kafka_letter_topics_look(struct rdv_kafka_letter_reader *r);
void rdv_kafka_letter_topics_done(struct rdv_kafka_letter_reader *r);
/* NULL: none of ours. */
struct rdv_kafka_letter_part *rdv_kafka_letter_part_of(struct rdv_kafka_letter_reader *r, const rd_kafka_message_t *m);
#endif
