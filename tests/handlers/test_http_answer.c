/* test_http_answer.c - status, headers and body of an HTTP answer to an rdv_answer: every rule of the contract, without
 * a server. */
#include "kit.h"
#include "handlers/http_answer.h"

#define NOW 1796053126123 /* 2026-11-30T15:38:46.123Z */

struct answered {
	struct rdv_buffer head, text;
	struct rdv_answer answer;
};

/* `lines` are header lines, each with its line end. */
static struct rdv_answer *answer_to(struct answered *a, int status, const char *lines, const char *body)
{
	struct rdv_http_reply reply = {.status = status};

	rdv_buffer_init(&a->head, 0);
	rdv_buffer_init(&a->text, 0);
	for (const char *end; (end = strchr(lines, '\n')); lines = end + 1)
		rdv_http_reply_header(&reply, rdv_slice(lines, (size_t)(end + 1 - lines)), &a->head);
	reply.body = rdv_slice_text(body);
	rdv_http_answer(&reply, (struct rdv_wall){NOW}, &a->text, &a->answer);
	return &a->answer;
}

static void done(struct answered *a)
{
	rdv_buffer_done(&a->head);
	rdv_buffer_done(&a->text);
}

static void delays_are_understood_or_absent(void **state)
{
	static const struct {
		const char *lines;
		int64_t delay_ms; /* -1 = absent */
		bool retry_after;
	} table[] = {
		{"Retry-After: 120\r\n", 120000, true},
		{"retry-after:5\r\n", 5000, true},
		{"Retry-After:  7 \t\r\n", 7000, true},
		{"Retry-After: 0\r\n", 0, true},
		{"Retry-After: Mon, 30 Nov 2026 15:39:46 GMT\r\n", 59877, true},
		{"Retry-After: Monday, 30-Nov-26 15:39:46 GMT\r\n", 59877, true},
		{"Retry-After: Mon Nov 30 15:39:46 2026\r\n", 59877, true},
		{"Retry-After: Mon, 30 Nov 2026 15:38:46 GMT\r\n", -1, false},
		{"Retry-After: Mon, 30 Nov 2020 15:38:46 GMT\r\n", -1, false},
		{"Retry-After: -5\r\n", -1, false},
		{"Retry-After: soon\r\n", -1, false},
		{"Retry-After: 1.5\r\n", -1, false},
		{"Retry-After: 10s\r\n", -1, false},
		{"Retry-After:\r\n", -1, false},
		{"Retry-After: \r\n", -1, false},
		{"Redrive-Delay: 10s\r\n", 10000, false},
		{"Redrive-Delay: 250ms\r\n", 250, false},
		{"Redrive-Delay: 10\r\n", -1, false},
		{"Redrive-Delay: -10s\r\n", -1, false},
		{"Redrive-Delay: 10s\r\nRetry-After: 99\r\n", 10000, false},
		{"Redrive-Delay: bad\r\nRetry-After: 99\r\n", 99000, true},
		{"Retry-After: 1\r\nRetry-After: 99\r\n", 1000, true},
		{"", -1, false},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct answered a;
		struct rdv_answer *r = answer_to(&a, 503, table[i].lines, "");

		if (r->has_delay != (table[i].delay_ms >= 0) || (r->has_delay && r->delay_ms != table[i].delay_ms) ||
		    r->delay_is_retry_after != table[i].retry_after)
			fail_msg("row %zu: %d %lld %d", i, r->has_delay, (long long)r->delay_ms,
				 r->delay_is_retry_after);
		done(&a);
	}
}

static void a_retry_after_beside_a_delay_is_kept_for_the_target(void **state)
{
	struct answered a;
	struct rdv_answer *r = answer_to(&a, 429, "Redrive-Delay: 10s\r\nRetry-After: 99\r\n", "");

	assert_int_equal(r->delay_ms, 10000);
	assert_int_equal(r->retry_after_ms, 99000);
	done(&a);
}

static void an_absurd_retry_after_neither_overflows_nor_vanishes(void **state)
{
	struct answered a;
	struct rdv_answer *r = answer_to(&a, 503, "Retry-After: 99999999999999999999999999999999999999\r\n", "");

	assert_true(r->has_delay);
	assert_true(r->delay_ms > 3600000);
	done(&a);
}

