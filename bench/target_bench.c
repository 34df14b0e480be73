/* target_bench.c - what a permit and its verdict cost: rdv_target_take and rdv_target_verdict with everything on.
 *
 * A loop on one thread in virtual time, so many messages in each of its milliseconds; the loop's own cost is included.
 * Usage: target_bench [MESSAGES]. Prints one line per kind of traffic. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "core/target.h"

struct traffic {
	const char *name;
	uint8_t classes;
	unsigned bad_percent; /* of first attempts */
	enum rdv_kind bad;
	bool off; /* breaker and budget */
	uint32_t per_ms;
};

#define ALL ((1u << RDV_CLASS_FIRST) | (1u << RDV_CLASS_RETRY_DUE) | (1u << RDV_CLASS_REPLAY))

static const struct traffic rows[] = {
	{"first attempts, all ok, 2 M/s", 1u << RDV_CLASS_FIRST, 0, RDV_KIND_OK, false, 2000},
	{"first attempts, all ok, 50 k/s", 1u << RDV_CLASS_FIRST, 0, RDV_KIND_OK, false, 50},
	{"three classes, all ok, 2 M/s", ALL, 0, RDV_KIND_OK, false, 2000},
	{"three classes, 10 % bad (app), 2 M/s", ALL, 10, RDV_KIND_APP, false, 2000},
	{"three classes, 10 % bad (infra), 200 k/s", ALL, 10, RDV_KIND_INFRA, false, 200},
	{"first attempts, 30 % bad (app), 2 M/s", 1u << RDV_CLASS_FIRST, 30, RDV_KIND_APP, false, 2000},
	{"the same as the fourth, breaker and budget off", ALL, 10, RDV_KIND_APP, true, 2000},
};

static struct rdv_target *target_of(const struct traffic *row, struct rdv_now now)
{
	struct rdv_target_policy policy;
	struct rdv_route_policy route;
	struct rdv_target *t;

	rdv_target_policy_defaults(&policy);
	policy.breaker.on = policy.budget.on = !row->off;
	rdv_route_policy_defaults(&route);
	t = rdv_target_new(&policy, 1, now);
	if (t == NULL || rdv_target_join(t, &route) != 0)
		exit(1);
	return t;
}

static uint64_t run(const struct traffic *row, struct rdv_target *t, struct rdv_now now, uint64_t messages)
{
	const struct rdv_work work = {.classes = row->classes, .storm_route = UINT32_MAX, .suspect_overdue_ms = -1};
	const struct rdv_verdict ok = {.kind = RDV_ACK, .evidence = RDV_KIND_OK};
	const struct rdv_verdict bad = {
		.kind = RDV_RETRY, .evidence = row->bad, .cause = RDV_CAUSE_FAILURE, .fingerprint = 77};
	uint64_t refused = 0;
	uint32_t in_ms = 0, draw = 12345;

	for (uint64_t i = 0; i < messages; i++) {
		struct rdv_call_report report = {.attempt = 1, .message = i + 1, .started = now.mono, .verdict = &ok};
		struct rdv_grant grant;
		struct rdv_mono wake;

		if (++in_ms == row->per_ms) {
			in_ms = 0;
			now.mono.ms++;
			now.wall.ms++;
		}
		if (!rdv_target_take(t, now, &work, &grant, &wake)) {
			refused++;
			continue;
		}
		draw = draw * 1664525 + 1013904223;
		if ((draw >> 8) % 100 < row->bad_percent && grant.class == RDV_CLASS_FIRST)
			report.verdict = &bad;
		report.class = grant.class;
		report.probe = grant.probe;
		(void)rdv_target_verdict(t, now, &report);
	}
	return refused;
}

int main(int argc, char **argv)
{
	uint64_t messages = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000000;

	if (messages == 0)
		return 2;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rdv_now now = {{1000}, {1700000000000}};
		struct rdv_target *t = target_of(&rows[i], now);
		clock_t start = clock(), took; /* processor time: others may be running */
		uint64_t refused = run(&rows[i], t, now, messages);
		took = clock() - start;
		printf("%-48s %6.1f ns a message, %" PRIu64 " refused\n", rows[i].name,
		       (double)took * (1e9 / CLOCKS_PER_SEC) / (double)messages, refused);
		rdv_target_free(t);
	}
	return 0;
}
