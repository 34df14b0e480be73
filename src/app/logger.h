/* logger.h - the daemon's lines on standard error, as text for people or JSON for machines. Any thread.
 *
 * With --log json every line is a JSON object. Without --log it is JSON where standard error is no terminal, but for
 * what the one who starts the program waits for or must read (rdv_logger_tell): that stays text. */
#ifndef RDV_APP_LOGGER_H
#define RDV_APP_LOGGER_H
#include <pthread.h>
#include "../base/bytes.h"

enum rdv_level { RDV_LEVEL_ERROR, RDV_LEVEL_WARNING, RDV_LEVEL_INFO, RDV_LEVEL_DEBUG, RDV_LEVEL_COUNT };

struct rdv_logger {
	pthread_mutex_t mutex;
	bool json;  /* events are JSON */
	bool asked; /* by --log json: everything is */
	int level;  /* lines above it are not printed */
};

/* format: "text", "json" or NULL (text on a terminal); level: error, warning, info, debug or NULL (info). INVALID names
 * what is allowed. */
enum redrive_status rdv_logger_init(struct rdv_logger *l, const char *format, const char *level,
				    struct rdv_error *error) RDV_MUST_CHECK;
void rdv_logger_done(struct rdv_logger *l);
/* The `say` of engine and desk: ctx is the logger. */
void rdv_logger_say(void *ctx, int level, const char *text);
/* The ready line, and why there will be none: whatever the level, and as `text` stands unless JSON was asked for. */
void rdv_logger_tell(void *ctx, int level, const char *text);
void rdv_logger_printf(struct rdv_logger *l, int level, const char *fmt, ...) RDV_PRINTF(3, 4);
#endif
