/* exec.c - the exec handler: options checked and kept, one process per call.
 *
 * Every submitted call is started at once: the route's permits bound how many run. See exec_run.c for a
 * process, exec_env.c for its environment, exec_output.c for what it wrote. A freed handler is destroyed by the
 * pool's thread. Any thread: new; submit, cut and free (inbox.h) are the core's; the rest is the pool's thread's. */
#include "exec_pool.h"
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#define KILL_AFTER_MS 5000

static void free_texts(char **texts)
{
	for (char **t = texts; t && *t; t++)
		free(*t);
	free(texts);
}

static void destroy(struct rdv_exec *h)
{
	free_texts(h->command);
	free(h->dir);
	rdv_exec_env_free(h->env);
	rdv_exec_env_done(&h->scratch);
	free(h);
}

static void give_back(struct rdv_exec *h, struct rdv_call *list)
{
	rdv_calls_shut_down(list);
	if (list)
		h->served.base.sink.complete(h->served.base.sink.ctx, list);
}

void rdv_exec_take(struct rdv_exec *h)
{
	struct rdv_call *list = h->served.taken, *next;

	h->served.taken = NULL;
	if (h->served.freed) {
		assert(!h->runs && !list);
		destroy(h);
	} else if (h->served.cut) {
		for (struct rdv_exec_run *run = h->runs; run; run = rdv_exec_run_next(run))
			rdv_exec_run_cut(run);
		give_back(h, list);
	} else {
		for (; list; list = next) {
			next = list->next;
			rdv_exec_run_start(h, list);
		}
	}
}

static const struct rdv_handler_ops exec_ops = {"exec", rdv_served_submit, rdv_served_cut, rdv_served_free};

/* ---- options ---- */

static enum redrive_status check(const struct rdv_exec_options *o, struct rdv_error *error)
{
	if (o->command_count < 1 || !o->command[0][0])
		return rdv_error_set(error, REDRIVE_INVALID, "command is empty");
	for (size_t i = 0; i < o->env_count; i++) {
		const char *name = o->env[i].name;

		if (!name[0] || strchr(name, '='))
			return rdv_error_set(error, REDRIVE_INVALID, "env: '%s' is no name of a variable", name);
		if (rdv_exec_env_is_ours(name))
			return rdv_error_set(error, REDRIVE_INVALID, "env: Redrive sets %s itself", name);
	}
	if (o->dir && access(o->dir, X_OK))
		return rdv_error_set(error, REDRIVE_INVALID, "directory '%s' cannot be entered", o->dir);
	return REDRIVE_OK;
}

static bool copy_options(struct rdv_exec *h, const struct rdv_exec_options *o)
{
	h->timeout_ms = o->timeout_ms;
	h->kill_after_ms = o->kill_after_ms > 0 ? o->kill_after_ms : KILL_AFTER_MS;
	h->command = calloc(o->command_count + 1, sizeof *h->command);
	for (size_t i = 0; h->command && i < o->command_count; i++) {
		h->command[i] = strdup(o->command[i]);
		if (!h->command[i])
			return false;
	}
	h->dir = o->dir ? strdup(o->dir) : NULL;
	h->env = rdv_exec_env_base(environ, o->env, o->env_count, &h->env_count);
	return h->command && h->env && (h->dir || !o->dir);
}

enum redrive_status rdv_exec_new(struct rdv_exec_pool *pool, const struct rdv_exec_options *options,
				 struct rdv_sink sink, struct rdv_handler **out, struct rdv_error *error)
{
	enum redrive_status status = check(options, error);
	struct rdv_exec *h;

	if (status)
		return status;
	h = calloc(1, sizeof *h);
	if (!h || !copy_options(h, options)) {
		if (h)
			destroy(h);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "no memory for an exec handler");
	}
	rdv_served_init(&h->served, &pool->inboxes, &exec_ops, sink);
	h->pool = pool;
	*out = &h->served.base;
	return REDRIVE_OK;
}
