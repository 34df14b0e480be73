/* exec_pool.c - the thread of all exec handlers: a libuv loop with an inbox (inbox.h).
 *
 * The thread takes all inboxes at once and lets exec.c act on them. All signals are blocked in it, so that a pipe
 * without a reader gives EPIPE and the process's signals stay with its main thread; the processes it starts get an
 * empty mask. Any thread: new, free. */
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

static void on_wake(uv_async_t *wake)
{
	struct rdv_exec_pool *p = wake->data;
	struct rdv_served *s, *next;
	bool stopping;

	for (s = rdv_inboxes_take(&p->inboxes, &stopping); s; s = next) {
		next = s->next_taken;
		rdv_exec_take((struct rdv_exec *)s);
	}
	if (stopping)
		uv_close((uv_handle_t *)wake, NULL);
}

static void wake_thread(void *ctx)
{
	uv_async_send(&((struct rdv_exec_pool *)ctx)->wake);
}

static void *loop(void *arg)
{
	struct rdv_exec_pool *p = arg;

	uv_run(&p->loop, UV_RUN_DEFAULT); /* until the last handle is closed */
	return NULL;
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
	rdv_inboxes_init(&p->inboxes, wake_thread, p);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&p->thread, NULL, loop, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		goto no_thread;
	*out = p;
	return REDRIVE_OK;
no_thread:
	rdv_inboxes_done(&p->inboxes);
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
	rdv_inboxes_stop(&p->inboxes);
	pthread_join(p->thread, NULL);
	busy = uv_loop_close(&p->loop);
	assert(!busy && !p->inboxes.dirty);
	rdv_inboxes_done(&p->inboxes);
	free(p);
}
