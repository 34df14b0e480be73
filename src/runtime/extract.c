/* extract.c - values out of a message: dedupe keys, metadata, index terms.
 *
 * A spec names a header ("header:NAME", any case, the first one), a JSON pointer into the body ("json:/a/0/b", RFC
 * 6901), the word "traceparent" (its trace id), or is the value itself. JSON is parsed with jansson, at most to its own
 * depth limit; a body that is not JSON has no such value. Strings are taken as they are, numbers and booleans as their
 * JSON text; null, objects and arrays are no values. Slices borrow from the body's payload or from `text`. Any thread,
 * never the core's for JSON: bodies may be large. */
#include "room.h"
#include "extract.h"
#include <jansson.h>
#include <stdlib.h>

static const char json_prefix[] = "json:", header_prefix[] = "header:";

static bool begins(const char *spec, const char *prefix)
{
	return strncmp(spec, prefix, strlen(prefix)) == 0;
}

static struct rdv_slice find_header(const struct rdv_body *body, const char *name)
{
	uint64_t count = 0;
	struct rdv_reader r = rdv_headers_begin(body->headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&r, &h))
		if (rdv_slice_is_nocase(h.name, name))
			return h.value;
	return rdv_slice(NULL, 0);
}

/* One reference token, ~1 and ~0 resolved; false when it is too long. */
static bool next_token(const char **at, char token[256])
{
	size_t size = 0;

	for (; **at && **at != '/'; ++*at) {
		char c = **at;

		if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1'))
			c = *++*at == '1' ? '/' : '~';
		if (size >= 255)
			return false;
		token[size++] = c;
	}
	token[size] = 0;
	return true;
}

static const json_t *point(const json_t *value, const char *pointer)
{
	char token[256];

	while (value && *pointer) {
		if (*pointer++ != '/' || !next_token(&pointer, token))
			return NULL;
		if (json_is_object(value)) {
			value = json_object_get(value, token);
		} else if (json_is_array(value)) {
			char *end;
			unsigned long index = strtoul(token, &end, 10);

			value = *token && !*end && token[0] >= '0' && token[0] <= '9' ? json_array_get(value, index)
										      : NULL;
		} else {
			return NULL;
		}
	}
	return value;
}

/* Appending may move what the buffer held before: one value a buffer. */
static struct rdv_slice keep(struct rdv_buffer *text, const void *data, size_t size)
{
	rdv_buffer_append(text, data, size);
	return text->failed ? rdv_slice(NULL, 0) : rdv_slice(text->data + text->size - size, size);
}

static struct rdv_slice json_value(const json_t *value, struct rdv_buffer *text)
{
	struct rdv_slice out = {0};
	char *dump;

	if (json_is_string(value))
		return keep(text, json_string_value(value), json_string_length(value));
	if (!value || json_is_null(value) || json_is_object(value) || json_is_array(value))
		return out;
	dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	if (dump)
		out = keep(text, dump, strlen(dump));
	free(dump);
	return out;
}

static struct rdv_slice find_json(const struct rdv_body *body, const char *pointer, struct rdv_buffer *text)
{
	json_t *root =
		json_loadb((const char *)body->body.data, body->body.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	struct rdv_slice out = {0};

	if (!root)
		return out;
	out = json_value(point(root, pointer), text);
	json_decref(root);
	return out;
}

static struct rdv_slice trace_id(const struct rdv_body *body)
{
	struct rdv_slice t = body->traceparent;

	if (t.size < 55 || t.data[2] != '-' || t.data[35] != '-')
		return rdv_slice(NULL, 0);
	return rdv_slice(t.data + 3, 32);
}

struct rdv_slice rdv_extract(const char *spec, const struct rdv_body *body, struct rdv_buffer *text)
{
	if (!spec)
		return rdv_slice(NULL, 0);
	if (begins(spec, header_prefix))
		return find_header(body, spec + strlen(header_prefix));
	if (begins(spec, json_prefix))
		return find_json(body, spec + strlen(json_prefix), text);
	if (strcmp(spec, "traceparent") == 0)
		return trace_id(body);
	return rdv_slice_text(spec);
}

bool rdv_dedupe_needs_json(const struct rdv_dedupe_policy *p)
{
	return p->by == RDV_DEDUPE_JSON;
}

bool rdv_dedupe_key(const struct rdv_dedupe_policy *p, const struct rdv_call *call, const struct rdv_body *body,
		    struct rdv_buffer *text, struct rdv_slice *key)
{
	const char *name = p->name;
	char id[RDV_MESSAGE_ID_SIZE];

	switch (p->by) {
	case RDV_DEDUPE_ID:
		*key = body->publish_id;
		if (key->size)
			return true;
		*key = rdv_call_message_id(call, id);
		*key = keep(text, key->data, key->size);
		return key->size > 0;
	case RDV_DEDUPE_KEY:
		*key = body->key;
		return key->size > 0;
	case RDV_DEDUPE_HEADER:
		*key = find_header(body, begins(name, header_prefix) ? name + strlen(header_prefix) : name);
		return key->size > 0;
	case RDV_DEDUPE_JSON:
		*key = find_json(body, begins(name, json_prefix) ? name + strlen(json_prefix) : name, text);
		return key->size > 0;
	default:
		return false;
	}
}
