/* test_plan.c - plans before they run: the frozen set and its digest, checks, states, the control database. */
#include "fake_runtime.h"
#include <sodium.h>
#include "desk/plan.h"

static void begin(struct fixture *f, struct fake *k, uint64_t letters)
{
	fixture_init(f);
	fake_init(k);
	fake_open(k, f);
	fixture_fill(f, &(struct fixture_letter){.body_size = 40, .key = "k"}, 0, letters);
}
static void end(struct fixture *f, struct fake *k)
{
	fake_attach(k, NULL);
	fixture_done(f);
	fake_done(k);
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static void digest_is_over_the_sorted_ids_and_names_the_set(void **state)
{
	enum { LETTERS = 30 };
	struct fixture f;
	struct fake k;
	struct rdv_plan p, again;
	uint8_t ids[LETTERS][16], digest[32];
	char hex[65], wanted[72];
	begin(&f, &k, LETTERS);
	for (uint64_t i = 0; i < LETTERS; i++) {
		struct rdv_envelope e;
		fixture_envelope(&(struct fixture_letter){.offset = i, .body_size = 40, .key = "k"}, &e);
		rdv_envelope_id(&e, ids[i]);
	}
	qsort(ids, LETTERS, 16, by_bytes);
	crypto_hash_sha256(digest, ids[0], sizeof ids);
	sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
	snprintf(wanted, sizeof wanted, "sha256:%s", hex);
	fake_plan(&f, "", 50, &p);
	assert_string_equal(p.digest, wanted);
	assert_int_equal(p.selected, LETTERS);
	assert_int_equal(p.not_reached, LETTERS);
	assert_int_equal(p.keys, 1);
	assert_string_equal(p.routes, "orders");
	assert_int_equal(p.oldest.ms, FIXTURE_T0);
	assert_int_equal(p.estimated_ms, 600);
	/* What arrives later does not change it. */
	fixture_store(&f, &(struct fixture_letter){.offset = 1000});
	assert_int_equal(rdv_plan_get(f.desk, p.id, &again), REDRIVE_OK);
	assert_string_equal(again.digest, wanted);
	assert_int_equal(again.selected, LETTERS);
	fixture_reopen(&f);
	assert_int_equal(rdv_plan_get(f.desk, p.id, &again), REDRIVE_OK);
	assert_string_equal(again.digest, wanted);
	assert_int_equal(again.preflight_count, p.preflight_count);
	end(&f, &k);
}

static void plan_by_ids_takes_exactly_those(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	struct rdv_error error = {{0}};
	char ids[4][27];
	begin(&f, &k, 10);
	for (uint64_t i = 0; i < 4; i++)
		fixture_id(&(struct fixture_letter){.offset = i, .body_size = 40, .key = "k"}, ids[i]);
	const char *const list[] = {ids[0], ids[1], ids[2], ids[3], ids[1]};
	struct rdv_plan_request r = {.ids = list, .id_count = 5, .exclude = &list[3], .exclude_count = 1, .rate = 5};
	assert_int_equal(rdv_plan_create(f.desk, &r, &p, &error), REDRIVE_OK);
	assert_int_equal(p.selected, 3);
	const char *const strange[] = {ids[0], "aaaaaaaaaaaaaaaaaaaaaaaaaa"};
	r = (struct rdv_plan_request){.ids = strange, .id_count = 2};
	assert_int_equal(rdv_plan_create(f.desk, &r, &p, &error), REDRIVE_INVALID);
	assert_non_null(strstr(error.text, "aaaaaaaaaaaaaaaaaaaaaaaaaa"));
	end(&f, &k);
}

static void plan_request_that_makes_no_sense_is_invalid(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	const char *const ids[] = {"x"};
	const struct rdv_plan_request bad[] = {
		{0},
		{.q = "", .ids = ids, .id_count = 1},
		{.q = "timeout"},
		{.q = "route:nobody"},
		{.q = "", .rate = -1},
		{.q = "", .rate = 0.0 / 0.0},
		{.q = "", .rate = 1e9},
		{.q = "", .ramp_ms = -1},
		{.q = "", .expires_at = {1}},
		{.q = "", .exclude = ids, .exclude_count = 1},
	};
	begin(&f, &k, 2);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct rdv_error error = {{0}};
		assert_int_equal(rdv_plan_create(f.desk, &bad[i], &p, &error), REDRIVE_INVALID);
		assert_true(error.text[0] != 0);
	}
	end(&f, &k);
}

