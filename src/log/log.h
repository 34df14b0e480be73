/* log.h - the durable log of a data directory: append, group commit, read, trim.
 *
 * Frames lie in segments of 64 MiB ("<number>.seg", 16 hex digits), zero-filled ahead and recycled by rename.
 * Publishers and the core frame straight into shared buffers of 1 MiB (rdv_log_begin .. put .. end, under one mutex);
 * rdv_log_commit writes everything that is pending with one pwritev and one fdatasync per cycle. A frame's place is
 * known when it is put. The first failed write or sync makes the log FAILED for good: begin, commit and wait answer
 * REDRIVE_FAILED. Space: outcomes may use the reserve (2 segments + 32 bytes per live record), new messages may not
 * (REDRIVE_FULL). docs/internals/log-format.md draws the bytes. Threads: each function says who may call it. */
#ifndef RDV_LOG_LOG_H
#define RDV_LOG_LOG_H
#include <stdbool.h>
#include "../base/block.h"
#include "../base/hash.h"
#include "file.h"

struct rdv_log;

struct rdv_position {             /* segment 0 = nowhere */
	uint32_t segment, offset; /* offset of the frame's header in the segment */
};

#define RDV_FRAME_HEADER 40u
enum { RDV_FRAME_MORE = 1 }; /* another frame of the same all-or-nothing batch follows */

struct rdv_frame {
	uint8_t type, flags;
	uint16_t hint_len; /* first bytes of the payload that a fold needs */
	uint32_t stream;
	uint64_t seq;
	uint32_t length;          /* whole payload */
	struct rdv_slice payload; /* when folding from hints: only its first hint_len bytes */
	struct rdv_position position;
	uint64_t number, synced;
};

/* Recovery: called for every frame in log order. Not OK ends the open with that status. */
typedef enum redrive_status (*rdv_log_fold)(void *ctx, const struct rdv_frame *frame, struct rdv_error *error);

struct rdv_log_options {
	const char *dir;                  /* created 0700 if missing */
	const struct rdv_file_ops *files; /* NULL = the real ones */
	void *files_ctx;
	uint32_t segment_size; /* 0 = 64 MiB; tests use less; at least 64 KiB */
	uint32_t buffer_size;  /* 0 = 1 MiB */
	uint64_t capacity;     /* limits.journal; 0 = log size plus free space at open less disk_free */
	uint64_t disk_free;    /* publishing is refused when less is free */
	bool hold_lock;        /* take the directory's lock (`lock` file with pid): BUSY and the holder in the error */
};

struct rdv_log_opened { /* what recovery found */
	uint64_t frames, segments, hints_used;
	bool tail_cut; /* said once on standard error by the program */
	struct rdv_position cut_at;
	bool created;
};

/* CORRUPT and VERSION change nothing on disk and name segment and offset. *out is set before the first call of fold,
 * which may use it for rdv_log_live and rdv_log_id alone; it is NULL again when the open fails. */
enum redrive_status rdv_log_open(const struct rdv_log_options *options, rdv_log_fold fold, void *ctx,
				 struct rdv_log **out, struct rdv_log_opened *opened,
				 struct rdv_error *error) RDV_MUST_CHECK;
/* Every frame of the log once more, in order, for an owner that has to know some of them before it can use the others.
 * After open and before anything is appended. The first pass has found the end; what this one finds is the same. */
enum redrive_status rdv_log_fold_again(struct rdv_log *log, rdv_log_fold fold, void *ctx,
				       struct rdv_error *error) RDV_MUST_CHECK;
void rdv_log_close(struct rdv_log *log);                  /* commits nothing; releases the lock */
struct rdv_hash128 rdv_log_id(const struct rdv_log *log); /* the cluster id of the embedded queue */

/* ---- append: any thread ---- */
enum rdv_log_use { RDV_LOG_PUBLISH, RDV_LOG_OUTCOME };
/* Takes the append mutex with room for frames of `payload_bytes` in all and `frames` headers. PUBLISH waits at most
 * `wait_ms` for a free buffer (then FULL), and is FULL below the reserve. OUTCOME never waits: extra buffers are
 * allocated (NO_MEMORY otherwise). On not OK the mutex is not held. */
enum redrive_status rdv_log_begin(struct rdv_log *log, enum rdv_log_use use, size_t payload_bytes, uint32_t frames,
				  int wait_ms) RDV_MUST_CHECK;
/* The largest payload a frame may have here: a frame lies in one segment. */
size_t rdv_log_max_payload(const struct rdv_log *log);
/* Room for one frame's payload; NULL, and nothing put, if it is larger than that or than what begin announced; the
 * caller fills it before the next put or end (the checksum is taken then). frame: type, flags, hint_len, stream, seq,
 * length are read; position and number are set. */
uint8_t *rdv_log_put(struct rdv_log *log, struct rdv_frame *frame);
/* Releases the mutex, wakes the writer. ticket = number of the last frame put. MORE is set by the log on all but the
 * last when `batch`. */
void rdv_log_end(struct rdv_log *log, bool batch, uint64_t *ticket);
/* Releases the mutex; everything put since begin is taken back. */
void rdv_log_cancel(struct rdv_log *log);
/* Returns when no other thread is between begin and end. What it stored before, those that begin later see. */
void rdv_log_settle(struct rdv_log *log);
/* Capacity (0 = as at open: what is used and free, less disk_free) and disk_free anew. Any thread. */
void rdv_log_set_limits(struct rdv_log *log, uint64_t capacity, uint64_t disk_free);
/* Blocks until the ticket is durable. OK, FAILED, or TIMEOUT (-1 = for ever). */
enum redrive_status rdv_log_wait(struct rdv_log *log, uint64_t ticket, int timeout_ms) RDV_MUST_CHECK;
uint64_t rdv_log_durable_ticket(const struct rdv_log *log);

