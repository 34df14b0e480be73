/* lost.c - the tail is damaged: what is still owned in it, after all that could be read was appended again.
 *
 *   calls that are open ── their bodies are in memory ──▶ appended again from there
 *   then the lanes      ── see lane_lost.c            ──▶ letters with reason damaged, histories as memory knows them
 *   then once more after a while, until nobody owns anything there: letters are being stored, calls end
 *
 * Only then the segment goes, and its file is kept for people. In slices, since there may be millions of messages to
 * look at. A crash at any point leaves the segment where it is. Core thread. */
#include "lost.h"

#define SLICE 8192u /* messages looked at in one turn */
#define SLICE_OF_LANE 8u
#define AGAIN_MS 200

struct rescue {
	struct rdv_engine *engine;
	struct rdv_lost *lost;
};

/* The call has the body; its lane may have it at another place by now, or have let go of it. */
static void rescue_body(void *ctx, struct rdv_flight *f)
{
	const struct rescue *r = ctx;
	struct rdv_place place = {0};

	if (f->strand->lane && !f->request)
		place = rdv_lane_body_place(f->strand->lane, f->entry);
	if (!place.segment || place.segment != r->lost->segment || f->call.payload.size != place.length)
		return;
	rdv_trim_keep_body(r->engine, f->strand->feed,
			   &(struct rdv_frame){.type = RDV_RECORD_BODY,
					       .hint_len = RDV_BODY_HINT,
					       .stream = f->strand->feed->stream,
					       .seq = f->call.offset,
					       .length = place.length,
					       .payload = f->call.payload,
					       .position = {place.segment, place.offset}});
}

static void begin(struct rdv_engine *e, struct rdv_lost *lost)
{
	lost->passing = true;
	lost->block = 0;
	lost->strand = e->strands;
	lost->entry = 0;
}

/* One slice of the lanes; true: all were looked at. */
static bool lose_in_lanes(struct rdv_engine *e, struct rdv_lost *lost)
{
	uint32_t budget = SLICE;

	while (lost->strand && budget >= SLICE_OF_LANE && e->effects->arena.size <= RDV_TURN_BYTES) {
		struct rdv_strand *s = lost->strand;

		budget -= SLICE_OF_LANE;
		if (s->lane) { /* it may have been discarded since the last slice */
			rdv_strand_nudge(e, s);
			if (!rdv_lane_lose(s->lane, e->now, lost->segment, &lost->entry, &budget, &lost->losses,
					   e->effects))
				break;
		}
		lost->strand = s->next;
		lost->entry = 0;
	}
	rdv_effects_run(e);
	return !lost->strand;
}

enum rdv_lost_step rdv_lost_step(struct rdv_engine *e, struct rdv_lost *lost)
{
	struct rescue r = {e, lost};
	struct rdv_log_space space;

	rdv_log_space(e->log, &space);
	if (!space.tail_live)
		return RDV_LOST_SETTLED;
	if (!lost->passing && e->now.mono.ms < lost->again_ms)
		return RDV_LOST_WAITS;
	if (!lost->passing)
		begin(e, lost);
	if (rdv_flight_each_of(e, lost->block, rescue_body, &r)) {
		lost->block++;
		rdv_effects_run(e);
		return RDV_LOST_GOES_ON;
	}
	if (!lose_in_lanes(e, lost))
		return RDV_LOST_GOES_ON;
	lost->passing = false;
	lost->again_ms = e->now.mono.ms + AGAIN_MS;
	return RDV_LOST_WAITS;
}

void rdv_lost_tell(struct rdv_engine *e, const struct rdv_lost *lost)
{
	atomic_fetch_add(&e->damaged_segments, 1);
	rdv_engine_say(e, 0,
		       "segment %u of the journal was damaged and is set aside as %016x.damaged: %llu messages ended "
		       "as damaged, %llu lost the history of their attempts",
		       lost->segment, lost->segment, (unsigned long long)lost->losses.bodies,
		       (unsigned long long)lost->losses.histories);
}
