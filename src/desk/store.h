/* store.h - all letter segments of a desk with their indexes: taking batches in, rolling, recovery, reading.
 *
 * A part is one segment with its index and filter. The last part takes in; the others never change. Parts are only ever
 * added while the store is open. One thread takes in; any number may read, each with a reader (a set of index views and
 * the last block read) that it borrows from a small pool for the length of one question. */
#ifndef RDV_DESK_STORE_H
#define RDV_DESK_STORE_H
#include <pthread.h>
#include "desk.h"
#include "filter.h"
#include "index.h"
#include "indexer.h"
#include "segment.h"

struct rdv_desk_part {
	struct rdv_desk_segment segment;
	char *index_path;            /* owns */
	_Atomic unsigned index_made; /* rises when the index file is replaced: views open it again */
	_Atomic bool index_broken;   /* no index now: questions answer IO until it is made again */
	/* the taking thread's; index and rebuild_at the indexer's while it is at work */
	struct rdv_desk_index *index; /* NULL: sealed, or broken */
	int64_t rebuild_at;           /* mono ms: not before */
	struct rdv_desk_filter filter;
	bool filter_ready;
	bool anchored; /* nothing was written since the last anchor */
};

struct rdv_desk_say {
	void (*say)(void *ctx, int level, const char *text); /* may be NULL */
	void *ctx;
};
void rdv_desk_say(const struct rdv_desk_say *s, int level, const char *fmt, ...) RDV_PRINTF(3, 4);

#define RDV_DESK_READERS 3
struct rdv_desk_reader {
	struct rdv_desk_view *views; /* owns; by part */
	unsigned *made;              /* owns; index_made when the view was opened, 0 = not open */
	size_t capacity;
	size_t block_part; /* the last block read */
	uint64_t block_at;
	struct rdv_block *block; /* owns */
	bool taken;
};

struct rdv_desk_store_options {
	const char *dir; /* of the segments */
	const struct rdv_file_ops *files;
	void *files_ctx;
	struct rdv_desk_say say;
	uint32_t segment_letters; /* roll before more: 0 = 4 M */
	uint64_t segment_bytes;   /* 0 = 8 GiB */
};

struct rdv_desk_store {
	char *dir; /* owns */
	const struct rdv_file_ops *files;
	void *files_ctx;
	struct rdv_desk_say say;
	uint32_t segment_letters;
	uint64_t segment_bytes;
	uint64_t next_number;
	pthread_mutex_t mutex; /* parts, count, readers */
	pthread_cond_t reader_free;
	struct rdv_desk_part **parts; /* owns */
	size_t count, capacity;
	struct rdv_desk_reader readers[RDV_DESK_READERS];
	struct rdv_desk_reader own;               /* the taking thread's: taking in never waits for a question */
	_Atomic uint64_t letters, bytes, damaged; /* stored; of all files; places that could not be read */
	/* the taking thread's */
	struct rdv_desk_segment_writer writer;
	struct rdv_desk_row *rows; /* owns: scratch of making an index again */
	size_t row_capacity;
	struct rdv_desk_batch *before; /* borrows: the last one that was given to the indexer; NULL = none */
	struct rdv_desk_indexer indexer;
};

/* Opens every segment, cuts torn tails, makes indexes that are missing. VERSION: nothing was changed. */
enum redrive_status rdv_desk_store_open(struct rdv_desk_store *s, const struct rdv_desk_store_options *options,
					struct rdv_error *error) RDV_MUST_CHECK;
/* Ends cleanly: anchors, closes the indexes. No reader is out. */
void rdv_desk_store_close(struct rdv_desk_store *s);

/* ---- taking in: one thread ---- */
struct rdv_desk_incoming {
	struct rdv_letter_frame frame;
	enum redrive_status status; /* out: OK = durable */
};
/* Stores all of them, one write and one sync; a letter that is here already is OK. Each gets its status. Then the
 * batch, which has room for as many rows, goes to the indexer, which calls its `done`; before that, the statuses say
 * nothing. The batch before this one is done when it returns. */
void rdv_desk_store_take(struct rdv_desk_store *s, struct rdv_desk_incoming *items, size_t count, struct rdv_wall now,
			 struct rdv_desk_batch *batch);
/* After a while without letters: says on disk that all is synced. */
void rdv_desk_store_idle(struct rdv_desk_store *s);
/* Loads what the taking thread needs to know of the old parts; before the first take. */
void rdv_desk_store_warm(struct rdv_desk_store *s);

/* ---- reading: any thread ---- */
struct rdv_desk_place {
	uint32_t part;
	uint32_t seq;
};
size_t rdv_desk_store_count(struct rdv_desk_store *s);
struct rdv_desk_part *rdv_desk_store_part(struct rdv_desk_store *s, size_t i); /* borrows, lives as long as the store */
struct rdv_desk_reader *rdv_desk_reader_take(struct rdv_desk_store *s);        /* waits for one */
void rdv_desk_reader_give(struct rdv_desk_store *s, struct rdv_desk_reader *r);
void rdv_desk_reader_rest(struct rdv_desk_reader *r); /* a question has ended */
void rdv_desk_reader_done(struct rdv_desk_reader *r);
/* The view of a part. IO: its index is broken. */
enum redrive_status rdv_desk_reader_view(struct rdv_desk_store *s, struct rdv_desk_reader *r, size_t part,
					 struct rdv_desk_view **out) RDV_MUST_CHECK;
/* The letter's frame; slices borrow from the reader until its next read. CORRUPT: its block is damaged. */
enum redrive_status rdv_desk_reader_frame(struct rdv_desk_store *s, struct rdv_desk_reader *r,
					  struct rdv_desk_place place, struct rdv_letter_frame *out) RDV_MUST_CHECK;
/* Where the newest readable letter with this id is. NOT_FOUND; CORRUPT: it was here, and is damaged. */
enum redrive_status rdv_desk_reader_find(struct rdv_desk_store *s, struct rdv_desk_reader *r, const uint8_t id[16],
					 struct rdv_desk_place *out) RDV_MUST_CHECK;

/* ---- inside: recover.c ---- */
enum redrive_status rdv_desk_part_index(struct rdv_desk_store *s, struct rdv_desk_part *p,
					const struct rdv_desk_segment_scan *scan,
					struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_desk_part_rebuild(struct rdv_desk_store *s, struct rdv_desk_part *p,
					  struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_desk_store_recover(struct rdv_desk_store *s, struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_desk_store_add_part(struct rdv_desk_store *s, struct rdv_desk_part *p) RDV_MUST_CHECK;
struct rdv_desk_part *rdv_desk_part_new(struct rdv_desk_store *s, uint32_t day, uint64_t number);
void rdv_desk_part_free(struct rdv_desk_part *p);
#endif
