/* sim_outage.c - worlds with one full outage and nothing else: what a dead handler may cost, and how it comes back.
 *
 * Good messages come steadily; after a while every call fails for some seconds. At every call and after every turn:
 *
 *   reached    at most what was in flight when it began and some twenty calls more, and the probes
 *   charged    nothing, from the moment that the target is down on
 *   recovery   a fifth of the throughput before, doubled each second
 *
 * At the end everything is acked, nothing is dead. */
#include "world.h"

#define BEGINS_MS 12000 /* so many slices were fine */
#define SOME_TWENTY 24

void sim_outage_draw(struct sim_world *w)
{
	struct sim_options *o = &w->options;

	*o = (struct sim_options){.outage = true,
				  .topics = 1,
				  .partitions = 1 + (uint32_t)sim_below(w, SIM_PARTITIONS),
				  .routes = 1 + (uint32_t)sim_below(w, 2),
				  .targets = 1,
				  .messages = 800 + (uint32_t)sim_below(w, 300),
				  .publish_every_ms = 60,
				  .chaos_every_ms = 1e9,
				  .check_every = 64,
				  .trims = true,
				  .sync_ms = 1 + (int64_t)sim_below(w, 12),
				  .stall_ms = 500,
				  .segment_size = 16384,
				  .keep_segments = 6};
	w->outage = (struct sim_outage){.lasts = sim_between(w, 5000, 15000)};
}

void sim_outage_draw_target(struct sim_world *w, struct sim_target *t)
{
	*t = (struct sim_target){0};
	rdv_target_policy_defaults(&t->policy);
	t->policy.concurrency = 8 + (uint32_t)sim_below(w, 25);
}

void sim_outage_draw_route(struct sim_world *w, struct sim_route *r)
{
	rdv_lane_policy_defaults(&r->policy);
	rdv_route_policy_defaults(&r->route_policy);
	r->policy.retry.attempts = 3 + (uint32_t)sim_below(w, 3);
	r->policy.retry.base_ms = 1000;
	r->attempts_min = r->policy.retry.attempts;
	r->deferrals_min = r->policy.retry.deferrals;
	r->crashes_min = r->policy.retry.crashes;
	r->entries_min = r->policy.dedupe.entries;
}

/* The weather event of these worlds: it begins, it ends. */
void sim_outage_weather(struct sim_world *w)
{
	struct sim_outage *o = &w->outage;
	struct sim_target *t = &w->targets[0];

	t->weather = t->weather || w->healing ? 0 : 1;
	sim_trace(w, "the outage %s", t->weather ? "begins" : "is over");
	if (!t->weather)
		return;
	o->began = w->t;
	o->reached = t->calls;
	o->throughput = (double)o->acked / (BEGINS_MS < 10000 ? BEGINS_MS : 10000) * 1000;
	sim_at(w, o->lasts, (struct sim_event){.kind = SIM_EV_WEATHER});
	w->outages++;
}

void sim_outage_acked(struct sim_world *w)
{
	w->outage.acked += !w->outage.began && w->t >= BEGINS_MS - 11000;
}

static void check_reached(struct sim_world *w, bool probe)
{
	struct sim_outage *o = &w->outage;
	uint32_t most = w->targets[0].policy.concurrency + SOME_TWENTY;
	int64_t lasted = w->t - o->began;

	o->probes += probe;
	o->reached += !probe;
	if (o->reached > most)
		sim_fail(w, "%u calls reach a dead handler, %u are fine", o->reached, most);
	if (o->probes > 4 + lasted / 5000)
		sim_fail(w, "%u probes reach a dead handler in %lld ms", o->probes, (long long)lasted);
}

/* In its first seconds, counted from the first call after the first probe that was fine. */
static void check_ramp(struct sim_world *w)
{
	static const double shares[] = {0.2, 0.6, 1.4}; /* of the throughput: a fifth, doubled, doubled */
	struct sim_outage *o = &w->outage;
	int64_t second;
	double most;

	if (!o->half)
		o->half = w->t;
	second = (w->t - o->half) / 1000;
	o->since++;
	if (second >= 3)
		return;
	most = shares[second] * (o->throughput > 5 ? o->throughput : 5) * 1.2 + 3;
	if (o->since > most)
		sim_fail(w, "%u calls in second %lld after an outage, %.1f are fine", o->since, (long long)second + 1,
			 most);
}

void sim_outage_call(struct sim_world *w, const struct rdv_effect *e)
{
	struct rdv_target_status status;

	if (!w->outage.began || e->dispatch.request)
		return;
	rdv_target_status(w->targets[0].target, sim_now(w), &status);
	if (w->targets[0].weather)
		check_reached(w, e->dispatch.probe);
	else if (status.state == RDV_HALF)
		check_ramp(w);
}

void sim_outage_turn(struct sim_world *w)
{
	struct rdv_target_status status;

	rdv_target_status(w->targets[0].target, sim_now(w), &status);
	for (uint32_t i = 0; i < w->lane_count && status.state != RDV_UP; i++)
		if (rdv_lane_account(w->lanes[i].lane)->failed)
			sim_fail(w, "lane %u: %llu charged in an outage", i,
				 (unsigned long long)rdv_lane_account(w->lanes[i].lane)->failed);
}

void sim_outage_end(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		const struct rdv_account *a = rdv_lane_account(w->lanes[i].lane);
		if (a->acked != a->received || a->failed)
			sim_fail(w, "lane %u: after an outage %llu of %llu are acked, %llu were charged", i,
				 (unsigned long long)a->acked, (unsigned long long)a->received,
				 (unsigned long long)a->failed);
	}
}
