/* segment.c - files of letters: names, headers, reading a block, the check at open.
 *
 * The check walks from block to block. Where a block is bad it looks for the next offset at which a block header passes
 * its own checksum, so one damaged block never hides those behind it. Only then it decides what is corruption and what
 * is a torn tail (segment.h). Corrupt blocks stay in the file: nothing here ever deletes synced bytes.
 * Reading uses pread alone; any thread may read what lies before `end`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "segment.h"
#include "../base/hash.h"
#include "segment_bytes.h"

bool rdv_desk_segment_name_parse(const char *name, uint32_t *day, uint64_t *number)
{
	unsigned d = 0;
	unsigned long long n = 0;
	int used = 0;
	if (strlen(name) > 64 || sscanf(name, "%8u-%19llu.seg%n", &d, &n, &used) != 2 || used == 0 || name[used])
		return false;
	char again[80];
	snprintf(again, sizeof again, "%08u-%llu.seg", d, n);
	*day = d;
	*number = n;
	return n > 0 && strcmp(again, name) == 0;
}

char *rdv_desk_segment_path(const char *dir, uint32_t day, uint64_t number, const char *suffix)
{
	char *path = NULL;
	if (asprintf(&path, "%s/%08u-%llu.%s", dir, (unsigned)day, (unsigned long long)number, suffix) < 0)
		return NULL;
	return path;
}

static enum redrive_status read_all(const struct rdv_desk_segment *s, void *data, size_t size, uint64_t at)
{
	size_t done = 0;
	while (done < size) {
		ssize_t n = s->files->pread(s->files_ctx, s->fd, (uint8_t *)data + done, size - done, at + done);
		if (n == -EINTR)
			continue;
		if (n < 0)
			return REDRIVE_IO;
		if (n == 0)
			return REDRIVE_NOT_FOUND;
		done += (size_t)n;
	}
	return REDRIVE_OK;
}

void rdv_desk_segment_head_encode(const struct rdv_desk_segment_head *h, uint8_t out[RDV_DESK_SEGMENT_HEADER])
{
	memset(out, 0, RDV_DESK_SEGMENT_HEADER);
	memcpy(out, RDV_DESK_SEGMENT_MAGIC, 8);
	rdv_put_u32(out + 8, RDV_DESK_SEGMENT_VERSION);
	rdv_put_u32(out + 12, h->day);
	rdv_put_u64(out + 16, h->number);
	rdv_put_u64(out + 24, (uint64_t)h->created.ms);
	rdv_put_u64(out + 32, h->previous);
	rdv_put_u64(out + 40, h->previous_end);
	rdv_put_u64(out + 56, rdv_xxh3(rdv_slice(out, 56)));
}

static enum redrive_status head_decode(const uint8_t in[RDV_DESK_SEGMENT_HEADER], struct rdv_desk_segment_head *out)
{
	if (memcmp(in, RDV_DESK_SEGMENT_MAGIC, 8) != 0)
		return REDRIVE_CORRUPT;
	/* The version first: a newer one may keep its checksum elsewhere. */
	if (rdv_get_u32(in + 8) > RDV_DESK_SEGMENT_VERSION)
		return REDRIVE_VERSION;
	if (rdv_get_u64(in + 56) != rdv_xxh3(rdv_slice(in, 56)))
		return REDRIVE_CORRUPT;
	out->day = rdv_get_u32(in + 12);
	out->number = rdv_get_u64(in + 16);
	out->created.ms = (int64_t)rdv_get_u64(in + 24);
	out->previous = rdv_get_u64(in + 32);
	out->previous_end = rdv_get_u64(in + 40);
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_segment_open(struct rdv_desk_segment *s, char *path, struct rdv_error *error)
{
	const char *slash = strrchr(path, '/');
	uint32_t day;
	uint64_t number;
	s->path = path;
	s->end = RDV_DESK_SEGMENT_HEADER;
	s->fd = s->files->open(s->files_ctx, path, O_RDWR | O_CLOEXEC, 0);
	if (s->fd < 0)
		return rdv_error_errno(error, -s->fd, "open letters '%s'", path);
	if (!rdv_desk_segment_name_parse(slash ? slash + 1 : path, &day, &number))
		return rdv_error_set(error, REDRIVE_INVALID, "'%s' is no name of a letter segment", path);
	uint8_t bytes[RDV_DESK_SEGMENT_HEADER];
	enum redrive_status status = read_all(s, bytes, sizeof bytes, 0);
	if (status == REDRIVE_IO)
		return rdv_error_set(error, status, "read letters '%s'", path);
	if (status == REDRIVE_OK)
		status = head_decode(bytes, &s->head);
	if (status == REDRIVE_OK && (s->head.number != number || s->head.day != day))
		status = REDRIVE_CORRUPT;
	if (status == REDRIVE_VERSION)
		return rdv_error_set(error, status, "letters '%s' are of version %u, this program knows %u", path,
				     (unsigned)rdv_get_u32(bytes + 8), RDV_DESK_SEGMENT_VERSION);
	if (status != REDRIVE_OK) {
		s->head = (struct rdv_desk_segment_head){.number = number, .day = day};
		return rdv_error_set(error, REDRIVE_CORRUPT, "letters '%s': the file's header is damaged", path);
	}
	return REDRIVE_OK;
}

