/* leases.c - /v1/routes/{name}/lease and /v1/leases: pulling messages, and their verdicts.
 *
 * Waiting for a message suspends the connection; the lease handler wakes it when a call is there, the timer at the
 * deadline. A verdict suspends it until the lane has decided and its decision is durable. */
#include <stdio.h>
#include <stdlib.h>
#include "../../base/text.h"
#include "../api.h"
#include "../json.h"
#include "resources.h"

#define LEASE_MAX 1000
#define WAIT_MAX_MS 60000
#define MANY_MAX 10000u

struct take {
	struct rdv_exchange *x;
	struct rdv_handler *handler;
	uint32_t max;
	int64_t deadline_ms, lease_for_ms;
	bool notified; /* registered at the handler */
	json_t *items; /* owns */
};

static void free_take(void *state)
{
	struct take *t = state;
	if (t->notified) /* the client went away while it waited */
		rdv_lease_forget(t->handler, t);
	json_decref(t->items);
	free(t);
}

/* ---- a leased message as JSON ---- */

static void set(json_t *o, const char *name, json_t *value)
{
	json_object_set_new(o, name, value);
}

static json_t *headers_json(struct rdv_slice headers)
{
	json_t *list = json_array();
	uint64_t count;
	struct rdv_header h;
	struct rdv_reader r = rdv_headers_begin(headers, &count);
	while (rdv_headers_next(&r, &h))
		json_array_append_new(
			list, json_pack("[o, o]", rdv_json_text_or_empty(h.name), rdv_json_text_or_empty(h.value)));
	return list;
}

static json_t *message_json(const struct rdv_call *call)
{
	struct rdv_body body;
	char id[256];
	json_t *o = json_object();
	if (rdv_body_decode(call->payload, &body) != REDRIVE_OK)
		memset(&body, 0, sizeof body);
	rdv_message_id_text(id, call->topic, call->partition, call->offset);
	set(o, "id", json_string(id));
	set(o, "route", json_string(call->route));
	set(o, "topic", json_string(call->topic));
	set(o, "partition", json_integer(call->partition));
	set(o, "offset", json_integer((json_int_t)call->offset));
	rdv_json_key(o, !(body.flags & RDV_BODY_NULL_KEY), body.key);
	set(o, "headers", headers_json(body.headers));
	set(o, "content_type", rdv_json_slice(body.content_type));
	set(o, "traceparent", rdv_json_slice(body.traceparent));
	set(o, "produced_at", rdv_json_time(body.produced_at));
	set(o, "first_failed_at", rdv_json_time(call->first_failed_at));
	set(o, "attempt", json_integer(call->attempt));
	set(o, "epoch", json_integer((json_int_t)call->epoch));
	set(o, "replay", call->replay ? json_string(call->replay) : json_null());
	struct rdv_slice key = call->idempotency_key.size ? call->idempotency_key : body.publish_id;
	set(o, "idempotency_key", key.size ? rdv_json_slice(key) : json_string(id));
	if (body.flags & RDV_BODY_TOMBSTONE) {
		set(o, "null", json_true());
		return o;
	}
	struct rdv_buffer encoded;
	rdv_buffer_init(&encoded, 0);
	rdv_base64_encode(&encoded, body.body);
	set(o, "body_base64", json_string(rdv_buffer_string(&encoded)));
	rdv_buffer_done(&encoded);
	return o;
}

static void add_leased(void *ctx, const struct rdv_leased *leased)
{
	struct take *t = ctx;
	json_array_append_new(t->items,
			      json_pack("{s:s, s:o, s:o}", "token", leased->token, "expires_at",
					rdv_json_time(leased->expires_at), "message", message_json(leased->call)));
}

/* ---- taking ---- */

static bool read_number(struct rdv_exchange *x, const json_t *body, const char *name, const int64_t range[2],
			int64_t *out)
{
	const json_t *value = json_object_get(body, name);
	if (!value)
		return true;
	if (json_is_integer(value) && json_integer_value(value) >= range[0] && json_integer_value(value) <= range[1]) {
		*out = json_integer_value(value);
		return true;
	}
	char pointer[64];
	snprintf(pointer, sizeof pointer, "/%s", name);
	rdv_reply_field(x, pointer, "must be a whole number from %lld to %lld", (long long)range[0],
			(long long)range[1]);
	return false;
}

static bool read_take(struct rdv_exchange *x, struct take *t)
{
	static const char *const known[] = {"max", "wait_ms", "lease_for_ms", NULL};
	int64_t max = 1, wait = 0;
	json_t *body = rdv_exchange_json(x, true);
	if (!body)
		return false;
	bool good = rdv_exchange_members(x, body, known) &&
		    read_number(x, body, "max", (const int64_t[]){1, LEASE_MAX}, &max) &&
		    read_number(x, body, "wait_ms", (const int64_t[]){0, WAIT_MAX_MS}, &wait) &&
		    read_number(x, body, "lease_for_ms", (const int64_t[]){100, 86400000}, &t->lease_for_ms);
	json_decref(body);
	t->max = (uint32_t)max;
	t->deadline_ms = rdv_mono_now().ms + wait;
	return good;
}

