/* sim_desk.c - the desk as a lane sees it: letters become durable after a while, replays are sent, their outcomes are
 * kept.
 *
 * A crash may come before a letter is durable, or between that and the answer: taking in is idempotent, so the same
 * letter may come again. What is stored for good must never be told differently later. */
#include "world.h"
#include <assert.h>
#include <stdlib.h>

/* LETTERED and OUTCOME carry the generation or outcome in b, the message or request in c. */

void sim_letter(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	struct sim_fate *f = sim_fate_of(w, l, e->seq);
	uint32_t generation = e->letter.generation;
	struct sim_frame *body = sim_log_find(&w->log, e->letter.body);
	struct rdv_message_state state;
	struct rdv_slice payload = rdv_effects_bytes(&w->effects, e->letter.at, e->letter.size);

	sim_trace(w, "lane %u letter of %llu generation %u: %s", l->index, (unsigned long long)e->seq, generation,
		  rdv_reason_name(e->letter.reason));
	if (e->letter.request == 0) {
		if (generation != 0 || f->durable_final)
			sim_fail(w, "lane %u: a letter of generation %u for %llu, final %u", l->index, generation,
				 (unsigned long long)e->seq, f->durable_final);
		if (f->durable_reason != e->letter.reason)
			sim_fail(w, "lane %u: a letter of %llu (%s) before its dying is durable (%s)", l->index,
				 (unsigned long long)e->seq, rdv_reason_name(e->letter.reason),
				 rdv_reason_name((enum rdv_reason)f->durable_reason));
		if (!body || body->type != RDV_RECORD_BODY || body->seq != e->seq)
			sim_fail(w, "lane %u: the letter of %llu has no body", l->index, (unsigned long long)e->seq);
	} else if (generation != f->generation + 1u && generation != f->generation) {
		sim_fail(w, "lane %u: a replayed letter of %llu has generation %u after %u", l->index,
			 (unsigned long long)e->seq, generation, f->generation);
	}
	if (!e->letter.size) {
		struct sim_frame *at = sim_log_find(&w->log, e->letter.state);
		payload = at ? sim_log_payload(&w->log, at) : rdv_slice(NULL, 0);
	}
	if (rdv_state_decode(payload, &state) != REDRIVE_OK)
		sim_fail(w, "lane %u: the letter of %llu has no state at %u:%u, tail %u", l->index,
			 (unsigned long long)e->seq, e->letter.state.segment, e->letter.state.offset, w->log.tail);
	sim_at(w, sim_chance(w, 0.05) ? 5000 : sim_between(w, 1, 40),
	       (struct sim_event){.kind = SIM_EV_LETTERED,
				  .a = l->index,
				  .b = generation | (e->letter.request ? 256u : 0),
				  .c = e->letter.request ? e->letter.request : e->seq});
}

static void store_letter(struct sim_world *w, struct sim_lane *l, uint64_t seq, uint32_t generation)
{
	struct sim_fate *f = sim_fate_of(w, l, seq);

	f->letters |= (uint8_t)(1u << (generation & 7));
	if (generation > f->generation)
		f->generation = (uint8_t)generation;
}

static struct sim_replay *find_replay(struct sim_world *w, uint32_t lane, uint64_t number)
{
	for (size_t i = w->replay_count; i-- > 0;)
		if (w->replays[i].lane == lane && w->replays[i].number == number)
			return &w->replays[i];
	return NULL;
}

void sim_lettered(struct sim_world *w, const struct sim_event *e)
{
	struct sim_lane *l = &w->lanes[e->a];
	struct sim_replay *r = e->b & 256 ? find_replay(w, e->a, e->c) : NULL;
	uint64_t seq = r ? r->seq : e->c;

	if ((e->b & 256) && !r)
		sim_fail(w, "lane %u: a letter of the unknown replay %llu", e->a, (unsigned long long)e->c);
	store_letter(w, l, seq, e->b & 255);
	rdv_lane_lettered(l->lane, sim_now(w), seq, r ? r->number : 0, &w->effects);
	sim_touch(w, l);
}

/* ---- replays ---- */

static void fill_request(struct sim_world *w, const struct sim_replay *r, struct rdv_request *q)
{
	struct sim_lane *l = &w->lanes[r->lane];

	*q = (struct rdv_request){.kind = RDV_REQUEST_REPLAY,
				  .state = RDV_REQUEST_OPEN,
				  .seq = r->seq,
				  .key_hash = sim_message_of(w, l, r->seq)->key_hash,
				  .plan = r->plan + 1,
				  .generation = r->generation,
				  .plan_name = rdv_slice_text("plan")};
	rdv_put_u64(q->letter, r->seq);
	rdv_put_u32(q->letter + 8, r->lane);
	rdv_put_u32(q->letter + 12, r->generation);
}

/* False: not now, an older request of that letter is not confirmed yet. */
static bool send(struct sim_world *w, struct sim_replay *r)
{
	struct sim_lane *l = &w->lanes[r->lane];
	struct rdv_request q;
	uint64_t number;
	enum redrive_status status;

	fill_request(w, r, &q);
	status = rdv_lane_replay(l->lane, sim_now(w), &q, &number, &w->effects);
	if (status != REDRIVE_OK && status != REDRIVE_CONFLICT)
		sim_fail(w, "lane %u: replay of %llu: %s", r->lane, (unsigned long long)r->seq,
			 redrive_status_text(status));
	if (status == REDRIVE_CONFLICT)
		return false;
	if (r->number)
		sim_fail(w, "lane %u: the request %llu of %llu was forgotten", r->lane, (unsigned long long)r->number,
			 (unsigned long long)r->seq);
	r->number = number;
	sim_trace(w, "lane %u replays %llu generation %u as %llu", r->lane, (unsigned long long)r->seq, r->generation,
		  (unsigned long long)r->number);
	sim_touch(w, l);
	return true;
}

