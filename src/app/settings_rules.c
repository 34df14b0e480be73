/* settings_rules.c - the `rules:` of a route: when an answer matches, then this verdict. */
#include <stdio.h>
#include "../base/quantity.h"
#include "settings_table.h"

static bool scalar_is(const yaml_node_t *node, const char *text)
{
	return node->type == YAML_SCALAR_NODE && strcmp((const char *)node->data.scalar.value, text) == 0;
}

/* One number or a list of them, each within [min, max]. */
static size_t read_numbers(struct rdv_load *l, const char *key, yaml_node_t *node, const int range[2], int out[32])
{
	bool list = node->type == YAML_SEQUENCE_NODE;
	size_t size = list ? (size_t)(node->data.sequence.items.top - node->data.sequence.items.start) : 1, count = 0;
	if (size == 0 || size > 32) {
		rdv_load_error(l, node, "'%s' needs 1 to 32 numbers", key);
		return 0;
	}
	for (size_t i = 0; i < size; i++) {
		yaml_node_t *item = list ? rdv_load_node(l, node->data.sequence.items.start[i]) : node;
		const char *text = rdv_load_text(l, key, item);
		int64_t number;
		if (!text)
			continue;
		if (rdv_integer_parse(rdv_slice_text(text), &number) != REDRIVE_OK || number < range[0] ||
		    number > range[1])
			rdv_load_error(l, item, "'%s: %s' is not a number from %d to %d", key, text, range[0],
				       range[1]);
		else
			out[count++] = (int)number;
	}
	return count;
}

typedef void read_when(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec);

static void when_status(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	spec->status_count = read_numbers(l, "status", node, (const int[2]){100, 599}, spec->statuses);
}

static void when_exit(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	spec->exit_count = read_numbers(l, "exit", node, (const int[2]){0, 255}, spec->exits);
}

static void when_class(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	spec->class_pattern = rdv_load_text(l, "class", node);
}

static void when_text(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	spec->text_pattern = rdv_load_text(l, "text", node);
}

static void when_timeout(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	if (scalar_is(node, "true"))
		spec->timeout = true;
	else
		rdv_load_error(l, node, "'timeout' in a rule can only be true");
}

static const struct {
	const char *key;
	read_when *read;
} whens[] = {
	{"status", when_status}, {"exit", when_exit},       {"class", when_class},
	{"text", when_text},     {"timeout", when_timeout},
};

static void read_when_part(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	if (node->type != YAML_MAPPING_NODE || node->data.mapping.pairs.top == node->data.mapping.pairs.start) {
		rdv_load_error(l, node, "'when' must name at least one of status, exit, class, text, timeout");
		return;
	}
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = rdv_load_node(l, p->key);
		size_t i = 0, count = sizeof whens / sizeof whens[0];
		while (i < count && !scalar_is(key, whens[i].key))
			i++;
		if (i < count)
			whens[i].read(l, rdv_load_node(l, p->value), spec);
		else
			rdv_load_error(l, key, "unknown condition: allowed are status, exit, class, text, timeout");
	}
}

static const char *const then_words[] = {"ack", "reject", "drop", NULL};

static void read_then_part(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec)
{
	static const enum rdv_then thens[] = {RDV_THEN_ACK, RDV_THEN_REJECT, RDV_THEN_DROP};
	for (int i = 0; then_words[i]; i++)
		if (scalar_is(node, then_words[i])) {
			spec->then = thens[i];
			return;
		}
	yaml_node_t *key = NULL, *value = NULL;
	if (node->type == YAML_MAPPING_NODE && node->data.mapping.pairs.top - node->data.mapping.pairs.start == 1) {
		key = rdv_load_node(l, node->data.mapping.pairs.start->key);
		value = rdv_load_node(l, node->data.mapping.pairs.start->value);
	}
	if (key && scalar_is(key, "defer")) {
		const char *text = rdv_load_text(l, "defer", value);
		spec->then = RDV_THEN_DEFER;
		if (text && rdv_duration_parse(rdv_slice_text(text), &spec->defer_ms) != REDRIVE_OK)
			rdv_load_error(l, value, "'defer: %s' is not a duration with a unit, like 30s", text);
	} else if (key && scalar_is(key, "retry")) {
		spec->then = RDV_THEN_RETRY;
		spec->has_retry = true;
		rdv_load_section(l, RDV_SECTION_RETRY, value, &spec->retry);
	} else if (scalar_is(node, "retry")) {
		spec->then = RDV_THEN_RETRY;
	} else {
		rdv_load_error(
			l, node,
			"'then' must be ack, reject, drop, retry, { defer: 30s } or { retry: { attempts: 3, ... } }");
	}
}