static bool begin_take(struct rdv_exchange *x)
{
	struct rdv_handler *handler;
	if (!rdv_exchange_covers(x, x->params[0])) {
		rdv_reply_problem(x, 403, NULL, "the token '%s' does not cover this route", x->who.name);
		return false;
	}
	enum redrive_status status = rdv_engine_lease_handler(x->engine, x->params[0], &handler);
	if (status != REDRIVE_OK) {
		rdv_reply_status(x, status,
				 status == REDRIVE_NOT_FOUND  ? "there is no such route"
				 : status == REDRIVE_CONFLICT ? "this route has no lease handler"
							      : NULL);
		return false;
	}
	struct take *t = calloc(1, sizeof *t);
	if (!t) {
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
		return false;
	}
	t->x = x;
	t->handler = handler;
	t->items = json_array();
	x->state = t;
	x->state_free = free_take;
	return read_take(x, t);
}

static void ready(void *ctx)
{
	struct take *t = ctx;
	rdv_sleep_wake(t->x->api, t->x);
}

void rdv_resource_lease_take(struct rdv_exchange *x)
{
	if (!x->state && !begin_take(x))
		return;
	struct take *t = x->state;
	if (t->notified)
		rdv_lease_forget(t->handler, t);
	t->notified = false;
	const char *why;
	enum redrive_status status = rdv_lease_take(t->handler, t->max, 0, t->lease_for_ms, add_leased, t);
	int64_t left = t->deadline_ms - rdv_mono_now().ms;
	bool wait = status == REDRIVE_TIMEOUT || (status == REDRIVE_OK && json_array_size(t->items) == 0);
	if (wait && left > 0 && rdv_engine_ready(x->engine, &why)) {
		t->notified = true;
		rdv_sleep(x, left);
		if (rdv_lease_notify(t->handler, ready, t) != REDRIVE_OK)
			rdv_sleep_wake(x->api, x);
		return;
	}
	if (status != REDRIVE_OK && status != REDRIVE_TIMEOUT) {
		rdv_reply_status(x, status, NULL);
		return;
	}
	rdv_reply_json(x, 200, json_pack("{s:O}", "items", t->items));
}

/* ---- verdicts ---- */

static struct rdv_slice member_text(const json_t *body, const char *name)
{
	const json_t *value = json_object_get(body, name);
	return json_is_string(value) ? rdv_slice(json_string_value(value), json_string_length(value))
				     : rdv_slice(NULL, 0);
}

