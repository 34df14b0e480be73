/* dedupe.h - the idempotency window of a route: which keys are at work or done, bounded by time and by entries.
 *
 *   free ──claim──▶ PROCESSING(owner) ──done──▶ DONE(until) ──ttl or eviction──▶ free
 *                        └──────free (the owner died)──────▶ free
 *
 * A claim of a key that another message is processing makes the asker wait; the waiters of a key are a list through the
 * entries' `next` (they are HELD and in no queue). A window is shared by the lanes of a route, since messages with one
 * dedupe key may lie in several partitions; an owner is (partition, position) in one number, and who waits for an owner
 * of another lane asks again after a while instead. DONE keys lie in a list by age: the oldest goes when its time is
 * over, or early when there are more than the limit; early evictions are counted. A key that is being processed is
 * never evicted. Pure; memory is the only thing that can fail (then the asker goes on without protection); single
 * thread. */
#ifndef RDV_CORE_DEDUPE_H
#define RDV_CORE_DEDUPE_H
#include "../base/map.h"
#include "entry.h"
#include "record.h"

struct rdv_dedupe_item {
	uint32_t link; /* the map's */
	uint32_t older, newer;
	uint32_t waiters, last_waiter; /* entries */
	uint32_t segment;              /* its record lies there or later; 0 = none yet */
	struct rdv_hash128 key;
	uint64_t owner_seq;
	struct rdv_wall until;
	uint32_t owner_link; /* chain of the map by owner */
	unsigned state : 2;  /* enum rdv_dedupe_state */
	unsigned held : 1;   /* its owner is HELD: it may wait for the very message that asks */
};

struct rdv_dedupe {
	struct rdv_chunks items; /* owns */
	struct rdv_map map, by_owner;
	uint32_t oldest, newest; /* the DONE ones */
	uint64_t evicted;        /* before their time */
	uint32_t done;
};

void rdv_dedupe_init(struct rdv_dedupe *d);
void rdv_dedupe_done(struct rdv_dedupe *d);
static inline struct rdv_dedupe_item *rdv_dedupe_at(const struct rdv_dedupe *d, uint32_t ref)
{
	return rdv_chunks_at(&d->items, ref);
}
uint32_t rdv_dedupe_find(const struct rdv_dedupe *d, struct rdv_hash128 key); /* 0 = none */
/* The item that a message owns, being processed; 0 = none. */
uint32_t rdv_dedupe_owned(const struct rdv_dedupe *d, uint64_t owner_seq);
/* A new item that `owner_seq` is processing; 0 without memory. The key must not be there. */
uint32_t rdv_dedupe_claim(struct rdv_dedupe *d, struct rdv_hash128 key, uint64_t owner_seq);
/* PROCESSING → DONE until `until`; then at most `limit` DONE keys remain; if it was lowered by many, that takes
 * several calls. */
void rdv_dedupe_finish(struct rdv_dedupe *d, uint32_t ref, struct rdv_wall until, uint64_t limit);
/* Forgets a key; its waiters must be gone. */
void rdv_dedupe_free(struct rdv_dedupe *d, uint32_t ref);
/* Forgets what is past its time, the oldest first, at most so many. */
void rdv_dedupe_expire(struct rdv_dedupe *d, struct rdv_wall now, uint32_t most);
bool rdv_dedupe_check(const struct rdv_dedupe *d);
#endif
