/* inlet_record.c - what a broker's lane wants durable, collected for the next batch.
 *
 * The journal at the broker holds less than its cache here: a message that ends before it ever had to wait is told by
 * the position alone. So
 *
 *   COUNTERS   only the last of a batch
 *   CLOSE      behind all others of its batch
 *   DONE       of messages that never were in the journal: kept apart; the batch drops those below its position
 *   STATE      its message's BODY goes with it, if it is not there
 *   others     as they are
 *
 * and a message that holds the position back while later ones have ended (a slow call, a key whose head waits) goes
 * into the journal after a second. An offset is settled when it has ended, or when its BODY is among the records;
 * records of one lane become durable in order, so what is settled may be passed. Core thread. */
#include "inlet.h"
#include "../brokers/kafka/entry.h"
#include <stdlib.h>

#define STUCK_AT_ONCE 1024

static void fail(struct rdv_engine *e)
{
	rdv_engine_fail(e, "out of memory");
}

bool rdv_inlet_put(struct rdv_inlet_lane *in, uint8_t type, uint64_t seq, struct rdv_slice payload)
{
	rdv_entry_encode(&in->records, &(struct rdv_source_record){type, seq, payload});
	in->dirty = true;
	return !in->records.failed;
}

void rdv_inlet_note_end(struct rdv_inlet_lane *in, const struct rdv_run *run)
{
	uint64_t end = run->count > UINT64_MAX - run->first ? UINT64_MAX : run->first + run->count;

	if (end > in->done_end)
		in->done_end = end;
}

void rdv_inlet_drop_records(struct rdv_inlet_lane *in)
{
	rdv_buffer_done(&in->records);
	rdv_buffer_done(&in->counters);
	rdv_buffer_init(&in->records, 0);
	rdv_buffer_init(&in->counters, 0);
	in->loose_count = 0;
	in->dirty = false;
}

/* ---- bodies ---- */

struct body_read {
	struct rdv_job job; /* first */
	struct rdv_inlet_lane *lane;
	uint64_t seq;
};

static void put_body(struct rdv_engine *e, struct rdv_inlet_lane *in, uint64_t seq, struct rdv_slice payload)
{
	if (in->stage == RDV_INLET_LOST || in->stage == RDV_INLET_CLOSED)
		return;
	if (!rdv_inlet_put(in, RDV_RECORD_BODY, seq, payload) ||
	    rdv_progress_settle(&in->progress, seq, 1) != REDRIVE_OK)
		fail(e);
}

/* Where the body of a live message lies now; segment 0: it is not live. */
static struct rdv_place body_place(struct rdv_engine *e, const struct rdv_inlet_lane *in, uint64_t seq)
{
	struct rdv_where where;

	if (rdv_lane_where(in->strand->lane, e->now, seq, &where) != REDRIVE_OK)
		return (struct rdv_place){0};
	return where.body;
}

static void ask_body(struct rdv_engine *e, struct body_read *r, const struct rdv_place *place);

static void body_read(struct rdv_engine *e, struct rdv_job *job)
{
	struct body_read *r = (struct body_read *)job;
	struct rdv_read *read = &job->reads[0];
	struct rdv_place now = body_place(e, r->lane, r->seq);
	bool moved = now.segment && (now.segment != read->position.segment || now.offset != read->position.offset);

	e->reads_open--;
	if (now.segment && !e->failed && r->lane->stage != RDV_INLET_LOST &&
	    (rdv_read_passes(read->status) || (read->status == REDRIVE_NOT_FOUND && moved))) {
		ask_body(e, r, &now);
		return;
	}
	/* A damaged one stays open here, and dies when it is delivered. */
	if (now.segment && read->status == REDRIVE_OK)
		put_body(e, r->lane, r->seq, rdv_block_slice(read->block));
	rdv_block_unref(read->block);
	r->lane->reading--;
	r->lane->strand->uses--;
	free(r);
}

static void ask_body(struct rdv_engine *e, struct body_read *r, const struct rdv_place *place)
{
	rdv_read_want(&r->job.reads[0], place);
	r->job.done = body_read;
	rdv_job_queue(e, &r->job, true);
}

