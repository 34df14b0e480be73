/* world_broker.h - a broker in memory with several partitions and processes: groups, journals, transactions, letters.
 *
 * The test's thread is every source's consumer thread. A batch lies as `pending` until it is settled: written as far as
 * its lanes are owned, or of unknown fate. Everything that must always hold at the broker is looked at when a batch is
 * written: the position passes only what has ended or stands in the journal; a letter comes once. */
#ifndef TESTS_RUNTIME_WORLD_BROKER_H
#define TESTS_RUNTIME_WORLD_BROKER_H
#include "harness.h"
#include "base/random.h"
#include "brokers/kafka/entry.h"
#include "brokers/source.h"
#include "core/envelope.h"

#define PARTS 3
#define PROCS 2
#define MESSAGES 96
#define VALUES 4096
#define KEYS 4
#define ATTEMPTS 3u

#define HOLDS(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what);                      \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

struct wb;
struct rdv_source_lane { /* one assignment */
	struct rdv_source_lane *next;
	struct wb *wb;
	unsigned part, proc;
	void *lane; /* the runtime's; NULL = it knows nothing of it any more */
	enum { LANE_FOLDING, LANE_OPEN, LANE_CLOSING, LANE_LEFT } stage;
	bool owner, finished, clean;
	_Atomic bool taken;
	size_t given;       /* the next message */
	int64_t folded, by; /* folded: the next value of the journal; by: the end of its closing, ms */
};

struct wb_message {
	uint64_t offset;
	int key; /* -1 = null */
	char kind;
	unsigned fails;
	/* under the mutex */
	bool acked, ended, in_journal, revoke_asked, revoked_surely;
	unsigned letters, calls;
};

struct wb_part {
	struct wb_message messages[MESSAGES];
	size_t count;
	uint64_t position, epoch;
	struct rdv_buffer values[VALUES];
	int64_t forgotten, count_values;
	struct rdv_source_lane *owner;
};

struct wb_proc {
	struct rdv_source source; /* first */
	struct rdv_source_maker maker;
	struct wb *wb;
	unsigned number;
	bool dead;                        /* as after kill -9: nobody listens */
	struct rdv_source_batch *pending; /* under the mutex */
	struct rdv_engine *engine;
	char *dir;
	/* a command that another thread waits for */
	pthread_t thread;
	bool asking;
	_Atomic bool answered;
	int command;
	unsigned part;
	size_t message;
};

struct wb {
	pthread_mutex_t mutex;
	struct wb_part parts[PARTS];
	struct wb_proc procs[PROCS];
	struct rdv_source_lane *lanes; /* all there ever were */
	struct rdv_random random;
	bool by_key;
};

static inline struct wb_message *wb_find(struct wb_part *p, uint64_t offset)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->messages[i].offset == offset)
			return &p->messages[i];
	HOLDS(!"a message that was never there");
	return NULL;
}

/* ---- a batch ---- */

static inline void wb_write(struct wb_part *p, const struct rdv_source_write *w)
{
	struct rdv_slice entries = w->records;
	struct rdv_source_record r;

	while (rdv_entry_next(&entries, &r))
		if (r.type == RDV_RECORD_BODY)
			wb_find(p, r.seq)->in_journal = true;
	HOLDS(w->position >= p->position);
	for (size_t i = 0; i < p->count; i++) {
		const struct wb_message *m = &p->messages[i];

		if (m->offset >= p->position && m->offset < w->position)
			HOLDS(m->ended || m->in_journal || m->letters || m->revoke_asked);
	}
	p->position = w->position;
}

static inline void wb_take_letter(struct wb *wb, const struct rdv_source_letter *l)
{
	struct rdv_envelope *e = calloc(1, sizeof *e);
	struct wb_message *m;

	HOLDS(rdv_envelope_decode(l->envelope, e) == REDRIVE_OK);
	m = wb_find(&wb->parts[e->partition], e->offset);
	HOLDS(e->generation == 0 && m->letters == 0);
	m->letters++;
	free(e);
}

/* What can be written of it is. */
static inline enum redrive_status wb_apply(struct wb *wb, struct rdv_source_batch *b)
{
	enum redrive_status status = REDRIVE_OK;

	for (size_t i = 0; i < b->letter_count; i++)
		if (b->letters[i].lane->owner)
			wb_take_letter(wb, &b->letters[i]);
	for (size_t i = 0; i < b->write_count; i++) {
		struct rdv_source_write *w = &b->writes[i];
		struct wb_part *p = &wb->parts[w->lane->part];

		w->journal_first = -1;
		b->refused[i] = !w->lane->owner;
		if (b->refused[i]) {
			status = REDRIVE_CONFLICT;
			continue;
		}
		HOLDS(!w->lane->finished);
		if (w->records.size) {
			HOLDS(p->count_values < VALUES);
			w->journal_first = p->count_values;
			rdv_buffer_init(&p->values[p->count_values], 0);
			rdv_buffer_append(&p->values[p->count_values++], w->records.data, w->records.size);
		}
		wb_write(p, w);
		w->lane->finished = w->last;
	}
	return status;
}

