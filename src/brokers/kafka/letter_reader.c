/* letter_reader.c - letters topics are read and given to the sink; see letter_reader.h.
 *
 *   look for partitions → poll → judge the value → sink → answers → positions kept
 *
 * What is at the sink is bounded by number and bytes: beyond that nothing is polled, and the library's queue fills and
 * stops fetching. A letter that the sink does not take is held and offered again; one that could not be stored makes
 * its partition BROKEN: when all its answers are there, it is read again from the first that is not stored. Positions
 * are kept a few times a second, and at the end. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "../../base/clock.h"
#include "letter_parts.h"

#define OUT_MAX 8192u
#define OUT_BYTES_MAX (16u << 20)
#define POLL_MS 50
#define POLL_MORE 256 /* messages that are there already, before anything else is looked at */
#define HOLD_MS 50
#define KEEP_MS 300
#define AGAIN_MS 1000
#define TELL_MS 60000
#define ASK_MS 2000

/* ---- saying ---- */

void rdv_kafka_letter_say(struct rdv_kafka_letter_reader *r, int level, const char *fmt, ...)
{
	char text[600];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	rdv_kafka_config_scrub(&r->config, text);
	if (r->sink.say)
		r->sink.say(r->sink.ctx, level, text);
}

void rdv_kafka_letter_tell(struct rdv_kafka_letter_reader *r, const char *fmt, ...)
{
	char text[sizeof r->told];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	if (strcmp(text, r->told) == 0 && rdv_mono_now().ms < r->told_ms + TELL_MS)
		return;
	memcpy(r->told, text, sizeof text);
	r->told_ms = rdv_mono_now().ms;
	rdv_kafka_letter_say(r, 1, "letters for the desk: %s", text);
}

/* ---- partitions are assigned ---- */

static rd_kafka_error_t *assign_at(struct rdv_kafka_letter_reader *r, const struct rdv_kafka_letter_part *part, bool on)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_error_t *e;

	rd_kafka_topic_partition_list_add(list, part->topic->name, part->partition)->offset =
		part->next >= 0 ? part->next : RD_KAFKA_OFFSET_BEGINNING;
	e = on ? rd_kafka_incremental_assign(r->handle, list) : rd_kafka_incremental_unassign(r->handle, list);
	rd_kafka_topic_partition_list_destroy(list);
	return e;
}

static void leave(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part)
{
	rd_kafka_error_destroy(assign_at(r, part, false));
}

bool rdv_kafka_letter_assign(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part)
{
	int64_t next = -1;
	enum redrive_status st = REDRIVE_OK;
	rd_kafka_error_t *e;

	if (part->next < 0)
		st = r->sink.position(r->sink.ctx, part->topic->name, part->partition, &next);
	if (st != REDRIVE_OK && st != REDRIVE_NOT_FOUND) {
		rdv_kafka_letter_tell(r, "where %s [%" PRId32 "] was: %s", part->topic->name, part->partition,
				      redrive_status_text(st));
		return false;
	}
	if (part->next < 0 && st == REDRIVE_OK)
		part->next = part->kept = next;
	e = assign_at(r, part, true);
	if (e) {
		rdv_kafka_letter_tell(r, "%s [%" PRId32 "]: %s", part->topic->name, part->partition,
				      rd_kafka_error_string(e));
		rd_kafka_error_destroy(e);
		return false;
	}
	part->state = RDV_KAFKA_PART_READING;
	return true;
}

/* It is read again from `next`, later. */
static void break_part(struct rdv_kafka_letter_part *part, int64_t pause)
{
	part->state = RDV_KAFKA_PART_BROKEN;
	part->again_ms = rdv_mono_now().ms + pause;
}

