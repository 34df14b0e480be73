/* settings_kafka.c - `source: { kafka: ... }`: readers, printers and checks of what only Kafka's sources have.
 *
 * librdkafka's own settings are passed on as texts; which ones may be, the driver says (rdv_kafka_check_setting).
 * Secrets are read here, at load, and never printed: in their place stands where they come from, so that the printed
 * configuration reads back to the same, unless a secret stands in the file itself, which is warned of. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/quantity.h"
#include "settings_table.h"

#define NAME_LIMIT 249
#define SECRET_MIN 16
static const char file_suffix[] = "_file";

/* ---- brokers, topics, names ---- */

/* [PROTOCOL://]HOST[:PORT], HOST an IPv6 address in brackets or without any colon */
static bool is_broker(struct rdv_slice entry)
{
	char text[300], *host = text, *end;
	if (entry.size == 0 || entry.size >= sizeof text)
		return false;
	rdv_slice_to_text(entry, text, sizeof text);
	if ((end = strstr(text, "://")))
		host = end + 3;
	end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
	if (!end || end == host || strpbrk(host, " \t/@?#"))
		return false;
	end += *end == ']';
	int64_t port;
	return *end == '\0' || (*end == ':' && rdv_integer_parse(rdv_slice_text(end + 1), &port) == REDRIVE_OK &&
				port >= 1 && port <= 65535);
}

void rdv_read_kafka_brokers(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	const char *text = rdv_load_text(l, row->key, node);
	for (const char *p = text; p; p = *p ? p + 1 : NULL) {
		while (*p == ' ')
			p++;
		size_t size = strcspn(p, ","), used = size;
		while (used && p[used - 1] == ' ')
			used--;
		if (!is_broker(rdv_slice(p, used))) {
			rdv_load_error(l, node, "'brokers': '%.*s' is no address of a broker: use %s", (int)used, p,
				       row->allowed);
			return;
		}
		p += size;
	}
	if (text)
		*(const char **)at = text;
}

void rdv_print_kafka_brokers(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_print_quoted(out, *(const char *const *)at);
	rdv_buffer_text(out, "\n");
}

/* What Kafka takes as a topic or as a static member. */
static bool is_name(const char *text)
{
	size_t size = strlen(text);
	bool good = size >= 1 && size <= NAME_LIMIT && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
	for (const char *p = text; *p && good; p++)
		good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
		       strchr("._-", *p);
	return good;
}

static bool is_printable(const char *text)
{
	size_t size = strlen(text);
	bool good = size >= 1 && size <= NAME_LIMIT && rdv_utf8_valid(rdv_slice_text(text));
	for (const char *p = text; *p && good; p++)
		good = (unsigned char)*p >= 0x20 && *p != 0x7f;
	return good;
}

void rdv_read_kafka_name(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	const char *text = rdv_load_text(l, row->key, node);
	bool group = strcmp(row->key, "group") == 0;
	if (text && (group ? is_printable(text) : is_name(text)))
		*(const char **)at = text;
	else if (text)
		rdv_load_error(l, node, "'%s: %s' is not allowed: use %s", row->key, text, row->allowed);
}

void rdv_print_kafka_name(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_print_kafka_brokers(out, at, indent);
}

/* As librdkafka compiles it. */
static bool compile(const char *pattern, regex_t *re, char why[200])
{
	int code = regcomp(re, pattern, REG_EXTENDED | REG_NOSUB);
	if (code)
		regerror(code, re, why, 200);
	return code == 0;
}

static void check_topic(struct rdv_load *l, const struct rdv_setting *row, const yaml_node_t *node, const char *topic)
{
	char why[200];
	regex_t re;
	if (topic[0] != '^') {
		if (!is_name(topic))
			rdv_load_error(l, node, "'%s' is no topic: use %s", topic, row->allowed);
	} else if (compile(topic, &re, why)) {
		regfree(&re);
	} else {
		rdv_load_error(l, node, "'%s' is no regular expression: %s", topic, why);
	}
}

static const char *join(struct rdv_settings *s, const char *const *texts, size_t count)
{
	struct rdv_buffer all;
	rdv_buffer_init(&all, 0);
	for (size_t i = 0; i < count; i++)
		rdv_buffer_printf(&all, "%s%s", i ? ", " : "", texts[i]);
	const char *text = rdv_settings_text(s, rdv_buffer_as_slice(&all));
	rdv_buffer_done(&all);
	return text;
}

