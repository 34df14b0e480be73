/* status.h - error codes: one table of name, text, class, HTTP status and exit code.
 *
 * Every fallible function of the house returns `enum redrive_status` (public, in redrive.h) and is
 * marked RDV_MUST_CHECK. Where a person will read the reason, the function also takes a
 * `struct rdv_error *`, to which each layer adds its words in front:
 * "open journal 'x': segment 7: checksum at 4096". Functions of libraries never print or log.
 * Any thread may call everything here. */
#ifndef RDV_BASE_STATUS_H
#define RDV_BASE_STATUS_H
#include <redrive.h>

#define RDV_MUST_CHECK __attribute__((warn_unused_result))
#define RDV_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

enum rdv_status_class {
	RDV_CLASS_OK,
	RDV_CLASS_RETRY,  /* the same call may succeed later */
	RDV_CLASS_CALLER, /* the caller's mistake: never repeat it unchanged */
	RDV_CLASS_NEVER,  /* will not succeed, and is nobody's mistake (not found, conflict) */
	RDV_CLASS_OURS,   /* our fault, or our machine's */
};

struct rdv_status_info {
	const char *name; /* "not_found": stable, for JSON and logs */
	const char *text; /* "not found": for people */
	enum rdv_status_class class;
	int http; /* HTTP status of an answer with it */
	int exit; /* exit code of a command that ends with it */
};

/* Never NULL: a value out of range gives REDRIVE_INTERNAL's row. */
const struct rdv_status_info *rdv_status_info(enum redrive_status status);

/* A text that layers extend at the front. Zero-initialise; no allocation, cut at its size. */
struct rdv_error {
	char text[512];
};

/* Sets the text. Returns `status`, so that `return rdv_error_set(e, REDRIVE_IO, "...")` works; e may be NULL. */
enum redrive_status rdv_error_set(struct rdv_error *e, enum redrive_status status, const char *fmt, ...)
	RDV_PRINTF(3, 4);
/* Puts "<fmt>: " in front of the text, or of the status's words if there is none. Returns `status`; e may be NULL. */
enum redrive_status rdv_error_prefix(struct rdv_error *e, enum redrive_status status, const char *fmt, ...)
	RDV_PRINTF(3, 4);
/* Puts more behind the text, "<text>; <more>"; an empty one becomes `more`. Returns `status`; e may be NULL. */
enum redrive_status rdv_error_add(struct rdv_error *e, enum redrive_status status, const char *more);
/* Sets the text to "<fmt>: <strerror(errno_value)>" and returns the status that fits (ENOSPC, EDQUOT: FULL, else IO).
 */
enum redrive_status rdv_error_errno(struct rdv_error *e, int errno_value, const char *fmt, ...) RDV_PRINTF(3, 4);
#endif