void rdv_desk_segment_done(struct rdv_desk_segment *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		s->files->close(s->files_ctx, s->fd);
	s->fd = -1;
	free(s->path);
	s->path = NULL;
}

void rdv_desk_segment_block_encode(const struct rdv_desk_segment_block *b, uint64_t number, const uint8_t *stored,
				   uint8_t out[RDV_DESK_SEGMENT_BLOCK_HEADER])
{
	memcpy(out, RDV_DESK_SEGMENT_BLOCK_MAGIC, 8);
	rdv_put_u32(out + 8, b->flags);
	rdv_put_u32(out + 12, b->count);
	rdv_put_u32(out + 16, b->raw);
	rdv_put_u32(out + 20, b->stored);
	rdv_put_u32(out + 24, b->first);
	rdv_put_u32(out + 28, 0);
	rdv_put_u64(out + 32, b->synced);
	rdv_put_u64(out + 40, rdv_desk_segment_sum(number, b->at, stored, b->stored));
	rdv_put_u64(out + 48, rdv_desk_segment_sum(number, b->at, out, 48));
}

/* Checks a block header alone. */
static bool block_decode(const uint8_t *in, uint64_t number, uint64_t at, struct rdv_desk_segment_block *out)
{
	if (memcmp(in, RDV_DESK_SEGMENT_BLOCK_MAGIC, 8) != 0 ||
	    rdv_get_u64(in + 48) != rdv_desk_segment_sum(number, at, in, 48))
		return false;
	*out = (struct rdv_desk_segment_block){
		.at = at,
		.flags = rdv_get_u32(in + 8),
		.count = rdv_get_u32(in + 12),
		.raw = rdv_get_u32(in + 16),
		.stored = rdv_get_u32(in + 20),
		.first = rdv_get_u32(in + 24),
		.synced = rdv_get_u64(in + 32),
	};
	if (out->raw > RDV_LETTER_MAX || out->stored > ZSTD_compressBound(RDV_LETTER_MAX) || out->synced > at)
		return false;
	return (out->raw == 0) == (out->count == 0) && (out->raw == 0) == (out->stored == 0);
}

static enum redrive_status unpack(const struct rdv_desk_segment_block *head, const uint8_t *stored,
				  struct rdv_block **raw)
{
	if (head->raw && ZSTD_getFrameContentSize(stored, head->stored) != head->raw)
		return REDRIVE_CORRUPT;
	struct rdv_block *b = rdv_block_new(head->raw);
	if (!b)
		return REDRIVE_NO_MEMORY;
	if (head->raw && ZSTD_decompress(b->data, head->raw, stored, head->stored) != head->raw) {
		rdv_block_unref(b);
		return REDRIVE_CORRUPT;
	}
	*raw = b;
	return REDRIVE_OK;
}

/* The whole block at `at`; raw may be NULL: then only checked. */
static enum redrive_status read_block(const struct rdv_desk_segment *s, uint64_t at,
				      struct rdv_desk_segment_block *head, struct rdv_block **raw)
{
	uint8_t bytes[RDV_DESK_SEGMENT_BLOCK_HEADER];
	enum redrive_status status = read_all(s, bytes, sizeof bytes, at);
	if (status != REDRIVE_OK)
		return status;
	if (!block_decode(bytes, s->head.number, at, head))
		return REDRIVE_NOT_FOUND;
	uint8_t *stored = malloc(head->stored ? head->stored : 1);
	if (!stored)
		return REDRIVE_NO_MEMORY;
	status = read_all(s, stored, head->stored, at + sizeof bytes);
	if (status == REDRIVE_NOT_FOUND)
		status = REDRIVE_CORRUPT;
	if (status == REDRIVE_OK &&
	    rdv_get_u64(bytes + 40) != rdv_desk_segment_sum(s->head.number, at, stored, head->stored))
		status = REDRIVE_CORRUPT;
	if (status == REDRIVE_OK && raw)
		status = unpack(head, stored, raw);
	free(stored);
	return status;
}

enum redrive_status rdv_desk_segment_read(const struct rdv_desk_segment *s, uint64_t at,
					  struct rdv_desk_segment_block *head, struct rdv_block **raw)
{
	return read_block(s, at, head, raw);
}

/* ---- the check at open ---- */

