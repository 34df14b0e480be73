/* fake_broker.h - a broker in memory with one partition: what a source hands to the runtime, by hand. For tests.
 *
 * The test is the source's thread. A batch is taken at once, or kept until `release` when `hold` is set; refused when
 * the lane is not the owner any more. Everything that was committed is what a next owner finds. */
#ifndef TESTS_RUNTIME_FAKE_BROKER_H
#define TESTS_RUNTIME_FAKE_BROKER_H
#include "harness.h"
#include "brokers/kafka/entry.h"
#include "brokers/source.h"
#include "core/envelope.h"

#define FAKE_MESSAGES 4096

struct rdv_source_lane { /* one assignment */
	struct rdv_source_lane *older;
	void *lane; /* the runtime's */
	_Atomic bool owner;
};

struct fake_broker {
	struct rdv_source source; /* first */
	struct rdv_source_maker maker;
	pthread_mutex_t mutex;
	struct {
		const char *key;
		char *body;
		uint64_t offset;
	} messages[FAKE_MESSAGES];
	size_t count, given;       /* given: to the present owner */
	_Atomic uint64_t position; /* committed */
	struct rdv_buffer journal;
	size_t journal_starts[65536]; /* of each committed value, by its offset */
	int64_t values;
	_Atomic int64_t forgotten;
	_Atomic unsigned letters, batches, refused, closes;
	uint64_t letter_offsets[64];
	struct rdv_source_lane *now, *lanes; /* lanes: all there ever were, as batches may name them */
	struct rdv_source_batch *held;
	bool hold;
	_Atomic bool paused;
	uint64_t epoch;
};

static inline void fake_take_letters(struct fake_broker *b, const struct rdv_source_batch *batch)
{
	for (size_t i = 0; i < batch->letter_count && b->letters < 64; i++) {
		struct rdv_envelope *e = calloc(1, sizeof *e);

		if (rdv_envelope_decode(batch->letters[i].envelope, e))
			abort();
		b->letter_offsets[b->letters] = e->offset;
		b->letters++;
		free(e);
	}
}

/* Applies a batch: all of it, or none. */
static inline void fake_apply(struct fake_broker *b, struct rdv_source_batch *batch)
{
	enum redrive_status status = REDRIVE_OK;

	b->batches++;
	for (size_t i = 0; i < batch->write_count; i++) {
		struct rdv_source_write *w = &batch->writes[i];

		w->journal_first = -1;
		if (!w->lane->owner) {
			batch->refused[i] = true;
			status = REDRIVE_CONFLICT;
			b->refused++;
			continue;
		}
		if (w->records.size) {
			w->journal_first = b->values;
			b->journal_starts[b->values++] = b->journal.size;
			rdv_buffer_append(&b->journal, w->records.data, w->records.size);
		}
		b->position = w->position;
		b->closes += w->last;
	}
	if (status == REDRIVE_OK)
		fake_take_letters(b, batch);
	batch->done(batch->ctx, batch, status);
}

static inline void fake_commit(struct rdv_source *s, struct rdv_source_batch *batch)
{
	struct fake_broker *b = (struct fake_broker *)s;

	pthread_mutex_lock(&b->mutex);
	if (b->hold)
		b->held = batch;
	else
		fake_apply(b, batch);
	pthread_mutex_unlock(&b->mutex);
}

static inline void fake_release(struct fake_broker *b)
{
	pthread_mutex_lock(&b->mutex);
	b->hold = false;
	if (b->held)
		fake_apply(b, b->held);
	b->held = NULL;
	pthread_mutex_unlock(&b->mutex);
}

static inline void fake_pause(struct rdv_source *s, struct rdv_source_lane *lane, bool on)
{
	(void)lane;
	((struct fake_broker *)s)->paused = !on;
}

static inline void fake_forget(struct rdv_source *s, struct rdv_source_lane *lane, int64_t offset)
{
	(void)lane;
	((struct fake_broker *)s)->forgotten = offset;
}

