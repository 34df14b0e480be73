/* http_push_bench.c - the http handler against a bare libcurl multi loop: same server, same number of connections,
 * headers and bytes.
 *
 * The server is a process of its own: one thread, epoll, keep-alive, answers 204 to whatever ends a request's
 * head and body. The bare loop is what a good user of libcurl would write: easy handles, header list and body
 * made once, curl_multi_poll and curl_multi_perform, finished handles added again. Ours goes the whole way of a
 * call: submitted by one thread, headers built per message, completed by the pool's thread. The two take turns;
 * medians are compared. Prints one JSON object a line.
 *
 *	http_push_bench [CONNECTIONS [SECONDS [bare | ours]]]		one of them alone is for a profiler */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <curl/curl.h>
#include "handlers/handler.h"

#define ROUNDS 5
#define BODY 256
#define GOAL 0.8

static char body[BODY];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

struct result {
	double per_second, cpu_us; /* requests; this process's processor time for one */
};

static double cpu_us(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static struct result result(uint64_t done, int64_t start_us, double start_cpu_us)
{
	return (struct result){(double)done / ((double)(rdv_mono_now_us() - start_us) / 1e6),
			       (cpu_us() - start_cpu_us) / (double)done};
}

/* ---- the server ---- */

struct peer {
	size_t size;
	char in[16384];
};

/* Answers every whole request in the buffer; a request is a head and BODY bytes. */
static void answer(int fd, struct peer *p)
{
	static const char text[] = "HTTP/1.1 204 No Content\r\n\r\n";
	char *at = p->in, *end;

	p->in[p->size] = '\0';
	while ((end = memmem(at, p->size - (size_t)(at - p->in), "\r\n\r\n", 4)) &&
	       p->size - (size_t)(end + 4 - p->in) >= BODY) {
		if (write(fd, text, sizeof text - 1) < 0)
			return;
		at = end + 4 + BODY;
	}
	p->size -= (size_t)(at - p->in);
	memmove(p->in, at, p->size);
}

static void serve(int listener)
{
	static struct peer *peers[65536];
	int epoll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];

	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	for (;;) {
		int count = epoll_wait(epoll, events, 64, -1);

		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd, one = 1;
			struct peer *p;
			ssize_t n;

			if (fd == listener) {
				fd = accept(listener, NULL, NULL);
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
				peers[fd] = calloc(1, sizeof *p);
				event.data.fd = fd;
				epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
				continue;
			}
			p = peers[fd];
			n = read(fd, p->in + p->size, sizeof p->in - 1 - p->size);
			if (n <= 0) {
				close(fd);
				free(p);
				continue;
			}
			p->size += (size_t)n;
			answer(fd, p);
		}
	}
}

static pid_t start_server(char url[64])
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	pid_t pid;

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		die("listen");
	snprintf(url, 64, "http://127.0.0.1:%d/orders", ntohs(address.sin_port));
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
	}
	close(fd);
	return pid;
}

/* ---- the bare loop ---- */

static size_t swallow(char *data, size_t one, size_t size, void *ctx)
{
	return size;
}

static struct curl_slist *bare_headers(void)
{
	static const char *const lines[] = {"Redrive-Message-Id: order.create-2-8812",
					    "Redrive-Route: orders",
					    "Redrive-Topic: order.create",
					    "Redrive-Partition: 2",
					    "Redrive-Offset: 8812",
					    "Redrive-Key: o-17",
					    "Redrive-Attempt: 1",
					    "Redrive-Epoch: 7",
					    "Idempotency-Key: order.create-2-8812",
					    "Content-Type: application/json",
					    "Expect:",
					    "User-Agent: redrive/0.1.0"};
	struct curl_slist *list = NULL;

	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		list = curl_slist_append(list, lines[i]);
	return list;
}

static CURL *bare_easy(const char *url, struct curl_slist *headers)
{
	CURL *easy = curl_easy_init();

	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_POST, 1L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 30000L);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)BODY);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, swallow);
	return easy;
}

static struct result run_bare(const char *url, int connections, double seconds)
{
	CURLM *multi = curl_multi_init();
	struct curl_slist *headers = bare_headers();
	CURL **easies = calloc((size_t)connections, sizeof *easies);
	int64_t start = rdv_mono_now_us(), until = start + (int64_t)(seconds * 1e6);
	double cpu = cpu_us();
	struct result r;
	uint64_t done = 0;
	int running, left;

	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)connections);
	for (int i = 0; i < connections; i++)
		curl_multi_add_handle(multi, easies[i] = bare_easy(url, headers));
	while (rdv_mono_now_us() < until) {
		CURLMsg *m;

		curl_multi_perform(multi, &running);
		while ((m = curl_multi_info_read(multi, &left))) {
			CURL *easy = m->easy_handle;

			if (m->data.result != CURLE_OK)
				die("bare request");
			done++;
			curl_multi_remove_handle(multi, easy);
			curl_multi_add_handle(multi, easy);
		}
		curl_multi_poll(multi, NULL, 0, 1000, NULL);
	}
	r = result(done, start, cpu);
	for (int i = 0; i < connections; i++) {
		curl_multi_remove_handle(multi, easies[i]);
		curl_easy_cleanup(easies[i]);
	}
	curl_multi_cleanup(multi);
	curl_slist_free_all(headers);
	free(easies);
	return r;
}

/* ---- ours ---- */

struct ours {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct rdv_call *back; /* list */
	size_t count;
};

