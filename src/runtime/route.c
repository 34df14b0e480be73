/* route.c - routes and their lanes.
 *
 * A route's texts live in a counted info that open calls keep, and so do its seat (unit.c) and its handler (outlet.c):
 * a reload changes them under the calls that are open. Core thread, or before it runs. */
#include "room.h"
#include <stdlib.h>

/* ---- info ---- */

static bool copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

struct rdv_route_info *rdv_route_info_new(struct rdv_engine *e, const struct rdv_route_options *o)
{
	const char *metadata[4] = {o->metadata.tenant, o->metadata.schema_version, o->metadata.consumer_version,
				   o->metadata.trace_id};
	struct rdv_route_info *info = calloc(1, sizeof *info);
	bool good = info != NULL;

	if (!info)
		return NULL;
	info->refs = 1;
	info->engine = e;
	info->rules = rdv_rules_ref(o->rules);
	info->dedupe = o->lane.dedupe;
	rdv_slice_to_text(rdv_slice_text(o->name), info->name, sizeof info->name);
	rdv_slice_to_text(rdv_slice_text(o->topic), info->topic, sizeof info->topic);
	for (int i = 0; i < 4; i++)
		good = good && copy_text(&info->metadata[i], metadata[i]);
	for (size_t i = 0; i < o->index_count && i < RDV_INDEX_MAX; i++, info->index_count++)
		good = good && copy_text(&info->index[i], o->index[i]);
	if (!good) {
		rdv_route_info_unref(info);
		return NULL;
	}
	return info;
}

struct rdv_route_info *rdv_route_info_ref(struct rdv_route_info *info)
{
	info->refs++;
	return info;
}

void rdv_route_info_unref(struct rdv_route_info *info)
{
	if (!info || --info->refs)
		return;
	for (int i = 0; i < 4; i++)
		free(info->metadata[i]);
	for (size_t i = 0; i < RDV_INDEX_MAX; i++)
		free(info->index[i]);
	rdv_rules_unref(info->rules);
	free(info);
}

/* ---- routes ---- */

struct rdv_route *rdv_route_find(struct rdv_engine *e, const char *name)
{
	struct rdv_route *r = e->routes;

	while (r && strcmp(r->info->name, name) != 0)
		r = r->next;
	return r;
}

struct rdv_route *rdv_route_new(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_outlet *outlet)
{
	struct rdv_route *r = calloc(1, sizeof *r);

	if (r)
		r->info = rdv_route_info_new(e, o);
	if (!r || !r->info) {
		free(r);
		rdv_outlet_free(outlet);
		return NULL;
	}
	r->options = *o;
	r->outlet = outlet;
	return r;
}

void rdv_route_link(struct rdv_engine *e, struct rdv_route *r)
{
	struct rdv_route **end = &e->routes;

	while (*end)
		end = &(*end)->next;
	*end = r;
	r->number = e->route_numbers++;
}

void rdv_route_free(struct rdv_engine *e, struct rdv_route *r)
{
	if (!r)
		return;
	rdv_outlet_leave(e, r->outlet);
	rdv_seat_leave(e, r->seat);
	rdv_route_info_unref(r->info);
	free(r);
}

