/* test_source.c - the source against a real broker: what source.h promises, with a runtime that keeps books. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/record.h"
#include "source_world.h"

static bool has_lanes(struct world *w, const void *arg)
{
	return member_open_lanes(((void *const *)arg)[0]) == (size_t)((uintptr_t const *)arg)[1];
}

static void wait_lanes(struct world *w, struct member *m, size_t count)
{
	void *arg[2] = {m, (void *)(uintptr_t)count};

	world_wait(w, has_lanes, arg, "lanes");
}

static void start_consumes_all_and_a_restart_goes_on(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 3);
	for (int p = 0; p < 3; p++)
		world_produce(&w, p, 500 + p);
	m = member_start(&w, NULL);
	for (int p = 0; p < 3; p++)
		world_wait_durable(&w, p, 500 + (uint64_t)p);
	world_produce(&w, 1, 100);
	world_wait_durable(&w, 1, 601);
	member_stop(m, 10000);
	assert_int_equal(w.opens, 3);
	assert_int_equal(w.clean_opens, 3);
	assert_int_equal(w.revokes, 3);
	assert_int_equal(w.losts, 0);

	world_produce(&w, 0, 7);
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 3);
	world_wait_durable(&w, 0, 507);
	assert_int_equal(w.clean_opens, 6); /* revoke, the last batch with CLOSE, then gone */
	member_stop(m, 10000);
	assert_int_equal(w.refused, 0);
	world_done(&w);
}

static bool has_looked(struct world *w, const void *arg)
{
	return ((const struct member *)arg)->looked;
}

/* pitfall: a header's value is bytes, its name comes more than once */
static void messages_come_whole(void **state)
{
	struct world w;
	struct member *m;
	struct rdv_header h;
	struct rdv_reader r;
	uint64_t count;

	world_init(&w, 1);
	world_produce_one(&w, w.topic, 0, "key", "value");
	m = member_start(&w, NULL);
	world_wait(&w, has_looked, m, "a message");
	assert_true(m->look.has_key);
	assert_false(m->look.tombstone);
	assert_memory_equal(m->look_key.data, "key", 3);
	assert_memory_equal(m->look_value.data, "value", 5);
	assert_true(m->look.produced_at.ms == 1700000000123);
	r = rdv_headers_begin(rdv_buffer_as_slice(&m->look_headers), &count);
	assert_int_equal(count, 3);
	assert_true(rdv_headers_next(&r, &h) && rdv_slice_is(h.name, "a") && rdv_slice_is(h.value, "1"));
	assert_true(rdv_headers_next(&r, &h) && rdv_slice_is(h.name, "a") && rdv_slice_is(h.value, "2"));
	assert_true(rdv_headers_next(&r, &h) && rdv_slice_is(h.name, "b") && h.value.size == 0);
	member_stop(m, 10000);
	world_done(&w);
}

static void a_null_key_and_a_tombstone_are_told(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 1);
	world_produce_one(&w, w.topic, 0, NULL, NULL);
	m = member_start(&w, NULL);
	world_wait(&w, has_looked, m, "a message");
	assert_false(m->look.has_key);
	assert_true(m->look.tombstone);
	member_stop(m, 10000);
	world_done(&w);
}

/* pitfall: rebalances while work goes on */
static void members_come_and_go_and_nothing_is_lost_or_written_twice(void **state)
{
	struct world w;
	struct member *a, *b, *c;
	uint64_t produced = 0;

	world_init(&w, 12);
	a = member_start(&w, NULL);
	wait_lanes(&w, a, 12);
	for (int p = 0; p < 12; p++)
		world_produce(&w, p, 300);
	b = member_start(&w, NULL);
	for (int p = 0; p < 12; p++)
		world_produce(&w, p, 300);
	wait_lanes(&w, b, 6);
	wait_lanes(&w, a, 6);
	c = member_start(&w, NULL);
	for (int p = 0; p < 12; p++)
		world_produce(&w, p, 300);
	wait_lanes(&w, c, 4);
	member_stop(a, 10000);
	for (int p = 0; p < 12; p++)
		world_produce(&w, p, 300);
	wait_lanes(&w, c, 6);
	for (int p = 0; p < 12; p++)
		world_wait_durable(&w, p, 1200);
	for (int p = 0; p < 12; p++)
		produced += w.durable[p];
	assert_int_equal(produced, 12 * 1200);
	member_stop(b, 10000);
	member_stop(c, 10000);
	world_done(&w);
}

static bool was_offered(struct world *w, const void *arg)
{
	return ((const struct member *)arg)->alive_events >= 3;
}

