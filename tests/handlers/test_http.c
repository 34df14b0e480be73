/* test_http.c - what the http handler sends: request line, headers, body; its connections; options it refuses. */
#include "http_world.h"
#include <sodium.h>
#include "base/text.h"
#include "handlers/http_request.h"

static struct rdv_slice text(const char *t)
{
	return rdv_slice_text(t);
}

static struct rdv_buffer headers_of(const struct rdv_header *items, size_t count)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	rdv_headers_encode(&b, items, count);
	return b;
}

/* Sends one message, and leaves its request as the server's last. */
static void send_message(struct http_world *w, const struct rdv_body *m)
{
	struct rdv_call *c = http_send(w, kit_call(8812, m));

	assert_int_equal(c->answer.transport, RDV_TRANSPORT_ANSWER);
	assert_int_equal(c->answer.http_status, 204);
	kit_free(c);
}

static void a_request_carries_the_message_and_its_place(void **state)
{
	struct rdv_body m = {.key = text("o-17"),
			     .content_type = text("application/json; charset=utf-8"),
			     .body = text("{\"a\":1}"),
			     .traceparent = text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")};
	struct rdv_call *c = kit_call(8812, &m);
	struct http_world w;
	struct server_request *r;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	c->attempt = 3;
	c->epoch = 12;
	c->first_failed_at.ms = 1796053126123;
	c->replay = "plan-4";
	kit_free(http_send(&w, c));
	r = &w.server->requests[0];
	assert_int_equal(strncmp(r->head, "POST /orders HTTP/1.1\r\n", 23), 0);
	assert_int_equal(r->body_size, 7);
	assert_memory_equal(r->body, "{\"a\":1}", 7);
	http_check(&w, "Redrive-Message-Id", "order.create-2-8812");
	http_check(&w, "Redrive-Route", "orders");
	http_check(&w, "Redrive-Topic", "order.create");
	http_check(&w, "Redrive-Partition", "2");
	http_check(&w, "Redrive-Offset", "8812");
	http_check(&w, "Redrive-Key", "o-17");
	http_check(&w, "Redrive-Attempt", "3");
	http_check(&w, "Redrive-Epoch", "12");
	http_check(&w, "Redrive-First-Failed-At", "2026-11-30T15:38:46.123Z");
	http_check(&w, "Redrive-Replay", "plan-4");
	http_check(&w, "Idempotency-Key", "order.create-2-8812");
	http_check(&w, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	http_check(&w, "Content-Type", "application/json; charset=utf-8");
	http_check(&w, "Content-Length", "7");
	http_check(&w, "Redrive-Null", NULL);
	http_close(&w);
}

static void what_a_message_does_not_have_is_not_sent(void **state)
{
	static const char *const absent[] = {"Redrive-Key",    "Redrive-First-Failed-At",
					     "Redrive-Replay", "Redrive-Null",
					     "traceparent",    "Content-Type",
					     "Expect",         "Transfer-Encoding",
					     "webhook-id",     "ce-id",
					     "Accept-Encoding"};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, NULL);
	for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
		http_check(&w, absent[i], NULL);
	http_close(&w);
}

/* pitfall: content type is replaced by a client library's default */
static void no_content_type_in_is_none_out_for_any_body(void **state)
{
	struct rdv_body empty = {.flags = RDV_BODY_NULL_KEY};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &empty);
	http_check(&w, "Content-Type", NULL);
	http_check(&w, "Content-Length", "0");
	http_check(&w, "Redrive-Null", NULL);
	http_close(&w);
}

/* pitfall: a tombstone breaks the error path of a consumer */
static void a_tombstone_is_an_empty_body_that_says_so(void **state)
{
	struct rdv_body m = {.flags = RDV_BODY_TOMBSTONE, .key = text("k")};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Redrive-Null", "true");
	http_check(&w, "Content-Length", "0");
	http_check(&w, "Redrive-Key", "k");
	http_close(&w);
}

