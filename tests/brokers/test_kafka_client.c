/* test_kafka_client.c - settings that pass and that do not, handles of every role without a broker, secrets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "brokers/kafka/client.h"

static const struct {
	const char *name, *value;
	enum redrive_status wanted;
	const char *says;
} settings[] = {
	{"security.protocol", "sasl_ssl", REDRIVE_OK, ""},
	{"sasl.mechanism", "SCRAM-SHA-512", REDRIVE_OK, ""},
	{"sasl.password", "open sesame", REDRIVE_OK, ""},
	{"session.timeout.ms", "10000", REDRIVE_OK, ""},
	{"compression.codec", "zstd", REDRIVE_OK, ""},
	{"partition.assignment.strategy", "roundrobin", REDRIVE_OK, ""},
	{"partition.assignment.strategy", "range,cooperative-sticky", REDRIVE_REFUSED, "roundrobin"},
	{"transaction.timeout.ms", "30000", REDRIVE_OK, ""},
	{"transaction.timeout.ms", "5000", REDRIVE_REFUSED, "10000 or more"},
	{"transaction.timeout.ms", "soon", REDRIVE_INVALID, "transaction.timeout.ms"},
	{"max.in.flight", "1", REDRIVE_OK, ""},
	{"max.in.flight", "6", REDRIVE_REFUSED, "5 or less"},
	{"group.id", "g", REDRIVE_REFUSED, "`group`"},
	{"group.instance.id", "g", REDRIVE_REFUSED, "`instance`"},
	{"bootstrap.servers", "b", REDRIVE_REFUSED, "`brokers`"},
	{"auto.offset.reset", "earliest", REDRIVE_REFUSED, "`from`"},
	{"isolation.level", "read_uncommitted", REDRIVE_REFUSED, "fencing"},
	{"enable.auto.commit", "true", REDRIVE_REFUSED, "transaction"},
	{"enable.idempotence", "false", REDRIVE_REFUSED, "always on"},
	{"acks", "1", REDRIVE_REFUSED, "in sync"},
	{"delivery.timeout.ms", "1000", REDRIVE_REFUSED, "sent again"},
	{"group.protocol", "consumer", REDRIVE_REFUSED, "classic"},
	{"no.such.setting", "1", REDRIVE_INVALID, "no.such.setting"},
	{"session.timeout.ms", "-5", REDRIVE_INVALID, "session.timeout.ms"},
	{"dr_msg_cb", "x", REDRIVE_INVALID, "dr_msg_cb"},
};

static void settings_that_would_break_the_protocol_are_refused_with_what_to_do(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
		struct rdv_error why = {0};
		enum redrive_status status = rdv_kafka_check_setting(settings[i].name, settings[i].value, &why);

		if (status != settings[i].wanted || !strstr(why.text, settings[i].says))
			fail_msg("%s=%s: %d '%s'", settings[i].name, settings[i].value, (int)status, why.text);
	}
}

static void a_secret_is_known_by_its_name(void **state)
{
	static const char *const secret[] = {"sasl.password",
					     "ssl.key.password",
					     "ssl.keystore.password",
					     "ssl.key.pem",
					     "sasl.oauthbearer.client.secret",
					     "sasl.oauthbearer.config"};
	static const char *const open[] = {"sasl.username", "ssl.key.location", "client.id"};

	(void)state;
	for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++)
		assert_true(rdv_kafka_setting_is_secret(secret[i]));
	for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
		assert_false(rdv_kafka_setting_is_secret(open[i]));
}

struct lines {
	pthread_mutex_t mutex;
	struct rdv_buffer text;
};

static void say(void *ctx, int level, const char *text)
{
	struct lines *l = ctx;

	(void)level;
	pthread_mutex_lock(&l->mutex);
	rdv_buffer_text(&l->text, text);
	rdv_buffer_text(&l->text, "\n");
	pthread_mutex_unlock(&l->mutex);
}

static const char *const topics[] = {"orders", "^parcels"};

static struct rdv_kafka_options options(const struct rdv_kafka_setting *s, size_t count)
{
	return (struct rdv_kafka_options){
		.route = "order-create",
		.brokers = "127.0.0.1:1",
		.topics = topics,
		.topic_count = 2,
		.group = "order-service",
		.settings = s,
		.setting_count = count,
	};
}

static void open_config(struct rdv_kafka_config *c, struct lines *l, const struct rdv_kafka_options *o)
{
	*l = (struct lines){.mutex = PTHREAD_MUTEX_INITIALIZER};
	assert_int_equal(rdv_kafka_config_copy(c, o), REDRIVE_OK);
	c->say = say;
	c->say_ctx = l;
}

static void close_config(struct rdv_kafka_config *c, struct lines *l)
{
	rdv_kafka_config_done(c);
	rdv_buffer_done(&l->text);
}

static void assert_group_setting(const struct rdv_kafka_options *o, const char *name, const char *wanted)
{
	struct rdv_kafka_config c;
	struct lines l;
	rd_kafka_t *h;
	char value[64];
	size_t size = sizeof value;

	open_config(&c, &l, o);
	assert_int_equal(rdv_kafka_open(&c, RDV_KAFKA_GROUP, NULL, NULL, &h, NULL), REDRIVE_OK);
	assert_int_equal(rd_kafka_conf_get(rd_kafka_conf(h), name, value, &size), RD_KAFKA_CONF_OK);
	assert_string_equal(value, wanted);
	rdv_kafka_close(h);
	close_config(&c, &l);
}

static void a_silent_member_is_given_up_soon_unless_it_is_a_static_one(void **state)
{
	struct rdv_kafka_setting own = {"session.timeout.ms", "20000"};
	struct rdv_kafka_options o = options(NULL, 0), set = options(&own, 1);

	(void)state;
	assert_group_setting(&o, "session.timeout.ms", "10000");
	assert_group_setting(&o, "heartbeat.interval.ms", "3000");
	assert_group_setting(&set, "session.timeout.ms", "20000");
	o.instance = "host-1";
	assert_group_setting(&o, "session.timeout.ms", "45000");
}

static void a_configuration_is_a_copy(void **state)
{
	struct rdv_kafka_setting s[] = {{"client.id", "a"}, {"client.id", "b"}, {"linger.ms", "1"}};
	struct rdv_kafka_options o = options(s, 3);
	struct rdv_kafka_config c;
	struct lines l;

	(void)state;
	o.secret = rdv_slice_text("pepper");
	open_config(&c, &l, &o);
	memset(s, 0, sizeof s);
	memset(&o, 0, sizeof o);
	assert_string_equal(c.topics[1], "^parcels");
	assert_string_equal(rdv_kafka_config_setting(&c, "client.id"), "b");
	assert_null(rdv_kafka_config_setting(&c, "debug"));
	assert_null(c.instance);
	assert_true(rdv_slice_is(rdv_buffer_as_slice(&c.secret), "pepper"));
	close_config(&c, &l);
	rdv_kafka_config_done(NULL);
}

static void handles_of_every_role_open_and_close_without_a_broker(void **state)
{
	static const struct rdv_kafka_setting s[] = {
		{"session.timeout.ms", "10000"}, {"compression.codec", "lz4"}, {"fetch.wait.max.ms", "10"}};
	struct rdv_kafka_options o = options(s, 3);
	struct rdv_kafka_config c;
	struct lines l;

	(void)state;
	o.instance = "host-1";
	open_config(&c, &l, &o);
	for (int role = 0; role < RDV_KAFKA_ROLE_COUNT; role++) {
		bool writes = role == RDV_KAFKA_WRITER || role == RDV_KAFKA_SINGLE;
		bool produces = writes || role == RDV_KAFKA_PLAIN;
		int64_t before = rdv_mono_now().ms;
		struct rdv_error error = {0};
		rd_kafka_t *h;

		assert_int_equal(rdv_kafka_open(&c, role, writes ? "id" : NULL, produces ? NULL : &c, &h, &error),
				 REDRIVE_OK);
		assert_ptr_equal(rdv_kafka_opaque(h), produces ? NULL : &c);
		rdv_kafka_close(h);
		assert_in_range(rdv_mono_now().ms - before, 0, 7000);
	}
	rdv_kafka_close(NULL);
	/* settings of the other kind of client are no news */
	assert_null(strstr(rdv_buffer_string(&l.text), "CONFWARN"));
	close_config(&c, &l);
}

