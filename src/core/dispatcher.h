/* dispatcher.h - joins a target and its lanes: while the target grants, the next lane in turn dispatches.
 * The simulator and the runtime run exactly this. Pure; single thread. */
#ifndef RDV_CORE_DISPATCHER_H
#define RDV_CORE_DISPATCHER_H
#include "lane.h"

struct rdv_dispatcher;
struct rdv_dispatcher *rdv_dispatcher_new(struct rdv_target *target); /* borrows the target */
void rdv_dispatcher_free(struct rdv_dispatcher *d);
/* Room for so many lanes more: then adding them cannot fail. */
enum redrive_status rdv_dispatcher_reserve(struct rdv_dispatcher *d, size_t lanes) RDV_MUST_CHECK;
enum redrive_status rdv_dispatcher_add(struct rdv_dispatcher *d, struct rdv_lane *lane) RDV_MUST_CHECK; /* borrows */
void rdv_dispatcher_remove(struct rdv_dispatcher *d, struct rdv_lane *lane);
/* The lane may have work now (after published, tick, verdict, durable ...): cheap, so that idle lanes cost nothing in
 * run. */
void rdv_dispatcher_touch(struct rdv_dispatcher *d, struct rdv_lane *lane);
/* Ticks the target and the lanes that are due, dispatches at most `max` messages; returns when to run again (mono 0 =
 * at once: max was reached). */
struct rdv_mono rdv_dispatcher_run(struct rdv_dispatcher *d, struct rdv_now now, uint32_t max, struct rdv_effects *out);
/* What the lane's last verdict gives back, when it took this target down: to all of the target's lanes, and to that one
 * even if it has left meanwhile. */
void rdv_dispatcher_refund(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_lane *lane,
			   struct rdv_effects *out);
/* Hands a verdict to its lane, which is here, and a refund to all of the target's lanes. */
enum redrive_status rdv_dispatcher_verdict(struct rdv_dispatcher *d, struct rdv_now now, struct rdv_lane *lane,
					   uint32_t entry, uint64_t call, const struct rdv_verdict *verdict,
					   struct rdv_slice history, struct rdv_effects *out) RDV_MUST_CHECK;
#endif
