/* replay.c - redrive replay: plan, approve, start, watch. A plan freezes its set; approving names its digest. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "../../base/quantity.h"
#include "../client.h"
#include "../output.h"
#include "commands.h"

static void print_preflight(const json_t *plan)
{
	size_t i;
	json_t *check;
	json_array_foreach(json_object_get(plan, "preflight"), i, check)
		printf("  %-5s %-24s %s\n", rdv_json_text(check, "result", 0), rdv_json_text(check, "check", 1),
		       rdv_json_text(check, "detail", 2));
}

static void print_plan(const json_t *plan)
{
	static const char *const members[] = {"id",
					      "name",
					      "state",
					      "digest",
					      "selected",
					      "author",
					      "approver",
					      "rate",
					      "created_at",
					      "expires_at",
					      "stopped_by",
					      "result.acked",
					      "result.dead_again",
					      "result.skipped",
					      "result.unknown",
					      "result.not_reached"};
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		const char *text = rdv_json_text(plan, members[i], 0);
		if (*text)
			printf("%-18s ", members[i]), rdv_print_text(text, 19), putchar('\n');
	}
	print_preflight(plan);
}

static void show_plan(const struct rdv_invocation *in, const json_t *plan)
{
	if (in->json)
		rdv_print_json(plan);
	else
		print_plan(plan);
}

/* A word of 26 base32 characters is a letter's id; anything else is query language. */
static bool is_letter_id(const char *word)
{
	return strlen(word) == 26 && strspn(word, "abcdefghijklmnopqrstuvwxyz234567") == 26;
}

static int add_duration(json_t *body, const char *member, const char *text)
{
	int64_t ms;
	if (!text)
		return 0;
	if (rdv_duration_parse(rdv_slice_text(text), &ms) != REDRIVE_OK)
		return rdv_command_fail(2, "'%s' is no duration like 30s or 5m", text);
	json_object_set_new(body, member, json_integer(ms));
	return 0;
}

static json_t *plan_body(const struct rdv_invocation *in)
{
	json_t *body = json_object(), *ids = json_array(), *exclude = json_array();
	struct rdv_buffer q;
	rdv_buffer_init(&q, 1 << 16);
	for (size_t i = 0; i < in->arg_count; i++) {
		if (is_letter_id(in->args[i]))
			json_array_append_new(ids, json_string(in->args[i]));
		else
			rdv_buffer_printf(&q, "%s%s", q.size ? " " : "", in->args[i]);
	}
	for (size_t i = 0; i < in->given_count; i++)
		if (in->given[i].key == RDV_OPT_EXCLUDE)
			json_array_append_new(exclude, json_string(in->given[i].value));
	if (q.size)
		json_object_set_new(body, "q", json_string(rdv_buffer_string(&q)));
	if (json_array_size(ids))
		json_object_set(body, "ids", ids);
	if (json_array_size(exclude))
		json_object_set(body, "exclude_ids", exclude);
	json_decref(ids);
	json_decref(exclude);
	rdv_buffer_done(&q);
	static const struct {
		int key;
		const char *member;
	} texts[] = {{RDV_OPT_NAME, "name"},
		     {RDV_OPT_RATE, "rate"},
		     {RDV_OPT_REASON, "reason"},
		     {RDV_OPT_EXPIRES, "expires_at"}};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (rdv_option(in, texts[i].key))
			json_object_set_new(body, texts[i].member, json_string(rdv_option(in, texts[i].key)));
	if (rdv_option(in, RDV_OPT_TARGET))
		json_object_set_new(body, "target", json_pack("{s:s}", "route", rdv_option(in, RDV_OPT_TARGET)));
	return body;
}

static int add_number(json_t *body, const char *member, const char *text)
{
	char *end;
	if (!text)
		return 0;
	long long number = strtoll(text, &end, 10);
	if (end == text || *end || number < 1)
		return rdv_command_fail(2, "'%s' is no number from 1", text);
	json_object_set_new(body, member, json_integer(number));
	return 0;
}

/* A plan of which a check failed is never approved: what to do instead. */
static void print_next(const json_t *plan)
{
	const char *id = rdv_json_text(plan, "id", 0);
	size_t i;
	json_t *check;
	json_array_foreach(json_object_get(plan, "preflight"), i, check)
	{
		if (strcmp(rdv_json_text(check, "result", 1), "fail") != 0)
			continue;
		printf("\nthis plan cannot be approved: %s\nnext: %sredrive replay cancel %s\n",
		       rdv_json_text(check, "detail", 1),
		       strcmp(rdv_json_text(check, "check", 2), "routes") == 0
			       ? "plan again with --target ROUTE ('redrive routes ls' lists them), and "
			       : "",
		       id);
		return;
	}
	printf("\nnext: redrive replay approve %s --digest %s\n", id, rdv_json_text(plan, "digest", 1));
}

