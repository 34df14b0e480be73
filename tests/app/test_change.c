/* test_change.c - what a reload may change, for every row of the settings table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "app/settings_table.h"
#include "base/quantity.h"

/* Values for rows of which the kind alone does not tell one: two that differ. */
static const struct {
	enum rdv_section section;
	const char *key, *values[2];
} samples[] = {
	{RDV_SECTION_ROOT, "listen", {"127.0.0.1:1", "127.0.0.1:2"}},
	{RDV_SECTION_SECURITY, "hosts", {"[a]", "[b]"}},
	{RDV_SECTION_ROUTE, "name", {"r", "s"}},
	{RDV_SECTION_ROUTE, "importance", {"normal", "high"}},
	{RDV_SECTION_ROUTE, "concurrency", {"3", "4"}},
	{RDV_SECTION_ROUTE, "rules", {"[]", "[ { when: { status: 409 }, then: ack } ]"}},
	{RDV_SECTION_ROUTE, "breaker", {"on", "off"}},
	{RDV_SECTION_ROUTE, "storm", {"hold", "dead"}},
	{RDV_SECTION_ROUTE, "budget", {"on", "off"}},
	{RDV_SECTION_ROUTE, "index", {"[]", "[ json:/a ]"}},
	{RDV_SECTION_SOURCE, "kafka", {"{ group: g }", NULL}},
	{RDV_SECTION_KAFKA, "brokers", {"a:1", "b:1"}},
	{RDV_SECTION_KAFKA, "topics", {"[a]", "[b]"}},
	{RDV_SECTION_KAFKA, "group", {"a", "b"}},
	{RDV_SECTION_KAFKA, "instance", {"a", "b"}},
	{RDV_SECTION_KAFKA, "secret_file", {"/proc/version", "/proc/cmdline"}},
	{RDV_SECTION_KAFKA, "settings", {"{ client.id: a }", "{ client.id: b }"}},
	{RDV_SECTION_DEAD, "topic", {"a", "b"}},
	{RDV_SECTION_HANDLER, "http", {"{ url: 'http://a/' }", NULL}},
	{RDV_SECTION_HANDLER, "exec", {"{ command: [sh] }", NULL}},
	{RDV_SECTION_HANDLER, "lease", {"{}", NULL}},
	{RDV_SECTION_HTTP, "headers", {"{ A: b }", "{ A: c }"}},
	{RDV_SECTION_EXEC, "command", {"[sh]", "[ls]"}},
	{RDV_SECTION_EXEC, "env", {"{ A: b }", "{ A: c }"}},
	{RDV_SECTION_RETRY, "delays", {"[1s]", "[2s]"}},
	{RDV_SECTION_RETRY, "jitter", {"none", "full"}},
	{RDV_SECTION_POISON, "then", {"alert", "hold"}},
	{RDV_SECTION_DEDUPE, "by", {"id", "key"}},
	{RDV_SECTION_DEDUPE, "store", {"local", "local"}},
};

/* In range and not the same for i = 0 and 1; false: the row's kind has no value of its own. */
static bool value_of(const struct rdv_setting *row, int i, char out[64])
{
	char text[RDV_QUANTITY_TEXT];

	switch (row->kind) {
	case RDV_SETTING_TEXT:
	case RDV_SETTING_PATH:
	case RDV_SETTING_NAME:
		snprintf(out, 64, "'%c'", 'a' + i);
		return true;
	case RDV_SETTING_DURATION:
		rdv_duration_format((int64_t)row->max - i, text);
		break;
	case RDV_SETTING_SIZE:
		rdv_size_format((uint64_t)row->min + 4096 * (uint64_t)(1 + i), text);
		break;
	case RDV_SETTING_RATE:
		rdv_rate_format(5 + i, text);
		break;
	case RDV_SETTING_RATIO:
		rdv_ratio_format(0.5 + i / 10.0, text);
		break;
	case RDV_SETTING_BOOL:
		snprintf(out, 64, "%s", i ? "true" : "false");
		return true;
	case RDV_SETTING_CHOICE:
		snprintf(out, 64, "%s", row->choices[i + 1] ? row->choices[i + 1] : row->choices[0]);
		return true;
	case RDV_SETTING_NUMBER:
	case RDV_SETTING_INT32:
	case RDV_SETTING_INT64:
	case RDV_SETTING_COUNT64:
		snprintf(out, 64, "%.0f", row->min + 1 + i);
		return true;
	default:
		return false;
	}
	snprintf(out, 64, "%s", text);
	return true;
}

