/* lane.h - the lane machine: all live messages of one (route, topic partition); event in, effects out.
 *
 *  published → READY | WAITING (delay) | HELD (order: key, not first)
 *  HELD → READY (first of its key, gate open) ; READY → IN_FLIGHT (permit) ; WAITING → ready to retry when due
 *  IN_FLIGHT → acked | dropped | WAITING (retry, defer, outage) | READY (shutdown) | DYING → dead
 *
 * The lane never calls anybody: it appends effects (effects.h). Records are appended to the log by the runtime, which
 * answers by rdv_lane_placed (where) and rdv_lane_durable (synced up to a ticket). A follower of a key goes out only
 * when its head's DONE is durable; a letter's DONE is written only after rdv_lane_lettered. One outcome per dispatch: a
 * verdict with a call number that is not open any more is refused. Memory: <= 72 bytes per waiting message without key,
 * 48 per distinct key. Pure; single thread. */
#ifndef RDV_CORE_LANE_H
#define RDV_CORE_LANE_H
#include "account.h"
#include "effects.h"
#include "policy.h"
#include "rules.h"
#include "target.h"

struct rdv_dedupe; /* dedupe.h */
struct rdv_lane;

struct rdv_lane_options {
	uint32_t stream;           /* of the lane's records */
	const char *route, *topic; /* copied */
	uint32_t partition, partition_stream;
	uint64_t start; /* first offset this lane is responsible for */
	uint64_t epoch;
	uint64_t seed; /* jitter */
	struct rdv_lane_policy policy;
	struct rdv_rules *rules;   /* shares (takes a reference); NULL = none */
	struct rdv_target *target; /* borrows; outlives the lane */
	uint32_t target_route;     /* this route's number there */
	/* Messages come from a broker, which gives out again what was not settled: positions may be missing, and may
	 * come after later ones; a key's next message goes when the one before has been acknowledged, durable or not.
	 */
	bool from_broker;
	bool start_before_call;    /* C callbacks: STARTED durable before each dispatch */
	struct rdv_dedupe *dedupe; /* borrows: the window that the route's lanes share; NULL = one of its own */
	uint32_t unrecorded_max;   /* rule 8: outcomes not yet durable; 0 = max(2 * concurrency, 32768) */
};

struct rdv_lane *rdv_lane_new(const struct rdv_lane_options *options);
void rdv_lane_free(struct rdv_lane *l);
void rdv_lane_reload(struct rdv_lane *l, const struct rdv_lane_policy *policy, struct rdv_rules *rules);

/* ---- recovery: fold records in log order, then finish once (lane_recover.c). Payloads may be cut to their hint part.
 * ---- */
enum redrive_status rdv_lane_fold(struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_slice payload,
				  struct rdv_place place) RDV_MUST_CHECK;
/* A BODY of the lane's partition, while folding. */
enum redrive_status rdv_lane_fold_body(struct rdv_lane *l, uint64_t seq, const struct rdv_body *hint,
				       struct rdv_place place) RDV_MUST_CHECK;
/* All is read; next_offset = first offset not given out. Writes OPEN, resumes dying messages and finished requests,
 * enters suspect mode when due. */
void rdv_lane_opened(struct rdv_lane *l, struct rdv_now now, uint64_t next_offset, bool unclean,
		     struct rdv_effects *out);

/* ---- events ---- */
struct rdv_published {
	uint64_t seq, key_hash; /* key_hash 0 = null key */
	struct rdv_wall not_before;
	struct rdv_place body;
	bool has_dedupe; /* the runtime computed the dedupe key, at the latest when the body is read */
};
/* A durable BODY, in seq order without gaps from `start`; a seq seen before is ignored (counts once). From a broker: in
 * any order, and the caller knows which came before. */
enum redrive_status rdv_lane_published(struct rdv_lane *l, struct rdv_now now, const struct rdv_published *m,
				       struct rdv_effects *out) RDV_MUST_CHECK;
/* Moves what is due; returns the next time something is due or to be read ahead. */
struct rdv_mono rdv_lane_tick(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out);
/* What could be dispatched now, by class; storm and pause considered. */
void rdv_lane_work(struct rdv_lane *l, struct rdv_now now, struct rdv_work *out);
/* The entry will be asked for in a moment: brings it into the cache. Any reference. */
void rdv_lane_expect(const struct rdv_lane *l, uint32_t entry);
/* Uses a grant: emits (RECORD STARTED and) DISPATCH. false: nothing suitable (cancel the grant). */
bool rdv_lane_dispatch(struct rdv_lane *l, struct rdv_now now, const struct rdv_grant *grant,
		       struct rdv_effects *out) RDV_MUST_CHECK;