static inline enum redrive_status fake_start(struct rdv_source *s, struct rdv_error *error)
{
	(void)s, (void)error;
	return REDRIVE_OK;
}

/* Nobody knows what became of the batch that is held. */
static inline void fake_unknown(struct fake_broker *b)
{
	struct rdv_source_batch *batch = b->held;

	b->held = NULL;
	b->hold = false;
	for (size_t i = 0; i < batch->write_count; i++)
		batch->refused[i] = true;
	batch->done(batch->ctx, batch, REDRIVE_FAILED);
}

/* Gives up the partition in order. */
static inline void fake_revoke(struct fake_broker *b, int64_t within_ms)
{
	unsigned closes = b->closes;
	void *lane = b->now->lane;

	b->source.sink.revoke(b->source.sink.ctx, &lane, 1, within_ms);
	for (int i = 0; i < 3000 && b->closes == closes; i++)
		usleep(10000);
	b->now->owner = false;
	b->source.sink.gone(b->source.sink.ctx, lane);
	b->now = NULL;
}

static inline void fake_lose(struct fake_broker *b)
{
	pthread_mutex_lock(&b->mutex);
	b->now->owner = false;
	pthread_mutex_unlock(&b->mutex);
	b->source.sink.lost(b->source.sink.ctx, b->now->lane);
	fake_release(b);
	b->source.sink.gone(b->source.sink.ctx, b->now->lane);
	b->now = NULL;
}

static inline void fake_stop(struct rdv_source *s, int64_t within_ms)
{
	struct fake_broker *b = (struct fake_broker *)s;

	if (b->now)
		fake_revoke(b, within_ms);
}

static inline void fake_free(struct rdv_source *s)
{
	(void)s; /* the test's */
}

static const struct rdv_source_ops fake_ops = {
	.kind = "fake",
	.start = fake_start,
	.commit = fake_commit,
	.take = fake_pause,
	.forget = fake_forget,
	.stop = fake_stop,
	.free = fake_free,
};

static inline enum redrive_status fake_make(const struct rdv_source_maker *m, const struct rdv_source_sink *sink,
					    struct rdv_source **out, struct rdv_error *error)
{
	struct fake_broker *b = (struct fake_broker *)((char *)m - offsetof(struct fake_broker, maker));

	(void)error;
	b->source.ops = &fake_ops;
	b->source.sink = *sink;
	*out = &b->source;
	return REDRIVE_OK;
}

static inline struct fake_broker *fake_new(void)
{
	struct fake_broker *b = calloc(1, sizeof *b);

	b->maker.make = fake_make;
	pthread_mutex_init(&b->mutex, NULL);
	rdv_buffer_init(&b->journal, 0);
	return b;
}

static inline void fake_done(struct fake_broker *b)
{
	for (size_t i = 0; i < b->count; i++)
		free(b->messages[i].body);
	while (b->lanes) {
		struct rdv_source_lane *older = b->lanes->older;

		free(b->lanes);
		b->lanes = older;
	}
	rdv_buffer_done(&b->journal);
	pthread_mutex_destroy(&b->mutex);
	free(b);
}

/* `step`: how far its offset lies behind the last one; 1 without a gap. */
static inline void fake_produce(struct fake_broker *b, const char *key, const char *body, uint64_t step)
{
	b->messages[b->count].key = key;
	b->messages[b->count].body = strdup(body);
	b->messages[b->count].offset = (b->count ? b->messages[b->count - 1].offset : (uint64_t)-1) + step;
	b->count++;
}

/* What the owner has not been given yet. */
static inline void fake_feed(struct fake_broker *b)
{
	static struct rdv_source_message m[FAKE_MESSAGES];
	size_t n = 0;

	for (; b->given < b->count; b->given++)
		m[n++] = (struct rdv_source_message){
			.offset = b->messages[b->given].offset,
			.has_key = b->messages[b->given].key != NULL,
			.key = rdv_slice_text(b->messages[b->given].key),
			.value = rdv_slice_text(b->messages[b->given].body),
			.produced_at = rdv_wall_now(),
		};
	if (n)
		assert_int_equal(b->source.sink.messages(b->source.sink.ctx, b->now->lane, m, n), REDRIVE_OK);
}

