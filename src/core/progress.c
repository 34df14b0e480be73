/* progress.c - see progress.h.
 *
 * The words lie in a ring: arrivals append at its end, the position gives up empty ones at its front. Their numbers
 * rise, by one where offsets have no gaps, so that a word is found at once by its distance from the front; where there
 * are gaps, a binary search ends within that distance. So nothing here depends on how far offsets lie apart: memory and
 * time follow the number of words that have arrived.
 *
 * What is settled ahead comes in a journal's order, mostly rising. Runs are appended; those that do not rise are sorted
 * in when their order is needed, or before the array grows. After a fold the runs are used up and their memory goes. */
#include "progress.h"
#include <stdlib.h>

#define FIRST_WORDS 16u
#define FIRST_RUNS 16u
#define KEEP_WORDS 4096u /* of an empty ring; more are given back */

void rdv_progress_init(struct rdv_progress *p, uint64_t position)
{
	*p = (struct rdv_progress){.position = position, .next = position};
}

void rdv_progress_done(struct rdv_progress *p)
{
	if (!p)
		return;
	free(p->words);
	free(p->ahead);
	rdv_progress_init(p, 0);
}

static struct rdv_progress_word *word_at(const struct rdv_progress *p, size_t i)
{
	return &p->words[(p->head + i) & (p->capacity - 1)];
}

