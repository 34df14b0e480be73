/* exec_run.c - one process: started with a message on standard input, watched, ended in time, its outcome told.
 *
 *	start -> running -> exited -> closed (all handles) -> completed
 *	           | timeout: TERM to the group, after kill_after KILL
 *	           | cut: the same, with a second at most
 *
 * exec_spawn.c starts it. Its end is seen by a pidfd, so no SIGCHLD handler is needed and nothing is reaped but
 * what we started. Standard input is a pipe that is written as the process reads; when it does not, or ends,
 * the rest is dropped. Standard output is discarded; of standard error the tail is kept. The process's end ends
 * the run: descendants that keep the pipes open are not waited for; after a timeout they are killed.
 *
 * What always holds: the call is completed once, after the process was reaped; a run is freed when its last
 * handle has been closed. Fails to start: completed with RDV_TRANSPORT_OTHER and the reason. The pool's thread. */
#include "answer_text.h"
#include "exec_pool.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_SIZE 65536
#define READS_AT_EXIT 64 /* of what lies in the pipe, so that a descendant that goes on writing holds up nobody */
#define CUT_GRACE_MS 1000

struct rdv_exec_run {
	struct rdv_exec *handler;
	struct rdv_exec_run *next, *previous;
	struct rdv_call *call; /* owns */
	struct rdv_slice body; /* borrows from the call */
	size_t written;
	struct rdv_exec_process process;
	uv_poll_t exit_watch, in_watch, err_watch;
	uv_timer_t timer;
	int open_handles;
	bool timed_out, cut;
	int64_t start_us;
	struct rdv_exec_tail tail;
};

/* ---- the end ---- */

static void link_run(struct rdv_exec *h, struct rdv_exec_run *run)
{
	run->next = h->runs;
	if (run->next)
		run->next->previous = run;
	h->runs = run;
}

static void unlink_run(struct rdv_exec *h, struct rdv_exec_run *run)
{
	*(run->previous ? &run->previous->next : &h->runs) = run->next;
	if (run->next)
		run->next->previous = run->previous;
}

struct rdv_exec_run *rdv_exec_run_next(struct rdv_exec_run *run)
{
	return run->next;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void complete(struct rdv_exec *h, struct rdv_call *call)
{
	call->next = NULL;
	h->served.base.sink.complete(h->served.base.sink.ctx, call);
}

/* The last handle is closed: nothing refers to the run any more. */
static void on_closed(uv_handle_t *handle)
{
	struct rdv_exec_run *run = handle->data;
	struct rdv_exec *h = run->handler;
	struct rdv_call *call = run->call;

	if (--run->open_handles)
		return;
	close_fd(&run->process.pidfd);
	close_fd(&run->process.in);
	close_fd(&run->process.err);
	unlink_run(h, run);
	free(run);
	complete(h, call);
}

static void close_handles(struct rdv_exec_run *run)
{
	uv_handle_t *handles[] = {(uv_handle_t *)&run->exit_watch, (uv_handle_t *)&run->in_watch,
				  (uv_handle_t *)&run->err_watch, (uv_handle_t *)&run->timer};

	for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
		if (handles[i]->data && !uv_is_closing(handles[i]))
			uv_close(handles[i], on_closed);
}

static void set_outcome(struct rdv_exec_run *run, const siginfo_t *info)
{
	struct rdv_answer answer = {.transport = RDV_TRANSPORT_ANSWER, .exit_code = -1};
	char code[32] = "";
	bool failed = true;

	rdv_exec_output(rdv_exec_tail_slice(&run->tail), &answer.failure);
	if (run->cut) {
		answer.transport = RDV_TRANSPORT_SHUTDOWN;
	} else if (run->timed_out) {
		answer.transport = RDV_TRANSPORT_TIMEOUT;
	} else if (!info->si_pid) {
		answer.transport = RDV_TRANSPORT_OTHER;
		answer.failure.text = rdv_slice_text("somebody else has taken the process's exit status");
	} else if (info->si_code == CLD_EXITED) {
		answer.exit_code = info->si_status;
		failed = info->si_status != 0;
	} else {
		answer.transport = RDV_TRANSPORT_SIGNAL;
		snprintf(code, sizeof code, "signal %d", info->si_status);
		answer.failure.code = rdv_slice_text(code);
	}
	if (!failed)
		answer.failure = (struct rdv_failure){0};
	answer.took_ms = (rdv_mono_now_us() - run->start_us) / 1000;
	rdv_call_set_answer(run->call, &answer);
}

/* ---- pipes ---- */

/* Reads what is there; false when nothing more will come. */
static bool read_error(struct rdv_exec_run *run, int reads)
{
	uint8_t bytes[READ_SIZE];

	while (reads--) {
		ssize_t n = read(run->process.err, bytes, sizeof bytes);

		if (n > 0)
			rdv_exec_tail_add(&run->tail, bytes, (size_t)n);
		else
			return n < 0 && (errno == EAGAIN || errno == EINTR);
	}
	return true;
}

static void on_error_output(uv_poll_t *watch, int status, int events)
{
	struct rdv_exec_run *run = watch->data;

	if (status < 0 || !read_error(run, 1))
		uv_poll_stop(watch);
}

/* Writes what fits; false when it is all written or nobody reads it any more. */
static bool write_input(struct rdv_exec_run *run)
{
	while (run->written < run->body.size) {
		ssize_t n = write(run->process.in, run->body.data + run->written, run->body.size - run->written);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		run->written += (size_t)n;
	}
	return false;
}

static void end_input(struct rdv_exec_run *run)
{
	if (run->in_watch.data && !uv_is_closing((uv_handle_t *)&run->in_watch))
		uv_close((uv_handle_t *)&run->in_watch, on_closed);
	close_fd(&run->process.in);
}

static void on_input_wanted(uv_poll_t *watch, int status, int events)
{
	struct rdv_exec_run *run = watch->data;

	if (status < 0 || !write_input(run))
		end_input(run);
}

/* ---- signals and time ---- */

static void signal_group(struct rdv_exec_run *run, int number)
{
	if (kill(-run->process.pid, number) && errno == ESRCH)
		kill(run->process.pid, number);
}

static void on_timer(uv_timer_t *timer)
{
	struct rdv_exec_run *run = timer->data;

	if (run->timed_out || run->cut) {
		signal_group(run, SIGKILL);
		return;
	}
	run->timed_out = true;
	signal_group(run, SIGTERM);
	uv_timer_start(timer, on_timer, (uint64_t)run->handler->kill_after_ms, 0);
}

void rdv_exec_run_cut(struct rdv_exec_run *run)
{
	int64_t grace_ms = run->handler->kill_after_ms < CUT_GRACE_MS ? run->handler->kill_after_ms : CUT_GRACE_MS;

	if (run->cut || run->timed_out || uv_is_closing((uv_handle_t *)&run->timer))
		return;
	run->cut = true;
	signal_group(run, SIGTERM);
	uv_timer_start(&run->timer, on_timer, (uint64_t)grace_ms, 0);
}

static void on_exit_seen(uv_poll_t *watch, int status, int events)
{
	struct rdv_exec_run *run = watch->data;
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)run->process.pid, &info, WEXITED | WNOHANG))
		info.si_pid = 0;
	else if (!info.si_pid)
		return; /* not yet */
	if (run->timed_out || run->cut)
		kill(-run->process.pid, SIGKILL); /* what is left of its group */
	read_error(run, READS_AT_EXIT);
	set_outcome(run, &info);
	close_handles(run);
}

