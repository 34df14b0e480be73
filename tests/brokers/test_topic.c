/* test_topic.c - topics on the log: partitions, offsets, publish ids, batches; over restarts and trimming. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "brokers/embedded/topic.h"
#include "log/faulty_files.h"

struct world {
	struct rdv_faulty *files;
	struct rdv_log *log;
	struct rdv_topics *topics;
	enum redrive_status admits;
	uint64_t ids_max;
};

static enum redrive_status admit(void *ctx, const struct rdv_topic *topic, uint32_t partition, uint64_t key_hash)
{
	struct world *w = ctx;

	(void)topic, (void)partition;
	return key_hash ? w->admits : REDRIVE_OK;
}

static enum redrive_status fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	return rdv_topics_fold(((struct world *)ctx)->topics, frame, error);
}

/* As the engine does: TOPIC may lie behind the bodies, so the names come first. */
static enum redrive_status fold_names(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	return frame->type == RDV_RECORD_TOPIC ? fold(ctx, frame, error) : REDRIVE_OK;
}

static void open_world(struct world *w)
{
	struct rdv_log_options o = {
		.dir = "/t", .files = &rdv_faulty_ops, .files_ctx = w->files, .segment_size = 64u << 10};
	struct rdv_topics_options to = {.ids_max = w->ids_max ? w->ids_max : 1000, .admit = admit, .admit_ctx = w};
	struct rdv_log_opened opened;
	struct rdv_error error = {0};

	w->topics = rdv_topics_new(&to);
	assert_non_null(w->topics);
	assert_int_equal(rdv_log_open(&o, fold_names, w, &w->log, &opened, &error), REDRIVE_OK);
	assert_int_equal(rdv_log_fold_again(w->log, fold, w, &error), REDRIVE_OK);
	rdv_topics_attach(w->topics, w->log);
}

static void commit(struct world *w)
{
	bool did;

	do
		assert_int_equal(rdv_log_commit(w->log, 0, &did, NULL), REDRIVE_OK);
	while (did);
}

static void close_world(struct world *w)
{
	commit(w);
	rdv_topics_free(w->topics);
	rdv_log_close(w->log);
}

static struct rdv_topic *open_topic(struct world *w, const char *name, uint32_t partitions)
{
	struct rdv_topic *t = NULL;

	assert_int_equal(rdv_topic_open(w->topics, name, partitions, 0, &t, NULL), REDRIVE_OK);
	return t;
}

static struct rdv_published_at publish(struct rdv_topic *t, const char *key, const char *id, int64_t now)
{
	struct rdv_message m = {.has_key = key != NULL,
				.key = rdv_slice_text(key),
				.id = rdv_slice_text(id),
				.body = rdv_slice_text("x")};
	struct rdv_published_at at;
	uint64_t ticket;

	assert_int_equal(rdv_topic_publish(t, &m, 1, (struct rdv_wall){now}, &at, &ticket, NULL), REDRIVE_OK);
	return at;
}

static void keys_keep_their_partition_and_null_keys_take_turns(void **state)
{
	struct world w = {.files = rdv_faulty_new(1)};
	struct rdv_topic *t;
	struct rdv_published_at at;
	uint32_t of_a, turns[4] = {0};

	(void)state;
	open_world(&w);
	t = open_topic(&w, "t", 4);
	of_a = publish(t, "a", NULL, 1).partition;
	assert_int_equal(of_a, rdv_topic_partition_of_key(t, rdv_slice_text("a")));
	assert_int_equal(publish(t, "a", NULL, 1).offset, 1);
	for (int i = 0; i < 8; i++)
		turns[publish(t, NULL, NULL, 1).partition]++;
	for (int i = 0; i < 4; i++)
		assert_int_equal(turns[i], 2);
	assert_int_not_equal(rdv_topic_key_hash(t, rdv_slice_text("")), 0); /* an empty key is a key */
	close_world(&w);
	open_world(&w);
	t = open_topic(&w, "t", 4);
	assert_int_equal(rdv_topic_partition_of_key(t, rdv_slice_text("a")),
			 of_a); /* the secret is the topic's for ever */
	at = publish(t, "a", NULL, 1);
	assert_int_equal(at.offset, rdv_topic_next_offset(t, of_a) - 1);
	close_world(&w);
	rdv_faulty_free(w.files);
}

