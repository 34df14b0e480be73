/* desk.c - joins the parts of the desk: open, start, stop, free; and the calls that only pass on.
 *
 * <dir>/letters holds the segments and their indexes, <dir>/control.db the decisions. Opening does all recovery; start
 * makes the threads. Stop lets the writer store what is queued, so that no letter that was put is without its answer;
 * it may be called twice. Open and free: one thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "room.h"

static char *path_of(const char *dir, const char *name)
{
	char *path = NULL;
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static enum redrive_status open_parts(struct rdv_desk *d, const struct rdv_desk_options *o, struct rdv_error *error)
{
	char *letters = path_of(d->dir, "letters"), *control = path_of(d->dir, "control.db");
	struct rdv_desk_store_options so = {
		.dir = letters,
		.files = o->files,
		.files_ctx = o->files_ctx,
		.say = d->say,
		.segment_letters = o->segment_letters,
		.segment_bytes = o->segment_bytes,
	};
	enum redrive_status status = letters && control ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	/* Really made, whatever the file layer: SQLite's files lie here, too. */
	if (status == REDRIVE_OK && mkdir(letters, 0700) && errno != EEXIST)
		status = rdv_error_errno(error, errno, "create '%s'", letters);
	if (status == REDRIVE_OK && o->files) {
		int failed = o->files->mkdir(o->files_ctx, letters, 0700);
		if (failed && failed != -EEXIST)
			status = rdv_error_errno(error, -failed, "create '%s'", letters);
	}
	if (status == REDRIVE_OK)
		status = rdv_desk_control_open(&d->control, control, error);
	if (status == REDRIVE_OK)
		status = rdv_desk_store_open(&d->store, &so, error);
	free(letters);
	free(control);
	return status;
}

enum redrive_status rdv_desk_open(const struct rdv_desk_options *options, struct rdv_desk **out,
				  struct rdv_error *error)
{
	struct rdv_desk *d = calloc(1, sizeof *d);
	if (!d || !(d->dir = strdup(options->dir))) {
		free(d);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "open desk: no memory");
	}
	d->hot_ms = options->hot_ms;
	d->unknown_ms = options->unknown_ms;
	d->say = (struct rdv_desk_say){options->say, options->say_ctx};
	enum redrive_status status = open_parts(d, options, error);
	if (status == REDRIVE_OK)
		status = rdv_desk_intake_init(&d->intake, &d->store);
	if (status == REDRIVE_OK)
		status = rdv_desk_replays_init(&d->replays, d);
	if (status != REDRIVE_OK) {
		rdv_error_prefix(error, status, "open desk '%s'", options->dir);
		rdv_desk_free(d);
		return status;
	}
	if (options->now) {
		d->intake.now = options->now;
		d->intake.now_ctx = options->now_ctx;
	}
	*out = d;
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_start(struct rdv_desk *d, const struct rdv_desk_runtime *runtime, struct rdv_error *error)
{
	d->runtime = *runtime;
	enum redrive_status status = rdv_desk_intake_start(&d->intake);
	if (status == REDRIVE_OK)
		status = rdv_desk_replays_start(&d->replays);
	if (status != REDRIVE_OK) {
		rdv_desk_stop(d);
		return rdv_error_set(error, status, "start desk: no thread");
	}
	d->started = true;
	return status;
}

void rdv_desk_stop(struct rdv_desk *d)
{
	rdv_desk_replays_stop(&d->replays);
	rdv_desk_intake_stop(&d->intake);
}

void rdv_desk_free(struct rdv_desk *d)
{
	if (!d)
		return;
	rdv_desk_replays_done(&d->replays);
	rdv_desk_intake_done(&d->intake);
	rdv_desk_store_close(&d->store);
	rdv_desk_control_close(&d->control);
	free(d->dir);
	free(d);
}

enum redrive_status rdv_desk_put(struct rdv_desk *d, struct rdv_block *envelope, struct rdv_block *body,
				 void (*stored)(void *ctx, uint64_t cookie, enum redrive_status status), void *ctx,
				 uint64_t cookie)
{
	struct rdv_desk_letter l = {.envelope = envelope, .body = body, .stored = stored, .ctx = ctx, .cookie = cookie};
	return rdv_desk_intake_put(&d->intake, &l);
}

void rdv_desk_set_hot(struct rdv_desk *d, int64_t hot_ms)
{
	d->hot_ms = hot_ms;
}

uint64_t rdv_desk_waiting(struct rdv_desk *d)
{
	return d->intake.waiting;
}

void rdv_desk_counts(struct rdv_desk *d, struct rdv_desk_counts *out)
{
	*out = (struct rdv_desk_counts){d->store.letters, d->store.bytes, d->store.damaged, d->intake.waiting};
}

void rdv_desk_audit(struct rdv_desk *d, const char *who, const char *action, const char *target, const char *detail)
{
	struct rdv_desk_audit_entry entry = {who, action, target, detail};
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_control_audit(&d->control, &entry);
	rdv_desk_control_unlock(&d->control);
	if (status != REDRIVE_OK)
		rdv_desk_say(&d->say, 0, "audit: '%s' could not be written: %s", action, rdv_status_info(status)->text);
}
