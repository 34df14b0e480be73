/* settings_table.c - the rows. Reader, checker, printer, reference and shell completion all use these. */
#include <stddef.h>
#include "settings_table.h"

#define S(field) offsetof(struct rdv_settings, field)
#define R(field) offsetof(struct rdv_route_settings, field)
#define H(field) offsetof(struct rdv_handler_settings, field)
#define U(field) offsetof(struct rdv_http_settings, field)
#define X(field) offsetof(struct rdv_exec_settings, field)
#define T(field) offsetof(struct rdv_retry, field)
#define SECURITY(field) (offsetof(struct rdv_settings, security.field) - offsetof(struct rdv_settings, security))
#define LIMITS(field) (offsetof(struct rdv_settings, limits.field) - offsetof(struct rdv_settings, limits))
#define KEEP(field) (offsetof(struct rdv_settings, retention.field) - offsetof(struct rdv_settings, retention))
#define SOURCE(field) (offsetof(struct rdv_route_settings, source.field) - offsetof(struct rdv_route_settings, source))

#define K(field) offsetof(struct rdv_kafka_source_settings, field)

#define YEARS (3650.0 * 86400e3)
#define TIB (1024.0 * 1024 * 1024 * 1024)

static const char *const backoffs[] = {"fixed", "linear", "exponential", "polynomial", "list", "rocketmq", NULL};
static const char *const orders[] = {"none", "key", NULL};
static const char *const after_deads[] = {"continue", "hold", "follow", NULL};
/* enum rdv_letter_format */
static const char *const dead_formats[] = {"headers", "spring", "connect", "kip-1191", "json", NULL};
static const char *const exhausteds[] = {"dead", "drop", NULL};
static const char *const froms[] = {"earliest", "latest", "committed", NULL};
static const char *const presets[] = {"none", "payment", "order", "notice", "log", "realtime", NULL};

const char *const rdv_section_paths[RDV_SECTION_COUNT] = {
	[RDV_SECTION_ROOT] = "",
	[RDV_SECTION_LIMITS] = "limits",
	[RDV_SECTION_SECURITY] = "security",
	[RDV_SECTION_TLS] = "security.tls",
	[RDV_SECTION_DESK] = "desk",
	[RDV_SECTION_RETENTION] = "desk.retention",
	[RDV_SECTION_ROUTE] = "routes[]",
	[RDV_SECTION_SOURCE] = "routes[].source",
	[RDV_SECTION_KAFKA] = "routes[].source.kafka",
	[RDV_SECTION_DEAD] = "routes[].dead",
	[RDV_SECTION_HANDLER] = "routes[].handler",
	[RDV_SECTION_HTTP] = "routes[].handler.http",
	[RDV_SECTION_HTTP_TLS] = "routes[].handler.http.tls",
	[RDV_SECTION_SIGN] = "routes[].handler.http.sign",
	[RDV_SECTION_EXEC] = "routes[].handler.exec",
	[RDV_SECTION_LEASE] = "routes[].handler.lease",
	[RDV_SECTION_CONCURRENCY] = "routes[].concurrency",
	[RDV_SECTION_RETRY] = "routes[].retry",
	[RDV_SECTION_WHEN] = "routes[].rules[].when",
	[RDV_SECTION_BREAKER] = "routes[].breaker",
	[RDV_SECTION_BUDGET] = "routes[].budget",
	[RDV_SECTION_POISON] = "routes[].poison",
	[RDV_SECTION_DEDUPE] = "routes[].dedupe",
	[RDV_SECTION_METADATA] = "routes[].metadata",
};

#define DURATION(reload, section, key, offset, min, max, fallback, doc)                                                \
	{                                                                                                              \
		section, key, RDV_SETTING_DURATION, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback,    \
			doc, NULL, NULL                                                                                \
	}
