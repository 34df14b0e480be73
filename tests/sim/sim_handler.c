/* sim_handler.c - handlers of every character: calls, how long they take, what they answer; the weather of their
 * targets.
 *
 * An answer depends on the message's nature and on the weather when the call ends. Answers go through the real rules
 * (rdv_rules_judge), so a verdict is what the program would make of it. Handlers lie about Retry-After: absurdly long,
 * zero, or none at all. A call that was answered may be answered again later: that must be refused. */
#include "world.h"
#include <assert.h>
#include <stdlib.h>

enum weather { CLEAR, DOWN, OVERLOAD, REJECTING, WEATHERS };

static uint32_t free_slot(struct sim_world *w)
{
	for (size_t i = 0; i < w->call_count; i++)
		if (!w->calls[i].open)
			return (uint32_t)i;
	if (w->call_count == w->call_capacity) {
		w->call_capacity = w->call_capacity ? w->call_capacity * 2 : 64;
		w->calls = realloc(w->calls, w->call_capacity * sizeof *w->calls);
		assert(w->calls);
	}
	return (uint32_t)w->call_count++;
}

static int64_t latency(struct sim_world *w, uint8_t nature, uint8_t weather)
{
	if (nature == SIM_SLOW && !w->healing)
		return sim_between(w, 200, 20000);
	if (weather == DOWN)
		return sim_chance(w, 0.2) ? sim_between(w, 1000, 5000) : sim_between(w, 0, 5);
	return sim_chance(w, 0.05) ? sim_between(w, 50, 800) : sim_between(w, 0, 30);
}

static void go_out(struct sim_world *w, uint32_t slot)
{
	struct sim_call *c = &w->calls[slot];
	struct sim_lane *l = &w->lanes[c->lane];

	c->wait_ticket = 0;
	sim_at(w, latency(w, sim_message_of(w, l, c->seq)->nature, w->targets[c->target].weather),
	       (struct sim_event){.kind = SIM_EV_ANSWER, .a = slot, .c = c->call});
}

static void count_call(struct sim_world *w, struct sim_call *c, int by)
{
	struct sim_lane *l = &w->lanes[c->lane];
	struct sim_fate *f = sim_fate_of(w, l, c->seq);
	struct sim_key *k = sim_key_of(l, sim_message_of(w, l, c->seq)->key_hash);

	if (c->request)
		f->replaying = by > 0;
	else
		f->calls = (uint8_t)(f->calls + by);
	if (k && c->request)
		k->replay_calls = (uint8_t)(k->replay_calls + by);
	else if (k)
		k->live_calls = (uint8_t)(k->live_calls + by);
	w->targets[c->target].calls += (uint32_t)by;
	w->targets[c->target].probes += c->probe ? (uint32_t)by : 0;
	c->open = by > 0;
}

/* A call that was taken back did not go out. */
static void give_token(struct sim_target *t)
{
	double most = t->policy.rate / 10 > 1 ? t->policy.rate / 10 : 1;

	t->tokens = t->tokens + 1 < most ? t->tokens + 1 : most;
}

/* What the lane says to the message's dedupe key; true: the call goes on. */
static bool dedupe_lets_go(struct sim_world *w, struct sim_lane *l, struct sim_call *c)
{
	struct sim_fate *f = sim_fate_of(w, l, c->seq);
	enum rdv_dedupe_answer answer = rdv_lane_dedupe(l->lane, sim_now(w), c->entry, c->call,
							sim_message_of(w, l, c->seq)->dedupe, &w->effects);

	if (answer == RDV_DEDUPE_PROCEED) {
		sim_check_dedupe(w, l, c->seq);
		c->has_dedupe = true;
		f->done_until = 0;
		return true;
	}
	sim_trace(w, "lane %u %llu: %s by %llu, key %u", l->index, (unsigned long long)c->seq,
		  answer == RDV_DEDUPE_DUPLICATE ? "duplicate" : "waits for its twin",
		  (unsigned long long)sim_message_of(w, l, c->seq)->dedupe.lo, sim_message_of(w, l, c->seq)->key);
	if (answer == RDV_DEDUPE_DUPLICATE && !c->request)
		f->acked = true;
	count_call(w, c, -1);
	give_token(&w->targets[c->target]);
	sim_touch(w, l);
	return false;
}

