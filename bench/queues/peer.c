/* peer.c - clock, message bodies, ledger and main() of the client programs. See peer.h. */
#include "peer.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int peer_port;

static char pool[65536];
static long total, acked, extra, one_in; /* one first delivery in so many is put back; 0: none */
static uint8_t *seen, *is_acked;
static double *failed_at;
static float *late;
static long late_n;

double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double wall_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

void die(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "queue_%s: ", peer.name);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	exit(1);
}

void *need(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);
	if (!p)
		die("out of memory");
	return p;
}

static void pool_fill(void)
{
	uint64_t s = 88172645463325252u;
	for (size_t i = 0; i < sizeof pool; i++) {
		s ^= s << 13, s ^= s >> 7, s ^= s << 17;
		pool[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[s & 63];
	}
}

void body_make(long seq, char out[BODY])
{
	char head[17];
	snprintf(head, sizeof head, "%016ld", seq);
	memcpy(out, head, 16);
	memcpy(out + 16, pool + (size_t)seq * 241 % (sizeof pool - BODY), BODY - 16);
}

long body_seq(const void *data, size_t len)
{
	char head[17] = {0};
	if (len != BODY)
		die("a body of %zu bytes came back", len);
	memcpy(head, data, 16);
	long seq = strtol(head, NULL, 10);
	if (seq < 0 || seq >= total)
		die("a body with sequence %ld came back", seq);
	if (memcmp((const char *)data + 16, pool + (size_t)seq * 241 % (sizeof pool - BODY), BODY - 16))
		die("the body of message %ld came back changed", seq);
	return seq;
}

long backlog_delay_s(long seq)
{
	return BACKLOG_START_S + (long)((uint64_t)seq * 2654435761u % BACKLOG_SPAN_S);
}

static bool is_to_fail(long seq)
{
	return one_in && seq % one_in == 0;
}

bool ledger_deliver(long seq)
{
	int count = ++seen[seq];

	if (count == 2 && failed_at[seq] > 0)
		late[late_n++] = (float)(now_s() - failed_at[seq] - RETRY_MS / 1e3);
	return count == 1 && is_to_fail(seq);
}

bool ledger_fails_each(void)
{
	return one_in == 1;
}

void ledger_failed(long seq)
{
	failed_at[seq] = now_s();
}

long ledger_acked(long seq)
{
	if (is_acked[seq])
		extra++;
	else
		is_acked[seq] = 1, acked++;
	return acked;
}

long ledger_done(void)
{
	return acked;
}

static int by_float(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void *publisher(void *n)
{
	double start = now_s();
	peer.publish(*(long *)n);
	double *took = need(sizeof *took);
	*took = now_s() - start;
	return took;
}

static void run_pair(long n)
{
	bool retry = one_in != 0;
	pthread_t thread;
	double *publish_s, start;

	peer.setup(retry);
	start = now_s();
	if (pthread_create(&thread, NULL, publisher, &n))
		die("cannot start a thread");
	peer.consume(n, retry);
	pthread_join(thread, (void **)&publish_s);
	double seconds = now_s() - start;

	if (acked != n)
		die("%ld of %ld messages acked", acked, n);
	long again = 0;
	for (long i = 0; i < n; i++)
		again += seen[i] - (is_to_fail(i) ? 2 : 1);
	printf("seconds=%.4f publish_seconds=%.4f duplicates=%ld", seconds, *publish_s, again + extra);
	if (retry)
		printf(" net_seconds=%.4f", seconds - RETRY_MS / 1e3);
	if (retry && late_n && late[0] > -0.9f * RETRY_MS / 1e3f) {
		qsort(late, late_n, sizeof *late, by_float);
		printf(" late_ms_min=%.1f late_ms_p50=%.1f late_ms_p99=%.1f", late[0] * 1e3, late[late_n / 2] * 1e3,
		       late[late_n * 99 / 100] * 1e3);
	}
	printf("\n");
	free(publish_s);
}

/* `ready` is started together with the server; the script hands over when that was. */
static void run_ready(long n)
{
	const char *since = getenv("STARTED");
	double start = since ? atof(since) : wall_s();
	double limit = now_s() + 100;
	long w;

	while ((w = peer.waiting()) < n) {
		if (now_s() > limit)
			die("only %ld of %ld messages waiting after 100 s", w, n);
		pause_ms(5);
	}
	double took = wall_s() - start;
	long early = peer.deliverable();
	printf("restart_seconds=%.3f waiting_after_restart=%ld early_after_restart=%ld\n", took, w, early);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: queue_%s ack|retry|tenth|backlog|ready N PORT\n", peer.name);
		return 2;
	}
	const char *work = argv[1];
	long n = atol(argv[2]);
	peer_port = atoi(argv[3]);
	if (n <= 0 || n % BATCH)
		die("N must be a multiple of %d", BATCH);
	total = n;
	pool_fill();
	seen = need(n), is_acked = need(n);
	failed_at = need(n * sizeof *failed_at), late = need(n * 4 * sizeof *late);

	if (!strcmp(work, "ack") || !strcmp(work, "retry") || !strcmp(work, "tenth")) {
		one_in = !strcmp(work, "retry") ? 1 : !strcmp(work, "tenth") ? 10 : 0;
		run_pair(n);
	} else if (!strcmp(work, "backlog")) {
		peer.setup(false);
		double start = now_s();
		peer.backlog(n);
		printf("seconds=%.4f\n", now_s() - start);
	} else if (!strcmp(work, "ready")) {
		run_ready(n);
	} else {
		die("unknown work %s", work);
	}
	return 0;
}
