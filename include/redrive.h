/* redrive.h - the public C API of Redrive: a durable queue with retries, isolation and dead letters inside your
 *program.
 *
 *	struct redrive *r;
 *	redrive_open("data", NULL, &r, NULL);
 *	redrive_add_callback(r, "orders", "order.create", NULL, on_order, NULL, NULL);
 *	redrive_start(r, NULL);
 *	redrive_publish(r, "order.create", &message, 1, NULL, NULL);     returns when it is on disk
 *	...
 *	redrive_stop(r);
 *	redrive_free(r);
 *
 * Settings are "key=value" texts in a list that ends with NULL; keys and values are those of the configuration file
 * (docs: configuration), with a dot for nesting: "retry.base=1s". Every message is delivered at least once: make the
 *handler idempotent, for example with redrive_idempotency_key(). The library starts threads, but never forks, installs
 *no signal handler, and prints nothing. All functions may be called from any thread, unless they say otherwise. Structs
 *are filled with zeros before use, so that a later version can add fields. */
#ifndef REDRIVE_H
#define REDRIVE_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REDRIVE_API __attribute__((visibility("default")))
#define REDRIVE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define REDRIVE_API
#define REDRIVE_MUST_CHECK
#endif

/* What every fallible call answers. redrive_status_text() says it in words. */
enum redrive_status {
	REDRIVE_OK = 0,
	REDRIVE_INVALID,      /* an argument, a field or a body that is not acceptable: the caller's mistake */
	REDRIVE_USAGE,        /* the command line is wrong */
	REDRIVE_NOT_FOUND,    /* no such message, route, letter, file */
	REDRIVE_CONFLICT,     /* the state does not allow it (an expired lease, a second start) */
	REDRIVE_REFUSED,      /* a check said no (configuration error, failed preflight) */
	REDRIVE_TOO_LARGE,    /* over a configured limit */
	REDRIVE_UNAUTHORIZED, /* no or a wrong token */
	REDRIVE_FORBIDDEN,    /* a token without the right or scope, a foreign origin */
	REDRIVE_FULL,         /* no room now: journal, queue; try again later */
	REDRIVE_CLOSED,       /* shutting down; try again later, elsewhere */
	REDRIVE_TIMEOUT,      /* it did not happen in time */
	REDRIVE_UNREACHABLE,  /* the server cannot be reached */
	REDRIVE_BUSY,         /* another process holds the data directory */
	REDRIVE_IO,           /* a file or network call failed */
	REDRIVE_FAILED,       /* the log has FAILED: nothing can be recorded until a restart */
	REDRIVE_CORRUPT,      /* stored bytes are damaged */
	REDRIVE_VERSION,      /* stored bytes are of a newer version */
	REDRIVE_NO_MEMORY,
	REDRIVE_INTERNAL, /* a defect of ours */
	REDRIVE_STATUS_COUNT
};

/* A short English text, static. Any value is safe to pass. */
REDRIVE_API const char *redrive_status_text(enum redrive_status status);

struct redrive;          /* an engine on one data directory */
struct redrive_delivery; /* a message at its handler */

/* One sentence for people. Wherever it is asked for, NULL may be passed. */
struct redrive_error {
	char text[512];
};

/* ---- open, routes, run ---- */

/* Settings: journal, disk_free (sizes), body, headers, batch (sizes), ids (number), drain (duration, default 30s).
 * One process at a time: REDRIVE_BUSY. */
REDRIVE_API enum redrive_status redrive_open(const char *dir, const char *const settings[], struct redrive **out,
					     struct redrive_error *error) REDRIVE_MUST_CHECK;

enum redrive_verdict {
	REDRIVE_ACK = 0,
	REDRIVE_RETRY,  /* later again, by the route's back-off or redrive_set_delay() */
	REDRIVE_REJECT, /* never again: a dead letter */
	REDRIVE_DEFER,  /* not a failure: later again */
	REDRIVE_DROP,   /* done with it, not processed */
	REDRIVE_LATER   /* the verdict comes by redrive_answer(), within the route's timeout */
};

/* Runs on one of the route's threads, at most `threads` at a time. */
typedef enum redrive_verdict (*redrive_handler)(void *ctx, struct redrive_delivery *delivery);

