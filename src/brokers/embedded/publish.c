/* publish.c - messages into the log: checks, partition, offset, publish ids, frames.
 *
 * Everything that can be done alone is done first: lengths, hashes, encoded headers. Then the log's append mutex is
 * taken with room for the whole batch, admission is asked for every message, publish ids are looked up, and only then,
 * when nothing can fail any more, offsets are given out and frames put; so a batch is taken whole or not at all. A new
 * publish id is recorded (SEEN) in the same batch as its message. A repeated id answers the first one's position with
 * the ticket of the latest publishing that recorded ids: it is durable no earlier than the first, and shares its fate.
 * Any thread. */
#include "topic_room.h"
#include <stdlib.h>

#define STACK_MESSAGES 16
#define PUBLISH_WAIT_MS 2000
#define ID_IN_RECORD (RDV_ID_NEW - 1) /* in the SEEN record that is being made */

struct prepared {
	struct rdv_body body;
	struct rdv_hash128 id;
	uint32_t size, partition;
	size_t headers_at;
	struct rdv_id *known; /* new entry, until its SEEN record is put */
};

struct publishing {
	struct rdv_topic *topic;
	const struct rdv_message *messages;
	struct rdv_published_at *results;
	struct prepared *items;
	size_t count, ids;
	struct rdv_wall now;
	struct rdv_buffer headers, seen;
	size_t bytes;
};

static enum redrive_status check_message(const struct rdv_message *m, size_t number, struct rdv_error *error)
{
	if (m->has_key && m->key.size > RDV_KEY_MAX)
		return rdv_error_set(error, REDRIVE_TOO_LARGE,
				     "message %zu: a key of %zu bytes, at most %u are allowed", number, m->key.size,
				     RDV_KEY_MAX);
	if (m->id.size > RDV_PUBLISH_ID_MAX)
		return rdv_error_set(error, REDRIVE_TOO_LARGE,
				     "message %zu: an id of %zu bytes, at most %u are allowed", number, m->id.size,
				     RDV_PUBLISH_ID_MAX);
	for (size_t i = 0; i < m->id.size; i++)
		if (m->id.data[i] < 0x20 || m->id.data[i] > 0x7e)
			return rdv_error_set(error, REDRIVE_INVALID,
					     "message %zu: the id has a byte that is not printable", number);
	if (m->tombstone && m->body.size)
		return rdv_error_set(error, REDRIVE_INVALID, "message %zu: a tombstone has no body", number);
	if (m->body.size > UINT32_MAX / 2)
		return rdv_error_set(error, REDRIVE_TOO_LARGE, "message %zu: a body of %zu bytes", number,
				     m->body.size);
	return REDRIVE_OK;
}

static void prepare(struct publishing *p, size_t i)
{
	const struct rdv_message *m = &p->messages[i];
	struct prepared *item = &p->items[i];

	item->known = NULL;
	item->headers_at = p->headers.size;
	if (m->header_count)
		rdv_headers_encode(&p->headers, m->headers, m->header_count);
	item->body = (struct rdv_body){
		.flags = (uint8_t)((m->has_key ? 0 : RDV_BODY_NULL_KEY) | (m->tombstone ? RDV_BODY_TOMBSTONE : 0) |
				   (m->id.size ? RDV_BODY_HAS_ID : 0)),
		.key_hash = m->has_key ? rdv_topic_key_hash(p->topic, m->key) : 0,
		.not_before = m->not_before,
		.produced_at = p->now,
		.publish_id = m->id,
		.key = m->has_key ? m->key : rdv_slice(NULL, 0),
		.content_type = m->content_type,
		.traceparent = m->traceparent,
		.headers = rdv_slice(NULL, p->headers.size - item->headers_at),
		.body = m->body,
	};
	if (m->id.size) {
		item->id = rdv_topic_id_hash(p->topic, m->id);
		p->ids++;
	}
}

/* After all headers are encoded and do not move any more. */
static enum redrive_status measure(struct publishing *p, struct rdv_error *error)
{
	if (p->headers.failed)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "encoding headers");
	for (size_t i = 0; i < p->count; i++) {
		struct prepared *item = &p->items[i];
		size_t size;

		if (item->body.headers.size)
			item->body.headers.data = p->headers.data + item->headers_at;
		size = rdv_body_size(&item->body);
		if (size > rdv_log_max_payload(p->topic->set->log))
			return rdv_error_set(error, REDRIVE_TOO_LARGE, "message %zu: %zu bytes", i + 1, size);
		item->size = (uint32_t)size;
		p->bytes += size;
	}
	return REDRIVE_OK;
}

static uint32_t choose_partition(struct rdv_topic *t, const struct rdv_body *body, const struct rdv_message *m)
{
	if (t->partitions == 1)
		return 0;
	if (body->flags & RDV_BODY_NULL_KEY)
		return t->turn++ % t->partitions;
	return rdv_topic_partition_of_key(t, m->key);
}

/* Under the append mutex: readers, partitions, and room in the lanes. */
static enum redrive_status admit(struct publishing *p, struct rdv_error *error)
{
	struct rdv_topics_options *o = &p->topic->set->options;

