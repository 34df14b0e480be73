/* metrics.c - the table of metrics: name, type, help, and a function that writes its samples from one reading.
 *
 * One reading takes every route once, so that the counts of a route add up within a scrape. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "metrics.h"
#include "server.h"

struct reading {
	struct rdv_route_status *routes; /* owns */
	struct rdv_route_metrics *more;  /* owns; one per route */
	size_t count;
	struct rdv_engine_metrics engine;
	uint64_t desk_waiting;
};

struct metric {
	const char *name, *type, *help, *labels;
	void (*write)(struct rdv_buffer *out, const struct metric *m, const struct reading *r);
	size_t field; /* in the account, or in the status */
};

static void head(struct rdv_buffer *out, const struct metric *m)
{
	rdv_buffer_printf(out, "# HELP redrive_%s %s\n# TYPE redrive_%s %s\n", m->name, m->help, m->name, m->type);
}

static void labels(struct rdv_buffer *out, const struct metric *m, const struct rdv_route_status *r, const char *more)
{
	rdv_buffer_printf(out, "redrive_%s{route=\"%s\",topic=\"%s\"%s}", m->name, r->name, r->topic, more);
}

static uint64_t account_field(const struct rdv_route_status *r, size_t field)
{
	return *(const uint64_t *)((const char *)&r->account + field);
}

static void write_account(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %" PRIu64 "\n", account_field(&r->routes[i], m->field));
	}
}

static void write_states(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	static const struct {
		const char *label;
		size_t field;
	} states[] = {
		{",state=\"ready\"", offsetof(struct rdv_account, ready)},
		{",state=\"waiting\"", offsetof(struct rdv_account, waiting)},
		{",state=\"held\"", offsetof(struct rdv_account, held)},
		{",state=\"in_flight\"", offsetof(struct rdv_account, in_flight)},
		{",state=\"acked\"", offsetof(struct rdv_account, acked)},
		{",state=\"dead\"", offsetof(struct rdv_account, dead)},
		{",state=\"dropped\"", offsetof(struct rdv_account, dropped)},
		{",state=\"revoked\"", offsetof(struct rdv_account, revoked)},
	};
	for (size_t i = 0; i < r->count; i++)
		for (size_t s = 0; s < sizeof states / sizeof states[0]; s++) {
			labels(out, m, &r->routes[i], states[s].label);
			rdv_buffer_printf(out, " %" PRIu64 "\n", account_field(&r->routes[i], states[s].field));
		}
}

static void write_attempts(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	static const struct {
		const char *label;
		size_t field;
	} verdicts[] = {
		{",verdict=\"ack\"", offsetof(struct rdv_account, succeeded)},
		{",verdict=\"retry\"", offsetof(struct rdv_account, failed)},
		{",verdict=\"reject\"", offsetof(struct rdv_account, rejected)},
		{",verdict=\"drop\"", offsetof(struct rdv_account, attempts_dropped)},
		{",verdict=\"defer\"", offsetof(struct rdv_account, deferrals)},
		{",verdict=\"crash\"", offsetof(struct rdv_account, crashes)},
		{",verdict=\"shutdown\"", offsetof(struct rdv_account, shutdowns)},
		{",verdict=\"outage\"", offsetof(struct rdv_account, outage)},
	};
	for (size_t i = 0; i < r->count; i++)
		for (size_t v = 0; v < sizeof verdicts / sizeof verdicts[0]; v++) {
			labels(out, m, &r->routes[i], verdicts[v].label);
			rdv_buffer_printf(out, " %" PRIu64 "\n", account_field(&r->routes[i], verdicts[v].field));
		}
}

static void write_failed_by_attempt(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++)
		for (size_t n = 0; n < 17; n++) {
			char more[32];
			if (r->more[i].retry_by_attempt[n] == 0)
				continue;
			if (n < 16)
				snprintf(more, sizeof more, ",n=\"%zu\"", n + 1);
			else
				snprintf(more, sizeof more, ",n=\"more\"");
			labels(out, m, &r->routes[i], more);
			rdv_buffer_printf(out, " %" PRIu64 "\n", r->more[i].retry_by_attempt[n]);
		}
}

