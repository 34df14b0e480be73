/* serve.c - builds and joins the parts of the daemon: settings → engine with routes → desk → API. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "serve.h"

static void engine_ended(void *ctx, enum redrive_status why)
{
	struct rdv_server *s = ctx;
	s->ended = 1 + (int)why;
	if (s->on_end)
		s->on_end(s->on_end_ctx);
}

/* ---- signing secrets: files are read at start and reload only ---- */

static void free_secrets(struct rdv_buffer *secrets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		rdv_buffer_done(&secrets[i]);
	free(secrets);
}

/* The secrets of all routes; all that cannot be read is among the findings, the first one's status is returned. */
static enum redrive_status read_secrets(const struct rdv_settings *settings, struct rdv_buffer **out,
					struct rdv_findings *findings)
{
	enum redrive_status status = REDRIVE_OK;
	struct rdv_buffer *secrets = *out = calloc(settings->route_count + 1, sizeof *secrets);
	if (!secrets) {
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "out of memory");
		return REDRIVE_NO_MEMORY;
	}
	for (size_t i = 0; i < settings->route_count; i++) {
		const struct rdv_route_settings *route = &settings->routes[i];
		const char *file = route->handler.http.secret_file;
		struct rdv_error error = {""};
		rdv_buffer_init(&secrets[i], 0);
		enum redrive_status one = file ? rdv_secret_read(file, &secrets[i], &error) : REDRIVE_OK;
		if (one != REDRIVE_OK)
			rdv_findings_add(findings, route->handler.mark, false, "route '%s': secret_file %s",
					 route->name, error.text);
		status = status == REDRIVE_OK ? one : status;
	}
	return status;
}

/* The source's maker: the one that the running engine has, or a new one. */
static bool source_of(struct rdv_server *s, const struct rdv_route_settings *r, const struct rdv_settings *running,
		      const struct rdv_source_maker **out)
{
	bool runs = false;
	*out = NULL;
	if (!r->source.kafka.given)
		return true;
	for (size_t i = 0; running && i < running->route_count && !runs; i++)
		runs = running->routes[i].source.kafka.given && strcmp(running->routes[i].name, r->name) == 0;
	*out = runs ? rdv_kafka_makers_find(&s->makers, r->name) : rdv_kafka_makers_add(&s->makers, r);
	return *out;
}

static void route_options(const struct rdv_settings *settings, const struct rdv_buffer *secrets, size_t i,
			  char target[256], struct rdv_route_options *out)
{
	rdv_settings_route_options(settings, i, out);
	rdv_settings_target_name(settings, i, target);
	out->target = target;
	out->http.sign_secret = rdv_buffer_as_slice(&secrets[i]);
}

/* What an embedded topic holds is in one process alone. */
static enum redrive_status check_only(const struct rdv_server *s, const struct rdv_settings *settings,
				      struct rdv_error *error)
{
	for (size_t i = 0; s->only == RDV_SERVER_DESK && i < settings->route_count; i++)
		if (!settings->routes[i].source.kafka.given)
			return rdv_error_set(error, REDRIVE_REFUSED,
					     "--only desk: route '%s' has its topic in this process: only routes on "
					     "Kafka can have their desk apart",
					     settings->routes[i].name);
	return REDRIVE_OK;
}

/* ---- start ---- */

static void engine_options(struct rdv_server *s, const struct rdv_settings *settings, struct rdv_engine_options *o)
{
	memset(o, 0, sizeof *o);
	o->dir = settings->data;
	o->journal = settings->limits.journal;
	o->disk_free = settings->limits.disk_free;
	o->ids = settings->limits.ids;
	o->body_max = settings->limits.body;
	o->headers_max = settings->limits.headers;
	o->batch_max = settings->limits.batch;
	o->drain_ms = settings->drain_ms;
	o->hot_ms = settings->retention.hot_ms;
	o->segment_size = s->segment_size;
	o->exec_allowed = true;
	o->desk_alone = s->only == RDV_SERVER_DESK;
	o->say = rdv_logger_say;
	o->say_ctx = s->logger;
	o->ended = engine_ended;
	o->ended_ctx = s;
}

