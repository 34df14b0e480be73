/* view.c - reading the index of a segment: pages of a term in order of death, one letter.
 *
 * Each question is one range of the term's primary key with a limit, so it costs what it returns; statements are reset
 * before the call ends, so that a reader never holds back the writer. A view is used by one thread at a time. */
#include "index.h"
#include "sql.h"

enum redrive_status rdv_desk_view_open(struct rdv_desk_view *v, const char *path)
{
	memset(v, 0, sizeof *v);
	/* Opened for writing, since a reader of a WAL database may have to make its shared memory; query_only keeps it
	 * from changing anything. */
	enum redrive_status status = rdv_desk_sql_open(path, SQLITE_OPEN_READWRITE, &v->db);
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_exec(v->db,
					   "PRAGMA query_only = 1; PRAGMA cache_size = -4096; PRAGMA mmap_size = 0;");
	const struct {
		const char *sql;
		sqlite3_stmt **out;
	} table[] = {
		{"SELECT run, low, high FROM run ORDER BY run", &v->runs},
		{"SELECT dead_at, seq FROM term WHERE run = ?1 AND h = ?2 AND dead_at >= ?3 AND (dead_at, seq) < (?4, "
		 "?5)"
		 " ORDER BY dead_at DESC, seq DESC LIMIT ?6",
		 &v->newest},
		{"SELECT dead_at, seq FROM term WHERE run = ?1 AND h = ?2 AND (dead_at, seq) > (?3, ?4) AND dead_at < "
		 "?5"
		 " ORDER BY dead_at, seq LIMIT ?6",
		 &v->oldest},
		{"SELECT id, block, at FROM letter WHERE seq = ?1", &v->letter},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0] && status == REDRIVE_OK; i++)
		status = rdv_desk_sql_prepare(v->db, table[i].sql, table[i].out);
	if (status != REDRIVE_OK)
		rdv_desk_view_done(v);
	return status;
}

void rdv_desk_view_done(struct rdv_desk_view *v)
{
	if (!v)
		return;
	sqlite3_finalize(v->runs);
	sqlite3_finalize(v->newest);
	sqlite3_finalize(v->oldest);
	sqlite3_finalize(v->letter);
	sqlite3_close(v->db);
	memset(v, 0, sizeof *v);
}

enum redrive_status rdv_desk_view_runs(struct rdv_desk_view *v, struct rdv_desk_run *out, size_t max, size_t *count)
{
	int rc = SQLITE_DONE;
	*count = 0;
	while (*count < max && (rc = sqlite3_step(v->runs)) == SQLITE_ROW)
		out[(*count)++] =
			(struct rdv_desk_run){(uint32_t)sqlite3_column_int64(v->runs, 0),
					      sqlite3_column_int64(v->runs, 1), sqlite3_column_int64(v->runs, 2)};
	rdv_desk_sql_reset(v->runs);
	return rdv_desk_sql_status(rc);
}

static void bind_newest(sqlite3_stmt *s, const struct rdv_desk_span *span)
{
	bool after = span->after && span->last.dead_at < span->to;
	sqlite3_bind_int64(s, 3, span->from);
	sqlite3_bind_int64(s, 4, after ? span->last.dead_at : span->to);
	sqlite3_bind_int64(s, 5, after ? span->last.seq : -1);
}

static void bind_oldest(sqlite3_stmt *s, const struct rdv_desk_span *span)
{
	bool after = span->after && span->last.dead_at >= span->from;
	sqlite3_bind_int64(s, 3, after ? span->last.dead_at : span->from);
	sqlite3_bind_int64(s, 4, after ? span->last.seq : -1);
	sqlite3_bind_int64(s, 5, span->to);
}

enum redrive_status rdv_desk_view_page(struct rdv_desk_view *v, uint32_t run, const struct rdv_desk_span *span,
				       struct rdv_desk_entry *out, size_t max, size_t *count)
{
	sqlite3_stmt *s = span->oldest_first ? v->oldest : v->newest;
	int rc;
	*count = 0;
	sqlite3_bind_int64(s, 1, run);
	sqlite3_bind_int64(s, 2, span->h);
	if (span->oldest_first)
		bind_oldest(s, span);
	else
		bind_newest(s, span);
	sqlite3_bind_int64(s, 6, (int64_t)max);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW && *count < max)
		out[(*count)++] = (struct rdv_desk_entry){sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1)};
	rdv_desk_sql_reset(s);
	return rdv_desk_sql_status(rc);
}

enum redrive_status rdv_desk_view_letter(struct rdv_desk_view *v, uint32_t seq, uint8_t id[16], uint64_t *block,
					 uint32_t *at)
{
	enum redrive_status status;
	sqlite3_bind_int64(v->letter, 1, seq);
	int rc = sqlite3_step(v->letter);
	if (rc == SQLITE_ROW) {
		status = rdv_desk_sql_id(v->letter, 0, id) ? REDRIVE_OK : REDRIVE_CORRUPT;
		*block = (uint64_t)sqlite3_column_int64(v->letter, 1);
		*at = (uint32_t)sqlite3_column_int64(v->letter, 2);
	} else {
		status = rc == SQLITE_DONE ? REDRIVE_NOT_FOUND : rdv_desk_sql_status(rc);
	}
	rdv_desk_sql_reset(v->letter);
	return status;
}
