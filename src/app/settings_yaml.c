/* settings_yaml.c - reads a YAML file into the settings by the table.
 *
 * libyaml composes the document, which keeps line and column of every node. Hostile files are bounded: size, and
 * depth by the table itself (nothing is followed that has no row). Aliases are refused: they hide where a value comes
 * from and make cycles possible. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/quantity.h"
#include "../base/text.h"
#include "settings_table.h"

#define FILE_MAX (4u << 20)

struct rdv_mark rdv_load_mark(const yaml_node_t *node)
{
	return (struct rdv_mark){(unsigned)node->start_mark.line + 1, (unsigned)node->start_mark.column + 1};
}

void rdv_load_error(struct rdv_load *l, const yaml_node_t *node, const char *fmt, ...)
{
	if (l->quiet)
		return;
	char text[400];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	rdv_findings_add(l->findings, node ? rdv_load_mark(node) : (struct rdv_mark){0, 0}, false, "%s", text);
}

yaml_node_t *rdv_load_node(struct rdv_load *l, int index)
{
	return yaml_document_get_node(&l->document, index);
}

/* Replaces ${NAME} and $$; NULL when a variable is not set or the syntax is wrong. */
static char *expand(struct rdv_load *l, const yaml_node_t *node, const char *in)
{
	struct rdv_buffer out;
	rdv_buffer_init(&out, 1u << 20);
	char *text = NULL;
	for (const char *p = in; *p; p++) {
		if (*p != '$') {
			rdv_buffer_u8(&out, (uint8_t)*p);
			continue;
		}
		if (p[1] == '$') {
			rdv_buffer_u8(&out, '$');
			p++;
			continue;
		}
		const char *end = p[1] == '{' ? strchr(p + 2, '}') : NULL;
		if (!end) {
			rdv_load_error(l, node,
				       "a '$' stands alone: write ${NAME} for a variable of the environment, $$ for a "
				       "dollar sign");
			goto out;
		}
		char name[256];
		rdv_slice_to_text(rdv_slice(p + 2, (size_t)(end - p - 2)), name, sizeof name);
		const char *value = getenv(name);
		if (!value) {
			rdv_load_error(l, node, "the environment variable %s is not set", name);
			goto out;
		}
		rdv_buffer_text(&out, value);
		p = end;
	}
	text = rdv_settings_text(l->settings, rdv_buffer_as_slice(&out));
out:
	rdv_buffer_done(&out);
	return text;
}

const char *rdv_load_text(struct rdv_load *l, const char *key, yaml_node_t *node)
{
	if (node->type != YAML_SCALAR_NODE) {
		rdv_load_error(l, node, "'%s' must be one value, not a %s", key,
			       node->type == YAML_SEQUENCE_NODE ? "list" : "mapping");
		return NULL;
	}
	const char *in = (const char *)node->data.scalar.value;
	if (strlen(in) != node->data.scalar.length) {
		rdv_load_error(l, node, "'%s' holds a NUL character", key);
		return NULL;
	}
	return strchr(in, '$') ? expand(l, node, in)
			       : rdv_settings_text(l->settings, rdv_slice(in, node->data.scalar.length));
}

const char *rdv_load_path(struct rdv_load *l, const char *key, yaml_node_t *node)
{
	const char *text = rdv_load_text(l, key, node);
	if (!text)
		return NULL;
	if (text[0] == '\0') {
		rdv_load_error(l, node, "'%s' is empty: give a file name", key);
		return NULL;
	}
	return rdv_settings_path(l->settings, text);
}

/* ---- scalars by kind ---- */

static void out_of_range(struct rdv_load *l, const struct rdv_setting *row, const yaml_node_t *node, const char *text)
{
	char low[RDV_QUANTITY_TEXT], high[RDV_QUANTITY_TEXT];
	switch (row->kind) {
	case RDV_SETTING_DURATION:
		rdv_duration_format((int64_t)row->min, low);
		rdv_duration_format((int64_t)row->max, high);
		break;
	case RDV_SETTING_SIZE:
		rdv_size_format((uint64_t)row->min, low);
		rdv_size_format((uint64_t)row->max, high);
		break;
	case RDV_SETTING_RATIO:
		rdv_ratio_format(row->min, low);
		rdv_ratio_format(row->max, high);
		break;
	default:
		snprintf(low, sizeof low, "%.15g", row->min);
		snprintf(high, sizeof high, "%.15g", row->max);
	}
	rdv_load_error(l, node, "'%s: %s' is out of range: allowed are %s to %s", row->key, text, low, high);
}

