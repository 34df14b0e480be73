/* settings_check.c - what single values cannot tell: combinations, names, files, and warnings. */
#include <curl/curl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../base/quantity.h"
#include "settings_table.h"

static void check_file(struct rdv_findings *f, struct rdv_mark mark, const char *what, const char *file)
{
	if (file && access(file, R_OK) != 0)
		rdv_findings_add(f, mark, false, "%s: '%s' cannot be read", what, file);
}

/* ---- listen and security ---- */

static void check_security(const struct rdv_settings *s, struct rdv_findings *f)
{
	if (!s->security.cert_file != !s->security.key_file)
		rdv_findings_add(f, rdv_setting_mark(s, RDV_SECTION_SECURITY, "tls"), false,
				 "security.tls needs both cert_file and key_file");
	check_file(f, rdv_setting_mark(s, RDV_SECTION_TLS, "cert_file"), "security.tls.cert_file",
		   s->security.cert_file);
	check_file(f, rdv_setting_mark(s, RDV_SECTION_TLS, "key_file"), "security.tls.key_file", s->security.key_file);
	if (s->security.tokens_file && access(s->security.tokens_file, R_OK) != 0)
		rdv_findings_add(f, rdv_setting_mark(s, RDV_SECTION_SECURITY, "tokens_file"), false,
				 "security.tokens_file: '%s' cannot be read; 'redrive token add NAME --role ROLE "
				 "--tokens-file FILE' makes it",
				 s->security.tokens_file);
}

static void check_listen(const struct rdv_settings *s, struct rdv_mark mark, struct rdv_findings *f)
{
	char host[64];
	uint16_t port;
	bool loopback;
	if (rdv_listen_parse(s->listen, host, &port, &loopback) != REDRIVE_OK) {
		rdv_findings_add(f, mark, false, "'listen: %s' is not ADDR:PORT, like 127.0.0.1:7337 or [::1]:7337",
				 s->listen);
		return;
	}
	if (loopback)
		return;
	if (!s->security.tokens_file)
		rdv_findings_add(f, mark, false,
				 "'listen: %s' is no loopback address: make tokens (redrive token add) and name their "
				 "file in security.tokens_file",
				 s->listen);
	if (!s->security.cert_file && !s->security.behind_tls_proxy)
		rdv_findings_add(f, mark, false,
				 "'listen: %s' is no loopback address: give security.tls a certificate, or set "
				 "security.behind_tls_proxy: true",
				 s->listen);
}

void rdv_settings_set_listen(struct rdv_settings *s, const char *listen, struct rdv_findings *f)
{
	s->listen = rdv_settings_text(s, rdv_slice_text(listen));
	if (s->listen)
		check_listen(s, (struct rdv_mark){0, 0}, f);
	else
		rdv_findings_add(f, (struct rdv_mark){0, 0}, false, "out of memory");
}

/* ---- one route ---- */

static void check_url(const struct rdv_route_settings *r, struct rdv_findings *f)
{
	CURLU *u = curl_url();
	char *scheme = NULL;
	if (!u || curl_url_set(u, CURLUPART_URL, r->handler.http.url, 0) != CURLUE_OK ||
	    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
	    (strcasecmp(scheme, "http") != 0 && strcasecmp(scheme, "https") != 0))
		rdv_findings_add(f, r->handler.mark, false, "'url: %s' is no http:// or https:// address",
				 r->handler.http.url);
	curl_free(scheme);
	curl_url_cleanup(u);
}

static bool can_run(const char *file)
{
	struct stat info;
	return stat(file, &info) == 0 && S_ISREG(info.st_mode) && access(file, X_OK) == 0;
}

/* As posix_spawnp will look for it; empty entries of PATH are the directory it starts in. */
static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	bool found = false, last = false;
	for (const char *at = path ? path : "/bin:/usr/bin"; !found && !last;) {
		size_t size = strcspn(at, ":");
		char file[PATH_MAX];
		last = at[size] == '\0';
		snprintf(file, sizeof file, "%.*s%s%s", (int)size, at, size ? "/" : "./", program);
		found = can_run(file);
		at += size + 1;
	}
	return found;
}

