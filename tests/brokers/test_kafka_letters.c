/* test_kafka_letters.c - values of the letters topic: what is written is read; foreign, damaged and newer ones are told
 * apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/random.h"
#include "brokers/kafka/letters.h"

static struct rdv_kafka_letter decode(const struct rdv_buffer *b)
{
	struct rdv_kafka_letter l;

	assert_false(b->failed);
	assert_int_equal(rdv_kafka_letter_decode(rdv_buffer_as_slice(b), &l), REDRIVE_OK);
	return l;
}

/* The layouts of docs/internals/kafka.md, byte by byte. */
static void values_lie_as_documented(void **state)
{
	static const char letter[] = "RDL1\1\1\3envbody";
	static const char outcome[] = "RDL1\2\6ABCDEFGHIJKLMNOP\xac\x02\7\x80\1\3";
	struct rdv_kafka_outcome o = {300, 7, "", RDV_STATE_ACKED, 128, 3};
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	rdv_kafka_letter_encode(rdv_slice_text("env"), rdv_slice_text("body"), true, &b);
	assert_int_equal(b.size, sizeof letter - 1);
	assert_memory_equal(b.data, letter, b.size);
	rdv_buffer_clear(&b);
	memcpy(o.letter, "ABCDEFGHIJKLMNOP", 16);
	rdv_kafka_outcome_encode(&o, &b);
	assert_int_equal(b.size, sizeof outcome - 1);
	assert_memory_equal(b.data, outcome, b.size);
	rdv_buffer_done(&b);
}

/* pitfall: null value of a dead message: a tombstone is not an empty body */
static void letters_come_back_with_and_without_a_body(void **state)
{
	static const struct {
		struct rdv_slice body;
		bool has_body;
	} table[] = {{{(const uint8_t *)"\0\xff", 2}, true}, {{NULL, 0}, true}, {{NULL, 0}, false}};
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	for (size_t i = 0; i < 3; i++) {
		struct rdv_kafka_letter l;

		rdv_buffer_clear(&b);
		rdv_kafka_letter_encode(rdv_slice_text("envelope"), table[i].body, table[i].has_body, &b);
		l = decode(&b);
		assert_int_equal(l.kind, RDV_LETTER_DEAD);
		assert_true(rdv_slice_is(l.envelope, "envelope"));
		assert_int_equal(l.has_body, table[i].has_body);
		assert_true(rdv_slice_equal(l.body, table[i].body));
	}
	rdv_buffer_done(&b);
}

static void outcomes_come_back(void **state)
{
	struct rdv_random r;
	struct rdv_buffer b;

	rdv_random_seed(&r, 5);
	rdv_buffer_init(&b, 0);
	for (int i = 0; i < 1000; i++) {
		struct rdv_kafka_outcome o = {
			.plan = rdv_random_next(&r) >> rdv_random_below(&r, 64),
			.request = rdv_random_next(&r) >> rdv_random_below(&r, 64),
			.outcome = (uint8_t)rdv_random_below(&r, RDV_STATE_COUNT),
			.attempts = (uint32_t)(rdv_random_next(&r) >> (32 + rdv_random_below(&r, 32))),
			.partition = (uint32_t)(rdv_random_next(&r) >> (32 + rdv_random_below(&r, 32))),
		};
		struct rdv_kafka_letter l;

		for (size_t n = 0; n < 16; n++)
			o.letter[n] = (uint8_t)rdv_random_next(&r);
		rdv_buffer_clear(&b);
		rdv_kafka_outcome_encode(&o, &b);
		l = decode(&b);
		assert_int_equal(l.kind, RDV_LETTER_OUTCOME);
		assert_int_equal(l.outcome.plan, o.plan);
		assert_int_equal(l.outcome.request, o.request);
		assert_int_equal(l.outcome.outcome, o.outcome);
		assert_int_equal(l.outcome.attempts, o.attempts);
		assert_int_equal(l.outcome.partition, o.partition);
		assert_memory_equal(l.outcome.letter, o.letter, 16);
	}
	rdv_buffer_done(&b);
}

/* pitfall: records of other writers in a private topic: foreign, damaged and newer values are told apart */
static void foreign_damaged_and_newer_values_are_told_apart(void **state)
{
	static const struct {
		const char *name, *value;
		size_t size;
		enum redrive_status wanted;
	} table[] = {
		{"null", NULL, 0, REDRIVE_NOT_FOUND},
		{"text", "order 17", 8, REDRIVE_NOT_FOUND},
		{"a journal's", "RDJ1\1\0\0", 7, REDRIVE_NOT_FOUND},
		{"version 2", "RDL2\1\0\0", 7, REDRIVE_VERSION},
		{"magic alone", "RDL1", 4, REDRIVE_CORRUPT},
		{"kind 0", "RDL1\0\0\0", 7, REDRIVE_CORRUPT},
		{"kind 3", "RDL1\3\0\0", 7, REDRIVE_CORRUPT},
		{"no envelope", "RDL1\1\1", 6, REDRIVE_CORRUPT},
		{"envelope cut", "RDL1\1\1\5abcd", 11, REDRIVE_CORRUPT},
		{"envelope of 2^64-1", "RDL1\1\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1x", 17, REDRIVE_CORRUPT},
		{"unknown flag", "RDL1\1\3\0", 7, REDRIVE_CORRUPT},
		{"body of none", "RDL1\1\0\0x", 8, REDRIVE_CORRUPT},
		{"outcome cut", "RDL1\2\6ABCDEFGHIJKLMNOP\1\1\1", 25, REDRIVE_CORRUPT},
		{"outcome long", "RDL1\2\6ABCDEFGHIJKLMNOP\1\1\1\1\1", 27, REDRIVE_CORRUPT},
		{"outcome unknown",
		 "RDL1\2\x63"
		 "ABCDEFGHIJKLMNOP\1\1\1\1",
		 26, REDRIVE_CORRUPT},
		{"attempts 2^32", "RDL1\2\6ABCDEFGHIJKLMNOP\1\1\x80\x80\x80\x80\x10\1", 30, REDRIVE_CORRUPT},
		{"outcome", "RDL1\2\6ABCDEFGHIJKLMNOP\1\1\1\1", 26, REDRIVE_OK},
		{"letter", "RDL1\1\0\0", 7, REDRIVE_OK},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_kafka_letter l;
		enum redrive_status got = rdv_kafka_letter_decode(rdv_slice(table[i].value, table[i].size), &l);

		if (got != table[i].wanted)
			print_error("%s\n", table[i].name);
		assert_int_equal(got, table[i].wanted);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_lie_as_documented),
		cmocka_unit_test(letters_come_back_with_and_without_a_body),
		cmocka_unit_test(outcomes_come_back),
		cmocka_unit_test(foreign_damaged_and_newer_values_are_told_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
