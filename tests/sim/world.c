/* world.c - the world's loop: events in the order of their time, turns of the core, and the way to the end.
 *
 * A turn takes one or several events that are due, runs the dispatchers that were touched or whose time has come,
 * flushes and appends, then checks. Virtual time jumps to whatever comes next. When all is published and some time has
 * passed, the world is healed, and everything in it has to come to its end; if nothing is due and something is not
 * finished, it is stuck. */
#include "world.h"
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>

#define LONGEST_MS (90ll * 86400 * 1000)
#define MOST_STEPS 2000000

void sim_world_init(struct sim_world *w)
{
	*w = (struct sim_world){0};
	sim_log_init(&w->log);
	rdv_effects_init(&w->effects);
	rdv_buffer_init(&w->deed_bytes, 0);
}

static void free_core(struct sim_world *w)
{
	for (uint32_t i = 0; i < SIM_LANES; i++) {
		rdv_lane_free(w->lanes[i].lane);
		w->lanes[i].lane = NULL;
	}
	for (uint32_t i = 0; i < SIM_TARGETS; i++) {
		rdv_dispatcher_free(w->targets[i].dispatcher);
		rdv_target_free(w->targets[i].target);
		w->targets[i] = (struct sim_target){0};
	}
	rdv_target_free(w->orphan_target);
	w->orphan_target = NULL;
	sim_free_windows(w);
}

void sim_world_done(struct sim_world *w)
{
	free_core(w);
	for (uint32_t i = 0; i < SIM_LANES; i++)
		free(w->lanes[i].fates);
	for (uint32_t i = 0; i < SIM_ROUTES; i++)
		rdv_rules_unref(w->routes[i].rules);
	for (uint32_t i = 0; i < SIM_STREAMS; i++)
		free(w->streams[i].items);
	sim_log_done(&w->log);
	rdv_effects_done(&w->effects);
	rdv_buffer_done(&w->deed_bytes);
	free(w->deeds);
	free(w->calls);
	free(w->replays);
	free(w->events);
}

/* ---- small things ---- */

struct rdv_now sim_now(const struct sim_world *w)
{
	return (struct rdv_now){{w->t + w->mono_base}, {w->t + w->wall_base}};
}

bool sim_chance(struct sim_world *w, double p)
{
	return rdv_random_unit(&w->random) < p;
}

uint64_t sim_below(struct sim_world *w, uint64_t bound)
{
	return rdv_random_below(&w->random, bound);
}

int64_t sim_between(struct sim_world *w, int64_t low, int64_t high)
{
	return high <= low ? low : low + (int64_t)sim_below(w, (uint64_t)(high - low) + 1);
}

struct sim_partition *sim_partition_of(struct sim_world *w, const struct sim_lane *l)
{
	return &w->streams[w->routes[l->route].topic * SIM_PARTITIONS + l->partition];
}

struct sim_message *sim_message_of(struct sim_world *w, const struct sim_lane *l, uint64_t seq)
{
	struct sim_partition *p = sim_partition_of(w, l);

	if (seq >= p->count)
		sim_fail(w, "lane %u speaks of %llu, which does not exist", l->index, (unsigned long long)seq);
	return &p->items[seq];
}

struct sim_fate *sim_fate_of(struct sim_world *w, struct sim_lane *l, uint64_t seq)
{
	sim_message_of(w, l, seq);
	if (seq >= l->fate_capacity) {
		size_t capacity = seq * 2 + 128;
		l->fates = realloc(l->fates, capacity * sizeof *l->fates);
		assert(l->fates);
		memset(l->fates + l->fate_capacity, 0, (capacity - l->fate_capacity) * sizeof *l->fates);
		l->fate_capacity = capacity;
	}
	return &l->fates[seq];
}

struct sim_lane *sim_lane_of(struct sim_world *w, const struct rdv_lane *lane)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (w->lanes[i].lane == lane)
			return &w->lanes[i];
	sim_fail(w, "an effect of an unknown lane");
}

