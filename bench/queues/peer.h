/* peer.h - what the client programs of all queues share, so that each is asked for the same work in the same way.
 *
 * Each queue fills one `struct peer`; main() in peer.c runs a work against it:
 *
 *   queue_NAME ack     N PORT   publish and consume side by side until all are acked
 *   queue_NAME retry   N PORT   the same, but every first delivery is put back for 1 s
 *   queue_NAME tenth   N PORT   the same, but one first delivery in ten is put back for 1 s
 *   queue_NAME backlog N PORT   put N messages into the waiting state
 *   queue_NAME ready   N PORT   poll until the server answers for all N, then check
 *                           that none of them is delivered early
 *
 * publish() runs on its own thread and owns its own connection; consume() runs
 * on the main thread. Only the consumer touches the ledger. Anything unexpected
 * ends the program with exit code 1: a figure is printed only for a run in which
 * every message was seen the expected number of times.
 */
#ifndef PEER_H
#define PEER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BODY = 256, BATCH = 1000, WINDOW = 1000, RETRY_MS = 1000 };

/* Backlog messages fall due from START to START + SPAN seconds after their put,
 * so that none becomes due while it is being measured. */
enum { BACKLOG_START_S = 600, BACKLOG_SPAN_S = 3600 };

struct peer {
	const char *name;
	void (*setup)(bool retry);           /* create queues; before the clock starts */
	void (*publish)(long n);             /* return once all n are confirmed */
	void (*consume)(long n, bool retry); /* return once all n are acked for good */
	void (*backlog)(long n);             /* return once all n are waiting, confirmed */
	long (*waiting)(void);               /* messages waiting, or -1: not ready yet */
	long (*deliverable)(void);           /* messages handed out now (0 expected) */
};

extern const struct peer peer; /* each q_NAME.c defines it */
extern int peer_port;

double now_s(void);
void pause_ms(long ms);
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *need(size_t bytes); /* calloc or die */

void body_make(long seq, char out[BODY]);
long body_seq(const void *data, size_t len); /* dies on a body that is not ours */
long backlog_delay_s(long seq);

/* The ledger: which message was delivered how often, and how late after its delay. */
bool ledger_deliver(long seq); /* is this delivery to be put back? */
bool ledger_fails_each(void);  /* is every first delivery put back? */
void ledger_failed(long seq);  /* call when the put-back is sent */
long ledger_acked(long seq);   /* returns how many are acked so far */
long ledger_done(void);

#endif
