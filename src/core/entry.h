/* entry.h - one live message of a lane in memory: 64 bytes, shared by schedule, order and lane.
 *
 * Fields change their meaning with the state, so that a waiting message costs one cache line:
 *
 *   state      next              member                 due
 *   READY      ready queue       next of its key        when it became ready
 *   IN_FLIGHT  place in calls    call number            when the call began
 *   WAITING    slot of the wheel next of its key        when it is due
 *   HELD       -                 next of its key        when it became held
 *   DYING      -                 enum rdv_reason        -
 *
 * An entry that has ended but still lies in a queue or wheel, or whose STATE has no place yet, stays as a ghost until
 * that is over (lazy removal). References are those of rdv_chunks. Internal to the core; single thread. */
#ifndef RDV_CORE_ENTRY_H
#define RDV_CORE_ENTRY_H
#include "../base/chunks.h"
#include "message.h"

/* What is to be written once the history is there. */
enum rdv_todo { RDV_TODO_NONE, RDV_TODO_REFUND, RDV_TODO_DIE, RDV_TODO_CRASH };

struct rdv_entry {
	uint32_t link; /* the map's chain; of a freed one: the free list's */
	uint32_t next;
	uint64_t seq;
	int64_t due; /* monotonic ms */
	uint32_t body_segment, body_offset, body_length;
	uint32_t state_segment, state_offset, state_length;
	uint32_t key; /* order: key: its key; order: none: its hash folded to 32 bits; 0 = null key */
	uint32_t charged;
	uint32_t member;
	unsigned state : 4;       /* enum rdv_state */
	unsigned class : 2;       /* enum rdv_class of the queue it is or was in */
	unsigned suspicion : 2;   /* charged failures while others succeeded, 0..3 */
	unsigned todo : 2;        /* enum rdv_todo: waits for its history */
	unsigned mark : 3;        /* of the last failure's fingerprint, 1..7; 0 = none: probes take another */
	unsigned unplaced : 2;    /* STATE records that have no place yet; 3 = stays 3 until all are placed */
	unsigned delivered : 1;   /* went out at least once: a retry from now on */
	unsigned queued : 1;      /* lies in a ready queue */
	unsigned scheduled : 1;   /* lies in the wheel */
	unsigned ghost : 1;       /* has ended; see above */
	unsigned joined : 1;      /* counts in its key's order */
	unsigned blocks : 1;      /* its key waits for its end to be durable */
	unsigned bad_charged : 1; /* the last failure was charged and may be given back */
	unsigned refund : 3;      /* so many charges were given back that its STATE still has */
	unsigned revoke : 1;      /* any verdict but ack ends as revoked */
	unsigned fetched : 1;     /* waits for its last second; FETCH was said */
	unsigned replay : 1;      /* a letter that is replayed: in no account */
	unsigned probe : 1;       /* in flight as a probe */
	unsigned started : 1;     /* STARTED was its last record */
	unsigned doubles : 1;     /* HELD: waits for another message with the same dedupe key, in that one's list */
	unsigned by_rule : 1;     /* the last failure was judged by a rule with limits of its own */
};
_Static_assert(sizeof(struct rdv_entry) == 64, "one cache line a message");
_Static_assert(RDV_STATE_COUNT <= 16 && RDV_CLASS_COUNT <= 4, "bits of an entry");

static inline struct rdv_entry *rdv_entry_at(const struct rdv_chunks *entries, uint32_t ref)
{
	return rdv_chunks_at(entries, ref);
}
#endif
