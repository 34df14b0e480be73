/* test_lane_random.c - random histories: whatever happens, the invariants hold after every turn, the fold of the
 * durable records is the live state, and in the end every message has ended exactly once. The seed that fails is
 * printed. */
#include "core/lane_world.h"

#define KEYS 5
#define STEPS 1500

struct history {
	struct world w;
	struct rdv_random random;
	uint64_t acked, plan;
	size_t replays;
};

static struct history h;
static bool verbose;
static int dump_at = -1;

static uint64_t below(uint64_t n)
{
	return rdv_random_below(&h.random, n);
}

/* ---- the fold of what is durable is the live state ---- */

static void compare_entries(const struct rdv_lane *a, const struct rdv_lane *b)
{
	for (uint32_t ref = 1; ref <= a->entries.used; ref++) {
		const struct rdv_entry *x = rdv_lane_entry(a, ref), *y;
		uint32_t other;
		if (x->ghost)
			continue;
		other = rdv_lane_find(b, x->seq);
		if (!other)
			fail_msg("message %llu is lost", (unsigned long long)x->seq);
		y = rdv_lane_entry(b, other);
		assert_int_equal(x->replay, y->replay);
		if (!x->replay) {
			assert_int_equal(x->body_segment, y->body_segment);
			assert_int_equal(x->body_offset, y->body_offset);
		}
		assert_int_equal(x->state_segment, y->state_segment);
		assert_int_equal(x->state_offset, y->state_offset);
		if (x->state_segment) {
			assert_int_equal(x->charged + x->refund, y->charged);
			assert_int_equal(x->suspicion, y->suspicion);
		}
		if (!x->todo)
			assert_int_equal(x->state == RDV_STATE_DYING, y->state == RDV_STATE_DYING);
	}
	assert_int_equal(a->by_seq.count, b->by_seq.count);
}

static void compare_keys(const struct rdv_lane *a, const struct rdv_lane *b)
{
	assert_int_equal(a->order.closed, b->order.closed);
	for (uint32_t key = 0; (key = rdv_order_each(&a->order, key)) != 0;) {
		const struct rdv_key *k = rdv_order_key(&a->order, key);
		uint32_t other = rdv_order_find(&b->order, k->hash);
		if (!k->closed)
			continue;
		assert_true(other != 0);
		assert_int_equal(rdv_order_key(&b->order, other)->closed, 1);
		assert_int_equal(rdv_order_key(&b->order, other)->letter_seq, k->letter_seq);
	}
}

static void compare_accounts(const struct rdv_lane *live, const struct rdv_account *b)
{
	const struct rdv_account *a = &live->account;

	assert_int_equal(a->acked, b->acked);
	assert_int_equal(a->dead - live->unwritten_dead, b->dead);
	assert_int_equal(a->dropped, b->dropped);
	assert_int_equal(a->revoked - live->unwritten_revoked, b->revoked);
	assert_int_equal(a->first - a->first_calls, b->first);
	assert_int_equal(a->retries - (a->calls - a->first_calls), b->retries);
	assert_int_equal(a->succeeded, b->succeeded);
	assert_int_equal(a->failed, b->failed);
	assert_int_equal(a->timeouts, b->timeouts);
	assert_int_equal(a->outage, b->outage);
	assert_int_equal(a->crashes, b->crashes);
	assert_int_equal(a->shutdowns, b->shutdowns);
	assert_int_equal(a->deferrals, b->deferrals);
}

static void the_fold_is_the_live_state(void)
{
	struct rdv_lane_options options = h.w.options;
	struct rdv_lane *folded;
	const struct rdv_lane *live = h.w.lane;

	if (h.w.ticket != h.w.durable || (h.w.record_count && !h.w.records[h.w.record_count - 1].ticket))
		return; /* something is on its way */
	options.target = NULL;
	folded = rdv_lane_new(&options);
	for (size_t i = 0; i < h.w.record_count; i++) {
		const struct world_record *r = &h.w.records[i];
		if (!r->trimmed)
			assert_int_equal(rdv_lane_fold(folded, r->type, r->seq, rdv_block_slice(r->payload), r->place),
					 REDRIVE_OK);
	}
	rdv_dedupe_expire(folded->dedupe, h.w.now.wall, UINT32_MAX);
	rdv_dedupe_expire(h.w.lane->dedupe, h.w.now.wall, UINT32_MAX);
	compare_entries(live, folded);
	compare_keys(live, folded);
	compare_accounts(live, &folded->account);
	assert_int_equal(live->paused, folded->paused);
	assert_int_equal(live->requests.count, folded->requests.count);
	rdv_lane_free(folded);
}

/* ---- what can happen ---- */

static void publish(void)
{
	uint64_t key = below(4) ? 1 + below(KEYS) : 0;

	for (uint64_t n = 1 + below(4); n > 0; n--)
		world_publish_at(&h.w, key, below(5) ? 0 : h.w.now.wall.ms + (int64_t)below(3000));
	world_turn(&h.w);
}

