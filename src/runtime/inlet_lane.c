/* inlet_lane.c - a partition of a broker, from its assignment to its end.
 *
 *   source's thread: open → fold … → opened → messages …
 *   core thread:     FOLDING ────────→ OPEN → CLOSING → CLOSED → LOST → its calls end → given back
 *
 * Each time a partition is assigned it gets streams of its own, so that what is left of an earlier owner's time in the
 * journal's cache can never be taken for its own. Messages go into the cache as publishers' do; a journal's records are
 * appended there, too, and folded by the core, piece by piece, so that other lanes go on. While a lane is folded, or
 * counted off, no segment of the cache is given up. A lane that is lost takes the verdicts of its calls and tells
 * nobody; it goes with the last of them. */
#include "inlet.h"
#include <stdlib.h>

#define AT_ONCE 16384u     /* records that are counted off in one turn */
#define WAIT_FOR_ROOM 1000 /* ms, in the source's thread */

/* ---- open ---- */

struct opening {
	struct rdv_inlet *inlet;
	const struct rdv_source_partition *partition;
	struct rdv_inlet_lane *lane;
	enum redrive_status status;
};

static struct rdv_strand *make_strand(struct rdv_engine *e, struct rdv_route *r, struct rdv_topic *topic,
				      const struct rdv_source_partition *p)
{
	uint32_t first = rdv_topics_new_streams(e->topics, RDV_INLET_STREAMS);
	struct rdv_feed *feed;
	struct rdv_strand *s;

	if (!first)
		return NULL;
	rdv_topic_foreign_stream(topic, p->partition, first);
	feed = rdv_feed_new(e, topic, p->partition);
	s = feed ? rdv_strand_new(e, feed, r, first + RDV_INLET_STREAMS - 1, 0, p->epoch) : NULL;
	if (!s || rdv_strand_promise(e, s) != REDRIVE_OK ||
	    rdv_dispatcher_add(r->seat->unit->dispatcher, s->lane) != REDRIVE_OK ||
	    rdv_strand_attach(e, s) != REDRIVE_OK) {
		rdv_strand_free(s);
		rdv_feed_free(feed);
		return NULL;
	}
	feed->next_offset = UINT64_MAX; /* nothing is given out before it is open */
	rdv_feed_link(e, feed);
	e->streams[first + 1].feed = feed;
	return s;
}

static void do_open(struct rdv_engine *e, void *ctx)
{
	struct opening *o = ctx;
	struct rdv_inlet *in = o->inlet;
	struct rdv_inlet_lane *l;
	struct rdv_topic *topic;
	struct rdv_error error = {0};

	o->status = REDRIVE_REFUSED;
	if (o->partition->partition >= RDV_PARTITIONS_MAX) {
		rdv_engine_say(e, 0, "route %s: topic '%s' has more than %u partitions", in->route->info->name,
			       o->partition->topic, RDV_PARTITIONS_MAX);
		return;
	}
	o->status = rdv_topic_foreign(e->topics, o->partition->topic, o->partition->key_secret, &topic, &error);
	if (o->status != REDRIVE_OK) {
		rdv_engine_say(e, 0, "route %s: %s", in->route->info->name, error.text);
		return;
	}
	l = calloc(1, sizeof *l);
	o->status = REDRIVE_NO_MEMORY;
	if (!l)
		return;
	l->inlet = in;
	l->source = o->partition->source;
	l->strand = make_strand(e, in->route, topic, o->partition);
	if (!l->strand) {
		free(l);
		return;
	}
	if (rdv_strand_mark(e, l->strand) != REDRIVE_OK) /* or the next start would not know whose its records are */
		rdv_engine_fail(e, "the journal takes no record");
	rdv_buffer_init(&l->records, 0);
	rdv_buffer_init(&l->counters, 0);
	rdv_buffer_init(&l->sent, 0);
	rdv_progress_init(&l->progress, 0);
	l->starting_end = &l->starting;
	l->strand->inlet = l;
	l->holds_tail = true;
	e->uncounting++;
	l->next = in->lanes;
	in->lanes = l;
	o->lane = l;
	o->status = REDRIVE_OK;
}

static enum redrive_status open_lane(void *ctx, const struct rdv_source_partition *p, void **lane)
{
	struct opening o = {.inlet = ctx, .partition = p};
	enum redrive_status status = rdv_engine_call(o.inlet->engine, do_open, &o);

