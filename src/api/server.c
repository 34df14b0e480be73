/* server.c - libmicrohttpd's pool: requests become exchanges, exchanges run operations.
 *
 * The path and query reach us raw (no unescaping by the library), so that a key may hold %2F or %00. Bodies are bounded
 * before they are kept; what comes beyond the limit is counted and thrown away, and the connection is closed. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include "api.h"

#define POOL_THREADS 2u /* they never wait for anybody; more of them only take turns */
#define POOL_SPARE                                                                                                     \
	8192u /* beyond the largest head: the answer's headers, and our own answer to a head that is too large */
#define PARSED_HERE (1u << 20) /* bytes of a batch: about 5 ms */
#define CONNECTIONS_MAX 4096u
#define IDLE_SECONDS 120u
#define DISCARD_MAX (64u << 20)

/* ---- one request ---- */

static void give_back_body(struct rdv_exchange *x)
{
	atomic_fetch_sub(&x->api->bodies, x->body_counted);
	x->body_counted = 0;
	rdv_buffer_done(&x->body);
}

static void free_exchange(struct rdv_exchange *x)
{
	if (!x)
		return;
	if (x->state_free)
		x->state_free(x->state);
	for (size_t i = 0; i < RDV_PATH_PARAMS; i++)
		free(x->params[i]);
	for (size_t i = 0; i < x->query_count; i++)
		free(x->query[i].value);
	free(x->who.routes);
	free(x->path);
	give_back_body(x);
	free(x);
}

static struct rdv_exchange *new_exchange(struct rdv_api *api, struct MHD_Connection *connection, const char *path)
{
	struct rdv_exchange *x = calloc(1, sizeof *x);
	if (!x)
		return NULL;
	x->api = api;
	x->engine = api->engine;
	x->desk = api->desk;
	x->connection = connection;
	x->path = strdup(path);
	return x;
}

void rdv_exchange_suspend(struct rdv_exchange *x)
{
	x->suspended = true;
	MHD_suspend_connection(x->connection);
}

void rdv_exchange_resume(struct rdv_exchange *x)
{
	MHD_resume_connection(x->connection);
}

/* A client within its own limit may still be one of a thousand that never end their bodies: all of them together have
 * a limit, too. Who goes beyond it is told to come again. */
static void keep_body(struct rdv_exchange *x, const char *data, size_t size)
{
	if (atomic_fetch_add(&x->api->bodies, size) + size > x->api->bodies_max) {
		atomic_fetch_sub(&x->api->bodies, size);
		x->no_room = true;
		give_back_body(x);
		return;
	}
	x->body_counted += size;
	rdv_buffer_append(&x->body, data, size);
}

static enum MHD_Result take_body(struct rdv_exchange *x, const char *data, size_t *size)
{
	x->body_seen += *size;
	if (!x->answered && !x->no_room && x->body_seen <= x->body_max)
		keep_body(x, data, *size);
	else
		x->body_too_large = x->body_too_large || x->body_seen > x->body_max;
	*size = 0;
	return x->body_seen > DISCARD_MAX + x->body_max ? MHD_NO : MHD_YES;
}

/* What waits, and what is large enough to hold up every other connection of this thread while it is parsed. */
static bool is_for_worker(const struct rdv_exchange *x)
{
	return x->op->pace != RDV_PACE_QUICK || (x->is_batch && x->body.size > PARSED_HERE && !x->state);
}

static void run(struct rdv_exchange *x)
{
	x->suspended = false;
	if (x->body_too_large)
		rdv_reply_problem(x, 413, NULL, "the body has more than %llu bytes, the most that %s",
				  (unsigned long long)x->body_max, x->body_limit);
	else if (x->no_room)
		rdv_reply_problem(x, 503, NULL, "too many bodies are being sent at a time: send this one again");
	else if (x->body.failed)
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
	else if (!is_for_worker(x) || !rdv_workers_add(x->api, x, x->op->pace != RDV_PACE_SLOW))
		x->op->run(x);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
				  const char *version, const char *upload, size_t *upload_size, void **request)
{
	struct rdv_api *api = ctx;
	struct rdv_exchange *x = *request;
	(void)version;
	if (!x) {
		x = new_exchange(api, connection, url);
		if (!x)
			return MHD_NO;
		*request = x;
		rdv_connection_used(api, connection, 1);
		if (rdv_exchange_check(x, method, url))
			return MHD_YES; /* the body follows */
		return x->answered ? MHD_YES : MHD_NO;
	}
	if (*upload_size)
		return take_body(x, upload, upload_size);
	if (x->answered)
		return MHD_YES;
	if (x->ran)
		return MHD_NO; /* on a worker, which found no memory for an answer */
	run(x);
	/* Suspended, it may be on another thread by now: nothing else of it is looked at. */
	return x->suspended || x->answered ? MHD_YES : MHD_NO;
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **request,
			 enum MHD_RequestTerminationCode code)
{
	(void)code;
	if (*request)
		rdv_connection_used(ctx, connection, -1);
	free_exchange(*request);
	*request = NULL;
}

