/* http.c - the http handler: options checked and kept, calls queued behind the connections of their route.
 *
 *	submit -> inbox (inbox.h) -> queue -> active transfer -> done -> sink
 *
 * At most `connections` transfers are active; the timeout and took_ms count from the moment a transfer starts,
 * so time in the queue is nobody's. Finished calls are handed over once per turn of the pool's loop. Transfers
 * are reused, last used first, so that few connections stay warm under little load. A freed handler is
 * destroyed by the pool's thread. What always holds: a call is in exactly one of the five places. Any thread:
 * new; submit, cut and free are the core's; the rest is the pool's thread's. */
#include "http_pool.h"
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the pool's thread ---- */

static void add_done(struct rdv_http *h, struct rdv_call *call)
{
	call->next = NULL;
	*h->done_end = call;
	h->done_end = &call->next;
	if (!h->delivering) {
		h->delivering = true;
		h->next_delivering = h->pool->delivering;
		h->pool->delivering = h;
	}
}

void rdv_http_deliver(struct rdv_http *h)
{
	struct rdv_call *list = h->done;

	h->delivering = false;
	h->done = NULL;
	h->done_end = &h->done;
	if (list)
		h->served.base.sink.complete(h->served.base.sink.ctx, list);
}

static struct rdv_call *next_queued(struct rdv_http *h)
{
	struct rdv_call *call = h->queue;

	if (!call)
		return NULL;
	h->queue = call->next;
	if (!h->queue)
		h->queue_end = &h->queue;
	return call;
}

static struct rdv_http_transfer *idle_transfer(struct rdv_http *h)
{
	struct rdv_http_transfer *t = h->idle;

	if (!t)
		return rdv_http_transfer_new(h);
	h->idle = t->next;
	return t;
}

static void put_idle(struct rdv_http *h, struct rdv_http_transfer *t)
{
	t->next = h->idle;
	h->idle = t;
}

static void link_active(struct rdv_http *h, struct rdv_http_transfer *t)
{
	t->previous = NULL;
	t->next = h->active;
	if (t->next)
		t->next->previous = t;
	h->active = t;
	h->active_count++;
}

static void unlink_active(struct rdv_http *h, struct rdv_http_transfer *t)
{
	*(t->previous ? &t->previous->next : &h->active) = t->next;
	if (t->next)
		t->next->previous = t->previous;
	h->active_count--;
	put_idle(h, t);
}

static void start_queued(struct rdv_http *h, int64_t now_us)
{
	while (h->queue && h->active_count < h->connections) {
		struct rdv_call *call = next_queued(h);
		struct rdv_http_transfer *t = idle_transfer(h);

		if (!t) {
			rdv_call_set_transport(call, RDV_TRANSPORT_OTHER, "no memory for a connection");
			add_done(h, call);
		} else if (rdv_http_transfer_start(t, call, now_us)) {
			put_idle(h, t);
			add_done(h, call);
		} else {
			link_active(h, t);
		}
	}
}

void rdv_http_ended(struct rdv_http_transfer *t, CURLcode result, int64_t now_us)
{
	struct rdv_http *h = t->handler;
	struct rdv_call *call = rdv_http_transfer_finish(t, result, now_us);

	unlink_active(h, t);
	add_done(h, call);
	start_queued(h, now_us);
}

static void end_all(struct rdv_http *h)
{
	int64_t now_us = rdv_mono_now_us();
	struct rdv_call *call;

	while (h->active) {
		struct rdv_http_transfer *t = h->active;

		call = rdv_http_transfer_abort(t, now_us);
		unlink_active(h, t);
		add_done(h, call);
	}
	while ((call = next_queued(h))) {
		rdv_call_set_transport(call, RDV_TRANSPORT_SHUTDOWN, "cut off by our shutdown");
		add_done(h, call);
	}
}

