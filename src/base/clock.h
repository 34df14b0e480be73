/* clock.h - wall and monotonic time as different types, so that mixing them does not compile.
 *
 * wall: ms since 1970 UTC, may jump. mono: ms of CLOCK_BOOTTIME (counts during suspend), never goes
 * back, has no meaning outside this boot. Durations are plain int64_t ms. The core never calls
 * rdv_wall_now/rdv_mono_now: its events carry both times. */
#ifndef RDV_BASE_CLOCK_H
#define RDV_BASE_CLOCK_H
#include "bytes.h"

struct rdv_wall {
	int64_t ms;
};
struct rdv_mono {
	int64_t ms;
};
/* The time of an event, read once per step. */
struct rdv_now {
	struct rdv_mono mono;
	struct rdv_wall wall;
};

#define RDV_NEVER INT64_MAX

struct rdv_wall rdv_wall_now(void);
struct rdv_mono rdv_mono_now(void);
struct rdv_now rdv_now(void);
int64_t rdv_mono_now_us(void); /* microseconds of CLOCK_MONOTONIC, for measuring only */

/* Saturating: never overflows, RDV_NEVER stays RDV_NEVER (but nothing times it is nothing). */
int64_t rdv_ms_add(int64_t a, int64_t b);
int64_t rdv_ms_mul(int64_t a, int64_t b);

/* "2026-11-30T15:38:46.123Z", 24 characters and NUL. Years 0 to 9999; beyond are clamped. */
void rdv_wall_format(struct rdv_wall t, char out[25]);
/* RFC 3339 with any offset and fraction (cut to ms); years 1970 to 9999. */
enum redrive_status rdv_wall_parse(struct rdv_slice text, struct rdv_wall *out) RDV_MUST_CHECK;
/* HTTP date (RFC 9110, IMF-fixdate and the two obsolete forms), for Retry-After. */
enum redrive_status rdv_wall_parse_http(struct rdv_slice text, struct rdv_wall *out) RDV_MUST_CHECK;
#endif
