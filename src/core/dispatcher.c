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
	uint8_t storm;   /* or of these, but under storm hold */
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
	uint32_t storms;   /* changes of storm holds that the slots know of */
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

enum redrive_status rdv_dispatcher_reserve(struct rdv_dispatcher *d, size_t lanes)
{
	uint32_t capacity = d->capacity ? d->capacity : 8, *touched;
	struct slot *slots;

	if (lanes > UINT32_MAX / 4 - d->count)
		return REDRIVE_NO_MEMORY;
	if (d->count + lanes <= d->capacity)
		return REDRIVE_OK;
	while (capacity < d->count + lanes)
		capacity *= 2;
	slots = realloc(d->slots, capacity * sizeof *slots);
	if (!slots)
		return REDRIVE_NO_MEMORY;
	d->slots = slots;
	touched = realloc(d->touched, capacity * sizeof *touched);
	if (!touched)
		return REDRIVE_NO_MEMORY;
	d->touched = touched;
	d->capacity = capacity;
	return REDRIVE_OK;
}

enum redrive_status rdv_dispatcher_add(struct rdv_dispatcher *d, struct rdv_lane *lane)
{
	assert(rdv_lane_target(lane) == d->target);
	if (rdv_dispatcher_reserve(d, 1) != REDRIVE_OK)
		return REDRIVE_NO_MEMORY;
	lane->slot = d->count;
	d->slots[d->count] = (struct slot){.lane = lane, .wake = RDV_NEVER};
	touch_slot(d, d->count++);
	return REDRIVE_OK;
}

static void set_work(struct rdv_dispatcher *d, struct slot *s, uint8_t classes, uint8_t storm)
{
	for (unsigned c = 0; c < RDV_CLASS_COUNT && s->classes != classes; c++) {
		d->with_class[c] += classes >> c & 1;
		d->with_class[c] -= s->classes >> c & 1;
	}
	d->with_storm += storm != 0;
	d->with_storm -= s->storm != 0;
	s->classes = classes;
	s->storm = storm;
}

