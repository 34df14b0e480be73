/* serve.c - redrive serve: runs until SIGTERM or SIGINT, reloads on SIGHUP, tells systemd.
 *
 * Signals are blocked in every thread and taken by this one with sigtimedwait, so that no handler ever runs in the
 * middle of anything. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef REDRIVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif
#include "../../base/quantity.h"
#include "../serve.h"
#include "commands.h"

static const struct argp_option options[] = {
	{"config", 'c', "FILE", 0, "Configuration (default ./redrive.yaml, else built-in defaults and no routes)", 1},
	{"data", RDV_OPT_DATA, "DIR", 0, "State (default ./redrive-data); one process at a time", 1},
	{"listen", RDV_OPT_LISTEN, "ADDR:PORT", 0, "Overrides listen; port 0 = any free port", 1},
	{"port-file", RDV_OPT_PORT_FILE, "FILE", 0, "The port is written there when ready", 1},
	{"log", RDV_OPT_LOG, "FORMAT", 0, "text (default on a terminal) or json: then every line is an object", 1},
	{"log-level", RDV_OPT_LOG_LEVEL, "LEVEL", 0, "error, warning, info (default) or debug", 1},
	{"drain", RDV_OPT_DRAIN, "DURATION", 0, "How long calls in flight may go on at the end (default 30s)", 1},
	{"only", RDV_OPT_ONLY, "PART", 0,
	 "runtime: consume, and leave the letters of routes on Kafka to another instance's desk; desk: only that desk",
	 1},
	{0},
};

static void notify(const char *state)
{
#ifdef REDRIVE_SYSTEMD
	sd_notify(0, state);
#else
	(void)state;
#endif
}

/* Type=notify-reload believes a reload only with the time at which it began. */
static void tell_reloading(void)
{
	char state[96];
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld",
		 (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	notify(state);
}

/* Milliseconds between two signs of life for systemd's watchdog, 0 = it asks for none. */
static int64_t watchdog_ms(void)
{
	uint64_t us = 0;
#ifdef REDRIVE_SYSTEMD
	if (sd_watchdog_enabled(0, &us) <= 0)
		us = 0;
#endif
	return (int64_t)(us / 2000);
}

/* Where the findings of a load are said: as the reason why there is no start, or as an event. */
struct outlet {
	void (*say)(void *logger, int level, const char *text);
	struct rdv_logger *logger;
};

static void say_findings(const struct outlet *to, const char *file, const struct rdv_findings *f)
{
	struct rdv_buffer line;
	rdv_buffer_init(&line, 0);
	for (size_t i = 0; i < f->count; i++)
		to->say(to->logger, f->items[i].warning ? RDV_LEVEL_WARNING : RDV_LEVEL_ERROR,
			rdv_finding_format(file, &f->items[i], &line));
	rdv_buffer_done(&line);
}

static const char *config_file(const struct rdv_invocation *in)
{
	const char *file = rdv_option(in, 'c');
	return file || access("redrive.yaml", F_OK) != 0 ? file : "redrive.yaml";
}

/* The options that win over the file. */
static int take_options(const struct rdv_invocation *in, struct rdv_settings *s, const struct outlet *to)
{
	const char *value;
	struct rdv_findings findings = {0};
	char wrong[256];
	if ((value = rdv_option(in, RDV_OPT_DATA)))
		s->data = rdv_settings_text(s, rdv_slice_text(value));
	if ((value = rdv_option(in, RDV_OPT_DRAIN)) &&
	    (rdv_duration_parse(rdv_slice_text(value), &s->drain_ms) != REDRIVE_OK || s->drain_ms > 86400000)) {
		snprintf(wrong, sizeof wrong, "redrive: --drain %s: give a duration of at most 24h, like 30s", value);
		to->say(to->logger, RDV_LEVEL_ERROR, wrong);
		return 2;
	}
	if ((value = rdv_option(in, RDV_OPT_LISTEN)))
		rdv_settings_set_listen(s, value, &findings);
	say_findings(to, "--listen", &findings);
	int code = findings.errors ? 6 : 0;
	rdv_findings_done(&findings);
	return code;
}

/* The settings of file and options. Exit code 0, or told and returned. */
static int load(const struct rdv_invocation *in, struct rdv_settings *s, const struct outlet *to)
{
	const char *file = config_file(in);
	struct rdv_findings findings = {0};
	enum redrive_status status = rdv_settings_init(s);
	if (status == REDRIVE_OK && file)
		status = rdv_settings_load(s, file, NULL, &findings);
	say_findings(to, file, &findings);
	rdv_findings_done(&findings);
	return status == REDRIVE_OK ? take_options(in, s, to) : rdv_status_info(status)->exit;
}

/* Says why there is no start; returns `code`. */
static int fail(struct rdv_logger *logger, int code, const char *fmt, ...) RDV_PRINTF(3, 4);
static int fail(struct rdv_logger *logger, int code, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	int used = snprintf(text, sizeof text, "redrive: ");
	va_start(args, fmt);
	vsnprintf(text + used, sizeof text - (size_t)used, fmt, args);
	va_end(args);
	rdv_logger_tell(logger, RDV_LEVEL_ERROR, text);
	return code;
}

static int write_port_file(struct rdv_logger *logger, const char *file, uint16_t port)
{
	char temporary[4096];
	snprintf(temporary, sizeof temporary, "%s.%d", file, (int)getpid());
	FILE *f = fopen(temporary, "we");
	bool good = f && fprintf(f, "%u\n", port) > 0;
	if (f && fclose(f) != 0)
		good = false;
	if (good && rename(temporary, file) == 0)
		return 0;
	int code = fail(logger, 1, "port file '%s': %s", file, strerror(errno));
	unlink(temporary);
	return code;
}

static void reload(const struct rdv_invocation *in, struct rdv_server *server, struct rdv_logger *logger)
{
	const struct outlet to = {rdv_logger_say, logger};
	const char *file = config_file(in);
	struct rdv_settings settings;
	struct rdv_findings findings = {0};
	tell_reloading();
	bool done = load(in, &settings, &to) == 0 && rdv_server_reload(server, &settings, &findings);
	say_findings(&to, file ? file : "reload", &findings);
	rdv_findings_done(&findings);
	if (done)
		rdv_logger_printf(logger, RDV_LEVEL_INFO, "reloaded: %zu routes", server->settings.route_count);
	else
		rdv_logger_printf(logger, RDV_LEVEL_ERROR, "reload refused for the reasons above; nothing was changed");
	rdv_settings_done(&settings);
	notify("READY=1");
}

static void nothing(struct rdv_engine *e, void *ctx)
{
	(void)e;
	(void)ctx;
}

/* A sign of life only if the core thread answers. */
static void feed_watchdog(struct rdv_server *server, int64_t every, int64_t *next)
{
	int64_t now = rdv_mono_now().ms;
	if (every == 0 || now < *next)
		return;
	if (rdv_engine_call(server->engine, nothing, NULL) == REDRIVE_OK)
		notify("WATCHDOG=1");
	*next = now + every;
}

static void wait_for_end(const struct rdv_invocation *in, struct rdv_server *server, const sigset_t *signals)
{
	int64_t every = watchdog_ms(), next = 0;
	struct timespec tick = {.tv_sec = every > 0 && every < 1000 ? 0 : 1,
				.tv_nsec = every > 0 && every < 1000 ? every * 1000000 : 0};
	while (!server->ended) {
		int signal = sigtimedwait(signals, NULL, &tick);
		if (signal == SIGHUP)
			reload(in, server, server->logger);
		else if (signal == SIGTERM || signal == SIGINT)
			break;
		feed_watchdog(server, every, &next);
	}
}

static void wake_main(void *ctx)
{
	(void)ctx;
	kill(getpid(), SIGTERM);
}

/* What to do about a server that does not start, as far as the error does not say it; NULL: it does. */
static const char *advice(enum redrive_status status)
{
	switch (status) {
	case REDRIVE_CORRUPT:
		return "nothing was changed. 'redrive journal check DIR' lists the damage; with --repair it copies "
		       "the segments aside and keeps what is whole";
	case REDRIVE_VERSION:
		return "nothing was changed. This data was written by a newer version; start that one";
	default:
		return NULL;
	}
}

static int start(struct rdv_server *server, struct rdv_settings *settings)
{
	struct rdv_error error = {""};
	enum redrive_status status = rdv_server_start(server, settings, &error);
	const char *next = advice(status);
	if (status == REDRIVE_OK)
		return 0;
	fail(server->logger, 1, "%s", error.text);
	if (next)
		fail(server->logger, 1, "%s", next);
	return rdv_status_info(status)->exit;
}

static void tell_ready(struct rdv_server *server)
{
	char url[128], text[160];
	rdv_server_url(server, url);
	snprintf(text, sizeof text, "redrive: ready at %s", url);
	rdv_logger_tell(server->logger, RDV_LEVEL_INFO, text);
	notify("READY=1");
}

static int serve(const struct rdv_invocation *in, struct rdv_server *server, struct rdv_settings *settings,
		 const sigset_t *signals)
{
	server->on_end = wake_main;
	int code = start(server, settings);
	if (code)
		return code;
	const char *port_file = rdv_option(in, RDV_OPT_PORT_FILE);
	if (port_file)
		code = write_port_file(server->logger, port_file, rdv_api_port(server->api));
	if (code == 0) {
		tell_ready(server);
		wait_for_end(in, server, signals);
	}
	notify("STOPPING=1");
	enum redrive_status status = rdv_server_stop(server);
	return code ? code : rdv_status_info(status)->exit;
}

/* A thousand clients and as many handler connections need descriptors: as many as we may have. */
static void raise_file_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int take_part(const struct rdv_invocation *in, struct rdv_server *server)
{
	static const char *const parts[] = {[RDV_SERVER_RUNTIME] = "runtime", [RDV_SERVER_DESK] = "desk"};
	const char *value = rdv_option(in, RDV_OPT_ONLY);
	for (int i = RDV_SERVER_RUNTIME; value && i <= RDV_SERVER_DESK; i++)
		if (strcmp(value, parts[i]) == 0)
			server->only = (enum rdv_server_part)i;
	if (value && server->only == RDV_SERVER_ALL)
		return fail(server->logger, 2, "--only %s: give runtime or desk", value);
	return 0;
}

static int run(struct rdv_invocation *in)
{
	struct rdv_settings settings;
	struct rdv_logger logger;
	struct rdv_error error = {""};
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (rdv_logger_init(&logger, rdv_option(in, RDV_OPT_LOG), rdv_option(in, RDV_OPT_LOG_LEVEL), &error) !=
	    REDRIVE_OK)
		return rdv_command_fail(2, "%s", error.text);
	raise_file_limit();
	const struct outlet to = {rdv_logger_tell, &logger};
	int code = load(in, &settings, &to);
	struct rdv_server server = {.logger = &logger};
	if (code == 0)
		code = take_part(in, &server);
	if (code == 0)
		code = serve(in, &server, &settings, &signals);
	rdv_settings_done(&settings);
	rdv_logger_done(&logger);
	return code;
}

const struct rdv_command rdv_command_serve = {
	.name = "serve",
	.arguments = "",
	.doc = "Run until SIGTERM or SIGINT; SIGHUP reads the configuration again",
	.options = options,
	.run = run,
};
