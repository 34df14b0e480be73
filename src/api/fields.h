/* fields.h - the parts of a request that need parsing, pure, so that they can be fuzzed: escapes, times, paths. Any
 * thread. */
#ifndef RDV_API_FIELDS_H
#define RDV_API_FIELDS_H
#include "../base/clock.h"

/* %XX of a path segment or query value decoded ('+' is a blank when `plus`); the result is NUL-terminated beyond its
 * size. NULL: a broken escape, too long, or no memory. Returns owned (free). */
char *rdv_field_decode(struct rdv_slice raw, bool plus, size_t *size);
/* A header value that may be percent-encoded; with an escape that is none it stays as it is. `out` owns what is
 * decoded; the answer borrows from `out` or `text`. */
struct rdv_slice rdv_field_value(const char *text, struct rdv_buffer *out);
/* When a message is due: at most one of delay ("10s") and at (RFC 3339), either may be NULL; ms 0 = at once. Not OK:
 * *field and *wrong say which and what. Nothing lies beyond the year 9999. */
enum redrive_status rdv_field_due(const char *delay, const char *at, struct rdv_wall now, struct rdv_wall *out,
				  const char **field, const char **wrong) RDV_MUST_CHECK;
/* Compares segment by segment; {name} takes any segment, at most `max` of them. */
bool rdv_field_path(const char *pattern, const char *path, struct rdv_slice params[], size_t max, size_t *count);
#endif
