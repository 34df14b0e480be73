/* lane_parts.h - what the files of the lane share; nobody else includes it (but its unit tests).
 *
 *   lane.c           birth, options, publishing, time, durability, flush
 *   lane_entries.c   entries, ready queues, waiting, counts of released records
 *   lane_records.c   records, follow-ups, runs, rings
 *   lane_keys.c      order by key: join, promote, gates
 *   lane_dispatch.c  from a grant to a DISPATCH
 *   lane_verdict.c   from a verdict to what follows
 *   lane_late.c      calls taken back, verdicts that come late
 *   lane_state.c     STATE records: history, dying, restating
 *   lane_dedupe.c    the idempotency window
 *   lane_requests.c  the inbox, as kept and as recorded
 *   lane_replay.c    replays and their plans
 *   lane_siblings.c  adopted lanes: one order of a key over several lanes
 *   lane_operate.c   revoke, release
 *   lane_recover.c   the fold of the records
 *   lane_open.c      opening, suspect mode, our own crash
 *   lane_trim.c      trimming
 *   lane_where.c     questions and invariants
 */
#ifndef RDV_CORE_LANE_PARTS_H
#define RDV_CORE_LANE_PARTS_H
#include "ages.h"
#include "dedupe.h"
#include "finished.h"
#include "lane.h"
#include "order.h"
#include "positions.h"
#include "schedule.h"

#define RDV_NOBODY UINT64_MAX /* no seq */

struct rdv_fifo { /* ready queue of a class, through `next` */
	uint32_t head, tail;
	uint32_t live; /* entries in it that are really ready; the others are ghosts or demoted */
};

struct rdv_run_list {
	struct rdv_run *items; /* owns */
	size_t count, capacity;
};

/* Something that follows when a turn's records are durable. */
enum rdv_once { RDV_ONCE_KEY, RDV_ONCE_LETTER, RDV_ONCE_RESTATE, RDV_ONCE_OUTCOME };
struct rdv_follow_up {
	uint64_t turn;
	uint64_t value; /* LETTER: whom it followed; OUTCOME: the request's number */
	uint32_t ref;   /* KEY: the key; LETTER, RESTATE: the entry */
	enum rdv_once kind;
};
struct rdv_turn { /* one batch of this lane's records on its way to the disk */
	uint64_t turn, ticket;
	uint64_t outcomes, bytes;
	int64_t since; /* monotonic, of its first outcome */
};
/* A charge that may be given back. */
struct rdv_charge {
	int64_t at;
	uint64_t seq;
	uint32_t entry;
	bool timeout;
};
struct rdv_cause_note { /* a follower that waits for its history, and whom it followed */
	uint64_t seq, cause;
};
struct rdv_revoke_note { /* why a message is revoked, until its STATE says so */
	uint64_t seq;
	struct rdv_slice reason; /* borrows from bytes */
	uint8_t *bytes;          /* owns */
};
#define RDV_RELEASED_SLOTS 64
struct rdv_released { /* records of a segment that are not live any more */
	uint32_t segment, count;
	uint64_t bytes;
};
/* A ring of equal items that grows by doubling; head is the oldest. */
struct rdv_ring {
	void *items; /* owns */
	size_t item_size, capacity, head, count;
};

struct rdv_plan { /* of open replay requests */
	uint64_t id;
	char *name; /* owns */
	uint32_t requests;
	bool paused, cancelled;
};
struct rdv_inbox_item { /* an open or finished request */
	uint32_t link;  /* the map's */
	uint32_t entry; /* 0 = none (any more) */
	uint64_t number;
	struct rdv_request request; /* plan_name: empty here */
	uint32_t segment;           /* its record lies there or later */
	uint32_t plan;              /* index */
};

