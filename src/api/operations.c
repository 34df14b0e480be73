/* operations.c - the one table of operations: the router, OpenAPI and the API reference are made from it. */
#include <stdlib.h>
#include "api.h"
#include "resources/resources.h"

static const char *const list_query[] = {"limit", "cursor", NULL};
static const char *const messages_query[] = {"key", "route", "limit", "cursor", NULL};
static const char *const letters_query[] = {"q", "from", "to", "sort", "limit", "cursor", NULL};
static const char *const plan_letters_query[] = {"state", "limit", "cursor", NULL};

#define NONE RDV_ROLE_NONE
#define VIEWER RDV_ROLE_VIEWER
#define READER RDV_ROLE_READER
#define OPERATOR RDV_ROLE_OPERATOR
#define NO_BODY RDV_BODY_NONE
#define JSON_BODY RDV_BODY_JSON
#define QUICK RDV_PACE_QUICK
#define SLOW RDV_PACE_SLOW
#define LONG RDV_PACE_LONG

const struct rdv_operation rdv_operations[] = {
	{"POST", "/v1/topics/{topic}/messages", OPERATOR, RDV_BODY_MESSAGE, QUICK, rdv_resource_publish, NULL,
	 "Publish one message, or a batch as application/x-ndjson; answers when it is durable",
	 "201 the position; 200 a duplicate", "404 413 422 503"},
	{"GET", "/v1/messages/{id}", READER, NO_BODY, SLOW, rdv_resource_message_get, NULL,
	 "Where a message is, by its id or the producer's id", "200 its state on every route", "404"},
	{"GET", "/v1/messages", READER, NO_BODY, LONG, rdv_resource_messages_list, messages_query,
	 "Live messages of a key", "200 a page", "400 404"},
	{"POST", "/v1/messages/{id}/revoke", OPERATOR, JSON_BODY, SLOW, rdv_resource_message_revoke, NULL,
	 "End a live message, on one route or on all: a letter with reason revoked", "200 what it is on each route",
	 "404 409 422"},

	{"GET", "/v1/routes", VIEWER, NO_BODY, SLOW, rdv_resource_routes_list, list_query,
	 "Every route with its account", "200 a page", "400"},
	{"GET", "/v1/routes/{name}", VIEWER, NO_BODY, SLOW, rdv_resource_route_get, NULL, "One route", "200 the route",
	 "404"},
	{"POST", "/v1/routes/{name}/pause", OPERATOR, NO_BODY, SLOW, rdv_resource_route_pause, NULL,
	 "Stop dispatching; survives restarts", "200 the route", "404"},
	{"POST", "/v1/routes/{name}/resume", OPERATOR, NO_BODY, SLOW, rdv_resource_route_resume, NULL,
	 "Dispatch again; ends a storm's hold", "200 the route", "404"},
	{"POST", "/v1/routes/{name}/keys/{key}/release", OPERATOR, NO_BODY, SLOW, rdv_resource_route_release, NULL,
	 "Open the gate of a key that after_dead: hold closed", "200 released", "404"},
	{"POST", "/v1/routes/{name}/adopt", OPERATOR, JSON_BODY, SLOW, rdv_resource_route_adopt, NULL,
	 "Give the messages of a removed route to another route of the same topic", "200 the route", "404 409 422"},
	{"POST", "/v1/routes/{name}/discard", OPERATOR, NO_BODY, LONG, rdv_resource_route_discard, NULL,
	 "Give up the messages of a removed route", "200 discarded", "404 409"},

	{"POST", "/v1/routes/{name}/lease", OPERATOR, JSON_BODY, QUICK, rdv_resource_lease_take, NULL,
	 "Lease messages of a route with a lease handler", "200 the leases, maybe none", "404 409 422"},
	{"POST", "/v1/leases/{token}/{verdict}", OPERATOR, JSON_BODY, QUICK, rdv_resource_lease_verdict, NULL,
	 "ack, retry, reject, defer, drop or extend one lease", "200 the message's new state", "404 409 422"},
	{"POST", "/v1/leases", OPERATOR, JSON_BODY, QUICK, rdv_resource_lease_many, NULL,
	 "Verdicts on many leases at once", "200 a status for each", "422"},

	{"GET", "/v1/dead-letters", VIEWER, NO_BODY, LONG, rdv_resource_letters_list, letters_query,
	 "Dead letters, newest first", "200 a page", "400 422"},
	{"GET", "/v1/dead-letters/{id}", VIEWER, NO_BODY, SLOW, rdv_resource_letter_get, NULL,
	 "One letter with its history", "200 the letter", "404"},
	{"GET", "/v1/dead-letters/{id}/body", READER, NO_BODY, SLOW, rdv_resource_letter_body, NULL,
	 "A letter's body, byte for byte", "200 the bytes", "404"},

	{"POST", "/v1/replays", OPERATOR, JSON_BODY, LONG, rdv_resource_plan_create, NULL,
	 "Freeze a set of letters into a plan", "201 the plan with its checks", "409 422"},
	{"GET", "/v1/replays", VIEWER, NO_BODY, SLOW, rdv_resource_plans_list, list_query, "Plans, newest first",
	 "200 a page", "400"},
	{"GET", "/v1/replays/{id}", VIEWER, NO_BODY, SLOW, rdv_resource_plan_get, NULL, "One plan with its result",
	 "200 the plan", "404"},
	{"GET", "/v1/replays/{id}/letters", VIEWER, NO_BODY, SLOW, rdv_resource_plan_letters, plan_letters_query,
	 "The outcome of each letter", "200 a page", "400 404"},
	{"POST", "/v1/replays/{id}/{verb}", OPERATOR, JSON_BODY, SLOW, rdv_resource_plan_act, NULL,
	 "approve (with the digest), start, pause, resume, rate or cancel", "200 the plan", "404 409 422"},

	{"GET", "/v1/whoami", VIEWER, NO_BODY, QUICK, rdv_resource_whoami, NULL, "Whose token this is",
	 "200 name, role, routes", ""},
	{"GET", "/metrics", VIEWER, NO_BODY, SLOW, rdv_resource_metrics, NULL, "Metrics as Prometheus text",
	 "200 the text", ""},
	{"GET", "/openapi.json", VIEWER, NO_BODY, QUICK, rdv_resource_openapi, NULL, "This description",
	 "200 OpenAPI 3.1", ""},
	{"GET", "/healthz", NONE, NO_BODY, QUICK, rdv_resource_health, NULL, "The process is alive", "200", ""},
	{"GET", "/readyz", NONE, NO_BODY, QUICK, rdv_resource_ready, NULL, "It can take traffic", "200", "503"},
};
const size_t rdv_operation_count = sizeof rdv_operations / sizeof rdv_operations[0];

