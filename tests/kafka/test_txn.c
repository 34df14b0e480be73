/* test_txn.c - transactions against a real broker: whole or not at all, fenced, lost never and doubled never. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "world.h"

static const _Atomic bool never;

/* One record with this text to the journal, and an offset of the source. */
struct simple {
	struct rdv_kafka_put put;
	struct rdv_kafka_moved moved;
	struct rdv_kafka_step step;
	char text[32];
};

static struct rdv_kafka_step *simple_step(struct simple *s, struct world *w, struct member *m, const char *text,
					  int64_t offset)
{
	snprintf(s->text, sizeof s->text, "%s", text);
	s->put = (struct rdv_kafka_put){.topic = w->journal, .value = rdv_slice_text(s->text), .offset = -1};
	s->moved = (struct rdv_kafka_moved){w->source, 0, offset};
	s->step = (struct rdv_kafka_step){&s->put, 1, &s->moved, 1, m->snapshot, SIZE_MAX};
	return &s->step;
}

static struct rdv_kafka_txn *new_txn(struct world *w, const char *id)
{
	struct rdv_kafka_txn *t = rdv_kafka_txn_new(&w->config, id, &never);

	assert_non_null(t);
	return t;
}

static enum redrive_status run(struct rdv_kafka_txn *t, struct rdv_kafka_step *step)
{
	struct rdv_error error = {0};
	enum redrive_status status = rdv_kafka_txn_run(t, step, NULL, NULL, &error);

	if (status && !error.text[0] && status != REDRIVE_CLOSED)
		fail_msg("status %d without a text", (int)status);
	return status;
}

static void assert_visible(struct world *w, const char *wanted)
{
	struct rdv_buffer seen;

	rdv_buffer_init(&seen, 0);
	world_visible(w, w->journal, &seen);
	assert_string_equal(rdv_buffer_string(&seen), wanted);
	rdv_buffer_done(&seen);
}

static void open_joined(struct world *w, struct member *m)
{
	world_open(w, world_broker(), NULL, 0, 0);
	member_join(w, m);
	member_wait(m, 1);
	assert_int_equal(m->assigned, 1);
}

static void close_joined(struct world *w, struct member *m, struct rdv_kafka_txn *t)
{
	rdv_kafka_txn_free(t);
	member_leave(m);
	world_close(w);
}

/* ---- whole or not at all ---- */

/* pitfall: republishing and committing the offset are two steps */
static void records_and_offsets_are_visible_together(void **state)
{
	struct world w;
	struct member m;

	(void)state;
	open_joined(&w, &m);
	struct rdv_kafka_txn *t = new_txn(&w, w.group);
	rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
	struct rdv_kafka_put puts[] = {
		{.topic = w.journal, .key = rdv_slice("", 0), .value = rdv_slice_text("one"), .headers = headers},
		{.topic = w.journal, .value = rdv_slice_text("two")},
		{.topic = w.source, .value = rdv_slice(NULL, 0)},
	};
	struct rdv_kafka_moved moved = {w.source, 0, 17};
	struct rdv_kafka_step step = {puts, 3, &moved, 1, m.snapshot, 0};

	rd_kafka_header_add(headers, "h", -1, "v", 1);
	assert_int_equal(rdv_kafka_txn_warm(t, NULL), REDRIVE_OK);
	assert_int_equal(run(t, &step), REDRIVE_OK);
	rd_kafka_headers_destroy(headers); /* still ours */
	assert_int_equal(puts[0].offset, 0);
	assert_int_equal(puts[1].offset, 1);
	assert_visible(&w, "one\ntwo\n");
	assert_int_equal(world_committed(&w), 17);
	step.put_count = 0; /* offsets alone */
	moved.offset = 18;
	assert_int_equal(run(t, &step), REDRIVE_OK);
	assert_int_equal(world_committed(&w), 18);
	close_joined(&w, &m, t);
}

