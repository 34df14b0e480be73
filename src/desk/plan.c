/* plan.c - plans from outside: create, get, list, letters.
 *
 * Creating freezes the set in slices, so that nobody waits long for the control database, and writes the plan's row
 * last: a plan exists with all of its letters or not at all (rows without a plan are removed at the next open). Any
 * thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "../base/text.h"
#include "plan.h"
#include "room.h"

#define DEFAULT_RATE 50.0
#define MOST_RATE 1000000.0
#define DEFAULT_EXPIRY_MS (7 * 86400000ll)
#define FREEZE_SLICE 2000u

static enum redrive_status check_request(const struct rdv_plan_request *r, struct rdv_error *error)
{
	if (isnan(r->rate) || r->rate < 0 || r->rate > MOST_RATE)
		return rdv_error_set(error, REDRIVE_INVALID, "rate: more than 0 and at most %.0f/s", MOST_RATE);
	if (r->ramp_ms < 0 || r->ramp_ms > 86400000)
		return rdv_error_set(error, REDRIVE_INVALID, "ramp_ms: 0 to 86400000");
	if (r->expires_at.ms && r->expires_at.ms <= rdv_wall_now().ms)
		return rdv_error_set(error, REDRIVE_INVALID, "expires_at: must lie in the future");
	if (r->target_route && strlen(r->target_route) > 100)
		return rdv_error_set(error, REDRIVE_INVALID, "target: a route's name has at most 100 characters");
	return REDRIVE_OK;
}

/* Numbers rise with time, so that they stay unique even if control.db is lost: lanes may still know the old ones. */
static uint64_t next_number(struct rdv_desk_control *c)
{
	rdv_desk_control_lock(c);
	int64_t number = rdv_wall_now().ms;
	if (number <= c->newest_plan)
		number = c->newest_plan + 1;
	c->newest_plan = number;
	rdv_desk_control_unlock(c);
	return (uint64_t)number;
}

static void number_text(uint64_t number, char out[64])
{
	char digits[16];
	size_t n = 0;
	do
		digits[n++] = "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36];
	while ((number /= 36) && n < sizeof digits);
	memcpy(out, "rp-", 3);
	for (size_t i = 0; i < n; i++)
		out[3 + i] = digits[n - 1 - i];
	out[3 + n] = 0;
}

static void describe(struct rdv_plan *p, const struct rdv_plan_request *r, const struct rdv_desk_set *set)
{
	p->state = RDV_PLAN_DRAFT;
	p->selected = p->not_reached = set->count;
	p->rate = r->rate > 0 ? r->rate : DEFAULT_RATE;
	p->ramp_ms = r->ramp_ms;
	p->cap = r->cap;
	p->created_at = rdv_wall_now();
	p->expires_at = r->expires_at;
	if (!p->expires_at.ms)
		p->expires_at.ms = p->created_at.ms + DEFAULT_EXPIRY_MS;
	snprintf(p->name, sizeof p->name, "%s", r->name ? r->name : "");
	snprintf(p->author, sizeof p->author, "%s", r->author ? r->author : "");
	snprintf(p->reason, sizeof p->reason, "%s", r->reason ? r->reason : "");
	snprintf(p->target_route, sizeof p->target_route, "%s", r->target_route ? r->target_route : "");
}

static enum redrive_status freeze_slice(struct rdv_desk_control *c, uint64_t number, const struct rdv_desk_set *set,
					size_t from)
{
	size_t to = from + FREEZE_SLICE < set->count ? from + FREEZE_SLICE : set->count;
	rdv_desk_control_lock(c);
	enum redrive_status status = rdv_desk_control_begin(c);
	for (size_t i = from; i < to && status == REDRIVE_OK; i++)
		status = rdv_desk_plan_freeze(c, number, i, set->items[i].id);
	status = rdv_desk_control_end(c, status);
	rdv_desk_control_unlock(c);
	return status;
}

