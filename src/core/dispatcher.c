/* dispatcher.c - from the target's permits to its lanes' messages, in turn.
 *
 * Each lane has a slot: what it could dispatch (asked again only when something happened to the lane) and when it must
 * be ticked. Counts of lanes per class are kept, so that a grant costs nothing per idle lane. A lane that cannot use a
 * grant after all (its message was written in this very turn) is left out until the next run. Turns go round per class
 * of work: the cursor moves on with every dispatch. Single thread. */
#include "dispatcher.h"
#include "lane_parts.h"
#include <assert.h>
#include <stdlib.h>

struct slot {
	struct rdv_lane *lane; /* borrows */
	int64_t wake;
	uint8_t classes; /* it has work of these */
	bool storm;      /* under storm hold, with work */
	bool touched;
};

struct rdv_dispatcher {
	struct rdv_target *target; /* borrows */
	struct slot *slots;        /* owns */
	uint32_t count, capacity, cursor;
	uint32_t *touched; /* owns: slots to look at in the next run */
	uint32_t touched_count;
	uint32_t with_class[RDV_CLASS_COUNT], with_storm;
	int64_t next_wake; /* of any slot; may be too early */
};

struct rdv_dispatcher *rdv_dispatcher_new(struct rdv_target *target)
{
	struct rdv_dispatcher *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->target = target;
	d->next_wake = RDV_NEVER;
	return d;
}

void rdv_dispatcher_free(struct rdv_dispatcher *d)
{
	if (!d)
		return;
	free(d->slots);
	free(d->touched);
	free(d);
}

static void touch_slot(struct rdv_dispatcher *d, uint32_t i)
{
	if (d->slots[i].touched)
		return;
	d->slots[i].touched = true;
	d->touched[d->touched_count++] = i;
}

enum redrive_status rdv_dispatcher_add(struct rdv_dispatcher *d, struct rdv_lane *lane)
{
	assert(rdv_lane_target(lane) == d->target);
	if (d->count == d->capacity) {
		uint32_t capacity = d->capacity ? d->capacity * 2 : 8;
		struct slot *slots = realloc(d->slots, capacity * sizeof *slots);
		uint32_t *touched;

		if (!slots)
			return REDRIVE_NO_MEMORY;
		d->slots = slots;
		touched = realloc(d->touched, capacity * sizeof *touched);
		if (!touched)
			return REDRIVE_NO_MEMORY;
		d->touched = touched;
		d->capacity = capacity;
	}
	lane->slot = d->count;
	d->slots[d->count] = (struct slot){.lane = lane, .wake = RDV_NEVER};
	touch_slot(d, d->count++);
	return REDRIVE_OK;
}

static void set_work(struct rdv_dispatcher *d, struct slot *s, uint8_t classes, bool storm)
{
	for (unsigned c = 0; c < RDV_CLASS_COUNT && s->classes != classes; c++) {
		d->with_class[c] += classes >> c & 1;
		d->with_class[c] -= s->classes >> c & 1;
	}
	d->with_storm += storm;
	d->with_storm -= s->storm;
	s->classes = classes;
	s->storm = storm;
}

void rdv_dispatcher_remove(struct rdv_dispatcher *d, struct rdv_lane *lane)
{
	uint32_t i = lane->slot, last = d->count - 1;

	assert(i < d->count && d->slots[i].lane == lane);
	set_work(d, &d->slots[i], 0, false);
	d->slots[i] = d->slots[last];
	d->slots[i].lane->slot = i;
	d->count--;
	d->cursor = 0;
	d->touched_count = 0;
	for (uint32_t k = 0; k < d->count; k++) {
		d->slots[k].touched = false;
		touch_slot(d, k);
	}
}

void rdv_dispatcher_touch(struct rdv_dispatcher *d, struct rdv_lane *lane)
{
	touch_slot(d, lane->slot);
}

static void look(struct rdv_dispatcher *d, struct slot *s, struct rdv_now now)
{
	struct rdv_work work;

	rdv_lane_work(s->lane, now, &work);
	set_work(d, s, work.classes, work.storm_route != UINT32_MAX);
}

static void visit(struct rdv_dispatcher *d, uint32_t i, struct rdv_now now, struct rdv_effects *out)
{
	struct slot *s = &d->slots[i];

	s->touched = false;
	s->wake = rdv_lane_tick(s->lane, now, out).ms;
	look(d, s, now);
}

/* Ticks what was touched and what is due. */
static void visit_lanes(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_effects *out)
{
	if (d->next_wake <= now.mono.ms) {
		for (uint32_t i = 0; i < d->count; i++)
			if (d->slots[i].wake <= now.mono.ms)
				touch_slot(d, i);
		d->next_wake = RDV_NEVER; /* found anew below */
	}
	while (d->touched_count)
		visit(d, d->touched[--d->touched_count], now, out);
	if (d->next_wake == RDV_NEVER || d->count < 64)
		d->next_wake = RDV_NEVER;
	for (uint32_t i = 0; i < d->count; i++)
		if (d->slots[i].wake < d->next_wake)
			d->next_wake = d->slots[i].wake;
}