static void a_step_that_is_not_fenced_is_a_defect(void **state)
{
	struct world w;
	struct member m;
	struct simple s;

	(void)state;
	open_joined(&w, &m);
	struct rdv_kafka_txn *t = new_txn(&w, w.group);
	rd_kafka_consumer_group_metadata_t *outside = rd_kafka_consumer_group_metadata_new(w.group);

	simple_step(&s, &w, &m, "x", 1)->moved_count = 0;
	assert_int_equal(run(t, &s.step), REDRIVE_INTERNAL);
	simple_step(&s, &w, &m, "x", RD_KAFKA_OFFSET_INVALID);
	assert_int_equal(run(t, &s.step), REDRIVE_INTERNAL);
	simple_step(&s, &w, &m, "x", 1)->group = NULL;
	assert_int_equal(run(t, &s.step), REDRIVE_INTERNAL);
	simple_step(&s, &w, &m, "x", 1)->group = outside;
	assert_int_equal(run(t, &s.step), REDRIVE_INTERNAL);
	rd_kafka_consumer_group_metadata_destroy(outside);
	assert_visible(&w, "");
	close_joined(&w, &m, t);
}

static void a_record_too_large_is_named_and_nothing_is_visible(void **state)
{
	struct world w;
	struct member m;
	struct rdv_error error = {0};
	char big[3000];

	(void)state;
	world_open(&w, world_broker(), NULL, 0, 2000);
	member_join(&w, &m);
	member_wait(&m, 1);
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)('a' + i % 26);
	struct rdv_kafka_txn *t = new_txn(&w, w.group);
	struct rdv_kafka_put puts[] = {
		{.topic = w.source, .value = rdv_slice(big, sizeof big)},
		{.topic = w.journal, .value = rdv_slice_text("small")},
		{.topic = w.journal, .value = rdv_slice(big, sizeof big)},
		{.topic = w.journal, .value = rdv_slice_text("small too")},
	};
	struct rdv_kafka_moved moved = {w.source, 0, 1};
	struct rdv_kafka_step step = {puts, 4, &moved, 1, m.snapshot, 0};

	assert_int_equal(rdv_kafka_txn_run(t, &step, NULL, NULL, &error), REDRIVE_TOO_LARGE);
	assert_int_equal(step.too_large, 2);
	assert_non_null(strstr(error.text, w.journal));
	assert_non_null(strstr(error.text, "3000 bytes"));
	puts[2].value = rdv_slice_text("cut");
	assert_int_equal(run(t, &step), REDRIVE_OK);
	assert_visible(&w, "small\ncut\nsmall too\n");
	close_joined(&w, &m, t);
}

static void records_that_are_too_large_only_together_pass_one_by_one(void **state)
{
	enum { COUNT = 40 };
	struct rdv_kafka_put puts[COUNT];
	struct world w;
	struct member m;
	char text[101];

	(void)state;
	world_open(&w, world_broker(), NULL, 0, 1000);
	member_join(&w, &m);
	member_wait(&m, 1);
	memset(text, 'x', 100);
	struct rdv_kafka_txn *t = new_txn(&w, w.group);
	struct rdv_kafka_moved moved = {w.source, 0, 1};
	struct rdv_kafka_step step = {puts, COUNT, &moved, 1, m.snapshot, 0};

	for (size_t i = 0; i < COUNT; i++)
		puts[i] = (struct rdv_kafka_put){.topic = w.journal, .value = rdv_slice(text, 100)};
	assert_int_equal(run(t, &step), REDRIVE_OK);
	for (size_t i = 1; i < COUNT; i++)
		assert_true(puts[i].offset > puts[i - 1].offset);
	close_joined(&w, &m, t);
}

/* ---- fenced ---- */

static void a_stale_generation_is_refused_and_the_next_one_is_not(void **state)
{
	struct world w;
	struct member m, other;
	struct simple s;

	(void)state;
	open_joined(&w, &m);
	struct rdv_kafka_txn *t = new_txn(&w, w.group);
	rd_kafka_consumer_group_metadata_t *stale = m.snapshot;

	assert_int_equal(run(t, simple_step(&s, &w, &m, "first", 1)), REDRIVE_OK);
	m.snapshot = NULL; /* kept */
	member_join(&w, &other);
	while (m.rebalances < 2 || other.rebalances < 1) {
		member_serve(&m, 20);
		member_serve(&other, 20);
	}
	simple_step(&s, &w, &m, "stale", 2)->group = stale;
	assert_int_equal(run(t, &s.step), REDRIVE_CONFLICT);
	rd_kafka_consumer_group_metadata_destroy(stale);
	assert_visible(&w, "first\n");
	assert_int_equal(world_committed(&w), 1);
	member_wait(&m, 2);
	assert_int_equal(run(t, simple_step(&s, &w, &m, "fresh", 2)), REDRIVE_OK);
	assert_visible(&w, "first\nfresh\n");
	assert_int_equal(world_committed(&w), 2);
	member_leave(&other);
	close_joined(&w, &m, t);
}