	if (atomic_load_explicit(&p->topic->closed, memory_order_relaxed)) /* written before the mutex was free */
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "no route reads topic '%s'", p->topic->name);
	for (size_t i = 0; i < p->count; i++) {
		struct prepared *item = &p->items[i];
		enum redrive_status status;

		item->partition = choose_partition(p->topic, &item->body, &p->messages[i]);
		if (!o->admit)
			continue;
		status = o->admit(o->admit_ctx, p->topic, item->partition, item->body.key_hash);
		if (status != REDRIVE_OK)
			return rdv_error_set(
				error, status,
				"message %zu: its key holds as many messages as one may: publish it when some are done",
				i + 1);
	}
	return REDRIVE_OK;
}

static void forget_ids(struct publishing *p)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->items[i].known)
			rdv_ids_remove(&p->topic->set->ids, p->items[i].known);
}

/* Under both mutexes: marks repeats, remembers new ids with the position they will have. */
static enum redrive_status take_ids(struct publishing *p)
{
	struct rdv_topic *t = p->topic;
	struct rdv_ids *ids = &t->set->ids;
	int64_t ttl = atomic_load_explicit(&t->ids_ttl_ms, memory_order_relaxed);

	for (size_t i = 0; i < p->count; i++) {
		struct prepared *item = &p->items[i];
		struct rdv_id *id;

		if (!(item->body.flags & RDV_BODY_HAS_ID))
			continue;
		id = rdv_ids_find(ids, t->first_stream, t->partitions, item->id);
		if (id && id->until.ms > p->now.ms) {
			p->results[i] = (struct rdv_published_at){id->stream - t->first_stream, id->offset, true};
			item->known = NULL;
			continue;
		}
		if (id)
			rdv_ids_remove(ids, id);
		id = rdv_ids_add(ids, item->id, t->first_stream + item->partition, p->now);
		if (!id) {
			forget_ids(p);
			return REDRIVE_NO_MEMORY;
		}
		id->until.ms = rdv_ms_add(p->now.ms, ttl);
		id->segment = RDV_ID_NEW;
		item->known = id;
	}
	return REDRIVE_OK;
}

static void put_body(struct publishing *p, size_t i)
{
	struct rdv_topic *t = p->topic;
	struct prepared *item = &p->items[i];
	uint64_t offset = atomic_load_explicit(&t->next_offset[item->partition], memory_order_relaxed);
	struct rdv_frame frame = {
		.type = RDV_RECORD_BODY,
		.hint_len = RDV_BODY_HINT,
		.stream = t->first_stream + item->partition,
		.seq = offset,
		.length = item->size,
	};

	atomic_store_explicit(&t->next_offset[item->partition], offset + 1, memory_order_relaxed);
	rdv_body_encode(&item->body, rdv_log_put(t->set->log, &frame));
	p->results[i] = (struct rdv_published_at){item->partition, offset, false};
	if (item->known)
		item->known->offset = offset;
}

/* One SEEN record with the new ids of the partition of message `from`, which is the first of them. */
static void put_seen(struct publishing *p, size_t from)
{
	struct rdv_topic *t = p->topic;
	uint32_t partition = p->items[from].partition;
	struct rdv_frame frame = {.type = RDV_RECORD_SEEN, .stream = t->first_stream + partition};
	struct rdv_seen *list = (struct rdv_seen *)(void *)p->seen.data;
	struct rdv_buffer bytes;
	size_t count = 0;

	for (size_t i = from; i < p->count && count < UINT16_MAX / RDV_SEEN_BYTES - 1; i++) {
		struct rdv_id *id = p->items[i].known;

		if (id && p->items[i].partition == partition && id->segment == RDV_ID_NEW) {
			list[count++] = (struct rdv_seen){id->hash, id->offset, id->until};
			id->segment = ID_IN_RECORD;
		}
	}
	frame.seq = list[0].offset;
	rdv_buffer_init(&bytes, 0);
	bytes.data = p->seen.data + p->ids * sizeof *list;
	bytes.capacity = p->seen.capacity - p->ids * sizeof *list;
	rdv_seen_encode(list, count, &bytes);
	frame.length = (uint32_t)bytes.size;
	frame.hint_len = (uint16_t)bytes.size;
	memcpy(rdv_log_put(t->set->log, &frame), bytes.data, bytes.size);
	for (size_t i = from; i < p->count; i++)
		if (p->items[i].known && p->items[i].known->segment == ID_IN_RECORD)
			p->items[i].known->segment = frame.position.segment;
}

/* Offsets and frames: nothing can fail any more. */
static void put_all(struct publishing *p)
{
	for (size_t i = 0; i < p->count; i++) {
		if (p->ids && (p->items[i].body.flags & RDV_BODY_HAS_ID) && !p->items[i].known)
			continue; /* a repeat */
		put_body(p, i);
	}
	for (size_t i = 0; p->ids && i < p->count; i++)
		if (p->items[i].known && p->items[i].known->segment == RDV_ID_NEW)
			put_seen(p, i);
}

