/* freeze.c - which letters a plan takes, and in which order they go out.
 *
 * By a query: every letter that matches now and may be replayed (not replayed, resolved or discarded before). By ids:
 * exactly those; one that is not here is the caller's mistake. Order: by arrival, so that blocks are read once; within
 * a key by the message's position, since that is the order in which its lane must see them. The digest is over the
 * sorted ids, so it names the set, not the order. Any thread. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/text.h"
#include "plan.h"
#include "room.h"

struct choosing {
	struct rdv_desk *d;
	const struct rdv_plan_request *r;
	struct rdv_desk_set *set;
	uint8_t (*exclude)[16]; /* owns, sorted */
	size_t exclude_count;
	bool by_query;
	struct rdv_error *error;
};

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, 16); /* the id comes first in both kinds of items */
}

static enum redrive_status route_number(struct rdv_desk_set *s, struct rdv_slice route, uint32_t *out)
{
	for (size_t i = s->route_count; i-- > 0;) {
		if (!rdv_slice_is(route, s->routes[i]))
			continue;
		*out = (uint32_t)i;
		s->route_letters[i]++;
		return REDRIVE_OK;
	}
	*out = RDV_DESK_PLAN_ROUTES;
	if (s->route_count == RDV_DESK_PLAN_ROUTES) {
		s->more_routes = true;
		return REDRIVE_OK;
	}
	if (!s->routes)
		s->routes = calloc(RDV_DESK_PLAN_ROUTES, sizeof *s->routes);
	if (!s->route_letters)
		s->route_letters = calloc(RDV_DESK_PLAN_ROUTES, sizeof *s->route_letters);
	if (!s->routes || !s->route_letters)
		return REDRIVE_NO_MEMORY;
	rdv_slice_to_text(route, s->routes[s->route_count], sizeof s->routes[0]);
	*out = (uint32_t)s->route_count++;
	s->route_letters[*out] = 1;
	return REDRIVE_OK;
}

static uint64_t key_of(const struct rdv_envelope *e)
{
	uint8_t parts[28];
	if (e->null_key)
		return 0;
	rdv_put_u64(parts, rdv_xxh3(e->route));
	rdv_put_u64(parts + 8, rdv_xxh3(e->topic));
	rdv_put_u64(parts + 16, rdv_xxh3(e->key));
	rdv_put_u32(parts + 24, e->partition);
	uint64_t h = rdv_xxh3(rdv_slice(parts, sizeof parts));
	return h ? h : 1;
}

static struct rdv_desk_chosen *next_item(struct rdv_desk_set *s)
{
	if (s->count == s->capacity) {
		size_t capacity = s->capacity ? s->capacity * 2 : 256;
		void *grown = realloc(s->items, capacity * sizeof *s->items);
		if (!grown)
			return NULL;
		s->items = grown;
		s->capacity = capacity;
	}
	return &s->items[s->count];
}

static bool excluded(const struct choosing *c, const uint8_t id[16])
{
	return c->exclude_count && bsearch(id, c->exclude, c->exclude_count, sizeof *c->exclude, by_id);
}

static bool covered(const struct choosing *c, const struct rdv_envelope *e)
{
	char route[101];
	if (!c->r->covers)
		return true;
	rdv_slice_to_text(e->route, route, sizeof route);
	return c->r->covers(c->r->covers_ctx, route);
}

