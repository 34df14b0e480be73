/* commit.c - the transaction thread: batches of the runtime and OPENs of lanes, one transaction after the other.
 *
 * A batch is refused for lanes that are dead, at the latest moment: which are, and with which snapshot of the group, is
 * read under one lock. When the broker refuses the snapshot, the batch waits for the next one, and is sent again for
 * the lanes that are left then; a lane that is being given up does not wait, as the next assignment waits for it. When
 * nobody knows what became of a transaction, its lanes are dead and opened again: the journal tells. A batch that the
 * broker will never take (a record is larger than its topic allows) stops the source. */
#include <stdio.h>
#include <stdlib.h>
#include "source_parts.h"

/* A static member's successor has our writer's name. Whoever makes the writer anew takes it away from the other one; so
 * first the group gets time to tell which of us is the member: a heartbeat and a bit. */
#define HOLD_MS 4000

bool rdv_kafka_commit_may_write(const struct rdv_kafka_source *s)
{
	return s->snapshot && s->snapshot->number != s->refused_number && rdv_mono_now().ms >= s->hold_until.ms;
}

void rdv_kafka_commit_hold(struct rdv_kafka_source *s, enum redrive_status st)
{
	if (st == REDRIVE_BUSY || (st == REDRIVE_FAILED && s->config.instance))
		s->hold_until.ms = rdv_mono_now().ms + HOLD_MS;
}

/* All under the lock. */

static void refuse(struct rdv_kafka_source *s, struct rdv_source_batch *b, size_t i)
{
	struct rdv_source_lane *lane = b->writes[i].lane;

	b->refused[i] = true;
	lane->refused = true;
	lane->dead = true;
	lane->finished = true;
}

/* Marks what is not to be written; how many remain. */
static size_t sieve(struct rdv_kafka_source *s, struct rdv_source_batch *b)
{
	bool blocked = !s->snapshot || s->snapshot->number == s->refused_number;
	size_t live = 0;

	for (size_t i = 0; i < b->write_count; i++) {
		struct rdv_source_lane *lane = b->writes[i].lane;

		if (lane->dead || (lane->closing && blocked))
			refuse(s, b, i);
		if (!b->refused[i])
			live++;
	}
	return live;
}

static void finish(struct rdv_kafka_source *s, enum redrive_status status)
{
	s->batch_ran = true;
	s->batch_status = status;
	rdv_kafka_source_tell(s, &s->batch_work, RDV_KAFKA_WORK_DONE);
}

static void written(struct rdv_kafka_source *s, struct rdv_source_batch *b)
{
	bool all = true;

	rdv_kafka_step_note_offsets(s, b);
	for (size_t i = 0; i < b->write_count; i++) {
		struct rdv_source_write *w = &b->writes[i];

		all = all && !b->refused[i];
		if (b->refused[i])
			continue;
		if (w->moved)
			w->lane->position_at = w->journal_first;
		if (w->last)
			w->lane->finished = true;
	}
	finish(s, all ? REDRIVE_OK : REDRIVE_CONFLICT);
}

static void unknown(struct rdv_kafka_source *s, struct rdv_source_batch *b)
{
	for (size_t i = 0; i < b->write_count; i++) {
		struct rdv_source_lane *lane = b->writes[i].lane;
		bool was_dead = lane->dead;

		if (b->refused[i])
			continue;
		refuse(s, b, i);
		if (!was_dead) /* else the consumer thread has left it, and its work may be anywhere */
			rdv_kafka_source_tell(s, &lane->work, RDV_KAFKA_WORK_REOPEN);
	}
	finish(s, REDRIVE_FAILED);
}

/* Nothing was written, and sending it again would not help: what comes behind it must not be written either, so the
 * source stops (batch_done). */
