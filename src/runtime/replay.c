/* replay.c - the seam through which the desk's runner reaches the lanes: requests in, their ends stored.
 *
 * Every function is called by the desk's threads and runs as one command on the core thread; what was recorded is
 * durable when it returns. See struct rdv_desk_runtime. */
#include "inlets.h"

struct asked {
	const struct rdv_replay_send *send;
	const char *route, *topic;
	uint32_t partition;
	uint64_t plan, request, ticket;
	bool paused, cancel, up, dedupe, broker;
	enum redrive_status status;
};

/* The lane that takes new messages of that partition for the route, else any of the route's there. */
static struct rdv_strand *strand_of(struct rdv_engine *e, const char *route, const char *topic, uint32_t partition,
				    uint64_t offset)
{
	struct rdv_route *r = rdv_route_find(e, route);
	struct rdv_strand *best = NULL;

	if (!r)
		return NULL;
	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (s->route != r || !rdv_strand_serves(s) || s->feed->partition != partition ||
		    strcmp(rdv_topic_name(s->feed->topic), topic) != 0)
			continue;
		if (!best || (offset >= s->start && offset < s->end))
			best = s;
	}
	return best;
}

/* A broker's lanes come and go, with the process that has them: such a one is waited for. */
static enum redrive_status without_lane(struct rdv_engine *e, const char *route)
{
	const struct rdv_route *r = rdv_route_find(e, route);

	if (!r || !r->inlet)
		return REDRIVE_NOT_FOUND;
	return e->options.desk_alone ? REDRIVE_REFUSED : REDRIVE_CLOSED;
}

static void settle(struct rdv_engine *e, struct asked *a, struct rdv_strand *s)
{
	rdv_strand_nudge(e, s);
	rdv_effects_run(e);
	a->ticket = e->last_ticket;
	a->broker = a->broker || s->inlet;
}

static void do_replay(struct rdv_engine *e, void *ctx)
{
	struct asked *a = ctx;
	const struct rdv_replay_send *send = a->send;
	struct rdv_strand *s = strand_of(e, send->route, send->topic, send->partition, send->offset);
	struct rdv_request request = {
		.kind = RDV_REQUEST_REPLAY,
		.state = RDV_REQUEST_OPEN,
		.seq = send->offset,
		.plan = send->plan,
		.generation = send->generation,
		.plan_name = rdv_slice_text(send->plan_id),
	};
	uint64_t number;

	a->status = s ? REDRIVE_OK : without_lane(e, send->route);
	if (!s)
		return;
	request.key_hash = send->has_key ? rdv_topic_key_hash(s->feed->topic, send->key) : 0;
	memcpy(request.letter, send->letter, sizeof request.letter);
	a->status = rdv_lane_replay(s->lane, e->now, &request, &number, e->effects);
	settle(e, a, s);
}

static void do_plan(struct rdv_engine *e, void *ctx)
{
	struct asked *a = ctx;

	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		if (!rdv_strand_serves(s))
			continue;
		if (a->cancel)
			rdv_lane_replay_cancel(s->lane, e->now, a->plan, e->effects);
		else
			rdv_lane_replay_pause(s->lane, e->now, a->plan, a->paused, e->effects);
		settle(e, a, s);
	}
}

static void do_stored(struct rdv_engine *e, void *ctx)
{
	struct asked *a = ctx;

	for (struct rdv_strand *s = e->strands; s; s = s->next) {
		struct rdv_request request;

		if (!rdv_strand_serves(s) || s->feed->partition != a->partition || strcmp(s->name, a->route) != 0 ||
		    strcmp(rdv_topic_name(s->feed->topic), a->topic) != 0 ||
		    !rdv_lane_request(s->lane, a->request, &request))
			continue;
		rdv_lane_outcome_stored(s->lane, e->now, a->request, e->effects);
		settle(e, a, s);
	}
}

static void do_health(struct rdv_engine *e, void *ctx)
{
	struct asked *a = ctx;
	struct rdv_route *r = rdv_route_find(e, a->route);
	struct rdv_target_status status;

	a->status = r ? REDRIVE_OK : REDRIVE_NOT_FOUND;
	if (!r)
		return;
	rdv_target_status(r->seat->unit->target, e->now, &status);
	a->up = status.state == RDV_UP;
	a->dedupe = r->options.lane.dedupe.by != RDV_DEDUPE_OFF;
}

/* Runs it and waits until what it recorded is durable. */
static enum redrive_status ask(struct rdv_engine *e, void (*fn)(struct rdv_engine *e, void *ctx), struct asked *a)
{
	enum redrive_status status = rdv_engine_call(e, fn, a);

	if (status != REDRIVE_OK || a->status != REDRIVE_OK)
		return status != REDRIVE_OK ? status : a->status;
	return a->ticket ? rdv_engine_await(e, a->ticket, a->broker) : REDRIVE_OK;
}

static enum redrive_status replay(void *ctx, const struct rdv_replay_send *send)
{
	struct asked a = {.send = send};

	return ask(ctx, do_replay, &a);
}

static enum redrive_status pause_plan(void *ctx, uint64_t plan, bool paused)
{
	struct asked a = {.plan = plan, .paused = paused};

	return ask(ctx, do_plan, &a);
}

static enum redrive_status cancel_plan(void *ctx, uint64_t plan)
{
	struct asked a = {.plan = plan, .cancel = true};

	return ask(ctx, do_plan, &a);
}

static void outcome_stored(void *ctx, const char *route, const char *topic, uint32_t partition, uint64_t request)
{
	struct asked a = {.route = route, .topic = topic, .partition = partition, .request = request};

	(void)!rdv_engine_call(ctx, do_stored, &a); /* it need not be durable: it is reported again otherwise */
}

static enum redrive_status route_health(void *ctx, const char *route, bool *up, bool *dedupe)
{
	struct asked a = {.route = route};
	enum redrive_status status = rdv_engine_call(ctx, do_health, &a);

	*up = a.up;
	*dedupe = a.dedupe;
	return status == REDRIVE_OK ? a.status : status;
}

const struct rdv_desk_runtime rdv_replay_runtime = {
	.replay = replay,
	.pause = pause_plan,
	.cancel = cancel_plan,
	.stored = outcome_stored,
	.route_health = route_health,
};
