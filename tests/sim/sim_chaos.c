/* sim_chaos.c - publishers, the log's writer as lanes see it, and operators who do everything at the wrong moment. */
#include "world.h"
#include <assert.h>
#include <stdlib.h>

static const uint8_t natures[] = {SIM_GOOD,  SIM_GOOD,    SIM_GOOD,  SIM_GOOD,   SIM_GOOD,   SIM_GOOD,
				  SIM_FLAKY, SIM_FLAKY,   SIM_FLAKY, SIM_POISON, SIM_REJECT, SIM_SLOW,
				  SIM_DEFER, SIM_CRASHER, SIM_DROP,  SIM_GOOD};

static struct sim_message *add_message(struct sim_partition *p)
{
	if (p->count == p->capacity) {
		p->capacity = p->capacity ? p->capacity * 2 : 128;
		p->items = realloc(p->items, p->capacity * sizeof *p->items);
		assert(p->items);
	}
	return &p->items[p->count++];
}

/* One BODY, the last or not of its publisher's batch. */
static void publish_one(struct sim_world *w, struct sim_partition *p, bool more)
{
	uint64_t seq = p->count;
	struct sim_message *m = add_message(p);
	struct sim_frame f = {
		.type = RDV_RECORD_BODY, .stream = p->stream, .seq = seq, .hint = RDV_BODY_HINT, .more = more};
	struct rdv_body body = {.body = rdv_slice_text("body")};
	uint8_t bytes[128];

	*m = (struct sim_message){.nature = natures[sim_below(w, sizeof natures)],
				  .key = (uint8_t)sim_below(w, SIM_KEYS)};
	if (w->options.outage)
		m->nature = SIM_GOOD;
	m->key_hash = m->key * 0x9e3779b97f4a7c15ull;
	m->dedupe = (struct rdv_hash128){1 + sim_below(w, w->options.messages), 7};
	if (w->options.delays && sim_chance(w, 0.2))
		m->not_before = sim_now(w).wall.ms + sim_between(w, -1000, sim_chance(w, 0.1) ? 3600000 : 20000);
	m->delay = m->not_before ? m->not_before - sim_now(w).wall.ms : 0;
	body.flags = m->key ? 0 : RDV_BODY_NULL_KEY;
	body.key_hash = m->key_hash;
	body.not_before.ms = m->not_before;
	body.produced_at = sim_now(w).wall;
	assert(rdv_body_size(&body) <= sizeof bytes);
	rdv_body_encode(&body, bytes);
	sim_log_append(&w->log, &f, rdv_slice(bytes, rdv_body_size(&body)));
	w->published++;
}

void sim_publish(struct sim_world *w)
{
	uint32_t topic = (uint32_t)sim_below(w, w->options.topics), left = w->options.messages - w->published;
	uint32_t batch = 1 + (uint32_t)sim_below(w, 4);

	batch = batch < left ? batch : left;
	for (uint32_t i = 0; i < batch; i++)
		publish_one(w, &w->streams[topic * SIM_PARTITIONS + sim_below(w, w->options.partitions)],
			    i + 1 < batch);
	if (w->published < w->options.messages)
		sim_at(w, (int64_t)(rdv_random_unit(&w->random) * 2 * w->options.publish_every_ms),
		       (struct sim_event){.kind = SIM_EV_PUBLISH});
}

/* ---- durable ---- */

static void deliver_body(struct sim_world *w, const struct sim_frame *f)
{
	struct sim_partition *p = &w->streams[f->stream - 1];
	struct sim_message *m = &p->items[f->seq];
	struct rdv_published published = {
		.seq = f->seq, .key_hash = m->key_hash, .not_before.ms = m->not_before, .body = f->place};

	p->durable = f->seq + 1;
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		struct sim_fate *fate;
		int64_t left = m->not_before - sim_now(w).wall.ms;

		if (sim_partition_of(w, l) != p || f->seq < l->start || f->seq >= l->end)
			continue;
		fate = sim_fate_of(w, l, f->seq);
		fate->received = true;
		fate->earliest = sim_now(w).mono.ms + (left > 0 ? left : 0);
		++*sim_log_live(&w->log, f->place.segment);
		published.has_dedupe = w->routes[l->route].policy.dedupe.by != RDV_DEDUPE_OFF;
		/* Told twice now and then, as after a source's redelivery: it counts once. */
		for (int times = sim_chance(w, 0.02) ? 2 : 1; times; times--)
			if (rdv_lane_published(l->lane, sim_now(w), &published, &w->effects) != REDRIVE_OK)
				sim_fail(w, "lane %u does not take %llu", l->index, (unsigned long long)f->seq);
		sim_touch(w, l);
	}
}

