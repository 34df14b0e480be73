/* messages.c - /v1/topics/{topic}/messages and /v1/messages: publish, look up, revoke.
 *
 * Publishing frames the message into the log at once, on this thread, suspends the connection, and answers when the log
 * says it is durable. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../base/text.h"
#include "../api.h"
#include "../fields.h"
#include "../json.h"
#include "../ndjson.h"
#include "resources.h"

#define HEADERS_MAX 256u

struct publish {
	enum redrive_status status;
	struct rdv_exchange *x;
	bool given, refused; /* given to the engine; refused: not OK at once, error says why */
	struct rdv_error error;
	struct rdv_message one;
	struct rdv_header *headers; /* owns */
	struct rdv_buffer *values;  /* owns: decoded header values, one a header; the others are empty */
	struct rdv_buffer key;      /* owns: decoded */
	size_t header_count, header_capacity;
	uint64_t header_bytes;
	struct rdv_batch batch;
	struct rdv_published_at *results, one_result;
	size_t count;
};

static void free_publish(void *state)
{
	struct publish *p = state;
	for (size_t i = 0; i < p->header_count; i++)
		rdv_buffer_done(&p->values[i]);
	free(p->values);
	free(p->headers);
	rdv_buffer_done(&p->key);
	rdv_batch_done(&p->batch);
	if (p->results != &p->one_result)
		free(p->results);
	free(p);
}

/* ---- reading the request ---- */

static bool more_headers(struct publish *p)
{
	size_t capacity = p->header_capacity ? 2 * p->header_capacity : 8;
	struct rdv_header *headers = realloc(p->headers, capacity * sizeof *headers);
	if (headers)
		p->headers = headers;
	struct rdv_buffer *values = realloc(p->values, capacity * sizeof *values);
	if (values)
		p->values = values;
	if (!headers || !values)
		return false;
	p->header_capacity = capacity;
	return true;
}

static enum MHD_Result take_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct publish *p = ctx;
	(void)kind;
	if (strncasecmp(name, "Redrive-Header-", 15) != 0)
		return MHD_YES;
	if (name[15] == '\0' || p->header_count == HEADERS_MAX) {
		p->status = REDRIVE_INVALID;
		return MHD_NO;
	}
	if (p->header_count == p->header_capacity && !more_headers(p)) {
		p->status = REDRIVE_NO_MEMORY;
		return MHD_NO;
	}
	struct rdv_header *h = &p->headers[p->header_count];
	h->name = rdv_slice_text(name + 15);
	h->value = rdv_field_value(value ? value : "", &p->values[p->header_count++]);
	p->header_bytes += h->name.size + h->value.size;
	return MHD_YES;
}

static bool read_key(struct rdv_exchange *x, struct publish *p)
{
	const char *key = rdv_exchange_header(x, "Redrive-Key");
	if (!key)
		return true;
	rdv_buffer_init(&p->key, 1 << 20);
	if (rdv_percent_decode(&p->key, rdv_slice_text(key)) != REDRIVE_OK) {
		rdv_reply_field(x, "Redrive-Key", "holds a %% that is no escape: encode the key's bytes, %% as %%25");
		return false;
	}
	p->one.has_key = true;
	p->one.key = rdv_buffer_as_slice(&p->key);
	return true;
}

static bool read_due(struct rdv_exchange *x, struct publish *p)
{
	const char *field, *wrong;
	if (rdv_field_due(rdv_exchange_header(x, "Redrive-Delay"), rdv_exchange_header(x, "Redrive-Not-Before"),
			  rdv_wall_now(), &p->one.not_before, &field, &wrong) == REDRIVE_OK)
		return true;
	rdv_reply_field(x, field, "%s", wrong);
	return false;
}

