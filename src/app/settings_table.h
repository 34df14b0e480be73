/* settings_table.h - one row per setting: where it stands, its type, range, default and meaning.
 *
 * Rows are grouped by section (the mapping they stand in). A row of kind SUB opens another section whose struct lies at
 * `offset`. Kinds with their own syntax name a `custom` reader and printer (settings_custom.c). */
#ifndef RDV_APP_SETTINGS_TABLE_H
#define RDV_APP_SETTINGS_TABLE_H
#include <yaml.h>
#include "settings.h"

enum rdv_section {
	RDV_SECTION_ROOT,
	RDV_SECTION_LIMITS,
	RDV_SECTION_SECURITY,
	RDV_SECTION_TLS,
	RDV_SECTION_DESK,
	RDV_SECTION_RETENTION,
	RDV_SECTION_ROUTE,
	RDV_SECTION_SOURCE,
	RDV_SECTION_KAFKA,
	RDV_SECTION_HANDLER,
	RDV_SECTION_HTTP,
	RDV_SECTION_HTTP_TLS,
	RDV_SECTION_SIGN,
	RDV_SECTION_EXEC,
	RDV_SECTION_LEASE,
	RDV_SECTION_CONCURRENCY,
	RDV_SECTION_RETRY,
	RDV_SECTION_WHEN,
	RDV_SECTION_BREAKER,
	RDV_SECTION_BUDGET,
	RDV_SECTION_POISON,
	RDV_SECTION_DEDUPE,
	RDV_SECTION_METADATA,
	RDV_SECTION_DEAD,
	RDV_SECTION_COUNT
};

enum rdv_setting_kind {
	RDV_SETTING_TEXT,     /* const char * */
	RDV_SETTING_PATH,     /* const char *, relative to the file */
	RDV_SETTING_NAME,     /* const char *, checked by the row's pattern (custom) */
	RDV_SETTING_DURATION, /* int64_t ms */
	RDV_SETTING_SIZE,     /* uint64_t bytes */
	RDV_SETTING_RATE,     /* double per second */
	RDV_SETTING_RATIO,    /* double */
	RDV_SETTING_NUMBER,   /* double */
	RDV_SETTING_INT32,    /* uint32_t */
	RDV_SETTING_INT64,    /* int64_t */
	RDV_SETTING_COUNT64,  /* uint64_t */
	RDV_SETTING_BOOL,     /* bool */
	RDV_SETTING_CHOICE,   /* int (an enum) */
	RDV_SETTING_SUB,      /* a mapping: section */
	RDV_SETTING_CUSTOM,
	RDV_SETTING_LATER, /* known, but not in this version: an error that says so */
};

/* What a reload may do with it. Each row says it: 0 is none of them. */
enum rdv_reload_rule {
	RDV_RELOAD_LIVE = 1,
	RDV_RELOAD_FIXED, /* a changed value is refused: it takes a restart */
	RDV_RELOAD_KIND,  /* whether it is there is fixed; its keys say for themselves */
	RDV_RELOAD_KEYS,  /* its keys say */
	RDV_RELOAD_COUNT
};

struct rdv_load; /* the state of one load: settings_yaml.c */

struct rdv_setting {
	enum rdv_section section;
	const char *key;
	enum rdv_setting_kind kind;
	enum rdv_reload_rule reload;
	size_t offset;              /* in the section's struct */
	enum rdv_section sub;       /* SUB */
	double min, max;            /* of numbers, durations (ms), ratios (fraction), sizes */
	const char *const *choices; /* CHOICE: NULL-terminated, in enum order */
	const char *allowed;        /* what is allowed, for errors and the reference */
	const char *fallback;       /* default as text, for the reference */
	const char *doc;
	void (*read)(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at);
	void (*print)(struct rdv_buffer *out, const void *at, int indent); /* after "key: "; CUSTOM */
};

extern const struct rdv_setting rdv_setting_table[];
extern const size_t rdv_setting_count;
/* Where the value of a row outside of routes stands; line 0: not in the file. */
struct rdv_mark rdv_setting_mark(const struct rdv_settings *s, enum rdv_section section, const char *key);
extern const char *const rdv_section_paths[RDV_SECTION_COUNT]; /* "routes[].retry" */

