/* logger.c - one line per event, written whole. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../base/clock.h"
#include "logger.h"

static const char *const level_names[RDV_LEVEL_COUNT] = {"error", "warning", "info", "debug"};

enum redrive_status rdv_logger_init(struct rdv_logger *l, const char *format, const char *level,
				    struct rdv_error *error)
{
	l->json = !isatty(STDERR_FILENO);
	l->asked = format && strcmp(format, "json") == 0;
	l->level = RDV_LEVEL_INFO;
	if (format && strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
		return rdv_error_set(error, REDRIVE_USAGE, "--log %s: allowed are text and json", format);
	if (format)
		l->json = l->asked;
	for (int i = 0; level; i++) {
		if (i == RDV_LEVEL_COUNT)
			return rdv_error_set(error, REDRIVE_USAGE,
					     "--log-level %s: allowed are error, warning, info, debug", level);
		if (strcmp(level, level_names[i]) == 0) {
			l->level = i;
			break;
		}
	}
	pthread_mutex_init(&l->mutex, NULL);
	return REDRIVE_OK;
}

void rdv_logger_done(struct rdv_logger *l)
{
	pthread_mutex_destroy(&l->mutex);
}

/* Owned text, NULL without memory. A file's name may hold bytes that are no UTF-8: JSON cannot. */
static char *make_json(const char *at, int level, const char *text)
{
	char *clean = strdup(text);
	bool valid = rdv_utf8_valid(rdv_slice_text(text));
	for (char *p = clean; p && !valid && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	json_t *line =
		clean ? json_pack("{s:s, s:s, s:s}", "at", at, "level", level_names[level], "text", clean) : NULL;
	char *json = line ? json_dumps(line, JSON_COMPACT) : NULL;
	json_decref(line);
	free(clean);
	return json;
}

static void write_line(struct rdv_logger *l, int level, const char *text)
{
	char at[25];
	rdv_wall_format(rdv_wall_now(), at);
	char *json = l->json ? make_json(at, level, text) : NULL;
	pthread_mutex_lock(&l->mutex);
	if (json)
		fprintf(stderr, "%s\n", json);
	else
		fprintf(stderr, "%s %s: %s\n", at, level_names[level], text);
	pthread_mutex_unlock(&l->mutex);
	free(json);
}

void rdv_logger_say(void *ctx, int level, const char *text)
{
	struct rdv_logger *l = ctx;
	if (level <= l->level && level >= 0)
		write_line(l, level, text);
}

void rdv_logger_tell(void *ctx, int level, const char *text)
{
	struct rdv_logger *l = ctx;
	if (l->asked) {
		write_line(l, level, text);
		return;
	}
	pthread_mutex_lock(&l->mutex);
	fprintf(stderr, "%s\n", text);
	pthread_mutex_unlock(&l->mutex);
}

void rdv_logger_printf(struct rdv_logger *l, int level, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	rdv_logger_say(l, level, text);
}
