/* open.c - opening and closing a log: recovery, and making the tail safe before it is used.
 *
 * recover.c reads and decides; nothing is changed before it, and the owner's fold, have said OK. Then, in this order:
 *   1. segments behind the end that hold frames are removed, last first: nothing in them was acknowledged;
 *   2. whatever lies behind the last number known synced is written again, and zeros behind it (to the segment's end if
 * valid frames were found there, so that they can never follow a new frame), and synced: after a failed sync the page
 * cache shows bytes that the disk does not have;
 *   3. leftovers (.fill, hints without a segment) are removed.
 * Any thread may open; close is the last call. */
#include "directory.h"
#include "internal.h"
#include "recover.h"
#include <fcntl.h>
#include <stdlib.h>

#define SEGMENT_SIZE (64u << 20)
#define HINT_AFTER_MS 5000 /* what is finished by then needs none; opening reads what has none */
#define BUFFER_SIZE (1u << 20)

/* ---- the tail ---- */

/* Writes [from, end) again, then zeros up to `clean`, and syncs. The image is the segment's. */
static enum redrive_status rewrite(const struct rdv_store *s, uint32_t number, uint8_t *image, uint32_t range[3],
				   struct rdv_error *error)
{
	uint32_t from = range[0] & ~(RDV_PAGE - 1), end = range[1], clean = range[2];
	struct iovec iov = {image + from, clean - from};
	enum redrive_status status;
	int fd, err;

	memset(image + end, 0, clean - end);
	status = rdv_store_open(s, RDV_STORE_SEGMENT, number, O_RDWR, &fd, error);
	if (status != REDRIVE_OK)
		return status;
	err = rdv_file_write_all(s->ops, s->ctx, fd, &iov, 1, from);
	if (!err)
		err = s->ops->fdatasync(s->ctx, fd);
	rdv_store_close(s, fd);
	return err ? rdv_error_errno(error, -err, "write the end of segment %u again", number) : REDRIVE_OK;
}

static uint32_t page_up(const struct rdv_store *s, uint32_t offset)
{
	uint64_t up = ((uint64_t)offset + RDV_FRAME_HEADER + RDV_PAGE - 1) & ~(uint64_t)(RDV_PAGE - 1);

	return up < s->segment_size ? (uint32_t)up : s->segment_size;
}

/* Offset of the first frame with a greater number than `synced`, or the end. */
static uint32_t first_unsynced(const struct rdv_recovery *r, const struct rdv_recovered_segment *segment)
{
	uint32_t at = RDV_SEGMENT_START;

	if (segment->last <= r->synced)
		return segment->end;
	while (at < segment->end && rdv_get_u64(r->image + at + 8) <= r->synced)
		at += RDV_FRAME_HEADER + rdv_get_u32(r->image + at);
	return at < segment->end ? at : segment->end;
}

/* 1 and 2 of the head of this file. Afterwards log->page holds the last partial page. */
static enum redrive_status make_safe(struct rdv_log *log, struct rdv_recovery *r, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	uint32_t i;

	for (i = r->segment_count; r->stale && i > r->end_index + 1; i--) {
		status = rdv_store_remove(&log->store, RDV_STORE_SEGMENT, r->segments[i - 1].number, error);
		if (status == REDRIVE_OK)
			status = rdv_store_sync_dir(&log->store, error);
		if (status != REDRIVE_OK)
			return status;
		r->segment_count--;
	}
	for (i = r->end_index + 1; i > 0; i--) {
		const struct rdv_recovered_segment *segment = &r->segments[i - 1];
		bool head = i == r->end_index + 1;
		uint32_t range[3] = {0, segment->end, page_up(&log->store, segment->end)};

		if (!head && segment->last <= r->synced)
			break;
		status = rdv_store_load(&log->store, segment->number, r->image, error);
		if (status != REDRIVE_OK)
			return status;
		range[0] = first_unsynced(r, segment);
		if (head) {
			uint32_t page = segment->end & ~(RDV_PAGE - 1);

			memcpy(log->page, r->image + page, segment->end - page);
			if (r->stale)
				range[2] = log->store.segment_size;
		}
		status = rewrite(&log->store, segment->number, r->image, range, error);
		if (status != REDRIVE_OK)
			return status;
	}
	return REDRIVE_OK;
}

/* ---- the log ---- */

static void init_threads(struct rdv_log *log)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&log->mutex, NULL);
	pthread_mutex_init(&log->files_mutex, NULL);
	pthread_cond_init(&log->work, &attr);
	pthread_cond_init(&log->room, &attr);
	pthread_condattr_destroy(&attr);
}

static struct rdv_log *new_log(const struct rdv_log_options *options)
{
	struct rdv_log *log = calloc(1, sizeof *log);

	if (!log)
		return NULL;
	log->store.ops = options->files ? options->files : &rdv_file_real;
	log->store.ctx = options->files_ctx;
	log->store.dir = strdup(options->dir);
	log->store.segment_size = options->segment_size ? options->segment_size : SEGMENT_SIZE;
	log->buffer_size = options->buffer_size ? options->buffer_size : BUFFER_SIZE;
	log->disk_free = options->disk_free;
	log->lock_fd = log->fd = log->fill_fd = -1;
	log->hint_after_ms = HINT_AFTER_MS;
	log->fill_rate = 200u << 20;
	init_threads(log);
	return log;
}

