/* errors.c - errors of librdkafka, by what is to be done about them: one table.
 *
 * The same code means different things by its flags: fatal = the handle is dead, abortable = the transaction is. So a
 * row has a deed for each, and the flags are looked at first, in that order; a retriable error is the same call again,
 * whatever its code; the last column is for errors without flags: of consumers, plain calls and delivery reports. Codes
 * that are not in the table take the first row. Pure; any thread. */
#include "client.h"

#define OTHERS RD_KAFKA_RESP_ERR__BEGIN

struct row {
	rd_kafka_resp_err_t code;
	enum rdv_kafka_deed fatal, abortable, plain;
};

/* A right that is missing, or credentials that do not pass. */
#define RIGHT(code)                                                                                                    \
	{                                                                                                              \
		RD_KAFKA_RESP_ERR_##code, RDV_KAFKA_DENIED, RDV_KAFKA_DENIED, RDV_KAFKA_DENIED                         \
	}
/* The broker or this configuration cannot do it: no repetition helps. */
#define NEVER(code)                                                                                                    \
	{                                                                                                              \
		RD_KAFKA_RESP_ERR_##code, RDV_KAFKA_STOP, RDV_KAFKA_STOP, RDV_KAFKA_STOP                               \
	}
/* The producer's state at the broker is not what it thinks. */
#define DEAD(code)                                                                                                     \
	{                                                                                                              \
		RD_KAFKA_RESP_ERR_##code, RDV_KAFKA_RENEW, RDV_KAFKA_RENEW, RDV_KAFKA_RENEW                            \
	}
/* The group has gone on without this member, or without this generation. */
#define LEFT(code)                                                                                                     \
	{                                                                                                              \
		RD_KAFKA_RESP_ERR_##code, RDV_KAFKA_RENEW, RDV_KAFKA_REFUSED, RDV_KAFKA_REFUSED                        \
	}
#define LARGE(code)                                                                                                    \
	{                                                                                                              \
		RD_KAFKA_RESP_ERR_##code, RDV_KAFKA_RENEW, RDV_KAFKA_TOO_LARGE, RDV_KAFKA_TOO_LARGE                    \
	}

static const struct row rows[] = {
	{OTHERS, RDV_KAFKA_RENEW, RDV_KAFKA_ABORT, RDV_KAFKA_AGAIN},

	LEFT(ILLEGAL_GENERATION),
	LEFT(UNKNOWN_MEMBER_ID),
	LEFT(REBALANCE_IN_PROGRESS),
	LEFT(_ASSIGNMENT_LOST),
	{RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, RDV_KAFKA_FENCED, RDV_KAFKA_FENCED, RDV_KAFKA_FENCED},

	DEAD(_FENCED),
	DEAD(INVALID_PRODUCER_EPOCH),
	DEAD(PRODUCER_FENCED),
	DEAD(INVALID_TXN_STATE),
	DEAD(INVALID_PRODUCER_ID_MAPPING),
	DEAD(UNKNOWN_PRODUCER_ID),
	DEAD(OUT_OF_ORDER_SEQUENCE_NUMBER),
	DEAD(DUPLICATE_SEQUENCE_NUMBER),
	DEAD(_MSG_TIMED_OUT),
	DEAD(_PURGE_QUEUE),
	DEAD(_PURGE_INFLIGHT),
	DEAD(_INCONSISTENT),
	DEAD(_GAPLESS_GUARANTEE),
	DEAD(_FATAL),
	DEAD(_STATE),

	LARGE(MSG_SIZE_TOO_LARGE),
	LARGE(RECORD_LIST_TOO_LARGE),
	LARGE(INVALID_MSG_SIZE),

	RIGHT(TOPIC_AUTHORIZATION_FAILED),
	RIGHT(GROUP_AUTHORIZATION_FAILED),
	RIGHT(CLUSTER_AUTHORIZATION_FAILED),
	RIGHT(TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
	RIGHT(SASL_AUTHENTICATION_FAILED),
	RIGHT(_AUTHENTICATION),
	RIGHT(SECURITY_DISABLED),
	RIGHT(DELEGATION_TOKEN_AUTHORIZATION_FAILED),
	RIGHT(DELEGATION_TOKEN_EXPIRED),
	RIGHT(UNACCEPTABLE_CREDENTIAL),

	NEVER(INVALID_TRANSACTION_TIMEOUT),
	NEVER(UNSUPPORTED_FOR_MESSAGE_FORMAT),
	NEVER(UNSUPPORTED_VERSION),
	NEVER(UNSUPPORTED_SASL_MECHANISM),
	NEVER(UNSUPPORTED_COMPRESSION_TYPE),
	NEVER(INVALID_REQUIRED_ACKS),
	NEVER(INVALID_GROUP_ID),
	NEVER(INVALID_SESSION_TIMEOUT),
	NEVER(INCONSISTENT_GROUP_PROTOCOL),
	NEVER(POLICY_VIOLATION),
	NEVER(_UNSUPPORTED_FEATURE),
	NEVER(_NOT_CONFIGURED),
	NEVER(_NOT_IMPLEMENTED),
	NEVER(_UNKNOWN_PROTOCOL),
	NEVER(_INVALID_ARG),
};

enum rdv_kafka_deed rdv_kafka_deed_of(rd_kafka_resp_err_t code, bool fatal, bool abortable, bool retriable)
{
	const struct row *row = &rows[0];

	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		return RDV_KAFKA_GO_ON;
	for (size_t i = 1; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].code == code)
			row = &rows[i];
	if (fatal)
		return row->fatal;
	if (abortable)
		return row->abortable;
	return retriable ? RDV_KAFKA_AGAIN : row->plain;
}

enum rdv_kafka_deed rdv_kafka_deed_of_error(const rd_kafka_error_t *e)
{
	if (!e)
		return RDV_KAFKA_GO_ON;
	return rdv_kafka_deed_of(rd_kafka_error_code(e), rd_kafka_error_is_fatal(e),
				 rd_kafka_error_txn_requires_abort(e), rd_kafka_error_is_retriable(e));
}
