/* test_quantity.c - durations, sizes, rates, ratios: tables, round trips, hostile texts, any locale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/quantity.h"
#include "base/random.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>

static void duration_is_read_exactly(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {
		{"0", 0},
		{"0s", 0},
		{"0ms", 0},
		{"250ms", 250},
		{"30s", 30000},
		{"10m", 600000},
		{"2h", 7200000},
		{"7d", 604800000},
		{"1h30m", 5400000},
		{"1d2h3m4s5ms", 93784005},
		{"30m1h", 5400000},
		{"1.5s", 1500},
		{"0.001s", 1},
		{"0.25d", 21600000},
		{"1.0000000000s", 1000},
		{"007s", 7000},
		{"9223372036854775807ms", INT64_MAX},
		{"106751991167d", 9223372036828800000},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int64_t ms = -1;
		assert_int_equal(rdv_duration_parse(rdv_slice_text(rows[i].text), &ms), REDRIVE_OK);
		assert_int_equal(ms, rows[i].ms);
	}
}

static void duration_hostile_texts_are_invalid(void **state)
{
	static const char *const bad[] = {
		"",
		"1",
		"00",
		"-1s",
		"+1s",
		" 1s",
		"1s ",
		"1 s",
		"1S",
		"1sec",
		"s",
		".5s",
		"1.s",
		"1..5s",
		"1e3s",
		"0x10s",
		"1,5s",
		"1h 30m",
		"1h30",
		"1h-3m",
		"ms",
		"1mss",
		"1s1",
		"NaN",
		"inf",
		"0.5ms",
		"1.0005s",
		"0.3333333m",
		"9223372036854775808ms",                         /* one too many */
		"106751991168d",                                 /* a day too many */
		"9223372036854775807ms1ms",                      /* sum too large */
		"18446744073709551616ms",                        /* 2^64 */
		"99999999999999999999999999999999999999999999s", /* far too many digits */
		"1.0000000000000000000s",                        /* more decimals than are read */
		"1\xc2\xb5s",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		int64_t ms = 77;
		if (rdv_duration_parse(rdv_slice_text(bad[i]), &ms) != REDRIVE_INVALID)
			fail_msg("accepted '%s' as %lld", bad[i], (long long)ms);
		assert_int_equal(ms, 77);
	}
	assert_int_equal(rdv_duration_parse(rdv_slice("1s\0", 3), &(int64_t){0}), REDRIVE_INVALID);
	assert_int_equal(rdv_duration_parse(rdv_slice(NULL, 0), &(int64_t){0}), REDRIVE_INVALID);
}

static void duration_is_printed_short(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{0, "0s"},          {1, "1ms"},          {100, "100ms"},      {250, "250ms"},
		{1000, "1s"},       {1500, "1.5s"},      {30000, "30s"},      {60000, "1m"},
		{90000, "90s"},     {5400000, "90m"},    {3600000, "1h"},     {86400000, "1d"},
		{129600000, "36h"}, {604800000, "7d"},   {86400001, "1d1ms"}, {18618750, "5h10m18.75s"},
		{8280000, "2.3h"},  {4995000, "83m15s"}, {1234, "1.234s"},    {3661000, "61m1s"},
		{1001, "1s1ms"},    {3600001, "1h1ms"},  {-1500, "-1.5s"},    {-1, "-1ms"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[RDV_QUANTITY_TEXT];
		rdv_duration_format(rows[i].ms, text);
		assert_string_equal(text, rows[i].text);
	}
}

static void check_duration(int64_t ms)
{
	char text[RDV_QUANTITY_TEXT];
	int64_t back = -1;

	rdv_duration_format(ms, text);
	if (rdv_duration_parse(rdv_slice_text(text), &back) != REDRIVE_OK || back != ms)
		fail_msg("%lld -> %s -> %lld", (long long)ms, text, (long long)back);
}

