/* letters.c - a dying message becomes a letter.
 *
 *   LETTER → reader thread: STATE and BODY read, envelope built, put to the desk
 *          → desk: segment synced → core: lane_lettered
 *
 * Everything that may be slow (reading, parsing for metadata, the digest) is done in a reader's thread. The job is
 * owned by the core; the desk's answer may come before the job itself comes back, so it ends when both are there. A
 * desk that is full or failed gets the letter again a second later, and so does one whose records trimming has moved or
 * that could not be read just now; until then the lane keeps the message as dying. A body that is damaged or gone, or
 * that the device has failed for good, makes a letter without body, reason damaged. Putting is idempotent by letter id,
 * so repeating after a crash is safe. */
#include "inlets.h"
#include "extract.h"
#include "../base/text.h"
#include <sodium.h>
#include <stdlib.h>

#define AGAIN_MS 1000

struct rdv_letter_job {
	struct rdv_job job; /* first; reads: 0 body, 1 state */
	struct rdv_letter_job *answer_next;
	struct rdv_letter_job *older, *newer; /* all that are open */
	int64_t began_ms;
	struct rdv_engine *engine;
	struct rdv_strand *strand;
	struct rdv_route_info *info; /* shares */
	enum rdv_reason reason;
	uint32_t partition, generation;
	uint64_t seq, request, cause_seq;
	struct rdv_buffer state;               /* owns: STATE payload when the lane gave it */
	char route[101], topic[201], plan[64]; /* route: also of an orphan, whose info has another name */
	uint8_t original[16];                  /* replayed letter */
	struct rdv_place body_place, state_place;
	struct rdv_block *envelope, *body; /* own; of a broker's lane, when made */
	enum redrive_status put, answer;
	bool returned, answered;
	bool looked_again; /* the places are those that trimming has left */
};

/* ---- in a reader's thread ---- */

struct making {
	struct rdv_letter_job *l;
	struct rdv_envelope *e;
	struct rdv_message_state *state;
	struct rdv_body body;
	struct rdv_letter old; /* the replayed letter */
	struct rdv_block *old_body;
	struct rdv_buffer texts[4 + RDV_INDEX_MAX], terms, key;
	char id[RDV_MESSAGE_ID_SIZE];
	char cluster[33], cause[27];
};

static void set_cluster(struct making *m)
{
	struct rdv_hash128 id = m->l->engine->id;

	snprintf(m->cluster, sizeof m->cluster, "%016llx%016llx", (unsigned long long)id.hi, (unsigned long long)id.lo);
	m->e->cluster = rdv_slice_text(m->cluster);
}

/* The id of the letter that a follower followed. */
static void set_cause(struct making *m)
{
	struct rdv_envelope head = {
		.cluster = m->e->cluster,
		.topic = m->e->topic,
		.route = m->e->route,
		.partition = m->e->partition,
		.offset = m->l->cause_seq,
	};
	uint8_t id[16];

	if (m->l->cause_seq == UINT64_MAX)
		return;
	rdv_envelope_id(&head, id);
	rdv_base32_128(id, m->cause);
	m->e->cause = rdv_slice_text(m->cause);
}

static void set_metadata(struct making *m)
{
	const struct rdv_route_info *info = m->l->info;
	struct rdv_slice *to[4] = {&m->e->tenant, &m->e->schema_version, &m->e->consumer_version, &m->e->trace_id};
	struct rdv_header terms[RDV_INDEX_MAX];
	size_t count = 0;

	for (int i = 0; i < 4; i++) {
		struct rdv_slice value = rdv_extract(info->metadata[i], &m->body, &m->texts[i]);

		if (value.size)
			*to[i] = value;
	}
	for (size_t i = 0; i < info->index_count; i++) {
		struct rdv_slice value = rdv_extract(info->index[i], &m->body, &m->texts[4 + i]);

		if (value.size)
			terms[count++] = (struct rdv_header){rdv_slice_text(info->index[i]), value};
	}
	if (count) {
		rdv_headers_encode(&m->terms, terms, count);
		m->e->index_terms = rdv_buffer_as_slice(&m->terms);
	}
}