/* pitfall: pause, seek, resume; back-pressure that keeps polling */
static void a_full_runtime_is_offered_the_same_again(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 1);
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 1);
	for (int round = 0; round < 5; round++) {
		pthread_mutex_lock(&w.mutex);
		m->full = true;
		m->alive_events = 0;
		pthread_mutex_unlock(&w.mutex);
		world_produce(&w, 0, 700);
		world_wait(&w, was_offered, m, "an offer");
		pthread_mutex_lock(&w.mutex);
		m->full = false;
		pthread_mutex_unlock(&w.mutex);
		world_wait_durable(&w, 0, 700 * (uint64_t)(round + 1));
	}
	member_stop(m, 10000);
	world_done(&w);
}

static void take_off_stops_the_fetching_and_on_goes_on_where_it_was(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 1);
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 1);
	for (int round = 0; round < 20; round++) {
		m->source->ops->take(m->source, m->seats[0]->lane, false);
		world_produce(&w, 0, 50);
		m->source->ops->take(m->source, m->seats[0]->lane, true);
		m->source->ops->take(m->source, m->seats[0]->lane, false);
		m->source->ops->take(m->source, m->seats[0]->lane, true);
		world_wait_durable(&w, 0, 50 * (uint64_t)(round + 1));
	}
	member_stop(m, 10000);
	world_done(&w);
}

static bool has_lost(struct world *w, const void *arg)
{
	return w->losts >= 2;
}

/* pitfall: a zombie that wakes after it was replaced */
static void a_member_that_hung_loses_its_lanes_and_writes_nothing(void **state)
{
	static const struct rdv_kafka_setting settings[] = {{"session.timeout.ms", "6000"},
							    {"max.poll.interval.ms", "6000"}};
	struct member_options o = {.settings = settings, .setting_count = 2};
	struct world w;
	struct member *a, *b;

	world_init(&w, 2);
	a = member_start(&w, &o);
	wait_lanes(&w, a, 2);
	world_produce(&w, 0, 100);
	world_wait_durable(&w, 0, 100);
	pthread_mutex_lock(&w.mutex);
	a->held = true; /* what it takes now it has not written when it hangs */
	a->stall_ms = 12000;
	pthread_mutex_unlock(&w.mutex);
	world_produce(&w, 0, 100);
	world_produce(&w, 1, 100);
	b = member_start(&w, &o);
	world_wait_durable(&w, 0, 200);
	world_wait_durable(&w, 1, 100);
	world_wait(&w, has_lost, NULL, "lost");
	pthread_mutex_lock(&w.mutex);
	a->held = false;
	pthread_cond_broadcast(&w.changed);
	pthread_mutex_unlock(&w.mutex);
	wait_lanes(&w, a, 1);
	wait_lanes(&w, b, 1);
	member_stop(a, 10000);
	member_stop(b, 10000);
	world_done(&w);
}

static void from_latest_begins_at_the_end_once(void **state)
{
	struct member_options o = {.from = RDV_KAFKA_LATEST};
	struct world w;
	struct member *m;

	world_init(&w, 1);
	world_produce(&w, 0, 40);
	m = member_start(&w, &o);
	wait_lanes(&w, m, 1);
	assert_int_equal(m->seats[0]->position, 40);
	member_stop(m, 10000);
	world_produce(&w, 0, 10);
	w.first = 40;
	m = member_start(&w, &o);
	world_wait_durable(&w, 0, 50);
	member_stop(m, 10000);
	world_done(&w);
}

static bool is_refused(struct world *w, const void *arg)
{
	void *const *a = arg;

	return strstr(((struct member *)a[0])->why, a[1]) != NULL;
}

static void wait_why(struct world *w, struct member *m, const char *part)
{
	const void *arg[2] = {m, part};

	world_wait(w, is_refused, arg, part);
}

static void a_message_that_is_not_taken_is_said_with_its_offset(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 1);
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 1);
	world_produce(&w, 0, 7);
	world_wait_durable(&w, 0, 7);
	pthread_mutex_lock(&w.mutex);
	m->full = true;
	m->refusal = REDRIVE_TOO_LARGE;
	pthread_mutex_unlock(&w.mutex);
	world_produce(&w, 0, 1);
	wait_why(&w, m, "the message at offset 7 is not taken: it is larger");
	pthread_mutex_lock(&w.mutex);
	m->full = false;
	pthread_mutex_unlock(&w.mutex);
	world_wait_durable(&w, 0, 8);
	member_stop(m, 10000);
	world_done(&w);
}

static void from_committed_refuses_without_an_offset(void **state)
{
	struct member_options o = {.from = RDV_KAFKA_COMMITTED};
	struct world w;
	struct member *m;

	world_init(&w, 1);
	m = member_start(&w, &o);
	wait_why(&w, m, "no committed offset");
	member_stop(m, 10000);
	world_produce(&w, 0, 10);
	world_commit_offset(&w, 0, 5);
	w.first = 5;
	m = member_start(&w, &o);
	world_wait_durable(&w, 0, 10);
	member_stop(m, 10000);
	world_done(&w);
}

