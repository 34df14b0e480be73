/* replay.c - the runner: which plans there are, their ends, and the loop that serves them.
 *
 * The loop: book what was reported; if somebody acted, read the plans' rows again; give every plan its turn; sleep
 * until the next letter is due, a report comes or somebody acts. Verbs change only the row (plan_act.c): here they take
 * effect, by telling the runtime.
 *
 *   RUNNING  send (replay_send.c); ends as FINISHED when nothing is pending (or the cap is reached) and every letter
 * sent has its outcome PAUSED   the lanes are told once; what is claimed waits ended    what is claimed and not given
 * to a lane was not reached; the lanes are told to take the rest back; outcomes that still come are booked; what has
 * none after a quarter of an hour is unknown
 *
 * After a crash the rows say all of it: a running plan goes on by itself, a paused one is told again, an ended one is
 * cancelled again. A control database that cannot be written stops nothing but progress: everything is tried again. One
 * thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "replay_plan.h"

#define UNKNOWN_AFTER_MS (15 * 60000)
#define IDLE_MS 500
#define AGAIN_MS 100

enum redrive_status rdv_desk_replays_init(struct rdv_desk_replays *r, struct rdv_desk *desk)
{
	pthread_condattr_t attr;
	memset(r, 0, sizeof *r);
	r->desk = desk;
	r->reports_tail = &r->reports;
	pthread_mutex_init(&r->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->wake, &attr);
	pthread_condattr_destroy(&attr);
	return REDRIVE_OK;
}

static void plan_free(struct rdv_desk_run_plan *p)
{
	free(p->queue);
	free(p);
}

void rdv_desk_replays_done(struct rdv_desk_replays *r)
{
	if (!r || !r->desk)
		return;
	rdv_desk_replays_stop(r);
	while (r->plans) {
		struct rdv_desk_run_plan *p = r->plans;
		r->plans = p->next;
		plan_free(p);
	}
	while (r->reports) {
		struct rdv_desk_report *report = r->reports;
		r->reports = report->next;
		free(report);
	}
	pthread_mutex_destroy(&r->mutex);
	pthread_cond_destroy(&r->wake);
	memset(r, 0, sizeof *r);
}

void rdv_desk_replays_wake(struct rdv_desk_replays *r)
{
	pthread_mutex_lock(&r->mutex);
	r->changed = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->mutex);
}

/* ---- reading the rows ---- */

/* Live plans, and ended ones with letters that have no outcome yet. */
static enum redrive_status live_numbers(struct rdv_desk_control *c, uint64_t after, uint64_t *out)
{
	static const char sql[] =
		"SELECT number FROM plan p WHERE number > ?1 AND (state IN (2, 3, 4) OR (state > 4 AND EXISTS"
		" (SELECT 1 FROM tally t WHERE t.plan = p.number AND t.outcome = 1 AND t.count > 0)))"
		" ORDER BY number LIMIT 1";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, (int64_t)after);
	int rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*out = (uint64_t)sqlite3_column_int64(s, 0);
	rdv_desk_sql_reset(s);
	return rc == SQLITE_DONE ? REDRIVE_NOT_FOUND : rdv_desk_sql_status(rc);
}
_Static_assert(RDV_PLAN_SAMPLING == 2 && RDV_PLAN_PAUSED == 4 && RDV_PLAN_FINISHED == 5, "as in the statement");

static void take_row(struct rdv_desk_run_plan *p, const struct rdv_plan *row)
{
	if (p->state != row->state) {
		p->retry_at.ms = 0;
		p->last_us = 0; /* a bucket does not fill during a pause */
	}
	p->state = row->state;
	p->rate = row->rate > 0 ? row->rate : 1;
	p->ramp_ms = row->ramp_ms;
	p->cap = row->cap;
	p->expires_at = row->expires_at;
}