static void a_verdict_header_overrides_and_an_unknown_one_is_ignored(void **state)
{
	static const struct {
		const char *lines;
		bool explicit_verdict;
		enum rdv_verdict_kind verdict;
	} table[] = {
		{"Redrive-Verdict: ack\r\n", true, RDV_ACK},
		{"Redrive-Verdict: retry\r\n", true, RDV_RETRY},
		{"Redrive-Verdict: reject\r\n", true, RDV_REJECT},
		{"Redrive-Verdict: defer\r\n", true, RDV_DEFER},
		{"redrive-verdict: Drop \r\n", true, RDV_DROP},
		{"Redrive-Verdict: maybe\r\n", false, 0},
		{"Redrive-Verdict: \r\n", false, 0},
		{"Redrive-Verdict: ackk\r\n", false, 0},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct answered a;
		struct rdv_answer *r = answer_to(&a, 500, table[i].lines, "");

		assert_int_equal(r->explicit_verdict, table[i].explicit_verdict);
		assert_int_equal(r->verdict, table[i].verdict);
		assert_int_equal(r->http_status, 500);
		assert_int_equal(r->exit_code, -1);
		done(&a);
	}
}

static void version_and_duplicate_are_told(void **state)
{
	struct answered a;
	struct rdv_answer *r = answer_to(&a, 200, "Redrive-Handler-Version: 1.4.2\r\nRedrive-Duplicate: 1\r\n", "done");

	assert_true(kit_text_is(r->handler_version, "1.4.2"));
	assert_true(r->duplicate);
	assert_true(kit_text_is(r->answer, "done"));
	done(&a);
	assert_false(answer_to(&a, 200, "Redrive-Duplicate: 0\r\n", "")->duplicate);
	done(&a);
}

/* pitfall: only the framework's wrapper class is recorded */
static void a_problem_body_gives_class_root_class_code_text_and_stack(void **state)
{
	struct answered a;
	struct rdv_answer *r = answer_to(&a, 422,
					 "Content-Type: application/problem+json; "
					 "charset=utf-8\r\nRedrive-Error-Class: other\r\nRedrive-Error: words\r\n",
					 "{\"type\":\"https://e/x\",\"title\":\"OrderInvalid\",\"detail\":\"no such "
					 "item\",\"stack\":\"at a\\nat b\","
					 "\"root_class\":\"SqlError\",\"code\":\"E42\"}");

	assert_true(kit_text_is(r->failure.class, "OrderInvalid"));
	assert_true(kit_text_is(r->failure.root_class, "SqlError"));
	assert_true(kit_text_is(r->failure.code, "E42"));
	assert_true(kit_text_is(r->failure.text, "no such item"));
	assert_true(kit_text_is(r->failure.stack, "at a\nat b"));
	done(&a);
}

static void words_come_from_the_first_place_that_has_them(void **state)
{
	static const struct {
		const char *lines, *body, *class, *text, *code;
	} table[] = {
		{"Content-Type: application/problem+json\r\n", "{\"type\":\"https://e/x\",\"code\":7}", "https://e/x",
		 "{\"type\":\"https://e/x\",\"code\":7}", "7"},
		{"Content-Type: Application/Problem+JSON\r\nRedrive-Error: w\r\n", "{\"title\":\"T\"}", "T", "w", ""},
		{"Content-Type: application/problem+json\r\nRedrive-Error-Class: C\r\n",
		 "{\"type\":\"about:blank\",\"detail\":\"d\"}", "C", "d", ""},
		{"Content-Type: application/problem+json\r\nRedrive-Error-Class: C\r\n", "{\"title\":5,\"detail\":{}}",
		 "C", "{\"title\":5,\"detail\":{}}", ""},
		{"Content-Type: application/problem+json\r\n", "[1]", "", "[1]", ""},
		{"Content-Type: application/problem+json\r\n", "{\"title\":\"T\"", "", "{\"title\":\"T\"", ""},
		{"Content-Type: application/json\r\n", "{\"title\":\"T\"}", "", "{\"title\":\"T\"}", ""},
		{"Redrive-Error-Class: C\r\nRedrive-Error: words\r\n", "body", "C", "words", ""},
		{"Redrive-Error-Class: C\r\n", "body", "C", "body", ""},
		{"", "", "", "", ""},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct answered a;
		struct rdv_answer *r = answer_to(&a, 500, table[i].lines, table[i].body);

		if (!kit_text_is(r->failure.class, table[i].class) || !kit_text_is(r->failure.text, table[i].text) ||
		    !kit_text_is(r->failure.code, table[i].code))
			fail_msg("row %zu", i);
		done(&a);
	}
}

