/* admit.c - what publishers may do: which topics are read, and by whom; which keys are full.
 *
 * Publishers ask under the log's append mutex, so the common answer costs one atomic load: no key is full. The
 * core thread notes a key when RDV_HELD_MAX messages of it wait on a lane, and takes it back when half of them are
 * gone. The list of routes and their texts are changed by the core thread under admit_mutex, too, so that others may
 * look at them. Lock order: the log's append mutex, then admit_mutex; the core holds it for a few instructions only. */
#include "room.h"
#include <stdlib.h>

struct rdv_full_key {
	struct rdv_full_key *next;
	struct rdv_strand *strand; /* core thread only */
	const struct rdv_topic *topic;
	uint32_t partition;
	uint64_t key_hash;
};

enum redrive_status rdv_admit(void *ctx, const struct rdv_topic *topic, uint32_t partition, uint64_t key_hash)
{
	struct rdv_engine *e = ctx;
	enum redrive_status status = REDRIVE_OK;

	if (!key_hash || !atomic_load_explicit(&e->full_count, memory_order_relaxed))
		return REDRIVE_OK;
	pthread_mutex_lock(&e->admit_mutex);
	for (const struct rdv_full_key *k = e->full_keys; k && status == REDRIVE_OK; k = k->next)
		if (k->key_hash == key_hash && k->topic == topic && k->partition == partition)
			status = REDRIVE_FULL;
	pthread_mutex_unlock(&e->admit_mutex);
	return status;
}

void rdv_admit_note(struct rdv_engine *e, struct rdv_strand *s, uint64_t key_hash)
{
	struct rdv_full_key *k;

	if (rdv_lane_held_of_key(s->lane, key_hash) < RDV_HELD_MAX)
		return;
	for (k = e->full_keys; k; k = k->next) /* only this thread changes the list */
		if (k->strand == s && k->key_hash == key_hash)
			return;
	k = malloc(sizeof *k);
	if (!k)
		return; /* noted at its next message */
	*k = (struct rdv_full_key){
		.strand = s, .topic = s->feed->topic, .partition = s->feed->partition, .key_hash = key_hash};
	pthread_mutex_lock(&e->admit_mutex);
	k->next = e->full_keys;
	e->full_keys = k;
	atomic_fetch_add(&e->full_count, 1);
	pthread_mutex_unlock(&e->admit_mutex);
}

void rdv_admit_review(struct rdv_engine *e)
{
	struct rdv_full_key **at = &e->full_keys;

	while (*at) {
		struct rdv_full_key *k = *at;

		if (k->strand->lane && rdv_lane_held_of_key(k->strand->lane, k->key_hash) > RDV_HELD_MAX / 2) {
			at = &k->next;
			continue;
		}
		pthread_mutex_lock(&e->admit_mutex);
		*at = k->next;
		atomic_fetch_sub(&e->full_count, 1);
		pthread_mutex_unlock(&e->admit_mutex);
		free(k);
	}
}

void rdv_admit_done(struct rdv_engine *e)
{
	while (e->full_keys) {
		struct rdv_full_key *k = e->full_keys;

		e->full_keys = k->next;
		free(k);
	}
}

void rdv_admit_topics(struct rdv_engine *e)
{
	rdv_topics_readers_begin(e->topics);
	for (const struct rdv_route *r = e->routes; r; r = r->next) {
		const struct rdv_dedupe_policy *dedupe = &r->options.lane.dedupe;

		if (!r->topic)
			continue; /* a broker's */
		rdv_topic_reader(r->topic, dedupe->by == RDV_DEDUPE_OFF ? 0 : dedupe->ttl_ms);
	}
	rdv_topics_readers_end(e->topics);
}

bool rdv_engine_topic_read_by(struct rdv_engine *e, const char *topic, bool (*covers)(void *ctx, const char *route),
			      void *ctx)
{
	bool found = false;

	pthread_mutex_lock(&e->admit_mutex);
	for (const struct rdv_route *r = e->routes; r && !found; r = r->next)
		found = strcmp(r->info->topic, topic) == 0 && covers(ctx, r->info->name);
	pthread_mutex_unlock(&e->admit_mutex);
	return found;
}
