/* writer.h - the log writer's thread: commits in a loop, hands durable buffers to the core, ends publishing calls.
 *
 * Publishers that do not wait leave (ticket, done) here; it is called from this thread when the ticket is durable or
 * the log has failed. At most RDV_WRITER_QUEUE durable buffers wait for the core; then the writer waits, and with it
 * all who append new messages. The core never waits for the writer. */
#ifndef RDV_RUNTIME_WRITER_H
#define RDV_RUNTIME_WRITER_H
#include <pthread.h>
#include "engine.h"

#define RDV_WRITER_QUEUE 16

struct rdv_waiting { /* a publishing call */
	uint64_t ticket;
	rdv_publish_done done;
	void *ctx;
};

struct rdv_writer {
	struct rdv_engine *engine; /* borrows */
	struct rdv_log *log;       /* borrows */
	pthread_t thread;
	bool started, stopping, ended; /* ended: nothing that is appended from now on becomes durable */
	pthread_mutex_t mutex;
	pthread_cond_t room;
	struct rdv_log_buffer *queue[RDV_WRITER_QUEUE]; /* shares; durable, in order */
	size_t head, count;
	struct rdv_waiting *waiting; /* owns; ring */
	size_t waiting_head, waiting_count, waiting_capacity;
	struct rdv_histogram sync;
};

enum redrive_status rdv_writer_init(struct rdv_writer *w, struct rdv_engine *e) RDV_MUST_CHECK;
void rdv_writer_done(struct rdv_writer *w);
enum redrive_status rdv_writer_start(struct rdv_writer *w, struct rdv_log *log, struct rdv_error *error) RDV_MUST_CHECK;
/* Everything that was appended is committed; then the thread ends. */
void rdv_writer_stop(struct rdv_writer *w);
/* done(ctx, status) will be called, once. NO_MEMORY, CLOSED: it will not. Any thread. */
enum redrive_status rdv_writer_await(struct rdv_writer *w, uint64_t ticket, rdv_publish_done done,
				     void *ctx) RDV_MUST_CHECK;
/* Blocks until it is durable. CLOSED: the writer has ended before. Any thread. */
enum redrive_status rdv_writer_wait(struct rdv_writer *w, uint64_t ticket) RDV_MUST_CHECK;
/* The next durable buffer, or NULL. Core thread. */
struct rdv_log_buffer *rdv_writer_take(struct rdv_writer *w);
void rdv_writer_sync_times(struct rdv_writer *w, struct rdv_histogram *out);
#endif
