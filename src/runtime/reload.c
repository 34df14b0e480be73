/* reload.c - a new set of routes while running: the first half, in which everything can still be refused.
 *
 * All or nothing. What the new set says by itself is checked in the caller's thread: names, topics that routes agree
 * on, targets whose routes agree. Then, as one command on the core thread: what cannot change at run time (source,
 * order, handler kind) is refused, and all that the change needs is made: handlers, texts, targets and seats there,
 * topics, feeds and lanes, places in every table. Nobody sees any of it yet, so that a refusal only frees it. The
 * second half (apply.c) cannot fail. */
#include "reload.h"
#include <stdlib.h>

/* ---- the set by itself: the caller's thread ---- */

static int by_name(const void *a, const void *b)
{
	const struct rdv_change *const *x = a, *const *y = b;

	return strcmp((*x)->options->name, (*y)->options->name);
}

static int by_topic(const void *a, const void *b)
{
	const struct rdv_change *const *x = a, *const *y = b;

	return strcmp((*x)->options->topic, (*y)->options->topic);
}

static int by_target(const void *a, const void *b)
{
	const struct rdv_change *const *x = a, *const *y = b;

	return strcmp((*x)->target, (*y)->target);
}

static enum redrive_status agree_name(const struct rdv_change *a, const struct rdv_change *b, struct rdv_error *error)
{
	(void)b;
	return rdv_error_set(error, REDRIVE_REFUSED, "route '%s' is there twice", a->options->name);
}

static enum redrive_status agree_topic(const struct rdv_change *a, const struct rdv_change *b, struct rdv_error *error)
{
	if (a->options->partitions == b->options->partitions)
		return REDRIVE_OK;
	return rdv_error_set(error, REDRIVE_REFUSED, "routes '%s' and '%s' give topic '%s' different partitions",
			     a->options->name, b->options->name, a->options->topic);
}

static enum redrive_status agree_target(const struct rdv_change *a, const struct rdv_change *b, struct rdv_error *error)
{
	if (rdv_unit_same_policy(&a->options->target_policy, &b->options->target_policy))
		return REDRIVE_OK;
	return rdv_error_set(error, REDRIVE_REFUSED,
			     "routes '%s' and '%s' share a target, but not rate, concurrency, breaker and budget",
			     a->options->name, b->options->name);
}

static const struct {
	int (*order)(const void *a, const void *b);
	enum redrive_status (*agree)(const struct rdv_change *a, const struct rdv_change *b, struct rdv_error *error);
} shared[] = {{by_topic, agree_topic}, {by_target, agree_target}, {by_name, agree_name}};

/* Neighbours in order of what is shared are compared; leaves the list in order of names. */
static enum redrive_status check_shared(struct rdv_change **list, size_t count, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t k = 0; k < sizeof shared / sizeof shared[0]; k++) {
		qsort(list, count, sizeof(struct rdv_change *), shared[k].order);
		for (size_t i = 1; i < count && status == REDRIVE_OK; i++)
			if (shared[k].order(&list[i - 1], &list[i]) == 0)
				status = shared[k].agree(list[i - 1], list[i], error);
	}
	return status;
}

static enum redrive_status check_set(struct rdv_reload *q, struct rdv_change **list)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < q->count && status == REDRIVE_OK; i++) {
		struct rdv_buffer name;

		rdv_buffer_init(&name, 0);
		q->changes[i].options = &q->routes[i];
		status = rdv_route_check(&q->routes[i], q->error);
		if (status == REDRIVE_OK) {
			rdv_unit_name(&q->routes[i], &name);
			q->changes[i].target = name.failed ? NULL : strdup(rdv_buffer_string(&name));
			status = q->changes[i].target ? REDRIVE_OK : REDRIVE_NO_MEMORY;
		}
		rdv_buffer_done(&name);
		list[i] = &q->changes[i];
	}
	return status == REDRIVE_OK ? check_shared(list, q->count, q->error) : status;
}