static bool read_one(struct rdv_exchange *x, struct publish *p)
{
	const char *null = rdv_exchange_header(x, "Redrive-Null"), *id = rdv_exchange_header(x, "Redrive-Id");
	p->one.body = rdv_buffer_as_slice(&x->body);
	p->one.content_type = rdv_slice_text(rdv_exchange_header(x, "Content-Type"));
	p->one.traceparent = rdv_slice_text(rdv_exchange_header(x, "traceparent"));
	p->one.id = rdv_slice_text(id);
	if (id && !*id) {
		rdv_reply_field(x, "Redrive-Id", "is empty: leave it out");
		return false;
	}
	if (null && strcmp(null, "true") != 0 && strcmp(null, "false") != 0) {
		rdv_reply_field(x, "Redrive-Null", "must be true or false");
		return false;
	}
	p->one.tombstone = null && strcmp(null, "true") == 0;
	if (p->one.tombstone && x->body.size) {
		rdv_reply_field(x, "Redrive-Null", "says that there is no body, but there is one");
		return false;
	}
	MHD_get_connection_values(x->connection, MHD_HEADER_KIND, take_header, p);
	if (p->status == REDRIVE_NO_MEMORY) {
		rdv_reply_status(x, p->status, NULL);
		return false;
	}
	if (p->status != REDRIVE_OK) {
		rdv_reply_field(x, "Redrive-Header", "at most %u headers with a name each", HEADERS_MAX);
		return false;
	}
	if (p->header_bytes > x->api->headers_max) {
		rdv_reply_problem(x, 413, NULL,
				  "the headers have %" PRIu64 " bytes; %" PRIu64
				  " are the most that limits.headers allows",
				  p->header_bytes, x->api->headers_max);
		return false;
	}
	p->one.headers = p->headers;
	p->one.header_count = p->header_count;
	p->count = 1;
	p->results = &p->one_result;
	return read_key(x, p) && read_due(x, p);
}

static bool read_batch(struct rdv_exchange *x, struct publish *p)
{
	struct rdv_batch_limits limits = {x->api->body_max, x->api->headers_max, rdv_wall_now()};
	enum redrive_status status = rdv_batch_parse(rdv_buffer_as_slice(&x->body), &limits, &p->batch);
	p->count = p->batch.count;
	if (status == REDRIVE_OK)
		p->results = calloc(p->count, sizeof *p->results);
	if (status == REDRIVE_OK && p->results)
		return true;
	if (status == REDRIVE_OK || status == REDRIVE_NO_MEMORY) {
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
		return false;
	}
	char pointer[32];
	snprintf(pointer, sizeof pointer, "line %zu", p->batch.bad_line);
	json_t *errors = json_pack("[{s:s, s:I, s:s}]", "pointer", pointer, "line", (json_int_t)p->batch.bad_line,
				   "detail", p->batch.detail);
	rdv_reply_problem(x, status == REDRIVE_TOO_LARGE ? 413 : 422, errors, "line %zu: %s; nothing was taken",
			  p->batch.bad_line, p->batch.detail);
	return false;
}

/* ---- publishing ---- */

static void published(void *ctx, enum redrive_status status)
{
	struct publish *p = ctx;
	p->status = status;
	rdv_exchange_resume(p->x);
}

/* ---- the answer ---- */

/* A batch has thousands of positions: they are written as they are, not as a tree of values. `topic` is quoted JSON. */
static void append_position(struct rdv_buffer *out, struct rdv_slice topic, const struct rdv_published_at *at,
			    bool whole)
{
	struct rdv_slice bare = rdv_slice(topic.data, topic.size - 1);

	rdv_buffer_text(out, "{\"id\":");
	rdv_buffer_slice(out, bare);
	rdv_buffer_text(out, "-");
	rdv_buffer_decimal(out, at->partition);
	rdv_buffer_text(out, "-");
	rdv_buffer_decimal(out, at->offset);
	rdv_buffer_text(out, "\"");
	if (whole) {
		rdv_buffer_text(out, ",\"topic\":");
		rdv_buffer_slice(out, topic);
	}
	rdv_buffer_text(out, ",\"partition\":");
	rdv_buffer_decimal(out, at->partition);
	rdv_buffer_text(out, ",\"offset\":");
	rdv_buffer_decimal(out, at->offset);
	rdv_buffer_text(out, at->duplicate ? ",\"duplicate\":true}" : ",\"duplicate\":false}");
}