void rdv_dispatcher_remove(struct rdv_dispatcher *d, struct rdv_lane *lane)
{
	uint32_t i = lane->slot, last = d->count - 1;

	assert(i < d->count && d->slots[i].lane == lane);
	set_work(d, &d->slots[i], 0, 0);
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

/* What happened to a lane may have changed what its siblings can dispatch. */
static void touch_stirred(struct rdv_dispatcher *d, const struct rdv_lane *lane)
{
	for (struct rdv_lane *s = lane->sibling; s && s != lane; s = s->sibling) {
		if (!s->stirred || s->slot >= d->count || d->slots[s->slot].lane != s)
			continue;
		s->stirred = false;
		touch_slot(d, s->slot);
	}
}

void rdv_dispatcher_touch(struct rdv_dispatcher *d, struct rdv_lane *lane)
{
	touch_slot(d, lane->slot);
	touch_stirred(d, lane);
}

static void look(struct rdv_dispatcher *d, struct slot *s, struct rdv_now now)
{
	struct rdv_work work;

	rdv_lane_work(s->lane, now, &work);
	set_work(d, s, work.classes, work.storm_classes);
}

static void visit(struct rdv_dispatcher *d, uint32_t i, struct rdv_now now, struct rdv_effects *out)
{
	struct slot *s = &d->slots[i];

	s->touched = false;
	s->wake = rdv_lane_tick(s->lane, now, out).ms;
	touch_stirred(d, s->lane);
	look(d, s, now);
}

/* A storm hold that began or ended concerns all lanes of its route, not only the one whose verdict or operator did it.
 */
static void notice_storms(struct rdv_dispatcher *d)
{
	uint32_t changes = rdv_target_storm_changes(d->target);

	if (changes == d->storms)
		return;
	d->storms = changes;
	for (uint32_t i = 0; i < d->count; i++)
		touch_slot(d, i);
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

/* Of the routes under storm hold one whose probe may go now; without one, any, and *wake = when to ask again. */
static void gather_storm(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_work *work, int64_t *wake)
{
	for (uint32_t i = 0; i < d->count; i++) {
		uint32_t route = rdv_lane_target_route(d->slots[i].lane);
		struct rdv_mono at;
		bool may;

		if (!d->slots[i].storm)
			continue;
		may = rdv_target_storm_probe(d->target, route, now, &at);
		if (!may && at.ms < *wake)
			*wake = at.ms;
		if (!may && work->storm_route != UINT32_MAX)
			continue;
		work->storm_route = route;
		work->storm_classes = d->slots[i].storm;
		if (may)
			return;
	}
}

static int64_t suspects_overdue(struct rdv_dispatcher *d, struct rdv_now now)
{
	int64_t most = -1;

	for (uint32_t i = 0; i < d->count; i++) {
		struct rdv_work one;
		if (!(d->slots[i].classes >> RDV_CLASS_SUSPECT & 1))
			continue;
		rdv_lane_work(d->slots[i].lane, now, &one);
		most = one.suspect_overdue_ms > most ? one.suspect_overdue_ms : most;
	}
	return most;
}

static bool gather(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_work *work, int64_t *wake)
{
	*work = (struct rdv_work){.storm_route = UINT32_MAX, .suspect_overdue_ms = -1};
	for (unsigned c = 0; c < RDV_CLASS_COUNT; c++)
		if (d->with_class[c])
			work->classes |= (uint8_t)(1u << c);
	if (d->with_storm)
		gather_storm(d, now, work, wake);
	if (d->with_class[RDV_CLASS_SUSPECT])
		work->suspect_overdue_ms = suspects_overdue(d, now);
	return work->classes || work->storm_route != UINT32_MAX;
}

static bool fits(const struct slot *s, const struct rdv_grant *grant)
{
	if (grant->route != UINT32_MAX && rdv_lane_target_route(s->lane) != grant->route)
		return false;
	return (grant->route != UINT32_MAX ? s->storm : s->classes) >> grant->class & 1;
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

/* The lane could not use the grant: it is left out until the next run. */
static void leave_out(struct rdv_dispatcher *d, struct slot *s, const struct rdv_grant *grant)
{
	uint8_t others = (uint8_t) ~(1u << grant->class);

	if (grant->route == UINT32_MAX)
		set_work(d, s, s->classes & others, s->storm);
	else
		set_work(d, s, s->classes, s->storm & others);
	touch_slot(d, (uint32_t)(s - d->slots));
}

struct rdv_mono rdv_dispatcher_run(struct rdv_dispatcher *d, struct rdv_now now, uint32_t max, struct rdv_effects *out)
{
	struct rdv_mono tick = rdv_target_tick(d->target, now), wake = {RDV_NEVER};
	struct rdv_work work;
	struct rdv_grant grant;
	struct slot *s;
	uint32_t done = 0;
	int64_t next;

	notice_storms(d);
	visit_lanes(d, now, out);
	next = tick.ms < d->next_wake ? tick.ms : d->next_wake;
	while (done < max && gather(d, now, &work, &next)) {
		if (!rdv_target_take(d->target, now, &work, &grant, &wake))
			break;
		s = choose(d, &grant);
		if (s && rdv_lane_dispatch(s->lane, now, &grant, out)) {
			done++;
			if (!rdv_lane_offers_still(s->lane, grant.class))
				look(d, s, now);
			continue;
		}
		rdv_target_cancel(d->target, now, &grant);
		if (!s)
			break;
		leave_out(d, s, &grant);
		next = next < now.mono.ms + 1 ? next : now.mono.ms + 1;
	}
	if (done == max)
		return (struct rdv_mono){0};
	return (struct rdv_mono){wake.ms < next ? wake.ms : next};
}

void rdv_dispatcher_refund(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_lane *lane, struct rdv_effects *out)
{
	struct rdv_mono since;

	if (!rdv_lane_take_refund(lane, &since))
		return;
	for (uint32_t i = 0; i < d->count; i++)
		rdv_lane_refund(d->slots[i].lane, now, since, out);
	if (rdv_lane_target(lane) != d->target)
		rdv_lane_refund(lane, now, since, out);
}

enum redrive_status rdv_dispatcher_verdict(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_lane *lane,
					   uint32_t entry, uint64_t call, const struct rdv_verdict *verdict,
					   struct rdv_slice history, struct rdv_effects *out)
{
	enum redrive_status status = rdv_lane_verdict(lane, now, entry, call, verdict, history, out);

	if (status != REDRIVE_OK)
		return status;
	rdv_dispatcher_touch(d, lane);
	rdv_dispatcher_refund(d, now, lane, out);
	return status;
}
