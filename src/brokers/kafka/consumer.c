/* consumer.c - the consumer thread: serves the group's and the reader's events, the other threads' news, and what is
 * due; calls the sink.
 *
 * One eventfd wakes it: both queues write to it when they get non-empty (and only then, so a queue that was not emptied
 * is gone on with before sleeping), and so does whoever puts news. Everything in a turn is bounded. Nothing here waits
 * for the broker but a seek; a handler that hangs for minutes is none of its business, so it polls all the time. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "source_parts.h"

#define EVENTS_A_TURN 1024
#define TICK_MS 500
#define TROUBLE_MS 30000 /* an error that did not come again is over */
#define TURN_MS 20       /* while something is due soon */

static void sleep_until_woken(struct rdv_kafka_source *s, int timeout_ms)
{
	struct pollfd fd = {.fd = s->wake_fd, .events = POLLIN};
	uint64_t count;

	if (poll(&fd, 1, timeout_ms) > 0 && read(s->wake_fd, &count, sizeof count) < 0)
		return; /* another one was faster */
}

/* ---- the group's events ---- */

static void say_error(struct rdv_kafka_source *s, const char *what, const char *text)
{
	char why[RDV_KAFKA_WHY_SIZE];

	snprintf(why, sizeof why, "%s: %s", what, text);
	if (strcmp(why, s->consumer_trouble) != 0)
		rdv_kafka_source_say(s, 1, "%s", why);
	memcpy(s->consumer_trouble, why, sizeof why);
	s->consumer_trouble_at = rdv_mono_now();
}

static void fail_for_good(struct rdv_kafka_source *s, const char *why)
{
	s->failed = true;
	atomic_store(&s->txn_stop, true);
	rdv_kafka_rebalance_drop_all(s);
	say_error(s, "stopped", why);
}

static void consumer_error(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	rd_kafka_resp_err_t err = rd_kafka_event_error(event);
	rd_kafka_topic_partition_t *at = rd_kafka_event_topic_partition(event);
	struct rdv_source_lane *lane = at ? rdv_kafka_lane_at(s, at->topic, at->partition) : NULL;
	char fatal[256];

	if (at)
		rd_kafka_topic_partition_destroy(at);
	if (err == RD_KAFKA_RESP_ERR__FATAL)
		err = rd_kafka_fatal_error(s->consumer, fatal, sizeof fatal);
	if (err == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID)
		fail_for_good(s, "another process has taken this instance's place in the group (group.instance.id)");
	else if (rd_kafka_fatal_error(s->consumer, fatal, sizeof fatal))
		fail_for_good(s, fatal);
	else if (lane && err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET)
		rdv_kafka_lane_deaf(s, lane);
	else
		say_error(s, lane ? lane->feed->topic : "broker", rd_kafka_event_error_string(event));
}

static void consumer_event(struct rdv_kafka_source *s, rd_kafka_event_t *event)
{
	switch (rd_kafka_event_type(event)) {
	case RD_KAFKA_EVENT_FETCH:
		s->consumer_trouble[0] = 0;
		rdv_kafka_messages_take(s, event);
		return;
	case RD_KAFKA_EVENT_REBALANCE:
		rdv_kafka_messages_give(s); /* first what was fetched before it */
		s->consumer_trouble[0] = 0;
		rdv_kafka_rebalance_event(s, event);
		break;
	case RD_KAFKA_EVENT_ERROR:
		consumer_error(s, event);
		break;
	default:
		break;
	}
	rd_kafka_event_destroy(event);
}

/* True: there may be more. */
static bool drain(struct rdv_kafka_source *s, rd_kafka_queue_t *queue,
		  void (*serve)(struct rdv_kafka_source *, rd_kafka_event_t *))
{
	for (int i = 0; i < EVENTS_A_TURN; i++) {
		rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 0);

		if (!event)
			return false;
		serve(s, event);
	}
	return true;
}

/* ---- the other threads' news ---- */

