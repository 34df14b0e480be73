/* Tests of the settings: positions, every kind of error, layers, printing back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "app/explain.h"
#include "app/settings_table.h"

static enum redrive_status load(struct rdv_settings *s, struct rdv_findings *f, const char *text)
{
	memset(f, 0, sizeof *f);
	assert_int_equal(rdv_settings_init(s), REDRIVE_OK);
	struct rdv_slice slice = rdv_slice_text(text);
	return rdv_settings_load(s, "test.yaml", &slice, f);
}

#define ROUTE "routes:\n- name: a\n  source: { topic: t }\n  handler: { http: { url: 'http://127.0.0.1:1/' } }\n"

struct wrong {
	const char *text;
	unsigned line, column;
	const char *says;
};

static void mistakes_are_told_with_their_position(void **state)
{
	static const struct wrong table[] = {
		{"listn: 127.0.0.1:1\n", 1, 1, "did you mean 'listen'"},
		{"zzzzzz: 1\n", 1, 1, "allowed here are listen"},
		{"limits: { body: 5 apples }\n", 1, 17, "is not a size"},
		{"limits: { body: 0 }\n", 1, 17, "out of range"},
		{"limits: [1]\n", 1, 9, "must be a mapping"},
		{"limits: { body: 1MiB, body: 2MiB }\n", 1, 23, "stands twice"},
		{"listen: nowhere\n", 1, 9, "is not ADDR:PORT"},
		{"limits: {}\nlisten: 0.0.0.0:1\n", 2, 9, "make tokens"},
		{"limits: {}\nlisten: 0.0.0.0:1\n", 2, 9, "give security.tls a certificate"},
		{"security: { tokens_file: nowhere.yaml }\n", 1, 26, "cannot be read; 'redrive token add"},
		{"security: { tls: { cert_file: nowhere.pem } }\n", 1, 18, "needs both"},
		{"security: { tls: { cert_file: nowhere.pem, key_file: no.pem } }\n", 1, 31, "cannot be read"},
		{"security: { tls: { cert_file: nowhere.pem, key_file: no.pem } }\n", 1, 54, "cannot be read"},
		{"routes:\n- name: a\n  source: { tpoic: t }\n  handler: { lease: {} }\n", 3, 13,
		 "did you mean 'topic'"},
		{ROUTE "  attempts: 5\n", 5, 3, "it belongs under retry:"},
		{ROUTE "  timeout: 5s\n", 5, 3, "it belongs under handler.http: or handler.exec:"},
		{ROUTE "  retry: { order: key }\n", 5, 12, "it belongs under routes[]:"},
		{ROUTE "  ratio: 5%\n", 5, 3, "it belongs under breaker: or budget:"},
		{"defaults: { attempts: 5 }\n", 1, 13, "it belongs under retry:"},
		{"request_head: 64KiB\n", 1, 1, "it belongs under limits:"},
		{"limits: { listen: 127.0.0.1:1 }\n", 1, 11, "it belongs under no other key"},
		{"a: [\n", 2, 1, "not YAML"},
		{"x: &a 1\ny: *a\n", 2, 4, "aliases"},
		{"listen: ${REDRIVE_TEST_UNSET}\n", 1, 9, "is not set"},
		{"listen: $x\n", 1, 9, "stands alone"},
		{ROUTE "  concurrency: 0\n", 5, 16, "out of range"},
		{ROUTE "  retry: { attempts: 0 }\n", 5, 22,
		 "out of range: allowed are 1 to"}, /* pitfall: a limit of 0 sends everything to the dead-letter queue
						     */
		{ROUTE "  retry: { attempts: -1 }\n", 5, 22, "out of range"},
		{ROUTE "  retry: { base: 5 }\n", 5, 18, "is not a duration"},
		{ROUTE "  retry: { backof: fixed }\n", 5, 12, "did you mean 'backoff'"},
		{ROUTE "  retry: { backoff: expo }\n", 5, 21, "allowed are fixed, linear"},
		{ROUTE "  retry: { jitter: 150% }\n", 5, 20, "not allowed"},
		{ROUTE "  retry: { backoff: list }\n", 5, 10, "needs 'delays'"},
		{ROUTE "  breaker: of\n", 5, 12, "'breaker: of' must be on, off or a mapping"},
		{ROUTE "  budget: onn\n", 5, 11, "'budget: onn' must be on, off or a mapping"},
		{ROUTE "  breaker: [1]\n", 5, 12, "must be a mapping"},
		{ROUTE "  retry: { delays: [1s] }\n", 5, 10, "only goes with backoff: list"},
		{ROUTE "  after_dead: hold\n", 5, 15, "needs order: key"},
		{ROUTE "  order: keys\n", 5, 10, "did you mean 'key'"},
		{ROUTE "  rules: [ { when: { status: [99] }, then: ack } ]\n", 5, 31, "from 100 to 599"},
		{ROUTE "  rules: [ { when: { }, then: ack } ]\n", 5, 20, "at least one"},
		{ROUTE "  rules: [ { when: { text: '(' }, then: ack } ]\n", 5, 12, "rule 1"},
		{ROUTE "  rules: [ { when: { status: 409 }, then: eat } ]\n", 5, 43, "'then' must be"},
		{ROUTE "  rules: [ { when: { status: 409 } } ]\n", 5, 12, "lacks its 'then'"},
		{ROUTE "  dedupe: { ttl: 1h }\n", 5, 11, "needs 'by'"},
		{ROUTE "  dedupe: { by: colour }\n", 5, 17, "allowed are id, key"},
		{ROUTE "  index: [ orderId ]\n", 5, 12, "no json:/pointer"},
		{ROUTE "  dead: { topic: x }\n", 2, 3, "this route's messages are in Redrive itself"},
		{"routes:\n- name: A\n", 2, 9, "is not allowed"},
		{"routes:\n- name: a\n  source: { topic: 'x y' }\n", 3, 20, "is not allowed"},
		{"routes:\n- name: a\n  source: { topic: t, partitions: 0 }\n", 3, 35, "out of range"},
		{"routes:\n- name: a\n  source: { topic: t }\n", 2, 3, "exactly one handler"},
		{"routes:\n- name: a\n  source: { topic: t }\n  handler: { lease: {}, exec: { command: [x] } }\n", 4,
		 12, "several"},
		{"routes:\n- name: a\n  source: { topic: t }\n  handler: { http: { url: 'ftp://x/' } }\n", 4, 12,
		 "no http://"},
		{"routes:\n- name: a\n  source: { topic: t }\n  handler: { http: { url: 'http://x/', headers: { "
		 "Redrive-Key: a } } }\n",
		 4, 51, "cannot be configured"},
		{"routes:\n- name: a\n  source: { topic: t }\n  handler: { exec: { command: [] } }\n", 4, 31,
		 "names no program"},
		{ROUTE "- name: a\n  source: { topic: t }\n  handler: { lease: {} }\n", 5, 3, "stands twice"},
		{ROUTE "- name: b\n  source: { topic: t, partitions: 2 }\n  handler: { lease: {} }\n", 5, 3,
		 "they must agree"},
		{ROUTE "- name: b\n  source: { topic: t }\n  rate: 5/s\n  handler: { http: { url: "
		       "'http://127.0.0.1:1/x' } }\n",
		 5, 3, "differ in rate"},
		{"desk: { retention: { hot: 1ms } }\n", 1, 27, "out of range"},
		{"a: 1\n---\nb: 2\n", 1, 1, "unknown key"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_settings s;
		struct rdv_findings f;
		bool found = false;
		enum redrive_status status = load(&s, &f, table[i].text);
		for (size_t j = 0; j < f.count; j++)
			found = found ||
				(f.items[j].mark.line == table[i].line && f.items[j].mark.column == table[i].column &&
				 strstr(f.items[j].text, table[i].says) && !f.items[j].warning);
		if (!found || status != REDRIVE_REFUSED) {
			for (size_t j = 0; j < f.count; j++)
				print_error("  %u:%u: %s\n", f.items[j].mark.line, f.items[j].mark.column,
					    f.items[j].text);
			fail_msg("case %zu (%s): not told at %u:%u", i, table[i].says, table[i].line, table[i].column);
		}
		rdv_findings_done(&f);
		rdv_settings_done(&s);
	}
}

