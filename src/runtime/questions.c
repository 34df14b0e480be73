/* questions.c - what people and programs ask about routes and messages, and what they tell a route to do.
 *
 * Each is one command on the core thread, or several, and each of them does bounded work there; files are read by the
 * asker's own thread afterwards. What changes something returns when it is durable. */
#include "inlets.h"
#include <stdio.h>
#include <stdlib.h>

#define ENTRIES_AT_ONCE 16384u /* looked at in one command */

/* ---- routes ---- */

#define LANES_AT_ONCE 256u /* described in one command */

struct route_question {
	const char *name;
	struct rdv_route_status *items;
	size_t count, capacity;
	/* Between commands: lanes are never freed, and routes keep their number; items of routes by that, + 1. */
	bool started;
	const struct rdv_strand *next;
	uint32_t *by_number, numbers;
	size_t block; /* calls that were looked at */
	bool leases, ended;
	size_t orphans; /* items from here on are lanes without a route */
	enum redrive_status status;
};

static struct rdv_route_status *add_status(struct route_question *q, const char *name, const char *topic)
{
	struct rdv_route_status *s;

	if (q->count == q->capacity) {
		size_t capacity = q->capacity ? 2 * q->capacity : 16;
		struct rdv_route_status *grown = realloc(q->items, capacity * sizeof *grown);

		if (!grown) {
			q->status = REDRIVE_NO_MEMORY;
			return NULL;
		}
		q->items = grown;
		q->capacity = capacity;
	}
	s = &q->items[q->count++];
	memset(s, 0, sizeof *s);
	snprintf(s->name, sizeof s->name, "%s", name);
	snprintf(s->topic, sizeof s->topic, "%s", topic);
	return s;
}

static void add_strand(struct rdv_engine *e, struct rdv_route_status *s, const struct rdv_strand *strand)
{
	int64_t oldest, overdue;

	rdv_account_add(&s->account, rdv_lane_account(strand->lane));
	s->held_back += rdv_lane_held_back(strand->lane);
	oldest = rdv_lane_oldest_ms(strand->lane, e->now);
	overdue = rdv_lane_overdue_ms(strand->lane, e->now);
	if (oldest > s->oldest_unfinished_ms)
		s->oldest_unfinished_ms = oldest;
	if (overdue > s->overdue_ms)
		s->overdue_ms = overdue;
}

static const char *state_of(struct rdv_engine *e)
{
	if (e->failed)
		return "failed";
	return e->stopping ? "stopped" : "running";
}

static void describe_route(struct rdv_engine *e, struct route_question *q, const struct rdv_route *r)
{
	struct rdv_route_status *s = add_status(q, r->info->name, r->info->topic);
	bool failed;

	if (!s)
		return;
	q->by_number[r->number] = (uint32_t)q->count;
	snprintf(s->target, sizeof s->target, "%s", r->seat->unit->name);
	s->partitions = r->inlet ? rdv_inlet_lane_count(r) : r->options.partitions;
	s->handler = r->options.handler;
	q->leases |= s->handler == RDV_HANDLER_LEASE;
	s->breaker_on = r->options.target_policy.breaker.on;
	s->budget_on = r->options.target_policy.budget.on;
	s->storm_held = rdv_target_storm_held(r->seat->unit->target, r->seat->number);
	s->sla_ms = r->options.sla_ms;
	s->importance_high = r->options.importance_high;
	rdv_target_status(r->seat->unit->target, e->now, &s->target_status);
	s->state = state_of(e);
	if (rdv_inlet_trouble(r, &failed, s->detail, sizeof s->detail) && failed && !e->failed)
		s->state = "failed";
	if (e->failed)
		snprintf(s->detail, sizeof s->detail, "nothing can be recorded: the journal has failed");
}

static void begin_routes(struct rdv_engine *e, struct route_question *q)
{
	rdv_engine_catch_up(e);
	q->started = true;
	q->numbers = e->route_numbers;
	q->by_number = calloc(q->numbers + 1, sizeof *q->by_number);
	if (!q->by_number) {
		q->status = REDRIVE_NO_MEMORY;
		return;
	}
	for (const struct rdv_route *r = e->routes; r; r = r->next)
		if (!q->name || strcmp(q->name, r->info->name) == 0)
			describe_route(e, q, r);
	q->orphans = q->count;
	q->next = e->strands;
}

