/* rebalance.c - partitions come and go. Consumer thread.
 *
 * Assigned: the snapshot of the group's state first (the fence of every transaction), then each partition with a dummy
 * offset and paused, before and behind assign(): before, so that nothing is fetched; behind, for topics that the
 * handle did not know. Revoked: the lanes are closing, everything else goes on; the event is answered when their last
 * writes are done, or time is up. Lost: nothing is written any more, and the snapshot goes. Under the cooperative
 * protocol the generation is the next one when partitions are revoked, so the snapshot is taken anew there. */
#include <inttypes.h>
#include <stdlib.h>
#include "source_parts.h"

static void set_snapshot(struct rdv_kafka_source *s, struct rdv_kafka_snapshot *snapshot)
{
	pthread_mutex_lock(&s->lock);
	rdv_kafka_snapshot_unref(s->snapshot);
	s->snapshot = snapshot;
	if (snapshot)
		snapshot->number = ++s->snapshot_count;
	pthread_cond_signal(&s->transaction_work);
	pthread_mutex_unlock(&s->lock);
}

/* Only inside a rebalance event: at any other time it may be of nobody, which the broker does not fence. */
static void take_snapshot(struct rdv_kafka_source *s)
{
	struct rdv_kafka_snapshot *snapshot = calloc(1, sizeof *snapshot);
	struct rdv_error error = {{0}};

	if (!snapshot)
		return;
	snapshot->refs = 1;
	snapshot->group = rd_kafka_consumer_group_metadata(s->consumer);
	if (rdv_kafka_generation(snapshot->group, &snapshot->generation, &error) == REDRIVE_OK) {
		set_snapshot(s, snapshot);
		return;
	}
	rdv_kafka_source_say(s, 0, "group %s: in a rebalance: %s", s->config.group, error.text);
	if (snapshot->group)
		rd_kafka_consumer_group_metadata_destroy(snapshot->group);
	free(snapshot);
}

static bool is_cooperative(struct rdv_kafka_source *s)
{
	const char *protocol = rd_kafka_rebalance_protocol(s->consumer);

	return protocol && !strcmp(protocol, "COOPERATIVE");
}

static void answer(struct rdv_kafka_source *s, rd_kafka_topic_partition_list_t *list, bool assign)
{
	rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
	rd_kafka_error_t *e = NULL;

	if (is_cooperative(s))
		e = assign ? rd_kafka_incremental_assign(s->consumer, list)
			   : rd_kafka_incremental_unassign(s->consumer, list);
	else
		err = rd_kafka_assign(s->consumer, assign ? list : NULL);
	if (e || err)
		rdv_kafka_source_say(s, 0, "group %s: %s: %s", s->config.group, assign ? "assign" : "unassign",
				     e ? rd_kafka_error_string(e) : rd_kafka_err2str(err));
	if (e)
		rd_kafka_error_destroy(e);
}

/* A partition whose fetcher has stopped for an offset out of range is deaf: it must be assigned anew. The cooperative
 * protocol can do that with one; else all are, each where it was, and the pauses stay. */
void rdv_kafka_rebalance_reassign(struct rdv_kafka_source *s, const struct rdv_source_lane *lane)
{
	rd_kafka_topic_partition_list_t *list = NULL;

	if (is_cooperative(s)) {
		list = rd_kafka_topic_partition_list_new(1);
		rd_kafka_topic_partition_list_add(list, lane->feed->topic, lane->partition)->offset = 0;
		answer(s, list, false);
	} else if (rd_kafka_assignment(s->consumer, &list)) {
		return;
	}
	for (int i = 0; i < list->cnt; i++) {
		const struct rdv_source_lane *at = rdv_kafka_lane_at(s, list->elems[i].topic, list->elems[i].partition);

		list->elems[i].offset = at && at->state == RDV_KAFKA_LANE_OPEN ? at->next_offset : 0;
	}
	answer(s, list, true);
	rd_kafka_topic_partition_list_destroy(list);
}

static void assigned(struct rdv_kafka_source *s, rd_kafka_topic_partition_list_t *list)
{
	take_snapshot(s);
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = 0;
	rd_kafka_pause_partitions(s->consumer, list);
	answer(s, list, true);
	rd_kafka_pause_partitions(s->consumer, list);
	for (int i = 0; i < list->cnt && !s->stop_begun && !s->failed; i++)
		rdv_kafka_lane_assign(s, list->elems[i].topic, list->elems[i].partition);
}

/* ---- giving up ---- */

static bool in_list(const rd_kafka_topic_partition_list_t *list, const struct rdv_source_lane *lane)
{
	return !list || rd_kafka_topic_partition_list_find((rd_kafka_topic_partition_list_t *)list, lane->feed->topic,
							   lane->partition);
}

static void leave_listed(struct rdv_kafka_source *s, const rd_kafka_topic_partition_list_t *list)
{
	struct rdv_source_lane *next, *lane = rdv_kafka_lane_next(s, NULL);

	for (; lane; lane = next) {
		next = rdv_kafka_lane_next(s, lane);
		if (in_list(list, lane))
			rdv_kafka_lane_leave(s, lane);
	}
	pthread_mutex_lock(&s->lock);
	pthread_cond_signal(&s->transaction_work); /* a batch may wait for nothing else */
	pthread_mutex_unlock(&s->lock);
}

