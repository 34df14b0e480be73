/* flight.c - one call from DISPATCH to verdict.
 *
 *   DISPATCH → body: recent buffer | read-ahead | a reader → dedupe → STARTED durable? → submit → handler
 *   handler → complete (judged in its thread) → core → history read if the verdict needs it → verdict → free
 *
 * A flight owns its call, a pin on a recent buffer or a block with the body, and a reference to what the route was when
 * it began. Flights are allocated in blocks and reused, last first; their number is bounded by the targets'
 * concurrency. What always holds: each flight ends by exactly one of verdict, damaged, duplicate, taken back. A body
 * that cannot be read now, for want of memory or descriptors, is given back without a charge; only one that is damaged
 * or gone ends as damaged. Core thread, except complete. */
#include "room.h"
#include <stdlib.h>

#define BLOCK_FLIGHTS 256

/* ---- allocation ---- */

static bool more_flights(struct rdv_engine *e)
{
	void **blocks = realloc(e->flight_blocks, (e->flight_block_count + 1) * sizeof *blocks);
	struct rdv_flight *block = calloc(BLOCK_FLIGHTS, sizeof *block);

	if (blocks)
		e->flight_blocks = blocks;
	if (!blocks || !block) {
		free(block);
		return false;
	}
	e->flight_blocks[e->flight_block_count++] = block;
	for (size_t i = BLOCK_FLIGHTS; i-- > 0;) {
		rdv_call_init(&block[i].call);
		block[i].wait_next = e->free_flights;
		e->free_flights = &block[i];
	}
	return true;
}

static struct rdv_flight *take_flight(struct rdv_engine *e)
{
	struct rdv_flight *f;

	if (!e->free_flights && !more_flights(e))
		return NULL;
	f = e->free_flights;
	e->free_flights = f->wait_next;
	f->wait_next = NULL;
	e->open_flights++;
	return f;
}

static void end_flight(struct rdv_engine *e, struct rdv_flight *f)
{
	if (f->pin)
		f->pin->pins--;
	f->pin = NULL;
	rdv_block_unref(f->history);
	f->history = NULL;
	rdv_call_reset(&f->call);
	rdv_buffer_done(&f->scratch);
	rdv_route_info_unref(f->info);
	f->route->open_calls--;
	f->outlet->calls--;
	f->seat->calls--;
	f->seat->unit->wake.ms = 0;
	f->wait_next = e->free_flights;
	e->free_flights = f;
	e->open_flights--;
}

void rdv_flight_free_all(struct rdv_engine *e)
{
	for (size_t i = 0; i < e->flight_block_count; i++)
		free(e->flight_blocks[i]);
	free(e->flight_blocks);
}

/* ---- reading ---- */

static void read_done(struct rdv_engine *e, struct rdv_job *job);

void rdv_read_want(struct rdv_read *read, const struct rdv_place *place)
{
	*read = (struct rdv_read){.position = {place->segment, place->offset}, .length = place->length};
}

void rdv_job_queue(struct rdv_engine *e, struct rdv_job *job, bool urgent)
{
	struct rdv_job_list *list = urgent ? &e->urgent : &e->later;

	e->reads_open++;
	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
}

static void submit_job(struct rdv_engine *e, struct rdv_flight *f, void (*work)(struct rdv_job *job))
{
	f->job.work = work;
	f->job.done = read_done;
	f->job.owner = f;
	rdv_job_queue(e, &f->job, true);
}

static bool wants_state(const struct rdv_flight *f)
{
	return f->state.segment && !f->history && f->route->options.handler != RDV_HANDLER_CALLBACK;
}

/* Where trimming has moved the message's records meanwhile; false: nowhere else. */
static bool look_again(struct rdv_flight *f, bool state)
{
	struct rdv_place *mine = state ? &f->state : &f->body, now;

	if (f->request || !f->strand->lane)
		return false;
	now = state ? rdv_lane_state_place(f->strand->lane, f->entry) : rdv_lane_body_place(f->strand->lane, f->entry);
	if (!now.segment || (now.segment == mine->segment && now.offset == mine->offset))
		return false;
	*mine = now;
	rdv_read_want(&f->job.reads[state], &now);
	return true;
}

/* What ends in between is booked at the target that granted the call, though its route may have left that. */
static void book_where_granted(struct rdv_flight *f)
{
	rdv_lane_granted_by(f->strand->lane, f->seat->unit->target, f->seat->number);
}

static void book_at_home(struct rdv_flight *f)
{
	rdv_lane_granted_by(f->strand->lane, NULL, 0);
}

static void end_damaged(struct rdv_engine *e, struct rdv_flight *f)
{
	book_where_granted(f);
	rdv_lane_damaged(f->strand->lane, e->now, f->entry, f->number, e->effects);
	book_at_home(f);
	rdv_strand_nudge(e, f->strand);
	end_flight(e, f);
}

