/* check, repair and dump on real files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include "log/log.h"
#include "log/scratch.h"
#include "log/segment.h"

struct fixture {
	char dir[64];
	struct rdv_log *log;
	struct rdv_position at[200];
	uint64_t seq, seen[200], last, count;
	struct rdv_error error;
	int bad;
	struct rdv_position bad_at[8];
	char bad_why[8][128];
};

static enum redrive_status fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct fixture *x = ctx;

	x->count++;
	assert_true(frame->seq > x->last);
	x->last = frame->seq;
	if (frame->payload.size == frame->length)
		assert_int_equal(frame->payload.data[frame->length - 1], (uint8_t)frame->seq);
	return REDRIVE_OK;
}

static enum redrive_status reopen(struct fixture *x)
{
	struct rdv_log_options options = {
		.dir = x->dir, .segment_size = 64 << 10, .capacity = 16 << 20, .hold_lock = true};

	x->count = x->last = 0;
	return rdv_log_open(&options, fold, x, &x->log, NULL, &x->error);
}

static void close_log(struct fixture *x)
{
	rdv_log_close(x->log);
	x->log = NULL;
}

/* 40 frames of 4,000 bytes in batches of two: segments 1 to 3. */
static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof *x);
	bool did;
	int i;

	assert_non_null(scratch_make(x->dir));
	assert_int_equal(reopen(x), REDRIVE_OK);
	for (i = 0; i < 20; i++) {
		int j;

		assert_int_equal(rdv_log_begin(x->log, RDV_LOG_OUTCOME, 8000, 2, 0), REDRIVE_OK);
		for (j = 0; j < 2; j++) {
			struct rdv_frame frame = {.type = 3, .seq = ++x->seq, .length = 4000, .hint_len = 8};

			memset(rdv_log_put(x->log, &frame), (int)x->seq, 4000);
			x->at[x->seq] = frame.position;
		}
		rdv_log_end(x->log, true, NULL);
		assert_int_equal(rdv_log_commit(x->log, 0, &did, &x->error), REDRIVE_OK);
	}
	close_log(x);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	close_log(x);
	scratch_remove(x->dir);
	free(x);
	return 0;
}

static void flip(struct fixture *x, struct rdv_position at, uint32_t by)
{
	char path[128];
	uint8_t byte;
	int fd;

	snprintf(path, sizeof path, "%s/%016x.seg", x->dir, at.segment);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at.offset + by), 1);
	byte ^= 0x20;
	assert_int_equal(pwrite(fd, &byte, 1, at.offset + by), 1);
	close(fd);
}

static void note(void *ctx, struct rdv_position at, const char *why)
{
	struct fixture *x = ctx;

	x->bad_at[x->bad % 8] = at;
	snprintf(x->bad_why[x->bad++ % 8], sizeof x->bad_why[0], "%s", why);
}

static enum redrive_status check(struct fixture *x, bool repair, struct rdv_log_report *report)
{
	x->bad = 0;
	return rdv_log_check(x->dir, repair, note, x, report, &x->error);
}

static void a_sound_log_checks_clean(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;

	assert_int_equal(check(x, false, &report), REDRIVE_OK);
	assert_int_equal(report.frames, 40);
	assert_int_equal(report.segments, 3);
	assert_int_equal(report.bytes, 40 * 4040);
	assert_int_equal(report.bad, 0);
	assert_false(report.tail_torn);
	assert_int_equal(rdv_log_dump(x->dir, fold, x, &x->error), REDRIVE_OK);
	assert_int_equal(x->count, 40);
}

static void check_lists_every_bad_place(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;

	flip(x, x->at[5], 100);
	flip(x, x->at[6], 3000);
	flip(x, x->at[20], 8);
	assert_int_equal(check(x, false, &report), REDRIVE_CORRUPT);
	assert_int_equal(report.bad, 2);
	assert_int_equal(report.frames, 37);
	assert_int_equal(x->bad, 2);
	assert_int_equal(x->bad_at[0].offset, x->at[5].offset);
	assert_string_equal(x->bad_why[0], "bad frame: frames 5 to 6 are lost");
	assert_int_equal(x->bad_at[1].segment, x->at[20].segment);
	assert_int_equal(x->bad_at[1].offset, x->at[20].offset);
	assert_string_equal(x->bad_why[1], "bad frame: frames 20 to 20 are lost");
	assert_non_null(strstr(x->error.text, "segment 1, offset"));
	assert_int_equal(reopen(x), REDRIVE_CORRUPT);
	assert_int_equal(x->count, 4);
}

static int aside(struct fixture *x, char out[256])
{
	DIR *d = opendir(x->dir);
	struct dirent *e;
	int files = 0;

	out[0] = '\0';
	while ((e = readdir(d)))
		if (strncmp(e->d_name, "before-repair-", 14) == 0)
			snprintf(out, 256, "%s/%.100s", x->dir, e->d_name);
	closedir(d);
	d = out[0] ? opendir(out) : NULL;
	while (d && (e = readdir(d)))
		files += strstr(e->d_name, ".seg") != NULL;
	if (d)
		closedir(d);
	return files;
}

