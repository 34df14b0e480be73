/* recover.c - see recover.h.
 *
 * One image of a segment is in memory at a time. A batch is folded when its last frame is seen; until then its frames
 * are kept, and their payloads are copied only when their image makes room for the next one. Everything read is
 * hostile: lengths are bounded by the image, sizes by the header's checks. Not OK leaves nothing behind. */
#include "recover.h"
#include "frame.h"
#include "hints.h"
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

struct rdv_recovery_chunk {
	struct rdv_recovery_chunk *next;
	uint8_t bytes[];
};

void rdv_recovery_init(struct rdv_recovery *r, struct rdv_store *store)
{
	*r = (struct rdv_recovery){.store = store};
}

static void free_kept(struct rdv_recovery *r)
{
	while (r->kept) {
		struct rdv_recovery_chunk *next = r->kept->next;

		free(r->kept);
		r->kept = next;
	}
	r->batch_count = r->batch_kept = 0;
}

void rdv_recovery_done(struct rdv_recovery *r)
{
	free_kept(r);
	free(r->batch);
	free(r->image);
	free(r->segments);
	rdv_hints_free(r->hints);
	*r = (struct rdv_recovery){.store = r->store};
}

/* ---- headers ---- */

static bool same_log(const struct rdv_store *s, const struct rdv_segment_header *h)
{
	return h->log_id.lo == s->id.lo && h->log_id.hi == s->id.hi && h->salt == s->salt &&
	       h->segment_size == s->segment_size && h->origin == s->origin;
}

static void adopt(struct rdv_recovery *r, const struct rdv_segment_header *h)
{
	r->store->id = h->log_id;
	r->store->salt = h->salt;
	r->store->seed = rdv_frame_seed(h->log_id, h->salt);
	r->store->segment_size = h->segment_size;
	r->store->origin = h->origin;
	r->any_number = h->segment != h->origin;
	r->number = h->base; /* with any_number a lower bound */
}

/* A repair writes a new log behind the old one and puts its first segment in place last: from then on the old one is
 * void. */
static uint32_t first_that_counts(const struct rdv_segment_header *h, uint32_t count)
{
	uint32_t i = count - 1;

	while (i > 0 && h[i].segment != h[i].origin)
		i--;
	return i;
}

static enum redrive_status check_headers(struct rdv_recovery *r, const struct rdv_segment_header *h, uint32_t count,
					 struct rdv_error *error)
{
	uint64_t size;
	uint32_t i;

	adopt(r, &h[0]);
	for (i = 0; i < count; i++) {
		if (i > 0 && h[i].segment != h[i - 1].segment + 1)
			return rdv_error_set(error, REDRIVE_CORRUPT, "segment %u, offset 0: the file is missing",
					     h[i - 1].segment + 1);
		if (!same_log(r->store, &h[i]))
			return rdv_error_set(error, REDRIVE_CORRUPT, "segment %u, offset 0: it belongs to another log",
					     h[i].segment);
		if (!rdv_store_is_whole(r->store, RDV_STORE_SEGMENT, h[i].segment, &size))
			return rdv_error_set(error, REDRIVE_CORRUPT, "segment %u, offset %u: the file ends there",
					     h[i].segment, (uint32_t)size);
		if (h[i].base > r->synced)
			r->synced = h[i].base;
		r->segments[i] = (struct rdv_recovered_segment){.number = h[i].segment, .end = RDV_SEGMENT_START};
		r->segment_count++;
	}
	r->image = malloc(r->store->segment_size);
	return r->image ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

static enum redrive_status read_headers(struct rdv_recovery *r, const uint32_t *numbers, uint32_t count,
					struct rdv_error *error)
{
	struct rdv_segment_header *h = calloc(count, sizeof *h);
	enum redrive_status status = REDRIVE_OK;
	uint32_t i, skip;

	r->segments = calloc(count, sizeof *r->segments);
	if (!h || !r->segments)
		status = REDRIVE_NO_MEMORY;
	for (i = 0; i < count && status == REDRIVE_OK; i++)
		status = rdv_store_header(r->store, numbers[i], &h[i], error);
	if (status == REDRIVE_OK) {
		skip = first_that_counts(h, count);
		status = check_headers(r, h + skip, count - skip, error);
	}
	free(h);
	return status;
}

/* ---- frames to the fold ---- */

static enum redrive_status call_fold(struct rdv_recovery *r, const struct rdv_frame *frame, struct rdv_error *error)
{
	enum redrive_status status = r->fold ? r->fold(r->ctx, frame, error) : REDRIVE_OK;

