/* test_rules.c - what every answer means: the built-in tables row by row, the user's rules, explicit verdicts, delays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/rules.h"

static struct rdv_answer http(int status)
{
	return (struct rdv_answer){.http_status = status, .exit_code = -1};
}

static struct rdv_answer exited(int code)
{
	return (struct rdv_answer){.exit_code = code};
}

static struct rdv_answer ended(enum rdv_transport transport)
{
	return (struct rdv_answer){.transport = transport, .exit_code = -1};
}

static struct rdv_verdict judge(const struct rdv_rules *rules, struct rdv_answer answer)
{
	struct rdv_verdict v;

	rdv_rules_judge(rules, "orders", &answer, &v);
	return v;
}

/* The verdict that the table wants for an HTTP status. */
static void wanted_http(int status, enum rdv_verdict_kind *verdict, enum rdv_kind *kind)
{
	static const int wiring[] = {401, 403, 405, 407, 421}, infra[] = {429, 502, 503, 504}, app[] = {408, 425};

	*verdict = status / 100 == 2 ? RDV_ACK : status / 100 == 3 || status / 100 == 4 ? RDV_REJECT : RDV_RETRY;
	*kind = *verdict == RDV_ACK ? RDV_KIND_OK : *verdict == RDV_REJECT ? RDV_KIND_MSG : RDV_KIND_APP;
	for (size_t i = 0; i < 5; i++)
		if (status == wiring[i])
			*verdict = RDV_RETRY, *kind = RDV_KIND_WIRING;
	for (size_t i = 0; i < 4; i++)
		if (status == infra[i])
			*verdict = RDV_RETRY, *kind = RDV_KIND_INFRA;
	for (size_t i = 0; i < 2; i++)
		if (status == app[i])
			*verdict = RDV_RETRY, *kind = RDV_KIND_APP;
}

/* pitfall: handler answers 500: every status class, malformed ones included, has one documented verdict */
static void rules_http_table_decides_every_status(void **state)
{
	for (int status = 100; status <= 999; status++) {
		struct rdv_verdict v = judge(NULL, http(status));
		enum rdv_verdict_kind verdict;
		enum rdv_kind kind;
		char code[16];
		wanted_http(status, &verdict, &kind);
		assert_int_equal(v.kind, verdict);
		assert_int_equal(v.evidence, kind);
		assert_int_equal(v.cause, verdict == RDV_ACK ? RDV_CAUSE_NONE : RDV_CAUSE_FAILURE);
		assert_true((v.fingerprint != 0) == (verdict != RDV_ACK));
		if (verdict == RDV_ACK)
			continue;
		snprintf(code, sizeof code, "%d", status);
		assert_true(rdv_slice_is(v.failure.code, code));
		assert_int_equal(v.failure.class.size, 8); /* "HTTP 503" */
	}
}

static void rules_exec_table_decides_every_exit_code(void **state)
{
	for (int code = 0; code <= 255; code++) {
		struct rdv_verdict v = judge(NULL, exited(code));
		bool reject = code >= 64 && code <= 78 && code != 75;
		char text[16];
		assert_int_equal(v.kind, code == 0 ? RDV_ACK : reject ? RDV_REJECT : RDV_RETRY);
		assert_int_equal(v.evidence, code == 0    ? RDV_KIND_OK
					     : reject     ? RDV_KIND_MSG
					     : code == 75 ? RDV_KIND_INFRA
							  : RDV_KIND_APP);
		snprintf(text, sizeof text, "%d", code);
		assert_true(code == 0 || rdv_slice_is(v.failure.code, text));
	}
}

static void rules_calls_without_an_answer_retry_as_infra(void **state)
{
	static const struct {
		enum rdv_transport transport;
		enum rdv_cause cause;
		enum rdv_kind kind;
	} rows[] = {
		{RDV_TRANSPORT_REFUSED, RDV_CAUSE_FAILURE, RDV_KIND_INFRA},
		{RDV_TRANSPORT_RESET, RDV_CAUSE_FAILURE, RDV_KIND_INFRA},
		{RDV_TRANSPORT_DNS, RDV_CAUSE_FAILURE, RDV_KIND_INFRA},
		{RDV_TRANSPORT_TLS, RDV_CAUSE_FAILURE, RDV_KIND_INFRA},
		{RDV_TRANSPORT_TIMEOUT, RDV_CAUSE_TIMEOUT, RDV_KIND_INFRA},
		{RDV_TRANSPORT_SIGNAL, RDV_CAUSE_CRASH, RDV_KIND_INFRA},
		{RDV_TRANSPORT_OTHER, RDV_CAUSE_FAILURE, RDV_KIND_INFRA},
		/* pitfall: worker killed by a deploy: a shutdown is no failure and no evidence */
		{RDV_TRANSPORT_SHUTDOWN, RDV_CAUSE_SHUTDOWN, RDV_KIND_NONE},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_verdict v = judge(NULL, ended(rows[i].transport));
		assert_int_equal(v.kind, RDV_RETRY);
		assert_int_equal(v.cause, rows[i].cause);
		assert_int_equal(v.evidence, rows[i].kind);
		assert_true(v.failure.class.size > 0);
		assert_true((v.fingerprint != 0) == (rows[i].kind != RDV_KIND_NONE));
	}
}

