/* effects.h - what the core wants done: a list of plain structs, bytes in an arena beside it.
 *
 * Every core function that decides takes a `struct rdv_effects *` and appends. The runtime (or the simulator)
 * executes the list in order after the step and clears it. Memory is kept between steps. If memory is
 * short, `failed` is set: the runtime must then stop (nothing half done may be recorded). Single thread. */
#ifndef RDV_CORE_EFFECTS_H
#define RDV_CORE_EFFECTS_H
#include "message.h"
#include "record.h"

struct rdv_lane;

enum rdv_effect_kind {
	RDV_EFFECT_DISPATCH, /* call the handler; answer by rdv_lane_verdict */
	RDV_EFFECT_FETCH,    /* the body at `body` will be wanted within a second: read ahead; no answer */
	RDV_EFFECT_RECORD,   /* append this record; the batch's ticket comes back by rdv_lane_durable */
	RDV_EFFECT_LETTER,   /* a message is dying: make and store its letter; answer by rdv_lane_lettered */
	RDV_EFFECT_OUTCOME,  /* a replay request ended: tell the desk; answer by rdv_lane_outcome_stored */
	RDV_EFFECT_RELEASED, /* `count` records of `segment` are not live any more: rdv_log_live(segment, -count,
				-bytes) */
	RDV_EFFECT_ALARM,    /* tell people: text in bytes */
	RDV_EFFECT_RESTATE,  /* read the STATE at `restate` (as for a verdict's history); answer by rdv_lane_restate */
	RDV_EFFECT_KIND_COUNT
};

/* Where a record lies in the log: segment 0 = nowhere. Same meaning as struct rdv_position of the log, which
 * the core must not include. */
struct rdv_place {
	uint32_t segment, offset, length; /* length: payload bytes */
};

struct rdv_effect {
	enum rdv_effect_kind kind;
	struct rdv_lane *lane; /* borrows */
	uint64_t seq;
	uint32_t entry; /* the lane's reference of the message */
	union {
		struct {
			struct rdv_place body; /* BODY record; for a replay with its own body: segment 0, see request */
			struct rdv_place state; /* last STATE record, segment 0 = none (no history yet) */
			uint64_t call;          /* unique per lane and run: a verdict must carry it back */
			uint64_t request;       /* replay request number, 0 = live message */
			uint32_t attempt;       /* 1 + charged failures */
			enum rdv_class class;
			bool probe;
			bool started; /* STARTED must be durable before the call: hold the call back until this turn's
					 ticket is durable (its RECORD comes with this turn's rdv_lane_flush, one for
					 all) */
		} dispatch;
		struct {
			enum rdv_record type;
			uint64_t record_seq;
			size_t at, size;    /* payload in the arena */
			uint16_t hint_size; /* first bytes of it that recovery needs */
			bool outcome;       /* an outcome or state of a message: may use the reserve */
			bool owns_state; /* after the append, report the position by rdv_lane_placed(lane, entry, place)
					  */
			bool waits;      /* a STATE that waits, for so long: */
			int64_t delay_ms;
		} record;
		struct {
			struct rdv_place body, state;
			enum rdv_reason reason;
			uint64_t cause_seq; /* follower: the letter's message it followed; else UINT64_MAX */
			uint32_t generation;
			uint64_t request; /* a replay that died again: its request, else 0 */
			size_t at, size;  /* the STATE payload in the arena (size 0: read it at `state`) */
		} letter;
		struct {
			uint64_t request;
			enum rdv_state outcome; /* ACKED, DEAD, REVOKED, or READY = taken back before any delivery,
						   WAITING = taken back after one */
			uint32_t attempts;
		} outcome;
		struct {
			uint32_t segment, count;
			uint64_t bytes; /* payload bytes of those records */
		} released;
		struct {
			size_t at, size;  /* text in the arena */
			uint8_t severity; /* 0 = P0 .. 2 */
		} alarm;
		struct rdv_place restate;
	};
};

struct rdv_effects {
	struct rdv_effect *items; /* owns */
	size_t count, capacity;
	struct rdv_buffer arena;
	bool failed;
	struct rdv_effect scratch; /* written instead when memory is short */
};

void rdv_effects_init(struct rdv_effects *e);
void rdv_effects_done(struct rdv_effects *e);
void rdv_effects_clear(struct rdv_effects *e);
struct rdv_effect *rdv_effects_add_slow(struct rdv_effects *e, enum rdv_effect_kind kind, struct rdv_lane *lane);
/* A zeroed effect appended; never NULL: without memory a scratch item is returned and `failed` set. */
static inline struct rdv_effect *rdv_effects_add(struct rdv_effects *e, enum rdv_effect_kind kind,
						 struct rdv_lane *lane)
{
	struct rdv_effect *item;

	if (e->count == e->capacity)
		return rdv_effects_add_slow(e, kind, lane);
	item = &e->items[e->count++];
	*item = (struct rdv_effect){.kind = kind, .lane = lane};
	return item;
}
static inline struct rdv_slice rdv_effects_bytes(const struct rdv_effects *e, size_t at, size_t size)
{
	return rdv_slice(e->arena.data + at, size);
}
#endif
