/* faulty_files.c - see faulty_files.h.
 *
 * Inodes hold two images, one seen and one on disk, and a flag per sector where they may differ. Names live in a small
 * array, seen; the names on disk are a second one, and the changes between them a list, in order. Test code: memory
 * shortage aborts. */
#include "faulty_files.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/hash.h"
#include "base/random.h"

enum { SECTOR = 512, FDS = 64, NAMES = 256, CHANGES = 256, PATH = 256 };
enum { CLEAN, DIRTY, LIED };

struct inode {
	int refs;
	uint8_t *seen, *disk, *state; /* state: per sector */
	uint64_t size, disk_size, capacity;
};

struct name {
	char path[PATH];
	struct inode *inode; /* NULL: a directory */
};

struct names {
	struct name items[NAMES];
	int count;
};

struct change { /* to == "": removed; from == "": created */
	char from[PATH], to[PATH];
	struct inode *inode; /* a created one */
};

struct rdv_faulty {
	pthread_mutex_t mutex;
	struct rdv_random random;
	struct names seen, disk;
	struct change changes[CHANGES];
	int change_count;
	struct inode *fds[FDS];
	uint64_t space;
	bool short_writes;
	unsigned calls;
	uint64_t nth, count, fired;
	int err;
	bool from_then_on;
};

static struct inode *ref(struct inode *i)
{
	if (i)
		i->refs++;
	return i;
}

static void unref(struct inode *i)
{
	if (!i || --i->refs > 0)
		return;
	free(i->seen);
	free(i->disk);
	free(i->state);
	free(i);
}

static struct name *find(struct names *names, const char *path)
{
	int i;

	for (i = 0; i < names->count; i++)
		if (strcmp(names->items[i].path, path) == 0)
			return &names->items[i];
	return NULL;
}

static void set_name(struct names *names, const char *path, struct inode *inode)
{
	struct name *n = find(names, path);

	if (!n) {
		assert(names->count < NAMES && strlen(path) < PATH);
		n = &names->items[names->count++];
		strcpy(n->path, path);
		n->inode = NULL;
	}
	ref(inode);
	unref(n->inode);
	n->inode = inode;
}

static void drop_name(struct names *names, const char *path)
{
	struct name *n = find(names, path);

	if (!n)
		return;
	unref(n->inode);
	*n = names->items[--names->count];
}

static void apply(struct names *names, const struct change *c)
{
	struct name *n = find(names, c->from);
	struct inode *inode = c->from[0] ? (n ? n->inode : NULL) : c->inode;

	ref(inode);
	if (c->to[0] && inode)
		set_name(names, c->to, inode);
	if (c->from[0])
		drop_name(names, c->from);
	unref(inode);
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

static void settle_names(struct rdv_faulty *f, int upto)
{
	int i;

	for (i = 0; i < f->change_count; i++) {
		if (i < upto)
			apply(&f->disk, &f->changes[i]);
		unref(f->changes[i].inode);
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
	struct name *n = find(&f->seen, path);
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
		inode->size = 0;
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
		unref(f->fds[fd]);
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
		settle_names(f, f->change_count);
	return leave(f, err);
}

static int op_fallocate(void *ctx, int fd, uint64_t offset, uint64_t size)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_ALLOCATE);
	struct inode *inode = inode_of(f, fd);

	if (err || !inode)
		return leave(f, err ? err : -EBADF);
	return leave(f, grow(f, inode, offset + size));
}

static int op_truncate(void *ctx, int fd, uint64_t size)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_OTHER);
	struct inode *inode = inode_of(f, fd);

	if (err || !inode)
		return leave(f, err ? err : -EBADF);
	if (size < inode->size)
		inode->size = size;
	return leave(f, grow(f, inode, size));
}

static int op_rename(void *ctx, const char *from, const char *to)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_RENAME);

	if (!err && !find(&f->seen, from))
		err = -ENOENT;
	if (!err)
		change(f, from, to, NULL);
	return leave(f, err);
}

static int op_unlink(void *ctx, const char *path)
{
	struct rdv_faulty *f = ctx;
	int err = enter(f, RDV_CALL_UNLINK);

	if (!err && !find(&f->seen, path))
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
	if (!err && find(&f->seen, path))
		err = -EEXIST;
	if (!err) {
		set_name(&f->seen, path, NULL);
		set_name(&f->disk, path, NULL);
	}
	return leave(f, err);
}

const struct rdv_file_ops rdv_faulty_ops = {op_open,      op_close,      op_pread,    op_pwritev, op_fdatasync,
					    op_fsync_dir, op_fallocate,  op_truncate, op_rename,  op_unlink,
					    op_size,      op_free_space, op_list,     op_mkdir};

/* ---- life and death ---- */

struct rdv_faulty *rdv_faulty_new(uint64_t seed)
{
	struct rdv_faulty *f = calloc(1, sizeof *f);

	assert(f);
	pthread_mutex_init(&f->mutex, NULL);
	rdv_random_seed(&f->random, seed);
	f->space = (uint64_t)1 << 40;
	return f;
}

static void forget_fds(struct rdv_faulty *f)
{
	int i;

	for (i = 0; i < FDS; i++) {
		unref(f->fds[i]);
		f->fds[i] = NULL;
	}
}

static void forget_names(struct names *names)
{
	while (names->count)
		unref(names->items[--names->count].inode);
}

void rdv_faulty_free(struct rdv_faulty *f)
{
	if (!f)
		return;
	settle_names(f, 0);
	forget_fds(f);
	forget_names(&f->seen);
	forget_names(&f->disk);
	pthread_mutex_destroy(&f->mutex);
	free(f);
}

