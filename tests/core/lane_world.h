/* lane_world.h - a little runtime for the lane's unit tests: a log of records, a desk, handlers answered by hand.
 *
 * world_turn is one loop turn: the dispatcher runs, effects are executed, the lane is flushed, the records get a
 * ticket, and, unless `no_sync` is set, become durable. world_reopen is a crash or a clean end: a new lane folds what
 * was durable. Liveness is counted per segment as lane.h asks for and checked after every turn, as are the lane's
 * invariants. */
#ifndef TESTS_CORE_LANE_WORLD_H
#define TESTS_CORE_LANE_WORLD_H
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include "base/block.h"
#include "core/dispatcher.h"
#include "core/lane_parts.h"

#define MAYBE_UNUSED __attribute__((unused))
#define WORLD_SEGMENT_RECORDS 32
#define WORLD_SEGMENTS 4096

struct world_record {
	enum rdv_record type;
	uint64_t seq;
	struct rdv_block *payload;
	struct rdv_place place;
	uint64_t ticket; /* 0 = of this turn */
	bool trimmed;
};
struct world_call {
	struct rdv_effect effect;
	bool open;
};
struct world_letter {
	struct rdv_effect effect;
};

struct world {
	struct rdv_now now;
	struct rdv_target *target;
	struct rdv_dispatcher *dispatcher;
	struct rdv_lane *lane;
	struct rdv_lane_options options;
	struct rdv_target_policy target_policy;
	struct rdv_route_policy route_policy;
	struct rdv_effects out;
	struct world_record *records;
	size_t record_count, record_capacity, first_record;
	struct world_call *calls;
	size_t call_count, call_capacity;
	struct rdv_effect letters[512], outcomes[512];
	size_t letter_count, outcome_count, letters_answered, outcomes_answered;
	struct {
		uint32_t entry;
		struct rdv_place place;
	} restates[4096];
	size_t restate_count;
	int32_t live[WORLD_SEGMENTS];
	uint64_t ticket, durable, next_seq;
	uint32_t segment_skip;
	size_t fetches, alarms;
	uint32_t max_dispatch;
	bool no_sync, no_desk, no_restate;
	struct rdv_mono wake;
};

/* For a person who looks for a defect. */
static void MAYBE_UNUSED world_dump(struct world *w)
{
	for (uint32_t ref = 1; ref <= w->lane->entries.used; ref++) {
		const struct rdv_entry *e = rdv_lane_entry(w->lane, ref);
		if (!e->ghost)
			print_message("entry %u seq %llu %s key %u charged %u joined %d todo %d replay %d doubles %d "
				      "blocks %d queued %d "
				      "unplaced %d state %u\n",
				      ref, (unsigned long long)e->seq, rdv_state_name((enum rdv_state)e->state), e->key,
				      e->charged, e->joined, e->todo, e->replay, e->doubles, e->blocks, e->queued,
				      e->unplaced, e->state_segment);
	}
	for (uint32_t key = 0; (key = rdv_order_each(&w->lane->order, key)) != 0;) {
		const struct rdv_key *k = rdv_order_key(&w->lane->order, key);
		print_message("key %u hash %llu first %u last %u turn %u blocked %u refs %u replays %u closed %d "
			      "letter %llu\n",
			      key, (unsigned long long)k->hash, k->first, k->last, k->turn, k->blocked, k->refs,
			      k->replays, k->closed, (unsigned long long)k->letter_seq);
	}
}

static void MAYBE_UNUSED world_check(struct world *w)
{
	const char *what = "";
	static int32_t live[WORLD_SEGMENTS];

	if (!rdv_lane_check(w->lane, &what)) {
		world_dump(w);
		fail_msg("invariant broken: %s", what);
	}
	memset(live, 0, sizeof live);
	for (uint32_t ref = 1; ref <= w->lane->entries.used; ref++) {
		const struct rdv_entry *e = rdv_lane_entry(w->lane, ref);
		if (e->ghost)
			continue;
		if (!e->replay)
			live[e->body_segment]++;
		live[e->state_segment]++;
	}
	for (uint32_t i = 1; i < WORLD_SEGMENTS; i++)
		if (live[i] != w->live[i])
			fail_msg("segment %u: %d live records counted, the lane owns %d", i, w->live[i], live[i]);
}

static struct rdv_place world_append(struct world *w, enum rdv_record type, uint64_t seq, struct rdv_slice payload)
{
	struct world_record *r;

	if (w->record_count == w->record_capacity) {
		w->record_capacity = w->record_capacity ? w->record_capacity * 2 : 1024;
		w->records = realloc(w->records, w->record_capacity * sizeof *w->records);
	}
	r = &w->records[w->record_count];
	*r = (struct world_record){.type = type, .seq = seq, .payload = rdv_block_copy(payload)};
	r->place.segment = 1 + (uint32_t)(w->record_count / WORLD_SEGMENT_RECORDS);
	r->place.offset = 64 + (uint32_t)(w->record_count % WORLD_SEGMENT_RECORDS) * 100;
	r->place.length = (uint32_t)payload.size;
	w->record_count++;
	return r->place;
}

