/* extract.h - values that the configuration names in messages: metadata, index terms, dedupe keys. Any thread. */
#ifndef RDV_RUNTIME_EXTRACT_H
#define RDV_RUNTIME_EXTRACT_H
#include "engine.h"

/* The value that a "header:NAME", "json:/pointer" or literal names; empty slice = none. `text` owns what is made. */
struct rdv_slice rdv_extract(const char *spec, const struct rdv_body *body, struct rdv_buffer *text);
bool rdv_dedupe_needs_json(const struct rdv_dedupe_policy *p);
/* The dedupe key of a message; false: it has none. */
bool rdv_dedupe_key(const struct rdv_dedupe_policy *p, const struct rdv_call *call, const struct rdv_body *body,
		    struct rdv_buffer *text, struct rdv_slice *key);
#endif
