/* downstream.c - a scripted business service for measuring retry systems: HTTP/1.1 with keep-alive, one thread, epoll.
 *
 *	downstream messages=N keys=N [NAME=VALUE...]	prints its port, serves until it is killed
 *
 * A body starts with "kKEY SEQ PRODUCED " (PRODUCED = wall milliseconds); one that starts with "w" is warm-up: 200, and
 * in no figure. A message meets, in this order:
 *
 *	capacity=PER_SECOND	503 at once beyond it (a bucket of 250 ms)
 *	outage=FROM,TO		503 from second FROM to TO after the first request
 *	down=FROM,TO tenants=N	503 for tenant 0 (KEY mod N) meanwhile, the others work
 *	poison=PERCENT		500, every time
 *	fail=PERCENT		503, the first time
 *	else			200
 *
 * Which ones fail is a hash of SEQ: the same for everyone. A first success after one of a later SEQ of its key is an
 * order violation, a second success is a duplicate; both are counted on arrival. Latency = PRODUCED to first success,
 * of tenants other than 0, before `down` and while it lasts. GET /stats: one line of JSON. GET /missing: SEQs without a
 * success. Times in answers are wall milliseconds, comparable with those of records. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_MAX = 16384, SECONDS_MAX = 3600, LATENCY_MAX = 120000, READY_MAX = 256 };

static struct {
	double messages, keys, tenants, capacity, fail, poison;
	double outage[2], down[2];
} set = {.keys = 1, .tenants = 1, .outage = {-1, -1}, .down = {-1, -1}};

static struct {
	long warm, requests, ok, duplicates, order_violations, over_capacity, outage, down, poison, first_failures,
		unknown;
	int64_t first_ms, last_ok_ms;
	uint32_t per_second[SECONDS_MAX], outage_per_second[SECONDS_MAX];
	uint32_t latency[2][LATENCY_MAX]; /* [before, while one tenant is down][ms] */
} sum;

static uint8_t *seen, *done; /* by SEQ */
static int64_t *last_done;   /* by key: highest SEQ that succeeded, or -1 */
static int poll_fd;

