/* where.c - where a message is: by its id, by the producer's id, by its key; and revoking it.
 *
 * An id is read from the right: offset, partition, topic. What is no such id, or names no topic, may be a producer's
 * id. The lanes answer on the core thread; a key is read from the BODY by the asker's own thread. */
#include "room.h"
#include <stdlib.h>

struct found {
	struct rdv_topic *topic;
	uint32_t partition;
	uint64_t offset;
};

/* The number behind the last '-' of *text, which is cut there. */
static bool cut_number(struct rdv_slice *text, uint64_t *out)
{
	size_t at = text->size;
	int64_t value;

	while (at && text->data[at - 1] >= '0' && text->data[at - 1] <= '9')
		at--;
	if (at == text->size || at < 2 || text->data[at - 1] != '-' ||
	    rdv_integer_parse(rdv_slice(text->data + at, text->size - at), &value) != REDRIVE_OK)
		return false;
	*out = (uint64_t)value;
	text->size = at - 1;
	return true;
}

static bool find_position(struct rdv_engine *e, struct rdv_slice id, struct found *out)
{
	uint64_t partition;

	if (!cut_number(&id, &out->offset) || !cut_number(&id, &partition))
		return false;
	out->topic = rdv_topic_find(e->topics, id);
	if (!out->topic || partition >= rdv_topic_partitions(out->topic))
		return false;
	out->partition = (uint32_t)partition;
	return out->offset < rdv_topic_next_offset(out->topic, out->partition);
}

static bool find_publish_id(struct rdv_engine *e, struct rdv_slice id, struct found *out)
{
	for (struct rdv_feed *f = e->feeds; f; f = f->next) {
		struct rdv_published_at at;

		if (f->partition != 0 || rdv_topic_find_id(f->topic, id, &at) != REDRIVE_OK)
			continue;
		*out = (struct found){f->topic, at.partition, at.offset};
		return true;
	}
	return false;
}

static bool find(struct rdv_engine *e, struct rdv_slice id, struct found *out)
{
	return find_position(e, id, out) || (id.size && id.size <= RDV_PUBLISH_ID_MAX && find_publish_id(e, id, out));
}

/* ---- where ---- */

struct where_question {
	struct rdv_slice id, key;
	const char *route;
	struct rdv_message_status *items;
	struct rdv_place *bodies;
	size_t count, max;
	uint64_t next;
	enum redrive_status status;
};

static struct rdv_feed *feed_at(struct rdv_engine *e, const struct found *at)
{
	struct rdv_feed *f = e->feeds;

	while (f && (f->topic != at->topic || f->partition != at->partition))
		f = f->next;
	return f;
}

static enum redrive_status describe(struct rdv_engine *e, const struct found *at, const char *route,
				    struct rdv_message_status *out, struct rdv_place *body)
{
	struct rdv_feed *feed = feed_at(e, at);
	size_t most = feed ? feed->count : 0;

	*out = (struct rdv_message_status){.partition = at->partition, .offset = at->offset};
	*body = (struct rdv_place){0};
	rdv_slice_to_text(rdv_slice_text(rdv_topic_name(at->topic)), out->topic, sizeof out->topic);
	out->routes = calloc(most + 1, sizeof *out->routes);
	if (!out->routes)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < most; i++) {
		struct rdv_strand *s = feed->strands[i];
		struct rdv_message_route *r = &out->routes[out->route_count];

		if (!s->lane || at->offset < s->start || at->offset >= s->end || (route && strcmp(route, s->name) != 0))
			continue;
		if (rdv_lane_where(s->lane, e->now, at->offset, &r->where) != REDRIVE_OK) /* given out, not yet seen */
			r->where = (struct rdv_where){.state = RDV_STATE_READY, .attempt = 1, .behind = UINT64_MAX};
		memcpy(r->route, s->name, sizeof r->route);
		r->has_behind = r->where.state == RDV_STATE_HELD && r->where.behind != UINT64_MAX;
		if (r->where.body.segment)
			*body = r->where.body;
		out->route_count++;
	}
	return REDRIVE_OK;
}

static void do_where(struct rdv_engine *e, void *ctx)
{
	struct where_question *q = ctx;
	struct found at;

	q->status = REDRIVE_NOT_FOUND;
	rdv_engine_catch_up(e);
	if (!find(e, q->id, &at))
		return;
	q->status = describe(e, &at, NULL, &q->items[0], &q->bodies[0]);
	q->count = q->status == REDRIVE_OK;
}

