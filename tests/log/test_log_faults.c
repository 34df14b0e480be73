/* Every file call fails once: nothing acknowledged is lost, nothing is half there, and the log says FAILED. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include "log/log_world.h"

/* A fixed life: appends, batches over segments, commits, background work, trims, a reopening. Stops at the first error.
 */
static enum redrive_status live(struct world *w)
{
	enum redrive_status status = world_open(w);
	int i;

	for (i = 0; i < 14 && status == REDRIVE_OK; i++) {
		status = world_append(w, 12, true, 700);
		if (status == REDRIVE_OK && i % 3 == 0)
			status = world_append(w, 3, true, 30000);
		if (status == REDRIVE_OK)
			status = world_commit(w);
		if (status == REDRIVE_OK && i % 2)
			status = world_maintain(w, 6);
		if (status == REDRIVE_OK && i % 4 == 3)
			status = world_trim(w);
		if (status == REDRIVE_OK && i == 8) {
			rdv_log_close(w->log);
			w->log = NULL;
			status = world_open(w);
		}
	}
	return status;
}

static void fail_every(unsigned calls, int err, bool from_then_on, bool power)
{
	uint64_t nth, fired = 0;

	for (nth = 1;; nth++) {
		struct world *w = calloc(1, sizeof *w);
		enum redrive_status status;
		const char *wrong;

		assert_non_null(w);
		world_init(w, 42);
		rdv_faulty_fail(w->files, calls, nth, err, from_then_on);
		status = live(w);
		fired = rdv_faulty_fired(w->files);
		rdv_faulty_fail(w->files, 0, 0, 0, false);
		if (w->log && status != REDRIVE_OK && rdv_log_failed(w->log)) {
			uint64_t acked = rdv_log_durable_ticket(w->log);

			assert_int_equal(rdv_log_begin(w->log, RDV_LOG_OUTCOME, 1, 1, 0), REDRIVE_FAILED);
			assert_int_equal(rdv_log_wait(w->log, acked + 1, -1), REDRIVE_FAILED);
			assert_int_equal(rdv_log_wait(w->log, acked, -1), REDRIVE_OK);
			assert_int_equal(world_commit(w), REDRIVE_FAILED);
		}
		wrong = world_crash(w, power);
		if (wrong)
			fail_msg("call %llu of mask %u: %s", (unsigned long long)nth, calls, wrong);
		world_done(w);
		free(w);
		if (fired == 0)
			break; /* the life has fewer calls than that */
	}
	assert_true(nth > 2); /* something failed */
}

static void each_kind_of_call_failing_once(int err, bool from_then_on, bool power)
{
	unsigned call;

	for (call = 1; call < RDV_CALL_ALL; call <<= 1)
		fail_every(call, err, from_then_on, power);
}

static void nothing_is_lost_when_the_nth_call_fails(void **state)
{
	(void)state;
	each_kind_of_call_failing_once(EIO, false, true);
}

static void nothing_is_lost_when_all_calls_fail_from_the_nth_on(void **state)
{
	(void)state;
	each_kind_of_call_failing_once(EIO, true, true);
}

static void nothing_is_lost_when_the_disk_is_full_at_the_nth_call(void **state)
{
	(void)state;
	fail_every(RDV_CALL_ALLOCATE | RDV_CALL_WRITE, ENOSPC, true, false);
}

/* pitfall: after a failed flush the page cache shows bytes that the disk does not have */
static void a_sync_that_failed_is_made_good_at_the_next_open(void **state)
{
	uint64_t nth;

	(void)state;
	for (nth = 1; nth < 12; nth++) {
		struct world *w = calloc(1, sizeof *w);

		assert_non_null(w);
		world_init(w, nth);
		rdv_faulty_fail(w->files, RDV_CALL_SYNC, nth, EIO, false);
		(void)!live(w);
		assert_int_equal(rdv_faulty_fired(w->files), 1);
		/* The process restarts and sees the cache; what it then calls recovered must survive the power. */
		assert_null(world_crash(w, false));
		assert_null(world_crash(w, true));
		world_done(w);
		free(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_when_the_nth_call_fails),
		cmocka_unit_test(nothing_is_lost_when_all_calls_fail_from_the_nth_on),
		cmocka_unit_test(nothing_is_lost_when_the_disk_is_full_at_the_nth_call),
		cmocka_unit_test(a_sync_that_failed_is_made_good_at_the_next_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
