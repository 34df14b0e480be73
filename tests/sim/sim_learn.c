/* sim_learn.c - what the truth learns from records: how messages ended, why they die, when they are due, gates,
 * requests.
 *
 * Each record is learned twice: when it is appended, which is true in this process, and when it is durable, which is
 * all that is true after a crash. At the append it is also judged: an end or a reason must have the cause that its word
 * means. */
#include "world.h"

static void check_outcome(struct sim_world *w, struct sim_lane *l, const struct sim_fate *f, uint64_t seq,
			  enum rdv_state outcome)
{
	const struct sim_route *r = &w->routes[l->route];
	const char *what = NULL;

	if (outcome == RDV_STATE_ACKED && !f->acked)
		what = "acked without an ack";
	if (outcome == RDV_STATE_DROPPED && !f->dropped && !r->may_drop)
		what = "dropped without a drop";
	if (outcome == RDV_STATE_DEAD && !(f->letters & 1))
		what = "dead without a stored letter";
	if (outcome == RDV_STATE_REVOKED && !f->revoke_asked)
		what = "revoked without being asked to";
	if (what)
		sim_fail(w, "lane %u: %llu is %s", l->index, (unsigned long long)seq, what);
}

static void learn_done(struct sim_world *w, struct sim_lane *l, struct rdv_slice payload, bool durable)
{
	struct rdv_reader r = rdv_runs_begin(payload);
	struct rdv_run run;

	while (rdv_runs_next(&r, &run))
		for (uint64_t i = 0; i < run.count; i++) {
			struct sim_fate *f = sim_fate_of(w, l, run.first + i);
			uint8_t final = (uint8_t)(run.outcome + 1);

			if (durable) {
				if (run.outcome == RDV_STATE_DONE && !f->durable_final)
					sim_fail(w, "lane %u: %llu is said done again, but was not", l->index,
						 (unsigned long long)(run.first + i));
				f->started = false;
				f->durable_final = f->durable_final ? f->durable_final : final;
				continue;
			}
			if (f->final && !w->trimming)
				sim_fail(w, "lane %u: %llu has two outcomes: %s and %s", l->index,
					 (unsigned long long)(run.first + i),
					 rdv_state_name((enum rdv_state)(f->final - 1)), rdv_state_name(run.outcome));
			if (!f->final)
				check_outcome(w, l, f, run.first + i, run.outcome);
			f->final = f->final ? f->final : final;
		}
	if (r.failed)
		sim_fail(w, "lane %u: a damaged DONE", l->index);
}

static void learn_started(struct sim_world *w, struct sim_lane *l, struct rdv_slice payload)
{
	struct rdv_reader r = rdv_runs_begin(payload);
	struct rdv_run run;

	while (rdv_runs_next(&r, &run))
		for (uint64_t i = 0; i < run.count; i++)
			sim_fate_of(w, l, run.first + i)->started = true;
}

/* The cause of a follower is an earlier message of its key that is dead or dying. */
static const char *follower_fault(struct sim_world *w, struct sim_lane *l, uint64_t seq, uint64_t cause)
{
	const struct sim_fate *f;

	if (cause >= seq)
		return "a follower without a cause";
	if (sim_message_of(w, l, cause)->key_hash != sim_message_of(w, l, seq)->key_hash)
		return "a follower of another key";
	for (uint32_t i = 0; i < w->lane_count; i++) {
		/* Also of one that was its sibling then: its history may be read when they have parted. */
		if (sim_partition_of(w, &w->lanes[i]) != sim_partition_of(w, l) || cause < w->lanes[i].start ||
		    cause >= w->lanes[i].end)
			continue;
		f = sim_fate_of(w, &w->lanes[i], cause);
		if (f->final == RDV_STATE_DEAD + 1 || f->final == 0)
			return NULL;
	}
	return "a follower of a message that is not dead";
}

static const char *dying_fault(struct sim_world *w, struct sim_lane *l, uint64_t seq, const struct rdv_message_state *s)
{
	const struct sim_route *r = &w->routes[l->route];
	const struct sim_fate *f = sim_fate_of(w, l, seq);

	switch (s->reason) {
	case RDV_REASON_EXHAUSTED:
		return f->retries < r->attempts_min && f->defers <= r->deferrals_min ? "exhausted too early" : NULL;
	case RDV_REASON_CRASHED:
		return f->crashes < r->crashes_min ? "crashed too early" : NULL;
	case RDV_REASON_REJECTED:
		return f->retries + f->crashes == 0 ? "rejected without a failure" : NULL;
	case RDV_REASON_DAMAGED:
		return f->damaged ? NULL : "damaged without damage";
	case RDV_REASON_REVOKED:
		return f->revoke_asked ? NULL : "revoked without being asked to";
	case RDV_REASON_FOLLOWER:
		return follower_fault(w, l, seq, s->cause_seq);
	case RDV_REASON_LIMIT_LOWERED:
		return f->retries < r->attempts_min && f->defers <= r->deferrals_min && f->crashes < r->crashes_min
			       ? "over no limit"
			       : NULL;
	case RDV_REASON_EXPIRED:
		return f->deliveries ? NULL : "expired without a delivery";
	default:
		return "dying without a reason";
	}
}

