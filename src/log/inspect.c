/* inspect.c - the log offline: check, repair, dump (under construction). */
#include "recover.h"

enum redrive_status rdv_log_check(const char *dir, bool repair, void (*bad)(void *ctx, struct rdv_position at, const char *why), void *ctx,
				  struct rdv_log_report *out, struct rdv_error *error)
{
	return rdv_error_set(error, REDRIVE_INTERNAL, "check: not built yet");
}
enum redrive_status rdv_log_dump(const char *dir, rdv_log_fold each, void *ctx, struct rdv_error *error)
{
	return rdv_error_set(error, REDRIVE_INTERNAL, "dump: not built yet");
}
