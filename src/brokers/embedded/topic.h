/* topic.h - topics on the file log: partitions, offsets, publish ids, publishing.
 *
 * A topic's partition count and hash secret are fixed when it is first opened (TOPIC record). Publishing frames a BODY
 * straight into the log under the log's append mutex, which also orders the offsets; it returns a ticket, durable when
 * the log says so. Partition = SipHash-2-4(key) mod partitions; null keys in turn. A publish id seen within the window
 * answers the first one's position; while the first is not durable the repeat shares its ticket and so its fate. Any
 * thread may publish. */
#ifndef RDV_BROKERS_EMBEDDED_TOPIC_H
#define RDV_BROKERS_EMBEDDED_TOPIC_H
#include "../../core/record.h"
#include "../../log/log.h"

struct rdv_topics; /* all topics of a data directory */
struct rdv_topic;

struct rdv_topics_options {
	struct rdv_log *log; /* borrows; set by rdv_topics_attach */
	uint64_t ids_max;    /* limits.ids: entries remembered at most */
	/* Is room left in this lane set? Called under the append mutex before each message; REDRIVE_FULL refuses (e.g.
	 * 100,000 held of a key). May be NULL. */
	enum redrive_status (*admit)(void *ctx, const struct rdv_topic *topic, uint32_t partition, uint64_t key_hash);
	void *admit_ctx;
};
struct rdv_topics *rdv_topics_new(const struct rdv_topics_options *options);
void rdv_topics_free(struct rdv_topics *t);
/* Recovery: TOPIC, SEEN and BODY frames while the log opens; LANE frames are the engine's. */
enum redrive_status rdv_topics_fold(struct rdv_topics *t, const struct rdv_frame *frame,
				    struct rdv_error *error) RDV_MUST_CHECK;
void rdv_topics_attach(struct rdv_topics *t, struct rdv_log *log);
/* Opens or creates (TOPIC record, to be committed by the caller's cycle). REFUSED when another partition count was
 * fixed, naming both. ids_ttl_ms: longest dedupe ttl, 24 h without one. */
enum redrive_status rdv_topic_open(struct rdv_topics *t, const char *name, uint32_t partitions, int64_t ids_ttl_ms,
				   struct rdv_topic **out, struct rdv_error *error) RDV_MUST_CHECK;
/* The same in two steps, for what must not fail half-way: a topic that is not in the set yet (what can be refused is
 * refused here), and its way into the set. What is not added is freed. Not OK of add: the journal takes no record. */
enum redrive_status rdv_topic_new(struct rdv_topics *t, const char *name, uint32_t partitions, struct rdv_topic **out,
				  struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_topic_add(struct rdv_topic *topic, uint64_t *ticket) RDV_MUST_CHECK;
void rdv_topic_free(struct rdv_topic *topic);
/* Who reads is said anew: begin, each reader with how long it wants ids to be remembered (0: 24 h will do), end. From
 * end on a topic without a reader refuses what is published (NOT_FOUND), and nothing is on its way into it any more:
 * its next offsets stand still. A topic of which nothing was said takes what is published. The engine's thread. */
void rdv_topics_readers_begin(struct rdv_topics *t);
void rdv_topic_reader(struct rdv_topic *topic, int64_t ids_ttl_ms);
void rdv_topics_readers_end(struct rdv_topics *t);
bool rdv_topic_is_read(const struct rdv_topic *t);
/* limits.ids anew: what is too much goes with the next ids that come. Any thread. */
void rdv_topics_set_ids_max(struct rdv_topics *t, uint64_t ids_max);
struct rdv_topic *rdv_topic_find(struct rdv_topics *t, struct rdv_slice name); /* NULL if unknown */
struct rdv_topic *rdv_topic_of_stream(struct rdv_topics *t, uint32_t stream,
				      uint32_t *partition); /* any stream of it */
const char *rdv_topic_name(const struct rdv_topic *t);
uint32_t rdv_topic_partitions(const struct rdv_topic *t);
uint32_t rdv_topic_stream(const struct rdv_topic *t, uint32_t partition);
uint64_t rdv_topic_next_offset(const struct rdv_topic *t, uint32_t partition);
uint64_t rdv_topic_key_hash(const struct rdv_topic *t, struct rdv_slice key); /* never 0 */
/* Keyed 128-bit hash, for ids of strangers: publish ids, dedupe keys. */
struct rdv_hash128 rdv_topic_id_hash(const struct rdv_topic *t, struct rdv_slice id);
uint32_t rdv_topic_partition_of_key(const struct rdv_topic *t, struct rdv_slice key);
/* Streams never given out twice: the next free id, also for lanes. */
uint32_t rdv_topics_new_streams(struct rdv_topics *t, uint32_t count);
void rdv_topics_saw_stream(struct rdv_topics *t, uint32_t stream);

/* ---- topics of a broker: known here by name alone, so that their messages are found; nothing of them is recorded, and
 * nobody publishes here. Each partition that is assigned has a stream of its own, another one every time. ---- */
/* Found or made. REFUSED: the name is an embedded topic's. `secret`: of the hashes of its keys. Core thread. */
enum redrive_status rdv_topic_foreign(struct rdv_topics *t, const char *name, const uint8_t secret[16],
				      struct rdv_topic **out, struct rdv_error *error) RDV_MUST_CHECK;
bool rdv_topic_is_foreign(const struct rdv_topic *t);
void rdv_topic_foreign_stream(struct rdv_topic *t, uint32_t partition, uint32_t stream);    /* 0: none. Core thread */
void rdv_topic_foreign_next(struct rdv_topic *t, uint32_t partition, uint64_t next_offset); /* any thread */

struct rdv_message { /* what a publisher gives; slices borrow */
	bool has_key;
	struct rdv_slice key;
	struct rdv_slice id, content_type, traceparent, body;
	const struct rdv_header *headers;
	size_t header_count;
	bool tombstone;
	struct rdv_wall not_before; /* ms 0 = at once */
};
struct rdv_published_at {
	uint32_t partition;
	uint64_t offset;
	bool duplicate;
};
/* Checks lengths (key, id: TOO_LARGE or INVALID), then appends all or nothing. *ticket: wait for it before answering.
 * results[count]. */
enum redrive_status rdv_topic_publish(struct rdv_topic *t, const struct rdv_message *messages, size_t count,
				      struct rdv_wall now, struct rdv_published_at *results, uint64_t *ticket,
				      struct rdv_error *error) RDV_MUST_CHECK;
/* Where a publish id went; NOT_FOUND outside the window. */
enum redrive_status rdv_topic_find_id(struct rdv_topic *t, struct rdv_slice id,
				      struct rdv_published_at *out) RDV_MUST_CHECK;
/* Trimming (core thread): re-makes TOPIC and SEEN records that lie in `segment` or before it and are live; drops
 * expired ids. A slice: it writes or drops *budget topics and ids at most, and takes off what it used. *all: none is
 * left. *ticket is set if something was written. */
enum redrive_status rdv_topics_rewrite(struct rdv_topics *t, uint32_t segment, struct rdv_wall now, uint32_t *budget,
				       bool *all, uint64_t *ticket) RDV_MUST_CHECK;
uint64_t rdv_topics_ids(const struct rdv_topics *t, uint64_t *evicted_early);
#endif
