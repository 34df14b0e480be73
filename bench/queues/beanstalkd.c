/* beanstalkd.c - beanstalkd over its text protocol, commands pipelined.
 *
 * publish: 1000 puts in one write, then 1000 replies. consume: one blocking
 * reserve-with-timeout and up to 999 with timeout 0 in one write, then as many
 * delete (or release with 1 s delay) in one write. With -f0 the server answers a
 * put, release or delete only after its own fsync, one command at a time: there is
 * no group commit, so pipelining saves round trips but no flush.
 */
#include "peer.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TTR = 3600 };

struct link {
	int fd;
	size_t pos, len;
	char in[1 << 18];
	char line[512];
	char *out;
	size_t out_len;
};

static struct link *link_try(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(peer_port)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (void *)&a, sizeof a)) {
		close(fd);
		return NULL;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	struct link *l = need(sizeof *l);
	l->fd = fd;
	l->out = need(BATCH * (BODY + 64));
	return l;
}

static struct link *link_open(void)
{
	struct link *l = link_try();
	if (!l)
		die("cannot connect");
	return l;
}

static void link_close(struct link *l)
{
	close(l->fd);
	free(l->out);
	free(l);
}

static void flush_out(struct link *l)
{
	for (size_t off = 0; off < l->out_len;) {
		ssize_t k = write(l->fd, l->out + off, l->out_len - off);
		if (k <= 0)
			die("connection lost while writing");
		off += (size_t)k;
	}
	l->out_len = 0;
}

static void fill_in(struct link *l)
{
	if (l->pos < l->len)
		memmove(l->in, l->in + l->pos, l->len - l->pos);
	l->len -= l->pos, l->pos = 0;
	ssize_t k = read(l->fd, l->in + l->len, sizeof l->in - l->len);
	if (k <= 0)
		die("connection lost while reading");
	l->len += (size_t)k;
}

static char *read_line(struct link *l)
{
	char *end;
	while (!(end = memchr(l->in + l->pos, '\n', l->len - l->pos)))
		fill_in(l);
	size_t n = (size_t)(end - (l->in + l->pos));
	if (n >= sizeof l->line)
		die("a reply line is too long");
	memcpy(l->line, l->in + l->pos, n);
	l->line[n ? n - 1 : 0] = 0;
	l->pos += n + 1;
	return l->line;
}

static const char *read_block(struct link *l, size_t n)
{
	while (l->len - l->pos < n + 2)
		fill_in(l);
	l->pos += n + 2;
	return l->in + l->pos - n - 2;
}

static void want(struct link *l, const char *prefix)
{
	if (strncmp(read_line(l), prefix, strlen(prefix)))
		die("wanted %s, got %s", prefix, l->line);
}

static void setup(bool retry)
{
	(void)retry;
}

static void put_all(long n, bool delayed)
{
	struct link *l = link_open();
	for (long i = 0; i < n; i += BATCH) {
		for (long j = i; j < i + BATCH; j++) {
			l->out_len += (size_t)sprintf(l->out + l->out_len, "put 10 %ld %d %d\r\n",
						      delayed ? backlog_delay_s(j) : 0, TTR, BODY);
			body_make(j, l->out + l->out_len);
			memcpy(l->out + l->out_len + BODY, "\r\n", 2);
			l->out_len += BODY + 2;
		}
		flush_out(l);
		for (long j = 0; j < BATCH; j++)
			want(l, "INSERTED");
	}
	link_close(l);
}

static void publish(long n)
{
	put_all(n, false);
}

static void backlog(long n)
{
	put_all(n, true);
}

struct job {
	unsigned long id;
	long seq;
	bool again;
};

static long reserve(struct link *l, long most, struct job *jobs)
{
	long got = 0;
	for (long j = 0; j < most; j++)
		l->out_len += (size_t)sprintf(l->out + l->out_len, "reserve-with-timeout %d\r\n", j == 0);
	flush_out(l);
	for (long j = 0; j < most; j++) {
		unsigned long id;
		size_t len;
		if (sscanf(read_line(l), "RESERVED %lu %zu", &id, &len) == 2) {
			jobs[got].id = id;
			jobs[got++].seq = body_seq(read_block(l, len), len);
		} else if (strcmp(l->line, "TIMED_OUT")) {
			die("reserve answered %s", l->line);
		}
	}
	return got;
}

static void consume(long n, bool retry)
{
	struct link *l = link_open();
	struct job jobs[WINDOW];
	long most = WINDOW;

	(void)retry;

	while (ledger_done() < n) {
		long got = reserve(l, most, jobs);
		most = got * 2 < 16 ? 16 : got * 2 > WINDOW ? WINDOW : got * 2;
		for (long j = 0; j < got; j++) {
			jobs[j].again = ledger_deliver(jobs[j].seq);
			if (jobs[j].again)
				ledger_failed(jobs[j].seq);
			l->out_len +=
				(size_t)sprintf(l->out + l->out_len,
						jobs[j].again ? "release %lu 10 1\r\n" : "delete %lu\r\n", jobs[j].id);
		}
		flush_out(l);
		for (long j = 0; j < got; j++) {
			want(l, jobs[j].again ? "RELEASED" : "DELETED");
			if (!jobs[j].again)
				ledger_acked(jobs[j].seq);
		}
	}
	link_close(l);
}

static long waiting(void)
{
	struct link *l = link_try();
	long n = -1;
	size_t len;
	if (!l)
		return -1;
	l->out_len = (size_t)sprintf(l->out, "stats\r\n");
	flush_out(l);
	if (sscanf(read_line(l), "OK %zu", &len) == 1) {
		const char *yaml = read_block(l, len);
		const char *at = memmem(yaml, len, "current-jobs-delayed: ", 22);
		if (at)
			n = atol(at + 22);
	}
	link_close(l);
	return n;
}

static long deliverable(void)
{
	struct link *l = link_open();
	struct job job;
	long got = reserve(l, 1, &job);
	link_close(l);
	return got;
}

const struct peer peer = {"beanstalkd", setup, publish, consume, backlog, waiting, deliverable};
