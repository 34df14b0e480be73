/* json.c - see json.h. Every text of a stranger passes rdv_json_slice, so that the answer is always valid UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include "../base/text.h"
#include "../core/fingerprint.h"
#include "json.h"

json_t *rdv_json_time(struct rdv_wall t)
{
	char text[25];
	if (t.ms == 0)
		return json_null();
	rdv_wall_format(t, text);
	return json_string(text);
}

/* Copies what is valid, U+FFFD for each byte that is not. */
static json_t *repaired(struct rdv_slice text)
{
	struct rdv_buffer out;
	rdv_buffer_init(&out, 0);
	for (size_t i = 0; i < text.size;) {
		size_t size = 1;
		while (size < 4 && i + size < text.size && (text.data[i + size] & 0xc0) == 0x80)
			size++;
		if (rdv_utf8_valid(rdv_slice(text.data + i, size))) {
			rdv_buffer_append(&out, text.data + i, size);
			i += size;
		} else {
			rdv_buffer_text(&out, "\xef\xbf\xbd");
			i++;
		}
	}
	json_t *value = json_stringn((const char *)out.data, out.size);
	rdv_buffer_done(&out);
	return value;
}

json_t *rdv_json_text_or_empty(struct rdv_slice text)
{
	if (text.size == 0)
		return json_string("");
	return rdv_utf8_valid(text) ? json_stringn((const char *)text.data, text.size) : repaired(text);
}

json_t *rdv_json_slice(struct rdv_slice text)
{
	return text.size ? rdv_json_text_or_empty(text) : json_null();
}

void rdv_json_key(json_t *object, bool has_key, struct rdv_slice key)
{
	bool text = has_key && rdv_utf8_valid(key);
	json_object_set_new(object, "key", text ? rdv_json_text_or_empty(key) : json_null());
	if (!has_key || text) {
		json_object_set_new(object, "key_base64", json_null());
		return;
	}
	struct rdv_buffer encoded;
	rdv_buffer_init(&encoded, 0);
	rdv_base64_encode(&encoded, key);
	json_object_set_new(object, "key_base64", json_string(rdv_buffer_string(&encoded)));
	rdv_buffer_done(&encoded);
}

json_t *rdv_json_list(json_t *items, const char *next)
{
	return json_pack("{s:o, s:o}", "items", items, "next", next && *next ? json_string(next) : json_null());
}

void rdv_message_id_text(char out[256], const char *topic, uint32_t partition, uint64_t offset)
{
	snprintf(out, 256, "%.200s-%u-%llu", topic, partition, (unsigned long long)offset);
}

/* ---- routes ---- */

struct counter {
	const char *name;
	size_t offset;
};

static json_t *counters(const struct rdv_account *a, const struct counter *list, size_t count)
{
	json_t *object = json_object();
	for (size_t i = 0; i < count; i++)
		json_object_set_new(object, list[i].name,
				    json_integer((json_int_t) * (const uint64_t *)((const char *)a + list[i].offset)));
	return object;
}

#define COUNTER(name, field)                                                                                           \
	{                                                                                                              \
		name, offsetof(struct rdv_account, field)                                                              \
	}
static const struct counter count_list[] = {
	COUNTER("received", received), COUNTER("acked", acked),     COUNTER("ready", ready),
	COUNTER("waiting", waiting),   COUNTER("held", held),       COUNTER("in_flight", in_flight),
	COUNTER("dead", dead),         COUNTER("dropped", dropped), COUNTER("revoked", revoked),
};
static const struct counter attempt_list[] = {
	COUNTER("first", first),
	COUNTER("retries", retries),
	COUNTER("succeeded", succeeded),
	COUNTER("failed", failed),
	COUNTER("timeouts", timeouts),
	COUNTER("rejected", rejected),
	COUNTER("dropped", attempts_dropped),
	COUNTER("crashes", crashes),
	COUNTER("shutdowns", shutdowns),
	COUNTER("deferrals", deferrals),
	COUNTER("outage", outage),
	COUNTER("in_flight", calls),
};
static const struct counter replay_list[] = {COUNTER("sent", replays_sent), COUNTER("acked", replays_acked),
					     COUNTER("dead_again", replays_dead)};
#define LIST(list) list, sizeof list / sizeof list[0]