static enum redrive_status write_plan(struct rdv_desk_control *c, const struct rdv_plan *p,
				      const struct rdv_plan_request *r, const struct rdv_desk_set *set)
{
	char detail[160];
	enum redrive_status status = REDRIVE_OK;
	for (size_t from = 0; from < set->count && status == REDRIVE_OK; from += FREEZE_SLICE)
		status = freeze_slice(c, p->number, set, from);
	if (status != REDRIVE_OK)
		return status;
	snprintf(detail, sizeof detail, "%zu letters, %s", set->count, p->digest);
	struct rdv_desk_audit_entry entry = {p->author, "replay.plan", p->id, detail};
	rdv_desk_control_lock(c);
	status = rdv_desk_control_begin(c);
	if (status == REDRIVE_OK)
		status = rdv_desk_plan_insert(c, p, r->q, r->order_key);
	if (status == REDRIVE_OK)
		status = rdv_desk_control_audit(c, &entry);
	status = rdv_desk_control_end(c, status);
	rdv_desk_control_unlock(c);
	return status;
}

enum redrive_status rdv_plan_create(struct rdv_desk *d, const struct rdv_plan_request *r, struct rdv_plan *out,
				    struct rdv_error *error)
{
	struct rdv_desk_set set = {0};
	memset(out, 0, sizeof *out);
	enum redrive_status status = check_request(r, error);
	if (status == REDRIVE_OK)
		status = rdv_desk_set_choose(d, r, &set, error);
	if (status != REDRIVE_OK)
		return status;
	describe(out, r, &set);
	out->number = next_number(&d->control);
	number_text(out->number, out->id);
	status = rdv_desk_set_digest(&set, out->digest);
	if (status == REDRIVE_OK) {
		rdv_desk_plan_examine(d, &set, out);
		status = write_plan(&d->control, out, r, &set);
	}
	if (status != REDRIVE_OK)
		rdv_error_set(error, status, "the plan cannot be stored: %s", rdv_status_info(status)->text);
	rdv_desk_set_done(&set);
	return status;
}

enum redrive_status rdv_plan_get(struct rdv_desk *d, const char *id, struct rdv_plan *out)
{
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_plan_read(&d->control, id, 0, out);
	rdv_desk_control_unlock(&d->control);
	return status;
}

static bool cursor_number(const char *cursor, uint64_t *out)
{
	char again[RDV_CURSOR_TEXT];
	unsigned long long n;
	*out = 0;
	if (!cursor[0])
		return true;
	n = strtoull(cursor, NULL, 10);
	snprintf(again, sizeof again, "%llu", n);
	*out = n;
	return strcmp(again, cursor) == 0;
}

enum redrive_status rdv_plan_list(struct rdv_desk *d, size_t limit, char cursor[RDV_CURSOR_TEXT],
				  void (*each)(void *ctx, const struct rdv_plan *plan), void *ctx)
{
	uint64_t before, numbers[1001];
	size_t count = 0;
	if (limit == 0 || limit > 1000 || !cursor_number(cursor, &before))
		return REDRIVE_INVALID;
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_plan_numbers(&d->control, before, numbers, limit + 1, &count);
	rdv_desk_control_unlock(&d->control);
	cursor[0] = 0;
	if (status == REDRIVE_OK && count > limit)
		snprintf(cursor, RDV_CURSOR_TEXT, "%llu", (unsigned long long)numbers[limit - 1]);
	for (size_t i = 0; i < count && i < limit && status == REDRIVE_OK; i++) {
		struct rdv_plan p;
		rdv_desk_control_lock(&d->control);
		status = rdv_desk_plan_read(&d->control, NULL, numbers[i], &p);
		rdv_desk_control_unlock(&d->control);
		if (status == REDRIVE_OK)
			each(ctx, &p);
	}
	return status;
}

/* ---- the letters of a plan ---- */

