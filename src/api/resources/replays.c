/* replays.c - /v1/replays: a plan freezes its set, is approved by its digest, runs, and its results add up. */
#include <stdio.h>
#include <stdlib.h>
#include "../../base/quantity.h"
#include "../api.h"
#include "../json.h"
#include "resources.h"

#define IDS_MAX 100000u

/* ---- scope: a token that covers only some routes sees and moves only plans over these ---- */

/* A plan names its routes with commas between them, and "..." when there are too many to name. */
static bool plan_in_scope(const struct rdv_exchange *x, const struct rdv_plan *plan)
{
	char route[sizeof plan->routes];
	if (x->who.route_count == 0)
		return true;
	if (plan->target_route[0] && !rdv_exchange_covers(x, plan->target_route))
		return false;
	for (const char *p = plan->routes; *p; p += strcspn(p, ","), p += *p == ',') {
		snprintf(route, sizeof route, "%.*s", (int)strcspn(p, ","), p);
		if (!rdv_exchange_covers(x, route))
			return false;
	}
	return true;
}

/* Reads the plan of the path. NOT_FOUND also for one out of scope. */
static enum redrive_status get_plan(struct rdv_exchange *x, struct rdv_plan *plan)
{
	enum redrive_status status = plan ? rdv_plan_get(x->desk, x->params[0], plan) : REDRIVE_NO_MEMORY;
	return status == REDRIVE_OK && !plan_in_scope(x, plan) ? REDRIVE_NOT_FOUND : status;
}

static bool check_plan(struct rdv_exchange *x)
{
	struct rdv_plan *plan = calloc(1, sizeof *plan);
	enum redrive_status status = get_plan(x, plan);
	free(plan);
	if (status != REDRIVE_OK)
		rdv_reply_status(x, status, status == REDRIVE_NOT_FOUND ? "there is no such plan" : NULL);
	return status == REDRIVE_OK;
}

/* With tokens a plan is approved by another subject than its author; without them there is only one. */
static bool may_approve(struct rdv_exchange *x)
{
	struct rdv_plan *plan = calloc(1, sizeof *plan);
	enum redrive_status status = get_plan(x, plan);
	bool own = status == REDRIVE_OK && x->tokens_used && strcmp(plan->author, x->who.name) == 0;
	if (status != REDRIVE_OK)
		rdv_reply_status(x, status, status == REDRIVE_NOT_FOUND ? "there is no such plan" : NULL);
	else if (own)
		rdv_reply_problem(x, 403, NULL, "'%s' is the author of this plan: somebody else must approve it",
				  x->who.name);
	if (own)
		rdv_desk_audit(x->desk, x->who.name, "replay.approve.refused", x->params[0], "its author is the same");
	free(plan);
	return status == REDRIVE_OK && !own;
}

/* ---- members of a new plan ---- */

static bool read_texts(struct rdv_exchange *x, const json_t *body, const char *name, const char ***out, size_t *count)
{
	const json_t *list = json_object_get(body, name), *item;
	size_t i;
	char pointer[64];
	snprintf(pointer, sizeof pointer, "/%s", name);
	*out = NULL;
	*count = 0;
	if (!list)
		return true;
	if (!json_is_array(list) || json_array_size(list) > IDS_MAX ||
	    !(*out = calloc(json_array_size(list) + 1, sizeof **out))) {
		rdv_reply_field(x, pointer, "must be a list of at most %u letter ids", IDS_MAX);
		return false;
	}
	json_array_foreach(list, i, item)
	{
		if (!json_is_string(item)) {
			rdv_reply_field(x, pointer, "entry %zu is no text", i);
			return false;
		}
		(*out)[(*count)++] = json_string_value(item);
	}
	return true;
}

