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
		{"SELECT k FROM term WHERE k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT ?3", &v->newest},
		{"SELECT k FROM term WHERE k > ?1 AND k < ?2 ORDER BY k LIMIT ?3", &v->oldest},
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

struct term_keys { /* [low, high) or (low, high) */
	uint8_t low[RDV_DESK_TERM_KEY_SIZE], high[RDV_DESK_TERM_KEY_SIZE];
	size_t low_size, high_size;
};

/* A bound without a seq sorts before all entries of its moment. */
static void span_keys(uint32_t run, const struct rdv_desk_span *span, struct term_keys *keys)
{
	struct rdv_desk_entry low = {span->from, -1}, high = {span->to, -1};
	if (span->oldest_first && span->after && span->last.dead_at >= span->from)
		low = span->last;
	if (!span->oldest_first && span->after && span->last.dead_at < span->to)
		high = span->last;
	keys->low_size = rdv_desk_term_key(run, span->h, low.dead_at, low.seq, keys->low);
	keys->high_size = rdv_desk_term_key(run, span->h, high.dead_at, high.seq, keys->high);
}

static bool entry_of(sqlite3_stmt *s, struct rdv_desk_entry *out)
{
	const uint8_t *k = sqlite3_column_blob(s, 0);
	uint64_t dead_at = 0, seq = 0;
	if (!k || sqlite3_column_bytes(s, 0) != RDV_DESK_TERM_KEY_SIZE)
		return false;
	for (int i = 6; i < 14; i++)
		dead_at = dead_at << 8 | k[i];
	for (int i = 14; i < RDV_DESK_TERM_KEY_SIZE; i++)
		seq = seq << 8 | k[i];
	*out = (struct rdv_desk_entry){(int64_t)(dead_at ^ 1ull << 63), (int64_t)seq};
	return true;
}

enum redrive_status rdv_desk_view_page(struct rdv_desk_view *v, uint32_t run, const struct rdv_desk_span *span,
				       struct rdv_desk_entry *out, size_t max, size_t *count)
{
	sqlite3_stmt *s = span->oldest_first ? v->oldest : v->newest;
	struct term_keys keys;
	int rc;
	*count = 0;
	span_keys(run, span, &keys);
	sqlite3_bind_blob(s, 1, keys.low, (int)keys.low_size, SQLITE_STATIC);
	sqlite3_bind_blob(s, 2, keys.high, (int)keys.high_size, SQLITE_STATIC);
	sqlite3_bind_int64(s, 3, (int64_t)max);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW && *count < max)
		if (entry_of(s, &out[*count]))
			++*count;
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
