/* lease.c - pull: calls wait here until somebody leases them, answers or lets the lease expire.
 *
 *	submit -> waiting (FIFO) -> leased (slot, deadline) -> answered | expired | cut -> sink
 *
 * A token (lease_token.h) names the slot, a serial number that is never used again, and the message, and proves that
 * we gave it out; so one that was never given out is told from one whose lease is over, and the message of that one is
 * found, without remembering any. A lease whose time is over is still its holder's until rdv_lease_expire has run. What
 * always holds: a call is waiting or in exactly one slot; the slots' list is sorted by deadline (insertion walks from
 * its end, where a new lease nearly always belongs); a slot that is being shown to its taker does not end before that
 * is done: a verdict that comes so early is kept in the call (serial 0, the token is over). Fails only for memory: then
 *a call stays waiting. Any thread; one mutex, and the sink and the taker are called without it. */
#include "../base/chunks.h"
#include "handler.h"
#include "lease_token.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct slot {
	uint32_t free_link; /* the chunks' */
	uint32_t next, previous;
	uint64_t serial;               /* 0 = free, or answered while it is shown */
	bool shown;                    /* to its taker, just now: without the mutex */
	int64_t start_ms, deadline_ms; /* monotonic */
	struct rdv_call *call;         /* owns */
};

struct notice {
	struct notice *next;
	void (*ready)(void *ctx);
	void *ctx;
};

struct lease {
	struct rdv_handler base;
	struct rdv_lease_options options;
	uint8_t secret[16];
	pthread_mutex_t mutex; /* guards all below */
	pthread_cond_t arrived;
	struct rdv_call *waiting, **waiting_end; /* owns */
	struct notice *notices, **notices_end;   /* owns */
	struct rdv_chunks slots;
	uint32_t first, last;
	uint64_t serial;
	uint32_t takers;
	bool cut;
};

static struct slot *at(const struct lease *h, uint32_t ref)
{
	return rdv_chunks_at(&h->slots, ref);
}

static void deliver(struct lease *h, struct rdv_call *list)
{
	if (list)
		h->base.sink.complete(h->base.sink.ctx, list);
}

/* ---- slots ---- */

static void link_slot(struct lease *h, uint32_t ref)
{
	struct slot *s = at(h, ref);
	uint32_t before = h->last;

	while (before && at(h, before)->deadline_ms > s->deadline_ms)
		before = at(h, before)->previous;
	s->previous = before;
	s->next = before ? at(h, before)->next : h->first;
	*(before ? &at(h, before)->next : &h->first) = ref;
	*(s->next ? &at(h, s->next)->previous : &h->last) = ref;
}

static void unlink_slot(struct lease *h, uint32_t ref)
{
	struct slot *s = at(h, ref);

	*(s->previous ? &at(h, s->previous)->next : &h->first) = s->next;
	*(s->next ? &at(h, s->next)->previous : &h->last) = s->previous;
}

static struct rdv_call *free_slot(struct lease *h, uint32_t ref, int64_t now_ms)
{
	struct slot *s = at(h, ref);
	struct rdv_call *call = s->call;

	unlink_slot(h, ref);
	s->serial = 0;
	call->next = NULL;
	call->answer.took_ms = now_ms - s->start_ms;
	rdv_chunks_free(&h->slots, ref);
	return call;
}

/* Under the mutex. NOT_FOUND: not one of ours; CONFLICT: its lease is over. */
static enum redrive_status find(const struct lease *h, const char *text, uint32_t *ref)
{
	struct rdv_lease_token token;

	if (!rdv_lease_token_read(h->secret, text, &token))
		return REDRIVE_NOT_FOUND;
	*ref = token.slot;
	if (!*ref || *ref > h->slots.used || at(h, *ref)->serial != token.serial)
		return REDRIVE_CONFLICT;
	return REDRIVE_OK;
}

/* ---- leasing ---- */

