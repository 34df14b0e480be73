/* apply.c - the second half of a reload: what was made (reload.c) takes effect.
 *
 * Nothing here is refused or allocated, but the records of new lanes and of those that are orphans now; should the
 * journal not take them, the engine has failed, as with any other record. In this order:
 *
 *   new topics, then who reads what: publishing to a topic without a route is refused from here on, and what was on its
 *       way has its offset;
 *   new routes, whose lanes' records come first: should the power fail in between, a message has two owners rather
 *       than none;
 *   routes that stay: texts, policies, handlers, targets; open calls keep the ones that they began with;
 *   removed routes: their lanes end at the offset at which new ones begin, or behind the last message of a topic that
 *       nobody reads any more, and are orphans.
 *
 * Core thread. */
#include "reload.h"
#include "inlets.h"

static void link_made(struct rdv_engine *e, struct rdv_reload *q)
{
	uint64_t ticket;

	for (size_t i = 0; i < q->topic_count; i++)
		if (rdv_topic_add(q->topics[i], &ticket) != REDRIVE_OK)
			rdv_engine_fail(e, "the journal takes no record");
	while (q->feeds) {
		struct rdv_feed *next = q->feeds->next;

		rdv_feed_link(e, q->feeds);
		q->feeds = next;
	}
	while (q->units) {
		struct rdv_unit *next = q->units->next;

		rdv_unit_link(e, q->units);
		q->units = next;
	}
}

/* Routes that were there keep their order; the new ones follow. */
static void link_routes(struct rdv_engine *e, struct rdv_reload *q, struct rdv_route **removed)
{
	struct rdv_route **at = &e->routes;

	pthread_mutex_lock(&e->admit_mutex);
	while (*at) {
		struct rdv_route *r = *at;

		if (r->kept) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->next = *removed;
		*removed = r;
	}
	for (size_t i = 0; i < q->count; i++) {
		if (!q->changes[i].is_new)
			continue;
		*at = q->changes[i].route;
		(*at)->number = e->route_numbers++;
		at = &q->changes[i].route->next;
	}
	pthread_mutex_unlock(&e->admit_mutex);
}

static void add_lane(struct rdv_engine *e, struct rdv_route *r, struct rdv_strand *s)
{
	if (rdv_strand_attach(e, s) != REDRIVE_OK ||
	    rdv_dispatcher_add(r->seat->unit->dispatcher, s->lane) != REDRIVE_OK)
		rdv_engine_fail(e, "out of memory"); /* places were promised */
	rdv_loop_open_lane(e, s, s->start, false);
}

static void add_route(struct rdv_engine *e, struct rdv_change *c)
{
	for (uint32_t p = 0; p < c->options->partitions; p++) {
		add_lane(e, c->route, c->strands[p]);
		c->strands[p] = NULL;
	}
	c->route->seat->unit->wake.ms = 0;
}

/* Its lanes ask the new target from now on. */
static void move_route(struct rdv_engine *e, struct rdv_change *c)
{
	struct rdv_route *r = c->route;
	struct rdv_seat *old = r->seat;

	r->seat = c->seat;
	c->seat = NULL;
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r || !s->lane || s->discarded)
			continue;
		rdv_dispatcher_remove(old->unit->dispatcher, s->lane);
		rdv_lane_move_to(s->lane, r->seat->unit->target, r->seat->number);
		if (s->inlet)
			rdv_inlet_moved(s);
		if (rdv_dispatcher_add(r->seat->unit->dispatcher, s->lane) != REDRIVE_OK)
			rdv_engine_fail(e, "out of memory"); /* places were promised */
	}
	r->seat->unit->wake.ms = 0;
	rdv_seat_leave(e, old);
}

static void change_route(struct rdv_engine *e, struct rdv_change *c)
{
	struct rdv_route *r = c->route;
	struct rdv_route_info *old = r->info;

	pthread_mutex_lock(&e->admit_mutex);
	r->info = c->info;
	pthread_mutex_unlock(&e->admit_mutex);
	c->info = NULL;
	rdv_route_info_unref(old);
	r->options = *c->options;
	if (c->outlet) {
		rdv_outlet_leave(e, r->outlet);
		r->outlet = c->outlet;
		c->outlet = NULL;
	} else if (r->outlet->kind == RDV_HANDLER_LEASE) {
		rdv_lease_set_time(r->outlet->handler, c->options->lease.lease_for_ms);
	}
	if (c->seat)
		move_route(e, c);
	else
		rdv_target_route_reload(r->seat->unit->target, r->seat->number, &c->options->route_policy);
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r || !s->lane || s->discarded)
			continue;
		rdv_lane_reload(s->lane, &c->options->lane, c->options->rules);
		rdv_strand_nudge(e, s);
	}
}

static void remove_route(struct rdv_engine *e, struct rdv_route *r)
{
	r->gone = true;
	r->next = e->gone;
	e->gone = r;
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r || !s->lane)
			continue;
		rdv_lane_stop(s->lane);
		s->orphan = true;
		if (s->end == UINT64_MAX)
			s->end = s->feed->cut != UINT64_MAX ? s->feed->cut
							    : rdv_topic_next_offset(s->feed->topic, s->feed->partition);
		if (rdv_strand_mark(e, s) != REDRIVE_OK)
			rdv_engine_fail(e, "the journal takes no record");
	}
	rdv_orphan_tell(e, r->info->name);
	rdv_offers_recall(e, r->outlet);
}

void rdv_reload_apply(struct rdv_engine *e, struct rdv_reload *q)
{
	struct rdv_route *removed = NULL;

	rdv_effects_run(e); /* what was granted is out, with the seats that granted it */
	link_made(e, q);
	link_routes(e, q, &removed);
	rdv_admit_topics(e);
	for (size_t i = 0; i < q->count; i++) {
		rdv_unit_set_policy(e, q->changes[i].unit, &q->changes[i].options->target_policy);
		if (q->changes[i].is_new)
			add_route(e, &q->changes[i]);
		else
			change_route(e, &q->changes[i]);
	}
	rdv_effects_run(e);
	while (removed) {
		struct rdv_route *next = removed->next;

		remove_route(e, removed);
		removed = next;
	}
	if (q->limits)
		rdv_engine_set_limits(e, q->limits);
	rdv_engine_reap(e);
}