/* The journal from what was not forgotten on, folded into the lane. */
static inline bool fake_fold(struct fake_broker *b, bool *clean)
{
	static struct rdv_source_record records[65536];
	size_t n = 0, from = b->forgotten < b->values ? b->journal_starts[b->forgotten] : b->journal.size;
	struct rdv_slice entries = rdv_slice(b->journal.data + from, b->journal.size - from);

	while (n < 65536 && rdv_entry_next(&entries, &records[n]))
		n++;
	*clean = !n || records[n - 1].type == RDV_RECORD_CLOSE ||
		 (n > 1 && records[n - 1].type == RDV_SOURCE_POSITION && records[n - 2].type == RDV_RECORD_CLOSE);
	return b->source.sink.fold(b->source.sink.ctx, b->now->lane, records, n) == REDRIVE_OK;
}

/* The partition is assigned: opened, and given what lies there from its position on. */
static inline void fake_assign(struct fake_broker *b)
{
	struct rdv_source_partition p = {.topic = "orders", .epoch = ++b->epoch, .key_secret = "a secret"};
	bool clean;

	b->now = calloc(1, sizeof *b->now);
	b->now->older = b->lanes;
	b->lanes = b->now;
	b->now->owner = true;
	p.source = b->now;
	assert_int_equal(b->source.sink.open(b->source.sink.ctx, &p, &b->now->lane), REDRIVE_OK);
	assert_true(fake_fold(b, &clean));
	assert_int_equal(b->source.sink.opened(b->source.sink.ctx, b->now->lane, b->position, clean), REDRIVE_OK);
	for (b->given = 0; b->given < b->count && b->messages[b->given].offset < b->position; b->given++)
		;
	fake_feed(b);
}

/* How many records of a type the journal has. */
static inline unsigned fake_count(struct fake_broker *b, uint8_t type)
{
	struct rdv_slice entries;
	struct rdv_source_record r;
	unsigned n = 0;

	pthread_mutex_lock(&b->mutex);
	entries = rdv_buffer_as_slice(&b->journal);
	while (rdv_entry_next(&entries, &r))
		n += r.type == type;
	pthread_mutex_unlock(&b->mutex);
	return n;
}

/* How many offsets are in the journal's DONE runs. */
static inline unsigned fake_ended(struct fake_broker *b)
{
	struct rdv_slice entries;
	struct rdv_source_record r;
	unsigned n = 0;

	pthread_mutex_lock(&b->mutex);
	entries = rdv_buffer_as_slice(&b->journal);
	while (rdv_entry_next(&entries, &r)) {
		struct rdv_reader runs = rdv_runs_begin(r.payload);
		struct rdv_run run;

		while (r.type == RDV_RECORD_DONE && rdv_runs_next(&runs, &run))
			n += (unsigned)run.count;
	}
	pthread_mutex_unlock(&b->mutex);
	return n;
}

/* The type of the last record that is not a position; 0 = none. */
static inline uint8_t fake_last(struct fake_broker *b)
{
	struct rdv_slice entries;
	struct rdv_source_record r;
	uint8_t type = 0;

	pthread_mutex_lock(&b->mutex);
	entries = rdv_buffer_as_slice(&b->journal);
	while (rdv_entry_next(&entries, &r))
		type = r.type == RDV_SOURCE_POSITION ? type : r.type;
	pthread_mutex_unlock(&b->mutex);
	return type;
}

static inline bool fake_wait_position(struct fake_broker *b, uint64_t wanted)
{
	for (int i = 0; i < 1000 && b->position < wanted; i++)
		usleep(10000);
	return b->position == wanted;
}
#endif
