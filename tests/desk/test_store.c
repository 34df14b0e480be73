/* test_store.c - letters are kept whole, once, over restarts; segments roll; damage is said, never hidden. */
#include "fixture.h"
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

static void check_letter(struct fixture *f, const struct fixture_letter *l)
{
	char id[27];
	struct rdv_letter letter;
	struct rdv_block *body = NULL;
	fixture_id(l, id);
	assert_int_equal(rdv_desk_get(f->desk, id, &letter), REDRIVE_OK);
	assert_string_equal(letter.id, id);
	assert_int_equal(letter.envelope.offset, l->offset);
	assert_int_equal(letter.envelope.tombstone, l->tombstone);
	assert_int_equal(letter.envelope.null_key, l->key == NULL);
	assert_true(rdv_slice_is(letter.envelope.key, l->key ? l->key : ""));
	assert_int_equal(letter.state, RDV_LETTER_NEW);
	assert_int_equal(letter.expires_at.ms, letter.envelope.dead_at.ms + 1000);
	rdv_letter_done(&letter);
	enum redrive_status status = rdv_desk_body(f->desk, id, &body);
	if (l->no_body) {
		assert_int_equal(status, REDRIVE_NOT_FOUND);
		return;
	}
	assert_int_equal(status, REDRIVE_OK);
	uint8_t *wanted = malloc(l->body_size + 1);
	fixture_body(l->offset, l->body_size, wanted);
	assert_int_equal(body->size, l->body_size);
	assert_memory_equal(body->data, wanted, l->body_size);
	free(wanted);
	rdv_block_unref(body);
}

/* pitfall: a tombstone on the dead-letter path */
/* pitfall: the key, null, empty or binary, in the dead-lettered copy */
static void store_keeps_every_letter_whole(void **state)
{
	static const struct fixture_letter letters[] = {
		{.offset = 1, .body_size = 0},
		{.offset = 2, .body_size = 0, .tombstone = true},
		{.offset = 3, .body_size = 0, .key = ""},
		{.offset = 4, .body_size = 312, .key = "o-17"},
		{.offset = 5, .body_size = (1 << 20) + 1, .key = "big"},
		{.offset = 6, .body_size = 3u << 20},
		{.offset = 7, .body_size = 900, .no_body = true, .reason = RDV_REASON_DAMAGED},
		{.offset = 8, .body_size = 262144},
	};
	struct fixture f;
	fixture_init(&f);
	fixture_open(&f);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		fixture_store(&f, &letters[i]);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		check_letter(&f, &letters[i]);
	fixture_reopen(&f);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		check_letter(&f, &letters[i]);
	fixture_done(&f);
}

/* pitfall: the dead-letter publish is repeated after an answer was lost */
static void store_takes_a_letter_once(void **state)
{
	struct fixture f;
	struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "";
	const struct fixture_letter l = {.offset = 9, .body_size = 100};
	fixture_init(&f);
	fixture_open(&f);
	for (int i = 0; i < 5; i++) /* mostly one batch */
		assert_int_equal(fixture_put(&f, &l), REDRIVE_OK);
	fixture_settle(&f);
	fixture_store(&f, &l);
	fixture_reopen(&f);
	fixture_store(&f, &l);
	assert_int_equal(f.stored, 7);
	assert_int_equal(fixture_list(&f, "", 10, cursor, &page), 1);
	fixture_done(&f);
}

static size_t count_files(const char *dir, const char *pattern)
{
	char path[128];
	glob_t g;
	snprintf(path, sizeof path, "%s/letters/%s", dir, pattern);
	size_t n = glob(path, 0, NULL, &g) == 0 ? g.gl_pathc : 0;
	globfree(&g);
	return n;
}

struct answered {
	struct fixture *f;
	unsigned found;
};