/* The message itself goes into the journal, now or when it has been read. */
static void add_body(struct rdv_engine *e, struct rdv_inlet_lane *in, uint64_t seq)
{
	struct rdv_place place = body_place(e, in, seq);
	struct rdv_recent *recent;
	struct rdv_slice bytes;
	struct body_read *r;

	if (!place.segment)
		return;
	bytes = rdv_recent_find(e, &place, &recent);
	if (bytes.size) {
		put_body(e, in, seq, bytes);
		return;
	}
	r = calloc(1, sizeof *r);
	if (!r) {
		fail(e);
		return;
	}
	r->lane = in;
	r->seq = seq;
	in->reading++;
	in->strand->uses++;
	ask_body(e, r, &place);
}

/* ---- records ---- */

static bool add_loose(struct rdv_inlet_lane *in, uint64_t seq, enum rdv_state outcome)
{
	struct rdv_run *last = in->loose_count ? &in->loose[in->loose_count - 1] : NULL;

	if (last && last->outcome == outcome && last->first + last->count == seq) {
		last->count++;
		return true;
	}
	if (in->loose_count == in->loose_capacity) {
		size_t capacity = in->loose_capacity ? 2 * in->loose_capacity : 256;
		struct rdv_run *grown = realloc(in->loose, capacity * sizeof *grown);

		if (!grown)
			return false;
		in->loose = grown;
		in->loose_capacity = capacity;
	}
	in->loose[in->loose_count++] = (struct rdv_run){seq, 1, outcome};
	return true;
}

static bool put_runs(struct rdv_inlet_lane *in, const struct rdv_run *run)
{
	struct rdv_buffer bytes;
	bool good;

	rdv_inlet_note_end(in, run);
	rdv_buffer_init(&bytes, 0);
	rdv_runs_encode(run, 1, &bytes);
	good = !bytes.failed && rdv_inlet_put(in, RDV_RECORD_DONE, 0, rdv_buffer_as_slice(&bytes));
	rdv_buffer_done(&bytes);
	return good;
}

static bool take_run(struct rdv_inlet_lane *in, const struct rdv_run *run)
{
	bool good = true;

	for (uint64_t seq = run->first; good && seq - run->first < run->count; seq++) {
		const struct rdv_run one = {seq, 1, run->outcome};

		if (rdv_progress_is_open(&in->progress, seq))
			good = add_loose(in, seq, run->outcome) &&
			       rdv_progress_settle(&in->progress, seq, 1) == REDRIVE_OK;
		else
			good = put_runs(in, &one);
	}
	return good;
}

static bool take_done(struct rdv_inlet_lane *in, struct rdv_slice payload)
{
	struct rdv_reader r = rdv_runs_begin(payload);
	struct rdv_run run;
	bool good = true;

	while (good && rdv_runs_next(&r, &run))
		good = take_run(in, &run);
	in->dirty = true;
	return good;
}

void rdv_inlet_record(struct rdv_engine *e, struct rdv_strand *s, const struct rdv_effect *effect,
		      struct rdv_slice payload)
{
	struct rdv_inlet_lane *in = s->inlet;
	bool good;

	if (in->stage == RDV_INLET_LOST || in->stage == RDV_INLET_CLOSED || in->retiring)
		return;
	if (effect->record.type == RDV_RECORD_COUNTERS) {
		rdv_buffer_clear(&in->counters);
		rdv_buffer_slice(&in->counters, payload);
		good = !in->counters.failed;
		in->dirty = true;
	} else if (effect->record.type == RDV_RECORD_DONE) {
		good = take_done(in, payload);
	} else if (effect->record.type == RDV_RECORD_CLOSE) {
		in->ends = in->dirty = good = true;
	} else {
		good = rdv_inlet_put(in, (uint8_t)effect->record.type, effect->record.record_seq, payload);
		if (good && effect->record.type == RDV_RECORD_STATE &&
		    rdv_progress_is_open(&in->progress, effect->record.record_seq))
			add_body(e, in, effect->record.record_seq);
	}
	if (!good)
		fail(e);
}

