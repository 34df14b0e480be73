/* exec_run.c - one process: started with a message on standard input, watched, ended in time, its outcome told.
 *
 *	start -> running -> exited -> closed (all handles) -> completed
 *	           | timeout: TERM to the group, after kill_after KILL
 *	           | cut: the same, with a second at most
 *
 * posix_spawn starts it: that shares memory until exec, so its cost does not grow with ours, and closes every other
 *descriptor in the child, whoever forgot to mark it. The process leads its own group. Its end is seen by a pidfd, so no
 *SIGCHLD handler is needed and nothing is reaped but what we started. Standard input is a pipe that is written as the
 *process reads; when it does not, or ends, the rest is dropped. Standard output is discarded; of standard error the
 *tail is kept. The process's end ends the run: descendants that keep the pipes open are not waited for; after a timeout
 *they are killed.
 *
 * What always holds: the call is completed once, after the process was reaped; a run is freed when its last handle has
 *been closed. Fails to start: completed with RDV_TRANSPORT_OTHER and the reason. The pool's thread. */
#include "answer_text.h"
#include "exec_pool.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
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
	pid_t pid;
	int pidfd, in, err; /* -1 = closed */
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
	h->base.sink.complete(h->base.sink.ctx, call);
}

/* The last handle is closed: nothing refers to the run any more. */
static void on_closed(uv_handle_t *handle)
{
	struct rdv_exec_run *run = handle->data;
	struct rdv_exec *h = run->handler;
	struct rdv_call *call = run->call;

	if (--run->open_handles)
		return;
	close_fd(&run->pidfd);
	close_fd(&run->in);
	close_fd(&run->err);
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
		ssize_t n = read(run->err, bytes, sizeof bytes);

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
		ssize_t n = write(run->in, run->body.data + run->written, run->body.size - run->written);

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
	close_fd(&run->in);
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
	if (kill(-run->pid, number) && errno == ESRCH)
		kill(run->pid, number);
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

	if (waitid(P_PID, (id_t)run->pid, &info, WEXITED | WNOHANG) || !info.si_pid)
		return; /* not yet */
	if (run->timed_out || run->cut)
		kill(-run->pid, SIGKILL); /* what is left of its group */
	read_error(run, READS_AT_EXIT);
	set_outcome(run, &info);
	close_handles(run);
}

/* ---- the start ---- */

/* A pipe whose ends are close-on-exec, above the standard descriptors, and not blocking at our end. */
static int make_pipe(int ends[2], int ours)
{
	if (pipe2(ends, O_CLOEXEC))
		return errno;
	for (int i = 0; i < 2; i++) {
		int fd = ends[i] > 2 ? ends[i] : fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
		int failed = errno;

		if (fd < 0) {
			close_fd(&ends[0]);
			close_fd(&ends[1]);
			return failed;
		}
		if (fd != ends[i])
			close(ends[i]);
		ends[i] = fd;
	}
	fcntl(ends[ours], F_SETFL, O_NONBLOCK);
	return 0;
}

static int set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int failed;

	sigemptyset(&none);
	sigfillset(&all);
	failed = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	failed = failed ? failed : posix_spawnattr_setpgroup(attr, 0);
	failed = failed ? failed : posix_spawnattr_setsigmask(attr, &none);
	return failed ? failed : posix_spawnattr_setsigdefault(attr, &all);
}

static int set_actions(posix_spawn_file_actions_t *actions, const struct rdv_exec *h, int in, int err)
{
	int failed = posix_spawn_file_actions_adddup2(actions, in, STDIN_FILENO);

	failed = failed ? failed : posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	failed = failed ? failed : posix_spawn_file_actions_adddup2(actions, err, STDERR_FILENO);
	failed = failed ? failed : posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
	if (!failed && h->dir)
		failed = posix_spawn_file_actions_addchdir_np(actions, h->dir);
	return failed;
}

static int spawn(struct rdv_exec_run *run, char *const *env, int in, int err)
{
	struct rdv_exec *h = run->handler;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int failed = posix_spawn_file_actions_init(&actions);

	if (failed)
		return failed;
	failed = posix_spawnattr_init(&attr);
	if (failed)
		goto no_attr;
	failed = set_attributes(&attr);
	failed = failed ? failed : set_actions(&actions, h, in, err);
	failed = failed ? failed : posix_spawnp(&run->pid, h->command[0], &actions, &attr, h->command, env);
	posix_spawnattr_destroy(&attr);
no_attr:
	posix_spawn_file_actions_destroy(&actions);
	return failed;
}

/* Pipes, process, pidfd. Returns an errno; then nothing is left of it. */
static int start_process(struct rdv_exec_run *run, char *const *env)
{
	int in[2], err[2], failed = make_pipe(in, 1);

	if (failed)
		return failed;
	failed = make_pipe(err, 0);
	if (failed)
		goto no_error_pipe;
	failed = spawn(run, env, in[0], err[1]);
	if (failed)
		goto not_started;
	run->pidfd = pidfd_open(run->pid, 0);
	if (run->pidfd < 0) {
		failed = errno;
		signal_group(run, SIGKILL);
		waitid(P_PID, (id_t)run->pid, &(siginfo_t){0}, WEXITED);
		goto not_started;
	}
	close(in[0]);
	close(err[1]);
	run->in = in[1];
	run->err = err[0];
	return 0;
not_started:
	close_fd(&err[0]);
	close_fd(&err[1]);
no_error_pipe:
	close_fd(&in[0]);
	close_fd(&in[1]);
	return failed;
}

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
	init_watch(run, &run->exit_watch, run->pidfd, UV_READABLE, on_exit_seen);
	init_watch(run, &run->err_watch, run->err, UV_READABLE, on_error_output);
	uv_timer_init(&h->pool->loop, &run->timer);
	run->timer.data = run;
	run->open_handles++;
	if (h->timeout_ms > 0)
		uv_timer_start(&run->timer, on_timer, (uint64_t)h->timeout_ms, 0);
	if (write_input(run))
		init_watch(run, &run->in_watch, run->in, UV_WRITABLE, on_input_wanted);
	else
		close_fd(&run->in);
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
	run->pidfd = run->in = run->err = -1;
	failed = start_process(run, env);
	if (failed) {
		free(run);
		not_started(h, call, failed);
		return;
	}
	uv_update_time(&h->pool->loop);
	watch_process(run);
}
