/* directory.c - see directory.h.
 *
 * Names that are not ours are passed over. The lock needs real system calls, not the table's: a lock that a test could
 * fail at will would protect nobody. */
#include "directory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static void see_name(void *ctx, const char *name)
{
	struct rdv_listing *l = ctx;
	enum rdv_store_kind kind;
	struct rdv_names *names;
	uint64_t number;

	if (!rdv_store_parse(name, &kind, &number))
		return;
	names = &l->of[kind];
	if (names->count == names->capacity) {
		size_t capacity = names->capacity ? 2 * names->capacity : 64;
		uint64_t *items = realloc(names->items, capacity * sizeof *items);

		if (!items) {
			l->failed = true;
			return;
		}
		names->items = items;
		names->capacity = capacity;
	}
	names->items[names->count++] = number;
	if ((kind == RDV_STORE_SPARE || kind == RDV_STORE_FILL) && number != UINT64_MAX && number > l->highest)
		l->highest = number;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void rdv_listing_done(struct rdv_listing *l)
{
	int i;

	for (i = 0; i < RDV_STORE_KINDS; i++)
		free(l->of[i].items);
}

enum redrive_status rdv_directory_list(const struct rdv_store *s, struct rdv_listing *l, struct rdv_error *error)
{
	int err = s->ops->list(s->ctx, s->dir, see_name, l), i;

	if (err)
		return rdv_error_errno(error, -err, "list '%s'", s->dir);
	if (l->failed)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory to list '%s'", s->dir);
	for (i = 0; i < RDV_STORE_KINDS; i++)
		if (l->of[i].count)
			qsort(l->of[i].items, l->of[i].count, sizeof *l->of[i].items, by_number);
	return REDRIVE_OK;
}

enum redrive_status rdv_listing_segments(const struct rdv_listing *l, uint32_t **numbers, uint32_t *count,
					 struct rdv_error *error)
{
	const struct rdv_names *found = &l->of[RDV_STORE_SEGMENT];
	size_t i;

	*numbers = NULL;
	*count = 0;
	if (found->count == 0)
		return REDRIVE_OK;
	for (i = 0; i < found->count; i++)
		if (found->items[i] == 0 || found->items[i] > RDV_SEGMENT_LAST)
			return rdv_error_set(error, REDRIVE_CORRUPT, "segment %" PRIu64 ", offset 0: impossible number",
					     found->items[i]);
	*numbers = calloc(found->count, sizeof **numbers);
	if (!*numbers)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for %zu segments", found->count);
	for (i = 0; i < found->count; i++)
		(*numbers)[i] = (uint32_t)found->items[i];
	*count = (uint32_t)found->count;
	return REDRIVE_OK;
}

enum redrive_status rdv_directory_make(const struct rdv_store *s, struct rdv_error *error)
{
	char *copy, *parent;
	int err = s->ops->mkdir(s->ctx, s->dir, 0700);

	if (err == -EEXIST)
		return REDRIVE_OK;
	if (err)
		return rdv_error_errno(error, -err, "create '%s'", s->dir);
	copy = strdup(s->dir);
	if (!copy)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory");
	parent = dirname(copy);
	err = s->ops->fsync_dir(s->ctx, parent);
	free(copy);
	return err ? rdv_error_errno(error, -err, "sync the directory above '%s'", s->dir) : REDRIVE_OK;
}

static enum redrive_status held_by(const char *path, int fd, struct rdv_error *error)
{
	char pid[32] = "";
	ssize_t n = pread(fd, pid, sizeof pid - 1, 0);

	pid[n > 0 ? n : 0] = '\0';
	pid[strcspn(pid, "\n")] = '\0';
	return rdv_error_set(error, REDRIVE_BUSY, "'%s' is held by process %s", path, pid[0] ? pid : "?");
}

enum redrive_status rdv_directory_lock(const char *dir, int *fd, struct rdv_error *error)
{
	char path[RDV_STORE_PATH], pid[32];
	enum redrive_status status;
	int size;

	snprintf(path, sizeof path, "%s/lock", dir);
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*fd < 0)
		return rdv_error_errno(error, errno, "open '%s'", path);
	size = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
	if (flock(*fd, LOCK_EX | LOCK_NB) < 0)
		status = errno == EWOULDBLOCK ? held_by(path, *fd, error)
					      : rdv_error_errno(error, errno, "lock '%s'", path);
	else if (ftruncate(*fd, 0) < 0 || pwrite(*fd, pid, (size_t)size, 0) != size)
		status = rdv_error_errno(error, errno, "write '%s'", path);
	else
		return REDRIVE_OK;
	close(*fd);
	*fd = -1;
	return status;
}

enum redrive_status rdv_directory_lock_shared(const char *dir, int *fd, struct rdv_error *error)
{
	char path[RDV_STORE_PATH];
	enum redrive_status status = REDRIVE_OK;

	snprintf(path, sizeof path, "%s/lock", dir);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT ? REDRIVE_OK : rdv_error_errno(error, errno, "open '%s'", path);
	if (flock(*fd, LOCK_SH | LOCK_NB) < 0) {
		status = errno == EWOULDBLOCK ? held_by(path, *fd, error)
					      : rdv_error_errno(error, errno, "lock '%s'", path);
		close(*fd);
		*fd = -1;
	}
	return status;
}

void rdv_directory_unlock(int fd)
{
	if (fd >= 0)
		close(fd);
}