/* ---- against what runs: the core thread from here on ---- */

static const char *const kind_names[] = {"http", "exec", "callback", "lease"};

static enum redrive_status check_change(const struct rdv_route *r, const struct rdv_route_options *o,
					struct rdv_error *error)
{
	if (!r->inlet != !o->source || strcmp(r->info->topic, o->topic) != 0 || r->options.partitions != o->partitions)
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

static enum redrive_status check_partitions(struct rdv_engine *e, const struct rdv_route_options *o,
					    struct rdv_error *error)
{
	struct rdv_topic *topic = rdv_topic_find(e->topics, rdv_slice_text(o->topic));

	if (topic && rdv_topic_partitions(topic) != o->partitions)
		return rdv_error_set(error, REDRIVE_REFUSED,
				     "route '%s': topic '%s' was made with %u partitions and cannot have %u", o->name,
				     o->topic, rdv_topic_partitions(topic), o->partitions);
	return REDRIVE_OK;
}

/* One refusal hides none of the others: each is put behind those before it, and the first one's status stays. */
static enum redrive_status gather(struct rdv_reload *q, enum redrive_status before, enum redrive_status status,
				  const struct rdv_error *why)
{
	if (status == REDRIVE_OK)
		return before;
	return rdv_error_add(q->error, before == REDRIVE_OK ? status : before, why->text);
}

static enum redrive_status refuse_broker(const char *name, struct rdv_error *error)
{
	return rdv_error_set(error, REDRIVE_REFUSED,
			     "route '%s': a route that reads from a broker begins and ends with the program", name);
}

/* Which routes stay, which are new. */
static enum redrive_status check_all(struct rdv_engine *e, struct rdv_reload *q, struct rdv_change **by_names)
{
	enum redrive_status status = REDRIVE_OK;

	for (struct rdv_route *r = e->routes; r; r = r->next) {
		struct rdv_change key = {.options = &(struct rdv_route_options){.name = r->info->name}}, *wanted = &key;
		struct rdv_change **found =
			q->count ? bsearch(&wanted, by_names, q->count, sizeof(struct rdv_change *), by_name) : NULL;

		r->kept = found;
		if (!found && r->inlet)
			status = refuse_broker(r->info->name, q->error);
		if (found)
			(*found)->route = r;
	}
	for (size_t i = 0; i < q->count; i++) {
		struct rdv_change *c = &q->changes[i];
		struct rdv_error why = {""};

		c->is_new = !c->route;
		if (c->is_new && c->options->source)
			return refuse_broker(c->options->name, q->error);
		status = gather(q, status,
				c->is_new ? check_partitions(e, c->options, &why)
					  : check_change(c->route, c->options, &why),
				&why);
	}
	return status;
}

/* ---- what it needs ---- */

/* A handler that keeps calls (lease) or a program's function (callback) stays; http and exec may have changed. */
static bool keeps_handler(const struct rdv_route *r)
{
	return r->options.handler == RDV_HANDLER_LEASE || r->options.handler == RDV_HANDLER_CALLBACK;
}

static struct rdv_unit *unit_for(struct rdv_engine *e, struct rdv_reload *q, const struct rdv_change *c)
{
	struct rdv_unit *u = rdv_unit_find(e, c->target);

