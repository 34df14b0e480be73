/* clean.h - text of handlers made fit to be stored: valid UTF-8, no NUL, bounded. Pure; any thread. */
#ifndef RDV_HANDLERS_CLEAN_H
#define RDV_HANDLERS_CLEAN_H
#include "../base/bytes.h"

/* Appends `in` to `out`, each byte that is no part of valid UTF-8 (and each NUL) as U+FFFD, at most max_chars
 * characters and max_bytes bytes, and answers where it begins in `out`; *size is its length. When memory is
 * short it is empty. */
size_t rdv_clean(struct rdv_buffer *out, struct rdv_slice in, size_t max_chars, size_t max_bytes, size_t *size);
/* The same without the place: for buffers whose memory will not move any more (see rdv_buffer_reserve). */
struct rdv_slice rdv_clean_slice(struct rdv_buffer *out, struct rdv_slice in, size_t max_chars, size_t max_bytes);
#endif
