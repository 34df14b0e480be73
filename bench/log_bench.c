/* log_bench.c - the log alone against the disk: how much of the raw limit does the append path reach?
 *
 * raw       one thread, write + fdatasync of 1,000 x 296 B in zero-filled segments, round and round: before and after
 * append    one publisher, 256 B payloads, 1, 16 or 64 a begin/end; writer and maintenance threads; every segment dead
 * at once, so that they are recycled wait      1, 10, 100 publishers, each waiting for its own frame put       CPU per
 * frame of begin..end alone, nobody writing Usage: log_bench DIR [SECONDS]. One line per figure: name, value, unit. */
#include "log/log.h"
#include "base/clock.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PAYLOAD = 256, FRAME = PAYLOAD + RDV_FRAME_HEADER, RAW_BATCH = 1000, SEGMENT = 64 << 20 };

static char dir[3000];
static double seconds = 2;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- raw ---- */

static int raw_fds[4];

static void raw_prepare(void)
{
	uint8_t *zeros = calloc(1, 1 << 20);
	int i, j;

	for (i = 0; i < 4; i++) {
		char path[4096];

		snprintf(path, sizeof path, "%s/raw-%d", dir, i);
		raw_fds[i] = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		for (j = 0; j < SEGMENT >> 20; j++)
			if (raw_fds[i] < 0 || write(raw_fds[i], zeros, 1 << 20) != 1 << 20)
				die(path);
		if (fsync(raw_fds[i]))
			die(path);
		unlink(path);
	}
	free(zeros);
}

static double raw(void)
{
	uint8_t *batch = malloc(RAW_BATCH * FRAME);
	int64_t from = rdv_mono_now_us(), now;
	uint64_t records = 0, at = 0;

	memset(batch, 7, RAW_BATCH * FRAME);
	do {
		int fd = raw_fds[at / SEGMENT % 4];

		if (pwrite(fd, batch, RAW_BATCH * FRAME, (off_t)(at % SEGMENT)) != RAW_BATCH * FRAME || fdatasync(fd))
			die("raw write");
		at += RAW_BATCH * FRAME;
		if (at % SEGMENT + RAW_BATCH * FRAME > SEGMENT)
			at += SEGMENT - at % SEGMENT;
		records += RAW_BATCH;
		now = rdv_mono_now_us();
	} while (now - from < (int64_t)(seconds * 1e6));
	free(batch);
	return (double)records * 1e6 / (double)(now - from);
}

/* ---- the log ---- */

struct bench {
	struct rdv_log *log;
	_Atomic bool stop;
	_Atomic uint64_t cycles;
	pthread_t writer, maintain;
};

static enum redrive_status no_fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	return REDRIVE_OK;
}

/* Nothing lives: the tail goes as soon as there is another segment. The writer's thread is the owner. */
static void on_durable(void *ctx, struct rdv_log_buffer *buffer, uint64_t ticket)
{
	struct bench *b = ctx;
	struct rdv_log_space space;

	rdv_log_space(b->log, &space);
	if (space.tail < space.head)
		rdv_log_drop_tail(b->log, ticket);
}

static void *run_writer(void *arg)
{
	struct bench *b = arg;
	struct rdv_error error = {0};

	while (!b->stop) {
		bool did;

		if (rdv_log_commit(b->log, 50, &did, &error) != REDRIVE_OK) {
			fprintf(stderr, "%s\n", error.text);
			exit(1);
		}
		b->cycles += did;
	}
	return NULL;
}

static void *run_maintain(void *arg)
{
	struct bench *b = arg;
	struct rdv_error error = {0};

	while (!b->stop) {
		bool did;

		if (rdv_log_maintain(b->log, &did, &error) != REDRIVE_OK) {
			fprintf(stderr, "%s\n", error.text);
			exit(1);
		}
		if (!did)
			usleep(1000);
	}
	return NULL;
}

static void start(struct bench *b, bool threads)
{
	struct rdv_log_options options = {.dir = dir};
	struct rdv_error error = {0};

	*b = (struct bench){0};
	if (rdv_log_open(&options, no_fold, NULL, &b->log, NULL, &error) != REDRIVE_OK) {
		fprintf(stderr, "%s\n", error.text);
		exit(1);
	}
	rdv_log_on_durable(b->log, on_durable, b);
	if (!threads)
		return;
	pthread_create(&b->writer, NULL, run_writer, b);
	pthread_create(&b->maintain, NULL, run_maintain, b);
}

static void finish(struct bench *b)
{
	b->stop = true;
	rdv_log_wake(b->log);
	pthread_join(b->writer, NULL);
	pthread_join(b->maintain, NULL);
	rdv_log_close(b->log);
}

