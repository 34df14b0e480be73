/* source.h - what a broker's source is to the runtime: partitions come and go; messages and journal go through.
 *
 *   source's thread:  open → fold … → opened → messages … → revoke → (the runtime's last write) → gone
 *                                                 or  → lost → gone
 *   core thread:      rdv_source_commit(batch) ... done(batch) by the source's thread, one batch at a time
 *
 * A *lane* is one assigned (topic, partition) from `open` to `gone`; assigned again it is another one. What a lane
 * decided is durable when the batch that carries its records is done with OK: records, letters and the position (the
 * offset at which the source goes on) are one atomic step at the broker. The source owns fencing: a batch of a process
 * that has lost a partition is refused for that partition, never applied in part. After `lost` nothing of the lane is
 * written any more. Names borrow until the call returns, but those of a lane, which live as long as it. A lane that is
 * gone may still be named in take, forget and batches, where it is refused: a core that is late does no harm. */
#ifndef RDV_BROKERS_SOURCE_H
#define RDV_BROKERS_SOURCE_H
#include "../core/record.h"

struct rdv_source;      /* a route's connection to its broker */
struct rdv_source_lane; /* the source's half of a lane */

/* One record of a lane's journal: type is enum rdv_record, or RDV_SOURCE_POSITION. */
struct rdv_source_record {
	uint8_t type;
	uint64_t seq; /* the message's offset, or as in the log */
	struct rdv_slice payload;
	int64_t at; /* of fold: the journal's offset it lies at (several have one, it never falls); see forget */
};
/* In the journal only: the position that this lane has reached; seq = that offset, no payload. Last of each batch's
 * records of a lane whose position has moved. */
#define RDV_SOURCE_POSITION 100u

struct rdv_source_message { /* one of the source's; slices borrow until the call returns */
	uint64_t offset;
	bool has_key, tombstone; /* tombstone: the value is null */
	struct rdv_slice key, value;
	struct rdv_slice headers; /* encoded list (rdv_headers_encode) of all its headers, in order */
	struct rdv_wall produced_at;
};

struct rdv_source_partition {
	struct rdv_source_lane *source; /* names the lane in batches, until `gone` */
	const char *topic;
	uint32_t partition;
	uint64_t epoch;         /* rises with every open of the partition, whoever owns it */
	uint8_t key_secret[16]; /* of its keys' hashes: the same in every process of the group */
};

/* The runtime's half. All calls come from the source's consumer thread, one at a time; they may take some milliseconds.
 * `lane` is what open returned. Not OK of open, fold or opened: the lane is not taken; the source says so, keeps the
 * partition paused, and calls gone if open had succeeded. */
struct rdv_source_sink {
	void *ctx;
	enum redrive_status (*open)(void *ctx, const struct rdv_source_partition *p, void **lane);
	/* Records of the journal, in its order; bounded pieces (at most 1 MiB, or one record). */
	enum redrive_status (*fold)(void *ctx, void *lane, const struct rdv_source_record *records, size_t count);
	/* All is read. `position`: where the source goes on; messages at or above it may have records already. clean:
	 * the journal ended with CLOSE, or is empty. */
	enum redrive_status (*opened)(void *ctx, void *lane, uint64_t position, bool clean);
	/* Offsets rise, but not by one: what a broker leaves out is never given out. All or none are taken. FULL: none;
	 * to be offered again later. TOO_LARGE (of a single one) and others: likewise, and the source's state tells. */
	enum redrive_status (*messages)(void *ctx, void *lane, const struct rdv_source_message *m, size_t count);
	/* These lanes are to be given up within so many ms: no new calls; when the open ones have ended (or been cut),
	 * the runtime sends one last batch with `last` set in each of their writes. Returns at once. */
	void (*revoke)(void *ctx, void *const lanes[], size_t count, int64_t within_ms);
	/* Taken away: no new calls, nothing more is written. Returns at once. */
	void (*lost)(void *ctx, void *lane);
	/* The source knows nothing of it any more; the runtime may still have its open calls. Returns at once. */
	void (*gone)(void *ctx, void *lane);
	/* How the source is: `why` NULL = it works; else one sentence (static or copied by the callee). Shown as the
	 * route's detail; `failed`: it has stopped for good and takes an operator. */
	void (*state)(void *ctx, const char *why, bool failed);
	void (*say)(void *ctx, int level, const char *text); /* as rdv_engine_options.say; from any thread */
};

