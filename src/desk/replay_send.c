/* replay_send.c - the rate, the claim, and the way of a letter into its lane.
 *
 * A letter goes out in two steps. First it is claimed: in one transaction its outcome in the plan becomes `sent` and
 * the letter itself `in_replay`, so that no other plan can take it; letters that may not go are booked as skipped and
 * cost nothing. Then it is given to the lane. A crash between the two leaves a claimed letter that may or may not be in
 * the lane: it is given again, and the lane answers CONFLICT if it has it, open or finished and not yet confirmed. So a
 * letter is never twice in a lane, and none is forgotten. The bucket: rate * time, at most a fifth of a second's worth,
 * so a stall is made up for and a pause is not. During the ramp the rate rises linearly. The window bounds what is in
 * the lanes without an outcome. Runner's thread. */
#include <stdlib.h>
#include "replay_plan.h"

#define RETRY_MS 50

/* ---- the bucket ---- */

void rdv_desk_bucket_fill(struct rdv_desk_run_plan *p, int64_t now_us)
{
	int64_t passed = p->last_us ? now_us - p->last_us : 0;
	double rate = p->rate, most = p->rate * 0.2;
	if (passed < 0)
		passed = 0;
	if (p->ramp_ms > 0 && p->running_us < p->ramp_ms * 1000) {
		double floor = p->rate < 1 ? p->rate : 1;
		rate = p->rate * ((double)p->running_us + (double)passed / 2) / ((double)p->ramp_ms * 1000);
		rate = rate < floor ? floor : rate > p->rate ? p->rate : rate;
	}
	if (p->last_us == 0)
		p->tokens = 1;
	p->last_us = now_us;
	p->running_us += passed;
	p->tokens += rate * (double)passed / 1e6;
	if (most < 2)
		most = 2;
	if (p->tokens > most)
		p->tokens = most;
}

int64_t rdv_desk_bucket_wait(const struct rdv_desk_run_plan *p)
{
	if (p->tokens >= 1)
		return 0;
	double ms = (1 - p->tokens) / p->rate * 1000;
	return ms > 500 ? 500 : (int64_t)ms + 1;
}

uint64_t rdv_desk_plan_window(const struct rdv_desk_run_plan *p)
{
	double window = p->rate * 4;
	return window < 256 ? 256 : window > 10000 ? 10000 : (uint64_t)window;
}

static uint64_t sent_so_far(const struct rdv_desk_run_plan *p)
{
	return p->tally[RDV_DESK_SENT] + p->tally[RDV_DESK_ACKED] + p->tally[RDV_DESK_DEAD_AGAIN] +
	       p->tally[RDV_DESK_UNKNOWN] + p->tally[RDV_DESK_NOT_REACHED];
}

bool rdv_desk_cap_reached(const struct rdv_desk_run_plan *p)
{
	return p->cap && sent_so_far(p) >= p->cap;
}

static size_t allowed(const struct rdv_desk_run_plan *p)
{
	uint64_t n = p->tokens >= 1 ? (uint64_t)p->tokens : 0, window = rdv_desk_plan_window(p);
	uint64_t room = p->tally[RDV_DESK_SENT] < window ? window - p->tally[RDV_DESK_SENT] : 0;
	n = n < room ? n : room;
	if (p->cap) {
		uint64_t left = rdv_desk_cap_reached(p) ? 0 : p->cap - sent_so_far(p);
		n = n < left ? n : left;
	}
	return n < RDV_DESK_CLAIM_ROWS ? (size_t)n : RDV_DESK_CLAIM_ROWS;
}

/* ---- the queue ---- */

static enum redrive_status enqueue(struct rdv_desk_run_plan *p, const struct rdv_desk_queued *q)
{
	if (p->queue_at == p->queue_count)
		p->queue_at = p->queue_count = 0;
	if (p->queue_count == p->queue_capacity) {
		size_t capacity = p->queue_capacity ? p->queue_capacity * 2 : 512;
		void *grown = realloc(p->queue, capacity * sizeof *p->queue);
		if (!grown)
			return REDRIVE_NO_MEMORY;
		p->queue = grown;
		p->queue_capacity = capacity;
	}
	p->queue[p->queue_count++] = *q;
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_queue_load(struct rdv_desk *d, struct rdv_desk_run_plan *p)
{
	static const char sql[] =
		"SELECT position, letter FROM frozen WHERE plan = ?1 AND outcome = 1 ORDER BY position";
	rdv_desk_control_lock(&d->control);
	sqlite3_stmt *s = rdv_desk_control_sql(&d->control, sql);
	enum redrive_status status = s ? REDRIVE_OK : REDRIVE_IO;
	int rc = SQLITE_DONE;
	if (s)
		sqlite3_bind_int64(s, 1, (int64_t)p->number);
	while (s && status == REDRIVE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		struct rdv_desk_queued q = {.position = (uint64_t)sqlite3_column_int64(s, 0), .again = true};
		if (rdv_desk_sql_id(s, 1, q.letter))
			status = enqueue(p, &q);
	}
	if (s)
		rdv_desk_sql_reset(s);
	rdv_desk_control_unlock(&d->control);
	return status == REDRIVE_OK ? rdv_desk_sql_status(rc) : status;
}

/* ---- claiming ---- */

struct candidates {
	struct rdv_desk_queued items[RDV_DESK_CLAIM_ROWS];
	size_t count;
};

static enum redrive_status read_pending(struct rdv_desk_control *c, const struct rdv_desk_run_plan *p, size_t max,
					struct candidates *out)
{
	static const char sql[] =
		"SELECT position, letter FROM frozen WHERE plan = ?1 AND position >= ?2 AND outcome = 0"
		" ORDER BY position LIMIT ?3";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	int rc;
	out->count = 0;
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, (int64_t)p->number);
	sqlite3_bind_int64(s, 2, (int64_t)p->next_position);
	sqlite3_bind_int64(s, 3, (int64_t)max);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW && out->count < max) {
		struct rdv_desk_queued *q = &out->items[out->count];
		*q = (struct rdv_desk_queued){.position = (uint64_t)sqlite3_column_int64(s, 0)};
		out->count += rdv_desk_sql_id(s, 1, q->letter);
	}
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