static void read_rule(struct rdv_load *l, yaml_node_t *node, struct rdv_rule_spec *spec,
		      const struct rdv_retry *route_retry)
{
	bool when = false, then = false;
	spec->retry = *route_retry;
	if (node->type != YAML_MAPPING_NODE) {
		rdv_load_error(l, node, "a rule must be { when: {...}, then: ... }");
		return;
	}
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = rdv_load_node(l, p->key), *value = rdv_load_node(l, p->value);
		if (scalar_is(key, "when") && !when) {
			when = true;
			read_when_part(l, value, spec);
		} else if (scalar_is(key, "then") && !then) {
			then = true;
			read_then_part(l, value, spec);
		} else {
			rdv_load_error(l, key, "a rule has one 'when' and one 'then', nothing else");
		}
	}
	if (!when || !then)
		rdv_load_error(l, node, "this rule lacks its '%s'", when ? "then" : "when");
}

/* Runs after the route's other keys (settings_check.c compiles): the specs only. */
void rdv_read_rules(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_route_settings *r = at;
	if (node->type != YAML_SEQUENCE_NODE) {
		rdv_load_error(l, node, "'rules' must be a list of { when: {...}, then: ... }");
		return;
	}
	size_t size = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
	if (size > RDV_RULES_MAX) {
		rdv_load_error(l, node, "%zu rules: at most %d are allowed", size, RDV_RULES_MAX);
		return;
	}
	r->rule_specs = rdv_settings_alloc(l->settings, (size + 1) * sizeof *r->rule_specs);
	r->rule_marks = rdv_settings_alloc(l->settings, (size + 1) * sizeof *r->rule_marks);
	r->rule_count = r->rule_specs && r->rule_marks ? size : 0;
	for (size_t i = 0; i < r->rule_count; i++) {
		yaml_node_t *item = rdv_load_node(l, node->data.sequence.items.start[i]);
		r->rule_marks[i] = rdv_load_mark(item);
		read_rule(l, item, &r->rule_specs[i], &r->lane.retry);
	}
}

/* ---- printing ---- */

static void print_numbers(struct rdv_buffer *out, const char *key, const int *numbers, size_t count, const char **comma)
{
	if (count == 0)
		return;
	rdv_buffer_printf(out, "%s%s: [", *comma, key);
	for (size_t i = 0; i < count; i++)
		rdv_buffer_printf(out, "%s%d", i ? ", " : "", numbers[i]);
	rdv_buffer_text(out, "]");
	*comma = ", ";
}

static void print_pattern(struct rdv_buffer *out, const char *key, const char *text, const char **comma)
{
	if (!text)
		return;
	rdv_buffer_printf(out, "%s%s: '", *comma, key);
	for (const char *p = text; *p; p++)
		rdv_buffer_text(out, *p == '\'' ? "''" : *p == '$' ? "$$" : (char[2]){*p, 0});
	rdv_buffer_text(out, "'");
	*comma = ", ";
}

void rdv_print_rules(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_route_settings *r = at;
	rdv_buffer_text(out, r->rule_count ? "\n" : "[]\n");
	for (size_t i = 0; i < r->rule_count; i++) {
		const struct rdv_rule_spec *spec = &r->rule_specs[i];
		const char *comma = "";
		rdv_buffer_printf(out, "%*s- when: { ", indent + 2, "");
		print_numbers(out, "status", spec->statuses, spec->status_count, &comma);
		print_numbers(out, "exit", spec->exits, spec->exit_count, &comma);
		print_pattern(out, "class", spec->class_pattern, &comma);
		print_pattern(out, "text", spec->text_pattern, &comma);
		if (spec->timeout)
			rdv_buffer_printf(out, "%stimeout: true", comma);
		rdv_buffer_printf(out, " }\n%*sthen: ", indent + 4, "");
		if (spec->then == RDV_THEN_DEFER) {
			char text[RDV_QUANTITY_TEXT];
			rdv_duration_format(spec->defer_ms, text);
			rdv_buffer_printf(out, "{ defer: %s }\n", text);
		} else if (spec->then == RDV_THEN_RETRY && spec->has_retry) {
			rdv_buffer_printf(out, "\n%*sretry:\n", indent + 6, "");
			rdv_print_section(out, RDV_SECTION_RETRY, &spec->retry, indent + 8);
		} else {
			rdv_buffer_printf(out, "%s\n", spec->then == RDV_THEN_RETRY ? "retry" : then_words[spec->then]);
		}
	}
}
