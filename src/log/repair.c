/* repair.c - see repair.h.
 *
 * Order of steps, so that a crash at any point leaves either the old log or the new one:
 *   1. every segment is linked (or copied, where links are not possible) into before-repair-<time>, and that directory
 * synced;
 *   2. the new segments are written and synced as .fill files. They are a log of their own: their first segment is its
 * own origin, numbers go on behind the old ones, and an empty last segment says in its header that everything was
 * synced;
 *   3. they get their names from the last to the first. The first one, its own origin, makes the new log whole and the
 * old one void (recover.c); before that, opening still finds the old damage, and the next repair removes what this one
 * left;
 *   4. the old segments and hints are removed.
 * Batches need no MORE flags any more: what counts was decided. */
#include "repair.h"
#include "frame.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct writer {
	struct rdv_store *store; /* of the new log */
	uint8_t *image;          /* owns */
	struct rdv_position at;
	uint64_t next, base;
	uint32_t first;
	struct rdv_error *error;
};

/* ---- aside ---- */

static int copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out = -1, err = 0;
	ssize_t n = 1;

	if (in >= 0)
		out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	while (out >= 0 && n > 0)
		n = copy_file_range(in, NULL, out, NULL, 1 << 30, 0);
	if (in < 0 || out < 0 || n < 0 || fsync(out) < 0)
		err = errno;
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return err;
}

static enum redrive_status set_aside(const struct rdv_survey *v, struct rdv_error *error)
{
	char dir[RDV_STORE_PATH + 64], from[RDV_STORE_PATH], to[RDV_STORE_PATH + 128];
	time_t now = time(NULL);
	struct tm tm;
	uint32_t i;
	int n, err = 0;

	gmtime_r(&now, &tm);
	n = snprintf(dir, sizeof dir, "%s/before-repair-", v->store->dir);
	strftime(dir + n, sizeof dir - (size_t)n, "%Y%m%dT%H%M%SZ", &tm);
	if (mkdir(dir, 0700) < 0)
		return rdv_error_errno(error, errno, "create '%s'", dir);
	for (i = 0; i < v->count + v->leftover_count && !err; i++) {
		uint32_t number = v->numbers[i];

		rdv_store_path(v->store, RDV_STORE_SEGMENT, number, from);
		snprintf(to, sizeof to, "%s/%016" PRIx32 ".seg", dir, number);
		if (link(from, to) < 0)
			err = copy_file(from, to);
	}
	if (!err)
		err = -rdv_file_real.fsync_dir(NULL, dir);
	if (!err)
		err = -rdv_file_real.fsync_dir(NULL, v->store->dir);
	return err ? rdv_error_errno(error, err, "copy the segments to '%s'", dir) : REDRIVE_OK;
}

/* ---- the new log ---- */

static enum redrive_status flush_segment(struct writer *w)
{
	const struct rdv_store *s = w->store;
	struct rdv_segment_header h = {w->at.segment, s->segment_size, s->origin, s->id, s->salt, w->next - 1};
	struct iovec iov = {w->image, s->segment_size};
	enum redrive_status status;
	int fd, err;

	if (w->at.segment == w->first)
		h.base = w->base;
	rdv_segment_header_encode(&h, w->image);
	status = rdv_store_allocate(s, w->at.segment, &fd, w->error);
	if (status != REDRIVE_OK)
		return status;
	err = rdv_file_write_all(s->ops, s->ctx, fd, &iov, 1, 0);
	if (!err)
		err = s->ops->fdatasync(s->ctx, fd);
	rdv_store_close(s, fd);
	if (err)
		return rdv_error_errno(w->error, -err, "write the repaired segment %u", w->at.segment);
	memset(w->image, 0, s->segment_size);
	w->at = (struct rdv_position){w->at.segment + 1, RDV_SEGMENT_START};
	return REDRIVE_OK;
}

static enum redrive_status write_frame(void *ctx, const struct rdv_frame *frame)
{
	struct writer *w = ctx;
	uint32_t size = RDV_FRAME_HEADER + frame->length;
	struct rdv_frame copy = *frame;

	if (w->store->segment_size - w->at.offset < size) {
		enum redrive_status status = flush_segment(w);

		if (status != REDRIVE_OK)
			return status;
	}
	copy.flags = 0;
	copy.number = w->next++;
	copy.synced = w->base;
	rdv_frame_encode(&copy, w->image + w->at.offset);
	memcpy(w->image + w->at.offset + RDV_FRAME_HEADER, frame->payload.data, frame->length);
	rdv_frame_seal(w->store->seed, w->image + w->at.offset, w->at, false);
	w->at.offset += size;
	return REDRIVE_OK;
}

/* The last file with frames, and an empty one behind it. */
static enum redrive_status write_end(struct writer *w)
{
	enum redrive_status status = flush_segment(w);

	return status == REDRIVE_OK ? flush_segment(w) : status;
}

static enum redrive_status name_segments(const struct writer *w)
{
	char from[RDV_STORE_PATH], to[RDV_STORE_PATH];
	enum redrive_status status = REDRIVE_OK;
	uint32_t number;

	for (number = w->at.segment - 1; number >= w->first && status == REDRIVE_OK; number--) {
		rdv_store_path(w->store, RDV_STORE_FILL, number, from);
		rdv_store_path(w->store, RDV_STORE_SEGMENT, number, to);
		status = rdv_store_rename(w->store, from, to, w->error);
	}
	return status;
}

static enum redrive_status write_log(struct rdv_survey *v, struct rdv_error *error)
{
	struct rdv_store store = *v->store;
	struct writer w = {.store = &store, .error = error};
	enum redrive_status status;

	w.first = store.origin = v->numbers[v->count - 1] + 1;
	w.base = v->last > v->synced ? v->last : v->synced;
	w.next = w.base + 1;
	w.at = (struct rdv_position){w.first, RDV_SEGMENT_START};
	w.image = calloc(1, store.segment_size);
	if (!w.image)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for a segment");
	status = rdv_survey_walk(v, write_frame, &w, error);
	if (status == REDRIVE_OK)
		status = write_end(&w);
	if (status == REDRIVE_OK)
		status = name_segments(&w);
	free(w.image);
	return status;
}

static enum redrive_status remove_segment(const struct rdv_store *s, uint32_t number, struct rdv_error *error)
{
	enum redrive_status status = rdv_store_remove(s, RDV_STORE_HINT, number, error);

	return status == REDRIVE_OK ? rdv_store_remove(s, RDV_STORE_SEGMENT, number, error) : status;
}

enum redrive_status rdv_repair(struct rdv_survey *v, struct rdv_error *error)
{
	enum redrive_status status = set_aside(v, error);
	uint32_t i;

	for (i = v->leftover_count; i > 0 && status == REDRIVE_OK; i--)
		status = remove_segment(v->store, v->leftover[i - 1], error);
	if (status == REDRIVE_OK)
		status = rdv_store_sync_dir(v->store, error);
	if (status == REDRIVE_OK)
		status = write_log(v, error);
	for (i = 0; i < v->count && status == REDRIVE_OK; i++)
		status = remove_segment(v->store, v->numbers[i], error);
	if (status == REDRIVE_OK)
		status = rdv_store_sync_dir(v->store, error);
	return status == REDRIVE_OK ? status : rdv_error_prefix(error, status, "repair");
}
