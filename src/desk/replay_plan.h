/* replay_plan.h - a running plan as the runner keeps it; what replay.c, replay_send.c and replay_book.c share.
 * Everything here belongs to the runner's thread. */
#ifndef RDV_DESK_REPLAY_PLAN_H
#define RDV_DESK_REPLAY_PLAN_H
#include "plan.h"
#include "room.h"

struct rdv_desk_queued { /* claimed, on its way to the lane */
	uint64_t position;
	uint8_t letter[16];
	bool again; /* it may be in the lane already: claimed by an earlier run, or no answer came */
};

enum rdv_desk_told { RDV_DESK_TOLD_NOTHING, RDV_DESK_TOLD_RUN, RDV_DESK_TOLD_PAUSE, RDV_DESK_TOLD_CANCEL };

struct rdv_desk_run_plan {
	struct rdv_desk_run_plan *next;
	uint64_t number;
	char id[64], target_route[101];
	enum rdv_plan_state state;
	double rate;
	int64_t ramp_ms;
	struct rdv_wall expires_at;
	uint64_t cap;
	uint64_t tally[RDV_DESK_OUTCOME_COUNT];
	uint64_t next_position;
	bool all_claimed;              /* no pending letter is left */
	struct rdv_desk_queued *queue; /* owns */
	size_t queue_at, queue_count, queue_capacity;
	enum rdv_desk_told told;
	/* the bucket */
	double tokens;
	int64_t last_us, running_us;
	struct rdv_mono retry_at;   /* the lane or the disk could not: not before */
	struct rdv_mono unknown_at; /* ended: what has no outcome then is unknown */
};

#define RDV_DESK_CLAIM_ROWS 500u

/* ---- replay_send.c ---- */
/* Fills the bucket for the time since the last call. */
void rdv_desk_bucket_fill(struct rdv_desk_run_plan *p, int64_t now_us);
/* ms until the bucket holds a letter; 0 = it does. */
int64_t rdv_desk_bucket_wait(const struct rdv_desk_run_plan *p);
uint64_t rdv_desk_plan_window(const struct rdv_desk_run_plan *p);
/* Loads what was claimed by an earlier run into the queue. */
enum redrive_status rdv_desk_queue_load(struct rdv_desk *d, struct rdv_desk_run_plan *p) RDV_MUST_CHECK;
/* Claims and sends as much as bucket, window and cap allow. *more: there is something left to do at once. */
enum redrive_status rdv_desk_plan_send(struct rdv_desk *d, struct rdv_desk_run_plan *p, bool *more) RDV_MUST_CHECK;
bool rdv_desk_cap_reached(const struct rdv_desk_run_plan *p);

/* ---- replay_book.c ---- */
/* Takes what was reported and books it; what cannot be booked now stays. Returns how many were booked. */
enum redrive_status rdv_desk_book_reports(struct rdv_desk_replays *r, size_t *booked) RDV_MUST_CHECK;
/* One letter's outcome, inside a transaction. skipped, next may be NULL. A final outcome never changes again. */
struct rdv_desk_booking {
	uint64_t plan;
	uint8_t letter[16];
	enum rdv_desk_outcome outcome;
	uint32_t attempts;
	const char *skipped;
	const uint8_t *next;
};
enum redrive_status rdv_desk_book(struct rdv_desk_control *c, const struct rdv_desk_booking *b) RDV_MUST_CHECK;
/* The same, in a transaction of its own. */
enum redrive_status rdv_desk_book_one(struct rdv_desk *d, const struct rdv_desk_booking *b) RDV_MUST_CHECK;
/* Every sent letter of the plan without an outcome becomes unknown. */
enum redrive_status rdv_desk_book_unknown(struct rdv_desk *d, uint64_t plan) RDV_MUST_CHECK;
#endif
