/* strand.c - lanes at work: feeds, the table of streams, what was touched in this turn.
 *
 * A stream id leads to its feed (a topic partition) or its strand (a lane) by an array; ids are small and never
 * reused. Strands live as long as the engine, so that jobs may point to them; a discarded one has lost its lane. Core
 * thread. */
#include "room.h"
#include <stdlib.h>

bool rdv_streams_reserve(struct rdv_engine *e, uint32_t stream)
{
	size_t capacity = e->stream_capacity ? e->stream_capacity : 64;
	struct rdv_stream_use *grown;

	if (stream < e->stream_capacity)
		return true;
	while (capacity <= stream)
		capacity *= 2;
	grown = realloc(e->streams, capacity * sizeof *grown);
	if (!grown)
		return false;
	memset(grown + e->stream_capacity, 0, (capacity - e->stream_capacity) * sizeof *grown);
	e->streams = grown;
	e->stream_capacity = capacity;
	return true;
}

struct rdv_feed *rdv_feed_find(struct rdv_engine *e, const struct rdv_topic *topic, uint32_t partition)
{
	uint32_t stream = rdv_topic_stream(topic, partition);

	return stream < e->stream_capacity ? e->streams[stream].feed : NULL;
}

struct rdv_feed *rdv_feed_new(struct rdv_engine *e, struct rdv_topic *topic, uint32_t partition)
{
	struct rdv_feed *feed = calloc(1, sizeof *feed);

	if (!feed || !rdv_streams_reserve(e, rdv_topic_stream(topic, partition) + RDV_INLET_STREAMS)) {
		free(feed);
		return NULL;
	}
	feed->topic = topic;
	feed->partition = partition;
	feed->stream = rdv_topic_stream(topic, partition);
	feed->next_offset = rdv_topic_next_offset(topic, partition);
	feed->cut = UINT64_MAX;
	return feed;
}

void rdv_feed_link(struct rdv_engine *e, struct rdv_feed *feed)
{
	feed->next = e->feeds;
	e->feeds = feed;
	e->streams[feed->stream].feed = feed;
}

void rdv_feed_label(const struct rdv_feed *feed, char out[RDV_LABEL_SIZE])
{
	snprintf(out, RDV_LABEL_SIZE, "%s%s", rdv_topic_is_foreign(feed->topic) ? RDV_INLET_TOPIC : "",
		 rdv_topic_name(feed->topic));
}

void rdv_feed_free(struct rdv_feed *feed)
{
	if (!feed)
		return;
	free(feed->strands);
	free(feed);
}

struct rdv_feed *rdv_feed_of(struct rdv_engine *e, struct rdv_topic *topic, uint32_t partition)
{
	struct rdv_feed *feed = rdv_feed_find(e, topic, partition);

	if (feed)
		return feed;
	feed = rdv_feed_new(e, topic, partition);
	if (feed)
		rdv_feed_link(e, feed);
	return feed;
}

/* NULL without memory: then the lane has a window of its own. */
struct rdv_dedupe *rdv_window_of(struct rdv_engine *e, const char *name)
{
	struct rdv_window *w = e->windows;

	while (w && strcmp(w->name, name) != 0)
		w = w->next;
	if (w)
		return &w->dedupe;
	w = calloc(1, sizeof *w);
	if (!w)
		return NULL;
	rdv_slice_to_text(rdv_slice_text(name), w->name, sizeof w->name);
	rdv_dedupe_init(&w->dedupe);
	w->next = e->windows;
	e->windows = w;
	return &w->dedupe;
}

void rdv_windows_reap(struct rdv_engine *e)
{
	struct rdv_window **at = &e->windows;

	while (*at) {
		struct rdv_window *w = *at;

		if (w->dedupe.lanes) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		rdv_dedupe_done(&w->dedupe);
		free(w);
	}
}

void rdv_windows_free(struct rdv_engine *e)
{
	struct rdv_window *next;

	for (struct rdv_window *w = e->windows; w; w = next) {
		next = w->next;
		rdv_dedupe_done(&w->dedupe);
		free(w);
	}
	e->windows = NULL;
}

