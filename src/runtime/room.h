/* room.h - the engine's state, for the files of this room only.
 *
 *   unit    a target with its dispatcher          strand  one lane and what the runtime knows of it
 *   route   name, handler, policy, its strands    feed    a topic partition and the strands that read it
 *   flight  one open call, from DISPATCH to verdict
 *
 * Everything here belongs to the core thread, except what stands under a mutex or is atomic. Before the core thread
 * runs and after it has ended, the thread that starts and stops the engine takes its place. */
#ifndef RDV_RUNTIME_ROOM_H
#define RDV_RUNTIME_ROOM_H
#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>
#include "engine.h"
#include "cache.h"
#include "reader.h"
#include "writer.h"
#include "../base/quantity.h"
#include "../base/text.h"
#include "../core/dedupe.h"
#include "../core/envelope.h"
#include "../core/fingerprint.h"
#include "../desk/desk.h"

#define RDV_INLET_TOPIC "broker:" /* begins the topic's name in the LANE record of a broker's lane */
#define RDV_INLET_STREAMS 3u      /* new messages, messages of its journal, records */
#define RDV_LABEL_SIZE (sizeof RDV_INLET_TOPIC + 201)
#define RDV_RECENT_MAX 16           /* durable buffers kept for their bodies, */
#define RDV_PIECES_MAX 16           /* and pieces of the log */
#define RDV_TURN_CALLS 1024u        /* dispatched or completed in one step: their effects stay in the cache */
#define RDV_TURN_BYTES (768u << 10) /* of records, then they are appended */
#define RDV_READS_MAX 16384u        /* outstanding, before new messages have to wait */
#define RDV_HELD_MAX 100000u        /* messages of one key that may wait */
#define RDV_UNRECORDED_MS 2000      /* nothing is dispatched when records are not durable for so long */
#define RDV_RESTING_MAX 256         /* lanes of brokers that have gone lately */
#define RDV_TICK_MS 1000            /* time is read at least so often */

/* What other threads may look at while a call or job is open: never changed, counted by the core thread. */
struct rdv_route_info {
	unsigned refs; /* core thread only */
	char name[101], topic[201], *metadata[4], *index[RDV_INDEX_MAX];
	size_t index_count;
	struct rdv_rules *rules; /* shares */
	struct rdv_dedupe_policy dedupe;
	struct rdv_engine *engine; /* borrows */
};
enum { RDV_META_TENANT, RDV_META_SCHEMA, RDV_META_CONSUMER, RDV_META_TRACE };
struct rdv_route_info *rdv_route_info_new(struct rdv_engine *e, const struct rdv_route_options *options);
struct rdv_route_info *rdv_route_info_ref(struct rdv_route_info *info);
void rdv_route_info_unref(struct rdv_route_info *info);

struct rdv_unit {
	struct rdv_unit *next;
	char *name;
	struct rdv_target_policy policy;
	struct rdv_target *target;         /* owns */
	struct rdv_dispatcher *dispatcher; /* owns */
	struct rdv_mono wake;              /* when to run again */
	size_t seats;                      /* it goes with the last one */
	size_t expected;                   /* lanes that a reload is about to bring here */
	bool linked;                       /* among the engine's */
};

/* A route's place at a target. Each call keeps the one that granted it, and ends there. */
struct rdv_seat {
	struct rdv_seat *next; /* of those that their routes have left */
	struct rdv_unit *unit;
	uint32_t number; /* of the route, at the target */
	uint64_t calls;
};

/* A route's handler. Each call keeps the one that it was granted for, and goes there. */
struct rdv_outlet {
	struct rdv_outlet *next;     /* of those that their routes have given up */
	struct rdv_handler *handler; /* owns */
	struct rdv_call *submit, **submit_end;
	enum rdv_handler_kind kind;
	uint32_t number; /* lease tokens carry it */
	uint64_t calls;
};

