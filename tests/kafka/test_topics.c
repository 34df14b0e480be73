/* test_topics.c - the private topics at a real broker: described, created, grown, judged, trimmed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "brokers/kafka/topics.h"
#include "world.h"

#define LIMIT_MS 20000

struct set { /* a world, its source topic as it is, and the names of its private ones */
	struct world world;
	rd_kafka_t *admin;
	struct rdv_kafka_source_topic source;
	struct rdv_kafka_names names;
};

static void open_set(struct set *s)
{
	struct rdv_error error = {""};

	world_open(&s->world, world_broker(), NULL, 0, 0);
	assert_int_equal(rdv_kafka_open(&s->world.config, RDV_KAFKA_ADMIN, NULL, NULL, &s->admin, &error), REDRIVE_OK);
	/* the broker that is asked may learn of a new topic a moment later */
	int64_t until = rdv_mono_now().ms + LIMIT_MS;
	enum redrive_status status;
	do
		status = rdv_kafka_describe(s->admin, s->world.source, LIMIT_MS, &s->source, &error);
	while (status == REDRIVE_NOT_FOUND && rdv_mono_now().ms < until);
	if (status)
		fail_msg("%s", error.text);
	rdv_kafka_names(s->source.cluster, "r", s->world.source, s->world.group, &s->names);
}

static void close_set(struct set *s)
{
	rdv_kafka_close(s->admin);
	world_close(&s->world);
}

static void check(struct set *s, struct rdv_kafka_findings *f)
{
	struct rdv_error error = {""};

	if (rdv_kafka_check_topics(s->admin, &s->source, &s->names, LIMIT_MS, f, &error))
		fail_msg("%s", error.text);
}

static void create(struct set *s)
{
	struct rdv_error error = {""};

	if (rdv_kafka_create_topics(s->admin, &s->source, &s->names, 0, LIMIT_MS, &error))
		fail_msg("%s", error.text);
}

static void a_source_topic_is_described(void **state)
{
	struct set s;
	struct rdv_kafka_source_topic other;
	struct rdv_error error = {""};

	(void)state;
	open_set(&s);
	assert_int_equal(s.source.partitions, 1);
	assert_int_equal(s.source.replication, 1);
	assert_true(s.source.message_max >= 1000000);
	assert_true(strlen(s.source.cluster) > 10);
	assert_int_equal(rdv_kafka_describe(s.admin, "there.is.none", LIMIT_MS, &other, &error), REDRIVE_NOT_FOUND);
	/* asking has not made it */
	assert_int_equal(rdv_kafka_describe(s.admin, "there.is.none", LIMIT_MS, &other, &error), REDRIVE_NOT_FOUND);
	assert_non_null(strstr(error.text, "'there.is.none' does not exist"));
	close_set(&s);
}

static void missing_topics_are_found_and_created_as_they_must_be(void **state)
{
	struct set s;
	struct rdv_kafka_findings f;

	(void)state;
	open_set(&s);
	check(&s, &f);
	assert_int_equal(f.count, 3);
	for (size_t i = 0; i < f.count; i++) {
		assert_string_equal(f.items[i].topic, s.names.topic[i]);
		assert_string_equal(f.items[i].what, "is missing");
		assert_true(f.items[i].fixable);
	}
	rdv_kafka_findings_done(&f);
	create(&s);
	check(&s, &f);
	assert_int_equal(f.count, 0);
	create(&s); /* again: nothing to do */
	close_set(&s);
}

/* pitfall: partitions are added to a topic while it is read */
static void partitions_that_the_source_gains_are_added(void **state)
{
	struct set s;
	struct rdv_kafka_findings f;

	(void)state;
	open_set(&s);
	create(&s);
	s.source.partitions = 3;
	check(&s, &f);
	assert_int_equal(f.count, 3);
	assert_string_equal(f.items[0].what, "has 1 partitions, must have 3");
	assert_true(f.items[0].fixable);
	rdv_kafka_findings_done(&f);
	create(&s);
	check(&s, &f);
	assert_int_equal(f.count, 0);
	s.source.partitions = 2; /* a source that was made again, with fewer */
	check(&s, &f);
	assert_int_equal(f.count, 3);
	assert_false(f.items[0].fixable);
	rdv_kafka_findings_done(&f);
	close_set(&s);
}

static void another_setting_is_found_and_left_alone(void **state)
{
	struct set s;
	struct rdv_kafka_findings f;

	(void)state;
	open_set(&s);
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		world_create_topic(&s.world, s.names.topic[i], 100000);
	create(&s);
	check(&s, &f);
	bool retention = false, size = false;
	for (size_t i = 0; i < f.count; i++) {
		assert_false(f.items[i].fixable);
		retention = retention || strstr(f.items[i].what, "retention.ms is 604800000, must be -1");
		size = size || strstr(f.items[i].what, "max.message.bytes is 100000, must be at least 1");
	}
	assert_true(retention && size);
	rdv_kafka_findings_done(&f);
	s.source.message_max = 1000; /* larger messages than needed are no harm */
	check(&s, &f);
	for (size_t i = 0; i < f.count; i++)
		if (strstr(f.items[i].what, "max.message"))
			assert_null(strstr(f.items[i].what, "is 1310732"));
	rdv_kafka_findings_done(&f);
	close_set(&s);
}

static void deleting_looks_at_both_levels_of_the_answer(void **state)
{
	struct set s;
	struct rdv_error error = {""};

	(void)state;
	open_set(&s);
	create(&s);
	const char *journal = s.names.topic[RDV_KAFKA_JOURNAL];
	if (rdv_kafka_delete_before(s.admin, journal, 0, 0, LIMIT_MS, &error))
		fail_msg("%s", error.text);
	assert_int_equal(rdv_kafka_delete_before(s.admin, journal, 0, 77, LIMIT_MS, &error), REDRIVE_REFUSED);
	assert_non_null(strstr(error.text, journal));
	assert_int_equal(rdv_kafka_delete_before(s.admin, journal, 0, -1, LIMIT_MS, &error), REDRIVE_INVALID);
	assert_int_not_equal(rdv_kafka_delete_before(s.admin, "there.is.none", 0, 0, 2000, &error), REDRIVE_OK);
	close_set(&s);
}

static void a_cluster_that_does_not_answer_is_said(void **state)
{
	struct world w;
	rd_kafka_t *admin;
	struct rdv_kafka_source_topic source;
	struct rdv_error error = {""};

	(void)state;
	world_open_alone(&w, "127.0.0.1:1", NULL, 0);
	assert_int_equal(rdv_kafka_open(&w.config, RDV_KAFKA_ADMIN, NULL, NULL, &admin, &error), REDRIVE_OK);
	assert_int_equal(rdv_kafka_describe(admin, "t", 500, &source, &error), REDRIVE_UNREACHABLE);
	assert_true(strlen(error.text) > 0);
	rdv_kafka_close(admin);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_source_topic_is_described),
		cmocka_unit_test(missing_topics_are_found_and_created_as_they_must_be),
		cmocka_unit_test(partitions_that_the_source_gains_are_added),
		cmocka_unit_test(another_setting_is_found_and_left_alone),
		cmocka_unit_test(deleting_looks_at_both_levels_of_the_answer),
	};
	const struct CMUnitTest alone[] = {cmocka_unit_test(a_cluster_that_does_not_answer_is_said)};
	int failed = cmocka_run_group_tests(alone, NULL, NULL);

	return failed + (world_broker() ? cmocka_run_group_tests(tests, NULL, NULL) : 0);
}
