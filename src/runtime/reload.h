/* reload.h - a new set of routes on its way: made by reload.c, put into force by apply.c; for those two only. */
#ifndef RDV_RUNTIME_RELOAD_H
#define RDV_RUNTIME_RELOAD_H
#include "room.h"

struct rdv_change { /* of one route of the new set */
	const struct rdv_route_options *options;
	char *target;            /* owns: its name */
	struct rdv_route *route; /* there already, or made here */
	bool is_new;
	struct rdv_route_info *info; /* owns until applied; of a route that stays */
	struct rdv_outlet *outlet;   /* owns until applied; NULL = the old one stays */
	struct rdv_unit *unit;
	struct rdv_seat *seat;       /* owns until applied; NULL = the old one stays */
	struct rdv_strand **strands; /* owns; of a new route */
};
struct rdv_reload {
	const struct rdv_engine_options *limits; /* NULL = they stay */
	const struct rdv_route_options *routes;
	size_t count;
	struct rdv_error *error;
	struct rdv_change *changes; /* owns */
	struct rdv_unit *units;     /* new ones */
	struct rdv_feed *feeds;     /* new ones */
	struct rdv_topic **topics;  /* new ones */
	size_t topic_count;
	uint64_t ticket;
	enum redrive_status status;
};
/* Everything is there: nothing is refused any more. Should the journal take no record, the engine has failed. */
void rdv_reload_apply(struct rdv_engine *e, struct rdv_reload *q);
#endif
