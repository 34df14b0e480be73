/* reload.c - a new set of routes while running; lanes that routes left, and their new owners.
 *
 * All or nothing: everything that can be refused is found before anything is changed: names, what cannot change at run
 * time (topic, partitions, order, handler kind), targets whose routes disagree. New handlers are made first, too. Then
 * policies are exchanged, new routes get lanes at their topics' next offsets, and removed routes stop: their calls end,
 * then their lanes are orphans, whose records say where they end. Core thread, as one command. */
#include "room.h"
#include <stdlib.h>

struct reload {
	const struct rdv_route_options *routes;
	size_t count;
	struct rdv_error *error;
	struct rdv_handler **handlers; /* owns: new ones, by index; NULL = the old one stays */
	uint32_t *numbers;             /* owns: of the new handlers */
	uint64_t ticket;
	enum redrive_status status;
};

static const char *const kind_names[] = {"http", "exec", "callback", "lease"};

static enum redrive_status check_change(const struct rdv_route *r, const struct rdv_route_options *o,
					struct rdv_error *error)
{
	if (strcmp(r->info->topic, o->topic) != 0 || r->options.partitions != o->partitions)
		return rdv_error_set(error, REDRIVE_REFUSED, "route '%s': its source cannot change while it runs",
				     o->name);
	if (r->options.lane.order != o->lane.order)
		return rdv_error_set(error, REDRIVE_REFUSED, "route '%s': its order cannot change while it runs",
				     o->name);
	if (r->options.handler != o->handler)
		return rdv_error_set(error, REDRIVE_REFUSED,
				     "route '%s': its handler cannot change from %s to %s while it runs", o->name,
				     kind_names[r->options.handler], kind_names[o->handler]);
	return REDRIVE_OK;
}

static enum redrive_status check_partitions(struct rdv_engine *e, const struct reload *q, size_t i)
{
	const struct rdv_route_options *o = &q->routes[i];
	struct rdv_topic *topic = rdv_topic_find(e->topics, rdv_slice_text(o->topic));

	if (topic && rdv_topic_partitions(topic) != o->partitions)
		return rdv_error_set(q->error, REDRIVE_REFUSED,
				     "route '%s': topic '%s' was made with %u partitions and cannot have %u", o->name,
				     o->topic, rdv_topic_partitions(topic), o->partitions);
	for (size_t k = 0; k < i; k++) {
		if (strcmp(q->routes[k].name, o->name) == 0)
			return rdv_error_set(q->error, REDRIVE_REFUSED, "route '%s' is there twice", o->name);
		if (strcmp(q->routes[k].topic, o->topic) == 0 && q->routes[k].partitions != o->partitions)
			return rdv_error_set(q->error, REDRIVE_REFUSED,
					     "routes '%s' and '%s' give topic '%s' different partitions",
					     q->routes[k].name, o->name, o->topic);
	}
	return REDRIVE_OK;
}

static enum redrive_status check_targets(const struct reload *q, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!rdv_route_same_target(&q->routes[k], &q->routes[i]))
			return rdv_error_set(
				q->error, REDRIVE_REFUSED,
				"routes '%s' and '%s' share a target, but not rate, concurrency, breaker and budget",
				q->routes[k].name, q->routes[i].name);
	return REDRIVE_OK;
}

static enum redrive_status check_all(struct rdv_engine *e, struct reload *q)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < q->count && status == REDRIVE_OK; i++) {
		struct rdv_route *r;

		status = rdv_route_check(&q->routes[i], q->error);
		if (status == REDRIVE_OK)
			status = check_partitions(e, q, i);
		if (status == REDRIVE_OK)
			status = check_targets(q, i);
		r = status == REDRIVE_OK ? rdv_route_find(e, q->routes[i].name) : NULL;
		if (r)
			status = check_change(r, &q->routes[i], q->error);
	}
	return status;
}

/* A handler that keeps calls (lease) or a program's function (callback) stays; http and exec may have changed. */
static bool keeps_handler(const struct rdv_route *r)
{
	return r && (r->options.handler == RDV_HANDLER_LEASE || r->options.handler == RDV_HANDLER_CALLBACK);
}

static enum redrive_status make_handlers(struct rdv_engine *e, struct reload *q)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < q->count && status == REDRIVE_OK; i++)
		if (!keeps_handler(rdv_route_find(e, q->routes[i].name)))
			status = rdv_route_make_handler(e, &q->routes[i], &q->numbers[i], &q->handlers[i], q->error);
	return status;
}

/* ---- from here on nothing is refused any more ---- */

static bool is_kept(const struct reload *q, const char *name)
{
	for (size_t i = 0; i < q->count; i++)
		if (strcmp(q->routes[i].name, name) == 0)
			return true;
	return false;
}

static void remove_route(struct rdv_engine *e, struct rdv_route **at)
{
	struct rdv_route *r = *at;

	*at = r->next;
	r->gone = true;
	r->next = e->gone;
	e->gone = r;
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r || !s->lane)
			continue;
		rdv_lane_stop(s->lane);
		s->orphan = true;
		if (s->end == UINT64_MAX)
			s->end = rdv_topic_next_offset(s->feed->topic, s->feed->partition);
		if (rdv_strand_mark(e, s) != REDRIVE_OK)
			rdv_engine_fail(e, "the journal takes no record");
	}
}