static void use_body(struct rdv_flight *f, struct rdv_block *block)
{
	f->call.hold = block;
	f->call.payload = rdv_block_slice(block);
}

static void verdict(struct rdv_engine *e, struct rdv_flight *f);
static void conclude(struct rdv_engine *e, struct rdv_flight *f);

/* Nobody was called; it goes out again. */
static void give_back(struct rdv_engine *e, struct rdv_flight *f)
{
	rdv_call_set_transport(&f->call, RDV_TRANSPORT_SHUTDOWN, "the message could not be read now");
	rdv_rules_judge(f->info->rules, f->info->name, &f->call.answer, &f->verdict);
	conclude(e, f);
}

/* Takes over what was read; false: a read goes on or the flight has ended. */
static bool take_reads(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_read *body = &f->job.reads[0], *state = &f->job.reads[1];

	if (body->length) {
		if (body->status == REDRIVE_OK) {
			use_body(f, body->block);
			body->length = 0;
		} else if (body->status == REDRIVE_NOT_FOUND && look_again(f, false)) {
			submit_job(e, f, f->job.work);
			return false;
		} else {
			f->unread = rdv_read_passes(body->status);
			f->damaged = !f->unread;
			body->length = 0;
		}
	}
	if (state->length) {
		if (state->status == REDRIVE_OK) {
			f->history = state->block;
		} else if ((state->status == REDRIVE_NOT_FOUND && look_again(f, true)) ||
			   (rdv_read_passes(state->status) && !e->stopping && !e->failed)) {
			submit_job(e, f, NULL);
			return false;
		}
		state->length = 0; /* a damaged history is none: the counts that matter are the lane's */
	}
	return true;
}

static void read_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_flight *f = job->owner;

	e->reads_open--;
	if (!take_reads(e, f))
		return;
	if (e->failed)
		end_flight(e, f); /* nothing can be recorded */
	else if (f->damaged)
		end_damaged(e, f);
	else if (f->stage == RDV_FLIGHT_HISTORY)
		verdict(e, f);
	else if (f->unread)
		give_back(e, f);
	else
		rdv_flight_ready(e, f);
}

/* ---- dispatch ---- */

static void ahead_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_ahead *a = (struct rdv_ahead *)job;
	struct rdv_flight *f = a->waiting;

	e->reads_open--;
	a->reading = false;
	a->waiting = NULL;
	a->block = job->reads[0].status == REDRIVE_OK ? job->reads[0].block : NULL;
	a->status = job->reads[0].status;
	if (!f) {
		if (!a->block)
			rdv_cache_take(&e->cache, a); /* dispatching reads for itself, and judges */
		return;
	}
	f->job.reads[0] = job->reads[0];
	f->job.reads[0].block = rdv_cache_take(&e->cache, a);
	f->job.work = NULL;
	e->reads_open++;
	read_done(e, &f->job);
}

void rdv_flight_fetch(struct rdv_engine *e, const struct rdv_effect *effect)
{
	const struct rdv_place *place = &effect->dispatch.body;
	struct rdv_ahead *a;

	if (!place->segment || !place->length)
		return;
	a = rdv_cache_add(&e->cache, place);
	if (!a)
		return;
	rdv_read_want(&a->job.reads[0], place);
	a->job.done = ahead_done;
	rdv_job_queue(e, &a->job, false);
}

/* The body, if memory has it. */
static bool body_at_hand(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_slice bytes = rdv_recent_find(e, &f->body, &f->pin);
	struct rdv_ahead *a;

	if (bytes.data) {
		f->pin->pins++;
		f->call.payload = bytes;
		return true;
	}
	f->pin = NULL;
	a = rdv_cache_find(&e->cache, &f->body);
	if (!a || a->reading)
		return false;
	use_body(f, rdv_cache_take(&e->cache, a));
	return true;
}

static void fetch_replay(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_request request;

	if (!rdv_lane_request(f->strand->lane, f->request, &request)) {
		end_damaged(e, f);
		return;
	}
	memcpy(f->letter, request.letter, sizeof f->letter);
	f->generation = request.generation;
	rdv_base32_128(f->letter, f->letter_id);
	rdv_slice_to_text(request.plan_name, f->replay, sizeof f->replay);
	f->call.replay = f->replay;
	f->job.reads[0].length = 0;
	submit_job(e, f, rdv_letter_fetch);
}

