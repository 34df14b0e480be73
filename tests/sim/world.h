/* world.h - one seeded world of the simulator: the real core in virtual time, with everything around it invented.
 *
 * A world has topics with partitions, routes on them (a lane per route and partition), targets, a log that loses what
 * was not synced, a desk, handlers of every character, and a truth: what a bystander knows of each message on each
 * lane. The core is run exactly as the runtime runs it: events in, effects executed in order, one batch of records a
 * turn. After every turn the truth is compared with what the core says (sim_check.c).
 *
 * Time: `t` is true time in ms and never goes back. The core sees mono = t + mono_base and wall = t + wall_base;
 * jumps change wall_base, a restart changes mono_base. All randomness comes from the seed. One thread; a violation
 * prints the seed and the step and leaves the world by longjmp. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H
#include <setjmp.h>
#include <stdio.h>
#include "base/random.h"
#include "core/dedupe.h"
#include "core/dispatcher.h"
#include "core/record.h"
#include "sim_log.h"

#define SIM_TOPICS 2
#define SIM_PARTITIONS 3
#define SIM_STREAMS (SIM_TOPICS * SIM_PARTITIONS)
#define SIM_ROUTES 4
#define SIM_GENERATIONS 3 /* of a route: it is renamed, what it leaves are orphans */
#define SIM_LANES (SIM_ROUTES * SIM_PARTITIONS * SIM_GENERATIONS)
#define SIM_TARGETS 2
#define SIM_PLANS 4
#define SIM_LANE_STREAM 100u /* streams of lanes begin here */

/* What waits for its time. Process events die with the process; world events do not. */
enum sim_event_kind {
	SIM_EV_PUBLISH,
	SIM_EV_CHAOS,
	SIM_EV_WEATHER, /* of the world */
	SIM_EV_SYNCED,
	SIM_EV_ANSWER,
	SIM_EV_LATE,
	SIM_EV_HISTORY,
	SIM_EV_LETTERED,
	SIM_EV_OUTCOME, /* of the process */
	SIM_EV_KINDS
};
struct sim_event {
	int64_t at;
	uint64_t serial;
	enum sim_event_kind kind;
	uint32_t run;   /* of the process; 0 = the world's */
	uint64_t epoch; /* HISTORY: of the lane that asked */
	uint32_t a, b;  /* by kind: lane and call slot, ... */
	uint64_t c;
};

/* A message's own character, the same on every lane. */
enum sim_nature {
	SIM_GOOD,
	SIM_FLAKY,
	SIM_POISON,
	SIM_REJECT,
	SIM_SLOW,
	SIM_DEFER,
	SIM_CRASHER,
	SIM_DROP,
	SIM_NATURES
};

struct sim_message {               /* one published message; its offset is its index */
	uint64_t key_hash;         /* 0 = null key */
	int64_t not_before, delay; /* delay: by the clock of its publisher */
	struct rdv_hash128 dedupe;
	uint8_t nature, key;
};
struct sim_partition {
	struct sim_message *items; /* owns */
	size_t count, capacity;    /* count = next offset */
	size_t durable;            /* so many are acknowledged */
	uint32_t stream;
};

/* What a bystander knows of one message on one lane. `durable`: by records that are synced; else by all that was
 * appended. */
struct sim_fate {
	uint8_t final, durable_final;   /* enum rdv_state + 1 of its DONE; 0 = none */
	uint8_t reason, durable_reason; /* of its dying STATE; 0 = none */
	bool received;                  /* told to the lane in this run */
	uint8_t calls;                  /* live calls now; 0 or 1 */
	bool replaying;                 /* a replay call now */
	bool damaged;
	bool started; /* STARTED is its last durable record */
	bool doomed;  /* a follower of a letter that died with after_dead: follow */
	bool revoke_asked;
	uint8_t letters;                               /* generations of stored letters, a bit each */
	uint8_t generation;                            /* of the newest letter */
	uint16_t deliveries, retries, crashes, defers; /* verdicts given, over all runs */
	int64_t earliest;                              /* mono: not to be dispatched before */
	int64_t due, delay;                            /* of its last STATE */
	int64_t durable_due, durable_delay;
	uint16_t charged; /* in its last STATE */
	uint16_t durable_charged;
	bool acked, dropped; /* the handler said so */
	bool fresh;          /* the next STATE follows a verdict */
	int64_t judged;      /* mono: when that was given */
	bool bounded;        /* the next STATE's delay must lie in low..high */
	int64_t low, high;
	int64_t done_until, durable_done_until; /* wall: its dedupe key is done so long */
};

