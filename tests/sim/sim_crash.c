/* sim_crash.c - how processes begin and end: the first start, death at any moment, recovery by fold, clean restarts,
 * hand-overs.
 *
 * Recovery folds the frames that are left, in their order. Payloads of sealed segments are cut to their hint part, or
 * not, by lot. A lane gets its own records and the BODYs of its partition, as the runtime gives them. */
#include "world.h"
#include <assert.h>
#include <stdlib.h>

/* ---- the process's end ---- */

static void free_core(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		rdv_lane_free(w->lanes[i].lane);
		w->lanes[i].lane = NULL;
	}
	for (uint32_t i = 0; i < w->options.targets; i++) {
		rdv_dispatcher_free(w->targets[i].dispatcher);
		rdv_target_free(w->targets[i].target);
		w->targets[i].dispatcher = NULL;
		w->targets[i].target = NULL;
	}
	rdv_target_free(w->orphan_target);
	w->orphan_target = NULL;
	sim_free_windows(w);
}

/* Only what is durable is true now. */
static void forget_lane(struct sim_world *w, struct sim_lane *l, bool unclean)
{
	size_t count = sim_partition_of(w, l)->durable;

	l->route = l->durable.route;
	l->generation = l->durable.generation;
	l->orphan = l->durable.orphan;
	l->end = l->durable.end;
	for (size_t i = 0; i < l->fate_capacity; i++) {
		struct sim_fate *f = &l->fates[i];
		if (i >= count) {
			*f = (struct sim_fate){0};
			continue;
		}
		f->final = f->durable_final;
		f->reason = f->durable_reason;
		f->charged = f->durable_charged;
		f->done_until = f->durable_done_until;
		f->due = f->durable_due;
		f->delay = f->durable_delay;
		f->crashes += unclean && f->started;
		f->calls = 0;
		f->replaying = f->received = f->doomed = f->bounded = f->fresh = false;
	}
	for (size_t i = 0; i < SIM_KEYS; i++) {
		l->keys[i].live_calls = l->keys[i].replay_calls = 0;
		l->keys[i].gate = l->keys[i].durable_gate;
	}
	l->paused = l->durable_paused;
	l->stopped = false;
	l->unrecorded_count = 0;
}

static void forget(struct sim_world *w, bool unclean)
{
	for (uint32_t s = 0; s < SIM_STREAMS; s++)
		w->streams[s].count = w->streams[s].durable;
	for (uint32_t i = 0; i < w->lane_count; i++)
		forget_lane(w, &w->lanes[i], unclean);
	while (w->lane_count && !w->lanes[w->lane_count - 1].born)
		w->lane_count--;
	for (size_t i = 0; i < w->call_count; i++)
		w->calls[i].open = false;
	for (uint32_t i = 0; i < w->options.targets; i++) {
		w->targets[i].calls = w->targets[i].probes = 0;
		w->targets[i].hold_until = 0;
	}
	w->deed_count = 0;
	rdv_buffer_clear(&w->deed_bytes);
	rdv_effects_clear(&w->effects);
	w->syncing = w->trim_ticket = 0;
	w->trimming = w->crashed = false;
}

/* ---- recovery ---- */

static struct rdv_slice cut(struct sim_world *w, const struct sim_frame *f, bool hints)
{
	struct rdv_slice payload = sim_log_payload(&w->log, f);

	return hints && f->place.segment < w->log.segment ? rdv_slice(payload.data, f->hint) : payload;
}

static void fold_frame(struct sim_world *w, struct sim_lane *l, const struct sim_frame *f, bool hints)
{
	struct rdv_slice payload = cut(w, f, hints);
	enum redrive_status status = REDRIVE_OK;
	struct rdv_body body;

	if (f->type == RDV_RECORD_LANE && f->seq == 1)
		return; /* a mark: the runtime's, not the lane's */
	if (f->type == RDV_RECORD_BODY && f->stream == sim_partition_of(w, l)->stream && f->seq >= l->start &&
	    f->seq < l->end) {
		status = rdv_body_decode_hint(payload, &body);
		if (status == REDRIVE_OK)
			status = rdv_lane_fold_body(l->lane, f->seq, &body, f->place);
	} else if (f->type != RDV_RECORD_BODY && f->stream == l->stream) {
		status = rdv_lane_fold(l->lane, f->type, f->seq, payload, f->place);
	}
	if (status != REDRIVE_OK)
		sim_fail(w, "lane %u: folding a %s: %s", l->index, rdv_record_name(f->type),
			 redrive_status_text(status));
}