struct sim_lane *sim_lane_by_stream(struct sim_world *w, uint32_t stream)
{
	if (stream < SIM_LANE_STREAM || stream - SIM_LANE_STREAM >= w->lane_count)
		sim_fail(w, "a record of the unknown stream %u", stream);
	return &w->lanes[stream - SIM_LANE_STREAM];
}

struct sim_key *sim_key_of(struct sim_lane *l, uint64_t hash)
{
	for (uint32_t i = 1; hash && i < SIM_KEYS; i++)
		if (l->keys[i].hash == hash)
			return &l->keys[i];
	return NULL;
}

struct sim_target *sim_target_of(struct sim_world *w, const struct sim_lane *l)
{
	return &w->targets[w->routes[l->route].target];
}

void sim_touch(struct sim_world *w, struct sim_lane *l)
{
	struct sim_target *t = sim_target_of(w, l);

	if (l->loose)
		return;
	t->touched = true;
	rdv_dispatcher_touch(t->dispatcher, l->lane);
}

void sim_trace(struct sim_world *w, const char *fmt, ...)
{
	va_list args;

	if (!w->trace)
		return;
	va_start(args, fmt);
	printf("%8llu %10.3f  ", (unsigned long long)w->step, (double)w->t / 1000);
	vprintf(fmt, args);
	putchar('\n');
	va_end(args);
}

void sim_fail(struct sim_world *w, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("seed %llu step %llu at %.3f s: ", (unsigned long long)w->seed, (unsigned long long)w->step,
	       (double)w->t / 1000);
	vprintf(fmt, args);
	putchar('\n');
	fflush(stdout);
	va_end(args);
	longjmp(*w->out, 1);
}

/* ---- events: a heap by time, then by age ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

void sim_at(struct sim_world *w, int64_t delay, struct sim_event event)
{
	size_t i = w->event_count++;

	if (w->event_count > w->event_capacity) {
		w->event_capacity = w->event_capacity ? w->event_capacity * 2 : 256;
		w->events = realloc(w->events, w->event_capacity * sizeof *w->events);
		assert(w->events);
	}
	event.at = w->t + delay;
	event.serial = ++w->serial;
	event.run = event.kind <= SIM_EV_WEATHER ? 0 : w->run;
	for (; i && earlier(&event, &w->events[(i - 1) / 2]); i = (i - 1) / 2)
		w->events[i] = w->events[(i - 1) / 2];
	w->events[i] = event;
}

static struct sim_event pop(struct sim_world *w)
{
	struct sim_event top = w->events[0], last = w->events[--w->event_count];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < w->event_count; i = child) {
		if (child + 1 < w->event_count && earlier(&w->events[child + 1], &w->events[child]))
			child++;
		if (!earlier(&w->events[child], &last))
			break;
		w->events[i] = w->events[child];
	}
	w->events[i] = last;
	return top;
}

static void history(struct sim_world *w, const struct sim_event *e);

static void handle(struct sim_world *w, const struct sim_event *e)
{
	switch (e->kind) {
	case SIM_EV_PUBLISH:
		sim_publish(w);
		break;
	case SIM_EV_CHAOS:
		sim_chaos(w);
		break;
	case SIM_EV_WEATHER:
		sim_weather(w);
		break;
	case SIM_EV_SYNCED:
		if (w->syncing == e->c)
			sim_deliver(w, e->c);
		break;
	case SIM_EV_ANSWER:
		if (w->calls[e->a].open && w->calls[e->a].call == e->c)
			sim_answer(w, e->a);
		break;
	case SIM_EV_LATE:
		sim_late(w, e);
		break;
	case SIM_EV_HISTORY:
		history(w, e);
		break;
	case SIM_EV_LETTERED:
		sim_lettered(w, e);
		break;
	case SIM_EV_OUTCOME:
		sim_outcome_stored(w, e);
		break;
	default:
		break;
	}
}

static void history(struct sim_world *w, const struct sim_event *e)
{
	struct sim_lane *l = &w->lanes[e->a];
	struct sim_frame *f = sim_log_find(&w->log, (struct rdv_place){(uint32_t)(e->c >> 32), (uint32_t)e->c, 0});
	struct rdv_buffer copy;

	if (e->epoch != l->epoch)
		return; /* asked by a lane that was handed over */
	rdv_buffer_init(&copy, 0);
	if (f)
		rdv_buffer_slice(&copy, sim_log_payload(&w->log, f));
	rdv_lane_restate(l->lane, sim_now(w), e->b, rdv_buffer_as_slice(&copy), &w->effects);
	rdv_buffer_done(&copy);
	sim_touch(w, l);
}

