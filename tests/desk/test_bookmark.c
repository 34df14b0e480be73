/* test_bookmark.c - how far the letters of a broker's topic were taken in: kept, moved, and found after a restart. */
#include "fixture.h"

static void assert_at(struct fixture *f, const char *topic, uint32_t partition, int64_t wanted)
{
	int64_t next = -1;
	assert_int_equal(rdv_desk_bookmark(f->desk, topic, partition, &next), REDRIVE_OK);
	assert_int_equal(next, wanted);
}

static void bookmarks_are_kept_over_a_restart(void **state)
{
	const struct rdv_desk_bookmark first[] = {{"a", 0, 5}, {"a", 1, 0}, {"b", 0, INT64_MAX}};
	const struct rdv_desk_bookmark moved[] = {{"a", 0, 3}}; /* back, too: the topic may be another one */
	struct fixture f;
	int64_t next;
	fixture_init(&f);
	fixture_open(&f);
	assert_int_equal(rdv_desk_bookmark(f.desk, "a", 0, &next), REDRIVE_NOT_FOUND);
	assert_int_equal(rdv_desk_keep_bookmarks(f.desk, first, 3), REDRIVE_OK);
	assert_int_equal(rdv_desk_keep_bookmarks(f.desk, moved, 1), REDRIVE_OK);
	fixture_reopen(&f);
	assert_at(&f, "a", 0, 3);
	assert_at(&f, "a", 1, 0);
	assert_at(&f, "b", 0, INT64_MAX);
	assert_int_equal(rdv_desk_bookmark(f.desk, "b", 1, &next), REDRIVE_NOT_FOUND);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bookmarks_are_kept_over_a_restart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