void sim_new_lane(struct sim_world *w, struct sim_lane *l)
{
	struct sim_route *r = &w->routes[l->route];
	char name[40];
	struct rdv_lane_options o = {.stream = l->stream,
				     .route = name,
				     .topic = r->topic ? "topic-b" : "topic-a",
				     .partition = l->partition,
				     .partition_stream = sim_partition_of(w, l)->stream,
				     .start = l->start,
				     .epoch = ++l->epoch,
				     .seed = rdv_random_next(&w->random),
				     .policy = r->policy,
				     .rules = r->rules,
				     .target = w->targets[r->target].target,
				     .target_route = r->number,
				     .start_before_call = r->start_before_call,
				     .dedupe = sim_window_of(w, l),
				     .unrecorded_max = r->unrecorded_max};

	snprintf(name, sizeof name, "%s.%u", r->name, l->generation);
	if (l->orphan) { /* as the runtime has them: nothing is decided, and the order is kept for whoever adopts it */
		rdv_lane_policy_defaults(&o.policy);
		o.policy.order = RDV_ORDER_KEY;
		o.policy.retry.attempts = o.policy.retry.crashes = UINT32_MAX;
		o.rules = NULL;
		o.target = w->orphan_target;
		o.target_route = 0;
		o.dedupe = NULL;
	}
	l->lane = rdv_lane_new(&o);
	assert(l->lane);
	l->base_bytes = rdv_lane_bytes(l->lane);
}

static void count_live(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct sim_world *w = ctx;
	struct sim_frame *f = sim_log_find(&w->log, place);

	if (!f || f->type != type || f->seq != seq)
		sim_fail(w, "a recovered lane thinks a %s of %llu is at %u:%u", rdv_record_name(type),
			 (unsigned long long)seq, place.segment, place.offset);
	++*sim_log_live(&w->log, place.segment);
}

/* When each message may go at the earliest, by what is durable and the wall clock. */
static void set_earliest(struct sim_world *w, struct sim_lane *l)
{
	struct rdv_now now = sim_now(w);

	for (uint64_t seq = l->start; seq < sim_lane_end(w, l); seq++) {
		struct sim_fate *f = sim_fate_of(w, l, seq);
		const struct sim_message *m = sim_message_of(w, l, seq);
		int64_t left = (f->due ? f->due : m->not_before) - now.wall.ms, most = f->due ? f->delay : m->delay;

		left = left < most ? left : most;
		f->earliest = now.mono.ms + (left > 0 ? left : 0);
		f->received = true;
	}
}

void sim_open_lane(struct sim_world *w, struct sim_lane *l, bool unclean)
{
	uint64_t end = sim_lane_end(w, l);

	set_earliest(w, l);
	rdv_lane_opened(l->lane, sim_now(w), end > l->start ? end : l->start, unclean, &w->effects);
	rdv_lane_each_live(l->lane, count_live, w);
	l->stopped = l->loose = l->orphan;
	if (l->orphan) {
		rdv_lane_stop(l->lane);
		return;
	}
	if (rdv_dispatcher_add(sim_target_of(w, l)->dispatcher, l->lane) != REDRIVE_OK)
		sim_fail(w, "lane %u cannot be added", l->index);
	sim_touch(w, l);
}

