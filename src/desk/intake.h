/* intake.h - the way of a letter from the core thread to the store: a bounded queue and one writer thread.
 *
 * put never blocks: beyond 32,768 letters or 32 MiB it answers FULL and the lane keeps its message as dying. The writer
 * takes all that is there, at most 10,000 letters or 16 MiB, and stores it with one sync; then each letter's `stored`
 * is called, in order, from the indexer's thread, while the writer has taken the next. stop lets it store what is
 * queued. */
#ifndef RDV_DESK_INTAKE_H
#define RDV_DESK_INTAKE_H
#include <pthread.h>
#include "store.h"

struct rdv_desk_letter { /* one in the queue */
	struct rdv_desk_letter *next;
	struct rdv_block *envelope, *body; /* owns */
	void (*stored)(void *ctx, uint64_t cookie, enum redrive_status status);
	void *ctx;
	uint64_t cookie;
};

struct rdv_desk_intake;
struct rdv_desk_slot {                    /* a batch on its way: one is written while the other is indexed */
	struct rdv_desk_intake *intake;   /* borrows */
	struct rdv_desk_letter **letters; /* owns the array, and the letters until they are answered */
	struct rdv_desk_incoming *items;  /* owns */
	size_t count;
	struct rdv_desk_batch batch;
};

struct rdv_desk_intake {
	struct rdv_desk_store *store; /* borrows */
	struct rdv_wall (*now)(void *ctx);
	void *now_ctx;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct rdv_desk_letter *head, **tail; /* owns */
	uint64_t count, bytes;                /* in the queue */
	_Atomic uint64_t waiting;             /* queue and batches at work */
	struct rdv_desk_slot slots[2];        /* the writer's and the indexer's in turn */
	struct timespec gather_until;         /* the writer's: when the next batch may begin */
	bool gathers;
	pthread_t thread;
	bool running, stopping;
};

#define RDV_DESK_QUEUE_LETTERS 32768u
#define RDV_DESK_QUEUE_BYTES (32u << 20)
#define RDV_DESK_BATCH_LETTERS 10000u
#define RDV_DESK_BATCH_BYTES (16u << 20)

enum redrive_status rdv_desk_intake_init(struct rdv_desk_intake *in, struct rdv_desk_store *store) RDV_MUST_CHECK;
void rdv_desk_intake_done(struct rdv_desk_intake *in); /* stops first; letters never stored get CLOSED */
enum redrive_status rdv_desk_intake_start(struct rdv_desk_intake *in) RDV_MUST_CHECK;
void rdv_desk_intake_stop(struct rdv_desk_intake *in);
/* Takes ownership of both blocks in any case. FULL, CLOSED, NO_MEMORY: `stored` is not called. */
enum redrive_status rdv_desk_intake_put(struct rdv_desk_intake *in,
					const struct rdv_desk_letter *letter) RDV_MUST_CHECK;
#endif
