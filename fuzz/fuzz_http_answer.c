/* fuzz_http_answer.c - an HTTP answer from hostile bytes: two bytes of status, header lines, an empty line, the body.
 *
 * Properties: every slice of the result lies in the text buffer (or is empty), is valid UTF-8 but for the
 * answer's bytes, and is within the bounds of record.h; a delay is never negative; the verdict is a verdict;
 * the same input gives the same result. */
#include <assert.h>
#include <stdlib.h>
#include "core/record.h"
#include "handlers/http_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
	struct rdv_buffer head, text;
	struct rdv_answer answer;
};

static void answer_to(const uint8_t *data, size_t size, struct result *r)
{
	struct rdv_http_reply reply = {.status = data[0] << 2 | data[1]};
	struct rdv_slice rest = rdv_slice(data + 2, size - 2);

	rdv_buffer_init(&r->head, 65536);
	rdv_buffer_init(&r->text, 1 << 20);
	while (rest.size) {
		const uint8_t *end = memchr(rest.data, '\n', rest.size);
		size_t length = end ? (size_t)(end - rest.data) + 1 : rest.size;

		rdv_http_reply_header(&reply, rdv_slice(rest.data, length), &r->head);
		rest = rdv_slice(rest.data + length, rest.size - length);
		if (length <= 2)
			break;
	}
	reply.body = rest.size > RDV_ANSWER_BODY_MAX ? rdv_slice(rest.data, RDV_ANSWER_BODY_MAX) : rest;
	rdv_http_answer(&reply, (struct rdv_wall){1796053126123}, &r->text, &r->answer);
}

static void check(const struct result *r, struct rdv_slice s, size_t most)
{
	assert(s.size <= most);
	if (s.size)
		assert(s.data >= r->text.data && s.data + s.size <= r->text.data + r->text.size);
}

static void check_text(const struct result *r, struct rdv_slice s, size_t most)
{
	check(r, s, most);
	assert(rdv_utf8_valid(s));
	assert(!s.size || !memchr(s.data, 0, s.size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct result r, again;
	const struct rdv_answer *a = &r.answer;

	if (size < 2)
		return 0;
	answer_to(data, size, &r);
	check_text(&r, a->failure.class, RDV_ERROR_CLASS_BYTES);
	check_text(&r, a->failure.root_class, RDV_ERROR_CLASS_BYTES);
	check_text(&r, a->failure.code, RDV_ERROR_CODE_BYTES);
	check_text(&r, a->failure.text, RDV_ERROR_TEXT_BYTES);
	check_text(&r, a->failure.stack, RDV_ERROR_STACK_BYTES);
	check_text(&r, a->handler_version, RDV_HANDLER_VERSION_BYTES);
	check(&r, a->answer, RDV_DEDUPE_ANSWER_BYTES);
	assert(rdv_utf8_count(a->failure.text) <= RDV_ERROR_TEXT_CHARS);
	assert(!a->has_delay || a->delay_ms >= 0);
	assert(!a->explicit_verdict || a->verdict < RDV_VERDICT_COUNT);
	assert(a->transport == RDV_TRANSPORT_ANSWER && a->exit_code == -1);
	answer_to(data, size, &again);
	assert(rdv_slice_equal(a->failure.text, again.answer.failure.text) && a->delay_ms == again.answer.delay_ms);
	rdv_buffer_done(&r.head);
	rdv_buffer_done(&r.text);
	rdv_buffer_done(&again.head);
	rdv_buffer_done(&again.text);
	return 0;
}
