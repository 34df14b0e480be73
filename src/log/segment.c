/* segment.c - see segment.h.
 *
 * A segment gets its name last: the file is filled or recycled under another name, its header is written and synced,
 * and only then it is renamed and the directory synced. So a file called .seg always has a valid header, and one that
 * has not is damaged. The tail's file goes the other way: renamed to .spare, directory synced, and only then written
 * again; otherwise a power loss could bring the old name back over the new header. Errors carry the file's name;
 * nothing is retried. */
#include "segment.h"
#include "frame.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

static const uint8_t magic[8] = {'R', 'D', 'V', 'L', 'O', 'G', '\r', '\n'};
static const char *const kinds[RDV_STORE_KINDS] = {".seg", ".hint", ".spare", ".fill", ".damaged"};

enum { AT_VERSION = 8, AT_SEGMENT = 12, AT_ID = 16, AT_SALT = 32, AT_BASE = 40, AT_SIZE = 48, AT_ORIGIN = 52 };
enum { AT_CRC = 60 };

void rdv_segment_header_encode(const struct rdv_segment_header *h, uint8_t out[RDV_SEGMENT_HEADER])
{
	memset(out, 0, RDV_SEGMENT_HEADER);
	memcpy(out, magic, sizeof magic);
	rdv_put_u32(out + AT_VERSION, RDV_SEGMENT_VERSION);
	rdv_put_u32(out + AT_SEGMENT, h->segment);
	rdv_put_u64(out + AT_ID, h->log_id.lo);
	rdv_put_u64(out + AT_ID + 8, h->log_id.hi);
	rdv_put_u64(out + AT_SALT, h->salt);
	rdv_put_u64(out + AT_BASE, h->base);
	rdv_put_u32(out + AT_SIZE, h->segment_size);
	rdv_put_u32(out + AT_ORIGIN, h->origin);
	rdv_put_u32(out + AT_CRC, rdv_crc32c(0, out, AT_CRC));
}

enum redrive_status rdv_segment_header_decode(const uint8_t in[RDV_SEGMENT_HEADER], struct rdv_segment_header *out,
					      struct rdv_error *error)
{
	uint32_t version = rdv_get_u32(in + AT_VERSION);

	if (memcmp(in, magic, sizeof magic) != 0)
		return rdv_error_set(error, REDRIVE_CORRUPT, "not a segment's header at offset 0");
	if (version > RDV_SEGMENT_VERSION) /* judged before the checksum: a newer header may lie elsewhere */
		return rdv_error_set(error, REDRIVE_VERSION, "format version %" PRIu32 ", this program knows up to %u",
				     version, RDV_SEGMENT_VERSION);
	if (rdv_get_u32(in + AT_CRC) != rdv_crc32c(0, in, AT_CRC) || version == 0)
		return rdv_error_set(error, REDRIVE_CORRUPT, "checksum of the header at offset 0");
	out->segment = rdv_get_u32(in + AT_SEGMENT);
	out->log_id = (struct rdv_hash128){rdv_get_u64(in + AT_ID), rdv_get_u64(in + AT_ID + 8)};
	out->salt = rdv_get_u64(in + AT_SALT);
	out->base = rdv_get_u64(in + AT_BASE);
	out->segment_size = rdv_get_u32(in + AT_SIZE);
	out->origin = rdv_get_u32(in + AT_ORIGIN);
	if (out->segment_size < RDV_SEGMENT_MIN || out->segment_size > RDV_SEGMENT_MAX ||
	    out->segment_size % RDV_PAGE || out->segment == 0 || out->segment > RDV_SEGMENT_LAST ||
	    out->origin > out->segment)
		return rdv_error_set(error, REDRIVE_CORRUPT, "impossible header at offset 0");
	return REDRIVE_OK;
}

void rdv_store_path(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number, char out[RDV_STORE_PATH])
{
	snprintf(out, RDV_STORE_PATH, "%s/%016" PRIx64 "%s", s->dir, number, kinds[kind]);
}

bool rdv_store_parse(const char *name, enum rdv_store_kind *kind, uint64_t *number)
{
	int i;

	*number = 0;
	for (i = 0; i < 16; i++) {
		const char *digits = "0123456789abcdef";
		const char *at = name[i] ? strchr(digits, name[i]) : NULL;

		if (!at)
			return false;
		*number = *number << 4 | (uint64_t)(at - digits);
	}
	for (i = 0; i < RDV_STORE_KINDS; i++) {
		if (strcmp(name + 16, kinds[i]) == 0) {
			*kind = (enum rdv_store_kind)i;
			return true;
		}
	}
	return false;
}

enum redrive_status rdv_store_open(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number, int flags,
				   int *fd, struct rdv_error *error)
{
	char path[RDV_STORE_PATH];

	rdv_store_path(s, kind, number, path);
	*fd = s->ops->open(s->ctx, path, flags, 0600);
	if (*fd == -ENOENT)
		return rdv_error_set(error, REDRIVE_NOT_FOUND, "open '%s': no such file", path);
	if (*fd < 0)
		return rdv_error_errno(error, -*fd, "open '%s'", path);
	return REDRIVE_OK;
}

void rdv_store_close(const struct rdv_store *s, int fd)
{
	if (fd >= 0)
		s->ops->close(s->ctx, fd);
}

