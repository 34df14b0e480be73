/* bookmark.c - how far the letters of a broker's topic were taken in: one row per partition, in control.db.
 *
 * Until a position has passed a letter, the broker's topic is where it lies; from then on it is the desk's segment. So
 * a position is kept only after the letters before it were stored. A crash in between takes them in again, which is
 * nothing: they are known by their ids. Any thread. */
#include "room.h"

enum redrive_status rdv_desk_bookmark(struct rdv_desk *d, const char *topic, uint32_t partition, int64_t *next)
{
	static const char sql[] = "SELECT next FROM bookmark WHERE topic = ?1 AND partition = ?2";
	enum redrive_status status = REDRIVE_IO;

	rdv_desk_control_lock(&d->control);
	sqlite3_stmt *s = rdv_desk_control_sql(&d->control, sql);
	if (s) {
		rdv_desk_sql_bind_text(s, 1, topic);
		sqlite3_bind_int64(s, 2, partition);
		int rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			*next = sqlite3_column_int64(s, 0);
		status = rc == SQLITE_DONE ? REDRIVE_NOT_FOUND : rdv_desk_sql_status(rc);
		rdv_desk_sql_reset(s);
	}
	rdv_desk_control_unlock(&d->control);
	return status;
}

static enum redrive_status keep(struct rdv_desk_control *c, const struct rdv_desk_bookmark *p)
{
	static const char sql[] = "INSERT INTO bookmark(topic, partition, next) VALUES(?1, ?2, ?3)"
				  " ON CONFLICT(topic, partition) DO UPDATE SET next = ?3";
	sqlite3_stmt *s = rdv_desk_control_sql(c, sql);

	if (!s)
		return REDRIVE_IO;
	rdv_desk_sql_bind_text(s, 1, p->topic);
	sqlite3_bind_int64(s, 2, p->partition);
	sqlite3_bind_int64(s, 3, p->next);
	return rdv_desk_sql_run(s);
}

enum redrive_status rdv_desk_keep_bookmarks(struct rdv_desk *d, const struct rdv_desk_bookmark *bookmarks, size_t count)
{
	rdv_desk_control_lock(&d->control);
	enum redrive_status status = rdv_desk_control_begin(&d->control);
	for (size_t i = 0; i < count && status == REDRIVE_OK; i++)
		status = keep(&d->control, &bookmarks[i]);
	status = rdv_desk_control_end(&d->control, status);
	rdv_desk_control_unlock(&d->control);
	return status;
}