void rdv_read_kafka_topics(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_kafka_source_settings *k = (void *)((char *)at - offsetof(struct rdv_kafka_source_settings, topics));
	k->topics = rdv_load_texts(l, row, node, 1000, &k->topic_count);
	if (node->type == YAML_SEQUENCE_NODE && node->data.sequence.items.top == node->data.sequence.items.start)
		rdv_load_error(l, node, "'topics' is empty: give %s", row->allowed);
	for (size_t i = 0; k->topics && i < k->topic_count; i++)
		check_topic(l, row, rdv_load_node(l, node->data.sequence.items.start[i]), k->topics[i]);
	k->shown = join(l->settings, (const char *const *)k->topics, k->topic_count);
}

void rdv_print_kafka_topics(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_kafka_source_settings *k =
		(const void *)((const char *)at - offsetof(struct rdv_kafka_source_settings, topics));
	rdv_print_texts(out, k->topics, k->topic_count);
}

/* ---- secrets ---- */

/* The content of a file, owned by the settings; data NULL (and an error told) if there is none. */
static struct rdv_slice load_secret(struct rdv_load *l, const char *key, const yaml_node_t *node, const char *file)
{
	struct rdv_error error = {""};
	struct rdv_buffer content;
	rdv_buffer_init(&content, 0);
	struct rdv_slice secret = {NULL, 0};
	if (rdv_secret_read(file, &content, &error) == REDRIVE_OK) {
		secret = rdv_buffer_as_slice(&content);
		secret.data = (const uint8_t *)rdv_settings_text(l->settings, secret);
	} else {
		rdv_load_error(l, node, "'%s': %s", key, error.text);
	}
	rdv_buffer_done(&content);
	return secret;
}

void rdv_read_kafka_secret(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_kafka_source_settings *k =
		(void *)((char *)at - offsetof(struct rdv_kafka_source_settings, secret_file));
	const char *file = rdv_load_path(l, row->key, node);
	if (!file)
		return;
	struct rdv_slice secret = load_secret(l, row->key, node, file);
	if (secret.data && secret.size < SECRET_MIN) {
		rdv_load_error(l, node, "'%s': '%s' holds %zu bytes: at least %d are needed", row->key, file,
			       secret.size, SECRET_MIN);
	} else if (secret.data) {
		k->secret_file = file;
		k->secret = secret;
	}
}

void rdv_print_kafka_secret(struct rdv_buffer *out, const void *at, int indent)
{
	rdv_print_kafka_brokers(out, at, indent);
}

/* ---- settings of librdkafka ---- */

static bool is_secret(const char *name)
{
#ifdef REDRIVE_KAFKA
	return rdv_kafka_setting_is_secret(name);
#else
	return true;
#endif
}

/* ${NAME}, and nothing else. */
static bool is_variable(const char *raw)
{
	return strncmp(raw, "${", 2) == 0 && strchr(raw, '}') == raw + strlen(raw) - 1;
}

static bool may_pass(struct rdv_load *l, const yaml_node_t *node, const struct rdv_kafka_setting *setting)
{
#ifdef REDRIVE_KAFKA
	struct rdv_error why = {""};
	if (rdv_kafka_check_setting(setting->name, setting->value, &why) == REDRIVE_OK)
		return true;
	rdv_load_error(l, node, "%s", why.text);
	return false;
#else
	return true; /* the source as a whole is refused */
#endif
}

/* What the file says of one setting: the value for librdkafka, and how it is printed. */
struct written {
	struct rdv_kafka_setting setting;
	struct rdv_pair print;
};

static bool read_from_file(struct rdv_load *l, const char *name, yaml_node_t *node, struct written *out)
{
	const char *file = rdv_load_path(l, name, node);
	struct rdv_slice secret = {NULL, 0};
	if (file)
		secret = load_secret(l, name, node, file);
	if (!secret.data)
		return false;
	if (memchr(secret.data, '\0', secret.size)) {
		rdv_load_error(l, node, "'%s': '%s' holds a NUL character", name, file);
		return false;
	}
	size_t size = strlen(name) - (sizeof file_suffix - 1);
	out->setting.name = rdv_settings_text(l->settings, rdv_slice(name, size));
	out->setting.value = (const char *)secret.data;
	out->print = (struct rdv_pair){name, file};
	return out->setting.name;
}