static int run_plan(struct rdv_invocation *in)
{
	struct rdv_client *c;
	json_t *body = plan_body(in);
	int code = add_duration(body, "ramp_ms", rdv_option(in, RDV_OPT_RAMP));
	if (code == 0)
		code = add_number(body, "cap", rdv_option(in, RDV_OPT_CAP));
	if (code == 0)
		code = rdv_client_open(in, &c);
	if (code) {
		json_decref(body);
		return code;
	}
	struct rdv_response response;
	code = rdv_client_post(c, "/v1/replays", body, &response);
	if (code == 0) {
		show_plan(in, response.json);
		if (!in->json)
			print_next(response.json);
	}
	rdv_response_done(&response);
	rdv_client_close(c);
	return code;
}

static const struct argp_option plan_options[] = {
	{"name", RDV_OPT_NAME, "TEXT", 0, "What people call it", 1},
	{"rate", RDV_OPT_RATE, "RATE", 0, "Letters sent at most, like 50/s", 1},
	{"ramp", RDV_OPT_RAMP, "DURATION", 0, "The rate grows to its full value over this time", 1},
	{"cap", RDV_OPT_CAP, "N", 0, "At most so many letters are sent", 1},
	{"exclude", RDV_OPT_EXCLUDE, "ID", 0, "Not this letter; may be given several times", 1},
	{"target", RDV_OPT_TARGET, "ROUTE", 0, "Another route than the letters' own", 1},
	{"expires", RDV_OPT_EXPIRES, "TIME", 0, "Not started after this time", 1},
	{"reason", RDV_OPT_REASON, "TEXT", 0, "Why, for the audit", 1},
	{0},
};

/* ---- verbs on a plan ---- */

static void plan_path(struct rdv_buffer *path, const char *id, const char *verb)
{
	rdv_buffer_init(path, 1 << 16);
	rdv_buffer_text(path, "/v1/replays");
	rdv_path_add(path, id);
	if (verb)
		rdv_path_add(path, verb);
}

static int act(struct rdv_invocation *in, const char *verb, json_t *body)
{
	struct rdv_client *c;
	int code = rdv_client_open(in, &c);
	if (code) {
		json_decref(body);
		return code;
	}
	struct rdv_buffer path;
	struct rdv_response response;
	plan_path(&path, in->args[0], verb);
	code = verb ? rdv_client_post(c, rdv_buffer_string(&path), body, &response)
		    : rdv_client_call(c, "GET", rdv_buffer_string(&path), NULL, &response);
	if (code == 0)
		show_plan(in, response.json);
	if (code == 0 && !in->json && verb && strcmp(verb, "approve") == 0)
		printf("\nnext: redrive replay start %s\n", in->args[0]);
	if (code == 0 && !in->json && verb && strcmp(verb, "start") == 0)
		printf("\nnext: redrive replay watch %s\n", in->args[0]);
	rdv_response_done(&response);
	rdv_buffer_done(&path);
	rdv_client_close(c);
	return code;
}

static int run_show(struct rdv_invocation *in)
{
	return act(in, NULL, NULL);
}

static int run_approve(struct rdv_invocation *in)
{
	const char *digest = rdv_option(in, RDV_OPT_DIGEST);
	if (!digest)
		return rdv_command_fail(
			2, "approving names what was looked at: --digest DIGEST (redrive replay show %s)", in->args[0]);
	return act(in, "approve", json_pack("{s:s}", "digest", digest));
}

static int run_start(struct rdv_invocation *in)
{
	return act(in, "start", NULL);
}

static int run_pause(struct rdv_invocation *in)
{
	return act(in, "pause", NULL);
}

static int run_resume(struct rdv_invocation *in)
{
	return act(in, "resume", NULL);
}

static int run_cancel(struct rdv_invocation *in)
{
	return act(in, "cancel", NULL);
}

static int run_rate(struct rdv_invocation *in)
{
	return act(in, "rate", json_pack("{s:s}", "rate", in->args[1]));
}

