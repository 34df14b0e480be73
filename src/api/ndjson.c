/* ndjson.c - jansson judges each line; the span of its "body" value is then found in the text itself, so that numbers,
 * spaces and escapes of a JSON body stay as the producer wrote them. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/text.h"
#include "ndjson.h"

#define LINES_MAX 1000000u
#define HEADERS_MAX 1000u
#define PLAIN_MIN 64u        /* bytes of a body_text that are worth a look */
#define PLAIN_REST_MAX 1024u /* bytes of a line without it */

static enum redrive_status bad(struct rdv_batch *b, enum redrive_status status, const char *fmt, ...) RDV_PRINTF(3, 4);
static enum redrive_status bad(struct rdv_batch *b, enum redrive_status status, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vsnprintf(b->detail, sizeof b->detail, fmt, args);
	va_end(args);
	return status;
}

/* Memory that lives until the batch is done; NULL if there is none. */
static void *take_memory(struct rdv_batch *b, size_t size)
{
	if (b->memory_count == b->memory_capacity) {
		size_t capacity = b->memory_capacity ? b->memory_capacity * 2 : 256;
		void **memory = realloc(b->memory, capacity * sizeof *memory);
		if (!memory)
			return NULL;
		b->memory = memory;
		b->memory_capacity = capacity;
	}
	void *memory = malloc(size);
	if (memory)
		b->memory[b->memory_count++] = memory;
	return memory;
}

static void *keep(struct rdv_batch *b, const void *data, size_t size)
{
	void *copy = take_memory(b, size + 1);
	if (copy && size)
		memcpy(copy, data, size);
	return copy;
}

static bool keep_text(struct rdv_batch *b, const json_t *text, struct rdv_slice *out)
{
	size_t size = json_string_length(text);
	void *copy = keep(b, json_string_value(text), size);
	*out = rdv_slice(copy, copy ? size : 0);
	return copy != NULL;
}

/* ---- the span of a member's value in a line that is valid JSON ---- */

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
		p++;
	return p;
}

static const char *skip_string(const char *p, const char *end)
{
	const char *quote = p;

	for (p++; p < end;) {
		const char *escape;

		if (quote < p)
			quote = memchr(p, '"', (size_t)(end - p));
		if (!quote)
			return end;
		escape = memchr(p, '\\', (size_t)(quote - p));
		if (!escape)
			return quote + 1;
		p = escape + 2;
	}
	return end;
}

static const char *skip_value(const char *p, const char *end)
{
	if (p < end && *p == '"')
		return skip_string(p, end);
	if (p < end && (*p == '{' || *p == '[')) {
		size_t depth = 0;
		while (p < end) {
			if (*p == '"') {
				p = skip_string(p, end);
				continue;
			}
			depth += *p == '{' || *p == '[';
			if ((*p == '}' || *p == ']') && --depth == 0)
				return p + 1;
			p++;
		}
		return end;
	}
	while (p < end && *p != ',' && *p != '}' && *p != ' ' && *p != '\t' && *p != '\r' && *p != '\n')
		p++;
	return p;
}

static struct rdv_slice member_span(struct rdv_slice line, struct rdv_slice name)
{
	const char *p = (const char *)line.data, *end = p + line.size;
	p = skip_space(p, end);
	if (p < end)
		p++; /* '{' */
	for (;;) {
		p = skip_space(p, end);
		if (p >= end || *p != '"')
			return rdv_slice(NULL, 0);
		const char *key = p + 1;
		p = skip_string(p, end);
		bool found = (size_t)(p - key) == name.size + 1 && memcmp(key, name.data, name.size) == 0;
		p = skip_space(p, end);
		p = skip_space(p < end ? p + 1 : end, end); /* ':' */
		const char *value = p;
		p = skip_value(p, end);
		if (found)
			return rdv_slice(value, (size_t)(p - value));
		p = skip_space(p, end);
		if (p < end)
			p++; /* ',' */
	}
}

/* ---- members ---- */

struct line {
	struct rdv_batch *batch;
	const struct rdv_batch_limits *limits;
	struct rdv_slice text;
	struct rdv_slice plain; /* a long body_text that jansson need not read; data NULL: there is none */
	struct rdv_message *message;
	unsigned bodies;
};

