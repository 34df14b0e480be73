/* effects.c - the list of what the core wants done.
 *
 * Memory is kept between steps, so a steady state allocates nothing. When memory is short, `failed` is set and a
 * scratch item at the end of the list is handed out again and again, so that no caller needs a check. Single thread. */
#include "effects.h"
#include <stdlib.h>

#define FIRST_CAPACITY 64u

void rdv_effects_init(struct rdv_effects *e)
{
	*e = (struct rdv_effects){0};
	rdv_buffer_init(&e->arena, 0);
}

void rdv_effects_done(struct rdv_effects *e)
{
	if (!e)
		return;
	free(e->items);
	rdv_buffer_done(&e->arena);
	*e = (struct rdv_effects){0};
}

void rdv_effects_clear(struct rdv_effects *e)
{
	e->count = 0;
	e->failed = false;
	rdv_buffer_clear(&e->arena);
}

static bool grow(struct rdv_effects *e)
{
	size_t capacity = e->capacity ? e->capacity * 2 : FIRST_CAPACITY;
	struct rdv_effect *items;

	if (capacity > SIZE_MAX / sizeof *items)
		return false;
	items = realloc(e->items, capacity * sizeof *items);
	if (!items)
		return false;
	e->items = items;
	e->capacity = capacity;
	return true;
}

struct rdv_effect *rdv_effects_add_slow(struct rdv_effects *e, enum rdv_effect_kind kind, struct rdv_lane *lane)
{
	if (e->count < e->capacity || grow(e))
		return rdv_effects_add(e, kind, lane);
	e->failed = true;
	e->scratch = (struct rdv_effect){.kind = kind, .lane = lane};
	return &e->scratch;
}