	*lane = o.lane;
	return status == REDRIVE_OK ? o.status : status;
}

/* ---- fold ---- */

struct folding {
	struct rdv_inlet_lane *lane;
	const struct rdv_source_record *records;
	struct rdv_place *places;
	size_t count;
	enum redrive_status status;
};

static bool is_kept(const struct rdv_source_record *r)
{
	return r->type != RDV_SOURCE_POSITION;
}

static enum redrive_status note_done(struct rdv_inlet_lane *l, struct rdv_slice payload)
{
	struct rdv_reader r = rdv_runs_begin(payload);
	struct rdv_run run;

	while (rdv_runs_next(&r, &run)) {
		if (l->ahead_count == l->ahead_capacity) {
			size_t capacity = l->ahead_capacity ? 2 * l->ahead_capacity : 256;
			struct rdv_run *grown = realloc(l->ahead, capacity * sizeof *grown);

			if (!grown)
				return REDRIVE_NO_MEMORY;
			l->ahead = grown;
			l->ahead_capacity = capacity;
		}
		l->ahead[l->ahead_count++] = run;
		rdv_inlet_note_end(l, &run);
	}
	return r.failed ? REDRIVE_CORRUPT : REDRIVE_OK;
}

static void do_fold(struct rdv_engine *e, void *ctx)
{
	struct folding *f = ctx;
	struct rdv_inlet_lane *l = f->lane;

	(void)e;
	for (size_t i = 0; i < f->count && f->status == REDRIVE_OK; i++) {
		const struct rdv_source_record *r = &f->records[i];

		l->journal_bytes += r->payload.size;
		if (!is_kept(r))
			continue;
		if (r->type == 0 || r->type >= RDV_RECORD_MAX)
			f->status = REDRIVE_VERSION;
		else
			f->status = rdv_lane_fold(l->strand->lane, (enum rdv_record)r->type, r->seq, r->payload,
						  f->places[i]);
		if (f->status == REDRIVE_OK && r->type == RDV_RECORD_DONE)
			f->status = note_done(l, r->payload);
	}
}

/* Into the cache. */
static enum redrive_status keep_records(struct rdv_engine *e, struct folding *f)
{
	size_t bytes = 0;
	uint32_t kept = 0;
	uint64_t ticket;
	enum redrive_status status;

	for (size_t i = 0; i < f->count; i++) {
		bytes += is_kept(&f->records[i]) ? f->records[i].payload.size : 0;
		kept += is_kept(&f->records[i]);
	}
	if (!kept)
		return REDRIVE_OK;
	status = rdv_log_begin(e->log, RDV_LOG_OUTCOME, bytes, kept, 0);
	for (size_t i = 0; i < f->count && status == REDRIVE_OK; i++) {
		const struct rdv_source_record *r = &f->records[i];
		bool body = r->type == RDV_RECORD_BODY;
		struct rdv_frame frame = {
			.type = r->type,
			.hint_len = body                           ? RDV_BODY_HINT
				    : r->payload.size < UINT16_MAX ? r->payload.size
								   : UINT16_MAX,
			.stream = f->lane->strand->feed->stream + (body ? 1 : RDV_INLET_STREAMS - 1),
			.seq = r->seq,
			.length = (uint32_t)r->payload.size,
		};
		uint8_t *to;

		if (!is_kept(r))
			continue;
		to = body && frame.length < RDV_BODY_HINT ? NULL : rdv_log_put(e->log, &frame);
		if (!to) {
			rdv_log_cancel(e->log);
			return REDRIVE_CORRUPT;
		}
		if (frame.length)
			memcpy(to, r->payload.data, frame.length);
		f->places[i] = (struct rdv_place){frame.position.segment, frame.position.offset, frame.length};
	}
	if (status == REDRIVE_OK)
		rdv_log_end(e->log, false, &ticket);
	return status;
}

static enum redrive_status fold(void *ctx, void *lane, const struct rdv_source_record *records, size_t count)
{
	const struct rdv_inlet *in = ctx;
	struct folding f = {.lane = lane, .records = records, .count = count};
	enum redrive_status status = REDRIVE_NO_MEMORY;

	f.places = calloc(count + 1, sizeof *f.places);
	if (f.places)
		status = keep_records(in->engine, &f);
	if (status == REDRIVE_OK)
		status = rdv_engine_call(in->engine, do_fold, &f);
	free(f.places);
	return status == REDRIVE_OK ? f.status : status;
}

