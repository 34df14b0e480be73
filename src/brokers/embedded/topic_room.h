/* topic_room.h - what topic.c and publish.c share. Internal to the room; see topic.c for the locks. */
#ifndef RDV_BROKERS_EMBEDDED_TOPIC_ROOM_H
#define RDV_BROKERS_EMBEDDED_TOPIC_ROOM_H
#include <pthread.h>
#include <stdatomic.h>
#include "ids.h"
#include "topic.h"

#define RDV_TOPIC_NAME_MAX 200
#define RDV_SEEN_BYTES 48 /* at most, of one id in a SEEN record */

struct rdv_topic {
	struct rdv_topics *set; /* borrows */
	char name[RDV_TOPIC_NAME_MAX + 1];
	uint8_t secret[16];
	uint32_t partitions, first_stream;
	uint32_t segment;  /* of its TOPIC record; UINT32_MAX = it has none */
	uint32_t *streams; /* owns; of a broker's topic: what its partitions have now, else NULL */
	uint32_t turn;     /* of null keys; under the append mutex */
	_Atomic int64_t ids_ttl_ms;
	_Atomic bool closed; /* nobody reads it: publishing is refused */
	bool will_be_read;   /* the engine's thread, while readers are said */
	int64_t will_be_ttl_ms;
	_Atomic uint64_t next_offset[];
};

struct rdv_topics {
	struct rdv_topics_options options;
	struct rdv_log *log;              /* borrows */
	struct rdv_topic **items;         /* owns; under mutex */
	size_t count, capacity, promised; /* promised: topics made and not added yet */
	uint32_t next_stream;
	struct rdv_ids ids; /* under mutex */
	pthread_mutex_t mutex;
};

/* Appends the TOPIC record in a batch of its own. */
enum redrive_status rdv_topic_record(struct rdv_topic *topic, uint64_t *ticket) RDV_MUST_CHECK;
static inline size_t rdv_topic_record_bytes(const struct rdv_topic *t)
{
	return 64 + RDV_TOPIC_NAME_MAX + 8 * (size_t)t->partitions;
}
#endif
