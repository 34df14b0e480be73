/* sim_adopt.c - routes that get another name, the orphans they leave, and who adopts them.
 *
 * A route is renamed: its lanes stop and are marked as orphans that end at the next offset, and new lanes of the new
 * name begin there. When its calls have ended an orphan is let go of; any route of the same topic may adopt it, also
 * one that was given the same messages itself. Marks are records of the runtime's; what a crash leaves of them counts,
 * and then the configuration is looked at again, as at every start: who has a name that is gone is an orphan. */
#include "world.h"
#include <assert.h>
#include <stdlib.h>

uint64_t sim_lane_end(struct sim_world *w, const struct sim_lane *l)
{
	uint64_t durable = sim_partition_of(w, l)->durable;

	return l->end < durable ? l->end : durable;
}

bool sim_is_family(const struct sim_lane *a, const struct sim_lane *b)
{
	return a->route == b->route && a->generation == b->generation && a->partition == b->partition && !a->orphan &&
	       !b->orphan;
}

struct rdv_dedupe *sim_window_of(struct sim_world *w, const struct sim_lane *l)
{
	return &w->routes[l->route].windows[l->generation];
}

void sim_free_windows(struct sim_world *w)
{
	for (uint32_t r = 0; r < SIM_ROUTES; r++)
		for (uint32_t g = 0; g < SIM_GENERATIONS; g++) {
			rdv_dedupe_done(&w->routes[r].windows[g]);
			w->routes[r].windows[g] = (struct rdv_dedupe){0};
		}
}

struct sim_lane *sim_make_lane(struct sim_world *w, uint32_t route, uint32_t partition, uint64_t start)
{
	struct sim_lane *l = &w->lanes[w->lane_count];
	struct sim_fate *fates = l->fates;
	size_t capacity = l->fate_capacity;

	*l = (struct sim_lane){.index = w->lane_count,
			       .route = route,
			       .generation = w->routes[route].generation,
			       .partition = partition,
			       .start = start,
			       .end = UINT64_MAX,
			       .fates = fates,
			       .fate_capacity = capacity,
			       .stream = SIM_LANE_STREAM + w->lane_count};
	l->durable = (struct sim_mark){route, l->generation, false, UINT64_MAX};
	if (capacity)
		memset(fates, 0, capacity * sizeof *fates);
	for (uint32_t k = 1; k < SIM_KEYS; k++)
		l->keys[k].hash = k * 0x9e3779b97f4a7c15ull;
	w->lane_count++;
	return l;
}

void sim_join_family(struct sim_world *w, struct sim_lane *l)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (&w->lanes[i] != l && w->lanes[i].lane && sim_is_family(&w->lanes[i], l) &&
		    rdv_lane_add_sibling(l->lane, w->lanes[i].lane, sim_now(w), &w->effects))
			return;
}

/* ---- marks ---- */

static void mark(struct sim_world *w, struct sim_lane *l)
{
	const struct sim_frame frame = {.type = RDV_RECORD_LANE, .stream = l->stream, .seq = 1};
	const struct rdv_lane_fields fields = {
		.route = rdv_slice_text("route"),
		.topic = rdv_slice_text("topic"),
		.start = l->end,
		.epoch = l->route * SIM_GENERATIONS + l->generation,
		.orphan = l->orphan,
	};
	struct rdv_buffer bytes;

	rdv_buffer_init(&bytes, 0);
	rdv_lane_encode(&fields, &bytes);
	sim_record(w, l, &frame, rdv_buffer_as_slice(&bytes));
	rdv_buffer_done(&bytes);
}

void sim_learn_mark(struct sim_lane *l, struct rdv_slice payload)
{
	struct rdv_lane_fields f;

	if (rdv_lane_decode(payload, &f) != REDRIVE_OK)
		abort();
	l->durable = (struct sim_mark){(uint32_t)f.epoch / SIM_GENERATIONS, (uint32_t)f.epoch % SIM_GENERATIONS,
				       f.orphan, f.start};
}

static void make_orphan(struct sim_world *w, struct sim_lane *l, uint64_t end)
{
	l->orphan = true;
	if (l->end > end)
		l->end = end;
	mark(w, l);
}

/* ---- a route is renamed ---- */

static bool is_of(const struct sim_lane *l, uint32_t route, uint32_t generation)
{
	return l->route == route && l->generation == generation;
}

static bool all_born(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (!w->lanes[i].born)
			return false;
	return true;
}

void sim_rename(struct sim_world *w)
{
	uint32_t route = (uint32_t)sim_below(w, w->options.routes), before = w->lane_count;
	struct sim_route *r = &w->routes[route];

	if (r->generation + 1 == SIM_GENERATIONS || !all_born(w))
		return;
	for (uint32_t i = 0; i < before; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (l->orphan || !is_of(l, route, r->generation))
			continue;
		rdv_lane_stop(l->lane);
		l->stopped = true;
		make_orphan(w, l, sim_partition_of(w, l)->count);
	}
	r->generation++;
	for (uint32_t p = 0; p < w->options.partitions; p++) {
		struct sim_partition *stream = &w->streams[r->topic * SIM_PARTITIONS + p];
		struct sim_lane *l = sim_make_lane(w, route, p, stream->count);
		sim_new_lane(w, l);
		sim_open_lane(w, l, false);
	}
	sim_trace(w, "%s gets its name number %u", r->name, r->generation);
}