static void set_idempotency_key(struct making *m)
{
	struct rdv_call call = {.topic = m->l->topic, .partition = m->l->partition, .offset = m->l->seq};
	struct rdv_slice key;

	if (m->l->info->dedupe.by != RDV_DEDUPE_OFF &&
	    rdv_dedupe_key(&m->l->info->dedupe, &call, &m->body, &m->key, &key))
		call.idempotency_key = key;
	m->e->idempotency_key = rdv_call_idempotency_key(&call, &m->body, rdv_call_message_id(&call, m->id));
}

static void set_damaged(struct making *m)
{
	m->body = (struct rdv_body){.flags = RDV_BODY_NULL_KEY};
	m->l->reason = RDV_REASON_DAMAGED;
}

static struct rdv_body body_of_letter(const struct rdv_envelope *e, struct rdv_slice body)
{
	return (struct rdv_body){
		.flags = (uint8_t)((e->null_key ? RDV_BODY_NULL_KEY : 0) | (e->tombstone ? RDV_BODY_TOMBSTONE : 0) |
				   (e->publish_id.size ? RDV_BODY_HAS_ID : 0)),
		.produced_at = e->produced_at,
		.publish_id = e->publish_id,
		.key = e->key,
		.content_type = e->content_type,
		.traceparent = e->traceparent,
		.headers = e->headers,
		.body = body,
	};
}

/* A letter that is gone or damaged stays so; everything else that hinders the desk passes. */
static bool is_lost(enum redrive_status status)
{
	return status == REDRIVE_NOT_FOUND || status == REDRIVE_CORRUPT || status == REDRIVE_INVALID;
}

/* What the replayed letter keeps of the message. */
static enum redrive_status find_old_body(struct making *m)
{
	struct rdv_desk *desk = m->l->engine->desk;
	enum redrive_status status;
	char id[27];

	rdv_base32_128(m->l->original, id);
	status = rdv_desk_get(desk, id, &m->old);
	if (status == REDRIVE_OK)
		status = rdv_desk_body(desk, id, &m->old_body);
	if (m->old.bytes)
		m->body = body_of_letter(&m->old.envelope, rdv_block_slice(m->old_body));
	if (!is_lost(status))
		return status;
	if (!m->old.bytes)
		set_damaged(m);
	m->l->reason = RDV_REASON_DAMAGED;
	return REDRIVE_OK;
}

/* The read failed, but may succeed when it is asked for again. Of a damaged message it is, once: the device may have
 * failed it for a quarter of an hour already (unread.c). */
static bool may_come(const struct rdv_letter_job *l, const struct rdv_read *read)
{
	if (read->status == REDRIVE_IO && l->reason == RDV_REASON_DAMAGED && l->looked_again)
		return false;
	return read->length &&
	       (rdv_read_passes(read->status) || (read->status == REDRIVE_NOT_FOUND && !l->looked_again));
}

/* The message's record. */
static enum redrive_status find_body(struct making *m)
{
	struct rdv_letter_job *l = m->l;
	struct rdv_read *read = &l->job.reads[0];

	if (l->request)
		return find_old_body(m);
	if (may_come(l, read))
		return read->status;
	if (read->status != REDRIVE_OK || rdv_body_decode(rdv_block_slice(read->block), &m->body) != REDRIVE_OK)
		set_damaged(m);
	return REDRIVE_OK;
}

static enum redrive_status find_state(struct making *m)
{
	struct rdv_letter_job *l = m->l;
	struct rdv_slice bytes = l->state.size ? rdv_buffer_as_slice(&l->state) : rdv_slice(NULL, 0);

	if (!bytes.size && may_come(l, &l->job.reads[1]))
		return l->job.reads[1].status;
	if (!bytes.size && l->job.reads[1].length && l->job.reads[1].status == REDRIVE_OK)
		bytes = rdv_block_slice(l->job.reads[1].block);
	if (!bytes.size || rdv_state_decode(bytes, m->state) != REDRIVE_OK)
		*m->state = (struct rdv_message_state){.cause_seq = UINT64_MAX};
	return REDRIVE_OK;
}

