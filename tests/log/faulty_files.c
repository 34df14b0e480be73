/* faulty_files.c - see faulty_files.h.
 *
 * Inodes hold two images, one seen and one on disk, and a flag per sector where they may differ. Names live in a small
 * array, seen; the names on disk are a second one, and the changes between them a list, in order. Test code: memory
 * shortage aborts. */
#include "faulty_internal.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct inode *ref(struct inode *i)
{
	if (i)
		i->refs++;
	return i;
}

void rdv_inode_unref(struct inode *i)
{
	if (!i || --i->refs > 0)
		return;
	free(i->seen);
	free(i->disk);
	free(i->state);
	free(i);
}

struct name *rdv_names_find(struct names *names, const char *path)
{
	int i;

	for (i = 0; i < names->count; i++)
		if (strcmp(names->items[i].path, path) == 0)
			return &names->items[i];
	return NULL;
}

void rdv_names_set(struct names *names, const char *path, struct inode *inode)
{
	struct name *n = rdv_names_find(names, path);

	if (!n) {
		assert(names->count < NAMES && strlen(path) < PATH);
		n = &names->items[names->count++];
		strcpy(n->path, path);
		n->inode = NULL;
	}
	ref(inode);
	rdv_inode_unref(n->inode);
	n->inode = inode;
}

static void drop_name(struct names *names, const char *path)
{
	struct name *n = rdv_names_find(names, path);

	if (!n)
		return;
	rdv_inode_unref(n->inode);
	*n = names->items[--names->count];
}

static void apply(struct names *names, const struct change *c)
{
	struct name *n = rdv_names_find(names, c->from);
	struct inode *inode = c->from[0] ? (n ? n->inode : NULL) : c->inode;

	ref(inode);
	if (c->to[0] && inode)
		rdv_names_set(names, c->to, inode);
	if (c->from[0])
		drop_name(names, c->from);
	rdv_inode_unref(inode);
}

static void change(struct rdv_faulty *f, const char *from, const char *to, struct inode *inode)
{
	struct change *c = &f->changes[f->change_count++];

	assert(f->change_count < CHANGES);
	snprintf(c->from, PATH, "%s", from);
	snprintf(c->to, PATH, "%s", to);
	c->inode = ref(inode);
	apply(&f->seen, c);
}

void rdv_names_settle(struct rdv_faulty *f, int upto)
{
	int i;

	for (i = 0; i < f->change_count; i++) {
		if (i < upto)
			apply(&f->disk, &f->changes[i]);
		rdv_inode_unref(f->changes[i].inode);
	}
	f->change_count = 0;
}

static uint64_t used_space(struct rdv_faulty *f)
{
	uint64_t used = 0;
	int i;

	for (i = 0; i < f->seen.count; i++)
		used += f->seen.items[i].inode ? f->seen.items[i].inode->size : 0;
	return used;
}

static int grow(struct rdv_faulty *f, struct inode *inode, uint64_t size)
{
	if (size > inode->size && used_space(f) + (size - inode->size) > f->space)
		return -ENOSPC;
	if (size > inode->capacity) {
		uint64_t capacity = (size + SECTOR - 1) / SECTOR * SECTOR;

		inode->seen = realloc(inode->seen, capacity);
		inode->disk = realloc(inode->disk, capacity);
		inode->state = realloc(inode->state, capacity / SECTOR);
		assert(inode->seen && inode->disk && inode->state);
		memset(inode->seen + inode->capacity, 0, capacity - inode->capacity);
		memset(inode->disk + inode->capacity, 0, capacity - inode->capacity);
		memset(inode->state + inode->capacity / SECTOR, CLEAN, (capacity - inode->capacity) / SECTOR);
		inode->capacity = capacity;
	}
	if (size > inode->size)
		inode->size = size;
	return 0;
}

static void shrink(struct inode *inode, uint64_t size)
{
	if (!inode || size >= inode->size)
		return;
	memset(inode->seen + size, 0, inode->size - size); /* what grows again is zero */
	inode->size = size;
}

/* Locks. 0, or the error that this call shall give. */
static int enter(struct rdv_faulty *f, unsigned call)
{
	pthread_mutex_lock(&f->mutex);
	if (!(f->calls & call))
		return 0;
	f->count++;
	if (f->nth == 0 || f->count < f->nth || (f->count > f->nth && !f->from_then_on))
		return 0;
	f->fired++;
	return -f->err;
}

static int leave(struct rdv_faulty *f, int result)
{
	pthread_mutex_unlock(&f->mutex);
	return result;
}

static struct inode *inode_of(struct rdv_faulty *f, int fd)
{
	return fd >= 0 && fd < FDS ? f->fds[fd] : NULL;
}

/* ---- the table ---- */

static int op_open(void *ctx, const char *path, int flags, mode_t mode)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_OPEN), fd;
	struct name *n = rdv_names_find(&f->seen, path);
	struct inode *inode = n ? n->inode : NULL;

	(void)mode;
	if (err)
		return leave(f, err);
	if (!inode && !(flags & O_CREAT))
		return leave(f, -ENOENT);
	if (!inode) {
		inode = calloc(1, sizeof *inode);
		assert(inode);
		change(f, "", path, inode);
	} else if (flags & O_TRUNC) {
		shrink(inode, 0);
	}
	for (fd = 0; fd < FDS && f->fds[fd]; fd++)
		;
	assert(fd < FDS); /* more than that is a leak */
	f->fds[fd] = ref(inode);
	return leave(f, fd);
}

