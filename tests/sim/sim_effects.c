/* sim_effects.c - executes effects as the runtime does, keeps the turn's batch, appends it, trims the tail.
 *
 * Effects are executed in their order; before each of them the process may die. Records are collected: a turn's records
 * are one batch, appended at the turn's end, when each lane has flushed. Nothing of a turn that died before its append
 * is in the log, but what was executed before (calls, letters) has happened. */
#include "world.h"
#include <assert.h>
#include <stdlib.h>

static struct sim_deed *add_deed(struct sim_world *w, struct rdv_slice payload)
{
	struct sim_deed *d;

	if (w->deed_count == w->deed_capacity) {
		w->deed_capacity = w->deed_capacity ? w->deed_capacity * 2 : 256;
		w->deeds = realloc(w->deeds, w->deed_capacity * sizeof *w->deeds);
		assert(w->deeds);
	}
	d = &w->deeds[w->deed_count++];
	*d = (struct sim_deed){.frame.at = (uint32_t)w->deed_bytes.size, .frame.size = (uint32_t)payload.size};
	rdv_buffer_slice(&w->deed_bytes, payload);
	return d;
}

void sim_record(struct sim_world *w, struct sim_lane *l, const struct sim_frame *frame, struct rdv_slice payload)
{
	struct sim_deed *d = add_deed(w, payload);

	d->lane = l;
	d->frame.type = frame->type;
	d->frame.stream = frame->stream;
	d->frame.seq = frame->seq;
	d->frame.hint = (uint16_t)payload.size;
}

static void do_record(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	struct sim_deed *d = add_deed(w, rdv_effects_bytes(&w->effects, e->record.at, e->record.size));

	if (e->record.hint_size > e->record.size)
		sim_fail(w, "a %s record's hint is longer than it", rdv_record_name(e->record.type));
	d->lane = l;
	d->entry = e->entry;
	d->owns_state = e->record.owns_state;
	d->frame.type = e->record.type;
	d->frame.stream = l->stream;
	d->frame.seq = e->record.record_seq;
	d->frame.hint = e->record.hint_size;
}

static void do_released(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	uint32_t *live = sim_log_live(&w->log, e->released.segment);

	if (e->released.segment < w->log.tail || *live < e->released.count)
		sim_fail(w, "lane %u released %u records of segment %u, which has %u", l->index, e->released.count,
			 e->released.segment, *live);
	*live -= e->released.count;
}

static void do_dispatch(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	sim_check_dispatch(w, l, e);
	sim_call_begin(w, l, e);
}

static void do_restate(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	sim_at(w, sim_between(w, 0, 3),
	       (struct sim_event){.kind = SIM_EV_HISTORY,
				  .a = l->index,
				  .b = e->entry,
				  .epoch = l->epoch,
				  .c = (uint64_t)e->restate.segment << 32 | e->restate.offset});
}

static void do_nothing(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
}

static void do_alarm(struct sim_world *w, struct sim_lane *l, const struct rdv_effect *e)
{
	struct rdv_slice text = rdv_effects_bytes(&w->effects, e->alarm.at, e->alarm.size);

	sim_trace(w, "alarm P%u: %.*s", e->alarm.severity, (int)text.size, (const char *)text.data);
}

static void (*const deeds[RDV_EFFECT_KIND_COUNT])(struct sim_world *w, struct sim_lane *l,
						  const struct rdv_effect *e) = {
	[RDV_EFFECT_DISPATCH] = do_dispatch, [RDV_EFFECT_FETCH] = do_nothing,    [RDV_EFFECT_RECORD] = do_record,
	[RDV_EFFECT_LETTER] = sim_letter,    [RDV_EFFECT_OUTCOME] = sim_outcome, [RDV_EFFECT_RELEASED] = do_released,
	[RDV_EFFECT_ALARM] = do_alarm,       [RDV_EFFECT_RESTATE] = do_restate,
};

void sim_execute(struct sim_world *w)
{
	if (w->effects.failed)
		sim_fail(w, "effects ran out of memory");
	/* A deed may add effects (dedupe): the list grows while it is walked. */
	for (size_t i = 0; i < w->effects.count && !w->crashed; i++) {
		struct rdv_effect e = w->effects.items[i];
		if (!w->healing && sim_chance(w, w->options.crash)) {
			sim_trace(w, "dies before effect %zu of %zu", i, w->effects.count);
			w->crashed = true;
			break;
		}
		deeds[e.kind](w, sim_lane_of(w, e.lane), &e);
	}
	rdv_effects_clear(&w->effects);
}

/* ---- trimming ---- */

/* Copies the record if a lane owns it. Lanes that have finished a BODY say so again behind the copy. */
static void trim_body(struct sim_world *w, const struct sim_frame *f)
{
	bool owned = false;
	struct sim_deed *d;
	uint32_t entry;

	for (uint32_t i = 0; i < w->lane_count; i++)
		if (sim_partition_of(w, &w->lanes[i])->stream == f->stream)
			owned |= rdv_lane_owns(w->lanes[i].lane, f->type, f->seq, f->place, &entry);
	if (!owned)
		return;
	d = add_deed(w, sim_log_payload(&w->log, f));
	d->moved = true;
	d->old = f->place;
	d->frame =
		(struct sim_frame){f->type, f->stream, f->seq, f->hint, false, true, d->frame.at, d->frame.size, {0}};
	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (sim_partition_of(w, l)->stream == f->stream && f->seq >= l->start && f->seq < l->end &&
		    !rdv_lane_owns(l->lane, f->type, f->seq, f->place, &entry))
			rdv_lane_done_again(l->lane, f->seq, &w->effects);
	}
}

