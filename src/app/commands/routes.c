/* routes.c - redrive status and redrive routes: what every route does, and pausing, releasing, adopting. */
#include <stdio.h>
#include "../client.h"
#include "../output.h"
#include "commands.h"

static void add_route(struct rdv_table *t, const json_t *r)
{
	static const char *const counts[] = {"received",  "acked", "ready",   "waiting", "held",
					     "in_flight", "dead",  "dropped", "revoked"};
	rdv_table_cell(t, "%s", rdv_json_text(r, "name", 0));
	rdv_table_cell(t, "%s", rdv_json_text(r, "state", 0));
	rdv_table_cell(t, "%s", json_is_true(json_object_get(r, "orphan")) ? "yes" : "");
	rdv_table_cell(t, "%s", rdv_json_text(r, "breaker.state", 0));
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		rdv_table_cell(t, "%s", rdv_json_text(json_object_get(r, "counts"), counts[i], 0));
	rdv_table_cell(t, "%.1f s", (double)rdv_json_int(r, "oldest_unfinished_ms") / 1000);
	rdv_table_row(t);
}

static void print_routes(const struct rdv_invocation *in, const json_t *answer)
{
	static const struct rdv_column columns[] = {
		{"route", false, 8},   {"state", false, 7},      {"orphan", false, 0}, {"target", false, 6},
		{"received", true, 0}, {"acked", true, 0},       {"ready", true, 0},   {"waiting", true, 0},
		{"held", true, 0},     {"in flight", true, 0},   {"dead", true, 0},    {"dropped", true, 0},
		{"revoked", true, 0},  {"oldest", true, 0, true}};
	const json_t *items = json_object_get(answer, "items");
	struct rdv_table *t = rdv_table_new(columns, sizeof columns / sizeof columns[0]);
	size_t i;
	json_t *route;
	json_array_foreach(items, i, route) add_route(t, route);
	if (!items)
		add_route(t, answer);
	rdv_table_print(t, in);
}

static int run_ls(struct rdv_invocation *in)
{
	return rdv_client_show_all(in, "/v1/routes", print_routes);
}

const struct rdv_command rdv_command_status = {
	.name = "status",
	.arguments = "",
	.doc = "Every route once: state, counts, target",
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.run = run_ls,
};
const struct rdv_command rdv_command_routes_ls = {
	.name = "routes ls",
	.arguments = "",
	.doc = "List the routes, orphans of removed ones last",
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.run = run_ls,
};

static void route_path(struct rdv_buffer *path, const char *route, const char *verb)
{
	rdv_buffer_init(path, 1 << 16);
	rdv_buffer_text(path, "/v1/routes");
	rdv_path_add(path, route);
	if (verb)
		rdv_path_add(path, verb);
}

static void print_members(const json_t *object, const char *prefix)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)object, key, value)
	{
		char name[128];
		snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
		if (json_is_object(value))
			print_members(value, name);
		else
			printf("%-28s %s\n", name, rdv_json_text(object, key, 0));
	}
}

static void print_route(const struct rdv_invocation *in, const json_t *route)
{
	(void)in;
	print_members(route, "");
}

static int run_show(struct rdv_invocation *in)
{
	struct rdv_buffer path;
	route_path(&path, in->args[0], NULL);
	return rdv_client_show(in, &path, print_route);
}

const struct rdv_command rdv_command_routes_show = {
	.name = "routes show",
	.arguments = "NAME",
	.doc = "One route with its account, attempts, breaker and budget",
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.args_min = 1,
	.args_max = 1,
	.run = run_show,
};

/* POST to a path of a route; prints the answer or `done`. Takes the body's reference. */
static int act(struct rdv_invocation *in, struct rdv_buffer *path, json_t *body, const char *done)
{
	struct rdv_client *c;
	struct rdv_response response = {0};
	int code = rdv_client_open(in, &c);
	if (code == 0) {
		code = rdv_client_post(c, rdv_buffer_string(path), body, &response);
		if (code == 0 && in->json && response.json)
			rdv_print_json(response.json);
		else if (code == 0)
			printf("%s %s\n", done, in->args[0]);
		rdv_response_done(&response);
		rdv_client_close(c);
	} else {
		json_decref(body);
	}
	rdv_buffer_done(path);
	return code;
}

static int run_pause(struct rdv_invocation *in)
{
	struct rdv_buffer path;
	route_path(&path, in->args[0], "pause");
	return act(in, &path, NULL, "paused");
}

static int run_resume(struct rdv_invocation *in)
{
	struct rdv_buffer path;
	route_path(&path, in->args[0], "resume");
	return act(in, &path, NULL, "resumed");
}

static int run_release(struct rdv_invocation *in)
{
	const char *key = rdv_option(in, 'k');
	if (!key)
		return rdv_command_fail(2, "name the key: redrive routes release %s --key KEY", in->args[0]);
	struct rdv_buffer path;
	route_path(&path, in->args[0], "keys");
	rdv_path_add(&path, key);
	rdv_buffer_text(&path, "/release");
	return act(in, &path, NULL, "released the key on");
}

static int run_adopt(struct rdv_invocation *in)
{
	struct rdv_buffer path;
	route_path(&path, in->args[0], "adopt");
	return act(in, &path, json_pack("{s:s}", "route", in->args[1]), "adopted");
}

static int run_discard(struct rdv_invocation *in)
{
	struct rdv_buffer path;
	if (!rdv_option_given(in, RDV_OPT_YES))
		return rdv_command_fail(2, "discarding gives up the unfinished messages of '%s': say so with --yes",
					in->args[0]);
	route_path(&path, in->args[0], "discard");
	return act(in, &path, NULL, "discarded");
}

static const struct argp_option release_options[] = {{"key", 'k', "KEY", 0, "The key whose gate opens", 1}, {0}};
static const struct argp_option discard_options[] = {
	{"yes", RDV_OPT_YES, NULL, 0, "Yes, give its unfinished messages up", 1}, {0}};

#define ROUTE_VERB(symbol, verb, arguments_, doc_, options_, count, run_)                                              \
	const struct rdv_command symbol = {.name = "routes " verb,                                                     \
					   .arguments = arguments_,                                                    \
					   .doc = doc_,                                                                \
					   .options = options_,                                                        \
					   .common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,                            \
					   .args_min = count,                                                          \
					   .args_max = count,                                                          \
					   .run = run_}
ROUTE_VERB(rdv_command_routes_pause, "pause", "NAME", "Stop dispatching; stays paused over restarts", NULL, 1,
	   run_pause);
ROUTE_VERB(rdv_command_routes_resume, "resume", "NAME", "Dispatch again; also ends a storm's hold", NULL, 1,
	   run_resume);
ROUTE_VERB(rdv_command_routes_release, "release", "NAME --key KEY",
	   "Open the gate of a key that after_dead: hold closed", release_options, 1, run_release);
ROUTE_VERB(rdv_command_routes_adopt, "adopt", "OLD NAME",
	   "Give the messages of a removed route to a route of the same topic", NULL, 2, run_adopt);
ROUTE_VERB(rdv_command_routes_discard, "discard", "OLD --yes", "Give up the messages of a removed route",
	   discard_options, 1, run_discard);
