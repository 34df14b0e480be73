/* test_replay.c - running plans: rate, pause, cancel, crashes, skips; the result adds up at every moment. */
#include "fake_runtime.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "desk/replay_plan.h"

static const struct fixture_letter small = {.body_size = 40, .key = "k"};

static void begin(struct fixture *f, struct fake *k, uint64_t letters)
{
	fixture_init(f);
	fake_init(k);
	fake_open(k, f);
	fixture_fill(f, &small, 0, letters);
}
static void end(struct fixture *f, struct fake *k)
{
	fake_stop(k);
	fake_attach(k, NULL);
	fixture_done(f);
	fake_done(k);
}

static enum rdv_letter_state letter_state(struct fixture *f, uint64_t offset, char replay[64], char next[27])
{
	struct fixture_letter l = small;
	struct rdv_letter letter;
	char id[27];
	l.offset = offset;
	fixture_id(&l, id);
	assert_int_equal(rdv_desk_get(f->desk, id, &letter), REDRIVE_OK);
	enum rdv_letter_state state = letter.state;
	memcpy(replay, letter.replay, 64);
	memcpy(next, letter.next, 27);
	rdv_letter_done(&letter);
	return state;
}

static void replay_acks_every_letter_and_finishes(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	char replay[64], next[27];
	begin(&f, &k, 300);
	k.always = RDV_STATE_ACKED;
	fake_start(&k);
	fake_run(&f, "", 100000, &p);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.acked, 300);
	assert_int_equal(k.sends, 300);
	assert_int_equal(letter_state(&f, 17, replay, next), RDV_LETTER_REPLAYED);
	assert_string_equal(replay, p.id);
	assert_string_equal(next, "");
	end(&f, &k);
}

static void letter_that_dies_again_is_replayed_and_names_the_next(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	char replay[64], next[27], wanted[27];
	begin(&f, &k, 3);
	k.always = RDV_STATE_DEAD;
	fake_start(&k);
	fake_run(&f, "", 1000, &p);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.dead_again, 3);
	assert_int_equal(letter_state(&f, 1, replay, next), RDV_LETTER_REPLAYED);
	fixture_id(&(struct fixture_letter){.offset = 1, .key = "k", .generation = 1}, wanted);
	assert_string_equal(next, wanted);
	end(&f, &k);
}

struct tally {
	unsigned acked, dead, skipped, unknown, not_reached, other;
	char reason[64];
};
static void count_letter(void *ctx, const struct rdv_plan_letter *l)
{
	struct tally *t = ctx;
	unsigned *at = strcmp(l->outcome, "acked") == 0         ? &t->acked
		       : strcmp(l->outcome, "dead_again") == 0  ? &t->dead
		       : strcmp(l->outcome, "skipped") == 0     ? &t->skipped
		       : strcmp(l->outcome, "unknown") == 0     ? &t->unknown
		       : strcmp(l->outcome, "not_reached") == 0 ? &t->not_reached
								: &t->other;
	(*at)++;
	if (l->skipped_reason[0])
		memcpy(t->reason, l->skipped_reason, sizeof t->reason);
}
/* The letters, listed one by one, give the result. */
static struct tally count_letters(struct fixture *f, const struct rdv_plan *p)
{
	struct tally t = {0};
	char cursor[RDV_CURSOR_TEXT] = "";
	do
		assert_int_equal(rdv_plan_letters(f->desk, p->id, NULL, 997, cursor, count_letter, &t), REDRIVE_OK);
	while (cursor[0]);
	assert_int_equal(t.acked, p->acked);
	assert_int_equal(t.dead, p->dead_again);
	assert_int_equal(t.skipped, p->skipped);
	if (rdv_desk_plan_ended(p->state)) {
		assert_int_equal(t.unknown, p->unknown);
		assert_int_equal(t.not_reached, p->not_reached);
	}
	return t;
}

