/* client.h - librdkafka handles: made from options, closed in order; errors by what is to be done about them.
 *
 * Every handle logs to `say` and never to standard error; the values of secret settings are cut out of all texts. Any
 * thread makes one; each handle is used as its owner says. Ask for the opaque with rdv_kafka_opaque, never with
 * rd_kafka_opaque. */
#ifndef RDV_BROKERS_KAFKA_CLIENT_H
#define RDV_BROKERS_KAFKA_CLIENT_H
#include <librdkafka/rdkafka.h>
#include "kafka.h"

struct rdv_kafka_config { /* a copy of the options, owned by the source */
	char *route, *brokers, *group, *instance, *dead_topic;
	enum rdv_letter_format dead_format;
	char **topics;
	size_t topic_count;
	struct rdv_kafka_setting *settings;
	size_t setting_count;
	struct rdv_buffer secret;
	enum rdv_kafka_from from;
	bool create_topics;
	int32_t replication;
	int64_t handler_timeout_ms;
	/* Level 0 error to 3 debug. Called by the library's own threads, several at once; NULL = silent. Set by the
	 * owner after the copy, before the first handle. */
	void (*say)(void *ctx, int level, const char *text);
	void *say_ctx;
};
enum redrive_status rdv_kafka_config_copy(struct rdv_kafka_config *c, const struct rdv_kafka_options *o) RDV_MUST_CHECK;
void rdv_kafka_config_done(struct rdv_kafka_config *c); /* after the last handle; accepts NULL */
/* The user's value of one of librdkafka's settings, the last one given; NULL = not set. */
const char *rdv_kafka_config_setting(const struct rdv_kafka_config *c, const char *name);
/* Every occurrence of a secret setting's value in the text becomes "***". */
void rdv_kafka_config_scrub(const struct rdv_kafka_config *c, char *text);

enum rdv_kafka_role {
	RDV_KAFKA_GROUP,  /* C: the group's member; events by its queue */
	RDV_KAFKA_READER, /* R: assigned by hand, never subscribes, never commits */
	RDV_KAFKA_WRITER, /* P: transactional; `id` is its transactional.id */
	RDV_KAFKA_PLAIN,  /* idempotent producer without transactions: inbox, replays to topics */
	RDV_KAFKA_ADMIN,  /* metadata and admin requests */
	RDV_KAFKA_SINGLE, /* as WRITER, but each record is a batch of its own: a refusal tells which one is too large */
	RDV_KAFKA_ROLE_COUNT
};
/* The opaque of a producer (WRITER, SINGLE, PLAIN); must outlive the handle. `delivered` is called for each record,
 * acknowledged or failed, by the thread that serves the handle (rd_kafka_poll, flush, commit); m->_private is the
 * record's RD_KAFKA_V_OPAQUE. */
struct rdv_kafka_reports {
	void (*delivered)(void *ctx, const rd_kafka_message_t *m);
	void *ctx;
};
/* `id`: transactional.id of a WRITER or SINGLE, else NULL. opaque: of a producer a struct rdv_kafka_reports or NULL;
 * else anything, see rdv_kafka_opaque. Consumers have all events in their consumer queue (rd_kafka_poll_set_consumer).
 * `c` must outlive the handle. REFUSED: the configuration will never work; error says why. */
enum redrive_status rdv_kafka_open(const struct rdv_kafka_config *c, enum rdv_kafka_role role, const char *id,
				   void *opaque, rd_kafka_t **out, struct rdv_error *error) RDV_MUST_CHECK;
void *rdv_kafka_opaque(const rd_kafka_t *h);
/* What the library last complained of (connections, authentication), if that was within the last minute: it often says
 * what an error code leaves out. Any thread. */
bool rdv_kafka_complaint(const rd_kafka_t *h, char out[256]);
/* NULL allowed. A consumer that is still open leaves its group first; 5 s at most, then it is left to its session's
 * timeout. References to the handle's queues must be gone. Not from a callback. */
void rdv_kafka_close(rd_kafka_t *h);

/* What to do about an error of the library: look at its flags first, then the code. */
enum rdv_kafka_deed {
	RDV_KAFKA_GO_ON,     /* no error */
	RDV_KAFKA_AGAIN,     /* the same call again, after a pause */
	RDV_KAFKA_ABORT,     /* the transaction is to be aborted; allowed only when all its records were acknowledged */
	RDV_KAFKA_RENEW,     /* this handle is dead: destroy it, make another one with the same id */
	RDV_KAFKA_REFUSED,   /* the generation is not the group's any more: ABORT, and wait for the next assignment */
	RDV_KAFKA_FENCED,    /* a successor has our static name: the consumer is unusable */
	RDV_KAFKA_DENIED,    /* authentication, authorization: said, tried again slowly */
	RDV_KAFKA_TOO_LARGE, /* a record is larger than its topic or this client allows */
	RDV_KAFKA_STOP       /* configuration: it will never work */
};
/* A fatal error takes the handle with it, whatever the deed says. Unknown codes: AGAIN, or what the flags say. */
enum rdv_kafka_deed rdv_kafka_deed_of(rd_kafka_resp_err_t code, bool fatal, bool abortable, bool retriable);
enum rdv_kafka_deed rdv_kafka_deed_of_error(const rd_kafka_error_t *e); /* NULL = GO_ON */
#endif