static void recorded(struct sim_lane *l, uint64_t ticket)
{
	uint32_t n = 0;

	while (n < l->unrecorded_count && l->unrecorded[n].ticket <= ticket)
		n++;
	l->unrecorded_count -= n;
	memmove(l->unrecorded, l->unrecorded + n, l->unrecorded_count * sizeof l->unrecorded[0]);
}

void sim_deliver(struct sim_world *w, uint64_t ticket)
{
	uint64_t from = w->log.durable + 1;

	w->log.durable = ticket;
	w->syncing = 0;
	for (uint64_t n = from; n <= ticket; n++) {
		struct sim_frame f = *sim_log_frame(&w->log, n);
		if (f.type != RDV_RECORD_BODY)
			sim_learn(w, &f, sim_log_payload(&w->log, &f), true);
		else if (!f.again)
			deliver_body(w, &f);
	}
	for (uint32_t i = 0; i < w->lane_count; i++) {
		recorded(&w->lanes[i], ticket);
		rdv_lane_durable(w->lanes[i].lane, sim_now(w), ticket, &w->effects);
		sim_touch(w, &w->lanes[i]);
	}
	if (w->trim_ticket && w->trim_ticket <= ticket) {
		if (*sim_log_live(&w->log, w->log.tail))
			sim_fail(w, "segment %u goes with %u live records", w->log.tail,
				 *sim_log_live(&w->log, w->log.tail));
		sim_log_drop_tail(&w->log);
		w->trim_ticket = 0;
	}
	sim_calls_durable(w);
}

/* ---- operators ---- */

static struct sim_lane *any_lane(struct sim_world *w)
{
	return &w->lanes[sim_below(w, w->lane_count)];
}

static void jump(struct sim_world *w)
{
	if (!w->options.wall_jumps)
		return;
	w->wall_base += sim_chance(w, 0.5) ? sim_between(w, -5000, 5000) : sim_between(w, -7200000, 7200000);
	sim_trace(w, "the wall clock jumps");
}

static void suspend(struct sim_world *w)
{
	if (!w->options.suspends)
		return;
	w->t += sim_chance(w, 0.3) ? sim_between(w, 600000, 8 * 3600000) : sim_between(w, 1000, 60000);
	sim_trace(w, "woken after a suspend");
}

static void pause_route(struct sim_world *w)
{
	uint32_t route = (uint32_t)sim_below(w, w->options.routes);
	bool paused;

	if (!w->options.pauses)
		return;
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (w->lanes[i].route == route && !w->lanes[i].orphan) {
			paused = !rdv_lane_paused(w->lanes[i].lane);
			w->lanes[i].paused = paused;
			rdv_lane_pause(w->lanes[i].lane, paused, &w->effects);
			sim_touch(w, &w->lanes[i]);
			sim_trace(w, "lane %u %s", i, paused ? "paused" : "resumed");
		}
}

static void revoke(struct sim_world *w)
{
	struct sim_lane *l = any_lane(w);
	uint64_t end = sim_lane_end(w, l), count = end > l->start ? end - l->start : 0;
	uint64_t seq = l->start + (count ? sim_below(w, count) : 0);
	struct sim_fate *f;
	enum redrive_status status;
	bool pending = false;

	if (!w->options.revokes || !count)
		return;
	f = sim_fate_of(w, l, seq);
	f->revoke_asked = true;
	status = rdv_lane_revoke(l->lane, sim_now(w), seq, rdv_slice(NULL, 0), &pending, &w->effects);
	sim_trace(w, "lane %u revokes %llu: %s%s", l->index, (unsigned long long)seq, redrive_status_text(status),
		  pending ? ", pending" : "");
	if (f->final && status == REDRIVE_OK)
		sim_fail(w, "lane %u revoked %llu after its end", l->index, (unsigned long long)seq);
	if (pending != (f->calls > 0) && !f->final)
		sim_fail(w, "lane %u: revoking %llu is%s pending, %u calls", l->index, (unsigned long long)seq,
			 pending ? "" : " not", f->calls);
	sim_touch(w, l);
}

