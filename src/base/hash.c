/* hash.c - SipHash and xxh3 from their libraries, CRC32C here, secrets from the kernel.
 *
 * CRC32C has two bodies that agree. With SSE4.2 and PCLMUL: a crc32 instruction takes 8 bytes a cycle but
 * answers after three, so blocks are read as three streams side by side and joined by multiplication:
 *
 *     | n bytes: a | n bytes: b | n bytes: c |      crc = a * x^(16n) + b * x^(8n) + c   (mod P)
 *
 * A carry-less product with x^(8n-33), reduced by one crc32 instruction (which multiplies by x^32; reflection
 * gives another x), moves a CRC n bytes on: Gopal et al., "Fast CRC computation for iSCSI polynomial using
 * CRC32 instruction", Intel 2011. Elsewhere slicing by 8 (Kounavis and Berry 2005), with eight tables that the
 * compiler builds from their 64 single-bit entries, since a CRC is linear.
 * Nothing here fails but the kernel's randomness, which ends the program. Any thread. */
#include "hash.h"
#include <assert.h>
#include <errno.h>
#include <sodium/crypto_shorthash.h>
#include <sys/random.h>
#include <xxhash.h>

uint64_t rdv_siphash(const uint8_t secret[16], struct rdv_slice in)
{
	uint8_t out[crypto_shorthash_siphash24_BYTES];

	crypto_shorthash_siphash24(out, in.data, in.size, secret);
	return rdv_get_u64(out);
}

struct rdv_hash128 rdv_siphash128(const uint8_t secret[16], struct rdv_slice in)
{
	uint8_t out[crypto_shorthash_siphashx24_BYTES];

	crypto_shorthash_siphashx24(out, in.data, in.size, secret);
	return (struct rdv_hash128){.lo = rdv_get_u64(out), .hi = rdv_get_u64(out + 8)};
}

uint64_t rdv_xxh3(struct rdv_slice in)
{
	return XXH3_64bits(in.data, in.size);
}

struct rdv_hash128 rdv_xxh3_128(struct rdv_slice in)
{
	XXH128_hash_t h = XXH3_128bits(in.data, in.size);

	return (struct rdv_hash128){.lo = h.low64, .hi = h.high64};
}

/* The entries 1, 2, 4 ... 128 of table k: the CRC of that byte followed by k zero bytes. */
#define BITS_0 0xF26B8303, 0xE13B70F7, 0xC79A971F, 0x8AD958CF, 0x105EC76F, 0x20BD8EDE, 0x417B1DBC, 0x82F63B78
#define BITS_1 0x13A29877, 0x274530EE, 0x4E8A61DC, 0x9D14C3B8, 0x3FC5F181, 0x7F8BE302, 0xFF17C604, 0xFBC3FAF9
#define BITS_2 0xA541927E, 0x4F6F520D, 0x9EDEA41A, 0x38513EC5, 0x70A27D8A, 0xE144FB14, 0xC76580D9, 0x8B277743
#define BITS_3 0xDD45AAB8, 0xBF672381, 0x7B2231F3, 0xF64463E6, 0xE964B13D, 0xD725148B, 0xABA65FE7, 0x52A0C93F
#define BITS_4 0x38116FAC, 0x7022DF58, 0xE045BEB0, 0xC5670B91, 0x8F2261D3, 0x1BA8B557, 0x37516AAE, 0x6EA2D55C
#define BITS_5 0xEF306B19, 0xDB8CA0C3, 0xB2F53777, 0x6006181F, 0xC00C303E, 0x85F4168D, 0x0E045BEB, 0x1C08B7D6
#define BITS_6 0x68032CC8, 0xD0065990, 0xA5E0C5D1, 0x4E2DFD53, 0x9C5BFAA6, 0x3D5B83BD, 0x7AB7077A, 0xF56E0EF4
#define BITS_7 0x493C7D27, 0x9278FA4E, 0x211D826D, 0x423B04DA, 0x847609B4, 0x0D006599, 0x1A00CB32, 0x34019664

