/* inlet_batch.c - the lanes' records, letters and positions go to the broker, one batch at a time.
 *
 * A batch takes in whole turns: what one turn recorded for a lane goes together, so that its counters are true of its
 * records, and a letter goes with its DONE. While it is on its way the next one collects. When it is done, everything
 * its lanes had recorded up to then is durable, and they go on; what was refused belongs to lanes that are lost. A
 * batch that takes long stops its lanes by itself: they dispatch nothing when outcomes have been unrecorded for two
 * seconds. Core thread, but for done. */
#include "inlet.h"
#include <stdlib.h>

/* ---- seal ---- */

static bool writes_now(const struct rdv_inlet_lane *l)
{
	return l->dirty &&
	       (l->stage == RDV_INLET_OPEN || l->stage == RDV_INLET_CLOSING || l->stage == RDV_INLET_CLOSED);
}

static bool make_room(struct rdv_inlet *in, size_t lanes, size_t letters)
{
	if (lanes > in->write_capacity) {
		struct rdv_source_write *writes = realloc(in->batch.writes, lanes * sizeof *writes);
		struct rdv_inlet_lane **writers = realloc(in->writers, lanes * sizeof(struct rdv_inlet_lane *));
		bool *refused = realloc(in->batch.refused, lanes * sizeof *refused);

		in->batch.writes = writes ? writes : in->batch.writes;
		in->writers = writers ? writers : in->writers;
		in->batch.refused = refused ? refused : in->batch.refused;
		if (!writes || !writers || !refused)
			return false;
		in->write_capacity = lanes;
	}
	if (letters > in->letter_capacity) {
		struct rdv_source_letter *list = realloc(in->letters, letters * sizeof *list);

		if (!list)
			return false;
		in->letters = list;
		in->letter_capacity = letters;
	}
	return true;
}

/* What has ended without ever having been in the journal, and is not below the position. */
static bool put_loose(struct rdv_inlet_lane *l, uint64_t position)
{
	struct rdv_buffer bytes;
	bool good = true;
	size_t kept = 0;

	for (size_t i = 0; i < l->loose_count; i++) {
		struct rdv_run run = l->loose[i];
		uint64_t end = run.first + run.count;

		if (end <= position)
			continue;
		if (run.first < position) {
			run.first = position;
			run.count = end - position;
		}
		l->loose[kept++] = run;
	}
	l->loose_count = 0;
	if (!kept)
		return true;
	for (size_t i = 0; i < kept; i++)
		rdv_inlet_note_end(l, &l->loose[i]);
	rdv_buffer_init(&bytes, 0);
	rdv_runs_encode(l->loose, kept, &bytes);
	good = !bytes.failed && rdv_inlet_put(l, RDV_RECORD_DONE, 0, rdv_buffer_as_slice(&bytes));
	rdv_buffer_done(&bytes);
	return good;
}

static bool put_close(struct rdv_inlet_lane *l)
{
	struct rdv_buffer bytes;
	bool good;

	rdv_buffer_init(&bytes, 0);
	rdv_close_encode(&bytes);
	good = !bytes.failed && rdv_inlet_put(l, RDV_RECORD_CLOSE, 0, rdv_buffer_as_slice(&bytes));
	rdv_buffer_done(&bytes);
	return good;
}

/* A lane's share; CLOSE stays behind all else but the position: by it the next owner knows that nothing was cut off. */
static bool seal_lane(struct rdv_inlet_lane *l, struct rdv_source_write *out)
{
	uint64_t position = l->progress.position;
	bool good = put_loose(l, position);
	struct rdv_buffer sent;

	if (l->counters.size)
		good = rdv_inlet_put(l, RDV_RECORD_COUNTERS, 0, rdv_buffer_as_slice(&l->counters)) && good;
	rdv_buffer_clear(&l->counters);
	if (l->ends)
		good = put_close(l) && good;
	*out = (struct rdv_source_write){
		.lane = l->source,
		.position = position,
		.moved = position != l->position_sent || rdv_inlet_checkpoint_begins(l),
		.last = l->stage == RDV_INLET_CLOSED,
	};
	if (out->moved)
		good = rdv_inlet_put(l, RDV_SOURCE_POSITION, position, rdv_slice(NULL, 0)) && good;
	sent = l->sent; /* the memory of the last batch serves the next one */
	l->sent = l->records;
	l->records = sent;
	rdv_buffer_clear(&l->records);
	out->records = rdv_buffer_as_slice(&l->sent);
	l->position_sent = position;
	l->dirty = false;
	l->writing = true;
	rdv_inlet_checkpoint_sealed(l);
	return good;
}

static void seal_letters(struct rdv_inlet *in)
{
	struct rdv_inlet_letters going = in->going;

	in->going = in->waiting;
	in->waiting = going;
	in->waiting.count = 0;
	in->batch.letters = in->letters;
	in->batch.letter_count = 0;
	for (size_t i = 0; i < in->going.count; i++) {
		const struct rdv_inlet_letter *l = &in->going.items[i];

		in->letters[in->batch.letter_count++] = (struct rdv_source_letter){
			l->lane->source, rdv_block_slice(l->envelope), rdv_block_slice(l->body), l->body != NULL};
	}
}

