/* sim_log.h - a log in memory whose unsynced writes are lost, torn or reordered at a crash.
 *
 * Frames lie in segments of a few KiB; places are those of the real log: segment, offset of the frame's header, payload
 * length. What a crash leaves of the unsynced frames: each persists by itself or not, then the log is cut at the first
 * that did not, and at the beginning of a batch that is not whole, as the real log's recovery does. Payload bytes live
 * until the world ends. */
#ifndef SIM_LOG_H
#define SIM_LOG_H
#include "base/random.h"
#include "core/effects.h"

struct sim_frame {
	enum rdv_record type;
	uint32_t stream;
	uint64_t seq;
	uint16_t hint;
	bool more;         /* the batch goes on */
	bool again;        /* a copy made by trimming */
	uint32_t at, size; /* payload, in the log's bytes */
	struct rdv_place place;
};
struct sim_log {
	struct sim_frame *frames; /* owns; frame number n is frames[n - first] */
	size_t count, capacity;
	uint64_t first;   /* number of frames[0]; numbers begin at 1 */
	uint64_t durable; /* number of the last synced frame */
	struct rdv_buffer bytes;
	uint32_t segment, offset, segment_size, tail;
	uint32_t *live; /* owns: counted records by segment, from segment 0 */
	size_t live_capacity;
};
void sim_log_init(struct sim_log *log);
void sim_log_done(struct sim_log *log);
void sim_log_reset(struct sim_log *log, uint32_t segment_size); /* an empty log; memory is kept */
/* Appends a frame whose payload is copied; sets place. `frame->more` says whether its batch goes on. Returns its
 * number. */
uint64_t sim_log_append(struct sim_log *log, struct sim_frame *frame, struct rdv_slice payload);
static inline uint64_t sim_log_last(const struct sim_log *log)
{
	return log->first + log->count - 1;
}
static inline struct sim_frame *sim_log_frame(const struct sim_log *log, uint64_t number)
{
	return &log->frames[number - log->first];
}
struct rdv_slice sim_log_payload(const struct sim_log *log, const struct sim_frame *f);
/* The frame at a place; NULL if there is none (any more). */
struct sim_frame *sim_log_find(const struct sim_log *log, struct rdv_place place);
uint32_t *sim_log_live(struct sim_log *log, uint32_t segment);
void sim_log_drop_tail(struct sim_log *log); /* the tail segment with its frames */
/* Power loss: what was not synced survives in part. Everything left is durable. Returns how many frames were lost. */
size_t sim_log_crash(struct sim_log *log, struct rdv_random *random, double persist);
#endif
