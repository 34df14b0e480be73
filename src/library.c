/* library.c - the C API (include/redrive.h): it joins the engine, the callback handler and the embedded queue.
 *
 * Thin: arguments are checked and turned into the engine's, texts are copied where they must outlive a call. A delivery
 * is a view of the handler's call on the stack of its thread; the message's record is decoded when it is first asked
 * for. All state is in the engine but the routes' functions, which live until free. */
#include "library_settings.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct route {
	struct route *next;
	redrive_handler handler;
	void *ctx;
	struct rdv_handler *calls; /* borrows; the engine's */
};

struct redrive {
	struct rdv_engine *engine; /* owns */
	struct route *routes;      /* owns */
	pthread_mutex_t mutex;
	pthread_cond_t ended;
	bool started, stopped, failed;
};

struct redrive_delivery {
	struct rdv_call *call;
	struct route *route;
	struct rdv_body body;
	bool decoded, has_delay;
	int64_t delay_ms;
	struct rdv_slice id;
	char id_text[RDV_MESSAGE_ID_SIZE];
};

static enum redrive_status tell(enum redrive_status status, const struct rdv_error *from, struct redrive_error *to)
{
	if (to)
		snprintf(to->text, sizeof to->text, "%s",
			 status == REDRIVE_OK ? ""
			 : from->text[0]      ? from->text
					      : redrive_status_text(status));
	return status;
}

/* ---- open, routes, run ---- */

static void on_ended(void *ctx, enum redrive_status why)
{
	struct redrive *r = ctx;

	pthread_mutex_lock(&r->mutex);
	r->failed = why != REDRIVE_OK;
	pthread_cond_broadcast(&r->ended);
	pthread_mutex_unlock(&r->mutex);
}

enum redrive_status redrive_open(const char *dir, const char *const settings[], struct redrive **out,
				 struct redrive_error *error)
{
	struct redrive *r = calloc(1, sizeof *r);
	struct rdv_engine_options o = {.dir = dir, .library = true, .ended = on_ended, .ended_ctx = r};
	struct rdv_error why = {0};
	enum redrive_status status = REDRIVE_NO_MEMORY;

	if (r && !pthread_mutex_init(&r->mutex, NULL) && !pthread_cond_init(&r->ended, NULL))
		status = rdv_library_engine_settings(settings, &o, &why);
	if (status == REDRIVE_OK)
		status = rdv_engine_open(&o, &r->engine, &why);
	if (status == REDRIVE_OK)
		*out = r;
	else
		free(r);
	return tell(status, &why, error);
}

static bool on_call(void *ctx, struct rdv_call *call)
{
	struct route *route = ctx;
	struct redrive_delivery d;
	enum redrive_verdict verdict;

	d.call = call;
	d.route = route;
	d.decoded = d.has_delay = false;
	d.id.size = 0;
	verdict = route->handler(route->ctx, &d);
	if (verdict == REDRIVE_LATER)
		return false;
	call->answer.transport = RDV_TRANSPORT_ANSWER;
	call->answer.explicit_verdict = true;
	call->answer.verdict = (unsigned)verdict < RDV_VERDICT_COUNT ? (enum rdv_verdict_kind)verdict : RDV_RETRY;
	call->answer.has_delay = d.has_delay;
	call->answer.delay_ms = d.has_delay ? d.delay_ms : 0;
	return true;
}

static enum redrive_status add_route(struct redrive *r, const char *name, const char *topic,
				     const char *const settings[], struct rdv_route_options *o,
				     struct redrive_error *error)
{
	struct rdv_error why = {0};
	enum redrive_status status = rdv_library_route_settings(settings, o, &why);

	o->name = name;
	o->topic = topic;
	o->http.timeout_ms = o->callback.timeout_ms;
	o->http.connections = o->target_policy.concurrency;
	o->lease.max = o->target_policy.concurrency;
	if (status == REDRIVE_OK)
		status = rdv_engine_add_route(r->engine, o, &why);
	return tell(status, &why, error);
}

enum redrive_status redrive_add_callback(struct redrive *r, const char *name, const char *topic,
					 const char *const settings[], redrive_handler handler, void *ctx,
					 struct redrive_error *error)
{
	struct route *route = calloc(1, sizeof *route);
	struct rdv_route_options o = {.handler = RDV_HANDLER_CALLBACK, .callback = {.call = on_call, .ctx = route}};
	enum redrive_status status;

	if (!route)
		return tell(REDRIVE_NO_MEMORY, &(struct rdv_error){0}, error);
	route->handler = handler;
	route->ctx = ctx;
	status = handler ? add_route(r, name, topic, settings, &o, error) : REDRIVE_INVALID;
	if (status != REDRIVE_OK) {
		free(route);
		return status;
	}
	route->calls = rdv_engine_handler(r->engine, name);
	route->next = r->routes;
	r->routes = route;
	return REDRIVE_OK;
}