static void duration_round_trips_for_all_magnitudes(void **state)
{
	static const int64_t units[] = {1, 10, 1000, 60000, 3600000, 86400000, 604800000};
	struct rdv_random r;
	char text[RDV_QUANTITY_TEXT];

	rdv_random_seed(&r, 1);
	for (int64_t ms = 0; ms < 5000; ms++)
		check_duration(ms);
	for (int i = 0; i < 20000; i++) {
		check_duration((int64_t)(rdv_random_next(&r) >> (1 + rdv_random_below(&r, 63))));
		check_duration((int64_t)rdv_random_below(&r, 10000) * units[rdv_random_below(&r, 7)]);
	}
	check_duration(INT64_MAX);
	check_duration(INT64_MAX - 1);
	rdv_duration_format(INT64_MIN, text); /* must not overflow */
	assert_true(text[0] == '-');
}

static void size_is_read_exactly(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {
		{"0", 0},
		{"512", 512},
		{"512B", 512},
		{"64KiB", 65536},
		{"1MiB", 1048576},
		{"1.5MiB", 1572864},
		{"0.5KiB", 512},
		{"64GiB", 68719476736},
		{"2TiB", 2199023255552},
		{"18446744073709551615", UINT64_MAX},
		{"16777215TiB", 18446742974197923840u},
		{"0.0009765625KiB", 1},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uint64_t bytes = 1;
		assert_int_equal(rdv_size_parse(rdv_slice_text(rows[i].text), &bytes), REDRIVE_OK);
		assert_int_equal(bytes, rows[i].bytes);
	}
}

static void size_hostile_texts_are_invalid(void **state)
{
	static const char *const bad[] = {
		"",
		"KiB",
		"-1",
		"1KB",
		"1kb",
		"1K",
		"1 KiB",
		"1KiB ",
		"1.5",
		"0.1B",
		"1b",
		"1KiB1",
		"1MiB1KiB",
		"1e3",
		"0x10",
		"1KiBB",
		"1.KiB",
		"1,5MiB",
		"18446744073709551616",
		"16777216TiB",
		"0.3KiB",
		"16777215.99999999999999999TiB",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		uint64_t bytes = 77;
		if (rdv_size_parse(rdv_slice_text(bad[i]), &bytes) != REDRIVE_INVALID)
			fail_msg("accepted '%s' as %llu", bad[i], (unsigned long long)bytes);
		assert_int_equal(bytes, 77);
	}
}

static void size_round_trips_with_a_unit(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {{0, "0B"},
		    {1, "1B"},
		    {512, "512B"},
		    {1024, "1KiB"},
		    {65536, "64KiB"},
		    {1572864, "1.5MiB"},
		    {1048577, "1048577B"},
		    {1207959552, "1152MiB"},
		    {5553258496, "5296MiB"},
		    {1310730, "1310730B"},
		    {1ull << 40, "1TiB"},
		    {2000, "2000B"}};
	struct rdv_random r;
	char text[RDV_QUANTITY_TEXT];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		rdv_size_format(rows[i].bytes, text);
		assert_string_equal(text, rows[i].text);
	}
	rdv_random_seed(&r, 2);
	for (int i = 0; i < 50000; i++) {
		uint64_t bytes = rdv_random_next(&r) >> rdv_random_below(&r, 64), back = 0;
		if (i % 2)
			bytes = bytes >> rdv_random_below(&r, 64) << rdv_random_below(&r, 64);
		rdv_size_format(bytes, text);
		if (rdv_size_parse(rdv_slice_text(text), &back) != REDRIVE_OK || back != bytes)
			fail_msg("%llu -> %s", (unsigned long long)bytes, text);
	}
}

static void rate_and_ratio_are_read(void **state)
{
	static const struct {
		const char *text;
		double value;
	} rates[] = {{"500/s", 500}, {"0.5/s", 0.5}, {"30/m", 0.5}, {"1/h", 1 / 3600.0}, {"0/s", 0}},
	  ratios[] = {{"20%", 0.2}, {"0.2", 0.2}, {"100%", 1}, {"0%", 0}, {"250%", 2.5}, {"1", 1}, {"12.5%", 0.125}};

	for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
		double v = -1;
		assert_int_equal(rdv_rate_parse(rdv_slice_text(rates[i].text), &v), REDRIVE_OK);
		assert_true(v == rates[i].value);
	}
	for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
		double v = -1;
		assert_int_equal(rdv_ratio_parse(rdv_slice_text(ratios[i].text), &v), REDRIVE_OK);
		assert_true(v == ratios[i].value);
	}
}