static void complete(void *ctx, struct rdv_call *list)
{
	struct ours *o = ctx;
	struct rdv_call *last = list;
	size_t count = 1;

	for (; last->next; last = last->next)
		count++;
	pthread_mutex_lock(&o->mutex);
	last->next = o->back;
	o->back = list;
	o->count += count;
	pthread_cond_signal(&o->changed);
	pthread_mutex_unlock(&o->mutex);
}

static struct rdv_call *take_back(struct ours *o)
{
	struct rdv_call *list;

	pthread_mutex_lock(&o->mutex);
	while (!o->back)
		pthread_cond_wait(&o->changed, &o->mutex);
	list = o->back;
	o->back = NULL;
	pthread_mutex_unlock(&o->mutex);
	return list;
}

static void fill(struct rdv_call *c, struct rdv_slice payload)
{
	static uint64_t id;

	rdv_call_reset(c);
	c->id = ++id;
	c->route = "orders";
	c->topic = "order.create";
	c->partition = 2;
	c->offset = id;
	c->attempt = 1;
	c->epoch = 7;
	c->payload = payload;
}

static uint64_t pump(struct ours *o, struct rdv_handler *h, struct rdv_slice payload, int64_t until)
{
	uint64_t done = 0;

	while (rdv_mono_now_us() < until) {
		struct rdv_call *list = take_back(o);

		for (struct rdv_call *c = list; c; c = c->next) {
			struct rdv_call *next = c->next;

			if (c->answer.http_status != 204)
				die("our request");
			fill(c, payload);
			c->next = next;
			done++;
		}
		h->ops->submit(h, list);
	}
	return done;
}

/* Twice as many calls as connections are open, as the core would have them: a freed connection finds the next call
 * waiting. */
static struct result run_ours(const char *url, int connections, double seconds)
{
	struct ours o = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct rdv_http_options options = {.url = url, .timeout_ms = 30000, .connections = (uint32_t)connections};
	struct rdv_body m = {.key = rdv_slice_text("o-17"),
			     .content_type = rdv_slice_text("application/json"),
			     .body = {(uint8_t *)body, BODY}};
	struct rdv_block *payload = rdv_block_new(rdv_body_size(&m));
	size_t count = 2 * (size_t)connections;
	struct rdv_call *calls = calloc(count, sizeof *calls);
	struct rdv_http_pool *pool;
	struct rdv_handler *h;
	int64_t start = rdv_mono_now_us();
	double cpu = cpu_us();
	struct result r;
	uint64_t done;

	rdv_body_encode(&m, payload->data);
	if (rdv_http_pool_new(&pool, NULL) || rdv_http_new(pool, &options, (struct rdv_sink){complete, &o}, &h, NULL))
		die("handler");
	for (size_t i = 0; i < count; i++) {
		rdv_call_init(&calls[i]);
		fill(&calls[i], rdv_block_slice(payload));
		h->ops->submit(h, &calls[i]);
	}
	done = pump(&o, h, rdv_block_slice(payload), start + (int64_t)(seconds * 1e6));
	r = result(done, start, cpu);
	pthread_mutex_lock(&o.mutex);
	while (o.count < done + count)
		pthread_cond_wait(&o.changed, &o.mutex);
	pthread_mutex_unlock(&o.mutex);
	h->ops->free(h);
	rdv_http_pool_free(pool);
	for (size_t i = 0; i < count; i++)
		rdv_call_reset(&calls[i]);
	free(calls);
	rdv_block_unref(payload);
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct result *x = a, *y = b;

	return (x->per_second > y->per_second) - (x->per_second < y->per_second);
}

int main(int argc, char **argv)
{
	int connections = argc > 1 ? atoi(argv[1]) : 64;
	double seconds = argc > 2 ? atof(argv[2]) : 2, ratio;
	const char *only = argc > 3 ? argv[3] : "";
	struct result bare[ROUNDS] = {{0}}, ours[ROUNDS] = {{0}}, *b = &bare[ROUNDS / 2], *o = &ours[ROUNDS / 2];
	char url[64];
	pid_t server;

	if (connections < 1 || seconds <= 0) {
		fprintf(stderr, "usage: %s [CONNECTIONS [SECONDS [bare | ours]]]\n", argv[0]);
		return 2;
	}
	server = start_server(url);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	memset(body, 'x', sizeof body);
	for (int i = 0; i < ROUNDS; i++) {
		if (strcmp(only, "ours") != 0)
			bare[i] = run_bare(url, connections, seconds);
		if (strcmp(only, "bare") != 0)
			ours[i] = run_ours(url, connections, seconds);
	}
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	qsort(bare, ROUNDS, sizeof bare[0], compare);
	qsort(ours, ROUNDS, sizeof ours[0], compare);
	ratio = b->per_second > 0 ? o->per_second / b->per_second : 0;
	printf("{\"name\": \"http push, %d connections\", \"value\": %.0f, \"unit\": \"requests/s\", \"peer\": \"bare "
	       "libcurl multi loop\", "
	       "\"peer_value\": %.0f, \"ratio\": %.3f, \"goal\": %.1f, \"met\": %s, \"cpu_us\": %.1f, \"peer_cpu_us\": "
	       "%.1f}\n",
	       connections, o->per_second, b->per_second, ratio, GOAL, ratio >= GOAL ? "true" : "false", o->cpu_us,
	       b->cpu_us);
	return 0;
}