static void repair_copies_first_and_keeps_every_good_frame(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;
	char copy[256];

	flip(x, x->at[5], 100);
	flip(x, x->at[20], 8);
	assert_int_equal(check(x, true, &report), REDRIVE_OK);
	assert_int_equal(x->bad, 2);
	assert_int_equal(aside(x, copy), 3);
	assert_int_equal(check(x, false, &report), REDRIVE_OK);
	assert_int_equal(report.frames, 38);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->count, 38);
	assert_int_equal(x->last, 40);
	close_log(x);
	/* The copies are what was there: damaged in the same places. */
	assert_int_equal(rdv_log_check(copy, false, note, x, &report, &x->error), REDRIVE_CORRUPT);
	assert_int_equal(report.frames, 38);
}

static void repair_goes_on_without_a_segment_or_its_header(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;
	char path[128];

	flip(x, (struct rdv_position){1, 0}, 18);
	snprintf(path, sizeof path, "%s/%016x.seg", x->dir, 2);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(check(x, false, &report), REDRIVE_CORRUPT);
	assert_int_equal(check(x, true, &report), REDRIVE_OK);
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_true(x->count > 10 && x->count < 40);
	assert_int_equal(x->last, 40);
}

static void damage_after_a_repair_is_noticed_again(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;

	flip(x, x->at[5], 100);
	assert_int_equal(check(x, true, &report), REDRIVE_OK);
	flip(x, (struct rdv_position){5, RDV_SEGMENT_START}, 2000); /* in the new log, nothing was appended since */
	assert_int_equal(reopen(x), REDRIVE_CORRUPT);
	assert_int_equal(check(x, false, &report), REDRIVE_CORRUPT);
	assert_int_equal(report.bad, 1);
}

static void a_torn_tail_is_no_damage(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;

	flip(x, x->at[39], 100);
	assert_int_equal(check(x, false, &report), REDRIVE_OK);
	assert_true(report.tail_torn);
	assert_int_equal(report.bad, 0);
	assert_int_equal(check(x, true, &report), REDRIVE_OK); /* nothing to repair: opening cuts it */
	assert_int_equal(reopen(x), REDRIVE_OK);
	assert_int_equal(x->count, 38);
}

static void a_newer_log_is_neither_checked_nor_repaired(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;
	char copy[256];

	flip(x, (struct rdv_position){2, 0}, 8);
	assert_int_equal(check(x, false, &report), REDRIVE_VERSION);
	assert_int_equal(check(x, true, &report), REDRIVE_VERSION);
	assert_int_equal(aside(x, copy), 0);
}

static void an_empty_directory_holds_no_log(void **state)
{
	struct fixture *x = *state;
	struct rdv_log_report report;
	char dir[64];

	assert_non_null(scratch_make(dir));
	assert_int_equal(rdv_log_check(dir, true, note, x, &report, &x->error), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_log_dump(dir, fold, x, &x->error), REDRIVE_NOT_FOUND);
	scratch_remove(dir);
}

static void a_second_process_is_refused_and_told_who_holds_it(void **state)
{
	struct fixture *x = *state;
	char holder[64];
	pid_t child;
	int status;

	assert_int_equal(reopen(x), REDRIVE_OK);
	snprintf(holder, sizeof holder, "held by process %ld", (long)getpid());
	child = fork();
	if (child == 0) {
		struct rdv_log *mine = x->log; /* the parent's; the child must not share its lock by accident */
		struct rdv_log_report report;
		bool good = reopen(x) == REDRIVE_BUSY && strstr(x->error.text, holder) && !x->log;

		good = good && rdv_log_check(x->dir, false, NULL, NULL, &report, &x->error) == REDRIVE_BUSY;
		good = good && rdv_log_check(x->dir, true, NULL, NULL, &report, &x->error) == REDRIVE_BUSY;
		good = good && rdv_log_dump(x->dir, fold, x, &x->error) == REDRIVE_BUSY &&
		       strstr(x->error.text, holder);
		(void)mine;
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close_log(x);
	assert_int_equal(reopen(x), REDRIVE_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_sound_log_checks_clean),
		TEST(check_lists_every_bad_place),
		TEST(repair_copies_first_and_keeps_every_good_frame),
		TEST(repair_goes_on_without_a_segment_or_its_header),
		TEST(damage_after_a_repair_is_noticed_again),
		TEST(a_torn_tail_is_no_damage),
		TEST(a_newer_log_is_neither_checked_nor_repaired),
		TEST(an_empty_directory_holds_no_log),
		TEST(a_second_process_is_refused_and_told_who_holds_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