struct rdv_strand {
	struct rdv_lane *lane;   /* owns; NULL = discarded */
	struct rdv_route *route; /* NULL = orphan */
	struct rdv_feed *feed;
	struct rdv_strand *next; /* of all */
	char name[101];          /* the route's, also of an orphan */
	uint32_t stream;
	uint64_t start, end; /* offsets it is responsible for: [start, end) */
	uint64_t epoch, last_ticket;
	uint32_t mark_segment;        /* of the record that says it is retired; 0 = none */
	struct rdv_inlet_lane *inlet; /* borrows; NULL = of the embedded queue */
	uint32_t uses;                /* open calls, letters and reads that point to it */
	bool touched, unsynced, orphan, discarded;
	bool promised; /* its feed has a place for it */
};

struct rdv_feed {
	struct rdv_topic *topic;
	uint32_t partition, stream;
	struct rdv_strand **strands; /* owns the array */
	size_t count, capacity, promised;
	uint64_t next_offset; /* the next new message; what comes below it was re-appended */
	uint64_t cut;         /* during a reload: where new lanes begin and removed ones end; UINT64_MAX = not said */
	struct rdv_feed *next;
};

struct rdv_route {
	struct rdv_route *next;
	uint32_t number;                  /* running, never given to another one */
	struct rdv_route_info *info;      /* shares */
	struct rdv_route_options options; /* numbers only; texts are in info */
	struct rdv_topic *topic;
	struct rdv_seat *seat;     /* owns */
	struct rdv_outlet *outlet; /* owns */
	struct rdv_inlet *inlet;   /* owns; NULL = of the embedded queue */
	uint64_t open_calls;
	int64_t lease_ms; /* core's mono when leases are to be looked at; lease handlers */
	bool gone;        /* removed; waits for its open calls */
	bool kept;        /* during a reload: it is in the new set */
	struct rdv_route_metrics metrics;
};

/* Bytes of the log that bodies may be asked of: a durable buffer that is kept, or a piece that was read. */
struct rdv_recent {
	struct rdv_log_buffer *buffer; /* shares */
	struct rdv_block *piece;       /* owns; neither of both: free */
	uint64_t first, end;           /* places: segment 32, offset 32 bits; equal when nothing is there */
	unsigned pins;
	uint64_t used_at; /* rising number: the oldest goes first */
	/* pieces */
	struct rdv_log *log; /* borrows */
	struct rdv_job job;
	bool reading;               /* `first` is where it will begin */
	struct rdv_flight *waiting; /* through wait_next, newest first */
};

/* The MiB of the log that were asked for lately, and how often. */
#define RDV_REGIONS 8
#define RDV_REGION_WORTH 3 /* asked for so often, it is worth being read as a whole */
struct rdv_regions {
	struct {
		uint64_t lowest; /* the first place that was asked for: segment 32, offset 32 bits */
		unsigned asked;  /* 0 = free */
	} items[RDV_REGIONS];
	unsigned turn;
};

enum rdv_flight_state { RDV_FLIGHT_FREE, RDV_FLIGHT_BODY, RDV_FLIGHT_SYNC, RDV_FLIGHT_OUT, RDV_FLIGHT_HISTORY };

/* Thousands are open at once, more than the processor's caches hold: what every call needs lies in the call's first two
 * lines and in the two that begin with `strand`; the rest is for what does not go straight. */
struct rdv_flight {
	struct rdv_call call; /* first */
	_Alignas(64) struct rdv_strand *strand;
	struct rdv_route *route;
	struct rdv_seat *seat;
	struct rdv_outlet *outlet;
	struct rdv_route_info *info; /* shares */
	struct rdv_recent *pin;
	struct rdv_block *history; /* owns: STATE payload */
	uint64_t number, ticket;   /* number: the lane's of this call */
	uint32_t entry;
	uint8_t stage; /* enum rdv_flight_state */
	bool started : 1;
	bool first : 1;    /* of a message that was never tried before */
	bool recalled : 1; /* offered to pullers: taken back as soon as its body is there */
	bool : 0; /* those are the core's at any time, these belong to the thread that has the call or its job */
	bool has_dedupe : 1, damaged : 1;
	bool unread : 1;  /* nor damaged: it could not be read just now */
	bool plain : 1;   /* acknowledged, and nothing else was told: `verdict` is not set */
	int64_t out_ms;   /* mono, at submit */
	uint64_t request; /* of a replay; 0 = a live message */
	struct rdv_place body, state;
	struct rdv_flight *wait_next; /* of the free ones, or of those that wait for a piece */
	struct rdv_verdict verdict;
	struct rdv_job job;
	uint8_t letter[16];
	uint32_t generation;
	char replay[64];
	char letter_id[27];
	struct rdv_buffer scratch; /* a dedupe key that was read from JSON */
};

