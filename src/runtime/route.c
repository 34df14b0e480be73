/* route.c - routes, the targets they share, their handlers and lanes.
 *
 * Routes whose handlers have the same scheme, host and port share a target, unless `target` says otherwise; all
 * routes of a target must agree on its policy. A route's texts live in a counted info that open calls keep, so that a
 * reload changes it under them. Removing a route orphans its lanes at their topic's next offset. Core thread, or before
 * it runs. */
#include "room.h"
#include <stdlib.h>

/* ---- info ---- */

static bool copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

struct rdv_route_info *rdv_route_info_new(struct rdv_engine *e, const struct rdv_route_options *o)
{
	const char *metadata[4] = {o->metadata.tenant, o->metadata.schema_version, o->metadata.consumer_version,
				   o->metadata.trace_id};
	struct rdv_route_info *info = calloc(1, sizeof *info);
	bool good = info != NULL;

	if (!info)
		return NULL;
	info->refs = 1;
	info->engine = e;
	info->rules = rdv_rules_ref(o->rules);
	info->dedupe = o->lane.dedupe;
	rdv_slice_to_text(rdv_slice_text(o->name), info->name, sizeof info->name);
	rdv_slice_to_text(rdv_slice_text(o->topic), info->topic, sizeof info->topic);
	for (int i = 0; i < 4; i++)
		good = good && copy_text(&info->metadata[i], metadata[i]);
	for (size_t i = 0; i < o->index_count && i < RDV_INDEX_MAX; i++, info->index_count++)
		good = good && copy_text(&info->index[i], o->index[i]);
	if (!good) {
		rdv_route_info_unref(info);
		return NULL;
	}
	return info;
}

struct rdv_route_info *rdv_route_info_ref(struct rdv_route_info *info)
{
	info->refs++;
	return info;
}

void rdv_route_info_unref(struct rdv_route_info *info)
{
	if (!info || --info->refs)
		return;
	for (int i = 0; i < 4; i++)
		free(info->metadata[i]);
	for (size_t i = 0; i < RDV_INDEX_MAX; i++)
		free(info->index[i]);
	rdv_rules_unref(info->rules);
	free(info);
}

/* ---- units ---- */

/* Scheme, host and port of a URL; the whole of it when it has no path. */
static void url_origin(const char *url, struct rdv_buffer *out)
{
	const char *host = strstr(url, "://"), *end;

	host = host ? host + 3 : url;
	end = host + strcspn(host, "/?#");
	rdv_buffer_append(out, url, (size_t)(end - url));
}

static void unit_name(const struct rdv_route_options *o, struct rdv_buffer *out)
{
	if (o->target)
		rdv_buffer_printf(out, "%s", o->target);
	else if (o->handler == RDV_HANDLER_HTTP && o->http.url)
		url_origin(o->http.url, out);
	else
		rdv_buffer_printf(out, "route:%s", o->name);
}

static bool same_policy(const struct rdv_target_policy *a, const struct rdv_target_policy *b)
{
	return a->concurrency == b->concurrency && a->adaptive == b->adaptive && a->adaptive_max == b->adaptive_max &&
	       a->rate == b->rate && a->breaker.on == b->breaker.on && a->breaker.ratio == b->breaker.ratio &&
	       a->breaker.min_calls == b->breaker.min_calls && a->breaker.window_ms == b->breaker.window_ms &&
	       a->breaker.open_ms == b->breaker.open_ms && a->breaker.max_open_ms == b->breaker.max_open_ms &&
	       a->breaker.patience_ms == b->breaker.patience_ms && a->budget.on == b->budget.on &&
	       a->budget.ratio == b->budget.ratio && a->budget.per_second == b->budget.per_second;
}

static struct rdv_unit *unit_find(struct rdv_engine *e, const char *name)
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

static struct rdv_unit *unit_new(struct rdv_engine *e, const char *name, const struct rdv_target_policy *policy)
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
	u->next = e->units;
	e->units = u;
	return u;
}

