/* record_lane.c - the records of streams and lanes: TOPIC, LANE, GATE, REQUEST, DEDUPE, COUNTERS, PAUSE, CLOSE.
 *
 * All are small and absolute: the last one of a (type, stream, seq) says everything. Fields that recovery compares have
 * fixed width; names and answers are prefixed and bounded. COUNTERS is a list with a count, so that an older program's
 * record lacks the newer counters (they are zero) and a newer one's surplus is refused as a newer version.
 * Decoders answer CORRUPT for anything encoding cannot have written. Slices borrow; any thread. */
#include "record_bytes.h"
#include "account.h"
#include <stddef.h>

/* ---- TOPIC ---- */

void rdv_topic_encode(const struct rdv_topic_fields *t, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u32(out, t->partitions);
	rdv_buffer_u32(out, t->first_stream);
	rdv_buffer_append(out, t->secret, sizeof t->secret);
	rdv_buffer_prefixed(out, t->name);
	for (uint32_t i = 0; i < t->partitions && i < RDV_PARTITIONS_MAX; i++)
		rdv_buffer_u64(out, t->next_offset[i]);
}

enum redrive_status rdv_topic_decode(struct rdv_slice payload, struct rdv_topic_fields *out)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);
	struct rdv_slice secret;

	if (status != REDRIVE_OK)
		return status;
	out->partitions = rdv_read_u32(&r);
	out->first_stream = rdv_read_u32(&r);
	secret = rdv_read_bytes(&r, sizeof out->secret);
	out->name = record_text(&r, RDV_NAME_BYTES);
	if (r.failed || out->partitions == 0 || out->partitions > RDV_PARTITIONS_MAX ||
	    out->first_stream > UINT32_MAX - out->partitions)
		return REDRIVE_CORRUPT;
	memcpy(out->secret, secret.data, sizeof out->secret);
	for (uint32_t i = 0; i < out->partitions; i++)
		out->next_offset[i] = rdv_read_u64(&r);
	return record_end(&r);
}

/* ---- LANE ---- */

enum { LANE_CLEAN = 1, LANE_ORPHAN = 2, LANE_DISCARDED = 4, LANE_KNOWN = 7 };

void rdv_lane_encode(const struct rdv_lane_fields *l, struct rdv_buffer *out)
{
	uint8_t flags = 0;

	if (l->clean)
		flags |= LANE_CLEAN;
	if (l->orphan)
		flags |= LANE_ORPHAN;
	if (l->discarded)
		flags |= LANE_DISCARDED;
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, flags);
	rdv_buffer_u16(out, 0);
	rdv_buffer_u32(out, l->partition);
	rdv_buffer_u32(out, l->partition_stream);
	rdv_buffer_u32(out, l->opens_without_outcome);
	rdv_buffer_u64(out, l->start);
	rdv_buffer_u64(out, l->epoch);
	rdv_buffer_prefixed(out, l->route);
	rdv_buffer_prefixed(out, l->topic);
}

enum redrive_status rdv_lane_decode(struct rdv_slice payload, struct rdv_lane_fields *out)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);
	uint8_t flags;

	*out = (struct rdv_lane_fields){0};
	if (status != REDRIVE_OK)
		return status;
	flags = rdv_read_u8(&r);
	rdv_read_u16(&r);
	out->clean = flags & LANE_CLEAN;
	out->orphan = flags & LANE_ORPHAN;
	out->discarded = flags & LANE_DISCARDED;
	out->partition = rdv_read_u32(&r);
	out->partition_stream = rdv_read_u32(&r);
	out->opens_without_outcome = rdv_read_u32(&r);
	out->start = rdv_read_u64(&r);
	out->epoch = rdv_read_u64(&r);
	out->route = record_text(&r, RDV_NAME_BYTES);
	out->topic = record_text(&r, RDV_NAME_BYTES);
	return flags & ~LANE_KNOWN ? REDRIVE_CORRUPT : record_end(&r);
}

/* ---- GATE ---- */