static void batch_done(struct rdv_kafka_source *s)
{
	struct rdv_source_batch *b;
	enum redrive_status status;
	char why[RDV_KAFKA_WHY_SIZE];

	pthread_mutex_lock(&s->lock);
	b = s->batch;
	status = s->batch_status;
	memcpy(why, s->batch_why, sizeof why);
	s->batch_why[0] = 0;
	s->batch = NULL;
	for (size_t i = 0; i < b->write_count; i++)
		b->writes[i].lane->in_batch = false;
	pthread_mutex_unlock(&s->lock);
	if (status != REDRIVE_OK)
		atomic_fetch_add(&s->base.refused_batches, 1);
	if (why[0]) /* before done, so that the runtime makes no other batch of these lanes */
		fail_for_good(s, why);
	b->done(b->ctx, b, status);
}

static void one_news(struct rdv_kafka_source *s, enum rdv_kafka_work_kind kind, struct rdv_source_lane *lane)
{
	if (kind == RDV_KAFKA_WORK_DONE)
		batch_done(s);
	else if (lane->state >= RDV_KAFKA_LANE_REFUSED)
		return; /* it was left meanwhile */
	else if (kind == RDV_KAFKA_WORK_READ)
		rdv_kafka_reading_begin(s, lane);
	else if (kind == RDV_KAFKA_WORK_SETTLED)
		rdv_kafka_reading_settled(s, lane);
	else if (kind == RDV_KAFKA_WORK_REFUSED)
		rdv_kafka_lane_refuse(s, lane, "%s", lane->why);
	else if (kind == RDV_KAFKA_WORK_REOPEN && lane->state == RDV_KAFKA_LANE_CLOSING)
		rdv_kafka_lane_leave(s, lane);
	else if (kind == RDV_KAFKA_WORK_REOPEN)
		rdv_kafka_lane_again(s, lane);
}

static void take_news(struct rdv_kafka_source *s)
{
	for (;;) {
		struct rdv_kafka_work *work;
		enum rdv_kafka_work_kind kind;

		pthread_mutex_lock(&s->lock);
		work = rdv_kafka_work_take(&s->news);
		kind = work ? work->kind : RDV_KAFKA_WORK_DONE;
		pthread_mutex_unlock(&s->lock);
		if (!work)
			return;
		one_news(s, kind, work->lane);
	}
}

/* ---- now and then ---- */

static int64_t lag_of(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	int64_t low, high, end = atomic_load(&lane->end);

	if (rd_kafka_get_watermark_offsets(s->consumer, lane->feed->topic, lane->partition, &low, &high))
		high = 0;
	if (high < end)
		high = end;
	return high > lane->next_offset ? high - lane->next_offset : 0;
}

static void measure_lag(struct rdv_kafka_source *s)
{
	int64_t lag = 0;
	bool known = false;

	for (struct rdv_source_lane *lane = rdv_kafka_lane_next(s, NULL); lane; lane = rdv_kafka_lane_next(s, lane)) {
		if (lane->state != RDV_KAFKA_LANE_OPEN)
			continue;
		known = true;
		lag += lag_of(s, lane);
		pthread_mutex_lock(&s->lock);
		lane->wants_end = lane->paused;
		pthread_mutex_unlock(&s->lock);
	}
	atomic_store(&s->base.lag, known ? lag : -1);
}

