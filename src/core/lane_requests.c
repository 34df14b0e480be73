/* lane_requests.c - the lane's inbox: requests and their plans, as kept and as recorded.
 *
 *   REQUEST open ──▶ finished(outcome) ──the desk stored it──▶ gone
 *
 * A request keeps an entry with its message's position until it is gone, so that no second replay of the message comes
 * in between. Plans are few and found by looking through them. Memory can fail; internal to the lane; single thread. */
#include "lane_parts.h"
#include <stdlib.h>

static uint64_t item_hash(void *owner, uint32_t ref)
{
	return ((struct rdv_inbox_item *)rdv_chunks_at(&((struct rdv_lane *)owner)->requests, ref))->number;
}

static uint32_t *item_link(void *owner, uint32_t ref)
{
	return &((struct rdv_inbox_item *)rdv_chunks_at(&((struct rdv_lane *)owner)->requests, ref))->link;
}

static const struct rdv_map_ops item_ops = {item_hash, item_link};

void rdv_lane_init_requests(struct rdv_lane *l)
{
	rdv_chunks_init(&l->requests, sizeof(struct rdv_inbox_item));
	rdv_map_init(&l->by_number, &item_ops, l);
	l->next_request = 1;
}

void rdv_lane_done_requests(struct rdv_lane *l)
{
	for (uint32_t i = 0; i < l->plan_count; i++)
		free(l->plans[i].name);
	free(l->plans);
	rdv_map_done(&l->by_number);
	rdv_chunks_done(&l->requests);
}

struct rdv_inbox_item *rdv_lane_item(const struct rdv_lane *l, uint32_t ref)
{
	return rdv_chunks_at(&l->requests, ref);
}

uint32_t rdv_lane_find_request(const struct rdv_lane *l, uint64_t number)
{
	uint32_t ref = rdv_map_first(&l->by_number, number);

	while (ref && rdv_lane_item(l, ref)->number != number)
		ref = rdv_lane_item(l, ref)->link;
	return ref;
}

struct rdv_inbox_item *rdv_lane_request_of(const struct rdv_lane *l, uint32_t entry)
{
	return rdv_lane_item(l, rdv_lane_entry(l, entry)->body_offset);
}

/* ---- plans ---- */

uint32_t rdv_lane_find_plan(const struct rdv_lane *l, uint64_t id)
{
	for (uint32_t i = 0; i < l->plan_count; i++)
		if (l->plans[i].id == id && l->plans[i].name)
			return i;
	return UINT32_MAX;
}

static uint32_t use_plan(struct rdv_lane *l, uint64_t id, struct rdv_slice name)
{
	uint32_t i = rdv_lane_find_plan(l, id);
	struct rdv_plan *plans;

	if (i == UINT32_MAX) {
		for (i = 0; i < l->plan_count && l->plans[i].name; i++)
			;
		if (i == l->plan_count) {
			plans = realloc(l->plans, (l->plan_count + 1) * sizeof *plans);
			if (!plans)
				return UINT32_MAX;
			l->plans = plans;
			l->plans[l->plan_count++] = (struct rdv_plan){0};
		}
		l->plans[i] = (struct rdv_plan){.id = id, .name = malloc(name.size + 1)};
		if (!l->plans[i].name)
			return UINT32_MAX;
		rdv_slice_to_text(name, l->plans[i].name, name.size + 1);
	}
	l->plans[i].requests++;
	return i;
}

static void leave_plan(struct rdv_lane *l, uint32_t plan)
{
	if (--l->plans[plan].requests)
		return;
	free(l->plans[plan].name);
	l->plans[plan] = (struct rdv_plan){0};
}

bool rdv_lane_plan_paused(const struct rdv_lane *l, const struct rdv_entry *e)
{
	return l->plans[rdv_lane_item(l, e->body_offset)->plan].paused;
}

/* ---- requests ---- */

bool rdv_lane_request(const struct rdv_lane *l, uint64_t number, struct rdv_request *out)
{
	uint32_t ref = rdv_lane_find_request(l, number);
	const struct rdv_inbox_item *item;

	if (!ref)
		return false;
	item = rdv_lane_item(l, ref);
	*out = item->request;
	out->plan_name = rdv_slice_text(l->plans[item->plan].name);
	if (item->entry)
		out->charged = rdv_lane_entry(l, item->entry)->charged;
	return true;
}

void rdv_lane_write_request(struct rdv_lane *l, uint64_t number, struct rdv_effects *out)
{
	size_t at = rdv_lane_begin_record(out);
	struct rdv_request request;

	if (!rdv_lane_request(l, number, &request))
		return;
	rdv_request_encode(&request, &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_REQUEST, number, at, out);
	rdv_lane_item(l, rdv_lane_find_request(l, number))->segment = l->head_segment;
}

uint32_t rdv_lane_add_item(struct rdv_lane *l, uint64_t number, const struct rdv_request *request)
{
	uint32_t plan = use_plan(l, request->plan, request->plan_name), ref;
	struct rdv_inbox_item *item;

	if (plan == UINT32_MAX)
		return 0;
	ref = rdv_chunks_take(&l->requests);
	if (!ref)
		goto no_item;
	item = rdv_lane_item(l, ref);
	item->number = number;
	item->request = *request;
	item->request.plan_name = rdv_slice(NULL, 0);
	item->plan = plan;
	if (rdv_map_insert(&l->by_number, ref) == REDRIVE_OK)
		return ref;
	rdv_chunks_free(&l->requests, ref);
no_item:
	leave_plan(l, plan);
	return 0;
}

