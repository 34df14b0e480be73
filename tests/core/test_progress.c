/* test_progress.c - which offsets are open and where a partition goes on: tables, a naive model, hostile distances.
 *
 * The module is compiled into this program with an allocator that can fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>

static bool fail_next;

static bool fails(void)
{
	bool now = fail_next;

	fail_next = false;
	return now;
}

#define malloc(size) (fails() ? NULL : malloc(size))
#define realloc(old, size) (fails() ? NULL : realloc(old, size))
#include "../../src/core/progress.c"
#undef malloc
#undef realloc
#include "base/random.h"

#define NONE UINT64_MAX

enum deed { END, ARRIVE, ARRIVE_SETTLED, AGAIN, SKIP, SETTLE };
struct step {
	enum deed deed;
	uint64_t offset, count;
	uint64_t position, next, open; /* wanted after it */
};

static void do_step(struct rdv_progress *p, const struct step *s)
{
	bool fresh = false;

	switch (s->deed) {
	case ARRIVE:
	case ARRIVE_SETTLED:
		assert_int_equal(rdv_progress_arrive(p, s->offset, &fresh), REDRIVE_OK);
		assert_int_equal(fresh, s->deed == ARRIVE);
		break;
	case AGAIN:
		assert_int_equal(rdv_progress_arrive(p, s->offset, &fresh), REDRIVE_INVALID);
		break;
	case SKIP:
		rdv_progress_skip(p, s->offset);
		break;
	default:
		assert_int_equal(rdv_progress_settle(p, s->offset, s->count), REDRIVE_OK);
	}
	assert_int_equal(p->position, s->position);
	assert_int_equal(p->next, s->next);
	assert_int_equal(p->open, s->open);
}

static void run_table(uint64_t start, const struct step *steps)
{
	struct rdv_progress p;

	rdv_progress_init(&p, start);
	for (; steps->deed != END; steps++)
		do_step(&p, steps);
	rdv_progress_done(&p);
}

static void position_is_the_first_open_offset_or_next(void **state)
{
	run_table(10, (const struct step[]){
			      {ARRIVE, 10, 0, 10, 11, 1},
			      {ARRIVE, 11, 0, 10, 12, 2},
			      {ARRIVE, 12, 0, 10, 13, 3},
			      {SETTLE, 11, 1, 10, 13, 2},
			      {SETTLE, 11, 1, 10, 13, 2}, /* twice */
			      {SETTLE, 10, 1, 12, 13, 1},
			      {SETTLE, 3, 8, 12, 13, 1}, /* below the position */
			      {SETTLE, 12, 1, 13, 13, 0},
			      {ARRIVE, 13, 0, 13, 14, 1},
			      {0},
		      });
}

static void offsets_that_never_arrive_count_as_settled(void **state)
{
	run_table(0, (const struct step[]){
			     {ARRIVE, 5, 0, 5, 6, 1},
			     {ARRIVE, 9, 0, 5, 10, 2},
			     {ARRIVE, 200, 0, 5, 201, 3},
			     {SETTLE, 5, 1, 9, 201, 2},
			     {SKIP, 300, 0, 9, 300, 2},
			     {SKIP, 250, 0, 9, 300, 2}, /* never back */
			     {SETTLE, 9, 1, 200, 300, 1},
			     {SETTLE, 200, 1, 300, 300, 0},
			     {SKIP, 400, 0, 400, 400, 0},
			     {ARRIVE, 500, 0, 500, 501, 1},
			     {0},
		     });
}

static void an_offset_that_came_before_is_refused(void **state)
{
	run_table(7, (const struct step[]){
			     {AGAIN, 6, 0, 7, 7, 0},
			     {ARRIVE, 7, 0, 7, 8, 1},
			     {AGAIN, 7, 0, 7, 8, 1},
			     {SKIP, 20, 0, 7, 20, 1},
			     {AGAIN, 19, 0, 7, 20, 1},
			     {AGAIN, UINT64_MAX, 0, 7, 20, 1},
			     {0},
		     });
}

static void what_the_journal_settled_is_not_given_out_again(void **state)
{
	run_table(100, (const struct step[]){
			       {SETTLE, 105, 3, 100, 100, 0},
			       {SETTLE, 101, 1, 100, 100, 0}, /* out of order */
			       {SETTLE, 107, 3, 100, 100, 0}, /* overlaps */
			       {SETTLE, 90, 11, 100, 100, 0}, /* reaches over the position */
			       {ARRIVE_SETTLED, 100, 0, 101, 101, 0},
			       {ARRIVE_SETTLED, 101, 0, 102, 102, 0},
			       {ARRIVE, 102, 0, 102, 103, 1},
			       {ARRIVE, 104, 0, 102, 105, 2},
			       {ARRIVE_SETTLED, 106, 0, 102, 107, 2},
			       {SETTLE, 102, 1, 104, 107, 1},
			       {ARRIVE_SETTLED, 109, 0, 104, 110, 1},
			       {ARRIVE, 110, 0, 104, 111, 2},
			       {SETTLE, 104, 1, 110, 111, 1},
			       {0},
		       });
}