/* ---- back-pressure ---- */

static void set_paused(struct rdv_inlet_lane *in, bool on)
{
	if (in->paused == on || !in->source)
		return;
	in->paused = on;
	in->inlet->source->ops->take(in->inlet->source, in->source, !on);
}

static bool is_full(const struct rdv_inlet_lane *in, bool already)
{
	unsigned share = already ? 2 : 1; /* until half of it is gone */

	if (in->progress.open >= RDV_INLET_WINDOW / share || in->live_bytes >= RDV_INLET_LIVE_BYTES / share)
		return true;
	return in->full_key && rdv_lane_held_of_key(in->strand->lane, in->full_key) >= RDV_HELD_MAX / share;
}

static void review_room(struct rdv_inlet_lane *in)
{
	bool full = is_full(in, in->paused);

	if (!full)
		in->full_key = 0;
	set_paused(in, full);
}

bool rdv_inlet_arrive(struct rdv_engine *e, struct rdv_strand *s, const struct rdv_published *m)
{
	struct rdv_inlet_lane *in = s->inlet;
	bool fresh = false;

	if (in->stage == RDV_INLET_FOLDING || in->stage == RDV_INLET_LOST)
		return false;
	if (rdv_progress_arrive(&in->progress, m->seq, &fresh) == REDRIVE_NO_MEMORY)
		fail(e);
	if (!fresh)
		return false;
	if (m->key_hash && s->route->options.lane.order == RDV_ORDER_KEY &&
	    rdv_lane_held_of_key(s->lane, m->key_hash) >= RDV_HELD_MAX)
		in->full_key = m->key_hash;
	if (!in->paused)
		review_room(in);
	return true;
}

void rdv_inlet_count_live(struct rdv_strand *s, int64_t bytes)
{
	s->inlet->live_bytes += (uint64_t)bytes;
}

/* ---- what holds the position back ---- */

/* Something behind the position has ended or is in the journal, or there is no room for more. */
static bool is_held_back(const struct rdv_inlet_lane *in)
{
	return in->progress.open && (in->paused || in->progress.next - in->progress.position > in->progress.open);
}

void rdv_inlet_settle_stuck(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	uint64_t at = in->progress.position;

	if (in->paused)
		review_room(in);
	if (at != in->stuck_at) {
		in->stuck_at = at;
		in->stuck_ms = e->now.mono.ms;
		return;
	}
	if (e->now.mono.ms - in->stuck_ms < RDV_INLET_STUCK_MS || in->reading || !is_held_back(in) ||
	    in->live_bytes >= RDV_INLET_LIVE_BYTES)
		return;
	for (int i = 0; i < STUCK_AT_ONCE && at != UINT64_MAX; i++) {
		at = rdv_progress_next_open(&in->progress, at);
		if (at != UINT64_MAX)
			add_body(e, in, at++);
	}
	in->stuck_ms = e->now.mono.ms; /* at once again, if it moves */
}

/* ---- letters ---- */

enum redrive_status rdv_inlet_letter(struct rdv_engine *e, struct rdv_strand *s, struct rdv_block *envelope,
				     struct rdv_block *body)
{
	struct rdv_inlet_lane *in = s->inlet;
	struct rdv_inlet_letters *list = &in->inlet->waiting;

	if (in->stage == RDV_INLET_LOST || in->stage == RDV_INLET_CLOSED || e->failed)
		return REDRIVE_CLOSED;
	if (list->count == list->capacity) {
		size_t capacity = list->capacity ? 2 * list->capacity : 64;
		struct rdv_inlet_letter *grown = realloc(list->items, capacity * sizeof *grown);

		if (!grown)
			return REDRIVE_NO_MEMORY;
		list->items = grown;
		list->capacity = capacity;
	}
	list->items[list->count++] = (struct rdv_inlet_letter){in, envelope, body};
	in->dirty = true;
	return REDRIVE_OK;
}
