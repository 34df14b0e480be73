/* fuzz_text.c - text codes, dates, UTF-8 and the reader on hostile bytes.
 *
 * Properties: what was encoded is decoded to the same; what a strict decoder accepts is what the encoder makes
 * of its result; a date that is accepted prints as one that is the same; a cut text is a valid prefix;
 * a reader that has failed stays failed, and never gives more than there is.
 * Input: one byte that chooses the kind, then the bytes. */
#include "base/clock.h"
#include "base/text.h"
#include <stdlib.h>

static void check(bool holds)
{
	if (!holds)
		abort();
}

typedef void (*encoder)(struct rdv_buffer *out, struct rdv_slice in);
typedef enum redrive_status (*decoder)(struct rdv_buffer *out, struct rdv_slice in);

/* decode(encode(in)) == in; and, if `in` decodes, encode(decode(in)) decodes to the same and, if strict, is `in`. */
static void check_code(encoder encode, decoder decode, struct rdv_slice in, bool is_strict)
{
	struct rdv_buffer a, b, c;

	rdv_buffer_init(&a, 0);
	rdv_buffer_init(&b, 0);
	rdv_buffer_init(&c, 0);
	encode(&a, in);
	check(!a.failed && decode(&b, rdv_buffer_as_slice(&a)) == REDRIVE_OK);
	check(rdv_slice_equal(rdv_buffer_as_slice(&b), in));
	rdv_buffer_clear(&a);
	rdv_buffer_clear(&b);
	if (decode(&a, in) == REDRIVE_OK) {
		encode(&b, rdv_buffer_as_slice(&a));
		check(!is_strict || rdv_slice_equal(rdv_buffer_as_slice(&b), in));
		check(decode(&c, rdv_buffer_as_slice(&b)) == REDRIVE_OK);
		check(rdv_slice_equal(rdv_buffer_as_slice(&a), rdv_buffer_as_slice(&c)));
	} else {
		check(a.size == 0 && !a.failed);
	}
	rdv_buffer_done(&a);
	rdv_buffer_done(&b);
	rdv_buffer_done(&c);
}

static void fuzz_percent(struct rdv_slice in)
{
	check_code(rdv_percent_encode, rdv_percent_decode, in, false);
	check_code(rdv_url_encode, rdv_percent_decode, in, false);
}

static void fuzz_base64(struct rdv_slice in)
{
	check_code(rdv_base64_encode, rdv_base64_decode, in, true);
}

static void fuzz_base32(struct rdv_slice in)
{
	uint8_t bytes[16];
	char text[27];

	if (rdv_base32_128_decode(in, bytes) != REDRIVE_OK)
		return;
	rdv_base32_128(bytes, text);
	check(rdv_slice_is(in, text));
}

static void check_date(struct rdv_wall t)
{
	struct rdv_wall back;
	char text[25];

	check(t.ms >= 0 && t.ms <= 253402300799999);
	rdv_wall_format(t, text);
	check(strlen(text) == 24);
	check(rdv_wall_parse(rdv_slice_text(text), &back) == REDRIVE_OK && back.ms == t.ms);
}

static void fuzz_dates(struct rdv_slice in)
{
	struct rdv_reader r = rdv_reader(in);
	struct rdv_wall t;
	char text[25];

	if (rdv_wall_parse(in, &t) == REDRIVE_OK)
		check_date(t);
	if (rdv_wall_parse_http(in, &t) == REDRIVE_OK)
		check_date(t);
	rdv_wall_format((struct rdv_wall){(int64_t)rdv_read_u64(&r)}, text);
	check(strlen(text) == 24);
}

static void fuzz_utf8(struct rdv_slice in)
{
	size_t max = in.size ? in.data[0] : 0;
	bool is_valid = rdv_utf8_valid(in);
	struct rdv_slice cut = rdv_slice_cut_utf8(in, max);

	check(rdv_utf8_count(in) <= in.size);
	check(cut.size <= max && cut.data == in.data);
	check(in.size <= max ? cut.size == in.size : cut.size + 3 >= max);
	check(!is_valid || rdv_utf8_valid(cut));
	check(!is_valid || rdv_utf8_count(in) >= rdv_utf8_count(cut));
}

/* The input is a program as well as its data: each byte read says what to read next. */
static void fuzz_reader(struct rdv_slice in)
{
	struct rdv_reader r = rdv_reader(in);
	struct rdv_slice s = {0};

	while (rdv_reader_left(&r)) {
		bool had_failed = r.failed;
		switch (rdv_read_u8(&r) % 6) {
		case 0:
			(void)rdv_read_u16(&r);
			break;
		case 1:
			(void)rdv_read_u32(&r);
			break;
		case 2:
			(void)rdv_read_u64(&r);
			break;
		case 3:
			(void)rdv_read_varint(&r);
			break;
		case 4:
			s = rdv_read_prefixed(&r);
			break;
		default:
			s = rdv_read_bytes(&r, rdv_read_u8(&r));
			break;
		}
		check(!s.size || (s.data >= in.data && s.data + s.size <= in.data + in.size));
		check(!had_failed && r.at <= r.end);
	}
	check(!r.failed || rdv_read_u64(&r) == 0);
}

static void fuzz_words(struct rdv_slice in)
{
	static const char *const words[] = {"attempts", "backoff", "base", "factor", "cap", "jitter"};
	char a[100], b[100];
	const char *nearest;
	unsigned distance;

	rdv_slice_to_text(rdv_slice(in.data, in.size / 2), a, sizeof a);
	rdv_slice_to_text(rdv_slice(in.data + in.size / 2, in.size - in.size / 2), b, sizeof b);
	distance = rdv_edit_distance(a, b);
	check(distance == rdv_edit_distance(b, a));
	check(distance <= 64 && (distance == 0) == (strncmp(a, b, 64) == 0));
	nearest = rdv_nearest(a, words, 6);
	check(!nearest || rdv_edit_distance(a, nearest) * 3 <= strlen(a));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(struct rdv_slice in) = {fuzz_percent, fuzz_base64, fuzz_base32, fuzz_dates,
							     fuzz_utf8,    fuzz_reader, fuzz_words};

	if (size)
		kinds[data[0] % (sizeof kinds / sizeof kinds[0])](rdv_slice(data + 1, size - 1));
	return 0;
}
