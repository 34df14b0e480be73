/* test_hash.c - published test vectors of the hashes and the generator; both bodies of CRC32C agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/hash.h"
#include "base/random.h"
#include <math.h>

static void crc32c_knows_the_vectors_of_rfc_3720(void **state)
{
	uint8_t data[32];

	assert_int_equal(rdv_crc32c(0, "", 0), 0);
	assert_int_equal(rdv_crc32c(0, "123456789", 9), 0xE3069283);
	memset(data, 0, 32);
	assert_int_equal(rdv_crc32c(0, data, 32), 0x8A9136AA);
	memset(data, 0xFF, 32);
	assert_int_equal(rdv_crc32c(0, data, 32), 0x62A8AB43);
	for (int i = 0; i < 32; i++)
		data[i] = (uint8_t)i;
	assert_int_equal(rdv_crc32c(0, data, 32), 0x46DD794E);
	for (int i = 0; i < 32; i++)
		data[i] = (uint8_t)(31 - i);
	assert_int_equal(rdv_crc32c(0, data, 32), 0x113FDB5C);
	assert_int_equal(rdv_crc32c_portable(0, data, 32), 0x113FDB5C);
}

static void crc32c_fast_and_portable_agree_at_every_size_and_alignment(void **state)
{
	static uint8_t data[4096 + 16];
	struct rdv_random r;

	rdv_random_seed(&r, 41);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)rdv_random_next(&r);
	for (size_t size = 0; size <= 4096; size++) {
		uint32_t seed = (uint32_t)rdv_random_next(&r);
		const uint8_t *p = data + size % 13;
		if (rdv_crc32c(seed, p, size) != rdv_crc32c_portable(seed, p, size))
			fail_msg("size %zu", size);
	}
}

static void crc32c_goes_on_from_a_seed(void **state)
{
	uint8_t data[1000];
	uint32_t whole;

	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7);
	whole = rdv_crc32c(0, data, sizeof data);
	for (size_t cut = 0; cut <= sizeof data; cut += 37)
		assert_int_equal(rdv_crc32c(rdv_crc32c(0, data, cut), data + cut, sizeof data - cut), whole);
}

static void crc32c_sees_every_flipped_bit(void **state)
{
	uint8_t data[300] = {1, 2, 3};
	uint32_t whole = rdv_crc32c(9, data, sizeof data);

	for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(rdv_crc32c(9, data, sizeof data), whole);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* The vectors of the SipHash paper: key 00..0f, input 00..3e. */
static void siphash_knows_the_authors_vectors(void **state)
{
	uint8_t secret[16], in[15];
	struct rdv_hash128 h;

	for (int i = 0; i < 16; i++)
		secret[i] = (uint8_t)i;
	for (int i = 0; i < 15; i++)
		in[i] = (uint8_t)i;
	assert_true(rdv_siphash(secret, rdv_slice(NULL, 0)) == 0x726FDB47DD0E0E31u);
	assert_true(rdv_siphash(secret, rdv_slice(in, 15)) == 0xA129CA6149BE45E5u);
	h = rdv_siphash128(secret, rdv_slice(NULL, 0));
	assert_true(h.lo == 0xE6A825BA047F81A3u && h.hi == 0x930255C71472F66Du);
	secret[3] ^= 1;
	assert_true(rdv_siphash(secret, rdv_slice(in, 15)) != 0xA129CA6149BE45E5u);
}

/* Fingerprints are stored: another value in a later version would split every group. */
static void xxh3_keeps_its_values(void **state)
{
	struct rdv_hash128 h = rdv_xxh3_128(rdv_slice(NULL, 0));

	assert_true(rdv_xxh3(rdv_slice(NULL, 0)) == 0x2D06800538D394C2u);
	assert_true(h.hi == 0x99AA06D3014798D8u && h.lo == 0x6001C324468D497Fu);
	assert_true(rdv_xxh3(rdv_slice_text("redrive")) != rdv_xxh3(rdv_slice_text("Redrive")));
}

static void secret_fills_all_bytes_differently_each_time(void **state)
{
	uint8_t a[1000] = {0}, b[1000] = {0};
	unsigned zeros = 0;

	rdv_secret(a, sizeof a);
	rdv_secret(b, sizeof b);
	rdv_secret(a, 0);
	assert_memory_not_equal(a, b, sizeof a);
	for (size_t i = 0; i < sizeof a; i++)
		zeros += a[i] == 0;
	assert_true(zeros < 60);
}

/* The reference implementation's numbers for splitmix64(0) and xoshiro256** on that state. */
static void random_is_the_same_for_ever(void **state)
{
	static const uint64_t numbers[] = {11520,
					   0,
					   1509978240,
					   1215971899390074240,
					   1216172134540287360,
					   607988272756665600,
					   16172922978634559625u,
					   8476171486693032832,
					   10595114339597558777u,
					   2904607092377533576};
	struct rdv_random r;

	rdv_random_seed(&r, 0);
	assert_true(r.s[0] == 0xE220A8397B1DCDAFu && r.s[1] == 0x6E789E6AA1B965F4u);
	assert_true(rdv_random_next(&r) == 0x99EC5F36CB75F2B4u);
	assert_true(rdv_random_next(&r) == 0xBF6E1F784956452Au);
	assert_true(rdv_random_next(&r) == 0x1A5F849D4933E6E0u);
	r = (struct rdv_random){{1, 2, 3, 4}};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		assert_true(rdv_random_next(&r) == numbers[i]);
}

static void random_below_is_bounded_and_fair(void **state)
{
	unsigned seen[7] = {0};
	struct rdv_random r;

	rdv_random_seed(&r, 42);
	assert_int_equal(rdv_random_below(&r, 0), 0);
	assert_int_equal(rdv_random_below(&r, 1), 0);
	for (int i = 0; i < 70000; i++)
		seen[rdv_random_below(&r, 7)]++;
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 9600, 10400); /* more than 4 standard deviations */
	for (int i = 0; i < 1000; i++) {
		uint64_t bound = rdv_random_next(&r);
		if (bound)
			assert_true(rdv_random_below(&r, bound) < bound);
	}
	/* Below 3/4 of the range, of four products in a row two would fall on the same multiple of 3. */
	unsigned threes = 0;
	for (int i = 0; i < 30000; i++)
		threes += rdv_random_below(&r, 3ull << 62) % 3 == 0;
	assert_in_range(threes, 9600, 10400);
}

static void random_unit_is_below_one_and_spread(void **state)
{
	struct rdv_random r;
	double sum = 0;

	rdv_random_seed(&r, 43);
	for (int i = 0; i < 100000; i++) {
		double v = rdv_random_unit(&r);
		assert_true(v >= 0 && v < 1);
		sum += v;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.005);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc32c_knows_the_vectors_of_rfc_3720),
		cmocka_unit_test(crc32c_fast_and_portable_agree_at_every_size_and_alignment),
		cmocka_unit_test(crc32c_goes_on_from_a_seed),
		cmocka_unit_test(crc32c_sees_every_flipped_bit),
		cmocka_unit_test(siphash_knows_the_authors_vectors),
		cmocka_unit_test(xxh3_keeps_its_values),
		cmocka_unit_test(secret_fills_all_bytes_differently_each_time),
		cmocka_unit_test(random_is_the_same_for_ever),
		cmocka_unit_test(random_below_is_bounded_and_fair),
		cmocka_unit_test(random_unit_is_below_one_and_spread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
