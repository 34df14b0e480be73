/* settings.c - memory, defaults and hand-over of the settings; settings_yaml.c reads them, settings_check.c judges
 * them. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/quantity.h"
#include "settings_table.h"

/* Every piece of memory the settings own: one list, freed at once. */
struct piece {
	struct piece *next;
	max_align_t data[];
};

void *rdv_settings_alloc(struct rdv_settings *s, size_t size)
{
	struct piece *p = calloc(1, sizeof *p + size);
	if (!p)
		return NULL;
	p->next = s->memory;
	s->memory = p;
	return p->data;
}

char *rdv_settings_text(struct rdv_settings *s, struct rdv_slice text)
{
	char *copy = rdv_settings_alloc(s, text.size + 1);
	if (copy && text.size)
		memcpy(copy, text.data, text.size);
	return copy;
}

const char *rdv_settings_path(struct rdv_settings *s, const char *name)
{
	if (name[0] == '/' || strcmp(s->dir, ".") == 0)
		return name;
	while (strncmp(name, "./", 2) == 0 && name[2] != '/')
		name += 2;
	size_t size = strlen(s->dir) + strlen(name) + 2;
	char *path = rdv_settings_alloc(s, size);
	if (path)
		snprintf(path, size, "%s/%s", s->dir, name);
	return path;
}

enum redrive_status rdv_settings_init(struct rdv_settings *s)
{
	memset(s, 0, sizeof *s);
	s->dir = ".";
	s->listen = "127.0.0.1:7337";
	s->data = "./redrive-data";
	s->limits.body = 1 << 20;
	s->limits.headers = 64 << 10;
	s->limits.request_head = 72 << 10;
	s->limits.batch = 16 << 20;
	s->limits.disk_free = 1 << 30;
	s->limits.ids = 10000000;
	s->retention.hot_ms = 7 * 86400000LL;
	s->retention.warm_ms = 30 * 86400000LL;
	s->retention.summaries_ms = 400 * 86400000LL;
	s->drain_ms = 30000;
	return REDRIVE_OK;
}

void rdv_settings_done(struct rdv_settings *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->route_count; i++)
		rdv_rules_unref(s->routes[i].rules);
	for (struct piece *p = s->memory, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	memset(s, 0, sizeof *s);
}

void rdv_findings_add(struct rdv_findings *f, struct rdv_mark mark, bool warning, const char *fmt, ...)
{
	struct rdv_finding *items = realloc(f->items, (f->count + 1) * sizeof *items);
	if (!warning)
		f->errors++;
	if (!items)
		return;
	f->items = items;
	struct rdv_finding *item = &items[f->count++];
	item->mark = mark;
	item->warning = warning;
	va_list args;
	va_start(args, fmt);
	vsnprintf(item->text, sizeof item->text, fmt, args);
	va_end(args);
}

const char *rdv_finding_format(const char *file, const struct rdv_finding *item, struct rdv_buffer *out)
{
	out->size = 0;
	rdv_buffer_text(out, file);
	if (item->mark.line)
		rdv_buffer_printf(out, ":%u:%u", item->mark.line, item->mark.column);
	rdv_buffer_printf(out, ": %s%s", item->warning ? "warning: " : "", item->text);
	return rdv_buffer_string(out);
}

static int by_position(const void *a, const void *b)
{
	const struct rdv_mark *x = &((const struct rdv_finding *)a)->mark, *y = &((const struct rdv_finding *)b)->mark;
	return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
				  : (x->column > y->column) - (x->column < y->column);
}

void rdv_findings_sort(struct rdv_findings *f)
{
	if (f->count)
		qsort(f->items, f->count, sizeof *f->items, by_position);
}

void rdv_findings_done(struct rdv_findings *f)
{
	free(f->items);
	memset(f, 0, sizeof *f);
}

#define SECRET_MAX (64u << 10) /* a private key with its chain */

enum redrive_status rdv_secret_read(const char *file, struct rdv_buffer *out, struct rdv_error *error)
{
	FILE *f = fopen(file, "re");
	if (!f)
		return rdv_error_errno(error, errno, "'%s'", file);
	size_t before = out->size, n = 1;
	while (n && out->size - before <= SECRET_MAX) {
		uint8_t *room = rdv_buffer_reserve(out, 4096);
		n = room ? fread(room, 1, 4096, f) : 0;
		out->size += n;
	}
	bool broken = ferror(f);
	fclose(f);
	if (broken || out->failed)
		return rdv_error_set(error, REDRIVE_IO, "'%s' cannot be read", file);
	if (out->size - before > SECRET_MAX)
		return rdv_error_set(error, REDRIVE_REFUSED, "'%s' is larger than 64 KiB", file);
	while (out->size > before && (out->data[out->size - 1] == '\n' || out->data[out->size - 1] == '\r'))
		out->size--;
	return out->size > before ? REDRIVE_OK : rdv_error_set(error, REDRIVE_REFUSED, "'%s' is empty", file);
}

