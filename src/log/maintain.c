/* maintain.c - file work in the background: recycling, making segments ready, hints, zero-filling.
 *
 * One piece per call, the most urgent first: a dropped tail becomes a spare (one that is damaged is set aside); a spare
 * becomes the next segment; a sealed segment that lives longer than a few seconds gets hints; a new file is
 * zero-filled, 1 MiB at a time and never faster than fill_rate, so that group commits keep their pace. Files are filled
 * because an extent that is merely reserved makes each fdatasync write metadata, too; recycled ones need no filling. If
 * the filler is too slow, the writer takes an allocated file (rdv_log_need_segment). One thread calls maintain; the
 * writer calls need_segment. */
#include "internal.h"
#include "hints.h"
#include "recover.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include "../base/clock.h"

enum { FILL_PIECE = 1 << 20, HINT_PIECE = 1 << 20 };

/* ---- making segments ready: files_mutex held ---- */

static enum redrive_status bind_spare(struct rdv_log *log, uint32_t number, struct rdv_error *error)
{
	uint64_t spare = log->spares[--log->spare_count];
	char from[RDV_STORE_PATH];
	enum redrive_status status;
	int fd;

	status = rdv_store_open(&log->store, RDV_STORE_SPARE, spare, O_RDWR, &fd, error);
	if (status != REDRIVE_OK)
		return status;
	rdv_store_path(&log->store, RDV_STORE_SPARE, spare, from);
	status = rdv_store_bind(&log->store, fd, from, number, atomic_load(&log->durable), error);
	rdv_store_close(&log->store, fd);
	return status;
}

static enum redrive_status bind_new(struct rdv_log *log, uint32_t number, struct rdv_error *error)
{
	char from[RDV_STORE_PATH];
	enum redrive_status status;
	int fd;

	log->file_count++;
	status = rdv_store_allocate(&log->store, log->file_count, &fd, error);
	if (status != REDRIVE_OK)
		return status;
	rdv_store_path(&log->store, RDV_STORE_FILL, log->file_count, from);
	status = rdv_store_bind(&log->store, fd, from, number, atomic_load(&log->durable), error);
	rdv_store_close(&log->store, fd);
	return status;
}

static enum redrive_status make_ready(struct rdv_log *log, bool may_allocate, bool *did, struct rdv_error *error)
{
	enum redrive_status status;

	*did = false;
	if (log->spare_count == 0 && !may_allocate)
		return REDRIVE_OK;
	*did = true;
	status = log->spare_count ? bind_spare(log, log->ready + 1, error) : bind_new(log, log->ready + 1, error);
	if (status == REDRIVE_OK)
		log->ready++;
	return status;
}

enum redrive_status rdv_log_need_segment(struct rdv_log *log, uint32_t number, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	bool did;

	pthread_mutex_lock(&log->files_mutex);
	while (status == REDRIVE_OK && log->ready < number)
		status = make_ready(log, true, &did, error);
	pthread_mutex_unlock(&log->files_mutex);
	return status;
}

/* ---- pieces ---- */

static uint32_t head_of(struct rdv_log *log)
{
	uint32_t head;

	pthread_mutex_lock(&log->mutex);
	head = log->at.segment;
	pthread_mutex_unlock(&log->mutex);
	return head;
}

/* The tail, if it may go now; 0 otherwise. */
static uint32_t droppable(struct rdv_log *log, bool *damaged)
{
	const struct rdv_log_segment *tail;
	uint32_t number = 0;

	pthread_mutex_lock(&log->mutex);
	tail = &log->segments[0];
	if (tail->dropped && atomic_load(&log->durable) >= tail->drop_ticket && tail->number < log->durable_end.segment)
		number = tail->number;
	*damaged = tail->damaged;
	pthread_mutex_unlock(&log->mutex);
	return number;
}

static void forget_tail(struct rdv_log *log)
{
	pthread_mutex_lock(&log->mutex);
	log->segment_count--;
	memmove(log->segments, log->segments + 1, log->segment_count * sizeof *log->segments);
	pthread_mutex_unlock(&log->mutex);
}

static enum redrive_status set_aside(struct rdv_log *log, uint32_t number, struct rdv_error *error)
{
	char from[RDV_STORE_PATH], to[RDV_STORE_PATH];

	rdv_store_path(&log->store, RDV_STORE_SEGMENT, number, from);
	rdv_store_path(&log->store, RDV_STORE_DAMAGED, number, to);
	return rdv_store_rename(&log->store, from, to, error);
}

