/* revoke.c - ending a live message, on one route or on every route that has it.
 *
 * Each route is asked by itself: what can still be revoked there is, whatever became of it elsewhere, and the answer
 * says for every route how it stands. A call that is open is not cut: an ack wins, any other end revokes; whoever asked
 * looks again until it has ended. What a puller was only offered is taken back, and dies at once. A message with a
 * history is revoked when the record that says so is written, which waits for that history to be read: until then it is
 * open, too. Core thread, but for the two functions that ask. */
#include "room.h"
#include "inlets.h"
#include <stdlib.h>

struct question {
	struct rdv_slice id, reason;
	const char *route;
	struct rdv_revocation *out;
	struct rdv_error *error;
	uint64_t ticket;
	bool broker;
	enum redrive_status status;
};

static void see(struct rdv_engine *e, const struct rdv_found *at, const struct rdv_strand *s,
		struct rdv_revoked_route *r)
{
	struct rdv_where where;

	if (!s->lane || rdv_lane_where(s->lane, e->now, at->offset, &where) != REDRIVE_OK)
		where.state = RDV_STATE_DONE;
	r->state = where.state;
	r->revoked = where.state == RDV_STATE_REVOKED;
	r->open = where.state == RDV_STATE_IN_FLIGHT || (s->lane && rdv_lane_is_settling(s->lane, at->offset));
}

static void revoke_on(struct rdv_engine *e, struct question *q, const struct rdv_found *at, struct rdv_strand *s)
{
	struct rdv_revoked_route *r = &q->out->routes[q->out->count++];
	bool pending = false, was_live;

	was_live = rdv_lane_revoke(s->lane, e->now, at->offset, q->reason, &pending, e->effects) == REDRIVE_OK;
	if (pending) {
		struct rdv_flight *f = rdv_flight_find(e, s, at->offset);

		was_live = true;
		if (f && rdv_flight_is_offered(f))
			(void)rdv_flight_recall(e, f); /* false: it comes back when its body is there */
	}
	rdv_strand_nudge(e, s);
	memcpy(r->route, s->name, sizeof r->route);
	see(e, at, s, r);
	r->revoked = r->revoked && was_live; /* it may have been revoked long ago */
	r->open = r->open && was_live;
}

static void do_revoke(struct rdv_engine *e, void *ctx)
{
	struct question *q = ctx;
	struct rdv_found at;
	struct rdv_strand *s;
	size_t i = 0, count = 0;

	rdv_engine_catch_up(e);
	if (!rdv_found_by_id(e, q->id, &at)) {
		q->status = rdv_error_set(q->error, REDRIVE_NOT_FOUND, "there is no such message");
		return;
	}
	while (rdv_found_next(e, &at, q->route, &i))
		count++;
	if (!count) {
		q->status = rdv_error_set(q->error, REDRIVE_NOT_FOUND, "route '%s' never had that message",
					  q->route ? q->route : "");
		return;
	}
	q->out->routes = calloc(count, sizeof *q->out->routes);
	if (!q->out->routes) {
		q->status = REDRIVE_NO_MEMORY;
		return;
	}
	for (i = 0; (s = rdv_found_next(e, &at, q->route, &i));) {
		q->broker = q->broker || s->inlet;
		revoke_on(e, q, &at, s);
	}
	rdv_effects_run(e);
	q->ticket = e->last_ticket;
}

static void do_revoked(struct rdv_engine *e, void *ctx)
{
	struct question *q = ctx;
	struct rdv_found at;

	if (!rdv_found_by_id(e, q->id, &at))
		return;
	for (size_t k = 0; k < q->out->count; k++) {
		struct rdv_revoked_route *r = &q->out->routes[k];
		size_t i = 0;
		struct rdv_strand *s = r->open ? rdv_found_next(e, &at, r->route, &i) : NULL;

		q->broker = q->broker || (s && s->inlet);
		if (s)
			see(e, &at, s, r);
		else
			r->open = false; /* discarded meanwhile */
	}
	rdv_effects_run(e);
	q->ticket = e->last_ticket;
}

static enum redrive_status ask(struct rdv_engine *e, void (*fn)(struct rdv_engine *e, void *ctx), struct question *q)
{
	enum redrive_status status = rdv_engine_call(e, fn, q);

	status = status == REDRIVE_OK ? q->status : status;
	if (status != REDRIVE_OK)
		return status;
	q->out->open = q->out->revoked = 0;
	for (size_t i = 0; i < q->out->count; i++) {
		q->out->open += q->out->routes[i].open;
		q->out->revoked += q->out->routes[i].revoked && !q->out->routes[i].open;
	}
	return q->ticket && !q->out->open ? rdv_engine_await(e, q->ticket, q->broker) : REDRIVE_OK;
}

enum redrive_status rdv_engine_revoke(struct rdv_engine *e, struct rdv_slice id, const char *route,
				      struct rdv_slice reason, struct rdv_revocation *out, struct rdv_error *error)
{
	struct question q = {.id = id, .reason = reason, .route = route, .out = out, .error = error};

	*out = (struct rdv_revocation){0};
	return ask(e, do_revoke, &q);
}

enum redrive_status rdv_engine_revoked(struct rdv_engine *e, struct rdv_slice id, struct rdv_revocation *r)
{
	struct question q = {.id = id, .out = r};

	return ask(e, do_revoked, &q);
}

void rdv_revocation_done(struct rdv_revocation *r)
{
	free(r->routes);
	*r = (struct rdv_revocation){0};
}