/* What is no longer there is gone; what was stored stays stored. */
static void out_of_range(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part)
{
	int64_t low, high, was = part->next;

	if (rd_kafka_query_watermark_offsets(r->handle, part->topic->name, part->partition, &low, &high, ASK_MS)) {
		break_part(part, AGAIN_MS); /* and asked again by the next error */
		return;
	}
	rdv_kafka_letter_say(r, 0,
			     "letters for the desk: %s [%" PRId32 "] has offsets %" PRId64 " to %" PRId64
			     ", and the desk was at %" PRId64 ": %s; it goes on at the first",
			     part->topic->name, part->partition, low, high, was,
			     was < low ? "letters were deleted before they were taken in"
				       : "was the topic created anew?");
	part->next = low;
	break_part(part, 0);
}

static void trouble(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part, rd_kafka_resp_err_t err)
{
	switch (err) {
	case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
	case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
		if (part)
			out_of_range(r, part);
		return;
	case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
	case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
	case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		if (part)
			break_part(part, AGAIN_MS);
		break;
	case RD_KAFKA_RESP_ERR__TRANSPORT:
	case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
	case RD_KAFKA_RESP_ERR__RESOLVE:
		return; /* the library says it, and tries again */
	default:
		break;
	}
	rdv_kafka_letter_tell(r, "%s: %s", part ? part->topic->name : r->config.brokers, rd_kafka_err2str(err));
}

/* ---- values ---- */

static struct rdv_kafka_parcel *new_parcel(struct rdv_kafka_letter_reader *r, const rd_kafka_message_t *m)
{
	struct rdv_kafka_parcel *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->reader = r;
	p->offset = m->offset;
	p->size = m->len + m->key_len;
	return p;
}

static void add_parcel(struct rdv_kafka_letter_part *part, struct rdv_kafka_parcel *p)
{
	*part->last = p;
	part->last = &p->next;
}

static enum redrive_status pass_over(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part,
				     const rd_kafka_message_t *m)
{
	struct rdv_kafka_parcel *p = new_parcel(r, m);

	if (!p)
		return REDRIVE_NO_MEMORY;
	p->answered = true;
	add_parcel(part, p);
	return REDRIVE_OK;
}

static void count_out(struct rdv_kafka_letter_reader *r, const struct rdv_kafka_parcel *p, bool out)
{
	pthread_mutex_lock(&r->lock);
	r->out += out ? 1 : -1u;
	r->out_bytes += out ? p->size : -p->size;
	pthread_mutex_unlock(&r->lock);
}

static enum redrive_status give(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part,
				const rd_kafka_message_t *m, const struct rdv_kafka_letter *letter)
{
	struct rdv_kafka_parcel *p = new_parcel(r, m);
	enum redrive_status st;

	if (!p)
		return REDRIVE_NO_MEMORY;
	count_out(r, p, true); /* its answer may come before this returns */
	st = r->sink.letter(r->sink.ctx, letter, (uint64_t)(uintptr_t)p);
	if (st == REDRIVE_OK) {
		add_parcel(part, p);
		return REDRIVE_OK;
	}
	count_out(r, p, false);
	free(p);
	return st;
}

/* OK: a letter of this route, or an outcome. */
static enum redrive_status judge(struct rdv_kafka_letter_reader *r, const struct rdv_kafka_letter_part *part,
				 const rd_kafka_message_t *m, struct rdv_kafka_letter *out)
{
	enum redrive_status st = rdv_kafka_letter_decode(rdv_slice(m->payload, m->payload ? m->len : 0), out);

	if (st != REDRIVE_OK || out->kind != RDV_LETTER_DEAD)
		return st;
	st = rdv_envelope_decode(out->envelope, &r->envelope);
	if (st != REDRIVE_OK)
		return st == REDRIVE_VERSION ? st : REDRIVE_CORRUPT;
	if (!rdv_slice_equal(r->envelope.route, rdv_slice_text(r->config.route)) ||
	    !rdv_slice_equal(r->envelope.topic, rdv_slice_text(part->topic->source)))
		return REDRIVE_NOT_FOUND;
	return REDRIVE_OK;
}