static void api_options(const struct rdv_settings *settings, char host[64], struct rdv_api_options *o)
{
	bool loopback;
	memset(o, 0, sizeof *o);
	if (rdv_listen_parse(settings->listen, host, &o->port, &loopback) != REDRIVE_OK)
		snprintf(host, 64, "127.0.0.1"); /* settings_check has refused it already */
	o->host = host;
	o->cert_file = settings->security.cert_file;
	o->key_file = settings->security.key_file;
	o->hosts = settings->security.hosts;
	o->host_count = settings->security.host_count;
	o->tokens_file = settings->security.tokens_file;
	o->body_max = settings->limits.body;
	o->headers_max = settings->limits.headers;
	o->head_max = settings->limits.request_head;
	o->batch_max = settings->limits.batch;
}

static enum redrive_status make_data_dir(const char *dir, struct rdv_error *error)
{
	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return rdv_error_errno(error, errno, "data directory '%s'", dir);
	return REDRIVE_OK;
}

static enum redrive_status add_routes(struct rdv_server *s, struct rdv_error *error)
{
	for (size_t i = 0; i < s->settings.route_count; i++) {
		struct rdv_route_options route;
		char target[256];
		route_options(&s->settings, s->secrets, i, target, &route);
		enum redrive_status status = REDRIVE_NO_MEMORY;
		if (source_of(s, &s->settings.routes[i], NULL, &route.source))
			status = rdv_engine_add_route(s->engine, &route, error);
		if (status != REDRIVE_OK)
			return error->text[0] ? status : rdv_error_prefix(error, status, "route '%s'", route.name);
	}
	return REDRIVE_OK;
}

static enum redrive_status start_secrets(struct rdv_server *s, struct rdv_error *error)
{
	struct rdv_findings findings = {0};
	enum redrive_status status = read_secrets(&s->settings, &s->secrets, &findings);
	for (size_t i = 0; i < findings.count; i++)
		rdv_error_add(error, status, findings.items[i].text);
	rdv_findings_done(&findings);
	return status;
}

static enum redrive_status start_feeds(struct rdv_server *s, struct rdv_error *error)
{
	s->feeds.logger = s->logger;
	if (s->only == RDV_SERVER_RUNTIME)
		return REDRIVE_OK;
	return rdv_desk_feeds_start(&s->feeds, &s->settings, rdv_engine_desk(s->engine), error);
}

enum redrive_status rdv_server_start(struct rdv_server *s, struct rdv_settings *settings, struct rdv_error *error)
{
	s->settings = *settings;
	memset(settings, 0, sizeof *settings);
	struct rdv_engine_options engine;
	struct rdv_api_options api;
	char host[64];
	engine_options(s, &s->settings, &engine);
	api_options(&s->settings, host, &api);
	enum redrive_status status = check_only(s, &s->settings, error);
	if (status == REDRIVE_OK)
		status = make_data_dir(s->settings.data, error);
	if (status == REDRIVE_OK)
		status = start_secrets(s, error);
	s->secret_count = s->secrets ? s->settings.route_count : 0;
	if (status == REDRIVE_OK)
		status = rdv_engine_open(&engine, &s->engine, error);
	if (status == REDRIVE_OK)
		status = add_routes(s, error);
	if (status == REDRIVE_OK)
		status = rdv_engine_start(s->engine, error);
	if (status == REDRIVE_OK)
		status = start_feeds(s, error);
	if (status == REDRIVE_OK) {
		api.engine = s->engine;
		api.desk = rdv_engine_desk(s->engine);
		status = rdv_api_start(&api, &s->api, error);
	}
	if (status != REDRIVE_OK)
		rdv_server_stop(s);
	return status;
}

