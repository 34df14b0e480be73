/* server.h - the HTTP API: libmicrohttpd's pool, limits, and the table of operations.
 *
 * Requests run on the pool's threads: publishing goes straight to the engine and the connection is suspended until it
 * is durable; everything else asks the core thread by engine functions. Every answer carries Redrive-Version; every 4xx
 * and 5xx a problem body. Hosts and Origins that are not ours are 403 before anything else. Tokens are read again by
 * rdv_api_load. */
#ifndef RDV_API_SERVER_H
#define RDV_API_SERVER_H
#include "../desk/desk.h"
#include "../runtime/engine.h"

struct rdv_api;
struct rdv_api_options { /* borrowed until start returns, but engine and desk */
	struct rdv_engine *engine;
	struct rdv_desk *desk;
	const char *host;
	uint16_t port;                    /* 0 = any free one */
	const char *cert_file, *key_file; /* NULL = plain HTTP */
	const char *const *hosts;
	size_t host_count;       /* allowed besides loopback names */
	const char *tokens_file; /* NULL = no tokens: everybody local is admin */
	uint64_t body_max, headers_max, batch_max;
	uint64_t head_max; /* request line and headers, limits.request_head */
};
enum redrive_status rdv_api_start(const struct rdv_api_options *options, struct rdv_api **out,
				  struct rdv_error *error) RDV_MUST_CHECK;
uint16_t rdv_api_port(const struct rdv_api *api);
/* A reload, in two halves: the tokens file's content and the limits (body_max, headers_max, batch_max) are read, which
 * can be refused; and put into force, which cannot fail. What is loaded is either committed or forgotten. */
struct rdv_api_change;
enum redrive_status rdv_api_load(const struct rdv_api_options *options, struct rdv_api_change **out,
				 struct rdv_error *error) RDV_MUST_CHECK;
void rdv_api_commit(struct rdv_api *api, struct rdv_api_change *change);
void rdv_api_forget(struct rdv_api_change *change);
void rdv_api_stop(struct rdv_api *api); /* ends open requests with 503, then frees */

/* OpenAPI document and Markdown reference, from the table of operations. */
void rdv_api_openapi(struct rdv_buffer *out);
void rdv_api_reference(struct rdv_buffer *out);
void rdv_api_metrics_reference(struct rdv_buffer *out);
#endif
