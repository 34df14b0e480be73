/* budget.h - retry tokens: what keeps retries from multiplying an outage.
 *
 * Each first attempt deposits `ratio`, and `per_second` come on top. A retry takes a token; one that succeeds gives
 * it back, so honest retries flow at full rate while an outage's fall to the deposits. A deposit expires after 10 s,
 * but expiry never leaves less than 10 tokens, which is also what a target starts with. Oldest deposits go first.
 * Without a token a retry stays waiting, uncharged. Integers (millionths of a token). Cannot fail. Single thread. */
#ifndef RDV_CORE_BUDGET_H
#define RDV_CORE_BUDGET_H
#include "policy.h"

#define RDV_BUDGET_SLICES 10
#define RDV_BUDGET_TOKEN 1000000
#define RDV_BUDGET_LEAST (10 * (int64_t)RDV_BUDGET_TOKEN)

struct rdv_budget {
	bool on;
	int64_t ratio;                                             /* per first attempt */
	int64_t per_ms;                                            /* that come by time */
	int64_t left[RDV_BUDGET_SLICES];                           /* of each second's deposits */
	int64_t came[RDV_BUDGET_SLICES], spent[RDV_BUDGET_SLICES]; /* for the spent ratio only */
	int64_t balance;                                           /* sum of left */
	uint32_t slice, oldest; /* oldest: slices before it, back to slice + 1, are empty */
	int64_t at;             /* mono ms that the deposits by time are true for */
	int64_t slice_end;
};

void rdv_budget_init(struct rdv_budget *b, const struct rdv_budget_policy *policy, struct rdv_mono now);
void rdv_budget_reload(struct rdv_budget *b, const struct rdv_budget_policy *policy, struct rdv_mono now);
void rdv_budget_advance(struct rdv_budget *b, int64_t now_ms); /* slow part of the next */
static inline bool rdv_budget_ready(struct rdv_budget *b, int64_t now_ms)
{
	if (!b->on)
		return true;
	if (now_ms > b->at)
		rdv_budget_advance(b, now_ms);
	return b->balance >= RDV_BUDGET_TOKEN;
}
/* When time alone brings the missing part of a token; RDV_NEVER if it never does. */
int64_t rdv_budget_wake(const struct rdv_budget *b);
static inline void rdv_budget_first(struct rdv_budget *b)
{
	b->left[b->slice] += b->ratio;
	b->came[b->slice] += b->ratio;
	b->balance += b->ratio;
}
void rdv_budget_unfirst(struct rdv_budget *b); /* that first attempt did not go out */
void rdv_budget_spend(struct rdv_budget *b);   /* after ready */
void rdv_budget_give(struct rdv_budget *b);    /* that retry succeeded, or did not go out */
double rdv_budget_spent_ratio(const struct rdv_budget *b);
bool rdv_budget_check(const struct rdv_budget *b, const char **what);
#endif