/* pitfall: a dead-lettered copy loses its key */
static void null_empty_and_binary_keys_are_told_apart(void **state)
{
	struct rdv_body m = {.body = text("x")};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Redrive-Key", "");
	m.key = rdv_slice("\0\xff%\r\n", 5);
	send_message(&w, &m);
	http_check(&w, "Redrive-Key", "%00%FF%25%0D%0A");
	m.key = text(" a b ");
	send_message(&w, &m);
	http_check(&w, "Redrive-Key", "%20a b%20");
	m.key = text("   ");
	send_message(&w, &m);
	http_check(&w, "Redrive-Key", "%20%20%20");
	m.flags = RDV_BODY_NULL_KEY;
	m.key = text("");
	send_message(&w, &m);
	http_check(&w, "Redrive-Key", NULL);
	http_close(&w);
}

static void user_headers_go_out_with_a_prefix_and_encoded(void **state)
{
	struct rdv_header items[] = {
		{text("X-Tenant"), text("acme")},
		{text("empty"), text("")},
		{text("evil"), text("a\r\nX-Injected: 1")},
		{text("utf8"), text("\xc3\xa9")},
		{text("b:d n%m"), text("v")},
		{text("nul"), rdv_slice("\0", 1)},
		{text("colon"), text("a: ")},
	};
	struct rdv_buffer headers = headers_of(items, 7);
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY,
			     .headers = rdv_buffer_as_slice(&headers),
			     .content_type = text("text/x\r\ny: z ")};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Redrive-Header-X-Tenant", "acme");
	http_check(&w, "Redrive-Header-empty", "");
	http_check(&w, "Redrive-Header-evil", "a%0D%0AX-Injected: 1");
	http_check(&w, "X-Injected", NULL);
	http_check(&w, "Redrive-Header-utf8", "%C3%A9");
	http_check(&w, "Redrive-Header-b%3Ad%20n%25m", "v");
	http_check(&w, "Redrive-Header-nul", "%00");
	http_check(&w, "Redrive-Header-colon", "a:%20");
	http_check(&w, "Content-Type", "text/x%0D%0Ay: z");
	rdv_buffer_done(&headers);
	http_close(&w);
}

static void headers_that_are_ours_never_come_from_a_message(void **state)
{
	struct rdv_header items[] = {{text("redrive-attempt"), text("99")},
				     {text("Redrive-Verdict"), text("ack")},
				     {text("idempotency-key"), text("x")},
				     {text("kept"), text("1")}};
	struct rdv_buffer headers = headers_of(items, 4);
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY, .headers = rdv_buffer_as_slice(&headers)};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Redrive-Attempt", "1");
	http_check(&w, "Redrive-Header-redrive-attempt", NULL);
	http_check(&w, "Redrive-Header-Redrive-Verdict", NULL);
	http_check(&w, "Redrive-Header-idempotency-key", NULL);
	http_check(&w, "Redrive-Header-kept", "1");
	rdv_buffer_done(&headers);
	http_close(&w);
}

static void the_idempotency_key_is_the_dedupe_key_else_the_publish_id(void **state)
{
	struct rdv_body m = {
		.flags = RDV_BODY_NULL_KEY | RDV_BODY_HAS_ID, .publish_id = text("pay-1"), .body = text("x")};
	struct rdv_call *c = kit_call(1, &m);
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Idempotency-Key", "pay-1");
	c->idempotency_key = text("dedupe-9");
	kit_free(http_send(&w, c));
	http_check(&w, "Idempotency-Key", "dedupe-9");
	http_close(&w);
}

static void a_body_arrives_byte_for_byte_and_without_expect(void **state)
{
	size_t size = 3 << 20;
	uint8_t *bytes = malloc(size);
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY, .body = rdv_slice(bytes, size)};
	struct http_world w;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(i * 31 + (i >> 8));
	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Expect", NULL);
	assert_int_equal(w.server->requests[0].body_size, size);
	assert_memory_equal(w.server->requests[0].body, bytes, size);
	http_close(&w);
	free(bytes);
}

static void many_large_headers_fit(void **state)
{
	enum { COUNT = 500 };
	static struct rdv_header items[COUNT];
	static char names[COUNT][16];
	struct rdv_buffer headers;
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY};
	struct http_world w;

	for (size_t i = 0; i < COUNT; i++) {
		snprintf(names[i], sizeof names[i], "h%zu", i);
		items[i] = (struct rdv_header){text(names[i]), text("\x01\x02\x03 0123456789 0123456789 0123456789 "
								    "0123456789 0123456789 0123456789 0123456789")};
	}
	headers = headers_of(items, COUNT);
	m.headers = rdv_buffer_as_slice(&headers);
	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, &m);
	http_check(&w, "Redrive-Header-h499",
		   "%01%02%03 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789");
	send_message(&w, NULL);
	http_check(&w, "Redrive-Header-h0", NULL);
	rdv_buffer_done(&headers);
	http_close(&w);
}

