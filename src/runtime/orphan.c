/* orphan.c - lanes that routes left: when they are let go, and their new owners.
 *
 * A removed route stays until its last call has ended; its lanes are shown as orphans meanwhile. Then it goes with its
 * handler, and its lanes are anybody's: to be adopted, or discarded (questions.c). Core thread. */
#include "room.h"
#include <inttypes.h>
#include <stdlib.h>

static bool is_left(const struct rdv_strand *s, const char *name)
{
	return s->orphan && s->lane && !s->discarded && strcmp(s->name, name) == 0;
}

void rdv_orphan_tell(struct rdv_engine *e, const char *name)
{
	uint64_t open = 0;

	for (const struct rdv_strand *s = e->strands; s; s = s->next) {
		const struct rdv_account *a = is_left(s, name) ? rdv_lane_account(s->lane) : NULL;

		open += a ? a->ready + a->waiting + a->held + a->in_flight : 0;
	}
	if (open)
		rdv_engine_say(e, 1,
			       "%" PRIu64
			       " messages of the removed route %s wait for another: 'redrive routes adopt %s "
			       "NEW', or discard",
			       open, name, name);
}

void rdv_orphans_tell(struct rdv_engine *e)
{
	for (const struct rdv_strand *s = e->strands; s; s = s->next) {
		const struct rdv_strand *first = e->strands;

		while (first != s && !is_left(first, s->name))
			first = first->next;
		if (first == s && is_left(s, s->name))
			rdv_orphan_tell(e, s->name);
	}
}

static void let_go(struct rdv_engine *e, struct rdv_route *r)
{
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r)
			continue;
		if (s->lane) {
			rdv_lane_leave_siblings(s->lane, e->now, e->effects);
			rdv_lane_move_dedupe(s->lane, NULL, e->now, e->effects);
			rdv_strand_touch(e, s);
			rdv_dispatcher_remove(r->seat->unit->dispatcher, s->lane);
			rdv_lane_move_to(s->lane, e->orphan_target, 0);
			rdv_lane_stop(s->lane);
		}
		s->route = NULL;
	}
	rdv_windows_reap(e);
	rdv_trim_again(e);
	rdv_route_free(e, r);
}

void rdv_engine_reap(struct rdv_engine *e)
{
	struct rdv_route **at = &e->gone;

	while (*at) {
		struct rdv_route *r = *at;

		if (r->open_calls) { /* leases end by themselves; what was only offered came back at once (apply.c) */
			at = &r->next;
			continue;
		}
		*at = r->next;
		let_go(e, r);
	}
	rdv_seat_reap(e);
	rdv_outlet_reap(e);
}

static bool is_paused(const struct rdv_engine *e, const struct rdv_route *r)
{
	for (const struct rdv_strand *s = e->strands; s; s = s->next)
		if (s->route == r && s->lane && rdv_lane_paused(s->lane))
			return true;
	return false;
}

enum redrive_status rdv_route_adopt_strand(struct rdv_engine *e, struct rdv_route *r, struct rdv_strand *s)
{
	enum redrive_status status;
	bool paused = is_paused(e, r);

	status = rdv_dispatcher_reserve(r->seat->unit->dispatcher, 1);
	if (status == REDRIVE_OK)
		status = rdv_lane_adopted_by(s->lane, r->info->name, r->options.handler == RDV_HANDLER_CALLBACK);
	if (status != REDRIVE_OK)
		return status;
	rdv_slice_to_text(rdv_slice_text(r->info->name), s->name, sizeof s->name);
	s->orphan = false;
	status = rdv_strand_mark(e, s);
	if (status != REDRIVE_OK)
		return status;
	rdv_lane_move_to(s->lane, r->seat->unit->target, r->seat->number);
	rdv_lane_reload(s->lane, &r->options.lane, r->info->rules);
	if (rdv_lane_paused(s->lane) != paused)
		rdv_lane_pause(s->lane, paused, e->effects);
	rdv_lane_move_dedupe(s->lane, rdv_window_of(e, s->name), e->now, e->effects);
	rdv_trim_again(e);
	s->route = r;
	status = rdv_dispatcher_add(r->seat->unit->dispatcher, s->lane);
	if (status != REDRIVE_OK)
		return status;
	rdv_strand_join_siblings(e, s);
	rdv_strand_nudge(e, s);
	return REDRIVE_OK;
}
