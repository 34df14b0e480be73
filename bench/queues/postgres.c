/* postgres.c - the queue table a user would write himself, on PostgreSQL.
 *
 *   q(id bigserial primary key, due timestamptz, attempt int, body bytea)
 *   index on (due, id)
 *
 * publish: COPY BINARY of 1000 rows, one transaction each. consume: one transaction
 * per batch: SELECT ... WHERE due <= now() ORDER BY due, id LIMIT 1000 FOR UPDATE
 * SKIP LOCKED, then DELETE (ack) and UPDATE due, attempt (retry) by id array, COMMIT.
 * Ack alone is one DELETE ... RETURNING over the same subselect.
 */
#include "peer.h"
#include <arpa/inet.h>
#include <endian.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *open_quiet(void)
{
	char info[128];
	snprintf(info, sizeof info, "host=127.0.0.1 port=%d user=peer dbname=postgres sslmode=disable", peer_port);
	PGconn *c = PQconnectdb(info);
	if (PQstatus(c) == CONNECTION_OK)
		return c;
	PQfinish(c);
	return NULL;
}

static PGconn *open_link(void)
{
	PGconn *c = open_quiet();
	if (!c)
		die("cannot connect");
	return c;
}

static PGresult *check(PGconn *c, PGresult *r)
{
	ExecStatusType s = PQresultStatus(r);
	if (s != PGRES_COMMAND_OK && s != PGRES_TUPLES_OK && s != PGRES_COPY_IN)
		die("%s", PQerrorMessage(c));
	return r;
}

static void run(PGconn *c, const char *sql)
{
	PQclear(check(c, PQexec(c, sql)));
}

static void setup(bool retry)
{
	(void)retry;
	PGconn *c = open_link();
	run(c, "SET client_min_messages = warning");
	run(c, "CREATE TABLE q(id bigserial PRIMARY KEY, due timestamptz NOT NULL,"
	       " attempt int NOT NULL DEFAULT 0, body bytea NOT NULL)");
	run(c, "CREATE INDEX q_due ON q(due, id)");
	PQfinish(c);
}

static char *put32(char *p, int32_t v)
{
	uint32_t b = htonl((uint32_t)v);
	memcpy(p, &b, 4);
	return p + 4;
}

static char *put64(char *p, int64_t v)
{
	uint64_t b = htobe64((uint64_t)v);
	memcpy(p, &b, 8);
	return p + 8;
}

static int64_t clock_us(PGconn *c)
{
	PGresult *r =
		check(c, PQexec(c, "SELECT ((extract(epoch FROM clock_timestamp()) - 946684800) * 1000000)::bigint"));
	int64_t us = atoll(PQgetvalue(r, 0, 0));
	PQclear(r);
	return us;
}

static void copy_all(long n, bool delayed)
{
	PGconn *c = open_link();
	char *buf = need(64 + BATCH * (BODY + 32));
	int64_t base = clock_us(c), t0 = (int64_t)(now_s() * 1e6);

	for (long i = 0; i < n; i += BATCH) {
		char *p = buf;
		memcpy(p, "PGCOPY\n\377\r\n\0", 11), p += 11;
		p = put32(put32(p, 0), 0);
		int64_t now = base + (int64_t)(now_s() * 1e6) - t0;
		for (long j = i; j < i + BATCH; j++) {
			*p++ = 0, *p++ = 2;
			p = put64(put32(p, 8), delayed ? base + backlog_delay_s(j) * 1000000 : now);
			p = put32(p, BODY);
			body_make(j, p);
			p += BODY;
		}
		*p++ = (char)255, *p++ = (char)255;
		run(c, "COPY q(due, body) FROM STDIN BINARY");
		if (PQputCopyData(c, buf, (int)(p - buf)) != 1 || PQputCopyEnd(c, NULL) != 1)
			die("%s", PQerrorMessage(c));
		for (PGresult *r; (r = PQgetResult(c));)
			PQclear(check(c, r));
	}
	free(buf);
	PQfinish(c);
}