void sim_call_begin(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	uint32_t slot = free_slot(w);
	struct sim_call *c = &w->calls[slot];

	*c = (struct sim_call){.lane = l->index,
			       .entry = e->entry,
			       .target = w->routes[l->route].target,
			       .seq = e->seq,
			       .call = e->dispatch.call,
			       .request = e->dispatch.request,
			       .attempt = e->dispatch.attempt,
			       .probe = e->dispatch.probe,
			       .began = w->t};
	count_call(w, c, 1);
	w->dispatches++;
	sim_trace(w, "lane %u calls %llu attempt %u%s%s%s", l->index, (unsigned long long)e->seq, c->attempt,
		  c->request ? " replay" : "", c->probe ? " probe" : "", e->dispatch.started ? " started" : "");
	if (w->routes[l->route].policy.dedupe.by != RDV_DEDUPE_OFF && !dedupe_lets_go(w, l, c))
		return;
	sim_fate_of(w, l, e->seq)->deliveries++;
	if (e->dispatch.started)
		c->wait_ticket = UINT64_MAX; /* of this turn's batch, which comes */
	else
		go_out(w, slot);
}

void sim_calls_durable(struct sim_world *w)
{
	for (size_t i = 0; i < w->call_count && !w->crashed; i++) {
		struct sim_call *c = &w->calls[i];
		struct sim_message *m;

		if (!c->open || !c->wait_ticket || c->wait_ticket > w->log.durable)
			continue;
		m = sim_message_of(w, &w->lanes[c->lane], c->seq);
		if (m->nature == SIM_CRASHER && !w->healing && w->routes[w->lanes[c->lane].route].start_before_call) {
			sim_trace(w, "lane %u %llu kills the process", c->lane, (unsigned long long)c->seq);
			w->crashed = true;
			return;
		}
		go_out(w, (uint32_t)i);
	}
}

/* ---- answers ---- */

static void answer_http(struct rdv_answer *a, int status)
{
	a->http_status = status;
	a->transport = RDV_TRANSPORT_ANSWER;
}

static void answer_lie(struct sim_world *w, struct rdv_answer *a)
{
	static const int64_t lies[] = {0, 1, 1000, 90000, 3600000, 315360000000, -5};

	if (sim_chance(w, 0.5))
		return;
	a->has_delay = true;
	a->delay_is_retry_after = sim_chance(w, 0.7);
	a->delay_ms = lies[sim_below(w, 7)];
}

static void answer_down(struct sim_world *w, struct rdv_answer *a)
{
	static const enum rdv_transport ways[] = {RDV_TRANSPORT_REFUSED, RDV_TRANSPORT_RESET, RDV_TRANSPORT_TIMEOUT,
						  RDV_TRANSPORT_DNS, RDV_TRANSPORT_TLS};

	if (sim_chance(w, 0.5))
		answer_http(a, sim_chance(w, 0.5) ? 503 : 502);
	else
		a->transport = ways[sim_below(w, 5)];
}

static void answer_explicit(struct rdv_answer *a, enum rdv_verdict_kind verdict)
{
	answer_http(a, 200);
	a->explicit_verdict = true;
	a->verdict = verdict;
}

static void answer_by_nature(struct sim_world *w, uint8_t nature, const struct sim_fate *f, struct rdv_answer *a)
{
	answer_http(a, 200);
	switch (nature) {
	case SIM_FLAKY:
		if (sim_chance(w, 0.5))
			answer_http(a, sim_chance(w, 0.5) ? 500 : 503);
		break;
	case SIM_POISON:
		answer_http(a, 500);
		break;
	case SIM_REJECT:
		answer_http(a, 400);
		break;
	case SIM_DEFER:
		if (f->defers < 3)
			answer_explicit(a, RDV_DEFER);
		if (sim_chance(w, 0.5))
			answer_lie(w, a);
		break;
	case SIM_CRASHER:
		a->http_status = 0;
		a->transport = RDV_TRANSPORT_SIGNAL;
		break;
	case SIM_DROP:
		answer_explicit(a, RDV_DROP);
		break;
	default:
		break;
	}
}

