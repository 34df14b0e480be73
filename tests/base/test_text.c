/* test_text.c - text codes: round trips, strictness against hostile input, nearest words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/random.h"
#include "base/text.h"
#include <stdlib.h>

typedef enum redrive_status (*decoder)(struct rdv_buffer *out, struct rdv_slice in);
typedef void (*encoder)(struct rdv_buffer *out, struct rdv_slice in);

static void check_encodes(encoder encode, const char *in, size_t size, const char *want)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	encode(&b, rdv_slice(in, size));
	assert_string_equal(rdv_buffer_string(&b), want);
	rdv_buffer_done(&b);
}

static void check_decodes(decoder decode, const char *in, const char *want, size_t size)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	assert_int_equal(decode(&b, rdv_slice_text(in)), REDRIVE_OK);
	assert_true(rdv_slice_equal(rdv_buffer_as_slice(&b), rdv_slice(want, size)));
	rdv_buffer_done(&b);
}

/* INVALID, and what was in the output before stays as it was. */
static void check_rejects(decoder decode, const char *in, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1); /* so that reading behind the end is seen */
	struct rdv_buffer b;

	memcpy(exact, in, size);
	rdv_buffer_init(&b, 0);
	rdv_buffer_text(&b, "before");
	if (decode(&b, rdv_slice(exact, size)) != REDRIVE_INVALID)
		fail_msg("accepted '%.*s'", (int)size, in);
	assert_string_equal(rdv_buffer_string(&b), "before");
	rdv_buffer_done(&b);
	free(exact);
}

static void check_round_trips(encoder encode, decoder decode, uint64_t seed)
{
	struct rdv_random r;

	rdv_random_seed(&r, seed);
	for (int round = 0; round < 3000; round++) {
		uint8_t in[100];
		struct rdv_buffer text, back;
		size_t size = rdv_random_below(&r, sizeof in);
		for (size_t i = 0; i < size; i++)
			in[i] = (uint8_t)rdv_random_next(&r);
		rdv_buffer_init(&text, 0);
		rdv_buffer_init(&back, sizeof in);
		encode(&text, rdv_slice(in, size));
		for (size_t i = 0; i < text.size; i++)
			assert_in_range(text.data[i], 0x20, 0x7E);
		assert_int_equal(decode(&back, rdv_buffer_as_slice(&text)), REDRIVE_OK);
		assert_true(rdv_slice_equal(rdv_buffer_as_slice(&back), rdv_slice(in, size)));
		rdv_buffer_done(&text);
		rdv_buffer_done(&back);
	}
}

/* pitfall: header bytes that are not ASCII */
static void percent_keeps_printable_ascii_and_escapes_the_rest(void **state)
{
	check_encodes(rdv_percent_encode, "", 0, "");
	check_encodes(rdv_percent_encode, "o-17 a+b/c?~", 12, "o-17 a+b/c?~");
	check_encodes(rdv_percent_encode, "100%", 4, "100%25");
	check_encodes(rdv_percent_encode, "a\0b\r\n\x7f\xff", 7, "a%00b%0D%0A%7F%FF");
	check_encodes(rdv_percent_encode, "\xe2\x82\xac", 3, "%E2%82%AC");
	check_decodes(rdv_percent_decode, "a%00b%0d%0A+%7F%fF", "a\0b\r\n+\x7f\xff", 8);
	check_decodes(rdv_percent_decode, "", "", 0);
	check_round_trips(rdv_percent_encode, rdv_percent_decode, 11);
}

static void percent_cut_or_odd_escapes_are_invalid(void **state)
{
	static const char *const bad[] = {"%",    "a%",  "%4",  "a%4", "%G0", "%0G",
					  "%%20", "% 1", "%+1", "%-1", "%0x", "%2"};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		check_rejects(rdv_percent_decode, bad[i], strlen(bad[i]));
	check_rejects(rdv_percent_decode, "%4\0", 3);
	check_rejects(rdv_percent_decode, "%\xff\xff", 3);
}

static void url_keeps_only_unreserved_characters(void **state)
{
	check_encodes(rdv_url_encode, "aZ09-._~", 8, "aZ09-._~");
	check_encodes(rdv_url_encode, "a b&c=d/e+f%\xff", 13, "a%20b%26c%3Dd%2Fe%2Bf%25%FF");
	check_round_trips(rdv_url_encode, rdv_percent_decode, 12);
}

