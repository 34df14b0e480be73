/* Tests of the API's pure parts: hosts and origins, paths, escapes, due times, batches, tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "api/exchange.h"
#include "api/fields.h"
#include "api/ndjson.h"

static void only_loopback_and_configured_hosts_are_allowed(void **state)
{
	static const char *const hosts[] = {"redrive.example"};
	static const struct {
		const char *host;
		bool allowed;
	} table[] = {
		{"localhost", true},
		{"LOCALHOST:1", true},
		{"127.0.0.1:7337", true},
		{"[::1]:7337", true},
		{"redrive.example", true},
		{"evil.example", false},
		{"localhost.evil.example", false},
		{"127.0.0.1.evil.example", false},
		{"", false},
		{"[::1", false},
		{"[::1]evil", false},
		{"localhost:evil", false},
		{"127.0.0.2", false},
		{"redrive.example.evil", false},
	};
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (rdv_host_allowed(table[i].host, hosts, 1) != table[i].allowed)
			fail_msg("%s", table[i].host);
	assert_false(rdv_host_allowed(NULL, hosts, 1));
	assert_true(rdv_origin_allowed("http://localhost:3000", hosts, 1));
	assert_true(rdv_origin_allowed("https://redrive.example", hosts, 1));
	assert_false(rdv_origin_allowed("null", hosts, 1));
	assert_false(rdv_origin_allowed("http://evil.example", hosts, 1));
	assert_false(rdv_origin_allowed("file://localhost", hosts, 1));
	assert_false(rdv_origin_allowed("http://localhost/path", hosts, 1));
}

static void paths_match_segment_by_segment(void **state)
{
	struct rdv_slice params[3];
	size_t count;
	(void)state;
	assert_true(rdv_field_path("/v1/routes/{name}/keys/{key}/release", "/v1/routes/a/keys/k%2F1/release", params, 3,
				   &count));
	assert_int_equal(count, 2);
	assert_true(rdv_slice_is(params[1], "k%2F1"));
	assert_true(rdv_field_path("/v1/routes/{name}/keys/{key}/release", "/v1/routes/a/keys//release", params, 3,
				   &count)); /* the empty key */
	assert_false(rdv_field_path("/v1/routes", "/v1/routes/", params, 3, &count));
	assert_false(rdv_field_path("/v1/routes/{name}", "/v1/routes", params, 3, &count));
	assert_false(rdv_field_path("/v1/routes", "/v1/route", params, 3, &count));
}

static void every_operation_is_found_by_its_own_path_only(void **state)
{
	(void)state;
	for (size_t i = 0; i < rdv_operation_count; i++)
		for (size_t j = 0; j < i; j++)
			assert_false(strcmp(rdv_operations[i].path, rdv_operations[j].path) == 0 &&
				     strcmp(rdv_operations[i].method, rdv_operations[j].method) == 0);
}

static void due_times_are_bounded(void **state)
{
	const struct rdv_wall now = {1796000000000};
	struct rdv_wall due;
	const char *field, *wrong;
	(void)state;
	assert_int_equal(rdv_field_due("10s", NULL, now, &due, &field, &wrong), REDRIVE_OK);
	assert_int_equal(due.ms, now.ms + 10000);
	assert_int_equal(rdv_field_due(NULL, "2026-11-30T12:00:00Z", now, &due, &field, &wrong), REDRIVE_OK);
	assert_int_equal(due.ms, 1796040000000);
	assert_int_equal(rdv_field_due("10", NULL, now, &due, &field, &wrong), REDRIVE_INVALID);
	assert_int_equal(rdv_field_due("1s", "2026-11-30T12:00:00Z", now, &due, &field, &wrong), REDRIVE_INVALID);
	assert_int_equal(rdv_field_due("9999999d", NULL, now, &due, &field, &wrong), REDRIVE_INVALID);
}

static void bodies_of_a_batch_stay_as_written(void **state)
{
	const struct rdv_batch_limits limits = {1000, 1000, {1796000000000}};
	const char *text = "{\"key\": \"k\", \"body\" : {\"n\": 1.50, \"s\": \"a\\\"}b\", \"l\": [1, {}]} , \"id\": "
			   "\"i\"}\r\n\n{\"body\":  12345678901234567890123 }\n";
	struct rdv_batch batch;
	(void)state;
	assert_int_equal(rdv_batch_parse(rdv_slice_text(text), &limits, &batch), REDRIVE_OK);
	assert_int_equal(batch.count, 2);
	assert_true(rdv_slice_is(batch.messages[0].body, "{\"n\": 1.50, \"s\": \"a\\\"}b\", \"l\": [1, {}]}"));
	assert_true(rdv_slice_is(batch.messages[0].id, "i"));
	assert_true(rdv_slice_is(batch.messages[1].body, "12345678901234567890123"));
	assert_false(batch.messages[1].has_key);
	rdv_batch_done(&batch);
}

static void a_bad_line_is_named_from_one(void **state)
{
	const struct rdv_batch_limits limits = {10, 10, {1796000000000}};
	struct rdv_batch batch;
	(void)state;
	assert_int_equal(
		rdv_batch_parse(rdv_slice_text("{\"body\": 1}\n\n{\"body\": 1, \"bodies\": 2}\n"), &limits, &batch),
		REDRIVE_INVALID);
	assert_int_equal(batch.bad_line, 3);
	rdv_batch_done(&batch);
	assert_int_equal(rdv_batch_parse(rdv_slice_text("{\"body_text\": \"01234567890\"}\n"), &limits, &batch),
			 REDRIVE_TOO_LARGE);
	assert_int_equal(batch.bad_line, 1);
	rdv_batch_done(&batch);
	assert_int_equal(rdv_batch_parse(rdv_slice_text("\n\n"), &limits, &batch), REDRIVE_INVALID);
	rdv_batch_done(&batch);
}