static void letters_of_another_plan_or_replayed_before_are_skipped(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan a, b, c;
	begin(&f, &k, 20);
	k.always = RDV_STATE_ACKED;
	fake_plan(&f, "", 1000, &b); /* all three freeze the same letters */
	fake_plan(&f, "", 1000, &c);
	fake_run(&f, "", 100000, &a);
	while (k.sends < 20) /* all are in the lanes, and nobody answers */
		usleep(1000);
	fake_act(&f, &b, RDV_PLAN_APPROVE);
	fake_act(&f, &b, RDV_PLAN_START);
	fake_wait(&f, &b, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(b.skipped, 20);
	assert_non_null(strstr(count_letters(&f, &b).reason, "another plan"));
	fake_start(&k);
	fake_wait(&f, &a, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(a.acked, 20);
	fake_act(&f, &c, RDV_PLAN_APPROVE);
	fake_act(&f, &c, RDV_PLAN_START);
	fake_wait(&f, &c, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(c.skipped, 20);
	assert_non_null(strstr(count_letters(&f, &c).reason, "already replayed"));
	assert_int_equal(k.sends, 20);
	end(&f, &k);
}

static void letters_of_a_route_that_is_gone_or_without_body_are_skipped(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	begin(&f, &k, 5);
	fixture_store(&f, &(struct fixture_letter){
				  .offset = 77, .body_size = 9, .no_body = true, .reason = RDV_REASON_DAMAGED});
	k.always = RDV_STATE_ACKED;
	fake_plan(&f, "", 1000, &p);
	fake_act(&f, &p, RDV_PLAN_APPROVE);
	pthread_mutex_lock(&k.mutex);
	k.gone = true;
	pthread_mutex_unlock(&k.mutex);
	fake_act(&f, &p, RDV_PLAN_START);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.skipped, 6);
	count_letters(&f, &p);
	char replay[64], next[27];
	assert_int_equal(letter_state(&f, 1, replay, next), RDV_LETTER_NEW); /* free for the next plan */
	k.gone = false;
	fake_start(&k);
	fake_run(&f, "", 1000, &p);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.acked, 5);
	assert_int_equal(p.skipped, 1);
	end(&f, &k);
}

/* Sanitizers make everything slow and uneven: there the rate is only looked at. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RATE_TOLERANCE 0.3
#else
#define RATE_TOLERANCE 0.02
#endif

/* 600 letters at 200/s: the times of the sends lie on the line, within 2 %. */
static void rate_is_kept_within_two_percent(void **state)
{
	enum { LETTERS = 600, RATE = 200 };
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	static int64_t us[LETTERS];
	begin(&f, &k, LETTERS);
	k.always = RDV_STATE_ACKED;
	k.sent_us = us;
	k.sent_us_max = LETTERS;
	fake_start(&k);
	fake_run(&f, "", RATE, &p);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 20000);
	double seconds = (double)(us[LETTERS - 1] - us[0]) / 1e6, rate = (LETTERS - 1) / seconds;
	if (rate < RATE * (1 - RATE_TOLERANCE) || rate > RATE * (1 + RATE_TOLERANCE))
		fail_msg("%.2f/s", rate);
	/* Never in a burst: any tenth of the letters takes its time, too. */
	for (int i = 0; i + 60 < LETTERS; i += 30)
		assert_true((double)(us[i + 60] - us[i]) / 1e6 > 60.0 / RATE * 0.3);
	end(&f, &k);
}

static void bucket_makes_up_for_a_stall_and_follows_the_ramp(void **state)
{
	struct rdv_desk_run_plan p = {.rate = 1000};
	rdv_desk_bucket_fill(&p, 1000000);
	assert_true(p.tokens == 1); /* the first letter at once */
	p.tokens = 0;
	for (int i = 1; i <= 100; i++) { /* a second in uneven steps */
		rdv_desk_bucket_fill(&p, 1000000 + i * 10000 - (i % 2 ? 3000 : 0));
		p.tokens -= (int)p.tokens;
	}
	rdv_desk_bucket_fill(&p, 2000000 + 5000000);
	assert_true(p.tokens <= 200); /* five seconds of standstill are not sent at once */
	struct rdv_desk_run_plan ramp = {.rate = 100, .ramp_ms = 10000};
	double sent = 0;
	rdv_desk_bucket_fill(&ramp, 1);
	for (int i = 1; i <= 1000; i++) {
		rdv_desk_bucket_fill(&ramp, 1 + i * 10000);
		sent += ramp.tokens;
		ramp.tokens = 0;
	}
	assert_true(sent > 495 && sent < 515); /* half of 100/s over ten seconds */
	assert_int_equal(rdv_desk_bucket_wait(&(struct rdv_desk_run_plan){.rate = 50}), 21);
	assert_int_equal(rdv_desk_plan_window(&(struct rdv_desk_run_plan){.rate = 1}), 256);
	assert_int_equal(rdv_desk_plan_window(&(struct rdv_desk_run_plan){.rate = 1e6}), 10000);
}