static void offsets_that_somebody_moved_are_refused(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 1);
	world_produce(&w, 0, 100);
	m = member_start(&w, NULL);
	world_wait_durable(&w, 0, 100);
	member_stop(m, 10000);
	world_produce(&w, 0, 100);
	world_commit_offset(&w, 0, 150);
	m = member_start(&w, NULL);
	wait_why(&w, m, "ahead of the journal");
	assert_int_equal(w.gones, w.opens);
	member_stop(m, 10000);

	world_commit_offset(&w, 0, 60); /* back: the journal knows better */
	m = member_start(&w, NULL);
	world_wait_durable(&w, 0, 200);
	member_stop(m, 10000);

	world_commit_offset(&w, 0, 5000);
	m = member_start(&w, NULL);
	wait_why(&w, m, "beyond the topic's end");
	member_stop(m, 10000);
	world_done(&w);
}

/* pitfall: records of other writers in the private topics */
static void foreign_records_in_the_journal_are_counted_and_left_out(void **state)
{
	struct world w;
	struct member *m;
	char journal[250];

	world_init(&w, 1);
	world_produce(&w, 0, 10);
	m = member_start(&w, NULL);
	world_wait_durable(&w, 0, 10);
	member_stop(m, 10000);
	world_journal_name(&w, journal);
	world_produce_one(&w, journal, 0, "x", "something else");
	world_produce_one(&w, journal, 0, NULL, NULL);
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 1);
	assert_int_equal(m->source->foreign_records, 2);
	member_stop(m, 10000);
	world_produce_one(&w, journal, 0, NULL, "RDJ1\x07\xff");
	m = member_start(&w, NULL);
	wait_why(&w, m, "damaged");
	member_stop(m, 10000);
	world_done(&w);
}

static void missing_private_topics_are_said_and_found_later(void **state)
{
	struct member_options o = {.keep_topics = true};
	struct world w;
	struct member *m, *other;

	world_init(&w, 2);
	m = member_start(&w, &o);
	wait_why(&w, m, "missing");
	other = member_start(&w, NULL); /* may create them, and has one of the partitions */
	for (int p = 0; p < 2; p++) {
		world_produce(&w, p, 10);
		world_wait_durable(&w, p, 10);
	}
	wait_lanes(&w, m, 1);
	member_stop(other, 10000);
	world_produce(&w, 0, 10);
	world_wait_durable(&w, 0, 20);
	member_stop(m, 10000);
	world_done(&w);
}

static void forget_trims_the_journal_but_never_its_last_position(void **state)
{
	struct world w;
	struct member *m;
	int64_t first;

	world_init(&w, 1);
	m = member_start(&w, NULL);
	for (int i = 1; i <= 10; i++) {
		world_produce(&w, 0, 10);
		world_wait_durable(&w, 0, 10 * (uint64_t)i);
	}
	first = m->seats[0]->journal_first;
	m->source->ops->forget(m->source, m->seats[0]->lane, 1000000);
	for (int i = 0; i < 200 && world_journal_start(&w, 0) < first; i++)
		poll(NULL, 0, 20);
	assert_int_equal(world_journal_start(&w, 0), first);
	member_stop(m, 10000);
	world_done(&w);
}

/* The writer's handle is taken away, as by a successor: batches go on, the chain is whole. */
static void a_fenced_writer_is_renewed(void **state)
{
	struct member_options o = {.instance = "one"};
	struct world w;
	struct member *m;

	world_init(&w, 2);
	m = member_start(&w, &o);
	wait_lanes(&w, m, 2);
	for (int i = 1; i <= 3; i++) {
		char id[160];

		world_produce(&w, 0, 50);
		world_wait_durable(&w, 0, 50 * (uint64_t)i);
		snprintf(id, sizeof id, "redrive.route.%s.one", w.group);
		world_fence(&w, id);
	}
	world_produce(&w, 1, 50);
	world_wait_durable(&w, 1, 50);
	member_stop(m, 10000);
	world_done(&w);
}

static void a_stop_without_time_leaves_at_once_and_loses_nothing(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 4);
	for (int i = 1; i <= 4; i++) {
		for (int p = 0; p < 4; p++)
			world_produce(&w, p, 200);
		m = member_start(&w, NULL);
		world_wait_durable(&w, i % 4, 1 + (uint64_t)(i - 1) * 200);
		member_stop(m, 0);
	}
	m = member_start(&w, NULL);
	for (int p = 0; p < 4; p++)
		world_wait_durable(&w, p, 800);
	member_stop(m, 10000);
	world_done(&w);
}

static bool has_lag(struct world *w, const void *arg)
{
	return ((const struct member *)arg)->source->lag == 500;
}

