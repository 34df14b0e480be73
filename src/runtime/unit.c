/* unit.c - targets at work, and the routes' places there.
 *
 * Routes whose handlers have the same scheme, host and port share a target, unless `target` says otherwise; all routes
 * of a target must agree on its policy. A route has a seat at its target. When a reload takes it to another one it
 * gets a seat there at once; the old seat is kept until the last call that was granted there has ended, since that end
 * is evidence about the old target, and frees a permit of it. A target goes with its last seat. Core thread, or before
 * it runs. */
#include "room.h"
#include <stdlib.h>

/* Scheme, host and port of a URL; the whole of it when it has no path. */
static void url_origin(const char *url, struct rdv_buffer *out)
{
	const char *host = strstr(url, "://"), *end;

	host = host ? host + 3 : url;
	end = host + strcspn(host, "/?#");
	rdv_buffer_append(out, url, (size_t)(end - url));
}

void rdv_unit_name(const struct rdv_route_options *o, struct rdv_buffer *out)
{
	if (o->target)
		rdv_buffer_printf(out, "%s", o->target);
	else if (o->handler == RDV_HANDLER_HTTP && o->http.url)
		url_origin(o->http.url, out);
	else
		rdv_buffer_printf(out, "route:%s", o->name);
}

bool rdv_unit_same_policy(const struct rdv_target_policy *a, const struct rdv_target_policy *b)
{
	return a->concurrency == b->concurrency && a->adaptive == b->adaptive && a->adaptive_max == b->adaptive_max &&
	       a->rate == b->rate && a->breaker.on == b->breaker.on && a->breaker.ratio == b->breaker.ratio &&
	       a->breaker.min_calls == b->breaker.min_calls && a->breaker.window_ms == b->breaker.window_ms &&
	       a->breaker.open_ms == b->breaker.open_ms && a->breaker.max_open_ms == b->breaker.max_open_ms &&
	       a->breaker.patience_ms == b->breaker.patience_ms && a->budget.on == b->budget.on &&
	       a->budget.ratio == b->budget.ratio && a->budget.per_second == b->budget.per_second;
}

struct rdv_unit *rdv_unit_find(struct rdv_engine *e, const char *name)
{
	struct rdv_unit *u = e->units;

	while (u && strcmp(u->name, name) != 0)
		u = u->next;
	return u;
}

void rdv_unit_free(struct rdv_unit *u)
{
	if (!u)
		return;
	rdv_dispatcher_free(u->dispatcher);
	rdv_target_free(u->target);
	free(u->name);
	free(u);
}

struct rdv_unit *rdv_unit_new(struct rdv_engine *e, const char *name, const struct rdv_target_policy *policy)
{
	struct rdv_unit *u = calloc(1, sizeof *u);
	uint64_t seed;

	rdv_secret(&seed, sizeof seed);
	if (!u)
		return NULL;
	u->name = strdup(name);
	u->policy = *policy;
	u->target = rdv_target_new(policy, seed, e->now);
	u->dispatcher = u->target ? rdv_dispatcher_new(u->target) : NULL;
	if (!u->name || !u->dispatcher) {
		rdv_unit_free(u);
		return NULL;
	}
	return u;
}

void rdv_unit_link(struct rdv_engine *e, struct rdv_unit *u)
{
	u->linked = true;
	u->next = e->units;
	e->units = u;
}

static void unlink_unit(struct rdv_engine *e, struct rdv_unit *u)
{
	struct rdv_unit **at = &e->units;

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
}

void rdv_unit_set_policy(struct rdv_engine *e, struct rdv_unit *u, const struct rdv_target_policy *policy)
{
	if (rdv_unit_same_policy(&u->policy, policy))
		return;
	u->policy = *policy;
	rdv_target_reload(u->target, &u->policy, e->now);
	u->wake.ms = 0;
}

/* ---- seats ---- */

struct rdv_seat *rdv_seat_new(struct rdv_unit *u, const struct rdv_route_policy *policy)
{
	struct rdv_seat *seat = calloc(1, sizeof *seat);
	uint32_t number = seat ? rdv_target_join(u->target, policy) : UINT32_MAX;

	if (number == UINT32_MAX) {
		free(seat);
		return NULL;
	}
	seat->unit = u;
	seat->number = number;
	u->seats++;
	return seat;
}

static void free_seat(struct rdv_engine *e, struct rdv_seat *seat)
{
	struct rdv_unit *u = seat->unit;

	rdv_target_leave(u->target, seat->number);
	free(seat);
	if (--u->seats || !u->linked)
		return;
	unlink_unit(e, u);
	rdv_unit_free(u);
}

void rdv_seat_leave(struct rdv_engine *e, struct rdv_seat *seat)
{
	if (!seat)
		return;
	if (!seat->calls) {
		free_seat(e, seat);
		return;
	}
	seat->next = e->old_seats;
	e->old_seats = seat;
}

void rdv_seat_reap(struct rdv_engine *e)
{
	struct rdv_seat **at = &e->old_seats;

	while (*at) {
		struct rdv_seat *seat = *at;

		if (seat->calls) {
			at = &seat->next;
			continue;
		}
		*at = seat->next;
		free_seat(e, seat);
	}
}
