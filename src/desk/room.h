/* room.h - what a desk is inside: the parts that desk.c joins. Only files of this room include it. */
#ifndef RDV_DESK_ROOM_H
#define RDV_DESK_ROOM_H
#include "control.h"
#include "intake.h"
#include "replay.h"

struct rdv_desk {
	char *dir;              /* owns */
	_Atomic int64_t hot_ms; /* the engine may change it */
	int64_t unknown_ms;
	struct rdv_desk_say say;
	struct rdv_desk_store store;
	struct rdv_desk_intake intake;
	struct rdv_desk_control control;
	struct rdv_desk_replays replays;
	struct rdv_desk_runtime runtime; /* since start */
	bool started;
};

/* Makes what the outside sees of a letter; `envelope` is copied. */
enum redrive_status rdv_desk_letter_make(struct rdv_desk *d, struct rdv_slice envelope,
					 struct rdv_letter *out) RDV_MUST_CHECK;
/* Does the letter match all of the query? */
bool rdv_desk_query_matches(const struct rdv_query *q, const struct rdv_envelope *e);
/* Calls each() for every letter that matches, oldest segment first, by arrival. Not OK from each ends it. */
typedef enum redrive_status (*rdv_desk_each)(void *ctx, struct rdv_desk_place place,
					     const struct rdv_letter_frame *frame, const struct rdv_envelope *envelope);
enum redrive_status rdv_desk_select(struct rdv_desk *d, const struct rdv_query *q, rdv_desk_each each, void *ctx,
				    struct rdv_error *error) RDV_MUST_CHECK;
/* The term that leaves the fewest candidates for a query. */
uint32_t rdv_desk_query_term(const struct rdv_query *q);
#endif
