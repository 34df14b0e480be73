/* faulty_files.h - a small file system in memory that fails on command and loses power, for tests of the log and the
 * simulator.
 *
 * Use: f = rdv_faulty_new(seed); options.files = &rdv_faulty_ops; options.files_ctx = f.
 * A file has what was written (what readers see) and what is on disk; fdatasync carries one to the other, fsync_dir
 * does it for names. rdv_faulty_power_loss keeps, drops or tears what was not synced, per sector of 512 bytes, by the
 * seed, in one of several patterns; names created, renamed or removed since the last fsync_dir are kept up to a random
 * point. A failed fdatasync marks its sectors clean without writing them: a later successful one does not save them (as
 * Linux does). Thread-safe. Everything is repeatable from the seed as long as the calls come in the same order. */
#ifndef RDV_TESTS_FAULTY_FILES_H
#define RDV_TESTS_FAULTY_FILES_H
#include <stdbool.h>
#include <stdint.h>
#include "log/file.h"

struct rdv_faulty;
extern const struct rdv_file_ops rdv_faulty_ops;

struct rdv_faulty *rdv_faulty_new(uint64_t seed);
void rdv_faulty_free(struct rdv_faulty *f); /* accepts NULL */

/* Calls that can fail: a mask. */
enum {
	RDV_CALL_OPEN = 1,
	RDV_CALL_READ = 2,
	RDV_CALL_WRITE = 4,
	RDV_CALL_SYNC = 8,
	RDV_CALL_SYNC_DIR = 16,
	RDV_CALL_ALLOCATE = 32,
	RDV_CALL_RENAME = 64,
	RDV_CALL_UNLINK = 128,
	RDV_CALL_LIST = 256,
	RDV_CALL_OTHER = 512, /* size, free_space, mkdir, truncate */
	RDV_CALL_ALL = 1023
};
/* The nth call from now (1 = the next) among `calls` fails with `err` (EIO, ENOSPC); with `from_then_on` all later
 * ones, too. A failing write first writes a random part of its bytes. nth 0 = nothing fails any more. */
void rdv_faulty_fail(struct rdv_faulty *f, unsigned calls, uint64_t nth, int err, bool from_then_on);
uint64_t rdv_faulty_fired(struct rdv_faulty *f); /* how often it failed since rdv_faulty_fail */
uint64_t rdv_faulty_count(struct rdv_faulty *f); /* calls that the mask met since rdv_faulty_fail */
void rdv_faulty_short_writes(struct rdv_faulty *f,
			     bool on); /* every write and read does a random part, at least a byte */
void rdv_faulty_space(struct rdv_faulty *f, uint64_t bytes); /* size of the disk; default 1 TiB */
/* Power fails: unsynced bytes and names are lost, kept or torn; open descriptors answer EBADF from now on. */
void rdv_faulty_power_loss(struct rdv_faulty *f);
/* The process dies, the machine does not: descriptors are gone, everything written stays visible. */
void rdv_faulty_process_death(struct rdv_faulty *f);

/* ---- looking and damaging ---- */
bool rdv_faulty_exists(struct rdv_faulty *f, const char *path);
uint64_t rdv_faulty_digest(struct rdv_faulty *f); /* of all names and bytes: equal means nothing changed */
/* XORs the byte at `offset` of the file with `mask`, also on disk; false if there is no such byte. */
bool rdv_faulty_flip(struct rdv_faulty *f, const char *path, uint64_t offset, uint8_t mask);
/* The file's visible bytes, for changing in place; also on disk after rdv_faulty_settle. NULL if there is no such file.
 */
uint8_t *rdv_faulty_bytes(struct rdv_faulty *f, const char *path, uint64_t *size);
void rdv_faulty_settle(struct rdv_faulty *f); /* everything visible is on disk */
#endif
