/* path_bench.c - the way of a message through the engine, through the public C API: publish → callback → ack, durable,
 * 256-byte bodies.
 *
 * One publisher gives batches of 100 without waiting for each (at most 400 are not yet on disk); callback threads
 * answer. Works: ack     every message is acknowledged at once retry   every message fails once, waits 1 s (fixed, no
 * jitter; breaker and budget off), then is acknowledged tenth   one message in ten fails once; retry, breaker, budget
 * and storm are the defaults publish nothing is delivered: a route of leases that nobody takes The time runs from the
 * first publish until redrive_stop() has put everything on disk; `net` is without the second that a retry waits. A
 * message's lateness runs from its due time (the moment of its failure + 1 s) to its next call; only `retry` has a
 * fixed delay to count from.
 *
 * usage: path_bench WORK [dir=D] [seconds=S | count=N] [raw=1] [waiting=N] [routes=N] [keys=N] [batch=N]
 * [concurrency=N] raw: the raw limit (raw_log.h) before and after. waiting: so many other messages of the first lane
 * wait for hours meanwhile. routes: the messages go to so many topics in turn, each with a route and a thread of its
 * own. keys: order by key, so many keys in turn, at most 50,000 messages not yet acknowledged. One JSON object a line:
 * name, value, unit. `cpu` is of the whole process; under its name, what each thread took until the last ack. */
#include <redrive.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include "raw_log.h"

enum { BODY = 256, BATCH_MAX = 1000, OUTSTANDING = 40000, ROUTES_MAX = 1000, LATE_MAX = 10000, KEYED_OPEN = 50000 };
#define MOST (32u << 20) /* messages whose time of failure is kept */

static struct settings {
	const char *work, *dir;
	double seconds, count, raw, waiting, routes, keys, batch, concurrency;
} set = {.dir = "/tmp", .seconds = 3, .routes = 1, .batch = 100, .concurrency = 16384};

static _Atomic uint64_t acked, on_disk;
static _Atomic int failed;
static uint32_t *failed_ms; /* when each message failed, ms since start */
static double start;
static _Atomic uint64_t late[LATE_MAX + 1]; /* by ms */
static uint64_t first_offset;               /* of the messages that count; those before wait for hours */