/* ---- OpenAPI ---- */

static void add_parameter(json_t *list, const char *name, size_t size, const char *in)
{
	json_array_append_new(list, json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", name, size, "in", in, "required",
					      in[0] == 'p', "schema", "type", "string"));
}

static json_t *parameters(const struct rdv_operation *op)
{
	json_t *list = json_array();
	for (const char *p = op->path; (p = strchr(p, '{')); p++)
		add_parameter(list, p + 1, strcspn(p + 1, "}"), "path");
	for (const char *const *q = op->query; q && *q; q++)
		add_parameter(list, *q, strlen(*q), "query");
	return list;
}

static json_t *responses(const struct rdv_operation *op)
{
	json_t *all = json_object();
	for (const char *p = op->answer; *p;) {
		char code[4] = {p[0], p[1], p[2], '\0'};
		size_t size = strcspn(p, ";");
		json_object_set_new(
			all, code,
			json_pack("{s:s%}", "description", size > 4 ? p + 4 : p, size > 4 ? size - 4 : size));
		p += size;
		p += strspn(p, "; ");
	}
	for (const char *p = op->errors; *p; p += strspn(p, " ")) {
		char code[4] = {p[0], p[1], p[2], '\0'};
		json_object_set_new(all, code,
				    json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", "problem", "content",
					      "application/problem+json", "schema", "$ref",
					      "#/components/schemas/Problem"));
		p += 3;
	}
	return all;
}

static json_t *operation(const struct rdv_operation *op)
{
	json_t *o = json_pack("{s:s, s:o, s:o}", "summary", op->summary, "parameters", parameters(op), "responses",
			      responses(op));
	if (op->body != RDV_BODY_NONE)
		json_object_set_new(
			o, "requestBody",
			json_pack("{s:{s:{}}}", "content",
				  op->body == RDV_BODY_JSON ? "application/json" : "application/octet-stream"));
	json_object_set_new(o, "x-role", json_string(rdv_role_name(op->role)));
	return o;
}

void rdv_api_openapi(struct rdv_buffer *out)
{
	json_t *paths = json_object();
	for (size_t i = 0; i < rdv_operation_count; i++) {
		const struct rdv_operation *op = &rdv_operations[i];
		json_t *path = json_object_get(paths, op->path);
		if (!path) {
			path = json_object();
			json_object_set_new(paths, op->path, path);
		}
		char method[8];
		size_t n = 0;
		for (; op->method[n] && n < 7; n++)
			method[n] = (char)(op->method[n] | 32);
		method[n] = '\0';
		json_object_set_new(path, method, operation(op));
	}
	json_t *problem = json_pack("{s:s, s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}}", "type", "object",
				    "properties", "type", "type", "string", "title", "type", "string", "status", "type",
				    "integer", "detail", "type", "string", "instance", "type", "string", "errors",
				    "type", "array");
	json_t *document =
		json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:{s:o}, s:{s:{s:s, s:s}}}}", "openapi", "3.1.0", "info",
			  "title", "Redrive", "version", RDV_VERSION_TEXT, "paths", paths, "components", "schemas",
			  "Problem", problem, "securitySchemes", "token", "type", "http", "scheme", "bearer");
	char *text = document ? json_dumps(document, JSON_INDENT(2)) : NULL;
	rdv_buffer_text(out, text ? text : "{}");
	rdv_buffer_text(out, "\n");
	free(text);
	json_decref(document);
}

void rdv_api_reference(struct rdv_buffer *out)
{
	rdv_buffer_text(
		out,
		"# API reference\n\nMade by `redrive reference api` from the table that the server itself uses.\n\n"
		"| operation | role | does | answers | errors |\n|---|---|---|---|---|\n");
	for (size_t i = 0; i < rdv_operation_count; i++) {
		const struct rdv_operation *op = &rdv_operations[i];
		rdv_buffer_printf(out, "| `%s %s`", op->method, op->path);
		for (const char *const *q = op->query; q && *q; q++)
			rdv_buffer_printf(out, "%s%s", q == op->query ? "<br>?" : "&", *q);
		rdv_buffer_printf(out, " | %s | %s | %s | %s |\n", rdv_role_name(op->role), op->summary, op->answer,
				  op->errors);
	}
}
