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

/* The first row of a section, or of those below it, that is fixed and differs; NULL: none. */
static const struct rdv_setting *first_fixed(enum rdv_section section, const void *old, const void *new)
{
	const struct rdv_setting *found = NULL;
	for (size_t i = 0; i < rdv_setting_count && !found; i++) {
		const struct rdv_setting *row = &rdv_setting_table[i];
		if (row->section != section)
			continue;
		if (row->kind == RDV_SETTING_SUB)
			found = first_fixed(row->sub, (const char *)old + row->offset, (const char *)new + row->offset);
		else if ((row->reload == RDV_RELOAD_FIXED || row->reload == RDV_RELOAD_KIND) && differs(row, old, new))
			found = row;
	}
	return found;
}

static enum redrive_status refuse(const struct rdv_setting *row, const char *route, struct rdv_error *error)
{
	const char *path = rdv_section_paths[row->section], *dot = path[0] ? "." : "";
	if (route)
		return rdv_error_set(
			error, REDRIVE_REFUSED,
			"route '%s': '%s%s%s' cannot change while it runs: nothing was changed; restart to "
			"change it",
			route, path, dot, row->key);
	return rdv_error_set(error, REDRIVE_REFUSED,
			     "'%s%s%s' cannot change while running: nothing was changed; restart to change it", path,
			     dot, row->key);
}

static const struct rdv_route_settings *route_of(const struct rdv_settings *s, const char *name)
{
	for (size_t i = 0; i < s->route_count; i++)
		if (strcmp(s->routes[i].name, name) == 0)
			return &s->routes[i];
	return NULL;
}

enum redrive_status rdv_settings_check_change(const struct rdv_settings *old, const struct rdv_settings *new,
					      struct rdv_error *error)
{
	const struct rdv_setting *row = first_fixed(RDV_SECTION_ROOT, old, new);
	if (row)
		return refuse(row, NULL, error);
	for (size_t i = 0; i < new->route_count; i++) {
		const struct rdv_route_settings *route = &new->routes[i], *was = route_of(old, route->name);
		row = was ? first_fixed(RDV_SECTION_ROUTE, was, route) : NULL;
		if (row)
			return refuse(row, route->name, error);
	}
	return REDRIVE_OK;
}
