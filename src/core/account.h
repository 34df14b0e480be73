/* account.h - the counters that add up, per lane; a route's are the sum of its lanes'.
 *
 *   received = acked + ready + waiting + held + in_flight + dead + dropped + revoked      (dead includes dying)
 *   first + retries = succeeded + failed + rejected + attempts_dropped + crashes + shutdowns + deferrals + outage +
 * in_flight_calls timeouts are among failed. Replays count apart and are in none of these. A refund moves counts from
 * failed to outage. Every change goes through rdv_account_* so that both sums hold after every call. Pure; single
 * thread. */
#ifndef RDV_CORE_ACCOUNT_H
#define RDV_CORE_ACCOUNT_H
#include <assert.h>
#include "message.h"

struct rdv_account {
	uint64_t received;
	uint64_t acked, dead, dropped, revoked;   /* final */
	uint64_t ready, waiting, held, in_flight; /* live; not stored: recovered from the entries */
	uint64_t first, retries;
	uint64_t succeeded, failed, timeouts, rejected, attempts_dropped, crashes, shutdowns, deferrals, outage;
	uint64_t calls;       /* live messages at the handler now; not stored */
	uint64_t first_calls; /* of these, first attempts; not stored */
	uint64_t replays_sent, replays_acked, replays_dead;
};
/* Moves one message from a live state (or, for RECEIVED below, from nothing) to another state. */
void rdv_account_receive(struct rdv_account *a, enum rdv_state to);
extern const uint8_t rdv_account_field_of[RDV_STATE_COUNT]; /* which counter a state is in */
static inline void rdv_account_move(struct rdv_account *a, enum rdv_state from, enum rdv_state to)
{
	uint64_t *fields = (uint64_t *)a;

	assert(fields[rdv_account_field_of[from]] != 0);
	fields[rdv_account_field_of[from]]--;
	fields[rdv_account_field_of[to]]++;
}
void rdv_account_add(struct rdv_account *sum, const struct rdv_account *a);
/* Both sums hold. */
bool rdv_account_check(const struct rdv_account *a);
#endif
