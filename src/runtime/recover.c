/* recover.c - from the log to topics and lanes.
 *
 * The log is opened once and folded twice. A lane's identity (LANE) and a topic's (TOPIC) may lie behind their other
 * records, since trimming re-makes them at the head; so the first pass takes only those. Then the routes of the
 * configuration are known, and a strand is made for every lane: with its route's policy, or as an orphan. The second
 * pass folds everything into them. Reading is of hint files for the most part, so the first pass is cheap. The log
 * stays open, and the directory locked, from the first pass on.
 *
 * A LANE record with seq 1 is the engine's own mark on a lane: where it ends (`start` holds the end offset), and
 * whether it is an orphan, discarded, or adopted by the route it names. Records of discarded lanes are skipped. Any
 * record of a stream that nobody has named is corruption. One thread, before the others start. */
#include "room.h"
#include <stdlib.h>

static struct rdv_identity *identity_of(struct rdv_engine *e, uint32_t stream)
{
	struct rdv_identity *id = e->identities;

	while (id && id->stream != stream)
		id = id->next;
	if (id)
		return id;
	id = calloc(1, sizeof *id);
	if (!id)
		return NULL;
	id->stream = stream;
	id->end = UINT64_MAX;
	id->next = e->identities;
	e->identities = id;
	return id;
}

static enum redrive_status identify_lane(struct rdv_engine *e, const struct rdv_frame *frame)
{
	struct rdv_lane_fields fields;
	enum redrive_status status = rdv_lane_decode(frame->payload, &fields);
	struct rdv_identity *id;

	if (status != REDRIVE_OK)
		return status;
	id = identity_of(e, frame->stream);
	if (!id)
		return REDRIVE_NO_MEMORY;
	id->stale = fields.topic.size >= sizeof RDV_INLET_TOPIC - 1 &&
		    memcmp(fields.topic.data, RDV_INLET_TOPIC, sizeof RDV_INLET_TOPIC - 1) == 0;
	id->partition = fields.partition;
	id->partition_stream = fields.partition_stream;
	rdv_slice_to_text(fields.route, id->route, sizeof id->route);
	rdv_slice_to_text(fields.topic, id->topic, sizeof id->topic);
	if (frame->seq == 1) {
		id->end = fields.start;
		id->orphan = fields.orphan;
		id->discarded = fields.discarded;
		id->mark_segment = frame->position.segment;
	} else {
		id->start = fields.start;
		if (fields.epoch > id->epoch)
			id->epoch = fields.epoch;
		id->opens = fields.opens_without_outcome;
	}
	rdv_topics_saw_stream(e->topics, frame->stream);
	return REDRIVE_OK;
}

static enum redrive_status fold_identity(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct rdv_engine *e = ctx;
	enum redrive_status status = REDRIVE_OK;

	e->clean = frame->type == RDV_RECORD_CLOSE && frame->stream == 0;
	if (frame->type == RDV_RECORD_TOPIC)
		return rdv_topics_fold(e->topics, frame, error);
	if (frame->type == RDV_RECORD_LANE)
		status = identify_lane(e, frame);
	if (status != REDRIVE_OK)
		return rdv_error_prefix(error, status, "segment %u: LANE at %u", frame->position.segment,
					frame->position.offset);
	return REDRIVE_OK;
}

enum redrive_status rdv_engine_identify(struct rdv_engine *e, struct rdv_error *error)
{
	struct rdv_log_options o = {
		.dir = e->dir,
		.files = e->options.files,
		.files_ctx = e->options.files_ctx,
		.segment_size = e->options.segment_size,
		.capacity = e->options.journal,
		.disk_free = e->options.disk_free,
		.hold_lock = true,
	};
	struct rdv_log_opened opened;
	enum redrive_status status = rdv_log_open(&o, fold_identity, e, &e->log, &opened, error);

