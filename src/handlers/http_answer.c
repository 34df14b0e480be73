/* http_answer.c - from an HTTP answer's status, headers and body to an rdv_answer.
 *
 * Our headers are found by one table of names; the first one of a name counts, a new status line (after a 1xx
 * answer) forgets all. Words are looked for in three places: the problem body (RFC 9457), our two error
 * headers, the body itself; each word is taken from the first place that has it. Everything is gathered as
 * borrowed slices, then copied once, bounded and clean, into `text`. What is not understood (delay, verdict,
 * date, JSON) counts as absent, so nothing here fails. A problem body is parsed by jansson, which bounds its
 * depth; its size is bounded by RDV_ANSWER_BODY_MAX. Pure; any thread. */
#include "http_answer.h"
#include "answer_text.h"
#include "../base/quantity.h"
#include <jansson.h>
#include <stddef.h>

#define HEADER_VALUE_MAX 4096
#define RETRY_AFTER_SECONDS_MAX 1000000000

struct known {
	const char *name;
	size_t at; /* the slice in rdv_http_reply */
};

static const struct known known[] = {
	{"Content-Type", offsetof(struct rdv_http_reply, content_type)},
	{"Retry-After", offsetof(struct rdv_http_reply, retry_after)},
	{"Redrive-Verdict", offsetof(struct rdv_http_reply, verdict)},
	{"Redrive-Delay", offsetof(struct rdv_http_reply, delay)},
	{"Redrive-Handler-Version", offsetof(struct rdv_http_reply, handler_version)},
	{"Redrive-Duplicate", offsetof(struct rdv_http_reply, duplicate)},
	{"Redrive-Error-Class", offsetof(struct rdv_http_reply, error_class)},
	{"Redrive-Error", offsetof(struct rdv_http_reply, error)},
};
#define KNOWN_COUNT (sizeof known / sizeof known[0])

static struct rdv_slice *place(struct rdv_http_reply *reply, size_t i)
{
	return (struct rdv_slice *)((char *)reply + known[i].at);
}

static struct rdv_slice trim(struct rdv_slice s)
{
	while (s.size && (s.data[0] == ' ' || s.data[0] == '\t'))
		s = rdv_slice(s.data + 1, s.size - 1);
	while (s.size && strchr(" \t\r\n", s.data[s.size - 1]) && s.data[s.size - 1])
		s.size--;
	return s;
}

/* Copies the value; when the buffer's memory moves, the slices that lie in it move along. */
static void keep_value(struct rdv_http_reply *reply, size_t which, struct rdv_slice value, struct rdv_buffer *text)
{
	const uint8_t *before = text->data;
	size_t start = text->size;

	if (value.size > HEADER_VALUE_MAX)
		value.size = HEADER_VALUE_MAX;
	rdv_buffer_slice(text, value);
	if (text->failed)
		return;
	for (size_t i = 0; text->data != before && i < KNOWN_COUNT; i++)
		if (place(reply, i)->size)
			place(reply, i)->data = text->data + (place(reply, i)->data - before);
	*place(reply, which) = rdv_slice(text->data + start, value.size);
}

void rdv_http_reply_header(struct rdv_http_reply *reply, struct rdv_slice line, struct rdv_buffer *text)
{
	const uint8_t *colon = line.size ? memchr(line.data, ':', line.size) : NULL;
	struct rdv_slice name, value;

	if (line.size >= 5 && memcmp(line.data, "HTTP/", 5) == 0) {
		for (size_t i = 0; i < KNOWN_COUNT; i++)
			*place(reply, i) = (struct rdv_slice){0};
		rdv_buffer_clear(text);
		return;
	}
	if (!colon)
		return;
	name = trim(rdv_slice(line.data, (size_t)(colon - line.data)));
	value = trim(rdv_slice(colon + 1, (size_t)(line.data + line.size - colon - 1)));
	for (size_t i = 0; i < KNOWN_COUNT; i++)
		if (rdv_slice_is_nocase(name, known[i].name) && !place(reply, i)->size)
			keep_value(reply, i, value, text);
}