void rdv_server_url(const struct rdv_server *s, char out[128])
{
	char host[64];
	uint16_t port;
	bool loopback;
	if (rdv_listen_parse(s->settings.listen, host, &port, &loopback) != REDRIVE_OK)
		strcpy(host, "127.0.0.1");
	bool v6 = strchr(host, ':') != NULL;
	snprintf(out, 128, "%s://%s%s%s:%u", s->settings.security.cert_file ? "https" : "http", v6 ? "[" : "", host,
		 v6 ? "]" : "", rdv_api_port(s->api));
}

/* ---- reload ---- */

/* What a reload needs: all of it is there, and checked, before anything changes. */
struct reload {
	struct rdv_buffer *secrets;
	struct rdv_route_options *routes;
	char (*targets)[256];
	struct rdv_api_change *api;
};

static void load_all(struct rdv_server *s, const struct rdv_settings *new, struct reload *r,
		     struct rdv_findings *findings)
{
	struct rdv_api_options api;
	struct rdv_error error = {""};
	char host[64];
	rdv_settings_check_change(&s->settings, new, findings);
	(void)read_secrets(new, &r->secrets, findings); /* the findings say it */
	r->routes = calloc(new->route_count + 1, sizeof *r->routes);
	r->targets = calloc(new->route_count + 1, sizeof *r->targets);
	if (!r->routes || !r->targets)
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "out of memory");
	for (size_t i = 0; r->secrets && r->routes && r->targets && i < new->route_count; i++) {
		route_options(new, r->secrets, i, r->targets[i], &r->routes[i]);
		if (!source_of(s, &new->routes[i], &s->settings, &r->routes[i].source))
			rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "out of memory");
	}
	if (check_only(s, new, &error) != REDRIVE_OK)
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "%s", error.text);
	api_options(new, host, &api);
	if (rdv_api_load(&api, &r->api, &error) != REDRIVE_OK)
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "%s", error.text);
}

static void take_settings(struct rdv_server *s, struct rdv_settings *settings, struct reload *r)
{
	free_secrets(s->secrets, s->secret_count);
	rdv_settings_done(&s->settings);
	s->secrets = r->secrets;
	s->secret_count = settings->route_count;
	s->settings = *settings;
	memset(settings, 0, sizeof *settings);
	r->secrets = NULL;
}

/* The engine refuses or takes all at once, so it comes last of what can be refused; what follows it cannot fail. */
static bool reload_engine(struct rdv_server *s, const struct rdv_settings *new, const struct reload *r,
			  struct rdv_findings *findings)
{
	struct rdv_engine_options limits;
	struct rdv_error error = {""};
	if (findings->errors)
		return false;
	engine_options(s, new, &limits);
	if (rdv_engine_reload(s->engine, &limits, r->routes, new->route_count, &error) == REDRIVE_OK)
		return true;
	rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "%s", error.text);
	return false;
}

bool rdv_server_reload(struct rdv_server *s, struct rdv_settings *settings, struct rdv_findings *findings)
{
	struct reload r = {0};
	size_t count = settings->route_count;
	load_all(s, settings, &r, findings);
	bool done = reload_engine(s, settings, &r, findings);
	if (done) {
		rdv_api_commit(s->api, r.api);
		take_settings(s, settings, &r);
	} else {
		rdv_api_forget(r.api);
	}
	if (r.secrets)
		free_secrets(r.secrets, count);
	free(r.routes);
	free(r.targets);
	return done;
}

enum redrive_status rdv_server_stop(struct rdv_server *s)
{
	rdv_desk_feeds_stop(&s->feeds);
	if (s->engine && s->api)
		rdv_engine_stop(s->engine); /* the API still answers: leases end, health says what happens */
	rdv_api_stop(s->api);
	rdv_engine_free(s->engine);
	rdv_kafka_makers_done(&s->makers);
	free_secrets(s->secrets, s->secret_count);
	rdv_settings_done(&s->settings);
	enum redrive_status status = s->ended ? (enum redrive_status)(s->ended - 1) : REDRIVE_OK;
	s->engine = NULL;
	s->api = NULL;
	s->secrets = NULL;
	s->secret_count = 0;
	return status;
}