static size_t append_items(struct rdv_buffer *out, struct rdv_slice topic, const struct publish *p)
{
	size_t accepted = 0;

	for (size_t i = 0; i < p->count; i++)
		accepted += !p->results[i].duplicate;
	rdv_buffer_text(out, "{\"accepted\":");
	rdv_buffer_decimal(out, accepted);
	rdv_buffer_text(out, ",\"items\":[");
	for (size_t i = 0; i < p->count; i++) {
		rdv_buffer_text(out, i ? "," : "");
		append_position(out, topic, &p->results[i], false);
	}
	rdv_buffer_text(out, "]}");
	return accepted;
}

static void reply_positions(struct rdv_exchange *x, const struct publish *p)
{
	json_t *topic = json_string(x->params[0]);
	char *quoted = topic ? json_dumps(topic, JSON_ENCODE_ANY) : NULL;
	struct rdv_buffer out;
	bool fresh;

	rdv_buffer_init(&out, 0);
	if (x->is_batch) {
		fresh = quoted && append_items(&out, rdv_slice_text(quoted), p);
	} else {
		fresh = !p->one_result.duplicate;
		append_position(&out, rdv_slice_text(quoted ? quoted : "\"\""), &p->one_result, true);
	}
	if (!quoted || out.failed)
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
	else
		rdv_reply_bytes(x, fresh ? 201 : 200, "application/json", rdv_buffer_as_slice(&out), NULL);
	rdv_buffer_done(&out);
	free(quoted);
	json_decref(topic);
}

static void answer_published(struct rdv_exchange *x, const struct publish *p)
{
	if (p->refused) {
		if (p->status == REDRIVE_INVALID)
			rdv_reply_problem(x, 422, NULL, "%s", p->error.text);
		else
			rdv_reply_status(x, p->status, p->error.text);
		return;
	}
	if (p->status != REDRIVE_OK) {
		rdv_reply_problem(x, 503, NULL, "not durable, so not taken: %s; publish it again later",
				  redrive_status_text(p->status));
		return;
	}
	reply_positions(x, p);
}

/* A token with a scope may publish to topics that one of its routes reads. */
static bool covers_topic(struct rdv_exchange *x, const char *topic)
{
	return x->who.route_count == 0 || rdv_engine_topic_read_by(x->engine, topic, rdv_exchange_covers_route, x);
}

/* What is to be published, kept by the exchange; NULL: answered. */
static struct publish *read_publish(struct rdv_exchange *x)
{
	struct publish *p = calloc(1, sizeof *p);
	if (!p) {
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
		return NULL;
	}
	p->x = x;
	x->state = p;
	x->state_free = free_publish;
	if (!covers_topic(x, x->params[0])) {
		rdv_reply_problem(x, 403, NULL, "the token '%s' covers no route that reads this topic", x->who.name);
		return NULL;
	}
	return (x->is_batch ? read_batch(x, p) : read_one(x, p)) ? p : NULL;
}

void rdv_resource_publish(struct rdv_exchange *x)
{
	struct publish *p = x->state;
	if (p && p->given) {
		answer_published(x, p);
		return;
	}
	if (!p && !(p = read_publish(x)))
		return;
	if (x->on_worker) { /* parsed: a connection that is suspended already cannot be suspended for the journal */
		x->again = true;
		return;
	}
	p->given = true;
	rdv_exchange_suspend(x); /* before publishing: it may be durable before we are back */
	enum redrive_status status = rdv_engine_publish(x->engine, rdv_slice(x->params[0], x->param_sizes[0]),
							x->is_batch ? p->batch.messages : &p->one, p->count, p->results,
							published, p, &p->error);
	if (status == REDRIVE_OK)
		return;
	p->refused = true;
	p->status = status;
	rdv_exchange_resume(x); /* it runs again and answers */
}