static void base64_knows_the_vectors_of_rfc_4648(void **state)
{
	static const char *const rows[][2] = {{"", ""},
					      {"f", "Zg=="},
					      {"fo", "Zm8="},
					      {"foo", "Zm9v"},
					      {"foob", "Zm9vYg=="},
					      {"fooba", "Zm9vYmE="},
					      {"foobar", "Zm9vYmFy"}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		check_encodes(rdv_base64_encode, rows[i][0], strlen(rows[i][0]), rows[i][1]);
		check_decodes(rdv_base64_decode, rows[i][1], rows[i][0], strlen(rows[i][0]));
	}
	check_encodes(rdv_base64_encode, "\xff\xef\xbe", 3, "/+++");
	check_round_trips(rdv_base64_encode, rdv_base64_decode, 13);
}

static void base64_is_strict(void **state)
{
	static const char *const bad[] = {
		"Z",    "Zg",   "Zg=",      "Zh==", /* bits behind the end */
		"Zm9=", "====", "Z===",     "Zg==Zg==", "Zm8=Zm8=", "Zm9v\n", "Zm9v Zm9v",   " Zm9vYmF",
		"Zm9_", "Zm-v", "Zm9v====", "=m9v",     "Z=9v",     "Zm=v",   "Zm9v\n\n\n\n"};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		check_rejects(rdv_base64_decode, bad[i], strlen(bad[i]));
	check_rejects(rdv_base64_decode, "Zm9\0", 4);
	for (int c = 0; c < 256; c++) {
		const char text[4] = {'Z', (char)c, '9', 'v'};
		bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
			    c == '/';
		if (!good)
			check_rejects(rdv_base64_decode, text, 4);
	}
}

static void decoders_say_what_does_not_fit(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 5);
	assert_int_equal(rdv_base64_decode(&b, rdv_slice_text("Zm9vYmE=")), REDRIVE_OK);
	rdv_buffer_clear(&b);
	assert_int_equal(rdv_base64_decode(&b, rdv_slice_text("Zm9vYmFy")), REDRIVE_TOO_LARGE);
	assert_int_equal(b.size, 0);
	rdv_buffer_clear(&b);
	assert_int_equal(rdv_percent_decode(&b, rdv_slice_text("12345%41")), REDRIVE_TOO_LARGE);
	rdv_buffer_clear(&b);
	assert_int_equal(rdv_percent_decode(&b, rdv_slice_text("1234%41")), REDRIVE_OK);
	rdv_buffer_clear(&b);
	rdv_base64_encode(&b, rdv_slice_text("foo"));
	assert_false(b.failed);
	rdv_base64_encode(&b, rdv_slice_text("f"));
	assert_true(b.failed);
	rdv_buffer_done(&b);
}

static void hex_is_lower_case(void **state)
{
	check_encodes(rdv_hex_encode, "\x00\x9f\xAB\xff", 4, "009fabff");
	check_encodes(rdv_hex_encode, "", 0, "");
}

static void base32_round_trips_in_26_characters(void **state)
{
	struct rdv_random r;
	uint8_t in[16], back[16];
	char text[27];

	memset(in, 0, sizeof in);
	rdv_base32_128(in, text);
	assert_string_equal(text, "aaaaaaaaaaaaaaaaaaaaaaaaaa");
	memset(in, 0xFF, sizeof in);
	rdv_base32_128(in, text);
	assert_string_equal(text, "77777777777777777777777774");
	memcpy(in, "0123456789abcdef", 16);
	rdv_base32_128(in, text);
	assert_string_equal(text, "gaytemzugu3doobzmfrggzdfmy"); /* as RFC 4648's encoder has it, in lower case */
	rdv_random_seed(&r, 5);
	for (int i = 0; i < 2000; i++) {
		for (int j = 0; j < 16; j++)
			in[j] = (uint8_t)rdv_random_next(&r);
		rdv_base32_128(in, text);
		assert_int_equal(strlen(text), 26);
		assert_int_equal(rdv_base32_128_decode(rdv_slice_text(text), back), REDRIVE_OK);
		assert_memory_equal(in, back, 16);
	}
}

