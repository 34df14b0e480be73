/* text.c - percent, base64, hex, base32, and the nearest word.
 *
 * Encoders append to a bounded buffer, whose `failed` is their only error. Decoders check everything
 * before they change anything: after INVALID the output is as it was, after TOO_LARGE (it does not fit
 * the buffer, or memory was short) the buffer is failed. Each text has one meaning and, in the strict codes
 * (base64, base32), each meaning one text. Base64 and hex are libsodium's. Pure; any thread. */
#include "text.h"
#include <sodium/utils.h>

static const char upper_hex[] = "0123456789ABCDEF";

static void escape(struct rdv_buffer *out, uint8_t c)
{
	const char text[3] = {'%', upper_hex[c >> 4], upper_hex[c & 15]};

	rdv_buffer_append(out, text, sizeof text);
}

/* Appends `in`, escaping what is not plain; plain runs are copied at once. */
static void encode(struct rdv_buffer *out, struct rdv_slice in, bool (*is_plain)(uint8_t c))
{
	size_t start = 0;

	for (size_t i = 0; i < in.size; i++) {
		if (is_plain(in.data[i]))
			continue;
		rdv_buffer_append(out, in.data + start, i - start);
		escape(out, in.data[i]);
		start = i + 1;
	}
	if (start < in.size)
		rdv_buffer_append(out, in.data + start, in.size - start);
}

static bool is_printable(uint8_t c)
{
	return c >= 0x20 && c <= 0x7E && c != '%';
}

static bool is_unreserved(uint8_t c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_' || c == '~';
}

void rdv_percent_encode(struct rdv_buffer *out, struct rdv_slice in)
{
	encode(out, in, is_printable);
}

void rdv_url_encode(struct rdv_buffer *out, struct rdv_slice in)
{
	encode(out, in, is_unreserved);
}

static int hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

enum redrive_status rdv_percent_decode(struct rdv_buffer *out, struct rdv_slice in)
{
	uint8_t *to;
	size_t escapes = 0, size = 0;

	for (size_t i = 0; i < in.size; i++) {
		if (in.data[i] != '%')
			continue;
		if (in.size - i < 3 || hex_value(in.data[i + 1]) < 0 || hex_value(in.data[i + 2]) < 0)
			return REDRIVE_INVALID;
		escapes++;
		i += 2;
	}
	to = rdv_buffer_reserve(out, in.size - 2 * escapes);
	if (!to)
		return REDRIVE_TOO_LARGE;
	for (size_t i = 0; i < in.size; i++) {
		uint8_t c = in.data[i];
		if (c == '%') {
			c = (uint8_t)(hex_value(in.data[i + 1]) << 4 | hex_value(in.data[i + 2]));
			i += 2;
		}
		to[size++] = c;
	}
	out->size += size;
	return REDRIVE_OK;
}

void rdv_base64_encode(struct rdv_buffer *out, struct rdv_slice in)
{
	size_t size;
	uint8_t *to;

	if (in.size > SIZE_MAX / 4 * 3 - 3) {
		out->failed = true;
		return;
	}
	size = (in.size + 2) / 3 * 4;
	to = rdv_buffer_reserve(out, size);
	if (!to || !size)
		return;
	/* A buffer has one byte behind its size, which takes the NUL. */
	sodium_bin2base64((char *)to, size + 1, in.data, in.size, sodium_base64_VARIANT_ORIGINAL);
	out->size += size;
}

static bool is_ascii(struct rdv_slice in)
{
	for (size_t i = 0; i < in.size; i++)
		if (in.data[i] & 0x80)
			return false;
	return true;
}

enum redrive_status rdv_base64_decode(struct rdv_buffer *out, struct rdv_slice in)
{
	const char *text = (const char *)in.data;
	size_t size;
	uint8_t *to;

	/* libsodium 1.0.18 takes some bytes above 0x7f, negative as char, for '+' or '/'. */
	if (in.size % 4 || !is_ascii(in))
		return REDRIVE_INVALID;
	if (!in.size)
		return out->failed ? REDRIVE_TOO_LARGE : REDRIVE_OK;
	size = in.size / 4 * 3 - (text[in.size - 1] == '=') - (text[in.size - 2] == '=');
	to = rdv_buffer_reserve(out, size);
	if (!to)
		return REDRIVE_TOO_LARGE;
	if (sodium_base642bin(to, size, text, in.size, NULL, &size, NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
		return REDRIVE_INVALID;
	out->size += size;
	return REDRIVE_OK;
}

void rdv_hex_encode(struct rdv_buffer *out, struct rdv_slice in)
{
	uint8_t *to;

	if (in.size > SIZE_MAX / 2 - 1) {
		out->failed = true;
		return;
	}
	to = rdv_buffer_reserve(out, in.size * 2);
	if (!to || !in.size)
		return;
	sodium_bin2hex((char *)to, in.size * 2 + 1, in.data, in.size);
	out->size += in.size * 2;
}

static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";

void rdv_base32_128(const uint8_t in[16], char out[27])
{
	unsigned bits = 0, count = 0, at = 0;

	for (unsigned i = 0; i < 16; i++) {
		bits = bits << 8 | in[i];
		for (count += 8; count >= 5; count -= 5)
			out[at++] = base32[bits >> (count - 5) & 31];
		bits &= (1u << count) - 1;
	}
	out[at++] = base32[bits << (5 - count) & 31]; /* 128 = 25 * 5 + 3: two bits of padding, zero */
	out[at] = '\0';
}

static int base32_value(uint8_t c)
{
	if (c >= 'a' && c <= 'z')
		return c - 'a';
	return c >= '2' && c <= '7' ? c - '2' + 26 : -1;
}

enum redrive_status rdv_base32_128_decode(struct rdv_slice in, uint8_t out[16])
{
	uint8_t bytes[16];
	unsigned bits = 0, count = 0, at = 0;

	if (in.size != 26)
		return REDRIVE_INVALID;
	for (unsigned i = 0; i < 26; i++) {
		int v = base32_value(in.data[i]);
		if (v < 0)
			return REDRIVE_INVALID;
		bits = bits << 5 | (unsigned)v;
		count += 5;
		if (count >= 8) {
			count -= 8;
			bytes[at++] = (uint8_t)(bits >> count);
			bits &= (1u << count) - 1;
		}
	}
	if (bits)
		return REDRIVE_INVALID; /* padding that is not zero would give one id two texts */
	memcpy(out, bytes, sizeof bytes);
	return REDRIVE_OK;
}

#define WORD 64u

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

unsigned rdv_edit_distance(const char *a, const char *b)
{
	size_t rows = strnlen(a, WORD), columns = strnlen(b, WORD);
	unsigned matrix[3][WORD + 1]; /* the last three rows of the usual one */

	for (unsigned j = 0; j <= columns; j++)
		matrix[0][j] = j;
	for (size_t i = 1; i <= rows; i++) {
		unsigned *row = matrix[i % 3], *above = matrix[(i + 2) % 3], *before = matrix[(i + 1) % 3];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= columns; j++) {
			row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
	}
	return matrix[rows % 3][columns];
}

const char *rdv_nearest(const char *word, const char *const words[], size_t count)
{
	size_t most = strnlen(word, WORD) / 3;
	const char *nearest = NULL;

	for (size_t i = 0; i < count; i++) {
		size_t distance = rdv_edit_distance(word, words[i]);
		if (distance < most || (distance == most && !nearest)) {
			nearest = words[i];
			most = distance;
		}
	}
	return nearest;
}