static void lost(struct rdv_kafka_source *s, const rd_kafka_topic_partition_list_t *list)
{
	set_snapshot(s, NULL);
	leave_listed(s, list);
}

void rdv_kafka_rebalance_drop_all(struct rdv_kafka_source *s)
{
	lost(s, NULL);
}

static int64_t patience(struct rdv_kafka_source *s)
{
	int64_t ms = s->poll_interval_ms / 3;

	return s->config.handler_timeout_ms < ms ? s->config.handler_timeout_ms : ms;
}

static void close_lane(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	rdv_kafka_messages_pause(s, lane, true);
	rdv_kafka_messages_drop(lane);
	pthread_mutex_lock(&s->lock);
	lane->closing = true;
	lane->state = RDV_KAFKA_LANE_CLOSING;
	pthread_mutex_unlock(&s->lock);
}

/* Lanes that are open hear of it; the others are just left. */
static void begin_revoke(struct rdv_kafka_source *s, int64_t within_ms)
{
	struct rdv_source_lane *next, *lane = rdv_kafka_lane_next(s, NULL);
	size_t count = 0, room = 0;
	void **seats = NULL;

	for (; lane; lane = next) {
		next = rdv_kafka_lane_next(s, lane);
		if (!in_list(s->revoking.list, lane) || lane->state == RDV_KAFKA_LANE_CLOSING)
			continue;
		if (count == room) {
			void **more = realloc(seats, (room + 64) * sizeof *more);

			seats = more ? more : seats;
			room += more ? 64 : 0;
		}
		if (lane->state != RDV_KAFKA_LANE_OPEN || count == room) {
			rdv_kafka_lane_leave(s, lane);
			continue;
		}
		close_lane(s, lane);
		seats[count++] = lane->seat;
	}
	s->revoking.on = true;
	s->revoking.by.ms = rdv_ms_add(rdv_mono_now().ms, within_ms);
	if (count)
		s->base.sink.revoke(s->base.sink.ctx, seats, count, within_ms);
	free(seats);
}

static void finish_revoke(struct rdv_kafka_source *s)
{
	leave_listed(s, s->revoking.list);
	if (s->revoking.list) {
		answer(s, s->revoking.list, false);
		rd_kafka_topic_partition_list_destroy(s->revoking.list);
	}
	s->revoking.list = NULL;
	s->revoking.on = false;
}

static bool all_closed(struct rdv_kafka_source *s)
{
	struct rdv_source_lane *lane = rdv_kafka_lane_next(s, NULL);
	bool closed = true;

	pthread_mutex_lock(&s->lock);
	for (; lane; lane = rdv_kafka_lane_next(s, lane))
		closed = closed && (lane->state != RDV_KAFKA_LANE_CLOSING || lane->finished || lane->dead);
	pthread_mutex_unlock(&s->lock);
	return closed;
}

void rdv_kafka_rebalance_turn(struct rdv_kafka_source *s)
{
	if (!s->revoking.on)
		return;
	if (s->revoking.list && rd_kafka_assignment_lost(s->consumer))
		lost(s, s->revoking.list);
	if (all_closed(s) || rdv_mono_now().ms >= s->revoking.by.ms)
		finish_revoke(s);
}

void rdv_kafka_rebalance_begin_stop(struct rdv_kafka_source *s)
{
	int64_t left = s->stop_by.ms - rdv_mono_now().ms;

	if (s->revoking.on) { /* of some lanes; the rest follows in rdv_kafka_rebalance_turn's way */
		if (s->revoking.by.ms > s->stop_by.ms)
			s->revoking.by = s->stop_by;
		return;
	}
	begin_revoke(s, left > 0 ? left : 0);
}

static void revoked(struct rdv_kafka_source *s, rd_kafka_topic_partition_list_t *list)
{
	if (rd_kafka_assignment_lost(s->consumer)) {
		lost(s, list);
		answer(s, list, false);
		return;
	}
	if (is_cooperative(s))
		take_snapshot(s);
	if (s->revoking.on && !s->revoking.list) { /* stopping, in the middle of it */
		s->revoking.list = rd_kafka_topic_partition_list_copy(list);
		return;
	}
	if (s->revoking.on)
		finish_revoke(s);
	s->revoking.list = rd_kafka_topic_partition_list_copy(list);
	begin_revoke(s, patience(s));
	rdv_kafka_rebalance_turn(s);
}

void rdv_kafka_rebalance_event(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(event);

	if (rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		atomic_fetch_add(&s->base.rebalances, 1);
		assigned(s, list);
	} else if (rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
		revoked(s, list);
	} else {
		rdv_kafka_source_say(s, 1, "group %s: rebalance: %s", s->config.group,
				     rd_kafka_err2str(rd_kafka_event_error(event)));
		lost(s, NULL);
		rd_kafka_assign(s->consumer, NULL);
	}
}
