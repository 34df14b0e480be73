/* where_key.c - the live messages of a key, by position, a page at a time.
 *
 * There may be ten million messages to look at, and no index of keys but where a route keeps the order of keys. So the
 * search is many short commands: each looks at SLICE entries on the core thread, which goes on with its work between
 * them, and the asker's own thread sorts what they found. One feed (topic partition) after the other, and of a feed one
 * lane after the other. Then the messages of the page are described, again in slices, and their keys read from the log:
 * a lane may know a hash of 32 bits, so another key's message is found at times, and left out. One that ends meanwhile
 * is shown as ended; whose body cannot be read, with its key unknown. A position is feed stream << 40 | the next offset
 * there. */
#include "inlets.h"
#include <stdlib.h>

#define SLICE 16384u  /* entries: a fraction of a millisecond */
#define DESCRIBE 128u /* messages */
#define OFFSET_BITS 40

struct key_search {
	struct rdv_slice key;
	const char *route;
	size_t max;
	/* where it is: the feed's stream, its lane, the entry */
	uint32_t stream, entry;
	size_t lane;
	bool started, feed_ended, ended;
	struct rdv_feed *feed;
	/* what the last slice found; then the smallest offsets of the feed so far, in order, each once */
	uint64_t found[SLICE], *offsets;
	size_t found_count, offset_count, described;
	/* the page */
	struct rdv_message_status *items;
	struct rdv_place *bodies;
	size_t count;
	enum redrive_status status;
};

/* ---- core thread ---- */

static bool can_have(const struct rdv_feed *feed, struct rdv_slice key)
{
	return feed && rdv_topic_partition_of_key(feed->topic, key) == feed->partition;
}

/* From q->stream on; NULL: no more. */
static struct rdv_feed *next_feed(struct rdv_engine *e, struct key_search *q)
{
	while (q->stream < e->stream_capacity && !can_have(e->streams[q->stream].feed, q->key))
		q->stream++;
	return q->stream < e->stream_capacity ? e->streams[q->stream].feed : NULL;
}

static void do_search(struct rdv_engine *e, void *ctx)
{
	struct key_search *q = ctx;
	uint64_t hash;

	if (!q->started)
		rdv_engine_catch_up(e);
	q->started = true;
	q->found_count = 0;
	q->feed = next_feed(e, q);
	q->ended = !q->feed;
	if (q->ended)
		return;
	hash = rdv_topic_key_hash(q->feed->topic, q->key);
	if (q->lane < q->feed->count) {
		struct rdv_strand *s = q->feed->strands[q->lane];

		if (rdv_strand_serves(s) && (!q->route || strcmp(q->route, s->name) == 0))
			q->found_count = rdv_lane_find_key(s->lane, hash, &q->entry, q->found, SLICE);
		else
			q->entry = 0;
		q->lane += !q->entry;
	}
	q->feed_ended = q->lane >= q->feed->count;
}

static void do_describe(struct rdv_engine *e, void *ctx)
{
	struct key_search *q = ctx;

	for (size_t n = 0; n < DESCRIBE && q->described < q->offset_count && q->count < q->max; n++) {
		struct rdv_found at = {q->feed->topic, q->feed->partition, q->offsets[q->described]};

		q->status = rdv_where_describe(e, &at, q->route, &q->items[q->count], &q->bodies[q->count]);
		if (q->status != REDRIVE_OK)
			return;
		q->described++;
		q->count++;
	}
}

/* ---- the asker's thread ---- */

