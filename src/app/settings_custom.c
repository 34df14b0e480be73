/* settings_custom.c - the settings whose values have a syntax of their own: routes, rules, jitter, handlers, lists.
 * Each has a reader (errors with position) and a printer (YAML that reads back to the same). */
#include <stdio.h>
#include <stdlib.h>
#include "../base/quantity.h"
#include "settings_table.h"

static struct rdv_slice scalar(const yaml_node_t *node)
{
	return rdv_slice(node->data.scalar.value, node->data.scalar.length);
}

static bool is_scalar(const yaml_node_t *node, const char *text)
{
	return node->type == YAML_SCALAR_NODE && rdv_slice_is(scalar(node), text);
}

static size_t list_size(const yaml_node_t *node)
{
	return (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
}

static yaml_node_t *list_item(struct rdv_load *l, const yaml_node_t *node, size_t i)
{
	return rdv_load_node(l, node->data.sequence.items.start[i]);
}

static bool want_list(struct rdv_load *l, const struct rdv_setting *row, const yaml_node_t *node)
{
	if (node->type == YAML_SEQUENCE_NODE)
		return true;
	rdv_load_error(l, node, "'%s' must be %s", row->key, row->allowed);
	return false;
}

bool rdv_load_is_mapping(struct rdv_load *l, const char *key, const yaml_node_t *node)
{
	if (node->type == YAML_MAPPING_NODE)
		return true;
	rdv_load_error(l, node, "'%s' must be a mapping of keys to values", key);
	return false;
}

static yaml_node_t *mapping_find(struct rdv_load *l, const yaml_node_t *node, const char *key)
{
	if (node->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++)
		if (is_scalar(rdv_load_node(l, p->key), key))
			return rdv_load_node(l, p->value);
	return NULL;
}

/* YAML double-quoted text. */
void rdv_print_quoted(struct rdv_buffer *out, const char *text)
{
	rdv_buffer_u8(out, '"');
	for (const char *p = text; *p; p++) {
		if (*p == '"' || *p == '\\')
			rdv_buffer_u8(out, '\\');
		if ((unsigned char)*p < 0x20)
			rdv_buffer_printf(out, "\\x%02x", (unsigned char)*p);
		else if (*p == '$')
			rdv_buffer_text(out, "$$");
		else
			rdv_buffer_u8(out, (uint8_t)*p);
	}
	rdv_buffer_u8(out, '"');
}

/* ---- routes and defaults ---- */

static void route_builtin(struct rdv_route_settings *r)
{
	memset(r, 0, sizeof *r);
	r->source.partitions = 4;
	r->source.kafka.create_topics = true;
	rdv_lane_policy_defaults(&r->lane);
	rdv_target_policy_defaults(&r->target);
	rdv_route_policy_defaults(&r->route);
	r->handler.http.timeout_ms = r->handler.exec.timeout_ms = r->handler.lease.lease_for_ms = 30000;
}

/* Notes where the keys stand that settings_check.c judges together. */
static void note_marks(struct rdv_load *l, yaml_node_t *node, struct rdv_route_settings *r)
{
	static const struct {
		const char *key;
		size_t mark;
	} noted[] = {
		{"order", offsetof(struct rdv_route_settings, order_mark)},
		{"after_dead", offsetof(struct rdv_route_settings, after_dead_mark)},
		{"retry", offsetof(struct rdv_route_settings, retry_mark)},
		{"source", offsetof(struct rdv_route_settings, source_mark)},
		{"dedupe", offsetof(struct rdv_route_settings, dedupe_mark)},
		{"handler", offsetof(struct rdv_route_settings, handler.mark)},
	};
	for (size_t i = 0; i < sizeof noted / sizeof noted[0]; i++) {
		yaml_node_t *value = mapping_find(l, node, noted[i].key);
		if (value)
			*(struct rdv_mark *)((char *)r + noted[i].mark) = rdv_load_mark(value);
	}
	yaml_node_t *source = mapping_find(l, node, "source"),
		    *kafka = source ? mapping_find(l, source, "kafka") : NULL;
	if (kafka)
		r->source.kafka.mark = rdv_load_mark(kafka);
	r->after_dead_set = r->after_dead_set || mapping_find(l, node, "after_dead");
	r->dedupe_set = r->dedupe_set || mapping_find(l, node, "dedupe");
	yaml_node_t *retry = mapping_find(l, node, "retry");
	if (retry) {
		r->factor_set = r->factor_set || mapping_find(l, retry, "factor");
		r->exponent_set = r->exponent_set || mapping_find(l, retry, "exponent");
		r->delays_set = r->delays_set || mapping_find(l, retry, "delays");
	}
}

/* Does the key stand in the mapping, or is the mapping none (which has been told)? */
static bool stands(struct rdv_load *l, yaml_node_t *node, const char *key)
{
	if (!node || (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0))
		return false;
	return node->type != YAML_MAPPING_NODE || mapping_find(l, node, key);
}

/* An unknown key where the kind of handler should stand. */
static bool has_unknown(struct rdv_load *l, yaml_node_t *node, enum rdv_section section)
{
	if (!node || node->type != YAML_MAPPING_NODE)
		return node && node->type != YAML_SCALAR_NODE;
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = rdv_load_node(l, p->key);
		if (key->type != YAML_SCALAR_NODE || !rdv_setting_find(section, (char *)key->data.scalar.value))
			return true;
	}
	return false;
}