#define E0(x, a, b, c, d, e, f, g, h) (x), (x) ^ (a)
#define E1(x, a, b, c, d, e, f, g, h) E0(x, a, b, c, d, e, f, g, h), E0((x) ^ (b), a, b, c, d, e, f, g, h)
#define E2(x, a, b, c, d, e, f, g, h) E1(x, a, b, c, d, e, f, g, h), E1((x) ^ (c), a, b, c, d, e, f, g, h)
#define E3(x, a, b, c, d, e, f, g, h) E2(x, a, b, c, d, e, f, g, h), E2((x) ^ (d), a, b, c, d, e, f, g, h)
#define E4(x, a, b, c, d, e, f, g, h) E3(x, a, b, c, d, e, f, g, h), E3((x) ^ (e), a, b, c, d, e, f, g, h)
#define E5(x, a, b, c, d, e, f, g, h) E4(x, a, b, c, d, e, f, g, h), E4((x) ^ (f), a, b, c, d, e, f, g, h)
#define E6(x, a, b, c, d, e, f, g, h) E5(x, a, b, c, d, e, f, g, h), E5((x) ^ (g), a, b, c, d, e, f, g, h)
#define E7(x, a, b, c, d, e, f, g, h) E6(x, a, b, c, d, e, f, g, h), E6((x) ^ (h), a, b, c, d, e, f, g, h)
#define TABLE(...) E7(0u, __VA_ARGS__)

static const uint32_t tables[8][256] = {
	{TABLE(BITS_0)}, {TABLE(BITS_1)}, {TABLE(BITS_2)}, {TABLE(BITS_3)},
	{TABLE(BITS_4)}, {TABLE(BITS_5)}, {TABLE(BITS_6)}, {TABLE(BITS_7)},
};

uint32_t rdv_crc32c_portable(uint32_t seed, const void *data, size_t size)
{
	const uint8_t *p = data;
	uint32_t crc = ~seed;

	for (; size >= 8; size -= 8, p += 8) {
		uint64_t v = rdv_get_u64(p) ^ crc;
		crc = 0;
		for (unsigned i = 0; i < 8; i++)
			crc ^= tables[7 - i][v >> 8 * i & 0xFF];
	}
	for (; size; size--)
		crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 0xFF];
	return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>

#define FAST __attribute__((target("sse4.2,pclmul")))
#define STREAM ((size_t)96) /* bytes of one of three streams */
#define POWER_1 0x0715CE53u /* x^(8 * STREAM - 33) mod P, reflected */
#define POWER_2 0xAB7AFF2Au /* x^(16 * STREAM - 33) mod P, reflected */

/* Carry-less product of a CRC and a power of x; one more crc32 instruction then reduces it. */
FAST static inline uint64_t times(uint64_t crc, uint32_t power)
{
	__m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128(power), 0);

	return (uint64_t)_mm_cvtsi128_si64(product);
}

FAST static inline uint64_t three_streams(uint64_t a, const uint8_t *p)
{
	uint64_t b = 0, c = 0;

	for (const uint8_t *end = p + STREAM; p < end; p += 8) {
		a = _mm_crc32_u64(a, rdv_get_u64(p));
		b = _mm_crc32_u64(b, rdv_get_u64(p + STREAM));
		c = _mm_crc32_u64(c, rdv_get_u64(p + 2 * STREAM));
	}
	return c ^ _mm_crc32_u64(0, times(a, POWER_2) ^ times(b, POWER_1));
}

FAST static uint32_t crc32c_fast(uint32_t seed, const uint8_t *p, size_t size)
{
	uint64_t crc = (uint32_t)~seed;

	for (; size >= 3 * STREAM; size -= 3 * STREAM, p += 3 * STREAM)
		crc = three_streams(crc, p);
	for (; size >= 32; size -= 32, p += 32) { /* by four: fewer turns, the last of which is foreseen */
		crc = _mm_crc32_u64(crc, rdv_get_u64(p));
		crc = _mm_crc32_u64(crc, rdv_get_u64(p + 8));
		crc = _mm_crc32_u64(crc, rdv_get_u64(p + 16));
		crc = _mm_crc32_u64(crc, rdv_get_u64(p + 24));
	}
	for (; size >= 8; size -= 8, p += 8)
		crc = _mm_crc32_u64(crc, rdv_get_u64(p));
	if (size & 4) {
		crc = _mm_crc32_u32((uint32_t)crc, rdv_get_u32(p));
		p += 4;
	}
	for (size &= 3; size; size--)
		crc = _mm_crc32_u8((uint32_t)crc, *p++);
	return ~(uint32_t)crc;
}

uint32_t rdv_crc32c(uint32_t seed, const void *data, size_t size)
{
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")
		       ? crc32c_fast(seed, data, size)
		       : rdv_crc32c_portable(seed, data, size);
}
#else
uint32_t rdv_crc32c(uint32_t seed, const void *data, size_t size)
{
	return rdv_crc32c_portable(seed, data, size);
}
#endif

void rdv_secret(void *out, size_t size)
{
	uint8_t *at = out;

	while (size) {
		ssize_t n = getrandom(at, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		assert(n > 0); /* a machine without randomness must not make secrets */
		at += n;
		size -= (size_t)n;
	}
}