/* ---- for custom readers ---- */
struct rdv_load {
	struct rdv_settings *settings;
	struct rdv_findings *findings;
	yaml_document_t document;
	bool quiet;                       /* `defaults:` applied again for another route: its errors have been told */
	struct rdv_route_settings *route; /* being read, or NULL */
};
void rdv_load_error(struct rdv_load *l, const yaml_node_t *node, const char *fmt, ...) RDV_PRINTF(3, 4);
struct rdv_mark rdv_load_mark(const yaml_node_t *node);
yaml_node_t *rdv_load_node(struct rdv_load *l, int index);
/* The scalar with ${NAME} replaced, owned by the settings; NULL (and an error told) if it is no scalar. */
const char *rdv_load_text(struct rdv_load *l, const char *key, yaml_node_t *node);
const char *rdv_load_path(struct rdv_load *l, const char *key, yaml_node_t *node);
/* A file's name as it is found from where the program runs; NULL without memory. */
const char *rdv_settings_path(struct rdv_settings *s, const char *name);
void rdv_load_section(struct rdv_load *l, enum rdv_section section, yaml_node_t *node, void *base);
void rdv_load_row(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *base);
bool rdv_load_is_mapping(struct rdv_load *l, const char *key, const yaml_node_t *node); /* or an error is told */
/* A list of texts, at most `max`, owned by the settings. */
const char **rdv_load_texts(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, size_t max,
			    size_t *count);
const struct rdv_setting *rdv_setting_find(enum rdv_section section, const char *key);
/* The value of a row as it is printed, nothing if it is absent. */
void rdv_print_setting(struct rdv_buffer *out, const struct rdv_setting *row, const void *base);
void rdv_print_quoted(struct rdv_buffer *out, const char *text); /* double-quoted */
void rdv_print_texts(struct rdv_buffer *out, const char *const *texts, size_t count);
/* Prints the rows of a section as a block mapping. */
void rdv_print_section(struct rdv_buffer *out, enum rdv_section section, const void *base, int indent);

/* custom readers and printers, by their rows */
#define RDV_CUSTOM(name)                                                                                               \
	void rdv_read_##name(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at);          \
	void rdv_print_##name(struct rdv_buffer *out, const void *at, int indent);
RDV_CUSTOM(routes)
RDV_CUSTOM(defaults)
RDV_CUSTOM(hosts)
RDV_CUSTOM(importance)
RDV_CUSTOM(kafka_brokers)
RDV_CUSTOM(kafka_topics)
RDV_CUSTOM(kafka_name)
RDV_CUSTOM(kafka_secret)
RDV_CUSTOM(kafka_settings)
RDV_CUSTOM(http)
RDV_CUSTOM(exec)
RDV_CUSTOM(lease)
RDV_CUSTOM(pairs)
RDV_CUSTOM(command)
RDV_CUSTOM(concurrency)
RDV_CUSTOM(jitter)
RDV_CUSTOM(delays)
RDV_CUSTOM(rules)
RDV_CUSTOM(breaker)
RDV_CUSTOM(budget)
RDV_CUSTOM(storm)
RDV_CUSTOM(family_then)
RDV_CUSTOM(dedupe_by)
RDV_CUSTOM(dedupe_store)
RDV_CUSTOM(index)
#undef RDV_CUSTOM

/* ---- settings_kafka.c ---- */
void rdv_kafka_check_route(const struct rdv_settings *s, const struct rdv_route_settings *r, struct rdv_findings *f);
/* Between routes: topics, groups and instances. */
void rdv_kafka_check_routes(struct rdv_settings *s, struct rdv_findings *f);
/* The key of a value that is not printed and differs, though what is printed is the same; NULL: none. */
const char *rdv_kafka_changed_secret(const struct rdv_kafka_source_settings *old,
				     const struct rdv_kafka_source_settings *new);
#endif
