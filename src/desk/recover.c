/* recover.c - opening the segments of a store: what is whole, what is torn, what is damaged; and making indexes.
 *
 * A segment whose index was closed cleanly over all of its bytes is taken as it is. Every other one is read and checked
 * block by block; where a later segment's header says where it ends, that counts. Torn tails are cut, damage stays and
 * is said with file, offset and how many letters are missing; a damaged segment never takes in again. Then the index
 * gets what it lacks, in slices. Before anything is changed all headers are read: a segment of a newer version ends the
 * open with nothing touched. The opening thread, or the one that takes in. */
#include <stdlib.h>
#include "store.h"

#define SLICE 10000u

struct rdv_desk_part *rdv_desk_part_new(struct rdv_desk_store *s, uint32_t day, uint64_t number)
{
	struct rdv_desk_part *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->segment.files = s->files;
	p->segment.files_ctx = s->files_ctx;
	p->segment.fd = -1;
	p->index_made = 1;
	p->index_path = rdv_desk_segment_path(s->dir, day, number, "db");
	rdv_desk_filter_init(&p->filter);
	if (!p->index_path) {
		free(p);
		return NULL;
	}
	return p;
}

void rdv_desk_part_free(struct rdv_desk_part *p)
{
	if (!p)
		return;
	rdv_desk_index_close(p->index, false);
	rdv_desk_segment_done(&p->segment);
	rdv_desk_filter_done(&p->filter);
	free(p->index_path);
	free(p);
}

static enum redrive_status add_slice(struct rdv_desk_part *p, struct rdv_desk_row *rows, size_t *count, uint64_t bytes,
				     struct rdv_error *error)
{
	enum redrive_status status = rdv_desk_index_add(p->index, rows, *count, bytes, error);
	*count = 0;
	return status;
}

/* The rows of one block behind rows[0..*count). */
static enum redrive_status block_rows(const struct rdv_desk_segment_block *b, struct rdv_block *raw,
				      struct rdv_desk_row *rows, size_t *count)
{
	size_t at = 0;
	for (uint32_t i = 0; i < b->count; i++) {
		struct rdv_letter_frame f;
		struct rdv_desk_row *row = &rows[*count];
		uint32_t frame_at = (uint32_t)at;
		enum redrive_status status = rdv_letter_frame_decode(rdv_block_slice(raw), at, &f, &at);
		if (status == REDRIVE_OK)
			status = rdv_desk_row_make(f.envelope, row);
		if (status != REDRIVE_OK)
			return status;
		row->seq = b->first + i;
		row->block = b->at;
		row->at = frame_at;
		(*count)++;
	}
	return REDRIVE_OK;
}

static enum redrive_status index_block(struct rdv_desk_store *s, struct rdv_desk_part *p,
				       const struct rdv_desk_segment_block *b, size_t *count, struct rdv_error *error)
{
	struct rdv_desk_segment_block head;
	struct rdv_block *raw = NULL;
	enum redrive_status status = REDRIVE_OK;
	size_t before;
	if (*count && *count + b->count > s->row_capacity)
		status = add_slice(p, s->rows, count, b->at, error);
	if (status == REDRIVE_OK && b->count > s->row_capacity) {
		void *grown = realloc(s->rows, b->count * sizeof *s->rows);
		if (!grown)
			return REDRIVE_NO_MEMORY;
		s->rows = grown;
		s->row_capacity = b->count;
	}
	before = *count;
	if (status == REDRIVE_OK)
		status = rdv_desk_segment_read(&p->segment, b->at, &head, &raw);
	if (status == REDRIVE_OK)
		status = block_rows(b, raw, s->rows, count);
	if (status == REDRIVE_CORRUPT ||
	    status == REDRIVE_VERSION) { /* passes its checksum, and still says nothing we know */
		*count = before;
		s->damaged++;
		rdv_desk_say(&s->say, 0, "letters '%s': the block at %llu with %u letters cannot be understood",
			     p->segment.path, (unsigned long long)b->at, (unsigned)b->count);
		status = REDRIVE_OK;
	}
	rdv_block_unref(raw);
	return status;
}

enum redrive_status rdv_desk_part_index(struct rdv_desk_store *s, struct rdv_desk_part *p,
					const struct rdv_desk_segment_scan *scan, struct rdv_error *error)
{
	uint32_t letters;
	uint64_t covered;
	size_t count = 0;
	enum redrive_status status =
		rdv_desk_index_open(p->index_path, p->segment.end, &p->index, &letters, &covered, error);
	if (status != REDRIVE_OK)
		return status;
	if (letters == 0 && scan->count && scan->blocks[scan->count - 1].at > (1u << 20))
		rdv_desk_say(&s->say, 2, "letters '%s': making the index", p->segment.path);
	for (size_t i = 0; i < scan->count && status == REDRIVE_OK; i++)
		if (scan->blocks[i].at >= covered && scan->blocks[i].count)
			status = index_block(s, p, &scan->blocks[i], &count, error);
	if (status == REDRIVE_OK && (count || covered != p->segment.end))
		status = add_slice(p, s->rows, &count, p->segment.end, error);
	if (status != REDRIVE_OK) {
		rdv_desk_index_close(p->index, false);
		p->index = NULL;
	}
	return status;
}

enum redrive_status rdv_desk_part_rebuild(struct rdv_desk_store *s, struct rdv_desk_part *p, struct rdv_error *error)
{
	struct rdv_desk_segment_scan scan;
	enum redrive_status status = rdv_desk_segment_check(&p->segment, p->segment.end, &scan, error);
	rdv_desk_index_close(p->index, false);
	p->index = NULL;
	rdv_desk_index_drop(p->index_path);
	if (status == REDRIVE_OK)
		status = rdv_desk_part_index(s, p, &scan, error);
	rdv_desk_segment_scan_done(&scan);
	if (status == REDRIVE_OK) {
		p->index_made++;
		p->index_broken = false;
	}
	return status;
}