/* A repeat inside the batch was marked before the first had its offset. */
static void copy_positions(struct publishing *p)
{
	struct rdv_topic *t = p->topic;

	for (size_t i = 0; i < p->count; i++) {
		struct rdv_id *id;

		if (!(p->items[i].body.flags & RDV_BODY_HAS_ID) || p->items[i].known)
			continue;
		id = rdv_ids_find(&t->set->ids, t->first_stream, t->partitions, p->items[i].id);
		if (id)
			p->results[i].offset = id->offset;
	}
}

/* Under the append mutex, which it releases. */
static enum redrive_status append(struct publishing *p, uint64_t *ticket, struct rdv_error *error)
{
	struct rdv_topics *set = p->topic->set;
	enum redrive_status status = admit(p, error);

	if (status != REDRIVE_OK) {
		rdv_log_cancel(set->log);
		return status;
	}
	if (!p->ids) {
		put_all(p);
		rdv_log_end(set->log, true, ticket);
		return REDRIVE_OK;
	}
	pthread_mutex_lock(&set->mutex);
	status = take_ids(p);
	if (status == REDRIVE_OK) {
		put_all(p);
		copy_positions(p);
	}
	if (status == REDRIVE_OK)
		rdv_log_end(set->log, true,
			    ticket); /* only repeats: the ticket of what was appended last, thus behind the first */
	else
		rdv_log_cancel(set->log);
	pthread_mutex_unlock(&set->mutex);
	return status;
}

/* Room for the SEEN records: the list and its encoding, so that nothing is allocated under the mutex. */
static enum redrive_status reserve_seen(struct publishing *p)
{
	size_t per_id = sizeof(struct rdv_seen) + RDV_SEEN_BYTES;

	if (!p->ids)
		return REDRIVE_OK;
	if (!rdv_buffer_reserve(&p->seen, p->ids * per_id + 64))
		return REDRIVE_NO_MEMORY;
	p->bytes += p->ids * (RDV_SEEN_BYTES + 16);
	return REDRIVE_OK;
}

static enum redrive_status no_room(struct rdv_log *log, enum redrive_status status, struct rdv_error *error)
{
	struct rdv_log_space space;

	if (status != REDRIVE_FULL)
		return rdv_error_set(error, status, "the journal takes no messages");
	rdv_log_space(log, &space);
	return rdv_error_set(error, status,
			     "the journal has no room for new messages now: %llu of %llu MiB are live (the limit "
			     "'journal'), %llu MiB are free on its disk (the limit 'disk_free')",
			     (unsigned long long)(space.live_bytes >> 20), (unsigned long long)(space.capacity >> 20),
			     (unsigned long long)(space.free_bytes >> 20));
}

static enum redrive_status publish(struct publishing *p, uint64_t *ticket, struct rdv_error *error)
{
	enum redrive_status status;

	for (size_t i = 0; i < p->count; i++) {
		status = check_message(&p->messages[i], i + 1, error);
		if (status != REDRIVE_OK)
			return status;
		prepare(p, i);
	}
	status = measure(p, error);
	if (status == REDRIVE_OK)
		status = reserve_seen(p);
	if (status != REDRIVE_OK)
		return status;
	status = rdv_log_begin(p->topic->set->log, RDV_LOG_PUBLISH, p->bytes, (uint32_t)(p->count + p->ids),
			       PUBLISH_WAIT_MS);
	if (status != REDRIVE_OK)
		return no_room(p->topic->set->log, status, error);
	return append(p, ticket, error);
}

enum redrive_status rdv_topic_publish(struct rdv_topic *t, const struct rdv_message *messages, size_t count,
				      struct rdv_wall now, struct rdv_published_at *results, uint64_t *ticket,
				      struct rdv_error *error)
{
	struct prepared few[STACK_MESSAGES];
	struct publishing p = {
		.topic = t, .messages = messages, .results = results, .items = few, .count = count, .now = now};
	enum redrive_status status;

	*ticket = 0;
	if (count == 0)
		return REDRIVE_OK;
	if (count > UINT32_MAX / 4)
		return rdv_error_set(error, REDRIVE_TOO_LARGE, "a batch of %zu messages", count);
	if (count > STACK_MESSAGES)
		p.items = malloc(count * sizeof *p.items);
	if (!p.items)
		return REDRIVE_NO_MEMORY;
	rdv_buffer_init(&p.headers, 0);
	rdv_buffer_init(&p.seen, 0);
	status = publish(&p, ticket, error);
	rdv_buffer_done(&p.headers);
	rdv_buffer_done(&p.seen);
	if (p.items != few)
		free(p.items);
	return status;
}

enum redrive_status rdv_topic_find_id(struct rdv_topic *t, struct rdv_slice id, struct rdv_published_at *out)
{
	struct rdv_topics *set = t->set;
	struct rdv_id *found;

	pthread_mutex_lock(&set->mutex);
	found = rdv_ids_find(&set->ids, t->first_stream, t->partitions, rdv_topic_id_hash(t, id));
	if (found)
		*out = (struct rdv_published_at){found->stream - t->first_stream, found->offset, true};
	pthread_mutex_unlock(&set->mutex);
	return found ? REDRIVE_OK : REDRIVE_NOT_FOUND;
}
