/* sim_draw.c - what a world is made of: all its settings, drawn from the seed; and how it is healed before its end. */
#include "world.h"

void sim_draw_retry(struct sim_world *w, struct rdv_retry *r)
{
	static const enum rdv_preset presets[] = {RDV_PRESET_PAYMENT, RDV_PRESET_ORDER, RDV_PRESET_NOTICE,
						  RDV_PRESET_LOG, RDV_PRESET_REALTIME};

	rdv_retry_defaults(r);
	if (sim_chance(w, 0.2)) {
		rdv_retry_preset(r, presets[sim_below(w, 5)]);
		return;
	}
	r->attempts = 1 + (uint32_t)sim_below(w, 8);
	r->on_exhausted = sim_chance(w, 0.1) ? RDV_EXHAUSTED_DROP : RDV_EXHAUSTED_DEAD;
	r->backoff = (enum rdv_backoff)sim_below(w, RDV_BACKOFF_COUNT);
	r->base_ms = sim_between(w, 1, sim_chance(w, 0.5) ? 100 : 5000);
	r->factor = 1 + (double)sim_below(w, 30) / 10;
	r->exponent = 1 + (double)sim_below(w, 20) / 10;
	r->cap_ms = r->backoff == RDV_BACKOFF_ROCKETMQ || sim_chance(w, 0.2) ? 0 : sim_between(w, r->base_ms, 600000);
	r->jitter = (enum rdv_jitter)sim_below(w, 4);
	r->jitter_fraction = (double)sim_below(w, 101) / 100;
	r->min_ms = sim_chance(w, 0.3) ? 0 : sim_between(w, 1, 500);
	if (sim_chance(w, 0.2))
		r->max_age_ms = sim_between(w, 1000, 600000);
	r->crashes = 1 + (uint32_t)sim_below(w, 3);
	r->deferrals = sim_chance(w, 0.3) ? 1 + (uint32_t)sim_below(w, 4) : 1000;
	r->delay_count = 1 + (uint32_t)sim_below(w, 5);
	for (uint32_t i = 0; i < r->delay_count; i++)
		r->delays[i] = sim_between(w, 0, 20000);
}

static void draw_target(struct sim_world *w, struct sim_target *t)
{
	if (w->options.outage) {
		sim_outage_draw_target(w, t);
		return;
	}
	*t = (struct sim_target){0};
	rdv_target_policy_defaults(&t->policy);
	t->policy.concurrency = sim_chance(w, 0.3) ? 1 : 1 + (uint32_t)sim_below(w, 32);
	t->policy.adaptive = sim_chance(w, 0.15);
	t->policy.adaptive_max = t->policy.concurrency + (uint32_t)sim_below(w, 32);
	t->policy.rate = sim_chance(w, 0.2) ? 5 + (double)sim_below(w, 200) : 0;
	t->policy.breaker.on = !sim_chance(w, 0.2);
	t->policy.budget.on = !sim_chance(w, 0.3);
}

/* A few rules of the user's, by status, text, class or timeout. */
static void draw_rules(struct sim_world *w, struct sim_route *r)
{
	const struct rdv_rule_spec kinds[] = {
		{.statuses = {500}, .status_count = 1, .then = RDV_THEN_REJECT},
		{.statuses = {502, 503}, .status_count = 2, .then = RDV_THEN_RETRY, .has_retry = true},
		{.statuses = {400}, .status_count = 1, .then = RDV_THEN_RETRY},
		{.statuses = {500, 429},
		 .status_count = 2,
		 .then = RDV_THEN_DEFER,
		 .defer_ms = sim_between(w, -1, 900000)},
		{.timeout = true, .then = RDV_THEN_DROP},
		{.text_pattern = "fail", .then = RDV_THEN_RETRY, .has_retry = true},
		{.statuses = {422}, .status_count = 1, .then = RDV_THEN_ACK},
		{.class_pattern = "(?i)refused|reset", .then = RDV_THEN_RETRY, .has_retry = true},
	};
	struct rdv_rule_spec specs[3];
	size_t count = 1 + sim_below(w, 3), bad;
	struct rdv_error error = {0};

	for (size_t i = 0; i < count; i++) {
		struct rdv_retry *own = &specs[i].retry;

		specs[i] = kinds[sim_below(w, sizeof kinds / sizeof kinds[0])];
		if (!specs[i].has_retry)
			continue;
		sim_draw_retry(w, own);
		r->may_drop |= own->on_exhausted == RDV_EXHAUSTED_DROP;
		r->attempts_min = own->attempts < r->attempts_min ? own->attempts : r->attempts_min;
		r->deferrals_min = own->deferrals < r->deferrals_min ? own->deferrals : r->deferrals_min;
		r->crashes_min = own->crashes < r->crashes_min ? own->crashes : r->crashes_min;
	}
	if (rdv_rules_compile(specs, count, &r->rules, &bad, &error) != REDRIVE_OK)
		sim_fail(w, "rule %zu: %s", bad, error.text);
}