/* Under the mutex. False: nothing waits, or no memory; then the call stays first in line. */
static bool lease_one(struct lease *h, int64_t lease_for_ms, struct rdv_leased *out)
{
	struct rdv_lease_token token = {.number = h->options.number};
	uint32_t ref = h->waiting ? rdv_chunks_take(&h->slots) : 0;
	struct rdv_now now = rdv_now();
	struct slot *s;

	if (!ref)
		return false;
	s = at(h, ref);
	s->call = h->waiting;
	h->waiting = s->call->next;
	if (!h->waiting)
		h->waiting_end = &h->waiting;
	s->call->next = NULL;
	s->call->leased = s->shown = true;
	s->serial = ++h->serial;
	s->start_ms = now.mono.ms;
	s->deadline_ms = rdv_ms_add(now.mono.ms, lease_for_ms);
	link_slot(h, ref);
	out->call = s->call;
	out->expires_at.ms = rdv_ms_add(now.wall.ms, lease_for_ms);
	token.slot = ref;
	token.serial = s->serial;
	token.lane = s->call->lane;
	token.offset = s->call->offset;
	token.replay = s->call->replay != NULL;
	rdv_lease_token_write(h->secret, &token, out->token);
	out->slot = ref;
	return true;
}

/* Under the mutex: it is its taker's from now on. NULL, or the call, if it was answered or cut meanwhile. */
static struct rdv_call *end_showing(struct lease *h, uint32_t ref)
{
	struct slot *s = at(h, ref);
	bool answered = !s->serial;
	struct rdv_call *call;

	s->shown = false;
	if (!answered && !h->cut)
		return NULL;
	call = free_slot(h, ref, rdv_mono_now().ms);
	if (!answered)
		rdv_calls_shut_down(call);
	return call;
}

/* With the mutex, which it leaves meanwhile. */
static void show(struct lease *h, const struct rdv_leased *leased,
		 void (*each)(void *ctx, const struct rdv_leased *leased), void *ctx)
{
	struct rdv_call *ended;

	pthread_mutex_unlock(&h->mutex);
	each(ctx, leased);
	pthread_mutex_lock(&h->mutex);
	ended = end_showing(h, leased->slot);
	if (!ended)
		return;
	pthread_mutex_unlock(&h->mutex);
	deliver(h, ended);
	pthread_mutex_lock(&h->mutex);
}

/* Under the mutex: until something waits, the time is over, or the handler is cut. */
static void wait_for_calls(struct lease *h, int64_t wait_ms)
{
	struct timespec until;
	int failed = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	if (wait_ms > 24 * 3600 * 1000)
		wait_ms = 24 * 3600 * 1000;
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += wait_ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	h->takers++;
	while (!h->waiting && !h->cut && failed != ETIMEDOUT)
		failed = pthread_cond_timedwait(&h->arrived, &h->mutex, &until);
	h->takers--;
}

static void give_back(struct lease *h, struct rdv_call *list)
{
	rdv_calls_shut_down(list);
	deliver(h, list);
}

enum redrive_status rdv_lease_take(struct rdv_handler *base, uint32_t max, int64_t wait_ms, int64_t lease_for_ms,
				   void (*each)(void *ctx, const struct rdv_leased *leased), void *ctx)
{
	struct lease *h = (struct lease *)base;
	enum redrive_status status = REDRIVE_OK;
	struct rdv_leased leased;
	uint32_t taken = 0;

	pthread_mutex_lock(&h->mutex);
	if (lease_for_ms <= 0)
		lease_for_ms = h->options.lease_for_ms;
	if (!h->waiting && !h->cut && wait_ms > 0)
		wait_for_calls(h, wait_ms);
	for (; taken < max && !h->cut && lease_one(h, lease_for_ms, &leased); taken++)
		show(h, &leased, each, ctx);
	if (h->cut)
		status = REDRIVE_CLOSED;
	else if (!taken && max && h->waiting)
		status = REDRIVE_NO_MEMORY;
	pthread_mutex_unlock(&h->mutex);
	return status;
}

/* A verdict on a call that is still being shown waits in it. */
static void answer_shown(struct slot *s, const struct rdv_answer *answer, void *asker)
{
	rdv_call_set_answer(s->call, answer);
	s->call->asker = asker;
	s->call->asked = asker != NULL;
	s->serial = 0;
}

enum redrive_status rdv_lease_answer(struct rdv_handler *base, const char *token, const struct rdv_answer *answer,
				     void *asker)
{
	struct lease *h = (struct lease *)base;
	struct rdv_call *call = NULL;
	enum redrive_status status;
	int64_t took_ms;
	uint32_t ref;

	pthread_mutex_lock(&h->mutex);
	status = find(h, token, &ref);
	if (!status && at(h, ref)->shown)
		answer_shown(at(h, ref), answer, asker);
	else if (!status)
		call = free_slot(h, ref, rdv_mono_now().ms);
	pthread_mutex_unlock(&h->mutex);
	if (!call)
		return status;
	took_ms = call->answer.took_ms;
	rdv_call_set_answer(call, answer);
	call->answer.took_ms = took_ms;
	call->asker = asker;
	call->asked = asker != NULL;
	deliver(h, call);
	return REDRIVE_OK;
}