/* "120" or a date in the future; false: as if it were not there. */
static bool retry_after(struct rdv_slice in, struct rdv_wall now, int64_t *delay_ms)
{
	struct rdv_wall date;
	int64_t seconds = 0;
	size_t i;

	for (i = 0; i < in.size && in.data[i] >= '0' && in.data[i] <= '9'; i++)
		if (seconds < RETRY_AFTER_SECONDS_MAX)
			seconds = seconds * 10 + (in.data[i] - '0');
	if (in.size && i == in.size) {
		*delay_ms = rdv_ms_mul(seconds, 1000);
		return true;
	}
	if (rdv_wall_parse_http(in, &date) || date.ms <= now.ms)
		return false;
	*delay_ms = date.ms - now.ms;
	return true;
}

static void set_delay(const struct rdv_http_reply *reply, struct rdv_wall now, struct rdv_answer *out)
{
	int64_t delay_ms, after_ms = 0;
	bool after = reply->retry_after.size && retry_after(reply->retry_after, now, &after_ms);

	if (reply->delay.size && !rdv_duration_parse(reply->delay, &delay_ms) && delay_ms >= 0) {
		out->has_delay = true;
		out->delay_ms = delay_ms;
		out->retry_after_ms = after ? after_ms : 0; /* still holds the target */
	} else if (after) {
		out->has_delay = out->delay_is_retry_after = true;
		out->delay_ms = after_ms;
	}
}

static void set_verdict(struct rdv_slice in, struct rdv_answer *out)
{
	for (enum rdv_verdict_kind v = 0; v < RDV_VERDICT_COUNT; v++) {
		if (rdv_slice_is_nocase(in, rdv_verdict_name(v))) {
			out->explicit_verdict = true;
			out->verdict = v;
		}
	}
}

static bool is_problem(struct rdv_slice content_type)
{
	const uint8_t *end = content_type.size ? memchr(content_type.data, ';', content_type.size) : NULL;

	if (end)
		content_type.size = (size_t)(end - content_type.data);
	return rdv_slice_is_nocase(trim(content_type), "application/problem+json");
}

static struct rdv_slice member(const json_t *problem, const char *name)
{
	const json_t *value = json_object_get(problem, name);

	return json_is_string(value) ? rdv_slice(json_string_value(value), json_string_length(value))
				     : (struct rdv_slice){0};
}

/* The handler's own code may be a text or a number. */
static struct rdv_slice code_member(const json_t *problem, char number[32])
{
	const json_t *value = json_object_get(problem, "code");

	if (!json_is_integer(value))
		return member(problem, "code");
	snprintf(number, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	return rdv_slice_text(number);
}

static void read_problem(const json_t *problem, char number[32], struct rdv_failure *f)
{
	f->class = member(problem, "title");
	if (!f->class.size)
		f->class = member(problem, "type");
	if (rdv_slice_is(f->class, "about:blank"))
		f->class = (struct rdv_slice){0};
	f->text = member(problem, "detail");
	f->stack = member(problem, "stack");
	f->root_class = member(problem, "root_class");
	f->code = code_member(problem, number);
}

void rdv_http_answer(const struct rdv_http_reply *reply, struct rdv_wall now, struct rdv_buffer *text,
		     struct rdv_answer *out)
{
	struct rdv_answer raw = {.transport = RDV_TRANSPORT_ANSWER, .http_status = reply->status, .exit_code = -1};
	json_t *problem = NULL;
	char number[32];

	set_delay(reply, now, &raw);
	set_verdict(reply->verdict, &raw);
	raw.duplicate = rdv_slice_is(reply->duplicate, "1") || rdv_slice_is_nocase(reply->duplicate, "true");
	raw.handler_version = reply->handler_version;
	raw.answer = reply->body;
	if (reply->body.size && is_problem(reply->content_type))
		problem = json_loadb((const char *)reply->body.data, reply->body.size, JSON_ALLOW_NUL, NULL);
	if (json_is_object(problem))
		read_problem(problem, number, &raw.failure);
	if (!raw.failure.class.size)
		raw.failure.class = reply->error_class;
	if (!raw.failure.text.size)
		raw.failure.text = reply->error.size ? reply->error : reply->body;
	rdv_answer_copy(&raw, text, out);
	json_decref(problem);
}