/* The lines that every step of a call touches, on their way while the one before is worked on. */
static inline void rdv_flight_expect(const struct rdv_flight *f)
{
	__builtin_prefetch(f);
	__builtin_prefetch((const char *)f + 64);
	__builtin_prefetch(&f->strand);
	__builtin_prefetch(&f->out_ms);
}

/* Flights in order; there is room for all that exist, so that adding cannot fail. */
struct rdv_flight_ring {
	struct rdv_flight **items; /* owns; a power of two */
	size_t head, count, capacity;
};

struct rdv_command { /* lives on the asker's stack */
	struct rdv_command *next;
	void (*fn)(struct rdv_engine *e, void *ctx);
	void *ctx;
	bool done, refused;
};

struct rdv_job_list { /* collected in a turn, handed over together */
	struct rdv_job *first, **end;
};

struct rdv_stream_use {
	bool stale; /* of a broker's lane of an earlier run: its records are nobody's */
	struct rdv_feed *feed;
	struct rdv_strand *strand;
};

struct rdv_letter_retry { /* letters that the desk could not take yet */
	struct rdv_job *first, **end;
	int64_t again_ms;
};

enum rdv_engine_stage { RDV_ENGINE_OPENED, RDV_ENGINE_RUNNING, RDV_ENGINE_STOPPING, RDV_ENGINE_STOPPED };

struct rdv_identity { /* of a lane, as the first pass over the log found it */
	struct rdv_identity *next;
	uint32_t stream, partition, partition_stream, mark_segment;
	char route[101], topic[RDV_LABEL_SIZE];
	uint64_t start, end, epoch;
	uint32_t opens;
	bool orphan, discarded;
	bool stale; /* a broker's lane of an earlier run */
};

/* The idempotency window of a route, by its name: all its lanes share it. */
struct rdv_window {
	struct rdv_window *next;
	char name[101];
	struct rdv_dedupe dedupe;
};

#define RDV_UNREAD_MAX 256
struct rdv_unread { /* a message whose body could not be read */
	const struct rdv_strand *strand;
	uint64_t offset;
	unsigned tries, waits; /* tries: that the device failed */
};

struct rdv_engine {
	struct rdv_engine_options options;
	char *dir;
	struct rdv_log *log;
	struct rdv_topics *topics;
	struct rdv_desk *desk;
	struct rdv_hash128 id;
	struct rdv_identity *identities;
	bool clean; /* the log ended with CLOSE */

	struct rdv_unit *units;
	struct rdv_route *routes, *gone;
	struct rdv_seat *old_seats;     /* owns; left by their routes while calls were open */
	struct rdv_outlet *old_outlets; /* owns; and given up, likewise */
	struct rdv_outlet *old_leases;  /* owns; without calls, but pullers may still ask them */
	struct rdv_strand *strands;
	struct rdv_strand *resting[RDV_RESTING_MAX]; /* own, with their feeds */
	size_t resting_at;
	struct rdv_window *windows; /* owns; each as long as a lane has it */
	struct rdv_feed *feeds;
	struct rdv_stream_use *streams; /* by stream id */
	size_t stream_capacity;
	struct rdv_http_pool *http_pool;
	struct rdv_exec_pool *exec_pool;
	struct rdv_target *orphan_target;
	struct rdv_route_info *orphan_info;
	uint32_t lease_number, route_numbers;