static void another_number_of_partitions_is_refused_naming_both(void **state)
{
	struct world w = {.files = rdv_faulty_new(1)};
	struct rdv_error error = {0};
	struct rdv_topic *t;

	(void)state;
	open_world(&w);
	open_topic(&w, "t", 4);
	assert_int_equal(rdv_topic_open(w.topics, "t", 5, 0, &t, &error), REDRIVE_REFUSED);
	assert_non_null(strstr(error.text, "4 partitions and cannot have 5"));
	assert_int_equal(rdv_topic_open(w.topics, "u", 0, 0, &t, &error), REDRIVE_INVALID);
	assert_int_equal(rdv_topic_open(w.topics, "u", RDV_PARTITIONS_MAX + 1, 0, &t, &error), REDRIVE_INVALID);
	close_world(&w);
	rdv_faulty_free(w.files);
}

static void ids_are_unique_for_their_time_and_per_topic(void **state)
{
	struct world w = {.files = rdv_faulty_new(1)};
	struct rdv_topic *t, *u;
	struct rdv_published_at at;

	(void)state;
	open_world(&w);
	t = open_topic(&w, "t", 1);
	u = open_topic(&w, "u", 1);
	assert_false(publish(t, NULL, "id", 1000).duplicate);
	assert_false(publish(u, NULL, "id", 1000).duplicate);
	assert_true(publish(t, NULL, "id", 2000).duplicate);
	close_world(&w);
	open_world(&w);
	t = open_topic(&w, "t", 1);
	assert_true(publish(t, NULL, "id", 3000).duplicate);
	assert_int_equal(rdv_topic_find_id(t, rdv_slice_text("id"), &at), REDRIVE_OK);
	assert_int_equal(at.offset, 0);
	assert_int_equal(rdv_topic_find_id(t, rdv_slice_text("other"), &at), REDRIVE_NOT_FOUND);
	at = publish(t, NULL, "id", 1000 + 25 * 3600 * 1000ll); /* a day later it is new */
	assert_false(at.duplicate);
	assert_int_equal(at.offset, 1);
	close_world(&w);
	rdv_faulty_free(w.files);
}

static void a_full_table_forgets_the_oldest_id_and_counts_it(void **state)
{
	struct world w = {.files = rdv_faulty_new(1), .ids_max = 3};
	struct rdv_topic *t;
	uint64_t evicted;
	char id[16];

	(void)state;
	open_world(&w);
	t = open_topic(&w, "t", 1);
	for (int i = 0; i < 5; i++) {
		snprintf(id, sizeof id, "id-%d", i);
		publish(t, NULL, id, 1000);
	}
	assert_int_equal(rdv_topics_ids(w.topics, &evicted), 3);
	assert_int_equal(evicted, 2);
	assert_false(publish(t, NULL, "id-0", 1000).duplicate);
	assert_true(publish(t, NULL, "id-4", 1000).duplicate);
	close_world(&w);
	rdv_faulty_free(w.files);
}

static void a_batch_is_taken_whole_or_not_at_all(void **state)
{
	struct world w = {.files = rdv_faulty_new(1)};
	struct rdv_message m[3] = {{.body = rdv_slice_text("1"), .id = rdv_slice_text("a")},
				   {.has_key = true, .key = rdv_slice_text("full"), .body = rdv_slice_text("2")},
				   {.body = rdv_slice_text("3"), .id = rdv_slice_text("a")}};
	struct rdv_published_at at[3];
	struct rdv_topic *t;
	uint64_t ticket, evicted;
	struct rdv_error error = {0};
	struct rdv_wall now = {1000};

	(void)state;
	open_world(&w);
	t = open_topic(&w, "t", 1);
	w.admits = REDRIVE_FULL;
	assert_int_equal(rdv_topic_publish(t, m, 3, now, at, &ticket, &error), REDRIVE_FULL);
	assert_int_equal(rdv_topic_next_offset(t, 0), 0);
	assert_int_equal(rdv_topics_ids(w.topics, &evicted), 0);
	w.admits = REDRIVE_OK;
	assert_int_equal(rdv_topic_publish(t, m, 3, now, at, &ticket, &error), REDRIVE_OK);
	assert_true(at[2].duplicate && at[2].offset == at[0].offset);
	assert_int_equal(rdv_topic_next_offset(t, 0), 2);
	m[1].tombstone = true; /* with a body */
	assert_int_equal(rdv_topic_publish(t, m, 3, now, at, &ticket, &error), REDRIVE_INVALID);
	m[1].tombstone = false;
	m[0].id = rdv_slice_text("not\nprintable");
	assert_int_equal(rdv_topic_publish(t, m, 1, now, at, &ticket, &error), REDRIVE_INVALID);
	close_world(&w);
	rdv_faulty_free(w.files);
}

