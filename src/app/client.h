/* client.h - the commands' HTTP client: one connection to the server, JSON in and out.
 * Single thread. Every call bounds what it reads. */
#ifndef RDV_APP_CLIENT_H
#define RDV_APP_CLIENT_H
#include <jansson.h>
#include "command.h"

struct rdv_client;
/* The server's address and the token come from the options, then the environment. Exit code 0, or told and returned. */
int rdv_client_open(const struct rdv_invocation *in, struct rdv_client **out);
void rdv_client_close(struct rdv_client *c);

struct rdv_request_body {
	struct rdv_slice bytes;
	const char *const *headers; /* "Name: value", NULL-terminated; NULL = none */
	bool post;                  /* true even if bytes are empty */
};
struct rdv_response {
	long status;
	struct rdv_buffer body;
	json_t *json; /* the body parsed, or NULL when it is no JSON */
};
void rdv_response_done(struct rdv_response *r);
/* method: GET, POST, PATCH. Returns 0 for 2xx, else the exit code after the problem was told on standard error (unless
 * quiet). path starts with '/'. */
int rdv_client_call(struct rdv_client *c, const char *method, const char *path, const struct rdv_request_body *body,
		    struct rdv_response *out);
/* POST of a JSON value (may be NULL: an empty object is not sent); takes the reference. */
int rdv_client_post(struct rdv_client *c, const char *path, json_t *value, struct rdv_response *out);
/* Every item of a list, page after page, as one answer {items, next: null}; path without limit and cursor. *out: owned.
 */
int rdv_client_all(struct rdv_client *c, const char *path, json_t **out);
/* A whole command: GET a path (done with it), and print the answer, as JSON or by `print`. */
int rdv_client_show(const struct rdv_invocation *in, struct rdv_buffer *path,
		    void (*print)(const struct rdv_invocation *in, const json_t *answer));
/* The same of every page of a list. */
int rdv_client_show_all(const struct rdv_invocation *in, const char *path,
			void (*print)(const struct rdv_invocation *in, const json_t *answer));
/* Streams a GET's body to a file; for `dead body`. */
int rdv_client_download(struct rdv_client *c, const char *path, FILE *to);
/* Appends "?name=value" or "&name=value", URL-encoded. value NULL: nothing. */
void rdv_query_add(struct rdv_buffer *path, const char *name, const char *value);
/* Appends an encoded path segment. */
void rdv_path_add(struct rdv_buffer *path, const char *segment);
#endif
