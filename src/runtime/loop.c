/* loop.c - the core thread: one turn after the other on a libuv loop.
 *
 * A turn: what became durable, what came back (verdicts, bodies, stored letters, commands), what is due, then one new
 * buffer of published messages; so that what is under way ends before new work begins. Work per turn is bounded.
 * Between turns the thread sleeps until somebody wakes it or something is due, but reads the time at least every
 * second, so that a suspended machine finds its overdue work. Nothing is dispatched while records have not become
 * durable for two seconds (what could not be recorded must not be done), and never again when the log has failed: then
 * open calls are awaited up to the drain time without recording them, and `ended` is called. Draining: no new calls;
 * those open may end; the rest is cut; then CLOSE is the last record. */
#include "inlets.h"
#include <stdlib.h>

/* ---- durable ---- */

static void see_durable(struct rdv_engine *e)
{
	uint64_t durable = rdv_log_durable_ticket(e->log);
	size_t kept = 0;

	if (durable == e->durable)
		return;
	e->durable = durable;
	if (e->oldest_ticket && e->oldest_ticket <= durable) {
		e->oldest_ticket = e->last_ticket > durable ? e->last_ticket : 0;
		e->oldest_ms = e->now.mono.ms;
	}
	for (size_t i = 0; i < e->unsynced_count; i++) {
		struct rdv_strand *s = e->unsynced[i];

		if (s->lane) {
			rdv_lane_durable(s->lane, e->now, durable, e->effects);
			rdv_strand_nudge(e, s);
		}
		s->unsynced = s->lane && s->last_ticket > durable;
		if (s->unsynced)
			e->unsynced[kept++] = s;
	}
	e->unsynced_count = kept;
	rdv_flight_synced(e);
}

/* ---- new messages ---- */

struct live_run { /* messages of one segment, counted together */
	uint32_t segment;
	int32_t count;
	int64_t bytes;
};

static void count_live(struct rdv_engine *e, struct live_run *run, uint32_t segment, uint32_t length)
{
	if (run->segment != segment) {
		if (run->count)
			rdv_log_live(e->log, run->segment, run->count, run->bytes);
		*run = (struct live_run){.segment = segment};
	}
	run->count++;
	run->bytes += length;
}

static void publish_to(struct rdv_engine *e, struct rdv_strand *s, const struct rdv_published *m)
{
	enum redrive_status status = rdv_lane_published(s->lane, e->now, m, e->effects);

	if (status != REDRIVE_OK) {
		rdv_engine_fail(e, redrive_status_text(status));
		return;
	}
	rdv_strand_nudge(e, s);
	if (s->route && m->key_hash && !s->inlet && s->route->options.lane.order == RDV_ORDER_KEY)
		rdv_admit_note(e, s, m->key_hash);
}

static void take_body(struct rdv_engine *e, const struct rdv_frame *frame, struct live_run *run)
{
	struct rdv_feed *feed = frame->stream < e->stream_capacity ? e->streams[frame->stream].feed : NULL;
	struct rdv_published m = {.seq = frame->seq,
				  .body = {frame->position.segment, frame->position.offset, frame->length}};
	struct rdv_body hint;

	if (!feed || frame->seq < feed->next_offset) /* nobody's, or re-appended by trimming */
		return;
	if (frame->stream != feed->stream) /* of a journal that was folded: its lane has it */
		return;
	feed->next_offset = frame->seq + 1;
	if (rdv_body_decode_hint(frame->payload, &hint) != REDRIVE_OK)
		return;
	m.key_hash = hint.key_hash;
	m.not_before = hint.not_before;
	for (size_t i = 0; i < feed->count; i++) {
		struct rdv_strand *s = feed->strands[i];

		if (!s->lane || frame->seq < s->start || frame->seq >= s->end)
			continue;
		if (s->inlet && !rdv_inlet_arrive(e, s, &m))
			continue;
		count_live(e, run, m.body.segment, m.body.length);
		if (s->inlet)
			rdv_inlet_count_live(s, m.body.length);
		publish_to(e, s, &m);
	}
}

/* true: bodies are in it. */
static bool walk(struct rdv_engine *e, struct rdv_log_buffer *buffer)
{
	struct live_run run = {0};
	struct rdv_frame frame = {0};
	size_t cursor = 0;
	bool bodies = false;

	while (rdv_log_buffer_next(buffer, &cursor, &frame)) {
		if (frame.type == RDV_RECORD_BODY) {
			take_body(e, &frame, &run);
			bodies = true;
		}
	}
	e->walked = frame.position.segment;
	count_live(e, &run, 0, 0); /* the last run */
	return bodies;
}

