/* preflight.c - what a plan would do, and whether it should: impact and checks, made when it is created.
 *
 * fail blocks the approval; warn is for the person who approves. Each check is one function in a table that writes one
 * line. What the desk cannot know yet (versions, newer messages of a key) says so rather than "ok". Any thread. */
#include <stdio.h>
#include <stdlib.h>
#include "plan.h"
#include "room.h"

struct examination {
	struct rdv_desk *d;
	const struct rdv_desk_set *set;
	const struct rdv_plan *plan;
	uint64_t gone, down, no_dedupe, unknown; /* routes */
	char names[160];                         /* of those that are gone, or else down */
};

static void note(struct examination *x, const char *route)
{
	size_t used = strlen(x->names);
	snprintf(x->names + used, sizeof x->names - used, "%s%.100s", used ? ", " : "", route);
}

static void ask_route(struct examination *x, const char *route)
{
	const struct rdv_desk_runtime *rt = &x->d->runtime;
	bool up = false, dedupe = false;
	enum redrive_status status = rt->route_health ? rt->route_health(rt->ctx, route, &up, &dedupe) : REDRIVE_CLOSED;
	if (status == REDRIVE_NOT_FOUND) {
		if (x->gone++ == 0)
			x->names[0] = 0;
		note(x, route);
	} else if (status != REDRIVE_OK) {
		x->unknown++;
	} else {
		if (!up && x->down++ < 4 && !x->gone)
			note(x, route);
		x->no_dedupe += !dedupe;
	}
}

static const char *check_routes(struct examination *x, char *detail, size_t size)
{
	if (x->gone) {
		snprintf(detail, size, "no such route: %s", x->names);
		return "fail";
	}
	if (x->unknown) {
		snprintf(detail, size, "could not be asked");
		return "warn";
	}
	snprintf(detail, size, "all routes exist");
	return "ok";
}

static const char *check_handlers(struct examination *x, char *detail, size_t size)
{
	if (x->down) {
		snprintf(detail, size, "the breaker is not up: %s", x->gone ? "" : x->names);
		return "warn";
	}
	snprintf(detail, size, x->unknown ? "could not be asked" : "the handlers answer");
	return x->unknown ? "warn" : "ok";
}

static const char *check_dedupe(struct examination *x, char *detail, size_t size)
{
	if (x->no_dedupe) {
		snprintf(detail, size, "off: a message that was processed after all may be processed twice");
		return "warn";
	}
	snprintf(detail, size, "on");
	return x->unknown || x->gone ? "warn" : "ok";
}

static const char *check_bodies(struct examination *x, char *detail, size_t size)
{
	uint64_t missing = 0;
	for (size_t i = 0; i < x->set->count; i++)
		missing += !x->set->items[i].has_body;
	if (missing) {
		snprintf(detail, size, "%llu letters have no body and will be skipped", (unsigned long long)missing);
		return "warn";
	}
	snprintf(detail, size, "all letters have their bodies");
	return "ok";
}

static const char *check_elsewhere(struct examination *x, char *detail, size_t size)
{
	uint64_t busy = 0;
	for (size_t i = 0; i < x->set->count; i++)
		busy += x->set->items[i].busy;
	if (busy) {
		snprintf(detail, size, "%llu letters are in another plan now", (unsigned long long)busy);
		return "warn";
	}
	snprintf(detail, size, "no letter is in another plan");
	return "ok";
}

static const char *check_version(struct examination *x, char *detail, size_t size)
{
	snprintf(detail, size, "the handlers' running version is not known");
	return "warn";
}

static const char *check_newer(struct examination *x, char *detail, size_t size)
{
	if (x->plan->keys == 0) {
		snprintf(detail, size, "the letters have no keys");
		return "ok";
	}
	snprintf(detail, size, "newer messages of %llu keys may have been handled since; this is not looked up",
		 (unsigned long long)x->plan->keys);
	return "warn";
}

static const char *check_time(struct examination *x, char *detail, size_t size)
{
	int64_t left = x->plan->expires_at.ms - x->plan->created_at.ms;
	if (x->plan->estimated_ms > left) {
		snprintf(detail, size, "it takes longer than the plan is valid");
		return "warn";
	}
	snprintf(detail, size, "it ends before the plan expires");
	return "ok";
}

static const struct {
	const char *name;
	const char *(*run)(struct examination *x, char *detail, size_t size);
} checks[] = {
	{"routes", check_routes},        {"handlers", check_handlers},     {"dedupe", check_dedupe},
	{"bodies", check_bodies},        {"other_plans", check_elsewhere}, {"consumer_version", check_version},
	{"newer_messages", check_newer}, {"duration", check_time},
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static uint64_t count_keys(const struct rdv_desk_set *s)
{
	uint64_t *keys = calloc(s->count, sizeof *keys), n = 0, distinct = 0;
	if (!keys)
		return 0;
	for (size_t i = 0; i < s->count; i++)
		if (s->items[i].key)
			keys[n++] = s->items[i].key;
	if (n)
		qsort(keys, n, sizeof *keys, by_number);
	for (size_t i = 0; i < n; i++)
		distinct += i == 0 || keys[i] != keys[i - 1];
	free(keys);
	return distinct;
}

static void impact(const struct rdv_desk_set *s, struct rdv_plan *p)
{
	uint64_t sent = p->cap && p->cap < s->count ? p->cap : s->count;
	size_t used = 0;
	p->keys = count_keys(s);
	for (size_t i = 0; i < s->count; i++)
		if (p->oldest.ms == 0 || s->items[i].dead_at < p->oldest.ms)
			p->oldest.ms = s->items[i].dead_at;
	for (size_t i = 0; i < s->route_count && used < sizeof p->routes; i++)
		used += (size_t)snprintf(p->routes + used, sizeof p->routes - used, "%s%s", i ? "," : "", s->routes[i]);
	if (s->more_routes && used < sizeof p->routes)
		snprintf(p->routes + used, sizeof p->routes - used, ",...");
	double ms = (double)sent / p->rate * 1000 + (double)p->ramp_ms / 2;
	p->estimated_ms = ms > 1e15 ? (int64_t)1e15 : (int64_t)ms;
}

void rdv_desk_plan_examine(struct rdv_desk *d, const struct rdv_desk_set *s, struct rdv_plan *p)
{
	struct examination x = {.d = d, .set = s, .plan = p};
	impact(s, p);
	if (p->target_route[0])
		ask_route(&x, p->target_route);
	for (size_t i = 0; i < s->route_count && !p->target_route[0]; i++)
		ask_route(&x, s->routes[i]);
	for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
		struct rdv_preflight *f = &p->preflight[p->preflight_count++];
		snprintf(f->check, sizeof f->check, "%s", checks[i].name);
		snprintf(f->result, sizeof f->result, "%s", checks[i].run(&x, f->detail, sizeof f->detail));
	}
}