/* A run that is settled both within the window and ahead of it. */
static void one_run_settles_below_and_above_next(void **state)
{
	run_table(0, (const struct step[]){
			     {ARRIVE, 0, 0, 0, 1, 1},
			     {ARRIVE, 1, 0, 0, 2, 2},
			     {SETTLE, 1, 3, 0, 2, 1},
			     {ARRIVE_SETTLED, 2, 0, 0, 3, 1},
			     {ARRIVE_SETTLED, 3, 0, 0, 4, 1},
			     {ARRIVE, 4, 0, 0, 5, 2},
			     {SETTLE, 0, 1, 4, 5, 1},
			     {0},
		     });
}

/* pitfall: huge gaps of offsets: memory and time follow what has arrived, not how far it lies apart */
static void huge_gaps_and_runs_cost_nothing(void **state)
{
	const uint64_t far = UINT64_C(1) << 62;
	struct rdv_progress p;
	bool fresh;

	rdv_progress_init(&p, 0);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(rdv_progress_arrive(&p, i << 40, &fresh), REDRIVE_OK);
	assert_true(p.capacity <= 1024);
	assert_int_equal(rdv_progress_next_open(&p, (UINT64_C(500) << 40) + 1), UINT64_C(501) << 40);
	assert_int_equal(rdv_progress_settle(&p, 1, (UINT64_C(1) << 40) * 500), REDRIVE_OK);
	assert_int_equal(p.open, 500);
	assert_int_equal(p.position, 0);
	assert_int_equal(rdv_progress_settle(&p, 0, 1), REDRIVE_OK);
	assert_int_equal(p.position, UINT64_C(501) << 40);
	assert_int_equal(rdv_progress_settle(&p, far, UINT64_MAX), REDRIVE_OK);
	rdv_progress_skip(&p, far - 1);
	assert_int_equal(rdv_progress_arrive(&p, far - 1, &fresh), REDRIVE_OK);
	assert_true(fresh);
	assert_int_equal(rdv_progress_arrive(&p, UINT64_MAX - 1, &fresh), REDRIVE_OK);
	assert_false(fresh);
	assert_int_equal(rdv_progress_settle(&p, 0, UINT64_MAX), REDRIVE_OK);
	assert_int_equal(p.position, UINT64_MAX);
	assert_int_equal(p.open, 0);
	rdv_progress_done(&p);
}

/* A journal whose records lie in an unlucky order, with many runs that never join. */
static void a_fold_in_any_order_stays_cheap(void **state)
{
	enum { RUNS = 200000 };
	struct rdv_progress p;
	bool fresh;

	rdv_progress_init(&p, 0);
	for (uint64_t i = RUNS; i-- > 0;)
		assert_int_equal(rdv_progress_settle(&p, 2 * i + 1, 1), REDRIVE_OK);
	for (int again = 0; again < 3; again++) /* what is said again takes no room for good */
		for (uint64_t i = RUNS; i-- > 0;)
			assert_int_equal(rdv_progress_settle(&p, 2 * i + 1, 1), REDRIVE_OK);
	assert_true(p.ahead_capacity <= 4 * RUNS);
	for (uint64_t i = 0; i < 2 * RUNS; i++) {
		assert_int_equal(rdv_progress_arrive(&p, i, &fresh), REDRIVE_OK);
		assert_int_equal(fresh, i % 2 == 0);
	}
	assert_int_equal(p.open, RUNS);
	assert_true(rdv_progress_is_open(&p, RUNS));
	assert_false(rdv_progress_is_open(&p, RUNS + 1));
	assert_int_equal(rdv_progress_settle(&p, 0, 2 * RUNS), REDRIVE_OK);
	assert_int_equal(p.position, 2 * RUNS);
	assert_int_equal(rdv_progress_arrive(&p, 2 * RUNS, &fresh), REDRIVE_OK);
	assert_true(fresh);
	assert_null(p.ahead); /* the fold's runs are used up */
	rdv_progress_done(&p);
}

static void memory_of_a_long_window_is_given_back(void **state)
{
	struct rdv_progress p;
	bool fresh;

	rdv_progress_init(&p, 0);
	for (uint64_t i = 0; i < 1000000; i++)
		assert_int_equal(rdv_progress_arrive(&p, i, &fresh), REDRIVE_OK);
	assert_true(p.capacity <= 1 << 14); /* two bits an offset */
	for (uint64_t i = 1000000; i-- > 0;)
		assert_int_equal(rdv_progress_settle(&p, i, 1), REDRIVE_OK);
	assert_int_equal(p.position, 1000000);
	assert_true(p.capacity <= KEEP_WORDS);
	rdv_progress_done(&p);
}

