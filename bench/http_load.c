/* http_load.c - requests to a publishing address as fast as answers come, and the bare server that its figures are
 *compared with.
 *
 *	http_load bare			libmicrohttpd as the API uses it (epoll, two threads, keep-alive): reads the
 *body, answers 201 with a text made before; prints its port and runs until it is killed http_load PORT PATH
 *[connections=N] [seconds=S | count=N] [lines=N]
 *
 * One thread, epoll; each connection is kept alive and has one request out. A body is 256 bytes, or with lines=N a
 *batch of N lines of ndjson whose bodies are 256 bytes. Every answer must be 201. One JSON object a line: name, value,
 *unit. */
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "raw_log.h"

enum { BODY = 256, CONNECTIONS_MAX = 1000, POOL_THREADS = 2, LINE_MAX = BODY + 64, SILENCE_MS = 10000 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- the bare server ---- */

static struct MHD_Response *answer;

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
				  const char *version, const char *data, size_t *size, void **request)
{
	static int seen;

	(void)ctx, (void)url, (void)method, (void)version, (void)data;
	if (!*request) {
		*request = &seen;
		return MHD_YES;
	}
	if (*size) {
		*size = 0;
		return MHD_YES;
	}
	return MHD_queue_response(connection, 201, answer);
}

static int serve_bare(void)
{
	static char text[] =
		"{\"id\":\"order.create-0-1234567\",\"topic\":\"order.create\",\"partition\":0,\"offset\":1234567}";
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct MHD_Daemon *daemon;

	answer = MHD_create_response_from_buffer(sizeof text - 1, text, MHD_RESPMEM_PERSISTENT);
	MHD_add_response_header(answer, "Content-Type", "application/json");
	daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request, NULL,
				  MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_THREAD_POOL_SIZE, POOL_THREADS,
				  MHD_OPTION_CONNECTION_LIMIT, 2 * CONNECTIONS_MAX, MHD_OPTION_END);
	if (!daemon)
		die("libmicrohttpd");
	printf("%u\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
	fflush(stdout);
	pause();
	return 0;
}

/* ---- the load ---- */

static struct load {
	double connections, seconds, count, lines;
	char *request;
	size_t request_size;
	uint64_t sent, answered;
	double end;
} load = {.connections = 64, .seconds = 3};

struct link {
	int fd;
	size_t sent, got;
	char in[4096];
};

static void make_request(const char *path)
{
	size_t lines = (size_t)load.lines, size = lines ? lines * LINE_MAX : BODY, at = 0;
	char body[BODY + 1], *text = malloc(size + 1);

	load.request = malloc(size + 1024);
	if (!text || !load.request)
		die("memory");
	memset(body, 'x', BODY);
	body[BODY] = '\0';
	for (size_t i = 0; i < lines; i++)
		at += (size_t)sprintf(text + at, "{\"body_text\":\"%s\"}\n", body);
	if (!lines)
		at = (size_t)sprintf(text, "%s", body);
	load.request_size = (size_t)sprintf(
		load.request, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
		path, lines ? "application/x-ndjson" : "text/plain", at);
	memcpy(load.request + load.request_size, text, at);
	load.request_size += at;
	free(text);
}

static int more(void)
{
	return load.count ? load.sent < (uint64_t)load.count : bench_seconds() < load.end;
}

static void send_on(struct link *l, int epoll)
{
	ssize_t n = 0;

	while (l->sent < load.request_size &&
	       (n = send(l->fd, load.request + l->sent, load.request_size - l->sent, MSG_NOSIGNAL)) > 0)
		l->sent += (size_t)n;
	if (n < 0 && errno != EAGAIN)
		die("send");
	struct epoll_event e = {.events = l->sent < load.request_size ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = l};
	if (load.request_size > 65536 && epoll_ctl(epoll, EPOLL_CTL_MOD, l->fd, &e))
		die("epoll_ctl");
}

static void start_one(struct link *l, int epoll)
{
	l->sent = l->got = 0;
	load.sent++;
	send_on(l, epoll);
}

/* A whole answer is in? Only its head is kept; the rest of a long body is counted. */
static int is_whole(const struct link *l, size_t got)
{
	const char *end = memmem(l->in, got < sizeof l->in ? got : sizeof l->in, "\r\n\r\n", 4), *length;

	if (!end)
		return 0;
	if (strncmp(l->in, "HTTP/1.1 201", 12)) {
		fprintf(stderr, "http_load: %.*s\n", (int)(got < 600 ? got : 600), l->in);
		exit(1);
	}
	length = strcasestr(l->in, "content-length:");
	return length && length < end && got >= (size_t)(end + 4 - l->in) + strtoul(length + 15, NULL, 10);
}

static void receive(struct link *l, int epoll)
{
	static char rest[65536];
	int keep = l->got < sizeof l->in - 1;
	ssize_t n =
		keep ? recv(l->fd, l->in + l->got, sizeof l->in - 1 - l->got, 0) : recv(l->fd, rest, sizeof rest, 0);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		die("receive");
	l->got += (size_t)n;
	if (keep)
		l->in[l->got] = '\0';
	if (!is_whole(l, l->got))
		return;
	load.answered++;
	if (more())
		start_one(l, epoll);
}

static void connect_one(struct link *l, int epoll, int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
	int one = 1;

	l->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&address, sizeof address))
		die("connect");
	setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	fcntl(l->fd, F_SETFL, O_NONBLOCK);
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, l->fd, &e))
		die("epoll_ctl");
}

static double run(int port)
{
	static struct link links[CONNECTIONS_MAX];
	struct epoll_event events[256];
	int epoll = epoll_create1(0), n = (int)load.connections;
	double start;

	for (int i = 0; i < n; i++)
		connect_one(&links[i], epoll, port);
	start = bench_seconds();
	load.end = start + load.seconds;
	for (int i = 0; i < n && more(); i++)
		start_one(&links[i], epoll);
	while (load.answered < load.sent) {
		int ready = epoll_wait(epoll, events, 256, SILENCE_MS);

		if (!ready) {
			fprintf(stderr, "http_load: %zu requests without an answer for 10 s\n",
				(size_t)(load.sent - load.answered));
			exit(1);
		}
		for (int i = 0; i < ready; i++) {
			if (events[i].events & EPOLLOUT)
				send_on(events[i].data.ptr, epoll);
			if (events[i].events & ~(uint32_t)EPOLLOUT)
				receive(events[i].data.ptr, epoll);
		}
	}
	return bench_seconds() - start;
}

int main(int argc, char **argv)
{
	double seconds;

	if (argc == 2 && !strcmp(argv[1], "bare"))
		return serve_bare();
	for (int i = 3; i < argc; i++)
		if (sscanf(argv[i], "connections=%lf", &load.connections) != 1 &&
		    sscanf(argv[i], "seconds=%lf", &load.seconds) != 1 &&
		    sscanf(argv[i], "count=%lf", &load.count) != 1 && sscanf(argv[i], "lines=%lf", &load.lines) != 1)
			argc = 0;
	if (argc < 3 || load.connections < 1 || load.connections > CONNECTIONS_MAX) {
		fprintf(stderr, "usage: http_load bare | PORT PATH [connections=N] [seconds=S | count=N] [lines=N]\n");
		return 2;
	}
	make_request(argv[2]);
	seconds = run(atoi(argv[1]));
	bench_print("requests", (double)load.answered, "requests");
	bench_print("per_s", (double)load.answered / seconds, "requests/s");
	if (load.lines)
		bench_print("messages_per_s", (double)load.answered * load.lines / seconds, "messages/s");
	return 0;
}