/* Adds a route before redrive_start(). Settings of a route: preset, partitions, concurrency, rate, order, after_dead,
 * timeout, storm, retry.attempts, .backoff, .base, .factor, .exponent, .cap, .jitter, .min, .max_age, .crashes,
 * .deferrals, .on_exhausted, .window, .delays
 * ("1s,5s"), breaker (off), budget (off), dedupe.by, .ttl, .entries, target; threads (callback; default 1, at most 64),
 * lease_for (lease). */
REDRIVE_API enum redrive_status redrive_add_callback(struct redrive *r, const char *name, const char *topic,
						     const char *const settings[], redrive_handler handler, void *ctx,
						     struct redrive_error *error) REDRIVE_MUST_CHECK;
REDRIVE_API enum redrive_status redrive_add_http(struct redrive *r, const char *name, const char *topic,
						 const char *const settings[], const char *url,
						 struct redrive_error *error) REDRIVE_MUST_CHECK;
REDRIVE_API enum redrive_status redrive_add_lease(struct redrive *r, const char *name, const char *topic,
						  const char *const settings[],
						  struct redrive_error *error) REDRIVE_MUST_CHECK;

/* Reads the journal and begins to deliver. */
REDRIVE_API enum redrive_status redrive_start(struct redrive *r, struct redrive_error *error) REDRIVE_MUST_CHECK;
/* Starts, if that was not done, and returns when another thread calls redrive_stop() (OK) or the log has failed
 * (FAILED). */
REDRIVE_API enum redrive_status redrive_run(struct redrive *r, struct redrive_error *error) REDRIVE_MUST_CHECK;
/* No new deliveries; waits for those under way, at most `drain`; then everything is on disk and the threads have ended.
 * Not from a handler. */
REDRIVE_API void redrive_stop(struct redrive *r);
/* Stops first if that was not done. Accepts NULL. */
REDRIVE_API void redrive_free(struct redrive *r);

/* ---- publish ---- */

struct redrive_header {
	const char *name;
	const void *value;
	size_t value_size;
};
struct redrive_message { /* everything is borrowed until the call returns */
	const void *key; /* NULL = no key */
	size_t key_size;
	const void *body;
	size_t body_size;
	const char *id; /* the producer's: a second message with it, within a day, is not stored again; NULL = none */
	const char *content_type, *traceparent;
	const struct redrive_header *headers;
	size_t header_count;
	int64_t delay_ms; /* 0 = at once */
	int tombstone;    /* no body at all, which is not the same as an empty one */
	void *reserved[4];
};
struct redrive_position {
	uint32_t partition;
	int duplicate; /* its id was published before: this is the first one's position */
	uint64_t offset;
};
/* All or nothing; returns when they are on disk. positions: count of them, or NULL. */
REDRIVE_API enum redrive_status redrive_publish(struct redrive *r, const char *topic,
						const struct redrive_message *messages, size_t count,
						struct redrive_position *positions,
						struct redrive_error *error) REDRIVE_MUST_CHECK;
typedef void (*redrive_published)(void *ctx, enum redrive_status status);
/* The same without waiting: `done` is called from one of the library's threads when they are on disk or that has
 * failed; it must not block. Not OK: it will not be called. */
REDRIVE_API enum redrive_status redrive_publish_async(struct redrive *r, const char *topic,
						      const struct redrive_message *messages, size_t count,
						      redrive_published done, void *ctx,
						      struct redrive_error *error) REDRIVE_MUST_CHECK;

/* ---- in a handler: what is delivered. Valid until the verdict. ---- */

struct redrive_bytes { /* data NULL: there is none */
	const void *data;
	size_t size;
};
REDRIVE_API struct redrive_bytes redrive_body(const struct redrive_delivery *d); /* NULL: a tombstone */
REDRIVE_API struct redrive_bytes redrive_key(const struct redrive_delivery *d);
REDRIVE_API struct redrive_bytes redrive_content_type(const struct redrive_delivery *d);
REDRIVE_API struct redrive_bytes redrive_header(const struct redrive_delivery *d, const char *name);
/* The number `index` of all headers; 0 when there are no more. */
REDRIVE_API int redrive_header_at(const struct redrive_delivery *d, size_t index, struct redrive_bytes *name,
				  struct redrive_bytes *value);
