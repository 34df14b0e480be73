/* message.h - the words as types: message, attempt, verdict, causes, kinds, reasons.
 *
 * A message is immutable; a retry never changes it. An attempt is one delivery with its verdict. This
 * header only defines types and their names; see record.h for the bytes. Pure; any thread. */
#ifndef RDV_CORE_MESSAGE_H
#define RDV_CORE_MESSAGE_H
#include "../base/bytes.h"
#include "../base/clock.h"
#include "../base/hash.h"

enum rdv_verdict_kind { RDV_ACK, RDV_RETRY, RDV_REJECT, RDV_DEFER, RDV_DROP, RDV_VERDICT_COUNT };

/* Why an attempt did not end with an ack. Each is counted by itself in a message's history. */
enum rdv_cause {
	RDV_CAUSE_NONE,     /* ack, drop */
	RDV_CAUSE_FAILURE,  /* the handler said retry or reject, or could not be reached */
	RDV_CAUSE_TIMEOUT,  /* no answer within the handler's timeout, or a lease expired; also counts as a failure */
	RDV_CAUSE_CRASH,    /* an exec handler was killed by a signal, or our own process died inside a callback */
	RDV_CAUSE_SHUTDOWN, /* cut off by our own drain */
	RDV_CAUSE_DEFERRAL, /* the handler asked for later */
	RDV_CAUSE_OUTAGE,   /* failed while the target was down, or given back when it went down: charged to nobody */
	RDV_CAUSE_COUNT
};

/* What an attempt says about the target. */
enum rdv_kind {
	RDV_KIND_OK,     /* ack, drop, defer */
	RDV_KIND_INFRA,  /* refused, reset, DNS, TLS, timeout, 429, 502, 503, 504, exec 75 or signal */
	RDV_KIND_APP,    /* other 5xx, other retryable */
	RDV_KIND_WIRING, /* 401 403 405 407 421 */
	RDV_KIND_MSG,    /* any reject: neither ok nor bad for the breaker */
	RDV_KIND_NONE,   /* no evidence (shutdown) */
};

/* Why a message died. Stored: never renumber. */
enum rdv_reason {
	RDV_REASON_NONE,
	RDV_REASON_REJECTED,
	RDV_REASON_EXHAUSTED,
	RDV_REASON_EXPIRED,
	RDV_REASON_UNDECODABLE,
	RDV_REASON_TOO_LARGE,
	RDV_REASON_DAMAGED,
	RDV_REASON_CRASHED,
	RDV_REASON_FOLLOWER,
	RDV_REASON_REVOKED,
	RDV_REASON_LIMIT_LOWERED,
	RDV_REASON_OPERATOR,
	RDV_REASON_ADOPTED,
	RDV_REASON_COUNT
};

/* A message's state on one route, as the API names it. */
enum rdv_state {
	RDV_STATE_READY,
	RDV_STATE_IN_FLIGHT,
	RDV_STATE_WAITING,
	RDV_STATE_HELD,
	RDV_STATE_DYING, /* shown as dead, no letter yet */
	RDV_STATE_DEAD,
	RDV_STATE_ACKED,
	RDV_STATE_DROPPED,
	RDV_STATE_DONE, /* finished, the log no longer knows how */
	RDV_STATE_REVOKED,
	RDV_STATE_REPLAYING,
	RDV_STATE_COUNT
};

enum rdv_class { RDV_CLASS_FIRST, RDV_CLASS_RETRY_DUE, RDV_CLASS_REPLAY, RDV_CLASS_SUSPECT, RDV_CLASS_COUNT };

const char *rdv_verdict_name(enum rdv_verdict_kind v); /* "ack" ...; never NULL */
const char *rdv_cause_name(enum rdv_cause c);
const char *rdv_kind_name(enum rdv_kind k);
const char *rdv_reason_name(enum rdv_reason r);
const char *rdv_state_name(enum rdv_state s); /* dying is "dead" */
/* Parses a name; false if unknown. */
bool rdv_reason_parse(struct rdv_slice name, enum rdv_reason *out);
bool rdv_verdict_parse(struct rdv_slice name, enum rdv_verdict_kind *out);

#define RDV_ERROR_TEXT_CHARS 1000 /* of an error text, kept in full */
#define RDV_ERROR_STACK_BYTES 4096
#define RDV_HISTORY_TEXT_BYTES 96 /* of an error text, in the history ring */
#define RDV_HISTORY_LAST 15       /* ring: the first attempt and the last 15 */
#define RDV_KEY_MAX 4096
#define RDV_PUBLISH_ID_MAX 256

/* What went wrong, as the handler told it. All slices borrow. */
struct rdv_failure {
	struct rdv_slice class;      /* outermost error class; empty = none */
	struct rdv_slice root_class; /* root cause's class; empty = none */
	struct rdv_slice code;       /* status or exit code as text */
	struct rdv_slice text;       /* at most RDV_ERROR_TEXT_CHARS characters, valid UTF-8 */
	struct rdv_slice stack;      /* at most RDV_ERROR_STACK_BYTES, valid UTF-8 */
};

/* The end of one attempt, after the rules were applied (rules.h). */
struct rdv_verdict {
	enum rdv_verdict_kind kind;
	enum rdv_cause cause;
	enum rdv_kind evidence;
	bool has_delay;   /* the handler named a delay (Retry-After, Redrive-Delay, lease delay_ms): bounded by cap, no
			     jitter */
	int64_t delay_ms; /* valid when has_delay; 0 is allowed and ignores `min` */
	int64_t target_hold_ms; /* > 0: Retry-After of a 429 or 503: the whole target waits (at most 5 min) */
	uint16_t rule; /* 1-based index of the user's rule that decided, whose limits then apply; 0 = the built-in table
			*/
	bool duplicate; /* the handler said it had processed it before */
	int64_t took_ms;
	uint64_t fingerprint; /* of the failure (fingerprint.h); 0 for ok */
	struct rdv_failure failure;
	struct rdv_slice answer;          /* first 256 bytes of an ok answer, for dedupe; may be empty */
	struct rdv_slice handler_version; /* empty = not told */
};
#endif
