/* leases.c - verdicts on leases, and what became of them.
 *
 *   given in time ── the handler completes the call ──▶ booked like any ──┐
 *   late ── somebody else has the message? ── history read ──▶ the lane ──┴▶ decided ──▶ all of its batch
 *                                                                                   ──▶ durable ──▶ done
 *
 * Who gives a verdict hears the state that the lane really decided on, when that is durable. Verdicts come in batches,
 * which end together. A late one waits for nothing but a read: a call that is only offered is taken back first; one
 * that somebody leased after it wins. Nothing here is given up silently: each verdict of a batch ends exactly once,
 * also when the log has failed. Core thread, but for the two functions that ask. */
#include "room.h"
#include "inlets.h"
#include <stdlib.h>

struct rdv_late {           /* a verdict whose lease is over */
	struct rdv_job job; /* first; reads: 0 STATE */
	struct rdv_late *next;
	struct rdv_lease_verdict *v;
	struct rdv_strand *strand;
	struct rdv_route_info *info; /* shares */
	struct rdv_call call;        /* its answer, as it is stored */
	struct rdv_verdict verdict;
	uint64_t offset;
	bool replay;
	struct rdv_place read_at;  /* segment 0: nothing was read */
	struct rdv_block *history; /* owns */
};

/* ---- decided ---- */

static void decided(struct rdv_engine *e, struct rdv_lease_verdict *v, enum redrive_status status, const char *why)
{
	struct rdv_lease_batch *b = v->batch;

	v->status = status;
	v->why = why;
	if (--b->undecided)
		return;
	b->next = e->decided;
	e->decided = b;
}

/* What people see of it now. A replay that has ended is what it ended as. */
static enum rdv_state state_of(struct rdv_engine *e, struct rdv_strand *s, uint64_t offset, uint64_t request)
{
	struct rdv_request r;
	struct rdv_where where;

	if (request && rdv_lane_request(s->lane, request, &r) && r.state == RDV_REQUEST_FINISHED)
		return r.outcome;
	if (rdv_lane_where(s->lane, e->now, offset, &where) != REDRIVE_OK)
		return RDV_STATE_DONE;
	return where.state;
}

void rdv_lease_decided(struct rdv_engine *e, struct rdv_flight *f, enum redrive_status status)
{
	struct rdv_lease_verdict *v = f->call.asker;

	f->call.asked = false;
	v->batch->broker = v->batch->broker || f->strand->inlet;
	if (status == REDRIVE_OK && f->strand->lane && !rdv_strand_serves(f->strand)) {
		decided(e, v, REDRIVE_CONFLICT, "the broker has given the message's partition to somebody else");
		return;
	}
	if (status == REDRIVE_OK && f->strand->lane)
		v->state = state_of(e, f->strand, f->call.offset, f->request);
	decided(e, v, status == REDRIVE_NOT_FOUND ? REDRIVE_CONFLICT : status,
		status == REDRIVE_OK ? NULL : "the message has ended meanwhile");
}

void rdv_lease_undecided(struct rdv_engine *e, struct rdv_flight *f)
{
	struct rdv_lease_verdict *v = f->call.asker;

	f->call.asked = false;
	decided(e, v, e->failed ? REDRIVE_FAILED : REDRIVE_CLOSED, "nothing can be recorded now");
}

void rdv_leases_settle(struct rdv_engine *e)
{
	while (e->decided) {
		struct rdv_lease_batch *b = e->decided;
		enum redrive_status status = REDRIVE_FAILED;

		e->decided = b->next;
		if (!e->failed && b->broker) {
			rdv_inlets_await(e, e->last_ticket, b->done, b->ctx);
			continue;
		}
		if (!e->failed)
			status = rdv_writer_await(&e->writer, e->last_ticket, b->done, b->ctx);
		if (status != REDRIVE_OK)
			b->done(b->ctx, status);
	}
}

/* ---- late ---- */

static void end_late(struct rdv_engine *e, struct rdv_late *l, enum redrive_status status, const char *why)
{
	decided(e, l->v, status, why);
	rdv_block_unref(l->history);
	rdv_call_reset(&l->call);
	rdv_route_info_unref(l->info);
	free(l);
}