/* Slices of `budget` until all is done. */
static uint64_t rewrite(struct world *w, uint32_t segment, int64_t now, uint32_t budget)
{
	uint64_t ticket = 0;
	bool all = false;

	while (!all) {
		uint32_t left = budget;

		assert_int_equal(rdv_topics_rewrite(w->topics, segment, (struct rdv_wall){now}, &left, &all, &ticket),
				 REDRIVE_OK);
		assert_true(left <= budget && (all || !left)); /* all of a slice is used, unless it was the last */
	}
	return ticket;
}

static void drop_before(struct world *w, uint32_t segment, uint64_t ticket)
{
	struct rdv_log_space space;
	bool did;

	for (rdv_log_space(w->log, &space); space.tail < segment; rdv_log_space(w->log, &space))
		rdv_log_drop_tail(w->log, ticket);
	do
		assert_int_equal(rdv_log_maintain(w->log, &did, NULL), REDRIVE_OK);
	while (did);
}

static void thousands_of_ids_are_rewritten_in_slices_and_those_over_are_dropped(void **state)
{
	struct world w = {.files = rdv_faulty_new(1), .ids_max = 10000};
	const int64_t day = 24 * 3600 * 1000ll;
	struct rdv_log_space space;
	struct rdv_topic *t;
	uint64_t ticket, evicted;
	char id[32];

	(void)state;
	open_world(&w);
	t = open_topic(&w, "t", 3);
	for (int i = 0; i < 3000; i++) { /* the first 1,000 are over 10 s before the rest */
		snprintf(id, sizeof id, "id-%d", i);
		publish(t, NULL, id, i < 1000 ? 1000 : 11000);
		if (i % 100 == 0)
			commit(&w);
	}
	commit(&w);
	rdv_log_space(w.log, &space);
	assert_true(space.head > 4);
	ticket = rewrite(&w, space.head - 1, day + 5000, 300);
	assert_int_equal(rdv_topics_ids(w.topics, &evicted), 2000);
	commit(&w);
	drop_before(&w, space.head, ticket);
	close_world(&w);
	assert_false(rdv_faulty_exists(w.files, "/t/0000000000000001.seg"));
	open_world(&w);
	t = open_topic(&w, "t", 3);
	assert_int_equal(rdv_topics_ids(w.topics, &evicted), 2000);
	for (int i = 1000; i < 3000; i++) {
		snprintf(id, sizeof id, "id-%d", i);
		assert_true(publish(t, NULL, id, day + 5000).duplicate);
	}
	close_world(&w);
	rdv_faulty_free(w.files);
}

static void offsets_and_ids_survive_when_their_segments_go(void **state)
{
	struct world w = {.files = rdv_faulty_new(1)};
	struct rdv_topic *t;
	uint64_t ticket;
	bool did;

	(void)state;
	open_world(&w);
	t = open_topic(&w, "t", 1);
	publish(t, NULL, "id", 1000);
	for (int i = 0; i < 3000; i++) {
		publish(t, NULL, NULL, 1000);
		if (i % 100 == 0)
			commit(&w);
	}
	commit(&w);
	ticket = rewrite(&w, 1, 1000, 100);
	commit(&w);
	rdv_log_drop_tail(w.log, ticket);
	do
		assert_int_equal(rdv_log_maintain(w.log, &did, NULL), REDRIVE_OK);
	while (did);
	close_world(&w);
	assert_false(rdv_faulty_exists(w.files, "/t/0000000000000001.seg"));
	open_world(&w);
	t = open_topic(&w, "t", 1);
	assert_int_equal(rdv_topic_next_offset(t, 0), 3001);
	assert_true(publish(t, NULL, "id", 1000).duplicate);
	close_world(&w);
	rdv_faulty_free(w.files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_keep_their_partition_and_null_keys_take_turns),
		cmocka_unit_test(another_number_of_partitions_is_refused_naming_both),
		cmocka_unit_test(ids_are_unique_for_their_time_and_per_topic),
		cmocka_unit_test(a_full_table_forgets_the_oldest_id_and_counts_it),
		cmocka_unit_test(a_batch_is_taken_whole_or_not_at_all),
		cmocka_unit_test(thousands_of_ids_are_rewritten_in_slices_and_those_over_are_dropped),
		cmocka_unit_test(offsets_and_ids_survive_when_their_segments_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
