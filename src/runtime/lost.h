/* lost.h - what becomes of a damaged tail: between trim.c, which has appended again all that can be read, and lost.c.
 * Core thread. */
#ifndef RDV_RUNTIME_LOST_H
#define RDV_RUNTIME_LOST_H
#include "room.h"

struct rdv_lost {
	uint32_t segment;
	bool damaged;
	/* how far this pass over calls and lanes came */
	bool passing;
	size_t block;
	struct rdv_strand *strand;
	uint32_t entry;
	int64_t again_ms; /* when the next pass begins */
	struct rdv_losses losses;
};
enum rdv_lost_step { RDV_LOST_GOES_ON, RDV_LOST_WAITS, RDV_LOST_SETTLED };
/* All that can be read was appended again: one slice of what becomes of the rest. SETTLED: nobody owns anything there.
 */
enum rdv_lost_step rdv_lost_step(struct rdv_engine *e, struct rdv_lost *lost);
void rdv_lost_tell(struct rdv_engine *e, const struct rdv_lost *lost);

/* trim.c. A live BODY of the tail is appended again with the next records; its payload lives until then. */
void rdv_trim_keep_body(struct rdv_engine *e, struct rdv_feed *feed, const struct rdv_frame *frame);
#endif