static enum redrive_status choose(void *ctx, struct rdv_desk_place place, const struct rdv_letter_frame *frame,
				  const struct rdv_envelope *e)
{
	struct choosing *c = ctx;
	struct rdv_desk_decided decided;
	uint8_t id[16];
	if (!covered(c, e))
		return c->by_query ? REDRIVE_OK : REDRIVE_NOT_FOUND;
	rdv_envelope_id(e, id);
	if (excluded(c, id))
		return REDRIVE_OK;
	rdv_desk_control_lock(&c->d->control);
	enum redrive_status status = rdv_desk_control_letter(&c->d->control, id, &decided);
	rdv_desk_control_unlock(&c->d->control);
	if (status != REDRIVE_OK || (c->by_query && decided.state >= RDV_LETTER_REPLAYED))
		return status;
	if (c->set->count == RDV_DESK_PLAN_LETTERS)
		return rdv_error_set(c->error, REDRIVE_TOO_LARGE, "a plan takes at most %u letters: narrow the query",
				     RDV_DESK_PLAN_LETTERS);
	struct rdv_desk_chosen *item = next_item(c->set);
	if (!item)
		return REDRIVE_NO_MEMORY;
	*item = (struct rdv_desk_chosen){
		.place = place,
		.key = key_of(e),
		.offset = e->offset,
		.generation = e->generation,
		.dead_at = e->dead_at.ms,
		.has_body = frame->has_body,
		.busy = decided.state == RDV_LETTER_IN_REPLAY,
	};
	memcpy(item->id, id, 16);
	status = route_number(c->set, e->route, &item->route);
	c->set->count += status == REDRIVE_OK;
	return status;
}

static enum redrive_status by_ids(struct choosing *c)
{
	struct rdv_desk_reader *r = rdv_desk_reader_take(&c->d->store);
	enum redrive_status status = REDRIVE_OK;
	for (size_t i = 0; i < c->r->id_count && status == REDRIVE_OK; i++) {
		uint8_t id[16];
		struct rdv_desk_place place;
		struct rdv_letter_frame frame;
		struct rdv_envelope e;
		status = rdv_base32_128_decode(rdv_slice_text(c->r->ids[i]), id);
		if (status == REDRIVE_OK)
			status = rdv_desk_reader_find(&c->d->store, r, id, &place);
		if (status == REDRIVE_OK)
			status = rdv_desk_reader_frame(&c->d->store, r, place, &frame);
		if (status == REDRIVE_OK)
			status = rdv_envelope_decode(frame.envelope, &e);
		if (status == REDRIVE_OK)
			status = choose(c, place, &frame, &e);
		if (status == REDRIVE_OK)
			continue;
		if (status == REDRIVE_NOT_FOUND || status == REDRIVE_INVALID)
			status = rdv_error_set(c->error, REDRIVE_INVALID, "ids: there is no letter '%.40s'",
					       c->r->ids[i]);
		else if (!c->error->text[0])
			rdv_error_set(c->error, status, "ids: letter '%.40s': %s", c->r->ids[i],
				      rdv_status_info(status)->text);
	}
	rdv_desk_reader_give(&c->d->store, r);
	return status;
}

static enum redrive_status by_text(struct choosing *c)
{
	struct rdv_query q;
	size_t position;
	enum redrive_status status = rdv_query_parse(rdv_slice_text(c->r->q), &q, &position, c->error);
	if (status != REDRIVE_OK)
		return rdv_error_prefix(c->error, status, "q: at character %zu", position);
	status = rdv_desk_select(c->d, &q, choose, c, c->error);
	rdv_query_done(&q);
	return status;
}

static enum redrive_status read_exclude(struct choosing *c)
{
	if (c->r->exclude_count == 0)
		return REDRIVE_OK;
	c->exclude = calloc(c->r->exclude_count, sizeof *c->exclude);
	if (!c->exclude)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < c->r->exclude_count; i++)
		if (rdv_base32_128_decode(rdv_slice_text(c->r->exclude[i]), c->exclude[i]) != REDRIVE_OK)
			return rdv_error_set(c->error, REDRIVE_INVALID, "exclude_ids: '%.40s' is no letter id",
					     c->r->exclude[i]);
	c->exclude_count = c->r->exclude_count;
	qsort(c->exclude, c->exclude_count, sizeof *c->exclude, by_id);
	return REDRIVE_OK;
}

/* ---- order ---- */

static int by_arrival(const void *a, const void *b)
{
	const struct rdv_desk_chosen *x = a, *y = b;
	if (x->place.part != y->place.part)
		return x->place.part < y->place.part ? -1 : 1;
	return (x->place.seq > y->place.seq) - (x->place.seq < y->place.seq);
}