static void a_member_that_subscribes_leaves_in_time_without_a_broker(void **state)
{
	struct rdv_kafka_options o = options(NULL, 0);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	int64_t before = rdv_mono_now().ms;
	struct rdv_kafka_config c;
	rd_kafka_queue_t *queue;
	char complaint[256];
	struct lines l;
	rd_kafka_t *h;

	(void)state;
	open_config(&c, &l, &o);
	assert_int_equal(rdv_kafka_open(&c, RDV_KAFKA_GROUP, NULL, NULL, &h, NULL), REDRIVE_OK);
	rd_kafka_topic_partition_list_add(list, "orders", RD_KAFKA_PARTITION_UA);
	assert_int_equal(rd_kafka_subscribe(h, list), RD_KAFKA_RESP_ERR_NO_ERROR);
	rd_kafka_topic_partition_list_destroy(list);
	queue = rd_kafka_queue_get_consumer(h);
	while (!rdv_kafka_complaint(h, complaint) && rdv_mono_now().ms - before < 10000)
		rd_kafka_event_destroy(rd_kafka_queue_poll(queue, 20));
	rd_kafka_queue_destroy(queue);
	assert_non_null(strstr(complaint, "127.0.0.1:1"));
	before = rdv_mono_now().ms;
	rdv_kafka_close(h);
	assert_in_range(rdv_mono_now().ms - before, 0, 7000);
	close_config(&c, &l);
}

