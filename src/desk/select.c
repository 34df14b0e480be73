/* select.c - every letter of a term, without a deadline: what a plan freezes, and the letter of a message.
 *
 * Goes through the segments from the oldest on and through each run by arrival, so that blocks are read once and in
 * order. A damaged letter is left out and said: a plan is made of what can be read. Any thread, with a reader of its
 * own. */
#include <stdlib.h>
#include "../base/text.h"
#include "room.h"

struct selection {
	struct rdv_desk *d;
	struct rdv_desk_reader *reader;
	struct rdv_desk_span span;
	rdv_desk_each each;
	void *ctx;
	size_t damaged;
};

static int by_seq(const void *a, const void *b)
{
	const struct rdv_desk_entry *x = a, *y = b;
	return (x->seq > y->seq) - (x->seq < y->seq);
}

static enum redrive_status one(struct selection *s, struct rdv_desk_place place)
{
	struct rdv_letter_frame frame;
	struct rdv_envelope e;
	enum redrive_status status = rdv_desk_reader_frame(&s->d->store, s->reader, place, &frame);
	if (status == REDRIVE_OK)
		status = rdv_envelope_decode(frame.envelope, &e);
	if (status == REDRIVE_CORRUPT || status == REDRIVE_VERSION) {
		s->damaged++;
		return REDRIVE_OK;
	}
	return status == REDRIVE_OK ? s->each(s->ctx, place, &frame, &e) : status;
}

static enum redrive_status one_run(struct selection *s, uint32_t part, uint32_t run, struct rdv_desk_entry *entries)
{
	struct rdv_desk_view *view;
	size_t count = 0;
	enum redrive_status status = rdv_desk_reader_view(&s->d->store, s->reader, part, &view);
	if (status == REDRIVE_OK)
		status = rdv_desk_view_page(view, run, &s->span, entries, 1u << RDV_DESK_RUN_SHIFT, &count);
	if (count)
		qsort(entries, count, sizeof *entries, by_seq);
	for (size_t i = 0; i < count && status == REDRIVE_OK; i++)
		status = one(s, (struct rdv_desk_place){part, (uint32_t)entries[i].seq});
	return status;
}

static enum redrive_status all_runs(struct selection *s)
{
	struct rdv_desk_entry *entries = calloc(1u << RDV_DESK_RUN_SHIFT, sizeof *entries);
	enum redrive_status status = entries ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	size_t parts = rdv_desk_store_count(&s->d->store);
	for (size_t part = 0; part < parts && status == REDRIVE_OK; part++) {
		struct rdv_desk_view *view;
		struct rdv_desk_run runs[RDV_DESK_RUNS_MAX];
		size_t count = 0;
		status = rdv_desk_reader_view(&s->d->store, s->reader, part, &view);
		if (status == REDRIVE_OK)
			status = rdv_desk_view_runs(view, runs, RDV_DESK_RUNS_MAX, &count);
		for (size_t i = 0; i < count && status == REDRIVE_OK; i++)
			if (runs[i].high >= s->span.from && runs[i].low < s->span.to)
				status = one_run(s, (uint32_t)part, runs[i].run, entries);
	}
	free(entries);
	return status;
}

static enum redrive_status run(struct selection *s)
{
	s->reader = rdv_desk_reader_take(&s->d->store);
	enum redrive_status status = all_runs(s);
	rdv_desk_reader_give(&s->d->store, s->reader);
	if (s->damaged)
		rdv_desk_say(&s->d->say, 0, "%zu letters were left out: their blocks are damaged", s->damaged);
	return status;
}

struct query_filter {
	const struct rdv_query *q;
	rdv_desk_each each;
	void *ctx;
};

static enum redrive_status check_query(void *ctx, struct rdv_desk_place place, const struct rdv_letter_frame *frame,
				       const struct rdv_envelope *e)
{
	struct query_filter *f = ctx;
	return rdv_desk_query_matches(f->q, e) ? f->each(f->ctx, place, frame, e) : REDRIVE_OK;
}

enum redrive_status rdv_desk_select(struct rdv_desk *d, const struct rdv_query *q, rdv_desk_each each, void *ctx,
				    struct rdv_error *error)
{
	struct query_filter filter = {q, each, ctx};
	struct selection s = {.d = d, .each = check_query, .ctx = &filter};
	s.span.h = rdv_desk_query_term(q);
	s.span.oldest_first = true;
	s.span.from = q->dead_from.ms ? q->dead_from.ms : INT64_MIN;
	s.span.to = q->dead_to.ms ? q->dead_to.ms : INT64_MAX;
	enum redrive_status status = run(&s);
	if (status != REDRIVE_OK && error && !error->text[0])
		rdv_error_set(error, status, "the letters cannot be read now: %s", rdv_status_info(status)->text);
	return status;
}

/* ---- the letter of a message ---- */

struct message {
	struct rdv_slice route, topic;
	uint32_t partition;
	uint64_t offset;
	bool found;
	uint32_t generation;
	char *id;
};

static enum redrive_status check_message(void *ctx, struct rdv_desk_place place, const struct rdv_letter_frame *frame,
					 const struct rdv_envelope *e)
{
	struct message *m = ctx;
	uint8_t id[16];
	if (e->partition != m->partition || e->offset != m->offset || e->copy != 0 ||
	    !rdv_slice_equal(e->route, m->route) || !rdv_slice_equal(e->topic, m->topic))
		return REDRIVE_OK;
	if (m->found && e->generation < m->generation)
		return REDRIVE_OK;
	m->found = true;
	m->generation = e->generation;
	rdv_envelope_id(e, id);
	rdv_base32_128(id, m->id);
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_find(struct rdv_desk *d, const char *route, const char *topic, uint32_t partition,
				  uint64_t offset, char id[27])
{
	struct message m = {rdv_slice_text(route), rdv_slice_text(topic), partition, offset, .id = id};
	struct selection s = {.d = d, .each = check_message, .ctx = &m};
	s.span = (struct rdv_desk_span){.oldest_first = true, .from = INT64_MIN, .to = INT64_MAX};
	s.span.h = rdv_desk_term_message(m.route, m.topic, partition, offset);
	enum redrive_status status = run(&s);
	if (status == REDRIVE_OK && !m.found)
		return REDRIVE_NOT_FOUND;
	return status;
}
