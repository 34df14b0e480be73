/* http_request.c - the request headers of one call.
 *
 * The lines are written one behind the other into one buffer, whose memory may move while it grows; so the
 * list's items hold offsets until all lines are there. The list ends in the handler's fixed headers. curl only
 * reads the list, so nothing is allocated for a call once the memory has its size. How curl is told what:
 *
 *	"Name: value"   send it
 *	"Name;"         send it empty
 *	"Name:"         never send its own header of that name (Content-Type, Expect)
 *
 * What always holds: a value has only bytes 0x20-0x7e, and no header that is ours (Redrive-*, Idempotency-Key)
 * comes from a message. Fails only for memory. The handler's thread. */
#include "http_request.h"
#include "../base/text.h"
#include <stdlib.h>
#include <strings.h>

#define TEXT_LIMIT (4u << 20)

void rdv_http_request_init(struct rdv_http_request *r)
{
	*r = (struct rdv_http_request){0};
	rdv_buffer_init(&r->text, TEXT_LIMIT);
}

void rdv_http_request_done(struct rdv_http_request *r)
{
	rdv_buffer_done(&r->text);
	free(r->headers);
	r->headers = NULL;
}

/* ---- lines ---- */

void rdv_http_request_begin(struct rdv_http_request *r, const char *name)
{
	if (r->count == r->capacity) {
		size_t capacity = r->capacity ? r->capacity * 2 : 32;
		struct curl_slist *grown = reallocarray(r->headers, capacity, sizeof *grown);

		r->failed = r->failed || !grown;
		if (!grown)
			return;
		r->headers = grown;
		r->capacity = capacity;
	}
	r->headers[r->count].data = (char *)r->text.size; /* an offset, until link */
	rdv_buffer_text(&r->text, name);
	rdv_buffer_append(&r->text, ": ", 2);
}

void rdv_http_request_end(struct rdv_http_request *r)
{
	if (r->failed)
		return;
	if (r->text.size >= 2 && memcmp(r->text.data + r->text.size - 2, ": ", 2) == 0) {
		r->text.size -= 2;
		rdv_buffer_append(&r->text, ";", 1);
	}
	rdv_buffer_append(&r->text, "", 1);
	r->count++;
}

static void blanks(struct rdv_buffer *out, size_t count)
{
	for (; count; count--)
		rdv_buffer_append(out, "%20", 3);
}

static bool is_plain(struct rdv_slice s)
{
	for (size_t i = 0; i < s.size; i++)
		if (s.data[i] < 0x20 || s.data[i] > 0x7e || s.data[i] == '%')
			return false;
	return true;
}

static void add_value(struct rdv_buffer *out, struct rdv_slice value)
{
	size_t before = 0, behind = 0;

	while (before < value.size && value.data[before] == ' ')
		before++;
	while (behind < value.size - before && value.data[value.size - 1 - behind] == ' ')
		behind++;
	blanks(out, before);
	value = rdv_slice(value.data + before, value.size - before - behind);
	if (is_plain(value))
		rdv_buffer_slice(out, value);
	else
		rdv_percent_encode(out, value);
	blanks(out, behind);
}

void rdv_http_request_add(struct rdv_http_request *r, const char *name, struct rdv_slice value)
{
	rdv_http_request_begin(r, name);
	add_value(&r->text, value);
	rdv_http_request_end(r);
}

static void add_number(struct rdv_http_request *r, const char *name, uint64_t n)
{
	rdv_http_request_begin(r, name);
	rdv_buffer_decimal(&r->text, n);
	rdv_http_request_end(r);
}

static struct rdv_slice trim(struct rdv_slice s)
{
	while (s.size && s.data[0] == ' ')
		s = rdv_slice(s.data + 1, s.size - 1);
	while (s.size && s.data[s.size - 1] == ' ')
		s.size--;
	return s;
}

/* Keeps curl's own header of this name away. */
static void forbid(struct rdv_http_request *r, const char *name)
{
	rdv_http_request_begin(r, name);
	if (r->failed || r->text.failed)
		return;
	r->text.size--; /* the blank: "Name:" */
	rdv_buffer_append(&r->text, "", 1);
	r->count++;
}