static void a_handle_that_cannot_work_says_why_without_its_secrets(void **state)
{
	static const struct {
		struct rdv_kafka_setting s[2];
		const char *says;
	} cases[] = {
		{{{"isolation.level", "read_uncommitted"}, {"client.id", "x"}}, "isolation.level"},
		{{{"ssl.key.pem", "hunter22"}, {"security.protocol", "ssl"}}, "ssl"},
		{{{"sasl.oauthbearer.config", "hunter22"}, {"no.such", "hunter22"}}, "no.such"},
		{{{"sasl.password", "hunter22"}, {"session.timeout.ms", "hunter22"}}, "session.timeout.ms"},
		{{{"security.protocol", "sasl_plaintext"}, {"sasl.mechanism", "NOPE"}}, "NOPE"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct rdv_kafka_options o = options(cases[i].s, 2);
		struct rdv_error error = {0};
		struct rdv_kafka_config c;
		struct lines l;
		rd_kafka_t *h;

		open_config(&c, &l, &o);
		assert_int_equal(rdv_kafka_open(&c, RDV_KAFKA_WRITER, "id", NULL, &h, &error), REDRIVE_REFUSED);
		assert_null(h);
		if (!strstr(error.text, cases[i].says) || strstr(error.text, "hunter22"))
			fail_msg("%zu: '%s'", i, error.text);
		assert_null(strstr(rdv_buffer_string(&l.text), "hunter22"));
		close_config(&c, &l);
	}
}

static void secrets_are_cut_out_of_every_text(void **state)
{
	static const struct rdv_kafka_setting s[] = {
		{"sasl.username", "ann"}, {"sasl.password", "pw1"}, {"debug", "conf"}};
	struct rdv_kafka_options o = options(s, 3);
	char text[] = "ann: pw1pw1 is not 'pw1', pw";
	struct rdv_kafka_config c;
	struct lines l;
	rd_kafka_t *h;

	(void)state;
	open_config(&c, &l, &o);
	rdv_kafka_config_scrub(&c, text);
	assert_string_equal(text, "ann: ****** is not '***', pw");
	assert_int_equal(rdv_kafka_open(&c, RDV_KAFKA_ADMIN, NULL, NULL, &h, NULL), REDRIVE_OK);
	rdv_kafka_close(h);
	assert_non_null(strstr(rdv_buffer_string(&l.text), "sasl.password")); /* debug lists the settings */
	assert_null(strstr(rdv_buffer_string(&l.text), "pw1"));
	close_config(&c, &l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_that_would_break_the_protocol_are_refused_with_what_to_do),
		cmocka_unit_test(a_secret_is_known_by_its_name),
		cmocka_unit_test(a_silent_member_is_given_up_soon_unless_it_is_a_static_one),
		cmocka_unit_test(a_configuration_is_a_copy),
		cmocka_unit_test(handles_of_every_role_open_and_close_without_a_broker),
		cmocka_unit_test(a_member_that_subscribes_leaves_in_time_without_a_broker),
		cmocka_unit_test(a_handle_that_cannot_work_says_why_without_its_secrets),
		cmocka_unit_test(secrets_are_cut_out_of_every_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
