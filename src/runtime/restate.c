/* restate.c - RESTATE: a decision made without a verdict (a refund, a revoke, a lowered limit) needs the history of its
 * message. The STATE is read by a reader and handed to the lane, at its new place if trimming has moved it. What cannot
 * be read just now is asked for again until it can, since the history would be lost with it; a decision that is still
 * open when the engine stops is made again by the next start. Core thread. */
#include "room.h"
#include <stdlib.h>

struct restate {
	struct rdv_job job; /* first */
	struct rdv_strand *strand;
	uint64_t seq;
	uint32_t entry;
};

/* Where the STATE lies now; segment 0: the message has ended or moved on meanwhile, and its entry may be another's. */
static struct rdv_place place_now(const struct restate *r)
{
	const struct rdv_lane *lane = r->strand->lane;
	struct rdv_place now = {0};
	uint32_t entry;

	if (lane)
		now = rdv_lane_state_place(lane, r->entry);
	if (!now.segment || !rdv_lane_owns(lane, RDV_RECORD_STATE, r->seq, now, &entry) || entry != r->entry)
		return (struct rdv_place){0};
	return now;
}

/* The same, if it is worth reading again; segment 0 otherwise. */
static struct rdv_place again_at(const struct rdv_engine *e, const struct rdv_read *read, struct rdv_place now)
{
	if (e->failed || e->stopping)
		return (struct rdv_place){0};
	if (rdv_read_passes(read->status))
		return now;
	if (read->status == REDRIVE_NOT_FOUND &&
	    (now.segment != read->position.segment || now.offset != read->position.offset))
		return now; /* trimming has moved it */
	return (struct rdv_place){0};
}

static void restate_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct restate *r = (struct restate *)job;
	struct rdv_block *block = job->reads[0].status == REDRIVE_OK ? job->reads[0].block : NULL;
	struct rdv_place now = place_now(r), again = again_at(e, &job->reads[0], now);

	e->reads_open--;
	r->strand->uses--;
	if (again.segment) {
		r->strand->uses++;
		rdv_read_want(&job->reads[0], &again);
		rdv_job_queue(e, job, true);
		return;
	}
	if (now.segment && !e->failed && !rdv_read_passes(job->reads[0].status)) {
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
	r->strand->uses++;
	r->seq = effect->seq;
	r->entry = effect->entry;
	rdv_job_queue(e, &r->job, true);
}
