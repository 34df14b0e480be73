/* exchange.h - one HTTP request and its answer, as the resources see it.
 *
 * The server makes it when the request line and headers are there, checks Host, Origin, token and limits, collects the
 * body, then runs the operation once. The operation answers by one rdv_reply_* call, or suspends and answers when it is
 * run again. Slow and long operations run on worker threads. Everything here is freed with the request. One thread at a
 * time. */
#ifndef RDV_API_EXCHANGE_H
#define RDV_API_EXCHANGE_H
#include <jansson.h>
#include <microhttpd.h>
#include "server.h"
#include "tokens.h"

#define RDV_PATH_PARAMS 3
#define RDV_QUERY_PARAMS 12

struct rdv_exchange;

enum rdv_body_limit {
	RDV_BODY_NONE,
	RDV_BODY_JSON,
	RDV_BODY_MESSAGE
}; /* JSON: 8 MiB; MESSAGE: limits.body, or limits.batch for ndjson */

/* QUICK never waits, but for the core thread. What may wait for the disk or a database runs on a worker, and rdv_sleep
 * is its only way to wait for a time; LONG: what may take seconds, since it reads all letters or looks at all messages;
 * it never has all the workers. */
enum rdv_pace { RDV_PACE_QUICK, RDV_PACE_SLOW, RDV_PACE_LONG };

struct rdv_operation {
	const char *method, *path; /* "/v1/routes/{name}/pause" */
	enum rdv_role role;        /* NONE: no token needed */
	enum rdv_body_limit body;
	enum rdv_pace pace;
	void (*run)(struct rdv_exchange *x);
	const char *const *query;              /* allowed parameters, NULL-terminated; NULL = none */
	const char *summary, *answer, *errors; /* for OpenAPI and the reference; errors: "404 409" */
};
extern const struct rdv_operation rdv_operations[];
extern const size_t rdv_operation_count;

struct rdv_query_param {
	const char *name;
	char *value; /* owns; decoded; may hold NUL inside: size counts */
	size_t size;
};

struct rdv_exchange {
	struct rdv_api *api;
	struct rdv_engine *engine;
	struct rdv_desk *desk;
	struct MHD_Connection *connection;
	const struct rdv_operation *op;
	char *path;                    /* owns; as it came, for the `instance` of a problem */
	char *params[RDV_PATH_PARAMS]; /* owns; decoded path parameters in order */
	size_t param_sizes[RDV_PATH_PARAMS];
	struct rdv_query_param query[RDV_QUERY_PARAMS];
	size_t query_count;
	struct rdv_buffer body;
	uint64_t body_max, body_seen, body_counted; /* counted: its part of api->bodies */
	const char *body_limit;                     /* what says body_max, for the one who sent more */
	bool is_batch;                              /* the body is NDJSON */
	bool body_too_large, no_room, answered, suspended;
	bool on_worker, ran; /* a worker runs it; has run it to its end */
	bool takes_long;     /* on a worker: it may take seconds */
	bool again;          /* on a worker: the rest of it is for the connection's own thread */
	int64_t sleep_ms;    /* of an operation on a worker: to sleep when it returns */
	struct rdv_exchange *next_work;
	bool tokens_used;     /* who: known by a token */
	struct rdv_token who; /* a copy: name, role; routes borrowed until the tokens are reloaded, so copied, too */
	void *state;          /* of an operation that suspends; freed by state_free */
	void (*state_free)(void *state);
};

/* ---- questions ---- */
const char *rdv_exchange_header(const struct rdv_exchange *x, const char *name); /* NULL if absent */
const char *rdv_exchange_query(const struct rdv_exchange *x, const char *name);  /* NULL if absent */
struct rdv_slice rdv_exchange_query_bytes(const struct rdv_exchange *x, const char *name);
bool rdv_exchange_covers(const struct rdv_exchange *x, const char *route); /* the token's scope */
bool rdv_exchange_covers_route(void *x, const char *route);                /* the same, for those who call back */
/* `limit` (1 to 1,000, default 50). false: answered 400. */
bool rdv_exchange_limit(struct rdv_exchange *x, size_t *out) RDV_MUST_CHECK;
/* The body as a JSON object; an empty body is {} when `optional`. NULL: answered 400 or 422. Returns owned. */
json_t *rdv_exchange_json(struct rdv_exchange *x, bool optional);
/* Members are checked against a list: the first unknown one is answered 422. */
bool rdv_exchange_members(struct rdv_exchange *x, const json_t *object, const char *const *known) RDV_MUST_CHECK;

/* ---- answers: exactly one ---- */
void rdv_reply_json(struct rdv_exchange *x, unsigned status, json_t *value); /* takes the reference; NULL: 500 */
void rdv_reply_bytes(struct rdv_exchange *x, unsigned status, const char *content_type, struct rdv_slice bytes,
		     const char *disposition);
/* Problem of a status with a detail; errors may be NULL (takes the reference). */
void rdv_reply_problem(struct rdv_exchange *x, unsigned http, json_t *errors, const char *fmt, ...) RDV_PRINTF(4, 5);
/* The problem that fits a status; detail NULL = the status's text. 503 carries Retry-After. */
void rdv_reply_status(struct rdv_exchange *x, enum redrive_status status, const char *detail);
/* One bad field: 422 with errors [{pointer, detail}]. */
void rdv_reply_field(struct rdv_exchange *x, const char *pointer, const char *fmt, ...) RDV_PRINTF(3, 4);

/* ---- waiting ---- */
/* Must be followed by rdv_exchange_resume exactly once, from any thread; then the operation runs again. */
void rdv_exchange_suspend(struct rdv_exchange *x);
void rdv_exchange_resume(struct rdv_exchange *x);

/* auth.c */
bool rdv_host_allowed(const char *host, const char *const *hosts, size_t count);
bool rdv_origin_allowed(const char *origin, const char *const *hosts, size_t count);
#endif
