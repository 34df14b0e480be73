/* router.c - from a request line to an operation, and the checks before its body is read. */
#include <stdio.h>
#include <stdlib.h>
#include "../base/quantity.h"
#include "../base/text.h"
#include "api.h"
#include "fields.h"

const struct rdv_operation *rdv_operation_find(const char *method, const char *path, struct rdv_exchange *x,
					       bool *path_known, char allow[64])
{
	*path_known = false;
	allow[0] = '\0';
	for (size_t i = 0; i < rdv_operation_count; i++) {
		struct rdv_slice params[RDV_PATH_PARAMS];
		size_t count;
		const struct rdv_operation *op = &rdv_operations[i];
		if (!rdv_field_path(op->path, path, params, RDV_PATH_PARAMS, &count))
			continue;
		*path_known = true;
		bool head = strcmp(method, "HEAD") == 0 && strcmp(op->method, "GET") == 0;
		if (strcmp(op->method, method) != 0 && !head) {
			size_t used = strlen(allow);
			snprintf(allow + used, 64 - used, "%s%s", used ? ", " : "", op->method);
			continue;
		}
		for (size_t p = 0; p < count; p++)
			x->params[p] = rdv_field_decode(params[p], false, &x->param_sizes[p]);
		return op;
	}
	return NULL;
}

/* ---- query parameters ---- */

struct query_reader {
	struct rdv_exchange *x;
	char bad[128];
	const char *why;
};

static enum MHD_Result take_query(void *ctx, enum MHD_ValueKind kind, const char *key, size_t key_size,
				  const char *value, size_t value_size)
{
	struct query_reader *r = ctx;
	struct rdv_exchange *x = r->x;
	const char *const *known = x->op->query;
	(void)kind;
	while (known && *known && (strlen(*known) != key_size || memcmp(*known, key, key_size) != 0))
		known++;
	rdv_slice_to_text(rdv_slice(key, key_size), r->bad, sizeof r->bad);
	if (!known || !*known) {
		r->why = "unknown parameter";
		return MHD_NO;
	}
	for (size_t i = 0; i < x->query_count; i++)
		if (strcmp(x->query[i].name, *known) == 0)
			r->why = "given twice";
	struct rdv_query_param *p = &x->query[x->query_count];
	if (r->why || x->query_count == RDV_QUERY_PARAMS)
		return MHD_NO;
	p->name = *known;
	p->value = rdv_field_decode(rdv_slice(value, value ? value_size : 0), true, &p->size);
	if (!p->value) {
		r->why = "a broken %-escape";
		return MHD_NO;
	}
	x->query_count++;
	return MHD_YES;
}

