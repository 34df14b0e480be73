/* top.c - redrive top: every route, live; rates are differences between two readings. Ends with q, Ctrl-C, or after
 * --interval readings piped. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>
#include "../../base/clock.h"
#include "../../base/quantity.h"
#include "../client.h"
#include "../output.h"
#include "commands.h"

static const struct argp_option options[] = {
	{"interval", RDV_OPT_INTERVAL, "DURATION", 0, "Between two readings (default 1s)", 1},
	{"limit", RDV_OPT_LIMIT, "N", 0, "End after N readings", 1},
	{0},
};

struct reading {
	json_t *routes; /* owns; the answer of /v1/routes */
	int64_t at_us;
};

static double rate_of(const struct reading *now, const struct reading *before, size_t i, const char *path)
{
	const json_t *a = json_array_get(rdv_json_at(now->routes, "items"), i),
		     *b = json_array_get(rdv_json_at(before->routes, "items"), i);
	double seconds = (double)(now->at_us - before->at_us) / 1e6;
	if (!b || seconds <= 0 || strcmp(rdv_json_text(a, "name", 0), rdv_json_text(b, "name", 1)) != 0)
		return 0;
	return (double)(rdv_json_int(a, path) - rdv_json_int(b, path)) / seconds;
}

static void draw(const struct rdv_invocation *in, const struct reading *now, const struct reading *before)
{
	static const struct rdv_column columns[] = {
		{"route", false, 8},      {"state", false, 7},    {"target", false, 6}, {"in/s", true, 6},
		{"acked/s", true, 7},     {"retries/s", true, 9}, {"ready", true, 0},   {"waiting", true, 0},
		{"held", true, 0},        {"in flight", true, 0}, {"dead", true, 0},    {"held back", true, 0, true},
		{"oldest", true, 0, true}};
	struct rdv_table *t = rdv_table_new(columns, sizeof columns / sizeof columns[0]);
	size_t i;
	json_t *r;
	json_array_foreach(json_object_get(now->routes, "items"), i, r)
	{
		rdv_table_cell(t, "%s", rdv_json_text(r, "name", 0));
		rdv_table_cell(t, "%s", rdv_json_text(r, "state", 0));
		rdv_table_cell(t, "%s", rdv_json_text(r, "breaker.state", 0));
		rdv_table_cell(t, "%.0f", rate_of(now, before, i, "counts.received"));
		rdv_table_cell(t, "%.0f", rate_of(now, before, i, "counts.acked"));
		rdv_table_cell(t, "%.0f", rate_of(now, before, i, "attempts.retries"));
		static const char *const counts[] = {"counts.ready",     "counts.waiting", "counts.held",
						     "counts.in_flight", "counts.dead",    "budget.held_back"};
		for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
			rdv_table_cell(t, "%s", rdv_json_text(r, counts[c], 0));
		rdv_table_cell(t, "%.1f s", (double)rdv_json_int(r, "oldest_unfinished_ms") / 1000);
		rdv_table_row(t);
	}
	if (isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
	rdv_table_print(t, in);
	fflush(stdout);
}

/* Waits; true when the person wants to end. */
static bool wait_key(int64_t ms)
{
	struct pollfd p = {STDIN_FILENO, POLLIN, 0};
	bool keys = isatty(STDIN_FILENO);
	if (poll(&p, keys ? 1 : 0, (int)ms) <= 0)
		return false;
	char c;
	return read(STDIN_FILENO, &c, 1) == 1 && (c == 'q' || c == 3 || c == 27);
}

static int loop(struct rdv_client *c, const struct rdv_invocation *in, int64_t interval, long limit)
{
	struct reading before = {NULL, 0}, now;
	int code = 0;
	for (long n = 0; code == 0 && (limit == 0 || n < limit); n++) {
		json_t *routes;
		code = rdv_client_all(c, "/v1/routes", &routes);
		if (code == 0) {
			now = (struct reading){json_incref(routes), rdv_mono_now_us()};
			draw(in, &now, before.routes ? &before : &now);
			json_decref(before.routes);
			before = now;
		}
		json_decref(routes);
		if (code == 0 && n + 1 != limit && wait_key(interval))
			break;
	}
	json_decref(before.routes);
	return code;
}

static int run(struct rdv_invocation *in)
{
	int64_t interval = 1000;
	const char *text = rdv_option(in, RDV_OPT_INTERVAL), *limit = rdv_option(in, RDV_OPT_LIMIT);
	if (text &&
	    (rdv_duration_parse(rdv_slice_text(text), &interval) != REDRIVE_OK || interval < 100 || interval > 3600000))
		return rdv_command_fail(2, "--interval %s: give 100ms to 1h", text);
	struct rdv_client *c;
	int code = rdv_client_open(in, &c);
	if (code)
		return code;
	struct termios saved, raw;
	bool terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &saved) == 0;
	if (terminal) {
		raw = saved;
		raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	struct rdv_given no_pager = {RDV_OPT_NO_PAGER, ""};
	struct rdv_invocation plain = *in;
	plain.given = &no_pager;
	plain.given_count = 1;
	code = loop(c, &plain, interval, limit ? strtol(limit, NULL, 10) : 0);
	if (terminal)
		tcsetattr(STDIN_FILENO, TCSANOW, &saved);
	rdv_client_close(c);
	return code;
}

const struct rdv_command rdv_command_top = {
	.name = "top",
	.arguments = "",
	.doc = "Every route, live; q ends",
	.options = options,
	.common = RDV_COMMON_SERVER,
	.run = run,
};
