/* policy.c - defaults, presets and back-off curves.
 *
 * A delay is made in three steps: the curve, the cap, the jitter; `min` is the floor of the result. Curves that
 * grow by multiplication are computed in floating point, where too large is infinite and never negative, and come
 * back through one function that saturates. Whole milliseconds up to 2^53 are exact there; beyond, the cap has
 * long decided.
 * What always holds: 0 <= min <= earliest <= delay <= latest, for every n and every policy, however odd; nothing
 * wraps. Nothing can fail. Pure; any thread. */
#include "policy.h"
#include <assert.h>
#include <math.h>

#define SECOND ((int64_t)1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define CAP_DEFAULT HOUR

/* RocketMQ's delay levels (messageDelayLevel of its broker) without the first two, which are too short to wait
 * out anything. */
static const int64_t rocketmq_levels[] = {
	10 * SECOND, 30 * SECOND, 1 * MINUTE, 2 * MINUTE,  3 * MINUTE,  4 * MINUTE,  5 * MINUTE, 6 * MINUTE,
	7 * MINUTE,  8 * MINUTE,  9 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE, 1 * HOUR,   2 * HOUR,
};
#define ROCKETMQ_COUNT (sizeof rocketmq_levels / sizeof rocketmq_levels[0])

struct preset {
	uint32_t attempts;
	enum rdv_on_exhausted on_exhausted;
	int64_t base_ms; /* 0 = the default's */
	int64_t cap_ms;  /* 0 = the default's */
};

static const struct preset presets[RDV_PRESET_COUNT] = {
	[RDV_PRESET_PAYMENT] = {12, RDV_EXHAUSTED_DEAD, 5 * SECOND, 0},
	[RDV_PRESET_ORDER] = {5, RDV_EXHAUSTED_DEAD, 1 * SECOND, 5 * MINUTE},
	[RDV_PRESET_NOTICE] = {3, RDV_EXHAUSTED_DEAD, 10 * SECOND, 5 * MINUTE},
	[RDV_PRESET_LOG] = {2, RDV_EXHAUSTED_DEAD, 5 * SECOND, 1 * MINUTE},
	[RDV_PRESET_REALTIME] = {1, RDV_EXHAUSTED_DROP, 0, 0},
};

void rdv_retry_defaults(struct rdv_retry *r)
{
	*r = (struct rdv_retry){
		.attempts = 16,
		.on_exhausted = RDV_EXHAUSTED_DEAD,
		.backoff = RDV_BACKOFF_EXPONENTIAL,
		.base_ms = 1 * SECOND,
		.factor = 2,
		.exponent = 2,
		.jitter = RDV_JITTER_ADD,
		.jitter_fraction = 0.25,
		.min_ms = 100,
		.max_age_ms = 7 * DAY,
		.crashes = 3,
		.deferrals = 1000,
	};
}

void rdv_retry_preset(struct rdv_retry *r, enum rdv_preset p)
{
	const struct preset *preset;

	if (p <= RDV_PRESET_NONE || p >= RDV_PRESET_COUNT)
		return;
	preset = &presets[p];
	r->attempts = preset->attempts;
	r->on_exhausted = preset->on_exhausted;
	if (preset->base_ms > 0)
		r->base_ms = preset->base_ms;
	if (preset->cap_ms > 0)
		r->cap_ms = preset->cap_ms;
}

void rdv_target_policy_defaults(struct rdv_target_policy *t)
{
	*t = (struct rdv_target_policy){
		.concurrency = 64,
		.adaptive_max = 256,
		.breaker = {true, 0.5, 20, 10 * SECOND, 1 * SECOND, 5 * SECOND, 6 * HOUR},
		.budget = {true, 0.2, 10},
	};
}

void rdv_lane_policy_defaults(struct rdv_lane_policy *l)
{
	*l = (struct rdv_lane_policy){
		.order = RDV_ORDER_NONE,
		.after_dead = RDV_AFTER_CONTINUE,
		.dedupe = {.by = RDV_DEDUPE_OFF, .ttl_ms = DAY, .entries = 1000000},
	};
	rdv_retry_defaults(&l->retry);
}

void rdv_route_policy_defaults(struct rdv_route_policy *r)
{
	*r = (struct rdv_route_policy){
		.storm_hold = true,
		.family = {50, 60 * SECOND, RDV_FAMILY_ALERT},
	};
}

static int64_t saturated(double ms)
{
	if (!(ms > 0)) /* also what is not a number */
		return 0;
	return ms < 0x1p62 ? llround(ms) : RDV_NEVER;
}