static enum redrive_status want_text(struct line *l, const char *name, const json_t *value, struct rdv_slice *out)
{
	if (!json_is_string(value))
		return bad(l->batch, REDRIVE_INVALID, "'%s' must be a text", name);
	return keep_text(l->batch, value, out) ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static enum redrive_status take_key(struct line *l, const json_t *value)
{
	if (json_is_null(value))
		return REDRIVE_OK;
	l->message->has_key = true;
	return want_text(l, "key", value, &l->message->key);
}

static enum redrive_status take_key_base64(struct line *l, const json_t *value)
{
	struct rdv_buffer out;
	if (!json_is_string(value))
		return bad(l->batch, REDRIVE_INVALID, "'key_base64' must be a text");
	rdv_buffer_init(&out, RDV_KEY_MAX + 1024);
	enum redrive_status status =
		rdv_base64_decode(&out, rdv_slice(json_string_value(value), json_string_length(value)));
	if (status != REDRIVE_OK || out.failed) {
		rdv_buffer_done(&out);
		return bad(l->batch, REDRIVE_INVALID, "'key_base64' is no base64");
	}
	void *copy = keep(l->batch, out.data, out.size);
	l->message->has_key = true;
	l->message->key = rdv_slice(copy, copy ? out.size : 0);
	rdv_buffer_done(&out);
	return copy ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static enum redrive_status take_id(struct line *l, const json_t *value)
{
	enum redrive_status status = want_text(l, "id", value, &l->message->id);
	if (status == REDRIVE_OK && l->message->id.size == 0)
		return bad(l->batch, REDRIVE_INVALID, "'id' is empty: leave it out");
	return status;
}

static enum redrive_status take_type(struct line *l, const json_t *value)
{
	enum redrive_status status = want_text(l, "content_type", value, &l->message->content_type);
	for (size_t i = 0; status == REDRIVE_OK && i < l->message->content_type.size; i++)
		if (l->message->content_type.data[i] < 0x20 || l->message->content_type.data[i] >= 0x7f)
			return bad(l->batch, REDRIVE_INVALID, "'content_type' holds something that is no header text");
	return status;
}

static enum redrive_status take_traceparent(struct line *l, const json_t *value)
{
	return want_text(l, "traceparent", value, &l->message->traceparent);
}

static enum redrive_status take_delay(struct line *l, const json_t *value)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return bad(l->batch, REDRIVE_INVALID,
			   "'delay_ms' must be a whole number of milliseconds, not negative");
	int64_t due = rdv_ms_add(l->limits->now.ms, json_integer_value(value));
	if (due > 253402300799999) /* the end of year 9999 */
		return bad(l->batch, REDRIVE_INVALID, "'delay_ms' lies beyond the year 9999");
	l->message->not_before.ms = json_integer_value(value) ? due : 0;
	return REDRIVE_OK;
}

static enum redrive_status take_body(struct line *l, const json_t *value)
{
	(void)value;
	l->bodies++;
	l->message->body = member_span(l->text, rdv_slice_text("body"));
	if (l->message->body.size)
		return REDRIVE_OK;
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY); /* the key was written with escapes */
	void *copy = text ? keep(l->batch, text, strlen(text)) : NULL;
	l->message->body = rdv_slice(copy, copy ? strlen(text) : 0);
	free(text);
	return copy ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static enum redrive_status take_body_text(struct line *l, const json_t *value)
{
	l->bodies++;
	if (l->plain.data) {
		l->message->body = l->plain;
		return REDRIVE_OK;
	}
	return want_text(l, "body_text", value, &l->message->body);
}

static enum redrive_status take_body_base64(struct line *l, const json_t *value)
{
	struct rdv_buffer out;
	l->bodies++;
	if (!json_is_string(value))
		return bad(l->batch, REDRIVE_INVALID, "'body_base64' must be a text");
	rdv_buffer_init(&out, 0);
	enum redrive_status status =
		rdv_base64_decode(&out, rdv_slice(json_string_value(value), json_string_length(value)));
	void *copy = status == REDRIVE_OK && !out.failed ? keep(l->batch, out.data, out.size) : NULL;
	l->message->body = rdv_slice(copy, copy ? out.size : 0);
	rdv_buffer_done(&out);
	if (status != REDRIVE_OK)
		return bad(l->batch, REDRIVE_INVALID, "'body_base64' is no base64");
	return copy ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static enum redrive_status take_null(struct line *l, const json_t *value)
{
	if (!json_is_boolean(value))
		return bad(l->batch, REDRIVE_INVALID, "'null' must be true or false");
	l->message->tombstone = json_is_true(value);
	return REDRIVE_OK;
}

static bool header_name_good(struct rdv_slice name)
{
	for (size_t i = 0; i < name.size; i++)
		if (name.data[i] <= 0x20 || name.data[i] >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", name.data[i]))
			return false;
	return name.size > 0 && name.size <= 256;
}

static enum redrive_status add_header(struct line *l, struct rdv_header *headers, size_t *count, struct rdv_slice name,
				      const json_t *value)
{
	if (!header_name_good(name))
		return bad(l->batch, REDRIVE_INVALID, "'headers' holds a name that is no header name");
	if (!json_is_string(value))
		return bad(l->batch, REDRIVE_INVALID, "the value of a header must be a text");
	void *copy = keep(l->batch, name.data, name.size);
	headers[*count].name = rdv_slice(copy, copy ? name.size : 0);
	return copy && keep_text(l->batch, value, &headers[(*count)++].value) ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static enum redrive_status take_headers(struct line *l, const json_t *value)
{
	size_t size = json_is_object(value) ? json_object_size(value) : json_array_size(value), count = 0;
	if ((!json_is_object(value) && !json_is_array(value)) || size > HEADERS_MAX)
		return bad(l->batch, REDRIVE_INVALID,
			   "'headers' must be an object or a list of [name, value], at most %u", HEADERS_MAX);
	struct rdv_header *headers = take_memory(l->batch, (size + 1) * sizeof *headers);
	if (!headers)
		return REDRIVE_NO_MEMORY;
	enum redrive_status status = REDRIVE_OK;
	const char *name;
	json_t *item;
	size_t i;
	if (json_is_object(value)) {
		json_object_foreach((json_t *)value, name, item) if (status == REDRIVE_OK) status =
			add_header(l, headers, &count, rdv_slice_text(name), item);
	} else {
		json_array_foreach(value, i, item)
		{
			const json_t *n = json_array_get(item, 0);
			if (status == REDRIVE_OK && (json_array_size(item) != 2 || !json_is_string(n)))
				status = bad(l->batch, REDRIVE_INVALID, "'headers' must hold pairs [name, value]");
			if (status == REDRIVE_OK)
				status = add_header(l, headers, &count,
						    rdv_slice(json_string_value(n), json_string_length(n)),
						    json_array_get(item, 1));
		}
	}
	l->message->headers = headers;
	l->message->header_count = count;
	return status;
}

static const struct {
	const char *name;
	enum redrive_status (*take)(struct line *l, const json_t *value);
} members[] = {
	{"key", take_key},
	{"id", take_id},
	{"headers", take_headers},
	{"content_type", take_type},
	{"delay_ms", take_delay},
	{"body", take_body},
	{"body_text", take_body_text},
	{"body_base64", take_body_base64},
	{"null", take_null},
	{"key_base64", take_key_base64},
	{"traceparent", take_traceparent},
};

static enum redrive_status check_message(struct line *l)
{
	const struct rdv_message *m = l->message;
	uint64_t headers = 0;
	for (size_t i = 0; i < m->header_count; i++)
		headers += m->headers[i].name.size + m->headers[i].value.size;
	if (l->bodies > 1)
		return bad(l->batch, REDRIVE_INVALID, "more than one of body, body_text, body_base64");
	if (m->tombstone && l->bodies)
		return bad(l->batch, REDRIVE_INVALID, "a tombstone (\"null\": true) has no body");
	if (m->body.size > l->limits->body_max)
		return bad(l->batch, REDRIVE_TOO_LARGE,
			   "the body has %zu bytes; %llu are the most that limits.body allows", m->body.size,
			   (unsigned long long)l->limits->body_max);
	if (headers > l->limits->headers_max)
		return bad(l->batch, REDRIVE_TOO_LARGE,
			   "the headers have %llu bytes; %llu are the most that limits.headers allows",
			   (unsigned long long)headers, (unsigned long long)l->limits->headers_max);
	return REDRIVE_OK;
}

/* Is it the same within quotes and without: no escape, no control character, valid UTF-8? */
static bool is_plain(struct rdv_slice text)
{
	for (size_t i = 0; i < text.size; i++)
		if (text.data[i] < 0x20 || text.data[i] == '\\')
			return false;
	return rdv_utf8_valid(text);
}

/* jansson reads byte by byte, and most of a line is the text of its body. A long plain body_text is taken out: jansson
 * judges the same line with an empty text in its place. All before it is unchanged, so either that text begins where
 * ours says, or jansson refuses; then the whole line is judged as it is. NULL: nothing to take out, or no. */
static json_t *load_without_text(struct line *l)
{
	char rest[PLAIN_REST_MAX];
	struct rdv_slice span = member_span(l->text, rdv_slice_text("body_text"));
	size_t head = span.data ? (size_t)(span.data - l->text.data) + 1 : 0;
	json_error_t error;
	json_t *object;

	if (span.size < PLAIN_MIN || span.data[0] != '"' || span.data[span.size - 1] != '"' ||
	    l->text.size - span.size + 2 > sizeof rest)
		return NULL;
	l->plain = rdv_slice(span.data + 1, span.size - 2);
	if (is_plain(l->plain)) {
		memcpy(rest, l->text.data, head);
		memcpy(rest + head, l->plain.data + l->plain.size, l->text.size - l->plain.size - head);
		object =
			json_loadb(rest, l->text.size - l->plain.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
		if (object)
			return object;
	}
	l->plain = rdv_slice(NULL, 0);
	return NULL;
}

static enum redrive_status parse_line(struct line *l)
{
	json_error_t error;
	json_t *object = load_without_text(l);
	if (!object)
		object = json_loadb((const char *)l->text.data, l->text.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
				    &error);
	if (!object && json_error_code(&error) == json_error_numeric_overflow)
		object = json_loadb((const char *)l->text.data, l->text.size,
				    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
	if (!object)
		return bad(l->batch, REDRIVE_INVALID, "not JSON: %s (column %d)", error.text, error.column);
	enum redrive_status status =
		json_is_object(object) ? REDRIVE_OK : bad(l->batch, REDRIVE_INVALID, "each line must be a JSON object");
	const char *name;
	json_t *value;
	json_object_foreach(object, name, value)
	{
		size_t i = 0, count = sizeof members / sizeof members[0];
		while (i < count && strcmp(members[i].name, name) != 0)
			i++;
		if (status != REDRIVE_OK)
			break;
		status = i < count ? members[i].take(l, value)
				   : bad(l->batch, REDRIVE_INVALID, "unknown member '%.64s'", name);
	}
	json_decref(object);
	return status == REDRIVE_OK ? check_message(l) : status;
}

static struct rdv_message *append(struct rdv_batch *b)
{
	if (b->count == b->capacity) {
		size_t capacity = b->capacity ? b->capacity * 2 : 256;
		struct rdv_message *messages =
			capacity <= LINES_MAX * 2 ? realloc(b->messages, capacity * sizeof *messages) : NULL;
		if (!messages)
			return NULL;
		b->messages = messages;
		b->capacity = capacity;
	}
	memset(&b->messages[b->count], 0, sizeof *b->messages);
	return &b->messages[b->count++];
}

enum redrive_status rdv_batch_parse(struct rdv_slice text, const struct rdv_batch_limits *limits, struct rdv_batch *out)
{
	memset(out, 0, sizeof *out);
	size_t at = 0, number = 0;
	while (at < text.size) {
		const uint8_t *end = memchr(text.data + at, '\n', text.size - at);
		size_t size = end ? (size_t)(end - text.data) - at : text.size - at;
		struct line line = {.batch = out, .limits = limits, .text = rdv_slice(text.data + at, size)};
		at += size + 1;
		number++;
		if (line.text.size && line.text.data[line.text.size - 1] == '\r')
			line.text.size--;
		if (line.text.size == 0)
			continue;
		out->bad_line = number;
		line.message = append(out);
		enum redrive_status status =
			line.message ? parse_line(&line) : bad(out, REDRIVE_TOO_LARGE, "too many lines");
		if (status != REDRIVE_OK)
			return status;
	}
	out->bad_line = 0;
	return out->count ? REDRIVE_OK : bad(out, REDRIVE_INVALID, "the batch is empty");
}

void rdv_batch_done(struct rdv_batch *b)
{
	for (size_t i = 0; i < b->memory_count; i++)
		free(b->memory[i]);
	free(b->memory);
	free(b->messages);
	memset(b, 0, sizeof *b);
}
