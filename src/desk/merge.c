/* merge.c - the next entry of a page out of all runs.
 *
 * With T the best entry of the open sources, a source that is not open yet matters only if its bound is not beyond T;
 * then it is opened first. Ties go by segment, then by seq, so the order is total and the same for every page: a cursor
 * is one position, and letters that arrive later can neither repeat nor hide another one. One thread. */
#include <stdlib.h>
#include "search.h"

/* Where a source of `part` goes on behind the position at which the last page ended. */
static void span_after(struct rdv_desk_span *span, uint64_t segment, const struct rdv_desk_position *after)
{
	if (!after)
		return;
	span->after = true;
	span->last.dead_at = after->dead_at;
	/* Of the same moment, an older segment's entries come first when the oldest do, and last when the newest do. */
	if (segment == after->segment)
		span->last.seq = after->seq;
	else
		span->last.seq = segment < after->segment ? INT64_MAX : -1;
}

static enum redrive_status add_part(struct rdv_desk_merge *m, uint32_t part, const struct rdv_desk_merge_options *o)
{
	struct rdv_desk_view *view;
	struct rdv_desk_run runs[RDV_DESK_RUNS_MAX];
	size_t count = 0;
	enum redrive_status status = rdv_desk_reader_view(m->store, m->reader, part, &view);
	if (status == REDRIVE_OK)
		status = rdv_desk_view_runs(view, runs, RDV_DESK_RUNS_MAX, &count);
	if (status != REDRIVE_OK || count == 0)
		return status;
	void *grown = realloc(m->sources, (m->count + count) * sizeof *m->sources);
	if (!grown)
		return REDRIVE_NO_MEMORY;
	m->sources = grown;
	uint64_t segment = rdv_desk_store_part(m->store, part)->segment.head.number;
	for (size_t i = 0; i < count; i++) {
		if (runs[i].high < o->from || runs[i].low >= o->to)
			continue;
		struct rdv_desk_source *s = &m->sources[m->count++];
		memset(s, 0, sizeof *s);
		s->part = part;
		s->run = runs[i].run;
		s->bound = o->oldest_first ? runs[i].low : runs[i].high;
		s->span = (struct rdv_desk_span){
			.h = o->h, .oldest_first = o->oldest_first, .from = o->from, .to = o->to};
		span_after(&s->span, segment, o->after);
	}
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_merge_begin(struct rdv_desk_merge *m, struct rdv_desk_store *store,
					 struct rdv_desk_reader *reader, const struct rdv_desk_merge_options *o)
{
	enum redrive_status status = REDRIVE_OK;
	*m = (struct rdv_desk_merge){.store = store, .reader = reader, .oldest_first = o->oldest_first};
	for (size_t i = rdv_desk_store_count(store); i-- > 0 && status == REDRIVE_OK;)
		status = add_part(m, (uint32_t)i, o);
	if (status != REDRIVE_OK)
		rdv_desk_merge_done(m);
	return status;
}

void rdv_desk_merge_done(struct rdv_desk_merge *m)
{
	free(m->sources);
	m->sources = NULL;
	m->count = 0;
}

static enum redrive_status refill(struct rdv_desk_merge *m, struct rdv_desk_source *s)
{
	struct rdv_desk_view *view;
	size_t count = 0;
	enum redrive_status status = rdv_desk_reader_view(m->store, m->reader, s->part, &view);
	if (s->count) {
		s->span.after = true;
		s->span.last = s->entries[s->count - 1];
	}
	if (status == REDRIVE_OK)
		status = rdv_desk_view_page(view, s->run, &s->span, s->entries, RDV_DESK_SOURCE_ENTRIES, &count);
	s->open = true;
	s->at = 0;
	s->count = (unsigned)count;
	s->ended = count == 0;
	return status;
}

/* Does `a` come before `b` in the page's order? Parts are in order of their segments' numbers. */
static bool comes_first(const struct rdv_desk_merge *m, const struct rdv_desk_source *a,
			const struct rdv_desk_source *b)
{
	const struct rdv_desk_entry *x = &a->entries[a->at], *y = &b->entries[b->at];
	bool less;
	if (x->dead_at != y->dead_at)
		less = x->dead_at < y->dead_at;
	else if (a->part != b->part)
		less = a->part < b->part;
	else
		less = x->seq < y->seq;
	return less == m->oldest_first;
}

/* The best open source and the nearest unopened one. */
static void survey(struct rdv_desk_merge *m, struct rdv_desk_source **best, struct rdv_desk_source **closed)
{
	*best = *closed = NULL;
	for (size_t i = 0; i < m->count; i++) {
		struct rdv_desk_source *s = &m->sources[i];
		if (s->ended)
			continue;
		if (s->open) {
			if (!*best || comes_first(m, s, *best))
				*best = s;
		} else if (!*closed || (m->oldest_first ? s->bound < (*closed)->bound : s->bound > (*closed)->bound)) {
			*closed = s;
		}
	}
}

enum redrive_status rdv_desk_merge_next(struct rdv_desk_merge *m, struct rdv_desk_place *place,
					struct rdv_desk_position *position)
{
	struct rdv_desk_source *best, *closed;
	enum redrive_status status;
	for (;;) {
		survey(m, &best, &closed);
		if (closed && best) {
			int64_t at = best->entries[best->at].dead_at;
			if (m->oldest_first ? closed->bound > at : closed->bound < at)
				closed = NULL;
		}
		if (!closed)
			break;
		status = refill(m, closed);
		if (status != REDRIVE_OK)
			return status;
	}
	if (!best)
		return REDRIVE_NOT_FOUND;
	const struct rdv_desk_entry *e = &best->entries[best->at++];
	*place = (struct rdv_desk_place){best->part, (uint32_t)e->seq};
	*position = (struct rdv_desk_position){e->dead_at,
					       rdv_desk_store_part(m->store, best->part)->segment.head.number, e->seq};
	return best->at == best->count ? refill(m, best) : REDRIVE_OK;
}