static void put_batch(struct rdv_log *log, uint32_t count, uint64_t *ticket)
{
	static const uint8_t payload[PAYLOAD] = {1, 2, 3};
	uint32_t i;

	if (rdv_log_begin(log, RDV_LOG_PUBLISH, (size_t)count * PAYLOAD, count, 10000) != REDRIVE_OK) {
		fprintf(stderr, "begin refused\n");
		exit(1);
	}
	for (i = 0; i < count; i++) {
		struct rdv_frame frame = {.type = 3, .hint_len = 32, .stream = 1, .seq = i, .length = PAYLOAD};

		memcpy(rdv_log_put(log, &frame), payload, PAYLOAD);
	}
	rdv_log_end(log, true, ticket);
}

static double append(struct bench *b, uint32_t count)
{
	int64_t from = rdv_mono_now_us(), now;
	uint64_t records = 0, ticket = 0;

	do {
		put_batch(b->log, count, &ticket);
		records += count;
		now = rdv_mono_now_us();
	} while (now - from < (int64_t)(seconds * 1e6));
	if (rdv_log_wait(b->log, ticket, -1) != REDRIVE_OK)
		exit(1);
	return (double)records * 1e6 / (double)(rdv_mono_now_us() - from);
}

struct waiter {
	struct bench *b;
	pthread_t thread;
	uint32_t *us;
	size_t count;
};
enum { SAMPLES = 1 << 18 };

static void *run_waiter(void *arg)
{
	struct waiter *w = arg;
	int64_t from = rdv_mono_now_us(), before = from, now;

	do {
		uint64_t ticket;

		put_batch(w->b->log, 1, &ticket);
		if (rdv_log_wait(w->b->log, ticket, -1) != REDRIVE_OK)
			exit(1);
		now = rdv_mono_now_us();
		if (w->count < SAMPLES)
			w->us[w->count++] = (uint32_t)(now - before);
		before = now;
	} while (now - from < (int64_t)(seconds * 1e6));
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void wait_for_each(struct bench *b, int threads)
{
	struct waiter *w = calloc((size_t)threads, sizeof *w);
	uint32_t *all = malloc((size_t)threads * SAMPLES * sizeof *all);
	int64_t from = rdv_mono_now_us(), took;
	size_t count = 0;
	int i;

	for (i = 0; i < threads; i++) {
		w[i] = (struct waiter){.b = b, .us = all + (size_t)i * SAMPLES};
		pthread_create(&w[i].thread, NULL, run_waiter, &w[i]);
	}
	for (i = 0; i < threads; i++) {
		pthread_join(w[i].thread, NULL);
		memmove(all + count, w[i].us, w[i].count * sizeof *all);
		count += w[i].count;
	}
	took = rdv_mono_now_us() - from;
	qsort(all, count, sizeof *all, by_value);
	printf("wait_%d_rate %.0f msg/s\nwait_%d_p50 %u us\nwait_%d_p99 %u us\n", threads,
	       (double)count * 1e6 / (double)took, threads, all[count / 2], threads, all[count / 100 * 99]);
	free(all);
	free(w);
}

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CPU of framing: buffers are filled and thrown away by commits that are not timed. */
static void put_cost(uint32_t count)
{
	struct bench b;
	int64_t spent = 0;
	uint64_t records = 0, ticket;
	int round;

	start(&b, false);
	for (round = 0; round < 200; round++) {
		int64_t from = cpu_ns();
		uint32_t i;
		bool did;

		for (i = 0; i < 3000 / count; i++, records += count)
			put_batch(b.log, count, &ticket);
		spent += cpu_ns() - from;
		if (rdv_log_commit(b.log, 0, &did, NULL) != REDRIVE_OK)
			exit(1);
	}
	rdv_log_close(b.log);
	printf("put_%u %.1f ns\n", count, (double)spent / (double)records);
}

int main(int argc, char **argv)
{
	static const uint32_t counts[] = {1, 16, 64};
	struct bench b;
	double before, after, rates[3];
	size_t i;

	if (argc < 2)
		return fprintf(stderr, "usage: log_bench DIR [SECONDS]\n"), 2;
	snprintf(dir, sizeof dir, "%s", argv[1]);
	seconds = argc > 2 ? atof(argv[2]) : seconds;
	start(&b, true);
	raw_prepare();
	append(&b, 64); /* segments come into being, and are recycled from now on */
	before = raw();
	for (i = 0; i < 3; i++) {
		uint64_t cycles = b.cycles;

		rates[i] = append(&b, counts[i]);
		printf("append_%u %.0f msg/s\nappend_%u_cycle %.0f us\n", counts[i], rates[i], counts[i],
		       seconds * 1e6 / (double)(b.cycles - cycles));
	}
	after = raw();
	printf("raw_before %.0f records/s\nraw_after %.0f records/s\n", before, after);
	for (i = 0; i < 3; i++)
		printf("append_%u_to_raw %.2f ratio\n", counts[i], rates[i] / ((before + after) / 2));
	wait_for_each(&b, 1);
	wait_for_each(&b, 10);
	wait_for_each(&b, 100);
	finish(&b);
	put_cost(1);
	put_cost(16);
	put_cost(64);
	return 0;
}
