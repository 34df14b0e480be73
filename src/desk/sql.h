/* sql.h - the few things every user of SQLite in this room needs: statuses, short statements.
 * A connection is used by one thread at a time (SQLITE_OPEN_NOMUTEX). */
#ifndef RDV_DESK_SQL_H
#define RDV_DESK_SQL_H
#include <sqlite3.h>
#include "../base/clock.h"

/* SQLite's result as ours: OK for OK, ROW, DONE. */
enum redrive_status rdv_desk_sql_status(int rc);
/* Sets the error to "<what>: <SQLite's words>". */
enum redrive_status rdv_desk_sql_error(sqlite3 *db, int rc, struct rdv_error *error, const char *what);
enum redrive_status rdv_desk_sql_open(const char *path, int flags, sqlite3 **out) RDV_MUST_CHECK;
enum redrive_status rdv_desk_sql_exec(sqlite3 *db, const char *sql) RDV_MUST_CHECK;
/* Prepares once, for the connection's life; SQL NULL-terminated. */
enum redrive_status rdv_desk_sql_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out) RDV_MUST_CHECK;
/* Steps once, resets, forgets the bindings. */
enum redrive_status rdv_desk_sql_run(sqlite3_stmt *s) RDV_MUST_CHECK;
void rdv_desk_sql_reset(sqlite3_stmt *s);
void rdv_desk_sql_text(sqlite3_stmt *s, int column, char *out, size_t size);
void rdv_desk_sql_bind_text(sqlite3_stmt *s, int at, const char *text); /* NULL = NULL; must outlive the step */
void rdv_desk_sql_bind_id(sqlite3_stmt *s, int at, const uint8_t id[16]);
bool rdv_desk_sql_id(sqlite3_stmt *s, int column, uint8_t id[16]); /* false: no 16 bytes there */
#endif