	r->frames++;
	r->failed_in_fold |= status != REDRIVE_OK;
	return status;
}

static bool grow_batch(struct rdv_recovery *r)
{
	size_t capacity = r->batch_capacity ? 2 * r->batch_capacity : 64;
	struct rdv_frame *batch = realloc(r->batch, capacity * sizeof *batch);

	if (!batch)
		return false;
	r->batch = batch;
	r->batch_capacity = capacity;
	return true;
}

static enum redrive_status take(struct rdv_recovery *r, const struct rdv_frame *frame, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	size_t i;

	r->number = frame->number;
	r->any_number = false;
	if (frame->synced > r->synced)
		r->synced = frame->synced;
	if (r->batch_count == 0 && !(frame->flags & RDV_FRAME_MORE))
		return call_fold(r, frame, error);
	if (r->batch_count == r->batch_capacity && !grow_batch(r))
		return REDRIVE_NO_MEMORY;
	r->batch[r->batch_count++] = *frame;
	if (frame->flags & RDV_FRAME_MORE)
		return REDRIVE_OK;
	for (i = 0; i < r->batch_count && status == REDRIVE_OK; i++)
		status = call_fold(r, &r->batch[i], error);
	free_kept(r);
	return status;
}

/* The image is about to go: an unfinished batch keeps its payloads. */
static enum redrive_status keep_batch(struct rdv_recovery *r)
{
	struct rdv_recovery_chunk *chunk;
	size_t size = 0, i;

	for (i = r->batch_kept; i < r->batch_count; i++)
		size += r->batch[i].payload.size;
	if (r->batch_kept == r->batch_count)
		return REDRIVE_OK;
	chunk = malloc(sizeof *chunk + size);
	if (!chunk)
		return REDRIVE_NO_MEMORY;
	chunk->next = r->kept;
	r->kept = chunk;
	for (size = 0; r->batch_kept < r->batch_count; r->batch_kept++) {
		struct rdv_slice *payload = &r->batch[r->batch_kept].payload;

		memcpy(chunk->bytes + size, payload->data, payload->size);
		payload->data = chunk->bytes + size;
		size += payload->size;
	}
	return REDRIVE_OK;
}

/* ---- one segment ---- */

static bool follows(const struct rdv_recovery *r, uint64_t number)
{
	return r->any_number || number == r->number + 1;
}

static struct rdv_slice image_from(const struct rdv_recovery *r, uint32_t offset)
{
	return rdv_slice(r->image + offset, r->store->segment_size - offset);
}

static enum redrive_status walk(struct rdv_recovery *r, struct rdv_recovered_segment *segment, struct rdv_error *error)
{
	struct rdv_position at = {segment->number, RDV_SEGMENT_START};
	enum redrive_status status;
	struct rdv_frame frame;

	status = rdv_store_load(r->store, segment->number, r->image, error);
	while (status == REDRIVE_OK && rdv_frame_valid(r->store->seed, image_from(r, at.offset), at, &frame) &&
	       follows(r, frame.number)) {
		at.offset += RDV_FRAME_HEADER + frame.length;
		segment->end = at.offset;
		segment->first = segment->first ? segment->first : frame.number;
		segment->last = frame.number;
		status = take(r, &frame, error);
	}
	return status == REDRIVE_OK ? keep_batch(r) : status;
}

static enum redrive_status walk_hints(struct rdv_recovery *r, struct rdv_recovered_segment *segment,
				      struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	struct rdv_frame frame;

	segment->end = r->hints->end;
	segment->first = r->hints->first;
	segment->last = r->hints->last;
	segment->hinted = true;
	r->hints_used++;
	while (status == REDRIVE_OK && rdv_hints_next(r->hints, &frame))
		status = take(r, &frame, error);
	if (r->hints->last >= r->synced)
		r->synced = r->hints->last + 1; /* hints are only written when a frame of a later segment is durable */
	return status == REDRIVE_OK ? keep_batch(r) : status;
}

static bool first_frame_follows(const struct rdv_recovery *r, uint32_t segment)
{
	const struct rdv_store *s = r->store;
	struct rdv_position at = {segment, RDV_SEGMENT_START};
	uint8_t header[RDV_FRAME_HEADER], *bytes = NULL;
	struct rdv_frame frame;
	bool good = false;
	size_t size;
	int fd;

	if (rdv_store_open(s, RDV_STORE_SEGMENT, segment, O_RDONLY, &fd, NULL) != REDRIVE_OK)
		return false;
	if (rdv_file_read_all(s->ops, s->ctx, fd, header, sizeof header, at.offset) == (ssize_t)sizeof header) {
		rdv_frame_decode(header, at, &frame);
		size = RDV_FRAME_HEADER + (size_t)frame.length;
		if (follows(r, frame.number) && size <= s->segment_size - at.offset)
			bytes = malloc(size);
		good = bytes && rdv_file_read_all(s->ops, s->ctx, fd, bytes, size, at.offset) == (ssize_t)size &&
		       rdv_frame_valid(s->seed, rdv_slice(bytes, size), at, &frame);
	}
	free(bytes);
	rdv_store_close(s, fd);
	return good;
}

/* Does segment i go on where the last frame ended? Its hints, if good, are left in r->hints. */
static bool goes_on(struct rdv_recovery *r, uint32_t i)
{
	rdv_hints_free(r->hints);
	r->hints = NULL;
	if (i >= r->segment_count)
		return false;
	if (!r->ignore_hints && i + 1 < r->segment_count)
		r->hints = rdv_hints_load(r->store, r->segments[i].number);
	if (r->hints && follows(r, r->hints->first))
		return true;
	rdv_hints_free(r->hints);
	r->hints = NULL;
	return first_frame_follows(r, r->segments[i].number);
}

/* ---- the end ---- */

/* Looks through what lies behind the end of the log in one segment. True if a valid frame is there. */
static bool look_behind(struct rdv_recovery *r, uint32_t segment, uint32_t offset)
{
	struct rdv_slice image = rdv_slice(r->image, r->store->segment_size);
	struct rdv_position at = {segment, offset};
	struct rdv_frame frame;
	bool found = false;

	while (rdv_frame_find(r->store->seed, image, at, r->number, &frame)) {
		found = true;
		if (frame.synced > r->synced)
			r->synced = frame.synced;
		at.offset = frame.position.offset + RDV_FRAME_HEADER + frame.length;
	}
	return found;
}

/* Is the frame that should come next at the end of this image, however damaged? */
static bool header_of_next(const struct rdv_recovery *r, uint32_t end)
{
	return r->store->segment_size - end >= RDV_FRAME_HEADER && rdv_get_u64(r->image + end + 8) == r->number + 1;
}

/* An unfinished batch does not count. */
static void cut_batch(struct rdv_recovery *r)
{
	struct rdv_position at = r->batch[0].position;
	uint32_t i;

	r->number = r->batch[0].number - 1;
	r->stale = true;
	for (i = 0; i < r->segment_count; i++) {
		struct rdv_recovered_segment *segment = &r->segments[i];

		if (segment->number < at.segment)
			continue;
		if (segment->number == at.segment)
			r->end_index = i;
		segment->end = segment->number == at.segment ? at.offset : RDV_SEGMENT_START;
		segment->last = segment->end == RDV_SEGMENT_START ? 0 : r->number;
		segment->first = segment->last ? segment->first : 0;
		segment->hinted = false;
	}
	free_kept(r);
}

static enum redrive_status settle(struct rdv_recovery *r, uint32_t i, struct rdv_error *error)
{
	struct rdv_position bad = {r->segments[i].number, r->segments[i].end};
	bool unknown = r->any_number, torn;
	enum redrive_status status = rdv_store_load(r->store, bad.segment, r->image, error);

