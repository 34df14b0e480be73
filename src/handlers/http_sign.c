/* http_sign.c - Standard Webhooks signatures (specification 1.0.0, symmetric keys, scheme v1).
 *
 *	webhook-id: the message id, the same for all attempts
 *	webhook-timestamp: seconds since 1970, of this attempt
 *	webhook-signature: "v1," base64(HMAC-SHA256(key, id "." timestamp "." body))
 *
 * The key is the decoded rest of a secret "whsec_<base64>", or the secret's own bytes. HMAC is libsodium's. */
#include "http_request.h"
#include "../base/text.h"
#include <inttypes.h>
#include <sodium.h>

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

enum redrive_status rdv_http_sign_key(struct rdv_slice secret, struct rdv_buffer *key)
{
	static const char prefix[] = "whsec_";
	const size_t skip = sizeof prefix - 1;

	while (secret.size && is_blank(secret.data[secret.size - 1]))
		secret.size--;
	while (secret.size && is_blank(secret.data[0]))
		secret = rdv_slice(secret.data + 1, secret.size - 1);
	if (secret.size >= skip && memcmp(secret.data, prefix, skip) == 0) {
		enum redrive_status status = rdv_base64_decode(key, rdv_slice(secret.data + skip, secret.size - skip));

		if (status)
			return status;
	} else {
		rdv_buffer_slice(key, secret);
	}
	if (key->failed)
		return REDRIVE_NO_MEMORY;
	return key->size ? REDRIVE_OK : REDRIVE_INVALID;
}

void rdv_http_sign_add(struct rdv_http_request *r, struct rdv_slice key, struct rdv_slice message_id,
		       struct rdv_wall now, struct rdv_slice body)
{
	crypto_auth_hmacsha256_state state;
	uint8_t mac[crypto_auth_hmacsha256_BYTES];
	char seconds[24];
	int length = snprintf(seconds, sizeof seconds, "%" PRId64, now.ms / 1000);

	crypto_auth_hmacsha256_init(&state, key.data, key.size);
	crypto_auth_hmacsha256_update(&state, message_id.data, message_id.size);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)".", 1);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)seconds, (size_t)length);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)".", 1);
	crypto_auth_hmacsha256_update(&state, body.data, body.size);
	crypto_auth_hmacsha256_final(&state, mac);
	rdv_http_request_add(r, "webhook-id", message_id);
	rdv_http_request_add(r, "webhook-timestamp", rdv_slice(seconds, (size_t)length));
	rdv_http_request_begin(r, "webhook-signature");
	rdv_buffer_text(&r->text, "v1,");
	rdv_base64_encode(&r->text, rdv_slice(mac, sizeof mac));
	rdv_http_request_end(r);
}
