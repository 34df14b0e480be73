/* api.h - the API's own state, shared by the files of this room only. */
#ifndef RDV_API_API_H
#define RDV_API_API_H
#include <pthread.h>
#include "exchange.h"

/* One open TCP connection, for "the longest idle one is closed". */
struct rdv_connection {
	struct rdv_connection *older, *newer; /* by last use */
	int fd;
	unsigned active; /* requests running: never closed by us */
};

/* An exchange that sleeps until something happens or its deadline comes (leases). */
struct rdv_sleeper {
	struct rdv_sleeper *next;
	struct rdv_exchange *exchange;
	int64_t deadline_ms; /* mono */
};

struct rdv_listener {
	int fd, stop; /* -1 = none */
	uint16_t port;
	struct MHD_Daemon *daemon; /* borrows */
	pthread_t thread;
	bool started;
};

#define RDV_WORKERS 4u
#define RDV_WORKERS_LONG 2u /* of them, with what may take seconds; fewer than the desk has readers */

/* Threads for operations that may take long, and the exchanges that wait for one. */
struct rdv_workers {
	pthread_mutex_t mutex;
	pthread_cond_t work;
	struct rdv_exchange *first, **end;
	pthread_t threads[RDV_WORKERS];
	unsigned started, long_running;
	bool stopping;
};

struct rdv_api {
	struct MHD_Daemon *daemon;                         /* owns */
	struct rdv_engine *engine;                         /* borrows */
	struct rdv_desk *desk;                             /* borrows */
	_Atomic uint64_t body_max, headers_max, batch_max; /* a reload may change them */
	uint64_t head_max;
	_Atomic uint64_t bodies; /* bytes of bodies that are being taken in; all requests together */
	_Atomic uint64_t bodies_max;
	unsigned connections_max;
	pthread_rwlock_t access; /* tokens: replaced by a reload */
	struct rdv_tokens tokens;
	bool tokens_needed;
	char **hosts; /* owns */
	size_t host_count;
	pthread_mutex_t mutex; /* connections, sleepers */
	struct rdv_connection *oldest, *newest;
	unsigned connection_count;
	struct rdv_sleeper *sleepers;
	struct rdv_workers workers;
	struct rdv_listener listener;
	pthread_cond_t tick;
	pthread_t timer;
	bool timer_started, stopping;
	char *cert, *key; /* owns; PEM */
};

/* access.c */
enum redrive_status rdv_api_copy_hosts(struct rdv_api *api, const struct rdv_api_options *options,
				       struct rdv_error *error) RDV_MUST_CHECK;
void rdv_api_free_hosts(struct rdv_api *api);

/* connections.c */
void rdv_connection_opened(struct rdv_api *api, struct MHD_Connection *connection, void **socket_context);
void rdv_connection_closed(struct rdv_api *api, void **socket_context);
void rdv_connection_used(struct rdv_api *api, struct MHD_Connection *connection, int active);

/* sleep.c: the exchange is suspended and runs again at the deadline or by rdv_sleep_wake, whichever comes first. */
enum redrive_status rdv_sleep_start(struct rdv_api *api, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_sleep_stop(struct rdv_api *api); /* wakes everybody */
void rdv_sleep(struct rdv_exchange *x, int64_t ms);
/* From any thread; false if it does not sleep any more. */
bool rdv_sleep_wake(struct rdv_api *api, struct rdv_exchange *x);

/* listen.c */
enum redrive_status rdv_listener_open(struct rdv_listener *l, const struct rdv_api_options *o,
				      struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_listener_start(struct rdv_listener *l, struct MHD_Daemon *daemon,
				       struct rdv_error *error) RDV_MUST_CHECK;
void rdv_listener_stop(struct rdv_listener *l);

/* workers.c */
void rdv_workers_init(struct rdv_api *api);
void rdv_workers_done(struct rdv_api *api);
enum redrive_status rdv_workers_start(struct rdv_api *api, struct rdv_error *error) RDV_MUST_CHECK;
/* Runs what waits, then ends the threads. */
void rdv_workers_stop(struct rdv_api *api);
/* Suspends the exchange, runs its operation on a worker, resumes it. false: they are stopping, nothing was done. */
bool rdv_workers_add(struct rdv_api *api, struct rdv_exchange *x, bool takes_long);

/* router.c */
const struct rdv_operation *rdv_operation_find(const char *method, const char *path, struct rdv_exchange *x,
					       bool *path_known, char allow[64]);
/* The request's checks before its body: Host, Origin, token, role, query, limits. false: answered. */
bool rdv_exchange_check(struct rdv_exchange *x, const char *method, const char *path);
#endif