REDRIVE_API struct redrive_bytes
redrive_idempotency_key(const struct redrive_delivery *d);                    /* the same for all attempts */
REDRIVE_API const char *redrive_message_id(const struct redrive_delivery *d); /* "topic-partition-offset" */
REDRIVE_API const char *redrive_topic(const struct redrive_delivery *d);
REDRIVE_API uint32_t redrive_partition(const struct redrive_delivery *d);
REDRIVE_API uint64_t redrive_offset(const struct redrive_delivery *d);
REDRIVE_API uint32_t redrive_attempt(const struct redrive_delivery *d);   /* 1 = the first */
REDRIVE_API const char *redrive_replay(const struct redrive_delivery *d); /* plan of a replay, or NULL */

/* ---- verdicts ---- */

/* Before returning RETRY, REJECT or DEFER: what went wrong (any may be NULL; copied), and when again. */
REDRIVE_API void redrive_set_error(struct redrive_delivery *d, const char *error_class, const char *code,
				   const char *text, const char *stack);
REDRIVE_API void redrive_set_delay(struct redrive_delivery *d, int64_t delay_ms);

struct redrive_answer { /* texts are copied */
	enum redrive_verdict verdict;
	int has_delay;
	int64_t delay_ms;
	const char *error_class, *code, *text, *stack;
	void *reserved[4];
};
struct redrive_ticket { /* of a delivery whose verdict comes later; a plain value */
	void *route;
	uint64_t call;
};
REDRIVE_API struct redrive_ticket redrive_later(const struct redrive_delivery *d);
/* TIMEOUT: too late, the message is retried. NOT_FOUND: answered before. Only while the engine runs. */
REDRIVE_API enum redrive_status redrive_answer(struct redrive *r, struct redrive_ticket ticket,
					       const struct redrive_answer *answer) REDRIVE_MUST_CHECK;

/* ---- leases ---- */

/* Called for each leased message; token is copied by the callee; d is valid during the call only. A verdict is given
 * when it has returned, or by another thread: here redrive_lease_answer would wait for ever. */
typedef void (*redrive_leased)(void *ctx, const char *token, const struct redrive_delivery *d);
/* Leases up to max messages; waits at most wait_ms for the first. lease_for_ms 0 = the route's. */
REDRIVE_API enum redrive_status redrive_lease(struct redrive *r, const char *route, uint32_t max, int64_t wait_ms,
					      int64_t lease_for_ms, redrive_leased each, void *ctx) REDRIVE_MUST_CHECK;
/* Returns when the verdict is durable. A late one counts while nobody else has the message. NOT_FOUND: unknown token;
 * CONFLICT: its lease expired and another has the message, or it is finished. */
REDRIVE_API enum redrive_status redrive_lease_answer(struct redrive *r, const char *token,
						     const struct redrive_answer *answer) REDRIVE_MUST_CHECK;
REDRIVE_API enum redrive_status redrive_lease_extend(struct redrive *r, const char *token,
						     int64_t lease_for_ms) REDRIVE_MUST_CHECK;

/* ---- status ---- */

struct redrive_counts { /* received = acked + ready + waiting + held + in_flight + dead + dropped + revoked, always */
	uint64_t received, acked, ready, waiting, held, in_flight, dead, dropped, revoked;
	uint64_t first, retries, failed, timeouts, rejected, outage;
	uint64_t reserved[8];
};
REDRIVE_API enum redrive_status redrive_route_counts(struct redrive *r, const char *route,
						     struct redrive_counts *out) REDRIVE_MUST_CHECK;
REDRIVE_API enum redrive_status redrive_pause(struct redrive *r, const char *route,
					      int paused) REDRIVE_MUST_CHECK; /* survives restarts */
/* Where a message is: a static word (ready, in_flight, waiting, held, acked, dropped, done, dead, revoked, replaying).
 * id: a message id or the producer's. */
REDRIVE_API enum redrive_status redrive_where(struct redrive *r, const char *route, const char *id,
					      const char **state) REDRIVE_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