struct slot { /* a place in the order, and the letter that stands there by arrival */
	uint64_t key;
	size_t index;
	struct rdv_desk_chosen item;
};

static int by_key_and_index(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->index > y->index) - (x->index < y->index);
}

static int by_position(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;
	if (x->item.offset != y->item.offset)
		return x->item.offset < y->item.offset ? -1 : 1;
	return (x->item.generation > y->item.generation) - (x->item.generation < y->item.generation);
}

/* The letters of one key change places among themselves until they stand by position. */
static enum redrive_status order_keys(struct rdv_desk_set *s)
{
	struct slot *slots = calloc(s->count ? s->count : 1, sizeof *slots);
	size_t *places = calloc(s->count ? s->count : 1, sizeof *places), n = 0;
	if (!slots || !places) {
		free(slots);
		free(places);
		return REDRIVE_NO_MEMORY;
	}
	for (size_t i = 0; i < s->count; i++)
		if (s->items[i].key)
			slots[n++] = (struct slot){s->items[i].key, i, s->items[i]};
	qsort(slots, n, sizeof *slots, by_key_and_index);
	for (size_t i = 0; i < n; i++)
		places[i] = slots[i].index;
	for (size_t from = 0, to; from < n; from = to) {
		for (to = from + 1; to < n && slots[to].key == slots[from].key; to++)
			;
		qsort(slots + from, to - from, sizeof *slots, by_position);
	}
	for (size_t i = 0; i < n; i++)
		s->items[places[i]] = slots[i].item;
	free(slots);
	free(places);
	return REDRIVE_OK;
}

static void drop_twins(struct rdv_desk_set *s)
{
	size_t kept = 0;
	for (size_t i = 0; i < s->count; i++)
		if (i == 0 || memcmp(s->items[i].id, s->items[kept - 1].id, 16) != 0)
			s->items[kept++] = s->items[i];
	s->count = kept;
}

enum redrive_status rdv_desk_set_choose(struct rdv_desk *d, const struct rdv_plan_request *r, struct rdv_desk_set *out,
					struct rdv_error *error)
{
	struct choosing c = {.d = d, .r = r, .set = out, .by_query = r->q != NULL, .error = error};
	memset(out, 0, sizeof *out);
	if ((r->q != NULL) == (r->id_count > 0))
		return rdv_error_set(error, REDRIVE_INVALID, "a plan takes either q or ids");
	enum redrive_status status = read_exclude(&c);
	if (status == REDRIVE_OK)
		status = r->q ? by_text(&c) : by_ids(&c);
	if (status == REDRIVE_OK && out->count == 0)
		status = rdv_error_set(error, REDRIVE_INVALID, "no letter that can be replayed matches");
	if (status == REDRIVE_OK) {
		qsort(out->items, out->count, sizeof *out->items, by_id);
		drop_twins(out);
		qsort(out->items, out->count, sizeof *out->items, by_arrival);
		status = order_keys(out);
	}
	if (status != REDRIVE_OK)
		rdv_desk_set_done(out);
	free(c.exclude);
	return status;
}

void rdv_desk_set_done(struct rdv_desk_set *s)
{
	if (!s)
		return;
	free(s->items);
	free(s->routes);
	free(s->route_letters);
	memset(s, 0, sizeof *s);
}

enum redrive_status rdv_desk_set_digest(const struct rdv_desk_set *s, char out[72])
{
	uint8_t digest[crypto_hash_sha256_BYTES], (*ids)[16] = calloc(s->count, sizeof *ids);
	if (!ids)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < s->count; i++)
		memcpy(ids[i], s->items[i].id, 16);
	qsort(ids, s->count, sizeof *ids, by_id);
	crypto_hash_sha256(digest, ids[0], s->count * sizeof *ids);
	free(ids);
	memcpy(out, "sha256:", 8);
	sodium_bin2hex(out + 7, 65, digest, sizeof digest);
	return REDRIVE_OK;
}
