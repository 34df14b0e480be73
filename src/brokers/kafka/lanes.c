/* lanes.c - the lanes of a source: assigned, found, refused, left. Consumer thread.
 *
 * A partition that is assigned gets a lane; assigned or opened again it gets another one. The old one goes to LEFT at
 * once, where nothing is written for it, and to GONE when no batch names it any more; both may be there meanwhile. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "source_parts.h"

#define REFUSED_PAUSE_MS 5000
#define REFUSED_PAUSE_MAX_MS 60000

/* Redrive's own topics, which a pattern may match: redrive.<route>.<hash>.<kind> */
static bool is_private(const char *topic)
{
	const char *kind = strrchr(topic, '.');

	return !strncmp(topic, "redrive.", 8) &&
	       (!strcmp(kind, ".journal") || !strcmp(kind, ".inbox") || !strcmp(kind, ".letters"));
}

struct rdv_kafka_feed *rdv_kafka_feed_of(struct rdv_kafka_source *s, const char *topic)
{
	struct rdv_kafka_feed *f, **end = &s->feeds;

	for (f = s->feeds; f; end = &f->next, f = f->next)
		if (!strcmp(f->topic, topic))
			return f;
	f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->topic = strdup(topic);
	if (!f->topic) {
		free(f);
		return NULL;
	}
	f->own = is_private(topic);
	pthread_mutex_lock(&s->lock);
	*end = f;
	pthread_mutex_unlock(&s->lock);
	return f;
}

static struct rdv_source_lane *lane_in(const struct rdv_kafka_feed *f, int32_t partition)
{
	return partition >= 0 && partition < f->lane_count ? f->lanes[partition] : NULL;
}

struct rdv_source_lane *rdv_kafka_lane_at(struct rdv_kafka_source *s, const char *topic, int32_t partition)
{
	for (struct rdv_kafka_feed *f = s->feeds; f; f = f->next)
		if (!strcmp(f->topic, topic))
			return lane_in(f, partition);
	return NULL;
}

struct rdv_source_lane *rdv_kafka_lane_of(struct rdv_kafka_source *s, const rd_kafka_message_t *m, bool of_journal)
{
	const char *name;

	for (struct rdv_kafka_feed *f = s->feeds; f; f = f->next)
		if ((of_journal ? f->journal_rkt : f->source_rkt) == m->rkt)
			return lane_in(f, m->partition);
	name = rd_kafka_topic_name(m->rkt);
	for (struct rdv_kafka_feed *f = s->feeds; f; f = f->next) {
		if (!f->known && of_journal)
			continue;
		if (strcmp(of_journal ? f->names.topic[RDV_KAFKA_JOURNAL] : f->topic, name) != 0)
			continue;
		*(of_journal ? &f->journal_rkt : &f->source_rkt) = m->rkt;
		return lane_in(f, m->partition);
	}
	return NULL;
}

struct rdv_source_lane *rdv_kafka_lane_next(struct rdv_kafka_source *s, struct rdv_source_lane *after)
{
	struct rdv_kafka_feed *f = after ? after->feed : s->feeds;
	int32_t p = after ? after->partition + 1 : 0;

	for (; f; f = f->next, p = 0)
		for (; p < f->lane_count; p++)
			if (f->lanes[p])
				return f->lanes[p];
	return NULL;
}

static bool make_room(struct rdv_kafka_feed *f, int32_t partition)
{
	struct rdv_source_lane **lanes;

	if (partition < f->lane_count)
		return true;
	lanes = realloc(f->lanes, sizeof *lanes * ((size_t)partition + 1));
	if (!lanes)
		return false;
	memset(lanes + f->lane_count, 0, sizeof *lanes * (size_t)(partition + 1 - f->lane_count));
	f->lanes = lanes;
	f->lane_count = partition + 1;
	return true;
}

static struct rdv_source_lane *make_lane(struct rdv_kafka_source *s, struct rdv_kafka_feed *f, int32_t partition)
{
	struct rdv_source_lane *lane = calloc(1, sizeof *lane);

	f->lanes[partition] = lane;
	if (!lane) {
		rdv_kafka_source_say(s, 0, "%s [%" PRId32 "]: not consumed: out of memory", f->topic, partition);
		return NULL;
	}
	lane->work.lane = lane;
	lane->feed = f;
	lane->partition = partition;
	lane->paused = true; /* by the rebalance, or by the lane before */
	atomic_init(&lane->wanted, true);
	lane->position_at = -1;
	rdv_secret(lane->nonce, sizeof lane->nonce);
	pthread_mutex_lock(&s->lock);
	lane->next = s->lanes;
	s->lanes = lane;
	pthread_mutex_unlock(&s->lock);
	return lane;
}

/* Off to the errand thread. */
static void begin_lane(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	if (!lane)
		return;
	lane->state = RDV_KAFKA_LANE_ASKING;
	lane->since = rdv_mono_now();
	pthread_mutex_lock(&s->lock);
	rdv_kafka_work_put(&s->asks, &lane->work, RDV_KAFKA_WORK_ASK);
	pthread_cond_signal(&s->errand_work);
	pthread_mutex_unlock(&s->lock);
}

