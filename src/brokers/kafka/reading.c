/* reading.c - a lane is opened from its journal, up to its own OPEN; then consumption begins. Consumer thread.
 *
 * Everything before the OPEN is final: whoever wrote before is fenced since. So the end is the OPEN's own offset, and
 * no end-of-partition, watermark or timer; when the reader stands still, somebody's transaction is pending, and that is
 * shown. Records go to the sink in pieces; the position is what rule J says:
 *
 *   journal position = committed offset   as expected
 *                    > committed offset   the journal is right: the broker has torn a transaction
 *                    < committed offset   refused: offsets were moved without the journal (unless what lies between
 *                                         the journal's position and the source's start was deleted meanwhile) */
#include <inttypes.h>
#include <stdlib.h>
#include "source_parts.h"

#define RECORDS_A_FOLD 512
#define SHOW_AFTER_MS 5000
#define SEEK_MS 1000
#define SEEK_GIVE_UP_MS 5000

static void assign_journal(struct rdv_kafka_source *s, const struct rdv_source_lane *lane, bool on)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_error_t *e;

	rd_kafka_topic_partition_list_add(list, lane->feed->names.topic[RDV_KAFKA_JOURNAL], lane->partition)->offset =
		RD_KAFKA_OFFSET_BEGINNING;
	e = on ? rd_kafka_incremental_assign(s->reader, list) : rd_kafka_incremental_unassign(s->reader, list);
	if (e) {
		rdv_kafka_source_say(s, 1, "%s [%" PRId32 "]: journal: %s", lane->feed->topic, lane->partition,
				     rd_kafka_error_string(e));
		rd_kafka_error_destroy(e);
	}
	rd_kafka_topic_partition_list_destroy(list);
}

void rdv_kafka_reading_end(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	assign_journal(s, lane, false);
}

void rdv_kafka_reading_begin(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	struct rdv_source_partition p = {.source = lane,
					 .topic = lane->feed->topic,
					 .partition = (uint32_t)lane->partition,
					 .epoch = (uint64_t)lane->opened_at + 1};
	enum redrive_status st;

	memcpy(p.key_secret, lane->feed->key_secret, sizeof p.key_secret);
	if (!s->records)
		s->records = calloc(RECORDS_A_FOLD, sizeof *s->records);
	st = s->records ? s->base.sink.open(s->base.sink.ctx, &p, &lane->seat) : REDRIVE_NO_MEMORY;
	if (st != REDRIVE_OK) {
		rdv_kafka_lane_refuse(s, lane, "the runtime does not take it: %s", redrive_status_text(st));
		return;
	}
	lane->seated = true;
	lane->journal_position = lane->tentative_at = -1;
	lane->last_type = 0;
	lane->state = RDV_KAFKA_LANE_READING;
	lane->since = rdv_mono_now();
	assign_journal(s, lane, true);
}

/* ---- the journal's records ---- */

/* Its offset is what the group had committed, which is no position before somebody has judged it. */
static bool note_open(struct rdv_source_lane *lane, const struct rdv_source_record *r)
{
	struct rdv_kafka_opening o;

	if (!rdv_kafka_fence_decode(r->payload, &o))
		return false;
	lane->last_type = RDV_KAFKA_OPEN_RECORD;
	if (o.tentative)
		lane->tentative_at = (int64_t)r->seq;
	return true;
}

static enum redrive_status fold(struct rdv_kafka_source *s, struct rdv_source_lane *lane, size_t count)
{
	return count ? s->base.sink.fold(s->base.sink.ctx, lane->seat, s->records, count) : REDRIVE_OK;
}

static enum redrive_status fold_value(struct rdv_kafka_source *s, struct rdv_source_lane *lane,
				      struct rdv_slice entries, int64_t at)
{
	enum redrive_status st = REDRIVE_OK;
	struct rdv_source_record *r;
	size_t count = 0;

	while (st == REDRIVE_OK && rdv_entry_next(&entries, &s->records[count])) {
		r = &s->records[count];
		r->at = at;
		if (r->type == RDV_KAFKA_OPEN_RECORD) {
			if (!note_open(lane, r))
				return REDRIVE_CORRUPT;
			continue;
		}
		if (r->type == RDV_SOURCE_POSITION)
			lane->journal_position = (int64_t)r->seq;
		else
			lane->last_type = r->type;
		if (++count == RECORDS_A_FOLD) {
			st = fold(s, lane, count);
			count = 0;
		}
	}
	return st == REDRIVE_OK ? fold(s, lane, count) : st;
}

