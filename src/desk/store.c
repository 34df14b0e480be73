/* store.c - taking letters in: duplicates, one write and one sync per batch, index, roll.
 *
 * Order of a batch: choose the part (roll at a new day, at 4 M letters or 8 GiB, or when the last one is sealed), drop
 * what is here already, write, sync; then, in the indexer's thread while the next one is written: index, answer. A
 * letter is OK only after its sync. An index that fails does not: the letter is safe, and the index is made again from
 * the segment; until then questions to it say so. A write that fails gives its error to every letter of the batch, and
 * nothing of it is kept. Whether a letter is here already: the filters say "no" for nearly all, else the indexes are
 * asked and the letter is read, so that one whose block was damaged can be taken in again. What the indexer has at work
 * is known by its rows. Nothing else touches an index before the indexer has ended its batch. One thread, but for the
 * indexer's part and the counts. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "store.h"

#define SEGMENT_LETTERS 4000000u
#define SEGMENT_BYTES (8ull << 30)
#define REBUILD_PAUSE_MS 5000

void rdv_desk_say(const struct rdv_desk_say *s, int level, const char *fmt, ...)
{
	char text[700];
	va_list args;
	if (!s->say)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	s->say(s->ctx, level, text);
}

/* In the indexer's thread. */
static void index_batch(void *ctx, struct rdv_desk_batch *b)
{
	struct rdv_desk_store *s = ctx;
	struct rdv_desk_part *p = b->part;
	struct rdv_error error = {{0}};
	if (!b->count || p->index_broken)
		return;
	if (rdv_desk_index_add(p->index, b->rows, b->count, b->end, &error) == REDRIVE_OK)
		return;
	rdv_desk_say(&s->say, 1, "%s: it will be made again", error.text);
	p->rebuild_at = rdv_mono_now().ms;
	p->index_broken = true;
}

/* The last part goes on taking in, unless it is sealed. */
static void resume_last(struct rdv_desk_store *s)
{
	struct rdv_desk_part *p = s->count ? s->parts[s->count - 1] : NULL;
	struct rdv_error error = {{0}};
	uint32_t letters;
	uint64_t bytes;
	if (!p || p->segment.sealed || p->index)
		return;
	if (rdv_desk_index_open(p->index_path, p->segment.end, &p->index, &letters, &bytes, &error) == REDRIVE_OK &&
	    bytes == p->segment.end)
		return;
	rdv_desk_say(&s->say, 1, "%s", error.text);
	p->index_broken = true;
}

enum redrive_status rdv_desk_store_open(struct rdv_desk_store *s, const struct rdv_desk_store_options *o,
					struct rdv_error *error)
{
	memset(s, 0, sizeof *s);
	s->files = o->files ? o->files : &rdv_file_real;
	s->files_ctx = o->files_ctx;
	s->say = o->say;
	s->segment_letters = o->segment_letters ? o->segment_letters : SEGMENT_LETTERS;
	s->segment_bytes = o->segment_bytes ? o->segment_bytes : SEGMENT_BYTES;
	s->next_number = 1;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->reader_free, NULL);
	rdv_desk_indexer_init(&s->indexer, index_batch, s);
	s->row_capacity = 10000;
	s->rows = calloc(s->row_capacity, sizeof *s->rows);
	s->dir = strdup(o->dir);
	enum redrive_status status = rdv_desk_segment_writer_init(&s->writer);
	if (!s->rows || !s->dir)
		status = REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		status = rdv_desk_store_recover(s, error);
	else
		rdv_error_set(error, status, "letters in '%s': no memory", o->dir);
	if (status == REDRIVE_OK)
		resume_last(s);
	else
		rdv_desk_store_close(s);
	return status;
}

enum redrive_status rdv_desk_store_add_part(struct rdv_desk_store *s, struct rdv_desk_part *p)
{
	enum redrive_status status = REDRIVE_OK;
	pthread_mutex_lock(&s->mutex);
	if (s->count == s->capacity) {
		size_t capacity = s->capacity ? s->capacity * 2 : 16;
		void *grown = realloc(s->parts, capacity * sizeof *s->parts);
		if (grown) {
			s->parts = grown;
			s->capacity = capacity;
		} else {
			status = REDRIVE_NO_MEMORY;
		}
	}
	if (status == REDRIVE_OK)
		s->parts[s->count++] = p;
	pthread_mutex_unlock(&s->mutex);
	return status;
}

static struct rdv_desk_part *last_part(struct rdv_desk_store *s)
{
	return s->count ? s->parts[s->count - 1] : NULL;
}

/* ---- rolling ---- */

static void anchor(struct rdv_desk_store *s, struct rdv_desk_part *p, bool seal)
{
	struct rdv_error error = {{0}};
	if (p->segment.sealed || (p->anchored && !seal))
		return;
	if (rdv_desk_segment_anchor(&s->writer, &p->segment, seal, &error) != REDRIVE_OK)
		rdv_desk_say(&s->say, 1, "%s", error.text);
	p->anchored = true;
	rdv_desk_indexer_wait(&s->indexer);
	if (p->index && rdv_desk_index_add(p->index, NULL, 0, p->segment.end, &error) != REDRIVE_OK)
		rdv_desk_say(&s->say, 1, "%s", error.text);
}

