/* record_state.c - STATE: everything the log knows of one live message on one lane, rewritten at each change.
 *
 * The first 40 bytes have fixed places: they are what recovery needs (the hint part). Behind them come varints and
 * prefixed texts: the rest of the counts, times, the last failure whole, and the history: the first attempt and the
 * last 15. What a handler told is cut to its limits when it is encoded, so that a STATE is bounded whatever
 * a handler says: at most about 14 KiB, usually some hundred bytes.
 *
 * Decoding refuses what encoding cannot have written: unknown kinds, counts beyond the ring, texts beyond
 * their limits, bytes behind the end. Slices borrow. No allocation but the output buffer's; any thread. */
#include "record_bytes.h"

enum { FLAG_SUSPICION = 3, FLAG_LAST_BAD_CHARGED = 4, FLAG_KNOWN = 7 };

/* An attempt's verdict, cause and duplicate flag share a byte. */
enum { ATTEMPT_VERDICT = 7, ATTEMPT_CAUSE_SHIFT = 3, ATTEMPT_DUPLICATE = 64 };
_Static_assert(RDV_VERDICT_COUNT <= 8 && RDV_CAUSE_COUNT <= 8, "three bits each");

/* ---- encoding: what is put is bounded, so that room for all of it is asked for once ---- */

static size_t room_for(struct rdv_slice text, size_t max)
{
	return RDV_VARINT_MAX + (text.size < max ? text.size : max);
}

/* Cut to `max` bytes without splitting a character. */
static uint8_t *put_text(uint8_t *to, struct rdv_slice s, size_t max)
{
	if (s.size > max)
		s = rdv_slice_cut_utf8(s, max);
	to = rdv_put_varint(to, s.size);
	if (s.size)
		memcpy(to, s.data, s.size);
	return to + s.size;
}

static size_t failure_room(const struct rdv_failure *f)
{
	return room_for(f->class, RDV_ERROR_CLASS_BYTES) + room_for(f->root_class, RDV_ERROR_CLASS_BYTES) +
	       room_for(f->code, RDV_ERROR_CODE_BYTES) + room_for(f->text, RDV_ERROR_TEXT_BYTES) +
	       room_for(f->stack, RDV_ERROR_STACK_BYTES);
}

static uint8_t *put_failure(uint8_t *to, const struct rdv_failure *f)
{
	to = put_text(to, f->class, RDV_ERROR_CLASS_BYTES);
	to = put_text(to, f->root_class, RDV_ERROR_CLASS_BYTES);
	to = put_text(to, f->code, RDV_ERROR_CODE_BYTES);
	to = put_text(to, f->text, RDV_ERROR_TEXT_BYTES);
	return put_text(to, f->stack, RDV_ERROR_STACK_BYTES);
}

static size_t history_room(const struct rdv_attempt *items, uint32_t count)
{
	size_t room = 2 * RDV_VARINT_MAX;

	for (uint32_t i = 0; i < count; i++)
		room += 4 * RDV_VARINT_MAX + 1 + room_for(items[i].code, RDV_HISTORY_CODE_BYTES) +
			room_for(items[i].class, RDV_HISTORY_CLASS_BYTES) +
			room_for(items[i].text, RDV_HISTORY_TEXT_BYTES);
	return room;
}

static uint8_t *put_attempt(uint8_t *to, const struct rdv_attempt *a)
{
	uint8_t how = (uint8_t)((a->verdict & 7) | (a->cause & 7) << ATTEMPT_CAUSE_SHIFT);

	to = rdv_put_varint(to, a->n);
	*to++ = a->duplicate ? how | ATTEMPT_DUPLICATE : how;
	to = rdv_put_varint(to, (uint64_t)a->at.ms);
	to = rdv_put_varint(to, (uint64_t)a->took_ms);
	to = rdv_put_varint(to, (uint64_t)a->next_at.ms);
	to = put_text(to, a->code, RDV_HISTORY_CODE_BYTES);
	to = put_text(to, a->class, RDV_HISTORY_CLASS_BYTES);
	return put_text(to, a->text, RDV_HISTORY_TEXT_BYTES);
}

