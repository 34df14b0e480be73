/* handler.h - what a handler is to the runtime: calls in, completions out.
 *
 * The core thread fills a call (rdv_call) and submits it, many at a time; the handler delivers the message and
 * completes each call exactly once, from any thread, by the sink it was given: an answer (rules.h) that the
 * core then judges. A handler never loses, repeats or reorders a call, never blocks submit, and owns a call
 * from submit to complete. Kinds: http, exec, callback, lease. Timeouts are the handler's: it completes with
 * RDV_TRANSPORT_TIMEOUT. */
#ifndef RDV_HANDLERS_HANDLER_H
#define RDV_HANDLERS_HANDLER_H
#include "../base/block.h"
#include "../core/record.h"
#include "../core/rules.h"

struct rdv_call {
	struct rdv_call *next; /* for lists, the present owner's */
	/* --- set by the runtime, read-only for the handler --- */
	void *owner;               /* the runtime's; the handler hands it back untouched */
	uint64_t id;               /* unique in this process; never 0 */
	const char *route, *topic; /* borrow; live as long as the call */
	uint32_t partition;
	bool leased; /* lease: somebody has it, or had it; set by the handler, under its lock */
	bool asked;  /* lease: `asker` is set */
	uint64_t offset;
	uint32_t attempt; /* 1 = first */
	uint32_t lane;    /* the lane's stream: a route may have several with the same message */
	uint64_t epoch;
	struct rdv_wall first_failed_at;  /* ms 0 = none */
	const char *replay;               /* plan id, NULL = none; borrows */
	struct rdv_slice idempotency_key; /* borrows; empty = use the publish id, else the message id */
	struct rdv_slice payload;         /* a BODY record's payload (rdv_body_decode): borrows from `hold` */
	struct rdv_block *hold;           /* shares; may be NULL when the payload is kept alive otherwise */
	/* --- set by the handler before complete; freed by rdv_call_reset --- */
	struct rdv_buffer text;   /* owns what the answer's slices point to */
	struct rdv_answer answer; /* its slices borrow from `text` or are static */
	void *asker;              /* lease: whoever gave the answer and wants to know what came of it */
};

void rdv_call_init(struct rdv_call *c);
void rdv_call_reset(struct rdv_call *c);       /* drops hold, answer and text memory; ready for another use */
void rdv_call_reset_plain(struct rdv_call *c); /* the same for a call whose answer has no words */
/* Puts a copy of `answer` into the call: its slices move to `text`, cut to what is stored of them, with bytes that are
 * no UTF-8 replaced. They must not lie in `text` already. Short of memory they stay empty. */
void rdv_call_set_answer(struct rdv_call *c, const struct rdv_answer *answer);
/* Sets an answer that is no handler's: how the call ended, and one sentence (static) about it. */
void rdv_call_set_transport(struct rdv_call *c, enum rdv_transport transport, const char *text);
/* The same for a list of calls that our shutdown ends. */
void rdv_calls_shut_down(struct rdv_call *list);
/* The message's id, topic-partition-offset, written to `out`. */
#define RDV_MESSAGE_ID_SIZE (RDV_NAME_BYTES + 40)
struct rdv_slice rdv_call_message_id(const struct rdv_call *c, char out[RDV_MESSAGE_ID_SIZE]);
/* What Idempotency-Key says: the call's key, else the publish id, else the message id. */
struct rdv_slice rdv_call_idempotency_key(const struct rdv_call *c, const struct rdv_body *body,
					  struct rdv_slice message_id);

/* Where completions go. Thread-safe, never blocks, takes the calls back. */
struct rdv_sink {
	void (*complete)(void *ctx, struct rdv_call *list);
	void *ctx;
};

struct rdv_handler;
struct rdv_handler_ops {
	const char *kind; /* "http" ... */
	/* Takes a list of calls. Thread: core. */
	void (*submit)(struct rdv_handler *h, struct rdv_call *list);
	/* Every open call is completed as soon as possible with RDV_TRANSPORT_SHUTDOWN (the end of a drain), and so is
	 * every call that is submitted later. A call whose verdict is already known, or whose C callback is still
	 * running, ends with that verdict. */
	void (*cut)(struct rdv_handler *h);
	/* No calls are open. Waits for the handler's own threads. */
	void (*free)(struct rdv_handler *h);
};
struct rdv_handler { /* first member of every handler */
	const struct rdv_handler_ops *ops;
	struct rdv_sink sink;
};

struct rdv_pair {
	const char *name, *value;
};