static void note_source(struct rdv_load *l, yaml_node_t *node, struct rdv_route_settings *r)
{
	struct rdv_kafka_source_settings *k = &r->source.kafka;
	yaml_node_t *kafka = node ? mapping_find(l, node, "kafka") : NULL;
	r->has_topic = r->has_topic || stands(l, node, "topic");
	k->given = k->given || kafka;
	k->has_brokers = k->has_brokers || stands(l, kafka, "brokers");
	k->has_topics = k->has_topics || stands(l, kafka, "topics");
	k->has_group = k->has_group || stands(l, kafka, "group");
}

/* What stands there but was refused is not also missing. */
static void note_given(struct rdv_load *l, yaml_node_t *node, struct rdv_route_settings *r)
{
	yaml_node_t *handler = mapping_find(l, node, "handler");
	r->has_name = r->has_name || stands(l, node, "name");
	note_source(l, mapping_find(l, node, "source"), r);
	r->has_handler = r->has_handler || has_unknown(l, handler, RDV_SECTION_HANDLER) ||
			 (handler && handler->type == YAML_SCALAR_NODE && handler->data.scalar.length);
	if (!handler)
		return;
	r->has_url = r->has_url || stands(l, mapping_find(l, handler, "http"), "url");
	r->has_command = r->has_command || stands(l, mapping_find(l, handler, "exec"), "command");
}

/* A layer that names a handler replaces the one of `defaults:`. */
static void forget_handler(struct rdv_load *l, yaml_node_t *node, struct rdv_route_settings *r)
{
	yaml_node_t *handler = mapping_find(l, node, "handler");
	if (handler &&
	    (mapping_find(l, handler, "http") || mapping_find(l, handler, "exec") || mapping_find(l, handler, "lease")))
		r->handler.has_http = r->handler.has_exec = r->handler.has_lease = false;
}

/* A layer that names a source of one kind replaces the other kind's of `defaults:`. */
static void forget_source(struct rdv_load *l, yaml_node_t *node, struct rdv_route_settings *r)
{
	static const char *const embedded[] = {"topic", "partitions"};
	yaml_node_t *source = mapping_find(l, node, "source"), *at;
	bool kafka = source && mapping_find(l, source, "kafka");
	if (kafka)
		r->source.topic = NULL;
	else if (source && mapping_find(l, source, "topic"))
		r->source.kafka.given = false;
	for (size_t i = 0; kafka && i < sizeof embedded / sizeof embedded[0]; i++)
		if ((at = mapping_find(l, source, embedded[i])))
			rdv_load_error(l, at, "'%s' belongs to the embedded queue and does not go with 'kafka'",
				       embedded[i]);
}

