/* dead.c - redrive dead: list, show and fetch dead letters. */
#include <errno.h>
#include <stdio.h>
#include "../client.h"
#include "../output.h"
#include "commands.h"

static const struct argp_option ls_options[] = {
	{"limit", RDV_OPT_LIMIT, "N", 0, "At most so many letters (1 to 1000, default 50)", 1},
	{"cursor", RDV_OPT_CURSOR, "TEXT", 0, "Go on where an earlier answer ended", 1},
	{"from", RDV_OPT_FROM, "TIME", 0, "Dead at or after", 1},
	{"to", RDV_OPT_TO, "TIME", 0, "Dead before", 1},
	{"sort", RDV_OPT_SORT, "FIELD", 0, "dead_at, or -dead_at (default): newest first", 1},
	{0},
};

static void print_letters(const struct rdv_invocation *in, const json_t *answer)
{
	static const struct rdv_column columns[] = {{"letter", false, 26}, {"dead at", false, 24}, {"route", false, 8},
						    {"reason", false, 9},  {"state", false, 8},    {"key", false, 0},
						    {"message", false, 0}, {"error", false, 12}};
	struct rdv_table *t = rdv_table_new(columns, sizeof columns / sizeof columns[0]);
	size_t i;
	json_t *letter;
	json_array_foreach(json_object_get(answer, "items"), i, letter)
	{
		rdv_table_cell(t, "%s", rdv_json_text(letter, "id", 0));
		rdv_table_cell(t, "%s", rdv_json_text(letter, "dead_at", 0));
		rdv_table_cell(t, "%s", rdv_json_text(letter, "route", 0));
		rdv_table_cell(t, "%s", rdv_json_text(letter, "reason", 0));
		rdv_table_cell(t, "%s", rdv_json_text(letter, "state", 0));
		rdv_table_cell(t, "%s", rdv_json_text(letter, "key", 0));
		rdv_table_cell(t, "%s", rdv_json_text(letter, "message_id", 0));
		const char *class = rdv_json_text(letter, "error.class", 0),
			   *text = rdv_json_text(letter, "error.text", 1);
		bool is_said = strncmp(text, class, strlen(class)) == 0; /* "Class: text" */
		rdv_table_cell(t, "%s%s%s", is_said ? "" : class, is_said || !*text ? "" : " ", text);
		rdv_table_row(t);
	}
	rdv_table_print(t, in);
	if (i == 0)
		fprintf(stderr, "no letter matches\n");
	const char *next = rdv_json_text(answer, "next", 0);
	if (*next)
		printf("there is more: --cursor %s\n", next);
}

static int run_ls(struct rdv_invocation *in)
{
	struct rdv_buffer path, q;
	rdv_buffer_init(&path, 1 << 20);
	rdv_buffer_init(&q, 1 << 16);
	for (size_t i = 0; i < in->arg_count; i++) {
		rdv_buffer_text(&q, i ? " " : "");
		rdv_buffer_text(&q, in->args[i]);
	}
	rdv_buffer_text(&path, "/v1/dead-letters");
	rdv_query_add(&path, "q", q.size ? rdv_buffer_string(&q) : NULL);
	rdv_query_add(&path, "from", rdv_option(in, RDV_OPT_FROM));
	rdv_query_add(&path, "to", rdv_option(in, RDV_OPT_TO));
	rdv_query_add(&path, "sort", rdv_option(in, RDV_OPT_SORT));
	rdv_query_add(&path, "limit", rdv_option(in, RDV_OPT_LIMIT));
	rdv_query_add(&path, "cursor", rdv_option(in, RDV_OPT_CURSOR));
	rdv_buffer_done(&q);
	return rdv_client_show(in, &path, print_letters);
}

const struct rdv_command rdv_command_dead_ls = {
	.name = "dead ls",
	.arguments = "[QUERY...]",
	.doc = "List dead letters, newest first\vQUERY: route:NAME reason:REASON key:KEY key:\"two words\" "
	       "dead:2026-11-01..2026-11-05; all must match. The letters of one message, by its id or the "
	       "producer's: redrive where ID",
	.options = ls_options,
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.args_min = 0,
	.args_max = 64,
	.run = run_ls,
};