static void fill(struct making *m)
{
	struct rdv_letter_job *l = m->l;
	struct rdv_envelope *e = m->e;

	rdv_envelope_from(e, m->state, &m->body);
	set_cluster(m);
	e->topic = rdv_slice_text(l->topic);
	e->route = rdv_slice_text(l->route);
	e->partition = l->partition;
	e->offset = l->seq;
	e->reason = l->reason;
	e->generation = l->request ? l->generation + 1 : l->generation;
	e->replay = l->request ? rdv_slice_text(l->plan) : e->replay;
	e->dead_at = rdv_wall_now();
	e->body_size = m->body.body.size;
	crypto_hash_sha256(e->body_sha256, m->body.body.data, m->body.body.size);
	set_cause(m);
	set_metadata(m);
	set_idempotency_key(m);
}

static void stored(void *ctx, uint64_t cookie, enum redrive_status status);

static enum redrive_status hand_in(struct making *m)
{
	struct rdv_buffer bytes;
	struct rdv_block *envelope, *body = NULL;

	rdv_buffer_init(&bytes, 0);
	rdv_envelope_encode(m->e, &bytes);
	envelope = bytes.failed ? NULL : rdv_block_copy(rdv_buffer_as_slice(&bytes));
	rdv_buffer_done(&bytes);
	if (m->l->reason != RDV_REASON_DAMAGED)
		body = rdv_block_copy(m->body.body);
	if (!envelope || (!body && m->l->reason != RDV_REASON_DAMAGED)) {
		rdv_block_unref(envelope);
		rdv_block_unref(body);
		return REDRIVE_NO_MEMORY;
	}
	if (m->l->strand->inlet) { /* it goes by the broker */
		m->l->envelope = envelope;
		m->l->body = body;
		return REDRIVE_OK;
	}
	return rdv_desk_put(m->l->engine->desk, envelope, body, stored, m->l->engine, (uint64_t)(uintptr_t)m->l);
}

static void make(struct rdv_job *job)
{
	struct making *m = calloc(1, sizeof *m);
	struct rdv_letter_job *l = (struct rdv_letter_job *)job;

	l->put = REDRIVE_NO_MEMORY;
	if (!m)
		return;
	m->l = l;
	m->e = calloc(1, sizeof *m->e);
	m->state = calloc(1, sizeof *m->state);
	if (m->e && m->state)
		l->put = find_body(m);
	if (l->put == REDRIVE_OK)
		l->put = find_state(m);
	if (l->put == REDRIVE_OK) {
		fill(m);
		l->put = hand_in(m);
	}
	for (int i = 0; i < 4 + RDV_INDEX_MAX; i++)
		rdv_buffer_done(&m->texts[i]);
	rdv_buffer_done(&m->terms);
	rdv_buffer_done(&m->key);
	if (m->old.bytes)
		rdv_letter_done(&m->old);
	rdv_block_unref(m->old_body);
	free(m->e);
	free(m->state);
	free(m);
}

void rdv_letter_fetch(struct rdv_job *job)
{
	struct rdv_flight *f = job->owner;
	struct rdv_desk *desk = f->info->engine->desk;
	struct rdv_letter letter;
	struct rdv_block *body = NULL, *payload = NULL;
	enum redrive_status status = rdv_desk_get(desk, f->letter_id, &letter);

	if (status == REDRIVE_OK) {
		status = rdv_desk_body(desk, f->letter_id, &body);
		if (status == REDRIVE_OK) {
			struct rdv_body m = body_of_letter(&letter.envelope, rdv_block_slice(body));

			payload = rdv_block_new(rdv_body_size(&m));
			status = payload ? REDRIVE_OK : REDRIVE_NO_MEMORY;
			if (payload)
				rdv_body_encode(&m, payload->data);
		}
		rdv_block_unref(body);
		rdv_letter_done(&letter);
	}
	f->damaged = is_lost(status);
	f->unread = status != REDRIVE_OK && !f->damaged;
	if (f->unread) /* it is asked for again at once */
		rdv_reader_pause();
	f->call.hold = payload;
	f->call.payload = rdv_block_slice(payload);
}

/* ---- in the core thread ---- */

/* Other threads ask how old the oldest is. */
static void note_oldest(struct rdv_engine *e)
{
	atomic_store(&e->oldest_letter_ms, e->oldest_letter ? e->oldest_letter->began_ms : 0);
}

static void list_letter(struct rdv_engine *e, struct rdv_letter_job *l)
{
	l->began_ms = e->now.mono.ms;
	l->older = e->newest_letter;
	*(l->older ? &l->older->newer : &e->oldest_letter) = l;
	e->newest_letter = l;
	e->letters_open++;
	note_oldest(e);
}

