/* generate.c - redrive completion and redrive reference: shell completion, man page and references, from the program's
 * own tables. */
#include <stdio.h>
#include <stdlib.h>
#include "../../api/server.h"
#include "../settings.h"
#include "commands.h"

static size_t first_word(const char *name)
{
	return strcspn(name, " ");
}

static void bash_options(const struct argp_option *o)
{
	for (; o && o->name; o++)
		printf(" --%s", o->name);
}

/* Bash: first words, then second words or options. */
static void completion_bash(void)
{
	printf("_redrive() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words\n\tcase \"$COMP_CWORD ${COMP_WORDS[1]} "
	       "${COMP_WORDS[2]}\" in\n\t1*) words='");
	for (size_t i = 0; rdv_commands[i]; i++) {
		size_t size = first_word(rdv_commands[i]->name);
		if (i == 0 || first_word(rdv_commands[i - 1]->name) != size ||
		    strncmp(rdv_commands[i - 1]->name, rdv_commands[i]->name, size) != 0)
			printf("%.*s ", (int)size, rdv_commands[i]->name);
	}
	printf("help' ;;\n");
	for (size_t i = 0; rdv_commands[i]; i++) {
		const struct rdv_command *c = rdv_commands[i];
		const char *second = strchr(c->name, ' ');
		if (second && strcmp(c->arguments, "") == 0)
			second = NULL;
		printf("\t*' %s%s'*) words='--help", c->name, strchr(c->name, ' ') ? "" : " ");
		bash_options(c->options);
		if (c->common & RDV_COMMON_SERVER)
			printf(" --server --token-file");
		if (c->common & RDV_COMMON_OUTPUT)
			printf(" --output --no-pager");
		printf("' ;;\n");
	}
	for (size_t i = 0; rdv_commands[i]; i++) {
		size_t size = first_word(rdv_commands[i]->name);
		if (!rdv_commands[i]->name[size] ||
		    (i > 0 && strncmp(rdv_commands[i - 1]->name, rdv_commands[i]->name, size + 1) == 0))
			continue;
		printf("\t'2 %.*s '*) words='", (int)size, rdv_commands[i]->name);
		for (size_t j = i;
		     rdv_commands[j] && strncmp(rdv_commands[j]->name, rdv_commands[i]->name, size + 1) == 0; j++)
			printf("%s ", rdv_commands[j]->name + size + 1);
		printf("' ;;\n");
	}
	printf("\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\t[ ${#COMPREPLY[@]} -gt 0 ] || "
	       "COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
	       "complete -o filenames -F _redrive redrive\n");
}

static int run_completion(struct rdv_invocation *in)
{
	if (strcmp(in->args[0], "bash") == 0)
		completion_bash();
	else if (strcmp(in->args[0], "zsh") == 0)
		printf("autoload -U +X bashcompinit && bashcompinit\n"), completion_bash();
	else
		return rdv_command_fail(2, "'%s': allowed are bash and zsh", in->args[0]);
	return 0;
}

const struct rdv_command rdv_command_completion = {.name = "completion",
						   .arguments = "bash|zsh",
						   .doc = "Shell completion: eval \"$(redrive completion bash)\"",
						   .args_min = 1,
						   .args_max = 1,
						   .run = run_completion};

/* ---- references ---- */

static void roff(const char *text)
{
	for (const char *p = text; *p; p++) {
		if (*p == '\\')
			fputs("\\e", stdout);
		else if (*p == '-')
			fputs("\\-", stdout);
		else if (*p == '\v')
			fputs("\n.br\n", stdout);
		else
			putchar(*p);
	}
}

static void man_options(const struct argp_option *o)
{
	for (; o && o->name; o++) {
		printf(".TP\n.B \\-\\-");
		roff(o->name);
		if (o->key > 0 && o->key < 0x100)
			printf(", \\-%c", o->key);
		if (o->arg) {
			printf(" ");
			roff(o->arg);
		}
		printf("\n");
		roff(o->doc);
		printf("\n");
	}
}

