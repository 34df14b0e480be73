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

struct rdv_kafka_put { /* one record to produce */
	const char *topic;
	int32_t partition;
	struct rdv_slice key, value; /* key.data NULL = null key */
	rd_kafka_headers_t *headers; /* borrows: copied; NULL = none */
	int64_t offset;              /* set when acknowledged */
};
struct rdv_kafka_moved { /* an offset to commit with it */
	const char *topic;
	int32_t partition;
	int64_t offset;
};
struct rdv_kafka_step {
	struct rdv_kafka_put *puts;
	size_t put_count;
	const struct rdv_kafka_moved *moved; /* at least one */
	size_t moved_count;
	const rd_kafka_consumer_group_metadata_t *group; /* taken inside the last rebalance event; checked: generation
							    >= 0, member not empty, else INTERNAL */
};

/* The handle is made by the first run, or anew after it died; id = transactional.id. `stop` is read while waiting: set,
 * every call ends soon with CLOSED. */
struct rdv_kafka_txn *rdv_kafka_txn_new(const struct rdv_kafka_config *c, const char *id, const _Atomic bool *stop);
void rdv_kafka_txn_free(struct rdv_kafka_txn *t);
/* init_transactions ahead of need (connections, metadata). Retries without end but for stop. */
enum redrive_status rdv_kafka_txn_warm(struct rdv_kafka_txn *t, struct rdv_error *error) RDV_MUST_CHECK;
/* OK: all is visible. CONFLICT: the broker refused the generation, nothing is visible and P is good for the next (the
 * caller waits for the next assignment, drops what left, and runs the rest again). UNKNOWN outcome is REDRIVE_FAILED: P
 * was renewed; whether this step is visible only OPEN and the fold can tell, so the caller reopens the lanes; it is
 * answered only when commit itself was interrupted. Everything else is tried again inside, without end, said through
 * `trouble` while it lasts (NULL text = over). CLOSED: stop. TOO_LARGE: a record is larger than the topic allows:
 * error names it. */
enum redrive_status rdv_kafka_txn_run(struct rdv_kafka_txn *t, struct rdv_kafka_step *step,
				      void (*trouble)(void *ctx, const char *why), void *ctx,
				      struct rdv_error *error) RDV_MUST_CHECK;
#endif
