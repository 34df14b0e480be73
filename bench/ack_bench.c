/* ack_bench.c - embedded publish → callback → ack, durable, 256-byte bodies, through the public C API.
 *
 * One publisher gives batches of 100 without waiting for each; one callback thread acknowledges. The time runs from the
 * first publish until all are acknowledged. The raw limit (raw_log.h) is measured before and after, in the same place.
 * usage: ack_bench [DIR [SECONDS]] */
#include <redrive.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include "raw_log.h"

#define BODY 256
#define BATCH 100
#define OUTSTANDING 400 /* batches */

static _Atomic uint64_t acked;
static _Atomic unsigned outstanding;
static _Atomic int failed;

static enum redrive_verdict on_message(void *ctx, struct redrive_delivery *d)
{
	(void)ctx, (void)d;
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
	fprintf(stderr, "ack_bench: %s\n", error->text);
	exit(1);
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
	const char *const settings[] = {"partitions=1", "concurrency=16384", "threads=1", NULL};
	const char *base = argc > 1 ? argv[1] : "/tmp/redrive-bench";
	double seconds = argc > 2 ? atof(argv[2]) : 3, before, after, start, end, cpu;
	struct redrive_message batch[BATCH];
	char body[BODY], dir[512], command[600];
	struct redrive_error error = {""};
	struct redrive *r;
	struct redrive_counts counts;
	uint64_t published = 0;

	snprintf(dir, sizeof dir, "%s/ack-%d", base, (int)getpid());
	snprintf(command, sizeof command, "mkdir -p '%s'", dir);
	if (system(command))
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
	while (bench_seconds() - start < seconds && !failed) {
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
	must(redrive_route_counts(r, "bench", &counts), &error);
	redrive_stop(r);
	redrive_free(r);
	after = bench_raw_log(dir, BODY + 40, 1.5);
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command) || failed || counts.received != published)
		return 1;
	bench_print("raw_log", (before + after) / 2, "records/s");
	bench_print("ack_path", (double)published / (end - start), "messages/s");
	bench_print("ack_path_ratio", (double)published / (end - start) / ((before + after) / 2), "of raw");
	bench_print("ack_path_cpu", cpu / (double)published * 1e9, "ns/message");
	return 0;
}
