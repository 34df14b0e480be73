/* settings_policy.c - settings of a route's policy with a syntax of their own: concurrency, breaker, budget, storm,
 * poison, dedupe. See settings_custom.c. */
#include <stdio.h>
#include "settings_table.h"

static bool is_scalar(const yaml_node_t *node, const char *text)
{
	return node->type == YAML_SCALAR_NODE && strcmp((const char *)node->data.scalar.value, text) == 0;
}

static void print_sub(struct rdv_buffer *out, enum rdv_section section, const void *base, int indent)
{
	rdv_buffer_text(out, "\n");
	rdv_print_section(out, section, base, indent + 2);
}

/* ---- concurrency, breaker, budget: a value or a mapping ---- */

void rdv_read_concurrency(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_target_policy *t = at;
	if (node->type == YAML_MAPPING_NODE) {
		rdv_load_section(l, RDV_SECTION_CONCURRENCY, node, t);
		if (t->adaptive && t->concurrency > t->adaptive_max)
			t->concurrency = t->adaptive_max;
		return;
	}
	struct rdv_setting number = *row;
	number.kind = RDV_SETTING_INT32;
	number.offset = offsetof(struct rdv_target_policy, concurrency);
	number.min = 1;
	number.max = 100000;
	rdv_load_row(l, &number, node, t);
	t->adaptive = false;
}

void rdv_print_concurrency(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_target_policy *t = at;
	if (t->adaptive)
		rdv_buffer_printf(out, "{ adaptive: true, max: %u }\n", t->adaptive_max);
	else
		rdv_buffer_printf(out, "%u\n", t->concurrency);
}

/* on, off or a mapping: is it on? */
static bool read_switch(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, enum rdv_section section,
			void *at)
{
	if (is_scalar(node, "off"))
		return false;
	if (is_scalar(node, "on"))
		return true;
	if (node->type == YAML_SCALAR_NODE && node->data.scalar.length)
		rdv_load_error(l, node, "'%s: %s' must be %s", row->key, (const char *)node->data.scalar.value,
			       row->allowed);
	else
		rdv_load_section(l, section, node, at);
	return true;
}

void rdv_read_breaker(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_breaker *b = at;
	b->on = read_switch(l, row, node, RDV_SECTION_BREAKER, b);
}

void rdv_print_breaker(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_breaker *b = at;
	if (b->on)
		print_sub(out, RDV_SECTION_BREAKER, b, indent);
	else
		rdv_buffer_text(out, "off\n");
}

void rdv_read_budget(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_budget_policy *b = at;
	b->on = read_switch(l, row, node, RDV_SECTION_BUDGET, b);
}

void rdv_print_budget(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_budget_policy *b = at;
	if (b->on)
		print_sub(out, RDV_SECTION_BUDGET, b, indent);
	else
		rdv_buffer_text(out, "off\n");
}

void rdv_read_storm(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	if (is_scalar(node, "hold") || is_scalar(node, "dead"))
		*(bool *)at = is_scalar(node, "hold");
	else
		rdv_load_error(l, node, "'%s' must be %s", row->key, row->allowed);
}

void rdv_print_storm(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_buffer_text(out, *(const bool *)at ? "hold\n" : "dead\n");
}

static const char *const family_thens[] = {"alert", "hold", "reject", NULL};

void rdv_read_family_then(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	for (int i = 0; family_thens[i]; i++)
		if (is_scalar(node, family_thens[i])) {
			*(enum rdv_family_then *)at = (enum rdv_family_then)i;
			return;
		}
	rdv_load_error(l, node, "'%s' must be %s", row->key, row->allowed);
}

void rdv_print_family_then(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_buffer_printf(out, "%s\n", family_thens[*(const enum rdv_family_then *)at]);
}

/* ---- dedupe ---- */

void rdv_read_dedupe_by(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_dedupe_policy *d = at;
	const char *text = rdv_load_text(l, row->key, node);
	if (!text)
		return;
	const char *name = "";
	if (strcmp(text, "id") == 0) {
		d->by = RDV_DEDUPE_ID;
	} else if (strcmp(text, "key") == 0) {
		d->by = RDV_DEDUPE_KEY;
	} else if (strncmp(text, "header:", 7) == 0 && text[7]) {
		d->by = RDV_DEDUPE_HEADER;
		name = text + 7;
	} else if (strncmp(text, "json:/", 6) == 0) {
		d->by = RDV_DEDUPE_JSON;
		name = text + 5;
	} else {
		rdv_load_error(l, node, "'by: %s' is unknown: allowed are %s", text, row->allowed);
		return;
	}
	if (strlen(name) >= sizeof d->name)
		rdv_load_error(l, node, "'by' is longer than %zu characters", sizeof d->name - 1);
	else
		snprintf(d->name, sizeof d->name, "%s", name);
}

void rdv_print_dedupe_by(struct rdv_buffer *out, const void *at, int indent)
{
	static const char *const prefixes[] = {"", "id", "key", "header:", "json:"};
	const struct rdv_dedupe_policy *d = at;
	rdv_buffer_printf(out, "%s%s\n", prefixes[d->by], d->name);
}

void rdv_read_dedupe_store(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	if (!is_scalar(node, "local"))
		rdv_load_error(l, node, "'store' must be local: other stores are not available in this version");
}

void rdv_print_dedupe_store(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_buffer_text(out, "local\n");
}
