/* token.c - redrive token: the tokens file, without a server. A token's text is printed once and stored only as a hash.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../api/tokens.h"
#include "../output.h"
#include "commands.h"

static const char *tokens_file(const struct rdv_invocation *in)
{
	const char *file = rdv_option(in, RDV_OPT_TOKENS_FILE);
	return file ? file : "tokens.yaml";
}

static int load(const struct rdv_invocation *in, struct rdv_tokens *tokens, bool may_be_missing)
{
	struct rdv_error error = {""};
	memset(tokens, 0, sizeof *tokens);
	if (may_be_missing && access(tokens_file(in), F_OK) != 0)
		return 0;
	enum redrive_status status = rdv_tokens_load(tokens_file(in), tokens, &error);
	return status == REDRIVE_OK ? 0 : rdv_command_fail(rdv_status_info(status)->exit, "%s", error.text);
}

static int save(const struct rdv_invocation *in, const struct rdv_tokens *tokens)
{
	struct rdv_error error = {""};
	enum redrive_status status = rdv_tokens_save(tokens_file(in), tokens, &error);
	return status == REDRIVE_OK ? 0 : rdv_command_fail(rdv_status_info(status)->exit, "%s", error.text);
}

static int run_add(struct rdv_invocation *in)
{
	const char *role_name = rdv_option(in, RDV_OPT_ROLE);
	enum rdv_role role;
	if (!role_name || !rdv_role_parse(role_name, &role))
		return rdv_command_fail(2, "--role must be viewer, reader, operator, approver or admin");
	const char *routes[256];
	size_t count = 0;
	for (size_t i = 0; i < in->given_count && count < 256; i++)
		if (in->given[i].key == RDV_OPT_ROUTE)
			routes[count++] = in->given[i].value;
	struct rdv_tokens tokens;
	struct rdv_error error = {""};
	char secret[RDV_TOKEN_TEXT];
	int code = load(in, &tokens, true);
	if (code == 0) {
		enum redrive_status status = rdv_tokens_add(&tokens, in->args[0], role, routes, count, secret, &error);
		code = status == REDRIVE_OK ? save(in, &tokens)
					    : rdv_command_fail(rdv_status_info(status)->exit, "%s", error.text);
	}
	if (code == 0)
		printf("%s, role %s; keep this token, it is not shown again: %s\n", in->args[0], role_name, secret);
	rdv_tokens_done(&tokens);
	return code;
}

static int run_ls(struct rdv_invocation *in)
{
	static const struct rdv_column columns[] = {
		{"name", false, 0}, {"role", false, 0}, {"routes", false, 0}, {"added", false, 0}};
	struct rdv_tokens tokens;
	int code = load(in, &tokens, false);
	struct rdv_table *t = code == 0 ? rdv_table_new(columns, 4) : NULL;
	for (size_t i = 0; code == 0 && i < tokens.count; i++) {
		const struct rdv_token *token = &tokens.items[i];
		struct rdv_buffer routes;
		rdv_buffer_init(&routes, 0);
		for (size_t r = 0; r < token->route_count; r++)
			rdv_buffer_printf(&routes, "%s%s", r ? " " : "", token->routes[r]);
		rdv_table_cell(t, "%s", token->name);
		rdv_table_cell(t, "%s", rdv_role_name(token->role));
		rdv_table_cell(t, "%s", token->route_count ? rdv_buffer_string(&routes) : "all");
		rdv_table_cell(t, "%s", token->added);
		rdv_table_row(t);
		rdv_buffer_done(&routes);
	}
	rdv_table_print(t, in);
	rdv_tokens_done(&tokens);
	return code;
}

static int run_rm(struct rdv_invocation *in)
{
	struct rdv_tokens tokens;
	int code = load(in, &tokens, false);
	if (code == 0 && rdv_tokens_remove(&tokens, in->args[0]) != REDRIVE_OK)
		code = rdv_command_fail(3, "%s has no token '%s'", tokens_file(in), in->args[0]);
	if (code == 0)
		code = save(in, &tokens);
	rdv_tokens_done(&tokens);
	return code;
}

static const struct argp_option add_options[] = {
	{"role", RDV_OPT_ROLE, "ROLE", 0, "viewer, reader, operator, approver or admin", 1},
	{"route", RDV_OPT_ROUTE, "NAME", 0, "Only this route; may be given several times", 1},
	{"tokens-file", RDV_OPT_TOKENS_FILE, "FILE", 0, "The tokens file (default tokens.yaml); made if missing", 1},
	{0},
};
static const struct argp_option file_options[] = {
	{"tokens-file", RDV_OPT_TOKENS_FILE, "FILE", 0, "The tokens file (default tokens.yaml)", 1}, {0}};

const struct rdv_command rdv_command_token_add = {
	.name = "token add",
	.arguments = "NAME --role ROLE",
	.doc = "Make a token; its text is printed once",
	.options = add_options,
	.args_min = 1,
	.args_max = 1,
	.run = run_add,
};
const struct rdv_command rdv_command_token_ls = {.name = "token ls",
						 .arguments = "",
						 .doc = "List tokens: names, roles, routes",
						 .options = file_options,
						 .run = run_ls};
const struct rdv_command rdv_command_token_rm = {.name = "token rm",
						 .arguments = "NAME",
						 .doc = "Remove a token; the server takes it on SIGHUP",
						 .options = file_options,
						 .args_min = 1,
						 .args_max = 1,
						 .run = run_rm};