/* A warning only: it may be installed later. */
static void check_program(struct rdv_settings *s, const struct rdv_route_settings *r, struct rdv_mark mark,
			  struct rdv_findings *f)
{
	const char *program = r->handler.exec.command[0];
	const char *file = rdv_settings_path(s, program);
	if (!strchr(program, '/')) {
		if (!in_path(program))
			rdv_findings_add(f, mark, true, "route '%s': no program '%s' is found in PATH", r->name,
					 program);
		return;
	}
	if (!file)
		return;
	if (access(file, F_OK) != 0)
		rdv_findings_add(f, mark, true, "route '%s': the program '%s' does not exist", r->name, file);
	else if (!can_run(file))
		rdv_findings_add(f, mark, true, "route '%s': the program '%s' is not executable", r->name, file);
}

static void check_handler(struct rdv_settings *s, const struct rdv_route_settings *r, struct rdv_findings *f)
{
	const struct rdv_handler_settings *h = &r->handler;
	struct rdv_mark mark = h->mark.line ? h->mark : r->mark;
	int kinds = h->has_http + h->has_exec + h->has_lease;
	if (kinds == 0 && r->has_handler)
		return; /* what stands there has been refused */
	if (kinds != 1) {
		rdv_findings_add(f, mark, false, "route '%s' needs exactly one handler, http, exec or lease: it has %s",
				 r->name, kinds ? "several" : "none");
		return;
	}
	if (h->has_http && h->http.url)
		check_url(r, f);
	else if (h->has_http && !r->has_url)
		rdv_findings_add(f, mark, false, "route '%s': handler.http needs a url", r->name);
	if (h->has_exec && h->exec.command_count)
		check_program(s, r, mark, f);
	else if (h->has_exec && !r->has_command)
		rdv_findings_add(f, mark, false, "route '%s': handler.exec needs a command", r->name);
	if (!h->http.cert_file != !h->http.key_file)
		rdv_findings_add(f, mark, false, "route '%s': handler.http.tls needs both cert_file and key_file",
				 r->name);
	check_file(f, mark, "handler.http.tls.ca_file", h->http.ca_file);
	check_file(f, mark, "handler.http.tls.cert_file", h->http.cert_file);
	check_file(f, mark, "handler.http.tls.key_file", h->http.key_file);
	check_file(f, mark, "handler.http.sign.secret_file", h->http.secret_file);
}

/* The earliest and latest time from the first failure to the last attempt. */
static void schedule_window(const struct rdv_retry *retry, int64_t *earliest, int64_t *latest)
{
	*earliest = *latest = 0;
	for (uint32_t n = 1; n < retry->attempts; n++) {
		int64_t low, high;
		rdv_retry_bounds(retry, n, &low, &high);
		*earliest = rdv_ms_add(*earliest, low);
		*latest = rdv_ms_add(*latest, high);
	}
}

static void check_retry(const struct rdv_route_settings *r, const struct rdv_retry *retry, struct rdv_mark mark,
			struct rdv_findings *f)
{
	if (retry->backoff == RDV_BACKOFF_LIST && retry->delay_count == 0)
		rdv_findings_add(f, mark, false, "route '%s': backoff: list needs 'delays', like delays: [1s, 5s, 30s]",
				 r->name);
	if (retry->backoff != RDV_BACKOFF_LIST && retry->delay_count > 0)
		rdv_findings_add(f, mark, false, "route '%s': 'delays' only goes with backoff: list", r->name);
	if (retry->min_ms > rdv_retry_cap(retry))
		rdv_findings_add(f, mark, false, "route '%s': retry.min is longer than retry.cap", r->name);
	if (retry->backoff == RDV_BACKOFF_LIST && retry->delay_count == 0)
		return;
	int64_t earliest, latest;
	char a[RDV_QUANTITY_TEXT], b[RDV_QUANTITY_TEXT];
	schedule_window(retry, &earliest, &latest);
	if (retry->window_ms > 0 && latest > retry->window_ms) {
		rdv_duration_format(latest, a);
		rdv_duration_format(retry->window_ms, b);
		rdv_findings_add(f, mark, true,
				 "route '%s': retries may take %s, longer than the business window of %s", r->name, a,
				 b);
	}
	if (earliest > retry->max_age_ms) {
		rdv_duration_format(earliest, a);
		rdv_duration_format(retry->max_age_ms, b);
		rdv_findings_add(
			f, mark, true,
			"route '%s': %u attempts take at least %s, so max_age %s ends the message first (expired)",
			r->name, retry->attempts, a, b);
	}
}