bool rdv_route_same_target(const struct rdv_route_options *a, const struct rdv_route_options *b)
{
	struct rdv_buffer x, y;
	bool same;

	rdv_buffer_init(&x, 0);
	rdv_buffer_init(&y, 0);
	unit_name(a, &x);
	unit_name(b, &y);
	same = strcmp(rdv_buffer_string(&x), rdv_buffer_string(&y)) == 0;
	rdv_buffer_done(&x);
	rdv_buffer_done(&y);
	return !same || same_policy(&a->target_policy, &b->target_policy);
}

/* A reload may change a target's policy for all its routes at once: the first of them sets it. */
void rdv_route_forget_units(struct rdv_engine *e, const struct rdv_route_options *routes, size_t count)
{
	struct rdv_buffer name;

	rdv_buffer_init(&name, 0);
	for (size_t i = 0; i < count; i++) {
		struct rdv_unit *u;

		rdv_buffer_clear(&name);
		unit_name(&routes[i], &name);
		u = unit_find(e, rdv_buffer_string(&name));
		if (!u || same_policy(&u->policy, &routes[i].target_policy))
			continue;
		u->policy = routes[i].target_policy;
		rdv_target_reload(u->target, &u->policy, e->now);
		u->wake.ms = 0;
	}
	rdv_buffer_done(&name);
}

static enum redrive_status join_unit(struct rdv_engine *e, struct rdv_route *r, const struct rdv_route_options *o,
				     struct rdv_error *error)
{
	struct rdv_buffer name;
	struct rdv_unit *u;
	enum redrive_status status = REDRIVE_OK;

	rdv_buffer_init(&name, 0);
	unit_name(o, &name);
	u = unit_find(e, rdv_buffer_string(&name));
	if (u && u->routes && !same_policy(&u->policy, &o->target_policy)) {
		status = rdv_error_set(
			error, REDRIVE_REFUSED,
			"route '%s': its target '%s' is shared with a route of another rate, concurrency, "
			"breaker or budget",
			o->name, u->name);
	} else if (u && !u->routes) {
		u->policy = o->target_policy;
		rdv_target_reload(u->target, &u->policy, e->now);
	} else if (!u) {
		u = unit_new(e, rdv_buffer_string(&name), &o->target_policy);
		status = u ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	}
	rdv_buffer_done(&name);
	if (status != REDRIVE_OK)
		return status;
	r->unit_route = rdv_target_join(u->target, &o->route_policy);
	if (r->unit_route == UINT32_MAX)
		return rdv_error_set(error, REDRIVE_FULL, "route '%s': its target has %u routes already", o->name,
				     RDV_TARGET_ROUTES_MAX);
	r->unit = u;
	u->routes++;
	return REDRIVE_OK;
}

/* The route's target by its present options; its lanes move when that is another one. */
enum redrive_status rdv_route_change_unit(struct rdv_engine *e, struct rdv_route *r, const struct rdv_route_options *o,
					  struct rdv_error *error)
{
	struct rdv_unit *old = r->unit;
	uint32_t old_route = r->unit_route;
	struct rdv_buffer name;
	bool same;
	enum redrive_status status;

	rdv_buffer_init(&name, 0);
	unit_name(o, &name);
	same = strcmp(rdv_buffer_string(&name), old->name) == 0;
	rdv_buffer_done(&name);
	if (same || r->open_calls) { /* with calls at the old one it stays there: their grants are its */
		rdv_target_route_reload(old->target, old_route, &o->route_policy);
		return REDRIVE_OK;
	}
	status = join_unit(e, r, o, error);
	if (status != REDRIVE_OK)
		return status;
	for (struct rdv_strand *s = e->strands; s && status == REDRIVE_OK; s = s->next) {
		if (s->route != r || !s->lane)
			continue;
		rdv_dispatcher_remove(old->dispatcher, s->lane);
		rdv_lane_move_to(s->lane, r->unit->target, r->unit_route);
		status = rdv_dispatcher_add(r->unit->dispatcher, s->lane);
	}
	rdv_target_leave(old->target, old_route);
	old->routes--;
	return status;
}

/* ---- handlers ---- */

