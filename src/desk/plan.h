/* plan.h - inside of plans: the row, the frozen set, the checks. Outside: desk.h.
 *
 *   DRAFT → APPROVED → RUNNING ⇄ PAUSED → FINISHED
 *     └────────┴──────────┴────────┴────→ CANCELLED, EXPIRED       (SAMPLING and STOPPED belong to samples and stop
 * conditions)
 *
 * A plan never changes its letters: they are frozen, with a digest, when it is made. */
#ifndef RDV_DESK_PLAN_H
#define RDV_DESK_PLAN_H
#include "control.h"
#include "store.h"

#define RDV_DESK_PLAN_LETTERS 1000000u /* most letters of one plan */

/* The frozen set while it is being made. */
struct rdv_desk_chosen {
	uint8_t id[16];
	struct rdv_desk_place place;
	uint64_t key; /* hash of route, topic, partition and key; 0 = null key */
	uint64_t offset;
	uint32_t generation;
	uint32_t route; /* number in routes */
	int64_t dead_at;
	bool has_body, busy; /* busy: in another plan now */
};
#define RDV_DESK_PLAN_ROUTES 64
struct rdv_desk_set {
	struct rdv_desk_chosen *items; /* owns */
	size_t count, capacity;
	char (*routes)[101]; /* owns: the letters' own routes */
	size_t route_count;
	uint64_t *route_letters; /* owns: how many of each */
	bool more_routes;        /* than are listed */
};
/* Chooses by the request, in the order of sending. INVALID, NOT_FOUND (an id), TOO_LARGE say why. */
enum redrive_status rdv_desk_set_choose(struct rdv_desk *d, const struct rdv_plan_request *r, struct rdv_desk_set *out,
					struct rdv_error *error) RDV_MUST_CHECK;
void rdv_desk_set_done(struct rdv_desk_set *s);
/* "sha256:" and the hex digest over the sorted ids. */
enum redrive_status rdv_desk_set_digest(const struct rdv_desk_set *s, char out[72]) RDV_MUST_CHECK;
/* Impact and preflight checks. */
void rdv_desk_plan_examine(struct rdv_desk *d, const struct rdv_desk_set *s, struct rdv_plan *plan);

/* ---- rows: with control's mutex ---- */
enum redrive_status rdv_desk_plan_insert(struct rdv_desk_control *c, const struct rdv_plan *p, const char *q,
					 bool order_key) RDV_MUST_CHECK;
/* By id, or by number when id is NULL. NOT_FOUND. */
enum redrive_status rdv_desk_plan_read(struct rdv_desk_control *c, const char *id, uint64_t number,
				       struct rdv_plan *out) RDV_MUST_CHECK;
enum redrive_status rdv_desk_plan_tally(struct rdv_desk_control *c, uint64_t number,
					uint64_t out[RDV_DESK_OUTCOME_COUNT]) RDV_MUST_CHECK;
/* Newest first, before `before` (0 = from the newest); numbers only. */
enum redrive_status rdv_desk_plan_numbers(struct rdv_desk_control *c, uint64_t before, uint64_t *out, size_t max,
					  size_t *count) RDV_MUST_CHECK;
enum redrive_status rdv_desk_plan_freeze(struct rdv_desk_control *c, uint64_t number, uint64_t position,
					 const uint8_t id[16]) RDV_MUST_CHECK;
/* Writes state, times, approver, rate and stopped_by of p. */
enum redrive_status rdv_desk_plan_update(struct rdv_desk_control *c, const struct rdv_plan *p) RDV_MUST_CHECK;
bool rdv_desk_plan_ended(enum rdv_plan_state s);
#endif