void rdv_gate_encode(const struct rdv_gate *g, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, g->closed);
	rdv_buffer_u64(out, g->letter_seq);
}

enum redrive_status rdv_gate_decode(struct rdv_slice payload, struct rdv_gate *out)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);
	uint8_t closed;

	*out = (struct rdv_gate){0};
	if (status != REDRIVE_OK)
		return status;
	closed = rdv_read_u8(&r);
	out->closed = closed;
	out->letter_seq = rdv_read_u64(&r);
	return closed > 1 ? REDRIVE_CORRUPT : record_end(&r);
}

/* ---- REQUEST ---- */

void rdv_request_encode(const struct rdv_request *q, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, (uint8_t)q->kind);
	rdv_buffer_u8(out, (uint8_t)q->state);
	rdv_buffer_u8(out, (uint8_t)q->outcome);
	rdv_buffer_u32(out, q->generation);
	rdv_buffer_u64(out, q->seq);
	rdv_buffer_u64(out, q->key_hash);
	rdv_buffer_append(out, q->letter, sizeof q->letter);
	rdv_buffer_u64(out, q->plan);
	rdv_buffer_u32(out, q->charged);
	rdv_buffer_u32(out, q->deliveries);
	rdv_buffer_u64(out, (uint64_t)q->due.ms);
	rdv_buffer_u64(out, (uint64_t)q->delay_ms);
	record_put_text(out, q->plan_name, RDV_NAME_BYTES);
}

enum redrive_status rdv_request_decode(struct rdv_slice payload, struct rdv_request *out)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);
	struct rdv_slice letter;
	unsigned kind, state, outcome;

	*out = (struct rdv_request){0};
	if (status != REDRIVE_OK)
		return status;
	kind = rdv_read_u8(&r);
	state = rdv_read_u8(&r);
	outcome = rdv_read_u8(&r);
	out->generation = rdv_read_u32(&r);
	out->seq = rdv_read_u64(&r);
	out->key_hash = rdv_read_u64(&r);
	letter = rdv_read_bytes(&r, sizeof out->letter);
	out->plan = rdv_read_u64(&r);
	out->charged = rdv_read_u32(&r);
	out->deliveries = rdv_read_u32(&r);
	out->due.ms = (int64_t)rdv_read_u64(&r);
	out->delay_ms = (int64_t)rdv_read_u64(&r);
	out->plan_name = record_text(&r, RDV_NAME_BYTES);
	if (r.failed || kind < RDV_REQUEST_REPLAY || kind > RDV_REQUEST_REVOKE || state < RDV_REQUEST_OPEN ||
	    state > RDV_REQUEST_GONE || outcome >= RDV_STATE_COUNT)
		return REDRIVE_CORRUPT;
	memcpy(out->letter, letter.data, sizeof out->letter);
	out->kind = (enum rdv_request_kind)kind;
	out->state = (enum rdv_request_state)state;
	out->outcome = (enum rdv_state)outcome;
	return record_end(&r);
}

/* ---- DEDUPE ---- */

void rdv_dedupe_encode(const struct rdv_dedupe_record *d, struct rdv_buffer *out)
{
	struct rdv_slice answer = d->answer;

	if (answer.size > RDV_DEDUPE_ANSWER_BYTES)
		answer.size = RDV_DEDUPE_ANSWER_BYTES;
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, (uint8_t)d->state);
	rdv_buffer_u64(out, d->key.lo);
	rdv_buffer_u64(out, d->key.hi);
	rdv_buffer_u64(out, d->owner_seq);
	rdv_buffer_u64(out, (uint64_t)d->until.ms);
	rdv_buffer_prefixed(out, answer);
}

