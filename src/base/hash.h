/* hash.h - the hashes of the house.
 *   siphash  keyed SipHash-2-4 (Aumasson and Bernstein): keys and publish ids, against chosen collisions; libsodium
 *   crc32c   Castagnoli, SSE4.2 where the machine has it, slicing-by-8 elsewhere: frames
 *   xxh3     libxxhash: letter ids, fingerprints; not against an adversary
 * Pure; any thread. */
#ifndef RDV_BASE_HASH_H
#define RDV_BASE_HASH_H
#include "bytes.h"

struct rdv_hash128 {
	uint64_t lo, hi;
};
uint64_t rdv_siphash(const uint8_t secret[16], struct rdv_slice in);
struct rdv_hash128 rdv_siphash128(const uint8_t secret[16], struct rdv_slice in);
/* Of `data` behind bytes whose CRC is `seed` (0 = none): crc(crc(0, a), b) = crc(0, ab). */
uint32_t rdv_crc32c(uint32_t seed, const void *data, size_t size);
/* The same, without special instructions; for the tests, which compare the two. */
uint32_t rdv_crc32c_portable(uint32_t seed, const void *data, size_t size);
uint64_t rdv_xxh3(struct rdv_slice in);
struct rdv_hash128 rdv_xxh3_128(struct rdv_slice in);
/* Random bytes for secrets, from the operating system. */
void rdv_secret(void *out, size_t size);
#endif