/* In the asker's thread: keys of live messages. */
static void read_keys(struct rdv_engine *e, struct where_question *q)
{
	for (size_t i = 0; i < q->count; i++) {
		struct rdv_read read = {.position = {q->bodies[i].segment, q->bodies[i].offset},
					.length = q->bodies[i].length};
		struct rdv_read *one = &read;
		struct rdv_body body;

		if (!q->bodies[i].segment)
			continue;
		rdv_log_read_many(e->log, &one, 1);
		if (read.status != REDRIVE_OK)
			continue;
		if (rdv_body_decode(rdv_block_slice(read.block), &body) == REDRIVE_OK && body.key.size <= RDV_KEY_MAX) {
			q->items[i].key_known = true;
			q->items[i].has_key = !(body.flags & RDV_BODY_NULL_KEY);
			q->items[i].key_size = body.key.size;
			if (body.key.size)
				memcpy(q->items[i].key, body.key.data, body.key.size);
		}
		rdv_block_unref(read.block);
	}
}

void rdv_message_status_done(struct rdv_message_status *s)
{
	if (!s)
		return;
	free(s->routes);
	s->routes = NULL;
	s->route_count = 0;
}

enum redrive_status rdv_engine_where(struct rdv_engine *e, struct rdv_slice id, struct rdv_message_status *out)
{
	struct rdv_place body;
	struct where_question q = {.id = id, .items = out, .bodies = &body};
	enum redrive_status status = rdv_engine_call(e, do_where, &q);

	if (status != REDRIVE_OK || q.status != REDRIVE_OK)
		return status != REDRIVE_OK ? status : q.status;
	read_keys(e, &q);
	return REDRIVE_OK;
}

/* ---- by key: one feed after the other; the position is feed stream << 40 | the next offset there ---- */

