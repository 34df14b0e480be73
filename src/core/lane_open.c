/* lane_open.c - a lane opens: every live message gets its first state; suspect mode; our own crash.
 *
 * remaining = clamp(due - now, 0, delay): a clock set back never makes a retry late, one set forward never early beyond
 * its delay. Messages that may go at once arrive in the order of their positions, after all that wait have joined.
 *
 * Suspect mode begins when two unclean opens follow each other and no outcome became durable between them: then one
 * call is open at a time, with STARTED before it, until any outcome comes. What was STARTED last when the process died
 * has crashed once more; `crashes` in a row and it is dead. It is a suspect from then on, so that those who were only
 * beside it do not die with it. Internal to the lane; single thread. */
#include "lane_parts.h"
#include <stdlib.h>

void rdv_lane_write_lane(struct rdv_lane *l, struct rdv_effects *out)
{
	const struct rdv_lane_fields f = {
		.route = rdv_slice_text(l->route),
		.topic = rdv_slice_text(l->topic),
		.partition = l->partition,
		.partition_stream = l->partition_stream,
		.start = l->start,
		.epoch = l->epoch,
		.clean = !l->last_open_unclean,
		.opens_without_outcome = l->opens_without_outcome,
	};
	size_t at = rdv_lane_begin_record(out);

	rdv_lane_encode(&f, &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_LANE, 0, at, out);
	l->lane_segment = l->head_segment;
}

static void open_suspicion(struct rdv_lane *l, bool unclean)
{
	if (!unclean)
		l->opens_without_outcome = 0;
	else if (!l->opened_before || l->outcome_since_open)
		l->opens_without_outcome = 1;
	else
		l->opens_without_outcome++;
	l->suspect_mode = l->opens_without_outcome >= 2;
	l->last_open_unclean = unclean;
	l->outcome_since_open = false;
}

static int64_t remaining(const struct rdv_entry *e, struct rdv_now now)
{
	int64_t delay = rdv_lane_get_delay(e), left = e->due > now.wall.ms ? e->due - now.wall.ms : 0;

	if (delay < 0)
		delay = 0;
	return left < delay ? left : delay;
}

/* A message that was WAITING: by a failure, or because it is published for later. */
static void open_waiting(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	int64_t left = remaining(e, now);
	bool ordered = e->state_segment && rdv_lane_key_of(l, e) && (l->policy.order == RDV_ORDER_KEY || e->replay);

	if (e->state_segment && now.wall.ms - e->due > l->overdue_at_open)
		l->overdue_at_open = now.wall.ms - e->due;
	e->next = e->member = 0;
	if (ordered)
		rdv_lane_join(l, ref); /* even when it is due: its key's order is decided when all are there */
	rdv_lane_wait(l, ref, now, left, out);
}

static void open_dying(struct rdv_lane *l, uint32_t ref, struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (l->policy.order == RDV_ORDER_KEY && e->key) {
		e->blocks = 1;
		rdv_order_key(&l->order, e->key)->blocked++;
	}
	rdv_lane_say_letter(l, ref, RDV_NOBODY, out);
}

static bool counts_as_live(const struct rdv_entry *e)
{
	return !e->replay && e->state != RDV_STATE_DYING;
}

/* What is not live after all goes; the others get their first state. true: it has to be opened. */
static bool open_one(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (e->ghost)
		return false;
	if (!e->replay && !e->body_segment) {
		rdv_lane_forget(l, ref);
		return false;
	}
	if (e->state == RDV_STATE_DONE)
		return false; /* a finished replay */
	if (e->replay && e->state == RDV_STATE_READY)
		e->state = RDV_STATE_HELD;
	if (counts_as_live(e))
		rdv_account_receive(&l->account, (enum rdv_state)e->state);
	return true;
}

struct opening {
	uint64_t seq;
	uint32_t ref;
};

