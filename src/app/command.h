/* command.h - the one table of verbs: the command line, its help, the man pages and the shell completion are made from
 * it.
 *
 * A verb is one or two words ("publish", "dead ls") with options of its own and the common ones. Options are parsed by
 * argp and kept as a list; commands ask for them by key. Exit codes: 0 done, 1 failed, 2 wrong command line, 3 not
 * found, 4 unreachable, 5 not allowed, 6 refused by a check. */
#ifndef RDV_APP_COMMAND_H
#define RDV_APP_COMMAND_H
#include <argp.h>
#include "../base/bytes.h"

struct rdv_given {
	int key;
	const char *value; /* "" for an option without argument; borrows from argv */
};

struct rdv_command;
struct rdv_invocation {
	const struct rdv_command *command;
	struct rdv_given *given; /* owns */
	size_t given_count;
	const char **args; /* owns the array */
	size_t arg_count;
	bool json; /* -o json */
};

enum {                        /* which common options a verb takes */
       RDV_COMMON_SERVER = 1, /* --server, --token-file, --ca-file */
       RDV_COMMON_OUTPUT = 2, /* -o, --no-pager */
};

struct rdv_command {
	const char *name, *arguments, *doc;
	const struct argp_option *options; /* ends with {0}; NULL = none */
	int common;
	size_t args_min, args_max; /* SIZE_MAX = any number */
	int (*run)(struct rdv_invocation *in);
};

extern const struct rdv_command *const rdv_commands[]; /* NULL-terminated; grouped as help shows them */

/* Keys of options without a letter, shared by all verbs. */
enum {
	RDV_OPT_SERVER = 0x100,
	RDV_OPT_TOKEN_FILE,
	RDV_OPT_CA_FILE,
	RDV_OPT_NO_PAGER,
	RDV_OPT_DATA,
	RDV_OPT_LISTEN,
	RDV_OPT_PORT_FILE,
	RDV_OPT_LOG,
	RDV_OPT_LOG_LEVEL,
	RDV_OPT_DRAIN,
	RDV_OPT_ONLY,
	RDV_OPT_FOR,
	RDV_OPT_EFFECTIVE,
	RDV_OPT_REFERENCE,
	RDV_OPT_ROUTE,
	RDV_OPT_KEY,
	RDV_OPT_ID,
	RDV_OPT_HEADER,
	RDV_OPT_DELAY,
	RDV_OPT_LINES,
	RDV_OPT_NDJSON,
	RDV_OPT_CONTENT_TYPE,
	RDV_OPT_NULL,
	RDV_OPT_NOT_BEFORE,
	RDV_OPT_LIMIT,
	RDV_OPT_CURSOR,
	RDV_OPT_ALL,
	RDV_OPT_ROLE,
	RDV_OPT_TOKENS_FILE,
	RDV_OPT_REASON,
	RDV_OPT_RATE,
	RDV_OPT_CAP,
	RDV_OPT_NAME,
	RDV_OPT_DIGEST,
	RDV_OPT_EXCLUDE,
	RDV_OPT_TARGET,
	RDV_OPT_REPAIR,
	RDV_OPT_INTERVAL,
	RDV_OPT_SHELL,
	RDV_OPT_EXPIRES,
	RDV_OPT_SORT,
	RDV_OPT_RAMP,
	RDV_OPT_YES,
	RDV_OPT_FROM,
	RDV_OPT_TO,
	RDV_OPT_PRINT,
	RDV_OPT_CREATE,
	RDV_OPT_CHECK,
	RDV_OPT_PRINCIPAL
};

/* The last value given, or NULL. */
const char *rdv_option(const struct rdv_invocation *in, int key);
bool rdv_option_given(const struct rdv_invocation *in, int key);
/* "redrive: <text>" on standard error; returns `code`. */
int rdv_command_fail(int code, const char *fmt, ...) RDV_PRINTF(2, 3);
/* Every finding as FILE:LINE:COLUMN: text, on standard error. */
struct rdv_findings;
void rdv_command_findings(const char *file, const struct rdv_findings *findings);
/* Parses and runs; returns the exit code. */
int rdv_command_main(int argc, char **argv);
#endif
