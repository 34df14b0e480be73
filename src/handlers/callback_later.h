/* callback_later.h - calls whose verdict comes later: found by id, in order of their deadlines.
 * Private to callback*.c. Single thread: callback.c holds its mutex. */
#ifndef RDV_HANDLERS_CALLBACK_LATER_H
#define RDV_HANDLERS_CALLBACK_LATER_H
#include "../base/chunks.h"
#include "../base/map.h"
#include "handler.h"

#define RDV_LATER_EXPIRED 4096 /* ids of calls that timed out, remembered to answer TIMEOUT instead of NOT_FOUND */

struct rdv_later {
	struct rdv_chunks items; /* owns; struct entry of callback_later.c */
	struct rdv_map by_id;    /* owns */
	uint32_t first, last;    /* list by deadline; 0 = none */
	uint64_t expired[RDV_LATER_EXPIRED];
	uint32_t expired_at;
};

void rdv_later_init(struct rdv_later *l);
void rdv_later_done(struct rdv_later *l); /* no calls are in it */
/* Takes the call in until it is answered or deadline_us has come. */
enum redrive_status rdv_later_add(struct rdv_later *l, struct rdv_call *call, int64_t deadline_us) RDV_MUST_CHECK;
struct rdv_call *rdv_later_take(struct rdv_later *l, uint64_t id); /* NULL = not there */
bool rdv_later_was_expired(const struct rdv_later *l, uint64_t id);
struct rdv_call *rdv_later_expire(struct rdv_later *l,
				  int64_t now_us); /* the calls that are due, as a list; their ids are remembered */
struct rdv_call *rdv_later_take_all(struct rdv_later *l);
int64_t rdv_later_next_us(const struct rdv_later *l); /* RDV_NEVER = none */
#endif