static void a_member_that_left_is_refused(void **state)
{
	struct world w;
	struct member m;
	struct simple s;

	(void)state;
	open_joined(&w, &m);
	struct rdv_kafka_txn *t = new_txn(&w, w.group);
	rd_kafka_consumer_group_metadata_t *stale = m.snapshot;

	m.snapshot = NULL;
	member_leave(&m);
	simple_step(&s, &w, &m, "gone", 5)->group = stale;
	assert_int_equal(run(t, &s.step), REDRIVE_CONFLICT);
	assert_visible(&w, "");
	assert_int_equal(world_committed(&w), -1);
	rd_kafka_consumer_group_metadata_destroy(stale);
	rdv_kafka_txn_free(t);
	world_close(&w);
}

static void another_producer_with_the_id_is_told_and_not_fought(void **state)
{
	struct world w;
	struct member m;
	struct simple s;

	(void)state;
	open_joined(&w, &m);
	struct rdv_kafka_txn *first = new_txn(&w, w.group), *second = new_txn(&w, w.group);

	assert_int_equal(run(first, simple_step(&s, &w, &m, "a", 1)), REDRIVE_OK);
	assert_int_equal(run(second, simple_step(&s, &w, &m, "b", 2)), REDRIVE_OK);
	assert_int_equal(run(first, simple_step(&s, &w, &m, "c", 3)), REDRIVE_BUSY);
	assert_visible(&w, "a\nb\n");
	assert_int_equal(run(second, simple_step(&s, &w, &m, "d", 4)), REDRIVE_OK); /* was not fenced in turn */
	assert_int_equal(run(first, &s.step), REDRIVE_OK);                          /* on demand only */
	assert_visible(&w, "a\nb\nd\nd\n");
	rdv_kafka_txn_free(second);
	close_joined(&w, &m, first);
}

/* A static member and its successor: one name, one transactional id. */
static void a_replaced_static_member_asks_its_consumer_before_it_writes_again(void **state)
{
	struct world w;
	struct member old, new;
	struct simple s, t;

	(void)state;
	world_open(&w, world_broker(), NULL, 0, 0);
	w.config.instance = strdup("host-1");
	member_join(&w, &old);
	member_wait(&old, 1);
	struct rdv_kafka_txn *before = new_txn(&w, "host-1"), *after = new_txn(&w, "host-1");

	assert_int_equal(run(before, simple_step(&s, &w, &old, "old", 1)), REDRIVE_OK);
	member_join(&w, &new);
	member_wait(&new, 1);
	assert_int_equal(run(after, simple_step(&t, &w, &new, "new", 2)), REDRIVE_OK);
	assert_int_equal(run(before, simple_step(&s, &w, &old, "late", 3)), REDRIVE_BUSY);
	for (int64_t until = rdv_mono_now().ms + WORLD_LIMIT_MS;
	     rd_kafka_fatal_error(old.handle, NULL, 0) != RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;) {
		assert_true(rdv_mono_now().ms < until);
		rd_kafka_event_destroy(rd_kafka_queue_poll(old.queue, 20));
	}
	assert_int_equal(run(before, &s.step), REDRIVE_CONFLICT); /* if it did not ask */
	assert_int_equal(run(after, simple_step(&t, &w, &new, "newer", 4)), REDRIVE_BUSY);
	assert_int_equal(run(after, &t.step), REDRIVE_OK);
	assert_visible(&w, "old\nnew\nnewer\n");
	rdv_kafka_txn_free(before);
	member_leave(&old);
	close_joined(&w, &new, after);
}

/* What the hung process does: one number after the other, until it is refused. Its exit code is the answer. */
static int write_until_refused(const char *source, const char *journal, const char *group)
{
	static const struct rdv_kafka_setting fast[] = {{"session.timeout.ms", "2000"},
							{"heartbeat.interval.ms", "300"}};
	enum redrive_status status = REDRIVE_OK;
	struct rdv_kafka_txn *t;
	struct world w;
	struct member m;
	struct simple s;

	world_open_alone(&w, world_broker(), fast, 2);
	snprintf(w.source, sizeof w.source, "%s", source);
	snprintf(w.journal, sizeof w.journal, "%s", journal);
	free(w.config.group);
	w.config.group = strdup(group);
	member_join(&w, &m);
	member_wait(&m, 1);
	t = new_txn(&w, "hung");
	for (int i = 1; !status; i++) {
		char text[16];

		snprintf(text, sizeof text, "old %d", i);
		status = run(t, simple_step(&s, &w, &m, text, i));
		if (i == 20 && write(1, "w", 1) != 1)
			return 99;
	}
	/* a commit in flight when it slept: unknown; after that, the generation is refused */
	if (status == REDRIVE_FAILED)
		status = run(t, &s.step);
	return (int)status;
}