static void hopeless(struct rdv_kafka_source *s, struct rdv_source_batch *b, enum redrive_status st, const char *why)
{
	for (size_t i = 0; i < b->write_count; i++)
		if (!b->refused[i])
			refuse(s, b, i);
	rdv_slice_to_text(rdv_slice_text(why), s->batch_why, sizeof s->batch_why);
	finish(s, st);
}

static void conclude(struct rdv_kafka_source *s, struct rdv_source_batch *b, enum redrive_status st, uint64_t number,
		     const char *why)
{
	rdv_kafka_commit_hold(s, st);
	if (st == REDRIVE_OK)
		written(s, b);
	else if (st == REDRIVE_BUSY)
		return; /* again, later */
	else if (st == REDRIVE_CONFLICT)
		s->refused_number = number; /* and again, with the next snapshot */
	else if (st == REDRIVE_FAILED || st == REDRIVE_NO_MEMORY)
		unknown(s, b);
	else if (st == REDRIVE_CLOSED)
		finish(s, st);
	else
		hopeless(s, b, st, why);
}

static bool have_firsts(struct rdv_kafka_source *s, size_t writes)
{
	size_t *more;

	if (writes < s->firsts_capacity)
		return true;
	more = realloc(s->firsts, (writes + 64) * sizeof *more);
	if (!more)
		return false;
	s->firsts = more;
	s->firsts_capacity = writes + 64;
	return true;
}

/* The lock is given up meanwhile. */
static void run_batch(struct rdv_kafka_source *s, struct rdv_source_batch *b)
{
	struct rdv_kafka_snapshot *snapshot = rdv_kafka_snapshot_ref(s);
	struct rdv_error error = {{0}};
	enum redrive_status st;

	pthread_mutex_unlock(&s->lock);
	do {
		st = have_firsts(s, b->write_count) ? rdv_kafka_step_batch(s, b) : REDRIVE_NO_MEMORY;
		if (st == REDRIVE_OK)
			st = rdv_kafka_step_run(s, snapshot, &error);
		if (st == REDRIVE_REFUSED)
			rdv_kafka_copies_off(s, &error);
	} while (st == REDRIVE_REFUSED); /* once: then there are no copies */
	rdv_kafka_step_end(s);
	if (!error.text[0])
		rdv_error_set(&error, st, "%s", redrive_status_text(st));
	if (st != REDRIVE_OK && st != REDRIVE_CONFLICT && st != REDRIVE_CLOSED)
		rdv_kafka_source_say(s, 0, "transaction: %s", error.text);
	pthread_mutex_lock(&s->lock);
	conclude(s, b, st, snapshot->number, error.text);
	rdv_kafka_snapshot_unref(snapshot);
}

/* True: something was done. */
static bool turn(struct rdv_kafka_source *s)
{
	if (s->batch && !s->batch_ran) {
		if (!sieve(s, s->batch)) {
			finish(s, REDRIVE_CONFLICT);
			return true;
		}
		if (rdv_kafka_commit_may_write(s)) {
			run_batch(s, s->batch);
			return true;
		}
	}
	if (!s->fences.first || !rdv_kafka_commit_may_write(s))
		return false;
	rdv_kafka_fence_run(s);
	return true;
}

void *rdv_kafka_transaction_main(void *source)
{
	struct rdv_kafka_source *s = source;
	struct rdv_error error = {{0}};

	/* Connections, metadata and the producer's id, before somebody waits for them; what fails here fails again. */
	if (rdv_kafka_txn_warm(s->txn, &error) != REDRIVE_OK)
		rdv_kafka_source_say(s, 1, "transaction: %s", error.text);
	pthread_mutex_lock(&s->lock);
	while (!s->quit) {
		if (s->batch && !s->batch_ran && atomic_load(&s->txn_stop))
			finish(s, REDRIVE_CLOSED);
		else if (!turn(s))
			rdv_kafka_source_wait(s, &s->transaction_work,
					      s->hold_until.ms > rdv_mono_now().ms ? 100 : 1000);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}