	for (struct rdv_unit *made = q->units; made && !u; made = made->next)
		u = strcmp(made->name, c->target) == 0 ? made : NULL;
	if (u)
		return u;
	u = rdv_unit_new(e, c->target, &c->options->target_policy);
	if (!u)
		return NULL;
	u->next = q->units;
	q->units = u;
	return u;
}

/* A seat at the route's target, if it is not there, and room for its lanes. */
static enum redrive_status make_seat(struct rdv_engine *e, struct rdv_reload *q, struct rdv_change *c)
{
	c->unit = unit_for(e, q, c);
	if (!c->unit)
		return REDRIVE_NO_MEMORY;
	if (!c->is_new && c->route->seat->unit == c->unit)
		return REDRIVE_OK;
	c->seat = rdv_seat_new(c->unit, &c->options->route_policy);
	if (!c->seat)
		return REDRIVE_NO_MEMORY;
	c->unit->expected += c->is_new ? c->options->partitions : 0;
	for (const struct rdv_strand *s = e->strands; s && !c->is_new; s = s->next)
		c->unit->expected += s->route == c->route && s->lane;
	return rdv_dispatcher_reserve(c->unit->dispatcher, c->unit->expected);
}

static struct rdv_topic *topic_for(struct rdv_engine *e, struct rdv_reload *q, const struct rdv_route_options *o)
{
	struct rdv_topic *topic = rdv_topic_find(e->topics, rdv_slice_text(o->topic)), **grown;

	for (size_t i = 0; i < q->topic_count && !topic; i++)
		topic = strcmp(rdv_topic_name(q->topics[i]), o->topic) == 0 ? q->topics[i] : NULL;
	if (topic)
		return topic;
	grown = realloc(q->topics, (q->topic_count + 1) * sizeof(struct rdv_topic *));
	if (!grown)
		return NULL;
	q->topics = grown;
	if (rdv_topic_new(e->topics, o->topic, o->partitions, &topic, q->error) != REDRIVE_OK)
		return NULL;
	return q->topics[q->topic_count++] = topic;
}

static struct rdv_feed *feed_for(struct rdv_engine *e, struct rdv_reload *q, struct rdv_topic *topic,
				 uint32_t partition)
{
	struct rdv_feed *feed = rdv_feed_find(e, topic, partition);

	for (struct rdv_feed *made = q->feeds; made && !feed; made = made->next)
		feed = made->topic == topic && made->partition == partition ? made : NULL;
	if (feed)
		return feed;
	feed = rdv_feed_new(e, topic, partition);
	if (feed) {
		feed->next = q->feeds;
		q->feeds = feed;
	}
	return feed;
}

/* A lane of a new route. It begins where the next message will be put: one place for all that begin or end here, so
 * that no message falls between a route that is removed and one that takes its place. */
static enum redrive_status make_lane(struct rdv_engine *e, struct rdv_reload *q, struct rdv_change *c,
				     uint32_t partition)
{
	struct rdv_feed *feed = feed_for(e, q, c->route->topic, partition);
	uint32_t stream = feed ? rdv_topics_new_streams(e->topics, 1) : 0;
	struct rdv_strand *s;

	if (!stream)
		return REDRIVE_NO_MEMORY;
	if (feed->cut == UINT64_MAX)
		feed->cut = rdv_topic_next_offset(feed->topic, partition);
	s = rdv_strand_new(e, feed, c->route, stream, feed->cut, 0);
	if (!s)
		return REDRIVE_NO_MEMORY;
	s->epoch = 1;
	c->strands[partition] = s;
	return rdv_strand_promise(e, s);
}

static enum redrive_status make_route(struct rdv_engine *e, struct rdv_reload *q, struct rdv_change *c)
{
	enum redrive_status status = REDRIVE_OK;

	c->route = rdv_route_new(e, c->options, c->outlet);
	c->outlet = NULL;
	if (!c->route)
		return REDRIVE_NO_MEMORY;
	c->route->seat = c->seat;
	c->seat = NULL;
	c->route->topic = topic_for(e, q, c->options);
	c->strands = calloc(c->options->partitions, sizeof(struct rdv_strand *));
	if (!c->route->topic || !c->strands)
		return REDRIVE_NO_MEMORY;
	for (uint32_t p = 0; p < c->options->partitions && status == REDRIVE_OK; p++)
		status = make_lane(e, q, c, p);
	return status;
}

static enum redrive_status make_all(struct rdv_engine *e, struct rdv_reload *q)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < q->count; i++) {
		struct rdv_change *c = &q->changes[i];
		struct rdv_error why = {""};