static bool text_member(struct rdv_exchange *x, const json_t *body, const char *name, const char **out)
{
	const json_t *value = json_object_get(body, name);
	char pointer[64];
	snprintf(pointer, sizeof pointer, "/%s", name);
	*out = json_string_value(value);
	if (value && !*out)
		rdv_reply_field(x, pointer, "must be a text");
	return !value || *out;
}

static bool whole_member(struct rdv_exchange *x, const json_t *body, const char *name, int64_t max, int64_t *out)
{
	const json_t *value = json_object_get(body, name);
	char pointer[64];
	snprintf(pointer, sizeof pointer, "/%s", name);
	if (value && (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)) {
		rdv_reply_field(x, pointer, "must be a whole number from 0 to %lld", (long long)max);
		return false;
	}
	*out = json_integer_value(value);
	return true;
}

static bool rate_member(struct rdv_exchange *x, const json_t *body, double *out)
{
	const char *text;
	if (!text_member(x, body, "rate", &text))
		return false;
	*out = 0;
	if (!text || (rdv_rate_parse(rdv_slice_text(text), out) == REDRIVE_OK && *out > 0))
		return true;
	rdv_reply_field(x, "/rate", "'%.40s' is no rate like 50/s", text);
	return false;
}

static bool target_member(struct rdv_exchange *x, const json_t *body, const char **route)
{
	const json_t *target = json_object_get(body, "target");
	*route = NULL;
	if (!target || json_is_null(target))
		return true;
	*route = json_string_value(json_object_get(target, "route"));
	if (*route && json_object_size(target) == 1)
		return true;
	rdv_reply_field(x, "/target", "must be {\"route\": NAME}; other targets are not available in this version");
	return false;
}

static bool expires_member(struct rdv_exchange *x, const json_t *body, struct rdv_wall *out)
{
	const char *text;
	if (!text_member(x, body, "expires_at", &text))
		return false;
	if (!text || rdv_wall_parse(rdv_slice_text(text), out) == REDRIVE_OK)
		return true;
	rdv_reply_field(x, "/expires_at", "is no time like 2026-11-30T12:00:00Z");
	return false;
}

static bool read_plan(struct rdv_exchange *x, const json_t *body, struct rdv_plan_request *r)
{
	int64_t cap;
	const char *order;
	if (!text_member(x, body, "name", &r->name) || !text_member(x, body, "q", &r->q) ||
	    !text_member(x, body, "reason", &r->reason) || !text_member(x, body, "order", &order) ||
	    !rate_member(x, body, &r->rate) || !whole_member(x, body, "ramp_ms", 86400000, &r->ramp_ms) ||
	    !whole_member(x, body, "cap", INT64_MAX, &cap) || !target_member(x, body, &r->target_route) ||
	    !expires_member(x, body, &r->expires_at))
		return false;
	r->cap = (uint64_t)cap;
	if (r->target_route && !rdv_exchange_covers(x, r->target_route)) {
		rdv_reply_problem(x, 403, NULL, "the token '%s' does not cover the target's route", x->who.name);
		return false;
	}
	r->order_key = order && strcmp(order, "key") == 0;
	if (order && !r->order_key && strcmp(order, "none") != 0) {
		rdv_reply_field(x, "/order", "must be key or none");
		return false;
	}
	if ((r->q != NULL) == (json_object_get(body, "ids") != NULL)) {
		rdv_reply_field(x, "/q", "name the letters either by q or by ids");
		return false;
	}
	return true;
}

/* Members of plans that this version does not have: saying so beats ignoring a safety net. */
static bool refuse_later(struct rdv_exchange *x, const json_t *body)
{
	static const char *const later[] = {"sandbox", "stop", "target_version"};
	for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
		if (json_object_get(body, later[i])) {
			char pointer[32];
			snprintf(pointer, sizeof pointer, "/%s", later[i]);
			rdv_reply_field(x, pointer, "is not available in this version: leave it out");
			return false;
		}
	const json_t *sample = json_object_get(body, "sample");
	if (sample && (!json_is_integer(sample) || json_integer_value(sample) != 0)) {
		rdv_reply_field(x, "/sample", "samples are not available in this version: leave it out, or 0");
		return false;
	}
	return true;
}