static inline void wb_commit(struct rdv_source *s, struct rdv_source_batch *b)
{
	struct wb_proc *p = (struct wb_proc *)s;

	pthread_mutex_lock(&p->wb->mutex);
	HOLDS(!p->pending);
	p->pending = b;
	pthread_mutex_unlock(&p->wb->mutex);
}

static inline bool wb_named(const struct rdv_source_lane *l)
{
	const struct rdv_source_batch *b = l->wb->procs[l->proc].pending;

	for (size_t i = 0; b && i < b->write_count; i++)
		if (b->writes[i].lane == l)
			return true;
	return false;
}

/* ---- lanes leave ---- */

static inline void wb_disown(struct rdv_source_lane *l)
{
	pthread_mutex_lock(&l->wb->mutex);
	l->owner = false;
	if (l->wb->parts[l->part].owner == l)
		l->wb->parts[l->part].owner = NULL;
	l->stage = LANE_LEFT;
	pthread_mutex_unlock(&l->wb->mutex);
}

static inline void wb_lose(struct rdv_source_lane *l)
{
	struct rdv_source_sink *sink = &l->wb->procs[l->proc].source.sink;

	wb_disown(l);
	sink->lost(sink->ctx, l->lane);
}

/* Those that have left are gone, when no batch names them. */
static inline void wb_reap(struct wb *wb)
{
	for (struct rdv_source_lane *l = wb->lanes; l; l = l->next) {
		struct rdv_source_sink *sink = &wb->procs[l->proc].source.sink;
		bool named;

		pthread_mutex_lock(&wb->mutex);
		named = wb_named(l);
		pthread_mutex_unlock(&wb->mutex);
		if (!l->lane || named || wb->procs[l->proc].dead)
			continue;
		if (l->stage == LANE_CLOSING && (l->finished || rdv_mono_now().ms >= l->by))
			wb_disown(l);
		if (l->stage != LANE_LEFT)
			continue;
		sink->gone(sink->ctx, l->lane);
		l->lane = NULL;
	}
}

/* unknown: 0 = its fate is known, 1 = not, and it was written, 2 = not, and it was not. */
static inline void wb_settle(struct wb_proc *p, int unknown)
{
	struct wb *wb = p->wb;
	struct rdv_source_batch *b;
	enum redrive_status status = REDRIVE_FAILED;

	pthread_mutex_lock(&wb->mutex);
	b = p->pending;
	if (b && unknown < 2)
		status = wb_apply(wb, b);
	for (size_t i = 0; b && unknown && i < b->write_count; i++)
		b->refused[i] = true;
	if (b && unknown)
		status = REDRIVE_FAILED;
	p->pending = NULL;
	pthread_mutex_unlock(&wb->mutex);
	if (!b)
		return;
	for (size_t i = 0; status == REDRIVE_FAILED && i < b->write_count; i++)
		if (b->writes[i].lane->stage != LANE_LEFT)
			wb_lose(b->writes[i].lane);
	b->done(b->ctx, b, status);
}

static inline void wb_revoke(struct rdv_source_lane *l, int64_t within_ms)
{
	struct rdv_source_sink *sink = &l->wb->procs[l->proc].source.sink;

	if (l->stage == LANE_OPEN) {
		l->stage = LANE_CLOSING;
		l->by = rdv_mono_now().ms + within_ms;
		sink->revoke(sink->ctx, &l->lane, 1, within_ms);
	} else if (l->stage == LANE_FOLDING) {
		wb_disown(l);
	}
}

/* ---- the source ---- */

static inline void wb_stop(struct rdv_source *s, int64_t within_ms)
{
	struct wb_proc *p = (struct wb_proc *)s;
	int64_t until = rdv_mono_now().ms + within_ms;
	bool any = !p->dead;

	for (struct rdv_source_lane *l = p->wb->lanes; l && any; l = l->next)
		if (l->proc == p->number && l->lane)
			wb_revoke(l, within_ms);
	while (any && rdv_mono_now().ms < until + 1000) {
		wb_settle(p, 0);
		wb_reap(p->wb);
		any = false;
		for (struct rdv_source_lane *l = p->wb->lanes; l; l = l->next)
			any = any || (l->proc == p->number && l->lane);
		usleep(500);
	}
}

