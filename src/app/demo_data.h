/* demo_data.h - the real webhook payloads that `redrive demo` publishes, embedded in the program.
 *
 * They are the examples of the npm package @octokit/webhooks-examples (MIT licence), compressed at build time by
 * tools/demo-data. Opening decompresses them once into memory of their own (about 3 MB); the slices of a payload
 * borrow from it until close. An opened set is read-only: any number of threads may read it. */
#ifndef RDV_APP_DEMO_DATA_H
#define RDV_APP_DEMO_DATA_H
#include "../base/bytes.h"

struct rdv_demo_payload {
	struct rdv_slice event;  /* "pull_request" */
	struct rdv_slice action; /* "opened"; empty if the event has none */
	struct rdv_slice key;    /* the repository's full name; empty if the event belongs to none */
	struct rdv_slice body;   /* compact JSON, UTF-8 */
};

struct rdv_demo_payloads;

/* The embedded set; CORRUPT if the embedded bytes are damaged, NO_MEMORY. *out is owned by the caller. */
enum redrive_status rdv_demo_payloads_open(struct rdv_demo_payloads **out) RDV_MUST_CHECK;
/* The same from other bytes: a zstd frame, as tools/demo-data makes it. Does not keep `packed`. */
enum redrive_status rdv_demo_payloads_read(struct rdv_slice packed, struct rdv_demo_payloads **out) RDV_MUST_CHECK;
void rdv_demo_payloads_close(struct rdv_demo_payloads *p); /* accepts NULL */
size_t rdv_demo_payload_count(const struct rdv_demo_payloads *p);
/* False if there is no payload i. */
bool rdv_demo_payload(const struct rdv_demo_payloads *p, size_t i, struct rdv_demo_payload *out);
#endif
