/* storm.h - per route: most of a healthy route is suddenly rejected.
 *
 * Somebody deployed a handler that rejects what it took yesterday: dead-lettering the whole stream helps nobody. A
 * storm begins when, of the messages that ended in the last 60 s, at least 50 are there and half of them were rejected,
 * while in the hour before fewer than 5 % of at least 100 were. Then the route is held like a target that is down, with
 * one probe every 5 s; a reject is taken as an outage. One ok of a call begun since ends it, or an operator, whose word
 * counts for an hour. A route's reject can say nothing about others: they flow on. Cannot fail. Single thread. */
#ifndef RDV_CORE_STORM_H
#define RDV_CORE_STORM_H
#include "policy.h"

#define RDV_STORM_SLICES 12 /* of 5 s */
#define RDV_STORM_MINUTES 60

struct rdv_storm_count {
	uint64_t rejects, total;
};

struct rdv_storm {
	struct rdv_storm_count slices[RDV_STORM_SLICES], minute; /* minute: what left the slices since its last step */
	struct rdv_storm_count minutes[RDV_STORM_MINUTES];
	struct rdv_storm_count recent, hour; /* sums of slices, of minutes and minute */
	uint32_t slice, minute_at, steps;    /* steps: slices since the last minute's end */
	int64_t slice_end;

	bool held, probe_out;
	int64_t since, probe_at, dead_until; /* mono ms */
	uint64_t probe_message, probe_fingerprint;
};

void rdv_storm_init(struct rdv_storm *s, struct rdv_mono now);
void rdv_storm_advance(struct rdv_storm *s, int64_t now_ms); /* slow part of the next */
/* A message ended (ok or reject) or failed for the first time. */
static inline void rdv_storm_count_one(struct rdv_storm *s, int64_t now_ms, bool reject)
{
	if (now_ms >= s->slice_end)
		rdv_storm_advance(s, now_ms);
	s->slices[s->slice].total++;
	s->recent.total++;
	s->slices[s->slice].rejects += reject;
	s->recent.rejects += reject;
}
/* After a reject was counted: a storm begins (then it is held from now on). */
bool rdv_storm_begins(struct rdv_storm *s, struct rdv_mono now);
bool rdv_storm_ends(struct rdv_storm *s, struct rdv_mono now,
		    struct rdv_mono started); /* at an ok: true if that ended it */
void rdv_storm_probed(struct rdv_storm *s, struct rdv_mono now);
void rdv_storm_resume(struct rdv_storm *s, struct rdv_mono now);
void rdv_storm_release(struct rdv_storm *s, struct rdv_mono now); /* `storm: dead` after a reload */
bool rdv_storm_check(const struct rdv_storm *s, const char **what);
#endif
