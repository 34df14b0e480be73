/* library_settings.c - "key=value" texts of the C API to options: one table per struct.
 *
 * A row names the setting, its kind and its place in the options; kinds with words of their own have a function. Values
 * are bounded as in the configuration file. Nothing is kept of a list in which anything is wrong. */
#include "library_settings.h"
#include "base/quantity.h"
#include <stddef.h>
#include <stdlib.h>

struct row {
	const char *key;
	enum redrive_status (*set)(void *field, struct rdv_slice value);
	size_t offset;
};

static enum redrive_status set_duration(void *field, struct rdv_slice value)
{
	return rdv_duration_parse(value, field);
}

static enum redrive_status set_size(void *field, struct rdv_slice value)
{
	return rdv_size_parse(value, field);
}

static enum redrive_status set_count(void *field, struct rdv_slice value)
{
	int64_t n;
	enum redrive_status status = rdv_integer_parse(value, &n);

	if (status != REDRIVE_OK || n < 1 || n > INT32_MAX)
		return REDRIVE_INVALID;
	*(uint32_t *)field = (uint32_t)n;
	return REDRIVE_OK;
}

static enum redrive_status set_number(void *field, struct rdv_slice value)
{
	int64_t n;
	enum redrive_status status = rdv_integer_parse(value, &n);

	if (status != REDRIVE_OK || n < 1)
		return REDRIVE_INVALID;
	*(uint64_t *)field = (uint64_t)n;
	return REDRIVE_OK;
}

static enum redrive_status set_rate(void *field, struct rdv_slice value)
{
	return rdv_rate_parse(value, field);
}

static enum redrive_status set_float(void *field, struct rdv_slice value)
{
	char text[32], *end;
	double n;

	rdv_slice_to_text(value, text, sizeof text);
	n = strtod(text, &end);
	if (end == text || *end || !(n > 0 && n <= 1000))
		return REDRIVE_INVALID;
	*(double *)field = n;
	return REDRIVE_OK;
}

static enum redrive_status set_text(void *field, struct rdv_slice value)
{
	*(const char **)field = (const char *)value.data; /* the settings' texts end with NUL */
	return REDRIVE_OK;
}

/* Index of the word in a list that ends with NULL, as an enum. */
static enum redrive_status set_word(int *field, struct rdv_slice value, const char *const words[])
{
	for (int i = 0; words[i]; i++) {
		if (rdv_slice_is(value, words[i])) {
			*field = i;
			return REDRIVE_OK;
		}
	}
	return REDRIVE_INVALID;
}

static enum redrive_status set_order(void *field, struct rdv_slice value)
{
	return set_word(field, value, (const char *const[]){"none", "key", NULL});
}

static enum redrive_status set_after_dead(void *field, struct rdv_slice value)
{
	return set_word(field, value, (const char *const[]){"continue", "hold", "follow", NULL});
}

static enum redrive_status set_backoff(void *field, struct rdv_slice value)
{
	return set_word(
		field, value,
		(const char *const[]){"fixed", "linear", "exponential", "polynomial", "list", "rocketmq", NULL});
}

static enum redrive_status set_on_exhausted(void *field, struct rdv_slice value)
{
	return set_word(field, value, (const char *const[]){"dead", "drop", NULL});
}

static enum redrive_status set_switch(void *field, struct rdv_slice value)
{
	int on;
	enum redrive_status status = set_word(&on, value, (const char *const[]){"off", "on", NULL});

	if (status == REDRIVE_OK)
		*(bool *)field = on;
	return status;
}

static enum redrive_status set_storm(void *field, struct rdv_slice value)
{
	int hold;
	enum redrive_status status = set_word(&hold, value, (const char *const[]){"dead", "hold", NULL});

	if (status == REDRIVE_OK)
		*(bool *)field = hold;
	return status;
}

static enum redrive_status set_jitter(void *field, struct rdv_slice value)
{
	struct rdv_retry *retry = field;
	static const char both[] = "±";
	double fraction;

	retry->jitter = RDV_JITTER_ADD;
	if (rdv_slice_is(value, "none") || rdv_slice_is(value, "full")) {
		retry->jitter = rdv_slice_is(value, "full") ? RDV_JITTER_FULL : RDV_JITTER_NONE;
		return REDRIVE_OK;
	}
	if (value.size > 2 && memcmp(value.data, both, 2) == 0) {
		value = rdv_slice(value.data + 2, value.size - 2);
		retry->jitter = RDV_JITTER_BOTH;
	}
	if (rdv_ratio_parse(value, &fraction) != REDRIVE_OK || fraction < 0 || fraction > 1)
		return REDRIVE_INVALID;
	retry->jitter_fraction = fraction;
	return REDRIVE_OK;
}