static void say_once(struct rdv_kafka_letter_reader *r, const struct rdv_kafka_letter_part *part, bool *said,
		     const rd_kafka_message_t *m, const char *what)
{
	if (!*said)
		rdv_kafka_letter_say(r, 1, "letters for the desk: %s [%" PRId32 "]: offset %" PRId64 " %s",
				     part->topic->name, part->partition, m->offset, what);
	*said = true;
}

static enum redrive_status halt(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part,
				const rd_kafka_message_t *m)
{
	rdv_kafka_letter_say(r, 0,
			     "letters for the desk: %s [%" PRId32 "]: offset %" PRId64
			     " was written by a newer Redrive: this partition is read no further; start that version",
			     part->topic->name, part->partition, m->offset);
	leave(r, part);
	part->state = RDV_KAFKA_PART_STOPPED;
	atomic_fetch_add(&r->stopped, 1);
	return REDRIVE_OK;
}

static enum redrive_status take_value(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part,
				      const rd_kafka_message_t *m)
{
	struct rdv_kafka_letter letter;
	enum redrive_status st = judge(r, part, m, &letter);

	if (st == REDRIVE_OK && letter.kind == RDV_LETTER_DEAD)
		return give(r, part, m, &letter);
	if (st == REDRIVE_VERSION)
		return halt(r, part, m);
	if (st == REDRIVE_NOT_FOUND)
		say_once(r, part, &part->said_foreign, m,
			 "is no letter of this route: somebody else writes to the topic");
	else if (st != REDRIVE_OK)
		say_once(r, part, &part->said_damaged, m, "is damaged: it cannot be shown");
	atomic_fetch_add(st == REDRIVE_OK ? &r->outcomes : st == REDRIVE_NOT_FOUND ? &r->foreign : &r->damaged, 1);
	return pass_over(r, part, m);
}

/* Takes the message. */
static void take(struct rdv_kafka_letter_reader *r, rd_kafka_message_t *m)
{
	struct rdv_kafka_letter_part *part = rdv_kafka_letter_part_of(r, m);
	enum redrive_status st = REDRIVE_OK;

	if (m->err)
		trouble(r, part, m->err);
	else if (part && part->state == RDV_KAFKA_PART_READING)
		st = take_value(r, part, m);
	if (st == REDRIVE_OK) {
		rd_kafka_message_destroy(m);
		return;
	}
	if (st != REDRIVE_FULL)
		rdv_kafka_letter_tell(r, "the desk does not take them now: %s", redrive_status_text(st));
	r->held = m;
}

/* ---- answers ---- */

void rdv_kafka_letter_stored(struct rdv_kafka_letter_reader *r, uint64_t ticket, enum redrive_status status)
{
	struct rdv_kafka_parcel *p = (struct rdv_kafka_parcel *)(uintptr_t)ticket;

	pthread_mutex_lock(&r->lock);
	p->status = status;
	p->answered = true;
	r->out--;
	r->out_bytes -= p->size;
	pthread_cond_signal(&r->answers);
	pthread_mutex_unlock(&r->lock);
}

static bool is_never(enum redrive_status status)
{
	return status == REDRIVE_CORRUPT || status == REDRIVE_INVALID || status == REDRIVE_TOO_LARGE;
}

static void count_answer(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part,
			 const struct rdv_kafka_parcel *p)
{
	if (!is_never(p->status)) {
		atomic_fetch_add(&r->stored, 1);
		return;
	}
	atomic_fetch_add(&r->damaged, 1);
	if (!part->said_damaged)
		rdv_kafka_letter_say(r, 0,
				     "letters for the desk: %s [%" PRId32 "]: offset %" PRId64 " cannot be stored: %s",
				     part->topic->name, part->partition, p->offset, redrive_status_text(p->status));
	part->said_damaged = true;
}