static void a_hung_process_that_wakes_after_it_was_replaced_is_refused(void **state)
{
	static const struct rdv_kafka_setting fast[] = {{"session.timeout.ms", "2000"},
							{"heartbeat.interval.ms", "300"}};
	struct rdv_buffer before, after;
	int out[2], status;
	struct world w;
	struct member m;
	struct simple s;
	char byte;

	(void)state;
	world_open(&w, world_broker(), fast, 2, 0);
	assert_int_equal(pipe(out), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		execl("/proc/self/exe", "test_txn", "hung", w.source, w.journal, w.group, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(read(out[0], &byte, 1), 1); /* it has written a while */
	kill(pid, SIGSTOP);
	member_join(&w, &m);
	member_wait(&m, 1);
	rdv_buffer_init(&before, 0);
	rdv_buffer_init(&after, 0);
	int64_t o = world_committed(&w); /* waits for its transaction */
	assert_true(o >= 19);
	struct rdv_kafka_txn *t = new_txn(&w, "successor");
	assert_int_equal(run(t, simple_step(&s, &w, &m, "open", o)), REDRIVE_OK);
	world_visible(&w, w.journal, &before);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), REDRIVE_CONFLICT);
	world_visible(&w, w.journal, &after); /* nothing of it stands behind the successor's */
	assert_string_equal(rdv_buffer_string(&after), rdv_buffer_string(&before));
	assert_int_equal(world_committed(&w), o);
	rdv_buffer_done(&before);
	rdv_buffer_done(&after);
	close(out[0]), close(out[1]);
	close_joined(&w, &m, t);
}

/* ---- brokers that fail ---- */

struct running { /* a run on a thread of its own */
	pthread_t thread;
	struct rdv_kafka_txn *t;
	struct rdv_kafka_step *step;
	enum redrive_status status;
	_Atomic bool stop;
	_Atomic unsigned troubles, overs;
	_Atomic bool done;
	char last[512]; /* trouble */
};

static void on_trouble(void *ctx, const char *why)
{
	struct running *r = ctx;

	if (why) {
		snprintf(r->last, sizeof r->last, "%s", why);
		atomic_fetch_add(&r->troubles, 1);
	} else {
		atomic_fetch_add(&r->overs, 1);
	}
}

static void *run_thread(void *arg)
{
	struct running *r = arg;

	r->status = rdv_kafka_txn_run(r->t, r->step, on_trouble, r, NULL);
	atomic_store(&r->done, true);
	return NULL;
}

static void start_running(struct running *r)
{
	assert_int_equal(pthread_create(&r->thread, NULL, run_thread, r), 0);
}

static void await_trouble(struct running *r, unsigned count)
{
	int64_t until = rdv_mono_now().ms + WORLD_LIMIT_MS;

	while (atomic_load(&r->troubles) < count) {
		assert_true(rdv_mono_now().ms < until);
		usleep(1000);
	}
}

static void a_missing_topic_is_said_and_waited_for(void **state)
{
	struct running r = {0};
	struct world w;
	struct member m;
	struct simple s;

	(void)state;
	open_joined(&w, &m);
	r.t = rdv_kafka_txn_new(&w.config, w.group, &r.stop);
	w.journal[0] = 'J'; /* which nobody made */
	r.step = simple_step(&s, &w, &m, "at last", 1);
	start_running(&r);
	await_trouble(&r, 2);
	assert_false(atomic_load(&r.done));
	world_create_topic(&w, w.journal, 0);
	pthread_join(r.thread, NULL);
	assert_int_equal(r.status, REDRIVE_OK);
	assert_int_equal(atomic_load(&r.overs), 1);
	assert_visible(&w, "at last\n");
	close_joined(&w, &m, r.t);
}

