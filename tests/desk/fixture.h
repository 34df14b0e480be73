/* fixture.h - what the desk's tests share: a directory of their own, letters made of numbers, a desk that waits for
 * what was put. Header only, since each test is one program. */
#ifndef RDV_TESTS_DESK_FIXTURE_H
#define RDV_TESTS_DESK_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/random.h"
#include "base/text.h"
#include "desk/room.h"

#define FIXTURE_T0 1790000000000ll /* 2026-09-21, a moment in the tests */

static inline int fixture_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}
static inline void fixture_remove(const char *dir)
{
	nftw(dir, fixture_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
static inline void fixture_dir(char out[64])
{
	/* In memory where there is such a place: these tests sync a lot, and none of them cuts real power. */
	if (access("/dev/shm", W_OK) == 0)
		memcpy(out, "/dev/shm/redrive-desk-XXXXXX", 29);
	else
		memcpy(out, "/tmp/redrive-desk-XXXXXX", 25);
	assert_non_null(mkdtemp(out));
}

struct fixture_letter {
	const char *route, *topic, *key; /* NULL: orders, orders, null key */
	uint32_t partition;
	uint64_t offset;
	uint32_t generation;
	enum rdv_reason reason; /* NONE: exhausted */
	int64_t dead_at;        /* 0: T0 + offset */
	size_t body_size;
	bool tombstone, no_body;
};

static inline void fixture_envelope(const struct fixture_letter *l, struct rdv_envelope *e)
{
	memset(e, 0, sizeof *e);
	e->cluster = rdv_slice_text("test-cluster");
	e->route = rdv_slice_text(l->route ? l->route : "orders");
	e->topic = rdv_slice_text(l->topic ? l->topic : "orders");
	e->partition = l->partition;
	e->offset = l->offset;
	e->generation = l->generation;
	e->reason = l->reason ? l->reason : RDV_REASON_EXHAUSTED;
	e->null_key = !l->key;
	e->key = rdv_slice_text(l->key);
	e->tombstone = l->tombstone;
	e->dead_at.ms = l->dead_at ? l->dead_at : FIXTURE_T0 + (int64_t)l->offset;
	e->body_size = l->body_size;
	e->failure.text = rdv_slice_text("the payment service did not answer");
	e->failure.code = rdv_slice_text("504");
	e->causes.failures = 3;
	e->history_count = 1;
	e->history[0].n = 1;
	e->history[0].code = rdv_slice_text("504");
}

/* The body of a letter is made of its offset, so that a wrong one is seen. */
static inline void fixture_body(uint64_t offset, size_t size, uint8_t *out)
{
	uint64_t x = offset * 0x9e3779b97f4a7c15ull + 1;
	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		out[i] = (uint8_t)(i % 3 ? x : 'a');
	}
}

static inline void fixture_blocks(const struct fixture_letter *l, struct rdv_block **envelope, struct rdv_block **body)
{
	struct rdv_envelope e;
	struct rdv_buffer b;
	fixture_envelope(l, &e);
	rdv_buffer_init(&b, 0);
	rdv_envelope_encode(&e, &b);
	*envelope = rdv_block_copy(rdv_buffer_as_slice(&b));
	rdv_buffer_done(&b);
	*body = NULL;
	if (l->no_body)
		return;
	*body = rdv_block_new(l->body_size);
	fixture_body(l->offset, l->body_size, (*body)->data);
}

static inline void fixture_id(const struct fixture_letter *l, char out[27])
{
	struct rdv_envelope e;
	uint8_t id[16];
	fixture_envelope(l, &e);
	rdv_envelope_id(&e, id);
	rdv_base32_128(id, out);
}

/* What was said, and what was stored. */
struct fixture {
	char dir[64];
	struct rdv_desk *desk;
	struct rdv_desk_options options;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	uint64_t put, stored, failed;
	enum redrive_status last_failure;
	unsigned said[4];
	char last_said[4][700];
	int64_t now; /* ms; 0 = T0 */
};

static inline void fixture_say(void *ctx, int level, const char *text)
{
	struct fixture *f = ctx;
	pthread_mutex_lock(&f->mutex);
	f->said[level]++;
	snprintf(f->last_said[level], sizeof f->last_said[level], "%s", text);
	pthread_mutex_unlock(&f->mutex);
}
static inline struct rdv_wall fixture_now(void *ctx)
{
	struct fixture *f = ctx;
	pthread_mutex_lock(&f->mutex);
	struct rdv_wall now = {f->now ? f->now : FIXTURE_T0};
	pthread_mutex_unlock(&f->mutex);
	return now;
}
static inline void fixture_init(struct fixture *f)
{
	memset(f, 0, sizeof *f);
	fixture_dir(f->dir);
	pthread_mutex_init(&f->mutex, NULL);
	pthread_cond_init(&f->changed, NULL);
	f->options = (struct rdv_desk_options){
		.dir = f->dir, .say = fixture_say, .say_ctx = f, .now = fixture_now, .now_ctx = f, .hot_ms = 1000};
}
static inline void fixture_done(struct fixture *f)
{
	rdv_desk_free(f->desk);
	f->desk = NULL;
	fixture_remove(f->dir);
	pthread_mutex_destroy(&f->mutex);
	pthread_cond_destroy(&f->changed);
}
static inline enum redrive_status fixture_try_open(struct fixture *f, struct rdv_error *error)
{
	static const struct rdv_desk_runtime none;
	enum redrive_status status = rdv_desk_open(&f->options, &f->desk, error);
	if (status == REDRIVE_OK)
		status = rdv_desk_start(f->desk, &none, error);
	return status;
}
static inline void fixture_open(struct fixture *f)
{
	struct rdv_error error = {{0}};
	enum redrive_status status = fixture_try_open(f, &error);
	if (status != REDRIVE_OK)
		fail_msg("open: %s", error.text);
}
static inline void fixture_close(struct fixture *f)
{
	rdv_desk_stop(f->desk);
	rdv_desk_free(f->desk);
	f->desk = NULL;
}
static inline void fixture_reopen(struct fixture *f)
{
	fixture_close(f);
	fixture_open(f);
}

static inline void fixture_stored(void *ctx, uint64_t cookie, enum redrive_status status)
{
	struct fixture *f = ctx;
	pthread_mutex_lock(&f->mutex);
	if (status == REDRIVE_OK) {
		f->stored++;
	} else {
		f->failed++;
		f->last_failure = status;
	}
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->mutex);
}
static inline enum redrive_status fixture_put(struct fixture *f, const struct fixture_letter *l)
{
	struct rdv_block *envelope, *body;
	fixture_blocks(l, &envelope, &body);
	enum redrive_status status = rdv_desk_put(f->desk, envelope, body, fixture_stored, f, l->offset);
	pthread_mutex_lock(&f->mutex);
	f->put += status == REDRIVE_OK;
	pthread_mutex_unlock(&f->mutex);
	return status;
}
/* Until every letter that was put has its answer. */
static inline void fixture_settle(struct fixture *f)
{
	pthread_mutex_lock(&f->mutex);
	while (f->stored + f->failed < f->put)
		pthread_cond_wait(&f->changed, &f->mutex);
	pthread_mutex_unlock(&f->mutex);
}
static inline void fixture_store(struct fixture *f, const struct fixture_letter *l)
{
	uint64_t before = f->stored;
	assert_int_equal(fixture_put(f, l), REDRIVE_OK);
	fixture_settle(f);
	assert_int_equal(f->stored, before + 1);
}
/* Letters first..first+count-1, the rest as in `like`; waits where the queue is full. */
static inline void fixture_fill(struct fixture *f, const struct fixture_letter *like, uint64_t first, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct fixture_letter l = *like;
		l.offset = first + i;
		if (like->dead_at)
			l.dead_at = like->dead_at + (int64_t)i;
		while (fixture_put(f, &l) == REDRIVE_FULL)
			fixture_settle(f);
	}
	fixture_settle(f);
}