/* ---- looking up ---- */

/* Routes outside the token's scope are left out. */
static void keep_scope(const struct rdv_exchange *x, struct rdv_message_status *m)
{
	size_t kept = 0;
	for (size_t i = 0; i < m->route_count; i++)
		if (rdv_exchange_covers(x, m->routes[i].route))
			m->routes[kept++] = m->routes[i];
	m->route_count = kept;
}

void rdv_resource_message_get(struct rdv_exchange *x)
{
	struct rdv_message_status m;
	enum redrive_status status = rdv_engine_where(x->engine, rdv_slice(x->params[0], x->param_sizes[0]), &m);
	if (status != REDRIVE_OK) {
		rdv_reply_status(x, status,
				 status == REDRIVE_NOT_FOUND
					 ? "no message has this id: a position that was never given out, or a "
					   "producer's id that is not known (any more)"
					 : NULL);
		return;
	}
	keep_scope(x, &m);
	if (m.route_count == 0)
		rdv_reply_status(x, REDRIVE_NOT_FOUND, "no route of this token reads that topic");
	else
		rdv_reply_json(x, 200, rdv_json_message(&m, x->desk));
	rdv_message_status_done(&m);
}

static bool read_cursor(struct rdv_exchange *x, uint64_t *next)
{
	const char *text = rdv_exchange_query(x, "cursor");
	char *end;
	*next = 0;
	if (!text)
		return true;
	if (text[0] == 'k' && text[1]) {
		*next = strtoull(text + 1, &end, 16);
		if (*end == '\0' && *next)
			return true;
	}
	rdv_reply_problem(x, 400, NULL, "this cursor is not one of ours");
	return false;
}

void rdv_resource_messages_list(struct rdv_exchange *x)
{
	size_t limit, count = 0;
	uint64_t next;
	struct rdv_message_status *found = NULL;
	if (!rdv_exchange_limit(x, &limit) || !read_cursor(x, &next))
		return;
	if (!rdv_exchange_query(x, "key")) {
		rdv_reply_problem(x, 400, NULL, "name a key: /v1/messages?key=KEY");
		return;
	}
	const char *route = rdv_exchange_query(x, "route");
	enum redrive_status status = rdv_engine_where_key(x->engine, rdv_exchange_query_bytes(x, "key"), route, limit,
							  &next, &found, &count);
	if (status != REDRIVE_OK) {
		rdv_reply_status(x, status, status == REDRIVE_NOT_FOUND ? "there is no such route" : NULL);
		return;
	}
	json_t *items = json_array();
	for (size_t i = 0; i < count; i++) {
		keep_scope(x, &found[i]);
		if (found[i].route_count)
			json_array_append_new(items, rdv_json_message(&found[i], x->desk));
		rdv_message_status_done(&found[i]);
	}
	free(found);
	char cursor[32] = "";
	if (next)
		snprintf(cursor, sizeof cursor, "k%" PRIx64, next);
	rdv_reply_json(x, 200, rdv_json_list(items, cursor));
}

/* ---- revoking: a message that is being delivered is looked at again and again, without holding up the thread ---- */

#define REVOKE_WAIT_MS 60000
#define REVOKE_LOOK_MS 20

struct revoking {
	int64_t deadline_ms;
	char *reason; /* owns */
	struct rdv_revocation result;
};

static void free_revoking(void *state)
{
	struct revoking *r = state;
	rdv_revocation_done(&r->result);
	free(r->reason);
	free(r);
}

static json_t *revoked_routes(const struct rdv_revocation *r)
{
	json_t *list = json_array();
	for (size_t i = 0; i < r->count; i++)
		json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "route", r->routes[i].route, "revoked",
						      r->routes[i].revoked && !r->routes[i].open, "state",
						      rdv_state_name(r->routes[i].state)));
	return list;
}

