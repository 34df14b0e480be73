/* messages.c - messages from the broker to the sink, in batches, and the brake. Consumer thread.
 *
 * What is fetched is held here until the sink takes it: a piece of at most 1 MiB or 256 messages, all or nothing. FULL
 * pauses the partition; the piece is offered again after a while. What a paused partition had fetched ahead is thrown
 * away by the library and fetched again, so a message below `next_offset` is dropped here.
 *
 * The library's traps: resume of a partition that is not paused rewinds it; its pause flag outlives assignments. So
 * `paused` is what was last called, and nothing is called twice. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "source_parts.h"

#define PIECE_COUNT 256
#define PIECE_BYTES (1u << 20)
#define OFFER_PAUSE_MS 10
#define OFFER_PAUSE_MAX_MS 500

void rdv_kafka_messages_pause(struct rdv_kafka_source *s, struct rdv_source_lane *lane, bool paused)
{
	rd_kafka_topic_partition_list_t *list;

	if (lane->paused == paused)
		return;
	lane->paused = paused;
	list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_list_add(list, lane->feed->topic, lane->partition);
	if (paused)
		rd_kafka_pause_partitions(s->consumer, list);
	else
		rd_kafka_resume_partitions(s->consumer, list);
	rd_kafka_topic_partition_list_destroy(list);
}

void rdv_kafka_messages_drop(struct rdv_source_lane *lane)
{
	for (size_t i = 0; i < lane->held_count; i++)
		rd_kafka_event_destroy(lane->held[i].event);
	lane->held_count = 0;
}

static bool hold(struct rdv_source_lane *lane, struct rdv_kafka_held held)
{
	if (lane->held_count == lane->held_capacity) {
		size_t capacity = lane->held_capacity ? lane->held_capacity * 2 : 64;
		struct rdv_kafka_held *more = realloc(lane->held, capacity * sizeof *more);

		if (!more)
			return false;
		lane->held = more;
		lane->held_capacity = capacity;
	}
	lane->held[lane->held_count++] = held;
	return true;
}

static bool ripen(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	if (lane->ripe)
		return true;
	if (s->ripe_count == s->ripe_capacity) {
		size_t capacity = s->ripe_capacity ? s->ripe_capacity * 2 : 64;
		struct rdv_source_lane **more = realloc(s->ripe, capacity * sizeof(struct rdv_source_lane *));

		if (!more)
			return false;
		s->ripe = more;
		s->ripe_capacity = capacity;
	}
	lane->ripe = true;
	s->ripe[s->ripe_count++] = lane;
	return true;
}

void rdv_kafka_messages_take(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	const rd_kafka_message_t *m = rd_kafka_event_message_next(event);
	struct rdv_source_lane *lane = m ? rdv_kafka_lane_of(s, m, false) : NULL;

	if (!lane || lane->state != RDV_KAFKA_LANE_OPEN || m->err || m->offset < lane->next_offset) {
		rd_kafka_event_destroy(event);
		return;
	}
	/* Without memory the lane begins again from what is durable, rather than with a hole. */
	if (!ripen(s, lane) || !hold(lane, (struct rdv_kafka_held){event, m})) {
		rd_kafka_event_destroy(event);
		rdv_kafka_lane_again(s, lane);
		return;
	}
	lane->next_offset = m->offset + 1;
}

/* ---- conversion ---- */

static struct rdv_slice append_headers(struct rdv_buffer *out, const rd_kafka_message_t *m)
{
	rd_kafka_headers_t *list;
	struct rdv_header small[32], *items = small;
	size_t count, at = out->size;
	const char *name;
	const void *value;
	size_t size;

