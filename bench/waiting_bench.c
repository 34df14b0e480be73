/* waiting_bench.c - what N waiting messages cost: memory, lateness while they wait, and the time until a killed engine
 * has them again.
 *
 * A child process fills the engine: N messages of 256 bytes without a key, published with delays of 1 to 11 hours.
 * Memory is the growth of its anonymous resident memory from the moment when a first 200,000 have been written (the
 * log's buffers and segments in use exist by then). Then it publishes `due` messages with delays of 3 s and more,
 * spread evenly at `rate` a second, and notes how long after its due time (the time before the publish call + the
 * delay, so at most a publish too early) each one is called. Then it kills itself. The parent drops the page cache
 * where it may, and opens: the time runs until the route counts N waiting messages.
 *
 * usage: waiting_bench [dir=D] [n=N] [due=N] [rate=N]. One JSON object a line: name, value, unit. */
#include <redrive.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include "raw_log.h"

enum { BODY = 256, BATCH = 1000, WARM = 200000, LATE_MAX = 10000, OUTSTANDING = 40 };

static const char *base = "/tmp";
static double total = 10e6, due_total = 400e3, rate = 50e3;
static double *due_at; /* by offset - first due offset: seconds */
static uint64_t due_first, due_count;
static uint64_t late[LATE_MAX + 1]; /* by 0.1 ms */
static _Atomic uint64_t called;
static _Atomic int outstanding, failed;

static void must(enum redrive_status status, const struct redrive_error *error)
{
	if (!status)
		return;
	fprintf(stderr, "waiting_bench: %s\n", error->text);
	_exit(1);
}

static enum redrive_verdict on_message(void *ctx, struct redrive_delivery *d)
{
	uint64_t n = redrive_offset(d) - due_first;
	double lateness;

	(void)ctx;
	if (redrive_offset(d) < due_first || n >= due_count) {
		atomic_store(&failed, 1); /* one that was to wait for hours */
		return REDRIVE_ACK;
	}
	lateness = (bench_seconds() - due_at[n]) * 1e4;
	late[lateness < 0 ? 0 : lateness > LATE_MAX ? LATE_MAX : (int)lateness]++;
	atomic_fetch_add(&called, 1);
	return REDRIVE_ACK;
}

static void on_published(void *ctx, enum redrive_status status)
{
	(void)ctx;
	if (status)
		atomic_store(&failed, 1);
	atomic_fetch_sub(&outstanding, 1);
}

static struct redrive *open_engine(const char *dir)
{
	const char *const settings[] = {"partitions=1", "concurrency=16384", NULL};
	struct redrive_error error = {""};
	struct redrive *r;

	must(redrive_open(dir, NULL, &r, &error), &error);
	must(redrive_add_callback(r, "waiting", "waiting", settings, on_message, NULL, &error), &error);
	must(redrive_start(r, &error), &error);
	return r;
}

static double anonymous(void)
{
	char line[256];
	double kb = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "RssAnon: %lf", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb * 1024;
}

static void publish(struct redrive *r, uint64_t from, uint64_t count, int is_due)
{
	static struct redrive_message batch[BATCH];
	static char body[BODY];
	struct redrive_error error = {""};

	for (uint64_t at = 0; at < count; at += BATCH) {
		double now = bench_seconds();

		while (atomic_load(&outstanding) >= OUTSTANDING)
			usleep(50);
		for (uint64_t i = 0; i < BATCH; i++) {
			uint64_t n = at + i;

			batch[i] = (struct redrive_message){.body = body, .body_size = BODY};
			if (is_due) {
				batch[i].delay_ms = 3000 + (int64_t)((double)n / rate * 1000);
				due_at[n] = now + (double)batch[i].delay_ms / 1000;
			} else {
				batch[i].delay_ms = 3600000 + (int64_t)((from + n) * 2654435761u % 36000000);
			}
		}
		atomic_fetch_add(&outstanding, 1);
		must(redrive_publish_async(r, "waiting", batch, BATCH, on_published, NULL, &error), &error);
	}
	while (atomic_load(&outstanding))
		usleep(100);
}

static double percentile(double part)
{
	uint64_t seen = 0;
	int i = 0;

	while (i < LATE_MAX && (double)(seen += late[i]) < part * (double)due_count)
		i++;
	return i / 10.0;
}

static void await_waiting(struct redrive *r, uint64_t n)
{
	struct redrive_counts counts = {0};

	while (redrive_route_counts(r, "waiting", &counts) || counts.waiting < n)
		usleep(2000);
}

/* The child: fills, measures, and ends as a kill ends it. */
static void fill(const char *dir)
{
	uint64_t n = (uint64_t)total;
	struct redrive *r = open_engine(dir);
	double before, start;

	publish(r, 0, WARM, 0);
	await_waiting(r, WARM);
	before = anonymous();
	start = bench_seconds();
	publish(r, WARM, n - WARM, 0);
	await_waiting(r, n);
	bench_print("fill", (double)(n - WARM) / (bench_seconds() - start), "messages/s");
	bench_print("memory", (anonymous() - before) / (double)(n - WARM), "bytes/message");
	due_at = calloc((size_t)due_total, sizeof *due_at);
	if (!due_at)
		_exit(1);
	due_first = n;
	due_count = (uint64_t)due_total;
	publish(r, n, due_count, 1);
	for (start = bench_seconds(); atomic_load(&called) < due_count && bench_seconds() - start < 120;)
		usleep(1000);
	usleep(200000);
	if (failed || called != due_count) {
		fprintf(stderr, "waiting_bench: %llu of %llu due messages came\n", (unsigned long long)called,
			(unsigned long long)due_count);
		_exit(1);
	}
	bench_print("late_p50", percentile(0.5), "ms");
	bench_print("late_p99", percentile(0.99), "ms");
	kill(getpid(), SIGKILL);
}

static int drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY), dropped;

	sync();
	dropped = fd >= 0 && write(fd, "1", 1) == 1;
	if (fd >= 0)
		close(fd);
	return dropped;
}

static void option(const char *text)
{
	if (sscanf(text, "n=%lf", &total) == 1 || sscanf(text, "due=%lf", &due_total) == 1 ||
	    sscanf(text, "rate=%lf", &rate) == 1)
		return;
	if (strncmp(text, "dir=", 4)) {
		fprintf(stderr, "usage: waiting_bench [dir=D] [n=N] [due=N] [rate=N]\n");
		exit(2);
	}
	base = text + 4;
}

int main(int argc, char **argv)
{
	char dir[4096], command[4200];
	struct redrive *r;
	double start;
	int status;
	pid_t child;

	for (int i = 1; i < argc; i++)
		option(argv[i]);
	snprintf(dir, sizeof dir, "%s/waiting-%d", base, (int)getpid());
	child = fork();
	if (!child) {
		fill(dir);
		_exit(1);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
		return 1;
	bench_print("cold", drop_caches(), "yes");
	start = bench_seconds();
	due_first = UINT64_MAX;
	r = open_engine(dir);
	await_waiting(r, (uint64_t)total);
	bench_print("reopen", bench_seconds() - start, "s");
	redrive_free(r);
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) || failed ? 1 : 0;
}