static struct rdv_slice world_read(struct world *w, struct rdv_place place)
{
	size_t i;

	if (!place.segment)
		return rdv_slice(NULL, 0);
	i = (place.segment - 1) * (size_t)WORLD_SEGMENT_RECORDS + (place.offset - 64) / 100;
	assert_true(i < w->record_count && !w->records[i].trimmed);
	return rdv_block_slice(w->records[i].payload);
}

static void world_record(struct world *w, const struct rdv_effect *e)
{
	struct rdv_place place = world_append(w, e->record.type, e->record.record_seq,
					      rdv_effects_bytes(&w->out, e->record.at, e->record.size));

	if (e->record.owns_state) {
		w->live[place.segment]++;
		rdv_lane_placed(w->lane, e->entry, place);
	}
}

static void world_execute(struct world *w)
{
	for (size_t i = 0; i < w->out.count; i++) {
		const struct rdv_effect *e = &w->out.items[i];
		switch (e->kind) {
		case RDV_EFFECT_DISPATCH:
			if (w->call_count == w->call_capacity) {
				w->call_capacity = w->call_capacity ? w->call_capacity * 2 : 256;
				w->calls = realloc(w->calls, w->call_capacity * sizeof *w->calls);
			}
			w->calls[w->call_count++] = (struct world_call){*e, true};
			break;
		case RDV_EFFECT_RECORD:
			world_record(w, e);
			break;
		case RDV_EFFECT_LETTER:
			assert_true(w->letter_count < 512);
			w->letters[w->letter_count++] = *e;
			break;
		case RDV_EFFECT_OUTCOME:
			assert_true(w->outcome_count < 512);
			w->outcomes[w->outcome_count++] = *e;
			break;
		case RDV_EFFECT_RELEASED:
			w->live[e->released.segment] -= (int32_t)e->released.count;
			assert_true(w->live[e->released.segment] >= 0);
			break;
		case RDV_EFFECT_RESTATE:
			assert_true(w->restate_count < 4096);
			w->restates[w->restate_count].entry = e->entry;
			w->restates[w->restate_count++].place = e->restate;
			break;
		case RDV_EFFECT_FETCH:
			w->fetches++;
			break;
		case RDV_EFFECT_ALARM:
			w->alarms++;
			break;
		case RDV_EFFECT_KIND_COUNT:
			break;
		}
	}
	assert_false(w->out.failed);
	rdv_effects_clear(&w->out);
}

static void MAYBE_UNUSED world_sync(struct world *w)
{
	w->durable = w->ticket;
	rdv_lane_durable(w->lane, w->now, w->ticket, &w->out);
	world_execute(w);
	rdv_dispatcher_touch(w->dispatcher, w->lane);
}

/* The end of a loop turn: everything recorded gets a ticket. */
static void world_end_turn(struct world *w)
{
	world_execute(w);
	rdv_lane_flush(w->lane, &w->out);
	world_execute(w);
	w->ticket++;
	for (size_t i = w->record_count; i-- > 0 && !w->records[i].ticket;)
		w->records[i].ticket = w->ticket;
	rdv_lane_appended(w->lane, w->ticket);
	world_check(w);
	if (!w->no_sync)
		world_sync(w);
	world_check(w);
}

static void world_desk(struct world *w)
{
	for (; !w->no_desk && w->letters_answered < w->letter_count; w->letters_answered++)
		rdv_lane_lettered(w->lane, w->now, w->letters[w->letters_answered].seq,
				  w->letters[w->letters_answered].letter.request, &w->out);
	for (; !w->no_desk && w->outcomes_answered < w->outcome_count; w->outcomes_answered++)
		rdv_lane_outcome_stored(w->lane, w->now, w->outcomes[w->outcomes_answered].outcome.request, &w->out);
	if (w->no_restate)
		return;
	for (size_t i = 0; i < w->restate_count; i++)
		rdv_lane_restate(w->lane, w->now, w->restates[i].entry,
				 world_read(w, rdv_lane_state_place(w->lane, w->restates[i].entry)), &w->out);
	w->restate_count = 0;
}

static void MAYBE_UNUSED world_turn(struct world *w)
{
	world_desk(w);
	rdv_dispatcher_touch(w->dispatcher, w->lane);
	w->wake = rdv_dispatcher_run(w->dispatcher, w->now, w->max_dispatch, &w->out);
	world_end_turn(w);
}

/* Turns until nothing changes at this moment. */
static void MAYBE_UNUSED world_settle(struct world *w)
{
	for (int i = 0; i < 6; i++)
		world_turn(w);
}

