/* test_kafka_entry.c - records in values of a journal topic: what is written is read, what others wrote is told apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/random.h"
#include "brokers/kafka/entry.h"

static struct rdv_slice bytes(const void *data, size_t size)
{
	return rdv_slice(data, size);
}

static void start(struct rdv_buffer *b)
{
	rdv_buffer_init(b, 0);
	rdv_buffer_text(b, RDV_ENTRY_MAGIC);
}

static void add(struct rdv_buffer *b, uint8_t type, uint64_t seq, const char *payload)
{
	rdv_entry_encode(b, &(struct rdv_source_record){type, seq, rdv_slice_text(payload)});
	assert_false(b->failed);
}

/* The layout of docs/internals/kafka.md, byte by byte. */
static void entries_lie_as_documented(void **state)
{
	static const uint8_t wanted[] = {'R', 'D', 'J', '1', 5, 0xAC, 0x02, 3, 'a', 'b', 'c', 100, 7, 0};
	struct rdv_buffer b;

	start(&b);
	add(&b, RDV_RECORD_STATE, 300, "abc");
	add(&b, RDV_SOURCE_POSITION, 7, "");
	assert_int_equal(b.size, sizeof wanted);
	assert_memory_equal(b.data, wanted, sizeof wanted);
	rdv_buffer_done(&b);
}

static void what_is_written_is_read(void **state)
{
	static const uint64_t seqs[] = {0, 127, 128, UINT32_MAX, INT64_MAX, UINT64_MAX};
	static uint8_t big[70000];
	struct rdv_source_record record;
	struct rdv_slice entries;
	struct rdv_buffer b;

	start(&b);
	for (size_t i = 0; i < 6; i++)
		rdv_entry_encode(
			&b, &(struct rdv_source_record){RDV_RECORD_BODY, seqs[i], bytes(big, i == 3 ? sizeof big : i)});
	assert_int_equal(rdv_entry_open(rdv_buffer_as_slice(&b), &entries), REDRIVE_OK);
	for (size_t i = 0; i < 6; i++) {
		assert_true(rdv_entry_next(&entries, &record));
		assert_int_equal(record.type, RDV_RECORD_BODY);
		assert_int_equal(record.seq, seqs[i]);
		assert_int_equal(record.payload.size, i == 3 ? sizeof big : i);
	}
	assert_false(rdv_entry_next(&entries, &record));
	assert_int_equal(entries.size, 0);
	rdv_buffer_done(&b);
}

/* The promise that batches are cut by. */
static void an_entry_is_never_longer_than_its_overhead_and_payload(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	rdv_entry_encode(&b, &(struct rdv_source_record){1, UINT64_MAX, rdv_slice(NULL, 0)});
	assert_true(b.size + 4 <= RDV_ENTRY_OVERHEAD); /* an empty length is one byte, the longest five */
	rdv_buffer_done(&b);
}

static void an_entry_that_does_not_fit_leaves_the_buffer_whole(void **state)
{
	struct rdv_source_record record = {1, 1, rdv_slice_text("0123456789")};
	struct rdv_buffer b;

	rdv_buffer_init(&b, 20);
	rdv_entry_encode(&b, &record);
	assert_false(b.failed);
	rdv_entry_encode(&b, &record);
	assert_true(b.failed);
	assert_int_equal(b.size, 13);
	rdv_buffer_done(&b);
}