static const char *why_over(enum rdv_state state)
{
	static const char *const texts[RDV_STATE_COUNT] = {
		[RDV_STATE_DYING] = "the lease expired, and with it the last attempt: the message is dead",
		[RDV_STATE_DEAD] = "the lease expired, and the message has died meanwhile",
		[RDV_STATE_ACKED] = "the message is finished: it was acked",
		[RDV_STATE_DROPPED] = "the message is finished: it was dropped",
		[RDV_STATE_REVOKED] = "the message was revoked",
		[RDV_STATE_REPLAYING] = "the message had died; now its letter is replayed",
		[RDV_STATE_DONE] = "the message is finished",
	};

	return texts[state] ? texts[state] : "the message is not waiting for a verdict any more";
}

static void came_back(struct rdv_engine *e, struct rdv_job *job);

/* true: the history is there, or there is none; false: it is being read. */
static bool have_history(struct rdv_engine *e, struct rdv_late *l, struct rdv_place at)
{
	if (l->verdict.kind == RDV_ACK || l->verdict.kind == RDV_DROP || !at.segment)
		return true;
	if (l->read_at.segment == at.segment && l->read_at.offset == at.offset)
		return true;
	rdv_block_unref(l->history);
	l->history = NULL;
	l->read_at = at;
	rdv_read_want(&l->job.reads[0], &at);
	l->job.done = came_back;
	rdv_job_queue(e, &l->job, true);
	return false;
}

/* Nobody else has the message; true: go on. Otherwise the verdict has ended, or waits for a call to be taken back. */
static bool nobody_has_it(struct rdv_engine *e, struct rdv_late *l)
{
	struct rdv_flight *f;
	struct rdv_where where;

	if (rdv_lane_where(l->strand->lane, e->now, l->offset, &where) == REDRIVE_OK &&
	    where.state != RDV_STATE_IN_FLIGHT && where.state != RDV_STATE_REPLAYING)
		return true; /* without looking through all calls */
	f = rdv_flight_find(e, l->strand, l->offset);
	if (!f)
		return true;
	if (!rdv_flight_is_offered(f)) {
		end_late(e, l, REDRIVE_CONFLICT, "the lease expired, and somebody else has the message now");
		return false;
	}
	if (rdv_flight_recall(e, f))
		return true;
	l->next = e->late;
	e->late = l;
	return false;
}

static void step(struct rdv_engine *e, struct rdv_late *l)
{
	struct rdv_where where = {.state = RDV_STATE_DONE};
	enum redrive_status status;

	rdv_effects_run(e); /* so that every STATE has its place */
	if (e->failed || !l->strand->lane) {
		end_late(e, l, REDRIVE_FAILED, "nothing can be recorded now");
		return;
	}
	if (!nobody_has_it(e, l))
		return;
	if (rdv_lane_where(l->strand->lane, e->now, l->offset, &where) != REDRIVE_OK ||
	    (where.state == RDV_STATE_REPLAYING) != l->replay) {
		end_late(e, l, REDRIVE_CONFLICT, why_over(where.state));
		return;
	}
	if (!have_history(e, l, where.state_place))
		return;
	l->v->batch->broker = l->v->batch->broker || l->strand->inlet;
	status =
		rdv_lane_late(l->strand->lane, e->now, l->offset, &l->verdict, rdv_block_slice(l->history), e->effects);
	rdv_strand_nudge(e, l->strand);
	if (status == REDRIVE_OK)
		l->v->state = state_of(e, l->strand, l->offset, 0);
	if (l->replay && l->v->state == RDV_STATE_DONE)
		l->v->state = RDV_STATE_ACKED;
	end_late(e, l, status, status == REDRIVE_OK ? NULL : why_over(where.state));
}

static void came_back(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_late *l = (struct rdv_late *)job;

	e->reads_open--;
	l->history = job->reads[0].status == REDRIVE_OK ? job->reads[0].block : NULL;
	job->reads[0].length = 0;
	if (rdv_read_passes(job->reads[0].status)) {
		end_late(e, l, REDRIVE_IO, "the message's history could not be read now: give the verdict again");
		return;
	}
	step(e, l); /* which reads again if trimming has moved it meanwhile */
}