enum redrive_status rdv_lease_extend(struct rdv_handler *base, const char *token, int64_t lease_for_ms,
				     struct rdv_wall *expires_at)
{
	struct lease *h = (struct lease *)base;
	struct rdv_now now = rdv_now();
	enum redrive_status status;
	uint32_t ref;

	pthread_mutex_lock(&h->mutex);
	if (lease_for_ms <= 0)
		lease_for_ms = h->options.lease_for_ms;
	status = find(h, token, &ref);
	if (!status) {
		unlink_slot(h, ref);
		at(h, ref)->deadline_ms = rdv_ms_add(now.mono.ms, lease_for_ms);
		link_slot(h, ref);
		expires_at->ms = rdv_ms_add(now.wall.ms, lease_for_ms);
	}
	pthread_mutex_unlock(&h->mutex);
	return status;
}

int64_t rdv_lease_expire(struct rdv_handler *base, struct rdv_now now)
{
	struct lease *h = (struct lease *)base;
	struct rdv_call *list = NULL, **end = &list;
	int64_t next_ms = -1;

	pthread_mutex_lock(&h->mutex);
	for (uint32_t ref = h->first, next; ref && at(h, ref)->deadline_ms <= now.mono.ms; ref = next) {
		next = at(h, ref)->next;
		if (at(h, ref)->shown)
			continue;
		*end = free_slot(h, ref, now.mono.ms);
		rdv_call_set_transport(*end, RDV_TRANSPORT_TIMEOUT, "the lease expired without a verdict");
		end = &(*end)->next;
	}
	if (h->first)
		next_ms = at(h, h->first)->deadline_ms - now.mono.ms;
	if (h->first && next_ms < 0)
		next_ms = 0; /* it is being shown */
	pthread_mutex_unlock(&h->mutex);
	deliver(h, list);
	return next_ms;
}

/* ---- notices ---- */

/* Under the mutex, so that who forgets a notice knows that it is not being called. */
static void call_all(struct notice *list)
{
	while (list) {
		struct notice *next = list->next;

		list->ready(list->ctx);
		free(list);
		list = next;
	}
}

/* Under the mutex: takes out the first `count` notices. */
static struct notice *pop_notices(struct lease *h, size_t count)
{
	struct notice *list = h->notices, **end = &h->notices;

	for (; *end && count; count--)
		end = &(*end)->next;
	if (end == &h->notices)
		return NULL;
	h->notices = *end;
	if (!h->notices)
		h->notices_end = &h->notices;
	*end = NULL;
	return list;
}

enum redrive_status rdv_lease_notify(struct rdv_handler *base, void (*ready)(void *ctx), void *ctx)
{
	struct lease *h = (struct lease *)base;
	struct notice *n = malloc(sizeof *n);
	bool now;

	if (!n)
		return REDRIVE_NO_MEMORY;
	*n = (struct notice){NULL, ready, ctx};
	pthread_mutex_lock(&h->mutex);
	now = h->waiting || h->cut;
	if (!now) {
		*h->notices_end = n;
		h->notices_end = &n->next;
	}
	if (now)
		call_all(n);
	pthread_mutex_unlock(&h->mutex);
	return REDRIVE_OK;
}

bool rdv_lease_forget(struct rdv_handler *base, void *ctx)
{
	struct lease *h = (struct lease *)base;
	struct notice **n, *found;

	pthread_mutex_lock(&h->mutex);
	for (n = &h->notices; *n && (*n)->ctx != ctx; n = &(*n)->next)
		;
	found = *n;
	if (found) {
		*n = found->next;
		if (!found->next)
			h->notices_end = n;
	}
	pthread_mutex_unlock(&h->mutex);
	free(found);
	return found != NULL;
}

/* ---- the handler ---- */

static void submit(struct rdv_handler *base, struct rdv_call *list)
{
	struct lease *h = (struct lease *)base;
	struct rdv_call *last = list;
	size_t count = 1;
	bool cut;

	if (!list)
		return;
	for (; last->next; last = last->next)
		count++;
	pthread_mutex_lock(&h->mutex);
	cut = h->cut;
	if (!cut) {
		*h->waiting_end = list;
		h->waiting_end = &last->next;
		call_all(pop_notices(h, count));
		for (size_t i = 0; i < count && i < h->takers; i++)
			pthread_cond_signal(&h->arrived);
	}
	pthread_mutex_unlock(&h->mutex);
	if (cut)
		give_back(h, list);
}

