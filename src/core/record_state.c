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

static void encode_hint(const struct rdv_message_state *s, struct rdv_buffer *out)
{
	uint8_t flags = s->suspicion > 3 ? 3 : s->suspicion;

	if (s->last_bad_charged)
		flags |= FLAG_LAST_BAD_CHARGED;
	rdv_buffer_u8(out, RECORD_VERSION);
	rdv_buffer_u8(out, (uint8_t)s->kind);
	rdv_buffer_u8(out, (uint8_t)s->reason);
	rdv_buffer_u8(out, flags);
	rdv_buffer_u32(out, s->deliveries);
	rdv_buffer_u64(out, (uint64_t)s->due.ms);
	rdv_buffer_u64(out, (uint64_t)s->delay_ms);
	rdv_buffer_u32(out, s->causes.failures);
	rdv_buffer_u32(out, s->causes.crashes);
	rdv_buffer_u32(out, s->causes.deferrals);
	rdv_buffer_u32(out, s->generation);
}

void rdv_failure_encode(const struct rdv_failure *f, struct rdv_buffer *out)
{
	record_put_text(out, f->class, RDV_ERROR_CLASS_BYTES);
	record_put_text(out, f->root_class, RDV_ERROR_CLASS_BYTES);
	record_put_text(out, f->code, RDV_ERROR_CODE_BYTES);
	record_put_text(out, f->text, RDV_ERROR_TEXT_BYTES);
	record_put_text(out, f->stack, RDV_ERROR_STACK_BYTES);
}

static void encode_attempt(const struct rdv_attempt *a, struct rdv_buffer *out)
{
	uint8_t how = (uint8_t)((a->verdict & 7) | (a->cause & 7) << ATTEMPT_CAUSE_SHIFT);

	if (a->duplicate)
		how |= ATTEMPT_DUPLICATE;
	rdv_buffer_varint(out, a->n);
	rdv_buffer_u8(out, how);
	rdv_buffer_varint(out, (uint64_t)a->at.ms);
	rdv_buffer_varint(out, (uint64_t)a->took_ms);
	rdv_buffer_varint(out, (uint64_t)a->next_at.ms);
	record_put_text(out, a->code, RDV_HISTORY_CODE_BYTES);
	record_put_text(out, a->class, RDV_HISTORY_CLASS_BYTES);
	record_put_text(out, a->text, RDV_HISTORY_TEXT_BYTES);
}

void rdv_history_encode(uint32_t omitted, const struct rdv_attempt *items, uint32_t count, struct rdv_buffer *out)
{
	rdv_buffer_varint(out, omitted);
	rdv_buffer_varint(out, count);
	for (uint32_t i = 0; i < count; i++)
		encode_attempt(&items[i], out);
}

void rdv_state_encode(const struct rdv_message_state *s, struct rdv_buffer *out)
{
	encode_hint(s, out);
	rdv_buffer_varint(out, s->causes.timeouts);
	rdv_buffer_varint(out, s->causes.shutdowns);
	rdv_buffer_varint(out, s->causes.outage);
	rdv_buffer_varint(out, (uint64_t)s->first_at.ms);
	rdv_buffer_varint(out, (uint64_t)s->first_failed_at.ms);
	rdv_buffer_varint(out, (uint64_t)s->last_failed_at.ms);
	rdv_buffer_varint(out, s->cause_seq + 1); /* none, UINT64_MAX, becomes 0 */
	rdv_buffer_u64(out, s->fingerprint);
	record_put_text(out, s->handler_version, RDV_HANDLER_VERSION_BYTES);
	rdv_failure_encode(&s->failure, out);
	rdv_history_encode(s->history_omitted, s->history, s->history_count, out);
}

static enum redrive_status decode_hint(struct rdv_reader *r, struct rdv_slice payload, struct rdv_message_state *out)
{
	enum redrive_status status = record_begin(payload, r);
	uint8_t flags;

	*out = (struct rdv_message_state){.cause_seq = UINT64_MAX};
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
