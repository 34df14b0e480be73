/* callback_threads.h - a callback handler as its threads see it. Private to callback*.c. */
#ifndef RDV_HANDLERS_CALLBACK_THREADS_H
#define RDV_HANDLERS_CALLBACK_THREADS_H
#include <assert.h>
#include "callback_later.h"
#include "callback_work.h"

struct rdv_callback {
	struct rdv_handler base;
	struct rdv_callback_options options;
	pthread_mutex_t mutex; /* guards all below but the workers' own parts */
	pthread_cond_t work, watch;
	struct rdv_call *queue, **queue_end; /* owns */
	size_t queued;
	uint32_t idle;
	bool cut, stopping;
	_Atomic bool ticking;
	struct rdv_later later;
	pthread_t watcher;
	uint32_t started;
	struct rdv_work workers[]; /* options.threads */
};

static inline void rdv_callback_lock(struct rdv_callback *h)
{
	int failed = pthread_mutex_lock(&h->mutex);

	assert(!failed);
	(void)failed;
}

static inline void rdv_callback_unlock(struct rdv_callback *h)
{
	int failed = pthread_mutex_unlock(&h->mutex);

	assert(!failed);
	(void)failed;
}

static inline void rdv_callback_deliver(struct rdv_callback *h, struct rdv_call *list)
{
	if (list)
		h->base.sink.complete(h->base.sink.ctx, list);
}

/* A call of some worker's span, or NULL: for an idle worker, and for cut. */
struct rdv_call *rdv_callback_steal(struct rdv_callback *h);
void *rdv_callback_work(void *work);     /* a worker's thread; its struct rdv_work */
void *rdv_callback_watch(void *handler); /* the watcher's thread */
#endif
