/* hints.c - see hints.h.
 *
 * Writing: the entries are collected in memory (at most as many bytes as the segment has), written as <n>.fill and
 * renamed. Nothing is synced: what a power loss leaves behind fails its checksum, and then the segment is read. Loading
 * checks both checksums and then walks all entries once, so that iteration cannot fail. */
#include "hints.h"
#include "frame.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static const uint8_t magic[8] = {'R', 'D', 'V', 'H', 'I', 'N', 'T', '\n'};
enum {
	AT_VERSION = 8,
	AT_SEGMENT = 12,
	AT_ID = 16,
	AT_FIRST = 32,
	AT_LAST = 40,
	AT_END = 48,
	AT_BYTES = 56,
	AT_SUM = 64
};
enum { AT_CRC = 68, ENTRY = 20 };

void rdv_hints_free(struct rdv_hints *h)
{
	if (!h)
		return;
	free(h->data);
	free(h);
}

static void rewind_hints(struct rdv_hints *h)
{
	h->at = RDV_HINTS_HEADER;
	h->offset = RDV_SEGMENT_START;
	h->number = h->first;
}

bool rdv_hints_next(struct rdv_hints *h, struct rdv_frame *frame)
{
	const uint8_t *e = h->data + h->at;
	uint16_t hint_len;

	if (h->size - h->at < ENTRY)
		return false;
	memcpy(&hint_len, e + 2, 2);
	if (h->size - h->at - ENTRY < hint_len)
		return false;
	*frame = (struct rdv_frame){.type = e[0],
				    .flags = e[1],
				    .hint_len = hint_len,
				    .stream = rdv_get_u32(e + 4),
				    .seq = rdv_get_u64(e + 8),
				    .length = rdv_get_u32(e + 16),
				    .payload = rdv_slice(e + ENTRY, hint_len),
				    .position = {h->segment, h->offset},
				    .number = h->number++};
	h->at += ENTRY + (size_t)hint_len;
	h->offset += RDV_FRAME_HEADER + frame->length;
	return true;
}

/* The entries fill the file exactly and describe frames that fit into the segment up to `end`. */
static bool entries_add_up(struct rdv_hints *h)
{
	struct rdv_frame frame;
	uint64_t offset = RDV_SEGMENT_START;

	rewind_hints(h);
	while (rdv_hints_next(h, &frame)) {
		offset += RDV_FRAME_HEADER + (uint64_t)frame.length;
		if (offset > h->end || frame.hint_len > frame.length || (frame.flags & ~RDV_FRAME_MORE))
			return false;
	}
	if (h->at != h->size || offset != h->end || h->number != h->last + 1 || h->first == 0)
		return false;
	rewind_hints(h);
	return true;
}

static bool header_fits(const struct rdv_store *s, const struct rdv_hints *h)
{
	const uint8_t *d = h->data;

	return memcmp(d, magic, sizeof magic) == 0 && rdv_get_u32(d + AT_VERSION) == RDV_HINTS_VERSION &&
	       rdv_get_u32(d + AT_CRC) == rdv_crc32c(0, d, AT_CRC) && rdv_get_u32(d + AT_SEGMENT) == h->segment &&
	       rdv_get_u64(d + AT_ID) == s->id.lo && rdv_get_u64(d + AT_ID + 8) == s->id.hi &&
	       rdv_get_u64(d + AT_BYTES) == h->size - RDV_HINTS_HEADER &&
	       rdv_get_u32(d + AT_SUM) == rdv_crc32c(0, d + RDV_HINTS_HEADER, h->size - RDV_HINTS_HEADER);
}

static bool read_file(const struct rdv_store *s, struct rdv_hints *h, int fd)
{
	uint64_t size;

	if (s->ops->size(s->ctx, fd, &size) != 0 || size < RDV_HINTS_HEADER ||
	    size > RDV_HINTS_HEADER + (uint64_t)s->segment_size)
		return false;
	h->size = (size_t)size;
	h->data = malloc(h->size);
	return h->data && rdv_file_read_all(s->ops, s->ctx, fd, h->data, h->size, 0) == (ssize_t)h->size;
}

struct rdv_hints *rdv_hints_load(const struct rdv_store *s, uint32_t segment)
{
	struct rdv_hints *h = calloc(1, sizeof *h);
	bool good;
	int fd;

