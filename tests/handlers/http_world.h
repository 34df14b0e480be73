/* http_world.h - an http handler in front of the small server, for tests. */
#ifndef RDV_TESTS_HANDLERS_HTTP_WORLD_H
#define RDV_TESTS_HANDLERS_HTTP_WORLD_H
#include "http_server.h"

struct http_world {
	struct server *server;
	struct rdv_http_pool *pool;
	struct rdv_handler *handler;
	struct kit_sink sink;
	char url[128];
	struct rdv_http_options options;
};

static inline void http_open_with(struct http_world *w, struct rdv_http_options options)
{
	if (!options.url) {
		snprintf(w->url, sizeof w->url, "http://127.0.0.1:%d/orders", w->server->port);
		options.url = w->url;
	}
	options.timeout_ms = options.timeout_ms ? options.timeout_ms : 20000;
	options.connections = options.connections ? options.connections : 4;
	assert_int_equal(rdv_http_pool_new(&w->pool, NULL), REDRIVE_OK);
	assert_int_equal(rdv_http_new(w->pool, &options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

static inline void http_open(struct http_world *w,
			     bool (*answer)(struct server *s, const struct server_request *r, int fd),
			     struct rdv_http_options options)
{
	*w = (struct http_world){.server = server_start(answer)};
	http_open_with(w, options);
}

static inline void http_close(struct http_world *w)
{
	w->handler->ops->free(w->handler);
	rdv_http_pool_free(w->pool);
	server_stop(w->server);
}

static inline struct rdv_call *http_send(struct http_world *w, struct rdv_call *c)
{
	return kit_send(w->handler, &w->sink, c);
}

/* The last request has this header; NULL = it has none of that name. */
static inline void http_check(struct http_world *w, const char *name, const char *wanted)
{
	char *value = server_header(&w->server->requests[w->server->request_count - 1], name);

	if (!wanted && value)
		fail_msg("%s: %s, wanted none", name, value);
	if (wanted && (!value || strcmp(value, wanted) != 0))
		fail_msg("%s: %s, wanted %s", name, value ? value : "(absent)", wanted);
	free(value);
}
#endif