static enum redrive_status set_delays(void *field, struct rdv_slice value)
{
	struct rdv_retry *retry = field;

	retry->delay_count = 0;
	while (value.size) {
		const uint8_t *comma = memchr(value.data, ',', value.size);
		size_t size = comma ? (size_t)(comma - value.data) : value.size;

		if (retry->delay_count == RDV_DELAYS_MAX ||
		    rdv_duration_parse(rdv_slice(value.data, size), &retry->delays[retry->delay_count++]) != REDRIVE_OK)
			return REDRIVE_INVALID;
		size += comma != NULL;
		value = rdv_slice(value.data + size, value.size - size);
	}
	return retry->delay_count ? REDRIVE_OK : REDRIVE_INVALID;
}

static enum redrive_status set_dedupe_by(void *field, struct rdv_slice value)
{
	struct rdv_dedupe_policy *d = field;

	if (rdv_slice_is(value, "id"))
		d->by = RDV_DEDUPE_ID;
	else if (rdv_slice_is(value, "key"))
		d->by = RDV_DEDUPE_KEY;
	else if (value.size > 7 && value.size < sizeof d->name && memcmp(value.data, "header:", 7) == 0)
		d->by = RDV_DEDUPE_HEADER;
	else if (value.size > 5 && value.size < sizeof d->name && memcmp(value.data, "json:/", 6) == 0)
		d->by = RDV_DEDUPE_JSON;
	else
		return REDRIVE_INVALID;
	if (d->by == RDV_DEDUPE_HEADER)
		rdv_slice_to_text(rdv_slice(value.data + 7, value.size - 7), d->name, sizeof d->name);
	if (d->by == RDV_DEDUPE_JSON)
		rdv_slice_to_text(rdv_slice(value.data + 5, value.size - 5), d->name, sizeof d->name);
	return REDRIVE_OK;
}

static enum redrive_status set_preset(void *field, struct rdv_slice value)
{
	(void)field; /* was applied first */
	return value.size ? REDRIVE_OK : REDRIVE_INVALID;
}

#define ENGINE(field) offsetof(struct rdv_engine_options, field)
#define ROUTE(field) offsetof(struct rdv_route_options, field)

static const struct row engine_rows[] = {
	{"journal", set_size, ENGINE(journal)},    {"disk_free", set_size, ENGINE(disk_free)},
	{"body", set_size, ENGINE(body_max)},      {"headers", set_size, ENGINE(headers_max)},
	{"batch", set_size, ENGINE(batch_max)},    {"ids", set_number, ENGINE(ids)},
	{"drain", set_duration, ENGINE(drain_ms)}, {NULL, NULL, 0},
};

static const struct row route_rows[] = {
	{"preset", set_preset, 0},
	{"partitions", set_count, ROUTE(partitions)},
	{"concurrency", set_count, ROUTE(target_policy.concurrency)},
	{"rate", set_rate, ROUTE(target_policy.rate)},
	{"breaker", set_switch, ROUTE(target_policy.breaker.on)},
	{"budget", set_switch, ROUTE(target_policy.budget.on)},
	{"storm", set_storm, ROUTE(route_policy.storm_hold)},
	{"target", set_text, ROUTE(target)},
	{"order", set_order, ROUTE(lane.order)},
	{"after_dead", set_after_dead, ROUTE(lane.after_dead)},
	{"timeout", set_duration, ROUTE(callback.timeout_ms)},
	{"threads", set_count, ROUTE(callback.threads)},
	{"lease_for", set_duration, ROUTE(lease.lease_for_ms)},
	{"retry.attempts", set_count, ROUTE(lane.retry.attempts)},
	{"retry.on_exhausted", set_on_exhausted, ROUTE(lane.retry.on_exhausted)},
	{"retry.window", set_duration, ROUTE(lane.retry.window_ms)},
	{"retry.backoff", set_backoff, ROUTE(lane.retry.backoff)},
	{"retry.base", set_duration, ROUTE(lane.retry.base_ms)},
	{"retry.factor", set_float, ROUTE(lane.retry.factor)},
	{"retry.exponent", set_float, ROUTE(lane.retry.exponent)},
	{"retry.cap", set_duration, ROUTE(lane.retry.cap_ms)},
	{"retry.jitter", set_jitter, ROUTE(lane.retry)},
	{"retry.min", set_duration, ROUTE(lane.retry.min_ms)},
	{"retry.max_age", set_duration, ROUTE(lane.retry.max_age_ms)},
	{"retry.crashes", set_count, ROUTE(lane.retry.crashes)},
	{"retry.deferrals", set_count, ROUTE(lane.retry.deferrals)},
	{"retry.delays", set_delays, ROUTE(lane.retry)},
	{"dedupe.by", set_dedupe_by, ROUTE(lane.dedupe)},
	{"dedupe.ttl", set_duration, ROUTE(lane.dedupe.ttl_ms)},
	{"dedupe.entries", set_number, ROUTE(lane.dedupe.entries)},
	{NULL, NULL, 0},
};

