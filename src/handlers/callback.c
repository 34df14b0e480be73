/* callback.c - the C API's function on the handler's own threads.
 *
 * Submitted calls wait in one queue. A worker takes a share of it into its span (callback_work.h), runs the function on
 *one call after the other and hands the finished ones over in lists: at the end of its span, or when a list is older
 *than HAND_OVER_US. Idle workers claim from the spans of busy ones; a worker that leaves work behind wakes the next.
 *The watcher thread hands over what lies finished behind a slow call, and times out the calls whose verdict is to come
 *later (callback_later.h).
 *
 *	submit -> queue -> span -> running -> done -> sink
 *	                              | returns false
 *	                            later -> answer or timeout -> sink
 *
 * What always holds: a call is in exactly one of these places. `running` is cleared either by the worker, who then owns
 *the verdict, or by rdv_callback_answer, whose verdict then counts. A running function is never timed out or cut: the
 *message's bytes are in its hands, and as long as it runs the handler is alive. Short of memory for `later` a call ends
 *with RDV_TRANSPORT_OTHER. Any thread may call everything but free. */
#include "callback_later.h"
#include "callback_work.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define HAND_OVER_US 100
#define TICK_US 1000  /* of the watcher while finished calls may wait */
#define IDLE_TICKS 10 /* without any, then it sleeps */
#define THREADS_MAX 64

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

static void lock(struct rdv_callback *h)
{
	int failed = pthread_mutex_lock(&h->mutex);

	assert(!failed);
	(void)failed;
}

static void unlock(struct rdv_callback *h)
{
	int failed = pthread_mutex_unlock(&h->mutex);

	assert(!failed);
	(void)failed;
}

static void deliver(struct rdv_callback *h, struct rdv_call *list)
{
	if (list)
		h->base.sink.complete(h->base.sink.ctx, list);
}

/* ---- the worker ---- */

/* Under the mutex: a share of the queue, so that the other threads get theirs. */
static bool refill(struct rdv_callback *h, struct rdv_work *w)
{
	size_t share = h->queued / h->options.threads;
	uint32_t count = share > RDV_WORK_SPAN ? RDV_WORK_SPAN : (uint32_t)share;

	if (!h->queued)
		return false;
	if (!count)
		count = 1;
	rdv_work_refill(w, &h->queue, count);
	h->queued -= count;
	if (!h->queue)
		h->queue_end = &h->queue;
	if (h->idle && (h->queued || count > 1))
		pthread_cond_signal(&h->work);
	return true;
}

static struct rdv_call *steal(struct rdv_callback *h)
{
	for (uint32_t i = 0; i < h->options.threads; i++) {
		struct rdv_call *call = rdv_work_claim(&h->workers[i]);

		if (call)
			return call;
	}
	return NULL;
}

/* The next call, or NULL when the handler stops. Spans grow only under the mutex, so a look at all of them there cannot
 * miss one. */
static struct rdv_call *wait_for_call(struct rdv_callback *h, struct rdv_work *w)
{
	struct rdv_call *call = NULL;

	lock(h);
	while (!call && !h->stopping) {
		call = refill(h, w) ? rdv_work_claim(w) : steal(h);
		if (call || h->queued)
			continue;
		h->idle++;
		pthread_cond_wait(&h->work, &h->mutex);
		h->idle--;
	}
	unlock(h);
	return call;
}

/* The watcher is to look after finished calls while this worker is inside a function. */
static void start_ticking(struct rdv_callback *h)
{
	if (atomic_load(&h->ticking))
		return;
	lock(h);
	atomic_store(&h->ticking, true);
	pthread_cond_signal(&h->watch);
	unlock(h);
}

/* Under the mutex: the call has no verdict yet. Returns it if it must end now. */
static struct rdv_call *park(struct rdv_callback *h, struct rdv_call *call, int64_t start_us)
{
	int64_t timeout_us = rdv_ms_mul(h->options.timeout_ms > 0 ? h->options.timeout_ms : RDV_NEVER, 1000);
	bool was_first = rdv_later_next_us(&h->later) > rdv_ms_add(start_us, timeout_us);

	if (h->cut) {
		rdv_call_set_transport(call, RDV_TRANSPORT_SHUTDOWN, "cut off by our shutdown");
		return call;
	}
	call->answer.took_ms = start_us; /* until the verdict comes; see ended */
	if (rdv_later_add(&h->later, call, rdv_ms_add(start_us, timeout_us))) {
		rdv_call_set_transport(call, RDV_TRANSPORT_OTHER, "no memory to wait for a later verdict");
		return call;
	}
	if (was_first)
		pthread_cond_signal(&h->watch);
	return NULL;
}

static void take_early(struct rdv_work *w, struct rdv_call *call)
{
	rdv_call_set_answer(call, &w->early.answer);
	rdv_call_reset(&w->early);
}

/* Runs the function on one call. Returns the call when it has ended, NULL when its verdict comes later. */
static struct rdv_call *run(struct rdv_callback *h, struct rdv_work *w, struct rdv_call *call, int64_t *now_us)
{
	int64_t start_us = *now_us;
	uint64_t id = call->id;
	bool answered;

	atomic_store(&w->running, id);
	answered = h->options.call(h->options.ctx, call);
	*now_us = rdv_mono_now_us();
	if (!answered || atomic_exchange(&w->running, 0) != id) {
		lock(h);
		if (answered || atomic_exchange(&w->running, 0) != id)
			take_early(w, call);
		else
			call = park(h, call, start_us);
		unlock(h);
		if (!call)
			return NULL;
	}
	call->answer.took_ms = (*now_us - start_us) / 1000;
	return call;
}

