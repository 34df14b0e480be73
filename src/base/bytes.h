/* bytes.h - slices (borrowed bytes), buffers (owned, growing, bounded) and a checked reader.
 *
 * A slice never owns. A buffer owns its memory and has a limit: an append beyond it, or a failed
 * allocation, sets `failed` and changes nothing more, so that a run of appends is checked once at
 * its end. The reader takes little-endian integers, varints and length-prefixed slices from
 * hostile bytes: after the first thing that does not fit, `failed` is set and all later reads give
 * zero. Not thread-safe. */
#ifndef RDV_BASE_BYTES_H
#define RDV_BASE_BYTES_H
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include "status.h"

struct rdv_slice {
	const uint8_t *data; /* borrows; may be NULL when size is 0 */
	size_t size;
};

static inline struct rdv_slice rdv_slice(const void *data, size_t size)
{
	return (struct rdv_slice){(const uint8_t *)data, size};
}
static inline struct rdv_slice rdv_slice_text(const char *text)
{
	return rdv_slice(text, text ? strlen(text) : 0);
}
static inline bool rdv_slice_equal(struct rdv_slice a, struct rdv_slice b)
{
	return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
bool rdv_slice_is(struct rdv_slice a, const char *text);
bool rdv_slice_is_nocase(struct rdv_slice a, const char *text); /* ASCII case only */
/* The slice as a C string in `out` (size >= 1), cut if too long; bytes are copied unchanged. */
void rdv_slice_to_text(struct rdv_slice a, char *out, size_t size);
/* Longest prefix of at most `max` bytes that does not split a UTF-8 sequence. */
struct rdv_slice rdv_slice_cut_utf8(struct rdv_slice a, size_t max);
bool rdv_utf8_valid(struct rdv_slice a);
/* Number of characters (code points; an invalid byte counts one). */
size_t rdv_utf8_count(struct rdv_slice a);

struct rdv_buffer {
	uint8_t *data; /* owns */
	size_t size, capacity;
	size_t limit; /* largest size; 0 = 1 GiB */
	bool failed;  /* an append did not fit, or memory was short */
};

void rdv_buffer_init(struct rdv_buffer *b, size_t limit);
void rdv_buffer_done(struct rdv_buffer *b);  /* accepts NULL; the buffer is as after init with the same limit */
void rdv_buffer_clear(struct rdv_buffer *b); /* size 0, failed false, memory kept */
/* Room for `more` bytes beyond size; NULL (and failed) if that does not fit. Does not change size. */
uint8_t *rdv_buffer_grow(struct rdv_buffer *b, size_t more); /* reserve, where there is no room yet */
static inline uint8_t *rdv_buffer_reserve(struct rdv_buffer *b, size_t more)
{
	if (!b->failed && more < b->capacity - b->size) /* strictly: a NUL fits behind */
		return b->data + b->size;
	return rdv_buffer_grow(b, more);
}
static inline void rdv_buffer_append(struct rdv_buffer *b, const void *data, size_t size)
{
	uint8_t *to = rdv_buffer_reserve(b, size);

	if (!to || !size)
		return;
	memcpy(to, data, size);
	b->size += size;
}
static inline void rdv_buffer_slice(struct rdv_buffer *b, struct rdv_slice s)
{
	rdv_buffer_append(b, s.data, s.size);
}
void rdv_buffer_text(struct rdv_buffer *b, const char *text);
void rdv_buffer_decimal(struct rdv_buffer *b, uint64_t value); /* "%llu", without printf's price */
void rdv_buffer_printf(struct rdv_buffer *b, const char *fmt, ...) RDV_PRINTF(2, 3);
/* Integers are little-endian, all of them. */
static inline void rdv_buffer_u8(struct rdv_buffer *b, uint8_t v)
{
	rdv_buffer_append(b, &v, sizeof v);
}
static inline void rdv_buffer_u16(struct rdv_buffer *b, uint16_t v)
{
	rdv_buffer_append(b, &v, sizeof v);
}
static inline void rdv_buffer_u32(struct rdv_buffer *b, uint32_t v)
{
	rdv_buffer_append(b, &v, sizeof v);
}
static inline void rdv_buffer_u64(struct rdv_buffer *b, uint64_t v)
{
	rdv_buffer_append(b, &v, sizeof v);
}
void rdv_buffer_varint_long(struct rdv_buffer *b, uint64_t v);         /* of two bytes and more */
static inline void rdv_buffer_varint(struct rdv_buffer *b, uint64_t v) /* LEB128, at most 10 bytes */
{
	if (v < 0x80)
		rdv_buffer_u8(b, (uint8_t)v);
	else
		rdv_buffer_varint_long(b, v);
}
static inline void rdv_buffer_prefixed(struct rdv_buffer *b, struct rdv_slice s) /* varint length, then the bytes */
{
	rdv_buffer_varint(b, s.size);
	rdv_buffer_slice(b, s);
}
/* Always NUL-terminated text of the content (NUL not counted in size); "" when empty or failed. */
const char *rdv_buffer_string(struct rdv_buffer *b);
static inline struct rdv_slice rdv_buffer_as_slice(const struct rdv_buffer *b)
{
	return rdv_slice(b->data, b->size);
}

struct rdv_reader {
	const uint8_t *at, *end; /* borrows */
	bool failed;
};
static inline struct rdv_reader rdv_reader(struct rdv_slice s)
{
	return (struct rdv_reader){s.data, s.data ? s.data + s.size : s.data, false};
}
uint8_t rdv_read_u8(struct rdv_reader *r);
uint16_t rdv_read_u16(struct rdv_reader *r);
uint32_t rdv_read_u32(struct rdv_reader *r);
uint64_t rdv_read_u64(struct rdv_reader *r);
uint64_t rdv_read_varint(struct rdv_reader *r);
struct rdv_slice rdv_read_bytes(struct rdv_reader *r, size_t size); /* borrows from the reader's bytes */
struct rdv_slice rdv_read_prefixed(struct rdv_reader *r);
static inline size_t rdv_reader_left(const struct rdv_reader *r)
{
	return (size_t)(r->end - r->at);
}

/* Unaligned little-endian access to memory the caller has checked. */
static inline uint32_t rdv_get_u32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return v;
}
static inline uint64_t rdv_get_u64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}
static inline void rdv_put_u32(void *p, uint32_t v)
{
	memcpy(p, &v, 4);
}
static inline void rdv_put_u64(void *p, uint64_t v)
{
	memcpy(p, &v, 8);
}
#define RDV_VARINT_MAX 10
/* Writes at most RDV_VARINT_MAX bytes; returns where it ended. */
static inline uint8_t *rdv_put_varint(uint8_t *to, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*to++ = (uint8_t)(v | 0x80);
	*to++ = (uint8_t)v;
	return to;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little-endian, and so is this code");
#endif
