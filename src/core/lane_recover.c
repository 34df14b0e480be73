/* lane_recover.c - the fold of the records.
 *
 * One pass in log order; the last record of a (type, seq) wins. Trimming may have put a BODY or a REQUEST behind the
 * STATE that belongs to it, so a STATE may come first: its entry waits for the rest, and what has neither body nor
 * request at the end was finished. While folding, an entry's `due` is the wall time of STATE (or of a delayed publish)
 * and next:member the delay as 64 bits; lane_open.c turns them into monotonic time.
 * Records are checked by their decoders; CORRUPT ends the recovery. Internal to the lane; single thread. */
#include "lane_parts.h"

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
		rdv_lane_set_delay(e, s->delay_ms);
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
		rdv_lane_set_delay(e, hint->not_before.ms - hint->produced_at.ms);
	}
	if (!e->body_segment)
		rdv_ages_add(&l->ages, seq, hint->produced_at);
	e->body_segment = place.segment;
	e->body_offset = place.offset;
	e->body_length = place.length;
	return rdv_lane_set_key(l, e, hint->key_hash);
}

void rdv_lane_forget(struct rdv_lane *l, uint32_t ref)
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
				rdv_lane_forget(l, ref);
		}
		return;
	}
	for (uint64_t seq = run->first; seq < end; seq++) {
		ref = rdv_lane_find(l, seq);
		if (ref && !rdv_lane_entry(l, ref)->replay)
			rdv_lane_forget(l, ref);
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
