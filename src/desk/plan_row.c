/* plan_row.c - plans as rows of control.db.
 *
 * The result is derived from the tally, never stored: what is not acked, dead again, skipped or unknown was not
 * reached, so the sum holds at every moment. Once a plan has ended, letters that were sent and have no outcome count as
 * unknown. A draft or approved plan past its time is shown as expired. Callers hold control's mutex. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan.h"

static const char *const state_names[RDV_PLAN_STATE_COUNT] = {
	[RDV_PLAN_DRAFT] = "draft",     [RDV_PLAN_APPROVED] = "approved",   [RDV_PLAN_SAMPLING] = "sampling",
	[RDV_PLAN_RUNNING] = "running", [RDV_PLAN_PAUSED] = "paused",       [RDV_PLAN_FINISHED] = "finished",
	[RDV_PLAN_STOPPED] = "stopped", [RDV_PLAN_CANCELLED] = "cancelled", [RDV_PLAN_EXPIRED] = "expired",
};

const char *rdv_plan_state_name(enum rdv_plan_state s)
{
	return (unsigned)s < RDV_PLAN_STATE_COUNT ? state_names[s] : "unknown";
}

bool rdv_desk_plan_ended(enum rdv_plan_state s)
{
	return s >= RDV_PLAN_FINISHED;
}

static char *preflight_text(const struct rdv_plan *p)
{
	json_t *list = json_array();
	for (size_t i = 0; i < p->preflight_count; i++)
		json_array_append_new(list, json_pack("{ssssss}", "check", p->preflight[i].check, "result",
						      p->preflight[i].result, "detail", p->preflight[i].detail));
	char *text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	return text;
}

static void copy_member(json_t *o, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(o, name));
	snprintf(out, size, "%s", text ? text : "");
}

static void preflight_parse(const char *text, struct rdv_plan *p)
{
	json_t *list = text ? json_loads(text, 0, NULL) : NULL, *item;
	size_t i;
	json_array_foreach(list, i, item)
	{
		if (i == sizeof p->preflight / sizeof p->preflight[0])
			break;
		struct rdv_preflight *f = &p->preflight[i];
		copy_member(item, "check", f->check, sizeof f->check);
		copy_member(item, "result", f->result, sizeof f->result);
		copy_member(item, "detail", f->detail, sizeof f->detail);
		p->preflight_count = i + 1;
	}
	json_decref(list);
}

enum redrive_status rdv_desk_plan_insert(struct rdv_desk_control *c, const struct rdv_plan *p, const char *q,
					 bool order_key)
{
	static const char sql[] = "INSERT INTO plan(number, id, name, q, digest, state, author, reason, target_route, "
				  "rate, ramp_ms, cap, order_key,"
				  " created_at, expires_at, selected, keys, oldest, routes, estimated_ms, preflight)"
				  " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21)";
	static const char tally[] = "INSERT INTO tally(plan, outcome, count) VALUES(?1, 0, ?2)";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql), *t = rdv_desk_control_sql(c, tally);
	char *preflight = preflight_text(p);
	if (!s || !t || !preflight) {
		free(preflight);
		return preflight ? REDRIVE_IO : REDRIVE_NO_MEMORY;
	}
	sqlite3_bind_int64(s, 1, (int64_t)p->number);
	rdv_desk_sql_bind_text(s, 2, p->id);
	rdv_desk_sql_bind_text(s, 3, p->name);
	rdv_desk_sql_bind_text(s, 4, q);
	rdv_desk_sql_bind_text(s, 5, p->digest);
	sqlite3_bind_int(s, 6, p->state);
	rdv_desk_sql_bind_text(s, 7, p->author);
	rdv_desk_sql_bind_text(s, 8, p->reason);
	rdv_desk_sql_bind_text(s, 9, p->target_route);
	sqlite3_bind_double(s, 10, p->rate);
	sqlite3_bind_int64(s, 11, p->ramp_ms);
	sqlite3_bind_int64(s, 12, (int64_t)p->cap);
	sqlite3_bind_int(s, 13, order_key);
	sqlite3_bind_int64(s, 14, p->created_at.ms);
	sqlite3_bind_int64(s, 15, p->expires_at.ms);
	sqlite3_bind_int64(s, 16, (int64_t)p->selected);
	sqlite3_bind_int64(s, 17, (int64_t)p->keys);
	sqlite3_bind_int64(s, 18, p->oldest.ms);
	rdv_desk_sql_bind_text(s, 19, p->routes);
	sqlite3_bind_int64(s, 20, p->estimated_ms);
	rdv_desk_sql_bind_text(s, 21, preflight);
	enum redrive_status status = rdv_desk_sql_run(s);
	free(preflight);
	sqlite3_bind_int64(t, 1, (int64_t)p->number);
	sqlite3_bind_int64(t, 2, (int64_t)p->selected);
	return status == REDRIVE_OK ? rdv_desk_sql_run(t) : status;
}

static void read_row(sqlite3_stmt *s, struct rdv_plan *p)
{
	int state = sqlite3_column_int(s, 4);
	p->number = (uint64_t)sqlite3_column_int64(s, 0);
	rdv_desk_sql_text(s, 1, p->id, sizeof p->id);
	rdv_desk_sql_text(s, 2, p->name, sizeof p->name);
	rdv_desk_sql_text(s, 3, p->digest, sizeof p->digest);
	p->state = state >= 0 && state < RDV_PLAN_STATE_COUNT ? (enum rdv_plan_state)state : RDV_PLAN_STOPPED;
	rdv_desk_sql_text(s, 5, p->author, sizeof p->author);
	rdv_desk_sql_text(s, 6, p->approver, sizeof p->approver);
	rdv_desk_sql_text(s, 7, p->reason, sizeof p->reason);
	rdv_desk_sql_text(s, 8, p->stopped_by, sizeof p->stopped_by);
	rdv_desk_sql_text(s, 9, p->target_route, sizeof p->target_route);
	p->rate = sqlite3_column_double(s, 10);
	p->ramp_ms = sqlite3_column_int64(s, 11);
	p->cap = (uint64_t)sqlite3_column_int64(s, 12);
	p->created_at.ms = sqlite3_column_int64(s, 13);
	p->approved_at.ms = sqlite3_column_int64(s, 14);
	p->started_at.ms = sqlite3_column_int64(s, 15);
	p->ended_at.ms = sqlite3_column_int64(s, 16);
	p->expires_at.ms = sqlite3_column_int64(s, 17);
	p->selected = (uint64_t)sqlite3_column_int64(s, 18);
	p->keys = (uint64_t)sqlite3_column_int64(s, 19);
	p->oldest.ms = sqlite3_column_int64(s, 20);
	rdv_desk_sql_text(s, 21, p->routes, sizeof p->routes);
	p->estimated_ms = sqlite3_column_int64(s, 22);
	preflight_parse((const char *)sqlite3_column_text(s, 23), p);
}

#define COLUMNS                                                                                                        \
	"SELECT number, id, name, digest, state, author, approver, reason, stopped_by, target_route, rate, ramp_ms, "  \
	"cap,"                                                                                                         \
	" created_at, approved_at, started_at, ended_at, expires_at, selected, keys, oldest, routes, estimated_ms, "   \
	"preflight"                                                                                                    \
	" FROM plan WHERE "

enum redrive_status rdv_desk_plan_tally(struct rdv_desk_control *c, uint64_t number,
					uint64_t out[RDV_DESK_OUTCOME_COUNT])
{
	static const char sql[] = "SELECT outcome, count FROM tally WHERE plan = ?1";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	int rc;
	memset(out, 0, RDV_DESK_OUTCOME_COUNT * sizeof out[0]);
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, (int64_t)number);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		int outcome = sqlite3_column_int(s, 0);
		if (outcome >= 0 && outcome < RDV_DESK_OUTCOME_COUNT)
			out[outcome] = (uint64_t)sqlite3_column_int64(s, 1);
	}
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

enum redrive_status rdv_desk_plan_read(struct rdv_desk_control *c, const char *id, uint64_t number,
				       struct rdv_plan *out)
{
	static const char by_id[] = COLUMNS "id = ?1", by_number[] = COLUMNS "number = ?1";
	uint64_t tally[RDV_DESK_OUTCOME_COUNT];
	sqlite3_stmt *s = rdv_desk_control_sql(c, id ? by_id : by_number);
	if (!s)
		return REDRIVE_IO;
	if (id)
		rdv_desk_sql_bind_text(s, 1, id);
	else
		sqlite3_bind_int64(s, 1, (int64_t)number);
	int rc = sqlite3_step(s);
	memset(out, 0, sizeof *out); /* only now: `id` may be the caller's out->id */
	if (rc == SQLITE_ROW)
		read_row(s, out);
	rdv_desk_sql_reset(s);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? REDRIVE_NOT_FOUND : rdv_desk_sql_status(rc);
	if (out->state <= RDV_PLAN_APPROVED && out->expires_at.ms <= rdv_wall_now().ms)
		out->state = RDV_PLAN_EXPIRED;
	enum redrive_status status = rdv_desk_plan_tally(c, out->number, tally);
	out->acked = tally[RDV_DESK_ACKED];
	out->dead_again = tally[RDV_DESK_DEAD_AGAIN];
	out->skipped = tally[RDV_DESK_SKIPPED];
	out->unknown = tally[RDV_DESK_UNKNOWN] + (rdv_desk_plan_ended(out->state) ? tally[RDV_DESK_SENT] : 0);
	out->not_reached = out->selected - out->acked - out->dead_again - out->skipped - out->unknown;
	return status;
}