static void write_dead(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++)
		for (int reason = 1; reason < RDV_REASON_COUNT; reason++) {
			char more[64];
			if (r->more[i].dead_by_reason[reason] == 0)
				continue;
			snprintf(more, sizeof more, ",reason=\"%s\"", rdv_reason_name((enum rdv_reason)reason));
			labels(out, m, &r->routes[i], more);
			rdv_buffer_printf(out, " %" PRIu64 "\n", r->more[i].dead_by_reason[reason]);
		}
}

static void histogram(struct rdv_buffer *out, const char *name, const char *labels_text, const struct rdv_histogram *h)
{
	uint64_t sum = 0;
	for (size_t b = 0; b < 23; b++) { /* the last one has no bound: +Inf */
		sum += h->buckets[b];
		rdv_buffer_printf(out, "redrive_%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, labels_text,
				  *labels_text ? "," : "", rdv_histogram_bounds[b], sum);
	}
	rdv_buffer_printf(out,
			  "redrive_%s_bucket{%s%sle=\"+Inf\"} %" PRIu64
			  "\nredrive_%s_sum{%s} %.9g\nredrive_%s_count{%s} %" PRIu64 "\n",
			  name, labels_text, *labels_text ? "," : "", h->count, name, labels_text, h->sum, name,
			  labels_text, h->count);
}

static void write_route_histogram(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		char text[400];
		snprintf(text, sizeof text, "route=\"%s\",topic=\"%s\"", r->routes[i].name, r->routes[i].topic);
		histogram(out, m->name, text, (const struct rdv_histogram *)((const char *)&r->more[i] + m->field));
	}
}

static void write_sync(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	histogram(out, m->name, "", &r->engine.sync_seconds);
}

static void write_breaker(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %d\n", r->routes[i].breaker_on ? (int)r->routes[i].target_status.state : 0);
	}
}

static void write_budget(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %.6g\n", r->routes[i].target_status.budget_spent_ratio);
	}
}

static void write_success_ratio(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		uint64_t ended = r->more[i].retries_ended;
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %.6g\n", ended ? (double)r->more[i].retries_acked / (double)ended : 1.0);
	}
}

static void write_overdue(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %.3f\n", (double)r->routes[i].overdue_ms / 1000);
	}
}

static void write_oldest(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %.3f\n", (double)r->routes[i].oldest_unfinished_ms / 1000);
	}
}

static void write_held_back(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		labels(out, m, &r->routes[i], "");
		rdv_buffer_printf(out, " %" PRIu64 "\n", r->routes[i].held_back);
	}
}

static void write_journal(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	const struct rdv_log_space *s = &r->engine.space;
	rdv_buffer_printf(out,
			  "redrive_%s{kind=\"used\"} %" PRIu64 "\nredrive_%s{kind=\"live\"} %" PRIu64
			  "\nredrive_%s{kind=\"capacity\"} %" PRIu64 "\n",
			  m->name, s->bytes, m->name, s->live_bytes, m->name, s->capacity);
}

static void write_waiting_letters(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %" PRIu64 "\n", m->name, r->desk_waiting);
}

static void write_oldest_letter(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %.3f\n", m->name, (double)r->engine.oldest_letter_ms / 1000);
}

static void write_unread(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %" PRIu64 "\n", m->name, r->engine.unread);
}

static void write_unread_total(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %" PRIu64 "\n", m->name, r->engine.unread_total);
}

static void write_damaged(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %" PRIu64 "\n", m->name, r->engine.damaged_segments);
}

static void write_ids(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %" PRIu64 "\n", m->name, r->engine.ids);
}

static void write_ids_evicted(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	rdv_buffer_printf(out, "redrive_%s %" PRIu64 "\n", m->name, r->engine.ids_evicted);
}

