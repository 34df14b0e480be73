/* test_index.c - the index is never the truth: it is made again when it is missing, foreign, damaged or of an unclean
 * end; lists and finds. */
#include "fixture.h"
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include "desk/filter.h"

static void each_index(const char *dir, void (*deed)(const char *path))
{
	char pattern[128];
	glob_t g;
	snprintf(pattern, sizeof pattern, "%s/letters/*.db", dir);
	assert_int_equal(glob(pattern, 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc; i++)
		deed(g.gl_pathv[i]);
	globfree(&g);
}

static void removed(const char *path)
{
	unlink(path);
}
static void emptied(const char *path)
{
	assert_int_equal(truncate(path, 0), 0);
}
static void garbage(const char *path)
{
	FILE *f = fopen(path, "w");
	for (int i = 0; i < 9000; i++)
		fputc(i * 7, f);
	fclose(f);
}
static void cut(const char *path)
{
	assert_int_equal(truncate(path, 8192), 0);
}
static void changed(const char *path, const char *sql)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}
static void of_another_boot(const char *path)
{
	changed(path, "UPDATE meta SET value = 'open' WHERE name = 'state'; UPDATE meta SET value = 'other' WHERE name "
		      "= 'boot';"
		      " DELETE FROM letter; DELETE FROM term");
}
static void of_another_version(const char *path)
{
	changed(path, "PRAGMA user_version = 99; DELETE FROM letter");
}
static void short_of_some(const char *path)
{
	changed(path, "UPDATE meta SET value = 64 WHERE name = 'bytes'; DELETE FROM letter; DELETE FROM term; DELETE "
		      "FROM run");
}

static void index_that_cannot_be_trusted_is_made_again(void **state)
{
	static void (*const deeds[])(const char *path) = {
		removed, emptied, garbage, cut, of_another_boot, of_another_version, short_of_some};
	for (size_t i = 0; i < sizeof deeds / sizeof deeds[0]; i++) {
		struct fixture f;
		struct fixture_page before, after;
		char cursor[RDV_CURSOR_TEXT] = "";
		fixture_init(&f);
		f.options.segment_letters = 40;
		fixture_open(&f);
		fixture_fill(&f, &(struct fixture_letter){.body_size = 300, .key = "k"}, 0, 100);
		fixture_list(&f, "key:k", 1000, cursor, &before);
		fixture_close(&f);
		each_index(f.dir, deeds[i]);
		fixture_open(&f);
		assert_int_equal(fixture_list(&f, "key:k", 1000, cursor, &after), 100);
		assert_memory_equal(before.ids, after.ids, 100 * 27);
		/* And taking in still knows what is here. */
		fixture_store(&f, &(struct fixture_letter){.offset = 5, .body_size = 300, .key = "k"});
		assert_int_equal(fixture_list(&f, "key:k", 1000, cursor, &after), 100);
		fixture_done(&f);
	}
}

/* ---- a killed process ---- */

struct child {
	struct fixture f;
	int out;
};

static void child_stored(void *ctx, uint64_t cookie, enum redrive_status status)
{
	struct child *c = ctx;
	uint32_t offset = (uint32_t)cookie;
	if (status == REDRIVE_OK && write(c->out, &offset, 4) != 4)
		_exit(1);
	fixture_stored(&c->f, cookie, status);
}

static void child_main(struct child *c)
{
	fixture_open(&c->f);
	for (uint64_t i = 0;; i++) {
		struct fixture_letter l = {.offset = i, .body_size = i % 7 * 300, .key = "k"};
		struct rdv_block *envelope, *body;
		fixture_blocks(&l, &envelope, &body);
		while (rdv_desk_waiting(c->f.desk) > 200)
			usleep(100);
		if (rdv_desk_put(c->f.desk, envelope, body, child_stored, c, i) != REDRIVE_OK)
			_exit(2);
	}
}

/* What the child reported as stored before it was killed. */
static uint32_t kill_child(struct child *c, uint32_t after)
{
	int ends[2];
	uint32_t offset, most = 0, reports = 0;
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		c->out = ends[1];
		child_main(c);
	}
	close(ends[1]);
	while (read(ends[0], &offset, 4) == 4) {
		most = offset > most ? offset : most;
		if (++reports == after)
			kill(pid, SIGKILL);
	}
	close(ends[0]);
	waitpid(pid, NULL, 0);
	assert_true(reports >= after);
	return most;
}

/* The process is killed at a random moment, index, segment and all: each letter that was answered is found, once. */
static void killed_process_loses_no_answered_letter(void **state)
{
	for (int round = 0; round < 8; round++) {
		static struct fixture_page page;
		struct child c = {.out = -1};
		char cursor[RDV_CURSOR_TEXT] = "";
		fixture_init(&c.f);
		c.f.options.segment_letters = 300;
		uint32_t most = kill_child(&c, (uint32_t)(50 + round * 167));
		fixture_open(&c.f);
		static uint8_t seen[1 << 20];
		memset(seen, 0, sizeof seen);
		do {
			fixture_list(&c.f, "key:k", 900, cursor, &page);
			for (size_t i = 0; i < page.count; i++)
				seen[page.offsets[i]]++;
		} while (cursor[0]);
		for (uint32_t i = 0; i <= most; i++)
			assert_int_equal(seen[i], 1);
		fixture_store(&c.f, &(struct fixture_letter){.offset = 3, .body_size = 900, .key = "k"});
		fixture_store(&c.f, &(struct fixture_letter){.offset = 500000});
		fixture_done(&c.f);
	}
}

