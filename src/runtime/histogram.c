/* histogram.c - counts of durations by fixed bounds, from 1 ms to a week; the last bucket has no bound. Not
 * thread-safe. */
#include <math.h>
#include "room.h"

const double rdv_histogram_bounds[24] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,  0.1,   0.25,
					 0.5,   1,      2.5,   5,    10,    30,    60,    120,
					 300,   600,    1800,  3600, 7200,  21600, 86400, INFINITY};

void rdv_histogram_add(struct rdv_histogram *h, double seconds)
{
	unsigned i = 0;

	while (i < 23 && seconds > rdv_histogram_bounds[i])
		i++;
	h->buckets[i]++;
	h->count++;
	h->sum += seconds;
}