/* What one lane wants durable. */
struct rdv_source_write {
	struct rdv_source_lane *lane;
	uint64_t position;        /* what is below has ended, or stands in the journal */
	bool moved;               /* the position, since the last batch */
	bool last;                /* CLOSE is among its records: the lane is given up with this batch */
	struct rdv_slice records; /* encoded entries (kafka/entry.h), whole ones; may be empty */
	int64_t journal_first;    /* set at done: the journal's offset of its first record; -1 = none was written */
};
struct rdv_source_letter { /* a dead letter for the letters topic; it goes with its lane's DONE */
	struct rdv_source_lane *lane;
	struct rdv_slice envelope, body; /* encoded (core/envelope.h); as it came */
	bool has_body;
};
struct rdv_source_batch {
	struct rdv_source_write *writes; /* of every lane that is touched: at most one each */
	size_t write_count;
	struct rdv_source_letter *letters;
	size_t letter_count;
	/* From the consumer thread, like the sink's calls. OK: all of it is durable. CONFLICT: lanes were lost, or
	 * given up too late: `refused[i]` is set for theirs, all else is durable. FAILED: nobody knows what became of
	 * it; all are `refused`, their lanes are lost and opened again, which tells. TOO_LARGE: nothing was written, as
	 * one record is larger than the broker takes: all are `refused`, and the source has stopped for good, which its
	 * state tells. CLOSED: the source has stopped, nothing is known. `gone` of a lane never comes between commit
	 * and done of a batch that names it. */
	void (*done)(void *ctx, struct rdv_source_batch *batch, enum redrive_status status);
	void *ctx;
	bool *refused; /* [write_count], zeroed by the caller: set by the source for what was not written */
};

/* ---- the source: made by its kind (kafka/kafka.h), used through this ---- */
struct rdv_source_ops {
	const char *kind; /* "kafka" */
	/* Begins to consume. */
	enum redrive_status (*start)(struct rdv_source *s, struct rdv_error *error);
	/* Hands over a batch, which stays the caller's and untouched until done. One at a time. Never blocks. Core
	 * thread. */
	void (*commit)(struct rdv_source *s, struct rdv_source_batch *b);
	/* Back-pressure: whether the lane's partition is fetched (from opened on it is). Any thread, never blocks. */
	void (*take)(struct rdv_source *s, struct rdv_source_lane *lane, bool on);
	/* Nothing before this offset of the lane's journal is needed any more: it is deleted there, some time. Any
	 * thread, never blocks. */
	void (*forget)(struct rdv_source *s, struct rdv_source_lane *lane, int64_t journal_offset);
	/* Leaves the group in order: revoke for every lane, as in a rebalance, then gone. `within_ms` in all. Then no
	 * call of the sink comes any more. Blocks; not from the core thread. */
	void (*stop)(struct rdv_source *s, int64_t within_ms);
	void (*free)(struct rdv_source *s); /* after stop */
};
struct rdv_source { /* first member of every kind */
	const struct rdv_source_ops *ops;
	struct rdv_source_sink sink;
	_Atomic int64_t lag; /* messages at the broker that were not consumed yet, all lanes; -1 = not known */
	_Atomic uint64_t rebalances, refused_batches, foreign_records;
};

/* How a route's source is made; lives as long as the engine. */
struct rdv_source_maker {
	enum redrive_status (*make)(const struct rdv_source_maker *m, const struct rdv_source_sink *sink,
				    struct rdv_source **out, struct rdv_error *error);
	const char *const *topics; /* names, or "^pattern" */
	size_t topic_count;
};
#endif