static void configured_headers_are_sent_with_every_request(void **state)
{
	struct rdv_pair pairs[] = {
		{"Authorization", "Bearer t"}, {"X-Empty", ""}, {"Content-Type", "text/plain"}, {"User-Agent", "shop"}};
	struct rdv_body typed = {.flags = RDV_BODY_NULL_KEY, .content_type = text("image/png")};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){.headers = pairs, .header_count = 4});
	send_message(&w, NULL);
	http_check(&w, "Authorization", "Bearer t");
	http_check(&w, "X-Empty", "");
	http_check(&w, "Content-Type", "text/plain");
	http_check(&w, "User-Agent", "shop");
	send_message(&w, &typed);
	http_check(&w, "Content-Type", "image/png");
	http_close(&w);
}

static void cloudevents_attributes_are_headers(void **state)
{
	struct rdv_header items[] = {{text("ce_type"), text("com.acme.order \"x\"")},
				     {text("ce-subject"), text("o\xc3\xa9")}};
	struct rdv_buffer headers = headers_of(items, 2);
	struct rdv_body m = {
		.key = text("o 1"), .produced_at = {1796053126123}, .headers = rdv_buffer_as_slice(&headers)};
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){.cloudevents = true});
	send_message(&w, &m);
	http_check(&w, "ce-specversion", "1.0");
	http_check(&w, "ce-id", "order.create-2-8812");
	http_check(&w, "ce-source", "/topics/order.create");
	http_check(&w, "ce-type", "com.acme.order%20%22x%22");
	http_check(&w, "ce-subject", "o%C3%A9");
	http_check(&w, "ce-time", "2026-11-30T15:38:46.123Z");
	http_check(&w, "ce-partitionkey", "o%201");
	rdv_buffer_done(&headers);
	http_close(&w);
}

/* Computes the signature again from what arrived, as a receiver would. */
static void a_signed_request_verifies(void **state)
{
	static const char secret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY, .body = text("{\"test\": 2432232314}")};
	struct rdv_buffer key = {0}, wanted = {0};
	crypto_auth_hmacsha256_state mac;
	uint8_t bytes[32];
	char *id, *timestamp;
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){.sign_secret = rdv_slice_text(secret)});
	send_message(&w, &m);
	id = server_header(&w.server->requests[0], "webhook-id");
	timestamp = server_header(&w.server->requests[0], "webhook-timestamp");
	assert_string_equal(id, "order.create-2-8812");
	assert_true(llabs(atoll(timestamp) - rdv_wall_now().ms / 1000) <= 60);
	assert_int_equal(rdv_base64_decode(&key, text("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")), REDRIVE_OK);
	rdv_buffer_printf(&wanted, "%s.%s.%s", id, timestamp, "{\"test\": 2432232314}");
	crypto_auth_hmacsha256_init(&mac, key.data, key.size);
	crypto_auth_hmacsha256_update(&mac, wanted.data, wanted.size);
	crypto_auth_hmacsha256_final(&mac, bytes);
	rdv_buffer_clear(&wanted);
	rdv_buffer_text(&wanted, "v1,");
	rdv_base64_encode(&wanted, rdv_slice(bytes, 32));
	http_check(&w, "webhook-signature", rdv_buffer_string(&wanted));
	free(id);
	free(timestamp);
	rdv_buffer_done(&key);
	rdv_buffer_done(&wanted);
	http_close(&w);
}

/* The example of the Standard Webhooks specification. */
static void the_specification_s_example_signs_alike(void **state)
{
	struct rdv_http_request r;
	struct rdv_buffer key = {0};

	rdv_http_request_init(&r);
	assert_int_equal(rdv_http_sign_key(text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), &key), REDRIVE_OK);
	rdv_http_sign_add(&r, rdv_buffer_as_slice(&key), text("msg_p5jXN8AQM9LWM0D4loKWxJek"),
			  (struct rdv_wall){1614265330000}, text("{\"test\": 2432232314}"));
	assert_int_equal(r.count, 3);
	assert_string_equal((char *)r.text.data + (size_t)r.headers[2].data,
			    "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
	rdv_buffer_done(&key);
	rdv_http_request_done(&r);
}

