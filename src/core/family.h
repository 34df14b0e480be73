/* family.h - per route: one fingerprint on many distinct messages within a time.
 *
 * Follows the 16 fingerprints seen last. Of each it keeps the last `count` distinct messages with their times in a
 * ring; when the oldest of them is at most `within` old, the fingerprint is a family, until it has not been seen for
 * `within`. Beyond 256, only one of every so many messages (by its hash) is kept, and the count is an estimate.
 * Memory: one block, allocated at the route's first failure; without memory families are not noticed. Nothing else can
 * fail. Single thread. */
#ifndef RDV_CORE_FAMILY_H
#define RDV_CORE_FAMILY_H
#include "policy.h"

struct rdv_families; /* opaque; NULL until the first failure */

struct rdv_family_answer {
	bool member; /* the fingerprint is a family: what `then` says applies */
	bool began;  /* with this message: alert */
};
struct rdv_family_answer rdv_family_see(struct rdv_families **f, const struct rdv_family *policy, int64_t now_ms,
					uint64_t fingerprint, uint64_t message);
void rdv_families_free(struct rdv_families *f); /* accepts NULL; also to start afresh after a reload */
#endif