/* As the message has it; only what no header can carry is encoded. An empty one is like none. */
static void add_as_given(struct rdv_http_request *r, const char *name, struct rdv_slice value)
{
	rdv_http_request_begin(r, name);
	for (size_t i = 0; i < value.size; i++) {
		if (value.data[i] < 0x20 || value.data[i] > 0x7e)
			rdv_percent_encode(&r->text, rdv_slice(value.data + i, 1));
		else
			rdv_buffer_append(&r->text, value.data + i, 1);
	}
	rdv_http_request_end(r);
}

/* ---- the message's own headers ---- */

/* RFC 9110's token characters but '%', by which the others are encoded. */
static bool is_token(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$&'*+-.^_`|~", c));
}

static bool is_ours(struct rdv_slice name)
{
	static const char prefix[] = "Redrive-";

	return (name.size >= sizeof prefix - 1 &&
		strncasecmp((const char *)name.data, prefix, sizeof prefix - 1) == 0) ||
	       rdv_slice_is_nocase(name, "Idempotency-Key");
}

static void add_user_headers(struct rdv_http_request *r, struct rdv_slice headers)
{
	uint64_t count;
	struct rdv_reader in = rdv_headers_begin(headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&in, &h)) {
		if (is_ours(h.name))
			continue;
		rdv_http_request_begin(r, "Redrive-Header-");
		if (r->failed || r->text.failed)
			return;
		r->text.size -= 2; /* the name goes on */
		for (size_t i = 0; i < h.name.size; i++) {
			if (is_token(h.name.data[i]))
				rdv_buffer_append(&r->text, h.name.data + i, 1);
			else
				rdv_buffer_printf(&r->text, "%%%02X", h.name.data[i]);
		}
		rdv_buffer_append(&r->text, ": ", 2);
		add_value(&r->text, h.value);
		rdv_http_request_end(r);
	}
}

/* ---- the whole ---- */

static void add_ours(struct rdv_http_request *r, const struct rdv_call *call, const struct rdv_body *body,
		     struct rdv_slice message_id)
{
	char time[25];

	rdv_http_request_add(r, "Redrive-Message-Id", message_id);
	rdv_http_request_add(r, "Redrive-Route", rdv_slice_text(call->route));
	rdv_http_request_add(r, "Redrive-Topic", rdv_slice_text(call->topic));
	add_number(r, "Redrive-Partition", call->partition);
	add_number(r, "Redrive-Offset", call->offset);
	if (!(body->flags & RDV_BODY_NULL_KEY))
		rdv_http_request_add(r, "Redrive-Key", body->key);
	add_number(r, "Redrive-Attempt", call->attempt);
	add_number(r, "Redrive-Epoch", call->epoch);
	if (call->first_failed_at.ms) {
		rdv_wall_format(call->first_failed_at, time);
		rdv_http_request_add(r, "Redrive-First-Failed-At", rdv_slice_text(time));
	}
	if (call->replay)
		rdv_http_request_add(r, "Redrive-Replay", rdv_slice_text(call->replay));
	if (body->flags & RDV_BODY_TOMBSTONE)
		rdv_http_request_add(r, "Redrive-Null", rdv_slice_text("true"));
	rdv_http_request_add(r, "Idempotency-Key", rdv_call_idempotency_key(call, body, message_id));
}

/* Offsets become pointers, items a list. */
static struct curl_slist *link_headers(struct rdv_http_request *r, struct curl_slist *tail)
{
	for (size_t i = 0; i < r->count; i++) {
		r->headers[i].data = (char *)r->text.data + (size_t)r->headers[i].data;
		r->headers[i].next = i + 1 < r->count ? &r->headers[i + 1] : tail;
	}
	return r->count ? r->headers : tail;
}

enum redrive_status rdv_http_request_build(struct rdv_http_request *r, const struct rdv_http_fixed *fixed,
					   const struct rdv_call *call, const struct rdv_body *body,
					   struct rdv_wall now, struct curl_slist **out)
{
	struct rdv_slice type = trim(body->content_type), trace = trim(body->traceparent);
	char id[RDV_MESSAGE_ID_SIZE];
	struct rdv_slice message_id = rdv_call_message_id(call, id);