/* One layer on top of what *r holds: its preset first, then its keys. */
static void route_layer(struct rdv_load *l, yaml_node_t *node, struct rdv_route_settings *r)
{
	yaml_node_t *preset = mapping_find(l, node, "preset");
	if (preset) {
		bool quiet = l->quiet;
		l->quiet = true; /* the section below tells the error */
		rdv_load_row(l, rdv_setting_find(RDV_SECTION_ROUTE, "preset"), preset, r);
		l->quiet = quiet;
		rdv_retry_preset(&r->lane.retry, (enum rdv_preset)r->preset);
	}
	forget_handler(l, node, r);
	forget_source(l, node, r);
	l->route = r;
	rdv_load_section(l, RDV_SECTION_ROUTE, node, r);
	note_marks(l, node, r);
	note_given(l, node, r);
	l->route = NULL;
}

void rdv_read_defaults(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0)
		return;
	if (!rdv_load_is_mapping(l, row->key, node))
		return;
	yaml_node_t *name = mapping_find(l, node, "name");
	if (name)
		rdv_load_error(l, name, "'defaults' cannot name a route");
	struct rdv_route_settings scratch;
	route_builtin(&scratch);
	route_layer(l, node, &scratch);
	rdv_rules_unref(scratch.rules);
}

void rdv_print_defaults(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_buffer_text(out, "{}\n"); /* the routes below are printed with them applied */
}

void rdv_read_routes(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0)
		return;
	if (!want_list(l, row, node))
		return;
	struct rdv_settings *s = l->settings;
	size_t count = list_size(node);
	if (count > 10000) {
		rdv_load_error(l, node, "%zu routes: at most 10000 are allowed", count);
		return;
	}
	s->routes = rdv_settings_alloc(s, (count + 1) * sizeof *s->routes);
	yaml_node_t *defaults = mapping_find(l, yaml_document_get_root_node(&l->document), "defaults");
	for (size_t i = 0; i < count && s->routes; i++) {
		struct rdv_route_settings *r = &s->routes[s->route_count++];
		yaml_node_t *item = list_item(l, node, i);
		route_builtin(r);
		if (defaults && defaults->type == YAML_MAPPING_NODE) {
			l->quiet = true;
			route_layer(l, defaults, r);
			l->quiet = false;
		}
		route_layer(l, item, r);
		r->mark = rdv_load_mark(item);
	}
}

void rdv_print_routes(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_settings *s = at; /* the row's offset is 0: the whole */
	rdv_buffer_text(out, s->route_count ? "\n" : "[]\n");
	for (size_t i = 0; i < s->route_count; i++) {
		rdv_buffer_text(out, "  -\n");
		rdv_print_section(out, RDV_SECTION_ROUTE, &s->routes[i], 4);
	}
}

void rdv_read_importance(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	if (is_scalar(node, "high") || is_scalar(node, "normal"))
		*(bool *)at = is_scalar(node, "high");
	else
		rdv_load_error(l, node, "'%s' must be %s", row->key, row->allowed);
}

void rdv_print_importance(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_buffer_text(out, *(const bool *)at ? "high\n" : "normal\n");
}

/* ---- lists of texts ---- */

const char **rdv_load_texts(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, size_t max,
			    size_t *count)
{
	*count = 0;
	if (!want_list(l, row, node))
		return NULL;
	size_t size = list_size(node);
	if (size > max) {
		rdv_load_error(l, node, "'%s' has %zu entries: at most %zu are allowed", row->key, size, max);
		return NULL;
	}
	const char **texts = rdv_settings_alloc(l->settings, (size + 1) * sizeof *texts);
	for (size_t i = 0; texts && i < size; i++) {
		const char *text = rdv_load_text(l, row->key, list_item(l, node, i));
		if (text)
			texts[(*count)++] = text;
	}
	return texts;
}

void rdv_print_texts(struct rdv_buffer *out, const char *const *texts, size_t count)
{
	rdv_buffer_text(out, "[");
	for (size_t i = 0; i < count; i++) {
		rdv_buffer_text(out, i ? ", " : "");
		rdv_print_quoted(out, texts[i]);
	}
	rdv_buffer_text(out, "]\n");
}

void rdv_read_hosts(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	l->settings->security.hosts = rdv_load_texts(l, row, node, 256, &l->settings->security.host_count);
}