static bool is_own_open(const struct rdv_source_lane *lane, struct rdv_slice entries)
{
	struct rdv_kafka_opening o;
	struct rdv_source_record r;

	return rdv_entry_next(&entries, &r) && r.type == RDV_KAFKA_OPEN_RECORD &&
	       rdv_kafka_fence_decode(r.payload, &o) && !memcmp(o.nonce, lane->nonce, sizeof o.nonce);
}

/* Rule J. False: refused. */
static bool judge(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	int64_t j = lane->journal_position, o = lane->offset;

	/* An OPEN that was to begin at the end, and was not settled. */
	if (j < 0 && o == lane->tentative_at)
		lane->tentative = true;
	lane->position = j > o || lane->tentative ? j : o;
	if (lane->tentative && j < 0)
		lane->position = lane->high;
	if (lane->position < lane->low)
		lane->position = lane->low;
	if (j > lane->high) {
		rdv_kafka_lane_refuse(s, lane,
				      "the journal is at offset %" PRId64 ", but the topic ends at %" PRId64
				      ": was it created anew?",
				      j, lane->high);
		return false;
	}
	if (j >= 0 && j < o && !lane->tentative && j >= lane->low) {
		rdv_kafka_lane_refuse(s, lane,
				      "the group's offset %" PRId64 " is ahead of the journal, which is at %" PRId64
				      ": somebody else has committed it",
				      o, j);
		return false;
	}
	if (j >= 0 && j < lane->low)
		rdv_kafka_source_say(s, 1,
				     "%s [%" PRId32 "]: messages %" PRId64 " to %" PRId64
				     " were deleted at the broker before they were consumed",
				     lane->feed->topic, lane->partition, j, lane->low - 1);
	if (j > o && !lane->tentative)
		rdv_kafka_source_say(s, 1,
				     "%s [%" PRId32 "]: the journal is at %" PRId64 ", the group's offset at %" PRId64
				     ": the journal is right",
				     lane->feed->topic, lane->partition, j, o);
	return true;
}

static void finish(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	lane->is_clean = lane->last_type == 0 || lane->last_type == RDV_RECORD_CLOSE;
	if (!judge(s, lane))
		return;
	rdv_kafka_reading_end(s, lane);
	pthread_mutex_lock(&s->lock);
	lane->position_at = lane->opened_at;
	lane->state = lane->tentative && lane->journal_position < 0 ? RDV_KAFKA_LANE_SETTLING : RDV_KAFKA_LANE_SEEKING;
	if (lane->state == RDV_KAFKA_LANE_SETTLING) {
		rdv_kafka_work_put(&s->fences, &lane->work, RDV_KAFKA_WORK_SETTLE);
		pthread_cond_signal(&s->transaction_work);
	}
	pthread_mutex_unlock(&s->lock);
	if (lane->state == RDV_KAFKA_LANE_SEEKING)
		rdv_kafka_reading_settled(s, lane);
}

static void read_value(struct rdv_kafka_source *s, struct rdv_source_lane *lane, const rd_kafka_message_t *m)
{
	struct rdv_slice entries;
	enum redrive_status st = rdv_entry_open(rdv_slice(m->payload, m->payload ? m->len : 0), &entries);

	if (st == REDRIVE_NOT_FOUND) {
		atomic_fetch_add(&s->base.foreign_records, 1);
		if (!lane->said_foreign)
			rdv_kafka_source_say(s, 1,
					     "%s [%" PRId32 "]: somebody else writes to its journal: offset %" PRId64,
					     lane->feed->topic, lane->partition, m->offset);
		lane->said_foreign = true;
		return;
	}
	if (st == REDRIVE_OK && m->offset == lane->opened_at && is_own_open(lane, entries)) {
		finish(s, lane);
		return;
	}
	if (st == REDRIVE_OK && !is_own_open(lane, entries)) /* else: an earlier try of this opening */
		st = fold_value(s, lane, entries, m->offset);
	if (st == REDRIVE_VERSION)
		rdv_kafka_lane_refuse(s, lane, "its journal has records of a newer version at offset %" PRId64,
				      m->offset);
	else if (st == REDRIVE_CORRUPT)
		rdv_kafka_lane_refuse(s, lane, "its journal is damaged at offset %" PRId64, m->offset);
	else if (st != REDRIVE_OK)
		rdv_kafka_lane_refuse(s, lane, "the runtime does not take it: %s", redrive_status_text(st));
}