static bool take_buffer(struct rdv_engine *e)
{
	struct rdv_log_buffer *buffer;

	if (e->reads_open > RDV_READS_MAX && !e->stopping)
		return false;
	buffer = rdv_writer_take(&e->writer);
	if (!buffer)
		return false;
	if (!e->failed && walk(e, buffer) && rdv_recent_add(e, buffer))
		buffer = NULL;
	rdv_log_buffer_unref(buffer);
	return true;
}

void rdv_engine_catch_up(struct rdv_engine *e)
{
	for (unsigned n = 0; n < RDV_CATCH_UP && take_buffer(e); n++)
		;
}

/* ---- what came back ---- */

/* The call after the next, and the next one's message, which its call names: on their way meanwhile. */
static void expect(const struct rdv_call *next)
{
	const struct rdv_flight *f = next->owner;

	if (next->next)
		rdv_flight_expect((const struct rdv_flight *)next->next);
	if (f->strand->lane)
		rdv_lane_expect(f->strand->lane, f->entry);
}

static bool take_completed(struct rdv_engine *e)
{
	struct rdv_call *list, **end;
	unsigned done = 0;

	pthread_mutex_lock(&e->inbox);
	list = e->completed;
	end = e->completed_end;
	e->completed = NULL;
	e->completed_end = &e->completed;
	pthread_mutex_unlock(&e->inbox);
	while (list && done++ < RDV_TURN_CALLS) {
		struct rdv_call *next = list->next;

		if (next)
			expect(next);
		rdv_flight_book(e, list->owner);
		if (e->effects->arena.size > RDV_TURN_BYTES)
			rdv_effects_run(e);
		list = next;
	}
	if (!list)
		return false;
	pthread_mutex_lock(&e->inbox); /* the rest goes in front again */
	*end = e->completed;
	if (e->completed_end == &e->completed)
		e->completed_end = end;
	e->completed = list;
	pthread_mutex_unlock(&e->inbox);
	return true;
}

static void take_returned(struct rdv_engine *e)
{
	struct rdv_job *job = rdv_readers_take(&e->readers);

	while (job) {
		struct rdv_job *next = job->next;

		job->done(e, job);
		if (e->effects->arena.size > RDV_TURN_BYTES)
			rdv_effects_run(e);
		job = next;
	}
}

static void take_commands(struct rdv_engine *e)
{
	struct rdv_command *list;

	pthread_mutex_lock(&e->inbox);
	list = e->commands;
	e->commands = NULL;
	e->commands_end = &e->commands;
	pthread_mutex_unlock(&e->inbox);
	while (list) {
		struct rdv_command *next = list->next;

		list->fn(e, list->ctx);
		pthread_mutex_lock(&e->inbox);
		list->done = true;
		pthread_cond_broadcast(&e->answered);
		pthread_mutex_unlock(&e->inbox);
		list = next;
	}
}

/* ---- what is due ---- */

static bool may_dispatch(const struct rdv_engine *e)
{
	if (e->failed || e->stopping)
		return false;
	return !e->oldest_ticket || e->now.mono.ms - e->oldest_ms < RDV_UNRECORDED_MS;
}

static bool run_units(struct rdv_engine *e)
{
	bool more = false;

	if (!may_dispatch(e))
		return false;
	for (struct rdv_unit *u = e->units; u; u = u->next) {
		if (u->wake.ms > e->now.mono.ms)
			continue;
		u->wake = rdv_dispatcher_run(u->dispatcher, e->now, RDV_TURN_CALLS, e->effects);
		more = more || u->wake.ms <= e->now.mono.ms;
		if (e->effects->count)
			rdv_effects_run(e);
	}
	return more;
}

static void expire_leases_of(struct rdv_engine *e, struct rdv_route *routes)
{
	for (struct rdv_route *r = routes; r; r = r->next) {
		int64_t next;

		if (r->options.handler != RDV_HANDLER_LEASE || !r->open_calls || r->lease_ms > e->now.mono.ms)
			continue;
		next = rdv_lease_expire(r->outlet->handler, e->now);
		r->lease_ms = e->now.mono.ms + (next < 0 || next > 100 ? 100 : next < 1 ? 1 : next);
	}
}

static void expire_leases(struct rdv_engine *e)
{
	expire_leases_of(e, e->routes);
	expire_leases_of(e, e->gone);
}

/* ---- the end ---- */

