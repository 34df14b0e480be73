/* flight_body.c - where a call finds its body.
 *
 *   a recent durable buffer, or a piece of the log that was read as a whole (bodies.c)
 *   what was read ahead, since the message was to be due within a second (cache.h)
 *   a piece that is being read, or is worth reading since many calls ask for its region of the log
 *   a read of its own
 *
 * Nor is read ahead what lies in a region that many will ask for: when they are due its piece is read for all of them.
 * Core thread.
 */
#include "room.h"

/* ---- read ahead ---- */

static void ahead_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_ahead *a = job->owner;
	struct rdv_flight *f = a->waiting;

	e->reads_open--;
	a->reading = false;
	a->waiting = NULL;
	a->block = job->reads[0].status == REDRIVE_OK ? job->reads[0].block : NULL;
	if (!f) {
		if (!a->block)
			rdv_cache_take(&e->cache, a); /* dispatching reads for itself, and judges */
		return;
	}
	f->job.reads[0] = job->reads[0];
	f->job.reads[0].block = rdv_cache_take(&e->cache, a);
	f->job.work = NULL;
	e->reads_open++;
	rdv_flight_read_done(e, &f->job);
}

void rdv_flight_fetch(struct rdv_engine *e, const struct rdv_effect *effect)
{
	const struct rdv_place *place = &effect->dispatch.body;
	struct rdv_ahead *a;
	uint64_t lowest;

	if (!place->segment || !place->length || rdv_regions_ask(&e->fetch_regions, place, &lowest) > RDV_REGION_WORTH)
		return;
	a = rdv_cache_add(&e->cache, place, e->now.mono);
	if (!a)
		return;
	a->job.done = ahead_done;
	a->job.owner = a;
	rdv_read_want(&a->job.reads[0], place);
	rdv_job_queue(e, &a->job, false);
}

/* ---- the body ---- */

static bool wants_state(const struct rdv_flight *f)
{
	return f->state.segment && !f->history && f->route->options.handler != RDV_HANDLER_CALLBACK;
}

/* The body, if memory has it; else, if it is being read ahead, *reading. */
static bool body_at_hand(struct rdv_engine *e, struct rdv_flight *f, struct rdv_ahead **reading)
{
	struct rdv_slice bytes = rdv_recent_find(e, &f->body, &f->pin);
	struct rdv_ahead *a;

	if (bytes.data) {
		f->pin->pins++;
		f->call.payload = bytes;
		return true;
	}
	f->pin = NULL;
	a = e->cache.count ? rdv_cache_find(&e->cache, &f->body) : NULL;
	if (!a || a->reading) {
		*reading = a;
		return false;
	}
	rdv_flight_use(f, rdv_cache_take(&e->cache, a));
	return true;
}

static void fetch_replay(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_request request;

	if (!rdv_lane_request(f->strand->lane, f->request, &request)) {
		rdv_flight_damaged(e, f);
		return;
	}
	memcpy(f->letter, request.letter, sizeof f->letter);
	f->generation = request.generation;
	rdv_base32_128(f->letter, f->letter_id);
	rdv_slice_to_text(request.plan_name, f->replay, sizeof f->replay);
	f->call.replay = f->replay;
	f->job.reads[0] = f->job.reads[1] = (struct rdv_read){0};
	rdv_flight_read(e, f, rdv_letter_fetch);
}

static void read_alone(struct rdv_engine *e, struct rdv_flight *f, bool body, bool state)
{
	f->job.reads[0] = f->job.reads[1] = (struct rdv_read){0};
	if (body)
		rdv_read_want(&f->job.reads[0], &f->body);
	if (state)
		rdv_read_want(&f->job.reads[1], &f->state);
	rdv_flight_read(e, f, NULL);
}

void rdv_flight_get_body(struct rdv_engine *e, struct rdv_flight *f)
{
	bool state = wants_state(f), body;
	struct rdv_ahead *a = NULL;

	if (f->request) {
		fetch_replay(e, f);
		return;
	}
	body = body_at_hand(e, f, &a);
	if (body && !state) {
		rdv_flight_ready(e, f);
	} else if (a && !a->waiting && !state) {
		f->job.reads[1].length = 0;
		f->job.owner = f;
		a->waiting = f;
	} else if (state || a || !rdv_piece_await(e, f)) {
		read_alone(e, f, !body, state);
	}
}

/* What is not in it, since the piece ended before or could not be read, is read for itself, and judged. */
void rdv_flight_piece(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_ahead *a;

	if (body_at_hand(e, f, &a))
		rdv_flight_ready(e, f);
	else
		read_alone(e, f, true, false);
}
