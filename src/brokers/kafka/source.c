/* source.c - a route's source on Kafka, from outside: made, started, given batches, stopped.
 *
 * The ops of source.h. They only hand things to the three threads (source_parts.h) under the lock; none of them but
 * start and stop waits for anything. After stop has returned nothing calls back any more. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "../../base/text.h"
#include "source_parts.h"

void rdv_kafka_source_say(struct rdv_kafka_source *s, int level, const char *fmt, ...)
{
	char text[RDV_KAFKA_WHY_SIZE + 200];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	if (s->config.say)
		s->config.say(s->config.say_ctx, level, text);
}

void rdv_kafka_source_wake(struct rdv_kafka_source *s)
{
	uint64_t one = 1;

	if (write(s->wake_fd, &one, sizeof one) < 0)
		return; /* the counter is full: it is awake */
}

void rdv_kafka_work_put(struct rdv_kafka_work_list *list, struct rdv_kafka_work *work, enum rdv_kafka_work_kind kind)
{
	assert(!work->listed);
	work->kind = kind;
	work->listed = true;
	work->next = NULL;
	if (!list->first)
		list->last = &list->first;
	*list->last = work;
	list->last = &work->next;
}

struct rdv_kafka_work *rdv_kafka_work_take(struct rdv_kafka_work_list *list)
{
	struct rdv_kafka_work *work = list->first;

	if (work) {
		list->first = work->next;
		work->listed = false;
	}
	return work;
}

void rdv_kafka_source_tell(struct rdv_kafka_source *s, struct rdv_kafka_work *work, enum rdv_kafka_work_kind kind)
{
	rdv_kafka_work_put(&s->news, work, kind);
	rdv_kafka_source_wake(s);
}

void rdv_kafka_source_wait(struct rdv_kafka_source *s, pthread_cond_t *work, int64_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ms % 1000 * 1000000;
	until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(work, &s->lock, &until);
}

struct rdv_kafka_snapshot *rdv_kafka_snapshot_ref(struct rdv_kafka_source *s)
{
	if (s->snapshot)
		s->snapshot->refs++;
	return s->snapshot;
}

void rdv_kafka_snapshot_unref(struct rdv_kafka_snapshot *snapshot)
{
	if (!snapshot || --snapshot->refs)
		return;
	rd_kafka_consumer_group_metadata_destroy(snapshot->group);
	free(snapshot);
}

/* ---- the ops ---- */

static struct rdv_kafka_source *of(struct rdv_source *base)
{
	return (struct rdv_kafka_source *)base;
}

static void commit(struct rdv_source *base, struct rdv_source_batch *b)
{
	struct rdv_kafka_source *s = of(base);
	bool closed;

	for (size_t i = 0; i < b->write_count; i++)
		b->writes[i].journal_first = -1;
	pthread_mutex_lock(&s->lock);
	closed = s->consumer_done;
	if (!closed) {
		assert(!s->batch);
		s->batch = b;
		s->batch_ran = false;
		for (size_t i = 0; i < b->write_count; i++)
			b->writes[i].lane->in_batch = true;
		pthread_cond_signal(&s->transaction_work);
	}
	pthread_mutex_unlock(&s->lock);
	if (closed)
		b->done(b->ctx, b, REDRIVE_CLOSED);
}

static void take(struct rdv_source *base, struct rdv_source_lane *lane, bool on)
{
	struct rdv_kafka_source *s = of(base);

	if (atomic_exchange(&lane->wanted, on) == on)
		return;
	atomic_store(&s->attention, true);
	rdv_kafka_source_wake(s);
}

static void forget(struct rdv_source *base, struct rdv_source_lane *lane, int64_t journal_offset)
{
	struct rdv_kafka_source *s = of(base);

	pthread_mutex_lock(&s->lock);
	if (journal_offset > lane->forget) {
		lane->forget = journal_offset;
		s->forgetting = true;
		pthread_cond_signal(&s->errand_work);
	}
	pthread_mutex_unlock(&s->lock);
}

