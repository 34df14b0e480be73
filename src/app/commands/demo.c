/* demo.c - redrive demo: real webhooks through a flaky service, live, and a sum at the end that must add up.
 *
 * The program runs its own server (engine, API) in a temporary directory and a downstream that is slow, fails,
 * throttles, dies for a while and rejects some types. Publishing ends after half of the time; what waits is then
 * finished, the rejected letters are replayed after a "fix", and everything is checked: account, order, attempts,
 * letters, replay. */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../../base/quantity.h"
#include "../demo_data.h"
#include "../demo_service.h"
#include "../output.h"
#include "../serve.h"
#include "commands.h"

#define ROUTE "webhooks"
#define TOPIC "github.webhooks"
#define KEYS_MAX 1024

static const struct argp_option options[] = {
	{"for", RDV_OPT_FOR, "DURATION", 0,
	 "End by itself after about so long (default: on Ctrl-C, or after 60s without a terminal)", 1},
	{"data", RDV_OPT_DATA, "DIR", 0, "Keep the state there instead of a temporary directory", 1},
	{"listen", RDV_OPT_LISTEN, "ADDR:PORT", 0, "Where the API listens (default: a free port)", 1},
	{"rate", RDV_OPT_RATE, "RATE", 0, "Messages published (default 60/s)", 1},
	{0},
};

struct last_of_key {
	struct rdv_slice key;
	uint64_t number;
};

struct demo {
	struct rdv_server server;
	struct rdv_logger logger;
	struct rdv_demo_service *service;   /* owns */
	struct rdv_demo_payloads *payloads; /* owns */
	char data[4096], url[128];
	bool temporary, terminal;
	double rate;
	int64_t length_ms; /* 0 = until Ctrl-C */
	int64_t began_ms;
	uint64_t published, expect_rejected, expect_poisoned;
	struct last_of_key last[KEYS_MAX];
	size_t key_count;
	uint64_t outage_calls; /* calls during the outage */
	bool outage_seen, down_seen;
	struct rdv_plan plan;
	const char *phase;
	int64_t drawn_ms;
};

static volatile sig_atomic_t interrupted; /* set by the signal handler only */

static void on_signal(int signal)
{
	(void)signal;
	interrupted = 1;
}

static int64_t elapsed(const struct demo *d)
{
	return rdv_mono_now().ms - d->began_ms;
}

/* ---- set-up ---- */

static int load_settings(struct demo *d, const char *listen, struct rdv_settings *s)
{
	char text[2048];
	struct rdv_findings findings = {0};
	snprintf(text, sizeof text,
		 "listen: '%s'\n"
		 "limits: { disk_free: 64MiB }\n"
		 "routes:\n"
		 "- name: " ROUTE "\n"
		 "  source: { topic: " TOPIC ", partitions: 4 }\n"
		 "  handler: { http: { url: 'http://127.0.0.1:%u/hooks', timeout: 2s } }\n"
		 "  concurrency: 16\n"
		 "  order: key\n"
		 "  retry: { attempts: 5, base: 200ms, cap: 1s }\n"
		 "  metadata: { tenant: 'header:Owner' }\n",
		 listen, rdv_demo_service_port(d->service));
	struct rdv_slice slice = rdv_slice_text(text);
	enum redrive_status status = rdv_settings_init(s);
	if (status == REDRIVE_OK)
		status = rdv_settings_load(s, "demo", &slice, &findings);
	for (size_t i = 0; i < findings.count; i++)
		fprintf(stderr, "demo: %s\n", findings.items[i].text);
	rdv_findings_done(&findings);
	s->data = d->data;
	return status == REDRIVE_OK ? 0 : 6;
}

