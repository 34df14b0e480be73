/* inlet_checkpoint.c - a lane's journal at the broker is kept short: what lives is written again, then all before goes.
 *
 *   journal   |-- old records ------------|-- checkpoint, mixed with new records --|-- new ...
 *             forgotten when the checkpoint is durable ^
 *
 * A checkpoint begins when the journal has grown to twice what lives in it (and 16 MiB). It writes what the lane has
 * beside its messages (gates, requests, keys, pause), then each message that stands in the journal, BODY and STATE, in
 * slices between the batches of the day. What changes meanwhile writes itself, behind the checkpoint's begin; so each
 * thing that lives has its last record there. What has ended ahead of the position stands in the old records alone:
 * they stay until the position has passed it. A record that is read to be written again is looked at once more before
 * it is put: one that was replaced or has ended must not come back. Core thread. */
#include "inlet.h"
#include <stdlib.h>

#define AT_LEAST (16ull << 20)
#define SLICE 512u /* entries of a turn */
#define SLICE_OF_RECORDS 8192u
#define READS_MAX 1024u

struct again {
	struct rdv_job job; /* first */
	struct rdv_inlet_lane *lane;
	enum rdv_record type;
	uint64_t seq;
};

static bool ended(const struct rdv_inlet_lane *in)
{
	return in->stage != RDV_INLET_OPEN && in->stage != RDV_INLET_CLOSING;
}

/* Where the message's record lies now; segment 0: it has none. */
static struct rdv_place place_now(struct rdv_engine *e, const struct rdv_inlet_lane *in, enum rdv_record type,
				  uint64_t seq)
{
	struct rdv_where where;

	if (rdv_lane_where(in->strand->lane, e->now, seq, &where) != REDRIVE_OK)
		return (struct rdv_place){0};
	return type == RDV_RECORD_BODY ? where.body : where.state_place;
}

static bool same(const struct rdv_place *a, const struct rdv_read *b)
{
	return a->segment == b->position.segment && a->offset == b->position.offset;
}

static void came_back(struct rdv_engine *e, struct rdv_job *job)
{
	struct again *a = (struct again *)job;
	struct rdv_inlet_lane *in = a->lane;
	struct rdv_place now = place_now(e, in, a->type, a->seq);
	bool good = true;

	e->reads_open--;
	if (now.segment && !e->failed && !ended(in) &&
	    (!same(&now, &job->reads[0]) || rdv_read_passes(job->reads[0].status))) {
		rdv_block_unref(job->reads[0].block);
		rdv_read_want(&job->reads[0], &now);
		rdv_job_queue(e, job, false);
		return;
	}
	if (now.segment && !ended(in) && job->reads[0].status == REDRIVE_OK)
		good = rdv_inlet_put(in, (uint8_t)a->type, a->seq, rdv_block_slice(job->reads[0].block));
	rdv_block_unref(job->reads[0].block);
	in->checkpoint.reading--;
	in->strand->uses--;
	free(a);
	if (!good)
		rdv_engine_fail(e, "out of memory");
}

static void ask(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct rdv_inlet_lane *in = ctx;
	struct rdv_engine *e = in->inlet->engine;
	struct again *a;

	if (rdv_progress_is_open(&in->progress, seq))
		return; /* not in the journal */
	a = calloc(1, sizeof *a);
	if (!a) {
		rdv_engine_fail(e, "out of memory");
		return;
	}
	a->lane = in;
	a->type = type;
	a->seq = seq;
	rdv_read_want(&a->job.reads[0], &place);
	a->job.done = came_back;
	in->checkpoint.reading++;
	in->strand->uses++;
	rdv_job_queue(e, &a->job, false);
}

/* Effects of the lane: they are recorded as any others, and so come into the next batch. */
static void write_records(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	uint32_t budget = SLICE_OF_RECORDS;

	rdv_strand_touch(e, in->strand);
	if (rdv_lane_rewrite(in->strand->lane, UINT32_MAX, &in->checkpoint.rewrite, &budget, e->effects))
		in->checkpoint.stage = RDV_CHECKPOINT_MESSAGES;
}

static void write_messages(struct rdv_inlet_lane *in)
{
	rdv_lane_each_live_slice(in->strand->lane, &in->checkpoint.at, SLICE, ask, in);
	if (!in->checkpoint.at)
		in->checkpoint.stage = RDV_CHECKPOINT_READING;
}

void rdv_inlet_checkpoint_step(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	struct rdv_inlet_checkpoint *c = &in->checkpoint;

	if (ended(in) || in->records.size >= RDV_INLET_BATCH_BYTES || c->reading >= READS_MAX)
		return;
	if (c->stage == RDV_CHECKPOINT_NONE && in->journal_bytes >= AT_LEAST &&
	    in->journal_bytes >= 2 * in->live_bytes) {
		*c = (struct rdv_inlet_checkpoint){.stage = RDV_CHECKPOINT_BEGIN, .first = -1};
		in->dirty = true; /* it begins with the next batch */
	} else if (c->stage == RDV_CHECKPOINT_RECORDS) {
		write_records(e, in);
	} else if (c->stage == RDV_CHECKPOINT_MESSAGES) {
		write_messages(in);
	} else if (c->stage == RDV_CHECKPOINT_READING && !c->reading && in->progress.position >= c->settled) {
		c->stage = RDV_CHECKPOINT_WRITTEN;
		in->dirty = true;
	}
}

bool rdv_inlet_checkpoint_begins(const struct rdv_inlet_lane *in)
{
	return in->checkpoint.stage == RDV_CHECKPOINT_BEGIN;
}

/* The lane's share of a batch was taken: its stage says what that batch is to the checkpoint. */
void rdv_inlet_checkpoint_sealed(struct rdv_inlet_lane *in)
{
	if (in->checkpoint.stage == RDV_CHECKPOINT_WRITTEN)
		in->checkpoint.stage = RDV_CHECKPOINT_SENT;
}

void rdv_inlet_checkpoint_durable(struct rdv_inlet_lane *in, int64_t first)
{
	struct rdv_inlet_checkpoint *c = &in->checkpoint;

	in->journal_bytes += in->sent.size;
	if (c->stage == RDV_CHECKPOINT_BEGIN && first >= 0) {
		c->first = first;
		c->settled = in->done_end;
		in->journal_bytes = 0;
		c->stage = RDV_CHECKPOINT_RECORDS;
	} else if (c->stage == RDV_CHECKPOINT_SENT) {
		in->inlet->source->ops->forget(in->inlet->source, in->source, c->first);
		c->stage = RDV_CHECKPOINT_NONE;
	}
}
