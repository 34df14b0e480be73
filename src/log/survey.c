/* survey.c - see survey.h. One segment's image in memory at a time; nothing is written. */
#include "survey.h"
#include "directory.h"
#include "frame.h"
#include <stdlib.h>

void rdv_survey_done(struct rdv_survey *v)
{
	free(v->numbers);
	free(v->leftover);
	free(v->gaps);
	free(v->image);
	*v = (struct rdv_survey){0};
}

static bool add_gap(struct rdv_survey *v, struct rdv_survey_gap gap)
{
	if (v->gap_count == v->gap_capacity) {
		size_t capacity = v->gap_capacity ? 2 * v->gap_capacity : 16;
		struct rdv_survey_gap *gaps = realloc(v->gaps, capacity * sizeof *gaps);

		if (!gaps)
			return false;
		v->gaps = gaps;
		v->gap_capacity = capacity;
	}
	v->gaps[v->gap_count++] = gap;
	return true;
}

/* ---- headers ---- */

/* Identity comes from the newest log that is complete: from the last segment that is its own origin, else from the
 * first readable one. */
static enum redrive_status identify(struct rdv_survey *v, const struct rdv_segment_header *h, const bool *good)
{
	uint32_t i, from = 0;
	const struct rdv_segment_header *id = NULL;

	for (i = 0; i < v->count; i++) {
		if (good[i] && (!id || h[i].origin == h[i].segment)) {
			from = h[i].origin == h[i].segment ? i : from;
			id = &h[i];
		}
	}
	if (!id)
		return REDRIVE_CORRUPT;
	v->store->id = id->log_id;
	v->store->salt = id->salt;
	v->store->seed = rdv_frame_seed(id->log_id, id->salt);
	v->store->segment_size = id->segment_size;
	v->store->origin = id->origin;
	v->any_number = !good[from] || id->origin != v->numbers[from];
	v->last = v->start = good[from] ? h[from].base : 0;
	v->voided = from;
	return REDRIVE_OK;
}

static enum redrive_status judge_headers(struct rdv_survey *v, const struct rdv_segment_header *h, const bool *good)
{
	uint64_t size;
	uint32_t i;

	for (i = v->voided; i < v->count; i++) {
		uint32_t number = v->numbers[i];

		if (good[i] && h[i].origin > v->numbers[v->voided] && h[i].origin != v->store->origin)
			break; /* its log never became whole: a repair was interrupted */
		if (i > v->voided && number != v->numbers[i - 1] + 1 &&
		    !add_gap(v, (struct rdv_survey_gap){{v->numbers[i - 1] + 1, 0}, 0, 0, "the file is missing"}))
			return REDRIVE_NO_MEMORY;
		if (!good[i] &&
		    !add_gap(v, (struct rdv_survey_gap){{number, 0}, 0, 0, "the segment's header is damaged"}))
			return REDRIVE_NO_MEMORY;
		if (good[i] && !rdv_store_is_whole(v->store, RDV_STORE_SEGMENT, number, &size) &&
		    !add_gap(v, (struct rdv_survey_gap){{number, (uint32_t)size}, 0, 0, "the file ends there"}))
			return REDRIVE_NO_MEMORY;
		if (good[i] && h[i].base > v->synced)
			v->synced = h[i].base;
	}
	v->leftover_count = v->count - i;
	v->leftover = malloc((v->leftover_count + 1) * sizeof *v->leftover);
	if (!v->leftover)
		return REDRIVE_NO_MEMORY;
	memcpy(v->leftover, v->numbers + i, v->leftover_count * sizeof *v->leftover);
	v->count = i;
	v->damage = v->gap_count;
	return REDRIVE_OK;
}

static enum redrive_status read_headers(struct rdv_survey *v, struct rdv_error *error)
{
	struct rdv_segment_header *h = calloc(v->count, sizeof *h);
	bool *good = calloc(v->count, sizeof *good);
	enum redrive_status status = h && good ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	uint32_t i;

	for (i = 0; i < v->count && status == REDRIVE_OK; i++) {
		status = rdv_store_header(v->store, v->numbers[i], &h[i], error);
		good[i] = status == REDRIVE_OK;
		if (status == REDRIVE_CORRUPT)
			status = REDRIVE_OK;
	}
	if (status == REDRIVE_OK)
		status = identify(v, h, good);
	if (status == REDRIVE_OK)
		status = judge_headers(v, h, good);
	free(h);
	free(good);
	return status;
}

/* ---- frames ---- */

static void take(struct rdv_survey *v, const struct rdv_frame *frame)
{
	v->frames++;
	v->bytes += RDV_FRAME_HEADER + (uint64_t)frame->length;
	v->last = frame->number;
	v->any_number = false;
	if (frame->synced > v->synced)
		v->synced = frame->synced;
	if (!(frame->flags & RDV_FRAME_MORE))
		v->batch_first = 0;
	else if (!v->batch_first)
		v->batch_first = frame->number;
	v->end = (struct rdv_position){frame->position.segment,
				       frame->position.offset + RDV_FRAME_HEADER + frame->length};
}

