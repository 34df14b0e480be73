/* lane_recover.c - the fold of the records, opening, suspect mode, trimming.
 *
 * Folding is one pass in log order; the last record of a (type, seq) wins. Trimming may have put a BODY or a REQUEST
 * behind the STATE that belongs to it, so a STATE may come first: its entry waits for the rest, and what has neither
 * body nor request at the end was finished. While folding, an entry's `due` is the wall time of STATE (or of a delayed
 * publish) and next:member the delay as 64 bits; opening turns them into monotonic time: remaining = clamp(due - now,
 * 0, delay).
 *
 * Suspect mode begins when two unclean opens follow each other and no outcome became durable between them: then one
 * call is open at a time, with STARTED before it, until any outcome comes. What was STARTED last when the process died
 * has crashed once more; `crashes` in a row and it is dead. Internal to the lane; single thread. */
#include "lane_parts.h"
#include <stdlib.h>

/* ---- fold ---- */

static void set_delay(struct rdv_entry *e, int64_t delay)
{
	e->member = (uint32_t)(uint64_t)delay;
	e->next = (uint32_t)((uint64_t)delay >> 32);
}

static int64_t get_delay(const struct rdv_entry *e)
{
	return (int64_t)((uint64_t)e->next << 32 | e->member);
}

static enum redrive_status fold_state(struct rdv_lane *l, uint64_t seq, struct rdv_slice payload,
				      struct rdv_place place)
{
	struct rdv_message_state *s = &l->state;
	enum redrive_status status = rdv_state_decode_hint(payload, s);
	uint32_t ref;
	struct rdv_entry *e;

	if (status != REDRIVE_OK)
		return status;
	if (s->kind != RDV_STATE_WAITING && s->kind != RDV_STATE_READY && s->kind != RDV_STATE_DYING)
		return REDRIVE_CORRUPT;
	ref = rdv_lane_find(l, seq);
	if (!ref)
		ref = rdv_lane_add_entry(l, seq);
	if (!ref)
		return REDRIVE_NO_MEMORY;
	e = rdv_lane_entry(l, ref);
	e->state = s->kind;
	e->state_segment = place.segment;
	e->state_offset = place.offset;
	e->state_length = place.length;
	e->charged = s->causes.failures;
	e->suspicion = s->suspicion & 3;
	e->bad_charged = s->last_bad_charged;
	e->delivered = s->deliveries > 0;
	e->by_rule = l->rules != NULL; /* which rule judged last is not known: no limit is lowered for it */
	e->started = 0;
	e->due = s->due.ms;
	if (s->kind == RDV_STATE_DYING)
		e->member = s->reason;
	else
		set_delay(e, s->delay_ms);
	l->outcome_since_open = true;
	return REDRIVE_OK;
}

enum redrive_status rdv_lane_fold_body(struct rdv_lane *l, uint64_t seq, const struct rdv_body *hint,
				       struct rdv_place place)
{
	uint32_t ref;
	struct rdv_entry *e;

	if (seq < l->start)
		return REDRIVE_OK;
	ref = rdv_lane_find(l, seq);
	if (!ref)
		ref = rdv_lane_add_entry(l, seq);
	if (!ref)
		return REDRIVE_NO_MEMORY;
	e = rdv_lane_entry(l, ref);
	if (e->replay)
		return REDRIVE_OK; /* finished here; another lane keeps the body */
	if (!e->state_segment && hint->not_before.ms) {
		e->state = RDV_STATE_WAITING;
		e->due = hint->not_before.ms;
		set_delay(e, hint->not_before.ms - hint->produced_at.ms);
	}
	if (!e->body_segment)
		rdv_ages_add(&l->ages, seq, hint->produced_at);
	e->body_segment = place.segment;
	e->body_offset = place.offset;
	e->body_length = place.length;
	return rdv_lane_set_key(l, e, hint->key_hash);
}

static void forget(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_entry *e = rdv_lane_entry(l, ref);

	if (e->body_segment)
		rdv_ages_remove(&l->ages, e->seq);
	rdv_lane_forget_key(l, e);
	rdv_lane_drop_entry(l, ref);
}