static void a_text_is_cut_at_1000_characters_and_bad_bytes_are_replaced(void **state)
{
	char body[4001];
	struct answered a;
	struct rdv_answer *r;

	for (size_t i = 0; i < 2000; i++)
		memcpy(body + 2 * i, "\xc3\xa9", 2);
	body[4000] = '\0';
	r = answer_to(&a, 500, "", body);
	assert_int_equal(r->failure.text.size, 2000);
	assert_int_equal(rdv_utf8_count(r->failure.text), 1000);
	assert_true(rdv_utf8_valid(r->failure.text));
	done(&a);
	r = answer_to(&a, 500,
		      "Redrive-Error-Class: a\xff"
		      "b\r\n",
		      "\xc3(");
	assert_true(kit_text_is(r->failure.class, "a\xef\xbf\xbd"
						  "b"));
	assert_true(kit_text_is(r->failure.text, "\xef\xbf\xbd("));
	done(&a);
}

static void deep_and_odd_problem_bodies_are_only_text(void **state)
{
	char *deep = malloc(60001);
	struct answered a;
	struct rdv_answer *r;

	memset(deep, '[', 60000);
	deep[60000] = '\0';
	r = answer_to(&a, 500, "Content-Type: application/problem+json\r\n", deep);
	assert_int_equal(r->failure.text.size, 1000);
	done(&a);
	free(deep);
	r = answer_to(&a, 500, "Content-Type: application/problem+json\r\n",
		      "{\"detail\":\"a\\u0000b\",\"title\":\"T\"}");
	assert_true(kit_text_is(r->failure.text, "a\xef\xbf\xbd"
						 "b"));
	done(&a);
}

static void a_new_status_line_forgets_earlier_headers(void **state)
{
	struct answered a;
	struct rdv_answer *r = answer_to(
		&a, 200, "HTTP/1.1 103 Early\r\nRedrive-Verdict: reject\r\nRetry-After: 5\r\n\r\nHTTP/1.1 200 OK\r\n",
		"");

	assert_false(r->explicit_verdict);
	assert_false(r->has_delay);
	done(&a);
}

static void values_survive_a_buffer_that_moves(void **state)
{
	char *lines = calloc(1, 40000);
	struct answered a;
	struct rdv_answer *r;

	strcpy(lines, "Redrive-Verdict: defer\r\nRedrive-Error: ");
	memset(lines + strlen(lines), 'e', 20000);
	strcat(lines, "\r\nRedrive-Error-Class: ");
	memset(lines + strlen(lines), 'c', 6000);
	strcat(lines, "\r\nRedrive-Handler-Version: 9\r\n");
	r = answer_to(&a, 500, lines, "");
	assert_int_equal(r->verdict, RDV_DEFER);
	assert_int_equal(r->failure.text.size, 1000);
	assert_int_equal(r->failure.class.size, RDV_ERROR_CLASS_BYTES);
	assert_true(kit_text_is(r->handler_version, "9"));
	done(&a);
	free(lines);
}

static void lines_that_are_no_headers_are_ignored(void **state)
{
	struct answered a;
	struct rdv_answer *r =
		answer_to(&a, 200, "\r\n\n:\r\nRedrive-Verdict\r\n: reject\r\nRedrive-Verdict reject\r\n", "");

	assert_false(r->explicit_verdict);
	done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(delays_are_understood_or_absent),
		cmocka_unit_test(a_retry_after_beside_a_delay_is_kept_for_the_target),
		cmocka_unit_test(an_absurd_retry_after_neither_overflows_nor_vanishes),
		cmocka_unit_test(a_verdict_header_overrides_and_an_unknown_one_is_ignored),
		cmocka_unit_test(version_and_duplicate_are_told),
		cmocka_unit_test(a_problem_body_gives_class_root_class_code_text_and_stack),
		cmocka_unit_test(words_come_from_the_first_place_that_has_them),
		cmocka_unit_test(a_text_is_cut_at_1000_characters_and_bad_bytes_are_replaced),
		cmocka_unit_test(deep_and_odd_problem_bodies_are_only_text),
		cmocka_unit_test(a_new_status_line_forgets_earlier_headers),
		cmocka_unit_test(values_survive_a_buffer_that_moves),
		cmocka_unit_test(lines_that_are_no_headers_are_ignored),
	};

	return cmocka_run_group_tests_name("handlers: http answers", tests, NULL, NULL);
}
