/* writer.c - the log writer's thread; see writer.h.
 *
 * One cycle: commit, which calls take_durable for each buffer in order, then the publishing calls that have become
 * durable. A call may be left here after its ticket was committed; who leaves it therefore wakes the writer, which
 * looks again. After a failure the thread stays to tell every later call that the log has failed. */
#include "room.h"
#include <stdlib.h>

enum redrive_status rdv_writer_init(struct rdv_writer *w, struct rdv_engine *e)
{
	pthread_condattr_t monotonic;
	int failed;

	*w = (struct rdv_writer){.engine = e};
	if (pthread_mutex_init(&w->mutex, NULL))
		return REDRIVE_NO_MEMORY;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	failed = pthread_cond_init(&w->room, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (failed) {
		pthread_mutex_destroy(&w->mutex);
		return REDRIVE_NO_MEMORY;
	}
	return REDRIVE_OK;
}

void rdv_writer_done(struct rdv_writer *w)
{
	struct rdv_log_buffer *b;

	while ((b = rdv_writer_take(w)))
		rdv_log_buffer_unref(b);
	free(w->waiting);
	pthread_cond_destroy(&w->room);
	pthread_mutex_destroy(&w->mutex);
}

static bool grow(struct rdv_writer *w)
{
	size_t capacity = w->waiting_capacity ? 2 * w->waiting_capacity : 256;
	struct rdv_waiting *ring = calloc(capacity, sizeof *ring);

	if (!ring)
		return false;
	for (size_t i = 0; i < w->waiting_count; i++)
		ring[i] = w->waiting[(w->waiting_head + i) % w->waiting_capacity];
	free(w->waiting);
	w->waiting = ring;
	w->waiting_capacity = capacity;
	w->waiting_head = 0;
	return true;
}

enum redrive_status rdv_writer_await(struct rdv_writer *w, uint64_t ticket, rdv_publish_done done, void *ctx)
{
	enum redrive_status status = REDRIVE_OK;
	bool late;

	pthread_mutex_lock(&w->mutex);
	if (w->ended)
		status = REDRIVE_CLOSED;
	else if (w->waiting_count == w->waiting_capacity && !grow(w))
		status = REDRIVE_NO_MEMORY;
	else
		w->waiting[(w->waiting_head + w->waiting_count++) % w->waiting_capacity] =
			(struct rdv_waiting){ticket, done, ctx};
	late = w->started && (rdv_log_durable_ticket(w->log) >= ticket || rdv_log_failed(w->log));
	pthread_mutex_unlock(&w->mutex);
	if (status == REDRIVE_OK && late)
		rdv_log_wake(w->log);
	return status;
}

/* Ends what is durable, or everything when the log has failed. */
static void end_waiting(struct rdv_writer *w, enum redrive_status otherwise)
{
	uint64_t durable = rdv_log_durable_ticket(w->log);
	struct rdv_waiting ready[64];
	size_t count;

	do {
		count = 0;
		pthread_mutex_lock(&w->mutex);
		while (w->waiting_count && count < 64) {
			struct rdv_waiting *next = &w->waiting[w->waiting_head];

			if (next->ticket > durable && otherwise == REDRIVE_OK)
				break;
			ready[count++] = *next;
			w->waiting_head = (w->waiting_head + 1) % w->waiting_capacity;
			w->waiting_count--;
		}
		pthread_mutex_unlock(&w->mutex);
		for (size_t i = 0; i < count; i++)
			ready[i].done(ready[i].ctx, ready[i].ticket <= durable ? REDRIVE_OK : otherwise);
	} while (count);
}

static void take_durable(void *ctx, struct rdv_log_buffer *buffer, uint64_t ticket)
{
	struct rdv_writer *w = ctx;

	(void)ticket;
	pthread_mutex_lock(&w->mutex);
	while (w->count == RDV_WRITER_QUEUE && !w->stopping) {
		pthread_mutex_unlock(&w->mutex);
		rdv_engine_wake(w->engine);
		pthread_mutex_lock(&w->mutex);
		if (w->count == RDV_WRITER_QUEUE && !w->stopping)
			pthread_cond_wait(&w->room, &w->mutex);
	}
	if (w->count < RDV_WRITER_QUEUE)
		w->queue[(w->head + w->count++) % RDV_WRITER_QUEUE] = rdv_log_buffer_ref(buffer);
	pthread_mutex_unlock(&w->mutex);
}

struct rdv_log_buffer *rdv_writer_take(struct rdv_writer *w)
{
	struct rdv_log_buffer *b = NULL;

