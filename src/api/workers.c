/* workers.c - operations that may take long run here, so that no connection waits for another one's work.
 *
 * libmicrohttpd's threads each serve many connections. Whatever waits for the disk, the core thread or a database (the
 * slow and long ones of the table) is done by one of a few workers while its connection is suspended; the worker queues
 * the answer and resumes the connection, whose thread sends it. What waits here is bounded by the number of
 * connections, since a connection has one request at a time. Operations that may take seconds have only some of the
 * workers, so that others, like pausing a route or ending a replay, need not wait for them; quick ones and publishing
 * never do. A large batch is only parsed here: publishing it does not wait and goes on in the connection's thread. */
#include "api.h"

void rdv_workers_init(struct rdv_api *api)
{
	struct rdv_workers *w = &api->workers;
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->work, NULL);
	w->end = &w->first;
	w->stopping = true; /* until they have been started */
}

void rdv_workers_done(struct rdv_api *api)
{
	pthread_cond_destroy(&api->workers.work);
	pthread_mutex_destroy(&api->workers.mutex);
}

/* Under the mutex: takes out the first one that may run now. NULL: none. */
static struct rdv_exchange *next(struct rdv_workers *w)
{
	struct rdv_exchange **at = &w->first, *x;
	while (*at && (*at)->takes_long && w->long_running == RDV_WORKERS_LONG)
		at = &(*at)->next_work;
	x = *at;
	if (!x)
		return NULL;
	*at = x->next_work;
	if (!*at)
		w->end = at;
	w->long_running += x->takes_long;
	return x;
}

/* Under the mutex; waits. NULL: it is time to end; what is left then belongs to the workers that are busy with such. */
static struct rdv_exchange *take(struct rdv_workers *w)
{
	struct rdv_exchange *x;
	while (!(x = next(w)) && !w->stopping)
		pthread_cond_wait(&w->work, &w->mutex);
	return x;
}

static void run_one(struct rdv_exchange *x)
{
	x->on_worker = true;
	x->op->run(x);
	x->on_worker = false;
	int64_t ms = x->sleep_ms;
	x->sleep_ms = 0;
	x->ran = ms == 0 && !x->again;
	x->again = false;
	if (ms)
		rdv_sleep(x, ms); /* not earlier: whoever wakes it lets another worker run it */
	else
		rdv_exchange_resume(x); /* it may be freed from here on */
}

static void *run(void *arg)
{
	struct rdv_workers *w = arg;
	struct rdv_exchange *x;
	pthread_setname_np(pthread_self(), "rdv-api-worker");
	pthread_mutex_lock(&w->mutex);
	while ((x = take(w))) {
		bool was_long = x->takes_long;
		pthread_mutex_unlock(&w->mutex);
		run_one(x);
		pthread_mutex_lock(&w->mutex);
		w->long_running -= was_long;
	}
	pthread_mutex_unlock(&w->mutex);
	return NULL;
}

enum redrive_status rdv_workers_start(struct rdv_api *api, struct rdv_error *error)
{
	struct rdv_workers *w = &api->workers;
	w->stopping = false;
	while (w->started < RDV_WORKERS) {
		int failed = pthread_create(&w->threads[w->started], NULL, run, w);
		if (failed)
			return rdv_error_errno(error, failed, "start a worker of the API");
		w->started++;
	}
	return REDRIVE_OK;
}

void rdv_workers_stop(struct rdv_api *api)
{
	struct rdv_workers *w = &api->workers;
	pthread_mutex_lock(&w->mutex);
	w->stopping = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->mutex);
	while (w->started)
		pthread_join(w->threads[--w->started], NULL);
}

bool rdv_workers_add(struct rdv_api *api, struct rdv_exchange *x, bool takes_long)
{
	struct rdv_workers *w = &api->workers;
	pthread_mutex_lock(&w->mutex);
	bool taken = !w->stopping;
	if (taken) {
		rdv_exchange_suspend(x);
		x->takes_long = takes_long;
		x->next_work = NULL;
		*w->end = x;
		w->end = &x->next_work;
		pthread_cond_signal(&w->work);
	}
	pthread_mutex_unlock(&w->mutex);
	return taken;
}
