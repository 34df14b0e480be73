/* opening.c - the errand thread: what waits for the broker and is no transaction.
 *
 * A lane that was assigned comes here first: are its private topics as they must be, what has the group committed
 * (which waits for every pending transaction that holds the partition: a dead owner's ends by its timeout), does the
 * source still have that offset. Lanes take turns, so that one that waits does not hold up the others. When none is
 * due, it does its chores (chores.c). Calls are bounded by RDV_KAFKA_CALL_MS. */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "source_parts.h"

#define COMMITTED_MS 1000 /* first wait for a pending transaction; grows up to RDV_KAFKA_CALL_MS */
#define SHOW_TRIES 3
#define AGAIN_MS 500              /* after an error that may pass */
#define FRESH_MS 5000             /* a check of topics that is younger is not made again for another lane */
#define RECORD_ROOM (4u << 10)    /* of a value's limit: what the broker counts beside it */
#define PRIVATE_ROOM (256u << 10) /* private topics take so much more than the source (topics.h) */

/* What came of an errand. */
enum outcome { GOOD, AGAIN, NEVER };

static enum outcome refuse(struct rdv_source_lane *lane, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(lane->why, sizeof lane->why, fmt, args);
	va_end(args);
	return NEVER;
}

/* ---- the topics ---- */

static void append_text(crypto_generichash_state *h, const char *text)
{
	uint32_t size = (uint32_t)strlen(text);

	crypto_generichash_update(h, (const uint8_t *)&size, sizeof size);
	crypto_generichash_update(h, (const uint8_t *)text, size);
}

/* The same in every process of the group; with a secret, known to nobody else. */
static void derive_secret(const struct rdv_kafka_source *s, struct rdv_kafka_feed *f)
{
	const struct rdv_buffer *secret = &s->config.secret;
	uint8_t key[crypto_generichash_BYTES];
	crypto_generichash_state h;

	crypto_generichash(key, sizeof key, secret->size ? secret->data : (const uint8_t *)"", secret->size, NULL, 0);
	crypto_generichash_init(&h, key, sizeof key, sizeof f->key_secret);
	append_text(&h, "redrive key hash");
	append_text(&h, f->about.cluster);
	append_text(&h, f->topic);
	append_text(&h, s->config.group);
	crypto_generichash_final(&h, f->key_secret, sizeof f->key_secret);
}

static void set_why(struct rdv_kafka_source *s, struct rdv_kafka_feed *f, const char *why)
{
	bool news;

	pthread_mutex_lock(&s->lock);
	news = strcmp(f->why, why) != 0;
	rdv_slice_to_text(rdv_slice_text(why), f->why, sizeof f->why);
	pthread_mutex_unlock(&s->lock);
	if (news && why[0])
		rdv_kafka_source_say(s, 0, "%s: %s", f->topic, why);
}

static enum redrive_status describe(struct rdv_kafka_source *s, struct rdv_kafka_feed *f, struct rdv_error *error)
{
	struct rdv_kafka_source_topic about;
	enum redrive_status st = rdv_kafka_describe(s->admin, f->topic, RDV_KAFKA_CALL_MS, &about, error);

	if (st != REDRIVE_OK)
		return st;
	if (f->known && strcmp(f->about.cluster, about.cluster) != 0)
		return rdv_error_set(error, REDRIVE_REFUSED, "the brokers are of another cluster than before");
	f->about = about;
	if (f->known)
		return REDRIVE_OK;
	derive_secret(s, f);
	rdv_kafka_names(about.cluster, s->config.route, f->topic, s->config.group, &f->names);
	atomic_store(&f->known, true);
	return REDRIVE_OK;
}

static bool all_fixable(const struct rdv_kafka_findings *found)
{
	for (size_t i = 0; i < found->count; i++)
		if (!found->items[i].fixable)
			return false;
	return true;
}

/* Looks, creates what is missing if that is wanted, looks again. `found` is what remains. */
static enum redrive_status check(struct rdv_kafka_source *s, struct rdv_kafka_feed *f, struct rdv_kafka_findings *found,
				 struct rdv_error *error)
{
	enum redrive_status st =
		rdv_kafka_check_topics(s->admin, &f->about, &f->names, RDV_KAFKA_CALL_MS, found, error);

