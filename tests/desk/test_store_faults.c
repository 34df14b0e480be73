/* test_store_faults.c - letter segments on a disk that fails, fills up and loses power.
 *
 * The rule behind every test: a letter that was answered OK is there, whole and once, whatever happened; a letter that
 * was answered with an error is nobody's loss, since its lane still has it and puts it again. Segments lie in the
 * faulty file layer; the indexes are SQLite's own files, which are removed where a test plays a machine that went down.
 */
#include "fixture.h"
#include <errno.h>
#include <glob.h>
#include "log/faulty_files.h"

#define LETTERS 24

struct world {
	struct fixture f;
	struct rdv_faulty *disk;
	bool ok[LETTERS];
	unsigned answered, rejected;
};

static void answered(void *ctx, uint64_t cookie, enum redrive_status status)
{
	struct world *w = ctx;
	pthread_mutex_lock(&w->f.mutex);
	if (status == REDRIVE_OK)
		w->ok[cookie] = true;
	else
		w->rejected++;
	w->answered++;
	pthread_cond_broadcast(&w->f.changed);
	pthread_mutex_unlock(&w->f.mutex);
}

static struct fixture_letter letter(uint64_t i)
{
	return (struct fixture_letter){.offset = i, .body_size = i % 5 * 700, .key = i % 2 ? "k" : NULL};
}

/* Puts every letter that is not stored yet, a few at a time, and waits for the answers. */
static void put_missing(struct world *w)
{
	for (uint64_t i = 0; i < LETTERS;) {
		unsigned wanted = w->answered, n = 0;
		for (; i < LETTERS && n < 3; i++) {
			struct fixture_letter l = letter(i);
			struct rdv_block *envelope, *body;
			if (w->ok[i])
				continue;
			fixture_blocks(&l, &envelope, &body);
			assert_int_equal(rdv_desk_put(w->f.desk, envelope, body, answered, w, i), REDRIVE_OK);
			n++;
		}
		pthread_mutex_lock(&w->f.mutex);
		while (w->answered < wanted + n)
			pthread_cond_wait(&w->f.changed, &w->f.mutex);
		pthread_mutex_unlock(&w->f.mutex);
	}
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

static void world_init(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	fixture_init(&w->f);
	w->disk = rdv_faulty_new(seed);
	w->f.options.files = &rdv_faulty_ops;
	w->f.options.files_ctx = w->disk;
	w->f.options.segment_letters = 10;
}

static void world_done(struct world *w)
{
	fixture_done(&w->f);
	rdv_faulty_free(w->disk);
}

/* Everything answered OK is whole; nothing is there twice. */
static void check(struct world *w)
{
	struct fixture_page page;
	char cursor[RDV_CURSOR_TEXT] = "";
	unsigned seen[LETTERS] = {0};
	fixture_list(&w->f, "", 1000, cursor, &page);
	for (size_t i = 0; i < page.count; i++)
		seen[page.offsets[i]]++;
	for (uint64_t i = 0; i < LETTERS; i++) {
		struct fixture_letter l = letter(i);
		struct rdv_block *body = NULL;
		uint8_t wanted[4000];
		char id[27];
		assert_true(seen[i] <= 1);
		if (!w->ok[i])
			continue;
		assert_int_equal(seen[i], 1);
		fixture_id(&l, id);
		assert_int_equal(rdv_desk_body(w->f.desk, id, &body), REDRIVE_OK);
		fixture_body(i, l.body_size, wanted);
		assert_int_equal(body->size, l.body_size);
		assert_memory_equal(body->data, wanted, l.body_size);
		rdv_block_unref(body);
	}
}

static bool all_stored(const struct world *w)
{
	for (int i = 0; i < LETTERS; i++)
		if (!w->ok[i])
			return false;
	return true;
}

/* One call fails, and then no more: letters that got an error are put again; in the end all are there, once. */
static void every_failing_call_costs_an_error_and_no_letter(void **state)
{
	static const struct {
		unsigned calls;
		int err;
	} kinds[] = {{RDV_CALL_WRITE, EIO},
		     {RDV_CALL_WRITE, ENOSPC},
		     {RDV_CALL_SYNC, EIO},
		     {RDV_CALL_SYNC_DIR, EIO},
		     {RDV_CALL_OPEN, EMFILE},
		     {RDV_CALL_OTHER, EIO},
		     {RDV_CALL_ALL & ~RDV_CALL_READ, EIO}};
	unsigned rejected = 0;
	for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
		for (uint64_t nth = 1;; nth++) {
			struct world w;
			world_init(&w, nth * 31 + kind);
			fixture_open(&w.f);
			rdv_faulty_fail(w.disk, kinds[kind].calls, nth, kinds[kind].err, false);
			put_missing(&w);
			bool fired = rdv_faulty_fired(w.disk) > 0;
			rdv_faulty_fail(w.disk, 0, 0, 0, false);
			check(&w);
			put_missing(&w);
			assert_true(all_stored(&w));
			check(&w);
			fixture_close(&w.f);
			if (nth % 2)
				remove_indexes(w.f.dir);
			fixture_open(&w.f);
			check(&w);
			assert_int_equal(w.f.said[0] > 0, w.rejected > 0);
			rejected += w.rejected;
			world_done(&w);
			if (!fired)
				break;
			assert_true(nth < 200);
		}
	}
	assert_true(rejected > 20);
}