void rdv_resource_plan_create(struct rdv_exchange *x)
{
	static const char *const known[] = {"name",    "q",       "ids",   "exclude_ids",    "target", "rate",
					    "ramp_ms", "cap",     "order", "expires_at",     "reason", "sample",
					    "gate",    "sandbox", "stop",  "target_version", NULL};
	json_t *body = rdv_exchange_json(x, false);
	if (!body)
		return;
	struct rdv_plan_request r = {.author = x->who.name,
				     .covers = x->who.route_count ? rdv_exchange_covers_route : NULL,
				     .covers_ctx = x};
	const char **ids = NULL, **exclude = NULL;
	struct rdv_error error = {""};
	if (rdv_exchange_members(x, body, known) && refuse_later(x, body) &&
	    read_texts(x, body, "ids", &ids, &r.id_count) &&
	    read_texts(x, body, "exclude_ids", &exclude, &r.exclude_count) && read_plan(x, body, &r)) {
		struct rdv_plan *plan = calloc(1, sizeof *plan);
		r.ids = ids;
		r.exclude = exclude;
		enum redrive_status status = plan ? rdv_plan_create(x->desk, &r, plan, &error) : REDRIVE_NO_MEMORY;
		if (status == REDRIVE_OK)
			rdv_reply_json(x, 201, rdv_json_plan(plan));
		else if (status == REDRIVE_INVALID)
			rdv_reply_field(x, r.q ? "/q" : "/ids", "%s", error.text);
		else
			rdv_reply_status(x, status, error.text);
		free(plan);
	}
	free(ids);
	free(exclude);
	json_decref(body);
}

struct plan_page {
	const struct rdv_exchange *x;
	json_t *items;
};

static void add_plan(void *ctx, const struct rdv_plan *plan)
{
	struct plan_page *page = ctx;
	if (plan_in_scope(page->x, plan))
		json_array_append_new(page->items, rdv_json_plan(plan));
}

static bool take_cursor(struct rdv_exchange *x, char cursor[RDV_CURSOR_TEXT])
{
	const char *given = rdv_exchange_query(x, "cursor");
	if (given && strlen(given) >= RDV_CURSOR_TEXT) {
		rdv_reply_problem(x, 400, NULL, "this cursor is not one of ours");
		return false;
	}
	snprintf(cursor, RDV_CURSOR_TEXT, "%s", given ? given : "");
	return true;
}

static void reply_list(struct rdv_exchange *x, enum redrive_status status, json_t *items, const char *cursor)
{
	if (status == REDRIVE_OK) {
		rdv_reply_json(x, 200, rdv_json_list(items, cursor));
		return;
	}
	json_decref(items);
	if (status == REDRIVE_INVALID)
		rdv_reply_problem(x, 400, NULL, "this cursor is not one of ours");
	else
		rdv_reply_status(x, status, status == REDRIVE_NOT_FOUND ? "there is no such plan" : NULL);
}

void rdv_resource_plans_list(struct rdv_exchange *x)
{
	size_t limit;
	char cursor[RDV_CURSOR_TEXT];
	if (!rdv_exchange_limit(x, &limit) || !take_cursor(x, cursor))
		return;
	struct plan_page page = {x, json_array()};
	reply_list(x, rdv_plan_list(x->desk, limit, cursor, add_plan, &page), page.items, cursor);
}

void rdv_resource_plan_get(struct rdv_exchange *x)
{
	struct rdv_plan *plan = calloc(1, sizeof *plan);
	enum redrive_status status = get_plan(x, plan);
	if (status == REDRIVE_OK)
		rdv_reply_json(x, 200, rdv_json_plan(plan));
	else
		rdv_reply_status(x, status, status == REDRIVE_NOT_FOUND ? "there is no such plan" : NULL);
	free(plan);
}

