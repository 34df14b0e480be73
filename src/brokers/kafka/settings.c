/* settings.c - which of librdkafka's settings may be passed on: a table of those that would break the protocol.
 *
 * Redrive fences with the group's generation, commits offsets in its own transactions, reads only what is committed and
 * resends by its own rule; a setting that takes one of these out of its hands is refused, and the row says what to do
 * instead. Some are refused for some values only. All others are librdkafka's to judge. No value of a secret setting
 * goes into a text. Pure; any thread. */
#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <strings.h>
#include "../../base/quantity.h"
#include "kafka.h"

struct row {
	const char *name;
	const char *instead;               /* of it, or of such a value */
	bool (*breaks)(const char *value); /* NULL = every value */
};

static bool number(const char *value, int64_t *out)
{
	return rdv_integer_parse(rdv_slice_text(value), out) == REDRIVE_OK;
}

/* Values that are no number are librdkafka's to refuse. */
static bool over_five(const char *value)
{
	int64_t n;

	return number(value, &n) && n > 5;
}

static bool under_ten_seconds(const char *value)
{
	int64_t n;

	return number(value, &n) && n < 10000;
}

static bool is_cooperative(const char *value)
{
	return strcasestr(value, "cooperative") != NULL;
}

static bool breaks_assignment(const char *value)
{
	/* Earlier ones have defects in cooperative rebalances that lose assignments. */
	return is_cooperative(value) && (rd_kafka_version() < 0x020601ff || strchr(value, ','));
}

static bool is_not_classic(const char *value)
{
	return strcasecmp(value, "classic") != 0;
}

#define OWN_COMMITS "remove it: offsets are committed together with what was decided, in one transaction"
#define OWN_RESENDS "remove it: records are sent again until they are acknowledged, by a new producer where needed"
#define OWN_ACKS "remove it: records count only when all replicas in sync have them"
#define OWN_FORMAT "remove it: its reports are what Redrive decides by"

static const struct row rows[] = {
	{"bootstrap.servers", "set `brokers` of the source instead"},
	{"metadata.broker.list", "set `brokers` of the source instead"},
	{"group.id", "set `group` of the source instead"},
	{"group.instance.id", "set `instance` of the source instead"},
	{"auto.offset.reset", "set `from` of the source instead; later on an offset is never guessed"},
	{"transactional.id", "remove it: it is made of the route and the instance"},
	{"transaction.timeout.ms",
	 "set 10000 or more: a transaction may wait 5 s for its records and 5 s for its offsets", under_ten_seconds},
	{"isolation.level", "remove it: only what is committed may be read, or fencing does not hold"},
	{"enable.auto.commit", OWN_COMMITS},
	{"auto.commit.enable", OWN_COMMITS},
	{"auto.commit.interval.ms", OWN_COMMITS},
	{"enable.auto.offset.store", OWN_COMMITS},
	{"offset.store.method", OWN_COMMITS},
	{"offset.store.path", OWN_COMMITS},
	{"offset.store.sync.interval.ms", OWN_COMMITS},
	{"enable.idempotence", "remove it: it is always on"},
	{"enable.gapless.guarantee", OWN_RESENDS},
	{"retries", OWN_RESENDS},
	{"message.send.max.retries", OWN_RESENDS},
	{"message.timeout.ms", OWN_RESENDS},
	{"delivery.timeout.ms", OWN_RESENDS},
	{"acks", OWN_ACKS},
	{"request.required.acks", OWN_ACKS},
	{"queuing.strategy", "remove it: records are sent in their order"},
	{"max.in.flight", "set 5 or less: more would not keep the records in order", over_five},
	{"max.in.flight.requests.per.connection", "set 5 or less: more would not keep the records in order", over_five},
	{"delivery.report.only.error", OWN_FORMAT},
	{"enable.partition.eof", OWN_FORMAT},
	{"enabled_events", OWN_FORMAT},
	{"log.queue", "remove it: the library's lines are in Redrive's log"},
	{"allow.auto.create.topics",
	 "remove it: `redrive kafka topics --create` makes the topics, with the right settings"},
	{"partition.assignment.strategy",
	 "set range or roundrobin, as all of the group do; cooperative-sticky alone, from librdkafka 2.6.1 on",
	 breaks_assignment},
	{"group.protocol", "set classic or remove it: the other protocol has no generation to fence by",
	 is_not_classic},
	{"group.remote.assignor", "set `partition.assignment.strategy` instead"},
};

bool rdv_kafka_setting_is_secret(const char *name)
{
	static const char *const parts[] = {"password", "secret", ".pem", "oauthbearer.config", "jaas.config"};

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (strcasestr(name, parts[i]))
			return true;
	return false;
}

static enum redrive_status check_with_library(const char *name, const char *value, struct rdv_error *why)
{
	enum redrive_status status = REDRIVE_OK;
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_conf_res_t res;
	char text[512] = "";

	if (!conf)
		return rdv_error_set(why, REDRIVE_NO_MEMORY, "a configuration of librdkafka");
	res = rd_kafka_conf_set(conf, name, value, text, sizeof text);
	if (res == RD_KAFKA_CONF_UNKNOWN)
		status = rdv_error_set(why, REDRIVE_INVALID, "%s has no setting '%s'", rdv_kafka_library(), name);
	else if (res != RD_KAFKA_CONF_OK && rdv_kafka_setting_is_secret(name))
		status = rdv_error_set(why, REDRIVE_INVALID, "the value of '%s' is not acceptable", name);
	else if (res != RD_KAFKA_CONF_OK)
		status = rdv_error_set(why, REDRIVE_INVALID, "%s", text);
	rd_kafka_conf_destroy(conf);
	return status;
}

enum redrive_status rdv_kafka_check_setting(const char *name, const char *value, struct rdv_error *why)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (strcmp(rows[i].name, name) == 0 && (!rows[i].breaks || rows[i].breaks(value)))
			return rdv_error_set(why, REDRIVE_REFUSED, "'%s' is not passed on to librdkafka: %s", name,
					     rows[i].instead);
	return check_with_library(name, value, why);
}
