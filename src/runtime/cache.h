/* cache.h - bodies read ahead: by place, bounded in bytes, each used once.
 *
 * An entry is being read or there. Who takes it owns the block. Entries that nobody came for in time go, oldest first;
 * at the limit nothing more is read ahead, since what is there is due sooner: dispatching then reads for itself. Core
 * thread. */
#ifndef RDV_RUNTIME_CACHE_H
#define RDV_RUNTIME_CACHE_H
#include "reader.h"

#define RDV_CACHE_BYTES (64u << 20)
#define RDV_CACHE_BUCKETS 262144u
#define RDV_CACHE_STALE_MS 2500 /* it was to be wanted within 1 s */

struct rdv_flight;
struct rdv_ahead {
	struct rdv_ahead *link; /* of its bucket, or of the free list */
	struct rdv_ahead *newer, *older;
	struct rdv_place place;
	bool reading;
	struct rdv_block *block;    /* owns; NULL while it is being read */
	struct rdv_flight *waiting; /* a call that came for it meanwhile */
	int64_t since_ms;           /* mono */
	struct rdv_job job;         /* its owner: this entry */
};
struct rdv_cache {
	struct rdv_ahead **buckets; /* owns */
	struct rdv_ahead *oldest, *newest, *free;
	size_t bytes, count;
};
enum redrive_status rdv_cache_init(struct rdv_cache *c) RDV_MUST_CHECK;
void rdv_cache_done(struct rdv_cache *c);
/* A new entry, reading; NULL: no room, or it is there already. */
struct rdv_ahead *rdv_cache_add(struct rdv_cache *c, const struct rdv_place *place, struct rdv_mono now);
struct rdv_ahead *rdv_cache_find(struct rdv_cache *c, const struct rdv_place *place);
/* Takes it out; the block is the caller's. */
struct rdv_block *rdv_cache_take(struct rdv_cache *c, struct rdv_ahead *a);
#endif