static void read_message(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	const rd_kafka_message_t *m = rd_kafka_event_message_next(event);
	struct rdv_source_lane *lane = m && !m->err ? rdv_kafka_lane_of(s, m, true) : NULL;

	if (!lane || lane->state != RDV_KAFKA_LANE_READING)
		return;
	lane->since = rdv_mono_now(); /* it moves */
	read_value(s, lane, m);
	if (lane->state == RDV_KAFKA_LANE_READING && m->offset >= lane->opened_at)
		rdv_kafka_lane_refuse(s, lane, "its OPEN is not in the journal at offset %" PRId64, lane->opened_at);
}

static void reader_error(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	rd_kafka_topic_partition_t *at = rd_kafka_event_topic_partition(event);
	struct rdv_source_lane *lane = rdv_kafka_lane_next(s, NULL);

	for (; at && lane; lane = rdv_kafka_lane_next(s, lane))
		if (lane->state == RDV_KAFKA_LANE_READING && lane->partition == at->partition &&
		    !strcmp(lane->feed->names.topic[RDV_KAFKA_JOURNAL], at->topic))
			break;
	if (at && lane)
		rdv_kafka_lane_refuse(s, lane, "its journal: %s", rd_kafka_event_error_string(event));
	if (at)
		rd_kafka_topic_partition_destroy(at);
}

void rdv_kafka_reading_event(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_FETCH)
		read_message(s, event);
	else if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR)
		reader_error(s, event);
	rd_kafka_event_destroy(event);
}

/* ---- and then the source ---- */

static rd_kafka_resp_err_t seek(struct rdv_kafka_source *s, const struct rdv_source_lane *lane)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_resp_err_t err;
	rd_kafka_error_t *e;

	rd_kafka_topic_partition_list_add(list, lane->feed->topic, lane->partition)->offset = lane->position;
	e = rd_kafka_seek_partitions(s->consumer, list, SEEK_MS);
	err = e ? rd_kafka_error_code(e) : list->elems[0].err;
	if (e)
		rd_kafka_error_destroy(e);
	rd_kafka_topic_partition_list_destroy(list);
	return err;
}

/* The call may be fine while its element is not: the partition's fetcher has not started yet. */
static void try_seek(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	rd_kafka_resp_err_t err;

	if (lane->deaf)
		rdv_kafka_rebalance_reassign(s, lane);
	lane->deaf = false;
	err = seek(s, lane);
	if (!err) {
		lane->next_offset = lane->position;
		atomic_store(&lane->end, lane->high);
		pthread_mutex_lock(&s->lock);
		lane->state = RDV_KAFKA_LANE_OPEN;
		pthread_mutex_unlock(&s->lock);
		lane->tries = 0;
		rdv_kafka_messages_turn(s, lane);
	} else if (rdv_mono_now().ms > lane->since.ms + SEEK_GIVE_UP_MS) {
		rdv_kafka_lane_refuse(s, lane, "seek to %" PRId64 ": %s", lane->position, rd_kafka_err2str(err));
	}
}

void rdv_kafka_reading_settled(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	enum redrive_status st =
		s->base.sink.opened(s->base.sink.ctx, lane->seat, (uint64_t)lane->position, lane->is_clean);

	lane->state = RDV_KAFKA_LANE_SEEKING;
	lane->since = rdv_mono_now();
	lane->told_opened = st == REDRIVE_OK;
	if (st != REDRIVE_OK)
		rdv_kafka_lane_refuse(s, lane, "the runtime does not take it: %s", redrive_status_text(st));
	else
		try_seek(s, lane);
}

void rdv_kafka_reading_turn(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	if (lane->state == RDV_KAFKA_LANE_SEEKING)
		try_seek(s, lane);
	else if (!lane->said_waiting && rdv_mono_now().ms > lane->since.ms + SHOW_AFTER_MS) {
		rdv_kafka_source_say(
			s, 1, "%s [%" PRId32 "]: waits for a transaction in its journal that a process has left open",
			lane->feed->topic, lane->partition);
		lane->said_waiting = true;
	}
}
