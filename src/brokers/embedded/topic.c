/* topic.c - topics on the file log: names, streams, offsets, recovery.
 *
 * A topic owns `partitions` streams in a row. Its TOPIC record fixes partitions, streams and the secret of its hashes,
 * and carries the next offsets, so that they survive when all bodies are trimmed away: the record is re-made before its
 * segment goes, and every BODY that is newer than the record lies behind it in the log. Publishing is in publish.c,
 * rewriting in rewrite.c. The set of topics is changed by the engine's thread only and never shrinks; other threads
 * find topics under `mutex`. next_offset is atomic: written under the log's append mutex, read anywhere. Lock order:
 * the log's append mutex, then `mutex`. */
#include "topic_room.h"
#include <stdlib.h>

#define DAY_MS (24 * 3600 * 1000ll)

struct rdv_topics *rdv_topics_new(const struct rdv_topics_options *options)
{
	struct rdv_topics *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->options = *options;
	t->log = options->log;
	t->next_stream = 1;
	rdv_ids_init(&t->ids, options->ids_max);
	if (pthread_mutex_init(&t->mutex, NULL)) {
		free(t);
		return NULL;
	}
	return t;
}

void rdv_topics_free(struct rdv_topics *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++) {
		free(t->items[i]->streams);
		free(t->items[i]);
	}
	free(t->items);
	rdv_ids_done(&t->ids);
	pthread_mutex_destroy(&t->mutex);
	free(t);
}

void rdv_topics_attach(struct rdv_topics *t, struct rdv_log *log)
{
	t->log = log;
}

uint32_t rdv_topics_new_streams(struct rdv_topics *t, uint32_t count)
{
	uint32_t first = t->next_stream;

	if (count > UINT32_MAX - first)
		return 0;
	t->next_stream += count;
	return first;
}

void rdv_topics_saw_stream(struct rdv_topics *t, uint32_t stream)
{
	if (stream >= t->next_stream && stream != UINT32_MAX)
		t->next_stream = stream + 1;
}

static struct rdv_topic *find_locked(struct rdv_topics *t, struct rdv_slice name)
{
	for (size_t i = 0; i < t->count; i++)
		if (rdv_slice_is(name, t->items[i]->name))
			return t->items[i];
	return NULL;
}

struct rdv_topic *rdv_topic_find(struct rdv_topics *t, struct rdv_slice name)
{
	struct rdv_topic *found;

	pthread_mutex_lock(&t->mutex);
	found = find_locked(t, name);
	pthread_mutex_unlock(&t->mutex);
	return found;
}

struct rdv_topic *rdv_topic_of_stream(struct rdv_topics *t, uint32_t stream, uint32_t *partition)
{
	struct rdv_topic *found = NULL;

	pthread_mutex_lock(&t->mutex);
	for (size_t i = 0; i < t->count && !found; i++) {
		if (!t->items[i]->streams && stream - t->items[i]->first_stream < t->items[i]->partitions) {
			found = t->items[i];
			*partition = stream - found->first_stream;
		}
	}
	pthread_mutex_unlock(&t->mutex);
	return found;
}

/* Room in the set for one topic more. */
static bool promise_place(struct rdv_topics *t)
{
	size_t wanted = t->count + t->promised + 1, capacity = t->capacity ? t->capacity : 16;
	struct rdv_topic **items = t->items;

	while (capacity < wanted)
		capacity *= 2;
	pthread_mutex_lock(&t->mutex);
	if (capacity > t->capacity)
		items = realloc(t->items, capacity * sizeof *items);
	if (items) {
		t->items = items;
		t->capacity = capacity;
		t->promised++;
	}
	pthread_mutex_unlock(&t->mutex);
	return items;
}

/* A new, empty topic with a place in the set; NULL without memory. */
static struct rdv_topic *make_topic(struct rdv_topics *t, struct rdv_slice name, uint32_t partitions)
{
	struct rdv_topic *topic = calloc(1, sizeof *topic + partitions * sizeof topic->next_offset[0]);

	if (!topic || !promise_place(t)) {
		free(topic);
		return NULL;
	}
	topic->set = t;
	topic->partitions = partitions;
	topic->ids_ttl_ms = DAY_MS;
	rdv_slice_to_text(name, topic->name, sizeof topic->name);
	return topic;
}

