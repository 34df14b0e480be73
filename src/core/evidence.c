/* evidence.c - slices, the table of distinct messages, and the three conditions for DOWN.
 *
 * A message that fails again within the window is moved to the current slice instead of being counted again, so
 * that it counts once, and as long as its latest failure is in the window.
 * What always holds: the sums are the slices' sums; a free entry has message 0. Cannot fail. */
#include "evidence.h"

#define SECOND_MS 1000
#define SILENCE_MS 30000 /* without an ok, before a row of bad ones is an outage */
#define OTHERS_MS 10000
#define OTHERS_LEAST 10

static struct rdv_evidence_slice *slice_of(struct rdv_evidence *e, uint32_t number)
{
	return &e->slices[number % RDV_EVIDENCE_SLICES];
}

static bool in_window(const struct rdv_evidence *e, uint32_t number)
{
	return number != 0 && number + RDV_EVIDENCE_SLICES > e->slice;
}

static void take_policy(struct rdv_evidence *e, const struct rdv_breaker *policy)
{
	int64_t slice_ms = policy->window_ms / RDV_EVIDENCE_SLICES;
	uint32_t size = policy->min_calls;

	e->slice_ms = slice_ms >= 100 ? slice_ms : 100;
	e->min_calls = size > 0 ? size : 1;
	if (size < RDV_EVIDENCE_DISTINCT)
		size = RDV_EVIDENCE_DISTINCT;
	e->last_size = size < RDV_EVIDENCE_LAST ? size : RDV_EVIDENCE_LAST;
}

void rdv_evidence_init(struct rdv_evidence *e, const struct rdv_breaker *policy, struct rdv_mono now)
{
	memset(e, 0, sizeof *e);
	take_policy(e, policy);
	e->second_start = e->first_second = now.ms;
	rdv_evidence_reset(e, now);
}

void rdv_evidence_reload(struct rdv_evidence *e, const struct rdv_breaker *policy, struct rdv_mono now)
{
	int64_t slice_ms = e->slice_ms;
	uint32_t size = e->last_size;

	take_policy(e, policy);
	if (e->slice_ms != slice_ms || e->last_size != size)
		rdv_evidence_reset(e, now);
}

void rdv_evidence_reset(struct rdv_evidence *e, struct rdv_mono now)
{
	memset(e->slices, 0, sizeof e->slices);
	memset(e->seen, 0, sizeof e->seen);
	e->ok = e->bad = e->all_ok = e->failing = 0;
	e->slice = RDV_EVIDENCE_SLICES;
	e->slice_start = now.ms;
	e->slice_end = now.ms + e->slice_ms;
	e->last_at = e->last_bad = 0;
	e->last_seen = 0;
	e->row_count = 0;
}

static void next_slice(struct rdv_evidence *e)
{
	struct rdv_evidence_slice *s = slice_of(e, ++e->slice);

	e->ok -= s->ok;
	e->bad -= s->bad;
	e->all_ok -= s->all_ok;
	e->failing -= s->failing;
	*s = (struct rdv_evidence_slice){0};
	e->slice_start += e->slice_ms;
	e->slice_end += e->slice_ms;
}

static void advance_seconds(struct rdv_evidence *e, int64_t now_ms)
{
	int64_t steps = (now_ms - e->second_start) / SECOND_MS;

	e->second_start += steps * SECOND_MS;
	for (int64_t i = 0; i < steps && i < RDV_EVIDENCE_SECONDS; i++)
		e->seconds[++e->second % RDV_EVIDENCE_SECONDS] = 0;
}

void rdv_evidence_advance(struct rdv_evidence *e, int64_t now_ms)
{
	int64_t steps = (now_ms - e->slice_start) / e->slice_ms;

	if (steps > RDV_EVIDENCE_SLICES) { /* everything leaves the window: only the grid must stay */
		int64_t skip = steps - RDV_EVIDENCE_SLICES;
		e->slice_start += skip * e->slice_ms;
		e->slice_end += skip * e->slice_ms;
		steps = RDV_EVIDENCE_SLICES;
	}
	for (; steps > 0; steps--)
		next_slice(e);
	if (now_ms - e->second_start >= SECOND_MS)
		advance_seconds(e, now_ms);
}

