/* search.c - the outside's questions about letters: one by id, its body, by message, a page of a list; and the
 * selection of a plan.
 *
 * A question takes the term that leaves the fewest candidates, reads each candidate's letter and checks it against all
 * of the query, since the index holds 32-bit hashes only. A page stops at its deadline: what it found so far comes with
 * a cursor at the point it reached. Letters whose block is damaged are left out and said. Letters are handed out after
 * the reader is given back, so that the receiver may ask again. Any thread. */
#include <stdio.h>
#include <stdlib.h>
#include "room.h"
#include "../base/text.h"
#include "search.h"

#define PAGE_MS 150

enum redrive_status rdv_desk_letter_make(struct rdv_desk *d, struct rdv_slice envelope, struct rdv_letter *out)
{
	struct rdv_desk_decided decided;
	uint8_t id[16];
	memset(out, 0, sizeof *out);
	out->bytes = rdv_block_copy(envelope);
	if (!out->bytes)
		return REDRIVE_NO_MEMORY;
	enum redrive_status status = rdv_envelope_decode(rdv_block_slice(out->bytes), &out->envelope);
	if (status == REDRIVE_OK) {
		rdv_envelope_id(&out->envelope, id);
		rdv_base32_128(id, out->id);
		rdv_desk_control_lock(&d->control);
		status = rdv_desk_control_letter(&d->control, id, &decided);
		rdv_desk_control_unlock(&d->control);
	}
	if (status != REDRIVE_OK) {
		rdv_letter_done(out);
		return status;
	}
	out->state = decided.state;
	if (decided.plan_id[0])
		snprintf(out->replay, sizeof out->replay, "%s", decided.plan_id);
	else
		rdv_slice_to_text(out->envelope.replay, out->replay, sizeof out->replay);
	if (decided.has_next)
		rdv_base32_128(decided.next, out->next);
	int64_t hot_ms = d->hot_ms;
	if (hot_ms > 0)
		out->expires_at.ms = rdv_ms_add(out->envelope.dead_at.ms, hot_ms);
	return REDRIVE_OK;
}

/* Reads the letter with this text id and gives its frame to the maker of the answer. */
static enum redrive_status
with_letter(struct rdv_desk *d, const char *id,
	    enum redrive_status (*make)(struct rdv_desk *d, const struct rdv_letter_frame *f, void *out), void *out)
{
	uint8_t bytes[16];
	struct rdv_desk_place place;
	struct rdv_letter_frame frame;
	if (rdv_base32_128_decode(rdv_slice_text(id), bytes) != REDRIVE_OK)
		return REDRIVE_NOT_FOUND;
	struct rdv_desk_reader *r = rdv_desk_reader_take(&d->store);
	enum redrive_status status = rdv_desk_reader_find(&d->store, r, bytes, &place);
	if (status == REDRIVE_OK)
		status = rdv_desk_reader_frame(&d->store, r, place, &frame);
	if (status == REDRIVE_OK)
		status = make(d, &frame, out);
	rdv_desk_reader_give(&d->store, r);
	return status;
}

static enum redrive_status make_letter(struct rdv_desk *d, const struct rdv_letter_frame *f, void *out)
{
	return rdv_desk_letter_make(d, f->envelope, out);
}

