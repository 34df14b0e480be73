/* order.h - per-key gates and followers: who of a key may go next.
 *
 * A key exists while a live entry refers to it, an end is not durable, or its gate is closed. Its members are the live
 * messages that have joined its order and are not at the handler, as a list by position, smallest first, through the
 * entries' `member`. With order: none only keys with open replays exist; their hash is the 32-bit fold, and live
 * messages join only while a replay is at work.
 *
 *        turn ─────▶ the entry whose turn it is: at the handler, or ready to go there (at most one, G1)
 *   key  first ────▶ entry ──▶ entry ──▶ ... last       by position (G2)
 *        blocked     ended heads whose end is not durable yet (G4)
 *        closed      gate of after_dead: hold (G3)
 *
 * This module keeps the lists; the rules of who goes are the lane's (lane_keys.c). 48 bytes a key and 3 in the map.
 * Adding at the end is O(1); a message that joins between others (delayed, replayed) walks the list. Single thread. */
#ifndef RDV_CORE_ORDER_H
#define RDV_CORE_ORDER_H
#include "../base/map.h"
#include "entry.h"

struct rdv_key {
	uint32_t link; /* the map's */
	uint32_t first, last, turn;
	uint64_t hash;
	uint64_t letter_seq;   /* closed: the dead message that closed it */
	uint32_t gate_segment; /* the GATE record lies in this segment or a later one; 0 = none */
	uint32_t refs;         /* live entries of this key, joined or not */
	uint32_t blocked;      /* with order: none: live calls of the key */
	unsigned replays : 30; /* open replay requests that are not paused */
	unsigned closed : 1;
	unsigned used : 1;
};
_Static_assert(sizeof(struct rdv_key) == 48, "48 bytes a key");

struct rdv_keys {
	struct rdv_chunks *entries; /* borrows */
	struct rdv_chunks keys;     /* owns */
	struct rdv_map map;
	uint32_t closed; /* keys with a closed gate */
};

void rdv_order_init(struct rdv_keys *o, struct rdv_chunks *entries);
void rdv_order_done(struct rdv_keys *o);
static inline struct rdv_key *rdv_order_key(const struct rdv_keys *o, uint32_t ref)
{
	return rdv_chunks_at(&o->keys, ref);
}
uint32_t rdv_order_find(const struct rdv_keys *o, uint64_t hash); /* 0 = no such key */
uint32_t rdv_order_get(struct rdv_keys *o, uint64_t hash);        /* made if missing; 0 without memory */
/* The first key in use with a reference > `after`; 0 = no more. */
uint32_t rdv_order_each(const struct rdv_keys *o, uint32_t after);
/* Frees the key if nothing keeps it. */
void rdv_order_drop_idle(struct rdv_keys *o, uint32_t key);
/* Into the list by position; the entry's `key` is not looked at. */
void rdv_order_insert(struct rdv_keys *o, struct rdv_key *k, uint32_t ref);
/* Takes a member out of the list; the first one is O(1). */
void rdv_order_remove(struct rdv_keys *o, struct rdv_key *k, uint32_t ref);
/* Positions rise, counts are true, links end. */
bool rdv_order_check(const struct rdv_keys *o);
#endif
