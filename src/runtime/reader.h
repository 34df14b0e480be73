/* reader.h - the body readers: two threads that read many records at once, and do what may be slow with them.
 *
 * A job has up to two reads and a deed. A reader takes all jobs that wait (at most RDV_READER_BATCH), reads them by one
 * rdv_log_read_many, which sorts and merges, runs each job's `work` (if any), and gives the batch back to the core,
 * which calls `done`. Urgent jobs (somebody waits for them) go before read-ahead. A job is its owner's memory. */
#ifndef RDV_RUNTIME_READER_H
#define RDV_RUNTIME_READER_H
#include <pthread.h>
#include "engine.h"

#define RDV_READER_BATCH 1024u
#define RDV_READER_THREADS 2
#define RDV_READER_WAIT_MS 5000
#define RDV_READER_PAUSE_MS 100

struct rdv_job {
	struct rdv_job *next;
	struct rdv_read reads[2]; /* length 0 = not asked for */
	uint64_t ticket; /* appended last when it was submitted: what is not found before that is durable may come */
	/* In a reader's thread, after the reads; may be NULL. */
	void (*work)(struct rdv_job *job);
	/* In the core thread. Owns the reads' blocks from then on. */
	void (*done)(struct rdv_engine *e, struct rdv_job *job);
	void *owner;
};

struct rdv_readers {
	struct rdv_engine *engine; /* borrows */
	struct rdv_log *log;       /* borrows */
	pthread_t threads[RDV_READER_THREADS];
	unsigned started, idle;
	bool stopping;
	pthread_mutex_t mutex;
	pthread_cond_t work;
	struct rdv_job *urgent, **urgent_end, *later, **later_end;
	struct rdv_job *returned, **returned_end;
};

enum redrive_status rdv_readers_init(struct rdv_readers *r, struct rdv_engine *e) RDV_MUST_CHECK;
void rdv_readers_done(struct rdv_readers *r);
enum redrive_status rdv_readers_start(struct rdv_readers *r, struct rdv_log *log,
				      struct rdv_error *error) RDV_MUST_CHECK;
void rdv_readers_stop(struct rdv_readers *r); /* what waits is still done; then the threads end */
/* Hands over a list. Core thread. */
void rdv_readers_submit(struct rdv_readers *r, struct rdv_job *list, struct rdv_job **end, bool urgent);
/* Before what failed for a passing reason is tried again: in a reader's thread. */
void rdv_reader_pause(void);
/* Want of memory or descriptors, and a device that does not answer, say nothing about the bytes: they are asked for
 * again. Only a checksum, or a place that is gone, ends a message. */
static inline bool rdv_read_passes(enum redrive_status status)
{
	return status == REDRIVE_NO_MEMORY || status == REDRIVE_IO;
}
/* What came back, oldest first. Core thread. */
struct rdv_job *rdv_readers_take(struct rdv_readers *r);
#endif