static void fold_done_run(struct rdv_lane *l, const struct rdv_run *run)
{
	uint64_t end = run->count > UINT64_MAX - run->first ? UINT64_MAX : run->first + run->count;
	uint32_t ref;

	rdv_finished_add(&l->finished, run, 1);
	if (run->count > l->entries.count) { /* fewer live messages than positions */
		for (ref = 1; ref <= l->entries.used; ref++) {
			const struct rdv_entry *e = rdv_lane_entry(l, ref);
			if (!e->ghost && !e->replay && e->seq >= run->first && e->seq < end)
				forget(l, ref);
		}
		return;
	}
	for (uint64_t seq = run->first; seq < end; seq++) {
		ref = rdv_lane_find(l, seq);
		if (ref && !rdv_lane_entry(l, ref)->replay)
			forget(l, ref);
	}
}

static enum redrive_status fold_runs(struct rdv_lane *l, bool done, struct rdv_slice payload)
{
	struct rdv_reader r = rdv_runs_begin(payload);
	struct rdv_run run;

	while (rdv_runs_next(&r, &run)) {
		uint32_t ref;
		if (done) {
			fold_done_run(l, &run);
			l->outcome_since_open |= run.outcome != RDV_STATE_DONE;
			continue;
		}
		for (uint64_t i = 0; i < run.count && i < RDV_CHUNK_ITEMS; i++)
			if ((ref = rdv_lane_find(l, run.first + i)) != 0)
				rdv_lane_entry(l, ref)->started = 1;
	}
	return r.failed ? REDRIVE_CORRUPT : REDRIVE_OK;
}

static enum redrive_status fold_lane(struct rdv_lane *l, struct rdv_slice payload, struct rdv_place place)
{
	struct rdv_lane_fields f;
	enum redrive_status status = rdv_lane_decode(payload, &f);

	if (status != REDRIVE_OK)
		return status;
	l->start = f.start;
	l->epoch = f.epoch > l->epoch ? f.epoch : l->epoch;
	l->opened_before = true;
	l->opens_without_outcome = f.opens_without_outcome;
	l->lane_segment = place.segment;
	l->outcome_since_open = false;
	return REDRIVE_OK;
}

static enum redrive_status fold_gate(struct rdv_lane *l, uint64_t hash, struct rdv_slice payload,
				     struct rdv_place place)
{
	struct rdv_gate gate;
	enum redrive_status status = rdv_gate_decode(payload, &gate);
	uint32_t key;
	struct rdv_key *k;

	if (status != REDRIVE_OK)
		return status;
	key = gate.closed ? rdv_order_get(&l->order, hash) : rdv_order_find(&l->order, hash);
	if (!key)
		return gate.closed ? REDRIVE_NO_MEMORY : REDRIVE_OK;
	k = rdv_order_key(&l->order, key);
	l->order.closed += (uint32_t)gate.closed - (uint32_t)k->closed;
	k->closed = gate.closed;
	k->letter_seq = gate.letter_seq;
	k->gate_segment = place.segment;
	rdv_order_drop_idle(&l->order, key);
	return REDRIVE_OK;
}

static enum redrive_status fold_counters(struct rdv_lane *l, struct rdv_slice payload, struct rdv_place place)
{
	enum redrive_status status = rdv_counters_decode(payload, &l->account);

	l->throughput = rdv_counters_throughput(payload);
	l->counters_segment = place.segment;
	return status;
}

enum redrive_status rdv_lane_fold(struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_slice payload,
				  struct rdv_place place)
{
	struct rdv_body hint;
	enum redrive_status status;

