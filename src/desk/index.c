/* index.c - writing the index of a segment: open or drop, add rows, close.
 *
 * Trust. meta says `state` (open, closed), the machine's `boot` id, and up to which letter and byte the segment is
 * covered; it is written in the same transaction as the rows. A killed process leaves a whole database, since the
 * kernel has all it wrote; a machine that went down may not. So: closed and covering the whole segment = trusted; open
 * but of this boot = trusted, the rest is added from the segment; anything else, or any complaint of SQLite = dropped.
 * A clean close syncs the database before it says `closed`, since nothing was synced while it was open.
 * Terms are sorted before they are inserted: neighbours land in one leaf. One thread. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "index.h"
#include "sql.h"

struct rdv_desk_index {
	char *path; /* owns */
	sqlite3 *db;
	sqlite3_stmt *letter, *term, *terms_at_once, *run, *meta;
	struct sorted_term *terms; /* owns: scratch of one transaction */
	size_t term_capacity;
	uint32_t letters; /* the next seq */
	bool marked;      /* meta says open, of this boot */
};

#define AT_ONCE 64 /* terms of one statement: opening it for each would cost as much as the term */

struct sorted_term {
	uint64_t range; /* run << 32 | h */
	int64_t dead_at;
	uint32_t seq;
};

static const char schema[] =
	"CREATE TABLE letter(seq INTEGER PRIMARY KEY, id BLOB NOT NULL, key INTEGER, fp INTEGER, route INTEGER, topic "
	"INTEGER,"
	" reason INTEGER, tenant INTEGER, version INTEGER, dead_at INTEGER NOT NULL, attempts INTEGER, size INTEGER,"
	" block INTEGER NOT NULL, at INTEGER NOT NULL);"
	"CREATE TABLE term(k BLOB PRIMARY KEY) WITHOUT ROWID;"
	"CREATE TABLE run(run INTEGER PRIMARY KEY, low INTEGER, high INTEGER, count INTEGER);"
	"CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
	"PRAGMA user_version = 2;";
_Static_assert(RDV_DESK_INDEX_VERSION == 2, "user_version above");

static void boot_id(char out[40])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, out, 36) : -1;
	if (fd >= 0)
		close(fd);
	out[n == 36 ? 36 : 0] = 0;
}

static int64_t pragma(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s = NULL;
	int64_t value = -1;
	if (rdv_desk_sql_prepare(db, sql, &s) == REDRIVE_OK && sqlite3_step(s) == SQLITE_ROW)
		value = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return value;
}

struct meta {
	char state[16], boot[40];
	int64_t bytes, letters;
};

static bool meta_read(sqlite3 *db, struct meta *out)
{
	sqlite3_stmt *s = NULL;
	memset(out, 0, sizeof *out);
	if (pragma(db, "PRAGMA user_version") != RDV_DESK_INDEX_VERSION)
		return false;
	if (rdv_desk_sql_prepare(db, "SELECT name, value FROM meta", &s) != REDRIVE_OK)
		return false;
	int rc;
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		char name[16];
		rdv_desk_sql_text(s, 0, name, sizeof name);
		if (strcmp(name, "state") == 0)
			rdv_desk_sql_text(s, 1, out->state, sizeof out->state);
		else if (strcmp(name, "boot") == 0)
			rdv_desk_sql_text(s, 1, out->boot, sizeof out->boot);
		else if (strcmp(name, "bytes") == 0)
			out->bytes = sqlite3_column_int64(s, 1);
		else if (strcmp(name, "letters") == 0)
			out->letters = sqlite3_column_int64(s, 1);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE;
}

static bool trusted(sqlite3 *db, uint64_t end, struct meta *m)
{
	char boot[40];
	boot_id(boot);
	if (!meta_read(db, m) || m->bytes < 0 || m->letters < 0 || m->letters > UINT32_MAX || (uint64_t)m->bytes > end)
		return false;
	if (strcmp(m->state, "closed") == 0)
		return (uint64_t)m->bytes == end;
	return boot[0] && strcmp(m->boot, boot) == 0;
}

