/* replay_book.c - outcomes into control.db.
 *
 * The core thread only queues a report. The runner books a batch in one transaction and calls `stored` after it is
 * durable; a crash before that lets the lane report again, and booking twice changes nothing: acked and dead again are
 * final. Anything weaker (sent, not reached, unknown, skipped) gives way to what really happened. The id of the letter
 * that followed a second death is computed from the old one, before the mutex is taken, since reading needs a reader
 * and readers take the mutex. Runner's thread, but for rdv_desk_outcome. */
#include <stdlib.h>
#include "../base/text.h"
#include "replay_plan.h"

#define BATCH 1000u

void rdv_desk_outcome(struct rdv_desk *d, uint64_t plan, const uint8_t letter[16], enum rdv_state outcome,
		      uint32_t attempts, const char *route, const char *topic, uint32_t partition, uint64_t request)
{
	struct rdv_desk_replays *r = &d->replays;
	size_t route_size = strlen(route) + 1, topic_size = strlen(topic) + 1;
	struct rdv_desk_report *report = malloc(sizeof *report + route_size + topic_size);
	if (!report) {
		rdv_desk_say(&d->say, 0, "no memory for a replay's outcome: it is reported again after a restart");
		return;
	}
	*report = (struct rdv_desk_report){
		.plan = plan, .request = request, .outcome = outcome, .attempts = attempts, .partition = partition};
	memcpy(report->letter, letter, 16);
	report->route = memcpy((char *)(report + 1), route, route_size);
	report->topic = memcpy((char *)(report + 1) + route_size, topic, topic_size);
	pthread_mutex_lock(&r->mutex);
	*r->reports_tail = report;
	r->reports_tail = &report->next;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->mutex);
}

static enum rdv_desk_outcome outcome_of(enum rdv_state s)
{
	switch (s) {
	case RDV_STATE_ACKED:
	case RDV_STATE_DROPPED: /* the handler's own final word */
	case RDV_STATE_DONE:
		return RDV_DESK_ACKED;
	case RDV_STATE_DEAD:
	case RDV_STATE_DYING:
	case RDV_STATE_REVOKED: /* ends in a letter with that reason */
		return RDV_DESK_DEAD_AGAIN;
	case RDV_STATE_READY: /* taken back before any delivery */
		return RDV_DESK_NOT_REACHED;
	default:
		return RDV_DESK_UNKNOWN;
	}
}

/* The outcome that a letter has in the plan; NOT_FOUND. */
static enum redrive_status outcome_now(struct rdv_desk_control *c, const struct rdv_desk_booking *b,
				       enum rdv_desk_outcome *out)
{
	static const char sql[] = "SELECT outcome FROM frozen WHERE letter = ?1 AND plan = ?2";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	rdv_desk_sql_bind_id(s, 1, b->letter);
	sqlite3_bind_int64(s, 2, (int64_t)b->plan);
	int rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*out = (enum rdv_desk_outcome)sqlite3_column_int(s, 0);
	rdv_desk_sql_reset(s);
	return rc == SQLITE_DONE ? REDRIVE_NOT_FOUND : rdv_desk_sql_status(rc);
}

enum redrive_status rdv_desk_book(struct rdv_desk_control *c, const struct rdv_desk_booking *b)
{
	static const char sql[] = "UPDATE frozen SET outcome = ?3, attempts = ?4, skipped = ?5, at = ?6"
				  " WHERE letter = ?1 AND plan = ?2";
	enum rdv_desk_outcome now = RDV_DESK_PENDING;
	enum redrive_status status = outcome_now(c, b, &now);
	if (status != REDRIVE_OK)
		return status;
	if (now == RDV_DESK_ACKED || now == RDV_DESK_DEAD_AGAIN || now == b->outcome)
		return REDRIVE_OK;
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	rdv_desk_sql_bind_id(s, 1, b->letter);
	sqlite3_bind_int64(s, 2, (int64_t)b->plan);
	sqlite3_bind_int(s, 3, b->outcome);
	sqlite3_bind_int64(s, 4, b->attempts);
	rdv_desk_sql_bind_text(s, 5, b->skipped);
	sqlite3_bind_int64(s, 6, rdv_wall_now().ms);
	status = rdv_desk_sql_run(s);
	bool replayed = b->outcome == RDV_DESK_ACKED || b->outcome == RDV_DESK_DEAD_AGAIN;
	if (status == REDRIVE_OK && b->outcome != RDV_DESK_SENT)
		status = rdv_desk_control_release(c, b->letter, b->plan, replayed, b->next);
	return status;
}

enum redrive_status rdv_desk_book_one(struct rdv_desk *d, const struct rdv_desk_booking *b)
{
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_control_begin(&d->control);
	if (status == REDRIVE_OK)
		status = rdv_desk_book(&d->control, b);
	status = rdv_desk_control_end(&d->control, status);
	rdv_desk_control_unlock(&d->control);
	return status;
}

