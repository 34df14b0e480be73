/* source_parts.h - what the source's files share: source, topics, lanes, and who may touch what.
 *
 * Three threads:
 *   consumer     C and R: rebalances, messages, journal reading, every call of the sink and of done (consumer.c)
 *   transaction  P: batches and OPENs, one transaction at a time (commit.c, fence.c)
 *   errand       what waits for the broker otherwise: topics, committed offsets, trimming (opening.c)
 *
 *   lane:  ASKING ──▶ FENCING ──▶ READING ──┬────────────▶ SEEKING ──▶ OPEN ──▶ CLOSING ──▶ LEFT ──▶ GONE
 *          errand     transaction  consumer └▶ SETTLING ──┘                ▲ revoke           ▲
 *            └──────────┴─────────────┴── REFUSED (again after a while)     └── lost ──────────┘
 *
 * A lane belongs to the thread of its state; it travels between them as its `work` in one of three lists, under
 * `lock`. What other threads look at lies under the lock, too. A lane lives until the source is freed, so that whoever
 * is late with its name does no harm. `dead` is set and the snapshot changed under the same lock as the transaction
 * thread takes both: what it writes is either of a living lane or refused by the broker. */
#ifndef RDV_BROKERS_KAFKA_SOURCE_PARTS_H
#define RDV_BROKERS_KAFKA_SOURCE_PARTS_H
#include <pthread.h>
#include <stdatomic.h>
#include "entry.h"
#include "topics.h"
#include "txn.h"
#include "../../base/clock.h"

#define RDV_KAFKA_WHY_SIZE 600     /* a reason */
#define RDV_KAFKA_CALL_MS 5000     /* of the errand thread, at most */
#define RDV_KAFKA_TOLD_SIZE 900    /* with what it is about */
#define RDV_KAFKA_OPEN_RECORD 101u /* entry type: a lane was opened; see fence.c */

enum rdv_kafka_lane_state {
	RDV_KAFKA_LANE_ASKING,
	RDV_KAFKA_LANE_FENCING,
	RDV_KAFKA_LANE_READING,
	RDV_KAFKA_LANE_SETTLING,
	RDV_KAFKA_LANE_SEEKING,
	RDV_KAFKA_LANE_OPEN,
	RDV_KAFKA_LANE_CLOSING, /* revoked: the runtime's last write is awaited */
	RDV_KAFKA_LANE_REFUSED,
	RDV_KAFKA_LANE_LEFT, /* dead; `gone` follows when no batch names it */
	RDV_KAFKA_LANE_GONE
};

/* A lane on its way from one thread to another. */
enum rdv_kafka_work_kind {
	RDV_KAFKA_WORK_ASK,
	RDV_KAFKA_WORK_FENCE,
	RDV_KAFKA_WORK_READ,
	RDV_KAFKA_WORK_SETTLE,
	RDV_KAFKA_WORK_SETTLED,
	RDV_KAFKA_WORK_REFUSED,
	RDV_KAFKA_WORK_REOPEN,
	RDV_KAFKA_WORK_DONE /* of the batch; no lane */
};
struct rdv_kafka_work {
	struct rdv_kafka_work *next;
	struct rdv_source_lane *lane;
	enum rdv_kafka_work_kind kind;
	bool listed;
};
struct rdv_kafka_work_list {
	struct rdv_kafka_work *first, **last;
};

/* What the group's coordinator knew of us in one rebalance event. Immutable; shared by count. */
struct rdv_kafka_snapshot {
	rd_kafka_consumer_group_metadata_t *group; /* owns */
	int32_t generation;
	uint64_t number; /* 1, 2, ... in this process */
	unsigned refs;   /* under the lock */
};

/* One source topic. Lives as long as the source. */
struct rdv_kafka_feed {
	struct rdv_kafka_feed *next;
	char *topic;
	bool own; /* one of Redrive's private topics, met by a pattern: never consumed */
	/* Errand thread; names and key_secret do not change once a lane has left it. */
	struct rdv_kafka_source_topic about;
	struct rdv_kafka_names names;
	uint8_t key_secret[16];
	_Atomic bool known; /* names and key_secret are */
	bool sound;         /* at checked_at */
	struct rdv_mono checked_at;
	/* Under the lock: what its topics lack; empty = nothing. */
	char why[RDV_KAFKA_WHY_SIZE];
	/* Consumer thread. */
	struct rdv_source_lane **lanes; /* by partition; borrows; NULL = not ours */
	int32_t lane_count;
	const void *source_rkt, *journal_rkt; /* handles last seen in messages, for a quick look-up */
};