static void take_place(struct rdv_topic *topic)
{
	struct rdv_topics *t = topic->set;

	pthread_mutex_lock(&t->mutex);
	t->items[t->count++] = topic;
	t->promised--;
	pthread_mutex_unlock(&t->mutex);
}

void rdv_topic_free(struct rdv_topic *topic)
{
	if (!topic)
		return;
	topic->set->promised--;
	free(topic);
}

/* ---- recovery ---- */

static enum redrive_status fold_topic(struct rdv_topics *t, const struct rdv_frame *frame)
{
	struct rdv_topic_fields fields;
	enum redrive_status status = rdv_topic_decode(frame->payload, &fields);
	struct rdv_topic *topic;

	if (status != REDRIVE_OK)
		return status;
	if (fields.name.size == 0 || fields.name.size > RDV_TOPIC_NAME_MAX)
		return REDRIVE_CORRUPT;
	topic = rdv_topic_find(t, fields.name);
	if (!topic) {
		topic = make_topic(t, fields.name, fields.partitions);
		if (!topic)
			return REDRIVE_NO_MEMORY;
		take_place(topic);
	} else if (topic->partitions != fields.partitions || topic->first_stream != fields.first_stream) {
		return REDRIVE_CORRUPT;
	}
	topic->first_stream = fields.first_stream;
	memcpy(topic->secret, fields.secret, sizeof topic->secret);
	topic->segment = frame->position.segment;
	for (uint32_t i = 0; i < topic->partitions; i++)
		if (fields.next_offset[i] > topic->next_offset[i])
			topic->next_offset[i] = fields.next_offset[i];
	rdv_topics_saw_stream(t, fields.first_stream + fields.partitions - 1);
	return REDRIVE_OK;
}

static enum redrive_status fold_body(struct rdv_topics *t, const struct rdv_frame *frame)
{
	uint32_t partition = 0;
	struct rdv_topic *topic = rdv_topic_of_stream(t, frame->stream, &partition);

	if (!topic || frame->seq == UINT64_MAX)
		return REDRIVE_CORRUPT;
	if (frame->seq >= topic->next_offset[partition])
		topic->next_offset[partition] = frame->seq + 1;
	return REDRIVE_OK;
}

static enum redrive_status fold_seen(struct rdv_topics *t, const struct rdv_frame *frame)
{
	struct rdv_reader r = rdv_seen_begin(frame->payload);
	struct rdv_seen seen;
	uint32_t partition = 0;
	struct rdv_topic *topic = rdv_topic_of_stream(t, frame->stream, &partition);

	if (!topic)
		return REDRIVE_CORRUPT;
	while (rdv_seen_next(&r, &seen)) {
		struct rdv_id *id = rdv_ids_find(&t->ids, topic->first_stream, topic->partitions, seen.id);

		if (id)
			rdv_ids_renew(&t->ids, id);
		else
			id = rdv_ids_add(&t->ids, seen.id, frame->stream, (struct rdv_wall){0});
		if (!id)
			return REDRIVE_NO_MEMORY;
		id->stream = frame->stream;
		id->offset = seen.offset;
		id->until = seen.until;
		id->segment = frame->position.segment;
	}
	return r.failed ? REDRIVE_CORRUPT : REDRIVE_OK;
}

enum redrive_status rdv_topics_fold(struct rdv_topics *t, const struct rdv_frame *frame, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;

	if (frame->type == RDV_RECORD_TOPIC)
		status = fold_topic(t, frame);
	else if (frame->type == RDV_RECORD_BODY)
		status = fold_body(t, frame);
	else if (frame->type == RDV_RECORD_SEEN)
		status = fold_seen(t, frame);
	if (status == REDRIVE_OK)
		return REDRIVE_OK;
	return rdv_error_prefix(error, status, "segment %u: %s at %u", frame->position.segment,
				rdv_record_name(frame->type), frame->position.offset);
}

/* ---- opening ---- */

enum redrive_status rdv_topic_record(struct rdv_topic *topic, uint64_t *ticket)
{
	struct rdv_topics *t = topic->set;
	struct rdv_topic_fields *fields = calloc(1, sizeof *fields);
	struct rdv_buffer bytes;
	struct rdv_frame frame = {.type = RDV_RECORD_TOPIC, .stream = topic->first_stream};
	enum redrive_status status = REDRIVE_NO_MEMORY;

