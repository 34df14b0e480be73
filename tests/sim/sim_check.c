/* sim_check.c - what must always hold, told from the truth that the world keeps beside the core.
 *
 *   at every call     not early, not finished, not dying, one at a time, in the order of its key, gates and pauses
 * kept, the target's holds and limits kept, body and state where they are said to be, nothing sent that could not be
 * recorded after every turn  both sums of each account; every so often the core's own invariants and memory every so
 * often    each message is live or has exactly one end, and lane and truth agree which; counts equal the truth at the
 * end        everything is finished, letters and outcomes are complete, no record counts as live
 */
#include "world.h"
#include <stdlib.h>

static void check_places(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	struct sim_frame *body = sim_log_find(&w->log, e->dispatch.body), *state;

	if (!e->dispatch.request && (!body || body->type != RDV_RECORD_BODY || body->seq != e->seq ||
				     body->stream != sim_partition_of(w, l)->stream))
		sim_fail(w, "lane %u: the body of %llu is not at %u:%u", l->index, (unsigned long long)e->seq,
			 e->dispatch.body.segment, e->dispatch.body.offset);
	if (!e->dispatch.state.segment)
		return;
	state = sim_log_find(&w->log, e->dispatch.state);
	if (!state || state->type != RDV_RECORD_STATE || state->seq != e->seq || state->stream != l->stream)
		sim_fail(w, "lane %u: the state of %llu is not at %u:%u", l->index, (unsigned long long)e->seq,
			 e->dispatch.state.segment, e->dispatch.state.offset);
}

static void check_fate(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	const struct sim_fate *f = sim_fate_of(w, l, e->seq);
	int64_t mono = sim_now(w).mono.ms;
	const char *what = NULL;

	if (f->final || f->durable_final)
		what = "is finished";
	else if (f->reason || f->durable_reason || f->letters)
		what = "is dying";
	else if (f->calls)
		what = "is out already";
	else if (e->seq >= sim_partition_of(w, l)->durable || !f->received)
		what = "is not durable";
	else if (mono < f->earliest)
		what = "is early";
	else if (e->dispatch.attempt > f->charged + 1u || e->dispatch.attempt < 1 ||
		 (e->dispatch.attempt <= f->charged && !sim_target_of(w, l)->refunds))
		what = "has a wrong attempt number";
	if (what)
		sim_fail(w,
			 "lane %u calls %llu, which %s (attempt %u, charged %u, %lld ms before its time, due %lld + "
			 "%lld)",
			 l->index, (unsigned long long)e->seq, what, e->dispatch.attempt, f->charged,
			 (long long)(f->earliest - mono), (long long)(f->due - f->delay), (long long)f->delay);
}

/* An earlier message of the key that may be passed: one that was delayed by its publisher and has not joined yet. */
static bool may_pass(struct sim_world *w, struct sim_lane *l, uint64_t seq)
{
	const struct sim_fate *f = sim_fate_of(w, l, seq);
	struct rdv_where where;

	if (!sim_message_of(w, l, seq)->not_before || (f->due && f->reason != RDV_REASON_REVOKED) ||
	    rdv_lane_where(l->lane, sim_now(w), seq, &where) != REDRIVE_OK)
		return false;
	return where.state == RDV_STATE_WAITING || where.state == RDV_STATE_REVOKED;
}

/* Its end is durable; of a revoked one it is enough that its dying is: nobody waits for that letter. */
static bool is_over(const struct sim_fate *f)
{
	return f->durable_final || f->durable_reason == RDV_REASON_REVOKED;
}

/* What lane `m` has of the key that lane l's message `e` goes by. */
static void check_order_in(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e, struct sim_lane *m)
{
	uint64_t hash = sim_message_of(w, l, e->seq)->key_hash, last = e->seq;
	const struct sim_key *k = sim_key_of(m, hash);
	bool ordered = w->routes[l->route].policy.order == RDV_ORDER_KEY;

	if (k->replay_calls || ((ordered || e->dispatch.request) && k->live_calls))
		sim_fail(w, "lane %u calls %llu while another of its key is out (lane %u: %u live, %u replays)",
			 l->index, (unsigned long long)e->seq, m->index, k->live_calls, k->replay_calls);
	if (!ordered || e->dispatch.request)
		return;
	if (k->gate)
		sim_fail(w, "lane %u calls %llu through a closed gate of lane %u", l->index, (unsigned long long)e->seq,
			 m->index);
	last += m->stream < l->stream; /* of the same message the older lane's goes first */
	for (uint64_t seq = m->start; seq < last && seq < sim_lane_end(w, m); seq++) {
		struct rdv_where where = {0};
		if (sim_message_of(w, m, seq)->key_hash != hash || is_over(sim_fate_of(w, m, seq)) ||
		    may_pass(w, m, seq))
			continue;
		(void)!rdv_lane_where(m->lane, sim_now(w), seq, &where);
		sim_fail(w, "lane %u calls %llu before %llu of lane %u and the same key, which is %s (final %u)",
			 l->index, (unsigned long long)e->seq, (unsigned long long)seq, m->index,
			 rdv_state_name(where.state), sim_fate_of(w, m, seq)->final);
	}
}