static bool read_plain(struct rdv_load *l, const char *name, yaml_node_t *node, struct written *out)
{
	const char *value = rdv_load_text(l, name, node), *print = value;
	if (!value)
		return false;
	const char *raw = (const char *)node->data.scalar.value;
	if (is_secret(name)) {
		print = is_variable(raw) ? rdv_settings_text(l->settings, rdv_slice_text(raw)) : "(hidden)";
		if (!is_variable(raw) && !l->quiet)
			rdv_findings_add(l->findings, rdv_load_mark(node), true,
					 "'%s' stands in the file: '%s%s: FILE' or ${NAME} keeps it apart", name, name,
					 file_suffix);
	}
	out->setting = (struct rdv_kafka_setting){name, value};
	out->print = (struct rdv_pair){name, print};
	return print;
}

static bool is_twice(const struct rdv_kafka_source_settings *k, const char *name)
{
	for (size_t i = 0; i < k->setting_count; i++)
		if (strcmp(k->settings[i].name, name) == 0)
			return true;
	return false;
}

static void read_setting(struct rdv_load *l, yaml_node_t *key, yaml_node_t *node, struct rdv_kafka_source_settings *k)
{
	const char *name = rdv_load_text(l, "settings", key);
	struct written w;
	if (!name)
		return;
	size_t size = strlen(name), suffix = sizeof file_suffix - 1;
	bool file = size > suffix && strcmp(name + size - suffix, file_suffix) == 0;
	if (!(file ? read_from_file : read_plain)(l, name, node, &w))
		return;
	if (is_twice(k, w.setting.name)) {
		rdv_load_error(l, key, "'%s' is set twice", w.setting.name);
		return;
	}
	if (!may_pass(l, key, &w.setting))
		return;
	k->settings[k->setting_count] = w.setting;
	k->written[k->setting_count++] = w.print;
}

void rdv_read_kafka_settings(struct rdv_load *l, const struct rdv_setting *row, yaml_node_t *node, void *at)
{
	struct rdv_kafka_source_settings *k =
		(void *)((char *)at - offsetof(struct rdv_kafka_source_settings, settings));
	if (!rdv_load_is_mapping(l, row->key, node))
		return;
	size_t count = (size_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
	if (count > 500) {
		rdv_load_error(l, node, "'settings' has %zu entries: at most 500 are allowed", count);
		return;
	}
	k->settings = rdv_settings_alloc(l->settings, (count + 1) * sizeof *k->settings);
	k->written = rdv_settings_alloc(l->settings, (count + 1) * sizeof *k->written);
	k->setting_count = 0;
	for (size_t i = 0; k->settings && k->written && i < count; i++) {
		yaml_node_pair_t *p = &node->data.mapping.pairs.start[i];
		read_setting(l, rdv_load_node(l, p->key), rdv_load_node(l, p->value), k);
	}
}

/* A variable is printed as it was written: print_text would make the dollar sign one. */
void rdv_print_kafka_settings(struct rdv_buffer *out, const void *at, int indent)
{
	const struct rdv_kafka_source_settings *k =
		(const void *)((const char *)at - offsetof(struct rdv_kafka_source_settings, settings));
	rdv_buffer_text(out, "{");
	for (size_t i = 0; i < k->setting_count; i++) {
		const struct rdv_pair *w = &k->written[i];
		rdv_buffer_text(out, i ? ", " : " ");
		rdv_print_quoted(out, w->name);
		rdv_buffer_text(out, ": ");
		if (is_secret(w->name) && is_variable(w->value))
			rdv_buffer_printf(out, "\"%s\"", w->value);
		else
			rdv_print_quoted(out, w->value);
	}
	rdv_buffer_text(out, k->setting_count ? " }\n" : "}\n");
}

const char *rdv_kafka_changed_secret(const struct rdv_kafka_source_settings *old,
				     const struct rdv_kafka_source_settings *new)
{
	bool same_file = old->secret_file && new->secret_file &&strcmp(old->secret_file, new->secret_file) == 0;
	if (!old->given || !new->given)
		return NULL;
	if (same_file && !rdv_slice_equal(old->secret, new->secret))
		return "secret_file";
	for (size_t i = 0; i < old->setting_count && old->setting_count == new->setting_count; i++) {
		const struct rdv_pair *a = &old->written[i], *b = &new->written[i];
		if (strcmp(a->name, b->name) != 0 || strcmp(a->value, b->value) != 0)
			return NULL; /* the printed ones differ */
	}
	for (size_t i = 0; i < old->setting_count && old->setting_count == new->setting_count; i++)
		if (strcmp(old->settings[i].value, new->settings[i].value) != 0)
			return "settings";
	return NULL;
}
