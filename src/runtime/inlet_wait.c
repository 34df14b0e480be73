/* inlet_wait.c - what was asked for is durable: in the journal here, and at the brokers whose lanes it concerns.
 *
 * Who waits is told when every lane of a broker has had all records up to a ticket written; CLOSED, when a lane was
 * lost with some of them unwritten (ask whoever owns it now); TIMEOUT, when the broker takes too long: it is decided,
 * and written as soon as that can be. A batch goes at once when somebody waits for it. Core thread, but for
 * rdv_engine_await. */
#include "inlet.h"
#include <stdlib.h>

#define WAIT_MS 30000

struct rdv_await {
	struct rdv_await *next;
	uint64_t ticket;
	int64_t until_ms;
	rdv_publish_done done;
	void *ctx;
};

void rdv_inlets_await(struct rdv_engine *e, uint64_t ticket, rdv_publish_done done, void *ctx)
{
	struct rdv_await *w = calloc(1, sizeof *w);

	if (!w) {
		done(ctx, REDRIVE_NO_MEMORY);
		return;
	}
	*w = (struct rdv_await){e->awaiting, ticket, e->now.mono.ms + WAIT_MS, done, ctx};
	e->awaiting = w;
	for (struct rdv_route *r = e->routes; r; r = r->next)
		if (r->inlet)
			r->inlet->hurry = true;
}

static bool has_unwritten(const struct rdv_inlet *in)
{
	bool any = in->sent;

	for (const struct rdv_inlet_lane *l = in->lanes; l && !any; l = l->next)
		any = l->stage != RDV_INLET_FOLDING && l->stage != RDV_INLET_LOST && (l->dirty || l->reading);
	return any;
}

/* BUSY: not yet. */
static enum redrive_status state_of(struct rdv_engine *e, const struct rdv_await *w)
{
	bool all = e->durable >= w->ticket;

	if (e->failed)
		return REDRIVE_FAILED;
	for (const struct rdv_route *r = e->routes; r; r = r->next) {
		struct rdv_inlet *in = r->inlet;

		if (!in)
			continue;
		if (in->lost_ticket >= w->ticket)
			return REDRIVE_CLOSED;
		all = all && (in->durable_ticket >= w->ticket || !has_unwritten(in));
	}
	if (all)
		return REDRIVE_OK;
	return e->now.mono.ms >= w->until_ms ? REDRIVE_TIMEOUT : REDRIVE_BUSY;
}

void rdv_inlets_settle(struct rdv_engine *e)
{
	struct rdv_await **at = &e->awaiting;

	while (*at) {
		struct rdv_await *w = *at;
		enum redrive_status status = state_of(e, w);

		if (status == REDRIVE_BUSY) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->done(w->ctx, status);
		free(w);
	}
}

void rdv_inlets_end_waits(struct rdv_engine *e)
{
	while (e->awaiting) {
		struct rdv_await *w = e->awaiting;

		e->awaiting = w->next;
		w->done(w->ctx, REDRIVE_CLOSED);
		free(w);
	}
}

/* ---- who blocks ---- */

struct waiter {
	struct rdv_engine *engine;
	uint64_t ticket;
	bool done;
	enum redrive_status status;
};

static void wake(void *ctx, enum redrive_status status)
{
	struct waiter *w = ctx;

	pthread_mutex_lock(&w->engine->inbox);
	w->status = status;
	w->done = true;
	pthread_cond_broadcast(&w->engine->answered);
	pthread_mutex_unlock(&w->engine->inbox);
}

static void enlist(struct rdv_engine *e, void *ctx)
{
	struct waiter *w = ctx;

	rdv_inlets_await(e, w->ticket, wake, w);
}

enum redrive_status rdv_engine_await(struct rdv_engine *e, uint64_t ticket, bool broker)
{
	struct waiter w = {.engine = e, .ticket = ticket};
	enum redrive_status status;

	if (!broker)
		return rdv_log_wait(e->log, ticket, -1);
	status = rdv_engine_call(e, enlist, &w);
	if (status != REDRIVE_OK)
		return status;
	pthread_mutex_lock(&e->inbox);
	while (!w.done)
		pthread_cond_wait(&e->answered, &e->inbox);
	pthread_mutex_unlock(&e->inbox);
	return w.status;
}
