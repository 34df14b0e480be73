/* demo_service.h - the demo's downstream: a real HTTP service on loopback that is slow, fails, sends 429, dies for a
 * while and rejects some types for good - and that keeps the books, so that the demo can check what Redrive promises.
 * Any thread may ask. */
#ifndef RDV_APP_DEMO_SERVICE_H
#define RDV_APP_DEMO_SERVICE_H
#include "../base/bytes.h"

struct rdv_demo_service;

struct rdv_demo_books {
	uint64_t calls, acked, rejected, failed, throttled, refused; /* refused: 503 while it is dead */
	uint64_t acked_messages;                                     /* distinct ones */
	uint64_t repeated;                                           /* acked more than once */
	uint64_t order_violations; /* a message of a key acked before an earlier one was finished */
	uint64_t side_by_side;     /* two calls of one key at a time */
	uint64_t last_second;      /* calls in the last second */
};

enum redrive_status rdv_demo_service_start(struct rdv_demo_service **out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_demo_service_stop(struct rdv_demo_service *s);
uint16_t rdv_demo_service_port(const struct rdv_demo_service *s);
void rdv_demo_service_dead(struct rdv_demo_service *s, bool dead);   /* answers 503 to everything */
void rdv_demo_service_fixed(struct rdv_demo_service *s, bool fixed); /* accepts what it rejected for good before */
void rdv_demo_service_books(struct rdv_demo_service *s, struct rdv_demo_books *out);
/* What it does with an event: rejects it for good (until fixed), or always fails on it. */
bool rdv_demo_service_rejects(struct rdv_slice event);
bool rdv_demo_service_poisoned(uint64_t number);
#define RDV_DEMO_MESSAGES_MAX (1u << 20)
#endif