/* Under the lock. What is answered, from the first on, moves the position. */
static void settle(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part)
{
	while (part->first && part->first->answered) {
		struct rdv_kafka_parcel *p = part->first;
		bool good = p->status == REDRIVE_OK || is_never(p->status);

		if (!good && part->state == RDV_KAFKA_PART_READING) {
			rdv_kafka_letter_tell(r, "%s: %s", part->topic->name, redrive_status_text(p->status));
			break_part(part, AGAIN_MS);
		}
		if (part->state != RDV_KAFKA_PART_BROKEN) {
			part->next = p->offset + 1;
			count_answer(r, part, p);
		}
		part->first = p->next;
		free(p);
	}
	if (!part->first)
		part->last = &part->first;
}

static void mend(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_part *part)
{
	if (part->state != RDV_KAFKA_PART_BROKEN || part->first || rdv_mono_now().ms < part->again_ms)
		return;
	leave(r, part);
	part->state = RDV_KAFKA_PART_WAITING;
	if (!rdv_kafka_letter_assign(r, part))
		r->look_ms = 0; /* soon again, when the topic is looked at */
}

static void settle_all(struct rdv_kafka_letter_reader *r)
{
	for (struct rdv_kafka_letter_topic *t = r->topics; t; t = t->next) {
		pthread_mutex_lock(&r->lock);
		for (int32_t i = 0; i < t->count; i++)
			settle(r, t->parts[i]);
		pthread_mutex_unlock(&r->lock);
		for (int32_t i = 0; i < t->count; i++)
			mend(r, t->parts[i]);
	}
}

/* ---- positions ---- */

static bool room_for_positions(struct rdv_kafka_letter_reader *r)
{
	size_t count = atomic_load(&r->partitions);
	struct rdv_kafka_letter_position *more;

	if (count <= r->position_room)
		return true;
	more = realloc(r->positions, count * sizeof *more);
	if (!more)
		return false;
	r->positions = more;
	r->position_room = count;
	return true;
}

static size_t list_moved(struct rdv_kafka_letter_reader *r)
{
	size_t count = 0;

	for (const struct rdv_kafka_letter_topic *t = r->topics; t; t = t->next)
		for (int32_t i = 0; i < t->count; i++)
			if (t->parts[i]->next != t->parts[i]->kept)
				r->positions[count++] =
					(struct rdv_kafka_letter_position){t->name, i, t->parts[i]->next};
	return count;
}

static void keep(struct rdv_kafka_letter_reader *r)
{
	size_t count = room_for_positions(r) ? list_moved(r) : 0;
	enum redrive_status st = count ? r->sink.keep(r->sink.ctx, r->positions, count) : REDRIVE_OK;

	r->keep_ms = rdv_mono_now().ms + (st == REDRIVE_OK ? KEEP_MS : AGAIN_MS);
	if (st != REDRIVE_OK) {
		rdv_kafka_letter_tell(r, "positions could not be kept: %s", redrive_status_text(st));
		return;
	}
	for (struct rdv_kafka_letter_topic *t = r->topics; count && t; t = t->next)
		for (int32_t i = 0; i < t->count; i++)
			t->parts[i]->kept = t->parts[i]->next;
}

/* ---- the thread ---- */

static void wait_for_answers(struct rdv_kafka_letter_reader *r, int64_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&r->answers, &r->lock, &until);
}

static bool has_room(struct rdv_kafka_letter_reader *r)
{
	bool room;

	pthread_mutex_lock(&r->lock);
	room = r->out < OUT_MAX && r->out_bytes < OUT_BYTES_MAX;
	if (!room)
		wait_for_answers(r, HOLD_MS);
	pthread_mutex_unlock(&r->lock);
	return room;
}

static void offer_again(struct rdv_kafka_letter_reader *r)
{
	rd_kafka_message_t *m = r->held;

	pthread_mutex_lock(&r->lock);
	wait_for_answers(r, HOLD_MS);
	pthread_mutex_unlock(&r->lock);
	r->held = NULL;
	take(r, m);
}