enum redrive_status rdv_store_allocate(const struct rdv_store *s, uint64_t number, int *fd, struct rdv_error *error)
{
	enum redrive_status status = rdv_store_open(s, RDV_STORE_FILL, number, O_RDWR | O_CREAT | O_TRUNC, fd, error);
	int err;

	if (status != REDRIVE_OK)
		return status;
	err = s->ops->fallocate(s->ctx, *fd, 0, s->segment_size);
	if (err == -EOPNOTSUPP) /* a file system without it: the size alone must do */
		err = s->ops->truncate(s->ctx, *fd, s->segment_size);
	if (err == 0)
		return REDRIVE_OK;
	rdv_store_close(s, *fd);
	*fd = -1;
	status = rdv_error_errno(error, -err, "allocate a segment in '%s'", s->dir);
	(void)!rdv_store_remove(s, RDV_STORE_FILL, number, NULL);
	return status;
}

static int write_header(const struct rdv_store *s, int fd, uint32_t segment, uint64_t base)
{
	uint8_t page[RDV_PAGE] = {0};
	struct rdv_segment_header h = {segment, s->segment_size, s->origin, s->id, s->salt, base};
	struct iovec iov = {page, sizeof page};
	int err;

	rdv_segment_header_encode(&h, page);
	err = rdv_file_write_all(s->ops, s->ctx, fd, &iov, 1, 0);
	return err ? err : s->ops->fdatasync(s->ctx, fd);
}

enum redrive_status rdv_store_bind(const struct rdv_store *s, int fd, const char *from, uint32_t segment, uint64_t base,
				   struct rdv_error *error)
{
	char to[RDV_STORE_PATH];
	int err = write_header(s, fd, segment, base);

	if (err)
		return rdv_error_errno(error, -err, "write the header of '%s'", from);
	rdv_store_path(s, RDV_STORE_SEGMENT, segment, to);
	return rdv_store_rename(s, from, to, error);
}

enum redrive_status rdv_store_rename(const struct rdv_store *s, const char *from, const char *to,
				     struct rdv_error *error)
{
	int err = s->ops->rename(s->ctx, from, to);

	if (err)
		return rdv_error_errno(error, -err, "rename '%s' to '%s'", from, to);
	return rdv_store_sync_dir(s, error);
}

enum redrive_status rdv_store_remove(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number,
				     struct rdv_error *error)
{
	char path[RDV_STORE_PATH];
	int err;

	rdv_store_path(s, kind, number, path);
	err = s->ops->unlink(s->ctx, path);
	return err && err != -ENOENT ? rdv_error_errno(error, -err, "remove '%s'", path) : REDRIVE_OK;
}

enum redrive_status rdv_store_sync_dir(const struct rdv_store *s, struct rdv_error *error)
{
	int err = s->ops->fsync_dir(s->ctx, s->dir);

	return err ? rdv_error_errno(error, -err, "sync the directory '%s'", s->dir) : REDRIVE_OK;
}

/* Its first `size` bytes, fewer if it ends before. */
static enum redrive_status read_segment(const struct rdv_store *s, uint32_t number, uint8_t *bytes, size_t size,
					size_t *got, struct rdv_error *error)
{
	enum redrive_status status;
	ssize_t n;
	int fd;

	status = rdv_store_open(s, RDV_STORE_SEGMENT, number, O_RDONLY, &fd, error);
	if (status != REDRIVE_OK)
		return status;
	n = rdv_file_read_all(s->ops, s->ctx, fd, bytes, size, 0);
	rdv_store_close(s, fd);
	if (n < 0)
		return rdv_error_errno(error, (int)-n, "read segment %u", number);
	*got = (size_t)n;
	return REDRIVE_OK;
}

enum redrive_status rdv_store_header(const struct rdv_store *s, uint32_t number, struct rdv_segment_header *h,
				     struct rdv_error *error)
{
	uint8_t bytes[RDV_SEGMENT_HEADER] = {0};
	size_t got;
	enum redrive_status status = read_segment(s, number, bytes, sizeof bytes, &got, error);

	if (status != REDRIVE_OK)
		return status;
	status = rdv_segment_header_decode(bytes, h, error);
	if (status == REDRIVE_OK && h->segment != number)
		status = rdv_error_set(error, REDRIVE_CORRUPT, "its header at offset 0 is that of segment %u",
				       h->segment);
	return status == REDRIVE_OK ? status : rdv_error_prefix(error, status, "segment %u", number);
}

bool rdv_store_is_whole(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number, uint64_t *size)
{
	int fd;

	*size = 0;
	if (rdv_store_open(s, kind, number, O_RDONLY, &fd, NULL) != REDRIVE_OK)
		return false;
	if (s->ops->size(s->ctx, fd, size) != 0)
		*size = 0;
	rdv_store_close(s, fd);
	return *size >= s->segment_size;
}

enum redrive_status rdv_store_load(const struct rdv_store *s, uint32_t number, uint8_t *image, struct rdv_error *error)
{
	size_t got = 0;
	enum redrive_status status = read_segment(s, number, image, s->segment_size, &got, error);

	if (status == REDRIVE_OK)
		memset(image + got, 0, s->segment_size - got);
	return status;
}
