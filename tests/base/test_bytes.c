/* test_bytes.c - slices, UTF-8, buffers, the checked reader, and blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/block.h"
#include "base/bytes.h"
#include "base/random.h"
#include <stdio.h>
#include <stdlib.h>

static void slice_compares_bytes_and_case(void **state)
{
	struct rdv_slice none = rdv_slice(NULL, 0);

	assert_true(rdv_slice_is(rdv_slice_text("abc"), "abc"));
	assert_false(rdv_slice_is(rdv_slice_text("abc"), "abcd"));
	assert_false(rdv_slice_is(rdv_slice("a\0c", 3), "a"));
	assert_true(rdv_slice_is(none, ""));
	assert_true(rdv_slice_equal(none, rdv_slice_text("")));
	assert_true(rdv_slice_is_nocase(rdv_slice_text("Content-TYPE"), "content-type"));
	assert_false(rdv_slice_is_nocase(rdv_slice_text("["), "{")); /* differ in the case bit only */
	assert_false(rdv_slice_is_nocase(rdv_slice_text("\xc4"), "\xe4"));
}

static void slice_to_text_cuts_and_terminates(void **state)
{
	char out[4] = "xxx";

	rdv_slice_to_text(rdv_slice_text("abcdef"), out, sizeof out);
	assert_string_equal(out, "abc");
	rdv_slice_to_text(rdv_slice(NULL, 0), out, 1);
	assert_string_equal(out, "");
	rdv_slice_to_text(rdv_slice_text("ab"), out, sizeof out);
	assert_string_equal(out, "ab");
}

static void utf8_accepts_exactly_rfc_3629(void **state)
{
	static const struct {
		const char *text;
		size_t size;
		bool valid;
		size_t count;
	} rows[] = {
		{"", 0, true, 0},
		{"a\0b", 3, true, 3},
		{"\x7f", 1, true, 1},
		{"\x80", 1, false, 1},
		{"\xc0\x80", 2, false, 2}, /* overlong NUL */
		{"\xc1\xbf", 2, false, 2},
		{"\xc2\x80", 2, true, 1},
		{"\xc2", 1, false, 1},
		{"\xdf\xbf", 2, true, 1},
		{"\xe0\x9f\xbf", 3, false, 3}, /* overlong */
		{"\xe0\xa0\x80", 3, true, 1},
		{"\xe2\x82", 2, false, 2},
		{"\xed\x9f\xbf", 3, true, 1},
		{"\xed\xa0\x80", 3, false, 3}, /* surrogate */
		{"\xed\xbf\xbf", 3, false, 3},
		{"\xee\x80\x80", 3, true, 1},
		{"\xf0\x8f\xbf\xbf", 4, false, 4}, /* overlong */
		{"\xf0\x90\x80\x80", 4, true, 1},
		{"\xf4\x8f\xbf\xbf", 4, true, 1},
		{"\xf4\x90\x80\x80", 4, false, 4}, /* above U+10FFFF */
		{"\xf5\x80\x80\x80", 4, false, 4},
		{"\xff", 1, false, 1},
		{"abcdefgh\xe2\x82\xac", 11, true, 9},
		{"abcdefg\xe2\x82\xac", 10, true, 8},
		{"abcdefghijklmno\xff", 16, false, 16},
		{"\xe2\x82\xac\xe2\x82", 5, false, 3},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_slice s = rdv_slice(rows[i].text, rows[i].size);
		assert_int_equal(rdv_utf8_valid(s), rows[i].valid);
		assert_int_equal(rdv_utf8_count(s), rows[i].count);
	}
}