	if (st != REDRIVE_OK || !found->count || !s->config.create_topics || !all_fixable(found))
		return st;
	rdv_kafka_findings_done(found);
	st = rdv_kafka_create_topics(s->admin, &f->about, &f->names, s->config.replication, RDV_KAFKA_CALL_MS, error);
	if (st != REDRIVE_OK)
		return st;
	return rdv_kafka_check_topics(s->admin, &f->about, &f->names, RDV_KAFKA_CALL_MS, found, error);
}

enum redrive_status rdv_kafka_feed_check(struct rdv_kafka_source *s, struct rdv_kafka_feed *f, struct rdv_error *error)
{
	struct rdv_kafka_findings found = {0};
	char why[RDV_KAFKA_WHY_SIZE];
	enum redrive_status st = describe(s, f, error);

	if (st == REDRIVE_OK)
		st = check(s, f, &found, error);
	if (st == REDRIVE_NOT_FOUND)
		st = rdv_error_set(error, REDRIVE_REFUSED, "the topic does not exist");
	if (st == REDRIVE_OK && found.count)
		st = rdv_error_set(error, REDRIVE_REFUSED, "topic %s %s%s", found.items[0].topic, found.items[0].what,
				   found.items[0].fixable ? ": run `redrive kafka topics --create`" : "");
	rdv_kafka_findings_done(&found);
	if (st == REDRIVE_OK)
		set_why(s, f, "");
	else if (st == REDRIVE_REFUSED) {
		snprintf(why, sizeof why, "%s", error->text);
		set_why(s, f, why);
	}
	f->checked_at = rdv_mono_now();
	f->sound = st == REDRIVE_OK;
	return st;
}

static enum outcome topics_of(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	struct rdv_kafka_feed *f = lane->feed;
	struct rdv_error error = {{0}};
	enum redrive_status st;

	if (f->sound && lane->partition < f->about.partitions && rdv_mono_now().ms < f->checked_at.ms + FRESH_MS)
		return GOOD;
	st = rdv_kafka_feed_check(s, f, &error);
	if (st == REDRIVE_REFUSED)
		return refuse(lane, "%s", error.text);
	if (st != REDRIVE_OK) {
		snprintf(lane->why, sizeof lane->why, "%s", error.text);
		return AGAIN;
	}
	return lane->partition < f->about.partitions ? GOOD : AGAIN; /* just added: not yet seen everywhere */
}

/* ---- the offset ---- */

static enum outcome after_error(struct rdv_source_lane *lane, const char *what, rd_kafka_resp_err_t err)
{
	enum rdv_kafka_deed deed = rdv_kafka_deed_of(err, false, false, false);

	refuse(lane, "%s: %s", what, rd_kafka_err2str(err));
	return deed == RDV_KAFKA_STOP || deed == RDV_KAFKA_DENIED ? NEVER : AGAIN;
}

static int committed_timeout(const struct rdv_source_lane *lane)
{
	int ms = COMMITTED_MS;

	for (int i = 0; i < lane->asked && ms < RDV_KAFKA_CALL_MS; i++)
		ms *= 2;
	return ms < RDV_KAFKA_CALL_MS ? ms : RDV_KAFKA_CALL_MS;
}

/* RD_KAFKA_OFFSET_INVALID: nothing is committed. */
static enum outcome ask_committed(struct rdv_kafka_source *s, struct rdv_source_lane *lane, int64_t *out)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_resp_err_t err;

	rd_kafka_topic_partition_list_add(list, lane->feed->topic, lane->partition);
	err = rd_kafka_committed(s->consumer, list, committed_timeout(lane));
	if (!err)
		err = list->elems[0].err;
	*out = list->elems[0].offset;
	rd_kafka_topic_partition_list_destroy(list);
	lane->asked++;
	return err ? after_error(lane, "the group's committed offset (a transaction of its last owner may be open)",
				 err)
		   : GOOD;
}

static enum outcome begin_somewhere(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	if (s->config.from == RDV_KAFKA_COMMITTED)
		return refuse(lane, "the group %s has no committed offset, and `from` is committed", s->config.group);
	/* At the end only if the journal knows nothing: what the group had committed may have expired. */
	lane->tentative = s->config.from == RDV_KAFKA_LATEST;
	lane->offset = lane->low;
	return GOOD;
}

