/* test_demo_data.c - the embedded payloads are whole and real; damaged ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <zstd.h>
#include "app/demo_data.h"
#include "base/random.h"

static struct rdv_demo_payloads *open_payloads(void)
{
	struct rdv_demo_payloads *p = NULL;

	assert_int_equal(rdv_demo_payloads_open(&p), REDRIVE_OK);
	return p;
}

static void demo_data_has_every_example_of_the_locked_package(void **state)
{
	struct rdv_demo_payloads *p = open_payloads();
	struct rdv_demo_payload item;

	assert_int_equal(rdv_demo_payload_count(p), 329);
	assert_true(rdv_demo_payload(p, 328, &item));
	assert_false(rdv_demo_payload(p, 329, &item));
	assert_false(rdv_demo_payload(p, SIZE_MAX, &item));
	rdv_demo_payloads_close(p);
	rdv_demo_payloads_close(NULL);
}

static void check_text_is(json_t *value, struct rdv_slice want)
{
	if (json_is_string(value))
		assert_true(rdv_slice_is(want, json_string_value(value)));
	else
		assert_int_equal(want.size, 0);
}

static void demo_data_bodies_are_json_that_agree_with_action_and_key(void **state)
{
	struct rdv_demo_payloads *p = open_payloads();
	struct rdv_demo_payload item;
	size_t largest = 0, keyless = 0;

	for (size_t i = 0; rdv_demo_payload(p, i, &item); i++) {
		json_t *body = json_loadb((const char *)item.body.data, item.body.size, JSON_REJECT_DUPLICATES, NULL);
		assert_true(json_is_object(body));
		assert_true(item.event.size > 0);
		check_text_is(json_object_get(body, "action"), item.action);
		check_text_is(json_object_get(json_object_get(body, "repository"), "full_name"), item.key);
		json_decref(body);
		largest = item.body.size > largest ? item.body.size : largest;
		keyless += item.key.size == 0;
	}
	assert_in_range(largest, 26000, 28000);
	assert_in_range(keyless, 1, 100);
	rdv_demo_payloads_close(p);
}

/* Packs `size` bytes and tries to read them. */
static enum redrive_status read_packed(const void *bytes, size_t size)
{
	size_t room = ZSTD_compressBound(size);
	uint8_t *packed = malloc(room);
	struct rdv_demo_payloads *p = NULL;
	size_t packed_size = ZSTD_compress(packed, room, bytes, size, 1);
	enum redrive_status status = rdv_demo_payloads_read(rdv_slice(packed, packed_size), &p);

	assert_true((status == REDRIVE_OK) == (p != NULL));
	rdv_demo_payloads_close(p);
	free(packed);
	return status;
}

static void demo_data_refuses_records_that_do_not_fit(void **state)
{
	static const struct {
		const char *name;
		const char bytes[12];
		size_t size;
		enum redrive_status want;
	} cases[] = {
		{"one record", "\1\0\0\0\1e\0\0\2{}", 11, REDRIVE_OK},
		{"no record", "\0\0\0\0", 4, REDRIVE_OK},
		{"nothing", "", 0, REDRIVE_CORRUPT},
		{"a cut count", "\1\0\0", 3, REDRIVE_CORRUPT},
		{"a cut body", "\1\0\0\0\1e\0\0\3{}", 11, REDRIVE_CORRUPT},
		{"more records than bytes", "\2\0\0\0\1e\0\0\2{}", 11, REDRIVE_CORRUPT},
		{"more records than any memory", "\xff\xff\xff\xff\1e\0\0\2{}", 11, REDRIVE_CORRUPT},
		{"a byte behind the last", "\1\0\0\0\1e\0\0\2{}x", 12, REDRIVE_CORRUPT},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (read_packed(cases[i].bytes, cases[i].size) != cases[i].want)
			fail_msg("%s", cases[i].name);
	}
}

static void demo_data_refuses_what_is_no_zstd_frame(void **state)
{
	struct rdv_demo_payloads *p = NULL;
	uint8_t bytes[64];
	struct rdv_random r;

	rdv_random_seed(&r, 7);
	for (int round = 0; round < 1000; round++) {
		for (size_t i = 0; i < sizeof bytes; i++)
			bytes[i] = (uint8_t)rdv_random_next(&r);
		if (round % 2) /* the magic number of a frame, then noise */
			memcpy(bytes, "\x28\xb5\x2f\xfd", 4);
		assert_int_equal(rdv_demo_payloads_read(rdv_slice(bytes, sizeof bytes), &p), REDRIVE_CORRUPT);
		assert_null(p);
	}
	assert_int_equal(rdv_demo_payloads_read(rdv_slice("", 0), &p), REDRIVE_CORRUPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(demo_data_has_every_example_of_the_locked_package),
		cmocka_unit_test(demo_data_bodies_are_json_that_agree_with_action_and_key),
		cmocka_unit_test(demo_data_refuses_records_that_do_not_fit),
		cmocka_unit_test(demo_data_refuses_what_is_no_zstd_frame),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