void rdv_faulty_fail(struct rdv_faulty *f, unsigned calls, uint64_t nth, int err, bool from_then_on)
{
	pthread_mutex_lock(&f->mutex);
	f->calls = calls;
	f->nth = nth;
	f->err = err;
	f->from_then_on = from_then_on;
	f->count = f->fired = 0;
	pthread_mutex_unlock(&f->mutex);
}

uint64_t rdv_faulty_fired(const struct rdv_faulty *f)
{
	return f->fired;
}

uint64_t rdv_faulty_count(const struct rdv_faulty *f)
{
	return f->count;
}

void rdv_faulty_short_writes(struct rdv_faulty *f, bool on)
{
	f->short_writes = on;
}

void rdv_faulty_space(struct rdv_faulty *f, uint64_t bytes)
{
	pthread_mutex_lock(&f->mutex);
	f->space = bytes;
	pthread_mutex_unlock(&f->mutex);
}

/* One of: nothing, everything, each sector, each page, a first part, a last part survives. */
static void lose(struct rdv_faulty *f, struct inode *inode)
{
	uint64_t sectors = inode->capacity / SECTOR, i, dirty = 0, at = 0, edge;
	uint64_t pattern = rdv_random_below(&f->random, 6);
	bool keep = false;

	for (i = 0; i < sectors; i++)
		dirty += inode->state[i] != CLEAN;
	edge = rdv_random_below(&f->random, dirty + 1);
	for (i = 0; i < sectors; i++) {
		if (inode->state[i] == CLEAN)
			continue;
		if (pattern == 2 || (pattern == 3 && (i % 8 == 0 || at == 0)))
			keep = rdv_random_below(&f->random, 2);
		else if (pattern != 3)
			keep = pattern == 1 || (pattern == 4 && at < edge) || (pattern == 5 && at >= edge);
		at++;
		if (keep)
			memcpy(inode->disk + i * SECTOR, inode->seen + i * SECTOR, SECTOR);
	}
	if (inode->disk_size != inode->size && rdv_random_below(&f->random, 2))
		inode->disk_size = inode->size;
}

static void show_disk(struct inode *inode)
{
	inode->size = inode->disk_size;
	memset(inode->disk + inode->size, 0, inode->capacity - inode->size);
	memcpy(inode->seen, inode->disk, inode->capacity);
	memset(inode->state, CLEAN, inode->capacity / SECTOR);
}

void rdv_faulty_power_loss(struct rdv_faulty *f)
{
	int i;

	pthread_mutex_lock(&f->mutex);
	forget_fds(f);
	settle_names(f, (int)rdv_random_below(&f->random, (uint64_t)f->change_count + 1));
	for (i = 0; i < f->disk.count; i++)
		if (f->disk.items[i].inode && f->disk.items[i].inode->capacity)
			lose(f, f->disk.items[i].inode);
	forget_names(&f->seen);
	for (i = 0; i < f->disk.count; i++) {
		if (f->disk.items[i].inode && f->disk.items[i].inode->capacity)
			show_disk(f->disk.items[i].inode);
		set_name(&f->seen, f->disk.items[i].path, f->disk.items[i].inode);
	}
	pthread_mutex_unlock(&f->mutex);
}

void rdv_faulty_process_death(struct rdv_faulty *f)
{
	pthread_mutex_lock(&f->mutex);
	forget_fds(f);
	pthread_mutex_unlock(&f->mutex);
}

bool rdv_faulty_exists(struct rdv_faulty *f, const char *path)
{
	bool there;

	pthread_mutex_lock(&f->mutex);
	there = find(&f->seen, path) != NULL;
	pthread_mutex_unlock(&f->mutex);
	return there;
}

uint64_t rdv_faulty_digest(struct rdv_faulty *f)
{
	uint64_t sum = 0;
	int i;

	pthread_mutex_lock(&f->mutex);
	for (i = 0; i < f->seen.count; i++) {
		const struct name *n = &f->seen.items[i];
		uint64_t part = rdv_xxh3(rdv_slice_text(n->path));

		if (n->inode)
			part ^= rdv_xxh3(rdv_slice(n->inode->seen, n->inode->size)) * 3;
		sum += part; /* in any order */
	}
	pthread_mutex_unlock(&f->mutex);
	return sum;
}

bool rdv_faulty_flip(struct rdv_faulty *f, const char *path, uint64_t offset, uint8_t mask)
{
	struct name *n = find(&f->seen, path);

	if (!n || !n->inode || offset >= n->inode->size)
		return false;
	n->inode->seen[offset] ^= mask;
	n->inode->disk[offset] = n->inode->seen[offset];
	return true;
}

uint8_t *rdv_faulty_bytes(struct rdv_faulty *f, const char *path, uint64_t *size)
{
	struct name *n = find(&f->seen, path);

	if (!n || !n->inode)
		return NULL;
	*size = n->inode->size;
	return n->inode->seen;
}

void rdv_faulty_settle(struct rdv_faulty *f)
{
	int i;

	pthread_mutex_lock(&f->mutex);
	settle_names(f, f->change_count);
	for (i = 0; i < f->seen.count; i++) {
		struct inode *inode = f->seen.items[i].inode;

		if (!inode || !inode->capacity)
			continue;
		memcpy(inode->disk, inode->seen, inode->capacity);
		memset(inode->state, CLEAN, inode->capacity / SECTOR);
		inode->disk_size = inode->size;
	}
	pthread_mutex_unlock(&f->mutex);
}
