/* connections.c - the open connections by last use: beyond the limit the longest idle one is closed.
 *
 * libmicrohttpd cannot close a connection of another thread; shutting its socket down makes it do so. The mutex keeps
 * the descriptor from being reused meanwhile, since libmicrohttpd reports a close before it closes. */
#include <stdlib.h>
#include <sys/socket.h>
#include "api.h"

static void unlink_connection(struct rdv_api *api, struct rdv_connection *c)
{
	*(c->older ? &c->older->newer : &api->oldest) = c->newer;
	*(c->newer ? &c->newer->older : &api->newest) = c->older;
}

static void append_connection(struct rdv_api *api, struct rdv_connection *c)
{
	c->older = api->newest;
	c->newer = NULL;
	*(api->newest ? &api->newest->newer : &api->oldest) = c;
	api->newest = c;
}

static void close_longest_idle(struct rdv_api *api)
{
	for (struct rdv_connection *c = api->oldest; c; c = c->newer) {
		if (c->active || c->fd < 0)
			continue;
		shutdown(c->fd, SHUT_RDWR);
		c->fd = -1;
		return;
	}
}

void rdv_connection_opened(struct rdv_api *api, struct MHD_Connection *connection, void **socket_context)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct rdv_connection *c = calloc(1, sizeof *c);
	*socket_context = c;
	if (!c)
		return;
	c->fd = info ? info->connect_fd : -1;
	pthread_mutex_lock(&api->mutex);
	append_connection(api, c);
	if (++api->connection_count > api->connections_max)
		close_longest_idle(api);
	pthread_mutex_unlock(&api->mutex);
}

void rdv_connection_closed(struct rdv_api *api, void **socket_context)
{
	struct rdv_connection *c = *socket_context;
	if (!c)
		return;
	pthread_mutex_lock(&api->mutex);
	unlink_connection(api, c);
	api->connection_count--;
	pthread_mutex_unlock(&api->mutex);
	free(c);
	*socket_context = NULL;
}

void rdv_connection_used(struct rdv_api *api, struct MHD_Connection *connection, int active)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct rdv_connection *c = info ? info->socket_context : NULL;
	if (!c)
		return;
	pthread_mutex_lock(&api->mutex);
	c->active = (unsigned)((int)c->active + active);
	unlink_connection(api, c);
	append_connection(api, c);
	pthread_mutex_unlock(&api->mutex);
}