/* How an outcome is shown: when the plan has ended, what is pending was not reached, and what was sent is unknown. */
static enum rdv_desk_outcome shown(int outcome, bool ended)
{
	if (outcome < 0 || outcome >= RDV_DESK_OUTCOME_COUNT)
		return RDV_DESK_UNKNOWN;
	if (ended && outcome == RDV_DESK_PENDING)
		return RDV_DESK_NOT_REACHED;
	return ended && outcome == RDV_DESK_SENT ? RDV_DESK_UNKNOWN : (enum rdv_desk_outcome)outcome;
}

static bool outcome_mask(const char *name, bool ended, int *mask)
{
	*mask = 0;
	for (int i = 0; i < RDV_DESK_OUTCOME_COUNT; i++)
		if (!name || !name[0] || strcmp(rdv_desk_outcome_names[shown(i, ended)], name) == 0)
			*mask |= 1 << i;
	for (int i = 0; i < RDV_DESK_OUTCOME_COUNT && name; i++)
		if (strcmp(rdv_desk_outcome_names[i], name) == 0)
			return true;
	return !name || !name[0];
}

struct letters_question {
	uint64_t plan, after;
	int mask;
	bool ended;
	size_t limit;
};

static enum redrive_status read_letters(struct rdv_desk_control *c, const struct letters_question *q,
					struct rdv_plan_letter *out, size_t *count, uint64_t *last)
{
	static const char sql[] = "SELECT position, letter, outcome, skipped, attempts, at FROM frozen WHERE plan = ?1"
				  " AND position >= ?2 AND (?3 >> outcome) & 1 ORDER BY position LIMIT ?4";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	uint8_t id[16];
	int rc;
	*count = 0;
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, (int64_t)q->plan);
	sqlite3_bind_int64(s, 2, (int64_t)q->after);
	sqlite3_bind_int(s, 3, q->mask);
	sqlite3_bind_int64(s, 4, (int64_t)q->limit);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW && *count < q->limit) {
		struct rdv_plan_letter *l = &out[(*count)++];
		*last = (uint64_t)sqlite3_column_int64(s, 0);
		if (rdv_desk_sql_id(s, 1, id))
			rdv_base32_128(id, l->letter);
		snprintf(l->outcome, sizeof l->outcome, "%s",
			 rdv_desk_outcome_names[shown(sqlite3_column_int(s, 2), q->ended)]);
		rdv_desk_sql_text(s, 3, l->skipped_reason, sizeof l->skipped_reason);
		l->attempts = (uint32_t)sqlite3_column_int64(s, 4);
		l->at.ms = sqlite3_column_int64(s, 5);
	}
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

enum redrive_status rdv_plan_letters(struct rdv_desk *d, const char *id, const char *outcome, size_t limit,
				     char cursor[RDV_CURSOR_TEXT],
				     void (*each)(void *ctx, const struct rdv_plan_letter *l), void *ctx)
{
	struct rdv_plan p;
	struct letters_question q = {.limit = limit + 1};
	size_t count = 0;
	uint64_t last = 0;
	if (limit == 0 || limit > 100000 || !cursor_number(cursor, &q.after))
		return REDRIVE_INVALID;
	struct rdv_plan_letter *letters = calloc(limit + 1, sizeof *letters);
	if (!letters)
		return REDRIVE_NO_MEMORY;
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_plan_read(&d->control, id, 0, &p);
	q.plan = p.number;
	q.ended = status == REDRIVE_OK && rdv_desk_plan_ended(p.state);
	if (status == REDRIVE_OK && !outcome_mask(outcome, q.ended, &q.mask))
		status = REDRIVE_INVALID;
	if (status == REDRIVE_OK)
		status = read_letters(&d->control, &q, letters, &count, &last);
	rdv_desk_control_unlock(&d->control);
	cursor[0] = 0;
	/* The cursor is the position of the first one of the next page. */
	if (status == REDRIVE_OK && count > limit)
		snprintf(cursor, RDV_CURSOR_TEXT, "%llu", (unsigned long long)last);
	for (size_t i = 0; i < count && i < limit && status == REDRIVE_OK; i++)
		each(ctx, &letters[i]);
	free(letters);
	return status;
}