#define SIZE(reload, section, key, offset, min, max, fallback, doc)                                                    \
	{                                                                                                              \
		section, key, RDV_SETTING_SIZE, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback, doc,   \
			NULL, NULL                                                                                     \
	}
#define INT32(reload, section, key, offset, min, max, fallback, doc)                                                   \
	{                                                                                                              \
		section, key, RDV_SETTING_INT32, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback, doc,  \
			NULL, NULL                                                                                     \
	}
#define INT64(reload, section, key, offset, min, max, fallback, doc)                                                   \
	{                                                                                                              \
		section, key, RDV_SETTING_INT64, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback, doc,  \
			NULL, NULL                                                                                     \
	}
#define COUNT64(reload, section, key, offset, min, max, fallback, doc)                                                 \
	{                                                                                                              \
		section, key, RDV_SETTING_COUNT64, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback,     \
			doc, NULL, NULL                                                                                \
	}
#define RATIO(reload, section, key, offset, min, max, fallback, doc)                                                   \
	{                                                                                                              \
		section, key, RDV_SETTING_RATIO, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback, doc,  \
			NULL, NULL                                                                                     \
	}
#define NUMBER(reload, section, key, offset, min, max, fallback, doc)                                                  \
	{                                                                                                              \
		section, key, RDV_SETTING_NUMBER, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback, doc, \
			NULL, NULL                                                                                     \
	}
#define RATE(reload, section, key, offset, min, max, fallback, doc)                                                    \
	{                                                                                                              \
		section, key, RDV_SETTING_RATE, RDV_RELOAD_##reload, offset, 0, min, max, NULL, NULL, fallback, doc,   \
			NULL, NULL                                                                                     \
	}
#define TEXT(reload, section, key, offset, fallback, doc)                                                              \
	{                                                                                                              \
		section, key, RDV_SETTING_TEXT, RDV_RELOAD_##reload, offset, 0, 0, 0, NULL, "text", fallback, doc,     \
			NULL, NULL                                                                                     \
	}
#define PATH(reload, section, key, offset, doc)                                                                        \
	{                                                                                                              \
		section, key, RDV_SETTING_PATH, RDV_RELOAD_##reload, offset, 0, 0, 0, NULL,                            \
			"a file name, relative to this file", "", doc, NULL, NULL                                      \
	}
#define NAME(reload, section, key, offset, allowed, doc)                                                               \
	{                                                                                                              \
		section, key, RDV_SETTING_NAME, RDV_RELOAD_##reload, offset, 0, 0, 0, NULL, allowed, "", doc, NULL,    \
			NULL                                                                                           \
	}
#define BOOL(reload, section, key, offset, fallback, doc)                                                              \
	{                                                                                                              \
		section, key, RDV_SETTING_BOOL, RDV_RELOAD_##reload, offset, 0, 0, 0, NULL, "true or false", fallback, \
			doc, NULL, NULL                                                                                \
	}
#define CHOICE(reload, section, key, offset, choices, fallback, doc)                                                   \
	{                                                                                                              \
		section, key, RDV_SETTING_CHOICE, RDV_RELOAD_##reload, offset, 0, 0, 0, choices, NULL, fallback, doc,  \
			NULL, NULL                                                                                     \
	}
#define SUB(reload, section, key, offset, sub, doc)                                                                    \
	{                                                                                                              \
		section, key, RDV_SETTING_SUB, RDV_RELOAD_##reload, offset, sub, 0, 0, NULL, "a mapping", "", doc,     \
			NULL, NULL                                                                                     \
	}
#define CUSTOM(reload, section, key, offset, name, allowed, fallback, doc)                                             \
	{                                                                                                              \
		section, key, RDV_SETTING_CUSTOM, RDV_RELOAD_##reload, offset, 0, 0, 0, NULL, allowed, fallback, doc,  \
			rdv_read_##name, rdv_print_##name                                                              \
	}
