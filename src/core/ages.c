/* ages.c - ranges of positions by second.
 *
 *   items: [ first_seq 0, live 3, at 12:00:00 ][ first_seq 180, live 0, ... ] ... [ the newest, always the last ]
 *
 * Invariant: first_seq rises; the first range has live positions or is the only one. A position below all ranges (a
 * body that trimming moved, seen while recovering) belongs to the first, which is then extended downwards. Single
 * thread. */
#include "ages.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

void rdv_ages_done(struct rdv_ages *a)
{
	free(a->items);
	*a = (struct rdv_ages){0};
}

/* The range that holds a position; there is one at least. */
static struct rdv_age *find(const struct rdv_ages *a, uint64_t seq)
{
	uint32_t low = 0, high = a->count;

	if (rdv_ages_last(a)->first_seq <= seq)
		return rdv_ages_last(a);
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (a->items[a->head + middle].first_seq <= seq)
			low = middle;
		else
			high = middle;
	}
	return &a->items[a->head + low];
}

static void join_neighbours(struct rdv_ages *a)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i + 1 < a->count; i += 2, kept++) {
		struct rdv_age one = a->items[a->head + i];
		one.live += a->items[a->head + i + 1].live;
		a->items[kept] = one;
	}
	if (a->count % 2)
		a->items[kept++] = *rdv_ages_last(a);
	a->head = 0;
	a->count = kept;
}

static bool make_room(struct rdv_ages *a)
{
	if (a->count == RDV_AGES_MAX)
		join_neighbours(a);
	if (a->head + a->count < a->capacity)
		return true;
	if (a->head) {
		memmove(a->items, a->items + a->head, a->count * sizeof *a->items);
		a->head = 0;
	}
	if (a->count == a->capacity) {
		uint32_t capacity = a->capacity ? a->capacity * 2 : 16;
		struct rdv_age *items = realloc(a->items, capacity * sizeof *items);
		if (!items)
			return false;
		a->items = items;
		a->capacity = capacity;
	}
	return true;
}

static void drop_finished(struct rdv_ages *a)
{
	while (a->count > 1 && !a->items[a->head].live) {
		a->head++;
		a->count--;
	}
}

void rdv_ages_add_slow(struct rdv_ages *a, uint64_t seq, struct rdv_wall at)
{
	struct rdv_age *last = a->count ? rdv_ages_last(a) : NULL;

	if (last && seq >= a->end && (at.ms >= last->at + RDV_AGES_RANGE_MS || at.ms < last->at)) {
		if (!last->live) { /* nothing of it is left: used again */
			last->first_seq = seq;
			last->at = at.ms;
		} else if (make_room(a)) {
			a->items[a->head + a->count++] = (struct rdv_age){.first_seq = seq, .at = at.ms};
			drop_finished(a);
		}
	} else if (!last) {
		if (!make_room(a))
			return;
		a->items[a->head + a->count++] = (struct rdv_age){.first_seq = seq, .at = at.ms};
	}
	if (seq >= a->end)
		a->end = seq + 1;
	last = find(a, seq);
	if (seq < last->first_seq)
		last->first_seq = seq;
	last->live++;
}

void rdv_ages_remove_slow(struct rdv_ages *a, uint64_t seq)
{
	struct rdv_age *range;

	if (!a->count)
		return;
	range = find(a, seq);
	assert(range->live);
	if (--range->live == 0)
		drop_finished(a);
}

int64_t rdv_ages_oldest(const struct rdv_ages *a)
{
	int64_t oldest = RDV_NEVER;

	for (uint32_t i = 0; i < a->count; i++)
		if (a->items[a->head + i].live && a->items[a->head + i].at < oldest)
			oldest = a->items[a->head + i].at;
	return oldest;
}

uint64_t rdv_ages_live(const struct rdv_ages *a)
{
	uint64_t live = 0;

	for (uint32_t i = 0; i < a->count; i++)
		live += a->items[a->head + i].live;
	return live;
}
