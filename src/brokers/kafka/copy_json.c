/* copy_json.c - a letter as one JSON document, for readers that know no headers.
 *
 * The names are those of a letter in the HTTP API; what only a desk knows (state, owner, plans) is not there. Bytes
 * stay exact: a key, a header or a body that is valid UTF-8 is text, another one is base64. A text of a handler is
 * valid UTF-8 already; names from outside are repaired. Without memory nothing is left out silently: the buffer has
 * failed. */
#include <jansson.h>
#include "../../base/text.h"
#include "../../core/fingerprint.h"
#include "copy.h"

struct doc {
	json_t *object; /* owns */
	bool failed;
};

static void set_in(struct doc *d, json_t *object, const char *name, json_t *value)
{
	if (json_object_set_new(object, name, value) != 0)
		d->failed = true;
}

static void set(struct doc *d, const char *name, json_t *value)
{
	set_in(d, d->object, name, value);
}

static void add_to(struct doc *d, json_t *array, json_t *value)
{
	if (json_array_append_new(array, value) != 0)
		d->failed = true;
}

static json_t *base64(struct rdv_slice bytes)
{
	struct rdv_buffer text;
	json_t *value;

	rdv_buffer_init(&text, 0);
	rdv_base64_encode(&text, bytes);
	value = text.failed ? NULL : json_stringn(text.size ? (const char *)text.data : "", text.size);
	rdv_buffer_done(&text);
	return value;
}

/* Text; what is not valid UTF-8 as "base64:...". */
static json_t *any_text(struct rdv_slice s)
{
	struct rdv_buffer text;
	json_t *value;

	if (rdv_utf8_valid(s))
		return json_stringn(s.size ? (const char *)s.data : "", s.size);
	rdv_buffer_init(&text, 0);
	rdv_buffer_text(&text, "base64:");
	rdv_base64_encode(&text, s);
	value = text.failed ? NULL : json_stringn((const char *)text.data, text.size);
	rdv_buffer_done(&text);
	return value;
}

static json_t *text_or_null(struct rdv_slice s)
{
	return s.size ? any_text(s) : json_null();
}

static json_t *time_or_null(struct rdv_wall t)
{
	char text[25];

	if (t.ms == 0)
		return json_null();
	rdv_wall_format(t, text);
	return json_string(text);
}

static json_t *number(uint64_t v)
{
	return json_integer((json_int_t)v);
}

/* Two members, one of which is null: NAME when the bytes are text, else NAME_base64. */
static void set_bytes(struct doc *d, const char *name, const char *name_base64, bool there, struct rdv_slice bytes)
{
	bool text = there && rdv_utf8_valid(bytes);

	set(d, name, text ? any_text(bytes) : json_null());
	set(d, name_base64, there && !text ? base64(bytes) : json_null());
}

/* [name, value]; where one of them is no text, [name, value, "base64"] with both in base64. */
static void set_headers(struct doc *d, struct rdv_slice headers)
{
	json_t *list = json_array();
	struct rdv_header h;
	uint64_t count;
	struct rdv_reader r = rdv_headers_begin(headers, &count);

	while (rdv_headers_next(&r, &h)) {
		bool text = rdv_utf8_valid(h.name) && rdv_utf8_valid(h.value);
		json_t *pair = json_array();

		add_to(d, pair, text ? any_text(h.name) : base64(h.name));
		add_to(d, pair, text ? any_text(h.value) : base64(h.value));
		if (!text)
			add_to(d, pair, json_string("base64"));
		add_to(d, list, pair);
	}
	set(d, "headers", list);
}

static json_t *attempt(struct doc *d, const struct rdv_attempt *a)
{
	json_t *o = json_object();

	set_in(d, o, "n", number(a->n));
	set_in(d, o, "at", time_or_null(a->at));
	set_in(d, o, "took_ms", json_integer(a->took_ms));
	set_in(d, o, "verdict",
	       json_string(a->duplicate
				   ? "duplicate"
				   : rdv_verdict_name(a->verdict < RDV_VERDICT_COUNT ? (enum rdv_verdict_kind)a->verdict
										     : RDV_RETRY)));
	set_in(d, o, "cause",
	       json_string(rdv_cause_name(a->cause < RDV_CAUSE_COUNT ? (enum rdv_cause)a->cause : RDV_CAUSE_NONE)));
	set_in(d, o, "code", text_or_null(a->code));
	set_in(d, o, "class", text_or_null(a->class));
	set_in(d, o, "text", text_or_null(a->text));
	set_in(d, o, "next_at", time_or_null(a->next_at));
	return o;
}

static json_t *history(struct doc *d, const struct rdv_envelope *e)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < e->history_count; i++)
		add_to(d, list, attempt(d, &e->history[i]));
	return list;
}