static void rate_and_ratio_hostile_texts_are_invalid(void **state)
{
	static const char *const bad_rates[] = {
		"",     "500",  "/s",   "500/",  "500/d", "500/ms", "-1/s",  "1e3/s", "nan/s", "inf/s",
		"1/s ", " 1/s", "1 /s", "1/s/s", "1/S",   "0x1/s",  "1,5/s", ".5/s",  "1./s",  "1000000000000000/s",
		"1/sec"};
	static const char *const bad_ratios[] = {"",     "%",    "20 %", "20%%", "-1%", "nan",  "inf",
						 "1e-1", "20pc", ".5",   "5.",   "0x1", "20%x", "1,5%"};
	double v = 77;

	for (size_t i = 0; i < sizeof bad_rates / sizeof bad_rates[0]; i++)
		if (rdv_rate_parse(rdv_slice_text(bad_rates[i]), &v) != REDRIVE_INVALID || v != 77)
			fail_msg("accepted '%s'", bad_rates[i]);
	for (size_t i = 0; i < sizeof bad_ratios / sizeof bad_ratios[0]; i++)
		if (rdv_ratio_parse(rdv_slice_text(bad_ratios[i]), &v) != REDRIVE_INVALID || v != 77)
			fail_msg("accepted '%s'", bad_ratios[i]);
}

static void check_rate(double v)
{
	char text[RDV_QUANTITY_TEXT];
	double back = -1;

	rdv_rate_format(v, text);
	if (rdv_rate_parse(rdv_slice_text(text), &back) != REDRIVE_OK || back != v)
		fail_msg("%.17g -> %s -> %.17g", v, text, back);
}

static void check_ratio(double v)
{
	char text[RDV_QUANTITY_TEXT];
	double back = -1;

	rdv_ratio_format(v, text);
	if (rdv_ratio_parse(rdv_slice_text(text), &back) != REDRIVE_OK || back != v)
		fail_msg("%.17g -> %s -> %.17g", v, text, back);
}

/* Whatever text can be read, its value is printed as a text that is read as the same value. */
static void rate_and_ratio_round_trip(void **state)
{
	static const char *const rate_units[] = {"/s", "/m", "/h"};
	/* Times 3600 these give another double than the one that was read. */
	static const char *const hard[] = {"0.003441092608956293/h", "0.006971070479123424/h",
					   "0.007291528084852884/h"};
	struct rdv_random r;

	for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++) {
		double v;
		assert_int_equal(rdv_rate_parse(rdv_slice_text(hard[i]), &v), REDRIVE_OK);
		check_rate(v);
	}

	rdv_random_seed(&r, 4);
	for (int i = 0; i < 20000; i++) {
		char text[64];
		double v;
		unsigned long long whole = rdv_random_next(&r) % 1000000000000000u >> rdv_random_below(&r, 50);
		unsigned long long fraction = rdv_random_next(&r) % 1000000000000000000u;
		int digits = (int)rdv_random_below(&r, 19);
		for (int j = digits; j < 18; j++)
			fraction /= 10;
		if (digits)
			snprintf(text, sizeof text, "%llu.%0*llu", whole, digits, fraction);
		else
			snprintf(text, sizeof text, "%llu", whole);
		assert_int_equal(rdv_ratio_parse(rdv_slice_text(text), &v), REDRIVE_OK);
		check_ratio(v);
		strcat(text, rate_units[rdv_random_below(&r, 3)]);
		assert_int_equal(rdv_rate_parse(rdv_slice_text(text), &v), REDRIVE_OK);
		check_rate(v);
	}
}

