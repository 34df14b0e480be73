/* engine.h - the core thread and everything around it: where events meet effects.
 *
 * One engine per data directory. Routes are added before start or by reload. Publishing goes straight to the log (any
 * thread); every question and command of other threads is executed on the core thread by rdv_engine_call, which waits
 * for its end (bounded work only). Owns: log, topics, lanes, targets, dispatchers, handlers, threads, the desk's
 * intake. Used by src/library.c (C API) and src/app/serve.c (program) alike. */
#ifndef RDV_RUNTIME_ENGINE_H
#define RDV_RUNTIME_ENGINE_H
#include "../brokers/embedded/topic.h"
#include "../brokers/source.h"
#include "../core/dispatcher.h"
#include "../handlers/handler.h"

struct rdv_engine;
struct rdv_desk;

enum rdv_handler_kind { RDV_HANDLER_HTTP, RDV_HANDLER_EXEC, RDV_HANDLER_CALLBACK, RDV_HANDLER_LEASE };

#define RDV_INDEX_MAX 8
struct rdv_metadata {
	const char *tenant, *schema_version, *consumer_version, *trace_id;
}; /* "header:NAME", "json:/pointer" or a literal; NULL = none */

struct rdv_route_options { /* all borrowed until the call returns */
	const char *name, *topic;
	const struct rdv_source_maker *source; /* lives as long as the engine; NULL = the embedded queue, else
						  `topic` and `partitions` are only what people are told */
	uint32_t partitions;
	const char *target; /* name of the target to join; NULL = by the handler (scheme, host, port; else the route
			       itself) */
	bool importance_high;
	int64_t sla_ms;
	struct rdv_lane_policy lane;
	struct rdv_target_policy target_policy;
	struct rdv_route_policy route_policy;
	struct rdv_rules *rules; /* shares: the engine takes a reference; NULL = none */
	enum rdv_handler_kind handler;
	struct rdv_http_options http;
	struct rdv_exec_options exec;
	struct rdv_callback_options callback;
	struct rdv_lease_options lease;
	struct rdv_metadata metadata;
	const char *const *index;
	size_t index_count; /* "json:/orderId" */
};

struct rdv_engine_options {
	const char *dir;
	uint64_t journal; /* 0 = automatic */
	uint64_t disk_free;
	uint64_t ids;
	uint64_t body_max, headers_max, batch_max;
	int64_t drain_ms;
	int64_t hot_ms;                   /* how long letters stay hot; 0 = 7 d */
	uint32_t segment_size;            /* 0 = default; tests */
	int64_t unread_wait_ms;           /* before a body that could not be read is asked for again, first; 0 = 1 s */
	const struct rdv_file_ops *files; /* of the log; NULL = the real ones; tests */
	void *files_ctx;
	bool exec_allowed; /* the program; the library has no exec */
	bool desk_alone;   /* brokers' sources are made, and never started: this process consumes nothing */
	bool library;      /* C API: no desk HTTP, statuses instead of exits */
	/* Said to people, one line, without newline; from any thread. level: 0 error, 1 warning, 2 info, 3 debug. May
	 * be NULL. */
	void (*say)(void *ctx, int level, const char *text);
	void *say_ctx;
	/* The engine has FAILED or ended by itself: from the core thread, once. */
	void (*ended)(void *ctx, enum redrive_status why);
	void *ended_ctx;
};

/* Reads who is in the log (so BUSY, CORRUPT, VERSION are said here), but leaves recovery to start. No thread runs yet.
 */
enum redrive_status rdv_engine_open(const struct rdv_engine_options *options, struct rdv_engine **out,
				    struct rdv_error *error) RDV_MUST_CHECK;
/* Before start. */
enum redrive_status rdv_engine_add_route(struct rdv_engine *e, const struct rdv_route_options *route,
					 struct rdv_error *error) RDV_MUST_CHECK;
