/* test_kafka_topics.c - names of the private topics, and the commands for administrators, without a broker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "brokers/kafka/topics.h"

static void a_name_tells_the_route_and_depends_on_cluster_topic_and_group(void **state)
{
	static const char *const others[][3] = {
		{"c2", "t", "g"}, {"c", "t2", "g"}, {"c", "t", "g2"}, {"ct", "", "g"}, {"c", "tg", ""}};
	struct rdv_kafka_names a, b;

	(void)state;
	rdv_kafka_names("c", "orders", "t", "g", &a);
	/* written down: another name would be another journal */
	assert_string_equal(a.topic[RDV_KAFKA_JOURNAL], "redrive.orders.365b6c93a6f5f900.journal");
	assert_string_equal(a.topic[RDV_KAFKA_INBOX], "redrive.orders.365b6c93a6f5f900.inbox");
	assert_string_equal(a.topic[RDV_KAFKA_LETTERS], "redrive.orders.365b6c93a6f5f900.letters");
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		rdv_kafka_names(others[i][0], "orders", others[i][1], others[i][2], &b);
		assert_string_not_equal(a.topic[0], b.topic[0]);
	}
}

static void a_name_fits_into_what_kafka_takes(void **state)
{
	struct rdv_kafka_names names;
	char route[400];

	(void)state;
	memset(route, 'r', sizeof route);
	route[sizeof route - 1] = '\0';
	rdv_kafka_names("c", route, "t", "g", &names);
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		assert_int_equal(strlen(names.topic[i]), 249);
	assert_string_equal(names.topic[RDV_KAFKA_JOURNAL] + 249 - 8, ".journal");
}

static char *print(struct rdv_kafka_config *c, const char *principal)
{
	struct rdv_kafka_source_topic source = {"cluster-1", 12, 3, 1048588, ""};
	struct rdv_kafka_names names;
	struct rdv_buffer out;
	char *text;

	rdv_kafka_names(source.cluster, c->route, "order.create", c->group, &names);
	rdv_buffer_init(&out, 0);
	rdv_kafka_print_topics(c, &source, "order.create", &names, principal, &out);
	text = strdup(rdv_buffer_string(&out));
	rdv_buffer_done(&out);
	return text;
}

static void what_is_printed_creates_the_topics_and_grants_the_rights(void **state)
{
	struct rdv_kafka_config c = {.route = (char[]){"orders"},
				     .brokers = (char[]){"k1:9092,k2:9092"},
				     .group = (char[]){"order-service"}};
	static const char *const wanted[] = {
		"kafka-topics.sh --bootstrap-server k1:9092,k2:9092 --command-config admin.properties --create "
		"--if-not-exists --topic redrive.orders.",
		".journal --partitions 12 --replication-factor 3 --config cleanup.policy=delete --config "
		"retention.ms=-1 --config retention.bytes=-1 --config segment.bytes=67108864 --config "
		"max.message.bytes=1310732\n",
		".inbox --partitions 12 ",
		".letters --partitions 12 ",
		"--allow-principal User:redrive --operation Read --operation Describe --operation DescribeConfigs "
		"--topic order.create\n",
		"--operation Read --operation Describe --group order-service\n",
		"--operation Read --operation Write --operation Delete --operation Describe --operation "
		"DescribeConfigs --topic redrive.orders.",
		"--operation Write --operation Describe --transactional-id redrive.orders.order-service. "
		"--resource-pattern-type "
		"prefixed\n",
	};
	char *text = print(&c, "User:redrive");

	(void)state;
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
		if (!strstr(text, wanted[i]))
			fail_msg("not printed: %s\nin: %s", wanted[i], text);
	assert_null(strstr(text, "--operation Create"));
	free(text);
	c.create_topics = true;
	c.replication = 2;
	text = print(&c, NULL);
	assert_non_null(strstr(text, "--operation Create --operation Alter --topic redrive.orders. "
				     "--resource-pattern-type prefixed\n"));
	assert_non_null(strstr(text, "--replication-factor 2 "));
	assert_non_null(strstr(text, "--allow-principal \"$PRINCIPAL\" "));
	free(text);
}

/* Run by a shell: what is in a name must not. */
static void names_are_quoted_for_the_shell(void **state)
{
	struct rdv_kafka_config c = {
		.route = (char[]){"r"}, .brokers = (char[]){"k:1"}, .group = (char[]){"a'b $(touch x); c"}};
	char *text = print(&c, "User:CN=x,OU=a b"), *at = strstr(text, "--group ");
	char command[300], line[300] = "";
	FILE *shell;

	(void)state;
	assert_non_null(at);
	at[strcspn(at, "\n")] = '\0';
	snprintf(command, sizeof command, "printf '%%s|' %s", at);
	shell = popen(command, "r");
	assert_non_null(shell);
	assert_non_null(fgets(line, sizeof line, shell));
	assert_int_equal(pclose(shell), 0);
	assert_string_equal(line, "--group|a'b $(touch x); c|");
	assert_non_null(strstr(text, "'User:CN=x,OU=a b'"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_tells_the_route_and_depends_on_cluster_topic_and_group),
		cmocka_unit_test(a_name_fits_into_what_kafka_takes),
		cmocka_unit_test(what_is_printed_creates_the_topics_and_grants_the_rights),
		cmocka_unit_test(names_are_quoted_for_the_shell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
