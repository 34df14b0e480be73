/* read.c - reading payloads back: many at once, in the order of their places.
 *
 * Reads are sorted and merged into spans (gaps up to 64 KiB are read over, a span ends at 1 MiB), one pread each; every
 * frame's checksum is verified here. A segment may be recycled while it is read: then the bytes fail the checksum, and
 * whether the segment is still in use decides between CORRUPT and NOT_FOUND. Only what is durable can be read. Any
 * thread. */
#include "internal.h"
#include <fcntl.h>
#include <stdlib.h>

enum { SPAN_MAX = 1 << 20, GAP_MAX = 64 << 10 };

static int by_place(const void *a, const void *b)
{
	const struct rdv_read *x = *(struct rdv_read *const *)a, *y = *(struct rdv_read *const *)b;

	if (x->position.segment != y->position.segment)
		return x->position.segment < y->position.segment ? -1 : 1;
	return (x->position.offset > y->position.offset) - (x->position.offset < y->position.offset);
}

static uint64_t end_of(const struct rdv_read *r)
{
	return (uint64_t)r->position.offset + RDV_FRAME_HEADER + r->length;
}

/* Offset up to which the segment holds durable frames; 0 if it is not in use. */
static uint32_t durable_end(struct rdv_log *log, uint32_t number)
{
	const struct rdv_log_segment *segment;
	uint32_t end = 0;

	pthread_mutex_lock(&log->mutex);
	segment = rdv_log_segment_find(log, number);
	if (segment && number == log->durable_end.segment)
		end = log->durable_end.offset;
	else if (segment && number < log->durable_end.segment)
		end = segment->end;
	pthread_mutex_unlock(&log->mutex);
	return end;
}