json_t *rdv_json_route(const struct rdv_route_status *r)
{
	static const char *const breaker_states[] = {"up", "down", "half"};
	static const char *const handlers[] = {"http", "exec", "callback", "lease"};
	const struct rdv_target_status *t = &r->target_status;
	json_t *breaker =
		json_pack("{s:s, s:o, s:o, s:b, s:b}", "state", r->breaker_on ? breaker_states[t->state] : "up",
			  "since", rdv_json_time(t->since), "probe_at", rdv_json_time(t->probe_at), "on", r->breaker_on,
			  "storm_held", r->storm_held);
	json_t *budget = json_pack("{s:f, s:I, s:b}", "spent_ratio", t->budget_spent_ratio, "held_back",
				   (json_int_t)r->held_back, "on", r->budget_on);
	return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:b, s:s*}", "name",
			 r->name, "state", r->state, "topic", r->topic, "partitions", (json_int_t)r->partitions,
			 "handler", handlers[r->handler], "target", r->target, "counts",
			 counters(&r->account, LIST(count_list)), "attempts", counters(&r->account, LIST(attempt_list)),
			 "replays", counters(&r->account, LIST(replay_list)), "breaker", breaker, "budget", budget,
			 "oldest_unfinished_ms", (json_int_t)r->oldest_unfinished_ms, "overdue_ms",
			 (json_int_t)r->overdue_ms, "importance", r->importance_high ? "high" : "normal", "orphan",
			 r->orphan, "detail", r->detail[0] ? r->detail : NULL);
}

/* ---- messages ---- */

static bool is_waiting(enum rdv_state s)
{
	return s == RDV_STATE_WAITING;
}

/* What the letter tells of a message that the lane only knows as finished. */
static const char *state_by_letter(struct rdv_desk *desk, const char *id, enum rdv_state state)
{
	struct rdv_letter l;
	const char *name = state == RDV_STATE_DONE ? "dead" : rdv_state_name(state);
	if (state == RDV_STATE_REPLAYING || rdv_desk_get(desk, id, &l) != REDRIVE_OK)
		return name;
	if (l.state == RDV_LETTER_REPLAYED && !l.next[0])
		name = "acked";
	else if (l.envelope.reason == RDV_REASON_REVOKED)
		name = "revoked";
	rdv_letter_done(&l);
	return name;
}

static json_t *message_route(const struct rdv_message_status *m, const struct rdv_message_route *r,
			     struct rdv_desk *desk)
{
	char letter[27] = "", behind[256] = "";
	enum rdv_state state = r->where.state;
	bool may_have = state == RDV_STATE_DEAD || state == RDV_STATE_DYING || state == RDV_STATE_REPLAYING ||
			state == RDV_STATE_DONE || state == RDV_STATE_REVOKED;
	bool has_letter = desk && may_have &&
			  rdv_desk_find(desk, r->route, m->topic, m->partition, m->offset, letter) == REDRIVE_OK;
	if (state == RDV_STATE_HELD && r->has_behind)
		rdv_message_id_text(behind, m->topic, m->partition, r->where.behind);
	const char *name = has_letter ? state_by_letter(desk, letter, state) : rdv_state_name(state);
	return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s?}", "route", r->route, "state", name, "attempt",
			 (json_int_t)r->where.attempt, "due_at",
			 is_waiting(state) ? rdv_json_time(r->where.due) : json_null(), "behind",
			 behind[0] ? json_string(behind) : json_null(), "dead_letter",
			 has_letter && strcmp(name, "dead") == 0 ? json_string(letter) : json_null(), "waiting_for",
			 has_letter && state != RDV_STATE_REPLAYING ? NULL : r->waits_for);
}

json_t *rdv_json_message(const struct rdv_message_status *m, struct rdv_desk *desk)
{
	char id[256];
	json_t *routes = json_array();
	for (size_t i = 0; i < m->route_count; i++)
		json_array_append_new(routes, message_route(m, &m->routes[i], desk));
	rdv_message_id_text(id, m->topic, m->partition, m->offset);
	json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:o}", "id", id, "topic", m->topic, "partition",
				   (json_int_t)m->partition, "offset", (json_int_t)m->offset, "routes", routes);
	rdv_json_key(object, m->key_known && m->has_key, rdv_slice(m->key, m->key_size));
	return object;
}