static bool can_replay(struct sim_world *w, uint32_t lane, uint64_t seq)
{
	struct sim_lane *l = &w->lanes[lane];
	struct sim_fate *f = sim_fate_of(w, l, seq);

	if (l->orphan || seq < l->start || seq >= sim_lane_end(w, l))
		return false; /* an orphan is asked by nobody */
	if (f->durable_final != RDV_STATE_DEAD + 1 || !f->letters || f->generation >= 6)
		return false;
	for (size_t i = 0; i < w->replay_count; i++) {
		const struct sim_replay *r = &w->replays[i];
		if (r->lane != lane || r->seq != seq)
			continue;
		if (r->state != SIM_REPLAY_STORED || r->outcome == RDV_STATE_ACKED || r->generation == f->generation)
			return false;
	}
	return true;
}

void sim_send_replay(struct sim_world *w)
{
	uint32_t lane = (uint32_t)sim_below(w, w->lane_count);
	struct sim_lane *l = &w->lanes[lane];
	size_t count = sim_partition_of(w, l)->durable;
	uint64_t from = count ? sim_below(w, count) : 0;
	uint32_t plan = (uint32_t)sim_below(w, SIM_PLANS), sent = 0;

	if (w->plan_cancelled[plan] || w->plan_paused[plan])
		return;
	for (uint64_t i = 0; i < count && sent < 4; i++) {
		uint64_t seq = (from + i) % count;
		if (!can_replay(w, lane, seq))
			continue;
		if (w->replay_count == w->replay_capacity) {
			w->replay_capacity = w->replay_capacity ? w->replay_capacity * 2 : 64;
			w->replays = realloc(w->replays, w->replay_capacity * sizeof *w->replays);
			assert(w->replays);
		}
		w->replays[w->replay_count++] = (struct sim_replay){
			.lane = lane, .plan = plan, .seq = seq, .generation = sim_fate_of(w, l, seq)->generation};
		if (send(w, &w->replays[w->replay_count - 1]))
			sent++;
		else
			w->replay_count--;
	}
}

void sim_outcome(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	struct sim_replay *r = find_replay(w, l->index, e->outcome.request);

	sim_trace(w, "lane %u replay %llu ended: %s", l->index, (unsigned long long)e->outcome.request,
		  rdv_state_name(e->outcome.outcome));
	if (!r)
		sim_fail(w, "lane %u: the outcome of an unknown replay %llu", l->index,
			 (unsigned long long)e->outcome.request);
	if (r->state == SIM_REPLAY_STORED && r->outcome != e->outcome.outcome)
		sim_fail(w, "lane %u: replay %llu was stored as %s and now is %s", l->index,
			 (unsigned long long)r->number, rdv_state_name(r->outcome), rdv_state_name(e->outcome.outcome));
	sim_at(w, sim_between(w, 1, 60),
	       (struct sim_event){
		       .kind = SIM_EV_OUTCOME, .a = l->index, .b = (uint32_t)e->outcome.outcome, .c = r->number});
}

static void store_outcome(struct sim_replay *r, enum rdv_state outcome)
{
	r->state = SIM_REPLAY_STORED;
	r->outcome = outcome;
	r->accepted = true;
}

void sim_outcome_stored(struct sim_world *w, const struct sim_event *e)
{
	struct sim_lane *l = &w->lanes[e->a];

	store_outcome(find_replay(w, e->a, e->c), (enum rdv_state)e->b);
	rdv_lane_outcome_stored(l->lane, sim_now(w), e->c, &w->effects);
	sim_touch(w, l);
}

/* What was on its way to the desk became durable, or did not; either way nobody was told. */
void sim_desk_after_crash(struct sim_world *w)
{
	for (size_t i = 0; i < w->event_count; i++) {
		const struct sim_event *e = &w->events[i];
		if (e->run != w->run || !sim_chance(w, 0.5))
			continue;
		if (e->kind == SIM_EV_LETTERED) {
			struct sim_replay *r = e->b & 256 ? find_replay(w, e->a, e->c) : NULL;
			store_letter(w, &w->lanes[e->a], r ? r->seq : e->c, e->b & 255);
		} else if (e->kind == SIM_EV_OUTCOME) {
			store_outcome(find_replay(w, e->a, e->c), (enum rdv_state)e->b);
		}
	}
	for (size_t i = 0; i < w->replay_count; i++)
		if (w->replays[i].state != SIM_REPLAY_STORED && !w->replays[i].accepted)
			w->replays[i].number = 0; /* perhaps lost: sent again */
}

/* The runner sends again what has no outcome; a request that the lane still has is in conflict and goes on by itself.
 */
void sim_resend_replays(struct sim_world *w)
{
	for (size_t i = 0; i < w->replay_count; i++) {
		struct sim_replay *r = &w->replays[i];
		if (r->state != SIM_REPLAY_STORED && !w->plan_cancelled[r->plan] && !w->plan_paused[r->plan] &&
		    !w->lanes[r->lane].orphan)
			send(w, r);
	}
}
