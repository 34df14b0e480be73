/* test_clock.c - saturating arithmetic, RFC 3339 and HTTP dates, and what the clocks promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/random.h"
#include <stdio.h>
#include <time.h>

#define DAY 86400000ll

/* pitfall: arithmetic past the word size */
static void ms_add_saturates(void **state)
{
	static const int64_t rows[][3] = {
		{1, 2, 3},
		{INT64_MAX - 1, 1, INT64_MAX},
		{INT64_MAX - 1, INT64_MAX - 1, INT64_MAX},
		{INT64_MIN, -1, INT64_MIN},
		{INT64_MIN, INT64_MIN, INT64_MIN},
		{INT64_MIN, INT64_MAX - 1, -2},
		{-5, 3, -2},
		{RDV_NEVER, 0, RDV_NEVER},
		{RDV_NEVER, -1, RDV_NEVER},
		{RDV_NEVER, INT64_MIN, RDV_NEVER},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_true(rdv_ms_add(rows[i][0], rows[i][1]) == rows[i][2]);
		assert_true(rdv_ms_add(rows[i][1], rows[i][0]) == rows[i][2]);
	}
}

static void ms_mul_saturates(void **state)
{
	static const int64_t rows[][3] = {
		{3, 4, 12},
		{-3, 4, -12},
		{INT64_MAX, 1, INT64_MAX},
		{RDV_NEVER, 0, 0}, /* no delay stays no delay, however often */
		{RDV_NEVER, 2, RDV_NEVER},
		{1ll << 32, 1ll << 32, INT64_MAX},
		{1ll << 32, -(1ll << 32), INT64_MIN},
		{INT64_MIN, -1, INT64_MAX},
		{INT64_MIN, INT64_MIN, INT64_MAX},
		{INT64_MIN, 2, INT64_MIN},
		{INT64_MIN, 0, 0},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_true(rdv_ms_mul(rows[i][0], rows[i][1]) == rows[i][2]);
		assert_true(rdv_ms_mul(rows[i][1], rows[i][0]) == rows[i][2]);
	}
}

static int64_t clamp_wide(__int128 v)
{
	return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v;
}

/* pitfall: arithmetic past the word size */
static void ms_arithmetic_agrees_with_wider_numbers(void **state)
{
	struct rdv_random r;

	rdv_random_seed(&r, 21);
	for (int i = 0; i < 200000; i++) {
		int64_t a = (int64_t)rdv_random_next(&r) >> rdv_random_below(&r, 64);
		int64_t b = (int64_t)rdv_random_next(&r) >> rdv_random_below(&r, 64);
		if (rdv_ms_add(a, b) != clamp_wide((__int128)a + b) || rdv_ms_mul(a, b) != clamp_wide((__int128)a * b))
			fail_msg("%lld %lld", (long long)a, (long long)b);
	}
}

static void wall_prints_rfc_3339_with_milliseconds(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{0, "1970-01-01T00:00:00.000Z"},
		{-1, "1969-12-31T23:59:59.999Z"},
		{-DAY, "1969-12-31T00:00:00.000Z"},
		{-DAY - 1, "1969-12-30T23:59:59.999Z"},
		{951782400000, "2000-02-29T00:00:00.000Z"},
		{4107542399999, "2100-02-28T23:59:59.999Z"},
		{4107542400000, "2100-03-01T00:00:00.000Z"}, /* no leap year */
		{1796053126123, "2026-11-30T15:38:46.123Z"},
		{253402300799999, "9999-12-31T23:59:59.999Z"},
		{253402300800000, "9999-12-31T23:59:59.999Z"},
		{INT64_MAX, "9999-12-31T23:59:59.999Z"},
		{-62167219200000, "0000-01-01T00:00:00.000Z"},
		{-62167219200001, "0000-01-01T00:00:00.000Z"},
		{INT64_MIN, "0000-01-01T00:00:00.000Z"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[25];
		rdv_wall_format((struct rdv_wall){rows[i].ms}, text);
		assert_string_equal(text, rows[i].text);
	}
}

static void wall_agrees_with_the_libc_calendar_and_parses_back(void **state)
{
	struct rdv_random r;

	rdv_random_seed(&r, 22);
	for (int i = 0; i < 50000; i++) {
		struct rdv_wall t = {(int64_t)rdv_random_below(&r, 253402300800000)}, back = {-1};
		time_t seconds = t.ms / 1000;
		char text[25], want[32];
		struct tm tm;
		if (i % 2)
			t.ms = t.ms / DAY * DAY, seconds = t.ms / 1000; /* midnights */
		gmtime_r(&seconds, &tm);
		strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S", &tm);
		sprintf(want + 19, ".%03uZ", (unsigned)(t.ms % 1000));
		rdv_wall_format(t, text);
		assert_string_equal(text, want);
		assert_int_equal(rdv_wall_parse(rdv_slice_text(text), &back), REDRIVE_OK);
		assert_true(back.ms == t.ms);
	}
}

