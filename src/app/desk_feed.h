/* desk_feed.h - the desk is fed from the letters topics of routes on Kafka: one reader a route, joined to the desk.
 *
 * A reload neither adds nor removes routes on Kafka, so that they stay as they were started. One thread. */
#ifndef RDV_APP_DESK_FEED_H
#define RDV_APP_DESK_FEED_H
#include "../desk/desk.h"
#include "logger.h"
#include "settings.h"

struct rdv_desk_feed;
struct rdv_desk_feeds { /* zero-initialised */
	struct rdv_desk_feed *newest;
	struct rdv_desk *desk;     /* borrows; NULL = there are no feeds */
	struct rdv_logger *logger; /* borrows */
};
/* For every route on Kafka. After the desk's start. On not OK those that run are stopped by rdv_desk_feeds_stop. */
enum redrive_status rdv_desk_feeds_start(struct rdv_desk_feeds *f, const struct rdv_settings *s, struct rdv_desk *desk,
					 struct rdv_error *error) RDV_MUST_CHECK;
/* Before the desk's stop: it answers what they have given to it. */
void rdv_desk_feeds_stop(struct rdv_desk_feeds *f);
#endif