/* ---- commit: one thread at a time ---- */
struct rdv_log_buffer; /* committed bytes in memory, reference-counted */
/* Called by commit, in its thread, after the sync, in order: the frames of this buffer are durable; the last one's
 * number is `ticket`. The receiver may keep the buffer with rdv_log_buffer_ref, even beyond close: then it costs its
 * size (that of its frames if they are few, else 1 MiB or what a large batch took), and appenders get another one.
 * While the call blocks nothing commits: that is how a receiver holds publishers back. */
typedef void (*rdv_log_durable)(void *ctx, struct rdv_log_buffer *buffer, uint64_t ticket);
void rdv_log_on_durable(struct rdv_log *log, rdv_log_durable call, void *ctx);
/* Waits at most wait_ms for something pending, then does one cycle. *did = whether there was something. The first error
 * makes the log FAILED. */
enum redrive_status rdv_log_commit(struct rdv_log *log, int wait_ms, bool *did, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_log_wake(struct rdv_log *log); /* ends a waiting commit early */
bool rdv_log_failed(const struct rdv_log *log);

struct rdv_log_buffer *rdv_log_buffer_ref(struct rdv_log_buffer *b);
void rdv_log_buffer_unref(struct rdv_log_buffer *b);
/* Iterates the frames of a buffer: *cursor from 0; false at the end. Payload slices borrow from the buffer. */
bool rdv_log_buffer_next(const struct rdv_log_buffer *b, size_t *cursor, struct rdv_frame *frame);
/* The payload of `length` bytes at `position`, if this buffer holds it; {NULL, 0} otherwise. Its bytes are not looked
 * at. */
struct rdv_slice rdv_log_buffer_find(const struct rdv_log_buffer *b, struct rdv_position position, uint32_t length);
/* From the place of its first frame up to behind its last. */
void rdv_log_buffer_range(const struct rdv_log_buffer *b, struct rdv_position *first, struct rdv_position *end);

/* ---- read: any thread ---- */
struct rdv_read {
	struct rdv_position position;
	uint32_t length; /* payload bytes */
	void *cookie;
	enum redrive_status
		status; /* OK; CORRUPT: checksum; NOT_FOUND: the segment is gone or holds another frame there; IO */
	struct rdv_block *block; /* returns owned: the payload */
};
/* Sorts `reads`, merges spans of <= 1 MiB with gaps <= 64 KiB, checks checksums. What is not durable yet is NOT_FOUND.
 */
void rdv_log_read_many(struct rdv_log *log, struct rdv_read *reads[], size_t count);

/* ---- liveness and trimming: the owner's thread, except space, scan and maintain ---- */
void rdv_log_live(struct rdv_log *log, uint32_t segment, int32_t delta,
		  int64_t bytes); /* live records and their bytes */
struct rdv_log_space {
	uint64_t bytes, live_bytes, capacity, free_bytes, reserve; /* bytes: of all segments in use */
	uint32_t tail, head;                                       /* segment numbers */
	uint64_t tail_live, live_records;
	bool refuses, wants_trim; /* wants_trim: the tail should be re-appended now */
};
void rdv_log_space(struct rdv_log *log, struct rdv_log_space *out); /* any thread */
/* Frames of a segment from an offset on, at most max_bytes of it, copied into *block; *next = where to go on (0 = end).
 * Any thread. */
enum redrive_status rdv_log_scan(struct rdv_log *log, struct rdv_position from, uint32_t max_bytes,
				 struct rdv_block **block, uint32_t *next) RDV_MUST_CHECK;
/* Iterates the frames of a scanned block that began at `from`. */
bool rdv_log_scan_next(struct rdv_log *log, const struct rdv_block *block, struct rdv_position from, size_t *cursor,
		       struct rdv_frame *frame);
/* Behind damage: *next = where the next frame of the segment begins whose bytes are good, at or behind `from`; 0: there
 * is none. Bytes that cannot be read count as damaged. Any thread. */
enum redrive_status rdv_log_skip(struct rdv_log *log, struct rdv_position from, uint32_t *next) RDV_MUST_CHECK;
/* The tail is damaged: its file is kept as <number>.damaged when it goes. */
void rdv_log_set_aside(struct rdv_log *log);
/* The tail has no live record any more: it goes as soon as everything appended so far (and `ticket`, if that is later)
 * is durable. The next segment is the tail from now on. The file work is done by maintain. */
void rdv_log_drop_tail(struct rdv_log *log, uint64_t ticket);
/* File work in the background, one thread: fills the next segment (<= 200 MB/s), writes hints of sealed segments,
 * recycles. Returns after one piece; *did. */
enum redrive_status rdv_log_maintain(struct rdv_log *log, bool *did, struct rdv_error *error) RDV_MUST_CHECK;

/* ---- offline: inspect.c ---- */
struct rdv_log_report {
	uint64_t segments, frames, bytes, bad;
	bool tail_torn;
	struct rdv_position first_bad;
};
/* Reads everything, reports each bad place through `bad` (may be NULL). CORRUPT if any before the synced end. With
 * repair: copies the segments to `<dir>/before-repair-<time>` first, then writes a log without the bad frames. */
enum redrive_status rdv_log_check(const char *dir, bool repair,
				  void (*bad)(void *ctx, struct rdv_position at, const char *why), void *ctx,
				  struct rdv_log_report *out, struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_log_dump(const char *dir, rdv_log_fold each, void *ctx, struct rdv_error *error) RDV_MUST_CHECK;
#endif