static bool has_calls(struct sim_world *w, uint32_t route, uint32_t generation)
{
	for (size_t i = 0; i < w->call_count; i++) {
		const struct sim_lane *l = &w->lanes[w->calls[i].lane];
		if (w->calls[i].open && l->orphan && is_of(l, route, generation))
			return true;
	}
	return false;
}

void sim_reap(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (!l->orphan || l->loose || has_calls(w, l->route, l->generation))
			continue;
		rdv_lane_leave_siblings(l->lane, sim_now(w), &w->effects);
		rdv_lane_move_dedupe(l->lane, NULL, sim_now(w), &w->effects);
		rdv_dispatcher_remove(sim_target_of(w, l)->dispatcher, l->lane);
		rdv_lane_move_to(l->lane, w->orphan_target, 0);
		rdv_lane_stop(l->lane);
		l->loose = true;
		sim_trace(w, "lane %u is an orphan", i);
		sim_execute(w);
	}
}

/* ---- adoption ---- */

static void share_limits(struct sim_route *to, const struct sim_route *from)
{
	to->attempts_min = from->attempts_min < to->attempts_min ? from->attempts_min : to->attempts_min;
	to->deferrals_min = from->deferrals_min < to->deferrals_min ? from->deferrals_min : to->deferrals_min;
	to->crashes_min = from->crashes_min < to->crashes_min ? from->crashes_min : to->crashes_min;
	to->entries_min = from->entries_min < to->entries_min ? from->entries_min : to->entries_min;
	to->may_drop |= from->may_drop;
	to->dedupes |= from->dedupes;
}

static bool is_paused(struct sim_world *w, uint32_t route)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (w->lanes[i].route == route && !w->lanes[i].orphan && w->lanes[i].paused)
			return true;
	return false;
}

static void adopt_lane(struct sim_world *w, struct sim_lane *l, uint32_t route)
{
	struct sim_route *r = &w->routes[route];
	bool paused = is_paused(w, route);

	sim_trace(w, "lane %u is adopted by %s", l->index, r->name);
	share_limits(r, &w->routes[l->route]);
	l->route = route;
	l->generation = r->generation;
	l->orphan = l->loose = l->stopped = false;
	mark(w, l);
	rdv_lane_move_to(l->lane, w->targets[r->target].target, r->number);
	rdv_lane_reload(l->lane, &r->policy, r->rules);
	if (rdv_lane_paused(l->lane) != paused)
		rdv_lane_pause(l->lane, paused, &w->effects);
	l->paused = paused;
	rdv_lane_move_dedupe(l->lane, sim_window_of(w, l), sim_now(w), &w->effects);
	if (rdv_dispatcher_add(sim_target_of(w, l)->dispatcher, l->lane) != REDRIVE_OK)
		sim_fail(w, "lane %u cannot be added", l->index);
	sim_join_family(w, l);
	sim_touch(w, l);
	w->adopted++;
}

static void adopt_all_of(struct sim_world *w, uint32_t old, uint32_t generation, uint32_t route)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (l->orphan && is_of(l, old, generation) &&
		    (!l->loose ||
		     (w->routes[route].policy.order == RDV_ORDER_KEY && rdv_lane_order(l->lane) != RDV_ORDER_KEY)))
			return;
	}
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++)
		if (w->lanes[i].orphan && is_of(&w->lanes[i], old, generation)) {
			adopt_lane(w, &w->lanes[i], route);
			sim_execute(w);
		}
}

void sim_adopt(struct sim_world *w)
{
	uint32_t i = (uint32_t)sim_below(w, w->lane_count), route = (uint32_t)sim_below(w, w->options.routes);
	const struct sim_lane *l = &w->lanes[i];

	if (l->orphan && w->routes[route].topic == w->routes[l->route].topic)
		adopt_all_of(w, l->route, l->generation, route);
}

void sim_adopt_all(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++)
		if (w->lanes[i].orphan && w->lanes[i].loose)
			adopt_all_of(w, w->lanes[i].route, w->lanes[i].generation, w->lanes[i].route);
}

/* ---- a start ---- */

static bool has_own_lane(struct sim_world *w, uint32_t route, uint32_t partition)
{
	for (uint32_t i = 0; i < w->lane_count; i++)
		if (w->lanes[i].partition == partition && !w->lanes[i].orphan && w->lanes[i].end == UINT64_MAX &&
		    is_of(&w->lanes[i], route, w->routes[route].generation))
			return true;
	return false;
}

void sim_reconcile(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (!l->orphan && l->generation != w->routes[l->route].generation)
			make_orphan(w, l, sim_partition_of(w, l)->durable);
	}
	for (uint32_t r = 0; r < w->options.routes; r++)
		for (uint32_t p = 0; p < w->options.partitions; p++)
			if (!has_own_lane(w, r, p))
				sim_make_lane(w, r, p, w->streams[w->routes[r].topic * SIM_PARTITIONS + p].durable);
}