void rdv_lease_set_time(struct rdv_handler *base, int64_t lease_for_ms)
{
	struct lease *h = (struct lease *)base;

	pthread_mutex_lock(&h->mutex);
	h->options.lease_for_ms = lease_for_ms;
	pthread_mutex_unlock(&h->mutex);
}

/* ---- what is only offered ---- */

enum redrive_status rdv_lease_position(struct rdv_handler *base, const char *token, struct rdv_lease_position *out)
{
	struct rdv_lease_token t;

	if (!rdv_lease_token_read(((struct lease *)base)->secret, token, &t))
		return REDRIVE_NOT_FOUND;
	*out = (struct rdv_lease_position){.lane = t.lane, .offset = t.offset, .replay = t.replay};
	return REDRIVE_OK;
}

bool rdv_lease_is_offered(struct rdv_handler *base, const struct rdv_call *call)
{
	struct lease *h = (struct lease *)base;
	bool leased;

	pthread_mutex_lock(&h->mutex);
	leased = call->leased;
	pthread_mutex_unlock(&h->mutex);
	return !leased;
}

bool rdv_lease_withdraw(struct rdv_handler *base, struct rdv_call *call)
{
	struct lease *h = (struct lease *)base;
	struct rdv_call **c;
	bool found;

	pthread_mutex_lock(&h->mutex);
	for (c = &h->waiting; *c && *c != call; c = &(*c)->next)
		;
	found = *c != NULL;
	if (found) {
		*c = call->next;
		if (!*c)
			h->waiting_end = c;
		call->next = NULL;
	}
	pthread_mutex_unlock(&h->mutex);
	return found;
}

struct rdv_call *rdv_lease_recall(struct rdv_handler *base)
{
	struct lease *h = (struct lease *)base;
	struct rdv_call *list;

	pthread_mutex_lock(&h->mutex);
	list = h->waiting;
	h->waiting = NULL;
	h->waiting_end = &h->waiting;
	pthread_mutex_unlock(&h->mutex);
	return list;
}

static void cut(struct rdv_handler *base)
{
	struct lease *h = (struct lease *)base;
	int64_t now_ms = rdv_mono_now().ms;
	struct rdv_call *list;

	pthread_mutex_lock(&h->mutex);
	h->cut = true;
	list = h->waiting;
	for (uint32_t ref = h->first, next; ref; ref = next) {
		next = at(h, ref)->next;
		if (at(h, ref)->shown)
			continue; /* its taker gives it back */
		*h->waiting_end = free_slot(h, ref, now_ms);
		h->waiting_end = &(*h->waiting_end)->next;
		list = h->waiting;
	}
	h->waiting = NULL;
	h->waiting_end = &h->waiting;
	call_all(pop_notices(h, SIZE_MAX));
	pthread_cond_broadcast(&h->arrived);
	pthread_mutex_unlock(&h->mutex);
	give_back(h, list);
}

static void lease_free(struct rdv_handler *base)
{
	struct lease *h = (struct lease *)base;

	assert(!h->waiting && !h->first && !h->takers);
	call_all(pop_notices(h, SIZE_MAX));
	rdv_chunks_done(&h->slots);
	pthread_cond_destroy(&h->arrived);
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

static const struct rdv_handler_ops lease_ops = {"lease", submit, cut, lease_free};

enum redrive_status rdv_lease_new(const struct rdv_lease_options *options, struct rdv_sink sink,
				  struct rdv_handler **out, struct rdv_error *error)
{
	struct lease *h;
	pthread_condattr_t attr;

	if (options->lease_for_ms < 1)
		return rdv_error_set(error, REDRIVE_INVALID, "lease_for must be at least 1ms");
	h = calloc(1, sizeof *h);
	if (!h)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for a lease handler");
	h->base = (struct rdv_handler){&lease_ops, sink};
	h->options = *options;
	h->waiting_end = &h->waiting;
	h->notices_end = &h->notices;
	rdv_secret(h->secret, sizeof h->secret);
	rdv_chunks_init(&h->slots, sizeof(struct slot));
	pthread_mutex_init(&h->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->arrived, &attr);
	pthread_condattr_destroy(&attr);
	*out = &h->base;
	return REDRIVE_OK;
}
