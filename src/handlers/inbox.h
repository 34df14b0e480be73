/* inbox.h - what the http and exec handlers share: calls, cuts and frees on their way to the thread that serves them.
 *
 *	submit, cut, free -> inbox (mutex) -> the thread takes all inboxes at once -> taken
 *
 * What always holds: a handler with something in its inbox is on the list of its pool's inboxes, once. submit, cut and
 * free: the core's thread, or any; take: the pool's thread. */
#ifndef RDV_HANDLERS_INBOX_H
#define RDV_HANDLERS_INBOX_H
#include <pthread.h>
#include "handler.h"

struct rdv_served;

struct rdv_inboxes { /* of one pool */
	pthread_mutex_t mutex;
	struct rdv_served *dirty; /* under the mutex */
	bool stopping;            /* under the mutex */
	void (*wake)(void *ctx);  /* the pool's thread; called under the mutex */
	void *ctx;
};

struct rdv_served { /* a handler; its first member */
	struct rdv_handler base;
	struct rdv_inboxes *inboxes; /* borrows */
	/* under the mutex */
	struct rdv_call *inbox, **inbox_end;
	bool cut_wanted, free_wanted, listed;
	struct rdv_served *next_dirty;
	/* the thread's */
	struct rdv_call *taken, **taken_end; /* what is new since it last looked */
	bool cut, freed;
	struct rdv_served *next_taken;
};

void rdv_inboxes_init(struct rdv_inboxes *in, void (*wake)(void *ctx), void *ctx);
void rdv_inboxes_done(struct rdv_inboxes *in);
void rdv_inboxes_stop(struct rdv_inboxes *in); /* wakes the thread; take says so */
/* All handlers with something new, by next_taken. */
struct rdv_served *rdv_inboxes_take(struct rdv_inboxes *in, bool *stopping);

void rdv_served_init(struct rdv_served *s, struct rdv_inboxes *in, const struct rdv_handler_ops *ops,
		     struct rdv_sink sink);
/* The operations of a handler. */
void rdv_served_submit(struct rdv_handler *base, struct rdv_call *list);
void rdv_served_cut(struct rdv_handler *base);
void rdv_served_free(struct rdv_handler *base); /* the thread destroys it */
#endif
