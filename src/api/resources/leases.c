/* leases.c - /v1/routes/{name}/lease and /v1/leases: pulling messages, and their verdicts.
 *
 * Waiting for a message suspends the connection; the lease handler wakes it when a call is there, the timer at the
 * deadline. */
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

static const char *state_after(enum rdv_verdict_kind kind)
{
	static const char *const states[RDV_VERDICT_COUNT] = {"acked", "waiting", "dead", "waiting", "dropped"};
	return states[kind];
}

static void extend(struct rdv_exchange *x, struct rdv_handler *handler, const json_t *body)
{
	int64_t lease_for = 0;
	struct rdv_wall expires;
	if (!read_number(x, body, "lease_for_ms", (const int64_t[]){100, 86400000}, &lease_for))
		return;
	enum redrive_status status = rdv_lease_extend(handler, x->params[0], lease_for, &expires);
	if (status == REDRIVE_OK)
		rdv_reply_json(x, 200,
			       json_pack("{s:s, s:s, s:o}", "token", x->params[0], "state", "in_flight", "expires_at",
					 rdv_json_time(expires)));
	else
		rdv_reply_status(x, status,
				 status == REDRIVE_NOT_FOUND ? "no lease has this token" : "this lease has ended");
}

static void reply_lease_status(struct rdv_exchange *x, enum redrive_status status)
{
	rdv_reply_status(x, status,
			 status == REDRIVE_NOT_FOUND  ? "no lease has this token"
			 : status == REDRIVE_CONFLICT ? "this lease expired and the message went on, or it is finished"
						      : NULL);
}

void rdv_resource_lease_verdict(struct rdv_exchange *x)
{
	static const char *const known[] = {"class",      "text",     "code",         "stack",
					    "root_class", "delay_ms", "lease_for_ms", NULL};
	json_t *body = rdv_exchange_json(x, true);
	if (!body)
		return;
	struct rdv_handler *handler = rdv_engine_lease_of(x->engine, x->params[0]);
	struct rdv_answer answer;
	const char *wrong;
	if (!rdv_exchange_members(x, body, known)) {
		/* answered */
	} else if (!handler) {
		reply_lease_status(x, REDRIVE_NOT_FOUND);
	} else if (strcmp(x->params[1], "extend") == 0) {
		extend(x, handler, body);
	} else if ((wrong = read_verdict(body, x->params[1], &answer))) {
		rdv_reply_problem(x, 422, NULL, "%s", wrong);
	} else {
		enum redrive_status status = rdv_lease_answer(handler, x->params[0], &answer);
		if (status == REDRIVE_OK)
			rdv_reply_json(
				x, 200,
				json_pack("{s:s, s:s}", "token", x->params[0], "state", state_after(answer.verdict)));
		else
			reply_lease_status(x, status);
	}
	json_decref(body);
}

static unsigned answer_one(struct rdv_exchange *x, const json_t *item)
{
	const char *token = json_string_value(json_object_get(item, "token")),
		   *verb = json_string_value(json_object_get(item, "verdict"));
	struct rdv_handler *handler = token ? rdv_engine_lease_of(x->engine, token) : NULL;
	struct rdv_answer answer;
	if (!token || !verb || read_verdict(item, verb, &answer))
		return 422;
	if (!handler)
		return 404;
	enum redrive_status status = rdv_lease_answer(handler, token, &answer);
	return status == REDRIVE_OK ? 200 : (unsigned)rdv_status_info(status)->http;
}

void rdv_resource_lease_many(struct rdv_exchange *x)
{
	static const char *const known[] = {"items", NULL};
	json_t *body = rdv_exchange_json(x, false);
	if (!body)
		return;
	const json_t *items = json_object_get(body, "items");
	if (rdv_exchange_members(x, body, known)) {
		if (!json_is_array(items) || json_array_size(items) > MANY_MAX) {
			rdv_reply_field(x, "/items", "must be a list of at most %u verdicts", MANY_MAX);
		} else {
			json_t *answers = json_array(), *item;
			size_t i;
			json_array_foreach(items, i, item)
			{
				const json_t *token = json_object_get(item, "token");
				json_array_append_new(answers, json_pack("{s:o, s:i}", "token",
									 token ? json_deep_copy(token) : json_null(),
									 "status", (int)answer_one(x, item)));
			}
			rdv_reply_json(x, 200, json_pack("{s:o}", "items", answers));
		}
	}
	json_decref(body);
}
