/* redrive.h - the public C API of Redrive (under construction; see src/library.c). */
#ifndef REDRIVE_H
#define REDRIVE_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REDRIVE_API __attribute__((visibility("default")))
#define REDRIVE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define REDRIVE_API
#define REDRIVE_MUST_CHECK
#endif

/* What every fallible call answers. redrive_status_text() says it in words. */
enum redrive_status {
	REDRIVE_OK = 0,
	REDRIVE_INVALID,      /* an argument, a field or a body that is not acceptable: the caller's mistake */
	REDRIVE_USAGE,        /* the command line is wrong */
	REDRIVE_NOT_FOUND,    /* no such message, route, letter, file */
	REDRIVE_CONFLICT,     /* the state does not allow it (an expired lease, a second start) */
	REDRIVE_REFUSED,      /* a check said no (configuration error, failed preflight) */
	REDRIVE_TOO_LARGE,    /* over a configured limit */
	REDRIVE_UNAUTHORIZED, /* no or a wrong token */
	REDRIVE_FORBIDDEN,    /* a token without the right or scope, a foreign origin */
	REDRIVE_FULL,         /* no room now: journal, queue; try again later */
	REDRIVE_CLOSED,       /* shutting down; try again later, elsewhere */
	REDRIVE_TIMEOUT,      /* it did not happen in time */
	REDRIVE_UNREACHABLE,  /* the server cannot be reached */
	REDRIVE_BUSY,         /* another process holds the data directory */
	REDRIVE_IO,           /* a file or network call failed */
	REDRIVE_FAILED,       /* the log has FAILED: nothing can be recorded until a restart */
	REDRIVE_CORRUPT,      /* stored bytes are damaged */
	REDRIVE_VERSION,      /* stored bytes are of a newer version */
	REDRIVE_NO_MEMORY,
	REDRIVE_INTERNAL,     /* a defect of ours */
	REDRIVE_STATUS_COUNT
};

/* A short English text, static. Any value is safe to pass. */
REDRIVE_API const char *redrive_status_text(enum redrive_status status);

#ifdef __cplusplus
}
#endif
#endif
