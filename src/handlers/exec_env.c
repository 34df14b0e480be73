/* exec_env.c - the environment of an exec handler's process.
 *
 * The base is our own environment without REDRIVE_* (our token is not the handler's), with the configured
 * variables on top; those have been checked not to be ours, so that a variable that is absent for a message is
 * absent. Values from a message are percent-encoded where they hold what text should not (NUL above all),
 * REDRIVE_HEADERS is JSON: [[name, value], ...], in which a name or value that is no UTF-8 is percent-encoded.
 * The strings lie one behind the other in one buffer; items are offsets until all are there. Fails only for
 * memory. rdv_exec_env_base: when a handler is made; the rest is the pool's thread's. */
#include "exec_pool.h"
#include "../base/text.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define TEXT_LIMIT (8u << 20)
#define PREFIX "REDRIVE_"

static const char *const ours[] = {"MESSAGE_ID", "ROUTE",           "TOPIC",        "PARTITION",       "OFFSET",
				   "KEY",        "ATTEMPT",         "EPOCH",        "FIRST_FAILED_AT", "REPLAY",
				   "NULL",       "IDEMPOTENCY_KEY", "CONTENT_TYPE", "TRACEPARENT",     "HEADERS"};

bool rdv_exec_env_is_ours(const char *name)
{
	if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
		return false;
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
		if (strcmp(name + sizeof PREFIX - 1, ours[i]) == 0)
			return true;
	return false;
}

/* ---- one variable after the other ---- */

static void begin(struct rdv_exec_env *env, const char *name)
{
	if (env->count + 1 >= env->capacity) {
		size_t capacity = env->capacity ? env->capacity * 2 : 64;
		char **grown = reallocarray(env->items, capacity, sizeof *grown);

		env->failed = env->failed || !grown;
		if (!grown)
			return;
		env->items = grown;
		env->capacity = capacity;
	}
	env->items[env->count] = (char *)env->text.size; /* an offset, until sealed */
	rdv_buffer_text(&env->text, name);
	rdv_buffer_append(&env->text, "=", 1);
}

static void end(struct rdv_exec_env *env)
{
	rdv_buffer_append(&env->text, "", 1);
	env->count += !env->failed;
}

static void add(struct rdv_exec_env *env, const char *name, struct rdv_slice value)
{
	begin(env, name);
	rdv_percent_encode(&env->text, value);
	end(env);
}

static void add_number(struct rdv_exec_env *env, const char *name, uint64_t n)
{
	begin(env, name);
	rdv_buffer_printf(&env->text, "%" PRIu64, n);
	end(env);
}

/* As it is, but for bytes that are no printable ASCII. */
static void add_as_given(struct rdv_exec_env *env, const char *name, struct rdv_slice value)
{
	if (!value.size)
		return;
	begin(env, name);
	for (size_t i = 0; i < value.size; i++) {
		if (value.data[i] < 0x20 || value.data[i] > 0x7e)
			rdv_percent_encode(&env->text, rdv_slice(value.data + i, 1));
		else
			rdv_buffer_append(&env->text, value.data + i, 1);
	}
	end(env);
}

static json_t *json_text(struct rdv_slice s)
{
	struct rdv_buffer encoded;
	json_t *text;

	if (rdv_utf8_valid(s))
		return json_stringn_nocheck(s.size ? (const char *)s.data : "", s.size);
	rdv_buffer_init(&encoded, TEXT_LIMIT);
	rdv_percent_encode(&encoded, s);
	text = encoded.failed ? NULL : json_stringn_nocheck((const char *)encoded.data, encoded.size);
	rdv_buffer_done(&encoded);
	return text;
}

static int append_json(const char *data, size_t size, void *ctx)
{
	rdv_buffer_append(ctx, data, size);
	return 0;
}

static void add_headers(struct rdv_exec_env *env, struct rdv_slice headers)
{
	json_t *list = json_array();
	uint64_t count;
	struct rdv_reader in = rdv_headers_begin(headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&in, &h)) {
		json_t *pair = json_array();

		if (json_array_append_new(pair, json_text(h.name)) || json_array_append_new(pair, json_text(h.value)))
			env->failed = true;
		if (json_array_append_new(list, pair))
			env->failed = true;
	}
	begin(env, PREFIX "HEADERS");
	if (json_dump_callback(list, append_json, &env->text, JSON_COMPACT))
		env->failed = true;
	end(env);
	json_decref(list);
}

