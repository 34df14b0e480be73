/* evidence.h - what a target answered lately: the window, the last outcomes, the row of bad ones.
 *
 *   window   10 slices of window/10: ok and bad of distinct messages. Evidence is every first attempt, and infra of
 *            any attempt; never a suspect
 *   last     the last `min_calls` (20) outcomes of evidence, with their messages
 *   row      bad outcomes since the last ok of any attempt: the first five distinct messages
 *   seconds  ok of any attempt per second: the throughput before an outage
 *
 * Memory is fixed: distinct messages are told apart by a table of 256 entries; when a set of it is full of live
 * entries (by then there are many distinct messages), a repeated failure of one message may count twice.
 * An ok costs a few additions; only bad outcomes look into the table. Pure; cannot fail; single thread. */
#ifndef RDV_CORE_EVIDENCE_H
#define RDV_CORE_EVIDENCE_H
#include "policy.h"

#define RDV_EVIDENCE_SLICES 10
#define RDV_EVIDENCE_SETS 32
#define RDV_EVIDENCE_WAYS 8
#define RDV_EVIDENCE_LAST 128
#define RDV_EVIDENCE_SECONDS 32
#define RDV_EVIDENCE_DISTINCT 5 /* fewer distinct messages are no outage */

struct rdv_evidence_slice {
	uint64_t ok, bad;         /* evidence; bad: distinct messages of the window, each in its latest slice */
	uint64_t all_ok, all_bad; /* of any attempt but suspects' bad */
	uint64_t failing;         /* distinct messages with a bad outcome of any attempt, each in its latest slice */
};

struct rdv_evidence_seen {
	uint64_t message;          /* 0 = free */
	uint32_t failing, counted; /* numbers of the slices it counts in; 0 = does not */
};

struct rdv_evidence_last {
	uint64_t message; /* 0 = ok */
	int64_t at;
};

struct rdv_evidence {
	int64_t slice_ms, slice_start, slice_end;
	uint32_t slice; /* number of the current one, from RDV_EVIDENCE_SLICES up; in slices[slice % 10] */
	struct rdv_evidence_slice slices[RDV_EVIDENCE_SLICES];
	uint64_t ok, bad, all_ok, failing; /* sums of the window */

	struct rdv_evidence_last last[RDV_EVIDENCE_LAST];
	uint32_t last_size, last_at, last_bad;
	uint64_t last_seen; /* outcomes since the last reset */
	uint32_t min_calls;

	uint64_t row[RDV_EVIDENCE_DISTINCT];
	uint32_t row_count;
	int64_t row_first; /* mono ms of the first bad outcome since the last ok */
	bool has_ok;
	int64_t last_ok; /* kept over resets */

	int64_t second_start, first_second; /* mono ms; first_second: when counting began */
	uint32_t second;                    /* seconds[second % 32] is the current one */
	uint64_t seconds[RDV_EVIDENCE_SECONDS];

	struct rdv_evidence_seen seen[RDV_EVIDENCE_SETS][RDV_EVIDENCE_WAYS];
};

void rdv_evidence_init(struct rdv_evidence *e, const struct rdv_breaker *policy, struct rdv_mono now);
void rdv_evidence_reload(struct rdv_evidence *e, const struct rdv_breaker *policy, struct rdv_mono now);
/* Forgets what could trip the breaker; throughput and the time of the last ok stay. */
void rdv_evidence_reset(struct rdv_evidence *e, struct rdv_mono now);
void rdv_evidence_advance(struct rdv_evidence *e, int64_t now_ms); /* slow part of the next */
static inline void rdv_evidence_roll(struct rdv_evidence *e, int64_t now_ms)
{
	if (now_ms >= e->slice_end || now_ms - e->second_start >= 1000)
		rdv_evidence_advance(e, now_ms);
}
/* Callers roll first. counts: it is evidence (a first attempt). */
void rdv_evidence_ok(struct rdv_evidence *e, int64_t now_ms, bool counts);
void rdv_evidence_bad(struct rdv_evidence *e, int64_t now_ms, uint64_t message, bool counts);

/* Directly after a bad outcome that counts: is the target down? Then *since is the time from which charges of bad
 * outcomes are given back: the end of the last finished slice that was >= 90 % ok, without one the start of the window;
 * earlier if the evidence itself began before. */
bool rdv_evidence_down(const struct rdv_evidence *e, const struct rdv_breaker *policy, int64_t now_ms, int64_t *since);
/* In the 10 s before, at least 10 messages other than this one had outcomes and >= 90 % of them were ok. */
bool rdv_evidence_others_fine(const struct rdv_evidence *e, uint64_t message);
/* ok per second over the 10 s before `before` (as far as they were counted); 0 = none. */
double rdv_evidence_throughput(const struct rdv_evidence *e, int64_t before);
bool rdv_evidence_check(const struct rdv_evidence *e, const char **what);
#endif
