/* exec_spawn.c - a process with two pipes and a pidfd.
 *
 * posix_spawn starts it: that shares our memory until exec, so its cost does not grow with ours, and it can
 * close every other descriptor in the child, whoever forgot to mark it. The process leads its own group, has no
 * signal blocked or ignored, standard output to /dev/null. What always holds: either all of it is there or
 * nothing is left of it. The pool's thread. */
#include "exec_pool.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

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

static int spawn(const struct rdv_exec *h, char *const *env, int in, int err, pid_t *pid)
{
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
	failed = failed ? failed : posix_spawnp(pid, h->command[0], &actions, &attr, h->command, env);
	posix_spawnattr_destroy(&attr);
no_attr:
	posix_spawn_file_actions_destroy(&actions);
	return failed;
}

int rdv_exec_spawn(const struct rdv_exec *h, char *const *env, struct rdv_exec_process *out)
{
	int in[2], err[2], failed = make_pipe(in, 1);

	if (failed)
		return failed;
	failed = make_pipe(err, 0);
	if (failed)
		goto no_error_pipe;
	failed = spawn(h, env, in[0], err[1], &out->pid);
	if (failed)
		goto not_started;
	out->pidfd = pidfd_open(out->pid, 0);
	if (out->pidfd < 0) {
		failed = errno;
		kill(-out->pid, SIGKILL);
		waitid(P_PID, (id_t)out->pid, &(siginfo_t){0}, WEXITED);
		goto not_started;
	}
	close(in[0]);
	close(err[1]);
	out->in = in[1];
	out->err = err[0];
	return 0;
not_started:
	close_fd(&err[0]);
	close_fd(&err[1]);
no_error_pipe:
	close_fd(&in[0]);
	close_fd(&in[1]);
	return failed;
}
