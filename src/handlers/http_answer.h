/* http_answer.h - from an HTTP answer's status, headers and body to an rdv_answer. Pure, fuzzed; any thread.
 * Class and text: RFC 9457 problem body (title, else type; detail; members stack, root_class, code), else
 * Redrive-Error-Class / Redrive-Error, else the status and the first 1,000 bytes as text. Bytes that are not
 * UTF-8 are replaced. */
#ifndef RDV_HANDLERS_HTTP_ANSWER_H
#define RDV_HANDLERS_HTTP_ANSWER_H
#include "../core/rules.h"

#define RDV_ANSWER_BODY_MAX 65536

struct rdv_http_reply { /* all slices borrow; empty = header absent */
	int status;
	struct rdv_slice content_type, retry_after, verdict, delay, handler_version, duplicate, error_class, error;
	struct rdv_slice body; /* at most RDV_ANSWER_BODY_MAX */
};
/* Remembers one raw header line ("Name: value\r\n") if it is one of ours: copies the value into `text`. */
void rdv_http_reply_header(struct rdv_http_reply *reply, struct rdv_slice line, struct rdv_buffer *text);
/* Fills *out; its slices borrow from `text`, to which it may append. `now` is for HTTP dates. */
void rdv_http_answer(const struct rdv_http_reply *reply, struct rdv_wall now, struct rdv_buffer *text,
		     struct rdv_answer *out);
#endif
