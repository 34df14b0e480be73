/* permits.h - how many calls may run, how fast, and whose turn it is.
 *
 *   bucket   a rate per second as a bucket of 100 ms: over any 2 s at most 5 % and one call more
 *   shares   of 100 grants that all classes want, 70 go to first attempts, 22 to retries, 8 to replays; counted over
 *            grants, so that none starves at any concurrency; what one class leaves, the others use
 *   limit    calls in flight; adaptive: probes upwards while latency holds, gives way when it doubles
 *   ramp     overdue retries of a lane that opens: a rate that doubles each second until nobody waits for it
 *   hold     not before a time: Retry-After of the whole target
 *
 * Parts of a target (target.c); time is in the calls. Integers only, so that nothing drifts. Cannot fail. Single
 * thread. */
#ifndef RDV_CORE_PERMITS_H
#define RDV_CORE_PERMITS_H
#include "policy.h"

#define RDV_TOKEN 1000000000 /* one call, in the bucket's units */

struct rdv_bucket {
	int64_t per_ms;   /* units that come in each ms; 0 = no limit */
	int64_t capacity; /* 100 ms of them, at least one token */
	int64_t tokens;
	int64_t full_ms; /* after so many ms it is full */
	int64_t at;      /* mono ms that tokens are true for */
};

/* per_second <= 0: no limit. A running bucket keeps what it has, a fresh (zeroed) one starts full. */
void rdv_bucket_set(struct rdv_bucket *b, double per_second, int64_t now_ms);
void rdv_bucket_fill(struct rdv_bucket *b, int64_t now_ms); /* slow part of the next */
static inline bool rdv_bucket_ready(struct rdv_bucket *b, int64_t now_ms)
{
	if (b->per_ms == 0)
		return true;
	if (now_ms > b->at)
		rdv_bucket_fill(b, now_ms);
	return b->tokens >= RDV_TOKEN;
}
/* When it will be ready, given that it is not now. */
int64_t rdv_bucket_wake(const struct rdv_bucket *b);
static inline void rdv_bucket_spend(struct rdv_bucket *b)
{
	b->tokens -= b->per_ms ? RDV_TOKEN : 0;
}
static inline void rdv_bucket_give(struct rdv_bucket *b)
{
	int64_t more = b->tokens + (b->per_ms ? RDV_TOKEN : 0);

	b->tokens = more < b->capacity ? more : b->capacity;
}

struct rdv_shares {
	int32_t credit[RDV_CLASS_REPLAY + 1];
	uint8_t last; /* classes that stood in the last pick, for undo */
};
/* classes: bits (1 << class) of FIRST, RETRY_DUE, REPLAY; not 0. */
enum rdv_class rdv_shares_pick(struct rdv_shares *s, uint8_t classes);
void rdv_shares_undo(struct rdv_shares *s, enum rdv_class class); /* the last pick, directly after it */

struct rdv_adaptive {
	uint32_t least, most;
	int64_t took_ms;     /* sum of this second */
	uint32_t calls, bad; /* of this second */
	bool saturated;      /* the limit was reached in this second */
	double base_ms;      /* latency without queueing: the smallest second's mean, forgetting slowly; 0 = unknown */
};

struct rdv_permits {
	uint32_t limit, in_flight, suspects; /* suspects: of in_flight */
	int64_t hold_until;                  /* mono ms */
	struct rdv_bucket rate, ramp;
	double ramp_rate;            /* 0 = no ramp */
	int64_t ramp_step;           /* mono ms of its next doubling */
	bool ramp_denied, ramp_used; /* since the last doubling: a retry was refused, whatever for; one was granted */
	struct rdv_shares shares;
	bool adapts;
	struct rdv_adaptive adaptive;
};

void rdv_permits_init(struct rdv_permits *p, const struct rdv_target_policy *policy, struct rdv_mono now);
void rdv_permits_reload(struct rdv_permits *p, const struct rdv_target_policy *policy, struct rdv_mono now);
void rdv_permits_ramp(struct rdv_permits *p, double throughput, struct rdv_mono now);
/* Once a second: the ramp's doubling, the adaptive limit. */
void rdv_permits_second(struct rdv_permits *p, struct rdv_mono now);
static inline void rdv_permits_sample(struct rdv_permits *p, int64_t took_ms, bool bad)
{
	if (!p->adapts)
		return;
	p->adaptive.calls++;
	p->adaptive.bad += bad;
	p->adaptive.took_ms += took_ms > 0 && took_ms < (1 << 30) ? took_ms : 0;
}
bool rdv_permits_check(const struct rdv_permits *p, const char **what);
#endif
