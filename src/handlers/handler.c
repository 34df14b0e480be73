/* handler.c - what all handlers share: the life of a call, its answer, and how a message is named to a handler.
 *
 * A call belongs to the runtime; between submit and complete to the handler. Its answer's slices live in its
 * `text` buffer, which reset gives back, or are static. Every slice is reserved for before the first is
 * appended, so that none of them moves. What always holds: an answer that this file made is within the bounds
 * of record.h and valid UTF-8. Short of memory the words are lost, never the answer. No locks: a call has one
 * owner at a time. */
#include "handler.h"
#include "answer_text.h"
#include "clean.h"
#include <inttypes.h>
#include <stdio.h>

#define TEXT_LIMIT (256u << 10) /* of a call's text buffer */

static const struct rdv_answer no_answer = {.exit_code = -1};

void rdv_call_init(struct rdv_call *c)
{
	*c = (struct rdv_call){.answer = no_answer};
	rdv_buffer_init(&c->text, TEXT_LIMIT);
}

void rdv_call_reset(struct rdv_call *c)
{
	rdv_block_unref(c->hold);
	rdv_buffer_done(&c->text);
	rdv_call_init(c);
}

void rdv_call_reset_plain(struct rdv_call *c)
{
	if (c->hold)
		rdv_block_unref(c->hold);
	memset(c, 0, offsetof(struct rdv_call, text));
	memcpy(&c->answer, &no_answer, offsetof(struct rdv_answer, failure));
}

/* Bytes that `in` can take at most when it is cleaned: a bad byte becomes three. */
static size_t clean_size(struct rdv_slice in, size_t max)
{
	return in.size > max / 3 ? max : in.size * 3;
}

void rdv_answer_copy(const struct rdv_answer *from, struct rdv_buffer *text, struct rdv_answer *to)
{
	struct rdv_failure f = from->failure;
	struct rdv_slice version = from->handler_version, first = from->answer;
	size_t size;

	if (first.size > RDV_DEDUPE_ANSWER_BYTES)
		first.size = RDV_DEDUPE_ANSWER_BYTES;
	size = clean_size(f.class, RDV_ERROR_CLASS_BYTES) + clean_size(f.root_class, RDV_ERROR_CLASS_BYTES) +
	       clean_size(f.code, RDV_ERROR_CODE_BYTES) + clean_size(f.text, RDV_ERROR_TEXT_BYTES) +
	       clean_size(f.stack, RDV_ERROR_STACK_BYTES) + clean_size(version, RDV_HANDLER_VERSION_BYTES) + first.size;
	*to = *from;
	to->failure = (struct rdv_failure){0};
	to->answer = to->handler_version = (struct rdv_slice){0};
	if (!size || !rdv_buffer_reserve(text, size))
		return;
	to->failure.class = rdv_clean_slice(text, f.class, SIZE_MAX, RDV_ERROR_CLASS_BYTES);
	to->failure.root_class = rdv_clean_slice(text, f.root_class, SIZE_MAX, RDV_ERROR_CLASS_BYTES);
	to->failure.code = rdv_clean_slice(text, f.code, SIZE_MAX, RDV_ERROR_CODE_BYTES);
	to->failure.text = rdv_clean_slice(text, f.text, RDV_ERROR_TEXT_CHARS, RDV_ERROR_TEXT_BYTES);
	to->failure.stack = rdv_clean_slice(text, f.stack, SIZE_MAX, RDV_ERROR_STACK_BYTES);
	to->handler_version = rdv_clean_slice(text, version, SIZE_MAX, RDV_HANDLER_VERSION_BYTES);
	to->answer = rdv_slice(first.size ? text->data + text->size : NULL, first.size);
	rdv_buffer_slice(text, first);
}

void rdv_call_set_answer(struct rdv_call *c, const struct rdv_answer *answer)
{
	rdv_buffer_clear(&c->text);
	rdv_answer_copy(answer, &c->text, &c->answer);
}

void rdv_call_set_transport(struct rdv_call *c, enum rdv_transport transport, const char *text)
{
	int64_t took_ms = c->answer.took_ms;

	c->answer = no_answer;
	c->answer.transport = transport;
	c->answer.failure.text = rdv_slice_text(text);
	c->answer.took_ms = took_ms;
}

void rdv_calls_shut_down(struct rdv_call *list)
{
	for (struct rdv_call *c = list; c; c = c->next)
		rdv_call_set_transport(c, RDV_TRANSPORT_SHUTDOWN, "cut off by our shutdown");
}

struct rdv_slice rdv_call_message_id(const struct rdv_call *c, char out[RDV_MESSAGE_ID_SIZE])
{
	int size = snprintf(out, RDV_MESSAGE_ID_SIZE, "%.*s-%" PRIu32 "-%" PRIu64, RDV_NAME_BYTES, c->topic,
			    c->partition, c->offset);

	return rdv_slice(out, (size_t)size);
}

struct rdv_slice rdv_call_idempotency_key(const struct rdv_call *c, const struct rdv_body *body,
					  struct rdv_slice message_id)
{
	if (c->idempotency_key.size)
		return c->idempotency_key;
	return body->flags & RDV_BODY_HAS_ID ? body->publish_id : message_id;
}