static void add_plan_letter(void *ctx, const struct rdv_plan_letter *l)
{
	json_array_append_new(ctx, json_pack("{s:s, s:s, s:o, s:I, s:o}", "id", l->letter, "outcome", l->outcome,
					     "skipped_reason",
					     l->skipped_reason[0] ? json_string(l->skipped_reason) : json_null(),
					     "attempts", (json_int_t)l->attempts, "at", rdv_json_time(l->at)));
}

void rdv_resource_plan_letters(struct rdv_exchange *x)
{
	size_t limit;
	char cursor[RDV_CURSOR_TEXT];
	if (!rdv_exchange_limit(x, &limit) || !take_cursor(x, cursor) || !check_plan(x))
		return;
	json_t *items = json_array();
	reply_list(x,
		   rdv_plan_letters(x->desk, x->params[0], rdv_exchange_query(x, "state"), limit, cursor,
				    add_plan_letter, items),
		   items, cursor);
}

/* ---- verbs ---- */

static const struct {
	const char *name;
	enum rdv_plan_verb verb;
	enum rdv_role role;
} verbs[] = {
	{"approve", RDV_PLAN_APPROVE, RDV_ROLE_APPROVER}, {"start", RDV_PLAN_START, RDV_ROLE_OPERATOR},
	{"pause", RDV_PLAN_PAUSE, RDV_ROLE_OPERATOR},     {"resume", RDV_PLAN_RESUME, RDV_ROLE_OPERATOR},
	{"rate", RDV_PLAN_RATE, RDV_ROLE_OPERATOR},       {"cancel", RDV_PLAN_CANCEL, RDV_ROLE_OPERATOR},
};

static void act(struct rdv_exchange *x, const json_t *body, size_t v)
{
	const char *digest = json_string_value(json_object_get(body, "digest"));
	double rate = 0;
	struct rdv_error error = {""};
	if (verbs[v].verb == RDV_PLAN_APPROVE && !digest) {
		rdv_reply_field(x, "/digest", "must be the digest of the plan that was looked at");
		return;
	}
	if (verbs[v].verb == RDV_PLAN_RATE && (!rate_member(x, body, &rate) || rate <= 0)) {
		if (!x->answered)
			rdv_reply_field(x, "/rate", "must be a rate like 50/s");
		return;
	}
	if (!(verbs[v].verb == RDV_PLAN_APPROVE ? may_approve(x) : check_plan(x)))
		return;
	struct rdv_plan *plan = calloc(1, sizeof *plan);
	enum redrive_status status =
		plan ? rdv_plan_act(x->desk, x->params[0], verbs[v].verb, digest, rate, x->who.name, plan, &error)
		     : REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		rdv_reply_json(x, 200, rdv_json_plan(plan));
	else
		rdv_reply_status(x, status, status == REDRIVE_NOT_FOUND ? "there is no such plan" : error.text);
	free(plan);
}

void rdv_resource_plan_act(struct rdv_exchange *x)
{
	static const char *const known[] = {"digest", "rate", "reason", NULL};
	size_t v = 0, count = sizeof verbs / sizeof verbs[0];
	while (v < count && strcmp(verbs[v].name, x->params[1]) != 0)
		v++;
	if (v == count) {
		rdv_reply_problem(x, 404, NULL,
				  "there is no such verb: use approve, start, pause, resume, rate or cancel");
		return;
	}
	if (x->who.role < verbs[v].role) {
		rdv_reply_problem(x, 403, NULL, "this needs the role %s; the token '%s' has %s",
				  rdv_role_name(verbs[v].role), x->who.name, rdv_role_name(x->who.role));
		return;
	}
	json_t *body = rdv_exchange_json(x, true);
	if (body && rdv_exchange_members(x, body, known))
		act(x, body, v);
	json_decref(body);
}