static enum redrive_status make_body(struct rdv_desk *d, const struct rdv_letter_frame *f, void *out)
{
	struct rdv_block **body = out;
	if (!f->has_body)
		return REDRIVE_NOT_FOUND;
	*body = rdv_block_copy(f->body);
	return *body ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

enum redrive_status rdv_desk_get(struct rdv_desk *d, const char *id, struct rdv_letter *out)
{
	return with_letter(d, id, make_letter, out);
}

enum redrive_status rdv_desk_body(struct rdv_desk *d, const char *id, struct rdv_block **out)
{
	return with_letter(d, id, make_body, out);
}

/* ---- the query's term, and the check of a candidate ---- */

uint32_t rdv_desk_query_term(const struct rdv_query *q)
{
	const struct rdv_slice none = {NULL, 0};
	struct rdv_slice route = rdv_slice_text(q->route), reason = rdv_slice_text(rdv_reason_name(q->reason));
	if (q->has_key)
		return rdv_desk_term_hash(RDV_DESK_TERM_KEY, rdv_slice(q->key, q->key_size), none);
	if (q->route && q->reason != RDV_REASON_NONE)
		return rdv_desk_term_hash(RDV_DESK_TERM_ROUTE_REASON, route, reason);
	if (q->route)
		return rdv_desk_term_hash(RDV_DESK_TERM_ROUTE, route, none);
	if (q->reason != RDV_REASON_NONE)
		return rdv_desk_term_hash(RDV_DESK_TERM_REASON, reason, none);
	return rdv_desk_term_hash(RDV_DESK_TERM_ALL, none, none);
}

bool rdv_desk_query_matches(const struct rdv_query *q, const struct rdv_envelope *e)
{
	if (q->route && !rdv_slice_is(e->route, q->route))
		return false;
	if (q->reason != RDV_REASON_NONE && e->reason != q->reason)
		return false;
	if (q->has_key && (e->null_key || !rdv_slice_equal(e->key, rdv_slice(q->key, q->key_size))))
		return false;
	if (q->dead_from.ms && e->dead_at.ms < q->dead_from.ms)
		return false;
	return !q->dead_to.ms || e->dead_at.ms < q->dead_to.ms;
}

/* ---- cursors: dead_at, segment, seq, and a hash of the question, in hex ---- */

static uint32_t question_hash(const struct rdv_query *q, bool oldest_first)
{
	uint8_t more[32] = {0};
	rdv_put_u64(more, (uint64_t)q->dead_from.ms);
	rdv_put_u64(more + 8, (uint64_t)q->dead_to.ms);
	more[16] = oldest_first;
	more[17] = (uint8_t)q->reason;
	more[18] = q->has_key;
	rdv_put_u64(more + 19, rdv_xxh3(rdv_slice_text(q->route ? q->route : "")));
	uint64_t key = rdv_xxh3(rdv_slice(q->has_key ? q->key : "", q->has_key ? q->key_size : 0));
	return (uint32_t)(rdv_xxh3(rdv_slice(more, sizeof more)) ^ key * 31);
}

static void cursor_write(const struct rdv_desk_position *p, uint32_t hash, char out[RDV_CURSOR_TEXT])
{
	snprintf(out, RDV_CURSOR_TEXT, "%016llx%016llx%08llx%08x", (unsigned long long)p->dead_at,
		 (unsigned long long)p->segment, (unsigned long long)p->seq, (unsigned)hash);
}

static bool cursor_read(const char *text, uint32_t hash, struct rdv_desk_position *out)
{
	unsigned long long dead_at, segment, seq;
	unsigned found;
	char again[RDV_CURSOR_TEXT];
	if (sscanf(text, "%16llx%16llx%8llx%8x", &dead_at, &segment, &seq, &found) != 4 || found != hash)
		return false;
	*out = (struct rdv_desk_position){(int64_t)dead_at, segment, (int64_t)seq};
	cursor_write(out, found, again);
	return strcmp(text, again) == 0;
}

/* ---- a page ---- */

struct page {
	struct rdv_desk *d;
	const struct rdv_query *q;
	size_t limit, count, damaged;
	struct rdv_letter *letters; /* owns */
	bool more;
	struct rdv_desk_position position; /* reached */
};

/* One candidate. *emitted: it is the page's; `more`: it would be, but the page is full. */
static enum redrive_status consider(struct page *p, struct rdv_desk_reader *r, struct rdv_desk_place place,
				    bool *matches)
{
	struct rdv_letter_frame frame;
	struct rdv_envelope e;
	*matches = false;
	enum redrive_status status = rdv_desk_reader_frame(&p->d->store, r, place, &frame);
	if (status == REDRIVE_OK)
		status = rdv_envelope_decode(frame.envelope, &e);
	if (status == REDRIVE_CORRUPT || status == REDRIVE_VERSION) {
		p->damaged++;
		return REDRIVE_OK;
	}
	if (status != REDRIVE_OK || !rdv_desk_query_matches(p->q, &e))
		return status;
	*matches = true;
	if (p->count == p->limit)
		return REDRIVE_OK;
	status = rdv_desk_letter_make(p->d, frame.envelope, &p->letters[p->count]);
	if (status == REDRIVE_OK)
		p->count++;
	return status;
}

static enum redrive_status fill(struct page *p, struct rdv_desk_reader *r, struct rdv_desk_merge *m)
{
	int64_t until = rdv_mono_now().ms + PAGE_MS;
	struct rdv_desk_place place;
	struct rdv_desk_position position;
	for (;;) {
		bool matches;
		enum redrive_status status = rdv_desk_merge_next(m, &place, &position);
		if (status == REDRIVE_NOT_FOUND)
			return REDRIVE_OK;
		bool full = p->count == p->limit;
		if (status == REDRIVE_OK)
			status = consider(p, r, place, &matches);
		if (status != REDRIVE_OK)
			return status;
		p->more = full && matches;
		if (p->more)
			return REDRIVE_OK;
		/* A full page ends where it was filled, though it looked further for one more. */
		if (!full)
			p->position = position;
		if (rdv_mono_now().ms >= until) {
			p->more = true;
			return REDRIVE_OK;
		}
	}
}

static enum redrive_status run_page(struct page *p, const struct rdv_desk_merge_options *o)
{
	struct rdv_desk_merge merge;
	struct rdv_desk_reader *r = rdv_desk_reader_take(&p->d->store);
	enum redrive_status status = rdv_desk_merge_begin(&merge, &p->d->store, r, o);
	if (status == REDRIVE_OK) {
		status = fill(p, r, &merge);
		rdv_desk_merge_done(&merge);
	}
	rdv_desk_reader_give(&p->d->store, r);
	if (p->damaged)
		rdv_desk_say(&p->d->say, 0, "%zu letters of this page cannot be read: their blocks are damaged",
			     p->damaged);
	return status;
}

enum redrive_status rdv_desk_list(struct rdv_desk *d, const struct rdv_query *q, bool oldest_first, size_t limit,
				  char cursor[RDV_CURSOR_TEXT],
				  void (*each)(void *ctx, const struct rdv_letter *letter), void *ctx,
				  struct rdv_error *error)
{
	static const struct rdv_query everything;
	struct page p = {.d = d, .q = q ? q : &everything, .limit = limit};
	struct rdv_desk_position after;
	uint32_t hash = question_hash(p.q, oldest_first);
	if (limit == 0 || limit > 100000)
		return rdv_error_set(error, REDRIVE_INVALID, "a page holds 1 to 100000 letters");
	if (cursor[0] && !cursor_read(cursor, hash, &after))
		return rdv_error_set(error, REDRIVE_INVALID, "this cursor is not one of this list");
	struct rdv_desk_merge_options o = {
		.h = rdv_desk_query_term(p.q),
		.oldest_first = oldest_first,
		.from = p.q->dead_from.ms ? p.q->dead_from.ms : INT64_MIN,
		.to = p.q->dead_to.ms ? p.q->dead_to.ms : INT64_MAX,
		.after = cursor[0] ? &after : NULL,
	};
	p.letters = calloc(limit, sizeof *p.letters);
	if (!p.letters)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for a page of letters");
	enum redrive_status status = run_page(&p, &o);
	cursor[0] = 0;
	if (status == REDRIVE_OK && p.more)
		cursor_write(&p.position, hash, cursor);
	for (size_t i = 0; i < p.count; i++) {
		if (status == REDRIVE_OK)
			each(ctx, &p.letters[i]);
		rdv_letter_done(&p.letters[i]);
	}
	free(p.letters);
	if (status != REDRIVE_OK)
		rdv_error_set(error, status, "the letters cannot be listed now: %s", rdv_status_info(status)->text);
	return status;
}
