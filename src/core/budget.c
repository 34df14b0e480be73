/* budget.c - deposits in ten slices of a second, spent oldest first.
 *
 * Deposits by time are made in one go whenever the clock is seen to have moved; over a gap each second gets its
 * share. What always holds: balance = sum of left, nothing negative; after expiry at least 10 tokens if there were as
 * many before. Cannot fail. */
#include "budget.h"
#include <math.h>

#define SLICE_MS 1000
#define RATE_MAX 1e9 /* per second */

static int64_t units(double tokens, double most)
{
	if (!(tokens > 0))
		return 0;
	return llround((tokens < most ? tokens : most) * RDV_BUDGET_TOKEN);
}

void rdv_budget_reload(struct rdv_budget *b, const struct rdv_budget_policy *policy, struct rdv_mono now)
{
	rdv_budget_advance(b, now.ms);
	b->on = policy->on;
	b->ratio = policy->on ? units(policy->ratio, 1000) : 0;
	b->per_ms = policy->on ? units(policy->per_second / 1000, RATE_MAX / 1000) : 0;
}

void rdv_budget_init(struct rdv_budget *b, const struct rdv_budget_policy *policy, struct rdv_mono now)
{
	*b = (struct rdv_budget){.at = now.ms, .slice_end = now.ms + SLICE_MS};
	b->left[0] = b->came[0] = b->balance = RDV_BUDGET_LEAST;
	rdv_budget_reload(b, policy, now);
}

static void deposit(struct rdv_budget *b, int64_t amount)
{
	b->left[b->slice] += amount;
	b->came[b->slice] += amount;
	b->balance += amount;
}

/* Begins the next second: the slice of ten seconds ago expires, down to the least that stays. */
static void next_slice(struct rdv_budget *b)
{
	uint32_t next = (b->slice + 1) % RDV_BUDGET_SLICES;
	int64_t expiring = b->left[next], stays = 0;

	b->balance -= expiring;
	if (b->balance < RDV_BUDGET_LEAST)
		stays = expiring < RDV_BUDGET_LEAST - b->balance ? expiring : RDV_BUDGET_LEAST - b->balance;
	b->left[next] = stays;
	b->balance += stays;
	b->came[next] = b->spent[next] = 0;
	if (b->oldest == next)
		b->oldest = (next + 1) % RDV_BUDGET_SLICES;
	b->slice = next;
	b->slice_end += SLICE_MS;
}

void rdv_budget_advance(struct rdv_budget *b, int64_t now_ms)
{
	if (now_ms - b->at > (RDV_BUDGET_SLICES + 1) * SLICE_MS) { /* all that came before has expired anyway */
		int64_t skip = (now_ms - b->at) / SLICE_MS - RDV_BUDGET_SLICES;
		b->at += skip * SLICE_MS;
		b->slice_end += skip * SLICE_MS;
	}
	while (now_ms >= b->slice_end) {
		deposit(b, (b->slice_end - b->at) * b->per_ms);
		b->at = b->slice_end;
		next_slice(b);
	}
	if (now_ms > b->at) {
		deposit(b, (now_ms - b->at) * b->per_ms);
		b->at = now_ms;
	}
}

int64_t rdv_budget_wake(const struct rdv_budget *b)
{
	int64_t missing = RDV_BUDGET_TOKEN - b->balance;

	if (b->per_ms <= 0)
		return RDV_NEVER;
	return missing <= 0 ? b->at : rdv_ms_add(b->at, (missing + b->per_ms - 1) / b->per_ms);
}

/* Takes from the oldest deposits first, for they expire first. */
static void withdraw(struct rdv_budget *b, int64_t amount)
{
	if (amount > b->balance)
		amount = b->balance;
	b->balance -= amount;
	while (amount > 0) {
		int64_t part = b->left[b->oldest] < amount ? b->left[b->oldest] : amount;
		b->left[b->oldest] -= part;
		amount -= part;
		if (b->left[b->oldest] == 0 && b->oldest != b->slice)
			b->oldest = (b->oldest + 1) % RDV_BUDGET_SLICES;
	}
}

void rdv_budget_unfirst(struct rdv_budget *b)
{
	int64_t back = b->ratio < b->left[b->slice] ? b->ratio : b->left[b->slice];

	b->left[b->slice] -= back;
	b->came[b->slice] -= back;
	b->balance -= back;
}

void rdv_budget_spend(struct rdv_budget *b)
{
	if (!b->on)
		return;
	withdraw(b, RDV_BUDGET_TOKEN);
	b->spent[b->slice] += RDV_BUDGET_TOKEN;
}

void rdv_budget_give(struct rdv_budget *b)
{
	if (!b->on)
		return;
	b->left[b->slice] += RDV_BUDGET_TOKEN;
	b->balance += RDV_BUDGET_TOKEN;
	b->spent[b->slice] -= RDV_BUDGET_TOKEN; /* may go below zero here: the sum over the slices counts */
}

double rdv_budget_spent_ratio(const struct rdv_budget *b)
{
	int64_t came = 0, spent = 0;

	for (int i = 0; i < RDV_BUDGET_SLICES; i++) {
		came += b->came[i];
		spent += b->spent[i];
	}
	if (spent <= 0 || !b->on)
		return 0;
	return spent >= came ? 1 : (double)spent / (double)came;
}

bool rdv_budget_check(const struct rdv_budget *b, const char **what)
{
	int64_t sum = 0;

	*what = NULL;
	for (int i = 0; i < RDV_BUDGET_SLICES; i++) {
		sum += b->left[i];
		if (b->left[i] < 0)
			*what = "a second of the budget is overdrawn";
	}
	if (sum != b->balance)
		*what = "the budget does not add up";
	return *what == NULL;
}