static void answer(struct sim_world *w, const struct sim_call *c, struct rdv_answer *a)
{
	struct sim_lane *l = &w->lanes[c->lane];
	uint8_t weather = w->targets[c->target].weather;

	*a = (struct rdv_answer){
		.exit_code = -1, .took_ms = w->t - c->began, .failure.text = rdv_slice_text("it failed")};
	answer_by_nature(w, sim_message_of(w, l, c->seq)->nature, sim_fate_of(w, l, c->seq), a);
	if (weather == DOWN) {
		answer_http(a, 0);
		answer_down(w, a);
	} else if (weather == OVERLOAD && sim_chance(w, 0.7)) {
		answer_http(a, sim_chance(w, 0.5) ? 429 : 503);
		answer_lie(w, a);
	} else if (weather == REJECTING && sim_chance(w, 0.8)) {
		answer_http(a, 422);
	}
	if (a->http_status == 200)
		a->failure.text = rdv_slice(NULL, 0); /* which rules look at */
}

/* The delays that the policy allows for what comes now. Called before the verdict; rules are the route's own. */
static void expect_delay(struct sim_world *w, struct sim_lane *l, struct sim_fate *f, const struct rdv_verdict *v)
{
	const struct rdv_retry *rule = rdv_rules_retry(w->routes[l->route].rules, v->rule);
	const struct rdv_retry *r = rule ? rule : &w->routes[l->route].policy.retry;
	int64_t latest;

	f->bounded = true;
	if (v->rule && v->kind == RDV_DEFER && v->has_delay) {
		f->low = v->delay_ms;
		f->high = w->routes[l->route].route_policy.family.then == RDV_FAMILY_HOLD ? RDV_NEVER : v->delay_ms;
	} else if (v->has_delay && v->delay_ms >= 0) {
		f->low = f->high = rdv_retry_named_delay(r, v->delay_ms);
		if (w->routes[l->route].route_policy.family.then == RDV_FAMILY_HOLD)
			f->high = rdv_retry_cap(r);
	} else if (v->kind == RDV_DEFER) {
		f->low = 0;
		f->high = rdv_retry_cap(r) + r->base_ms;
	} else {
		/* Charged or not, refunded or not: at least the shortest delay of the curve so far. */
		rdv_retry_bounds(r, 1, &f->low, &latest);
		if (w->routes[l->route].route_policy.family.then == RDV_FAMILY_HOLD)
			latest = rdv_retry_cap(r); /* a held family waits as long as the cap */
		for (uint32_t n = 1; n <= f->charged + 1u; n++) {
			int64_t low, high;
			rdv_retry_bounds(r, n, &low, &high);
			f->low = low < f->low ? low : f->low;
			latest = high > latest ? high : latest;
		}
		f->high = latest;
	}
}

static void note_verdict(struct sim_world *w, struct sim_lane *l, struct sim_call *c, const struct rdv_verdict *v)
{
	struct sim_fate *f = sim_fate_of(w, l, c->seq);

	f->bounded = false;
	f->judged = sim_now(w).mono.ms;
	if (c->request)
		return;
	f->fresh = v->kind != RDV_ACK && v->kind != RDV_DROP && v->cause != RDV_CAUSE_SHUTDOWN;
	if (v->kind == RDV_ACK)
		sim_outage_acked(w);
	if (v->kind == RDV_ACK)
		f->acked = true;
	else if (v->kind == RDV_DROP)
		f->dropped = true;
	else if (v->kind == RDV_DEFER)
		f->defers++;
	else if (v->cause == RDV_CAUSE_CRASH)
		f->crashes++;
	else if (v->cause != RDV_CAUSE_SHUTDOWN)
		f->retries++;
	if ((v->kind == RDV_RETRY || v->kind == RDV_DEFER) && v->cause != RDV_CAUSE_SHUTDOWN)
		expect_delay(w, l, f, v);
}