static void free_letter(struct rdv_engine *e, struct rdv_letter_job *l)
{
	e->letters_open--;
	*(l->older ? &l->older->newer : &e->oldest_letter) = l->newer;
	*(l->newer ? &l->newer->older : &e->newest_letter) = l->older;
	note_oldest(e);
	for (int i = 0; i < 2; i++)
		rdv_block_unref(l->job.reads[i].block);
	rdv_block_unref(l->envelope);
	rdv_block_unref(l->body);
	l->strand->uses--;
	rdv_buffer_done(&l->state);
	rdv_route_info_unref(l->info);
	free(l);
}

static void retry_later(struct rdv_engine *e, struct rdv_letter_job *l)
{
	for (int i = 0; i < 2; i++) {
		rdv_block_unref(l->job.reads[i].block);
		l->job.reads[i].block = NULL;
	}
	l->job.next = NULL;
	*e->retry.end = &l->job;
	e->retry.end = &l->job.next;
	if (!e->retry.again_ms)
		e->retry.again_ms = e->now.mono.ms + AGAIN_MS;
}

static void finish(struct rdv_engine *e, struct rdv_letter_job *l, enum redrive_status status)
{
	if (status == REDRIVE_OK && l->strand->lane && !e->failed) {
		rdv_lane_lettered(l->strand->lane, e->now, l->seq, l->request, e->effects);
		rdv_strand_nudge(e, l->strand);
	}
	e->letters_left += e->stopping && status != REDRIVE_OK;
	if (status == REDRIVE_OK || status == REDRIVE_CLOSED || e->failed || e->stopping)
		free_letter(e, l); /* else the lane resumes it at the next start */
	else
		retry_later(e, l);
}

/* In one batch with the DONE that follows from it. */
static void hand_to_broker(struct rdv_engine *e, struct rdv_letter_job *l)
{
	enum redrive_status status = rdv_inlet_letter(e, l->strand, l->envelope, l->body);

	if (status == REDRIVE_OK)
		l->envelope = l->body = NULL;
	finish(e, l, status);
}

static void came_back(struct rdv_engine *e, struct rdv_job *job)
{
	struct rdv_letter_job *l = (struct rdv_letter_job *)job;

	e->reads_open--;
	if (l->put != REDRIVE_OK) {
		if (l->put != REDRIVE_FULL && l->put != REDRIVE_NOT_FOUND)
			rdv_engine_say(e, 1, "a letter of route '%s' could not be stored: %s; it is tried again",
				       l->info->name, redrive_status_text(l->put));
		finish(e, l, l->put);
		return;
	}
	if (l->strand->inlet) {
		hand_to_broker(e, l);
		return;
	}
	l->returned = true;
	if (l->answered)
		finish(e, l, l->answer);
}

static void stored(void *ctx, uint64_t cookie, enum redrive_status status)
{
	struct rdv_engine *e = ctx;
	struct rdv_letter_job *l = (struct rdv_letter_job *)(uintptr_t)cookie;
	bool first;

	pthread_mutex_lock(&e->inbox);
	l->answer = status;
	l->answer_next = e->letters;
	first = !e->letters;
	e->letters = l;
	pthread_mutex_unlock(&e->inbox);
	if (first)
		rdv_engine_wake(e);
}

void rdv_letter_answers(struct rdv_engine *e)
{
	struct rdv_letter_job *list;

	pthread_mutex_lock(&e->inbox);
	list = e->letters;
	e->letters = NULL;
	pthread_mutex_unlock(&e->inbox);
	while (list) {
		struct rdv_letter_job *next = list->answer_next;

		list->answered = true;
		if (list->returned)
			finish(e, list, list->answer);
		list = next;
	}
}

/* After all threads have ended, lanes may be gone: what still waits, or was stored meanwhile, is resumed by the lanes
 * at the next start. */
void rdv_letters_drop(struct rdv_engine *e)
{
	while (e->letters) {
		struct rdv_letter_job *l = e->letters;

		e->letters = l->answer_next;
		free_letter(e, l);
	}
	while (e->retry.first) {
		struct rdv_letter_job *l = (struct rdv_letter_job *)e->retry.first;

		e->retry.first = l->job.next;
		free_letter(e, l);
	}
}

