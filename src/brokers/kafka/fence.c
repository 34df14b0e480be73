/* fence.c - OPEN: a lane's first record, which ends whatever its last owner could still write. Transaction thread.
 *
 * OPEN and the committed offset are one transaction, so the group's generation is judged by the broker; before it the
 * committed offset was read, which waits for every transaction that holds that partition. All lanes that are ready go
 * in one transaction. A lane that begins at the end of a topic without a committed offset gets a second one: its OPEN
 * is tentative, with the start of the topic as the offset, until the journal was read and is known to be empty.
 *
 * payload of OPEN = version 8 bits (1), flags 8 bits (1 = tentative), generation 32 bits, nonce 8 bytes,
 *                   topic id prefixed, writer's name prefixed; seq = the committed offset */
#include <inttypes.h>
#include <stdio.h>
#include "source_parts.h"

#define OPEN_VERSION 1
#define OPEN_TENTATIVE 1u
#define LANES_A_STEP 64

void rdv_kafka_fence_encode(const struct rdv_kafka_opening *o, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, OPEN_VERSION);
	rdv_buffer_u8(out, o->tentative ? OPEN_TENTATIVE : 0);
	rdv_buffer_u32(out, (uint32_t)o->generation);
	rdv_buffer_append(out, o->nonce, sizeof o->nonce);
	rdv_buffer_prefixed(out, o->topic_id);
	rdv_buffer_prefixed(out, o->writer);
}

bool rdv_kafka_fence_decode(struct rdv_slice payload, struct rdv_kafka_opening *out)
{
	struct rdv_reader r = rdv_reader(payload);
	struct rdv_slice nonce;
	uint8_t version = rdv_read_u8(&r);

	out->tentative = rdv_read_u8(&r) & OPEN_TENTATIVE;
	out->generation = (int32_t)rdv_read_u32(&r);
	nonce = rdv_read_bytes(&r, sizeof out->nonce);
	out->topic_id = rdv_read_prefixed(&r);
	out->writer = rdv_read_prefixed(&r);
	if (r.failed || version != OPEN_VERSION)
		return false;
	memcpy(out->nonce, nonce.data, sizeof out->nonce);
	return true;
}

static enum redrive_status put_open(struct rdv_kafka_source *s, struct rdv_source_lane *lane, int32_t generation)
{
	struct rdv_kafka_opening o = {.tentative = lane->tentative,
				      .generation = generation,
				      .topic_id = rdv_slice_text(lane->topic_id),
				      .writer = rdv_slice_text(s->transactional_id)};
	struct rdv_buffer payload;
	struct rdv_source_record record = {.type = RDV_KAFKA_OPEN_RECORD, .seq = (uint64_t)lane->offset};
	enum redrive_status st = rdv_kafka_step_journal(s, lane);

	memcpy(o.nonce, lane->nonce, sizeof o.nonce);
	rdv_buffer_init(&payload, 0);
	rdv_kafka_fence_encode(&o, &payload);
	record.payload = rdv_buffer_as_slice(&payload);
	rdv_entry_encode(&s->arena, &record);
	if (payload.failed)
		st = REDRIVE_NO_MEMORY;
	rdv_buffer_done(&payload);
	return st == REDRIVE_OK ? rdv_kafka_step_move(s, lane, lane->offset) : st;
}

static enum redrive_status put_settle(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	struct rdv_source_record record = {.type = RDV_SOURCE_POSITION, .seq = (uint64_t)lane->position};
	enum redrive_status st = rdv_kafka_step_journal(s, lane);

	rdv_entry_encode(&s->arena, &record);
	return st == REDRIVE_OK ? rdv_kafka_step_move(s, lane, lane->position) : st;
}

/* Lanes that wait, but those that are dead. Under the lock. */
static size_t take_lanes(struct rdv_kafka_source *s, struct rdv_source_lane *lanes[LANES_A_STEP])
{
	struct rdv_kafka_work *work;
	size_t count = 0;

	while (count < LANES_A_STEP && (work = rdv_kafka_work_take(&s->fences)))
		if (!work->lane->dead)
			lanes[count++] = work->lane;
	return count;
}

static enum redrive_status run(struct rdv_kafka_source *s, struct rdv_source_lane *const lanes[], size_t count,
			       const struct rdv_kafka_snapshot *snapshot, struct rdv_error *error)
{
	enum redrive_status st = REDRIVE_OK;

	rdv_kafka_step_begin(s);
	for (size_t i = 0; i < count && st == REDRIVE_OK; i++)
		st = lanes[i]->work.kind == RDV_KAFKA_WORK_SETTLE ? put_settle(s, lanes[i])
								  : put_open(s, lanes[i], snapshot->generation);
	return st == REDRIVE_OK ? rdv_kafka_step_run(s, snapshot, error) : st;
}

/* Under the lock. */
static void conclude(struct rdv_kafka_source *s, struct rdv_source_lane *lane, size_t index, enum redrive_status st)
{
	bool settle = lane->work.kind == RDV_KAFKA_WORK_SETTLE;

	if (st == REDRIVE_OK && settle) {
		rdv_kafka_source_tell(s, &lane->work, RDV_KAFKA_WORK_SETTLED);
	} else if (st == REDRIVE_OK) {
		lane->opened_at = s->puts[index].offset; /* one put a lane */
		rdv_kafka_source_tell(s, &lane->work, RDV_KAFKA_WORK_READ);
	} else if (st == REDRIVE_CONFLICT || st == REDRIVE_FAILED || st == REDRIVE_BUSY) { /* OPEN does no harm twice */
		rdv_kafka_work_put(&s->fences, &lane->work, lane->work.kind);
	} else if (st != REDRIVE_CLOSED) {
		rdv_kafka_source_tell(s, &lane->work, RDV_KAFKA_WORK_REFUSED);
	}
}

void rdv_kafka_fence_run(struct rdv_kafka_source *s)
{
	struct rdv_source_lane *lanes[LANES_A_STEP];
	size_t count = take_lanes(s, lanes);
	struct rdv_kafka_snapshot *snapshot = rdv_kafka_snapshot_ref(s);
	struct rdv_error error = {{0}};
	enum redrive_status st;

	if (count) {
		pthread_mutex_unlock(&s->lock);
		st = run(s, lanes, count, snapshot, &error);
		for (size_t i = 0; i < count && st != REDRIVE_OK; i++)
			snprintf(lanes[i]->why, sizeof lanes[i]->why, "its OPEN could not be written: %s",
				 error.text[0] ? error.text : redrive_status_text(st));
		pthread_mutex_lock(&s->lock);
		if (st == REDRIVE_CONFLICT)
			s->refused_number = snapshot->number;
		rdv_kafka_commit_hold(s, st);
		for (size_t i = 0; i < count; i++)
			conclude(s, lanes[i], i, st);
	}
	rdv_kafka_snapshot_unref(snapshot);
}