enum redrive_status rdv_desk_plan_numbers(struct rdv_desk_control *c, uint64_t before, uint64_t *out, size_t max,
					  size_t *count)
{
	static const char sql[] = "SELECT number FROM plan WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	int rc;
	*count = 0;
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, before ? (int64_t)before : INT64_MAX);
	sqlite3_bind_int64(s, 2, (int64_t)max);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW && *count < max)
		out[(*count)++] = (uint64_t)sqlite3_column_int64(s, 0);
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

enum redrive_status rdv_desk_plan_freeze(struct rdv_desk_control *c, uint64_t number, uint64_t position,
					 const uint8_t id[16])
{
	static const char sql[] = "INSERT INTO frozen(plan, position, letter) VALUES(?1, ?2, ?3)";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, (int64_t)number);
	sqlite3_bind_int64(s, 2, (int64_t)position);
	rdv_desk_sql_bind_id(s, 3, id);
	return rdv_desk_sql_run(s);
}

enum redrive_status rdv_desk_plan_update(struct rdv_desk_control *c, const struct rdv_plan *p)
{
	static const char sql[] =
		"UPDATE plan SET state = ?2, approver = ?3, approved_at = ?4, started_at = ?5, ended_at = ?6,"
		" rate = ?7, stopped_by = ?8 WHERE number = ?1";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, (int64_t)p->number);
	sqlite3_bind_int(s, 2, p->state);
	rdv_desk_sql_bind_text(s, 3, p->approver);
	sqlite3_bind_int64(s, 4, p->approved_at.ms);
	sqlite3_bind_int64(s, 5, p->started_at.ms);
	sqlite3_bind_int64(s, 6, p->ended_at.ms);
	sqlite3_bind_double(s, 7, p->rate);
	rdv_desk_sql_bind_text(s, 8, p->stopped_by);
	return rdv_desk_sql_run(s);
}
