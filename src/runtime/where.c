/* where.c - where a message is: by its id or the producer's id; and revoking it. By its key: where_key.c.
 *
 * An id is read from the right: offset, partition, topic. What is no such id, or names no topic, may be a producer's
 * id. The lanes answer on the core thread; a key is read from the BODY by the asker's own thread. */
#include "room.h"
#include <stdlib.h>

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

static bool find_position(struct rdv_engine *e, struct rdv_slice id, struct rdv_found *out)
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

static bool find_publish_id(struct rdv_engine *e, struct rdv_slice id, struct rdv_found *out)
{
	for (struct rdv_feed *f = e->feeds; f; f = f->next) {
		struct rdv_published_at at;

		if (f->partition != 0 || rdv_topic_find_id(f->topic, id, &at) != REDRIVE_OK)
			continue;
		*out = (struct rdv_found){f->topic, at.partition, at.offset};
		return true;
	}
	return false;
}

static bool find(struct rdv_engine *e, struct rdv_slice id, struct rdv_found *out)
{
	return find_position(e, id, out) || (id.size && id.size <= RDV_PUBLISH_ID_MAX && find_publish_id(e, id, out));
}

/* ---- where ---- */

struct where_question {
	struct rdv_slice id;
	struct rdv_message_status *item;
	struct rdv_place body;
	enum redrive_status status;
};

static struct rdv_feed *feed_at(struct rdv_engine *e, const struct rdv_found *at)
{
	struct rdv_feed *f = e->feeds;

	while (f && (f->topic != at->topic || f->partition != at->partition))
		f = f->next;
	return f;
}

enum redrive_status rdv_where_describe(struct rdv_engine *e, const struct rdv_found *at, const char *route,
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
	struct rdv_found at;

	q->status = REDRIVE_NOT_FOUND;
	rdv_engine_catch_up(e);
	if (!find(e, q->id, &at))
		return;
	q->status = rdv_where_describe(e, &at, NULL, q->item, &q->body);
}

void rdv_where_read_key(struct rdv_engine *e, const struct rdv_place *place, struct rdv_message_status *m)
{
	struct rdv_read read = {.position = {place->segment, place->offset}, .length = place->length};
	struct rdv_read *one = &read;
	struct rdv_body body;

	if (!place->segment)
		return;
	rdv_log_read_many(e->log, &one, 1);
	if (read.status != REDRIVE_OK)
		return;
	if (rdv_body_decode(rdv_block_slice(read.block), &body) == REDRIVE_OK && body.key.size <= RDV_KEY_MAX) {
		m->key_known = true;
		m->has_key = !(body.flags & RDV_BODY_NULL_KEY);
		m->key_size = body.key.size;
		if (body.key.size)
			memcpy(m->key, body.key.data, body.key.size);
	}
	rdv_block_unref(read.block);
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
	struct where_question q = {.id = id, .item = out};
	enum redrive_status status = rdv_engine_call(e, do_where, &q);

	if (status != REDRIVE_OK || q.status != REDRIVE_OK)
		return status != REDRIVE_OK ? status : q.status;
	rdv_where_read_key(e, &q.body, out);
	return REDRIVE_OK;
}

/* ---- revoke ---- */

struct revocation {
	struct rdv_slice id;
	const char *route;
	struct rdv_error *error;
	struct rdv_found at;
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
