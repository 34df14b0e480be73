/* commands.h - the verbs, one file per group; the table in main.c lists them. */
#ifndef RDV_APP_COMMANDS_H
#define RDV_APP_COMMANDS_H
#include "../command.h"

extern const struct rdv_command rdv_command_serve, rdv_command_demo, rdv_command_check, rdv_command_explain;
extern const struct rdv_command rdv_command_publish, rdv_command_where, rdv_command_revoke;
extern const struct rdv_command rdv_command_status, rdv_command_top;
extern const struct rdv_command rdv_command_routes_ls, rdv_command_routes_show, rdv_command_routes_pause,
	rdv_command_routes_resume, rdv_command_routes_release, rdv_command_routes_adopt, rdv_command_routes_discard;
extern const struct rdv_command rdv_command_dead_ls, rdv_command_dead_show, rdv_command_dead_body;
extern const struct rdv_command rdv_command_replay_plan, rdv_command_replay_show, rdv_command_replay_ls,
	rdv_command_replay_approve, rdv_command_replay_start, rdv_command_replay_pause, rdv_command_replay_resume,
	rdv_command_replay_rate, rdv_command_replay_cancel, rdv_command_replay_watch;
extern const struct rdv_command rdv_command_token_add, rdv_command_token_ls, rdv_command_token_rm;
extern const struct rdv_command rdv_command_journal_check, rdv_command_journal_dump;
extern const struct rdv_command rdv_command_kafka_topics;
extern const struct rdv_command rdv_command_completion, rdv_command_reference;

/* A configuration, judged; its findings are printed. Returns the exit code; settings are to be freed in every case. */
struct rdv_settings;
int rdv_command_load(const char *file, struct rdv_settings *s);
#endif