static void pause_rate_resume_and_cancel_act_at_once(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	struct rdv_error error = {{0}};
	begin(&f, &k, 2000);
	k.always = RDV_STATE_ACKED;
	fake_start(&k);
	fake_run(&f, "", 500, &p);
	while (k.sends < 20)
		usleep(1000);
	fake_act(&f, &p, RDV_PLAN_PAUSE);
	int64_t since = rdv_mono_now().ms;
	while (!k.pauses)
		usleep(1000);
	assert_true(rdv_mono_now().ms - since < 2000);
	uint64_t sends = k.sends;
	usleep(300000);
	assert_int_equal(k.sends, sends);
	assert_int_equal(rdv_plan_act(f.desk, p.id, RDV_PLAN_RATE, NULL, 100, "ann", &p, &error), REDRIVE_OK);
	assert_int_equal(rdv_plan_act(f.desk, p.id, RDV_PLAN_RATE, NULL, -1, "ann", &p, &error), REDRIVE_INVALID);
	assert_true(p.rate == 100);
	fake_act(&f, &p, RDV_PLAN_RESUME);
	since = rdv_mono_now().ms;
	while (k.sends < sends + 50)
		usleep(1000);
	int64_t took = rdv_mono_now().ms - since;
	assert_true(took > 350 && took < 2500);
	fake_act(&f, &p, RDV_PLAN_CANCEL);
	fake_wait(&f, &p, RDV_PLAN_CANCELLED, 10);
	since = rdv_mono_now().ms;
	do {
		assert_int_equal(rdv_plan_get(f.desk, p.id, &p), REDRIVE_OK);
		fake_check_sum(&p);
		assert_true(rdv_mono_now().ms - since < 2000);
	} while (p.unknown > 0);
	sends = k.sends;
	usleep(200000);
	assert_int_equal(k.sends, sends);
	assert_int_equal(p.acked + p.not_reached, 2000);
	count_letters(&f, &p);
	end(&f, &k);
}

/* Cancelled with letters in the lanes: those are taken back, and are as before the plan. */
static void cancelled_letters_are_as_before(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	char replay[64], next[27];
	begin(&f, &k, 50);
	fake_run(&f, "", 100000, &p);
	while (k.sends < 50)
		usleep(1000);
	assert_int_equal(letter_state(&f, 7, replay, next), RDV_LETTER_IN_REPLAY);
	assert_string_equal(replay, p.id);
	fake_act(&f, &p, RDV_PLAN_CANCEL);
	do
		fake_wait(&f, &p, RDV_PLAN_CANCELLED, 1000);
	while (p.not_reached < 50);
	assert_int_equal(k.cancels, 1);
	assert_int_equal(letter_state(&f, 7, replay, next), RDV_LETTER_NEW);
	assert_string_equal(replay, "");
	k.always = RDV_STATE_ACKED;
	fake_start(&k);
	fake_run(&f, "", 100000, &p);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.acked, 50);
	end(&f, &k);
}

static void what_has_no_outcome_long_after_the_end_is_unknown_until_it_is_told(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	char replay[64], next[27];
	fixture_init(&f);
	f.options.unknown_ms = 1;
	fake_init(&k);
	fake_open(&k, &f);
	fixture_fill(&f, &small, 0, 4);
	k.runtime.cancel = NULL;
	fake_close(&k, &f);
	fake_open(&k, &f);
	fake_run(&f, "", 100000, &p);
	while (k.sends < 4)
		usleep(1000);
	fake_act(&f, &p, RDV_PLAN_CANCEL);
	while (letter_state(&f, 2, replay, next) == RDV_LETTER_IN_REPLAY)
		usleep(1000);
	fake_wait(&f, &p, RDV_PLAN_CANCELLED, 1000);
	assert_int_equal(p.unknown, 4);
	k.always = RDV_STATE_ACKED;
	fake_start(&k); /* the late verdict comes after all */
	do
		fake_wait(&f, &p, RDV_PLAN_CANCELLED, 1000);
	while (p.acked < 4);
	assert_int_equal(letter_state(&f, 2, replay, next), RDV_LETTER_REPLAYED);
	end(&f, &k);
}