static void MAYBE_UNUSED world_pass(struct world *w, int64_t ms)
{
	w->now.mono.ms += ms;
	w->now.wall.ms += ms;
}

static uint64_t MAYBE_UNUSED world_publish_at(struct world *w, uint64_t key, int64_t not_before)
{
	struct rdv_body body = {.key_hash = key, .not_before = {not_before}, .produced_at = w->now.wall};
	struct rdv_published p = {.seq = w->next_seq++, .key_hash = key, .not_before = {not_before}};
	uint8_t bytes[512];

	body.flags = key ? 0 : RDV_BODY_NULL_KEY;
	assert_true(rdv_body_size(&body) <= sizeof bytes);
	rdv_body_encode(&body, bytes);
	p.body = world_append(w, RDV_RECORD_BODY, p.seq, rdv_slice(bytes, rdv_body_size(&body)));
	w->records[w->record_count - 1].ticket = ++w->ticket;
	if (!w->no_sync)
		w->durable = w->ticket;
	w->live[p.body.segment]++;
	assert_int_equal(rdv_lane_published(w->lane, w->now, &p, &w->out), REDRIVE_OK);
	return p.seq;
}

static uint64_t MAYBE_UNUSED world_publish(struct world *w, uint64_t key)
{
	return world_publish_at(w, key, 0);
}

static struct world_call *MAYBE_UNUSED world_call_of(struct world *w, uint64_t seq)
{
	for (size_t i = w->call_count; i-- > 0;)
		if (w->calls[i].open && w->calls[i].effect.seq == seq)
			return &w->calls[i];
	return NULL;
}

static size_t MAYBE_UNUSED world_open_calls(const struct world *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->call_count; i++)
		n += w->calls[i].open;
	return n;
}

static void MAYBE_UNUSED world_answer(struct world *w, uint64_t seq, const struct rdv_verdict *v)
{
	struct world_call *c = world_call_of(w, seq);

	assert_non_null(c);
	c->open = false;
	assert_int_equal(rdv_dispatcher_verdict(w->dispatcher, w->now, w->lane, c->effect.entry,
						c->effect.dispatch.call, v,
						world_read(w, rdv_lane_state_place(w->lane, c->effect.entry)), &w->out),
			 REDRIVE_OK);
	world_end_turn(w);
}

static const struct rdv_verdict world_ack = {.kind = RDV_ACK, .evidence = RDV_KIND_OK};
static const struct rdv_verdict world_drop = {.kind = RDV_DROP, .evidence = RDV_KIND_OK};
static const struct rdv_verdict world_fail = {
	.kind = RDV_RETRY, .cause = RDV_CAUSE_FAILURE, .evidence = RDV_KIND_APP, .fingerprint = 77};
static const struct rdv_verdict world_timeout = {
	.kind = RDV_RETRY, .cause = RDV_CAUSE_TIMEOUT, .evidence = RDV_KIND_INFRA, .fingerprint = 78};
static const struct rdv_verdict world_reject = {
	.kind = RDV_REJECT, .cause = RDV_CAUSE_FAILURE, .evidence = RDV_KIND_MSG, .fingerprint = 79};
static const struct rdv_verdict world_defer = {.kind = RDV_DEFER, .cause = RDV_CAUSE_DEFERRAL, .evidence = RDV_KIND_OK};
static const struct rdv_verdict world_crash = {.kind = RDV_RETRY, .cause = RDV_CAUSE_CRASH, .evidence = RDV_KIND_INFRA};
static const struct rdv_verdict world_shutdown = {
	.kind = RDV_RETRY, .cause = RDV_CAUSE_SHUTDOWN, .evidence = RDV_KIND_NONE};

static struct rdv_where MAYBE_UNUSED world_where(struct world *w, uint64_t seq)
{
	struct rdv_where where;

	assert_int_equal(rdv_lane_where(w->lane, w->now, seq, &where), REDRIVE_OK);
	return where;
}

/* What is finished is DONE here, however it ended: test_finished.c has that. */
static enum rdv_state MAYBE_UNUSED world_state(struct world *w, uint64_t seq)
{
	enum rdv_state state = world_where(w, seq).state;

	return rdv_lane_find(w->lane, seq) ? state : RDV_STATE_DONE;
}

/* Turns and time until the message is at the handler; fails after a day. */
static void MAYBE_UNUSED world_until_called(struct world *w, uint64_t seq)
{
	int64_t end = w->now.mono.ms + 86400000;

	for (world_settle(w); !world_call_of(w, seq); world_turn(w)) {
		if (w->now.mono.ms > end)
			fail_msg("%llu is never called", (unsigned long long)seq);
		world_pass(w, w->wake.ms > w->now.mono.ms && w->wake.ms < end ? w->wake.ms - w->now.mono.ms : 1);
	}
}