static uint32_t list_count(const struct rdv_retry *r)
{
	return r->delay_count < RDV_DELAYS_MAX ? r->delay_count : RDV_DELAYS_MAX;
}

static int64_t longest_entry(const struct rdv_retry *r)
{
	int64_t longest = 0;

	for (uint32_t i = 0; i < list_count(r); i++)
		if (r->delays[i] > longest)
			longest = r->delays[i];
	return longest;
}

int64_t rdv_retry_cap(const struct rdv_retry *r)
{
	if (r->cap_ms > 0)
		return r->cap_ms;
	if (r->backoff == RDV_BACKOFF_LIST)
		return longest_entry(r);
	if (r->backoff == RDV_BACKOFF_ROCKETMQ)
		return rocketmq_levels[ROCKETMQ_COUNT - 1];
	return CAP_DEFAULT;
}

static int64_t curve_fixed(const struct rdv_retry *r, uint32_t n)
{
	return r->base_ms;
}

static int64_t curve_linear(const struct rdv_retry *r, uint32_t n)
{
	return saturated((double)r->base_ms * n);
}

static int64_t curve_exponential(const struct rdv_retry *r, uint32_t n)
{
	return saturated((double)r->base_ms * pow(r->factor, (double)n - 1));
}

static int64_t curve_polynomial(const struct rdv_retry *r, uint32_t n)
{
	return saturated((double)r->base_ms * pow(n, r->exponent));
}

static int64_t curve_list(const struct rdv_retry *r, uint32_t n)
{
	uint32_t count = list_count(r);

	return count == 0 ? 0 : r->delays[n <= count ? n - 1 : count - 1];
}

static int64_t curve_rocketmq(const struct rdv_retry *r, uint32_t n)
{
	return rocketmq_levels[n <= ROCKETMQ_COUNT ? n - 1 : ROCKETMQ_COUNT - 1];
}

static int64_t (*const curves[RDV_BACKOFF_COUNT])(const struct rdv_retry *, uint32_t) = {
	[RDV_BACKOFF_FIXED] = curve_fixed,
	[RDV_BACKOFF_LINEAR] = curve_linear,
	[RDV_BACKOFF_EXPONENTIAL] = curve_exponential,
	[RDV_BACKOFF_POLYNOMIAL] = curve_polynomial,
	[RDV_BACKOFF_LIST] = curve_list,
	[RDV_BACKOFF_ROCKETMQ] = curve_rocketmq,
};

/* The curve at n under the cap, before jitter. */
static int64_t capped(const struct rdv_retry *r, uint32_t n)
{
	int64_t delay, cap = rdv_retry_cap(r);

	assert(r->backoff < RDV_BACKOFF_COUNT);
	delay = curves[r->backoff](r, n > 0 ? n : 1);
	if (delay < 0)
		return 0;
	return delay < cap ? delay : cap;
}

/* How far the jitter may move a delay, rounded down: for a fraction up to 1 never more than the delay itself. */
static int64_t jitter_span(const struct rdv_retry *r, int64_t delay)
{
	double span = (double)delay * r->jitter_fraction;

	if (!(span >= 1))
		return 0;
	return span < 0x1p62 ? (int64_t)span : (int64_t)1 << 62;
}

void rdv_retry_bounds(const struct rdv_retry *r, uint32_t n, int64_t *earliest_ms, int64_t *latest_ms)
{
	int64_t delay = capped(r, n), low = delay, high = delay, span = jitter_span(r, delay);
	int64_t floor = r->min_ms > 0 ? r->min_ms : 0;

	if (r->jitter == RDV_JITTER_ADD || r->jitter == RDV_JITTER_BOTH)
		high = rdv_ms_add(delay, span);
	if (r->jitter == RDV_JITTER_BOTH)
		low = delay > span ? delay - span : 0;
	if (r->jitter == RDV_JITTER_FULL)
		low = 0;
	*earliest_ms = low > floor ? low : floor;
	*latest_ms = high > floor ? high : floor;
}

int64_t rdv_retry_delay(const struct rdv_retry *r, uint32_t n, struct rdv_random *random)
{
	int64_t low, high;

	/* Drawn between the bounds, not drawn and then clamped: a floor would pile up delays at one instant. */
	rdv_retry_bounds(r, n, &low, &high);
	return low + (int64_t)rdv_random_below(random, (uint64_t)(high - low) + 1);
}

int64_t rdv_retry_named_delay(const struct rdv_retry *r, int64_t delay_ms)
{
	int64_t cap = rdv_retry_cap(r);

	if (delay_ms < 0)
		return 0;
	return delay_ms < cap ? delay_ms : cap;
}
