/* bodies.c - bytes of the log that are kept in memory for the bodies in them.
 *
 * Most messages are delivered at once: a first attempt finds its body in the durable buffer that it came in, in the
 * very bytes that went to disk. When deliveries lie behind, or many retries are due, calls ask for one body after the
 * other of the same region of the log: then a piece of it is read as a whole, for all of them. At most RDV_RECENT_MAX
 * buffers and RDV_PIECES_MAX pieces are kept; a new one takes the place of the one that was added first and that no
 * open call pins. When all are pinned by slow calls, a new buffer is walked but not kept, and bodies are read one by
 * one. Core thread. */
#include "room.h"

#define PIECE_BYTES (1u << 20)
#define PIECE_BODY_MAX (64u << 10) /* larger ones are read for themselves */

static uint64_t order_of(uint32_t segment, uint32_t offset)
{
	return (uint64_t)segment << 32 | offset;
}

static void clear(struct rdv_recent *r)
{
	rdv_log_buffer_unref(r->buffer);
	rdv_block_unref(r->piece);
	r->buffer = NULL;
	r->piece = NULL;
	r->first = r->end = 0;
}

/* The free one, or the oldest that may go, of `count`. */
static struct rdv_recent *place_for(struct rdv_recent *from, int count)
{
	struct rdv_recent *oldest = NULL;

	for (struct rdv_recent *r = from; r < from + count; r++) {
		if (r->pins || r->reading)
			continue;
		if (!r->buffer && !r->piece)
			return r;
		if (!oldest || r->used_at < oldest->used_at)
			oldest = r;
	}
	if (oldest)
		clear(oldest);
	return oldest;
}

struct rdv_recent *rdv_recent_add(struct rdv_engine *e, struct rdv_log_buffer *buffer)
{
	struct rdv_recent *r = place_for(e->recent, RDV_RECENT_MAX);
	struct rdv_position first, end;

	if (!r)
		return NULL;
	rdv_log_buffer_range(buffer, &first, &end);
	r->buffer = buffer;
	r->first = order_of(first.segment, first.offset);
	r->end = order_of(end.segment, end.offset);
	r->used_at = ++e->recent_use;
	return r;
}

static struct rdv_slice find_in_piece(const struct rdv_recent *r, uint64_t order, uint32_t length)
{
	size_t at = (size_t)(order - r->first) + RDV_FRAME_HEADER;

	return at + length <= r->piece->size ? rdv_slice(r->piece->data + at, length) : rdv_slice(NULL, 0);
}

static bool holds(const struct rdv_recent *r, uint64_t order)
{
	return order >= r->first && order < r->end;
}

/* The one that holds the place; NULL if none does. Neighbours follow each other in buffers and in pieces. */
static struct rdv_recent *find(struct rdv_engine *e, uint64_t order)
{
	for (int i = 0; i < 2; i++)
		if (e->last_hits[i] && holds(e->last_hits[i], order))
			return e->last_hits[i];
	for (int i = 0; i < RDV_RECENT_MAX + RDV_PIECES_MAX; i++)
		if (holds(&e->recent[i], order))
			return e->last_hits[i >= RDV_RECENT_MAX] = &e->recent[i];
	return NULL;
}

struct rdv_slice rdv_recent_find(struct rdv_engine *e, const struct rdv_place *place, struct rdv_recent **out)
{
	uint64_t order = order_of(place->segment, place->offset);
	struct rdv_recent *r = *out = find(e, order);

	if (!r)
		return rdv_slice(NULL, 0);
	if (r->piece)
		return find_in_piece(r, order, place->length);
	return rdv_log_buffer_find(r->buffer, (struct rdv_position){place->segment, place->offset}, place->length);
}

void rdv_recent_drop_all(struct rdv_engine *e)
{
	for (int i = 0; i < RDV_RECENT_MAX + RDV_PIECES_MAX; i++)
		clear(&e->recent[i]);
}

/* ---- pieces ---- */

unsigned rdv_regions_ask(struct rdv_regions *r, const struct rdv_place *place, uint64_t *lowest)
{
	uint64_t order = order_of(place->segment, place->offset);
	unsigned i = 0;

	while (i < RDV_REGIONS && (!r->items[i].asked || r->items[i].lowest / PIECE_BYTES != order / PIECE_BYTES))
		i++;
	if (i == RDV_REGIONS) {
		i = r->turn++ % RDV_REGIONS;
		r->items[i].asked = 0;
		r->items[i].lowest = order;
	}
	if (order < r->items[i].lowest)
		r->items[i].lowest = order;
	*lowest = r->items[i].lowest;
	return ++r->items[i].asked;
}

static void scan(struct rdv_job *job)
{
	struct rdv_recent *r = job->owner;
	struct rdv_position from = {(uint32_t)(r->first >> 32), (uint32_t)r->first};
	uint32_t next;

	if (rdv_log_scan(r->log, from, PIECE_BYTES, &r->piece, &next) != REDRIVE_OK)
		r->piece = NULL;
}

static void scan_done(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_recent *r = job->owner;
	struct rdv_flight *list = NULL, *next;

	e->reads_open--;
	r->reading = false;
	r->end = r->first + (r->piece ? r->piece->size : 0);
	for (struct rdv_flight *f = r->waiting; f; f = next) { /* oldest first again */
		next = f->wait_next;
		f->wait_next = list;
		list = f;
	}
	r->waiting = NULL;
	for (struct rdv_flight *f = list; f; f = next) {
		next = f->wait_next;
		rdv_flight_piece(e, f);
	}
}

static struct rdv_recent *begin_piece(struct rdv_engine *e, uint64_t first)
{
	struct rdv_recent *r = place_for(e->recent + RDV_RECENT_MAX, RDV_PIECES_MAX);

	if (!r)
		return NULL;
	r->first = r->end = first;
	r->used_at = ++e->recent_use;
	r->log = e->log;
	r->reading = true;
	r->job = (struct rdv_job){.work = scan, .done = scan_done, .owner = r};
	rdv_job_queue(e, &r->job, true);
	return r;
}

/* A piece that begins at `first` holds the body, unless the segment ends before. */
static bool reaches(uint64_t first, uint64_t order, uint32_t length)
{
	return order >= first && order - first + RDV_FRAME_HEADER + length <= PIECE_BYTES;
}

static struct rdv_recent *piece_under_way(struct rdv_engine *e, uint64_t order, uint32_t length)
{
	for (struct rdv_recent *r = e->recent + RDV_RECENT_MAX; r < e->recent + RDV_RECENT_MAX + RDV_PIECES_MAX; r++)
		if (r->reading && reaches(r->first, order, length))
			return r;
	return NULL;
}

bool rdv_piece_await(struct rdv_engine *e, struct rdv_flight *f)
{
	uint64_t order = order_of(f->body.segment, f->body.offset), lowest;
	struct rdv_recent *r;

	if (f->body.length > PIECE_BODY_MAX)
		return false;
	r = piece_under_way(e, order, f->body.length);
	if (!r && rdv_regions_ask(&e->read_regions, &f->body, &lowest) >= RDV_REGION_WORTH)
		r = begin_piece(e, reaches(lowest, order, f->body.length) ? lowest : order);
	if (!r)
		return false;
	f->wait_next = r->waiting;
	r->waiting = f;
	return true;
}
