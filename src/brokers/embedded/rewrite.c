/* rewrite.c - what topics have in a segment that goes is written again: TOPIC records, and SEEN records of live ids.
 *
 * Ids lie in the order of their records, so the oldest ones are those of the oldest segment; what was written again
 * moves to the newest end. That order holds because an id is moved under the log's append mutex, as publishers add
 * theirs: whoever records later also stands behind. Many ids go into one batch, those of one stream in a row into one
 * record. Not OK (FULL, FAILED, NO_MEMORY): what was written counts, the rest is still to do. Core thread. */
#include "topic_room.h"

#define AT_ONCE 256u /* ids of a batch */

/* The oldest ids of one stream that lie in the segment, as one record; 0: there is none. Both mutexes are held. */
static uint32_t put_oldest(struct rdv_topics *t, uint32_t segment, uint32_t most, struct rdv_buffer *bytes)
{
	struct rdv_seen list[AT_ONCE];
	struct rdv_frame frame = {.type = RDV_RECORD_SEEN};
	struct rdv_id *id = rdv_ids_oldest(&t->ids), *next = id;
	uint32_t count = 0;

	for (; next && count < most && next->segment <= segment && next->stream == id->stream; count++) {
		list[count] = (struct rdv_seen){next->hash, next->offset, next->until};
		next = rdv_ids_newer(&t->ids, next);
	}
	if (!count)
		return 0;
	rdv_buffer_clear(bytes);
	rdv_seen_encode(list, count, bytes);
	frame.stream = id->stream;
	frame.seq = id->offset;
	frame.length = (uint32_t)bytes->size;
	frame.hint_len = (uint16_t)bytes->size;
	memcpy(rdv_log_put(t->log, &frame), bytes->data, bytes->size);
	for (uint32_t i = 0; i < count; i++) {
		id = rdv_ids_oldest(&t->ids);
		id->segment = frame.position.segment;
		rdv_ids_renew(&t->ids, id);
	}
	return count;
}

static enum redrive_status record_oldest(struct rdv_topics *t, uint32_t segment, uint32_t *budget, uint64_t *ticket)
{
	uint32_t most = *budget < AT_ONCE ? *budget : AT_ONCE, left = most, count;
	size_t size = most * (RDV_SEEN_BYTES + 16);
	struct rdv_buffer bytes;
	enum redrive_status status = REDRIVE_NO_MEMORY;

	rdv_buffer_init(&bytes, 0);
	if (rdv_buffer_reserve(&bytes, size))
		status = rdv_log_begin(t->log, RDV_LOG_OUTCOME, size, most, 0);
	if (status == REDRIVE_OK) {
		pthread_mutex_lock(&t->mutex);
		do {
			count = put_oldest(t, segment, left, &bytes);
			left -= count;
		} while (count && left);
		pthread_mutex_unlock(&t->mutex);
		*budget -= most - left;
		if (left < most)
			rdv_log_end(t->log, true, ticket);
		else
			rdv_log_cancel(t->log);
	}
	rdv_buffer_done(&bytes);
	return status;
}

/* Drops what is over; true: the oldest id that is left has to be written again. */
static bool expire(struct rdv_topics *t, uint32_t segment, struct rdv_wall now, uint32_t *budget)
{
	const struct rdv_id *id;
	bool found = false;

	pthread_mutex_lock(&t->mutex);
	*budget -= rdv_ids_expire(&t->ids, now, *budget);
	id = rdv_ids_oldest(&t->ids);
	found = id && id->segment <= segment;
	pthread_mutex_unlock(&t->mutex);
	return found;
}

enum redrive_status rdv_topics_rewrite(struct rdv_topics *t, uint32_t segment, struct rdv_wall now, uint32_t *budget,
				       bool *all, uint64_t *ticket)
{
	enum redrive_status status = REDRIVE_OK;

	*all = false;
	for (size_t i = 0; i < t->count && *budget && status == REDRIVE_OK; i++) {
		if (t->items[i]->segment > segment)
			continue;
		status = rdv_topic_record(t->items[i], ticket);
		--*budget;
	}
	while (status == REDRIVE_OK && *budget) {
		if (!expire(t, segment, now, budget)) {
			*all = *budget > 0; /* else there may be topics, or ids that are over */
			break;
		}
		if (*budget)
			status = record_oldest(t, segment, budget, ticket);
	}
	return status;
}