/* ---- the whole ---- */

static void add_call(struct rdv_exec_env *env, const struct rdv_call *call, const struct rdv_body *body)
{
	char id[RDV_MESSAGE_ID_SIZE], time[25];
	struct rdv_slice message_id = rdv_call_message_id(call, id);

	add(env, PREFIX "MESSAGE_ID", message_id);
	add(env, PREFIX "ROUTE", rdv_slice_text(call->route));
	add(env, PREFIX "TOPIC", rdv_slice_text(call->topic));
	add_number(env, PREFIX "PARTITION", call->partition);
	add_number(env, PREFIX "OFFSET", call->offset);
	if (!(body->flags & RDV_BODY_NULL_KEY))
		add(env, PREFIX "KEY", body->key);
	add_number(env, PREFIX "ATTEMPT", call->attempt);
	add_number(env, PREFIX "EPOCH", call->epoch);
	if (call->first_failed_at.ms) {
		rdv_wall_format(call->first_failed_at, time);
		add(env, PREFIX "FIRST_FAILED_AT", rdv_slice_text(time));
	}
	if (call->replay)
		add(env, PREFIX "REPLAY", rdv_slice_text(call->replay));
	if (body->flags & RDV_BODY_TOMBSTONE)
		add(env, PREFIX "NULL", rdv_slice_text("true"));
	add(env, PREFIX "IDEMPOTENCY_KEY", rdv_call_idempotency_key(call, body, message_id));
	add_as_given(env, PREFIX "CONTENT_TYPE", body->content_type);
	add_as_given(env, PREFIX "TRACEPARENT", body->traceparent);
	add_headers(env, body->headers);
}

char **rdv_exec_env_build(struct rdv_exec_env *env, char *const *base, size_t base_count, const struct rdv_call *call,
			  const struct rdv_body *body)
{
	env->text.limit = TEXT_LIMIT;
	rdv_buffer_clear(&env->text);
	env->count = 0;
	env->failed = false;
	add_call(env, call, body);
	if (env->failed || env->text.failed)
		return NULL;
	if (env->capacity < env->count + base_count + 1) {
		char **grown = reallocarray(env->items, env->count + base_count + 1, sizeof *grown);

		if (!grown)
			return NULL;
		env->items = grown;
		env->capacity = env->count + base_count + 1;
	}
	for (size_t i = 0; i < env->count; i++)
		env->items[i] = (char *)env->text.data + (size_t)env->items[i];
	memcpy(env->items + env->count, base, base_count * sizeof *base);
	env->items[env->count + base_count] = NULL;
	return env->items;
}

void rdv_exec_env_done(struct rdv_exec_env *env)
{
	rdv_buffer_done(&env->text);
	free(env->items);
	env->items = NULL;
}

/* ---- the base ---- */

static bool is_hidden(const char *item, const struct rdv_pair *pairs, size_t pair_count)
{
	size_t length = strcspn(item, "=");

	if (strncmp(item, PREFIX, sizeof PREFIX - 1) == 0)
		return true;
	for (size_t i = 0; i < pair_count; i++)
		if (strlen(pairs[i].name) == length && memcmp(pairs[i].name, item, length) == 0)
			return true;
	return false;
}

char **rdv_exec_env_base(char *const *inherited, const struct rdv_pair *pairs, size_t pair_count, size_t *count)
{
	size_t all = 0, n = 0;
	char **items;

	while (inherited[all])
		all++;
	items = calloc(all + pair_count + 1, sizeof *items);
	if (!items)
		return NULL;
	for (size_t i = 0; i < all; i++) {
		if (is_hidden(inherited[i], pairs, pair_count))
			continue;
		items[n] = strdup(inherited[i]);
		if (!items[n++])
			goto no_memory;
	}
	for (size_t i = 0; i < pair_count; i++) {
		if (asprintf(&items[n], "%s=%s", pairs[i].name, pairs[i].value) < 0) {
			items[n] = NULL;
			goto no_memory;
		}
		n++;
	}
	*count = n;
	return items;
no_memory:
	rdv_exec_env_free(items);
	return NULL;
}

void rdv_exec_env_free(char **items)
{
	for (char **i = items; i && *i; i++)
		free(*i);
	free(items);
}
