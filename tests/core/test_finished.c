/* Tests of finished.h: runs grow, the oldest are forgotten, what is not remembered is just done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "core/finished.h"

static void runs_of_one_outcome_grow_into_one(void **state)
{
	struct rdv_finished f = {0};
	(void)state;
	for (uint64_t seq = 0; seq < 100000; seq += 10) {
		const struct rdv_run run = {seq, 10, RDV_STATE_ACKED};
		rdv_finished_add(&f, &run, 1);
	}
	assert_int_equal(f.count, 1);
	assert_int_equal(rdv_finished_find(&f, 0), RDV_STATE_ACKED);
	assert_int_equal(rdv_finished_find(&f, 99999), RDV_STATE_ACKED);
	assert_int_equal(rdv_finished_find(&f, 100000), RDV_STATE_DONE);
	rdv_finished_done(&f);
}

static void the_latest_outcomes_are_remembered_and_memory_is_bounded(void **state)
{
	static const enum rdv_state outcomes[] = {RDV_STATE_ACKED, RDV_STATE_DROPPED, RDV_STATE_DEAD,
						  RDV_STATE_REVOKED};
	struct rdv_finished f = {0};
	(void)state;
	for (uint64_t seq = 0; seq < 10000; seq++) {
		const struct rdv_run run = {seq, 1, outcomes[seq % 4]};
		rdv_finished_add(&f, &run, 1);
	}
	assert_int_equal(f.count, RDV_FINISHED_RUNS);
	for (uint64_t seq = 10000 - RDV_FINISHED_RUNS; seq < 10000; seq++)
		assert_int_equal(rdv_finished_find(&f, seq), outcomes[seq % 4]);
	assert_int_equal(rdv_finished_find(&f, 10000 - RDV_FINISHED_RUNS - 1), RDV_STATE_DONE);
	rdv_finished_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_of_one_outcome_grow_into_one),
		cmocka_unit_test(the_latest_outcomes_are_remembered_and_memory_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