static inline void wb_take(struct rdv_source *s, struct rdv_source_lane *l, bool on)
{
	(void)s;
	atomic_store(&l->taken, on);
}

static inline void wb_forget(struct rdv_source *s, struct rdv_source_lane *l, int64_t offset)
{
	struct wb_part *p = &l->wb->parts[l->part];

	(void)s;
	pthread_mutex_lock(&l->wb->mutex);
	while (l->owner && p->forgotten < offset)
		rdv_buffer_done(&p->values[p->forgotten++]);
	pthread_mutex_unlock(&l->wb->mutex);
}

static inline enum redrive_status wb_start(struct rdv_source *s, struct rdv_error *error)
{
	(void)s, (void)error;
	return REDRIVE_OK;
}

static inline void wb_free(struct rdv_source *s)
{
	(void)s;
}

static const struct rdv_source_ops wb_ops = {
	.kind = "world",
	.start = wb_start,
	.commit = wb_commit,
	.take = wb_take,
	.forget = wb_forget,
	.stop = wb_stop,
	.free = wb_free,
};

static inline enum redrive_status wb_make(const struct rdv_source_maker *m, const struct rdv_source_sink *sink,
					  struct rdv_source **out, struct rdv_error *error)
{
	struct wb_proc *p = (struct wb_proc *)((char *)m - offsetof(struct wb_proc, maker));

	(void)error;
	p->source.ops = &wb_ops;
	p->source.sink = *sink;
	*out = &p->source;
	return REDRIVE_OK;
}

/* ---- lanes come ---- */

static inline void wb_assign(struct wb *wb, unsigned part, unsigned proc)
{
	struct wb_part *p = &wb->parts[part];
	struct rdv_source_lane *l = calloc(1, sizeof *l);
	struct rdv_source_sink *sink = &wb->procs[proc].source.sink;
	struct rdv_source_partition assigned = {
		.source = l, .topic = "orders", .partition = part, .epoch = ++p->epoch, .key_secret = "a secret"};

	*l = (struct rdv_source_lane){.wb = wb, .part = part, .proc = proc, .owner = true, .taken = true};
	HOLDS(sink->open(sink->ctx, &assigned, &l->lane) == REDRIVE_OK);
	pthread_mutex_lock(&wb->mutex);
	l->folded = p->forgotten;
	l->clean = true;
	l->next = wb->lanes;
	wb->lanes = l;
	p->owner = l;
	pthread_mutex_unlock(&wb->mutex);
}

/* The next values of the journal, then what lies behind the position. */
static inline void wb_fold(struct rdv_source_lane *l, unsigned values)
{
	struct wb_part *p = &l->wb->parts[l->part];
	struct rdv_source_sink *sink = &l->wb->procs[l->proc].source.sink;
	static struct rdv_source_record records[65536];

	while (l->folded < p->count_values && values--) {
		size_t n = 0;
		struct rdv_slice entries = rdv_buffer_as_slice(&p->values[l->folded++]);

		while (rdv_entry_next(&entries, &records[n])) {
			if (records[n].type != RDV_SOURCE_POSITION)
				l->clean = records[n].type == RDV_RECORD_CLOSE;
			n++;
		}
		HOLDS(sink->fold(sink->ctx, l->lane, records, n) == REDRIVE_OK);
	}
	if (l->folded < p->count_values)
		return;
	HOLDS(sink->opened(sink->ctx, l->lane, p->position, l->clean) == REDRIVE_OK);
	l->stage = LANE_OPEN;
	while (l->given < p->count && p->messages[l->given].offset < p->position)
		l->given++;
}

static inline void wb_give(struct rdv_source_lane *l, size_t most)
{
	static const char *const keys[KEYS] = {"a", "b", "c", ""};
	struct wb_part *p = &l->wb->parts[l->part];
	struct rdv_source_sink *sink = &l->wb->procs[l->proc].source.sink;
	struct rdv_source_message m[MESSAGES];
	size_t n = 0;

	if (l->stage != LANE_OPEN || !atomic_load(&l->taken))
		return;
	for (; n < most && l->given + n < p->count; n++) {
		const struct wb_message *from = &p->messages[l->given + n];

		m[n] = (struct rdv_source_message){
			.offset = from->offset,
			.has_key = from->key >= 0,
			.key = rdv_slice_text(from->key >= 0 ? keys[from->key] : ""),
			.value = rdv_slice_text("x"),
			.produced_at = rdv_wall_now(),
		};
	}
	if (n && sink->messages(sink->ctx, l->lane, m, n) == REDRIVE_OK)
		l->given += n;
}
#endif