enum redrive_status rdv_dedupe_decode(struct rdv_slice payload, struct rdv_dedupe_record *out)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);
	unsigned state;

	*out = (struct rdv_dedupe_record){0};
	if (status != REDRIVE_OK)
		return status;
	state = rdv_read_u8(&r);
	out->state = (enum rdv_dedupe_state)state;
	out->key.lo = rdv_read_u64(&r);
	out->key.hi = rdv_read_u64(&r);
	out->owner_seq = rdv_read_u64(&r);
	out->until.ms = (int64_t)rdv_read_u64(&r);
	out->answer = record_text(&r, RDV_DEDUPE_ANSWER_BYTES);
	return state < RDV_DEDUPE_PROCESSING || state > RDV_DEDUPE_FREE ? REDRIVE_CORRUPT : record_end(&r);
}

/* ---- COUNTERS ---- */

#define FIELD(name) offsetof(struct rdv_account, name)
/* In the order of their varints: append only. */
static const size_t counter_fields[] = {
	FIELD(received),     FIELD(acked),         FIELD(dead),         FIELD(dropped),
	FIELD(revoked),      FIELD(first),         FIELD(retries),      FIELD(succeeded),
	FIELD(failed),       FIELD(timeouts),      FIELD(rejected),     FIELD(attempts_dropped),
	FIELD(crashes),      FIELD(shutdowns),     FIELD(deferrals),    FIELD(outage),
	FIELD(replays_sent), FIELD(replays_acked), FIELD(replays_dead),
};
#define COUNTERS (sizeof counter_fields / sizeof counter_fields[0])

void rdv_counters_encode(const struct rdv_account *a, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, (uint8_t)COUNTERS);
	for (size_t i = 0; i < COUNTERS; i++)
		rdv_buffer_varint(out, *(const uint64_t *)((const char *)a + counter_fields[i]));
}

void rdv_counters_append_throughput(double throughput, struct rdv_buffer *out)
{
	uint64_t bits;

	memcpy(&bits, &throughput, sizeof bits);
	rdv_buffer_u64(out, bits);
}

/* Reads the counters into *out; what may follow is left in *r. */
static enum redrive_status read_counters(struct rdv_reader *r, struct rdv_slice payload, struct rdv_account *out)
{
	enum redrive_status status = record_begin(payload, r);
	size_t count;

	*out = (struct rdv_account){0};
	if (status != REDRIVE_OK)
		return status;
	count = rdv_read_u8(r);
	if (count > COUNTERS)
		return REDRIVE_VERSION;
	for (size_t i = 0; i < count; i++)
		*(uint64_t *)((char *)out + counter_fields[i]) = rdv_read_varint(r);
	return r->failed ? REDRIVE_CORRUPT : REDRIVE_OK;
}

enum redrive_status rdv_counters_decode(struct rdv_slice payload, struct rdv_account *out)
{
	struct rdv_reader r;
	enum redrive_status status = read_counters(&r, payload, out);

	if (status != REDRIVE_OK)
		return status;
	if (rdv_reader_left(&r))
		rdv_read_u64(&r);
	return record_end(&r);
}

double rdv_counters_throughput(struct rdv_slice payload)
{
	struct rdv_reader r;
	struct rdv_account ignored;
	uint64_t bits;
	double v;

	if (read_counters(&r, payload, &ignored) != REDRIVE_OK || rdv_reader_left(&r) != 8)
		return 0;
	bits = rdv_read_u64(&r);
	memcpy(&v, &bits, sizeof v);
	return v > 0 && v < 1e12 ? v : 0; /* NaN and nonsense: not told */
}

/* ---- PAUSE, CLOSE ---- */

void rdv_pause_encode(bool paused, struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, paused);
}

enum redrive_status rdv_pause_decode(struct rdv_slice payload, bool *paused)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);
	uint8_t v;

	*paused = false;
	if (status != REDRIVE_OK)
		return status;
	v = rdv_read_u8(&r);
	*paused = v == 1;
	return v > 1 ? REDRIVE_CORRUPT : record_end(&r);
}

void rdv_close_encode(struct rdv_buffer *out)
{
	rdv_buffer_u8(out, RECORD_VERSION);
}

enum redrive_status rdv_close_decode(struct rdv_slice payload)
{
	struct rdv_reader r;
	enum redrive_status status = record_begin(payload, &r);

	return status != REDRIVE_OK ? status : record_end(&r);
}