static void world_open_lane(struct world *w)
{
	w->options.target = w->target = rdv_target_new(&w->target_policy, 5, w->now);
	w->options.target_route = rdv_target_join(w->target, &w->route_policy);
	w->dispatcher = rdv_dispatcher_new(w->target);
	w->lane = rdv_lane_new(&w->options);
	assert_non_null(w->lane);
}

/* Policies as after world_policies, changed by the test; then world_start. */
static void MAYBE_UNUSED world_policies(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->now = (struct rdv_now){{1000000}, {1796000000000}};
	rdv_lane_policy_defaults(&w->options.policy);
	w->options.policy.retry.jitter = RDV_JITTER_NONE;
	rdv_target_policy_defaults(&w->target_policy);
	rdv_route_policy_defaults(&w->route_policy);
	w->target_policy.breaker.on = false;
	w->target_policy.budget.on = false;
	w->target_policy.concurrency = 1000;
	w->options.route = "orders";
	w->options.topic = "order.create";
	w->options.stream = 7;
	w->options.partition_stream = 3;
	w->options.seed = 42;
	w->max_dispatch = 100000;
	rdv_effects_init(&w->out);
}

static void MAYBE_UNUSED world_start(struct world *w)
{
	world_open_lane(w);
	rdv_lane_opened(w->lane, w->now, w->next_seq, false, &w->out);
	assert_int_equal(rdv_dispatcher_add(w->dispatcher, w->lane), REDRIVE_OK);
	world_end_turn(w);
}

static void world_close_lane(struct world *w)
{
	rdv_dispatcher_free(w->dispatcher);
	rdv_lane_free(w->lane);
	rdv_target_free(w->target);
}

static void world_count_live(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place)
{
	struct world *w = ctx;

	(void)type;
	(void)seq;
	w->live[place.segment]++;
}

/* The process ends (what is not durable is lost) and starts again. */
static void MAYBE_UNUSED world_reopen(struct world *w, bool unclean)
{
	world_execute(w);
	world_close_lane(w);
	while (w->record_count &&
	       (!w->records[w->record_count - 1].ticket || w->records[w->record_count - 1].ticket > w->durable))
		rdv_block_unref(w->records[--w->record_count].payload);
	world_open_lane(w);
	w->next_seq = 0;
	for (size_t i = 0; i < w->record_count; i++) {
		const struct world_record *r = &w->records[i];
		if (r->type == RDV_RECORD_BODY && r->seq >= w->next_seq)
			w->next_seq = r->seq + 1;
		if (!r->trimmed)
			assert_int_equal(rdv_lane_fold(w->lane, r->type, r->seq, rdv_block_slice(r->payload), r->place),
					 REDRIVE_OK);
	}
	for (size_t i = 0; i < w->call_count; i++)
		w->calls[i].open = false;
	w->restate_count = 0;
	w->letters_answered = w->letter_count;
	w->outcomes_answered = w->outcome_count;
	rdv_lane_opened(w->lane, w->now, w->next_seq, unclean, &w->out);
	memset(w->live, 0, sizeof w->live);
	rdv_lane_each_live(w->lane, world_count_live, w);
	assert_int_equal(rdv_dispatcher_add(w->dispatcher, w->lane), REDRIVE_OK);
	world_end_turn(w);
}

/* The oldest segment goes: what is live in it is appended again. */
static void MAYBE_UNUSED world_trim(struct world *w)
{
	uint32_t segment = w->records[w->first_record].place.segment, entry;
	size_t end = segment * (size_t)WORLD_SEGMENT_RECORDS;

	if (end + WORLD_SEGMENT_RECORDS > w->record_count)
		return;
	for (struct rdv_rewrite done = {0};;) {
		uint32_t budget = 3;

		if (rdv_lane_rewrite(w->lane, segment, &done, &budget, &w->out))
			break;
	}
	for (size_t i = w->first_record; i < end; i++) {
		struct world_record r = w->records[i];
		if (rdv_lane_owns(w->lane, r.type, r.seq, r.place, &entry)) {
			struct rdv_place place = world_append(w, r.type, r.seq, rdv_block_slice(r.payload));
			w->live[r.place.segment]--;
			w->live[place.segment]++;
			rdv_lane_moved(w->lane, r.type, r.seq, place);
		}
	}
	world_end_turn(w);
	for (; w->first_record < end; w->first_record++)
		w->records[w->first_record].trimmed = true;
}

static void MAYBE_UNUSED world_done(struct world *w)
{
	world_close_lane(w);
	for (size_t i = 0; i < w->record_count; i++)
		rdv_block_unref(w->records[i].payload);
	free(w->records);
	free(w->calls);
	rdv_effects_done(&w->out);
}
#endif
