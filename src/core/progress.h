/* progress.h - which offsets of a source partition have ended or stand in the journal, and so where it goes on.
 *
 * A window [position, next) of the partition's offsets. An offset is open from `arrive` until it is `settled`: its
 * message has ended, or its BODY is in the journal. The position is the first open offset, or next. Offsets that never
 * arrive (control records, compaction) count as settled. What was settled before it arrived (a journal that was folded)
 * is not given out again. One bit an offset, in words that exist only where an offset has arrived, so that gaps cost
 * nothing; what is settled ahead lies in runs. Pure; single thread. */
#ifndef RDV_CORE_PROGRESS_H
#define RDV_CORE_PROGRESS_H
#include "../base/clock.h"
#include "../base/status.h"

struct rdv_progress_word {
	uint64_t number, open; /* bit i: offset 64 * number + i is open */
};
struct rdv_progress_run {
	uint64_t first, end; /* settled: [first, end) */
};
struct rdv_progress {
	uint64_t position, next;         /* next: all below have arrived or never will */
	uint64_t open;                   /* count */
	struct rdv_progress_word *words; /* owns: a ring, numbers rise from `head` on; the first one is never empty */
	size_t head, count, capacity;    /* capacity: 0 or a power of two */
	struct rdv_progress_run *ahead;  /* owns: settled, at or above next; [ahead_first, ahead_count) are valid */
	size_t ahead_first, ahead_count, ahead_capacity;
	bool mixed; /* ahead is not sorted, or runs touch */
};
void rdv_progress_init(struct rdv_progress *p, uint64_t position);
void rdv_progress_done(struct rdv_progress *p);
/* An offset is given out; offsets rise. *fresh = false: it was settled before, and is not to be given out again.
 * INVALID: below next (it came before), or UINT64_MAX. NO_MEMORY: nothing has changed. */
enum redrive_status rdv_progress_arrive(struct rdv_progress *p, uint64_t offset, bool *fresh) RDV_MUST_CHECK;
/* Nothing below `offset` comes any more. */
void rdv_progress_skip(struct rdv_progress *p, uint64_t offset);
/* Settled; below the position, or twice: nothing. At or above next (while folding): remembered; any order. NO_MEMORY:
 * nothing has changed. */
enum redrive_status rdv_progress_settle(struct rdv_progress *p, uint64_t first, uint64_t count) RDV_MUST_CHECK;
bool rdv_progress_is_open(const struct rdv_progress *p, uint64_t offset);
/* The first open offset at or above `from`; UINT64_MAX = none. */
uint64_t rdv_progress_next_open(const struct rdv_progress *p, uint64_t from);
#endif