/* Segment 1 of a new log. */
static enum redrive_status create(struct rdv_log *log, struct rdv_error *error)
{
	struct rdv_store *s = &log->store;
	char path[RDV_STORE_PATH];
	enum redrive_status status;
	int fd;

	rdv_secret(&s->id, sizeof s->id);
	rdv_secret(&s->salt, sizeof s->salt);
	s->seed = rdv_frame_seed(s->id, s->salt);
	s->origin = 1;
	log->file_count++;
	status = rdv_store_allocate(s, log->file_count, &fd, error);
	if (status != REDRIVE_OK)
		return status;
	rdv_store_path(s, RDV_STORE_FILL, log->file_count, path);
	status = rdv_store_bind(s, fd, path, 1, 0, error);
	rdv_store_close(s, fd);
	return status;
}

/* The appenders' state from what recovery found. */
static enum redrive_status take_over(struct rdv_log *log, const struct rdv_recovery *r)
{
	const struct rdv_recovered_segment *end = &r->segments[r->end_index];
	uint32_t i;

	log->segment_capacity = r->end_index + 16;
	log->segments = calloc(log->segment_capacity, sizeof *log->segments);
	log->pool = rdv_log_pool_new(log->buffer_size, log->store.segment_size);
	if (!log->segments || !log->pool)
		return REDRIVE_NO_MEMORY;
	for (i = 0; i <= r->end_index; i++) {
		const struct rdv_recovered_segment *from = &r->segments[i];

		log->segments[i] = (struct rdv_log_segment){.number = from->number,
							    .end = from->end,
							    .first = from->first,
							    .last = from->last,
							    .hinted = from->hinted};
	}
	log->segments[r->end_index].end = 0;
	log->segment_count = r->end_index + 1;
	log->at = log->durable_end = (struct rdv_position){end->number, end->end};
	if (end->end == RDV_SEGMENT_START &&
	    r->end_index > 0) /* durable_end is always behind a frame, if there is one */
		log->durable_end = (struct rdv_position){end[-1].number, end[-1].end};
	log->next = r->number + 1;
	log->taken = r->number;
	atomic_store(&log->durable, r->number);
	log->ready = r->segments[r->segment_count - 1].number;
	return REDRIVE_OK;
}

static void report(const struct rdv_recovery *r, bool created, struct rdv_log_opened *opened)
{
	if (!opened)
		return;
	*opened = (struct rdv_log_opened){.frames = r->frames,
					  .segments = r->end_index + 1,
					  .hints_used = r->hints_used,
					  .tail_cut = r->tail_cut,
					  .created = created};
	opened->cut_at = (struct rdv_position){r->segments[r->end_index].number, r->segments[r->end_index].end};
}

/* Removes what nobody needs; remembers the spares. Failing to remove is not worth failing for. */
static void tidy(struct rdv_log *log, const struct rdv_listing *l)
{
	const struct rdv_names *fills = &l->of[RDV_STORE_FILL], *hints = &l->of[RDV_STORE_HINT],
			       *spares = &l->of[RDV_STORE_SPARE];
	const struct rdv_names *segments = &l->of[RDV_STORE_SEGMENT];
	uint64_t size;
	size_t i;

	for (i = 0; i < segments->count && segments->items[i] < log->owner_tail; i++) /* of before a repair */
		(void)!rdv_store_remove(&log->store, RDV_STORE_SEGMENT, segments->items[i], NULL);

	for (i = 0; i < fills->count; i++)
		(void)!rdv_store_remove(&log->store, RDV_STORE_FILL, fills->items[i], NULL);
	for (i = 0; i < hints->count; i++)
		if (hints->items[i] < log->owner_tail || hints->items[i] >= log->at.segment)
			(void)!rdv_store_remove(&log->store, RDV_STORE_HINT, hints->items[i], NULL);
	for (i = 0; i < spares->count; i++) {
		if (log->spare_count < RDV_LOG_SPARES &&
		    rdv_store_is_whole(&log->store, RDV_STORE_SPARE, spares->items[i], &size))
			log->spares[log->spare_count++] = spares->items[i];
		else
			(void)!rdv_store_remove(&log->store, RDV_STORE_SPARE, spares->items[i], NULL);
	}
}

static enum redrive_status measure(struct rdv_log *log, const struct rdv_log_options *options, uint64_t files,
				   struct rdv_error *error)
{
	uint64_t bytes;
	int err = log->store.ops->free_space(log->store.ctx, log->store.dir, &bytes);

	if (err)
		return rdv_error_errno(error, -err, "free space of '%s'", log->store.dir);
	atomic_store(&log->free_bytes, bytes);
	log->capacity = options->capacity;
	if (!log->capacity) {
		uint64_t all = files * log->store.segment_size + bytes;

		log->capacity = all > log->disk_free ? all - log->disk_free : 0;
	}
	return REDRIVE_OK;
}

