/* bytes.c - slices, growing buffers and the checked reader.
 *
 * A buffer's memory always has one byte more than its size, so that a NUL can be put behind the
 * content at any time. It doubles, but never allocates beyond limit + 1. Once `failed`, every append
 * is a no-op until clear or done: what is in the buffer then is a prefix that must not be used.
 *
 * A reader that failed stands at its end, so that loops over "while something is left" stop.
 * UTF-8 is the strict form of RFC 3629: no surrogates, nothing overlong, nothing above U+10FFFF;
 * NUL is a character like others. Memory is the only thing that can fail. No locks, no globals. */
#include "bytes.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define DEFAULT_LIMIT ((size_t)1 << 30)
#define SMALLEST 64u

bool rdv_slice_is(struct rdv_slice a, const char *text)
{
	return rdv_slice_equal(a, rdv_slice_text(text));
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

bool rdv_slice_is_nocase(struct rdv_slice a, const char *text)
{
	struct rdv_slice b = rdv_slice_text(text);

	if (a.size != b.size)
		return false;
	for (size_t i = 0; i < a.size; i++)
		if (lower(a.data[i]) != lower(b.data[i]))
			return false;
	return true;
}

void rdv_slice_to_text(struct rdv_slice a, char *out, size_t size)
{
	size_t n = a.size < size ? a.size : size - 1;

	if (n)
		memcpy(out, a.data, n);
	out[n] = '\0';
}

static bool is_tail(uint8_t c)
{
	return (c & 0xC0) == 0x80;
}

/* Size of the character at p, of which `left` bytes (>= 1) may be read; 0 if it is none. */
static size_t utf8_size(const uint8_t *p, size_t left)
{
	uint8_t c = p[0];

	if (c < 0x80)
		return 1;
	if (c < 0xC2 || c > 0xF4 || left < 2 || !is_tail(p[1]))
		return 0;
	if (c < 0xE0)
		return 2;
	/* The second byte excludes overlong forms, surrogates and what is above U+10FFFF. */
	if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) || (c == 0xF0 && p[1] < 0x90) ||
	    (c == 0xF4 && p[1] > 0x8F))
		return 0;
	if (left < 3 || !is_tail(p[2]))
		return 0;
	if (c < 0xF0)
		return 3;
	return left < 4 || !is_tail(p[3]) ? 0 : 4;
}

struct rdv_slice rdv_slice_cut_utf8(struct rdv_slice a, size_t max)
{
	if (a.size <= max)
		return a;
	/* A character that spans `max` begins at most three bytes before it. */
	for (size_t back = 1; back <= 3 && back <= max; back++) {
		size_t at = max - back;
		if (utf8_size(a.data + at, a.size - at) > back)
			return rdv_slice(a.data, at);
	}
	return rdv_slice(a.data, max);
}

bool rdv_utf8_valid(struct rdv_slice a)
{
	size_t i = 0;

	while (i < a.size) {
		if (a.size - i >= 8 && !(rdv_get_u64(a.data + i) & 0x8080808080808080ull)) {
			i += 8; /* eight ASCII characters at once: nearly all text */
			continue;
		}
		size_t n = utf8_size(a.data + i, a.size - i);
		if (!n)
			return false;
		i += n;
	}
	return true;
}

size_t rdv_utf8_count(struct rdv_slice a)
{
	size_t count = 0;

	for (size_t i = 0; i < a.size; count++) {
		size_t n = utf8_size(a.data + i, a.size - i);
		i += n ? n : 1;
	}
	return count;
}

void rdv_buffer_init(struct rdv_buffer *b, size_t limit)
{
	*b = (struct rdv_buffer){.limit = limit};
}

void rdv_buffer_done(struct rdv_buffer *b)
{
	if (!b)
		return;
	free(b->data);
	rdv_buffer_init(b, b->limit);
}

void rdv_buffer_clear(struct rdv_buffer *b)
{
	b->size = 0;
	b->failed = false;
}