struct rdv_kafka_held { /* a message that was fetched and not yet given on */
	rd_kafka_event_t *event;
	const rd_kafka_message_t *message;
};

struct rdv_source_lane {
	struct rdv_kafka_work work;
	struct rdv_source_lane *next; /* of all lanes there ever were; under the lock */
	struct rdv_kafka_feed *feed;
	int32_t partition;

	/* Under the lock. */
	bool dead;     /* nothing more is written for it */
	bool closing;  /* it is being given up: refused writes are not sent again */
	bool finished; /* while closing: its last write is durable, or was refused */
	bool refused;  /* a write of it was */
	bool in_batch;
	int64_t forget, forgotten; /* trim the journal before the first; it was trimmed before the second */
	bool wants_end;            /* it is paused: where does its partition end? */
	int64_t position_at;       /* in the journal: its last position; never trimmed */

	/* Opening; of the thread that has it. */
	int64_t offset;    /* what the group has committed, or where `from` begins */
	int64_t low, high; /* of the source partition, when asked */
	bool tentative;    /* `offset` is no position yet: nothing was committed, and it begins at the end */
	uint8_t nonce[8];  /* of its OPEN */
	int64_t opened_at; /* its OPEN's offset in the journal */
	int tries;         /* refusals in a row */
	int asked;         /* how often */
	struct rdv_mono not_before;
	size_t value_max; /* of a journal record */
	char topic_id[40];
	char why[RDV_KAFKA_WHY_SIZE]; /* of REFUSED */

	/* Consumer thread. */
	enum rdv_kafka_lane_state state;
	bool seated; /* the sink's open has succeeded, gone is owed */
	void *seat;  /* the sink's name of it */
	bool told_opened;
	int64_t journal_position; /* reading: what the journal says; -1 = nothing */
	int64_t tentative_at;     /* reading: offset of the last tentative OPEN; -1 = none */
	uint8_t last_type;        /* reading: of the last record, 0 = none */
	bool is_clean;
	int64_t position;
	struct rdv_mono since; /* of the state */
	bool said_foreign, said_waiting;
	_Atomic int64_t end; /* of the partition, as the errand thread last asked */
	_Atomic bool wanted;
	bool deaf;   /* its fetcher has stopped: to be assigned anew before it is sought */
	bool paused; /* as was last called */
	int64_t next_offset;
	struct rdv_kafka_held *held;
	size_t held_count, held_capacity;
	bool ripe; /* in the list of this turn */
	bool full;
	enum redrive_status not_taken; /* while full: what the sink said */
	int64_t offer_pause;
	struct rdv_mono offer_at;
};

struct rdv_kafka_source {
	struct rdv_source base;
	struct rdv_kafka_config config;
	char *transactional_id;
	int64_t poll_interval_ms; /* max.poll.interval.ms */
	rd_kafka_t *consumer, *reader, *admin;
	rd_kafka_queue_t *consumer_queue, *reader_queue;
	struct rdv_kafka_txn *txn;
	int wake_fd;
	pthread_t consumer_thread, transaction_thread, errand_thread;
	bool running;

	pthread_mutex_t lock;
	pthread_cond_t transaction_work, errand_work;
	struct rdv_kafka_work_list asks, fences, news;
	struct rdv_kafka_work batch_work;
	struct rdv_source_batch *batch; /* handed over, not done */
	enum redrive_status batch_status;
	bool batch_ran;                      /* batch_status is told, done is to be called */
	char batch_why[RDV_KAFKA_WHY_SIZE];  /* it can never be written; empty = it was, or may be */
	struct rdv_kafka_snapshot *snapshot; /* NULL: none, or lost */
	uint64_t snapshot_count;
	struct rdv_mono hold_until; /* no transaction before */
	uint64_t refused_number;    /* the snapshot that the broker has refused */
	struct rdv_source_lane *lanes;
	struct rdv_kafka_feed *feeds;     /* appended by the consumer thread */
	char trouble[RDV_KAFKA_WHY_SIZE]; /* of transactions; empty = none */
	bool stopping, fenced;
	bool forgetting; /* a lane has something to trim */
	struct rdv_mono stop_by;
	bool quit;              /* the other two threads: end */
	_Atomic bool txn_stop;  /* transactions end soon, too */
	_Atomic bool attention; /* a lane's `wanted` has changed */

	/* Errand thread. */
	struct rdv_mono ends_at;

