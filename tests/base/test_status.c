/* test_status.c - the table of codes, and error texts that grow at the front. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/status.h"
#include "base/bytes.h"
#include <ctype.h>
#include <errno.h>

static void status_every_code_has_a_stable_name_and_a_text(void **state)
{
	for (int i = 0; i < REDRIVE_STATUS_COUNT; i++) {
		const struct rdv_status_info *info = rdv_status_info((enum redrive_status)i);
		assert_non_null(info->name);
		assert_true(strlen(info->text) > 0);
		assert_string_equal(redrive_status_text((enum redrive_status)i), info->text);
		for (const char *c = info->name; *c; c++)
			assert_true(islower((unsigned char)*c) || *c == '_');
		for (int j = 0; j < i; j++)
			assert_string_not_equal(info->name, rdv_status_info((enum redrive_status)j)->name);
	}
}

static void status_class_http_and_exit_agree(void **state)
{
	for (int i = 0; i < REDRIVE_STATUS_COUNT; i++) {
		const struct rdv_status_info *info = rdv_status_info((enum redrive_status)i);
		assert_int_equal(info->http < 300, i == REDRIVE_OK);
		assert_int_equal(info->exit == 0, i == REDRIVE_OK);
		assert_int_equal(info->class == RDV_CLASS_OK, i == REDRIVE_OK);
		assert_in_range(info->exit, 0, 6);
		if (info->class == RDV_CLASS_CALLER)
			assert_in_range(info->http, 400, 499);
		if (info->class == RDV_CLASS_OURS || info->class == RDV_CLASS_RETRY)
			assert_in_range(info->http, 500, 599);
	}
}

static void status_promised_exit_codes(void **state)
{
	static const struct {
		enum redrive_status status;
		int http, exit;
	} rows[] = {
		{REDRIVE_USAGE, 400, 2},        {REDRIVE_NOT_FOUND, 404, 3}, {REDRIVE_UNREACHABLE, 502, 4},
		{REDRIVE_UNAUTHORIZED, 401, 5}, {REDRIVE_FORBIDDEN, 403, 5}, {REDRIVE_REFUSED, 409, 6},
		{REDRIVE_CONFLICT, 409, 6},     {REDRIVE_CORRUPT, 500, 6},   {REDRIVE_VERSION, 500, 6},
		{REDRIVE_TOO_LARGE, 413, 1},    {REDRIVE_INVALID, 422, 1},   {REDRIVE_FULL, 503, 1},
		{REDRIVE_FAILED, 503, 1},       {REDRIVE_BUSY, 503, 1},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(rdv_status_info(rows[i].status)->http, rows[i].http);
		assert_int_equal(rdv_status_info(rows[i].status)->exit, rows[i].exit);
	}
}

static void status_out_of_range_is_internal(void **state)
{
	static const int values[] = {-1, REDRIVE_STATUS_COUNT, 1000000, INT32_MIN, INT32_MAX};

	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		assert_ptr_equal(rdv_status_info((enum redrive_status)values[i]), rdv_status_info(REDRIVE_INTERNAL));
}

static void error_layers_add_their_words_in_front(void **state)
{
	struct rdv_error e = {0};

	assert_int_equal(rdv_error_set(&e, REDRIVE_CORRUPT, "checksum at %d", 4096), REDRIVE_CORRUPT);
	assert_int_equal(rdv_error_prefix(&e, REDRIVE_CORRUPT, "segment %d", 7), REDRIVE_CORRUPT);
	assert_int_equal(rdv_error_prefix(&e, REDRIVE_REFUSED, "open journal '%s'", "x"), REDRIVE_REFUSED);
	assert_string_equal(e.text, "open journal 'x': segment 7: checksum at 4096");
}

static void error_without_a_place_for_it_still_answers(void **state)
{
	assert_int_equal(rdv_error_set(NULL, REDRIVE_IO, "x"), REDRIVE_IO);
	assert_int_equal(rdv_error_prefix(NULL, REDRIVE_BUSY, "x"), REDRIVE_BUSY);
	assert_int_equal(rdv_error_errno(NULL, EIO, "x"), REDRIVE_IO);
}

static void error_prefix_of_nothing_says_the_status(void **state)
{
	struct rdv_error e = {0};

	(void)rdv_error_prefix(&e, REDRIVE_NO_MEMORY, "read body");
	assert_string_equal(e.text, "read body: out of memory");
}

static void error_may_be_made_of_its_own_text(void **state)
{
	struct rdv_error e = {"first"};

	(void)rdv_error_set(&e, REDRIVE_IO, "%s and %s", e.text, e.text);
	assert_string_equal(e.text, "first and first");
	(void)rdv_error_prefix(&e, REDRIVE_IO, "[%s]", e.text);
	assert_string_equal(e.text, "[first and first]: first and first");
}

static void error_too_long_is_cut_between_characters(void **state)
{
	struct rdv_error e = {0};
	char text[2000] = "";

	for (int i = 0; i < 600; i++)
		strcat(text, "\xe2\x82\xac"); /* a euro sign, three bytes */
	for (int skew = 0; skew < 3; skew++) {
		(void)rdv_error_set(&e, REDRIVE_IO, "%.*s%s", skew, "ab", text);
		assert_true(strlen(e.text) <= sizeof e.text - 1);
		assert_true(strlen(e.text) >= sizeof e.text - 4);
		assert_true(rdv_utf8_valid(rdv_slice_text(e.text)));
	}
	for (int i = 0; i < 100; i++)
		(void)rdv_error_prefix(&e, REDRIVE_IO, "layer %d", i);
	assert_memory_equal(e.text, "layer 99: layer 98: ", 20);
	assert_true(strlen(e.text) < sizeof e.text);
}

static void error_errno_tells_a_full_disk_from_other_faults(void **state)
{
	struct rdv_error e = {0};

	assert_int_equal(rdv_error_errno(&e, ENOSPC, "write '%s'", "a"), REDRIVE_FULL);
	assert_string_equal(e.text, "write 'a': No space left on device");
	assert_int_equal(rdv_error_errno(&e, EDQUOT, "write"), REDRIVE_FULL);
	assert_int_equal(rdv_error_errno(&e, EIO, "fsync"), REDRIVE_IO);
	assert_string_equal(e.text, "fsync: Input/output error");
	assert_int_equal(rdv_error_errno(&e, -12345, "odd"), REDRIVE_IO);
}

static void error_more_goes_behind_what_is_there(void **state)
{
	struct rdv_error e = {""};

	(void)state;
	assert_int_equal(rdv_error_add(&e, REDRIVE_REFUSED, "one"), REDRIVE_REFUSED);
	assert_string_equal(e.text, "one");
	(void)rdv_error_add(&e, REDRIVE_REFUSED, "two");
	assert_string_equal(e.text, "one; two");
	assert_int_equal(rdv_error_add(NULL, REDRIVE_IO, "x"), REDRIVE_IO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status_every_code_has_a_stable_name_and_a_text),
		cmocka_unit_test(status_class_http_and_exit_agree),
		cmocka_unit_test(status_promised_exit_codes),
		cmocka_unit_test(status_out_of_range_is_internal),
		cmocka_unit_test(error_layers_add_their_words_in_front),
		cmocka_unit_test(error_without_a_place_for_it_still_answers),
		cmocka_unit_test(error_prefix_of_nothing_says_the_status),
		cmocka_unit_test(error_may_be_made_of_its_own_text),
		cmocka_unit_test(error_too_long_is_cut_between_characters),
		cmocka_unit_test(error_more_goes_behind_what_is_there),
		cmocka_unit_test(error_errno_tells_a_full_disk_from_other_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