static void a_stop_ends_a_wait_for_a_broker_that_hangs(void **state)
{
	struct running r = {0};
	struct broker b;
	struct world w;
	struct member m;
	struct simple s;
	int64_t at;

	(void)state;
	if (!world_broker())
		skip();
	broker_start(&b);
	world_open(&w, b.address, NULL, 0, 0);
	member_join(&w, &m);
	member_wait(&m, 1);
	r.t = rdv_kafka_txn_new(&w.config, w.group, &r.stop);
	assert_int_equal(run(r.t, simple_step(&s, &w, &m, "before", 1)), REDRIVE_OK);
	broker_do(&b, "pause");
	r.step = simple_step(&s, &w, &m, "hangs", 2);
	start_running(&r);
	await_trouble(&r, 1);
	at = rdv_mono_now().ms;
	atomic_store(&r.stop, true);
	pthread_join(r.thread, NULL);
	assert_in_range(rdv_mono_now().ms - at, 0, 3000);
	assert_int_equal(r.status, REDRIVE_CLOSED);
	broker_do(&b, "resume");
	rdv_kafka_txn_free(r.t);
	r.t = new_txn(&w, w.group); /* ends what was left open */
	assert_int_equal(rdv_kafka_txn_warm(r.t, NULL), REDRIVE_OK);
	assert_visible(&w, "before\n");
	close_joined(&w, &m, r.t);
	broker_end(&b);
}

/* The broker is killed, paused or stopped in the middle of a stream of steps, and comes back; as often as
 * REDRIVE_BLOWS says. */
struct hurting {
	pthread_t thread;
	struct broker broker;
	_Atomic int steps; /* done so far: each blow falls into a stream of them */
};

static void *hurt(void *arg)
{
	static const char *const blows[][2] = {{"kill", "start"}, {"pause", "resume"}, {"stop", "start"}};
	const char *wanted = getenv("REDRIVE_BLOWS");
	int count = wanted ? atoi(wanted) : 2;
	struct hurting *h = arg;

	for (int i = 0; i < count; i++) {
		/* at any time, for any time */
		const struct timespec before = {.tv_nsec = random() % 30000000},
				      during = {.tv_sec = i % 4, .tv_nsec = random() % 1000000000};
		int steps = atomic_load(&h->steps) + 20;

		while (atomic_load(&h->steps) < steps)
			usleep(1000);
		nanosleep(&before, NULL);
		broker_do(&h->broker, blows[i % 3][0]);
		nanosleep(&during, NULL);
		broker_do(&h->broker, blows[i % 3][1]);
	}
	return NULL;
}

static bool is_visible(struct world *w, const char *text)
{
	struct rdv_buffer seen;
	char line[40];
	bool found;

	snprintf(line, sizeof line, "%s\n", text);
	rdv_buffer_init(&seen, 0);
	world_visible(w, w->journal, &seen);
	found = seen.size >= strlen(line) && strcmp(rdv_buffer_string(&seen) + seen.size - strlen(line), line) == 0;
	rdv_buffer_done(&seen);
	return found;
}

/* pitfall: aborted records that are sent again are taken for duplicates */
static void a_broker_that_dies_in_the_middle_loses_nothing_and_doubles_nothing(void **state)
{
	struct rdv_buffer wanted;
	struct running r = {0};
	struct hurting h = {0};
	struct world w;
	struct member m;
	struct simple s;
	int i = 0, unknown = 0, refused = 0;

	(void)state;
	if (!world_broker())
		skip();
	broker_start(&h.broker);
	world_open(&w, h.broker.address, NULL, 0, 0);
	member_join(&w, &m);
	member_wait(&m, 1);
	r.t = new_txn(&w, w.group);
	rdv_buffer_init(&wanted, 0);
	srandom((unsigned)rdv_wall_now().ms);
	assert_int_equal(pthread_create(&h.thread, NULL, hurt, &h), 0);
	for (bool over = false; !over || i < 100; atomic_store(&h.steps, ++i)) {
		char text[16];

		snprintf(text, sizeof text, "%d", i);
		rdv_buffer_printf(&wanted, "%d\n", i);
		do { /* as a source does: what is unknown is looked up, what is refused waits for the next generation */
			member_wait(&m, 1);
			r.status = rdv_kafka_txn_run(r.t, simple_step(&s, &w, &m, text, i + 1), on_trouble, &r, NULL);
			unknown += r.status == REDRIVE_FAILED;
			refused += r.status == REDRIVE_CONFLICT;
			if (r.status == REDRIVE_FAILED && is_visible(&w, text))
				r.status = REDRIVE_OK;
			member_serve(&m, r.status == REDRIVE_CONFLICT ? 100 : 0);
		} while (r.status);
		over = over || pthread_tryjoin_np(h.thread, NULL) == 0;
	}
	print_message("%d steps, %u troubles, %d unknown, %d refused\n", i, r.troubles, unknown, refused);
	assert_visible(&w, rdv_buffer_string(&wanted));
	assert_int_equal(world_committed(&w), i);
	assert_true(r.troubles > 0);
	rdv_buffer_done(&wanted);
	close_joined(&w, &m, r.t);
	broker_end(&h.broker);
}

