/* failonce_bench.c - every message fails once, waits a second, succeeds: publish → callback → retry → STATE → due →
 * body → callback → ack.
 *
 * Breaker and budget are off, the delay is 1 s without jitter. Lateness is how long after its due time a message is
 * called again (due = the failure plus 1 s; the failure's time is the callback's). The raw limit (raw_log.h) is
 * measured before and after. usage: failonce_bench [DIR [SECONDS]] */
#include <redrive.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include "raw_log.h"

#define BODY 256
#define BATCH 100
#define OUTSTANDING 400
#define MOST (32u << 20) /* messages */

static _Atomic uint64_t acked;
static _Atomic unsigned outstanding;
static _Atomic int failed;
static uint32_t *failed_ms; /* when each message failed, ms since start */
static double start;
static uint64_t late[10001]; /* by ms */

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static enum redrive_verdict on_message(void *ctx, struct redrive_delivery *d)
{
	uint64_t n = redrive_offset(d);
	uint32_t now = (uint32_t)((bench_seconds() - start) * 1000);
	int64_t lateness;

	(void)ctx;
	if (redrive_attempt(d) == 1) {
		if (n < MOST)
			failed_ms[n] = now;
		return REDRIVE_RETRY;
	}
	lateness = n < MOST ? (int64_t)now - failed_ms[n] - 1000 : 0;
	late[lateness < 0 ? 0 : lateness > 10000 ? 10000 : lateness]++;
	atomic_fetch_add_explicit(&acked, 1, memory_order_relaxed);
	return REDRIVE_ACK;
}

static void on_published(void *ctx, enum redrive_status status)
{
	(void)ctx;
	if (status)
		atomic_store(&failed, 1);
	atomic_fetch_sub(&outstanding, 1);
}

static void must(enum redrive_status status, const struct redrive_error *error)
{
	if (!status)
		return;
	fprintf(stderr, "failonce_bench: %s\n", error->text);
	exit(1);
}

static double percentile(uint64_t all, double part)
{
	uint64_t seen = 0;
	int ms = 0;

	while (ms < 10000 && (double)(seen += late[ms]) < part * (double)all)
		ms++;
	return ms;
}

int main(int argc, char **argv)
{
	const char *const settings[] = {"partitions=1",  "concurrency=16384", "threads=1",
					"breaker=off",   "budget=off",        "retry.backoff=fixed",
					"retry.base=1s", "retry.jitter=none", NULL};
	const char *base = argc > 1 ? argv[1] : "/tmp/redrive-bench";
	double seconds = argc > 2 ? atof(argv[2]) : 5, before, after, end, cpu;
	struct redrive_message batch[BATCH];
	char body[BODY], dir[512], command[600];
	struct redrive_error error = {""};
	struct redrive *r;
	uint64_t published = 0;

	snprintf(dir, sizeof dir, "%s/failonce-%d", base, (int)getpid());
	snprintf(command, sizeof command, "mkdir -p '%s'", dir);
	failed_ms = calloc(MOST, sizeof *failed_ms);
	if (system(command) || !failed_ms)
		return 1;
	before = bench_raw_log(dir, BODY + 40, 1.5);
	memset(body, 'x', sizeof body);
	memset(batch, 0, sizeof batch);
	for (int i = 0; i < BATCH; i++)
		batch[i].body = body, batch[i].body_size = sizeof body;
	must(redrive_open(dir, NULL, &r, &error), &error);
	must(redrive_add_callback(r, "bench", "bench", settings, on_message, NULL, &error), &error);
	must(redrive_start(r, &error), &error);
	start = bench_seconds();
	cpu = cpu_seconds();
	while (bench_seconds() - start < seconds && !failed && published < MOST - BATCH) {
		while (atomic_load(&outstanding) >= OUTSTANDING)
			usleep(50);
		atomic_fetch_add(&outstanding, 1);
		must(redrive_publish_async(r, "bench", batch, BATCH, on_published, NULL, &error), &error);
		published += BATCH;
	}
	while (atomic_load(&acked) < published && !failed)
		usleep(200);
	end = bench_seconds();
	cpu = cpu_seconds() - cpu;
	redrive_stop(r);
	redrive_free(r);
	after = bench_raw_log(dir, BODY + 40, 1.5);
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command) || failed)
		return 1;
	bench_print("raw_log", (before + after) / 2, "records/s");
	bench_print("fail_once", (double)published / (end - start - 1), "messages/s"); /* the last second only waits */
	bench_print("fail_once_ratio", (double)published / (end - start - 1) / ((before + after) / 2), "of raw");
	bench_print("fail_once_late_p50", percentile(published, 0.5), "ms");
	bench_print("fail_once_late_p99", percentile(published, 0.99), "ms");
	bench_print("fail_once_cpu", cpu / (double)published * 1e9, "ns/message");
	free(failed_ms);
	return 0;
}
