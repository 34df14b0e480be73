/* callback_work.h - one worker of a callback handler: the calls it has taken and those it has finished.
 *
 * span   calls taken from the queue together; the worker claims them one by one, and so do idle workers, so that none
 * waits behind a slow one done   finished calls, newest first; the worker hands them over in lists, and so does the
 * watcher, so that none waits behind a slow one either Both are lock-free. Private to callback*.c. */
#ifndef RDV_HANDLERS_CALLBACK_WORK_H
#define RDV_HANDLERS_CALLBACK_WORK_H
#include <pthread.h>
#include "handler.h"

#define RDV_WORK_SPAN 64

struct rdv_callback;
struct rdv_work {
	_Alignas(64) _Atomic uint64_t span;              /* generation 32, next 16, count 16 */
	_Atomic(struct rdv_call *) taken[RDV_WORK_SPAN]; /* owns those from next to count */
	_Alignas(64) _Atomic(struct rdv_call *) done;    /* owns, list */
	_Atomic uint64_t running;     /* id of the call that is in the callback and has no verdict yet; 0 = none */
	struct rdv_call early;        /* under the handler's mutex: the verdict that came while it ran */
	struct rdv_callback *handler; /* borrows */
	pthread_t thread;
};

/* Refills an empty span with the first `count` calls of *list. Only its worker, one refill at a time. */
void rdv_work_refill(struct rdv_work *w, struct rdv_call **list, uint32_t count);
/* Claims the next call; NULL when the span is empty. Any thread. */
struct rdv_call *rdv_work_claim(struct rdv_work *w);
/* Adds a finished call; true when there was none before. Only its worker. */
bool rdv_work_finish(struct rdv_work *w, struct rdv_call *call);
/* Takes all finished calls, oldest first. Any thread. */
struct rdv_call *rdv_work_collect(struct rdv_work *w);
#endif
