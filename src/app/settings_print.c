/* settings_print.c - the table as text: the effective configuration, and the configuration reference. */
#include <stdio.h>
#include "../base/quantity.h"
#include "settings_table.h"

static void print_value(struct rdv_buffer *out, const struct rdv_setting *row, const void *at)
{
	char text[RDV_QUANTITY_TEXT];
	switch (row->kind) {
	case RDV_SETTING_DURATION:
		rdv_duration_format(*(const int64_t *)at, text);
		break;
	case RDV_SETTING_SIZE:
		rdv_size_format(*(const uint64_t *)at, text);
		break;
	case RDV_SETTING_RATE:
		rdv_rate_format(*(const double *)at, text);
		break;
	case RDV_SETTING_RATIO:
		rdv_ratio_format(*(const double *)at, text);
		break;
	case RDV_SETTING_NUMBER:
		snprintf(text, sizeof text, "%.15g", *(const double *)at);
		break;
	case RDV_SETTING_INT32:
		snprintf(text, sizeof text, "%u", *(const uint32_t *)at);
		break;
	case RDV_SETTING_INT64:
		snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)at);
		break;
	case RDV_SETTING_COUNT64:
		snprintf(text, sizeof text, "%llu", (unsigned long long)*(const uint64_t *)at);
		break;
	case RDV_SETTING_BOOL:
		snprintf(text, sizeof text, "%s", *(const bool *)at ? "true" : "false");
		break;
	case RDV_SETTING_CHOICE:
		snprintf(text, sizeof text, "%s", row->choices[*(const int *)at]);
		break;
	default:
		rdv_print_quoted(out, *(const char *const *)at);
		rdv_buffer_text(out, "\n");
		return;
	}
	rdv_buffer_printf(out, "%s\n", text);
}

/* Of the source that begins at `base`. */
static bool is_kafka(const void *base)
{
	const struct rdv_route_settings *r =
		(const void *)((const char *)base - offsetof(struct rdv_route_settings, source));
	return r->source.kafka.given;
}

/* A mapping of which nothing was given. */
static bool is_empty(const struct rdv_setting *row, const void *base)
{
	const struct rdv_route_settings *r = base;
	const struct rdv_http_settings *u = base;
	const struct rdv_settings *s = (const void *)((const char *)base - offsetof(struct rdv_settings, security));
	if (row->kind != RDV_SETTING_SUB)
		return false;
	switch (row->sub) {
	case RDV_SECTION_TLS:
		return !s->security.cert_file && !s->security.key_file;
	case RDV_SECTION_HTTP_TLS:
		return !u->ca_file && !u->cert_file && !u->key_file;
	case RDV_SECTION_SIGN:
		return !u->secret_file;
	case RDV_SECTION_KAFKA:
		return !is_kafka(base);
	case RDV_SECTION_DEDUPE:
		return r->lane.dedupe.by == RDV_DEDUPE_OFF;
	case RDV_SECTION_POISON:
		return r->route.family.count == 0;
	case RDV_SECTION_METADATA:
		return !r->metadata.tenant && !r->metadata.schema_version && !r->metadata.consumer_version &&
		       !r->metadata.trace_id;
	case RDV_SECTION_DEAD:
		return !r->dead.topic;
	default:
		return false;
	}
}

/* Values that are not there: nothing is printed, so that the text reads back to the same. */
static bool is_absent(const struct rdv_setting *row, const void *base, const void *at)
{
	switch (row->kind) {
	case RDV_SETTING_TEXT:
	case RDV_SETTING_PATH:
	case RDV_SETTING_NAME:
		return *(const char *const *)at == NULL;
	case RDV_SETTING_DURATION:
	case RDV_SETTING_SIZE:
	case RDV_SETTING_RATE:
		/* 0 is "none" for a setting whose least value is above 0 */
		return row->min > 0 &&
		       (row->kind == RDV_SETTING_RATE ? *(const double *)at == 0 : *(const int64_t *)at == 0);
	case RDV_SETTING_INT32:
		return row->min > 0 && *(const uint32_t *)at == 0;
	case RDV_SETTING_CHOICE:
		if (strcmp(row->key, "after_dead") == 0)
			return ((const struct rdv_route_settings *)base)->lane.order != RDV_ORDER_KEY;
		return strcmp(row->key, "preset") == 0 && *(const int *)at == 0;
	case RDV_SETTING_LATER:
		return true;
	case RDV_SETTING_INT64:
		return strcmp(row->key, "partitions") == 0 && is_kafka(base); /* its topics have their own */
	default:
		break;
	}
	if (row->section == RDV_SECTION_HANDLER) {
		const struct rdv_handler_settings *h = base;
		return !(row->key[0] == 'h' ? h->has_http : row->key[0] == 'e' ? h->has_exec : h->has_lease);
	}
	if ((row->section == RDV_SECTION_KAFKA || row->section == RDV_SECTION_DEAD) && row->kind == RDV_SETTING_CUSTOM)
		return *(const void *const *)at == NULL; /* all of them are pointers */
	if (row->section == RDV_SECTION_RETRY && strcmp(row->key, "delays") == 0)
		return ((const struct rdv_retry *)base)->delay_count == 0;
	return is_empty(row, base) || (row->section == RDV_SECTION_ROOT && strcmp(row->key, "defaults") == 0);
}

