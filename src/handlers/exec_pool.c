/* exec_pool.c - the thread of all exec handlers: a libuv loop with an inbox.
 *
 * Other threads put calls, cuts and frees into a handler's inbox under the mutex and wake the loop. The thread
 * takes all inboxes at once and lets exec.c act on them. All signals are blocked in it, so that a pipe without
 * a reader gives EPIPE and the process's signals stay with its main thread; the processes it starts get an
 * empty mask. What always holds: a handler with a non-empty inbox is on the dirty list. Any thread: new, free,
 * touch (under the mutex). */
#include "exec_pool.h"
#include <assert.h>
#include <signal.h>
#include <stdlib.h>

/* Whoever started us may have ignored SIGCHLD; then the kernel would throw exit statuses away. */
static void want_exit_statuses(void)
{
	struct sigaction action;

	if (!sigaction(SIGCHLD, NULL, &action) && (action.sa_handler == SIG_IGN || action.sa_flags & SA_NOCLDWAIT)) {
		action.sa_flags &= ~SA_NOCLDWAIT;
		if (action.sa_handler == SIG_IGN)
			action.sa_handler = SIG_DFL;
		sigaction(SIGCHLD, &action, NULL);
	}
}

static void take(struct rdv_exec *h)
{
	h->taken = h->inbox;
	h->inbox = NULL;
	h->inbox_end = &h->inbox;
	h->cut = h->cut_wanted;
	h->freed = h->free_wanted;
	h->listed = false;
	h->next_taken = h->next_dirty;
}

static void on_wake(uv_async_t *wake)
{
	struct rdv_exec_pool *p = wake->data;
	struct rdv_exec *h, *next;
	bool stopping;

	pthread_mutex_lock(&p->mutex);
	h = p->dirty;
	p->dirty = NULL;
	stopping = p->stopping;
	for (struct rdv_exec *i = h; i; i = i->next_taken)
		take(i);
	pthread_mutex_unlock(&p->mutex);
	for (; h; h = next) {
		next = h->next_taken;
		rdv_exec_take(h);
	}
	if (stopping)
		uv_close((uv_handle_t *)wake, NULL);
}

static void *loop(void *arg)
{
	struct rdv_exec_pool *p = arg;

	uv_run(&p->loop, UV_RUN_DEFAULT); /* until the last handle is closed */
	return NULL;
}

void rdv_exec_pool_touch(struct rdv_exec_pool *p, struct rdv_exec *h)
{
	if (!h->listed) {
		h->listed = true;
		h->next_dirty = p->dirty;
		p->dirty = h;
	}
	uv_async_send(&p->wake);
}

enum redrive_status rdv_exec_pool_new(struct rdv_exec_pool **out, struct rdv_error *error)
{
	struct rdv_exec_pool *p = calloc(1, sizeof *p);
	sigset_t all, before;
	int failed;

	if (!p || uv_loop_init(&p->loop)) {
		free(p);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "exec: no loop");
	}
	failed = uv_async_init(&p->loop, &p->wake, on_wake);
	if (failed)
		goto no_wake;
	p->wake.data = p;
	want_exit_statuses();
	pthread_mutex_init(&p->mutex, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&p->thread, NULL, loop, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		goto no_thread;
	*out = p;
	return REDRIVE_OK;
no_thread:
	pthread_mutex_destroy(&p->mutex);
	uv_close((uv_handle_t *)&p->wake, NULL);
	uv_run(&p->loop, UV_RUN_DEFAULT);
no_wake:
	uv_loop_close(&p->loop);
	free(p);
	return rdv_error_set(error, REDRIVE_IO, "exec: cannot start its thread");
}

void rdv_exec_pool_free(struct rdv_exec_pool *p)
{
	int busy;

	if (!p)
		return;
	pthread_mutex_lock(&p->mutex);
	p->stopping = true;
	uv_async_send(&p->wake);
	pthread_mutex_unlock(&p->mutex);
	pthread_join(p->thread, NULL);
	busy = uv_loop_close(&p->loop);
	assert(!busy && !p->dirty);
	pthread_mutex_destroy(&p->mutex);
	free(p);
}
