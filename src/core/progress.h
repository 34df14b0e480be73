/* progress.h - which offsets of a source partition have ended or stand in the journal, and so where it goes on.
 *
 * A window [position, next) of the partition's offsets. An offset is open from `arrive` until it is `settled`: its
 * message has ended, or its BODY is in the journal. The position is the first open offset, or next. Offsets that never
 * arrive (control records, compaction) count as settled. What was settled before it arrived (a journal that was folded)
 * is not given out again. One bit an offset; memory grows with next - position. Pure; single thread. */
#ifndef RDV_CORE_PROGRESS_H
#define RDV_CORE_PROGRESS_H
#include "../base/clock.h"
#include "../base/status.h"

struct rdv_progress {
	uint64_t position, next; /* next: all below have arrived or never will */
	uint64_t *bits;  /* owns: a ring of words; 1 = open, in [position, next); above next: 1 = settled ahead */
	uint64_t *ahead; /* owns: offsets >= next that are settled already, sorted */
	size_t words, ahead_count, ahead_capacity;
	uint64_t open; /* count */
};
void rdv_progress_init(struct rdv_progress *p, uint64_t position);
void rdv_progress_done(struct rdv_progress *p);
/* An offset is given out; offsets rise. *fresh = false: it was settled before, and is not to be given out again.
 * INVALID: below next (it came before). NO_MEMORY: nothing has changed. */
enum redrive_status rdv_progress_arrive(struct rdv_progress *p, uint64_t offset, bool *fresh) RDV_MUST_CHECK;
/* Nothing below `offset` comes any more. */
void rdv_progress_skip(struct rdv_progress *p, uint64_t offset);
/* Settled; below the position, or twice: nothing. At or above next (while folding): remembered. NO_MEMORY. */
enum redrive_status rdv_progress_settle(struct rdv_progress *p, uint64_t first, uint64_t count) RDV_MUST_CHECK;
bool rdv_progress_is_open(const struct rdv_progress *p, uint64_t offset);
/* The first open offset at or above `from`; UINT64_MAX = none. */
uint64_t rdv_progress_next_open(const struct rdv_progress *p, uint64_t from);
#endif