/* The end of a call. `history`: payload of the message's STATE record if it has one and the verdict is not ack or drop
 * (else empty). NOT_FOUND: that call is not open (its lease expired and another has it, the lane lost it): ignored.
 * Slices of the verdict are copied into records. */
enum redrive_status rdv_lane_verdict(struct rdv_lane *l, struct rdv_now now, uint32_t entry, uint64_t call,
				     const struct rdv_verdict *verdict, struct rdv_slice history,
				     struct rdv_effects *out) RDV_MUST_CHECK;
/* A call that nobody was called with (a lease that nobody took, a body that cannot be read now) never was: the message
 * is ready again, or waits `delay`; one that was revoked meanwhile dies. Ignored when that call is not open. */
void rdv_lane_take_back(struct rdv_lane *l, struct rdv_now now, uint32_t entry, uint64_t call, int64_t delay,
			struct rdv_effects *out);
/* A verdict on a lease that has expired, while nobody has the message. Its attempt stays counted as it is. `history` as
 * for a verdict; not needed for ack and drop. CONFLICT: it is not waiting, ready or held (any more). */
enum redrive_status rdv_lane_late(struct rdv_lane *l, struct rdv_now now, uint64_t seq,
				  const struct rdv_verdict *verdict, struct rdv_slice history,
				  struct rdv_effects *out) RDV_MUST_CHECK;
/* The body could not be read (checksum): dies as damaged. */
void rdv_lane_damaged(struct rdv_lane *l, struct rdv_now now, uint32_t entry, uint64_t call, struct rdv_effects *out);
/* Dedupe, when the policy has it: asked by the runtime after it has the body and before the call.
 * PROCEED: call; DUPLICATE: booked as acked without a call; WAIT: another message of that key is at work, the call is
 * taken back until it ends. */
enum rdv_dedupe_answer { RDV_DEDUPE_PROCEED, RDV_DEDUPE_DUPLICATE, RDV_DEDUPE_WAIT };
enum rdv_dedupe_answer rdv_lane_dedupe(struct rdv_lane *l, struct rdv_now now, uint32_t entry, uint64_t call,
				       struct rdv_hash128 key, struct rdv_effects *out);
/* The answer to RDV_EFFECT_RESTATE: `history` is the STATE's payload (empty: it could not be read). A lane has no
 * history in memory; what it decides without a verdict (refund, revoke, limit_lowered, crash) is written when the
 * history is there. Ignored when the message has moved on meanwhile. */
void rdv_lane_restate(struct rdv_lane *l, struct rdv_now now, uint32_t entry, struct rdv_slice history,
		      struct rdv_effects *out);
/* Once per loop turn, before the turn's records are appended: emits the packed DONE and STARTED lists, RELEASED counts,
 * and COUNTERS if they changed. All RECORD effects of a turn belong into one batch. Cheap when nothing happened. */
void rdv_lane_flush(struct rdv_lane *l, struct rdv_effects *out);
/* Where the record of an `owns_state` RECORD effect, or a record re-appended by trimming, now lies. */
void rdv_lane_placed(struct rdv_lane *l, uint32_t entry, struct rdv_place place);
/* All records appended before now get `ticket`; all with a ticket <= the durable one are synced. */
void rdv_lane_appended(struct rdv_lane *l, uint64_t ticket);
void rdv_lane_durable(struct rdv_lane *l, struct rdv_now now, uint64_t ticket, struct rdv_effects *out);
/* The letter is stored: DONE(dead). letter: its 16-byte id. */
void rdv_lane_lettered(struct rdv_lane *l, struct rdv_now now, uint64_t seq, uint64_t request, struct rdv_effects *out);
void rdv_lane_outcome_stored(struct rdv_lane *l, struct rdv_now now, uint64_t request, struct rdv_effects *out);
/* A target's UP -> DOWN: charges at or after `since` are given back. */
void rdv_lane_refund(struct rdv_lane *l, struct rdv_now now, struct rdv_mono since, struct rdv_effects *out);

/* ---- operators ---- */
void rdv_lane_pause(struct rdv_lane *l, bool paused, struct rdv_effects *out);
bool rdv_lane_paused(const struct rdv_lane *l);
/* OK; NOT_FOUND: not live; CONFLICT: already finished or in flight (then it is remembered: any verdict but ack ends as
 * revoked, *pending = true). `reason`: what the letter says as its error's text; empty = none. */
enum redrive_status rdv_lane_revoke(struct rdv_lane *l, struct rdv_now now, uint64_t seq, struct rdv_slice reason,
				    bool *pending, struct rdv_effects *out) RDV_MUST_CHECK;
