/* rabbitmq.c - RabbitMQ's quorum queues over librabbitmq.
 *
 * publish: persistent messages, publisher confirms, at most 1000 unconfirmed.
 * consume: prefetch 1000; runs of up to 500 deliveries are settled with one
 * basic.ack or basic.nack(requeue=0), multiple=1.
 * retry: the nack dead-letters from `work` into `delay` (x-message-ttl 1000), which
 * dead-letters back into `work`, at least once in both directions.
 * backlog: per-queue TTL only expires at the head, so due times spread over an hour
 * need a ladder: 60 delay queues, one per minute.
 *
 * AMQP confirms no ack. So after the last ack the consumer's channel publishes one
 * more message into `work` and waits for its confirm: in a quorum queue that entry
 * comes after the acks in the same log.
 */
#include "peer.h"
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { LADDER = 60, RUN = 500, RING = 4 * WINDOW };

static amqp_connection_state_t open_quiet(void)
{
	amqp_connection_state_t c = amqp_new_connection();
	amqp_socket_t *s = amqp_tcp_socket_new(c);
	if (s && amqp_socket_open(s, "127.0.0.1", peer_port) == AMQP_STATUS_OK &&
	    amqp_login(c, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest").reply_type ==
		    AMQP_RESPONSE_NORMAL) {
		amqp_channel_open(c, 1);
		if (amqp_get_rpc_reply(c).reply_type == AMQP_RESPONSE_NORMAL)
			return c;
	}
	amqp_destroy_connection(c);
	return NULL;
}

static amqp_connection_state_t open_link(void)
{
	amqp_connection_state_t c = open_quiet();
	if (!c)
		die("cannot connect");
	return c;
}

static void check(amqp_connection_state_t c, const char *what)
{
	amqp_rpc_reply_t r = amqp_get_rpc_reply(c);
	if (r.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && r.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
		amqp_channel_close_t *m = r.reply.decoded;
		die("%s: %.*s", what, (int)m->reply_text.len, (char *)m->reply_text.bytes);
	}
	if (r.reply_type != AMQP_RESPONSE_NORMAL)
		die("%s failed", what);
}

static void set_text(amqp_table_entry_t *e, const char *key, const char *value)
{
	e->key = amqp_cstring_bytes(key);
	e->value.kind = AMQP_FIELD_KIND_UTF8;
	e->value.value.bytes = amqp_cstring_bytes(value);
}

static void declare(amqp_connection_state_t c, const char *name, const char *dead_letter_to, int ttl_ms)
{
	amqp_table_entry_t e[8];
	int n = 0;

	set_text(&e[n++], "x-queue-type", "quorum");
	if (dead_letter_to) {
		set_text(&e[n++], "x-dead-letter-exchange", "");
		set_text(&e[n++], "x-dead-letter-routing-key", dead_letter_to);
		set_text(&e[n++], "x-dead-letter-strategy", "at-least-once");
		set_text(&e[n++], "x-overflow", "reject-publish");
	}
	if (ttl_ms) {
		e[n].key = amqp_cstring_bytes("x-message-ttl");
		e[n].value.kind = AMQP_FIELD_KIND_I32;
		e[n++].value.value.i32 = ttl_ms;
	}
	amqp_queue_declare(c, 1, amqp_cstring_bytes(name), 0, 1, 0, 0, (amqp_table_t){n, e});
	check(c, "queue.declare");
}

static const char *rung(long i, char name[32])
{
	snprintf(name, 32, "delay.%ld", i);
	return name;
}

static void setup(bool retry)
{
	amqp_connection_state_t c = open_link();
	char name[32];
	declare(c, "work", retry ? "delay" : NULL, 0);
	if (retry)
		declare(c, "delay", "work", RETRY_MS);
	for (long i = 0; getenv("LADDER") && i < LADDER; i++)
		declare(c, rung(i, name), "work", (BACKLOG_START_S + (int)(i + 1) * BACKLOG_SPAN_S / LADDER) * 1000);
	amqp_destroy_connection(c);
}

/* What has been published on one channel and not yet confirmed. */
struct confirms {
	uint64_t sent, low, open;
	bool got[RING];
};

static void confirm_one(struct confirms *w, uint64_t tag)
{
	if (tag > w->low && !w->got[tag % RING])
		w->got[tag % RING] = true, w->open--;
}

static void confirm(struct confirms *w, amqp_basic_ack_t *a)
{
	if (a->multiple)
		for (uint64_t t = w->low + 1; t <= a->delivery_tag; t++)
			confirm_one(w, t);
	else
		confirm_one(w, a->delivery_tag);
	while (w->low < w->sent && w->got[(w->low + 1) % RING])
		w->got[++w->low % RING] = false;
}

static void drain_confirms(amqp_connection_state_t c, struct confirms *w, uint64_t most)
{
	struct timeval none = {0, 0}, minute = {60, 0};
	amqp_frame_t f;
	for (;;) {
		/* a full ring or window blocks; otherwise take what is there */
		bool full = w->open > most || w->sent - w->low > RING - 2;
		amqp_maybe_release_buffers(c);
		int rc = amqp_simple_wait_frame_noblock(c, &f, full ? &minute : &none);
		if (rc == AMQP_STATUS_TIMEOUT && !full)
			return;
		if (rc != AMQP_STATUS_OK)
			die("waiting for confirms: %s", amqp_error_string2(rc));
		if (f.frame_type != AMQP_FRAME_METHOD)
			continue;
		if (f.payload.method.id == AMQP_BASIC_ACK_METHOD)
			confirm(w, f.payload.method.decoded);
		else if (f.payload.method.id == AMQP_BASIC_NACK_METHOD ||
			 f.payload.method.id == AMQP_CHANNEL_CLOSE_METHOD)
			die("the broker refused a message");
	}
}

static void send_one(amqp_connection_state_t c, const char *queue, const char body[BODY])
{
	static const amqp_basic_properties_t props = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
	int rc = amqp_basic_publish(c, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 0, 0, &props,
				    (amqp_bytes_t){BODY, (void *)body});
	if (rc != AMQP_STATUS_OK)
		die("publish: %s", amqp_error_string2(rc));
}

static void publish_all(long n, bool ladder)
{
	amqp_connection_state_t c = open_link();
	struct confirms *w = need(sizeof *w);
	char body[BODY], name[32] = "work";

	amqp_confirm_select(c, 1);
	check(c, "confirm.select");
	for (long i = 0; i < n; i++) {
		body_make(i, body);
		if (ladder)
			rung((backlog_delay_s(i) - BACKLOG_START_S) * LADDER / BACKLOG_SPAN_S, name);
		send_one(c, name, body);
		w->sent++, w->open++;
		if (w->open >= WINDOW || i % 64 == 63)
			drain_confirms(c, w, WINDOW - 1);
	}
	while (w->open)
		drain_confirms(c, w, 0);
	free(w);
	amqp_destroy_connection(c);
}

static void publish(long n)
{
	publish_all(n, false);
}

static void backlog(long n)
{
	publish_all(n, true);
}

/* Deliveries not yet settled; all of one kind, so that one frame settles them. */
struct run {
	long seq[RUN];
	int n;
	bool back;
	uint64_t tag;
};

static void settle(amqp_connection_state_t c, struct run *r)
{
	if (!r->n)
		return;
	int rc = r->back ? amqp_basic_nack(c, 1, r->tag, 1, 0) : amqp_basic_ack(c, 1, r->tag, 1);
	if (rc != AMQP_STATUS_OK)
		die("settle: %s", amqp_error_string2(rc));
	for (int i = 0; i < r->n; i++) {
		if (r->back)
			ledger_failed(r->seq[i]);
		else
			ledger_acked(r->seq[i]);
	}
	r->n = 0;
}

static void prove_acks(amqp_connection_state_t c)
{
	char body[BODY];
	amqp_frame_t f;
	amqp_confirm_select(c, 1);
	check(c, "confirm.select");
	body_make(0, body);
	send_one(c, "work", body);
	do {
		amqp_maybe_release_buffers(c);
		if (amqp_simple_wait_frame(c, &f) != AMQP_STATUS_OK)
			die("no confirm for the last message");
	} while (f.frame_type != AMQP_FRAME_METHOD || f.payload.method.id != AMQP_BASIC_ACK_METHOD);
}

static void consume(long n, bool retry)
{
	amqp_connection_state_t c = open_link();
	struct run run = {.n = 0};
	struct timeval brief = {0, 2000};

	(void)retry;
	amqp_basic_qos(c, 1, 0, WINDOW, 0);
	check(c, "basic.qos");
	amqp_basic_consume(c, 1, amqp_cstring_bytes("work"), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
	check(c, "basic.consume");
	while (ledger_done() < n) {
		amqp_envelope_t e;
		amqp_maybe_release_buffers(c);
		amqp_rpc_reply_t r = amqp_consume_message(c, &e, &brief, 0);
		if (r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && r.library_error == AMQP_STATUS_TIMEOUT) {
			settle(c, &run);
			continue;
		}
		if (r.reply_type != AMQP_RESPONSE_NORMAL)
			die("consume: %s", amqp_error_string2(r.library_error));
		long seq = body_seq(e.message.body.bytes, e.message.body.len);
		bool back = ledger_deliver(seq);
		if (run.n == RUN || (run.n && run.back != back))
			settle(c, &run);
		run.seq[run.n++] = seq, run.back = back, run.tag = e.delivery_tag;
		amqp_destroy_envelope(&e);
		if (run.n == RUN || (!back && ledger_done() + run.n >= n))
			settle(c, &run);
	}
	prove_acks(c);
	amqp_destroy_connection(c);
}

static long depth(amqp_connection_state_t c, const char *name)
{
	amqp_queue_declare_ok_t *ok = amqp_queue_declare(c, 1, amqp_cstring_bytes(name), 1, 1, 0, 0, amqp_empty_table);
	long n = ok ? (long)ok->message_count : -1;
	amqp_maybe_release_buffers(c);
	return n;
}

static long waiting(void)
{
	amqp_connection_state_t c = open_quiet();
	char name[32];
	long sum = 0;
	if (!c)
		return -1;
	for (long i = 0; i < LADDER && sum >= 0; i++) {
		long n = depth(c, rung(i, name));
		sum = n < 0 ? -1 : sum + n;
	}
	amqp_destroy_connection(c);
	return sum;
}

static long deliverable(void)
{
	amqp_connection_state_t c = open_link();
	pause_ms(1000);
	long n = depth(c, "work");
	amqp_destroy_connection(c);
	return n;
}

const struct peer peer = {"rabbitmq", setup, publish, consume, backlog, waiting, deliverable};
