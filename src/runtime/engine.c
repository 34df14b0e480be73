/* engine.c - opening, starting, stopping; commands to the core thread.
 *
 * open reads who is in the log (and so says early when it is held, damaged or too new); routes are added; start makes
 * the lanes, reads everything, and starts the threads. stop lets the core thread drain and write CLOSE, then ends the
 * threads in the order in which they feed each other. A command waits for its turn on the core thread; publishing does
 * not go through it. Threads: open, add_route, start, stop and free belong to one thread; everything else to any. */
#include "inlets.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void rdv_engine_say(struct rdv_engine *e, int level, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	if (!e->options.say)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	e->options.say(e->options.say_ctx, level, text);
}

void rdv_engine_fail(struct rdv_engine *e, const char *why)
{
	if (e->failed)
		return;
	e->failed = true;
	atomic_store(&e->log_failed, true);
	atomic_store(&e->accepts, false);
	rdv_engine_say(e, 0, "nothing can be recorded any more: %s", why);
}

void rdv_engine_wake(struct rdv_engine *e)
{
	uv_async_send(&e->wake);
}

/* ---- open ---- */

static enum redrive_status init_parts(struct rdv_engine *e)
{
	struct rdv_topics_options topics = {.ids_max = e->options.ids, .admit = rdv_admit, .admit_ctx = e};
	enum redrive_status status;

	e->completed_end = &e->completed;
	e->commands_end = &e->commands;
	e->urgent.end = &e->urgent.first;
	e->later.end = &e->later.first;
	e->retry.end = &e->retry.first;
	rdv_effects_init(&e->lists[0]);
	rdv_effects_init(&e->lists[1]);
	e->effects = &e->lists[0];
	e->topics = rdv_topics_new(&topics);
	if (!e->topics || pthread_mutex_init(&e->inbox, NULL) || pthread_cond_init(&e->answered, NULL) ||
	    pthread_mutex_init(&e->admit_mutex, NULL))
		return REDRIVE_NO_MEMORY;
	status = rdv_cache_init(&e->cache);
	if (status == REDRIVE_OK)
		status = rdv_writer_init(&e->writer, e);
	if (status == REDRIVE_OK)
		status = rdv_readers_init(&e->readers, e);
	return status;
}

static enum redrive_status make_dir(const char *dir, struct rdv_error *error)
{
	if (mkdir(dir, 0700) == 0 || errno == EEXIST)
		return REDRIVE_OK;
	return rdv_error_errno(error, errno, "make '%s'", dir);
}

enum redrive_status rdv_engine_open(const struct rdv_engine_options *options, struct rdv_engine **out,
				    struct rdv_error *error)
{
	struct rdv_engine *e = calloc(1, sizeof *e);
	struct rdv_target_policy policy;
	enum redrive_status status;

	if (!e)
		return REDRIVE_NO_MEMORY;
	e->options = *options;
	rdv_engine_settle_limits(e);
	e->dir = strdup(options->dir);
	e->now = rdv_now();
	rdv_target_policy_defaults(&policy);
	e->orphan_target = rdv_target_new(&policy, 1, e->now);
	e->orphan_info = rdv_route_info_new(e, &(struct rdv_route_options){.name = "orphan", .topic = ""});
	status = e->dir && e->orphan_target && e->orphan_info ? init_parts(e) : REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK && rdv_target_join(e->orphan_target, &(struct rdv_route_policy){0}) == UINT32_MAX)
		status = REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		status = make_dir(e->dir, error);
	if (status == REDRIVE_OK)
		status = rdv_engine_identify(e, error);
	if (status != REDRIVE_OK) {
		rdv_engine_free(e);
		return rdv_error_prefix(error, status, "open '%s'", options->dir);
	}
	*out = e;
	return REDRIVE_OK;
}