/* ---- opened ---- */

struct opened {
	struct rdv_inlet_lane *lane;
	uint64_t position;
	bool clean;
	enum redrive_status status;
};

static void settle_body(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct opened *o = ctx;

	(void)place;
	if (type == RDV_RECORD_BODY && o->status == REDRIVE_OK)
		o->status = rdv_progress_settle(&o->lane->progress, seq, 1);
}

/* What the journal says of messages that the source will give out again. */
static void settle_ahead(struct opened *o)
{
	struct rdv_inlet_lane *l = o->lane;

	rdv_progress_skip(&l->progress, o->position);
	for (size_t i = 0; i < l->ahead_count && o->status == REDRIVE_OK; i++)
		o->status = rdv_progress_settle(&l->progress, l->ahead[i].first, l->ahead[i].count);
	rdv_lane_each_live(l->strand->lane, settle_body, o);
	free(l->ahead);
	l->ahead = NULL;
	l->ahead_count = l->ahead_capacity = 0;
}

static void count_recovered(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct rdv_inlet_lane *l = ctx;

	(void)type, (void)seq;
	l->live_bytes += place.length;
}

static void do_opened(struct rdv_engine *e, void *ctx)
{
	struct opened *o = ctx;
	struct rdv_inlet_lane *l = o->lane;
	struct rdv_strand *s = l->strand;

	if (l->stage != RDV_INLET_FOLDING) {
		o->status = REDRIVE_CLOSED;
		return;
	}
	settle_ahead(o);
	if (o->status != REDRIVE_OK)
		return;
	l->stage = RDV_INLET_OPEN;
	l->position_sent = l->stuck_at = o->position;
	l->stuck_ms = e->now.mono.ms;
	s->feed->next_offset = o->position;
	rdv_topic_foreign_next(s->feed->topic, s->feed->partition, o->position);
	rdv_lane_each_live(s->lane, count_recovered, l);
	rdv_loop_open_lane(e, s, o->position, !o->clean);
	if (l->pause != RDV_INLET_AS_IT_WAS)
		rdv_lane_pause(s->lane, l->pause == RDV_INLET_PAUSE, e->effects);
	e->uncounting--;
	l->holds_tail = false;
	rdv_strand_nudge(e, s);
}

static enum redrive_status opened(void *ctx, void *lane, uint64_t position, bool clean)
{
	const struct rdv_inlet *in = ctx;
	struct opened o = {.lane = lane, .position = position, .clean = clean};
	enum redrive_status status = rdv_engine_call(in->engine, do_opened, &o);

	return status == REDRIVE_OK ? o.status : status;
}

/* ---- messages: the source's thread ---- */

static struct rdv_body body_of(const struct rdv_topic *topic, const struct rdv_source_message *m)
{
	struct rdv_body b = {
		.flags = (uint8_t)((m->has_key ? 0 : RDV_BODY_NULL_KEY) | (m->tombstone ? RDV_BODY_TOMBSTONE : 0)),
		.key_hash = m->has_key ? rdv_topic_key_hash(topic, m->key) : 0,
		.produced_at = m->produced_at,
		.key = m->key,
		.headers = m->headers,
		.body = m->value,
	};
	uint64_t count;
	struct rdv_reader r = rdv_headers_begin(m->headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&r, &h)) {
		if (rdv_slice_is_nocase(h.name, "content-type"))
			b.content_type = h.value;
		else if (rdv_slice_is_nocase(h.name, "traceparent"))
			b.traceparent = h.value;
	}
	return b;
}

static enum redrive_status messages(void *ctx, void *lane, const struct rdv_source_message *m, size_t count)
{
	struct rdv_engine *e = ((struct rdv_inlet *)ctx)->engine;
	const struct rdv_inlet_lane *l = lane;
	struct rdv_feed *feed = l->strand->feed;
	struct rdv_body *bodies = calloc(count, sizeof *bodies);
	size_t bytes = 0;
	uint64_t ticket;
	enum redrive_status status;

