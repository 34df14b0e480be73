/* where.c - where a message is, and what it waits for: by its id or the producer's id. By its key: where_key.c.
 *
 * An id is read from the right: offset, partition, topic. What is no such id, or names no topic, may be a producer's
 * id. The lanes answer on the core thread; a key is read from the BODY by the asker's own thread. */
#include "inlets.h"
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

bool rdv_found_by_id(struct rdv_engine *e, struct rdv_slice id, struct rdv_found *out)
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

struct rdv_strand *rdv_found_next(struct rdv_engine *e, const struct rdv_found *at, const char *route, size_t *i)
{
	struct rdv_feed *feed = feed_at(e, at);

	while (feed && *i < feed->count) {
		struct rdv_strand *s = feed->strands[(*i)++];

		if (rdv_strand_serves(s) && at->offset >= s->start && at->offset < s->end &&
		    (!route || strcmp(route, s->name) == 0))
			return s;
	}
	return NULL;
}

/* ---- what it waits for ---- */

static const char *ready_waits_for(struct rdv_engine *e, const struct rdv_strand *s, const struct rdv_where *w)
{
	const struct rdv_route *r = s->route;
	struct rdv_target_status target;

	if (e->failed)
		return "the journal, which has failed";
	if (!r || r->gone)
		return "somebody to adopt or discard what its removed route has left";
	if (rdv_lane_paused(s->lane))
		return "its route to be resumed";
	rdv_target_status(r->seat->unit->target, e->now, &target);
	if (rdv_target_storm_held(r->seat->unit->target, r->seat->number))
		return "the end of a storm of rejects";
	if (r->options.target_policy.breaker.on && target.state != RDV_UP)
		return "its target to be up again";
	if (w->delivered && rdv_lane_held_back(s->lane))
		return "a token of the retry budget";
	return r->options.handler == RDV_HANDLER_LEASE ? "somebody to lease it" : "a free place at the handler";
}

static const char *held_waits_for(const struct rdv_where *w)
{
	static const char *const texts[] = {
		[RDV_HELD_BY_KEY] = "the earlier message of its key that it is behind",
		[RDV_HELD_BY_GATE] = "the gate of its key, closed by the dead message that it is behind",
		[RDV_HELD_BY_DOUBLE] = "another message with its idempotency key",
		[RDV_HELD_BY_PLAN] = "its replay to be resumed",
	};

	return texts[w->held_by];
}

static const char *waits_for(struct rdv_engine *e, const struct rdv_strand *s, const struct rdv_where *w)
{
	switch (w->state) {
	case RDV_STATE_READY:
		return ready_waits_for(e, s, w);
	case RDV_STATE_HELD:
		return held_waits_for(w);
	case RDV_STATE_WAITING:
		return w->delivered ? "the time of its next attempt" : "the end of its delay";
	case RDV_STATE_IN_FLIGHT:
		return "the verdict of its handler";
	case RDV_STATE_DYING:
		return "its letter to be stored";
	case RDV_STATE_REPLAYING:
		return "its replay to end";
	default:
		return NULL;
	}
}

/* ---- where, of one message ---- */

static void describe_on(struct rdv_engine *e, const struct rdv_found *at, struct rdv_strand *s,
			struct rdv_message_route *r)
{
	const struct rdv_flight *f;

	if (rdv_lane_where(s->lane, e->now, at->offset, &r->where) != REDRIVE_OK) /* given out, not yet seen */
		r->where = (struct rdv_where){.state = RDV_STATE_READY, .attempt = 1, .behind = UINT64_MAX};
	if (r->where.state == RDV_STATE_IN_FLIGHT && s->route && s->route->options.handler == RDV_HANDLER_LEASE) {
		f = rdv_flight_find(e, s, at->offset);
		if (f && rdv_flight_is_offered(f))
			r->where.state = RDV_STATE_READY;
	}
	memcpy(r->route, s->name, sizeof r->route);
	r->has_behind = r->where.state == RDV_STATE_HELD && r->where.behind != UINT64_MAX;
	r->waits_for = waits_for(e, s, &r->where);
}

enum redrive_status rdv_where_describe(struct rdv_engine *e, const struct rdv_found *at, const char *route,
				       struct rdv_message_status *out, struct rdv_place *body)
{
	struct rdv_feed *feed = feed_at(e, at);
	struct rdv_strand *s;
	size_t i = 0;

	*out = (struct rdv_message_status){.partition = at->partition, .offset = at->offset};
	*body = (struct rdv_place){0};
	rdv_slice_to_text(rdv_slice_text(rdv_topic_name(at->topic)), out->topic, sizeof out->topic);
	out->routes = calloc((feed ? feed->count : 0) + 1, sizeof *out->routes);
	if (!out->routes)
		return REDRIVE_NO_MEMORY;
	while ((s = rdv_found_next(e, at, route, &i))) {
		struct rdv_message_route *r = &out->routes[out->route_count++];

		describe_on(e, at, s, r);
		if (r->where.body.segment)
			*body = r->where.body;
	}
	return REDRIVE_OK;
}

static void do_where(struct rdv_engine *e, void *ctx)
{
	struct where_question *q = ctx;
	struct rdv_found at;

	q->status = REDRIVE_NOT_FOUND;
	rdv_engine_catch_up(e);
	if (!rdv_found_by_id(e, q->id, &at))
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
