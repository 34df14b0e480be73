/* http_pool.c - the thread of all http handlers: one curl multi handle, its sockets in an epoll set, its timer.
 *
 * curl says which sockets it waits for; we say which are ready (curl_multi_socket_action). A connection stays
 * in the epoll set between two requests, because leaving and entering costs two system calls a request; what
 * becomes readable while nobody waits for it (the server closed it) leaves the set then. So we must know when
 * curl closes a connection: we open and close them ourselves, close-on-exec. One turn: take the inbox, run what
 * is due, end finished transfers and start queued ones until nothing is due, hand finished calls over in one
 * list per handler, sleep.
 *
 * What always holds: `registered` is what the epoll set has for that descriptor; when there is
 * something in an inbox (inbox.h), the thread is awake or will be. A failed epoll_ctl makes that one transfer run
 * into its timeout. Any thread: new, free, wake. Everything else is the pool's thread's. */
#include "http_pool.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 128
#define KEPT_CONNECTIONS_MAX 65536

/* ---- sockets ---- */

static struct rdv_http_fd *fd_at(struct rdv_http_pool *p, int fd)
{
	size_t count = p->fd_count ? p->fd_count : 64;
	struct rdv_http_fd *grown;

	if (fd < 0)
		return NULL;
	if ((size_t)fd < p->fd_count)
		return &p->fds[fd];
	while (count <= (size_t)fd)
		count *= 2;
	grown = reallocarray(p->fds, count, sizeof *grown);
	if (!grown)
		return NULL;
	memset(grown + p->fd_count, 0, (count - p->fd_count) * sizeof *grown);
	p->fds = grown;
	p->fd_count = count;
	return &p->fds[fd];
}

static void watch_fd(struct rdv_http_pool *p, int fd, struct rdv_http_fd *f, uint8_t mask)
{
	struct epoll_event event = {.data.fd = fd};
	int op = !mask ? EPOLL_CTL_DEL : f->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (mask == f->registered)
		return;
	event.events = (mask & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) | (mask & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
	epoll_ctl(p->epoll, op, fd, &event);
	f->registered = mask;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *per_socket)
{
	struct rdv_http_pool *p = ctx;
	struct rdv_http_fd *f = fd_at(p, fd);

	if (!f)
		return -1;
	f->wanted = what == CURL_POLL_REMOVE ? 0 : (uint8_t)(what & CURL_POLL_INOUT);
	if (f->wanted || !f->connection || f->registered != CURL_POLL_IN)
		watch_fd(p, fd, f, f->wanted);
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *ctx)
{
	struct rdv_http_pool *p = ctx;

	p->timer_us = timeout_ms < 0 ? RDV_NEVER : rdv_mono_now_us() + timeout_ms * 1000;
	p->timer_set = true;
	return 0;
}

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct rdv_http_pool *p = ctx;
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	struct rdv_http_fd *f = fd_at(p, fd);

	if (!f) {
		if (fd >= 0)
			close(fd);
		return CURL_SOCKET_BAD;
	}
	*f = (struct rdv_http_fd){.connection = true};
	return fd;
}

static int close_socket(void *ctx, curl_socket_t fd)
{
	struct rdv_http_pool *p = ctx;

	*fd_at(p, fd) = (struct rdv_http_fd){0}; /* closing takes it out of the epoll set */
	return close(fd);
}

bool rdv_http_pool_setup(struct rdv_http_pool *p, CURL *easy)
{
	return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, p) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, p) == CURLE_OK;
}

static void on_event(struct rdv_http_pool *p, const struct epoll_event *event)
{
	int fd = event->data.fd, running, mask = 0;
	struct rdv_http_fd *f = &p->fds[fd];

	if (!f->registered) /* closed by an earlier event of this turn */
		return;
	if (!f->wanted) {
		watch_fd(p, fd, f, 0);
		return;
	}
	if (event->events & (EPOLLIN | EPOLLHUP))
		mask |= CURL_CSELECT_IN;
	if (event->events & EPOLLOUT)
		mask |= CURL_CSELECT_OUT;
	if (event->events & EPOLLERR)
		mask |= CURL_CSELECT_ERR;
	curl_multi_socket_action(p->multi, fd, mask, &running);
}

/* ---- one turn ---- */

static void set_connections(struct rdv_http_pool *p, uint64_t wanted)
{
	if (wanted == p->connections)
		return;
	p->connections = wanted;
	/* curl's own default follows the number of running transfers, and would close what is idle for a moment. */
	curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS,
			  (long)(wanted < KEPT_CONNECTIONS_MAX ? wanted : KEPT_CONNECTIONS_MAX));
}