/* Lanes without a route, together by the name they had. */
static struct rdv_route_status *orphan_status(struct route_question *q, const struct rdv_strand *strand)
{
	const char *topic = rdv_topic_name(strand->feed->topic);
	struct rdv_route_status *s;

	if (q->name && strcmp(strand->name, q->name) != 0)
		return NULL;
	for (size_t i = q->orphans; i < q->count; i++)
		if (strcmp(q->items[i].name, strand->name) == 0 && strcmp(q->items[i].topic, topic) == 0)
			return &q->items[i];
	s = add_status(q, strand->name, topic);
	if (!s)
		return NULL;
	s->state = "stopped";
	s->orphan = true;
	snprintf(s->detail, sizeof s->detail,
		 "its route was removed: adopt its messages by another route, or discard them");
	s->partitions = rdv_topic_partitions(strand->feed->topic);
	return s;
}

static void describe_strand(struct rdv_engine *e, struct route_question *q, const struct rdv_strand *strand)
{
	const struct rdv_route *r = strand->route;
	struct rdv_route_status *s = NULL;

	if (!r || r->gone)
		s = orphan_status(q, strand);
	else if (r->number < q->numbers && q->by_number[r->number])
		s = &q->items[q->by_number[r->number] - 1];
	if (!s || !rdv_strand_serves(strand)) /* of those others have the account */
		return;
	add_strand(e, s, strand);
	if (r && !r->gone && rdv_lane_paused(strand->lane) && strcmp(s->state, "running") == 0)
		s->state = "paused";
}

/* The sum that has this call's lane. What a removed route had offered was taken back. */
static struct rdv_account *account_of(void *ctx, const struct rdv_flight *f)
{
	struct route_question *q = ctx;
	const struct rdv_route *r = f->strand->route;

	if (!r || r->gone || r->number >= q->numbers || !q->by_number[r->number])
		return NULL;
	return &q->items[q->by_number[r->number] - 1].account;
}

static void do_routes(struct rdv_engine *e, void *ctx)
{
	struct route_question *q = ctx;

	if (!q->started)
		begin_routes(e, q);
	for (unsigned n = 0; n < LANES_AT_ONCE && q->next && q->status == REDRIVE_OK; n++, q->next = q->next->next)
		if (q->next->lane)
			describe_strand(e, q, q->next);
	if (!q->next && q->status == REDRIVE_OK)
		q->ended = !q->leases || rdv_offers_show(e, &q->block, account_of, q);
}

enum redrive_status rdv_engine_routes(struct rdv_engine *e, const char *name, struct rdv_route_status **out,
				      size_t *count)
{
	struct route_question q = {.name = name};
	enum redrive_status status;

	do {
		status = rdv_engine_call(e, do_routes, &q);
		status = status == REDRIVE_OK ? q.status : status;
	} while (status == REDRIVE_OK && !q.ended);
	free(q.by_number);
	if (status == REDRIVE_OK && name && !q.count)
		status = REDRIVE_NOT_FOUND;
	if (status != REDRIVE_OK) {
		free(q.items);
		return status;
	}
	*out = q.items;
	*count = q.count;
	return REDRIVE_OK;
}

/* ---- commands to a route ---- */

struct order {
	const char *route, *other;
	struct rdv_slice key;
	bool paused, broker;
	uint64_t ticket;
	enum redrive_status status;
	struct rdv_error *error;
};

static void settle(struct rdv_engine *e, struct order *o)
{
	rdv_effects_run(e);
	o->ticket = e->last_ticket;
	if (e->failed)
		o->status = REDRIVE_FAILED;
}

static void do_pause(struct rdv_engine *e, void *ctx)
{
	struct order *o = ctx;
	struct rdv_route *r = rdv_route_find(e, o->route);

	if (!r) {
		o->status = REDRIVE_NOT_FOUND;
		return;
	}
	o->broker = r->inlet != NULL;
	if (!o->paused)
		rdv_target_storm_resume(r->seat->unit->target, r->seat->number, e->now);
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r || !s->lane || rdv_inlet_pauses_later(s, o->paused))
			continue;
		if (rdv_lane_paused(s->lane) != o->paused)
			rdv_lane_pause(s->lane, o->paused, e->effects);
		rdv_strand_nudge(e, s);
	}
	settle(e, o);
}

