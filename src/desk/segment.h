/* segment.h - one file of letters: a header, then blocks of compressed frames; grows at its end, never changes before
 * it.
 *
 *   file    = header (64 bytes), block, block, ...
 *   block   = block header (56 bytes), zstd frame of whole letter frames (letter.h)
 *
 * A block holds at most 256 KiB of frames, or a single larger one, and ends at a sync. Each block's checksums are
 * seeded with the segment's number and the block's offset. Each block says up to which offset the file was known synced
 * when it was written, so that a bad block is told from a torn tail: bad before the highest synced offset = corruption,
 * which is kept and reported; bad behind it = torn, cut there with everything that follows, since none of it was
 * acknowledged. A block without letters (anchor) says just that: written at a clean close, at the roll (seal), and when
 * idle. docs/internals/desk-format.md draws the bytes.
 *
 * One thread writes (rdv_desk_segment_writer); any thread reads what lies before `end`. */
#ifndef RDV_DESK_SEGMENT_H
#define RDV_DESK_SEGMENT_H
#include <zstd.h>
#include "../base/block.h"
#include "../base/clock.h"
#include "../log/file.h"
#include "letter.h"

#define RDV_DESK_SEGMENT_VERSION 1u
#define RDV_DESK_SEGMENT_HEADER 64u
#define RDV_DESK_SEGMENT_BLOCK_HEADER 56u
#define RDV_DESK_SEGMENT_BLOCK_RAW (256u << 10)
enum { RDV_DESK_BLOCK_ANCHOR = 1, RDV_DESK_BLOCK_SEAL = 2 };

struct rdv_desk_segment_head {
	uint64_t number; /* running, never reused */
	uint32_t day;    /* 20261130, UTC */
	struct rdv_wall created;
	uint64_t previous, previous_end; /* the segment before this one, and where its valid bytes end; 0 = none */
};

struct rdv_desk_segment_block { /* a block header, checked */
	uint64_t at;            /* offset in the file */
	uint32_t flags, count, raw, stored;
	uint32_t first; /* seq of its first letter */
	uint64_t synced;
};

struct rdv_desk_segment {
	const struct rdv_file_ops *files; /* borrows */
	void *files_ctx;
	char *path; /* owns */
	int fd;
	struct rdv_desk_segment_head head;
	uint64_t end;     /* everything before it is written and synced */
	uint32_t letters; /* in the blocks before end: the next seq */
	bool sealed;      /* never appended to again */
};

/* "<dir>/<day>-<number>.seg" with another suffix; false if `name` is no such file name. */
bool rdv_desk_segment_name_parse(const char *name, uint32_t *day, uint64_t *number);
char *rdv_desk_segment_path(const char *dir, uint32_t day, uint64_t number,
			    const char *suffix); /* returns owned; NULL without memory */

/* Makes the file, durable with its name when it returns. The segment owns `path` in any case. */
enum redrive_status rdv_desk_segment_create(struct rdv_desk_segment *s, char *path,
					    const struct rdv_desk_segment_head *head,
					    struct rdv_error *error) RDV_MUST_CHECK;
/* Opens an existing file and reads its header. CORRUPT: header damaged (the file is open, day and number are the
 * name's; the blocks may still be read); VERSION. */
enum redrive_status rdv_desk_segment_open(struct rdv_desk_segment *s, char *path,
					  struct rdv_error *error) RDV_MUST_CHECK;
void rdv_desk_segment_done(struct rdv_desk_segment *s);

/* One block, decompressed. CORRUPT: its bytes are damaged; NOT_FOUND: no block begins there. */
enum redrive_status rdv_desk_segment_read(const struct rdv_desk_segment *s, uint64_t at,
					  struct rdv_desk_segment_block *head, struct rdv_block **raw) RDV_MUST_CHECK;

/* What a scan found. */
struct rdv_desk_segment_scan {
	struct rdv_desk_segment_block *blocks; /* owns: the good ones before end */
	size_t count, capacity;
	uint64_t end;       /* where the valid bytes end */
	uint64_t cut;       /* bytes of a torn tail behind end */
	uint64_t bad;       /* damaged places before end */
	uint64_t first_bad; /* the first one's offset */
	uint64_t lost;      /* letters missing there */
	bool sealed;
};
/* Reads and checks every block. known_end: where a later segment says that this one ends; 0 = not told (the last one).
 */
enum redrive_status rdv_desk_segment_check(struct rdv_desk_segment *s, uint64_t known_end,
					   struct rdv_desk_segment_scan *out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_desk_segment_scan_done(struct rdv_desk_segment_scan *scan);
/* Sets end and letters from a scan, and cuts the torn tail off. */
enum redrive_status rdv_desk_segment_adopt(struct rdv_desk_segment *s, const struct rdv_desk_segment_scan *scan,
					   struct rdv_error *error) RDV_MUST_CHECK;

/* ---- writing: one thread ---- */
struct rdv_desk_segment_writer {
	ZSTD_CCtx *zstd; /* owns */
	struct rdv_buffer raw, out;
	uint32_t block_count; /* letters in raw */
	uint32_t pending;     /* letters in raw and out */
	bool failed;          /* no memory */
};
struct rdv_desk_segment_place {
	uint64_t block;
	uint32_t at, seq;
};
enum redrive_status rdv_desk_segment_writer_init(struct rdv_desk_segment_writer *w) RDV_MUST_CHECK;
void rdv_desk_segment_writer_done(struct rdv_desk_segment_writer *w);
/* Adds a letter to what the next write will write; says where it will be. */
enum redrive_status rdv_desk_segment_add(struct rdv_desk_segment_writer *w, const struct rdv_desk_segment *s,
					 const struct rdv_letter_frame *f,
					 struct rdv_desk_segment_place *place) RDV_MUST_CHECK;
/* Writes and syncs all that was added. Not OK: nothing was added; `s` is sealed if the file cannot be trusted to go on.
 */
enum redrive_status rdv_desk_segment_write(struct rdv_desk_segment_writer *w, struct rdv_desk_segment *s,
					   struct rdv_error *error) RDV_MUST_CHECK;
/* Writes an anchor: all before it is known synced. With `seal` the segment is closed for good. */
enum redrive_status rdv_desk_segment_anchor(struct rdv_desk_segment_writer *w, struct rdv_desk_segment *s, bool seal,
					    struct rdv_error *error) RDV_MUST_CHECK;
#endif