static int by_position(const void *a, const void *b)
{
	const struct opening *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Those that may go at once arrive in the order of their positions. */
static void open_ready(struct rdv_lane *l, struct opening *ready, size_t count, bool unclean, struct rdv_now now,
		       struct rdv_effects *out)
{
	bool sorted = true;

	for (size_t i = 1; i < count && sorted; i++)
		sorted = ready[i - 1].seq < ready[i].seq;
	if (!sorted)
		qsort(ready, count, sizeof *ready, by_position);
	for (size_t i = 0; i < count; i++) {
		struct rdv_entry *e = rdv_lane_entry(l, ready[i].ref);

		e->next = e->member = 0;
		if (e->replay && rdv_lane_plan_paused(l, e))
			continue;
		if (!e->started || !unclean) {
			e->started = 0;
			rdv_lane_arrive(l, ready[i].ref, now, out);
		} else if (e->state_segment) {
			rdv_lane_hold_for_history(l, ready[i].ref);
			rdv_lane_ask_history(l, ready[i].ref, RDV_TODO_CRASH, out);
		} else {
			rdv_lane_hold_for_history(l, ready[i].ref);
			rdv_lane_load_state(l, e, rdv_slice(NULL, 0));
			rdv_lane_crashed(l, ready[i].ref, now, &l->state, out);
		}
	}
}

static void open_entries(struct rdv_lane *l, bool unclean, struct rdv_now now, struct rdv_effects *out)
{
	struct opening *ready = malloc(((size_t)l->entries.count + 1) * sizeof *ready);
	size_t count = 0;

	if (!ready) {
		out->failed = true;
		return;
	}
	for (uint32_t ref = 1; ref <= l->entries.used; ref++) {
		struct rdv_entry *e = rdv_lane_entry(l, ref);

		if (!open_one(l, ref))
			continue;
		if (e->state == RDV_STATE_DYING)
			open_dying(l, ref, out);
		else if (e->state == RDV_STATE_WAITING && !(e->started && unclean))
			open_waiting(l, ref, now, out);
		else
			ready[count++] = (struct opening){e->seq, ref};
	}
	open_ready(l, ready, count, unclean, now, out);
	free(ready);
}

void rdv_lane_opened(struct rdv_lane *l, struct rdv_now now, uint64_t next_offset, bool unclean,
		     struct rdv_effects *out)
{
	struct rdv_account *a = &l->account;

	l->next = next_offset > l->start ? next_offset : l->start;
	l->epoch += l->opened_before || !l->epoch;
	a->received = a->acked + a->dead + a->dropped + a->revoked;
	open_suspicion(l, unclean);
	rdv_lane_write_lane(l, out);
	rdv_lane_open_dedupe(l);
	l->folding = false;
	open_entries(l, unclean, now, out);
	rdv_lane_promote_all(l, now, out);
	rdv_lane_open_requests(l, out);
	if (l->overdue_at_open > 1000 && l->target)
		rdv_target_backlog_opened(l->target, now, l->throughput);
	l->counters_changed = true;
}

/* ---- our own crash ---- */

static uint32_t crashes_in_a_row(const struct rdv_message_state *s)
{
	uint32_t n = 0;

	while (n < s->history_count && s->history[s->history_count - 1 - n].cause == RDV_CAUSE_CRASH)
		n++;
	return n;
}

void rdv_lane_crashed(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_message_state *s,
		      struct rdv_effects *out)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);
	const struct rdv_attempt a = {.n = ++s->deliveries,
				      .at = now.wall,
				      .verdict = RDV_RETRY,
				      .cause = RDV_CAUSE_CRASH,
				      .next_at = now.wall};
	uint32_t limit = l->policy.retry.crashes < RDV_HISTORY_LAST ? l->policy.retry.crashes : RDV_HISTORY_LAST;

	if (!e->replay) {
		if (e->delivered)
			l->account.retries++;
		else
			l->account.first++;
		l->account.crashes++;
	}
	e->delivered = 1;
	e->suspicion = e->suspicion < 2 ? 2 : e->suspicion; /* one at a time from now on */
	s->causes.crashes++;
	if (!s->first_at.ms)
		s->first_at = now.wall;
	if (!s->first_failed_at.ms)
		s->first_failed_at = now.wall;
	s->last_failed_at = now.wall;
	rdv_state_add_attempt(s, &a);
	if (crashes_in_a_row(s) >= limit) {
		e->todo = RDV_TODO_CRASH; /* it was its key's turn, whatever has joined the key since */
		rdv_lane_die(l, ref, now, RDV_REASON_CRASHED, s, out);
		return;
	}
	s->due = now.wall;
	s->delay_ms = 0;
	rdv_lane_set_state(l, e, RDV_STATE_READY);
	rdv_lane_save_state(l, ref, now, out);
	rdv_lane_arrive(l, ref, now, out);
}