/* ---- the start ---- */

static void init_watch(struct rdv_exec_run *run, uv_poll_t *watch, int fd, int events, uv_poll_cb callback)
{
	int failed = uv_poll_init(&run->handler->pool->loop, watch, fd);

	assert(!failed); /* a fresh descriptor of a kind that can be polled */
	watch->data = run;
	run->open_handles++;
	uv_poll_start(watch, events, callback);
}

static void watch_process(struct rdv_exec_run *run)
{
	struct rdv_exec *h = run->handler;

	link_run(h, run);
	init_watch(run, &run->exit_watch, run->process.pidfd, UV_READABLE, on_exit_seen);
	init_watch(run, &run->err_watch, run->process.err, UV_READABLE, on_error_output);
	uv_timer_init(&h->pool->loop, &run->timer);
	run->timer.data = run;
	run->open_handles++;
	if (h->timeout_ms > 0)
		uv_timer_start(&run->timer, on_timer, (uint64_t)h->timeout_ms, 0);
	if (write_input(run))
		init_watch(run, &run->in_watch, run->process.in, UV_WRITABLE, on_input_wanted);
	else
		close_fd(&run->process.in);
}

static void not_started(struct rdv_exec *h, struct rdv_call *call, int failed)
{
	struct rdv_answer answer = {.transport = RDV_TRANSPORT_OTHER, .exit_code = -1};
	char text[512];

	snprintf(text, sizeof text, "cannot start '%s': %s", h->command[0],
		 strerrordesc_np(failed) ? strerrordesc_np(failed) : "unknown error");
	answer.failure.text = rdv_slice_text(text);
	rdv_call_set_answer(call, &answer);
	complete(h, call);
}

void rdv_exec_run_start(struct rdv_exec *h, struct rdv_call *call)
{
	struct rdv_exec_run *run;
	struct rdv_body body;
	struct rdv_exec_process p;
	char **env;
	int failed;

	if (rdv_body_decode(call->payload, &body)) {
		rdv_call_set_transport(call, RDV_TRANSPORT_OTHER, "the stored message cannot be read");
		complete(h, call);
		return;
	}
	env = rdv_exec_env_build(&h->scratch, h->env, h->env_count, call, &body);
	run = env ? calloc(1, sizeof *run) : NULL;
	if (!run) {
		not_started(h, call, ENOMEM);
		return;
	}
	run->handler = h;
	run->call = call;
	run->body = body.body;
	run->start_us = rdv_mono_now_us();
	failed = rdv_exec_spawn(h, env, &p);
	if (failed) {
		free(run);
		not_started(h, call, failed);
		return;
	}
	run->process = p;
	uv_update_time(&h->pool->loop);
	watch_process(run);
}
