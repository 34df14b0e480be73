/* plan_act.c - the verbs of a plan: one table of what is allowed when, one transaction with its audit line.
 *
 * A verb changes the row and wakes the runner, which tells the lanes (replay.c). Approving takes the digest, so that
 * what is approved is what was seen, and is refused while a check has failed; whether author and approver may be the
 * same is the caller's to say, but a plan that nobody approved never starts. The audit names both. Any thread. */
#include <math.h>
#include <stdio.h>
#include "plan.h"
#include "room.h"

#define IN(state) (1u << RDV_PLAN_##state)

static const struct verb {
	const char *name, *audit, *wrong;
	unsigned from;
	int to; /* -1: stays */
} verbs[] = {
	[RDV_PLAN_APPROVE] = {"approved", "replay.approve", "only a draft", IN(DRAFT), RDV_PLAN_APPROVED},
	[RDV_PLAN_START] = {"started", "replay.start", "only an approved plan", IN(APPROVED), RDV_PLAN_RUNNING},
	[RDV_PLAN_PAUSE] = {"paused", "replay.pause", "only a running plan", IN(RUNNING) | IN(SAMPLING),
			    RDV_PLAN_PAUSED},
	[RDV_PLAN_RESUME] = {"resumed", "replay.resume", "only a paused plan", IN(PAUSED), RDV_PLAN_RUNNING},
	[RDV_PLAN_RATE] = {"given another rate", "replay.rate", "only a plan that has not ended",
			   IN(DRAFT) | IN(APPROVED) | IN(SAMPLING) | IN(RUNNING) | IN(PAUSED), -1},
	[RDV_PLAN_CANCEL] = {"cancelled", "replay.cancel", "only a plan that has not ended",
			     IN(DRAFT) | IN(APPROVED) | IN(SAMPLING) | IN(RUNNING) | IN(PAUSED), RDV_PLAN_CANCELLED},
};

static enum redrive_status check_approval(const struct rdv_plan *p, const char *digest, struct rdv_error *error)
{
	if (!digest || strcmp(digest, p->digest) != 0)
		return rdv_error_set(error, REDRIVE_CONFLICT, "the digest is not this plan's, which is %s", p->digest);
	for (size_t i = 0; i < p->preflight_count; i++)
		if (strcmp(p->preflight[i].result, "fail") == 0)
			return rdv_error_set(error, REDRIVE_CONFLICT, "the check '%s' failed: %s",
					     p->preflight[i].check, p->preflight[i].detail);
	return REDRIVE_OK;
}

struct act {
	enum rdv_plan_verb verb;
	const char *digest;
	double rate;
	const char *who;
};

static enum redrive_status apply(struct rdv_plan *p, const struct act *a, struct rdv_error *error)
{
	const struct verb *v = &verbs[a->verb];
	enum redrive_status status = REDRIVE_OK;
	struct rdv_wall now = rdv_wall_now();
	if (!(v->from & 1u << p->state))
		return rdv_error_set(error, REDRIVE_CONFLICT, "%s can be %s; this one is %s", v->wrong, v->name,
				     rdv_plan_state_name(p->state));
	if (a->verb == RDV_PLAN_APPROVE) {
		status = check_approval(p, a->digest, error);
		p->approved_at = now;
		snprintf(p->approver, sizeof p->approver, "%s", a->who ? a->who : "");
	} else if (a->verb == RDV_PLAN_RATE) {
		if (isnan(a->rate) || a->rate <= 0 || a->rate > 1000000)
			status = rdv_error_set(error, REDRIVE_INVALID, "rate: more than 0 and at most 1000000/s");
		p->rate = a->rate;
	} else if (a->verb == RDV_PLAN_START) {
		p->started_at = now;
	} else if (a->verb == RDV_PLAN_CANCEL) {
		p->ended_at = now;
	}
	if (v->to >= 0)
		p->state = (enum rdv_plan_state)v->to;
	return status;
}

enum redrive_status rdv_plan_act(struct rdv_desk *d, const char *id, enum rdv_plan_verb verb, const char *digest,
				 double rate, const char *who, struct rdv_plan *out, struct rdv_error *error)
{
	struct act a = {verb, digest, rate, who};
	struct rdv_plan row = {0}; /* not *out: id, digest and who may point into it */
	struct rdv_desk_control *c = &d->control;
	char detail[192] = "";
	if ((unsigned)verb >= sizeof verbs / sizeof verbs[0])
		return rdv_error_set(error, REDRIVE_INVALID, "no such verb");
	if (verb == RDV_PLAN_RATE)
		snprintf(detail, sizeof detail, "%g/s", rate);
	rdv_desk_control_lock(c);
	enum redrive_status status = rdv_desk_control_begin(c);
	if (status == REDRIVE_OK)
		status = rdv_desk_plan_read(c, id, 0, &row);
	if (status == REDRIVE_NOT_FOUND)
		rdv_error_set(error, status, "there is no plan '%.60s'", id);
	if (status == REDRIVE_OK)
		status = apply(&row, &a, error);
	if (status == REDRIVE_OK && verb == RDV_PLAN_APPROVE)
		snprintf(detail, sizeof detail, "author %s, approver %s", row.author, row.approver);
	if (status == REDRIVE_OK)
		status = rdv_desk_plan_update(c, &row);
	struct rdv_desk_audit_entry entry = {who, verbs[verb].audit, row.id, detail};
	if (status == REDRIVE_OK)
		status = rdv_desk_control_audit(c, &entry);
	status = rdv_desk_control_end(c, status);
	if (status == REDRIVE_OK) /* what counts may have moved with the state */
		status = rdv_desk_plan_read(c, NULL, row.number, &row);
	if (status == REDRIVE_OK)
		*out = row;
	rdv_desk_control_unlock(c);
	if (status != REDRIVE_OK && error && !error->text[0])
		rdv_error_set(error, status, "the plan cannot be changed now: %s", rdv_status_info(status)->text);
	if (status == REDRIVE_OK)
		rdv_desk_replays_wake(&d->replays);
	return status;
}