static uint8_t *put_history(uint8_t *to, uint32_t omitted, const struct rdv_attempt *items, uint32_t count)
{
	to = rdv_put_varint(to, omitted);
	to = rdv_put_varint(to, count);
	for (uint32_t i = 0; i < count; i++)
		to = put_attempt(to, &items[i]);
	return to;
}

void rdv_failure_encode(const struct rdv_failure *f, struct rdv_buffer *out)
{
	uint8_t *to = rdv_buffer_reserve(out, failure_room(f));

	if (to)
		out->size += (size_t)(put_failure(to, f) - to);
}

void rdv_history_encode(uint32_t omitted, const struct rdv_attempt *items, uint32_t count, struct rdv_buffer *out)
{
	uint8_t *to = rdv_buffer_reserve(out, history_room(items, count));

	if (to)
		out->size += (size_t)(put_history(to, omitted, items, count) - to);
}

static uint8_t *put_hint(uint8_t *to, const struct rdv_message_state *s)
{
	uint8_t flags = s->suspicion > 3 ? 3 : s->suspicion;

	if (s->last_bad_charged)
		flags |= FLAG_LAST_BAD_CHARGED;
	to[0] = RECORD_VERSION;
	to[1] = (uint8_t)s->kind;
	to[2] = (uint8_t)s->reason;
	to[3] = flags;
	rdv_put_u32(to + 4, s->deliveries);
	rdv_put_u64(to + 8, (uint64_t)s->due.ms);
	rdv_put_u64(to + 16, (uint64_t)s->delay_ms);
	rdv_put_u32(to + 24, s->causes.failures);
	rdv_put_u32(to + 28, s->causes.crashes);
	rdv_put_u32(to + 32, s->causes.deferrals);
	rdv_put_u32(to + 36, s->generation);
	return to + RDV_STATE_HINT;
}

static uint8_t *put_rest(uint8_t *to, const struct rdv_message_state *s)
{
	to = rdv_put_varint(to, s->causes.timeouts);
	to = rdv_put_varint(to, s->causes.shutdowns);
	to = rdv_put_varint(to, s->causes.outage);
	to = rdv_put_varint(to, (uint64_t)s->first_at.ms);
	to = rdv_put_varint(to, (uint64_t)s->first_failed_at.ms);
	to = rdv_put_varint(to, (uint64_t)s->last_failed_at.ms);
	to = rdv_put_varint(to, s->cause_seq + 1); /* none, UINT64_MAX, becomes 0 */
	rdv_put_u64(to, s->fingerprint);
	to = put_text(to + 8, s->handler_version, RDV_HANDLER_VERSION_BYTES);
	to = put_failure(to, &s->failure);
	return put_history(to, s->history_omitted, s->history, s->history_count);
}

void rdv_state_encode(const struct rdv_message_state *s, struct rdv_buffer *out)
{
	size_t room = RDV_STATE_HINT + 7 * RDV_VARINT_MAX + 8 +
		      room_for(s->handler_version, RDV_HANDLER_VERSION_BYTES) + failure_room(&s->failure) +
		      history_room(s->history, s->history_count);
	uint8_t *to = rdv_buffer_reserve(out, room);

	if (to)
		out->size += (size_t)(put_rest(put_hint(to, s), s) - to);
}

/* ---- decoding ---- */

static enum redrive_status decode_hint(struct rdv_reader *r, struct rdv_slice payload, struct rdv_message_state *out)
{
	enum redrive_status status = record_begin(payload, r);
	uint8_t flags;

	memset(out, 0, offsetof(struct rdv_message_state, history)); /* the count says what of it is there */
	out->cause_seq = UINT64_MAX;
	if (status != REDRIVE_OK)
		return status;
	out->kind = (enum rdv_state)rdv_read_u8(r);
	out->reason = (enum rdv_reason)rdv_read_u8(r);
	flags = rdv_read_u8(r);
	out->suspicion = flags & FLAG_SUSPICION;
	out->last_bad_charged = flags & FLAG_LAST_BAD_CHARGED;
	out->deliveries = rdv_read_u32(r);
	out->due.ms = (int64_t)rdv_read_u64(r);
	out->delay_ms = (int64_t)rdv_read_u64(r);
	out->causes.failures = rdv_read_u32(r);
	out->causes.crashes = rdv_read_u32(r);
	out->causes.deferrals = rdv_read_u32(r);
	out->generation = rdv_read_u32(r);
	if (r->failed || out->kind >= RDV_STATE_COUNT || out->reason >= RDV_REASON_COUNT || (flags & ~FLAG_KNOWN))
		return REDRIVE_CORRUPT;
	return REDRIVE_OK;
}

