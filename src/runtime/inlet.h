/* inlet.h - a route's source at a broker, as the runtime sees it; for the files of this room only.
 *
 *   inlet       one per route: its source, the batch that is on its way
 *   inlet lane  one per assigned partition: the strand, what of it is settled, what is to be written next
 *
 * The journal of the data directory is such a lane's cache: messages and records lie there as those of other lanes do,
 * so that bodies are read, trimmed and found alike; but what they say is durable when the broker has the batch, and at
 * the next start they are nobody's. docs/internals/kafka.md. Core thread, but for what says otherwise. */
#ifndef RDV_RUNTIME_INLET_H
#define RDV_RUNTIME_INLET_H
#include "inlets.h"
#include "../core/progress.h"

#define RDV_INLET_EVERY_MS 50               /* a batch at least so long after the one before, */
#define RDV_INLET_BATCH_BYTES (1u << 20)    /* unless there is so much */
#define RDV_INLET_STUCK_MS 1000             /* a position that has stood so long: what holds it goes into the journal */
#define RDV_INLET_WINDOW 16384u             /* open messages of a lane: then its partition is paused */
#define RDV_INLET_LIVE_BYTES (256ull << 20) /* live records of a lane: likewise */

enum rdv_inlet_stage {
	RDV_INLET_FOLDING, /* its journal is being read */
	RDV_INLET_OPEN,
	RDV_INLET_CLOSING, /* no new calls; CLOSE follows when the open ones have ended, or it is time */
	RDV_INLET_CLOSED,  /* CLOSE is in a batch, or with the broker */
	RDV_INLET_LOST     /* nothing of it is written any more */
};

enum rdv_checkpoint_stage {
	RDV_CHECKPOINT_NONE,
	RDV_CHECKPOINT_BEGIN,    /* the next batch is its first */
	RDV_CHECKPOINT_RECORDS,  /* the lane's own are being written again, */
	RDV_CHECKPOINT_MESSAGES, /* then its messages, */
	RDV_CHECKPOINT_READING,  /* of which some are still read */
	RDV_CHECKPOINT_WRITTEN,  /* the next batch is its last, */
	RDV_CHECKPOINT_SENT      /* it is on its way */
};
struct rdv_inlet_checkpoint {
	enum rdv_checkpoint_stage stage;
	int64_t first;    /* the journal's offset at which it began: what is before goes */
	uint64_t settled; /* the position has to come so far before that: what ended ahead of it stands there alone */
	struct rdv_rewrite rewrite;
	uint32_t at, reading;
};

struct rdv_inlet_lane {
	struct rdv_inlet_lane *next;
	struct rdv_inlet *inlet;
	struct rdv_strand *strand;
	struct rdv_source_lane *source; /* the source's name for it; NULL when the source has let go */
	enum rdv_inlet_stage stage;
	enum { RDV_INLET_AS_IT_WAS, RDV_INLET_PAUSE, RDV_INLET_RESUME } pause; /* asked for while it was folded */
	struct rdv_progress progress;
	struct rdv_run *ahead; /* owns: DONE runs of the journal, until it is open */
	size_t ahead_count, ahead_capacity;
	/* of the next batch */
	struct rdv_buffer records;  /* entries */
	struct rdv_buffer counters; /* the last COUNTERS payload; empty = none */
	struct rdv_run *loose;      /* owns: ended without ever having been in the journal */
	size_t loose_count, loose_capacity;
	uint64_t durable_ticket;                     /* all its records up to there are at the broker */
	bool writing;                                /* the batch on its way has records of it */
	struct rdv_flight *starting, **starting_end; /* calls that wait for their STARTED */
	bool dirty, ends;                            /* ends: CLOSE is its last record */
	/* of the batch on its way */
	struct rdv_buffer sent;
	uint64_t position_sent, done_end; /* done_end: behind the last offset of which the journal has a DONE */
	/* back-pressure */
	bool paused;
	uint64_t live_bytes, full_key; /* full_key: hash of a key that holds too many; 0 = none */
	uint64_t stuck_at;
	int64_t stuck_ms, close_ms;
	uint64_t journal_bytes; /* written since the last checkpoint began */
	struct rdv_inlet_checkpoint checkpoint;
	uint32_t reading;   /* bodies that are on their way into the journal */
	uint32_t retire_at; /* how far its records are counted off */
	bool retiring, holds_tail;
};