static void connections_are_kept_between_calls(void **state)
{
	struct http_world w;

	http_open(&w, server_ok, (struct rdv_http_options){.connections = 2});
	for (uint64_t round = 0; round < 20; round++) {
		struct rdv_call *a = kit_call(1, NULL), *b = kit_call(2, NULL);

		a->next = b;
		w.handler->ops->submit(w.handler, a);
		kit_free(kit_wait(&w.sink, 2));
		kit_free(http_send(&w, kit_call(3, NULL)));
	}
	assert_in_range(w.server->connections, 1, 2);
	assert_int_equal(server_requests(w.server), 60);
	http_close(&w);
}

static bool answer_after_all_came(struct server *s, const struct server_request *r, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	poll(&p, 1, 30); /* lets others come, if they would */
	return server_ok(s, r, fd);
}

static void no_more_calls_run_than_connections_and_the_queue_is_no_part_of_their_time(void **state)
{
	struct rdv_call *list = NULL, *c;
	struct http_world w;

	http_open(&w, answer_after_all_came, (struct rdv_http_options){.connections = 3, .timeout_ms = 400});
	for (uint64_t i = 1; i <= 60; i++) {
		c = kit_call(i, NULL);
		c->next = list;
		list = c;
	}
	w.handler->ops->submit(w.handler, list);
	list = kit_wait(&w.sink, 60); /* 60 / 3 * 30 ms is more than the timeout */
	for (c = list; c; c = c->next) {
		assert_int_equal(c->answer.http_status, 204);
		assert_in_range(c->answer.took_ms, 29, 399);
	}
	kit_free(list);
	assert_in_range(w.server->most_active, 2, 3);
	http_close(&w);
}

static void the_environment_s_proxy_is_not_used(void **state)
{
	struct http_world w;

	setenv("http_proxy", "http://127.0.0.1:1/", 1);
	setenv("ALL_PROXY", "http://127.0.0.1:1/", 1);
	http_open(&w, server_ok, (struct rdv_http_options){0});
	send_message(&w, NULL);
	http_close(&w);
	unsetenv("http_proxy");
	unsetenv("ALL_PROXY");
}

static void a_configured_proxy_is_used_whatever_the_environment_says(void **state)
{
	char proxy[64];
	struct http_world w = {.server = server_start(server_ok)};

	setenv("no_proxy", "*", 1);
	snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", w.server->port);
	http_open_with(&w, (struct rdv_http_options){.url = "http://handler.invalid/x", .proxy = proxy});
	send_message(&w, NULL);
	assert_int_equal(strncmp(w.server->requests[0].head, "POST http://handler.invalid/x HTTP/1.1\r\n", 40), 0);
	http_close(&w);
	unsetenv("no_proxy");
}

static void options_that_cannot_work_are_refused_with_words(void **state)
{
	static const struct rdv_pair newline = {"X", "a\r\nb"}, space = {"X Y", "a"}, ours = {"redrive-route", "a"},
				     key = {"Idempotency-Key", "a"}, length = {"content-length", "3"}, none = {"", "a"};
	const struct {
		struct rdv_http_options options;
		const char *word;
	} table[] = {
		{{.url = NULL, .connections = 1}, "url"},
		{{.url = "ftp://h/", .connections = 1}, "http"},
		{{.url = "file:///etc/passwd", .connections = 1}, "http"},
		{{.url = "http://", .connections = 1}, "URL"},
		{{.url = "nonsense", .connections = 1}, "URL"},
		{{.url = "http://h/", .connections = 0}, "connection"},
		{{.url = "http://h/", .connections = 1, .ca_file = "/nowhere/ca.pem"}, "ca_file"},
		{{.url = "http://h/", .connections = 1, .cert_file = "/nowhere/c.pem"}, "cert_file"},
		{{.url = "http://h/", .connections = 1, .key_file = "/nowhere/k.pem"}, "key_file"},
		{{.url = "http://h/", .connections = 1, .headers = &newline, .header_count = 1}, "control"},
		{{.url = "http://h/", .connections = 1, .headers = &space, .header_count = 1}, "name"},
		{{.url = "http://h/", .connections = 1, .headers = &none, .header_count = 1}, "name"},
		{{.url = "http://h/", .connections = 1, .headers = &ours, .header_count = 1}, "Redrive"},
		{{.url = "http://h/", .connections = 1, .headers = &key, .header_count = 1}, "Redrive"},
		{{.url = "http://h/", .connections = 1, .headers = &length, .header_count = 1}, "connection"},
		{{.url = "http://h/", .connections = 1, .sign_secret = {(const uint8_t *)"whsec_!", 7}}, "sign"},
		{{.url = "http://h/", .connections = 1, .sign_secret = {(const uint8_t *)"\n", 1}}, "sign"},
	};
	struct rdv_http_pool *pool;
	struct rdv_handler *h;
	struct kit_sink sink;

	assert_int_equal(rdv_http_pool_new(&pool, NULL), REDRIVE_OK);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_error error = {""};

		assert_int_equal(rdv_http_new(pool, &table[i].options, kit_sink(&sink), &h, &error), REDRIVE_INVALID);
		if (!strstr(error.text, table[i].word))
			fail_msg("row %zu: '%s' lacks '%s'", i, error.text, table[i].word);
	}
	rdv_http_pool_free(pool);
}

