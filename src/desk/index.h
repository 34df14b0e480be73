/* index.h - the SQLite index beside a letter segment: which letters are in it, and where.
 *
 *   letter(seq PRIMARY KEY, id, key, fp, route, topic, reason, tenant, version, dead_at, attempts, size, block, at)
 *   term(k PRIMARY KEY) WITHOUT ROWID      k = run, h, dead_at, seq; run = seq >> 16, h = 32-bit hash of (kind, value)
 *   run(run PRIMARY KEY, low, high, count)      the span of dead_at in a run
 *   meta(name PRIMARY KEY, value)               state, boot, bytes, letters
 *
 * A term is one text of 18 bytes that sorts as its four numbers do: half the work of four columns. Hashes are 32 bits,
 * so a hit is a candidate: the letter itself decides. The run leads the term's key, so inserts stay in a small part of
 * the tree; dead_at comes before seq, so that a page in order of death is a merge of the runs, without sorting.
 *
 * The index is never the truth. It is trusted when it was closed cleanly over all of the segment's bytes, or when this
 * machine has not been restarted since (synchronous=OFF survives a killed process, not a power cut); else it is dropped
 * and made again from the segment (rebuild.c). The writer's connection belongs to one thread; a view is used by one
 * thread at a time. */
#ifndef RDV_DESK_INDEX_H
#define RDV_DESK_INDEX_H
#include <sqlite3.h>
#include "../base/clock.h"
#include "../core/envelope.h"

#define RDV_DESK_INDEX_VERSION 2
#define RDV_DESK_RUN_SHIFT 16

/* Stored: never renumber. */
enum rdv_desk_term {
	RDV_DESK_TERM_ALL = 1,
	RDV_DESK_TERM_ID = 2,
	RDV_DESK_TERM_MESSAGE = 3, /* route, topic, partition, offset */
	RDV_DESK_TERM_KEY = 4,
	RDV_DESK_TERM_ROUTE = 5,
	RDV_DESK_TERM_REASON = 6,
	RDV_DESK_TERM_ROUTE_REASON = 7,
};
/* The hash of a term with up to two values. */
uint32_t rdv_desk_term_hash(enum rdv_desk_term kind, struct rdv_slice a, struct rdv_slice b);
uint32_t rdv_desk_term_message(struct rdv_slice route, struct rdv_slice topic, uint32_t partition, uint64_t offset);

/* The key of a term entry; returns its size. seq < 0: what sorts before every entry of that moment. */
#define RDV_DESK_TERM_KEY_SIZE 18
size_t rdv_desk_term_key(uint32_t run, uint32_t h, int64_t dead_at, int64_t seq, uint8_t out[RDV_DESK_TERM_KEY_SIZE]);

#define RDV_DESK_TERMS_MAX 8
struct rdv_desk_row { /* one letter, as the index keeps it */
	uint32_t seq;
	uint8_t id[16];
	uint32_t key, route, topic, tenant, version; /* hashes */
	bool has_key;
	uint64_t fingerprint;
	enum rdv_reason reason;
	int64_t dead_at;
	uint32_t attempts;
	uint64_t size;
	uint64_t block; /* where it lies: offset of the block in the file, of the frame in the block */
	uint32_t at;
	uint32_t terms[RDV_DESK_TERMS_MAX];
	unsigned term_count;
};
/* CORRUPT: the envelope cannot be read. *id is set. */
enum redrive_status rdv_desk_row_make(struct rdv_slice envelope, struct rdv_desk_row *out) RDV_MUST_CHECK;

/* ---- writing ---- */
struct rdv_desk_index;
/* Opens or creates. *letters (the next seq) and *bytes = what it covers; an index that cannot be trusted is dropped and
 * comes back empty. end: the segment's valid bytes. */
enum redrive_status rdv_desk_index_open(const char *path, uint64_t end, struct rdv_desk_index **out, uint32_t *letters,
					uint64_t *bytes, struct rdv_error *error) RDV_MUST_CHECK;
/* One transaction: the rows, and that the index now covers the segment up to `bytes`. Not OK: nothing of it, and the
 * index is to be rebuilt. */
enum redrive_status rdv_desk_index_add(struct rdv_desk_index *x, const struct rdv_desk_row *rows, size_t count,
				       uint64_t bytes, struct rdv_error *error) RDV_MUST_CHECK;
/* Calls each() with every id. */
enum redrive_status rdv_desk_index_ids(struct rdv_desk_index *x,
				       enum redrive_status (*each)(void *ctx, const uint8_t id[16]),
				       void *ctx) RDV_MUST_CHECK;
/* clean: marks it as covering all of the segment, on the disk. */
void rdv_desk_index_close(struct rdv_desk_index *x, bool clean);
void rdv_desk_index_drop(const char *path); /* the file and its companions */
/* Is the index at `path` one that was closed cleanly over exactly `bytes`? *letters: the next seq. Never creates or
 * changes anything. */
bool rdv_desk_index_is_clean(const char *path, uint64_t bytes, uint32_t *letters);

/* ---- reading ---- */
struct rdv_desk_view {
	sqlite3 *db;                                   /* owns */
	sqlite3_stmt *runs, *newest, *oldest, *letter; /* own */
};
#define RDV_DESK_RUNS_MAX 128 /* runs of one segment: it rolls at 4 M letters, 61 runs */
struct rdv_desk_run {
	uint32_t run;
	int64_t low, high;
};
struct rdv_desk_entry {
	int64_t dead_at, seq;
};
struct rdv_desk_span { /* where a page goes on, and what it looks for */
	uint32_t h;
	bool oldest_first;
	int64_t from, to; /* dead_at in [from, to) */
	bool after;       /* only what comes behind `last` in the page's order */
	struct rdv_desk_entry last;
};
enum redrive_status rdv_desk_view_open(struct rdv_desk_view *v, const char *path) RDV_MUST_CHECK;
void rdv_desk_view_done(struct rdv_desk_view *v);
/* The runs of the index, at most max. */
enum redrive_status rdv_desk_view_runs(struct rdv_desk_view *v, struct rdv_desk_run *out, size_t max,
				       size_t *count) RDV_MUST_CHECK;
/* Up to max entries of one run in the page's order. */
enum redrive_status rdv_desk_view_page(struct rdv_desk_view *v, uint32_t run, const struct rdv_desk_span *span,
				       struct rdv_desk_entry *out, size_t max, size_t *count) RDV_MUST_CHECK;
/* Where a letter lies, and its id. NOT_FOUND. */
enum redrive_status rdv_desk_view_letter(struct rdv_desk_view *v, uint32_t seq, uint8_t id[16], uint64_t *block,
					 uint32_t *at) RDV_MUST_CHECK;
#endif