/* The next offset from `at` on where a block header passes, below `limit`; limit if none. */
static enum redrive_status find_block(const struct rdv_desk_segment *s, uint64_t at, uint64_t limit, uint64_t *found)
{
	enum { WINDOW = 1 << 16 };
	uint8_t *window = malloc(WINDOW);
	enum redrive_status status = window ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	struct rdv_desk_segment_block head;
	*found = limit;
	while (status == REDRIVE_OK && *found == limit && at + RDV_DESK_SEGMENT_BLOCK_HEADER <= limit) {
		size_t size = limit - at < WINDOW ? (size_t)(limit - at) : WINDOW;
		status = read_all(s, window, size, at);
		size_t last = size - RDV_DESK_SEGMENT_BLOCK_HEADER;
		for (size_t i = 0; status == REDRIVE_OK && i <= last && *found == limit; i++)
			if (window[i] == RDV_DESK_SEGMENT_BLOCK_MAGIC[0] &&
			    block_decode(window + i, s->head.number, at + i, &head))
				*found = at + i;
		at += last + 1;
	}
	free(window);
	return status;
}

static bool scan_add(struct rdv_desk_segment_scan *scan, const struct rdv_desk_segment_block *b)
{
	if (scan->count == scan->capacity) {
		size_t capacity = scan->capacity ? scan->capacity * 2 : 256;
		void *grown = realloc(scan->blocks, capacity * sizeof *scan->blocks);
		if (!grown)
			return false;
		scan->blocks = grown;
		scan->capacity = capacity;
	}
	scan->blocks[scan->count++] = *b;
	return true;
}

/* Decides what is torn and what is corrupt. The blocks are in order; each gap between two of them, or before the limit,
 * is bad. */
static void scan_judge(struct rdv_desk_segment_scan *scan, uint64_t limit, uint64_t synced)
{
	uint64_t at = RDV_DESK_SEGMENT_HEADER, seq = 0;
	size_t keep = 0;
	for (size_t i = 0; i <= scan->count; i++) {
		uint64_t next = i < scan->count ? scan->blocks[i].at : limit;
		if (next != at && at >= synced)
			break;
		if (next != at && scan->bad++ == 0)
			scan->first_bad = at;
		if (i == scan->count)
			at = limit;
		if (i == scan->count)
			break;
		const struct rdv_desk_segment_block *b = &scan->blocks[i];
		if (b->count && b->first > seq)
			scan->lost += b->first - seq;
		if (b->count)
			seq = (uint64_t)b->first + b->count;
		scan->sealed |= (b->flags & RDV_DESK_BLOCK_SEAL) != 0;
		at = b->at + RDV_DESK_SEGMENT_BLOCK_HEADER + b->stored;
		keep = i + 1;
	}
	scan->count = keep;
	scan->end = at;
	scan->cut = limit - at;
}

enum redrive_status rdv_desk_segment_check(struct rdv_desk_segment *s, uint64_t known_end,
					   struct rdv_desk_segment_scan *out, struct rdv_error *error)
{
	uint64_t size = 0, synced = known_end, at = RDV_DESK_SEGMENT_HEADER;
	memset(out, 0, sizeof *out);
	int failed = s->files->size(s->files_ctx, s->fd, &size);
	if (failed)
		return rdv_error_errno(error, -failed, "letters '%s'", s->path);
	uint64_t limit = known_end && known_end < size ? known_end : size;
	if (limit < at)
		limit = at;
	while (at < limit) {
		struct rdv_desk_segment_block head;
		enum redrive_status status = read_block(s, at, &head, NULL);
		if (status == REDRIVE_OK && at + RDV_DESK_SEGMENT_BLOCK_HEADER + head.stored > limit)
			status = REDRIVE_CORRUPT;
		if (status == REDRIVE_OK && !scan_add(out, &head))
			status = REDRIVE_NO_MEMORY;
		if (status == REDRIVE_OK) {
			synced = head.synced > synced ? head.synced : synced;
			at += RDV_DESK_SEGMENT_BLOCK_HEADER + head.stored;
			continue;
		}
		if (status == REDRIVE_NOT_FOUND || status == REDRIVE_CORRUPT)
			status = find_block(s, at + 1, limit, &at);
		if (status != REDRIVE_OK)
			return rdv_error_set(error, status, "letters '%s': cannot be read at %llu", s->path,
					     (unsigned long long)at);
	}
	scan_judge(out, limit, synced);
	if (known_end > size) { /* a later segment knows of more than there is */
		if (out->bad++ == 0)
			out->first_bad = out->end;
	}
	return REDRIVE_OK;
}

void rdv_desk_segment_scan_done(struct rdv_desk_segment_scan *scan)
{
	if (!scan)
		return;
	free(scan->blocks);
	scan->blocks = NULL;
}

enum redrive_status rdv_desk_segment_adopt(struct rdv_desk_segment *s, const struct rdv_desk_segment_scan *scan,
					   struct rdv_error *error)
{
	s->end = scan->end;
	s->sealed |= scan->sealed || scan->bad > 0;
	for (size_t i = 0; i < scan->count; i++)
		if (scan->blocks[i].count)
			s->letters = scan->blocks[i].first + scan->blocks[i].count;
	if (scan->cut == 0)
		return REDRIVE_OK;
	int failed = s->files->truncate(s->files_ctx, s->fd, s->end);
	if (!failed)
		failed = s->files->fdatasync(s->files_ctx, s->fd);
	return failed ? rdv_error_errno(error, -failed, "cut the torn tail of letters '%s'", s->path) : REDRIVE_OK;
}