static enum redrive_status recover(struct rdv_log *log, const struct rdv_listing *l, struct rdv_recovery *r,
				   struct rdv_error *error)
{
	static const uint32_t created = 1;
	enum redrive_status status;
	uint32_t *numbers, count;

	log->file_count = l->highest;
	status = rdv_listing_segments(l, &numbers, &count, error);
	if (status == REDRIVE_OK && !count)
		status = create(log, error);
	if (status == REDRIVE_OK)
		status = rdv_recovery_begin(r, count ? numbers : &created, count ? count : 1, error);
	if (status == REDRIVE_OK) {
		log->owner_tail = r->segments[0].number; /* the fold may count what lives */
		status = rdv_recovery_run(r, error);
	}
	free(numbers);
	if (status == REDRIVE_OK)
		status = make_safe(log, r, error);
	return status == REDRIVE_OK ? take_over(log, r) : status;
}

static enum redrive_status open_log(struct rdv_log *log, const struct rdv_log_options *options, struct rdv_recovery *r,
				    struct rdv_log_opened *opened, struct rdv_error *error)
{
	struct rdv_listing l = {0};
	enum redrive_status status = rdv_directory_make(&log->store, error);

	if (status == REDRIVE_OK && options->hold_lock)
		status = rdv_directory_lock(log->store.dir, &log->lock_fd, error);
	if (status == REDRIVE_OK)
		status = rdv_directory_list(&log->store, &l, error);
	if (status == REDRIVE_OK)
		status = recover(log, &l, r, error);
	if (status == REDRIVE_OK)
		status = measure(log, options, l.of[RDV_STORE_SEGMENT].count + l.of[RDV_STORE_SPARE].count, error);
	if (status == REDRIVE_OK) {
		report(r, l.of[RDV_STORE_SEGMENT].count == 0, opened);
		tidy(log, &l);
	}
	rdv_listing_done(&l);
	return status;
}

enum redrive_status rdv_log_open(const struct rdv_log_options *options, rdv_log_fold fold, void *ctx,
				 struct rdv_log **out, struct rdv_log_opened *opened, struct rdv_error *error)
{
	struct rdv_recovery r;
	enum redrive_status status;
	struct rdv_log *log;

	*out = NULL;
	if (options->segment_size && (options->segment_size < RDV_SEGMENT_MIN ||
				      options->segment_size > RDV_SEGMENT_MAX || options->segment_size % RDV_PAGE))
		return rdv_error_set(error, REDRIVE_INVALID, "segment size %u", options->segment_size);
	if (strlen(options->dir) > RDV_STORE_PATH - 64)
		return rdv_error_set(error, REDRIVE_INVALID, "the name of the directory is too long");
	log = new_log(options);
	if (!log || !log->store.dir) {
		rdv_log_close(log);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory");
	}
	*out = log;
	rdv_recovery_init(&r, &log->store);
	r.fold = fold;
	r.ctx = ctx;
	status = open_log(log, options, &r, opened, error);
	rdv_recovery_done(&r);
	if (status == REDRIVE_OK)
		return REDRIVE_OK;
	*out = NULL;
	status = rdv_error_prefix(error, status, "open the log in '%s'", options->dir);
	rdv_log_close(log);
	return status;
}

enum redrive_status rdv_log_fold_again(struct rdv_log *log, rdv_log_fold fold, void *ctx, struct rdv_error *error)
{
	uint32_t *numbers = calloc(log->segment_count, sizeof *numbers);
	struct rdv_recovery r;
	enum redrive_status status;

	if (!numbers)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory to read the log");
	for (uint32_t i = 0; i < log->segment_count; i++)
		numbers[i] = log->segments[i].number;
	rdv_recovery_init(&r, &log->store);
	r.fold = fold;
	r.ctx = ctx;
	status = rdv_recovery_begin(&r, numbers, log->segment_count, error);
	if (status == REDRIVE_OK)
		status = rdv_recovery_again(&r, log->taken, error);
	rdv_recovery_done(&r);
	free(numbers);
	return status == REDRIVE_OK ? status : rdv_error_prefix(error, status, "read the log in '%s'", log->store.dir);
}

static void free_buffers(struct rdv_log_buffer *b)
{
	while (b) {
		struct rdv_log_buffer *next = b->next;

		rdv_log_buffer_unref(b);
		b = next;
	}
}

void rdv_log_close(struct rdv_log *log)
{
	if (!log)
		return;
	rdv_store_close(&log->store, log->fd);
	rdv_store_close(&log->store, log->fill_fd);
	free_buffers(log->first);
	rdv_log_buffer_unref(log->open);
	rdv_log_pool_unref(log->pool);
	pthread_cond_destroy(&log->work);
	pthread_cond_destroy(&log->room);
	pthread_mutex_destroy(&log->mutex);
	pthread_mutex_destroy(&log->files_mutex);
	rdv_directory_unlock(log->lock_fd);
	free(log->segments);
	free(log->live);
	free(log->store.dir);
	free(log);
}

struct rdv_hash128 rdv_log_id(const struct rdv_log *log)
{
	return log->store.id;
}