enum redrive_status redrive_add_http(struct redrive *r, const char *name, const char *topic,
				     const char *const settings[], const char *url, struct redrive_error *error)
{
	struct rdv_route_options o = {.handler = RDV_HANDLER_HTTP, .http = {.url = url}};

	return add_route(r, name, topic, settings, &o, error);
}

enum redrive_status redrive_add_lease(struct redrive *r, const char *name, const char *topic,
				      const char *const settings[], struct redrive_error *error)
{
	struct rdv_route_options o = {.handler = RDV_HANDLER_LEASE};

	return add_route(r, name, topic, settings, &o, error);
}

enum redrive_status redrive_start(struct redrive *r, struct redrive_error *error)
{
	struct rdv_error why = {0};
	enum redrive_status status = rdv_engine_start(r->engine, &why);

	if (status == REDRIVE_OK) {
		pthread_mutex_lock(&r->mutex);
		r->started = true;
		pthread_mutex_unlock(&r->mutex);
	}
	return tell(status, &why, error);
}

enum redrive_status redrive_run(struct redrive *r, struct redrive_error *error)
{
	enum redrive_status status = r->started ? REDRIVE_OK : redrive_start(r, error);

	if (status != REDRIVE_OK)
		return status;
	pthread_mutex_lock(&r->mutex);
	while (!r->stopped && !r->failed)
		pthread_cond_wait(&r->ended, &r->mutex);
	status = r->failed ? REDRIVE_FAILED : REDRIVE_OK;
	pthread_mutex_unlock(&r->mutex);
	return tell(status, &(struct rdv_error){0}, error);
}

void redrive_stop(struct redrive *r)
{
	rdv_engine_stop(r->engine);
	pthread_mutex_lock(&r->mutex);
	r->stopped = true;
	pthread_cond_broadcast(&r->ended);
	pthread_mutex_unlock(&r->mutex);
}

void redrive_free(struct redrive *r)
{
	if (!r)
		return;
	rdv_engine_free(r->engine);
	while (r->routes) {
		struct route *next = r->routes->next;

		free(r->routes);
		r->routes = next;
	}
	pthread_cond_destroy(&r->ended);
	pthread_mutex_destroy(&r->mutex);
	free(r);
}

/* ---- deliveries ---- */

static const struct rdv_body *body_of(const struct redrive_delivery *d)
{
	struct redrive_delivery *own = (struct redrive_delivery *)d;

	if (!d->decoded) {
		if (rdv_body_decode(d->call->payload, &own->body) != REDRIVE_OK)
			own->body = (struct rdv_body){.flags = RDV_BODY_NULL_KEY | RDV_BODY_TOMBSTONE};
		own->decoded = true;
	}
	return &d->body;
}

/* Empty is not the same as absent. */
static struct redrive_bytes bytes(struct rdv_slice s, bool there)
{
	return (struct redrive_bytes){there ? (s.data ? s.data : (const uint8_t *)"") : NULL, there ? s.size : 0};
}

struct redrive_bytes redrive_body(const struct redrive_delivery *d)
{
	const struct rdv_body *b = body_of(d);

	return bytes(b->body, !(b->flags & RDV_BODY_TOMBSTONE));
}

struct redrive_bytes redrive_key(const struct redrive_delivery *d)
{
	const struct rdv_body *b = body_of(d);

	return bytes(b->key, !(b->flags & RDV_BODY_NULL_KEY));
}

struct redrive_bytes redrive_content_type(const struct redrive_delivery *d)
{
	return bytes(body_of(d)->content_type, body_of(d)->content_type.size > 0);
}

int redrive_header_at(const struct redrive_delivery *d, size_t index, struct redrive_bytes *name,
		      struct redrive_bytes *value)
{
	uint64_t count = 0;
	struct rdv_reader r = rdv_headers_begin(body_of(d)->headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&r, &h)) {
		if (index-- == 0) {
			*name = bytes(h.name, true);
			*value = bytes(h.value, true);
			return 1;
		}
	}
	return 0;
}

struct redrive_bytes redrive_header(const struct redrive_delivery *d, const char *name)
{
	uint64_t count = 0;
	struct rdv_reader r = rdv_headers_begin(body_of(d)->headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&r, &h))
		if (rdv_slice_is_nocase(h.name, name))
			return bytes(h.value, true);
	return (struct redrive_bytes){NULL, 0};
}

const char *redrive_message_id(const struct redrive_delivery *d)
{
	struct redrive_delivery *own = (struct redrive_delivery *)d;

	if (!d->id.size) {
		own->id = rdv_call_message_id(d->call, own->id_text);
		own->id_text[own->id.size] = 0;
	}
	return d->id_text;
}