static void finish_part(struct rdv_desk_store *s, struct rdv_desk_part *p, bool seal)
{
	anchor(s, p, seal);
	rdv_desk_indexer_wait(&s->indexer);
	rdv_desk_index_close(p->index, !p->index_broken);
	p->index = NULL;
}

static uint32_t day_of(struct rdv_wall now)
{
	char text[25];
	unsigned y = 0, m = 0, d = 0;
	rdv_wall_format(now, text);
	sscanf(text, "%4u-%2u-%2u", &y, &m, &d);
	return y * 10000 + m * 100 + d;
}

static enum redrive_status new_part(struct rdv_desk_store *s, struct rdv_wall now, struct rdv_error *error)
{
	struct rdv_desk_part *last = last_part(s);
	struct rdv_desk_segment_head head = {.number = s->next_number++, .day = day_of(now), .created = now};
	if (last && head.day < last->segment.head.day) /* the clock went back: names stay in order */
		head.day = last->segment.head.day;
	if (last) {
		head.previous = last->segment.head.number;
		head.previous_end = last->segment.end;
	}
	struct rdv_desk_part *p = rdv_desk_part_new(s, head.day, head.number);
	char *path = rdv_desk_segment_path(s->dir, head.day, head.number, "seg");
	uint32_t letters;
	uint64_t bytes;
	enum redrive_status status = p && path ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		status = rdv_desk_segment_create(&p->segment, path, &head, error);
	else
		free(path);
	if (status == REDRIVE_OK)
		rdv_desk_index_drop(p->index_path);
	if (status == REDRIVE_OK &&
	    rdv_desk_index_open(p->index_path, p->segment.end, &p->index, &letters, &bytes, error) != REDRIVE_OK) {
		rdv_desk_say(&s->say, 1, "%s", error->text);
		p->index_broken = true;
	}
	if (status == REDRIVE_OK) {
		p->filter_ready = true;
		status = rdv_desk_store_add_part(s, p);
	}
	if (status != REDRIVE_OK)
		rdv_desk_part_free(p);
	return status;
}

/* The part that takes in the next `count` letters. */
static enum redrive_status ready_part(struct rdv_desk_store *s, size_t count, struct rdv_wall now,
				      struct rdv_desk_part **out, struct rdv_error *error)
{
	struct rdv_desk_part *p = last_part(s);
	if (p && !p->segment.sealed && p->segment.letters > 0 &&
	    (day_of(now) > p->segment.head.day || p->segment.letters + count > s->segment_letters ||
	     p->segment.end >= s->segment_bytes))
		anchor(s, p, true);
	if (p && p->segment.sealed && p->index)
		finish_part(s, p, true);
	if (!p || p->segment.sealed) {
		enum redrive_status status = new_part(s, now, error);
		if (status != REDRIVE_OK)
			return status;
		p = last_part(s);
	}
	*out = p;
	return REDRIVE_OK;
}

/* ---- what is here already ---- */

static enum redrive_status filter_add(void *ctx, const uint8_t id[16])
{
	return rdv_desk_filter_add(ctx, id);
}

static void warm_part(struct rdv_desk_store *s, size_t i)
{
	struct rdv_desk_part *p = s->parts[i];
	struct rdv_desk_index *x = p->index;
	uint32_t letters;
	uint64_t bytes;
	struct rdv_error error = {{0}};
	bool opened = !x;
	if (p->filter_ready || p->index_broken)
		return;
	if (opened && rdv_desk_index_open(p->index_path, p->segment.end, &x, &letters, &bytes, &error) != REDRIVE_OK)
		return;
	rdv_desk_filter_done(&p->filter);
	p->filter_ready = rdv_desk_index_ids(x, filter_add, &p->filter) == REDRIVE_OK;
	if (opened && p->segment.sealed)
		rdv_desk_index_close(x, false);
	else
		p->index = x;
}

void rdv_desk_store_warm(struct rdv_desk_store *s)
{
	for (size_t i = s->count; i-- > 0;)
		warm_part(s, i);
}

static bool maybe_here(const struct rdv_desk_store *s, const uint8_t id[16])
{
	for (size_t i = s->count; i-- > 0;)
		if (!s->parts[i]->filter_ready || rdv_desk_filter_maybe(&s->parts[i]->filter, id))
			return true;
	return false;
}

/* OK: here, and readable. NOT_FOUND, CORRUPT: to be stored. Anything else: cannot be told now. */
static enum redrive_status look_up(struct rdv_desk_store *s, const uint8_t id[16])
{
	struct rdv_desk_place place;
	if (!maybe_here(s, id))
		return REDRIVE_NOT_FOUND;
	enum redrive_status status = rdv_desk_reader_find(s, &s->own, id, &place);
	rdv_desk_reader_rest(&s->own);
	return status;
}

/* ---- taking in ---- */

/* Marks an item that is yet to be written: any status that taking in never ends with. */
#define PENDING REDRIVE_TIMEOUT