static int op_close(void *ctx, int fd)
{
	struct rdv_faulty *f = ctx;

	pthread_mutex_lock(&f->mutex);
	if (inode_of(f, fd)) {
		rdv_inode_unref(f->fds[fd]);
		f->fds[fd] = NULL;
	}
	return leave(f, 0);
}

static ssize_t op_pread(void *ctx, int fd, void *data, size_t size, uint64_t offset)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_READ);
	struct inode *inode = inode_of(f, fd);

	if (err || !inode)
		return leave(f, err ? err : -EBADF);
	if (offset >= inode->size)
		return leave(f, 0);
	if (size > inode->size - offset)
		size = (size_t)(inode->size - offset);
	if (f->short_writes && size > 1)
		size = 1 + (size_t)rdv_random_below(&f->random, size);
	memcpy(data, inode->seen + offset, size);
	leave(f, 0);
	return (ssize_t)size;
}

static void write_bytes(struct inode *inode, const struct iovec *iov, int count, uint64_t offset, size_t size)
{
	uint64_t sector;
	int i;

	for (sector = offset / SECTOR; size && sector <= (offset + size - 1) / SECTOR; sector++)
		inode->state[sector] = DIRTY;
	for (i = 0; i < count && size; i++) {
		size_t part = iov[i].iov_len < size ? iov[i].iov_len : size;

		if (part)
			memcpy(inode->seen + offset, iov[i].iov_base, part);
		offset += part;
		size -= part;
	}
}

static ssize_t op_pwritev(void *ctx, int fd, const struct iovec *iov, int count, uint64_t offset)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_WRITE), i, full;
	struct inode *inode = inode_of(f, fd);
	size_t size = 0;

	for (i = 0; i < count; i++)
		size += iov[i].iov_len;
	if (!inode)
		return leave(f, -EBADF);
	if (err)
		size = (size_t)rdv_random_below(&f->random, size + 1);
	else if (f->short_writes && size > 1)
		size = 1 + (size_t)rdv_random_below(&f->random, size);
	full = grow(f, inode, offset + size);
	if (full)
		return leave(f, err ? err : full);
	write_bytes(inode, iov, count, offset, size);
	leave(f, 0);
	return err ? err : (ssize_t)size;
}

static int op_fdatasync(void *ctx, int fd)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_SYNC);
	struct inode *inode = inode_of(f, fd);
	uint64_t i;

	if (!inode)
		return leave(f, -EBADF);
	for (i = 0; i < inode->capacity / SECTOR; i++) {
		if (inode->state[i] != DIRTY)
			continue;
		if (!err)
			memcpy(inode->disk + i * SECTOR, inode->seen + i * SECTOR, SECTOR);
		inode->state[i] = err ? LIED : CLEAN;
	}
	if (!err)
		inode->disk_size = inode->size;
	return leave(f, err);
}

static int op_fsync_dir(void *ctx, const char *path)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_SYNC_DIR);

	(void)path;
	if (!err)
		rdv_names_settle(f, f->change_count);
	return leave(f, err);
}

static int resize(struct rdv_faulty *f, int fd, uint64_t size, int err)
{
	struct inode *inode = inode_of(f, fd);

	return leave(f, err ? err : inode ? grow(f, inode, size) : -EBADF);
}

static int op_fallocate(void *ctx, int fd, uint64_t offset, uint64_t size)
{
	return resize(ctx, fd, offset + size, enter(ctx, RDV_CALL_ALLOCATE));
}

static int op_truncate(void *ctx, int fd, uint64_t size)
{
	int err = enter(ctx, RDV_CALL_OTHER);

	shrink(inode_of(ctx, fd), size);
	return resize(ctx, fd, size, err);
}

static int op_rename(void *ctx, const char *from, const char *to)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_RENAME);

	if (!err && !rdv_names_find(&f->seen, from))
		err = -ENOENT;
	if (!err)
		change(f, from, to, NULL);
	return leave(f, err);
}

static int op_unlink(void *ctx, const char *path)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_UNLINK);

	if (!err && !rdv_names_find(&f->seen, path))
		err = -ENOENT;
	if (!err)
		change(f, path, "", NULL);
	return leave(f, err);
}

static int op_size(void *ctx, int fd, uint64_t *out)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_OTHER);
	struct inode *inode = inode_of(f, fd);

	if (!err && !inode)
		err = -EBADF;
	if (!err)
		*out = inode->size;
	return leave(f, err);
}

static int op_free_space(void *ctx, const char *path, uint64_t *out)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_OTHER);
	uint64_t used = used_space(f);

	(void)path;
	*out = used < f->space ? f->space - used : 0;
	return leave(f, err);
}

static int op_list(void *ctx, const char *dir, void (*each)(void *each_ctx, const char *name), void *each_ctx)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_LIST), i;
	size_t size = strlen(dir);

	for (i = 0; !err && i < f->seen.count; i++) {
		const char *path = f->seen.items[i].path;

		if (strncmp(path, dir, size) == 0 && path[size] == '/')
			each(each_ctx, path + size + 1);
	}
	return leave(f, err);
}

static int op_mkdir(void *ctx, const char *path, mode_t mode)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_OTHER);

	(void)mode;
	if (!err && rdv_names_find(&f->seen, path))
		err = -EEXIST;
	if (!err) {
		rdv_names_set(&f->seen, path, NULL);
		rdv_names_set(&f->disk, path, NULL);
	}
	return leave(f, err);
}

const struct rdv_file_ops rdv_faulty_ops = {op_open,      op_close,      op_pread,    op_pwritev, op_fdatasync,
					    op_fsync_dir, op_fallocate,  op_truncate, op_rename,  op_unlink,
					    op_size,      op_free_space, op_list,     op_mkdir};