void rdv_leases_step(struct rdv_engine *e)
{
	struct rdv_late *list = e->late;

	e->late = NULL;
	while (list) {
		struct rdv_late *next = list->next;

		step(e, list);
		list = next;
	}
}

static struct rdv_strand *strand_of(struct rdv_engine *e, const struct rdv_outlet *o, struct rdv_lease_position at)
{
	struct rdv_strand *s = at.lane < e->stream_capacity ? e->streams[at.lane].strand : NULL;

	return s && s->route && s->route->outlet == o && rdv_strand_serves(s) ? s : NULL;
}

static void be_late(struct rdv_engine *e, struct rdv_outlet *o, struct rdv_lease_verdict *v)
{
	struct rdv_lease_position at;
	struct rdv_strand *s = NULL;
	struct rdv_late *l;

	if (rdv_lease_position(o->handler, v->token, &at) == REDRIVE_OK)
		s = strand_of(e, o, at);
	if (!s) {
		decided(e, v, REDRIVE_CONFLICT, "this lease has ended, and its route with it");
		return;
	}
	l = calloc(1, sizeof *l);
	if (!l) {
		decided(e, v, REDRIVE_NO_MEMORY, NULL);
		return;
	}
	l->v = v;
	l->strand = s;
	l->info = rdv_route_info_ref(s->route->info);
	l->offset = at.offset;
	l->replay = at.replay;
	rdv_call_init(&l->call);
	rdv_call_set_answer(&l->call, &v->answer);
	rdv_rules_judge(l->info->rules, l->info->name, &l->call.answer, &l->verdict);
	step(e, l);
}

/* ---- asking ---- */

static void give(struct rdv_engine *e, struct rdv_lease_verdict *v)
{
	struct rdv_outlet *o = NULL;
	enum redrive_status status = REDRIVE_NOT_FOUND;
	uint32_t number;

	if (rdv_lease_token_number(v->token, &number))
		o = rdv_outlet_of_lease(e, number);
	if (o && o->kind == RDV_HANDLER_LEASE)
		status = rdv_lease_answer(o->handler, v->token, &v->answer, v);
	if (status == REDRIVE_NOT_FOUND)
		decided(e, v, status, "no lease has this token");
	else if (status == REDRIVE_CONFLICT)
		be_late(e, o, v);
}

static void do_verdicts(struct rdv_engine *e, void *ctx)
{
	struct rdv_lease_batch *b = ctx;
	struct rdv_lease_verdict end = {.batch = b}; /* so that the batch does not end before all are given */

	b->undecided = 1;
	b->broker = false;
	for (size_t i = 0; i < b->count; i++)
		b->undecided += b->verdicts[i].token != NULL;
	for (size_t i = 0; i < b->count; i++) {
		b->verdicts[i].batch = b;
		if (b->verdicts[i].token)
			give(e, &b->verdicts[i]);
	}
	decided(e, &end, REDRIVE_OK, NULL);
}

enum redrive_status rdv_engine_lease_verdicts(struct rdv_engine *e, struct rdv_lease_batch *b)
{
	return rdv_engine_call(e, do_verdicts, b);
}

struct waiter {
	pthread_mutex_t mutex;
	pthread_cond_t change;
	bool done;
	enum redrive_status status;
};

static void wake_waiter(void *ctx, enum redrive_status status)
{
	struct waiter *w = ctx;

	pthread_mutex_lock(&w->mutex);
	w->done = true;
	w->status = status;
	pthread_cond_signal(&w->change);
	pthread_mutex_unlock(&w->mutex);
}

enum redrive_status rdv_engine_lease_verdict(struct rdv_engine *e, struct rdv_lease_verdict *v)
{
	struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, REDRIVE_OK};
	struct rdv_lease_batch b = {.verdicts = v, .count = 1, .done = wake_waiter, .ctx = &w};
	enum redrive_status status = rdv_engine_lease_verdicts(e, &b);

	if (status != REDRIVE_OK)
		return status;
	pthread_mutex_lock(&w.mutex);
	while (!w.done)
		pthread_cond_wait(&w.change, &w.mutex);
	pthread_mutex_unlock(&w.mutex);
	pthread_cond_destroy(&w.change);
	pthread_mutex_destroy(&w.mutex);
	return v->status != REDRIVE_OK ? v->status : w.status;
}