		if (c->is_new || !keeps_handler(c->route))
			status = gather(q, status, rdv_outlet_new(e, &q->routes[i], &c->outlet, &why), &why);
	}
	for (size_t i = 0; i < q->count && status == REDRIVE_OK; i++) {
		struct rdv_change *c = &q->changes[i];

		status = make_seat(e, q, c);
		if (status == REDRIVE_OK && c->is_new)
			status = make_route(e, q, c);
		else if (status == REDRIVE_OK)
			status = (c->info = rdv_route_info_new(e, c->options)) ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	}
	return status;
}

/* ---- what was made and not applied goes ---- */

static void forget_change(struct rdv_engine *e, struct rdv_change *c)
{
	for (uint32_t p = 0; c->strands && p < c->options->partitions; p++)
		rdv_strand_free(c->strands[p]);
	if (c->is_new && c->route) {
		rdv_outlet_free(c->route->outlet);
		c->route->outlet = NULL;
		rdv_route_free(e, c->route);
	}
	rdv_route_info_unref(c->info);
	rdv_outlet_free(c->outlet);
	rdv_seat_leave(e, c->seat);
}

static void forget_all(struct rdv_engine *e, struct rdv_reload *q)
{
	for (size_t i = 0; i < q->count; i++)
		forget_change(e, &q->changes[i]);
	while (q->units) {
		struct rdv_unit *next = q->units->next;

		rdv_unit_free(q->units);
		q->units = next;
	}
	while (q->feeds) {
		struct rdv_feed *next = q->feeds->next;

		rdv_feed_free(q->feeds);
		q->feeds = next;
	}
	for (size_t i = 0; i < q->topic_count; i++)
		rdv_topic_free(q->topics[i]);
	rdv_windows_reap(e);
}

static void end_plans(struct rdv_engine *e)
{
	for (struct rdv_unit *u = e->units; u; u = u->next)
		u->expected = 0;
	for (struct rdv_feed *f = e->feeds; f; f = f->next)
		f->cut = UINT64_MAX;
}

struct asked {
	struct rdv_reload *q;
	struct rdv_change **by_names;
};

static void do_reload(struct rdv_engine *e, void *ctx)
{
	struct asked *a = ctx;
	struct rdv_reload *q = a->q;

	if (e->failed || e->stopping) {
		q->status = REDRIVE_CLOSED;
		return;
	}
	rdv_engine_catch_up(e); /* what was acknowledged to publishers counts in what is said of removed routes */
	q->status = check_all(e, q, a->by_names);
	if (q->status == REDRIVE_OK)
		q->status = make_all(e, q);
	if (q->status == REDRIVE_OK)
		rdv_reload_apply(e, q);
	else
		forget_all(e, q);
	if (e->failed)
		q->status = REDRIVE_FAILED;
	end_plans(e);
	q->ticket = e->last_ticket;
}

enum redrive_status rdv_engine_reload(struct rdv_engine *e, const struct rdv_engine_options *limits,
				      const struct rdv_route_options *routes, size_t count, struct rdv_error *error)
{
	struct rdv_reload q = {.limits = limits, .routes = routes, .count = count, .error = error};
	struct asked a = {.q = &q};
	enum redrive_status status;

	error->text[0] = '\0';
	q.changes = calloc(count + 1, sizeof *q.changes);
	a.by_names = calloc(count + 1, sizeof(struct rdv_change *));
	status = q.changes && a.by_names ? check_set(&q, a.by_names) : REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		status = rdv_engine_call(e, do_reload, &a);
	status = status == REDRIVE_OK ? q.status : status;
	for (size_t i = 0; q.changes && i < count; i++) {
		free(q.changes[i].target);
		free(q.changes[i].strands);
	}
	free(q.changes);
	free(q.topics);
	free(a.by_names);
	if (status != REDRIVE_OK && !error->text[0])
		rdv_error_set(error, status, "%s: nothing was changed", redrive_status_text(status));
	return status == REDRIVE_OK ? rdv_log_wait(e->log, q.ticket, -1) : status;
}