/* Nothing was revoked: what became of it on each route. */
static void refuse_revoke(struct rdv_exchange *x, const struct rdv_revocation *r)
{
	struct rdv_buffer text;
	json_t *errors = json_array();
	rdv_buffer_init(&text, 8192);
	for (size_t i = 0; i < r->count; i++) {
		const char *state = rdv_state_name(r->routes[i].state);
		rdv_buffer_printf(&text, "%s%s: %s", i ? ", " : "", r->routes[i].route, state);
		json_array_append_new(errors, json_pack("{s:s, s:s}", "pointer", r->routes[i].route, "detail", state));
	}
	rdv_reply_problem(x, 409, errors, "the message can be revoked nowhere any more: %s", rdv_buffer_string(&text));
	rdv_buffer_done(&text);
}

static void answer_revoke(struct rdv_exchange *x, const struct revoking *r)
{
	if (r->result.revoked == 0 && r->result.open) {
		rdv_reply_status(x, REDRIVE_TIMEOUT,
				 "the message is still being delivered: it ends as revoked unless it is acknowledged");
	} else if (r->result.revoked == 0) {
		refuse_revoke(x, &r->result);
	} else {
		rdv_desk_audit(x->desk, x->who.name, "revoke", x->params[0], r->reason ? r->reason : "");
		rdv_reply_json(x, 200,
			       json_pack("{s:s, s:s, s:o}", "id", x->params[0], "state", "revoked", "routes",
					 revoked_routes(&r->result)));
	}
}

/* Begins, or looks again at what was open. */
static void go_on_revoking(struct rdv_exchange *x, const char *route)
{
	struct rdv_slice id = rdv_slice(x->params[0], x->param_sizes[0]);
	struct revoking *r = x->state;
	struct rdv_error error = {""};
	enum redrive_status status =
		r->deadline_ms ? rdv_engine_revoked(x->engine, id, &r->result)
			       : rdv_engine_revoke(x->engine, id, route, rdv_slice_text(r->reason), &r->result, &error);
	if (!r->deadline_ms)
		r->deadline_ms = rdv_mono_now().ms + REVOKE_WAIT_MS;
	if (status != REDRIVE_OK)
		rdv_reply_status(x, status, error.text[0] ? error.text : NULL);
	else if (r->result.open && r->deadline_ms > rdv_mono_now().ms)
		rdv_sleep(x, REVOKE_LOOK_MS);
	else
		answer_revoke(x, r);
}

static bool begin_revoking(struct rdv_exchange *x, const json_t *reason)
{
	struct revoking *r = calloc(1, sizeof *r);
	if (!r) {
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
		return false;
	}
	r->reason = reason ? strdup(json_string_value(reason)) : NULL;
	x->state = r;
	x->state_free = free_revoking;
	return true;
}

void rdv_resource_message_revoke(struct rdv_exchange *x)
{
	static const char *const known[] = {"route", "reason", NULL};
	if (x->state) {
		go_on_revoking(x, NULL);
		return;
	}
	json_t *body = rdv_exchange_json(x, true);
	if (!body)
		return;
	const json_t *route = json_object_get(body, "route"), *reason = json_object_get(body, "reason");
	if (!rdv_exchange_members(x, body, known)) {
		json_decref(body);
		return;
	}
	if ((route && !json_is_string(route)) || (reason && !json_is_string(reason))) {
		rdv_reply_field(x, route && !json_is_string(route) ? "/route" : "/reason", "must be a text");
	} else if ((route && !rdv_exchange_covers(x, json_string_value(route))) || (!route && x->who.route_count)) {
		rdv_reply_problem(x, 403, NULL, "the token '%s' does not cover that route: name one of its own",
				  x->who.name);
	} else if (begin_revoking(x, reason)) {
		go_on_revoking(x, json_string_value(route));
	}
	json_decref(body);
}