static void rules_explicit_verdict_overrides_status(void **state)
{
	static const struct {
		int status;
		enum rdv_verdict_kind told;
		enum rdv_kind kind;
		enum rdv_cause cause;
	} rows[] = {
		{500, RDV_ACK, RDV_KIND_OK, RDV_CAUSE_NONE},
		{200, RDV_RETRY, RDV_KIND_APP, RDV_CAUSE_FAILURE},
		{503, RDV_RETRY, RDV_KIND_INFRA, RDV_CAUSE_FAILURE},
		{404, RDV_RETRY, RDV_KIND_APP, RDV_CAUSE_FAILURE},
		{401, RDV_RETRY, RDV_KIND_WIRING, RDV_CAUSE_FAILURE},
		/* pitfall: undecodable payload: the handler says reject, and the message goes to the dead letters at
		   once */
		{200, RDV_REJECT, RDV_KIND_MSG, RDV_CAUSE_FAILURE},
		{503, RDV_REJECT, RDV_KIND_MSG, RDV_CAUSE_FAILURE},
		{200, RDV_DEFER, RDV_KIND_OK, RDV_CAUSE_DEFERRAL},
		{400, RDV_DROP, RDV_KIND_OK, RDV_CAUSE_NONE},
		{0, RDV_RETRY, RDV_KIND_APP, RDV_CAUSE_FAILURE}, /* a lease or a callback */
		{0, RDV_ACK, RDV_KIND_OK, RDV_CAUSE_NONE},
		{0, RDV_REJECT, RDV_KIND_MSG, RDV_CAUSE_FAILURE},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_answer a = http(rows[i].status);
		struct rdv_verdict v;
		a.explicit_verdict = true;
		a.verdict = rows[i].told;
		v = judge(NULL, a);
		assert_int_equal(v.kind, rows[i].told);
		assert_int_equal(v.evidence, rows[i].kind);
		assert_int_equal(v.cause, rows[i].cause);
	}
}

static void rules_retry_after_delays_the_message_and_holds_the_target(void **state)
{
	static const struct {
		int status;
		int64_t delay;
		bool has;
		int64_t hold;
	} rows[] = {
		{429, 2000, true, 2000}, {503, 2000, true, 2000}, {503, 86400000, true, 300000},
		{500, 2000, true, 0},    {401, 2000, true, 0},    {503, -5, false, 0},
		{503, 0, true, 0},       {200, 2000, false, 0},   {404, 2000, false, 0},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_answer a = http(rows[i].status);
		struct rdv_verdict v;
		a.has_delay = a.delay_is_retry_after = true;
		a.delay_ms = rows[i].delay;
		v = judge(NULL, a);
		assert_int_equal(v.has_delay, rows[i].has);
		assert_int_equal(v.has_delay ? v.delay_ms : 0, rows[i].has ? rows[i].delay : 0);
		assert_int_equal(v.target_hold_ms, rows[i].hold);
	}
}

static void rules_redrive_delay_holds_no_target_but_retry_after_beside_it_does(void **state)
{
	struct rdv_answer a = http(503);
	struct rdv_verdict v;

	a.has_delay = true;
	a.delay_ms = 700;
	v = judge(NULL, a);
	assert_true(v.has_delay && v.delay_ms == 700 && v.target_hold_ms == 0);
	a.retry_after_ms = 9000;
	v = judge(NULL, a);
	assert_true(v.has_delay && v.delay_ms == 700 && v.target_hold_ms == 9000);
}

static struct rdv_rules *compile(const struct rdv_rule_spec *specs, size_t count)
{
	struct rdv_rules *rules;
	struct rdv_error error = {{0}};
	size_t bad;