	if (status != REDRIVE_OK)
		return status;
	if (opened.tail_cut)
		rdv_engine_say(e, 1, "the end of the journal was torn; it was cut at segment %u, offset %u",
			       opened.cut_at.segment, opened.cut_at.offset);
	e->id = rdv_log_id(e->log);
	return REDRIVE_OK;
}

/* ---- second pass ---- */

static enum redrive_status fold_body(struct rdv_engine *e, const struct rdv_frame *frame)
{
	struct rdv_feed *feed = frame->stream < e->stream_capacity ? e->streams[frame->stream].feed : NULL;
	struct rdv_place place = {frame->position.segment, frame->position.offset, frame->length};
	struct rdv_body hint;
	enum redrive_status status;

	if (!feed)
		return REDRIVE_OK; /* nobody reads that partition */
	status = rdv_body_decode_hint(frame->payload, &hint);
	for (size_t i = 0; status == REDRIVE_OK && i < feed->count; i++) {
		struct rdv_strand *s = feed->strands[i];

		if (frame->seq >= s->start && frame->seq < s->end)
			status = rdv_lane_fold_body(s->lane, frame->seq, &hint, place);
	}
	return status;
}

static bool is_discarded(struct rdv_engine *e, uint32_t stream)
{
	for (struct rdv_identity *id = e->identities; id; id = id->next)
		if (id->stream == stream)
			return id->discarded || id->stale;
	return false;
}

static enum redrive_status fold_lane(struct rdv_engine *e, const struct rdv_frame *frame)
{
	struct rdv_strand *s = frame->stream < e->stream_capacity ? e->streams[frame->stream].strand : NULL;
	struct rdv_place place = {frame->position.segment, frame->position.offset, frame->length};

	if (frame->type == RDV_RECORD_CLOSE && frame->stream == 0)
		return REDRIVE_OK;
	if (frame->type == RDV_RECORD_LANE && frame->seq == 1)
		return REDRIVE_OK;
	if (!s)
		return is_discarded(e, frame->stream) ? REDRIVE_OK : REDRIVE_CORRUPT;
	return rdv_lane_fold(s->lane, frame->type, frame->seq, frame->payload, place);
}

static enum redrive_status fold_all(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct rdv_engine *e = ctx;
	enum redrive_status status;

	if (frame->type == RDV_RECORD_TOPIC || frame->type == RDV_RECORD_SEEN)
		return rdv_topics_fold(e->topics, frame, error);
	if (frame->type == RDV_RECORD_BODY && frame->stream < e->stream_capacity && e->streams[frame->stream].stale)
		return REDRIVE_OK;
	if (frame->type == RDV_RECORD_BODY) {
		status = rdv_topics_fold(e->topics, frame, error);
		if (status == REDRIVE_OK)
			status = fold_body(e, frame);
	} else if (frame->type == 0 || frame->type >= RDV_RECORD_MAX) {
		status = REDRIVE_VERSION;
	} else {
		status = fold_lane(e, frame);
	}
	if (status != REDRIVE_OK)
		return rdv_error_prefix(error, status, "segment %u: %s at %u", frame->position.segment,
					rdv_record_name(frame->type), frame->position.offset);
	return REDRIVE_OK;
}

/* The strand of a lane that the log knows. */
static enum redrive_status revive(struct rdv_engine *e, const struct rdv_identity *id, struct rdv_error *error)
{
	struct rdv_topic *topic = rdv_topic_find(e->topics, rdv_slice_text(id->topic));
	struct rdv_route *route = id->orphan ? NULL : rdv_route_find(e, id->route);
	struct rdv_feed *feed;
	struct rdv_strand *s;

