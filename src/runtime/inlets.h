/* inlets.h - routes whose messages come from a broker: what the rest of this room asks of inlet*.c. Core thread, but
 * for start and stop. */
#ifndef RDV_RUNTIME_INLETS_H
#define RDV_RUNTIME_INLETS_H
#include "room.h"

enum redrive_status rdv_inlet_attach(struct rdv_engine *e, struct rdv_route *r, const struct rdv_source_maker *maker,
				     struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_inlets_start(struct rdv_engine *e, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_inlets_stop(struct rdv_engine *e); /* leaves the groups; while the core thread runs. Not its thread */
void rdv_inlets_free(struct rdv_engine *e);
void rdv_inlets_take(struct rdv_engine *e); /* in a turn: what the sources say; */
void rdv_inlets_seal(struct rdv_engine *e); /* and, when the turn's records are appended, the next batches */
int64_t rdv_inlets_due(const struct rdv_engine *e, int64_t until);
/* A record that has just been appended for its lane. */
void rdv_inlet_record(struct rdv_engine *e, struct rdv_strand *s, const struct rdv_effect *effect,
		      struct rdv_slice payload);
void rdv_inlet_count_live(struct rdv_strand *s, int64_t bytes);
/* A message of the broker is about to be given out; false: it was before. */
bool rdv_inlet_arrive(struct rdv_engine *e, struct rdv_strand *s, const struct rdv_published *m);
/* Takes both when OK. The letter goes with the batch of this turn's DONE. CLOSED: the lane writes nothing any more. */
enum redrive_status rdv_inlet_letter(struct rdv_engine *e, struct rdv_strand *s, struct rdv_block *envelope,
				     struct rdv_block *body) RDV_MUST_CHECK;
void rdv_inlet_moved(struct rdv_strand *s); /* its lane is at another target: one that is given up stays stopped */
/* inlet_wait.c: done(ctx) when all records up to the ticket are durable at the brokers, too; from the core thread. */
void rdv_inlets_await(struct rdv_engine *e, uint64_t ticket, rdv_publish_done done, void *ctx);
void rdv_inlets_settle(struct rdv_engine *e);    /* at the end of a turn */
void rdv_inlets_end_waits(struct rdv_engine *e); /* the core thread has ended */
/* Blocks until it is durable; broker: it concerns lanes of brokers. Not from the core thread. */
enum redrive_status rdv_engine_await(struct rdv_engine *e, uint64_t ticket, bool broker) RDV_MUST_CHECK;
/* A call whose STARTED the broker has to have first. false: it goes, or is taken back, later. */
bool rdv_inlet_may_start(struct rdv_engine *e, struct rdv_flight *f);
void rdv_inlets_abandon(struct rdv_engine *e); /* a drain begins, or the log has failed: they are taken back */
/* It is ours: neither still folded nor given up. Also true of lanes of the embedded queue. */
bool rdv_strand_serves(const struct rdv_strand *s);
/* It is folded, and paused or resumed when it is open; or given up, and neither. false: now. */
bool rdv_inlet_pauses_later(struct rdv_strand *s, bool paused);
/* What people are told of it: NULL = it works. */
const char *rdv_inlet_trouble(const struct rdv_route *r, bool *failed, char *text, size_t size);
uint32_t rdv_inlet_lane_count(const struct rdv_route *r);
#endif
