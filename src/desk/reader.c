/* reader.c - questions to the store: a pool of readers, index views by part, one letter, a letter by its id.
 *
 * A reader keeps its views open and its last block, so that neighbours cost no second decompression. A view is opened
 * again when the part's index file was replaced. Any thread; a reader belongs to one question at a time. */
#include <stdlib.h>
#include "store.h"

size_t rdv_desk_store_count(struct rdv_desk_store *s)
{
	pthread_mutex_lock(&s->mutex);
	size_t count = s->count;
	pthread_mutex_unlock(&s->mutex);
	return count;
}

struct rdv_desk_part *rdv_desk_store_part(struct rdv_desk_store *s, size_t i)
{
	pthread_mutex_lock(&s->mutex);
	struct rdv_desk_part *p = s->parts[i];
	pthread_mutex_unlock(&s->mutex);
	return p;
}

struct rdv_desk_reader *rdv_desk_reader_take(struct rdv_desk_store *s)
{
	struct rdv_desk_reader *r = NULL;
	pthread_mutex_lock(&s->mutex);
	while (!r) {
		for (size_t i = 0; i < RDV_DESK_READERS && !r; i++)
			r = s->readers[i].taken ? NULL : &s->readers[i];
		if (!r)
			pthread_cond_wait(&s->reader_free, &s->mutex);
	}
	r->taken = true;
	pthread_mutex_unlock(&s->mutex);
	return r;
}

void rdv_desk_reader_rest(struct rdv_desk_reader *r)
{
	if (r->block && r->block->size > (1u << 20)) { /* a giant letter must not stay in memory */
		rdv_block_unref(r->block);
		r->block = NULL;
	}
}

void rdv_desk_reader_done(struct rdv_desk_reader *r)
{
	for (size_t i = 0; i < r->capacity; i++)
		rdv_desk_view_done(&r->views[i]);
	rdv_block_unref(r->block);
	free(r->views);
	free(r->made);
}

void rdv_desk_reader_give(struct rdv_desk_store *s, struct rdv_desk_reader *r)
{
	rdv_desk_reader_rest(r);
	pthread_mutex_lock(&s->mutex);
	r->taken = false;
	pthread_cond_signal(&s->reader_free);
	pthread_mutex_unlock(&s->mutex);
}

