/* breaker.c - the three states and their moves.
 *
 *   from   event                                        to     also
 *   UP     trip                                         DOWN   wait = open
 *   DOWN   ok of a call begun since                     HALF   rate = 20 % of throughput, at least 1/s
 *   DOWN   probe bad                                    DOWN   wait doubled, up to max_open
 *   HALF   slice with >= 50 % bad of >= 5               DOWN   wait doubled
 *   HALF   slice >= 90 % ok                             HALF   rate doubled
 *   HALF   other slice                                  HALF   rate halved, at least 1/s
 *   HALF   rate >= twice the throughput, or idle slice  UP     wait = open next time
 *   HALF   three slices with repeated failures only     UP     the same
 *
 * A slice that is plainly bad (>= 90 % of >= 5) does not wait for its end: that would send a whole second's calls to
 * a target that is gone. An ok of a call begun before the trip tells about the time before it and opens nothing.
 * What always holds: open <= wait <= max_open while DOWN; rate >= 1/s in HALF. Cannot fail. */
#include "breaker.h"

#define SLICE_MS 1000
#define HALF_SHARE 0.2
#define HALF_LEAST 1.0       /* per second */
#define THROUGHPUT_LEAST 5.0 /* taken for less or unknown, so that HALF always has steps before UP */
#define HALF_MOST 1e9
#define JUDGED 5
#define STUCK 3 /* slices */

static void enter(struct rdv_breaker_machine *b, enum rdv_breaker_state state, struct rdv_now now)
{
	b->state = state;
	b->since = now;
}

void rdv_breaker_init(struct rdv_breaker_machine *b, struct rdv_now now)
{
	*b = (struct rdv_breaker_machine){0};
	enter(b, RDV_UP, now);
}

static int64_t bounded_wait(const struct rdv_breaker *policy, int64_t wait)
{
	int64_t least = policy->open_ms > 0 ? policy->open_ms : 1;
	int64_t most = policy->max_open_ms > least ? policy->max_open_ms : least;

	return wait < least ? least : wait < most ? wait : most;
}

static void go_down(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now, int64_t wait)
{
	enter(b, RDV_DOWN, now);
	b->wait = bounded_wait(policy, wait);
	b->probe_at = rdv_ms_add(now.mono.ms, b->wait);
	b->probe_out = false;
}

void rdv_breaker_trip(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
		      double throughput)
{
	b->outage_since = b->patient_since = now.mono.ms;
	if (throughput > 0)
		b->throughput = throughput;
	b->probe_message = b->probe_fingerprint = 0;
	go_down(b, policy, now, policy->open_ms);
}

static void relapse(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now)
{
	go_down(b, policy, now, rdv_ms_mul(b->wait, 2));
}

static void start_slice(struct rdv_breaker_machine *b, struct rdv_now now)
{
	b->half_ok = b->half_bad = b->half_repeats = 0;
	b->half_wanted = false;
	b->half_end = now.mono.ms + SLICE_MS;
}

static void set_rate(struct rdv_breaker_machine *b, double rate, struct rdv_now now)
{
	b->half_rate = rate > HALF_LEAST ? (rate < HALF_MOST ? rate : HALF_MOST) : HALF_LEAST;
	rdv_bucket_set(&b->half, b->half_rate, now.mono.ms);
}

static void go_half(struct rdv_breaker_machine *b, struct rdv_now now)
{
	enter(b, RDV_HALF, now);
	b->probe_out = false;
	b->half = (struct rdv_bucket){0};
	b->half_failed_count = b->half_stuck = 0;
	set_rate(b, HALF_SHARE * b->throughput, now);
	start_slice(b, now);
	b->half_wanted = true; /* nobody could ask yet */
	b->half_wait = now.mono.ms;
}

void rdv_breaker_up(struct rdv_breaker_machine *b, struct rdv_now now)
{
	enter(b, RDV_UP, now);
	b->probe_out = false;
}

void rdv_breaker_ok(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
		    struct rdv_mono started)
{
	if (b->state == RDV_HALF) {
		b->half_ok++;
		b->patient_since = now.mono.ms;
	} else if (b->state == RDV_DOWN && started.ms > b->since.mono.ms) {
		b->patient_since = now.mono.ms;
		go_half(b, now);
	}
}

static bool failed_before(struct rdv_breaker_machine *b, uint64_t message)
{
	for (uint32_t i = 0; i < b->half_failed_count; i++)
		if (b->half_failed[i] == message)
			return true;
	if (b->half_failed_count < RDV_HALF_FAILED)
		b->half_failed[b->half_failed_count++] = message;
	return false;
}

void rdv_breaker_bad(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
		     uint64_t message)
{
	if (b->state != RDV_HALF)
		return;
	if (failed_before(b, message)) {
		b->half_repeats++;
		return;
	}
	b->half_bad++;
	if (b->half_bad >= JUDGED && b->half_bad * 10 >= (b->half_ok + b->half_bad) * 9)
		relapse(b, policy, now);
}

void rdv_breaker_probed(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now, bool bad)
{
	b->probe_out = false;
	if (b->state != RDV_DOWN)
		return;
	if (bad)
		b->wait = bounded_wait(policy, rdv_ms_mul(b->wait, 2));
	b->probe_at = rdv_ms_add(now.mono.ms, b->wait);
}

static void end_slice(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now, bool idle)
{
	uint64_t total = b->half_ok + b->half_bad;
	double enough = 2 * (b->throughput > THROUGHPUT_LEAST ? b->throughput : THROUGHPUT_LEAST);

	if (total >= JUDGED && b->half_bad * 2 >= total) {
		relapse(b, policy, now);
		return;
	}
	if (total > 0)
		set_rate(b, b->half_ok * 10 >= total * 9 ? b->half_rate * 2 : b->half_rate / 2, now);
	b->half_stuck = total ? 0 : b->half_stuck + (b->half_repeats > 0);
	if (b->half_rate >= enough || b->half_stuck >= STUCK ||
	    (total == 0 && idle && !b->half_wanted && now.mono.ms >= b->half_wait))
		rdv_breaker_up(b, now);
	else
		start_slice(b, now);
}

void rdv_breaker_advance(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now, bool idle)
{
	if (b->state == RDV_HALF && now.mono.ms >= b->half_end)
		end_slice(b, policy, now, idle);
}

bool rdv_breaker_check(const struct rdv_breaker_machine *b, const struct rdv_breaker *policy, const char **what)
{
	*what = NULL;
	if (!policy->on && b->state != RDV_UP)
		*what = "the breaker is off, but not up";
	else if (b->probe_out && b->state != RDV_DOWN)
		*what = "a probe is out, but the target is not down";
	else if (b->state == RDV_DOWN && b->wait < 1)
		*what = "down without a wait";
	else if (b->state == RDV_HALF && b->half_rate < HALF_LEAST)
		*what = "half without a rate";
	return *what == NULL;
}
