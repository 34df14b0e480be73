/* copy.h - what a foreign copy is made from, for the files that make it: copy.c (the record), copy_formats.c (the
 * tables of headers), copy_json.c (the wrapper).
 *
 * One table of rows a format: a header's name, where its value comes from, and what becomes of a header of that name
 * that the message has already (it died elsewhere before, or was replayed). A row whose value is empty is not there and
 * replaces nothing. Appending functions set `failed` of the buffer without memory. Pure; any thread. */
#ifndef RDV_BROKERS_KAFKA_COPY_H
#define RDV_BROKERS_KAFKA_COPY_H
#include "letters.h"

struct rdv_copy_source { /* all borrowed */
	const struct rdv_envelope *e;
	struct rdv_slice body;
	const char *group; /* NULL = not told */
	char id[27];       /* the letter's */
};
/* The body is not the whole one: cut when it was too large, or lost. */
static inline bool rdv_copy_is_cut(const struct rdv_copy_source *s)
{
	return s->e->body_truncated || (!s->e->tombstone && s->body.size < s->e->body_size);
}

enum rdv_copy_policy {
	RDV_COPY_APPEND,  /* both stay, the new one last: Spring Kafka's kafka_dlt-original-* */
	RDV_COPY_REPLACE, /* the new one alone: kafka_dlt-exception-*; share groups, which copy no headers */
	RDV_COPY_KEEP,    /* the old one alone: Kafka Connect */
};
enum rdv_copy_form {
	RDV_COPY_MADE,      /* by `make` */
	RDV_COPY_CONSTANT,  /* `constant` */
	RDV_COPY_TEXT,      /* a slice of the envelope; the rest likewise */
	RDV_COPY_DECIMAL32, /* as text */
	RDV_COPY_DECIMAL64,
	RDV_COPY_TIME, /* RFC 3339; 0 = not there */
	RDV_COPY_BE32, /* binary, big-endian, fixed width */
	RDV_COPY_BE64,
	RDV_COPY_BE_TIME, /* ms since 1970 in 8 bytes; 0 = not there */
};
struct rdv_copy_row {
	const char *name;
	enum rdv_copy_policy policy;
	enum rdv_copy_form form;
	size_t at; /* of the field, in struct rdv_envelope */
	void (*make)(const struct rdv_copy_source *s, struct rdv_buffer *out);
	const char *constant;
};
#define RDV_COPY_ROWS_MAX 64u
struct rdv_copy_format {
	const char *name;
	const struct rdv_copy_row *rows;
	size_t count; /* at most RDV_COPY_ROWS_MAX */
};
const struct rdv_copy_format *rdv_copy_format(enum rdv_letter_format f);

/* The whole letter as one JSON document. */
void rdv_copy_json(const struct rdv_copy_source *s, struct rdv_buffer *out);
/* Its attempts alone, as a JSON array; nothing if there are none. */
void rdv_copy_history(const struct rdv_copy_source *s, struct rdv_buffer *out);
#endif