void sim_answer_histories(struct sim_world *w)
{
	for (size_t i = 0; i < w->event_count && !w->crashed; i++) {
		struct sim_event e = w->events[i];
		if (e.kind != SIM_EV_HISTORY || e.run != w->run)
			continue;
		w->events[i].kind = SIM_EV_KINDS; /* stays in the heap and means nothing */
		history(w, &e);
		sim_execute(w);
	}
}

/* ---- turns ---- */

static void run_dispatchers(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->options.targets && !w->crashed; i++) {
		struct sim_target *t = &w->targets[i];
		if (!t->touched && t->wake > sim_now(w).mono.ms)
			continue;
		t->touched = false;
		t->wake = rdv_dispatcher_run(t->dispatcher, sim_now(w), 1 + (uint32_t)sim_below(w, 8), &w->effects).ms;
		sim_execute(w);
	}
}

static void turn(struct sim_world *w)
{
	uint64_t burst = 1 + sim_below(w, 4);

	w->step++;
	while (burst-- && w->event_count && w->events[0].at <= w->t && !w->crashed) {
		struct sim_event e = pop(w);
		if (e.run && e.run != w->run)
			continue;
		handle(w, &e);
		sim_execute(w);
	}
	if (sim_now(w).wall.ms > w->latest_wall)
		w->latest_wall = sim_now(w).wall.ms;
	if (!w->crashed)
		sim_reap(w);
	run_dispatchers(w);
	if (!w->crashed)
		sim_turn_end(w);
	if (!w->crashed)
		sim_check_turn(w);
	while (w->crashed)
		sim_crash(w);
}

/* Time goes on to what comes next; false: nothing ever comes. */
static bool advance(struct sim_world *w)
{
	int64_t next = w->event_count ? w->events[0].at : INT64_MAX;

	for (uint32_t i = 0; i < w->options.targets; i++) {
		const struct sim_target *t = &w->targets[i];
		int64_t at = t->touched || t->wake <= sim_now(w).mono.ms ? w->t
			     : t->wake == RDV_NEVER                      ? INT64_MAX
									 : t->wake - w->mono_base;
		next = at < next ? at : next;
	}
	if (next == INT64_MAX)
		return false;
	w->t = next > w->t ? next : w->t;
	return true;
}

/* ---- the end ---- */

static bool finished(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		const struct rdv_account *a = rdv_lane_account(w->lanes[i].lane);
		if (a->ready + a->waiting + a->held + a->in_flight)
			return false;
	}
	if (w->log.durable != sim_log_last(&w->log))
		return false;
	for (uint32_t i = 0; i < w->lane_count; i++)
		for (uint64_t seq = w->lanes[i].start; seq < sim_lane_end(w, &w->lanes[i]); seq++)
			if (!sim_fate_of(w, &w->lanes[i], seq)->durable_final)
				return false;
	for (size_t i = 0; i < w->replay_count; i++)
		if (w->replays[i].state != SIM_REPLAY_STORED && !w->plan_cancelled[w->replays[i].plan])
			return false;
	return true;
}

/* What an operator would do for what cannot go by itself: closed gates, storms. True if anything was opened. */
static bool unblock(struct sim_world *w)
{
	bool any = false;

	sim_adopt_all(w);
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		for (uint32_t k = 1; k < SIM_KEYS; k++)
			if (l->keys[k].gate &&
			    rdv_lane_release(l->lane, sim_now(w), l->keys[k].hash, &w->effects) == REDRIVE_OK) {
				l->keys[k].gate = false;
				any = true;
			}
		if (rdv_target_storm_held(sim_target_of(w, l)->target, w->routes[l->route].number)) {
			rdv_target_storm_resume(sim_target_of(w, l)->target, w->routes[l->route].number, sim_now(w));
			any = true;
		}
		sim_touch(w, l);
	}
	sim_resend_replays(w);
	sim_execute(w);
	sim_turn_end(w);
	return any;
}