static void on_answer(void *ctx, uint64_t cookie, enum redrive_status status)
{
	struct answered *a = ctx;
	char id[27];
	if (status == REDRIVE_OK && rdv_desk_find(a->f->desk, "orders", "orders", 0, cookie, id) == REDRIVE_OK)
		a->found++;
	usleep(1000); /* meanwhile the writer takes the next batch */
	fixture_stored(a->f, cookie, status);
}

/* Each letter comes again and again while it is written, while it is indexed, and after that. */
static void letters_are_found_when_they_are_answered_and_stored_once_wherever_they_are_met(void **state)
{
	enum { LETTERS = 40, TIMES = 8 };
	struct fixture f;
	struct answered a = {.f = &f};
	struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "";
	fixture_init(&f);
	fixture_open(&f);
	for (int i = 0; i < LETTERS * TIMES; i++) {
		struct fixture_letter l = {.offset = (uint64_t)(i / TIMES + i % TIMES) % LETTERS, .body_size = 50};
		struct rdv_block *envelope, *body;
		fixture_blocks(&l, &envelope, &body);
		pthread_mutex_lock(&f.mutex);
		f.put++;
		pthread_mutex_unlock(&f.mutex);
		assert_int_equal(rdv_desk_put(f.desk, envelope, body, on_answer, &a, l.offset), REDRIVE_OK);
		if (i % 3 == 0)
			usleep(500);
	}
	fixture_settle(&f);
	assert_int_equal(f.stored, LETTERS * TIMES);
	assert_int_equal(a.found, LETTERS * TIMES);
	assert_int_equal(fixture_list(&f, "", 1000, cursor, &page), LETTERS);
	fixture_reopen(&f);
	cursor[0] = 0;
	assert_int_equal(fixture_list(&f, "", 1000, cursor, &page), LETTERS);
	fixture_done(&f);
}

static void first_file(const char *dir, const char *pattern, char out[128])
{
	glob_t g;
	snprintf(out, 128, "%s/letters/%s", dir, pattern);
	assert_int_equal(glob(out, 0, NULL, &g), 0);
	snprintf(out, 128, "%s", g.gl_pathv[0]);
	globfree(&g);
}

static void store_rolls_by_letters_by_bytes_and_by_day(void **state)
{
	struct fixture f;
	struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "";
	fixture_init(&f);
	f.options.segment_letters = 10;
	fixture_open(&f);
	for (uint64_t i = 0; i < 25; i++)
		fixture_store(&f, &(struct fixture_letter){.offset = i, .body_size = 50});
	assert_int_equal(count_files(f.dir, "20260921-*.seg"), 3);
	fixture_close(&f);
	f.options.segment_letters = 0;
	f.options.segment_bytes = 1000;
	fixture_open(&f);
	for (uint64_t i = 25; i < 28; i++)
		fixture_store(&f, &(struct fixture_letter){.offset = i, .body_size = 2000});
	assert_in_range(count_files(f.dir, "20260921-*.seg"), 4, 6);
	pthread_mutex_lock(&f.mutex);
	f.now = FIXTURE_T0 + 86400000;
	pthread_mutex_unlock(&f.mutex);
	fixture_store(&f, &(struct fixture_letter){.offset = 28});
	assert_int_equal(count_files(f.dir, "20260922-*.seg"), 1);
	f.now = FIXTURE_T0; /* a clock set back makes no new segment */
	fixture_store(&f, &(struct fixture_letter){.offset = 29});
	assert_int_equal(count_files(f.dir, "20260922-*.seg"), 1);
	for (int round = 0; round < 2; round++) {
		cursor[0] = 0;
		assert_int_equal(fixture_list(&f, "", 100, cursor, &page), 30);
		for (uint64_t i = 0; i < 30; i++)
			check_letter(&f, &(struct fixture_letter){.offset = i,
								  .body_size = i < 25   ? 50
									       : i < 28 ? 2000
											: 0});
		fixture_reopen(&f);
	}
	fixture_done(&f);
}

