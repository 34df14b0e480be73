/* metrics.h - one table of metrics, from which /metrics and its reference are made. Any thread. */
#ifndef RDV_API_METRICS_H
#define RDV_API_METRICS_H
#include "../desk/desk.h"
#include "../runtime/engine.h"
#include "tokens.h"

/* Prometheus text format 0.0.4, of the routes that the token covers. */
enum redrive_status rdv_metrics_write(struct rdv_engine *engine, struct rdv_desk *desk, const struct rdv_token *who,
				      struct rdv_buffer *out) RDV_MUST_CHECK;
#endif
