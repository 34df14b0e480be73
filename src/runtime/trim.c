/* trim.c - the tail of the log goes: what still lives there is appended again, then the segment is dropped.
 *
 *   core: tail wanted → maintenance thread: scans it in pieces → core: live frames appended again
 *                     → ... → singles rewritten → drop
 *
 * The maintenance thread also does the log's own file work (filling, hints, recycling). A piece that waits for the core
 * holds the scan back, so at most one is in memory. A BODY that one lane still owns would come back to life in the
 * lanes that have finished it: those write their DONE again in the same batch, behind it. Whether a segment had live
 * records or not, the single records (LANE, COUNTERS, gates, TOPIC, publish ids, marks) that may lie in it are re-made
 * before it goes, in slices over many turns: there may be millions of keys and ids. Invariant: one tail at a time;
 * nothing is dropped before what replaces it is durable (the log sees to that by the ticket), nor looked at while
 * records of a discarded lane are still being counted off, or those of a folded one are not counted yet. What cannot be
 * read does not end the scan: lost.c. */
#include "lost.h"
#include <stdlib.h>

#define PIECE_BYTES (1u << 20)
#define LOOK_MS 100
#define IDLE_MS 50
#define TRIES_MAX 20u      /* that the device fails to give a segment, */
#define TRY_AGAIN_WAITS 45 /* so many waits for an unreadable message apart: 45 s */
#define SLICE 8192u        /* keys, ids and requests looked at in one turn */
#define SLICE_OF_LANE 8u   /* what a lane itself counts for */

enum trim_stage { TRIM_IDLE, TRIM_SCAN, TRIM_PIECE, TRIM_END, TRIM_FAILED };

struct rdv_trim {
	pthread_mutex_t mutex;
	pthread_cond_t change;
	enum trim_stage stage;
	uint32_t segment;
	struct rdv_position from;
	uint32_t next;           /* where the scan goes on; 0 = the end */
	struct rdv_block *block; /* owns; PIECE */
	int64_t look_ms;         /* core: when to look at the space again */
	uint32_t dropped;        /* the last segment that was given up */
	uint32_t failed;         /* the last one that could not be read at first, */
	unsigned failures;       /* and how often the device failed to give it; core, but while a piece is scanned */
	struct rdv_lost lost;    /* likewise */
	/* core: how far the singles were rewritten */
	bool rewriting;
	struct rdv_strand *strand; /* the next one */
	struct rdv_rewrite lane;   /* of it */
};

/* ---- maintenance thread ---- */

static void wait_change(struct rdv_trim *t, int ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_nsec += ms * 1000000l;
	at.tv_sec += at.tv_nsec / 1000000000;
	at.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&t->change, &t->mutex, &at);
}

/* What cannot be read is damaged. A device may recover: it is asked again for a quarter of an hour. */
static bool is_lost(struct rdv_trim *t, enum redrive_status status)
{
	if (status == REDRIVE_IO && t->failures < TRIES_MAX) {
		t->failures++;
		return false;
	}
	return status == REDRIVE_IO || status == REDRIVE_CORRUPT || status == REDRIVE_NOT_FOUND;
}

static void scan_piece(struct rdv_engine *e, struct rdv_trim *t)
{
	struct rdv_block *block = NULL;
	uint32_t next = 0;
	struct rdv_position from = t->from;
	enum redrive_status status;
	bool lost;

	pthread_mutex_unlock(&t->mutex);
	status = rdv_log_scan(e->log, from, PIECE_BYTES, &block, &next);
	lost = is_lost(t, status);
	if (lost)
		status = rdv_log_skip(e->log, from, &next);
	pthread_mutex_lock(&t->mutex);
	t->lost.damaged |= lost;
	t->block = block;
	t->next = next;
	t->stage = status == REDRIVE_OK ? TRIM_PIECE : TRIM_FAILED;
	rdv_engine_wake(e);
}

static void *maintain(void *arg)
{
	struct rdv_engine *e = arg;
	struct rdv_trim *t = e->trim;
	struct rdv_error error = {0};
	bool told = false;

	pthread_setname_np(pthread_self(), "rdv-maintain");
	while (!atomic_load(&e->maintenance_stop)) {
		bool did = false;
		enum redrive_status status = rdv_log_maintain(e->log, &did, &error);

		if (status != REDRIVE_OK && !told)
			rdv_engine_say(e, 1, "file work of the journal: %s", error.text);
		told = status != REDRIVE_OK;
		pthread_mutex_lock(&t->mutex);
		if (t->stage == TRIM_SCAN)
			scan_piece(e, t);
		else if ((!did || told) && !atomic_load(&e->maintenance_stop))
			wait_change(t, IDLE_MS);
		pthread_mutex_unlock(&t->mutex);
	}
	return NULL;
}

enum redrive_status rdv_trim_start(struct rdv_engine *e, struct rdv_error *error)
{
	pthread_condattr_t monotonic;
	int failed;

