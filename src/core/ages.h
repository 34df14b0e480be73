/* ages.h - how old is the oldest unfinished message? Counts of live positions by the second in which they came.
 *
 * Positions come in rising order, so a second is a range of positions: [first_seq of it, first_seq of the next). At
 * most 1,024 ranges: beyond that neighbours are joined, the older time kept, so an answer is never too young and memory
 * never grows. Finishing finds its range by the last one or by halving. Pure; memory is the only thing that can fail
 * (then ages are coarser). */
#ifndef RDV_CORE_AGES_H
#define RDV_CORE_AGES_H
#include <stdbool.h>
#include "../base/clock.h"

#define RDV_AGES_MAX 1024
#define RDV_AGES_RANGE_MS 1000
struct rdv_age {
	uint64_t first_seq, live;
	int64_t at; /* wall ms */
};
struct rdv_ages {
	struct rdv_age *items; /* owns */
	uint32_t head, count, capacity;
	uint64_t end; /* behind the highest position ever added: only beyond it a range may begin */
};

void rdv_ages_done(struct rdv_ages *a);
void rdv_ages_add_slow(struct rdv_ages *a, uint64_t seq, struct rdv_wall at);
void rdv_ages_remove_slow(struct rdv_ages *a, uint64_t seq);
static inline struct rdv_age *rdv_ages_last(const struct rdv_ages *a)
{
	return &a->items[a->head + a->count - 1];
}
static inline void rdv_ages_add(struct rdv_ages *a, uint64_t seq, struct rdv_wall at)
{
	struct rdv_age *last = a->count ? rdv_ages_last(a) : NULL;

	if (!last || seq < a->end || at.ms < last->at || at.ms - last->at >= RDV_AGES_RANGE_MS) {
		rdv_ages_add_slow(a, seq, at);
		return;
	}
	a->end = seq + 1; /* the next one of this second */
	last->live++;
}
static inline void rdv_ages_remove(struct rdv_ages *a, uint64_t seq) /* one that was added */
{
	struct rdv_age *last = a->count ? rdv_ages_last(a) : NULL;

	if (last && seq >= last->first_seq && last->live > 1)
		last->live--;
	else
		rdv_ages_remove_slow(a, seq);
}
/* When the oldest live one came; RDV_NEVER when nothing is live. */
int64_t rdv_ages_oldest(const struct rdv_ages *a);
uint64_t rdv_ages_live(const struct rdv_ages *a);
#endif
