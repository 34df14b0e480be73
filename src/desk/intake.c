/* intake.c - the desk's writer thread and the bounded queue before it.
 *
 * A letter larger than the whole queue is taken when the queue is empty, so none is too large for ever. `waiting` falls
 * only after `stored` was called: at zero every letter that was put is settled. A second without letters lets the store
 * say on disk that all is synced. The mutex is held for the queue alone, never over a write. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "intake.h"

#define IDLE_MS 1000

static struct rdv_wall real_now(void *ctx)
{
	return rdv_wall_now();
}

enum redrive_status rdv_desk_intake_init(struct rdv_desk_intake *in, struct rdv_desk_store *store)
{
	pthread_condattr_t attr;
	memset(in, 0, sizeof *in);
	in->store = store;
	in->now = real_now;
	in->tail = &in->head;
	pthread_mutex_init(&in->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&in->wake, &attr);
	pthread_condattr_destroy(&attr);
	in->items = calloc(RDV_DESK_BATCH_LETTERS, sizeof *in->items);
	in->batch = calloc(RDV_DESK_BATCH_LETTERS, sizeof(struct rdv_desk_letter *));
	return in->items && in->batch ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static void letter_free(struct rdv_desk_letter *l)
{
	rdv_block_unref(l->envelope);
	rdv_block_unref(l->body);
	free(l);
}

void rdv_desk_intake_done(struct rdv_desk_intake *in)
{
	if (!in || !in->store)
		return;
	rdv_desk_intake_stop(in);
	while (in->head) {
		struct rdv_desk_letter *l = in->head;
		in->head = l->next;
		in->waiting--;
		l->stored(l->ctx, l->cookie, REDRIVE_CLOSED);
		letter_free(l);
	}
	pthread_mutex_destroy(&in->mutex);
	pthread_cond_destroy(&in->wake);
	free(in->items);
	free(in->batch);
	memset(in, 0, sizeof *in);
}

static uint64_t bytes_of(const struct rdv_desk_letter *l)
{
	return sizeof *l + l->envelope->size + (l->body ? l->body->size : 0);
}

static enum redrive_status refuse(const struct rdv_desk_letter *l, enum redrive_status status)
{
	rdv_block_unref(l->envelope);
	rdv_block_unref(l->body);
	return status;
}

enum redrive_status rdv_desk_intake_put(struct rdv_desk_intake *in, const struct rdv_desk_letter *letter)
{
	uint64_t bytes = bytes_of(letter);
	struct rdv_desk_letter *l = malloc(sizeof *l);
	enum redrive_status status = l ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	if (!l)
		return refuse(letter, status);
	*l = *letter;
	l->next = NULL;
	pthread_mutex_lock(&in->mutex);
	if (in->stopping)
		status = REDRIVE_CLOSED;
	else if (in->count >= RDV_DESK_QUEUE_LETTERS || (in->count && in->bytes + bytes > RDV_DESK_QUEUE_BYTES))
		status = REDRIVE_FULL;
	if (status == REDRIVE_OK) {
		*in->tail = l;
		in->tail = &l->next;
		in->bytes += bytes;
		in->waiting++;
		if (in->count++ == 0)
			pthread_cond_signal(&in->wake);
	}
	pthread_mutex_unlock(&in->mutex);
	if (status == REDRIVE_OK)
		return status;
	free(l);
	return refuse(letter, status);
}

/* Takes a batch off the queue; waits for it. 0: idle, or stopping with an empty queue. */
static size_t take_batch(struct rdv_desk_intake *in, bool *stopping)
{
	struct timespec until;
	size_t n = 0;
	uint64_t bytes = 0;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_MS / 1000;
	pthread_mutex_lock(&in->mutex);
	while (!in->head && !in->stopping)
		if (pthread_cond_timedwait(&in->wake, &in->mutex, &until) == ETIMEDOUT)
			break;
	while (in->head && n < RDV_DESK_BATCH_LETTERS && (n == 0 || bytes < RDV_DESK_BATCH_BYTES)) {
		struct rdv_desk_letter *l = in->head;
		in->head = l->next;
		bytes += bytes_of(l);
		in->batch[n++] = l;
	}
	if (!in->head)
		in->tail = &in->head;
	in->count -= n;
	in->bytes -= bytes;
	*stopping = in->stopping;
	pthread_mutex_unlock(&in->mutex);
	return n;
}

/* A body that was lost is told by its envelope: damaged, or a size without bytes. */
static bool has_body(const struct rdv_desk_letter *l)
{
	struct rdv_envelope e;
	if (l->body)
		return true;
	if (rdv_envelope_decode(rdv_block_slice(l->envelope), &e) != REDRIVE_OK)
		return false;
	return e.reason != RDV_REASON_DAMAGED && e.body_size == 0;
}

static void store_batch(struct rdv_desk_intake *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		in->items[i].frame =
			(struct rdv_letter_frame){rdv_block_slice(in->batch[i]->envelope),
						  rdv_block_slice(in->batch[i]->body), has_body(in->batch[i])};
	rdv_desk_store_take(in->store, in->items, n, in->now(in->now_ctx));
	for (size_t i = 0; i < n; i++) {
		struct rdv_desk_letter *l = in->batch[i];
		l->stored(l->ctx, l->cookie, in->items[i].status);
		letter_free(l);
		in->waiting--;
	}
}

static void *writer(void *arg)
{
	struct rdv_desk_intake *in = arg;
	bool stopping = false;
	rdv_desk_store_warm(in->store);
	for (;;) {
		size_t n = take_batch(in, &stopping);
		if (n)
			store_batch(in, n);
		else if (stopping)
			return NULL;
		else
			rdv_desk_store_idle(in->store);
	}
}

enum redrive_status rdv_desk_intake_start(struct rdv_desk_intake *in)
{
	if (pthread_create(&in->thread, NULL, writer, in))
		return REDRIVE_NO_MEMORY;
	in->running = true;
	return REDRIVE_OK;
}

void rdv_desk_intake_stop(struct rdv_desk_intake *in)
{
	if (!in->running)
		return;
	pthread_mutex_lock(&in->mutex);
	in->stopping = true;
	pthread_cond_signal(&in->wake);
	pthread_mutex_unlock(&in->mutex);
	pthread_join(in->thread, NULL);
	in->running = false;
}