void rdv_print_setting(struct rdv_buffer *out, const struct rdv_setting *row, const void *base)
{
	const void *at = (const char *)base + row->offset;
	if (is_absent(row, base, at))
		return;
	if (row->kind == RDV_SETTING_SUB)
		rdv_print_section(out, row->sub, at, 0);
	else if (row->kind == RDV_SETTING_CUSTOM)
		row->print(out, at, 0);
	else
		print_value(out, row, at);
}

void rdv_print_section(struct rdv_buffer *out, enum rdv_section section, const void *base, int indent)
{
	for (size_t i = 0; i < rdv_setting_count; i++) {
		const struct rdv_setting *row = &rdv_setting_table[i];
		const void *at = (const char *)base + row->offset;
		if (row->section != section || is_absent(row, base, at))
			continue;
		if (section == RDV_SECTION_RETRY && strcmp(row->key, "cap") == 0 && *(const int64_t *)at == 0)
			continue;
		rdv_buffer_printf(out, "%*s%s:", indent, "", row->key);
		if (row->kind == RDV_SETTING_SUB) {
			rdv_buffer_text(out, "\n");
			rdv_print_section(out, row->sub, at, indent + 2);
			continue;
		}
		size_t space = out->size;
		rdv_buffer_text(out, " ");
		if (row->kind == RDV_SETTING_CUSTOM)
			row->print(out, at, indent);
		else
			print_value(out, row, at);
		if (!out->failed && out->data[space + 1] == '\n') /* a block follows: no blank before the line's end */
			memmove(out->data + space, out->data + space + 1, --out->size - space);
	}
}

void rdv_settings_print(const struct rdv_settings *s, struct rdv_buffer *out)
{
	rdv_print_section(out, RDV_SECTION_ROOT, s, 0);
}

/* ---- the reference ---- */

static void print_range(struct rdv_buffer *out, const struct rdv_setting *row)
{
	char low[RDV_QUANTITY_TEXT], high[RDV_QUANTITY_TEXT];
	switch (row->kind) {
	case RDV_SETTING_DURATION:
		rdv_duration_format((int64_t)row->min, low);
		rdv_duration_format((int64_t)row->max, high);
		rdv_buffer_printf(out, "duration, %s to %s", low, high);
		break;
	case RDV_SETTING_SIZE:
		rdv_size_format((uint64_t)row->min, low);
		rdv_size_format((uint64_t)row->max, high);
		rdv_buffer_printf(out, "size, %s to %s", low, high);
		break;
	case RDV_SETTING_RATIO:
		rdv_ratio_format(row->min, low);
		rdv_ratio_format(row->max, high);
		rdv_buffer_printf(out, "ratio, %s to %s", low, high);
		break;
	case RDV_SETTING_RATE:
		rdv_buffer_text(out, "rate, like 500/s");
		break;
	case RDV_SETTING_NUMBER:
	case RDV_SETTING_INT32:
	case RDV_SETTING_INT64:
	case RDV_SETTING_COUNT64:
		rdv_buffer_printf(out, "number, %.15g to %.15g", row->min, row->max);
		break;
	case RDV_SETTING_CHOICE:
		for (size_t i = 0; row->choices[i]; i++)
			rdv_buffer_printf(out, "%s`%s`", i ? ", " : "", row->choices[i]);
		break;
	default:
		rdv_buffer_text(out, row->allowed ? row->allowed : "");
	}
}

static const char *const reload_words[RDV_RELOAD_COUNT] = {
	[RDV_RELOAD_LIVE] = "reload",
	[RDV_RELOAD_FIXED] = "restart",
	[RDV_RELOAD_KIND] = "restart to another kind",
	[RDV_RELOAD_KEYS] = "by key",
};

void rdv_settings_reference(struct rdv_buffer *out)
{
	rdv_buffer_text(
		out, "# Configuration reference\n\nMade by `redrive reference configuration` from the table that the "
		     "program itself reads.\n\nThe column `change` says what it takes to put a new value into force: "
		     "`reload` (SIGHUP), or `restart`; a reload with a changed value of that kind is refused whole. A "
		     "route of another name is another route.\n");
	for (int section = 0; section < RDV_SECTION_COUNT; section++) {
		bool any = false;
		for (size_t i = 0; i < rdv_setting_count; i++) {
			const struct rdv_setting *row = &rdv_setting_table[i];
			if ((int)row->section != section || row->kind == RDV_SETTING_LATER)
				continue;
			if (!any) {
				const char *path = rdv_section_paths[section];
				rdv_buffer_printf(out,
						  "\n## %s\n\n| key | value | default | change | meaning "
						  "|\n|---|---|---|---|---|\n",
						  path[0] ? path : "The file");
			}
			any = true;
			rdv_buffer_printf(out, "| `%s` | ", row->key);
			print_range(out, row);
			rdv_buffer_printf(out, " | %s | %s | %s |\n", row->fallback, reload_words[row->reload],
					  row->doc);
		}
	}
	rdv_buffer_text(out, "\n## routes[].rules[]\n\n`when` names at least one of `status` (100 to 599, one or a "
			     "list), `exit` (0 to 255), `class` and `text` (regular "
			     "expressions), `timeout: true`; all that are named must match. `then` is `ack`, `reject`, "
			     "`drop`, `retry`, `{ defer: 30s }` "
			     "or `{ retry: { ... } }` with the keys of routes[].retry.\n\nEvery text may hold "
			     "`${NAME}` for a variable of the "
			     "environment; `$$` is a dollar sign.\n");
}
