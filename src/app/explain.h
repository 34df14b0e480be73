/* explain.h - the schedule of a retry policy as numbers and as text. Pure; any thread. */
#ifndef RDV_APP_EXPLAIN_H
#define RDV_APP_EXPLAIN_H
#include <jansson.h>
#include "settings.h"

/* [{"attempt", "earliest_ms", "latest_ms"}] for attempts 1..attempts: the delay before that attempt after the failure
 * before it. Returns owned; NULL without memory. */
json_t *rdv_explain_json(const struct rdv_retry *retry);
/* For people: the table, the total window, when the dead-letter queue is reached. Route's name in the heading. */
void rdv_explain_text(const struct rdv_route_settings *route, struct rdv_buffer *out);
#endif