static const char server_options[] =
	"--server URL, --token-file FILE, --ca-file FILE (certificates to trust of an https:// server); those that "
	"print a table: -o json (exactly what the API returns), --no-pager.";
static const char exit_codes[] =
	"0 done; 1 failed; 2 the command line is wrong; 3 not found; 4 the server cannot be reached; 5 not allowed; "
	"6 refused: by a check, by the state of things, or for corruption.";
#define ENVIRONMENT "REDRIVE_SERVER, REDRIVE_TOKEN, REDRIVE_CA_FILE, NO_COLOR, PAGER"

static void man_page(void)
{
	printf(".TH REDRIVE 1 \"\" \"redrive " RDV_VERSION_TEXT
	       "\" \"User commands\"\n.SH NAME\nredrive \\- retry and dead\\-letter system for message consumers\n"
	       ".SH SYNOPSIS\n.B redrive\nCOMMAND [OPTION...] [ARGUMENT...]\n.SH COMMANDS\n");
	for (size_t i = 0; rdv_commands[i]; i++) {
		const struct rdv_command *c = rdv_commands[i];
		printf(".SS ");
		roff(c->name);
		printf(" ");
		roff(c->arguments);
		printf("\n");
		roff(c->doc);
		printf("\n");
		man_options(c->options);
	}
	printf(".SH OPTIONS OF ALL THAT TALK TO A SERVER\n");
	roff(server_options);
	printf("\n.SH EXIT STATUS\n%s\n.SH ENVIRONMENT\n" ENVIRONMENT "\n", exit_codes);
}

static void commands_page(void)
{
	printf("# Commands\n\nMade by `redrive reference commands` from the table that the program itself uses.\n\n"
	       "Options of all that talk to a server: %s\n\nExit status: %s\n\nEnvironment: " ENVIRONMENT ".\n",
	       server_options, exit_codes);
	for (size_t i = 0; rdv_commands[i]; i++) {
		const struct rdv_command *c = rdv_commands[i];
		printf("\n## redrive %s %s\n\n", c->name, c->arguments);
		for (const char *p = c->doc; *p; p++)
			fputs(*p == '\v' ? "\n\n" : (char[2]){*p, 0}, stdout);
		printf("\n");
		if (c->options && c->options->name)
			printf("\n| option | meaning |\n|---|---|\n");
		for (const struct argp_option *o = c->options; o && o->name; o++)
			printf("| `--%s%s%s` | %s |\n", o->name, o->arg ? " " : "", o->arg ? o->arg : "", o->doc);
	}
}

static void print_made(void (*make)(struct rdv_buffer *out))
{
	struct rdv_buffer text;
	rdv_buffer_init(&text, 0);
	make(&text);
	fputs(rdv_buffer_string(&text), stdout);
	rdv_buffer_done(&text);
}

static int run_reference(struct rdv_invocation *in)
{
	const char *what = in->args[0];
	if (strcmp(what, "configuration") == 0)
		print_made(rdv_settings_reference);
	else if (strcmp(what, "api") == 0)
		print_made(rdv_api_reference);
	else if (strcmp(what, "openapi") == 0)
		print_made(rdv_api_openapi);
	else if (strcmp(what, "metrics") == 0)
		print_made(rdv_api_metrics_reference);
	else if (strcmp(what, "man") == 0)
		man_page();
	else if (strcmp(what, "commands") == 0)
		commands_page();
	else
		return rdv_command_fail(2, "'%s': allowed are configuration, api, openapi, metrics, commands, man",
					what);
	return 0;
}

const struct rdv_command rdv_command_reference = {
	.name = "reference",
	.arguments = "configuration|api|openapi|metrics|commands|man",
	.doc = "A reference, made from the tables that the program itself uses",
	.args_min = 1,
	.args_max = 1,
	.run = run_reference};