	if (!h)
		return NULL;
	if (rdv_store_open(s, RDV_STORE_HINT, segment, O_RDONLY, &fd, NULL) != REDRIVE_OK) {
		free(h);
		return NULL;
	}
	h->segment = segment;
	good = read_file(s, h, fd) && header_fits(s, h);
	rdv_store_close(s, fd);
	if (good) {
		h->first = rdv_get_u64(h->data + AT_FIRST);
		h->last = rdv_get_u64(h->data + AT_LAST);
		h->end = rdv_get_u32(h->data + AT_END);
		good = entries_add_up(h);
	}
	if (good)
		return h;
	rdv_hints_free(h);
	return NULL;
}

void rdv_hints_begin(struct rdv_hints_writer *w, const struct rdv_store *s, uint32_t segment)
{
	static const uint8_t room[RDV_HINTS_HEADER];

	*w = (struct rdv_hints_writer){.store = s, .segment = segment, .end = RDV_SEGMENT_START};
	rdv_buffer_init(&w->out, RDV_HINTS_HEADER + (size_t)s->segment_size);
	rdv_buffer_append(&w->out, room, sizeof room);
}

void rdv_hints_add(struct rdv_hints_writer *w, const struct rdv_frame *frame)
{
	struct rdv_buffer *out = &w->out;

	rdv_buffer_u8(out, frame->type);
	rdv_buffer_u8(out, frame->flags);
	rdv_buffer_u16(out, frame->hint_len);
	rdv_buffer_u32(out, frame->stream);
	rdv_buffer_u64(out, frame->seq);
	rdv_buffer_u32(out, frame->length);
	rdv_buffer_append(out, frame->payload.data, frame->hint_len);
	w->first = w->first ? w->first : frame->number;
	w->last = frame->number;
	w->end = frame->position.offset + RDV_FRAME_HEADER + frame->length;
}

static void write_header(const struct rdv_hints_writer *w)
{
	const struct rdv_store *s = w->store;
	uint8_t *d = w->out.data;

	memcpy(d, magic, sizeof magic);
	rdv_put_u32(d + AT_VERSION, RDV_HINTS_VERSION);
	rdv_put_u32(d + AT_SEGMENT, w->segment);
	rdv_put_u64(d + AT_ID, s->id.lo);
	rdv_put_u64(d + AT_ID + 8, s->id.hi);
	rdv_put_u64(d + AT_FIRST, w->first);
	rdv_put_u64(d + AT_LAST, w->last);
	rdv_put_u32(d + AT_END, w->end);
	rdv_put_u64(d + AT_BYTES, w->out.size - RDV_HINTS_HEADER);
	rdv_put_u32(d + AT_SUM, rdv_crc32c(0, d + RDV_HINTS_HEADER, w->out.size - RDV_HINTS_HEADER));
	rdv_put_u32(d + AT_CRC, rdv_crc32c(0, d, AT_CRC));
}

static enum redrive_status write_file(const struct rdv_store *s, uint32_t segment, struct rdv_slice bytes,
				      struct rdv_error *error)
{
	char from[RDV_STORE_PATH], to[RDV_STORE_PATH];
	struct iovec iov = {(void *)(uintptr_t)bytes.data, bytes.size};
	enum redrive_status status;
	int fd, err;

	/* High numbers: no spare file ever has one. */
	rdv_store_path(s, RDV_STORE_FILL, UINT64_MAX, from);
	rdv_store_path(s, RDV_STORE_HINT, segment, to);
	status = rdv_store_open(s, RDV_STORE_FILL, UINT64_MAX, O_RDWR | O_CREAT | O_TRUNC, &fd, error);
	if (status != REDRIVE_OK)
		return status;
	err = rdv_file_write_all(s->ops, s->ctx, fd, &iov, 1, 0);
	rdv_store_close(s, fd);
	if (!err)
		err = s->ops->rename(s->ctx, from, to);
	if (!err)
		return REDRIVE_OK;
	(void)!rdv_store_remove(s, RDV_STORE_FILL, UINT64_MAX, NULL);
	return rdv_error_errno(error, -err, "write hints '%s'", to);
}

enum redrive_status rdv_hints_end(struct rdv_hints_writer *w, struct rdv_error *error)
{
	enum redrive_status status = w->out.failed ? REDRIVE_NO_MEMORY : REDRIVE_OK;

	if (status == REDRIVE_OK && w->first) { /* an empty segment needs none */
		write_header(w);
		status = write_file(w->store, w->segment, rdv_buffer_as_slice(&w->out), error);
	}
	rdv_hints_drop(w);
	return status;
}

void rdv_hints_drop(struct rdv_hints_writer *w)
{
	rdv_buffer_done(&w->out);
}
