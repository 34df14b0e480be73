/* Power losses and process deaths in many seeded worlds, with trimming, recycling, hints and batches over segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include "log/log_world.h"

static struct world *make(uint64_t seed)
{
	struct world *w = malloc(sizeof *w);

	assert_non_null(w);
	world_init(w, seed);
	assert_int_equal(world_open(w), REDRIVE_OK);
	return w;
}

static uint64_t worlds(uint64_t wanted)
{
	const char *text = getenv("LOG_WORLDS");

	return text ? strtoull(text, NULL, 10) : wanted;
}

/* From some call on, all fail, the first one half way: what a crash does to a running cycle. Then the files work again.
 */
static void die_in_the_middle(struct world *w)
{
	int steps = 60;

	rdv_faulty_fail(w->files, RDV_CALL_ALL & ~RDV_CALL_READ, 1 + rdv_random_below(&w->random, 24), EIO, true);
	while (steps-- > 0 && world_step(w) == REDRIVE_OK)
		;
	rdv_faulty_fail(w->files, 0, 0, 0, false);
}

static void run_worlds(uint64_t count, bool short_writes)
{
	uint64_t trims = 0, cuts = 0, hinted = 0, seed;

	for (seed = 1; seed <= count; seed++) {
		struct world *w = make(seed);
		int life;

		rdv_faulty_short_writes(w->files, short_writes);
		w->equal_sizes = seed % 2;
		for (life = 0; life < 5; life++) {
			int steps = (int)rdv_random_below(&w->random, 120);
			const char *wrong;

			while (steps-- > 0)
				assert_int_equal(world_step(w), REDRIVE_OK);
			die_in_the_middle(w);
			wrong = world_crash(w, rdv_random_below(&w->random, 3) > 0);
			if (wrong)
				fail_msg("seed %llu, life %d: %s", (unsigned long long)seed, life, wrong);
			cuts += w->opened.tail_cut;
		}
		trims += w->trims;
		hinted += w->hinted;
		world_done(w);
		free(w);
	}
	print_message("trims %llu, cuts %llu, hinted %llu\n", (unsigned long long)trims, (unsigned long long)cuts,
		      (unsigned long long)hinted);
	assert_true(trims > count && cuts > count / 4 && hinted > count / 4); /* the worlds did what they are for */
}

static void every_acknowledged_frame_survives_power_losses(void **state)
{
	(void)state;
	run_worlds(worlds(100), false);
}

static void short_writes_and_reads_change_nothing(void **state)
{
	(void)state;
	run_worlds(worlds(100) / 5, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_acknowledged_frame_survives_power_losses),
		cmocka_unit_test(short_writes_and_reads_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