static struct rdv_slice history_of(struct sim_world *w, struct sim_lane *l, uint64_t seq, struct rdv_buffer *copy)
{
	struct rdv_where where;
	struct sim_frame *f;

	if (rdv_lane_where(l->lane, sim_now(w), seq, &where) != REDRIVE_OK || !where.state_place.segment)
		return rdv_slice(NULL, 0);
	f = sim_log_find(&w->log, where.state_place);
	if (!f || f->type != RDV_RECORD_STATE || f->seq != seq || f->stream != l->stream)
		sim_fail(w, "lane %u: the STATE of %llu is not at %u:%u", l->index, (unsigned long long)seq,
			 where.state_place.segment, where.state_place.offset);
	rdv_buffer_clear(copy); /* the log's bytes move when it grows */
	rdv_buffer_slice(copy, sim_log_payload(&w->log, f));
	return rdv_buffer_as_slice(copy);
}

/* Nothing is charged while the target is down, as long as patience lasts. */
static void check_charges(struct sim_world *w, struct sim_lane *l, const struct rdv_account *before, bool was_down,
			  const struct rdv_verdict *v, bool replay)
{
	const struct rdv_account *after = rdv_lane_account(l->lane);

	if (!was_down || replay || v->kind != RDV_RETRY || v->evidence == RDV_KIND_NONE)
		return;
	if (after->failed > before->failed || after->outage != before->outage + 1)
		sim_fail(w, "lane %u: a failure while down was charged (failed %llu, outage %llu)", l->index,
			 (unsigned long long)(after->failed - before->failed),
			 (unsigned long long)(after->outage - before->outage));
}

static bool is_patient(struct sim_world *w, const struct sim_target *t)
{
	return sim_now(w).mono.ms - t->last_ok < t->policy.breaker.patience_ms;
}

/* Patience begins when the target goes down, and again with each ok of a call that began after that. */
static void note_patience(struct sim_world *w, struct sim_target *t, enum rdv_breaker_state before,
			  const struct rdv_verdict *v, int64_t began)
{
	struct rdv_target_status after;

	rdv_target_status(t->target, sim_now(w), &after);
	t->refunds |= before == RDV_UP && after.state == RDV_DOWN;
	if (before != RDV_DOWN && after.state == RDV_DOWN)
		t->down_at = sim_now(w).mono.ms;
	if ((before == RDV_UP && after.state == RDV_DOWN) ||
	    (v->evidence == RDV_KIND_OK && (before == RDV_HALF || began + w->mono_base > t->down_at)))
		t->last_ok = sim_now(w).mono.ms;
}

static void give_verdict(struct sim_world *w, struct sim_call *c, const struct rdv_verdict *v)
{
	struct sim_lane *l = &w->lanes[c->lane];
	struct sim_target *t = &w->targets[c->target];
	struct rdv_account before = *rdv_lane_account(l->lane);
	struct rdv_target_status status;
	struct rdv_buffer copy;
	struct rdv_slice history = {NULL, 0};

	rdv_buffer_init(&copy, 0);
	if (v->kind != RDV_ACK && v->kind != RDV_DROP)
		history = history_of(w, l, c->seq, &copy);
	rdv_target_status(t->target, sim_now(w), &status);
	note_verdict(w, l, c, v);
	count_call(w, c, -1);
	w->verdicts++;
	sim_trace(w, "lane %u answers %llu: %s %s", l->index, (unsigned long long)c->seq, rdv_verdict_name(v->kind),
		  rdv_cause_name(v->cause));
	if (rdv_dispatcher_verdict(t->dispatcher, sim_now(w), l->lane, c->entry, c->call, v, history, &w->effects) !=
	    REDRIVE_OK)
		sim_fail(w, "lane %u: the verdict on %llu was refused", l->index, (unsigned long long)c->seq);
	rdv_buffer_done(&copy);
	check_charges(w, l, &before, status.state == RDV_DOWN && is_patient(w, t), v, c->request != 0);
	note_patience(w, t, status.state, v, c->began);
	if (v->target_hold_ms > 0) {
		int64_t until = sim_now(w).mono.ms + (v->target_hold_ms < 300000 ? v->target_hold_ms : 300000);
		t->hold_until = until > t->hold_until ? until : t->hold_until;
	}
	sim_touch(w, l);
}