static void new_targets(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->options.targets; i++) {
		struct sim_target *t = &w->targets[i];
		t->target = rdv_target_new(&t->policy, rdv_random_next(&w->random), sim_now(w));
		assert(t->target);
		t->dispatcher = rdv_dispatcher_new(t->target);
		assert(t->dispatcher);
		t->wake = INT64_MIN;
		t->refunds = false;
		t->tokens = t->policy.rate / 10 > 1 ? t->policy.rate / 10 : 1;
		t->tokens_at = sim_now(w).mono.ms;
		t->last_ok = sim_now(w).mono.ms;
	}
	for (uint32_t i = 0; i < w->options.routes; i++) {
		struct sim_route *r = &w->routes[i];
		r->number = rdv_target_join(w->targets[r->target].target, &r->route_policy);
		for (uint32_t g = 0; g < SIM_GENERATIONS; g++)
			rdv_dedupe_init(&r->windows[g]);
	}
	w->orphan_target = rdv_target_new(&w->targets[0].policy, 1, sim_now(w));
	assert(w->orphan_target);
	if (rdv_target_join(w->orphan_target, &(struct rdv_route_policy){0}) == UINT32_MAX)
		sim_fail(w, "no place for orphans");
}

/* Lanes that share a window fold their records in the order of the log. */
static void fold_all(struct sim_world *w)
{
	bool hints[SIM_LANES];

	for (uint32_t i = 0; i < w->lane_count; i++) {
		hints[i] = sim_chance(w, 0.6);
		sim_new_lane(w, &w->lanes[i]);
		sim_join_family(w, &w->lanes[i]);
	}
	for (size_t n = 0; n < w->log.count; n++)
		for (uint32_t i = 0; i < w->lane_count; i++)
			fold_frame(w, &w->lanes[i], &w->log.frames[n], hints[i]);
}

/* A lane does not remember which plans are paused: the desk tells it again. */
static void pause_again(struct sim_world *w, struct sim_lane *l)
{
	for (uint32_t p = 0; p < SIM_PLANS; p++)
		if (w->plan_paused[p])
			rdv_lane_replay_pause(l->lane, sim_now(w), p + 1, true, &w->effects);
}

static void open_all(struct sim_world *w, bool unclean)
{
	w->run++;
	new_targets(w);
	if (w->log.live)
		memset(w->log.live, 0, w->log.live_capacity * sizeof *w->log.live);
	sim_reconcile(w);
	fold_all(w);
	for (uint32_t i = 0; i < w->lane_count; i++)
		sim_open_lane(w, &w->lanes[i], unclean);
	sim_resend_replays(w);
	for (uint32_t i = 0; i < w->lane_count; i++)
		pause_again(w, &w->lanes[i]);
	sim_execute(w);
	if (!w->crashed)
		sim_turn_end(w);
	if (!w->crashed)
		sim_check_all(w);
}

void sim_start(struct sim_world *w)
{
	open_all(w, false);
}

/* Drops the dead process's events, so that the heap stays small. */
static void drop_events(struct sim_world *w)
{
	struct sim_event *events = w->events;
	size_t count = w->event_count;

	w->event_count = 0;
	for (size_t i = 0; i < count; i++)
		if (events[i].run == 0) {
			struct sim_event e = events[i];
			int64_t at = e.at;
			sim_at(w, at - w->t, e);
		}
}

void sim_crash(struct sim_world *w)
{
	uint64_t durable = w->log.durable;
	size_t lost = sim_log_crash(&w->log, &w->random, sim_chance(w, 0.3) ? 1 : rdv_random_unit(&w->random));

	w->crashes++;
	sim_trace(w, "crash %llu: %zu frames lost", (unsigned long long)w->crashes, lost);
	for (uint64_t n = durable + 1; n <= w->log.durable; n++) {
		struct sim_frame f = *sim_log_frame(&w->log, n);
		sim_learn(w, &f, sim_log_payload(&w->log, &f), true);
		for (uint32_t s = 0; f.type == RDV_RECORD_BODY && !f.again && s < SIM_STREAMS; s++)
			if (w->streams[s].stream == f.stream)
				w->streams[s].durable = f.seq + 1;
	}
	sim_desk_after_crash(w);
	free_core(w);
	forget(w, true);
	drop_events(w);
	w->t += sim_chance(w, 0.2) ? sim_between(w, 1000, 600000) : sim_between(w, 1, 3000);
	w->mono_base = (int64_t)sim_below(w, 1000000) - w->t; /* a new boot */
	if (w->options.wall_jumps && sim_chance(w, 0.3))
		w->wall_base += sim_between(w, -3600000, 3600000);
	sim_trace(w, "opens at wall %lld", (long long)sim_now(w).wall.ms);
	open_all(w, true);
}