/* Of the letter that the route made when this one died again: the same message, one generation on. */
static bool next_id(struct rdv_desk *d, const struct rdv_desk_report *report, uint8_t next[16])
{
	char id[27];
	struct rdv_letter l;
	rdv_base32_128(report->letter, id);
	if (rdv_desk_get(d, id, &l) != REDRIVE_OK)
		return false;
	l.envelope.generation++;
	l.envelope.route = rdv_slice_text(report->route);
	rdv_envelope_id(&l.envelope, next);
	rdv_letter_done(&l);
	return true;
}

struct entry {
	struct rdv_desk_report *report;
	bool has_next;
	uint8_t next[16];
};

static enum redrive_status book_batch(struct rdv_desk *d, const struct entry *entries, size_t n)
{
	uint64_t strangers = 0;
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_control_begin(&d->control);
	for (size_t i = 0; i < n && status == REDRIVE_OK; i++) {
		const struct rdv_desk_report *report = entries[i].report;
		struct rdv_desk_booking b = {
			.plan = report->plan,
			.outcome = outcome_of(report->outcome),
			.attempts = report->attempts,
			.next = entries[i].has_next ? entries[i].next : NULL,
		};
		memcpy(b.letter, report->letter, 16);
		status = rdv_desk_book(&d->control, &b);
		strangers += status == REDRIVE_NOT_FOUND;
		if (status == REDRIVE_NOT_FOUND)
			status = REDRIVE_OK;
	}
	status = rdv_desk_control_end(&d->control, status);
	rdv_desk_control_unlock(&d->control);
	if (strangers && status == REDRIVE_OK)
		rdv_desk_say(&d->say, 1, "%llu outcomes of replays that are not known here",
			     (unsigned long long)strangers);
	return status;
}

static size_t take_reports(struct rdv_desk_replays *r, struct entry *entries)
{
	size_t n = 0;
	pthread_mutex_lock(&r->mutex);
	while (r->reports && n < BATCH) {
		entries[n] = (struct entry){.report = r->reports};
		r->reports = r->reports->next;
		n++;
	}
	if (!r->reports)
		r->reports_tail = &r->reports;
	pthread_mutex_unlock(&r->mutex);
	return n;
}

static void give_back(struct rdv_desk_replays *r, struct entry *entries, size_t n)
{
	pthread_mutex_lock(&r->mutex);
	while (n-- > 0) {
		if (!r->reports)
			r->reports_tail = &entries[n].report->next;
		entries[n].report->next = r->reports;
		r->reports = entries[n].report;
	}
	pthread_mutex_unlock(&r->mutex);
}

enum redrive_status rdv_desk_book_reports(struct rdv_desk_replays *r, size_t *booked)
{
	struct rdv_desk *d = r->desk;
	struct entry *entries = calloc(BATCH, sizeof *entries);
	*booked = 0;
	if (!entries)
		return REDRIVE_NO_MEMORY;
	size_t n = take_reports(r, entries);
	for (size_t i = 0; i < n; i++)
		if (outcome_of(entries[i].report->outcome) == RDV_DESK_DEAD_AGAIN)
			entries[i].has_next = next_id(d, entries[i].report, entries[i].next);
	enum redrive_status status = n ? book_batch(d, entries, n) : REDRIVE_OK;
	if (status == REDRIVE_OK) {
		for (size_t i = 0; i < n; i++) {
			struct rdv_desk_report *report = entries[i].report;
			if (d->runtime.stored)
				d->runtime.stored(d->runtime.ctx, report->route, report->topic, report->partition,
						  report->request);
			free(report);
		}
		*booked = n;
	} else {
		give_back(r, entries, n);
	}
	free(entries);
	return status;
}

enum redrive_status rdv_desk_book_unknown(struct rdv_desk *d, uint64_t plan)
{
	static const char back[] =
		"UPDATE letter SET state = coalesce(before, 0), plan = NULL WHERE plan = ?1 AND state = 3"
		" AND id IN (SELECT letter FROM frozen WHERE plan = ?1 AND outcome = 1)";
	static const char mark[] = "UPDATE frozen SET outcome = 5 WHERE plan = ?1 AND outcome = 1";
	struct rdv_desk_control *c = &d->control;
	rdv_desk_control_lock(c);
	enum redrive_status status = rdv_desk_control_begin(c);
	const char *const steps[] = {back, mark};
	for (size_t i = 0; i < 2 && status == REDRIVE_OK; i++) {
		sqlite3_stmt *s = rdv_desk_control_sql(c, steps[i]);
		if (s)
			sqlite3_bind_int64(s, 1, (int64_t)plan);
		status = s ? rdv_desk_sql_run(s) : REDRIVE_IO;
	}
	status = rdv_desk_control_end(c, status);
	rdv_desk_control_unlock(c);
	return status;
}
_Static_assert(RDV_DESK_SENT == 1 && RDV_DESK_UNKNOWN == 5, "as in the statements");