/* ---- letters ---- */

static json_t *letter_history(const struct rdv_envelope *e)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < e->history_count; i++) {
		const struct rdv_attempt *a = &e->history[i];
		const char *verdict = a->duplicate                     ? "duplicate"
				      : a->cause == RDV_CAUSE_OUTAGE   ? "outage"
				      : a->cause == RDV_CAUSE_SHUTDOWN ? "shutdown"
				      : a->cause == RDV_CAUSE_CRASH    ? "crash"
				      : a->verdict < RDV_VERDICT_COUNT
					      ? rdv_verdict_name((enum rdv_verdict_kind)a->verdict)
					      : "?";
		json_array_append_new(list,
				      json_pack("{s:I, s:o, s:I, s:s, s:s, s:o, s:o, s:o, s:o}", "n", (json_int_t)a->n,
						"at", rdv_json_time(a->at), "took_ms", (json_int_t)a->took_ms,
						"verdict", verdict, "cause", rdv_cause_name((enum rdv_cause)a->cause),
						"code", rdv_json_slice(a->code), "class", rdv_json_slice(a->class),
						"text", rdv_json_slice(a->text), "next_at", rdv_json_time(a->next_at)));
	}
	return list;
}

static json_t *letter_headers(const struct rdv_envelope *e)
{
	json_t *list = json_array();
	uint64_t count;
	struct rdv_header h;
	struct rdv_reader r = rdv_headers_begin(e->headers, &count);
	while (rdv_headers_next(&r, &h))
		json_array_append_new(
			list, json_pack("[o, o]", rdv_json_text_or_empty(h.name), rdv_json_text_or_empty(h.value)));
	return list;
}

static void set(json_t *object, const char *name, json_t *value)
{
	json_object_set_new(object, name, value);
}

static void letter_error(json_t *object, const struct rdv_envelope *e)
{
	const struct rdv_failure *f = &e->failure;
	set(object, "error",
	    json_pack("{s:o, s:o, s:o, s:o, s:o}", "class", rdv_json_slice(f->class), "root_class",
		      rdv_json_slice(f->root_class), "code", rdv_json_slice(f->code), "text", rdv_json_slice(f->text),
		      "stack", rdv_json_slice(f->stack)));
}

static void letter_times(json_t *object, const struct rdv_letter *l)
{
	const struct rdv_envelope *e = &l->envelope;
	set(object, "produced_at", rdv_json_time(e->produced_at));
	set(object, "first_failed_at", rdv_json_time(e->first_failed_at));
	set(object, "last_failed_at", rdv_json_time(e->last_failed_at));
	set(object, "dead_at", rdv_json_time(e->dead_at));
	set(object, "expires_at", rdv_json_time(l->expires_at));
	set(object, "tier", json_string("hot"));
}

static void letter_whole(json_t *object, const struct rdv_envelope *e)
{
	struct rdv_buffer sha;
	rdv_json_key(object, !e->null_key, e->key);
	set(object, "headers", letter_headers(e));
	set(object, "content_type", rdv_json_slice(e->content_type));
	rdv_buffer_init(&sha, 0);
	rdv_hex_encode(&sha, rdv_slice(e->body_sha256, sizeof e->body_sha256));
	set(object, "body_sha256", json_string(rdv_buffer_string(&sha)));
	rdv_buffer_done(&sha);
	set(object, "history", letter_history(e));
	set(object, "history_omitted", json_integer(e->history_omitted));
	letter_error(object, e);
}