static struct rdv_desk_run_plan *known(const struct rdv_desk_replays *r, uint64_t number)
{
	struct rdv_desk_run_plan *p = r->plans;
	while (p && p->number != number)
		p = p->next;
	return p;
}

static enum redrive_status add_plan(struct rdv_desk_replays *r, const struct rdv_plan *row)
{
	struct rdv_desk_run_plan *p = calloc(1, sizeof *p);
	if (!p)
		return REDRIVE_NO_MEMORY;
	p->number = row->number;
	snprintf(p->id, sizeof p->id, "%s", row->id);
	snprintf(p->target_route, sizeof p->target_route, "%s", row->target_route);
	take_row(p, row);
	rdv_desk_control_lock(&r->desk->control);
	enum redrive_status status = rdv_desk_plan_tally(&r->desk->control, p->number, p->tally);
	rdv_desk_control_unlock(&r->desk->control);
	if (status == REDRIVE_OK && !rdv_desk_plan_ended(p->state))
		status = rdv_desk_queue_load(r->desk, p);
	if (status != REDRIVE_OK) {
		plan_free(p);
		return status;
	}
	/* A plan without letters in the lanes has nothing to tell them. */
	p->told = p->tally[RDV_DESK_SENT] ? RDV_DESK_TOLD_NOTHING : RDV_DESK_TOLD_RUN;
	p->next = r->plans;
	r->plans = p;
	return REDRIVE_OK;
}

static enum redrive_status refresh(struct rdv_desk_replays *r)
{
	struct rdv_desk_control *c = &r->desk->control;
	enum redrive_status status = REDRIVE_OK;
	struct rdv_plan row;
	for (struct rdv_desk_run_plan *p = r->plans; p && status == REDRIVE_OK; p = p->next) {
		rdv_desk_control_lock(c);
		status = rdv_desk_plan_read(c, NULL, p->number, &row);
		rdv_desk_control_unlock(c);
		if (status == REDRIVE_OK)
			take_row(p, &row);
	}
	for (uint64_t number = 0; status == REDRIVE_OK;) {
		rdv_desk_control_lock(c);
		status = live_numbers(c, number, &number);
		if (status == REDRIVE_OK)
			status = rdv_desk_plan_read(c, NULL, number, &row);
		rdv_desk_control_unlock(c);
		if (status == REDRIVE_OK && !known(r, number))
			status = add_plan(r, &row);
	}
	return status == REDRIVE_NOT_FOUND ? REDRIVE_OK : status;
}

/* ---- telling the runtime ---- */

static bool tell(struct rdv_desk *d, struct rdv_desk_run_plan *p, enum rdv_desk_told what)
{
	const struct rdv_desk_runtime *rt = &d->runtime;
	enum redrive_status status = REDRIVE_OK;
	if (p->told == what)
		return true;
	if (what == RDV_DESK_TOLD_CANCEL)
		status = rt->cancel ? rt->cancel(rt->ctx, p->number) : REDRIVE_OK;
	else
		status = rt->pause ? rt->pause(rt->ctx, p->number, what == RDV_DESK_TOLD_PAUSE) : REDRIVE_OK;
	enum rdv_status_class class = rdv_status_info(status)->class;
	if (status != REDRIVE_OK && (class == RDV_CLASS_RETRY || class == RDV_CLASS_OURS)) {
		p->retry_at.ms = rdv_mono_now().ms + AGAIN_MS;
		return false;
	}
	p->told = what; /* a plan that no lane knows is told, too */
	return true;
}

/* ---- a plan's turn ---- */