	/* the core thread */
	uv_loop_t loop;
	uv_async_t wake;
	uv_timer_t timer;
	pthread_t thread;
	bool loop_ready, thread_started, ended;
	struct rdv_now now;
	int64_t clocks_apart; /* wall - mono, until a clock is set */
	struct rdv_effects lists[2], *effects;
	struct rdv_strand **touched;
	size_t touched_count, touched_capacity;
	struct rdv_strand **unsynced;
	size_t unsynced_count, unsynced_capacity;
	uint64_t last_ticket, durable; /* appended by the core; seen as durable */
	uint64_t oldest_ticket;        /* not durable yet; 0 = none */
	int64_t oldest_ms;
	struct rdv_recent recent[RDV_RECENT_MAX + RDV_PIECES_MAX];
	struct rdv_recent *last_hits[2]; /* of buffers, of pieces; both may be empty by now */
	struct rdv_regions fetch_regions, read_regions;
	uint64_t recent_use;
	uint32_t walked; /* segment of the last frame that the core has seen: all before it is known to the lanes */
	struct rdv_cache cache;
	struct rdv_flight *flights, *free_flights; /* all, by allocation block */
	void **flight_blocks;
	size_t flight_block_count, open_flights;
	struct rdv_flight_ring sync; /* wait for their STARTED */
	struct rdv_letter_retry retry;
	struct rdv_late *late;           /* verdicts that wait for a call to be taken back */
	struct rdv_lease_batch *decided; /* verdicts that wait to be durable */
	struct rdv_await *awaiting;      /* owns; who waits for brokers */
	struct rdv_job_list urgent, later;
	uint64_t call_number, reads_open, letters_open;
	struct rdv_unread unread[RDV_UNREAD_MAX];
	size_t unread_count;
	int64_t unread_said_ms, unread_review_ms;
	_Atomic unsigned unread_now;
	_Atomic uint64_t unread_total, damaged_segments;
	uint64_t letters_left; /* by a drain, to the next start */
	unsigned uncounting;   /* lanes that were discarded, whose records still count as live: the tail stays */
	struct rdv_letter_job *oldest_letter, *newest_letter;
	_Atomic int64_t oldest_letter_ms; /* mono, when it was made; 0 = none is open */
	bool failed, stopping, cut;
	int64_t drain_until;
	struct rdv_writer writer;
	struct rdv_readers readers;

	/* other threads to the core, under inbox */
	pthread_mutex_t inbox;
	pthread_cond_t answered;
	enum rdv_engine_stage stage;
	struct rdv_call *completed, **completed_end;
	struct rdv_command *commands, **commands_end;
	struct rdv_letter_job *letters; /* stored or refused */

	/* trimming: the maintenance thread and the core */
	pthread_t maintenance;
	bool maintenance_started;
	_Atomic bool maintenance_stop;
	struct rdv_trim *trim;
	struct rdv_frame *raw; /* owns; live frames of the tail, to be appended again with the next records */
	size_t raw_count, raw_capacity;

	/* admission of publishers, under admit_mutex, as are changes of `routes` and of their infos */
	pthread_mutex_t admit_mutex;
	struct rdv_full_key *full_keys;
	_Atomic unsigned full_count;
	struct {
		_Atomic uint64_t body, headers, batch;
	} most;               /* bytes of a message that is published */
	_Atomic bool accepts; /* publishing */
	_Atomic bool log_failed;
};

/* ---- engine.c ---- */
void rdv_engine_say(struct rdv_engine *e, int level, const char *fmt, ...) RDV_PRINTF(3, 4);
/* The log can record nothing any more: no dispatch, no publishing. */
void rdv_engine_fail(struct rdv_engine *e, const char *why);
void rdv_engine_wake(struct rdv_engine *e);

/* ---- publish.c ---- */
void rdv_engine_settle_limits(struct rdv_engine *e); /* those that the options say */
void rdv_engine_set_limits(struct rdv_engine *e, const struct rdv_engine_options *limits);