struct rdv_lane {
	uint32_t stream, partition, partition_stream, target_route;
	char *route, *topic;      /* own */
	struct rdv_lane *sibling; /* ring of those that keep one order with it; NULL = alone */
	bool stirred;             /* a sibling changed what it could dispatch: for the dispatcher */
	uint32_t slot;            /* the dispatcher's */
	uint64_t start, epoch, next;
	struct rdv_lane_policy policy;
	struct rdv_rules *rules;    /* shares */
	struct rdv_target *target;  /* borrows */
	struct rdv_target *granted; /* borrows; of the call that is being ended, NULL = target */
	uint32_t granted_route;
	struct rdv_random random;
	uint32_t unrecorded_max;
	bool from_broker, start_before_call, paused, stopped, folding, suspect_mode;
	bool refund_due; /* the target went down by the last verdict */
	struct rdv_mono refund_since;

	struct rdv_chunks entries; /* own, all of these */
	struct rdv_positions by_seq;
	struct rdv_schedule wheel;
	struct rdv_keys order;
	struct rdv_dedupe own_dedupe, *dedupe; /* the route's, borrowed, or its own */
	struct rdv_ages ages;
	struct rdv_fifo ready[RDV_CLASS_COUNT];
	uint32_t *calls; /* entries at the handler */
	uint32_t call_count, call_capacity, call_number;

	struct rdv_account account;
	bool counters_changed;
	uint64_t unwritten_dead, unwritten_revoked; /* counted, but their STATE waits for its history */
	struct rdv_run_list done, started;
	struct rdv_finished finished;
	struct rdv_released released[RDV_RELEASED_SLOTS];
	uint64_t released_used; /* bit per slot */
	uint32_t tick_budget;

	struct rdv_ring turns, follow_ups, charges, causes, revokes, released_spill;
	uint64_t turn;                         /* of the records that are not appended yet */
	struct rdv_turn open_turn;             /* they */
	uint64_t unrecorded, unrecorded_bytes; /* outcomes not durable, open_turn included */
	bool appended_records;                 /* this turn has records */

	struct rdv_chunks requests;
	struct rdv_map by_number;
	struct rdv_plan *plans; /* owns */
	uint32_t plan_count;
	uint64_t next_request;

	uint32_t head_segment;                                  /* the newest segment that the lane has heard of */
	uint32_t lane_segment, pause_segment, counters_segment; /* those records lie there or later */
	double throughput;                                      /* recovered */
	bool outcome_since_open;
	uint32_t opens_without_outcome;
	bool last_open_unclean, opened_before, short_of_memory;
	int64_t overdue_at_open;
	uint64_t follower_of;           /* while followers die: whom they followed */
	struct rdv_message_state state; /* scratch */
};

#define RDV_FETCH_AHEAD_MS 1000

static inline struct rdv_entry *rdv_lane_entry(const struct rdv_lane *l, uint32_t ref)
{
	return rdv_entry_at(&l->entries, ref);
}
static inline void rdv_lane_saw_segment(struct rdv_lane *l, uint32_t segment)
{
	if (segment > l->head_segment)
		l->head_segment = segment;
}

/* ---- lane.c ---- */
bool rdv_lane_over_limit(const struct rdv_lane *l, const struct rdv_entry *e); /* of attempts, lowered by a reload */
void rdv_lane_write_counters(struct rdv_lane *l, struct rdv_effects *out);
void rdv_lane_write_pause(struct rdv_lane *l, struct rdv_effects *out);

/* ---- lane_entries.c ---- */
static inline uint32_t rdv_lane_find(const struct rdv_lane *l, uint64_t seq) /* 0 = not live */
{
	return rdv_positions_find(&l->by_seq, seq);
}
uint32_t rdv_lane_add_entry(struct rdv_lane *l, uint64_t seq); /* 0 without memory */
/* Gives the memory back as soon as no queue, wheel or place to come refers to it. */
void rdv_lane_drop_entry(struct rdv_lane *l, uint32_t ref);
void rdv_lane_free_ghost(struct rdv_lane *l, uint32_t ref); /* if it is one, and nothing refers to it any more */
static inline void rdv_lane_set_state(struct rdv_lane *l, struct rdv_entry *e, enum rdv_state to)
{
	enum rdv_state from = (enum rdv_state)e->state;

	e->state = to;
	if (from == to || e->replay)
		return;
	/* A revoked message counts as revoked as soon as it is dying. */
	if (to == RDV_STATE_DYING && e->member == RDV_REASON_REVOKED)
		to = RDV_STATE_REVOKED;
	rdv_account_move(&l->account, from, to);
}
void rdv_lane_enqueue(struct rdv_lane *l, uint32_t ref);                    /* READY, into its class's queue */
void rdv_lane_unready(struct rdv_lane *l, uint32_t ref, enum rdv_state to); /* READY and queued → another state */
uint32_t rdv_lane_pop(struct rdv_lane *l, enum rdv_class class, const struct rdv_grant *grant); /* 0 = none */
/* A WAITING entry into the wheel. */
void rdv_lane_wait(struct rdv_lane *l, uint32_t ref, struct rdv_now now, int64_t delay, struct rdv_effects *out);
int64_t rdv_lane_due(const struct rdv_entry *e); /* of a waiting one, monotonic */
uint32_t rdv_lane_pop_due(struct rdv_lane *l, struct rdv_now now,
			  struct rdv_effects *out); /* 0 = none, or the tick's budget is used up */