	rdv_buffer_clear(&r->text);
	r->count = 0;
	r->failed = false;
	type = type.size ? type : rdv_buffer_as_slice(&fixed->content_type);
	trace = trace.size ? trace : rdv_buffer_as_slice(&fixed->traceparent);
	add_ours(r, call, body, message_id);
	if (type.size)
		add_as_given(r, "Content-Type", type);
	else
		forbid(r, "Content-Type");
	if (trace.size)
		add_as_given(r, "traceparent", trace);
	add_user_headers(r, body->headers);
	if (fixed->cloudevents)
		rdv_http_events_add(r, call, body, message_id);
	if (fixed->sign_key.size)
		rdv_http_sign_add(r, rdv_buffer_as_slice(&fixed->sign_key), message_id, now, body->body);
	if (r->failed || r->text.failed)
		return REDRIVE_NO_MEMORY;
	*out = link_headers(r, fixed->headers);
	return REDRIVE_OK;
}

/* ---- configured headers ---- */

static enum redrive_status keep(struct rdv_http_fixed *f, const char *line)
{
	struct curl_slist *more = curl_slist_append(f->headers, line);

	if (!more)
		return REDRIVE_NO_MEMORY;
	f->headers = more;
	return REDRIVE_OK;
}

static const char *wrong_with(const struct rdv_pair *h)
{
	static const char *const framing[] = {
		"Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "TE", "Trailer"};
	struct rdv_slice name = rdv_slice_text(h->name);

	for (size_t i = 0; i < name.size; i++)
		if (!is_token(name.data[i]) && name.data[i] != '%')
			return "its name has a character that no header name may have";
	if (!name.size)
		return "it has no name";
	for (const char *v = h->value; *v; v++)
		if ((*v >= 0 && *v < 0x20 && *v != '\t') || *v == 0x7f)
			return "its value has a control character";
	if (is_ours(name))
		return "Redrive sets it itself";
	for (size_t i = 0; i < sizeof framing / sizeof framing[0]; i++)
		if (rdv_slice_is_nocase(name, framing[i]))
			return "it belongs to the connection";
	return NULL;
}

static enum redrive_status keep_configured(struct rdv_http_fixed *f, const struct rdv_pair *h, struct rdv_error *error)
{
	const char *wrong = wrong_with(h);
	struct rdv_buffer line;
	enum redrive_status status;

	if (wrong)
		return rdv_error_set(error, REDRIVE_INVALID, "header '%s': %s", h->name, wrong);
	if (strcasecmp(h->name, "Content-Type") == 0 || strcasecmp(h->name, "traceparent") == 0) {
		struct rdv_buffer *to = (h->name[0] | 0x20) == 'c' ? &f->content_type : &f->traceparent;

		rdv_buffer_clear(to);
		rdv_buffer_slice(to, trim(rdv_slice_text(h->value)));
		return to->failed ? REDRIVE_NO_MEMORY : REDRIVE_OK;
	}
	rdv_buffer_init(&line, TEXT_LIMIT);
	rdv_buffer_printf(&line, "%s%s%s", h->name, h->value[strspn(h->value, " \t")] ? ": " : ";", h->value);
	status = line.failed ? REDRIVE_NO_MEMORY : keep(f, rdv_buffer_string(&line));
	rdv_buffer_done(&line);
	return status;
}

enum redrive_status rdv_http_fixed_init(struct rdv_http_fixed *f, const struct rdv_http_options *options,
					struct rdv_error *error)
{
	enum redrive_status status;
	bool agent = false;

	*f = (struct rdv_http_fixed){.cloudevents = options->cloudevents};
	status = keep(f, "Expect:");
	for (size_t i = 0; !status && i < options->header_count; i++) {
		agent = agent || strcasecmp(options->headers[i].name, "User-Agent") == 0;
		status = keep_configured(f, &options->headers[i], error);
	}
	if (!status && !agent)
		status = keep(f, "User-Agent: redrive/" RDV_VERSION_TEXT);
	if (!status && options->sign_secret.size && rdv_http_sign_key(options->sign_secret, &f->sign_key))
		status = rdv_error_set(error, REDRIVE_INVALID,
				       "sign: the secret is empty, or what follows whsec_ is no base64");
	if (status)
		rdv_http_fixed_done(f);
	return status;
}

void rdv_http_fixed_done(struct rdv_http_fixed *f)
{
	curl_slist_free_all(f->headers);
	f->headers = NULL;
	rdv_buffer_done(&f->content_type);
	rdv_buffer_done(&f->traceparent);
	rdv_buffer_done(&f->sign_key);
}