static const char *syntax_of(enum rdv_setting_kind kind)
{
	switch (kind) {
	case RDV_SETTING_DURATION:
		return "a duration with a unit, like 250ms 30s 10m 2h 7d";
	case RDV_SETTING_SIZE:
		return "a size, like 64KiB 1MiB 2GiB";
	case RDV_SETTING_RATE:
		return "a rate, like 500/s";
	case RDV_SETTING_RATIO:
		return "a ratio, like 20%";
	case RDV_SETTING_NUMBER:
		return "a number";
	case RDV_SETTING_BOOL:
		return "true or false";
	default:
		return "a whole number";
	}
}

/* Parses `text` as the row's kind into *value (everything as double; 53 bits are more than any range here). */
static bool parse_number(const struct rdv_setting *row, const char *text, double *value, int64_t *whole,
			 uint64_t *bytes)
{
	struct rdv_slice s = rdv_slice_text(text);
	char *end;
	*whole = 0;
	*bytes = 0;
	switch (row->kind) {
	case RDV_SETTING_DURATION:
		if (rdv_duration_parse(s, whole) != REDRIVE_OK)
			return false;
		*value = (double)*whole;
		return true;
	case RDV_SETTING_SIZE:
		if (rdv_size_parse(s, bytes) != REDRIVE_OK)
			return false;
		*value = (double)*bytes;
		return true;
	case RDV_SETTING_RATE:
		return rdv_rate_parse(s, value) == REDRIVE_OK;
	case RDV_SETTING_RATIO:
		return rdv_ratio_parse(s, value) == REDRIVE_OK;
	case RDV_SETTING_NUMBER:
		*value = strtod(text, &end);
		return end != text && *end == '\0' && *value == *value;
	default:
		if (rdv_integer_parse(s, whole) != REDRIVE_OK)
			return false;
		*value = (double)*whole;
		return true;
	}
}

static void read_number(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	const char *text = rdv_load_text(l, row->key, node);
	if (!text)
		return;
	double value;
	int64_t whole;
	uint64_t bytes;
	if (!parse_number(row, text, &value, &whole, &bytes)) {
		rdv_load_error(l, node, "'%s: %s' is not %s", row->key, text, syntax_of(row->kind));
		return;
	}
	if (!(value >= row->min && value <= row->max)) {
		out_of_range(l, row, node, text);
		return;
	}
	switch (row->kind) {
	case RDV_SETTING_SIZE:
		*(uint64_t *)at = bytes;
		break;
	case RDV_SETTING_DURATION:
	case RDV_SETTING_INT64:
		*(int64_t *)at = whole;
		break;
	case RDV_SETTING_COUNT64:
		*(uint64_t *)at = (uint64_t)whole;
		break;
	case RDV_SETTING_INT32:
		*(uint32_t *)at = (uint32_t)whole;
		break;
	default:
		*(double *)at = value;
	}
}

static void read_bool(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, bool *at)
{
	const char *text = rdv_load_text(l, row->key, node);
	if (!text)
		return;
	if (strcmp(text, "true") == 0)
		*at = true;
	else if (strcmp(text, "false") == 0)
		*at = false;
	else
		rdv_load_error(l, node, "'%s: %s' is not true or false", row->key, text);
}

