/* file.c - the real file calls, and the few helpers that every user of the table needs.
 *
 * Each call is the system's, repeated when a signal interrupts it; descriptors are close-on-exec, because handlers
 * are run as child processes and none of them may hold a segment or the lock open. fdatasync is never repeated after
 * an error: the kernel may have dropped the dirty pages, and a second call would succeed without them.
 * Nothing here keeps state; any thread. */
#include "file.h"
#include "../base/bytes.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int real_open(void *ctx, const char *path, int flags, mode_t mode)
{
	int fd;

	do
		fd = open(path, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

static int real_close(void *ctx, int fd)
{
	return close(fd) < 0 && errno != EINTR ? -errno : 0; /* after EINTR the descriptor is gone on Linux */
}

static ssize_t real_pread(void *ctx, int fd, void *data, size_t size, uint64_t offset)
{
	ssize_t n;

	do
		n = pread(fd, data, size, (off_t)offset);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static ssize_t real_pwritev(void *ctx, int fd, const struct iovec *iov, int count, uint64_t offset)
{
	ssize_t n;

	do
		n = pwritev(fd, iov, count, (off_t)offset);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int real_fdatasync(void *ctx, int fd)
{
	return fdatasync(fd) < 0 ? -errno : 0;
}

static int real_fsync_dir(void *ctx, const char *path)
{
	int fd = real_open(ctx, path, O_RDONLY | O_DIRECTORY, 0);
	int err;

	if (fd < 0)
		return fd;
	err = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return err;
}

static int real_fallocate(void *ctx, int fd, uint64_t offset, uint64_t size)
{
	int n;

	do
		n = fallocate(fd, 0, (off_t)offset, (off_t)size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int real_truncate(void *ctx, int fd, uint64_t size)
{
	int n;

	do
		n = ftruncate(fd, (off_t)size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int real_rename(void *ctx, const char *from, const char *to)
{
	return rename(from, to) < 0 ? -errno : 0;
}

static int real_unlink(void *ctx, const char *path)
{
	return unlink(path) < 0 ? -errno : 0;
}

static int real_size(void *ctx, int fd, uint64_t *out)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*out = (uint64_t)st.st_size;
	return 0;
}

static int real_free_space(void *ctx, const char *path, uint64_t *out)
{
	struct statvfs st;
	int n;

	do
		n = statvfs(path, &st);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*out = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

static int real_list(void *ctx, const char *dir, void (*each)(void *each_ctx, const char *name), void *each_ctx)
{
	DIR *d = opendir(dir);
	const struct dirent *entry;
	int err;

	if (!d)
		return -errno;
	for (errno = 0; (entry = readdir(d)); errno = 0)
		each(each_ctx, entry->d_name);
	err = -errno;
	closedir(d);
	return err;
}

static int real_mkdir(void *ctx, const char *path, mode_t mode)
{
	return mkdir(path, mode) < 0 ? -errno : 0;
}

const struct rdv_file_ops rdv_file_real = {
	.open = real_open,
	.close = real_close,
	.pread = real_pread,
	.pwritev = real_pwritev,
	.fdatasync = real_fdatasync,
	.fsync_dir = real_fsync_dir,
	.fallocate = real_fallocate,
	.truncate = real_truncate,
	.rename = real_rename,
	.unlink = real_unlink,
	.size = real_size,
	.free_space = real_free_space,
	.list = real_list,
	.mkdir = real_mkdir,
};

int rdv_file_write_all(const struct rdv_file_ops *ops, void *ctx, int fd, struct iovec *iov, int count, uint64_t offset)
{
	while (count > 0) {
		ssize_t n;

		if (iov->iov_len == 0) {
			iov++;
			count--;
			continue;
		}
		n = ops->pwritev(ctx, fd, iov, count < IOV_MAX ? count : IOV_MAX, offset);
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO; /* no progress and no error: never loop on it */
		offset += (uint64_t)n;
		for (; count > 0 && (size_t)n >= iov->iov_len; iov++, count--)
			n -= (ssize_t)iov->iov_len;
		if (count > 0) {
			iov->iov_base = (uint8_t *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
	return 0;
}

ssize_t rdv_file_read_all(const struct rdv_file_ops *ops, void *ctx, int fd, void *data, size_t size, uint64_t offset)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = ops->pread(ctx, fd, (uint8_t *)data + done, size - done, offset + done);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}
