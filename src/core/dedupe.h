/* dedupe.h - the idempotency window of a route: which keys are at work or done, bounded by time and by entries.
 *
 *   free ──claim──▶ PROCESSING(owner) ──done──▶ DONE(until) ──ttl or eviction──▶ free
 *                        └──────free (the owner died)──────▶ free
 *
 * A claim of a key that another message is processing makes the asker wait; the waiters of a key are a list through the
 * entries' `next` (they are HELD and in no queue). A window is shared by the lanes of a route, since messages with one
 * dedupe key may lie in several partitions; an owner is (stream of its lane, position): a route may have two lanes of
 * one partition when it has adopted one. Who waits for an owner of another lane asks again after a while instead. A
 * key at work whose `until` is set was done before, in a window that was merged into this one: it is DONE again, not
 * free, when its owner dies. DONE keys lie in a list by age: the oldest goes when its time is
 * over, or early when there are more than the limit; early evictions are counted. A key that is being processed is
 * never evicted. Pure; memory is the only thing that can fail (then the asker goes on without protection); single
 * thread. */
#ifndef RDV_CORE_DEDUPE_H
#define RDV_CORE_DEDUPE_H
#include "../base/map.h"
#include "entry.h"
#include "record.h"

struct rdv_dedupe_owner {
	uint64_t seq;
	uint32_t stream; /* of the lane */
};

struct rdv_dedupe_item {
	uint32_t link; /* the map's */
	union {
		uint32_t older;      /* DONE */
		uint32_t owner_link; /* PROCESSING: chain of the map by owner */
	};
	uint32_t newer;
	uint32_t waiters, last_waiter; /* entries */
	uint32_t segment;              /* its record lies there or later; 0 = none yet */
	struct rdv_hash128 key;
	uint64_t owner_seq;
	struct rdv_wall until;
	uint32_t owner_stream;
	unsigned state : 2; /* enum rdv_dedupe_state */
	unsigned asked : 3; /* how often by messages of other lanes, up to a few */
	unsigned held : 1;  /* its owner is HELD: it may wait for the very message that asks */
};
_Static_assert(sizeof(struct rdv_dedupe_item) == 64, "one cache line a key");

struct rdv_dedupe {
	struct rdv_chunks items; /* owns */
	struct rdv_map map, by_owner;
	uint32_t oldest, newest; /* the DONE ones */
	uint64_t evicted;        /* before their time */
	uint32_t done;
	uint32_t lanes; /* that have it */
};

void rdv_dedupe_init(struct rdv_dedupe *d);
void rdv_dedupe_done(struct rdv_dedupe *d);
static inline struct rdv_dedupe_item *rdv_dedupe_at(const struct rdv_dedupe *d, uint32_t ref)
{
	return rdv_chunks_at(&d->items, ref);
}
uint32_t rdv_dedupe_find(const struct rdv_dedupe *d, struct rdv_hash128 key); /* 0 = none */
/* The item that a message owns, being processed; 0 = none. */
uint32_t rdv_dedupe_owned(const struct rdv_dedupe *d, struct rdv_dedupe_owner owner);
/* A new item that `owner` is processing; 0 without memory. The key must not be there. */
uint32_t rdv_dedupe_claim(struct rdv_dedupe *d, struct rdv_hash128 key, struct rdv_dedupe_owner owner);
static inline bool rdv_dedupe_is_owner(const struct rdv_dedupe_item *i, struct rdv_dedupe_owner owner)
{
	return i->owner_seq == owner.seq && i->owner_stream == owner.stream;
}
/* PROCESSING → DONE until `until`; then at most `limit` DONE keys remain; if it was lowered by many, that takes
 * several calls. */
void rdv_dedupe_finish(struct rdv_dedupe *d, uint32_t ref, struct rdv_wall until, uint64_t limit);
/* Forgets a key; its waiters must be gone. */
void rdv_dedupe_free(struct rdv_dedupe *d, uint32_t ref);
/* Forgets what is past its time, the oldest first, at most so many. */
void rdv_dedupe_expire(struct rdv_dedupe *d, struct rdv_wall now, uint32_t most);
bool rdv_dedupe_check(const struct rdv_dedupe *d);
#endif