static enum redrive_status claim_one(struct rdv_desk_control *c, uint64_t plan, const uint8_t letter[16], bool *claimed)
{
	char why[64];
	struct rdv_desk_booking b = {.plan = plan, .outcome = RDV_DESK_SENT};
	memcpy(b.letter, letter, 16);
	enum redrive_status status = rdv_desk_control_claim(c, letter, plan, why);
	*claimed = status == REDRIVE_OK;
	if (status == REDRIVE_CONFLICT) {
		b.outcome = RDV_DESK_SKIPPED;
		b.skipped = why;
		status = REDRIVE_OK;
	}
	return status == REDRIVE_OK ? rdv_desk_book(c, &b) : status;
}

/* Claims up to `want` of the next pending letters; what was claimed is left in `out`. */
static enum redrive_status claim(struct rdv_desk *d, struct rdv_desk_run_plan *p, size_t want, struct candidates *out)
{
	struct rdv_desk_control *c = &d->control;
	size_t kept = 0, seen = 0, max = want * 2 + 16 < RDV_DESK_CLAIM_ROWS ? want * 2 + 16 : RDV_DESK_CLAIM_ROWS;
	uint64_t next = p->next_position;
	out->count = 0;
	rdv_desk_control_lock(c);
	enum redrive_status status = rdv_desk_control_begin(c);
	if (status == REDRIVE_OK)
		status = read_pending(c, p, max, out);
	for (; status == REDRIVE_OK && seen < out->count && kept < want; seen++) {
		bool claimed = false;
		next = out->items[seen].position + 1;
		status = claim_one(c, p->number, out->items[seen].letter, &claimed);
		if (claimed)
			out->items[kept++] = out->items[seen];
	}
	status = rdv_desk_control_end(c, status);
	if (status == REDRIVE_OK) {
		p->next_position = next;
		p->all_claimed = out->count < max && seen == out->count;
		status = rdv_desk_plan_tally(c, p->number, p->tally);
	}
	rdv_desk_control_unlock(c);
	out->count = kept;
	return status;
}

/* ---- giving to the lane ---- */

static enum redrive_status skip(struct rdv_desk *d, struct rdv_desk_run_plan *p, const struct rdv_desk_queued *q,
				const char *why)
{
	struct rdv_desk_booking b = {.plan = p->number, .outcome = RDV_DESK_SKIPPED, .skipped = why};
	memcpy(b.letter, q->letter, 16);
	if (!q->again)
		p->tokens += 1; /* nothing went out */
	enum redrive_status status = rdv_desk_book_one(d, &b);
	if (status == REDRIVE_OK) {
		p->tally[RDV_DESK_SENT]--;
		p->tally[RDV_DESK_SKIPPED]++;
	}
	return status;
}

/* Is a letter that was claimed by an earlier run still without an outcome? */
static bool still_sent(struct rdv_desk *d, uint64_t plan, const uint8_t letter[16])
{
	static const char sql[] = "SELECT 1 FROM frozen WHERE letter = ?1 AND plan = ?2 AND outcome = 1";
	rdv_desk_control_lock(&d->control);
	sqlite3_stmt *s = rdv_desk_control_sql(&d->control, sql);
	bool sent = true;
	if (s) {
		rdv_desk_sql_bind_id(s, 1, letter);
		sqlite3_bind_int64(s, 2, (int64_t)plan);
		sent = sqlite3_step(s) != SQLITE_DONE;
		rdv_desk_sql_reset(s);
	}
	rdv_desk_control_unlock(&d->control);
	return sent;
}

/* The letter's envelope as a block of its own; *has_body. */
static enum redrive_status load(struct rdv_desk *d, const uint8_t letter[16], struct rdv_block **out, bool *has_body)
{
	struct rdv_desk_place place;
	struct rdv_letter_frame frame;
	struct rdv_desk_reader *r = rdv_desk_reader_take(&d->store);
	enum redrive_status status = rdv_desk_reader_find(&d->store, r, letter, &place);
	if (status == REDRIVE_OK)
		status = rdv_desk_reader_frame(&d->store, r, place, &frame);
	if (status == REDRIVE_OK) {
		*has_body = frame.has_body;
		*out = rdv_block_copy(frame.envelope);
		status = *out ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	}
	rdv_desk_reader_give(&d->store, r);
	return status;
}

