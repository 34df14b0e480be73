/* replay.h - the runner: one thread that carries out running plans.
 *
 * For each running plan it claims letters in the frozen order, at the plan's rate and within its window, and gives them
 * to their lanes by the runtime's seam; outcomes come back and are booked in control.db before the lane may forget.
 * Everything it needs to go on after a crash is in control.db. See replay.c for the order of the steps and why no
 * letter goes out twice. */
#ifndef RDV_DESK_REPLAY_H
#define RDV_DESK_REPLAY_H
#include <pthread.h>
#include "desk.h"

struct rdv_desk_report { /* an outcome on its way from the core thread */
	struct rdv_desk_report *next;
	uint64_t plan, request;
	uint8_t letter[16];
	enum rdv_state outcome;
	uint32_t attempts, partition;
	char *route, *topic; /* own; behind the struct */
};

struct rdv_desk_run_plan;

struct rdv_desk_replays {
	struct rdv_desk *desk; /* borrows */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct rdv_desk_report *reports, **reports_tail; /* owns */
	bool changed;                                    /* a plan was acted on */
	bool stopping, running;
	pthread_t thread;
	struct rdv_desk_run_plan *plans; /* owns; the runner's */
};

enum redrive_status rdv_desk_replays_init(struct rdv_desk_replays *r, struct rdv_desk *desk) RDV_MUST_CHECK;
void rdv_desk_replays_done(struct rdv_desk_replays *r); /* stops first */
enum redrive_status rdv_desk_replays_start(struct rdv_desk_replays *r) RDV_MUST_CHECK;
void rdv_desk_replays_stop(struct rdv_desk_replays *r);
void rdv_desk_replays_wake(struct rdv_desk_replays *r); /* a plan was acted on */
#endif
