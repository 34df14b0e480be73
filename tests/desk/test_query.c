/* test_query.c - the query: what it takes, and where exactly a mistake is. */
#include "fixture.h"

static void query_takes_its_four_fields(void **state)
{
	static const struct {
		const char *text, *route, *key;
		enum rdv_reason reason;
		int64_t from, to;
	} table[] = {
		{""},
		{"   "},
		{"route:order-create", .route = "order-create"},
		{"reason:exhausted", .reason = RDV_REASON_EXHAUSTED},
		{"key:o-17", .key = "o-17"},
		{"key:\"\"", .key = ""},
		{"key:\"a b\"", .key = "a b"},
		{"key:\"say \\\"hi\\\" \\\\\"", .key = "say \"hi\" \\"},
		{"key:a:b:c", .key = "a:b:c"},
		{"key:\xe5\xba\x93\xe5\xad\x98", .key = "\xe5\xba\x93\xe5\xad\x98"},
		{"route:a reason:rejected  key:k", "a", "k", RDV_REASON_REJECTED},
		{"dead:2026-11-01..2026-11-05", .from = 1793491200000, .to = 1793491200000 + 5 * 86400000ll},
		{"dead:2026-11-01", .from = 1793491200000, .to = 1793491200000 + 86400000},
		{"dead:2026-11-01..", .from = 1793491200000},
		{"dead:..2026-11-01", .to = 1793491200000 + 86400000},
		{"dead:2026-11-01T00:00:01Z..2026-11-01T00:00:02.5Z", .from = 1793491201000, .to = 1793491202500},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_query q;
		fixture_parse(table[i].text, &q);
		if (table[i].route)
			assert_string_equal(q.route, table[i].route);
		else
			assert_null(q.route);
		assert_int_equal(q.has_key, table[i].key != NULL);
		if (table[i].key)
			assert_string_equal(q.key, table[i].key);
		assert_int_equal(q.reason, table[i].reason);
		assert_int_equal(q.dead_from.ms, table[i].from);
		assert_int_equal(q.dead_to.ms, table[i].to);
		rdv_query_done(&q);
	}
}

static void query_mistake_has_its_position_in_characters(void **state)
{
	static const struct {
		const char *text;
		size_t position;
	} table[] = {
		{"timeout", 1},
		{"route:a timeout", 9},
		{"topic:x", 1},
		{"route:a -reason:exhausted", 9},
		{"key:\xe5\xba\x93 x", 7}, /* characters, not bytes */
		{"reason:unheard", 1},
		{"reason:none", 1},
		{"reason:", 1},
		{"route:", 1},
		{"route:a route:b", 9},
		{"key:\"open", 5},
		{"key:\"a\"b", 8},
		{"\"phrase\"", 1},
		{"dead:yesterday", 1},
		{"dead:2026-11-05..2026-11-01", 1},
		{"dead:..", 1},
		{"dead:2026-13-01..", 1},
		{"dead:2026-11-01T00:00:00Z", 1},
		{":", 1},
		{"age:>1d", 1},
		{"ROUTE:a", 1},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_query q;
		struct rdv_error error = {{0}};
		size_t position = 0;
		assert_int_equal(rdv_query_parse(rdv_slice_text(table[i].text), &q, &position, &error),
				 REDRIVE_INVALID);
		if (position != table[i].position)
			fail_msg("'%s': position %zu", table[i].text, position);
		assert_true(error.text[0] != 0);
	}
}

static void query_of_hostile_bytes_is_invalid(void **state)
{
	struct rdv_query q;
	size_t position;
	struct rdv_error error;
	char *big = malloc(100000);
	memset(big, 'a', 100000);
	memcpy(big, "key:", 4);
	assert_int_equal(rdv_query_parse(rdv_slice(big, 100000), &q, &position, &error), REDRIVE_INVALID);
	assert_int_equal(rdv_query_parse(rdv_slice(big, 5000), &q, &position, &error),
			 REDRIVE_INVALID); /* a key of 4,996 bytes */
	free(big);
	assert_int_equal(rdv_query_parse(rdv_slice("key:\xff", 5), &q, &position, &error), REDRIVE_INVALID);
	assert_int_equal(rdv_query_parse(rdv_slice("route:a\0b", 9), &q, &position, &error), REDRIVE_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(query_takes_its_four_fields),
		cmocka_unit_test(query_mistake_has_its_position_in_characters),
		cmocka_unit_test(query_of_hostile_bytes_is_invalid),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