	assert_int_equal(rdv_rules_compile(specs, count, &rules, &bad, &error), REDRIVE_OK);
	return rules;
}

static void rules_first_match_wins_before_the_table(void **state)
{
	const struct rdv_rule_spec specs[] = {
		{.statuses = {409}, .status_count = 1, .then = RDV_THEN_ACK},
		{.statuses = {500, 503},
		 .status_count = 2,
		 .text_pattern = "(?i)quota",
		 .then = RDV_THEN_DEFER,
		 .defer_ms = 30000},
		{.statuses = {503}, .status_count = 1, .then = RDV_THEN_REJECT},
		{.exits = {3}, .exit_count = 1, .then = RDV_THEN_DROP},
		{.class_pattern = "^Validation", .then = RDV_THEN_REJECT},
		{.timeout = true,
		 .then = RDV_THEN_RETRY,
		 .has_retry = true,
		 .retry = {.attempts = 3, .base_ms = 60000}},
		{.statuses = {404}, .status_count = 1, .then = RDV_THEN_RETRY},
	};
	struct rdv_rules *rules = compile(specs, sizeof specs / sizeof specs[0]);
	struct rdv_answer a;
	struct rdv_verdict v = judge(rules, http(409));

	assert_true(v.kind == RDV_ACK && v.rule == 1 && v.evidence == RDV_KIND_OK);
	a = http(503);
	a.failure.text = rdv_slice_text("over QUOTA today");
	v = judge(rules, a);
	assert_true(v.kind == RDV_DEFER && v.rule == 2 && v.has_delay && v.delay_ms == 30000);
	v = judge(rules, http(503));
	assert_true(v.kind == RDV_REJECT && v.rule == 3 && v.evidence == RDV_KIND_MSG);
	v = judge(rules, exited(3));
	assert_true(v.kind == RDV_DROP && v.rule == 4);
	a = http(500);
	a.failure.root_class = rdv_slice_text("ValidationError");
	v = judge(rules, a);
	assert_true(v.kind == RDV_REJECT && v.rule == 5);
	v = judge(rules, ended(RDV_TRANSPORT_TIMEOUT));
	assert_true(v.kind == RDV_RETRY && v.rule == 6 && v.cause == RDV_CAUSE_TIMEOUT && v.evidence == RDV_KIND_INFRA);
	assert_int_equal(rdv_rules_retry(rules, 6)->attempts, 3);
	assert_null(rdv_rules_retry(rules, 7));
	assert_null(rdv_rules_retry(rules, 0));
	assert_null(rdv_rules_retry(NULL, 1));
	v = judge(rules, http(404));
	assert_true(v.kind == RDV_RETRY && v.rule == 7 && v.evidence == RDV_KIND_APP);
	v = judge(rules, http(500));
	assert_true(v.kind == RDV_RETRY && v.rule == 0);
	v = judge(rules, ended(RDV_TRANSPORT_SHUTDOWN));
	assert_true(v.cause == RDV_CAUSE_SHUTDOWN && v.rule == 0);
	rdv_rules_unref(rules);
}

static void rules_all_conditions_of_a_rule_must_hold(void **state)
{
	const struct rdv_rule_spec spec = {.statuses = {500},
					   .status_count = 1,
					   .class_pattern = "Gone",
					   .text_pattern = "left",
					   .then = RDV_THEN_ACK};
	struct rdv_rules *rules = compile(&spec, 1);
	struct rdv_answer a = http(500);

	a.failure.class = rdv_slice_text("com.shop.GoneError");
	assert_int_equal(judge(rules, a).kind, RDV_RETRY);
	a.failure.text = rdv_slice_text("he left");
	assert_int_equal(judge(rules, a).kind, RDV_ACK);
	a.http_status = 502;
	assert_int_equal(judge(rules, a).kind, RDV_RETRY);
	rdv_rules_unref(rules);
}

static void rules_explicit_retry_of_a_lease_still_meets_rules_by_class(void **state)
{
	const struct rdv_rule_spec spec = {.class_pattern = "Validation", .then = RDV_THEN_REJECT};
	struct rdv_rules *rules = compile(&spec, 1);
	struct rdv_answer a = {.exit_code = -1, .explicit_verdict = true, .verdict = RDV_RETRY};

	a.failure.class = rdv_slice_text("ValidationError");
	assert_int_equal(judge(rules, a).kind, RDV_REJECT);
	a.verdict = RDV_ACK; /* final */
	assert_int_equal(judge(rules, a).kind, RDV_ACK);
	a.verdict = RDV_RETRY;
	a.http_status = 500; /* Redrive-Verdict is final */
	assert_int_equal(judge(rules, a).kind, RDV_RETRY);
	rdv_rules_unref(rules);
}