static void wall_reads_offsets_and_fractions(void **state)
{
	static const struct {
		const char *text, *utc;
	} rows[] = {
		{"2026-11-30T15:38:46Z", "2026-11-30T15:38:46.000Z"},
		{"2026-11-30t15:38:46z", "2026-11-30T15:38:46.000Z"},
		{"2026-11-30T15:38:46.1Z", "2026-11-30T15:38:46.100Z"},
		{"2026-11-30T15:38:46.123999999999999999Z", "2026-11-30T15:38:46.123Z"}, /* cut, not rounded */
		{"2026-11-30T15:38:46+01:30", "2026-11-30T14:08:46.000Z"},
		{"2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00.000Z"},
		{"2026-01-01T00:30:00.5+23:59", "2025-12-31T00:31:00.500Z"},
		{"1970-01-01T00:00:00-00:00", "1970-01-01T00:00:00.000Z"},
		{"2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"}, /* a leap second */
		{"2017-01-01T00:59:60+01:00", "2017-01-01T00:00:00.000Z"},
		{"2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000Z"},
		{"2000-02-29T12:00:00Z", "2000-02-29T12:00:00.000Z"}, /* a leap year, unlike 2100 */
		{"9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_wall t;
		char text[25];
		assert_int_equal(rdv_wall_parse(rdv_slice_text(rows[i].text), &t), REDRIVE_OK);
		rdv_wall_format(t, text);
		assert_string_equal(text, rows[i].utc);
	}
}

static void wall_hostile_times_are_invalid(void **state)
{
	static const char *const bad[] = {
		"",
		"2026",
		"2026-11-30",
		"2026-11-30T15:38Z",
		"2026-11-30T15:38:46",
		"2026-11-30 15:38:46Z",
		"2026-11-30T15:38:46.Z",
		"2026-11-30T15:38:46,5Z",
		"2026-11-30T15:38:46Z ",
		" 2026-11-30T15:38:46Z",
		"2026-11-30T15:38:46ZZ",
		"2026-11-30T15:38:46+0100",
		"2026-11-30T15:38:46+01",
		"2026-11-30T15:38:46+24:00",
		"2026-11-30T15:38:46+01:60",
		"2026-11-30T24:00:00Z",
		"2026-11-30T23:60:00Z",
		"2026-11-30T23:59:61Z",
		"2026-11-30T12:00:60Z", /* no leap second at noon */
		"2026-00-30T15:38:46Z",
		"2026-13-30T15:38:46Z",
		"2026-11-00T15:38:46Z",
		"2026-11-31T15:38:46Z",
		"2025-02-29T15:38:46Z",
		"2100-02-29T15:38:46Z",
		"02026-11-30T15:38:46Z",
		"-026-11-30T15:38:46Z",
		"+026-11-30T15:38:46Z",
		"2026-1-30T15:38:46Z",
		"2026-11-3OT15:38:46Z",
		"1969-12-31T23:59:59Z",
		"1970-01-01T00:59:59+01:00", /* before 1970 in UTC */
		"9999-12-31T23:59:59-01:00", /* after 9999 in UTC */
		"0000-01-01T00:00:00Z",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct rdv_wall t = {77};
		if (rdv_wall_parse(rdv_slice_text(bad[i]), &t) != REDRIVE_INVALID || t.ms != 77)
			fail_msg("accepted '%s'", bad[i]);
	}
	for (size_t cut = 0; cut < 24; cut++) {
		struct rdv_wall t;
		assert_int_equal(rdv_wall_parse(rdv_slice("2026-11-30T15:38:46.123Z", cut), &t), REDRIVE_INVALID);
	}
	assert_int_equal(rdv_wall_parse(rdv_slice(NULL, 0), &(struct rdv_wall){0}), REDRIVE_INVALID);
}

static void http_date_all_three_forms(void **state)
{
	static const struct {
		const char *text, *utc;
	} rows[] = {
		{"Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37.000Z"},
		{"Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37.000Z"},
		{"Sun Nov  6 08:49:37 1994", "1994-11-06T08:49:37.000Z"},
		{"Sun Nov 16 08:49:37 1994", "1994-11-16T08:49:37.000Z"},
		{"Mon, 30 Nov 2026 15:38:46 GMT", "2026-11-30T15:38:46.000Z"},
		{"Monday, 30-Nov-26 15:38:46 GMT", "2026-11-30T15:38:46.000Z"},
		{"Thursday, 01-Jan-70 00:00:00 GMT", "1970-01-01T00:00:00.000Z"},
		{"Sunday, 01-Jan-69 00:00:00 GMT", "2069-01-01T00:00:00.000Z"},
		{"Tue, 30 Nov 2026 15:38:46 GMT", "2026-11-30T15:38:46.000Z"}, /* a wrong weekday is let pass */
		{"Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59.000Z"},
		{"Sat, 31 Dec 2016 23:59:60 GMT", "2017-01-01T00:00:00.000Z"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_wall t;
		char text[25];
		assert_int_equal(rdv_wall_parse_http(rdv_slice_text(rows[i].text), &t), REDRIVE_OK);
		rdv_wall_format(t, text);
		assert_string_equal(text, rows[i].utc);
	}
}

static void http_date_hostile_texts_are_invalid(void **state)
{
	static const char *const bad[] = {
		"",
		"120",
		"Sun",
		"Sun,",
		"Sun, 06 Nov 1994 08:49:37",
		"Sun, 06 Nov 1994 08:49:37 UTC",
		"Sun, 06 Nov 1994 08:49:37 +0000",
		"Sun, 06 Nov 1994 08:49:37 GMT ",
		"Sun,06 Nov 1994 08:49:37 GMT",
		"sun, 06 nov 1994 08:49:37 gmt",
		"Sun, 6 Nov 1994 08:49:37 GMT",
		"Sun, 06 Nov 94 08:49:37 GMT",
		"Sun, 06-Nov-94 08:49:37 GMT",
		"Sunday, 06 Nov 1994 08:49:37 GMT",
		"Sunday Nov  6 08:49:37 1994",
		"Sun Nov 6 08:49:37 1994",
		"Sun Nov   6 08:49:37 1994",
		"Xyz, 06 Nov 1994 08:49:37 GMT",
		"Sun, 31 Feb 1994 08:49:37 GMT",
		"Sun, 06 Nov 1994 24:49:37 GMT",
		"Sun, 06 Nov 1969 08:49:37 GMT",
		"Sun, -6 Nov 1994 08:49:37 GMT",
		"Sun, 06 Nov 19940 08:49:37 GMT",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct rdv_wall t = {77};
		if (rdv_wall_parse_http(rdv_slice_text(bad[i]), &t) != REDRIVE_INVALID || t.ms != 77)
			fail_msg("accepted '%s'", bad[i]);
	}
	for (size_t cut = 0; cut < 29; cut++)
		assert_int_equal(
			rdv_wall_parse_http(rdv_slice("Sun, 06 Nov 1994 08:49:37 GMT", cut), &(struct rdv_wall){0}),
			REDRIVE_INVALID);
}

static void dates_of_random_bytes_never_pass_unless_they_are_dates(void **state)
{
	static const char alphabet[] = "0123456789-:TZ+. ,SunGMTNovd";
	struct rdv_random r;

	rdv_random_seed(&r, 23);
	for (int i = 0; i < 100000; i++) {
		char text[40] = "2026-11-30T15:38:46.123Z";
		struct rdv_wall t;
		size_t size = 24;
		for (int edits = 0; edits < 2; edits++)
			text[rdv_random_below(&r, size)] = alphabet[rdv_random_below(&r, sizeof alphabet - 1)];
		if (rdv_wall_parse(rdv_slice(text, size), &t) == REDRIVE_OK)
			assert_in_range(t.ms, 0, 253402300799999);
		(void)!rdv_wall_parse_http(rdv_slice(text, size), &t);
	}
}

/* pitfall: a suspended machine; the wall clock as time base */
static void mono_counts_like_the_boot_clock_and_never_goes_back(void **state)
{
	struct timespec boot;
	struct rdv_mono before = rdv_mono_now(), t;
	int64_t us = rdv_mono_now_us();

	clock_gettime(CLOCK_BOOTTIME, &boot);
	assert_in_range((int64_t)boot.tv_sec * 1000 + boot.tv_nsec / 1000000 - before.ms, 0, 60000);
	for (int i = 0; i < 10000; i++) {
		t = rdv_mono_now();
		assert_true(t.ms >= before.ms);
		before = t;
		assert_true(rdv_mono_now_us() >= us);
	}
}

static void wall_now_is_the_time_of_day(void **state)
{
	int64_t before = (int64_t)time(NULL) * 1000;
	struct rdv_now now = rdv_now();

	assert_true(now.wall.ms >= before && now.wall.ms < before + 60000);
	assert_true(rdv_wall_now().ms >= now.wall.ms);
	assert_true(rdv_mono_now().ms >= now.mono.ms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ms_add_saturates),
		cmocka_unit_test(ms_mul_saturates),
		cmocka_unit_test(ms_arithmetic_agrees_with_wider_numbers),
		cmocka_unit_test(wall_prints_rfc_3339_with_milliseconds),
		cmocka_unit_test(wall_agrees_with_the_libc_calendar_and_parses_back),
		cmocka_unit_test(wall_reads_offsets_and_fractions),
		cmocka_unit_test(wall_hostile_times_are_invalid),
		cmocka_unit_test(http_date_all_three_forms),
		cmocka_unit_test(http_date_hostile_texts_are_invalid),
		cmocka_unit_test(dates_of_random_bytes_never_pass_unless_they_are_dates),
		cmocka_unit_test(mono_counts_like_the_boot_clock_and_never_goes_back),
		cmocka_unit_test(wall_now_is_the_time_of_day),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