static enum redrive_status make_http(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
				     struct rdv_handler **out, struct rdv_error *error)
{
	enum redrive_status status = e->http_pool ? REDRIVE_OK : rdv_http_pool_new(&e->http_pool, error);

	return status == REDRIVE_OK ? rdv_http_new(e->http_pool, &o->http, sink, out, error) : status;
}

static enum redrive_status make_exec(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
				     struct rdv_handler **out, struct rdv_error *error)
{
	enum redrive_status status;

	if (!e->options.exec_allowed)
		return rdv_error_set(error, REDRIVE_REFUSED, "route '%s': the library runs no commands", o->name);
	status = e->exec_pool ? REDRIVE_OK : rdv_exec_pool_new(&e->exec_pool, error);
	return status == REDRIVE_OK ? rdv_exec_new(e->exec_pool, &o->exec, sink, out, error) : status;
}

static enum redrive_status make_callback(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
					 struct rdv_handler **out, struct rdv_error *error)
{
	return rdv_callback_new(&o->callback, sink, out, error);
}

static enum redrive_status make_lease(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
				      struct rdv_handler **out, struct rdv_error *error)
{
	struct rdv_lease_options lease = o->lease;

	lease.number = e->lease_number + 1;
	return rdv_lease_new(&lease, sink, out, error);
}

static enum redrive_status (*const makers[])(struct rdv_engine *e, const struct rdv_route_options *o,
					     struct rdv_sink sink, struct rdv_handler **out,
					     struct rdv_error *error) = {
	[RDV_HANDLER_HTTP] = make_http,
	[RDV_HANDLER_EXEC] = make_exec,
	[RDV_HANDLER_CALLBACK] = make_callback,
	[RDV_HANDLER_LEASE] = make_lease,
};

enum redrive_status rdv_route_make_handler(struct rdv_engine *e, const struct rdv_route_options *o, uint32_t *number,
					   struct rdv_handler **out, struct rdv_error *error)
{
	struct rdv_sink sink = {rdv_flight_complete, e};
	enum redrive_status status = makers[o->handler](e, o, sink, out, error);

	*number = status == REDRIVE_OK ? ++e->lease_number : 0;
	return status == REDRIVE_OK ? status : rdv_error_prefix(error, status, "route '%s'", o->name);
}

/* ---- routes ---- */

struct rdv_route *rdv_route_find(struct rdv_engine *e, const char *name)
{
	struct rdv_route *r = e->routes;

	while (r && strcmp(r->info->name, name) != 0)
		r = r->next;
	return r;
}

/* The old handler's open calls end there; it is freed with the route. */
void rdv_route_replace_handler(struct rdv_route *r, struct rdv_handler *handler)
{
	struct rdv_handler **grown =
		realloc(r->old_handlers, (r->old_handler_count + 1) * sizeof(struct rdv_handler *));

	if (!grown) { /* the old one stays in use */
		handler->ops->free(handler);
		return;
	}
	r->old_handlers = grown;
	grown[r->old_handler_count++] = r->handler;
	r->handler = handler;
}

void rdv_route_free(struct rdv_route *r)
{
	if (!r)
		return;
	if (r->handler)
		r->handler->ops->free(r->handler);
	for (size_t i = 0; i < r->old_handler_count; i++)
		r->old_handlers[i]->ops->free(r->old_handlers[i]);
	free(r->old_handlers);
	rdv_route_info_unref(r->info);
	free(r);
}