/* ---- lists ---- */

static void list_filters_by_route_reason_key_and_time(void **state)
{
	static const struct fixture_letter letters[] = {
		{.offset = 0, .route = "a", .key = "x", .reason = RDV_REASON_REJECTED, .dead_at = FIXTURE_T0},
		{.offset = 1, .route = "a", .key = "y", .reason = RDV_REASON_EXHAUSTED, .dead_at = FIXTURE_T0 + 10},
		{.offset = 2,
		 .route = "b",
		 .key = "x",
		 .reason = RDV_REASON_EXHAUSTED,
		 .dead_at = FIXTURE_T0 + 86400000},
		{.offset = 3, .route = "b", .reason = RDV_REASON_EXPIRED, .dead_at = FIXTURE_T0 + 2 * 86400000ll},
		{.offset = 4, .route = "ab", .key = "", .reason = RDV_REASON_CRASHED, .dead_at = FIXTURE_T0 - 5},
	};
	static const struct {
		const char *q;
		const char *offsets; /* newest first */
	} table[] = {
		{"", "32104"},
		{"route:a", "10"},
		{"route:b", "32"},
		{"reason:exhausted", "21"},
		{"key:x", "20"},
		{"key:\"\"", "4"},
		{"route:a key:x", "0"},
		{"route:b key:y", ""},
		{"route:a reason:exhausted", "1"},
		{"route:a reason:rejected key:x", "0"},
		{"dead:2026-09-22", "2"},
		{"dead:2026-09-21..2026-09-22", "2104"},
		{"dead:2026-09-22..", "32"},
		{"dead:..2026-09-21", "104"},
		{"key:x dead:2026-09-22..2026-09-23", "2"},
		{"route:nobody", ""},
	};
	struct fixture f;
	struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "";
	fixture_init(&f);
	f.options.segment_letters = 2;
	fixture_open(&f);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		fixture_store(&f, &letters[i]);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char got[16] = "";
		fixture_list(&f, table[i].q, 10, cursor, &page);
		for (size_t n = 0; n < page.count; n++)
			got[n] = (char)('0' + page.offsets[n]);
		if (strcmp(got, table[i].offsets) != 0)
			fail_msg("'%s': '%s', not '%s'", table[i].q, got, table[i].offsets);
		assert_string_equal(cursor, "");
	}
	fixture_done(&f);
}

/* Pages of 7 over segments of 50 and times that go up, down and stand still; new letters arrive between the pages. */
static void cursor_is_stable_while_letters_arrive(void **state)
{
	for (int oldest = 0; oldest < 2; oldest++) {
		enum { LETTERS = 400 };
		struct fixture f;
		static struct fixture_page page;
		unsigned seen[LETTERS] = {0};
		char cursor[RDV_CURSOR_TEXT] = "";
		struct rdv_query q = {0};
		struct rdv_error error = {{0}};
		int64_t last = oldest ? INT64_MIN : INT64_MAX;
		struct rdv_random random;
		rdv_random_seed(&random, 3);
		fixture_init(&f);
		f.options.segment_letters = 50;
		fixture_open(&f);
		for (uint64_t i = 0; i < LETTERS; i++)
			fixture_put(&f, &(struct fixture_letter){.offset = i,
								 .dead_at = FIXTURE_T0 +
									    (int64_t)rdv_random_below(&random, 60)});
		fixture_settle(&f);
		for (uint64_t n = LETTERS;; n++) {
			page.count = 0;
			assert_int_equal(rdv_desk_list(f.desk, &q, oldest, 7, cursor, fixture_each, &page, &error),
					 REDRIVE_OK);
			for (size_t i = 0; i < page.count; i++) {
				assert_true(oldest ? page.dead_at[i] >= last : page.dead_at[i] <= last);
				last = page.dead_at[i];
				if (page.offsets[i] < LETTERS)
					seen[page.offsets[i]]++;
			}
			if (!cursor[0])
				break;
			assert_int_equal(page.count, 7);
			fixture_put(&f, &(struct fixture_letter){.offset = n,
								 .dead_at = FIXTURE_T0 +
									    (int64_t)rdv_random_below(&random, 60)});
			fixture_settle(&f);
			if (n == LETTERS + 20)
				fixture_reopen(&f);
		}
		for (int i = 0; i < LETTERS; i++)
			assert_int_equal(seen[i], 1);
		fixture_done(&f);
	}
}