struct sim_route {
	char name[20];
	uint32_t topic, target, number; /* number: on its target */
	struct rdv_lane_policy policy;
	struct rdv_route_policy route_policy;
	uint32_t attempts_min; /* smallest limit that was ever in force */
	uint32_t deferrals_min, crashes_min;
	int64_t max_age_min;
	bool start_before_call, storming, may_drop, dedupes;
	uint32_t unrecorded_max;
	uint64_t entries_min; /* of dedupe windows that its lanes had */
	uint32_t generation;
	struct rdv_rules *rules;                    /* shares; NULL = none */
	struct rdv_dedupe windows[SIM_GENERATIONS]; /* the lanes of a generation share one */
};
struct sim_key { /* of one lane */
	uint64_t hash;
	uint8_t live_calls, replay_calls;
	bool gate, durable_gate;
};
#define SIM_KEYS 8
struct sim_mark { /* whose lane it is, and where it ends */
	uint32_t route, generation;
	bool orphan;
	uint64_t end; /* UINT64_MAX: it takes what is published */
};
struct sim_lane {
	struct rdv_lane *lane; /* owns */
	uint32_t index, route, partition, stream;
	uint32_t generation;
	bool orphan;
	bool loose;              /* an orphan whose calls have ended: in no dispatcher */
	bool born;               /* its LANE record is durable */
	struct sim_mark durable; /* mark */
	uint64_t start, end, epoch;
	bool stopped, handing_over, paused, durable_paused, unclean;
	struct sim_fate *fates; /* owns; by offset */
	size_t fate_capacity;
	struct sim_key keys[SIM_KEYS]; /* [0]: null */
	struct sim_unrecorded {        /* outcomes not durable, by ticket */
		uint64_t ticket;
		int64_t since;
	} unrecorded[64];
	uint32_t unrecorded_count;
	uint64_t refunded; /* charges given back in this run, as the account says */
	size_t base_bytes;
};
struct sim_target {
	struct rdv_target *target;         /* owns */
	struct rdv_dispatcher *dispatcher; /* owns */
	struct rdv_target_policy policy;
	int64_t wake; /* mono */
	bool touched;
	int64_t hold_until; /* mono: Retry-After */
	double tokens;      /* of its rate, at tokens_at */
	int64_t tokens_at;
	uint8_t weather;
	uint32_t calls, probes;
	int64_t last_ok, down_at; /* mono */
	bool refunds;             /* it went down in this run: charges may have been given back */
};

struct sim_call {
	bool open;
	uint32_t lane, entry, target;
	uint64_t seq, call, request;
	uint32_t attempt;
	bool probe;
	uint64_t wait_ticket; /* STARTED must be durable first; 0 = out */
	int64_t began;
	bool has_dedupe;
};

enum sim_replay_state { SIM_REPLAY_SENT, SIM_REPLAY_ENDED, SIM_REPLAY_STORED };
struct sim_replay {
	uint32_t lane, plan;
	uint64_t seq, number;
	uint8_t generation;
	enum sim_replay_state state;
	bool accepted;          /* its REQUEST is durable */
	enum rdv_state outcome; /* when ended; stored: for good */
};

struct sim_deed {              /* a record of this turn, not appended yet */
	struct sim_lane *lane; /* NULL: the world's own */
	uint32_t entry;
	bool owns_state, moved;
	struct sim_frame frame;
	struct rdv_place old;
};

struct sim_outage {
	int64_t lasts, began, half; /* t; 0 = not yet */
	uint32_t reached, probes, since, acked;
	double throughput; /* before it */
};

