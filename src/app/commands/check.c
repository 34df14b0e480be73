/* check.c - redrive check and redrive explain: a configuration judged and explained without a server. */
#include <stdio.h>
#include "../explain.h"
#include "../output.h"
#include "../settings.h"
#include "commands.h"

int rdv_command_load(const char *file, struct rdv_settings *s)
{
	struct rdv_findings findings = {0};
	enum redrive_status status = rdv_settings_init(s);
	if (status == REDRIVE_OK)
		status = rdv_settings_load(s, file, NULL, &findings);
	rdv_command_findings(file, &findings);
	rdv_findings_done(&findings);
	return rdv_status_info(status)->exit;
}

static int run_check(struct rdv_invocation *in)
{
	struct rdv_settings s;
	struct rdv_buffer text;
	rdv_buffer_init(&text, 0);
	int code = rdv_command_load(in->args[0], &s);
	if (code == 0 && rdv_option_given(in, RDV_OPT_EFFECTIVE)) {
		rdv_settings_print(&s, &text);
		fputs(rdv_buffer_string(&text), stdout);
	} else if (code == 0) {
		printf("%s: good, %zu route%s\n", in->args[0], s.route_count, s.route_count == 1 ? "" : "s");
	}
	rdv_buffer_done(&text);
	rdv_settings_done(&s);
	return code;
}

static const struct argp_option check_options[] = {
	{"effective", RDV_OPT_EFFECTIVE, NULL, 0, "Print the configuration with every default filled in", 1},
	{0},
};
const struct rdv_command rdv_command_check = {
	.name = "check",
	.arguments = "FILE",
	.doc = "Every error and warning of a configuration, with file, line and column",
	.options = check_options,
	.args_min = 1,
	.args_max = 1,
	.run = run_check,
};

static int explain_json(const struct rdv_settings *s, const char *route)
{
	json_t *all = json_object();
	for (size_t i = 0; i < s->route_count; i++)
		if (!route || strcmp(route, s->routes[i].name) == 0)
			json_object_set_new(all, s->routes[i].name, rdv_explain_json(&s->routes[i].lane.retry));
	rdv_print_json(all);
	json_decref(all);
	return 0;
}

static int explain_text(const struct rdv_settings *s, const char *route)
{
	struct rdv_buffer text;
	rdv_buffer_init(&text, 0);
	for (size_t i = 0; i < s->route_count; i++)
		if (!route || strcmp(route, s->routes[i].name) == 0) {
			if (text.size)
				rdv_buffer_text(&text, "\n");
			rdv_explain_text(&s->routes[i], &text);
		}
	fputs(rdv_buffer_string(&text), stdout);
	rdv_buffer_done(&text);
	return 0;
}

static int run_explain(struct rdv_invocation *in)
{
	const char *file = in->arg_count ? in->args[0] : "redrive.yaml", *route = rdv_option(in, RDV_OPT_ROUTE);
	struct rdv_settings s;
	int code = rdv_command_load(file, &s);
	bool found = !route;
	for (size_t i = 0; code == 0 && i < s.route_count && !found; i++)
		found = strcmp(route, s.routes[i].name) == 0;
	if (code == 0 && !found)
		code = rdv_command_fail(3, "%s has no route '%s'", file, route);
	if (code == 0)
		code = in->json ? explain_json(&s, route) : explain_text(&s, route);
	rdv_settings_done(&s);
	return code;
}

static const struct argp_option explain_options[] = {
	{"route", RDV_OPT_ROUTE, "NAME", 0, "Only this route", 1},
	{0},
};
const struct rdv_command rdv_command_explain = {
	.name = "explain",
	.arguments = "[FILE]",
	.doc = "The schedule of every attempt, and when a message is dead",
	.options = explain_options,
	.common = RDV_COMMON_OUTPUT,
	.args_min = 0,
	.args_max = 1,
	.run = run_explain,
};