	if (!topic || id->partition >= rdv_topic_partitions(topic) ||
	    rdv_topic_stream(topic, id->partition) != id->partition_stream)
		return rdv_error_set(error, REDRIVE_CORRUPT,
				     "route '%s' reads a partition of topic '%s' that is not there", id->route,
				     id->topic);
	if (route && strcmp(route->info->topic, id->topic) != 0)
		route = NULL; /* it reads another topic now */
	feed = rdv_feed_of(e, topic, id->partition);
	s = feed ? rdv_strand_new(e, feed, route, id->stream, id->start, id->epoch) : NULL;
	if (!s || rdv_strand_attach(e, s) != REDRIVE_OK) {
		rdv_strand_free(s);
		return REDRIVE_NO_MEMORY;
	}
	memcpy(s->name, id->route, sizeof s->name);
	s->epoch = id->epoch + 1;
	s->end = id->end;
	s->mark_segment = id->mark_segment;
	rdv_strand_join_siblings(e, s);
	s->orphan = id->orphan;
	return REDRIVE_OK;
}

/* A broker's lane of an earlier run: the broker has the truth of it. */
static enum redrive_status note_stale(struct rdv_engine *e, const struct rdv_identity *id)
{
	if (id->stream < RDV_INLET_STREAMS || !rdv_streams_reserve(e, id->stream))
		return id->stream < RDV_INLET_STREAMS ? REDRIVE_CORRUPT : REDRIVE_NO_MEMORY;
	for (uint32_t i = 0; i < RDV_INLET_STREAMS; i++)
		e->streams[id->stream - i].stale = true;
	return REDRIVE_OK;
}

enum redrive_status rdv_engine_recover(struct rdv_engine *e, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;

	for (struct rdv_identity *id = e->identities; id && status == REDRIVE_OK; id = id->next) {
		if (id->stale)
			status = note_stale(e, id);
		else if (!id->discarded)
			status = revive(e, id, error);
	}
	return status == REDRIVE_OK ? rdv_log_fold_again(e->log, fold_all, e, error) : status;
}

static enum redrive_status put_mark(struct rdv_engine *e, uint32_t stream, const struct rdv_lane_fields *fields,
				    uint32_t *segment)
{
	struct rdv_frame frame = {.type = RDV_RECORD_LANE, .stream = stream, .seq = 1};
	struct rdv_buffer bytes;
	enum redrive_status status;

	rdv_buffer_init(&bytes, 0);
	rdv_lane_encode(fields, &bytes);
	status = bytes.failed ? REDRIVE_NO_MEMORY : rdv_log_begin(e->log, RDV_LOG_OUTCOME, bytes.size, 1, 0);
	if (status == REDRIVE_OK) {
		frame.length = (uint32_t)bytes.size;
		frame.hint_len = (uint16_t)bytes.size;
		memcpy(rdv_log_put(e->log, &frame), bytes.data, bytes.size);
		rdv_log_end(e->log, true, &e->last_ticket);
		*segment = frame.position.segment;
	}
	rdv_buffer_done(&bytes);
	return status;
}

/* Behind all their records, so that the mark is the last of them to be trimmed away. */
enum redrive_status rdv_engine_mark_stale(struct rdv_engine *e)
{
	enum redrive_status status = REDRIVE_OK;

	for (struct rdv_identity *id = e->identities; id && status == REDRIVE_OK; id = id->next) {
		struct rdv_lane_fields fields = {
			.route = rdv_slice_text(id->route),
			.topic = rdv_slice_text(id->topic),
			.partition = id->partition,
			.partition_stream = id->partition_stream,
			.discarded = true,
		};

		if (id->stale && !id->discarded)
			status = put_mark(e, id->stream, &fields, &id->mark_segment);
	}
	return status;
}

enum redrive_status rdv_strand_mark(struct rdv_engine *e, struct rdv_strand *s)
{
	char topic[RDV_LABEL_SIZE];
	struct rdv_lane_fields fields = {
		.route = rdv_slice_text(s->name),
		.partition = s->feed->partition,
		.partition_stream = s->feed->stream,
		.start = s->end,
		.epoch = s->epoch,
		.orphan = s->orphan,
		.discarded = s->discarded,
	};

	rdv_feed_label(s->feed, topic);
	fields.topic = rdv_slice_text(topic);
	return put_mark(e, s->stream, &fields, &s->mark_segment);
}