static void intake_never_blocks_and_is_bounded(void **state)
{
	struct fixture f;
	struct rdv_error error = {{0}};
	static const struct rdv_desk_runtime none;
	fixture_init(&f);
	assert_int_equal(rdv_desk_open(&f.options, &f.desk, &error), REDRIVE_OK);
	/* Nobody takes anything out yet. */
	enum redrive_status status = REDRIVE_OK;
	uint64_t taken = 0;
	for (; taken < 100000 && status == REDRIVE_OK; taken += status == REDRIVE_OK)
		status = fixture_put(&f, &(struct fixture_letter){.offset = taken, .body_size = 10});
	assert_int_equal(status, REDRIVE_FULL);
	assert_in_range(taken, 1000, 32768);
	assert_int_equal(rdv_desk_waiting(f.desk), taken);
	assert_int_equal(rdv_desk_start(f.desk, &none, &error), REDRIVE_OK);
	fixture_settle(&f);
	assert_int_equal(f.stored, taken);
	/* One letter larger than the whole queue still gets in. */
	fixture_store(&f, &(struct fixture_letter){.offset = 1000000, .body_size = 33u << 20});
	rdv_desk_stop(f.desk);
	assert_int_equal(rdv_desk_waiting(f.desk), 0);
	assert_int_equal(fixture_put(&f, &(struct fixture_letter){.offset = 1000001}), REDRIVE_CLOSED);
	fixture_done(&f);
}

/* When many letters come they are gathered for a moment, but a whole batch does not wait. */
static void intake_does_not_wait_for_more_than_a_batch(void **state)
{
	struct fixture f;
	struct rdv_error error = {{0}};
	static const struct rdv_desk_runtime none;
	struct timespec begin, end;
	fixture_init(&f);
	assert_int_equal(rdv_desk_open(&f.options, &f.desk, &error), REDRIVE_OK);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	f.desk->intake.gathers = true;
	f.desk->intake.gather_until = begin;
	f.desk->intake.gather_until.tv_sec += 25;
	for (uint64_t i = 0; i < RDV_DESK_BATCH_LETTERS; i++)
		assert_int_equal(fixture_put(&f, &(struct fixture_letter){.offset = i}), REDRIVE_OK);
	assert_int_equal(rdv_desk_start(f.desk, &none, &error), REDRIVE_OK);
	fixture_settle(&f);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_in_range(end.tv_sec - begin.tv_sec, 0, 20);
	fixture_done(&f);
}

static void taking_in_waits_for_no_question(void **state)
{
	struct fixture f;
	struct rdv_desk_reader *readers[RDV_DESK_READERS];
	const struct fixture_letter l = {.offset = 9, .body_size = 100};
	fixture_init(&f);
	fixture_open(&f);
	fixture_store(&f, &l);
	for (size_t i = 0; i < RDV_DESK_READERS; i++)
		readers[i] = rdv_desk_reader_take(&f.desk->store);
	for (int i = 0; i < 3; i++) /* here already, and so looked for: among what is indexed, too */
		fixture_store(&f, &l);
	for (size_t i = 0; i < RDV_DESK_READERS; i++)
		rdv_desk_reader_give(&f.desk->store, readers[i]);
	fixture_done(&f);
}

static void intake_refuses_an_envelope_that_is_none(void **state)
{
	struct fixture f;
	fixture_init(&f);
	fixture_open(&f);
	struct rdv_block *envelope = rdv_block_copy(rdv_slice_text("\x01nonsense"));
	assert_int_equal(rdv_desk_put(f.desk, envelope, NULL, fixture_stored, &f, 0), REDRIVE_OK);
	f.put++;
	fixture_settle(&f);
	assert_int_equal(f.failed, 1);
	assert_int_equal(f.last_failure, REDRIVE_CORRUPT);
	fixture_store(&f, &(struct fixture_letter){.offset = 1});
	fixture_done(&f);
}

/* ---- damage ---- */

