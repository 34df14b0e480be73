/* status.c - the table of error codes, and error texts that grow at the front.
 *
 * One row per enum redrive_status; a compile-time check keeps the table as long as the enum, and
 * rows are placed by designator, so that a new code cannot shift the others. The HTTP status and the
 * exit code of a row are what the interfaces promise, so changing one changes the contract.
 *
 * Error texts are formatted aside before they are stored, so that the old text may be among the
 * arguments. They are cut at a character's boundary; the front, which the outer layers wrote, stays.
 * Nothing here allocates or fails; any thread. */
#include "status.h"
#include "bytes.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const struct rdv_status_info infos[] = {
	[REDRIVE_OK] = {"ok", "done", RDV_CLASS_OK, 200, 0},
	[REDRIVE_INVALID] = {"invalid", "not acceptable", RDV_CLASS_CALLER, 422, 1},
	[REDRIVE_USAGE] = {"usage", "wrong use", RDV_CLASS_CALLER, 400, 2},
	[REDRIVE_NOT_FOUND] = {"not_found", "not found", RDV_CLASS_NEVER, 404, 3},
	[REDRIVE_CONFLICT] = {"conflict", "the state does not allow it", RDV_CLASS_NEVER, 409, 6},
	[REDRIVE_REFUSED] = {"refused", "refused by a check", RDV_CLASS_CALLER, 409, 6},
	[REDRIVE_TOO_LARGE] = {"too_large", "over a limit", RDV_CLASS_CALLER, 413, 1},
	[REDRIVE_UNAUTHORIZED] = {"unauthorized", "no valid token", RDV_CLASS_CALLER, 401, 5},
	[REDRIVE_FORBIDDEN] = {"forbidden", "not allowed", RDV_CLASS_CALLER, 403, 5},
	[REDRIVE_FULL] = {"full", "no room now", RDV_CLASS_RETRY, 503, 1},
	[REDRIVE_CLOSED] = {"closed", "shutting down", RDV_CLASS_RETRY, 503, 1},
	[REDRIVE_TIMEOUT] = {"timeout", "not done in time", RDV_CLASS_RETRY, 503, 1},
	[REDRIVE_UNREACHABLE] = {"unreachable", "cannot be reached", RDV_CLASS_RETRY, 502, 4},
	[REDRIVE_BUSY] = {"busy", "held by another process", RDV_CLASS_RETRY, 503, 1},
	[REDRIVE_IO] = {"io", "input or output failed", RDV_CLASS_OURS, 500, 1},
	[REDRIVE_FAILED] = {"failed", "the log has failed, a restart is needed", RDV_CLASS_OURS, 503, 1},
	[REDRIVE_CORRUPT] = {"corrupt", "stored bytes are damaged", RDV_CLASS_OURS, 500, 6},
	[REDRIVE_VERSION] = {"version", "stored by a newer version", RDV_CLASS_NEVER, 500, 6},
	[REDRIVE_NO_MEMORY] = {"no_memory", "out of memory", RDV_CLASS_RETRY, 503, 1},
	[REDRIVE_INTERNAL] = {"internal", "internal error", RDV_CLASS_OURS, 500, 1},
};
_Static_assert(sizeof infos / sizeof infos[0] == REDRIVE_STATUS_COUNT, "every status has its row");

const struct rdv_status_info *rdv_status_info(enum redrive_status status)
{
	unsigned i = (unsigned)status;

	return &infos[i < REDRIVE_STATUS_COUNT ? i : (unsigned)REDRIVE_INTERNAL];
}

const char *redrive_status_text(enum redrive_status status)
{
	return rdv_status_info(status)->text;
}

/* Stores `size` bytes, whole characters only. `text` does not overlap e. */
static void store(struct rdv_error *e, const char *text, size_t size)
{
	struct rdv_slice cut = rdv_slice_cut_utf8(rdv_slice(text, size), sizeof e->text - 1);

	rdv_slice_to_text(cut, e->text, sizeof e->text);
}

/* Formats into `out`; the size of what is there, which is less than `size`. */
static size_t format(char *out, size_t size, const char *fmt, va_list args)
{
	int n = vsnprintf(out, size, fmt, args);

	if (n < 0) {
		out[0] = '\0';
		return 0;
	}
	return (size_t)n < size ? (size_t)n : size - 1;
}

/* "<front><between><back>", cut. */
static void join(struct rdv_error *e, const char *front, size_t size, const char *back)
{
	char text[2 * sizeof e->text + 8];
	int n = snprintf(text, sizeof text, "%.*s: %s", (int)size, front, back);

	store(e, text, n < 0 ? 0 : (size_t)n);
}

enum redrive_status rdv_error_set(struct rdv_error *e, enum redrive_status status, const char *fmt, ...)
{
	char text[sizeof e->text + 8]; /* longer than what is kept, so that the cut sees whole characters */
	va_list args;
	size_t size;

	if (!e)
		return status;
	va_start(args, fmt);
	size = format(text, sizeof text, fmt, args);
	va_end(args);
	store(e, text, size);
	return status;
}

enum redrive_status rdv_error_prefix(struct rdv_error *e, enum redrive_status status, const char *fmt, ...)
{
	char front[sizeof e->text], back[sizeof e->text];
	va_list args;
	size_t size;

	if (!e)
		return status;
	va_start(args, fmt);
	size = format(front, sizeof front, fmt, args);
	va_end(args);
	memcpy(back, e->text, sizeof back);
	back[sizeof back - 1] = '\0';
	join(e, front, size, back[0] ? back : rdv_status_info(status)->text);
	return status;
}

enum redrive_status rdv_error_add(struct rdv_error *e, enum redrive_status status, const char *more)
{
	char front[sizeof e->text];

	if (!e)
		return status;
	rdv_slice_to_text(rdv_slice_text(e->text), front, sizeof front);
	if (!front[0])
		return rdv_error_set(e, status, "%s", more);
	return rdv_error_set(e, status, "%s; %s", front, more);
}

/* What passes by itself is told from what does not. */
static enum redrive_status of_errno(int errno_value)
{
	switch (errno_value) {
	case ENOSPC:
	case EDQUOT:
		return REDRIVE_FULL;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return REDRIVE_NO_MEMORY;
	default:
		return REDRIVE_IO;
	}
}

enum redrive_status rdv_error_errno(struct rdv_error *e, int errno_value, const char *fmt, ...)
{
	enum redrive_status status = of_errno(errno_value);
	char front[sizeof e->text], reason[128];
	va_list args;
	size_t size;

	if (!e)
		return status;
	va_start(args, fmt);
	size = format(front, sizeof front, fmt, args);
	va_end(args);
	join(e, front, size, strerror_r(errno_value, reason, sizeof reason)); /* GNU: returns the text */
	return status;
}