	rdv_lane_saw_segment(l, place.segment);
	switch (type) {
	case RDV_RECORD_LANE:
		return fold_lane(l, payload, place);
	case RDV_RECORD_BODY:
		status = rdv_body_decode_hint(payload, &hint);
		return status == REDRIVE_OK ? rdv_lane_fold_body(l, seq, &hint, place) : status;
	case RDV_RECORD_STATE:
		return fold_state(l, seq, payload, place);
	case RDV_RECORD_STARTED:
		return fold_runs(l, false, payload);
	case RDV_RECORD_DONE:
		return fold_runs(l, true, payload);
	case RDV_RECORD_GATE:
		return fold_gate(l, seq, payload, place);
	case RDV_RECORD_REQUEST:
		return rdv_lane_fold_request(l, seq, payload, place);
	case RDV_RECORD_PAUSE:
		l->pause_segment = place.segment;
		return rdv_pause_decode(payload, &l->paused);
	case RDV_RECORD_DEDUPE:
		return rdv_lane_fold_dedupe(l, payload, place);
	case RDV_RECORD_COUNTERS:
		return fold_counters(l, payload, place);
	case RDV_RECORD_CLOSE:
		return rdv_close_decode(payload);
	case RDV_RECORD_TOPIC:
	case RDV_RECORD_SEEN:
	case RDV_RECORD_MAX:
		break;
	}
	return REDRIVE_CORRUPT; /* not a lane's record */
}

/* ---- opening ---- */

static void write_lane(struct rdv_lane *l, struct rdv_effects *out)
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
	int64_t delay = get_delay(e), left = e->due > now.wall.ms ? e->due - now.wall.ms : 0;

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
		forget(l, ref);
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
	write_lane(l, out);
	rdv_lane_open_dedupe(l);
	l->folding = false;
	open_entries(l, unclean, now, out);
	for (uint32_t key = 0; (key = rdv_order_each(&l->order, key)) != 0;) {
		rdv_lane_promote(l, key, now, out);
	}
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

/* ---- trimming ---- */

bool rdv_lane_owns(const struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_place place,
		   uint32_t *entry)
{
	uint32_t ref = rdv_lane_find(l, seq);
	const struct rdv_entry *e;

	*entry = ref;
	if (!ref)
		return false;
	e = rdv_lane_entry(l, ref);
	if (type == RDV_RECORD_BODY)
		return !e->replay && e->body_segment == place.segment && e->body_offset == place.offset;
	return type == RDV_RECORD_STATE && e->state_segment == place.segment && e->state_offset == place.offset;
}

void rdv_lane_moved(struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	uint32_t ref = rdv_lane_find(l, seq);
	struct rdv_entry *e;

	if (!ref)
		return;
	e = rdv_lane_entry(l, ref);
	rdv_lane_saw_segment(l, place.segment);
	if (type == RDV_RECORD_BODY && !e->replay) {
		e->body_segment = place.segment;
		e->body_offset = place.offset;
		e->body_length = place.length;
	} else if (type == RDV_RECORD_STATE) {
		e->state_segment = place.segment;
		e->state_offset = place.offset;
		e->state_length = place.length;
	}
}

void rdv_lane_done_again(struct rdv_lane *l, uint64_t seq, struct rdv_effects *out)
{
	if (seq >= l->start && seq < l->next)
		rdv_lane_add_run(&l->done, seq, RDV_STATE_DONE, out);
}

void rdv_lane_rewrite(struct rdv_lane *l, uint32_t segment, struct rdv_effects *out)
{
	if (l->lane_segment <= segment)
		write_lane(l, out);
	if (l->paused && l->pause_segment <= segment)
		rdv_lane_write_pause(l, out);
	if (l->counters_segment <= segment)
		l->counters_changed = true; /* by the flush of this turn */
	for (uint32_t key = 0; (key = rdv_order_each(&l->order, key)) != 0;) {
		const struct rdv_key *k = rdv_order_key(&l->order, key);
		if (k->closed && k->gate_segment <= segment)
			rdv_lane_set_gate(l, key, true, k->letter_seq, out);
	}
	rdv_lane_rewrite_requests(l, segment, out);
	rdv_lane_rewrite_dedupe(l, segment, out);
}

void rdv_lane_each_live(const struct rdv_lane *l,
			void (*each)(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place), void *ctx)
{
	for (uint32_t ref = 1; ref <= l->entries.used; ref++) {
		const struct rdv_entry *e = rdv_lane_entry(l, ref);

		if (e->ghost)
			continue;
		if (!e->replay && e->body_segment)
			each(ctx, RDV_RECORD_BODY, e->seq,
			     (struct rdv_place){e->body_segment, e->body_offset, e->body_length});
		if (e->state_segment)
			each(ctx, RDV_RECORD_STATE, e->seq,
			     (struct rdv_place){e->state_segment, e->state_offset, e->state_length});
	}
}
