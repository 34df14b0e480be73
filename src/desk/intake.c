/* intake.c - the desk's writer thread and the bounded queue before it.
 *
 * A letter larger than the whole queue is taken when the queue is empty, so none is too large for ever. `waiting` falls
 * only after `stored` was called: at zero every letter that was put is settled. A second without letters lets the store
 * say on disk that all is synced. A batch costs a sync and most of the index's open pages however few its letters are,
 * so when many come they are gathered for a moment, or until there is a whole batch; a single letter never waits. There
 * are two slots: a batch is handed over only when the one before is done, so the other slot is free then. The mutex is
 * held for the queue alone, never over a write. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "intake.h"

#define IDLE_MS 1000
#define GATHER_MS 200  /* between the beginnings of two batches */
#define GATHER_FROM 32 /* letters in a batch: then they come so fast that the next ones are worth waiting for */

static struct rdv_wall real_now(void *ctx)
{
	return rdv_wall_now();
}

static void letter_free(struct rdv_desk_letter *l)
{
	rdv_block_unref(l->envelope);
	rdv_block_unref(l->body);
	free(l);
}

/* From the indexer's thread: the statuses are final. */
static void answer(void *ctx)
{
	struct rdv_desk_slot *slot = ctx;
	for (size_t i = 0; i < slot->count; i++) {
		struct rdv_desk_letter *l = slot->letters[i];
		l->stored(l->ctx, l->cookie, slot->items[i].status);
		letter_free(l);
		slot->intake->waiting--;
	}
}

static enum redrive_status slot_init(struct rdv_desk_slot *slot, struct rdv_desk_intake *in)
{
	enum redrive_status status = rdv_desk_batch_init(&slot->batch, RDV_DESK_BATCH_LETTERS);
	slot->intake = in;
	slot->batch.done = answer;
	slot->batch.ctx = slot;
	slot->items = calloc(RDV_DESK_BATCH_LETTERS, sizeof *slot->items);
	slot->letters = calloc(RDV_DESK_BATCH_LETTERS, sizeof(struct rdv_desk_letter *));
	return slot->items && slot->letters ? status : REDRIVE_NO_MEMORY;
}

static void slot_done(struct rdv_desk_slot *slot)
{
	rdv_desk_batch_done(&slot->batch);
	free(slot->letters);
	free(slot->items);
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
	for (size_t i = 0; i < 2; i++)
		if (slot_init(&in->slots[i], in) != REDRIVE_OK)
			return REDRIVE_NO_MEMORY;
	return REDRIVE_OK;
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
	for (size_t i = 0; i < 2; i++)
		slot_done(&in->slots[i]);
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

/* With the mutex: what waits is worth a batch, no matter what may come. */
static bool has_batch(const struct rdv_desk_intake *in)
{
	return in->count >= RDV_DESK_BATCH_LETTERS || in->bytes >= RDV_DESK_BATCH_BYTES;
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
		if (in->count++ == 0 || has_batch(in))
			pthread_cond_signal(&in->wake);
	}
	pthread_mutex_unlock(&in->mutex);
	if (status == REDRIVE_OK)
		return status;
	free(l);
	return refuse(letter, status);
}

static struct timespec time_in(int64_t ms)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += ms % 1000 * 1000000;
	at.tv_sec += at.tv_nsec / 1000000000;
	at.tv_nsec %= 1000000000;
	return at;
}

/* With the mutex: until a batch is there, it is time to begin one, or a stop. */
static void gather(struct rdv_desk_intake *in)
{
	while (!in->stopping && !has_batch(in) &&
	       pthread_cond_timedwait(&in->wake, &in->mutex, &in->gather_until) != ETIMEDOUT)
		;
}

/* Takes a batch off the queue; waits for it. 0: idle, or stopping with an empty queue. */
static size_t take_batch(struct rdv_desk_intake *in, struct rdv_desk_slot *slot, bool *stopping)
{
	struct timespec until = time_in(IDLE_MS);
	size_t n = 0;
	uint64_t bytes = 0;
	pthread_mutex_lock(&in->mutex);
	while (!in->head && !in->stopping)
		if (pthread_cond_timedwait(&in->wake, &in->mutex, &until) == ETIMEDOUT)
			break;
	if (in->head && in->gathers)
		gather(in);
	while (in->head && n < RDV_DESK_BATCH_LETTERS && (n == 0 || bytes < RDV_DESK_BATCH_BYTES)) {
		struct rdv_desk_letter *l = in->head;
		in->head = l->next;
		bytes += bytes_of(l);
		slot->letters[n++] = l;
	}
	if (!in->head)
		in->tail = &in->head;
	in->count -= n;
	in->bytes -= bytes;
	*stopping = in->stopping;
	pthread_mutex_unlock(&in->mutex);
	in->gathers = n >= GATHER_FROM;
	in->gather_until = time_in(GATHER_MS);
	slot->count = n;
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

static void store_batch(struct rdv_desk_intake *in, struct rdv_desk_slot *slot)
{
	for (size_t i = 0; i < slot->count; i++) {
		const struct rdv_desk_letter *l = slot->letters[i];
		slot->items[i].frame =
			(struct rdv_letter_frame){rdv_block_slice(l->envelope), rdv_block_slice(l->body), has_body(l)};
	}
	rdv_desk_store_take(in->store, slot->items, slot->count, in->now(in->now_ctx), &slot->batch);
}

static void *writer(void *arg)
{
	struct rdv_desk_intake *in = arg;
	struct rdv_desk_slot *slot = &in->slots[0];
	bool stopping = false;
	rdv_desk_store_warm(in->store);
	for (;;) {
		size_t n = take_batch(in, slot, &stopping);
		if (n) {
			store_batch(in, slot);
			slot = &in->slots[slot == &in->slots[0]];
		} else if (stopping) {
			return NULL;
		} else {
			rdv_desk_store_idle(in->store);
		}
	}
}

enum redrive_status rdv_desk_intake_start(struct rdv_desk_intake *in)
{
	enum redrive_status status = rdv_desk_indexer_start(&in->store->indexer);
	if (status != REDRIVE_OK)
		return status;
	if (pthread_create(&in->thread, NULL, writer, in)) {
		rdv_desk_indexer_stop(&in->store->indexer);
		return REDRIVE_NO_MEMORY;
	}
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
	rdv_desk_indexer_stop(&in->store->indexer); /* what was written is answered */
	in->running = false;
}