static void check_order(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	bool ordered = w->routes[l->route].policy.order == RDV_ORDER_KEY;

	if (!sim_message_of(w, l, e->seq)->key_hash)
		return;
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (&w->lanes[i] == l || (ordered && sim_is_family(&w->lanes[i], l)))
			check_order_in(w, l, e, &w->lanes[i]);
}

static void check_target(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	struct sim_target *t = sim_target_of(w, l);
	uint32_t limit = t->policy.adaptive ? t->policy.adaptive_max : t->policy.concurrency;
	int64_t mono = sim_now(w).mono.ms;
	struct rdv_target_status status;

	rdv_target_status(t->target, sim_now(w), &status);
	if (t->calls >= limit)
		sim_fail(w, "target %u has %u calls out of %u", w->routes[l->route].target, t->calls + 1, limit);
	if (mono < t->hold_until)
		sim_fail(w, "target %u is called %lld ms before its Retry-After is over", w->routes[l->route].target,
			 (long long)(t->hold_until - mono));
	if (t->policy.rate > 0) {
		double most = t->policy.rate / 10 > 1 ? t->policy.rate / 10 : 1;
		double now = t->tokens + (double)(mono - t->tokens_at) * t->policy.rate / 1000;
		t->tokens = (now < most ? now : most) - 1;
		t->tokens_at = mono;
		if (t->tokens < -0.001)
			sim_fail(w, "target %u is called beyond its rate of %g a second", w->routes[l->route].target,
				 t->policy.rate);
	}
	if (status.state == RDV_DOWN && (!e->dispatch.probe || t->probes))
		sim_fail(w, "target %u is down and called (probe %d, %u probes out)", w->routes[l->route].target,
			 e->dispatch.probe, t->probes);
}

static void check_replay(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	const struct sim_replay *r = NULL;

	for (size_t i = w->replay_count; i-- > 0 && !r;)
		if (w->replays[i].lane == l->index && w->replays[i].number == e->dispatch.request)
			r = &w->replays[i];
	if (!r || r->seq != e->seq)
		sim_fail(w, "lane %u replays %llu by the unknown request %llu", l->index, (unsigned long long)e->seq,
			 (unsigned long long)e->dispatch.request);
	if (r->state == SIM_REPLAY_STORED)
		sim_fail(w, "lane %u replays %llu again, stored as %s", l->index, (unsigned long long)e->seq,
			 rdv_state_name(r->outcome));
	if (w->plan_paused[r->plan])
		sim_fail(w, "lane %u replays %llu of a paused plan", l->index, (unsigned long long)e->seq);
	if (sim_fate_of(w, l, e->seq)->replaying)
		sim_fail(w, "lane %u replays %llu twice at once", l->index, (unsigned long long)e->seq);
}

/* One call of an idempotency key at a time; none after an ack, as long as the window says. */
void sim_check_dedupe(struct sim_world *w, struct sim_lane *l, uint64_t seq)
{
	const struct sim_message *m = sim_message_of(w, l, seq);
	int64_t wall = sim_now(w).wall.ms > w->latest_wall ? sim_now(w).wall.ms : w->latest_wall;

	for (size_t i = 0; i < w->call_count; i++) {
		const struct sim_call *c = &w->calls[i];
		struct sim_lane *other = &w->lanes[c->lane];
		if (c->open && c->has_dedupe && sim_window_of(w, other) == sim_window_of(w, l) &&
		    sim_message_of(w, other, c->seq)->dedupe.lo == m->dedupe.lo && (other != l || c->seq != seq))
			sim_fail(w, "lane %u calls %llu while lane %u %llu of its idempotency key is out", l->index,
				 (unsigned long long)seq, c->lane, (unsigned long long)c->seq);
	}
	for (uint32_t i = 0; i < w->lane_count && w->routes[l->route].entries_min >= 1000; i++) {
		struct sim_lane *other = &w->lanes[i];
		if (other->orphan || sim_window_of(w, other) != sim_window_of(w, l))
			continue;
		for (uint64_t n = other->start; n < sim_lane_end(w, other); n++)
			if (sim_fate_of(w, other, n)->done_until > wall && (other != l || n != seq) &&
			    sim_message_of(w, other, n)->dedupe.lo == m->dedupe.lo)
				sim_fail(w, "lane %u calls %llu, a duplicate of lane %u %llu, done for %lld ms more",
					 l->index, (unsigned long long)seq, i, (unsigned long long)n,
					 (long long)(sim_fate_of(w, other, n)->done_until - wall));
	}
}