/* Every verb in every state that can be reached here: allowed, or a conflict that changes nothing. */
static void verbs_are_allowed_where_the_table_says(void **state)
{
	static const struct {
		enum rdv_plan_verb verb;
		enum rdv_plan_state from, to; /* to = from: a conflict */
	} table[] = {
		{RDV_PLAN_START, RDV_PLAN_DRAFT, RDV_PLAN_DRAFT},
		{RDV_PLAN_PAUSE, RDV_PLAN_DRAFT, RDV_PLAN_DRAFT},
		{RDV_PLAN_RESUME, RDV_PLAN_DRAFT, RDV_PLAN_DRAFT},
		{RDV_PLAN_APPROVE, RDV_PLAN_DRAFT, RDV_PLAN_APPROVED},
		{RDV_PLAN_APPROVE, RDV_PLAN_APPROVED, RDV_PLAN_APPROVED},
		{RDV_PLAN_PAUSE, RDV_PLAN_APPROVED, RDV_PLAN_APPROVED},
		{RDV_PLAN_START, RDV_PLAN_APPROVED, RDV_PLAN_RUNNING},
		{RDV_PLAN_START, RDV_PLAN_RUNNING, RDV_PLAN_RUNNING},
		{RDV_PLAN_RESUME, RDV_PLAN_RUNNING, RDV_PLAN_RUNNING},
		{RDV_PLAN_APPROVE, RDV_PLAN_RUNNING, RDV_PLAN_RUNNING},
		{RDV_PLAN_PAUSE, RDV_PLAN_RUNNING, RDV_PLAN_PAUSED},
		{RDV_PLAN_PAUSE, RDV_PLAN_PAUSED, RDV_PLAN_PAUSED},
		{RDV_PLAN_RESUME, RDV_PLAN_PAUSED, RDV_PLAN_RUNNING},
		{RDV_PLAN_CANCEL, RDV_PLAN_RUNNING, RDV_PLAN_CANCELLED},
		{RDV_PLAN_CANCEL, RDV_PLAN_CANCELLED, RDV_PLAN_CANCELLED},
		{RDV_PLAN_START, RDV_PLAN_CANCELLED, RDV_PLAN_CANCELLED},
		{RDV_PLAN_RATE, RDV_PLAN_CANCELLED, RDV_PLAN_CANCELLED},
	};
	struct fixture f;
	struct fake k;
	struct rdv_plan p, out;
	begin(&f, &k, 5);
	fake_plan(&f, "", 0.001, &p);
	assert_int_equal(rdv_plan_act(f.desk, p.id, RDV_PLAN_APPROVE, "sha256:other", 0, "ann", &out, NULL),
			 REDRIVE_CONFLICT);
	assert_int_equal(rdv_plan_act(f.desk, p.id, RDV_PLAN_APPROVE, NULL, 0, "ann", &out, NULL), REDRIVE_CONFLICT);
	assert_int_equal(rdv_plan_act(f.desk, "rp-none", RDV_PLAN_START, NULL, 0, "ann", &out, NULL),
			 REDRIVE_NOT_FOUND);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_error error = {{0}};
		assert_int_equal(rdv_plan_get(f.desk, p.id, &out), REDRIVE_OK);
		assert_int_equal(out.state, table[i].from);
		enum redrive_status status =
			rdv_plan_act(f.desk, p.id, table[i].verb, p.digest, 1, "ann", &out, &error);
		assert_int_equal(status, table[i].to == table[i].from ? REDRIVE_CONFLICT : REDRIVE_OK);
		if (status != REDRIVE_OK)
			assert_true(error.text[0] != 0);
		assert_int_equal(rdv_plan_get(f.desk, p.id, &out), REDRIVE_OK);
		assert_int_equal(out.state, table[i].to);
		fake_check_sum(&out);
	}
	assert_string_equal(out.approver, "ann");
	assert_true(out.approved_at.ms && out.started_at.ms && out.ended_at.ms);
	end(&f, &k);
}

static void failed_check_blocks_the_approval(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p, out;
	struct rdv_error error = {{0}};
	bool failed = false;
	begin(&f, &k, 2);
	fixture_store(&f, &(struct fixture_letter){.offset = 90, .route = "gone"});
	fake_plan(&f, "", 10, &p);
	for (size_t i = 0; i < p.preflight_count; i++)
		failed |= strcmp(p.preflight[i].check, "routes") == 0 && strcmp(p.preflight[i].result, "fail") == 0;
	assert_true(failed);
	assert_int_equal(rdv_plan_act(f.desk, p.id, RDV_PLAN_APPROVE, p.digest, 0, "ann", &out, &error),
			 REDRIVE_CONFLICT);
	assert_non_null(strstr(error.text, "gone"));
	fake_plan(&f, "route:orders", 10, &p);
	fake_act(&f, &p, RDV_PLAN_APPROVE);
	end(&f, &k);
}