/* A sync fails and the file cannot be cut back: its letters lie there, were answered with an error, and come again in
 * the next segment. They count once. */
static void what_lies_behind_the_end_of_a_left_segment_never_counts(void **state)
{
	for (uint64_t nth = 1; nth <= 6; nth++) {
		struct world w;
		world_init(&w, nth);
		fixture_open(&w.f);
		fixture_store(&w.f, &(struct fixture_letter){.offset = 900, .route = "first"});
		rdv_faulty_fail(w.disk, RDV_CALL_SYNC | RDV_CALL_OTHER, nth, EIO, true);
		put_missing(&w);
		rdv_faulty_fail(w.disk, 0, 0, 0, false);
		assert_true(w.rejected > 0);
		put_missing(&w);
		assert_true(all_stored(&w));
		fixture_close(&w.f);
		remove_indexes(w.f.dir);
		fixture_open(&w.f);
		struct fixture_page page;
		char cursor[RDV_CURSOR_TEXT] = "";
		assert_int_equal(fixture_list(&w.f, "", 1000, cursor, &page), LETTERS + 1);
		world_done(&w);
	}
}

/* Power fails behind the nth call; what was answered before is there. Then it goes on. */
static void power_loss_at_any_call_loses_nothing_that_was_answered(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world w;
		world_init(&w, seed);
		fixture_open(&w.f);
		rdv_faulty_short_writes(w.disk, seed % 3 == 0);
		rdv_faulty_fail(w.disk, RDV_CALL_ALL & ~RDV_CALL_READ, 1 + seed % 40, EIO, true);
		put_missing(&w);
		rdv_faulty_power_loss(w.disk);
		fixture_close(&w.f);
		rdv_faulty_fail(w.disk, 0, 0, 0, false);
		if (seed % 4)
			remove_indexes(w.f.dir);
		w.f.said[0] = 0;
		fixture_open(&w.f);
		assert_int_equal(w.f.said[0], 0); /* torn is not damaged */
		check(&w);
		put_missing(&w);
		if (!all_stored(&w))
			fail_msg("seed %llu: %s", (unsigned long long)seed, w.f.last_said[0]);
		check(&w);
		fixture_reopen(&w.f);
		check(&w);
		world_done(&w);
	}
}

/* The process dies without a word at a random moment: the desk is never closed, a second one opens the same files. */
static void process_death_needs_no_close(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct world w;
		world_init(&w, seed);
		fixture_open(&w.f);
		rdv_faulty_fail(w.disk, RDV_CALL_WRITE | RDV_CALL_SYNC, 1 + seed % 15, EIO, true);
		put_missing(&w);
		rdv_faulty_process_death(w.disk);
		fixture_close(&w.f); /* its calls all fail by now */
		rdv_faulty_fail(w.disk, 0, 0, 0, false);
		fixture_open(&w.f);
		check(&w);
		put_missing(&w);
		check(&w);
		world_done(&w);
	}
}

static void full_disk_is_told_as_full_and_ends_when_there_is_room(void **state)
{
	struct world w;
	world_init(&w, 5);
	fixture_open(&w.f);
	rdv_faulty_space(w.disk, 4096);
	put_missing(&w);
	assert_true(w.rejected > 0);
	check(&w);
	rdv_faulty_space(w.disk, 1u << 30);
	put_missing(&w);
	assert_true(all_stored(&w));
	check(&w);
	fixture_reopen(&w.f);
	check(&w);
	world_done(&w);
}

/* An index that cannot be written costs no letter: it is made again. */
static void index_that_fails_is_made_again(void **state)
{
	struct fixture f;
	char path[128];
	glob_t g;
	fixture_init(&f);
	fixture_open(&f);
	fixture_store(&f, &(struct fixture_letter){.offset = 1});
	/* Somebody destroys it under us. */
	snprintf(path, sizeof path, "%s/letters/*.db", f.dir);
	assert_int_equal(glob(path, 0, NULL, &g), 0);
	FILE *file = fopen(g.gl_pathv[0], "r+");
	for (int i = 0; i < 200000; i++)
		fputc(0xAA, file);
	fclose(file);
	snprintf(path, sizeof path, "%s-wal", g.gl_pathv[0]);
	assert_int_equal(truncate(path, 0), 0);
	globfree(&g);
	for (uint64_t i = 2; i < 8; i++)
		fixture_put(&f, &(struct fixture_letter){.offset = i});
	fixture_settle(&f);
	fixture_reopen(&f);
	for (uint64_t i = 1; i < 8; i++) {
		struct fixture_letter l = {.offset = i};
		char id[27];
		struct rdv_letter found;
		fixture_id(&l, id);
		if (rdv_desk_get(f.desk, id, &found) != REDRIVE_OK) {
			fixture_store(&f, &l); /* it was answered with an error */
			assert_true(f.failed > 0);
			continue;
		}
		rdv_letter_done(&found);
	}
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_failing_call_costs_an_error_and_no_letter),
		cmocka_unit_test(what_lies_behind_the_end_of_a_left_segment_never_counts),
		cmocka_unit_test(power_loss_at_any_call_loses_nothing_that_was_answered),
		cmocka_unit_test(process_death_needs_no_close),
		cmocka_unit_test(full_disk_is_told_as_full_and_ends_when_there_is_room),
		cmocka_unit_test(index_that_fails_is_made_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