static enum redrive_status end_plan(struct rdv_desk *d, struct rdv_desk_run_plan *p, enum rdv_plan_state state,
				    const char *why)
{
	struct rdv_plan row;
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_control_begin(&d->control);
	if (status == REDRIVE_OK)
		status = rdv_desk_plan_read(&d->control, NULL, p->number, &row);
	if (status == REDRIVE_OK && !rdv_desk_plan_ended(row.state)) { /* somebody may have been faster */
		struct rdv_desk_audit_entry entry = {"", "replay.end", p->id, rdv_plan_state_name(state)};
		row.state = state;
		row.ended_at = rdv_wall_now();
		snprintf(row.stopped_by, sizeof row.stopped_by, "%s", why);
		status = rdv_desk_plan_update(&d->control, &row);
		if (status == REDRIVE_OK)
			status = rdv_desk_control_audit(&d->control, &entry);
	}
	status = rdv_desk_control_end(&d->control, status);
	rdv_desk_control_unlock(&d->control);
	if (status == REDRIVE_OK)
		take_row(p, &row);
	return status;
}

static bool complete(const struct rdv_desk_run_plan *p)
{
	return p->queue_at == p->queue_count && p->tally[RDV_DESK_SENT] == 0 &&
	       (p->all_claimed || rdv_desk_cap_reached(p));
}

/* Returns after how many ms it wants its next turn. */
static int64_t turn_running(struct rdv_desk *d, struct rdv_desk_run_plan *p)
{
	bool more = false;
	if (p->expires_at.ms && rdv_wall_now().ms >= p->expires_at.ms)
		return end_plan(d, p, RDV_PLAN_EXPIRED, "expires_at") == REDRIVE_OK ? 0 : AGAIN_MS;
	if (!tell(d, p, RDV_DESK_TOLD_RUN))
		return AGAIN_MS;
	rdv_desk_bucket_fill(p, rdv_mono_now_us());
	if (rdv_desk_plan_send(d, p, &more) != REDRIVE_OK)
		return AGAIN_MS;
	if (complete(p)) {
		const char *why = p->all_claimed ? "" : "cap";
		return end_plan(d, p, RDV_PLAN_FINISHED, why) == REDRIVE_OK ? 0 : AGAIN_MS;
	}
	if (more)
		return 0;
	if (p->all_claimed || rdv_desk_cap_reached(p) || p->tally[RDV_DESK_SENT] >= rdv_desk_plan_window(p))
		return IDLE_MS; /* an outcome comes first */
	int64_t wait = rdv_desk_bucket_wait(p);
	return wait < 2 ? 2 : wait;
}

/* What was claimed and never given to a lane goes back. */
static enum redrive_status drop_queue(struct rdv_desk *d, struct rdv_desk_run_plan *p)
{
	struct rdv_desk_control *c = &d->control;
	rdv_desk_control_lock(c);
	enum redrive_status status = rdv_desk_control_begin(c);
	for (size_t i = p->queue_at; i < p->queue_count && status == REDRIVE_OK; i++) {
		struct rdv_desk_booking b = {.plan = p->number, .outcome = RDV_DESK_NOT_REACHED};
		if (p->queue[i].again) /* the lane may have it: its outcome comes from there */
			continue;
		memcpy(b.letter, p->queue[i].letter, 16);
		status = rdv_desk_book(c, &b);
	}
	status = rdv_desk_control_end(c, status);
	if (status == REDRIVE_OK) {
		p->queue_at = p->queue_count = 0;
		status = rdv_desk_plan_tally(c, p->number, p->tally);
	}
	rdv_desk_control_unlock(c);
	return status;
}

/* *over: nothing of it is left to wait for. */
static int64_t turn_ended(struct rdv_desk *d, struct rdv_desk_run_plan *p, bool *over)
{
	struct rdv_mono now = rdv_mono_now();
	int64_t patience = d->unknown_ms ? d->unknown_ms : UNKNOWN_AFTER_MS;
	if (p->queue_at < p->queue_count && drop_queue(d, p) != REDRIVE_OK)
		return AGAIN_MS;
	if (p->tally[RDV_DESK_SENT] && !tell(d, p, RDV_DESK_TOLD_CANCEL))
		return AGAIN_MS;
	if (p->unknown_at.ms == 0)
		p->unknown_at.ms = now.ms + patience;
	if (p->tally[RDV_DESK_SENT] && now.ms >= p->unknown_at.ms && rdv_desk_book_unknown(d, p->number) == REDRIVE_OK)
		p->tally[RDV_DESK_SENT] = 0;
	*over = p->tally[RDV_DESK_SENT] == 0;
	return IDLE_MS;
}

