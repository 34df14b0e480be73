/* listen.c - the listening socket: accepts, and hands the connections to libmicrohttpd's threads in turn.
 *
 * Left to itself each of its threads takes what it can get of a burst of connections, up to all of them, and then one
 * works while the other one sleeps. It spreads what it is handed from outside by the descriptor's number. One thread;
 * out of descriptors or memory it waits a moment, and those who connect wait in the kernel's queue. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "api.h"

#define PAUSE_MS 20

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static bool make_address(const struct rdv_api_options *o, union address *a, socklen_t *size)
{
	memset(a, 0, sizeof *a);
	if (inet_pton(AF_INET, o->host, &a->v4.sin_addr) == 1) {
		a->v4.sin_family = AF_INET;
		a->v4.sin_port = htons(o->port);
		*size = sizeof a->v4;
		return true;
	}
	a->v6.sin6_family = AF_INET6;
	a->v6.sin6_port = htons(o->port);
	*size = sizeof a->v6;
	return inet_pton(AF_INET6, o->host, &a->v6.sin6_addr) == 1;
}

static bool open_socket(struct rdv_listener *l, const union address *address, socklen_t size)
{
	int one = 1;
	l->fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
		return false;
	if (address->any.sa_family == AF_INET6 && setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) != 0)
		return false;
	if (bind(l->fd, &address->any, size) != 0 || listen(l->fd, SOMAXCONN) != 0)
		return false;
	l->stop = eventfd(0, EFD_CLOEXEC);
	return l->stop >= 0;
}

enum redrive_status rdv_listener_open(struct rdv_listener *l, const struct rdv_api_options *o, struct rdv_error *error)
{
	union address address, bound = {0};
	socklen_t size, bound_size = sizeof bound;
	if (!make_address(o, &address, &size))
		return rdv_error_set(error, REDRIVE_REFUSED, "'%s' is no address to listen at", o->host);
	if (!open_socket(l, &address, size) || getsockname(l->fd, &bound.any, &bound_size) != 0)
		return rdv_error_set(error, REDRIVE_IO, "cannot listen at %s port %u: %s", o->host, o->port,
				     strerror(errno));
	l->port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
	return REDRIVE_OK;
}

/* false: out of something that others may give back. */
static bool accept_one(struct rdv_listener *l)
{
	union address peer;
	socklen_t size = sizeof peer;
	int fd = accept4(l->fd, &peer.any, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		(void)MHD_add_connection(l->daemon, fd, &peer.any, size); /* closes it if it cannot take it */
		return true;
	}
	return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
}

static void *run(void *arg)
{
	struct rdv_listener *l = arg;
	struct pollfd fds[] = {{.fd = l->stop, .events = POLLIN}, {.fd = l->fd, .events = POLLIN}};
	pthread_setname_np(pthread_self(), "rdv-listen");
	for (;;) {
		bool paused = fds[1].fd < 0;
		if (poll(fds, 2, paused ? PAUSE_MS : -1) < 0) {
			if (errno != EINTR) /* no memory */
				usleep(PAUSE_MS * 1000);
			continue;
		}
		if (fds[0].revents)
			break;
		if (!paused && !(fds[1].revents & POLLIN))
			continue;
		fds[1].fd = accept_one(l) ? l->fd : -1;
	}
	return NULL;
}

enum redrive_status rdv_listener_start(struct rdv_listener *l, struct MHD_Daemon *daemon, struct rdv_error *error)
{
	l->daemon = daemon;
	int failed = pthread_create(&l->thread, NULL, run, l);
	if (failed)
		return rdv_error_errno(error, failed, "start the listening thread");
	l->started = true;
	return REDRIVE_OK;
}

void rdv_listener_stop(struct rdv_listener *l)
{
	if (l->started) {
		(void)!write(l->stop, &(uint64_t){1}, sizeof(uint64_t));
		pthread_join(l->thread, NULL);
	}
	if (l->fd >= 0)
		close(l->fd);
	if (l->stop >= 0)
		close(l->stop);
	*l = (struct rdv_listener){.fd = -1, .stop = -1};
}
