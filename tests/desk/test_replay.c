/* test_replay.c - running plans: rate, pause, cancel, crashes, skips; the result adds up at every moment. */
#include "fake_runtime.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replay_acks_every_letter_and_finishes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