static void base32_is_strict(void **state)
{
	static const char *const bad[] = {
		"",
		"aaaaaaaaaaaaaaaaaaaaaaaaa",   /* short */
		"aaaaaaaaaaaaaaaaaaaaaaaaaaa", /* long */
		"aaaaaaaaaaaaaaaaaaaaaaaaab",  /* bits behind the end */
		"aaaaaaaaaaaaaaaaaaaaaaaaaA",
		"aaaaaaaaaaaaaa1aaaaaaaaaaa",
		"aaaaaaaaaaaaaa8aaaaaaaaaaa",
		"aaaaaaaaaaaaaa=aaaaaaaaaaa",
		"aaaaaaaaaaaaaa\xff"
		"aaaaaaaaaaa",
	};
	uint8_t out[16];

	memset(out, 0x55, sizeof out);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(rdv_base32_128_decode(rdv_slice_text(bad[i]), out), REDRIVE_INVALID);
		assert_int_equal(out[0], 0x55);
	}
	assert_int_equal(rdv_base32_128_decode(rdv_slice("aaaaaaaaaaaaaaaaaaaaaaaaa\0", 26), out), REDRIVE_INVALID);
}

static void edit_distance_of_known_pairs(void **state)
{
	static const struct {
		const char *a, *b;
		unsigned distance;
	} rows[] = {{"", "", 0},
		    {"", "abc", 3},
		    {"kitten", "sitting", 3},
		    {"saturday", "sunday", 3},
		    {"abc", "abc", 0},
		    {"attempts", "atempts", 1},
		    {"ab", "ba", 1},
		    {"tpoic", "topic", 1},
		    {"abcd", "badc", 2},
		    {"backoff", "x", 7}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(rdv_edit_distance(rows[i].a, rows[i].b), rows[i].distance);
		assert_int_equal(rdv_edit_distance(rows[i].b, rows[i].a), rows[i].distance);
	}
}

static void edit_distance_of_long_words_is_capped(void **state)
{
	char a[1001], b[1001];

	memset(a, 'a', 1000);
	memset(b, 'b', 1000);
	a[1000] = b[1000] = '\0';
	assert_int_equal(rdv_edit_distance(a, b), 64);
	assert_int_equal(rdv_edit_distance(a, ""), 64);
	assert_int_equal(rdv_edit_distance(a, a), 0);
}

static void nearest_word_is_found_within_a_third(void **state)
{
	static const char *const words[] = {"attempts", "backoff", "base", "factor", "cap", "jitter", "max_age"};
	const size_t count = sizeof words / sizeof words[0];

	assert_string_equal(rdv_nearest("attemps", words, count), "attempts");
	assert_string_equal(rdv_nearest("atempst", words, count), "attempts"); /* one left out, two changed places */
	assert_string_equal(rdv_nearest("cpa", words, count), "cap");
	assert_null(rdv_nearest("atmpst", words, count)); /* three edits of six letters */
	assert_string_equal(rdv_nearest("bakoff", words, count), "backoff");
	assert_string_equal(rdv_nearest("maxage", words, count), "max_age");
	assert_string_equal(rdv_nearest("caps", words, count), "cap");
	assert_string_equal(rdv_nearest("base", words, count), "base");
	assert_null(rdv_nearest("timeout", words, count));
	assert_null(rdv_nearest("xy", words, count));
	assert_null(rdv_nearest("", words, count));
	assert_null(rdv_nearest("attempts", words, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(percent_keeps_printable_ascii_and_escapes_the_rest),
		cmocka_unit_test(percent_cut_or_odd_escapes_are_invalid),
		cmocka_unit_test(url_keeps_only_unreserved_characters),
		cmocka_unit_test(base64_knows_the_vectors_of_rfc_4648),
		cmocka_unit_test(base64_is_strict),
		cmocka_unit_test(decoders_say_what_does_not_fit),
		cmocka_unit_test(hex_is_lower_case),
		cmocka_unit_test(base32_round_trips_in_26_characters),
		cmocka_unit_test(base32_is_strict),
		cmocka_unit_test(edit_distance_of_known_pairs),
		cmocka_unit_test(edit_distance_of_long_words_is_capped),
		cmocka_unit_test(nearest_word_is_found_within_a_third),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