static void start_letter(struct rdv_engine *e, struct rdv_letter_job *l)
{
	l->returned = l->answered = false;
	if (!l->request)
		l->job.reads[0] = (struct rdv_read){.position = {l->body_place.segment, l->body_place.offset},
						    .length = l->body_place.length};
	if (!l->state.size && l->state_place.segment)
		l->job.reads[1] = (struct rdv_read){.position = {l->state_place.segment, l->state_place.offset},
						    .length = l->state_place.length};
	l->job.work = make;
	l->job.done = came_back;
	rdv_job_queue(e, &l->job, true);
}

void rdv_letters_leave(struct rdv_engine *e)
{
	while (e->retry.first) {
		struct rdv_letter_job *l = (struct rdv_letter_job *)e->retry.first;

		e->retry.first = l->job.next;
		free_letter(e, l);
		e->letters_left++;
	}
	e->retry.end = &e->retry.first;
}

void rdv_letters_say_left(struct rdv_engine *e)
{
	if (e->letters_left)
		rdv_engine_say(e, 1,
			       "%llu letters could not be stored so far: they are durable, and go on at the next start",
			       (unsigned long long)e->letters_left);
}

void rdv_letter_retry_due(struct rdv_engine *e)
{
	struct rdv_job *list = e->retry.first;

	if (!list || e->now.mono.ms < e->retry.again_ms || e->stopping)
		return;
	e->retry = (struct rdv_letter_retry){0};
	e->retry.end = &e->retry.first;
	while (list) {
		struct rdv_letter_job *l = (struct rdv_letter_job *)list;
		struct rdv_where where;

		list = list->next;
		if (!l->request && l->strand->lane &&
		    rdv_lane_where(l->strand->lane, e->now, l->seq, &where) == REDRIVE_OK && where.body.segment)
			l->body_place = where.body,
			l->state_place = where.state_place; /* trimming may have moved them */
		l->looked_again = true;
		start_letter(e, l);
	}
}

void rdv_letter_make(struct rdv_engine *e, const struct rdv_effect *effect)
{
	const struct rdv_effects *list = e->effects == &e->lists[0] ? &e->lists[1] : &e->lists[0];
	struct rdv_strand *s = rdv_strand_of(e, effect->lane);
	struct rdv_letter_job *l = calloc(1, sizeof *l);
	struct rdv_request request;

	if (!l) {
		rdv_engine_fail(e, "out of memory");
		return;
	}
	list_letter(e, l);
	l->engine = e;
	l->strand = s;
	s->uses++;
	l->info = rdv_route_info_ref(s->route ? s->route->info : e->orphan_info);
	l->reason = effect->letter.reason;
	l->partition = s->feed->partition;
	l->seq = effect->seq;
	l->generation = effect->letter.generation;
	l->request = effect->letter.request;
	l->cause_seq = effect->letter.cause_seq;
	l->body_place = effect->letter.body;
	l->state_place = effect->letter.state;
	memcpy(l->route, s->name, sizeof l->route);
	rdv_slice_to_text(rdv_slice_text(rdv_topic_name(s->feed->topic)), l->topic, sizeof l->topic);
	rdv_buffer_init(&l->state, 0);
	if (effect->letter.size)
		rdv_buffer_slice(&l->state, rdv_effects_bytes(list, effect->letter.at, effect->letter.size));
	if (l->request && rdv_lane_request(effect->lane, l->request, &request)) {
		memcpy(l->original, request.letter, sizeof l->original);
		l->generation = request.generation;
		rdv_slice_to_text(request.plan_name, l->plan, sizeof l->plan);
	}
	if (s->route && l->reason < RDV_REASON_COUNT)
		s->route->metrics.dead_by_reason[l->reason]++;
	start_letter(e, l);
}

void rdv_outcome_report(struct rdv_engine *e, const struct rdv_effect *effect)
{
	struct rdv_strand *s = rdv_strand_of(e, effect->lane);
	struct rdv_request request;

	if (!rdv_lane_request(effect->lane, effect->outcome.request, &request))
		return;
	rdv_desk_outcome(e->desk, request.plan, request.letter, effect->outcome.outcome, effect->outcome.attempts,
			 s->name, rdv_topic_name(s->feed->topic), s->feed->partition, effect->outcome.request);
}