struct fixture_page {
	char ids[1000][27];
	int64_t dead_at[1000];
	uint64_t offsets[1000];
	enum rdv_letter_state states[1000];
	size_t count;
};
static inline void fixture_each(void *ctx, const struct rdv_letter *l)
{
	struct fixture_page *p = ctx;
	assert_true(p->count < 1000);
	memcpy(p->ids[p->count], l->id, 27);
	p->dead_at[p->count] = l->envelope.dead_at.ms;
	p->offsets[p->count] = l->envelope.offset;
	p->states[p->count] = l->state;
	p->count++;
}
static inline void fixture_parse(const char *text, struct rdv_query *q)
{
	size_t position;
	struct rdv_error error = {{0}};
	if (rdv_query_parse(rdv_slice_text(text), q, &position, &error) != REDRIVE_OK)
		fail_msg("query '%s': %zu: %s", text, position, error.text);
}
/* One page of a query; returns its size. */
static inline size_t fixture_list(struct fixture *f, const char *query, size_t limit, char cursor[RDV_CURSOR_TEXT],
				  struct fixture_page *page)
{
	struct rdv_query q;
	struct rdv_error error = {{0}};
	fixture_parse(query, &q);
	page->count = 0;
	enum redrive_status status = rdv_desk_list(f->desk, &q, false, limit, cursor, fixture_each, page, &error);
	rdv_query_done(&q);
	if (status != REDRIVE_OK)
		fail_msg("list '%s': %s", query, error.text);
	return page->count;
}
#endif
