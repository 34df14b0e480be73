/* policy.h - how a route retries: curves, jitter, limits, presets; everything a route may be told.
 *
 * Delay after failure n = 1, 2, ...: fixed base; linear base*n; exponential base*factor^(n-1);
 * polynomial base*n^exponent; list delays[min(n, len)]; rocketmq its levels from 10 s on. Then the cap, then
 * jitter on top, never below min. Saturating for any n in 0..2^31. Pure; any thread. */
#ifndef RDV_CORE_POLICY_H
#define RDV_CORE_POLICY_H
#include "message.h"
#include "../base/random.h"

enum rdv_backoff {
	RDV_BACKOFF_FIXED,
	RDV_BACKOFF_LINEAR,
	RDV_BACKOFF_EXPONENTIAL,
	RDV_BACKOFF_POLYNOMIAL,
	RDV_BACKOFF_LIST,
	RDV_BACKOFF_ROCKETMQ,
	RDV_BACKOFF_COUNT
};
enum rdv_jitter { RDV_JITTER_NONE, RDV_JITTER_ADD, RDV_JITTER_BOTH, RDV_JITTER_FULL };
enum rdv_order { RDV_ORDER_NONE, RDV_ORDER_KEY };
enum rdv_after_dead { RDV_AFTER_CONTINUE, RDV_AFTER_HOLD, RDV_AFTER_FOLLOW };
enum rdv_on_exhausted { RDV_EXHAUSTED_DEAD, RDV_EXHAUSTED_DROP };
enum rdv_preset {
	RDV_PRESET_NONE,
	RDV_PRESET_PAYMENT,
	RDV_PRESET_ORDER,
	RDV_PRESET_NOTICE,
	RDV_PRESET_LOG,
	RDV_PRESET_REALTIME,
	RDV_PRESET_COUNT
};

#define RDV_DELAYS_MAX 64

struct rdv_retry {
	uint32_t attempts; /* failed tries before dead; >= 1 */
	enum rdv_on_exhausted on_exhausted;
	int64_t window_ms; /* the business's own limit, 0 = none: explain and check compare */
	enum rdv_backoff backoff;
	int64_t base_ms;
	double factor, exponent;
	int64_t cap_ms; /* 0 = its default: 1 h, for list and rocketmq their longest entry */
	enum rdv_jitter jitter;
	double jitter_fraction; /* ADD: 0..f on top; BOTH: -f..+f */
	int64_t min_ms;
	int64_t max_age_ms;
	uint32_t crashes, deferrals;
	int64_t delays[RDV_DELAYS_MAX];
	uint32_t delay_count;
};

/* One line of `rules`: then-part. The when-part is rules.h's. */
struct rdv_rules; /* compiled, shared by reference count: rules.h */

struct rdv_breaker {
	bool on;
	double ratio;
	uint32_t min_calls;
	int64_t window_ms, open_ms, max_open_ms, patience_ms;
};
struct rdv_budget_policy {
	bool on;
	double ratio, per_second;
};
enum rdv_family_then { RDV_FAMILY_ALERT, RDV_FAMILY_HOLD, RDV_FAMILY_REJECT };
struct rdv_family {
	uint32_t count; /* 0 = off */
	int64_t within_ms;
	enum rdv_family_then then;
};

/* What a target needs to know: must be equal for all routes that share it. */
struct rdv_target_policy {
	uint32_t concurrency; /* >= 1; with adaptive: the start, and adaptive_max the end */
	bool adaptive;
	uint32_t adaptive_max;
	double rate; /* per second, 0 = none */
	struct rdv_breaker breaker;
	struct rdv_budget_policy budget;
};

enum rdv_dedupe_by { RDV_DEDUPE_OFF, RDV_DEDUPE_ID, RDV_DEDUPE_KEY, RDV_DEDUPE_HEADER, RDV_DEDUPE_JSON };
struct rdv_dedupe_policy {
	enum rdv_dedupe_by by;
	char name[256]; /* header name or JSON pointer */
	int64_t ttl_ms;
	uint64_t entries;
};

/* What a lane needs to know. */
struct rdv_lane_policy {
	struct rdv_retry retry;
	enum rdv_order order;
	enum rdv_after_dead after_dead;
	struct rdv_dedupe_policy dedupe;
};

/* What a target must know of one route. */
struct rdv_route_policy {
	bool storm_hold; /* storm: hold (default) or dead */
	struct rdv_family family;
};

/* CONTRACT's defaults without a preset; then a preset on top. */
void rdv_retry_defaults(struct rdv_retry *r);
void rdv_retry_preset(struct rdv_retry *r, enum rdv_preset p);
void rdv_target_policy_defaults(struct rdv_target_policy *t);
void rdv_lane_policy_defaults(struct rdv_lane_policy *l);
void rdv_route_policy_defaults(struct rdv_route_policy *r);

/* The effective cap. */
int64_t rdv_retry_cap(const struct rdv_retry *r);
/* Delay after failure n (n >= 1; 0 counts as 1), with jitter. */
int64_t rdv_retry_delay(const struct rdv_retry *r, uint32_t n, struct rdv_random *random);
/* Smallest and largest possible delay after failure n. */
void rdv_retry_bounds(const struct rdv_retry *r, uint32_t n, int64_t *earliest_ms, int64_t *latest_ms);
/* A delay that the handler named: bounded to 0..cap, no jitter. */
int64_t rdv_retry_named_delay(const struct rdv_retry *r, int64_t delay_ms);
#endif
