/* http_transfer.c - one request and its answer: an easy handle with its memory, used for one call after the other.
 *
 * What is the same for all calls is set once. The body goes out from the message's own memory, the headers from
 * http_request.c's. Of an answer at most RDV_ANSWER_BODY_MAX bytes of headers and as many of its body are read;
 * then we end the transfer ourselves, and what was read is the answer. One call is one request: curl would send
 * it again on a fresh connection when a reused one turns out dead before an answer's first byte, but the server
 * may have done the work by then; so the second time is refused (CURLOPT_PREREQFUNCTION) and the call ends as
 * reset. No redirects, http and https only, no netrc, no proxy but the configured one. What always holds:
 * between start and finish or abort the transfer owns its call. The pool's thread. */
#include "http_pool.h"
#include <stdlib.h>

#define HEAD_KEPT (64u << 10)

static int before_request(void *ctx, char *peer, char *local, int peer_port, int local_port)
{
	struct rdv_http_transfer *t = ctx;

	if (t->sent)
		return CURL_PREREQFUNC_ABORT;
	t->sent = true;
	return CURL_PREREQFUNC_OK;
}

static size_t on_header(char *data, size_t one, size_t size, void *ctx)
{
	struct rdv_http_transfer *t = ctx;

	t->head_bytes += size;
	if (t->head_bytes > RDV_ANSWER_BODY_MAX)
		return 0;
	rdv_http_reply_header(&t->reply, rdv_slice(data, size), &t->head);
	return size;
}

static size_t on_body(char *data, size_t one, size_t size, void *ctx)
{
	struct rdv_http_transfer *t = ctx;
	size_t room = RDV_ANSWER_BODY_MAX - t->body.size;

	rdv_buffer_append(&t->body, data, size < room ? size : room);
	t->enough = size >= room;
	return t->enough || t->body.failed ? 0 : size;
}

static void set_callbacks(struct rdv_http_transfer *t)
{
	curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
	curl_easy_setopt(t->easy, CURLOPT_PREREQFUNCTION, before_request);
	curl_easy_setopt(t->easy, CURLOPT_PREREQDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->error);
}

static bool set_text(CURL *easy, CURLoption option, const char *text)
{
	return !text || curl_easy_setopt(easy, option, text) == CURLE_OK;
}

static bool set_options(struct rdv_http_transfer *t)
{
	struct rdv_http *h = t->handler;
	long timeout_ms = h->timeout_ms > 0 && h->timeout_ms < INT32_MAX ? (long)h->timeout_ms : 0;

	curl_easy_setopt(t->easy, CURLOPT_POST, 1L);
	curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->easy, CURLOPT_NOPROGRESS, 1L);
	curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(t->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* of a proxy */
	curl_easy_setopt(t->easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, timeout_ms);
	curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms ? timeout_ms : (long)INT32_MAX);
	/* A name that is still being looked up when the time is over must not hold up this thread until its look-up
	 * ends. */
	curl_easy_setopt(t->easy, CURLOPT_QUICK_EXIT, 1L);
	return set_text(t->easy, CURLOPT_PROTOCOLS_STR, "http,https") && set_text(t->easy, CURLOPT_URL, h->url) &&
	       set_text(t->easy, CURLOPT_PROXY, h->proxy ? h->proxy : "") && set_text(t->easy, CURLOPT_NOPROXY, "") &&
	       set_text(t->easy, CURLOPT_CAINFO, h->ca_file) && set_text(t->easy, CURLOPT_SSLCERT, h->cert_file) &&
	       set_text(t->easy, CURLOPT_SSLKEY, h->key_file);
}

struct rdv_http_transfer *rdv_http_transfer_new(struct rdv_http *h)
{
	struct rdv_http_transfer *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->handler = h;
	rdv_http_request_init(&t->request);
	rdv_buffer_init(&t->head, HEAD_KEPT);
	rdv_buffer_init(&t->body, RDV_ANSWER_BODY_MAX);
	t->easy = curl_easy_init();
	if (!t->easy || !set_options(t) || !rdv_http_pool_setup(h->pool, t->easy)) {
		rdv_http_transfer_free(t);
		return NULL;
	}
	set_callbacks(t);
	return t;
}

void rdv_http_transfer_free(struct rdv_http_transfer *t)
{
	if (!t)
		return;
	curl_easy_cleanup(t->easy);
	rdv_http_request_done(&t->request);
	rdv_buffer_done(&t->head);
	rdv_buffer_done(&t->body);
	free(t);
}

static void forget_answer(struct rdv_http_transfer *t)
{
	t->reply = (struct rdv_http_reply){0};
	rdv_buffer_clear(&t->head);
	rdv_buffer_clear(&t->body);
	t->head_bytes = 0;
	t->sent = t->enough = false;
	t->error[0] = '\0';
}

enum redrive_status rdv_http_transfer_start(struct rdv_http_transfer *t, struct rdv_call *call, int64_t now_us)
{
	struct curl_slist *headers;
	struct rdv_body body;
	enum redrive_status status = rdv_body_decode(call->payload, &body);

