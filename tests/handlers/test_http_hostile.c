/* test_http_hostile.c - servers that break, stall, lie and flood: what each becomes, and that a call is one request. */
#include "http_world.h"
#include <netdb.h>

#define OK_TEXT "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static struct rdv_call *send_raw(const char *raw)
{
	struct http_world w;
	struct rdv_call *c;

	http_open(&w, server_raw, (struct rdv_http_options){.timeout_ms = 10000});
	w.server->raw = raw;
	c = http_send(&w, kit_call(1, NULL));
	http_close(&w);
	return c;
}

static void broken_answers_have_their_transport(void **state)
{
	static const struct {
		const char *raw;
		enum rdv_transport transport;
		int status;
	} table[] = {
		{"", RDV_TRANSPORT_RESET, 0},
		{"garbage\r\n\r\n", RDV_TRANSPORT_OTHER, 0},
		{"HTTP/1.1", RDV_TRANSPORT_RESET, 0},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", RDV_TRANSPORT_RESET, 0},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", RDV_TRANSPORT_RESET, 0},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab", RDV_TRANSPORT_RESET, 0},
		{"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", RDV_TRANSPORT_OTHER, 0},
		{"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", RDV_TRANSPORT_OTHER, 0},
		{"HTTP/1.1 200 OK\r\n\r\nuntil the end", RDV_TRANSPORT_ANSWER, 200},
		{"HTTP/1.0 503 No\r\n\r\n", RDV_TRANSPORT_ANSWER, 503},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", RDV_TRANSPORT_ANSWER,
		 201},
		{"HTTP/1.1 103 Early\r\nRedrive-Verdict: reject\r\n\r\nHTTP/1.1 204 None\r\n\r\n", RDV_TRANSPORT_ANSWER,
		 204},
		{"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		 RDV_TRANSPORT_ANSWER, 302},
		{"HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", RDV_TRANSPORT_ANSWER, 307},
		{"HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
		 RDV_TRANSPORT_ANSWER, 401},
		{"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", RDV_TRANSPORT_ANSWER, 417},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_call *c = send_raw(table[i].raw);

		if (c->answer.transport != table[i].transport || c->answer.http_status != table[i].status)
			fail_msg("row %zu: transport %d, status %d: %.*s", i, (int)c->answer.transport,
				 c->answer.http_status, (int)c->answer.failure.text.size,
				 (const char *)c->answer.failure.text.data);
		assert_false(c->answer.explicit_verdict);
		if (table[i].transport != RDV_TRANSPORT_ANSWER)
			assert_true(c->answer.failure.text.size > 0);
		kit_free(c);
	}
}

static void refused_and_unknown_hosts_are_told_apart(void **state)
{
	struct http_world w = {.server = server_start(server_ok)};
	struct rdv_call *c;
	char url[64];

	snprintf(url, sizeof url, "http://127.0.0.1:%d/", w.server->port);
	shutdown(w.server->fd, SHUT_RDWR); /* nobody listens there now */
	http_open_with(&w, (struct rdv_http_options){.url = url});
	c = http_send(&w, kit_call(1, NULL));
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_REFUSED);
	kit_free(c);
	http_close(&w);
}

/* Our own resolver, which libcurl's threads use because the program's symbol comes first. */
static pthread_mutex_t resolver = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int resolving;
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
						       const struct addrinfo *hints, struct addrinfo **out)
{
	resolving++;
	if (strcmp(node, "slow.test") == 0) {
		pthread_mutex_lock(&resolver); /* for as long as the test wants */
		pthread_mutex_unlock(&resolver);
	}
	resolving--;
	return EAI_NONAME;
}
__attribute__((visibility("default"))) void freeaddrinfo(struct addrinfo *list)
{
}

static void an_unknown_name_is_a_dns_failure(void **state)
{
	struct http_world w = {.server = server_start(server_ok)};
	struct rdv_call *c;

	http_open_with(&w, (struct rdv_http_options){.url = "http://nowhere.test/"});
	c = http_send(&w, kit_call(1, NULL));
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_DNS);
	kit_free(c);
	http_close(&w);
}

/* pitfall: one slow look-up stops everybody */
static void a_name_server_that_hangs_holds_up_nobody_else(void **state)
{
	struct http_world w, slow = {.server = server_start(server_ok)};
	struct rdv_http_options options = {.url = "http://slow.test/", .timeout_ms = 100, .connections = 4};
	struct rdv_call *c;

	pthread_mutex_lock(&resolver);
	http_open(&w, server_ok, (struct rdv_http_options){0});
	assert_int_equal(rdv_http_new(w.pool, &options, kit_sink(&slow.sink), &slow.handler, NULL), REDRIVE_OK);
	for (int i = 0; i < 3; i++) {
		slow.handler->ops->submit(slow.handler, kit_call(1, NULL));
		kit_free(http_send(&w, kit_call(2, NULL))); /* while the name is looked up */
		c = kit_wait(&slow.sink, 1);
		assert_int_equal(c->answer.transport, RDV_TRANSPORT_TIMEOUT);
		assert_true(c->answer.took_ms < 10000);
		kit_free(c);
	}
	assert_true(resolving > 0); /* it still hangs */
	slow.handler->ops->free(slow.handler);
	pthread_mutex_unlock(&resolver);
	http_close(&w);
	server_stop(slow.server);
	while (resolving > 0)
		sched_yield();
}