	e->trim = calloc(1, sizeof *e->trim);
	if (!e->trim)
		return REDRIVE_NO_MEMORY;
	pthread_mutex_init(&e->trim->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* a clock set back must not make it sleep on */
	pthread_cond_init(&e->trim->change, &monotonic);
	pthread_condattr_destroy(&monotonic);
	failed = pthread_create(&e->maintenance, NULL, maintain, e);
	if (failed)
		return rdv_error_errno(error, failed, "start the maintenance thread");
	e->maintenance_started = true;
	return REDRIVE_OK;
}

void rdv_trim_stop(struct rdv_engine *e)
{
	if (!e->trim)
		return;
	atomic_store(&e->maintenance_stop, true);
	pthread_mutex_lock(&e->trim->mutex);
	pthread_cond_broadcast(&e->trim->change);
	pthread_mutex_unlock(&e->trim->mutex);
	if (e->maintenance_started)
		pthread_join(e->maintenance, NULL);
	rdv_block_unref(e->trim->block);
	pthread_cond_destroy(&e->trim->change);
	pthread_mutex_destroy(&e->trim->mutex);
	free(e->trim);
	free(e->raw);
	e->trim = NULL;
	e->raw = NULL;
	e->raw_capacity = e->raw_count = 0;
}

/* ---- core thread ---- */

static void add_raw(struct rdv_engine *e, const struct rdv_frame *frame)
{
	if (e->raw_count == e->raw_capacity) {
		size_t capacity = e->raw_capacity ? 2 * e->raw_capacity : 256;
		struct rdv_frame *grown = realloc(e->raw, capacity * sizeof *grown);

		if (!grown) {
			e->effects->failed = true;
			return;
		}
		e->raw = grown;
		e->raw_capacity = capacity;
	}
	e->raw[e->raw_count++] = *frame;
}

static struct rdv_place place_of(const struct rdv_frame *frame)
{
	return (struct rdv_place){frame->position.segment, frame->position.offset, frame->length};
}

/* Lanes that finished the message say so again behind it. */
void rdv_trim_keep_body(struct rdv_engine *e, struct rdv_feed *feed, const struct rdv_frame *frame)
{
	uint32_t entry;
	bool owned = false;

	for (size_t i = 0; i < feed->count && !owned; i++)
		owned = feed->strands[i]->lane && !feed->strands[i]->discarded &&
			rdv_lane_owns(feed->strands[i]->lane, RDV_RECORD_BODY, frame->seq, place_of(frame), &entry);
	if (!owned)
		return;
	add_raw(e, frame);
	for (size_t i = 0; i < feed->count; i++) {
		struct rdv_strand *s = feed->strands[i];

		if (!s->lane || frame->seq < s->start || frame->seq >= s->end ||
		    rdv_lane_owns(s->lane, RDV_RECORD_BODY, frame->seq, place_of(frame), &entry))
			continue;
		rdv_strand_touch(e, s);
		rdv_lane_done_again(s->lane, frame->seq, e->effects);
	}
}

static void keep_state(struct rdv_engine *e, const struct rdv_frame *frame)
{
	struct rdv_strand *s = frame->stream < e->stream_capacity ? e->streams[frame->stream].strand : NULL;
	uint32_t entry;

	if (s && s->lane && !s->discarded &&
	    rdv_lane_owns(s->lane, RDV_RECORD_STATE, frame->seq, place_of(frame), &entry))
		add_raw(e, frame);
}

/* A frame of e->raw was appended again at `to`. */
void rdv_trim_moved(struct rdv_engine *e, const struct rdv_frame *from, struct rdv_position to)
{
	struct rdv_place old = place_of(from), place = {to.segment, to.offset, from->length};
	struct rdv_feed *feed = e->streams[from->stream].feed;
	struct rdv_strand *one = e->streams[from->stream].strand;
	uint32_t entry;
	size_t count = from->type == RDV_RECORD_BODY && feed ? feed->count : 1;

	for (size_t i = 0; i < count; i++) {
		struct rdv_strand *s = from->type == RDV_RECORD_BODY && feed ? feed->strands[i] : one;

		if (!s || !s->lane || !rdv_lane_owns(s->lane, from->type, from->seq, old, &entry))
			continue;
		rdv_lane_moved(s->lane, from->type, from->seq, place);
		rdv_log_live(e->log, old.segment, -1, -(int64_t)from->length);
		rdv_log_live(e->log, place.segment, 1, from->length);
	}
}

static void take_piece(struct rdv_engine *e, struct rdv_trim *t)
{
	struct rdv_frame frame;
	size_t cursor = 0;

	while (rdv_log_scan_next(e->log, t->block, t->from, &cursor, &frame)) {
		struct rdv_feed *feed = frame.stream < e->stream_capacity ? e->streams[frame.stream].feed : NULL;

		if (frame.type == RDV_RECORD_BODY && feed)
			rdv_trim_keep_body(e, feed, &frame);
		else if (frame.type == RDV_RECORD_STATE)
			keep_state(e, &frame);
	}
	rdv_effects_run(e);
}

static enum redrive_status rewrite_marks(struct rdv_engine *e, uint32_t segment)
{
	enum redrive_status status = REDRIVE_OK;

