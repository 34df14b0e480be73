/* serve.h - the daemon's parts joined: settings, engine, desk, API. Used by `redrive serve` and `redrive demo`. Start
 * and stop from one thread. */
#ifndef RDV_APP_SERVE_H
#define RDV_APP_SERVE_H
#include "../api/server.h"
#include "desk_feed.h"
#include "kafka_maker.h"
#include "logger.h"
#include "settings.h"

enum rdv_server_part {
	RDV_SERVER_ALL,
	RDV_SERVER_RUNTIME, /* the desk gets no letters of routes on Kafka: another instance's does */
	RDV_SERVER_DESK     /* nothing is consumed */
};
struct rdv_server {
	struct rdv_settings settings;
	struct rdv_engine *engine;  /* owns */
	struct rdv_api *api;        /* owns */
	struct rdv_logger *logger;  /* borrows */
	struct rdv_buffer *secrets; /* owns; one per route: signing secrets */
	size_t secret_count;
	struct rdv_kafka_makers makers; /* owns what the engine borrows */
	struct rdv_desk_feeds feeds;    /* owns */
	enum rdv_server_part only;
	uint32_t segment_size;     /* 0 = default */
	_Atomic int ended;         /* 1 + status once the engine has ended by itself */
	void (*on_end)(void *ctx); /* any thread; may be NULL */
	void *on_end_ctx;
};

/* Takes over `settings` (also on failure: rdv_server_stop frees). On not OK the error says why; nothing runs. */
enum redrive_status rdv_server_start(struct rdv_server *s, struct rdv_settings *settings,
				     struct rdv_error *error) RDV_MUST_CHECK;
/* All or nothing: true and `settings` taken over; or false, all that is against it among the findings, and the caller
 * keeps them. */
bool rdv_server_reload(struct rdv_server *s, struct rdv_settings *settings,
		       struct rdv_findings *findings) RDV_MUST_CHECK;
/* Drains and frees everything. REDRIVE_FAILED if the engine had ended by itself. */
enum redrive_status rdv_server_stop(struct rdv_server *s);
/* "http://127.0.0.1:7337" */
void rdv_server_url(const struct rdv_server *s, char out[128]);
#endif