static int choose_directory(struct demo *d, const char *given)
{
	if (given) {
		snprintf(d->data, sizeof d->data, "%s", given);
		return 0;
	}
	const char *tmp = getenv("TMPDIR");
	snprintf(d->data, sizeof d->data, "%s/redrive-demo.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(d->data))
		return rdv_command_fail(1, "'%s': %s", d->data, strerror(errno));
	d->temporary = true;
	return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info;
	(void)kind;
	(void)walk;
	return remove(path);
}

static int start(struct demo *d, const struct rdv_invocation *in)
{
	const char *listen = rdv_option(in, RDV_OPT_LISTEN);
	struct rdv_error error = {""};
	struct rdv_settings settings;
	if (rdv_demo_payloads_open(&d->payloads) != REDRIVE_OK)
		return rdv_command_fail(1, "the embedded payloads are damaged");
	if (rdv_demo_service_start(&d->service, &error) != REDRIVE_OK)
		return rdv_command_fail(1, "%s", error.text);
	int code = choose_directory(d, rdv_option(in, RDV_OPT_DATA));
	if (code == 0)
		code = load_settings(d, listen ? listen : "127.0.0.1:0", &settings);
	if (code)
		return code;
	d->server.logger = &d->logger;
	enum redrive_status status = rdv_server_start(&d->server, &settings, &error);
	if (status != REDRIVE_OK)
		return rdv_command_fail(rdv_status_info(status)->exit, "%s", error.text);
	rdv_server_url(&d->server, d->url);
	return 0;
}

static void stop(struct demo *d)
{
	if (d->server.engine)
		rdv_server_stop(&d->server);
	rdv_demo_service_stop(d->service);
	rdv_demo_payloads_close(d->payloads);
	if (d->temporary)
		nftw(d->data, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what is going on ---- */

static bool read_route(struct demo *d, struct rdv_route_status *out)
{
	struct rdv_route_status *routes;
	size_t count;
	if (rdv_engine_routes(d->server.engine, ROUTE, &routes, &count) != REDRIVE_OK)
		return false;
	*out = routes[0];
	free(routes);
	if (out->target_status.state == RDV_DOWN)
		d->down_seen = true;
	return true;
}

static void draw(struct demo *d, bool now)
{
	static const char *const breaker[] = {"up", "DOWN", "half"};
	struct rdv_route_status r;
	struct rdv_demo_books b;
	int64_t at = rdv_mono_now().ms;
	if (!now && at - d->drawn_ms < (d->terminal ? 200 : 1000))
		return;
	d->drawn_ms = at;
	if (!read_route(d, &r))
		return;
	rdv_demo_service_books(d->service, &b);
	const struct rdv_account *a = &r.account;
	if (!d->terminal) {
		fprintf(stderr,
			"%5.1fs %-10s received %" PRIu64 " acked %" PRIu64 " ready %" PRIu64 " waiting %" PRIu64
			" held %" PRIu64 " in flight %" PRIu64 " dead %" PRIu64 " | target %s, %" PRIu64 " calls/s\n",
			(double)elapsed(d) / 1000, d->phase, a->received, a->acked, a->ready, a->waiting, a->held,
			a->in_flight, a->dead, breaker[r.target_status.state], b.last_second);
		return;
	}
	fprintf(stderr,
		"\033[H\033[J\033[1mredrive demo\033[0m   %.1f s   %s\n\n"
		"  messages   received %-8" PRIu64 " acked %-8" PRIu64 " dead %-6" PRIu64 "\n"
		"             ready %-6" PRIu64 " waiting %-6" PRIu64 " held %-6" PRIu64 " in flight %-4" PRIu64 "\n"
		"  attempts   first %-8" PRIu64 " retries %-8" PRIu64 " failed %-8" PRIu64
		" uncharged (outage) %" PRIu64 "\n"
		"  target     %-5s  %" PRIu64 " calls/s   (service: %" PRIu64 " ok, %" PRIu64 " failed, %" PRIu64
		" throttled, %" PRIu64 " rejected, %" PRIu64 " refused)\n"
		"  order      %" PRIu64 " violations over %zu keys\n\n"
		"  API at %s   -   redrive top --server %s\n",
		(double)elapsed(d) / 1000, d->phase, a->received, a->acked, a->dead, a->ready, a->waiting, a->held,
		a->in_flight, a->first, a->retries, a->failed, a->outage, breaker[r.target_status.state], b.last_second,
		b.acked, b.failed, b.throttled, b.rejected, b.refused, b.order_violations + b.side_by_side,
		d->key_count, d->url, d->url);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- traffic ---- */

static uint64_t previous_of(struct demo *d, struct rdv_slice key, uint64_t number)
{
	for (size_t i = 0; i < d->key_count; i++)
		if (rdv_slice_equal(d->last[i].key, key)) {
			uint64_t previous = d->last[i].number;
			d->last[i].number = number;
			return previous;
		}
	if (d->key_count < KEYS_MAX)
		d->last[d->key_count++] = (struct last_of_key){key, number};
	return 0;
}

static int publish_one(struct demo *d)
{
	struct rdv_demo_payload p;
	uint64_t number = d->published + 1;
	if (!rdv_demo_payload(d->payloads, (size_t)(d->published % rdv_demo_payload_count(d->payloads)), &p))
		return rdv_command_fail(1, "the embedded payloads are damaged");
	char number_text[24], previous_text[24];
	snprintf(number_text, sizeof number_text, "%" PRIu64, number);
	snprintf(previous_text, sizeof previous_text, "%" PRIu64, p.key.size ? previous_of(d, p.key, number) : 0);
	const uint8_t *slash = p.key.size ? memchr(p.key.data, '/', p.key.size) : NULL;
	struct rdv_header headers[] = {
		{rdv_slice_text("Event"), p.event},
		{rdv_slice_text("Number"), rdv_slice_text(number_text)},
		{rdv_slice_text("Previous"), rdv_slice_text(previous_text)},
		{rdv_slice_text("Owner"), rdv_slice(p.key.data, slash ? (size_t)(slash - p.key.data) : 0)},
	};
	struct rdv_message m = {.has_key = p.key.size > 0,
				.key = p.key,
				.content_type = rdv_slice_text("application/json"),
				.body = p.body,
				.headers = headers,
				.header_count = slash ? 4 : 3};
	struct rdv_published_at at;
	struct rdv_error error = {""};
	enum redrive_status status =
		rdv_engine_publish_wait(d->server.engine, rdv_slice_text(TOPIC), &m, 1, &at, &error);
	if (status != REDRIVE_OK)
		return rdv_command_fail(1, "publishing: %s", error.text[0] ? error.text : redrive_status_text(status));
	d->published = number;
	if (rdv_demo_service_rejects(p.event))
		d->expect_rejected++;
	else if (rdv_demo_service_poisoned(number))
		d->expect_poisoned++;
	return 0;
}

/* The service dies in the second fifth of the time, or for 6 s of every 30. */
static void steer_outage(struct demo *d, int64_t publish_ms)
{
	int64_t at = elapsed(d);
	bool dead = d->length_ms ? at > publish_ms * 2 / 5 && at < publish_ms * 7 / 10
				 : at % 30000 > 12000 && at % 30000 < 18000;
	struct rdv_demo_books b;
	rdv_demo_service_books(d->service, &b);
	d->outage_calls = b.refused;
	d->outage_seen = d->outage_seen || dead;
	d->phase = dead ? "the service is dead" : "traffic";
	rdv_demo_service_dead(d->service, dead);
}

static int traffic(struct demo *d)
{
	int64_t publish_ms = d->length_ms / 2;
	int code = 0;
	while (code == 0 && !interrupted && (!d->length_ms || elapsed(d) < publish_ms) &&
	       d->published + 1 < RDV_DEMO_MESSAGES_MAX) {
		uint64_t due = (uint64_t)((double)elapsed(d) * d->rate / 1000);
		steer_outage(d, publish_ms);
		for (unsigned n = 0; code == 0 && d->published < due && n < 100; n++)
			code = publish_one(d);
		draw(d, false);
		pause_ms(5);
	}
	rdv_demo_service_dead(d->service, false);
	return code;
}

/* Until nothing is live any more. */
static int finish(struct demo *d, int64_t limit_ms)
{
	struct rdv_route_status r;
	int64_t until = rdv_mono_now().ms + limit_ms;
	d->phase = "finishing what waits";
	while (rdv_mono_now().ms < until && read_route(d, &r)) {
		const struct rdv_account *a = &r.account;
		if (a->received == d->published && a->ready + a->waiting + a->held + a->in_flight == 0 &&
		    rdv_desk_waiting(d->server.api ? rdv_engine_desk(d->server.engine) : NULL) == 0)
			return 0;
		draw(d, false);
		pause_ms(20);
	}
	return rdv_command_fail(1, "messages were still unfinished after %lld s", (long long)limit_ms / 1000);
}

/* ---- the replay ---- */

static int replay(struct demo *d)
{
	struct rdv_desk *desk = rdv_engine_desk(d->server.engine);
	struct rdv_plan_request request = {.name = "the product is known now",
					   .q = "route:" ROUTE " reason:rejected",
					   .rate = 200,
					   .author = "demo"};
	struct rdv_error error = {""};
	d->phase = "replaying what was rejected, after a fix";
	rdv_demo_service_fixed(d->service, true);
	enum redrive_status status = rdv_plan_create(desk, &request, &d->plan, &error);
	struct rdv_plan frozen = d->plan;
	if (status == REDRIVE_OK)
		status = rdv_plan_act(desk, frozen.id, RDV_PLAN_APPROVE, frozen.digest, 0, "demo", &d->plan, &error);
	if (status == REDRIVE_OK)
		status = rdv_plan_act(desk, frozen.id, RDV_PLAN_START, NULL, 0, "demo", &d->plan, &error);
	if (status != REDRIVE_OK)
		return rdv_command_fail(1, "replay: %s", error.text[0] ? error.text : redrive_status_text(status));
	int64_t until = rdv_mono_now().ms + 20000;
	while (rdv_mono_now().ms < until) {
		if (rdv_plan_get(desk, frozen.id, &d->plan) == REDRIVE_OK && d->plan.state >= RDV_PLAN_FINISHED)
			return 0;
		draw(d, false);
		pause_ms(20);
	}
	return rdv_command_fail(1, "the replay did not end");
}

/* ---- the sum ---- */

struct died {
	uint64_t rejected, exhausted, other;
	char example[27];
};

static void count_letter(void *ctx, const struct rdv_letter *l)
{
	struct died *d = ctx;
	if (l->envelope.reason == RDV_REASON_REJECTED)
		d->rejected++;
	else if (l->envelope.reason == RDV_REASON_EXHAUSTED)
		d->exhausted++;
	else
		d->other++;
	if (l->envelope.reason == RDV_REASON_EXHAUSTED)
		memcpy(d->example, l->id, sizeof d->example);
}

static bool count_letters(struct demo *d, struct died *died)
{
	char cursor[RDV_CURSOR_TEXT] = "";
	struct rdv_query all = {0};
	struct rdv_error error = {""};
	do {
		if (rdv_desk_list(rdv_engine_desk(d->server.engine), &all, false, 1000, cursor, count_letter, died,
				  &error) != REDRIVE_OK)
			return false;
	} while (cursor[0]);
	return true;
}

static bool check(const char *what, bool holds)
{
	printf("  %-4s %s\n", holds ? "ok" : "NO", what);
	return holds;
}

static int summary(struct demo *d)
{
	struct rdv_route_status r;
	struct rdv_demo_books b;
	struct died died = {0};
	char line[256];
	if (!read_route(d, &r) || !count_letters(d, &died))
		return rdv_command_fail(1, "the result cannot be read");
	rdv_demo_service_books(d->service, &b);
	const struct rdv_account *a = &r.account;
	const struct rdv_plan *p = &d->plan;
	printf("received %" PRIu64 " = acked %" PRIu64 " + ready %" PRIu64 " + waiting %" PRIu64 " + held %" PRIu64
	       " + in_flight %" PRIu64 " + dead %" PRIu64 " + dropped %" PRIu64 " + revoked %" PRIu64 "\n",
	       a->received, a->acked, a->ready, a->waiting, a->held, a->in_flight, a->dead, a->dropped, a->revoked);
	printf("died: %" PRIu64 " rejected (event types the service does not know), %" PRIu64
	       " exhausted (messages it always fails on), %" PRIu64 " for another reason%s%s\n",
	       died.rejected, died.exhausted, died.other, died.example[0] ? "; for example " : "", died.example);
	printf("replay %s: selected %" PRIu64 " = acked %" PRIu64 " + dead again %" PRIu64 " + skipped %" PRIu64
	       " + unknown %" PRIu64 " + not reached %" PRIu64 "\n\n",
	       p->id, p->selected, p->acked, p->dead_again, p->skipped, p->unknown, p->not_reached);
	uint64_t sum = a->acked + a->ready + a->waiting + a->held + a->in_flight + a->dead + a->dropped + a->revoked;
	bool good =
		check("every message published is accounted for", a->received == d->published && sum == a->received);
	good = check("everything is finished", a->ready + a->waiting + a->held + a->in_flight == 0) && good;
	snprintf(line, sizeof line,
		 "the service handled exactly what was acked (%" PRIu64 " messages, %" PRIu64 " twice)",
		 b.acked_messages, b.repeated);
	good = check(line, b.acked_messages == a->acked + p->acked) && good;
	snprintf(line, sizeof line,
		 "order by key: %" PRIu64 " violations, %" PRIu64 " calls of one key side by side, %zu keys",
		 b.order_violations, b.side_by_side, d->key_count);
	good = check(line, b.order_violations + b.side_by_side == 0) && good;
	good = check("only what must die died",
		     died.rejected == d->expect_rejected && died.exhausted == d->expect_poisoned && died.other == 0) &&
	       good;
	snprintf(line, sizeof line,
		 "the outage burnt no attempt: %" PRIu64 " calls reached the dead service, %" PRIu64
		 " attempts uncharged",
		 b.refused, a->outage);
	good = check(line, !d->outage_seen || (a->outage >= b.refused && b.refused <= 120)) && good;
	uint64_t replayed = p->acked + p->dead_again + p->skipped + p->unknown + p->not_reached;
	good = check("the replay adds up, and all of it was acked",
		     replayed == p->selected && p->acked == p->selected) &&
	       good;
	return good ? 0 : 1;
}

/* ---- the command ---- */

static int read_options(struct demo *d, const struct rdv_invocation *in)
{
	const char *length = rdv_option(in, RDV_OPT_FOR), *rate = rdv_option(in, RDV_OPT_RATE);
	d->terminal = isatty(STDERR_FILENO) && isatty(STDOUT_FILENO);
	d->length_ms = d->terminal ? 0 : 60000;
	d->rate = 60;
	if (length && (rdv_duration_parse(rdv_slice_text(length), &d->length_ms) != REDRIVE_OK || d->length_ms < 5000 ||
		       d->length_ms > 86400000))
		return rdv_command_fail(2, "--for %s: give a duration from 5s to 24h", length);
	if (rate && (rdv_rate_parse(rdv_slice_text(rate), &d->rate) != REDRIVE_OK || d->rate < 1 || d->rate > 2000))
		return rdv_command_fail(2, "--rate %s: give a rate from 1/s to 2000/s", rate);
	return 0;
}

static int show(struct demo *d)
{
	fprintf(stderr, "redrive: demo at %s%s\n", d->url, d->length_ms ? "" : "; Ctrl-C ends it with the sum");
	d->began_ms = rdv_mono_now().ms;
	d->phase = "traffic";
	int code = traffic(d);
	if (code == 0)
		code = finish(d, d->length_ms > 120000 ? d->length_ms / 2 : 60000);
	if (code == 0)
		code = replay(d);
	d->phase = "done";
	draw(d, true);
	return code ? code : summary(d);
}

static int run(struct rdv_invocation *in)
{
	struct demo *d = calloc(1, sizeof *d);
	struct rdv_error error = {""};
	if (!d || rdv_logger_init(&d->logger, "text", "error", &error) != REDRIVE_OK)
		return rdv_command_fail(1, "out of memory");
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	int code = read_options(d, in);
	if (code == 0)
		code = start(d, in);
	if (code == 0)
		code = show(d);
	stop(d);
	rdv_logger_done(&d->logger);
	free(d);
	return code;
}

const struct rdv_command rdv_command_demo = {
	.name = "demo",
	.arguments = "",
	.doc = "Real webhooks through a flaky service: an outage, poison, a replay, and a sum that adds up",
	.options = options,
	.run = run,
};