json_t *rdv_json_letter(const struct rdv_letter *l, bool whole)
{
	const struct rdv_envelope *e = &l->envelope;
	char id[256], topic[201], fingerprint[RDV_FINGERPRINT_TEXT];
	rdv_slice_to_text(e->topic, topic, sizeof topic);
	rdv_message_id_text(id, topic, e->partition, e->offset);
	rdv_fingerprint_format(e->fingerprint, fingerprint);
	json_t *o = json_object();
	set(o, "id", json_string(l->id));
	set(o, "route", rdv_json_slice(e->route));
	set(o, "message_id", json_string(id));
	set(o, "topic", json_string(topic));
	set(o, "partition", json_integer(e->partition));
	set(o, "offset", json_integer((json_int_t)e->offset));
	set(o, "publish_id", rdv_json_slice(e->publish_id));
	set(o, "idempotency_key", rdv_json_slice(e->idempotency_key));
	set(o, "tenant", rdv_json_slice(e->tenant));
	set(o, "schema_version", rdv_json_slice(e->schema_version));
	set(o, "consumer_version", rdv_json_slice(e->consumer_version));
	set(o, "trace_id", rdv_json_slice(e->trace_id));
	set(o, "reason", json_string(rdv_reason_name(e->reason)));
	set(o, "state", json_string(rdv_letter_state_name(l->state)));
	set(o, "generation", json_integer(e->generation));
	set(o, "replay", l->replay[0] ? json_string(l->replay) : rdv_json_slice(e->replay));
	set(o, "next", l->next[0] ? json_string(l->next) : json_null());
	set(o, "cause", rdv_json_slice(e->cause));
	set(o, "original", json_null());
	set(o, "legal_hold", json_false());
	set(o, "owner", json_null());
	set(o, "note", json_null());
	set(o, "conclusion", json_null());
	set(o, "fingerprint", e->fingerprint ? json_string(fingerprint) : json_null());
	set(o, "attempts",
	    json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "failures", (json_int_t)e->causes.failures, "timeouts",
		      (json_int_t)e->causes.timeouts, "crashes", (json_int_t)e->causes.crashes, "shutdowns",
		      (json_int_t)e->causes.shutdowns, "deferrals", (json_int_t)e->causes.deferrals, "outage",
		      (json_int_t)e->causes.outage));
	letter_times(o, l);
	set(o, "body_size", json_integer((json_int_t)e->body_size));
	set(o, "body_truncated", json_boolean(e->body_truncated));
	set(o, "null", json_boolean(e->tombstone));
	if (whole)
		letter_whole(o, e);
	return o;
}

/* ---- plans ---- */

json_t *rdv_json_plan(const struct rdv_plan *p)
{
	char rate[48];
	snprintf(rate, sizeof rate, "%.15g/s", p->rate);
	json_t *preflight = json_array(), *o = json_object();
	for (size_t i = 0; i < p->preflight_count; i++)
		json_array_append_new(preflight, json_pack("{s:s, s:s, s:s}", "check", p->preflight[i].check, "result",
							   p->preflight[i].result, "detail", p->preflight[i].detail));
	set(o, "id", json_string(p->id));
	set(o, "name", json_string(p->name));
	set(o, "state", json_string(rdv_plan_state_name(p->state)));
	set(o, "digest", json_string(p->digest));
	set(o, "selected", json_integer((json_int_t)p->selected));
	set(o, "result",
	    json_pack("{s:I, s:I, s:I, s:I, s:I}", "acked", (json_int_t)p->acked, "dead_again",
		      (json_int_t)p->dead_again, "skipped", (json_int_t)p->skipped, "unknown", (json_int_t)p->unknown,
		      "not_reached", (json_int_t)p->not_reached));
	set(o, "stopped_by", p->stopped_by[0] ? json_string(p->stopped_by) : json_null());
	set(o, "rate", json_string(rate));
	set(o, "ramp_ms", json_integer(p->ramp_ms));
	set(o, "cap", p->cap ? json_integer((json_int_t)p->cap) : json_null());
	set(o, "target", p->target_route[0] ? json_pack("{s:s}", "route", p->target_route) : json_null());
	set(o, "author", json_string(p->author));
	set(o, "approver", p->approver[0] ? json_string(p->approver) : json_null());
	set(o, "reason", json_string(p->reason));
	set(o, "created_at", rdv_json_time(p->created_at));
	set(o, "approved_at", rdv_json_time(p->approved_at));
	set(o, "started_at", rdv_json_time(p->started_at));
	set(o, "ended_at", rdv_json_time(p->ended_at));
	set(o, "expires_at", rdv_json_time(p->expires_at));
	set(o, "impact",
	    json_pack("{s:s, s:I, s:o, s:I}", "routes", p->routes, "keys", (json_int_t)p->keys, "oldest",
		      rdv_json_time(p->oldest), "estimated_ms", (json_int_t)p->estimated_ms));
	set(o, "preflight", preflight);
	return o;
}