/* Sends what is before '|', then what is behind it again and again, byte by byte. */
static bool drip(struct server *s, const struct server_request *r, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	const char *again = strchr(s->raw, '|') + 1;

	if (send(fd, s->raw, (size_t)(again - 1 - s->raw), MSG_NOSIGNAL) < 0)
		return false;
	for (size_t i = 0;; i = (i + 1) % strlen(again)) {
		if (send(fd, again + i, 1, MSG_NOSIGNAL) != 1 || poll(&p, 1, 3) > 0)
			return false;
	}
}

static void an_answer_that_drips_is_cut_by_the_timeout(void **state)
{
	static const char *const drips[] = {"HTTP/1.1 200 OK\r\n|X: y\r\n", "HTTP/1.1 200 OK\r\n\r\n|x",
					    "|HTTP/1.1 100 Continue\r\n\r\n"};

	for (size_t i = 0; i < 3; i++) {
		struct http_world w;
		struct rdv_call *c;

		http_open(&w, drip, (struct rdv_http_options){.timeout_ms = 200});
		w.server->raw = drips[i];
		c = http_send(&w, kit_call(1, NULL));
		if (c->answer.transport != RDV_TRANSPORT_TIMEOUT)
			fail_msg("drip %zu: %.*s", i, (int)c->answer.failure.text.size,
				 (const char *)c->answer.failure.text.data);
		assert_in_range(c->answer.took_ms, 199, 5000);
		kit_free(c);
		http_close(&w);
	}
}

static bool flood(struct server *s, const struct server_request *r, int fd)
{
	char block[4096];

	memset(block, 'x', sizeof block);
	server_write(fd, s->raw);
	while (send(fd, block, sizeof block, MSG_NOSIGNAL) > 0)
		;
	return false;
}

static void of_an_endless_body_64_kib_are_read_and_the_status_counts(void **state)
{
	static const int statuses[] = {200, 503, 400};

	for (size_t i = 0; i < 3; i++) {
		struct http_world w;
		struct rdv_call *c;
		char head[64];

		http_open(&w, flood, (struct rdv_http_options){0});
		snprintf(head, sizeof head, "HTTP/1.1 %d X\r\n\r\n", statuses[i]);
		w.server->raw = head;
		c = http_send(&w, kit_call(1, NULL));
		assert_int_equal(c->answer.transport, RDV_TRANSPORT_ANSWER);
		assert_int_equal(c->answer.http_status, statuses[i]);
		assert_int_equal(c->answer.failure.text.size, 1000);
		assert_int_equal(c->answer.answer.size, 256);
		kit_free(c);
		http_close(&w);
	}
}

static bool exactly_the_limit_then_silence(struct server *s, const struct server_request *r, int fd)
{
	char *body = malloc(RDV_ERROR_TEXT_CHARS * 64 + 1536 + 1);

	memset(body, 'y', 65536);
	body[65536] = '\0';
	server_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
	server_write(fd, body);
	free(body);
	server_hang(fd);
	return false;
}

static void a_2xx_is_an_ack_once_64_kib_are_read(void **state)
{
	struct http_world w;
	struct rdv_call *c;

	http_open(&w, exactly_the_limit_then_silence, (struct rdv_http_options){.timeout_ms = 60000});
	c = http_send(&w, kit_call(1, NULL));
	assert_int_equal(c->answer.http_status, 200);
	assert_true(c->answer.took_ms < 30000);
	kit_free(c);
	http_close(&w);
}

static bool flood_of_lines(struct server *s, const struct server_request *r, int fd)
{
	server_write(fd, s->raw);
	while (send(fd, "X-Line: of a header\r\n", 21, MSG_NOSIGNAL) > 0)
		;
	return false;
}

static void endless_headers_are_no_answer(void **state)
{
	bool (*const floods[])(struct server *, const struct server_request *, int) = {flood, flood_of_lines};
	static const char *const starts[] = {"HTTP/1.1 200 OK\r\nX-Long: ", "HTTP/1.1 200 OK\r\n"};

	for (int i = 0; i < 2; i++) {
		struct http_world w;
		struct rdv_call *c;

		http_open(&w, floods[i], (struct rdv_http_options){0});
		w.server->raw = starts[i];
		c = http_send(&w, kit_call(1, NULL));
		assert_int_equal(c->answer.transport, RDV_TRANSPORT_OTHER);
		if (i == 1)
			assert_true(kit_text_is(c->answer.failure.text, "the answer's headers are over 64 KiB"));
		kit_free(c);
		http_close(&w);
	}
}