static size_t put_utf8(uint8_t *p, uint32_t c)
{
	if (c < 0x80) {
		p[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		p[0] = (uint8_t)(0xC0 | c >> 6);
		p[1] = (uint8_t)(0x80 | (c & 0x3F));
		return 2;
	}
	if (c < 0x10000) {
		p[0] = (uint8_t)(0xE0 | c >> 12);
		p[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
		p[2] = (uint8_t)(0x80 | (c & 0x3F));
		return 3;
	}
	p[0] = (uint8_t)(0xF0 | c >> 18);
	p[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
	p[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
	p[3] = (uint8_t)(0x80 | (c & 0x3F));
	return 4;
}

static void utf8_every_code_point_but_surrogates(void **state)
{
	for (uint32_t c = 0; c <= 0x110000; c++) {
		uint8_t p[4];
		struct rdv_slice s = rdv_slice(p, put_utf8(p, c));
		bool valid = c < 0x110000 && (c < 0xD800 || c > 0xDFFF);
		if (rdv_utf8_valid(s) != valid || (valid && rdv_utf8_count(s) != 1))
			fail_msg("code point %x", c);
	}
}

static void utf8_cut_is_the_longest_prefix_of_whole_characters(void **state)
{
	struct rdv_random r;
	uint8_t text[64];
	bool starts[65];

	rdv_random_seed(&r, 7);
	for (int round = 0; round < 5000; round++) {
		size_t size = 0;
		memset(starts, 0, sizeof starts);
		while (size < 56) {
			uint32_t c = (uint32_t)rdv_random_below(&r, 1u << (7 + rdv_random_below(&r, 14)));
			if (c >= 0xD800 && c <= 0xDFFF)
				continue;
			starts[size] = true;
			size += put_utf8(text + size, c < 0x110000 ? c : 'x');
		}
		starts[size] = true;
		for (size_t max = 0; max <= size + 2; max++) {
			size_t want = max < size ? max : size;
			while (!starts[want])
				want--;
			assert_int_equal(rdv_slice_cut_utf8(rdv_slice(text, size), max).size, want);
		}
	}
}

static void utf8_cut_of_junk_cuts_at_the_byte(void **state)
{
	assert_int_equal(rdv_slice_cut_utf8(rdv_slice("\x80\x80\x80\x80\x80\x80", 6), 4).size, 4);
	assert_int_equal(rdv_slice_cut_utf8(rdv_slice("abc\xe2\x82", 5), 4).size, 4); /* no character to split */
	assert_int_equal(rdv_slice_cut_utf8(rdv_slice("\xff\xff\xff", 3), 0).size, 0);
}

static void buffer_appends_and_reads_back(void **state)
{
	struct rdv_buffer b;
	struct rdv_reader r;

	rdv_buffer_init(&b, 0);
	rdv_buffer_u8(&b, 0xAB);
	rdv_buffer_u16(&b, 0xBEEF);
	rdv_buffer_u32(&b, 0xDEADBEEF);
	rdv_buffer_u64(&b, 0x0123456789ABCDEFull);
	rdv_buffer_varint(&b, 300);
	rdv_buffer_prefixed(&b, rdv_slice_text("key"));
	rdv_buffer_prefixed(&b, rdv_slice(NULL, 0));
	rdv_buffer_printf(&b, "%s-%d", "x", 7);
	assert_false(b.failed);
	assert_memory_equal(b.data + 1, "\xEF\xBE\xEF\xBE\xAD\xDE\xEF\xCD", 8); /* little-endian */

	r = rdv_reader(rdv_buffer_as_slice(&b));
	assert_int_equal(rdv_read_u8(&r), 0xAB);
	assert_int_equal(rdv_read_u16(&r), 0xBEEF);
	assert_int_equal(rdv_read_u32(&r), 0xDEADBEEF);
	assert_int_equal(rdv_read_u64(&r), 0x0123456789ABCDEFull);
	assert_int_equal(rdv_read_varint(&r), 300);
	assert_true(rdv_slice_is(rdv_read_prefixed(&r), "key"));
	assert_int_equal(rdv_read_prefixed(&r).size, 0);
	assert_true(rdv_slice_is(rdv_read_bytes(&r, 3), "x-7"));
	assert_false(r.failed);
	assert_int_equal(rdv_reader_left(&r), 0);
	rdv_buffer_done(&b);
}

static void buffer_fails_at_its_limit_and_stays_failed(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 10);
	rdv_buffer_text(&b, "0123456789");
	assert_false(b.failed);
	assert_string_equal(rdv_buffer_string(&b), "0123456789");
	rdv_buffer_u8(&b, 'x');
	assert_true(b.failed);
	assert_int_equal(b.size, 10);
	rdv_buffer_append(&b, NULL, 0);
	rdv_buffer_printf(&b, "%d", 1);
	assert_null(rdv_buffer_reserve(&b, 0));
	assert_int_equal(b.size, 10);
	assert_string_equal(rdv_buffer_string(&b), "");
	rdv_buffer_clear(&b);
	rdv_buffer_text(&b, "again");
	assert_string_equal(rdv_buffer_string(&b), "again");
	assert_null(rdv_buffer_reserve(&b, SIZE_MAX));
	rdv_buffer_done(&b);
	assert_int_equal(b.limit, 10);
	assert_null(b.data);
	rdv_buffer_done(&b);
	rdv_buffer_done(NULL);
}

static void buffer_never_holds_more_than_its_limit_and_a_nul(void **state)
{
	static const size_t limits[] = {1, 2, 63, 64, 65, 100, 1000, 4097};

	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		struct rdv_buffer b;
		rdv_buffer_init(&b, limits[i]);
		for (size_t n = 0; n < limits[i]; n++) {
			rdv_buffer_u8(&b, (uint8_t)('a' + n % 26));
			assert_false(b.failed);
			assert_int_equal(strlen(rdv_buffer_string(&b)), n + 1);
			assert_true(b.capacity <= limits[i] + 1);
		}
		rdv_buffer_u8(&b, 'x');
		assert_true(b.failed);
		assert_int_equal(b.size, limits[i]);
		rdv_buffer_done(&b);
	}
}

static void buffer_default_limit_is_a_gibibyte(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	assert_null(rdv_buffer_reserve(&b, ((size_t)1 << 30) + 1));
	assert_true(b.failed);
	rdv_buffer_init(&b, SIZE_MAX);
	assert_null(rdv_buffer_reserve(&b, SIZE_MAX));
	assert_null(b.data);
}

static void buffer_empty_is_an_empty_text(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 5);
	assert_string_equal(rdv_buffer_string(&b), "");
	rdv_buffer_printf(&b, "%s", "");
	assert_false(b.failed);
	rdv_buffer_printf(&b, "%s", "123456");
	assert_true(b.failed);
	assert_int_equal(b.size, 0);
	rdv_buffer_done(&b);
}

static void decimal_is_what_printf_writes(void **state)
{
	static const uint64_t values[] = {0, 9, 10, 4294967296, UINT64_MAX};
	struct rdv_buffer b;
	char wanted[24];

	(void)state;
	rdv_buffer_init(&b, 0);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		rdv_buffer_clear(&b);
		rdv_buffer_decimal(&b, values[i]);
		snprintf(wanted, sizeof wanted, "%llu", (unsigned long long)values[i]);
		assert_string_equal(rdv_buffer_string(&b), wanted);
	}
	rdv_buffer_done(&b);
}