/* The worst that is known, as one sentence; false: it works. */
static bool find_why(struct rdv_kafka_source *s, char out[RDV_KAFKA_TOLD_SIZE])
{
	struct rdv_source_lane *lane = rdv_kafka_lane_next(s, NULL);
	bool lanes = lane != NULL;

	out[0] = 0;
	pthread_mutex_lock(&s->lock);
	if (s->failed)
		memcpy(out, s->consumer_trouble, RDV_KAFKA_WHY_SIZE);
	else if (s->trouble[0])
		memcpy(out, s->trouble, RDV_KAFKA_WHY_SIZE);
	for (struct rdv_kafka_feed *f = s->feeds; f && !out[0]; f = f->next)
		if (f->why[0])
			snprintf(out, RDV_KAFKA_TOLD_SIZE, "%s: %s", f->topic, f->why);
	pthread_mutex_unlock(&s->lock);
	for (; lane && !out[0]; lane = rdv_kafka_lane_next(s, lane)) {
		if (lane->state == RDV_KAFKA_LANE_REFUSED)
			snprintf(out, RDV_KAFKA_TOLD_SIZE, "%s [%" PRId32 "]: %s", lane->feed->topic, lane->partition,
				 lane->why);
		else if (lane->state == RDV_KAFKA_LANE_OPEN && !rdv_kafka_messages_why(lane, out))
			out[0] = 0;
	}
	if (!out[0] && s->consumer_trouble[0])
		memcpy(out, s->consumer_trouble, RDV_KAFKA_WHY_SIZE);
	if (!out[0] && !lanes && !s->base.rebalances)
		snprintf(out, RDV_KAFKA_TOLD_SIZE, "joining the group %s", s->config.group);
	return out[0] != 0;
}

static void tick(struct rdv_kafka_source *s)
{
	char why[RDV_KAFKA_TOLD_SIZE];
	bool bad;

	s->ticked_at = rdv_mono_now();
	if (!s->failed && s->ticked_at.ms > s->consumer_trouble_at.ms + TROUBLE_MS)
		s->consumer_trouble[0] = 0;
	measure_lag(s);
	bad = find_why(s, why);
	if (s->told_any && !strcmp(why, s->told))
		return;
	memcpy(s->told, why, sizeof why);
	s->told_any = true;
	s->base.sink.state(s->base.sink.ctx, bad ? why : NULL, s->failed);
}

/* ---- stopping ---- */

/* True: nothing is left that anybody waits for. */
static bool stop_turn(struct rdv_kafka_source *s)
{
	bool late = rdv_mono_now().ms >= s->stop_by.ms, done;

	if (!s->stop_begun || (!s->revoking.on && rdv_kafka_lane_next(s, NULL))) {
		s->stop_begun = true;
		rdv_kafka_rebalance_begin_stop(s);
	}
	if (late)
		atomic_store(&s->txn_stop, true);
	pthread_mutex_lock(&s->lock);
	done = !s->revoking.on && !rdv_kafka_lane_next(s, NULL) && !s->batch && !s->left_count;
	s->consumer_done = done;
	pthread_cond_signal(&s->transaction_work);
	pthread_mutex_unlock(&s->lock);
	return done;
}

static bool due_soon(struct rdv_kafka_source *s)
{
	if (s->revoking.on || s->stop_begun || s->left_count)
		return true;
	for (struct rdv_source_lane *lane = rdv_kafka_lane_next(s, NULL); lane; lane = rdv_kafka_lane_next(s, lane))
		if (lane->state == RDV_KAFKA_LANE_SEEKING || (lane->state == RDV_KAFKA_LANE_OPEN && lane->full))
			return true;
	return false;
}

static bool is_stopping(struct rdv_kafka_source *s)
{
	bool stopping;

	pthread_mutex_lock(&s->lock);
	stopping = s->stopping;
	pthread_mutex_unlock(&s->lock);
	return stopping;
}

void *rdv_kafka_consumer_main(void *source)
{
	struct rdv_kafka_source *s = source;
	bool more = false;

	for (;;) {
		bool soon = due_soon(s), ticked = rdv_mono_now().ms >= s->ticked_at.ms + TICK_MS;

		if (!more && !ticked)
			sleep_until_woken(s, soon ? TURN_MS : TICK_MS);
		more = drain(s, s->consumer_queue, consumer_event);
		rdv_kafka_messages_give(s);
		more = drain(s, s->reader_queue, rdv_kafka_reading_event) || more;
		take_news(s);
		rdv_kafka_rebalance_turn(s);
		if (soon || ticked || atomic_exchange(&s->attention, false) || s->left_count)
			rdv_kafka_lanes_turn(s);
		if (ticked)
			tick(s);
		if (is_stopping(s) && stop_turn(s))
			return NULL;
	}
}
