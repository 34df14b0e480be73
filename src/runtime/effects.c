/* effects.c - what the lanes decided becomes deed.
 *
 * First every touched lane is flushed (its packed DONE and STARTED lists, its COUNTERS), then all RECORD effects are
 * appended as one batch, so that records and counters become durable together or not at all. Then the rest is done in
 * order: calls, reads, letters, outcomes, live counts, alarms. Doing may decide more (a damaged body, a repeated dedupe
 * key): that goes to the second list, which is run next, until nothing is left. Without memory, or when the log has
 * failed, nothing is recorded any more and the engine fails. Core thread. */
#include "inlets.h"
#include <stdlib.h>

static void count_delay(struct rdv_engine *e, const struct rdv_effect *effect)
{
	struct rdv_route *route = rdv_strand_of(e, effect->lane)->route;

	if (route && effect->record.waits)
		rdv_histogram_add_ms(&route->metrics.delay_seconds, effect->record.delay_ms);
}

static void put_record(struct rdv_engine *e, const struct rdv_effects *list, const struct rdv_effect *effect)
{
	struct rdv_frame frame = {
		.type = (uint8_t)effect->record.type,
		.hint_len = effect->record.hint_size,
		.stream = rdv_lane_stream(effect->lane),
		.seq = effect->record.record_seq,
		.length = (uint32_t)effect->record.size,
	};
	uint8_t *to = rdv_log_put(e->log, &frame);
	struct rdv_strand *s;

	if (!to) {
		rdv_engine_fail(e, "a record is larger than a segment");
		return;
	}
	if (frame.length)
		memcpy(to, list->arena.data + effect->record.at, frame.length);
	s = e->streams[frame.stream].strand;
	if (effect->record.owns_state) {
		struct rdv_place place = {frame.position.segment, frame.position.offset, frame.length};

		rdv_lane_placed(effect->lane, effect->entry, place);
		rdv_log_live(e->log, place.segment, 1, place.length);
		count_delay(e, effect);
		if (s->inlet)
			rdv_inlet_count_live(s, place.length);
	}
	if (s->inlet)
		rdv_inlet_record(e, s, effect, rdv_slice(to, frame.length));
}

/* Live frames of the tail, appended again. */
static void put_raw(struct rdv_engine *e)
{
	for (size_t i = 0; i < e->raw_count; i++) {
		struct rdv_frame frame = e->raw[i];
		uint8_t *to;

		frame.flags = 0;
		to = rdv_log_put(e->log, &frame);
		if (!to) {
			rdv_engine_fail(e, "a record is larger than a segment");
			break;
		}
		memcpy(to, e->raw[i].payload.data, frame.length);
		rdv_trim_moved(e, &e->raw[i], frame.position);
	}
	e->raw_count = 0;
}

static void note_appended(struct rdv_engine *e, uint64_t ticket)
{
	e->last_ticket = ticket;
	if (!e->oldest_ticket) {
		e->oldest_ticket = ticket;
		e->oldest_ms = e->now.mono.ms;
	}
	for (size_t i = 0; i < e->touched_count; i++) {
		struct rdv_strand *s = e->touched[i];

		s->last_ticket = ticket;
		rdv_lane_appended(s->lane, ticket);
		if (s->unsynced || s->inlet) /* a broker says when those are durable */
			continue;
		if (e->unsynced_count == e->unsynced_capacity) {
			size_t capacity = e->unsynced_capacity ? 2 * e->unsynced_capacity : 64;
			struct rdv_strand **grown = realloc(e->unsynced, capacity * sizeof(struct rdv_strand *));

			if (!grown) {
				rdv_engine_fail(e, "out of memory");
				return;
			}
			e->unsynced = grown;
			e->unsynced_capacity = capacity;
		}
		s->unsynced = true;
		e->unsynced[e->unsynced_count++] = s;
	}
}