struct redrive_bytes redrive_idempotency_key(const struct redrive_delivery *d)
{
	redrive_message_id(d);
	return bytes(rdv_call_idempotency_key(d->call, body_of(d), d->id), true);
}

const char *redrive_topic(const struct redrive_delivery *d)
{
	return d->call->topic;
}

uint32_t redrive_partition(const struct redrive_delivery *d)
{
	return d->call->partition;
}

uint64_t redrive_offset(const struct redrive_delivery *d)
{
	return d->call->offset;
}

uint32_t redrive_attempt(const struct redrive_delivery *d)
{
	return d->call->attempt;
}

const char *redrive_replay(const struct redrive_delivery *d)
{
	return d->call->replay;
}

/* ---- verdicts ---- */

void redrive_set_error(struct redrive_delivery *d, const char *error_class, const char *code, const char *text,
		       const char *stack)
{
	struct rdv_answer answer = d->call->answer;

	answer.failure = (struct rdv_failure){
		.class = rdv_slice_text(error_class),
		.code = rdv_slice_text(code),
		.text = rdv_slice_text(text),
		.stack = rdv_slice_text(stack),
	};
	rdv_call_set_answer(d->call, &answer);
}

void redrive_set_delay(struct redrive_delivery *d, int64_t delay_ms)
{
	d->has_delay = delay_ms >= 0;
	d->delay_ms = delay_ms;
}

static struct rdv_answer answer_of(const struct redrive_answer *a)
{
	return (struct rdv_answer){
		.transport = RDV_TRANSPORT_ANSWER,
		.exit_code = -1,
		.explicit_verdict = true,
		.verdict = (enum rdv_verdict_kind)a->verdict,
		.has_delay = a->has_delay && a->delay_ms >= 0,
		.delay_ms = a->delay_ms,
		.failure = {.class = rdv_slice_text(a->error_class),
			    .code = rdv_slice_text(a->code),
			    .text = rdv_slice_text(a->text),
			    .stack = rdv_slice_text(a->stack)},
	};
}

struct redrive_ticket redrive_later(const struct redrive_delivery *d)
{
	return (struct redrive_ticket){d->route, d->call->id};
}

enum redrive_status redrive_answer(struct redrive *r, struct redrive_ticket ticket, const struct redrive_answer *a)
{
	struct rdv_answer answer = answer_of(a);
	struct route *route = ticket.route;

	(void)r;
	if (!route || (unsigned)a->verdict >= RDV_VERDICT_COUNT)
		return REDRIVE_INVALID;
	return rdv_callback_answer(route->calls, ticket.call, &answer);
}

/* ---- publish ---- */

#define FEW 16

static void turn_message(const struct redrive_message *from, struct rdv_wall now, struct rdv_message *to)
{
	*to = (struct rdv_message){
		.has_key = from->key != NULL,
		.key = rdv_slice(from->key, from->key ? from->key_size : 0),
		.id = rdv_slice_text(from->id),
		.content_type = rdv_slice_text(from->content_type),
		.traceparent = rdv_slice_text(from->traceparent),
		.body = rdv_slice(from->body, from->body_size),
		.header_count = from->header_count,
		.tombstone = from->tombstone != 0,
		.not_before = {from->delay_ms > 0 ? rdv_ms_add(now.ms, from->delay_ms) : 0},
	};
}

static size_t count_headers(const struct redrive_message *m, size_t count)
{
	size_t headers = 0;

	for (size_t i = 0; i < count; i++)
		headers += m[i].header_count;
	return headers;
}

struct batch {
	struct rdv_message few[FEW], *messages;
	struct rdv_published_at few_at[FEW], *at;
	struct rdv_header *headers;
	size_t count;
};

static enum redrive_status turn_batch(struct batch *b, const struct redrive_message *from, size_t count)
{
	size_t headers = count_headers(from, count), next = 0;
	struct rdv_wall now = rdv_wall_now();

	b->count = count;
	b->messages = count > FEW ? calloc(count, sizeof *b->messages) : b->few;
	b->at = count > FEW ? calloc(count, sizeof *b->at) : b->few_at;
	b->headers = headers ? calloc(headers, sizeof *b->headers) : NULL;
	if (!b->messages || !b->at || (headers && !b->headers))
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < count; i++) {
		turn_message(&from[i], now, &b->messages[i]);
		b->messages[i].headers = b->headers + next;
		for (size_t k = 0; k < from[i].header_count; k++)
			b->headers[next++] =
				(struct rdv_header){rdv_slice_text(from[i].headers[k].name),
						    rdv_slice(from[i].headers[k].value, from[i].headers[k].value_size)};
	}
	return REDRIVE_OK;
}

static void free_batch(struct batch *b)
{
	if (b->messages != b->few)
		free(b->messages);
	if (b->at != b->few_at)
		free(b->at);
	free(b->headers);
}