static void answer(void)
{
	static const struct rdv_verdict *const verdicts[] = {&world_ack,   &world_ack,   &world_ack,     &world_fail,
							     &world_fail,  &world_drop,  &world_timeout, &world_reject,
							     &world_defer, &world_crash, &world_shutdown};
	size_t open[64], n = 0;

	for (size_t i = 0; i < h.w.call_count && n < 64; i++)
		if (h.w.calls[i].open)
			open[n++] = i;
	if (n)
		world_answer(&h.w, h.w.calls[open[below(n)]].effect.seq,
			     verdicts[below(sizeof verdicts / sizeof verdicts[0])]);
}

static void pass(void)
{
	world_pass(&h.w, (int64_t)below(below(10) ? 300 : 20000));
	if (!below(20))
		h.w.now.wall.ms += (int64_t)below(100000) - 50000;
	world_turn(&h.w);
}

static void revoke(void)
{
	bool pending;

	if (h.w.next_seq && rdv_lane_revoke(h.w.lane, h.w.now, below(h.w.next_seq), rdv_slice(NULL, 0), &pending,
					    &h.w.out) == REDRIVE_OK)
		assert_false(pending);
	world_end_turn(&h.w);
}

static void release(void)
{
	if (rdv_lane_release(h.w.lane, h.w.now, 1 + below(KEYS), &h.w.out) == REDRIVE_OK)
		world_end_turn(&h.w);
}

static void replay(void)
{
	const struct rdv_effect *letter = h.w.letter_count ? &h.w.letters[below(h.w.letter_count)] : NULL;
	struct rdv_request q = {.kind = RDV_REQUEST_REPLAY, .plan = 1 + below(2), .plan_name = rdv_slice_text("plan")};
	struct rdv_body body;
	uint64_t number;

	if (!letter || h.replays > 400)
		return;
	q.seq = letter->seq;
	q.generation = letter->letter.generation;
	for (size_t i = 0; i < h.w.record_count; i++)
		if (h.w.records[i].type == RDV_RECORD_BODY && h.w.records[i].seq == q.seq) {
			assert_int_equal(rdv_body_decode_hint(rdv_block_slice(h.w.records[i].payload), &body),
					 REDRIVE_OK);
			q.key_hash = body.key_hash;
		}
	h.replays += rdv_lane_replay(h.w.lane, h.w.now, &q, &number, &h.w.out) == REDRIVE_OK;
	world_end_turn(&h.w);
}

static void plans(void)
{
	if (below(4))
		rdv_lane_replay_pause(h.w.lane, h.w.now, 1 + below(2), below(2), &h.w.out);
	else
		rdv_lane_replay_cancel(h.w.lane, h.w.now, 1 + below(2), &h.w.out);
	world_end_turn(&h.w);
}

static void refund(void)
{
	rdv_lane_refund(h.w.lane, h.w.now, (struct rdv_mono){h.w.now.mono.ms - (int64_t)below(2000)}, &h.w.out);
	world_end_turn(&h.w);
}

static void stall(void)
{
	h.w.no_desk = !below(3);
	h.w.no_restate = !below(3);
	h.w.no_sync = !below(3);
	world_turn(&h.w);
}

static void trim(void)
{
	if (h.w.ticket == h.w.durable && !h.w.no_sync)
		world_trim(&h.w);
}

static void reopen(void)
{
	if (below(4))
		return;
	world_reopen(&h.w, below(2));
}

static void pause_route(void)
{
	rdv_lane_pause(h.w.lane, below(2), &h.w.out);
	world_end_turn(&h.w);
}

static void reload(void)
{
	struct rdv_lane_policy p = h.w.options.policy;

	p.retry.attempts = 1 + (uint32_t)below(5);
	rdv_lane_reload(h.w.lane, &p, NULL);
}

static void damage(void)
{
	for (size_t i = 0; i < h.w.call_count; i++)
		if (h.w.calls[i].open && !below(4)) {
			h.w.calls[i].open = false;
			rdv_lane_damaged(h.w.lane, h.w.now, h.w.calls[i].effect.entry,
					 h.w.calls[i].effect.dispatch.call, &h.w.out);
			world_end_turn(&h.w);
			return;
		}
}

static void take_back(void)
{
	for (size_t i = 0; i < h.w.call_count; i++)
		if (h.w.calls[i].open && !below(4)) {
			h.w.calls[i].open = false;
			rdv_lane_take_back(h.w.lane, h.w.now, h.w.calls[i].effect.entry,
					   h.w.calls[i].effect.dispatch.call, below(2) ? 0 : (int64_t)below(5000),
					   &h.w.out);
			world_end_turn(&h.w);
			return;
		}
}

