/* flight.c - one call from DISPATCH to verdict.
 *
 *   DISPATCH → body (flight_body.c) → dedupe → STARTED durable? → submit → handler
 *   handler → complete (judged in its thread) → core → history read if the verdict needs it → verdict → free
 *
 * A flight owns its call, a pin on a recent buffer or a block with the body, and a reference to what the route was when
 * it began. Flights are allocated in blocks and reused, last first; their number is bounded by the targets'
 * concurrency. What always holds: each flight ends by exactly one of verdict, damaged, duplicate, taken back. A body
 * that cannot be read now, for want of memory or descriptors, is given back without a charge; only one that is damaged
 * or gone ends as damaged. Core thread, except complete. */
#include "room.h"
#include "inlets.h"
#include "extract.h"
#include <stdlib.h>

#define BLOCK_FLIGHTS 256
#define BODY_PRODUCED_AT 24 /* in a BODY's hint part */
#define FAR 8               /* so many calls ahead their lines are asked for, */
#define NEAR 4              /* and what these point to */

/* ---- allocation ---- */

/* Room in the ring for so many. */
static bool grow_ring(struct rdv_flight_ring *r, size_t flights)
{
	size_t capacity = r->capacity ? r->capacity : BLOCK_FLIGHTS;
	struct rdv_flight **items;

	while (capacity < flights)
		capacity *= 2;
	if (capacity == r->capacity)
		return true;
	items = malloc(capacity * sizeof(struct rdv_flight *));
	if (!items)
		return false;
	for (size_t i = 0; i < r->count; i++)
		items[i] = r->items[(r->head + i) & (r->capacity - 1)];
	free(r->items);
	*r = (struct rdv_flight_ring){.items = items, .count = r->count, .capacity = capacity};
	return true;
}

static bool more_flights(struct rdv_engine *e)
{
	void **blocks = realloc(e->flight_blocks, (e->flight_block_count + 1) * sizeof *blocks);
	struct rdv_flight *block = aligned_alloc(_Alignof(struct rdv_flight), BLOCK_FLIGHTS * sizeof *block);

	if (blocks)
		e->flight_blocks = blocks;
	if (!blocks || !block || !grow_ring(&e->sync, (e->flight_block_count + 1) * BLOCK_FLIGHTS)) {
		free(block);
		return false;
	}
	memset(block, 0, BLOCK_FLIGHTS * sizeof *block);
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
	if (e->free_flights)
		rdv_flight_expect(e->free_flights);
	e->open_flights++;
	return f;
}

static void end_flight(struct rdv_engine *e, struct rdv_flight *f)
{
	if (f->call.asked)
		rdv_lease_undecided(e, f);
	f->stage = RDV_FLIGHT_FREE;
	if (f->pin)
		f->pin->pins--;
	f->pin = NULL;
	if (f->plain)
		rdv_call_reset_plain(&f->call);
	else
		rdv_call_reset(&f->call);
	if (f->history)
		rdv_block_unref(f->history);
	f->history = NULL;
	if (f->has_dedupe)
		rdv_buffer_done(&f->scratch);
	rdv_route_info_unref(f->info);
	f->route->open_calls--;
	f->outlet->calls--;
	f->seat->calls--;
	f->strand->uses--;
	f->seat->unit->wake.ms = 0;
	f->wait_next = e->free_flights;
	e->free_flights = f;
	e->open_flights--;
}

bool rdv_flight_each_of(struct rdv_engine *e, size_t i, void (*each)(void *ctx, struct rdv_flight *f), void *ctx)
{
	struct rdv_flight *block = i < e->flight_block_count ? e->flight_blocks[i] : NULL;

	for (size_t k = 0; block && k < BLOCK_FLIGHTS; k++)
		if (block[k].stage != RDV_FLIGHT_FREE)
			each(ctx, &block[k]);
	return block;
}

void rdv_flight_each(struct rdv_engine *e, void (*each)(void *ctx, struct rdv_flight *f), void *ctx)
{
	for (size_t i = 0; rdv_flight_each_of(e, i, each, ctx); i++)
		continue;
}

void rdv_flight_free_all(struct rdv_engine *e)
{
	for (size_t i = 0; i < e->flight_block_count; i++)
		free(e->flight_blocks[i]);
	free(e->flight_blocks);
	free(e->sync.items);
}

static struct rdv_flight **ring_at(const struct rdv_flight_ring *r, size_t i)
{
	return &r->items[(r->head + i) & (r->capacity - 1)];
}