static void a_token_without_memory_for_its_scope_is_no_token_and_not_unknown(void **state)
{
	struct rdv_token huge = {.name = "ci", .role = RDV_ROLE_ADMIN, .route_count = SIZE_MAX}, copy;
	char routes[2][101] = {"a", "b"};

	(void)state;
	assert_int_equal(rdv_token_copy(&huge, &copy), REDRIVE_NO_MEMORY);
	assert_int_equal(copy.role, RDV_ROLE_NONE);
	assert_int_equal(rdv_status_info(REDRIVE_NO_MEMORY)->http, 503);
	huge.routes = routes;
	huge.route_count = 2;
	assert_int_equal(rdv_token_copy(&huge, &copy), REDRIVE_OK);
	assert_true(rdv_token_covers(&copy, "b") && !rdv_token_covers(&copy, "c"));
	free(copy.routes);
}

static void tokens_are_found_by_their_secret_and_survive_the_file(void **state)
{
	char file[] = "/tmp/redrive-tokens-XXXXXX", secret[RDV_TOKEN_TEXT], other[RDV_TOKEN_TEXT];
	const char *routes[] = {"a", "b"};
	struct rdv_tokens tokens = {0}, read = {0};
	struct rdv_error error = {""};
	struct stat info;
	(void)state;
	close(mkstemp(file));
	assert_int_equal(rdv_tokens_add(&tokens, "ci", RDV_ROLE_OPERATOR, routes, 2, secret, &error), REDRIVE_OK);
	assert_int_equal(rdv_tokens_add(&tokens, "admin", RDV_ROLE_ADMIN, NULL, 0, other, &error), REDRIVE_OK);
	assert_int_equal(rdv_tokens_add(&tokens, "ci", RDV_ROLE_READER, NULL, 0, other, &error), REDRIVE_CONFLICT);
	assert_int_equal(rdv_tokens_save(file, &tokens, &error), REDRIVE_OK);
	assert_int_equal(stat(file, &info), 0);
	assert_int_equal(info.st_mode & 0777, 0600);
	assert_int_equal(rdv_tokens_load(file, &read, &error), REDRIVE_OK);
	const struct rdv_token *found = rdv_tokens_find(&read, rdv_slice_text(secret));
	assert_non_null(found);
	assert_string_equal(found->name, "ci");
	assert_true(rdv_token_covers(found, "b"));
	assert_false(rdv_token_covers(found, "c"));
	secret[10] ^= 1;
	assert_null(rdv_tokens_find(&read, rdv_slice_text(secret)));
	assert_int_equal(rdv_tokens_remove(&read, "ci"), REDRIVE_OK);
	assert_int_equal(rdv_tokens_remove(&read, "ci"), REDRIVE_NOT_FOUND);
	rdv_tokens_done(&tokens);
	rdv_tokens_done(&read);
	unlink(file);
}

#define LONG "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 \xe4\xb8\xad"

/* A long body_text is taken without jansson where it is plain; what is accepted, and as what, is the same. */
static void a_long_text_is_judged_as_a_short_one(void **state)
{
	static const struct {
		const char *line, *body; /* body NULL: refused */
	} rows[] = {
		{"{\"body_text\": \"" LONG "\"}", LONG},
		{"{\"key\": \"a\\\"b\", \"body_text\": \"" LONG "\", \"delay_ms\": 1}", LONG},
		{"{\"body_text\": \"" LONG "\\n\"}", LONG "\n"},
		{"{\"body_text\": \"" LONG "\t\"}", NULL},
		{"{\"body_text\": \"" LONG "\xff\"}", NULL},
		{"{\"body_text\": \"" LONG "\xed\xa0\x80\"}", NULL},
		{"{\"body_text\": \"" LONG "\"", NULL},
		{"{\"body_text\": \"" LONG, NULL},
		{"{\"body_text\" \"" LONG "\"}", NULL},
		{"{\"a\": 1\"b, \"body_text\": \"" LONG "\"}", NULL},
		{"{\"body_text\": \"" LONG "\", \"body_text\": \"\"}", NULL},
		{"{\"body_text\": \"" LONG "\", \"body_\\u0074ext\": \"\"}", NULL},
		{"{\"body_text\": \"" LONG "\", \"body\": 1}", NULL},
		{"{\"headers\": {\"body_text\": \"" LONG "\"}}", ""},
		{"[\"body_text\", \"" LONG "\"]", NULL},
	};
	const struct rdv_batch_limits limits = {1024, 512, {1796000000000}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rdv_batch batch;
		enum redrive_status status = rdv_batch_parse(rdv_slice_text(rows[i].line), &limits, &batch);

		assert_int_equal(status, rows[i].body ? REDRIVE_OK : REDRIVE_INVALID);
		if (rows[i].body)
			assert_true(rdv_slice_equal(batch.messages[0].body, rdv_slice_text(rows[i].body)));
		rdv_batch_done(&batch);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_loopback_and_configured_hosts_are_allowed),
		cmocka_unit_test(paths_match_segment_by_segment),
		cmocka_unit_test(every_operation_is_found_by_its_own_path_only),
		cmocka_unit_test(due_times_are_bounded),
		cmocka_unit_test(bodies_of_a_batch_stay_as_written),
		cmocka_unit_test(a_bad_line_is_named_from_one),
		cmocka_unit_test(a_long_text_is_judged_as_a_short_one),
		cmocka_unit_test(a_token_without_memory_for_its_scope_is_no_token_and_not_unknown),
		cmocka_unit_test(tokens_are_found_by_their_secret_and_survive_the_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