struct sim_options { /* what a world is made of, drawn from the seed */
	uint32_t topics, partitions, routes, targets;
	uint32_t messages;
	double crash, publish_every_ms, chaos_every_ms;
	uint32_t check_every;
	bool wall_jumps, suspends, replays, revokes, reloads, pauses, trims, handovers, delays, damage, storms, adopts;
	bool outage; /* sim_outage.c */
	int64_t sync_ms, stall_ms;
	uint32_t segment_size, keep_segments;
};

struct sim_world {
	uint64_t seed, step;
	struct rdv_random random;
	bool trace, healing;
	jmp_buf *out;
	int64_t t, mono_base, wall_base;
	uint32_t run;
	bool crashed; /* inside this turn: everything unwinds */
	uint64_t crashes;
	int64_t latest_wall;       /* the wall clock's furthest so far */
	uint64_t adopted, outages; /* how often, over all worlds */
	struct sim_options options;
	struct sim_outage outage;
	struct sim_partition streams[SIM_STREAMS];
	struct sim_route routes[SIM_ROUTES];
	struct sim_lane lanes[SIM_LANES];
	uint32_t lane_count;
	struct sim_target targets[SIM_TARGETS];
	struct rdv_target *orphan_target; /* owns */
	struct sim_log log;
	uint64_t syncing; /* ticket that the running commit will make durable; 0 = none */
	uint32_t published;
	struct rdv_effects effects;
	struct sim_deed *deeds; /* owns */
	size_t deed_count, deed_capacity;
	struct rdv_buffer deed_bytes;
	uint64_t trim_ticket; /* the tail goes when this is durable; 0 = no trim runs */
	int64_t next_trim;
	bool trimming;          /* in this turn */
	struct sim_call *calls; /* owns */
	size_t call_count, call_capacity;
	struct sim_replay *replays; /* owns */
	size_t replay_count, replay_capacity;
	bool plan_paused[SIM_PLANS], plan_cancelled[SIM_PLANS];
	struct sim_event *events; /* owns: a heap */
	size_t event_count, event_capacity;
	uint64_t serial;
	uint64_t dispatches, verdicts, steps_checked;
	int64_t closed_at;
};

/* ---- world.c ---- */
void sim_world_init(struct sim_world *w); /* once */
void sim_world_done(struct sim_world *w);
/* Runs one world to its end. On a violation the world is left by longjmp(*w->out). */
void sim_world_run(struct sim_world *w, uint64_t seed);
struct rdv_now sim_now(const struct sim_world *w);
void sim_at(struct sim_world *w, int64_t delay, struct sim_event event); /* run is set by the kind */
bool sim_chance(struct sim_world *w, double p);
uint64_t sim_below(struct sim_world *w, uint64_t bound);
int64_t sim_between(struct sim_world *w, int64_t low, int64_t high);
struct sim_partition *sim_partition_of(struct sim_world *w, const struct sim_lane *l);
struct sim_message *sim_message_of(struct sim_world *w, const struct sim_lane *l, uint64_t seq);
struct sim_fate *sim_fate_of(struct sim_world *w, struct sim_lane *l, uint64_t seq);
struct sim_lane *sim_lane_of(struct sim_world *w, const struct rdv_lane *lane);
struct sim_lane *sim_lane_by_stream(struct sim_world *w, uint32_t stream);
struct sim_key *sim_key_of(struct sim_lane *l, uint64_t hash); /* NULL for a null key */
struct sim_target *sim_target_of(struct sim_world *w, const struct sim_lane *l);
void sim_touch(struct sim_world *w, struct sim_lane *l);
void sim_answer_histories(struct sim_world *w); /* all that were asked for, now: a drain waits for its reads */
void sim_trace(struct sim_world *w, const char *fmt, ...) RDV_PRINTF(2, 3);
_Noreturn void sim_fail(struct sim_world *w, const char *fmt, ...) RDV_PRINTF(2, 3);

/* ---- sim_draw.c: what a world is made of ---- */
void sim_draw(struct sim_world *w);
void sim_draw_retry(struct sim_world *w, struct rdv_retry *r);
void sim_heal(struct sim_world *w);

