/* journal.c - redrive journal: the log of a data directory, offline. Read-only unless --repair, which copies first. */
#include <inttypes.h>
#include <stdio.h>
#include "../../base/text.h"
#include "../../core/record.h"
#include "../../log/log.h"
#include "../output.h"
#include "commands.h"

static void tell_bad(void *ctx, struct rdv_position at, const char *why)
{
	fprintf(stderr, "segment %" PRIu32 " offset %" PRIu32 ": %s\n", at.segment, at.offset, why);
}

/* The log lies in DIR itself or in DIR/journal (a data directory). */
static const char *log_dir(const char *dir, char path[4096])
{
	snprintf(path, 4096, "%s/journal", dir);
	FILE *f = fopen(path, "re");
	if (!f)
		return dir;
	fclose(f);
	return path;
}

static int run_check(struct rdv_invocation *in)
{
	struct rdv_log_report report = {0};
	struct rdv_error error = {""};
	char path[4096];
	enum redrive_status status = rdv_log_check(log_dir(in->args[0], path), rdv_option_given(in, RDV_OPT_REPAIR),
						   tell_bad, NULL, &report, &error);
	if (status == REDRIVE_OK || report.segments)
		printf("%" PRIu64 " segments, %" PRIu64 " frames, %" PRIu64 " bytes, %" PRIu64 " bad%s\n",
		       report.segments, report.frames, report.bytes, report.bad,
		       report.tail_torn ? ", torn tail (never acknowledged)" : "");
	return status == REDRIVE_OK ? 0 : rdv_command_fail(rdv_status_info(status)->exit, "%s", error.text);
}

static enum redrive_status print_frame(void *ctx, const struct rdv_frame *f, struct rdv_error *error)
{
	const char *name = rdv_record_name((enum rdv_record)f->type);
	printf("{\"segment\": %" PRIu32 ", \"offset\": %" PRIu32 ", \"number\": %" PRIu64 ", \"synced\": %" PRIu64
	       ", \"type\": \"%s\", \"stream\": %" PRIu32 ", \"seq\": %" PRIu64 ", \"length\": %" PRIu32
	       ", \"more\": %s}\n",
	       f->position.segment, f->position.offset, f->number, f->synced, name ? name : "?", f->stream, f->seq,
	       f->length, f->flags & RDV_FRAME_MORE ? "true" : "false");
	return REDRIVE_OK;
}

static int run_dump(struct rdv_invocation *in)
{
	struct rdv_error error = {""};
	char path[4096];
	enum redrive_status status = rdv_log_dump(log_dir(in->args[0], path), print_frame, NULL, &error);
	return status == REDRIVE_OK ? 0 : rdv_command_fail(rdv_status_info(status)->exit, "%s", error.text);
}

static const struct argp_option check_options[] = {
	{"repair", RDV_OPT_REPAIR, NULL, 0, "Copy the segments aside, then write a log without the bad frames", 1},
	{0}};

const struct rdv_command rdv_command_journal_check = {
	.name = "journal check",
	.arguments = "DIR",
	.doc = "Read every frame of a stopped server's journal; exit 6 on corruption",
	.options = check_options,
	.args_min = 1,
	.args_max = 1,
	.run = run_check,
};
const struct rdv_command rdv_command_journal_dump = {.name = "journal dump",
						     .arguments = "DIR",
						     .doc = "Every frame as one line of JSON",
						     .args_min = 1,
						     .args_max = 1,
						     .run = run_dump};
