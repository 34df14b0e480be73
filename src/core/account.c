/* account.c - the counters that add up.
 *
 * One table says which counter holds a state; everything else follows from it. Invariant after every call: received =
 * the sum of all states, and deliveries = the sum of their ends. Cannot fail. Single thread. */
#include "account.h"
#include <assert.h>
#include <stddef.h>

#define FIELD(name) (offsetof(struct rdv_account, name) / sizeof(uint64_t))
#define NOWHERE UINT8_MAX

/* Dying is dead without a letter yet. */
const uint8_t rdv_account_field_of[RDV_STATE_COUNT] = {
	[RDV_STATE_READY] = FIELD(ready),     [RDV_STATE_IN_FLIGHT] = FIELD(in_flight),
	[RDV_STATE_WAITING] = FIELD(waiting), [RDV_STATE_HELD] = FIELD(held),
	[RDV_STATE_DYING] = FIELD(dead),      [RDV_STATE_DEAD] = FIELD(dead),
	[RDV_STATE_ACKED] = FIELD(acked),     [RDV_STATE_DROPPED] = FIELD(dropped),
	[RDV_STATE_REVOKED] = FIELD(revoked), [RDV_STATE_DONE] = NOWHERE,
	[RDV_STATE_REPLAYING] = NOWHERE,
};

void rdv_account_receive(struct rdv_account *a, enum rdv_state to)
{
	assert(to < RDV_STATE_COUNT && rdv_account_field_of[to] != NOWHERE);
	a->received++;
	((uint64_t *)a)[rdv_account_field_of[to]]++;
}

void rdv_account_add(struct rdv_account *sum, const struct rdv_account *a)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)a;

	_Static_assert(sizeof *a % sizeof *to == 0, "an account is nothing but counters");
	for (size_t i = 0; i < sizeof *a / sizeof *to; i++)
		to[i] += from[i];
}

bool rdv_account_check(const struct rdv_account *a)
{
	uint64_t messages =
		a->acked + a->dead + a->dropped + a->revoked + a->ready + a->waiting + a->held + a->in_flight;
	uint64_t ends = a->succeeded + a->failed + a->rejected + a->attempts_dropped + a->crashes + a->shutdowns +
			a->deferrals + a->outage;

	return a->received == messages && a->first + a->retries == ends + a->calls && a->timeouts <= a->failed &&
	       a->calls == a->in_flight && a->first_calls <= a->calls && a->first_calls <= a->first;
}