static void trim_state(struct sim_world *w, const struct sim_frame *f)
{
	struct sim_lane *l = sim_lane_by_stream(w, f->stream);
	struct sim_deed *d;
	uint32_t entry;

	if (!rdv_lane_owns(l->lane, f->type, f->seq, f->place, &entry))
		return;
	d = add_deed(w, sim_log_payload(&w->log, f));
	d->lane = l;
	d->moved = true;
	d->old = f->place;
	d->frame =
		(struct sim_frame){f->type, f->stream, f->seq, f->hint, false, true, d->frame.at, d->frame.size, {0}};
}

/* Trimming more often than what lives is worth would only copy it round and round. */
static bool wants_trim(struct sim_world *w)
{
	struct sim_log *log = &w->log;
	uint32_t needed = w->options.keep_segments + w->lane_count * 800 / log->segment_size;

	if (!w->options.trims || w->trim_ticket || w->t < w->next_trim || log->segment - log->tail < needed)
		return false;
	for (uint32_t s = log->tail; s <= log->segment; s++)
		needed += *sim_log_live(log, s) ? 2 : 0;
	return log->segment - log->tail >= needed;
}

void sim_trim(struct sim_world *w)
{
	struct sim_log *log = &w->log;

	if (!wants_trim(w))
		return;
	for (size_t i = 0; i < log->count && log->frames[i].place.segment == log->tail; i++)
		if (log->first + i > log->durable)
			return;
	sim_trace(w, "trims segment %u", log->tail);
	w->trimming = true;
	w->next_trim = w->t + sim_between(w, 0, 500);
	for (size_t i = 0; i < log->count && log->frames[i].place.segment == log->tail; i++) {
		struct sim_frame f = log->frames[i];
		if (f.type == RDV_RECORD_BODY)
			trim_body(w, &f);
		else if (f.type == RDV_RECORD_STATE)
			trim_state(w, &f);
	}
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++) {
		struct rdv_rewrite done = {0};
		bool all = false;

		while (!all && !w->crashed) {
			uint32_t budget = 5;

			all = rdv_lane_rewrite(w->lanes[i].lane, log->tail, &done, &budget, &w->effects);
			sim_execute(w);
		}
	}
}

/* ---- the end of a turn ---- */

static void moved(struct sim_world *w, struct sim_deed *d)
{
	uint32_t entry;

	for (uint32_t i = 0; i < w->lane_count; i++) {
		struct sim_lane *l = &w->lanes[i];
		if (d->lane ? d->lane != l : sim_partition_of(w, l)->stream != d->frame.stream)
			continue;
		if (!rdv_lane_owns(l->lane, d->frame.type, d->frame.seq, d->old, &entry))
			continue;
		--*sim_log_live(&w->log, d->old.segment);
		++*sim_log_live(&w->log, d->frame.place.segment);
		rdv_lane_moved(l->lane, d->frame.type, d->frame.seq, d->frame.place);
	}
}

static void note_unrecorded(struct sim_lane *l, uint64_t ticket, int64_t mono)
{
	uint32_t n = l->unrecorded_count;

	if (n < sizeof l->unrecorded / sizeof l->unrecorded[0] && (!n || l->unrecorded[n - 1].ticket != ticket))
		l->unrecorded[l->unrecorded_count++] = (struct sim_unrecorded){ticket, mono};
}

static void append(struct sim_world *w)
{
	uint64_t ticket = sim_log_last(&w->log) + w->deed_count;

	for (size_t i = 0; i < w->deed_count; i++) {
		struct sim_deed *d = &w->deeds[i];
		struct rdv_slice payload = rdv_slice(w->deed_bytes.data + d->frame.at, d->frame.size);

		d->frame.more = i + 1 < w->deed_count;
		sim_log_append(&w->log, &d->frame, payload);
		sim_learn(w, &d->frame, payload, false);
		if (d->moved)
			moved(w, d);
		if (d->owns_state) {
			++*sim_log_live(&w->log, d->frame.place.segment);
			rdv_lane_placed(d->lane->lane, d->entry, d->frame.place);
		}
		if (d->lane && !d->moved &&
		    (d->frame.type == RDV_RECORD_STATE || (d->frame.type == RDV_RECORD_DONE && !w->trimming)))
			note_unrecorded(d->lane, ticket, sim_now(w).mono.ms);
	}
	for (uint32_t i = 0; i < w->lane_count; i++)
		rdv_lane_appended(w->lanes[i].lane, ticket);
	for (size_t i = 0; i < w->call_count; i++)
		if (w->calls[i].open && w->calls[i].wait_ticket == UINT64_MAX)
			w->calls[i].wait_ticket = ticket;
}

void sim_turn_end(struct sim_world *w)
{
	sim_trim(w);
	for (uint32_t i = 0; i < w->lane_count && !w->crashed; i++) {
		rdv_lane_flush(w->lanes[i].lane, &w->effects);
		sim_execute(w);
	}
	if (w->crashed)
		return;
	if (w->deed_count)
		append(w);
	if (w->trimming) {
		if (*sim_log_live(&w->log, w->log.tail))
			sim_fail(w, "%u live records left in the trimmed segment %u",
				 *sim_log_live(&w->log, w->log.tail), w->log.tail);
		w->trim_ticket = sim_log_last(&w->log);
	}
	w->trimming = false;
	w->deed_count = 0;
	rdv_buffer_clear(&w->deed_bytes);
	if (!w->syncing && sim_log_last(&w->log) > w->log.durable) {
		w->syncing = sim_log_last(&w->log);
		sim_at(w, sim_chance(w, 0.01) ? w->options.stall_ms : sim_between(w, 0, w->options.sync_ms),
		       (struct sim_event){.kind = SIM_EV_SYNCED, .c = w->syncing});
	}
}