	for (struct rdv_strand *s = e->strands; s && status == REDRIVE_OK; s = s->next)
		if (s->lane && s->mark_segment && s->mark_segment <= segment)
			status = rdv_strand_mark(e, s);
	return status;
}

/* One slice; true: all lanes are through. */
static bool rewrite_lanes(struct rdv_engine *e, struct rdv_trim *t)
{
	uint32_t budget = SLICE;

	while (t->strand && budget >= SLICE_OF_LANE && e->effects->arena.size <= RDV_TURN_BYTES) {
		struct rdv_strand *s = t->strand;

		budget -= SLICE_OF_LANE;
		if (s->lane) { /* it may have been discarded since the last slice */
			rdv_strand_touch(e, s);
			if (!rdv_lane_rewrite(s->lane, t->segment, &t->lane, &budget, e->effects))
				break;
		}
		t->strand = s->next;
		t->lane = (struct rdv_rewrite){0};
	}
	rdv_effects_run(e);
	return !t->strand;
}

/* One slice; true: the tail was dropped, or it cannot be now. */
static bool finish_tail(struct rdv_engine *e, struct rdv_trim *t)
{
	uint32_t budget = SLICE;
	uint64_t ticket = 0;
	bool all = false;
	enum redrive_status status;

	if (!t->rewriting) {
		t->rewriting = true;
		t->strand = e->strands;
		t->lane = (struct rdv_rewrite){0};
	}
	if (t->strand && !rewrite_lanes(e, t))
		return e->failed;
	status = rdv_topics_rewrite(e->topics, t->segment, e->now.wall, &budget, &all, &ticket);
	if (ticket > e->last_ticket)
		e->last_ticket = ticket;
	if (status == REDRIVE_OK && !all)
		return false;
	if (status == REDRIVE_OK)
		status = rewrite_marks(e, t->segment);
	if (status == REDRIVE_OK && !e->failed) {
		if (t->lost.damaged) {
			rdv_log_set_aside(e->log);
			rdv_lost_tell(e, &t->lost);
		}
		rdv_log_drop_tail(e->log, e->last_ticket);
		t->dropped = t->segment;
	}
	return true;
}

void rdv_trim_again(struct rdv_engine *e)
{
	if (e->trim)
		e->trim->rewriting = false;
}

static void look(struct rdv_engine *e, struct rdv_trim *t)
{
	struct rdv_log_space space;

	if (e->now.mono.ms < t->look_ms || e->uncounting) /* what is folded is not counted yet */
		return;
	t->look_ms = e->now.mono.ms + LOOK_MS;
	rdv_log_space(e->log, &space);
	if (space.tail >= e->walked || space.tail >= space.head || space.tail <= t->dropped ||
	    (space.tail_live && !space.wants_trim))
		return;
	t->look_ms = 0;
	if (t->failed != space.tail)
		t->failures = 0;
	pthread_mutex_lock(&t->mutex);
	t->segment = space.tail;
	t->lost = (struct rdv_lost){.segment = space.tail};
	t->from = (struct rdv_position){space.tail, 0};
	t->stage = space.tail_live ? TRIM_SCAN : TRIM_END;
	pthread_cond_signal(&t->change);
	pthread_mutex_unlock(&t->mutex);
}

/* Said once a segment. */
static void try_later(struct rdv_engine *e, struct rdv_trim *t)
{
	if (t->failed != t->segment)
		rdv_engine_say(e, 0, "the journal's segment %u cannot be read for trimming: it is tried again",
			       t->segment);
	t->failed = t->segment;
	t->look_ms = e->now.mono.ms + TRY_AGAIN_WAITS * e->options.unread_wait_ms;
}

bool rdv_trim_step(struct rdv_engine *e)
{
	struct rdv_trim *t = e->trim;
	enum rdv_lost_step step;
	enum trim_stage stage;

	if (!t || e->failed || e->stopping)
		return false;
	pthread_mutex_lock(&t->mutex);
	stage = t->stage;
	pthread_mutex_unlock(&t->mutex);
	if (stage == TRIM_IDLE)
		look(e, t);
	if (stage == TRIM_PIECE) {
		take_piece(e, t);
		rdv_block_unref(t->block);
		t->block = NULL;
		pthread_mutex_lock(&t->mutex);
		t->from.offset = t->next;
		t->stage = t->next ? TRIM_SCAN : TRIM_END;
		pthread_cond_signal(&t->change);
		stage = t->stage;
		pthread_mutex_unlock(&t->mutex);
	}
	if (stage == TRIM_FAILED)
		try_later(e, t);
	else if (stage != TRIM_END || e->uncounting)
		return false;
	else if (t->lost.damaged && (step = rdv_lost_step(e, &t->lost)) != RDV_LOST_SETTLED)
		return step == RDV_LOST_GOES_ON;
	else if (!finish_tail(e, t))
		return true;
	t->rewriting = false;
	pthread_mutex_lock(&t->mutex);
	t->stage = TRIM_IDLE;
	pthread_mutex_unlock(&t->mutex);
	return false;
}