/* ---- sim_outage.c: worlds with a full outage ---- */
void sim_outage_draw(struct sim_world *w);
void sim_outage_draw_target(struct sim_world *w, struct sim_target *t);
void sim_outage_draw_route(struct sim_world *w, struct sim_route *r);
void sim_outage_weather(struct sim_world *w);
void sim_outage_acked(struct sim_world *w);
void sim_outage_call(struct sim_world *w, const struct rdv_effect *e);
void sim_outage_turn(struct sim_world *w);
void sim_outage_end(struct sim_world *w);

/* ---- sim_effects.c: executes effects, keeps the turn's batch ---- */
void sim_execute(struct sim_world *w); /* and clears the effects; may set crashed */
void sim_record(struct sim_world *w, struct sim_lane *l, const struct sim_frame *frame, struct rdv_slice payload);
void sim_turn_end(struct sim_world *w);
void sim_trim(struct sim_world *w);

/* ---- sim_handler.c: calls, their answers, weather ---- */
void sim_call_begin(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *effect);
void sim_calls_durable(struct sim_world *w); /* calls that waited for STARTED */
void sim_answer(struct sim_world *w, uint32_t slot);
void sim_late(struct sim_world *w, const struct sim_event *e);
void sim_weather(struct sim_world *w);
void sim_cut_calls(struct sim_world *w, struct sim_lane *l);

/* ---- sim_desk.c: letters and replays ---- */
void sim_letter(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *effect);
void sim_lettered(struct sim_world *w, const struct sim_event *e);
void sim_outcome(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *effect);
void sim_outcome_stored(struct sim_world *w, const struct sim_event *e);
void sim_send_replay(struct sim_world *w);
void sim_desk_after_crash(struct sim_world *w);
void sim_resend_replays(struct sim_world *w);

/* ---- sim_crash.c: death, recovery, hand-over ---- */
void sim_start(struct sim_world *w); /* the first process, on an empty log */
void sim_crash(struct sim_world *w);
void sim_reopen_clean(struct sim_world *w);
void sim_hand_over(struct sim_world *w, struct sim_lane *l);
void sim_new_lane(struct sim_world *w, struct sim_lane *l);                /* the core's, ready to fold */
void sim_open_lane(struct sim_world *w, struct sim_lane *l, bool unclean); /* all of its records are folded */

/* ---- sim_adopt.c: routes that are renamed, orphans, adoption ---- */
uint64_t sim_lane_end(struct sim_world *w, const struct sim_lane *l);   /* of what it was given and is durable */
bool sim_is_family(const struct sim_lane *a, const struct sim_lane *b); /* lanes of one route and partition */
struct rdv_dedupe *sim_window_of(struct sim_world *w, const struct sim_lane *l);
struct sim_lane *sim_make_lane(struct sim_world *w, uint32_t route, uint32_t partition, uint64_t start);
void sim_join_family(struct sim_world *w, struct sim_lane *l);
void sim_rename(struct sim_world *w);
void sim_reap(struct sim_world *w);
void sim_adopt(struct sim_world *w);
void sim_adopt_all(struct sim_world *w);
void sim_reconcile(struct sim_world *w); /* the configuration with what a crash left */
void sim_learn_mark(struct sim_lane *l, struct rdv_slice payload);
void sim_free_windows(struct sim_world *w);

/* ---- sim_learn.c ---- */
/* A record was appended; or it became durable, or survived. */
void sim_learn(struct sim_world *w, const struct sim_frame *f, struct rdv_slice payload, bool durable);

/* ---- sim_chaos.c: publishers and operators ---- */
void sim_publish(struct sim_world *w);
void sim_deliver(struct sim_world *w, uint64_t ticket); /* durable up to here: publishers are told, lanes learn */
void sim_chaos(struct sim_world *w);

/* ---- sim_check.c ---- */
void sim_check_dispatch(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *effect);
void sim_check_dedupe(struct sim_world *w, struct sim_lane *l, uint64_t seq);
void sim_check_turn(struct sim_world *w);
void sim_check_all(struct sim_world *w);
void sim_check_end(struct sim_world *w);
#endif