static void without_memory_nothing_changes(void **state)
{
	struct rdv_progress p;
	bool fresh;

	rdv_progress_init(&p, 50);
	fail_next = true;
	assert_int_equal(rdv_progress_arrive(&p, 60, &fresh), REDRIVE_NO_MEMORY);
	assert_int_equal(p.next, 50);
	fail_next = true;
	assert_int_equal(rdv_progress_settle(&p, 60, 1), REDRIVE_NO_MEMORY);
	assert_int_equal(rdv_progress_arrive(&p, 60, &fresh), REDRIVE_OK);
	assert_true(fresh);
	fail_next = true; /* neither half of it */
	assert_int_equal(rdv_progress_settle(&p, 60, 5), REDRIVE_NO_MEMORY);
	assert_true(rdv_progress_is_open(&p, 60));
	assert_int_equal(rdv_progress_settle(&p, 60, 5), REDRIVE_OK);
	assert_int_equal(p.position, 61);
	rdv_progress_done(&p);
	rdv_progress_done(NULL);
}

/* ---- the naive model: lists, looked through ---- */

enum { MOST = 600 };
struct model {
	uint64_t position, next;
	uint64_t open[MOST];
	size_t open_count;
	struct rdv_progress_run settled[MOST];
	size_t settled_count;
};

static bool model_is_settled(const struct model *m, uint64_t offset)
{
	for (size_t i = 0; i < m->settled_count; i++)
		if (offset >= m->settled[i].first && offset < m->settled[i].end)
			return true;
	return false;
}

static uint64_t model_next_open(const struct model *m, uint64_t from)
{
	uint64_t found = NONE;

	for (size_t i = 0; i < m->open_count; i++)
		if (m->open[i] >= from && m->open[i] < found)
			found = m->open[i];
	return found;
}

static void model_settle(struct model *m, uint64_t first, uint64_t end)
{
	m->settled[m->settled_count++] = (struct rdv_progress_run){first, end};
	for (size_t i = 0; i < m->open_count;)
		if (m->open[i] >= first && m->open[i] < end)
			m->open[i] = m->open[--m->open_count];
		else
			i++;
}

/* Mostly neighbours, sometimes another word, seldom far away. */
static uint64_t gap(struct rdv_random *r)
{
	uint64_t kind = rdv_random_below(r, 20);

	return kind < 14 ? 0 : kind < 19 ? rdv_random_below(r, 150) : rdv_random_next(r) >> 24;
}

static void random_step(struct rdv_random *r, struct rdv_progress *p, struct model *m)
{
	uint64_t kind = rdv_random_below(r, 10), offset = m->next + gap(r);
	bool fresh;

	if (kind < 5) {
		assert_int_equal(rdv_progress_arrive(p, offset, &fresh), REDRIVE_OK);
		assert_int_equal(fresh, !model_is_settled(m, offset));
		if (fresh)
			m->open[m->open_count++] = offset;
		m->next = offset + 1;
	} else if (kind == 5 && rdv_random_below(r, 4) == 0) {
		rdv_progress_skip(p, offset);
		m->next = offset;
	} else {
		uint64_t first =
			m->open_count && rdv_random_below(r, 3) ? m->open[rdv_random_below(r, m->open_count)] : offset;
		uint64_t count = rdv_random_below(r, 4) ? 1 : 1 + gap(r);

		assert_int_equal(rdv_progress_settle(p, first, count), REDRIVE_OK);
		model_settle(m, first, first + count);
	}
	m->position = model_next_open(m, 0) == NONE ? m->next : model_next_open(m, 0);
}

static void compare(struct rdv_random *r, const struct rdv_progress *p, const struct model *m)
{
	uint64_t at = m->position + gap(r);

	assert_int_equal(p->position, m->position);
	assert_int_equal(p->next, m->next);
	assert_int_equal(p->open, m->open_count);
	assert_int_equal(rdv_progress_next_open(p, at), model_next_open(m, at));
	assert_int_equal(rdv_progress_is_open(p, at), model_next_open(m, at) == at);
	if (m->open_count) {
		at = m->open[rdv_random_below(r, m->open_count)];
		assert_true(rdv_progress_is_open(p, at));
		assert_int_equal(rdv_progress_next_open(p, at + 1), model_next_open(m, at + 1));
	}
}

static void random_steps_agree_with_the_naive_model(void **state)
{
	static struct model m;

	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct rdv_progress p;
		struct rdv_random r;

		rdv_random_seed(&r, seed);
		m = (struct model){.next = rdv_random_below(&r, 200)};
		rdv_progress_init(&p, m.next);
		for (int i = 0; i < MOST; i++) {
			random_step(&r, &p, &m);
			compare(&r, &p, &m);
		}
		rdv_progress_done(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(position_is_the_first_open_offset_or_next),
		cmocka_unit_test(offsets_that_never_arrive_count_as_settled),
		cmocka_unit_test(an_offset_that_came_before_is_refused),
		cmocka_unit_test(what_the_journal_settled_is_not_given_out_again),
		cmocka_unit_test(one_run_settles_below_and_above_next),
		cmocka_unit_test(huge_gaps_and_runs_cost_nothing),
		cmocka_unit_test(a_fold_in_any_order_stays_cheap),
		cmocka_unit_test(memory_of_a_long_window_is_given_back),
		cmocka_unit_test(without_memory_nothing_changes),
		cmocka_unit_test(random_steps_agree_with_the_naive_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