static void change_route(struct rdv_engine *e, struct reload *q, struct rdv_route *r, size_t i)
{
	const struct rdv_route_options *o = &q->routes[i];
	struct rdv_route_info *info = rdv_route_info_new(e, o);
	uint32_t number = r->options.lease.number;

	if (!info) {
		rdv_engine_fail(e, "out of memory");
		return;
	}
	rdv_route_info_unref(r->info);
	r->info = info;
	r->options = *o;
	r->options.lease.number = number;
	if (q->handlers[i]) {
		rdv_route_replace_handler(r, q->handlers[i]);
		q->handlers[i] = NULL;
	}
	q->status = rdv_route_change_unit(e, r, o, q->error);
	for (struct rdv_strand *s = e->strands; s; s = s->next)
		if (s->route == r && s->lane)
			rdv_lane_reload(s->lane, &o->lane, o->rules);
}

static void add_route(struct rdv_engine *e, struct reload *q, size_t i)
{
	struct rdv_route_options mine = q->routes[i];
	struct rdv_route *r;

	mine.lease.number = q->numbers[i];
	q->status = rdv_route_add_made(e, &mine, q->handlers[i], &r, q->error);
	q->handlers[i] = NULL;
	if (q->status == REDRIVE_OK)
		q->status = rdv_route_lanes(e, r, q->error);
	for (struct rdv_strand *s = e->strands; s && q->status == REDRIVE_OK; s = s->next) {
		if (s->route != r)
			continue;
		rdv_loop_open_lane(e, s, false);
		q->status = rdv_dispatcher_add(r->unit->dispatcher, s->lane);
	}
}

static void do_reload(struct rdv_engine *e, void *ctx)
{
	struct reload *q = ctx;

	if (e->failed || e->stopping) {
		q->status = REDRIVE_CLOSED;
		return;
	}
	q->status = check_all(e, q);
	if (q->status == REDRIVE_OK)
		q->status = make_handlers(e, q);
	if (q->status != REDRIVE_OK)
		return;
	for (struct rdv_route **at = &e->routes; *at;) {
		if (is_kept(q, (*at)->info->name))
			at = &(*at)->next;
		else
			remove_route(e, at);
	}
	rdv_route_forget_units(e, q->routes, q->count);
	for (size_t i = 0; i < q->count && q->status == REDRIVE_OK; i++) {
		struct rdv_route *r = rdv_route_find(e, q->routes[i].name);

		if (r)
			change_route(e, q, r, i);
		else
			add_route(e, q, i);
	}
	if (q->status != REDRIVE_OK && q->status != REDRIVE_FAILED)
		rdv_engine_fail(e, "a reload could not be finished"); /* want of memory or of stream numbers */
	rdv_effects_run(e);
	if (rdv_admit_topics(e) != REDRIVE_OK)
		q->status = REDRIVE_NO_MEMORY;
	q->ticket = e->last_ticket;
}

enum redrive_status rdv_engine_reload(struct rdv_engine *e, const struct rdv_route_options *routes, size_t count,
				      struct rdv_error *error)
{
	struct reload q = {.routes = routes, .count = count, .error = error};
	enum redrive_status status;

	q.handlers = calloc(count + 1, sizeof(struct rdv_handler *));
	q.numbers = calloc(count + 1, sizeof *q.numbers);
	status = q.handlers && q.numbers ? rdv_engine_call(e, do_reload, &q) : REDRIVE_NO_MEMORY;
	status = status == REDRIVE_OK ? q.status : status;
	for (size_t i = 0; q.handlers && i < count; i++)
		if (q.handlers[i])
			q.handlers[i]->ops->free(q.handlers[i]);
	free(q.handlers);
	free(q.numbers);
	return status == REDRIVE_OK ? rdv_log_wait(e->log, q.ticket, -1) : status;
}

/* ---- orphans ---- */

void rdv_route_reap(struct rdv_engine *e)
{
	for (struct rdv_route *r = e->gone; r; r = r->next) {
		if (!r->unit || r->open_calls)
			continue;
		for (struct rdv_strand *s = e->strands; s; s = s->next) {
			if (s->route != r)
				continue;
			if (s->lane) {
				rdv_dispatcher_remove(r->unit->dispatcher, s->lane);
				rdv_lane_move_to(s->lane, e->orphan_target, 0);
				rdv_lane_stop(s->lane);
			}
			s->route = NULL;
		}
		rdv_target_leave(r->unit->target, r->unit_route);
		r->unit->routes--;
		r->unit = NULL;
	}
}

static bool is_paused(const struct rdv_engine *e, const struct rdv_route *r)
{
	for (const struct rdv_strand *s = e->strands; s; s = s->next)
		if (s->route == r && s->lane && rdv_lane_paused(s->lane))
			return true;
	return false;
}

enum redrive_status rdv_route_adopt_strand(struct rdv_engine *e, struct rdv_route *r, struct rdv_strand *s)
{
	enum redrive_status status;
	bool paused = is_paused(e, r);

	rdv_slice_to_text(rdv_slice_text(r->info->name), s->name, sizeof s->name);
	s->orphan = false;
	status = rdv_strand_mark(e, s);
	if (status != REDRIVE_OK)
		return status;
	rdv_lane_move_to(s->lane, r->unit->target, r->unit_route);
	rdv_lane_reload(s->lane, &r->options.lane, r->info->rules);
	if (rdv_lane_paused(s->lane) != paused)
		rdv_lane_pause(s->lane, paused, e->effects);
	s->route = r;
	r->unit->wake.ms = 0;
	return rdv_dispatcher_add(r->unit->dispatcher, s->lane);
}