static bool valid_name(const char *name)
{
	size_t size = name ? strlen(name) : 0;

	return size >= 1 && size <= 100 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

static bool valid_topic(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t size = name ? strlen(name) : 0;

	return size >= 1 && size <= 200 && strspn(name, allowed) == size;
}

enum redrive_status rdv_route_check(const struct rdv_route_options *o, struct rdv_error *error)
{
	if (!valid_name(o->name))
		return rdv_error_set(error, REDRIVE_INVALID, "a route's name is 1 to 100 of a-z 0-9 . _ -");
	if (!o->source && !valid_topic(o->topic))
		return rdv_error_set(error, REDRIVE_INVALID,
				     "route '%s': a topic's name is 1 to 200 of A-Z a-z 0-9 . _ -", o->name);
	if (!o->source && (o->partitions < 1 || o->partitions > RDV_PARTITIONS_MAX))
		return rdv_error_set(error, REDRIVE_INVALID, "route '%s': 1 to %u partitions", o->name,
				     RDV_PARTITIONS_MAX);
	if (o->target_policy.concurrency < 1 || o->lane.retry.attempts < 1)
		return rdv_error_set(error, REDRIVE_INVALID, "route '%s': concurrency and attempts are at least 1",
				     o->name);
	return REDRIVE_OK;
}

/* Before the start: the first of a target's routes sets its policy. */
static enum redrive_status take_seat(struct rdv_engine *e, struct rdv_route *r, struct rdv_error *error)
{
	const struct rdv_route_options *o = &r->options;
	struct rdv_buffer name;
	struct rdv_unit *u;
	enum redrive_status status = REDRIVE_OK;

	rdv_buffer_init(&name, 0);
	rdv_unit_name(o, &name);
	u = name.failed ? NULL : rdv_unit_find(e, rdv_buffer_string(&name));
	if (u && !rdv_unit_same_policy(&u->policy, &o->target_policy))
		status = rdv_error_set(
			error, REDRIVE_REFUSED,
			"route '%s': its target '%s' is shared with a route of another rate, concurrency, "
			"breaker or budget",
			o->name, u->name);
	if (!u && !name.failed) {
		u = rdv_unit_new(e, rdv_buffer_string(&name), &o->target_policy);
		if (u)
			rdv_unit_link(e, u);
	}
	rdv_buffer_done(&name);
	if (status != REDRIVE_OK)
		return status;
	r->seat = u ? rdv_seat_new(u, &o->route_policy) : NULL;
	return r->seat ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

enum redrive_status rdv_route_add(struct rdv_engine *e, const struct rdv_route_options *o, struct rdv_route **out,
				  struct rdv_error *error)
{
	struct rdv_outlet *outlet;
	struct rdv_route *r;
	enum redrive_status status = rdv_route_check(o, error);

	if (status != REDRIVE_OK)
		return status;
	if (rdv_route_find(e, o->name))
		return rdv_error_set(error, REDRIVE_INVALID, "route '%s' is there twice", o->name);
	status = rdv_outlet_new(e, o, &outlet, error);
	if (status != REDRIVE_OK)
		return status;
	r = rdv_route_new(e, o, outlet);
	status = r ? take_seat(e, r, error) : REDRIVE_NO_MEMORY;
	if (status != REDRIVE_OK) {
		rdv_route_free(e, r);
		return status;
	}
	rdv_route_link(e, r);
	*out = r;
	return REDRIVE_OK;
}

/* ---- lanes, at the start ---- */

static struct rdv_strand *strand_for(struct rdv_route *r, struct rdv_feed *feed)
{
	for (size_t i = 0; i < feed->count; i++)
		if (feed->strands[i]->route == r && feed->strands[i]->end == UINT64_MAX)
			return feed->strands[i];
	return NULL;
}

enum redrive_status rdv_route_lanes(struct rdv_engine *e, struct rdv_route *r, struct rdv_error *error)
{
	enum redrive_status status =
		rdv_topic_open(e->topics, r->info->topic, r->options.partitions, 0, &r->topic, error);

	for (uint32_t p = 0; status == REDRIVE_OK && p < r->options.partitions; p++) {
		struct rdv_feed *feed = rdv_feed_of(e, r->topic, p);
		struct rdv_strand *s = feed ? strand_for(r, feed) : NULL;
		uint32_t stream;

		if (!feed)
			return REDRIVE_NO_MEMORY;
		if (s)
			continue;
		stream = rdv_topics_new_streams(e->topics, 1);
		s = stream ? rdv_strand_new(e, feed, r, stream, rdv_topic_next_offset(r->topic, p), 0) : NULL;
		if (s)
			s->epoch = 1;
		if (!s || rdv_strand_attach(e, s) != REDRIVE_OK) {
			rdv_strand_free(s);
			return REDRIVE_NO_MEMORY;
		}
	}
	return status;
}
