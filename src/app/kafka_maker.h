/* kafka_maker.h - how routes' sources on Kafka are made; kept as long as the engine lives.
 *
 * A maker outlives the settings it was made from, which a reload replaces: it owns a copy of all that it needs. The
 * same route has the same maker over reloads, since its source cannot change. One thread at a time. */
#ifndef RDV_APP_KAFKA_MAKER_H
#define RDV_APP_KAFKA_MAKER_H
#include "settings.h"

struct rdv_kafka_maker;
struct rdv_kafka_makers { /* zero-initialised */
	struct rdv_kafka_maker *newest;
};
/* A new one for the route. NULL without memory. */
const struct rdv_source_maker *rdv_kafka_makers_add(struct rdv_kafka_makers *all, const struct rdv_route_settings *r);
/* The newest of the route's name; NULL: none. */
const struct rdv_source_maker *rdv_kafka_makers_find(const struct rdv_kafka_makers *all, const char *route);
void rdv_kafka_makers_done(struct rdv_kafka_makers *all); /* after the engine */
/* What the driver gets; borrows from the settings. Without a route's kafka source all of it is empty. */
void rdv_kafka_options_of(const struct rdv_route_settings *r, struct rdv_kafka_options *out);
#endif
