/* offered.c - calls of lease routes that nobody has leased: they are not in flight.
 *
 * A lease route takes messages out of its lanes before somebody asks for them, so that a lease is given at once. To the
 * lane such a call is like any other; to people it is a message that is ready. Here such calls are told from leased
 * ones, and taken back: when the route's drain begins, when the route is removed, when one of them is revoked, or when
 * a late verdict decides about it. A call whose body is still being read is taken back when that comes. Core thread. */
#include "room.h"

#define BLOCKS_AT_ONCE 64u /* of calls, looked at in one command */

static bool is_on_its_way(const struct rdv_flight *f)
{
	return f->stage == RDV_FLIGHT_BODY || f->stage == RDV_FLIGHT_SYNC;
}

bool rdv_flight_is_offered(const struct rdv_flight *f)
{
	if (f->outlet->kind != RDV_HANDLER_LEASE)
		return false;
	return is_on_its_way(f) || (f->stage == RDV_FLIGHT_OUT && rdv_lease_is_offered(f->outlet->handler, &f->call));
}

struct search {
	const struct rdv_strand *strand;
	uint64_t offset;
	struct rdv_flight *found;
};

static void look_at(void *ctx, struct rdv_flight *f)
{
	struct search *s = ctx;

	if (f->strand == s->strand && f->call.offset == s->offset)
		s->found = f;
}

struct rdv_flight *rdv_flight_find(struct rdv_engine *e, const struct rdv_strand *strand, uint64_t offset)
{
	struct search s = {strand, offset, NULL};

	rdv_flight_each(e, look_at, &s);
	return s.found;
}

/* Handed over, but not yet submitted. */
static bool unlink_unsubmitted(struct rdv_outlet *o, struct rdv_call *call)
{
	struct rdv_call **c = &o->submit;

	while (*c && *c != call)
		c = &(*c)->next;
	if (!*c)
		return false;
	*c = call->next;
	if (!*c)
		o->submit_end = c;
	return true;
}

bool rdv_flight_recall(struct rdv_engine *e, struct rdv_flight *f)
{
	if (is_on_its_way(f)) {
		f->recalled = true;
		return false;
	}
	if (!unlink_unsubmitted(f->outlet, &f->call) && !rdv_lease_withdraw(f->outlet->handler, &f->call))
		return false;
	rdv_flight_take_back(e, f, 0);
	return true;
}

static void take_all_back(struct rdv_engine *e, struct rdv_call *list)
{
	while (list) {
		struct rdv_call *next = list->next;

		rdv_flight_take_back(e, list->owner, 0);
		list = next;
	}
}

static void recall_later(void *ctx, struct rdv_flight *f)
{
	if (f->outlet == ctx && is_on_its_way(f))
		f->recalled = true;
}

void rdv_offers_recall(struct rdv_engine *e, struct rdv_outlet *o)
{
	struct rdv_call *unsubmitted = o->submit;

	if (o->kind != RDV_HANDLER_LEASE)
		return;
	o->submit = NULL;
	o->submit_end = &o->submit;
	take_all_back(e, unsubmitted);
	take_all_back(e, rdv_lease_recall(o->handler));
	rdv_flight_each(e, recall_later, o);
}

struct showing {
	rdv_offers_account of;
	void *ctx;
};

static void less(uint64_t *count)
{
	*count -= *count > 0;
}

/* Counts of lanes that were taken in another command may not know the call yet. */
static void show_as_ready(void *ctx, struct rdv_flight *f)
{
	const struct showing *show = ctx;
	struct rdv_account *a = f->request || !rdv_flight_is_offered(f) ? NULL : show->of(show->ctx, f);

	if (!a || !a->in_flight)
		return;
	a->in_flight--;
	a->ready++;
	less(&a->calls);
	less(f->first ? &a->first : &a->retries);
	if (f->first)
		less(&a->first_calls);
}

bool rdv_offers_show(struct rdv_engine *e, size_t *block, rdv_offers_account of, void *ctx)
{
	struct showing show = {of, ctx};

	for (unsigned n = 0; n < BLOCKS_AT_ONCE; n++, ++*block)
		if (!rdv_flight_each_of(e, *block, show_as_ready, &show))
			return true;
	return false;
}