/* ---- http.c: one thread with a libuv loop and a curl multi handle serves all http handlers of a pool ---- */
struct rdv_http_pool; /* the thread */
enum redrive_status rdv_http_pool_new(struct rdv_http_pool **out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_http_pool_free(struct rdv_http_pool *p); /* all its handlers are freed before */
struct rdv_http_options {
	const char *url;
	int64_t timeout_ms;
	const struct rdv_pair *headers; /* sent with every request */
	size_t header_count;
	const char *ca_file, *cert_file, *key_file; /* NULL = default */
	bool cloudevents;
	struct rdv_slice sign_secret; /* Standard Webhooks; empty = not signed */
	uint32_t connections;         /* at most so many at a time: the route's concurrency */
	const char *proxy;            /* NULL = none, whatever the environment says */
};
/* Options are copied. */
enum redrive_status rdv_http_new(struct rdv_http_pool *pool, const struct rdv_http_options *options,
				 struct rdv_sink sink, struct rdv_handler **out,
				 struct rdv_error *error) RDV_MUST_CHECK;

/* ---- exec.c: processes of one thread with a libuv loop ---- */
struct rdv_exec_pool;
enum redrive_status rdv_exec_pool_new(struct rdv_exec_pool **out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_exec_pool_free(struct rdv_exec_pool *p);
struct rdv_exec_options {
	const char *const *command;
	size_t command_count;              /* argv; [0] is looked up in PATH, relative to `dir` when it has a slash */
	const char *dir;                   /* working directory; NULL = ours */
	int64_t timeout_ms, kill_after_ms; /* TERM at timeout, KILL after (default 5 s) */
	const struct rdv_pair *env;
	size_t env_count;
};
enum redrive_status rdv_exec_new(struct rdv_exec_pool *pool, const struct rdv_exec_options *options,
				 struct rdv_sink sink, struct rdv_handler **out,
				 struct rdv_error *error) RDV_MUST_CHECK;

/* ---- callback.c: the C API's function on `threads` own threads ---- */
struct rdv_callback_options {
	/* Called on one of the threads. Returns true when it has set call->answer (verdict now; as long as it runs the
	 * handler is alive, so that the verdict counts however long it took); false: the verdict comes later by
	 * rdv_callback_answer, at most timeout_ms after the start of the call. rdv_callback_answer may even come before
	 * it returns; then what it returns is ignored. */
	bool (*call)(void *ctx, struct rdv_call *call);
	void *ctx;
	uint32_t threads; /* 1..64 */
	int64_t timeout_ms;
};
enum redrive_status rdv_callback_new(const struct rdv_callback_options *options, struct rdv_sink sink,
				     struct rdv_handler **out, struct rdv_error *error) RDV_MUST_CHECK;
/* A later verdict, from any thread. NOT_FOUND: unknown or already answered; TIMEOUT: it came after the timeout. The
 * answer's slices are copied. */
enum redrive_status rdv_callback_answer(struct rdv_handler *h, uint64_t call_id,
					const struct rdv_answer *answer) RDV_MUST_CHECK;

/* ---- lease.c: pull. Calls wait here until somebody leases them; the runtime's permits bound how many. ---- */
struct rdv_lease_options {
	int64_t lease_for_ms; /* default of a lease */
	uint32_t max;         /* calls kept at most (the route's concurrency); 0 = no bound of its own */
	uint32_t number;      /* tokens carry it, so that the handler of a token can be found */
};
enum redrive_status rdv_lease_new(const struct rdv_lease_options *options, struct rdv_sink sink,
				  struct rdv_handler **out, struct rdv_error *error) RDV_MUST_CHECK;
#define RDV_LEASE_TOKEN_SIZE 72
struct rdv_leased {
	char token[RDV_LEASE_TOKEN_SIZE];
	struct rdv_wall expires_at;
	uint32_t slot;         /* the handler's own */
	struct rdv_call *call; /* borrows: valid during `each` only */
};
/* Leases up to max messages; waits at most wait_ms for the first (another thread's time). each() may take its time: it
 * is called without the handler's lock. */
enum redrive_status rdv_lease_take(struct rdv_handler *h, uint32_t max, int64_t wait_ms, int64_t lease_for_ms,
				   void (*each)(void *ctx, const struct rdv_leased *leased), void *ctx) RDV_MUST_CHECK;
/* For callers that suspend instead of waiting: take with wait_ms 0, and if nothing came, `ready` is called once when
 * something may be there: from the thread that submits or cuts, or at once from this call, under the handler's lock. It
 * must not block or use the handler. NO_MEMORY: never. */
enum redrive_status rdv_lease_notify(struct rdv_handler *h, void (*ready)(void *ctx), void *ctx) RDV_MUST_CHECK;
/* Forgets it: `ready` is not running and will not be called; true when it has not been called. */
bool rdv_lease_forget(struct rdv_handler *h, void *ctx);
/* The `number` of the handler that gave out this token; false when it is no token. */
bool rdv_lease_token_number(const char *token, uint32_t *number);
/* A verdict; the call is completed with it and with `asker`, at once or when it has been shown to its taker. NOT_FOUND:
 * unknown token; CONFLICT: that lease is over. */
enum redrive_status rdv_lease_answer(struct rdv_handler *h, const char *token, const struct rdv_answer *answer,
				     void *asker) RDV_MUST_CHECK;
/* The message that a token was given out for, also when its lease is over. NOT_FOUND: unknown token. */
struct rdv_lease_position {
	uint32_t lane;
	uint64_t offset;
	bool replay;
};
enum redrive_status rdv_lease_position(struct rdv_handler *h, const char *token,
				       struct rdv_lease_position *out) RDV_MUST_CHECK;
enum redrive_status rdv_lease_extend(struct rdv_handler *h, const char *token, int64_t lease_for_ms,
				     struct rdv_wall *expires_at) RDV_MUST_CHECK;
/* Completes expired leases as timeouts; returns ms until the next (-1 none). The runtime calls it on its timer. */
int64_t rdv_lease_expire(struct rdv_handler *h, struct rdv_now now);
/* The default of leases that are given out from now on. */
void rdv_lease_set_time(struct rdv_handler *h, int64_t lease_for_ms);
/* An open call of this handler that nobody has leased. */
bool rdv_lease_is_offered(struct rdv_handler *h, const struct rdv_call *call);
/* Takes a call away that nobody has leased: it is the caller's again, and is not completed. false: it is not here. */
bool rdv_lease_withdraw(struct rdv_handler *h, struct rdv_call *call) RDV_MUST_CHECK;
/* The same for all that nobody has leased; leases go on. Returns them, the caller's again. */
struct rdv_call *rdv_lease_recall(struct rdv_handler *h) RDV_MUST_CHECK;
/* Starts nothing by itself: calls that were submitted and not leased are given back with RDV_TRANSPORT_SHUTDOWN when
 * cut. */
#endif
