/* exec_pool.h - the parts of the exec handlers: pool (thread, loop), handler (command, base environment), run (one
 * process). Private to exec*.c. Everything that is not marked otherwise belongs to the pool's thread. */
#ifndef RDV_HANDLERS_EXEC_POOL_H
#define RDV_HANDLERS_EXEC_POOL_H
#include <pthread.h>
#include <uv.h>
#include "exec_output.h"
#include "inbox.h"

struct rdv_exec_pool {
	uv_loop_t loop;
	uv_async_t wake;
	pthread_t thread;
	struct rdv_inboxes inboxes;
};

/* The environment of one process: text and pointers, reused. */
struct rdv_exec_env {
	struct rdv_buffer text; /* owns the strings; items are offsets into it until sealed */
	char **items;           /* owns the array */
	size_t count, capacity;
	bool failed;
};

struct rdv_exec {
	struct rdv_served served;   /* first */
	struct rdv_exec_pool *pool; /* borrows */
	char **command;             /* owns, NULL-terminated */
	char *dir;                  /* owns; NULL = ours */
	char **env;                 /* owns, NULL-terminated: ours with the configured on top, without REDRIVE_* */
	size_t env_count;
	int64_t timeout_ms, kill_after_ms;
	struct rdv_exec_run *runs; /* list */
	struct rdv_exec_env scratch;
};

struct rdv_exec_run;

/* ---- exec.c ---- */
void rdv_exec_take(struct rdv_exec *h); /* starts what was submitted, cuts, or frees: then it is gone */

/* ---- exec_spawn.c ---- */
struct rdv_exec_process {
	pid_t pid;
	int pidfd, in, err; /* our ends: of standard input and error, not blocking; -1 = closed */
};
/* Starts the handler's command. Returns 0 or an errno; then nothing is left of it. */
int rdv_exec_spawn(const struct rdv_exec *h, char *const *env, struct rdv_exec_process *out) RDV_MUST_CHECK;

/* ---- exec_run.c ---- */
/* Starts the process of a call; if that fails the call is completed at once. */
void rdv_exec_run_start(struct rdv_exec *h, struct rdv_call *call);
void rdv_exec_run_cut(struct rdv_exec_run *run);
struct rdv_exec_run *rdv_exec_run_next(struct rdv_exec_run *run);

/* ---- exec_env.c ---- */
/* The environment of a call: the handler's, then REDRIVE_*. Valid until the next build. NULL without memory. */
char **rdv_exec_env_build(struct rdv_exec_env *env, char *const *base, size_t base_count, const struct rdv_call *call,
			  const struct rdv_body *body);
void rdv_exec_env_done(struct rdv_exec_env *env);
bool rdv_exec_env_is_ours(const char *name); /* one that a call sets */
/* The inherited one without REDRIVE_*, with `pairs` on top: owned array of owned strings, NULL-terminated. NULL without
 * memory. */
char **rdv_exec_env_base(char *const *inherited, const struct rdv_pair *pairs, size_t pair_count, size_t *count);
void rdv_exec_env_free(char **items);
#endif