/* Whatever the key, and wherever it stands wrong. */
static void a_key_at_the_wrong_level_is_told_its_place(void **state)
{
	unsigned told = 0;

	(void)state;
	for (size_t i = 0; i < rdv_setting_count; i++) {
		const char *key = rdv_setting_table[i].key;
		struct rdv_settings s;
		struct rdv_findings f;
		char text[128];

		if (rdv_setting_find(RDV_SECTION_DEDUPE, key))
			continue;
		snprintf(text, sizeof text, "defaults: { dedupe: { %s: {} } }\n", key);
		assert_int_equal(load(&s, &f, text), REDRIVE_REFUSED);
		if (!strstr(f.items[0].text, "it belongs under "))
			fail_msg("%s: %s", key, f.items[0].text);
		told++;
		rdv_findings_done(&f);
		rdv_settings_done(&s);
	}
	assert_true(told > 80);
}

static void all_mistakes_are_told_at_once(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	assert_int_equal(
		load(&s, &f, ROUTE "  concurrency: 0\n  after_dead: hold\n  retry: { attempts: x, jitter: 200% }\n"),
		REDRIVE_REFUSED);
	assert_int_equal(f.errors, 4);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

/* What was refused where it stands is not said to be missing, too. */
static void a_mistake_is_told_once(void **state)
{
	static const char *const texts[] = {
		"routes:\n- name: A B\n  source: { topic: t }\n  handler: { lease: {} }\n",
		"routes:\n- name: [a]\n  source: { topic: t }\n  handler: { lease: {} }\n",
		"routes:\n- name: a\n  source: { topic: 'x y' }\n  handler: { lease: {} }\n",
		"routes:\n- name: a\n  source: t\n  handler: { lease: {} }\n",
		"routes:\n- name: a\n  source: { topic: t }\n  handler: lease\n",
		"routes:\n- name: a\n  source: { topic: t }\n  handler: { leese: {} }\n",
		"routes:\n- name: a\n  source: { topic: t }\n  handler: { http: { url: [] } }\n",
		"routes:\n- name: a\n  source: { topic: t }\n  handler: { exec: { command: [] } }\n",
		"defaults: { source: { topic: 'x y' } }\nroutes:\n- name: a\n  handler: { lease: {} }\n",
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct rdv_settings s;
		struct rdv_findings f;
		assert_int_equal(load(&s, &f, texts[i]), REDRIVE_REFUSED);
		if (f.count != 1)
			fail_msg("%s: %zu findings, the last: %s", texts[i], f.count, f.items[f.count - 1].text);
		rdv_findings_done(&f);
		rdv_settings_done(&s);
	}
}

static void a_program_that_cannot_run_is_warned_of(void **state)
{
	static const struct {
		const char *program, *says; /* NULL: no warning */
	} rows[] = {
		{"/nowhere/at/all", "does not exist"},
		{"./nowhere", "does not exist"},
		{"/dev/null", "is not executable"},
		{"/tmp", "is not executable"},
		{"rdv-no-such-program", "PATH"},
		{"/bin/sh", NULL},
		{"sh", NULL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_settings s;
		struct rdv_findings f;
		char text[256];
		snprintf(text, sizeof text,
			 "routes:\n- name: a\n  source: { topic: t }\n  handler: { exec: { command: [%s] } }\n",
			 rows[i].program);
		assert_int_equal(load(&s, &f, text), REDRIVE_OK);
		assert_int_equal(f.count, rows[i].says != NULL);
		if (rows[i].says) {
			assert_true(f.items[0].warning && strstr(f.items[0].text, rows[i].says));
			assert_int_equal(f.items[0].mark.line, 4);
		}
		rdv_findings_done(&f);
		rdv_settings_done(&s);
	}
}

static void a_public_address_needs_tokens_and_tls(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	assert_int_equal(load(&s, &f, "listen: 0.0.0.0:7337\n"), REDRIVE_REFUSED);
	assert_int_equal(f.errors, 2);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
	assert_int_equal(load(&s, &f, "listen: '[::1]:7337'\n"), REDRIVE_OK);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

static void defaults_are_those_of_the_reference(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	assert_int_equal(load(&s, &f, ROUTE), REDRIVE_OK);
	const struct rdv_route_settings *r = &s.routes[0];
	assert_int_equal(r->lane.retry.attempts, 16);
	assert_int_equal(r->lane.retry.backoff, RDV_BACKOFF_EXPONENTIAL);
	assert_int_equal(r->lane.retry.base_ms, 1000);
	assert_int_equal(rdv_retry_cap(&r->lane.retry), 3600000);
	assert_int_equal(r->lane.retry.min_ms, 100);
	assert_int_equal(r->lane.retry.max_age_ms, 7 * 86400000LL);
	assert_int_equal(r->lane.retry.crashes, 3);
	assert_int_equal(r->lane.retry.deferrals, 1000);
	assert_int_equal(r->target.concurrency, 64);
	assert_true(r->target.breaker.on && r->target.budget.on && r->route.storm_hold);
	assert_int_equal(r->source.partitions, 4);
	assert_int_equal(r->handler.http.timeout_ms, 30000);
	assert_true(r->target.rate == 0);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

static void a_route_overrides_its_preset_and_the_defaults(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	assert_int_equal(load(&s, &f,
			      "defaults: { preset: notice, concurrency: 7, retry: { cap: 2m } }\n" ROUTE
			      "- name: b\n  source: { topic: t }\n  handler: { lease: {} }\n  preset: payment\n  "
			      "retry: { attempts: 11 }\n"),
			 REDRIVE_OK);
	assert_int_equal(s.routes[0].lane.retry.attempts, 3);
	assert_int_equal(s.routes[0].lane.retry.base_ms, 10000);
	assert_int_equal(rdv_retry_cap(&s.routes[0].lane.retry), 120000);
	assert_int_equal(s.routes[0].target.concurrency, 7);
	assert_int_equal(s.routes[1].lane.retry.attempts, 11);
	assert_int_equal(s.routes[1].lane.retry.base_ms, 5000);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

static void the_environment_fills_texts(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	setenv("REDRIVE_TEST_PORT", "1234", 1);
	assert_int_equal(load(&s, &f,
			      "routes:\n- name: a\n  source: { topic: t }\n  handler: { http: { url: "
			      "'http://x:${REDRIVE_TEST_PORT}/$$' } }\n"),
			 REDRIVE_OK);
	assert_string_equal(s.routes[0].handler.http.url, "http://x:1234/$");
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

static void the_effective_configuration_reads_back_to_the_same(void **state)
{
	static const char *const texts[] = {
		ROUTE,
		"defaults: { preset: order, budget: off }\nlimits: { body: 2MiB, journal: 1GiB }\n" ROUTE
		"  order: key\n  after_dead: follow\n  rate: 500/s\n  breaker: { ratio: 60%, open: 2s }\n  storm: "
		"dead\n  poison: { family: 50, then: hold }\n"
		"  retry: { jitter: ±20%, window: 2h, min: 50ms }\n  dedupe: { by: json:/a/b, ttl: 1h }\n  index: [ "
		"json:/orderId ]\n"
		"  metadata: { tenant: header:X-Tenant, consumer_version: '1.4' }\n"
		"  rules:\n  - when: { status: [409, 410], text: 'it''s (a|b)$$' }\n    then: ack\n  - when: { "
		"timeout: true }\n    then: { defer: 30s }\n"
		"  - when: { class: X, exit: 3 }\n    then: { retry: { attempts: 3, backoff: list, delays: [1s, 5s] } "
		"}\n",
		"routes:\n- name: e\n  source: { topic: t }\n  concurrency: { adaptive: true, max: 9 }\n  handler: { "
		"exec: { command: [ './x', '--a \"b\"' ], env: { A: b } } }\n",
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct rdv_settings a, b;
		struct rdv_findings f;
		struct rdv_buffer first, second;
		rdv_buffer_init(&first, 0);
		rdv_buffer_init(&second, 0);
		assert_int_equal(load(&a, &f, texts[i]), REDRIVE_OK);
		rdv_settings_print(&a, &first);
		rdv_findings_done(&f);
		if (load(&b, &f, rdv_buffer_string(&first)) != REDRIVE_OK)
			fail_msg("%s\n%s", rdv_buffer_string(&first), f.count ? f.items[0].text : "");
		rdv_settings_print(&b, &second);
		assert_string_equal(rdv_buffer_string(&first), rdv_buffer_string(&second));
		rdv_findings_done(&f);
		rdv_settings_done(&a);
		rdv_settings_done(&b);
		rdv_buffer_done(&first);
		rdv_buffer_done(&second);
	}
}

/* A file with mistakes is printed as far as it was understood. */
static void half_of_a_certificate_is_printed_too(void **state)
{
	static const char *const keys[] = {"cert_file", "key_file"};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct rdv_settings s;
		struct rdv_findings f;
		struct rdv_buffer out;
		char text[80];
		snprintf(text, sizeof text, "security: { tls: { %s: nowhere.pem } }\n", keys[i]);
		rdv_buffer_init(&out, 0);
		assert_int_equal(load(&s, &f, text), REDRIVE_REFUSED);
		rdv_settings_print(&s, &out);
		assert_non_null(strstr(rdv_buffer_string(&out), keys[i]));
		rdv_findings_done(&f);
		rdv_settings_done(&s);
		rdv_buffer_done(&out);
	}
}

static void warnings_do_not_refuse(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	assert_int_equal(load(&s, &f, ROUTE "  retry: { window: 1m, attempts: 10 }\n  dedupe: { by: key }\n"),
			 REDRIVE_OK);
	assert_int_equal(f.errors, 0);
	assert_int_equal(f.count, 2);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

static void the_schedule_has_one_row_per_attempt(void **state)
{
	struct rdv_retry r;
	(void)state;
	rdv_retry_defaults(&r);
	r.attempts = 3;
	json_t *rows = rdv_explain_json(&r);
	char *text = json_dumps(rows, JSON_COMPACT | JSON_SORT_KEYS);
	assert_string_equal(text, "[{\"attempt\":1,\"earliest_ms\":0,\"latest_ms\":0},{\"attempt\":2,\"earliest_ms\":"
				  "1000,\"latest_ms\":1250},"
				  "{\"attempt\":3,\"earliest_ms\":2000,\"latest_ms\":2500}]");
	free(text);
	json_decref(rows);
}

static void routes_share_a_target_by_scheme_host_and_port(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	char a[256], b[256];
	(void)state;
	assert_int_equal(
		load(&s, &f,
		     ROUTE
		     "- name: b\n  source: { topic: t }\n  handler: { http: { url: 'HTTP://127.0.0.1:1/other' } }\n"),
		REDRIVE_OK);
	rdv_settings_target_name(&s, 0, a);
	rdv_settings_target_name(&s, 1, b);
	assert_string_equal(a, b);
	assert_string_equal(a, "http://127.0.0.1:1");
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mistakes_are_told_with_their_position),
		cmocka_unit_test(a_key_at_the_wrong_level_is_told_its_place),
		cmocka_unit_test(all_mistakes_are_told_at_once),
		cmocka_unit_test(a_mistake_is_told_once),
		cmocka_unit_test(a_program_that_cannot_run_is_warned_of),
		cmocka_unit_test(a_public_address_needs_tokens_and_tls),
		cmocka_unit_test(defaults_are_those_of_the_reference),
		cmocka_unit_test(a_route_overrides_its_preset_and_the_defaults),
		cmocka_unit_test(the_environment_fills_texts),
		cmocka_unit_test(the_effective_configuration_reads_back_to_the_same),
		cmocka_unit_test(half_of_a_certificate_is_printed_too),
		cmocka_unit_test(warnings_do_not_refuse),
		cmocka_unit_test(the_schedule_has_one_row_per_attempt),
		cmocka_unit_test(routes_share_a_target_by_scheme_host_and_port),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