static void *work(void *arg)
{
	struct rdv_work *w = arg;
	struct rdv_callback *h = w->handler;
	int64_t now_us = rdv_mono_now_us(), first_us = 0;

	for (;;) {
		struct rdv_call *call = rdv_work_claim(w);

		if (!call) {
			deliver(h, rdv_work_collect(w));
			call = wait_for_call(h, w);
			if (!call)
				return NULL;
			now_us = rdv_mono_now_us();
		} else if (atomic_load_explicit(&w->done, memory_order_relaxed)) {
			start_ticking(h);
		}
		call = run(h, w, call, &now_us);
		if (call && rdv_work_finish(w, call))
			first_us = now_us;
		if (now_us - first_us > HAND_OVER_US)
			deliver(h, rdv_work_collect(w));
	}
}

/* ---- the watcher ---- */

static bool hand_over(struct rdv_callback *h)
{
	bool any = false;

	for (uint32_t i = 0; i < h->options.threads; i++) {
		struct rdv_call *list = rdv_work_collect(&h->workers[i]);

		any = any || list;
		deliver(h, list);
	}
	return any;
}

static void set_timeouts(struct rdv_call *list, int64_t now_us)
{
	for (struct rdv_call *c = list; c; c = c->next) {
		c->answer.took_ms = (now_us - c->answer.took_ms) / 1000;
		rdv_call_set_transport(c, RDV_TRANSPORT_TIMEOUT, "no verdict within the timeout");
	}
}

static void sleep_until(struct rdv_callback *h, int64_t until_us)
{
	struct timespec t = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};

	if (until_us == RDV_NEVER)
		pthread_cond_wait(&h->watch, &h->mutex);
	else
		pthread_cond_timedwait(&h->watch, &h->mutex, &t);
}

/* Under the mutex: how long nothing can happen. */
static int64_t next_look(struct rdv_callback *h, uint32_t *quiet, int64_t now_us)
{
	int64_t next = rdv_later_next_us(&h->later);

	if (!atomic_load(&h->ticking)) {
		*quiet = 0;
		return next;
	}
	if (*quiet > IDLE_TICKS)
		atomic_store(&h->ticking,
			     false); /* then one more look: a worker that finished before this store sees true */
	return now_us + TICK_US < next ? now_us + TICK_US : next;
}

static void *watch(void *arg)
{
	struct rdv_callback *h = arg;
	uint32_t quiet = 0;

	lock(h);
	while (!h->stopping) {
		int64_t now_us = rdv_mono_now_us();
		struct rdv_call *list;

		sleep_until(h, next_look(h, &quiet, now_us));
		now_us = rdv_mono_now_us();
		list = rdv_later_expire(&h->later, now_us);
		unlock(h);
		set_timeouts(list, now_us);
		deliver(h, list);
		quiet = hand_over(h) ? 0 : quiet + 1;
		lock(h);
	}
	unlock(h);
	return NULL;
}

/* ---- the handler ---- */

static void give_back(struct rdv_callback *h, struct rdv_call *list)
{
	for (struct rdv_call *c = list; c; c = c->next)
		rdv_call_set_transport(c, RDV_TRANSPORT_SHUTDOWN, "cut off by our shutdown");
	deliver(h, list);
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
	lock(h);
	cut = h->cut;
	if (!cut) {
		*h->queue_end = list;
		h->queue_end = &last->next;
		h->queued += count;
		if (h->idle)
			pthread_cond_signal(&h->work);
	}
	unlock(h);
	if (cut)
		give_back(h, list);
}

static void cut(struct rdv_handler *base)
{
	struct rdv_callback *h = (struct rdv_callback *)base;
	struct rdv_call *list, *later, *call, **end;
	int64_t now_us = rdv_mono_now_us();

	lock(h);
	h->cut = true;
	list = h->queue;
	h->queue = NULL;
	end = list ? h->queue_end : &list;
	h->queue_end = &h->queue;
	h->queued = 0;
	later = rdv_later_take_all(&h->later);
	while ((call = steal(h))) {
		*end = call;
		end = &call->next;
	}
	*end = NULL;
	unlock(h);
	for (call = later; call; call = call->next)
		call->answer.took_ms = (now_us - call->answer.took_ms) / 1000;
	give_back(h, list);
	give_back(h, later);
}

static void stop(struct rdv_callback *h)
{
	lock(h);
	h->stopping = true;
	pthread_cond_broadcast(&h->work);
	pthread_cond_broadcast(&h->watch);
	unlock(h);
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

		failed = i < h->options.threads ? pthread_create(&h->workers[i].thread, NULL, work, &h->workers[i])
						: pthread_create(&h->watcher, NULL, watch, h);
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
	lock(h);
	call = rdv_later_take(&h->later, call_id);
	if (!call && !answer_running(h, call_id, answer))
		status = rdv_later_was_expired(&h->later, call_id) ? REDRIVE_TIMEOUT : REDRIVE_NOT_FOUND;
	unlock(h);
	if (!call)
		return status;
	start_us = call->answer.took_ms;
	rdv_call_set_answer(call, answer);
	call->answer.took_ms = (rdv_mono_now_us() - start_us) / 1000;
	call->next = NULL;
	deliver(h, call);
	return REDRIVE_OK;
}
