/* segment_writer.c - appends letters to a segment: frames into blocks, blocks into one write and one sync.
 *
 * Everything that was added goes out by one pwritev and one fdatasync; only then the segment's end moves. What always
 * holds: bytes before `end` are never written again. After a failed write the file is cut back to `end` and goes on; if
 * that fails, or a sync failed (then the page cache may lie about what is on the disk), the segment is sealed: the next
 * one's header says where this one ends, so that whatever lies behind never counts. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "segment.h"
#include "segment_bytes.h"

/* 0 or -errno. */
static int write_all(struct rdv_desk_segment *s, const void *data, size_t size, uint64_t at)
{
	size_t done = 0;
	while (done < size) {
		struct iovec iov = {(uint8_t *)(uintptr_t)data + done, size - done};
		ssize_t n = s->files->pwritev(s->files_ctx, s->fd, &iov, 1, at + done);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? (int)n : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

enum redrive_status rdv_desk_segment_create(struct rdv_desk_segment *s, char *path,
					    const struct rdv_desk_segment_head *head, struct rdv_error *error)
{
	uint8_t bytes[RDV_DESK_SEGMENT_HEADER];
	s->path = path;
	s->head = *head;
	s->end = RDV_DESK_SEGMENT_HEADER;
	rdv_desk_segment_head_encode(head, bytes);
	s->fd = s->files->open(s->files_ctx, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return rdv_error_errno(error, -s->fd, "create letters '%s'", path);
	int failed = write_all(s, bytes, sizeof bytes, 0);
	if (!failed)
		failed = s->files->fdatasync(s->files_ctx, s->fd);
	char *slash = strrchr(path, '/');
	if (!failed && slash) {
		*slash = 0;
		failed = s->files->fsync_dir(s->files_ctx, path);
		*slash = '/';
	}
	if (!failed)
		return REDRIVE_OK;
	s->files->unlink(s->files_ctx, path);
	return rdv_error_errno(error, -failed, "create letters '%s'", path);
}

enum redrive_status rdv_desk_segment_writer_init(struct rdv_desk_segment_writer *w)
{
	memset(w, 0, sizeof *w);
	rdv_buffer_init(&w->raw, RDV_LETTER_MAX);
	rdv_buffer_init(&w->out, 0);
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd || ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, 1)))
		return REDRIVE_NO_MEMORY;
	return REDRIVE_OK;
}

void rdv_desk_segment_writer_done(struct rdv_desk_segment_writer *w)
{
	if (!w)
		return;
	ZSTD_freeCCtx(w->zstd);
	w->zstd = NULL;
	rdv_buffer_done(&w->raw);
	rdv_buffer_done(&w->out);
}

/* Turns what is in `raw` into a block at the end of `out`. Without letters: an anchor. */
static bool close_block(struct rdv_desk_segment_writer *w, const struct rdv_desk_segment *s, uint32_t flags)
{
	size_t bound = w->raw.size ? ZSTD_compressBound(w->raw.size) : 0, stored = 0;
	uint8_t *p = rdv_buffer_reserve(&w->out, RDV_DESK_SEGMENT_BLOCK_HEADER + bound);
	if (!p)
		return false;
	if (w->raw.size)
		stored = ZSTD_compress2(w->zstd, p + RDV_DESK_SEGMENT_BLOCK_HEADER, bound, w->raw.data, w->raw.size);
	if (ZSTD_isError(stored))
		return false;
	struct rdv_desk_segment_block head = {
		.at = s->end + w->out.size,
		.flags = flags,
		.count = w->block_count,
		.raw = (uint32_t)w->raw.size,
		.stored = (uint32_t)stored,
		.first = s->letters + w->pending - w->block_count,
		.synced = s->end,
	};
	rdv_desk_segment_block_encode(&head, s->head.number, p + RDV_DESK_SEGMENT_BLOCK_HEADER, p);
	w->out.size += RDV_DESK_SEGMENT_BLOCK_HEADER + stored;
	rdv_buffer_clear(&w->raw);
	w->block_count = 0;
	return true;
}

enum redrive_status rdv_desk_segment_add(struct rdv_desk_segment_writer *w, const struct rdv_desk_segment *s,
					 const struct rdv_letter_frame *f, struct rdv_desk_segment_place *place)
{
	size_t size = rdv_letter_frame_size(f);
	if (size == 0)
		return REDRIVE_TOO_LARGE;
	if (w->raw.size && w->raw.size + size > RDV_DESK_SEGMENT_BLOCK_RAW && !close_block(w, s, 0)) {
		w->failed = true;
		return REDRIVE_NO_MEMORY;
	}
	*place = (struct rdv_desk_segment_place){s->end + w->out.size, (uint32_t)w->raw.size, s->letters + w->pending};
	size_t before = w->raw.size;
	rdv_letter_frame_encode(f, &w->raw);
	if (w->raw.failed) { /* as if it had never been added */
		w->raw.failed = false;
		w->raw.size = before;
		return REDRIVE_NO_MEMORY;
	}
	w->block_count++;
	w->pending++;
	return REDRIVE_OK;
}

static void forget(struct rdv_desk_segment_writer *w)
{
	rdv_buffer_clear(&w->raw);
	rdv_buffer_clear(&w->out);
	w->block_count = w->pending = 0;
	w->failed = false;
	if (w->out.capacity > (64u << 20)) /* one giant letter must not hold its memory for ever */
		rdv_buffer_done(&w->out);
	if (w->raw.capacity > (4u << 20))
		rdv_buffer_done(&w->raw);
}

/* Writes and syncs `out`; moves the end when it is durable. */
static enum redrive_status commit(struct rdv_desk_segment_writer *w, struct rdv_desk_segment *s,
				  struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	int failed = write_all(s, w->out.data, w->out.size, s->end);
	if (failed) {
		status = rdv_error_errno(error, -failed, "write letters '%s'", s->path);
		if (s->files->truncate(s->files_ctx, s->fd, s->end))
			s->sealed = true;
	} else if ((failed = s->files->fdatasync(s->files_ctx, s->fd))) {
		status = rdv_error_errno(error, -failed, "sync letters '%s'", s->path);
		s->sealed = true;
		/* If this fails, too: the next segment's header says where this one ends. */
		(void)s->files->truncate(s->files_ctx, s->fd, s->end);
	}
	if (status == REDRIVE_OK) {
		s->end += w->out.size;
		s->letters += w->pending;
	}
	forget(w);
	return status;
}

enum redrive_status rdv_desk_segment_write(struct rdv_desk_segment_writer *w, struct rdv_desk_segment *s,
					   struct rdv_error *error)
{
	bool ok = !w->failed && (w->block_count == 0 || close_block(w, s, 0));
	if (ok)
		return commit(w, s, error);
	forget(w);
	return rdv_error_set(error, REDRIVE_NO_MEMORY, "write letters '%s': no memory", s->path);
}

enum redrive_status rdv_desk_segment_anchor(struct rdv_desk_segment_writer *w, struct rdv_desk_segment *s, bool seal,
					    struct rdv_error *error)
{
	forget(w);
	if (!close_block(w, s, RDV_DESK_BLOCK_ANCHOR | (seal ? RDV_DESK_BLOCK_SEAL : 0)))
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "close letters '%s': no memory", s->path);
	enum redrive_status status = commit(w, s, error);
	s->sealed |= seal;
	return status;
}
