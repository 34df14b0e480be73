/* publish.c - messages from publishers, straight into the log; and the limits of what is accepted.
 *
 * Publishing does not go through the core thread. The limits are the engine's options; those that publishers look at
 * are kept apart, as they may change meanwhile. Any thread, but the limits: the core's, or before it runs. */
#include "room.h"

/* ---- limits ---- */

/* 0 is the default. */
void rdv_engine_settle_limits(struct rdv_engine *e)
{
	struct rdv_engine_options *o = &e->options;

	o->body_max = o->body_max ? o->body_max : 1u << 20;
	o->headers_max = o->headers_max ? o->headers_max : 64u << 10;
	o->batch_max = o->batch_max ? o->batch_max : 16u << 20;
	o->ids = o->ids ? o->ids : 10000000;
	o->drain_ms = o->drain_ms > 0 ? o->drain_ms : 0;
	o->hot_ms = o->hot_ms ? o->hot_ms : 7 * 24 * 3600 * 1000ll;
	o->unread_wait_ms = o->unread_wait_ms > 0 ? o->unread_wait_ms : 1000;
	atomic_store(&e->most.body, o->body_max);
	atomic_store(&e->most.headers, o->headers_max);
	atomic_store(&e->most.batch, o->batch_max);
}

void rdv_engine_set_limits(struct rdv_engine *e, const struct rdv_engine_options *new)
{
	struct rdv_engine_options *o = &e->options;
	bool space = o->journal != new->journal || o->disk_free != new->disk_free;

	o->journal = new->journal;
	o->disk_free = new->disk_free;
	o->body_max = new->body_max;
	o->headers_max = new->headers_max;
	o->batch_max = new->batch_max;
	o->ids = new->ids;
	o->drain_ms = new->drain_ms;
	o->hot_ms = new->hot_ms;
	rdv_engine_settle_limits(e);
	if (space)
		rdv_log_set_limits(e->log, o->journal, o->disk_free);
	rdv_topics_set_ids_max(e->topics, o->ids);
	rdv_desk_set_hot(e->desk, o->hot_ms);
}

/* ---- publishing ---- */

static enum redrive_status check_sizes(const struct rdv_engine *e, const struct rdv_message *m, size_t count,
				       struct rdv_error *error)
{
	uint64_t all = 0, body_max = atomic_load(&e->most.body), headers_max = atomic_load(&e->most.headers),
		 batch_max = atomic_load(&e->most.batch);

	for (size_t i = 0; i < count; i++) {
		uint64_t headers = m[i].content_type.size + m[i].traceparent.size;

		for (size_t h = 0; h < m[i].header_count; h++)
			headers += m[i].headers[h].name.size + m[i].headers[h].value.size;
		if (m[i].body.size > body_max)
			return rdv_error_set(error, REDRIVE_TOO_LARGE,
					     "message %zu: a body of %zu bytes; the limit 'body' allows %llu", i + 1,
					     m[i].body.size, (unsigned long long)body_max);
		if (headers > headers_max)
			return rdv_error_set(error, REDRIVE_TOO_LARGE,
					     "message %zu: headers of %llu bytes; the limit 'headers' allows %llu",
					     i + 1, (unsigned long long)headers, (unsigned long long)headers_max);
		all += headers + m[i].body.size + m[i].key.size + m[i].id.size;
	}
	if (count > 1 && all > batch_max)
		return rdv_error_set(error, REDRIVE_TOO_LARGE, "a batch of %llu bytes; the limit 'batch' allows %llu",
				     (unsigned long long)all, (unsigned long long)batch_max);
	return REDRIVE_OK;
}

static enum redrive_status publish(struct rdv_engine *e, struct rdv_slice name, const struct rdv_message *messages,
				   size_t count, struct rdv_published_at *results, uint64_t *ticket,
				   struct rdv_error *error)
{
	struct rdv_topic *topic;
	enum redrive_status status;

	if (!atomic_load_explicit(&e->accepts, memory_order_relaxed))
		return atomic_load(&e->log_failed)
			       ? rdv_error_set(error, REDRIVE_FAILED, "the journal has failed: restart after repair")
			       : rdv_error_set(error, REDRIVE_CLOSED, "not running");
	topic = rdv_topic_find(e->topics, name);
	if (topic && rdv_topic_is_foreign(topic))
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "topic '%s' is a broker's: publish to it there",
				     rdv_topic_name(topic));
	if (!topic || !rdv_topic_is_read(topic))
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "no route reads topic '%.*s'",
				     (int)(name.size > 200 ? 200 : name.size), (const char *)name.data);
	status = check_sizes(e, messages, count, error);
	if (status != REDRIVE_OK)
		return status;
	return rdv_topic_publish(topic, messages, count, rdv_wall_now(), results, ticket, error);
}

enum redrive_status rdv_engine_publish(struct rdv_engine *e, struct rdv_slice topic, const struct rdv_message *messages,
				       size_t count, struct rdv_published_at *results, rdv_publish_done done, void *ctx,
				       struct rdv_error *error)
{
	uint64_t ticket = 0;
	enum redrive_status status = publish(e, topic, messages, count, results, &ticket, error);

	return status == REDRIVE_OK ? rdv_writer_await(&e->writer, ticket, done, ctx) : status;
}

enum redrive_status rdv_engine_publish_wait(struct rdv_engine *e, struct rdv_slice topic,
					    const struct rdv_message *messages, size_t count,
					    struct rdv_published_at *results, struct rdv_error *error)
{
	uint64_t ticket = 0;
	enum redrive_status status = publish(e, topic, messages, count, results, &ticket, error);

	if (status == REDRIVE_OK)
		status = rdv_writer_wait(&e->writer, ticket);
	if (status == REDRIVE_FAILED)
		rdv_error_set(error, status, "the journal has failed: restart after repair");
	return status;
}
