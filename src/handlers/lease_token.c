/* lease_token.c - unforgeable names of leases.
 *
 *	number 4 | slot 4 | serial 7 | lane 4, its top bit: a replay | offset 8 | SipHash-2-4 of these 27 bytes 8
 *
 * as 70 hex digits, integers little-endian. The SipHash is keyed with a secret of one handler in one run, so a token of
 *an earlier run is as unknown as a guessed one; it is compared in constant time. Hex is libsodium's. Pure; any thread.
 */
#include "lease_token.h"
#include <sodium.h>

#define SIGNED_BYTES 27
#define REPLAY 0x80000000u
#define TOKEN_BYTES (SIGNED_BYTES + 8)
#define DIGITS (2 * TOKEN_BYTES)
_Static_assert(DIGITS + 1 <= sizeof((struct rdv_leased *)0)->token, "a token fits");

static bool read_bytes(const char *text, uint8_t bytes[TOKEN_BYTES])
{
	size_t size;

	return strlen(text) == DIGITS && !sodium_hex2bin(bytes, TOKEN_BYTES, text, DIGITS, NULL, &size, NULL) &&
	       size == TOKEN_BYTES;
}

void rdv_lease_token_write(const uint8_t secret[16], const struct rdv_lease_token *token,
			   char text[RDV_LEASE_TOKEN_SIZE])
{
	uint8_t bytes[TOKEN_BYTES];

	rdv_put_u32(bytes, token->number);
	rdv_put_u32(bytes + 4, token->slot);
	rdv_put_u64(bytes + 8, token->serial); /* its 8th byte is 0, and written over */
	rdv_put_u32(bytes + 15, token->lane | (token->replay ? REPLAY : 0));
	rdv_put_u64(bytes + 19, token->offset);
	rdv_put_u64(bytes + SIGNED_BYTES, rdv_siphash(secret, rdv_slice(bytes, SIGNED_BYTES)));
	sodium_bin2hex(text, DIGITS + 1, bytes, TOKEN_BYTES);
}

bool rdv_lease_token_read(const uint8_t secret[16], const char *text, struct rdv_lease_token *token)
{
	uint8_t bytes[TOKEN_BYTES], wanted[8];

	if (!read_bytes(text, bytes))
		return false;
	rdv_put_u64(wanted, rdv_siphash(secret, rdv_slice(bytes, SIGNED_BYTES)));
	if (sodium_memcmp(wanted, bytes + SIGNED_BYTES, sizeof wanted) != 0)
		return false;
	token->number = rdv_get_u32(bytes);
	token->slot = rdv_get_u32(bytes + 4);
	token->serial = 0;
	memcpy(&token->serial, bytes + 8, 7);
	token->lane = rdv_get_u32(bytes + 15) & ~REPLAY;
	token->replay = rdv_get_u32(bytes + 15) & REPLAY;
	token->offset = rdv_get_u64(bytes + 19);
	return true;
}

bool rdv_lease_token_number(const char *text, uint32_t *number)
{
	uint8_t bytes[TOKEN_BYTES];

	if (!read_bytes(text, bytes))
		return false;
	*number = rdv_get_u32(bytes);
	return true;
}
