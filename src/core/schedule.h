/* schedule.h - the due-time wheel: entries by `due`, to the millisecond, whatever the delay.
 *
 * Eleven levels of 64 slots; level n has slots of 64^n ms. An entry lies in the level of the highest digit in which its
 * due time differs from the wheel's time, so that a level's entries are all due before the next level's, and reaching a
 * slot of a higher level spreads it over the lower ones. Per entry: no memory but its own link, at most one move per
 * level. Nothing is ever taken out before its time: an entry that has ended stays until its slot is reached and is then
 * dropped by the owner (lazy removal). Nothing fires early: `due` <= now for everything that pops. Pure; cannot fail;
 * single thread. */
#ifndef RDV_CORE_SCHEDULE_H
#define RDV_CORE_SCHEDULE_H
#include "entry.h"

#define RDV_SCHEDULE_LEVELS 11
#define RDV_SCHEDULE_SLOTS 64

struct rdv_schedule_list {
	uint32_t head, tail;
};
struct rdv_schedule {
	struct rdv_chunks *entries; /* borrows */
	int64_t time;               /* everything due at or before it is in `due` */
	uint64_t count;             /* in the wheel and in `due` */
	struct rdv_schedule_list due;
	uint64_t used[RDV_SCHEDULE_LEVELS];                    /* bit per slot that is not empty */
	struct rdv_schedule_list *levels[RDV_SCHEDULE_LEVELS]; /* owns; made when first used */
	struct rdv_schedule_list overflow; /* without memory for a level: looked through at each step */
};

void rdv_schedule_init(struct rdv_schedule *s, struct rdv_chunks *entries);
void rdv_schedule_done(struct rdv_schedule *s);
/* Adds an entry with its `due` set; uses its `next`. */
void rdv_schedule_add(struct rdv_schedule *s, uint32_t ref);
/* The next entry with due <= now, in the order of due times (entries of one ms in the order they were added, but those
 * that came by a higher level first), or 0. */
uint32_t rdv_schedule_pop(struct rdv_schedule *s, int64_t now);
/* No entry pops before this time; RDV_NEVER when empty. It may be earlier than the first due time: a step of the wheel.
 */
int64_t rdv_schedule_next(const struct rdv_schedule *s);
/* Links, counts and places; for tests and the simulator. */
bool rdv_schedule_check(const struct rdv_schedule *s);
#endif