struct connection {
	int fd;
	size_t used;
	char in[IN_MAX];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t wall_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* ---- what a message meets ---- */

static bool is_chosen(uint64_t seq, uint64_t salt, double percent)
{
	return percent > 0 && (double)(mix(seq * 2 + salt) % 1000000) < percent * 10000;
}

static bool is_within(const double span[2], int64_t now_ms)
{
	double t = (double)(now_ms - sum.first_ms) / 1000;

	return t >= span[0] && t < span[1];
}

static bool take_token(int64_t now_ms)
{
	static double tokens;
	static int64_t at_ms;

	if (set.capacity <= 0)
		return true;
	tokens += set.capacity * (double)(now_ms - at_ms) / 1000;
	at_ms = now_ms;
	if (tokens > set.capacity / 4)
		tokens = set.capacity / 4;
	if (tokens < 1)
		return false;
	tokens -= 1;
	return true;
}

static size_t second_of(int64_t now_ms)
{
	int64_t second = (now_ms - sum.first_ms) / 1000;

	return second < 0 ? 0 : second >= SECONDS_MAX ? SECONDS_MAX - 1 : (size_t)second;
}

static void record_latency(long key, int64_t produced_ms, int64_t now_ms)
{
	int64_t ms = now_ms - produced_ms;
	bool before = is_within((double[2]){0, set.down[0]}, now_ms);

	if (key % (long)set.tenants == 0 || (!before && !is_within(set.down, now_ms)))
		return;
	sum.latency[!before][ms < 0 ? 0 : ms >= LATENCY_MAX ? LATENCY_MAX - 1 : ms]++;
}

static void record_success(long key, long seq, int64_t produced_ms, int64_t now_ms)
{
	sum.last_ok_ms = now_ms;
	if (done[seq]) {
		sum.duplicates++;
		return;
	}
	done[seq] = 1;
	sum.ok++;
	record_latency(key, produced_ms, now_ms);
	if (last_done[key] > seq)
		sum.order_violations++;
	else
		last_done[key] = seq;
}

static int refuse(long *counter, int status)
{
	++*counter;
	return status;
}

static int judge(long key, long seq, int64_t produced_ms)
{
	int64_t now_ms = wall_ms();
	bool first = !seen[seq];

	if (!sum.requests++)
		sum.first_ms = now_ms;
	sum.per_second[second_of(now_ms)]++;
	if (!take_token(now_ms))
		return refuse(&sum.over_capacity, 503);
	if (is_within(set.outage, now_ms)) {
		sum.outage_per_second[second_of(now_ms)]++;
		return refuse(&sum.outage, 503);
	}
	if (is_within(set.down, now_ms) && key % (long)set.tenants == 0)
		return refuse(&sum.down, 503);
	seen[seq] = 1;
	if (is_chosen((uint64_t)seq, 1, set.poison))
		return refuse(&sum.poison, 500);
	if (first && is_chosen((uint64_t)seq, 0, set.fail))
		return refuse(&sum.first_failures, 503);
	record_success(key, seq, produced_ms, now_ms);
	return 200;
}

static int answer_message(const char *body, size_t size)
{
	char head[96];
	size_t n = size < sizeof head - 1 ? size : sizeof head - 1;
	long key, seq;
	long long produced;

	if (size && *body == 'w') {
		sum.warm++;
		return 200;
	}
	memcpy(head, body, n);
	head[n] = 0;
	if (sscanf(head, "k%ld %ld %lld", &key, &seq, &produced) != 3 || key < 0 || key >= (long)set.keys || seq < 0 ||
	    seq >= (long)set.messages)
		return refuse(&sum.unknown, 400);
	return judge(key, seq, produced);
}

/* ---- reports ---- */

static uint32_t peak(const uint32_t *counts)
{
	uint32_t most = 0;

	for (size_t i = 0; i < SECONDS_MAX; i++)
		most = counts[i] > most ? counts[i] : most;
	return most;
}

static int percentile(const uint32_t *histogram, double share)
{
	uint64_t all = 0, below = 0;

	for (size_t i = 0; i < LATENCY_MAX; i++)
		all += histogram[i];
	for (size_t i = 0; i < LATENCY_MAX; i++)
		if (all && (double)(below += histogram[i]) >= share * (double)all)
			return (int)i;
	return -1;
}

static void report_stats(FILE *f)
{
	static const struct {
		const char *name;
		const long *value;
	} counters[] = {{"warm", &sum.warm},
			{"requests", &sum.requests},
			{"ok", &sum.ok},
			{"duplicates", &sum.duplicates},
			{"order_violations", &sum.order_violations},
			{"over_capacity", &sum.over_capacity},
			{"outage_answers", &sum.outage},
			{"down_answers", &sum.down},
			{"poison_answers", &sum.poison},
			{"first_failures", &sum.first_failures},
			{"unknown", &sum.unknown}};

	fputc('{', f);
	for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
		fprintf(f, "\"%s\":%ld,", counters[i].name, *counters[i].value);
	fprintf(f,
		"\"peak_rps\":%u,\"peak_rps_outage\":%u,\"first_ms\":%lld,\"last_ok_ms\":%lld,\"p99_before\":%d,\"p99_"
		"down\":%d}\n",
		peak(sum.per_second), peak(sum.outage_per_second), (long long)sum.first_ms, (long long)sum.last_ok_ms,
		percentile(sum.latency[0], 0.99), percentile(sum.latency[1], 0.99));
}

static void report_missing(FILE *f)
{
	for (long i = 0; i < (long)set.messages; i++)
		if (!done[i])
			fprintf(f, "%ld\n", i);
}

/* ---- HTTP ---- */

/* Answers are small but for reports, which a reader on this machine takes at once. */
static void send_all(int fd, const char *text, size_t size)
{
	while (size) {
		ssize_t n = send(fd, text, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			usleep(200);
			continue;
		}
		if (n <= 0)
			return;
		text += n;
		size -= (size_t)n;
	}
}

static void send_report(int fd, const char *path)
{
	char *text = NULL, head[96];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		die("memory");
	(strncmp(path, "/missing", 8) ? report_stats : report_missing)(f);
	fclose(f);
	int n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", size);
	send_all(fd, head, (size_t)n);
	send_all(fd, text, size);
	free(text);
}

static void send_status(int fd, int status)
{
	char text[80];
	int n = snprintf(text, sizeof text, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status,
			 status == 200 ? "OK" : "No");

	send_all(fd, text, (size_t)n);
}

/* One whole request in c->in, if there is one. */
static bool serve_one(struct connection *c)
{
	c->in[c->used] = 0;
	char *end = strstr(c->in, "\r\n\r\n");
	if (!end)
		return false;
	size_t head = (size_t)(end - c->in) + 4, body = 0;
	*end = 0;
	char *length = strcasestr(c->in, "\r\ncontent-length:");
	if (length)
		body = strtoul(length + 17, NULL, 10);
	*end = '\r';
	if (c->used < head + body)
		return false;
	if (!strncmp(c->in, "GET ", 4))
		send_report(c->fd, c->in + 4);
	else
		send_status(c->fd, answer_message(c->in + head, body));
	c->used -= head + body;
	memmove(c->in, c->in + head + body, c->used);
	return true;
}

static void serve(struct connection *c)
{
	for (;;) {
		ssize_t n = recv(c->fd, c->in + c->used, IN_MAX - 1 - c->used, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			close(c->fd);
			free(c);
			return;
		}
		c->used += (size_t)n;
		while (c->used && serve_one(c))
			;
	}
}

static int listen_anywhere(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		die("listen");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return fd;
}

static void accept_all(int listener)
{
	int fd, one = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct connection *c = calloc(1, sizeof *c);
		if (!c)
			die("memory");
		c->fd = fd;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c}))
			die("epoll");
	}
}