/* Names the first thing that does not go on by itself. */
static void report_stuck(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		for (uint64_t seq = w->lanes[i].start; seq < sim_lane_end(w, &w->lanes[i]); seq++) {
			struct rdv_where where = {0};
			if (sim_fate_of(w, &w->lanes[i], seq)->durable_final)
				continue;
			(void)!rdv_lane_where(w->lanes[i].lane, sim_now(w), seq, &where);
			sim_fail(w, "stuck: nothing is due, and lane %u %llu is %s", i, (unsigned long long)seq,
				 rdv_state_name(where.state));
		}
	for (size_t i = 0; i < w->replay_count; i++)
		if (w->replays[i].state != SIM_REPLAY_STORED)
			sim_fail(w, "stuck: nothing is due, and lane %u replay %llu has no outcome", w->replays[i].lane,
				 (unsigned long long)w->replays[i].number);
	sim_fail(w, "stuck: nothing is due and not everything is finished");
}

static void finish(struct sim_world *w)
{
	int64_t until = w->t + LONGEST_MS;
	uint64_t steps = w->step + MOST_STEPS, next = w->step + 64, idle = 0;

	sim_heal(w);
	sim_execute(w);
	sim_resend_replays(w);
	sim_execute(w);
	while (!finished(w)) {
		bool more = advance(w);
		if (more)
			turn(w);
		if (!more || w->step >= next) {
			idle = unblock(w) || more ? 0 : idle + 1;
			next = w->step + 64;
			turn(w);
		}
		if (idle > 3)
			report_stuck(w);
		if (w->t > until || w->step > steps)
			sim_fail(w, "not finished after %.0f s and %llu steps",
				 (double)(w->t - until + LONGEST_MS) / 1000, (unsigned long long)w->step);
	}
}

static void reset(struct sim_world *w, uint64_t seed)
{
	free_core(w);
	rdv_random_seed(&w->random, seed);
	w->seed = seed;
	w->step = w->serial = w->crashes = 0;
	w->healing = w->crashed = false;
	w->t = 0;
	w->latest_wall = 0;
	w->mono_base = (int64_t)sim_below(w, 1000000);
	w->wall_base = 1700000000000 + (int64_t)sim_below(w, 1000000000);
	w->run = w->published = 0;
	w->call_count = w->replay_count = w->event_count = w->deed_count = 0;
	w->syncing = w->trim_ticket = 0;
	w->next_trim = 0;
	w->trimming = false;
	rdv_buffer_clear(&w->deed_bytes);
	rdv_effects_clear(&w->effects);
	memset(w->plan_paused, 0, sizeof w->plan_paused);
	memset(w->plan_cancelled, 0, sizeof w->plan_cancelled);
}

void sim_world_run(struct sim_world *w, uint64_t seed)
{
	int64_t end;

	reset(w, seed);
	sim_draw(w);
	sim_log_reset(&w->log, w->options.segment_size);
	sim_start(w);
	sim_at(w, 0, (struct sim_event){.kind = SIM_EV_PUBLISH});
	sim_at(w, (int64_t)w->options.chaos_every_ms, (struct sim_event){.kind = SIM_EV_CHAOS});
	sim_at(w, w->options.outage ? 12000 : sim_between(w, 500, 60000), (struct sim_event){.kind = SIM_EV_WEATHER});
	end = RDV_NEVER;
	while (w->t < end) {
		if (end == RDV_NEVER && w->published == w->options.messages)
			end = w->t + sim_between(w, 0, 60000);
		if (!advance(w))
			break;
		turn(w);
	}
	finish(w);
	sim_turn_end(w); /* what the last turn released */
	sim_check_end(w);
	sim_reopen_clean(w);
	while (!finished(w) && advance(w))
		turn(w);
	sim_turn_end(w);
	sim_check_end(w);
}