	if (status) {
		rdv_call_set_transport(call, RDV_TRANSPORT_OTHER, "the stored message cannot be read");
		return status;
	}
	forget_answer(t);
	status = rdv_http_request_build(&t->request, &t->handler->fixed, call, &body, rdv_wall_now(), &headers);
	if (status)
		goto no_memory;
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, body.body.size ? (const char *)body.body.data : "");
	curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.body.size);
	if (curl_multi_add_handle(t->handler->pool->multi, t->easy))
		goto no_memory;
	t->call = call;
	t->start_us = now_us;
	return REDRIVE_OK;
no_memory:
	rdv_call_set_transport(call, RDV_TRANSPORT_OTHER, "no memory for the request");
	return REDRIVE_NO_MEMORY;
}

static enum rdv_transport transport_of(CURLcode result)
{
	static const struct {
		CURLcode code;
		enum rdv_transport transport;
	} table[] = {
		{CURLE_COULDNT_RESOLVE_HOST, RDV_TRANSPORT_DNS},
		{CURLE_COULDNT_RESOLVE_PROXY, RDV_TRANSPORT_DNS},
		{CURLE_COULDNT_CONNECT, RDV_TRANSPORT_REFUSED},
		{CURLE_PROXY, RDV_TRANSPORT_REFUSED},
		{CURLE_OPERATION_TIMEDOUT, RDV_TRANSPORT_TIMEOUT},
		{CURLE_GOT_NOTHING, RDV_TRANSPORT_RESET},
		{CURLE_SEND_ERROR, RDV_TRANSPORT_RESET},
		{CURLE_RECV_ERROR, RDV_TRANSPORT_RESET},
		{CURLE_PARTIAL_FILE, RDV_TRANSPORT_RESET},
		{CURLE_ABORTED_BY_CALLBACK, RDV_TRANSPORT_RESET},
		{CURLE_SEND_FAIL_REWIND, RDV_TRANSPORT_RESET},
		{CURLE_SSL_CONNECT_ERROR, RDV_TRANSPORT_TLS},
		{CURLE_SSL_ENGINE_NOTFOUND, RDV_TRANSPORT_TLS},
		{CURLE_SSL_ENGINE_SETFAILED, RDV_TRANSPORT_TLS},
		{CURLE_SSL_CERTPROBLEM, RDV_TRANSPORT_TLS},
		{CURLE_SSL_CIPHER, RDV_TRANSPORT_TLS},
		{CURLE_PEER_FAILED_VERIFICATION, RDV_TRANSPORT_TLS},
		{CURLE_USE_SSL_FAILED, RDV_TRANSPORT_TLS},
		{CURLE_SSL_ENGINE_INITFAILED, RDV_TRANSPORT_TLS},
		{CURLE_SSL_CACERT_BADFILE, RDV_TRANSPORT_TLS},
		{CURLE_SSL_SHUTDOWN_FAILED, RDV_TRANSPORT_TLS},
		{CURLE_SSL_CRL_BADFILE, RDV_TRANSPORT_TLS},
		{CURLE_SSL_ISSUER_ERROR, RDV_TRANSPORT_TLS},
		{CURLE_SSL_PINNEDPUBKEYNOTMATCH, RDV_TRANSPORT_TLS},
		{CURLE_SSL_INVALIDCERTSTATUS, RDV_TRANSPORT_TLS},
		{CURLE_SSL_CLIENTCERT, RDV_TRANSPORT_TLS},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].code == result)
			return table[i].transport;
	return RDV_TRANSPORT_OTHER;
}

static const char *words_of(const struct rdv_http_transfer *t, CURLcode result)
{
	if (result == CURLE_ABORTED_BY_CALLBACK)
		return "the kept connection was dead when the request was sent";
	if (t->head_bytes > RDV_ANSWER_BODY_MAX)
		return "the answer's headers are over 64 KiB";
	if (result == CURLE_OK)
		return "the answer has no HTTP status between 200 and 599";
	return t->error[0] ? t->error : curl_easy_strerror(result);
}

struct rdv_call *rdv_http_transfer_finish(struct rdv_http_transfer *t, CURLcode result, int64_t now_us)
{
	struct rdv_call *call = t->call;
	long status = 0;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_multi_remove_handle(t->handler->pool->multi, t->easy);
	t->call = NULL;
	if ((result == CURLE_OK || t->enough) && status >= 200 && status <= 599) {
		t->reply.status = (int)status;
		t->reply.body = rdv_buffer_as_slice(&t->body);
		rdv_buffer_clear(&call->text);
		rdv_http_answer(&t->reply, rdv_wall_now(), &call->text, &call->answer);
	} else {
		struct rdv_answer answer = {.transport = transport_of(result), .exit_code = -1};

		answer.failure.text = rdv_slice_text(words_of(t, result));
		rdv_call_set_answer(call, &answer);
	}
	call->answer.took_ms = (now_us - t->start_us) / 1000;
	return call;
}

struct rdv_call *rdv_http_transfer_abort(struct rdv_http_transfer *t, int64_t now_us)
{
	struct rdv_call *call = t->call;

	curl_multi_remove_handle(t->handler->pool->multi, t->easy);
	t->call = NULL;
	rdv_call_set_transport(call, RDV_TRANSPORT_SHUTDOWN, "cut off by our shutdown");
	call->answer.took_ms = (now_us - t->start_us) / 1000;
	return call;
}