void rdv_print_hosts(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_settings *s = (const void *)((const char *)at - offsetof(struct rdv_settings, security.hosts));
	rdv_print_texts(out, s->security.hosts, s->security.host_count);
}

void rdv_read_index(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_route_settings *r = at;
	r->index = rdv_load_texts(l, row, node, RDV_INDEX_MAX, &r->index_count);
	for (size_t i = 0; i < r->index_count; i++)
		if (strncmp(r->index[i], "json:/", 6) != 0)
			rdv_load_error(l, list_item(l, node, i), "'%s' is no json:/pointer", r->index[i]);
}

void rdv_print_index(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_route_settings *r = at;
	rdv_print_texts(out, r->index, r->index_count);
}

void rdv_read_command(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_exec_settings *exec = (void *)((char *)at - offsetof(struct rdv_exec_settings, command));
	exec->command = rdv_load_texts(l, row, node, 1000, &exec->command_count);
	if (node->type == YAML_SEQUENCE_NODE && (exec->command_count == 0 || exec->command[0][0] == '\0'))
		rdv_load_error(l, node, "'command' names no program");
}

void rdv_print_command(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_exec_settings *exec =
		(const void *)((const char *)at - offsetof(struct rdv_exec_settings, command));
	rdv_print_texts(out, exec->command, exec->command_count);
}

/* headers and env: an array of pairs, its count behind it in both structs. */
struct pairs {
	struct rdv_pair *items;
	size_t count;
};

static bool pair_allowed(struct rdv_load *l, const struct rdv_setting *row, const yaml_node_t *key, const char *name,
			 const char *value)
{
	bool header = row->section == RDV_SECTION_HTTP;
	bool good = name[0] != '\0';
	for (const char *p = name; *p && good; p++)
		good = header ? (strchr("!#$%&'*+-.^_`|~", *p) || (*p >= '0' && *p <= '9') ||
				 ((*p | 32) >= 'a' && (*p | 32) <= 'z'))
			      : *p != '=';
	if (!good)
		rdv_load_error(l, key, "'%s' is no %s name", name, header ? "header" : "variable");
	else if (header && (strncasecmp(name, "Redrive-", 8) == 0 || strcasecmp(name, "Idempotency-Key") == 0))
		rdv_load_error(l, key, "the header %s is set for each message and cannot be configured", name);
	else if (header && strpbrk(value, "\r\n"))
		rdv_load_error(l, key, "the value of %s holds a line break", name);
	else
		return true;
	return false;
}

