/* copy.c - a letter as a record for foreign readers: the message with its headers, and those of the format behind them.
 * See letters.h, and copy.h for the tables. */
#include "../../base/text.h"
#include "copy.h"

static void put_big_endian(struct rdv_buffer *out, uint64_t v, size_t bytes)
{
	while (bytes-- > 0)
		rdv_buffer_u8(out, (uint8_t)(v >> 8 * bytes));
}

static void put_time(struct rdv_buffer *out, struct rdv_wall t)
{
	char text[25];

	if (t.ms == 0)
		return;
	rdv_wall_format(t, text);
	rdv_buffer_text(out, text);
}

static void put_value(const struct rdv_copy_row *row, const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	const void *field = (const char *)s->e + row->at;

	switch (row->form) {
	case RDV_COPY_MADE:
		row->make(s, out);
		break;
	case RDV_COPY_CONSTANT:
		rdv_buffer_text(out, row->constant);
		break;
	case RDV_COPY_TEXT:
		rdv_buffer_slice(out, *(const struct rdv_slice *)field);
		break;
	case RDV_COPY_DECIMAL32:
		rdv_buffer_decimal(out, *(const uint32_t *)field);
		break;
	case RDV_COPY_DECIMAL64:
		rdv_buffer_decimal(out, *(const uint64_t *)field);
		break;
	case RDV_COPY_TIME:
		put_time(out, *(const struct rdv_wall *)field);
		break;
	case RDV_COPY_BE32:
		put_big_endian(out, *(const uint32_t *)field, 4);
		break;
	case RDV_COPY_BE64:
		put_big_endian(out, *(const uint64_t *)field, 8);
		break;
	case RDV_COPY_BE_TIME:
		if (((const struct rdv_wall *)field)->ms)
			put_big_endian(out, (uint64_t)((const struct rdv_wall *)field)->ms, 8);
		break;
	}
}

static bool has_header(struct rdv_slice headers, const char *name)
{
	struct rdv_header h;
	uint64_t count;
	struct rdv_reader r = rdv_headers_begin(headers, &count);

	while (rdv_headers_next(&r, &h))
		if (rdv_slice_is(h.name, name))
			return true;
	return false;
}

struct list { /* encoded headers without their count */
	struct rdv_buffer bytes;
	uint64_t count;
};

static void put(struct list *l, struct rdv_slice name, struct rdv_slice value)
{
	rdv_buffer_prefixed(&l->bytes, name);
	rdv_buffer_prefixed(&l->bytes, value);
	l->count++;
}

/* The format's headers; a bit of *replaced for each row that takes the place of older ones. */
static void put_rows(const struct rdv_copy_format *f, const struct rdv_copy_source *s, struct list *l,
		     uint64_t *replaced)
{
	struct rdv_buffer value;

	rdv_buffer_init(&value, 0);
	for (size_t i = 0; i < f->count; i++) {
		const struct rdv_copy_row *row = &f->rows[i];

		rdv_buffer_clear(&value);
		put_value(row, s, &value);
		if (value.failed)
			l->bytes.failed = true;
		if (!value.size || (row->policy == RDV_COPY_KEEP && has_header(s->e->headers, row->name)))
			continue;
		put(l, rdv_slice_text(row->name), rdv_buffer_as_slice(&value));
		if (row->policy == RDV_COPY_REPLACE)
			*replaced |= UINT64_C(1) << i;
	}
	rdv_buffer_done(&value);
}

/* Redrive's own names cannot come from a source. */
static bool is_ours(struct rdv_slice name)
{
	static const char prefix[] = "redrive-";

	return name.size >= sizeof prefix - 1 && rdv_slice_is_nocase(rdv_slice(name.data, sizeof prefix - 1), prefix);
}

static bool is_replaced(const struct rdv_copy_format *f, uint64_t replaced, struct rdv_slice name)
{
	for (; replaced; replaced &= replaced - 1)
		if (rdv_slice_is(name, f->rows[__builtin_ctzll(replaced)].name))
			return true;
	return false;
}

/* The message's own headers, in their order, every byte of those that stay. */
static void put_own(const struct rdv_copy_format *f, struct rdv_slice headers, uint64_t replaced, struct list *l)
{
	struct rdv_header h;
	uint64_t count;
	struct rdv_reader r = rdv_headers_begin(headers, &count);

	while (rdv_headers_next(&r, &h))
		if (!is_ours(h.name) && !is_replaced(f, replaced, h.name))
			put(l, h.name, h.value);
}

static void put_headers(enum rdv_letter_format f, const struct rdv_copy_source *s, struct rdv_buffer *out)
{
	struct list own = {0}, added = {0};
	uint64_t replaced = 0;

	rdv_buffer_init(&own.bytes, 0);
	rdv_buffer_init(&added.bytes, 0);
	put_rows(rdv_copy_format(f), s, &added, &replaced);
	if (f != RDV_FORMAT_JSON)
		put_own(rdv_copy_format(f), s->e->headers, replaced, &own);
	rdv_buffer_varint(out, own.count + added.count);
	rdv_buffer_slice(out, rdv_buffer_as_slice(&own.bytes));
	rdv_buffer_slice(out, rdv_buffer_as_slice(&added.bytes));
	if (own.bytes.failed || added.bytes.failed)
		out->failed = true;
	rdv_buffer_done(&own.bytes);
	rdv_buffer_done(&added.bytes);
}

enum redrive_status rdv_letter_copy_make(enum rdv_letter_format f, const struct rdv_envelope *e, struct rdv_slice body,
					 const char *group_name, struct rdv_letter_copy *out)
{
	struct rdv_copy_source s = {e, body, group_name, ""};
	uint8_t id[16];

	*out = (struct rdv_letter_copy){0};
	if (f >= RDV_FORMAT_COUNT || !rdv_headers_valid(e->headers))
		return REDRIVE_INVALID;
	rdv_envelope_id(e, id);
	rdv_base32_128(id, s.id);
	out->has_key = !e->null_key;
	out->has_value = f == RDV_FORMAT_JSON || !e->tombstone;
	if (out->has_key)
		rdv_buffer_slice(&out->key, e->key);
	if (f == RDV_FORMAT_JSON)
		rdv_copy_json(&s, &out->value);
	else if (out->has_value)
		rdv_buffer_slice(&out->value, body);
	put_headers(f, &s, &out->headers);
	if (!out->key.failed && !out->value.failed && !out->headers.failed)
		return REDRIVE_OK;
	rdv_letter_copy_done(out);
	return REDRIVE_NO_MEMORY;
}

void rdv_letter_copy_done(struct rdv_letter_copy *c)
{
	if (!c)
		return;
	rdv_buffer_done(&c->key);
	rdv_buffer_done(&c->value);
	rdv_buffer_done(&c->headers);
	*c = (struct rdv_letter_copy){0};
}
