/* indexer.c - see indexer.h.
 *
 * The mutex guards `at_work` and `stopping` alone, never an index. A batch's memory, and the index of its part, belong
 * to this thread from give until `at_work` is NULL again. */
#include "indexer.h"
#include <stdlib.h>

enum redrive_status rdv_desk_batch_init(struct rdv_desk_batch *b, size_t capacity)
{
	*b = (struct rdv_desk_batch){.capacity = capacity};
	rdv_desk_filter_init(&b->ids);
	b->rows = calloc(capacity, sizeof *b->rows);
	return b->rows ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

void rdv_desk_batch_done(struct rdv_desk_batch *b)
{
	if (!b)
		return;
	rdv_desk_filter_done(&b->ids);
	free(b->rows);
	b->rows = NULL;
}

bool rdv_desk_batch_has(const struct rdv_desk_batch *b, const uint8_t id[16])
{
	if (!rdv_desk_filter_maybe(&b->ids, id))
		return false;
	for (size_t i = 0; i < b->count; i++)
		if (memcmp(b->rows[i].id, id, 16) == 0)
			return true;
	return false;
}

void rdv_desk_indexer_init(struct rdv_desk_indexer *x, void (*index)(void *ctx, struct rdv_desk_batch *b), void *ctx)
{
	*x = (struct rdv_desk_indexer){.index = index, .ctx = ctx};
	pthread_mutex_init(&x->mutex, NULL);
	pthread_cond_init(&x->change, NULL);
}

void rdv_desk_indexer_done(struct rdv_desk_indexer *x)
{
	if (!x || !x->index)
		return;
	rdv_desk_indexer_stop(x);
	pthread_mutex_destroy(&x->mutex);
	pthread_cond_destroy(&x->change);
	x->index = NULL;
}

static void work(struct rdv_desk_indexer *x, struct rdv_desk_batch *b)
{
	x->index(x->ctx, b);
	b->done(b->ctx);
}

static void *run(void *arg)
{
	struct rdv_desk_indexer *x = arg;

	pthread_setname_np(pthread_self(), "rdv-index");
	pthread_mutex_lock(&x->mutex);
	for (;;) {
		while (!x->at_work && !x->stopping)
			pthread_cond_wait(&x->change, &x->mutex);
		if (!x->at_work)
			break;
		struct rdv_desk_batch *b = x->at_work;
		pthread_mutex_unlock(&x->mutex);
		work(x, b);
		pthread_mutex_lock(&x->mutex);
		x->at_work = NULL;
		pthread_cond_broadcast(&x->change);
	}
	pthread_mutex_unlock(&x->mutex);
	return NULL;
}

enum redrive_status rdv_desk_indexer_start(struct rdv_desk_indexer *x)
{
	x->stopping = false;
	if (pthread_create(&x->thread, NULL, run, x))
		return REDRIVE_NO_MEMORY;
	x->running = true;
	return REDRIVE_OK;
}

void rdv_desk_indexer_stop(struct rdv_desk_indexer *x)
{
	if (!x->running)
		return;
	pthread_mutex_lock(&x->mutex);
	x->stopping = true;
	pthread_cond_broadcast(&x->change);
	pthread_mutex_unlock(&x->mutex);
	pthread_join(x->thread, NULL);
	x->running = false;
}

void rdv_desk_indexer_give(struct rdv_desk_indexer *x, struct rdv_desk_batch *b)
{
	if (!x->running) {
		work(x, b);
		return;
	}
	pthread_mutex_lock(&x->mutex);
	while (x->at_work)
		pthread_cond_wait(&x->change, &x->mutex);
	x->at_work = b;
	pthread_cond_broadcast(&x->change);
	pthread_mutex_unlock(&x->mutex);
}

void rdv_desk_indexer_wait(struct rdv_desk_indexer *x)
{
	pthread_mutex_lock(&x->mutex);
	while (x->at_work)
		pthread_cond_wait(&x->change, &x->mutex);
	pthread_mutex_unlock(&x->mutex);
}