static enum redrive_status add_broker_route(struct rdv_engine *e, const struct rdv_route_options *route,
					    struct rdv_error *error)
{
	struct rdv_route *made;
	enum redrive_status status = rdv_route_add(e, route, &made, error);

	return status == REDRIVE_OK ? rdv_inlet_attach(e, made, route->source, error) : status;
}

enum redrive_status rdv_engine_add_route(struct rdv_engine *e, const struct rdv_route_options *route,
					 struct rdv_error *error)
{
	struct rdv_topic *topic = rdv_topic_find(e->topics, rdv_slice_text(route->topic));
	struct rdv_route *made;

	if (e->stage != RDV_ENGINE_OPENED)
		return rdv_error_set(error, REDRIVE_CONFLICT, "routes are added before the start, or by a reload");
	if (route->source)
		return add_broker_route(e, route, error);
	if (topic && rdv_topic_partitions(topic) != route->partitions)
		return rdv_error_set(error, REDRIVE_REFUSED,
				     "route '%s': topic '%s' was made with %u partitions and cannot have %u",
				     route->name, route->topic, rdv_topic_partitions(topic), route->partitions);
	for (struct rdv_route *r = e->routes; r; r = r->next)
		if (strcmp(r->info->topic, route->topic) == 0 && r->options.partitions != route->partitions)
			return rdv_error_set(
				error, REDRIVE_REFUSED,
				"route '%s': topic '%s' has %u partitions for route '%s' and cannot have %u",
				route->name, route->topic, r->options.partitions, r->info->name, route->partitions);
	return rdv_route_add(e, route, &made, error);
}

struct rdv_handler *rdv_engine_handler(struct rdv_engine *e, const char *route)
{
	struct rdv_route *r = rdv_route_find(e, route);

	return r ? r->outlet->handler : NULL;
}

/* ---- start ---- */

static enum redrive_status open_desk(struct rdv_engine *e, struct rdv_error *error)
{
	struct rdv_desk_options o = {
		.dir = e->dir, .hot_ms = e->options.hot_ms, .say = e->options.say, .say_ctx = e->options.say_ctx};

	return rdv_desk_open(&o, &e->desk, error);
}

/* What was appended so far is made durable, in this thread. */
static enum redrive_status commit_all(struct rdv_engine *e, struct rdv_error *error)
{
	enum redrive_status status;
	bool did = false;

	do
		status = rdv_log_commit(e->log, 0, &did, error);
	while (status == REDRIVE_OK && did);
	return status;
}

static enum redrive_status open_everything(struct rdv_engine *e, struct rdv_error *error)
{
	struct rdv_log_space space;
	enum redrive_status status = rdv_engine_recover(e, error);

	if (status == REDRIVE_OK)
		status = open_desk(e, error);
	if (status != REDRIVE_OK)
		return status;
	e->now = rdv_now();
	rdv_topics_attach(e->topics, e->log);
	rdv_log_space(e->log, &space);
	e->walked = space.head; /* recovery has seen everything */
	for (struct rdv_route *r = e->routes; r && status == REDRIVE_OK; r = r->next)
		if (!r->inlet)
			status = rdv_route_lanes(e, r, error);
	if (status == REDRIVE_OK)
		status = rdv_engine_mark_stale(e);
	if (status == REDRIVE_OK)
		status = rdv_loop_open_lanes(e, !e->clean);
	if (status != REDRIVE_OK)
		return status;
	rdv_admit_topics(e);
	return commit_all(e, error);
}

static enum redrive_status start_threads(struct rdv_engine *e, struct rdv_error *error)
{
	struct rdv_desk_runtime runtime = rdv_replay_runtime;
	enum redrive_status status = rdv_loop_init(e, error);

