/* permits.c - buckets, class shares, the adaptive limit and the backlog's ramp.
 *
 * The shares are a smooth weighted round-robin: each class that stands gains its weight, the richest goes and
 * pays what all of them gained. Over any 100 picks in which all three stand, each gets exactly its weight, spread
 * evenly. The adaptive limit compares each second's mean latency with the best one remembered: it grows by an
 * eighth while it is reached and latency stays within half more, and shrinks by an eighth when latency is twice
 * the best or a tenth of the calls is bad.
 * What always holds: 0 <= tokens <= capacity; limit >= 1; credits stay within one round. Cannot fail. */
#include "permits.h"
#include <math.h>

#define RATE_MAX 1e9 /* per second; beyond, per_ms * elapsed could overflow */
#define RAMP_DONE 1e7
#define BASE_DRIFT 1.02 /* per second: about a minute until a slower service is believed */

void rdv_bucket_set(struct rdv_bucket *b, double per_second, int64_t now_ms)
{
	bool fresh = b->capacity == 0;

	if (!(per_second > 0)) {
		*b = (struct rdv_bucket){0};
		return;
	}
	if (!fresh)
		rdv_bucket_fill(b, now_ms);
	b->per_ms = llround((per_second < RATE_MAX ? per_second : RATE_MAX) * ((double)RDV_TOKEN / 1000));
	if (b->per_ms < 1)
		b->per_ms = 1;
	b->capacity = b->per_ms * 100 > RDV_TOKEN ? b->per_ms * 100 : RDV_TOKEN;
	b->full_ms = b->capacity / b->per_ms + 1;
	b->at = now_ms;
	if (fresh || b->tokens > b->capacity)
		b->tokens = b->capacity;
}

void rdv_bucket_fill(struct rdv_bucket *b, int64_t now_ms)
{
	int64_t elapsed = now_ms - b->at;

	if (elapsed <= 0)
		return;
	b->at = now_ms;
	b->tokens = elapsed >= b->full_ms ? b->capacity : b->tokens + elapsed * b->per_ms;
	if (b->tokens > b->capacity)
		b->tokens = b->capacity;
}

int64_t rdv_bucket_wake(const struct rdv_bucket *b)
{
	int64_t missing = RDV_TOKEN - b->tokens;

	return b->per_ms == 0 ? b->at : rdv_ms_add(b->at, (missing + b->per_ms - 1) / b->per_ms);
}

static const int32_t weights[] = {[RDV_CLASS_FIRST] = 70, [RDV_CLASS_RETRY_DUE] = 22, [RDV_CLASS_REPLAY] = 8};
#define SHARED_CLASSES (sizeof weights / sizeof weights[0])

enum rdv_class rdv_shares_pick(struct rdv_shares *s, uint8_t classes)
{
	int32_t sum = 0;
	int best = -1;

	s->last = classes;
	if ((classes & (classes - 1)) == 0) /* it alone would gain and pay the same */
		return (enum rdv_class)__builtin_ctz(classes);
	for (int c = 0; c < (int)SHARED_CLASSES; c++) {
		if (!(classes & 1u << c))
			continue;
		s->credit[c] += weights[c];
		sum += weights[c];
		if (best < 0 || s->credit[c] > s->credit[best])
			best = c;
	}
	s->credit[best] -= sum;
	return (enum rdv_class)best;
}

void rdv_shares_undo(struct rdv_shares *s, enum rdv_class class)
{
	int32_t sum = 0;

	if (class >= SHARED_CLASSES || !(s->last & 1u << class))
		return;
	for (int c = 0; c < (int)SHARED_CLASSES; c++) {
		if (s->last & 1u << c) {
			s->credit[c] -= weights[c];
			sum += weights[c];
		}
	}
	s->credit[class] += sum;
	s->last = 0;
}

void rdv_permits_init(struct rdv_permits *p, const struct rdv_target_policy *policy, struct rdv_mono now)
{
	*p = (struct rdv_permits){.hold_until = INT64_MIN};
	rdv_permits_reload(p, policy, now);
	p->limit = policy->concurrency > 0 ? policy->concurrency : 1;
}