	if (status != REDRIVE_OK)
		return status;
	r->end_index = i;
	torn = header_of_next(r, bad.offset);
	r->stale = look_behind(r, bad.segment, bad.offset);
	torn |= r->stale;
	while (status == REDRIVE_OK && ++i < r->segment_count) {
		status = rdv_store_load(r->store, r->segments[i].number, r->image, error);
		if (status != REDRIVE_OK)
			return status;
		r->stale |= look_behind(r, r->segments[i].number, RDV_SEGMENT_START);
		if (i == r->end_index + 1 && !torn && (r->stale || header_of_next(r, RDV_SEGMENT_START))) {
			bad = (struct rdv_position){r->segments[i].number, RDV_SEGMENT_START};
			torn = true;
		}
	}
	if (r->batch_count)
		cut_batch(r);
	r->tail_cut = torn || r->stale;
	if (unknown || r->synced > r->number)
		return rdv_error_set(error, REDRIVE_CORRUPT,
				     "segment %u: bad frame at offset %u, before the last one known to be synced",
				     bad.segment, bad.offset);
	return REDRIVE_OK;
}

enum redrive_status rdv_recovery_begin(struct rdv_recovery *r, const uint32_t *numbers, uint32_t count,
				       struct rdv_error *error)
{
	enum redrive_status status = read_headers(r, numbers, count, error);

	return status == REDRIVE_NO_MEMORY ? rdv_error_set(error, status, "no memory to read the log") : status;
}

static enum redrive_status read_segment(struct rdv_recovery *r, uint32_t i, struct rdv_error *error)
{
	enum redrive_status status = r->hints ? walk_hints(r, &r->segments[i], error) : walk(r, &r->segments[i], error);

	if (status == REDRIVE_NO_MEMORY && !r->failed_in_fold)
		return rdv_error_set(error, status, "no memory to read the log");
	return status;
}

enum redrive_status rdv_recovery_run(struct rdv_recovery *r, struct rdv_error *error)
{
	enum redrive_status status;
	uint32_t i = 0;

	if (!goes_on(r, 0))
		return settle(r, 0, error);
	for (;;) {
		status = read_segment(r, i, error);
		if (status != REDRIVE_OK)
			return status;
		if (!goes_on(r, i + 1))
			return settle(r, i, error);
		i++;
	}
}

enum redrive_status rdv_recovery_again(struct rdv_recovery *r, uint64_t number, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;

	for (uint32_t i = 0; status == REDRIVE_OK && goes_on(r, i); i++)
		status = read_segment(r, i, error);
	if (status == REDRIVE_OK && r->number != number)
		return rdv_error_set(error, REDRIVE_CORRUPT,
				     "read again, the log ends at frame %" PRIu64 " and not at %" PRIu64, r->number,
				     number);
	return status;
}