	if (!bodies)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < count; i++) {
		bodies[i] = body_of(feed->topic, &m[i]);
		bytes += rdv_body_size(&bodies[i]);
	}
	status = rdv_log_begin(e->log, RDV_LOG_PUBLISH, bytes, (uint32_t)count, WAIT_FOR_ROOM);
	for (size_t i = 0; i < count && status == REDRIVE_OK; i++) {
		struct rdv_frame frame = {
			.type = RDV_RECORD_BODY,
			.hint_len = RDV_BODY_HINT,
			.stream = feed->stream,
			.seq = m[i].offset,
			.length = (uint32_t)rdv_body_size(&bodies[i]),
		};
		uint8_t *to = rdv_log_put(e->log, &frame);

		if (!to) {
			rdv_log_cancel(e->log);
			status = REDRIVE_TOO_LARGE;
		} else {
			rdv_body_encode(&bodies[i], to);
		}
	}
	free(bodies);
	if (status != REDRIVE_OK)
		return status;
	rdv_log_end(e->log, false, &ticket);
	rdv_topic_foreign_next(feed->topic, feed->partition, m[count - 1].offset + 1);
	return REDRIVE_OK;
}

/* ---- the end ---- */

static void post(struct rdv_inlet *in, struct rdv_inlet_event event)
{
	pthread_mutex_lock(&in->mutex);
	if (in->event_count == in->event_capacity) {
		size_t capacity = in->event_capacity ? 2 * in->event_capacity : 64;
		struct rdv_inlet_event *grown = realloc(in->events, capacity * sizeof *grown);

		if (!grown)
			abort(); /* a lane that goes on after it is lost would be worse */
		in->events = grown;
		in->event_capacity = capacity;
	}
	in->events[in->event_count++] = event;
	pthread_mutex_unlock(&in->mutex);
	rdv_engine_wake(in->engine);
}

static void tell_revoke(void *ctx, void *const lanes[], size_t count, int64_t within_ms)
{
	for (size_t i = 0; i < count; i++)
		post(ctx, (struct rdv_inlet_event){RDV_INLET_REVOKE, lanes[i], within_ms});
}

static void tell_lost(void *ctx, void *lane)
{
	post(ctx, (struct rdv_inlet_event){RDV_INLET_TAKEN_AWAY, lane, 0});
}

static void tell_gone(void *ctx, void *lane)
{
	post(ctx, (struct rdv_inlet_event){RDV_INLET_GONE, lane, 0});
}

const struct rdv_source_sink rdv_inlet_sink = {
	.open = open_lane,
	.fold = fold,
	.opened = opened,
	.messages = messages,
	.revoke = tell_revoke,
	.lost = tell_lost,
	.gone = tell_gone,
};

/* ---- core thread ---- */

static void take_starting_back(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	while (in->starting) {
		struct rdv_flight *f = in->starting;

		in->starting = f->wait_next;
		rdv_flight_take_back(e, f, 0);
	}
	in->starting_end = &in->starting;
}

void rdv_inlets_abandon(struct rdv_engine *e)
{
	for (struct rdv_route *r = e->routes; r; r = r->next)
		for (struct rdv_inlet_lane *l = r->inlet ? r->inlet->lanes : NULL; l; l = l->next)
			take_starting_back(e, l);
}

bool rdv_inlet_may_start(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_inlet_lane *in = f->strand->inlet;

	if (in->stage != RDV_INLET_OPEN || e->stopping) {
		rdv_flight_take_back(e, f, 0);
		return false;
	}
	if (f->ticket <= in->durable_ticket)
		return true;
	f->stage = RDV_FLIGHT_SYNC;
	f->wait_next = NULL;
	*in->starting_end = f;
	in->starting_end = &f->wait_next;
	in->inlet->hurry = true;
	return false;
}

void rdv_inlet_revoke(struct rdv_engine *e, struct rdv_inlet_lane *in, int64_t within_ms)
{
	int64_t by = rdv_ms_add(e->now.mono.ms, within_ms);

	if (in->stage == RDV_INLET_CLOSING && by < in->close_ms)
		in->close_ms = by;
	if (in->stage != RDV_INLET_OPEN) /* a lane that is still folded has nothing to say */
		return;
	in->stage = RDV_INLET_CLOSING;
	in->close_ms = by;
	rdv_lane_stop(in->strand->lane);
	take_starting_back(e, in);
	rdv_offers_recall(e, in->inlet->route->outlet); /* what pullers were only offered need not be waited for */
}