struct rdv_strand *rdv_strand_new(struct rdv_engine *e, struct rdv_feed *feed, struct rdv_route *route, uint32_t stream,
				  uint64_t start, uint64_t epoch)
{
	struct rdv_strand *s = calloc(1, sizeof *s);
	char topic[RDV_LABEL_SIZE];
	uint64_t seed;

	rdv_secret(&seed, sizeof seed);
	if (!s)
		return NULL;
	*s = (struct rdv_strand){
		.route = route, .feed = feed, .stream = stream, .start = start, .end = UINT64_MAX, .epoch = epoch};
	if (route)
		memcpy(s->name, route->info->name, sizeof s->name);
	rdv_feed_label(feed, topic);
	struct rdv_lane_options o = {
		.stream = stream,
		.route = s->name,
		.topic = topic,
		.from_broker = rdv_topic_is_foreign(feed->topic),
		.partition = feed->partition,
		.partition_stream = feed->stream,
		.start = start,
		.epoch = epoch,
		.seed = seed,
		.target = route ? route->seat->unit->target : e->orphan_target,
		.target_route = route ? route->seat->number : 0,
		.start_before_call = route && route->options.handler == RDV_HANDLER_CALLBACK,
	};
	if (route) {
		o.policy = route->options.lane;
		o.rules = route->info->rules;
		o.dedupe = rdv_window_of(e, s->name);
	} else {
		rdv_lane_policy_defaults(&o.policy);
		/* Who adopts it may need the order and the gates: they cannot be had later. */
		o.policy.order = RDV_ORDER_KEY;
		/* And nothing is decided meanwhile: its own route may have allowed more. */
		o.policy.retry.attempts = o.policy.retry.crashes = UINT32_MAX;
	}
	s->lane = rdv_lane_new(&o);
	if (!s->lane) {
		free(s);
		return NULL;
	}
	return s;
}

void rdv_strand_free(struct rdv_strand *s)
{
	if (!s)
		return;
	if (s->promised)
		s->feed->promised--;
	rdv_lane_free(s->lane);
	free(s);
}

/* Questions that take several turns may still stand at it: its memory goes when many others have come after it. */
void rdv_strand_rest(struct rdv_engine *e, struct rdv_strand *s)
{
	struct rdv_strand **place = &e->resting[e->resting_at++ % RDV_RESTING_MAX];
	struct rdv_feed *feed = *place ? (*place)->feed : NULL;

	rdv_strand_free(*place);
	rdv_feed_free(feed);
	rdv_lane_free(s->lane);
	s->lane = NULL;
	s->inlet = NULL;
	*place = s;
}

void rdv_strands_rested(struct rdv_engine *e)
{
	for (size_t i = 0; i < RDV_RESTING_MAX; i++) {
		struct rdv_feed *feed = e->resting[i] ? e->resting[i]->feed : NULL;

		rdv_strand_free(e->resting[i]);
		rdv_feed_free(feed);
	}
}

enum redrive_status rdv_strand_promise(struct rdv_engine *e, struct rdv_strand *s)
{
	struct rdv_feed *feed = s->feed;
	size_t wanted = feed->count + feed->promised + 1, capacity = feed->capacity ? feed->capacity : 4;
	struct rdv_strand **grown = feed->strands;

	while (capacity < wanted)
		capacity *= 2;
	if (capacity > feed->capacity)
		grown = realloc(feed->strands, capacity * sizeof(struct rdv_strand *));
	if (!grown)
		return REDRIVE_NO_MEMORY;
	feed->strands = grown;
	feed->capacity = capacity;
	if (!rdv_streams_reserve(e, s->stream))
		return REDRIVE_NO_MEMORY;
	feed->promised++;
	s->promised = true;
	return REDRIVE_OK;
}

enum redrive_status rdv_strand_attach(struct rdv_engine *e, struct rdv_strand *s)
{
	struct rdv_feed *feed = s->feed;
	enum redrive_status status = s->promised ? REDRIVE_OK : rdv_strand_promise(e, s);

	if (status != REDRIVE_OK)
		return status;
	s->promised = false;
	feed->promised--;
	feed->strands[feed->count++] = s;
	e->streams[s->stream].strand = s;
	s->next = e->strands;
	e->strands = s;
	return REDRIVE_OK;
}

void rdv_strand_join_siblings(struct rdv_engine *e, struct rdv_strand *s)
{
	for (size_t i = 0; i < s->feed->count; i++) {
		struct rdv_strand *other = s->feed->strands[i];

		if (other == s || !other->lane || !s->route || other->route != s->route)
			continue;
		if (rdv_lane_add_sibling(s->lane, other->lane, e->now, e->effects))
			return;
	}
}

struct rdv_strand *rdv_strand_of(struct rdv_engine *e, const struct rdv_lane *lane)
{
	return e->streams[rdv_lane_stream(lane)].strand;
}

void rdv_strand_touch(struct rdv_engine *e, struct rdv_strand *s)
{
	if (s->touched)
		return;
	if (e->touched_count == e->touched_capacity) {
		size_t capacity = e->touched_capacity ? 2 * e->touched_capacity : 64;
		struct rdv_strand **grown = realloc(e->touched, capacity * sizeof(struct rdv_strand *));

		if (!grown) {
			e->effects->failed = true;
			return;
		}
		e->touched = grown;
		e->touched_capacity = capacity;
	}
	s->touched = true;
	e->touched[e->touched_count++] = s;
}

void rdv_strand_nudge(struct rdv_engine *e, struct rdv_strand *s)
{
	rdv_strand_touch(e, s);
	if (!s->route || s->discarded)
		return;
	rdv_dispatcher_touch(s->route->seat->unit->dispatcher, s->lane);
	s->route->seat->unit->wake.ms = 0;
}