void rdv_kafka_lane_assign(struct rdv_kafka_source *s, const char *topic, int32_t partition)
{
	struct rdv_kafka_feed *f = rdv_kafka_feed_of(s, topic);

	if (!f || !make_room(f, partition)) {
		rdv_kafka_source_say(s, 0, "%s [%" PRId32 "]: not consumed: out of memory", topic, partition);
		return;
	}
	if (f->own)
		return;
	if (f->lanes[partition])
		rdv_kafka_lane_leave(s, f->lanes[partition]);
	begin_lane(s, make_lane(s, f, partition));
}

/* LEFT lanes are no longer in their feed; this list is walked only while there are some. */
static void finish_left(struct rdv_kafka_source *s)
{
	struct rdv_source_lane *lane;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		for (lane = s->lanes; lane; lane = lane->next)
			if (lane->state == RDV_KAFKA_LANE_LEFT && !lane->in_batch)
				break;
		pthread_mutex_unlock(&s->lock);
		if (!lane)
			return;
		lane->state = RDV_KAFKA_LANE_GONE;
		s->left_count--;
		if (lane->seated)
			s->base.sink.gone(s->base.sink.ctx, lane->seat);
	}
}

void rdv_kafka_lane_leave(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	bool lost;

	if (lane->state >= RDV_KAFKA_LANE_LEFT)
		return;
	if (lane->state == RDV_KAFKA_LANE_READING)
		rdv_kafka_reading_end(s, lane);
	pthread_mutex_lock(&s->lock);
	lost = lane->told_opened && !(lane->closing && lane->finished && !lane->refused);
	lane->dead = true;
	lane->state = RDV_KAFKA_LANE_LEFT;
	pthread_mutex_unlock(&s->lock);
	s->left_count++;
	rdv_kafka_messages_drop(lane);
	if (lane->feed->lanes[lane->partition] == lane)
		lane->feed->lanes[lane->partition] = NULL;
	if (lost)
		s->base.sink.lost(s->base.sink.ctx, lane->seat);
}

static struct rdv_source_lane *replace(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	struct rdv_source_lane *fresh;

	rdv_kafka_messages_pause(s, lane, true);
	rdv_kafka_lane_leave(s, lane);
	fresh = make_lane(s, lane->feed, lane->partition);
	if (fresh)
		fresh->deaf = lane->deaf;
	return fresh;
}

void rdv_kafka_lane_again(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	begin_lane(s, replace(s, lane));
}

/* While it opens that is the dummy offset's doing; later the broker has deleted what it was to read: asked again, the
 * broker tells, and it is refused. */
void rdv_kafka_lane_deaf(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	lane->deaf = true;
	if (lane->state == RDV_KAFKA_LANE_OPEN)
		rdv_kafka_lane_again(s, lane);
}

/* It stays in its feed, paused, and is tried again; if the sink has seen it, as a new one. */
void rdv_kafka_lane_refuse(struct rdv_kafka_source *s, struct rdv_source_lane *lane, const char *fmt, ...)
{
	char why[RDV_KAFKA_WHY_SIZE];
	int tries = lane->tries + 1;
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof why, fmt, args);
	va_end(args);
	rdv_kafka_source_say(s, 1, "%s [%" PRId32 "] is not consumed: %s", lane->feed->topic, lane->partition, why);
	rdv_kafka_messages_pause(s, lane, true);
	if (lane->state == RDV_KAFKA_LANE_READING)
		rdv_kafka_reading_end(s, lane);
	if (lane->seated)
		lane = replace(s, lane);
	if (!lane)
		return;
	memcpy(lane->why, why, sizeof why);
	lane->tries = tries;
	lane->state = RDV_KAFKA_LANE_REFUSED;
	lane->since = rdv_mono_now();
}

static void retry_refused(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	int64_t pause = REFUSED_PAUSE_MS;

	for (int i = 1; i < lane->tries && pause < REFUSED_PAUSE_MAX_MS; i++)
		pause *= 2;
	if (rdv_mono_now().ms >= lane->since.ms + pause)
		begin_lane(s, lane);
}

void rdv_kafka_lanes_turn(struct rdv_kafka_source *s)
{
	struct rdv_source_lane *next, *lane = rdv_kafka_lane_next(s, NULL);

	for (; lane; lane = next) {
		next = rdv_kafka_lane_next(s, lane);
		if (lane->state == RDV_KAFKA_LANE_REFUSED && !s->revoking.on && !s->failed && !s->stop_begun)
			retry_refused(s, lane);
		else if (lane->state == RDV_KAFKA_LANE_READING || lane->state == RDV_KAFKA_LANE_SEEKING)
			rdv_kafka_reading_turn(s, lane);
		else if (lane->state == RDV_KAFKA_LANE_OPEN)
			rdv_kafka_messages_turn(s, lane);
	}
	if (s->left_count)
		finish_left(s);
}