static void check_dead(const struct rdv_route_settings *r, struct rdv_findings *f)
{
	if (r->dead.topic && !r->source.kafka.given)
		rdv_findings_add(
			f, r->mark, false,
			"route '%s': dead.topic is a topic of a broker, and this route's messages are in Redrive "
			"itself: the desk has its letters",
			r->name);
}

static void check_route(struct rdv_settings *s, struct rdv_route_settings *r, struct rdv_findings *f)
{
	struct rdv_mark mark = r->mark;
	if (!r->name && !r->has_name)
		rdv_findings_add(f, mark, false, "a route needs a name");
	if (!r->name)
		r->name = "?";
	if (r->source.kafka.given)
		rdv_kafka_check_route(s, r, f);
	else if (!r->source.topic && !r->has_topic)
		rdv_findings_add(f, r->source_mark.line ? r->source_mark : mark, false,
				 "route '%s' needs a source, like source: { topic: orders }", r->name);
	check_dead(r, f);
	check_handler(s, r, f);
	if (r->after_dead_set && r->lane.order != RDV_ORDER_KEY)
		rdv_findings_add(f, r->after_dead_mark, false, "route '%s': after_dead needs order: key", r->name);
	if (r->dedupe_set && r->lane.dedupe.by == RDV_DEDUPE_OFF)
		rdv_findings_add(f, r->dedupe_mark, false,
				 "route '%s': dedupe needs 'by': id, key, header:NAME or json:/pointer", r->name);
	if (r->lane.dedupe.by == RDV_DEDUPE_KEY)
		rdv_findings_add(f, r->dedupe_mark, true,
				 "route '%s': dedupe by: key drops later events of the same business object", r->name);
	check_retry(r, &r->lane.retry, r->retry_mark.line ? r->retry_mark : mark, f);
	for (size_t i = 0; i < r->rule_count; i++)
		if (r->rule_specs[i].has_retry)
			check_retry(r, &r->rule_specs[i].retry, r->rule_marks[i], f);
	size_t bad = 0;
	struct rdv_error error = {""};
	if (r->rule_count && rdv_rules_compile(r->rule_specs, r->rule_count, &r->rules, &bad, &error) != REDRIVE_OK)
		rdv_findings_add(f, bad >= 1 && bad <= r->rule_count ? r->rule_marks[bad - 1] : mark, false,
				 "route '%s': rule %zu: %s", r->name, bad, error.text);
}

/* ---- between routes ---- */

static bool same_policy(const struct rdv_target_policy *a, const struct rdv_target_policy *b, const char **what)
{
	const struct rdv_breaker *x = &a->breaker, *y = &b->breaker;
	if (a->concurrency != b->concurrency || a->adaptive != b->adaptive ||
	    (a->adaptive && a->adaptive_max != b->adaptive_max))
		*what = "concurrency";
	else if (a->rate != b->rate)
		*what = "rate";
	else if (x->on != y->on || (x->on && (x->ratio != y->ratio || x->min_calls != y->min_calls ||
					      x->window_ms != y->window_ms || x->open_ms != y->open_ms ||
					      x->max_open_ms != y->max_open_ms || x->patience_ms != y->patience_ms)))
		*what = "breaker";
	else if (a->budget.on != b->budget.on ||
		 (a->budget.on && (a->budget.ratio != b->budget.ratio || a->budget.per_second != b->budget.per_second)))
		*what = "budget";
	else
		return true;
	return false;
}

