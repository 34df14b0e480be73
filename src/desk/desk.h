/* desk.h - the dead-letter office: takes letters in, keeps, finds and replays them.
 *
 * Letters lie in immutable segments (<dir>/letters/<day>-<n>.seg: zstd blocks of framed envelope + body); beside each
 * an SQLite index that can be rebuilt; <dir>/control.db (SQLite, synchronous=FULL) holds what people decided: plans,
 * frozen sets, outcomes, states, audit. One writer thread takes in; any thread may ask (read-only connections with a
 * deadline). The desk never calls the core: it hands replay requests to, and gets outcomes from, the functions it was
 * given. */
#ifndef RDV_DESK_DESK_H
#define RDV_DESK_DESK_H
#include "../base/block.h"
#include "../core/envelope.h"
#include "../log/file.h"

struct rdv_desk;

/* ---- the seam to the runtime ---- */
struct rdv_replay_send { /* one letter to be delivered again */
	uint64_t plan;
	const char *plan_id;
	uint8_t letter[16];
	const char *route, *topic;
	uint32_t partition;
	uint64_t offset;
	bool has_key;
	struct rdv_slice key;
	uint32_t generation;
};
struct rdv_desk_runtime { /* given by the engine at start; every function: any thread, may wait for the core thread */
	void *ctx;
	/* Into the lane's inbox; OK when durable. NOT_FOUND: no such route; REFUSED: its lanes are never in this
	 * process; CLOSED: its lane is not here now. CONFLICT: that letter has an open request
	 * already (OK for us: it goes on by itself). */
	enum redrive_status (*replay)(void *ctx, const struct rdv_replay_send *send);
	enum redrive_status (*pause)(void *ctx, uint64_t plan, bool paused);
	enum redrive_status (*cancel)(void *ctx, uint64_t plan); /* outcomes of what is taken back follow */
	/* The outcome is in control.db: the lane may forget the request. */
	void (*stored)(void *ctx, const char *route, const char *topic, uint32_t partition, uint64_t request);
	/* Routes that exist and are healthy, for preflight: NOT_FOUND or *up. */
	enum redrive_status (*route_health)(void *ctx, const char *route, bool *up, bool *dedupe);
};

struct rdv_desk_options {
	const char *dir;
	const struct rdv_file_ops *files;
	void *files_ctx; /* NULL = real */
	int64_t hot_ms;
	void (*say)(void *ctx, int level, const char *text);
	void *say_ctx;
	/* For tests; zero = the real ones: after how long a letter that was sent and has no outcome when its plan ended
	 * is unknown (15 min); 4 M letters, 8 GiB; the clock. */
	int64_t unknown_ms;
	uint32_t segment_letters;
	uint64_t segment_bytes;
	struct rdv_wall (*now)(void *ctx);
	void *now_ctx;
};
enum redrive_status rdv_desk_open(const struct rdv_desk_options *options, struct rdv_desk **out,
				  struct rdv_error *error) RDV_MUST_CHECK;
/* How long letters stay hot, anew. Any thread. */
void rdv_desk_set_hot(struct rdv_desk *d, int64_t hot_ms);
/* Starts the writer and the runner; running plans go on. */
enum redrive_status rdv_desk_start(struct rdv_desk *d, const struct rdv_desk_runtime *runtime,
				   struct rdv_error *error) RDV_MUST_CHECK;
void rdv_desk_stop(struct rdv_desk *d);
void rdv_desk_free(struct rdv_desk *d);

/* Intake: any thread, never blocks. `bytes` = encoded envelope, `body` = message body (may be NULL for damaged). Takes
 * ownership of both references. FULL: ask again later (the lane keeps it as dying). `stored` is called from a
 * thread of the desk, when it is synced and found, with the status. */
enum redrive_status rdv_desk_put(struct rdv_desk *d, struct rdv_block *envelope, struct rdv_block *body,
				 void (*stored)(void *ctx, uint64_t cookie, enum redrive_status status), void *ctx,
				 uint64_t cookie) RDV_MUST_CHECK;