/* ---- settings ---- */

static const struct {
	const char *name;
	double *value;
	int count;
} settings[] = {{"messages", &set.messages, 1}, {"keys", &set.keys, 1}, {"tenants", &set.tenants, 1},
		{"capacity", &set.capacity, 1}, {"fail", &set.fail, 1}, {"poison", &set.poison, 1},
		{"outage", set.outage, 2},      {"down", set.down, 2}};

static void read_setting(const char *text)
{
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
		size_t n = strlen(settings[i].name);
		double *value = settings[i].value;
		if (strncmp(text, settings[i].name, n) || text[n] != '=')
			continue;
		if ((settings[i].count == 1 ? sscanf(text + n + 1, "%lf", value)
					    : sscanf(text + n + 1, "%lf,%lf", value, value + 1)) == settings[i].count)
			return;
	}
	fprintf(stderr, "downstream: %s: not understood\n", text);
	exit(2);
}

int main(int argc, char **argv)
{
	struct epoll_event ready[READY_MAX];

	for (int i = 1; i < argc; i++)
		read_setting(argv[i]);
	seen = calloc((size_t)set.messages + 1, 1);
	done = calloc((size_t)set.messages + 1, 1);
	last_done = malloc(((size_t)set.keys + 1) * sizeof *last_done);
	if (!seen || !done || !last_done)
		die("memory");
	memset(last_done, 0xff, ((size_t)set.keys + 1) * sizeof *last_done);
	poll_fd = epoll_create1(0);
	int listener = listen_anywhere();
	if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN}))
		die("epoll");
	for (;;) {
		int n = epoll_wait(poll_fd, ready, READY_MAX, -1);
		for (int i = 0; i < n; i++) {
			if (ready[i].data.ptr)
				serve(ready[i].data.ptr);
			else
				accept_all(listener);
		}
	}
}
