/* core_bench.c - what the core costs per message: lane, target and dispatcher with a trivial loop over the effects.
 *
 *   core_bench [ack|fail|keys|wait] [messages]
 *     ack   published, dispatched, acked, done; 4,096 in flight
 *     fail  the same, but each message fails once, waits 1 s and is acked then
 *     keys  as ack, order: key, 4,096 keys
 *     wait  so many messages wait for an hour: memory per message, and what it costs to take them in
 * Prints ns of processor time per message, best of five; for instructions run one of them under `valgrind
 * --tool=callgrind`. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "core/dispatcher.h"

#define IN_FLIGHT 4096u
#define BATCH 256u

/* Processor time of this process: the same on a busy machine. */
static int64_t cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

struct call {
	uint32_t entry;
	uint64_t call;
	struct rdv_place state;
	uint64_t seq;
};

struct bench {
	struct rdv_now now;
	struct rdv_target *target;
	struct rdv_dispatcher *dispatcher;
	struct rdv_lane *lane;
	struct rdv_effects out;
	struct call calls[IN_FLIGHT];
	uint32_t head, count;
	uint64_t next_seq, done, ticket;
	uint32_t offset;
	uint8_t *log; /* STATE payloads, so that a second verdict has its history */
	bool fail, keys;
};

static void setup(struct bench *b, bool fail, bool keys)
{
	struct rdv_target_policy tp;
	struct rdv_route_policy rp;
	struct rdv_lane_options o = {.stream = 1, .route = "bench", .topic = "bench", .seed = 1};

	*b = (struct bench){.now = {{1000}, {1796000000000}}, .fail = fail, .keys = keys};
	rdv_target_policy_defaults(&tp);
	tp.concurrency = IN_FLIGHT;
	tp.breaker.on = false;
	tp.budget.on = false;
	rdv_route_policy_defaults(&rp);
	rdv_lane_policy_defaults(&o.policy);
	o.policy.retry.jitter = RDV_JITTER_NONE;
	o.policy.order = keys ? RDV_ORDER_KEY : RDV_ORDER_NONE;
	b->target = rdv_target_new(&tp, 1, b->now);
	o.target = b->target;
	o.target_route = rdv_target_join(b->target, &rp);
	b->lane = rdv_lane_new(&o);
	b->dispatcher = rdv_dispatcher_new(b->target);
	rdv_effects_init(&b->out);
	b->log = malloc(64u << 20);
	if (!b->log || !b->lane || !b->dispatcher)
		abort();
	rdv_lane_opened(b->lane, b->now, 0, false, &b->out);
	if (rdv_dispatcher_add(b->dispatcher, b->lane) != REDRIVE_OK)
		abort();
}

static void teardown(struct bench *b)
{
	rdv_dispatcher_free(b->dispatcher);
	rdv_lane_free(b->lane);
	rdv_target_free(b->target);
	rdv_effects_done(&b->out);
	free(b->log);
}

static void record(struct bench *b, const struct rdv_effect *e)
{
	struct rdv_place place;

	if (b->offset + e->record.size > 64u << 20)
		b->offset = 0;
	memcpy(b->log + b->offset, b->out.arena.data + e->record.at, e->record.size);
	if (e->record.owns_state) {
		place = (struct rdv_place){1, b->offset, (uint32_t)e->record.size};
		rdv_lane_placed(b->lane, e->entry, place);
	}
	b->offset += (uint32_t)e->record.size;
}

static void execute(struct bench *b)
{
	for (size_t i = 0; i < b->out.count; i++) {
		const struct rdv_effect *e = &b->out.items[i];
		if (e->kind == RDV_EFFECT_DISPATCH)
			b->calls[(b->head + b->count++) % IN_FLIGHT] =
				(struct call){e->entry, e->dispatch.call, e->dispatch.state, e->seq};
		else if (e->kind == RDV_EFFECT_RECORD)
			record(b, e);
	}
	if (b->out.failed)
		abort();
	rdv_effects_clear(&b->out);
}

static void publish(struct bench *b, uint64_t total)
{
	for (uint32_t i = 0; i < BATCH && b->next_seq < total; i++) {
		struct rdv_published p = {.seq = b->next_seq++, .body = {1, 4096, 300}};
		p.key_hash = b->keys ? 1 + p.seq % 4096 * 0x9e3779b97f4a7c15ull : 0;
		if (rdv_lane_published(b->lane, b->now, &p, &b->out) != REDRIVE_OK)
			abort();
	}
}

