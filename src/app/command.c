/* command.c - finds the verb, parses its options by argp, runs it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/text.h"
#include "command.h"
#include "settings.h"

const char *argp_program_version = "redrive " RDV_VERSION_TEXT; /* argp wants globals by these names */

const char *rdv_option(const struct rdv_invocation *in, int key)
{
	for (size_t i = in->given_count; i > 0; i--)
		if (in->given[i - 1].key == key)
			return in->given[i - 1].value;
	return NULL;
}

bool rdv_option_given(const struct rdv_invocation *in, int key)
{
	return rdv_option(in, key) != NULL;
}

int rdv_command_fail(int code, const char *fmt, ...)
{
	va_list args;
	fflush(stdout);
	fputs("redrive: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return code;
}

void rdv_command_findings(const char *file, const struct rdv_findings *f)
{
	struct rdv_buffer line;
	rdv_buffer_init(&line, 0);
	for (size_t i = 0; i < f->count; i++)
		fprintf(stderr, "%s\n", rdv_finding_format(file, &f->items[i], &line));
	rdv_buffer_done(&line);
}

static const struct argp_option server_options[] = {
	{"server", RDV_OPT_SERVER, "URL", 0,
	 "Address of the server (default: REDRIVE_SERVER, else http://127.0.0.1:7337)", 90},
	{"token-file", RDV_OPT_TOKEN_FILE, "FILE", 0, "File that holds the token (default: REDRIVE_TOKEN)", 90},
	{"ca-file", RDV_OPT_CA_FILE, "FILE", 0,
	 "Certificates to trust of an https:// server, PEM (default: REDRIVE_CA_FILE, else the system's)", 90},
	{0},
};
static const struct argp_option output_options[] = {
	{"output", 'o', "FORMAT", 0, "table (default) or json: exactly what the API returns", 90},
	{"no-pager", RDV_OPT_NO_PAGER, NULL, 0, "Print long tables as they are", 90},
	{0},
};

static error_t parse_common(int key, char *value, struct argp_state *state)
{
	struct rdv_invocation *in = state->input;
	if (key == 'o') {
		if (strcmp(value, "json") != 0 && strcmp(value, "table") != 0)
			argp_error(state, "-o %s: allowed are table and json", value);
		in->json = strcmp(value, "json") == 0;
		return 0;
	}
	if (key != RDV_OPT_SERVER && key != RDV_OPT_TOKEN_FILE && key != RDV_OPT_CA_FILE && key != RDV_OPT_NO_PAGER)
		return ARGP_ERR_UNKNOWN;
	in->given[in->given_count++] = (struct rdv_given){key, value ? value : ""};
	return 0;
}

static error_t parse_own(int key, char *value, struct argp_state *state)
{
	struct rdv_invocation *in = state->input;
	switch (key) {
	case ARGP_KEY_INIT:
		for (size_t i = 0; state->root_argp->children && state->root_argp->children[i].argp; i++)
			state->child_inputs[i] = in;
		return 0;
	case ARGP_KEY_ARG:
		if (in->arg_count == in->command->args_max)
			argp_error(state, "too many arguments: '%s'", value);
		in->args[in->arg_count++] = value;
		return 0;
	case ARGP_KEY_END:
		if (in->arg_count < in->command->args_min)
			argp_error(state, "an argument is missing: redrive %s %s", in->command->name,
				   in->command->arguments);
		return 0;
	case ARGP_KEY_NO_ARGS:
	case ARGP_KEY_SUCCESS:
	case ARGP_KEY_ERROR:
	case ARGP_KEY_FINI:
	case ARGP_KEY_ARGS:
		return ARGP_ERR_UNKNOWN;
	default:
		in->given[in->given_count++] = (struct rdv_given){key, value ? value : ""};
		return 0;
	}
}

static const struct argp server_argp = {server_options, parse_common, NULL, NULL, NULL, NULL, NULL};
static const struct argp output_argp = {output_options, parse_common, NULL, NULL, NULL, NULL, NULL};

static int run_command(const struct rdv_command *command, int argc, char **argv)
{
	struct rdv_invocation in = {.command = command};
	struct argp_child children[3] = {{0}};
	size_t count = 0;
	if (command->common & RDV_COMMON_SERVER)
		children[count++] = (struct argp_child){&server_argp, 0, "The server:", 90};
	if (command->common & RDV_COMMON_OUTPUT)
		children[count++] = (struct argp_child){&output_argp, 0, "Output:", 91};
	static const struct argp_option none[] = {{0}};
	struct argp argp = {command->options ? command->options : none,
			    parse_own,
			    command->arguments,
			    command->doc,
			    children,
			    NULL,
			    NULL};
	char name[64];
	snprintf(name, sizeof name, "redrive %s", command->name);
	argv[0] = name;
	in.given = calloc((size_t)argc + 1, sizeof *in.given);
	in.args = calloc((size_t)argc + 1, sizeof *in.args);
	int code = 1;
	argp_err_exit_status = 2;
	if (in.given && in.args && argp_parse(&argp, argc, argv, 0, NULL, &in) == 0)
		code = command->run(&in);
	if (fflush(stdout) != 0 && code == 0 && errno != EPIPE)
		code = rdv_command_fail(1, "standard output: %s", strerror(errno));
	free(in.given);
	free(in.args);
	return code;
}

/* Number of words of the command's name that argv[1..] holds, or 0. */
static int match_words(const struct rdv_command *command, int argc, char **argv)
{
	const char *space = strchr(command->name, ' ');
	size_t first = space ? (size_t)(space - command->name) : strlen(command->name);
	if (argc < 2 || strlen(argv[1]) != first || strncmp(argv[1], command->name, first) != 0)
		return 0;
	if (!space)
		return 1;
	return argc >= 3 && strcmp(argv[2], space + 1) == 0 ? 2 : 0;
}

static void print_usage(FILE *out, const char *group)
{
	fprintf(out, "usage: redrive COMMAND [OPTION...] [ARGUMENT...]\n\n");
	for (size_t i = 0; rdv_commands[i]; i++) {
		const struct rdv_command *c = rdv_commands[i];
		if (group && strncmp(c->name, group, strlen(group)) != 0)
			continue;
		int size = (int)strcspn(c->doc, "\v\n");
		fprintf(out, "  %-16s %.*s\n", c->name, size, c->doc);
	}
	fprintf(out, "\n'redrive COMMAND --help' explains a command.\n");
}

/* `redrive dead`: the commands that begin with this word; -1 if none does. */
static int group_usage(const char *word, const char *second)
{
	char group[64];
	snprintf(group, sizeof group, "%s ", word);
	size_t i = 0;
	while (rdv_commands[i] && strncmp(rdv_commands[i]->name, group, strlen(group)) != 0)
		i++;
	if (!rdv_commands[i])
		return -1;
	if (second && (strcmp(second, "--help") == 0 || strcmp(second, "-?") == 0)) {
		print_usage(stdout, group);
		return 0;
	}
	if (second && second[0] != '-')
		rdv_command_fail(2, "'%s %s' is no command", word, second);
	else
		rdv_command_fail(2, "'%s' needs one more word", word);
	print_usage(stderr, group);
	return 2;
}

static int unknown_command(const char *word, const char *second)
{
	const char *names[128];
	size_t count = 0;
	char whole[128];
	int code = group_usage(word, second);
	if (code >= 0)
		return code;
	if (second && second[0] == '-')
		second = NULL;
	while (rdv_commands[count] && count < 128) {
		names[count] = rdv_commands[count]->name;
		count++;
	}
	snprintf(whole, sizeof whole, "%s%s%s", word, second ? " " : "", second ? second : "");
	const char *near = rdv_nearest(whole, names, count);
	if (!near)
		near = rdv_nearest(word, names, count);
	return rdv_command_fail(2, "'%s' is no command%s%s%s; 'redrive help' lists them", word,
				near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int rdv_command_main(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr, NULL);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		print_usage(stdout, NULL);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "version") == 0) {
		printf("%s\n", argp_program_version);
		return 0;
	}
	for (size_t i = 0; rdv_commands[i]; i++) {
		int words = match_words(rdv_commands[i], argc, argv);
		if (words)
			return run_command(rdv_commands[i], argc - words, argv + words);
	}
	return unknown_command(argv[1], argc > 2 ? argv[2] : NULL);
}