static void read_choice(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, int *at)
{
	const char *text = rdv_load_text(l, row->key, node);
	if (!text)
		return;
	size_t count = 0;
	char all[256] = "";
	for (; row->choices[count]; count++) {
		if (strcmp(text, row->choices[count]) == 0) {
			*at = (int)count;
			return;
		}
		size_t used = strlen(all);
		snprintf(all + used, sizeof all - used, "%s%s", count ? ", " : "", row->choices[count]);
	}
	const char *near = rdv_nearest(text, row->choices, count);
	rdv_load_error(l, node, "'%s: %s' is unknown: allowed are %s%s%s%s", row->key, text, all,
		       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static void read_name(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, const char **at)
{
	const char *text = rdv_load_text(l, row->key, node);
	if (!text)
		return;
	bool upper = strcmp(row->key, "topic") == 0;
	size_t size = strlen(text), max = upper ? 200 : 100;
	bool good = size >= 1 && size <= max;
	for (const char *p = text; *p && good; p++)
		good = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || strchr("._-", *p) ||
		       (upper && *p >= 'A' && *p <= 'Z');
	if (good)
		*at = text;
	else
		rdv_load_error(l, node, "'%s: %s' is not allowed: use %s", row->key, text, row->allowed);
}

void rdv_load_row(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *base)
{
	void *at = (char *)base + row->offset;
	const char *text;
	if (!l->route && l->settings->marks)
		l->settings->marks[row - rdv_setting_table] = rdv_load_mark(node);
	switch (row->kind) {
	case RDV_SETTING_TEXT:
		if ((text = rdv_load_text(l, row->key, node)))
			*(const char **)at = text;
		break;
	case RDV_SETTING_PATH:
		if ((text = rdv_load_path(l, row->key, node)))
			*(const char **)at = text;
		break;
	case RDV_SETTING_NAME:
		read_name(l, row, node, at);
		break;
	case RDV_SETTING_BOOL:
		read_bool(l, row, node, at);
		break;
	case RDV_SETTING_CHOICE:
		read_choice(l, row, node, at);
		break;
	case RDV_SETTING_SUB:
		rdv_load_section(l, row->sub, node, at);
		break;
	case RDV_SETTING_CUSTOM:
		row->read(l, row, node, at);
		break;
	case RDV_SETTING_LATER:
		rdv_load_error(l, node, "'%s' is not available in this version: remove it", row->key);
		break;
	default:
		read_number(l, row, node, at);
	}
}

/* The path of a section as one writes it inside of another; NULL: it does not lie below that. */
static const char *path_below(enum rdv_section section, enum rdv_section outer)
{
	const char *path = rdv_section_paths[section], *front = rdv_section_paths[outer];
	size_t size = strlen(front);
	if (section == outer || strncmp(path, front, size) != 0 || (size && path[size] != '.'))
		return NULL;
	return path + size + (size > 0);
}

/* "retry: or breaker:", the sections that have a key of this name: those below the one where it stands, or all. */
static void list_homes(enum rdv_section here, const char *name, bool below, struct rdv_buffer *out)
{
	for (size_t i = 0; i < rdv_setting_count; i++) {
		enum rdv_section home = rdv_setting_table[i].section;
		const char *path = below ? path_below(home, here) : rdv_section_paths[home];
		if (path && strcmp(rdv_setting_table[i].key, name) == 0)
			rdv_buffer_printf(out, "%s%s%s", out->size ? " or " : "", path[0] ? path : "no other key",
					  path[0] ? ":" : "");
	}
}

static void unknown_key(struct rdv_load *l, enum rdv_section section, const yaml_node_t *key, const char *name)
{
	const char *words[64];
	size_t count = 0;
	struct rdv_buffer all, homes;
	rdv_buffer_init(&all, 4096);
	rdv_buffer_init(&homes, 4096);
	list_homes(section, name, true, &homes);
	if (!homes.size)
		list_homes(section, name, false, &homes);
	for (size_t i = 0; i < rdv_setting_count && count < 64; i++)
		if (rdv_setting_table[i].section == section && rdv_setting_table[i].kind != RDV_SETTING_LATER) {
			rdv_buffer_printf(&all, "%s%s", count ? ", " : "", rdv_setting_table[i].key);
			words[count++] = rdv_setting_table[i].key;
		}
	const char *near = rdv_nearest(name, words, count);
	if (homes.size)
		rdv_load_error(l, key, "unknown key '%s': it belongs under %s", name, rdv_buffer_string(&homes));
	else if (near)
		rdv_load_error(l, key, "unknown key '%s': did you mean '%s'?", name, near);
	else
		rdv_load_error(l, key, "unknown key '%s': allowed here are %s", name, rdv_buffer_string(&all));
	rdv_buffer_done(&all);
	rdv_buffer_done(&homes);
}

void rdv_load_section(struct rdv_load *l, enum rdv_section section, yaml_node_t *node, void *base)
{
	if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0)
		return; /* "limits:" with nothing */
	if (node->type != YAML_MAPPING_NODE) {
		const char *path = rdv_section_paths[section];
		rdv_load_error(l, node, "%s%s%s must be a mapping of keys to values", path[0] ? "'" : "the file", path,
			       path[0] ? "'" : "");
		return;
	}
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = rdv_load_node(l, p->key), *value = rdv_load_node(l, p->value);
		if (key->type != YAML_SCALAR_NODE) {
			rdv_load_error(l, key, "a key must be a word");
			continue;
		}
		const char *name = (const char *)key->data.scalar.value;
		bool twice = false;
		for (yaml_node_pair_t *q = node->data.mapping.pairs.start; q < p && !twice; q++) {
			yaml_node_t *other = rdv_load_node(l, q->key);
			twice = other->type == YAML_SCALAR_NODE &&
				strcmp((const char *)other->data.scalar.value, name) == 0;
		}
		const struct rdv_setting *row = rdv_setting_find(section, name);
		if (twice)
			rdv_load_error(l, key, "the key '%s' stands twice in this mapping", name);
		else if (row)
			rdv_load_row(l, row, value, base);
		else
			unknown_key(l, section, key, name);
	}
}

/* ---- the file ---- */