static void change_file(const char *path, long at, uint8_t mask)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= mask;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void remove_indexes(const char *dir)
{
	char path[128];
	glob_t g;
	snprintf(path, sizeof path, "%s/letters/*.db*", dir);
	if (glob(path, 0, NULL, &g) == 0)
		for (size_t i = 0; i < g.gl_pathc; i++)
			unlink(g.gl_pathv[i]);
	globfree(&g);
}

static void torn_tail_is_cut_and_said(void **state)
{
	struct fixture f;
	char path[128];
	struct stat st;
	fixture_init(&f);
	fixture_open(&f);
	for (uint64_t i = 0; i < 5; i++)
		fixture_store(&f, &(struct fixture_letter){.offset = i, .body_size = 50});
	fixture_close(&f);
	first_file(f.dir, "*.seg", path);
	assert_int_equal(stat(path, &st), 0);
	int fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, "RDVBLOCKhalf a header", 21), 21);
	close(fd);
	fixture_open(&f);
	assert_int_equal(f.said[1], 1);
	assert_non_null(strstr(f.last_said[1], "torn tail of 21 bytes"));
	assert_int_equal(f.said[0], 0);
	struct stat after;
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_size, st.st_size);
	for (uint64_t i = 0; i < 5; i++)
		check_letter(&f, &(struct fixture_letter){.offset = i, .body_size = 50});
	fixture_store(&f, &(struct fixture_letter){.offset = 5, .body_size = 50});
	fixture_done(&f);
}

/* Every byte of a segment is damaged in turn: what is lost is said, what is not damaged is whole, the letter can be
 * taken in again. */
static void damage_is_said_and_hides_nothing_else(void **state)
{
	enum { LETTERS = 4 };
	struct fixture f;
	char path[128];
	struct stat st;
	fixture_init(&f);
	fixture_open(&f);
	for (uint64_t i = 0; i < LETTERS; i++) /* one block each */
		fixture_store(&f, &(struct fixture_letter){.offset = i, .body_size = 30});
	fixture_close(&f);
	first_file(f.dir, "*.seg", path);
	assert_int_equal(stat(path, &st), 0);
	for (long at = 0; at < st.st_size; at += 31) {
		size_t readable = 0;
		remove_indexes(f.dir);
		change_file(path, at, 0x41);
		memset(f.said, 0, sizeof f.said);
		struct rdv_error error = {{0}};
		enum redrive_status status = fixture_try_open(&f, &error);
		if (at >= 8 && at < 12) { /* the version */
			assert_int_equal(status, REDRIVE_VERSION);
			change_file(path, at, 0x41);
			continue;
		}
		assert_int_equal(status, REDRIVE_OK);
		for (uint64_t i = 0; i < LETTERS; i++) {
			const struct fixture_letter l = {.offset = i, .body_size = 30};
			char id[27];
			struct rdv_letter letter;
			fixture_id(&l, id);
			status = rdv_desk_get(f.desk, id, &letter);
			assert_true(status == REDRIVE_OK || status == REDRIVE_NOT_FOUND);
			if (status == REDRIVE_OK) {
				rdv_letter_done(&letter);
				check_letter(&f, &l);
				readable++;
			}
		}
		/* The last anchor may be what was hit: then nothing is lost, and the tail is cut. */
		assert_true(readable >= LETTERS - 1);
		assert_true(f.said[0] + f.said[1] > 0);
		if (readable < LETTERS)
			assert_true(f.said[0] > 0);
		fixture_close(&f);
		/* A new segment, if one was begun, goes; the byte is as it was. */
		change_file(path, at, 0x41);
		if (stat(path, &st) == 0 && at >= st.st_size)
			break;
	}
	fixture_done(&f);
}

