/* inspect.c - the log offline: check (and repair) and dump.
 *
 * Both refuse to work beside a process that holds the directory. check reads every frame of every segment, hints are
 * not used; without repair nothing on disk is changed. dump folds like an opening does, so it ends where the log ends.
 */
#include "directory.h"
#include "repair.h"
#include "survey.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void report(const struct rdv_survey *v, struct rdv_log_report *out)
{
	*out = (struct rdv_log_report){.segments = v->count - v->voided,
				       .frames = v->frames,
				       .bytes = v->bytes,
				       .bad = v->damage,
				       .tail_torn = v->torn};
	if (v->gap_count)
		out->first_bad = v->gaps[0].at;
}

static void tell(const struct rdv_survey *v, void (*bad)(void *ctx, struct rdv_position at, const char *why), void *ctx)
{
	char text[128];
	size_t i;

	for (i = 0; i < v->damage && bad; i++) {
		const struct rdv_survey_gap *gap = &v->gaps[i];

		if (gap->to && gap->from)
			snprintf(text, sizeof text, "%s: frames %" PRIu64 " to %" PRIu64 " are lost", gap->why,
				 gap->from, gap->to);
		else if (gap->to)
			snprintf(text, sizeof text, "%s: frames up to %" PRIu64 " are lost", gap->why, gap->to);
		else
			snprintf(text, sizeof text, "%s", gap->why);
		bad(ctx, gap->at, text);
	}
}

enum redrive_status rdv_log_check(const char *dir, bool repair,
				  void (*bad)(void *ctx, struct rdv_position at, const char *why), void *ctx,
				  struct rdv_log_report *out, struct rdv_error *error)
{
	char name[RDV_STORE_PATH - 64];
	struct rdv_store store = {.ops = &rdv_file_real, .dir = name};
	struct rdv_survey v = {0};
	enum redrive_status status;
	int lock = -1;

	*out = (struct rdv_log_report){0};
	if ((size_t)snprintf(name, sizeof name, "%s", dir) >= sizeof name)
		return rdv_error_set(error, REDRIVE_INVALID, "the name of the directory is too long");
	status = repair ? rdv_directory_lock(dir, &lock, error) : rdv_directory_lock_shared(dir, &lock, error);
	if (status == REDRIVE_OK)
		status = rdv_survey_run(&v, &store, error);
	if (status == REDRIVE_OK) {
		report(&v, out);
		tell(&v, bad, ctx);
		if (v.damage)
			status = repair ? rdv_repair(&v, error)
					: rdv_error_set(error, REDRIVE_CORRUPT, "segment %u, offset %u: %s",
							v.gaps[0].at.segment, v.gaps[0].at.offset, v.gaps[0].why);
	}
	rdv_survey_done(&v);
	rdv_directory_unlock(lock);
	return status == REDRIVE_OK ? status : rdv_error_prefix(error, status, "log in '%s'", dir);
}

enum redrive_status rdv_log_dump(const char *dir, rdv_log_fold each, void *ctx, struct rdv_error *error)
{
	char name[RDV_STORE_PATH - 64];
	struct rdv_store store = {.ops = &rdv_file_real, .dir = name};
	struct rdv_listing l = {0};
	struct rdv_recovery r;
	uint32_t *numbers = NULL, count = 0;
	enum redrive_status status;
	int lock = -1;

	if ((size_t)snprintf(name, sizeof name, "%s", dir) >= sizeof name)
		return rdv_error_set(error, REDRIVE_INVALID, "the name of the directory is too long");
	rdv_recovery_init(&r, &store);
	r.fold = each;
	r.ctx = ctx;
	r.ignore_hints = true;
	status = rdv_directory_lock_shared(dir, &lock, error);
	if (status == REDRIVE_OK)
		status = rdv_directory_list(&store, &l, error);
	if (status == REDRIVE_OK)
		status = rdv_listing_segments(&l, &numbers, &count, error);
	if (status == REDRIVE_OK && count == 0)
		status = rdv_error_set(error, REDRIVE_NOT_FOUND, "there is no log");
	if (status == REDRIVE_OK)
		status = rdv_recovery_begin(&r, numbers, count, error);
	if (status == REDRIVE_OK)
		status = rdv_recovery_run(&r, error);
	free(numbers);
	rdv_listing_done(&l);
	rdv_recovery_done(&r);
	rdv_directory_unlock(lock);
	return status == REDRIVE_OK ? status : rdv_error_prefix(error, status, "log in '%s'", dir);
}