/* Index of the first word whose number is at least `number`; count if there is none. */
static size_t find(const struct rdv_progress *p, uint64_t number)
{
	size_t low = 0, high = p->count;
	uint64_t distance;

	if (!p->count || number <= word_at(p, 0)->number)
		return 0;
	distance = number - word_at(p, 0)->number;
	if (distance < high)
		high = (size_t)distance; /* numbers rise by one at least: it lies here, or before */
	else if (word_at(p, high - 1)->number < number)
		return high;
	if (high < p->count && word_at(p, high)->number == number)
		return high;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (word_at(p, middle)->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static enum redrive_status grow_words(struct rdv_progress *p)
{
	size_t capacity = p->capacity ? p->capacity * 2 : FIRST_WORDS;
	struct rdv_progress_word *words;

	if (capacity > SIZE_MAX / 2 / sizeof *words)
		return REDRIVE_NO_MEMORY;
	words = malloc(capacity * sizeof *words);
	if (!words)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < p->count; i++)
		words[i] = *word_at(p, i);
	free(p->words);
	p->words = words;
	p->head = 0;
	p->capacity = capacity;
	return REDRIVE_OK;
}

static enum redrive_status open_bit(struct rdv_progress *p, uint64_t offset)
{
	enum redrive_status status = REDRIVE_OK;

	if (!p->count || word_at(p, p->count - 1)->number != offset / 64) {
		if (p->count == p->capacity)
			status = grow_words(p);
		if (status != REDRIVE_OK)
			return status;
		*word_at(p, p->count++) = (struct rdv_progress_word){offset / 64, 0};
	}
	word_at(p, p->count - 1)->open |= UINT64_C(1) << (offset % 64);
	p->open++;
	return status;
}

/* Gives up the empty words at the front; what is left begins with the position. */
static void move_position(struct rdv_progress *p)
{
	while (p->count && !word_at(p, 0)->open) {
		p->head = (p->head + 1) & (p->capacity - 1);
		p->count--;
	}
	p->position = p->count ? word_at(p, 0)->number * 64 + (uint64_t)__builtin_ctzll(word_at(p, 0)->open) : p->next;
	if (!p->count && p->capacity > KEEP_WORDS) {
		free(p->words);
		p->words = NULL;
		p->head = p->capacity = 0;
	}
}

static int by_first(const void *a, const void *b)
{
	const struct rdv_progress_run *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/* Sorts the runs ahead and joins those that touch; there is one at least. */
static void order_ahead(struct rdv_progress *p)
{
	struct rdv_progress_run *runs = p->ahead + p->ahead_first;
	size_t count = p->ahead_count - p->ahead_first, kept = 0;

	qsort(runs, count, sizeof *runs, by_first);
	for (size_t i = 1; i < count; i++)
		if (runs[i].first > runs[kept].end)
			runs[++kept] = runs[i];
		else if (runs[i].end > runs[kept].end)
			runs[kept].end = runs[i].end;
	p->ahead_count = p->ahead_first + kept + 1;
	p->mixed = false;
}

/* Room for one more run. First what is over goes, and what touches is joined; grows if that has not freed a quarter. */
static enum redrive_status room_ahead(struct rdv_progress *p)
{
	struct rdv_progress_run *runs;
	size_t capacity;

	if (p->ahead_count < p->ahead_capacity)
		return REDRIVE_OK;
	if (p->mixed)
		order_ahead(p);
	if (p->ahead_first) {
		p->ahead_count -= p->ahead_first;
		memmove(p->ahead, p->ahead + p->ahead_first, p->ahead_count * sizeof *runs);
		p->ahead_first = 0;
	}
	if (p->ahead_count < p->ahead_capacity - p->ahead_capacity / 4)
		return REDRIVE_OK;
	capacity = p->ahead_capacity ? p->ahead_capacity * 2 : FIRST_RUNS;
	runs = capacity <= SIZE_MAX / sizeof *runs ? realloc(p->ahead, capacity * sizeof *runs) : NULL;
	if (!runs)
		return p->ahead_count < p->ahead_capacity ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	p->ahead = runs;
	p->ahead_capacity = capacity;
	return REDRIVE_OK;
}

static enum redrive_status settle_ahead(struct rdv_progress *p, uint64_t first, uint64_t end)
{
	struct rdv_progress_run *last = p->ahead_count > p->ahead_first ? &p->ahead[p->ahead_count - 1] : NULL;
	bool mixed = p->mixed || (last && first <= last->end);

	if (last && first >= last->first && first <= last->end) {
		if (end > last->end)
			last->end = end;
		return REDRIVE_OK;
	}
	if (room_ahead(p) != REDRIVE_OK)
		return REDRIVE_NO_MEMORY;
	p->mixed = mixed; /* said again: making room may have sorted, but this one is not yet in its place */
	p->ahead[p->ahead_count++] = (struct rdv_progress_run){first, end};
	return REDRIVE_OK;
}

/* Is `offset` settled ahead? Runs that lie before it are over. */
static bool take_ahead(struct rdv_progress *p, uint64_t offset)
{
	if (p->ahead_first == p->ahead_count)
		return false;
	if (p->mixed)
		order_ahead(p);
	while (p->ahead_first < p->ahead_count && p->ahead[p->ahead_first].end <= offset)
		p->ahead_first++;
	if (p->ahead_first < p->ahead_count)
		return p->ahead[p->ahead_first].first <= offset;
	free(p->ahead);
	p->ahead = NULL;
	p->ahead_first = p->ahead_count = p->ahead_capacity = 0;
	return false;
}

enum redrive_status rdv_progress_arrive(struct rdv_progress *p, uint64_t offset, bool *fresh)
{
	enum redrive_status status = REDRIVE_OK;

	if (offset < p->next || offset == UINT64_MAX)
		return REDRIVE_INVALID;
	*fresh = !take_ahead(p, offset);
	if (*fresh)
		status = open_bit(p, offset);
	if (status != REDRIVE_OK)
		return status;
	p->next = offset + 1;
	if (p->open <= 1) /* else the first open one is an older one */
		move_position(p);
	return REDRIVE_OK;
}

void rdv_progress_skip(struct rdv_progress *p, uint64_t offset)
{
	if (offset <= p->next)
		return;
	p->next = offset;
	take_ahead(p, offset);
	if (!p->open)
		move_position(p);
}

static void close_bits(struct rdv_progress *p, uint64_t first, uint64_t end)
{
	for (size_t i = find(p, first / 64); i < p->count && word_at(p, i)->number <= (end - 1) / 64; i++) {
		struct rdv_progress_word *w = word_at(p, i);
		uint64_t mask = UINT64_MAX;

		if (w->number == first / 64)
			mask &= UINT64_MAX << (first % 64);
		if (w->number == (end - 1) / 64)
			mask &= UINT64_MAX >> (63 - (end - 1) % 64);
		p->open -= (uint64_t)__builtin_popcountll(w->open & mask);
		w->open &= ~mask;
	}
	if (first <= p->position)
		move_position(p);
}

enum redrive_status rdv_progress_settle(struct rdv_progress *p, uint64_t first, uint64_t count)
{
	uint64_t end = count < UINT64_MAX - first ? first + count : UINT64_MAX;

	if (first < p->position)
		first = p->position;
	if (first >= end)
		return REDRIVE_OK;
	if (end > p->next && settle_ahead(p, first > p->next ? first : p->next, end) != REDRIVE_OK)
		return REDRIVE_NO_MEMORY;
	if (first < p->next)
		close_bits(p, first, end < p->next ? end : p->next);
	return REDRIVE_OK;
}

bool rdv_progress_is_open(const struct rdv_progress *p, uint64_t offset)
{
	return rdv_progress_next_open(p, offset) == offset && offset != UINT64_MAX;
}

uint64_t rdv_progress_next_open(const struct rdv_progress *p, uint64_t from)
{
	for (size_t i = find(p, from / 64); i < p->count; i++) {
		const struct rdv_progress_word *w = word_at(p, i);
		uint64_t open = w->number == from / 64 ? w->open & UINT64_MAX << (from % 64) : w->open;

		if (open)
			return w->number * 64 + (uint64_t)__builtin_ctzll(open);
	}
	return UINT64_MAX;
}
