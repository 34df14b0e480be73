/* callback.c - the C API's function on the handler's own threads.
 *
 * Submitted calls wait in one queue; the threads (callback_threads.c) work it off; calls whose verdict comes
 * later wait in a table (callback_later.h).
 *
 *	submit -> queue -> span -> running -> done -> sink
 *	                              | returns false
 *	                            later -> answer or timeout -> sink
 *
 * What always holds: a call is in exactly one of these places. `running` is cleared either by the worker, who
 * then owns the verdict, or by rdv_callback_answer, whose verdict then counts. A running function is never
 * timed out or cut: the message's bytes are in its hands, and as long as it runs the handler is alive. Short of
 * memory for `later` a call ends with RDV_TRANSPORT_OTHER. Any thread may call everything but free. */
#include "callback_threads.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define THREADS_MAX 64

/* ---- the handler ---- */

static void give_back(struct rdv_callback *h, struct rdv_call *list)
{
	rdv_calls_shut_down(list);
	rdv_callback_deliver(h, list);
}

static void submit(struct rdv_handler *base, struct rdv_call *list)
{
	struct rdv_callback *h = (struct rdv_callback *)base;
	struct rdv_call *last = list;
	size_t count = 1;
	bool cut;

	if (!list)
		return;
	for (; last->next; last = last->next)
		count++;
	rdv_callback_lock(h);
	cut = h->cut;
	if (!cut) {
		*h->queue_end = list;
		h->queue_end = &last->next;
		h->queued += count;
		if (h->idle)
			pthread_cond_signal(&h->work);
	}
	rdv_callback_unlock(h);
	if (cut)
		give_back(h, list);
}

static void cut(struct rdv_handler *base)
{
	struct rdv_callback *h = (struct rdv_callback *)base;
	struct rdv_call *list, *later, *call, **end;
	int64_t now_us = rdv_mono_now_us();

	rdv_callback_lock(h);
	h->cut = true;
	list = h->queue;
	h->queue = NULL;
	end = list ? h->queue_end : &list;
	h->queue_end = &h->queue;
	h->queued = 0;
	later = rdv_later_take_all(&h->later);
	while ((call = rdv_callback_steal(h))) {
		*end = call;
		end = &call->next;
	}
	*end = NULL;
	rdv_callback_unlock(h);
	for (call = later; call; call = call->next)
		call->answer.took_ms = (now_us - call->answer.took_ms) / 1000;
	give_back(h, list);
	give_back(h, later);
}

static void stop(struct rdv_callback *h)
{
	rdv_callback_lock(h);
	h->stopping = true;
	pthread_cond_broadcast(&h->work);
	pthread_cond_broadcast(&h->watch);
	rdv_callback_unlock(h);
	for (uint32_t i = 0; i < h->started; i++)
		pthread_join(i < h->options.threads ? h->workers[i].thread : h->watcher, NULL);
}

static void callback_free(struct rdv_handler *base)
{
	struct rdv_callback *h = (struct rdv_callback *)base;

	stop(h);
	assert(!h->queued && !h->later.first);
	rdv_later_done(&h->later);
	pthread_cond_destroy(&h->watch);
	pthread_cond_destroy(&h->work);
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

static const struct rdv_handler_ops callback_ops = {"callback", submit, cut, callback_free};

static enum redrive_status start_threads(struct rdv_callback *h, struct rdv_error *error)
{
	sigset_t all, before;
	int failed = 0;

	sigfillset(&all); /* the process's signals are its main thread's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (; !failed && h->started <= h->options.threads; h->started += !failed) {
		uint32_t i = h->started;

		failed = i < h->options.threads
				 ? pthread_create(&h->workers[i].thread, NULL, rdv_callback_work, &h->workers[i])
				 : pthread_create(&h->watcher, NULL, rdv_callback_watch, h);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed ? rdv_error_errno(error, failed, "start the callback's threads") : REDRIVE_OK;
}

static void init_locks(struct rdv_callback *h)
{
	pthread_condattr_t attr;
	int failed = pthread_mutex_init(&h->mutex, NULL);

	failed = failed ? failed : pthread_condattr_init(&attr);
	failed = failed ? failed : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	failed = failed ? failed : pthread_cond_init(&h->work, &attr);
	failed = failed ? failed : pthread_cond_init(&h->watch, &attr);
	assert(!failed); /* none of them allocates here */
	pthread_condattr_destroy(&attr);
}

enum redrive_status rdv_callback_new(const struct rdv_callback_options *options, struct rdv_sink sink,
				     struct rdv_handler **out, struct rdv_error *error)
{
	struct rdv_callback *h;
	enum redrive_status status;
	size_t size;

	if (!options->call || options->threads < 1 || options->threads > THREADS_MAX)
		return rdv_error_set(error, REDRIVE_INVALID, "a callback needs a function and 1 to %d threads",
				     THREADS_MAX);
	size = sizeof *h + options->threads * sizeof h->workers[0];
	h = aligned_alloc(_Alignof(struct rdv_callback), size);
	if (!h)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for a callback handler");
	memset(h, 0, size);
	h->base = (struct rdv_handler){&callback_ops, sink};
	h->options = *options;
	h->queue_end = &h->queue;
	rdv_later_init(&h->later);
	init_locks(h);
	for (uint32_t i = 0; i < options->threads; i++) {
		h->workers[i].handler = h;
		rdv_call_init(&h->workers[i].early);
	}
	status = start_threads(h, error);
	if (status) {
		callback_free(&h->base);
		return status;
	}
	*out = &h->base;
	return REDRIVE_OK;
}

/* Under the mutex: the worker that is running this call gets the verdict. */
static bool answer_running(struct rdv_callback *h, uint64_t id, const struct rdv_answer *answer)
{
	for (uint32_t i = 0; i < h->options.threads; i++) {
		struct rdv_work *w = &h->workers[i];
		uint64_t expected = id;

		if (!atomic_compare_exchange_strong(&w->running, &expected, 0))
			continue;
		rdv_call_set_answer(&w->early, answer);
		return true;
	}
	return false;
}

enum redrive_status rdv_callback_answer(struct rdv_handler *base, uint64_t call_id, const struct rdv_answer *answer)
{
	struct rdv_callback *h = (struct rdv_callback *)base;
	enum redrive_status status = REDRIVE_OK;
	struct rdv_call *call;
	int64_t start_us;

	if (!call_id)
		return REDRIVE_NOT_FOUND;
	rdv_callback_lock(h);
	call = rdv_later_take(&h->later, call_id);
	if (!call && !answer_running(h, call_id, answer))
		status = rdv_later_was_expired(&h->later, call_id) ? REDRIVE_TIMEOUT : REDRIVE_NOT_FOUND;
	rdv_callback_unlock(h);
	if (!call)
		return status;
	start_us = call->answer.took_ms;
	rdv_call_set_answer(call, answer);
	call->answer.took_ms = (rdv_mono_now_us() - start_us) / 1000;
	call->next = NULL;
	rdv_callback_deliver(h, call);
	return REDRIVE_OK;
}