static void cap_bounds_what_is_sent(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	struct rdv_error error = {{0}};
	struct rdv_plan_request r = {.q = "", .rate = 10000, .cap = 7, .author = "ann"};
	begin(&f, &k, 30);
	k.always = RDV_STATE_ACKED;
	fake_start(&k);
	assert_int_equal(rdv_plan_create(f.desk, &r, &p, &error), REDRIVE_OK);
	fake_act(&f, &p, RDV_PLAN_APPROVE);
	fake_act(&f, &p, RDV_PLAN_START);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.acked, 7);
	assert_int_equal(p.not_reached, 23);
	assert_string_equal(p.stopped_by, "cap");
	assert_int_equal(k.sends, 7);
	end(&f, &k);
}

static void lane_without_room_is_asked_again(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	begin(&f, &k, 10);
	k.always = RDV_STATE_ACKED;
	k.full = true;
	fake_start(&k);
	fake_run(&f, "", 10000, &p);
	usleep(200000);
	assert_int_equal(rdv_plan_get(f.desk, p.id, &p), REDRIVE_OK);
	assert_int_equal(p.state, RDV_PLAN_RUNNING);
	pthread_mutex_lock(&k.mutex);
	k.full = false;
	pthread_mutex_unlock(&k.mutex);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	assert_int_equal(p.acked, 10);
	end(&f, &k);
}

static void letters_of_a_key_go_out_by_position(void **state)
{
	static const uint64_t arrival[] = {5, 3, 9, 1, 7};
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	begin(&f, &k, 0);
	for (size_t i = 0; i < 5; i++) {
		fixture_store(&f, &(struct fixture_letter){.offset = arrival[i], .key = "same"});
		fixture_store(&f, &(struct fixture_letter){.offset = 100 + arrival[i]});
	}
	k.always = RDV_STATE_ACKED;
	fake_start(&k);
	fake_run(&f, "", 10000, &p);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 10000);
	static const uint64_t wanted[] = {1, 105, 3, 103, 5, 109, 7, 101, 9, 107};
	assert_memory_equal(k.order, wanted, sizeof wanted);
	end(&f, &k);
}

/* ---- crashes ---- */

/* The desk ends without a word at a random moment of a running plan, again and again; the lanes live on and report
 * again. In the end all adds up, and no message went to a handler twice. */
static void plan_goes_on_by_itself_after_any_crash_and_adds_up(void **state)
{
	enum { LETTERS = 1500 };
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct fixture f;
		struct fake k;
		struct rdv_plan p;
		struct rdv_random random;
		static uint8_t sent_of[LETTERS];
		memset(sent_of, 0, sizeof sent_of);
		rdv_random_seed(&random, seed);
		begin(&f, &k, LETTERS);
		rdv_random_seed(&k.random, seed);
		k.sent_of = sent_of;
		k.offsets = LETTERS;
		fake_start(&k);
		fake_run(&f, "", 4000, &p);
		for (int crash = 0; crash < 8; crash++) {
			usleep((useconds_t)rdv_random_below(&random, 60000));
			fake_close(&k, &f); /* outcomes that were queued are lost with it */
			fake_open(&k, &f);
		}
		fake_wait(&f, &p, RDV_PLAN_FINISHED, 30000);
		assert_int_equal(p.acked + p.dead_again, LETTERS);
		count_letters(&f, &p);
		for (int i = 0; i < LETTERS; i++)
			assert_int_equal(sent_of[i], 1);
		end(&f, &k);
	}
}

/* The same with kill -9: desk and lanes' threads die in the middle of any step; what the lanes had made durable lies in
 * shared memory. */
struct shared {
	struct fake k;
	struct fake_request requests[4096];
	uint32_t table[FAKE_TABLE];
	uint8_t sent_of[1000];
	char plan[64];
};

/* After a death the lanes' memory is as it was; its locks are new. */
static void revive(struct shared *s, uint64_t seed)
{
	struct fake *k = &s->k;
	pthread_mutex_init(&k->mutex, NULL);
	pthread_cond_init(&k->changed, NULL);
	rdv_random_seed(&k->random, seed);
	k->desk = NULL;
	k->cursor = k->open = 0;
	k->automatic = k->stopping = k->paused = false;
	memset(s->table, 0, sizeof s->table);
	for (uint32_t i = 0; i < k->count; i++) {
		k->open += k->requests[i].open;
		*fake_slot(k, k->requests[i].letter) = i + 1;
	}
	k->runtime.ctx = k;
}