/* It is dying, but the record that says so waits for its history. */
bool rdv_lane_is_settling(const struct rdv_lane *l, uint64_t seq);
/* Opens the gate of a key closed by after_dead: hold. */
enum redrive_status rdv_lane_release(struct rdv_lane *l, struct rdv_now now, uint64_t key_hash,
				     struct rdv_effects *out) RDV_MUST_CHECK;
/* A dead letter is to be delivered again. *number = the request's. CONFLICT: that letter has an open request. */
enum redrive_status rdv_lane_replay(struct rdv_lane *l, struct rdv_now now, const struct rdv_request *request,
				    uint64_t *number, struct rdv_effects *out) RDV_MUST_CHECK;
/* Takes back every request of the plan that is not at the handler (OUTCOME effects); with `pause` only stops
 * dispatching them, resume by pause = false. */
void rdv_lane_replay_pause(struct rdv_lane *l, struct rdv_now now, uint64_t plan, bool paused, struct rdv_effects *out);
void rdv_lane_replay_cancel(struct rdv_lane *l, struct rdv_now now, uint64_t plan, struct rdv_effects *out);
/* No more dispatches (drain); calls in flight go on. */
void rdv_lane_stop(struct rdv_lane *l);
/* The lane goes on at another target (an orphan that is adopted, a handler at another host). Calls that are open then
 * were granted by the one that it leaves, and so are to be ended there: rdv_lane_granted_by. */
void rdv_lane_move_to(struct rdv_lane *l, struct rdv_target *target, uint32_t target_route);
/* An orphan has a route again: its name, and whether STARTED comes before its calls. Says nothing of target and policy.
 */
enum redrive_status rdv_lane_adopted_by(struct rdv_lane *l, const char *route, bool start_before_call) RDV_MUST_CHECK;
/* Until it is said again, with NULL for the lane's own: the ends of calls (rdv_lane_verdict, _take_back, _damaged,
 * _dedupe) are booked at this target, for this route of it. */
void rdv_lane_granted_by(struct rdv_lane *l, struct rdv_target *target, uint32_t target_route);
/* Lanes of one route and partition, its own and those that it has adopted, keep one order of their keys: G1 to G4 hold
 * over all of them. `l` joins `to` and its siblings, when it is made (before rdv_lane_opened) or when it is adopted;
 * all of them belong to one target. A lane leaves when it is stopped, with all the others, or freed. false: one of the
 * two has no order by key; they stay apart. */
bool rdv_lane_add_sibling(struct rdv_lane *l, struct rdv_lane *to, struct rdv_now now, struct rdv_effects *out);
void rdv_lane_leave_siblings(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out);
enum rdv_order rdv_lane_order(const struct rdv_lane *l);
/* The lane's keys of the idempotency window go over to another one, NULL = its own; no call of it is open. */
void rdv_lane_move_dedupe(struct rdv_lane *l, struct rdv_dedupe *to, struct rdv_now now, struct rdv_effects *out);
/* A clean end: CLOSE. */
void rdv_lane_close(struct rdv_lane *l, struct rdv_effects *out);

/* ---- liveness and trimming. Counted as live (rdv_log_live): every BODY once per lane of its partition, when it is
 * published (or folded: ask rdv_lane_each_live before rdv_lane_opened), and every RECORD with owns_state, when
 * it is appended. The lane emits RELEASED exactly once for each of them. All other records are not counted: before any
 * tail segment goes, with or without live records, rdv_lane_rewrite must be called for every lane until it has done
 * all; it emits what may lie there (LANE, PAUSE, COUNTERS, gates, requests, dedupe), and the segment goes when that is
 * durable. rdv_lane_owns: is the record at `place` live (BODY, STATE; others: false)? A re-appended one is reported by
 * rdv_lane_moved. A BODY that is re-appended because another lane owns it would come back to life in the lanes that
 * finished it: for each of those, rdv_lane_done_again must be called in the same turn; its DONE then lies behind the
 * BODY. ---- */
bool rdv_lane_owns(const struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_place place,
		   uint32_t *entry);
/* Places in effects grow old: trimming moves records. Whoever reads a STATE asks here first, and again when the read
 * says NOT_FOUND. */
