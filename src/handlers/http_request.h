/* http_request.h - the request headers of one call, as a list that curl reads.
 *
 * One rdv_http_request serves one call after the other: its memory is reused. Private to http*.c; the handler's
 * thread.
 */
#ifndef RDV_HANDLERS_HTTP_REQUEST_H
#define RDV_HANDLERS_HTTP_REQUEST_H
#include <curl/curl.h>
#include "handler.h"

/* What is the same for every request of a handler. */
struct rdv_http_fixed {
	struct curl_slist *headers;     /* owns: the configured ones and what keeps curl's own away */
	struct rdv_buffer content_type; /* configured; used when a message has none */
	struct rdv_buffer traceparent;  /* likewise */
	struct rdv_buffer sign_key;     /* empty = not signed */
	bool cloudevents;
};

struct rdv_http_request {
	struct rdv_buffer text;     /* owns the headers' bytes, each with a NUL behind it */
	struct curl_slist *headers; /* owns; an array whose items are linked in order */
	size_t count, capacity;
	bool failed; /* short of memory */
};

void rdv_http_request_init(struct rdv_http_request *r);
void rdv_http_request_done(struct rdv_http_request *r);
/* Builds the headers of a call; *out is for CURLOPT_HTTPHEADER and valid until the next build. NO_MEMORY. */
enum redrive_status rdv_http_request_build(struct rdv_http_request *r, const struct rdv_http_fixed *fixed,
					   const struct rdv_call *call, const struct rdv_body *body,
					   struct rdv_wall now, struct curl_slist **out) RDV_MUST_CHECK;

/* Configured headers: checked, copied. INVALID with the header's name: no token, a line break in its value, or one that
 * is ours. */
enum redrive_status rdv_http_fixed_init(struct rdv_http_fixed *f, const struct rdv_http_options *options,
					struct rdv_error *error) RDV_MUST_CHECK;
void rdv_http_fixed_done(struct rdv_http_fixed *f);

/* ---- for its parts: one header after the other ---- */
void rdv_http_request_begin(struct rdv_http_request *r, const char *name); /* "Name: " */
void rdv_http_request_end(struct rdv_http_request *r);
/* A whole header; the value is percent-encoded, and so are blanks at its ends, which HTTP would lose. */
void rdv_http_request_add(struct rdv_http_request *r, const char *name, struct rdv_slice value);

/* http_events.c: CloudEvents 1.0, HTTP binary mode. */
void rdv_http_events_add(struct rdv_http_request *r, const struct rdv_call *call, const struct rdv_body *body,
			 struct rdv_slice message_id);
/* http_sign.c: Standard Webhooks 1.0.0, symmetric: webhook-id, webhook-timestamp, webhook-signature. */
void rdv_http_sign_add(struct rdv_http_request *r, struct rdv_slice key, struct rdv_slice message_id,
		       struct rdv_wall now, struct rdv_slice body);
/* "whsec_" and base64, or the bytes as they are; blanks at the ends are no part of it. */
enum redrive_status rdv_http_sign_key(struct rdv_slice secret, struct rdv_buffer *key) RDV_MUST_CHECK;
#endif