	runtime.ctx = e;
	if (status == REDRIVE_OK)
		status = rdv_writer_start(&e->writer, e->log, error);
	if (status == REDRIVE_OK)
		status = rdv_readers_start(&e->readers, e->log, error);
	if (status == REDRIVE_OK)
		status = rdv_trim_start(e, error);
	if (status == REDRIVE_OK)
		status = rdv_loop_start(e, error);
	if (status == REDRIVE_OK)
		status = rdv_desk_start(e->desk, &runtime, error);
	if (status == REDRIVE_OK)
		status = rdv_inlets_start(e, error);
	return status;
}

enum redrive_status rdv_engine_start(struct rdv_engine *e, struct rdv_error *error)
{
	enum redrive_status status;

	if (e->stage != RDV_ENGINE_OPENED)
		return rdv_error_set(error, REDRIVE_CONFLICT, "it was started before");
	status = open_everything(e, error);
	if (status == REDRIVE_OK) {
		pthread_mutex_lock(&e->inbox);
		e->stage = RDV_ENGINE_RUNNING;
		pthread_mutex_unlock(&e->inbox);
		status = start_threads(e, error);
	}
	if (status != REDRIVE_OK)
		return rdv_error_prefix(error, status, "start '%s'", e->dir);
	atomic_store(&e->accepts, true);
	return REDRIVE_OK;
}

/* ---- stop ---- */

static void begin_stop(struct rdv_engine *e, void *ctx)
{
	(void)ctx;
	e->stopping = true;
}

/* Commands that came too late are answered. */
static void refuse_commands(struct rdv_engine *e)
{
	pthread_mutex_lock(&e->inbox);
	e->stage = RDV_ENGINE_STOPPED;
	for (struct rdv_command *c = e->commands; c; c = c->next)
		c->refused = true;
	e->commands = NULL;
	e->commands_end = &e->commands;
	pthread_cond_broadcast(&e->answered);
	pthread_mutex_unlock(&e->inbox);
}

static enum redrive_status call(struct rdv_engine *e, void (*fn)(struct rdv_engine *e, void *ctx), void *ctx,
				enum rdv_engine_stage stage)
{
	struct rdv_command c = {.fn = fn, .ctx = ctx};
	bool first;

	pthread_mutex_lock(&e->inbox);
	if (e->stage != RDV_ENGINE_RUNNING) {
		pthread_mutex_unlock(&e->inbox);
		return REDRIVE_CLOSED;
	}
	e->stage = stage;
	first = !e->commands;
	*e->commands_end = &c;
	e->commands_end = &c.next;
	pthread_mutex_unlock(&e->inbox);
	if (first)
		rdv_engine_wake(e);
	pthread_mutex_lock(&e->inbox);
	while (!c.done && !c.refused)
		pthread_cond_wait(&e->answered, &e->inbox);
	pthread_mutex_unlock(&e->inbox);
	return c.refused ? REDRIVE_CLOSED : REDRIVE_OK;
}

enum redrive_status rdv_engine_call(struct rdv_engine *e, void (*fn)(struct rdv_engine *e, void *ctx), void *ctx)
{
	return call(e, fn, ctx, RDV_ENGINE_RUNNING);
}

void rdv_engine_stop(struct rdv_engine *e)
{
	enum rdv_engine_stage stage;

	atomic_store(&e->accepts, false);
	pthread_mutex_lock(&e->inbox);
	stage = e->stage;
	pthread_mutex_unlock(&e->inbox);
	if (e->thread_started && stage == RDV_ENGINE_RUNNING) {
		rdv_inlets_stop(e);
		(void)!call(e, begin_stop, NULL, RDV_ENGINE_STOPPING);
		pthread_join(e->thread, NULL);
		e->thread_started = false;
	}
	rdv_inlets_end_waits(e);
	refuse_commands(e); /* also the desk's runner's */
	if (e->desk)
		rdv_desk_stop(e->desk);
	rdv_trim_stop(e);
	rdv_writer_stop(&e->writer);
	rdv_readers_stop(&e->readers);
}

