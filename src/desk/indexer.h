/* indexer.h - the second of the two threads that take letters in: it indexes a batch while the next one is written.
 *
 *   writer thread   write and sync batch 2   write and sync batch 3
 *   indexer         index batch 1, answer    index batch 2, answer
 *
 * One batch is at work here at most; give waits for the one before. So what was answered is found, and the index is
 * never more than two batches behind what is on disk. Whoever touches an index besides waits until none is at work. */
#ifndef RDV_DESK_INDEXER_H
#define RDV_DESK_INDEXER_H
#include <pthread.h>
#include "index.h"
#include "filter.h"

struct rdv_desk_part;

struct rdv_desk_batch {             /* letters on their way through the store */
	struct rdv_desk_part *part; /* borrows: where they are */
	struct rdv_desk_row *rows;  /* owns */
	size_t count, capacity;
	struct rdv_desk_filter ids; /* owns: of the rows */
	uint64_t end;               /* of the segment behind them */
	void (*done)(void *ctx);    /* everything is over; from the indexer's thread, or the giver's */
	void *ctx;
};
enum redrive_status rdv_desk_batch_init(struct rdv_desk_batch *b, size_t capacity) RDV_MUST_CHECK;
void rdv_desk_batch_done(struct rdv_desk_batch *b);
/* Is a letter with this id among the rows? */
bool rdv_desk_batch_has(const struct rdv_desk_batch *b, const uint8_t id[16]);

struct rdv_desk_indexer {
	void (*index)(void *ctx, struct rdv_desk_batch *b);
	void *ctx;
	pthread_mutex_t mutex;
	pthread_cond_t change;
	struct rdv_desk_batch *at_work; /* borrows */
	pthread_t thread;
	bool running, stopping;
};

void rdv_desk_indexer_init(struct rdv_desk_indexer *x, void (*index)(void *ctx, struct rdv_desk_batch *b), void *ctx);
void rdv_desk_indexer_done(struct rdv_desk_indexer *x); /* stops first */
/* Without a thread of its own give does the work. */
enum redrive_status rdv_desk_indexer_start(struct rdv_desk_indexer *x) RDV_MUST_CHECK;
void rdv_desk_indexer_stop(struct rdv_desk_indexer *x); /* what was given is done first */
void rdv_desk_indexer_give(struct rdv_desk_indexer *x, struct rdv_desk_batch *b);
void rdv_desk_indexer_wait(struct rdv_desk_indexer *x); /* until none is at work */
#endif
