/* skip.c - where a segment goes on behind damage.
 *
 * A damaged frame's length says nothing, so every byte behind it is tried. A frame is valid only in the place it was
 * written for, and its number must be one of the segment's: bytes of a message never pass. The first look is at a part
 * of the segment that grows until something is found; a frame that does not fit into the part ends behind it, so what
 * is found is the first. What the device cannot read is left out page by page. Any thread. */
#include "internal.h"
#include <fcntl.h>
#include <stdlib.h>

enum { FIRST_PART = 1 << 20, GROWS = 8 };

struct part {
	uint8_t *bytes;
	size_t size;
	struct rdv_position at;
	uint64_t first, last; /* numbers of the segment's frames; last = 0: not known */
};

static void read_pages(const struct rdv_store *s, int fd, struct part *p)
{
	for (size_t at = 0, size; at < p->size; at += size) {
		size = RDV_PAGE - (p->at.offset + at) % RDV_PAGE;
		size = size < p->size - at ? size : p->size - at;
		if (rdv_file_read_all(s->ops, s->ctx, fd, p->bytes + at, size, p->at.offset + at) < 0)
			memset(p->bytes + at, 0, size);
	}
}

static enum redrive_status read_part(const struct rdv_store *s, struct part *p)
{
	enum redrive_status status;
	ssize_t got;
	int fd;

	memset(p->bytes, 0, p->size);
	status = rdv_store_open(s, RDV_STORE_SEGMENT, p->at.segment, O_RDONLY, &fd, NULL);
	if (status == REDRIVE_NO_MEMORY)
		return status;
	if (status != REDRIVE_OK) /* the file is gone, or the device does not give it: nothing is there */
		return REDRIVE_OK;
	got = rdv_file_read_all(s->ops, s->ctx, fd, p->bytes, p->size, p->at.offset);
	if (got < 0)
		read_pages(s, fd, p);
	else
		memset(p->bytes + got, 0, p->size - (size_t)got);
	rdv_store_close(s, fd);
	return REDRIVE_OK;
}

static uint32_t find_frame(uint32_t seed, const struct part *p)
{
	for (size_t i = 0; p->size - i >= RDV_FRAME_HEADER; i++) {
		uint64_t number = rdv_get_u64(p->bytes + i + 8);
		struct rdv_position at = {p->at.segment, p->at.offset + (uint32_t)i};
		struct rdv_frame frame;

		if (number < p->first || (p->last && number > p->last))
			continue;
		if (rdv_frame_valid(seed, rdv_slice(p->bytes + i, p->size - i), at, &frame))
			return at.offset;
	}
	return 0;
}

/* Up to where the segment holds durable frames; 0: it is not in use. */
static uint32_t end_of(struct rdv_log *log, struct part *p)
{
	const struct rdv_log_segment *segment;
	uint32_t end = 0;

	pthread_mutex_lock(&log->mutex);
	segment = rdv_log_segment_find(log, p->at.segment);
	if (segment && p->at.segment < log->durable_end.segment) {
		end = segment->end;
		p->first = segment->first ? segment->first : 1;
		p->last = segment->last;
	}
	pthread_mutex_unlock(&log->mutex);
	return end;
}

enum redrive_status rdv_log_skip(struct rdv_log *log, struct rdv_position from, uint32_t *next)
{
	struct part p = {.at = from};
	size_t rest, most = FIRST_PART;
	enum redrive_status status = REDRIVE_OK;
	uint32_t end = end_of(log, &p);

	if (p.at.offset < RDV_SEGMENT_START)
		p.at.offset = RDV_SEGMENT_START;
	rest = p.at.offset < end ? end - p.at.offset : 0;
	*next = 0;
	while (status == REDRIVE_OK && !*next && p.size < rest) {
		p.size = rest < most ? rest : most;
		most *= GROWS;
		p.bytes = malloc(p.size);
		status = p.bytes ? read_part(&log->store, &p) : REDRIVE_NO_MEMORY;
		if (status == REDRIVE_OK)
			*next = find_frame(log->store.seed, &p);
		free(p.bytes);
	}
	return status;
}
