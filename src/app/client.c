/* client.c - libcurl easy, one handle kept alive between calls. */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/text.h"
#include "client.h"
#include "output.h"

#define RESPONSE_MAX (256u << 20)

struct rdv_client {
	CURL *curl;
	char *server;
	const char *ca_file; /* NULL = the system's; borrows */
	char token[512];
};

static int read_token(const struct rdv_invocation *in, struct rdv_client *c)
{
	const char *file = rdv_option(in, RDV_OPT_TOKEN_FILE), *env = getenv("REDRIVE_TOKEN");
	if (file) {
		FILE *f = fopen(file, "re");
		if (!f)
			return rdv_command_fail(1, "token file '%s': %s", file, strerror(errno));
		size_t n = fread(c->token, 1, sizeof c->token - 1, f);
		c->token[n] = '\0';
		fclose(f);
	} else if (env) {
		snprintf(c->token, sizeof c->token, "%s", env);
	}
	c->token[strcspn(c->token, " \t\r\n")] = '\0';
	return 0;
}

int rdv_client_open(const struct rdv_invocation *in, struct rdv_client **out)
{
	const char *server = rdv_option(in, RDV_OPT_SERVER);
	if (!server)
		server = getenv("REDRIVE_SERVER");
	if (!server || !*server)
		server = "http://127.0.0.1:7337";
	struct rdv_client *c = calloc(1, sizeof *c);
	if (!c)
		return rdv_command_fail(1, "out of memory");
	struct rdv_buffer url;
	rdv_buffer_init(&url, 4096);
	if (!strstr(server, "://"))
		rdv_buffer_text(&url, "http://");
	rdv_buffer_text(&url, server);
	while (url.size && url.data[url.size - 1] == '/')
		url.size--;
	c->ca_file = rdv_option(in, RDV_OPT_CA_FILE) ? rdv_option(in, RDV_OPT_CA_FILE) : getenv("REDRIVE_CA_FILE");
	c->server = strdup(rdv_buffer_string(&url));
	rdv_buffer_done(&url);
	c->curl = curl_easy_init();
	int code = c->server && c->curl ? read_token(in, c) : rdv_command_fail(1, "out of memory");
	if (code) {
		rdv_client_close(c);
		return code;
	}
	*out = c;
	return 0;
}

void rdv_client_close(struct rdv_client *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->curl);
	free(c->server);
	free(c);
}

void rdv_response_done(struct rdv_response *r)
{
	rdv_buffer_done(&r->body);
	json_decref(r->json);
	r->json = NULL;
}

static size_t take_body(char *data, size_t size, size_t count, void *ctx)
{
	struct rdv_buffer *body = ctx;
	rdv_buffer_append(body, data, size * count);
	return body->failed ? 0 : size * count;
}

static size_t take_file(char *data, size_t size, size_t count, void *ctx)
{
	return fwrite(data, size, count, ctx) * size;
}

static int exit_of(long status)
{
	return status < 300                                      ? 0
	       : status == 404                                   ? 3
	       : status == 401 || status == 403                  ? 5
	       : status == 409 || status == 412 || status == 422 ? 6
								 : 1;
}

static void tell_problem(const struct rdv_response *r)
{
	const char *title = json_string_value(json_object_get(r->json, "title"));
	const char *detail = json_string_value(json_object_get(r->json, "detail"));
	if (title || detail)
		rdv_command_fail(1, "%s%s%s", title ? title : "", title && detail ? ": " : "", detail ? detail : "");
	else
		rdv_command_fail(1, "the server answered %ld", r->status);
	size_t i;
	json_t *item;
	json_array_foreach(json_object_get(r->json, "errors"), i, item)
	{
		const char *pointer = json_string_value(json_object_get(item, "pointer")),
			   *text = json_string_value(json_object_get(item, "detail"));
		if (detail && text && strstr(detail, text)) /* said already */
			continue;
		json_t *line = json_object_get(item, "line"), *position = json_object_get(item, "position");
		fprintf(stderr, "  %s%s", pointer ? pointer : "", pointer ? ": " : "");
		if (line)
			fprintf(stderr, "line %" JSON_INTEGER_FORMAT ": ", json_integer_value(line));
		if (position)
			fprintf(stderr, "character %" JSON_INTEGER_FORMAT ": ", json_integer_value(position));
		fprintf(stderr, "%s\n", text ? text : "");
	}
}

static struct curl_slist *request_headers(const struct rdv_client *c, const struct rdv_request_body *body)
{
	char line[600];
	struct curl_slist *list = curl_slist_append(NULL, "Expect:");
	if (c->token[0]) {
		snprintf(line, sizeof line, "Authorization: Bearer %s", c->token);
		list = curl_slist_append(list, line);
	}
	bool typed = false;
	for (size_t i = 0; body && body->headers && body->headers[i]; i++) {
		list = curl_slist_append(list, body->headers[i]);
		typed = typed || strncasecmp(body->headers[i], "Content-Type:", 13) == 0;
	}
	return typed ? list : curl_slist_append(list, "Content-Type:");
}

static int perform(struct rdv_client *c, const char *method, const char *path, const struct rdv_request_body *body,
		   struct curl_slist *headers)
{
	struct rdv_buffer url;
	rdv_buffer_init(&url, 1 << 20);
	rdv_buffer_text(&url, c->server);
	rdv_buffer_text(&url, path);
	curl_easy_setopt(c->curl, CURLOPT_URL, rdv_buffer_string(&url));
	curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->curl, CURLOPT_PROXY, "");
	if (c->ca_file && *c->ca_file)
		curl_easy_setopt(c->curl, CURLOPT_CAINFO, c->ca_file);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, 10000L);
	if (body && (body->post || body->bytes.size)) {
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body->bytes.size ? (const char *)body->bytes.data : "");
		curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->bytes.size);
	}
	curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
	CURLcode result = curl_easy_perform(c->curl);
	int code = 0;
	if (result == CURLE_WRITE_ERROR)
		code = rdv_command_fail(1, "%s: the answer cannot be taken", rdv_buffer_string(&url));
	else if (result != CURLE_OK)
		code = rdv_command_fail(4, "%s cannot be reached: %s", c->server, curl_easy_strerror(result));
	rdv_buffer_done(&url);
	return code;
}