	struct {                          /* for foreign readers: copies.c */
		_Atomic int64_t max;      /* bytes that a copy may have; 0 = none are made */
		_Atomic int64_t check_ms; /* when the topic is to be looked at again */
		bool said_missing;        /* errand thread */
	} copies;

	/* Transaction thread. */
	struct rdv_buffer arena;
	struct rdv_kafka_put *puts;
	size_t put_count, put_capacity;
	size_t *firsts; /* of a batch's writes: the number of its first put; one more at the end */
	size_t firsts_capacity;
	struct rdv_kafka_moved *moved;
	size_t moved_count, moved_capacity;

	/* Consumer thread. */
	bool consumer_done; /* written under the lock */
	bool failed;
	size_t left_count; /* lanes in LEFT */
	struct {
		bool on;
		struct rdv_mono by;
		rd_kafka_topic_partition_list_t *list; /* owns; the event's; NULL = from stop */
	} revoking;
	struct rdv_source_lane **ripe; /* lanes with new messages in this turn */
	size_t ripe_count, ripe_capacity;
	struct rdv_buffer headers;
	struct rdv_source_record *records;
	struct rdv_mono ticked_at;
	char consumer_trouble[RDV_KAFKA_WHY_SIZE];
	struct rdv_mono consumer_trouble_at;
	bool stop_begun;
	char told[RDV_KAFKA_TOLD_SIZE]; /* the last state told */
	bool told_any;
};

/* ---- source.c ---- */
void rdv_kafka_source_say(struct rdv_kafka_source *s, int level, const char *fmt, ...) RDV_PRINTF(3, 4);
void rdv_kafka_source_wake(struct rdv_kafka_source *s); /* the consumer thread */
/* Under the lock. */
void rdv_kafka_work_put(struct rdv_kafka_work_list *list, struct rdv_kafka_work *work, enum rdv_kafka_work_kind kind);
struct rdv_kafka_work *rdv_kafka_work_take(struct rdv_kafka_work_list *list);
/* Under the lock; the news of the consumer thread. */
void rdv_kafka_source_tell(struct rdv_kafka_source *s, struct rdv_kafka_work *work, enum rdv_kafka_work_kind kind);
/* Under the lock, which it gives up meanwhile. */
void rdv_kafka_source_wait(struct rdv_kafka_source *s, pthread_cond_t *work, int64_t ms);
/* Under the lock. */
struct rdv_kafka_snapshot *rdv_kafka_snapshot_ref(struct rdv_kafka_source *s);
void rdv_kafka_snapshot_unref(struct rdv_kafka_snapshot *snapshot);

/* ---- lanes.c: consumer thread ---- */
struct rdv_kafka_feed *rdv_kafka_feed_of(struct rdv_kafka_source *s,
					 const char *topic); /* made when new; NULL: memory */
struct rdv_source_lane *rdv_kafka_lane_of(struct rdv_kafka_source *s, const rd_kafka_message_t *message,
					  bool of_journal);
struct rdv_source_lane *rdv_kafka_lane_at(struct rdv_kafka_source *s, const char *topic, int32_t partition);
void rdv_kafka_lane_assign(struct rdv_kafka_source *s, const char *topic, int32_t partition);
/* Nothing more of it is written: messages go, the sink hears lost (unless it knew) and, when no batch names it, gone.
 */