static void close_loop(struct rdv_engine *e)
{
	if (!e->loop_ready)
		return;
	uv_close((uv_handle_t *)&e->wake, NULL);
	uv_close((uv_handle_t *)&e->timer, NULL);
	uv_run(&e->loop, UV_RUN_DEFAULT);
	uv_loop_close(&e->loop);
}

static void free_routes(struct rdv_engine *e, struct rdv_route *r)
{
	while (r) {
		struct rdv_route *next = r->next;

		rdv_route_free(e, r);
		r = next;
	}
}

static void free_outlets(struct rdv_outlet *o)
{
	while (o) {
		struct rdv_outlet *next = o->next;

		rdv_outlet_free(o);
		o = next;
	}
}

static void free_strands(struct rdv_engine *e)
{
	while (e->strands) {
		struct rdv_strand *next = e->strands->next;

		rdv_strand_free(e->strands);
		e->strands = next;
	}
}

static void free_lists(struct rdv_engine *e)
{
	rdv_windows_free(e);
	while (e->feeds) {
		struct rdv_feed *next = e->feeds->next;

		rdv_feed_free(e->feeds);
		e->feeds = next;
	}
	while (e->old_seats) {
		struct rdv_seat *next = e->old_seats->next;

		free(e->old_seats);
		e->old_seats = next;
	}
	while (e->units) {
		struct rdv_unit *next = e->units->next;

		rdv_unit_free(e->units);
		e->units = next;
	}
	while (e->identities) {
		struct rdv_identity *next = e->identities->next;

		free(e->identities);
		e->identities = next;
	}
	free(e->streams);
	free(e->touched);
	free(e->unsynced);
}

void rdv_engine_free(struct rdv_engine *e)
{
	if (!e)
		return;
	if (e->thread_started || e->stage == RDV_ENGINE_RUNNING)
		rdv_engine_stop(e);
	rdv_inlets_free(e);
	rdv_strands_rested(e);
	free_strands(e); /* their lanes look at the windows */
	free_routes(e, e->routes);
	free_routes(e, e->gone);
	free_outlets(e->old_outlets);
	free_outlets(e->old_leases);
	if (e->http_pool)
		rdv_http_pool_free(e->http_pool);
	if (e->exec_pool)
		rdv_exec_pool_free(e->exec_pool);
	rdv_letters_drop(e);
	rdv_desk_free(e->desk);
	close_loop(e);
	rdv_flight_free_all(e);
	rdv_recent_drop_all(e);
	rdv_cache_done(&e->cache);
	rdv_writer_done(&e->writer);
	rdv_readers_done(&e->readers);
	free_lists(e);
	rdv_target_free(e->orphan_target);
	rdv_route_info_unref(e->orphan_info);
	rdv_effects_done(&e->lists[0]);
	rdv_effects_done(&e->lists[1]);
	rdv_topics_free(e->topics);
	rdv_log_close(e->log);
	rdv_admit_done(e);
	pthread_mutex_destroy(&e->inbox);
	pthread_cond_destroy(&e->answered);
	pthread_mutex_destroy(&e->admit_mutex);
	free(e->dir);
	free(e);
}

/* ---- small questions ---- */

bool rdv_engine_ready(struct rdv_engine *e, const char **why)
{
	struct rdv_log_space space;

	*why = NULL;
	if (atomic_load(&e->log_failed) ||
	    (atomic_load(&e->accepts) && rdv_log_failed(e->log))) /* publishers know it before the core does */
		*why = "the journal has failed";
	else if (!atomic_load(&e->accepts))
		*why = "starting or stopping";
	if (*why)
		return false;
	rdv_log_space(e->log, &space);
	if (space.refuses)
		*why = "the journal has no room for new messages";
	return !*why;
}

struct rdv_desk *rdv_engine_desk(struct rdv_engine *e)
{
	return e->desk;
}

struct rdv_hash128 rdv_engine_id(const struct rdv_engine *e)
{
	return e->id;
}
