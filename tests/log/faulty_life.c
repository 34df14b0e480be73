/* faulty_life.c - the faulty file layer's beginning and end, power losses, and damage by hand; see faulty_files.h. */
#include "faulty_internal.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/hash.h"

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
		rdv_inode_unref(f->fds[i]);
		f->fds[i] = NULL;
	}
}

static void forget_names(struct names *names)
{
	while (names->count)
		rdv_inode_unref(names->items[--names->count].inode);
}

void rdv_faulty_free(struct rdv_faulty *f)
{
	if (!f)
		return;
	rdv_names_settle(f, 0);
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

static uint64_t look_at(struct rdv_faulty *f, const uint64_t *field)
{
	uint64_t value;

	pthread_mutex_lock(&f->mutex);
	value = *field;
	pthread_mutex_unlock(&f->mutex);
	return value;
}

uint64_t rdv_faulty_fired(struct rdv_faulty *f)
{
	return look_at(f, &f->fired);
}

uint64_t rdv_faulty_count(struct rdv_faulty *f)
{
	return look_at(f, &f->count);
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
	rdv_names_settle(f, (int)rdv_random_below(&f->random, (uint64_t)f->change_count + 1));
	for (i = 0; i < f->disk.count; i++)
		if (f->disk.items[i].inode && f->disk.items[i].inode->capacity)
			lose(f, f->disk.items[i].inode);
	forget_names(&f->seen);
	for (i = 0; i < f->disk.count; i++) {
		if (f->disk.items[i].inode && f->disk.items[i].inode->capacity)
			show_disk(f->disk.items[i].inode);
		rdv_names_set(&f->seen, f->disk.items[i].path, f->disk.items[i].inode);
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
	there = rdv_names_find(&f->seen, path) != NULL;
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
	struct name *n = rdv_names_find(&f->seen, path);

	if (!n || !n->inode || offset >= n->inode->size)
		return false;
	n->inode->seen[offset] ^= mask;
	n->inode->disk[offset] = n->inode->seen[offset];
	return true;
}

uint8_t *rdv_faulty_bytes(struct rdv_faulty *f, const char *path, uint64_t *size)
{
	struct name *n = rdv_names_find(&f->seen, path);

	if (!n || !n->inode)
		return NULL;
	*size = n->inode->size;
	return n->inode->seen;
}

void rdv_faulty_settle(struct rdv_faulty *f)
{
	int i;

	pthread_mutex_lock(&f->mutex);
	rdv_names_settle(f, f->change_count);
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
