/* query.c - the query: route:, reason:, key:, dead:A..B, joined by spaces; each at most once.
 *
 * A value may stand in double quotes, with \" and \\ inside; so a key may hold spaces, or be empty (key:""). dead:
 * takes days, both included, in UTC (dead:2026-11-01..2026-11-05), one day (dead:2026-11-01), or times (RFC 3339)
 * from..to, the end not included; either side may be left out. Everything else is a mistake with its position: the
 * words and fields of the full language belong to a later step, and a query must never mean less than it says. The
 * table of fields is where it grows. Pure; any thread. */
#include <stdio.h>
#include <stdlib.h>
#include "desk.h"

#define QUERY_BYTES 65536u

struct parser {
	struct rdv_slice text;
	size_t at;   /* byte */
	size_t term; /* where the term began */
	struct rdv_query *out;
	struct rdv_error *error;
	unsigned seen; /* fields, as bits */
};

static enum redrive_status set_route(struct parser *p, struct rdv_slice value)
{
	if (value.size == 0 || value.size > 100 || memchr(value.data, 0, value.size))
		return rdv_error_set(p->error, REDRIVE_INVALID, "route: takes a route's name");
	p->out->route = calloc(1, value.size + 1);
	if (!p->out->route)
		return REDRIVE_NO_MEMORY;
	if (value.size)
		memcpy(p->out->route, value.data, value.size);
	return REDRIVE_OK;
}

static enum redrive_status set_reason(struct parser *p, struct rdv_slice value)
{
	char names[256] = "";
	if (rdv_reason_parse(value, &p->out->reason) && p->out->reason != RDV_REASON_NONE)
		return REDRIVE_OK;
	for (int i = 1; i < RDV_REASON_COUNT; i++) {
		size_t used = strlen(names);
		snprintf(names + used, sizeof names - used, "%s%s", i > 1 ? ", " : "",
			 rdv_reason_name((enum rdv_reason)i));
	}
	return rdv_error_set(p->error, REDRIVE_INVALID, "reason: takes one of %s", names);
}

static enum redrive_status set_key(struct parser *p, struct rdv_slice value)
{
	if (value.size > RDV_KEY_MAX)
		return rdv_error_set(p->error, REDRIVE_INVALID, "key: a key has at most %d bytes", RDV_KEY_MAX);
	p->out->key = malloc(value.size + 1);
	if (!p->out->key)
		return REDRIVE_NO_MEMORY;
	if (value.size)
		memcpy(p->out->key, value.data, value.size);
	p->out->key[value.size] = 0;
	p->out->key_size = value.size;
	p->out->has_key = true;
	return REDRIVE_OK;
}

/* A day (the whole of it: *end is the next day's start) or a time (*end = *start). */
static bool parse_when(struct rdv_slice text, struct rdv_wall *start, struct rdv_wall *end)
{
	char full[32];
	if (text.size == 10) {
		snprintf(full, sizeof full, "%.10sT00:00:00Z", (const char *)text.data);
		if (rdv_wall_parse(rdv_slice_text(full), start) != REDRIVE_OK)
			return false;
		end->ms = start->ms + 86400000;
		return true;
	}
	if (rdv_wall_parse(text, start) != REDRIVE_OK)
		return false;
	*end = *start;
	return true;
}

static const char *find_dots(struct rdv_slice value)
{
	for (size_t i = 0; i + 1 < value.size; i++)
		if (value.data[i] == '.' && value.data[i + 1] == '.')
			return (const char *)value.data + i;
	return NULL;
}

static enum redrive_status set_dead(struct parser *p, struct rdv_slice value)
{
	struct rdv_wall ignored;
	const char *dots = find_dots(value);
	struct rdv_slice from = value, to = value;
	if (dots) {
		from = rdv_slice(value.data, (size_t)((const uint8_t *)dots - value.data));
		to = rdv_slice(dots + 2, value.size - from.size - 2);
	}
	bool ok = dots || value.size == 10;
	ok = ok && (from.size || to.size);
	ok = ok && (from.size == 0 || parse_when(from, &p->out->dead_from, &ignored));
	ok = ok && (to.size == 0 || parse_when(to, &ignored, &p->out->dead_to));
	if (!ok)
		return rdv_error_set(p->error, REDRIVE_INVALID,
				     "dead: takes days or times, as in dead:2026-11-01..2026-11-05");
	if (from.size && to.size && p->out->dead_to.ms <= p->out->dead_from.ms)
		return rdv_error_set(p->error, REDRIVE_INVALID, "dead: the range ends before it begins");
	return REDRIVE_OK;
}

