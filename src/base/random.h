/* random.h - seeded generator (xoshiro256**, Blackman and Vigna, public domain description at prng.di.unimi.it;
 * seeded by splitmix64). Its state is data: the core's jitter is reproducible from the seed. Not for secrets. */
#ifndef RDV_BASE_RANDOM_H
#define RDV_BASE_RANDOM_H
#include <stdint.h>

struct rdv_random {
	uint64_t s[4];
};
void rdv_random_seed(struct rdv_random *r, uint64_t seed);
uint64_t rdv_random_next(struct rdv_random *r);
/* Uniform in [0, bound), without modulo bias; 0 for bound 0. */
uint64_t rdv_random_below(struct rdv_random *r, uint64_t bound);
double rdv_random_unit(struct rdv_random *r); /* [0, 1) */
#endif