static void killed_process_s_plan_goes_on_and_adds_up(void **state)
{
	enum { LETTERS = 1000 };
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct fixture f;
	struct rdv_plan p;
	struct rdv_random random;
	assert_true(s != MAP_FAILED);
	rdv_random_seed(&random, 11);
	fixture_init(&f);
	fake_init(&s->k);
	free(s->k.table);
	s->k.table = s->table;
	s->k.requests = s->requests;
	s->k.capacity = 4096;
	s->k.sent_of = s->sent_of;
	s->k.offsets = LETTERS;
	fake_open(&s->k, &f);
	fixture_fill(&f, &small, 0, LETTERS);
	fake_plan(&f, "", 3000, &p);
	fake_act(&f, &p, RDV_PLAN_APPROVE);
	fake_close(&s->k, &f);
	for (int round = 0; round < 12; round++) {
		pid_t pid = fork();
		if (pid == 0) {
			revive(s, (uint64_t)round);
			fake_open(&s->k, &f);
			if (round == 0)
				fake_act(&f, &p, RDV_PLAN_START);
			fake_start(&s->k);
			for (;;)
				pause();
		}
		usleep((useconds_t)(20000 + rdv_random_below(&random, 40000)));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	revive(s, 99);
	fake_open(&s->k, &f);
	assert_int_equal(rdv_plan_get(f.desk, p.id, &p), REDRIVE_OK);
	if (p.state == RDV_PLAN_APPROVED) /* killed before it was started */
		fake_act(&f, &p, RDV_PLAN_START);
	fake_start(&s->k);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 30000);
	assert_int_equal(p.acked + p.dead_again, LETTERS);
	count_letters(&f, &p);
	for (int i = 0; i < LETTERS; i++)
		assert_int_equal(s->sent_of[i], 1);
	fake_stop(&s->k);
	fake_attach(&s->k, NULL);
	fixture_done(&f);
	munmap(s, sizeof *s);
}

static void paused_and_cancelled_plans_are_told_again_after_a_restart(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	begin(&f, &k, 40);
	fake_run(&f, "", 100000, &p);
	while (k.sends < 40)
		usleep(1000);
	fake_act(&f, &p, RDV_PLAN_PAUSE);
	while (k.pauses < 1)
		usleep(1000);
	fake_close(&k, &f);
	fake_open(&k, &f);
	while (k.pauses < 2)
		usleep(1000);
	fake_wait(&f, &p, RDV_PLAN_PAUSED, 1000);
	fake_attach(&k, NULL); /* the outcomes of the cancel are lost */
	fake_act(&f, &p, RDV_PLAN_CANCEL);
	while (k.cancels < 1)
		usleep(1000);
	fixture_close(&f);
	fake_open(&k, &f);
	do
		fake_wait(&f, &p, RDV_PLAN_CANCELLED, 1000);
	while (p.not_reached < 40);
	end(&f, &k);
}

static void result_of_100000_letters_adds_up(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	enum { LETTERS = 10000 };
#else
	enum { LETTERS = 100000 };
#endif
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	begin(&f, &k, LETTERS);
	fake_start(&k);
	fake_run(&f, "", 1000000, &p);
	assert_int_equal(p.selected, LETTERS);
	fake_wait(&f, &p, RDV_PLAN_FINISHED, 100000);
	assert_int_equal(p.acked + p.dead_again, LETTERS);
	assert_int_equal(k.sends, LETTERS);
	count_letters(&f, &p);
	end(&f, &k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replay_acks_every_letter_and_finishes),
		cmocka_unit_test(letter_that_dies_again_is_replayed_and_names_the_next),
		cmocka_unit_test(letters_of_another_plan_or_replayed_before_are_skipped),
		cmocka_unit_test(letters_of_a_route_that_is_gone_or_without_body_are_skipped),
		cmocka_unit_test(rate_is_kept_within_two_percent),
		cmocka_unit_test(bucket_makes_up_for_a_stall_and_follows_the_ramp),
		cmocka_unit_test(pause_rate_resume_and_cancel_act_at_once),
		cmocka_unit_test(cancelled_letters_are_as_before),
		cmocka_unit_test(what_has_no_outcome_long_after_the_end_is_unknown_until_it_is_told),
		cmocka_unit_test(cap_bounds_what_is_sent),
		cmocka_unit_test(lane_without_room_is_asked_again),
		cmocka_unit_test(letters_of_a_key_go_out_by_position),
		cmocka_unit_test(plan_goes_on_by_itself_after_any_crash_and_adds_up),
		cmocka_unit_test(killed_process_s_plan_goes_on_and_adds_up),
		cmocka_unit_test(paused_and_cancelled_plans_are_told_again_after_a_restart),
		cmocka_unit_test(result_of_100000_letters_adds_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
