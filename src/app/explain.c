/* explain.c - when each attempt of a policy comes, at the earliest and at the latest. */
#include <stdio.h>
#include "../base/quantity.h"
#include "explain.h"

static void bounds(const struct rdv_retry *retry, uint32_t attempt, int64_t *earliest, int64_t *latest)
{
	*earliest = *latest = 0;
	if (attempt > 1)
		rdv_retry_bounds(retry, attempt - 1, earliest, latest);
}

json_t *rdv_explain_json(const struct rdv_retry *retry)
{
	json_t *rows = json_array();
	for (uint32_t attempt = 1; rows && attempt <= retry->attempts; attempt++) {
		int64_t earliest, latest;
		bounds(retry, attempt, &earliest, &latest);
		json_t *row = json_pack("{s:I, s:I, s:I}", "attempt", (json_int_t)attempt, "earliest_ms",
					(json_int_t)earliest, "latest_ms", (json_int_t)latest);
		if (!row || json_array_append_new(rows, row) != 0) {
			json_decref(rows);
			return NULL;
		}
	}
	return rows;
}

#define ROWS_SHOWN 40u

void rdv_explain_text(const struct rdv_route_settings *route, struct rdv_buffer *out)
{
	const struct rdv_retry *retry = &route->lane.retry;
	int64_t earliest = 0, latest = 0;
	char low[RDV_QUANTITY_TEXT], high[RDV_QUANTITY_TEXT], total_low[RDV_QUANTITY_TEXT],
		total_high[RDV_QUANTITY_TEXT];
	rdv_buffer_printf(out,
			  "route %s: %u attempt%s\n\n  attempt   delay before it            after the first failure\n",
			  route->name, retry->attempts, retry->attempts == 1 ? "" : "s");
	for (uint32_t attempt = 1; attempt <= retry->attempts; attempt++) {
		int64_t a, b;
		bounds(retry, attempt, &a, &b);
		earliest = rdv_ms_add(earliest, a);
		latest = rdv_ms_add(latest, b);
		if (attempt > ROWS_SHOWN && attempt < retry->attempts)
			continue;
		if (attempt > ROWS_SHOWN && retry->attempts > ROWS_SHOWN + 1)
			rdv_buffer_text(out, "      ...\n");
		rdv_duration_format(a, low);
		rdv_duration_format(b, high);
		rdv_duration_format(earliest, total_low);
		rdv_duration_format(latest, total_high);
		char delay[2 * RDV_QUANTITY_TEXT + 8], total[2 * RDV_QUANTITY_TEXT + 8];
		snprintf(delay, sizeof delay, "%s to %s", low, high);
		snprintf(total, sizeof total, "%s to %s", total_low, total_high);
		rdv_buffer_printf(out, "  %7u   %-26s %s\n", attempt,
				  attempt == 1 ? "at once"
				  : a == b     ? low
					       : delay,
				  attempt == 1         ? ""
				  : earliest == latest ? total_low
						       : total);
	}
	rdv_duration_format(earliest, total_low);
	rdv_duration_format(latest, total_high);
	rdv_buffer_printf(out,
			  "\n  A message that fails every time is %s %s to %s after its first failure, plus the time "
			  "of the calls.\n",
			  retry->on_exhausted == RDV_EXHAUSTED_DROP ? "dropped" : "a dead letter (exhausted)",
			  total_low, total_high);
	rdv_buffer_text(out, "  Attempts that fail while the target is down are not counted.\n");
}