static void draw_route(struct sim_world *w, struct sim_route *r, uint32_t index)
{
	rdv_rules_unref(r->rules);
	*r = (struct sim_route){.topic = (uint32_t)sim_below(w, w->options.topics),
				.target = (uint32_t)sim_below(w, w->options.targets)};
	snprintf(r->name, sizeof r->name, "route-%u", index);
	if (w->options.outage) {
		sim_outage_draw_route(w, r);
		return;
	}
	rdv_lane_policy_defaults(&r->policy);
	rdv_route_policy_defaults(&r->route_policy);
	sim_draw_retry(w, &r->policy.retry);
	r->policy.order = sim_chance(w, 0.6) ? RDV_ORDER_KEY : RDV_ORDER_NONE;
	if (r->policy.order == RDV_ORDER_KEY)
		r->policy.after_dead = (enum rdv_after_dead)sim_below(w, 3);
	if (sim_chance(w, 0.25)) {
		r->policy.dedupe.by = RDV_DEDUPE_HEADER;
		r->policy.dedupe.ttl_ms = sim_between(w, 1000, 3600000);
		r->policy.dedupe.entries = sim_chance(w, 0.5) ? 1000 : 1 + sim_below(w, 8);
	}
	r->entries_min = r->policy.dedupe.entries;
	r->dedupes = r->policy.dedupe.by != RDV_DEDUPE_OFF;
	r->route_policy.storm_hold = sim_chance(w, 0.7);
	if (sim_chance(w, 0.2))
		r->route_policy.family = (struct rdv_family){2 + (uint32_t)sim_below(w, 6), sim_between(w, 1000, 60000),
							     (enum rdv_family_then)sim_below(w, 3)};
	r->start_before_call = sim_chance(w, 0.25);
	r->unrecorded_max = sim_chance(w, 0.3) ? 2 + (uint32_t)sim_below(w, 10) : 0;
	r->attempts_min = r->policy.retry.attempts;
	r->deferrals_min = r->policy.retry.deferrals;
	r->crashes_min = r->policy.retry.crashes;
	r->max_age_min = r->policy.retry.max_age_ms;
	r->may_drop = r->policy.retry.on_exhausted == RDV_EXHAUSTED_DROP;
	if (sim_chance(w, 0.3))
		draw_rules(w, r);
}

static void draw_lanes(struct sim_world *w)
{
	w->lane_count = 0;
	for (uint32_t r = 0; r < w->options.routes; r++)
		for (uint32_t p = 0; p < w->options.partitions; p++)
			sim_make_lane(w, r, p, 0);
}

void sim_draw(struct sim_world *w)
{
	struct sim_options *o = &w->options;

	*o = (struct sim_options){.topics = 1 + (uint32_t)sim_below(w, SIM_TOPICS),
				  .partitions = 1 + (uint32_t)sim_below(w, SIM_PARTITIONS),
				  .routes = 1 + (uint32_t)sim_below(w, SIM_ROUTES),
				  .targets = 1 + (uint32_t)sim_below(w, SIM_TARGETS)};
	o->messages = sim_chance(w, 0.1) ? 300 : 10 + (uint32_t)sim_below(w, 100);
	o->crash = sim_chance(w, 0.3) ? 0 : rdv_random_unit(&w->random) * 0.004;
	o->publish_every_ms = sim_chance(w, 0.3) ? 1 : 1 + (double)sim_below(w, 400);
	o->chaos_every_ms = sim_chance(w, 0.2) ? 1e9 : 20 + (double)sim_below(w, 3000);
	o->check_every = 1u << sim_below(w, 7);
	o->wall_jumps = sim_chance(w, 0.5);
	o->suspends = sim_chance(w, 0.3);
	o->replays = sim_chance(w, 0.6);
	o->revokes = sim_chance(w, 0.4);
	o->reloads = sim_chance(w, 0.3);
	o->pauses = sim_chance(w, 0.4);
	o->trims = sim_chance(w, 0.7);
	o->handovers = sim_chance(w, 0.4);
	o->delays = sim_chance(w, 0.4);
	o->damage = sim_chance(w, 0.1);
	o->storms = sim_chance(w, 0.3);
	o->sync_ms = sim_chance(w, 0.2) ? 200 : 1 + (int64_t)sim_below(w, 12);
	o->stall_ms = sim_between(w, 10, 5000);
	o->segment_size = 2048u << sim_below(w, 4);
	o->keep_segments = 1 + (uint32_t)sim_below(w, 6);
	o->adopts = sim_chance(w, 0.3);
	if (sim_chance(w, 0.01))
		sim_outage_draw(w);
	for (uint32_t i = 0; i < o->targets; i++)
		draw_target(w, &w->targets[i]);
	for (uint32_t i = 0; i < o->routes; i++)
		draw_route(w, &w->routes[i], i);
	for (uint32_t s = 0; s < SIM_STREAMS; s++) {
		w->streams[s].stream = s + 1;
		w->streams[s].count = w->streams[s].durable = 0;
	}
	draw_lanes(w);
}

/* Handlers are well, nothing is paused or held: now everything must come to an end. */
void sim_heal(struct sim_world *w)
{
	bool rejects = sim_chance(w, 0.5);

	for (uint32_t i = 0; i < w->options.routes; i++)
		rejects = rejects && !w->routes[i].rules; /* by a rule it may be tried for hours */
	w->healing = true;
	sim_trace(w, "healed");
	for (uint32_t i = 0; i < w->options.targets; i++)
		w->targets[i].weather = 0;
	for (uint32_t s = 0; s < SIM_STREAMS; s++)
		for (size_t i = 0; i < w->streams[s].count; i++) {
			struct sim_message *m = &w->streams[s].items[i];
			bool bad = m->nature == SIM_POISON || m->nature == SIM_REJECT || m->nature == SIM_CRASHER;
			m->nature = bad && rejects ? SIM_REJECT : SIM_GOOD;
		}
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (w->lanes[i].paused) {
			w->lanes[i].paused = false;
			rdv_lane_pause(w->lanes[i].lane, false, &w->effects);
		}
	for (uint32_t p = 0; p < SIM_PLANS; p++) {
		for (uint32_t i = 0; i < w->lane_count && w->plan_paused[p]; i++)
			rdv_lane_replay_pause(w->lanes[i].lane, sim_now(w), p + 1, false, &w->effects);
		w->plan_paused[p] = false;
	}
	for (uint32_t i = 0; i < w->lane_count; i++)
		sim_touch(w, &w->lanes[i]);
}