/* A route's handler, before start only (for a later verdict of a callback); NULL: no such route. */
struct rdv_handler *rdv_engine_handler(struct rdv_engine *e, const char *route);
/* Recovers into the routes' lanes, opens the desk in <dir>/letters and <dir>/control.db, starts the threads. */
enum redrive_status rdv_engine_start(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
/* All or nothing: the whole new set of routes. REFUSED names what cannot change at run time (source, order, handler
 * kind). `limits`: options of which the sizes and times are taken (journal, disk_free, ids, body_max, headers_max,
 * batch_max, drain_ms, hot_ms); NULL = as they are. Any thread. */
enum redrive_status rdv_engine_reload(struct rdv_engine *e, const struct rdv_engine_options *limits,
				      const struct rdv_route_options *routes, size_t count,
				      struct rdv_error *error) RDV_MUST_CHECK;
/* No new dispatches or publishes; waits for calls in flight up to drain_ms, cuts the rest, records, CLOSE, stops all
 * threads. */
void rdv_engine_stop(struct rdv_engine *e);
void rdv_engine_free(struct rdv_engine *e); /* stops first if needed */

/* ---- any thread ---- */
/* Publishes and calls `done` when durable or failed (from the writer's thread; must not block), or answers not OK at
 * once. `results` must live until then. */
typedef void (*rdv_publish_done)(void *ctx, enum redrive_status status);
enum redrive_status rdv_engine_publish(struct rdv_engine *e, struct rdv_slice topic, const struct rdv_message *messages,
				       size_t count, struct rdv_published_at *results, rdv_publish_done done, void *ctx,
				       struct rdv_error *error) RDV_MUST_CHECK;
/* Same, and waits until it is durable. */
enum redrive_status rdv_engine_publish_wait(struct rdv_engine *e, struct rdv_slice topic,
					    const struct rdv_message *messages, size_t count,
					    struct rdv_published_at *results, struct rdv_error *error) RDV_MUST_CHECK;
/* Does a route that `covers` says yes to read this topic? The core thread is not asked; `covers` must be quick. */
bool rdv_engine_topic_read_by(struct rdv_engine *e, const char *topic, bool (*covers)(void *ctx, const char *route),
			      void *ctx);
/* Runs fn on the core thread and waits for it. CLOSED when the engine is stopping. */
enum redrive_status rdv_engine_call(struct rdv_engine *e, void (*fn)(struct rdv_engine *e, void *ctx),
				    void *ctx) RDV_MUST_CHECK;
/* Can take traffic? false: *why is set (static text). */
bool rdv_engine_ready(struct rdv_engine *e, const char **why);
struct rdv_desk *rdv_engine_desk(struct rdv_engine *e); /* NULL before start */
struct rdv_hash128 rdv_engine_id(const struct rdv_engine *e);

/* ---- questions and commands: any thread; each is one rdv_engine_call ---- */
struct rdv_route_status {
	char name[101], topic[201], target[256], detail[256];
	const char *state; /* running paused starting stopped failed */
	bool orphan;       /* what a removed route has left; stopped */
	uint32_t partitions;
	enum rdv_handler_kind handler;
	struct rdv_account account;
	struct rdv_target_status target_status;
	bool breaker_on, budget_on, storm_held;
	uint64_t held_back;
	int64_t oldest_unfinished_ms, overdue_ms;
	int64_t sla_ms;
	bool importance_high;
};
/* Returns owned array (free()). name NULL = all, orphans last. NOT_FOUND. */
enum redrive_status rdv_engine_routes(struct rdv_engine *e, const char *name, struct rdv_route_status **out,
				      size_t *count) RDV_MUST_CHECK;
enum redrive_status rdv_engine_pause(struct rdv_engine *e, const char *route, bool paused)
	RDV_MUST_CHECK; /* durable when it returns; resume also ends a storm hold */
enum redrive_status rdv_engine_release_key(struct rdv_engine *e, const char *route,
					   struct rdv_slice key) RDV_MUST_CHECK;
enum redrive_status rdv_engine_adopt(struct rdv_engine *e, const char *old_route, const char *new_route,
				     struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_engine_discard(struct rdv_engine *e, const char *old_route,
				       struct rdv_error *error) RDV_MUST_CHECK;

struct rdv_message_route {
	char route[101];
	struct rdv_where where;
	bool has_behind;
	const char *waits_for; /* static text; NULL = nothing more */
};
struct rdv_message_status {
	char topic[201];
	uint32_t partition;
	uint64_t offset;
	bool key_known, has_key;
	uint8_t key[RDV_KEY_MAX];
	size_t key_size; /* read from the BODY while it is live */
	struct rdv_message_route *routes;
	size_t route_count; /* owns */
};
void rdv_message_status_done(struct rdv_message_status *s);
/* id: a message id, or a publish id. NOT_FOUND: never given out. */
enum redrive_status rdv_engine_where(struct rdv_engine *e, struct rdv_slice id,
				     struct rdv_message_status *out) RDV_MUST_CHECK;
/* Live messages of a key, at most max, over all routes or one; returns owned array of statuses. next: opaque position,
 * 0 = from the start / complete. */
enum redrive_status rdv_engine_where_key(struct rdv_engine *e, struct rdv_slice key, const char *route, size_t max,
					 uint64_t *next, struct rdv_message_status **out, size_t *count) RDV_MUST_CHECK;
struct rdv_revoked_route {
	char route[101];
	enum rdv_state state; /* how it stands there */
	bool revoked;         /* by this */
	bool open;            /* it is being delivered; that call is not cut, and its end decides */
};
struct rdv_revocation {
	struct rdv_revoked_route *routes; /* owns */
	size_t count, open, revoked;      /* revoked: and not open */
};
/* Every route that ever had it, or the one named; each is asked by itself. NOT_FOUND: no such message, or that route
 * never had it. `reason`: for the letter; may be empty. Durable when it returns and none is open. */
enum redrive_status rdv_engine_revoke(struct rdv_engine *e, struct rdv_slice id, const char *route,
				      struct rdv_slice reason, struct rdv_revocation *out,
				      struct rdv_error *error) RDV_MUST_CHECK;
/* Looks again at those that are open. */
enum redrive_status rdv_engine_revoked(struct rdv_engine *e, struct rdv_slice id,
				       struct rdv_revocation *r) RDV_MUST_CHECK;
void rdv_revocation_done(struct rdv_revocation *r);
/* The lease handler of a route; NOT_FOUND no such route, CONFLICT its handler is another kind. Stays valid while the
 * engine lives. */
enum redrive_status rdv_engine_lease_handler(struct rdv_engine *e, const char *route,
					     struct rdv_handler **out) RDV_MUST_CHECK;
/* Finds the lease handler that issued a token (tokens carry their handler's number). */
struct rdv_handler *rdv_engine_lease_of(struct rdv_engine *e, const char *token);

/* A verdict on a lease, and what came of it: the state that its lane decided on. Late ones count while nobody else has
 * the message. */
struct rdv_lease_batch;
struct rdv_lease_verdict {
	const char *token; /* borrows, as does the answer, until the batch is done; NULL = left out */
	struct rdv_answer answer;
	enum redrive_status status;    /* NOT_FOUND unknown token; CONFLICT: somebody else has it, or it has ended */
	enum rdv_state state;          /* when OK */
	const char *why;               /* static; NULL = OK */
	struct rdv_lease_batch *batch; /* the engine's */
};
struct rdv_lease_batch {
	struct rdv_lease_verdict *verdicts;
	size_t count;
	rdv_publish_done done; /* from the core's or the writer's thread: all are decided, and durable if OK */
	void *ctx;
	size_t undecided; /* the engine's, as are the others */
	bool broker;      /* it has verdicts on messages of a broker */
	struct rdv_lease_batch *next;
};
/* OK: done will be called, once. */
enum redrive_status rdv_engine_lease_verdicts(struct rdv_engine *e, struct rdv_lease_batch *b) RDV_MUST_CHECK;
/* One, waiting until it is durable. Not from the core's thread. */
enum redrive_status rdv_engine_lease_verdict(struct rdv_engine *e, struct rdv_lease_verdict *v) RDV_MUST_CHECK;

struct rdv_histogram {
	uint64_t buckets[24];
	uint64_t count;
	double sum;
}; /* bounds: rdv_histogram_bounds, seconds */
extern const double rdv_histogram_bounds[24];
struct rdv_engine_metrics {
	struct rdv_log_space space;
	struct rdv_histogram sync_seconds;
	uint64_t ids, ids_evicted, desk_waiting;
	uint64_t unread, unread_total; /* messages whose bodies cannot be read now; reads of them that failed */
	uint64_t damaged_segments;     /* of the journal, that were set aside */
	int64_t oldest_letter_ms;      /* age of the oldest on its way to the desk; 0 = none */
};
void rdv_engine_metrics(struct rdv_engine *e, struct rdv_engine_metrics *out);
struct rdv_route_metrics { /* beyond the account */
	struct rdv_histogram handler_seconds, age_seconds, delay_seconds;
	uint64_t dead_by_reason[RDV_REASON_COUNT];
	uint64_t retries_ended, retries_acked; /* with ack, retry or reject; and of these acked */
	uint64_t retry_by_attempt[17];         /* verdict "retry" by attempt number, the last for more */
};
enum redrive_status rdv_engine_route_metrics(struct rdv_engine *e, const char *route,
					     struct rdv_route_metrics *out) RDV_MUST_CHECK;
#endif
