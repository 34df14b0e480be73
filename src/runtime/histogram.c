/* histogram.c - counts of durations by fixed bounds, from 1 ms to a week; the last bucket has no bound. Not
 * thread-safe. */
#include <math.h>
#include "room.h"

const double rdv_histogram_bounds[24] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,  0.1,   0.25,
					 0.5,   1,      2.5,   5,    10,    30,    60,    120,
					 300,   600,    1800,  3600, 7200,  21600, 86400, INFINITY};

/* The same bounds for whole milliseconds, which are counted for every message. */
static const int64_t bounds_ms[23] = {1,      2,      5,       10,      25,      50,       100,     250,
				      500,    1000,   2500,    5000,    10000,   30000,    60000,   120000,
				      300000, 600000, 1800000, 3600000, 7200000, 21600000, 86400000};

void rdv_histogram_add_ms(struct rdv_histogram *h, int64_t ms)
{
	unsigned i = 0;

	while (i < 23 && ms > bounds_ms[i])
		i++;
	h->buckets[i]++;
	h->count++;
	h->sum += (double)ms * 0.001;
}

void rdv_histogram_add(struct rdv_histogram *h, double seconds)
{
	unsigned i = 0;

	while (i < 23 && seconds > rdv_histogram_bounds[i])
		i++;
	h->buckets[i]++;
	h->count++;
	h->sum += seconds;
}
