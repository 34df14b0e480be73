/* sleep.c - exchanges that wait for something with a deadline: suspended, woken by an event or by one timer thread.
 * An exchange is in the list exactly while it sleeps; whoever takes it out resumes it. An operation on a worker, whose
 * connection is suspended already, goes to sleep when it has returned. */
#include <stdlib.h>
#include <time.h>
#include "api.h"

static void *run_timer(void *arg)
{
	struct rdv_api *api = arg;
	pthread_mutex_lock(&api->mutex);
	while (!api->stopping || api->sleepers) {
		int64_t now = rdv_mono_now().ms, next = now + 1000;
		for (struct rdv_sleeper **at = &api->sleepers; *at;) {
			struct rdv_sleeper *s = *at;
			if (!api->stopping && s->deadline_ms > now) {
				next = s->deadline_ms < next ? s->deadline_ms : next;
				at = &s->next;
				continue;
			}
			*at = s->next;
			rdv_exchange_resume(s->exchange);
			free(s);
		}
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		int64_t wait = next - now > 0 ? next - now : 1;
		until.tv_sec += wait / 1000;
		until.tv_nsec += wait % 1000 * 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (!api->stopping)
			pthread_cond_timedwait(&api->tick, &api->mutex, &until);
	}
	pthread_mutex_unlock(&api->mutex);
	return NULL;
}

enum redrive_status rdv_sleep_start(struct rdv_api *api, struct rdv_error *error)
{
	int failed = pthread_create(&api->timer, NULL, run_timer, api);
	if (failed)
		return rdv_error_errno(error, failed, "start the API's timer");
	api->timer_started = true;
	return REDRIVE_OK;
}

void rdv_sleep_stop(struct rdv_api *api)
{
	pthread_mutex_lock(&api->mutex);
	api->stopping = true;
	pthread_cond_signal(&api->tick);
	pthread_mutex_unlock(&api->mutex);
	if (api->timer_started)
		pthread_join(api->timer, NULL);
}

void rdv_sleep(struct rdv_exchange *x, int64_t ms)
{
	struct rdv_api *api = x->api;
	if (x->on_worker) {
		x->sleep_ms = ms > 0 ? ms : 1;
		return;
	}
	struct rdv_sleeper *s = malloc(sizeof *s);
	if (!s) {
		rdv_reply_status(x, REDRIVE_NO_MEMORY, NULL);
		if (x->suspended)
			rdv_exchange_resume(x);
		return;
	}
	pthread_mutex_lock(&api->mutex);
	if (!x->suspended)
		rdv_exchange_suspend(x);
	if (api->stopping) {
		rdv_exchange_resume(x);
		free(s);
	} else {
		*s = (struct rdv_sleeper){api->sleepers, x, rdv_ms_add(rdv_mono_now().ms, ms)};
		api->sleepers = s;
		pthread_cond_signal(&api->tick);
	}
	pthread_mutex_unlock(&api->mutex);
}

bool rdv_sleep_wake(struct rdv_api *api, struct rdv_exchange *x)
{
	bool found = false;
	pthread_mutex_lock(&api->mutex);
	for (struct rdv_sleeper **at = &api->sleepers; *at && !found; at = &(*at)->next) {
		if ((*at)->exchange != x)
			continue;
		struct rdv_sleeper *s = *at;
		*at = s->next;
		rdv_exchange_resume(x);
		free(s);
		found = true;
		break;
	}
	pthread_mutex_unlock(&api->mutex);
	return found;
}