static void write_replays(struct rdv_buffer *out, const struct metric *m, const struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct rdv_account *a = &r->routes[i].account;
		labels(out, m, &r->routes[i], ",outcome=\"acked\"");
		rdv_buffer_printf(out, " %" PRIu64 "\n", a->replays_acked);
		labels(out, m, &r->routes[i], ",outcome=\"dead_again\"");
		rdv_buffer_printf(out, " %" PRIu64 "\n", a->replays_dead);
	}
}

#define ROUTE "route, topic"
#define ACCOUNT(field_name) write_account, offsetof(struct rdv_account, field_name)
#define HISTOGRAM(field_name) write_route_histogram, offsetof(struct rdv_route_metrics, field_name)
static const struct metric table[] = {
	{"messages_received_total", "counter", "Messages taken in.", ROUTE, ACCOUNT(received)},
	{"messages_acked_total", "counter", "Messages acked.", ROUTE, ACCOUNT(acked)},
	{"messages_dropped_total", "counter", "Messages dropped by the handler, a rule or on_exhausted.", ROUTE,
	 ACCOUNT(dropped)},
	{"messages", "gauge", "Messages by state; all states together are the messages received.", ROUTE ", state",
	 write_states, 0},
	{"consumer_retry_total", "counter", "Deliveries that were not a message's first.", ROUTE, ACCOUNT(retries)},
	{"consumer_retry_delay_seconds", "histogram", "Delays before retries, as decided.", ROUTE,
	 HISTOGRAM(delay_seconds)},
	{"consumer_retry_active", "gauge", "Messages that wait for a retry or a delayed delivery.", ROUTE,
	 ACCOUNT(waiting)},
	{"retry_success_ratio", "gauge",
	 "Of the retries that ended with ack, retry or reject since the start, the part that was acked; 1 without any.",
	 ROUTE, write_success_ratio, 0},
	{"attempts_total", "counter", "Attempts that ended, by verdict.", ROUTE ", verdict", write_attempts, 0},
	{"attempts_failed_total", "counter", "Failed attempts by attempt number.", ROUTE ", n", write_failed_by_attempt,
	 0},
	{"attempts_timeouts_total", "counter", "Attempts without an answer in time (also among the failed).", ROUTE,
	 ACCOUNT(timeouts)},
	{"handler_duration_seconds", "histogram", "Time of one call.", ROUTE, HISTOGRAM(handler_seconds)},
	{"message_consume_age_seconds", "histogram",
	 "From produced to handed to the handler (lease: offered to pullers), each attempt.", ROUTE,
	 HISTOGRAM(age_seconds)},
	{"business_reject_total", "counter", "Attempts the handler rejected.", ROUTE, ACCOUNT(rejected)},
	{"dead_letter_total", "counter", "Letters since the start of the process, by reason.", ROUTE ", reason",
	 write_dead, 0},
	{"breaker_state", "gauge", "0 up, 1 down, 2 half.", ROUTE, write_breaker, 0},
	{"budget_spent_ratio", "gauge", "Part of the retry budget in use.", ROUTE, write_budget, 0},
	{"budget_held_back", "gauge", "Due retries that wait for a budget token.", ROUTE, write_held_back, 0},
	{"overdue_seconds", "gauge", "How late the oldest due retry is.", ROUTE, write_overdue, 0},
	{"oldest_unfinished_seconds", "gauge", "Age of the oldest unfinished message.", ROUTE, write_oldest, 0},
	{"replay_letters_total", "counter", "Letters that a replay ended, by outcome.", ROUTE ", outcome",
	 write_replays, 0},
	{"journal_bytes", "gauge", "The journal on disk.", "kind", write_journal, 0},
	{"journal_sync_seconds", "histogram", "Time of one commit: write and sync.", "", write_sync, 0},
	{"desk_waiting_letters", "gauge", "Letters on their way to the desk.", "", write_waiting_letters, 0},
	{"desk_waiting_oldest_seconds", "gauge", "Age of the oldest letter on its way to the desk; 0 without one.", "",
	 write_oldest_letter, 0},
	{"unreadable_messages", "gauge", "Messages whose bodies cannot be read now: they wait, uncharged.", "",
	 write_unread, 0},
	{"unreadable_total", "counter", "Times that a body could not be read.", "", write_unread_total, 0},
	{"journal_damaged_segments_total", "counter", "Damaged segments of the journal that were set aside.", "",
	 write_damaged, 0},
	{"publish_ids", "gauge", "Publish ids remembered.", "", write_ids, 0},
	{"publish_ids_evicted_total", "counter", "Publish ids forgotten before their time, for want of room.", "",
	 write_ids_evicted, 0},
};
#define TABLE_COUNT (sizeof table / sizeof table[0])

