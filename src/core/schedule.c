/* schedule.c - hierarchical timing wheel (Varghese and Lauck 1987), placed by differing digits.
 *
 *   time  = ... d3 d2 d1 d0   in base 64
 *   due   = ... d3 e2 e1 e0   → level 2, slot e2: the highest digit that differs
 *
 * When time reaches the start of slot e2 of level 2, its entries are placed again and land in level 1, level 0 or in
 * the due list. Within a level only slots behind time's own digit are ever used, so the first used slot of the lowest
 * used level is the next thing to do; stepping jumps there directly, however far it is.
 *
 * Invariants: time never goes back; an entry in level n, slot k agrees with time in all digits above n, has k as digit
 * n, and k > time's digit n. Times are kept non-negative (a monotonic clock), 63 bits: eleven digits. */
#include "schedule.h"
#include <assert.h>
#include <stdlib.h>

#define DIGIT_BITS 6
#define DIGIT_MASK 63

void rdv_schedule_init(struct rdv_schedule *s, struct rdv_chunks *entries)
{
	*s = (struct rdv_schedule){.entries = entries};
}

void rdv_schedule_done(struct rdv_schedule *s)
{
	if (!s)
		return;
	for (int i = 0; i < RDV_SCHEDULE_LEVELS; i++)
		free(s->levels[i]);
	*s = (struct rdv_schedule){.entries = s->entries};
}

static void append(struct rdv_schedule *s, struct rdv_schedule_list *list, uint32_t ref)
{
	rdv_entry_at(s->entries, ref)->next = 0;
	if (list->tail)
		rdv_entry_at(s->entries, list->tail)->next = ref;
	else
		list->head = ref;
	list->tail = ref;
}

static int digit(int64_t time, int level)
{
	return (int)((uint64_t)time >> (DIGIT_BITS * level) & DIGIT_MASK);
}

static struct rdv_schedule_list *slots_of(struct rdv_schedule *s, int level)
{
	if (!s->levels[level])
		s->levels[level] = calloc(RDV_SCHEDULE_SLOTS, sizeof *s->levels[level]);
	return s->levels[level];
}

static void place(struct rdv_schedule *s, uint32_t ref)
{
	int64_t due = rdv_entry_at(s->entries, ref)->due;
	struct rdv_schedule_list *slots;
	int level, slot;

	if (due <= s->time) {
		append(s, &s->due, ref);
		return;
	}
	level = (63 - __builtin_clzll((uint64_t)due ^ (uint64_t)s->time)) / DIGIT_BITS;
	slot = digit(due, level);
	slots = slots_of(s, level);
	if (!slots) {
		append(s, &s->overflow, ref);
		return;
	}
	append(s, &slots[slot], ref);
	s->used[level] |= 1ull << slot;
}

void rdv_schedule_add(struct rdv_schedule *s, uint32_t ref)
{
	struct rdv_entry *e = rdv_entry_at(s->entries, ref);

	if (e->due < 0)
		e->due = 0;
	s->count++;
	place(s, ref);
}

/* Start of the first used slot, and its level; RDV_NEVER without one. */
static int64_t first_slot(const struct rdv_schedule *s, int *level)
{
	for (int i = 0; i < RDV_SCHEDULE_LEVELS; i++)
		if (s->used[i]) {
			int slot = __builtin_ctzll(s->used[i]);
			int above = DIGIT_BITS * (i + 1);
			uint64_t high = above < 63 ? (uint64_t)s->time >> above << above : 0;
			*level = i;
			return (int64_t)(high | (uint64_t)slot << (DIGIT_BITS * i));
		}
	return RDV_NEVER;
}

static void spread(struct rdv_schedule *s, struct rdv_schedule_list *list)
{
	uint32_t ref = list->head;

	*list = (struct rdv_schedule_list){0};
	while (ref) {
		uint32_t next = rdv_entry_at(s->entries, ref)->next;
		place(s, ref);
		ref = next;
	}
}

/* Steps to the next used slot if that is not beyond now, else to now. True when something may have become due. */
static bool step(struct rdv_schedule *s, int64_t now)
{
	int level = 0;
	int64_t at = first_slot(s, &level);

	if (at > now) {
		if (now > s->time)
			s->time = now;
		return false;
	}
	assert(at > s->time);
	s->time = at;
	int slot = digit(at, level);
	s->used[level] &= ~(1ull << slot);
	spread(s, &s->levels[level][slot]);
	return true;
}

uint32_t rdv_schedule_pop(struct rdv_schedule *s, int64_t now)
{
	uint32_t ref;

	if (s->overflow.head)
		spread(s, &s->overflow);
	while (!s->due.head && step(s, now))
		;
	ref = s->due.head;
	if (!ref)
		return 0;
	s->due.head = rdv_entry_at(s->entries, ref)->next;
	if (!s->due.head)
		s->due.tail = 0;
	s->count--;
	return ref;
}

int64_t rdv_schedule_next(const struct rdv_schedule *s)
{
	int level;

	if (s->due.head)
		return s->time;
	if (s->overflow.head)
		return s->time + 1;
	return first_slot(s, &level);
}

static bool check_list(const struct rdv_schedule *s, const struct rdv_schedule_list *list, int level, int slot,
		       uint64_t *count)
{
	uint32_t last = 0;

	for (uint32_t ref = list->head; ref; ref = rdv_entry_at(s->entries, ref)->next) {
		const struct rdv_entry *e = rdv_entry_at(s->entries, ref);
		int above = DIGIT_BITS * (level + 1);

		if (++*count > s->count)
			return false;
		last = ref;
		if (level >= 0 && (digit(e->due, level) != slot || slot <= digit(s->time, level) ||
				   (above < 63 && (uint64_t)e->due >> above != (uint64_t)s->time >> above)))
			return false;
		if (level < 0 && list == &s->due && e->due > s->time)
			return false;
	}
	return last == list->tail;
}

bool rdv_schedule_check(const struct rdv_schedule *s)
{
	uint64_t count = 0;

	if (!check_list(s, &s->due, -1, 0, &count) || !check_list(s, &s->overflow, -1, 0, &count))
		return false;
	for (int i = 0; i < RDV_SCHEDULE_LEVELS; i++)
		for (int slot = 0; s->levels[i] && slot < RDV_SCHEDULE_SLOTS; slot++) {
			const struct rdv_schedule_list *list = &s->levels[i][slot];
			if ((s->used[i] >> slot & 1) != (list->head != 0) || !check_list(s, list, i, slot, &count))
				return false;
		}
	return count == s->count;
}