static void print_history(const json_t *letter, const struct rdv_invocation *in)
{
	static const struct rdv_column columns[] = {{"n", true, 0},        {"at", false, 24},     {"took", true, 0},
						    {"verdict", false, 7}, {"code", false, 0},    {"class", false, 0},
						    {"text", false, 12},   {"next at", false, 24}};
	struct rdv_table *t = rdv_table_new(columns, sizeof columns / sizeof columns[0]);
	size_t i;
	json_t *line;
	json_array_foreach(json_object_get(letter, "history"), i, line)
	{
		rdv_table_cell(t, "%s", rdv_json_text(line, "n", 0));
		rdv_table_cell(t, "%s", rdv_json_text(line, "at", 0));
		rdv_table_cell(t, "%s ms", rdv_json_text(line, "took_ms", 0));
		rdv_table_cell(t, "%s", rdv_json_text(line, "verdict", 0));
		rdv_table_cell(t, "%s", rdv_json_text(line, "code", 0));
		rdv_table_cell(t, "%s", rdv_json_text(line, "class", 0));
		rdv_table_cell(t, "%s", rdv_json_text(line, "text", 0));
		rdv_table_cell(t, "%s", rdv_json_text(line, "next_at", 0));
		rdv_table_row(t);
	}
	rdv_table_print(t, in);
	if (rdv_json_int(letter, "history_omitted"))
		printf("(%s attempts between are only counted)\n", rdv_json_text(letter, "history_omitted", 0));
}

static void print_member(const char *name, const char *text)
{
	printf("%-18s ", name);
	rdv_print_text(text, 19);
	putchar('\n');
}

static void print_letter(const struct rdv_invocation *in, const json_t *letter)
{
	static const char *const members[] = {"id",
					      "route",
					      "message_id",
					      "publish_id",
					      "key",
					      "reason",
					      "state",
					      "generation",
					      "replay",
					      "error.class",
					      "error.code",
					      "error.text",
					      "fingerprint",
					      "produced_at",
					      "first_failed_at",
					      "last_failed_at",
					      "dead_at",
					      "expires_at",
					      "attempts.failures",
					      "attempts.timeouts",
					      "attempts.outage",
					      "body_size",
					      "body_sha256",
					      "content_type"};
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
		print_member(members[i], rdv_json_text(letter, members[i], 0));
	size_t i;
	json_t *header;
	json_array_foreach(json_object_get(letter, "headers"), i, header)
	{
		char line[1100];
		snprintf(line, sizeof line, "%s: %s", json_string_value(json_array_get(header, 0)),
			 json_string_value(json_array_get(header, 1)));
		print_member("header", line);
	}
	putchar('\n');
	print_history(letter, in);
}

static void letter_path(struct rdv_buffer *path, const char *id, const char *more)
{
	rdv_buffer_init(path, 1 << 16);
	rdv_buffer_text(path, "/v1/dead-letters");
	rdv_path_add(path, id);
	rdv_buffer_text(path, more);
}

static int run_show(struct rdv_invocation *in)
{
	struct rdv_buffer path;
	letter_path(&path, in->args[0], "");
	return rdv_client_show(in, &path, print_letter);
}

const struct rdv_command rdv_command_dead_show = {
	.name = "dead show",
	.arguments = "ID",
	.doc = "One letter: why, and every attempt",
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.args_min = 1,
	.args_max = 1,
	.run = run_show,
};

static int run_body(struct rdv_invocation *in)
{
	struct rdv_client *c;
	int code = rdv_client_open(in, &c);
	if (code)
		return code;
	FILE *to = in->arg_count > 1 ? fopen(in->args[1], "we") : stdout;
	struct rdv_buffer path;
	letter_path(&path, in->args[0], "/body");
	code = to ? rdv_client_download(c, rdv_buffer_string(&path), to)
		  : rdv_command_fail(1, "'%s': %s", in->args[1], strerror(errno));
	if (to && to != stdout && fclose(to) != 0 && code == 0)
		code = rdv_command_fail(1, "'%s': %s", in->args[1], strerror(errno));
	rdv_buffer_done(&path);
	rdv_client_close(c);
	return code;
}

const struct rdv_command rdv_command_dead_body = {
	.name = "dead body",
	.arguments = "ID [FILE]",
	.doc = "The body of a letter, byte for byte, to standard output or a file",
	.common = RDV_COMMON_SERVER,
	.args_min = 1,
	.args_max = 2,
	.run = run_body,
};