static void cut(struct rdv_outlet *o)
{
	o->handler->ops->cut(o->handler);
}

static void cut_calls(struct rdv_engine *e)
{
	e->cut = true;
	for (struct rdv_route *r = e->routes; r; r = r->next)
		cut(r->outlet);
	for (struct rdv_route *r = e->gone; r; r = r->next)
		cut(r->outlet);
	for (struct rdv_outlet *o = e->old_outlets; o; o = o->next)
		cut(o);
}

static void put_close(struct rdv_engine *e)
{
	struct rdv_frame frame = {.type = RDV_RECORD_CLOSE};
	struct rdv_buffer bytes;

	rdv_buffer_init(&bytes, 0);
	rdv_close_encode(&bytes);
	frame.length = (uint32_t)bytes.size;
	frame.hint_len = (uint16_t)bytes.size;
	if (!bytes.failed && rdv_log_begin(e->log, RDV_LOG_OUTCOME, bytes.size, 1, 0) == REDRIVE_OK) {
		memcpy(rdv_log_put(e->log, &frame), bytes.data, bytes.size);
		rdv_log_end(e->log, true, &e->last_ticket);
	}
	rdv_buffer_done(&bytes);
}

static void close_lanes(struct rdv_engine *e)
{
	rdv_letters_say_left(e);
	if (e->failed)
		return;
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (!s->lane || s->inlet) /* the broker has the truth of those */
			continue;
		rdv_strand_touch(e, s);
		rdv_lane_close(s->lane, e->effects);
	}
	rdv_effects_run(e);
	if (!e->failed)
		put_close(e);
}

void rdv_loop_stop_lanes(struct rdv_engine *e)
{
	for (struct rdv_strand *s = e->strands; s; s = s->next)
		if (s->lane)
			rdv_lane_stop(s->lane);
}

/* Draining or failed: true when the last call has ended. */
static bool wind_down(struct rdv_engine *e)
{
	if (!e->stopping && !e->failed)
		return false;
	if (!e->drain_until) {
		e->drain_until = e->now.mono.ms + e->options.drain_ms;
		rdv_loop_stop_lanes(e);
		rdv_letters_leave(e);
		rdv_inlets_abandon(e);
		for (struct rdv_route *r = e->routes; r; r = r->next)
			rdv_offers_recall(e, r->outlet); /* what pullers were only offered need not be waited for */
	}
	if (e->failed)
		rdv_flight_abandon(e);
	if (e->open_flights && e->now.mono.ms >= e->drain_until && !e->cut)
		cut_calls(e);
	if (e->open_flights || e->reads_open || e->late ||
	    (e->letters_open && !e->failed && e->now.mono.ms < e->drain_until))
		return false;
	if (e->failed && !e->ended) {
		e->ended = true;
		if (e->options.ended)
			e->options.ended(e->options.ended_ctx, REDRIVE_FAILED);
	}
	return e->stopping;
}

/* ---- turns ---- */

/* The two clocks are read one after the other and cut to milliseconds each, so that their difference moves by one; a
 * due time, which is kept on one and told on the other, must not. Only a clock that was set counts as having moved. */
static void read_clock(struct rdv_engine *e)
{
	int64_t apart;

	e->now = rdv_now();
	apart = e->now.wall.ms - e->now.mono.ms;
	if (apart > e->clocks_apart + 1 || apart < e->clocks_apart - 1)
		e->clocks_apart = apart;
	e->now.wall.ms = e->now.mono.ms + e->clocks_apart;
}

/* true: there is more to do at once. */
static bool turn(struct rdv_engine *e)
{
	bool more;

	read_clock(e);
	if (atomic_load_explicit(&e->log_failed, memory_order_relaxed) && !e->failed)
		rdv_engine_fail(e, "a write or sync failed");
	see_durable(e);
	more = take_completed(e);
	take_returned(e);
	rdv_leases_step(e);
	rdv_letter_answers(e);
	take_commands(e);
	rdv_inlets_take(e);
	rdv_effects_run(e);
	more = run_units(e) || more;
	more = take_buffer(e) || more;
	rdv_effects_run(e);
	rdv_leases_settle(e);
	rdv_inlets_seal(e);
	rdv_inlets_settle(e);
	rdv_letter_retry_due(e);
	more = rdv_trim_step(e) || more;
	rdv_flight_submit(e);
	expire_leases(e);
	rdv_admit_review(e);
	rdv_unread_review(e);
	rdv_engine_reap(e);
	return more;
}