/* Adds one to the batch. */
static enum redrive_status take_one(struct rdv_desk_store *s, struct rdv_desk_batch *b,
				    const struct rdv_letter_frame *f)
{
	struct rdv_desk_row *row = &b->rows[b->count];
	struct rdv_desk_segment_place place;
	if (rdv_letter_frame_size(f) == 0)
		return REDRIVE_TOO_LARGE;
	enum redrive_status status = rdv_desk_row_make(f->envelope, row);
	if (status != REDRIVE_OK)
		return status;
	if (rdv_desk_batch_has(b, row->id))
		return PENDING;
	if (s->before && rdv_desk_batch_has(s->before, row->id))
		return REDRIVE_OK; /* it is on disk, and its index entry is answered before this one */
	status = look_up(s, row->id);
	if (status != REDRIVE_NOT_FOUND && status != REDRIVE_CORRUPT)
		return status;
	status = rdv_desk_filter_add(&b->ids, row->id);
	if (status == REDRIVE_OK)
		status = rdv_desk_segment_add(&s->writer, &b->part->segment, f, &place);
	if (status != REDRIVE_OK)
		return status;
	row->seq = place.seq;
	row->block = place.block;
	row->at = place.at;
	b->count++;
	return PENDING;
}

static void mend_index(struct rdv_desk_store *s, struct rdv_desk_part *p)
{
	struct rdv_error error = {{0}};
	if (!p->index_broken)
		return;
	rdv_desk_indexer_wait(&s->indexer);
	if (rdv_mono_now().ms < p->rebuild_at)
		return;
	if (rdv_desk_part_rebuild(s, p, &error) == REDRIVE_OK) {
		rdv_desk_say(&s->say, 2, "index '%s' was made again", p->index_path);
		return;
	}
	rdv_desk_say(&s->say, 1, "%s", error.text);
	p->rebuild_at = rdv_mono_now().ms + REBUILD_PAUSE_MS;
}

static void settle(struct rdv_desk_incoming *items, size_t count, enum redrive_status status)
{
	for (size_t i = 0; i < count; i++)
		if (items[i].status == PENDING)
			items[i].status = status;
}

/* Writes what was added. The rows count, for the filter and the index, when they are durable. */
static enum redrive_status write_batch(struct rdv_desk_store *s, struct rdv_desk_batch *b, struct rdv_error *error)
{
	struct rdv_desk_part *p = b->part;
	uint64_t before = p->segment.end;
	enum redrive_status status = b->count ? rdv_desk_segment_write(&s->writer, &p->segment, error) : REDRIVE_OK;
	if (status != REDRIVE_OK)
		b->count = 0;
	if (!b->count)
		return status;
	p->anchored = false;
	s->letters += b->count;
	s->bytes += p->segment.end - before;
	for (size_t i = 0; i < b->count && p->filter_ready; i++)
		if (rdv_desk_filter_add(&p->filter, b->rows[i].id) != REDRIVE_OK)
			p->filter_ready = false;
	b->end = p->segment.end;
	return status;
}

void rdv_desk_store_take(struct rdv_desk_store *s, struct rdv_desk_incoming *items, size_t count, struct rdv_wall now,
			 struct rdv_desk_batch *batch)
{
	struct rdv_error error = {{0}};
	batch->count = 0;
	rdv_desk_filter_done(&batch->ids);
	for (size_t i = 0; i < s->count; i++)
		mend_index(s, s->parts[i]);
	enum redrive_status status = ready_part(s, count, now, &batch->part, &error);
	for (size_t i = 0; i < count; i++)
		items[i].status = status == REDRIVE_OK ? take_one(s, batch, &items[i].frame) : status;
	if (status == REDRIVE_OK)
		status = write_batch(s, batch, &error);
	if (status != REDRIVE_OK)
		rdv_desk_say(&s->say, 0, "%s", error.text[0] ? error.text : rdv_status_info(status)->text);
	settle(items, count, status);
	rdv_desk_indexer_give(&s->indexer, batch);
	s->before = batch;
}

void rdv_desk_store_idle(struct rdv_desk_store *s)
{
	for (size_t i = 0; i < s->count; i++)
		mend_index(s, s->parts[i]);
	if (last_part(s) && last_part(s)->segment.letters)
		anchor(s, last_part(s), false);
}

void rdv_desk_store_close(struct rdv_desk_store *s)
{
	if (!s || !s->files)
		return;
	rdv_desk_indexer_stop(&s->indexer);
	for (size_t i = 0; i < s->count; i++) {
		if (s->parts[i]->index)
			finish_part(s, s->parts[i], false);
		rdv_desk_part_free(s->parts[i]);
	}
	for (size_t i = 0; i < RDV_DESK_READERS; i++)
		rdv_desk_reader_done(&s->readers[i]);
	rdv_desk_reader_done(&s->own);
	rdv_desk_segment_writer_done(&s->writer);
	rdv_desk_indexer_done(&s->indexer);
	pthread_mutex_destroy(&s->mutex);
	pthread_cond_destroy(&s->reader_free);
	free(s->parts);
	free(s->rows);
	free(s->dir);
	memset(s, 0, sizeof *s);
}