void rdv_inlet_lost(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	if (in->stage == RDV_INLET_LOST)
		return;
	if (in->dirty || in->writing)
		in->inlet->lost_ticket = e->last_ticket;
	in->stage = RDV_INLET_LOST;
	take_starting_back(e, in);
	rdv_lane_stop(in->strand->lane);
	rdv_inlet_drop_records(in);
	rdv_inlet_drop_letters(in);
}

void rdv_inlet_moved(struct rdv_strand *s)
{
	if (s->inlet->stage != RDV_INLET_FOLDING && s->inlet->stage != RDV_INLET_OPEN)
		rdv_lane_stop(s->lane);
}

bool rdv_strand_serves(const struct rdv_strand *s)
{
	return s->lane && (!s->inlet || s->inlet->stage == RDV_INLET_OPEN || s->inlet->stage == RDV_INLET_CLOSING);
}

bool rdv_inlet_pauses_later(struct rdv_strand *s, bool paused)
{
	if (rdv_strand_serves(s))
		return false;
	s->inlet->pause = paused ? RDV_INLET_PAUSE : RDV_INLET_RESUME;
	return true;
}

static void close_lane(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	rdv_strand_touch(e, in->strand);
	rdv_lane_close(in->strand->lane, e->effects);
	rdv_effects_run(e);
	in->stage = RDV_INLET_CLOSED;
	in->dirty = true;
}

static void uncount(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct rdv_engine *e = ctx;

	(void)type, (void)seq;
	rdv_log_live(e->log, place.segment, -1, -(int64_t)place.length);
}

/* Nobody can come back to it: it is taken out of all tables. Its records are counted off first, in slices. */
static void begin_retiring(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	struct rdv_strand *s = in->strand;
	bool was_open = !in->holds_tail;

	in->retiring = true;
	if (!in->holds_tail)
		e->uncounting++;
	in->holds_tail = true;
	rdv_dispatcher_remove(in->inlet->route->seat->unit->dispatcher, s->lane);
	rdv_lane_move_dedupe(s->lane, NULL, e->now, e->effects);
	rdv_effects_run(e);
	rdv_unread_drop(e, s);
	s->discarded = true;
	if (rdv_strand_mark(e, s) != REDRIVE_OK)
		rdv_engine_fail(e, "the journal takes no record");
	in->retire_at = was_open ? 0 : UINT32_MAX; /* what was only folded was never counted */
}

static void unlink_strand(struct rdv_engine *e, struct rdv_strand *s)
{
	struct rdv_strand **at = &e->strands;
	struct rdv_feed **feed = &e->feeds;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	while (*feed != s->feed)
		feed = &(*feed)->next;
	*feed = s->feed->next;
	if (rdv_topic_stream(s->feed->topic, s->feed->partition) == s->feed->stream)
		rdv_topic_foreign_stream(s->feed->topic, s->feed->partition, 0);
	for (uint32_t i = 0; i < RDV_INLET_STREAMS; i++)
		e->streams[s->feed->stream + i] = (struct rdv_stream_use){0};
}

static void retire(struct rdv_engine *e, struct rdv_inlet_lane *in)
{
	struct rdv_strand *s = in->strand;

	if (in->retire_at != UINT32_MAX)
		rdv_lane_each_live_slice(s->lane, &in->retire_at, AT_ONCE, uncount, e);
	if (in->retire_at && in->retire_at != UINT32_MAX)
		return;
	rdv_effects_run(e); /* nothing may speak of it any more */
	e->uncounting--;
	rdv_trim_again(e); /* it may stand at this strand */
	unlink_strand(e, s);
	rdv_inlet_lane_free(in);
	rdv_strand_rest(e, s);
}

void rdv_inlet_lanes_step(struct rdv_engine *e, struct rdv_inlet *inlet)
{
	struct rdv_inlet_lane *next;

	if (e->failed)
		return;
	for (struct rdv_inlet_lane *in = inlet->lanes; in; in = next) {
		next = in->next;
		if (in->stage == RDV_INLET_OPEN)
			rdv_inlet_settle_stuck(e, in);
		if (!inlet->sent)
			rdv_inlet_checkpoint_step(e, in);
		if (in->stage == RDV_INLET_CLOSING && (!in->strand->uses || e->now.mono.ms >= in->close_ms))
			close_lane(e, in);
		if (in->stage != RDV_INLET_LOST || in->source || in->strand->uses || inlet->sent || e->late)
			continue;
		if (!in->retiring)
			begin_retiring(e, in);
		else
			retire(e, in);
	}
}