static void cursor_of_another_list_is_invalid(void **state)
{
	struct fixture f;
	struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "";
	struct rdv_query q;
	struct rdv_error error = {{0}};
	fixture_init(&f);
	fixture_open(&f);
	fixture_fill(&f, &(struct fixture_letter){0}, 0, 5);
	fixture_list(&f, "", 2, cursor, &page);
	assert_true(cursor[0] != 0);
	fixture_parse("route:orders", &q);
	char other[RDV_CURSOR_TEXT];
	memcpy(other, cursor, sizeof other);
	assert_int_equal(rdv_desk_list(f.desk, &q, false, 2, other, fixture_each, &page, &error), REDRIVE_INVALID);
	rdv_query_done(&q);
	memset(&q, 0, sizeof q);
	memcpy(other, cursor, sizeof other);
	assert_int_equal(rdv_desk_list(f.desk, &q, true, 2, other, fixture_each, &page, &error), REDRIVE_INVALID);
	static const char *const bad[] = {"x", "zzzz", "0000", "%s%n", "-1"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		snprintf(other, sizeof other, "%s", bad[i]);
		assert_int_equal(rdv_desk_list(f.desk, &q, false, 2, other, fixture_each, &page, &error),
				 REDRIVE_INVALID);
	}
	assert_int_equal(rdv_desk_list(f.desk, &q, false, 0, cursor, fixture_each, &page, &error), REDRIVE_INVALID);
	fixture_done(&f);
}

static void find_gives_the_latest_generation_of_a_message_on_a_route(void **state)
{
	struct fixture f;
	char id[27], wanted[27];
	fixture_init(&f);
	f.options.segment_letters = 2;
	fixture_open(&f);
	for (uint32_t g = 0; g < 3; g++)
		fixture_store(&f, &(struct fixture_letter){.offset = 7, .generation = g});
	fixture_store(&f, &(struct fixture_letter){.offset = 7, .route = "other", .generation = 9});
	fixture_store(&f, &(struct fixture_letter){.offset = 8});
	fixture_id(&(struct fixture_letter){.offset = 7, .generation = 2}, wanted);
	assert_int_equal(rdv_desk_find(f.desk, "orders", "orders", 0, 7, id), REDRIVE_OK);
	assert_string_equal(id, wanted);
	assert_int_equal(rdv_desk_find(f.desk, "orders", "orders", 1, 7, id), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_desk_find(f.desk, "orders", "orders", 0, 9, id), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_desk_get(f.desk, "not-an-id", NULL), REDRIVE_NOT_FOUND);
	fixture_done(&f);
}

/* More letters than a run holds: pages and ids cross the runs. */
static void runs_of_a_segment_are_one_list(void **state)
{
	enum { LETTERS = 70000 };
	struct fixture f;
	static struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "", id[27];
	struct rdv_letter l;
	size_t total = 0;
	int64_t last = INT64_MAX;
	fixture_init(&f);
	fixture_open(&f);
	fixture_fill(&f, &(struct fixture_letter){.key = "k"}, 0, LETTERS);
	assert_int_equal(f.stored, LETTERS);
	do {
		fixture_list(&f, "key:k dead:2026-09-21..", 1000, cursor, &page);
		for (size_t i = 0; i < page.count; i++) {
			assert_true(page.dead_at[i] < last);
			last = page.dead_at[i];
		}
		total += page.count;
	} while (cursor[0]);
	assert_int_equal(total, LETTERS);
	fixture_id(&(struct fixture_letter){.offset = 66000, .key = "k"}, id);
	assert_int_equal(rdv_desk_get(f.desk, id, &l), REDRIVE_OK);
	rdv_letter_done(&l);
	fixture_done(&f);
}

static void filter_never_says_no_to_what_it_has(void **state)
{
	struct rdv_desk_filter f;
	struct rdv_random random;
	uint64_t id[2];
	unsigned wrong = 0;
	rdv_desk_filter_init(&f);
	rdv_random_seed(&random, 1);
	for (int i = 0; i < 200000; i++) {
		id[0] = rdv_random_next(&random);
		id[1] = rdv_random_next(&random);
		assert_int_equal(rdv_desk_filter_add(&f, (uint8_t *)id), REDRIVE_OK);
	}
	for (int i = 0; i < 200000; i++) {
		id[0] = rdv_random_next(&random);
		id[1] = rdv_random_next(&random);
		wrong += rdv_desk_filter_maybe(&f, (uint8_t *)id);
	}
	rdv_random_seed(&random, 1);
	for (int i = 0; i < 200000; i++) {
		id[0] = rdv_random_next(&random);
		id[1] = rdv_random_next(&random);
		assert_true(rdv_desk_filter_maybe(&f, (uint8_t *)id));
	}
	assert_true(wrong < 2000); /* under 1 % over three layers */
	rdv_desk_filter_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(index_that_cannot_be_trusted_is_made_again),
		cmocka_unit_test(killed_process_loses_no_answered_letter),
		cmocka_unit_test(list_filters_by_route_reason_key_and_time),
		cmocka_unit_test(cursor_is_stable_while_letters_arrive),
		cmocka_unit_test(cursor_of_another_list_is_invalid),
		cmocka_unit_test(find_gives_the_latest_generation_of_a_message_on_a_route),
		cmocka_unit_test(runs_of_a_segment_are_one_list),
		cmocka_unit_test(filter_never_says_no_to_what_it_has),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