static void do_release(struct rdv_engine *e, void *ctx)
{
	struct order *o = ctx;
	struct rdv_route *r = rdv_route_find(e, o->route);

	o->status = REDRIVE_NOT_FOUND;
	o->broker = r && r->inlet;
	for (struct rdv_strand *s = e->strands; s && r; s = s->next) {
		uint64_t hash = rdv_topic_key_hash(s->feed->topic, o->key);

		if (s->route != r || !rdv_strand_serves(s))
			continue;
		if (rdv_lane_release(s->lane, e->now, hash, e->effects) == REDRIVE_OK)
			o->status = REDRIVE_OK;
		rdv_strand_nudge(e, s);
	}
	settle(e, o);
}

static enum redrive_status command(struct rdv_engine *e, void (*fn)(struct rdv_engine *e, void *ctx), struct order *o)
{
	enum redrive_status status = rdv_engine_call(e, fn, o);

	if (status == REDRIVE_OK)
		status = o->status;
	return status == REDRIVE_OK && o->ticket ? rdv_engine_await(e, o->ticket, o->broker) : status;
}

enum redrive_status rdv_engine_pause(struct rdv_engine *e, const char *route, bool paused)
{
	struct order o = {.route = route, .paused = paused};

	return command(e, do_pause, &o);
}

enum redrive_status rdv_engine_release_key(struct rdv_engine *e, const char *route, struct rdv_slice key)
{
	struct order o = {.route = route, .key = key};

	return command(e, do_release, &o);
}

static void do_adopt(struct rdv_engine *e, void *ctx)
{
	struct order *o = ctx;
	struct rdv_route *r = rdv_route_find(e, o->other);
	bool any = false;

	if (!r) {
		o->status = rdv_error_set(o->error, REDRIVE_NOT_FOUND, "there is no route '%s'", o->other);
		return;
	}
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route || !s->lane || strcmp(s->name, o->route) != 0)
			continue;
		any = true;
		if (s->feed->topic != r->topic)
			o->status = rdv_error_set(o->error, REDRIVE_CONFLICT,
						  "'%s' read topic '%s', but route '%s' reads '%s'", o->route,
						  rdv_topic_name(s->feed->topic), o->other, rdv_topic_name(r->topic));
		else if (r->options.lane.order == RDV_ORDER_KEY && rdv_lane_order(s->lane) != RDV_ORDER_KEY)
			o->status = rdv_error_set(o->error, REDRIVE_CONFLICT,
						  "'%s' kept no order by key, and route '%s' does: restart redrive, "
						  "then adopt",
						  o->route, o->other);
	}
	if (!any)
		o->status = rdv_error_set(o->error, REDRIVE_NOT_FOUND, "no lanes are left of a route '%s'", o->route);
	for (struct rdv_strand *s = e->strands; s && o->status == REDRIVE_OK; s = s->next)
		if (!s->route && s->lane && strcmp(s->name, o->route) == 0)
			o->status = rdv_route_adopt_strand(e, r, s);
	settle(e, o);
}

enum redrive_status rdv_engine_adopt(struct rdv_engine *e, const char *old_route, const char *new_route,
				     struct rdv_error *error)
{
	struct order o = {.route = old_route, .other = new_route, .error = error};

	return command(e, do_adopt, &o);
}

struct discard {
	const char *route;
	struct rdv_lane *lane; /* owns: taken off its strand; its records are not counted any more up to `at` */
	uint32_t at;
	bool any;
	uint64_t ticket;
	enum redrive_status status;
};

static void uncount(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct rdv_engine *e = ctx;

	(void)type, (void)seq;
	rdv_log_live(e->log, place.segment, -1, -(int64_t)place.length);
}

static void do_uncount(struct rdv_engine *e, void *ctx)
{
	struct discard *d = ctx;

	rdv_lane_each_live_slice(d->lane, &d->at, ENTRIES_AT_ONCE, uncount, e);
	e->uncounting -= !d->at;
}

/* Takes the next lane off. */
static void do_discard(struct rdv_engine *e, void *ctx)
{
	struct discard *d = ctx;
	struct rdv_strand *s = e->strands;

	while (s && (s->route || !s->lane || strcmp(s->name, d->route) != 0))
		s = s->next;
	if (!s)
		return;
	d->any = true;
	rdv_effects_run(e); /* nothing of it may be pending */
	s->discarded = true;
	d->status = rdv_strand_mark(e, s);
	d->ticket = e->last_ticket;
	if (d->status != REDRIVE_OK)
		return;
	d->lane = s->lane;
	s->lane = NULL;
	e->uncounting++;
}

/* A lane may hold millions of messages: they are counted off in slices, and freed in the asker's thread. */
static enum redrive_status discard_lane(struct rdv_engine *e, struct discard *d)
{
	enum redrive_status status = rdv_engine_call(e, do_discard, d);

