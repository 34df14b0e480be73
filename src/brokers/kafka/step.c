/* step.c - the records and offsets of one transaction, put together in memory that is kept. Transaction thread.
 *
 * Values lie one behind the other in the arena, which may move while they are built: a put's value.size is where it
 * starts, until rdv_kafka_step_run makes slices of all. Keys borrow from the batch. */
#include <stdlib.h>
#include "letters.h"
#include "source_parts.h"

#define ARENA_KEPT (4u << 20)
#define VALUE_TARGET (256u << 10) /* a larger one only when a single record is */

void rdv_kafka_step_begin(struct rdv_kafka_source *s)
{
	if (s->arena.capacity > ARENA_KEPT)
		rdv_buffer_done(&s->arena);
	rdv_buffer_clear(&s->arena);
	rdv_kafka_step_end(s);
	s->put_count = s->moved_count = 0;
}

void rdv_kafka_step_end(struct rdv_kafka_source *s)
{
	for (size_t i = 0; i < s->put_count; i++) {
		if (s->puts[i].headers)
			rd_kafka_headers_destroy(s->puts[i].headers);
		s->puts[i].headers = NULL;
	}
}

static void *more_room(void *items, size_t *capacity, size_t count, size_t size)
{
	size_t more = *capacity ? *capacity * 2 : 64;
	void *moved;

	if (count < *capacity)
		return items;
	moved = realloc(items, more * size);
	if (moved)
		*capacity = more;
	return moved;
}

enum redrive_status rdv_kafka_step_put(struct rdv_kafka_source *s, const char *topic, int32_t partition)
{
	struct rdv_kafka_put *puts = more_room(s->puts, &s->put_capacity, s->put_count, sizeof *puts);

	if (!puts)
		return REDRIVE_NO_MEMORY;
	s->puts = puts;
	puts[s->put_count++] = (struct rdv_kafka_put){
		.topic = topic, .partition = partition, .value = {NULL, s->arena.size}, .offset = -1};
	return REDRIVE_OK;
}

enum redrive_status rdv_kafka_step_move(struct rdv_kafka_source *s, const struct rdv_source_lane *lane, int64_t offset)
{
	struct rdv_kafka_moved *moved = more_room(s->moved, &s->moved_capacity, s->moved_count, sizeof *moved);

	if (!moved)
		return REDRIVE_NO_MEMORY;
	s->moved = moved;
	moved[s->moved_count++] = (struct rdv_kafka_moved){lane->feed->topic, lane->partition, offset};
	return REDRIVE_OK;
}

enum redrive_status rdv_kafka_step_journal(struct rdv_kafka_source *s, const struct rdv_source_lane *lane)
{
	enum redrive_status st = rdv_kafka_step_put(s, lane->feed->names.topic[RDV_KAFKA_JOURNAL], lane->partition);

	rdv_buffer_text(&s->arena, RDV_ENTRY_MAGIC);
	return st;
}

/* ---- a batch ---- */

static size_t value_size(const struct rdv_kafka_source *s)
{
	return s->arena.size - s->puts[s->put_count - 1].value.size;
}

static enum redrive_status put_records(struct rdv_kafka_source *s, const struct rdv_source_write *w)
{
	size_t max = w->lane->value_max < VALUE_TARGET ? w->lane->value_max : VALUE_TARGET;
	struct rdv_slice left = w->records;
	enum redrive_status st = REDRIVE_OK;

	while (st == REDRIVE_OK && left.size) {
		size_t size = rdv_entry_cut(left, max);

		if (!size)
			return REDRIVE_INTERNAL;
		st = rdv_kafka_step_journal(s, w->lane);
		rdv_buffer_append(&s->arena, left.data, size);
		left = rdv_slice(left.data + size, left.size - size);
	}
	return st;
}

/* The new position, behind the records or in a value of its own. */
static enum redrive_status put_position(struct rdv_kafka_source *s, const struct rdv_source_write *w)
{
	struct rdv_source_record position = {.type = RDV_SOURCE_POSITION, .seq = w->position};
	enum redrive_status st = REDRIVE_OK;