/* The second request on a connection gets its connection closed without an answer, after it was read. */
static bool dies_on_the_second(struct server *s, const struct server_request *r, int fd)
{
	for (size_t i = 0; i + 1 < s->request_count; i++)
		if (s->requests[i].connection == r->connection)
			return false;
	return server_ok(s, r, fd);
}

/* pitfall: the HTTP library sends a request again by itself */
static void a_kept_connection_that_dies_gives_one_request_per_call(void **state)
{
	struct rdv_body empty = {.flags = RDV_BODY_NULL_KEY};

	for (int body = 0; body < 2; body++) {
		struct http_world w;
		struct rdv_call *c;

		http_open(&w, dies_on_the_second, (struct rdv_http_options){.connections = 1});
		kit_free(http_send(&w, kit_call(1, NULL)));
		c = http_send(&w, kit_call(2, body ? NULL : &empty));
		assert_int_equal(c->answer.transport, RDV_TRANSPORT_RESET);
		assert_true(c->answer.failure.text.size > 0);
		kit_free(c);
		assert_int_equal(server_requests(w.server), 2);
		c = http_send(&w, kit_call(3, NULL)); /* and the handler goes on by a new connection */
		assert_int_equal(c->answer.http_status, 204);
		kit_free(c);
		assert_int_equal(server_requests(w.server), 3);
		http_close(&w);
	}
}

static bool close_after_answer(struct server *s, const struct server_request *r, int fd)
{
	server_ok(s, r, fd);
	return false;
}

static void a_connection_closed_while_idle_costs_no_call(void **state)
{
	struct http_world w;

	http_open(&w, close_after_answer, (struct rdv_http_options){.connections = 1});
	for (uint64_t i = 1; i <= 30; i++) {
		struct rdv_call *c = http_send(&w, kit_call(i, NULL));
		struct pollfd p = {.fd = w.server->fds[i - 1], .events = POLLIN};

		assert_int_equal(c->answer.http_status, 204);
		kit_free(c);
		poll(&p, 1, 5); /* the close has gone out; ours is noticed before the next call */
	}
	assert_int_equal(server_requests(w.server), 30);
	http_close(&w);
}

/* pitfall: retries of a dead service starve the healthy ones */
static void a_silent_server_does_not_hold_up_another_handler_of_the_pool(void **state)
{
	struct http_world w;
	struct server *silent = server_start(server_silent);
	struct rdv_http_options options = {.timeout_ms = 60000, .connections = 2};
	struct rdv_handler *h;
	struct kit_sink sink;
	char url[64];

	http_open(&w, server_ok, (struct rdv_http_options){0});
	snprintf(url, sizeof url, "http://127.0.0.1:%d/", silent->port);
	options.url = url;
	assert_int_equal(rdv_http_new(w.pool, &options, kit_sink(&sink), &h, NULL), REDRIVE_OK);
	for (uint64_t i = 1; i <= 10; i++)
		h->ops->submit(h, kit_call(i, NULL));
	server_wait_requests(silent, 2);
	for (uint64_t i = 1; i <= 50; i++)
		kit_free(http_send(&w, kit_call(i, NULL)));
	h->ops->cut(h);
	kit_free(kit_wait(&sink, 10));
	assert_int_equal(server_requests(silent), 2);
	h->ops->free(h);
	http_close(&w);
	server_stop(silent);
}

static void a_damaged_payload_is_no_crash(void **state)
{
	struct http_world w;
	struct rdv_call *c = kit_call(1, NULL);

	http_open(&w, server_ok, (struct rdv_http_options){0});
	c->payload = rdv_slice("\xff\xff\xff", 3);
	c = http_send(&w, c);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_OTHER);
	kit_free(c);
	assert_int_equal(server_requests(w.server), 0);
	http_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_answers_have_their_transport),
		cmocka_unit_test(refused_and_unknown_hosts_are_told_apart),
		cmocka_unit_test(an_unknown_name_is_a_dns_failure),
		cmocka_unit_test(a_name_server_that_hangs_holds_up_nobody_else),
		cmocka_unit_test(an_answer_that_drips_is_cut_by_the_timeout),
		cmocka_unit_test(of_an_endless_body_64_kib_are_read_and_the_status_counts),
		cmocka_unit_test(a_2xx_is_an_ack_once_64_kib_are_read),
		cmocka_unit_test(endless_headers_are_no_answer),
		cmocka_unit_test(a_kept_connection_that_dies_gives_one_request_per_call),
		cmocka_unit_test(a_connection_closed_while_idle_costs_no_call),
		cmocka_unit_test(a_silent_server_does_not_hold_up_another_handler_of_the_pool),
		cmocka_unit_test(a_damaged_payload_is_no_crash),
	};

	return cmocka_run_group_tests_name("handlers: hostile http servers", tests, NULL, NULL);
}
