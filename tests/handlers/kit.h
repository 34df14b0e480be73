/* kit.h - what the handlers' tests share: calls with a message in them, and a sink that collects what comes back.
 * Nothing here waits by sleeping: kit_wait returns when the wanted number of calls has come back, or fails
 * after 30 s.
 */
#ifndef RDV_TESTS_HANDLERS_KIT_H
#define RDV_TESTS_HANDLERS_KIT_H
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "handlers/handler.h"

#define KIT_PATIENCE_S 30

struct kit_sink {
	pthread_mutex_t mutex;
	pthread_cond_t more;
	struct rdv_call *first, **end;
	size_t count;
};

static inline void kit_complete(void *ctx, struct rdv_call *list)
{
	struct kit_sink *s = ctx;

	pthread_mutex_lock(&s->mutex);
	*s->end = list;
	for (; list; list = list->next) {
		s->count++;
		s->end = &list->next;
	}
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->mutex);
}

static inline struct rdv_sink kit_sink(struct kit_sink *s)
{
	*s = (struct kit_sink){.mutex = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
	s->end = &s->first;
	return (struct rdv_sink){kit_complete, s};
}

/* Takes `count` calls when they have come back; more that are there stay. */
static inline struct rdv_call *kit_wait(struct kit_sink *s, size_t count)
{
	struct rdv_call *list, *last;
	struct timespec until;
	int failed = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += KIT_PATIENCE_S;
	pthread_mutex_lock(&s->mutex);
	while (s->count < count && failed != ETIMEDOUT)
		failed = pthread_cond_timedwait(&s->more, &s->mutex, &until);
	if (s->count < count)
		fail_msg("%zu of %zu calls came back", s->count, count);
	list = last = s->first;
	for (size_t i = 1; i < count; i++)
		last = last->next;
	s->first = last->next;
	s->end = s->first ? s->end : &s->first;
	s->count -= count;
	last->next = NULL;
	pthread_mutex_unlock(&s->mutex);
	return list;
}

static inline size_t kit_count(struct kit_sink *s)
{
	size_t count;

	pthread_mutex_lock(&s->mutex);
	count = s->count;
	pthread_mutex_unlock(&s->mutex);
	return count;
}

/* A call for a message; `m` NULL is a null key and the body "hello". */
static inline struct rdv_call *kit_call(uint64_t id, const struct rdv_body *m)
{
	static const struct rdv_body plain = {.flags = RDV_BODY_NULL_KEY, .body = {(const uint8_t *)"hello", 5}};
	struct rdv_call *c = malloc(sizeof *c);

	m = m ? m : &plain;
	assert_non_null(c);
	rdv_call_init(c);
	c->id = id;
	c->owner = c;
	c->route = "orders";
	c->topic = "order.create";
	c->partition = 2;
	c->lane = 77;
	c->offset = id;
	c->attempt = 1;
	c->epoch = 7;
	c->hold = rdv_block_new(rdv_body_size(m));
	rdv_body_encode(m, c->hold->data);
	c->payload = rdv_block_slice(c->hold);
	return c;
}

static inline void kit_free(struct rdv_call *list)
{
	while (list) {
		struct rdv_call *next = list->next;

		rdv_call_reset(list);
		free(list);
		list = next;
	}
}

static inline struct rdv_call *kit_send(struct rdv_handler *h, struct kit_sink *s, struct rdv_call *c)
{
	h->ops->submit(h, c);
	return kit_wait(s, 1);
}

static inline bool kit_text_is(struct rdv_slice s, const char *text)
{
	if (rdv_slice_is(s, text))
		return true;
	print_message("is \"%.*s\", wanted \"%s\"\n", (int)s.size, s.data ? (const char *)s.data : "", text);
	return false;
}

/* Descriptors this process has open. */
static inline int kit_open_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}
#endif