static void push_last(struct rdv_evidence *e, uint64_t message, int64_t now_ms)
{
	struct rdv_evidence_last *l = &e->last[e->last_at];

	if (e->last_seen >= e->last_size && l->message != 0)
		e->last_bad--;
	*l = (struct rdv_evidence_last){message, now_ms};
	e->last_bad += message != 0;
	e->last_at = e->last_at + 1 == e->last_size ? 0 : e->last_at + 1;
	e->last_seen++;
}

void rdv_evidence_ok(struct rdv_evidence *e, int64_t now_ms, bool counts)
{
	struct rdv_evidence_slice *s = slice_of(e, e->slice);

	s->all_ok++;
	e->all_ok++;
	e->seconds[e->second % RDV_EVIDENCE_SECONDS]++;
	e->has_ok = true;
	e->last_ok = now_ms;
	e->row_count = 0;
	if (!counts)
		return;
	s->ok++;
	e->ok++;
	push_last(e, 0, now_ms);
}

static uint32_t set_of(uint64_t message)
{
	return (uint32_t)((message * 0x9E3779B97F4A7C15u) >> 32) % RDV_EVIDENCE_SETS;
}

/* The message's entry, or one that it may use (message 0), or NULL when its set is full of live ones. */
static struct rdv_evidence_seen *find(struct rdv_evidence *e, uint64_t message)
{
	struct rdv_evidence_seen *set = e->seen[set_of(message)], *usable = NULL;

	for (int i = 0; i < RDV_EVIDENCE_WAYS; i++) {
		if (set[i].message == message)
			return &set[i];
		if (usable == NULL && !in_window(e, set[i].failing))
			usable = &set[i];
	}
	if (usable != NULL)
		*usable = (struct rdv_evidence_seen){0};
	return usable;
}

static void push_row(struct rdv_evidence *e, uint64_t message, int64_t now_ms)
{
	if (e->row_count == 0)
		e->row_first = now_ms;
	if (e->row_count == RDV_EVIDENCE_DISTINCT)
		return;
	for (uint32_t i = 0; i < e->row_count; i++)
		if (e->row[i] == message)
			return;
	e->row[e->row_count++] = message;
}

void rdv_evidence_bad(struct rdv_evidence *e, int64_t now_ms, uint64_t message, bool counts)
{
	struct rdv_evidence_slice *s = slice_of(e, e->slice);
	struct rdv_evidence_seen *seen = find(e, message);

	s->all_bad++;
	if (seen != NULL && in_window(e, seen->failing)) {
		slice_of(e, seen->failing)->failing--;
		e->failing--;
	}
	s->failing++;
	e->failing++;
	if (counts) {
		if (seen != NULL && in_window(e, seen->counted)) {
			slice_of(e, seen->counted)->bad--;
			e->bad--;
		}
		s->bad++;
		e->bad++;
		push_last(e, message, now_ms);
		push_row(e, message, now_ms);
	}
	if (seen != NULL) {
		seen->message = message;
		seen->failing = e->slice;
		seen->counted = counts ? e->slice : seen->counted;
	}
}

/* Among the last outcomes, bad ones of at least five distinct messages. */
static bool last_is_distinct(const struct rdv_evidence *e)
{
	uint64_t found[RDV_EVIDENCE_DISTINCT];
	uint32_t count = 0;

	for (uint32_t i = 0; i < e->last_size && count < RDV_EVIDENCE_DISTINCT; i++) {
		uint32_t j = 0;
		while (j < count && found[j] != e->last[i].message)
			j++;
		if (j == count && e->last[i].message != 0)
			found[count++] = e->last[i].message;
	}
	return count == RDV_EVIDENCE_DISTINCT;
}

/* Of the last min_calls (20) outcomes >= 90 % (or the configured ratio, if more) bad. */
static bool last_is_down(const struct rdv_evidence *e, const struct rdv_breaker *policy)
{
	double ratio = policy->ratio > 0.9 ? policy->ratio : 0.9;

	if (e->last_seen < e->last_size || e->last_seen < e->min_calls)
		return false;
	return e->last_bad >= ratio * e->last_size - 1e-9 && last_is_distinct(e);
}

static bool window_is_down(const struct rdv_evidence *e, const struct rdv_breaker *policy)
{
	uint64_t total = e->ok + e->bad;

	return total >= e->min_calls && e->bad >= RDV_EVIDENCE_DISTINCT &&
	       (double)e->bad >= policy->ratio * (double)total - 1e-9;
}

static bool row_is_down(const struct rdv_evidence *e, int64_t now_ms)
{
	return e->row_count == RDV_EVIDENCE_DISTINCT && now_ms - (e->has_ok ? e->last_ok : e->row_first) >= SILENCE_MS;
}