void rdv_lane_release_record(struct rdv_lane *l, uint32_t segment, uint32_t bytes);
void rdv_lane_release_state(struct rdv_lane *l, struct rdv_entry *e);
void rdv_lane_flush_released(struct rdv_lane *l, struct rdv_effects *out);
void rdv_lane_add_run(struct rdv_run_list *list, uint64_t seq, enum rdv_state outcome, struct rdv_effects *out);
bool rdv_ring_push(struct rdv_ring *r, const void *item);
void *rdv_ring_at(const struct rdv_ring *r, size_t index); /* 0 = the oldest */
void rdv_ring_pop(struct rdv_ring *r);
/* A RECORD effect around what is appended to the arena between begin and end. */
size_t rdv_lane_begin_record(struct rdv_effects *out);
struct rdv_effect *rdv_lane_end_record(struct rdv_lane *l, enum rdv_record type, uint64_t seq, size_t at,
				       struct rdv_effects *out);
void rdv_lane_note_outcome(struct rdv_lane *l, struct rdv_now now, size_t bytes);
void rdv_lane_follow_up(struct rdv_lane *l, enum rdv_once kind, uint32_t ref, uint64_t value, struct rdv_effects *out);
void rdv_lane_alarm(struct rdv_lane *l, uint8_t severity, const char *text, struct rdv_effects *out);

/* ---- lane_keys.c ---- */
uint32_t rdv_lane_fold_key(uint64_t key_hash);                                 /* 64 bits to 32, 0 only for 0 */
uint32_t rdv_lane_key_of(const struct rdv_lane *l, const struct rdv_entry *e); /* 0 = none (kept) */
enum redrive_status rdv_lane_set_key(struct rdv_lane *l, struct rdv_entry *e, uint64_t key_hash) RDV_MUST_CHECK;
void rdv_lane_forget_key(struct rdv_lane *l, struct rdv_entry *e);
/* A message that may go as far as its own time is concerned: ready, or held behind its key. */
void rdv_lane_arrive(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out);
void rdv_lane_join(struct rdv_lane *l, uint32_t ref);
void rdv_lane_leave(struct rdv_lane *l, uint32_t ref); /* out of its key's order, if it is in it */
void rdv_lane_promote(struct rdv_lane *l, uint32_t key, struct rdv_now now, struct rdv_effects *out);
void rdv_lane_promote_here(struct rdv_lane *l, uint32_t key, struct rdv_now now, struct rdv_effects *out);
void rdv_lane_unblock_key(struct rdv_lane *l, uint32_t key, struct rdv_now now, struct rdv_effects *out);
uint32_t rdv_lane_next_of_key(const struct rdv_lane *l,
			      const struct rdv_key *k); /* the member whose turn it is; 0 = none */