static void plan_that_nobody_started_expires(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p, out;
	struct rdv_plan_request r = {.q = "", .expires_at = {rdv_wall_now().ms + 60}};
	begin(&f, &k, 2);
	r.expires_at.ms = rdv_wall_now().ms + 60;
	assert_int_equal(rdv_plan_create(f.desk, &r, &p, NULL), REDRIVE_OK);
	do
		assert_int_equal(rdv_plan_get(f.desk, p.id, &out), REDRIVE_OK);
	while (out.state != RDV_PLAN_EXPIRED);
	assert_int_equal(rdv_plan_act(f.desk, p.id, RDV_PLAN_APPROVE, p.digest, 0, "ann", &out, NULL),
			 REDRIVE_CONFLICT);
	/* A running one ends, too. */
	r.expires_at.ms = rdv_wall_now().ms + 400;
	r.rate = 0.001;
	assert_int_equal(rdv_plan_create(f.desk, &r, &p, NULL), REDRIVE_OK);
	fake_act(&f, &p, RDV_PLAN_APPROVE);
	fake_act(&f, &p, RDV_PLAN_START);
	fake_wait(&f, &p, RDV_PLAN_EXPIRED, 5000);
	assert_string_equal(p.stopped_by, "expires_at");
	end(&f, &k);
}

static void note_plan(void *ctx, const struct rdv_plan *p)
{
	strcat(strcat(ctx, p->name), " ");
}

static void plans_are_listed_newest_first_in_pages(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	char cursor[RDV_CURSOR_TEXT] = "", names[64] = "";
	begin(&f, &k, 1);
	for (int i = 0; i < 5; i++) {
		const char name[2] = {(char)('a' + i), 0};
		struct rdv_plan_request r = {.q = "", .name = name};
		assert_int_equal(rdv_plan_create(f.desk, &r, &p, NULL), REDRIVE_OK);
	}
	int pages = 0;
	do {
		assert_int_equal(rdv_plan_list(f.desk, 2, cursor, note_plan, names), REDRIVE_OK);
		pages++;
	} while (cursor[0]);
	assert_string_equal(names, "e d c b a ");
	assert_int_equal(pages, 3);
	snprintf(cursor, sizeof cursor, "x");
	assert_int_equal(rdv_plan_list(f.desk, 2, cursor, note_plan, names), REDRIVE_INVALID);
	cursor[0] = 0;
	assert_int_equal(rdv_plan_letters(f.desk, p.id, "unheard", 2, cursor, NULL, NULL), REDRIVE_INVALID);
	end(&f, &k);
}

static int64_t ask(const char *dir, const char *sql)
{
	char path[128];
	sqlite3 *db;
	sqlite3_stmt *s;
	snprintf(path, sizeof path, "%s/control.db", dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
	int64_t value = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : -1;
	sqlite3_finalize(s);
	sqlite3_close(db);
	return value;
}

static void every_verb_is_audited_with_its_author(void **state)
{
	struct fixture f;
	struct fake k;
	struct rdv_plan p;
	begin(&f, &k, 1);
	fake_run(&f, "", 0.001, &p);
	fake_act(&f, &p, RDV_PLAN_CANCEL);
	rdv_desk_audit(f.desk, "bob", "letter.body", "id", NULL);
	assert_int_equal(ask(f.dir, "SELECT count(*) FROM audit WHERE who = 'ann' AND action IN"
				    " ('replay.plan', 'replay.approve', 'replay.start', 'replay.cancel')"),
			 4);
	assert_int_equal(ask(f.dir, "SELECT count(*) FROM audit WHERE who = 'bob'"), 1);
	end(&f, &k);
}

static void control_database_of_a_newer_version_is_refused(void **state)
{
	struct fixture f;
	struct rdv_error error = {{0}};
	fixture_init(&f);
	fixture_open(&f);
	fixture_close(&f);
	assert_int_equal(ask(f.dir, "PRAGMA user_version"), 2);
	ask(f.dir, "PRAGMA user_version = 77");
	assert_int_equal(fixture_try_open(&f, &error), REDRIVE_VERSION);
	assert_non_null(strstr(error.text, "control.db"));
	assert_int_equal(ask(f.dir, "PRAGMA user_version"), 77);
	fixture_done(&f);
}

/* A crash while a plan is being frozen leaves rows without a plan: they go at the next open. */
static void half_made_plan_is_removed(void **state)
{
	struct fixture f;
	fixture_init(&f);
	fixture_open(&f);
	fixture_close(&f);
	ask(f.dir, "INSERT INTO frozen(plan, position, letter) VALUES(5, 0, x'00112233445566778899aabbccddeeff')");
	assert_int_equal(ask(f.dir, "SELECT count(*) FROM frozen"), 1);
	fixture_open(&f);
	assert_int_equal(ask(f.dir, "SELECT count(*) FROM frozen"), 0);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digest_is_over_the_sorted_ids_and_names_the_set),
		cmocka_unit_test(plan_by_ids_takes_exactly_those),
		cmocka_unit_test(plan_request_that_makes_no_sense_is_invalid),
		cmocka_unit_test(verbs_are_allowed_where_the_table_says),
		cmocka_unit_test(failed_check_blocks_the_approval),
		cmocka_unit_test(plan_that_nobody_started_expires),
		cmocka_unit_test(plans_are_listed_newest_first_in_pages),
		cmocka_unit_test(every_verb_is_audited_with_its_author),
		cmocka_unit_test(control_database_of_a_newer_version_is_refused),
		cmocka_unit_test(half_made_plan_is_removed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
