/* system.c - /healthz, /readyz, /metrics, /openapi.json, /v1/whoami. */
#include <stdio.h>
#include "../../base/text.h"
#include "../api.h"
#include "../json.h"
#include "../metrics.h"
#include "resources.h"

#define LETTER_STUCK_MS 10000 /* then /readyz tells it; traffic can still be taken */

void rdv_resource_health(struct rdv_exchange *x)
{
	rdv_reply_json(x, 200, json_pack("{s:s}", "status", "alive"));
}

void rdv_resource_ready(struct rdv_exchange *x)
{
	const char *why = NULL;
	struct rdv_engine_metrics m;
	char attention[128] = "";
	rdv_engine_metrics(x->engine, &m);
	if (m.oldest_letter_ms > LETTER_STUCK_MS)
		snprintf(attention, sizeof attention, "the oldest letter has been on its way to the desk for %lld s",
			 (long long)(m.oldest_letter_ms / 1000));
	else if (m.unread)
		snprintf(attention, sizeof attention, "%llu messages cannot be read now", (unsigned long long)m.unread);
	if (rdv_engine_ready(x->engine, &why))
		rdv_reply_json(
			x, 200,
			json_pack("{s:s, s:s*}", "status", "ready", "attention", attention[0] ? attention : NULL));
	else
		rdv_reply_problem(x, 503, NULL, "not ready: %s%s%s", why ? why : "unknown", attention[0] ? "; " : "",
				  attention);
}

void rdv_resource_metrics(struct rdv_exchange *x)
{
	struct rdv_buffer text;
	rdv_buffer_init(&text, 64 << 20);
	enum redrive_status status = rdv_metrics_write(x->engine, x->desk, &x->who, &text);
	if (status == REDRIVE_OK && !text.failed)
		rdv_reply_bytes(x, 200, "text/plain; version=0.0.4; charset=utf-8", rdv_buffer_as_slice(&text), NULL);
	else
		rdv_reply_status(x, status == REDRIVE_OK ? REDRIVE_NO_MEMORY : status, NULL);
	rdv_buffer_done(&text);
}

void rdv_resource_openapi(struct rdv_exchange *x)
{
	struct rdv_buffer text;
	rdv_buffer_init(&text, 0);
	rdv_api_openapi(&text);
	rdv_reply_bytes(x, 200, "application/json", rdv_buffer_as_slice(&text), NULL);
	rdv_buffer_done(&text);
}

void rdv_resource_whoami(struct rdv_exchange *x)
{
	json_t *routes = json_array();
	for (size_t i = 0; i < x->who.route_count; i++)
		json_array_append_new(routes, json_string(x->who.routes[i]));
	rdv_reply_json(x, 200,
		       json_pack("{s:s, s:s, s:o}", "name", x->who.name, "role", rdv_role_name(x->who.role), "routes",
				 routes));
}
