/* random.c - xoshiro256** with a splitmix64 seed.
 *
 * The same seed gives the same numbers on every machine and in every version: recorded simulator
 * seeds and replays of the core depend on it. Pure; the state is the caller's. */
#include "random.h"

__extension__ typedef unsigned __int128 wide;

static uint64_t splitmix(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

void rdv_random_seed(struct rdv_random *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = splitmix(&seed); /* four steps in a row are never all zero, which would be a fixed point */
}

uint64_t rdv_random_next(struct rdv_random *r)
{
	uint64_t *s = r->s;
	uint64_t result = rotate(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

/* Multiplication instead of division, and the few values that would bias it drawn again (Lemire,
 * "Fast random integer generation in an interval", 2019). */
uint64_t rdv_random_below(struct rdv_random *r, uint64_t bound)
{
	wide product = (wide)rdv_random_next(r) * bound;

	if ((uint64_t)product < bound) {
		uint64_t unfair = -bound % bound;
		while ((uint64_t)product < unfair)
			product = (wide)rdv_random_next(r) * bound;
	}
	return (uint64_t)(product >> 64);
}

double rdv_random_unit(struct rdv_random *r)
{
	return (double)(rdv_random_next(r) >> 11) * 0x1.0p-53;
}
