/* http_pool.h - the parts of the http handlers: pool (thread, sockets, timers), handler (queue), transfer (one
 * request). Private to http*.c. Everything that is not marked otherwise belongs to the pool's thread. */
#ifndef RDV_HANDLERS_HTTP_POOL_H
#define RDV_HANDLERS_HTTP_POOL_H
#include <pthread.h>
#include <stdatomic.h>
#include "http_answer.h"
#include "http_request.h"
#include "inbox.h"

struct rdv_http_fd {        /* by descriptor */
	uint8_t wanted;     /* CURL_POLL_IN | OUT, by curl */
	uint8_t registered; /* the same, in the epoll set */
	bool connection;    /* we opened it and are told when it is closed */
};

struct rdv_http_pool {
	CURLM *multi;
	int epoll, wake;
	int64_t timer_us; /* when curl wants to be called; RDV_NEVER */
	bool timer_set;
	struct rdv_http_fd *fds; /* owns */
	size_t fd_count;
	struct rdv_http *delivering; /* list by next_delivering: handlers with finished calls */
	uint64_t connections;        /* what the multi handle was told */
	pthread_t thread;
	_Atomic uint64_t wanted_connections; /* of all handlers */
	struct rdv_inboxes inboxes;
	_Atomic bool woken; /* the thread has been told, and has not looked yet */
};

struct rdv_http_transfer {
	struct rdv_http *handler; /* borrows */
	CURL *easy;
	struct rdv_http_transfer *next, *previous; /* in the handler's active list, or (next alone) its idle stack */
	struct rdv_call *call;                     /* owns while active */
	struct rdv_http_request request;
	struct rdv_http_reply reply; /* borrows from head and body */
	struct rdv_buffer head, body;
	size_t head_bytes;
	int64_t start_us;
	bool sent;   /* the request has gone out once: not a second time */
	bool enough; /* we ended it: as much of the answer as is read has come */
	char error[CURL_ERROR_SIZE];
};

struct rdv_http {
	struct rdv_served served;   /* first */
	struct rdv_http_pool *pool; /* borrows */
	struct rdv_http_fixed fixed;
	char *url, *ca_file, *cert_file, *key_file, *proxy; /* own; NULL = none */
	int64_t timeout_ms;
	uint32_t connections;
	struct rdv_call *queue, **queue_end;
	struct rdv_http_transfer *active, *idle;
	uint32_t active_count;
	struct rdv_call *done, **done_end;
	bool delivering;
	struct rdv_http *next_delivering;
};

/* ---- http_pool.c ---- */
/* Options of an easy handle that concern its sockets. False without memory. */
bool rdv_http_pool_setup(struct rdv_http_pool *p, CURL *easy);

/* ---- http.c, called by the pool's thread ---- */
void rdv_http_take(struct rdv_http *h); /* its queue has grown, it is cut, or freed: then it is gone */
void rdv_http_ended(struct rdv_http_transfer *t, CURLcode result, int64_t now_us);
void rdv_http_deliver(struct rdv_http *h); /* hands its finished calls over */

/* ---- http_transfer.c ---- */
struct rdv_http_transfer *rdv_http_transfer_new(struct rdv_http *h); /* NULL without memory */
void rdv_http_transfer_free(struct rdv_http_transfer *t);            /* not active */
/* Sends the call; NO_MEMORY, CORRUPT: it did not start, the call is still the caller's, with its answer set. */
enum redrive_status rdv_http_transfer_start(struct rdv_http_transfer *t, struct rdv_call *call,
					    int64_t now_us) RDV_MUST_CHECK;
/* It ended with this result: sets the answer, gives the call back. */
struct rdv_call *rdv_http_transfer_finish(struct rdv_http_transfer *t, CURLcode result, int64_t now_us);
/* Ends it now, without an answer. */
struct rdv_call *rdv_http_transfer_abort(struct rdv_http_transfer *t, int64_t now_us);
#endif
