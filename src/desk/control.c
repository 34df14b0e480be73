/* control.c - control.db: opening, migrations, statements, a letter's decided state, audit.
 *
 * The schema is a list of steps; user_version says how many were taken, each in its own transaction. A step never
 * changes once released. Statements are prepared once and found by the address of their text. What always holds: a
 * letter is claimed by at most one plan at a time; a decision and its audit line are one transaction. Callers hold the
 * mutex, but for open and close. Any thread. */
#include <stdio.h>
#include <stdlib.h>
#include "control.h"

const char *const rdv_desk_outcome_names[RDV_DESK_OUTCOME_COUNT] = {
	[RDV_DESK_PENDING] = "pending",         [RDV_DESK_SENT] = "sent",       [RDV_DESK_ACKED] = "acked",
	[RDV_DESK_DEAD_AGAIN] = "dead_again",   [RDV_DESK_SKIPPED] = "skipped", [RDV_DESK_UNKNOWN] = "unknown",
	[RDV_DESK_NOT_REACHED] = "not_reached",
};

static const char *const migrations[] = {
	"CREATE TABLE plan(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT, q TEXT, digest TEXT NOT "
	"NULL,"
	" state INTEGER NOT NULL, author TEXT, approver TEXT, reason TEXT, stopped_by TEXT, target_route TEXT,"
	" rate REAL NOT NULL, ramp_ms INTEGER NOT NULL, cap INTEGER NOT NULL, order_key INTEGER NOT NULL,"
	" created_at INTEGER NOT NULL, approved_at INTEGER, started_at INTEGER, ended_at INTEGER, expires_at INTEGER "
	"NOT NULL,"
	" selected INTEGER NOT NULL, keys INTEGER, oldest INTEGER, routes TEXT, estimated_ms INTEGER, preflight TEXT);"
	"CREATE TABLE frozen(plan INTEGER NOT NULL, position INTEGER NOT NULL, letter BLOB NOT NULL,"
	" outcome INTEGER NOT NULL DEFAULT 0, skipped TEXT, attempts INTEGER, at INTEGER, PRIMARY KEY(plan, position))"
	" WITHOUT ROWID;"
	"CREATE UNIQUE INDEX frozen_letter ON frozen(letter, plan);"
	"CREATE INDEX frozen_sent ON frozen(plan, position) WHERE outcome = 1;"
	"CREATE TABLE tally(plan INTEGER NOT NULL, outcome INTEGER NOT NULL, count INTEGER NOT NULL,"
	" PRIMARY KEY(plan, outcome)) WITHOUT ROWID;"
	"CREATE TRIGGER frozen_tally AFTER UPDATE OF outcome ON frozen WHEN old.outcome <> new.outcome BEGIN"
	" UPDATE tally SET count = count - 1 WHERE plan = old.plan AND outcome = old.outcome;"
	" INSERT INTO tally VALUES(new.plan, new.outcome, 1) ON CONFLICT(plan, outcome) DO UPDATE SET count = count + "
	"1;"
	" END;"
	"CREATE TABLE letter(id BLOB PRIMARY KEY, state INTEGER NOT NULL, before INTEGER, plan INTEGER, next BLOB, "
	"owner TEXT,"
	" note TEXT, conclusion TEXT, resolution TEXT, hold INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL) WITHOUT "
	"ROWID;"
	"CREATE TABLE audit(seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, who TEXT, action TEXT NOT NULL,"
	" target TEXT, detail TEXT, hash BLOB);",
	"CREATE TABLE bookmark(topic TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL,"
	" PRIMARY KEY(topic, partition)) WITHOUT ROWID;",
};
#define MIGRATIONS ((int)(sizeof migrations / sizeof migrations[0]))

#define STATEMENTS 48
struct rdv_desk_statement {
	const char *sql;
	sqlite3_stmt *statement;
};

sqlite3_stmt *rdv_desk_control_sql(struct rdv_desk_control *c, const char *sql)
{
	for (size_t i = 0; i < STATEMENTS; i++) {
		struct rdv_desk_statement *s = &c->statements[i];
		if (s->sql == sql)
			return s->statement;
		if (s->sql)
			continue;
		if (rdv_desk_sql_prepare(c->db, sql, &s->statement) != REDRIVE_OK)
			return NULL;
		s->sql = sql;
		return s->statement;
	}
	return NULL;
}