static void a_password_is_in_no_text(void **state)
{
	static const struct rdv_kafka_setting secret[] = {{"security.protocol", "sasl_plaintext"},
							  {"sasl.mechanism", "PLAIN"},
							  {"sasl.username", "ann"},
							  {"sasl.password", "hunter22"},
							  {"debug", "security,broker,conf,protocol"}};
	struct running r = {0};
	struct world w, locked;
	struct member m;
	struct simple s;

	(void)state;
	open_joined(&w, &m);
	world_open_alone(&locked, world_broker(), secret, sizeof secret / sizeof secret[0]);
	r.t = rdv_kafka_txn_new(&locked.config, w.group, &r.stop);
	r.step = simple_step(&s, &w, &m, "x", 1);
	start_running(&r); /* this broker takes no credentials */
	await_trouble(&r, 2);
	atomic_store(&r.stop, true);
	pthread_join(r.thread, NULL);
	assert_int_equal(r.status, REDRIVE_CLOSED);
	assert_true(world_was_said(&locked, "sasl.password"));
	assert_false(world_was_said(&locked, "hunter22"));
	assert_null(strstr(r.last, "hunter22"));
	rdv_kafka_txn_free(r.t);
	world_close(&locked);
	close_joined(&w, &m, NULL);
}

/* ---- without a broker ---- */

struct warming {
	pthread_t thread;
	struct rdv_kafka_txn *t;
	enum redrive_status status;
};

static void *warm_thread(void *arg)
{
	struct warming *warming = arg;

	warming->status = rdv_kafka_txn_warm(warming->t, NULL);
	return NULL;
}

static void a_stop_ends_a_wait_for_a_broker_that_is_not_there(void **state)
{
	_Atomic bool stop = false;
	struct world w;
	int64_t at;

	(void)state;
	world_open_alone(&w, "127.0.0.1:1", NULL, 0);
	struct rdv_kafka_txn *t = rdv_kafka_txn_new(&w.config, "id", &stop);
	struct warming warming = {.t = t};

	assert_int_equal(pthread_create(&warming.thread, NULL, warm_thread, &warming), 0);
	while (!world_was_said(&w, "127.0.0.1:1"))
		usleep(1000);
	at = rdv_mono_now().ms;
	stop = true;
	pthread_join(warming.thread, NULL);
	assert_int_equal(warming.status, REDRIVE_CLOSED);
	assert_in_range(rdv_mono_now().ms - at, 0, 3000);
	assert_int_equal(rdv_kafka_txn_warm(t, NULL), REDRIVE_CLOSED);
	rdv_kafka_txn_free(t);
	rdv_kafka_txn_free(NULL);
	world_close(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(a_stop_ends_a_wait_for_a_broker_that_is_not_there),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_and_offsets_are_visible_together),
		cmocka_unit_test(a_step_that_is_not_fenced_is_a_defect),
		cmocka_unit_test(a_record_too_large_is_named_and_nothing_is_visible),
		cmocka_unit_test(records_that_are_too_large_only_together_pass_one_by_one),
		cmocka_unit_test(a_stale_generation_is_refused_and_the_next_one_is_not),
		cmocka_unit_test(a_member_that_left_is_refused),
		cmocka_unit_test(another_producer_with_the_id_is_told_and_not_fought),
		cmocka_unit_test(a_replaced_static_member_asks_its_consumer_before_it_writes_again),
		cmocka_unit_test(a_hung_process_that_wakes_after_it_was_replaced_is_refused),
		cmocka_unit_test(a_missing_topic_is_said_and_waited_for),
		cmocka_unit_test(a_password_is_in_no_text),
		cmocka_unit_test(a_stop_ends_a_wait_for_a_broker_that_hangs),
		cmocka_unit_test(a_broker_that_dies_in_the_middle_loses_nothing_and_doubles_nothing),
	};

	if (argc == 5 && strcmp(argv[1], "hung") == 0)
		_exit(write_until_refused(argv[2], argv[3], argv[4])); /* as it is: nothing of it is looked at */
	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	if (cmocka_run_group_tests(alone, NULL, NULL))
		return 1;
	return world_broker() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