static bool sample_of(const struct rdv_setting *row, int i, char out[64])
{
	for (size_t k = 0; k < sizeof samples / sizeof samples[0]; k++) {
		if (samples[k].section != row->section || strcmp(samples[k].key, row->key) != 0)
			continue;
		snprintf(out, 64, "%s", samples[k].values[i] ? samples[k].values[i] : "");
		return true;
	}
	return value_of(row, i, out);
}

/* A configuration with this row's value at its place, and as little else as that takes. */
static void make_text(const struct rdv_setting *row, const char *value, char out[1024])
{
	const char *path = rdv_section_paths[row->section],
		   *in_route = strncmp(path, "routes[]", 8) == 0 ? path + 8 : NULL;
	const char *at = in_route ? in_route : path;
	int used = 0, depth = in_route ? 1 : 0;

	if (in_route)
		used += snprintf(out, 1024, "routes:\n-\n  %s", strcmp(row->key, "name") ? "name: r\n" : "");
	for (at += *at == '.'; *at; at += at[strcspn(at, ".")] == '.' ? strcspn(at, ".") + 1 : strcspn(at, "."))
		used += snprintf(out + used, 1024 - (size_t)used, "%*s%.*s:\n", 2 * depth++, "", (int)strcspn(at, "."),
				 at);
	if (value[0])
		snprintf(out + used, 1024 - (size_t)used, "%*s%s: %s\n", 2 * depth, "", row->key, value);
	else
		snprintf(out + used, 1024 - (size_t)used, "%*s{}\n", 2 * depth, "");
}

/* What else is wrong with it does not matter here. */
static void load(struct rdv_settings *s, const char *text)
{
	struct rdv_findings f = {0};
	struct rdv_slice slice = rdv_slice_text(text);

	assert_int_equal(rdv_settings_init(s), REDRIVE_OK);
	(void)!rdv_settings_load(s, "test.yaml", &slice, &f);
	for (size_t i = 0; i < f.count; i++)
		if (strstr(f.items[i].text, "unknown key") || strstr(f.items[i].text, "not YAML") ||
		    strstr(f.items[i].text, "out of range"))
			fail_msg("%s: %s", text, f.items[i].text);
	rdv_findings_done(&f);
}

/* What the change is refused for, one line each with its position; empty: it is not. */
static const char *change(const char *from, const char *to)
{
	static char text[4096];
	struct rdv_settings a, b;
	struct rdv_findings f = {0};
	size_t used = 0;

	load(&a, from);
	load(&b, to);
	rdv_settings_check_change(&a, &b, &f);
	text[0] = '\0';
	for (size_t i = 0; i < f.count; i++)
		used += (size_t)snprintf(text + used, sizeof text - used, "%u:%u: %s\n", f.items[i].mark.line,
					 f.items[i].mark.column, f.items[i].text);
	assert_int_equal(f.errors, f.count);
	rdv_findings_done(&f);
	rdv_settings_done(&a);
	rdv_settings_done(&b);
	return text;
}

static void every_key_is_live_or_refused_by_its_name(void **state)
{
	unsigned live = 0, fixed = 0;

	(void)state;
	for (size_t i = 0; i < rdv_setting_count; i++) {
		const struct rdv_setting *row = &rdv_setting_table[i];
		char values[2][64], texts[2][1024], name[128];
		const char *said;

		assert_in_range(row->reload, RDV_RELOAD_LIVE, RDV_RELOAD_COUNT - 1);
		if (row->reload == RDV_RELOAD_KEYS)
			continue;
		snprintf(name, sizeof name, "%s%s%s", rdv_section_paths[row->section],
			 rdv_section_paths[row->section][0] ? "." : "", row->key);
		for (int k = 0; k < 2; k++) {
			if (!sample_of(row, k, values[k]))
				fail_msg("%s: this test needs two values that differ", name);
			make_text(row, values[k], texts[k]);
		}
		said = change(texts[0], texts[1]);
		if (row->reload == RDV_RELOAD_LIVE) {
			live++;
			if (said[0])
				fail_msg("%s is live, but: %s", name, said);
			continue;
		}
		fixed++;
		if (!strstr(said, name) || !strstr(said, "restart"))
			fail_msg("%s takes a restart, but: %s", name, said);
		assert_string_equal(change(texts[0], texts[0]), "");
	}
	assert_true(live > 60 && fixed >= 14);
}