static enum redrive_status open_handles(struct rdv_kafka_source *s, struct rdv_error *error)
{
	enum redrive_status st = rdv_kafka_open(&s->config, RDV_KAFKA_GROUP, NULL, s, &s->consumer, error);

	if (st == REDRIVE_OK)
		st = rdv_kafka_open(&s->config, RDV_KAFKA_READER, NULL, s, &s->reader, error);
	if (st == REDRIVE_OK)
		st = rdv_kafka_open(&s->config, RDV_KAFKA_ADMIN, NULL, s, &s->admin, error);
	if (st != REDRIVE_OK)
		return st;
	s->consumer_queue = rd_kafka_queue_get_consumer(s->consumer);
	s->reader_queue = rd_kafka_queue_get_consumer(s->reader);
	if (!s->consumer_queue || !s->reader_queue)
		return rdv_error_set(error, REDRIVE_INTERNAL, "a consumer without a queue");
	rd_kafka_queue_io_event_enable(s->consumer_queue, s->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	rd_kafka_queue_io_event_enable(s->reader_queue, s->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	return REDRIVE_OK;
}

static enum redrive_status subscribe(struct rdv_kafka_source *s, struct rdv_error *error)
{
	rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new((int)s->config.topic_count);
	rd_kafka_resp_err_t err;

	for (size_t i = 0; i < s->config.topic_count; i++)
		rd_kafka_topic_partition_list_add(topics, s->config.topics[i], RD_KAFKA_PARTITION_UA);
	err = rd_kafka_subscribe(s->consumer, topics);
	rd_kafka_topic_partition_list_destroy(topics);
	if (err)
		return rdv_error_set(error, REDRIVE_INVALID, "subscribe: %s", rd_kafka_err2str(err));
	return REDRIVE_OK;
}

static void close_handles(struct rdv_kafka_source *s)
{
	/* The queues first: consumer_close would wait for somebody who serves them. */
	if (s->consumer_queue)
		rd_kafka_queue_destroy(s->consumer_queue);
	if (s->reader_queue)
		rd_kafka_queue_destroy(s->reader_queue);
	s->consumer_queue = s->reader_queue = NULL;
	rdv_kafka_close(s->consumer);
	rdv_kafka_close(s->reader);
	rdv_kafka_close(s->admin);
	s->consumer = s->reader = s->admin = NULL;
}

static void end_helpers(struct rdv_kafka_source *s, int started)
{
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	atomic_store(&s->txn_stop, true);
	pthread_cond_broadcast(&s->transaction_work);
	pthread_cond_broadcast(&s->errand_work);
	pthread_mutex_unlock(&s->lock);
	if (started > 0)
		pthread_join(s->transaction_thread, NULL);
	if (started > 1)
		pthread_join(s->errand_thread, NULL);
}

static enum redrive_status start(struct rdv_source *base, struct rdv_error *error)
{
	struct rdv_kafka_source *s = of(base);
	enum redrive_status st = open_handles(s, error);
	int started = 0;

	if (st == REDRIVE_OK)
		st = subscribe(s, error);
	if (st != REDRIVE_OK) {
		close_handles(s);
		return st;
	}
	if (!pthread_create(&s->transaction_thread, NULL, rdv_kafka_transaction_main, s))
		started++;
	if (started == 1 && !pthread_create(&s->errand_thread, NULL, rdv_kafka_errand_main, s))
		started++;
	if (started == 2 && !pthread_create(&s->consumer_thread, NULL, rdv_kafka_consumer_main, s))
		started++;
	if (started < 3) {
		end_helpers(s, started);
		close_handles(s);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no thread could be started");
	}
	s->running = true;
	return REDRIVE_OK;
}

static void stop(struct rdv_source *base, int64_t within_ms)
{
	struct rdv_kafka_source *s = of(base);

	if (!s->running)
		return;
	s->running = false;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	s->stop_by.ms = rdv_ms_add(rdv_mono_now().ms, within_ms);
	pthread_mutex_unlock(&s->lock);
	rdv_kafka_source_wake(s);
	pthread_join(s->consumer_thread, NULL);
	end_helpers(s, 2);
	close_handles(s);
}

static void free_feeds(struct rdv_kafka_source *s)
{
	for (struct rdv_kafka_feed *next, *f = s->feeds; f; f = next) {
		next = f->next;
		free(f->topic);
		free(f->lanes);
		free(f);
	}
}

static void free_lanes(struct rdv_kafka_source *s)
{
	for (struct rdv_source_lane *next, *l = s->lanes; l; l = next) {
		next = l->next;
		rdv_kafka_messages_drop(l);
		free(l->held);
		free(l);
	}
}

static void free_source(struct rdv_source *base)
{
	struct rdv_kafka_source *s = of(base);

	if (!s)
		return;
	stop(base, 0);
	rdv_kafka_txn_free(s->txn);
	free_lanes(s);
	free_feeds(s);
	rdv_kafka_snapshot_unref(s->snapshot);
	rdv_buffer_done(&s->arena);
	rdv_buffer_done(&s->headers);
	rdv_kafka_step_end(s);
	free(s->puts);
	free(s->moved);
	free(s->firsts);
	free(s->ripe);
	free(s->records);
	free(s->transactional_id);
	rdv_kafka_config_done(&s->config);
	pthread_cond_destroy(&s->transaction_work);
	pthread_cond_destroy(&s->errand_work);
	pthread_mutex_destroy(&s->lock);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	free(s);
}

static const struct rdv_source_ops ops = {"kafka", start, commit, take, forget, stop, free_source};

/* ---- made ---- */

/* One writer a process: its name is the static member's, so that a successor ends at once what its predecessor left
 * open; else a fresh one, so that no two processes ever fence each other. */
static enum redrive_status name_writer(struct rdv_kafka_source *s, const struct rdv_kafka_options *o)
{
	struct rdv_buffer id;
	uint8_t nonce[8];

	rdv_buffer_init(&id, 0);
	rdv_buffer_printf(&id, "redrive.%s.%s.", o->route, o->group);
	if (o->instance) {
		rdv_buffer_text(&id, o->instance);
	} else {
		rdv_secret(nonce, sizeof nonce);
		rdv_hex_encode(&id, rdv_slice(nonce, sizeof nonce));
	}
	s->transactional_id = id.failed ? NULL : strdup(rdv_buffer_string(&id));
	rdv_buffer_done(&id);
	return s->transactional_id ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static int64_t poll_interval(const struct rdv_kafka_config *c)
{
	const char *set = rdv_kafka_config_setting(c, "max.poll.interval.ms");

	return set ? strtoll(set, NULL, 10) : 300000; /* the library's */
}

static void init_locks(struct rdv_kafka_source *s)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&s->transaction_work, &monotonic);
	pthread_cond_init(&s->errand_work, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

enum redrive_status rdv_kafka_new(const struct rdv_kafka_options *o, const struct rdv_source_sink *sink,
				  struct rdv_source **out, struct rdv_error *error)
{
	struct rdv_kafka_source *s = calloc(1, sizeof *s);
	enum redrive_status st;

	if (!s)
		return REDRIVE_NO_MEMORY;
	s->base.ops = &ops;
	s->base.sink = *sink;
	atomic_store(&s->base.lag, -1);
	init_locks(s);
	rdv_buffer_init(&s->arena, 0);
	rdv_buffer_init(&s->headers, 0);
	s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (s->wake_fd < 0) {
		st = rdv_error_errno(error, errno, "eventfd");
		goto fail;
	}
	st = rdv_kafka_config_copy(&s->config, o);
	if (st == REDRIVE_OK)
		st = name_writer(s, o);
	if (st != REDRIVE_OK)
		goto fail;
	s->poll_interval_ms = poll_interval(&s->config);
	s->config.say = sink->say;
	s->config.say_ctx = sink->ctx;
	s->txn = rdv_kafka_txn_new(&s->config, s->transactional_id, &s->txn_stop);
	if (!s->txn) {
		st = REDRIVE_NO_MEMORY;
		goto fail;
	}
	*out = &s->base;
	return REDRIVE_OK;
fail:
	free_source(&s->base);
	return st;
}