static void answer(struct bench *b)
{
	static const struct rdv_verdict ack = {.kind = RDV_ACK, .evidence = RDV_KIND_OK};
	static const struct rdv_verdict fail = {.kind = RDV_RETRY,
						.cause = RDV_CAUSE_FAILURE,
						.evidence = RDV_KIND_APP,
						.took_ms = 3,
						.fingerprint = 12345,
						.failure = {.class = {(const uint8_t *)"Timeout", 7},
							    .code = {(const uint8_t *)"503", 3},
							    .text = {(const uint8_t *)"the service is busy", 19}}};
	uint32_t n = b->count > IN_FLIGHT - BATCH ? BATCH
		     : b->next_seq && b->count    ? (b->count < BATCH ? b->count : BATCH)
						  : 0;

	for (uint32_t i = 0; i < n; i++) {
		struct call c = b->calls[b->head];
		bool first = b->fail && !c.state.segment;
		struct rdv_slice history = {0};

		b->head = (b->head + 1) % IN_FLIGHT;
		b->count--;
		if (c.state.segment)
			history = rdv_slice(b->log + c.state.offset, c.state.length);
		if (rdv_dispatcher_verdict(b->dispatcher, b->now, b->lane, c.entry, c.call, first ? &fail : &ack,
					   history, &b->out) != REDRIVE_OK)
			abort();
		b->done += !first;
	}
}

static void turn(struct bench *b, uint64_t total)
{
	publish(b, total);
	rdv_dispatcher_touch(b->dispatcher, b->lane);
	rdv_dispatcher_run(b->dispatcher, b->now, 4096, &b->out);
	execute(b);
	if (b->count > IN_FLIGHT - 2 * BATCH || b->next_seq == total)
		answer(b);
	rdv_lane_flush(b->lane, &b->out);
	execute(b);
	rdv_lane_appended(b->lane, ++b->ticket);
	rdv_lane_durable(b->lane, b->now, b->ticket, &b->out);
	execute(b);
	b->now.mono.ms++;
	b->now.wall.ms++;
}

static double run(uint64_t total, bool fail, bool keys)
{
	struct bench *b = malloc(sizeof *b);
	int64_t began, took;

	if (!b)
		abort();
	setup(b, fail, keys);
	began = cpu_us();
	while (b->done < total)
		turn(b, total);
	took = cpu_us() - began;
	teardown(b);
	free(b);
	return (double)took * 1000 / (double)total;
}

static void best_of(const char *name, uint64_t total, bool fail, bool keys, int times)
{
	double best = 1e18;

	for (int i = 0; i < times; i++) {
		double one = run(total, fail, keys);
		best = one < best ? one : best;
	}
	printf("core_%s_ns %.1f\n", name, best);
}

static void wait_an_hour(uint64_t total)
{
	struct bench *b = malloc(sizeof *b);
	int64_t began;

	if (!b)
		abort();
	setup(b, false, false);
	began = cpu_us();
	for (uint64_t seq = 0; seq < total; seq++) {
		struct rdv_published p = {.seq = seq, .body = {1, 4096, 300}};
		p.not_before.ms = b->now.wall.ms + 3600000 + (int64_t)(seq * 7919 % 1000000);
		if (rdv_lane_published(b->lane, b->now, &p, &b->out) != REDRIVE_OK)
			abort();
	}
	printf("core_wait_ns %.1f\n", (double)(cpu_us() - began) * 1000 / (double)total);
	printf("core_wait_bytes %.1f\n", (double)rdv_lane_bytes(b->lane) / (double)total);
	teardown(b);
	free(b);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	uint64_t total = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
	int times = *what ? 1 : 5;

	if (!*what || !strcmp(what, "ack"))
		best_of("ack", total, false, false, times);
	if (!*what || !strcmp(what, "fail"))
		best_of("fail_once", total, true, false, times);
	if (!*what || !strcmp(what, "keys"))
		best_of("ack_by_key", total, false, true, times);
	if (!*what || !strcmp(what, "wait"))
		wait_an_hour(total);
	return 0;
}
