/* json.h - the resources as JSON, exactly as the API and `-o json` show them. All return owned values, NULL without
 * memory. Pure; any thread. */
#ifndef RDV_API_JSON_H
#define RDV_API_JSON_H
#include <jansson.h>
#include "../desk/desk.h"
#include "../runtime/engine.h"

json_t *rdv_json_time(struct rdv_wall t); /* null for ms 0 */
json_t *
rdv_json_slice(struct rdv_slice text); /* text; bytes that are no UTF-8 are replaced by U+FFFD; null when empty */
json_t *rdv_json_text_or_empty(struct rdv_slice text); /* the same, "" when empty */
/* Sets "key" and "key_base64": null and null for a null key; text or base64. */
void rdv_json_key(json_t *object, bool has_key, struct rdv_slice key);
json_t *rdv_json_route(const struct rdv_route_status *r);
json_t *rdv_json_message(const struct rdv_message_status *m, struct rdv_desk *desk);
/* bodies: also what a viewer may not see (key, headers, texts). */
json_t *rdv_json_letter(const struct rdv_letter *l, bool whole);
json_t *rdv_json_plan(const struct rdv_plan *p);
json_t *rdv_json_list(json_t *items, const char *next); /* takes items; next "" = null */
void rdv_message_id_text(char out[256], const char *topic, uint32_t partition, uint64_t offset);
#endif