static int by_offset(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* What was found joins the smallest `max` offsets from `from` on. */
static void merge(struct key_search *q, uint64_t from)
{
	size_t count = q->offset_count, kept = 0;

	if (!q->found_count)
		return;
	for (size_t i = 0; i < q->found_count; i++)
		if (q->found[i] >= from)
			q->offsets[count++] = q->found[i];
	qsort(q->offsets, count, sizeof *q->offsets, by_offset);
	for (size_t i = 0; i < count && kept < q->max; i++)
		if (!kept || q->offsets[kept - 1] != q->offsets[i])
			q->offsets[kept++] = q->offsets[i];
	q->offset_count = kept;
}

static enum redrive_status search_feed(struct rdv_engine *e, struct key_search *q, uint64_t from)
{
	enum redrive_status status;

	q->lane = 0;
	q->entry = 0;
	q->offset_count = q->described = 0;
	do {
		status = rdv_engine_call(e, do_search, q);
		if (status != REDRIVE_OK || q->ended)
			return status;
		merge(q, from);
	} while (!q->feed_ended);
	while (q->described < q->offset_count && q->count < q->max && status == REDRIVE_OK) {
		status = rdv_engine_call(e, do_describe, q);
		status = status == REDRIVE_OK ? q->status : status;
	}
	return status;
}

/* Fills the page from *next on; *next is where the next one begins. */
static enum redrive_status fill(struct rdv_engine *e, struct key_search *q, uint64_t *next)
{
	uint64_t from = *next & ((1ull << OFFSET_BITS) - 1);
	enum redrive_status status = REDRIVE_OK;

	q->stream = (uint32_t)(*next >> OFFSET_BITS);
	*next = 0;
	for (; status == REDRIVE_OK && !q->ended; q->stream++, from = 0) {
		status = search_feed(e, q, from);
		if (status == REDRIVE_OK && q->count == q->max && q->described) {
			*next = (uint64_t)q->stream << OFFSET_BITS |
				((q->offsets[q->described - 1] + 1) & ((1ull << OFFSET_BITS) - 1));
			break;
		}
	}
	return status;
}

static bool is_another(const struct key_search *q, const struct rdv_message_status *m)
{
	return m->key_known && (!m->has_key || m->key_size != q->key.size ||
				(m->key_size && memcmp(m->key, q->key.data, m->key_size) != 0));
}

/* Reads the keys of the items from `first` on; those of other keys go. */
static void keep_own(struct rdv_engine *e, struct key_search *q, size_t first)
{
	size_t kept = first;

	for (size_t i = first; i < q->count; i++) {
		rdv_where_read_key(e, &q->bodies[i], &q->items[i]);
		if (is_another(q, &q->items[i]))
			rdv_message_status_done(&q->items[i]);
		else if (kept++ != i)
			q->items[kept - 1] = q->items[i];
	}
	q->count = kept;
}

static enum redrive_status search(struct rdv_engine *e, struct key_search *q, uint64_t *next)
{
	enum redrive_status status;
	size_t first;

	do {
		first = q->count;
		status = fill(e, q, next);
		if (status == REDRIVE_OK)
			keep_own(e, q, first);
	} while (status == REDRIVE_OK && *next && q->count < q->max);
	return status;
}

enum redrive_status rdv_engine_where_key(struct rdv_engine *e, struct rdv_slice key, const char *route, size_t max,
					 uint64_t *next, struct rdv_message_status **out, size_t *count)
{
	struct key_search *q;
	enum redrive_status status = REDRIVE_NO_MEMORY;

	if (max == 0 || max > 10000)
		return REDRIVE_INVALID;
	q = calloc(1, sizeof *q);
	if (!q)
		return status;
	q->key = key;
	q->route = route;
	q->max = max;
	q->offsets = calloc(max + SLICE, sizeof *q->offsets);
	q->items = calloc(max, sizeof *q->items);
	q->bodies = calloc(max, sizeof *q->bodies);
	if (q->offsets && q->items && q->bodies)
		status = search(e, q, next);
	if (status == REDRIVE_OK) {
		*out = q->items;
		*count = q->count;
	} else {
		for (size_t i = 0; q->items && i < q->count; i++)
			rdv_message_status_done(&q->items[i]);
		free(q->items);
	}
	free(q->offsets);
	free(q->bodies);
	free(q);
	return status;
}