static void destroy(struct rdv_http *h)
{
	struct rdv_http_transfer *t;

	while ((t = h->idle)) {
		h->idle = t->next;
		rdv_http_transfer_free(t);
	}
	rdv_http_fixed_done(&h->fixed);
	free(h->url);
	free(h->ca_file);
	free(h->cert_file);
	free(h->key_file);
	free(h->proxy);
	free(h);
}

void rdv_http_take(struct rdv_http *h)
{
	*h->queue_end = h->served.taken;
	if (h->served.taken)
		h->queue_end = h->served.taken_end;
	h->served.taken = NULL;
	if (h->served.cut)
		end_all(h);
	else
		start_queued(h, rdv_mono_now_us());
	if (!h->served.freed)
		return;
	assert(!h->active && !h->queue && !h->done);
	destroy(h);
}

/* ---- the core thread ---- */

static void http_free(struct rdv_handler *base)
{
	struct rdv_http *h = (struct rdv_http *)base;

	atomic_fetch_sub(&h->pool->wanted_connections, h->connections);
	rdv_served_free(base);
}

static const struct rdv_handler_ops http_ops = {"http", rdv_served_submit, rdv_served_cut, http_free};

/* ---- options ---- */

static enum redrive_status check_url(const char *url, struct rdv_error *error)
{
	CURLU *parsed = curl_url();
	char *scheme = NULL;
	enum redrive_status status = REDRIVE_OK;
	CURLUcode failed;

	if (!parsed)
		return REDRIVE_NO_MEMORY;
	failed = curl_url_set(parsed, CURLUPART_URL, url, 0);
	if (failed)
		status = rdv_error_set(error, REDRIVE_INVALID, "url: '%s' is no URL: %s", url,
				       curl_url_strerror(failed));
	else if (curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0))
		status = REDRIVE_NO_MEMORY;
	else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
		status = rdv_error_set(error, REDRIVE_INVALID, "url: '%s' is neither http:// nor https://", url);
	curl_free(scheme);
	curl_url_cleanup(parsed);
	return status;
}

static enum redrive_status check_file(const char *what, const char *path, struct rdv_error *error)
{
	if (path && access(path, R_OK))
		return rdv_error_set(error, REDRIVE_INVALID, "tls: %s '%s' cannot be read", what, path);
	return REDRIVE_OK;
}

static enum redrive_status check(const struct rdv_http_options *o, struct rdv_error *error)
{
	enum redrive_status status =
		o->url ? check_url(o->url, error) : rdv_error_set(error, REDRIVE_INVALID, "url is missing");

	if (!status && o->connections < 1)
		status = rdv_error_set(error, REDRIVE_INVALID, "http needs at least one connection");
	if (!status)
		status = check_file("ca_file", o->ca_file, error);
	if (!status)
		status = check_file("cert_file", o->cert_file, error);
	if (!status)
		status = check_file("key_file", o->key_file, error);
	return status;
}

static bool copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

enum redrive_status rdv_http_new(struct rdv_http_pool *pool, const struct rdv_http_options *options,
				 struct rdv_sink sink, struct rdv_handler **out, struct rdv_error *error)
{
	enum redrive_status status = check(options, error);
	struct rdv_http *h;

	if (status)
		return status;
	h = calloc(1, sizeof *h);
	if (!h)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for an http handler");
	rdv_served_init(&h->served, &pool->inboxes, &http_ops, sink);
	h->pool = pool;
	h->timeout_ms = options->timeout_ms;
	h->connections = options->connections;
	h->queue_end = &h->queue;
	h->done_end = &h->done;
	status = rdv_http_fixed_init(&h->fixed, options, error);
	if (!status && !(copy_text(&h->url, options->url) && copy_text(&h->ca_file, options->ca_file) &&
			 copy_text(&h->cert_file, options->cert_file) && copy_text(&h->key_file, options->key_file) &&
			 copy_text(&h->proxy, options->proxy)))
		status = rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for an http handler");
	if (status) {
		destroy(h);
		return status;
	}
	atomic_fetch_add(&pool->wanted_connections, h->connections);
	*out = &h->served.base;
	return REDRIVE_OK;
}
