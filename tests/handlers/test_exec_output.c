/* test_exec_output.c - standard error to class, root class, text and stack; the tail of a stream. */
#include "kit.h"
#include "handlers/clean.h"
#include "handlers/exec_output.h"

static void class_lines_are_found(void **state)
{
	static const struct {
		const char *output, *class, *root;
	} table[] = {
		{"OrderInvalid: no such item\n", "OrderInvalid", ""},
		{"ValueError: bad\n", "ValueError", ""},
		{"java.lang.IllegalStateException: x\n\tat A.b(C.java:1)\nCaused by: java.io.IOException: y\n\tat "
		 "D.e(F.java:2)\n",
		 "java.lang.IllegalStateException", "java.io.IOException"},
		{"X: 1\nCaused by: A: b\nCaused by: C\n", "X", "C"},
		{"std::runtime_error: x\n", "std::runtime_error", ""},
		{"first: a\nsecond: b\n", "second", ""},
		{"Traceback (most recent call last):\n  File \"x\", line 1\nKeyError: 'k'\n", "KeyError", ""},
		{"crlf: text\r\n", "crlf", ""},
		{"no class here\n", "", ""},
		{"http://host/: x\n", "", ""},
		{"  indented: text\n", "", ""},
		{"9lives: text\n", "", ""},
		{"Class:\n", "", ""},
		{"Class: \n", "", ""},
		{"Class:text\n", "", ""},
		{"Class", "", ""},
		{"last: line without end", "last", ""},
		{"a::: x\n", "", ""},
		{"", "", ""},
		{"\n\n\n", "", ""},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_failure f = {.class = {NULL, 0}};

		rdv_exec_output(rdv_slice_text(table[i].output), &f);
		if (!kit_text_is(f.class, table[i].class) || !kit_text_is(f.root_class, table[i].root))
			fail_msg("row %zu", i);
	}
}

static void the_text_is_the_last_1000_bytes(void **state)
{
	struct rdv_failure f = {.class = {NULL, 0}};
	char output[3001];

	memset(output, 'a', 3000);
	memcpy(output + 1999, "\xc3\xa9", 2); /* the cut goes through this character */
	output[3000] = '\0';
	output[2999] = '\n';
	rdv_exec_output(rdv_slice(output, 3000), &f);
	assert_int_equal(f.text.size, 1000);
	output[2998] = 'z';
	output[2999] = 'z';
	f = (struct rdv_failure){.class = {NULL, 0}};
	rdv_exec_output(rdv_slice(output, 3000), &f);
	assert_int_equal(f.text.size, 999);
	assert_true(rdv_utf8_valid(f.text));
	assert_int_equal(f.stack.size, 0); /* one line is no stack */
}

static void a_stack_is_everything_that_was_kept(void **state)
{
	struct rdv_failure f = {.class = {NULL, 0}};

	rdv_exec_output(rdv_slice_text("E: x\n at a\n at b\n"), &f);
	assert_true(kit_text_is(f.stack, "E: x\n at a\n at b"));
	assert_true(kit_text_is(f.text, "E: x\n at a\n at b"));
}

static void the_tail_of_a_stream_is_kept_however_it_is_cut(void **state)
{
	static const size_t pieces[] = {1, 7, 100, 4096, 8191, 8192, 8193, 16384, 65536};

	for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
		struct rdv_exec_tail *tail = calloc(1, sizeof *tail);
		uint8_t *stream = malloc(200000);

		for (size_t i = 0; i < 200000; i++)
			stream[i] = (uint8_t)(i * 7 + i / 251);
		for (size_t at = 0; at < 200000; at += pieces[p]) {
			size_t size = at + pieces[p] > 200000 ? 200000 - at : pieces[p], total = at + size;
			size_t wanted = total < RDV_EXEC_TAIL ? total : RDV_EXEC_TAIL;
			struct rdv_slice kept;

			rdv_exec_tail_add(tail, stream + at, size);
			if (pieces[p] < 100 && at % 997 != 0)
				continue;
			kept = rdv_exec_tail_slice(tail);
			assert_int_equal(kept.size, wanted);
			assert_memory_equal(kept.data, stream + total - wanted, wanted);
		}
		free(stream);
		free(tail);
	}
}

static void cleaned_text_is_utf8_within_both_bounds(void **state)
{
	static const struct {
		const char *in, *out;
		size_t chars, bytes;
	} table[] = {
		{"plain", "plain", 100, 100},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 100, 100},
		{"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd", 100, 100},                 /* overlong */
		{"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 100, 100}, /* surrogate */
		{"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 100,
		 100},                                                /* beyond U+10FFFF */
		{"a\xe2\x82", "a\xef\xbf\xbd\xef\xbf\xbd", 100, 100}, /* cut */
		{"abcdef", "abc", 3, 100},
		{"ab\xe2\x82\xac", "ab", 100, 4},
		{"\xff\xff", "\xef\xbf\xbd", 100, 5},
		{"", "", 100, 100},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_buffer b;

		rdv_buffer_init(&b, 1000);
		assert_non_null(rdv_buffer_reserve(&b, 500));
		if (!kit_text_is(rdv_clean_slice(&b, rdv_slice_text(table[i].in), table[i].chars, table[i].bytes),
				 table[i].out))
			fail_msg("row %zu", i);
		rdv_buffer_done(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(class_lines_are_found),
		cmocka_unit_test(the_text_is_the_last_1000_bytes),
		cmocka_unit_test(a_stack_is_everything_that_was_kept),
		cmocka_unit_test(the_tail_of_a_stream_is_kept_however_it_is_cut),
		cmocka_unit_test(cleaned_text_is_utf8_within_both_bounds),
	};

	return cmocka_run_group_tests_name("handlers: exec output", tests, NULL, NULL);
}
