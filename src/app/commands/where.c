/* where.c - redrive where and revoke: one message, found by its id, the producer's id, or its key. */
#include <stdio.h>
#include "../client.h"
#include "../output.h"
#include "commands.h"

static const struct argp_option where_options[] = {
	{"key", 'k', "KEY", 0, "All live messages of a key", 1},
	{"route", RDV_OPT_ROUTE, "NAME", 0, "Only on this route", 1},
	{"limit", RDV_OPT_LIMIT, "N", 0, "At most so many messages (default 50)", 1},
	{"cursor", RDV_OPT_CURSOR, "TEXT", 0, "Go on where an earlier answer ended", 1},
	{0},
};

static void add_rows(struct rdv_table *t, const json_t *message)
{
	size_t i;
	json_t *route;
	json_array_foreach(json_object_get(message, "routes"), i, route)
	{
		rdv_table_cell(t, "%s", rdv_json_text(message, "id", 0));
		rdv_table_cell(t, "%s", rdv_json_text(message, "key", 0));
		rdv_table_cell(t, "%s", rdv_json_text(route, "route", 0));
		rdv_table_cell(t, "%s", rdv_json_text(route, "state", 0));
		rdv_table_cell(t, "%s", rdv_json_int(route, "attempt") ? rdv_json_text(route, "attempt", 0) : "");
		rdv_table_cell(t, "%s", rdv_json_text(route, "due_at", 0));
		rdv_table_cell(t, "%s", rdv_json_text(route, "behind", 0));
		rdv_table_cell(t, "%s", rdv_json_text(route, "dead_letter", 0));
		rdv_table_cell(t, "%s", rdv_json_text(route, "waiting_for", 0));
		rdv_table_row(t);
	}
}

static void print_messages(const struct rdv_invocation *in, const json_t *answer)
{
	static const struct rdv_column columns[] = {
		{"message", false, 20}, {"key", false, 0},          {"route", false, 0},
		{"state", false, 9},    {"attempt", true, 7},       {"due at", false, 24},
		{"behind", false, 0},   {"dead letter", false, 26}, {"waits for", false, 12, true}};
	struct rdv_table *t = rdv_table_new(columns, sizeof columns / sizeof columns[0]);
	const json_t *items = json_object_get(answer, "items");
	size_t i;
	json_t *item;
	if (!items)
		add_rows(t, answer);
	json_array_foreach(items, i, item) add_rows(t, item);
	rdv_table_print(t, in);
	if (items && json_array_size(items) == 0)
		fprintf(stderr, "no live message has this key; 'redrive dead ls key:KEY' lists its letters\n");
	const char *next = rdv_json_text(answer, "next", 0);
	if (*next)
		printf("there is more: --cursor %s\n", next);
}

static int run_where(struct rdv_invocation *in)
{
	const char *key = rdv_option(in, 'k');
	if ((key != NULL) == (in->arg_count == 1))
		return rdv_command_fail(2, "name either a message id or --key");
	struct rdv_buffer path;
	rdv_buffer_init(&path, 1 << 16);
	rdv_buffer_text(&path, "/v1/messages");
	if (key) {
		rdv_query_add(&path, "key", key);
		rdv_query_add(&path, "limit", rdv_option(in, RDV_OPT_LIMIT));
		rdv_query_add(&path, "cursor", rdv_option(in, RDV_OPT_CURSOR));
		rdv_query_add(&path, "route", rdv_option(in, RDV_OPT_ROUTE));
	} else {
		rdv_path_add(&path, in->args[0]);
	}
	return rdv_client_show(in, &path, print_messages);
}

const struct rdv_command rdv_command_where = {
	.name = "where",
	.arguments = "[ID]",
	.doc = "Where a message is now, by its id, the producer's id, or --key",
	.options = where_options,
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.args_min = 0,
	.args_max = 1,
	.run = run_where,
};

static const struct argp_option revoke_options[] = {
	{"route", RDV_OPT_ROUTE, "NAME", 0, "Only on this route (default: wherever it still can be)", 1},
	{"reason", RDV_OPT_REASON, "TEXT", 0, "Why, for the letter and the audit", 1},
	{0},
};

static void print_revoked(const json_t *answer, const char *id)
{
	size_t i;
	json_t *route;
	json_array_foreach(json_object_get(answer, "routes"), i, route)
	{
		const char *name = rdv_json_text(route, "route", 0), *state = rdv_json_text(route, "state", 1);
		if (json_is_true(json_object_get(route, "revoked")))
			printf("revoked %s on %s\n", id, name);
		else
			printf("not on %s: it is %s there\n", name, state);
	}
}

static int run_revoke(struct rdv_invocation *in)
{
	struct rdv_client *c;
	int code = rdv_client_open(in, &c);
	if (code)
		return code;
	struct rdv_buffer path;
	rdv_buffer_init(&path, 1 << 16);
	rdv_buffer_text(&path, "/v1/messages");
	rdv_path_add(&path, in->args[0]);
	rdv_buffer_text(&path, "/revoke");
	json_t *body = json_object();
	const char *route = rdv_option(in, RDV_OPT_ROUTE), *reason = rdv_option(in, RDV_OPT_REASON);
	if (route)
		json_object_set_new(body, "route", json_string(route));
	if (reason)
		json_object_set_new(body, "reason", json_string(reason));
	struct rdv_response response;
	code = rdv_client_post(c, rdv_buffer_string(&path), body, &response);
	if (code == 0 && in->json)
		rdv_print_json(response.json);
	else if (code == 0)
		print_revoked(response.json, in->args[0]);
	rdv_response_done(&response);
	rdv_buffer_done(&path);
	rdv_client_close(c);
	return code;
}

const struct rdv_command rdv_command_revoke = {
	.name = "revoke",
	.arguments = "ID",
	.doc = "End a live message: it becomes a letter with reason revoked",
	.options = revoke_options,
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.args_min = 1,
	.args_max = 1,
	.run = run_revoke,
};