static enum redrive_status set_one(const struct row *rows, const char *text, void *options, struct rdv_error *error)
{
	const char *equals = strchr(text, '=');
	struct rdv_slice key = rdv_slice(text, equals ? (size_t)(equals - text) : strlen(text));

	for (; rows->key && equals; rows++) {
		if (!rdv_slice_is(key, rows->key))
			continue;
		if (rows->set((char *)options + rows->offset, rdv_slice_text(equals + 1)) == REDRIVE_OK)
			return REDRIVE_OK;
		return rdv_error_set(error, REDRIVE_INVALID, "setting '%s': this value is not allowed", text);
	}
	return rdv_error_set(error, REDRIVE_INVALID, "setting '%s' is not known", text);
}

static enum redrive_status set_all(const struct row *rows, const char *const settings[], void *options,
				   struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;

	for (; settings && *settings && status == REDRIVE_OK; settings++)
		status = set_one(rows, *settings, options, error);
	return status;
}

enum redrive_status rdv_library_engine_settings(const char *const settings[], struct rdv_engine_options *out,
						struct rdv_error *error)
{
	out->drain_ms = 30000;
	return set_all(engine_rows, settings, out, error);
}

static enum redrive_status apply_preset(const char *const settings[], struct rdv_route_options *out,
					struct rdv_error *error)
{
	static const char *const names[] = {"", "payment", "order", "notice", "log", "realtime", NULL};

	for (; settings && *settings; settings++) {
		int preset;

		if (strncmp(*settings, "preset=", 7) != 0)
			continue;
		if (set_word(&preset, rdv_slice_text(*settings + 7), names) != REDRIVE_OK || preset == 0)
			return rdv_error_set(error, REDRIVE_INVALID,
					     "setting '%s': payment, order, notice, log, realtime are known",
					     *settings);
		rdv_retry_preset(&out->lane.retry, (enum rdv_preset)preset);
	}
	return REDRIVE_OK;
}

enum redrive_status rdv_library_route_settings(const char *const settings[], struct rdv_route_options *out,
					       struct rdv_error *error)
{
	enum redrive_status status;

	out->partitions = 4;
	out->callback.timeout_ms = 30000;
	out->callback.threads = 1;
	out->lease.lease_for_ms = 30000;
	rdv_lane_policy_defaults(&out->lane);
	rdv_target_policy_defaults(&out->target_policy);
	rdv_route_policy_defaults(&out->route_policy);
	status = apply_preset(settings, out, error);
	if (status == REDRIVE_OK)
		status = set_all(route_rows, settings, out, error);
	if (status != REDRIVE_OK)
		return status;
	if (out->callback.threads > 64)
		return rdv_error_set(error, REDRIVE_INVALID, "threads: at most 64");
	if (out->partitions > RDV_PARTITIONS_MAX)
		return rdv_error_set(error, REDRIVE_INVALID, "partitions: at most %u", RDV_PARTITIONS_MAX);
	if (out->lane.after_dead != RDV_AFTER_CONTINUE && out->lane.order != RDV_ORDER_KEY)
		return rdv_error_set(error, REDRIVE_INVALID, "after_dead needs order=key");
	if (out->lane.retry.backoff == RDV_BACKOFF_LIST && !out->lane.retry.delay_count)
		return rdv_error_set(error, REDRIVE_INVALID, "retry.backoff=list needs retry.delays");
	return REDRIVE_OK;
}
