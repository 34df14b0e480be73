/* record.h - the records of the log: types, and encoding and decoding of their payloads.
 *
 * Little-endian; integers fixed where recovery reads them often, varints elsewhere. Each payload starts with
 * a version byte; what recovery needs comes first (the hint part). Decoders take hostile bytes, bound everything
 * and answer REDRIVE_CORRUPT or REDRIVE_VERSION. docs/internals/log-format.md draws every byte.
 * Slices in decoded structs borrow from the payload. Pure; any thread. */
#ifndef RDV_CORE_RECORD_H
#define RDV_CORE_RECORD_H
#include "message.h"

/* Stored: never renumber. */
enum rdv_record {
	RDV_RECORD_TOPIC = 1,
	RDV_RECORD_LANE = 2,
	RDV_RECORD_BODY = 3,
	RDV_RECORD_SEEN = 4,
	RDV_RECORD_STATE = 5,
	RDV_RECORD_STARTED = 6,
	RDV_RECORD_DONE = 7,
	RDV_RECORD_GATE = 8,
	RDV_RECORD_REQUEST = 9,
	RDV_RECORD_PAUSE = 10,
	RDV_RECORD_DEDUPE = 11,
	RDV_RECORD_COUNTERS = 12,
	RDV_RECORD_CLOSE = 13,
	RDV_RECORD_MAX
};
const char *rdv_record_name(enum rdv_record type);

/* Longest pieces that are stored of what a handler tells; encoders cut at a character's boundary, decoders refuse more.
 */
#define RDV_ERROR_CLASS_BYTES 256
#define RDV_ERROR_CODE_BYTES 64
#define RDV_ERROR_TEXT_BYTES (4 * RDV_ERROR_TEXT_CHARS)
#define RDV_HANDLER_VERSION_BYTES 128
#define RDV_HISTORY_CLASS_BYTES 64
#define RDV_HISTORY_CODE_BYTES 32
#define RDV_DEDUPE_ANSWER_BYTES 256
#define RDV_NAME_BYTES 1024 /* of a topic, route or plan */

/* ---- BODY: one message. Everything before `body` is small. ---- */
enum { RDV_BODY_NULL_KEY = 1, RDV_BODY_TOMBSTONE = 2, RDV_BODY_HAS_ID = 4 };
#define RDV_BODY_HINT                                                                                                  \
	32 /* version 1, flags 1, reserved 2, body_at 4 (offset of the body bytes), key_hash 8, not_before 8,          \
	      produced_at 8 */

struct rdv_header {
	struct rdv_slice name, value;
};

struct rdv_body {
	uint8_t flags;
	uint64_t key_hash;          /* keyed SipHash of the key; 0 for a null key (a real hash of 0 is stored as 1) */
	struct rdv_wall not_before; /* delayed publish; 0 = at once */
	struct rdv_wall produced_at;
	struct rdv_slice publish_id, key, content_type, traceparent;
	struct rdv_slice headers; /* encoded list: varint count, then prefixed name, prefixed value ... */
	struct rdv_slice body;
};
/* Bytes that rdv_body_encode will write. */
size_t rdv_body_size(const struct rdv_body *m);
/* Writes exactly rdv_body_size bytes; `out` may be the log's own buffer. */
void rdv_body_encode(const struct rdv_body *m, uint8_t *out);
enum redrive_status rdv_body_decode(struct rdv_slice payload, struct rdv_body *out) RDV_MUST_CHECK;
/* The hint part alone (payload may be cut after it): flags, key_hash, not_before, produced_at. */
enum redrive_status rdv_body_decode_hint(struct rdv_slice payload, struct rdv_body *out) RDV_MUST_CHECK;
/* Encoded header list: appends one header / iterates. Iteration: *r from rdv_headers_begin; false at the end or on
 * damage. */
/* An empty slice is an empty list. */
void rdv_headers_encode(struct rdv_buffer *out, const struct rdv_header *items, size_t count);
struct rdv_reader rdv_headers_begin(struct rdv_slice headers, uint64_t *count);
bool rdv_headers_next(struct rdv_reader *r, struct rdv_header *out);
/* The list is whole: as many headers as it says, nothing behind them. */
bool rdv_headers_valid(struct rdv_slice headers);