bool rdv_lane_is_head(const struct rdv_lane *l, uint32_t ref);
void rdv_lane_set_gate(struct rdv_lane *l, uint32_t key, bool closed, uint64_t letter_seq, struct rdv_effects *out);
/* order: none: may this live message go, as far as replays of its key are concerned? If not it has joined the key. */
bool rdv_lane_passes_replays(struct rdv_lane *l, uint32_t ref);
void rdv_lane_call_began(struct rdv_lane *l, uint32_t ref);
void rdv_lane_call_ended(struct rdv_lane *l, uint32_t ref);
void rdv_lane_hold_for_history(struct rdv_lane *l, uint32_t ref);
void rdv_lane_resume(struct rdv_lane *l, uint32_t ref, struct rdv_now now, int64_t delay, struct rdv_effects *out);

/* ---- lane_siblings.c; but for the first, of a lane that has siblings ---- */
bool rdv_lane_gate_closed(const struct rdv_lane *l, const struct rdv_key *k); /* in any of them */
/* May `ref`, the next of its key in this lane, go before all that the siblings have of the key? */
bool rdv_lane_siblings_let(const struct rdv_lane *l, const struct rdv_key *k, uint32_t ref);
void rdv_lane_promote_siblings(struct rdv_lane *l, uint64_t hash, struct rdv_now now, struct rdv_effects *out);
/* All keys of a lane and its siblings, when all are open. */
void rdv_lane_promote_all(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out);
struct rdv_lane *rdv_lane_unlink_sibling(struct rdv_lane *l); /* one of those it leaves; NULL = it was alone */
bool rdv_lane_check_siblings(const struct rdv_lane *l, const struct rdv_key *k);

/* ---- lane_dispatch.c ---- */
uint64_t rdv_lane_message_id(const struct rdv_lane *l, uint64_t seq); /* among a target's messages; never 0 */
unsigned rdv_lane_mark(uint64_t fingerprint);                         /* 1..7; 0 for 0 */
bool rdv_lane_is_call(const struct rdv_lane *l, uint32_t ref, uint64_t call);
bool rdv_lane_overloaded(const struct rdv_lane *l, struct rdv_now now); /* rule 8 */
void rdv_lane_end_call(struct rdv_lane *l, uint32_t ref);
void rdv_lane_undo_call(struct rdv_lane *l, uint32_t ref,
			struct rdv_now now); /* it has not been; the entry stays IN_FLIGHT */

/* After a dispatch: more of that class, nothing else changed. For the dispatcher. */
static inline bool rdv_lane_offers_still(const struct rdv_lane *l, enum rdv_class class)
{
	return l->ready[class].live && !l->suspect_mode;
}

/* ---- lane_verdict.c ---- */
void rdv_lane_remember_charge(struct rdv_lane *l, uint32_t ref, struct rdv_now now, bool timeout);
bool rdv_lane_take_refund(struct rdv_lane *l,
			  struct rdv_mono *since); /* did the last verdict take the target down? For the dispatcher. */

/* ---- lane_state.c ---- */
/* Loads the message's history into l->state, or a new one; pending refunds applied. */
struct rdv_message_state *rdv_lane_load_state(struct rdv_lane *l, const struct rdv_entry *e, struct rdv_slice history);
/* The same without a history, which is lost: also what memory knows of deliveries and of the time that it waits for. */
struct rdv_message_state *rdv_lane_recall_state(struct rdv_lane *l, const struct rdv_entry *e, struct rdv_now now);
void rdv_lane_save_state(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_effects *out);
/* The message dies; with `state` (l->state, complete) at once, else when its history is there. */
void rdv_lane_die(struct rdv_lane *l, uint32_t ref, struct rdv_now now, enum rdv_reason reason,
		  struct rdv_message_state *state, struct rdv_effects *out);
/* The end of a message: ACKED, DROPPED, DEAD, REVOKED; its records are released, DONE follows. */
void rdv_lane_finish(struct rdv_lane *l, uint32_t ref, struct rdv_now now, enum rdv_state outcome,
		     struct rdv_effects *out);
void rdv_lane_ask_history(struct rdv_lane *l, uint32_t ref, enum rdv_todo todo, struct rdv_effects *out);
void rdv_lane_say_letter(struct rdv_lane *l, uint32_t ref, uint64_t cause, struct rdv_effects *out);