#define LATER(section, key, doc)                                                                                       \
	{                                                                                                              \
		section, key, RDV_SETTING_LATER, RDV_RELOAD_KEYS, 0, 0, 0, 0, NULL, NULL, "", doc, NULL, NULL          \
	}

const struct rdv_setting rdv_setting_table[] = {
	TEXT(FIXED, RDV_SECTION_ROOT, "listen", S(listen), "127.0.0.1:7337",
	     "ADDR:PORT of the HTTP API; port 0 = any free port. Any address but loopback needs tokens and TLS."),
	PATH(FIXED, RDV_SECTION_ROOT, "data", S(data),
	     "Directory of the state (default ./redrive-data); one process at a time."),
	DURATION(LIVE, RDV_SECTION_ROOT, "drain", S(drain_ms), 0, 3600e3, "30s",
		 "How long calls in flight may go on after SIGTERM before they are cut off."),
	SUB(KEYS, RDV_SECTION_ROOT, "limits", S(limits), RDV_SECTION_LIMITS, "What is accepted at most."),
	SUB(KEYS, RDV_SECTION_ROOT, "security", S(security), RDV_SECTION_SECURITY, "Who may talk to the API."),
	CUSTOM(KEYS, RDV_SECTION_ROOT, "defaults", 0, defaults, "a mapping of route keys", "",
	       "Any route key below: applies to every route, which may override it."),
	CUSTOM(KEYS, RDV_SECTION_ROOT, "routes", 0, routes, "a list of routes", "[]",
	       "One entry per route: a source, a handler and a policy."),
	SUB(KEYS, RDV_SECTION_ROOT, "desk", 0, RDV_SECTION_DESK, "The dead-letter desk."),
	LATER(RDV_SECTION_ROOT, "sandboxes", "Handlers for a replay's sample."),
	LATER(RDV_SECTION_ROOT, "dependencies", "Services whose health alerts show."),
	LATER(RDV_SECTION_ROOT, "alerts", "Alert channels and rules."),

	SIZE(LIVE, RDV_SECTION_LIMITS, "body", LIMITS(body), 1, 64.0 * 1024 * 1024 - 65536, "1MiB",
	     "Largest message body."),
	SIZE(LIVE, RDV_SECTION_LIMITS, "headers", LIMITS(headers), 1024, 1024.0 * 1024, "64KiB",
	     "Largest sum of a message's headers."),
	SIZE(FIXED, RDV_SECTION_LIMITS, "request_head", LIMITS(request_head), 4096, 1024.0 * 1024, "72KiB",
	     "Largest request line and headers of an HTTP request, each header counted with 64 bytes more. Every "
	     "connection keeps room for it; a message with larger headers can be published in a batch."),
	SIZE(LIVE, RDV_SECTION_LIMITS, "batch", LIMITS(batch), 1024, 256.0 * 1024 * 1024, "16MiB",
	     "Largest batch request."),
	SIZE(LIVE, RDV_SECTION_LIMITS, "disk_free", LIMITS(disk_free), 0, 1024 * TIB, "1GiB",
	     "Publishing is refused while less than this is free on the disk."),
	SIZE(LIVE, RDV_SECTION_LIMITS, "journal", LIMITS(journal), 256.0 * 1024 * 1024, 1024 * TIB,
	     "what is free at start less disk_free", "Capacity of the journal on disk."),
	COUNT64(LIVE, RDV_SECTION_LIMITS, "ids", LIMITS(ids), 0, 1e9, "10000000",
		"Publish ids remembered at most; the oldest go first."),

	PATH(FIXED, RDV_SECTION_SECURITY, "tokens_file", SECURITY(tokens_file),
	     "Hashed tokens (redrive token add). With it a token is needed on loopback, too."),
	SUB(KEYS, RDV_SECTION_SECURITY, "tls", 0, RDV_SECTION_TLS, "Certificate of the API."),
	BOOL(FIXED, RDV_SECTION_SECURITY, "behind_tls_proxy", SECURITY(behind_tls_proxy), "false",
	     "TLS ends at a proxy in front: a public address is allowed without a certificate here."),
	CUSTOM(FIXED, RDV_SECTION_SECURITY, "hosts", SECURITY(hosts), hosts, "a list of host names", "[]",
	       "Host names that requests may use besides loopback names."),
	PATH(FIXED, RDV_SECTION_SECURITY, "audit_key_file", SECURITY(audit_key_file),
	     "Key of the audit chain, outside the data directory."),
	PATH(FIXED, RDV_SECTION_TLS, "cert_file", SECURITY(cert_file), "Certificate chain, PEM."),
	PATH(FIXED, RDV_SECTION_TLS, "key_file", SECURITY(key_file), "Private key, PEM."),

	SUB(KEYS, RDV_SECTION_DESK, "retention", S(retention), RDV_SECTION_RETENTION,
	    "How long dead letters stay, by age."),
	LATER(RDV_SECTION_DESK, "archive", "Where warm letters go."),
	LATER(RDV_SECTION_DESK, "mask", "Pointers into bodies that are hidden."),
	LATER(RDV_SECTION_DESK, "store", "The desk's store."),
	DURATION(LIVE, RDV_SECTION_RETENTION, "hot", KEEP(hot_ms), 1000, YEARS, "7d",
		 "The age at which a letter is shown to expire; removing by age is not in this version."),
	DURATION(LIVE, RDV_SECTION_RETENTION, "warm", KEEP(warm_ms), 1000, YEARS, "30d",
		 "Read and checked only, in this version."),
	DURATION(LIVE, RDV_SECTION_RETENTION, "summaries", KEEP(summaries_ms), 1000, YEARS, "400d",
		 "Read and checked only, in this version."),

	NAME(LIVE, RDV_SECTION_ROUTE, "name", R(name), "1 to 100 of a-z 0-9 . _ -", "Unique name of the route."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "importance", R(importance_high), importance, "normal or high", "normal",
	       "Which default alert rules apply."),
	DURATION(LIVE, RDV_SECTION_ROUTE, "sla", R(sla_ms), 1000, YEARS, "", "A letter unhandled for longer alerts."),
	CHOICE(LIVE, RDV_SECTION_ROUTE, "preset", R(preset), presets, "none",
	       "A kind of business whose retry values are the start: payment (12 tries, 5s, cap 1h), order (5, 1s, "
	       "5m), notice (3, 10s, 5m), log (2, 5s, 1m), realtime (1, then drop)."),
	SUB(KEYS, RDV_SECTION_ROUTE, "source", R(source), RDV_SECTION_SOURCE, "Where messages come from."),
	SUB(KEYS, RDV_SECTION_ROUTE, "handler", R(handler), RDV_SECTION_HANDLER,
	    "Where messages go: exactly one of http, exec, lease."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "concurrency", R(target), concurrency,
	       "a number from 1, or { adaptive: true, max: N }", "64", "Calls at the handler at a time."),
	RATE(LIVE, RDV_SECTION_ROUTE, "rate", R(target.rate), 0.001, 1e9, "",
	     "Calls started at most, for example 500/s."),
	CHOICE(FIXED, RDV_SECTION_ROUTE, "order", R(lane.order), orders, "none",
	       "key: messages of one key are handled one after the other, in order, also while one waits."),
	CHOICE(LIVE, RDV_SECTION_ROUTE, "after_dead", R(lane.after_dead), after_deads, "continue",
	       "order: key only. What the key's later messages do when one dies: go on, stay held until released, or "
	       "die with it."),
	SUB(KEYS, RDV_SECTION_ROUTE, "retry", R(lane.retry), RDV_SECTION_RETRY,
	    "When and how often a failed message is tried again."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "rules", 0, rules, "a list of { when: {...}, then: ... }", "[]",
	       "From answer to verdict: the first match wins, before the built-in table."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "breaker", R(target.breaker), breaker, "on, off or a mapping", "on",
	       "When a target counts as down: nothing is sent, no attempt charged, until a probe succeeds."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "storm", R(route.storm_hold), storm, "hold or dead", "hold",
	       "When most of a healthy route is suddenly rejected: hold it and probe, or take the rejects as dead."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "budget", R(target.budget), budget, "on, off or a mapping", "on",
	       "Keeps retries from multiplying an outage."),
	SUB(KEYS, RDV_SECTION_ROUTE, "poison", R(route.family), RDV_SECTION_POISON,
	    "The same failure on many messages."),
	SUB(KEYS, RDV_SECTION_ROUTE, "dedupe", R(lane.dedupe), RDV_SECTION_DEDUPE,
	    "At least once becomes effectively once for a handler, within a window."),
	CUSTOM(LIVE, RDV_SECTION_ROUTE, "index", 0, index, "a list of at most 8 json:/pointer", "[]",
	       "Business ids in the body that letters can be found by."),
	SUB(KEYS, RDV_SECTION_ROUTE, "metadata", R(metadata), RDV_SECTION_METADATA,
	    "What letters remember of a message: header:NAME, json:/pointer, or a fixed text."),
	SUB(KEYS, RDV_SECTION_ROUTE, "dead", R(dead), RDV_SECTION_DEAD,
	    "A copy of each letter in the broker, for others; the desk has it in any case."),

	CUSTOM(FIXED, RDV_SECTION_DEAD, "topic", offsetof(struct rdv_dead_settings, topic), kafka_name,
	       "1 to 249 of A-Z a-z 0-9 . _ -", "",
	       "The topic, in the cluster of the source; it must be there. Routes on Kafka only."),
	CHOICE(FIXED, RDV_SECTION_DEAD, "format", offsetof(struct rdv_dead_settings, format), dead_formats, "headers",
	       "Whose headers a copy has: Redrive's, Spring Kafka's, Kafka Connect's, those of share groups; or one "
	       "JSON "
	       "document."),

	NAME(FIXED, RDV_SECTION_SOURCE, "topic", SOURCE(topic), "1 to 200 of A-Z a-z 0-9 . _ -",
	     "Topic of the embedded queue."),
	INT64(FIXED, RDV_SECTION_SOURCE, "partitions", SOURCE(partitions), 1, 1024, "4",
	      "Fixed when the topic is first opened; all routes of a topic agree."),
	SUB(KIND, RDV_SECTION_SOURCE, "kafka", SOURCE(kafka), RDV_SECTION_KAFKA,
	    "Messages of Kafka topics, in place of `topic`."),
	LATER(RDV_SECTION_SOURCE, "rabbitmq", "Messages of a RabbitMQ queue."),
	LATER(RDV_SECTION_SOURCE, "rocketmq", "Messages of a RocketMQ topic."),

	CUSTOM(FIXED, RDV_SECTION_KAFKA, "brokers", K(brokers), kafka_brokers, "host:port, more of them after commas",
	       "", "Where the cluster is asked for first."),
	CUSTOM(FIXED, RDV_SECTION_KAFKA, "topics", K(topics), kafka_topics,
	       "a list of 1 to 1000 topic names (1 to 249 of A-Z a-z 0-9 . _ -) or patterns (regular expressions that "
	       "begin with ^)",
	       "", "What is read."),
	CUSTOM(FIXED, RDV_SECTION_KAFKA, "group", K(group), kafka_name, "1 to 249 printable characters", "",
	       "Consumer group, shared by all instances."),
	CHOICE(FIXED, RDV_SECTION_KAFKA, "from", K(from), froms, "earliest",
	       "Where a partition begins of which the group has no committed offset; with `committed` it is refused. "
	       "Asked once: afterwards there is an offset."),
	CUSTOM(FIXED, RDV_SECTION_KAFKA, "instance", K(instance), kafka_name, "1 to 249 of A-Z a-z 0-9 . _ -", "",
	       "Static membership (group.instance.id): another name in each process."),
	CUSTOM(FIXED, RDV_SECTION_KAFKA, "secret_file", K(secret_file), kafka_secret,
	       "a file name, relative to this file; at least 16 bytes in it", "derived from cluster, topic and group",
	       "Secret of the keys' hashes and of requests in the inbox topic; the same in all instances."),
	BOOL(FIXED, RDV_SECTION_KAFKA, "create_topics", K(create_topics), "true",
	     "Private topics that are missing are created; false: their partitions are refused until they are there "
	     "(`redrive kafka topics`)."),
	INT32(FIXED, RDV_SECTION_KAFKA, "replication", K(replication), 1, 32767, "the source topic's",
	      "Replication factor of private topics that are created."),
	CUSTOM(FIXED, RDV_SECTION_KAFKA, "settings", K(settings), kafka_settings,
	       "a mapping of librdkafka's names to values; NAME_file reads the value from a file", "{}",
	       "Further settings of librdkafka, like security.protocol; those that would break the protocol are "
	       "refused."),

	CUSTOM(KIND, RDV_SECTION_HANDLER, "http", 0, http, "a mapping", "", "POST each message to a URL."),
	CUSTOM(KIND, RDV_SECTION_HANDLER, "exec", 0, exec, "a mapping", "", "Run a command per message."),
	CUSTOM(KIND, RDV_SECTION_HANDLER, "lease", 0, lease, "a mapping", "", "Pullers lease messages over the API."),
	NAME(LIVE, RDV_SECTION_HANDLER, "target", H(target), "1 to 100 of a-z 0-9 . _ -",
	     "Joins or separates the target (breaker, budget, rate, concurrency) of routes; default: scheme, host and "
	     "port."),
	TEXT(LIVE, RDV_SECTION_HTTP, "url", U(url), "", "http:// or https:// address."),
	DURATION(LIVE, RDV_SECTION_HTTP, "timeout", U(timeout_ms), 1, 86400e3, "30s",
		 "For one call, connecting included."),
	CUSTOM(LIVE, RDV_SECTION_HTTP, "headers", U(headers), pairs, "a mapping of header names to values", "{}",
	       "Sent with every request."),
	SUB(KEYS, RDV_SECTION_HTTP, "tls", 0, RDV_SECTION_HTTP_TLS, "Certificates of the calls."),
	BOOL(LIVE, RDV_SECTION_HTTP, "cloudevents", U(cloudevents), "false", "CloudEvents attributes in binary mode."),
	SUB(KEYS, RDV_SECTION_HTTP, "sign", 0, RDV_SECTION_SIGN, "Standard Webhooks signature."),
	TEXT(LIVE, RDV_SECTION_HTTP, "proxy", U(proxy), "", "Proxy for the calls; the environment's is never used."),
	PATH(LIVE, RDV_SECTION_HTTP_TLS, "ca_file", U(ca_file),
	     "Certificates that are trusted, PEM; default: the system's."),
	PATH(LIVE, RDV_SECTION_HTTP_TLS, "cert_file", U(cert_file), "Our certificate for mutual TLS, PEM."),
	PATH(LIVE, RDV_SECTION_HTTP_TLS, "key_file", U(key_file), "Its key, PEM."),
	PATH(LIVE, RDV_SECTION_SIGN, "secret_file", U(secret_file), "The shared secret (whsec_... or raw bytes)."),
	CUSTOM(LIVE, RDV_SECTION_EXEC, "command", X(command), command, "a list of texts, like [./handle, --fast]", "",
	       "Program and arguments; a program with a slash is relative to this file."),
	DURATION(LIVE, RDV_SECTION_EXEC, "timeout", X(timeout_ms), 1, 86400e3, "30s",
		 "Then TERM to the process group, and KILL 5 s later."),
	CUSTOM(LIVE, RDV_SECTION_EXEC, "env", X(env), pairs, "a mapping of names to values", "{}",
	       "Added to the environment."),
	DURATION(LIVE, RDV_SECTION_LEASE, "lease_for", offsetof(struct rdv_lease_options, lease_for_ms), 100, 86400e3,
		 "30s", "Length of a lease when the puller names none."),

	INT32(LIVE, RDV_SECTION_CONCURRENCY, "max", offsetof(struct rdv_target_policy, adaptive_max), 1, 100000, "256",
	      "Upper end when adaptive."),
	BOOL(LIVE, RDV_SECTION_CONCURRENCY, "adaptive", offsetof(struct rdv_target_policy, adaptive), "false",
	     "Follows the handler's latency up and down."),

	INT32(LIVE, RDV_SECTION_RETRY, "attempts", T(attempts), 1, 65000, "16",
	      "Failed tries before a message is dead; 1 = no retry."),
	CHOICE(LIVE, RDV_SECTION_RETRY, "on_exhausted", T(on_exhausted), exhausteds, "dead",
	       "What happens at the limit."),
	DURATION(LIVE, RDV_SECTION_RETRY, "window", T(window_ms), 1, YEARS, "",
		 "The business's own limit; check and explain compare the schedule with it."),
	CHOICE(LIVE, RDV_SECTION_RETRY, "backoff", T(backoff), backoffs, "exponential", "How the delay grows."),
	DURATION(LIVE, RDV_SECTION_RETRY, "base", T(base_ms), 0, YEARS, "1s", "Delay after the first failure."),
	NUMBER(LIVE, RDV_SECTION_RETRY, "factor", T(factor), 1, 1000, "2", "exponential: base * factor^(n-1)."),
	NUMBER(LIVE, RDV_SECTION_RETRY, "exponent", T(exponent), 0, 100, "2", "polynomial: base * n^exponent."),
	CUSTOM(LIVE, RDV_SECTION_RETRY, "delays", 0, delays, "a list of 1 to 64 durations", "",
	       "list: the delays, the last one repeated."),
	DURATION(LIVE, RDV_SECTION_RETRY, "cap", T(cap_ms), 1, YEARS, "1h",
		 "Longest delay, before jitter; for list and rocketmq their longest entry."),
	CUSTOM(LIVE, RDV_SECTION_RETRY, "jitter", 0, jitter,
	       "25% (adds up to that), ±20% (both ways), full, or none; at most 100%", "25%", "Spreads retries."),
	DURATION(LIVE, RDV_SECTION_RETRY, "min", T(min_ms), 0, YEARS, "100ms",
		 "Shortest delay, unless the handler names one."),
	DURATION(LIVE, RDV_SECTION_RETRY, "max_age", T(max_age_ms), 1, YEARS, "7d",
		 "From the first delivery on; then dead (expired)."),
	INT32(LIVE, RDV_SECTION_RETRY, "crashes", T(crashes), 1, 65000, "3",
	      "Handler deaths before a message is dead (crashed)."),
	INT32(LIVE, RDV_SECTION_RETRY, "deferrals", T(deferrals), 1, 1000000, "1000",
	      "Deferrals before a message is dead (exhausted)."),

	RATIO(LIVE, RDV_SECTION_BREAKER, "ratio", offsetof(struct rdv_breaker, ratio), 0.01, 1, "50%",
	      "Share of bad outcomes in the window that counts as down."),
	INT32(LIVE, RDV_SECTION_BREAKER, "min_calls", offsetof(struct rdv_breaker, min_calls), 1, 1000000, "20",
	      "Outcomes before the ratio counts."),
	DURATION(LIVE, RDV_SECTION_BREAKER, "window", offsetof(struct rdv_breaker, window_ms), 1000, 3600e3, "10s",
		 "Length of the window."),
	DURATION(LIVE, RDV_SECTION_BREAKER, "open", offsetof(struct rdv_breaker, open_ms), 10, 3600e3, "1s",
		 "Wait before the first probe."),
	DURATION(LIVE, RDV_SECTION_BREAKER, "max_open", offsetof(struct rdv_breaker, max_open_ms), 10, 86400e3, "5s",
		 "Longest wait between probes."),
	DURATION(LIVE, RDV_SECTION_BREAKER, "patience", offsetof(struct rdv_breaker, patience_ms), 1000, YEARS, "6h",
		 "Down for longer: probes are charged again."),
	RATIO(LIVE, RDV_SECTION_BUDGET, "ratio", offsetof(struct rdv_budget_policy, ratio), 0, 100, "20%",
	      "Retries allowed per first attempt."),
	NUMBER(LIVE, RDV_SECTION_BUDGET, "per_second", offsetof(struct rdv_budget_policy, per_second), 0, 1e9, "10",
	       "Retries allowed on top, per second."),
	INT32(LIVE, RDV_SECTION_POISON, "family", offsetof(struct rdv_family, count), 2, 1000000, "",
	      "So many messages with one fingerprint ..."),
	DURATION(LIVE, RDV_SECTION_POISON, "within", offsetof(struct rdv_family, within_ms), 1000, 86400e3, "60s",
		 "... in this time ..."),
	CUSTOM(LIVE, RDV_SECTION_POISON, "then", offsetof(struct rdv_family, then), family_then,
	       "alert, hold or reject", "alert", "... lead to this."),
	CUSTOM(LIVE, RDV_SECTION_DEDUPE, "by", 0, dedupe_by, "id, key, header:NAME or json:/pointer", "",
	       "What makes two messages the same."),
	DURATION(LIVE, RDV_SECTION_DEDUPE, "ttl", offsetof(struct rdv_dedupe_policy, ttl_ms), 1000, YEARS, "24h",
		 "How long a key is remembered."),
	COUNT64(LIVE, RDV_SECTION_DEDUPE, "entries", offsetof(struct rdv_dedupe_policy, entries), 1, 100e6, "1000000",
		"Keys remembered at most, per route."),
	CUSTOM(LIVE, RDV_SECTION_DEDUPE, "store", 0, dedupe_store, "local", "local", "Where keys are remembered."),
	TEXT(LIVE, RDV_SECTION_METADATA, "tenant", offsetof(struct rdv_metadata_settings, tenant), "",
	     "Whose message it is."),
	TEXT(LIVE, RDV_SECTION_METADATA, "schema_version", offsetof(struct rdv_metadata_settings, schema_version), "",
	     "Version of the body's schema."),
	TEXT(LIVE, RDV_SECTION_METADATA, "consumer_version", offsetof(struct rdv_metadata_settings, consumer_version),
	     "what the handler tells", "Version of the consumer."),
	TEXT(LIVE, RDV_SECTION_METADATA, "trace_id", offsetof(struct rdv_metadata_settings, trace_id), "",
	     "Trace: `traceparent` or header:NAME."),
};
const size_t rdv_setting_count = sizeof(rdv_setting_table) / sizeof(rdv_setting_table[0]);

const struct rdv_setting *rdv_setting_find(enum rdv_section section, const char *key)
{
	for (size_t i = 0; i < rdv_setting_count; i++)
		if (rdv_setting_table[i].section == section && strcmp(rdv_setting_table[i].key, key) == 0)
			return &rdv_setting_table[i];
	return NULL;
}

struct rdv_mark rdv_setting_mark(const struct rdv_settings *s, enum rdv_section section, const char *key)
{
	const struct rdv_setting *row = rdv_setting_find(section, key);
	return row && s->marks ? s->marks[row - rdv_setting_table] : (struct rdv_mark){0, 0};
}