/* A verdict on a lease that is over: on any message that was delivered, whatever it is doing now. */
static void late(void)
{
	static const struct rdv_verdict *const verdicts[] = {&world_ack, &world_drop, &world_fail, &world_reject,
							     &world_defer};
	uint64_t seq = h.w.next_seq ? below(h.w.next_seq) : 0;
	uint32_t ref = rdv_lane_find(h.w.lane, seq);
	struct rdv_entry *e = ref ? rdv_lane_entry(h.w.lane, ref) : NULL;
	enum rdv_state state = e ? (enum rdv_state)e->state : RDV_STATE_DONE;
	bool waits = state == RDV_STATE_WAITING || state == RDV_STATE_READY || state == RDV_STATE_HELD;
	enum redrive_status status;

	if (e && !e->delivered)
		return;
	status = rdv_lane_late(h.w.lane, h.w.now, seq, verdicts[below(5)],
			       ref ? world_read(&h.w, rdv_lane_state_place(h.w.lane, ref)) : rdv_slice(NULL, 0),
			       &h.w.out);
	if (!waits)
		assert_int_equal(status, REDRIVE_CONFLICT);
	world_end_turn(&h.w);
}

static void dedupe(void)
{
	for (size_t i = 0; i < h.w.call_count; i++) {
		struct world_call *c = &h.w.calls[i];
		struct rdv_hash128 key = {c->effect.seq % 7, 1};
		if (!c->open || h.w.options.policy.dedupe.by == RDV_DEDUPE_OFF || below(2))
			continue;
		if (rdv_lane_dedupe(h.w.lane, h.w.now, c->effect.entry, c->effect.dispatch.call, key, &h.w.out) !=
		    RDV_DEDUPE_PROCEED)
			c->open = false;
		world_end_turn(&h.w);
	}
}

#define DO(name)                                                                                                       \
	{                                                                                                              \
#name, name                                                                                            \
	}
static const struct {
	const char *name;
	void (*happen)(void);
} happenings[] = {DO(publish), DO(publish), DO(publish), DO(answer), DO(answer),    DO(answer),  DO(answer),
		  DO(answer),  DO(answer),  DO(pass),    DO(pass),   DO(revoke),    DO(release), DO(replay),
		  DO(plans),   DO(refund),  DO(stall),   DO(stall),  DO(trim),      DO(reopen),  DO(pause_route),
		  DO(reload),  DO(damage),  DO(dedupe),  DO(dedupe), DO(take_back), DO(late),    DO(late)};

/* Everything is let go: all must end. */
static void let_all_end(uint64_t seed)
{
	h.w.no_desk = h.w.no_restate = h.w.no_sync = false;
	rdv_lane_pause(h.w.lane, false, &h.w.out);
	rdv_lane_replay_pause(h.w.lane, h.w.now, 1, false, &h.w.out);
	rdv_lane_replay_pause(h.w.lane, h.w.now, 2, false, &h.w.out);
	for (int i = 0; i < 3000; i++) {
		const struct rdv_account *a = rdv_lane_account(h.w.lane);
		world_turn(&h.w);
		for (uint64_t key = 1; key <= KEYS; key++)
			if (rdv_lane_release(h.w.lane, h.w.now, key, &h.w.out) == REDRIVE_OK)
				world_end_turn(&h.w);
		for (size_t k = 0; k < h.w.call_count; k++)
			if (h.w.calls[k].open)
				world_answer(&h.w, h.w.calls[k].effect.seq, &world_ack);
		if (!a->ready && !a->waiting && !a->held && !a->in_flight && !h.w.lane->by_seq.count)
			return;
		world_pass(&h.w, 60000);
	}
	world_dump(&h.w);
	fail_msg("seed %llu: something never ends", (unsigned long long)seed);
}

static void run_history(uint64_t seed)
{
	world_policies(&h.w);
	rdv_random_seed(&h.random, seed);
	h.replays = 0;
	h.w.options.policy.order = seed & 1 ? RDV_ORDER_KEY : RDV_ORDER_NONE;
	h.w.options.policy.after_dead = (enum rdv_after_dead)(seed / 2 % 3);
	h.w.options.policy.retry.attempts = 1 + (uint32_t)below(4);
	h.w.options.policy.retry.deferrals = 2;
	h.w.options.policy.retry.crashes = 2;
	h.w.options.policy.dedupe.by = seed / 8 % 2 ? RDV_DEDUPE_ID : RDV_DEDUPE_OFF;
	h.w.options.policy.dedupe.entries = 5;
	h.w.options.policy.dedupe.ttl_ms = 100000;
	h.w.options.start_before_call = !below(3);
	h.w.max_dispatch = below(2) ? 1000 : 2;
	h.w.target_policy.breaker.on = !below(3);
	world_start(&h.w);
	for (int i = 0; i < STEPS && h.w.letter_count < 400 && h.w.outcome_count < 400; i++) {
		size_t what = below(sizeof happenings / sizeof happenings[0]);
		if (verbose)
			print_message("%d %s\n", i, happenings[what].name);
		if (verbose && i == dump_at)
			world_dump(&h.w);
		happenings[what].happen();
		if (i % 7 == 0)
			the_fold_is_the_live_state();
	}
	let_all_end(seed);
	the_fold_is_the_live_state();
	world_done(&h.w);
}

static uint64_t first_seed = 1, seeds = 20;

static void random_histories_keep_every_promise(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		run_history(seed);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_histories_keep_every_promise)};

	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		seeds = strtoull(argv[2], NULL, 10);
	verbose = argc > 3;
	dump_at = argc > 4 ? atoi(argv[4]) : -1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
