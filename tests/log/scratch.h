/* scratch.h - a directory of its own for a test that needs real files. */
#ifndef RDV_TESTS_LOG_SCRATCH_H
#define RDV_TESTS_LOG_SCRATCH_H
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline int scratch_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void scratch_remove(const char *dir)
{
	nftw(dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* "<tmp>/redrive-log-XXXXXX" */
static inline char *scratch_make(char out[64])
{
	snprintf(out, 64, "/tmp/redrive-log-XXXXXX");
	return mkdtemp(out);
}
#endif
