/* reply.c - answers: JSON, bytes, problems (RFC 9457). Every answer carries Redrive-Version and nosniff. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "api.h"

static const struct {
	unsigned http;
	const char *title;
} titles[] = {
	{400, "Bad request"},
	{401, "A token is needed"},
	{403, "Not allowed"},
	{404, "Not found"},
	{405, "Method not allowed"},
	{409, "Conflict"},
	{411, "Length required"},
	{413, "Too large"},
	{415, "Unsupported content type"},
	{422, "Not acceptable as it is"},
	{431, "Headers too large"},
	{500, "Internal error"},
	{503, "Not available now"},
};

static const char *title_of(unsigned http)
{
	for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
		if (titles[i].http == http)
			return titles[i].title;
	return "Error";
}

static void queue(struct rdv_exchange *x, unsigned status, struct MHD_Response *response, const char *content_type)
{
	if (!response)
		return; /* MHD then closes the connection: nothing else can be said without memory */
	MHD_add_response_header(response, "Redrive-Version", RDV_VERSION_TEXT);
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Cache-Control", "no-store");
	if (content_type)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
	if (status == 503)
		MHD_add_response_header(response, "Retry-After", "1");
	if (status == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	if (x->body_too_large)
		MHD_add_response_header(response, "Connection", "close");
	x->answered = MHD_queue_response(x->connection, status, response) == MHD_YES;
	MHD_destroy_response(response);
}

static void reply_value(struct rdv_exchange *x, unsigned status, json_t *value, const char *content_type)
{
	char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	json_decref(value);
	if (!text) {
		static const char sorry[] = "{\"type\":\"about:blank\",\"title\":\"Internal "
					    "error\",\"status\":500,\"detail\":\"out of memory\"}";
		queue(x, 500, MHD_create_response_from_buffer(sizeof sorry - 1, (void *)sorry, MHD_RESPMEM_PERSISTENT),
		      "application/problem+json");
		return;
	}
	queue(x, status, MHD_create_response_from_buffer_with_free_callback(strlen(text), text, free), content_type);
}

void rdv_reply_json(struct rdv_exchange *x, unsigned status, json_t *value)
{
	reply_value(x, status, value, "application/json");
}

void rdv_reply_bytes(struct rdv_exchange *x, unsigned status, const char *content_type, struct rdv_slice bytes,
		     const char *disposition)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		bytes.size, (void *)(bytes.data ? bytes.data : (const uint8_t *)""), MHD_RESPMEM_MUST_COPY);
	if (response && disposition)
		MHD_add_response_header(response, "Content-Disposition", disposition);
	queue(x, status, response, content_type);
}

void rdv_reply_problem(struct rdv_exchange *x, unsigned http, json_t *errors, const char *fmt, ...)
{
	char detail[1024];
	va_list args;
	va_start(args, fmt);
	vsnprintf(detail, sizeof detail, fmt, args);
	va_end(args);
	struct rdv_slice good = rdv_slice_cut_utf8(rdv_slice_text(detail), sizeof detail);
	for (char *p = detail; !rdv_utf8_valid(good) && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	json_t *problem = json_pack("{s:s, s:s, s:i, s:s%}", "type", "about:blank", "title", title_of(http), "status",
				    (int)http, "detail", detail, strlen(detail));
	if (problem) /* a path that is no UTF-8 is not repeated */
		json_object_set_new(problem, "instance", x->path ? json_string(x->path) : json_null());
	if (problem && !json_object_get(problem, "instance"))
		json_object_set_new(problem, "instance", json_null());
	if (errors && problem)
		json_object_set_new(problem, "errors", errors);
	else
		json_decref(errors);
	reply_value(x, http, problem, "application/problem+json");
}

void rdv_reply_status(struct rdv_exchange *x, enum redrive_status status, const char *detail)
{
	const struct rdv_status_info *info = rdv_status_info(status);
	rdv_reply_problem(x, (unsigned)info->http, NULL, "%s", detail && *detail ? detail : info->text);
}

void rdv_reply_field(struct rdv_exchange *x, const char *pointer, const char *fmt, ...)
{
	char text[512];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	json_t *errors = json_pack("[{s:s, s:s}]", "pointer", pointer, "detail", text);
	rdv_reply_problem(x, 422, errors, "%s: %s", pointer, text);
}