/* A replay's end, from the core thread; never blocks. Reported again after a restart until `stored` was called:
 * idempotent. */
void rdv_desk_outcome(struct rdv_desk *d, uint64_t plan, const uint8_t letter[16], enum rdv_state outcome,
		      uint32_t attempts, const char *route, const char *topic, uint32_t partition, uint64_t request);
/* How far the letters that lie in a broker's topic were taken in: all before `next` are stored here, or are none. Kept
 * in control.db: durable when it returns. Any thread. */
struct rdv_desk_bookmark {
	const char *topic; /* borrows */
	uint32_t partition;
	int64_t next;
};
/* NOT_FOUND: never kept. */
enum redrive_status rdv_desk_bookmark(struct rdv_desk *d, const char *topic, uint32_t partition,
				      int64_t *next) RDV_MUST_CHECK;
/* All or none. */
enum redrive_status rdv_desk_keep_bookmarks(struct rdv_desk *d, const struct rdv_desk_bookmark *bookmarks,
					    size_t count) RDV_MUST_CHECK;
uint64_t rdv_desk_waiting(struct rdv_desk *d); /* letters put and not yet stored */
struct rdv_desk_counts {
	uint64_t letters, bytes, damaged, waiting;
}; /* stored; of all segments; places found damaged; as above */
void rdv_desk_counts(struct rdv_desk *d, struct rdv_desk_counts *out);

/* ---- letters: any thread ---- */
enum rdv_letter_state {
	RDV_LETTER_NEW,
	RDV_LETTER_ACKNOWLEDGED,
	RDV_LETTER_REPAIRING,
	RDV_LETTER_IN_REPLAY,
	RDV_LETTER_REPLAYED,
	RDV_LETTER_RESOLVED,
	RDV_LETTER_DISCARDED,
	RDV_LETTER_STATE_COUNT
};
const char *rdv_letter_state_name(enum rdv_letter_state s);
struct rdv_letter {
	char id[27];
	struct rdv_envelope envelope; /* slices borrow from `bytes` */
	struct rdv_block *bytes;      /* owns */
	enum rdv_letter_state state;
	char replay[64]; /* plan it is in or was replayed by */
	struct rdv_wall expires_at;
	char next[27]; /* the letter that followed when it died again */
};
void rdv_letter_done(struct rdv_letter *l);
enum redrive_status rdv_desk_get(struct rdv_desk *d, const char *id, struct rdv_letter *out) RDV_MUST_CHECK;
/* The body, byte-exact; empty for an empty body and a tombstone. NOT_FOUND: no such letter, or one that has no body
 * (damaged before it came here). CORRUPT: damaged here. */
enum redrive_status rdv_desk_body(struct rdv_desk *d, const char *id, struct rdv_block **out) RDV_MUST_CHECK;
/* The letter of a message on a route (latest generation); NOT_FOUND. */
enum redrive_status rdv_desk_find(struct rdv_desk *d, const char *route, const char *topic, uint32_t partition,
				  uint64_t offset, char id[27]) RDV_MUST_CHECK;

/* The filters known so far: route:, reason:, key:, dead:A..B. More terms are the full query language's. */
struct rdv_query { /* zero = everything */
	char *route, *key;
	bool has_key;
	size_t key_size;                    /* owns */
	enum rdv_reason reason;             /* NONE = any */
	struct rdv_wall dead_from, dead_to; /* ms 0 = open; to is exclusive */
};
/* INVALID: *position = the character from 1, error says what is allowed. */
enum redrive_status rdv_query_parse(struct rdv_slice text, struct rdv_query *out, size_t *position,
				    struct rdv_error *error) RDV_MUST_CHECK;
void rdv_query_done(struct rdv_query *q);
/* Newest dead first. cursor: in "" or the last page's; out "" at the end; stable while new letters arrive. each():
 * letters without bodies. INVALID cursor. Reads at most deadline_ms. */