static void judge(struct rdv_log *log, struct rdv_read *r, struct rdv_slice bytes)
{
	struct rdv_frame frame;

	if (!rdv_frame_valid(log->store.seed, bytes, r->position, &frame)) {
		r->status = durable_end(log, r->position.segment) ? REDRIVE_CORRUPT : REDRIVE_NOT_FOUND;
		return;
	}
	if (frame.length != r->length) {
		r->status = REDRIVE_NOT_FOUND;
		return;
	}
	r->block = rdv_block_copy(frame.payload);
	r->status = r->block ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

/* Reads [from, to) of the segment and serves the reads in it. */
static void read_span(struct rdv_log *log, int fd, struct rdv_read *reads[], size_t count, uint64_t to)
{
	uint64_t from = reads[0]->position.offset;
	uint8_t *bytes = malloc((size_t)(to - from));
	ssize_t got = -1;
	size_t i;

	if (bytes)
		got = rdv_file_read_all(log->store.ops, log->store.ctx, fd, bytes, (size_t)(to - from), from);
	for (i = 0; i < count; i++) {
		uint64_t at = reads[i]->position.offset - from;

		if (got < 0)
			reads[i]->status = bytes ? REDRIVE_IO : REDRIVE_NO_MEMORY;
		else if ((uint64_t)got < end_of(reads[i]) - from)
			reads[i]->status = REDRIVE_CORRUPT;
		else
			judge(log, reads[i], rdv_slice(bytes + at, (size_t)got - at));
	}
	free(bytes);
}

/* All reads of one segment, sorted. */
static void read_segment(struct rdv_log *log, struct rdv_read *reads[], size_t count)
{
	uint32_t segment = reads[0]->position.segment, limit = durable_end(log, segment);
	enum redrive_status status = REDRIVE_NOT_FOUND;
	size_t from, to, i;
	int fd = -1;

	if (limit)
		status = rdv_store_open(&log->store, RDV_STORE_SEGMENT, segment, O_RDONLY, &fd, NULL);
	for (i = 0; i < count; i++)
		reads[i]->status = status;
	while (status == REDRIVE_OK && count > 0 && end_of(reads[count - 1]) > limit)
		reads[--count]->status = REDRIVE_NOT_FOUND;
	for (from = 0; status == REDRIVE_OK && from < count; from = to) {
		uint64_t end = end_of(reads[from]);

		if (end > limit || reads[from]->position.offset < RDV_SEGMENT_START) {
			reads[from]->status = REDRIVE_NOT_FOUND;
			to = from + 1;
			continue;
		}
		for (to = from + 1; to < count; to++) {
			uint64_t next = end_of(reads[to]);

			if (next > limit || reads[to]->position.offset > end + GAP_MAX ||
			    next - reads[from]->position.offset > SPAN_MAX)
				break;
			end = next > end ? next : end;
		}
		read_span(log, fd, reads + from, to - from, end);
	}
	rdv_store_close(&log->store, fd);
}

void rdv_log_read_many(struct rdv_log *log, struct rdv_read *reads[], size_t count)
{
	size_t from, to;

	for (from = 0; from < count; from++)
		reads[from]->block = NULL;
	qsort(reads, count, sizeof *reads, by_place);
	for (from = 0; from < count; from = to) {
		to = from + 1;
		while (to < count && reads[to]->position.segment == reads[from]->position.segment)
			to++;
		read_segment(log, reads + from, to - from);
	}
}

/* ---- scan ---- */

/* How many first bytes are whole, valid frames; *need = bytes that the first one takes if it is cut. */
static uint32_t whole_frames(const struct rdv_log *log, struct rdv_slice bytes, struct rdv_position from,
			     uint32_t *need, bool *bad)
{
	uint32_t at = 0;

	*need = 0;
	*bad = false;
	while (bytes.size - at >= RDV_FRAME_HEADER) {
		struct rdv_position here = {from.segment, from.offset + at};
		struct rdv_slice rest = rdv_slice(bytes.data + at, bytes.size - at);
		struct rdv_frame frame;

		rdv_frame_decode(rest.data, here, &frame);
		if (frame.length > rest.size - RDV_FRAME_HEADER) {
			*need = frame.length;
			break;
		}
		if (!rdv_frame_valid(log->store.seed, rest, here, &frame)) {
			*bad = true;
			break;
		}
		at += RDV_FRAME_HEADER + frame.length;
	}
	return at;
}

static enum redrive_status scan_piece(struct rdv_log *log, struct rdv_position from, uint32_t size,
				      struct rdv_block **block)
{
	enum redrive_status status;
	ssize_t got;
	int fd;

	status = rdv_store_open(&log->store, RDV_STORE_SEGMENT, from.segment, O_RDONLY, &fd, NULL);
	if (status != REDRIVE_OK)
		return status;
	*block = rdv_block_new(size);
	got = *block ? rdv_file_read_all(log->store.ops, log->store.ctx, fd, (*block)->data, size, from.offset) : 0;
	rdv_store_close(&log->store, fd);
	if (!*block)
		return REDRIVE_NO_MEMORY;
	if (got >= 0) /* what the file has not is damaged: zeros are no frame */
		memset((*block)->data + got, 0, size - (size_t)got);
	return got < 0 ? REDRIVE_IO : REDRIVE_OK;
}

enum redrive_status rdv_log_scan(struct rdv_log *log, struct rdv_position from, uint32_t max_bytes,
				 struct rdv_block **block, uint32_t *next)
{
	uint32_t end = durable_end(log, from.segment), size, whole = 0, need = 0;
	enum redrive_status status = REDRIVE_OK;
	bool bad = false;

	*block = NULL;
	*next = 0;
	if (from.offset < RDV_SEGMENT_START)
		from.offset = RDV_SEGMENT_START;
	if (!end)
		return REDRIVE_NOT_FOUND;
	size = from.offset < end ? end - from.offset : 0;
	if (size > max_bytes)
		size = max_bytes > RDV_FRAME_HEADER ? max_bytes : RDV_FRAME_HEADER;
	while (status == REDRIVE_OK && whole == 0 && !bad && size > 0) {
		rdv_block_unref(*block);
		*block = NULL;
		status = scan_piece(log, from, size, block);
		if (status == REDRIVE_IO && !need && size > RDV_FRAME_HEADER) {
			size = size / 2 > RDV_FRAME_HEADER ? size / 2 : RDV_FRAME_HEADER; /* what lies before it? */
			status = REDRIVE_OK;
			continue;
		}
		if (status != REDRIVE_OK)
			break;
		whole = whole_frames(log, rdv_block_slice(*block), from, &need, &bad);
		if (need > end - from.offset - RDV_FRAME_HEADER)
			bad = true;
		size = need + RDV_FRAME_HEADER;
	}
	if (status == REDRIVE_OK && bad && whole == 0)
		status = durable_end(log, from.segment) ? REDRIVE_CORRUPT : REDRIVE_NOT_FOUND;
	if (status != REDRIVE_OK) {
		rdv_block_unref(*block);
		*block = NULL;
		return status;
	}
	if (*block)
		(*block)->size = whole; /* nobody else has it yet */
	*next = whole && from.offset + whole < end ? from.offset + whole : 0;
	return REDRIVE_OK;
}

bool rdv_log_scan_next(struct rdv_log *log, const struct rdv_block *block, struct rdv_position from, size_t *cursor,
		       struct rdv_frame *frame)
{
	uint32_t start = from.offset < RDV_SEGMENT_START ? RDV_SEGMENT_START : from.offset;

	if (!block || *cursor >= block->size)
		return false;
	rdv_frame_decode(block->data + *cursor, (struct rdv_position){from.segment, start + (uint32_t)*cursor}, frame);
	*cursor += RDV_FRAME_HEADER + (size_t)frame->length;
	return true;
}
