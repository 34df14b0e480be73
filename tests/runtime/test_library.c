/* test_library.c - the C API from end to end: publish, deliver, acknowledge, open again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <redrive.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct seen { /* what a handler saw */
	pthread_mutex_t mutex;
	pthread_cond_t change;
	unsigned calls, acks;
	char bodies[1024];
	unsigned fail_first; /* calls that are answered RETRY */
	enum redrive_verdict bad;
};

static void seen_init(struct seen *s)
{
	memset(s, 0, sizeof *s);
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->change, NULL);
	s->bad = REDRIVE_RETRY;
}

static enum redrive_verdict on_message(void *ctx, struct redrive_delivery *d)
{
	struct seen *s = ctx;
	struct redrive_bytes body = redrive_body(d);
	enum redrive_verdict verdict = REDRIVE_ACK;

	pthread_mutex_lock(&s->mutex);
	s->calls++;
	if (s->fail_first) {
		s->fail_first--;
		redrive_set_error(d, "Flaky", "42", "not this time", NULL);
		verdict = s->bad;
	} else {
		s->acks++;
		if (body.data && strlen(s->bodies) + body.size + 2 < sizeof s->bodies) {
			strncat(s->bodies, body.data, body.size);
			strcat(s->bodies, ";");
		}
	}
	pthread_cond_broadcast(&s->change);
	pthread_mutex_unlock(&s->mutex);
	return verdict;
}

static void wait_acks(struct seen *s, unsigned acks)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&s->mutex);
	while (s->acks < acks)
		if (pthread_cond_timedwait(&s->change, &s->mutex, &until))
			fail_msg("%u of %u acknowledged in 20 s", s->acks, acks);
	pthread_mutex_unlock(&s->mutex);
}

static char *new_dir(void)
{
	char *dir = strdup("/tmp/redrive-test-XXXXXX");

	assert_non_null(mkdtemp(dir));
	return dir;
}

static void remove_dir(char *dir)
{
	char command[256];

	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
	free(dir);
}

static struct redrive *open_with(const char *dir, struct seen *s, const char *const settings[])
{
	struct redrive_error why = {""};
	struct redrive *r = NULL;

	if (redrive_open(dir, NULL, &r, &why) ||
	    redrive_add_callback(r, "orders", "order.create", settings, on_message, s, &why) || redrive_start(r, &why))
		fail_msg("%s", why.text);
	return r;
}

static void publish_text(struct redrive *r, const char *text, struct redrive_position *at)
{
	struct redrive_message m = {.body = text, .body_size = strlen(text)};
	struct redrive_error why = {""};

	if (redrive_publish(r, "order.create", &m, 1, at, &why))
		fail_msg("%s", why.text);
}

static const char *const plain[] = {"partitions=1", NULL};
static const char *const quick[] = {"partitions=1", "retry.base=20ms", "retry.jitter=none", "retry.min=0ms", NULL};

static struct redrive_counts counts_of(struct redrive *r)
{
	struct redrive_counts c;

	assert_int_equal(redrive_route_counts(r, "orders", &c), REDRIVE_OK);
	assert_int_equal(c.received,
			 c.acked + c.ready + c.waiting + c.held + c.in_flight + c.dead + c.dropped + c.revoked);
	return c;
}

static void published_is_delivered_once_and_gone_after_reopening(void **state)
{
	char *dir = new_dir();
	struct seen s;
	struct redrive_position at;
	struct redrive *r;
	struct redrive_counts c;

	(void)state;
	seen_init(&s);
	r = open_with(dir, &s, plain);
	publish_text(r, "one", &at);
	assert_int_equal(at.offset, 0);
	publish_text(r, "two", &at);
	assert_int_equal(at.offset, 1);
	wait_acks(&s, 2);
	redrive_stop(r);
	redrive_free(r);
	assert_string_equal(s.bodies, "one;two;");
	r = open_with(dir, &s, plain);
	c = counts_of(r);
	assert_int_equal(c.received, 2);
	assert_int_equal(c.acked, 2);
	publish_text(r, "three", &at);
	assert_int_equal(at.offset, 2);
	wait_acks(&s, 3);
	assert_int_equal(s.calls, 3);
	redrive_free(r);
	remove_dir(dir);
}

static void a_failure_is_tried_again_and_counted(void **state)
{
	char *dir = new_dir();
	struct seen s;
	struct redrive *r;
	struct redrive_counts c;

	(void)state;
	seen_init(&s);
	s.fail_first = 2;
	r = open_with(dir, &s, quick);
	publish_text(r, "again", NULL);
	wait_acks(&s, 1);
	do
		c = counts_of(r);
	while (c.acked < 1);
	assert_int_equal(s.calls, 3);
	assert_int_equal(c.failed, 2);
	assert_int_equal(c.first, 1);
	assert_int_equal(c.retries, 2);
	redrive_free(r);
	remove_dir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_is_delivered_once_and_gone_after_reopening),
		cmocka_unit_test(a_failure_is_tried_again_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
