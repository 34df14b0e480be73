/* control.h - control.db: what people decided, and what became of it. SQLite, WAL, synchronous=FULL: durable when it
 * returns.
 *
 *   plan     one row per replay; frozen = its letters in the order of sending, with outcomes; tally = how many letters
 * of a plan have which outcome, kept by a trigger in the same transaction, so that the sum always holds letter   the
 * decided state of a letter; no row = new audit    who did what; `hash` is reserved for the chain   bookmark how far
 * the letters of a broker's topic were taken in
 *
 * One connection, one mutex; every function here is called with the mutex held unless it says otherwise. Any thread. */
#ifndef RDV_DESK_CONTROL_H
#define RDV_DESK_CONTROL_H
#include <pthread.h>
#include "desk.h"
#include "sql.h"

/* What became of a letter in a plan. Stored: never renumber. */
enum rdv_desk_outcome {
	RDV_DESK_PENDING = 0,
	RDV_DESK_SENT = 1, /* given to the lane, or about to be */
	RDV_DESK_ACKED = 2,
	RDV_DESK_DEAD_AGAIN = 3,
	RDV_DESK_SKIPPED = 4,
	RDV_DESK_UNKNOWN = 5,     /* went out, and its end was not seen */
	RDV_DESK_NOT_REACHED = 6, /* never delivered */
	RDV_DESK_OUTCOME_COUNT
};
extern const char *const rdv_desk_outcome_names[RDV_DESK_OUTCOME_COUNT];

struct rdv_desk_control {
	pthread_mutex_t mutex;
	pthread_mutex_t turn; /* held while one waits for the mutex: who lets go and takes again lets others go first */
	sqlite3 *db;
	struct rdv_desk_statement *statements; /* owns: prepared, by their text */
	int64_t newest_plan;
};

/* Without the mutex. Migrates an older schema; VERSION: a newer one, nothing was changed. */
enum redrive_status rdv_desk_control_open(struct rdv_desk_control *c, const char *path,
					  struct rdv_error *error) RDV_MUST_CHECK;
void rdv_desk_control_close(struct rdv_desk_control *c);

static inline void rdv_desk_control_lock(struct rdv_desk_control *c)
{
	pthread_mutex_lock(&c->turn);
	pthread_mutex_lock(&c->mutex);
	pthread_mutex_unlock(&c->turn);
}
static inline void rdv_desk_control_unlock(struct rdv_desk_control *c)
{
	pthread_mutex_unlock(&c->mutex);
}

/* The prepared statement of a text (a literal: its address is its name); NULL: cannot be prepared. */
sqlite3_stmt *rdv_desk_control_sql(struct rdv_desk_control *c, const char *sql);
enum redrive_status rdv_desk_control_begin(struct rdv_desk_control *c) RDV_MUST_CHECK;
/* Commits when status is OK, else rolls back; returns what became of it. */
enum redrive_status rdv_desk_control_end(struct rdv_desk_control *c, enum redrive_status status) RDV_MUST_CHECK;

struct rdv_desk_decided {
	enum rdv_letter_state state;
	uint64_t plan; /* it is in, or was replayed by; 0 = none */
	char plan_id[64];
	bool has_next;
	uint8_t next[16];
};
enum redrive_status rdv_desk_control_letter(struct rdv_desk_control *c, const uint8_t id[16],
					    struct rdv_desk_decided *out) RDV_MUST_CHECK;
/* Gives the letter to a plan, unless its state forbids it: CONFLICT, *why = the reason for a person. */
enum redrive_status rdv_desk_control_claim(struct rdv_desk_control *c, const uint8_t id[16], uint64_t plan,
					   char why[64]) RDV_MUST_CHECK;
/* Ends the plan's hold on it: replayed (next may be NULL), or back to the state before. Nothing if another plan has it.
 */
enum redrive_status rdv_desk_control_release(struct rdv_desk_control *c, const uint8_t id[16], uint64_t plan,
					     bool replayed, const uint8_t *next) RDV_MUST_CHECK;
struct rdv_desk_audit_entry {
	const char *who, *action, *target, *detail;
};
enum redrive_status rdv_desk_control_audit(struct rdv_desk_control *c,
					   const struct rdv_desk_audit_entry *entry) RDV_MUST_CHECK;
#endif
