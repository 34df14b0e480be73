/* file.h - the file calls of the log and the desk as a table, so that tests can fail the Nth, tear writes and lose
 * power. The real table calls the system. Every function returns 0 or a count, or -errno. Any thread. */
#ifndef RDV_LOG_FILE_H
#define RDV_LOG_FILE_H
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "../base/status.h"

struct rdv_file_ops {
	int (*open)(void *ctx, const char *path, int flags, mode_t mode); /* descriptor or -errno */
	int (*close)(void *ctx, int fd);
	ssize_t (*pread)(void *ctx, int fd, void *data, size_t size, uint64_t offset);
	ssize_t (*pwritev)(void *ctx, int fd, const struct iovec *iov, int count, uint64_t offset); /* may be short */
	int (*fdatasync)(void *ctx, int fd);
	int (*fsync_dir)(void *ctx, const char *path);
	int (*fallocate)(void *ctx, int fd, uint64_t offset, uint64_t size);
	int (*truncate)(void *ctx, int fd, uint64_t size);
	int (*rename)(void *ctx, const char *from, const char *to);
	int (*unlink)(void *ctx, const char *path);
	int (*size)(void *ctx, int fd, uint64_t *out);
	int (*free_space)(void *ctx, const char *path, uint64_t *out);
	int (*list)(void *ctx, const char *dir, void (*each)(void *each_ctx, const char *name), void *each_ctx);
	int (*mkdir)(void *ctx, const char *path, mode_t mode);
};
extern const struct rdv_file_ops rdv_file_real;

/* Writes all of it, going on after short writes; `iov` is used up. 0 or -errno. */
int rdv_file_write_all(const struct rdv_file_ops *ops, void *ctx, int fd, struct iovec *iov, int count,
		       uint64_t offset);
/* Reads until `size` or the end of the file; bytes read or -errno. */
ssize_t rdv_file_read_all(const struct rdv_file_ops *ops, void *ctx, int fd, void *data, size_t size, uint64_t offset);
#endif