static void rate_and_ratio_are_printed_short(void **state)
{
	static const struct {
		double value;
		const char *rate, *ratio;
	} rows[] = {{500, "500/s", "50000%"}, {0.5, "30/m", "50%"}, {0.2, "12/m", "20%"},
		    {1, "1/s", "100%"},       {0, "0/s", "0%"},     {1 / 3600.0, "1/h", NULL}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[RDV_QUANTITY_TEXT];
		rdv_rate_format(rows[i].value, text);
		assert_string_equal(text, rows[i].rate);
		rdv_ratio_format(rows[i].value, text);
		if (rows[i].ratio)
			assert_string_equal(text, rows[i].ratio);
	}
}

static void format_of_what_no_text_gives_stays_in_bounds(void **state)
{
	const double odd[] = {-1,  NAN, INFINITY, -INFINITY, 1e300, -1e300, 1e-300, 5e-324, 1.7976931348623157e308,
			      1e15};

	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		char text[RDV_QUANTITY_TEXT];
		rdv_rate_format(odd[i], text);
		assert_in_range(strlen(text), 1, RDV_QUANTITY_TEXT - 1);
		rdv_ratio_format(odd[i], text);
		assert_in_range(strlen(text), 1, RDV_QUANTITY_TEXT - 1);
	}
}

static void integer_is_decimal_and_bounded(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} good[] = {{"0", 0},
		    {"-0", 0},
		    {"7", 7},
		    {"007", 7},
		    {"9223372036854775807", INT64_MAX},
		    {"-9223372036854775808", INT64_MIN}};
	static const char *const bad[] = {"",
					  "-",
					  "--1",
					  "+1",
					  " 1",
					  "1 ",
					  "1.0",
					  "0x1",
					  "1e3",
					  "1-1",
					  "9223372036854775808",
					  "-9223372036854775809",
					  "99999999999999999999",
					  "18446744073709551615"};
	int64_t v;

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		assert_int_equal(rdv_integer_parse(rdv_slice_text(good[i].text), &v), REDRIVE_OK);
		assert_int_equal(v, good[i].value);
	}
	v = 77;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (rdv_integer_parse(rdv_slice_text(bad[i]), &v) != REDRIVE_INVALID || v != 77)
			fail_msg("accepted '%s'", bad[i]);
}

/* A host program may have set a locale whose decimal point is a comma. */
static void numbers_do_not_follow_the_locale(void **state)
{
	static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "ru_RU.UTF-8"};
	bool set = false;
	char text[RDV_QUANTITY_TEXT];
	double v;

	for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++)
		set = setlocale(LC_ALL, names[i]) != NULL && strcmp(localeconv()->decimal_point, ",") == 0;
	if (!set)
		skip();
	assert_int_equal(rdv_rate_parse(rdv_slice_text("1.25/s"), &v), REDRIVE_OK);
	assert_true(v == 1.25);
	rdv_ratio_format(0.125, text);
	assert_string_equal(text, "12.5%");
	assert_string_equal(localeconv()->decimal_point, ","); /* put back */
	setlocale(LC_ALL, "C");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(duration_is_read_exactly),
		cmocka_unit_test(duration_hostile_texts_are_invalid),
		cmocka_unit_test(duration_is_printed_short),
		cmocka_unit_test(duration_round_trips_for_all_magnitudes),
		cmocka_unit_test(size_is_read_exactly),
		cmocka_unit_test(size_hostile_texts_are_invalid),
		cmocka_unit_test(size_round_trips_with_a_unit),
		cmocka_unit_test(rate_and_ratio_are_read),
		cmocka_unit_test(rate_and_ratio_hostile_texts_are_invalid),
		cmocka_unit_test(rate_and_ratio_round_trip),
		cmocka_unit_test(rate_and_ratio_are_printed_short),
		cmocka_unit_test(format_of_what_no_text_gives_stays_in_bounds),
		cmocka_unit_test(integer_is_decimal_and_bounded),
		cmocka_unit_test(numbers_do_not_follow_the_locale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
