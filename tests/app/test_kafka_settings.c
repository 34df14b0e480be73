/* Tests of `source: { kafka: ... }`: mistakes with their positions, secrets, what routes must not share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "app/kafka_maker.h"

static enum redrive_status load(struct rdv_settings *s, struct rdv_findings *f, const char *text)
{
	memset(f, 0, sizeof *f);
	assert_int_equal(rdv_settings_init(s), REDRIVE_OK);
	struct rdv_slice slice = rdv_slice_text(text);
	return rdv_settings_load(s, "test.yaml", &slice, f);
}

/* The fifth line is the test's, inside of the mapping. */
#define ROUTE                                                                                                          \
	"routes:\n- name: a\n  handler: { lease: {} }\n  source: { kafka: { brokers: 'k:1', topics: [t], group: g,\n"
#define END " } }\n"
#define OTHER "- name: b\n  handler: { lease: {} }\n  source: { kafka: { "

#ifdef REDRIVE_KAFKA
static void mistakes_are_told_with_their_position(void **state)
{
	static const struct {
		const char *text;
		unsigned line, column;
		const char *says;
	} table[] = {
		{"routes:\n- name: a\n  source: { kafka: {} }\n", 3, 20, "needs 'brokers', like brokers:"},
		{"routes:\n- name: a\n  source: { kafka: {} }\n", 3, 20, "needs 'topics', like topics:"},
		{"routes:\n- name: a\n  source: { kafka: {} }\n", 3, 20, "needs 'group', like group:"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: [a] } }\n", 3, 31, "must be one value"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: 'a:1,,b:1' } }\n", 3, 31, "'' is no address"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: 'a:0' } }\n", 3, 31, "'a:0' is no address"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: 'a:70000' } }\n", 3, 31, "is no address"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: 'a b:1' } }\n", 3, 31, "is no address"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: '::1' } }\n", 3, 31, "host:port, more of them"},
		{"routes:\n- name: a\n  source: { kafka: { topics: t } }\n", 3, 30, "must be a list of"},
		{"routes:\n- name: a\n  source: { kafka: { topics: [] } }\n", 3, 30, "is empty"},
		{"routes:\n- name: a\n  source: { kafka: { topics: ['a b'] } }\n", 3, 31, "is no topic: use"},
		{"routes:\n- name: a\n  source: { kafka: { topics: [t, '^(a'] } }\n", 3, 34, "no regular expression"},
		{"routes:\n- name: a\n  source: { kafka: { group: '' } }\n", 3, 29, "use 1 to 249 printable"},
		{"routes:\n- name: a\n  source: { kafka: { topcis: [t] } }\n", 3, 22, "did you mean 'topics'"},
		{"routes:\n- name: a\n  source: { topic: t, kafka: { group: g } }\n", 3, 20,
		 "does not go with 'kafka'"},
		{"routes:\n- name: a\n  source: { partitions: 2, kafka: { group: g } }\n", 3, 25, "does not go with"},
		{ROUTE "from: begin" END, 5, 7, "allowed are earliest, latest, committed"},
		{ROUTE "instance: 'a/b'" END, 5, 11, "use 1 to 249 of A-Z"},
		{ROUTE "secret_file: nowhere" END, 5, 14, "'nowhere': No such file"},
		{ROUTE "create_topics: 1" END, 5, 16, "is not true or false"},
		{ROUTE "replication: 0" END, 5, 14, "out of range: allowed are 1 to 32767"},
		{ROUTE "settings: [a]" END, 5, 11, "must be a mapping"},
		{ROUTE "settings: { client.id: [a] }" END, 5, 24, "must be one value"},
		{ROUTE "settings: { sasl.password_file: nowhere }" END, 5, 33, "'nowhere': No such file"},
		{ROUTE "settings: { sasl.password: $x }" END, 5, 28, "stands alone"},
		{ROUTE "settings: { group.id: x }" END, 5, 13, "group.id"},
		{ROUTE "settings: { fetch.wait: 1 }" END, 5, 13, "fetch.wait"},
		{ROUTE "settings: { fetch.min.bytes: x }" END, 5, 13, "fetch.min.bytes"},
		{ROUTE "settings: { client.id: a, client.id: b }" END, 5, 27, "set twice"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: 'k:1', topics: ['^.*'], group: g } }\n", 3, 20,
		 "takes in private topics of Redrive"},
		{"routes:\n- name: a\n  source: { kafka: { brokers: 'k:1', topics: "
		 "[redrive.b.0123456789abcdef.journal], "
		 "group: g } }\n",
		 3, 20, "takes in private topics of Redrive"},
		{ROUTE END OTHER "brokers: 'k:1', topics: [u, t], group: g } }\n", 8, 20, "in the same group 'g'"},
		{ROUTE END OTHER "brokers: 'k:2', topics: [t], group: h } }\n", 8, 20, "'t' has two sources"},
		{ROUTE END "- name: b\n  source: { topic: t }\n", 6, 3, "'t' has two sources"},
		{ROUTE "instance: i" END OTHER "brokers: 'k:1', topics: [u], group: g, instance: i } }\n", 8, 20,
		 "the same instance 'i'"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_settings s;
		struct rdv_findings f;
		bool found = false;
		assert_int_equal(load(&s, &f, table[i].text), REDRIVE_REFUSED);
		for (size_t j = 0; j < f.count; j++)
			found = found ||
				(f.items[j].mark.line == table[i].line && f.items[j].mark.column == table[i].column &&
				 strstr(f.items[j].text, table[i].says) && !f.items[j].warning);
		for (size_t j = 0; j < f.count && !found; j++)
			print_error("  %u:%u: %s\n", f.items[j].mark.line, f.items[j].mark.column, f.items[j].text);
		if (!found)
			fail_msg("case %zu (%s): not told at %u:%u", i, table[i].says, table[i].line, table[i].column);
		rdv_findings_done(&f);
		rdv_settings_done(&s);
	}
}

