/* lane_records.c - what is to be written and told: RECORD effects, follow-ups, runs, alarms; and the rings they wait
 * in. Memory can fail: then `failed` of the effects stops the runtime. Internal to the lane; single thread. */
#include "lane_parts.h"
#include <assert.h>
#include <stdlib.h>

size_t rdv_lane_begin_record(struct rdv_effects *out)
{
	return out->arena.size;
}

struct rdv_effect *rdv_lane_end_record(struct rdv_lane *l, enum rdv_record type, uint64_t seq, size_t at,
				       struct rdv_effects *out)
{
	struct rdv_effect *effect = rdv_effects_add(out, RDV_EFFECT_RECORD, l);
	size_t size = out->arena.size - at;

	if (out->arena.failed)
		out->failed = true;
	effect->record.type = type;
	effect->record.record_seq = seq;
	effect->record.at = at;
	effect->record.size = size;
	effect->record.hint_size = (uint16_t)(size < UINT16_MAX ? size : UINT16_MAX);
	effect->record.outcome = true;
	effect->seq = seq;
	l->appended_records = true;
	return effect;
}

void rdv_lane_note_outcome(struct rdv_lane *l, struct rdv_now now, size_t bytes)
{
	if (!l->open_turn.outcomes)
		l->open_turn.since = now.mono.ms;
	l->open_turn.outcomes++;
	l->open_turn.bytes += bytes;
	l->unrecorded++;
	l->unrecorded_bytes += bytes;
	l->counters_changed = true;
}

void rdv_lane_follow_up(struct rdv_lane *l, enum rdv_once kind, uint32_t ref, uint64_t value, struct rdv_effects *out)
{
	const struct rdv_follow_up f = {.turn = l->turn, .value = value, .ref = ref, .kind = kind};

	if (!rdv_ring_push(&l->follow_ups, &f))
		out->failed = true;
}

void rdv_lane_add_run(struct rdv_run_list *list, uint64_t seq, enum rdv_state outcome, struct rdv_effects *out)
{
	struct rdv_run *last = list->count ? &list->items[list->count - 1] : NULL;

	if (last && last->outcome == outcome && last->first + last->count == seq) {
		last->count++;
		return;
	}
	if (list->count == list->capacity) {
		size_t capacity = list->capacity ? list->capacity * 2 : 256;
		struct rdv_run *items = realloc(list->items, capacity * sizeof *items);
		if (!items) {
			out->failed = true;
			return;
		}
		list->items = items;
		list->capacity = capacity;
	}
	list->items[list->count++] = (struct rdv_run){seq, 1, outcome};
}

void rdv_lane_alarm(struct rdv_lane *l, uint8_t severity, const char *text, struct rdv_effects *out)
{
	size_t at = out->arena.size;
	struct rdv_effect *effect;

	rdv_buffer_printf(&out->arena, "route %s: %s", l->route, text);
	effect = rdv_effects_add(out, RDV_EFFECT_ALARM, l);
	effect->alarm.at = at;
	effect->alarm.size = out->arena.size - at;
	effect->alarm.severity = severity;
}

/* ---- rings ---- */

bool rdv_ring_push(struct rdv_ring *r, const void *item)
{
	if (r->count == r->capacity) {
		size_t capacity = r->capacity ? r->capacity * 2 : 64, tail = r->capacity - r->head;
		uint8_t *items = malloc(capacity * r->item_size);

		if (!items)
			return false;
		if (r->count) {
			memcpy(items, (uint8_t *)r->items + r->head * r->item_size, tail * r->item_size);
			memcpy(items + tail * r->item_size, r->items, r->head * r->item_size);
		}
		free(r->items);
		r->items = items;
		r->capacity = capacity;
		r->head = 0;
	}
	memcpy((uint8_t *)r->items + ((r->head + r->count) & (r->capacity - 1)) * r->item_size, item, r->item_size);
	r->count++;
	return true;
}

void *rdv_ring_at(const struct rdv_ring *r, size_t index)
{
	return (uint8_t *)r->items + ((r->head + index) & (r->capacity - 1)) * r->item_size;
}

void rdv_ring_pop(struct rdv_ring *r)
{
	assert(r->count);
	r->head = (r->head + 1) & (r->capacity - 1);
	r->count--;
}
