/* main.c - the table of verbs. */
#include <sodium.h>
#include <curl/curl.h>
#include <locale.h>
#include <signal.h>
#include "command.h"
#include "commands/commands.h"

const struct rdv_command *const rdv_commands[] = {
	&rdv_command_serve,         &rdv_command_demo,

	&rdv_command_check,         &rdv_command_explain,        &rdv_command_publish,
	&rdv_command_where,         &rdv_command_revoke,         &rdv_command_status,
	&rdv_command_top,           &rdv_command_routes_ls,      &rdv_command_routes_show,
	&rdv_command_routes_pause,  &rdv_command_routes_resume,  &rdv_command_routes_release,
	&rdv_command_routes_adopt,  &rdv_command_routes_discard, &rdv_command_dead_ls,
	&rdv_command_dead_show,     &rdv_command_dead_body,      &rdv_command_replay_plan,
	&rdv_command_replay_show,   &rdv_command_replay_ls,      &rdv_command_replay_approve,
	&rdv_command_replay_start,  &rdv_command_replay_pause,   &rdv_command_replay_resume,
	&rdv_command_replay_rate,   &rdv_command_replay_cancel,  &rdv_command_replay_watch,
	&rdv_command_token_add,     &rdv_command_token_ls,       &rdv_command_token_rm,
	&rdv_command_journal_check, &rdv_command_journal_dump,   &rdv_command_kafka_topics,
	&rdv_command_completion,    &rdv_command_reference,      NULL,
};

int main(int argc, char **argv)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	signal(SIGPIPE, SIG_IGN);
	if (sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
		return rdv_command_fail(1, "the libraries cannot be set up");
	return rdv_command_main(argc, argv);
}