bool rdv_desk_index_is_clean(const char *path, uint64_t bytes, uint32_t *letters)
{
	sqlite3 *db = NULL;
	struct meta m = {.bytes = -1};
	if (rdv_desk_sql_open(path, SQLITE_OPEN_READWRITE, &db) != REDRIVE_OK)
		return false;
	bool clean = meta_read(db, &m) && strcmp(m.state, "closed") == 0 && m.bytes >= 0 && (uint64_t)m.bytes == bytes;
	sqlite3_close(db);
	*letters = clean ? (uint32_t)m.letters : 0;
	return clean;
}

void rdv_desk_index_drop(const char *path)
{
	static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
	for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
		char *name = NULL;
		if (asprintf(&name, "%s%s", path, suffixes[i]) < 0)
			continue;
		unlink(name);
		free(name);
	}
}

static enum redrive_status prepare(struct rdv_desk_index *x)
{
	static const char pragmas[] =
		"PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 4000;";
	enum redrive_status status = rdv_desk_sql_exec(x->db, pragmas);
	char many[64 + 4 * AT_ONCE];
	int used = snprintf(many, sizeof many, "INSERT INTO term VALUES(?)");
	for (int i = 1; i < AT_ONCE; i++)
		used += snprintf(many + used, sizeof many - (size_t)used, ",(?)");
	const struct {
		const char *sql;
		sqlite3_stmt **out;
	} table[] = {
		{"INSERT INTO letter VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)", &x->letter},
		{"INSERT INTO term VALUES(?)", &x->term},
		{many, &x->terms_at_once},
		{"INSERT INTO run VALUES(?1,?2,?3,?4) ON CONFLICT(run) DO UPDATE SET"
		 " low = min(low, ?2), high = max(high, ?3), count = count + ?4",
		 &x->run},
		{"INSERT INTO meta VALUES(?1,?2) ON CONFLICT(name) DO UPDATE SET value = ?2", &x->meta},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0] && status == REDRIVE_OK; i++)
		status = rdv_desk_sql_prepare(x->db, table[i].sql, table[i].out);
	return status;
}

static enum redrive_status make_new(struct rdv_desk_index *x)
{
	if (x->db)
		sqlite3_close(x->db);
	x->db = NULL;
	rdv_desk_index_drop(x->path);
	enum redrive_status status = rdv_desk_sql_open(x->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &x->db);
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_exec(
			x->db, "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;");
	return status == REDRIVE_OK ? rdv_desk_sql_exec(x->db, schema) : status;
}

enum redrive_status rdv_desk_index_open(const char *path, uint64_t end, struct rdv_desk_index **out, uint32_t *letters,
					uint64_t *bytes, struct rdv_error *error)
{
	struct rdv_desk_index *x = calloc(1, sizeof *x);
	struct meta m;
	*letters = 0;
	*bytes = 0;
	if (!x || !(x->path = strdup(path))) {
		free(x);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "index '%s': no memory", path);
	}
	enum redrive_status status = rdv_desk_sql_open(path, SQLITE_OPEN_READWRITE, &x->db);
	if (status == REDRIVE_OK && trusted(x->db, end, &m)) {
		*letters = (uint32_t)m.letters;
		*bytes = (uint64_t)m.bytes;
	} else {
		status = make_new(x);
	}
	if (status == REDRIVE_OK)
		status = prepare(x);
	x->letters = *letters;
	if (status == REDRIVE_OK) {
		*out = x;
		return REDRIVE_OK;
	}
	rdv_error_set(error, status, "index '%s': %s", path, x->db ? sqlite3_errmsg(x->db) : "cannot be opened");
	rdv_desk_index_close(x, false);
	return status;
}

static enum redrive_status put_meta(struct rdv_desk_index *x, const char *name, const char *text, int64_t number)
{
	rdv_desk_sql_bind_text(x->meta, 1, name);
	if (text)
		rdv_desk_sql_bind_text(x->meta, 2, text);
	else
		sqlite3_bind_int64(x->meta, 2, number);
	return rdv_desk_sql_run(x->meta);
}

