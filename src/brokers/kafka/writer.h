/* writer.h - the writer handle P of transactions: made when needed, given up when in doubt, ended within bounds.
 *
 * Used by txn.c alone, on its thread. What blocks in the library is called in slices, between which `stop` is looked
 * at. Why something has to be done again stands in `why` and is said once, until it is over. */
#ifndef RDV_BROKERS_KAFKA_WRITER_H
#define RDV_BROKERS_KAFKA_WRITER_H
#include "client.h"

struct rdv_kafka_writer {
	const struct rdv_kafka_config *config; /* borrows */
	char *id;                              /* owns */
	const _Atomic bool *stop;              /* borrows */
	struct rdv_kafka_reports reports;
	rd_kafka_t *handle;  /* owns; NULL = to be made */
	bool ready;          /* its init_transactions has succeeded */
	bool single;         /* the next handle sends records one by one, to find the one that is too large */
	int64_t lifetime_ms; /* of a transaction at the broker */
	void (*trouble)(void *ctx, const char *why); /* NULL = the configuration's say */
	void *trouble_ctx;
	bool said; /* that there is trouble */
	struct rdv_error why;
};

enum redrive_status rdv_kafka_writer_init(struct rdv_kafka_writer *w, const struct rdv_kafka_config *c, const char *id,
					  const _Atomic bool *stop) RDV_MUST_CHECK;
void rdv_kafka_writer_done(struct rdv_kafka_writer *w);
bool rdv_kafka_writer_is_stopped(const struct rdv_kafka_writer *w);
void rdv_kafka_writer_pause(const struct rdv_kafka_writer *w, int64_t ms); /* shorter when stopped */
/* Says `why`, with the library's last complaint. */
void rdv_kafka_writer_say(struct rdv_kafka_writer *w);
void rdv_kafka_writer_over(struct rdv_kafka_writer *w); /* the trouble that was said */
/* Until the handle is ready. CLOSED: stop. REFUSED, if `may_refuse`: it never will be, `why` says why. */
enum redrive_status rdv_kafka_writer_prepare(struct rdv_kafka_writer *w, bool may_refuse) RDV_MUST_CHECK;
/* What the error of a call asks for; its text goes to `why`, the error is destroyed. */
enum rdv_kafka_deed rdv_kafka_writer_judge(struct rdv_kafka_writer *w, const char *call, rd_kafka_error_t *error);
/* Does the code say that the broker has seen a later epoch of the id? And does the handle's fatal error? */
bool rdv_kafka_is_fence(rd_kafka_resp_err_t code);
bool rdv_kafka_writer_is_fenced(const struct rdv_kafka_writer *w);
/* Only when all records are acknowledged. False: the handle is not good any more. */
bool rdv_kafka_writer_abort(struct rdv_kafka_writer *w);
void rdv_kafka_writer_drop(struct rdv_kafka_writer *w); /* the next prepare makes a new handle */
#endif
