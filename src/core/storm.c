/* storm.c - counts of 60 s in slices of 5 s, and of the hour before in minutes.
 *
 * What leaves the slices enters the hour; a storm's own counts are forgotten with it, so that the hour keeps telling
 * what is normal. What always holds: the sums are the sums of their parts; rejects <= total. Cannot fail. */
#include "storm.h"

#define SLICE_MS 5000
#define PROBE_MS 5000
#define HOUR_MS (60 * 60 * 1000)
#define SLICES_A_MINUTE 12
#define RECENT_LEAST 50
#define BEFORE_LEAST 100

void rdv_storm_init(struct rdv_storm *s, struct rdv_mono now)
{
	*s = (struct rdv_storm){.slice_end = now.ms + SLICE_MS, .dead_until = INT64_MIN};
}

static void add(struct rdv_storm_count *to, const struct rdv_storm_count *c)
{
	to->rejects += c->rejects;
	to->total += c->total;
}

static void subtract(struct rdv_storm_count *from, const struct rdv_storm_count *c)
{
	from->rejects -= c->rejects;
	from->total -= c->total;
}

static void end_minute(struct rdv_storm *s)
{
	struct rdv_storm_count *oldest;

	s->minute_at = (s->minute_at + 1) % RDV_STORM_MINUTES;
	oldest = &s->minutes[s->minute_at];
	subtract(&s->hour, oldest);
	*oldest = s->minute;
	s->minute = (struct rdv_storm_count){0};
	s->steps = 0;
}

static void end_slice(struct rdv_storm *s)
{
	struct rdv_storm_count *leaving;

	s->slice = (s->slice + 1) % RDV_STORM_SLICES;
	leaving = &s->slices[s->slice];
	subtract(&s->recent, leaving);
	add(&s->minute, leaving);
	add(&s->hour, leaving);
	*leaving = (struct rdv_storm_count){0};
	if (++s->steps == SLICES_A_MINUTE)
		end_minute(s);
}

void rdv_storm_advance(struct rdv_storm *s, int64_t now_ms)
{
	int64_t steps = (now_ms - s->slice_end) / SLICE_MS + 1;
	const int64_t all = (RDV_STORM_MINUTES + 2) * SLICES_A_MINUTE;

	s->slice_end += steps * SLICE_MS;
	for (int64_t i = 0; i < steps && i < all; i++)
		end_slice(s);
}

static void forget_recent(struct rdv_storm *s)
{
	memset(s->slices, 0, sizeof s->slices);
	s->recent = (struct rdv_storm_count){0};
}

bool rdv_storm_begins(struct rdv_storm *s, struct rdv_mono now)
{
	if (s->held || now.ms < s->dead_until)
		return false;
	if (s->recent.total < RECENT_LEAST || s->recent.rejects * 2 < s->recent.total)
		return false;
	if (s->hour.total < BEFORE_LEAST || s->hour.rejects * 20 >= s->hour.total)
		return false;
	s->held = true;
	s->probe_out = false;
	s->probe_message = s->probe_fingerprint = 0;
	s->since = now.ms;
	s->probe_at = now.ms + PROBE_MS;
	forget_recent(s);
	return true;
}

void rdv_storm_release(struct rdv_storm *s, struct rdv_mono now)
{
	s->held = s->probe_out = false;
	forget_recent(s);
}

bool rdv_storm_ends(struct rdv_storm *s, struct rdv_mono now, struct rdv_mono started)
{
	if (!s->held || started.ms <= s->since)
		return false;
	rdv_storm_release(s, now);
	return true;
}

void rdv_storm_probed(struct rdv_storm *s, struct rdv_mono now)
{
	s->probe_out = false;
	s->probe_at = now.ms + PROBE_MS;
}

void rdv_storm_resume(struct rdv_storm *s, struct rdv_mono now)
{
	rdv_storm_release(s, now);
	s->dead_until = now.ms + HOUR_MS;
}

bool rdv_storm_check(const struct rdv_storm *s, const char **what)
{
	struct rdv_storm_count recent = {0}, hour = s->minute;

	*what = NULL;
	for (int i = 0; i < RDV_STORM_SLICES; i++)
		add(&recent, &s->slices[i]);
	for (int i = 0; i < RDV_STORM_MINUTES; i++)
		add(&hour, &s->minutes[i]);
	if (recent.total != s->recent.total || recent.rejects != s->recent.rejects || hour.total != s->hour.total ||
	    hour.rejects != s->hour.rejects)
		*what = "a storm's counts do not add up";
	if (s->probe_out && !s->held)
		*what = "a storm's probe is out without a hold";
	return *what == NULL;
}