/* What is wrong with the body of a verdict, or NULL. */
static const char *read_verdict(const json_t *body, const char *verb, struct rdv_answer *answer)
{
	memset(answer, 0, sizeof *answer);
	answer->exit_code = -1;
	answer->explicit_verdict = true;
	if (!rdv_verdict_parse(rdv_slice_text(verb), &answer->verdict))
		return "the verdict must be ack, retry, reject, defer, drop or extend";
	const json_t *delay = json_object_get(body, "delay_ms");
	if (delay && (!json_is_integer(delay) || json_integer_value(delay) < 0))
		return "delay_ms must be a whole number, not negative";
	const char *texts[] = {"class", "text", "code", "stack", "root_class"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (json_object_get(body, texts[i]) && !json_is_string(json_object_get(body, texts[i])))
			return "class, text, code, root_class and stack must be texts";
	answer->has_delay = delay != NULL;
	answer->delay_ms = json_integer_value(delay);
	answer->failure.class = member_text(body, "class");
	answer->failure.text = member_text(body, "text");
	answer->failure.code = member_text(body, "code");
	answer->failure.root_class = member_text(body, "root_class");
	answer->failure.stack = rdv_slice_cut_utf8(member_text(body, "stack"), RDV_ERROR_STACK_BYTES);
	return NULL;
}

static void extend(struct rdv_exchange *x, const json_t *body)
{
	struct rdv_handler *handler = rdv_engine_lease_of(x->engine, x->params[0]);
	int64_t lease_for = 0;
	struct rdv_wall expires;
	if (!read_number(x, body, "lease_for_ms", (const int64_t[]){100, 86400000}, &lease_for))
		return;
	enum redrive_status status =
		handler ? rdv_lease_extend(handler, x->params[0], lease_for, &expires) : REDRIVE_NOT_FOUND;
	if (status == REDRIVE_OK)
		rdv_reply_json(x, 200,
			       json_pack("{s:s, s:s, s:o}", "token", x->params[0], "state", "in_flight", "expires_at",
					 rdv_json_time(expires)));
	else
		rdv_reply_status(x, status,
				 status == REDRIVE_NOT_FOUND ? "no lease has this token"
							     : "this lease has ended: only a verdict may come late");
}

/* One or many: given together, answered when all are decided and durable. */
struct verdicts {
	struct rdv_exchange *x;
	json_t *body; /* owns; the answers borrow from it */
	struct rdv_lease_batch batch;
	struct rdv_lease_verdict *list; /* owns */
	enum redrive_status status;     /* of the batch */
};

static void free_verdicts(void *state)
{
	struct verdicts *v = state;
	json_decref(v->body);
	free(v->list);
	free(v);
}

static struct verdicts *begin_verdicts(struct rdv_exchange *x, json_t *body, size_t count)
{
	struct verdicts *v = calloc(1, sizeof *v);
	if (v)
		v->list = calloc(count + 1, sizeof *v->list);
	if (!v || !v->list) {
		free(v);
		json_decref(body);
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
		return NULL;
	}
	v->x = x;
	v->body = body;
	v->batch.count = count;
	v->batch.verdicts = v->list;
	x->state = v;
	x->state_free = free_verdicts;
	return v;
}

static void verdicts_done(void *ctx, enum redrive_status status)
{
	struct verdicts *v = ctx;
	v->status = status;
	rdv_exchange_resume(v->x);
}

/* The operation runs again when all is decided. */
static void give_verdicts(struct verdicts *v)
{
	v->batch.done = verdicts_done;
	v->batch.ctx = v;
	rdv_exchange_suspend(v->x); /* before: it may be decided before we are back */
	enum redrive_status status = rdv_engine_lease_verdicts(v->x->engine, &v->batch);
	if (status != REDRIVE_OK)
		verdicts_done(v, status);
}

static void answer_verdict(struct rdv_exchange *x, const struct verdicts *v)
{
	const struct rdv_lease_verdict *one = &v->list[0];
	if (v->status != REDRIVE_OK)
		rdv_reply_status(x, v->status, "the verdict could not be recorded: give it again");
	else if (one->status != REDRIVE_OK)
		rdv_reply_status(x, one->status, one->why);
	else
		rdv_reply_json(x, 200,
			       json_pack("{s:s, s:s}", "token", x->params[0], "state", rdv_state_name(one->state)));
}

void rdv_resource_lease_verdict(struct rdv_exchange *x)
{
	static const char *const known[] = {"class",      "text",     "code",         "stack",
					    "root_class", "delay_ms", "lease_for_ms", NULL};
	if (x->state) {
		answer_verdict(x, x->state);
		return;
	}
	json_t *body = rdv_exchange_json(x, true);
	if (!body)
		return;
	if (!rdv_exchange_members(x, body, known)) {
		json_decref(body);
		return;
	}
	if (strcmp(x->params[1], "extend") == 0) {
		extend(x, body);
		json_decref(body);
		return;
	}
	struct verdicts *v = begin_verdicts(x, body, 1);
	if (!v)
		return;
	const char *wrong = read_verdict(body, x->params[1], &v->list[0].answer);
	v->list[0].token = x->params[0];
	if (wrong)
		rdv_reply_problem(x, 422, NULL, "%s", wrong);
	else
		give_verdicts(v);
}

/* An item that cannot be understood is left out, and answered 422. */
static void read_item(const json_t *item, struct rdv_lease_verdict *v)
{
	const char *token = json_string_value(json_object_get(item, "token")),
		   *verb = json_string_value(json_object_get(item, "verdict"));
	v->why = !token ? "it needs a token" : !verb ? "it needs a verdict" : read_verdict(item, verb, &v->answer);
	v->status = REDRIVE_INVALID;
	if (!v->why)
		v->token = token;
}

static json_t *item_answer(const json_t *item, const struct rdv_lease_verdict *v, enum redrive_status batch)
{
	const json_t *token = json_object_get(item, "token");
	enum redrive_status status = v->status != REDRIVE_OK ? v->status : batch;
	json_t *o = json_pack("{s:o, s:i}", "token", token ? json_deep_copy(token) : json_null(), "status",
			      status == REDRIVE_OK ? 200 : rdv_status_info(status)->http);
	if (status == REDRIVE_OK)
		json_object_set_new(o, "state", json_string(rdv_state_name(v->state)));
	else
		json_object_set_new(o, "detail", json_string(v->why ? v->why : redrive_status_text(status)));
	return o;
}

static void answer_many(struct rdv_exchange *x, const struct verdicts *v)
{
	json_t *answers = json_array(), *item;
	size_t i;
	json_array_foreach(json_object_get(v->body, "items"), i, item)
		json_array_append_new(answers, item_answer(item, &v->list[i], v->status));
	rdv_reply_json(x, 200, json_pack("{s:o}", "items", answers));
}

void rdv_resource_lease_many(struct rdv_exchange *x)
{
	static const char *const known[] = {"items", NULL};
	if (x->state) {
		answer_many(x, x->state);
		return;
	}
	json_t *body = rdv_exchange_json(x, false), *item;
	if (!body)
		return;
	const json_t *items = json_object_get(body, "items");
	bool good = rdv_exchange_members(x, body, known);
	if (good && (!json_is_array(items) || json_array_size(items) > MANY_MAX)) {
		rdv_reply_field(x, "/items", "must be a list of at most %u verdicts", MANY_MAX);
		good = false;
	}
	if (!good) {
		json_decref(body);
		return;
	}
	struct verdicts *v = begin_verdicts(x, body, json_array_size(items));
	size_t i;
	if (!v)
		return;
	json_array_foreach(items, i, item) read_item(item, &v->list[i]);
	give_verdicts(v);
}