/* The contract's list. */
static void what_is_fixed_is_data_listen_security_source_order_and_the_handlers_kind(void **state)
{
	static const char *const wanted[] = {"listen",
					     "data",
					     "limits.request_head",
					     "security.tokens_file",
					     "security.behind_tls_proxy",
					     "security.hosts",
					     "security.audit_key_file",
					     "security.tls.cert_file",
					     "security.tls.key_file",
					     "routes[].order",
					     "routes[].dead.topic",
					     "routes[].dead.format",
					     "routes[].source.topic",
					     "routes[].source.partitions",
					     "routes[].source.kafka",
					     "routes[].source.kafka.brokers",
					     "routes[].source.kafka.topics",
					     "routes[].source.kafka.group",
					     "routes[].source.kafka.from",
					     "routes[].source.kafka.instance",
					     "routes[].source.kafka.secret_file",
					     "routes[].source.kafka.create_topics",
					     "routes[].source.kafka.replication",
					     "routes[].source.kafka.settings",
					     "routes[].handler.http",
					     "routes[].handler.exec",
					     "routes[].handler.lease"};
	size_t found = 0;

	(void)state;
	for (size_t i = 0; i < rdv_setting_count; i++) {
		const struct rdv_setting *row = &rdv_setting_table[i];
		char name[128];
		size_t k = 0;

		if (row->reload != RDV_RELOAD_FIXED && row->reload != RDV_RELOAD_KIND)
			continue;
		snprintf(name, sizeof name, "%s%s%s", rdv_section_paths[row->section],
			 rdv_section_paths[row->section][0] ? "." : "", row->key);
		while (k < sizeof wanted / sizeof wanted[0] && strcmp(wanted[k], name) != 0)
			k++;
		if (k == sizeof wanted / sizeof wanted[0])
			fail_msg("%s takes a restart", name);
		found++;
	}
	assert_int_equal(found, sizeof wanted / sizeof wanted[0]);
}

static void routes_that_come_and_go_are_no_change_of_a_fixed_key(void **state)
{
	static const char
		one[] = "routes:\n- name: a\n  source: { topic: t }\n  order: key\n  handler: { lease: {} }\n",
		other[] = "routes:\n- name: b\n  source: { topic: u }\n  handler: { exec: { command: [sh] } }\n";

	(void)state;
	assert_string_equal(change(one, other), "");
	assert_string_equal(change(one, ""), "");
	assert_string_equal(change("", one), "");
	assert_string_equal(change(one, "routes:\n- name: a\n  source: { topic: t }\n  order: key\n"
					"  handler: { lease: { lease_for: 1s } }\n"),
			    "");
	assert_non_null(strstr(change(one, "routes:\n- name: a\n  source: { topic: t }\n  order: key\n"
					   "  handler: { exec: { command: [sh] } }\n"),
			       "route 'a'"));
}

static void every_reason_against_a_change_is_told_with_its_position(void **state)
{
	static const char
		from[] = "routes:\n"
			 "- { name: a, source: { topic: t }, handler: { lease: {} } }\n"
			 "- { name: b, source: { topic: u }, handler: { lease: {} } }\n",
		to[] = "limits: { request_head: 64KiB }\n"
		       "routes:\n"
		       "- { name: a, source: { topic: t, partitions: 7 }, handler: { lease: {} }, order: key }\n"
		       "- { name: b, source: { topic: v }, handler: { lease: {} } }\n";

	(void)state;
	assert_string_equal(
		change(from, to),
		"1:25: 'limits.request_head' cannot change while running: it takes a restart\n"
		"3:3: route 'a': 'routes[].source.partitions' cannot change while running: it takes a restart\n"
		"3:3: route 'a': 'routes[].order' cannot change while running: it takes a restart\n"
		"4:3: route 'b': 'routes[].source.topic' cannot change while running: it takes a restart\n");
}

static void the_reference_says_what_takes_a_restart(void **state)
{
	struct rdv_buffer text;

	(void)state;
	rdv_buffer_init(&text, 0);
	rdv_settings_reference(&text);
	assert_non_null(strstr(rdv_buffer_string(&text), "| key | value | default | change | meaning |"));
	assert_non_null(strstr(rdv_buffer_string(&text), "| `listen` | text | 127.0.0.1:7337 | restart |"));
	assert_non_null(strstr(rdv_buffer_string(&text), "| `ids` | number, 0 to 1000000000 | 10000000 | reload |"));
	rdv_buffer_done(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_is_live_or_refused_by_its_name),
		cmocka_unit_test(what_is_fixed_is_data_listen_security_source_order_and_the_handlers_kind),
		cmocka_unit_test(routes_that_come_and_go_are_no_change_of_a_fixed_key),
		cmocka_unit_test(every_reason_against_a_change_is_told_with_its_position),
		cmocka_unit_test(the_reference_says_what_takes_a_restart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