	if (!fields)
		return REDRIVE_NO_MEMORY;
	rdv_buffer_init(&bytes, 0);
	fields->name = rdv_slice_text(topic->name);
	fields->partitions = topic->partitions;
	fields->first_stream = topic->first_stream;
	memcpy(fields->secret, topic->secret, sizeof fields->secret);
	/* The offsets may grow until the mutex is taken: those bodies then lie before this record, and so must be in
	 * it. */
	if (!rdv_buffer_reserve(&bytes, rdv_topic_record_bytes(topic)))
		goto out;
	status = rdv_log_begin(t->log, RDV_LOG_OUTCOME, rdv_topic_record_bytes(topic), 1, 0);
	if (status != REDRIVE_OK)
		goto out;
	for (uint32_t i = 0; i < topic->partitions; i++)
		fields->next_offset[i] = rdv_topic_next_offset(topic, i);
	rdv_topic_encode(fields, &bytes);
	frame.length = (uint32_t)bytes.size;
	frame.hint_len = (uint16_t)bytes.size;
	memcpy(rdv_log_put(t->log, &frame), bytes.data, bytes.size);
	rdv_log_end(t->log, true, ticket);
	topic->segment = frame.position.segment;
out:
	rdv_buffer_done(&bytes);
	free(fields);
	return status;
}

enum redrive_status rdv_topic_new(struct rdv_topics *t, const char *name, uint32_t partitions, struct rdv_topic **out,
				  struct rdv_error *error)
{
	struct rdv_topic *topic;
	uint32_t first;

	if (partitions == 0 || partitions > RDV_PARTITIONS_MAX || strlen(name) > RDV_TOPIC_NAME_MAX)
		return rdv_error_set(error, REDRIVE_INVALID,
				     "topic '%s': 1 to %u partitions, a name of at most %u bytes", name,
				     RDV_PARTITIONS_MAX, RDV_TOPIC_NAME_MAX);
	first = rdv_topics_new_streams(t, partitions);
	if (!first)
		return rdv_error_set(error, REDRIVE_FULL, "topic '%s': no stream numbers left", name);
	topic = make_topic(t, rdv_slice_text(name), partitions);
	if (!topic)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "topic '%s': out of memory", name);
	topic->first_stream = first;
	rdv_secret(topic->secret, sizeof topic->secret);
	*out = topic;
	return REDRIVE_OK;
}

enum redrive_status rdv_topic_add(struct rdv_topic *topic, uint64_t *ticket)
{
	take_place(topic);
	return rdv_topic_record(topic, ticket);
}

enum redrive_status rdv_topic_open(struct rdv_topics *t, const char *name, uint32_t partitions, int64_t ids_ttl_ms,
				   struct rdv_topic **out, struct rdv_error *error)
{
	struct rdv_topic *topic = rdv_topic_find(t, rdv_slice_text(name));
	uint64_t ticket;
	enum redrive_status status = REDRIVE_OK;

	if (topic && topic->partitions != partitions)
		return rdv_error_set(error, REDRIVE_REFUSED,
				     "topic '%s' was made with %u partitions and cannot have %u", name,
				     topic->partitions, partitions);
	if (!topic) {
		status = rdv_topic_new(t, name, partitions, &topic, error);
		if (status == REDRIVE_OK)
			status = rdv_topic_add(topic, &ticket);
		if (status != REDRIVE_OK)
			return rdv_error_prefix(error, status, "topic '%s'", name);
	}
	atomic_store_explicit(&topic->ids_ttl_ms, ids_ttl_ms > 0 ? ids_ttl_ms : DAY_MS, memory_order_relaxed);
	*out = topic;
	return REDRIVE_OK;
}

/* ---- topics of a broker ---- */

enum redrive_status rdv_topic_foreign(struct rdv_topics *t, const char *name, const uint8_t secret[16],
				      struct rdv_topic **out, struct rdv_error *error)
{
	struct rdv_topic *topic = rdv_topic_find(t, rdv_slice_text(name));
	uint32_t *streams;