	if (!w->moved)
		return REDRIVE_OK;
	if (!w->records.size || value_size(s) + RDV_ENTRY_OVERHEAD > w->lane->value_max)
		st = rdv_kafka_step_journal(s, w->lane);
	rdv_entry_encode(&s->arena, &position);
	return st;
}

static enum redrive_status put_letter(struct rdv_kafka_source *s, const struct rdv_source_letter *letter)
{
	struct rdv_source_lane *lane = letter->lane;
	struct rdv_envelope envelope;
	enum redrive_status st = rdv_envelope_decode(letter->envelope, &envelope);

	if (st == REDRIVE_OK)
		st = rdv_kafka_step_put(s, lane->feed->names.topic[RDV_KAFKA_LETTERS], lane->partition);
	if (st != REDRIVE_OK)
		return st;
	if (!envelope.null_key)
		s->puts[s->put_count - 1].key =
			rdv_slice(envelope.key.data ? envelope.key.data : (const uint8_t *)"", envelope.key.size);
	rdv_kafka_letter_encode(letter->envelope, letter->body, letter->has_body, &s->arena);
	return rdv_kafka_copies_put(s, &envelope, letter->body);
}

static bool is_refused(const struct rdv_source_batch *b, const struct rdv_source_lane *lane)
{
	for (size_t i = 0; i < b->write_count; i++)
		if (b->writes[i].lane == lane)
			return b->refused[i];
	return true; /* a letter without its lane's DONE is nothing */
}

enum redrive_status rdv_kafka_step_batch(struct rdv_kafka_source *s, struct rdv_source_batch *b)
{
	enum redrive_status st = REDRIVE_OK;

	rdv_kafka_step_begin(s);
	for (size_t i = 0; i < b->write_count && st == REDRIVE_OK; i++) {
		struct rdv_source_write *w = &b->writes[i];

		w->journal_first = -1;
		s->firsts[i] = s->put_count;
		if (b->refused[i])
			continue;
		st = put_records(s, w);
		if (st == REDRIVE_OK)
			st = put_position(s, w);
		if (st == REDRIVE_OK)
			st = rdv_kafka_step_move(s, w->lane, (int64_t)w->position);
	}
	s->firsts[b->write_count] = s->put_count;
	for (size_t i = 0; i < b->letter_count && st == REDRIVE_OK; i++)
		if (!is_refused(b, b->letters[i].lane))
			st = put_letter(s, &b->letters[i]);
	return st;
}

void rdv_kafka_step_note_offsets(struct rdv_kafka_source *s, struct rdv_source_batch *b)
{
	for (size_t i = 0; i < b->write_count; i++)
		if (s->firsts[i] < s->firsts[i + 1])
			b->writes[i].journal_first = s->puts[s->firsts[i]].offset;
}

/* ---- run ---- */

static void trouble(void *ctx, const char *why)
{
	struct rdv_kafka_source *s = ctx;

	if (why)
		rdv_kafka_source_say(s, 1, "transaction: %s", why);
	pthread_mutex_lock(&s->lock);
	rdv_slice_to_text(rdv_slice_text(why), s->trouble, sizeof s->trouble);
	pthread_mutex_unlock(&s->lock);
}

enum redrive_status rdv_kafka_step_run(struct rdv_kafka_source *s, const struct rdv_kafka_snapshot *snapshot,
				       struct rdv_error *error)
{
	struct rdv_kafka_step step = {s->puts, s->put_count, s->moved, s->moved_count, snapshot->group};
	size_t end = s->arena.size;

	if (s->arena.failed)
		return REDRIVE_NO_MEMORY;
	for (size_t i = s->put_count; i-- > 0;) {
		size_t at = s->puts[i].value.size;

		s->puts[i].value = s->puts[i].null_value ? rdv_slice(NULL, 0) : rdv_slice(s->arena.data + at, end - at);
		end = at;
	}
	return rdv_kafka_txn_run(s->txn, &step, trouble, s, error);
}