static enum redrive_status hand_over(struct rdv_desk *d, const struct rdv_desk_run_plan *p, const uint8_t letter[16],
				     const struct rdv_envelope *e)
{
	char route[101], topic[256];
	rdv_slice_to_text(e->route, route, sizeof route);
	rdv_slice_to_text(e->topic, topic, sizeof topic);
	struct rdv_replay_send send = {
		.plan = p->number,
		.plan_id = p->id,
		.route = p->target_route[0] ? p->target_route : route,
		.topic = topic,
		.partition = e->partition,
		.offset = e->offset,
		.has_key = !e->null_key,
		.key = e->key,
		.generation = e->generation,
	};
	memcpy(send.letter, letter, 16);
	return d->runtime.replay ? d->runtime.replay(d->runtime.ctx, &send) : REDRIVE_CLOSED;
}

/* What the lane's answer means. */
enum answer { TAKEN, LATER, NEVER };
static enum answer answer_of(enum redrive_status status)
{
	if (status == REDRIVE_OK || status == REDRIVE_CONFLICT)
		return TAKEN;
	enum rdv_status_class class = rdv_status_info(status)->class;
	return class == RDV_CLASS_RETRY || class == RDV_CLASS_OURS || status == REDRIVE_FAILED ? LATER : NEVER;
}

static const char *why_never(enum redrive_status status)
{
	return status == REDRIVE_NOT_FOUND ? "route gone"
	       : status == REDRIVE_REFUSED ? "lane in another process"
					   : rdv_status_info(status)->text;
}

/* OK: settled one way or the other. Anything else: it stays the next one. */
static enum redrive_status send_one(struct rdv_desk *d, struct rdv_desk_run_plan *p, struct rdv_desk_queued *q)
{
	struct rdv_block *bytes = NULL;
	struct rdv_envelope e;
	bool has_body = false;
	if (q->again && !still_sent(d, p->number, q->letter))
		return REDRIVE_OK;
	enum redrive_status status = load(d, q->letter, &bytes, &has_body);
	if (status == REDRIVE_NOT_FOUND)
		return skip(d, p, q, "letter gone");
	if (status == REDRIVE_CORRUPT ||
	    (status == REDRIVE_OK && rdv_envelope_decode(rdv_block_slice(bytes), &e) != REDRIVE_OK))
		status = skip(d, p, q, "letter damaged");
	else if (status == REDRIVE_OK && !has_body)
		status = skip(d, p, q, "no body");
	else if (status == REDRIVE_OK) {
		status = hand_over(d, p, q->letter, &e);
		if (answer_of(status) == TAKEN) {
			p->tokens -= status == REDRIVE_OK && q->again ? 1 : 0;
			status = REDRIVE_OK;
		} else if (answer_of(status) == NEVER) {
			status = skip(d, p, q, why_never(status));
		} else {
			q->again = true; /* an answer may be lost behind it */
		}
	}
	rdv_block_unref(bytes);
	return status;
}

/* Somebody acted on a plan: what is claimed waits until the runner has looked. */
static bool interrupted(struct rdv_desk_replays *r)
{
	pthread_mutex_lock(&r->mutex);
	bool yes = r->changed || r->stopping;
	pthread_mutex_unlock(&r->mutex);
	return yes;
}

static enum redrive_status send_queue(struct rdv_desk *d, struct rdv_desk_run_plan *p)
{
	enum redrive_status status = REDRIVE_OK;
	while (p->queue_at < p->queue_count && status == REDRIVE_OK && !interrupted(&d->replays)) {
		status = send_one(d, p, &p->queue[p->queue_at]);
		p->queue_at += status == REDRIVE_OK;
	}
	return status;
}

enum redrive_status rdv_desk_plan_send(struct rdv_desk *d, struct rdv_desk_run_plan *p, bool *more)
{
	*more = false;
	enum redrive_status status = send_queue(d, p);
	size_t want = status == REDRIVE_OK && !p->all_claimed ? allowed(p) : 0;
	if (want && p->queue_at == p->queue_count) {
		struct candidates *found = malloc(sizeof *found);
		status = found ? claim(d, p, want, found) : REDRIVE_NO_MEMORY;
		for (size_t i = 0; status == REDRIVE_OK && i < found->count; i++) {
			p->tokens -= 1;
			status = enqueue(p, &found->items[i]);
		}
		/* Skipped letters cost no time: the next ones may be looked at at once. */
		*more = status == REDRIVE_OK && found->count < want && !p->all_claimed;
		free(found);
	}
	if (status == REDRIVE_OK)
		status = send_queue(d, p);
	if (status != REDRIVE_OK)
		p->retry_at.ms = rdv_mono_now().ms + RETRY_MS;
	return status;
}
