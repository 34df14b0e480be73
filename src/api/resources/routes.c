/* routes.c - /v1/routes: what every route does; pausing, releasing a key, adopting and discarding orphans. */
#include <stdlib.h>
#include "../api.h"
#include "../json.h"
#include "resources.h"

static bool in_scope(struct rdv_exchange *x, const char *route)
{
	if (rdv_exchange_covers(x, route))
		return true;
	rdv_reply_problem(x, 403, NULL, "the token '%s' does not cover this route", x->who.name);
	return false;
}

static void no_route(struct rdv_exchange *x, enum redrive_status status, const char *detail)
{
	rdv_reply_status(x, status,
			 detail && *detail             ? detail
			 : status == REDRIVE_NOT_FOUND ? "there is no such route"
						       : NULL);
}

void rdv_resource_routes_list(struct rdv_exchange *x)
{
	size_t limit, count, from = 0, taken = 0, i;
	struct rdv_route_status *routes;
	const char *cursor = rdv_exchange_query(x, "cursor");
	char next[24] = "", *end = NULL;
	if (!rdv_exchange_limit(x, &limit))
		return;
	if (cursor && (cursor[0] != 'r' || (from = strtoul(cursor + 1, &end, 10)) == 0 || *end)) {
		rdv_reply_problem(x, 400, NULL, "this cursor is not one of ours");
		return;
	}
	enum redrive_status status = rdv_engine_routes(x->engine, NULL, &routes, &count);
	if (status != REDRIVE_OK) {
		rdv_reply_status(x, status, NULL);
		return;
	}
	json_t *items = json_array();
	for (i = from; i < count && taken < limit; i++)
		if (rdv_exchange_covers(x, routes[i].name)) {
			json_array_append_new(items, rdv_json_route(&routes[i]));
			taken++;
		}
	if (i < count)
		snprintf(next, sizeof next, "r%zu", i);
	free(routes);
	rdv_reply_json(x, 200, rdv_json_list(items, next));
}

static void reply_route(struct rdv_exchange *x, const char *name)
{
	struct rdv_route_status *route;
	size_t count;
	enum redrive_status status = rdv_engine_routes(x->engine, name, &route, &count);
	if (status != REDRIVE_OK) {
		no_route(x, status, NULL);
		return;
	}
	rdv_reply_json(x, 200, rdv_json_route(route));
	free(route);
}

void rdv_resource_route_get(struct rdv_exchange *x)
{
	if (in_scope(x, x->params[0]))
		reply_route(x, x->params[0]);
}

static void set_paused(struct rdv_exchange *x, bool paused)
{
	if (!in_scope(x, x->params[0]))
		return;
	enum redrive_status status = rdv_engine_pause(x->engine, x->params[0], paused);
	if (status != REDRIVE_OK) {
		no_route(x, status, NULL);
		return;
	}
	rdv_desk_audit(x->desk, x->who.name, paused ? "pause" : "resume", x->params[0], "");
	reply_route(x, x->params[0]);
}

void rdv_resource_route_pause(struct rdv_exchange *x)
{
	set_paused(x, true);
}

void rdv_resource_route_resume(struct rdv_exchange *x)
{
	set_paused(x, false);
}

void rdv_resource_route_release(struct rdv_exchange *x)
{
	if (!in_scope(x, x->params[0]))
		return;
	enum redrive_status status =
		rdv_engine_release_key(x->engine, x->params[0], rdv_slice(x->params[1], x->param_sizes[1]));
	if (status != REDRIVE_OK) {
		no_route(x, status,
			 status == REDRIVE_NOT_FOUND ? "there is no such route, or no gate is closed for this key"
						     : NULL);
		return;
	}
	rdv_desk_audit(x->desk, x->who.name, "release", x->params[0], x->params[1]);
	rdv_reply_json(x, 200, json_pack("{s:s, s:b}", "route", x->params[0], "released", 1));
}

void rdv_resource_route_adopt(struct rdv_exchange *x)
{
	static const char *const known[] = {"route", NULL};
	json_t *body = rdv_exchange_json(x, false);
	if (!body)
		return;
	const char *route = json_string_value(json_object_get(body, "route"));
	struct rdv_error error = {""};
	if (rdv_exchange_members(x, body, known)) {
		if (!route) {
			rdv_reply_field(x, "/route", "must name the route that takes the messages");
		} else if (in_scope(x, x->params[0]) && in_scope(x, route)) {
			enum redrive_status status = rdv_engine_adopt(x->engine, x->params[0], route, &error);
			if (status == REDRIVE_OK) {
				rdv_desk_audit(x->desk, x->who.name, "adopt", x->params[0], route);
				reply_route(x, route);
			} else {
				no_route(x, status, error.text);
			}
		}
	}
	json_decref(body);
}

void rdv_resource_route_discard(struct rdv_exchange *x)
{
	struct rdv_error error = {""};
	if (!in_scope(x, x->params[0]))
		return;
	enum redrive_status status = rdv_engine_discard(x->engine, x->params[0], &error);
	if (status != REDRIVE_OK) {
		no_route(x, status, error.text);
		return;
	}
	rdv_desk_audit(x->desk, x->who.name, "discard", x->params[0], "");
	rdv_reply_json(x, 200, json_pack("{s:s, s:b}", "route", x->params[0], "discarded", 1));
}