static void the_lag_of_a_paused_partition_is_known(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 1);
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 1);
	m->source->ops->take(m->source, m->seats[0]->lane, false);
	world_produce(&w, 0, 500);
	for (int i = 0; i < 1000 && !has_lag(&w, m); i++)
		poll(NULL, 0, 20);
	assert_true(m->source->lag == 500 || m->taken); /* or the message was quicker than the pause */
	m->source->ops->take(m->source, m->seats[0]->lane, true);
	world_wait_durable(&w, 0, 500);
	member_stop(m, 10000);
	world_done(&w);
}

/* pitfall: offsets out of range: found at open, never guessed */
static void a_topic_that_begins_later_is_read_from_its_start(void **state)
{
	struct world w;
	struct member *m;

	world_init(&w, 3);
	for (int p = 0; p < 3; p++) {
		world_produce(&w, p, 100);
		world_cut(&w, p, 60);
	}
	w.first = 60;
	m = member_start(&w, NULL);
	for (int p = 0; p < 3; p++)
		world_wait_durable(&w, p, 100);
	member_stop(m, 10000);
	for (int p = 0; p < 3; p++)
		world_produce(&w, p, 100);
	world_cut(&w, 1, 150);
	m = member_start(&w, NULL);
	wait_why(&w, m, "deleted before they were consumed");
	world_wait_durable(&w, 0, 200);
	world_wait_durable(&w, 2, 200);
	member_stop(m, 10000);
	w.may_skip = true;
	world_commit_offset(&w, 1, 170); /* what an operator does then */
	m = member_start(&w, NULL);
	wait_lanes(&w, m, 3);
	member_stop(m, 10000);
	world_done(&w);
}

static void partitions_that_are_added_get_lanes(void **state)
{
	static const struct rdv_kafka_setting settings[] = {{"topic.metadata.refresh.interval.ms", "500"}};
	struct member_options o = {.settings = settings, .setting_count = 1};
	struct world w;
	struct member *m;

	world_init(&w, 1);
	m = member_start(&w, &o);
	wait_lanes(&w, m, 1);
	world_grow(&w, 3);
	wait_lanes(&w, m, 3);
	world_produce(&w, 2, 10);
	world_wait_durable(&w, 2, 10);
	member_stop(m, 10000);
	world_done(&w);
}

static void a_pattern_takes_its_topics_and_never_our_own(void **state)
{
	struct member_options o = {.pattern = true};
	struct world w;
	struct member *m;

	world_init(&w, 2);
	m = member_start(&w, &o);
	world_produce(&w, 1, 10);
	world_wait_durable(&w, 1, 10);
	member_stop(m, 10000);
	m = member_start(&w, &o); /* now there are private topics, whose names it matches as well */
	world_produce(&w, 1, 10);
	world_wait_durable(&w, 1, 20);
	assert_int_equal(w.opens, 4);
	member_stop(m, 10000);
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(start_consumes_all_and_a_restart_goes_on),
		cmocka_unit_test(messages_come_whole),
		cmocka_unit_test(a_null_key_and_a_tombstone_are_told),
		cmocka_unit_test(members_come_and_go_and_nothing_is_lost_or_written_twice),
		cmocka_unit_test(a_full_runtime_is_offered_the_same_again),
		cmocka_unit_test(take_off_stops_the_fetching_and_on_goes_on_where_it_was),
		cmocka_unit_test(a_member_that_hung_loses_its_lanes_and_writes_nothing),
		cmocka_unit_test(from_latest_begins_at_the_end_once),
		cmocka_unit_test(a_message_that_is_not_taken_is_said_with_its_offset),
		cmocka_unit_test(from_committed_refuses_without_an_offset),
		cmocka_unit_test(offsets_that_somebody_moved_are_refused),
		cmocka_unit_test(foreign_records_in_the_journal_are_counted_and_left_out),
		cmocka_unit_test(missing_private_topics_are_said_and_found_later),
		cmocka_unit_test(forget_trims_the_journal_but_never_its_last_position),
		cmocka_unit_test(a_fenced_writer_is_renewed),
		cmocka_unit_test(the_lag_of_a_paused_partition_is_known),
		cmocka_unit_test(a_topic_that_begins_later_is_read_from_its_start),
		cmocka_unit_test(partitions_that_are_added_get_lanes),
		cmocka_unit_test(a_pattern_takes_its_topics_and_never_our_own),
		cmocka_unit_test(a_stop_without_time_leaves_at_once_and_loses_nothing),
	};

	if (!getenv("REDRIVE_KAFKA")) {
		fputs("skipped: no REDRIVE_KAFKA=host:port\n", stderr);
		return 77;
	}
	if (getenv("TEST_FILTER"))
		cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