void sim_answer(struct sim_world *w, uint32_t slot)
{
	struct sim_call *c = &w->calls[slot];
	struct sim_lane *l = &w->lanes[c->lane];
	struct rdv_answer a;
	struct rdv_verdict v;

	if (w->options.damage && !w->healing && !c->request && sim_chance(w, 0.01)) {
		sim_fate_of(w, l, c->seq)->damaged = true;
		count_call(w, c, -1);
		give_token(&w->targets[c->target]); /* nobody was called */
		sim_trace(w, "lane %u %llu cannot be read", l->index, (unsigned long long)c->seq);
		rdv_lane_damaged(l->lane, sim_now(w), c->entry, c->call, &w->effects);
		sim_touch(w, l);
		return;
	}
	answer(w, c, &a);
	rdv_rules_judge(w->routes[l->route].rules, w->routes[l->route].name, &a, &v);
	give_verdict(w, c, &v);
	if (!w->healing && sim_chance(w, 0.02))
		sim_at(w, sim_between(w, 0, 2000),
		       (struct sim_event){.kind = SIM_EV_LATE, .a = c->lane, .b = c->entry, .c = c->call});
}

/* A second answer to a call that has ended: refused, whatever has become of the message. */
void sim_late(struct sim_world *w, const struct sim_event *e)
{
	struct sim_lane *l = &w->lanes[e->a];
	struct rdv_verdict v = {.kind = RDV_ACK, .evidence = RDV_KIND_OK};
	enum redrive_status status = rdv_dispatcher_verdict(sim_target_of(w, l)->dispatcher, sim_now(w), l->lane, e->b,
							    e->c, &v, rdv_slice(NULL, 0), &w->effects);

	for (size_t i = 0; i < w->call_count; i++)
		if (w->calls[i].open && w->calls[i].lane == e->a && w->calls[i].call == e->c)
			sim_fail(w, "lane %u gave the call number %llu twice", e->a, (unsigned long long)e->c);
	if (status != REDRIVE_NOT_FOUND)
		sim_fail(w, "lane %u: a second verdict on call %llu: %s", e->a, (unsigned long long)e->c,
			 redrive_status_text(status));
}

void sim_cut_calls(struct sim_world *w, struct sim_lane *l)
{
	for (size_t i = 0; i < w->call_count && !w->crashed; i++) {
		struct rdv_answer a = {.transport = RDV_TRANSPORT_SHUTDOWN, .exit_code = -1};
		struct rdv_verdict v;

		if (!w->calls[i].open || w->calls[i].lane != l->index)
			continue;
		rdv_rules_judge(w->routes[l->route].rules, w->routes[l->route].name, &a, &v);
		give_verdict(w, &w->calls[i], &v);
		sim_execute(w);
	}
}

void sim_weather(struct sim_world *w)
{
	struct sim_target *t = &w->targets[sim_below(w, w->options.targets)];

	if (w->options.outage) {
		sim_outage_weather(w);
		return;
	}
	t->weather = t->weather != CLEAR || w->healing ? CLEAR : (uint8_t)(1 + sim_below(w, w->options.storms ? 3 : 2));
	if (w->healing)
		return;
	sim_trace(w, "weather of target %u: %u", (unsigned)(t - w->targets), t->weather);
	sim_at(w, t->weather == CLEAR ? sim_between(w, 500, 60000) : sim_between(w, 500, 30000),
	       (struct sim_event){.kind = SIM_EV_WEATHER});
}