struct rdv_place rdv_lane_state_place(const struct rdv_lane *l, uint32_t entry);
struct rdv_place rdv_lane_body_place(const struct rdv_lane *l, uint32_t entry); /* segment 0: a replay's, or gone */
void rdv_lane_moved(struct rdv_lane *l, enum rdv_record type, uint64_t seq, struct rdv_place place);
struct rdv_rewrite { /* how far it came; zeroed to begin with a lane */
	uint32_t stage, at;
};
/* Looks at *budget keys, requests and dedupe keys at most, and takes off what it used. true: all is done. */
bool rdv_lane_rewrite(struct rdv_lane *l, uint32_t segment, struct rdv_rewrite *done, uint32_t *budget,
		      struct rdv_effects *out) RDV_MUST_CHECK;
void rdv_lane_done_again(struct rdv_lane *l, uint64_t seq, struct rdv_effects *out);
struct rdv_losses {
	uint64_t bodies, histories;
};
/* `segment` goes, and what the lane still owns there cannot be read: a message whose body lies there dies as damaged,
 * the history of others is written again as far as memory knows it. Looks at *budget entries at most, from *at on (0 to
 * begin), and takes off what it used; true: at the end. A message at the handler keeps its body; one that is dying ends
 * by its letter: until then the lane owns what is there, and has to be asked again. */
bool rdv_lane_lose(struct rdv_lane *l, struct rdv_now now, uint32_t segment, uint32_t *at, uint32_t *budget,
		   struct rdv_losses *count, struct rdv_effects *out) RDV_MUST_CHECK;
/* Every live record that counts, BODY and STATE; after the fold it is asked before rdv_lane_opened. */
typedef void (*rdv_lane_live)(void *ctx, enum rdv_record type, uint64_t seq, struct rdv_place place);
void rdv_lane_each_live(const struct rdv_lane *l, rdv_lane_live each, void *ctx);
/* The same in slices of `budget` entries, of a lane that does not change meanwhile. *at: 0 to begin, 0 at the end. */
void rdv_lane_each_live_slice(const struct rdv_lane *l, uint32_t *at, uint32_t budget, rdv_lane_live each, void *ctx);

/* ---- questions ---- */
enum rdv_held_by {
	RDV_HELD_BY_KEY,    /* an earlier message of its key */
	RDV_HELD_BY_GATE,   /* the gate of its key, which a dead one has closed */
	RDV_HELD_BY_DOUBLE, /* a message with the same idempotency key is at work */
	RDV_HELD_BY_PLAN    /* its replay is paused */
};
struct rdv_where {
	enum rdv_state state;
	uint32_t attempt;
	bool delivered;           /* went out before */
	enum rdv_held_by held_by; /* held only */
	struct rdv_wall due;      /* waiting only */
	uint64_t behind;          /* held only: first unfinished seq of the key; UINT64_MAX none */
	struct rdv_place body, state_place;
};
/* NOT_FOUND: never given out on this lane. A seq below next and not live: ACKED/DROPPED/... if remembered, else DONE.
 */
enum redrive_status rdv_lane_where(const struct rdv_lane *l, struct rdv_now now, uint64_t seq,
				   struct rdv_where *out) RDV_MUST_CHECK;
/* Live messages of a key, in no order; a search of a large lane takes several calls. Each looks at the next `budget`
 * entries and returns how many it put into `seqs`, at most as many. *at: 0 to begin, where to go on, 0 when all were
 * seen. What is live from the first call to the last is found once. */
size_t rdv_lane_find_key(const struct rdv_lane *l, uint64_t key_hash, uint32_t *at, uint64_t seqs[], uint32_t budget);
/* Live messages of a key that wait for their turn; the publisher's side refuses more than 100,000. 0 with order: none.
 */
uint32_t rdv_lane_held_of_key(const struct rdv_lane *l, uint64_t key_hash);
/* An open or finished replay request; slices borrow from the lane. */
bool rdv_lane_request(const struct rdv_lane *l, uint64_t number, struct rdv_request *out);
const struct rdv_account *rdv_lane_account(const struct rdv_lane *l);
uint64_t rdv_lane_held_back(const struct rdv_lane *l); /* due retries that wait for a budget token */
int64_t rdv_lane_overdue_ms(const struct rdv_lane *l, struct rdv_now now);
int64_t rdv_lane_oldest_ms(const struct rdv_lane *l,
			   struct rdv_now now); /* age of the oldest unfinished, by its entry into the lane */
size_t rdv_lane_bytes(const struct rdv_lane *l);
uint32_t rdv_lane_stream(const struct rdv_lane *l);
struct rdv_target *rdv_lane_target(const struct rdv_lane *l);
uint32_t rdv_lane_target_route(const struct rdv_lane *l);
/* Invariants: order, account, one call per key, links. For tests and the simulator. */
bool rdv_lane_check(const struct rdv_lane *l, const char **what);
#endif