int rdv_client_call(struct rdv_client *c, const char *method, const char *path, const struct rdv_request_body *body,
		    struct rdv_response *out)
{
	memset(out, 0, sizeof *out);
	rdv_buffer_init(&out->body, RESPONSE_MAX);
	curl_easy_reset(c->curl);
	struct curl_slist *headers = request_headers(c, body);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &out->body);
	int code = perform(c, method, path, body, headers);
	curl_slist_free_all(headers);
	if (code)
		return code;
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &out->status);
	out->json = json_loadb((const char *)out->body.data, out->body.size, JSON_ALLOW_NUL, NULL);
	code = exit_of(out->status);
	if (code)
		tell_problem(out);
	return code;
}

int rdv_client_post(struct rdv_client *c, const char *path, json_t *value, struct rdv_response *out)
{
	static const char *const headers[] = {"Content-Type: application/json", NULL};
	char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
	json_decref(value);
	struct rdv_request_body body = {rdv_slice_text(text), text ? headers : NULL, true};
	int code = rdv_client_call(c, "POST", path, &body, out);
	free(text);
	return code;
}

int rdv_client_all(struct rdv_client *c, const char *path, json_t **out)
{
	json_t *items = json_array();
	char cursor[1100] = "";
	int code;
	do {
		struct rdv_buffer page;
		struct rdv_response response;
		rdv_buffer_init(&page, 1 << 16);
		rdv_buffer_text(&page, path);
		rdv_query_add(&page, "limit", "1000");
		rdv_query_add(&page, "cursor", *cursor ? cursor : NULL);
		code = rdv_client_call(c, "GET", rdv_buffer_string(&page), NULL, &response);
		if (code == 0) {
			json_array_extend(items, json_object_get(response.json, "items"));
			snprintf(cursor, sizeof cursor, "%s", rdv_json_text(response.json, "next", 7));
		}
		rdv_response_done(&response);
		rdv_buffer_done(&page);
	} while (code == 0 && *cursor);
	*out = json_pack("{s:o, s:n}", "items", items, "next");
	return code;
}

static void show(const struct rdv_invocation *in, const json_t *answer,
		 void (*print)(const struct rdv_invocation *in, const json_t *answer))
{
	if (in->json)
		rdv_print_json(answer);
	else
		print(in, answer);
}

int rdv_client_show(const struct rdv_invocation *in, struct rdv_buffer *path,
		    void (*print)(const struct rdv_invocation *in, const json_t *answer))
{
	struct rdv_client *c;
	struct rdv_response response;
	int code = rdv_client_open(in, &c);
	if (code == 0) {
		code = rdv_client_call(c, "GET", rdv_buffer_string(path), NULL, &response);
		if (code == 0)
			show(in, response.json, print);
		rdv_response_done(&response);
		rdv_client_close(c);
	}
	rdv_buffer_done(path);
	return code;
}

int rdv_client_show_all(const struct rdv_invocation *in, const char *path,
			void (*print)(const struct rdv_invocation *in, const json_t *answer))
{
	struct rdv_client *c = NULL;
	json_t *all = NULL;
	int code = rdv_client_open(in, &c);

	if (code)
		return code;
	code = rdv_client_all(c, path, &all);
	if (code == 0)
		show(in, all, print);
	json_decref(all);
	rdv_client_close(c);
	return code;
}

int rdv_client_download(struct rdv_client *c, const char *path, FILE *to)
{
	curl_easy_reset(c->curl);
	struct curl_slist *headers = request_headers(c, NULL);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_file);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, to);
	curl_easy_setopt(c->curl, CURLOPT_FAILONERROR, 1L);
	struct rdv_buffer url;
	rdv_buffer_init(&url, 1 << 20);
	rdv_buffer_text(&url, c->server);
	rdv_buffer_text(&url, path);
	curl_easy_setopt(c->curl, CURLOPT_URL, rdv_buffer_string(&url));
	curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->curl, CURLOPT_PROXY, "");
	if (c->ca_file && *c->ca_file)
		curl_easy_setopt(c->curl, CURLOPT_CAINFO, c->ca_file);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
	CURLcode result = curl_easy_perform(c->curl);
	long status = 0;
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	int code = 0;
	if (result == CURLE_HTTP_RETURNED_ERROR)
		code = rdv_command_fail(exit_of(status), "%s: the server answered %ld", path, status);
	else if (result != CURLE_OK)
		code = rdv_command_fail(result == CURLE_WRITE_ERROR ? 1 : 4, "%s: %s", c->server,
					curl_easy_strerror(result));
	curl_slist_free_all(headers);
	rdv_buffer_done(&url);
	return code;
}

void rdv_query_add(struct rdv_buffer *path, const char *name, const char *value)
{
	if (!value)
		return;
	bool first = !memchr(path->data, '?', path->size);
	rdv_buffer_printf(path, "%c%s=", first ? '?' : '&', name);
	rdv_url_encode(path, rdv_slice_text(value));
}

void rdv_path_add(struct rdv_buffer *path, const char *segment)
{
	rdv_buffer_u8(path, '/');
	rdv_url_encode(path, rdv_slice_text(segment));
}
