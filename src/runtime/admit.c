/* admit.c - what publishers may do: which topics are read, which keys are full.
 *
 * Publishers ask under the log's append mutex, so the common answer costs one atomic load: no key is full. The
 * core thread notes a key when RDV_HELD_MAX messages of it wait on a lane, and takes it back when half of them are
 * gone. Lock order: the log's append mutex, then admit_mutex; the core holds it for a few instructions only. */
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
	free(e->topic_uses);
}

static unsigned readers_of(const struct rdv_engine *e, const struct rdv_topic *topic)
{
	unsigned readers = 0;

	for (const struct rdv_route *r = e->routes; r; r = r->next)
		readers += r->topic == topic;
	return readers;
}

enum redrive_status rdv_admit_topics(struct rdv_engine *e)
{
	struct rdv_topic_use *uses, *old;
	size_t count = 0, most = 0;

	for (const struct rdv_route *r = e->routes; r; r = r->next)
		most++;
	uses = calloc(most + 1, sizeof *uses);
	if (!uses)
		return REDRIVE_NO_MEMORY;
	for (const struct rdv_route *r = e->routes; r; r = r->next) {
		size_t i = 0;

		while (i < count && uses[i].topic != r->topic)
			i++;
		if (i == count)
			uses[count++] = (struct rdv_topic_use){r->topic, readers_of(e, r->topic)};
	}
	pthread_mutex_lock(&e->admit_mutex);
	old = e->topic_uses;
	e->topic_uses = uses;
	e->topic_use_count = count;
	pthread_mutex_unlock(&e->admit_mutex);
	free(old);
	return REDRIVE_OK;
}

struct rdv_topic *rdv_admit_topic(struct rdv_engine *e, struct rdv_slice name)
{
	struct rdv_topic *found = NULL;

	pthread_mutex_lock(&e->admit_mutex);
	for (size_t i = 0; i < e->topic_use_count && !found; i++)
		if (rdv_slice_is(name, rdv_topic_name(e->topic_uses[i].topic)))
			found = e->topic_uses[i].topic;
	pthread_mutex_unlock(&e->admit_mutex);
	return found;
}
