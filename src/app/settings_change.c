/* settings_change.c - may a running server take this configuration in place of the one it has?
 *
 * The table says of each row what a reload may do with it; values are compared as they are printed. Routes are compared
 * with the one of their name: one that is new or gone has nothing to be compared with. */
#include "settings_table.h"

static bool differs(const struct rdv_setting *row, const void *old, const void *new)
{
	struct rdv_buffer a, b;
	rdv_buffer_init(&a, 0);
	rdv_buffer_init(&b, 0);
	rdv_print_setting(&a, row, old);
	rdv_print_setting(&b, row, new);
	bool differ = row->reload == RDV_RELOAD_KIND ? !a.size != !b.size
						     : strcmp(rdv_buffer_string(&a), rdv_buffer_string(&b)) != 0;
	differ = differ || a.failed || b.failed;
	rdv_buffer_done(&a);
	rdv_buffer_done(&b);
	return differ;
}

struct change {
	const struct rdv_settings *settings;    /* the new ones */
	const struct rdv_route_settings *route; /* NULL: outside of routes */
	struct rdv_findings *findings;
};

static void refuse(const struct change *c, const struct rdv_setting *row)
{
	const char *path = rdv_section_paths[row->section], *dot = path[0] ? "." : "";
	struct rdv_mark mark = c->route ? c->route->mark : rdv_setting_mark(c->settings, row->section, row->key);
	rdv_findings_add(c->findings, mark, false, "%s%s%s'%s%s%s' cannot change while running: it takes a restart",
			 c->route ? "route '" : "", c->route ? c->route->name : "", c->route ? "': " : "", path, dot,
			 row->key);
}

/* Every row of a section, and of those below it, that is fixed and differs. */
static void refuse_fixed(const struct change *c, enum rdv_section section, const void *old, const void *new)
{
	for (size_t i = 0; i < rdv_setting_count; i++) {
		const struct rdv_setting *row = &rdv_setting_table[i];
		if (row->section != section)
			continue;
		if ((row->reload == RDV_RELOAD_FIXED || row->reload == RDV_RELOAD_KIND) && differs(row, old, new))
			refuse(c, row);
		else if (row->kind == RDV_SETTING_SUB)
			refuse_fixed(c, row->sub, (const char *)old + row->offset, (const char *)new + row->offset);
	}
}

/* Secrets are not printed, so that printing does not tell them apart. */
static void refuse_secrets(const struct change *c, const struct rdv_route_settings *old)
{
	const char *key = rdv_kafka_changed_secret(&old->source.kafka, &c->route->source.kafka);
	if (key)
		refuse(c, rdv_setting_find(RDV_SECTION_KAFKA, key));
}

static const struct rdv_route_settings *route_of(const struct rdv_settings *s, const char *name)
{
	for (size_t i = 0; i < s->route_count; i++)
		if (strcmp(s->routes[i].name, name) == 0)
			return &s->routes[i];
	return NULL;
}

void rdv_settings_check_change(const struct rdv_settings *old, const struct rdv_settings *new,
			       struct rdv_findings *findings)
{
	struct change c = {.settings = new, .findings = findings};
	refuse_fixed(&c, RDV_SECTION_ROOT, old, new);
	for (size_t i = 0; i < new->route_count; i++) {
		const struct rdv_route_settings *was = route_of(old, new->routes[i].name);
		c.route = &new->routes[i];
		if (!was)
			continue;
		refuse_fixed(&c, RDV_SECTION_ROUTE, was, c.route);
		refuse_secrets(&c, was);
	}
}