static void must(enum redrive_status status, const struct redrive_error *error)
{
	if (!status)
		return;
	fprintf(stderr, "path_bench: %s\n", error->text);
	exit(1);
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* ---- handlers ---- */

static enum redrive_verdict on_ack(void *ctx, struct redrive_delivery *d)
{
	(void)ctx, (void)d;
	atomic_fetch_add_explicit(&acked, 1, memory_order_relaxed);
	return REDRIVE_ACK;
}

static enum redrive_verdict on_retry(void *ctx, struct redrive_delivery *d)
{
	uint64_t n = redrive_offset(d) - first_offset;
	uint32_t now = (uint32_t)((bench_seconds() - start) * 1000);

	if (redrive_attempt(d) == 1) {
		if (n < MOST)
			failed_ms[n] = now;
		return REDRIVE_RETRY;
	}
	if (n < MOST) {
		int64_t lateness = (int64_t)now - failed_ms[n] - 1000;

		atomic_fetch_add_explicit(&late[lateness < 0          ? 0
						: lateness > LATE_MAX ? LATE_MAX
								      : lateness],
					  1, memory_order_relaxed);
	}
	return on_ack(ctx, d);
}

static enum redrive_verdict on_tenth(void *ctx, struct redrive_delivery *d)
{
	return redrive_attempt(d) == 1 && redrive_offset(d) % 10 == 0 ? REDRIVE_RETRY : on_ack(ctx, d);
}

static const struct work {
	const char *name;
	redrive_handler handler;
	double waits; /* seconds of pure waiting that are not the engine's */
	const char *settings[6];
} works[] = {
	{"ack", on_ack, 0, {NULL}},
	{"retry",
	 on_retry,
	 1,
	 {"breaker=off", "budget=off", "retry.backoff=fixed", "retry.base=1s", "retry.jitter=none", NULL}},
	{"tenth", on_tenth, 1, {NULL}}, /* its wait is 1 to 1.25 s */
	{"publish", NULL, 0, {NULL}},
};

/* ---- the engine ---- */

static const char *topic_name(unsigned i, char name[16])
{
	snprintf(name, 16, "t-%u", i);
	return name;
}

static void add_route(struct redrive *r, const struct work *work, unsigned i)
{
	char concurrency[40], name[16];
	const char *settings[12] = {"partitions=1", concurrency, set.keys ? "order=key" : "order=none"};
	struct redrive_error error = {""};
	int n = 3;

	snprintf(concurrency, sizeof concurrency, "concurrency=%d", (int)set.concurrency);
	for (const char *const *s = work->settings; *s; s++)
		settings[n++] = *s;
	topic_name(i, name);
	must(work->handler ? redrive_add_callback(r, name, name, settings, work->handler, NULL, &error)
			   : redrive_add_lease(r, name, name, settings, &error),
	     &error);
}

static void on_published(void *ctx, enum redrive_status status)
{
	(void)ctx;
	if (status)
		atomic_store(&failed, 1);
	atomic_fetch_add(&on_disk, (uint64_t)set.batch);
}

static bool may_publish(uint64_t published)
{
	return published - atomic_load(&on_disk) < OUTSTANDING &&
	       (!set.keys || published - atomic_load(&acked) < KEYED_OPEN);
}

/* Publishes until the time or the number is over; returns how many. */
static uint64_t publish(struct redrive *r, uint64_t count, double seconds, int64_t delay_ms)
{
	static struct redrive_message batch[BATCH_MAX];
	static char keys[BATCH_MAX][16];
	static char body[BODY];
	char name[16];
	struct redrive_error error = {""};
	uint64_t published = 0, before = atomic_load(&on_disk);
	unsigned size = (unsigned)set.batch, turn = 0;

	memset(body, 'x', sizeof body);
	for (double from = bench_seconds();
	     !failed && (count ? published < count : bench_seconds() - from < seconds);) {
		while (!may_publish(published + before) && !failed)
			usleep(50);
		for (unsigned i = 0; i < size; i++) {
			struct redrive_message *m = &batch[i];

			*m = (struct redrive_message){.body = body, .body_size = BODY, .delay_ms = delay_ms};
			if (delay_ms)
				m->delay_ms += (int64_t)((published + i) * 2654435761u % 36000000);
			if (set.keys && !delay_ms) {
				m->key = keys[i];
				m->key_size = (size_t)snprintf(keys[i], sizeof keys[i], "k%llu",
							       (unsigned long long)(published + i) %
								       (unsigned long long)set.keys);
			}
		}
		topic_name(delay_ms ? 0 : turn++ % (unsigned)set.routes, name);
		must(redrive_publish_async(r, name, batch, size, on_published, NULL, &error), &error);
		published += size;
	}
	while (atomic_load(&on_disk) - before < published && !failed)
		usleep(100);
	return published;
}

static double percentile(uint64_t all, double part)
{
	uint64_t seen = 0;
	int ms = 0;

	while (ms < LATE_MAX && (double)(seen += late[ms]) < part * (double)all)
		ms++;
	return ms;
}

/* Processor time of all threads of one name, so far: the kernel counts it in nanoseconds. */
static double thread_seconds(const char *name)
{
	char path[80], line[80];
	unsigned long long ns, sum = 0;
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	FILE *f;

	while (tasks && (task = readdir(tasks))) {
		snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task->d_name);
		f = fopen(path, "r");
		if (!f || !fgets(line, sizeof line, f))
			*line = 0;
		if (f)
			fclose(f);
		line[strcspn(line, "\n")] = 0;
		snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", task->d_name);
		f = strcmp(line, name) ? NULL : fopen(path, "r");
		if (f && fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return (double)sum / 1e9;
}

#define THREADS 6
static const char *const thread_names[THREADS] = {"rdv-core",     "rdv-writer",   "rdv-reader",
						  "rdv-maintain", "rdv-callback", "path_bench"};

static void note_threads(double seconds[THREADS], double by)
{
	for (int i = 0; i < THREADS; i++)
		seconds[i] += by * thread_seconds(thread_names[i]);
}

static uint64_t bytes_written(void)
{
	char line[128];
	uint64_t bytes = 0;
	FILE *f = fopen("/proc/self/io", "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "write_bytes: %" SCNu64, &bytes) == 1)
			break;
	if (f)
		fclose(f);
	return bytes;
}

/* Until the first segments are filled with zeros; the raw limit's are, too, before its time runs. */
static void settle(void)
{
	uint64_t before = 0, now = bytes_written();

	for (int i = 0; i < 40 && now != before; i++) {
		before = now;
		usleep(250000);
		now = bytes_written();
	}
}

static void run(const struct work *work, const char *dir)
{
	double end, cpu, net, threads[THREADS] = {0};
	struct redrive_error error = {""};
	struct redrive *r;
	uint64_t published;

	must(redrive_open(dir, (const char *const[]){"drain=100ms", NULL}, &r, &error), &error);
	for (unsigned i = 0; i < (unsigned)set.routes; i++)
		add_route(r, work, i);
	must(redrive_start(r, &error), &error);
	if (set.waiting)
		first_offset = publish(r, (uint64_t)set.waiting, 0, 3600000);
	if (!set.count)
		settle();
	atomic_store(&acked, 0);
	atomic_store(&on_disk, 0);
	start = bench_seconds();
	cpu = cpu_seconds();
	note_threads(threads, -1);
	published = publish(r, (uint64_t)set.count, set.seconds, 0);
	while (work->handler && atomic_load(&acked) < published && !failed)
		usleep(200);
	note_threads(threads, 1);
	redrive_stop(r);
	end = bench_seconds();
	cpu = cpu_seconds() - cpu;
	redrive_free(r);
	if (failed) {
		fprintf(stderr, "path_bench: publishing failed\n");
		exit(1);
	}
	net = end - start - work->waits;
	bench_print("messages", (double)published, "messages");
	bench_print("per_s", (double)published / net, "messages/s");
	bench_print("wall", net / (double)published * 1e9, "ns/message");
	bench_print("cpu", cpu / (double)published * 1e9, "ns/message");
	for (int i = 0; i < THREADS; i++)
		bench_print(thread_names[i], threads[i] / (double)published * 1e9, "ns/message");
	if (!strcmp(work->name, "retry")) {
		bench_print("late_p50", percentile(published, 0.5), "ms");
		bench_print("late_p99", percentile(published, 0.99), "ms");
	}
}

/* ---- the command line ---- */

static void option(const char *text)
{
	static const struct {
		const char *name;
		double *value;
	} numbers[] = {{"seconds", &set.seconds}, {"count", &set.count},   {"raw", &set.raw},
		       {"waiting", &set.waiting}, {"routes", &set.routes}, {"concurrency", &set.concurrency},
		       {"keys", &set.keys},       {"batch", &set.batch}};
	const char *value = strchr(text, '=');

	if (value && !strncmp(text, "dir=", 4)) {
		set.dir = value + 1;
		return;
	}
	for (size_t i = 0; value && i < sizeof numbers / sizeof *numbers; i++)
		if (strlen(numbers[i].name) == (size_t)(value - text) &&
		    !strncmp(text, numbers[i].name, (size_t)(value - text))) {
			*numbers[i].value = atof(value + 1);
			return;
		}
	fprintf(stderr, "path_bench: what is %s?\n", text);
	exit(2);
}

int main(int argc, char **argv)
{
	const struct work *work = NULL;
	char dir[4096], command[4200];
	double before = 0;

	for (size_t i = 0; argc > 1 && i < sizeof works / sizeof *works; i++)
		if (!strcmp(argv[1], works[i].name))
			work = &works[i];
	for (int i = 2; i < argc; i++)
		option(argv[i]);
	if (!work || set.routes < 1 || set.routes > ROUTES_MAX || set.batch < 1 || set.batch > BATCH_MAX) {
		fprintf(stderr, "usage: path_bench ack|retry|tenth|publish [name=value]...\n");
		return 2;
	}
	snprintf(dir, sizeof dir, "%s/path-%d", set.dir, (int)getpid());
	failed_ms = calloc(MOST, sizeof *failed_ms);
	if (!failed_ms)
		return 1;
	if (set.raw)
		before = bench_raw_log(set.dir, BODY + 40, 1.5);
	run(work, dir);
	if (set.raw)
		bench_print("raw", (before + bench_raw_log(set.dir, BODY + 40, 1.5)) / 2, "records/s");
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) ? 1 : 0;
}
