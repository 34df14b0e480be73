/* main.c - sim: runs seeded worlds.
 *
 *   sim --worlds N [--from SEED]   N worlds from a first seed (default 1); ends with their number, steps and calls
 *   sim --seed N [--trace]         one world, with every event printed
 *   sim --soak [--from SEED]       worlds without end
 *
 * A violated property prints its seed and step; the run goes on to find more, up to five, then exit 1. An assertion of
 * the core prints the seed, too. */
#include "world.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct sim_world world;

static void on_abort(int number)
{
	char text[96];
	int n = snprintf(text, sizeof text, "seed %llu step %llu: aborted\n", (unsigned long long)world.seed,
			 (unsigned long long)world.step);

	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		_exit(2);
	signal(number, SIG_DFL);
	raise(number);
}

/* True if the world kept all its promises. */
static bool run(uint64_t seed)
{
	jmp_buf out;

	world.out = &out;
	if (setjmp(out))
		return false;
	sim_world_run(&world, seed);
	return true;
}

int main(int argc, char **argv)
{
	uint64_t worlds = 100, from = 1, steps = 0, calls = 0, crashes = 0, failed = 0, done = 0;
	bool soak = false;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (!strcmp(argv[i], "--worlds"))
			worlds = strtoull(value, NULL, 10), i++;
		else if (!strcmp(argv[i], "--from"))
			from = strtoull(value, NULL, 10), i++;
		else if (!strcmp(argv[i], "--seed"))
			from = strtoull(value, NULL, 10), worlds = 1, i++;
		else if (!strcmp(argv[i], "--trace"))
			world.trace = true;
		else if (!strcmp(argv[i], "--soak"))
			soak = true;
		else
			return fprintf(stderr, "usage: sim [--worlds N] [--from SEED] [--seed N [--trace]] [--soak]\n"),
			       2;
	}
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	bool trace = world.trace;
	sim_world_init(&world);
	world.trace = trace;
	for (uint64_t seed = from; (soak || seed < from + worlds) && failed < 5; seed++) {
		failed += !run(seed);
		steps += world.step;
		crashes += world.crashes;
		done++;
		if (soak && done % 1000 == 0)
			printf("%llu worlds\n", (unsigned long long)done), fflush(stdout);
	}
	calls = world.dispatches;
	printf("%llu worlds, %llu steps, %llu calls, %llu crashes, %llu lanes adopted, %llu outages, %llu failed\n",
	       (unsigned long long)done, (unsigned long long)steps, (unsigned long long)calls,
	       (unsigned long long)crashes, (unsigned long long)world.adopted, (unsigned long long)world.outages,
	       (unsigned long long)failed);
	sim_world_done(&world);
	return failed ? 1 : 0;
}
