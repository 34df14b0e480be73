/* http_server.h - a small HTTP server for tests: port 0, one thread per connection, answers made by a function.
 * It keeps every request it got, head and body, as text. The function writes the answer itself and says whether
 * the connection goes on. */
#ifndef RDV_TESTS_HANDLERS_HTTP_SERVER_H
#define RDV_TESTS_HANDLERS_HTTP_SERVER_H
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include "kit.h"

#define SERVER_CONNECTIONS 256
#define SERVER_REQUESTS 4096

struct server_request {
	char *head; /* request line and headers, NUL-terminated */
	uint8_t *body;
	size_t body_size;
	int connection; /* number of the connection it came by */
};

struct server {
	int fd, port;
	/* Answers on `fd`; false closes the connection. Returns early when the peer or the server goes away. */
	bool (*answer)(struct server *s, const struct server_request *r, int fd);
	const char *raw; /* for answer functions */
	int count_before_close;
	pthread_t acceptor;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool stopping;
	int fds[SERVER_CONNECTIONS];
	pthread_t threads[SERVER_CONNECTIONS];
	int connections;
	int active, most_active;
	struct server_request requests[SERVER_REQUESTS];
	size_t request_count;
};
struct server_connection {
	struct server *s;
	int number;
};

static inline void server_write(int fd, const char *text)
{
	size_t size = strlen(text), done = 0;

	while (done < size) {
		ssize_t n = send(fd, text + done, size - done, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		done += (size_t)n;
	}
}

/* Waits until the peer closes, or the server stops (which shuts the socket down). */
static inline void server_hang(int fd)
{
	char byte;

	while (recv(fd, &byte, 1, 0) > 0)
		;
}

static inline bool server_ok(struct server *s, const struct server_request *r, int fd)
{
	server_write(fd, "HTTP/1.1 204 No Content\r\n\r\n");
	return true;
}

static inline bool server_raw(struct server *s, const struct server_request *r, int fd)
{
	server_write(fd, s->raw);
	return false;
}

static inline bool server_silent(struct server *s, const struct server_request *r, int fd)
{
	server_hang(fd);
	return false;
}

/* The value of a header in the head, malloc'ed; NULL = absent. */
static inline char *server_header(const struct server_request *r, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = strstr(r->head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n")) {
		if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':') {
			const char *value = line + 3 + length;

			value += strspn(value, " ");
			return strndup(value, strcspn(value, "\r"));
		}
	}
	return NULL;
}

static inline bool server_read_request(struct server *s, int fd, int number, struct server_request **out)
{
	struct server_request r = {.connection = number};
	size_t size = 0, capacity = 1 << 20;
	char *data = malloc(capacity + 1), *end = NULL, *length;

	data[0] = '\0';
	while (!(end = strstr(data, "\r\n\r\n"))) {
		ssize_t n = recv(fd, data + size, capacity - size, 0);

		if (n <= 0)
			goto gone;
		size += (size_t)n;
		data[size] = '\0';
	}
	end[2] = '\0';
	r.head = strdup(data);
	length = server_header(&r, "Content-Length");
	r.body_size = length ? strtoul(length, NULL, 10) : 0;
	free(length);
	r.body = malloc(r.body_size + 1);
	size -= (size_t)(end + 4 - data);
	assert_true(size <= r.body_size);
	memcpy(r.body, end + 4, size);
	while (size < r.body_size) {
		ssize_t n = recv(fd, r.body + size, r.body_size - size, 0);

		if (n <= 0)
			goto gone;
		size += (size_t)n;
	}
	free(data);
	pthread_mutex_lock(&s->mutex);
	assert_true(s->request_count < SERVER_REQUESTS);
	*out = &s->requests[s->request_count++];
	**out = r;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	return true;
gone:
	free(r.head);
	free(r.body);
	free(data);
	return false;
}

static inline void server_count_active(struct server *s, int change)
{
	pthread_mutex_lock(&s->mutex);
	s->active += change;
	if (s->active > s->most_active)
		s->most_active = s->active;
	pthread_mutex_unlock(&s->mutex);
}

static inline void *server_connection(void *arg)
{
	struct server_connection c = *(struct server_connection *)arg;
	int fd = c.s->fds[c.number];
	struct server_request *r;
	bool go_on = true;

	free(arg);
	while (go_on && server_read_request(c.s, fd, c.number, &r)) {
		server_count_active(c.s, 1);
		go_on = c.s->answer(c.s, r, fd);
		server_count_active(c.s, -1);
	}
	shutdown(fd, SHUT_RDWR);
	return NULL;
}

static inline void *server_accept(void *arg)
{
	struct server *s = arg;

	for (;;) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		struct server_connection *c;

		pthread_mutex_lock(&s->mutex);
		if (fd < 0 || s->stopping) {
			pthread_mutex_unlock(&s->mutex);
			if (fd >= 0)
				close(fd);
			return NULL;
		}
		assert_true(s->connections < SERVER_CONNECTIONS);
		c = malloc(sizeof *c);
		*c = (struct server_connection){s, s->connections};
		s->fds[s->connections] = fd;
		pthread_create(&s->threads[s->connections++], NULL, server_connection, c);
		pthread_mutex_unlock(&s->mutex);
	}
}

static inline struct server *server_start(bool (*answer)(struct server *s, const struct server_request *r, int fd))
{
	struct server *s = calloc(1, sizeof *s);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;

	s->answer = answer;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(s->fd, 512), 0);
	assert_int_equal(getsockname(s->fd, (struct sockaddr *)&address, &size), 0);
	s->port = ntohs(address.sin_port);
	pthread_create(&s->acceptor, NULL, server_accept, s);
	return s;
}

static inline void server_stop(struct server *s)
{
	pthread_mutex_lock(&s->mutex);
	s->stopping = true;
	pthread_mutex_unlock(&s->mutex);
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->acceptor, NULL);
	for (int i = 0; i < s->connections; i++) {
		shutdown(s->fds[i], SHUT_RDWR);
		pthread_join(s->threads[i], NULL);
		close(s->fds[i]);
	}
	for (size_t i = 0; i < s->request_count; i++) {
		free(s->requests[i].head);
		free(s->requests[i].body);
	}
	close(s->fd);
	pthread_mutex_destroy(&s->mutex);
	pthread_cond_destroy(&s->changed);
	free(s);
}

static inline void server_wait_requests(struct server *s, size_t count)
{
	struct timespec until;
	int failed = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += KIT_PATIENCE_S;
	pthread_mutex_lock(&s->mutex);
	while (s->request_count < count && failed != ETIMEDOUT)
		failed = pthread_cond_timedwait(&s->changed, &s->mutex, &until);
	if (s->request_count < count)
		fail_msg("%zu of %zu requests came", s->request_count, count);
	pthread_mutex_unlock(&s->mutex);
}

static inline size_t server_requests(struct server *s)
{
	size_t count;

	pthread_mutex_lock(&s->mutex);
	count = s->request_count;
	pthread_mutex_unlock(&s->mutex);
	return count;
}
#endif
