/* outlet.c - routes' handlers: made, replaced, freed with their last call.
 *
 * Lease handlers are kept until the engine ends: whoever pulls or answers has one in hand, without a lock. Core thread,
 * or before it runs. */
#include "room.h"
#include <stdlib.h>

static enum redrive_status make_http(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
				     struct rdv_handler **out, struct rdv_error *error)
{
	enum redrive_status status = e->http_pool ? REDRIVE_OK : rdv_http_pool_new(&e->http_pool, error);

	return status == REDRIVE_OK ? rdv_http_new(e->http_pool, &o->http, sink, out, error) : status;
}

static enum redrive_status make_exec(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
				     struct rdv_handler **out, struct rdv_error *error)
{
	enum redrive_status status;

	if (!e->options.exec_allowed)
		return rdv_error_set(error, REDRIVE_REFUSED, "route '%s': the library runs no commands", o->name);
	status = e->exec_pool ? REDRIVE_OK : rdv_exec_pool_new(&e->exec_pool, error);
	return status == REDRIVE_OK ? rdv_exec_new(e->exec_pool, &o->exec, sink, out, error) : status;
}

static enum redrive_status make_callback(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
					 struct rdv_handler **out, struct rdv_error *error)
{
	return rdv_callback_new(&o->callback, sink, out, error);
}

static enum redrive_status make_lease(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_sink sink,
				      struct rdv_handler **out, struct rdv_error *error)
{
	struct rdv_lease_options lease = o->lease;

	lease.number = e->lease_number + 1;
	return rdv_lease_new(&lease, sink, out, error);
}

static enum redrive_status (*const makers[])(struct rdv_engine *e, const struct rdv_route_options *o,
					     struct rdv_sink sink, struct rdv_handler **out,
					     struct rdv_error *error) = {
	[RDV_HANDLER_HTTP] = make_http,
	[RDV_HANDLER_EXEC] = make_exec,
	[RDV_HANDLER_CALLBACK] = make_callback,
	[RDV_HANDLER_LEASE] = make_lease,
};

enum redrive_status rdv_outlet_new(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_outlet **out,
				   struct rdv_error *error)
{
	struct rdv_sink sink = {rdv_flight_complete, e};
	struct rdv_outlet *made = calloc(1, sizeof *made);
	enum redrive_status status = made ? makers[o->handler](e, o, sink, &made->handler, error) : REDRIVE_NO_MEMORY;

	if (status != REDRIVE_OK) {
		free(made);
		return rdv_error_prefix(error, status, "route '%s'", o->name);
	}
	made->kind = o->handler;
	made->number = ++e->lease_number; /* as make_lease has said */
	made->submit_end = &made->submit;
	*out = made;
	return REDRIVE_OK;
}

void rdv_outlet_free(struct rdv_outlet *o)
{
	if (!o)
		return;
	o->handler->ops->free(o->handler);
	free(o);
}

static void put_away(struct rdv_engine *e, struct rdv_outlet *o)
{
	if (o->kind != RDV_HANDLER_LEASE) {
		rdv_outlet_free(o);
		return;
	}
	o->next = e->old_leases;
	e->old_leases = o;
}

void rdv_outlet_leave(struct rdv_engine *e, struct rdv_outlet *o)
{
	if (!o)
		return;
	if (!o->calls) {
		put_away(e, o);
		return;
	}
	o->next = e->old_outlets;
	e->old_outlets = o;
}

void rdv_outlet_reap(struct rdv_engine *e)
{
	struct rdv_outlet **at = &e->old_outlets;

	while (*at) {
		struct rdv_outlet *o = *at;

		if (o->calls) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		put_away(e, o);
	}
}