void rdv_lane_drop_item(struct rdv_lane *l, uint32_t ref)
{
	struct rdv_inbox_item *item = rdv_lane_item(l, ref);

	leave_plan(l, item->plan);
	rdv_map_remove(&l->by_number, ref);
	item->number = 0;
	rdv_chunks_free(&l->requests, ref);
}

uint32_t rdv_lane_add_replay_entry(struct rdv_lane *l, uint32_t item, const struct rdv_request *request)
{
	uint32_t ref = rdv_lane_add_entry(l, request->seq);
	struct rdv_entry *e;

	if (!ref)
		return 0;
	e = rdv_lane_entry(l, ref);
	e->replay = 1;
	e->state = RDV_STATE_HELD;
	e->body_offset = item;
	if (rdv_lane_set_key(l, e, request->key_hash) != REDRIVE_OK) {
		rdv_lane_drop_entry(l, ref);
		return 0;
	}
	rdv_lane_item(l, item)->entry = ref;
	return ref;
}

/* ---- recovery and trimming ---- */

static enum redrive_status fold_open(struct rdv_lane *l, uint64_t number, const struct rdv_request *request,
				     struct rdv_place place)
{
	uint32_t item = rdv_lane_find_request(l, number), ref = rdv_lane_find(l, request->seq);

	if (!item)
		item = rdv_lane_add_item(l, number, request);
	if (!item)
		return REDRIVE_NO_MEMORY;
	rdv_lane_item(l, item)->segment = place.segment;
	if (rdv_lane_item(l, item)->entry)
		return REDRIVE_OK;
	if (!ref)
		return rdv_lane_add_replay_entry(l, item, request) ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	/* Its STATE came first: the request was written again by trimming. */
	if (rdv_lane_entry(l, ref)->body_segment)
		rdv_ages_remove(&l->ages, request->seq);
	rdv_lane_entry(l, ref)->replay = 1;
	rdv_lane_entry(l, ref)->body_offset = item;
	rdv_lane_entry(l, ref)->body_segment = rdv_lane_entry(l, ref)->body_length = 0;
	rdv_lane_item(l, item)->entry = ref;
	return rdv_lane_set_key(l, rdv_lane_entry(l, ref), request->key_hash);
}

/* What is left of a finished replay: an entry that keeps its position until the desk has the outcome. */
static enum redrive_status fold_finished(struct rdv_lane *l, uint64_t number, const struct rdv_request *request,
					 struct rdv_place place)
{
	enum redrive_status status = fold_open(l, number, request, place);
	uint32_t item;
	struct rdv_entry *e;

	if (status != REDRIVE_OK)
		return status;
	item = rdv_lane_find_request(l, number);
	rdv_lane_item(l, item)->request = *request;
	rdv_lane_item(l, item)->request.plan_name = rdv_slice(NULL, 0);
	e = rdv_lane_entry(l, rdv_lane_item(l, item)->entry);
	rdv_lane_forget_key(l, e);
	e->state = RDV_STATE_DONE;
	e->state_segment = e->state_offset = e->state_length = 0;
	return REDRIVE_OK;
}

/* Trimming may have taken the request away, but not yet a STATE of it: that is over, too. */
static void fold_gone(struct rdv_lane *l, uint64_t number, uint64_t seq)
{
	uint32_t item = rdv_lane_find_request(l, number);
	uint32_t ref = item ? rdv_lane_item(l, item)->entry : rdv_lane_find(l, seq);

	if (ref && (item || (!rdv_lane_entry(l, ref)->replay && !rdv_lane_entry(l, ref)->body_segment))) {
		rdv_lane_forget_key(l, rdv_lane_entry(l, ref));
		rdv_lane_drop_entry(l, ref);
	}
	if (item)
		rdv_lane_drop_item(l, item);
}

enum redrive_status rdv_lane_fold_request(struct rdv_lane *l, uint64_t number, struct rdv_slice payload,
					  struct rdv_place place)
{
	struct rdv_request request;
	enum redrive_status status = rdv_request_decode(payload, &request);

	if (status != REDRIVE_OK)
		return status;
	if (number >= l->next_request)
		l->next_request = number + 1;
	if (request.kind != RDV_REQUEST_REPLAY)
		return REDRIVE_OK;
	switch (request.state) {
	case RDV_REQUEST_OPEN:
		return fold_open(l, number, &request, place);
	case RDV_REQUEST_FINISHED:
		return fold_finished(l, number, &request, place);
	case RDV_REQUEST_GONE:
		fold_gone(l, number, request.seq);
		break;
	}
	return REDRIVE_OK;
}

void rdv_lane_open_requests(struct rdv_lane *l, struct rdv_effects *out)
{
	for (uint32_t i = 1; i <= l->requests.used; i++)
		if (rdv_lane_item(l, i)->number)
			rdv_lane_say_outcome(l, rdv_lane_item(l, i)->number, out);
}

void rdv_lane_rewrite_request(struct rdv_lane *l, uint32_t item, uint32_t segment, struct rdv_effects *out)
{
	if (rdv_lane_item(l, item)->number && rdv_lane_item(l, item)->segment <= segment)
		rdv_lane_write_request(l, rdv_lane_item(l, item)->number, out);
}