static int by_offset(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* In order, each once, the smallest `max`. */
static size_t merge(uint64_t *seqs, size_t count, size_t max)
{
	size_t kept = 0;

	qsort(seqs, count, sizeof *seqs, by_offset);
	for (size_t i = 0; i < count && kept < max; i++)
		if (!kept || seqs[kept - 1] != seqs[i])
			seqs[kept++] = seqs[i];
	return kept;
}

/* Offsets of the key's live messages in the feed, each once, in order: the first `max` from `from` on. `seqs` has room
 * for twice as many. */
static size_t key_offsets(struct rdv_feed *feed, const struct where_question *q, uint64_t hash, uint64_t from,
			  uint64_t *seqs)
{
	size_t kept = 0;

	for (size_t i = 0; i < feed->count; i++) {
		struct rdv_strand *s = feed->strands[i];
		uint64_t next;

		if (s->lane && (!q->route || strcmp(q->route, s->name) == 0))
			kept = merge(seqs, kept + rdv_lane_find_key(s->lane, hash, from, seqs + kept, q->max, &next),
				     q->max);
	}
	return kept;
}

static void do_where_key(struct rdv_engine *e, void *ctx)
{
	struct where_question *q = ctx;
	uint64_t *seqs = calloc(2 * q->max, sizeof *seqs);
	uint32_t first = (uint32_t)(q->next >> 40);
	uint64_t from = q->next & 0xffffffffffull;

	rdv_engine_catch_up(e);
	q->next = 0;
	q->status = seqs ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	for (uint32_t stream = first; seqs && stream < e->stream_capacity; stream++, from = 0) {
		struct rdv_feed *feed = e->streams[stream].feed;
		uint64_t hash = feed ? rdv_topic_key_hash(feed->topic, q->key) : 0;
		size_t count, space = q->max - q->count;

		if (!feed || rdv_topic_partition_of_key(feed->topic, q->key) != feed->partition)
			continue;
		count = key_offsets(feed, q, hash, from, seqs);
		for (size_t i = 0; i < count && i < space && q->status == REDRIVE_OK; i++) {
			struct found at = {feed->topic, feed->partition, seqs[i]};

			q->status = describe(e, &at, q->route, &q->items[q->count], &q->bodies[q->count]);
			q->count += q->status == REDRIVE_OK;
		}
		if (q->count == q->max && count) {
			q->next = (uint64_t)stream << 40 |
				  ((seqs[(count < space ? count : space) - 1] + 1) & 0xffffffffffull);
			break;
		}
	}
	free(seqs);
}

enum redrive_status rdv_engine_where_key(struct rdv_engine *e, struct rdv_slice key, const char *route, size_t max,
					 uint64_t *next, struct rdv_message_status **out, size_t *count)
{
	struct where_question q = {.key = key, .route = route, .max = max, .next = *next};
	enum redrive_status status = REDRIVE_NO_MEMORY;

	if (max == 0 || max > 10000)
		return REDRIVE_INVALID;
	q.items = calloc(max, sizeof *q.items);
	q.bodies = calloc(max, sizeof *q.bodies);
	if (q.items && q.bodies)
		status = rdv_engine_call(e, do_where_key, &q);
	status = status == REDRIVE_OK ? q.status : status;
	if (status == REDRIVE_OK) {
		read_keys(e, &q);
		*out = q.items;
		*count = q.count;
		*next = q.next;
	} else {
		for (size_t i = 0; q.items && i < q.count; i++)
			rdv_message_status_done(&q.items[i]);
		free(q.items);
	}
	free(q.bodies);
	return status;
}

/* ---- revoke ---- */

struct revocation {
	struct rdv_slice id;
	const char *route;
	struct rdv_error *error;
	struct found at;
	uint64_t ticket;
	bool pending, live, known;
	enum redrive_status status;
};

static void revoke_on(struct rdv_engine *e, struct revocation *r, struct rdv_strand *s)
{
	bool pending = false;
	enum redrive_status status = rdv_lane_revoke(s->lane, e->now, r->at.offset, &pending, e->effects);

	r->known = true;
	r->live = r->live || status == REDRIVE_OK || pending;
	r->pending = r->pending || pending;
	rdv_strand_nudge(e, s);
}

static void do_revoke(struct rdv_engine *e, void *ctx)
{
	struct revocation *r = ctx;
	struct rdv_feed *feed;

	rdv_engine_catch_up(e);
	if (!find(e, r->id, &r->at)) {
		r->status = rdv_error_set(r->error, REDRIVE_NOT_FOUND, "there is no such message");
		return;
	}
	feed = feed_at(e, &r->at);
	for (size_t i = 0; feed && i < feed->count; i++) {
		struct rdv_strand *s = feed->strands[i];

		if (s->lane && r->at.offset >= s->start && r->at.offset < s->end &&
		    (!r->route || strcmp(r->route, s->name) == 0))
			revoke_on(e, r, s);
	}
	if (!r->known)
		r->status = rdv_error_set(r->error, REDRIVE_NOT_FOUND, "route '%s' never had that message",
					  r->route ? r->route : "");
	else if (!r->live)
		r->status = rdv_error_set(r->error, REDRIVE_CONFLICT, "the message is finished");
	rdv_effects_run(e);
	r->ticket = e->last_ticket;
}

/* In flight: the call is not cut; an ack wins. */
static void do_revoked(struct rdv_engine *e, void *ctx)
{
	struct revocation *r = ctx;
	struct rdv_feed *feed = find(e, r->id, &r->at) ? feed_at(e, &r->at) : NULL;
	bool acked = false;

	for (size_t i = 0; feed && i < feed->count; i++) {
		struct rdv_strand *s = feed->strands[i];
		struct rdv_where where;

		if (!s->lane || (r->route && strcmp(r->route, s->name) != 0) ||
		    rdv_lane_where(s->lane, e->now, r->at.offset, &where) != REDRIVE_OK)
			continue;
		r->pending = r->pending || where.state == RDV_STATE_IN_FLIGHT;
		acked = acked || where.state == RDV_STATE_ACKED;
	}
	if (acked && !r->pending)
		r->status = rdv_error_set(r->error, REDRIVE_CONFLICT,
					  "the message was being delivered, and was acknowledged");
}

enum redrive_status rdv_engine_revoke(struct rdv_engine *e, struct rdv_slice id, const char *route, bool *open,
				      struct rdv_error *error)
{
	struct revocation r = {.id = id, .route = route, .error = error};
	enum redrive_status status = rdv_engine_call(e, do_revoke, &r);

	*open = r.pending;
	status = status == REDRIVE_OK ? r.status : status;
	return status == REDRIVE_OK && r.ticket ? rdv_log_wait(e->log, r.ticket, -1) : status;
}

enum redrive_status rdv_engine_revoked(struct rdv_engine *e, struct rdv_slice id, const char *route, bool *open,
				       struct rdv_error *error)
{
	struct revocation r = {.id = id, .route = route, .error = error};
	enum redrive_status status = rdv_engine_call(e, do_revoked, &r);

	*open = r.pending;
	return status == REDRIVE_OK ? r.status : status;
}