static void unref_letter(struct rdv_inlet_letter *l)
{
	rdv_block_unref(l->envelope);
	rdv_block_unref(l->body);
}

void rdv_inlet_drop_letters(struct rdv_inlet_lane *in)
{
	struct rdv_inlet_letters *list = &in->inlet->waiting;
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		if (list->items[i].lane == in)
			unref_letter(&list->items[i]);
		else
			list->items[kept++] = list->items[i];
	}
	list->count = kept;
}

static void done(void *ctx, struct rdv_source_batch *batch, enum redrive_status status)
{
	struct rdv_inlet *in = ctx;

	(void)batch;
	pthread_mutex_lock(&in->mutex);
	in->done = true;
	in->done_status = status;
	pthread_mutex_unlock(&in->mutex);
	rdv_engine_wake(in->engine);
}

static bool is_time(const struct rdv_engine *e, const struct rdv_inlet *in, size_t bytes, bool last)
{
	return last || in->hurry || bytes >= RDV_INLET_BATCH_BYTES ||
	       e->now.mono.ms - in->sent_ms >= RDV_INLET_EVERY_MS;
}

void rdv_inlet_seal(struct rdv_engine *e, struct rdv_inlet *in)
{
	size_t lanes = 0, bytes = 0, at = 0;
	bool last = false, good;

	if (in->sent)
		return;
	for (const struct rdv_inlet_lane *l = in->lanes; l; l = l->next) {
		lanes += writes_now(l);
		bytes += writes_now(l) ? l->records.size : 0;
		last = last || (writes_now(l) && l->stage == RDV_INLET_CLOSED);
	}
	if (!lanes || !is_time(e, in, bytes, last))
		return;
	good = make_room(in, lanes, in->waiting.count);
	for (struct rdv_inlet_lane *l = in->lanes; l && good; l = l->next) {
		if (!writes_now(l))
			continue;
		in->writers[at] = l;
		in->batch.refused[at] = false;
		good = seal_lane(l, &in->batch.writes[at++]);
	}
	if (!good) {
		rdv_engine_fail(e, "out of memory");
		return;
	}
	in->batch.write_count = at;
	seal_letters(in);
	in->batch.done = done;
	in->batch.ctx = in;
	in->ticket = e->last_ticket;
	in->sent_ms = e->now.mono.ms;
	in->sent = true;
	in->hurry = false;
	in->source->ops->commit(in->source, &in->batch);
}

/* ---- done ---- */

static void drop_letters(struct rdv_inlet *in)
{
	for (size_t i = 0; i < in->going.count; i++)
		unref_letter(&in->going.items[i]);
	in->going.count = 0;
}

/* A record whose message follows when it has been read counts when both are there. */
static bool has_reads(const struct rdv_inlet *in)
{
	for (const struct rdv_inlet_lane *l = in->lanes; l; l = l->next)
		if (l->reading)
			return true;
	return false;
}

static void release_starting(struct rdv_engine *e, struct rdv_inlet_lane *l)
{
	l->durable_ticket = l->inlet->ticket;
	while (l->starting && l->starting->ticket <= l->durable_ticket) {
		struct rdv_flight *f = l->starting;

		l->starting = f->wait_next;
		rdv_flight_hand_over(e, f);
	}
	if (!l->starting)
		l->starting_end = &l->starting;
}

void rdv_inlet_take(struct rdv_engine *e, struct rdv_inlet *in)
{
	bool ended;
	enum redrive_status status;

	pthread_mutex_lock(&in->mutex);
	ended = in->done;
	status = in->done_status;
	in->done = false;
	pthread_mutex_unlock(&in->mutex);
	if (!ended)
		return;
	in->sent = false;
	drop_letters(in);
	if (!has_reads(in))
		in->durable_ticket = in->ticket; /* of lanes that are lost nobody asks any more */
	for (size_t i = 0; i < in->batch.write_count; i++) {
		struct rdv_inlet_lane *l = in->writers[i];

		if (status != REDRIVE_OK && (status != REDRIVE_CONFLICT || in->batch.refused[i]))
			rdv_inlet_lost(e, l); /* what came after it must not be written without it */
		l->writing = false;
		if (l->stage == RDV_INLET_LOST)
			continue;
		release_starting(e, l);
		rdv_lane_durable(l->strand->lane, e->now, in->ticket, e->effects);
		rdv_strand_nudge(e, l->strand);
		rdv_inlet_checkpoint_durable(l, in->batch.writes[i].journal_first);
	}
	if (status == REDRIVE_TOO_LARGE)
		rdv_engine_say(e, 0, "route %s: the broker takes no record of that size: nothing more is recorded",
			       in->route->info->name);
}