#define RDV_CURSOR_TEXT 96
enum redrive_status rdv_desk_list(struct rdv_desk *d, const struct rdv_query *q, bool oldest_first, size_t limit,
				  char cursor[RDV_CURSOR_TEXT],
				  void (*each)(void *ctx, const struct rdv_letter *letter), void *ctx,
				  struct rdv_error *error) RDV_MUST_CHECK;

/* ---- replays: any thread ---- */
struct rdv_plan_request {
	const char *name, *q;
	const char *const *ids;
	size_t id_count;
	const char *const *exclude;
	size_t exclude_count;
	const char *target_route; /* NULL = each letter's own route */
	double rate;
	int64_t ramp_ms;
	uint64_t cap;
	bool order_key;
	struct rdv_wall expires_at; /* ms 0 = 7 d */
	const char *reason, *author;
	/* NULL = every route; else letters of other routes do not exist for this plan. */
	bool (*covers)(void *ctx, const char *route);
	void *covers_ctx;
};
enum rdv_plan_state {
	RDV_PLAN_DRAFT,
	RDV_PLAN_APPROVED,
	RDV_PLAN_SAMPLING,
	RDV_PLAN_RUNNING,
	RDV_PLAN_PAUSED,
	RDV_PLAN_FINISHED,
	RDV_PLAN_STOPPED,
	RDV_PLAN_CANCELLED,
	RDV_PLAN_EXPIRED,
	RDV_PLAN_STATE_COUNT
};
const char *rdv_plan_state_name(enum rdv_plan_state s);
struct rdv_preflight {
	char check[48];
	char result[8];
	char detail[256];
};
struct rdv_plan {
	char id[64], name[128], digest[72], author[64], approver[64], reason[256], stopped_by[64], target_route[101];
	uint64_t number;
	enum rdv_plan_state state;
	uint64_t selected, acked, dead_again, skipped, unknown, not_reached;
	double rate;
	int64_t ramp_ms;
	uint64_t cap;
	struct rdv_wall created_at, approved_at, started_at, ended_at, expires_at;
	uint64_t keys;
	struct rdv_wall oldest;
	char routes[512];
	int64_t estimated_ms; /* impact */
	struct rdv_preflight preflight[16];
	size_t preflight_count;
};
enum redrive_status rdv_plan_create(struct rdv_desk *d, const struct rdv_plan_request *r, struct rdv_plan *out,
				    struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_plan_get(struct rdv_desk *d, const char *id, struct rdv_plan *out) RDV_MUST_CHECK;
enum redrive_status rdv_plan_list(struct rdv_desk *d, size_t limit, char cursor[RDV_CURSOR_TEXT],
				  void (*each)(void *ctx, const struct rdv_plan *plan), void *ctx) RDV_MUST_CHECK;
enum rdv_plan_verb {
	RDV_PLAN_APPROVE,
	RDV_PLAN_START,
	RDV_PLAN_PAUSE,
	RDV_PLAN_RESUME,
	RDV_PLAN_RATE,
	RDV_PLAN_CANCEL
};
/* digest: APPROVE; rate: RATE. CONFLICT (wrong state, wrong digest, preflight failed) says why. Acts within 2 s. */
enum redrive_status rdv_plan_act(struct rdv_desk *d, const char *id, enum rdv_plan_verb verb, const char *digest,
				 double rate, const char *who, struct rdv_plan *out,
				 struct rdv_error *error) RDV_MUST_CHECK;
struct rdv_plan_letter {
	char letter[27];
	char outcome[16];
	char skipped_reason[64];
	uint32_t attempts;
	struct rdv_wall at;
};
enum redrive_status rdv_plan_letters(struct rdv_desk *d, const char *id, const char *outcome, size_t limit,
				     char cursor[RDV_CURSOR_TEXT],
				     void (*each)(void *ctx, const struct rdv_plan_letter *l),
				     void *ctx) RDV_MUST_CHECK;
/* One line in the audit table of control.db. */
void rdv_desk_audit(struct rdv_desk *d, const char *who, const char *action, const char *target, const char *detail);
#endif