static void what_is_refused_is_told_once(void **state)
{
	static const char *const texts[] = {
		"routes:\n- name: a\n  handler: { lease: {} }\n  source: { kafka: { brokers: '', topics: [t], group: g "
		"} }\n",
		"routes:\n- name: a\n  handler: { lease: {} }\n  source: { kafka: { brokers: b, topics: x, group: g } "
		"}\n",
		"routes:\n- name: a\n  handler: { lease: {} }\n  source: { kafka: { brokers: b, topics: [t], group: [] "
		"} "
		"}\n",
		"defaults: { source: { kafka: { settings: { a_file: nowhere } } } }\n" ROUTE END,
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
#else
static void a_build_without_the_driver_says_so(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	(void)state;
	assert_int_equal(load(&s, &f, ROUTE END), REDRIVE_REFUSED);
	assert_int_equal(f.errors, 1);
	assert_int_equal(f.items[0].mark.line, 4);
	assert_non_null(strstr(f.items[0].text, "without librdkafka"));
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}
#endif

static void make_file(char path[64], const char *content)
{
	strcpy(path, "/tmp/test_kafka_settings.XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
	close(fd);
}

static void defaults_hold_for_all_and_a_route_replaces_the_kind(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	struct rdv_kafka_options o;
	(void)state;
	(void)!load(
		&s, &f,
		"defaults: { source: { kafka: { brokers: 'k:1', group: g, settings: { client.id: c } } }, handler: { "
		"exec: { command: [sh], timeout: 7s } } }\n"
		"routes:\n- name: a\n  source: { kafka: { topics: [t, '^u'], from: latest, replication: 3 } }\n"
		"- name: b\n  source: { topic: v }\n");
	assert_true(s.routes[0].source.kafka.given);
	assert_false(s.routes[1].source.kafka.given);
	assert_string_equal(s.routes[1].source.topic, "v");
	rdv_kafka_options_of(&s.routes[0], &o);
	assert_string_equal(o.route, "a");
	assert_string_equal(o.brokers, "k:1");
	assert_int_equal(o.topic_count, 2);
	assert_string_equal(o.topics[1], "^u");
	assert_int_equal(o.from, RDV_KAFKA_LATEST);
	assert_int_equal(o.replication, 3);
	assert_true(o.create_topics);
	assert_null(o.instance);
	assert_int_equal(o.secret.size, 0);
	assert_int_equal(o.handler_timeout_ms, 7000);
	assert_int_equal(o.setting_count, 1);
	assert_string_equal(o.settings[0].name, "client.id");
	rdv_findings_done(&f);
	rdv_settings_done(&s);
}

static void secrets_reach_the_driver_and_no_print(void **state)
{
	struct rdv_settings s, again;
	struct rdv_findings f;
	struct rdv_buffer text, second;
	char secret[64], password[64], yaml[600];
	(void)state;
	make_file(secret, "0123456789abcdef\n");
	make_file(password, "from-a-file\r\n");
	setenv("REDRIVE_TEST_PASSWORD", "from-a-variable", 1);
	snprintf(yaml, sizeof yaml,
		 ROUTE
		 "secret_file: %s, settings: { sasl.password_file: %s, ssl.key.password: '${REDRIVE_TEST_PASSWORD}', "
		 "sasl.username: '${REDRIVE_TEST_PASSWORD}', ssl.keystore.password: plain-text }" END,
		 secret, password);
	rdv_buffer_init(&text, 0);
	rdv_buffer_init(&second, 0);
	(void)!load(&s, &f, yaml);
	const struct rdv_kafka_source_settings *k = &s.routes[0].source.kafka;
	assert_int_equal(k->secret.size, 16);
	assert_int_equal(k->setting_count, 4);
	assert_string_equal(k->settings[0].name, "sasl.password");
	assert_string_equal(k->settings[0].value, "from-a-file");
	assert_string_equal(k->settings[1].value, "from-a-variable");
	assert_string_equal(k->settings[2].value, "from-a-variable");
	assert_string_equal(k->settings[3].value, "plain-text");
	unsigned warnings = 0;
	for (size_t i = 0; i < f.count; i++)
		warnings += f.items[i].warning && strstr(f.items[i].text, "'ssl.keystore.password' stands in the file");
	assert_int_equal(warnings, 1);
	rdv_settings_print(&s, &text);
	assert_null(strstr(rdv_buffer_string(&text), "from-a-file"));
	assert_null(strstr(rdv_buffer_string(&text), "plain-text"));
	assert_null(strstr(rdv_buffer_string(&text), "0123456789abcdef"));
	assert_null(strstr(rdv_buffer_string(&text), "\"ssl.key.password\": \"from-a-variable\""));
	assert_non_null(strstr(rdv_buffer_string(&text), "\"ssl.key.password\": \"${REDRIVE_TEST_PASSWORD}\""));
	assert_non_null(strstr(rdv_buffer_string(&text), "\"ssl.keystore.password\": \"(hidden)\""));
	rdv_findings_done(&f);
	(void)!load(&again, &f, rdv_buffer_string(&text));
	rdv_settings_print(&again, &second);
	assert_string_equal(rdv_buffer_string(&text), rdv_buffer_string(&second));
	rdv_findings_done(&f);
	rdv_settings_done(&s);
	rdv_settings_done(&again);
	rdv_buffer_done(&text);
	rdv_buffer_done(&second);
	unlink(secret);
	unlink(password);
	unsetenv("REDRIVE_TEST_PASSWORD");
}

/* What is not printed cannot be told apart by it. */
static void another_secret_is_a_change_that_takes_a_restart(void **state)
{
	static const char yaml[] =
		ROUTE "settings: { sasl.username: u, sasl.password: '${REDRIVE_TEST_PASSWORD}' }" END;
	struct rdv_settings a, b, c;
	struct rdv_findings f, change = {0};
	(void)state;
	setenv("REDRIVE_TEST_PASSWORD", "one", 1);
	(void)!load(&a, &f, yaml);
	rdv_findings_done(&f);
	(void)!load(&b, &f, yaml);
	rdv_findings_done(&f);
	setenv("REDRIVE_TEST_PASSWORD", "two", 1);
	(void)!load(&c, &f, yaml);
	rdv_findings_done(&f);
	rdv_settings_check_change(&a, &b, &change);
	assert_int_equal(change.count, 0);
	rdv_settings_check_change(&a, &c, &change);
	assert_int_equal(change.count, 1);
	assert_non_null(strstr(change.items[0].text, "'routes[].source.kafka.settings' cannot change while running"));
	assert_null(strstr(change.items[0].text, "two"));
	rdv_findings_done(&change);
	rdv_settings_done(&a);
	rdv_settings_done(&b);
	rdv_settings_done(&c);
	unsetenv("REDRIVE_TEST_PASSWORD");
}

static void a_secret_is_long_enough(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	char secret[64], yaml[300];
	bool found = false;
	(void)state;
	make_file(secret, "short\n");
	snprintf(yaml, sizeof yaml, ROUTE "secret_file: %s" END, secret);
	assert_int_equal(load(&s, &f, yaml), REDRIVE_REFUSED);
	for (size_t i = 0; i < f.count; i++)
		found = found || strstr(f.items[i].text, "holds 5 bytes: at least 16");
	assert_true(found);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
	unlink(secret);
}

/* The engine holds on to a maker while a reload replaces the settings. */
static void a_maker_outlives_its_settings(void **state)
{
	struct rdv_settings s;
	struct rdv_findings f;
	struct rdv_kafka_makers makers = {NULL};
	(void)state;
	(void)!load(&s, &f, ROUTE "settings: { client.id: c }" END);
	const struct rdv_source_maker *m = rdv_kafka_makers_add(&makers, &s.routes[0]);
	rdv_findings_done(&f);
	rdv_settings_done(&s);
	assert_ptr_equal(rdv_kafka_makers_find(&makers, "a"), m);
	assert_null(rdv_kafka_makers_find(&makers, "b"));
	assert_int_equal(m->topic_count, 1);
	assert_string_equal(m->topics[0], "t");
	rdv_kafka_makers_done(&makers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef REDRIVE_KAFKA
		cmocka_unit_test(mistakes_are_told_with_their_position),
		cmocka_unit_test(what_is_refused_is_told_once),
#else
		cmocka_unit_test(a_build_without_the_driver_says_so),
#endif
		cmocka_unit_test(defaults_hold_for_all_and_a_route_replaces_the_kind),
		cmocka_unit_test(secrets_reach_the_driver_and_no_print),
		cmocka_unit_test(another_secret_is_a_change_that_takes_a_restart),
		cmocka_unit_test(a_secret_is_long_enough),
		cmocka_unit_test(a_maker_outlives_its_settings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