static void publish(long n)
{
	copy_all(n, false);
}

static void backlog(long n)
{
	copy_all(n, true);
}

/* An array of bigint in the binary format. */
struct ids {
	char buf[20 + 12 * WINDOW];
	char *end;
	int n;
};

static void ids_add(struct ids *a, const char *be64)
{
	if (!a->n)
		a->end = a->buf + 20;
	a->end = put32(a->end, 8);
	memcpy(a->end, be64, 8);
	a->end += 8, a->n++;
}

static void run_ids(PGconn *c, const char *sql, struct ids *a)
{
	if (!a->n)
		return;
	put32(put32(put32(put32(put32(a->buf, 1), 0), 20), a->n), 1);
	const char *value = a->buf;
	int len = (int)(a->end - a->buf), binary = 1;
	PQclear(check(c, PQexecParams(c, sql, 1, NULL, &value, &len, &binary, 1)));
}

#define DUE "SELECT id FROM q WHERE due <= now() ORDER BY due, id LIMIT 1000 FOR UPDATE SKIP LOCKED"

/* Not prepared: a plan made while the table is empty may be a bad one later on (prepared,
 * the retry work did not finish). Planning anew once per 1000 messages costs little. */
static const char take_sql[] = "DELETE FROM q WHERE id = ANY(ARRAY(" DUE ")) RETURNING id, body";
static const char lock_sql[] = "SELECT id, body FROM q WHERE due <= now()"
			       " ORDER BY due, id LIMIT 1000 FOR UPDATE SKIP LOCKED";
static const char ack_sql[] = "DELETE FROM q WHERE id = ANY($1::bigint[])";
static const char back_sql[] = "UPDATE q SET due = clock_timestamp() + interval '1 second',"
			       " attempt = attempt + 1 WHERE id = ANY($1::bigint[])";

static void consume(long n, bool retry)
{
	PGconn *c = open_link();
	static struct ids ack, back;
	static long seqs[WINDOW];

	while (ledger_done() < n) {
		long acks = 0;
		run(c, "BEGIN");
		PGresult *r = check(c, PQexecParams(c, retry ? lock_sql : take_sql, 0, NULL, NULL, NULL, NULL, 1));
		ack.n = back.n = 0;
		for (int i = 0; i < PQntuples(r); i++) {
			long seq = body_seq(PQgetvalue(r, i, 1), (size_t)PQgetlength(r, i, 1));
			if (ledger_deliver(seq)) {
				ids_add(&back, PQgetvalue(r, i, 0));
				ledger_failed(seq);
			} else {
				ids_add(&ack, PQgetvalue(r, i, 0));
				seqs[acks++] = seq;
			}
		}
		if (retry) {
			run_ids(c, ack_sql, &ack);
			run_ids(c, back_sql, &back);
		}
		run(c, "COMMIT");
		if (!PQntuples(r))
			pause_ms(2);
		PQclear(r);
		for (long i = 0; i < acks; i++)
			ledger_acked(seqs[i]);
	}
	PQfinish(c);
}

static long ask(PGconn *c, const char *sql)
{
	PGresult *r = PQexec(c, sql);
	long n = PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) ? atol(PQgetvalue(r, 0, 0)) : -1;
	PQclear(r);
	return n;
}

/* The count of a million rows (about 0.1 s) is part of the restart time. */
static long waiting(void)
{
	PGconn *c = open_quiet();
	if (!c)
		return -1;
	long n = ask(c, "SELECT count(*) FROM q WHERE due > now()");
	PQfinish(c);
	return n;
}

static long deliverable(void)
{
	PGconn *c = open_link();
	long n = ask(c, "SELECT count(*) FROM (" DUE ") x");
	PQfinish(c);
	return n;
}

const struct peer peer = {"postgres", setup, publish, consume, backlog, waiting, deliverable};
