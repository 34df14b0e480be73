/* desk_bench.c - what the desk takes in and how it is read: letters of 1 KiB bodies, real files, real syncs.
 *
 *   desk_bench [letters=N] [rate=N] [log=SECONDS] [dir=D]
 *
 * Envelopes are unique per letter (all terms differ but the route's), so the index works at its worst. Without `rate`
 * letters are put as fast as they are taken. With it they are put when they are due, and what is told is the longest
 * time from there until the desk answered, which it does when a letter is synced and found in the index. With `log` a
 * thread stands in for the log: 16 KiB and a sync every 2 ms, for so many seconds alone first, then beside the letters.
 * desk_cpu is the time of the desk's threads: on a busy machine the figure to compare. One JSON object a line. */
#include <pthread.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "desk/desk.h"
#include "raw_log.h"

static double letters = 300000, rate, log_seconds;
static const char *base = "/tmp";
static _Atomic uint64_t stored, failed;
static _Atomic int64_t slowest_us; /* of a letter, from when it was due */
static int64_t begin_us;

static int64_t due_us(uint64_t i)
{
	return rate > 0 ? begin_us + (int64_t)((double)i * 1e6 / rate) : begin_us;
}

static void on_stored(void *ctx, uint64_t cookie, enum redrive_status status)
{
	int64_t took = rdv_mono_now_us() - due_us(cookie), before = slowest_us;

	(void)ctx;
	while (took > before && !atomic_compare_exchange_weak(&slowest_us, &before, took))
		;
	if (status == REDRIVE_OK)
		stored++;
	else
		failed++;
}

/* Noise that costs little beside what it is to measure. */
static void make_body(struct rdv_random *random, struct rdv_block *body)
{
	static const char start[] = "{\"items\":[\"", digits[] = "0123456789abcdef";
	uint8_t *at = body->data + sizeof start - 1, *end = body->data + body->size - 3;

	memcpy(body->data, start, sizeof start - 1);
	while (at + 17 < end) {
		uint64_t x = rdv_random_next(random);

		for (int i = 0; i < 16; i++, x >>= 4)
			*at++ = (uint8_t)digits[x & 15];
		*at++ = ',';
	}
	memset(at, ' ', (size_t)(end - at));
	memcpy(end, "\"]}", 3);
}

static void make(uint64_t i, struct rdv_random *random, struct rdv_block **envelope, struct rdv_block **body)
{
	char key[32], text[200];
	struct rdv_envelope e = {
		.partition = (uint32_t)i % 4, .offset = i, .reason = RDV_REASON_EXHAUSTED, .body_size = 1024};
	struct rdv_buffer b;

	snprintf(key, sizeof key, "order-%llu", (unsigned long long)i);
	snprintf(text, sizeof text, "upstream request %llu to the payment service timed out after 30000 ms",
		 (unsigned long long)rdv_random_next(random));
	e.cluster = rdv_slice_text("bench");
	e.topic = rdv_slice_text("order.create");
	e.route = rdv_slice_text("order-create");
	e.key = rdv_slice_text(key);
	e.dead_at.ms = 1790000000000 + (int64_t)(i / 50);
	e.fingerprint = rdv_random_next(random);
	e.failure.text = rdv_slice_text(text);
	e.failure.code = rdv_slice_text("504");
	e.causes.failures = 5;
	e.history_count = 5;
	for (int h = 0; h < 5; h++)
		e.history[h] =
			(struct rdv_attempt){.n = (uint32_t)h + 1, .code = e.failure.code, .text = e.failure.text};
	rdv_buffer_init(&b, 0);
	rdv_envelope_encode(&e, &b);
	*envelope = rdv_block_copy(rdv_buffer_as_slice(&b));
	rdv_buffer_done(&b);
	*body = rdv_block_new(1024);
	make_body(random, *body);
}

static void put(struct rdv_desk *d, struct rdv_random *random, uint64_t i)
{
	struct rdv_block *envelope, *body;

	while (rate > 0 && rdv_mono_now_us() < due_us(i))
		usleep(200);
	make(i, random, &envelope, &body);
	rdv_block_ref(envelope);
	rdv_block_ref(body);
	while (rdv_desk_put(d, envelope, body, on_stored, NULL, i) == REDRIVE_FULL) {
		rdv_block_ref(envelope);
		rdv_block_ref(body);
		usleep(500);
	}
	rdv_block_unref(envelope);
	rdv_block_unref(body);
}

static void ignore(void *ctx, const struct rdv_letter *l)
{
}

static double read_us(struct rdv_desk *d, const struct rdv_query *q, int times)
{
	int64_t begin = rdv_mono_now_us();

	for (int i = 0; i < times; i++) {
		char cursor[RDV_CURSOR_TEXT] = "";

		if (rdv_desk_list(d, q, false, 50, cursor, ignore, NULL, NULL) != REDRIVE_OK)
			return -1;
	}
	return (double)(rdv_mono_now_us() - begin) / times;
}

static double cpu_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the stand-in for the log ---- */

struct sync_log {
	const char *dir;
	_Atomic bool stop;
	double p99_ms;
	pthread_t thread;
};

