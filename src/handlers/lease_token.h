/* lease_token.h - what a lease's holder shows again: unforgeable names of leases. Pure; any thread. */
#ifndef RDV_HANDLERS_LEASE_TOKEN_H
#define RDV_HANDLERS_LEASE_TOKEN_H
#include "handler.h"

struct rdv_lease_token {
	uint32_t number; /* of the handler */
	uint32_t slot;
	uint64_t serial; /* below 2^56 */
	uint32_t lane;   /* of the message, below 2^31 */
	uint64_t offset;
	bool replay;
};
void rdv_lease_token_write(const uint8_t secret[16], const struct rdv_lease_token *token,
			   char text[RDV_LEASE_TOKEN_SIZE]);
/* False: no token, or not one written with this secret. */
bool rdv_lease_token_read(const uint8_t secret[16], const char *text, struct rdv_lease_token *token);
#endif
