/* inlet.c - routes whose messages come from a broker: their sources are made, started, asked, stopped.
 *
 * A source's threads leave events and the end of a batch under the inlet's mutex and wake the core, which looks at them
 * once a turn. Sources are stopped before the core drains, since giving up a partition takes its turns. Core thread,
 * but for start and stop, which belong to the engine's owner. */
#include "inlet.h"
#include <stdlib.h>

/* ---- from the source's threads ---- */

static void tell_state(void *ctx, const char *why, bool failed)
{
	struct rdv_inlet *in = ctx;

	pthread_mutex_lock(&in->mutex);
	rdv_slice_to_text(rdv_slice_text(why ? why : ""), in->why, sizeof in->why);
	in->failed = failed;
	pthread_mutex_unlock(&in->mutex);
}

static void say(void *ctx, int level, const char *text)
{
	const struct rdv_inlet *in = ctx;

	rdv_engine_say(in->engine, level, "route %s: %s", in->route->info->name, text);
}

const char *rdv_inlet_trouble(const struct rdv_route *r, bool *failed, char *text, size_t size)
{
	struct rdv_inlet *in = r->inlet;

	*failed = false;
	if (!in)
		return NULL;
	pthread_mutex_lock(&in->mutex);
	rdv_slice_to_text(rdv_slice_text(in->why), text, size);
	*failed = in->failed;
	pthread_mutex_unlock(&in->mutex);
	return text[0] ? text : NULL;
}

uint32_t rdv_inlet_lane_count(const struct rdv_route *r)
{
	uint32_t count = 0;

	for (const struct rdv_inlet_lane *l = r->inlet->lanes; l; l = l->next)
		count += l->stage == RDV_INLET_OPEN || l->stage == RDV_INLET_CLOSING;
	return count;
}

/* ---- birth and death ---- */

enum redrive_status rdv_inlet_attach(struct rdv_engine *e, struct rdv_route *r, const struct rdv_source_maker *maker,
				     struct rdv_error *error)
{
	struct rdv_inlet *in = calloc(1, sizeof *in);
	struct rdv_source_sink sink = rdv_inlet_sink;
	enum redrive_status status;

	if (!in)
		return REDRIVE_NO_MEMORY;
	if (pthread_mutex_init(&in->mutex, NULL)) {
		free(in);
		return REDRIVE_NO_MEMORY;
	}
	in->engine = e;
	in->route = r;
	sink.ctx = in;
	sink.state = tell_state;
	sink.say = say;
	status = maker->make(maker, &sink, &in->source, error);
	if (status != REDRIVE_OK) {
		rdv_inlet_free(in);
		return rdv_error_prefix(error, status, "route '%s'", r->info->name);
	}
	r->inlet = in;
	return REDRIVE_OK;
}

static void free_letters(struct rdv_inlet_letters *list)
{
	for (size_t i = 0; i < list->count; i++) {
		rdv_block_unref(list->items[i].envelope);
		rdv_block_unref(list->items[i].body);
	}
	free(list->items);
}

static void free_lane(struct rdv_inlet_lane *in)
{
	rdv_progress_done(&in->progress);
	rdv_buffer_done(&in->records);
	rdv_buffer_done(&in->counters);
	rdv_buffer_done(&in->sent);
	free(in->ahead);
	free(in->loose);
	free(in);
}

void rdv_inlet_lane_free(struct rdv_inlet_lane *in)
{
	struct rdv_inlet_lane **at = &in->inlet->lanes;

	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	free_lane(in);
}

void rdv_inlet_free(struct rdv_inlet *in)
{
	struct rdv_inlet_lane *next;

	if (!in)
		return;
	if (in->source)
		in->source->ops->free(in->source);
	for (struct rdv_inlet_lane *l = in->lanes; l; l = next) {
		next = l->next;
		free_lane(l);
	}
	free_letters(&in->waiting);
	free_letters(&in->going);
	free(in->letters);
	free(in->writers);
	free(in->batch.writes);
	free(in->batch.refused);
	free(in->events);
	pthread_mutex_destroy(&in->mutex);
	free(in);
}

void rdv_inlets_free(struct rdv_engine *e)
{
	for (struct rdv_route *r = e->routes; r; r = r->next) {
		rdv_inlet_free(r->inlet);
		r->inlet = NULL;
	}
}