static int inheritable_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		count += flags >= 0 && !(flags & FD_CLOEXEC);
	}
	return count;
}

static void connections_are_close_on_exec(void **state)
{
	struct http_world w;
	int before;

	http_open(&w, server_ok, (struct rdv_http_options){0});
	before = inheritable_fds();
	send_message(&w, NULL); /* its connection is kept open */
	assert_int_equal(inheritable_fds(), before);
	http_close(&w);
}

static void handlers_of_one_pool_come_and_go(void **state)
{
	struct server *server = server_start(server_ok);
	struct rdv_http_pool *pool;
	char url[64];

	snprintf(url, sizeof url, "http://127.0.0.1:%d/", server->port);
	assert_int_equal(rdv_http_pool_new(&pool, NULL), REDRIVE_OK);
	for (int round = 0; round < 20; round++) {
		struct rdv_http_options options = {.url = url, .connections = 2, .timeout_ms = 20000};
		struct rdv_handler *h[3];
		struct kit_sink sinks[3];

		for (int i = 0; i < 3; i++)
			assert_int_equal(rdv_http_new(pool, &options, kit_sink(&sinks[i]), &h[i], NULL), REDRIVE_OK);
		for (int i = 0; i < 3; i++)
			h[i]->ops->submit(h[i], kit_call(1, NULL));
		for (int i = 0; i < 3; i++) {
			kit_free(kit_wait(&sinks[i], 1));
			h[i]->ops->free(h[i]);
		}
	}
	rdv_http_pool_free(pool);
	server_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_carries_the_message_and_its_place),
		cmocka_unit_test(what_a_message_does_not_have_is_not_sent),
		cmocka_unit_test(no_content_type_in_is_none_out_for_any_body),
		cmocka_unit_test(a_tombstone_is_an_empty_body_that_says_so),
		cmocka_unit_test(null_empty_and_binary_keys_are_told_apart),
		cmocka_unit_test(user_headers_go_out_with_a_prefix_and_encoded),
		cmocka_unit_test(headers_that_are_ours_never_come_from_a_message),
		cmocka_unit_test(the_idempotency_key_is_the_dedupe_key_else_the_publish_id),
		cmocka_unit_test(a_body_arrives_byte_for_byte_and_without_expect),
		cmocka_unit_test(many_large_headers_fit),
		cmocka_unit_test(configured_headers_are_sent_with_every_request),
		cmocka_unit_test(cloudevents_attributes_are_headers),
		cmocka_unit_test(a_signed_request_verifies),
		cmocka_unit_test(the_specification_s_example_signs_alike),
		cmocka_unit_test(connections_are_kept_between_calls),
		cmocka_unit_test(no_more_calls_run_than_connections_and_the_queue_is_no_part_of_their_time),
		cmocka_unit_test(the_environment_s_proxy_is_not_used),
		cmocka_unit_test(a_configured_proxy_is_used_whatever_the_environment_says),
		cmocka_unit_test(options_that_cannot_work_are_refused_with_words),
		cmocka_unit_test(connections_are_close_on_exec),
		cmocka_unit_test(handlers_of_one_pool_come_and_go),
	};

	return cmocka_run_group_tests_name("handlers: http requests", tests, NULL, NULL);
}