static enum redrive_status put_letter(struct rdv_desk_index *x, const struct rdv_desk_row *r)
{
	sqlite3_stmt *s = x->letter;
	sqlite3_bind_int64(s, 1, r->seq);
	rdv_desk_sql_bind_id(s, 2, r->id);
	if (r->has_key)
		sqlite3_bind_int64(s, 3, r->key);
	sqlite3_bind_int64(s, 4, (int64_t)r->fingerprint);
	sqlite3_bind_int64(s, 5, r->route);
	sqlite3_bind_int64(s, 6, r->topic);
	sqlite3_bind_int(s, 7, r->reason);
	sqlite3_bind_int64(s, 8, r->tenant);
	sqlite3_bind_int64(s, 9, r->version);
	sqlite3_bind_int64(s, 10, r->dead_at);
	sqlite3_bind_int64(s, 11, r->attempts);
	sqlite3_bind_int64(s, 12, (int64_t)r->size);
	sqlite3_bind_int64(s, 13, (int64_t)r->block);
	sqlite3_bind_int64(s, 14, r->at);
	return rdv_desk_sql_run(s);
}

static int compare_terms(const void *a, const void *b)
{
	const struct sorted_term *x = a, *y = b;
	if (x->range != y->range)
		return x->range < y->range ? -1 : 1;
	if (x->dead_at != y->dead_at)
		return x->dead_at < y->dead_at ? -1 : 1;
	return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Sorted, each once: two kinds may hash alike for one letter, and one entry serves both. */
static size_t collect_terms(struct sorted_term *terms, const struct rdv_desk_row *rows, size_t count)
{
	size_t n = 0, kept = 0;
	for (size_t i = 0; i < count; i++)
		for (unsigned t = 0; t < rows[i].term_count; t++)
			terms[n++] = (struct sorted_term){(uint64_t)(rows[i].seq >> RDV_DESK_RUN_SHIFT) << 32 |
								  rows[i].terms[t],
							  rows[i].dead_at, rows[i].seq};
	if (n)
		qsort(terms, n, sizeof *terms, compare_terms);
	for (size_t i = 0; i < n; i++)
		if (!kept || compare_terms(&terms[i], &terms[kept - 1]) != 0)
			terms[kept++] = terms[i];
	return kept;
}

static enum redrive_status put_some_terms(sqlite3_stmt *s, const struct sorted_term *terms, int count)
{
	uint8_t keys[AT_ONCE][RDV_DESK_TERM_KEY_SIZE];
	for (int i = 0; i < count; i++) {
		rdv_desk_term_key((uint32_t)(terms[i].range >> 32), (uint32_t)terms[i].range, terms[i].dead_at,
				  terms[i].seq, keys[i]);
		sqlite3_bind_blob(s, i + 1, keys[i], sizeof keys[i], SQLITE_STATIC);
	}
	return rdv_desk_sql_run(s);
}

static enum redrive_status put_terms(struct rdv_desk_index *x, const struct rdv_desk_row *rows, size_t count)
{
	enum redrive_status status = REDRIVE_OK;
	size_t n, i = 0, most = count * RDV_DESK_TERMS_MAX;
	if (most > x->term_capacity) {
		free(x->terms);
		x->terms = calloc(most, sizeof *x->terms);
		x->term_capacity = x->terms ? most : 0;
		if (!x->terms)
			return REDRIVE_NO_MEMORY;
	}
	n = collect_terms(x->terms, rows, count);
	for (; i + AT_ONCE <= n && status == REDRIVE_OK; i += AT_ONCE)
		status = put_some_terms(x->terms_at_once, x->terms + i, AT_ONCE);
	for (; i < n && status == REDRIVE_OK; i++)
		status = put_some_terms(x->term, x->terms + i, 1);
	return status;
}

/* rows are in order of seq. */
static enum redrive_status put_runs(struct rdv_desk_index *x, const struct rdv_desk_row *rows, size_t count)
{
	enum redrive_status status = REDRIVE_OK;
	for (size_t i = 0; i < count && status == REDRIVE_OK;) {
		uint32_t run = rows[i].seq >> RDV_DESK_RUN_SHIFT;
		int64_t low = rows[i].dead_at, high = low, n = 0;
		for (; i < count && rows[i].seq >> RDV_DESK_RUN_SHIFT == run; i++, n++) {
			low = rows[i].dead_at < low ? rows[i].dead_at : low;
			high = rows[i].dead_at > high ? rows[i].dead_at : high;
		}
		sqlite3_bind_int64(x->run, 1, run);
		sqlite3_bind_int64(x->run, 2, low);
		sqlite3_bind_int64(x->run, 3, high);
		sqlite3_bind_int64(x->run, 4, n);
		status = rdv_desk_sql_run(x->run);
	}
	return status;
}

static enum redrive_status mark_open(struct rdv_desk_index *x)
{
	char boot[40];
	boot_id(boot);
	enum redrive_status status = put_meta(x, "state", "open", 0);
	return status == REDRIVE_OK ? put_meta(x, "boot", boot, 0) : status;
}

enum redrive_status rdv_desk_index_add(struct rdv_desk_index *x, const struct rdv_desk_row *rows, size_t count,
				       uint64_t bytes, struct rdv_error *error)
{
	enum redrive_status status = rdv_desk_sql_exec(x->db, "BEGIN IMMEDIATE");
	if (status == REDRIVE_OK && !x->marked)
		status = mark_open(x);
	for (size_t i = 0; i < count && status == REDRIVE_OK; i++)
		status = put_letter(x, &rows[i]);
	if (status == REDRIVE_OK)
		status = put_terms(x, rows, count);
	if (status == REDRIVE_OK)
		status = put_runs(x, rows, count);
	if (status == REDRIVE_OK)
		status = put_meta(x, "bytes", NULL, (int64_t)bytes);
	uint32_t next = count ? rows[count - 1].seq + 1 : x->letters;
	if (status == REDRIVE_OK)
		status = put_meta(x, "letters", NULL, next);
	if (status == REDRIVE_OK)
		status = rdv_desk_sql_exec(x->db, "COMMIT");
	if (status == REDRIVE_OK) {
		x->marked = true;
		x->letters = next;
		return REDRIVE_OK;
	}
	rdv_error_set(error, status, "index '%s': %s", x->path, sqlite3_errmsg(x->db));
	if (!sqlite3_get_autocommit(x->db))
		sqlite3_exec(x->db, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

enum redrive_status rdv_desk_index_ids(struct rdv_desk_index *x,
				       enum redrive_status (*each)(void *ctx, const uint8_t id[16]), void *ctx)
{
	sqlite3_stmt *s = NULL;
	uint8_t id[16];
	int rc = SQLITE_DONE;
	enum redrive_status status = rdv_desk_sql_prepare(x->db, "SELECT id FROM letter", &s);
	while (status == REDRIVE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW)
		if (rdv_desk_sql_id(s, 0, id))
			status = each(ctx, id);
	sqlite3_finalize(s);
	return status == REDRIVE_OK ? rdv_desk_sql_status(rc) : status;
}

/* Everything of the database onto the disk, then that it is whole. */
static enum redrive_status seal(struct rdv_desk_index *x)
{
	enum redrive_status status =
		rdv_desk_sql_exec(x->db, "PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE);");
	int fd = status == REDRIVE_OK ? open(x->path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return REDRIVE_IO;
	if (fsync(fd))
		status = REDRIVE_IO;
	close(fd);
	return status == REDRIVE_OK ? put_meta(x, "state", "closed", 0) : status;
}

void rdv_desk_index_close(struct rdv_desk_index *x, bool clean)
{
	if (!x)
		return;
	/* A failed seal is harmless: the index is not trusted after the next start of the machine. */
	if (clean && x->db)
		(void)!seal(x);
	sqlite3_finalize(x->letter);
	sqlite3_finalize(x->term);
	sqlite3_finalize(x->terms_at_once);
	sqlite3_finalize(x->run);
	sqlite3_finalize(x->meta);
	sqlite3_close(x->db);
	free(x->terms);
	free(x->path);
	free(x);
}
