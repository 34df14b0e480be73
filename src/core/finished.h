/* finished.h - how the latest messages of a lane ended: a bounded memory of runs, for "where is my message".
 *
 * Runs of the same outcome grow at their end; the oldest run is forgotten when there are RDV_FINISHED_RUNS. In steady
 * acking one run holds all. It is a convenience: a message that is not found here is finished all the same. Memory is
 * taken as it is needed; without memory it forgets. Pure; single thread. */
#ifndef RDV_CORE_FINISHED_H
#define RDV_CORE_FINISHED_H
#include "record.h"

#define RDV_FINISHED_RUNS 2048u

struct rdv_finished {
	struct rdv_run *runs; /* owns; a ring once it is full */
	uint32_t count, capacity, newest;
};

void rdv_finished_done(struct rdv_finished *f);
void rdv_finished_add(struct rdv_finished *f, const struct rdv_run *runs, size_t count);
/* RDV_STATE_DONE if it is not remembered. */
enum rdv_state rdv_finished_find(const struct rdv_finished *f, uint64_t seq);
#endif