struct rdv_inlet_letter { /* of the next batch, or of the one on its way */
	struct rdv_inlet_lane *lane;
	struct rdv_block *envelope, *body; /* owns; body NULL = none */
};
struct rdv_inlet_letters {
	struct rdv_inlet_letter *items; /* owns */
	size_t count, capacity;
};

struct rdv_inlet_event {
	enum { RDV_INLET_REVOKE, RDV_INLET_TAKEN_AWAY, RDV_INLET_GONE } kind;
	struct rdv_inlet_lane *lane;
	int64_t within_ms;
};

struct rdv_inlet {
	struct rdv_engine *engine;
	struct rdv_route *route;
	struct rdv_source *source; /* owns */
	struct rdv_inlet_lane *lanes;
	struct rdv_source_batch batch;   /* on its way when `sent` */
	struct rdv_inlet_lane **writers; /* owns: the lanes of its writes */
	size_t write_capacity;
	struct rdv_source_letter *letters; /* owns: of the batch */
	size_t letter_capacity;
	struct rdv_inlet_letters waiting, going;
	bool sent, started, hurry; /* hurry: somebody waits for the next batch */
	/* durable: no record up to there is still to be written; lost: a lane went while it had records up to there */
	uint64_t durable_ticket, lost_ticket;
	uint64_t ticket; /* of the batch: all records of its lanes up to here are in it */
	int64_t sent_ms;
	/* other threads, under mutex */
	pthread_mutex_t mutex;
	struct rdv_inlet_event *events; /* owns */
	size_t event_count, event_capacity;
	bool done, failed;
	enum redrive_status done_status;
	char why[200]; /* of the source's state; empty = it works */
};

/* ---- inlet.c ---- */
void rdv_inlet_free(struct rdv_inlet *in);           /* NULL allowed; its source was stopped */
void rdv_inlet_lane_free(struct rdv_inlet_lane *in); /* and takes it off the inlet */
/* ---- inlet_lane.c: from open to gone ---- */
extern const struct rdv_source_sink rdv_inlet_sink; /* ctx to be set to the inlet */
void rdv_inlet_revoke(struct rdv_engine *e, struct rdv_inlet_lane *in, int64_t within_ms);
void rdv_inlet_lost(struct rdv_engine *e, struct rdv_inlet_lane *in);
/* Closing lanes whose calls have ended write CLOSE; those that are gone are given back in slices. */
void rdv_inlet_lanes_step(struct rdv_engine *e, struct rdv_inlet *in);
/* ---- inlet_batch.c ---- */
void rdv_inlet_take(struct rdv_engine *e, struct rdv_inlet *in); /* what the batch came to */
void rdv_inlet_seal(struct rdv_engine *e, struct rdv_inlet *in); /* the next batch, if it is time */
void rdv_inlet_drop_records(struct rdv_inlet_lane *in);
void rdv_inlet_drop_letters(struct rdv_inlet_lane *in); /* those of the next batch */
/* ---- inlet_checkpoint.c ---- */
void rdv_inlet_checkpoint_step(struct rdv_engine *e, struct rdv_inlet_lane *in);
bool rdv_inlet_checkpoint_begins(const struct rdv_inlet_lane *in); /* the next batch is its first, and not empty */
void rdv_inlet_checkpoint_sealed(struct rdv_inlet_lane *in);
void rdv_inlet_checkpoint_durable(struct rdv_inlet_lane *in, int64_t first); /* first: of the batch's records */
/* ---- inlet_record.c: what goes into the next batch ---- */
void rdv_inlet_settle_stuck(struct rdv_engine *e, struct rdv_inlet_lane *in);
void rdv_inlet_note_end(struct rdv_inlet_lane *in, const struct rdv_run *run); /* the journal has a DONE of it */
bool rdv_inlet_put(struct rdv_inlet_lane *in, uint8_t type, uint64_t seq, struct rdv_slice payload);
#endif
