/* access.c - who may, and how much: what a reload of the API changes.
 *
 * In two halves, so that a reload is whole or nothing: load reads the tokens file and can be refused; commit puts its
 * content and the new limits into force and cannot fail. The names of hosts stay what they were at the start. Requests
 * look at the tokens under `access`; limits are single numbers that are read once per request. Any thread, one reload
 * at a time. */
#include <stdlib.h>
#include "api.h"

#define BODIES_MIN ((uint64_t)128 << 20)

struct rdv_api_change {
	struct rdv_tokens tokens;
	bool tokens_needed;
	uint64_t body_max, headers_max, batch_max;
};

enum redrive_status rdv_api_load(const struct rdv_api_options *o, struct rdv_api_change **out, struct rdv_error *error)
{
	struct rdv_api_change *c = calloc(1, sizeof *c);
	if (!c)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "out of memory");
	c->tokens_needed = o->tokens_file != NULL;
	c->body_max = o->body_max;
	c->headers_max = o->headers_max;
	c->batch_max = o->batch_max;
	enum redrive_status status = o->tokens_file ? rdv_tokens_load(o->tokens_file, &c->tokens, error) : REDRIVE_OK;
	if (status == REDRIVE_OK)
		*out = c;
	else
		rdv_api_forget(c);
	return status;
}

void rdv_api_commit(struct rdv_api *api, struct rdv_api_change *c)
{
	pthread_rwlock_wrlock(&api->access);
	struct rdv_tokens old = api->tokens;
	api->tokens = c->tokens;
	api->tokens_needed = c->tokens_needed;
	pthread_rwlock_unlock(&api->access);
	api->body_max = c->body_max;
	api->headers_max = c->headers_max;
	api->batch_max = c->batch_max;
	api->bodies_max = 4 * c->batch_max > BODIES_MIN ? 4 * c->batch_max : BODIES_MIN;
	c->tokens = old;
	rdv_api_forget(c);
}

void rdv_api_forget(struct rdv_api_change *c)
{
	if (!c)
		return;
	rdv_tokens_done(&c->tokens);
	free(c);
}

/* ---- hosts ---- */

enum redrive_status rdv_api_copy_hosts(struct rdv_api *api, const struct rdv_api_options *o, struct rdv_error *error)
{
	api->hosts = calloc(o->host_count + 1, sizeof *api->hosts);
	for (size_t i = 0; api->hosts && i < o->host_count; i++)
		if ((api->hosts[i] = strdup(o->hosts[i])))
			api->host_count++;
	return api->hosts && api->host_count == o->host_count
		       ? REDRIVE_OK
		       : rdv_error_set(error, REDRIVE_NO_MEMORY, "out of memory");
}

void rdv_api_free_hosts(struct rdv_api *api)
{
	for (size_t i = 0; i < api->host_count; i++)
		free(api->hosts[i]);
	free(api->hosts);
}
