/* text.h - text encodings that several rooms need: percent, base64, hex, base32, nearest word.
 * Decoders take hostile input and answer REDRIVE_INVALID, leaving the output as it was, or TOO_LARGE when
 * it does not fit the buffer. Pure; any thread. */
#ifndef RDV_BASE_TEXT_H
#define RDV_BASE_TEXT_H
#include "bytes.h"

/* Percent-encodes bytes outside 0x20-0x7e and '%' itself (CONTRACT of header values and keys). */
void rdv_percent_encode(struct rdv_buffer *out, struct rdv_slice in);
/* Decodes %XX; '+' is left alone. INVALID on a cut or non-hex escape. */
enum redrive_status rdv_percent_decode(struct rdv_buffer *out, struct rdv_slice in) RDV_MUST_CHECK;
/* Encodes for a URL path segment or query value: all but unreserved characters. */
void rdv_url_encode(struct rdv_buffer *out, struct rdv_slice in);
void rdv_base64_encode(struct rdv_buffer *out, struct rdv_slice in); /* RFC 4648 with padding */
enum redrive_status rdv_base64_decode(struct rdv_buffer *out, struct rdv_slice in) RDV_MUST_CHECK; /* strict */
void rdv_hex_encode(struct rdv_buffer *out, struct rdv_slice in);                                  /* lower case */
/* 16 bytes as 26 characters of lower-case base32 (RFC 4648 alphabet, no padding), NUL-terminated. */
void rdv_base32_128(const uint8_t in[16], char out[27]);
enum redrive_status rdv_base32_128_decode(struct rdv_slice in, uint8_t out[16]) RDV_MUST_CHECK;
/* Edit distance, capped at 64-byte words; two neighbours that changed places count once. For "did you mean". */
unsigned rdv_edit_distance(const char *a, const char *b);
/* The entry of words[0..count) nearest to `word`, or NULL when none is within a third of its length. */
const char *rdv_nearest(const char *word, const char *const words[], size_t count);
#endif
