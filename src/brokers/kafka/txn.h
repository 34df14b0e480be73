/* txn.h - one transaction after the other: records, then offsets, or nothing. The writer handle P and its rules.
 *
 * Rule F: every transaction that touches a lane's journal carries an offset of its source partition, unchanged if need
 * be; every record is acknowledged before the offsets are sent, and nothing is produced after them. Rule P: a
 * transaction is aborted only if all its records were acknowledged; otherwise P is destroyed and made anew with the
 * same id, and everything is sent again. The caller's thread blocks; one thread uses a txn, its transaction thread. */
#ifndef RDV_BROKERS_KAFKA_TXN_H
#define RDV_BROKERS_KAFKA_TXN_H
#include "client.h"

struct rdv_kafka_txn;

struct rdv_kafka_put { /* one record to produce; its bytes stay the caller's and unchanged until run returns */
	const char *topic;
	int32_t partition;
	struct rdv_slice key, value; /* data NULL = null */
	rd_kafka_headers_t *headers; /* borrows: copied; NULL = none */
	int64_t offset;              /* set when acknowledged */
	bool optional;               /* the broker may not take it: see REFUSED */
	bool null_value;             /* for who makes `value` later */
};
struct rdv_kafka_moved { /* an offset to commit with it */
	const char *topic;
	int32_t partition;
	int64_t offset; /* >= 0 */
};
struct rdv_kafka_step {
	struct rdv_kafka_put *puts;
	size_t put_count;
	const struct rdv_kafka_moved *moved; /* at least one */
	size_t moved_count;
	const rd_kafka_consumer_group_metadata_t *group; /* taken inside the last rebalance event; checked: generation
							    >= 0, member not empty, else INTERNAL */
	size_t too_large;                                /* with TOO_LARGE: which of `puts` */
};

/* The generation of a snapshot of the group. INTERNAL: it was taken outside of a generation (before the first
 * rebalance, or after the member was lost), so that the broker would not fence by it, or its bytes are not known. */
enum redrive_status rdv_kafka_generation(const rd_kafka_consumer_group_metadata_t *group, int32_t *out,
					 struct rdv_error *error) RDV_MUST_CHECK;

/* The handle is made by the first run, or anew after it died; id = transactional.id. `stop` is read while waiting: set,
 * every call ends soon with CLOSED: at once while records or the broker are waited for, after 5 s at most where the
 * library cannot be interrupted. `c` and `stop` must outlive it. NULL without memory. */
struct rdv_kafka_txn *rdv_kafka_txn_new(const struct rdv_kafka_config *c, const char *id, const _Atomic bool *stop);
void rdv_kafka_txn_free(struct rdv_kafka_txn *t);
/* init_transactions ahead of need (connections, metadata). Retries without end but for stop; what keeps it is said to
 * the configuration's `say`. REFUSED: the configuration will never work, error says why. */
enum redrive_status rdv_kafka_txn_warm(struct rdv_kafka_txn *t, struct rdv_error *error) RDV_MUST_CHECK;
/* OK: all is visible. CONFLICT: the broker refused the generation, nothing is visible and P is good for the next (the
 * caller waits for the next assignment, drops what left, and runs the rest again). UNKNOWN outcome is REDRIVE_FAILED: P
 * was renewed; whether this step is visible only OPEN and the fold can tell, so the caller reopens the lanes; it is
 * answered only when commit itself was interrupted. BUSY: another producer took the id while no transaction of ours had
 * expired; nothing is visible, and P is made anew by the next run only, since it would fence the other one in turn: the
 * caller asks its consumer first (a fatal FENCED_INSTANCE_ID: a successor has our static name), then runs the step
 * again. Everything else is tried again inside, without end, said through `trouble` while it lasts (NULL text = over).
 * CLOSED: stop; of a commit under way the outcome is unknown. REFUSED: an optional record was not
 * taken, or not acknowledged while all others were; nothing is visible, and the step is to be run again without it.
 * TOO_LARGE: a record is larger than the topic allows:
 * error and step->too_large name it, nothing is visible. INTERNAL: the step breaks this contract. */
enum redrive_status rdv_kafka_txn_run(struct rdv_kafka_txn *t, struct rdv_kafka_step *step,
				      void (*trouble)(void *ctx, const char *why), void *ctx,
				      struct rdv_error *error) RDV_MUST_CHECK;
#endif
