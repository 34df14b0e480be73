/* settings.h - the effective configuration, and the one table of every setting it is made from.
 *
 * rdv_settings_load reads a YAML file (libyaml, so that every error has line and column) into plain structs: built-in
 * defaults, then `defaults:`, then each route's preset and keys. All errors are collected, not only the first. The same
 * table checks names and types, prints `check --effective` and generates docs/configuration.md. Strings are owned by
 * the settings. Single thread. */
#ifndef RDV_APP_SETTINGS_H
#define RDV_APP_SETTINGS_H
#include "../brokers/kafka/kafka.h"
#include "../core/policy.h"
#include "../core/rules.h"
#include "../runtime/engine.h"

struct rdv_mark { /* where in the file, from 1; line 0 = not in the file */
	unsigned line, column;
};

struct rdv_http_settings {
	const char *url;
	int64_t timeout_ms;
	struct rdv_pair *headers;
	size_t header_count;
	const char *ca_file, *cert_file, *key_file, *secret_file, *proxy;
	bool cloudevents;
};
struct rdv_exec_settings {
	const char **command;
	size_t command_count;
	int64_t timeout_ms;
	struct rdv_pair *env;
	size_t env_count;
};
struct rdv_handler_settings {
	bool has_http, has_exec, has_lease;
	struct rdv_http_settings http;
	struct rdv_exec_settings exec;
	struct rdv_lease_options lease;
	const char *target;
	struct rdv_mark mark;
};
/* source: { kafka: ... } */
struct rdv_kafka_source_settings {
	bool given;
	const char *brokers, *group, *instance, *secret_file;
	const char **topics;
	size_t topic_count;
	const char *shown; /* the topics as people are told them: "orders, ^pay\\." */
	int from;          /* enum rdv_kafka_from */
	bool create_topics;
	uint32_t replication;
	struct rdv_kafka_setting *settings; /* as librdkafka gets them */
	struct rdv_pair *written;           /* as they are printed: a secret by where it comes from, never itself */
	size_t setting_count;
	struct rdv_slice secret; /* what is in secret_file */
	struct rdv_mark mark;
	bool has_brokers, has_topics, has_group; /* it stands in the file, be it right or wrong */
};
struct rdv_dead_settings { /* dead: { ... } */
	const char *topic;
	int format; /* enum rdv_letter_format */
};
struct rdv_metadata_settings {
	const char *tenant, *schema_version, *consumer_version, *trace_id;
};

struct rdv_route_settings {
	const char *name;
	bool importance_high;
	int64_t sla_ms;
	int preset; /* enum rdv_preset */
	struct {
		const char *topic;
		int64_t partitions;
		struct rdv_kafka_source_settings kafka;
	} source;
	struct rdv_dead_settings dead;
	struct rdv_handler_settings handler;
	struct rdv_lane_policy lane;
	struct rdv_target_policy target;
	struct rdv_route_policy route;
	struct rdv_rule_spec *rule_specs;
	struct rdv_mark *rule_marks;
	size_t rule_count;
	const char **index;
	size_t index_count;
	struct rdv_metadata_settings metadata;
	struct rdv_rules *rules; /* owns a reference; compiled by the load */
	struct rdv_mark mark, order_mark, after_dead_mark, retry_mark, source_mark, dedupe_mark;
	bool after_dead_set, delays_set, dedupe_set, factor_set, exponent_set;
	bool has_name, has_topic, has_handler, has_url, has_command; /* it stands in the file, be it right or wrong */
};

struct rdv_settings {
	const char *file, *dir; /* of the file: relative paths start there */
	const char *listen, *data;
	struct {
		uint64_t body, headers, request_head, batch, disk_free, journal, ids;
	} limits;
	struct {
		const char *tokens_file, *cert_file, *key_file, *audit_key_file;
		bool behind_tls_proxy;
		const char **hosts;
		size_t host_count;
	} security;
	struct {
		int64_t hot_ms, warm_ms, summaries_ms;
	} retention;
	int64_t drain_ms;
	struct rdv_route_settings *routes;
	size_t route_count;
	struct rdv_mark *marks; /* of every row outside of routes, as in the table; NULL = no file */
	void *memory;           /* owns every string and array above */
};

struct rdv_finding {
	struct rdv_mark mark;
	bool warning;
	char text[600];
};
struct rdv_findings {
	struct rdv_finding *items; /* owns */
	size_t count, errors;
};

/* Built-in defaults and no routes. */
enum redrive_status rdv_settings_init(struct rdv_settings *s) RDV_MUST_CHECK;
void rdv_settings_done(struct rdv_settings *s);
/* Reads and checks. OK also with warnings; REFUSED when there are errors (findings has them); NOT_FOUND / IO: the file
 * (findings has the text). `text` given: parse it instead of reading the file (tests, fuzzing). */
enum redrive_status rdv_settings_load(struct rdv_settings *s, const char *file, const struct rdv_slice *text,
				      struct rdv_findings *findings) RDV_MUST_CHECK;
void rdv_findings_add(struct rdv_findings *f, struct rdv_mark mark, bool warning, const char *fmt, ...)
	RDV_PRINTF(4, 5);
/* "FILE:LINE:COLUMN: text", in place of what `out` holds. */
const char *rdv_finding_format(const char *file, const struct rdv_finding *item, struct rdv_buffer *out);
/* By position in the file; findings without a position come first. */
void rdv_findings_sort(struct rdv_findings *f);
void rdv_findings_done(struct rdv_findings *f);
/* Checks between settings (settings_check.c): called by load. */
void rdv_settings_check(struct rdv_settings *s, struct rdv_findings *findings);
/* May a running server with the `old` settings take the new ones? Every key that takes a restart is an error. */
void rdv_settings_check_change(const struct rdv_settings *old, const struct rdv_settings *new,
			       struct rdv_findings *findings);
/* Another address than the file's (--listen), and the rules of listen, tokens and TLS for it. */
void rdv_settings_set_listen(struct rdv_settings *s, const char *listen, struct rdv_findings *findings);
/* Is `listen` a loopback address? Splits it, too: host without brackets; INVALID when it is no ADDR:PORT. */
enum redrive_status rdv_listen_parse(const char *listen, char host[64], uint16_t *port, bool *loopback) RDV_MUST_CHECK;
/* The effective configuration as YAML, secrets' file names only. */
void rdv_settings_print(const struct rdv_settings *s, struct rdv_buffer *out);
/* The configuration reference, Markdown, from the table. */
void rdv_settings_reference(struct rdv_buffer *out);
/* What is in a file that holds one secret, without its line end. */
enum redrive_status rdv_secret_read(const char *file, struct rdv_buffer *out, struct rdv_error *error) RDV_MUST_CHECK;
/* Engine options of route i but its source's maker; borrows from the settings. */
void rdv_settings_route_options(const struct rdv_settings *s, size_t i, struct rdv_route_options *out);
/* Name of the target of route i: handler.target, or scheme://host:port, or route:NAME. */
void rdv_settings_target_name(const struct rdv_settings *s, size_t i, char out[256]);

/* Memory that lives as long as the settings. NULL without memory. */
void *rdv_settings_alloc(struct rdv_settings *s, size_t size);
char *rdv_settings_text(struct rdv_settings *s, struct rdv_slice text);
#endif