static enum redrive_status recycle(struct rdv_log *log, uint32_t number, struct rdv_error *error)
{
	char from[RDV_STORE_PATH], to[RDV_STORE_PATH];
	enum redrive_status status;
	uint64_t spare;

	rdv_store_path(&log->store, RDV_STORE_SEGMENT, number, from);
	pthread_mutex_lock(&log->files_mutex);
	spare = ++log->file_count;
	if (log->spare_count < (rdv_log_disk_low(log) ? RDV_LOG_AHEAD : RDV_LOG_SPARES)) {
		rdv_store_path(&log->store, RDV_STORE_SPARE, spare, to);
		status = rdv_store_rename(&log->store, from, to, error);
		if (status == REDRIVE_OK)
			log->spares[log->spare_count++] = spare;
	} else {
		status = rdv_store_remove(&log->store, RDV_STORE_SEGMENT, number, error);
		if (status == REDRIVE_OK)
			status = rdv_store_sync_dir(&log->store, error);
	}
	pthread_mutex_unlock(&log->files_mutex);
	return status;
}

/* A sealed, durable segment that is old enough and has no hints; 0 if there is none. */
static uint32_t find_unhinted(struct rdv_log *log)
{
	int64_t before = rdv_mono_now().ms - log->hint_after_ms;
	uint32_t found = 0, i;

	pthread_mutex_lock(&log->mutex);
	for (i = 0; i < log->segment_count && !found; i++) {
		const struct rdv_log_segment *segment = &log->segments[i];

		if (segment->number >= log->durable_end.segment)
			break;
		if (!segment->hinted && !segment->dropped && segment->sealed_ms <= before)
			found = segment->number;
	}
	pthread_mutex_unlock(&log->mutex);
	return found;
}

/* A piece at a time: it stays in the processor's cache, and no segment's worth of memory is wanted. */
static enum redrive_status write_hints(struct rdv_log *log, uint32_t segment, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	uint32_t next = RDV_SEGMENT_START;
	struct rdv_hints_writer w;

	rdv_hints_begin(&w, &log->store, segment);
	while (status == REDRIVE_OK && next) {
		struct rdv_position from = {segment, next};
		struct rdv_block *block;
		struct rdv_frame frame;
		size_t cursor = 0;

		status = rdv_log_scan(log, from, HINT_PIECE, &block, &next);
		while (rdv_log_scan_next(log, block, from, &cursor, &frame))
			rdv_hints_add(&w, &frame);
		rdv_block_unref(block);
	}
	if (status == REDRIVE_OK)
		return rdv_hints_end(&w, error);
	rdv_hints_drop(&w);
	return rdv_error_set(error, status, "segment %u: its hints cannot be made", segment);
}

/* Also when it failed the segment counts as hinted: it is not tried again, opening reads the segment. */
static enum redrive_status make_hints(struct rdv_log *log, uint32_t segment, struct rdv_error *error)
{
	enum redrive_status status = write_hints(log, segment, error);
	struct rdv_log_segment *entry;

	pthread_mutex_lock(&log->mutex);
	entry = rdv_log_segment_find(log, segment);
	if (entry)
		entry->hinted = true;
	pthread_mutex_unlock(&log->mutex);
	return status;
}

static bool wants_fill(struct rdv_log *log)
{
	uint64_t files, free_bytes = atomic_load(&log->free_bytes);
	uint32_t head, tail;
	bool wants;

	pthread_mutex_lock(&log->mutex);
	head = log->at.segment;
	tail = log->segments[0].number;
	pthread_mutex_unlock(&log->mutex);
	pthread_mutex_lock(&log->files_mutex);
	files = log->ready - tail + 1 + log->spare_count;
	wants = log->fill_fd >= 0 || log->ready + log->spare_count < head + RDV_LOG_AHEAD;
	pthread_mutex_unlock(&log->files_mutex);
	return wants && (files + 1) * log->store.segment_size <= log->capacity &&
	       free_bytes >= log->disk_free + 2 * (uint64_t)log->store.segment_size;
}

static void pace(struct rdv_log *log, uint64_t bytes)
{
	int64_t now = rdv_mono_now_us(), wait;
	struct timespec t;

	wait = log->fill_us + (int64_t)(bytes * 1000000 / log->fill_rate) - now;
	if (wait > 0 && wait < 1000000) {
		t = (struct timespec){0, (long)wait * 1000};
		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	}
	log->fill_us = rdv_mono_now_us();
}