/* ---- clean ends ---- */

/* Everything appended becomes durable now. */
static void sync_now(struct sim_world *w)
{
	if (!w->crashed && sim_log_last(&w->log) > w->log.durable) {
		sim_deliver(w, sim_log_last(&w->log));
		sim_execute(w);
	}
}

static void drain_lane(struct sim_world *w, struct sim_lane *l)
{
	rdv_lane_stop(l->lane);
	l->stopped = true;
	sim_cut_calls(w, l);
}

static void turn_and_sync(struct sim_world *w)
{
	sim_answer_histories(w);
	if (!w->crashed)
		sim_turn_end(w);
	sync_now(w);
}

void sim_reopen_clean(struct sim_world *w)
{
	struct rdv_account before[SIM_LANES];

	sim_trace(w, "clean restart");
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++)
		drain_lane(w, &w->lanes[i]);
	for (int i = 0; i < 3; i++) /* a history may be asked for when its record is placed */
		turn_and_sync(w);
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++) {
		rdv_lane_close(w->lanes[i].lane, &w->effects);
		sim_execute(w);
	}
	turn_and_sync(w);
	if (w->crashed)
		return;
	for (uint32_t i = 0; i < w->lane_count; i++)
		before[i] = *rdv_lane_account(w->lanes[i].lane);
	sim_desk_after_crash(w);
	free_core(w);
	forget(w, false);
	drop_events(w);
	w->t += sim_between(w, 1, 5000);
	open_all(w, false);
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++) {
		const struct rdv_account *a = rdv_lane_account(w->lanes[i].lane), *b = &before[i];
		if (a->received < b->received || a->acked != b->acked || a->dropped != b->dropped ||
		    a->first != b->first || a->retries != b->retries || a->failed != b->failed ||
		    a->dead + a->revoked < b->dead + b->revoked)
			sim_fail(w,
				 "lane %u: the account changed in a clean restart: first %llu to %llu, retries %llu to "
				 "%llu, failed %llu "
				 "to %llu, dead %llu to %llu",
				 i, (unsigned long long)b->first, (unsigned long long)a->first,
				 (unsigned long long)b->retries, (unsigned long long)a->retries,
				 (unsigned long long)b->failed, (unsigned long long)a->failed,
				 (unsigned long long)(b->dead + b->revoked),
				 (unsigned long long)(a->dead + a->revoked));
	}
}

void sim_hand_over(struct sim_world *w, struct sim_lane *l)
{
	bool hints;

	if (l->orphan || w->routes[l->route].dedupes) /* a shared window cannot be folded again in part */
		return;
	for (size_t i = 0; i < w->call_count; i++)
		if (w->calls[i].open && w->calls[i].lane == l->index)
			return;
	sim_trace(w, "lane %u is handed over", l->index);
	drain_lane(w, l);
	for (int i = 0; i < 3; i++) /* a history may be asked for when its record is placed */
		turn_and_sync(w);
	if (w->crashed)
		return;
	rdv_lane_close(l->lane, &w->effects);
	sim_execute(w);
	turn_and_sync(w);
	if (w->crashed)
		return;
	rdv_dispatcher_remove(sim_target_of(w, l)->dispatcher, l->lane);
	for (size_t i = 0; i < w->log.live_capacity; i++)
		w->log.live[i] = 0; /* counted anew below, of all lanes */
	rdv_lane_leave_siblings(l->lane, sim_now(w), &w->effects);
	sim_execute(w);
	rdv_lane_free(l->lane);
	forget_lane(w, l, false);
	sim_new_lane(w, l);
	sim_join_family(w, l);
	hints = sim_chance(w, 0.6);
	for (size_t i = 0; i < w->log.count; i++)
		fold_frame(w, l, &w->log.frames[i], hints);
	sim_open_lane(w, l, false);
	pause_again(w, l);
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (&w->lanes[i] != l)
			rdv_lane_each_live(w->lanes[i].lane, count_live, w);
	sim_execute(w);
}
