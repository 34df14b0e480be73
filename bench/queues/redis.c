/* redis.c - Redis as a retry queue: a stream with one consumer group, and a
 * sorted set (score = due time in ms, member = body) for what waits.
 *
 * publish: 1000 XADD inside one MULTI/EXEC, written at once. With appendfsync
 * always the server syncs once per event loop pass, before it sends the replies;
 * a plain pipeline is cut into passes of 16 KiB of input (about 50 messages), a
 * transaction is one pass.
 * consume: the mover script (due entries back into the stream), XREADGROUP COUNT
 * 1000, then per batch one XACK + XDEL, or the put-back script (XACK + XDEL + ZADD).
 */
#include "peer.h"
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static const char mover_text[] = "local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 1000) "
				 "if #due == 0 then return 0 end "
				 "for _, body in ipairs(due) do redis.call('XADD', KEYS[1], '*', 'b', body) end "
				 "redis.call('ZREM', KEYS[2], unpack(due)) "
				 "return #due";

/* ARGV: due, then id, body, id, body, ... */
static const char put_back_text[] = "local ids, set = {}, {} "
				    "for i = 2, #ARGV, 2 do "
				    "ids[#ids + 1] = ARGV[i] set[#set + 1] = ARGV[1] set[#set + 1] = ARGV[i + 1] end "
				    "redis.call('ZADD', KEYS[2], unpack(set)) "
				    "redis.call('XACK', KEYS[1], 'g', unpack(ids)) "
				    "redis.call('XDEL', KEYS[1], unpack(ids)) "
				    "return #ids";

static char mover_sha[41], put_back_sha[41];

static redisContext *open_quiet(void)
{
	redisContext *c = redisConnect("127.0.0.1", peer_port);
	if (c && c->err) {
		redisFree(c);
		return NULL;
	}
	return c;
}

static redisContext *open_link(void)
{
	redisContext *c = open_quiet();
	if (!c)
		die("cannot connect");
	return c;
}

static redisReply *reply_of(redisContext *c)
{
	redisReply *r = NULL;
	if (redisGetReply(c, (void **)&r) != REDIS_OK)
		die("connection lost: %s", c->errstr);
	if (r->type == REDIS_REPLY_ERROR)
		die("server says %s", r->str);
	return r;
}

static void expect_ok(redisContext *c)
{
	freeReplyObject(reply_of(c));
}

static void load_script(redisContext *c, const char *text, char sha[41])
{
	redisAppendCommand(c, "SCRIPT LOAD %s", text);
	redisReply *r = reply_of(c);
	snprintf(sha, 41, "%s", r->str);
	freeReplyObject(r);
}

static void setup(bool retry)
{
	(void)retry;
	redisContext *c = open_link();
	redisAppendCommand(c, "XGROUP CREATE s g 0 MKSTREAM");
	expect_ok(c);
	load_script(c, mover_text, mover_sha);
	load_script(c, put_back_text, put_back_sha);
	redisFree(c);
}

static void publish(long n)
{
	redisContext *c = open_link();
	char body[BODY];
	const char *arg[] = {"XADD", "s", "*", "b", body};
	size_t len[] = {4, 1, 1, 1, BODY};

	for (long i = 0; i < n; i += BATCH) {
		redisAppendCommand(c, "MULTI");
		for (long j = i; j < i + BATCH; j++) {
			body_make(j, body);
			redisAppendCommandArgv(c, 5, arg, len);
		}
		redisAppendCommand(c, "EXEC");
		for (long j = 0; j < BATCH + 2; j++)
			expect_ok(c);
	}
	redisFree(c);
}

static double now_ms(void)
{
	struct timeval t;
	gettimeofday(&t, NULL);
	return t.tv_sec * 1e3 + t.tv_usec / 1e3;
}

struct batch {
	const char *arg[2 * WINDOW + 6];
	size_t len[2 * WINDOW + 6];
	int n;
};

static void add(struct batch *b, const char *s, size_t len)
{
	b->arg[b->n] = s;
	b->len[b->n++] = len;
}