static void ring_pop(struct rdv_flight_ring *r)
{
	r->head = (r->head + 1) & (r->capacity - 1);
	r->count--;
}

/* ---- reading ---- */

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

void rdv_flight_read(struct rdv_engine *e, struct rdv_flight *f, void (*work)(struct rdv_job *job))
{
	f->job.work = work;
	f->job.done = rdv_flight_read_done;
	f->job.owner = f;
	rdv_job_queue(e, &f->job, true);
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

void rdv_flight_damaged(struct rdv_engine *e, struct rdv_flight *f)
{
	book_where_granted(f);
	rdv_lane_damaged(f->strand->lane, e->now, f->entry, f->number, e->effects);
	book_at_home(f);
	rdv_strand_nudge(e, f->strand);
	end_flight(e, f);
}

void rdv_flight_use(struct rdv_flight *f, struct rdv_block *body)
{
	f->call.hold = body;
	f->call.payload = rdv_block_slice(body);
}

static void verdict(struct rdv_engine *e, struct rdv_flight *f);
static void conclude(struct rdv_engine *e, struct rdv_flight *f);

void rdv_flight_take_back(struct rdv_engine *e, struct rdv_flight *f, int64_t delay)
{
	if (f->strand->lane && !e->failed) {
		book_where_granted(f);
		rdv_lane_take_back(f->strand->lane, e->now, f->entry, f->number, delay, e->effects);
		book_at_home(f);
		rdv_strand_nudge(e, f->strand);
	}
	end_flight(e, f);
}

/* Nobody was called; it goes out again, after a while. */
static void give_back(struct rdv_engine *e, struct rdv_flight *f)
{
	int64_t wait = rdv_unread_wait(e, f, f->job.reads[0].status == REDRIVE_IO);

	if (wait < 0)
		rdv_flight_damaged(e, f);
	else
		rdv_flight_take_back(e, f, wait);
}

/* Takes over what was read; false: a read goes on or the flight has ended. */
static bool take_reads(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_read *body = &f->job.reads[0], *state = &f->job.reads[1];

	if (body->length) {
		if (body->status == REDRIVE_OK) {
			rdv_flight_use(f, body->block);
			body->length = 0;
		} else if (body->status == REDRIVE_NOT_FOUND && look_again(f, false)) {
			rdv_flight_read(e, f, f->job.work);
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
		} else if ((state->status != REDRIVE_CORRUPT && look_again(f, true)) ||
			   (rdv_read_passes(state->status) && !e->stopping && !e->failed)) {
			rdv_flight_read(e, f, NULL);
			return false;
		}
		state->length = 0; /* a damaged history is none: the counts that matter are the lane's */
	}
	return true;
}

void rdv_flight_read_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_flight *f = job->owner;

	e->reads_open--;
	if (!take_reads(e, f))
		return;
	if (e->failed)
		end_flight(e, f); /* nothing can be recorded */
	else if (f->damaged)
		rdv_flight_damaged(e, f);
	else if (f->stage == RDV_FLIGHT_HISTORY)
		verdict(e, f);
	else if (f->unread)
		give_back(e, f);
	else
		rdv_flight_ready(e, f);
}

/* ---- dispatch ---- */

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
	s->uses++;
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
	f->has_dedupe = f->damaged = f->unread = f->plain = f->recalled = false;
	f->first = effect->dispatch.class == RDV_CLASS_FIRST;
	f->call.owner = f;
	f->call.id = ++e->call_number;
	f->call.route = f->info->name;
	f->call.topic = rdv_topic_name(s->feed->topic);
	f->call.partition = s->feed->partition;
	f->call.lane = s->stream;
	f->call.offset = effect->seq;
	f->call.attempt = effect->dispatch.attempt;
	f->call.epoch = s->epoch;
	rdv_flight_get_body(e, f);
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
		rdv_flight_read(e, f, extract_json);
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

void rdv_flight_hand_over(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_route *r = f->route;

	if (f->recalled) {
		rdv_flight_take_back(e, f, 0);
		return;
	}
	if (e->unread_count)
		rdv_unread_forget(e, f);
	f->stage = RDV_FLIGHT_OUT;
	f->out_ms = e->now.mono.ms;
	if (f->call.payload.size >= RDV_BODY_HINT)
		rdv_histogram_add_ms(&r->metrics.age_seconds,
				     e->now.wall.ms - (int64_t)rdv_get_u64(f->call.payload.data + BODY_PRODUCED_AT));
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
	while (e->sync.count) {
		struct rdv_flight *f = *ring_at(&e->sync, 0);

		ring_pop(&e->sync);
		end_flight(e, f);
	}
	rdv_inlets_abandon(e);
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
	if (f->started && f->strand->inlet) {
		if (rdv_inlet_may_start(e, f))
			rdv_flight_hand_over(e, f);
		return;
	}
	if (f->started && f->ticket > e->durable) {
		f->stage = RDV_FLIGHT_SYNC;
		*ring_at(&e->sync, e->sync.count++) = f;
		return;
	}
	rdv_flight_hand_over(e, f);
}

