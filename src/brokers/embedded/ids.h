/* ids.h - the publish ids of all topics: 128-bit hashes in the order in which they were recorded.
 *
 * Internal to the room. An id lives until its time is over or `max` are remembered (then the oldest goes early, and is
 * counted). The order of recording is the order of segments, so trimming takes from the front only. The caller locks.
 */
#ifndef RDV_BROKERS_EMBEDDED_IDS_H
#define RDV_BROKERS_EMBEDDED_IDS_H
#include "../../base/chunks.h"
#include "../../base/clock.h"
#include "../../base/hash.h"
#include "../../base/map.h"

#define RDV_ID_NEW UINT32_MAX /* segment: not recorded yet; such an entry is never taken out early */

struct rdv_id { /* the first 4 bytes are the chunks' when free */
	uint32_t link, newer, older;
	uint32_t stream, segment;
	struct rdv_hash128 hash;
	uint64_t offset;
	struct rdv_wall until;
};
struct rdv_ids {
	struct rdv_chunks items; /* owns */
	struct rdv_map map;      /* owns */
	uint32_t oldest, newest;
	uint64_t max, evicted;
};
void rdv_ids_init(struct rdv_ids *s, uint64_t max);
void rdv_ids_done(struct rdv_ids *s);
/* NULL: unknown. Expired entries are found, too; the caller compares `until`. */
struct rdv_id *rdv_ids_find(struct rdv_ids *s, uint32_t first_stream, uint32_t streams, struct rdv_hash128 hash);
/* As the newest; a full table loses its oldest. NULL without memory. */
struct rdv_id *rdv_ids_add(struct rdv_ids *s, struct rdv_hash128 hash, uint32_t stream, struct rdv_wall now);
void rdv_ids_remove(struct rdv_ids *s, struct rdv_id *id);
/* Moves an entry to the newest end (it was recorded again). */
void rdv_ids_renew(struct rdv_ids *s, struct rdv_id *id);
struct rdv_id *rdv_ids_oldest(struct rdv_ids *s);                         /* NULL: empty */
struct rdv_id *rdv_ids_newer(struct rdv_ids *s, const struct rdv_id *id); /* NULL: it is the newest */
/* Forgets at most `most` expired entries from the front; how many. */
unsigned rdv_ids_expire(struct rdv_ids *s, struct rdv_wall now, unsigned most);
#endif
