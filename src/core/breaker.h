/* breaker.h - up, down, half: when a target may be called.
 *
 *   UP ── trip (evidence.h) ──▶ DOWN: no calls but one probe after `open`, the wait doubling up to `max_open`
 *   DOWN ── one ok of a call that began since ──▶ HALF: a rate, first 20 % of the throughput before the outage
 *   HALF, each second: ≥ 90 % ok doubles the rate, less halves it; ≥ 50 % bad of ≥ 5 ──▶ DOWN, the wait doubled
 *   HALF ── twice that throughput reached, or nothing left to send but what fails again and again ──▶ UP
 *
 * The machine only; what is evidence, and what an attempt costs its message, is target.c's. Time is in the calls.
 * Cannot fail. Single thread. */
#ifndef RDV_CORE_BREAKER_H
#define RDV_CORE_BREAKER_H
#include "permits.h"
#include "target.h"

/* A message's failures count once in a HALF: nothing is charged there, so a few poison messages, tried again and again
 * at a low rate, would otherwise keep every slice under 90 % for ever. An outage fails ever new messages. When slices
 * hold nothing but such repeats, there is nothing left to learn: UP, where they are charged and come to their end. */
#define RDV_HALF_FAILED 64u

struct rdv_breaker_machine {
	enum rdv_breaker_state state;
	struct rdv_now since;  /* of the state */
	int64_t outage_since;  /* mono ms of UP -> DOWN; HALF does not end it */
	int64_t patient_since; /* mono ms: the outage's beginning or, later, its last ok */

	int64_t wait, probe_at; /* DOWN: ms before the next probe; its mono ms */
	bool probe_out;
	uint64_t probe_message, probe_fingerprint; /* of the last probe; 0 = none */

	double throughput; /* before the outage; remembered over restarts */
	double half_rate;
	struct rdv_bucket half;
	int64_t half_end; /* mono ms of the end of this slice */
	uint64_t half_ok, half_bad;
	uint64_t half_failed[RDV_HALF_FAILED]; /* messages whose failure has counted in this HALF */
	uint32_t half_failed_count;
	uint64_t half_repeats; /* failures in this slice of messages that have counted before */
	uint32_t half_stuck;   /* slices with nothing else, since the last one with more */
	bool half_wanted;      /* a permit was asked for in this slice */
	int64_t half_wait;     /* mono ms until which who asked was sent away: as good as asking */
};

void rdv_breaker_init(struct rdv_breaker_machine *b, struct rdv_now now);
/* UP -> DOWN. throughput 0: keep the remembered one. */
void rdv_breaker_trip(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
		      double throughput);
/* DOWN or HALF: the outcome of a call that began at `started`. */
void rdv_breaker_ok(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
		    struct rdv_mono started);
void rdv_breaker_bad(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
		     uint64_t message);
/* The probe came back: bad, or (reject, shutdown) saying nothing. An ok goes to rdv_breaker_ok first. */
void rdv_breaker_probed(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now, bool bad);
/* HALF: ends slices that are over. idle: nothing is in flight. */
void rdv_breaker_advance(struct rdv_breaker_machine *b, const struct rdv_breaker *policy, struct rdv_now now,
			 bool idle);
void rdv_breaker_up(struct rdv_breaker_machine *b,
		    struct rdv_now now); /* unconditionally: breaker off, or nothing left */
bool rdv_breaker_check(const struct rdv_breaker_machine *b, const struct rdv_breaker *policy, const char **what);
#endif