static int64_t turn(struct rdv_desk *d, struct rdv_desk_run_plan *p, bool *over)
{
	int64_t left = p->retry_at.ms - rdv_mono_now().ms;
	*over = false;
	if (left > 0)
		return left;
	if (rdv_desk_plan_ended(p->state))
		return turn_ended(d, p, over);
	if (p->state == RDV_PLAN_PAUSED)
		return tell(d, p, RDV_DESK_TOLD_PAUSE) ? IDLE_MS : AGAIN_MS;
	return turn_running(d, p);
}

static int64_t all_turns(struct rdv_desk_replays *r)
{
	int64_t wait = IDLE_MS;
	for (struct rdv_desk_run_plan **at = &r->plans; *at;) {
		struct rdv_desk_run_plan *p = *at;
		bool over;
		int64_t own = turn(r->desk, p, &over);
		wait = own < wait ? own : wait;
		if (over) {
			*at = p->next;
			plan_free(p);
		} else {
			at = &p->next;
		}
	}
	return wait;
}

/* ---- the thread ---- */

/* Sleeps; *changed: somebody acted since the last time. False: stop. While reports cannot be booked, they wake nobody.
 */
static bool sleep_until(struct rdv_desk_replays *r, int64_t wait_ms, bool failing, bool *changed)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (wait_ms % 1000) * 1000000;
	until.tv_sec += wait_ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&r->mutex);
	while ((failing || !r->reports) && !r->changed && !r->stopping && wait_ms > 0)
		if (pthread_cond_timedwait(&r->wake, &r->mutex, &until) == ETIMEDOUT)
			break;
	*changed |= r->changed;
	r->changed = false;
	bool go_on = !r->stopping;
	pthread_mutex_unlock(&r->mutex);
	return go_on;
}

static void read_tallies(struct rdv_desk_replays *r)
{
	rdv_desk_control_lock(&r->desk->control);
	for (struct rdv_desk_run_plan *p = r->plans; p; p = p->next)
		/* A failed read leaves the old numbers; the next booking reads again. */
		if (rdv_desk_plan_tally(&r->desk->control, p->number, p->tally) != REDRIVE_OK)
			break;
	rdv_desk_control_unlock(&r->desk->control);
}

static void *runner(void *arg)
{
	struct rdv_desk_replays *r = arg;
	bool changed = true, failing = false;
	int64_t wait = 0;
	while (sleep_until(r, wait, failing, &changed)) {
		size_t booked = 0;
		enum redrive_status status = rdv_desk_book_reports(r, &booked);
		if (booked)
			read_tallies(r);
		if (changed && status == REDRIVE_OK) {
			status = refresh(r);
			changed = status != REDRIVE_OK;
		}
		wait = status == REDRIVE_OK ? all_turns(r) : AGAIN_MS;
		if (status != REDRIVE_OK && !failing)
			rdv_desk_say(&r->desk->say, 0, "replays cannot be recorded: %s", rdv_status_info(status)->text);
		failing = status != REDRIVE_OK;
	}
	return NULL;
}

enum redrive_status rdv_desk_replays_start(struct rdv_desk_replays *r)
{
	if (pthread_create(&r->thread, NULL, runner, r))
		return REDRIVE_NO_MEMORY;
	r->running = true;
	return REDRIVE_OK;
}

void rdv_desk_replays_stop(struct rdv_desk_replays *r)
{
	if (!r->running)
		return;
	pthread_mutex_lock(&r->mutex);
	r->stopping = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->mutex);
	pthread_join(r->thread, NULL);
	r->running = false;
}
