/* test_store.c - letters are kept whole, once, over restarts; segments roll; damage is said, never hidden. */
#include "fixture.h"
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

static void check_letter(struct fixture *f, const struct fixture_letter *l)
{
	char id[27];
	struct rdv_letter letter;
	struct rdv_block *body = NULL;
	fixture_id(l, id);
	assert_int_equal(rdv_desk_get(f->desk, id, &letter), REDRIVE_OK);
	assert_string_equal(letter.id, id);
	assert_int_equal(letter.envelope.offset, l->offset);
	assert_int_equal(letter.envelope.tombstone, l->tombstone);
	assert_int_equal(letter.envelope.null_key, l->key == NULL);
	assert_true(rdv_slice_is(letter.envelope.key, l->key ? l->key : ""));
	assert_int_equal(letter.state, RDV_LETTER_NEW);
	assert_int_equal(letter.expires_at.ms, letter.envelope.dead_at.ms + 1000);
	rdv_letter_done(&letter);
	enum redrive_status status = rdv_desk_body(f->desk, id, &body);
	if (l->no_body) {
		assert_int_equal(status, REDRIVE_NOT_FOUND);
		return;
	}
	assert_int_equal(status, REDRIVE_OK);
	uint8_t *wanted = malloc(l->body_size + 1);
	fixture_body(l->offset, l->body_size, wanted);
	assert_int_equal(body->size, l->body_size);
	assert_memory_equal(body->data, wanted, l->body_size);
	free(wanted);
	rdv_block_unref(body);
}

/* pitfall: a tombstone on the dead-letter path */
/* pitfall: the key, null, empty or binary, in the dead-lettered copy */
static void store_keeps_every_letter_whole(void **state)
{
	static const struct fixture_letter letters[] = {
		{.offset = 1, .body_size = 0},
		{.offset = 2, .body_size = 0, .tombstone = true},
		{.offset = 3, .body_size = 0, .key = ""},
		{.offset = 4, .body_size = 312, .key = "o-17"},
		{.offset = 5, .body_size = (1 << 20) + 1, .key = "big"},
		{.offset = 6, .body_size = 3u << 20},
		{.offset = 7, .body_size = 900, .no_body = true, .reason = RDV_REASON_DAMAGED},
		{.offset = 8, .body_size = 262144},
	};
	struct fixture f;
	fixture_init(&f);
	fixture_open(&f);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		fixture_store(&f, &letters[i]);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		check_letter(&f, &letters[i]);
	fixture_reopen(&f);
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		check_letter(&f, &letters[i]);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store_keeps_every_letter_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
