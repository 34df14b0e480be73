/* survey.h - reads every frame of a log that may be damaged, and says where it is. For check and repair.
 *
 * Unlike recovery it does not stop at a bad place: it looks for the next valid frame and goes on. A place is damage if
 * a number that is missing there is at or before S (recover.h), else it is the torn tail, and what lies behind it does
 * not count. */
#ifndef RDV_LOG_SURVEY_H
#define RDV_LOG_SURVEY_H
#include "recover.h"

struct rdv_survey_gap {
	struct rdv_position at;
	uint64_t from, to; /* missing numbers; to 0 = unknown */
	const char *why;
};

struct rdv_survey {
	struct rdv_store *store; /* borrows */
	uint32_t *numbers;       /* owns: segments that count */
	uint32_t count, voided;  /* voided: older ones, of before a repair */
	uint32_t *leftover;      /* owns: of a repair that was not finished */
	uint32_t leftover_count;
	struct rdv_survey_gap *gaps;            /* owns */
	size_t gap_count, gap_capacity, damage; /* damage: the first so many are damage */
	uint64_t frames, last, synced, bytes;
	uint64_t keep;  /* frames up to this number count */
	uint64_t start; /* a number before the first frame's */
	bool torn;
	/* while it runs */
	uint8_t *image;          /* owns */
	uint64_t batch_first;    /* number of the first frame of a batch that has not ended; 0 = none */
	struct rdv_position end; /* behind the last frame */
	bool any_number, header_is_next;
};

typedef enum redrive_status (*rdv_survey_each)(void *ctx, const struct rdv_frame *frame);

/* Finds segments, reads all. VERSION, IO, NO_MEMORY; CORRUPT only if there is no readable header at all. */
enum redrive_status rdv_survey_run(struct rdv_survey *v, struct rdv_store *store,
				   struct rdv_error *error) RDV_MUST_CHECK;
/* Calls `each` for every frame that counts, in order. After run. */
enum redrive_status rdv_survey_walk(struct rdv_survey *v, rdv_survey_each each, void *ctx,
				    struct rdv_error *error) RDV_MUST_CHECK;
void rdv_survey_done(struct rdv_survey *v);
#endif