/* One batch of all records; false when nothing may follow from them. */
static bool append_records(struct rdv_engine *e, struct rdv_effects *list)
{
	size_t bytes = 0;
	uint32_t count = 0;
	uint64_t ticket;
	enum redrive_status status;

	for (size_t i = 0; i < list->count; i++) {
		if (list->items[i].kind != RDV_EFFECT_RECORD)
			continue;
		bytes += list->items[i].record.size;
		count++;
	}
	for (size_t i = 0; i < e->raw_count; i++)
		bytes += e->raw[i].length;
	count += (uint32_t)e->raw_count;
	if (!count)
		return true;
	status = rdv_log_begin(e->log, RDV_LOG_OUTCOME, bytes, count, 0);
	if (status != REDRIVE_OK) {
		rdv_engine_fail(e, redrive_status_text(status));
		return false;
	}
	put_raw(e);
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].kind == RDV_EFFECT_RECORD)
			put_record(e, list, &list->items[i]);
	rdv_log_end(e->log, true, &ticket);
	note_appended(e, ticket);
	return !e->failed;
}

/* Lanes that speak in the list were touched, whoever asked them. */
static void touch_speakers(struct rdv_engine *e, const struct rdv_effects *list)
{
	const struct rdv_lane *last = NULL;

	for (size_t i = 0; i < list->count; i++) {
		if (list->items[i].lane == last)
			continue;
		last = list->items[i].lane;
		if (last)
			rdv_strand_touch(e, rdv_strand_of(e, last));
	}
}

static void release(struct rdv_engine *e, const struct rdv_effect *effect)
{
	struct rdv_strand *s = rdv_strand_of(e, effect->lane);

	rdv_log_live(e->log, effect->released.segment, -(int32_t)effect->released.count,
		     -(int64_t)effect->released.bytes);
	if (s->inlet)
		rdv_inlet_count_live(s, -(int64_t)effect->released.bytes);
}

static void alarm_people(struct rdv_engine *e, const struct rdv_effect *effect)
{
	/* The bytes are in the list that is being run. */
	const struct rdv_effects *list = e->effects == &e->lists[0] ? &e->lists[1] : &e->lists[0];
	struct rdv_slice text = rdv_effects_bytes(list, effect->alarm.at, effect->alarm.size);

	rdv_engine_say(e, effect->alarm.severity ? 1 : 0, "%.*s", (int)text.size, (const char *)text.data);
}

static void (*const deeds[RDV_EFFECT_KIND_COUNT])(struct rdv_engine *e, const struct rdv_effect *effect) = {
	[RDV_EFFECT_DISPATCH] = rdv_flight_dispatch,
	[RDV_EFFECT_FETCH] = rdv_flight_fetch,
	[RDV_EFFECT_LETTER] = rdv_letter_make,
	[RDV_EFFECT_OUTCOME] = rdv_outcome_report,
	[RDV_EFFECT_RELEASED] = release,
	[RDV_EFFECT_ALARM] = alarm_people,
	[RDV_EFFECT_RESTATE] = rdv_flight_restate,
};

static void run_once(struct rdv_engine *e)
{
	struct rdv_effects *list = e->effects;

	touch_speakers(e, list);
	for (size_t i = 0; i < e->touched_count; i++)
		if (e->touched[i]->lane)
			rdv_lane_flush(e->touched[i]->lane, list);
	if (list->failed)
		rdv_engine_fail(e, "out of memory");
	if (e->failed || !append_records(e, list))
		rdv_effects_clear(list);
	for (size_t i = 0; i < e->touched_count; i++)
		e->touched[i]->touched = false;
	e->touched_count = 0;
	e->effects = list == &e->lists[0] ? &e->lists[1] : &e->lists[0];
	for (size_t i = 0; i < list->count; i++)
		if (deeds[list->items[i].kind])
			deeds[list->items[i].kind](e, &list->items[i]);
	rdv_effects_clear(list);
}

void rdv_effects_run(struct rdv_engine *e)
{
	do
		run_once(e);
	while (!e->failed && (e->effects->count || e->touched_count || e->raw_count));
}