static int by_size(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void *sync_log(void *arg)
{
	enum { MOST = 200000, BYTES = 16 << 10, FILE_BYTES = 64 << 20 };
	static double took[MOST];
	static char bytes[FILE_BYTES];
	struct sync_log *log = arg;
	char path[4200];
	int fd, count = 0;

	snprintf(path, sizeof path, "%s/log-stand-in", log->dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || pwrite(fd, bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes || fdatasync(fd))
		abort();
	while (!log->stop && count < MOST) {
		double begin = bench_seconds();

		if (pwrite(fd, bytes, BYTES, (off_t)count * BYTES % FILE_BYTES) != BYTES || fdatasync(fd))
			abort();
		took[count++] = bench_seconds() - begin;
		usleep(2000);
	}
	close(fd);
	unlink(path);
	qsort(took, (size_t)count, sizeof *took, by_size);
	log->p99_ms = count ? took[(size_t)count * 99 / 100] * 1000 : 0;
	return NULL;
}

static void log_begin(struct sync_log *log, const char *dir)
{
	log->dir = dir;
	log->stop = false;
	if (pthread_create(&log->thread, NULL, sync_log, log))
		abort();
}

static void log_end(struct sync_log *log, const char *name)
{
	log->stop = true;
	pthread_join(log->thread, NULL);
	bench_print(name, log->p99_ms, "ms");
}

/* ---- */

static double take_in(struct rdv_desk *d)
{
	struct rdv_random random;
	double cpu = cpu_us(CLOCK_PROCESS_CPUTIME_ID), own = cpu_us(CLOCK_THREAD_CPUTIME_ID);

	rdv_random_seed(&random, 1);
	begin_us = rdv_mono_now_us();
	for (uint64_t i = 0; i < (uint64_t)letters; i++)
		put(d, &random, i);
	while (rdv_desk_waiting(d))
		usleep(500);
	bench_print("per_s", letters / ((double)(rdv_mono_now_us() - begin_us) / 1e6), "letters/s");
	own = cpu_us(CLOCK_THREAD_CPUTIME_ID) - own;
	bench_print("making_cpu", own / letters, "us/letter");
	return (cpu_us(CLOCK_PROCESS_CPUTIME_ID) - cpu - own) / letters;
}

static int run(struct rdv_desk *d, const char *dir)
{
	struct rdv_desk_counts counts;
	struct sync_log log;
	char id[27], key[32];
	uint64_t middle = (uint64_t)letters / 2;
	double cpu;

	if (log_seconds > 0) {
		log_begin(&log, dir);
		usleep((useconds_t)(log_seconds * 1e6));
		log_end(&log, "log_p99_alone");
		log_begin(&log, dir);
	}
	cpu = take_in(d);
	if (log_seconds > 0)
		log_end(&log, "log_p99_beside");
	else
		bench_print("desk_cpu", cpu, "us/letter");
	if (rate > 0)
		bench_print("slowest", (double)slowest_us / 1e3, "ms");
	rdv_desk_counts(d, &counts);
	bench_print("segment", (double)counts.bytes / letters, "bytes/letter");
	if (rdv_desk_find(d, "order-create", "order.create", (uint32_t)middle % 4, middle, id) != REDRIVE_OK)
		return 1;
	struct rdv_query all = {0}, one = {.has_key = true, .key = key};

	one.key_size = (size_t)snprintf(key, sizeof key, "order-%llu", (unsigned long long)middle);
	bench_print("page", read_us(d, &all, 20) / 1000, "ms");
	bench_print("by_key", read_us(d, &one, 200) / 1000, "ms");
	return failed != 0 || stored != (uint64_t)letters;
}

static void option(const char *text)
{
	if (sscanf(text, "letters=%lf", &letters) == 1 || sscanf(text, "rate=%lf", &rate) == 1 ||
	    sscanf(text, "log=%lf", &log_seconds) == 1)
		return;
	if (strncmp(text, "dir=", 4) != 0) {
		fprintf(stderr, "usage: desk_bench [letters=N] [rate=N] [log=SECONDS] [dir=D]\n");
		exit(2);
	}
	base = text + 4;
}

int main(int argc, char **argv)
{
	static const struct rdv_desk_runtime none;
	struct rdv_desk_options options = {0};
	struct rdv_desk *d = NULL;
	struct rdv_error error = {{0}};
	char dir[4096], command[4200];
	int result;

	for (int i = 1; i < argc; i++)
		option(argv[i]);
	snprintf(dir, sizeof dir, "%s/redrive-desk-bench-XXXXXX", base);
	options.dir = mkdtemp(dir);
	if (!options.dir || letters < 1 || rdv_desk_open(&options, &d, &error) != REDRIVE_OK ||
	    rdv_desk_start(d, &none, &error) != REDRIVE_OK) {
		fprintf(stderr, "desk_bench: %s\n", error.text);
		return 1;
	}
	result = run(d, dir);
	rdv_desk_stop(d);
	rdv_desk_free(d);
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return result | (system(command) != 0);
}