/* Routes that share something (a name, a topic, a target), found by sorting: each is compared with the first of its
 * group. */
struct shared {
	char key[256];
	size_t route;
};

static int by_key(const void *a, const void *b)
{
	const struct shared *x = a, *y = b;
	int order = strcmp(x->key, y->key);
	return order ? order : (x->route > y->route) - (x->route < y->route);
}

typedef void compare_routes(const struct rdv_settings *s, const struct shared *first, const struct shared *other,
			    struct rdv_findings *f);

static void same_name(const struct rdv_settings *s, const struct shared *first, const struct shared *other,
		      struct rdv_findings *f)
{
	rdv_findings_add(f, s->routes[other->route].mark, false, "the route name '%s' stands twice (first at line %u)",
			 other->key, s->routes[first->route].mark.line);
}

static void same_topic(const struct rdv_settings *s, const struct shared *first, const struct shared *other,
		       struct rdv_findings *f)
{
	const struct rdv_route_settings *a = &s->routes[first->route], *b = &s->routes[other->route];
	if (a->source.partitions != b->source.partitions)
		rdv_findings_add(f, b->mark, false,
				 "topic '%s' has %lld partitions in route '%s' and %lld in route '%s': they must agree",
				 other->key, (long long)a->source.partitions, a->name, (long long)b->source.partitions,
				 b->name);
}

static void same_target(const struct rdv_settings *s, const struct shared *first, const struct shared *other,
			struct rdv_findings *f)
{
	const struct rdv_route_settings *a = &s->routes[first->route], *b = &s->routes[other->route];
	const char *what;
	if (!same_policy(&a->target, &b->target, &what))
		rdv_findings_add(f, b->mark, false,
				 "routes '%s' and '%s' share the target %s but differ in %s: make it equal, or "
				 "separate them by handler: { target: NAME }",
				 a->name, b->name, other->key, what);
}

static void name_key(const struct rdv_settings *s, size_t i, char out[256])
{
	snprintf(out, 256, "%s", s->routes[i].name);
}

static void topic_key(const struct rdv_settings *s, size_t i, char out[256])
{
	snprintf(out, 256, "%s", s->routes[i].source.topic ? s->routes[i].source.topic : "");
}

static void check_shared(const struct rdv_settings *s, void (*key)(const struct rdv_settings *, size_t, char[256]),
			 compare_routes *compare, struct rdv_findings *f)
{
	struct shared *all = calloc(s->route_count + 1, sizeof *all);
	if (!all) {
		rdv_findings_add(f, (struct rdv_mark){0, 0}, false, "out of memory");
		return;
	}
	for (size_t i = 0; i < s->route_count; i++) {
		all[i].route = i;
		key(s, i, all[i].key);
	}
	qsort(all, s->route_count, sizeof *all, by_key);
	size_t first = 0;
	for (size_t i = 1; i < s->route_count; i++) {
		if (strcmp(all[first].key, all[i].key) != 0)
			first = i;
		else if (all[i].key[0] && strcmp(all[i].key, "?") != 0)
			compare(s, &all[first], &all[i], f);
	}
	free(all);
}

void rdv_settings_check(struct rdv_settings *s, struct rdv_findings *f)
{
	check_security(s, f);
	check_listen(s, rdv_setting_mark(s, RDV_SECTION_ROOT, "listen"), f);
	if (s->retention.warm_ms < s->retention.hot_ms)
		rdv_findings_add(f, rdv_setting_mark(s, RDV_SECTION_DESK, "retention"), true,
				 "desk.retention: warm is shorter than hot, so letters go when hot ends");
	for (size_t i = 0; i < s->route_count; i++)
		check_route(s, &s->routes[i], f);
	check_shared(s, name_key, same_name, f);
	check_shared(s, topic_key, same_topic, f);
	check_shared(s, rdv_settings_target_name, same_target, f);
	rdv_kafka_check_routes(s, f);
}