static void print_plans(const struct rdv_invocation *in, const json_t *answer)
{
	static const struct rdv_column columns[] = {
		{"plan", false, 8},   {"state", false, 9},      {"selected", true, 0},
		{"acked", true, 0},   {"dead again", true, 0},  {"skipped", true, 0},
		{"unknown", true, 0}, {"not reached", true, 0}, {"name", false, 0}};
	static const char *const members[] = {"id",
					      "state",
					      "selected",
					      "result.acked",
					      "result.dead_again",
					      "result.skipped",
					      "result.unknown",
					      "result.not_reached",
					      "name"};
	struct rdv_table *t = rdv_table_new(columns, sizeof columns / sizeof columns[0]);
	size_t i;
	json_t *plan;
	json_array_foreach(json_object_get(answer, "items"), i, plan)
	{
		for (size_t m = 0; m < sizeof members / sizeof members[0]; m++)
			rdv_table_cell(t, "%s", rdv_json_text(plan, members[m], 0));
		rdv_table_row(t);
	}
	rdv_table_print(t, in);
}

static int run_ls(struct rdv_invocation *in)
{
	return rdv_client_show_all(in, "/v1/replays", print_plans);
}

static bool is_over(const char *state)
{
	static const char *const over[] = {"finished", "stopped", "cancelled", "expired"};
	for (size_t i = 0; i < sizeof over / sizeof over[0]; i++)
		if (strcmp(state, over[i]) == 0)
			return true;
	return false;
}

static int run_watch(struct rdv_invocation *in)
{
	struct rdv_client *c;
	int code = rdv_client_open(in, &c);
	if (code)
		return code;
	struct rdv_buffer path;
	plan_path(&path, in->args[0], NULL);
	for (bool over = false; code == 0 && !over;) {
		struct rdv_response response;
		code = rdv_client_call(c, "GET", rdv_buffer_string(&path), NULL, &response);
		if (code == 0) {
			const json_t *plan = response.json;
			json_int_t selected = rdv_json_int(plan, "selected"),
				   open = rdv_json_int(plan, "result.not_reached");
			over = is_over(rdv_json_text(plan, "state", 0));
			rdv_progress(rdv_json_text(plan, "state", 0),
				     over ? (uint64_t)selected : (uint64_t)(selected - open), (uint64_t)selected);
			if (over)
				show_plan(in, plan);
		}
		rdv_response_done(&response);
		if (code == 0 && !over)
			nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
	}
	rdv_buffer_done(&path);
	rdv_client_close(c);
	return code;
}

static const struct argp_option approve_options[] = {
	{"digest", RDV_OPT_DIGEST, "TEXT", 0, "The digest of the plan that was looked at", 1}, {0}};

#define REPLAY_VERB(symbol, verb, arguments_, doc_, options_, least, most, run_)                                       \
	const struct rdv_command symbol = {.name = "replay " verb,                                                     \
					   .arguments = arguments_,                                                    \
					   .doc = doc_,                                                                \
					   .options = options_,                                                        \
					   .common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,                            \
					   .args_min = least,                                                          \
					   .args_max = most,                                                           \
					   .run = run_}
REPLAY_VERB(rdv_command_replay_plan, "plan", "QUERY|ID...", "Freeze a set of letters into a plan and check it",
	    plan_options, 1, SIZE_MAX, run_plan);
REPLAY_VERB(rdv_command_replay_show, "show", "PLAN", "A plan with its checks and results", NULL, 1, 1, run_show);
REPLAY_VERB(rdv_command_replay_ls, "ls", "", "List the plans, newest first", NULL, 0, 0, run_ls);
REPLAY_VERB(rdv_command_replay_approve, "approve", "PLAN --digest DIGEST", "Approve exactly this set", approve_options,
	    1, 1, run_approve);
REPLAY_VERB(rdv_command_replay_start, "start", "PLAN", "Start an approved plan", NULL, 1, 1, run_start);
REPLAY_VERB(rdv_command_replay_pause, "pause", "PLAN", "Stop sending; calls in flight end", NULL, 1, 1, run_pause);
REPLAY_VERB(rdv_command_replay_resume, "resume", "PLAN", "Go on", NULL, 1, 1, run_resume);
REPLAY_VERB(rdv_command_replay_rate, "rate", "PLAN RATE", "Change the rate, like 20/s", NULL, 2, 2, run_rate);
REPLAY_VERB(rdv_command_replay_cancel, "cancel", "PLAN", "End it; what was not sent stays as it was", NULL, 1, 1,
	    run_cancel);
REPLAY_VERB(rdv_command_replay_watch, "watch", "PLAN", "Show the progress until it ends", NULL, 1, 1, run_watch);