static void get_body(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_ahead *a;

	f->job.reads[0] = f->job.reads[1] = (struct rdv_read){0};
	if (f->request) {
		fetch_replay(e, f);
		return;
	}
	if (wants_state(f))
		rdv_read_want(&f->job.reads[1], &f->state);
	if (body_at_hand(e, f)) {
		if (f->job.reads[1].length)
			submit_job(e, f, NULL);
		else
			rdv_flight_ready(e, f);
		return;
	}
	a = rdv_cache_find(&e->cache, &f->body);
	if (a && !a->waiting && !f->job.reads[1].length) {
		f->job.owner = f;
		a->waiting = f;
		return;
	}
	rdv_read_want(&f->job.reads[0], &f->body);
	submit_job(e, f, NULL);
}

void rdv_flight_dispatch(struct rdv_engine *e, const struct rdv_effect *effect)
{
	struct rdv_strand *s = rdv_strand_of(e, effect->lane);
	struct rdv_flight *f = take_flight(e);

	if (!f || !s->route) {
		rdv_engine_fail(e, "out of memory");
		return;
	}
	f->strand = s;
	f->route = s->route;
	f->info = rdv_route_info_ref(s->route->info);
	f->route->open_calls++;
	f->seat = s->route->seat;
	f->seat->calls++;
	f->outlet = s->route->outlet;
	f->outlet->calls++;
	f->body = effect->dispatch.body;
	f->state = effect->dispatch.state;
	f->number = effect->dispatch.call;
	f->request = effect->dispatch.request;
	f->entry = effect->entry;
	f->started = effect->dispatch.started;
	f->ticket = e->last_ticket;
	f->stage = RDV_FLIGHT_BODY;
	f->has_dedupe = f->damaged = f->unread = false;
	f->call.owner = f;
	f->call.id = ++e->call_number;
	f->call.route = f->info->name;
	f->call.topic = f->info->topic;
	f->call.partition = s->feed->partition;
	f->call.offset = effect->seq;
	f->call.attempt = effect->dispatch.attempt;
	f->call.epoch = s->epoch;
	get_body(e, f);
}

/* ---- dedupe ---- */

static void extract_json(struct rdv_job *job)
{
	struct rdv_flight *f = job->owner;
	struct rdv_body body;
	struct rdv_slice key;

	if (rdv_body_decode(f->call.payload, &body) == REDRIVE_OK &&
	    rdv_dedupe_key(&f->info->dedupe, &f->call, &body, &f->scratch, &key))
		f->call.idempotency_key = key;
	f->has_dedupe = true;
}

static void find_dedupe_key(struct rdv_flight *f)
{
	struct rdv_body body;
	struct rdv_slice key;

	f->has_dedupe = true;
	if (rdv_body_decode(f->call.payload, &body) == REDRIVE_OK &&
	    rdv_dedupe_key(&f->info->dedupe, &f->call, &body, &f->scratch, &key))
		f->call.idempotency_key = key;
}

/* true: the call goes on. */
static bool pass_dedupe(struct rdv_engine *e, struct rdv_flight *f)
{
	enum rdv_dedupe_answer answer;

	if (!f->has_dedupe && rdv_dedupe_needs_json(&f->info->dedupe)) {
		f->job.reads[0].length = f->job.reads[1].length = 0;
		submit_job(e, f, extract_json);
		return false;
	}
	if (!f->has_dedupe)
		find_dedupe_key(f);
	if (!f->call.idempotency_key.size)
		return true;
	rdv_strand_touch(e, f->strand);
	book_where_granted(f);
	answer = rdv_lane_dedupe(f->strand->lane, e->now, f->entry, f->number,
				 rdv_topic_id_hash(f->strand->feed->topic, f->call.idempotency_key), e->effects);
	book_at_home(f);
	if (answer == RDV_DEDUPE_PROCEED)
		return true;
	rdv_strand_nudge(e, f->strand);
	end_flight(e, f);
	return false;
}

/* ---- on its way ---- */

static void hand_over(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_route *r = f->route;

	f->stage = RDV_FLIGHT_OUT;
	f->out_ms = e->now.mono.ms;
	if (f->call.payload.size >= RDV_BODY_HINT)
		rdv_histogram_add(&r->metrics.age_seconds,
				  (double)(e->now.wall.ms - (int64_t)rdv_get_u64(f->call.payload.data + 24)) / 1000);
	f->call.next = NULL;
	*f->outlet->submit_end = &f->call;
	f->outlet->submit_end = &f->call.next;
}

static void read_history_facts(struct rdv_flight *f)
{
	struct rdv_message_state *state = f->history ? malloc(sizeof *state) : NULL;

	if (state && rdv_state_decode(rdv_block_slice(f->history), state) == REDRIVE_OK)
		f->call.first_failed_at = state->first_failed_at;
	free(state);
}

void rdv_flight_abandon(struct rdv_engine *e)
{
	while (e->sync_first) {
		struct rdv_flight *f = e->sync_first;

		e->sync_first = f->wait_next;
		end_flight(e, f);
	}
	e->sync_end = &e->sync_first;
}