static void rules_hostile_text_costs_bounded_time_and_does_not_match(void **state)
{
	const struct rdv_rule_spec specs[] = {
		{.text_pattern = "^(a+)+$", .then = RDV_THEN_ACK},
		{.text_pattern = "ends$", .then = RDV_THEN_DROP},
	};
	struct rdv_rules *rules = compile(specs, 2);
	static char text[100000];
	struct rdv_answer a = http(500);

	memset(text, 'a', sizeof text);
	text[3000] = '!';
	a.failure.text = rdv_slice(text, sizeof text);
	for (int i = 0; i < 100; i++)
		assert_int_equal(judge(rules, a).kind, RDV_RETRY);
	a.failure.text = rdv_slice("\xff\xfe\0 how it ends", 15);
	assert_int_equal(judge(rules, a).kind, RDV_DROP);
	rdv_rules_unref(rules);
}

static void rules_mistakes_name_the_rule(void **state)
{
	static char longest[RDV_RULE_PATTERN_MAX + 2];
	const struct rdv_rule_spec good = {.statuses = {409}, .status_count = 1};
	const struct rdv_rule_spec mistakes[] = {
		{.text_pattern = "(unclosed"},
		{.class_pattern = "["},
		{.statuses = {600}, .status_count = 1},
		{.exits = {256}, .exit_count = 1},
		{.exits = {-1}, .exit_count = 1},
		{.then = RDV_THEN_ACK},
		{.text_pattern = longest},
		{.status_count = 33},
		{.text_pattern = "\\C"},
	};

	memset(longest, 'a', sizeof longest - 1);
	for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
		struct rdv_rule_spec specs[2] = {good, mistakes[i]};
		struct rdv_rules *rules;
		struct rdv_error error = {{0}};
		size_t bad = 0;
		assert_int_equal(rdv_rules_compile(specs, 2, &rules, &bad, &error), REDRIVE_INVALID);
		assert_int_equal(bad, 2);
		assert_null(rules);
		assert_true(error.text[0] != '\0');
	}
}

static void rules_empty_set_and_references_work(void **state)
{
	struct rdv_rules *rules = compile(NULL, 0);

	assert_ptr_equal(rdv_rules_ref(rules), rules);
	rdv_rules_unref(rules);
	assert_int_equal(judge(rules, http(500)).kind, RDV_RETRY);
	rdv_rules_unref(rules);
	assert_null(rdv_rules_ref(NULL));
	rdv_rules_unref(NULL);
}

static void rules_what_the_handler_told_is_kept(void **state)
{
	struct rdv_answer a = http(500);
	struct rdv_verdict v;

	a.failure.class = rdv_slice_text("TimeoutException");
	a.failure.code = rdv_slice_text("E42");
	a.failure.text = rdv_slice_text("slow");
	a.handler_version = rdv_slice_text("1.4.2");
	a.took_ms = 30;
	a.duplicate = true;
	v = judge(NULL, a);
	assert_true(rdv_slice_is(v.failure.class, "TimeoutException"));
	assert_true(rdv_slice_is(v.failure.code, "E42"));
	assert_true(rdv_slice_is(v.failure.text, "slow"));
	assert_true(rdv_slice_is(v.handler_version, "1.4.2"));
	assert_true(v.took_ms == 30 && v.duplicate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_http_table_decides_every_status),
		cmocka_unit_test(rules_exec_table_decides_every_exit_code),
		cmocka_unit_test(rules_calls_without_an_answer_retry_as_infra),
		cmocka_unit_test(rules_explicit_verdict_overrides_status),
		cmocka_unit_test(rules_retry_after_delays_the_message_and_holds_the_target),
		cmocka_unit_test(rules_redrive_delay_holds_no_target_but_retry_after_beside_it_does),
		cmocka_unit_test(rules_first_match_wins_before_the_table),
		cmocka_unit_test(rules_all_conditions_of_a_rule_must_hold),
		cmocka_unit_test(rules_explicit_retry_of_a_lease_still_meets_rules_by_class),
		cmocka_unit_test(rules_hostile_text_costs_bounded_time_and_does_not_match),
		cmocka_unit_test(rules_mistakes_name_the_rule),
		cmocka_unit_test(rules_empty_set_and_references_work),
		cmocka_unit_test(rules_what_the_handler_told_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