static void damaged_letter_can_be_taken_in_again(void **state)
{
	struct fixture f;
	char path[128], id[27];
	struct rdv_letter letter;
	const struct fixture_letter first = {.offset = 0, .body_size = 30}, second = {.offset = 1, .body_size = 30};
	fixture_init(&f);
	fixture_open(&f);
	fixture_store(&f, &first);
	fixture_store(&f, &second);
	first_file(f.dir, "*.seg", path);
	change_file(path, 64 + 56 + 4, 0x10);
	fixture_id(&first, id);
	assert_int_equal(rdv_desk_get(f.desk, id, &letter), REDRIVE_CORRUPT);
	check_letter(&f, &second);
	fixture_store(&f, &first);
	check_letter(&f, &first);
	fixture_reopen(&f);
	check_letter(&f, &first);
	check_letter(&f, &second);
	fixture_done(&f);
}

static void newer_version_is_refused_and_nothing_changes(void **state)
{
	struct fixture f;
	char path[128];
	struct rdv_error error = {{0}};
	fixture_init(&f);
	fixture_open(&f);
	fixture_store(&f, &(struct fixture_letter){.offset = 1});
	fixture_close(&f);
	first_file(f.dir, "*.seg", path);
	change_file(path, 8, 3);
	assert_int_equal(fixture_try_open(&f, &error), REDRIVE_VERSION);
	assert_non_null(strstr(error.text, ".seg"));
	change_file(path, 8, 3);
	fixture_open(&f);
	check_letter(&f, &(struct fixture_letter){.offset = 1});
	fixture_done(&f);
}

static void copy_file(const char *from, const char *to)
{
	char command[300];
	snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
}

/* A segment holds a good block behind the end that the next one's header tells (a failed sync left it there): its
 * letter came again, and counts once. */
static void block_behind_the_told_end_never_counts(void **state)
{
	struct fixture f;
	struct fixture_page page;
	char path[128], shorter[80], longer[80], cursor[RDV_CURSOR_TEXT] = "";
	fixture_init(&f);
	snprintf(shorter, sizeof shorter, "%s/shorter", f.dir);
	snprintf(longer, sizeof longer, "%s/longer", f.dir);
	fixture_open(&f);
	fixture_store(&f, &(struct fixture_letter){.offset = 0, .body_size = 30});
	fixture_close(&f);
	first_file(f.dir, "*.seg", path);
	copy_file(path, shorter);
	fixture_open(&f);
	fixture_store(&f, &(struct fixture_letter){.offset = 1, .body_size = 30});
	fixture_close(&f);
	copy_file(path, longer);
	copy_file(shorter, path);
	remove_indexes(f.dir);
	f.options.segment_letters = 1;
	fixture_open(&f);
	fixture_store(&f, &(struct fixture_letter){.offset = 1, .body_size = 30});
	fixture_close(&f);
	copy_file(longer, path);
	remove_indexes(f.dir);
	fixture_open(&f);
	assert_int_equal(fixture_list(&f, "", 10, cursor, &page), 2);
	for (uint64_t i = 0; i < 2; i++)
		check_letter(&f, &(struct fixture_letter){.offset = i, .body_size = 30});
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store_keeps_every_letter_whole),
		cmocka_unit_test(store_takes_a_letter_once),
		cmocka_unit_test(letters_are_found_when_they_are_answered_and_stored_once_wherever_they_are_met),
		cmocka_unit_test(store_rolls_by_letters_by_bytes_and_by_day),
		cmocka_unit_test(intake_never_blocks_and_is_bounded),
		cmocka_unit_test(intake_does_not_wait_for_more_than_a_batch),
		cmocka_unit_test(taking_in_waits_for_no_question),
		cmocka_unit_test(intake_refuses_an_envelope_that_is_none),
		cmocka_unit_test(torn_tail_is_cut_and_said),
		cmocka_unit_test(damage_is_said_and_hides_nothing_else),
		cmocka_unit_test(damaged_letter_can_be_taken_in_again),
		cmocka_unit_test(block_behind_the_told_end_never_counts),
		cmocka_unit_test(newer_version_is_refused_and_nothing_changes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
