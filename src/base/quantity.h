/* quantity.h - durations, sizes, rates and ratios as text, both ways.
 *
 *   duration  [0-9]+(ms|s|m|h|d), several parts may follow ("1h30m"); a unit is required; "0" alone is 0
 *   size      [0-9]+(B|KiB|MiB|GiB|TiB)? ; without a unit bytes
 *   rate      NUMBER/(s|m|h)
 *   ratio     NUMBER% (0-100 and beyond is the caller's to judge) or a plain fraction 0.2
 * Numbers may have a fraction ("1.5s", "0.5/s"). Anything else, an overflow or trailing bytes: INVALID.
 * Durations and sizes are exact: what is no whole ms or byte ("0.5ms") is INVALID, not rounded.
 * Formatting gives the shortest text that parses back to the same value, always with a unit ("512B", "20%").
 * What no text gives (negative, not a number, 10^15 and above) is printed for people only. Pure; any thread. */
#ifndef RDV_BASE_QUANTITY_H
#define RDV_BASE_QUANTITY_H
#include "bytes.h"

enum redrive_status rdv_duration_parse(struct rdv_slice text, int64_t *out_ms) RDV_MUST_CHECK;
enum redrive_status rdv_size_parse(struct rdv_slice text, uint64_t *out_bytes) RDV_MUST_CHECK;
enum redrive_status rdv_rate_parse(struct rdv_slice text, double *out_per_second) RDV_MUST_CHECK;
enum redrive_status rdv_ratio_parse(struct rdv_slice text, double *out_fraction) RDV_MUST_CHECK;
enum redrive_status rdv_integer_parse(struct rdv_slice text, int64_t *out) RDV_MUST_CHECK; /* decimal, optional '-' */

#define RDV_QUANTITY_TEXT 48
void rdv_duration_format(int64_t ms, char out[RDV_QUANTITY_TEXT]);
void rdv_size_format(uint64_t bytes, char out[RDV_QUANTITY_TEXT]);
void rdv_rate_format(double per_second, char out[RDV_QUANTITY_TEXT]);
void rdv_ratio_format(double fraction, char out[RDV_QUANTITY_TEXT]);
#endif
