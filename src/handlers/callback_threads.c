/* callback_threads.c - the workers and the watcher of a callback handler.
 *
 * A worker takes a share of the queue into its span, runs the function on one call after the other, and hands
 * the finished ones over at the end of the span, or when a list is older than HAND_OVER_US. Without work of its
 * own it claims from the spans of the others, then sleeps; a worker that leaves work behind wakes the next. The
 * watcher hands over what lies finished behind a slow function: it ticks while some worker is inside a function
 * with a finished call behind it, and sleeps otherwise. It also times out the calls whose verdict is to come
 * later. What always holds: spans grow only under the mutex, so whoever looks there at the queue and all spans
 * misses nothing; `ticking` is cleared before a last look. Short of memory for `later` a call ends with
 * RDV_TRANSPORT_OTHER. */
#include "callback_threads.h"
#include <stdatomic.h>

#define HAND_OVER_US 100
#define TICK_US 1000  /* of the watcher while finished calls may wait */
#define IDLE_TICKS 10 /* without any, then it sleeps */

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

struct rdv_call *rdv_callback_steal(struct rdv_callback *h)
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

	rdv_callback_lock(h);
	while (!call && !h->stopping) {
		call = refill(h, w) ? rdv_work_claim(w) : rdv_callback_steal(h);
		if (call || h->queued)
			continue;
		h->idle++;
		pthread_cond_wait(&h->work, &h->mutex);
		h->idle--;
	}
	rdv_callback_unlock(h);
	return call;
}

/* The watcher is to look after finished calls while this worker is inside a function. */
static void start_ticking(struct rdv_callback *h)
{
	if (atomic_load(&h->ticking))
		return;
	rdv_callback_lock(h);
	atomic_store(&h->ticking, true);
	pthread_cond_signal(&h->watch);
	rdv_callback_unlock(h);
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
		rdv_callback_lock(h);
		if (answered || atomic_exchange(&w->running, 0) != id)
			take_early(w, call);
		else
			call = park(h, call, start_us);
		rdv_callback_unlock(h);
		if (!call)
			return NULL;
	}
	call->answer.took_ms = (*now_us - start_us) / 1000;
	return call;
}

void *rdv_callback_work(void *arg)
{
	struct rdv_work *w = arg;
	struct rdv_callback *h = w->handler;
	int64_t now_us = rdv_mono_now_us(), first_us = 0;

	pthread_setname_np(pthread_self(), "rdv-callback");
	for (;;) {
		struct rdv_call *call = rdv_work_claim(w);

		if (!call) {
			rdv_callback_deliver(h, rdv_work_collect(w));
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
			rdv_callback_deliver(h, rdv_work_collect(w));
	}
}

/* ---- the watcher ---- */

static bool hand_over(struct rdv_callback *h)
{
	bool any = false;

	for (uint32_t i = 0; i < h->options.threads; i++) {
		struct rdv_call *list = rdv_work_collect(&h->workers[i]);

		any = any || list;
		rdv_callback_deliver(h, list);
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

void *rdv_callback_watch(void *arg)
{
	struct rdv_callback *h = arg;
	uint32_t quiet = 0;

	rdv_callback_lock(h);
	while (!h->stopping) {
		int64_t now_us = rdv_mono_now_us();
		struct rdv_call *list;

		sleep_until(h, next_look(h, &quiet, now_us));
		now_us = rdv_mono_now_us();
		list = rdv_later_expire(&h->later, now_us);
		rdv_callback_unlock(h);
		set_timeouts(list, now_us);
		rdv_callback_deliver(h, list);
		quiet = hand_over(h) ? 0 : quiet + 1;
		rdv_callback_lock(h);
	}
	rdv_callback_unlock(h);
	return NULL;
}
