/* fingerprint.h - a stable, versioned hash of a failure: route, root error class (or class), code, normalised text and,
 * where there is a stack, its first frame in the user's code. Version 1: "v1:" + 16 hex digits. Normalising
 * (normalise.c) takes ids, numbers, times, addresses, quoted values and paths out of the text. Changing the result of
 * any input is a new version. Pure; any thread. */
#ifndef RDV_CORE_FINGERPRINT_H
#define RDV_CORE_FINGERPRINT_H
#include "message.h"

#define RDV_FINGERPRINT_TEXT 20
uint64_t rdv_fingerprint(const char *route, const struct rdv_failure *failure);    /* never 0 */
void rdv_fingerprint_format(uint64_t fingerprint, char out[RDV_FINGERPRINT_TEXT]); /* "v1:9f86d081884c7d65" */
bool rdv_fingerprint_parse(struct rdv_slice text, uint64_t *out);
/* The normalised text, at most 1,000 characters. */
void rdv_normalise(struct rdv_slice text, struct rdv_buffer *out);
#endif