static enum redrive_status grow(struct rdv_desk_reader *r, size_t count)
{
	struct rdv_desk_view *views = realloc(r->views, count * sizeof *views);
	if (views)
		r->views = views;
	unsigned *made = views ? realloc(r->made, count * sizeof *made) : NULL;
	if (!made)
		return REDRIVE_NO_MEMORY;
	r->made = made;
	memset(r->views + r->capacity, 0, (count - r->capacity) * sizeof *views);
	memset(r->made + r->capacity, 0, (count - r->capacity) * sizeof *made);
	r->capacity = count;
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_reader_view(struct rdv_desk_store *s, struct rdv_desk_reader *r, size_t part,
					 struct rdv_desk_view **out)
{
	struct rdv_desk_part *p = rdv_desk_store_part(s, part);
	unsigned made = p->index_made;
	if (p->index_broken)
		return REDRIVE_IO;
	if (part >= r->capacity) {
		enum redrive_status status = grow(r, part + 16);
		if (status != REDRIVE_OK)
			return status;
	}
	if (r->made[part] != made) {
		rdv_desk_view_done(&r->views[part]);
		r->made[part] = 0;
		enum redrive_status status = rdv_desk_view_open(&r->views[part], p->index_path);
		if (status != REDRIVE_OK)
			return status;
		r->made[part] = made;
	}
	*out = &r->views[part];
	return REDRIVE_OK;
}

static enum redrive_status load_block(struct rdv_desk_store *s, struct rdv_desk_reader *r, size_t part, uint64_t at)
{
	struct rdv_desk_segment_block head;
	if (r->block && r->block_part == part && r->block_at == at)
		return REDRIVE_OK;
	rdv_block_unref(r->block);
	r->block = NULL;
	enum redrive_status status =
		rdv_desk_segment_read(&rdv_desk_store_part(s, part)->segment, at, &head, &r->block);
	if (status == REDRIVE_NOT_FOUND) /* the index says there is one */
		status = REDRIVE_CORRUPT;
	r->block_part = part;
	r->block_at = at;
	return status;
}

enum redrive_status rdv_desk_reader_frame(struct rdv_desk_store *s, struct rdv_desk_reader *r,
					  struct rdv_desk_place place, struct rdv_letter_frame *out)
{
	struct rdv_desk_view *view;
	uint8_t id[16];
	uint64_t block;
	uint32_t at;
	size_t next;
	enum redrive_status status = rdv_desk_reader_view(s, r, place.part, &view);
	if (status == REDRIVE_OK)
		status = rdv_desk_view_letter(view, place.seq, id, &block, &at);
	if (status == REDRIVE_OK)
		status = load_block(s, r, place.part, block);
	if (status == REDRIVE_OK)
		status = rdv_letter_frame_decode(rdv_block_slice(r->block), at, out, &next);
	if (status == REDRIVE_CORRUPT)
		s->damaged++;
	return status;
}

/* In one part: the newest letter with this id that can be read. */
static enum redrive_status find_in(struct rdv_desk_store *s, struct rdv_desk_reader *r, uint32_t part, uint32_t run,
				   const uint8_t id[16], struct rdv_desk_place *out)
{
	struct rdv_desk_view *view;
	struct rdv_desk_entry entries[16];
	struct rdv_letter_frame frame;
	struct rdv_desk_span span = {.from = INT64_MIN, .to = INT64_MAX};
	size_t count = 0;
	uint8_t found[16];
	uint64_t block;
	uint32_t at;
	enum redrive_status answer = REDRIVE_NOT_FOUND;
	span.h = rdv_desk_term_hash(RDV_DESK_TERM_ID, rdv_slice(id, 16), rdv_slice(NULL, 0));
	do {
		enum redrive_status status = rdv_desk_reader_view(s, r, part, &view);
		if (status == REDRIVE_OK)
			status = rdv_desk_view_page(view, run, &span, entries, 16, &count);
		for (size_t i = 0; i < count && status == REDRIVE_OK; i++) {
			status = rdv_desk_view_letter(view, (uint32_t)entries[i].seq, found, &block, &at);
			if (status != REDRIVE_OK || memcmp(found, id, 16) != 0)
				continue;
			*out = (struct rdv_desk_place){part, (uint32_t)entries[i].seq};
			answer = rdv_desk_reader_frame(s, r, *out, &frame);
			if (answer != REDRIVE_CORRUPT)
				return answer;
		}
		if (status != REDRIVE_OK)
			return status;
		span.after = count > 0;
		span.last = count ? entries[count - 1] : span.last;
	} while (count == 16);
	return answer;
}

/* In all runs of one part, newest first. CORRUPT: only damaged ones. */
static enum redrive_status find_part(struct rdv_desk_store *s, struct rdv_desk_reader *r, uint32_t part,
				     const uint8_t id[16], struct rdv_desk_place *out)
{
	struct rdv_desk_view *view;
	struct rdv_desk_run runs[RDV_DESK_RUNS_MAX];
	size_t count = 0;
	enum redrive_status answer = REDRIVE_NOT_FOUND, status = rdv_desk_reader_view(s, r, part, &view);
	if (status == REDRIVE_OK)
		status = rdv_desk_view_runs(view, runs, RDV_DESK_RUNS_MAX, &count);
	if (status != REDRIVE_OK)
		return status;
	while (count-- > 0) {
		status = find_in(s, r, part, runs[count].run, id, out);
		if (status != REDRIVE_NOT_FOUND && status != REDRIVE_CORRUPT)
			return status;
		answer = status == REDRIVE_CORRUPT ? status : answer;
	}
	return answer;
}

enum redrive_status rdv_desk_reader_find(struct rdv_desk_store *s, struct rdv_desk_reader *r, const uint8_t id[16],
					 struct rdv_desk_place *out)
{
	enum redrive_status answer = REDRIVE_NOT_FOUND;
	for (size_t part = rdv_desk_store_count(s); part-- > 0;) {
		enum redrive_status status = find_part(s, r, (uint32_t)part, id, out);
		if (status != REDRIVE_NOT_FOUND && status != REDRIVE_CORRUPT)
			return status;
		answer = status == REDRIVE_CORRUPT ? status : answer; /* an older copy may be whole */
	}
	return answer;
}
