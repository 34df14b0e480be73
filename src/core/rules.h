/* rules.h - from a handler's answer to a verdict: the user's rules first, then the built-in tables.
 *
 * An answer is what came back: HTTP status, exit code, signal, transport error, timeout, or an explicit verdict of the
 * handler (Redrive-Verdict, C callback, lease), with error class and text. The first user rule that matches wins.
 * Regular expressions are PCRE2 with match and depth limits; a match that hits a limit counts as no match. A compiled
 * rule set is immutable and shared by reference count, so any thread may use it. */
#ifndef RDV_CORE_RULES_H
#define RDV_CORE_RULES_H
#include "policy.h"

enum rdv_transport {                       /* how a call ended */
		     RDV_TRANSPORT_ANSWER, /* an HTTP status, exit code or explicit verdict is there */
		     RDV_TRANSPORT_REFUSED,
		     RDV_TRANSPORT_RESET,
		     RDV_TRANSPORT_DNS,
		     RDV_TRANSPORT_TLS,
		     RDV_TRANSPORT_TIMEOUT,
		     RDV_TRANSPORT_SIGNAL,   /* exec killed by a signal */
		     RDV_TRANSPORT_SHUTDOWN, /* cut off by our drain */
		     RDV_TRANSPORT_OTHER
};

struct rdv_answer {
	enum rdv_transport transport;
	int http_status;               /* 0 = none */
	int exit_code;                 /* -1 = none */
	enum rdv_verdict_kind verdict; /* when explicit */
	bool explicit_verdict;
	bool duplicate;
	bool has_delay; /* Redrive-Delay, or Retry-After as a delay from now, or lease delay_ms */
	bool delay_is_retry_after;
	int64_t delay_ms;
	int64_t retry_after_ms; /* a Retry-After beside a Redrive-Delay (which then is delay_ms); 0 = none */
	int64_t took_ms;
	/* The words, behind all else. */
	struct rdv_failure failure; /* as the handler told; class and code may be empty: filled by the table */
	struct rdv_slice answer, handler_version;
};

enum rdv_then { RDV_THEN_ACK, RDV_THEN_REJECT, RDV_THEN_DROP, RDV_THEN_DEFER, RDV_THEN_RETRY };
#define RDV_RULES_MAX 256
#define RDV_RULE_PATTERN_MAX 1000 /* bytes */

/* Every condition that is given must hold; at least one must be given. Patterns are searched for anywhere (no anchor).
 */
struct rdv_rule_spec { /* one rule of the configuration; strings borrow until compile returns */
	int statuses[32];
	size_t status_count;
	int exits[32];
	size_t exit_count;
	const char *class_pattern, *text_pattern; /* NULL = not asked; the class's also matches the root class */
	bool timeout;                             /* asked for a timeout */
	enum rdv_then then;
	int64_t defer_ms; /* DEFER: configured, so that the lane must not cut it to the cap; < 0 = the handler's own or
			     `base` */
	struct rdv_retry retry; /* RETRY: the rule's own limits and curve; valid if has_retry */
	bool has_retry;
};

/* INVALID with the rule's number (1-based) in *bad and a text. */
enum redrive_status rdv_rules_compile(const struct rdv_rule_spec *specs, size_t count, struct rdv_rules **out,
				      size_t *bad, struct rdv_error *error) RDV_MUST_CHECK;
struct rdv_rules *rdv_rules_ref(struct rdv_rules *r); /* accepts NULL */
void rdv_rules_unref(struct rdv_rules *r);
/* rules may be NULL. Slices of *out borrow from `answer` or are static. Sets kind, cause, evidence, delay, target_hold,
 * rule; the fingerprint is computed (fingerprint.h) with the route's name for everything but ok. */
/* An explicit verdict in an HTTP answer (Redrive-Verdict) is final. One without an HTTP status (lease, callback) is
 * final, too, unless it is `retry`: that leaves open how, so rules by class and text apply. */
void rdv_rules_judge(const struct rdv_rules *rules, const char *route, const struct rdv_answer *answer,
		     struct rdv_verdict *out);
/* The 1-based number of the first rule that matches the answer, 0 = none; and what it says (borrows; n from match). */
uint16_t rdv_rules_match(const struct rdv_rules *rules, const struct rdv_answer *answer);
enum rdv_then rdv_rules_then(const struct rdv_rules *rules, uint16_t n, int64_t *defer_ms);
/* The retry part of a rule by its number, or NULL when it has none (then the route's). */
const struct rdv_retry *rdv_rules_retry(const struct rdv_rules *rules, uint16_t rule);
#endif