/* The current slice is not asked: it holds the outage's beginning, however well it began. */
static int64_t after_last_fine_slice(const struct rdv_evidence *e)
{
	for (uint32_t back = 1; back < RDV_EVIDENCE_SLICES; back++) {
		const struct rdv_evidence_slice *s = &e->slices[(e->slice - back) % RDV_EVIDENCE_SLICES];
		if (s->all_ok > 0 && s->all_ok * 10 >= (s->all_ok + s->all_bad) * 9)
			return e->slice_start - (int64_t)(back - 1) * e->slice_ms;
	}
	return e->slice_start - (RDV_EVIDENCE_SLICES - 1) * e->slice_ms;
}

static int64_t first_of_last_bad(const struct rdv_evidence *e, int64_t since)
{
	for (uint32_t i = 0; i < e->last_size; i++)
		if (e->last[i].message != 0 && e->last[i].at < since)
			since = e->last[i].at;
	return since;
}

bool rdv_evidence_down(const struct rdv_evidence *e, const struct rdv_breaker *policy, int64_t now_ms, int64_t *since)
{
	bool last = last_is_down(e, policy), row = row_is_down(e, now_ms);

	if (!last && !row && !window_is_down(e, policy))
		return false;
	*since = after_last_fine_slice(e);
	/* An outage that begins at the end of a fine slice, or before a slow one's window: its evidence goes back, too.
	 */
	if (last)
		*since = first_of_last_bad(e, *since);
	if (row && e->row_first < *since)
		*since = e->row_first;
	return true;
}

bool rdv_evidence_others_fine(const struct rdv_evidence *e, uint64_t message)
{
	const struct rdv_evidence_seen *set = e->seen[set_of(message)];
	uint32_t slices = (uint32_t)((OTHERS_MS + e->slice_ms - 1) / e->slice_ms);
	uint64_t ok = e->all_ok, failing = e->failing;

	slices = slices < RDV_EVIDENCE_SLICES ? slices : RDV_EVIDENCE_SLICES;
	for (uint32_t back = slices; back < RDV_EVIDENCE_SLICES; back++) { /* a window beyond 10 s: less of it */
		const struct rdv_evidence_slice *s = &e->slices[(e->slice - back) % RDV_EVIDENCE_SLICES];
		ok -= s->all_ok;
		failing -= s->failing;
	}
	for (int i = 0; i < RDV_EVIDENCE_WAYS; i++)
		if (set[i].message == message && set[i].failing != 0 && set[i].failing + slices > e->slice)
			failing--;
	return ok + failing >= OTHERS_LEAST && ok * 10 >= (ok + failing) * 9;
}

double rdv_evidence_throughput(const struct rdv_evidence *e, int64_t before)
{
	int64_t end = before < e->second_start ? before : e->second_start;
	int64_t back = (e->second_start - end + SECOND_MS - 1) / SECOND_MS; /* whole seconds that lie after `before` */
	int64_t count = 10, known = (e->second_start - e->first_second) / SECOND_MS - back;
	uint64_t sum = 0;

	if (count > known)
		count = known;
	if (back + count >= RDV_EVIDENCE_SECONDS)
		count = RDV_EVIDENCE_SECONDS - 1 - back;
	for (int64_t i = 1; i <= count; i++)
		sum += e->seconds[(e->second - (uint32_t)(back + i)) % RDV_EVIDENCE_SECONDS];
	if (known <= 0 && back <= 0) /* not a second old: what came in it is the least it was */
		return (double)e->seconds[e->second % RDV_EVIDENCE_SECONDS];
	return count > 0 ? (double)sum / (double)count : 0;
}

bool rdv_evidence_check(const struct rdv_evidence *e, const char **what)
{
	struct rdv_evidence_slice sum = {0};

	*what = NULL;
	for (int i = 0; i < RDV_EVIDENCE_SLICES; i++) {
		sum.ok += e->slices[i].ok;
		sum.bad += e->slices[i].bad;
		sum.all_ok += e->slices[i].all_ok;
		sum.failing += e->slices[i].failing;
	}
	if (sum.ok != e->ok || sum.bad != e->bad || sum.all_ok != e->all_ok || sum.failing != e->failing)
		*what = "the window does not add up";
	if (e->last_bad > e->last_size || e->row_count > RDV_EVIDENCE_DISTINCT)
		*what = "the last outcomes do not add up";
	return *what == NULL;
}