static enum redrive_status read_file(const char *file, struct rdv_buffer *out, struct rdv_findings *findings)
{
	FILE *f = fopen(file, "re");
	if (!f) {
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "cannot be read: %s", strerror(errno));
		return errno == ENOENT ? REDRIVE_NOT_FOUND : REDRIVE_IO;
	}
	enum redrive_status status = REDRIVE_OK;
	uint8_t *room;
	while ((room = rdv_buffer_reserve(out, 65536))) {
		size_t n = fread(room, 1, 65536, f);
		out->size += n;
		if (n == 0)
			break;
	}
	if (out->failed || ferror(f)) {
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false,
				 ferror(f) ? "cannot be read: %s" : "is larger than 4 MiB%s",
				 ferror(f) ? strerror(errno) : "");
		status = REDRIVE_REFUSED;
	}
	fclose(f);
	return status;
}

/* Is there a tab in the indentation of this line (0 = the first)? */
static bool has_tab(struct rdv_slice text, size_t line)
{
	size_t i = 0;
	for (; i < text.size && line; i++)
		line -= text.data[i] == '\n';
	while (i < text.size && text.data[i] == ' ')
		i++;
	return i < text.size && text.data[i] == '\t';
}

static bool has_alias(struct rdv_slice text, struct rdv_mark *at)
{
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser))
		return false;
	yaml_parser_set_input_string(&parser, text.data, text.size);
	bool found = false, end = false;
	while (!end && !found) {
		yaml_event_t event;
		if (!yaml_parser_parse(&parser, &event))
			break;
		end = event.type == YAML_STREAM_END_EVENT;
		if (event.type == YAML_ALIAS_EVENT) {
			found = true;
			*at = (struct rdv_mark){(unsigned)event.start_mark.line + 1,
						(unsigned)event.start_mark.column + 1};
		}
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
	return found;
}

static void load_text(struct rdv_settings *s, struct rdv_slice text, struct rdv_findings *findings)
{
	struct rdv_mark at;
	if (has_alias(text, &at)) {
		rdv_findings_add(findings, at, false,
				 "aliases (*name) are not allowed: write the value out, or use 'defaults:'");
		return;
	}
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser)) {
		rdv_findings_add(findings, (struct rdv_mark){0, 0}, false, "out of memory");
		return;
	}
	yaml_parser_set_input_string(&parser, text.data, text.size);
	struct rdv_load l = {.settings = s, .findings = findings};
	if (!yaml_parser_load(&parser, &l.document)) {
		rdv_findings_add(findings,
				 (struct rdv_mark){(unsigned)parser.problem_mark.line + 1,
						   (unsigned)parser.problem_mark.column + 1},
				 false, "not YAML: %s%s%s%s", parser.problem ? parser.problem : "unreadable",
				 parser.context ? ", " : "", parser.context ? parser.context : "",
				 has_tab(text, parser.problem_mark.line) ? "; here is a tab: indent with spaces" : "");
		yaml_parser_delete(&parser);
		return;
	}
	yaml_node_t *root = yaml_document_get_root_node(&l.document);
	if (root)
		rdv_load_section(&l, RDV_SECTION_ROOT, root, s);
	yaml_document_delete(&l.document);
	yaml_document_t more;
	if (yaml_parser_load(&parser, &more)) {
		root = yaml_document_get_root_node(&more);
		if (root)
			rdv_findings_add(findings, rdv_load_mark(root), false,
					 "a second document: one file is one configuration");
		yaml_document_delete(&more);
	}
	yaml_parser_delete(&parser);
}

enum redrive_status rdv_settings_load(struct rdv_settings *s, const char *file, const struct rdv_slice *text,
				      struct rdv_findings *findings)
{
	const char *slash = strrchr(file, '/');
	s->file = rdv_settings_text(s, rdv_slice_text(file));
	s->dir = slash ? rdv_settings_text(s, rdv_slice(file, slash == file ? 1 : (size_t)(slash - file))) : ".";
	s->marks = rdv_settings_alloc(s, rdv_setting_count * sizeof *s->marks);
	if (!s->file || !s->dir || !s->marks)
		return REDRIVE_NO_MEMORY;
	struct rdv_buffer content;
	rdv_buffer_init(&content, FILE_MAX);
	enum redrive_status status = REDRIVE_OK;
	if (!text)
		status = read_file(file, &content, findings);
	if (status == REDRIVE_OK) {
		load_text(s, text ? *text : rdv_buffer_as_slice(&content), findings);
		rdv_settings_check(s, findings);
		rdv_findings_sort(findings);
		if (findings->errors > 0)
			status = REDRIVE_REFUSED;
	}
	rdv_buffer_done(&content);
	return status;
}