enum redrive_status rdv_listen_parse(const char *listen, char host[64], uint16_t *port, bool *loopback)
{
	const char *colon = strrchr(listen, ':');
	size_t size = colon ? (size_t)(colon - listen) : 0;
	if (!colon || size >= 64)
		return REDRIVE_INVALID;
	bool bracketed = size >= 2 && listen[0] == '[' && listen[size - 1] == ']';
	if (bracketed)
		rdv_slice_to_text(rdv_slice(listen + 1, size - 2), host, 64);
	else
		rdv_slice_to_text(rdv_slice(listen, size), host, 64);
	if (strcmp(host, "localhost") == 0)
		snprintf(host, 64, "127.0.0.1");
	int64_t number;
	if (rdv_integer_parse(rdv_slice_text(colon + 1), &number) != REDRIVE_OK || number < 0 || number > 65535)
		return REDRIVE_INVALID;
	*port = (uint16_t)number;
	struct in_addr v4;
	struct in6_addr v6;
	if (!bracketed && inet_pton(AF_INET, host, &v4) == 1)
		*loopback = (ntohl(v4.s_addr) >> 24) == 127;
	else if (bracketed && inet_pton(AF_INET6, host, &v6) == 1)
		*loopback = IN6_IS_ADDR_LOOPBACK(&v6);
	else
		return REDRIVE_INVALID;
	return REDRIVE_OK;
}

/* scheme://host:port of a URL, lower case, the port always named. */
static bool url_origin(const char *url, char out[256])
{
	CURLU *u = curl_url();
	char *scheme = NULL, *host = NULL, *port = NULL;
	bool good = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
		    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
		    curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		    curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
	if (good) {
		snprintf(out, 256, "%s://%s:%s", scheme, host, port);
		for (char *p = out; *p; p++)
			if (*p >= 'A' && *p <= 'Z')
				*p = (char)(*p - 'A' + 'a');
	}
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(u);
	return good;
}

void rdv_settings_target_name(const struct rdv_settings *s, size_t i, char out[256])
{
	const struct rdv_route_settings *r = &s->routes[i];
	if (r->handler.target)
		snprintf(out, 256, "%s", r->handler.target);
	else if (!r->handler.has_http || !r->handler.http.url || !url_origin(r->handler.http.url, out))
		snprintf(out, 256, "route:%s", r->name ? r->name : "");
}

static enum rdv_handler_kind handler_kind(const struct rdv_handler_settings *h)
{
	return h->has_http ? RDV_HANDLER_HTTP : h->has_exec ? RDV_HANDLER_EXEC : RDV_HANDLER_LEASE;
}

void rdv_settings_route_options(const struct rdv_settings *s, size_t i, struct rdv_route_options *out)
{
	const struct rdv_route_settings *r = &s->routes[i];
	const struct rdv_http_settings *http = &r->handler.http;
	const struct rdv_exec_settings *exec = &r->handler.exec;
	memset(out, 0, sizeof *out);
	out->name = r->name;
	out->topic = r->source.kafka.given ? r->source.kafka.shown : r->source.topic;
	out->partitions = (uint32_t)r->source.partitions;
	out->importance_high = r->importance_high;
	out->sla_ms = r->sla_ms;
	out->lane = r->lane;
	out->target_policy = r->target;
	out->route_policy = r->route;
	out->rules = r->rules;
	out->handler = handler_kind(&r->handler);
	out->http.url = http->url;
	out->http.timeout_ms = http->timeout_ms;
	out->http.headers = http->headers;
	out->http.header_count = http->header_count;
	out->http.ca_file = http->ca_file;
	out->http.cert_file = http->cert_file;
	out->http.key_file = http->key_file;
	out->http.cloudevents = http->cloudevents;
	out->http.proxy = http->proxy;
	out->http.connections = r->target.adaptive ? r->target.adaptive_max : r->target.concurrency;
	out->exec.command = (const char *const *)exec->command;
	out->exec.command_count = exec->command_count;
	out->exec.dir = s->dir;
	out->exec.timeout_ms = exec->timeout_ms;
	out->exec.env = exec->env;
	out->exec.env_count = exec->env_count;
	out->lease = r->handler.lease;
	out->lease.max = r->target.concurrency;
	out->metadata = (struct rdv_metadata){r->metadata.tenant, r->metadata.schema_version,
					      r->metadata.consumer_version, r->metadata.trace_id};
	out->index = r->index;
	out->index_count = r->index_count;
}