enum redrive_status rdv_desk_control_begin(struct rdv_desk_control *c)
{
	return rdv_desk_sql_exec(c->db, "BEGIN IMMEDIATE");
}

enum redrive_status rdv_desk_control_end(struct rdv_desk_control *c, enum redrive_status status)
{
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_exec(c->db, "COMMIT");
	if (status != REDRIVE_OK && !sqlite3_get_autocommit(c->db))
		sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

static int schema_version(sqlite3 *db)
{
	sqlite3_stmt *s = NULL;
	int version = -1;
	if (rdv_desk_sql_prepare(db, "PRAGMA user_version", &s) == REDRIVE_OK && sqlite3_step(s) == SQLITE_ROW)
		version = sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	return version;
}

/* What a crash left of plans that were being made; the newest number that was given out. */
static enum redrive_status tidy(struct rdv_desk_control *c)
{
	sqlite3_stmt *s = NULL;
	enum redrive_status status =
		rdv_desk_sql_exec(c->db, "DELETE FROM frozen WHERE plan NOT IN (SELECT number FROM plan)");
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_prepare(c->db, "SELECT max(number) FROM plan", &s);
	if (status == REDRIVE_OK && sqlite3_step(s) == SQLITE_ROW)
		c->newest_plan = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return status;
}

static enum redrive_status migrate(struct rdv_desk_control *c, struct rdv_error *error)
{
	int version = schema_version(c->db);
	enum redrive_status status = REDRIVE_OK;
	if (version < 0)
		return rdv_desk_sql_error(c->db, sqlite3_errcode(c->db), error, "cannot be read");
	if (version > MIGRATIONS)
		return rdv_error_set(error, REDRIVE_VERSION, "version %d, this program knows %d", version, MIGRATIONS);
	for (; version < MIGRATIONS && status == REDRIVE_OK; version++) {
		char mark[64];
		snprintf(mark, sizeof mark, "PRAGMA user_version = %d", version + 1);
		status = rdv_desk_control_begin(c);
		if (status == REDRIVE_OK)
			status = rdv_desk_sql_exec(c->db, migrations[version]);
		if (status == REDRIVE_OK)
			status = rdv_desk_sql_exec(c->db, mark);
		status = rdv_desk_control_end(c, status);
	}
	if (status != REDRIVE_OK)
		return rdv_error_set(error, status, "migration to version %d: %s", version, sqlite3_errmsg(c->db));
	return status;
}

enum redrive_status rdv_desk_control_open(struct rdv_desk_control *c, const char *path, struct rdv_error *error)
{
	memset(c, 0, sizeof *c);
	pthread_mutex_init(&c->mutex, NULL);
	pthread_mutex_init(&c->turn, NULL);
	c->statements = calloc(STATEMENTS, sizeof *c->statements);
	enum redrive_status status = c->statements ? REDRIVE_OK : REDRIVE_NO_MEMORY;
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &c->db);
	if (status == REDRIVE_OK) {
		status = migrate(c, error);
		if (status != REDRIVE_OK)
			rdv_error_prefix(error, status, "decisions '%s'", path);
	}
	/* After the version is known: journal_mode writes. */
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_exec(c->db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
	if (status == REDRIVE_OK)
		status = tidy(c);
	if (status != REDRIVE_OK) {
		if (error && !error->text[0])
			rdv_error_set(error, status, "decisions '%s': %s", path,
				      c->db ? sqlite3_errmsg(c->db) : "cannot be opened");
		rdv_desk_control_close(c);
	}
	return status;
}

void rdv_desk_control_close(struct rdv_desk_control *c)
{
	if (!c || !c->statements)
		return;
	for (size_t i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(c->statements[i].statement);
	sqlite3_close(c->db);
	free(c->statements);
	pthread_mutex_destroy(&c->mutex);
	pthread_mutex_destroy(&c->turn);
	memset(c, 0, sizeof *c);
}

/* ---- a letter's decided state ---- */

enum redrive_status rdv_desk_control_letter(struct rdv_desk_control *c, const uint8_t id[16],
					    struct rdv_desk_decided *out)
{
	static const char sql[] =
		"SELECT l.state, l.plan, l.next, p.id FROM letter l LEFT JOIN plan p ON p.number = l.plan"
		" WHERE l.id = ?1";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	memset(out, 0, sizeof *out);
	if (!s)
		return REDRIVE_IO;
	rdv_desk_sql_bind_id(s, 1, id);
	int rc = sqlite3_step(s);
	if (rc == SQLITE_ROW) {
		int state = sqlite3_column_int(s, 0);
		out->state =
			state >= 0 && state < RDV_LETTER_STATE_COUNT ? (enum rdv_letter_state)state : RDV_LETTER_NEW;
		out->plan = (uint64_t)sqlite3_column_int64(s, 1);
		out->has_next = rdv_desk_sql_id(s, 2, out->next);
		rdv_desk_sql_text(s, 3, out->plan_id, sizeof out->plan_id);
	}
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

/* Which states let a letter be replayed; the others say why not. */
static const char *why_not(const struct rdv_desk_decided *d, uint64_t plan)
{
	static const char *const words[RDV_LETTER_STATE_COUNT] = {
		[RDV_LETTER_IN_REPLAY] = "in another plan",
		[RDV_LETTER_REPLAYED] = "already replayed",
		[RDV_LETTER_RESOLVED] = "resolved",
		[RDV_LETTER_DISCARDED] = "discarded",
	};
	if (d->state == RDV_LETTER_IN_REPLAY && d->plan == plan)
		return NULL;
	return words[d->state];
}

enum redrive_status rdv_desk_control_claim(struct rdv_desk_control *c, const uint8_t id[16], uint64_t plan,
					   char why[64])
{
	static const char sql[] = "INSERT INTO letter(id, state, before, plan, at) VALUES(?1, 3, ?2, ?3, ?4)"
				  " ON CONFLICT(id) DO UPDATE SET state = 3, before = ?2, plan = ?3, at = ?4";
	struct rdv_desk_decided d;
	enum redrive_status status = rdv_desk_control_letter(c, id, &d);
	if (status != REDRIVE_OK)
		return status;
	const char *words = why_not(&d, plan);
	if (words) {
		snprintf(why, 64, "%s%s%.40s", words, d.plan_id[0] ? " " : "", d.plan_id);
		return REDRIVE_CONFLICT;
	}
	if (d.state == RDV_LETTER_IN_REPLAY)
		return REDRIVE_OK;
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	rdv_desk_sql_bind_id(s, 1, id);
	sqlite3_bind_int(s, 2, d.state);
	sqlite3_bind_int64(s, 3, (int64_t)plan);
	sqlite3_bind_int64(s, 4, rdv_wall_now().ms);
	return rdv_desk_sql_run(s);
}
_Static_assert(RDV_LETTER_IN_REPLAY == 3 && RDV_LETTER_REPLAYED == 4, "as in the statements");

enum redrive_status rdv_desk_control_release(struct rdv_desk_control *c, const uint8_t id[16], uint64_t plan,
					     bool replayed, const uint8_t *next)
{
	static const char done[] = "INSERT INTO letter(id, state, before, plan, next, at) VALUES(?1, 4, 0, ?2, ?3, ?4)"
				   " ON CONFLICT(id) DO UPDATE SET state = 4, plan = ?2, next = ?3, at = ?4"
				   " WHERE plan IS NULL OR plan = ?2";
	static const char back[] = "UPDATE letter SET state = coalesce(before, 0), plan = NULL, at = ?4"
				   " WHERE id = ?1 AND plan = ?2 AND state = 3";
	sqlite3_stmt *s = rdv_desk_control_sql(c, replayed ? done : back);
	if (!s)
		return REDRIVE_IO;
	rdv_desk_sql_bind_id(s, 1, id);
	sqlite3_bind_int64(s, 2, (int64_t)plan);
	if (replayed && next)
		rdv_desk_sql_bind_id(s, 3, next);
	sqlite3_bind_int64(s, 4, rdv_wall_now().ms);
	return rdv_desk_sql_run(s);
}

enum redrive_status rdv_desk_control_audit(struct rdv_desk_control *c, const struct rdv_desk_audit_entry *entry)
{
	static const char sql[] = "INSERT INTO audit(at, who, action, target, detail) VALUES(?1, ?2, ?3, ?4, ?5)";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);
	if (!s)
		return REDRIVE_IO;
	sqlite3_bind_int64(s, 1, rdv_wall_now().ms);
	rdv_desk_sql_bind_text(s, 2, entry->who);
	rdv_desk_sql_bind_text(s, 3, entry->action);
	rdv_desk_sql_bind_text(s, 4, entry->target);
	rdv_desk_sql_bind_text(s, 5, entry->detail);
	return rdv_desk_sql_run(s);
}
