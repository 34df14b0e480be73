/* client.h - librdkafka handles: made from options, closed in order; errors by what is to be done about them.
 *
 * Every handle logs to `say` and never to standard error. Any thread makes one; each handle is used as its owner says.
 */
#ifndef RDV_BROKERS_KAFKA_CLIENT_H
#define RDV_BROKERS_KAFKA_CLIENT_H
#include <librdkafka/rdkafka.h>
#include "kafka.h"

struct rdv_kafka_config { /* a copy of the options, owned by the source */
	char *route, *brokers, *group, *instance;
	char **topics;
	size_t topic_count;
	struct rdv_kafka_setting *settings;
	size_t setting_count;
	struct rdv_buffer secret;
	enum rdv_kafka_from from;
	bool create_topics;
	int32_t replication;
	int64_t handler_timeout_ms;
	void (*say)(void *ctx, int level, const char *text);
	void *say_ctx;
};
enum redrive_status rdv_kafka_config_copy(struct rdv_kafka_config *c, const struct rdv_kafka_options *o) RDV_MUST_CHECK;
void rdv_kafka_config_done(struct rdv_kafka_config *c);

enum rdv_kafka_role {
	RDV_KAFKA_GROUP,  /* C: the group's member; events by its queue */
	RDV_KAFKA_READER, /* R: assigned by hand, never subscribes, never commits */
	RDV_KAFKA_WRITER, /* P: transactional; `id` is its transactional.id */
	RDV_KAFKA_PLAIN,  /* idempotent producer without transactions: inbox, replays to topics */
	RDV_KAFKA_ADMIN   /* metadata and admin requests */
};
/* `id`: transactional.id of a WRITER, else NULL. opaque: what callbacks of the handle get. */
enum redrive_status rdv_kafka_open(const struct rdv_kafka_config *c, enum rdv_kafka_role role, const char *id,
				   void *opaque, rd_kafka_t **out, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_kafka_close(rd_kafka_t *h); /* NULL allowed; bounded waiting */

/* What to do about an error of the library: look at its flags first, then the code. */
enum rdv_kafka_deed {
	RDV_KAFKA_GO_ON,   /* no error */
	RDV_KAFKA_AGAIN,   /* the same call again, after a pause */
	RDV_KAFKA_ABORT,   /* the transaction is to be aborted; allowed only when all its records were acknowledged */
	RDV_KAFKA_RENEW,   /* this handle is dead: destroy it, make another one with the same id */
	RDV_KAFKA_REFUSED, /* the generation is not the group's any more: ABORT, and wait for the next assignment */
	RDV_KAFKA_FENCED,  /* a successor has our static name: the consumer is unusable */
	RDV_KAFKA_DENIED,  /* authentication, authorization: said, tried again slowly */
	RDV_KAFKA_STOP     /* configuration: it will never work */
};
enum rdv_kafka_deed rdv_kafka_deed_of(rd_kafka_resp_err_t code, bool fatal, bool abortable, bool retriable);
enum rdv_kafka_deed rdv_kafka_deed_of_error(const rd_kafka_error_t *e); /* NULL = GO_ON */
#endif