static void release(struct sim_world *w)
{
	struct sim_lane *l = any_lane(w);
	struct sim_key *k = &l->keys[1 + sim_below(w, SIM_KEYS - 1)];
	enum redrive_status status =
		l->orphan ? REDRIVE_NOT_FOUND : rdv_lane_release(l->lane, sim_now(w), k->hash, &w->effects);

	sim_trace(w, "lane %u releases a key: %s", l->index, redrive_status_text(status));
	if (status != REDRIVE_OK && k->gate && !l->orphan && rdv_lane_order(l->lane) == RDV_ORDER_KEY)
		sim_fail(w, "lane %u: a closed gate cannot be released: %s", l->index, redrive_status_text(status));
	if (status == REDRIVE_OK)
		k->gate = false;
	sim_touch(w, l);
}

static void reload(struct sim_world *w)
{
	struct sim_route *r = &w->routes[sim_below(w, w->options.routes)];
	struct rdv_retry retry;

	if (!w->options.reloads)
		return;
	sim_draw_retry(w, &retry);
	if (r->policy.retry.on_exhausted == RDV_EXHAUSTED_DROP)
		retry.on_exhausted = RDV_EXHAUSTED_DROP; /* so that the truth need not know when each was decided */
	r->may_drop |= retry.on_exhausted == RDV_EXHAUSTED_DROP;
	r->policy.retry = retry;
	if (r->dedupes && sim_chance(w, 0.3))
		r->policy.dedupe.by = r->policy.dedupe.by ? RDV_DEDUPE_OFF : RDV_DEDUPE_HEADER;
	if (r->policy.order == RDV_ORDER_KEY)
		r->policy.after_dead = (enum rdv_after_dead)sim_below(w, 3);
	r->attempts_min = retry.attempts < r->attempts_min ? retry.attempts : r->attempts_min;
	r->deferrals_min = retry.deferrals < r->deferrals_min ? retry.deferrals : r->deferrals_min;
	r->crashes_min = retry.crashes < r->crashes_min ? retry.crashes : r->crashes_min;
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (&w->routes[w->lanes[i].route] == r && !w->lanes[i].loose) {
			rdv_lane_reload(w->lanes[i].lane, &r->policy, r->rules);
			sim_touch(w, &w->lanes[i]);
		}
	sim_trace(w, "reload of %s", r->name);
}

static void steer_plan(struct sim_world *w)
{
	uint32_t p = (uint32_t)sim_below(w, SIM_PLANS);
	bool cancel = sim_chance(w, 0.1);

	if (!w->options.replays || w->plan_cancelled[p])
		return;
	if (cancel)
		w->plan_cancelled[p] = true, w->plan_paused[p] = false;
	else
		w->plan_paused[p] = !w->plan_paused[p];
	sim_trace(w, "plan %u %s", p, cancel ? "cancelled" : w->plan_paused[p] ? "paused" : "resumed");
	for (uint32_t i = 0; i < w->lane_count; i++) {
		if (cancel)
			rdv_lane_replay_cancel(w->lanes[i].lane, sim_now(w), p + 1, &w->effects);
		else
			rdv_lane_replay_pause(w->lanes[i].lane, sim_now(w), p + 1, w->plan_paused[p], &w->effects);
		sim_touch(w, &w->lanes[i]);
	}
}

static void replay(struct sim_world *w)
{
	if (w->options.replays)
		sim_send_replay(w);
}

static void hand_over(struct sim_world *w)
{
	if (w->options.handovers)
		sim_hand_over(w, any_lane(w));
}

static void restart(struct sim_world *w)
{
	if (sim_chance(w, 0.3))
		sim_reopen_clean(w);
}

static void die(struct sim_world *w)
{
	if (w->options.crash > 0 && sim_chance(w, 0.5))
		w->crashed = true;
}

static void rename_route(struct sim_world *w)
{
	if (w->options.adopts)
		sim_rename(w);
}

static void adopt(struct sim_world *w)
{
	if (w->options.adopts)
		sim_adopt(w);
}

static void storm_resume(struct sim_world *w)
{
	struct sim_lane *l = any_lane(w);

	rdv_target_storm_resume(sim_target_of(w, l)->target, w->routes[l->route].number, sim_now(w));
	sim_touch(w, l);
}

static void (*const deeds[])(struct sim_world *w) = {
	jump,   suspend, pause_route, revoke,  revoke, release,      reload,       steer_plan, replay,
	replay, replay,  hand_over,   restart, die,    storm_resume, rename_route, adopt,      adopt,
};

void sim_chaos(struct sim_world *w)
{
	if (w->healing)
		return;
	deeds[sim_below(w, sizeof deeds / sizeof deeds[0])](w);
	sim_at(w, 1 + (int64_t)(rdv_random_unit(&w->random) * 2 * w->options.chaos_every_ms),
	       (struct sim_event){.kind = SIM_EV_CHAOS});
}