static const struct field {
	const char *name;
	enum redrive_status (*set)(struct parser *p, struct rdv_slice value);
} fields[] = {{"route", set_route}, {"reason", set_reason}, {"key", set_key}, {"dead", set_dead}};
#define FIELDS (sizeof fields / sizeof fields[0])

static bool at_space(const struct parser *p)
{
	uint8_t c = p->at < p->text.size ? p->text.data[p->at] : 0;
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The value from p->at on: quoted or up to the next space. Unquoted bytes are copied to `out`. */
static enum redrive_status read_value(struct parser *p, struct rdv_buffer *out)
{
	if (p->at == p->text.size || p->text.data[p->at] != '"') {
		while (p->at < p->text.size && !at_space(p))
			rdv_buffer_u8(out, p->text.data[p->at++]);
		return out->failed ? REDRIVE_NO_MEMORY : REDRIVE_OK;
	}
	size_t quote = p->at++;
	while (p->at < p->text.size && p->text.data[p->at] != '"') {
		if (p->text.data[p->at] == '\\' && p->at + 1 < p->text.size)
			p->at++;
		rdv_buffer_u8(out, p->text.data[p->at++]);
	}
	if (p->at == p->text.size) {
		p->term = quote;
		return rdv_error_set(p->error, REDRIVE_INVALID, "a quote is not closed");
	}
	p->at++;
	if (p->at < p->text.size && !at_space(p)) {
		p->term = p->at;
		return rdv_error_set(p->error, REDRIVE_INVALID, "a space is missing behind the quote");
	}
	return out->failed ? REDRIVE_NO_MEMORY : REDRIVE_OK;
}

static const struct field *find_field(struct rdv_slice name)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (rdv_slice_is(name, fields[i].name))
			return &fields[i];
	return NULL;
}

static enum redrive_status read_term(struct parser *p)
{
	size_t colon = p->at;
	struct rdv_buffer value;
	while (colon < p->text.size && p->text.data[colon] != ':' && p->text.data[colon] != '"' &&
	       p->text.data[colon] > ' ')
		colon++;
	struct rdv_slice name = rdv_slice(p->text.data + p->at, colon - p->at);
	const struct field *f = colon < p->text.size && p->text.data[colon] == ':' ? find_field(name) : NULL;
	if (!f)
		return rdv_error_set(p->error, REDRIVE_INVALID,
				     "not known here; a query takes route:, reason:, key:, dead:");
	if (p->seen & 1u << (f - fields))
		return rdv_error_set(p->error, REDRIVE_INVALID, "%s: stands here a second time", f->name);
	p->seen |= 1u << (f - fields);
	p->at = colon + 1;
	rdv_buffer_init(&value, QUERY_BYTES);
	enum redrive_status status = read_value(p, &value);
	if (status == REDRIVE_OK)
		status = f->set(p, rdv_slice(value.data ? value.data : (const uint8_t *)"", value.size));
	rdv_buffer_done(&value);
	return status;
}

enum redrive_status rdv_query_parse(struct rdv_slice text, struct rdv_query *out, size_t *position,
				    struct rdv_error *error)
{
	struct parser p = {.text = text, .out = out, .error = error};
	enum redrive_status status = REDRIVE_OK;
	memset(out, 0, sizeof *out);
	*position = 0;
	if (text.size > QUERY_BYTES || !rdv_utf8_valid(text)) {
		*position = 1;
		return rdv_error_set(error, REDRIVE_INVALID, "a query is text of at most %u bytes", QUERY_BYTES);
	}
	for (;;) {
		while (at_space(&p))
			p.at++;
		if (p.at == text.size || status != REDRIVE_OK)
			break;
		p.term = p.at;
		status = read_term(&p);
	}
	if (status == REDRIVE_OK)
		return status;
	*position = rdv_utf8_count(rdv_slice(text.data, p.term)) + 1;
	rdv_query_done(out);
	return status;
}

void rdv_query_done(struct rdv_query *q)
{
	if (!q)
		return;
	free(q->route);
	free(q->key);
	memset(q, 0, sizeof *q);
}