void rdv_kafka_lane_leave(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
/* Its fetcher has stopped, for an offset out of range. */
void rdv_kafka_lane_deaf(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
/* Left, and a new one in its place. */
void rdv_kafka_lane_again(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
void rdv_kafka_lane_refuse(struct rdv_kafka_source *s, struct rdv_source_lane *lane, const char *fmt, ...)
	RDV_PRINTF(3, 4);
void rdv_kafka_lanes_turn(struct rdv_kafka_source *s); /* what is due */
/* A NULL-terminated walk over those that are ours. */
struct rdv_source_lane *rdv_kafka_lane_next(struct rdv_kafka_source *s, struct rdv_source_lane *after);

/* ---- messages.c: consumer thread ---- */
void rdv_kafka_messages_take(struct rdv_kafka_source *s, rd_kafka_event_t *event); /* takes the event */
void rdv_kafka_messages_give(struct rdv_kafka_source *s);
void rdv_kafka_messages_turn(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
/* It stands for another reason than that there is no room: says which. */
bool rdv_kafka_messages_why(const struct rdv_source_lane *lane, char out[RDV_KAFKA_TOLD_SIZE]);
void rdv_kafka_messages_drop(struct rdv_source_lane *lane);
void rdv_kafka_messages_pause(struct rdv_kafka_source *s, struct rdv_source_lane *lane, bool paused);

/* ---- rebalance.c: consumer thread ---- */
void rdv_kafka_rebalance_event(struct rdv_kafka_source *s, rd_kafka_event_t *event);
void rdv_kafka_rebalance_begin_stop(struct rdv_kafka_source *s);
void rdv_kafka_rebalance_reassign(struct rdv_kafka_source *s, const struct rdv_source_lane *lane);
void rdv_kafka_rebalance_turn(struct rdv_kafka_source *s);
void rdv_kafka_rebalance_drop_all(struct rdv_kafka_source *s); /* this process is out of the group for good */

/* ---- consumer.c ---- */
void *rdv_kafka_consumer_main(void *source);

/* ---- reading.c: consumer thread ---- */
void rdv_kafka_reading_begin(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
void rdv_kafka_reading_event(struct rdv_kafka_source *s, rd_kafka_event_t *event);
void rdv_kafka_reading_settled(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
void rdv_kafka_reading_turn(struct rdv_kafka_source *s, struct rdv_source_lane *lane);
void rdv_kafka_reading_end(struct rdv_kafka_source *s,
			   struct rdv_source_lane *lane); /* the journal's partition is let go */

/* ---- opening.c, chores.c: errand thread ---- */
void *rdv_kafka_errand_main(void *source);
void rdv_kafka_chores(struct rdv_kafka_source *s);
/* OK: its private topics are as they must be. REFUSED: not, f->why tells. Else: it could not be found out. */
enum redrive_status rdv_kafka_feed_check(struct rdv_kafka_source *s, struct rdv_kafka_feed *f,
					 struct rdv_error *error) RDV_MUST_CHECK;

/* ---- commit.c, step.c, fence.c: transaction thread ---- */
void *rdv_kafka_transaction_main(void *source);
void rdv_kafka_step_begin(struct rdv_kafka_source *s);
/* A record, whose value is what is appended to s->arena from now on. */
enum redrive_status rdv_kafka_step_put(struct rdv_kafka_source *s, const char *topic, int32_t partition) RDV_MUST_CHECK;
/* One of the lane's journal: entries are appended. */
enum redrive_status rdv_kafka_step_journal(struct rdv_kafka_source *s,
					   const struct rdv_source_lane *lane) RDV_MUST_CHECK;
enum redrive_status rdv_kafka_step_move(struct rdv_kafka_source *s, const struct rdv_source_lane *lane,
					int64_t offset) RDV_MUST_CHECK;
enum redrive_status rdv_kafka_step_batch(struct rdv_kafka_source *s, struct rdv_source_batch *b) RDV_MUST_CHECK;
void rdv_kafka_step_note_offsets(struct rdv_kafka_source *s, struct rdv_source_batch *b);
enum redrive_status rdv_kafka_step_run(struct rdv_kafka_source *s, const struct rdv_kafka_snapshot *snapshot,
				       struct rdv_error *error) RDV_MUST_CHECK;
struct rdv_kafka_opening { /* what an OPEN holds, beside its seq, the offset */
	bool tentative;
	int32_t generation;
	uint8_t nonce[8];
	struct rdv_slice topic_id, writer; /* for people who look into a journal */
};
void rdv_kafka_fence_encode(const struct rdv_kafka_opening *o, struct rdv_buffer *out);
bool rdv_kafka_fence_decode(struct rdv_slice payload, struct rdv_kafka_opening *out);
/* ---- copies.c ---- */
void rdv_kafka_copies_check(struct rdv_kafka_source *s); /* errand thread: when it is due */
/* Transaction thread: the letter's copy, if there is to be one, into the step. */
enum redrive_status rdv_kafka_copies_put(struct rdv_kafka_source *s, const struct rdv_envelope *e,
					 struct rdv_slice body) RDV_MUST_CHECK;
void rdv_kafka_copies_off(struct rdv_kafka_source *s, const struct rdv_error *why);
void rdv_kafka_step_end(struct rdv_kafka_source *s);  /* what only the step needed */
void rdv_kafka_fence_run(struct rdv_kafka_source *s); /* under the lock, which it gives up meanwhile */
/* Under the lock: after some outcomes nothing is written for a while. */
void rdv_kafka_commit_hold(struct rdv_kafka_source *s, enum redrive_status st);
bool rdv_kafka_commit_may_write(const struct rdv_kafka_source *s);

#endif