/* What other threads asked for. Returns false when the pool is to stop. */
static bool take_inbox(struct rdv_http_pool *p)
{
	struct rdv_served *s, *next;
	bool stopping;

	atomic_store(&p->woken, false); /* first: what comes from here on wakes again */
	s = rdv_inboxes_take(&p->inboxes, &stopping);
	set_connections(p, atomic_load(&p->wanted_connections));
	for (; s; s = next) {
		next = s->next_taken;
		rdv_http_take((struct rdv_http *)s);
	}
	return !stopping;
}

static void end_finished(struct rdv_http_pool *p)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(p->multi, &left))) {
		struct rdv_http_transfer *t;
		CURLcode result = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
		rdv_http_ended(t, result, rdv_mono_now_us());
	}
}

/* curl's timer: it may have been called a little early, and then sets none anew. */
static void run_timer(struct rdv_http_pool *p)
{
	long timeout_ms = -1;
	int running;

	p->timer_set = false;
	p->timer_us = RDV_NEVER;
	curl_multi_socket_action(p->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	if (!p->timer_set && curl_multi_timeout(p->multi, &timeout_ms) == CURLM_OK)
		on_timer(p->multi, timeout_ms, p);
}

static void deliver_all(struct rdv_http_pool *p)
{
	while (p->delivering) {
		struct rdv_http *h = p->delivering;

		p->delivering = h->next_delivering;
		rdv_http_deliver(h);
	}
}

static int sleep_ms(const struct rdv_http_pool *p)
{
	int64_t us = p->timer_us == RDV_NEVER ? RDV_NEVER : p->timer_us - rdv_mono_now_us();

	if (us == RDV_NEVER)
		return -1;
	if (us <= 0)
		return 0;
	return us > 60000000 ? 60000 : (int)((us + 999) / 1000);
}

static void wait_for_events(struct rdv_http_pool *p)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(p->epoll, events, EVENTS, sleep_ms(p));
	uint64_t woken;

	for (int i = 0; i < count; i++) {
		if (events[i].data.fd != p->wake)
			on_event(p, &events[i]);
		else if (read(p->wake, &woken, sizeof woken) < 0)
			assert(errno == EAGAIN || errno == EINTR);
	}
}

static void *loop(void *arg)
{
	struct rdv_http_pool *p = arg;
	bool running = true;

	while (running) {
		running = take_inbox(p);
		end_finished(p);
		while (p->timer_us != RDV_NEVER && p->timer_us <= rdv_mono_now_us()) {
			run_timer(p);
			end_finished(p);
		}
		deliver_all(p);
		if (running)
			wait_for_events(p);
	}
	return NULL;
}

/* ---- life ---- */

static void wake(void *ctx)
{
	struct rdv_http_pool *p = ctx;
	uint64_t one = 1;

	if (!atomic_exchange(&p->woken, true) && write(p->wake, &one, sizeof one) < 0)
		assert(errno == EAGAIN || errno == EINTR);
}

static enum redrive_status open_parts(struct rdv_http_pool *p, struct rdv_error *error)
{
	struct epoll_event event = {.events = EPOLLIN};

	p->epoll = epoll_create1(EPOLL_CLOEXEC);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->epoll < 0 || p->wake < 0)
		return rdv_error_errno(error, errno, "http: epoll or eventfd");
	event.data.fd = p->wake;
	if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->wake, &event))
		return rdv_error_errno(error, errno, "http: epoll");
	p->multi = curl_multi_init();
	if (!p->multi)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "http: no memory");
	curl_multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p);
	curl_multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(p->multi, CURLMOPT_TIMERDATA, p);
	curl_multi_setopt(p->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	return REDRIVE_OK;
}

static void close_parts(struct rdv_http_pool *p)
{
	curl_multi_cleanup(p->multi);
	if (p->epoll >= 0)
		close(p->epoll);
	if (p->wake >= 0)
		close(p->wake);
	free(p->fds);
	rdv_inboxes_done(&p->inboxes);
	free(p);
	curl_global_cleanup();
}

enum redrive_status rdv_http_pool_new(struct rdv_http_pool **out, struct rdv_error *error)
{
	struct rdv_http_pool *p = calloc(1, sizeof *p);
	enum redrive_status status;
	sigset_t all, before;
	int failed;

	if (!p || curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(p);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "http: no memory");
	}
	p->epoll = p->wake = -1;
	p->timer_us = RDV_NEVER;
	rdv_inboxes_init(&p->inboxes, wake, p);
	status = open_parts(p, error);
	if (status)
		goto failed;
	sigfillset(&all); /* the process's signals are its main thread's, and SIGPIPE is nobody's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&p->thread, NULL, loop, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		status = rdv_error_errno(error, failed, "http: start a thread");
		goto failed;
	}
	*out = p;
	return REDRIVE_OK;
failed:
	close_parts(p);
	return status;
}

void rdv_http_pool_free(struct rdv_http_pool *p)
{
	if (!p)
		return;
	rdv_inboxes_stop(&p->inboxes);
	pthread_join(p->thread, NULL);
	assert(!p->inboxes.dirty);
	close_parts(p);
}