enum redrive_status redrive_publish(struct redrive *r, const char *topic, const struct redrive_message *messages,
				    size_t count, struct redrive_position *positions, struct redrive_error *error)
{
	struct batch b;
	struct rdv_error why;
	enum redrive_status status = turn_batch(&b, messages, count);

	why.text[0] = 0;
	if (status == REDRIVE_OK)
		status = rdv_engine_publish_wait(r->engine, rdv_slice_text(topic), b.messages, count, b.at, &why);
	for (size_t i = 0; positions && status == REDRIVE_OK && i < count; i++)
		positions[i] = (struct redrive_position){b.at[i].partition, b.at[i].duplicate, b.at[i].offset};
	free_batch(&b);
	return tell(status, &why, error);
}

enum redrive_status redrive_publish_async(struct redrive *r, const char *topic, const struct redrive_message *messages,
					  size_t count, redrive_published done, void *ctx, struct redrive_error *error)
{
	struct batch b;
	struct rdv_error why;
	enum redrive_status status = turn_batch(&b, messages, count);

	why.text[0] = 0;
	if (status == REDRIVE_OK)
		status = rdv_engine_publish(r->engine, rdv_slice_text(topic), b.messages, count, b.at, done, ctx, &why);
	free_batch(&b); /* the engine has copied all of it */
	return tell(status, &why, error);
}

/* ---- leases ---- */

struct leasing {
	redrive_leased each;
	void *ctx;
};

static void on_leased(void *ctx, const struct rdv_leased *leased)
{
	struct leasing *l = ctx;
	struct redrive_delivery d;

	d.call = leased->call;
	d.route = NULL;
	d.decoded = d.has_delay = false;
	d.id.size = 0;
	l->each(l->ctx, leased->token, &d);
}

enum redrive_status redrive_lease(struct redrive *r, const char *route, uint32_t max, int64_t wait_ms,
				  int64_t lease_for_ms, redrive_leased each, void *ctx)
{
	struct leasing l = {each, ctx};
	struct rdv_handler *handler;
	enum redrive_status status = rdv_engine_lease_handler(r->engine, route, &handler);

	return status == REDRIVE_OK ? rdv_lease_take(handler, max, wait_ms, lease_for_ms, on_leased, &l) : status;
}

enum redrive_status redrive_lease_answer(struct redrive *r, const char *token, const struct redrive_answer *a)
{
	struct rdv_lease_verdict v = {.token = token, .answer = answer_of(a)};

	if (!token || (unsigned)a->verdict >= RDV_VERDICT_COUNT)
		return REDRIVE_INVALID;
	return rdv_engine_lease_verdict(r->engine, &v);
}

enum redrive_status redrive_lease_extend(struct redrive *r, const char *token, int64_t lease_for_ms)
{
	struct rdv_handler *handler = rdv_engine_lease_of(r->engine, token);
	struct rdv_wall expires;

	return handler ? rdv_lease_extend(handler, token, lease_for_ms, &expires) : REDRIVE_NOT_FOUND;
}

/* ---- status ---- */

enum redrive_status redrive_route_counts(struct redrive *r, const char *route, struct redrive_counts *out)
{
	struct rdv_route_status *s = NULL;
	size_t count = 0;
	enum redrive_status status = rdv_engine_routes(r->engine, route, &s, &count);

	if (status != REDRIVE_OK)
		return status;
	*out = (struct redrive_counts){
		.received = s->account.received,
		.acked = s->account.acked,
		.ready = s->account.ready,
		.waiting = s->account.waiting,
		.held = s->account.held,
		.in_flight = s->account.in_flight,
		.dead = s->account.dead,
		.dropped = s->account.dropped,
		.revoked = s->account.revoked,
		.first = s->account.first,
		.retries = s->account.retries,
		.failed = s->account.failed,
		.timeouts = s->account.timeouts,
		.rejected = s->account.rejected,
		.outage = s->account.outage,
	};
	free(s);
	return REDRIVE_OK;
}

enum redrive_status redrive_pause(struct redrive *r, const char *route, int paused)
{
	return rdv_engine_pause(r->engine, route, paused != 0);
}

enum redrive_status redrive_where(struct redrive *r, const char *route, const char *id, const char **state)
{
	struct rdv_message_status s;
	enum redrive_status status = rdv_engine_where(r->engine, rdv_slice_text(id), &s);

	if (status != REDRIVE_OK)
		return status;
	status = REDRIVE_NOT_FOUND;
	for (size_t i = 0; i < s.route_count; i++) {
		if (strcmp(s.routes[i].route, route) != 0)
			continue;
		*state = rdv_state_name(s.routes[i].where.state);
		status = REDRIVE_OK;
	}
	rdv_message_status_done(&s);
	return status;
}