/* ---- STATE: the whole state of one live message on one lane. ---- */
struct rdv_attempt { /* one line of the history */
	uint32_t n;  /* running number of the delivery, 1 = first */
	struct rdv_wall at;
	int64_t took_ms;
	uint8_t verdict, cause; /* enums of message.h */
	bool duplicate;
	struct rdv_wall next_at;            /* 0 = none */
	struct rdv_slice code, class, text; /* text at most RDV_HISTORY_TEXT_BYTES */
};

struct rdv_causes {        /* counts by cause */
	uint32_t failures; /* charged; timeouts and rejects included */
	uint32_t timeouts, crashes, shutdowns, deferrals, outage;
};

#define RDV_STATE_HINT 40 /* the fixed part, see record.c */
struct rdv_message_state {
	enum rdv_state kind;    /* WAITING, DYING, or READY (after a shutdown or a lease given back) */
	enum rdv_reason reason; /* DYING */
	uint8_t suspicion;      /* charged failures while others succeeded, 0..3 */
	bool last_bad_charged;  /* the last failure was bad evidence and charged: may be refunded */
	struct rdv_wall due;
	int64_t delay_ms;    /* due - when it was decided */
	uint32_t deliveries; /* all that ever went out */
	struct rdv_causes causes;
	struct rdv_wall first_at; /* first delivery; 0 = none yet */
	struct rdv_wall first_failed_at, last_failed_at;
	uint64_t cause_seq;   /* follower: UINT64_MAX = none */
	uint64_t fingerprint; /* of the last failure */
	uint32_t generation;
	struct rdv_slice handler_version;
	struct rdv_failure failure; /* the last one */
	uint32_t history_omitted;
	uint32_t history_count; /* <= 1 + RDV_HISTORY_LAST */
	struct rdv_attempt history[1 + RDV_HISTORY_LAST];
};
void rdv_state_encode(const struct rdv_message_state *s, struct rdv_buffer *out);
enum redrive_status rdv_state_decode(struct rdv_slice payload, struct rdv_message_state *out) RDV_MUST_CHECK;
/* The hint part alone: kind, reason, suspicion, last_bad_charged, due, delay, deliveries, generation, causes.failures,
 * causes.crashes, causes.deferrals; everything else is zero. */
enum redrive_status rdv_state_decode_hint(struct rdv_slice payload, struct rdv_message_state *out) RDV_MUST_CHECK;
/* Puts `a` into the ring: keeps the first and the last 15, counts what it drops. Slices must outlive the encode. */
void rdv_state_add_attempt(struct rdv_message_state *s, const struct rdv_attempt *a);

/* ---- DONE and STARTED: lists of runs. outcome: ACKED, DROPPED, DEAD, REVOKED, DONE (finished, not
 * known how); STARTED: ignored. ---- */
struct rdv_run {
	uint64_t first, count;
	enum rdv_state outcome;
};
void rdv_runs_encode(const struct rdv_run *runs, size_t count, struct rdv_buffer *out);
/* Iterate: *r from begin (reads the version); false at the end; r->failed on damage. */
struct rdv_reader rdv_runs_begin(struct rdv_slice payload);
/* outcome of a decoded STARTED run is ACKED and means nothing. A run has count >= 1 and does not pass UINT64_MAX. */
bool rdv_runs_next(struct rdv_reader *r, struct rdv_run *out);

/* ---- TOPIC, LANE: names of streams. ---- */
#define RDV_PARTITIONS_MAX 1024
struct rdv_topic_fields {
	struct rdv_slice name;
	uint32_t partitions, first_stream;
	uint8_t secret[16];
	uint64_t next_offset[RDV_PARTITIONS_MAX];
};
void rdv_topic_encode(const struct rdv_topic_fields *t, struct rdv_buffer *out);
enum redrive_status rdv_topic_decode(struct rdv_slice payload, struct rdv_topic_fields *out) RDV_MUST_CHECK;

