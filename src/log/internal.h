/* internal.h - the log's state, for the files of this room only.
 *
 * Three groups, by who may touch them:
 *   mutex        what appenders and the writer share: the open buffer, the place and number of the next frame, queues
 *   files_mutex  spare files and which segments are ready; held over file calls, never together with `mutex` the other
 *                way round (files_mutex first)
 *   owner        liveness: the owner's thread alone; its sums are atomics, because begin looks at them
 * The writer (commit) alone owns the head's descriptor and its last partial page. */
#ifndef RDV_LOG_INTERNAL_H
#define RDV_LOG_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>
#include "frame.h"
#include "log.h"
#include "segment.h"

#define RDV_LOG_BUFFERS 4 /* pending ones that publishers may fill */
#define RDV_LOG_SPARES 8  /* kept; more are removed */
#define RDV_LOG_AHEAD 2   /* segments ready beyond the head */
#define RDV_LOG_BATCH_MAX (256u << 20)

/* ---- buffers (buffer.c) ---- */
struct rdv_log_span { /* bytes of one segment that lie together */
	uint32_t segment, offset;
	size_t at, size; /* in the buffer */
};

struct rdv_log_pool;
struct rdv_log_buffer {
	_Atomic uint32_t refs;
	uint32_t span_count, span_max;
	struct rdv_log_pool *pool; /* shares */
	struct rdv_log_buffer *next;
	struct rdv_log_span *spans; /* inside the same allocation, as data */
	uint8_t *data;
	size_t capacity, used;
	uint64_t last; /* number of the last frame */
};
struct rdv_log_pool *rdv_log_pool_new(size_t buffer_size, uint32_t segment_size);
void rdv_log_pool_unref(struct rdv_log_pool *pool); /* accepts NULL; it lives until its last buffer is back */
/* At least `size` bytes; NULL without memory. */
struct rdv_log_buffer *rdv_log_buffer_new(struct rdv_log_pool *pool, size_t size);
/* A copy just as large as needed, so that a small batch does not keep a large buffer; NULL without memory. */
struct rdv_log_buffer *rdv_log_buffer_shrink(const struct rdv_log_buffer *b);
uint32_t rdv_log_pool_spans(const struct rdv_log_pool *pool, size_t size); /* how many spans `size` bytes may have */

/* ---- segments ---- */
struct rdv_log_segment { /* one in use; guarded by mutex */
	uint32_t number;
	uint32_t end;         /* offset behind its last frame; 0 while it is the head */
	uint64_t first, last; /* frame numbers; 0 = unknown or none */
	int64_t sealed_ms;    /* monotonic */
	bool hinted, dropped;
	bool damaged; /* its file is kept when it goes */
	uint64_t drop_ticket;
};
struct rdv_log_live {
	int64_t records, bytes;
};

struct rdv_log {
	struct rdv_store store;
	struct rdv_log_pool *pool; /* shares */
	int lock_fd;
	_Atomic uint64_t capacity, disk_free;
	size_t buffer_size;
	rdv_log_durable on_durable;
	void *on_durable_ctx;

	pthread_mutex_t mutex;
	pthread_cond_t work, room; /* the writer waits for work, publishers for room */
	bool writer_waits, woken;
	unsigned room_waiters;
	struct rdv_log_buffer *open;         /* owns; being filled */
	struct rdv_log_buffer *first, *last; /* owns; full ones */
	unsigned pending;                    /* open, full and being written */
	unsigned large_pending;              /* of them oversized */
	struct rdv_position at;              /* of the next frame */
	uint64_t next;                       /* its number */
	uint64_t taken;                      /* last number that a cycle took */
	uint32_t cycle;
	struct { /* of the begin that holds the mutex */
		size_t used, limit;
		uint64_t synced, next;
		uint32_t span_count;
		size_t span_size;
		struct rdv_position at;
		uint32_t segment_count;
	} put;
	struct rdv_log_segment *segments; /* owns; tail first, the appenders' head last */
	uint32_t segment_count, segment_capacity;
	struct rdv_position durable_end;

	_Atomic uint64_t durable;
	_Atomic bool failed;
	_Atomic uint32_t done[2]; /* counts finished cycles of either parity: waiters sleep on them */
	_Atomic uint64_t free_bytes;
	_Atomic int64_t free_checked_ms;

	/* the writer's */
	int fd;
	uint32_t fd_segment;
	uint8_t page[RDV_PAGE]; /* bytes of the last partial page */

	pthread_mutex_t files_mutex;
	uint64_t spares[2 * RDV_LOG_SPARES];
	uint32_t spare_count;
	uint64_t file_count; /* last number given to a .fill or .spare */
	uint32_t ready;      /* highest segment that has its file */
	/* maintain's own */
	int fill_fd;
	bool fill_copied; /* the file system does not take writes past the page cache */
	uint64_t fill_number, fill_offset;
	int64_t fill_us;
	int64_t hint_after_ms;
	uint64_t fill_rate;

	/* the owner's; others ask for the space and may see what is atomic */
	struct rdv_log_live *live; /* owns; ring by segment number */
	uint32_t live_capacity;
	_Atomic uint32_t owner_tail;
	_Atomic bool live_lost; /* no memory for a counter: the tail is kept until the next start */
	_Atomic int64_t live_records, live_bytes, tail_records; /* tail_records: live ones of the tail */
};

/* commit.c */
void rdv_log_fail(struct rdv_log *log); /* FAILED, and everyone who waits is woken */
/* A ready segment's file: made here if maintain was too slow. */
enum redrive_status rdv_log_need_segment(struct rdv_log *log, uint32_t number, struct rdv_error *error) RDV_MUST_CHECK;
/* trim.c */
bool rdv_log_refuses(struct rdv_log *log, size_t more); /* mutex held */
void rdv_log_check_disk(struct rdv_log *log, int64_t older_than_ms);
uint64_t rdv_log_reserve(struct rdv_log *log);
bool rdv_log_disk_low(struct rdv_log *log);
/* Room for `more` entries in the table of segments; mutex held. */
bool rdv_log_segments_reserve(struct rdv_log *log, uint32_t more);
void rdv_log_segment_seal(struct rdv_log *log); /* the head is full: the next one begins; mutex held */
struct rdv_log_segment *rdv_log_segment_find(struct rdv_log *log, uint32_t number); /* NULL = gone; mutex held */
#endif