static void on_connection(void *ctx, struct MHD_Connection *connection, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		rdv_connection_opened(ctx, connection, socket_context);
	else
		rdv_connection_closed(ctx, socket_context);
}

static size_t keep_escapes(void *ctx, struct MHD_Connection *connection, char *text)
{
	(void)ctx;
	(void)connection;
	return strlen(text);
}

static enum redrive_status read_pem(const char *file, char **out, struct rdv_error *error)
{
	if (!file)
		return REDRIVE_OK;
	FILE *f = fopen(file, "re");
	if (!f)
		return rdv_error_errno(error, errno, "'%s'", file);
	*out = calloc(1, 1 << 20);
	size_t n = *out ? fread(*out, 1, (1 << 20) - 1, f) : 0;
	fclose(f);
	return n ? REDRIVE_OK : rdv_error_set(error, REDRIVE_REFUSED, "'%s' is empty", file);
}

/* ---- start and stop ---- */

/* Half of the descriptors at most: the journal, the desk and the handlers need some, too. */
static unsigned most_connections(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 2 > CONNECTIONS_MAX)
		return CONNECTIONS_MAX;
	return (unsigned)(limit.rlim_cur / 2);
}

static enum redrive_status start_daemon(struct rdv_api *api, struct rdv_error *error)
{
	unsigned flags =
		MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET;
	if (api->cert)
		flags |= MHD_USE_TLS;
	struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, api->cert},
				       {MHD_OPTION_HTTPS_MEM_KEY, 0, api->key},
				       {MHD_OPTION_END, 0, NULL}};
	struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
	/* MHD's limit lies above ours, so that there is always room to accept one more before the longest idle one
	 * goes. */
	api->daemon =
		MHD_start_daemon(flags, 0, NULL, NULL, on_request, api, MHD_OPTION_THREAD_POOL_SIZE, POOL_THREADS,
				 MHD_OPTION_CONNECTION_LIMIT, (api->connections_max + 64) * POOL_THREADS,
				 MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				 (size_t)(api->head_max + POOL_SPARE), MHD_OPTION_NOTIFY_COMPLETED, on_completed, api,
				 MHD_OPTION_NOTIFY_CONNECTION, on_connection, api, MHD_OPTION_UNESCAPE_CALLBACK,
				 keep_escapes, NULL, MHD_OPTION_ARRAY, api->cert ? tls : plain, MHD_OPTION_END);
	if (!api->daemon)
		return rdv_error_set(error, REDRIVE_IO, "cannot serve HTTP: %s",
				     errno ? strerror(errno) : "the certificate or key was not accepted");
	return rdv_listener_start(&api->listener, api->daemon, error);
}

static void init(struct rdv_api *api, const struct rdv_api_options *options)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&api->tick, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_init(&api->mutex, NULL);
	pthread_rwlock_init(&api->access, NULL);
	rdv_workers_init(api);
	api->listener.fd = api->listener.stop = -1;
	api->engine = options->engine;
	api->desk = options->desk;
	api->head_max = options->head_max;
	api->connections_max = most_connections();
}

static enum redrive_status load(struct rdv_api *api, const struct rdv_api_options *options, struct rdv_error *error)
{
	struct rdv_api_change *first;
	enum redrive_status status = rdv_api_load(options, &first, error);
	if (status != REDRIVE_OK)
		return status;
	rdv_api_commit(api, first);
	status = rdv_api_copy_hosts(api, options, error);
	if (status == REDRIVE_OK)
		status = read_pem(options->cert_file, &api->cert, error);
	return status == REDRIVE_OK ? read_pem(options->key_file, &api->key, error) : status;
}

enum redrive_status rdv_api_start(const struct rdv_api_options *options, struct rdv_api **out, struct rdv_error *error)
{
	struct rdv_api *api = calloc(1, sizeof *api);
	if (!api)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "out of memory");
	init(api, options);
	enum redrive_status status = load(api, options, error);
	if (status == REDRIVE_OK)
		status = rdv_sleep_start(api, error);
	if (status == REDRIVE_OK)
		status = rdv_workers_start(api, error);
	if (status == REDRIVE_OK)
		status = rdv_listener_open(&api->listener, options, error);
	errno = 0;
	if (status == REDRIVE_OK)
		status = start_daemon(api, error);
	if (status == REDRIVE_OK)
		*out = api;
	else
		rdv_api_stop(api);
	return status;
}

uint16_t rdv_api_port(const struct rdv_api *api)
{
	return api->listener.port;
}

void rdv_api_stop(struct rdv_api *api)
{
	if (!api)
		return;
	rdv_listener_stop(&api->listener);
	rdv_workers_stop(api);
	rdv_sleep_stop(api);
	if (api->daemon)
		MHD_stop_daemon(api->daemon);
	rdv_tokens_done(&api->tokens);
	rdv_api_free_hosts(api);
	pthread_rwlock_destroy(&api->access);
	pthread_mutex_destroy(&api->mutex);
	pthread_cond_destroy(&api->tick);
	rdv_workers_done(api);
	if (api->key)
		explicit_bzero(api->key, strlen(api->key));
	free(api->key);
	free(api->cert);
	free(api);
}