static int64_t next_lease(const struct rdv_route *routes, int64_t until)
{
	for (const struct rdv_route *r = routes; r; r = r->next)
		if (r->options.handler == RDV_HANDLER_LEASE && r->open_calls && r->lease_ms < until)
			until = r->lease_ms;
	return until;
}

static int64_t sleep_ms(const struct rdv_engine *e)
{
	int64_t until = next_lease(e->gone, next_lease(e->routes, e->now.mono.ms + RDV_TICK_MS));

	for (const struct rdv_unit *u = e->units; u && may_dispatch(e); u = u->next)
		if (u->wake.ms < until)
			until = u->wake.ms;
	if (e->drain_until && !e->cut && e->drain_until < until)
		until = e->drain_until;
	until = rdv_inlets_due(e, until);
	return until > e->now.mono.ms ? until - e->now.mono.ms : 0;
}

static void on_timer(uv_timer_t *timer);

static void work(struct rdv_engine *e)
{
	bool more = true;

	for (int i = 0; i < 64 && more; i++)
		more = turn(e);
	if (wind_down(e)) {
		close_lanes(e);
		uv_stop(&e->loop);
		return;
	}
	uv_update_time(&e->loop);
	uv_timer_start(&e->timer, on_timer, more ? 0 : (uint64_t)sleep_ms(e), 0);
}

static void on_timer(uv_timer_t *timer)
{
	work(timer->data);
}

static void on_wake(uv_async_t *wake)
{
	work(wake->data);
}

static void count_recovered(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct rdv_engine *e = ctx;

	(void)type, (void)seq;
	rdv_log_live(e->log, place.segment, 1, place.length);
}

void rdv_loop_open_lane(struct rdv_engine *e, struct rdv_strand *s, uint64_t next, bool unclean)
{
	if (next > s->end)
		next = s->end;
	if (next < s->start)
		next = s->start;
	rdv_strand_touch(e, s);
	rdv_lane_each_live(s->lane, count_recovered, e); /* what opening replaces is counted off again */
	rdv_lane_opened(s->lane, e->now, next, unclean, e->effects);
	if (!s->route)
		rdv_lane_stop(s->lane);
	if (e->effects->arena.size > RDV_TURN_BYTES)
		rdv_effects_run(e);
}

enum redrive_status rdv_loop_open_lanes(struct rdv_engine *e, bool unclean)
{
	for (struct rdv_feed *f = e->feeds; f; f = f->next)
		f->next_offset = rdv_topic_next_offset(f->topic, f->partition);
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (!s->route && !s->orphan) { /* for good, whatever routes come later */
			s->orphan = true;
			if (s->end == UINT64_MAX)
				s->end = rdv_topic_next_offset(s->feed->topic, s->feed->partition);
			if (rdv_strand_mark(e, s) != REDRIVE_OK)
				return REDRIVE_FAILED;
		}
		rdv_loop_open_lane(e, s, rdv_topic_next_offset(s->feed->topic, s->feed->partition), unclean);
	}
	rdv_effects_run(e);
	for (struct rdv_strand *s = e->strands; s; s = s->next)
		if (s->route && rdv_dispatcher_add(s->route->seat->unit->dispatcher, s->lane) != REDRIVE_OK)
			return REDRIVE_NO_MEMORY;
	rdv_orphans_tell(e);
	return e->failed ? REDRIVE_FAILED : REDRIVE_OK;
}

static void *run(void *arg)
{
	struct rdv_engine *e = arg;

	pthread_setname_np(pthread_self(), "rdv-core");
	uv_run(&e->loop, UV_RUN_DEFAULT);
	return NULL;
}

enum redrive_status rdv_loop_init(struct rdv_engine *e, struct rdv_error *error)
{
	int failed = uv_loop_init(&e->loop);

	if (failed)
		return rdv_error_set(error, REDRIVE_INTERNAL, "the event loop: %s", uv_strerror(failed));
	e->loop_ready = true;
	uv_async_init(&e->loop, &e->wake, on_wake);
	uv_timer_init(&e->loop, &e->timer);
	e->wake.data = e->timer.data = e;
	uv_timer_start(&e->timer, on_timer, 0, 0);
	return REDRIVE_OK;
}

enum redrive_status rdv_loop_start(struct rdv_engine *e, struct rdv_error *error)
{
	int failed = pthread_create(&e->thread, NULL, run, e);

	if (failed)
		return rdv_error_errno(error, failed, "start the core thread");
	e->thread_started = true;
	return REDRIVE_OK;
}