	if (status == REDRIVE_OK && d->lane)
		do
			status = rdv_engine_call(e, do_uncount, d);
		while (status == REDRIVE_OK && d->at);
	rdv_lane_free(d->lane);
	return status == REDRIVE_OK ? d->status : status;
}

enum redrive_status rdv_engine_discard(struct rdv_engine *e, const char *old_route, struct rdv_error *error)
{
	struct discard d = {.route = old_route};
	enum redrive_status status;

	do {
		d.lane = NULL;
		status = discard_lane(e, &d);
	} while (status == REDRIVE_OK && d.lane);
	if (status == REDRIVE_OK && !d.any)
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "no lanes are left of a route '%s'", old_route);
	return status == REDRIVE_OK ? rdv_log_wait(e->log, d.ticket, -1) : status;
}

/* ---- leases ---- */

struct lease_question {
	const char *route;
	bool by_number;
	uint32_t number;
	struct rdv_handler *handler;
	enum redrive_status status;
};

struct rdv_outlet *rdv_outlet_of_lease(struct rdv_engine *e, uint32_t number)
{
	struct rdv_outlet *found = e->old_leases;

	while (found && found->number != number)
		found = found->next;
	for (struct rdv_route *r = e->routes; r && !found; r = r->next)
		found = r->outlet->number == number ? r->outlet : NULL;
	for (struct rdv_route *r = e->gone; r && !found; r = r->next)
		found = r->outlet->number == number ? r->outlet : NULL;
	return found;
}

static void do_lease(struct rdv_engine *e, void *ctx)
{
	struct lease_question *q = ctx;
	struct rdv_route *r = q->by_number ? NULL : rdv_route_find(e, q->route);
	struct rdv_outlet *found = q->by_number ? rdv_outlet_of_lease(e, q->number) : r ? r->outlet : NULL;

	if (!found)
		q->status = REDRIVE_NOT_FOUND;
	else if (found->kind != RDV_HANDLER_LEASE)
		q->status = REDRIVE_CONFLICT;
	else
		q->handler = found->handler;
}

enum redrive_status rdv_engine_lease_handler(struct rdv_engine *e, const char *route, struct rdv_handler **out)
{
	struct lease_question q = {.route = route};
	enum redrive_status status = rdv_engine_call(e, do_lease, &q);

	*out = q.handler;
	return status == REDRIVE_OK ? q.status : status;
}

struct rdv_handler *rdv_engine_lease_of(struct rdv_engine *e, const char *token)
{
	struct lease_question q = {.by_number = true};

	if (!rdv_lease_token_number(token, &q.number))
		return NULL;
	return rdv_engine_call(e, do_lease, &q) == REDRIVE_OK ? q.handler : NULL;
}

/* ---- metrics ---- */

void rdv_engine_metrics(struct rdv_engine *e, struct rdv_engine_metrics *out)
{
	*out = (struct rdv_engine_metrics){0};
	if (!e->desk) /* not started */
		return;
	rdv_log_space(e->log, &out->space);
	rdv_writer_sync_times(&e->writer, &out->sync_seconds);
	out->ids = rdv_topics_ids(e->topics, &out->ids_evicted);
	out->desk_waiting = rdv_desk_waiting(e->desk);
	out->unread = atomic_load(&e->unread_now);
	out->unread_total = atomic_load(&e->unread_total);
	out->damaged_segments = atomic_load(&e->damaged_segments);
	out->oldest_letter_ms = atomic_load(&e->oldest_letter_ms);
	if (out->oldest_letter_ms)
		out->oldest_letter_ms = rdv_mono_now().ms - out->oldest_letter_ms;
}

struct metrics_question {
	const char *route;
	struct rdv_route_metrics *out;
	enum redrive_status status;
};

static void do_metrics(struct rdv_engine *e, void *ctx)
{
	struct metrics_question *q = ctx;
	struct rdv_route *r = rdv_route_find(e, q->route);

	if (r)
		*q->out = r->metrics;
	else
		q->status = REDRIVE_NOT_FOUND;
}

enum redrive_status rdv_engine_route_metrics(struct rdv_engine *e, const char *route, struct rdv_route_metrics *out)
{
	struct metrics_question q = {route, out, REDRIVE_OK};
	enum redrive_status status = rdv_engine_call(e, do_metrics, &q);

	return status == REDRIVE_OK ? q.status : status;
}