enum redrive_status rdv_state_decode_hint(struct rdv_slice payload, struct rdv_message_state *out)
{
	struct rdv_reader r;

	return decode_hint(&r, payload, out);
}

void rdv_failure_decode(struct rdv_reader *r, struct rdv_failure *f)
{
	f->class = record_text(r, RDV_ERROR_CLASS_BYTES);
	f->root_class = record_text(r, RDV_ERROR_CLASS_BYTES);
	f->code = record_text(r, RDV_ERROR_CODE_BYTES);
	f->text = record_text(r, RDV_ERROR_TEXT_BYTES);
	f->stack = record_text(r, RDV_ERROR_STACK_BYTES);
}

static void decode_attempt(struct rdv_reader *r, struct rdv_attempt *a)
{
	uint8_t how;

	a->n = record_u32(r);
	how = rdv_read_u8(r);
	a->verdict = how & ATTEMPT_VERDICT;
	a->cause = how >> ATTEMPT_CAUSE_SHIFT & 7;
	a->duplicate = how & ATTEMPT_DUPLICATE;
	a->at.ms = (int64_t)rdv_read_varint(r);
	a->took_ms = (int64_t)rdv_read_varint(r);
	a->next_at.ms = (int64_t)rdv_read_varint(r);
	a->code = record_text(r, RDV_HISTORY_CODE_BYTES);
	a->class = record_text(r, RDV_HISTORY_CLASS_BYTES);
	a->text = record_text(r, RDV_HISTORY_TEXT_BYTES);
	if (a->verdict >= RDV_VERDICT_COUNT || a->cause >= RDV_CAUSE_COUNT || how > 127)
		r->failed = true;
}

uint32_t rdv_history_decode(struct rdv_reader *r, uint32_t *omitted, struct rdv_attempt items[1 + RDV_HISTORY_LAST])
{
	uint32_t count;

	*omitted = record_u32(r);
	count = record_u32(r);
	if (count > 1 + RDV_HISTORY_LAST)
		r->failed = true;
	for (uint32_t i = 0; i < count && !r->failed; i++)
		decode_attempt(r, &items[i]);
	return r->failed ? 0 : count;
}

enum redrive_status rdv_state_decode(struct rdv_slice payload, struct rdv_message_state *out)
{
	struct rdv_reader r;
	enum redrive_status status = decode_hint(&r, payload, out);

	if (status != REDRIVE_OK)
		return status;
	out->causes.timeouts = record_u32(&r);
	out->causes.shutdowns = record_u32(&r);
	out->causes.outage = record_u32(&r);
	out->first_at.ms = (int64_t)rdv_read_varint(&r);
	out->first_failed_at.ms = (int64_t)rdv_read_varint(&r);
	out->last_failed_at.ms = (int64_t)rdv_read_varint(&r);
	out->cause_seq = rdv_read_varint(&r) - 1;
	out->fingerprint = rdv_read_u64(&r);
	out->handler_version = record_text(&r, RDV_HANDLER_VERSION_BYTES);
	rdv_failure_decode(&r, &out->failure);
	out->history_count = rdv_history_decode(&r, &out->history_omitted, out->history);
	return record_end(&r);
}

void rdv_state_add_attempt(struct rdv_message_state *s, const struct rdv_attempt *a)
{
	struct rdv_attempt *last = s->history;

	if (s->history_count <= RDV_HISTORY_LAST) {
		s->history[s->history_count++] = *a;
		return;
	}
	memmove(last + 1, last + 2, (RDV_HISTORY_LAST - 1) * sizeof *last);
	last[RDV_HISTORY_LAST] = *a;
	s->history_omitted++;
}