void rdv_read_pairs(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct pairs *pairs = at;
	if (!rdv_load_is_mapping(l, row->key, node))
		return;
	size_t count = (size_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
	pairs->items = rdv_settings_alloc(l->settings, (count + 1) * sizeof *pairs->items);
	pairs->count = 0;
	for (size_t i = 0; pairs->items && i < count; i++) {
		yaml_node_pair_t *p = &node->data.mapping.pairs.start[i];
		yaml_node_t *key = rdv_load_node(l, p->key);
		const char *name = rdv_load_text(l, row->key, key),
			   *value = rdv_load_text(l, row->key, rdv_load_node(l, p->value));
		if (name && value && pair_allowed(l, row, key, name, value))
			pairs->items[pairs->count++] = (struct rdv_pair){name, value};
	}
}

void rdv_print_pairs(struct rdv_buffer *out, const void *at, int indent)
{
	const struct pairs *pairs = at;
	rdv_buffer_text(out, "{");
	for (size_t i = 0; i < pairs->count; i++) {
		rdv_buffer_text(out, i ? ", " : " ");
		rdv_print_quoted(out, pairs->items[i].name);
		rdv_buffer_text(out, ": ");
		rdv_print_quoted(out, pairs->items[i].value);
	}
	rdv_buffer_text(out, pairs->count ? " }\n" : "}\n");
}

/* ---- handlers ---- */

static void print_sub(struct rdv_buffer *out, enum rdv_section section, const void *base, int indent)
{
	rdv_buffer_text(out, "\n");
	rdv_print_section(out, section, base, indent + 2);
}

void rdv_read_http(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_handler_settings *h = at;
	h->has_http = true;
	rdv_load_section(l, RDV_SECTION_HTTP, node, &h->http);
}

void rdv_print_http(struct rdv_buffer *out, const void *at, int indent)
{
	print_sub(out, RDV_SECTION_HTTP, &((const struct rdv_handler_settings *)at)->http, indent);
}

void rdv_read_exec(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_handler_settings *h = at;
	h->has_exec = true;
	rdv_load_section(l, RDV_SECTION_EXEC, node, &h->exec);
}

void rdv_print_exec(struct rdv_buffer *out, const void *at, int indent)
{
	print_sub(out, RDV_SECTION_EXEC, &((const struct rdv_handler_settings *)at)->exec, indent);
}

void rdv_read_lease(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_handler_settings *h = at;
	h->has_lease = true;
	rdv_load_section(l, RDV_SECTION_LEASE, node, &h->lease);
}

void rdv_print_lease(struct rdv_buffer *out, const void *at, int indent)
{
	print_sub(out, RDV_SECTION_LEASE, &((const struct rdv_handler_settings *)at)->lease, indent);
}

/* ---- jitter and delays ---- */

static bool parse_jitter(const char *text, struct rdv_retry *r)
{
	static const struct {
		const char *sign;
		enum rdv_jitter jitter;
	} signs[] = {{"±", RDV_JITTER_BOTH}, {"+-", RDV_JITTER_BOTH}, {"+", RDV_JITTER_ADD}, {"", RDV_JITTER_ADD}};
	if (strcmp(text, "none") == 0 || strcmp(text, "full") == 0) {
		r->jitter = text[0] == 'n' ? RDV_JITTER_NONE : RDV_JITTER_FULL;
		return true;
	}
	for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
		size_t size = strlen(signs[i].sign);
		double fraction;
		if (strncmp(text, signs[i].sign, size) != 0)
			continue;
		if (rdv_ratio_parse(rdv_slice_text(text + size), &fraction) != REDRIVE_OK ||
		    !(fraction >= 0 && fraction <= 1))
			return false;
		r->jitter = signs[i].jitter;
		r->jitter_fraction = fraction;
		return true;
	}
	return false;
}

void rdv_read_jitter(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	const char *text = rdv_load_text(l, row->key, node);
	if (text && !parse_jitter(text, at))
		rdv_load_error(l, node, "'jitter: %s' is not allowed: %s", text, row->allowed);
}

void rdv_print_jitter(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_retry *r = at;
	char ratio[RDV_QUANTITY_TEXT];
	rdv_ratio_format(r->jitter_fraction, ratio);
	switch (r->jitter) {
	case RDV_JITTER_NONE:
		rdv_buffer_text(out, "none\n");
		break;
	case RDV_JITTER_FULL:
		rdv_buffer_text(out, "full\n");
		break;
	default:
		rdv_buffer_printf(out, "%s%s\n", r->jitter == RDV_JITTER_BOTH ? "±" : "", ratio);
	}
}

void rdv_read_delays(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_retry *r = at;
	size_t count;
	const char **texts = rdv_load_texts(l, row, node, RDV_DELAYS_MAX, &count);
	r->delay_count = 0;
	for (size_t i = 0; texts && i < count; i++) {
		int64_t ms;
		if (rdv_duration_parse(rdv_slice_text(texts[i]), &ms) != REDRIVE_OK)
			rdv_load_error(l, list_item(l, node, i), "'%s' is no duration with a unit, like 250ms 30s 10m",
				       texts[i]);
		else
			r->delays[r->delay_count++] = ms;
	}
	if (texts && count == 0)
		rdv_load_error(l, node, "'delays' is empty: give 1 to %d durations", RDV_DELAYS_MAX);
}

void rdv_print_delays(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_retry *r = at;
	rdv_buffer_text(out, "[");
	for (uint32_t i = 0; i < r->delay_count; i++) {
		char text[RDV_QUANTITY_TEXT];
		rdv_duration_format(r->delays[i], text);
		rdv_buffer_printf(out, "%s%s", i ? ", " : "", text);
	}
	rdv_buffer_text(out, "]\n");
}
