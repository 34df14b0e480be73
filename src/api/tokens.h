/* tokens.h - the tokens file: names, roles, scopes, and hashes of tokens (never a token).
 *
 * YAML: tokens: [ { name, role, routes: [..], hash: "blake2b:<hex>", added } ]. Roles: viewer < reader < operator <
 * approver < admin. A token is "rdv_" + 43 characters of URL-safe base64 of 32 random bytes; its hash is BLAKE2b-256
 * (libsodium), compared in constant time. */
#ifndef RDV_API_TOKENS_H
#define RDV_API_TOKENS_H
#include "../base/bytes.h"

enum rdv_role {
	RDV_ROLE_NONE,
	RDV_ROLE_VIEWER,
	RDV_ROLE_READER,
	RDV_ROLE_OPERATOR,
	RDV_ROLE_APPROVER,
	RDV_ROLE_ADMIN,
	RDV_ROLE_COUNT
};
const char *rdv_role_name(enum rdv_role r);
bool rdv_role_parse(const char *name, enum rdv_role *out);

struct rdv_token {
	char name[101];
	enum rdv_role role;
	char (*routes)[101]; /* owns; NULL = all routes */
	size_t route_count;
	uint8_t hash[32];
	char added[25];
};
struct rdv_tokens {
	struct rdv_token *items; /* owns */
	size_t count;
};
enum redrive_status rdv_tokens_load(const char *file, struct rdv_tokens *out, struct rdv_error *error) RDV_MUST_CHECK;
/* Written to a new file 0600, then renamed. */
enum redrive_status rdv_tokens_save(const char *file, const struct rdv_tokens *t,
				    struct rdv_error *error) RDV_MUST_CHECK;
void rdv_tokens_done(struct rdv_tokens *t);
/* A new token; its text once in *secret. CONFLICT: the name is taken. */
#define RDV_TOKEN_TEXT 64
enum redrive_status rdv_tokens_add(struct rdv_tokens *t, const char *name, enum rdv_role role,
				   const char *const *routes, size_t route_count, char secret[RDV_TOKEN_TEXT],
				   struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_tokens_remove(struct rdv_tokens *t, const char *name) RDV_MUST_CHECK;
/* The entry of a presented token, or NULL. Every entry is compared, in constant time. */
const struct rdv_token *rdv_tokens_find(const struct rdv_tokens *t, struct rdv_slice presented);
/* Name, role and scope; the routes of the copy are its own: free them. NO_MEMORY: an empty token. */
enum redrive_status rdv_token_copy(const struct rdv_token *from, struct rdv_token *out) RDV_MUST_CHECK;
bool rdv_token_covers(const struct rdv_token *t, const char *route);
#endif
