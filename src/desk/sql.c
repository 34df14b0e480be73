/* sql.c - small helpers around SQLite: statuses, statements, ids.
 *
 * Binding never fails here but for memory, which the following step reports. Statements are reset as soon as their row
 * was read, so that no reader holds back a checkpoint. One thread at a time per connection. */
#include <stdio.h>
#include "sql.h"

enum redrive_status rdv_desk_sql_status(int rc)
{
	static const struct {
		int rc;
		enum redrive_status status;
	} table[] = {
		{SQLITE_OK, REDRIVE_OK},
		{SQLITE_ROW, REDRIVE_OK},
		{SQLITE_DONE, REDRIVE_OK},
		{SQLITE_BUSY, REDRIVE_BUSY},
		{SQLITE_LOCKED, REDRIVE_BUSY},
		{SQLITE_NOMEM, REDRIVE_NO_MEMORY},
		{SQLITE_FULL, REDRIVE_FULL},
		{SQLITE_IOERR, REDRIVE_IO},
		{SQLITE_CANTOPEN, REDRIVE_IO},
		{SQLITE_CORRUPT, REDRIVE_CORRUPT},
		{SQLITE_NOTADB, REDRIVE_CORRUPT},
		{SQLITE_READONLY, REDRIVE_IO},
		{SQLITE_PERM, REDRIVE_IO},
		{SQLITE_CONSTRAINT, REDRIVE_CONFLICT},
		{SQLITE_INTERRUPT, REDRIVE_TIMEOUT},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].rc == (rc & 0xff))
			return table[i].status;
	return REDRIVE_INTERNAL;
}

enum redrive_status rdv_desk_sql_error(sqlite3 *db, int rc, struct rdv_error *error, const char *what)
{
	return rdv_error_set(error, rdv_desk_sql_status(rc), "%s: %s", what,
			     db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

enum redrive_status rdv_desk_sql_open(const char *path, int flags, sqlite3 **out)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc != SQLITE_OK) {
		sqlite3_close(db);
		return rdv_desk_sql_status(rc);
	}
	sqlite3_busy_timeout(db, 2000);
	sqlite3_extended_result_codes(db, 1);
	*out = db;
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_sql_exec(sqlite3 *db, const char *sql)
{
	return rdv_desk_sql_status(sqlite3_exec(db, sql, NULL, NULL, NULL));
}

enum redrive_status rdv_desk_sql_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out)
{
	return rdv_desk_sql_status(sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL));
}

void rdv_desk_sql_reset(sqlite3_stmt *s)
{
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
}

enum redrive_status rdv_desk_sql_run(sqlite3_stmt *s)
{
	int rc = sqlite3_step(s);
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

void rdv_desk_sql_text(sqlite3_stmt *s, int column, char *out, size_t size)
{
	const unsigned char *text = sqlite3_column_text(s, column);
	snprintf(out, size, "%s", text ? (const char *)text : "");
}

void rdv_desk_sql_bind_text(sqlite3_stmt *s, int at, const char *text)
{
	if (text)
		sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
	else
		sqlite3_bind_null(s, at);
}

void rdv_desk_sql_bind_id(sqlite3_stmt *s, int at, const uint8_t id[16])
{
	sqlite3_bind_blob(s, at, id, 16, SQLITE_STATIC);
}

bool rdv_desk_sql_id(sqlite3_stmt *s, int column, uint8_t id[16])
{
	const void *blob = sqlite3_column_blob(s, column);
	if (!blob || sqlite3_column_bytes(s, column) != 16)
		return false;
	memcpy(id, blob, 16);
	return true;
}