	if (rd_kafka_message_headers(m, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return rdv_slice(NULL, 0);
	count = rd_kafka_header_cnt(list);
	if (count > sizeof small / sizeof *small)
		items = calloc(count, sizeof *items);
	if (!items) {
		out->failed = true;
		return rdv_slice(NULL, 0);
	}
	for (size_t i = 0; i < count && !rd_kafka_header_get_all(list, i, &name, &value, &size); i++) {
		items[i].name = rdv_slice_text(name);
		items[i].value = rdv_slice(value, value ? size : 0);
	}
	rdv_headers_encode(out, items, count);
	if (items != small)
		free(items);
	return rdv_slice(NULL, out->size - at);
}

static void convert(struct rdv_buffer *headers, const rd_kafka_message_t *m, struct rdv_source_message *out)
{
	rd_kafka_timestamp_type_t type;
	int64_t at = rd_kafka_message_timestamp(m, &type);

	*out = (struct rdv_source_message){
		.offset = (uint64_t)m->offset,
		.has_key = m->key != NULL,
		.tombstone = m->payload == NULL,
		.key = rdv_slice(m->key, m->key ? m->key_len : 0),
		.value = rdv_slice(m->payload, m->payload ? m->len : 0),
		.produced_at = {type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE || at < 0 ? 0 : at}};
	out->headers = append_headers(headers, m);
}

/* As many of `held` as one piece takes, at least one; the headers lie in s->headers one behind the other. */
static size_t make_piece(struct rdv_kafka_source *s, const struct rdv_kafka_held *held, size_t count,
			 struct rdv_source_message out[PIECE_COUNT])
{
	size_t n = 0, bytes = 0, at = 0;

	rdv_buffer_clear(&s->headers);
	for (; n < count && n < PIECE_COUNT; n++) {
		size_t size = held[n].message->len + held[n].message->key_len;

		if (n && bytes + size + s->headers.size > PIECE_BYTES)
			break;
		bytes += size;
		convert(&s->headers, held[n].message, &out[n]);
	}
	for (size_t i = 0; i < n; i++) {
		out[i].headers.data = s->headers.data + at;
		at += out[i].headers.size;
	}
	return n;
}

/* ---- to the sink ---- */

static void forget_held(struct rdv_source_lane *lane, size_t count)
{
	for (size_t i = 0; i < count; i++)
		rd_kafka_event_destroy(lane->held[i].event);
	lane->held_count -= count;
	memmove(lane->held, lane->held + count, lane->held_count * sizeof *lane->held);
}

bool rdv_kafka_messages_why(const struct rdv_source_lane *lane, char out[RDV_KAFKA_TOLD_SIZE])
{
	const char *what = redrive_status_text(lane->not_taken);

	if (!lane->full || lane->not_taken == REDRIVE_FULL || !lane->held_count)
		return false;
	if (lane->not_taken == REDRIVE_TOO_LARGE)
		what = "it is larger than a segment of the data directory's journal (64 MiB); its partition stands";
	snprintf(out, RDV_KAFKA_TOLD_SIZE, "%s [%" PRId32 "]: the message at offset %" PRId64 " is not taken: %s",
		 lane->feed->topic, lane->partition, lane->held[0].message->offset, what);
	return true;
}

static void brake(struct rdv_kafka_source *s, struct rdv_source_lane *lane, enum redrive_status st)
{
	char why[RDV_KAFKA_TOLD_SIZE];
	bool again = lane->full && lane->not_taken == st;

	lane->not_taken = st;
	lane->offer_pause = lane->full ? lane->offer_pause * 2 : OFFER_PAUSE_MS;
	if (lane->offer_pause > OFFER_PAUSE_MAX_MS)
		lane->offer_pause = OFFER_PAUSE_MAX_MS;
	lane->full = true;
	if (!again && rdv_kafka_messages_why(lane, why))
		rdv_kafka_source_say(s, 1, "%s", why);
	lane->offer_at.ms = rdv_mono_now().ms + lane->offer_pause;
	rdv_kafka_messages_pause(s, lane, true);
}

static void give(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	struct rdv_source_message piece[PIECE_COUNT];
	enum redrive_status st = REDRIVE_OK;
	size_t at = 0;

	while (at < lane->held_count) {
		size_t n = make_piece(s, lane->held + at, lane->held_count - at, piece);

		st = REDRIVE_NO_MEMORY;
		if (!s->headers.failed)
			st = s->base.sink.messages(s->base.sink.ctx, lane->seat, piece, n);
		if (st != REDRIVE_OK)
			break;
		at += n;
		lane->full = false;
	}
	forget_held(lane, at);
	if (st != REDRIVE_OK)
		brake(s, lane, st);
}

void rdv_kafka_messages_give(struct rdv_kafka_source *s)
{
	for (size_t i = 0; i < s->ripe_count; i++) {
		struct rdv_source_lane *lane = s->ripe[i];

		lane->ripe = false;
		if (lane->state == RDV_KAFKA_LANE_OPEN && !lane->full)
			give(s, lane);
	}
	s->ripe_count = 0;
}

void rdv_kafka_messages_turn(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	bool wanted = atomic_load(&lane->wanted);

	if (lane->full && wanted && rdv_mono_now().ms >= lane->offer_at.ms)
		give(s, lane);
	rdv_kafka_messages_pause(s, lane, !wanted || lane->full);
}
