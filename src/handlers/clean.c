/* clean.c - text of handlers made fit to be stored.
 *
 * Walks the bytes once: runs of plain ASCII are copied as they are, a valid UTF-8 sequence (shortest form, no
 * surrogates, up to U+10FFFF) is copied, anything else gives one U+FFFD per byte. Stops before a character that
 * would pass either bound, so the result never ends inside one. What always holds: the result is valid UTF-8
 * without NUL and within both bounds. Pure; any thread. */
#include "clean.h"

static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};

static bool is_tail(uint8_t b)
{
	return (b & 0xc0) == 0x80;
}

/* Length of the valid sequence at p, 0 if there is none. */
static size_t sequence(const uint8_t *p, size_t left)
{
	if (p[0] < 0x80)
		return p[0] != 0;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		return left >= 2 && is_tail(p[1]) ? 2 : 0;
	if (p[0] >= 0xe0 && p[0] <= 0xef) {
		if (left < 3 || !is_tail(p[1]) || !is_tail(p[2]))
			return 0;
		if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f))
			return 0;
		return 3;
	}
	if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		if (left < 4 || !is_tail(p[1]) || !is_tail(p[2]) || !is_tail(p[3]))
			return 0;
		if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
			return 0;
		return 4;
	}
	return 0;
}

size_t rdv_clean(struct rdv_buffer *out, struct rdv_slice in, size_t max_chars, size_t max_bytes, size_t *size)
{
	size_t start = out->size, chars = 0;

	for (size_t i = 0; i < in.size && chars < max_chars; chars++) {
		size_t length = sequence(in.data + i, in.size - i);
		const uint8_t *from = length ? in.data + i : replacement;
		size_t wide = length ? length : sizeof replacement;

		if (wide > max_bytes - (out->size - start))
			break;
		rdv_buffer_append(out, from, wide);
		i += length ? length : 1;
	}
	if (out->failed)
		out->size = start;
	*size = out->size - start;
	return start;
}

struct rdv_slice rdv_clean_slice(struct rdv_buffer *out, struct rdv_slice in, size_t max_chars, size_t max_bytes)
{
	size_t size, start = rdv_clean(out, in, max_chars, max_bytes, &size);

	return size ? rdv_slice(out->data + start, size) : rdv_slice(NULL, 0);
}