static enum redrive_status finish_fill(struct rdv_log *log, struct rdv_error *error)
{
	char from[RDV_STORE_PATH], to[RDV_STORE_PATH];
	enum redrive_status status;

	rdv_store_close(&log->store, log->fill_fd);
	log->fill_fd = -1;
	rdv_store_path(&log->store, RDV_STORE_FILL, log->fill_number, from);
	rdv_store_path(&log->store, RDV_STORE_SPARE, log->fill_number, to);
	status = rdv_store_rename(&log->store, from, to, error);
	if (status != REDRIVE_OK)
		return status;
	pthread_mutex_lock(&log->files_mutex);
	log->spares[log->spare_count++] = log->fill_number;
	pthread_mutex_unlock(&log->files_mutex);
	return REDRIVE_OK;
}

/* Zeros go past the page cache where the file system lets them: they are neither copied nor kept. */
static enum redrive_status begin_fill(struct rdv_log *log, struct rdv_error *error)
{
	enum redrive_status status;
	int direct;

	pthread_mutex_lock(&log->files_mutex);
	log->fill_number = ++log->file_count;
	pthread_mutex_unlock(&log->files_mutex);
	log->fill_offset = 0;
	status = rdv_store_allocate(&log->store, log->fill_number, &log->fill_fd, error);
	if (status != REDRIVE_OK || log->store.segment_size % RDV_PAGE || log->fill_copied)
		return status;
	if (rdv_store_open(&log->store, RDV_STORE_FILL, log->fill_number, O_RDWR | O_DIRECT, &direct, NULL) !=
	    REDRIVE_OK)
		return REDRIVE_OK;
	rdv_store_close(&log->store, log->fill_fd);
	log->fill_fd = direct;
	return REDRIVE_OK;
}

static enum redrive_status fill(struct rdv_log *log, struct rdv_error *error)
{
	static const _Alignas(RDV_PAGE) uint8_t zeros[FILL_PIECE];
	uint64_t left = log->store.segment_size - log->fill_offset;
	struct iovec iov = {(void *)(uintptr_t)zeros, left < FILL_PIECE ? left : FILL_PIECE};
	uint64_t bytes = iov.iov_len;
	int err;

	if (log->fill_fd < 0)
		return begin_fill(log, error);
	pace(log, bytes);
	err = rdv_file_write_all(log->store.ops, log->store.ctx, log->fill_fd, &iov, 1, log->fill_offset);
	if (!err)
		err = log->store.ops->fdatasync(log->store.ctx, log->fill_fd);
	log->fill_offset += bytes;
	if (!err)
		return log->fill_offset < log->store.segment_size ? REDRIVE_OK : finish_fill(log, error);
	rdv_store_close(&log->store, log->fill_fd);
	log->fill_fd = -1;
	(void)!rdv_store_remove(&log->store, RDV_STORE_FILL, log->fill_number, NULL);
	if (err == -EINVAL && !log->fill_copied) { /* opened for it, but of larger pages */
		log->fill_copied = true;
		return REDRIVE_OK;
	}
	return rdv_error_errno(error, -err, "fill a segment");
}

enum redrive_status rdv_log_maintain(struct rdv_log *log, bool *did, struct rdv_error *error)
{
	enum redrive_status status;
	bool damaged;
	uint32_t number = droppable(log, &damaged);

	*did = true;
	if (atomic_load(&log->failed))
		return rdv_error_set(error, REDRIVE_FAILED, "the log has failed");
	rdv_log_check_disk(log, 250);
	if (number) {
		(void)!rdv_store_remove(&log->store, RDV_STORE_HINT, number, NULL);
		forget_tail(log); /* readers find it gone from now on */
		return damaged ? set_aside(log, number, error) : recycle(log, number, error);
	}
	number = head_of(log);
	pthread_mutex_lock(&log->files_mutex);
	*did = false;
	status = REDRIVE_OK;
	if (log->ready < number + RDV_LOG_AHEAD)
		status = make_ready(log, false, did, error);
	pthread_mutex_unlock(&log->files_mutex);
	if (status != REDRIVE_OK || *did)
		return status;
	*did = true;
	number = find_unhinted(log);
	if (number)
		return make_hints(log, number, error);
	if (wants_fill(log))
		return fill(log, error);
	*did = false;
	return REDRIVE_OK;
}