static bool next_number_at(const struct rdv_survey *v, uint32_t offset)
{
	return v->store->segment_size - offset >= RDV_FRAME_HEADER && rdv_get_u64(v->image + offset + 8) == v->last + 1;
}

/* Numbers between the last frame and this one are missing: where? */
static bool note_gap(struct rdv_survey *v, const struct rdv_frame *frame, struct rdv_position stopped)
{
	struct rdv_survey_gap gap = {stopped, v->last + 1, frame->number - 1, "bad frame"};

	if (v->any_number)
		gap = (struct rdv_survey_gap){stopped, 0, frame->number - 1, "bad first frame"};
	else if (stopped.offset == RDV_SEGMENT_START && v->header_is_next)
		gap.at = v->end; /* the frame's header lies at the end of the segment before */
	v->batch_first = 0;      /* what is left of that batch counts as it is */
	return add_gap(v, gap);
}

static enum redrive_status survey_segment(struct rdv_survey *v, uint32_t segment)
{
	struct rdv_slice image = rdv_slice(v->image, v->store->segment_size);
	struct rdv_position at = {segment, RDV_SEGMENT_START};
	struct rdv_frame frame;

	while (rdv_frame_find(v->store->seed, image, at, v->last, &frame)) {
		bool expected = v->any_number ? at.offset == RDV_SEGMENT_START : frame.number == v->last + 1;

		if ((!expected || frame.position.offset != at.offset) && !note_gap(v, &frame, at))
			return REDRIVE_NO_MEMORY;
		take(v, &frame);
		at = v->end;
		v->header_is_next = false;
	}
	v->header_is_next |= at.offset == v->end.offset && segment == v->end.segment && next_number_at(v, at.offset);
	return REDRIVE_OK;
}

/* Which gaps are damage, and up to where the log counts. */
static void settle(struct rdv_survey *v)
{
	size_t i = v->damage;

	while (i < v->gap_count && (v->gaps[i].from == 0 || v->gaps[i].from <= v->synced))
		i++;
	v->damage = i;
	v->torn = i < v->gap_count || v->header_is_next || v->batch_first;
	v->keep = v->last;
	if (i < v->gap_count)
		v->keep = v->gaps[i].from - 1;
	else if (v->batch_first > v->synced)
		v->keep = v->batch_first - 1;
}

enum redrive_status rdv_survey_run(struct rdv_survey *v, struct rdv_store *store, struct rdv_error *error)
{
	struct rdv_listing l = {0};
	enum redrive_status status;
	uint32_t i;

	*v = (struct rdv_survey){.store = store, .end = {1, RDV_SEGMENT_START}};
	status = rdv_directory_list(store, &l, error);
	if (status == REDRIVE_OK)
		status = rdv_listing_segments(&l, &v->numbers, &v->count, error);
	rdv_listing_done(&l);
	if (status != REDRIVE_OK)
		return status;
	if (v->count == 0)
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "'%s' holds no log", store->dir);
	status = read_headers(v, error);
	if (status == REDRIVE_OK && !(v->image = malloc(store->segment_size)))
		status = REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		v->end.segment = v->numbers[v->voided];
	for (i = v->voided; i < v->count && status == REDRIVE_OK; i++) {
		status = rdv_store_load(store, v->numbers[i], v->image, error);
		if (status == REDRIVE_OK)
			status = survey_segment(v, v->numbers[i]);
	}
	if (status == REDRIVE_OK && v->synced > v->last &&
	    !add_gap(v, (struct rdv_survey_gap){v->end, v->last + 1, v->synced, "bad frame"}))
		status = REDRIVE_NO_MEMORY;
	if (status == REDRIVE_NO_MEMORY)
		return rdv_error_set(error, status, "no memory to read the log");
	settle(v);
	return status;
}

enum redrive_status rdv_survey_walk(struct rdv_survey *v, rdv_survey_each each, void *ctx, struct rdv_error *error)
{
	struct rdv_slice image = rdv_slice(v->image, v->store->segment_size);
	enum redrive_status status = REDRIVE_OK;
	uint64_t last = v->start;
	uint32_t i;

	for (i = v->voided; i < v->count && status == REDRIVE_OK; i++) {
		struct rdv_position at = {v->numbers[i], RDV_SEGMENT_START};
		struct rdv_frame frame;

		status = rdv_store_load(v->store, v->numbers[i], v->image, error);
		while (status == REDRIVE_OK && rdv_frame_find(v->store->seed, image, at, last, &frame) &&
		       frame.number <= v->keep) {
			last = frame.number;
			at.offset = frame.position.offset + RDV_FRAME_HEADER + frame.length;
			status = each(ctx, &frame);
		}
	}
	return status;
}
