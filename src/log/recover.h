/* recover.h - reading a log from its files: order, ends, the torn tail against corruption. Used by open and by inspect.
 *
 * Frames are numbered without gaps. Reading goes on from segment to segment while the next number is found. Where it is
 * not, S decides: the highest number that anything valid (a frame, a segment's header, a hint file) knows to be synced.
 * If S reaches the missing number, something that was acknowledged is gone: CORRUPT. Otherwise the log ends there, and
 * what may lie behind it was never acknowledged. A batch without its last frame is cut to its start. Nothing is written
 * here. */
#ifndef RDV_LOG_RECOVER_H
#define RDV_LOG_RECOVER_H
#include "segment.h"

struct rdv_recovered_segment {
	uint32_t number, end; /* end: offset behind the last frame */
	uint64_t first, last; /* numbers; first = 0: no frame */
	bool hinted;          /* read from its hint file, which is good */
};

struct rdv_recovery {
	struct rdv_store *store; /* borrows; identity is set from the first header */
	rdv_log_fold fold;       /* may be NULL */
	void *ctx;
	bool ignore_hints;
	bool failed_in_fold;

	/* results */
	struct rdv_recovered_segment *segments; /* owns; tail first */
	uint32_t segment_count;
	uint32_t end_index; /* of the segment in which the log ends */
	uint64_t number;    /* of the last frame that counts */
	uint64_t synced;    /* S */
	uint64_t frames, hints_used;
	bool tail_cut; /* there was something behind the end */
	bool stale;    /* valid frames behind the end: they must be wiped before the log grows over them */

	/* while it runs */
	uint8_t *image;          /* owns */
	struct rdv_frame *batch; /* owns: frames of a batch whose end was not seen yet */
	size_t batch_count, batch_capacity;
	size_t batch_kept;               /* of them have payloads of their own */
	struct rdv_recovery_chunk *kept; /* owns: payloads of those whose image is gone */
	struct rdv_hints *hints;         /* owns: of the segment that comes next, if they are good */
	bool any_number;                 /* the tail's first frame may have any number */
};

void rdv_recovery_init(struct rdv_recovery *r, struct rdv_store *store);
void rdv_recovery_done(struct rdv_recovery *r);
/* `numbers`: the segments found, sorted, at least one. Reads their headers: identity, and r->segments. */
enum redrive_status rdv_recovery_begin(struct rdv_recovery *r, const uint32_t *numbers, uint32_t count,
				       struct rdv_error *error) RDV_MUST_CHECK;
/* After begin: reads the frames, calls the fold, finds the end. */
enum redrive_status rdv_recovery_run(struct rdv_recovery *r, struct rdv_error *error) RDV_MUST_CHECK;
/* Instead of run, when another recovery found that the log ends with this number, and made the tail safe: only calls
 * the fold. CORRUPT: it does not end there now. */
enum redrive_status rdv_recovery_again(struct rdv_recovery *r, uint64_t number, struct rdv_error *error) RDV_MUST_CHECK;
#endif
