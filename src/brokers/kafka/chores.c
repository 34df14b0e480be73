/* chores.c - what the errand thread does beside opening lanes: private topics every 10 minutes, trimming, the lag of
 * partitions that are paused. None of it is urgent, each call is bounded; a lane that wants to open comes first. */
#include <inttypes.h>
#include "source_parts.h"

#define CHECK_MS (10 * 60000)
#define ENDS_MS 5000
#define ENDS_AT_ONCE 256

/* ---- topics ---- */

static void check_topics(struct rdv_kafka_source *s)
{
	struct rdv_kafka_feed *f;
	struct rdv_error error;

	pthread_mutex_lock(&s->lock);
	f = s->feeds;
	pthread_mutex_unlock(&s->lock);
	while (f) {
		error.text[0] = 0;
		if (f->known && rdv_mono_now().ms > f->checked_at.ms + CHECK_MS &&
		    rdv_kafka_feed_check(s, f, &error) != REDRIVE_OK)
			rdv_kafka_source_say(s, 1, "%s: %s", f->topic, error.text);
		pthread_mutex_lock(&s->lock);
		f = f->next;
		pthread_mutex_unlock(&s->lock);
	}
}

/* ---- trimming ---- */

/* A lane that has something to trim: never its last position. Under the lock. */
static struct rdv_source_lane *find_trim(struct rdv_kafka_source *s, int64_t *offset)
{
	for (struct rdv_source_lane *lane = s->lanes; lane; lane = lane->next) {
		int64_t to = lane->forget < lane->position_at ? lane->forget : lane->position_at;

		if (!lane->dead && to > lane->forgotten) {
			lane->forgotten = *offset = to; /* a failure is made good by the next one */
			return lane;
		}
	}
	s->forgetting = false;
	return NULL;
}

static void trim_one(struct rdv_kafka_source *s)
{
	struct rdv_error error = {{0}};
	struct rdv_source_lane *lane;
	int64_t offset = 0;

	pthread_mutex_lock(&s->lock);
	lane = s->forgetting ? find_trim(s, &offset) : NULL;
	pthread_mutex_unlock(&s->lock);
	if (lane && rdv_kafka_delete_before(s->admin, lane->feed->names.topic[RDV_KAFKA_JOURNAL], lane->partition,
					    offset, RDV_KAFKA_CALL_MS, &error) != REDRIVE_OK)
		rdv_kafka_source_say(s, 1, "%s [%" PRId32 "]: its journal could not be trimmed: %s", lane->feed->topic,
				     lane->partition, error.text);
}

/* ---- lag ---- */

/* The library knows the end of what it fetches; of a paused partition nobody tells it. */
static size_t find_paused(struct rdv_kafka_source *s, struct rdv_source_lane *lanes[ENDS_AT_ONCE])
{
	size_t count = 0;

	pthread_mutex_lock(&s->lock);
	for (struct rdv_source_lane *lane = s->lanes; lane && count < ENDS_AT_ONCE; lane = lane->next)
		if (lane->wants_end && !lane->dead)
			lanes[count++] = lane;
	pthread_mutex_unlock(&s->lock);
	return count;
}

static void ask_ends(struct rdv_kafka_source *s)
{
	struct rdv_source_lane *lanes[ENDS_AT_ONCE];
	rd_kafka_topic_partition_list_t *list;
	size_t count;

	if (rdv_mono_now().ms < s->ends_at.ms + ENDS_MS)
		return;
	s->ends_at = rdv_mono_now();
	count = find_paused(s, lanes);
	if (!count)
		return;
	list = rd_kafka_topic_partition_list_new((int)count);
	for (size_t i = 0; i < count; i++) /* the "time" that means the end */
		rd_kafka_topic_partition_list_add(list, lanes[i]->feed->topic, lanes[i]->partition)->offset =
			RD_KAFKA_OFFSET_END;
	if (!rd_kafka_offsets_for_times(s->consumer, list, RDV_KAFKA_CALL_MS))
		for (size_t i = 0; i < count; i++)
			if (!list->elems[i].err && list->elems[i].offset >= 0)
				atomic_store(&lanes[i]->end, list->elems[i].offset);
	rd_kafka_topic_partition_list_destroy(list);
}

void rdv_kafka_chores(struct rdv_kafka_source *s)
{
	trim_one(s);
	ask_ends(s);
	check_topics(s);
}