static void learn_state(struct sim_world *w, struct sim_lane *l, uint64_t seq, struct rdv_slice payload, bool durable)
{
	struct sim_fate *f = sim_fate_of(w, l, seq);
	struct rdv_message_state s;
	const char *fault;

	if (rdv_state_decode(payload, &s) != REDRIVE_OK)
		sim_fail(w, "lane %u: a damaged STATE of %llu", l->index, (unsigned long long)seq);
	if (durable ? f->durable_final : f->final)
		return; /* of a replay */
	if (durable) {
		f->durable_reason = s.kind == RDV_STATE_DYING ? (uint8_t)s.reason : 0;
		f->durable_due = s.due.ms;
		f->durable_delay = s.kind == RDV_STATE_READY ? 0 : s.delay_ms; /* READY: its time had come */
		f->durable_charged = (uint16_t)s.causes.failures;
		f->started = false;
		return;
	}
	f->charged = (uint16_t)s.causes.failures;
	f->due = s.due.ms;
	f->delay = s.delay_ms;
	if (s.kind == RDV_STATE_DYING) {
		f->reason = (uint8_t)s.reason;
		fault = dying_fault(w, l, seq, &s);
		if (fault)
			sim_fail(w, "lane %u: %llu is %s (%u retries, %u crashes, %u defers)", l->index,
				 (unsigned long long)seq, fault, f->retries, f->crashes, f->defers);
	} else if (s.kind == RDV_STATE_WAITING && f->fresh) {
		if (f->bounded && (s.delay_ms < f->low || s.delay_ms > f->high))
			sim_fail(w, "lane %u: %llu waits %lld ms, allowed are %lld to %lld", l->index,
				 (unsigned long long)seq, (long long)s.delay_ms, (long long)f->low, (long long)f->high);
		f->earliest = f->judged + s.delay_ms;
	} else if (s.kind == RDV_STATE_READY) {
		f->earliest = sim_now(w).mono.ms;
	}
	f->bounded = f->fresh = false;
}

static void learn_gate(struct sim_world *w, struct sim_lane *l, uint64_t hash, struct rdv_slice payload, bool durable)
{
	struct sim_key *k = sim_key_of(l, hash);
	struct rdv_gate g;

	if (!k || rdv_gate_decode(payload, &g) != REDRIVE_OK)
		sim_fail(w, "lane %u: a gate of no key", l->index);
	if (durable)
		k->durable_gate = g.closed;
	else
		k->gate = g.closed;
}

static void learn_request(struct sim_world *w, struct sim_lane *l, uint64_t number, struct rdv_slice payload)
{
	struct rdv_request q;

	if (rdv_request_decode(payload, &q) != REDRIVE_OK)
		sim_fail(w, "lane %u: a damaged request", l->index);
	for (size_t i = 0; i < w->replay_count; i++) {
		struct sim_replay *r = &w->replays[i];
		if (r->lane == l->index && r->seq == q.seq && r->generation == q.generation &&
		    q.kind == RDV_REQUEST_REPLAY) {
			r->accepted = true;
			r->number = number;
		}
	}
}

static void learn_dedupe(struct sim_world *w, struct sim_lane *l, struct rdv_slice payload, bool durable)
{
	struct rdv_dedupe_record d;
	struct sim_fate *f;

	if (rdv_dedupe_decode(payload, &d) != REDRIVE_OK)
		sim_fail(w, "lane %u: a damaged DEDUPE", l->index);
	if (d.owner_seq == UINT64_MAX)
		return; /* done by a message of another lane, before their windows were merged */
	f = sim_fate_of(w, l, d.owner_seq);
	*(durable ? &f->durable_done_until : &f->done_until) = d.state == RDV_DEDUPE_DONE ? d.until.ms : 0;
}

void sim_learn(struct sim_world *w, const struct sim_frame *f, struct rdv_slice payload, bool durable)
{
	struct sim_lane *l = f->type == RDV_RECORD_BODY ? NULL : sim_lane_by_stream(w, f->stream);
	bool paused;

	if (!l || f->again)
		return;
	if (f->type == RDV_RECORD_LANE && durable) {
		if (f->seq == 1)
			sim_learn_mark(l, payload);
		else
			l->born = true;
	} else if (f->type == RDV_RECORD_DEDUPE)
		learn_dedupe(w, l, payload, durable);
	else if (f->type == RDV_RECORD_DONE)
		learn_done(w, l, payload, durable);
	else if (f->type == RDV_RECORD_STATE)
		learn_state(w, l, f->seq, payload, durable);
	else if (f->type == RDV_RECORD_STARTED && durable)
		learn_started(w, l, payload);
	else if (f->type == RDV_RECORD_GATE)
		learn_gate(w, l, f->seq, payload, durable);
	else if (f->type == RDV_RECORD_REQUEST && durable)
		learn_request(w, l, f->seq, payload);
	else if (f->type == RDV_RECORD_PAUSE && rdv_pause_decode(payload, &paused) == REDRIVE_OK)
		*(durable ? &l->durable_paused : &l->paused) = paused;
}
