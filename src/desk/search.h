/* search.h - pages of letters in order of death: a merge of the runs of all segments.
 *
 * Every (segment, run) is a source that gives the entries of one term in order; a source is opened only when its span
 * of times could hold the next one, so a first page touches one or two runs, however many there are. A page belongs to
 * one question. */
#ifndef RDV_DESK_SEARCH_H
#define RDV_DESK_SEARCH_H
#include "store.h"

#define RDV_DESK_SOURCE_ENTRIES 32
struct rdv_desk_source {
	uint32_t part, run;
	int64_t bound; /* no entry is beyond it, in the page's order */
	bool open, ended;
	unsigned at, count;
	struct rdv_desk_span span;
	struct rdv_desk_entry entries[RDV_DESK_SOURCE_ENTRIES];
};

struct rdv_desk_position { /* of an entry among all; the order of a page */
	int64_t dead_at;
	uint64_t segment; /* its number */
	int64_t seq;
};

struct rdv_desk_merge {
	struct rdv_desk_store *store;   /* borrows */
	struct rdv_desk_reader *reader; /* borrows */
	bool oldest_first;
	struct rdv_desk_source *sources; /* owns */
	size_t count;
};
/* after: where the last page ended, or NULL. Only dead_at in [from, to). */
struct rdv_desk_merge_options {
	uint32_t h;
	bool oldest_first;
	int64_t from, to;
	const struct rdv_desk_position *after;
};
enum redrive_status rdv_desk_merge_begin(struct rdv_desk_merge *m, struct rdv_desk_store *store,
					 struct rdv_desk_reader *reader,
					 const struct rdv_desk_merge_options *options) RDV_MUST_CHECK;
void rdv_desk_merge_done(struct rdv_desk_merge *m);
/* NOT_FOUND: the end. */
enum redrive_status rdv_desk_merge_next(struct rdv_desk_merge *m, struct rdv_desk_place *place,
					struct rdv_desk_position *position) RDV_MUST_CHECK;
#endif