static bool gather(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_work *work)
{
	*work = (struct rdv_work){.storm_route = UINT32_MAX, .suspect_overdue_ms = -1};
	for (unsigned c = 0; c < RDV_CLASS_COUNT; c++)
		if (d->with_class[c])
			work->classes |= (uint8_t)(1u << c);
	for (uint32_t i = 0; d->with_storm && i < d->count; i++)
		if (d->slots[i].storm) {
			work->storm_route = rdv_lane_target_route(d->slots[i].lane);
			break;
		}
	for (uint32_t i = 0; d->with_class[RDV_CLASS_SUSPECT] && i < d->count; i++) {
		struct rdv_work one;
		if (!(d->slots[i].classes >> RDV_CLASS_SUSPECT & 1))
			continue;
		rdv_lane_work(d->slots[i].lane, now, &one);
		if (one.suspect_overdue_ms > work->suspect_overdue_ms)
			work->suspect_overdue_ms = one.suspect_overdue_ms;
	}
	return work->classes || work->storm_route != UINT32_MAX;
}

static bool fits(const struct slot *s, const struct rdv_grant *grant)
{
	if (grant->route != UINT32_MAX)
		return s->storm ? rdv_lane_target_route(s->lane) == grant->route : false;
	return s->classes >> grant->class & 1;
}

static struct slot *choose(struct rdv_dispatcher *d, const struct rdv_grant *grant)
{
	for (uint32_t n = 0; n < d->count; n++) {
		if (d->cursor >= d->count)
			d->cursor = 0;
		struct slot *s = &d->slots[d->cursor++];
		if (fits(s, grant))
			return s;
	}
	return NULL;
}

/* A storm's probe takes whatever its route has. */
static bool dispatch_one(struct rdv_dispatcher *d, struct slot *s, struct rdv_now now, struct rdv_grant *grant,
			 struct rdv_effects *out)
{
	static const enum rdv_class order[] = {RDV_CLASS_RETRY_DUE, RDV_CLASS_FIRST, RDV_CLASS_SUSPECT,
					       RDV_CLASS_REPLAY};

	if (grant->route == UINT32_MAX)
		return rdv_lane_dispatch(s->lane, now, grant, out);
	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
		struct rdv_grant one = *grant;
		one.class = order[i];
		if (rdv_lane_dispatch(s->lane, now, &one, out))
			return true;
	}
	return false;
}

struct rdv_mono rdv_dispatcher_run(struct rdv_dispatcher *d, struct rdv_now now, uint32_t max, struct rdv_effects *out)
{
	struct rdv_mono next = rdv_target_tick(d->target, now), wake = {RDV_NEVER};
	struct rdv_work work;
	struct rdv_grant grant;
	uint32_t done = 0;
	bool left_out = false;

	visit_lanes(d, now, out);
	while (done < max && gather(d, now, &work)) {
		struct slot *s;
		if (!rdv_target_take(d->target, now, &work, &grant, &wake))
			break;
		s = choose(d, &grant);
		if (s && dispatch_one(d, s, now, &grant, out)) {
			done++;
			look(d, s, now);
			continue;
		}
		rdv_target_cancel(d->target, now, &grant);
		if (!s)
			break;
		set_work(d, s, grant.route == UINT32_MAX ? s->classes & (uint8_t) ~(1u << grant.class) : s->classes,
			 grant.route == UINT32_MAX ? s->storm : false);
		touch_slot(d, (uint32_t)(s - d->slots));
		left_out = true;
	}
	if (done == max)
		return (struct rdv_mono){0};
	if (left_out && next.ms > now.mono.ms + 1)
		next.ms = now.mono.ms + 1;
	if (wake.ms < next.ms)
		next = wake;
	if (d->next_wake < next.ms)
		next.ms = d->next_wake;
	return next;
}

enum redrive_status rdv_dispatcher_verdict(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_lane *lane,
					   uint32_t entry, uint64_t call, const struct rdv_verdict *verdict,
					   struct rdv_slice history, struct rdv_effects *out)
{
	enum redrive_status status = rdv_lane_verdict(lane, now, entry, call, verdict, history, out);
	struct rdv_mono since;

	if (status != REDRIVE_OK)
		return status;
	touch_slot(d, lane->slot);
	if (!rdv_lane_take_refund(lane, &since))
		return status;
	for (uint32_t i = 0; i < d->count; i++)
		rdv_lane_refund(d->slots[i].lane, now, since, out);
	return status;
}