static void varint_round_trips_at_every_width(void **state)
{
	struct rdv_random random;

	rdv_random_seed(&random, 3);
	for (int i = 0; i < 20000; i++) {
		struct rdv_buffer b;
		struct rdv_reader r;
		uint64_t v = i == 0 ? UINT64_MAX : rdv_random_next(&random) >> rdv_random_below(&random, 64);
		rdv_buffer_init(&b, 10);
		rdv_buffer_varint(&b, v);
		assert_false(b.failed);
		r = rdv_reader(rdv_buffer_as_slice(&b));
		assert_int_equal(rdv_read_varint(&r), v);
		assert_false(r.failed);
		assert_int_equal(rdv_reader_left(&r), 0);
		for (size_t cut = 0; cut < b.size; cut++) {
			r = rdv_reader(rdv_slice(b.data, cut));
			assert_int_equal(rdv_read_varint(&r), 0);
			assert_true(r.failed);
		}
		rdv_buffer_done(&b);
	}
}

static void varint_beyond_64_bits_fails(void **state)
{
	struct rdv_reader r = rdv_reader(rdv_slice("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10));

	assert_int_equal(rdv_read_varint(&r), 0);
	assert_true(r.failed);
	r = rdv_reader(rdv_slice("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11));
	assert_int_equal(rdv_read_varint(&r), 0);
	assert_true(r.failed);
}

static void reader_gives_zero_after_the_first_misfit(void **state)
{
	struct rdv_reader r = rdv_reader(rdv_slice("\x01\x02\x03", 3));
	struct rdv_slice s;

	assert_int_equal(rdv_read_u8(&r), 1);
	assert_int_equal(rdv_read_u32(&r), 0);
	assert_true(r.failed);
	assert_int_equal(rdv_read_u8(&r), 0); /* although there was a byte */
	assert_int_equal(rdv_reader_left(&r), 0);
	s = rdv_read_bytes(&r, 0);
	assert_int_equal(s.size, 0);

	r = rdv_reader(rdv_slice("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01zz", 12)); /* a length of 2^64 - 1 */
	s = rdv_read_prefixed(&r);
	assert_int_equal(s.size, 0);
	assert_true(r.failed);

	r = rdv_reader(rdv_slice(NULL, 0));
	assert_int_equal(rdv_reader_left(&r), 0);
	assert_int_equal(rdv_read_bytes(&r, 0).size, 0);
	assert_false(r.failed);
	assert_int_equal(rdv_read_u64(&r), 0);
	assert_true(r.failed);
}

static void block_counts_its_references(void **state)
{
	struct rdv_block *b = rdv_block_copy(rdv_slice_text("body"));

	assert_non_null(b);
	assert_ptr_equal(rdv_block_ref(b), b);
	rdv_block_unref(b);
	assert_true(rdv_slice_is(rdv_block_slice(b), "body"));
	rdv_block_unref(b);
	rdv_block_unref(NULL);
	assert_int_equal(rdv_block_slice(NULL).size, 0);
}

/* pitfall: a null body */
static void block_may_be_empty(void **state)
{
	struct rdv_block *b = rdv_block_copy(rdv_slice(NULL, 0));

	assert_non_null(b);
	assert_int_equal(rdv_block_slice(b).size, 0);
	rdv_block_unref(b);
}

static void block_too_large_is_refused(void **state)
{
	assert_null(rdv_block_new((size_t)UINT32_MAX + 1));
	assert_null(rdv_block_new(SIZE_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slice_compares_bytes_and_case),
		cmocka_unit_test(slice_to_text_cuts_and_terminates),
		cmocka_unit_test(utf8_accepts_exactly_rfc_3629),
		cmocka_unit_test(utf8_every_code_point_but_surrogates),
		cmocka_unit_test(utf8_cut_is_the_longest_prefix_of_whole_characters),
		cmocka_unit_test(utf8_cut_of_junk_cuts_at_the_byte),
		cmocka_unit_test(buffer_appends_and_reads_back),
		cmocka_unit_test(buffer_fails_at_its_limit_and_stays_failed),
		cmocka_unit_test(buffer_never_holds_more_than_its_limit_and_a_nul),
		cmocka_unit_test(buffer_default_limit_is_a_gibibyte),
		cmocka_unit_test(buffer_empty_is_an_empty_text),
		cmocka_unit_test(decimal_is_what_printf_writes),
		cmocka_unit_test(varint_round_trips_at_every_width),
		cmocka_unit_test(varint_beyond_64_bits_fails),
		cmocka_unit_test(reader_gives_zero_after_the_first_misfit),
		cmocka_unit_test(block_counts_its_references),
		cmocka_unit_test(block_may_be_empty),
		cmocka_unit_test(block_too_large_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