/* ---- recover.c ---- */
/* Opens the log, which stays open; first pass: topics, lanes' identities. */
enum redrive_status rdv_engine_identify(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
/* Second pass: everything, into the strands that exist by now. */
enum redrive_status rdv_engine_recover(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
/* Lanes of brokers of an earlier run are marked as discarded. */
enum redrive_status rdv_engine_mark_stale(struct rdv_engine *e) RDV_MUST_CHECK;
/* Appends the record that retires a strand: orphan, adopted (by its new name) or discarded. */
enum redrive_status rdv_strand_mark(struct rdv_engine *e, struct rdv_strand *s) RDV_MUST_CHECK;

/* ---- strand.c ---- */
struct rdv_feed *rdv_feed_find(struct rdv_engine *e, const struct rdv_topic *topic, uint32_t partition);
/* With room in the table of streams; not known to anybody before it is linked. NULL without memory. */
struct rdv_feed *rdv_feed_new(struct rdv_engine *e, struct rdv_topic *topic, uint32_t partition);
void rdv_feed_link(struct rdv_engine *e, struct rdv_feed *feed);
void rdv_feed_free(struct rdv_feed *feed);
void rdv_feed_label(const struct rdv_feed *feed, char out[RDV_LABEL_SIZE]); /* its topic, as LANE records name it */
bool rdv_streams_reserve(struct rdv_engine *e, uint32_t stream);            /* room in the table of streams */
void rdv_strand_rest(struct rdv_engine *e, struct rdv_strand *s); /* with its feed; both are in no table any more */
void rdv_strands_rested(struct rdv_engine *e);
/* Found or made and linked; NULL without memory. */
struct rdv_feed *rdv_feed_of(struct rdv_engine *e, struct rdv_topic *topic, uint32_t partition);
struct rdv_strand *rdv_strand_new(struct rdv_engine *e, struct rdv_feed *feed, struct rdv_route *route, uint32_t stream,
				  uint64_t start, uint64_t epoch);
void rdv_strand_free(struct rdv_strand *s);
void rdv_windows_free(struct rdv_engine *e);
void rdv_windows_reap(struct rdv_engine *e); /* those that no lane has */
/* Into feed and streams; it cannot fail when a place was promised. */
enum redrive_status rdv_strand_promise(struct rdv_engine *e, struct rdv_strand *s) RDV_MUST_CHECK;
enum redrive_status rdv_strand_attach(struct rdv_engine *e, struct rdv_strand *s) RDV_MUST_CHECK;
struct rdv_strand *rdv_strand_of(struct rdv_engine *e, const struct rdv_lane *lane);
void rdv_strand_touch(struct rdv_engine *e, struct rdv_strand *s);
/* Something changed in its lane: it is flushed in this turn, and its target looks for work again. */
void rdv_strand_nudge(struct rdv_engine *e, struct rdv_strand *s);
/* A lane of a route keeps one order of keys with the other lanes that the route has of that partition. */
void rdv_strand_join_siblings(struct rdv_engine *e, struct rdv_strand *s);
struct rdv_dedupe *rdv_window_of(struct rdv_engine *e, const char *name); /* a route's; NULL without memory */

/* ---- effects.c ---- */
/* Flushes the touched lanes, appends all records as one batch, then does the rest, until nothing is left. */
void rdv_effects_run(struct rdv_engine *e);

/* ---- flight.c ---- */
void rdv_flight_dispatch(struct rdv_engine *e, const struct rdv_effect *effect);
void rdv_flight_read(struct rdv_engine *e, struct rdv_flight *f, void (*work)(struct rdv_job *job));
void rdv_flight_read_done(struct rdv_engine *e, struct rdv_job *job);
void rdv_flight_use(struct rdv_flight *f, struct rdv_block *body); /* takes it */
void rdv_flight_damaged(struct rdv_engine *e, struct rdv_flight *f);
void rdv_flight_restate(struct rdv_engine *e, const struct rdv_effect *effect); /* restate.c */
void rdv_read_want(struct rdv_read *read, const struct rdv_place *place);
/* The body is there: dedupe, then on its way. */
void rdv_flight_ready(struct rdv_engine *e, struct rdv_flight *f);
void rdv_flight_synced(struct rdv_engine *e);                          /* those whose STARTED is durable go out */
void rdv_flight_hand_over(struct rdv_engine *e, struct rdv_flight *f); /* to its handler, at the end of the turn */
void rdv_flight_abandon(struct rdv_engine *e); /* the log has failed: what waits for it never goes out */
void rdv_job_queue(struct rdv_engine *e, struct rdv_job *job,
		   bool urgent);                            /* counts it in reads_open; its done must uncount */
void rdv_flight_submit(struct rdv_engine *e);               /* jobs to the readers, the routes' lists to the handlers */
void rdv_flight_complete(void *ctx, struct rdv_call *list); /* the sink: any thread */
void rdv_flight_book(struct rdv_engine *e, struct rdv_flight *f);
void rdv_flight_free_all(struct rdv_engine *e);
/* Every open one. */
void rdv_flight_each(struct rdv_engine *e, void (*each)(void *ctx, struct rdv_flight *f), void *ctx);
/* Those of a block of 256, in slices; false: there is no such block. */
bool rdv_flight_each_of(struct rdv_engine *e, size_t block, void (*each)(void *ctx, struct rdv_flight *f), void *ctx);
/* As if it had never been dispatched: nobody has the call. The message is ready again, or waits. */
void rdv_flight_take_back(struct rdv_engine *e, struct rdv_flight *f, int64_t delay);

/* ---- offered.c ---- */
/* Of a lease route, and nobody has leased it. */
bool rdv_flight_is_offered(const struct rdv_flight *f);
/* NULL: that message has no open call. */
struct rdv_flight *rdv_flight_find(struct rdv_engine *e, const struct rdv_strand *strand, uint64_t offset);
/* An offered call is taken back: at once (true), or, while its body is read, as soon as that is there. */
bool rdv_flight_recall(struct rdv_engine *e, struct rdv_flight *f);
/* All that is offered there; nothing for other handlers. */
void rdv_offers_recall(struct rdv_engine *e, struct rdv_outlet *o);
/* In sums that have their lanes' counts (NULL: none that is asked for): what is offered is ready. Looks at some calls,
 * from *block on; true: all were seen. */
typedef struct rdv_account *(*rdv_offers_account)(void *ctx, const struct rdv_flight *f);
bool rdv_offers_show(struct rdv_engine *e, size_t *block, rdv_offers_account of, void *ctx);

/* ---- leases.c ---- */
/* The flight's asker hears what its lane decided, or (undecided) that nothing can be. */
void rdv_lease_decided(struct rdv_engine *e, struct rdv_flight *f, enum redrive_status status);
void rdv_lease_undecided(struct rdv_engine *e, struct rdv_flight *f);
void rdv_leases_step(struct rdv_engine *e);   /* late verdicts go on */
void rdv_leases_settle(struct rdv_engine *e); /* at the end of a turn: its records are appended */

/* ---- unread.c ---- */
/* How long a message waits that could not be read now; -1: the device has failed it for good. */
int64_t rdv_unread_wait(struct rdv_engine *e, const struct rdv_flight *f, bool device);
void rdv_unread_forget(struct rdv_engine *e, const struct rdv_flight *f); /* it was read */
void rdv_unread_drop(struct rdv_engine *e, const struct rdv_strand *s);   /* unread.c: a strand goes */
void rdv_unread_review(struct rdv_engine *e); /* once a second: those that have ended otherwise are forgotten */

/* ---- flight_body.c ---- */
void rdv_flight_fetch(struct rdv_engine *e, const struct rdv_effect *effect);
void rdv_flight_get_body(struct rdv_engine *e, struct rdv_flight *f);
void rdv_flight_piece(struct rdv_engine *e, struct rdv_flight *f); /* the piece that it waited for is there */

/* ---- bodies.c ---- */
/* Keeps a durable buffer; NULL when all places are pinned (then it is not kept). */
struct rdv_recent *rdv_recent_add(struct rdv_engine *e, struct rdv_log_buffer *buffer);
struct rdv_slice rdv_recent_find(struct rdv_engine *e, const struct rdv_place *place, struct rdv_recent **out);
void rdv_recent_drop_all(struct rdv_engine *e);
/* How often the place's region has been asked for, this time included; *lowest = its first place so far. */
unsigned rdv_regions_ask(struct rdv_regions *r, const struct rdv_place *place, uint64_t *lowest);
/* The call waits for a piece with its body; false: none is worth it, or there is no room. */
bool rdv_piece_await(struct rdv_engine *e, struct rdv_flight *f);

/* ---- letters.c ---- */
void rdv_letter_make(struct rdv_engine *e, const struct rdv_effect *effect);
void rdv_letter_answers(struct rdv_engine *e); /* what the desk stored */
void rdv_letter_retry_due(struct rdv_engine *e);
void rdv_letters_drop(struct rdv_engine *e);
/* A drain begins: those that wait to be tried again are left to the next start. */
void rdv_letters_leave(struct rdv_engine *e);
void rdv_letters_say_left(struct rdv_engine *e);
void rdv_outcome_report(struct rdv_engine *e, const struct rdv_effect *effect);
/* Reads the letter of a replay as a BODY payload: in a reader's thread. */
void rdv_letter_fetch(struct rdv_job *job);

/* ---- loop.c ---- */
/* Makes the loop, so that others may wake it; starts the core thread, when all that it looks at is there. */
enum redrive_status rdv_loop_init(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_loop_start(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
/* Opens the lanes: their first records, what was left to do. Before the threads run. */
enum redrive_status rdv_loop_open_lanes(struct rdv_engine *e, bool unclean) RDV_MUST_CHECK;
/* next: the first offset that it has not been given. */
void rdv_loop_open_lane(struct rdv_engine *e, struct rdv_strand *s, uint64_t next, bool unclean);
void rdv_loop_stop_lanes(struct rdv_engine *e);

/* ---- unit.c ---- */
/* The name of the target that a route is to have. */
void rdv_unit_name(const struct rdv_route_options *options, struct rdv_buffer *out);
bool rdv_unit_same_policy(const struct rdv_target_policy *a, const struct rdv_target_policy *b);
struct rdv_unit *rdv_unit_find(struct rdv_engine *e, const char *name);
struct rdv_unit *rdv_unit_new(struct rdv_engine *e, const char *name, const struct rdv_target_policy *policy);
void rdv_unit_link(struct rdv_engine *e, struct rdv_unit *u);
void rdv_unit_set_policy(struct rdv_engine *e, struct rdv_unit *u, const struct rdv_target_policy *policy);
void rdv_unit_free(struct rdv_unit *u);
/* NULL without memory. */
struct rdv_seat *rdv_seat_new(struct rdv_unit *u, const struct rdv_route_policy *policy);
/* It leaves the target, now or with the last call that was granted there; nothing for NULL. */
void rdv_seat_leave(struct rdv_engine *e, struct rdv_seat *seat);
void rdv_seat_reap(struct rdv_engine *e);

/* ---- outlet.c ---- */
enum redrive_status rdv_outlet_new(struct rdv_engine *e, const struct rdv_route_options *options,
				   struct rdv_outlet **out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_outlet_free(struct rdv_outlet *o);
struct rdv_outlet *rdv_outlet_of_lease(struct rdv_engine *e, uint32_t number); /* questions.c; by its tokens */
/* Freed now or with the last call that went there; nothing for NULL. */
void rdv_outlet_leave(struct rdv_engine *e, struct rdv_outlet *o);
void rdv_outlet_reap(struct rdv_engine *e);

/* ---- route.c ---- */
enum redrive_status rdv_route_check(const struct rdv_route_options *options, struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_route_add(struct rdv_engine *e, const struct rdv_route_options *options, struct rdv_route **out,
				  struct rdv_error *error) RDV_MUST_CHECK;
/* Takes what it is given, also on NULL (without memory). */
struct rdv_route *rdv_route_new(struct rdv_engine *e, const struct rdv_route_options *options,
				struct rdv_outlet *outlet);
void rdv_route_link(struct rdv_engine *e, struct rdv_route *r);
struct rdv_route *rdv_route_find(struct rdv_engine *e, const char *name);
void rdv_route_free(struct rdv_engine *e, struct rdv_route *r);
/* Lanes for partitions that have none. */
enum redrive_status rdv_route_lanes(struct rdv_engine *e, struct rdv_route *r, struct rdv_error *error) RDV_MUST_CHECK;

/* ---- orphan.c ---- */
/* Removed routes whose calls have ended let go of their lanes, and everything else whose last call has ended goes. */
void rdv_engine_reap(struct rdv_engine *e);
/* Warns of the messages that wait in lanes of a route that is gone: of one name, of all. */
void rdv_orphan_tell(struct rdv_engine *e, const char *name);
void rdv_orphans_tell(struct rdv_engine *e);
enum redrive_status rdv_route_adopt_strand(struct rdv_engine *e, struct rdv_route *r,
					   struct rdv_strand *s) RDV_MUST_CHECK;

/* ---- where.c ---- */
struct rdv_found { /* where a message was published to */
	struct rdv_topic *topic;
	uint32_t partition;
	uint64_t offset;
};
/* By a message id or a producer's id; false: never given out. */
bool rdv_found_by_id(struct rdv_engine *e, struct rdv_slice id, struct rdv_found *out);
/* The next lane that has (or had) it, on `route` or any (NULL); *i = 0 begins. */
struct rdv_strand *rdv_found_next(struct rdv_engine *e, const struct rdv_found *at, const char *route, size_t *i);
/* A message on all routes, or one. *body: where it lies, segment 0 when no lane has it any more. */
enum redrive_status rdv_where_describe(struct rdv_engine *e, const struct rdv_found *at, const char *route,
				       struct rdv_message_status *out, struct rdv_place *body) RDV_MUST_CHECK;
/* Any thread: the key of a live message, from its body. */
void rdv_where_read_key(struct rdv_engine *e, const struct rdv_place *place, struct rdv_message_status *m);

/* ---- trim.c ---- */
enum redrive_status rdv_trim_start(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_trim_stop(struct rdv_engine *e);
void rdv_trim_again(struct rdv_engine *e); /* single records have another owner: they are looked through once more */
void rdv_trim_moved(struct rdv_engine *e, const struct rdv_frame *from, struct rdv_position to);
bool rdv_trim_step(struct rdv_engine *e); /* core: one step; true: there is more to do at once */

/* ---- admit.c ---- */
enum redrive_status rdv_admit(void *ctx, const struct rdv_topic *topic, uint32_t partition, uint64_t key_hash);
void rdv_admit_note(struct rdv_engine *e, struct rdv_strand *s, uint64_t key_hash);
/* Which topics have routes, for publishers; no message is on its way into any other when it returns. */
void rdv_admit_topics(struct rdv_engine *e);
void rdv_admit_review(struct rdv_engine *e);
void rdv_admit_done(struct rdv_engine *e);

/* ---- replay.c ---- */
extern const struct rdv_desk_runtime rdv_replay_runtime; /* ctx to be set */

/* ---- histogram ---- */
void rdv_histogram_add(struct rdv_histogram *h, double seconds);
void rdv_histogram_add_ms(struct rdv_histogram *h, int64_t ms);
/* loop.c: hands what is durable, and not yet looked at, to the lanes: who asks for a message that was acknowledged to
 * its publisher a moment ago finds it. Bounded. */
#define RDV_CATCH_UP 64u
void rdv_engine_catch_up(struct rdv_engine *e);
#endif