	*out = topic;
	if (topic && !topic->streams)
		return rdv_error_set(error, REDRIVE_REFUSED,
				     "topic '%s' is one of the embedded queue in this data directory", name);
	if (topic)
		return REDRIVE_OK;
	if (strlen(name) > RDV_TOPIC_NAME_MAX)
		return rdv_error_set(error, REDRIVE_REFUSED, "topic '%s': names of at most %u bytes", name,
				     RDV_TOPIC_NAME_MAX);
	streams = calloc(RDV_PARTITIONS_MAX, sizeof *streams);
	topic = streams ? make_topic(t, rdv_slice_text(name), RDV_PARTITIONS_MAX) : NULL;
	if (!topic) {
		free(streams);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "topic '%s': out of memory", name);
	}
	topic->streams = streams;
	topic->segment = UINT32_MAX;
	topic->closed = true;
	memcpy(topic->secret, secret, sizeof topic->secret);
	take_place(topic);
	*out = topic;
	return REDRIVE_OK;
}

bool rdv_topic_is_foreign(const struct rdv_topic *t)
{
	return t->streams;
}

void rdv_topic_foreign_stream(struct rdv_topic *t, uint32_t partition, uint32_t stream)
{
	t->streams[partition] = stream;
}

void rdv_topic_foreign_next(struct rdv_topic *t, uint32_t partition, uint64_t next_offset)
{
	atomic_store_explicit(&t->next_offset[partition], next_offset, memory_order_relaxed);
}

/* ---- readers ---- */

void rdv_topics_readers_begin(struct rdv_topics *t)
{
	for (size_t i = 0; i < t->count; i++) {
		t->items[i]->will_be_read = false;
		t->items[i]->will_be_ttl_ms = 0;
	}
}

void rdv_topic_reader(struct rdv_topic *topic, int64_t ids_ttl_ms)
{
	topic->will_be_read = true;
	if (ids_ttl_ms > topic->will_be_ttl_ms)
		topic->will_be_ttl_ms = ids_ttl_ms;
}

void rdv_topics_readers_end(struct rdv_topics *t)
{
	for (size_t i = 0; i < t->count; i++) {
		struct rdv_topic *topic = t->items[i];
		int64_t ttl = topic->will_be_ttl_ms;

		atomic_store_explicit(&topic->ids_ttl_ms, ttl > 0 ? ttl : DAY_MS, memory_order_relaxed);
		atomic_store(&topic->closed, !topic->will_be_read);
	}
	if (t->log)
		rdv_log_settle(t->log); /* who looked before, is through */
}

bool rdv_topic_is_read(const struct rdv_topic *t)
{
	return !atomic_load_explicit(&t->closed, memory_order_relaxed);
}

void rdv_topics_set_ids_max(struct rdv_topics *t, uint64_t ids_max)
{
	pthread_mutex_lock(&t->mutex);
	t->ids.max = ids_max;
	pthread_mutex_unlock(&t->mutex);
}

/* ---- questions ---- */

const char *rdv_topic_name(const struct rdv_topic *t)
{
	return t->name;
}

uint32_t rdv_topic_partitions(const struct rdv_topic *t)
{
	return t->partitions;
}

uint32_t rdv_topic_stream(const struct rdv_topic *t, uint32_t partition)
{
	return t->streams ? t->streams[partition] : t->first_stream + partition;
}

uint64_t rdv_topic_next_offset(const struct rdv_topic *t, uint32_t partition)
{
	return atomic_load_explicit(&t->next_offset[partition], memory_order_relaxed);
}

struct rdv_hash128 rdv_topic_id_hash(const struct rdv_topic *t, struct rdv_slice id)
{
	return rdv_siphash128(t->secret, id);
}

uint64_t rdv_topic_key_hash(const struct rdv_topic *t, struct rdv_slice key)
{
	uint64_t hash = rdv_siphash(t->secret, key);

	return hash ? hash : 1;
}

uint32_t rdv_topic_partition_of_key(const struct rdv_topic *t, struct rdv_slice key)
{
	return (uint32_t)(rdv_siphash(t->secret, key) % t->partitions);
}

uint64_t rdv_topics_ids(const struct rdv_topics *t, uint64_t *evicted_early)
{
	struct rdv_topics *set = (struct rdv_topics *)t;
	uint64_t count;

	pthread_mutex_lock(&set->mutex);
	count = set->ids.items.count;
	*evicted_early = set->ids.evicted;
	pthread_mutex_unlock(&set->mutex);
	return count;
}
