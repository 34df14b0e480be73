/* topics_print.c - what an administrator runs in place of Redrive: shell commands that create the private topics and
 * grant the rights. Pure. */
#include "topics_admin.h"

/* A word of the shell, whatever is in it. */
static void word(struct rdv_buffer *out, const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:,/=@%+";

	if (text[0] && text[strspn(text, plain)] == '\0') {
		rdv_buffer_text(out, text);
		return;
	}
	rdv_buffer_u8(out, '\'');
	for (const char *p = text; *p; p++)
		if (*p == '\'')
			rdv_buffer_text(out, "'\\''");
		else
			rdv_buffer_u8(out, (uint8_t)*p);
	rdv_buffer_u8(out, '\'');
}

static void begin(const struct rdv_kafka_config *c, const char *tool, struct rdv_buffer *out)
{
	rdv_buffer_printf(out, "%s --bootstrap-server ", tool);
	word(out, c->brokers);
	rdv_buffer_text(out, " --command-config admin.properties");
}

static void print_create(const struct rdv_kafka_config *c, const struct rdv_kafka_source_topic *source,
			 const char *topic, struct rdv_buffer *out)
{
	struct rdv_topic_wanted wanted;

	rdv_topic_wanted(source, &wanted);
	begin(c, "kafka-topics.sh", out);
	rdv_buffer_printf(out, " --create --if-not-exists --topic %s --partitions %d --replication-factor %d", topic,
			  (int)source->partitions, (int)(c->replication ? c->replication : source->replication));
	for (size_t i = 0; i < RDV_TOPIC_CONFIG_COUNT; i++)
		rdv_buffer_printf(out, " --config %s=%s", rdv_topic_config_names[i], wanted.value[i]);
	rdv_buffer_text(out, "\n");
}

struct grant {
	const char *kind, *name; /* "--topic", "orders" */
	bool prefixed;
	const char *operations; /* "Read Describe" */
};

static void print_grant(const struct rdv_kafka_config *c, const struct grant *g, const char *principal,
			struct rdv_buffer *out)
{
	const char *at = g->operations;

	begin(c, "kafka-acls.sh", out);
	rdv_buffer_text(out, " --add --allow-principal ");
	if (principal)
		word(out, principal);
	else
		rdv_buffer_text(out, "\"$PRINCIPAL\"");
	for (size_t size; *at; at += size + (at[size] == ' ')) {
		size = strcspn(at, " ");
		rdv_buffer_printf(out, " --operation %.*s", (int)size, at);
	}
	rdv_buffer_printf(out, " %s ", g->kind);
	word(out, g->name);
	rdv_buffer_printf(out, "%s\n", g->prefixed ? " --resource-pattern-type prefixed" : "");
}

void rdv_kafka_print_topics(const struct rdv_kafka_config *c, const struct rdv_kafka_source_topic *source,
			    const char *source_name, const struct rdv_kafka_names *names, const char *principal,
			    struct rdv_buffer *out)
{
	struct rdv_buffer topics, ids; /* prefixes; the writer's name is made in source.c */

	rdv_buffer_init(&topics, 0);
	rdv_buffer_init(&ids, 0);
	rdv_buffer_printf(&topics, "redrive.%s.", c->route);
	rdv_buffer_printf(&ids, "redrive.%s.%s.", c->route, c->group);
	const struct grant grants[] = {
		{"--topic", source_name, false, "Read Describe DescribeConfigs"},
		{"--group", c->group, false, "Read Describe"},
		{"--topic", names->topic[RDV_KAFKA_JOURNAL], false, "Read Write Delete Describe DescribeConfigs"},
		{"--topic", names->topic[RDV_KAFKA_INBOX], false, "Read Write Delete Describe DescribeConfigs"},
		{"--topic", names->topic[RDV_KAFKA_LETTERS], false, "Read Write Delete Describe DescribeConfigs"},
		{"--transactional-id", rdv_buffer_string(&ids), true, "Write Describe"},
	};
	const struct grant create = {"--topic", rdv_buffer_string(&topics), true, "Create Alter"};

	rdv_buffer_printf(out, "# route %s, source topic %s, cluster %s\n", c->route, source_name, source->cluster);
	for (size_t i = 0; i < RDV_KAFKA_TOPIC_COUNT; i++)
		print_create(c, source, names->topic[i], out);
	for (size_t i = 0; i < sizeof grants / sizeof grants[0]; i++)
		print_grant(c, &grants[i], principal, out);
	if (c->create_topics) {
		rdv_buffer_text(out,
				"# only for create_topics: true, where Redrive creates and grows its topics itself\n");
		print_grant(c, &create, principal, out);
	}
	rdv_buffer_done(&topics);
	rdv_buffer_done(&ids);
}