static enum outcome find_offset(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	int64_t o;
	enum outcome found = ask_committed(s, lane, &o);
	rd_kafka_resp_err_t err;

	if (found != GOOD)
		return found;
	err = rd_kafka_query_watermark_offsets(s->consumer, lane->feed->topic, lane->partition, &lane->low, &lane->high,
					       RDV_KAFKA_CALL_MS);
	if (err)
		return after_error(lane, "the topic's offsets", err);
	lane->tentative = false;
	lane->offset = o;
	if (o < 0)
		return begin_somewhere(s, lane);
	if (o > lane->high)
		return refuse(lane,
			      "the group's offset %" PRId64 " is beyond the topic's end %" PRId64
			      ": was the topic created anew?",
			      o, lane->high);
	if (o < lane->low)
		return refuse(lane,
			      "the group's offset %" PRId64 " is before the topic's start %" PRId64
			      ": messages were deleted before they were consumed; commit an offset to go on from",
			      o, lane->low);
	return GOOD;
}

/* ---- a lane's way through ---- */

static void conclude(struct rdv_kafka_source *s, struct rdv_source_lane *lane, enum outcome outcome)
{
	pthread_mutex_lock(&s->lock);
	if (lane->dead)
		; /* its way ends here */
	else if (outcome == GOOD) {
		rdv_kafka_work_put(&s->fences, &lane->work, RDV_KAFKA_WORK_FENCE);
		pthread_cond_signal(&s->transaction_work);
	} else if (outcome == AGAIN) {
		lane->not_before.ms = rdv_mono_now().ms + AGAIN_MS;
		rdv_kafka_work_put(&s->asks, &lane->work, RDV_KAFKA_WORK_ASK);
	} else {
		rdv_kafka_source_tell(s, &lane->work, RDV_KAFKA_WORK_REFUSED);
	}
	pthread_mutex_unlock(&s->lock);
}

static void ask(struct rdv_kafka_source *s, struct rdv_source_lane *lane)
{
	enum outcome outcome = topics_of(s, lane);
	int64_t room;

	if (outcome == GOOD)
		outcome = find_offset(s, lane);
	if (outcome == GOOD) {
		room = lane->feed->about.message_max + PRIVATE_ROOM - RECORD_ROOM;
		lane->value_max = room < 0 ? 0 : (size_t)room;
		memcpy(lane->topic_id, lane->feed->about.id, sizeof lane->topic_id);
	} else if (outcome == AGAIN && lane->asked == SHOW_TRIES) {
		rdv_kafka_source_say(s, 1, "%s [%" PRId32 "]: not yet: %s", lane->feed->topic, lane->partition,
				     lane->why);
	}
	conclude(s, lane, outcome);
}

/* ---- the thread ---- */

/* The first that is due; the others keep their order. Under the lock. */
static struct rdv_source_lane *take_due(struct rdv_kafka_source *s)
{
	struct rdv_kafka_work_list rest = {0};
	struct rdv_source_lane *due = NULL;
	struct rdv_kafka_work *work;

	while ((work = rdv_kafka_work_take(&s->asks))) {
		if (work->lane->dead)
			continue;
		if (!due && work->lane->not_before.ms <= rdv_mono_now().ms)
			due = work->lane;
		else
			rdv_kafka_work_put(&rest, work, work->kind);
	}
	s->asks = rest;
	if (!rest.first)
		s->asks.last = NULL;
	return due;
}

void *rdv_kafka_errand_main(void *source)
{
	struct rdv_kafka_source *s = source;
	struct rdv_source_lane *lane;

	pthread_mutex_lock(&s->lock);
	while (!s->quit) {
		lane = take_due(s);
		if (!lane && !s->forgetting)
			rdv_kafka_source_wait(s, &s->errand_work, s->asks.first ? 100 : 1000);
		pthread_mutex_unlock(&s->lock);
		rdv_kafka_copies_check(s); /* before a lane opens, so that its first letter has a copy */
		if (lane)
			ask(s, lane);
		else
			rdv_kafka_chores(s);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}