void sim_check_dispatch(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	if (e->seq < l->start || e->seq >= sim_partition_of(w, l)->count)
		sim_fail(w, "lane %u calls %llu, which it was never given", l->index, (unsigned long long)e->seq);
	if (l->paused || l->stopped)
		sim_fail(w, "lane %u is %s and calls %llu", l->index, l->paused ? "paused" : "stopped",
			 (unsigned long long)e->seq);
	if (l->unrecorded_count && sim_now(w).mono.ms - l->unrecorded[0].since > 2000)
		sim_fail(w, "lane %u calls %llu while an outcome is unrecorded since %lld ms", l->index,
			 (unsigned long long)e->seq, (long long)(sim_now(w).mono.ms - l->unrecorded[0].since));
	if (e->dispatch.request)
		check_replay(w, l, e);
	else
		check_fate(w, l, e);
	check_places(w, l, e);
	check_order(w, l, e);
	check_target(w, l, e);
	if (w->options.outage)
		sim_outage_call(w, e);
}

/* ---- after a turn ---- */

static void check_memory(struct sim_world *w, struct sim_lane *l)
{
	/* A chunk each of entries, keys, requests and dedupe with their maps, then what a message and a key may cost.
	 */
	size_t limit = l->base_bytes + (6u << 20) + sim_partition_of(w, l)->count * 128 + SIM_KEYS * 64;

	if (rdv_lane_bytes(l->lane) > limit)
		sim_fail(w, "lane %u holds %zu bytes, more than %zu", l->index, rdv_lane_bytes(l->lane), limit);
}

void sim_check_turn(struct sim_world *w)
{
	bool all = w->step % w->options.check_every == 0;
	const char *what = "";

	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (!rdv_account_check(rdv_lane_account(l->lane)))
			sim_fail(w, "lane %u: the account does not add up", i);
		if (all && !rdv_lane_check(l->lane, &what))
			sim_fail(w, "lane %u: %s", i, what);
		if (all)
			check_memory(w, l);
	}
	for (uint32_t i = 0; all && i < w->options.targets; i++)
		if (!rdv_target_check(w->targets[i].target, &what))
			sim_fail(w, "target %u: %s", i, what);
	if (w->options.outage)
		sim_outage_turn(w);
	if (w->step % (w->options.check_every * 8) == 0)
		sim_check_all(w);
}

static bool agrees(const struct sim_fate *f, enum rdv_state state)
{
	if (f->replaying || state == RDV_STATE_REPLAYING)
		return f->final == RDV_STATE_DEAD + 1;
	if (f->final)
		return state == RDV_STATE_DONE || state == (enum rdv_state)(f->final - 1) ||
		       (state == RDV_STATE_DYING && f->final == RDV_STATE_DEAD + 1); /* dead again, by a replay */
	if (f->calls)
		return state == RDV_STATE_IN_FLIGHT;
	if (f->reason)
		return state == RDV_STATE_DYING || state == RDV_STATE_DEAD || state == RDV_STATE_REVOKED;
	return state <= RDV_STATE_DYING || state == RDV_STATE_REVOKED;
}

struct counts {
	uint64_t received, finals[RDV_STATE_COUNT], live;
};

static void check_message(struct sim_world *w, struct sim_lane *l, uint64_t seq, struct counts *c)
{
	const struct sim_fate *f = sim_fate_of(w, l, seq);
	struct rdv_where where;
	enum redrive_status status = rdv_lane_where(l->lane, sim_now(w), seq, &where);

	if (status != REDRIVE_OK)
		sim_fail(w, "lane %u: %llu is lost (%s)", l->index, (unsigned long long)seq,
			 redrive_status_text(status));
	if (!agrees(f, where.state))
		sim_fail(w, "lane %u: %llu is %s, but the truth is final %u, reason %u, calls %u", l->index,
			 (unsigned long long)seq, rdv_state_name(where.state), f->final, f->reason, f->calls);
	c->received++;
	if (f->final)
		c->finals[f->final - 1]++;
	else
		c->live++;
}