void rdv_flight_ready(struct rdv_engine *e, struct rdv_flight *f)
{
	if (e->failed) {
		end_flight(e, f);
		return;
	}
	if (f->info->dedupe.by != RDV_DEDUPE_OFF && !f->request && !pass_dedupe(e, f))
		return;
	read_history_facts(f);
	if (f->started && f->ticket > e->durable) {
		f->stage = RDV_FLIGHT_SYNC;
		f->wait_next = NULL;
		*e->sync_end = f;
		e->sync_end = &f->wait_next;
		return;
	}
	hand_over(e, f);
}

void rdv_flight_synced(struct rdv_engine *e)
{
	while (e->sync_first && e->sync_first->ticket <= e->durable) {
		struct rdv_flight *f = e->sync_first;

		e->sync_first = f->wait_next;
		if (!e->sync_first)
			e->sync_end = &e->sync_first;
		f->wait_next = NULL;
		hand_over(e, f);
	}
}

static void submit_calls(struct rdv_outlet *o)
{
	struct rdv_call *list = o->submit;

	if (!list)
		return;
	o->submit = NULL;
	o->submit_end = &o->submit;
	o->handler->ops->submit(o->handler, list);
}

static void submit_jobs(struct rdv_engine *e, struct rdv_job_list *list, bool urgent)
{
	if (!list->first)
		return;
	for (struct rdv_job *job = list->first; job; job = job->next)
		job->ticket = e->last_ticket;
	rdv_readers_submit(&e->readers, list->first, list->end, urgent);
	list->first = NULL;
	list->end = &list->first;
}

void rdv_flight_submit(struct rdv_engine *e)
{
	submit_jobs(e, &e->urgent, true);
	submit_jobs(e, &e->later, false);
	for (struct rdv_route *r = e->routes; r; r = r->next)
		submit_calls(r->outlet);
	for (struct rdv_route *r = e->gone; r; r = r->next)
		submit_calls(r->outlet);
	for (struct rdv_outlet *o = e->old_outlets; o; o = o->next)
		submit_calls(o);
}

/* ---- and back ---- */

void rdv_flight_complete(void *ctx, struct rdv_call *list)
{
	struct rdv_engine *e = ctx;
	struct rdv_call *last = list;
	bool first;

	for (struct rdv_call *c = list; c; c = c->next) {
		struct rdv_flight *f = c->owner;

		rdv_rules_judge(f->info->rules, f->info->name, &c->answer, &f->verdict);
		last = c;
	}
	if (!list)
		return;
	pthread_mutex_lock(&e->inbox);
	first = !e->completed;
	*e->completed_end = list;
	e->completed_end = &last->next;
	pthread_mutex_unlock(&e->inbox);
	if (first)
		rdv_engine_wake(e);
}

static void verdict(struct rdv_engine *e, struct rdv_flight *f)
{
	enum redrive_status status;

	book_where_granted(f);
	status = rdv_lane_verdict(f->strand->lane, e->now, f->entry, f->number, &f->verdict,
				  rdv_block_slice(f->history), e->effects);
	book_at_home(f);
	if (status == REDRIVE_OK)
		rdv_dispatcher_refund(f->seat->unit->dispatcher, e->now, f->strand->lane, e->effects);
	else if (status != REDRIVE_NOT_FOUND)
		rdv_engine_fail(e, redrive_status_text(status));
	rdv_strand_nudge(e, f->strand);
	end_flight(e, f);
}

static void count_verdict(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_route_metrics *m = &f->route->metrics;
	uint32_t n = f->call.attempt;

	rdv_histogram_add(&m->handler_seconds, (double)(e->now.mono.ms - f->out_ms) / 1000);
	if (f->verdict.kind == RDV_RETRY)
		m->retry_by_attempt[n < 1 ? 0 : n > 17 ? 16 : n - 1]++;
}

/* The verdict is known; the lane may need the history for it. */
static void conclude(struct rdv_engine *e, struct rdv_flight *f)
{
	bool good = f->verdict.kind == RDV_ACK || f->verdict.kind == RDV_DROP;

	if (!good && f->state.segment && !f->history) {
		f->stage = RDV_FLIGHT_HISTORY;
		f->job.reads[0].length = 0;
		look_again(f, true);
		rdv_read_want(&f->job.reads[1], &f->state);
		submit_job(e, f, NULL);
		return;
	}
	verdict(e, f);
}

void rdv_flight_book(struct rdv_engine *e, struct rdv_flight *f)
{
	if (e->failed || !f->strand->lane) { /* nothing can be recorded */
		end_flight(e, f);
		return;
	}
	count_verdict(e, f);
	conclude(e, f);
}