struct rdv_lane_fields {
	struct rdv_slice route, topic;
	uint32_t partition, partition_stream;
	uint64_t start; /* first offset this lane is responsible for */
	uint64_t epoch; /* of the last OPEN */
	bool clean;     /* the last CLOSE was clean */
	bool orphan, discarded;
	uint32_t opens_without_outcome;
};
void rdv_lane_encode(const struct rdv_lane_fields *l, struct rdv_buffer *out);
enum redrive_status rdv_lane_decode(struct rdv_slice payload, struct rdv_lane_fields *out) RDV_MUST_CHECK;

/* ---- SEEN: publish ids of one partition. ---- */
struct rdv_seen {
	struct rdv_hash128 id;
	uint64_t offset;
	struct rdv_wall until;
};
void rdv_seen_encode(const struct rdv_seen *items, size_t count, struct rdv_buffer *out);
struct rdv_reader rdv_seen_begin(struct rdv_slice payload);
bool rdv_seen_next(struct rdv_reader *r, struct rdv_seen *out);

/* ---- GATE: seq = key hash. ---- */
struct rdv_gate {
	uint64_t letter_seq; /* the dead message that closed it */
	bool closed;
};
void rdv_gate_encode(const struct rdv_gate *g, struct rdv_buffer *out);
enum redrive_status rdv_gate_decode(struct rdv_slice payload, struct rdv_gate *out) RDV_MUST_CHECK;

/* ---- REQUEST: the lane's inbox; seq = request number, rising per lane. ---- */
enum rdv_request_kind { RDV_REQUEST_REPLAY = 1, RDV_REQUEST_RELEASE = 2, RDV_REQUEST_REVOKE = 3 };
enum rdv_request_state { RDV_REQUEST_OPEN = 1, RDV_REQUEST_FINISHED = 2, RDV_REQUEST_GONE = 3 };
struct rdv_request {
	enum rdv_request_kind kind;
	enum rdv_request_state state;
	uint64_t seq;                 /* the message's */
	uint64_t key_hash;            /* 0 = null key */
	uint8_t letter[16];           /* letter id */
	uint64_t plan;                /* the desk's number of the plan */
	uint32_t generation;          /* of the letter that is replayed */
	uint32_t charged, deliveries; /* attempts of this replay so far */
	struct rdv_wall due;
	int64_t delay_ms;
	enum rdv_state outcome;     /* when finished */
	struct rdv_slice plan_name; /* for Redrive-Replay */
};
void rdv_request_encode(const struct rdv_request *q, struct rdv_buffer *out);
enum redrive_status rdv_request_decode(struct rdv_slice payload, struct rdv_request *out) RDV_MUST_CHECK;

/* ---- DEDUPE ---- */
enum rdv_dedupe_state { RDV_DEDUPE_PROCESSING = 1, RDV_DEDUPE_DONE = 2, RDV_DEDUPE_FREE = 3 };
struct rdv_dedupe_record {
	struct rdv_hash128 key;
	enum rdv_dedupe_state state;
	uint64_t owner_seq;
	struct rdv_wall until;
	struct rdv_slice answer; /* at most 256 bytes */
};
void rdv_dedupe_encode(const struct rdv_dedupe_record *d, struct rdv_buffer *out);
enum redrive_status rdv_dedupe_decode(struct rdv_slice payload, struct rdv_dedupe_record *out) RDV_MUST_CHECK;

/* ---- COUNTERS: see account.h ---- */
struct rdv_account;
void rdv_counters_encode(const struct rdv_account *a, struct rdv_buffer *out);
/* Live counts and calls are not stored: they stay zero. */
enum redrive_status rdv_counters_decode(struct rdv_slice payload, struct rdv_account *out) RDV_MUST_CHECK;
/* Optional, behind the counters: acks per second that a restart begins with; 0 = not told. */
void rdv_counters_append_throughput(double throughput, struct rdv_buffer *out);
double rdv_counters_throughput(struct rdv_slice payload);

/* ---- PAUSE, CLOSE ---- */
void rdv_pause_encode(bool paused, struct rdv_buffer *out);
enum redrive_status rdv_pause_decode(struct rdv_slice payload, bool *paused) RDV_MUST_CHECK;
void rdv_close_encode(struct rdv_buffer *out);
enum redrive_status rdv_close_decode(struct rdv_slice payload) RDV_MUST_CHECK;
#endif