static void check_account(struct sim_world *w, struct sim_lane *l, const struct counts *c)
{
	const struct rdv_account *a = rdv_lane_account(l->lane);
	uint64_t live = a->ready + a->waiting + a->held + a->in_flight;

	if (a->received != c->received)
		sim_fail(w, "lane %u: received %llu, the truth is %llu", l->index, (unsigned long long)a->received,
			 (unsigned long long)c->received);
	if (a->acked != c->finals[RDV_STATE_ACKED] || a->dropped != c->finals[RDV_STATE_DROPPED])
		sim_fail(w, "lane %u: acked %llu, dropped %llu; the truth is %llu, %llu", l->index,
			 (unsigned long long)a->acked, (unsigned long long)a->dropped,
			 (unsigned long long)c->finals[RDV_STATE_ACKED],
			 (unsigned long long)c->finals[RDV_STATE_DROPPED]);
	if (a->dead < c->finals[RDV_STATE_DEAD] || a->revoked < c->finals[RDV_STATE_REVOKED] || live > c->live)
		sim_fail(w,
			 "lane %u: dead %llu, revoked %llu, live %llu; the truth is at least %llu, %llu, at most %llu",
			 l->index, (unsigned long long)a->dead, (unsigned long long)a->revoked,
			 (unsigned long long)live, (unsigned long long)c->finals[RDV_STATE_DEAD],
			 (unsigned long long)c->finals[RDV_STATE_REVOKED], (unsigned long long)c->live);
}

struct live_count {
	struct sim_world *w;
	uint32_t *counts;
};

static void count_one(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct live_count *c = ctx;

	if (place.segment < c->w->log.tail || place.segment > c->w->log.segment)
		sim_fail(c->w, "a live %s of %llu lies in segment %u, which is gone", rdv_record_name(type),
			 (unsigned long long)seq, place.segment);
	c->counts[place.segment - c->w->log.tail]++;
}

/* What the log counts as live is what lanes own, and perhaps what they have not released yet. */
static void check_live(struct sim_world *w, bool exact)
{
	size_t segments = w->log.segment - w->log.tail + 1;
	struct live_count c = {w, calloc(segments, sizeof *c.counts)};

	for (uint32_t i = 0; i < w->lane_count; i++)
		rdv_lane_each_live(w->lanes[i].lane, count_one, &c);
	for (size_t s = 0; s < segments; s++) {
		uint32_t counted = *sim_log_live(&w->log, w->log.tail + (uint32_t)s), owned = c.counts[s];
		if (counted < owned || (exact && counted != owned)) {
			free(c.counts);
			sim_fail(w, "segment %u counts %u live records, lanes own %u", w->log.tail + (uint32_t)s,
				 counted, owned);
		}
	}
	free(c.counts);
}

void sim_check_all(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		struct counts c = {0};
		for (uint64_t seq = l->start; seq < sim_lane_end(w, l); seq++)
			check_message(w, l, seq, &c);
		check_account(w, l, &c);
	}
	check_live(w, false);
}

/* ---- at the end ---- */

static void check_end_message(struct sim_world *w, struct sim_lane *l, uint64_t seq)
{
	const struct sim_fate *f = sim_fate_of(w, l, seq);
	bool dead = f->durable_final == RDV_STATE_DEAD + 1, revoked = f->durable_final == RDV_STATE_REVOKED + 1;
	const char *what = NULL;

	if (!f->durable_final)
		what = "has no end";
	else if (dead && !(f->letters & 1))
		what = "is dead without a letter";
	else if (!dead && !revoked && f->letters)
		what = "has a letter but is not dead";
	else if (f->calls)
		what = "is still out";
	if (what)
		sim_fail(w, "at the end lane %u %llu %s", l->index, (unsigned long long)seq, what);
}

void sim_check_end(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		const struct rdv_account *a = rdv_lane_account(l->lane);
		for (uint64_t seq = l->start; seq < sim_lane_end(w, l); seq++)
			check_end_message(w, l, seq);
		if (a->received != a->acked + a->dropped + a->dead + a->revoked)
			sim_fail(w, "at the end lane %u has live messages", i);
	}
	for (size_t i = 0; i < w->replay_count; i++)
		if (w->replays[i].state != SIM_REPLAY_STORED && !w->plan_cancelled[w->replays[i].plan])
			sim_fail(w, "at the end replay %llu of lane %u has no outcome",
				 (unsigned long long)w->replays[i].number, w->replays[i].lane);
	if (w->options.outage)
		sim_outage_end(w);
	check_live(w, true);
	sim_check_all(w);
}