static void say_scan(struct rdv_desk_store *s, const struct rdv_desk_part *p, const struct rdv_desk_segment_scan *scan)
{
	if (scan->cut)
		rdv_desk_say(&s->say, 1, "letters '%s': a torn tail of %llu bytes at %llu was cut", p->segment.path,
			     (unsigned long long)scan->cut, (unsigned long long)scan->end);
	if (!scan->bad)
		return;
	s->damaged += scan->bad;
	rdv_desk_say(&s->say, 0,
		     "letters '%s': damaged in %llu places, the first at %llu; at least %llu letters cannot be read",
		     p->segment.path, (unsigned long long)scan->bad, (unsigned long long)scan->first_bad,
		     (unsigned long long)scan->lost);
}

/* known_end: 0 = the last segment, or nobody tells. */
static enum redrive_status recover_part(struct rdv_desk_store *s, struct rdv_desk_part *p, uint64_t known_end,
					struct rdv_error *error)
{
	struct rdv_desk_segment_scan scan = {0};
	uint64_t size = 0;
	int failed = s->files->size(s->files_ctx, p->segment.fd, &size);
	if (failed)
		return rdv_error_errno(error, -failed, "letters '%s'", p->segment.path);
	uint64_t end = known_end && known_end < size ? known_end : size;
	if ((!known_end || known_end <= size) && rdv_desk_index_is_clean(p->index_path, end, &p->segment.letters)) {
		p->segment.end = end;
		return REDRIVE_OK;
	}
	enum redrive_status status = rdv_desk_segment_check(&p->segment, known_end, &scan, error);
	if (status == REDRIVE_OK)
		say_scan(s, p, &scan);
	if (status == REDRIVE_OK)
		status = rdv_desk_segment_adopt(&p->segment, &scan, error);
	if (status == REDRIVE_OK)
		status = rdv_desk_part_index(s, p, &scan, error);
	rdv_desk_segment_scan_done(&scan);
	return status;
}

/* ---- the directory ---- */

struct names {
	struct name {
		uint32_t day;
		uint64_t number;
	} * items;
	size_t count, capacity;
	bool failed;
};

static void collect(void *ctx, const char *name)
{
	struct names *n = ctx;
	struct name item;
	if (!rdv_desk_segment_name_parse(name, &item.day, &item.number))
		return;
	if (n->count == n->capacity) {
		size_t capacity = n->capacity ? n->capacity * 2 : 64;
		void *grown = realloc(n->items, capacity * sizeof *n->items);
		n->failed |= !grown;
		if (!grown)
			return;
		n->items = grown;
		n->capacity = capacity;
	}
	n->items[n->count++] = item;
}

static int by_number(const void *a, const void *b)
{
	const struct name *x = a, *y = b;
	return (x->number > y->number) - (x->number < y->number);
}

static enum redrive_status open_part(struct rdv_desk_store *s, const struct name *name, struct rdv_error *error)
{
	struct rdv_desk_part *p = rdv_desk_part_new(s, name->day, name->number);
	char *path = rdv_desk_segment_path(s->dir, name->day, name->number, "seg");
	if (!p || !path || rdv_desk_store_add_part(s, p) != REDRIVE_OK) {
		rdv_desk_part_free(p);
		free(path);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "letters in '%s': no memory", s->dir);
	}
	s->next_number = name->number + 1;
	enum redrive_status status = rdv_desk_segment_open(&p->segment, path, error);
	uint64_t size = 0;
	if (status != REDRIVE_CORRUPT)
		return status;
	/* A file that was being made when the process died has no letters yet: not worth a word. */
	if (s->files->size(s->files_ctx, p->segment.fd, &size) || size > RDV_DESK_SEGMENT_HEADER) {
		s->damaged++;
		rdv_desk_say(&s->say, 0, "%s; what can be read of it is kept", error ? error->text : path);
	}
	p->segment.sealed = true;
	return REDRIVE_OK;
}

static uint64_t known_end(const struct rdv_desk_store *s, size_t i)
{
	for (size_t j = i + 1; j < s->count; j++)
		if (s->parts[j]->segment.head.previous == s->parts[i]->segment.head.number)
			return s->parts[j]->segment.head.previous_end;
	return 0;
}

enum redrive_status rdv_desk_store_recover(struct rdv_desk_store *s, struct rdv_error *error)
{
	struct names names = {0};
	enum redrive_status status = REDRIVE_OK;
	int failed = s->files->list(s->files_ctx, s->dir, collect, &names);
	if (failed)
		status = rdv_error_errno(error, -failed, "letters in '%s'", s->dir);
	if (names.failed)
		status = rdv_error_set(error, REDRIVE_NO_MEMORY, "letters in '%s': no memory", s->dir);
	if (names.count)
		qsort(names.items, names.count, sizeof *names.items, by_number);
	for (size_t i = 0; i < names.count && status == REDRIVE_OK; i++)
		status = open_part(s, &names.items[i], error);
	for (size_t i = 0; i < s->count && status == REDRIVE_OK; i++) {
		status = recover_part(s, s->parts[i], known_end(s, i), error);
		s->letters += s->parts[i]->segment.letters;
		s->bytes += s->parts[i]->segment.end;
		if (i + 1 == s->count)
			break;
		s->parts[i]->segment.sealed = true;
		rdv_desk_index_close(s->parts[i]->index, status == REDRIVE_OK);
		s->parts[i]->index = NULL;
	}
	free(names.items);
	return status;
}