void rdv_permits_reload(struct rdv_permits *p, const struct rdv_target_policy *policy, struct rdv_mono now)
{
	uint32_t start = policy->concurrency > 0 ? policy->concurrency : 1;
	uint32_t most = policy->adaptive && policy->adaptive_max > start ? policy->adaptive_max : start;

	p->adapts = policy->adaptive;
	p->adaptive.least = policy->adaptive ? (start < 4 ? start : 4) : start;
	p->adaptive.most = most;
	if (!p->adapts || p->limit < p->adaptive.least)
		p->limit = start;
	if (p->limit > most)
		p->limit = most;
	rdv_bucket_set(&p->rate, policy->rate, now.ms);
}

void rdv_permits_ramp(struct rdv_permits *p, double throughput, struct rdv_mono now)
{
	double rate = throughput > 1 ? throughput : 1;

	if (rate > p->ramp_rate) /* several lanes open together: they share one ramp */
		p->ramp_rate = rate;
	p->ramp_step = now.ms + 1000;
	p->ramp_denied = true;
	p->ramp_used = false;
	rdv_bucket_set(&p->ramp, p->ramp_rate, now.ms);
}

static void ramp_second(struct rdv_permits *p, struct rdv_mono now)
{
	if (p->ramp_rate <= 0 || now.ms < p->ramp_step)
		return;
	if (p->ramp_used) /* while the target is held or down nothing goes, and nothing is learnt */
		p->ramp_rate *= 2;
	if (!p->ramp_denied || p->ramp_rate > RAMP_DONE)
		p->ramp_rate = 0;
	p->ramp_denied = p->ramp_used = false;
	p->ramp_step = now.ms + 1000;
	rdv_bucket_set(&p->ramp, p->ramp_rate, now.ms);
}

static uint32_t eighth(uint32_t limit)
{
	return limit / 8 > 0 ? limit / 8 : 1;
}

static void adapt_second(struct rdv_permits *p)
{
	struct rdv_adaptive *a = &p->adaptive;
	double mean = a->calls > 0 ? (double)a->took_ms / a->calls : 0;
	bool worse;

	if (a->calls > 0) {
		mean = mean > 1 ? mean : 1; /* below a millisecond there is nothing to compare */
		a->base_ms = a->base_ms > 0 ? a->base_ms * BASE_DRIFT : mean;
		a->base_ms = mean < a->base_ms ? mean : a->base_ms;
		worse = mean > 2 * a->base_ms || (uint64_t)a->bad * 10 >= a->calls;
		if (worse)
			p->limit = p->limit > a->least + eighth(p->limit) ? p->limit - eighth(p->limit) : a->least;
		else if (a->saturated && mean <= 1.5 * a->base_ms)
			p->limit = p->limit + eighth(p->limit) < a->most ? p->limit + eighth(p->limit) : a->most;
	}
	a->took_ms = 0;
	a->calls = a->bad = 0;
	a->saturated = false;
}

void rdv_permits_second(struct rdv_permits *p, struct rdv_mono now)
{
	ramp_second(p, now);
	if (p->adapts)
		adapt_second(p);
}

static bool bucket_fine(const struct rdv_bucket *b)
{
	return b->per_ms == 0 || (b->tokens >= 0 && b->tokens <= b->capacity);
}

bool rdv_permits_check(const struct rdv_permits *p, const char **what)
{
	*what = NULL;
	if (p->limit < 1 || p->limit > p->adaptive.most)
		*what = "the limit is out of its range";
	else if (p->suspects > p->in_flight)
		*what = "more suspects than calls in flight";
	else if (!bucket_fine(&p->rate) || !bucket_fine(&p->ramp))
		*what = "a bucket is overfull or overdrawn";
	for (size_t c = 0; c < SHARED_CLASSES; c++)
		if (p->shares.credit[c] > 300 || p->shares.credit[c] < -300)
			*what = "a class share has run away";
	return *what == NULL;
}
