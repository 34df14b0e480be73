/* faulty_internal.h - the state of the faulty file layer, for its two files: faulty_files.c (the calls) and
 * faulty_life.c (power loss, damage). */
#ifndef RDV_TESTS_FAULTY_INTERNAL_H
#define RDV_TESTS_FAULTY_INTERNAL_H
#include <pthread.h>
#include "faulty_files.h"
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

struct name *rdv_names_find(struct names *names, const char *path);
void rdv_names_set(struct names *names, const char *path, struct inode *inode);
/* The first `upto` changes of names reach the disk, the others are forgotten. */
void rdv_names_settle(struct rdv_faulty *f, int upto);
void rdv_inode_unref(struct inode *i); /* accepts NULL */
#endif