static bool valid_name(const char *name)
{
	size_t size = name ? strlen(name) : 0;

	return size >= 1 && size <= 100 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

static bool valid_topic(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t size = name ? strlen(name) : 0;

	return size >= 1 && size <= 200 && strspn(name, allowed) == size;
}

enum redrive_status rdv_route_check(const struct rdv_route_options *o, struct rdv_error *error)
{
	if (!valid_name(o->name))
		return rdv_error_set(error, REDRIVE_INVALID, "a route's name is 1 to 100 of a-z 0-9 . _ -");
	if (!valid_topic(o->topic))
		return rdv_error_set(error, REDRIVE_INVALID,
				     "route '%s': a topic's name is 1 to 200 of A-Z a-z 0-9 . _ -", o->name);
	if (o->partitions < 1 || o->partitions > RDV_PARTITIONS_MAX)
		return rdv_error_set(error, REDRIVE_INVALID, "route '%s': 1 to %u partitions", o->name,
				     RDV_PARTITIONS_MAX);
	if (o->target_policy.concurrency < 1 || o->lane.retry.attempts < 1)
		return rdv_error_set(error, REDRIVE_INVALID, "route '%s': concurrency and attempts are at least 1",
				     o->name);
	return REDRIVE_OK;
}

enum redrive_status rdv_route_add(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_route **out,
				  struct rdv_error *error)
{
	struct rdv_route_options mine = *o;
	struct rdv_handler *handler;
	enum redrive_status status = rdv_route_check(o, error);

	if (status != REDRIVE_OK)
		return status;
	if (rdv_route_find(e, o->name))
		return rdv_error_set(error, REDRIVE_INVALID, "route '%s' is there twice", o->name);
	status = rdv_route_make_handler(e, o, &mine.lease.number, &handler, error);
	return status == REDRIVE_OK ? rdv_route_add_made(e, &mine, handler, out, error) : status;
}

enum redrive_status rdv_route_add_made(struct rdv_engine *e, const struct rdv_route_options *o,
				       struct rdv_handler *handler, struct rdv_route **out, struct rdv_error *error)
{
	struct rdv_route *r = calloc(1, sizeof *r), **end = &e->routes;
	enum redrive_status status;

	if (!r) {
		handler->ops->free(handler);
		return REDRIVE_NO_MEMORY;
	}
	r->options = *o;
	r->handler = handler;
	r->submit_end = &r->submit;
	r->info = rdv_route_info_new(e, o);
	status = r->info ? join_unit(e, r, o, error) : REDRIVE_NO_MEMORY;
	if (status != REDRIVE_OK) {
		rdv_route_free(r);
		return status;
	}
	while (*end)
		end = &(*end)->next;
	*end = r;
	r->number = e->route_numbers++;
	*out = r;
	return REDRIVE_OK;
}

static int64_t ids_ttl(struct rdv_engine *e, const struct rdv_topic *topic)
{
	int64_t longest = 0;

	for (struct rdv_route *r = e->routes; r; r = r->next)
		if (r->topic == topic && r->options.lane.dedupe.by != RDV_DEDUPE_OFF &&
		    r->options.lane.dedupe.ttl_ms > longest)
			longest = r->options.lane.dedupe.ttl_ms;
	return longest;
}

static struct rdv_strand *strand_for(struct rdv_route *r, struct rdv_feed *feed)
{
	for (size_t i = 0; i < feed->count; i++)
		if (feed->strands[i]->route == r && feed->strands[i]->end == UINT64_MAX)
			return feed->strands[i];
	return NULL;
}

enum redrive_status rdv_route_lanes(struct rdv_engine *e, struct rdv_route *r, struct rdv_error *error)
{
	enum redrive_status status =
		rdv_topic_open(e->topics, r->info->topic, r->options.partitions, 0, &r->topic, error);

	if (status == REDRIVE_OK) /* again, now that this route counts among the topic's */
		status = rdv_topic_open(e->topics, r->info->topic, r->options.partitions, ids_ttl(e, r->topic),
					&r->topic, error);
	for (uint32_t p = 0; status == REDRIVE_OK && p < r->options.partitions; p++) {
		struct rdv_feed *feed = rdv_feed_of(e, r->topic, p);
		struct rdv_strand *s = feed ? strand_for(r, feed) : NULL;
		uint32_t stream;

		if (!feed)
			return REDRIVE_NO_MEMORY;
		if (s)
			continue;
		stream = rdv_topics_new_streams(e->topics, 1);
		s = stream ? rdv_strand_new(e, feed, r, stream, rdv_topic_next_offset(r->topic, p), 0) : NULL;
		if (s)
			s->epoch = 1;
		if (!s || rdv_strand_attach(e, s) != REDRIVE_OK) {
			rdv_strand_free(s);
			return REDRIVE_NO_MEMORY;
		}
	}
	return status;
}