static void poll_some(struct rdv_kafka_letter_reader *r)
{
	rd_kafka_message_t *m = rd_kafka_consumer_poll(r->handle, POLL_MS);

	for (int i = 0; m; i++) {
		take(r, m);
		m = i < POLL_MORE && !r->held && has_room(r) ? rd_kafka_consumer_poll(r->handle, 0) : NULL;
	}
}

/* The last answers. */
static void end(struct rdv_kafka_letter_reader *r)
{
	if (r->held)
		rd_kafka_message_destroy(r->held);
	r->held = NULL;
	pthread_mutex_lock(&r->lock);
	while (r->out)
		pthread_cond_wait(&r->answers, &r->lock);
	for (struct rdv_kafka_letter_topic *t = r->topics; t; t = t->next)
		for (int32_t i = 0; i < t->count; i++)
			settle(r, t->parts[i]);
	pthread_mutex_unlock(&r->lock);
	keep(r);
}

static void *reader_main(void *reader)
{
	struct rdv_kafka_letter_reader *r = reader;

	while (!atomic_load(&r->stopping)) {
		rdv_kafka_letter_topics_look(r);
		settle_all(r);
		if (rdv_mono_now().ms >= r->keep_ms)
			keep(r);
		if (r->held)
			offer_again(r);
		else if (has_room(r))
			poll_some(r);
	}
	end(r);
	return NULL;
}

/* ---- from outside ---- */

static void init_lock(struct rdv_kafka_letter_reader *r)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r->answers, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

enum redrive_status rdv_kafka_letter_reader_new(const struct rdv_kafka_options *o,
						const struct rdv_kafka_letter_sink *sink,
						struct rdv_kafka_letter_reader **out, struct rdv_error *error)
{
	struct rdv_kafka_letter_reader *r = calloc(1, sizeof *r);
	enum redrive_status st;

	if (!r)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "letters for the desk");
	init_lock(r);
	r->sink = *sink;
	st = rdv_kafka_config_copy(&r->config, o);
	r->config.say = sink->say;
	r->config.say_ctx = sink->ctx;
	if (st != REDRIVE_OK)
		rdv_error_set(error, st, "letters for the desk");
	else
		st = rdv_kafka_open(&r->config, RDV_KAFKA_READER, NULL, r, &r->handle, error);
	if (st != REDRIVE_OK) {
		rdv_kafka_letter_reader_free(r);
		return st;
	}
	*out = r;
	return REDRIVE_OK;
}

enum redrive_status rdv_kafka_letter_reader_start(struct rdv_kafka_letter_reader *r, struct rdv_error *error)
{
	int failed = pthread_create(&r->thread, NULL, reader_main, r);

	if (failed)
		return rdv_error_errno(error, failed, "a thread for letters");
	r->running = true;
	return REDRIVE_OK;
}

void rdv_kafka_letter_reader_stop(struct rdv_kafka_letter_reader *r)
{
	if (!r->running)
		return;
	atomic_store(&r->stopping, true);
	pthread_join(r->thread, NULL);
	r->running = false;
}

void rdv_kafka_letter_reader_free(struct rdv_kafka_letter_reader *r)
{
	if (!r)
		return;
	rdv_kafka_letter_topics_done(r);
	rdv_kafka_close(r->handle);
	rdv_kafka_config_done(&r->config);
	free(r->positions);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->answers);
	free(r);
}

void rdv_kafka_letter_reader_counts(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_counts *out)
{
	*out = (struct rdv_kafka_letter_counts){
		.stored = atomic_load(&r->stored),
		.foreign = atomic_load(&r->foreign),
		.damaged = atomic_load(&r->damaged),
		.outcomes = atomic_load(&r->outcomes),
		.partitions = atomic_load(&r->partitions),
		.stopped = atomic_load(&r->stopped),
	};
}