static bool read_query(struct rdv_exchange *x)
{
	struct query_reader r = {.x = x};
	MHD_get_connection_values_n(x->connection, MHD_GET_ARGUMENT_KIND, take_query, &r);
	if (!r.why)
		return true;
	for (char *p = r.bad; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
	json_t *errors = json_pack("[{s:s, s:s}]", "pointer", r.bad, "detail", r.why);
	rdv_reply_problem(x, 400, errors, "query parameter '%s': %s", r.bad, r.why);
	return false;
}

const char *rdv_exchange_query(const struct rdv_exchange *x, const char *name)
{
	for (size_t i = 0; i < x->query_count; i++)
		if (strcmp(x->query[i].name, name) == 0)
			return x->query[i].value;
	return NULL;
}

struct rdv_slice rdv_exchange_query_bytes(const struct rdv_exchange *x, const char *name)
{
	for (size_t i = 0; i < x->query_count; i++)
		if (strcmp(x->query[i].name, name) == 0)
			return rdv_slice(x->query[i].value, x->query[i].size);
	return rdv_slice(NULL, 0);
}

bool rdv_exchange_limit(struct rdv_exchange *x, size_t *out)
{
	const char *text = rdv_exchange_query(x, "limit");
	int64_t limit = 50;
	if (text && (rdv_integer_parse(rdv_slice_text(text), &limit) != REDRIVE_OK || limit < 1 || limit > 1000)) {
		json_t *errors = json_pack("[{s:s, s:s}]", "pointer", "limit", "detail", "a number from 1 to 1000");
		rdv_reply_problem(x, 400, errors, "limit must be a number from 1 to 1000");
		return false;
	}
	*out = (size_t)limit;
	return true;
}

/* ---- who may ---- */

const char *rdv_exchange_header(const struct rdv_exchange *x, const char *name)
{
	return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool check_origin(struct rdv_exchange *x)
{
	struct rdv_api *api = x->api;
	const char *host = rdv_exchange_header(x, "Host"), *origin = rdv_exchange_header(x, "Origin");
	const char *site = rdv_exchange_header(x, "Sec-Fetch-Site");
	bool host_good = rdv_host_allowed(host, (const char *const *)api->hosts, api->host_count);
	bool origin_good = !origin || rdv_origin_allowed(origin, (const char *const *)api->hosts, api->host_count);
	bool site_good = !site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
	if (!host_good)
		rdv_reply_problem(x, 403, NULL,
				  "the Host of this request is neither a loopback name nor listed in security.hosts");
	else if (!origin_good || !site_good)
		rdv_reply_problem(x, 403, NULL, "requests from a foreign web page are refused");
	return host_good && origin_good && site_good;
}

/* Who sent it. UNAUTHORIZED: nobody known; NO_MEMORY: known, but a scope that cannot be copied would be no scope. */
static enum redrive_status identify(struct rdv_exchange *x, const char *header)
{
	if (!x->api->tokens_needed) {
		memcpy(x->who.name, "local", sizeof "local");
		x->who.role = RDV_ROLE_ADMIN;
		return REDRIVE_OK;
	}
	if (!header || strncasecmp(header, "Bearer ", 7) != 0)
		return REDRIVE_UNAUTHORIZED;
	const char *text = header + 7 + strspn(header + 7, " ");
	const struct rdv_token *token = rdv_tokens_find(&x->api->tokens, rdv_slice_text(text));
	return token ? rdv_token_copy(token, &x->who) : REDRIVE_UNAUTHORIZED;
}

static bool check_token(struct rdv_exchange *x)
{
	struct rdv_api *api = x->api;
	const char *header = rdv_exchange_header(x, "Authorization");
	pthread_rwlock_rdlock(&api->access);
	x->tokens_used = api->tokens_needed;
	enum redrive_status status = identify(x, header);
	pthread_rwlock_unlock(&api->access);
	bool good = status == REDRIVE_OK;
	if (!good && x->op->role == RDV_ROLE_NONE)
		return true;
	if (status == REDRIVE_NO_MEMORY)
		rdv_reply_status(x, status, NULL);
	else if (!good)
		rdv_reply_problem(x, 401, NULL,
				  header ? "this token is not known"
					 : "send a token: Authorization: Bearer TOKEN (redrive token add makes one)");
	else if (x->who.role < x->op->role)
		rdv_reply_problem(x, 403, NULL, "this needs the role %s; the token '%s' has %s",
				  rdv_role_name(x->op->role), x->who.name, rdv_role_name(x->who.role));
	return good && x->who.role >= x->op->role;
}

bool rdv_exchange_covers(const struct rdv_exchange *x, const char *route)
{
	return rdv_token_covers(&x->who, route);
}

bool rdv_exchange_covers_route(void *x, const char *route)
{
	return rdv_exchange_covers(x, route);
}

/* ---- sizes ---- */

struct framing {
	unsigned lengths, encodings;
};

static enum MHD_Result count_framing(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct framing *f = ctx;
	(void)kind;
	(void)value;
	f->lengths += strcasecmp(name, "Content-Length") == 0;
	f->encodings += strcasecmp(name, "Transfer-Encoding") == 0;
	return MHD_YES;
}

/* Whoever stands in front of us may believe the other one of two lengths, and then a body holds a request. */
static bool check_framing(struct rdv_exchange *x)
{
	struct framing f = {0, 0};
	MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count_framing, &f);
	if (f.lengths + f.encodings <= 1)
		return true;
	x->body_too_large = true; /* where it ends is not known: the connection closes */
	rdv_reply_problem(x, 400, NULL, "one Content-Length or one Transfer-Encoding, not several");
	return false;
}

static bool check_size(struct rdv_exchange *x)
{
	const char *type = rdv_exchange_header(x, "Content-Type"), *length = rdv_exchange_header(x, "Content-Length");
	x->is_batch = x->op->body == RDV_BODY_MESSAGE && type && strncasecmp(type, "application/x-ndjson", 20) == 0;
	x->body_limit = "this operation takes";
	switch (x->op->body) {
	case RDV_BODY_NONE:
		x->body_max = 4096;
		break;
	case RDV_BODY_JSON:
		x->body_max = 8 << 20;
		break;
	default:
		x->body_max = x->is_batch ? x->api->batch_max : x->api->body_max;
		x->body_limit = x->is_batch ? "limits.batch allows" : "limits.body allows";
	}
	rdv_buffer_init(&x->body, x->body_max + 1);
	int64_t size = 0;
	if (length && (rdv_integer_parse(rdv_slice_text(length), &size) != REDRIVE_OK || size < 0)) {
		rdv_reply_problem(x, 400, NULL, "Content-Length is no number");
		return false;
	}
	if ((uint64_t)size > x->body_max) {
		x->body_too_large = true;
		rdv_reply_problem(x, 413, NULL, "the body has %lld bytes; %llu are the most that %s", (long long)size,
				  (unsigned long long)x->body_max, x->body_limit);
		return false;
	}
	return true;
}

/* Each header and query parameter costs libmicrohttpd some memory of the connection besides its text. */
#define FIELD_COST 64u

static bool check_head(struct rdv_exchange *x)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	int fields = MHD_get_connection_values(x->connection, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND, NULL, NULL);
	size_t size = (info ? info->header_size : 0) + (size_t)fields * FIELD_COST;
	if (size <= x->api->head_max)
		return true;
	x->body_too_large = true; /* the connection closes: the body need not be read */
	rdv_reply_problem(
		x, 431, NULL,
		"the request line and headers have %zu bytes (each header and parameter counts %u more); at most "
		"%llu are allowed: send a smaller head, or the message in a batch (application/x-ndjson), or raise "
		"limits.request_head",
		size, FIELD_COST, (unsigned long long)x->api->head_max);
	return false;
}