/* pitfall: records of other writers in a private topic: foreign, damaged and newer values are told apart */
static void foreign_damaged_and_newer_values_are_told_apart(void **state)
{
	static const struct {
		const char *name;
		const char *value;
		size_t size;
		enum redrive_status wanted;
	} table[] = {
		{"null", NULL, 0, REDRIVE_NOT_FOUND},
		{"short", "RDJ", 3, REDRIVE_NOT_FOUND},
		{"text", "{\"orderId\": 7}", 14, REDRIVE_NOT_FOUND},
		{"a letter", "RDL1\1\0", 6, REDRIVE_NOT_FOUND},
		{"not a digit", "RDJx\1\0\0", 7, REDRIVE_NOT_FOUND},
		{"version 0", "RDJ0\1\0\0", 7, REDRIVE_NOT_FOUND},
		{"version 2", "RDJ2", 4, REDRIVE_VERSION},
		{"no entries", "RDJ1", 4, REDRIVE_OK},
		{"one", "RDJ1\1\0\0", 7, REDRIVE_OK},
		{"zeros behind", "RDJ1\1\0\0\0\0\0", 10, REDRIVE_CORRUPT},
		{"cut after the type", "RDJ1\1", 5, REDRIVE_CORRUPT},
		{"cut in the seq", "RDJ1\1\x80", 6, REDRIVE_CORRUPT},
		{"endless seq", "RDJ1\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, REDRIVE_CORRUPT},
		{"cut in the payload", "RDJ1\1\0\5abcd", 11, REDRIVE_CORRUPT},
		{"length 2^32", "RDJ1\1\0\x80\x80\x80\x80\x10", 11, REDRIVE_CORRUPT},
		{"length 2^64-1", "RDJ1\1\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 16, REDRIVE_CORRUPT},
		{"second one cut", "RDJ1\1\0\0\2\0\1", 10, REDRIVE_CORRUPT},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_slice entries = rdv_slice_text("untouched");
		enum redrive_status got = rdv_entry_open(bytes(table[i].value, table[i].size), &entries);

		if (got != table[i].wanted)
			print_error("%s\n", table[i].name);
		assert_int_equal(got, table[i].wanted);
		assert_true(got == REDRIVE_OK || rdv_slice_is(entries, "untouched"));
	}
}

static void damage_ends_the_walk_and_stays_in_sight(void **state)
{
	struct rdv_slice entries = bytes("\1\0\1a\2\0\5b", 8);
	struct rdv_source_record record;

	assert_true(rdv_entry_next(&entries, &record));
	assert_false(rdv_entry_next(&entries, &record));
	assert_int_equal(entries.size, 4);
}

static void a_batch_is_cut_into_values_at_whole_entries(void **state)
{
	static const struct {
		size_t max, wanted;
	} table[] = {{0, 6}, {4, 6}, {9, 6}, {10, 6}, {17, 6}, {18, 14}, {23, 14}, {24, 20}, {SIZE_MAX, 20}};
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	add(&b, 1, 1, "abc");
	add(&b, 2, 2, "abcde");
	add(&b, 3, 3, "abc");
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		assert_int_equal(rdv_entry_cut(rdv_buffer_as_slice(&b), table[i].max), table[i].wanted);
	assert_int_equal(rdv_entry_cut(rdv_slice(NULL, 0), 1000), 0);
	assert_int_equal(rdv_entry_cut(bytes("\0\0\0", 3), 1000), 0);
	rdv_buffer_done(&b);
}

static void cuts_of_any_size_give_all_entries_back_in_order(void **state)
{
	struct rdv_buffer batch, value;
	struct rdv_random r;

	rdv_random_seed(&r, 3);
	rdv_buffer_init(&batch, 0);
	rdv_buffer_init(&value, 0);
	for (uint64_t i = 0; i < 2000; i++)
		rdv_entry_encode(
			&batch, &(struct rdv_source_record){1, i, bytes("0123456789012345", rdv_random_below(&r, 17))});
	for (size_t max = 0; max < 300; max += 7) {
		struct rdv_slice left = rdv_buffer_as_slice(&batch), entries;
		struct rdv_source_record record;
		uint64_t seq = 0;
		size_t cut;

		while ((cut = rdv_entry_cut(left, max)) > 0) {
			rdv_buffer_clear(&value);
			rdv_buffer_text(&value, RDV_ENTRY_MAGIC);
			rdv_buffer_append(&value, left.data, cut);
			left = rdv_slice(left.data + cut, left.size - cut);
			assert_int_equal(rdv_entry_open(rdv_buffer_as_slice(&value), &entries), REDRIVE_OK);
			for (size_t n = 0; rdv_entry_next(&entries, &record); n++, seq++) {
				assert_int_equal(record.seq, seq);
				assert_true(n == 0 || value.size <= max);
			}
		}
		assert_int_equal(left.size, 0);
		assert_int_equal(seq, 2000);
	}
	rdv_buffer_done(&batch);
	rdv_buffer_done(&value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_lie_as_documented),
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(an_entry_is_never_longer_than_its_overhead_and_payload),
		cmocka_unit_test(an_entry_that_does_not_fit_leaves_the_buffer_whole),
		cmocka_unit_test(foreign_damaged_and_newer_values_are_told_apart),
		cmocka_unit_test(damage_ends_the_walk_and_stays_in_sight),
		cmocka_unit_test(a_batch_is_cut_into_values_at_whole_entries),
		cmocka_unit_test(cuts_of_any_size_give_all_entries_back_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
