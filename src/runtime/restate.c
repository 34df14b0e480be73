/* restate.c - RESTATE: a decision made without a verdict (a refund, a revoke, a lowered limit) needs the history of its
 * message. The STATE is read by a reader and handed to the lane, at its new place if trimming has moved it. Core
 * thread. */
#include "room.h"
#include <stdlib.h>

struct restate {
	struct rdv_job job; /* first */
	struct rdv_strand *strand;
	uint32_t entry;
};

static void restate_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct restate *r = (struct restate *)job;
	struct rdv_place now =
		r->strand->lane ? rdv_lane_state_place(r->strand->lane, r->entry) : (struct rdv_place){0};
	struct rdv_block *block = job->reads[0].status == REDRIVE_OK ? job->reads[0].block : NULL;

	e->reads_open--;
	if (job->reads[0].status == REDRIVE_NOT_FOUND && now.segment &&
	    (now.segment != job->reads[0].position.segment || now.offset != job->reads[0].position.offset)) {
		rdv_read_want(&job->reads[0], &now); /* trimming has moved it */
		rdv_job_queue(e, job, true);
		return;
	}
	if (r->strand->lane && !e->failed) {
		rdv_strand_touch(e, r->strand);
		rdv_lane_restate(r->strand->lane, e->now, r->entry, rdv_block_slice(block), e->effects);
	}
	rdv_block_unref(block);
	free(r);
}

void rdv_flight_restate(struct rdv_engine *e, const struct rdv_effect *effect)
{
	struct restate *r = calloc(1, sizeof *r);

	if (!r) {
		rdv_engine_fail(e, "out of memory");
		return;
	}
	rdv_read_want(&r->job.reads[0], &effect->restate);
	r->job.done = restate_done;
	r->strand = rdv_strand_of(e, effect->lane);
	r->entry = effect->entry;
	rdv_job_queue(e, &r->job, true);
}