static void set_origin(struct doc *d, const struct rdv_copy_source *s)
{
	const struct rdv_envelope *e = s->e;

	set(d, "id", json_string(s->id));
	set(d, "route", text_or_null(e->route));
	set(d, "group", s->group ? any_text(rdv_slice_text(s->group)) : json_null());
	set(d, "cluster", text_or_null(e->cluster));
	set(d, "topic", text_or_null(e->topic));
	set(d, "partition", number(e->partition));
	set(d, "offset", number(e->offset));
	set(d, "publish_id", text_or_null(e->publish_id));
	set(d, "idempotency_key", text_or_null(e->idempotency_key));
	set(d, "tenant", text_or_null(e->tenant));
	set(d, "schema_version", text_or_null(e->schema_version));
	set(d, "consumer_version", text_or_null(e->consumer_version));
	set(d, "trace_id", text_or_null(e->trace_id));
	set(d, "traceparent", text_or_null(e->traceparent));
}

static void set_end(struct doc *d, const struct rdv_envelope *e)
{
	char fingerprint[RDV_FINGERPRINT_TEXT];
	json_t *error = json_object();

	rdv_fingerprint_format(e->fingerprint, fingerprint);
	set(d, "reason", json_string(rdv_reason_name(e->reason)));
	set(d, "generation", number(e->generation));
	set(d, "replay", text_or_null(e->replay));
	set(d, "cause", text_or_null(e->cause));
	set_in(d, error, "class", text_or_null(e->failure.class));
	set_in(d, error, "root_class", text_or_null(e->failure.root_class));
	set_in(d, error, "code", text_or_null(e->failure.code));
	set_in(d, error, "text", text_or_null(e->failure.text));
	set_in(d, error, "stack", text_or_null(e->failure.stack));
	set(d, "error", error);
	set(d, "fingerprint", e->fingerprint ? json_string(fingerprint) : json_null());
}

static void set_attempts(struct doc *d, const struct rdv_envelope *e)
{
	json_t *counts = json_object();

	set_in(d, counts, "failures", number(e->causes.failures));
	set_in(d, counts, "timeouts", number(e->causes.timeouts));
	set_in(d, counts, "crashes", number(e->causes.crashes));
	set_in(d, counts, "shutdowns", number(e->causes.shutdowns));
	set_in(d, counts, "deferrals", number(e->causes.deferrals));
	set_in(d, counts, "outage", number(e->causes.outage));
	set(d, "attempts", counts);
	set(d, "deliveries", number(e->deliveries));
	set(d, "produced_at", time_or_null(e->produced_at));
	set(d, "first_failed_at", time_or_null(e->first_failed_at));
	set(d, "last_failed_at", time_or_null(e->last_failed_at));
	set(d, "dead_at", time_or_null(e->dead_at));
	set(d, "history", history(d, e));
	set(d, "history_omitted", number(e->history_omitted));
}

static void set_body(struct doc *d, const struct rdv_copy_source *s)
{
	const struct rdv_envelope *e = s->e;
	struct rdv_buffer digest;

	rdv_buffer_init(&digest, 0);
	rdv_hex_encode(&digest, rdv_slice(e->body_sha256, sizeof e->body_sha256));
	set(d, "content_type", text_or_null(e->content_type));
	set(d, "body_size", number(e->body_size));
	set(d, "body_sha256", digest.failed ? NULL : json_string(rdv_buffer_string(&digest)));
	set(d, "body_truncated", json_boolean(rdv_copy_is_cut(s)));
	set(d, "null", json_boolean(e->tombstone));
	set_bytes(d, "body_text", "body_base64", !e->tombstone, s->body);
	rdv_buffer_done(&digest);
}

static int append(const char *bytes, size_t size, void *out)
{
	rdv_buffer_append(out, bytes, size);
	return ((struct rdv_buffer *)out)->failed ? -1 : 0;
}

static void dump(const struct doc *d, const json_t *value, struct rdv_buffer *out)
{
	if (d->failed || !value || json_dump_callback(value, append, out, JSON_COMPACT) != 0)
		out->failed = true;
}

void rdv_copy_json(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	struct doc d = {json_object(), false};

	set_origin(&d, s);
	set_bytes(&d, "key", "key_base64", !s->e->null_key, s->e->key);
	set_headers(&d, s->e->headers);
	set_end(&d, s->e);
	set_attempts(&d, s->e);
	set_body(&d, s);
	dump(&d, d.object, out);
	json_decref(d.object);
}

void rdv_copy_history(const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	struct doc d = {NULL, false};
	json_t *list;

	if (!s->e->history_count)
		return;
	list = history(&d, s->e);
	dump(&d, list, out);
	json_decref(list);
}
