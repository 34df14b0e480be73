/* finished.c - see finished.h. */
#include "finished.h"
#include <stdlib.h>

void rdv_finished_done(struct rdv_finished *f)
{
	free(f->runs);
	*f = (struct rdv_finished){0};
}

static bool grow(struct rdv_finished *f)
{
	uint32_t capacity = f->capacity ? f->capacity * 2 : 8;
	struct rdv_run *runs = capacity <= RDV_FINISHED_RUNS ? realloc(f->runs, capacity * sizeof *runs) : NULL;

	if (!runs)
		return false;
	f->runs = runs;
	f->capacity = capacity;
	return true;
}

static void add(struct rdv_finished *f, const struct rdv_run *run)
{
	struct rdv_run *last = f->count ? &f->runs[f->newest] : NULL;

	if (last && last->outcome == run->outcome && last->first + last->count == run->first) {
		last->count += run->count;
		return;
	}
	if (f->count < f->capacity || grow(f))
		f->newest = f->count++;
	else if (f->capacity)
		f->newest = (f->newest + 1) % f->capacity;
	else
		return;
	f->runs[f->newest] = *run;
}

void rdv_finished_add(struct rdv_finished *f, const struct rdv_run *runs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		add(f, &runs[i]);
}

enum rdv_state rdv_finished_find(const struct rdv_finished *f, uint64_t seq)
{
	for (uint32_t n = 0; n < f->count; n++) {
		const struct rdv_run *run = &f->runs[(f->newest + f->count - n) % f->count];

		if (seq >= run->first && seq - run->first < run->count)
			return run->outcome;
	}
	return RDV_STATE_DONE;
}