/* ---- lane_operate.c ---- */
struct rdv_slice rdv_lane_revoke_reason(const struct rdv_lane *l, uint64_t seq); /* empty = none was given */
void rdv_lane_forget_revoke(struct rdv_lane *l, uint64_t seq);                   /* RDV_NOBODY: all */

/* ---- lane_dedupe.c ---- */
void rdv_lane_dedupe_end(struct rdv_lane *l, uint64_t seq, struct rdv_now now, bool acked, struct rdv_slice answer,
			 struct rdv_effects *out);
/* The owner of a key has to stay held: who waits for it asks again, and takes the key over. */
void rdv_lane_dedupe_held(struct rdv_lane *l, uint64_t seq, struct rdv_now now, struct rdv_effects *out);
void rdv_lane_dedupe_waits(struct rdv_lane *l, uint64_t seq, struct rdv_effects *out);
void rdv_lane_dedupe_leave(struct rdv_lane *l, uint32_t ref);
enum redrive_status rdv_lane_fold_dedupe(struct rdv_lane *l, struct rdv_slice payload,
					 struct rdv_place place) RDV_MUST_CHECK;
void rdv_lane_open_dedupe(struct rdv_lane *l);
void rdv_lane_rewrite_dedupe(struct rdv_lane *l, uint32_t ref, uint32_t segment, struct rdv_effects *out);

/* ---- lane_replay.c ---- */
void rdv_lane_init_requests(struct rdv_lane *l);
void rdv_lane_done_requests(struct rdv_lane *l);
struct rdv_inbox_item *rdv_lane_item(const struct rdv_lane *l, uint32_t ref);
struct rdv_inbox_item *rdv_lane_request_of(const struct rdv_lane *l, uint32_t entry);
uint32_t rdv_lane_find_request(const struct rdv_lane *l, uint64_t number);
bool rdv_lane_plan_paused(const struct rdv_lane *l, const struct rdv_entry *e);
bool rdv_lane_plan_cancelled(const struct rdv_lane *l, const struct rdv_entry *e);
void rdv_lane_replay_finish(struct rdv_lane *l, uint32_t ref, struct rdv_now now, enum rdv_state outcome,
			    struct rdv_effects *out);
void rdv_lane_say_outcome(struct rdv_lane *l, uint64_t number, struct rdv_effects *out);
enum redrive_status rdv_lane_fold_request(struct rdv_lane *l, uint64_t number, struct rdv_slice payload,
					  struct rdv_place place) RDV_MUST_CHECK;
void rdv_lane_open_requests(struct rdv_lane *l, struct rdv_effects *out);
void rdv_lane_rewrite_request(struct rdv_lane *l, uint32_t item, uint32_t segment, struct rdv_effects *out);

uint32_t rdv_lane_find_plan(const struct rdv_lane *l, uint64_t id); /* index; UINT32_MAX = none */
void rdv_lane_write_request(struct rdv_lane *l, uint64_t number, struct rdv_effects *out);
uint32_t rdv_lane_add_item(struct rdv_lane *l, uint64_t number,
			   const struct rdv_request *request); /* 0 without memory */
void rdv_lane_drop_item(struct rdv_lane *l, uint32_t item);
uint32_t rdv_lane_add_replay_entry(struct rdv_lane *l, uint32_t item,
				   const struct rdv_request *request); /* 0 without memory */

/* ---- lane_recover.c, lane_open.c ---- */
/* While folding: the delay of a waiting entry. */
static inline void rdv_lane_set_delay(struct rdv_entry *e, int64_t delay)
{
	e->member = (uint32_t)(uint64_t)delay;
	e->next = (uint32_t)((uint64_t)delay >> 32);
}
static inline int64_t rdv_lane_get_delay(const struct rdv_entry *e)
{
	return (int64_t)((uint64_t)e->next << 32 | e->member);
}
void rdv_lane_forget(struct rdv_lane *l, uint32_t ref); /* while recovering: it is not live after all */
void rdv_lane_write_lane(struct rdv_lane *l, struct rdv_effects *out);
void rdv_lane_crashed(struct rdv_lane *l, uint32_t ref, struct rdv_now now, struct rdv_message_state *s,
		      struct rdv_effects *out);
#endif