static void free_reading(struct reading *r)
{
	free(r->routes);
	free(r->more);
}

static void keep_scope(struct reading *r, const struct rdv_token *who)
{
	size_t kept = 0;
	for (size_t i = 0; i < r->count; i++)
		if (rdv_token_covers(who, r->routes[i].name))
			r->routes[kept++] = r->routes[i];
	r->count = kept;
}

/* A route may have the name that a removed one left to its lanes; a series twice in one scrape voids all of it. Orphans
 * come last, so theirs are renamed. No route's name holds a space. */
static void part_names(struct reading *r)
{
	for (size_t i = 1; i < r->count; i++)
		for (size_t k = 0; k < i && r->routes[i].orphan; k++)
			if (strcmp(r->routes[i].name, r->routes[k].name) == 0 &&
			    strcmp(r->routes[i].topic, r->routes[k].topic) == 0) {
				size_t size = strlen(r->routes[i].name), room = sizeof r->routes[i].name;
				size = size < room - 10 ? size : room - 10;
				memcpy(r->routes[i].name + size, " (orphan)", 10);
				break;
			}
}

static enum redrive_status take_reading(struct rdv_engine *engine, struct rdv_desk *desk, const struct rdv_token *who,
					struct reading *r)
{
	memset(r, 0, sizeof *r);
	enum redrive_status status = rdv_engine_routes(engine, NULL, &r->routes, &r->count);
	if (status != REDRIVE_OK)
		return status;
	keep_scope(r, who);
	part_names(r);
	r->more = calloc(r->count + 1, sizeof *r->more);
	if (!r->more)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < r->count; i++) {
		status = rdv_engine_route_metrics(engine, r->routes[i].name, &r->more[i]);
		if (status != REDRIVE_OK && status != REDRIVE_NOT_FOUND) /* an orphan has none */
			return status;
	}
	rdv_engine_metrics(engine, &r->engine);
	r->desk_waiting = desk ? rdv_desk_waiting(desk) : 0;
	return REDRIVE_OK;
}

enum redrive_status rdv_metrics_write(struct rdv_engine *engine, struct rdv_desk *desk, const struct rdv_token *who,
				      struct rdv_buffer *out)
{
	struct reading r;
	enum redrive_status status = take_reading(engine, desk, who, &r);
	for (size_t i = 0; status == REDRIVE_OK && i < TABLE_COUNT; i++) {
		head(out, &table[i]);
		table[i].write(out, &table[i], &r);
	}
	free_reading(&r);
	return status;
}

void rdv_api_metrics_reference(struct rdv_buffer *out)
{
	rdv_buffer_text(out, "# Metrics\n\nMade by `redrive reference metrics` from the table that /metrics uses.\n\n"
			     "| metric | type | labels | meaning |\n|---|---|---|---|\n");
	for (size_t i = 0; i < TABLE_COUNT; i++)
		rdv_buffer_printf(out, "| `redrive_%s` | %s | %s | %s |\n", table[i].name, table[i].type,
				  table[i].labels, table[i].help);
}