enum redrive_status rdv_inlets_start(struct rdv_engine *e, struct rdv_error *error)
{
	for (struct rdv_route *r = e->routes; r; r = r->next) {
		enum redrive_status status;

		if (!r->inlet)
			continue;
		if (e->options.desk_alone) {
			tell_state(r->inlet, "this instance is the desk alone: others consume", false);
			continue;
		}
		status = r->inlet->source->ops->start(r->inlet->source, error);
		if (status != REDRIVE_OK)
			return rdv_error_prefix(error, status, "route '%s'", r->info->name);
		r->inlet->started = true;
	}
	return REDRIVE_OK;
}

/* ---- the end ---- */

struct stopping {
	pthread_t thread;
	struct rdv_inlet *inlet;
	int64_t within_ms;
};

static void *stop_one(void *arg)
{
	const struct stopping *s = arg;

	s->inlet->source->ops->stop(s->inlet->source, s->within_ms);
	return NULL;
}

/* All at once, as each waits for its calls. */
void rdv_inlets_stop(struct rdv_engine *e)
{
	size_t count = 0;
	struct stopping *list;

	for (const struct rdv_route *r = e->routes; r; r = r->next)
		count += r->inlet && r->inlet->started;
	list = count ? calloc(count, sizeof *list) : NULL;
	count = 0;
	for (struct rdv_route *r = e->routes; r; r = r->next) {
		struct stopping one = {.inlet = r->inlet, .within_ms = e->options.drain_ms};

		if (!r->inlet || !r->inlet->started)
			continue;
		r->inlet->started = false;
		if (list)
			list[count] = one;
		if (list && pthread_create(&list[count].thread, NULL, stop_one, &list[count]) == 0)
			count++;
		else
			stop_one(&one);
	}
	for (size_t i = 0; i < count; i++)
		pthread_join(list[i].thread, NULL);
	free(list);
}

/* ---- turns ---- */

static bool next_event(struct rdv_inlet *in, size_t at, struct rdv_inlet_event *out)
{
	bool any;

	pthread_mutex_lock(&in->mutex);
	any = at < in->event_count;
	if (any)
		*out = in->events[at];
	else
		in->event_count = 0;
	pthread_mutex_unlock(&in->mutex);
	return any;
}

static void take_events(struct rdv_engine *e, struct rdv_inlet *in)
{
	struct rdv_inlet_event event;

	for (size_t at = 0; next_event(in, at, &event); at++) {
		if (event.kind == RDV_INLET_REVOKE)
			rdv_inlet_revoke(e, event.lane, event.within_ms);
		else
			rdv_inlet_lost(e, event.lane);
		if (event.kind == RDV_INLET_GONE)
			event.lane->source = NULL;
	}
}

void rdv_inlets_take(struct rdv_engine *e)
{
	for (struct rdv_route *r = e->routes; r; r = r->next) {
		if (!r->inlet)
			continue;
		rdv_inlet_take(e, r->inlet);
		take_events(e, r->inlet);
		rdv_inlet_lanes_step(e, r->inlet);
	}
}

void rdv_inlets_seal(struct rdv_engine *e)
{
	for (struct rdv_route *r = e->routes; r && !e->failed; r = r->next)
		if (r->inlet)
			rdv_inlet_seal(e, r->inlet);
}

static int64_t lane_due(const struct rdv_inlet_lane *l, int64_t until)
{
	const struct rdv_inlet *in = l->inlet;

	if (l->dirty && !in->sent && (in->hurry || in->sent_ms + RDV_INLET_EVERY_MS < until))
		until = in->hurry ? 0 : in->sent_ms + RDV_INLET_EVERY_MS;
	if (l->stage == RDV_INLET_CLOSING && l->close_ms < until)
		until = l->close_ms;
	return until;
}

int64_t rdv_inlets_due(const struct rdv_engine *e, int64_t until)
{
	for (const struct rdv_route *r = e->routes; r; r = r->next)
		for (const struct rdv_inlet_lane *l = r->inlet ? r->inlet->lanes : NULL; l; l = l->next)
			until = lane_due(l, until);
	return until;
}