uint8_t *rdv_buffer_grow(struct rdv_buffer *b, size_t more)
{
	size_t limit = b->limit ? b->limit : DEFAULT_LIMIT;
	size_t capacity;
	uint8_t *data;

	if (b->failed)
		return NULL;
	if (limit == SIZE_MAX)
		limit--; /* one byte stays for the NUL */
	if (b->size > limit || more > limit - b->size)
		goto failed;
	if (more < b->capacity - b->size) /* strictly: a NUL fits behind */
		return b->data + b->size;
	capacity = b->capacity > limit / 2 ? limit + 1 : b->capacity * 2;
	if (capacity < b->size + more + 1)
		capacity = b->size + more + 1;
	if (capacity < SMALLEST)
		capacity = SMALLEST <= limit ? SMALLEST : limit + 1;
	data = realloc(b->data, capacity);
	if (!data)
		goto failed;
	b->data = data;
	b->capacity = capacity;
	return b->data + b->size;
failed:
	b->failed = true;
	return NULL;
}

void rdv_buffer_text(struct rdv_buffer *b, const char *text)
{
	rdv_buffer_slice(b, rdv_slice_text(text));
}

void rdv_buffer_decimal(struct rdv_buffer *b, uint64_t value)
{
	uint8_t digits[20];
	size_t at = sizeof digits;

	do
		digits[--at] = (uint8_t)('0' + value % 10);
	while (value /= 10);
	rdv_buffer_append(b, digits + at, sizeof digits - at);
}

void rdv_buffer_printf(struct rdv_buffer *b, const char *fmt, ...)
{
	va_list args, again;
	uint8_t *to;
	int n;

	va_start(args, fmt);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	to = n < 0 ? NULL : rdv_buffer_reserve(b, (size_t)n);
	if (!to) {
		b->failed = true;
	} else {
		vsnprintf((char *)to, (size_t)n + 1, fmt, again);
		b->size += (size_t)n;
	}
	va_end(again);
}

void rdv_buffer_varint_long(struct rdv_buffer *b, uint64_t v)
{
	size_t n = (size_t)(63 - __builtin_clzll(v | 1)) / 7 + 1;
	uint8_t *to = rdv_buffer_reserve(b, n);

	if (!to)
		return;
	b->size += n;
	for (; v >= 0x80; v >>= 7)
		*to++ = (uint8_t)(v | 0x80);
	*to = (uint8_t)v;
}

const char *rdv_buffer_string(struct rdv_buffer *b)
{
	if (!rdv_buffer_reserve(b, 0))
		return "";
	b->data[b->size] = '\0';
	return (const char *)b->data;
}

/* The next `size` bytes, or NULL: then the reader has failed, and is at its end so that it cannot but fail again. */
static const uint8_t *take(struct rdv_reader *r, size_t size)
{
	const uint8_t *at = r->at;

	if (size > rdv_reader_left(r)) {
		r->failed = true;
		r->at = r->end;
		return NULL;
	}
	if (size)
		r->at += size;
	return at;
}

uint8_t rdv_read_u8(struct rdv_reader *r)
{
	const uint8_t *p = take(r, 1);

	return p ? *p : 0;
}

uint16_t rdv_read_u16(struct rdv_reader *r)
{
	const uint8_t *p = take(r, 2);

	return p ? (uint16_t)(p[0] | p[1] << 8) : 0;
}

uint32_t rdv_read_u32(struct rdv_reader *r)
{
	const uint8_t *p = take(r, 4);

	return p ? rdv_get_u32(p) : 0;
}

uint64_t rdv_read_u64(struct rdv_reader *r)
{
	const uint8_t *p = take(r, 8);

	return p ? rdv_get_u64(p) : 0;
}

/* Forms with useless zero groups are read, too; more than 64 bits are not. */
uint64_t rdv_read_varint(struct rdv_reader *r)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t c = rdv_read_u8(r);
		if (r->failed || (shift == 63 && c > 1))
			break;
		v |= (uint64_t)(c & 0x7F) << shift;
		if (!(c & 0x80))
			return v;
	}
	r->failed = true;
	r->at = r->end;
	return 0;
}

struct rdv_slice rdv_read_bytes(struct rdv_reader *r, size_t size)
{
	const uint8_t *p = take(r, size);

	return rdv_slice(p, p ? size : 0);
}

struct rdv_slice rdv_read_prefixed(struct rdv_reader *r)
{
	uint64_t size = rdv_read_varint(r);

	return rdv_read_bytes(r, r->failed || size > SIZE_MAX ? 0 : (size_t)size);
}