	pthread_mutex_lock(&w->mutex);
	if (w->count) {
		b = w->queue[w->head];
		w->head = (w->head + 1) % RDV_WRITER_QUEUE;
		if (w->count-- == RDV_WRITER_QUEUE)
			pthread_cond_signal(&w->room);
	}
	pthread_mutex_unlock(&w->mutex);
	return b;
}

/* Until stop; commits what is there before it ends. */
static void *run(void *arg)
{
	struct rdv_writer *w = arg;
	struct rdv_error error = {0};
	bool stopping = false, told = false;

	pthread_setname_np(pthread_self(), "rdv-writer");
	for (;;) {
		int64_t before = rdv_mono_now_us();
		bool did = false;
		enum redrive_status status = rdv_log_commit(w->log, stopping || told ? 0 : 1000, &did, &error);

		pthread_mutex_lock(&w->mutex);
		if (did)
			rdv_histogram_add(&w->sync, (double)(rdv_mono_now_us() - before) / 1e6);
		stopping = w->stopping;
		if (status != REDRIVE_OK && !stopping && told) {
			struct timespec t;

			clock_gettime(CLOCK_MONOTONIC, &t);
			t.tv_nsec += 20000000;
			t.tv_sec += t.tv_nsec / 1000000000;
			t.tv_nsec %= 1000000000;
			pthread_cond_timedwait(&w->room, &w->mutex, &t);
		}
		pthread_mutex_unlock(&w->mutex);
		if (status != REDRIVE_OK && !told) {
			told = true;
			atomic_store(&w->engine->log_failed, true);
			rdv_engine_say(w->engine, 0, "the log has FAILED: %s", error.text);
		}
		end_waiting(w, status == REDRIVE_OK ? REDRIVE_OK : REDRIVE_FAILED);
		if (did || status != REDRIVE_OK)
			rdv_engine_wake(w->engine);
		if (stopping && !did)
			break;
	}
	pthread_mutex_lock(&w->mutex);
	w->ended = true; /* nobody can be left behind from here on */
	pthread_mutex_unlock(&w->mutex);
	end_waiting(w, REDRIVE_CLOSED);
	return NULL;
}

enum redrive_status rdv_writer_wait(struct rdv_writer *w, uint64_t ticket)
{
	enum redrive_status status;
	bool ended = false;

	while ((status = rdv_log_wait(w->log, ticket, ended ? 0 : 1000)) == REDRIVE_TIMEOUT && !ended) {
		pthread_mutex_lock(&w->mutex);
		ended = w->ended;
		pthread_mutex_unlock(&w->mutex);
	}
	return status == REDRIVE_TIMEOUT ? REDRIVE_CLOSED : status;
}

enum redrive_status rdv_writer_start(struct rdv_writer *w, struct rdv_log *log, struct rdv_error *error)
{
	int failed;

	w->log = log;
	rdv_log_on_durable(log, take_durable, w);
	failed = pthread_create(&w->thread, NULL, run, w);
	if (failed)
		return rdv_error_errno(error, failed, "start the log writer");
	w->started = true;
	return REDRIVE_OK;
}

void rdv_writer_stop(struct rdv_writer *w)
{
	if (!w->started)
		return;
	pthread_mutex_lock(&w->mutex);
	w->stopping = true;
	pthread_cond_broadcast(&w->room);
	pthread_mutex_unlock(&w->mutex);
	rdv_log_wake(w->log);
	pthread_join(w->thread, NULL);
	w->started = false;
}

void rdv_writer_sync_times(struct rdv_writer *w, struct rdv_histogram *out)
{
	pthread_mutex_lock(&w->mutex);
	*out = w->sync;
	pthread_mutex_unlock(&w->mutex);
}
