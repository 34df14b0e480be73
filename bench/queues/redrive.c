/* redrive.c - Redrive as one of the queues: in this process, through the public C API, on a data directory below the
 * working directory.
 *
 * publish: batches of 1000, each on disk before the next is given. consume: one callback thread, at most 1000 out at
 * once, as the other queues' windows. The run ends when redrive_stop() has put everything on disk, acknowledgements
 * included. When every message fails, breaker and budget are off and the delay is the others' fixed second; with one
 * in ten failing all settings of policy are the defaults.
 * backlog: delayed publishing; the process then ends without a stop, as a kill would end it.
 */
#include "peer.h"
#include <redrive.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct redrive *engine;
static _Atomic long done;

static void must(enum redrive_status status, const struct redrive_error *error)
{
	if (status)
		die("%s", error->text);
}

static enum redrive_verdict on_message(void *ctx, struct redrive_delivery *d)
{
	struct redrive_bytes body = redrive_body(d);
	long seq = body_seq(body.data, body.size);

	(void)ctx;
	if (ledger_deliver(seq)) {
		ledger_failed(seq);
		return REDRIVE_RETRY;
	}
	atomic_store(&done, ledger_acked(seq));
	return REDRIVE_ACK;
}

static void open_engine(bool all_fail)
{
	const char *const defaults[] = {"partitions=1", "concurrency=1000", NULL};
	const char *const failing[] = {"partitions=1",        "concurrency=1000", "breaker=off",       "budget=off",
				       "retry.backoff=fixed", "retry.base=1s",    "retry.jitter=none", NULL};
	struct redrive_error error = {""};

	must(redrive_open("data", NULL, &engine, &error), &error);
	must(redrive_add_callback(engine, "work", "work", all_fail ? failing : defaults, on_message, NULL, &error),
	     &error);
	must(redrive_start(engine, &error), &error);
}

static void setup(bool retry)
{
	open_engine(retry && ledger_fails_each());
}

static void put_all(long n, bool delayed)
{
	struct redrive_message *batch = need(BATCH * sizeof *batch);
	char(*bodies)[BODY] = need(BATCH * sizeof *bodies);
	struct redrive_error error = {""};

	for (long i = 0; i < n; i += BATCH) {
		for (long j = 0; j < BATCH; j++) {
			body_make(i + j, bodies[j]);
			batch[j].body = bodies[j], batch[j].body_size = BODY;
			batch[j].delay_ms = delayed ? backlog_delay_s(i + j) * 1000 : 0;
		}
		must(redrive_publish(engine, "work", batch, BATCH, NULL, &error), &error);
	}
	free(batch);
	free(bodies);
}

static void publish(long n)
{
	put_all(n, false);
}

static void consume(long n, bool retry)
{
	(void)retry;
	while (atomic_load(&done) < n)
		pause_ms(1);
	redrive_free(engine);
}

static long resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%*d %ld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

static void backlog(long n)
{
	long before = resident();

	put_all(n, true);
	printf("rss_before=%ld rss_after=%ld ", before, resident());
}

static long waiting(void)
{
	struct redrive_counts counts = {0};

	if (!engine)
		open_engine(false);
	return redrive_route_counts(engine, "work", &counts) ? -1 : (long)counts.waiting;
}

static long deliverable(void)
{
	pause_ms(100);
	return atomic_load(&done);
}

const struct peer peer = {"redrive", setup, publish, consume, backlog, waiting, deliverable};