static bool params_decoded(struct rdv_exchange *x)
{
	size_t wanted = 0;
	for (const char *p = x->op->path; *p; p++)
		wanted += *p == '{';
	for (size_t i = 0; i < wanted; i++)
		if (!x->params[i]) {
			rdv_reply_problem(x, 400, NULL, "the path holds a broken %%-escape");
			return false;
		}
	return true;
}

bool rdv_exchange_check(struct rdv_exchange *x, const char *method, const char *path)
{
	bool known;
	char allow[64];
	if (!check_head(x) || !check_origin(x) || !check_framing(x))
		return false;
	x->op = rdv_operation_find(method, path, x, &known, allow);
	if (!x->op) {
		if (known)
			rdv_reply_problem(x, 405, NULL, "%s is not possible here; possible: %s", method, allow);
		else
			rdv_reply_problem(x, 404, NULL,
					  "there is nothing at this path; GET /openapi.json lists everything");
		return false;
	}
	return check_token(x) && params_decoded(x) && read_query(x) && check_size(x);
}

/* ---- JSON bodies ---- */

json_t *rdv_exchange_json(struct rdv_exchange *x, bool optional)
{
	if (x->body.size == 0 && optional)
		return json_object();
	json_error_t error;
	json_t *value = json_loadb((const char *)x->body.data, x->body.size, JSON_REJECT_DUPLICATES, &error);
	if (!value)
		rdv_reply_problem(x, 400, NULL, "the body is not JSON: %s (line %d, column %d)", error.text, error.line,
				  error.column);
	else if (!json_is_object(value))
		rdv_reply_problem(x, 422, NULL, "the body must be a JSON object");
	else
		return value;
	json_decref(value);
	return NULL;
}

bool rdv_exchange_members(struct rdv_exchange *x, const json_t *object, const char *const *known)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)object, key, value)
	{
		size_t count = 0;
		bool found = false;
		for (; known[count]; count++)
			found = found || strcmp(known[count], key) == 0;
		if (found)
			continue;
		const char *near = rdv_nearest(key, known, count);
		char pointer[128];
		snprintf(pointer, sizeof pointer, "/%.100s", key);
		rdv_reply_field(x, pointer, "unknown member%s%s%s", near ? "; did you mean '" : "", near ? near : "",
				near ? "'?" : "");
		return false;
	}
	return true;
}
