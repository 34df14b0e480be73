/* test_kafka_errors.c - what is done about each error that a broker was seen to answer with, by its flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include "brokers/kafka/client.h"

#define E(code) RD_KAFKA_RESP_ERR_##code
enum { NO_FLAG, FATAL, ABORTABLE, RETRIABLE };

struct seen {
	const char *where;
	rd_kafka_resp_err_t code;
	int flag;
	enum rdv_kafka_deed wanted;
};

static const struct seen table[] = {
	{"nothing happened", E(NO_ERROR), NO_FLAG, RDV_KAFKA_GO_ON},
	{"send_offsets: stale generation", E(ILLEGAL_GENERATION), ABORTABLE, RDV_KAFKA_REFUSED},
	{"send_offsets: session expired", E(UNKNOWN_MEMBER_ID), ABORTABLE, RDV_KAFKA_REFUSED},
	{"send_offsets: between two generations", E(REBALANCE_IN_PROGRESS), ABORTABLE, RDV_KAFKA_REFUSED},
	{"send_offsets: a successor has our name", E(FENCED_INSTANCE_ID), ABORTABLE, RDV_KAFKA_FENCED},
	{"consumer: a successor has our name", E(FENCED_INSTANCE_ID), FATAL, RDV_KAFKA_FENCED},
	{"any: transaction expired", E(_FENCED), FATAL, RDV_KAFKA_RENEW},
	{"any: transaction expired, as the broker says it", E(INVALID_PRODUCER_EPOCH), FATAL, RDV_KAFKA_RENEW},
	{"any: another producer with the id", E(PRODUCER_FENCED), FATAL, RDV_KAFKA_RENEW},
	{"abort: broker restarted", E(INVALID_TXN_STATE), FATAL, RDV_KAFKA_RENEW},
	{"any: a fatal error that nobody knows", E(UNKNOWN), FATAL, RDV_KAFKA_RENEW},
	{"any: an abortable error that nobody knows", E(UNKNOWN), ABORTABLE, RDV_KAFKA_ABORT},
	{"send_offsets: its time ran out", E(_TIMED_OUT), ABORTABLE, RDV_KAFKA_ABORT},
	{"commit: limit", E(_TIMED_OUT), RETRIABLE, RDV_KAFKA_AGAIN},
	{"init: coordinator moves", E(NOT_COORDINATOR), RETRIABLE, RDV_KAFKA_AGAIN},
	{"init: older transaction", E(CONCURRENT_TRANSACTIONS), RETRIABLE, RDV_KAFKA_AGAIN},
	{"init: coordinator loads", E(COORDINATOR_LOAD_IN_PROGRESS), RETRIABLE, RDV_KAFKA_AGAIN},
	{"committed: pending transaction", E(_TIMED_OUT), NO_FLAG, RDV_KAFKA_AGAIN},
	{"committed: pending transaction, as the broker says it", E(UNSTABLE_OFFSET_COMMIT), NO_FLAG, RDV_KAFKA_AGAIN},
	{"report: not acknowledged in time", E(_MSG_TIMED_OUT), NO_FLAG, RDV_KAFKA_RENEW},
	{"report: expired", E(INVALID_PRODUCER_EPOCH), NO_FLAG, RDV_KAFKA_RENEW},
	{"report: purged from the queue", E(_PURGE_QUEUE), NO_FLAG, RDV_KAFKA_RENEW},
	{"report: purged in flight", E(_PURGE_INFLIGHT), NO_FLAG, RDV_KAFKA_RENEW},
	{"report: too large for the topic", E(MSG_SIZE_TOO_LARGE), NO_FLAG, RDV_KAFKA_TOO_LARGE},
	{"plain commit: lost", E(UNKNOWN_MEMBER_ID), NO_FLAG, RDV_KAFKA_REFUSED},
	{"any: no right to the topic", E(TOPIC_AUTHORIZATION_FAILED), NO_FLAG, RDV_KAFKA_DENIED},
	{"send_offsets: no right to the group", E(GROUP_AUTHORIZATION_FAILED), ABORTABLE, RDV_KAFKA_DENIED},
	{"init: no right to the id", E(TRANSACTIONAL_ID_AUTHORIZATION_FAILED), FATAL, RDV_KAFKA_DENIED},
	{"any: credentials expired", E(_AUTHENTICATION), NO_FLAG, RDV_KAFKA_DENIED},
	{"init: the broker allows shorter transactions only", E(INVALID_TRANSACTION_TIMEOUT), FATAL, RDV_KAFKA_STOP},
	{"any: broker away", E(_ALL_BROKERS_DOWN), NO_FLAG, RDV_KAFKA_AGAIN},
	{"any: connection broke", E(_TRANSPORT), NO_FLAG, RDV_KAFKA_AGAIN},
	{"any: an error that nobody knows", E(UNKNOWN), NO_FLAG, RDV_KAFKA_AGAIN},
	{"any: a code of a later library", (rd_kafka_resp_err_t)-12345, NO_FLAG, RDV_KAFKA_AGAIN},
};

static void errors_are_judged_by_their_flags_first(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const struct seen *s = &table[i];
		enum rdv_kafka_deed deed =
			rdv_kafka_deed_of(s->code, s->flag == FATAL, s->flag == ABORTABLE, s->flag == RETRIABLE);

		if (deed != s->wanted)
			fail_msg("%s: %d, not %d", s->where, (int)deed, (int)s->wanted);
	}
}

/* pitfall: a commit that is refused in a rebalance */
static void every_code_has_a_deed_that_fits_its_flags(void **state)
{
	(void)state;
	for (int code = RD_KAFKA_RESP_ERR__BEGIN; code < RD_KAFKA_RESP_ERR_END_ALL; code++) {
		if (!code)
			continue;
		assert_int_not_equal(rdv_kafka_deed_of(code, false, false, false), RDV_KAFKA_GO_ON);
		assert_int_not_equal(rdv_kafka_deed_of(code, false, true, false), RDV_KAFKA_GO_ON);
		/* a transaction that is to be aborted cannot go on by the same call */
		assert_int_not_equal(rdv_kafka_deed_of(code, false, true, true), RDV_KAFKA_AGAIN);
		/* nor can a dead handle, by no call but its end */
		assert_int_not_equal(rdv_kafka_deed_of(code, true, true, true), RDV_KAFKA_AGAIN);
		assert_int_not_equal(rdv_kafka_deed_of(code, true, false, false), RDV_KAFKA_ABORT);
		assert_int_equal(rdv_kafka_deed_of(code, false, false, true), RDV_KAFKA_AGAIN);
	}
	assert_int_equal(rdv_kafka_deed_of_error(NULL), RDV_KAFKA_GO_ON);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_are_judged_by_their_flags_first),
		cmocka_unit_test(every_code_has_a_deed_that_fits_its_flags),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