void rdv_flight_synced(struct rdv_engine *e)
{
	struct rdv_flight_ring *r = &e->sync;

	while (r->count && (*ring_at(r, 0))->ticket <= e->durable) {
		struct rdv_flight *f = *ring_at(r, 0);

		if (r->count > FAR)
			rdv_flight_expect(*ring_at(r, FAR));
		if (r->count > NEAR)
			__builtin_prefetch((*ring_at(r, NEAR))->call.payload.data + BODY_PRODUCED_AT);
		ring_pop(r);
		rdv_flight_hand_over(e, f);
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

/* Acknowledged by a handler that said nothing else: rdv_rules_judge could only say the same. */
static bool is_plain(const struct rdv_call *c)
{
	const struct rdv_answer *a = &c->answer;

	return a->explicit_verdict && a->verdict == RDV_ACK && a->transport == RDV_TRANSPORT_ANSWER &&
	       !a->http_status && !c->text.data;
}

static void expect_verdict(const struct rdv_flight *f)
{
	__builtin_prefetch(&f->info);
	for (const char *line = (const char *)&f->verdict; line < (const char *)(&f->verdict + 1); line += 64)
		__builtin_prefetch(line, 1);
}

void rdv_flight_complete(void *ctx, struct rdv_call *list)
{
	struct rdv_engine *e = ctx;
	struct rdv_call *last = list;
	bool first;

	for (struct rdv_call *c = list; c; c = c->next) {
		struct rdv_flight *f = c->owner;

		if (c->next)
			expect_verdict(c->next->owner);
		f->plain = is_plain(c);
		if (!f->plain)
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
	static const struct rdv_verdict plain = {.kind = RDV_ACK, .evidence = RDV_KIND_OK};
	enum redrive_status status;

	book_where_granted(f);
	status = rdv_lane_verdict(f->strand->lane, e->now, f->entry, f->number, f->plain ? &plain : &f->verdict,
				  rdv_block_slice(f->history), e->effects);
	book_at_home(f);
	if (status == REDRIVE_OK)
		rdv_dispatcher_refund(f->seat->unit->dispatcher, e->now, f->strand->lane, e->effects);
	else if (status != REDRIVE_NOT_FOUND)
		rdv_engine_fail(e, redrive_status_text(status));
	if (f->call.asked)
		rdv_lease_decided(e, f, status);
	rdv_strand_nudge(e, f->strand);
	end_flight(e, f);
}

/* How retries end; what was put off or cut off has not ended. */
static void count_retry(struct rdv_route_metrics *m, const struct rdv_flight *f)
{
	bool acked = f->plain || f->verdict.kind == RDV_ACK;

	if (acked || f->verdict.kind == RDV_REJECT ||
	    (f->verdict.kind == RDV_RETRY && f->verdict.cause != RDV_CAUSE_SHUTDOWN))
		m->retries_ended++;
	m->retries_acked += acked;
}

static void count_verdict(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_route_metrics *m = &f->route->metrics;
	uint32_t n = f->call.attempt;

	rdv_histogram_add_ms(&m->handler_seconds, e->now.mono.ms - f->out_ms);
	if (!f->first && !f->request)
		count_retry(m, f);
	if (!f->plain && f->verdict.kind == RDV_RETRY)
		m->retry_by_attempt[n < 1 ? 0 : n > 17 ? 16 : n - 1]++;
}

/* The verdict is known; the lane may need the history for it. */
static void conclude(struct rdv_engine *e, struct rdv_flight *f)
{
	bool good = f->plain || f->verdict.kind == RDV_ACK || f->verdict.kind == RDV_DROP;

	if (!good && f->state.segment && !f->history) {
		f->stage = RDV_FLIGHT_HISTORY;
		f->job.reads[0].length = 0;
		look_again(f, true);
		rdv_read_want(&f->job.reads[1], &f->state);
		rdv_flight_read(e, f, NULL);
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