static void begin_keys(struct batch *b, const char *verb, const char *k1, const char *k2)
{
	b->n = 0;
	add(b, verb, strlen(verb));
	add(b, k1, strlen(k1));
	if (k2)
		add(b, k2, strlen(k2));
}

/* Splits what XREADGROUP handed out into acks and put-backs, and sends both. */
static void settle(redisContext *c, redisReply *entries)
{
	static struct batch xack, xdel, back;
	static long seqs[WINDOW];
	char due[32];
	long acks = 0;

	begin_keys(&xack, "XACK", "s", "g");
	begin_keys(&xdel, "XDEL", "s", NULL);
	begin_keys(&back, "EVALSHA", put_back_sha, "2");
	add(&back, "s", 1), add(&back, "z", 1);
	add(&back, due, (size_t)snprintf(due, sizeof due, "%.0f", now_ms() + RETRY_MS));
	int back_head = back.n;

	for (size_t i = 0; i < entries->elements; i++) {
		redisReply *id = entries->element[i]->element[0];
		redisReply *body = entries->element[i]->element[1]->element[1];
		long seq = body_seq(body->str, body->len);
		if (ledger_deliver(seq)) {
			add(&back, id->str, id->len), add(&back, body->str, body->len);
			ledger_failed(seq);
		} else {
			add(&xack, id->str, id->len), add(&xdel, id->str, id->len);
			seqs[acks++] = seq;
		}
	}
	if (acks) {
		redisAppendCommandArgv(c, xack.n, xack.arg, xack.len);
		redisAppendCommandArgv(c, xdel.n, xdel.arg, xdel.len);
	}
	if (back.n > back_head)
		redisAppendCommandArgv(c, back.n, back.arg, back.len);
	if (acks)
		expect_ok(c), expect_ok(c);
	if (back.n > back_head)
		expect_ok(c);
	for (long i = 0; i < acks; i++)
		ledger_acked(seqs[i]);
}

static void consume(long n, bool retry)
{
	redisContext *c = open_link();
	while (ledger_done() < n) {
		if (retry) {
			char now[32];
			snprintf(now, sizeof now, "%.0f", now_ms());
			redisAppendCommand(c, "EVALSHA %s 2 s z %s", mover_sha, now);
		}
		redisAppendCommand(c, "XREADGROUP GROUP g c COUNT %d BLOCK %d STREAMS s >", WINDOW, retry ? 1 : 100);
		if (retry)
			expect_ok(c);
		redisReply *r = reply_of(c);
		if (r->type == REDIS_REPLY_ARRAY && r->elements)
			settle(c, r->element[0]->element[1]);
		freeReplyObject(r);
	}
	redisFree(c);
}

static void backlog(long n)
{
	redisContext *c = open_link();
	static struct batch b;
	static char bodies[BATCH][BODY], scores[BATCH][24];
	double base = now_ms();

	for (long i = 0; i < n; i += BATCH) {
		begin_keys(&b, "ZADD", "z", NULL);
		for (long j = 0; j < BATCH; j++) {
			body_make(i + j, bodies[j]);
			add(&b, scores[j],
			    (size_t)snprintf(scores[j], sizeof scores[j], "%.0f", base + backlog_delay_s(i + j) * 1e3));
			add(&b, bodies[j], BODY);
		}
		redisAppendCommandArgv(c, b.n, b.arg, b.len);
		expect_ok(c);
	}
	redisFree(c);
}

static long waiting(void)
{
	redisContext *c = open_quiet();
	long n = -1;
	if (!c)
		return -1;
	redisReply *r = redisCommand(c, "ZCARD z");
	if (r && r->type == REDIS_REPLY_INTEGER)
		n = (long)r->integer;
	if (r)
		freeReplyObject(r);
	redisFree(c);
	return n;
}

static long deliverable(void)
{
	redisContext *c = open_link();
	redisAppendCommand(c, "ZCOUNT z -inf %f", now_ms());
	redisReply *r = reply_of(c);
	long n = (long)r->integer;
	freeReplyObject(r);
	redisFree(c);
	return n;
}

const struct peer peer = {"redis", setup, publish, consume, backlog, waiting, deliverable};
